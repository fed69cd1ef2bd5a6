/*-------------------------------------------------------------------------
 *
 * statement_clock.c
 *	  Elapsed time, CPU time and run-queue time of the phases of statements.
 *
 * The end of one phase is the begin of the next, so that one moment is read from
 * the clock once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"

#include "cellar/compat.h"
#include "cellar/statement_clock.h"

/*
 * The CPU time of every execution is read while a statement's mean is at least
 * this long, and during its first executions; else that of one in CPU_READ_EVERY.
 * The run-queue time is read of every execution while the mean CPU time is at least
 * RUN_QUEUE_READ_ALWAYS_NS; else of one in RUN_QUEUE_READ_EVERY of those whose CPU
 * time is always read, and of all others whose CPU time is read.
 */
#define CPU_READ_ALWAYS_NS	250000
#define CPU_READ_FIRST		16
#define CPU_READ_EVERY		32
#define RUN_QUEUE_READ_ALWAYS_NS	1000000
#define RUN_QUEUE_READ_EVERY	4

CellarPhaseTimes cellar_phase_times;
CellarPhaseEnd cellar_phase_end;

/* ---- CPU time and run-queue time ---- */

static uint64
read_cpu(void)
{
	struct timespec cpu;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0)
		return 0;
	return (uint64) cpu.tv_sec * UINT64CONST(1000000000) + cpu.tv_nsec;
}

/* The second number of /proc/self/schedstat. */
static uint64
read_run_queue(void)
{
	static int	file = -1;
	static bool opened = false;
	char		line[80];
	const char *digit;
	ssize_t		length;
	uint64		time_ns = 0;

	if (!opened)
	{
		opened = true;
		file = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
		if (file >= 0)
			ReserveExternalFD();
	}
	if (file < 0)
		return 0;
	length = pread(file, line, sizeof(line) - 1, 0);
	line[Max(length, 0)] = '\0';
	digit = strchr(line, ' ');
	if (digit == NULL)
		return 0;
	for (digit++; *digit >= '0' && *digit <= '9'; digit++)
		time_ns = time_ns * 10 + (*digit - '0');
	return time_ns;
}

/* Returns the times of this process; those that are not to be read, or that the system does not provide, are 0. */
CellarKernelTimes
cellar_read_kernel_times(CellarKernelReading reading)
{
	CellarKernelTimes times = {0};

	if (reading >= CELLAR_READ_CPU)
		times.cpu_ns = read_cpu();
	if (reading == CELLAR_READ_CPU_AND_RUN_QUEUE)
		times.run_queue_ns = read_run_queue();
	return times;
}

/* A random number below "limit". */
static uint32
draw(uint32 limit)
{
	static uint32 random = 1;

	random = random * 1664525 + 1013904223;
	return (random >> 16) % limit;
}

/*
 * Returns which times of the next execution of a statement are to be read.
 *
 * A reading is a system call, which would cost a short statement more than all
 * other statistics; that of the run-queue time reads a file.  The executions to be
 * read are chosen at random, so that the sums are right on average whatever the
 * order of the statements is.
 */
CellarKernelReading
cellar_choose_kernel_reading(const CellarStatement *entry)
{
	if (entry->cpu_readings < CPU_READ_FIRST || entry->mean_cpu_ns >= RUN_QUEUE_READ_ALWAYS_NS)
		return CELLAR_READ_CPU_AND_RUN_QUEUE;
	if (entry->mean_cpu_ns >= CPU_READ_ALWAYS_NS)
		return draw(RUN_QUEUE_READ_EVERY) == 0 ? CELLAR_READ_CPU_AND_RUN_QUEUE : CELLAR_READ_CPU;
	return draw(CPU_READ_EVERY) == 0 ? CELLAR_READ_CPU_AND_RUN_QUEUE : CELLAR_READ_NOTHING;
}

/*
 * Adds a reading to the mean of the last ones.  The weight of a reading decreases
 * with each later one, so that the costs of a session's first executions are
 * forgotten.
 */
static uint64
with_reading(uint64 mean_ns, uint64 used_ns, bool is_first)
{
	return is_first ? used_ns : (mean_ns * 7 + used_ns) / 8;
}

/*
 * Notes the times of an execution, which are counted already as far as they were
 * read.  Those that were not read count with the mean of the statement.
 */
void
cellar_learn_kernel_times(CellarStatement *entry, CellarKernelReading reading, CellarKernelTimes used)
{
	bool		is_first = entry->cpu_readings == 0;

	if (reading == CELLAR_READ_NOTHING)
	{
		entry->cpu_ns += entry->mean_cpu_ns;
		entry->run_queue_ns += entry->mean_run_queue_ns;
		return;
	}
	entry->mean_cpu_ns = with_reading(entry->mean_cpu_ns, used.cpu_ns, is_first);
	if (reading == CELLAR_READ_CPU_AND_RUN_QUEUE)
		entry->mean_run_queue_ns = with_reading(entry->mean_run_queue_ns, used.run_queue_ns, is_first);
	else
		entry->run_queue_ns += entry->mean_run_queue_ns;
	if (entry->cpu_readings < CPU_READ_FIRST)
		entry->cpu_readings++;
}
