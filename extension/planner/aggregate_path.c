/*-------------------------------------------------------------------------
 *
 * aggregate_path.c
 *	  Offers the planner a Smart Scan whose rows the cell aggregates.
 *
 * The path replaces PostgreSQL's partial aggregation: it outputs group keys
 * and serialized transition states, and PostgreSQL's finalizing aggregation
 * runs above it and evaluates HAVING.  The cell omits groups that the query
 * cannot need; see group_pruning.c.  Several threads of the cell share the
 * scan where PostgreSQL would start parallel workers.
 *
 * distinct_path.c uses such a path for aggregates with DISTINCT,
 * computed_keys_path.c for group keys that the cell does not evaluate.
 *
 * Below the path is PostgreSQL's own partial aggregation over a plain Smart
 * Scan, for rows that the cell does not aggregate; see executor/aggregate.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* Returns the members that are not GROUPING(), which an aggregation computes from its grouping sets. */
static List *
without_grouping(List *exprs)
{
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, exprs)
	{
		if (!IsA(lfirst(lc), GroupingFunc))
			others = lappend(others, lfirst(lc));
	}
	return others;
}

/*
 * As make_partial_grouping_target, which is not exported: the grouping
 * columns, and aggregates in partial mode.
 */
PathTarget *
cellar_partial_target(PlannerInfo *root, PathTarget *grouping_target, List *group_clause, Node *having)
{
	PathTarget *target = create_empty_pathtarget();
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, grouping_target->exprs)
	{
		Index		sortgroupref = get_pathtarget_sortgroupref(grouping_target, foreach_current_index(lc));

		if (sortgroupref != 0 &&
			get_sortgroupref_clause_noerr(sortgroupref, group_clause) != NULL)
			add_column_to_pathtarget(target, (Expr *) CellarUngrouped(root, lfirst(lc)), sortgroupref);
		else
			others = lappend(others, lfirst(lc));
	}
	if (having != NULL)
		others = lappend(others, having);
	others = without_grouping(pull_var_clause((Node *) others,
											  PVC_INCLUDE_AGGREGATES |
											  PVC_RECURSE_WINDOWFUNCS |
											  PVC_INCLUDE_PLACEHOLDERS));
	add_new_columns_to_pathtarget(target, (List *) CellarUngrouped(root, (Node *) others));
	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
		{
			Aggref	   *aggref = makeNode(Aggref);

			memcpy(aggref, lfirst(lc), sizeof(Aggref));
			mark_partial_aggref(aggref, AGGSPLIT_INITIAL_SERIAL);
			lfirst(lc) = aggref;
		}
	}
	return set_pathtarget_cost_width(root, target);
}

/* Returns the aggregates with DISTINCT as a list for custom_private of a path. */
List *
cellar_distinct_private(const CellarDistinct *distinct)
{
	if (distinct == NULL)
		return NIL;
	return list_make2(list_make4_int(distinct->nkeys, distinct->argument, distinct->filter,
									 list_length(distinct->aggregates)),
					  distinct->aggregates);
}

/*
 * Returns the target of the rows that PostgreSQL's partial aggregation reads, which the
 * path returns.  PostgreSQL 16 and later neither mark group keys that equal constants
 * in the target nor add them if they are expressions.
 */
PathTarget *
cellar_partial_input(PlannerInfo *root, const Path *path, const CellarAggregateSpec *aggregation)
{
	PathTarget *keys = aggregation->target;
	PathTarget *input;
	ListCell   *lc;

	if (aggregation->input != NULL)
		return aggregation->input;
	input = copy_pathtarget(path->pathtarget);
	foreach(lc, keys->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(keys, foreach_current_index(lc));
		int			found = -1;
		bool		marked = ref == 0;
		ListCell   *column;

		foreach(column, input->exprs)
		{
			Index		other = get_pathtarget_sortgroupref(input, foreach_current_index(column));

			marked |= other == ref;
			if (other == 0 && equal(lfirst(column), lfirst(lc)))
				found = foreach_current_index(column);
		}
		if (marked)
			continue;
		if (found < 0)
			add_column_to_pathtarget(input, lfirst(lc), ref);
		else
		{
			if (input->sortgrouprefs == NULL)
				input->sortgrouprefs = palloc0(list_length(input->exprs) * sizeof(Index));
			input->sortgrouprefs[found] = ref;
		}
	}
	return set_pathtarget_cost_width(root, input);
}

