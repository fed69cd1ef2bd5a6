/*-------------------------------------------------------------------------
 *
 * top_n_path.c
 *	  Offers the planner a Smart Scan for ORDER BY ... LIMIT that omits rows
 *	  which cannot be among the first.
 *
 * PostgreSQL's own Sort and Limit run above the scan, so the cell must return
 * the first rows and may return others.  Omitting rows is sound when
 *
 * - only a Limit of a constant number of rows reads the output of the Sort,
 * - the cell evaluates all conditions, and
 * - an omitted row could not have raised an error: only columns and sort keys
 *	 are computed below the Sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* Returns the constant of LIMIT or OFFSET, or -1 when it is not a constant. */
static int64
constant_rows(Node *node)
{
	Const	   *value = (Const *) node;

	if (!IsA(value, Const) || value->constisnull || value->consttype != INT8OID)
		return -1;
	return DatumGetInt64(value->constvalue);
}

/*
 * Returns LIMIT + OFFSET, or 0 when the query does not read just the first
 * rows of its sorted or grouped rows, or their number is not constant or
 * exceeds CELLAR_TOP_ROWS_MAX.
 */
int
cellar_limit_rows(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	int64		limit;
	int64		offset = 0;

	if (parse->commandType != CMD_SELECT || parse->limitCount == NULL ||
		parse->limitOption != LIMIT_OPTION_COUNT || parse->hasWindowFuncs ||
		parse->distinctClause != NIL || parse->hasTargetSRFs || parse->setOperations != NULL ||
		root->rowMarks != NIL)
		return 0;
	limit = constant_rows(parse->limitCount);
	if (parse->limitOffset != NULL)
		offset = constant_rows(parse->limitOffset);
	if (limit < 0 || offset < 0 || limit > CELLAR_TOP_ROWS_MAX || offset > CELLAR_TOP_ROWS_MAX ||
		limit + offset > CELLAR_TOP_ROWS_MAX)
		return 0;
	return limit + offset;
}

/* Returns whether the query only sorts the rows of its table. */
static bool
only_sorts(PlannerInfo *root)
{
	Query	   *parse = root->parse;

	return !parse->hasAggs && parse->groupClause == NIL && parse->groupingSets == NIL &&
		parse->havingQual == NULL && root->sort_pathkeys != NIL;
}

/*
 * Adds a sort key over columns of varno.  Returns false when the cell cannot
 * order by the key.
 */
bool
cellar_add_sort_key(CellarTopN *top, const SortGroupClause *clause, Node *key, Index varno)
{
	Oid			collation = exprCollation(key);
	Oid			opfamily;
	Oid			type;
	Oid			less;
	bool		descending;
	const char *reason;

	if (!CellarOrder(clause->sortop, &opfamily, &type, &descending))
		return false;
	less = get_opfamily_member(opfamily, type, type, BTLessStrategyNumber);
	if (!OidIsValid(less))
		return false;
	less = get_opcode(less);
	if (!cellar_depends_on_row(key) ||
		!cellar_expression_offloadable((Node *) makeFuncExpr(less, BOOLOID, list_make2(key, key),
															 InvalidOid, collation,
															 COERCE_EXPLICIT_CALL),
									   varno, &reason))
		return false;

	top->keys = lappend(top->keys, key);
	top->less = lappend_oid(top->less, less);
	top->collations = lappend_oid(top->collations, collation);
	top->directions = lappend_int(top->directions,
								  (descending ? CELLAR_DESCENDING : 0) |
								  (clause->nulls_first ? CELLAR_NULLS_FIRST : 0));
	return true;
}

/* Returns the top-N for the cell, or NULL when the cell cannot omit rows. */
static CellarTopN *
choose_top_n(PlannerInfo *root, RelOptInfo *rel)
{
	CellarTopN *top = palloc0(sizeof(CellarTopN));
	ListCell   *lc;

	top->rows = cellar_limit_rows(root);
	if (top->rows == 0 || !only_sorts(root))
		return NULL;
	foreach(lc, root->parse->sortClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

		if (!cellar_add_sort_key(top, clause, get_sortgroupclause_expr(clause, root->processed_tlist), rel->relid))
			return NULL;
	}
	foreach(lc, rel->reltarget->exprs)
	{
		if (!IsA(lfirst(lc), Var) && !IsA(lfirst(lc), Const) &&
			!list_member(top->keys, lfirst(lc)))
			return NULL;
	}
	return top;
}

/* Adds a sorted path, with the final target list. */
static void
add_sorted(PlannerInfo *root, RelOptInfo *ordered_rel, Path *path)
{
	PathTarget *target = root->upper_targets[UPPERREL_ORDERED];

	if (path->pathtarget != target)
		path = apply_projection_to_path(root, ordered_rel, path, target);
	add_path(ordered_rel, path);
}

/*
 * Adds a serial top-N path, for which several threads of the cell share the scan,
 * and, where possible, a parallel one.
 */
void
cellar_add_top_n_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
					   RelOptInfo *ordered_rel)
{
	CellarTopN *top = choose_top_n(root, rel);
	CellarScanSpec scan = {
		.rel = rel,
		.top = top,
		.threads = cellar_scan_threads(root, rel)
	};
	Path	   *path;
	int			workers = 0;

	if (top == NULL || !cellar_restrictions_offloadable(root, rel, &scan.storage))
		return;
	scan.stored_fraction = cellar_stored_fraction(relation);
	path = cellar_create_scan_path(root, &scan);
	if (cellar_index_only_scan_is_cheaper(rel, path->total_cost, 0))
		return;

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
		ordered_rel->pathlist = NIL;
	add_sorted(root, ordered_rel, (Path *)
			   create_sort_path(root, ordered_rel, path, root->sort_pathkeys, top->rows));

	if (rel->consider_parallel && ordered_rel->consider_parallel)
		workers = compute_parallel_worker(rel, rel->pages, -1, max_parallel_workers_per_gather);
	if (workers > 0)
	{
		double		rows;

		scan.parallel_workers = workers;
		scan.threads = 1;
		path = cellar_create_scan_path(root, &scan);
		rows = path->rows * workers;
		path = (Path *) create_sort_path(root, ordered_rel, path, root->sort_pathkeys, top->rows);
		add_sorted(root, ordered_rel, (Path *)
				   create_gather_merge_path(root, ordered_rel, path, path->pathtarget,
											root->sort_pathkeys, NULL, &rows));
	}
}
