/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Shared-memory slots of running compression commands.
 *
 * A task is the slot through which a command's session and its background
 * worker exchange the request, the progress and the error.  CELLAR_TASKS
 * slots serve commands; one more slot serves the policy worker, which no
 * session waits for.
 *
 * A slot is in use while a session or a worker is attached: the session from
 * the claim on, the worker once it runs.  A worker that the postmaster never
 * starts therefore occupies no slot.  A worker that starts after its session
 * has detached finds another command number, or none, in the slot, and exits.
 * Both sides detach when they exit; claiming a slot also detaches processes
 * that no longer exist.
 *
 * One LWLock protects all slots.  The request fields are written before the
 * worker starts and are constant afterwards; only the worker writes the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_compression_tasks);

/* The slot of the policy worker, behind those of commands. */
#define POLICY_TASK		CELLAR_TASKS

typedef struct SharedTasks
{
	LWLock	   *lock;
	uint64		last_command;	/* the latest number given to a command */
	CellarTask	tasks[CELLAR_TASKS + 1];
} SharedTasks;

static SharedTasks *shared = NULL;

/* Indexed by CellarPhase. */
static const char *const phase_names[] = {"starting", "vacuuming", "compressing", "decompressing"};

/* Requests the shared memory of the tasks. */
void
cellar_request_tasks(void)
{
	RequestAddinShmemSpace(sizeof(SharedTasks));
	RequestNamedLWLockTranche("cellar", 1);
}

/* Attaches to the shared tasks, and initializes them first.  The caller holds AddinShmemInitLock. */
void
cellar_init_tasks(void)
{
	bool		found;

	shared = ShmemInitStruct("cellar compression", sizeof(SharedTasks), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(SharedTasks));
		shared->lock = &GetNamedLWLockTranche("cellar")->lock;
	}
}

void
cellar_tasks_lock(bool exclusive)
{
	LWLockAcquire(shared->lock, exclusive ? LW_EXCLUSIVE : LW_SHARED);
}

void
cellar_tasks_unlock(void)
{
	LWLockRelease(shared->lock);
}

CellarTask *
cellar_task(int number)
{
	return &shared->tasks[number];
}

/* Attaches this process to the task as its worker.  Returns false if the command's session has detached. */
bool
cellar_task_attach(CellarTask *task, uint64 command)
{
	bool		waiting;

	cellar_tasks_lock(true);
	waiting = task->command == command && task->session != 0;
	if (waiting)
		task->pid = MyProcPid;
	cellar_tasks_unlock();
	return waiting;
}

/* Detaches this process, a session or a worker, from the task if it is attached. */
void
cellar_task_leave(CellarTask *task)
{
	cellar_tasks_lock(true);
	if (task->session == MyProcPid)
		task->session = 0;
	if (task->pid == MyProcPid)
		task->pid = 0;
	cellar_tasks_unlock();
}

/* Detaches processes that no longer exist.  Returns whether the slot is free. */
static bool
reclaim_slot(CellarTask *task)
{
	if (task->session != 0 && BackendPidGetProc(task->session) == NULL)
		task->session = 0;
	if (task->pid != 0 && BackendPidGetProc(task->pid) == NULL)
		task->pid = 0;
	return task->session == 0 && task->pid == 0;
}

/*
 * Claims a free slot among [first, end) and attaches this process to it, as
 * session or as worker.  Returns the slot's number, or -1 if all are in use.
 */
static int
claim_slot(int first, int end, Oid relation, int level, bool is_session)
{
	int			number = -1;

	cellar_tasks_lock(true);
	for (int i = first; i < end && number < 0; i++)
	{
		CellarTask *task = &shared->tasks[i];

		if (!reclaim_slot(task))
			continue;
		memset(task, 0, sizeof(CellarTask));
		task->command = ++shared->last_command;
		if (is_session)
			task->session = MyProcPid;
		else
			task->pid = MyProcPid;
		task->database = MyDatabaseId;
		task->user = GetUserId();
		task->relation = relation;
		task->current = relation;
		task->level = level;
		number = i;
	}
	cellar_tasks_unlock();
	return number;
}

/* Claims a slot for a command of this session.  Returns its number; raises an error if all are in use. */
int
cellar_claim_task(Oid relation, int level)
{
	int			number;

	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cellar must be loaded via \"shared_preload_libraries\"")));
	number = claim_slot(0, CELLAR_TASKS, relation, level, true);
	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many compression commands are running"),
				 errdetail("At most %d compression commands can run at a time.", CELLAR_TASKS),
				 errhint("Try again when one of them has finished. The view cellar.compression_progress shows the commands of this database.")));
	return number;
}

/* Claims the slot of the policy worker.  Returns NULL while another process uses it. */
CellarTask *
cellar_claim_policy_task(Oid relation, int level)
{
	CellarTask *task = &shared->tasks[POLICY_TASK];

	if (claim_slot(POLICY_TASK, POLICY_TASK + 1, relation, level, false) < 0)
		return NULL;
	return task;
}

/*
 * cellar.get_compression_progress(): one row per task of this database that
 * is in use.
 */
Datum
cellar_compression_tasks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	cellar_begin_rows(fcinfo, 9);
	for (int i = 0; shared != NULL && i < lengthof(shared->tasks); i++)
	{
		CellarTask	task;
		Datum		values[9];
		bool		nulls[9] = {false};

		cellar_tasks_lock(false);
		task = shared->tasks[i];
		cellar_tasks_unlock();
		if ((task.session == 0 && task.pid == 0) || task.database != MyDatabaseId)
			continue;
		values[0] = Int32GetDatum(task.pid);
		nulls[0] = task.pid == 0;
		values[1] = ObjectIdGetDatum(task.current);
		values[2] = CStringGetTextDatum(cellar_level_name(task.level));
		values[3] = CStringGetTextDatum(phase_names[task.phase]);
		values[4] = Int64GetDatum(task.blocks_total);
		values[5] = Int64GetDatum(task.progress.blocks_done);
		values[6] = Int64GetDatum(task.progress.bytes_before);
		values[7] = Int64GetDatum(task.progress.bytes_after);
		values[8] = Int64GetDatum(task.progress.units_skipped);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
