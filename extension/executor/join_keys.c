/*-------------------------------------------------------------------------
 *
 * join_keys.c
 *	  The plan state of Join Keys: passes the rows of its child on to a Hash
 *	  node, and collects the distinct join keys for the Smart Scan on the other
 *	  side of the join (planner/join_filter.c).
 *
 * Each key belongs to a parameter of the plan, which is an array of the key's
 * values.  The parameter is NULL until the child has returned its last row, and
 * remains NULL when there are too many values or more than KEY_BYTES_MAX
 * bytes: the scan then has no filter.  NULL keys are left out, because they
 * have no join partner.
 *
 * Below a Parallel Hash, each process sees some of the rows, and appends its
 * values to shared memory when its child has returned the last row.  A process
 * reads the outer side after all processes that build the hash table have done so,
 * because they wait for each other at the end of the build.  A process that joins
 * later does not run this node.  So the keys are complete when a scan starts, and
 * the process reads them then (cellar_complete_join_keys).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Most bytes of the values of a key that are passed by reference, after detoasting. */
#define KEY_BYTES_MAX	(4 * 1024 * 1024)

/* The most values of a key are this number times a power of two. */
#define INITIAL_VALUES	256

/*
 * Values are sorted by a bitmap if the range from the smallest to the largest has
 * fewer than this many integers for each value.
 */
#define BITMAP_DENSITY	64

/* The values of one join key. */
typedef struct JoinKey
{
	ExprState  *expression;
	int			paramid;
	Oid			type;
	int16		typlen;
	bool		typbyval;
	char		typalign;
	int			most;			/* values */
	bool		too_many;
	int			nvalues;
	int			allocated;
	Size		bytes;			/* of values passed by reference, detoasted */
	Datum	   *values;
} JoinKey;

/* The values of one join key of all processes, which are passed by value. */
typedef struct SharedJoinKey
{
	pg_atomic_uint32 too_many;
	pg_atomic_uint32 nvalues;
	Size		first;			/* of the key's values in SharedJoinKeys */
	int			most;			/* values */
} SharedJoinKey;

/* Shared memory of Join Keys below a Parallel Hash. */
typedef struct SharedJoinKeys
{
	pg_atomic_uint32 started;	/* processes that run the child */
	pg_atomic_uint32 finished;	/* processes whose values are complete */
	SharedJoinKey keys[FLEXIBLE_ARRAY_MEMBER];	/* the values follow */
} SharedJoinKeys;

/* Plan state of Join Keys. */
struct CellarJoinKeysState
{
	CustomScanState css;
	int			nkeys;
	JoinKey    *keys;
	bool		started;		/* the child runs */
	bool		complete;		/* the parameters are set */
	SharedJoinKeys *shared;		/* NULL unless below a Parallel Hash */
	MemoryContext context;		/* of the values */
};

static void begin_join_keys(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_join_keys(CustomScanState *node);
static void end_join_keys(CustomScanState *node);
static void rescan_join_keys(CustomScanState *node);
static void explain_join_keys(CustomScanState *node, List *ancestors, ExplainState *es);
static Size estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
static void initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
static void reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
static void initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);
static void shutdown_join_keys(CustomScanState *node);

static const CustomExecMethods join_keys_exec_methods = {
	.CustomName = CELLAR_JOIN_KEYS_NAME,
	.BeginCustomScan = begin_join_keys,
	.ExecCustomScan = exec_join_keys,
	.EndCustomScan = end_join_keys,
	.ReScanCustomScan = rescan_join_keys,
	.EstimateDSMCustomScan = estimate_dsm,
	.InitializeDSMCustomScan = initialize_dsm,
	.ReInitializeDSMCustomScan = reinitialize_dsm,
	.InitializeWorkerCustomScan = initialize_worker,
	.ShutdownCustomScan = shutdown_join_keys,
	.ExplainCustomScan = explain_join_keys
};

Node *
cellar_create_join_keys_state(CustomScan *cscan)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) newNode(sizeof(CellarJoinKeysState),
																 T_CustomScanState);

	state->css.methods = &join_keys_exec_methods;
	return (Node *) state;
}

static Size
shared_header_bytes(CellarJoinKeysState *state)
{
	return MAXALIGN(offsetof(SharedJoinKeys, keys) + state->nkeys * sizeof(SharedJoinKey));
}

