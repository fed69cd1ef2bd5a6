/*-------------------------------------------------------------------------
 *
 * statements.c
 *	  The hooks that measure statements.
 *
 * The executor hooks time each top-level statement and add its resources to this
 * process's table (statement_table.c).  The first process that adds a statement or
 * a plan also stores the text of both (EXPLAIN without costs) in a ring (texts.c),
 * from which the AWR worker stores it in the repository.
 *
 * Every statement passes through these hooks, so they are brief: an execution
 * takes no lock, writes few cache lines, and one moment is read from the clock
 * once.  Planning begins when parse analysis ends, and an execution begins when
 * planning ends, if all of them belong to one message of the client.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "tcop/utility.h"
#include "utils/memutils.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statement_clock.h"
#include "cellar/statement_table.h"
#include "cellar/statistics.h"

/* A top-level query that this process executes; several if cursors are open. */
typedef struct TrackedQuery
{
	struct TrackedQuery *next;
	QueryDesc  *query;
	CellarStatement *entry;		/* valid if the table of this process has this
								 * version */
	uint64		table_version;
	CellarStatementKey key;
	bool		follows_planning;	/* nothing happened between the end of
									 * planning and the first run */
	uint64		elapsed_ns;
	MemoryContextCallback callback;
} TrackedQuery;

/* What this process had used at a moment. */
typedef struct Usage
{
	BufferUsage buffers;
	WalUsage	wal;
	CellarSmartScanBytes bytes;
} Usage;

static int	nesting_level = 0;
static TrackedQuery *tracked = NULL;

/* The last plan of the planner, until it is executed. */
static const PlannedStmt *last_plan = NULL;
static CellarStatementKey last_key;
static CellarStatement *last_entry;
static uint64 last_table_version;

static ExecutorStart_hook_type previous_start = NULL;
static ExecutorRun_hook_type previous_run = NULL;
static ExecutorFinish_hook_type previous_finish = NULL;
static ExecutorEnd_hook_type previous_end = NULL;
static ProcessUtility_hook_type previous_utility = NULL;
static planner_hook_type previous_planner = NULL;

/* ---- resources ---- */

static CellarStatementKey
statement_key(int64 query_id, int64 plan_id)
{
	return (CellarStatementKey)
	{
		.database = MyDatabaseId,.role = GetUserId(),.query_id = query_id,.plan_id = plan_id
	};
}

/* Returns this process's entry for a query that it executes. */
static CellarStatement *
tracked_entry(TrackedQuery *query)
{
	if (query->entry == NULL || query->table_version != cellar_statements_version)
	{
		query->entry = cellar_find_statement(&query->key);
		query->table_version = cellar_statements_version;
	}
	return query->entry;
}

static void
read_usage(Usage *usage)
{
	usage->buffers = pgBufferUsage;
	usage->wal = pgWalUsage;
	usage->bytes = cellar_session_smart_scan_bytes();
}

