/*-------------------------------------------------------------------------
 *
 * lookup_path.c
 *	  Offers the planner a Smart Scan Aggregate above joins: the cell joins
 *	  the rows of one table, the outer table, with lookup tables while
 *	  scanning, and aggregates the joined rows.
 *
 * The other relations of the query are divided into components, each of which
 * is joined with the outer table, and possibly with earlier components, by
 * equalities of integers, dates or timestamps (lookup_clauses.c).  PostgreSQL
 * evaluates a component by its cheapest path, and the rows become a lookup table.
 *
 * The child of the Smart Scan Aggregate is PostgreSQL's own partial aggregation
 * over hash joins of the Smart Scan with the components.  Between a component
 * and its Hash node, the node Lookup Table (executor/lookup_table.c) collects
 * keys and columns for the cell.  The hash joins receive the rows that the cell
 * returns: rows of blocks that were passed through, rows with more partners than
 * the cell combines, and all rows when a lookup table is too large.
 *
 * The Smart Scan executes the components when it starts.  A hash join executes
 * its inner side, which is then executed again, only if the cell has returned a
 * row.
 *
 * Joins are inner joins, semijoins, antijoins and left joins of the outer table
 * with a component.  If a component is the left side of a left join with the
 * outer table, the cell evaluates an inner join, and PostgreSQL's hash join adds
 * a row for each row of the component.  Such a row has NULLs in place of the
 * columns of the outer table, so it changes no group if all aggregates ignore
 * NULL.
 *
 * Not supported: full joins, and for joins other than inner joins, clauses that
 * are not equalities of columns, except for one comparison in a semijoin or an
 * antijoin.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Cost of looking a row of the scan up in a lookup table. */
#define LOOKUP_COST			(0.2 * cpu_operator_cost)

/* Cost of a row that PostgreSQL adds for a right join. */
#define RIGHT_ROW_COST		(2 * cpu_tuple_cost)

/*
 * Sets the costs of the joins to those of the Smart Scan Aggregate.  A hash join
 * whose outer side has no startup cost executes that side first, and builds its
 * hash table only if there are outer rows.
 */
void
cellar_set_join_costs(Path *path, const Path *aggregate)
{
	path->rows = 1;
	path->startup_cost = 0;
	path->total_cost = aggregate->startup_cost;
	if (IsA(path, HashPath))
		cellar_set_join_costs(((HashPath *) path)->jpath.outerjoinpath, aggregate);
}

/*
 * Replaces the columns of lookup tables by columns of the outer table, for which
 * the same expressions are offloadable.
 */
static Node *
replace_columns(Node *node, void *arg)
{
	Index	   *outer_table = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		/* The cell has no system columns of lookup tables. */
		if (var->varlevelsup == 0 && (var->varno == *outer_table || var->varattno > 0))
		{
			var = copyObject(var);
			var->varno = *outer_table;
			CellarClearNullingRels(var);
			return (Node *) var;
		}
	}
	return expression_tree_mutator(node, replace_columns, arg);
}

Node *
cellar_as_outer_columns(Node *node, Index outer_table)
{
	return replace_columns(node, &outer_table);
}

/* Returns whether the cell can evaluate the target over the joined rows. */
static bool
target_offloadable(RelOptInfo *outer, Oid relid, PathTarget *target)
{
	PathTarget *replaced = copy_pathtarget(target);
	const char *reason = NULL;

	if (cellar_fails_early((Node *) target->exprs))
		reason = "an expression over joined rows contains a function that is not built in";
	replaced->exprs = castNode(List, cellar_as_outer_columns((Node *) replaced->exprs, outer->relid));
	if (reason == NULL)
		reason = cellar_target_unsuitable(replaced, NIL, outer->relid, NULL);
	if (reason != NULL)
		cellar_note_aggregate(relid, 0, NULL, reason);
	return reason == NULL;
}

/* The step above the joins for which paths are created. */
typedef struct LookupStep
{
	PlannerInfo *root;
	RelOptInfo *input_rel;
	RelOptInfo *output_rel;
	GroupPathExtraData *extra;	/* NULL for SELECT DISTINCT */
	CellarDistinctLevels *levels;	/* of aggregates with DISTINCT, or NULL */
	List	   *targetlist;
	double		rows;			/* of the joins */
} LookupStep;

/* Adds the paths above a Smart Scan Aggregate. */
static void
add_final_paths(const LookupStep *step, const CellarAggregateSpec *aggregation, Path *path)
{
	if (step->extra == NULL)
		cellar_add_final_distinct_path(step->root, step->output_rel, aggregation, path);
	else if (step->levels != NULL)
		cellar_add_final_levels(step->root, step->output_rel, step->levels, aggregation, path, step->extra);
	else if (aggregation->distinct)
		cellar_add_final_deduplicated_path(step->root, step->output_rel, aggregation, path, step->extra);
	else
		cellar_add_final_paths(step->root, step->output_rel, aggregation, path, step->extra);
}

