/*-------------------------------------------------------------------------
 *
 * command_worker.c
 *	  The compression worker: the background worker of a compression command.
 *
 * For each table of the command, the worker runs VACUUM (FREEZE), writes the
 * table's dirty buffers, and requests compression of the table's blocks from the
 * cell.  VACUUM runs first, because freezing a page later would modify the page
 * and supersede its copy in the compression unit.  Decompression needs no
 * VACUUM.
 *
 * The worker holds no lock stronger than VACUUM's (SHARE UPDATE EXCLUSIVE), so
 * other sessions read and write the table meanwhile.  While the worker waits for
 * the cell, it holds no snapshot, because a snapshot would delay VACUUM of other
 * tables.  The policy worker (policy_worker.c) also calls cellar_vacuum and
 * cellar_compress_blocks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cellar/cell.h"
#include "cellar/compression.h"
#include "cellar/executor.h"

PGDLLEXPORT void cellar_command_worker_main(Datum arg);

/* The task of this process's command. */
static CellarTask *command_task = NULL;

static void
leave_task(int code, Datum arg)
{
	cellar_task_leave(command_task);
}

/* Records the start of a phase, and resets the task's progress. */
void
cellar_task_phase(CellarTask *task, CellarPhase phase, Oid current, uint64 blocks_total)
{
	cellar_tasks_lock(true);
	task->phase = phase;
	task->current = current;
	task->blocks_total = blocks_total;
	memset(&task->progress, 0, sizeof(task->progress));
	cellar_tasks_unlock();
}

/*
 * Executes a utility command that manages its own transactions, as a client's
 * statement would.  The parse tree is allocated in the current context, which
 * must survive those transactions.
 */
static void
run_utility(const char *command)
{
	List	   *parsed = pg_parse_query(command);
	PlannedStmt *statement = makeNode(PlannedStmt);

	statement->commandType = CMD_UTILITY;
	statement->canSetTag = true;
	statement->utilityStmt = linitial_node(RawStmt, parsed)->stmt;
	statement->stmt_location = -1;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(PortalContext);
	ProcessUtility(statement, command, false, PROCESS_UTILITY_TOPLEVEL, NULL, NULL,
				   None_Receiver, NULL);
	CommitTransactionCommand();
}

/*
 * Runs VACUUM with the given options on a relation, unless the relation no
 * longer exists.  Must be called outside of a transaction, with PortalContext set
 * to a context of the caller: VACUUM allocates its relation lists below that
 * context.
 */
void
cellar_vacuum(Oid relation, const char *options)
{
	MemoryContext context = CurrentMemoryContext;
	StringInfoData command;
	char	   *name;

	StartTransactionCommand();
	name = get_rel_name(relation);
	MemoryContextSwitchTo(context);
	initStringInfo(&command);
	if (name != NULL)
		appendStringInfo(&command, "VACUUM (%s) %s", options,
						 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)), name));
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	if (command.len > 0)
		run_utility(command.data);
	MemoryContextSwitchTo(context);
}

typedef struct ProgressContext
{
	CellarTask *task;
	CellarCompression before;	/* progress of earlier block ranges */
} ProgressContext;

/* Adds the progress of the current block range to the progress of earlier ranges. */
static void
update_progress(void *arg, const CellarExchange *exchange)
{
	const ProgressContext *context = arg;
	CellarCompression now = cellar_compression(exchange->session->connection);

	now.blocks_done += context->before.blocks_done;
	now.units_written += context->before.units_written;
	now.units_skipped += context->before.units_skipped;
	now.bytes_before += context->before.bytes_before;
	now.bytes_after += context->before.bytes_after;
	cellar_tasks_lock(true);
	context->task->progress = now;
	cellar_tasks_unlock();
}

/*
 * Compresses the allocation units of blocks [first, end) to the task's level, or
 * decompresses them, and updates the task's progress.
 */
void
cellar_compress_blocks(CellarTask *task, const CellarExchange *exchange, BlockNumber first, BlockNumber end)
{
	ProgressContext context = {task, task->progress};

	cellar_compress(exchange->session->connection, exchange->relation, first, end, task->level);
	cellar_exchange_wait(exchange, CELLAR_COMPRESS_DONE, update_progress, &context);
	update_progress(&context, exchange);
}

