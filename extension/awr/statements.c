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
 * once.  Planning begins when parse analysis ends, the start of an execution when
 * planning ends, and its run when the start ends, if all of them belong to one
 * message of the client.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "tcop/utility.h"
#include "utils/memutils.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/parse_times.h"
#include "cellar/statement_clock.h"
#include "cellar/statement_part.h"
#include "cellar/statement_table.h"

/* A top-level query that this process executes; several if cursors are open. */
typedef struct TrackedQuery
{
	struct TrackedQuery *next;
	QueryDesc  *query;
	CellarStatement *entry;		/* valid if the table of this process has this
								 * version */
	uint64		table_version;
	CellarStatementKey key;
	CellarKernelReading reading;
	uint64		elapsed_ns;		/* of the parts that have ended, as the next */
	CellarKernelTimes used;
	instr_time	ended;			/* end of the last part */
	TimestampTz message;		/* of the last part:
								 * GetCurrentStatementStartTimestamp() */
	MemoryContextCallback callback;
} TrackedQuery;

static int	nesting_level = 0;
static uint64 nested_statements = 0;	/* that have started */
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

/*
 * Begins a part of a query, and publishes the plan.  The caller must clear the
 * current plan, also after an error.
 */
static void
begin_query_part(TrackedQuery *entry, CellarPart *part, CellarPhase previous)
{
	cellar_set_current_plan(entry->key.query_id, entry->key.plan_id);
	cellar_begin_part(part, previous, entry->reading);
}