/*
 * Forgets all values; the parameters are NULL.  The value of a parameter that is
 * NULL points to this node if a scan must complete the keys.
 */
static void
reset_keys(CellarJoinKeysState *state)
{
	ParamExecData *params = state->css.ss.ps.state->es_param_exec_vals;

	for (int i = 0; i < state->nkeys; i++)
	{
		JoinKey    *key = &state->keys[i];

		key->too_many = false;
		key->nvalues = 0;
		key->allocated = 0;
		key->bytes = 0;
		key->values = NULL;
		params[key->paramid].execPlan = NULL;
		params[key->paramid].value = state->shared != NULL ? PointerGetDatum(state) : (Datum) 0;
		params[key->paramid].isnull = true;
	}
	state->started = false;
	state->complete = false;
	MemoryContextReset(state->context);
}

static void
begin_join_keys(CustomScanState *node, EState *estate, int eflags)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	PlanState  *ps = &node->ss.ps;
	ListCell   *lc;

	outerPlanState(node) = ExecInitNode(outerPlan(cscan), estate, eflags);

	/* The rows are those of the child, in its slots. */
	ps->scanopsset = true;
	ps->scanopsfixed = false;
	ExecAssignScanProjectionInfoWithVarno(&node->ss, INDEX_VAR);

	state->nkeys = list_length(cscan->custom_private);
	state->keys = palloc0(state->nkeys * sizeof(JoinKey));
	foreach(lc, cscan->custom_private)
	{
		JoinKey    *key = &state->keys[foreach_current_index(lc)];
		Expr	   *expression = linitial(lfirst_node(List, lc));
		Param	   *param = lsecond_node(Param, lfirst_node(List, lc));

		key->expression = ExecInitExpr(expression, ps);
		key->paramid = param->paramid;
		key->type = get_element_type(param->paramtype);
		key->most = intVal(lthird(lfirst_node(List, lc)));
		get_typlenbyvalalign(key->type, &key->typlen, &key->typbyval, &key->typalign);
	}
	state->context = AllocSetContextCreate(estate->es_query_cxt, "Join Keys", ALLOCSET_DEFAULT_SIZES);
	reset_keys(state);
}

#define ST_SORT sort_datums
#define ST_ELEMENT_TYPE Datum
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static int
compare_values(const void *left, const void *right, void *arg)
{
	const JoinKey *key = arg;
	Datum		a = *(const Datum *) left;
	Datum		b = *(const Datum *) right;
	Size		size;

	if (key->typbyval)
		return a < b ? -1 : a > b;
	size = datumGetSize(a, false, key->typlen);
	if (size != datumGetSize(b, false, key->typlen))
		return size < datumGetSize(b, false, key->typlen) ? -1 : 1;
	return memcmp(DatumGetPointer(a), DatumGetPointer(b), size);
}

/*
 * Sorts values that are passed by value, and removes duplicates.  Returns false if
 * the values are too sparse for a bitmap.
 */
static bool
remove_dense_duplicates(JoinKey *key)
{
	int64		min = PG_INT64_MAX;
	int64		max = PG_INT64_MIN;
	int			distinct = 0;
	uint64		span;
	uint64	   *bitmap;

	for (int i = 0; i < key->nvalues; i++)
	{
		int64		value = (int64) key->values[i];

		min = Min(min, value);
		max = Max(max, value);
	}
	span = (uint64) max - (uint64) min;
	if (key->nvalues == 0 || span / BITMAP_DENSITY >= (uint64) key->nvalues)
		return false;
	bitmap = palloc0((span / 64 + 1) * sizeof(uint64));
	for (int i = 0; i < key->nvalues; i++)
	{
		uint64		at = (uint64) key->values[i] - (uint64) min;

		bitmap[at / 64] |= UINT64CONST(1) << (at % 64);
	}
	for (uint64 word = 0; word <= span / 64; word++)
	{
		for (uint64 bits = bitmap[word]; bits != 0; bits &= bits - 1)
			key->values[distinct++] = (Datum) ((uint64) min + 64 * word + pg_rightmost_one_pos64(bits));
	}
	pfree(bitmap);
	key->nvalues = distinct;
	return true;
}

