/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Turns the path of a Smart Scan into a plan.
 *
 * The plan's qual is the filter, custom_exprs is the storage predicate with
 * the keys of a wanted order behind it, and custom_private tells how to merge
 * filter and storage predicate into the order in which Postgres would evaluate them, and how many
 * of the cell's threads share the scan.  The scan's tuples have the relation's row type; which
 * columns are fetched is decided when the plan starts, since its target list
 * may still change after it was made.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Everything but the keys. */
List *
cellar_top_n_private(const CellarTopN *top)
{
	return list_make4(list_make1_int(top->rows), top->less, top->collations, top->directions);
}

/* The order of which the plan wants the first rows; false when it wants all rows. */
bool
cellar_plan_top_n(CustomScan *cscan, CellarTopN *top)
{
	List	   *lists = list_nth(cscan->custom_private, CELLAR_PLAN_TOP_N);

	if (lists == NIL)
		return false;
	top->rows = linitial_int(linitial(lists));
	top->less = lsecond(lists);
	top->collations = lthird(lists);
	top->directions = lfourth(lists);
	top->keys = list_copy_tail(cscan->custom_exprs,
							   list_length(cscan->custom_exprs) - list_length(top->less));
	return true;
}

/* How many of the cell's threads share the scan. */
int
cellar_plan_threads(CustomScan *cscan)
{
	return linitial_int(list_nth(cscan->custom_private, CELLAR_PLAN_THREADS));
}

List *
cellar_storage_predicate(CustomScan *cscan)
{
	CellarTopN	top;

	if (!cellar_plan_top_n(cscan, &top))
		return cscan->custom_exprs;
	return list_truncate(list_copy(cscan->custom_exprs),
						 list_length(cscan->custom_exprs) - list_length(top.keys));
}

static Plan *
plan_smart_scan(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
				List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *storage = NIL;
	List	   *filter = NIL;
	List	   *order = NIL;
	List	   *reasons = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		const char *reason = NULL;

		/* A gating node takes care of those. */
		if (rinfo->pseudoconstant)
			continue;

		if (cellar_restriction_offloadable(rel, rinfo, &reason))
		{
			storage = lappend(storage, rinfo->clause);
			order = lappend_int(order, 1);
		}
		else
		{
			filter = lappend(filter, rinfo->clause);
			reasons = lappend(reasons, makeString(pstrdup(reason)));
			order = lappend_int(order, 0);
		}
	}

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = filter;
	cscan->scan.scanrelid = rel->relid;
	cscan->flags = best_path->flags;
	cscan->custom_private = list_make4(order, reasons, lsecond(best_path->custom_private),
									   lthird(best_path->custom_private));
	cscan->custom_exprs = list_concat(storage, (List *) linitial(best_path->custom_private));
	cscan->methods = &cellar_scan_methods;

	cellar_note_chosen(planner_rt_fetch(rel->relid, root)->relid);
	return &cscan->scan.plan;
}

const CustomPathMethods cellar_path_methods = {
	.CustomName = CELLAR_SCAN_NAME,
	.PlanCustomPath = plan_smart_scan
};

const CustomScanMethods cellar_scan_methods = {
	.CustomName = CELLAR_SCAN_NAME,
	.CreateCustomScanState = cellar_create_scan_state
};
