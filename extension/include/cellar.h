/*-------------------------------------------------------------------------
 *
 * cellar.h
 *	  What the extension's files share.
 *
 * One file per stage of a query: path.c offers a Smart Scan to the planner,
 * plan.c splits the quals into storage predicate and filter, scan.c runs the
 * scan with the help of request.c, connection.c, transaction_states.c and
 * heap_block.c, explain.c shows it; aggregate_path.c and aggregate.c let the cell aggregate, top_n_path.c
 * lets it leave out what is not among the first rows of an order.
 * Facts about a scan travel in the path, the plan
 * and the plan state, never in globals; the globals are the settings, the
 * session's idle connections, its statistics slot and its notes on what
 * was not offloaded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_H
#define CELLAR_H

#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/tupmacs.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "cellar_client.h"

#define CELLAR_SCAN_NAME	"Smart Scan"
#define CELLAR_AGGREGATE_NAME	"Smart Scan Aggregate"

/* ---- settings.c ---- */

typedef enum CellarPlanDisplay
{
	CELLAR_DISPLAY_NEVER,
	CELLAR_DISPLAY_AUTO,
	CELLAR_DISPLAY_ALWAYS
} CellarPlanDisplay;

extern bool cellar_offload_processing;
extern int	cellar_plan_display;
extern bool cellar_simulate_offload;
extern int	cellar_min_scan_size;	/* blocks */
extern double cellar_cost_factor;
extern double cellar_cell_page_cost;
extern double cellar_returned_page_cost;
extern bool cellar_auto_compression;
extern int	cellar_compression_naptime;	/* seconds */

extern void cellar_define_settings(void);

/* ---- relation.c ---- */

/* Where a relation lies: the cell's socket, and the file's path below the mount. */
typedef struct CellarPlace
{
	char	   *socket_path;
	char	   *file;
} CellarPlace;

extern bool cellar_path_place(const char *path, CellarPlace *place);
extern bool cellar_relation_place(Relation rel, CellarPlace *place);
extern double cellar_stored_fraction(Relation rel);
extern void cellar_refresh_stored(Relation rel);
extern const char *cellar_relation_unsuitable(Relation rel);

/* ---- file_io.c ---- */

extern List *cellar_cluster_sockets(void);

/* ---- monitor.c ---- */

extern void cellar_register_monitor(void);

/* ---- path.c, plan.c ---- */

/* Directions of a sort key. */
#define CELLAR_DESCENDING	1
#define CELLAR_NULLS_FIRST	2

/*
 * The order of which only the first rows are wanted.  It travels in lists:
 * the keys in custom_exprs behind the storage predicate, the rest in
 * custom_private.
 */
typedef struct CellarTopN
{
	int			rows;
	List	   *keys;			/* expressions */
	List	   *less;			/* functions of the < operators */
	List	   *collations;
	List	   *directions;
} CellarTopN;

extern List *cellar_top_n_private(const CellarTopN *top);
extern bool cellar_plan_top_n(CustomScan *cscan, CellarTopN *top);
extern int	cellar_plan_threads(CustomScan *cscan);
extern List *cellar_storage_predicate(CustomScan *cscan);

extern void cellar_install_path_hooks(void);
extern Path *cellar_make_scan_path(PlannerInfo *root, RelOptInfo *rel, List *storage,
								   List *filter, double stored_fraction, const CellarTopN *top,
								   int threads, int parallel_workers);
extern int	cellar_scan_threads(RelOptInfo *rel);
extern bool cellar_restrictions_offloadable(RelOptInfo *rel, List **storage);
extern bool cellar_index_only_serves(RelOptInfo *rel, Cost total_cost, Cost row_cost);
extern void cellar_cost_aggregate(PlannerInfo *root, RelOptInfo *rel, Path *path,
								  List *storage, double stored_fraction, int threads,
								  Cost row_cost, double groups, double table_groups);
