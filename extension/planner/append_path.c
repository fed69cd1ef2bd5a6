/*-------------------------------------------------------------------------
 *
 * append_path.c
 *	  Offers the planner an aggregation above a partitioned table, a table with
 *	  inheriting tables, or UNION ALL, whose members the cell aggregates.
 *
 *		Finalize HashAggregate			combines the groups of the members
 *		  Append
 *			Smart Scan Aggregate on m1	partial states of the member's rows
 *			Partial HashAggregate		of a member that the cell does not aggregate
 *			  Seq Scan on m2
 *
 * This is PostgreSQL's partial partitionwise aggregation, which PostgreSQL
 * considers only if enable_partitionwise_aggregate is on, and not for UNION ALL.
 *
 * The partial states of each member are computed from the member's own columns
 * and expressions: the target of the partial aggregation is translated for each
 * member, as PostgreSQL translates conditions.  A member aggregates its rows in
 * the cell if the cell can evaluate the translated target and if that is cheaper
 * than PostgreSQL's partial aggregation of the member.
 *
 * A member has only some rows of a group, so the cell omits no group for HAVING
 * or LIMIT.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/appendinfo.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "port/pg_bitutils.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* The paths of the members of an append relation. */
typedef struct MemberPaths
{
	List	   *paths;
	bool		aggregates;		/* the cell aggregates the rows of a member */
	bool		parallel_safe;
	double		groups;			/* of all paths */
} MemberPaths;

/*
 * Removes the placeholders around expressions of UNION ALL.  They keep an
 * expression apart from the expressions above the scan; the partial aggregation of
 * a member is directly above the scan.
 */
static Node *
without_placeholders(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, PlaceHolderVar) && ((PlaceHolderVar *) node)->phlevelsup == 0)
		return without_placeholders((Node *) ((PlaceHolderVar *) node)->phexpr, context);
	return expression_tree_mutator(node, without_placeholders, context);
}

/* Returns the target of the rows that the partial aggregation reads: keys, and columns for aggregates. */
static PathTarget *
partial_input(PlannerInfo *root, PathTarget *target)
{
	PathTarget *input = create_empty_pathtarget();
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (!IsA(lfirst(lc), Aggref))
			add_column_to_pathtarget(input, lfirst(lc),
									 get_pathtarget_sortgroupref(target, foreach_current_index(lc)));
	}
	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
			add_new_columns_to_pathtarget(input, pull_var_clause(lfirst(lc), PVC_RECURSE_AGGREGATES |
																 PVC_INCLUDE_PLACEHOLDERS));
	}
	return set_pathtarget_cost_width(root, input);
}

/* Sets the target of a member's partial aggregation. */
void
cellar_set_member_target(PlannerInfo *root, CellarAggregateSpec *member, List *exprs)
{
	PathTarget *target = copy_pathtarget(member->target);

	target->exprs = exprs;
	member->target = set_pathtarget_cost_width(root, target);
	member->input = partial_input(root, target);
}

/* Opens the table, and returns it if the cell can scan it, otherwise NULL. */
static Relation
open_scannable_table(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	Relation	relation;

	if (!cellar_is_scannable(rel, rte))
		return NULL;
	relation = table_open(rte->relid, NoLock);
	/* set_rel_pathlist has noted the reason when the scan is unsuitable. */
	if (cellar_scan_unsuitable(root, rel, rte, relation) == NULL)
		return relation;
	table_close(relation, NoLock);
	return NULL;
}

static bool
is_scannable_table(PlannerInfo *root, RelOptInfo *rel)
{
	Relation	relation = open_scannable_table(root, rel);

	if (relation == NULL)
		return false;
	table_close(relation, NoLock);
	return true;
}

/* Returns the partial aggregation of a table's rows in the cell, or NULL. */
Path *
cellar_create_table_member_path(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member)
{
	Relation	relation = open_scannable_table(root, rel);
	Path	   *path;

	if (relation == NULL)
		return NULL;
	path = cellar_create_member_path(root, rel, relation, member);
	table_close(relation, NoLock);
	return path;
}

