/*-------------------------------------------------------------------------
 *
 * cellar/executor.h
 *	  Plan states of Smart Scans.
 *
 * A Smart Scan (scan.c) returns rows from the cell (cell_rows.c), or from
 * blocks that PostgreSQL reads (heap_block.c).  A Smart Scan Aggregate
 * (aggregate.c) is the parent of a Smart Scan whose rows the cell aggregates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_EXECUTOR_H
#define CELLAR_EXECUTOR_H

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/tupmacs.h"
#include "commands/explain.h"
#include "nodes/execnodes.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"

#include "cellar/cell.h"
#include "cellar/planner.h"

/* expression_compile.c, expression_request.c */

/* Expressions compiled to steps; see expression_steps.h. */
typedef struct CellarExpressions CellarExpressions;

extern CellarExpressions *cellar_compile_quals(List *quals, PlanState *parent);
extern CellarExpressions *cellar_compile_aggregation(List *keys, List *aggregates,
													 PlanState *parent);
extern CellarExpressions *cellar_compile_distinct(Node *argument, Node *filter, PlanState *parent);
extern CellarExpressions *cellar_compile_join_conditions(List *conditions, PlanState *parent);
extern CellarExpressions *cellar_compile_group_conditions(List *conditions, PlanState *parent);
extern CellarExpressions *cellar_compile_sort_keys(const CellarTopN *top, PlanState *parent);
extern int64 cellar_integer_value(Datum datum, int16 typlen);
extern bool cellar_request_expressions(CellarRequest *request, CellarExpressions *expressions,
									   ExprContext *econtext);

/* heap_block.c */

/* One heap block read through the buffer manager, and its visible tuples. */
typedef struct CellarHeapBlock
{
	Relation	rel;
	Snapshot	snapshot;
	BufferAccessStrategy strategy;
	Buffer		buffer;			/* pinned while its tuples are in use */
	BlockNumber block;
	int			ntuples;
	int			next;			/* index in visible */
	HeapTupleData tuple;
	OffsetNumber visible[MaxHeapTuplesPerPage];
} CellarHeapBlock;

extern void cellar_heap_block_init(CellarHeapBlock *block, Relation rel, Snapshot snapshot);
extern void cellar_heap_block_read(CellarHeapBlock *block, BlockNumber number, char *copy);
extern bool cellar_heap_block_next(CellarHeapBlock *block, TupleTableSlot *slot);
extern void cellar_heap_block_release(CellarHeapBlock *block);

/* parallel.c */

/* Counts that EXPLAIN shows; all members are uint64. */
typedef struct CellarScanCounts
{
	CellarScanStats scan;
	uint64		waits;
	uint64		wait_us;
} CellarScanCounts;

#define CELLAR_SCAN_COUNTS	(sizeof(CellarScanCounts) / sizeof(uint64))

/* A range of blocks. */
typedef struct CellarRange
{
	BlockNumber first;
	BlockNumber end;			/* exclusive */
} CellarRange;

/* Shared memory of a parallel scan. */
typedef struct CellarParallelScan
{
	bool		from_cell;		/* the leader chose the cell */
	BlockNumber nblocks;
	BlockNumber range_blocks;	/* maximum size of a range */
	pg_atomic_uint64 next_block;
	pg_atomic_uint64 counts[CELLAR_SCAN_COUNTS];	/* of the workers */
} CellarParallelScan;

/* aggregate.c */