/* Removes values with the same bytes. */
static void
remove_duplicates(JoinKey *key)
{
	int			distinct = 0;

	if (key->typbyval && remove_dense_duplicates(key))
		return;
	if (key->typbyval)
		sort_datums(key->values, key->nvalues);
	else
		qsort_arg(key->values, key->nvalues, sizeof(Datum), compare_values, key);
	for (int i = 0; i < key->nvalues; i++)
	{
		if (i == 0 || compare_values(&key->values[i], &key->values[distinct - 1], key) != 0)
			key->values[distinct++] = key->values[i];
	}
	key->nvalues = distinct;
}

/* Adds a value.  Gives the key up when it has too many values. */
static void
add_value(CellarJoinKeysState *state, JoinKey *key, Datum value)
{
	MemoryContext oldcontext;

	/* Neighbouring rows often have the same key. */
	if (key->nvalues > 0 && datumIsEqual(key->values[key->nvalues - 1], value, key->typbyval, key->typlen))
		return;

	oldcontext = MemoryContextSwitchTo(state->context);
	if (key->nvalues == key->allocated)
	{
		/*
		 * Removing duplicates again and again pays while half of the values
		 * go.
		 */
		if (key->nvalues > 0)
			remove_duplicates(key);
		if (key->nvalues > key->most / 2 && key->allocated == key->most)
			key->too_many = true;
		else if (key->values == NULL)
		{
			key->allocated = INITIAL_VALUES;
			key->values = palloc(key->allocated * sizeof(Datum));
		}
		else if (key->nvalues > key->allocated / 2)
		{
			key->allocated *= 2;
			key->values = repalloc(key->values, key->allocated * sizeof(Datum));
		}
	}
	if (!key->typbyval)
		key->bytes += key->typlen == -1 ? toast_raw_datum_size(value) : datumGetSize(value, false, key->typlen);
	if (key->bytes > KEY_BYTES_MAX)
		key->too_many = true;
	if (!key->too_many)
		key->values[key->nvalues++] = datumCopy(value, key->typbyval, key->typlen);
	MemoryContextSwitchTo(oldcontext);
}

/* Sets the parameters of all keys that do not have too many values. */
static void
publish(CellarJoinKeysState *state)
{
	ParamExecData *params = state->css.ss.ps.state->es_param_exec_vals;
	MemoryContext oldcontext = MemoryContextSwitchTo(state->context);

	for (int i = 0; i < state->nkeys; i++)
	{
		JoinKey    *key = &state->keys[i];

		if (key->too_many)
			continue;
		remove_duplicates(key);
		params[key->paramid].value = PointerGetDatum(construct_array(key->values, key->nvalues, key->type,
																	 key->typlen, key->typbyval, key->typalign));
		params[key->paramid].isnull = false;
	}
	state->complete = true;
	MemoryContextSwitchTo(oldcontext);
}

static Datum *
shared_values(CellarJoinKeysState *state)
{
	return (Datum *) ((char *) state->shared + shared_header_bytes(state));
}

/* Appends the values of this process to those of all processes. */
static void
share(CellarJoinKeysState *state)
{
	Datum	   *values = shared_values(state);

	for (int i = 0; i < state->nkeys; i++)
	{
		JoinKey    *key = &state->keys[i];
		SharedJoinKey *all = &state->shared->keys[i];
		uint32		first = 0;

		if (!key->too_many)
		{
			remove_duplicates(key);
			first = pg_atomic_fetch_add_u32(&all->nvalues, key->nvalues);
		}
		if (key->too_many || first + key->nvalues > all->most)
			pg_atomic_write_u32(&all->too_many, 1);
		else
			memcpy(values + all->first + first, key->values, key->nvalues * sizeof(Datum));
	}
	pg_atomic_fetch_add_u32(&state->shared->finished, 1);
}

/*
 * Sets the parameters to the values of all processes, when a scan starts.  Does
 * nothing if a process has not shared its values.
 */
void
cellar_complete_join_keys(CellarJoinKeysState *state)
{
	SharedJoinKeys *shared = state->shared;
	MemoryContext oldcontext;

	if (state->complete || shared == NULL)
		return;
	if (pg_atomic_read_u32(&shared->started) == 0 ||
		pg_atomic_read_u32(&shared->started) != pg_atomic_read_u32(&shared->finished))
		return;
	pg_read_barrier();

	oldcontext = MemoryContextSwitchTo(state->context);
	for (int i = 0; i < state->nkeys; i++)
	{
		JoinKey    *key = &state->keys[i];
		SharedJoinKey *all = &shared->keys[i];

		key->too_many = pg_atomic_read_u32(&all->too_many) != 0;
		if (key->too_many)
			continue;
		key->nvalues = pg_atomic_read_u32(&all->nvalues);
		key->values = palloc(Max(key->nvalues, 1) * sizeof(Datum));
		memcpy(key->values, shared_values(state) + all->first, key->nvalues * sizeof(Datum));
	}
	MemoryContextSwitchTo(oldcontext);
	publish(state);
}

