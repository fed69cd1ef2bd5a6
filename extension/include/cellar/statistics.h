/*-------------------------------------------------------------------------
 *
 * cellar/statistics.h
 *	  Statistics and wait events, of the system and of each session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATISTICS_H
#define CELLAR_STATISTICS_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"

#include "cellar_client.h"

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

/* counters.c */

/* Indexes of cellar_statistic_names. */
typedef enum CellarStatistic
{
	CELLAR_STAT_UNCOMPRESSED_BYTES,
	CELLAR_STAT_ELIGIBLE_BYTES,
	CELLAR_STAT_SAVED_BY_STORAGE_INDEX_BYTES,
	CELLAR_STAT_SAVED_BY_COLUMNAR_CACHE_BYTES,
	CELLAR_STAT_INTERCONNECT_BYTES,
	CELLAR_STAT_RETURNED_BYTES,
	CELLAR_STAT_PASSTHRU_BYTES,
	CELLAR_STAT_SESSIONS_OPEN_FAIL,
	CELLAR_STAT_SESSIONS_PASSTHRU_CELLSRV,
	CELLAR_STAT_READ_BYTES,
	CELLAR_STAT_READ_REQUESTS,
	CELLAR_STAT_READ_BYTES_OPTIMIZED,
	CELLAR_STAT_SESSION_CACHE_LOOKUPS,
	CELLAR_STAT_SESSION_CACHE_HITS,
	CELLAR_STAT_BLOCKS_HELPED_BY_COMMIT_CACHE,
	CELLAR_STAT_COMMIT_CACHE_QUERIES,
	CELLAR_STAT_COMMIT_CACHE_FOUND,
	CELLAR_STAT_SIMULATED_ELIGIBLE_BYTES,
	CELLAR_STAT_SIMULATED_RETURNED_BYTES,
	CELLAR_STAT_INDEX_SCANS,
	CELLAR_STAT_READ_REQUESTS_OPTIMIZED,
	CELLAR_STAT_FLASH_READ_HITS,
	CELLAR_STAT_FLASH_READ_HITS_SMART_IO,
	CELLAR_STATS
} CellarStatistic;

typedef enum CellarWaitEvent
{
	CELLAR_WAIT_SMART_TABLE_SCAN,
	CELLAR_WAIT_OBJECT_CHECKPOINT,
	CELLAR_WAIT_SINGLE_BLOCK_READ,
	CELLAR_WAIT_SMART_INDEX_SCAN,
	CELLAR_WAITS
} CellarWaitEvent;

/* Bucket i of a histogram counts waits of less than 2^i microseconds. */
#define CELLAR_HISTOGRAM_BUCKETS	32

typedef struct CellarEventCounts
{
	uint64		waits;
	uint64		time_us;
	uint64		max_us;
	uint64		histogram[CELLAR_HISTOGRAM_BUCKETS];	/* system only */
} CellarEventCounts;

typedef struct CellarCounts
{
	uint64		stats[CELLAR_STATS];
	CellarEventCounts events[CELLAR_WAITS];
} CellarCounts;

typedef struct CellarSmartScanBytes
{
	uint64		eligible_bytes;
	uint64		saved_bytes;
	uint64		returned_bytes;
	uint64		optimized_bytes;
} CellarSmartScanBytes;

/* This session has counted something. */
extern bool cellar_session_attached;

extern const char *const cellar_statistic_names[CELLAR_STATS];
extern const char *const cellar_wait_names[CELLAR_WAITS];

extern void cellar_request_statistics(void);
extern void cellar_init_statistics(void);
extern uint64 cellar_incarnation(void);
extern TimestampTz cellar_incarnation_start(void);
extern void cellar_count(CellarStatistic statistic, uint64 amount);
extern void cellar_read_smart_scan_bytes(CellarSmartScanBytes *bytes);
extern void cellar_count_session(CellarStatistic statistic, uint64 amount);
extern uint64 cellar_count_wait(CellarWaitEvent event, instr_time started);
extern void cellar_count_scan(const CellarScanStats *stats);
extern void cellar_attach_session(void);
extern void cellar_read_system_counts(CellarCounts *counts);
extern int	cellar_session_slots(void);
extern int	cellar_read_session_counts(int slot, CellarCounts *counts);

/* Returns Smart Scan bytes of this session, including its parallel workers. */
static inline CellarSmartScanBytes
cellar_session_smart_scan_bytes(void)
{
	CellarSmartScanBytes bytes = {0};

	if (cellar_session_attached)
		cellar_read_smart_scan_bytes(&bytes);
	return bytes;
}

#pragma GCC visibility pop

#endif							/* CELLAR_STATISTICS_H */