/* Plan state of a Smart Scan Aggregate. */
typedef struct CellarAggregateState
{
	CustomScanState css;
	CellarExpressions *expressions; /* group keys and aggregates */
	CellarGroupPruning pruning; /* without conditions and rows, the cell
								 * returns all groups */
	CellarExpressions *conditions;	/* of the pruning */
	CellarExpressions *sort_keys;
	CellarDistinct distinct;	/* valid if distinct_argument is not NULL */
	CellarExpressions *distinct_argument;
	int			ncolumns;		/* of a batch of groups */
	int		   *columns;		/* for each output column, its number in a
								 * batch of groups, or -1 for a constant, -2
								 * for an aggregate of group keys, -3 for a
								 * join condition */
	List	   *values;			/* ExprStates: the values of aggregates of
								 * group keys */
	Tuplestorestate *groups;	/* from the cell; NULL before the first one */
	TupleTableSlot *group_slot;

	/*
	 * Groups with the states of aggregates with DISTINCT, of which Distinct
	 * States provides the slot and the target list
	 */
	Tuplestorestate *distinct_groups;	/* NULL before the first one */
	TupleTableSlot *distinct_slot;
	List	   *distinct_tlist;

	bool		started;		/* the child has returned rest_row */
	bool		rest_pending;	/* rest_row was not returned yet */
	TupleTableSlot *rest_row;	/* the first row of the child */
	bool		rest_done;		/* the child has returned its last row */
	List	   *lookups;		/* plan states of lookup tables, in the order
								 * of the request */
	CellarExpressions *join_conditions; /* valid if there are lookup tables */
} CellarAggregateState;

/* scan.c */

/* Where a scan's rows come from. */
typedef enum CellarRowSource
{
	CELLAR_ROWS_UNDECIDED,
	CELLAR_ROWS_FROM_CELL,
	CELLAR_ROWS_FROM_HEAP,		/* blocks read through the buffer manager */
	CELLAR_ROWS_FROM_TABLE_SCAN /* a table scan, after a cursor moved backward */
} CellarRowSource;

/* A condition "column = ANY (parameter)", which applies if the parameter is not NULL. */
typedef struct CellarJoinFilter
{
	CellarExpressions *expression;
	int			paramid;
	bool		is_integer_set; /* the cell takes the values as a set of
								 * integers */
} CellarJoinFilter;

/* The plan, with its expressions compiled. */
typedef struct CellarScanPlan
{
	CellarExpressions *storage_predicate;
	int			njoin_filters;
	CellarJoinFilter *join_filters;
	CellarExpressions *sort_keys;	/* NULL without top-N */
	int			top_rows;		/* 0 without top-N */
	int			threads;		/* of the cell that share a range */
	ExprState  *all_quals;		/* storage predicate and filter, in
								 * PostgreSQL's order of evaluation */
	ExprState  *filter_quals;
} CellarScanPlan;

/* A column that the cell returns, and its attribute in the scan tuple. */
typedef struct CellarTarget
{
	int16		attribute;		/* zero-based */
	int16		typlen;
	bool		byval;
} CellarTarget;

/* A result column that is a column of the batch. */
typedef struct CellarOutput
{
	int			column;			/* of the batch */
	int16		typlen;
	bool		byval;
} CellarOutput;

/* The columns that the cell returns of each row, or whole rows. */
typedef struct CellarProjection
{
	bool		whole_rows;		/* heap tuples instead of columns */
	int			ntargets;
	CellarTarget *targets;
	uint16	   *attributes;		/* attribute number of each target */
	int			noutputs;		/* -1 when some result column is not a column
								 * of the batch */
	CellarOutput *outputs;
} CellarProjection;

/* Set once for the scan and its rescans; see cellar_prepare_scan. */
typedef struct CellarScanSetup
{
	bool		done;			/* the next three members are valid */
	CellarRowSource source;		/* at the start of each (re)scan */
	const char *fallback;		/* why rows do not come from the cell, or
								 * NULL; also set while the scan runs */
	BlockNumber nblocks;
	CellarLocation location;	/* valid when the cell was chosen */
} CellarScanSetup;

/* How many ranges a process requests in advance, to keep the cell busy. */
#define CELLAR_RANGES_AHEAD	2

/* The position of the current (re)scan. */
typedef struct CellarScanProgress
{
	bool		started;
	bool		ended;
	CellarRowSource source;
	BlockNumber next_block;		/* serial scan: first block not yet in a range */
	CellarRange ranges[CELLAR_RANGES_AHEAD];	/* not finished, oldest first */
	int			nranges;
	uint64		rows_emitted;
} CellarScanProgress;

