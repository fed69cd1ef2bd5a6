/*-------------------------------------------------------------------------
 *
 * lookup_path.c
 *	  Offers the planner a Smart Scan Aggregate above inner joins: the cell
 *	  joins the rows of one table, the outer table, with lookup tables while
 *	  scanning, and aggregates the joined rows.
 *
 * The other relations of the query are divided into components, each of which
 * is joined with the outer table by an equality of integers, dates or
 * timestamps.  PostgreSQL evaluates a component by its cheapest path, and the
 * rows become a lookup table.
 *
 * The child of the Smart Scan Aggregate is PostgreSQL's own partial aggregation
 * over hash joins of the Smart Scan with the components.  Between a component
 * and its Hash node, the node Lookup Table (executor/lookup_table.c) collects
 * keys and columns for the cell.  The hash joins receive the rows that the cell
 * returns: rows of blocks that were passed through, rows with several partners
 * in a component, and all rows when a lookup table is too large.
 *
 * The executor builds the hash tables before it fetches the first outer row,
 * because the startup cost of the outer side is not lower than the cost of a
 * Hash node.  Otherwise a lookup table would not be complete when the scan
 * starts, and the scan would return all rows.
 *
 * Not supported: outer joins, semijoins and antijoins at this query level, more
 * than one join clause between a component and the other relations, and other
 * join clauses than equalities of columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/joininfo.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Bytes of a key and of the lengths of values in a row of a lookup table. */
#define ROW_OVERHEAD		4

/*
 * Cost of a row of a lookup table beyond that of the component: collecting and
 * sending the row, adding the row to the hash tables of PostgreSQL and the cell.
 */
#define ROW_COST			(4 * cpu_tuple_cost)

/*
 * A component may have this fraction of rows whose key other rows have, too.
 * Rows of the scan that match such a key are returned.
 */
#define DUPLICATE_KEYS_MAX	0.1

/* A component: relations that become one lookup table. */
typedef struct Component
{
	RelOptInfo *rel;
	RestrictInfo *clause;		/* the join clause */
	Var		   *outer;			/* the column of the outer table */
	Var		   *key;			/* the column of the component */
	Path	   *path;			/* of the node Lookup Table */
} Component;

/*
 * Returns the only clause of a join of two sets of relations if the clause is
 * an equality of a column of the outer table and a column of the inner side.
 */
static RestrictInfo *
only_join_clause(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outer, RelOptInfo *inner, Index outer_table,
				 Var **outer_column, Var **inner_column)
{
	List	   *clauses = CellarJoinEqualities(root, joinrel->relids, outer->relids, inner);
	RestrictInfo *rinfo;
	OpExpr	   *clause;
	Var		   *left;
	Var		   *right;
	ListCell   *lc;

	foreach(lc, list_concat_copy(outer->joininfo, inner->joininfo))
	{
		rinfo = lfirst_node(RestrictInfo, lc);
		if (bms_is_subset(rinfo->required_relids, joinrel->relids))
			clauses = list_append_unique_ptr(clauses, rinfo);
	}
	if (list_length(clauses) != 1)
		return NULL;

	rinfo = linitial_node(RestrictInfo, clauses);
	clause = (OpExpr *) rinfo->clause;
	if (!rinfo->can_join || rinfo->pseudoconstant || !OidIsValid(rinfo->hashjoinoperator) || !IsA(clause, OpExpr) ||
		list_length(clause->args) != 2)
		return NULL;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (!IsA(left, Var) || !IsA(right, Var) || !cellar_is_integer_equality(get_opcode(clause->opno)))
		return NULL;
	if (left->varno != outer_table)
	{
		Var		   *other = left;

		left = right;
		right = other;
	}
	if (left->varno != outer_table || left->varattno <= 0 || right->varattno <= 0 ||
		!bms_is_member(right->varno, inner->relids))
		return NULL;
	*outer_column = left;
	*inner_column = right;
	return rinfo;
}

