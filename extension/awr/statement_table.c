/*-------------------------------------------------------------------------
 *
 * statement_table.c
 *	  Statistics of statements, per database, role, query and plan: the table of
 *	  this process and the shared one.
 *
 * About once a second, and when it exits, a process adds its table to the one in
 * shared memory, so most statements take no lock.  When the shared table is full,
 * the entries with the fewest calls are added to an entry of their database with
 * query id 0, so totals stay exact.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/shared_table.h"
#include "cellar/statement_table.h"

PG_FUNCTION_INFO_V1(cellar_get_statements);
PG_FUNCTION_INFO_V1(cellar_take_statements);

/* Entries that can be added to the table while its copy is allocated. */
#define ENTRIES_MARGIN	256

#define COUNTERS		CELLAR_STATEMENT_COUNTERS
#define LOCAL_ENTRIES		1024

typedef struct SharedStatement
{
	CellarStatementKey key;
	uint64		counters[COUNTERS];
	uint64		max_us;			/* since the last awr.take_statements() */
	uint64		reported[COUNTERS]; /* counters at the last
									 * awr.take_statements() */
	uint64		generation;		/* differs if the entry was evicted and
								 * created again */
} SharedStatement;

uint64		cellar_statements_version = 0;
uint64		cellar_last_statements_flush_ns = 0;
bool		cellar_has_statement_table = false;
CellarStatement *cellar_recent_statements[CELLAR_RECENT_STATEMENTS];
static CellarSharedTable shared = {
	.name = "cellar statement table",
	.key_bytes = sizeof(CellarStatementKey),
	.entry_bytes = sizeof(SharedStatement),
	.generation_offset = offsetof(SharedStatement, generation)
};
static HTAB *local_entries = NULL;

/* ---- the shared table ---- */

Size
cellar_statements_bytes(void)
{
	return cellar_shared_table_bytes(&shared, cellar_awr_max_statements);
}

void
cellar_statements_init(LWLock *lock)
{
	cellar_shared_table_init(&shared, cellar_awr_max_statements, lock);
	cellar_has_statement_table = true;
}

static int
compare_calls(const void *a, const void *b)
{
	uint64		x = (*(SharedStatement *const *) a)->counters[CELLAR_STATEMENT_CALLS];
	uint64		y = (*(SharedStatement *const *) b)->counters[CELLAR_STATEMENT_CALLS];

	return x < y ? -1 : x > y;
}

/*
 * Adds what was not reported yet of the tenth of the entries with the fewest
 * calls to the entries with query id 0.  The caller holds the lock.
 */