/* Adds what this process has used since an earlier reading.  Most executions use few of the resources. */
static void
add_usage(CellarStatement *entry, const Usage *before)
{
	uint64	   *counters = entry->counters;
	CellarSmartScanBytes bytes = cellar_session_smart_scan_bytes();
	const BufferUsage *now = &pgBufferUsage;
	const BufferUsage *then = &before->buffers;

	counters[CELLAR_STATEMENT_SHARED_HIT] += now->shared_blks_hit - then->shared_blks_hit;
	if (now->shared_blks_read != then->shared_blks_read || now->shared_blks_dirtied != then->shared_blks_dirtied ||
		now->shared_blks_written != then->shared_blks_written)
	{
		counters[CELLAR_STATEMENT_SHARED_READ] += now->shared_blks_read - then->shared_blks_read;
		counters[CELLAR_STATEMENT_SHARED_DIRTIED] += now->shared_blks_dirtied - then->shared_blks_dirtied;
		counters[CELLAR_STATEMENT_SHARED_WRITTEN] += now->shared_blks_written - then->shared_blks_written;
	}
	if (track_io_timing)
	{
		BufferUsage used = {0};

		BufferUsageAccumDiff(&used, now, then);
		counters[CELLAR_STATEMENT_BLK_READ_US] += CellarBlockReadUs(&used);
		counters[CELLAR_STATEMENT_BLK_WRITE_US] += CellarBlockWriteUs(&used);
	}
	if (now->temp_blks_read != then->temp_blks_read || now->temp_blks_written != then->temp_blks_written)
	{
		counters[CELLAR_STATEMENT_TEMP_READ] += now->temp_blks_read - then->temp_blks_read;
		counters[CELLAR_STATEMENT_TEMP_WRITTEN] += now->temp_blks_written - then->temp_blks_written;
	}
	if (pgWalUsage.wal_records != before->wal.wal_records)
	{
		counters[CELLAR_STATEMENT_WAL_RECORDS] += pgWalUsage.wal_records - before->wal.wal_records;
		counters[CELLAR_STATEMENT_WAL_FPI] += pgWalUsage.wal_fpi - before->wal.wal_fpi;
		counters[CELLAR_STATEMENT_WAL_BYTES] += pgWalUsage.wal_bytes - before->wal.wal_bytes;
	}
	if (bytes.eligible_bytes != before->bytes.eligible_bytes)
	{
		counters[CELLAR_STATEMENT_ELIGIBLE_BYTES] += bytes.eligible_bytes - before->bytes.eligible_bytes;
		counters[CELLAR_STATEMENT_SAVED_BYTES] += bytes.saved_bytes - before->bytes.saved_bytes;
		counters[CELLAR_STATEMENT_RETURNED_BYTES] += bytes.returned_bytes - before->bytes.returned_bytes;
	}
	entry->changed = true;
}

/* Counts one execution, and adds this process's table to the shared one if that is due. */
static void
count_execution(CellarStatement *entry, uint64 elapsed_ns)
{
	entry->counters[CELLAR_STATEMENT_CALLS]++;
	entry->changed = true;
	entry->max_us = Max(entry->max_us, elapsed_ns / 1000);

	/* This sum is about the present time, and costs no reading of the clock. */
	if (GetCurrentStatementStartTimestamp() + (TimestampTz) (elapsed_ns / 1000) - cellar_last_statement_flush >= CELLAR_FLUSH_INTERVAL_US)
		cellar_flush_statements();
}

/* Stores the texts of a query and its plan, unless another process has added them before. */
static void
store_plan(const CellarStatementKey *key, QueryDesc *query)
{
	MemoryContext old;
	ExplainState *es;

	if (cellar_is_known_statement(key))
		return;
	old = MemoryContextSwitchTo(query->estate->es_query_cxt);
	es = NewExplainState();
	es->costs = false;
	ExplainBeginOutput(es);
	ExplainPrintPlan(es, query);
	ExplainEndOutput(es);
	cellar_add_text(key->query_id, key->plan_id, query->sourceText, query->plannedstmt->stmt_location, query->plannedstmt->stmt_len, es->str->data);
	MemoryContextSwitchTo(old);
}

/* ---- hooks ---- */

static bool
is_tracking(uint64 query_id)
{
	return cellar_awr_track_statements && nesting_level == 0 && query_id != 0 && cellar_has_statement_table() && !IsParallelWorker();
}

static PlannedStmt *
time_planning(Query *parse, const char *query_string, int cursor_options, ParamListInfo params
			  CELLAR_PLANNER_PARAMETER)
{
	bool		track = is_tracking(parse->queryId);
	uint64		query_id = parse->queryId;
	PlannedStmt *result;
	instr_time	began;

	if (nesting_level == 0)
		last_plan = NULL;
	INSTR_TIME_SET_ZERO(began);
	if (track)
		began = cellar_begin_phase(CELLAR_PHASE_PARSING);
	/* Queries of functions that the planner evaluates are not top-level. */
	nesting_level++;
	PG_TRY();
	{
		if (previous_planner != NULL)
			result = previous_planner(parse, query_string, cursor_options, params CELLAR_PLANNER_ARGUMENT);
		else
			result = standard_planner(parse, query_string, cursor_options, params CELLAR_PLANNER_ARGUMENT);
	}
	PG_FINALLY();
	{
		nesting_level--;
	}
	PG_END_TRY();
	if (track)
	{
		instr_time	now;
		CellarStatement *entry;

		INSTR_TIME_SET_CURRENT(now);
		last_key = statement_key((int64) query_id, cellar_plan_id(result));
		last_plan = result;
		entry = cellar_find_statement(&last_key);
		entry->counters[CELLAR_STATEMENT_PLANS]++;
		entry->plan_ns += cellar_nanoseconds_between(began, now);
		entry->changed = true;
		last_entry = entry;
		last_table_version = cellar_statements_version;
		cellar_end_phase(CELLAR_PHASE_PLANNING, now);
	}
	return result;
}

