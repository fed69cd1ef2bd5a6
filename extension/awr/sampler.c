/*-------------------------------------------------------------------------
 *
 * sampler.c
 *	  The sampler: samples active sessions, row-lock waits and CPU times.
 *
 * The sampler is a part of the launcher (launcher.c).  At each tick
 * (cellar.awr_sample_period) the sampler looks at all processes.  A
 * client session, parallel worker or other process that executes a statement or
 * is idle in a transaction becomes one sample in the ring (samples.c); so does a
 * background process that waits for anything but its own work, or that used the
 * CPU since the last tick.  A wait event is read once, without synchronization:
 * samples are estimates, and N samples of a state mean N periods, with a standard
 * error of about sqrt(N) periods.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "common/ip.h"
#include "libpq/pqcomm.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/statement_table.h"

/* Searches for blockers of a tick, which search the lock table. */
#define BLOCKED_REQUESTS	100

#define WAIT_CLASS(event)	((event) & 0xFF000000)
/* Of a wait event of class Lock: a LockTagType. */
#define LOCK_TYPE(event)	((event) & 0x0000FFFF)

/* Writes the client's address without its port, or nothing for a Unix-domain socket. */
static void
write_client(const SockAddr *address, char *client)
{
	client[0] = '\0';
	if (address->addr.ss_family == AF_INET || address->addr.ss_family == AF_INET6)
		(void) pg_getnameinfo_all(&address->addr, address->salen, client, CELLAR_CLIENT_ADDRESS_BYTES, NULL, 0,
								  NI_NUMERICHOST | NI_NUMERICSERV);
}

/* Lock requests of a tick whose blocker is known.  The address is not read. */
typedef struct BlockedRequest
{
	const LOCK *lock;
	LOCKMODE	mode;
	int			blocker;
} BlockedRequest;

static BlockedRequest blocked_requests[BLOCKED_REQUESTS];
static int	blocked_request_count = 0;

/* Returns the first process that blocks a process waiting for a lock, or 0. */
static int
find_blocker(int pid)
{
	ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pid)));
	int			first = 0;

	if (ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers)) > 0)
		first = ((int32 *) ARR_DATA_PTR(blockers))[0];
	pfree(blockers);
	return first;
}

/*
 * As find_blocker.  A search takes all locks of the lock table, and time in
 * proportion to the processes that wait for the same lock, so processes that wait
 * for the same lock in the same mode share the result of a tick.  The number of
 * searches is bounded; the blockers of further processes are unknown.
 */
static int
first_blocker(PGPROC *proc, int pid)
{
	BlockedRequest request = {.lock = proc->waitLock,.mode = proc->waitLockMode};

	for (int i = 0; i < blocked_request_count; i++)
	{
		const BlockedRequest *known = &blocked_requests[i];

		if (known->lock == request.lock && known->mode == request.mode && known->blocker != pid)
			return known->blocker;
	}
	if (blocked_request_count == BLOCKED_REQUESTS)
		return 0;
	request.blocker = find_blocker(pid);
	/* Without a blocker, the process does not wait any more. */
	if (request.blocker != 0)
		blocked_requests[blocked_request_count++] = request;
	return request.blocker;
}

/*
 * Fills in the plan that a session executes.  A parallel worker executes a part of
 * its leader's plan.  The query identifier of the plan replaces that of the
 * session's status: the status of EXECUTE can contain the identifier of EXECUTE, and
 * can be older than the plan.
 */
static void
sample_plan(CellarSample *sample, PGPROC *executor, int pid)
{
	CellarStatementKey key;

	if (sample->state == STATE_RUNNING && cellar_read_current_plan(CellarProcNumber(executor), pid, &key))
	{
		sample->query_id = key.query_id;
		sample->plan_hash = key.plan_id;
	}
}

/* Returns the application name of a process; empty if the process has none. */
static const char *
find_application(int pid)
{
	int			count = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= count; i++)
	{
		LocalPgBackendStatus *local = CellarBackendStatusByIndex(i);

		if (local != NULL && local->backendStatus.st_procpid == pid && local->backendStatus.st_appname != NULL)
			return local->backendStatus.st_appname;
	}
	return "";
}

/*
 * Returns the number of the consumer group of a session.  A parallel worker belongs
 * to the group of its leader, whose settings it does not have at once.
 */
static uint16
sample_consumer_group(PGPROC *session, int pid, const char *application)
{
	char		group[NAMEDATALEN];

	cellar_read_consumer_group(CellarProcNumber(session), pid, application, group);
	return cellar_consumer_group_number(group);
}