/*
 * Creates and costs the path.  Its child is the partial aggregation of rows
 * that the cell passes through, which are expected to be few.
 */
static Path *
create_aggregate_path(PlannerInfo *root, const CellarAggregateSpec *aggregation)
{
	RelOptInfo *rel = aggregation->scan.rel;
	Path	   *scan = cellar_create_scan_path(root, &aggregation->scan);
	Path	   *rest;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = aggregation->target;
	path->param_info = NULL;
	path->parallel_aware = false;

	/* Several processes that execute the scan would compete for the threads. */
	path->parallel_safe = rel->consider_parallel && aggregation->scan.threads == 1 && aggregation->scan.index == NULL;
	path->parallel_workers = 0;
	path->pathkeys = NIL;
	cpath->flags = aggregation->projects ? CUSTOMPATH_SUPPORT_PROJECTION : 0;
	cpath->methods = &cellar_aggregate_path_methods;
	cpath->custom_private = list_make5(aggregation->pruning == NULL ? NIL :
									   cellar_group_pruning_private(aggregation->pruning),
									   cellar_distinct_private(aggregation->distinct_aggregates),
									   aggregation->values, NIL,
									   aggregation->subquery_target == NULL ? NIL :
									   make_tlist_from_pathtarget(aggregation->subquery_target));

	cellar_cost_aggregate(root, path, aggregation);

	/* EXPLAIN shows the cost at the scan too, where the time is spent. */
	scan->rows = 1;
	scan->startup_cost = path->startup_cost;
	scan->total_cost = path->startup_cost;
	((CustomPath *) scan)->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	scan->pathtarget = cellar_partial_input(root, scan, aggregation);
	rest = (Path *) create_agg_path(root, rel, scan, aggregation->target,
									aggregation->group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									aggregation->distinct ? AGGSPLIT_SIMPLE : AGGSPLIT_INITIAL_SERIAL,
									aggregation->group_clause, NIL,
									&aggregation->partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);
	return path;
}

/* Creates the cheaper path: a scan of the table, or of an index that has all columns of the query. */
static Path *
create_cheapest_path(PlannerInfo *root, const CellarAggregateSpec *aggregation)
{
	CellarAggregateSpec indexed = *aggregation;
	Path	   *path = create_aggregate_path(root, aggregation);
	Path	   *index_path;

	indexed.scan.index = cellar_covering_index(aggregation->scan.rel, aggregation->relid);
	/* A parallel worker cannot execute a scan of an index. */
	if (indexed.scan.index == NULL || aggregation->single_thread)
		return path;
	indexed.scan.stored_fraction = 1;
	indexed.scan.threads = cellar_index_threads(&indexed.scan);
	index_path = create_aggregate_path(root, &indexed);
	return index_path->total_cost < path->total_cost || cellar_index_scans == CELLAR_INDEX_SCANS_ALWAYS ?
		index_path : path;
}

/*
 * Creates paths for an upper relation: one for all threads of the scan and, for a
 * subquery, one that parallel workers can execute.  Returns NIL, and notes that, if
 * aggregating the rows of an index-only scan is cheaper.
 */
