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
 * once.  Planning begins when parse analysis ends, and an execution when planning
 * ends, if both belong to one message of the client.  Most executions are measured
 * once, from ExecutorStart to their last call.  Only a portal that a client binds, and
 * executes with a later message, is measured call by call.
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
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/parse_times.h"
#include "cellar/statement_clock.h"
#include "cellar/statement_part.h"
#include "cellar/statement_table.h"

/* A top-level query that this process executes. */
typedef struct TrackedQuery
{
	QueryDesc  *query;			/* NULL if not in use */
	CellarStatement *entry;		/* valid if the table of this process has this
								 * version */
	uint64		table_version;
	CellarStatementKey key;
	bool		is_open;		/* a part has begun and not ended */
	bool		runs_at_once;	/* see runs_at_once() */
	bool		counts_start;	/* the usage of ExecutorStart counts */
	CellarPart	part;
	uint64		elapsed_ns;		/* of the parts that have ended, as the next */
	CellarKernelTimes used;
	TimestampTz message;		/* of the last part:
								 * GetCurrentStatementStartTimestamp() */
	bool		is_listed;		/* release_query will be called */
	struct TrackedQuery *next;
	MemoryContextCallback callback;
} TrackedQuery;

int			cellar_nesting_level = 0;
static TrackedQuery *starting = NULL;	/* the query in whose ExecutorStart
										 * this process is */
static TrackedQuery at_once;	/* the query that runs at once */
static TrackedQuery *portals = NULL;	/* the other queries; several if
										 * cursors are open */
static TrackedQuery usual_portal;	/* used first; others are allocated */

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
static inline CellarStatement *
tracked_entry(TrackedQuery *query)
{
	if (query->entry == NULL || query->table_version != cellar_statements_version)
	{
		query->entry = cellar_find_statement(&query->key);
		query->table_version = cellar_statements_version;
	}
	return query->entry;
}

/* Begins a part of a query, and publishes the plan, unless the last part goes on. */
static void
open_part(TrackedQuery *query, CellarPhase previous, bool counts_usage)
{
	if (query->is_open)
		return;
	query->is_open = true;
	cellar_set_current_plan(&query->key);
	cellar_begin_part(&query->part, previous, query->part.reading);
	if (counts_usage)
		cellar_begin_usage(&query->part);
}

static void
close_part(TrackedQuery *query, bool counts_usage)
{
	query->is_open = false;
	cellar_clear_current_plan();
	cellar_end_part(&query->part, tracked_entry(query), counts_usage);
	query->elapsed_ns += query->part.elapsed_ns;
	if (query->part.reading != CELLAR_READ_NOTHING)
	{
		query->used.cpu_ns += query->part.used.cpu_ns;
		query->used.run_queue_ns += query->part.used.run_queue_ns;
	}
}

/* Forgets the query that runs at once, after an error. */
void
cellar_forget_statement(void)
{
	if (at_once.query == NULL)
		return;
	at_once.query = NULL;
	if (at_once.is_open)
		cellar_clear_current_plan();
}

/* Ends the part of a query in which an error was raised: it does not count. */
static void
abandon_part(TrackedQuery *query)
{
	if (starting == query)
		starting = NULL;
	if (query == &at_once)
		cellar_forget_statement();
	else if (query != NULL)
	{
		/* Before the end of ExecutorStart, the query has no memory that is freed. */
		if (!query->is_listed)
			query->query = NULL;
		query->is_open = false;
		cellar_clear_current_plan();
	}
}

/*
 * Returns whether the calls of the executor for a top-level query follow each other
 * directly: for all but a portal that a client binds, and executes later.  Portals of
 * simple queries and of EXECUTE are not visible.
 */
static bool
runs_at_once(void)
{
	return ActivePortal != NULL && (ActivePortal->strategy != PORTAL_ONE_SELECT || !ActivePortal->visible);
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
	return cellar_awr_track_statements && cellar_nesting_level == 0 && query_id != 0 && cellar_has_statement_table && !IsParallelWorker();
}

