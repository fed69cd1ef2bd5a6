/*-------------------------------------------------------------------------
 *
 * statements.c
 *	  Statistics of statements, per database, role, query and plan.
 *
 * The executor hooks time each top-level statement and add its resources to a
 * table of this process.  About once a second, and when the process exits, the
 * process adds its table to the one in shared memory, so most statements take no
 * lock.  When the shared table is full, the entries with the fewest calls are
 * added to an entry of their database with query id 0, so totals stay exact.
 *
 * The first process that adds a statement or a plan also stores the text of both
 * (EXPLAIN without costs) in a ring (texts.c), from which the AWR worker stores it
 * in the repository.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/parallel.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_get_statements);

#define LOCAL_ENTRIES		1024
/*
 * The CPU time of every run is read while a statement's mean is at least this
 * long, and during its first runs; else that of one run in CPU_READ_EVERY.
 */
#define CPU_READ_ALWAYS_NS	250000
#define CPU_READ_FIRST		16
#define CPU_READ_EVERY		16

typedef struct StatementKey
{
	Oid			database;
	Oid			role;
	int64		query_id;
	int64		plan_id;		/* 0 for utility statements */
} StatementKey;

typedef enum StatementCounter
{
	CALLS,
	ELAPSED_US,
	CPU_US,
	PLANS,
	PLAN_US,
	ROWS,
	SHARED_HIT,
	SHARED_READ,
	SHARED_DIRTIED,
	SHARED_WRITTEN,
	TEMP_READ,
	TEMP_WRITTEN,
	BLK_READ_US,
	BLK_WRITE_US,
	WAL_RECORDS,
	WAL_FPI,
	WAL_BYTES,
	ELIGIBLE_BYTES,
	SAVED_BYTES,
	RETURNED_BYTES,
	COUNTERS
} StatementCounter;

typedef struct StatementEntry
{
	StatementKey key;
	uint64		counters[COUNTERS];
	uint64		max_us;			/* since the last awr.get_statements() */

	/* In shared memory only: */
	uint64		reported[COUNTERS]; /* counters at the last
									 * awr.get_statements() */
	uint64		generation;		/* differs if the entry was evicted and
								 * created again */
	/* In the table of a process only: */
	uint64		elapsed_ns;		/* not yet added to the counters, as the next
								 * two */
	uint64		cpu_ns;
	uint64		plan_ns;
	uint64		mean_cpu_ns;	/* of a run: mean of the last readings */
	uint32		cpu_readings;	/* up to CPU_READ_FIRST */
	bool		has_text;		/* the texts were stored, by this or another
								 * process */
} StatementEntry;

typedef struct SharedStatements
{
	uint64		last_generation;
} SharedStatements;

/* Smart Scan bytes of this process. */
typedef struct SmartScanBytes
{
	uint64		eligible_bytes;
	uint64		saved_bytes;
	uint64		returned_bytes;
} SmartScanBytes;

/* A top-level query that this process executes; several if cursors are open. */
typedef struct TrackedQuery
{
	struct TrackedQuery *next;
	QueryDesc  *query;
	StatementKey key;
	StatementEntry *entry;		/* valid if the table of this process has this
								 * version */
	uint64		table_version;
	uint64		elapsed_ns;
	uint64		rows;
	BufferUsage buffers;
	WalUsage	wal;
	SmartScanBytes bytes;
	MemoryContextCallback callback;
} TrackedQuery;

/* What this process had used at a moment. */
typedef struct Usage
{
	instr_time	time;
	BufferUsage buffers;
	WalUsage	wal;
	SmartScanBytes bytes;
} Usage;

/* Entries that this process used recently, by the lowest bits of the key. */
#define RECENT_ENTRIES	32

typedef struct RecentEntry
{
	StatementEntry *entry;
	uint64		table_version;
} RecentEntry;

static SharedStatements *shared = NULL;
static HTAB *shared_entries = NULL;
static LWLock *shared_lock = NULL;

static HTAB *local_entries = NULL;
static uint64 local_entries_version = 0;
static TimestampTz last_flush = 0;
static int	nesting_level = 0;
static TrackedQuery *tracked = NULL;

/* The last plan of the planner, until it is executed. */
static const PlannedStmt *last_plan = NULL;
static int64 last_plan_id;

static ExecutorStart_hook_type previous_start = NULL;
static ExecutorRun_hook_type previous_run = NULL;
static ExecutorFinish_hook_type previous_finish = NULL;
static ExecutorEnd_hook_type previous_end = NULL;
static ProcessUtility_hook_type previous_utility = NULL;
static planner_hook_type previous_planner = NULL;

