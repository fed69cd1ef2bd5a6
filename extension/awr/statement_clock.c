/*-------------------------------------------------------------------------
 *
 * statement_clock.c
 *	  Elapsed time and CPU time of the phases of statements.
 *
 * The end of one phase is the begin of the next, so that one moment is read from
 * the clock once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/xact.h"
#include "miscadmin.h"

#include "cellar/compat.h"
#include "cellar/statement_clock.h"

/*
 * The CPU time of every run is read while a statement's mean is at least this
 * long, and during its first runs; else that of one run in CPU_READ_EVERY.
 */
#define CPU_READ_ALWAYS_NS	250000
#define CPU_READ_FIRST		16
#define CPU_READ_EVERY		32

/* The last phase of a client's statement that ended. */
typedef struct PhaseEnd
{
	CellarPhase phase;			/* CELLAR_PHASE_OTHER: anything can have
								 * happened since */
	TimestampTz message;		/* GetCurrentStatementStartTimestamp() */
	instr_time	time;
} PhaseEnd;

static PhaseEnd phase_end;

/* ---- elapsed time ---- */

/*
 * Declares that a phase of a top-level statement ended.  A background process can
 * wait between any two phases of a message.
 */
void
cellar_end_phase(CellarPhase phase, instr_time time)
{
	phase_end.phase = MyBackendType == B_BACKEND ? phase : CELLAR_PHASE_OTHER;
	phase_end.message = GetCurrentStatementStartTimestamp();
	phase_end.time = time;
}

/* Returns the time at which a phase begins: the end of the previous phase if that belongs to the same message. */
instr_time
cellar_begin_phase(CellarPhase previous)
{
	if (previous == CELLAR_PHASE_OTHER || phase_end.phase != previous || phase_end.message != GetCurrentStatementStartTimestamp())
		INSTR_TIME_SET_CURRENT(phase_end.time);
	phase_end.phase = CELLAR_PHASE_OTHER;
	return phase_end.time;
}

uint64
cellar_nanoseconds_between(instr_time from, instr_time to)
{
	INSTR_TIME_SUBTRACT(to, from);
	return CellarTimeNs(to);
}

uint64
cellar_nanoseconds_since(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return cellar_nanoseconds_between(start, now);
}

/* Declares that anything can happen before the next phase. */
void
cellar_forget_phase(void)
{
	phase_end.phase = CELLAR_PHASE_OTHER;
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
uint64
cellar_start_cpu(const CellarStatement *entry)
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
void
cellar_end_cpu(CellarStatement *entry, uint64 started_cpu_ns)
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
