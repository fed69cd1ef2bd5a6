/*-------------------------------------------------------------------------
 *
 * statement_part.c
 *	  What a part of an execution takes: elapsed time, CPU time, run-queue time, and
 *	  what the process used meanwhile, as differences of PostgreSQL's counters.
 *
 * The calls of ExecutorStart, ExecutorRun and ExecutorFinish of an execution are one
 * part if they follow each other directly.  Otherwise each call is one, because the
 * process can do other work in between.  A utility statement is one part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/bufmgr.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statement_part.h"

/* Adds what this process has used since an earlier reading.  Most executions use few of the resources. */
static void
add_usage(CellarStatement *entry, const CellarUsage *before)
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
		counters[CELLAR_STATEMENT_OPTIMIZED_BYTES] += bytes.optimized_bytes - before->bytes.optimized_bytes;
	}
}

void
cellar_begin_part(CellarPart *part, CellarPhase previous, CellarKernelReading reading)
{
	cellar_begin_phase(previous, &part->began);
	part->reading = reading;
	if (reading != CELLAR_READ_NOTHING)
		part->started = cellar_read_kernel_times(reading);
}

/* What the process uses from now on counts. */
void
cellar_begin_usage(CellarPart *part)
{
	part->before.buffers = pgBufferUsage;
	part->before.wal = pgWalUsage;
	part->before.bytes = cellar_session_smart_scan_bytes();
}

/*
 * Adds the time since cellar_begin_part and, if counts_usage, what the process has
 * used since cellar_begin_usage.
 */
void
cellar_end_part(CellarPart *part, CellarStatement *statement, bool counts_usage)
{
	memset(&part->used, 0, sizeof(part->used));
	if (part->reading != CELLAR_READ_NOTHING)
	{
		CellarKernelTimes times = cellar_read_kernel_times(part->reading);

		part->used.cpu_ns = times.cpu_ns - part->started.cpu_ns;
		if (part->reading == CELLAR_READ_CPU_AND_RUN_QUEUE)
			part->used.run_queue_ns = times.run_queue_ns - part->started.run_queue_ns;
		statement->cpu_ns += part->used.cpu_ns;
		statement->run_queue_ns += part->used.run_queue_ns;
	}
	INSTR_TIME_SET_CURRENT(part->ended);
	part->elapsed_ns = cellar_nanoseconds_between(part->began, part->ended);
	statement->elapsed_ns += part->elapsed_ns;
	cellar_phase_times.execute_ns += part->elapsed_ns;
	statement->changed = true;
	if (counts_usage)
		add_usage(statement, &part->before);
}

/*
 * Counts one execution, and adds this process's table to the shared one if that is
 * due.
 */
void
cellar_count_execution(CellarStatement *entry, uint64 elapsed_ns, CellarKernelReading reading, CellarKernelTimes used,
					   instr_time ended)
{
	cellar_learn_kernel_times(entry, reading, used);
	entry->counters[CELLAR_STATEMENT_CALLS]++;
	entry->changed = true;
	entry->max_us = Max(entry->max_us, elapsed_ns / 1000);
	if ((int64) (CellarTimeNs(ended) - cellar_last_statements_flush_ns) >= (int64) CELLAR_FLUSH_INTERVAL_NS)
	{
		cellar_flush_statements();
		cellar_flush_command_times();
	}
}
