/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Planner hooks: offer Smart Scans for a relation and for the grouping,
 *	  DISTINCT and ORDER BY steps directly above one relation; correct
 *	  estimates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"

#include "cellar/planner.h"

static set_rel_pathlist_hook_type previous_set_rel_pathlist_hook = NULL;
static set_join_pathlist_hook_type previous_set_join_pathlist_hook = NULL;
static create_upper_paths_hook_type previous_create_upper_paths_hook = NULL;

static void
set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Relation	relation;
	const char *reason;

	if (previous_set_rel_pathlist_hook != NULL)
		previous_set_rel_pathlist_hook(root, rel, rti, rte);

	cellar_add_group_keys(root, rel, rte);
	if (!cellar_is_scannable(rel, rte))
		return;

	/* The planner already locked the relation. */
	relation = table_open(rte->relid, NoLock);

	reason = cellar_scan_unsuitable(root, rel, rte, relation);
	if (reason != NULL)
		cellar_note_scan(rte->relid, reason);
	else
		cellar_add_scan_paths(root, rel, relation);

	table_close(relation, NoLock);
}

static void
set_join_pathlist(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
				  JoinType jointype, JoinPathExtraData *extra)
{
	if (previous_set_join_pathlist_hook != NULL)
		previous_set_join_pathlist_hook(root, joinrel, outerrel, innerrel, jointype, extra);

	if (jointype == JOIN_ANTI)
		cellar_correct_antijoin(root, joinrel, outerrel, innerrel);
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	RangeTblEntry *rte;
	Relation	relation;

	if (previous_create_upper_paths_hook != NULL)
		previous_create_upper_paths_hook(root, stage, input_rel, output_rel, extra);

	if (stage == UPPERREL_GROUP_AGG && input_rel->reloptkind == RELOPT_JOINREL)
		cellar_add_lookup_paths(root, input_rel, output_rel, extra);
	if (stage == UPPERREL_DISTINCT && input_rel->reloptkind == RELOPT_JOINREL)
		cellar_add_distinct_lookup_paths(root, input_rel, output_rel);
	if ((stage != UPPERREL_GROUP_AGG && stage != UPPERREL_DISTINCT && stage != UPPERREL_ORDERED) ||
		!IS_SIMPLE_REL(input_rel))
		return;
	if (cellar_is_append_relation(root, input_rel))
	{
		if (stage == UPPERREL_GROUP_AGG)
			cellar_add_grouped_append_paths(root, input_rel, output_rel, extra);
		else if (stage == UPPERREL_DISTINCT)
			cellar_add_distinct_append_path(root, input_rel, output_rel);
		return;
	}
	rte = planner_rt_fetch(input_rel->relid, root);
	if (!cellar_is_scannable(input_rel, rte))
		return;

	/* set_rel_pathlist has noted the reason when the scan is unsuitable. */
	relation = table_open(rte->relid, NoLock);
	if (cellar_scan_unsuitable(root, input_rel, rte, relation) == NULL)
	{
		if (stage == UPPERREL_GROUP_AGG)
			cellar_add_grouped_paths(root, input_rel, relation, output_rel, extra);
		else if (stage == UPPERREL_DISTINCT)
			cellar_add_distinct_path(root, input_rel, relation, output_rel);
		else
			cellar_add_top_n_paths(root, input_rel, relation, output_rel);
	}
	table_close(relation, NoLock);
}

void
cellar_install_planner_hooks(void)
{
	previous_set_rel_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
	previous_set_join_pathlist_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = set_join_pathlist;
	previous_create_upper_paths_hook = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
	cellar_install_join_filters();
	cellar_install_jit_decision();
}