/* Rows from the cell. */
typedef struct CellarCellRows
{
	CellarSession *session;
	bool		answered;		/* the cell has answered the current scan */
	bool		passed_through; /* the cell has passed a block through */
	const CellarBatch *batch;	/* NULL when all its rows were returned */
	uint32		row;			/* next row of the batch */
	HeapTupleData tuple;
	TupleTableSlot *slot;		/* virtual, or heap tuples for whole rows */
} CellarCellRows;

/* Rows from PostgreSQL's buffers. */
typedef struct CellarHeapRows
{
	CellarHeapBlock block;
	TableScanDesc table_scan;
	TupleTableSlot *slot;
} CellarHeapRows;

/* The index whose entries are the rows of the scan; see index_scan.c. */
typedef struct CellarIndexScan
{
	Relation	rel;			/* NULL if the plan has no index */
	bool		active;			/* rows come from the index */
	const char *reason;			/* why they do not, or NULL */
	CellarLocation location;
	BlockNumber leftmost;		/* leaf page, or P_NONE */
	XLogRecPtr	lsn;
	uint8	   *all_visible;	/* one bit for each block of the table */
	Size		all_visible_bytes;
	uint32	   *links;			/* by block of the index; CELLAR_NOT_COUNTED */
	bool		walked;			/* tids has all heap rows */
	bool		fetching;		/* tids is sorted, next_tid is valid */
	struct IndexFetchTableData *fetch;
	ItemPointerData *tids;		/* heap rows to fetch */
	Size		ntids;
	Size		tids_allocated;
	Size		next_tid;
	uint64		heap_fetches;
	uint64		pages_walked;
} CellarIndexScan;

/* Plan state of a Smart Scan. */
typedef struct CellarScanState
{
	CustomScanState css;
	CellarAggregateState *aggregate;	/* parent, when the cell aggregates
										 * the rows; else NULL */
	CellarScanPlan plan;
	CellarProjection projection;
	CellarScanSetup setup;
	CellarParallelScan *shared; /* NULL in a serial scan */
	CellarScanProgress progress;
	CellarCellRows cell;
	CellarHeapRows heap;
	CellarIndexScan index;
	CellarSimulation *simulation;	/* NULL when offload is not simulated */
	char	   *simulation_page;
	CellarScanCounts counts;	/* of this process */
	CellarScanCounts worker_counts; /* of finished parallel workers */
	MemoryContextCallback cleanup;
} CellarScanState;

extern Node *cellar_create_scan_state(CustomScan *cscan);
extern CellarScanState *cellar_scan_state(PlanState *state);
extern void cellar_prepare_scan(CellarScanState *state);

/* index_scan.c */

extern void cellar_begin_index_scan(CellarScanState *state, Oid index);
extern bool cellar_prepare_index_scan(CellarScanState *state);
extern void cellar_start_index_scan(CellarScanState *state);
extern void cellar_stop_index_scan(CellarScanState *state);
extern void cellar_leave_index_scan(CellarScanState *state);
extern void cellar_end_index_scan(CellarScanState *state);
extern void cellar_request_index_scan(CellarScanState *state, CellarRequest *request);
extern void cellar_keep_leaf_links(CellarScanState *state);
extern void cellar_keep_heap_tids(CellarScanState *state);
extern void cellar_add_tid(CellarIndexScan *index, BlockNumber block, OffsetNumber line_pointer);
extern bool cellar_next_index_row(CellarScanState *state);

/* initplans.c */

extern bool cellar_execute_initplans(CellarScanState *state);

/* leaf_walk.c */

extern void cellar_walk_leaf_pages(CellarScanState *state);

/* projection.c */

/*
 * The cell returns whole rows when this fraction of their width is needed:
 * copying a tuple is cheaper than extracting most of its columns ...
 */
#define CELLAR_WHOLE_ROWS_FRACTION	0.6

/*
 * ... unless the scan returns less than this fraction of the rows: building
 * heap tuples from a compression unit is expensive.
 */
#define CELLAR_FEW_ROWS_FRACTION	0.1

