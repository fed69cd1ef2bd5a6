/*-------------------------------------------------------------------------
 *
 * relations.c
 *	  Row-lock waits and Smart Scan bytes per relation.
 *
 * PostgreSQL counts neither.  Row-lock waits are sampled: at each tick at which a
 * session waits for a row or for a transaction, the sampler reads the lock table.
 * A session that waits for a transaction because of a row holds the lock of the row
 * (LOCKTAG_TUPLE), which names the relation.  A wait for a transaction without such
 * a lock, as of a duplicate key, is not counted.  Smart Scan bytes are counted for
 * each scanned range.
 *
 * The table in shared memory is bounded.  When the table is full, the relation that
 * was used least recently is removed, and what awr.take_relations() has not
 * returned of its counts is added to an entry without a relation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/shared_table.h"

PG_FUNCTION_INFO_V1(cellar_get_relations);
PG_FUNCTION_INFO_V1(cellar_take_relations);

#define RELATIONS_MAX	2048

typedef enum RelationCounter
{
	ROW_LOCK_WAITS,
	ROW_LOCK_US,
	ELIGIBLE_BYTES,
	SAVED_BYTES,
	RETURNED_BYTES,
	COUNTERS
} RelationCounter;

typedef struct RelationKey
{
	Oid			database;
	Oid			relation;		/* InvalidOid: sums of removed entries */
} RelationKey;

typedef struct RelationEntry
{
	RelationKey key;
	uint64		counters[COUNTERS];
	uint64		reported[COUNTERS]; /* counters at the last
									 * awr.take_relations() */
	uint64		last_use;		/* a number of the table, at the last change */
	uint64		generation;		/* differs if the entry was removed and
								 * created again */
} RelationEntry;

/* A wait that the sampler has seen. */
typedef struct RowWait
{
	int			pid;
	LOCKTAG		row;
	LockTagType type;			/* LOCKTAG_TUPLE or LOCKTAG_TRANSACTION */
	TimestampTz started;
} RowWait;

static CellarSharedTable shared = {
	.name = "cellar relation table",
	.key_bytes = sizeof(RelationKey),
	.entry_bytes = sizeof(RelationEntry),
	.generation_offset = offsetof(RelationEntry, generation)
};

Size
cellar_relations_bytes(void)
{
	return cellar_shared_table_bytes(&shared, RELATIONS_MAX);
}

void
cellar_relations_init(LWLock *lock)
{
	cellar_shared_table_init(&shared, RELATIONS_MAX, lock);
}

/* Returns the entry of a relation, which is created if necessary, or NULL if the table is full.  The caller holds the lock. */
static RelationEntry *
enter(Oid database, Oid relation)
{
	RelationKey key = {.database = database,.relation = relation};

	return cellar_shared_table_enter(&shared, &key);
}

/* Removes the entry that was used least recently.  The caller holds the lock. */
static void
remove_oldest(void)
{
	HASH_SEQ_STATUS scan;
	RelationEntry *entry;
	RelationEntry *oldest = NULL;
	RelationEntry victim;

	hash_seq_init(&scan, shared.entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (OidIsValid(entry->key.relation) && (oldest == NULL || entry->last_use < oldest->last_use))
			oldest = entry;
	}
	if (oldest == NULL)
		return;
	victim = *oldest;
	/* Remove first: the table is full. */
	hash_search(shared.entries, &victim.key, HASH_REMOVE, NULL);
	entry = enter(InvalidOid, InvalidOid);
	for (int i = 0; entry != NULL && i < COUNTERS; i++)
		entry->counters[i] += victim.counters[i] - victim.reported[i];
}

/* Returns the entry of a relation for a change.  The caller holds the lock. */
static RelationEntry *
use(Oid database, Oid relation)
{
	RelationKey key = {.database = database,.relation = relation};
	RelationEntry *entry;

	/* An entry remains free for the sums of removed entries. */
	if (hash_get_num_entries(shared.entries) >= RELATIONS_MAX - 1 && hash_search(shared.entries, &key, HASH_FIND, NULL) == NULL)
		remove_oldest();
	entry = enter(database, relation);
	if (entry != NULL)
		entry->last_use = ++*shared.last_number;
	return entry;
}

/* Counts a range that a Smart Scan of a relation of this database has scanned. */
void
cellar_count_relation_scan(Oid relation, uint64 eligible_bytes, uint64 saved_bytes, uint64 returned_bytes)
{
	RelationEntry *entry;

	if (shared.entries == NULL)
		return;
	LWLockAcquire(shared.lock, LW_EXCLUSIVE);
	entry = use(MyDatabaseId, relation);
	if (entry != NULL)
	{
		entry->counters[ELIGIBLE_BYTES] += eligible_bytes;
		entry->counters[SAVED_BYTES] += saved_bytes;
		entry->counters[RETURNED_BYTES] += returned_bytes;
	}
	LWLockRelease(shared.lock);
}

/* ---- row-lock waits ---- */