/* Returns the cheapest path of the rows, or the cheapest one for a parallel worker. */
static Path *
cheapest_path(RelOptInfo *rel, bool parallel_safe)
{
	Path	   *cheapest = NULL;
	ListCell   *lc;

	if (!parallel_safe)
		return rel->cheapest_total_path;
	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);

		if (path->parallel_safe && path->param_info == NULL &&
			(cheapest == NULL || compare_path_costs(path, cheapest, TOTAL_COST) < 0))
			cheapest = path;
	}
	return cheapest;
}

/*
 * Returns PostgreSQL's partial aggregation of the member's rows, or NULL if the
 * rows do not have the columns of the member.
 */
static Path *
create_postgres_path(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member)
{
	CellarAggregateSpec aggregation = *member;
	Path	   *path = cheapest_path(rel, member->single_thread);

	while (path != NULL && IsA(path, ProjectionPath))
		path = ((ProjectionPath *) path)->subpath;
	if (path == NULL || path->param_info != NULL || !is_projection_capable_path(path))
		return NULL;
	cellar_estimate_groups(root, &aggregation, NIL, rel->rows);
	path = (Path *) create_projection_path(root, rel, path, member->input);
	return (Path *) create_agg_path(root, rel, path, member->target,
									member->group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									member->distinct ? AGGSPLIT_SIMPLE : AGGSPLIT_INITIAL_SERIAL,
									member->group_clause, NIL, &member->partial_costs, aggregation.groups);
}

/* Returns the cheaper path of a member that is a table, a subquery or a function, or NULL. */
static Path *
create_leaf_path(MemberPaths *members, PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member)
{
	bool		is_subquery = rel->rtekind == RTE_SUBQUERY;
	Path	   *cell = is_subquery ? cellar_create_subquery_member_path(root, rel, member) :
		cellar_create_table_member_path(root, rel, member);
	Path	   *path;

	if (cell != NULL && cellar_cost_factor == 0)
	{
		members->aggregates = true;
		return cell;
	}
	path = create_postgres_path(root, rel, member);
	if (cell == NULL || (path != NULL && compare_path_costs(path, cell, TOTAL_COST) < 0))
		return path;
	members->aggregates = true;
	return cell;
}

/*
 * Returns whether keys have the same collations in a member.  Those of UNION ALL may differ, and
 * equal strings of one collation may be two groups of the other.
 */
static bool
collations_are_equal(List *exprs, List *member_exprs)
{
	ListCell   *expr;
	ListCell   *member_expr;

	forboth(expr, exprs, member_expr, member_exprs)
	{
		if (exprCollation(lfirst(expr)) != exprCollation(lfirst(member_expr)))
			return false;
	}
	return true;
}

/* Returns whether a member is a table for a Smart Scan, or a subquery, which may read one. */
static bool
has_scannable_member(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	ListCell   *lc;

	check_stack_depth();
	if (!rte->inh)
		return rel->rtekind == RTE_SUBQUERY || is_scannable_table(root, rel);
	foreach(lc, root->append_rel_list)
	{
		AppendRelInfo *info = lfirst_node(AppendRelInfo, lc);
		RelOptInfo *child = root->simple_rel_array[info->child_relid];

		if (info->parent_relid == rel->relid && child != NULL && !IS_DUMMY_REL(child) &&
			has_scannable_member(root, child))
			return true;
	}
	return false;
}

/*
 * Adds the paths of all members.  Returns false if a member cannot return partial
 * states.
 */
