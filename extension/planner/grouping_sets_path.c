/*-------------------------------------------------------------------------
 *
 * grouping_sets_path.c
 *	  Offers the planner a Smart Scan Aggregate for GROUPING SETS, ROLLUP and CUBE.
 *
 * The cell computes the groups of the finest grouping, which has the columns of all
 * grouping sets as keys.  PostgreSQL combines these partial states for each grouping
 * set:
 *
 *		Grouping Sets					returns the rows of its child
 *		  Finalize MixedAggregate		for each grouping set; HAVING
 *			Smart Scan Aggregate		by all columns
 *
 * PostgreSQL's planner never combines partial states for grouping sets, but its
 * executor can: it evaluates the transition of each row for each grouping set, and
 * combining is a kind of transition.  The planner creates an Agg node with
 * grouping sets as one that aggregates rows.  Grouping Sets turns this node into one
 * that finalizes states, before setrefs.c connects the aggregates with the
 * columns of the child.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/*
 * Returns copies of the paths that aggregate rows by grouping sets: add_path may free
 * the paths themselves.
 */
List *
cellar_grouping_sets(const RelOptInfo *grouped_rel)
{
	List	   *paths = NIL;
	ListCell   *lc;

	foreach(lc, grouped_rel->pathlist)
	{
		GroupingSetsPath *copy;

		if (!IsA(lfirst(lc), GroupingSetsPath))
			continue;
		copy = makeNode(GroupingSetsPath);
		memcpy(copy, lfirst(lc), sizeof(GroupingSetsPath));
		paths = lappend(paths, copy);
	}
	return paths;
}

/* Returns whether the first grouping sets that are not hashed need sorted rows. */
static bool
needs_sorted_rows(const List *rollups)
{
	ListCell   *lc;

	foreach(lc, rollups)
	{
		const RollupData *rollup = lfirst_node(RollupData, lc);

		if (!rollup->is_hashed)
			return rollup->groupClause != NIL;
	}
	return false;
}

/* Returns whether a grouping set has all group keys. */
bool
cellar_has_finest_set(const CellarAggregateSpec *aggregation)
{
	const GroupingSetsPath *path = linitial(aggregation->grouping_sets);
	ListCell   *lc;

	foreach(lc, path->rollups)
	{
		ListCell   *set;

		foreach(set, lfirst_node(RollupData, lc)->gsets)
		{
			if (list_length(lfirst(set)) == list_length(aggregation->group_clause))
				return true;
		}
	}
	return false;
}

/* Adds paths that finalize the partial states of a path, with the methods of PostgreSQL's paths. */
void
cellar_add_grouping_sets_paths(PlannerInfo *root, RelOptInfo *grouped_rel, const CellarAggregateSpec *aggregation,
							   Path *path, GroupPathExtraData *extra)
{
	ListCell   *lc;

	foreach(lc, aggregation->grouping_sets)
	{
		const GroupingSetsPath *plain = lfirst_node(GroupingSetsPath, lc);
		CustomPath *cpath = makeNode(CustomPath);
		Path	   *input = path;
		Path	   *sets;

		if (needs_sorted_rows(plain->rollups) && root->group_pathkeys != NIL)
			input = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);
		sets = (Path *) CellarCreateGroupingSetsPath(root, grouped_rel, input, (List *) extra->havingQual,
													 plain->aggstrategy, plain->rollups, &aggregation->final_costs);
		cpath->path = *sets;
		cpath->path.type = T_CustomPath;
		cpath->path.pathtype = T_CustomScan;
		cpath->path.total_cost += cpu_operator_cost * sets->rows;
		cpath->custom_paths = list_make1(sets);
		cpath->methods = &cellar_grouping_sets_path_methods;
		add_path(grouped_rel, &cpath->path);
	}
}

static Plan *
plan_grouping_sets(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
				   List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	Agg		   *agg = linitial_node(Agg, custom_plans);
	ListCell   *lc;

	agg->aggsplit = AGGSPLIT_FINAL_DESERIAL;
	foreach(lc, agg->chain)
		lfirst_node(Agg, lc)->aggsplit = AGGSPLIT_FINAL_DESERIAL;
	cscan->scan.plan.targetlist = tlist;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	cscan->methods = &cellar_grouping_sets_methods;
	return &cscan->scan.plan;
}

const CustomPathMethods cellar_grouping_sets_path_methods = {
	.CustomName = CELLAR_GROUPING_SETS_NAME,
	.PlanCustomPath = plan_grouping_sets
};

const CustomScanMethods cellar_grouping_sets_methods = {
	.CustomName = CELLAR_GROUPING_SETS_NAME,
	.CreateCustomScanState = cellar_create_grouping_sets_state
};
