/*-------------------------------------------------------------------------
 *
 * cellar/statement_clock.h
 *	  Elapsed time, CPU time and run-queue time of the phases of statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATEMENT_CLOCK_H
#define CELLAR_STATEMENT_CLOCK_H

#include "access/xact.h"
#include "miscadmin.h"
#include "portability/instr_time.h"

#include "cellar/compat.h"
#include "cellar/statement_table.h"

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

typedef enum CellarPhase
{
	CELLAR_PHASE_OTHER,
	CELLAR_PHASE_PARSING,
	CELLAR_PHASE_PLANNING,
	CELLAR_PHASE_EXECUTING
} CellarPhase;

/* Times of top-level statements of this session that are not in the totals of command_times.c yet. */
typedef struct CellarPhaseTimes
{
	uint64		plan_ns;
	uint64		execute_ns;
} CellarPhaseTimes;

extern CellarPhaseTimes cellar_phase_times;

/* The last phase of a client's statement that ended. */
typedef struct CellarPhaseEnd
{
	CellarPhase phase;			/* CELLAR_PHASE_OTHER: anything can have
								 * happened since */
	TimestampTz message;		/* GetCurrentStatementStartTimestamp() */
	instr_time	time;
} CellarPhaseEnd;

extern CellarPhaseEnd cellar_phase_end;

/* ---- elapsed time ---- */

/*
 * Declares that a phase of a top-level statement ended in the message in which it
 * began.  A background process can wait between any two phases of a message.
 */
static inline void
cellar_end_phase(CellarPhase phase, instr_time time)
{
	cellar_phase_end.phase = MyBackendType == B_BACKEND ? phase : CELLAR_PHASE_OTHER;
	cellar_phase_end.time = time;
}

/*
 * Fills in the time at which a phase begins: the end of the previous phase if that
 * belongs to the same message.
 */
static inline void
cellar_begin_phase(CellarPhase previous, instr_time *time)
{
	TimestampTz message = GetCurrentStatementStartTimestamp();

	if (previous == CELLAR_PHASE_OTHER || cellar_phase_end.phase != previous || cellar_phase_end.message != message)
	{
		INSTR_TIME_SET_CURRENT(cellar_phase_end.time);
		cellar_phase_end.message = message;
	}
	cellar_phase_end.phase = CELLAR_PHASE_OTHER;
	*time = cellar_phase_end.time;
}

/* Declares that anything can happen before the next phase. */
static inline void
cellar_forget_phase(void)
{
	cellar_phase_end.phase = CELLAR_PHASE_OTHER;
}

static inline uint64
cellar_nanoseconds_between(instr_time from, instr_time to)
{
	return CellarTimeNs(to) - CellarTimeNs(from);
}

/* ---- CPU time and run-queue time ---- */

/* What the kernel counts of a process, or of one execution. */
typedef struct CellarKernelTimes
{
	uint64		cpu_ns;
	uint64		run_queue_ns;	/* ready to run, but waiting for a CPU */
} CellarKernelTimes;

/* Which of them are read for an execution */
typedef enum CellarKernelReading
{
	CELLAR_READ_NOTHING,
	CELLAR_READ_CPU,
	CELLAR_READ_CPU_AND_RUN_QUEUE
} CellarKernelReading;

extern CellarKernelTimes cellar_read_kernel_times(CellarKernelReading reading);
extern CellarKernelReading cellar_choose_kernel_reading(const CellarStatement *entry);
extern void cellar_learn_kernel_times(CellarStatement *entry, CellarKernelReading reading, CellarKernelTimes used);

#pragma GCC visibility pop

#endif							/* CELLAR_STATEMENT_CLOCK_H */