/* Called when the memory of a query is freed, also after an error, when ExecutorEnd is not called. */
static void
forget_query(void *arg)
{
	for (TrackedQuery **link = &tracked; *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

static void
start_query(QueryDesc *query, int eflags)
{
	bool		track = is_tracking(query->plannedstmt->queryId) && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0;

	cellar_count_cpu_at_exit();

	if (previous_start != NULL)
		previous_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (track)
	{
		TrackedQuery *entry = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(TrackedQuery));
		CellarStatement *statement;

		entry->query = query;
		entry->follows_planning = query->plannedstmt == last_plan;
		if (entry->follows_planning)
		{
			entry->key = last_key;
			entry->entry = last_entry;
			entry->table_version = last_table_version;
		}
		else
			entry->key = statement_key((int64) query->plannedstmt->queryId, cellar_plan_id(query->plannedstmt));
		entry->next = tracked;
		tracked = entry;
		entry->callback.func = forget_query;
		entry->callback.arg = entry;
		MemoryContextRegisterResetCallback(query->estate->es_query_cxt, &entry->callback);
		last_plan = NULL;

		/*
		 * Now, because all names of the plan can be resolved: another session
		 * can drop a function while the query runs.
		 */
		statement = tracked_entry(entry);
		if (!statement->has_text)
		{
			statement->has_text = true;
			store_plan(&statement->key, query);
			entry->follows_planning = false;
		}
	}
}

static TrackedQuery *
find_tracked(QueryDesc *query)
{
	TrackedQuery *entry = tracked;

	while (entry != NULL && entry->query != query)
		entry = entry->next;
	return entry;
}

/* Publishes the plan that this process executes now, and reads what the process has used.  Returns the begin. */
static instr_time
enter_query(TrackedQuery *entry, Usage *before)
{
	cellar_set_current_plan(entry->key.query_id, entry->key.plan_id);
	read_usage(before);
	return cellar_begin_phase(entry->follows_planning ? CELLAR_PHASE_PLANNING : CELLAR_PHASE_OTHER);
}

/* Adds what the process has used since enter_query. */
static void
leave_query(TrackedQuery *entry, const Usage *before, instr_time began)
{
	CellarStatement *statement = tracked_entry(entry);
	uint64		elapsed_ns = cellar_nanoseconds_since(began);

	entry->follows_planning = false;
	entry->elapsed_ns += elapsed_ns;
	statement->elapsed_ns += elapsed_ns;
	add_usage(statement, before);
}

static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count CELLAR_EXECUTE_ONCE_PARAMETER)
{
	TrackedQuery *entry = nesting_level == 0 ? find_tracked(query) : NULL;
	Usage		before;
	uint64		started_cpu_ns = 0;
	instr_time	began;

	INSTR_TIME_SET_ZERO(began);
	if (entry != NULL)
	{
		began = enter_query(entry, &before);
		started_cpu_ns = cellar_start_cpu(tracked_entry(entry));
	}
	nesting_level++;
	PG_TRY();
	{
		if (previous_run != NULL)
			previous_run(query, direction, count CELLAR_EXECUTE_ONCE_ARGUMENT);
		else
			standard_ExecutorRun(query, direction, count CELLAR_EXECUTE_ONCE_ARGUMENT);
	}
	PG_FINALLY();
	{
		nesting_level--;
		if (entry != NULL)
			cellar_clear_current_plan();
	}
	PG_END_TRY();
	if (entry != NULL)
	{
		cellar_end_cpu(tracked_entry(entry), started_cpu_ns);
		leave_query(entry, &before, began);
		/* ExecutorRun counts from zero each time. */
		tracked_entry(entry)->counters[CELLAR_STATEMENT_ROWS] += query->estate->es_processed;
	}
}