/* Writes the relation's dirty buffers, and requests the task's level for all blocks from the cell. */
static void
compress_relation(Oid relation)
{
	CellarLocation location;
	CellarExchange exchange;
	Relation	rel;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	rel = try_relation_open(relation, ShareUpdateExclusiveLock);
	if (rel != NULL)
	{
		BlockNumber nblocks;

		cellar_require_location(rel, &location);
		cellar_object_checkpoint(rel);
		nblocks = RelationGetNumberOfBlocks(rel);
		cellar_task_phase(command_task, command_task->level == CELLAR_LEVEL_RAW ? CELLAR_PHASE_DECOMPRESSING : CELLAR_PHASE_COMPRESSING,
						  relation, nblocks);
		if (nblocks > 0)
		{
			cellar_exchange_begin(&exchange, rel, &location);

			/*
			 * No cleanup on error: this process then exits, which closes the
			 * connection.
			 */
			cellar_compress_blocks(command_task, &exchange, 0, nblocks);
			cellar_exchange_end(&exchange);
			cellar_refresh_stored(rel);
		}
		relation_close(rel, NoLock);
	}
	CommitTransactionCommand();
}

/* Returns the OIDs of the relation, its partitions and its children that have storage and can be compressed. */
static List *
relations_with_storage(Oid relation, MemoryContext context)
{
	List	   *found = NIL;
	List	   *all;
	ListCell   *lc;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	/* The relation may have been dropped since the command began. */
	cellar_check_kind(relation);
	all = find_all_inheritors(relation, AccessShareLock, NULL);
	foreach(lc, all)
	{
		Oid			member = lfirst_oid(lc);
		char		relkind = get_rel_relkind(member);
		MemoryContext old = MemoryContextSwitchTo(context);

		if ((relkind == RELKIND_RELATION || relkind == RELKIND_MATVIEW) &&
			get_rel_persistence(member) != RELPERSISTENCE_TEMP &&
			!IsCatalogRelationOid(member))
			found = lappend_oid(found, member);
		MemoryContextSwitchTo(old);
	}
	if (found == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot compress relation \"%s\"", get_rel_name(relation)),
				 errdetail("Neither the relation nor any of its partitions has storage that can be compressed.")));
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

/* Copies a text, or its first whole characters if it is longer than size - 1 bytes.  NULL becomes an empty text. */
static void
copy_text(char *target, const char *text, Size size)
{
	if (text == NULL)
		text = "";
	strlcpy(target, text, pg_mbcliplen(text, strlen(text), size - 1) + 1);
}

/* Copies the current error to the task, for the waiting session to raise. */
static void
record_failure(void)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	cellar_tasks_lock(true);
	command_task->sqlstate = error->sqlerrcode;
	copy_text(command_task->message, error->message, sizeof(command_task->message));
	copy_text(command_task->detail, error->detail, sizeof(command_task->detail));
	copy_text(command_task->hint, error->hint, sizeof(command_task->hint));
	cellar_tasks_unlock();
}

void
cellar_command_worker_main(Datum arg)
{
	CellarCommandStart start;
	MemoryContext context;
	ListCell   *lc;

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	command_task = cellar_task(start.task);
	before_shmem_exit(leave_task, (Datum) 0);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	/*
	 * A role of SET ROLE or of a security definer function may lack LOGIN, which
	 * a connection requires.  The flag forbids to change the role again.
	 */
	BackgroundWorkerInitializeConnectionByOid(start.database, start.login, 0);
	SetUserIdAndSecContext(start.user, SECURITY_LOCAL_USERID_CHANGE);
	CellarNoTransactionTimeout();
	if (!cellar_task_attach(command_task, start.command))
		proc_exit(0);

	context = AllocSetContextCreate(TopMemoryContext, "cellar compression worker", ALLOCSET_DEFAULT_SIZES);
	/* see cellar_vacuum */
	PortalContext = context;
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		foreach(lc, relations_with_storage(command_task->relation, context))
		{
			Oid			relation = lfirst_oid(lc);

			if (command_task->level != CELLAR_LEVEL_RAW)
			{
				cellar_task_phase(command_task, CELLAR_PHASE_VACUUMING, relation, 0);
				cellar_vacuum(relation, "FREEZE");
			}
			compress_relation(relation);
			MemoryContextSwitchTo(context);
		}
		cellar_tasks_lock(true);
		command_task->done = true;
		cellar_tasks_unlock();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		record_failure();
		proc_exit(1);
	}
	PG_END_TRY();
	proc_exit(0);
}