extern bool cellar_restriction_offloadable(RelOptInfo *rel, RestrictInfo *rinfo,
										   const char **reason);
extern const CustomScanMethods cellar_scan_methods;
extern const CustomPathMethods cellar_path_methods;

/* Members of CustomScan.custom_private. */
enum CellarPlanPrivate
{
	CELLAR_PLAN_QUAL_ORDER,		/* integers: 1 where the next qual, in order of
								 * evaluation, is a storage predicate, else 0 */
	CELLAR_PLAN_FILTER_REASONS, /* strings: why each qual of the filter stays */
	CELLAR_PLAN_TOP_N,			/* NIL, or lists: rows, then as in CellarTopN */
	CELLAR_PLAN_THREADS			/* an integer: how many of the cell share the scan */
};

/* ---- aggregate_path.c ---- */

extern void cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *grouped_rel, GroupPathExtraData *extra);
extern void cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *distinct_rel);
extern const CustomScanMethods cellar_aggregate_methods;

/* ---- top_n_path.c ---- */

extern void cellar_add_top_n_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
								   RelOptInfo *ordered_rel);

/* ---- offloadable.c ---- */

extern CellarCollation cellar_collation(Oid collation);
extern bool cellar_qual_offloadable(Node *clause, Index varno, const char **reason);
extern bool cellar_depends_on_row_walker(Node *node, void *context);
extern bool cellar_catchable(Node *node);

/* ---- expressions.c ---- */

typedef struct CellarQuals CellarQuals;

extern CellarQuals *cellar_quals_init(List *quals, Index varno, PlanState *parent);
extern CellarQuals *cellar_aggregation_init(List *keys, List *aggregates, PlanState *parent);
extern CellarQuals *cellar_sort_keys_init(const CellarTopN *top, PlanState *parent);
extern bool cellar_quals_send(CellarQuals *quals, ExprContext *econtext,
							  CellarRequest *request);

/* ---- counters.c ---- */

/* In the order of their names in counters.c. */
typedef enum CellarStatistic
{
	CELLAR_STAT_UNCOMPRESSED_BYTES,
	CELLAR_STAT_ELIGIBLE_BYTES,
	CELLAR_STAT_SAVED_BY_STORAGE_INDEX_BYTES,
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
	CELLAR_STATS
} CellarStatistic;

typedef enum CellarWaitEvent
{
	CELLAR_WAIT_SMART_TABLE_SCAN,
	CELLAR_WAIT_OBJECT_CHECKPOINT,
	CELLAR_WAIT_SINGLE_BLOCK_READ,
	CELLAR_WAITS
} CellarWaitEvent;

/* Bucket i of a histogram holds waits of less than 2^i microseconds. */
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

extern const char *const cellar_statistic_names[CELLAR_STATS];
extern const char *const cellar_wait_names[CELLAR_WAITS];

extern void cellar_install_statistics(void);
extern uint64 cellar_incarnation(void);
extern void cellar_count(CellarStatistic statistic, uint64 amount);
extern void cellar_count_session(CellarStatistic statistic, uint64 amount);
extern uint64 cellar_count_wait(CellarWaitEvent event, instr_time started);
extern void cellar_count_scan(const CellarScanStats *stats);
extern void cellar_attach_session(void);
extern void cellar_read_system_counts(CellarCounts *counts);
extern int	cellar_session_slots(void);
extern int	cellar_read_session_counts(int slot, CellarCounts *counts);

/* ---- connection.c ---- */

typedef struct CellarSession
{
	CellarConnection *connection;
	WaitEventSet *wait_set;
	int			socket_position;
	bool		wait_writable;
	bool		reused;			/* came from the session cache and has not
								 * been heard from since */
	char		socket_path[128];
} CellarSession;

/* A CellarError's code, for errcode(). */
#define CellarErrorCode(error) \
	MAKE_SQLSTATE((error).sqlstate[0], (error).sqlstate[1], (error).sqlstate[2], \
				  (error).sqlstate[3], (error).sqlstate[4])