List *
cellar_offer_aggregate_paths(PlannerInfo *root, const CellarAggregateSpec *aggregation, RelOptInfo *upper_rel)
{
	CellarAggregateSpec single = *aggregation;
	Path	   *path = create_cheapest_path(root, aggregation);
	Path	   *repeated;
	int			workers;

	if (cellar_index_only_scan_is_cheaper(aggregation->scan.rel, path->total_cost,
										  cellar_aggregated_row_cost(aggregation)))
	{
		cellar_note_aggregate(aggregation->relid, 0, NULL, "an index-only scan is cheaper");
		return NIL;
	}

	cellar_note_cheaper(aggregation->relid, true);

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
		upper_rel->pathlist = NIL;
	if (root->query_level == 1 || !upper_rel->consider_parallel || path->parallel_safe)
		return list_make1(path);

	/*
	 * Each worker executes the path of a subquery: the cell does the work, and has
	 * the groups, once for each.  Workers run at the same time, so half of the
	 * work counts.
	 */
	workers = cellar_workers_max();
	single.scan.threads = Max(workers, 1);
	if (!cellar_groups_fit(&single))
		return list_make1(path);
	single.scan.threads = 1;
	repeated = create_aggregate_path(root, &single);
	repeated->startup_cost *= (1 + workers) / 2.0;
	repeated->total_cost *= (1 + workers) / 2.0;
	return list_make2(path, repeated);
}

/* Adds paths that finalize the partial states of a path. */
void
cellar_add_final_paths(PlannerInfo *root, RelOptInfo *grouped_rel,
					   const CellarAggregateSpec *aggregation,
					   Path *path, GroupPathExtraData *extra)
{
	List	   *having = (List *) extra->havingQual;
	double		groups = Min(aggregation->groups, path->rows);

	if (aggregation->grouping_sets != NIL)
	{
		cellar_add_grouping_sets_paths(root, grouped_rel, aggregation, path, extra);
		return;
	}
	if (aggregation->group_clause == NIL)
	{
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_PLAIN,
								 AGGSPLIT_FINAL_DESERIAL, NIL, having,
								 &aggregation->final_costs, 1));
		return;
	}
	if (extra->flags & GROUPING_CAN_USE_HASH)
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_HASHED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, groups));
	if (extra->flags & GROUPING_CAN_USE_SORT)
	{
		Path	   *sorted = path;

		/* Constant group keys need no sort. */
		if (root->group_pathkeys != NIL)
			sorted = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);

		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, sorted, grouped_rel->reltarget, AGG_SORTED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, groups));
	}
}

/*
 * Returns the keys of GROUP BY that Cellar groups by.  PostgreSQL 16 and later remove
 * redundant keys: those that equal a constant or another key, and those that depend on
 * a primary key.
 *
 * Cellar keeps expressions: an expression that is no key is computed from its columns
 * after grouping, and groups by the columns are finer.  A column does no harm, because
 * rows with equal keys have equal values of it.  If no key is left, Cellar keeps all:
 * unlike an aggregation without GROUP BY, one whose keys equal constants returns no row
 * for an empty input.
 */
List *
cellar_group_clause(PlannerInfo *root)
{
	List	   *clause = NIL;
	ListCell   *lc;

	if (CellarGroupClause(root) == NIL || CellarGroupClause(root) == root->parse->groupClause)
		return root->parse->groupClause;
	foreach(lc, root->parse->groupClause)
	{
		SortGroupClause *key = lfirst_node(SortGroupClause, lc);

		if (list_member(CellarGroupClause(root), key) ||
			!IsA(get_sortgroupclause_expr(key, root->processed_tlist), Var))
			clause = lappend(clause, key);
	}
	return clause;
}

/*
 * Returns whether the target of the aggregation contains all keys.  For window functions,
 * PostgreSQL 16 and later replace keys that equal constants by their columns.
 */
static bool
has_group_keys(PlannerInfo *root)
{
	PathTarget *target = root->upper_targets[UPPERREL_GROUP_AGG];
	ListCell   *lc;

	if (target == NULL)
		return true;
	foreach(lc, cellar_group_clause(root))
	{
		Index		ref = lfirst_node(SortGroupClause, lc)->tleSortGroupRef;
		bool		found = false;

		for (int i = 0; i < list_length(target->exprs) && !found; i++)
			found = get_pathtarget_sortgroupref(target, i) == ref;
		if (!found)
			return false;
	}
	return true;
}

