/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Counters of statistics and wait events, for the system and per session.
 *
 * Shared memory contains one set of counters for the system and one per session,
 * indexed by process number.  Each event is added to both.  A parallel worker
 * adds to its leader's session.  System counters are never reset; a session's
 * counters are cleared when another session reuses its slot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "cellar/cell.h"
#include "cellar/statistics.h"

/* The cell reads a table in requests of one region (1 MiB). */
#define CELL_REQUEST_BYTES	(1024 * 1024)

/*
 * Indexed by CellarStatistic.  The names are Oracle's.  "smart IO sessions" are
 * scans of one process: those that could not use the cell ("open fail"), and
 * those in which the cell passed at least one block through ("passthru mode").
 */
const char *const cellar_statistic_names[CELLAR_STATS] = {
	"cell IO uncompressed bytes",
	"cell physical IO bytes eligible for predicate offload",
	"cell physical IO bytes saved by storage index",
	"cell physical IO bytes saved by columnar cache",
	"cell physical IO interconnect bytes",
	"cell physical IO interconnect bytes returned by smart scan",
	"cell num bytes in passthru during predicate offload",
	"cell num smart IO sessions in rdbms block IO due to open fail",
	"cell num smart IO sessions using passthru mode due to cellsrv",
	"physical read total bytes",
	"physical read total IO requests",
	"physical read total bytes optimized",
	"cell smart IO session cache lookups",
	"cell smart IO session cache hits",
	"cell blocks helped by commit cache",
	"cell commit cache queries",
	"cell transactions found in commit cache",
	"cell simulated physical IO bytes eligible for predicate offload",
	"cell simulated physical IO bytes returned by predicate offload",
	"cell index scans",
	"physical read requests optimized",
	"cell flash cache read hits",
	"cell flash cache read hits for smart IO",
};

/* Indexed by CellarWaitEvent. */
const char *const cellar_wait_names[CELLAR_WAITS] = {
	"cell smart table scan",
	"enq: KO - fast object checkpoint",
	"cell single block physical read",
	"cell smart index scan",
};

typedef struct SharedEvent
{
	pg_atomic_uint64 waits;
	pg_atomic_uint64 time_us;
	pg_atomic_uint64 max_us;
} SharedEvent;

typedef struct SharedCounts
{
	pg_atomic_uint64 stats[CELLAR_STATS];
	SharedEvent events[CELLAR_WAITS];
} SharedCounts;

typedef struct SharedSession
{
	pg_atomic_uint32 pid;		/* 0 when no session uses the slot */
	SharedCounts counts;
} SharedSession;

typedef struct SharedStatistics
{
	uint64		incarnation;	/* see cellar_incarnation */
	TimestampTz created;		/* see cellar_incarnation_start */
	SharedCounts system;
	pg_atomic_uint64 histogram[CELLAR_WAITS][CELLAR_HISTOGRAM_BUCKETS];
	SharedSession sessions[FLEXIBLE_ARRAY_MEMBER];	/* by process number */
} SharedStatistics;

bool		cellar_session_attached = false;

static SharedStatistics *statistics = NULL;

