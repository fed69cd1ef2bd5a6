/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  Connections to cells, and waits on them.
 *
 * A CellarSession is a connection to a cell's socket.  It serves one scan or
 * exchange at a time.  Each backend caches a few connections without a request
 * in progress and reuses them for the next scan or exchange with the same cell.
 *
 * Every wait can be interrupted, so a query can be canceled even if the cell
 * does not answer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/statistics.h"

#define SESSIONS_CACHED		4
/* Delay before connecting again to a cell whose queue of connections is full. */
#define CONNECT_INTERVAL_MS 10

static CellarSession *idle_sessions[SESSIONS_CACHED];
static uint32 wait_event_smart_table_scan = 0;
static uint32 wait_event_smart_index_scan = 0;

/* Returns an idle connection to the cell from the cache, or a new one. */
static CellarSession *
open_session(const char *socket_path, CellarError *error)
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
			session->scans_index = false;
			cellar_count(CELLAR_STAT_SESSION_CACHE_HITS, 1);
			return session;
		}
	}

	if (strlen(socket_path) >= sizeof(session->socket_path))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("socket path of the cell is too long: \"%s\"", socket_path)));
	if (wait_event_smart_table_scan == 0)
	{
		wait_event_smart_table_scan =
			CellarNewWaitEvent(cellar_wait_names[CELLAR_WAIT_SMART_TABLE_SCAN], CELLAR_WAIT_SMART_TABLE_SCAN);
		wait_event_smart_index_scan =
			CellarNewWaitEvent(cellar_wait_names[CELLAR_WAIT_SMART_INDEX_SCAN], CELLAR_WAIT_SMART_INDEX_SCAN);
	}

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
 * Returns an idle connection to the cell from the cache, or a new one.  Returns
 * NULL with *error filled if the cell cannot be reached.  Raises an error if
 * the socket path is too long.
 */
CellarSession *
cellar_session_open(const char *socket_path, CellarError *error)
{
	CellarSession *session = open_session(socket_path, error);
	char		group[NAMEDATALEN];

	if (session != NULL)
	{
		cellar_own_consumer_group(group);
		cellar_tell_own_group(session->connection, MyProcPid, group);
	}
	return session;
}

/*
 * Adds a connection without a request in progress to the cache, or closes the
 * connection if the cache is full.
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

/* Returns the wait event of the connection's current request. */
static uint32
wait_event_of(const CellarSession *session)
{
	return session->scans_index ? wait_event_smart_index_scan : wait_event_smart_table_scan;
}

/*
 * Waits until the socket is readable, or writable if the client has data to
 * send, or the latch is set.
 */
static void
wait_for_socket(CellarSession *session, bool writable)
{
	WaitEvent	event;

	if (session->wait_set == NULL)
	{
		/* cellar_session_close frees the set, also after an error below. */
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
	WaitEventSetWait(session->wait_set, -1, &event, 1, wait_event_of(session));
}

/*
 * Waits for the given event: the cell accepts connections, has sent data, or
 * can receive data.  May return early.  Processes interrupts, so the wait ends
 * when the query is canceled.
 */
void
cellar_session_pause(CellarSession *session, CellarEvent wanted)
{
	if (wanted == CELLAR_WAIT_CONNECT)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 CONNECT_INTERVAL_MS, wait_event_of(session));
	else
		wait_for_socket(session, wanted == CELLAR_WAIT_WRITABLE);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Returns the next event that is not a wait.  Waits are not counted in the
 * statistics.
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
 * Returns the connection's error, copied to the current memory context so that
 * the connection can be closed.
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
 * Like cellar_session_pause, but counts the wait as "cell smart table scan" or
 * "cell smart index scan".
 * Returns the duration in microseconds.
 */
uint64
cellar_session_wait(CellarSession *session, CellarEvent wanted)
{
	instr_time	started;

	INSTR_TIME_SET_CURRENT(started);
	cellar_session_pause(session, wanted);
	return cellar_count_wait(session->scans_index ? CELLAR_WAIT_SMART_INDEX_SCAN : CELLAR_WAIT_SMART_TABLE_SCAN,
							 started);
}