static TupleTableSlot *
exec_join_keys(CustomScanState *node)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	TupleTableSlot *slot;

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(econtext);
	if (!state->started && state->shared != NULL)
		pg_atomic_fetch_add_u32(&state->shared->started, 1);
	state->started = true;
	slot = ExecProcNode(outerPlanState(node));
	if (TupIsNull(slot))
	{
		if (state->shared == NULL)
			publish(state);
		else
			share(state);
		return slot;
	}
	econtext->ecxt_outertuple = slot;
	for (int i = 0; i < state->nkeys; i++)
	{
		JoinKey    *key = &state->keys[i];
		Datum		value;
		bool		isnull;

		if (key->too_many)
			continue;
		value = ExecEvalExprSwitchContext(key->expression, econtext, &isnull);
		if (!isnull)
			add_value(state, key, value);
	}
	return slot;
}

static void
rescan_join_keys(CustomScanState *node)
{
	PlanState  *child = outerPlanState(node);

	reset_keys((CellarJoinKeysState *) node);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
end_join_keys(CustomScanState *node)
{
	ExecEndNode(outerPlanState(node));
}

/*
 * The space for the shared values of a key: several times the planner's estimate
 * for one process.
 */
static int
shared_most(CellarJoinKeysState *state, JoinKey *key)
{
	double		estimate = 8 * state->css.ss.ps.plan->plan_rows;

	return Min(key->most, (int) Max(CELLAR_OTHER_JOIN_KEYS_MAX, Min(estimate, CELLAR_JOIN_KEYS_MAX)));
}

static Size
estimate_dsm(CustomScanState *node, ParallelContext *pcxt)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	Size		bytes = shared_header_bytes(state);

	for (int i = 0; i < state->nkeys; i++)
		bytes += shared_most(state, &state->keys[i]) * sizeof(Datum);
	return bytes;
}

static void
reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	SharedJoinKeys *shared = coordinate;

	pg_atomic_write_u32(&shared->started, 0);
	pg_atomic_write_u32(&shared->finished, 0);
	for (int i = 0; i < state->nkeys; i++)
	{
		pg_atomic_write_u32(&shared->keys[i].too_many, 0);
		pg_atomic_write_u32(&shared->keys[i].nvalues, 0);
	}
}

static void
initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	SharedJoinKeys *shared = coordinate;
	Size		first = 0;

	pg_atomic_init_u32(&shared->started, 0);
	pg_atomic_init_u32(&shared->finished, 0);
	for (int i = 0; i < state->nkeys; i++)
	{
		shared->keys[i].first = first;
		shared->keys[i].most = shared_most(state, &state->keys[i]);
		first += shared->keys[i].most;
		pg_atomic_init_u32(&shared->keys[i].too_many, 0);
		pg_atomic_init_u32(&shared->keys[i].nvalues, 0);
	}
	initialize_worker(node, NULL, coordinate);
}

static void
initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;

	state->shared = coordinate;
	reset_keys(state);
}

/* The shared memory is freed before EXPLAIN reads the keys. */
static void
shutdown_join_keys(CustomScanState *node)
{
	((CellarJoinKeysState *) node)->shared = NULL;
}

/*
 * Shows the keys, and after execution how many values of the first key reached
 * the scan.
 */
static void
explain_join_keys(CustomScanState *node, List *ancestors, ExplainState *es)
{
	CellarJoinKeysState *state = (CellarJoinKeysState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	List	   *expressions = NIL;
	ListCell   *lc;

	foreach(lc, cscan->custom_private)
		expressions = lappend(expressions, linitial(lfirst_node(List, lc)));
	cellar_explain_expressions("Keys", expressions, node, ancestors, es);
	if (!es->analyze || !state->complete)
		return;
	for (int i = 0; i < state->nkeys; i++)
	{
		if (state->keys[i].too_many)
			ExplainPropertyText("Distinct Values", "too many for a join filter", es);
		else
			ExplainPropertyInteger("Distinct Values", NULL, state->keys[i].nvalues, es);
	}
}
