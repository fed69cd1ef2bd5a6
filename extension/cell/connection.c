/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  Connections to cells, and waiting on them.
 *
 * A connection belongs to one scan at a time.  A scan that ends with nothing
 * under way leaves its connection to the session's cache, from which the next
 * scan takes it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

#define SESSIONS_CACHED		4
/* How soon a cell is asked again that took no connection. */
#define CONNECT_INTERVAL_MS 10

static CellarSession *idle_sessions[SESSIONS_CACHED];
static uint32 wait_event_smart_table_scan = 0;

/*
 * Takes an idle connection to the cell or makes a new one.  Returns NULL with *error
 * filled when the cell cannot be reached.
 */
CellarSession *
cellar_session_open(const char *socket_path, CellarError *error)
{
	CellarSession *session;
	CellarConnection *connection;

	cellar_count(CELLAR_STAT_SESSION_CACHE_LOOKUPS, 1);
	for (int i = 0; i < SESSIONS_CACHED; i++)
	{
		session = idle_sessions[i];
		if (session != NULL && strcmp(session->socket_path, socket_path) == 0)
		{
			idle_sessions[i] = NULL;
			session->reused = true;
			cellar_count(CELLAR_STAT_SESSION_CACHE_HITS, 1);
			return session;
		}
	}

	if (strlen(socket_path) >= sizeof(session->socket_path))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("path of the cell's socket is too long: \"%s\"", socket_path)));
	if (wait_event_smart_table_scan == 0)
		wait_event_smart_table_scan =
			CellarNewWaitEvent(cellar_wait_names[CELLAR_WAIT_SMART_TABLE_SCAN]);

	session = MemoryContextAllocZero(TopMemoryContext, sizeof(CellarSession));
	connection = cellar_connect(socket_path, MyProcPid, MyDatabaseId,
								GetSystemIdentifier(), cellar_incarnation(), error);
	if (connection == NULL)
	{
		pfree(session);
		return NULL;
	}
	session->connection = connection;
	strlcpy(session->socket_path, socket_path, sizeof(session->socket_path));
	return session;
}

/*
 * Gives back a connection on which nothing is under way.
 */
void
cellar_session_release(CellarSession *session)
{
	for (int i = 0; i < SESSIONS_CACHED; i++)
	{
		if (idle_sessions[i] == NULL)
		{
			idle_sessions[i] = session;
			return;
		}
	}
	cellar_session_close(session);
}

void
cellar_session_close(CellarSession *session)
{
	if (session->wait_set != NULL)
		FreeWaitEventSet(session->wait_set);
	cellar_close(session->connection);
	pfree(session);
}

/*
 * Waits until the socket is ready for what the client wants to do with it.
 */
static void
wait_for_socket(CellarSession *session, bool writable)
{
	WaitEvent	event;

	if (session->wait_set == NULL)
	{
		/* What is allocated first is freed by the callers' closing. */
		session->wait_set = CellarCreateWaitEventSet(3);
		AddWaitEventToSet(session->wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(session->wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
		session->socket_position =
			AddWaitEventToSet(session->wait_set, WL_SOCKET_READABLE,
							  cellar_socket(session->connection), NULL, NULL);
	}
	if (writable != session->wait_writable)
	{
		ModifyWaitEvent(session->wait_set, session->socket_position,
						writable ? (WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE) : WL_SOCKET_READABLE,
						NULL);
		session->wait_writable = writable;
	}
	WaitEventSetWait(session->wait_set, -1, &event, 1, wait_event_smart_table_scan);
}

/*
 * Waits until the cell takes us, or has something for us, or takes something
 * from us; an interrupt ends the wait, so a cell that is stopped holds no query
 * that is cancelled.
 */
void
cellar_session_pause(CellarSession *session, CellarEvent wanted)
{
	if (wanted == CELLAR_WAIT_CONNECT)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 CONNECT_INTERVAL_MS, wait_event_smart_table_scan);
	else
		wait_for_socket(session, wanted == CELLAR_WAIT_WRITABLE);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * The next event that is no wait; the waits are not counted.
 */
CellarEvent
cellar_session_next(CellarSession *session)
{
	for (;;)
	{
		CellarEvent event = cellar_next(session->connection);

		if (event != CELLAR_WAIT_READABLE && event != CELLAR_WAIT_WRITABLE &&
			event != CELLAR_WAIT_CONNECT)
			return event;
		cellar_session_pause(session, event);
	}
}

/*
 * What failed, in memory that outlives the session.
 */
CellarError
cellar_session_error(CellarSession *session)
{
	CellarError error = cellar_error(session->connection);

	error.message = pstrdup(error.message);
	error.detail = pstrdup(error.detail);
	error.hint = pstrdup(error.hint);
	return error;
}

/*
 * Waits as cellar_session_pause does, for a scan: the wait is counted.
 * Returns its microseconds.
 */
uint64
cellar_session_wait(CellarSession *session, CellarEvent wanted)
{
	instr_time	started;

	INSTR_TIME_SET_CURRENT(started);
	cellar_session_pause(session, wanted);
	return cellar_count_wait(CELLAR_WAIT_SMART_TABLE_SCAN, started);
}
