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
 * The CPU time of every execution is read while a statement's mean is at least
 * this long, and during its first executions; else that of one in CPU_READ_EVERY.
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

/*
 * Fills in when the last phase of a statement of this message ended.  Returns false
 * if anything can have happened since.
 */
bool
cellar_last_phase_end(instr_time *time)
{
	*time = phase_end.time;
	return phase_end.phase != CELLAR_PHASE_OTHER && phase_end.message == GetCurrentStatementStartTimestamp();
}

uint64
cellar_nanoseconds_between(instr_time from, instr_time to)
{
	INSTR_TIME_SUBTRACT(to, from);
	return CellarTimeNs(to);
}

/* Declares that anything can happen before the next phase. */
void
cellar_forget_phase(void)
{
	phase_end.phase = CELLAR_PHASE_OTHER;
}

/* ---- CPU time ---- */

/* Returns the CPU time of this process in nanoseconds; 0 if the system does not provide it. */
uint64
cellar_read_cpu(void)
{
	struct timespec cpu;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0)
		return 0;
	return (uint64) cpu.tv_sec * UINT64CONST(1000000000) + cpu.tv_nsec;
}

/*
 * Returns whether the CPU time of the next execution of a statement is to be read.
 *
 * A reading is a system call, which would cost a short statement more than all
 * other statistics.  The executions to be read are chosen at random, so that the
 * sums are right on average whatever the order of the statements is.
 */
bool
cellar_must_read_cpu(const CellarStatement *entry)
{
	static uint32 random = 1;

	if (entry->cpu_readings < CPU_READ_FIRST || entry->mean_cpu_ns >= CPU_READ_ALWAYS_NS)
		return true;
	random = random * 1664525 + 1013904223;
	return (random >> 16) % CPU_READ_EVERY == 0;
}

/* Notes the CPU time of an execution that was read. */
void
cellar_learn_cpu(CellarStatement *entry, uint64 used_ns)
{
	if (entry->cpu_readings < CPU_READ_FIRST)
		entry->cpu_readings++;

	/*
	 * The weight of a reading decreases with each later one, so that the
	 * costs of a session's first executions are forgotten.
	 */
	entry->mean_cpu_ns = entry->cpu_readings == 1 ? used_ns : (entry->mean_cpu_ns * 7 + used_ns) / 8;
}