/* Returns the relation of a set of base relations, or NULL. */
static RelOptInfo *
find_rel(PlannerInfo *root, Relids relids)
{
	int			relid;

	if (bms_get_singleton_member(relids, &relid))
		return root->simple_rel_array[relid];
	return find_join_rel(root, relids);
}

/*
 * Divides the relations other than the outer table into components, so that
 * joining a component estimates the fewest rows.  Returns sets of relations, or
 * NIL.
 */
static List *
divide_relations(PlannerInfo *root, RelOptInfo *outer, Relids others)
{
	List	   *components = NIL;
	Relids		rest = bms_copy(others);
	int			relid = -1;

	/* Each relation that is joined with the outer table starts a component. */
	while ((relid = bms_next_member(others, relid)) >= 0)
	{
		if (have_relevant_joinclause(root, outer, root->simple_rel_array[relid]))
		{
			components = lappend(components, bms_make_singleton(relid));
			rest = bms_del_member(rest, relid);
		}
	}
	while (components != NIL && !bms_is_empty(rest))
	{
		ListCell   *best = NULL;
		int			best_relid = 0;
		double		best_rows = 0;
		ListCell   *lc;

		relid = -1;
		while ((relid = bms_next_member(rest, relid)) >= 0)
		{
			foreach(lc, components)
			{
				RelOptInfo *component = find_rel(root, lfirst(lc));
				RelOptInfo *joined;

				if (component == NULL || !have_relevant_joinclause(root, component, root->simple_rel_array[relid]))
					continue;
				joined = find_join_rel(root, bms_add_member(bms_copy(lfirst(lc)), relid));
				if (joined == NULL || joined->cheapest_total_path == NULL ||
					(best != NULL && joined->rows >= best_rows))
					continue;
				best = lc;
				best_relid = relid;
				best_rows = joined->rows;
			}
		}
		if (best == NULL)
			return NIL;
		lfirst(best) = bms_add_member(lfirst(best), best_relid);
		rest = bms_del_member(rest, best_relid);
	}
	return components;
}

/*
 * Returns whether the rows of the component fit into a lookup table, and few of
 * them have the same key.
 */
static bool
fits_lookup_table(PlannerInfo *root, Component *component)
{
	RelOptInfo *rel = component->rel;
	double		bytes = rel->rows * (rel->reltarget->width + ROW_OVERHEAD);
	double		keys;

	if (rel->rows > CELLAR_JOIN_KEYS_MAX || bytes > CELLAR_LOOKUP_BYTES_MAX)
		return false;
	if (cellar_cost_factor == 0)
		return true;
	keys = estimate_num_groups(root, list_make1(component->key), rel->rows, NULL, NULL);
	return keys >= (1 - DUPLICATE_KEYS_MAX) * rel->rows;
}

/* Creates the path of the node Lookup Table over the cheapest path of a component. */
static Path *
create_lookup_path(Component *component)
{
	RelOptInfo *rel = component->rel;
	Path	   *child = rel->cheapest_total_path;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = child->pathtarget;
	path->parallel_safe = false;
	path->rows = child->rows;
	path->startup_cost = child->startup_cost;
	path->total_cost = child->total_cost + ROW_COST * child->rows;
	CellarCopyDisabledNodes(path, child);
	cpath->custom_paths = list_make1(child);
	cpath->custom_private = list_make2(list_make1_int(component->outer->varattno), component->key);
	cpath->methods = &cellar_lookup_path_methods;
	return path;
}

/*
 * Creates the hash joins of the scan with the components.  Returns NULL if the
 * cell cannot evaluate a join.  Sets *lookup_cost to the cost of the lookup
 * tables.
 */