/* ---- the shared table ---- */

Size
cellar_statements_bytes(void)
{
	return add_size(sizeof(SharedStatements), hash_estimate_size(cellar_awr_max_statements, sizeof(StatementEntry)));
}

void
cellar_statements_init(LWLock *lock)
{
	HASHCTL		info;
	bool		found;

	shared_lock = lock;
	shared = ShmemInitStruct("cellar statements", sizeof(SharedStatements), &found);
	if (!found)
		memset(shared, 0, sizeof(SharedStatements));
	info.keysize = sizeof(StatementKey);
	info.entrysize = sizeof(StatementEntry);
	shared_entries = CellarShmemInitHash("cellar statement table", cellar_awr_max_statements, &info,
										 HASH_ELEM | HASH_BLOBS);
}

static void
add_counters(StatementEntry *to, const StatementEntry *from)
{
	for (int i = 0; i < COUNTERS; i++)
		to->counters[i] += from->counters[i];
	to->max_us = Max(to->max_us, from->max_us);
}

/* Returns the entry of a key, which is created if necessary.  Returns NULL only if action is HASH_ENTER_NULL. */
static StatementEntry *
enter(HTAB *table, const StatementKey *key, HASHACTION action, bool *found)
{
	StatementEntry *entry = hash_search(table, key, action, found);

	if (entry != NULL && !*found)
		memset((char *) entry + sizeof(StatementKey), 0, sizeof(StatementEntry) - sizeof(StatementKey));
	return entry;
}

/* Like enter, for the shared table.  Returns NULL if the table is full.  The caller holds the lock. */
static StatementEntry *
enter_shared(const StatementKey *key)
{
	bool		found;
	StatementEntry *entry = enter(shared_entries, key, HASH_ENTER_NULL, &found);

	if (entry != NULL && !found)
		entry->generation = ++shared->last_generation;
	return entry;
}

static int
compare_calls(const void *a, const void *b)
{
	uint64		x = (*(StatementEntry *const *) a)->counters[CALLS];
	uint64		y = (*(StatementEntry *const *) b)->counters[CALLS];

	return x < y ? -1 : x > y;
}

/*
 * Adds what was not reported yet of the tenth of the entries with the fewest
 * calls to the entries with query id 0.  The caller holds the lock.
 */
static void
evict(void)
{
	int			count = hash_get_num_entries(shared_entries);
	StatementEntry **entries = palloc(count * sizeof(StatementEntry *));
	HASH_SEQ_STATUS scan;
	StatementEntry *entry;
	int			n = 0;

	hash_seq_init(&scan, shared_entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->key.query_id != 0)
			entries[n++] = entry;
	}
	qsort(entries, n, sizeof(StatementEntry *), compare_calls);
	for (int i = 0; i < Max(n / 10, Min(n, 1)); i++)
	{
		StatementEntry victim = *entries[i];
		StatementKey rest = {.database = victim.key.database};

		/* Remove first: the table may be full. */
		hash_search(shared_entries, &victim.key, HASH_REMOVE, NULL);
		entry = enter_shared(&rest);
		if (entry != NULL)
		{
			/* AWR snapshots contain what was reported already. */
			for (int c = 0; c < COUNTERS; c++)
				entry->counters[c] += victim.counters[c] - victim.reported[c];
			entry->max_us = Max(entry->max_us, victim.max_us);
		}
	}
	pfree(entries);
}

/* ---- CPU time ---- */

/* Returns the CPU time of this process in nanoseconds; 0 if the system does not provide it. */
static uint64
read_cpu(void)
{
	struct timespec cpu;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0)
		return 0;
	return (uint64) cpu.tv_sec * UINT64CONST(1000000000) + cpu.tv_nsec;
}

/*
 * Starts a run of the executor or of a utility statement.  Returns this process's
 * CPU time if the run's CPU time is to be read, or 0.
 *
 * A reading is a system call, which would cost a short statement more than all
 * other statistics.  The runs to be read are chosen at random, so that the sums
 * are right on average whatever the order of the statements is.
 */
static uint64
start_run(const StatementEntry *entry)
{
	static uint32 random = 1;

	if (entry->cpu_readings >= CPU_READ_FIRST && entry->mean_cpu_ns < CPU_READ_ALWAYS_NS)
	{
		random = random * 1664525 + 1013904223;
		if ((random >> 16) % CPU_READ_EVERY != 0)
			return 0;
	}
	return read_cpu();
}