int
cellar_session_slots(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static Size
statistics_bytes(void)
{
	return add_size(offsetof(SharedStatistics, sessions),
					mul_size(sizeof(SharedSession), cellar_session_slots()));
}

static void
clear_counts(SharedCounts *counts)
{
	for (int i = 0; i < CELLAR_STATS; i++)
		pg_atomic_init_u64(&counts->stats[i], 0);
	for (int i = 0; i < CELLAR_WAITS; i++)
	{
		pg_atomic_init_u64(&counts->events[i].waits, 0);
		pg_atomic_init_u64(&counts->events[i].time_us, 0);
		pg_atomic_init_u64(&counts->events[i].max_us, 0);
	}
}

/* Requests the shared memory of the statistics. */
void
cellar_request_statistics(void)
{
	RequestAddinShmemSpace(statistics_bytes());
}

/* Attaches to the shared statistics, and initializes them first.  The caller holds AddinShmemInitLock. */
void
cellar_init_statistics(void)
{
	bool		found;

	statistics = ShmemInitStruct("cellar statistics", statistics_bytes(), &found);
	if (!found)
	{
		if (!pg_strong_random(&statistics->incarnation, sizeof(uint64)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random number")));
		statistics->created = GetCurrentTimestamp();
		clear_counts(&statistics->system);
		for (int event = 0; event < CELLAR_WAITS; event++)
		{
			for (int i = 0; i < CELLAR_HISTOGRAM_BUCKETS; i++)
				pg_atomic_init_u64(&statistics->histogram[event][i], 0);
		}
		for (int i = 0; i < cellar_session_slots(); i++)
		{
			pg_atomic_init_u32(&statistics->sessions[i].pid, 0);
			clear_counts(&statistics->sessions[i].counts);
		}
	}
}

/* ---- counting ---- */

static void
detach_session(int code, Datum slot)
{
	cellar_session_attached = false;
	pg_atomic_write_u32(&statistics->sessions[DatumGetInt32(slot)].pid, 0);
}

/*
 * Claims and clears the slot of this backend, unless the backend already owns
 * the slot.
 */
void
cellar_attach_session(void)
{
	int			slot = CellarProcNumber(MyProc);
	SharedSession *session = &statistics->sessions[slot];

	if (pg_atomic_read_u32(&session->pid) == (uint32) MyProcPid)
		return;
	clear_counts(&session->counts);
	pg_write_barrier();
	pg_atomic_write_u32(&session->pid, MyProcPid);
	cellar_session_attached = true;
	before_shmem_exit(detach_session, Int32GetDatum(slot));
}

/* Returns the counters of the session that this process works for, or NULL if that session has exited. */
static SharedCounts *
session_counts(void)
{
	PGPROC	   *leader;
	SharedSession *session;

	if (!IsParallelWorker())
	{
		cellar_attach_session();
		return &statistics->sessions[CellarProcNumber(MyProc)].counts;
	}

	leader = MyProc->lockGroupLeader;
	if (leader == NULL)
		return NULL;
	session = &statistics->sessions[CellarProcNumber(leader)];
	return pg_atomic_read_u32(&session->pid) == (uint32) leader->pid ? &session->counts : NULL;
}

static void
count(SharedCounts *session, CellarStatistic statistic, uint64 amount)
{
	if (amount == 0)
		return;
	pg_atomic_fetch_add_u64(&statistics->system.stats[statistic], amount);
	if (session != NULL)
		pg_atomic_fetch_add_u64(&session->stats[statistic], amount);
}

void
cellar_count(CellarStatistic statistic, uint64 amount)
{
	count(session_counts(), statistic, amount);
}

/*
 * Returns a random number that identifies this initialization of shared memory.
 * After a crash, PostgreSQL may assign transaction ids again that were never
 * logged, so a cell must discard the transaction states that it cached before.
 */
uint64
cellar_incarnation(void)
{
	return statistics->incarnation;
}

/*
 * Returns the time of this initialization of shared memory.  No process of the
 * cluster except the postmaster is older.
 */
TimestampTz
cellar_incarnation_start(void)
{
	return statistics->created;
}

/* Adds to the session only: the cells count these statistics for the system. */
void
cellar_count_session(CellarStatistic statistic, uint64 amount)
{
	SharedCounts *session = session_counts();

	if (session != NULL)
		pg_atomic_fetch_add_u64(&session->stats[statistic], amount);
}

/* Reads the Smart Scan bytes of this session, which is attached. */
void
cellar_read_smart_scan_bytes(CellarSmartScanBytes *bytes)
{
	SharedCounts *counts = &statistics->sessions[CellarProcNumber(MyProc)].counts;

	bytes->eligible_bytes = pg_atomic_read_u64(&counts->stats[CELLAR_STAT_ELIGIBLE_BYTES]);
	bytes->saved_bytes = pg_atomic_read_u64(&counts->stats[CELLAR_STAT_SAVED_BY_STORAGE_INDEX_BYTES]);
	bytes->returned_bytes = pg_atomic_read_u64(&counts->stats[CELLAR_STAT_RETURNED_BYTES]);
	bytes->optimized_bytes = pg_atomic_read_u64(&counts->stats[CELLAR_STAT_READ_BYTES_OPTIMIZED]);
}

static void
count_event(SharedEvent *event, uint64 us)
{
	uint64		max = pg_atomic_read_u64(&event->max_us);

	pg_atomic_fetch_add_u64(&event->waits, 1);
	pg_atomic_fetch_add_u64(&event->time_us, us);
	while (us > max && !pg_atomic_compare_exchange_u64(&event->max_us, &max, us))
		;
}

/*
 * Counts a wait that began at started and ends now.  Returns its duration in
 * microseconds.
 */
uint64
cellar_count_wait(CellarWaitEvent event, instr_time started)
{
	SharedCounts *session = session_counts();
	instr_time	ended;
	uint64		us;
	int			bucket;

	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_SUBTRACT(ended, started);
	us = INSTR_TIME_GET_MICROSEC(ended);
	bucket = us == 0 ? 0 : Min(pg_leftmost_one_pos64(us) + 1, CELLAR_HISTOGRAM_BUCKETS - 1);

	count_event(&statistics->system.events[event], us);
	if (session != NULL)
		count_event(&session->events[event], us);
	pg_atomic_fetch_add_u64(&statistics->histogram[event][bucket], 1);
	return us;
}

static uint64
requests_of(uint64 bytes)
{
	return (bytes + CELL_REQUEST_BYTES - 1) / CELL_REQUEST_BYTES;
}

/*
 * Counts a scanned range.  As in Oracle, the whole range counts as physical
 * reads of the database.  Optimized are the bytes that the storage index
 * excluded, those that the columnar cache saved, and those from the flash
 * cache.  A region that was read ahead counts in the range that used it, so
 * that a range may have more bytes from flash than eligible ones.
 */
void
cellar_count_scan(const CellarScanStats *stats)
{
	SharedCounts *session = session_counts();
	uint64		optimized = Min(stats->saved_by_storage_index_bytes + stats->saved_by_columnar_cache_bytes +
								stats->flash_read_bytes, stats->eligible_bytes);

	count(session, CELLAR_STAT_UNCOMPRESSED_BYTES, stats->uncompressed_bytes);
	count(session, CELLAR_STAT_ELIGIBLE_BYTES, stats->eligible_bytes);
	count(session, CELLAR_STAT_SAVED_BY_STORAGE_INDEX_BYTES, stats->saved_by_storage_index_bytes);
	count(session, CELLAR_STAT_SAVED_BY_COLUMNAR_CACHE_BYTES, stats->saved_by_columnar_cache_bytes);
	count(session, CELLAR_STAT_INTERCONNECT_BYTES, stats->returned_bytes);
	count(session, CELLAR_STAT_RETURNED_BYTES, stats->returned_bytes);
	count(session, CELLAR_STAT_PASSTHRU_BYTES, stats->passthru_bytes);
	count(session, CELLAR_STAT_READ_BYTES, stats->eligible_bytes);
	count(session, CELLAR_STAT_READ_REQUESTS, requests_of(stats->eligible_bytes));
	count(session, CELLAR_STAT_READ_BYTES_OPTIMIZED, optimized);
	count(session, CELLAR_STAT_READ_REQUESTS_OPTIMIZED, requests_of(optimized));
	count(session, CELLAR_STAT_FLASH_READ_HITS, stats->flash_read_requests);
	count(session, CELLAR_STAT_FLASH_READ_HITS_SMART_IO, stats->flash_read_requests);
	count(session, CELLAR_STAT_BLOCKS_HELPED_BY_COMMIT_CACHE, stats->blocks_helped_by_commit_cache);
	count(session, CELLAR_STAT_COMMIT_CACHE_QUERIES, stats->commit_cache_queries);
	count(session, CELLAR_STAT_COMMIT_CACHE_FOUND, stats->found_in_commit_cache);
}

/* ---- reading ---- */

static void
read_counts(SharedCounts *shared, CellarCounts *counts)
{
	memset(counts, 0, sizeof(CellarCounts));
	for (int i = 0; i < CELLAR_STATS; i++)
		counts->stats[i] = pg_atomic_read_u64(&shared->stats[i]);
	for (int i = 0; i < CELLAR_WAITS; i++)
	{
		counts->events[i].waits = pg_atomic_read_u64(&shared->events[i].waits);
		counts->events[i].time_us = pg_atomic_read_u64(&shared->events[i].time_us);
		counts->events[i].max_us = pg_atomic_read_u64(&shared->events[i].max_us);
	}
}

void
cellar_read_system_counts(CellarCounts *counts)
{
	read_counts(&statistics->system, counts);
	for (int event = 0; event < CELLAR_WAITS; event++)
	{
		for (int i = 0; i < CELLAR_HISTOGRAM_BUCKETS; i++)
			counts->events[event].histogram[i] =
				pg_atomic_read_u64(&statistics->histogram[event][i]);
	}
}

/*
 * Reads one session's counters.  Returns the session's process id, or 0 if the
 * slot is not in use or another session claimed it meanwhile.
 */
int
cellar_read_session_counts(int slot, CellarCounts *counts)
{
	SharedSession *session = &statistics->sessions[slot];
	uint32		pid = pg_atomic_read_u32(&session->pid);

	if (pid == 0)
		return 0;
	pg_read_barrier();
	read_counts(&session->counts, counts);
	pg_read_barrier();

	/* Another session may have claimed the slot during the read. */
	return pg_atomic_read_u32(&session->pid) == pid ? (int) pid : 0;
}
