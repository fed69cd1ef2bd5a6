/*-------------------------------------------------------------------------
 *
 * cpu_times.c
 *	  CPU time and run-queue time of all processes, active time of sessions and
 *	  parallel workers, and times of the phases of sessions' statements, per database,
 *	  process type and application.
 *
 * The kernel counts both times for each process in /proc/PID/schedstat.  The
 * sampler reads them at each tick, and adds the increase since the last reading
 * to the totals of the process's database, type and application name.  A process
 * that executes statements adds its last part when it exits, so that short
 * sessions and parallel workers are counted.  Transactions therefore spend no
 * time on this accounting.  On other systems than Linux there are no such times,
 * and their totals stay zero.  Sessions time the phases of their statements
 * themselves (command_times.c).
 *
 * pg_stat_database.active_time contains no parallel workers.  A parallel worker
 * runs only while its leader executes a statement, so the elapsed time of a
 * worker is the time since the worker's start.  PostgreSQL records the start by the
 * system's clock, which can be set meanwhile; the kernel records the start by a clock
 * that no one sets, in ticks of usually 10 ms.  The former is believed as far as the
 * latter agrees.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "access/parallel.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_get_cpu);

#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME	CLOCK_MONOTONIC
#endif

/* Combinations of database, type and application. */
#define TOTALS		288
#define OTHER_TOTALS	32

/* Columns of awr.get_cpu() */
#define COLUMNS			12

typedef struct CpuTotal
{
	Oid			database;
	char		type[NAMEDATALEN];	/* empty if the entry is not in use */
	char		application[NAMEDATALEN];
	CellarCpuTime time;
	uint64		elapsed_us;		/* active time of sessions, lifetime of
								 * parallel workers; 0 for other types */
	CellarCommandTimes commands;
} CpuTotal;

/* The last reading of the process that uses a PGPROC. */
typedef struct CpuReading
{
	int32		pid;
	CellarCpuTime time;
	int64		at_us;			/* monotonic_us() */
	uint64		open_us;		/* of the session's command in progress, or
								 * its last one, in the totals */
} CpuReading;

typedef struct CpuTimes
{
	CpuTotal	totals[TOTALS];
	CpuReading	readings[FLEXIBLE_ARRAY_MEMBER];	/* by process number */
} CpuTimes;

bool		cellar_counts_cpu_at_exit = false;

static CpuTimes *times = NULL;
static LWLock *times_lock = NULL;

Size
cellar_cpu_bytes(void)
{
	return add_size(offsetof(CpuTimes, readings), mul_size(sizeof(CpuReading), cellar_session_slots()));
}

void
cellar_cpu_init(LWLock *lock)
{
	bool		found;

	times_lock = lock;
	times = ShmemInitStruct("cellar cpu times", cellar_cpu_bytes(), &found);
	if (!found)
		memset(times, 0, cellar_cpu_bytes());
}

/* Reads a process's times.  Returns false if the process has exited or the system does not provide them. */
static bool
read_times(int pid, CellarCpuTime *time)
{
	char		path[64];
	char		line[128];
	ssize_t		length;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (length <= 0)
		return false;
	line[length] = '\0';
	return sscanf(line, UINT64_FORMAT " " UINT64_FORMAT, &time->cpu_ns, &time->run_queue_ns) == 2;
}

/* Returns a time that no change of the system's clock affects, and that is the same in all processes. */
static int64
monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * Returns how long ago a process was started, in microseconds.  "estimate" is that
 * time by the system's clock.
 */
