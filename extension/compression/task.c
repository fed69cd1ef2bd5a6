/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Shared-memory slots of running compression commands.
 *
 * A task is the slot through which a command's session and its background
 * worker exchange the request, the progress and the error.  CELLAR_TASKS
 * slots serve commands; one more slot serves the policy worker, which no
 * session waits for.  A slot becomes free when both sides have left the task.
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
#include "storage/shmem.h"
#include "utils/builtins.h"

#include "cellar/compat.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_compression_tasks);

/* The slot of the policy worker, behind those of commands. */
#define POLICY_TASK		CELLAR_TASKS

typedef struct SharedTasks
{
	LWLock	   *lock;
	CellarTask	tasks[CELLAR_TASKS + 1];
} SharedTasks;

static SharedTasks *shared = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* Indexed by CellarPhase. */
static const char *const phase_names[] = {"starting", "vacuuming", "compressing", "decompressing"};

static void
request_shmem(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	RequestAddinShmemSpace(sizeof(SharedTasks));
	RequestNamedLWLockTranche("cellar", 1);
}

static void
startup_shmem(void)
{
	bool		found;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("cellar compression", sizeof(SharedTasks), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(SharedTasks));
		shared->lock = &GetNamedLWLockTranche("cellar")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
cellar_install_compression(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
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

/* Detaches the worker or the session from the task, and frees the slot when both are detached. */
void
cellar_task_leave(CellarTask *task, bool worker)
{
	cellar_tasks_lock(true);
	if (worker)
		task->has_worker = false;
	else
		task->has_session = false;
	if (!task->has_worker && !task->has_session)
		task->used = false;
	cellar_tasks_unlock();
}

/* Claims a free slot among [first, end).  Returns its number, or -1 if all are in use. */
static int
claim_slot(int first, int end, Oid relation, int level, bool has_session)
{
	int			number = -1;

	cellar_tasks_lock(true);
	for (int i = first; i < end && number < 0; i++)
	{
		CellarTask *task = &shared->tasks[i];

		if (task->used)
			continue;
		memset(task, 0, sizeof(CellarTask));
		task->used = true;
		task->has_session = has_session;
		task->session = has_session ? MyProcPid : 0;
		task->has_worker = true;
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
	cellar_tasks_lock(true);
	task->pid = MyProcPid;
	cellar_tasks_unlock();
	return task;
}

/*
 * cellar.get_compression_progress(): one row per task of this database that
 * has a worker.
 */
Datum
cellar_compression_tasks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; shared != NULL && i < lengthof(shared->tasks); i++)
	{
		CellarTask	task;
		Datum		values[9];
		bool		nulls[9] = {false};

		cellar_tasks_lock(false);
		task = shared->tasks[i];
		cellar_tasks_unlock();
		if (!task.used || !task.has_worker || task.database != MyDatabaseId)
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