extern CellarSession *cellar_session_open(const char *socket_path, CellarError *error);
extern void cellar_session_release(CellarSession *session);
extern void cellar_session_close(CellarSession *session);
extern void cellar_session_pause(CellarSession *session, CellarEvent event);
extern CellarEvent cellar_session_next(CellarSession *session);
extern CellarError cellar_session_error(CellarSession *session);
extern uint64 cellar_session_wait(CellarSession *session, CellarEvent event);

/* ---- protocol.c ---- */

/* A question to a cell about a relation that is not a scan. */
typedef struct CellarTalk
{
	CellarSession *session;
	CellarRequest *relation;
} CellarTalk;

extern void cellar_report_error(CellarError error);
extern void cellar_talk_begin(CellarTalk *talk, Relation rel, const CellarPlace *place);
extern void cellar_talk_until(const CellarTalk *talk, CellarEvent wanted,
							  void (*heard) (void *arg, const CellarTalk *talk), void *arg);
extern void cellar_talk_end(CellarTalk *talk);
extern void cellar_talk_abort(CellarTalk *talk);

/* ---- arguments.c, task.c, command_worker.c ---- */

#define CELLAR_TASKS	16

typedef enum CellarPhase
{
	CELLAR_PHASE_STARTING,
	CELLAR_PHASE_VACUUMING,
	CELLAR_PHASE_COMPRESSING,
	CELLAR_PHASE_DECOMPRESSING
} CellarPhase;

/* A command under way: where its session and its background worker meet. */
typedef struct CellarTask
{
	bool		used;
	bool		has_session;	/* either side, until it has left */
	bool		has_worker;
	bool		done;
	int			session;		/* the session's process */
	Oid			database;
	Oid			user;
	Oid			relation;
	int			level;			/* a CellarLevel */

	/* the worker's */
	int			pid;			/* 0 before it runs */
	Oid			current;		/* the table or partition under way */
	CellarPhase phase;
	uint64		blocks_total;
	CellarCompression progress;
	int			sqlstate;		/* 0 while nothing failed */
	char		message[512];
	char		detail[512];
	char		hint[256];
} CellarTask;

extern void cellar_install_compression(void);
extern void cellar_tasks_lock(bool exclusive);
extern void cellar_tasks_unlock(void);
extern CellarTask *cellar_task(int number);
extern void cellar_task_leave(CellarTask *task, bool worker);
extern int	cellar_claim_task(Oid relation, int level);
extern CellarTask *cellar_take_policy_task(Oid relation, int level);
extern const char *cellar_level_name(int level);
extern int	cellar_parse_level(const char *name);
extern void cellar_check_kind(Oid relation);
extern void cellar_check_compressible(Oid relation);
extern void cellar_check_readable(Oid relation);
extern void cellar_task_phase(CellarTask *task, CellarPhase phase, Oid current, uint64 blocks_total);
extern void cellar_vacuum(Oid relation, const char *options);
extern void cellar_compress_blocks(CellarTask *task, const CellarTalk *talk, BlockNumber first, BlockNumber end);
extern void cellar_require_place(Relation rel, CellarPlace *place);

/* ---- policy_launcher.c ---- */

extern void cellar_register_compression_launcher(void);

/* ---- object_checkpoint.c ---- */

extern void cellar_object_checkpoint(Relation rel);

/* ---- transaction_states.c ---- */

extern void cellar_transaction_states(const uint32 *xids, size_t count,
									  Snapshot snapshot, uint8 *states);

/* ---- heap_block.c ---- */

/* One heap block read through the buffer manager, and its visible tuples. */
typedef struct CellarHeapBlock
{
	Relation	rel;
	Snapshot	snapshot;
	BufferAccessStrategy strategy;
	Buffer		buffer;			/* pinned while its tuples are handed out */
	BlockNumber block;
	int			ntuples;
	int			next;
	HeapTupleData tuple;
	OffsetNumber visible[MaxHeapTuplesPerPage];
} CellarHeapBlock;