/* Adds paths with one base relation as the outer table, and one division of the others. */
static void
add_paths(const LookupStep *step, CellarAggregateSpec aggregation, List *components)
{
	PlannerInfo *root = step->root;
	RelOptInfo *outer = aggregation.scan.rel;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;
	Path	   *rest;
	CellarLookupJoins joins;
	Cost		lookup_cost;

	if (!cellar_create_lookup_joins(root, &aggregation, components, &joins))
		return;

	/* PostgreSQL adds rows to the groups of a right join. */
	if (joins.is_right)
	{
		if (step->levels != NULL || !cellar_ignores_missing_rows(root, aggregation.target, outer))
			return;
		aggregation.pruning = NULL;
	}

	path->pathtype = T_CustomScan;
	path->parent = outer;
	path->pathtarget = aggregation.target;
	path->parallel_safe = false;
	cpath->custom_private = list_make5(aggregation.pruning == NULL ? NIL :
									   cellar_group_pruning_private(aggregation.pruning),
									   cellar_distinct_private(aggregation.distinct_aggregates), NIL, joins.conditions,
									   NIL);
	cpath->methods = &cellar_aggregate_path_methods;
	cellar_cost_aggregate(root, path, &aggregation);
	lookup_cost = joins.cost +
		joins.right_rows * (RIGHT_ROW_COST + aggregation.partial_costs.transCost.per_tuple) +
		LOOKUP_COST * joins.lookups / aggregation.scan.threads;
	path->rows += joins.right_rows;
	path->startup_cost += lookup_cost;
	path->total_cost += lookup_cost;

	/* EXPLAIN shows the cost at the scan too, where the time is spent. */
	cellar_set_join_costs(joins.path, path);
	joins.path->pathtarget = cellar_partial_input(root, joins.path, &aggregation);
	rest = (Path *) create_agg_path(root, outer, joins.path, aggregation.target,
									aggregation.group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									aggregation.distinct ? AGGSPLIT_SIMPLE : AGGSPLIT_INITIAL_SERIAL,
									aggregation.group_clause, NIL, &aggregation.partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);

	add_final_paths(step, &aggregation, path);
}

/*
 * Sets the costs of the aggregation and which groups the query needs.  Returns
 * false if the rows have too few duplicates.
 */
static bool
cost_step(const LookupStep *step, CellarAggregateSpec *aggregation)
{
	PlannerInfo *root = step->root;

	if (step->extra == NULL)
		return true;
	if (step->levels != NULL)
	{
		if (!cellar_levels_pay(aggregation, step->rows))
			return false;
		cellar_cost_distinct_levels(root, step->levels, aggregation, step->rows, step->output_rel, step->extra);
		return true;
	}
	if (aggregation->distinct)
	{
		get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &aggregation->final_costs);
		return cellar_has_duplicates(step->rows,
									 cellar_count_combinations(root, aggregation->target, step->rows));
	}
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation->partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation->final_costs);
	aggregation->pruning = cellar_choose_group_pruning(root, aggregation, step->output_rel, aggregation->group_clause,
													   (List *) step->extra->havingQual);
	return true;
}

/* Adds paths with one base relation as the outer table. */
static void
add_outer_table_paths(const LookupStep *step, CellarAggregateSpec aggregation, RelOptInfo *outer, Relation relation)
{
	List	   *divisions = cellar_divide_relations(step->root, outer,
													bms_difference(step->input_rel->relids, outer->relids));
	ListCell   *lc;

	if (divisions == NIL || !cellar_restrictions_offloadable(step->root, outer, &aggregation.scan.storage))
		return;
	aggregation.relid = RelationGetRelid(relation);
	if (!target_offloadable(outer, aggregation.relid, aggregation.target))
		return;
	aggregation.scan.rel = outer;
	aggregation.scan.stored_fraction = cellar_stored_fraction(relation);
	aggregation.scan.group_bytes = cellar_group_bytes(relation);
	aggregation.scan.threads = cellar_scan_threads(step->root, outer);
	aggregation.scan.join_filter_fraction = 1;
	aggregation.rows = step->rows;
	cellar_estimate_groups(step->root, &aggregation, step->targetlist, step->rows);
	if (!cost_step(step, &aggregation))
		return;
	foreach(lc, divisions)
		add_paths(step, aggregation, lfirst(lc));
}

/*
 * Adds paths for a step above joins.  The aggregation has target, input and
 * group_clause.
 */