static PlannedStmt *
time_planning(Query *parse, const char *query_string, int cursor_options, ParamListInfo params
			  CELLAR_PLANNER_PARAMETER)
{
	bool		track = is_tracking(parse->queryId);
	uint64		query_id = parse->queryId;
	PlannedStmt *result;
	instr_time	began;

	if (cellar_nesting_level == 0)
	{
		last_plan = NULL;
		cellar_forget_statement();
	}
	INSTR_TIME_SET_ZERO(began);
	if (track)
		cellar_begin_phase(CELLAR_PHASE_PARSING, &began);
	/* Queries of functions that the planner evaluates are not top-level. */
	cellar_nesting_level++;
	PG_TRY();
	{
		if (previous_planner != NULL)
			result = previous_planner(parse, query_string, cursor_options, params CELLAR_PLANNER_ARGUMENT);
		else
			result = standard_planner(parse, query_string, cursor_options, params CELLAR_PLANNER_ARGUMENT);
	}
	PG_FINALLY();
	{
		cellar_nesting_level--;
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

static void
forget_query(TrackedQuery *tracked)
{
	for (TrackedQuery **link = &portals; *link != NULL; link = &(*link)->next)
	{
		if (*link == tracked)
		{
			*link = tracked->next;
			return;
		}
	}
}

/* Called when the memory of a query is freed, also after an error, when ExecutorEnd is not called. */
static void
release_query(void *arg)
{
	forget_query(arg);
	if (arg == &usual_portal)
		usual_portal.query = NULL;
	else
		pfree(arg);
}

/* Fills in the statement and plan of a query that is about to start.  Returns the phase before. */
static CellarPhase
identify_query(TrackedQuery *tracked, QueryDesc *query)
{
	CellarPhase previous = CELLAR_PHASE_OTHER;
	CellarStatement *entry;

	tracked->query = query;
	tracked->entry = NULL;
	if (query->plannedstmt == last_plan)
	{
		tracked->key = last_key;
		tracked->entry = last_entry;
		tracked->table_version = last_table_version;
		previous = CELLAR_PHASE_PLANNING;
	}
	else if (last_plan != NULL)
	{
		/* A copy of the plan, which is probably executed once. */
		tracked->key = statement_key((int64) query->plannedstmt->queryId, cellar_plan_id(query->plannedstmt));
	}
	else
		tracked->key = statement_key((int64) query->plannedstmt->queryId, cellar_kept_plan_id(query->plannedstmt));
	last_plan = NULL;
	entry = tracked_entry(tracked);
	cellar_take_parses(entry);
	tracked->is_open = false;
	tracked->counts_start = false;
	tracked->is_listed = false;
	tracked->part.reading = cellar_choose_kernel_reading(entry);
	tracked->elapsed_ns = 0;
	tracked->used = (CellarKernelTimes)
	{
		0, 0
	};
	return previous;
}

/* Tracks a query whose calls do not follow each other directly, until its memory is freed. */
static void
track_portal(TrackedQuery *tracked)
{
	MemoryContext context = tracked->query->estate->es_query_cxt;

	tracked->message = GetCurrentStatementStartTimestamp();
	tracked->is_listed = true;
	tracked->next = portals;
	portals = tracked;
	tracked->callback.func = release_query;
	tracked->callback.arg = tracked;
	MemoryContextRegisterResetCallback(context, &tracked->callback);
}

static void
start_query(QueryDesc *query, int eflags)
{
	bool		track = is_tracking(query->plannedstmt->queryId) && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0;
	TrackedQuery *tracked = NULL;

	if (!cellar_counts_cpu_at_exit)
		cellar_count_cpu_at_exit();
	if (cellar_nesting_level == 0)
	{
		cellar_forget_statement();
		cellar_note_command();
		starting = NULL;
	}
	else if (starting != NULL && !starting->counts_start)
	{
		/* A function that ExecutorStart calls executes statements. */
		starting->counts_start = true;
		cellar_begin_usage(&starting->part);
	}
	if (track)
	{
		bool		is_portal = !runs_at_once();

		if (!is_portal)
			tracked = &at_once;
		else if (usual_portal.query == NULL)
			tracked = &usual_portal;
		else
			tracked = palloc(sizeof(TrackedQuery)); /* outlives the query's memory */
		open_part(tracked, identify_query(tracked, query), false);
		tracked->runs_at_once = !is_portal;
		starting = tracked;
	}
	/* The executor evaluates functions now to exclude partitions. */
	cellar_nesting_level++;
	PG_TRY();
	{
		if (previous_start != NULL)
			previous_start(query, eflags);
		else
			standard_ExecutorStart(query, eflags);
	}
	PG_CATCH();
	{
		cellar_nesting_level--;
		abandon_part(tracked);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_nesting_level--;
	if (track)
	{
		CellarStatement *entry = tracked_entry(tracked);

		/*
		 * PostgreSQL's own accounting of blocks does not contain what the
		 * executor reads of the catalogs to start.
		 */
		starting = NULL;
		if (!tracked->runs_at_once || !entry->has_text)
			close_part(tracked, tracked->counts_start);

		/*
		 * Now, because all names of the plan can be resolved: another session
		 * can drop a function while the query runs.
		 */
		if (!entry->has_text)
		{
			entry->has_text = true;
			store_plan(&entry->key, query);
		}
		if (!tracked->runs_at_once)
			track_portal(tracked);
	}
}

static TrackedQuery *
find_tracked(QueryDesc *query)
{
	TrackedQuery *tracked = portals;

	if (at_once.query == query && cellar_nesting_level == 0)
		return &at_once;
	while (tracked != NULL && tracked->query != query)
		tracked = tracked->next;
	return tracked;
}

static bool
may_change(const QueryDesc *query)
{
	return query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;
}

static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count CELLAR_EXECUTE_ONCE_PARAMETER)
{
	TrackedQuery *tracked = cellar_nesting_level == 0 ? find_tracked(query) : NULL;

	if (tracked != NULL)
	{
		if (tracked->is_open && !tracked->counts_start)
			cellar_begin_usage(&tracked->part);
		open_part(tracked, CELLAR_PHASE_OTHER, true);
	}
	cellar_nesting_level++;
	PG_TRY();
	{
		if (previous_run != NULL)
			previous_run(query, direction, count CELLAR_EXECUTE_ONCE_ARGUMENT);
		else
			standard_ExecutorRun(query, direction, count CELLAR_EXECUTE_ONCE_ARGUMENT);
	}
	PG_CATCH();
	{
		cellar_nesting_level--;
		abandon_part(tracked);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_nesting_level--;
	if (tracked != NULL)
	{
		/* ExecutorRun counts from zero each time. */
		tracked_entry(tracked)->counters[CELLAR_STATEMENT_ROWS] += query->estate->es_processed;
		if (!tracked->runs_at_once || !may_change(query))
		{
			close_part(tracked, true);
			tracked->message = GetCurrentStatementStartTimestamp();
		}
	}
}

static void
finish_query(QueryDesc *query)
{
	/* Triggers run now.  A query that changes nothing has none. */
	bool		has_triggers = may_change(query);
	TrackedQuery *tracked = cellar_nesting_level == 0 && has_triggers ? find_tracked(query) : NULL;

	if (!has_triggers)
	{
		if (previous_finish != NULL)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
		return;
	}
	if (tracked != NULL)
		open_part(tracked, CELLAR_PHASE_OTHER, true);
	cellar_nesting_level++;
	PG_TRY();
	{
		if (previous_finish != NULL)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_CATCH();
	{
		cellar_nesting_level--;
		/* The changes count, although a trigger refused them. */
		if (tracked == &at_once && tracked->table_version == cellar_statements_version)
			close_part(tracked, true);
		abandon_part(tracked);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_nesting_level--;
	if (tracked != NULL)
	{
		close_part(tracked, true);
		tracked->message = GetCurrentStatementStartTimestamp();
	}
}

static void
end_query(QueryDesc *query)
{
	TrackedQuery *tracked = find_tracked(query);

	if (tracked != NULL)
	{
		if (tracked->is_open)
			close_part(tracked, true);
		if (tracked->runs_at_once)
			tracked->query = NULL;
		else
			forget_query(tracked);
		cellar_count_execution(tracked_entry(tracked), tracked->elapsed_ns, tracked->part.reading, tracked->used, tracked->part.ended);

		/*
		 * A portal can be dropped long after its execution.  What a statement
		 * that changes data returns is sent to the client later.
		 */
		if (cellar_nesting_level == 0 && (tracked->runs_at_once || tracked->message == GetCurrentStatementStartTimestamp()) &&
			!query->plannedstmt->hasReturning && !query->plannedstmt->hasModifyingCTE)
			cellar_end_phase(CELLAR_PHASE_EXECUTING, tracked->part.ended);
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
	int			location = statement->stmt_location;
	int			length = statement->stmt_len;
	bool		wrapper = is_wrapper(statement->utilityStmt);
	bool		track = is_tracking(statement->queryId) && !wrapper;
	bool		returns_rows = cellar_nesting_level == 0 && UtilityReturnsTuples(statement->utilityStmt);
	CellarStatementKey key = {0};
	CellarPart	part;

	if (cellar_nesting_level == 0)
	{
		cellar_forget_statement();
		cellar_note_command();
	}
	if (track)
	{
		CellarStatement *entry;

		key = statement_key((int64) statement->queryId, 0);
		entry = cellar_find_statement(&key);
		/* Before parallel workers add the statement to the shared table. */
		if (!entry->has_text && !contains_password(statement->utilityStmt, query_string + Max(location, 0), length) &&
			!cellar_is_known_statement(&key))
			cellar_add_text(key.query_id, 0, query_string, location, length, "");
		entry->has_text = true;
		cellar_begin_part(&part, CELLAR_PHASE_PARSING, cellar_choose_kernel_reading(entry));
		cellar_begin_usage(&part);
		cellar_set_current_plan(&key);
	}
	else if (cellar_nesting_level == 0 && !wrapper)
		cellar_forget_phase();
	if (!wrapper)
		cellar_nesting_level++;
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
			cellar_nesting_level--;
		if (track)
			cellar_clear_current_plan();
	}
	PG_END_TRY();
	if (track)
	{
		CellarStatement *entry = cellar_find_statement(&key);

		cellar_end_part(&part, entry, true);
		if (completion != NULL)
			entry->counters[CELLAR_STATEMENT_ROWS] += completion->nprocessed;
		cellar_take_parses(entry);
		cellar_count_execution(entry, part.elapsed_ns, part.reading, part.used, part.ended);
		cellar_end_phase(CELLAR_PHASE_EXECUTING, part.ended);
	}
	/* Rows are sent to the client later. */
	if (returns_rows)
		cellar_forget_phase();
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