static Path *
create_joins(PlannerInfo *root, RelOptInfo *outer, Path *scan, List *components, Cost *lookup_cost)
{
	Path	   *path = scan;
	ListCell   *lc;

	*lookup_cost = 0;
	foreach(lc, components)
	{
		Component	component = {.rel = find_rel(root, lfirst(lc))};
		SpecialJoinInfo sjinfo = {.type = T_SpecialJoinInfo};
		JoinPathExtraData extra = {.sjinfo = &sjinfo};
		JoinCostWorkspace workspace;
		RelOptInfo *joinrel;

		if (component.rel == NULL || component.rel->cheapest_total_path == NULL ||
			component.rel->cheapest_total_path->param_info != NULL)
			return NULL;
		joinrel = find_join_rel(root, bms_union(path->parent->relids, component.rel->relids));
		if (joinrel == NULL)
			return NULL;
		component.clause = only_join_clause(root, joinrel, path->parent, component.rel, outer->relid,
											&component.outer, &component.key);
		if (component.clause == NULL || !fits_lookup_table(root, &component))
			return NULL;
		component.path = create_lookup_path(&component);

		sjinfo.min_lefthand = path->parent->relids;
		sjinfo.min_righthand = component.rel->relids;
		sjinfo.syn_lefthand = path->parent->relids;
		sjinfo.syn_righthand = component.rel->relids;
		sjinfo.jointype = JOIN_INNER;
		extra.restrictlist = list_make1(component.clause);
		initial_cost_hashjoin(root, &workspace, JOIN_INNER, extra.restrictlist, path, component.path, &extra, false);
		path = (Path *) create_hashjoin_path(root, joinrel, JOIN_INNER, &workspace, &extra, path, component.path,
											 false, extra.restrictlist, NULL, extra.restrictlist);
		*lookup_cost += component.path->total_cost;
	}
	return path;
}

/* Sets the costs of the joins to those of the Smart Scan Aggregate. */
static void
set_costs(Path *path, const Path *aggregate)
{
	path->rows = 1;
	path->startup_cost = aggregate->startup_cost;
	path->total_cost = aggregate->startup_cost;
	if (IsA(path, HashPath))
		set_costs(((HashPath *) path)->jpath.outerjoinpath, aggregate);
}

typedef struct ReplaceContext
{
	PlannerInfo *root;
	Index		outer_table;
} ReplaceContext;

/*
 * Replaces the columns of lookup tables by columns of the outer table, for which
 * the same expressions are offloadable.
 */
static Node *
replace_looked_up(Node *node, void *arg)
{
	ReplaceContext *context = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno != context->outer_table && var->varattno > 0 && var->varlevelsup == 0 &&
			planner_rt_fetch(var->varno, context->root)->rtekind == RTE_RELATION)
		{
			var = copyObject(var);
			var->varno = context->outer_table;
			return (Node *) var;
		}
	}
	return expression_tree_mutator(node, replace_looked_up, arg);
}

/* Returns whether the cell can evaluate the target over the joined rows. */
static bool
target_offloadable(PlannerInfo *root, RelOptInfo *outer, Oid relid, PathTarget *target)
{
	ReplaceContext context = {.root = root,.outer_table = outer->relid};
	PathTarget *replaced = copy_pathtarget(target);
	const char *reason;

	replaced->exprs = castNode(List, replace_looked_up((Node *) replaced->exprs, &context));
	reason = cellar_target_unsuitable(replaced, NIL, outer->relid, NULL);
	if (reason != NULL)
		cellar_note_aggregate(relid, 0, NULL, reason);
	return reason == NULL;
}

