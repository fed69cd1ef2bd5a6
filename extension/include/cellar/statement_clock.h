/*-------------------------------------------------------------------------
 *
 * cellar/statement_clock.h
 *	  Elapsed time, CPU time and run-queue time of the phases of statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATEMENT_CLOCK_H
#define CELLAR_STATEMENT_CLOCK_H

#include "portability/instr_time.h"

#include "cellar/statement_table.h"

typedef enum CellarPhase
{
	CELLAR_PHASE_OTHER,
	CELLAR_PHASE_PARSING,
	CELLAR_PHASE_PLANNING,
	CELLAR_PHASE_STARTING,
	CELLAR_PHASE_EXECUTING
} CellarPhase;

/* Times of top-level statements of this session that are not in the totals of command_times.c yet. */
typedef struct CellarPhaseTimes
{
	uint64		plan_ns;
	uint64		execute_ns;
} CellarPhaseTimes;

extern CellarPhaseTimes cellar_phase_times;

extern void cellar_end_phase(CellarPhase phase, instr_time time);
extern bool cellar_begin_phase(CellarPhase previous, instr_time *time);
extern bool cellar_last_phase_end(instr_time *time);
extern void cellar_forget_phase(void);
extern uint64 cellar_nanoseconds_between(instr_time from, instr_time to);
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

#endif							/* CELLAR_STATEMENT_CLOCK_H */
