/*-------------------------------------------------------------------------
 *
 * cellar/executor.h
 *	  The plan states of a Smart Scan and what they are made of.
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

/* expressions.c */

typedef struct CellarQuals CellarQuals;

extern CellarQuals *cellar_quals_init(List *quals, Index varno, PlanState *parent);
extern CellarQuals *cellar_aggregation_init(List *keys, List *aggregates, PlanState *parent);
extern CellarQuals *cellar_sort_keys_init(const CellarTopN *top, PlanState *parent);
extern bool cellar_quals_send(CellarQuals *quals, ExprContext *econtext,
							  CellarRequest *request);

/* object_checkpoint.c */

extern void cellar_object_checkpoint(Relation rel);

/* transaction_states.c */

extern void cellar_transaction_states(const uint32 *xids, size_t count,
									  Snapshot snapshot, uint8 *states);

/* heap_block.c */

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

/* scan.c */

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

/* rows.c */

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

/* aggregate.c */

extern Node *cellar_create_aggregate_state(CustomScan *cscan);
extern void cellar_keep_groups(CellarAggregateState *state, const CellarBatch *batch);

/* parallel.c */

extern int	cellar_aggregate_ranges(BlockNumber pages);
extern bool cellar_next_range(CellarScanState *state, CellarRange *range);
extern void cellar_share_counts(CellarScanState *state, const CellarScanCounts *counts);
extern Size cellar_estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
extern void cellar_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void cellar_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);
extern void cellar_shutdown(CustomScanState *node);

/* request.c */

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

/* simulation.c */

extern void cellar_simulation_start(CellarScanState *state);
extern void cellar_simulate_block(CellarScanState *state, BlockNumber block);
extern void cellar_simulation_end(CellarScanState *state);

/* explain.c */

extern void cellar_explain_aggregate(CustomScanState *node, List *ancestors, ExplainState *es);
extern void cellar_explain_scan(CustomScanState *node, List *ancestors, ExplainState *es);

#endif							/* CELLAR_EXECUTOR_H */