/* Adds paths with one base relation as the outer table. */
static void
add_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *outer, Relation relation,
		  RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {.group_clause = CellarGroupClause(root)};
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;
	Path	   *scan;
	Path	   *joins;
	Path	   *rest;
	Cost		lookup_cost;
	List	   *components;

	components = divide_relations(root, outer, bms_difference(input_rel->relids, outer->relids));
	if (components == NIL || !cellar_restrictions_offloadable(outer, &aggregation.scan.storage))
		return;
	aggregation.relid = RelationGetRelid(relation);
	aggregation.scan.rel = outer;
	aggregation.scan.stored_fraction = cellar_stored_fraction(relation);
	aggregation.scan.threads = cellar_scan_threads(outer);
	aggregation.scan.join_filter_fraction = 1;
	scan = cellar_create_scan_path(root, &aggregation.scan);
	joins = create_joins(root, outer, scan, components, &lookup_cost);
	if (joins == NULL)
		return;
	aggregation.target = cellar_partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
											   extra->havingQual);
	if (!target_offloadable(root, outer, aggregation.relid, aggregation.target))
		return;
	aggregation.groups = 1;
	if (aggregation.group_clause != NIL)
		aggregation.groups =
			estimate_num_groups(root, get_sortgrouplist_exprs(aggregation.group_clause, extra->targetList),
								input_rel->rows, NULL, NULL);
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation.partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation.final_costs);

	path->pathtype = T_CustomScan;
	path->parent = outer;
	path->pathtarget = aggregation.target;
	path->parallel_safe = false;
	/* No pruning, no aggregates with DISTINCT: see CellarAggregatePrivate. */
	cpath->custom_private = list_make3(NIL, NIL, NIL);
	cpath->methods = &cellar_aggregate_path_methods;
	cellar_cost_aggregate(root, path, &aggregation);
	path->startup_cost += lookup_cost;
	path->total_cost += lookup_cost;

	/* EXPLAIN shows the cost at the scan too, where the time is spent. */
	set_costs(joins, path);
	rest = (Path *) create_agg_path(root, outer, joins, aggregation.target,
									aggregation.group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									AGGSPLIT_INITIAL_SERIAL, aggregation.group_clause, NIL,
									&aggregation.partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);

	cellar_add_final_paths(root, grouped_rel, &aggregation, path, extra);
}

/*
 * Adds paths for GROUP BY, or for aggregates, above inner joins.
 */
void
cellar_add_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *grouped_rel,
						GroupPathExtraData *extra)
{
	List	   *other_paths = grouped_rel->pathlist;
	int			relid = -1;

	if (!cellar_lookup_joins || !enable_hashjoin || root->join_info_list != NIL || root->placeholder_list != NIL ||
		root->hasPseudoConstantQuals || !bms_is_empty(input_rel->lateral_relids) || IS_DUMMY_REL(input_rel) ||
		cellar_aggregation_unsuitable(root) != NULL || (extra->flags & GROUPING_CAN_PARTIAL_AGG) == 0 ||
		(CellarGroupClause(root) != NIL && (extra->flags & GROUPING_CAN_USE_HASH) == 0))
		return;

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
		grouped_rel->pathlist = NIL;
	while ((relid = bms_next_member(input_rel->relids, relid)) >= 0)
	{
		RelOptInfo *outer = root->simple_rel_array[relid];
		RangeTblEntry *rte = planner_rt_fetch(relid, root);
		Relation	relation;

		if (outer == NULL || !cellar_is_scannable(outer, rte))
			continue;
		relation = table_open(rte->relid, NoLock);
		if (cellar_scan_unsuitable(root, outer, rte, relation) == NULL)
			add_paths(root, input_rel, outer, relation, grouped_rel, extra);
		table_close(relation, NoLock);
	}
	if (grouped_rel->pathlist == NIL)
		grouped_rel->pathlist = other_paths;
}

/*
 * custom_private of the plan has the attribute number of the outer table's
 * column, and the number of the key's column in the rows of the child.
 */
static Plan *
plan_lookup(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
			List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	TargetEntry *key = tlist_member(lsecond(best_path->custom_private), tlist);

	if (key == NULL)
		elog(ERROR, "the key of a lookup table is not in the target list");
	cscan->scan.plan.targetlist = tlist;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	cscan->custom_private = list_make2_int(linitial_int(linitial(best_path->custom_private)), key->resno);
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