extern void cellar_heap_block_init(CellarHeapBlock *block, Relation rel, Snapshot snapshot);
extern void cellar_heap_block_read(CellarHeapBlock *block, BlockNumber number, char *copy);
extern bool cellar_heap_block_next(CellarHeapBlock *block, TupleTableSlot *slot);
extern void cellar_heap_block_release(CellarHeapBlock *block);

/* ---- scan.c ---- */

/* Where the rows come from. */
typedef enum CellarSource
{
	CELLAR_SOURCE_UNDECIDED,
	CELLAR_SOURCE_CELL,
	CELLAR_SOURCE_HEAP,			/* blocks read through the buffer manager */
	CELLAR_SOURCE_TABLE_SCAN	/* an ordinary scan, since a cursor went back */
} CellarSource;

/* Counts that EXPLAIN shows, of this process or of all parallel workers. */
#define CELLAR_SCAN_COUNTS	(sizeof(CellarScanStats) / sizeof(uint64) + 2)

typedef struct CellarScanCounts
{
	CellarScanStats scan;
	uint64		waits;
	uint64		wait_us;
} CellarScanCounts;

/* Blocks first to before end. */
typedef struct CellarRange
{
	BlockNumber first;
	BlockNumber end;
} CellarRange;

/* A process asks for this many ranges ahead, so that the cell never idles. */
#define CELLAR_RANGES_AHEAD	2

/* What the processes of a parallel scan share. */
typedef struct CellarParallelScan
{
	bool		from_cell;		/* the leader made the object checkpoint */
	BlockNumber nblocks;
	BlockNumber chunk_blocks;
	pg_atomic_uint64 next_block;
	pg_atomic_uint64 counts[CELLAR_SCAN_COUNTS];	/* of the workers */
} CellarParallelScan;

/* A projected column: where a batch's values go in the slot. */
typedef struct CellarTarget
{
	int16		attribute;		/* zero-based */
	int16		typlen;
	bool		byval;
} CellarTarget;

/* A column of the scan's output that is a projected column: its number in a batch. */
typedef struct CellarOutput
{
	int			column;
	int16		typlen;
	bool		byval;
} CellarOutput;

/* What a scan whose rows the cell aggregates needs to know of that; see aggregate.c. */
typedef struct CellarAggregateState
{
	CustomScanState css;
	CellarQuals *expressions;	/* group keys and aggregates */
	int			nkeys;
	int			naggregates;
	int		   *columns;		/* of a batch, for each column of the output */
	Tuplestorestate *groups;	/* that came from the cell; NULL for none yet */
	TupleTableSlot *group_slot;
	bool		rest_done;		/* all that Postgres aggregates was put out */
} CellarAggregateState;

typedef struct CellarScanState
{
	CustomScanState css;
	CellarAggregateState *aggregate;	/* whose input this is, or NULL */

	/* from the plan */
	List	   *storage_quals;
	CellarQuals *quals;
	CellarQuals *sort_keys;		/* of the wanted order; NULL when all rows are */
	int			top_rows;
	int			threads;		/* of the cell that share a range */
	ExprState  *all_quals;		/* storage predicate and filter, in order */
	ExprState  *filter_quals;
	int			ntargets;
	CellarTarget *targets;
	uint16	   *projection;
	bool		whole_rows;
	int			noutputs;		/* -1 when the output has to be computed */
	CellarOutput *outputs;

	/* the whole scan, and its rescans */
	bool		prepared;		/* the next three are known */
	CellarSource planned_source;
	const char *fallback;		/* why the rows do not come from the cell */
	BlockNumber nblocks;
	CellarPlace place;
	CellarParallelScan *shared;

	/* the scan under way */
	bool		started;
	bool		ended;
	CellarSource source;
	BlockNumber next_block;		/* first block not yet in a range; serial scans */
	CellarRange ranges[CELLAR_RANGES_AHEAD];	/* under way, oldest first */
	int			nranges;
	uint64		rows_emitted;

	/* from the cell */
	CellarSession *session;
	bool		heard;			/* the cell answered this scan */
	bool		passthru;		/* and passed a block through */
	const CellarBatch *batch;
	uint32		row;
	HeapTupleData row_tuple;

	/* from the heap */
	CellarHeapBlock heap;
	TableScanDesc table_scan;
	CellarSimulation *simulation;
	char	   *simulation_page;

	TupleTableSlot *row_slot;	/* batches: virtual, or heap tuples */
	TupleTableSlot *heap_slot;	/* tuples in a buffer */

	CellarScanCounts counts;
	CellarScanCounts worker_counts;

	MemoryContextCallback cleanup;
} CellarScanState;