/* Returns why the cell cannot contribute to the aggregation of the query, or NULL. */
const char *
cellar_aggregation_unsuitable(PlannerInfo *root)
{
	if (root->parse->hasTargetSRFs)
		return "the select list contains a set-returning function";
	if (!has_group_keys(root))
		return "a window function is computed from groups whose keys equal constants";
	return NULL;
}

/*
 * Returns whether the cell can compute partial states of all aggregates, and hash the group
 * keys.  PostgreSQL's planner does not consider partial states for grouping sets.
 */
bool
cellar_has_partial_states(const PlannerInfo *root, const GroupPathExtraData *extra)
{
	if (root->parse->groupingSets != NIL)
		return !root->hasNonPartialAggs && !root->hasNonSerialAggs;
	return (extra->flags & GROUPING_CAN_PARTIAL_AGG) != 0;
}

/*
 * Returns whether a hash table can have the group keys, of all grouping sets together.  The
 * flags of PostgreSQL 16 and later do not consider keys that equal constants.
 */
bool
cellar_can_hash_groups(PlannerInfo *root, const GroupPathExtraData *extra)
{
	List	   *group_clause = cellar_group_clause(root);

	if (root->parse->groupingSets != NIL)
		return grouping_is_hashable(group_clause);
	return group_clause == NIL ||
		((extra->flags & GROUPING_CAN_USE_HASH) != 0 && grouping_is_hashable(group_clause));
}

/* Returns the expressions of the target that are not aggregates. */
static List *
key_expressions(PathTarget *target)
{
	List	   *keys = NIL;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (!IsA(lfirst(lc), Aggref))
			keys = lappend(keys, lfirst(lc));
	}
	return keys;
}

/* Sets the number of groups in `rows` rows. */
void
cellar_estimate_groups(PlannerInfo *root, CellarAggregateSpec *aggregation, List *targetlist, double rows)
{
	aggregation->groups = 1;
	if (aggregation->group_clause != NIL)
		aggregation->groups =
			cellar_num_groups(root,
							  aggregation->input != NULL ? key_expressions(aggregation->target) :
							  get_sortgrouplist_exprs(aggregation->group_clause, targetlist),
							  rows);

	/*
	 * PostgreSQL's estimate for several columns is at most about a tenth of the
	 * rows.  Where no grouping set has all keys, PostgreSQL's own plan has far
	 * fewer groups than the cell returns.
	 */
	if (aggregation->grouping_sets != NIL && !cellar_has_finest_set(aggregation))
	{
		PathTarget	keys = {.exprs = key_expressions(aggregation->target)};

		aggregation->groups = Max(aggregation->groups, Min(rows, cellar_count_combinations(root, &keys, rows)));
	}
}

/*
 * Fills the rest of *aggregation, whose target, input and group_clause are set.
 * Returns false, and notes why, when the cell cannot aggregate the rows.
 */
bool
cellar_init_aggregation(CellarAggregateSpec *aggregation, PlannerInfo *root, RelOptInfo *rel,
						Relation relation, List *targetlist)
{
	CellarScanSpec *scan = &aggregation->scan;

	aggregation->relid = RelationGetRelid(relation);
	if (!cellar_restrictions_offloadable(root, rel, &scan->storage))
	{
		cellar_note_aggregate(aggregation->relid, 0, NULL,
							  "a condition of the scan is not offloadable");
		return false;
	}
	if (!cellar_target_offloadable(aggregation->target, aggregation->values, rel, aggregation->relid))
		return false;

	scan->rel = rel;
	scan->stored_fraction = cellar_stored_fraction(relation);
	scan->group_bytes = cellar_group_bytes(relation);
	scan->threads = aggregation->single_thread ? 1 : cellar_scan_threads(root, rel);
	cellar_estimate_groups(root, aggregation, targetlist, rel->rows);
	return true;
}

/*
 * Returns the cheapest path for the partial aggregation of a member of an append
 * relation, whose target, input and costs are set, or NULL.
 */
