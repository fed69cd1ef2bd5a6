/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker that brings a table to a compression level.
 *
 * A table is vacuumed with FREEZE first: pages that vacuum would have to
 * change later would not stay in their compression units.  Then its dirty
 * buffers are flushed, and the cell does the rest.  All that time others read
 * and write the table; only what VACUUM excludes is excluded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
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
#include "cellar/compat.h"
#include "cellar/compression.h"
#include "cellar/executor.h"

PGDLLEXPORT void cellar_compressor_main(Datum arg);

static CellarTask *task = NULL;

static void
leave_task(int code, Datum arg)
{
	cellar_task_leave(task, true);
}

void
cellar_task_phase(CellarTask *of, CellarPhase phase, Oid current, uint64 blocks_total)
{
	cellar_tasks_lock(true);
	of->phase = phase;
	of->current = current;
	of->blocks_total = blocks_total;
	memset(&of->progress, 0, sizeof(of->progress));
	cellar_tasks_unlock();
}

/*
 * Runs a utility command that manages its own transactions, as a client would.
 * What it allocates has to outlive them.
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
 * VACUUM with options, FREEZE among them.  The caller is in no transaction and
 * PortalContext is its own.
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

typedef struct Noting
{
	CellarTask *task;
	CellarCompression before;	/* of earlier blocks */
} Noting;

static void
note_progress(void *arg, const CellarExchange *exchange)
{
	const Noting *noting = arg;
	CellarCompression now = cellar_compression(exchange->session->connection);

	now.blocks_done += noting->before.blocks_done;
	now.units_written += noting->before.units_written;
	now.units_skipped += noting->before.units_skipped;
	now.bytes_before += noting->before.bytes_before;
	now.bytes_after += noting->before.bytes_after;
	cellar_tasks_lock(true);
	noting->task->progress = now;
	cellar_tasks_unlock();
}

/* Brings the allocation units of some blocks to the task's level, and adds up its progress. */
void
cellar_compress_blocks(CellarTask *of, const CellarExchange *exchange, BlockNumber first, BlockNumber end)
{
	Noting		noting = {of, of->progress};

	cellar_compress(exchange->session->connection, exchange->relation, first, end, of->level);
	cellar_exchange_wait(exchange, CELLAR_COMPRESS_DONE, note_progress, &noting);
	note_progress(&noting, exchange);
}

/* Where a table lies, which must be on a cell. */
void
cellar_require_location(Relation rel, CellarLocation *location)
{
	if (!cellar_relation_location(rel, location))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is on no cell", RelationGetRelationName(rel)),
				 errhint("Move it to a tablespace on a cell's mount with ALTER TABLE ... SET TABLESPACE.")));
}

static void
compress_relation(Oid relation)
{
	CellarLocation location;
	CellarExchange	exchange;
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
		cellar_task_phase(task, task->level == CELLAR_LEVEL_RAW ? CELLAR_PHASE_DECOMPRESSING : CELLAR_PHASE_COMPRESSING,
						  relation, nblocks);
		if (nblocks > 0)
		{
			cellar_exchange_begin(&exchange, rel, &location);
			/* An error ends this process, and with it the connection. */
			cellar_compress_blocks(task, &exchange, 0, nblocks);
			cellar_exchange_end(&exchange);
			cellar_refresh_stored(rel);
		}
		relation_close(rel, NoLock);
	}
	CommitTransactionCommand();
}

/* The table, or its partitions and children that have storage. */
static List *
relations_with_storage(Oid relation, MemoryContext context)
{
	List	   *found = NIL;
	List	   *all;
	ListCell   *lc;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
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
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	if (found == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation with OID %u cannot be compressed", relation),
				 errhint("Tables, partitioned tables and materialized views can, but no temporary tables and no system catalogs.")));
	return found;
}

/* Leaves the error to the session that waits. */
static void
note_failure(void)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	cellar_tasks_lock(true);
	task->sqlstate = error->sqlerrcode;
	strlcpy(task->message, error->message ? error->message : "", sizeof(task->message));
	strlcpy(task->detail, error->detail ? error->detail : "", sizeof(task->detail));
	strlcpy(task->hint, error->hint ? error->hint : "", sizeof(task->hint));
	cellar_tasks_unlock();
}

void
cellar_compressor_main(Datum arg)
{
	MemoryContext context;
	ListCell   *lc;

	task = cellar_task(DatumGetInt32(arg));
	before_shmem_exit(leave_task, (Datum) 0);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(task->database, task->user, 0);
	CellarNoTransactionTimeout();

	cellar_tasks_lock(true);
	task->pid = MyProcPid;
	cellar_tasks_unlock();

	context = AllocSetContextCreate(TopMemoryContext, "cellar compressor", ALLOCSET_DEFAULT_SIZES);
	/* VACUUM keeps its lists below the portal's context. */
	PortalContext = context;
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		foreach(lc, relations_with_storage(task->relation, context))
		{
			Oid			relation = lfirst_oid(lc);

			if (task->level != CELLAR_LEVEL_RAW)
			{
				cellar_task_phase(task, CELLAR_PHASE_VACUUMING, relation, 0);
				cellar_vacuum(relation, "FREEZE");
			}
			compress_relation(relation);
			MemoryContextSwitchTo(context);
		}
		cellar_tasks_lock(true);
		task->done = true;
		cellar_tasks_unlock();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		note_failure();
		proc_exit(1);
	}
	PG_END_TRY();
	proc_exit(0);
}