static void
evict(void)
{
	int			count = hash_get_num_entries(shared.entries);
	SharedStatement **entries = palloc(count * sizeof(SharedStatement *));
	HASH_SEQ_STATUS scan;
	SharedStatement *entry;
	int			n = 0;

	hash_seq_init(&scan, shared.entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->key.query_id != 0)
			entries[n++] = entry;
	}
	qsort(entries, n, sizeof(SharedStatement *), compare_calls);
	for (int i = 0; i < Max(n / 10, Min(n, 1)); i++)
	{
		SharedStatement victim = *entries[i];
		CellarStatementKey rest = {.database = victim.key.database};

		/* Remove first: the table may be full. */
		hash_search(shared.entries, &victim.key, HASH_REMOVE, NULL);
		entry = cellar_shared_table_enter(&shared, &rest);
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

/* Returns whether the shared table contains a statement. */
bool
cellar_is_known_statement(const CellarStatementKey *key)
{
	bool		known;

	LWLockAcquire(shared.lock, LW_SHARED);
	known = hash_search(shared.entries, key, HASH_FIND, NULL) != NULL;
	LWLockRelease(shared.lock);
	return known;
}

/* ---- this process's table ---- */

/* Moves whole microseconds to a counter. */
static void
add_microseconds(uint64 *counter, uint64 *nanoseconds)
{
	*counter += *nanoseconds / 1000;
	*nanoseconds %= 1000;
}

static void
add_counters(SharedStatement *to, const CellarStatement *from)
{
	for (int i = 0; i < COUNTERS; i++)
		to->counters[i] += from->counters[i];
	to->max_us = Max(to->max_us, from->max_us);
}

/* Returns the entry of a key, which is created if necessary, or NULL if there is no memory.  The caller holds the lock. */
static SharedStatement *
enter_shared(const CellarStatementKey *key)
{
	if (hash_get_num_entries(shared.entries) >= cellar_awr_max_statements && hash_search(shared.entries, key, HASH_FIND, NULL) == NULL)
		evict();
	return cellar_shared_table_enter(&shared, key);
}

/* Adds the times of a parallel worker to those of its leader's statement. */
void
cellar_add_worker_times(const CellarStatementKey *key, uint64 cpu_ns, uint64 run_queue_ns)
{
	SharedStatement *entry;

	LWLockAcquire(shared.lock, LW_EXCLUSIVE);
	entry = enter_shared(key);
	if (entry != NULL)
	{
		entry->counters[CELLAR_STATEMENT_CPU_US] += cpu_ns / 1000;
		entry->counters[CELLAR_STATEMENT_RUN_QUEUE_US] += run_queue_ns / 1000;
	}
	LWLockRelease(shared.lock);
}

/* Adds this process's table to the shared one. */
void
cellar_flush_statements(void)
{
	HASH_SEQ_STATUS scan;
	CellarStatement *local;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	cellar_last_statements_flush_ns = CellarTimeNs(now);
	if (local_entries == NULL)
		return;
	LWLockAcquire(shared.lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, local_entries);
	while ((local = hash_seq_search(&scan)) != NULL)
	{
		SharedStatement *entry;

		if (!local->changed)
			continue;
		/* Means of other runs must not make both exceed the elapsed time. */
		local->cpu_ns = Min(local->cpu_ns, local->elapsed_ns);
		local->run_queue_ns = Min(local->run_queue_ns, local->elapsed_ns - local->cpu_ns);
		add_microseconds(&local->counters[CELLAR_STATEMENT_ELAPSED_US], &local->elapsed_ns);
		add_microseconds(&local->counters[CELLAR_STATEMENT_CPU_US], &local->cpu_ns);
		add_microseconds(&local->counters[CELLAR_STATEMENT_RUN_QUEUE_US], &local->run_queue_ns);
		add_microseconds(&local->counters[CELLAR_STATEMENT_PLAN_US], &local->plan_ns);
		add_microseconds(&local->counters[CELLAR_STATEMENT_PARSE_US], &local->parse_ns);
		entry = enter_shared(&local->key);
		if (entry != NULL)
			add_counters(entry, local);
		memset(local->counters, 0, sizeof(local->counters));
		local->max_us = 0;
		local->changed = false;
	}
	LWLockRelease(shared.lock);
	if (hash_get_num_entries(local_entries) > LOCAL_ENTRIES)
	{
		hash_destroy(local_entries);
		local_entries = NULL;
		memset(cellar_recent_statements, 0, sizeof(cellar_recent_statements));
		cellar_statements_version++;
	}
}

static void
flush_at_exit(int code, Datum arg)
{
	cellar_flush_statements();
}

/* Returns the entry of a key that this process has not used recently, which is created if necessary. */
static CellarStatement *
enter_local(const CellarStatementKey *key)
{
	static bool registered = false;
	CellarStatement *entry;
	bool		found;

	if (local_entries == NULL)
	{
		HASHCTL		info;

		info.keysize = sizeof(CellarStatementKey);
		info.entrysize = sizeof(CellarStatement);
		info.hcxt = TopMemoryContext;
		local_entries = hash_create("cellar statements", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	if (!registered)
	{
		registered = true;
		before_shmem_exit(flush_at_exit, (Datum) 0);
	}
	entry = hash_search(local_entries, key, HASH_ENTER, &found);
	if (!found)
		memset((char *) entry + sizeof(CellarStatementKey), 0, sizeof(CellarStatement) - sizeof(CellarStatementKey));
	return entry;
}

/*
 * Returns this process's entry for a statement, for cellar_find_statement, which did
 * not find it in its slot of the recent entries.  If another statement has the slot,
 * the neighbouring slot is used.
 */
CellarStatement *
cellar_enter_statement(const CellarStatementKey *key)
{
	int			slot = cellar_recent_statement_slot(key);
	CellarStatement **recent = &cellar_recent_statements[slot];
	CellarStatement **neighbour = &cellar_recent_statements[slot ^ 1];

	if (*recent == NULL)
		return *recent = enter_local(key);
	if (!cellar_is_statement(*neighbour, key))
		*neighbour = enter_local(key);
	return *neighbour;
}

/* ---- SQL function ---- */

/* Returns the statistics of all statements.  "takes" declares that the caller stores them. */
static void
put_statements(ReturnSetInfo *rsinfo, bool takes)
{
	HASH_SEQ_STATUS scan;
	SharedStatement *entry;
	SharedStatement *copies;
	long		space;
	long		count = 0;

	if (!cellar_has_statement_table)
		return;
	cellar_flush_statements();
	LWLockAcquire(shared.lock, LW_SHARED);
	space = hash_get_num_entries(shared.entries) + ENTRIES_MARGIN;
	LWLockRelease(shared.lock);
	copies = palloc_extended(space * sizeof(SharedStatement), MCXT_ALLOC_HUGE);

	/* Every entry is returned: one that a snapshot lacks would count as evicted. */
	LWLockAcquire(shared.lock, takes ? LW_EXCLUSIVE : LW_SHARED);
	while (hash_get_num_entries(shared.entries) > space)
	{
		space = hash_get_num_entries(shared.entries) + ENTRIES_MARGIN;
		LWLockRelease(shared.lock);
		pfree(copies);
		copies = palloc_extended(space * sizeof(SharedStatement), MCXT_ALLOC_HUGE);
		LWLockAcquire(shared.lock, takes ? LW_EXCLUSIVE : LW_SHARED);
	}
	hash_seq_init(&scan, shared.entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		copies[count++] = *entry;
		if (takes)
		{
			memcpy(entry->reported, entry->counters, sizeof(entry->reported));
			entry->max_us = 0;
		}
	}
	LWLockRelease(shared.lock);

	for (long i = 0; i < count; i++)
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
}

/* awr.get_statements() */
Datum
cellar_get_statements(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 6 + COUNTERS);
	put_statements((ReturnSetInfo *) fcinfo->resultinfo, false);
	return (Datum) 0;
}

/* awr.take_statements() */
Datum
cellar_take_statements(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 6 + COUNTERS);
	put_statements((ReturnSetInfo *) fcinfo->resultinfo, true);
	return (Datum) 0;
}
