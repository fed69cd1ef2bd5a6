/*-------------------------------------------------------------------------
 *
 * command_times.c
 *	  Parse, plan, execution and commit time of client sessions.
 *
 * The parse time of a command is the time from the arrival of its message until
 * the end of the first parse analysis outside of functions: lexer, grammar and
 * analysis.  Of a string of several statements, the first contains the grammar of
 * all.  The parse time of each further statement is its analysis, from the end of
 * the statement before it; it is not timed if a transaction ended in between, or
 * rows may still have been sent to the client.  The plan time of a statement begins
 * where its parse time ends, with rewriting.
 *
 * The parse time of PREPARE belongs to the statement that it prepares, and that of
 * EXECUTE to the statement that it executes; see parse_times.c.
 *
 * The commit time of a transaction begins after deferred triggers and ends when
 * other sessions see the changes.  The commit time includes the flush of the WAL
 * and the wait for synchronous standbys.  Transactions without a transaction id
 * are not timed: they have nothing to flush.
 *
 * Plan time and execution time are those of the statistics of statements
 * (statements.c).
 *
 * The active time of a session is PostgreSQL's own, which pg_stat_database adds up
 * by database: pgStatActiveTime.  PostgreSQL adds the time of a command when the
 * command ends, so a session counts it when the next command begins.  The sampler
 * counts commands that are in progress (cpu_times.c).
 *
 * A session adds its times to the totals (cpu_times.c) about once a second, and
 * when it exits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/prepare.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "parser/analyze.h"
#include "portability/instr_time.h"
#include "utils/timestamp.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/parse_times.h"
#include "cellar/statement_clock.h"

/* Parse times up to this need one reading of the clock. */
#define BRIEF_PARSE_US	1000

/* How long the distance of the two clocks is taken as constant. */
#define OFFSET_VALID_US 1000000

static CellarCommandTimes times;	/* not yet in the totals */
static uint64 last_flush_ns = 0;	/* by the monotonic clock of
									 * instr_time */
static TimestampTz last_analyzed = 0;	/* start of the last command whose
										 * parse analysis was timed */
static int64 clock_offset_us = 0;	/* GetCurrentTimestamp() less the time of
									 * an instr_time */
static int64 offset_known_at_us = 0;	/* time of an instr_time */
static instr_time commit_started;
PgStat_Counter cellar_last_active_us = 0;	/* pgStatActiveTime when it was
											 * counted */
static uint64 measured_us = 0;	/* of phases, since that time; without those
								 * not in "times" */
static post_parse_analyze_hook_type previous_analyze_hook = NULL;

static void
flush_times(bool contains_open)
{
	if (MyBackendType == B_BACKEND)
	{
		times.plan_us += cellar_phase_times.plan_ns / 1000;
		cellar_phase_times.plan_ns %= 1000;
		times.execute_us += cellar_phase_times.execute_ns / 1000;
		cellar_phase_times.execute_ns %= 1000;
	}
	if (times.parses == 0 && times.commits == 0 && times.plan_us == 0 && times.execute_us == 0 && times.active_us == 0)
		return;
	measured_us += times.parse_us + times.plan_us + times.execute_us + times.commit_us;
	cellar_add_command_times(&times, contains_open);
	memset(&times, 0, sizeof(times));
}

void
cellar_flush_command_times(void)
{
	flush_times(false);
}

/*
 * Counts the active time since the last call.  PostgreSQL sets pgStatActiveTime to 0
 * when it adds the time to pg_stat_database, between two commands.  If the present
 * value can be the time since the last call as well as a sum, it is that which is
 * nearer to the phases that were measured since.
 */
void
cellar_count_active_time(void)
{
	PgStat_Counter now = pgStatActiveTime;
	uint64		measured = measured_us + times.parse_us + times.plan_us + times.execute_us + times.commit_us +
		(cellar_phase_times.plan_ns + cellar_phase_times.execute_ns) / 1000;
	uint64		active_us = now;

	if (now >= cellar_last_active_us)
	{
		uint64		increase = now - cellar_last_active_us;

		/* Phases can take longer, by what precedes a client's last message. */
		if (measured <= increase || (measured < (uint64) now && measured - increase <= now - measured))
			active_us = increase;
	}
	cellar_last_active_us = now;
	if (MyBackendType != B_BACKEND || !cellar_awr_track_statements)
		return;
	times.active_us += active_us;
	/* The sampler may have counted a part of a long command. */
	if (active_us >= CELLAR_OPEN_US)
		flush_times(true);
	measured_us = 0;
	measured_us -= times.parse_us + times.plan_us + times.execute_us + times.commit_us +
		(cellar_phase_times.plan_ns + cellar_phase_times.execute_ns) / 1000;
}