static bool
add_members(MemberPaths *members, PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *aggregation)
{
	ListCell   *lc;

	check_stack_depth();
	if (!planner_rt_fetch(rel->relid, root)->inh)
	{
		Path	   *path = create_leaf_path(members, root, rel, aggregation);

		if (path == NULL)
			return false;
		members->paths = lappend(members->paths, path);
		members->groups += path->rows;
		members->parallel_safe &= path->parallel_safe;
		return true;
	}
	foreach(lc, root->append_rel_list)
	{
		AppendRelInfo *info = lfirst_node(AppendRelInfo, lc);
		CellarAggregateSpec member = *aggregation;
		RelOptInfo *child;
		Node	   *exprs;

		if (info->parent_relid != rel->relid)
			continue;
		child = root->simple_rel_array[info->child_relid];
		if (child == NULL || IS_DUMMY_REL(child))
			continue;
		exprs = adjust_appendrel_attrs(root, (Node *) aggregation->target->exprs, 1, &info);
		if (!collations_are_equal(aggregation->target->exprs, castNode(List, exprs)))
			return false;
		cellar_set_member_target(root, &member, castNode(List, without_placeholders(exprs, NULL)));
		if (!add_members(members, root, child, &member))
			return false;
	}
	return true;
}

/* Sets what an Append of the members returns. */
static Path *
set_groups(Path *append, const CellarAggregateSpec *aggregation, double groups)
{
	append->pathtarget = aggregation->target;
	append->pathkeys = NIL;
	append->rows = clamp_row_est(groups);
	return append;
}

/*
 * Returns an Append of partial aggregations of the members, or NULL if the cell
 * would aggregate none.  The parent of each path is the member, so that the Append
 * can exclude partitions when it starts.
 */
Path *
cellar_create_member_append(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *aggregation)
{
	MemberPaths members = {.parallel_safe = true};

	if (!add_members(&members, root, rel, aggregation) || !members.aggregates)
		return NULL;
	return set_groups(CellarCreateAppendPath(root, rel, members.paths, 0), aggregation, members.groups);
}

/* As in PostgreSQL: returns how many workers share the members, at least one worker. */
static int
append_workers(int members)
{
	return Min(Max(pg_leftmost_one_pos32(members) + 1, 1), cellar_workers_max());
}

/*
 * Returns a Gather of a Parallel Append, in which each process executes the next
 * member, or NULL.  One thread of the cell scans a member: small members are not
 * worth several threads, and the processes would compete for them.
 */
static Path *
create_parallel_append(PlannerInfo *root, RelOptInfo *rel, const RelOptInfo *upper_rel,
					   const CellarAggregateSpec *aggregation)
{
	CellarAggregateSpec single = *aggregation;
	MemberPaths members = {.parallel_safe = true};
	Path	   *path;
	int			workers;

	if (!enable_parallel_append || !root->glob->parallelModeOK || !rel->consider_parallel ||
		!upper_rel->consider_parallel || cellar_workers_max() == 0)
		return NULL;
	single.single_thread = true;
	if (!add_members(&members, root, rel, &single) || !members.aggregates || !members.parallel_safe ||
		list_length(members.paths) < 2)
		return NULL;
	workers = append_workers(list_length(members.paths));
	path = set_groups(CellarCreateAppendPath(root, rel, members.paths, workers), aggregation, members.groups);
	path->rows = clamp_row_est(path->rows / (workers + 1));
	return (Path *) create_gather_path(root, rel, path, path->pathtarget, NULL, &members.groups);
}

/*
 * Returns an Append, and possibly a parallel one, of partial aggregations of the
 * members, below the upper relation.  A cost factor of 0 prefers Smart Scans: all
 * other paths are dropped.
 */
static List *
offer_appends(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *upper_rel, const CellarAggregateSpec *aggregation)
{
	CellarAggregateSpec all = *aggregation;
	Path	   *path;
	Path	   *parallel;

	if (!has_scannable_member(root, rel))
		return NIL;
	all.grouping_sets = NIL;
	path = cellar_create_member_append(root, rel, &all);
	if (path == NULL)
		return NIL;
	if (cellar_cost_factor == 0)
		upper_rel->pathlist = NIL;
	parallel = create_parallel_append(root, rel, upper_rel, &all);
	return parallel == NULL ? list_make1(path) : list_make2(path, parallel);
}