static void
add_lookup_paths(LookupStep *step, const CellarAggregateSpec *aggregation)
{
	PlannerInfo *root = step->root;
	RelOptInfo *output_rel = step->output_rel;
	List	   *other_paths = output_rel->pathlist;
	List	   *lookup_paths;
	ListCell   *lc;
	int			relid = -1;

	step->rows = cellar_join_rows(root, step->input_rel);
	output_rel->pathlist = NIL;
	while ((relid = bms_next_member(step->input_rel->relids, relid)) >= 0)
	{
		RelOptInfo *outer = root->simple_rel_array[relid];
		RangeTblEntry *rte = planner_rt_fetch(relid, root);
		Relation	relation;

		if (outer == NULL || !cellar_is_scannable(outer, rte))
			continue;
		relation = table_open(rte->relid, NoLock);
		if (cellar_scan_unsuitable(root, outer, rte, relation) == NULL)
			add_outer_table_paths(step, *aggregation, outer, relation);
		table_close(relation, NoLock);
	}

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	lookup_paths = output_rel->pathlist;
	if (lookup_paths != NIL && cellar_cost_factor == 0)
		return;
	output_rel->pathlist = other_paths;
	if (lookup_paths == NIL)
		return;
	cellar_correct_join_costs(root, output_rel);
	foreach(lc, lookup_paths)
		add_path(output_rel, lfirst(lc));
}

/* Returns whether the cell may evaluate joins of the query. */
static bool
joins_suitable(PlannerInfo *root, RelOptInfo *input_rel)
{
	return cellar_lookup_joins && enable_hashjoin && root->placeholder_list == NIL &&
		!root->hasPseudoConstantQuals && bms_is_empty(input_rel->lateral_relids) && !IS_DUMMY_REL(input_rel);
}

/*
 * Adds paths for GROUP BY, or for aggregates, above joins.
 */
void
cellar_add_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *grouped_rel,
						GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {
		.group_clause = cellar_group_clause(root),
		.grouping_sets = cellar_grouping_sets(grouped_rel)
	};
	LookupStep	step = {
		.root = root,
		.input_rel = input_rel,
		.output_rel = grouped_rel,
		.extra = extra,
		.targetlist = extra->targetList
	};

	if (!joins_suitable(root, input_rel) || cellar_aggregation_unsuitable(root) != NULL ||
		(root->parse->groupingSets != NIL && aggregation.grouping_sets == NIL))
		return;
	if (cellar_has_partial_states(root, extra))
	{
		if (!cellar_can_hash_groups(root, extra))
			return;
		aggregation.target = cellar_partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
												   extra->havingQual);
		add_lookup_paths(&step, &aggregation);
		return;
	}

	/* Aggregates with DISTINCT, as for one relation */
	if (root->parse->groupingSets != NIL)
		return;
	step.levels = cellar_create_distinct_levels(root, grouped_rel->reltarget, extra->havingQual);
	if (step.levels != NULL)
	{
		cellar_set_first_level(&aggregation, step.levels);
		add_lookup_paths(&step, &aggregation);
		return;
	}
	aggregation.group_clause = NIL;
	if (cellar_init_deduplication(&aggregation, root, grouped_rel->reltarget, extra->havingQual) &&
		cellar_can_sort_groups(root, extra))
		add_lookup_paths(&step, &aggregation);
}

/*
 * Adds paths for SELECT DISTINCT above joins.
 */
void
cellar_add_distinct_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *distinct_rel)
{
	CellarAggregateSpec aggregation = cellar_distinct_spec(root, input_rel);
	LookupStep	step = {
		.root = root,
		.input_rel = input_rel,
		.output_rel = distinct_rel,
		.targetlist = root->parse->targetList
	};

	if (joins_suitable(root, input_rel) && cellar_can_hash_distinct(root))
		add_lookup_paths(&step, &aggregation);
}

/* See CellarLookupPrivate. */
static Plan *
plan_lookup(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
			List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *keys = list_nth(best_path->custom_private, CELLAR_LOOKUP_PARTS);
	List	   *parts = NIL;
	ListCell   *outer;
	ListCell   *key;

	forboth(outer, linitial(keys), key, lsecond(keys))
	{
		Var		   *column = lfirst_node(Var, outer);
		TargetEntry *entry = tlist_member(lfirst(key), tlist);

		if (entry == NULL)
			elog(ERROR, "the key of a lookup table is not in the target list");
		parts = lappend(parts, list_make4_int(column->varno, column->varattno, lfirst_node(Var, key)->varno,
											  entry->resno));
	}
	cscan->scan.plan.targetlist = tlist;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	cscan->custom_private = list_make4(list_nth(best_path->custom_private, CELLAR_LOOKUP_KIND), parts,
									   list_nth(best_path->custom_private, CELLAR_LOOKUP_FILTER),
									   list_nth(best_path->custom_private, CELLAR_LOOKUP_KEYS));
	cscan->methods = &cellar_lookup_methods;
	return &cscan->scan.plan;
}

const CustomPathMethods cellar_lookup_path_methods = {
	.CustomName = CELLAR_LOOKUP_NAME,
	.PlanCustomPath = plan_lookup
};

const CustomScanMethods cellar_lookup_methods = {
	.CustomName = CELLAR_LOOKUP_NAME,
	.CreateCustomScanState = cellar_create_lookup_state
};
