/*-------------------------------------------------------------------------
 *
 * cellar/awr.h
 *	  The Automatic Workload Repository: session samples, CPU times,
 *	  statistics of statements, the AWR worker.
 *
 * cellar--1.0--1.1.sql defines the repository.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_AWR_H
#define CELLAR_AWR_H

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "nodes/plannodes.h"
#include "pgstat.h"
#include "storage/lwlock.h"
#include "utils/backend_status.h"
#include "utils/guc.h"

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

/* settings.c */
extern char *cellar_awr_database;
extern int	cellar_awr_snapshot_interval;	/* minutes, 0 for none */
extern int	cellar_awr_retention;	/* days */
extern int	cellar_awr_sample_period;	/* milliseconds, 0 for none */
extern int	cellar_awr_sample_buffer;	/* kB */

extern bool cellar_awr_track_statements;
extern int	cellar_awr_max_statements;
extern int	cellar_awr_text_buffer; /* kB */

/* Sessions add their statistics to shared memory when this time has passed since the last time. */
#define CELLAR_FLUSH_INTERVAL_NS	UINT64CONST(1000000000)

/* plan_id.c */
extern int64 cellar_plan_id(const PlannedStmt *statement);
extern int64 cellar_kept_plan_id(const PlannedStmt *statement);

/* current_plan.c */
struct CellarStatementKey;
extern Size cellar_current_plans_bytes(void);
extern void cellar_current_plans_init(void);
extern void cellar_set_current_plan(const struct CellarStatementKey *key);
extern void cellar_clear_current_plan(void);
extern bool cellar_read_current_plan(int slot, int pid, struct CellarStatementKey *key);

/* consumer_group.c */
extern char *cellar_consumer_group;
extern char *cellar_consumer_group_mappings;
extern Size cellar_consumer_groups_bytes(void);
extern void cellar_consumer_groups_init(void);
extern void cellar_read_consumer_group(int slot, int pid, const char *application, char *group);
extern void cellar_own_consumer_group(char *group);
extern uint16 cellar_consumer_group_number(const char *group);
extern const char *cellar_consumer_group_name(uint16 number);
extern bool cellar_check_consumer_group(char **value, void **extra, GucSource source);
extern void cellar_assign_consumer_group(const char *value, void *extra);
extern bool cellar_check_consumer_group_mappings(char **value, void **extra, GucSource source);
extern void cellar_assign_consumer_group_mappings(const char *value, void *extra);

/* statement_table.c */
extern Size cellar_statements_bytes(void);
extern void cellar_statements_init(LWLock *lock);

/* statements.c */
extern void cellar_install_statements(void);
extern void cellar_install_utility_statements(void);
extern void cellar_forget_statement(void);

/* Statements that this process plans or executes, one in the other.  Functions may parse others. */
extern int	cellar_nesting_level;

/* texts.c */
extern Size cellar_texts_bytes(void);
extern void cellar_texts_init(LWLock *lock);
extern void cellar_add_text(int64 query_id, int64 plan_id, const char *source, int location, int length, const char *plan);
extern void cellar_append_converted(StringInfo out, const char *text, int length, int from, int to, const char *escape);

/* samples.c */

#define CELLAR_CLIENT_ADDRESS_BYTES	48

/* PostgreSQL's process type of parallel workers is that of all background workers. */
#define CELLAR_PARALLEL_WORKER	"parallel worker"

/* One session at one tick of the sampler. */
typedef struct CellarSample
{
	TimestampTz time;
	TimestampTz backend_start;
	TimestampTz xact_start;		/* 0 outside of a transaction */
	TimestampTz query_start;
	int64		query_id;		/* 0 if unknown */
	int64		plan_hash;		/* of the top-level statement; 0 if no plan is
								 * executed */
	int64		temp_bytes;		/* of temporary files; -1 if unknown */
	int32		pid;
	int32		leader_pid;		/* 0 unless a parallel worker */
	int32		blocker_pid;	/* 0 unless the session waits for a lock */
	Oid			database;
	Oid			role;
	uint32		wait_event;		/* 0 on CPU */
	BackendType backend_type;
	uint16		state;			/* a BackendState */
	uint16		consumer_group; /* 0 for processes of the server; see
								 * cellar_consumer_group_name */
	char		application[NAMEDATALEN];
	char		client[CELLAR_CLIENT_ADDRESS_BYTES];
} CellarSample;

extern Size cellar_samples_bytes(void);
extern void cellar_samples_init(LWLock *lock);
extern void cellar_add_sample(const CellarSample *sample);
extern void cellar_end_tick(bool late);
extern bool cellar_find_sampled_groups(bool *used);

/* cpu_times.c */

/* Cumulative CPU time and run-queue time of a process, in nanoseconds. */
typedef struct CellarCpuTime
{
	uint64		cpu_ns;
	uint64		run_queue_ns;
} CellarCpuTime;

/* The sampler counts the time of a command in progress when the command has taken this long. */
#define CELLAR_OPEN_US	USECS_PER_SEC

/* Times of the phases of sessions' statements. */
typedef struct CellarCommandTimes
{
	uint64		parses;
	uint64		parse_us;
	uint64		commits;
	uint64		commit_us;
	uint64		plan_us;
	uint64		execute_us;
	uint64		active_us;
} CellarCommandTimes;

extern Size cellar_cpu_bytes(void);
extern void cellar_cpu_init(LWLock *lock);
extern bool cellar_counts_cpu_at_exit;
extern void cellar_count_cpu_at_exit(void);
extern bool cellar_update_cpu(int slot, int pid, Oid database, const char *type, const char *application,
							  TimestampTz started, TimestampTz at, int64 open_us);

extern void cellar_add_command_times(const CellarCommandTimes *commands, bool contains_open);

/* command_times.c */
extern void cellar_flush_command_times(void);
extern PgStat_Counter cellar_last_active_us;
extern void cellar_count_active_time(void);

/* Called when a command begins, for the DB time of the previous commands. */
static inline void
cellar_note_command(void)
{
	if (pgStatActiveTime != cellar_last_active_us)
		cellar_count_active_time();
}
extern void cellar_install_command_times(void);

/* worker_times.c */
extern void cellar_count_for_leader(void);

/* relations.c */
extern Size cellar_relations_bytes(void);
extern void cellar_relations_init(LWLock *lock);
extern void cellar_sample_row_locks(bool waiting, int64 period_us);
extern void cellar_count_relation_scan(Oid relation, uint64 eligible_bytes, uint64 saved_bytes, uint64 returned_bytes);

/* temp_files.c */
extern void cellar_read_temp_files(void);
extern int64 cellar_temp_bytes(int pid);

/* packed_rows.c */

typedef struct CellarRowPacker CellarRowPacker;

extern CellarRowPacker *cellar_begin_packing(const char *kind, HeapTupleHeader first);
extern void cellar_pack_row(CellarRowPacker *packer, HeapTupleHeader row);
extern Datum cellar_end_packing(CellarRowPacker *packer);

/* sampler.c */
extern TimestampTz cellar_sample_sessions(TimestampTz now);
extern void cellar_request_awr(void);
extern void cellar_init_awr(void);
extern void cellar_install_awr(void);

/* snapshot_worker.c */
extern TimestampTz cellar_next_awr_work(TimestampTz now);

#pragma GCC visibility pop

#endif							/* CELLAR_AWR_H */