static void
flush_if_due(instr_time now)
{
	uint64		now_ns = CellarTimeNs(now);

	if (now_ns - last_flush_ns < CELLAR_FLUSH_INTERVAL_NS)
		return;
	last_flush_ns = now_ns;
	cellar_flush_command_times();
}

/* Parallel workers and other background processes are not timed. */
static bool
is_timed_process(void)
{
	return cellar_awr_track_statements && MyBackendType == B_BACKEND;
}

/*
 * Returns the time of the present reading of the clock as a timestamp.  The two
 * clocks differ by a constant, unless the system's time is set; a parse time that
 * is not brief, as after that, is computed from the timestamp itself.
 */
static TimestampTz
timestamp_of(instr_time time, TimestampTz started)
{
	int64		us = (int64) INSTR_TIME_GET_MICROSEC(time);
	TimestampTz now = us + clock_offset_us;

	if (now < started || now - started > BRIEF_PARSE_US || us - offset_known_at_us >= OFFSET_VALID_US)
	{
		now = GetCurrentTimestamp();
		clock_offset_us = now - us;
		offset_known_at_us = us;
	}
	return now;
}

static bool
is_utility(const Query *query, NodeTag tag)
{
	return query->commandType == CMD_UTILITY && nodeTag(query->utilityStmt) == tag;
}

/* Returns the query identifier of a statement, for EXECUTE that of the statement that it executes; 0 if unknown. */
static int64
parsed_query_id(const Query *query)
{
	PreparedStatement *prepared;

	if (!is_utility(query, T_ExecuteStmt))
		return (int64) query->queryId;
	prepared = FetchPreparedStatement(((ExecuteStmt *) query->utilityStmt)->name, false);
	if (prepared == NULL || prepared->plansource->query_list == NIL)
		return 0;
	return (int64) linitial_node(Query, prepared->plansource->query_list)->queryId;
}

static void
time_parse(ParseState *pstate, Query *query, CELLAR_JUMBLE_STATE * jumble)
{
	TimestampTz started = GetCurrentStatementStartTimestamp();
	instr_time	time;
	uint64		elapsed_ns;
	int64		query_id;

	if (previous_analyze_hook != NULL)
		previous_analyze_hook(pstate, query, jumble);
	if (!cellar_counts_cpu_at_exit)
		cellar_count_cpu_at_exit();
	/* The statement of PREPARE is analyzed next, and the parse time ends there. */
	if (cellar_nesting_level == 0)
		cellar_note_command();
	if (!is_timed_process() || cellar_nesting_level > 0 || is_utility(query, T_PrepareStmt))
		return;
	if (started != last_analyzed)
	{
		INSTR_TIME_SET_CURRENT(time);
		elapsed_ns = (uint64) Max(timestamp_of(time, started) - started, 0) * 1000;
		last_analyzed = started;
	}
	else if (cellar_phase_end.phase != CELLAR_PHASE_OTHER && cellar_phase_end.message == started)
	{
		INSTR_TIME_SET_CURRENT(time);
		elapsed_ns = cellar_nanoseconds_between(cellar_phase_end.time, time);
	}
	else
		return;
	cellar_phase_end.message = started;
	cellar_end_phase(CELLAR_PHASE_PARSING, time);
	query_id = parsed_query_id(query);
	if (query_id != 0)
		cellar_add_parse(query_id, elapsed_ns);
	times.parses++;
	times.parse_us += (elapsed_ns + 500) / 1000;
	flush_if_due(time);
}

static void
time_commit(XactEvent event, void *arg)
{
	instr_time	now;
	instr_time	elapsed;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			INSTR_TIME_SET_ZERO(commit_started);
			if (is_timed_process() && TransactionIdIsValid(GetTopTransactionIdIfAny()))
				INSTR_TIME_SET_CURRENT(commit_started);
			break;
		case XACT_EVENT_COMMIT:
			cellar_forget_phase();
			if (INSTR_TIME_IS_ZERO(commit_started))
				break;
			INSTR_TIME_SET_CURRENT(now);
			elapsed = now;
			INSTR_TIME_SUBTRACT(elapsed, commit_started);
			INSTR_TIME_SET_ZERO(commit_started);
			times.commits++;
			times.commit_us += INSTR_TIME_GET_MICROSEC(elapsed);
			flush_if_due(now);
			break;
		case XACT_EVENT_PREPARE:
			cellar_forget_phase();
			break;
		case XACT_EVENT_ABORT:
			cellar_forget_statement();
			cellar_forget_phase();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			/* Workers that build an index or vacuum call no other hook. */
			cellar_count_cpu_at_exit();
			cellar_count_for_leader();
			break;
		default:
			break;
	}
}

void
cellar_install_command_times(void)
{
	previous_analyze_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = time_parse;
	RegisterXactCallback(time_commit, NULL);
}