static void
end_query_part(TrackedQuery *entry, CellarPart *part, bool counts_usage)
{
	cellar_end_part(part, tracked_entry(entry), counts_usage);
	entry->elapsed_ns += part->elapsed_ns;
	entry->used.cpu_ns += part->used.cpu_ns;
	entry->used.run_queue_ns += part->used.run_queue_ns;
	entry->ended = part->ended;
	entry->message = GetCurrentStatementStartTimestamp();
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
		(void) cellar_begin_phase(CELLAR_PHASE_PARSING, &began);
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
		uint64		elapsed_ns;
		CellarStatement *entry;

		INSTR_TIME_SET_CURRENT(now);
		last_key = statement_key((int64) query_id, cellar_plan_id(result));
		last_plan = result;
		entry = cellar_find_statement(&last_key);
		entry->counters[CELLAR_STATEMENT_PLANS]++;
		elapsed_ns = cellar_nanoseconds_between(began, now);
		entry->plan_ns += elapsed_ns;
		cellar_phase_times.plan_ns += elapsed_ns;
		entry->changed = true;
		cellar_take_parses(entry);
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

/* Fills in the statement and plan of a query that is about to start. */
static void
identify_query(TrackedQuery *entry, QueryDesc *query)
{
	memset(entry, 0, sizeof(TrackedQuery));
	entry->query = query;
	if (query->plannedstmt == last_plan)
	{
		entry->key = last_key;
		entry->entry = last_entry;
		entry->table_version = last_table_version;
	}
	else
		entry->key = statement_key((int64) query->plannedstmt->queryId, cellar_plan_id(query->plannedstmt));
	cellar_take_parses(tracked_entry(entry));
	entry->reading = cellar_choose_kernel_reading(tracked_entry(entry));
}

/* Tracks a query until its memory is freed. */
static void
track_query(const TrackedQuery *identified)
{
	MemoryContext context = identified->query->estate->es_query_cxt;
	TrackedQuery *entry = MemoryContextAlloc(context, sizeof(TrackedQuery));
	CellarStatement *statement;

	*entry = *identified;
	entry->next = tracked;
	tracked = entry;
	entry->callback.func = forget_query;
	entry->callback.arg = entry;
	MemoryContextRegisterResetCallback(context, &entry->callback);

	/*
	 * Now, because all names of the plan can be resolved: another session can
	 * drop a function while the query runs.
	 */
	statement = tracked_entry(entry);
	if (!statement->has_text)
	{
		statement->has_text = true;
		store_plan(&statement->key, entry->query);
		cellar_forget_phase();
	}
}

static void
start_query(QueryDesc *query, int eflags)
{
	bool		track = is_tracking(query->plannedstmt->queryId) && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0;
	TrackedQuery entry;
	CellarPart	part;
	uint64		nested_before;

	cellar_count_cpu_at_exit();
	if (nesting_level > 0)
		nested_statements++;
	nested_before = nested_statements;
	if (track)
	{
		CellarPhase previous = query->plannedstmt == last_plan ? CELLAR_PHASE_PLANNING : CELLAR_PHASE_OTHER;

		identify_query(&entry, query);
		last_plan = NULL;
		begin_query_part(&entry, &part, previous);
	}
	/* The executor evaluates functions now to exclude partitions. */
	nesting_level++;
	PG_TRY();
	{
		if (previous_start != NULL)
			previous_start(query, eflags);
		else
			standard_ExecutorStart(query, eflags);
	}
	PG_FINALLY();
	{
		nesting_level--;
		if (track)
			cellar_clear_current_plan();
	}
	PG_END_TRY();
	if (track)
	{
		/*
		 * PostgreSQL's own accounting of blocks does not contain what the
		 * executor reads of the catalogs to start.
		 */
		end_query_part(&entry, &part, nested_statements != nested_before);
		cellar_end_phase(CELLAR_PHASE_STARTING, part.ended);
		track_query(&entry);
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

static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count CELLAR_EXECUTE_ONCE_PARAMETER)
{
	TrackedQuery *entry = nesting_level == 0 ? find_tracked(query) : NULL;
	CellarPart	part;

	if (entry != NULL)
		begin_query_part(entry, &part, CELLAR_PHASE_STARTING);
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
		end_query_part(entry, &part, true);
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
	CellarPart	part;

	if (!may_change)
	{
		if (previous_finish != NULL)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
		return;
	}
	if (entry != NULL)
		begin_query_part(entry, &part, CELLAR_PHASE_OTHER);
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
		end_query_part(entry, &part, true);
}

static void
end_query(QueryDesc *query)
{
	TrackedQuery *entry = find_tracked(query);

	if (entry != NULL)
	{
		forget_query(entry);
		cellar_count_execution(tracked_entry(entry), entry->elapsed_ns, entry->reading, entry->used, entry->ended);

		/*
		 * A portal can be dropped long after its execution.  What a statement
		 * that changes data returns is sent to the client later.
		 */
		if (nesting_level == 0 && entry->message == GetCurrentStatementStartTimestamp() &&
			!query->plannedstmt->hasReturning && !query->plannedstmt->hasModifyingCTE)
			cellar_end_phase(CELLAR_PHASE_EXECUTING, entry->ended);
		else
			cellar_forget_phase();
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

/* Returns whether a text of "length" bytes, or up to its end if that is 0, contains a word, in either case. */
static bool
mentions(const char *text, int length, const char *word)
{
	int			end = (length > 0 ? length : (int) strlen(text)) - (int) strlen(word);

	for (int i = 0; i <= end; i++)
	{
		if (pg_strncasecmp(text + i, word, strlen(word)) == 0)
			return true;
	}
	return false;
}

/*
 * Returns whether the text of a statement may contain a password, which the
 * repository must not store: as an option, as the value of a setting, or in a
 * command of the operating system.
 */
static bool
contains_password(const Node *statement, const char *text, int length)
{
	switch (nodeTag(statement))
	{
		case T_AlterDatabaseSetStmt:
		case T_AlterRoleSetStmt:
		case T_AlterSystemStmt:
		case T_VariableSetStmt:
		case T_CreateFdwStmt:
		case T_AlterFdwStmt:
		case T_CreateForeignTableStmt:
		case T_ImportForeignSchemaStmt:
		case T_CreateRoleStmt:
		case T_AlterRoleStmt:
		case T_CreateUserMappingStmt:
		case T_AlterUserMappingStmt:
		case T_CreateForeignServerStmt:
		case T_AlterForeignServerStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
			return true;
		case T_AlterTableStmt:
			return castNode(AlterTableStmt, statement)->objtype == OBJECT_FOREIGN_TABLE;
		case T_CopyStmt:
			return castNode(CopyStmt, statement)->is_program;
		default:
			/* A block, or a call with arguments, can contain any of these. */
			return mentions(text, length, "passw") || mentions(text, length, "secret");
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
	bool		returns_rows = nesting_level == 0 && UtilityReturnsTuples(statement->utilityStmt);
	bool		may_contain_password = false;
	CellarStatementKey key = {0};
	CellarPart	part;

	if (track)
	{
		CellarStatement *entry;

		key = statement_key((int64) statement->queryId, 0);
		entry = cellar_find_statement(&key);
		if (!entry->has_text)
			may_contain_password = contains_password(statement->utilityStmt, query_string + Max(location, 0), length);
		cellar_begin_part(&part, CELLAR_PHASE_PARSING, cellar_choose_kernel_reading(entry));
	}
	else if (nesting_level == 0 && !wrapper)
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

		cellar_end_part(&part, entry, true);
		if (completion != NULL)
			entry->counters[CELLAR_STATEMENT_ROWS] += completion->nprocessed;
		if (!entry->has_text && !may_contain_password && !cellar_is_known_statement(&entry->key))
			cellar_add_text(entry->key.query_id, 0, query_string, location, length, "");
		entry->has_text = true;
		cellar_take_parses(entry);
		cellar_count_execution(entry, part.elapsed_ns, part.reading, part.used, part.ended);
		cellar_end_phase(CELLAR_PHASE_EXECUTING, part.ended);
	}
	/* Rows are sent to the client later. */
	if (returns_rows)
		cellar_forget_phase();
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
}

/*
 * Installs the hook of utility statements, when all libraries are loaded: that of
 * pg_stat_statements removes the query identifier before it calls the next hook.
 */
void
cellar_install_utility_statements(void)
{
	static bool installed = false;

	/* Shared memory is initialized again after a crash. */
	if (installed)
		return;
	installed = true;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