/* Takes the sample of a process.  Sets *waits_for_row if the process waits for a row or for a transaction. */
static void
sample_process(const PgBackendStatus *status, PGPROC *proc, TimestampTz now, bool *waits_for_row)
{
	CellarSample sample;
	uint32		event = proc->wait_event_info;
	bool		is_session = status->st_backendType == B_BACKEND || status->st_backendType == B_BG_WORKER ||
		status->st_backendType == B_AUTOVAC_WORKER;
	bool		used_cpu;
	int64		open_us = 0;
	PGPROC	   *leader = proc->lockGroupLeader;
	bool		is_parallel = leader != NULL && leader != proc;

	if (status->st_backendType == B_BACKEND && (status->st_state == STATE_RUNNING || status->st_state == STATE_FASTPATH))
		open_us = now - status->st_state_start_timestamp;
	used_cpu = cellar_update_cpu(CellarProcNumber(proc), status->st_procpid, status->st_databaseid,
								 is_parallel ? CELLAR_PARALLEL_WORKER : GetBackendTypeDesc(status->st_backendType),
								 status->st_appname != NULL ? status->st_appname : "", status->st_proc_start_timestamp, now, open_us);
	if (is_session && status->st_state != STATE_UNDEFINED && status->st_state != STATE_DISABLED)
	{
		if (status->st_state == STATE_IDLE)
			return;
	}
	else if (WAIT_CLASS(event) == PG_WAIT_ACTIVITY || WAIT_CLASS(event) == PG_WAIT_EXTENSION ||
			 (event == 0 && !used_cpu))
		return;

	memset(&sample, 0, sizeof(sample));
	sample.time = now;
	sample.backend_start = status->st_proc_start_timestamp;
	sample.xact_start = status->st_xact_start_timestamp;
	sample.query_start = status->st_state == STATE_RUNNING ? status->st_activity_start_timestamp : 0;
	sample.query_id = (int64) status->st_query_id;
	sample.temp_bytes = cellar_temp_bytes(status->st_procpid);
	sample.pid = status->st_procpid;
	sample.leader_pid = is_parallel ? leader->pid : 0;
	sample.database = status->st_databaseid;
	sample.role = status->st_userid;
	sample.wait_event = event;
	sample.backend_type = status->st_backendType;
	sample.state = status->st_state;
	sample_plan(&sample, is_parallel ? leader : proc, is_parallel ? sample.leader_pid : sample.pid);
	strlcpy(sample.application, status->st_appname != NULL ? status->st_appname : "", NAMEDATALEN);
	write_client(&status->st_clientaddr, sample.client);
	if (status->st_backendType == B_BACKEND || is_parallel)
		sample.consumer_group = sample_consumer_group(is_parallel ? leader : proc, is_parallel ? sample.leader_pid : sample.pid,
													  is_parallel ? find_application(sample.leader_pid) : sample.application);
	if (WAIT_CLASS(event) == PG_WAIT_LOCK)
	{
		sample.blocker_pid = first_blocker(proc, status->st_procpid);
		*waits_for_row |= LOCK_TYPE(event) == LOCKTAG_TUPLE || LOCK_TYPE(event) == LOCKTAG_TRANSACTION;
	}
	cellar_add_sample(&sample);
}

static void
tick(TimestampTz now)
{
	int			count = pgstat_fetch_stat_numbackends();
	bool		row_lock_waits = false;

	cellar_read_temp_files();
	blocked_request_count = 0;
	for (int i = 1; i <= count; i++)
	{
		LocalPgBackendStatus *local = CellarBackendStatusByIndex(i);
		PgBackendStatus *status;
		PGPROC	   *proc;

		if (local == NULL)
			continue;
		status = &local->backendStatus;
		if (status->st_procpid == MyProcPid)
			continue;
		proc = BackendPidGetProc(status->st_procpid);
		if (proc == NULL)
			proc = AuxiliaryPidGetProc(status->st_procpid);
		if (proc != NULL)
			sample_process(status, proc, now, &row_lock_waits);
	}
	cellar_sample_row_locks(row_lock_waits, (int64) cellar_awr_sample_period * 1000);
	pgstat_clear_backend_activity_snapshot();
}

/*
 * Takes the samples of a tick if one is due.  Returns the time of the next tick.
 * Called by the launcher.
 */
TimestampTz
cellar_sample_sessions(TimestampTz now)
{
	static MemoryContext context = NULL;
	static TimestampTz due = 0;
	MemoryContext old;
	TimestampTz ended;

	if (cellar_awr_sample_period == 0)
		return DT_NOEND;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "cellar sampler", ALLOCSET_DEFAULT_SIZES);
	if (due == 0)
		due = now;
	if (now < due && due - now <= (int64) cellar_awr_sample_period * 1000)
		return due;

	old = MemoryContextSwitchTo(context);
	tick(now);
	MemoryContextSwitchTo(old);
	MemoryContextReset(context);
	cellar_end_tick(now - due > (int64) cellar_awr_sample_period * 500);

	/*
	 * Skip the ticks that were missed, instead of repeating them.  A longer
	 * wait than a period means that the clock was set back.
	 */
	due = TimestampTzPlusMilliseconds(due, cellar_awr_sample_period);
	ended = GetCurrentTimestamp();
	if (due <= ended || due - ended > (int64) cellar_awr_sample_period * 1000)
		due = TimestampTzPlusMilliseconds(ended, cellar_awr_sample_period);
	return due;
}

/* ---- installation ---- */

void
cellar_request_awr(void)
{
	RequestAddinShmemSpace(add_size(add_size(cellar_samples_bytes(), cellar_cpu_bytes()),
									add_size(cellar_statements_bytes(), cellar_texts_bytes())));
	RequestAddinShmemSpace(add_size(add_size(cellar_current_plans_bytes(), cellar_consumer_groups_bytes()),
									cellar_relations_bytes()));
	RequestAddinShmemSpace(cellar_names_bytes());
	RequestNamedLWLockTranche("cellar awr", 6);
}

/* Attaches to what AWR has in shared memory, and initializes it first.  The caller holds AddinShmemInitLock. */
void
cellar_init_awr(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("cellar awr");

	cellar_samples_init(&locks[0].lock);
	cellar_cpu_init(&locks[1].lock);
	cellar_statements_init(&locks[2].lock);
	cellar_texts_init(&locks[3].lock);
	cellar_current_plans_init();
	cellar_consumer_groups_init();
	cellar_relations_init(&locks[4].lock);
	cellar_names_init(&locks[5].lock);
	cellar_install_utility_statements();
}

void
cellar_install_awr(void)
{
	cellar_install_statements();
	cellar_install_command_times();
}