/* Notes why the cell does not aggregate the members. */
static void
note_reason(PlannerInfo *root, const RelOptInfo *rel, const char *reason)
{
	const RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);

	if (rte->rtekind == RTE_RELATION)
		cellar_note_aggregate(rte->relid, 0, NULL, reason);
}

/* Adds a path for aggregates of which some use DISTINCT with one argument. */
static void
add_distinct_levels(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {0};
	CellarDistinctLevels *levels = cellar_create_distinct_levels(root, grouped_rel->reltarget, extra->havingQual);
	ListCell   *lc;

	if (levels == NULL)
		return;
	cellar_set_first_level(&aggregation, levels);
	cellar_estimate_groups(root, &aggregation, NIL, rel->rows);
	if (!cellar_has_duplicates(rel->rows, aggregation.groups))
	{
		note_reason(root, rel, "the rows have few duplicates for an aggregate with DISTINCT");
		return;
	}
	aggregation.scan.rel = rel;
	cellar_cost_distinct_levels(root, levels, &aggregation, rel->rows, grouped_rel, extra);

	/* A member does not have all values of a group. */
	aggregation.distinct_aggregates = NULL;
	aggregation.pruning = NULL;
	foreach(lc, offer_appends(root, rel, grouped_rel, &aggregation))
		cellar_add_final_levels(root, grouped_rel, levels, &aggregation, lfirst(lc), extra);
}

/*
 * Adds paths for GROUP BY, or for aggregates, over all members.
 */
void
cellar_add_grouped_append_paths(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	const char *reason = cellar_aggregation_unsuitable(root);
	CellarAggregateSpec aggregation = {
		.group_clause = cellar_group_clause(root),
		.grouping_sets = cellar_grouping_sets(grouped_rel)
	};
	ListCell   *lc;

	if (reason == NULL && cellar_has_partial_states(root, extra) && !cellar_can_hash_groups(root, extra))
		reason = "the group keys cannot be hashed";
	if (reason != NULL)
	{
		note_reason(root, rel, reason);
		return;
	}
	/* Paths of another extension may have replaced PostgreSQL's paths for the grouping sets. */
	if (root->parse->groupingSets != NIL && aggregation.grouping_sets == NIL)
		return;
	if (!cellar_has_partial_states(root, extra))
	{
		if (root->parse->groupingSets == NIL)
			add_distinct_levels(root, rel, grouped_rel, extra);
		return;
	}
	aggregation.target = cellar_partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
											   extra->havingQual);
	aggregation.computes_keys = true;
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation.partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation.final_costs);
	cellar_estimate_groups(root, &aggregation, extra->targetList, rel->rows);
	foreach(lc, offer_appends(root, rel, grouped_rel, &aggregation))
		cellar_add_final_paths(root, grouped_rel, &aggregation, lfirst(lc), extra);
}

/*
 * Adds a path for SELECT DISTINCT over all members.
 */
void
cellar_add_distinct_append_path(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *distinct_rel)
{
	CellarAggregateSpec aggregation = cellar_distinct_spec(root, rel);
	ListCell   *lc;

	if (!cellar_can_hash_distinct(root))
		return;
	cellar_estimate_groups(root, &aggregation, root->parse->targetList, rel->rows);
	foreach(lc, offer_appends(root, rel, distinct_rel, &aggregation))
		cellar_add_final_distinct_path(root, distinct_rel, &aggregation, lfirst(lc));
}

/* Returns whether the relation has members whose rows PostgreSQL appends. */
bool
cellar_is_append_relation(PlannerInfo *root, RelOptInfo *rel)
{
	return rel->reloptkind == RELOPT_BASEREL && planner_rt_fetch(rel->relid, root)->inh && !IS_DUMMY_REL(rel) &&
		bms_is_empty(rel->lateral_relids) && cellar_offload_processing && IsUnderPostmaster;
}