static int64
process_age_us(int pid, int64 estimate)
{
	char		path[64];
	char		line[1024];
	char	   *field;
	ssize_t		length;
	int			fd;
	struct timespec now;
	int64		tick_us = USECS_PER_SEC / sysconf(_SC_CLK_TCK);
	int64		oldest_us;
	uint64		started_ticks;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return Max(estimate, 0);
	length = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[Max(length, 0)] = '\0';

	/* The name of the process, in parentheses, can contain spaces.  Fields 3 to 21 are skipped. */
	field = strrchr(line, ')');
	for (int i = 3; field != NULL && i <= 22; i++)
		field = strchr(field + 1, ' ');
	if (field == NULL || sscanf(field, UINT64_FORMAT, &started_ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
		return Max(estimate, 0);
	oldest_us = (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000 - (int64) started_ticks * tick_us;
	return Max(Min(estimate, oldest_us), Max(oldest_us - tick_us, 0));
}

/* Returns the entry of the totals for a combination. The caller holds the lock. */
static CpuTotal *
find_total(Oid database, const char *type, const char *application)
{
	/* The last entries add up what does not fit, by type. */
	for (int i = 0; i < TOTALS; i++)
	{
		CpuTotal   *total = &times->totals[i];

		if (i == TOTALS - OTHER_TOTALS)
		{
			database = InvalidOid;
			application = "(other)";
		}

		if (total->type[0] == '\0')
		{
			total->database = database;
			strlcpy(total->type, type, NAMEDATALEN);
			strlcpy(total->application, application, NAMEDATALEN);
			return total;
		}
		if (total->database == database && strcmp(total->type, type) == 0 && strcmp(total->application, application) == 0)
			return total;
	}
	return &times->totals[TOTALS - 1];
}

/*
 * Adds what a process that was started at "started" has consumed since its last
 * reading.  "at" is the present time, and "open_us" the time since the begin of the
 * command that the process executes.  Returns whether the process consumed any CPU
 * time.
 */
bool
cellar_update_cpu(int slot, int pid, Oid database, const char *type, const char *application,
				  TimestampTz started, TimestampTz at, int64 open_us)
{
	CpuReading *reading = &times->readings[slot];
	CellarCpuTime now;
	int64		now_us = monotonic_us();
	int64		age_us = 0;
	bool		is_worker = strcmp(type, CELLAR_PARALLEL_WORKER) == 0;
	bool		consumed = false;

	if (!read_times(pid, &now))
		return false;
	if (is_worker && reading->pid != pid)
		age_us = process_age_us(pid, at - started);
	LWLockAcquire(times_lock, LW_EXCLUSIVE);

	/*
	 * A different process id means that the previous process has exited: this
	 * one started from zero.
	 */
	if (reading->pid != pid)
	{
		reading->pid = pid;
		reading->time = (CellarCpuTime)
		{
			0, 0
		};
		reading->at_us = now_us - age_us;
		reading->open_us = 0;
	}
	if (now_us > reading->at_us)
	{
		if (is_worker)
			find_total(database, type, application)->elapsed_us += (uint64) (now_us - reading->at_us);
		reading->at_us = now_us;
	}
	if (open_us >= CELLAR_OPEN_US && (uint64) open_us > reading->open_us)
	{
		find_total(database, type, application)->elapsed_us += (uint64) open_us - reading->open_us;
		reading->open_us = open_us;
	}
	if (now.cpu_ns > reading->time.cpu_ns || now.run_queue_ns > reading->time.run_queue_ns)
	{
		CpuTotal   *total = find_total(database, type, application);

		total->time.cpu_ns += now.cpu_ns - Min(reading->time.cpu_ns, now.cpu_ns);
		total->time.run_queue_ns += now.run_queue_ns - Min(reading->time.run_queue_ns, now.run_queue_ns);
		consumed = now.cpu_ns > reading->time.cpu_ns;
		reading->time = now;
	}
	LWLockRelease(times_lock);
	return consumed;
}

static const char *
process_type(void)
{
	return IsParallelWorker() ? CELLAR_PARALLEL_WORKER : GetBackendTypeDesc(MyBackendType);
}

static const char *
process_application(void)
{
	return application_name != NULL ? application_name : "";
}

/*
 * Adds times of this session to the totals.  If contains_open, the active time
 * contains that of the last command, of which the sampler may have counted a part.
 */
void
cellar_add_command_times(const CellarCommandTimes *commands, bool contains_open)
{
	CpuTotal   *total;
	CpuReading *reading;
	uint64		counted_us = 0;

	if (times == NULL)
		return;
	LWLockAcquire(times_lock, LW_EXCLUSIVE);
	total = find_total(MyDatabaseId, process_type(), process_application());
	total->commands.parses += commands->parses;
	total->commands.parse_us += commands->parse_us;
	total->commands.commits += commands->commits;
	total->commands.commit_us += commands->commit_us;
	total->commands.plan_us += commands->plan_us;
	total->commands.execute_us += commands->execute_us;
	reading = &times->readings[CellarProcNumber(MyProc)];
	if (contains_open && reading->pid == MyProcPid)
	{
		counted_us = Min(reading->open_us, commands->active_us);
		reading->open_us = 0;
	}
	total->elapsed_us += commands->active_us - counted_us;
	LWLockRelease(times_lock);
}

static void
add_rest(int code, Datum arg)
{
	cellar_update_cpu(CellarProcNumber(MyProc), MyProcPid, MyDatabaseId, process_type(), process_application(),
					  MyStartTimestamp, GetCurrentTimestamp(), 0);
	cellar_note_command();
	cellar_flush_command_times();
}

/* Registers, once, the callback that counts the rest of this process's times. */
void
cellar_count_cpu_at_exit(void)
{
	if (!cellar_counts_cpu_at_exit)
	{
		cellar_counts_cpu_at_exit = true;
		before_shmem_exit(add_rest, (Datum) 0);
	}
}

/* awr.get_cpu() */
Datum
cellar_get_cpu(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	cellar_begin_rows(fcinfo, COLUMNS);
	cellar_flush_command_times();
	for (int i = 0; times != NULL && i < TOTALS; i++)
	{
		CpuTotal	total;
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS] = {false};

		LWLockAcquire(times_lock, LW_SHARED);
		total = times->totals[i];
		LWLockRelease(times_lock);
		if (total.type[0] == '\0')
			continue;
		values[0] = ObjectIdGetDatum(total.database);
		values[1] = CStringGetTextDatum(total.type);
		values[2] = CStringGetTextDatum(total.application);
		values[3] = Int64GetDatum((int64) (total.time.cpu_ns / 1000));
		values[4] = Int64GetDatum((int64) (total.time.run_queue_ns / 1000));
		values[5] = Int64GetDatum((int64) total.commands.parses);
		values[6] = Int64GetDatum((int64) total.commands.parse_us);
		values[7] = Int64GetDatum((int64) total.commands.commits);
		values[8] = Int64GetDatum((int64) total.commands.commit_us);
		values[9] = Int64GetDatum((int64) total.commands.plan_us);
		values[10] = Int64GetDatum((int64) total.commands.execute_us);
		values[11] = Int64GetDatum((int64) total.elapsed_us);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