Path *
cellar_create_member_path(PlannerInfo *root, RelOptInfo *rel, Relation relation, const CellarAggregateSpec *member)
{
	CellarAggregateSpec aggregation = *member;
	bool		computed = member->computes_keys && cellar_choose_computed_keys(&aggregation, root, rel, member);
	Path	   *path;

	if (!cellar_init_aggregation(&aggregation, root, rel, relation, NIL))
		return NULL;
	path = create_cheapest_path(root, &aggregation);
	cellar_note_cheaper(aggregation.relid, true);
	return computed ? (Path *) create_projection_path(root, rel, path, member->target) : path;
}

/*
 * Adds paths for GROUP BY, or for aggregates over the whole table.
 */
void
cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	const char *reason = cellar_aggregation_unsuitable(root);
	CellarAggregateSpec aggregation = {
		.group_clause = cellar_group_clause(root),
		.grouping_sets = cellar_grouping_sets(grouped_rel)
	};
	ListCell   *lc;

	if (reason != NULL)
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL, reason);
		return;
	}
	/* Paths of another extension may have replaced PostgreSQL's paths for the grouping sets. */
	if (root->parse->groupingSets != NIL && aggregation.grouping_sets == NIL)
		return;
	if (!cellar_has_partial_states(root, extra))
	{
		cellar_add_distinct_aggregate_paths(root, rel, relation, grouped_rel, extra);
		return;
	}
	if (!cellar_can_hash_groups(root, extra))
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL, "the group keys cannot be hashed");
		return;
	}
	aggregation.target = cellar_partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
											   extra->havingQual);
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation.partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation.final_costs);
	if (cellar_add_computed_keys_path(root, rel, relation, grouped_rel, extra, &aggregation) ||
		!cellar_init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return;
	aggregation.pruning = cellar_choose_group_pruning(root, &aggregation, grouped_rel, aggregation.group_clause,
													  (List *) extra->havingQual);

	foreach(lc, cellar_offer_aggregate_paths(root, &aggregation, grouped_rel))
		cellar_add_final_paths(root, grouped_rel, &aggregation, lfirst(lc), extra);
}

/* Returns whether a hash aggregation can evaluate SELECT DISTINCT. */
bool
cellar_can_hash_distinct(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	List	   *clause = CellarDistinctClause(root);

	return !parse->hasDistinctOn && !parse->hasTargetSRFs && !parse->hasWindowFuncs && clause != NIL &&
		enable_hashagg && grouping_is_hashable(clause);
}

/* Returns the aggregation of the relation's rows for SELECT DISTINCT: groups without aggregates. */
CellarAggregateSpec
cellar_distinct_spec(PlannerInfo *root, const RelOptInfo *rel)
{
	return (CellarAggregateSpec)
	{
		.target = rel->reltarget,
		.input = rel->reltarget,
		.group_clause = CellarDistinctClause(root),
		.distinct = true
	};
}

/* Adds a path that merges the groups of a path for SELECT DISTINCT. */
void
cellar_add_final_distinct_path(PlannerInfo *root, RelOptInfo *distinct_rel, const CellarAggregateSpec *aggregation,
							   Path *path)
{
	add_path(distinct_rel, (Path *)
			 create_agg_path(root, distinct_rel, path, aggregation->target, AGG_HASHED, AGGSPLIT_SIMPLE,
							 aggregation->group_clause, NIL, NULL, aggregation->groups));
}

/*
 * Adds a path for SELECT DISTINCT: groups without aggregates, which a hash
 * aggregation above merges.
 */
void
cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *distinct_rel)
{
	CellarAggregateSpec aggregation = cellar_distinct_spec(root, rel);
	ListCell   *lc;

	if (!cellar_can_hash_distinct(root) ||
		!cellar_init_aggregation(&aggregation, root, rel, relation, root->parse->targetList))
		return;
	foreach(lc, cellar_offer_aggregate_paths(root, &aggregation, distinct_rel))
		cellar_add_final_distinct_path(root, distinct_rel, &aggregation, lfirst(lc));
}