extern Node *cellar_create_scan_state(CustomScan *cscan);
extern CellarScanState *cellar_scan_state(PlanState *state);
extern void cellar_prepare_scan(CellarScanState *state);

/* ---- rows.c ---- */

extern void cellar_start_rows(CellarScanState *state);
extern TupleTableSlot *cellar_next_row(CellarScanState *state, ExprState **quals);
extern TupleTableSlot *cellar_next_output(CellarScanState *state);
extern void cellar_stop_rows(CellarScanState *state);

/* The value of a column of fixed width, or a pointer to its datum. */
static inline Datum
batch_value(const CellarColumn *column, uint32 row, int16 typlen, bool byval)
{
	if (column->offsets != NULL)
		return PointerGetDatum(column->data + column->offsets[row]);
	return fetch_att(column->values + (size_t) row * column->stride, byval, typlen);
}

/* ---- aggregate.c ---- */

extern Node *cellar_create_aggregate_state(CustomScan *cscan);
extern void cellar_keep_groups(CellarAggregateState *state, const CellarBatch *batch);

/* ---- parallel.c ---- */

extern int	cellar_aggregate_ranges(BlockNumber pages);
extern bool cellar_next_range(CellarScanState *state, CellarRange *range);
extern void cellar_share_counts(CellarScanState *state, const CellarScanCounts *counts);
extern Size cellar_estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
extern void cellar_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);
extern void cellar_shutdown(CustomScanState *node);

/* ---- request.c ---- */

extern CellarRequest *cellar_relation_request(Relation rel, const char *file);

/*
 * Rows come whole when at least this part of their width is needed: copying a
 * tuple is cheaper than taking most of it apart and putting it together again.
 */
#define CELLAR_WHOLE_ROWS_FRACTION	0.6

/* Unless only such a part of the table's rows come back. */
#define CELLAR_FEW_ROWS_FRACTION	0.1

extern CellarRequest *cellar_build_request(CellarScanState *state, const char *file);
extern void cellar_choose_projection(CellarScanState *state, bool tuple_identity);
extern void cellar_choose_outputs(CellarScanState *state);

/* ---- simulation.c ---- */

extern void cellar_simulation_start(CellarScanState *state);
extern void cellar_simulate_block(CellarScanState *state, BlockNumber block);
extern void cellar_simulation_end(CellarScanState *state);

/* ---- explain.c ---- */

extern void cellar_explain_aggregate(CustomScanState *node, List *ancestors, ExplainState *es);
extern void cellar_explain_scan(CustomScanState *node, List *ancestors, ExplainState *es);

/* ---- offload_reasons.c ---- */

extern void cellar_install_why(void);
extern void cellar_note_scan(Oid relid, const char *reason);
extern void cellar_note_cheaper(Oid relid);
extern void cellar_note_chosen(Oid relid);
extern void cellar_note_aggregate(Oid relid, Index varno, Node *expression, const char *reason);
extern void cellar_note_qual(Oid relid, Index varno, Node *qual, const char *reason);

#endif							/* CELLAR_H */
