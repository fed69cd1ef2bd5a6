/*-------------------------------------------------------------------------
 *
 * scan_path.c
 *	  Offers the planner a Smart Scan of a relation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "nodes/value.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/planner.h"

/* Returns by how much the scan costs more without the join filter that its cost assumes. */
static Cost
cost_without_join_filter(PlannerInfo *root, const Path *path, const CellarScanSpec *scan)
{
	CellarScanSpec unfiltered = *scan;
	Path		other = *path;

	if (scan->join_filter_fraction >= 1)
		return 0;
	unfiltered.join_filter_fraction = 1;
	cellar_cost_scan(root, &other, &unfiltered);
	return other.total_cost - path->total_cost;
}

/*
 * Creates and costs the path.  The storage predicate is chosen again when the
 * path becomes a plan (plan.c).
 */
Path *
cellar_create_scan_path(PlannerInfo *root, const CellarScanSpec *scan)
{
	RelOptInfo *rel = scan->rel;
	const CellarTopN *top = scan->top;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = rel->reltarget;
	path->param_info = NULL;
	path->parallel_aware = scan->parallel_workers > 0;

	/* Several processes that execute the scan would compete for the threads. */
	path->parallel_safe = rel->consider_parallel && scan->threads == 1 && scan->index == NULL;
	path->parallel_workers = scan->parallel_workers;
	path->pathkeys = NIL;
	cpath->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	cpath->methods = &cellar_scan_path_methods;

	/*
	 * A backward scan restarts as a table scan and evaluates the quals a
	 * second time: all rows must be returned in the order of the table, and
	 * the quals must have the same result.
	 */
	if (scan->parallel_workers == 0 && scan->threads == 1 && top == NULL && scan->index == NULL &&
		!contain_volatile_functions((Node *) rel->baserestrictinfo))
		cpath->flags |= CUSTOMPATH_SUPPORT_BACKWARD_SCAN;

	cellar_cost_scan(root, path, scan);
	cpath->custom_private = list_make5(top == NULL ? NIL : top->keys,
									   top == NULL ? NIL : cellar_top_n_private(top),
									   list_make1_int(scan->threads),
									   makeFloat(psprintf("%f", cost_without_join_filter(root, path, scan))),
									   scan->index == NULL ? NIL : list_make1_oid(scan->index->indexoid));
	return path;
}

/* As cost_without_join_filter() for a path; 0 if it is not the path of a Smart Scan. */
Cost
cellar_cost_without_join_filter(const Path *path)
{
	const CustomPath *cpath = (const CustomPath *) path;

	return IsA(path, CustomPath) && cpath->methods == &cellar_scan_path_methods ?
		floatVal(list_nth(cpath->custom_private, CELLAR_PATH_FILTER_COST)) : 0;
}

/* Returns whether the scan returns every column of every row. */
static bool
returns_everything(RelOptInfo *rel, Relation relation, List *storage)
{
	TupleDesc	tupdesc = RelationGetDescr(relation);
	Bitmapset  *needed;

	if (storage != NIL)
		return false;
	needed = cellar_needed_attributes(rel, rel->baserestrictinfo);
	if (bms_is_member(-FirstLowInvalidHeapAttributeNumber, needed))
		return true;			/* the whole row */
	for (int i = 0; i < tupdesc->natts; i++)
	{
		if (!TupleDescAttr(tupdesc, i)->attisdropped &&
			!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, needed))
			return false;
	}
	return tupdesc->natts > 0;
}

/*
 * Returns whether the relation is on the right side of a semijoin or antijoin.  In a
 * parallel plan, the rows of such a relation become a hash table, so that the
 * scan gets no join filter from that join; a serial plan can join the distinct rows
 * as its outer side.
 */
static bool
is_semijoined(PlannerInfo *root, const RelOptInfo *rel)
{
	Relids		relids = rel->top_parent_relids != NULL ? rel->top_parent_relids : rel->relids;
	ListCell   *lc;

	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *sjinfo = lfirst_node(SpecialJoinInfo, lc);

		if ((sjinfo->jointype == JOIN_SEMI || sjinfo->jointype == JOIN_ANTI) &&
			bms_overlap(relids, sjinfo->syn_righthand))
			return true;
	}
	return false;
}

/*
 * Adds a serial and, where possible, a partial Smart Scan path to the
 * relation, and a serial one whose rows several threads of the cell return.
 * Notes the reason when no path is added.
 */
void
cellar_add_scan_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	CellarScanSpec scan = {
		.rel = rel,
		.stored_fraction = cellar_stored_fraction(relation),
		.join_filter_fraction = 1,
		.threads = 1
	};
	Path	   *path;
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		const char *reason;

		if (rinfo->pseudoconstant)
			continue;
		if (cellar_restriction_offloadable(root, rel, rinfo, &reason))
			scan.storage = lappend(scan.storage, rinfo);
		else
			scan.filter = lappend(scan.filter, rinfo);
	}
	/* A scan with a filter in PostgreSQL gets no join filter. */
	if (scan.filter == NIL)
		scan.join_filter_fraction = cellar_join_filter_fraction(root, rel);

	if (cellar_cost_factor > 0 && scan.join_filter_fraction > CELLAR_JOIN_FILTER_FRACTION_MAX &&
		returns_everything(rel, relation, scan.storage))
	{
		cellar_note_scan(RelationGetRelid(relation),
						 "the query reads every column of every row, for which a sequential scan is as fast");
		return;
	}

	cellar_correct_index_scans(root, rel, relation);
	path = cellar_create_scan_path(root, &scan);
	if (cellar_index_only_scan_is_cheaper(rel, path->total_cost, 0))
	{
		cellar_note_scan(RelationGetRelid(relation), "an index-only scan is cheaper");
		return;
	}

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
	{
		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
	}

	cellar_note_cheaper(RelationGetRelid(relation), false);
	add_path(rel, path);
	scan.threads = cellar_scan_threads(root, rel);
	if (scan.threads > 1)
		add_path(rel, cellar_create_scan_path(root, &scan));
	if (rel->consider_parallel)
	{
		scan.threads = 1;
		if (is_semijoined(root, rel))
			scan.join_filter_fraction = 1;
		scan.parallel_workers = compute_parallel_worker(rel, rel->pages, -1,
														max_parallel_workers_per_gather);
		if (scan.parallel_workers > 0)
			add_partial_path(rel, cellar_create_scan_path(root, &scan));
	}
}