/* Adds the CPU time of a run.  A run whose CPU time was not read counts with the mean of the statement. */
static void
end_run(StatementEntry *entry, uint64 started_cpu_ns)
{
	uint64		used;

	if (started_cpu_ns == 0)
	{
		entry->cpu_ns += entry->mean_cpu_ns;
		return;
	}
	used = read_cpu() - started_cpu_ns;
	entry->cpu_ns += used;
	if (entry->cpu_readings < CPU_READ_FIRST)
		entry->cpu_readings++;

	/*
	 * The weight of a reading decreases with each later one, so that the
	 * costs of a session's first runs are forgotten.
	 */
	entry->mean_cpu_ns = entry->cpu_readings == 1 ? used : (entry->mean_cpu_ns * 7 + used) / 8;
}

static uint64
nanoseconds_since(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return CellarTimeNs(now);
}

/* ---- this process's table ---- */

/* Moves whole microseconds to a counter. */
static void
add_microseconds(uint64 *counter, uint64 *nanoseconds)
{
	*counter += *nanoseconds / 1000;
	*nanoseconds %= 1000;
}

/* Adds this process's table to the shared one. */
static void
flush_statements(void)
{
	HASH_SEQ_STATUS scan;
	StatementEntry *local;

	last_flush = GetCurrentTimestamp();
	if (local_entries == NULL)
		return;
	LWLockAcquire(shared_lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, local_entries);
	while ((local = hash_seq_search(&scan)) != NULL)
	{
		StatementEntry *entry;

		if (local->counters[CALLS] == 0 && local->counters[PLANS] == 0)
			continue;
		/* Means of other runs must not make CPU time exceed the elapsed time. */
		local->cpu_ns = Min(local->cpu_ns, local->elapsed_ns);
		add_microseconds(&local->counters[ELAPSED_US], &local->elapsed_ns);
		add_microseconds(&local->counters[CPU_US], &local->cpu_ns);
		add_microseconds(&local->counters[PLAN_US], &local->plan_ns);
		if (hash_get_num_entries(shared_entries) >= cellar_awr_max_statements &&
			hash_search(shared_entries, &local->key, HASH_FIND, NULL) == NULL)
			evict();
		entry = enter_shared(&local->key);
		if (entry != NULL)
			add_counters(entry, local);
		memset(local->counters, 0, sizeof(local->counters));
		local->max_us = 0;
	}
	LWLockRelease(shared_lock);
	if (hash_get_num_entries(local_entries) > LOCAL_ENTRIES)
	{
		hash_destroy(local_entries);
		local_entries = NULL;
		local_entries_version++;
	}
}

static void
flush_at_exit(int code, Datum arg)
{
	flush_statements();
}

static SmartScanBytes
read_bytes(void)
{
	return (SmartScanBytes)
	{
		.eligible_bytes = cellar_session_value(CELLAR_STAT_ELIGIBLE_BYTES),
			.saved_bytes = cellar_session_value(CELLAR_STAT_SAVED_BY_STORAGE_INDEX_BYTES),
			.returned_bytes = cellar_session_value(CELLAR_STAT_RETURNED_BYTES),
	};
}

static void
read_usage(Usage *usage)
{
	usage->bytes = read_bytes();
	usage->buffers = pgBufferUsage;
	usage->wal = pgWalUsage;
	INSTR_TIME_SET_CURRENT(usage->time);
}

/* Adds the bytes of this process since an earlier reading. */
static void
add_bytes(SmartScanBytes *bytes, const SmartScanBytes *before)
{
	SmartScanBytes now = read_bytes();

	bytes->eligible_bytes += now.eligible_bytes - before->eligible_bytes;
	bytes->saved_bytes += now.saved_bytes - before->saved_bytes;
	bytes->returned_bytes += now.returned_bytes - before->returned_bytes;
}

static StatementKey
statement_key(int64 query_id, int64 plan_id)
{
	return (StatementKey)
	{
		.database = MyDatabaseId,.role = GetUserId(),.query_id = query_id,.plan_id = plan_id
	};
}