static void
finish_query(QueryDesc *query)
{
	/* Triggers run now.  A query that changes nothing has none. */
	bool		may_change = query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;
	TrackedQuery *entry = nesting_level == 0 && may_change ? find_tracked(query) : NULL;
	Usage		before;
	instr_time	began;

	if (!may_change)
	{
		if (previous_finish != NULL)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
		return;
	}
	INSTR_TIME_SET_ZERO(began);
	if (entry != NULL)
		began = enter_query(entry, &before);
	nesting_level++;
	PG_TRY();
	{
		if (previous_finish != NULL)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		nesting_level--;
		if (entry != NULL)
			cellar_clear_current_plan();
	}
	PG_END_TRY();
	if (entry != NULL)
		leave_query(entry, &before, began);
}

static void
end_query(QueryDesc *query)
{
	TrackedQuery *entry = find_tracked(query);

	if (entry != NULL)
	{
		forget_query(entry);
		count_execution(tracked_entry(entry), entry->elapsed_ns);
	}
	if (previous_end != NULL)
		previous_end(query);
	else
		standard_ExecutorEnd(query);
}

/* EXECUTE, PREPARE and DEALLOCATE are not statements of interest: the statement that EXECUTE runs is counted. */
static bool
is_wrapper(const Node *statement)
{
	return IsA(statement, ExecuteStmt) || IsA(statement, PrepareStmt) || IsA(statement, DeallocateStmt);
}

/* Statements whose text may contain a password, which the repository must not store. */
static bool
contains_password(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreateRoleStmt:
		case T_AlterRoleStmt:
		case T_CreateUserMappingStmt:
		case T_AlterUserMappingStmt:
		case T_CreateForeignServerStmt:
		case T_AlterForeignServerStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
			return true;
		default:
			return false;
	}
}

static void
run_utility(PlannedStmt *statement, const char *query_string, bool read_only_tree, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	/* The statement may be freed meanwhile. */
	int			location = statement->stmt_location;
	int			length = statement->stmt_len;
	bool		wrapper = is_wrapper(statement->utilityStmt);
	bool		track = is_tracking(statement->queryId) && !wrapper;
	bool		may_contain_password = track && contains_password(statement->utilityStmt);
	CellarStatementKey key = {0};
	Usage		before;
	uint64		started_cpu_ns = 0;
	instr_time	began;

	INSTR_TIME_SET_ZERO(began);
	if (track)
	{
		key = statement_key((int64) statement->queryId, 0);
		began = cellar_begin_phase(CELLAR_PHASE_PARSING);
		started_cpu_ns = cellar_start_cpu(cellar_find_statement(&key));
		read_usage(&before);
	}
	else if (nesting_level == 0)
		cellar_forget_phase();
	if (!wrapper)
		nesting_level++;
	PG_TRY();
	{
		if (previous_utility != NULL)
			previous_utility(statement, query_string, read_only_tree, context, params, environment, dest, completion);
		else
			standard_ProcessUtility(statement, query_string, read_only_tree, context, params, environment, dest, completion);
	}
	PG_FINALLY();
	{
		if (!wrapper)
			nesting_level--;
	}
	PG_END_TRY();
	if (track)
	{
		CellarStatement *entry = cellar_find_statement(&key);
		uint64		elapsed_ns;

		cellar_end_cpu(entry, started_cpu_ns);
		elapsed_ns = cellar_nanoseconds_since(began);
		entry->elapsed_ns += elapsed_ns;
		add_usage(entry, &before);
		if (completion != NULL)
			entry->counters[CELLAR_STATEMENT_ROWS] += completion->nprocessed;
		if (!entry->has_text && !may_contain_password && !cellar_is_known_statement(&entry->key))
			cellar_add_text(entry->key.query_id, 0, query_string, location, length, "");
		entry->has_text = true;
		count_execution(entry, elapsed_ns);
	}
}

/* Returns whether this process plans or executes a statement: functions may parse others. */
bool
cellar_in_statement(void)
{
	return nesting_level > 0;
}

void
cellar_install_statements(void)
{
	EnableQueryId();
	previous_planner = planner_hook;
	planner_hook = time_planning;
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start_query;
	previous_run = ExecutorRun_hook;
	ExecutorRun_hook = run_query;
	previous_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_query;
	previous_end = ExecutorEnd_hook;
	ExecutorEnd_hook = end_query;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