/* Returns the lock of the row for which a process waits, or NULL if no row is known. */
static const LOCKTAG *
find_row(const LockData *locks, const LockInstanceData *waiting)
{
	if (waiting->locktag.locktag_type == LOCKTAG_TUPLE)
		return &waiting->locktag;
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid == waiting->pid && lock->holdMask != 0 && lock->locktag.locktag_type == LOCKTAG_TUPLE)
			return &lock->locktag;
	}
	return NULL;
}

/*
 * Returns whether a wait continues another.  A session that waits behind others for
 * a row first waits for the lock of the row, and then for the transaction that
 * changed the row: that is one wait.  The start of a wait is 0 for a short time.
 */
static bool
continues(const RowWait *wait, const RowWait *previous)
{
	return wait->pid == previous->pid && memcmp(&wait->row, &previous->row, sizeof(LOCKTAG)) == 0 &&
		(wait->started == previous->started || previous->started == 0 || (previous->type == LOCKTAG_TUPLE && wait->type == LOCKTAG_TRANSACTION));
}

static bool
waits_for_row(const LockInstanceData *lock)
{
	return lock->waitLockMode != NoLock &&
		(lock->locktag.locktag_type == LOCKTAG_TUPLE || lock->locktag.locktag_type == LOCKTAG_TRANSACTION);
}

/*
 * Adds a period to the wait time of each relation for whose rows a session waits,
 * and counts the waits that the previous tick has not seen.  Called by the sampler at
 * each tick; "waiting" is false if no session waits for a row or for a transaction.
 */
void
cellar_sample_row_locks(bool waiting, int64 period_us)
{
	static RowWait *seen = NULL;
	static int	seen_count = 0;
	LockData   *locks;
	RowWait    *waits;
	int			count = 0;

	if (!waiting)
	{
		seen_count = 0;
		return;
	}
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
		count += waits_for_row(&locks->locks[i]) ? 1 : 0;
	waits = MemoryContextAlloc(TopMemoryContext, Max(count, 1) * sizeof(RowWait));
	count = 0;
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		const LOCKTAG *row = waits_for_row(lock) ? find_row(locks, lock) : NULL;

		if (row != NULL)
			waits[count++] = (RowWait)
		{
			.pid = lock->pid,.row = *row,.type = (LockTagType) lock->locktag.locktag_type,.started = lock->waitStart
		};
	}

	LWLockAcquire(shared.lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		/* Fields of LOCKTAG_TUPLE: database, relation, block, offset. */
		RelationEntry *entry = use(waits[i].row.locktag_field1, waits[i].row.locktag_field2);
		bool		is_new = true;

		for (int s = 0; s < seen_count && is_new; s++)
			is_new = !continues(&waits[i], &seen[s]);
		if (entry != NULL)
		{
			entry->counters[ROW_LOCK_WAITS] += is_new ? 1 : 0;
			entry->counters[ROW_LOCK_US] += (uint64) period_us;
		}
	}
	LWLockRelease(shared.lock);
	if (seen != NULL)
		pfree(seen);
	seen = waits;
	seen_count = count;
}

/* ---- SQL functions ---- */

/* Returns the counts of all relations.  "takes" declares that the caller stores them. */
static void
put_relations(ReturnSetInfo *rsinfo, bool takes)
{
	HASH_SEQ_STATUS scan;
	RelationEntry *entry;
	RelationEntry *copies;
	int			count = 0;

	if (shared.entries == NULL)
		return;
	copies = palloc(RELATIONS_MAX * sizeof(RelationEntry));
	LWLockAcquire(shared.lock, takes ? LW_EXCLUSIVE : LW_SHARED);

	/*
	 * An AWR snapshot of no rows would not be a previous value for the next
	 * one.
	 */
	if (takes)
		(void) enter(InvalidOid, InvalidOid);
	hash_seq_init(&scan, shared.entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (takes)
			memcpy(entry->reported, entry->counters, sizeof(entry->reported));
		if (count < RELATIONS_MAX)
			copies[count++] = *entry;
	}
	LWLockRelease(shared.lock);

	for (int i = 0; i < count; i++)
	{
		Datum		values[3 + COUNTERS];
		bool		nulls[3 + COUNTERS] = {false};

		values[0] = ObjectIdGetDatum(copies[i].key.database);
		values[1] = ObjectIdGetDatum(copies[i].key.relation);
		for (int c = 0; c < COUNTERS; c++)
			values[2 + c] = Int64GetDatum((int64) copies[i].counters[c]);
		values[2 + COUNTERS] = Int64GetDatum((int64) copies[i].generation);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* awr.get_relations() */
Datum
cellar_get_relations(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 3 + COUNTERS);
	put_relations((ReturnSetInfo *) fcinfo->resultinfo, false);
	return (Datum) 0;
}

/* awr.take_relations() */
Datum
cellar_take_relations(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 3 + COUNTERS);
	put_relations((ReturnSetInfo *) fcinfo->resultinfo, true);
	return (Datum) 0;
}