/* Returns this process's entry for a statement. */
static StatementEntry *
local_entry(StatementKey key)
{
	static bool registered = false;
	static RecentEntry recent[RECENT_ENTRIES];
	RecentEntry *slot = &recent[(uint64) (key.query_id ^ key.plan_id) % RECENT_ENTRIES];
	bool		found;

	if (local_entries == NULL)
	{
		HASHCTL		info;

		info.keysize = sizeof(StatementKey);
		info.entrysize = sizeof(StatementEntry);
		info.hcxt = TopMemoryContext;
		local_entries = hash_create("cellar statements", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	if (!registered)
	{
		registered = true;
		before_shmem_exit(flush_at_exit, (Datum) 0);
	}
	/* Sessions repeat few statements. */
	if (slot->entry == NULL || slot->table_version != local_entries_version || memcmp(&slot->entry->key, &key, sizeof(key)) != 0)
	{
		slot->entry = enter(local_entries, &key, HASH_ENTER, &found);
		slot->table_version = local_entries_version;
	}
	return slot->entry;
}

/* Returns this process's entry for a query that it executes. */
static StatementEntry *
tracked_entry(TrackedQuery *query)
{
	if (query->entry == NULL || query->table_version != local_entries_version)
	{
		query->entry = local_entry(query->key);
		query->table_version = local_entries_version;
	}
	return query->entry;
}

/* Counts one execution, and adds this process's table to the shared one if that is due. */
static void
count_execution(StatementEntry *entry, uint64 elapsed_ns, uint64 rows, const SmartScanBytes *bytes,
				const BufferUsage *buffers, const WalUsage *wal)
{
	uint64	   *counters = entry->counters;

	counters[CALLS]++;
	entry->elapsed_ns += elapsed_ns;
	entry->max_us = Max(entry->max_us, elapsed_ns / 1000);
	counters[ROWS] += rows;
	counters[SHARED_HIT] += buffers->shared_blks_hit;
	counters[SHARED_READ] += buffers->shared_blks_read;
	counters[SHARED_DIRTIED] += buffers->shared_blks_dirtied;
	counters[SHARED_WRITTEN] += buffers->shared_blks_written;
	counters[TEMP_READ] += buffers->temp_blks_read;
	counters[TEMP_WRITTEN] += buffers->temp_blks_written;
	counters[BLK_READ_US] += CellarBlockReadUs(buffers);
	counters[BLK_WRITE_US] += CellarBlockWriteUs(buffers);
	counters[WAL_RECORDS] += wal->wal_records;
	counters[WAL_FPI] += wal->wal_fpi;
	counters[WAL_BYTES] += wal->wal_bytes;
	counters[ELIGIBLE_BYTES] += bytes->eligible_bytes;
	counters[SAVED_BYTES] += bytes->saved_bytes;
	counters[RETURNED_BYTES] += bytes->returned_bytes;

	/* This sum is about the present time, and costs no reading of the clock. */
	if (GetCurrentStatementStartTimestamp() + (TimestampTz) (elapsed_ns / 1000) - last_flush >= CELLAR_FLUSH_INTERVAL_US)
		flush_statements();
}

/* Returns whether the shared table contains a statement. */
static bool
is_known(const StatementKey *key)
{
	bool		known;

	LWLockAcquire(shared_lock, LW_SHARED);
	known = hash_search(shared_entries, key, HASH_FIND, NULL) != NULL;
	LWLockRelease(shared_lock);
	return known;
}

/* Stores the texts of a query and its plan, unless another process has added them before. */
static void
store_plan(const StatementKey *key, QueryDesc *query)
{
	MemoryContext old;
	ExplainState *es;

	if (is_known(key))
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
	return cellar_awr_track_statements && shared != NULL && nesting_level == 0 && query_id != 0 && !IsParallelWorker();
}

static PlannedStmt *
time_planning(Query *parse, const char *query_string, int cursor_options, ParamListInfo params
			  CELLAR_PLANNER_PARAMETER)
{
	bool		track = is_tracking(parse->queryId);
	uint64		query_id = parse->queryId;
	PlannedStmt *result;
	instr_time	started;

	if (nesting_level == 0)
		last_plan = NULL;
	INSTR_TIME_SET_ZERO(started);
	if (track)
		INSTR_TIME_SET_CURRENT(started);
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
		uint64		elapsed_ns = nanoseconds_since(started);
		StatementEntry *entry;

		last_plan_id = cellar_plan_id(result);
		last_plan = result;
		entry = local_entry(statement_key((int64) query_id, last_plan_id));
		entry->counters[PLANS]++;
		entry->plan_ns += elapsed_ns;
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
	StatementEntry *statement;

	cellar_count_cpu_at_exit();

	if (previous_start != NULL)
		previous_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (track)
	{
		MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);
		TrackedQuery *entry = palloc0(sizeof(TrackedQuery));

		entry->query = query;
		entry->key = statement_key((int64) query->plannedstmt->queryId,
								   query->plannedstmt == last_plan ? last_plan_id : cellar_plan_id(query->plannedstmt));
		entry->next = tracked;
		tracked = entry;
		entry->callback.func = forget_query;
		entry->callback.arg = entry;
		MemoryContextRegisterResetCallback(CurrentMemoryContext, &entry->callback);
		MemoryContextSwitchTo(old);
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

/* Publishes the plan that this process executes now, and reads what the process has used. */
static void
enter_query(TrackedQuery *entry, Usage *before)
{
	if (entry == NULL)
		return;
	cellar_set_current_plan(entry->key.query_id, entry->key.plan_id);
	read_usage(before);
}

/* Adds what the process has used since enter_query. */
static void
add_usage(TrackedQuery *entry, const Usage *before)
{
	if (entry == NULL)
		return;
	entry->elapsed_ns += nanoseconds_since(before->time);
	BufferUsageAccumDiff(&entry->buffers, &pgBufferUsage, &before->buffers);
	WalUsageAccumDiff(&entry->wal, &pgWalUsage, &before->wal);
	add_bytes(&entry->bytes, &before->bytes);
}

static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count CELLAR_EXECUTE_ONCE_PARAMETER)
{
	TrackedQuery *entry = nesting_level == 0 ? find_tracked(query) : NULL;
	Usage		before;
	uint64		started_cpu_ns = 0;

	if (entry != NULL)
		started_cpu_ns = start_run(tracked_entry(entry));
	enter_query(entry, &before);
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
		add_usage(entry, &before);
		end_run(tracked_entry(entry), started_cpu_ns);
		/* ExecutorRun counts from zero each time. */
		entry->rows += query->estate->es_processed;
	}
}

static void
finish_query(QueryDesc *query)
{
	/* Triggers run now.  A query that changes nothing has none. */
	bool		may_change = query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;
	TrackedQuery *entry = nesting_level == 0 && may_change ? find_tracked(query) : NULL;
	Usage		before;

	enter_query(entry, &before);
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
	add_usage(entry, &before);
}

static void
end_query(QueryDesc *query)
{
	TrackedQuery *entry = find_tracked(query);

	if (entry != NULL)
	{
		forget_query(entry);
		count_execution(tracked_entry(entry), entry->elapsed_ns, entry->rows, &entry->bytes, &entry->buffers, &entry->wal);
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
	bool		may_contain_password = contains_password(statement->utilityStmt);
	StatementKey key = statement_key((int64) statement->queryId, 0);
	Usage		before;
	uint64		started_cpu_ns = 0;

	if (track)
	{
		started_cpu_ns = start_run(local_entry(key));
		read_usage(&before);
	}
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
		TrackedQuery used = {0};
		StatementEntry *entry = local_entry(key);

		add_usage(&used, &before);
		end_run(entry, started_cpu_ns);
		if (!entry->has_text && !may_contain_password && !is_known(&entry->key))
			cellar_add_text(entry->key.query_id, 0, query_string, location, length, "");
		entry->has_text = true;
		count_execution(entry, used.elapsed_ns, completion != NULL ? completion->nprocessed : 0,
						&used.bytes, &used.buffers, &used.wal);
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

/* ---- SQL functions ---- */

/* awr.get_statements() */
Datum
cellar_get_statements(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HASH_SEQ_STATUS scan;
	StatementEntry *entry;
	StatementEntry *copies;
	int			count = 0;

	InitMaterializedSRF(fcinfo, 0);
	if (shared == NULL)
		return (Datum) 0;
	flush_statements();
	LWLockAcquire(shared_lock, LW_EXCLUSIVE);
	copies = palloc(Max(hash_get_num_entries(shared_entries), 1) * sizeof(StatementEntry));
	hash_seq_init(&scan, shared_entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		memcpy(entry->reported, entry->counters, sizeof(entry->reported));
		copies[count++] = *entry;
		entry->max_us = 0;
	}
	LWLockRelease(shared_lock);

	for (int i = 0; i < count; i++)
	{
		Datum		values[6 + COUNTERS];
		bool		nulls[6 + COUNTERS] = {false};

		values[0] = ObjectIdGetDatum(copies[i].key.database);
		values[1] = ObjectIdGetDatum(copies[i].key.role);
		values[2] = Int64GetDatum(copies[i].key.query_id);
		values[3] = Int64GetDatum(copies[i].key.plan_id);
		for (int c = 0; c < COUNTERS; c++)
			values[4 + c] = Int64GetDatum((int64) copies[i].counters[c]);
		values[4 + COUNTERS] = Int64GetDatum((int64) copies[i].max_us);
		values[5 + COUNTERS] = Int64GetDatum((int64) copies[i].generation);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