extern void cellar_choose_projection(CellarScanState *state, bool with_ctid);
extern void cellar_choose_outputs(CellarScanState *state);

/* request.c */

extern CellarRequest *cellar_scan_request(CellarScanState *state, const char *file, const char **reason);

/* cell_rows.c */

extern void cellar_open_cell_scan(CellarScanState *state);
extern void cellar_advance_cell(CellarScanState *state);
extern void cellar_drop_oldest_range(CellarScanState *state);

/* rows.c */

extern void cellar_start_rows(CellarScanState *state);
extern TupleTableSlot *cellar_next_row(CellarScanState *state, ExprState **quals);
extern TupleTableSlot *cellar_next_output(CellarScanState *state);
extern void cellar_stop_rows(CellarScanState *state);

/* Returns a column's value in a row of a batch that is not NULL there. */
static inline Datum
cellar_batch_value(const CellarColumn *column, uint32 row, int16 typlen, bool byval)
{
	if (column->offsets != NULL)
		return PointerGetDatum(column->data + column->offsets[row]);
	return fetch_att(column->values + (size_t) row * column->stride, byval, typlen);
}

/* Returns whether a batch's column can have values of this length. */
static inline bool
cellar_column_fits(const CellarColumn *column, int16 typlen)
{
	return typlen < 0 ? column->offsets != NULL : column->stride >= (uint32) typlen;
}

/* aggregate.c */

extern Node *cellar_create_aggregate_state(CustomScan *cscan);
extern void cellar_keep_groups(CellarAggregateState *state, const CellarBatch *batch);
extern CellarAggregateState *cellar_aggregate_state(PlanState *state);
extern bool cellar_has_distinct_groups(CellarAggregateState *state);

/* join_keys.c */

typedef struct CellarJoinKeysState CellarJoinKeysState;

extern Node *cellar_create_join_keys_state(CustomScan *cscan);
extern void cellar_complete_join_keys(CellarJoinKeysState *state);

/* lookup_columns.c */

extern List *cellar_number_lookup_columns(List *tables, List *expressions, Index relation, int natts);
extern void cellar_request_lookups(CellarRequest *request, List *tables);

/* lookup_table.c */

typedef struct CellarLookupState CellarLookupState;

extern Node *cellar_create_lookup_state(CustomScan *cscan);
extern CellarScanState *cellar_find_lookups(PlanState *node, List **tables);
extern void cellar_share_lookups(List *tables);
extern int64 cellar_lookup_bytes(List *tables);

/* distinct.c */

extern Node *cellar_create_distinct_state(CustomScan *cscan);

/* grouping_sets.c */

extern Node *cellar_create_grouping_sets_state(CustomScan *cscan);

/* parallel.c */

extern bool cellar_next_range(CellarScanState *state, CellarRange *range);
extern void cellar_add_counts(CellarScanCounts *total, const CellarScanCounts *counts);
extern void cellar_share_counts(CellarScanState *state, const CellarScanCounts *counts);
extern Size cellar_estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
extern void cellar_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);
extern void cellar_shutdown(CustomScanState *node);

/* object_checkpoint.c */

extern void cellar_announce_scan(EState *estate, Relation rel);
extern void cellar_object_checkpoint_of_scan(EState *estate, Relation rel);
extern void cellar_object_checkpoint(Relation rel);

/* transaction_states.c */

extern void cellar_transaction_states(const uint32 *xids, size_t count,
									  Snapshot snapshot, uint8 *states);

/* simulation.c */

extern void cellar_start_simulation(CellarScanState *state);
extern void cellar_simulate_block(CellarScanState *state, BlockNumber block);
extern void cellar_finish_simulation(CellarScanState *state);

/* explain.c */

extern void cellar_explain_expressions(const char *label, List *expressions, CustomScanState *node,
									   List *ancestors, ExplainState *es);
extern void cellar_explain_aggregate(CustomScanState *node, List *ancestors, ExplainState *es);
extern void cellar_explain_scan(CustomScanState *node, List *ancestors, ExplainState *es);

#endif							/* CELLAR_EXECUTOR_H */
