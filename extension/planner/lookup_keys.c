/*-------------------------------------------------------------------------
 *
 * lookup_keys.c
 *	  Filters a component that is too large for a lookup table (lookup_path.c)
 *	  by the keys that the outer table has after its conditions and the joins
 *	  with the other components.
 *
 * The node Lookup Table gets a second child, which returns these keys: a Smart
 * Scan Aggregate without aggregates over the outer table, joined with the lookup
 * tables of other components.  It is executed first, and its keys filter the
 * Smart Scan of the component as those of a hash join do (join_filter.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "parser/parse_oper.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/*
 * Returns whether the paths of a relation can be in the plan twice, and return
 * the same rows twice: it consists of tables without children and without
 * volatile conditions.  The plan of a subquery, and pruning information of
 * partitions, must not be translated twice.
 */
static bool
can_repeat(PlannerInfo *root, const RelOptInfo *rel)
{
	int			relid = -1;

	while ((relid = bms_next_member(rel->relids, relid)) >= 0)
	{
		/* NULL: an outer join */
		const RelOptInfo *base = root->simple_rel_array[relid];
		const RangeTblEntry *rte = planner_rt_fetch(relid, root);

		if (base != NULL &&
			(rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL ||
			 contain_volatile_functions((Node *) base->baserestrictinfo) ||
			 contain_volatile_functions((Node *) base->joininfo)))
			return false;
	}
	return true;
}

/*
 * Creates the path that returns the distinct values of a column of the outer
 * table in the rows that are joined with the given components.  Components that
 * drop no row, or cannot be planned twice, are left out.  The executor evaluates
 * the others once; see cellar_share_lookups().
 */
static Path *
create_keys_path(PlannerInfo *root, const CellarScanSpec *scan, Oid relid, List *components, Var *column,
				 double rows, double keys)
{
	CellarAggregateSpec aggregation = {.scan = *scan,.relid = relid,.rows = rows,.groups = keys,.distinct = true};
	RelOptInfo *outer = scan->rel;
	SortGroupClause *clause = makeNode(SortGroupClause);
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;
	Path	   *joined = cellar_create_scan_path(root, scan);
	Path	   *rest;
	PathTarget *target = create_empty_pathtarget();
	Cost		lookup_cost = 0;
	List	   *conditions = NIL;
	ListCell   *lc;

	foreach(lc, components)
	{
		CellarComponent component = {.rel = ((CellarComponent *) lfirst(lc))->rel};
		Path	   *join;

		if (((CellarComponent *) lfirst(lc))->keys_path != NULL ||
			((CellarComponent *) lfirst(lc))->jointype == JOIN_LEFT ||
			!can_repeat(root, component.rel))
			continue;
		join = cellar_create_lookup_join(root, outer, joined, &component);
		if (join == NULL || join->parent->rows >= joined->parent->rows)
			continue;
		joined = join;
		lookup_cost += component.path->total_cost;
		conditions = list_concat(conditions, component.conditions);
	}

	add_column_to_pathtarget(target, (Expr *) column, 1);
	target = set_pathtarget_cost_width(root, target);
	joined->pathtarget = target;

	clause->tleSortGroupRef = 1;
	get_sort_group_operators(column->vartype, false, true, false, &clause->sortop, &clause->eqop, NULL,
							 &clause->hashable);
	aggregation.group_clause = list_make1(clause);
	aggregation.target = target;

	path->pathtype = T_CustomScan;
	path->parent = outer;
	path->pathtarget = target;
	path->parallel_safe = false;
	cpath->custom_private = list_make4(NIL, NIL, NIL, conditions);
	cpath->methods = &cellar_aggregate_path_methods;
	cellar_cost_aggregate(root, path, &aggregation);
	path->startup_cost += lookup_cost;
	path->total_cost += lookup_cost;

	cellar_set_join_costs(joined, path);
	rest = (Path *) create_agg_path(root, outer, joined, target, AGG_HASHED, AGGSPLIT_SIMPLE,
									aggregation.group_clause, NIL, NULL, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);
	return path;
}

/*
 * Sets the operator "key = outer column" of a component's only hash clause.
 */
static bool
find_filter_operator(CellarComponent *component)
{
	OpExpr	   *clause = castNode(OpExpr, linitial_node(RestrictInfo, component->hash_clauses)->clause);
	Var		   *key = linitial(component->keys);
	Var		   *left = linitial(clause->args);

	component->filter_operator = left->varno == key->varno && left->varattno == key->varattno ? clause->opno :
		get_commutator(clause->opno);
	return OidIsValid(component->filter_operator);
}

/*
 * Adds to a component, which is too large for a lookup table, the paths of a
 * Smart Scan that is filtered by keys and of the keys.  `joined` is the outer
 * table joined with `components`.  Returns false if that is not possible, or the
 * rows would still be too many.
 */
bool
cellar_filter_by_outer_keys(PlannerInfo *root, const CellarScanSpec *outer, Oid relid, const RelOptInfo *joined,
							List *components, CellarComponent *component)
{
	RelOptInfo *rel = component->rel;
	CellarScanSpec side = {.rel = rel,.threads = 1};
	RangeTblEntry *rte;
	Relation	relation;
	Var		   *column;
	double		keys;
	double		fraction;
	bool		suitable;

	if (!cellar_join_filters || rel->reloptkind != RELOPT_BASEREL || list_length(component->keys) != 1 ||
		component->jointype == JOIN_RIGHT || !bms_is_empty(rel->lateral_relids))
		return false;
	rte = planner_rt_fetch(rel->relid, root);
	column = linitial(component->outer);
	if (column->varno != outer->rel->relid || !cellar_is_scannable(rel, rte) || !find_filter_operator(component))
		return false;

	keys = estimate_num_groups(root, list_make1(column), joined->rows, NULL, NULL);
	fraction = keys / estimate_num_groups(root, component->keys, rel->rows, NULL, NULL);
	if (keys > CELLAR_JOIN_KEYS_MAX || fraction > CELLAR_JOIN_FILTER_FRACTION_MAX ||
		rel->rows * fraction > CELLAR_JOIN_KEYS_MAX ||
		cellar_lookup_table_bytes(rel, 1) * fraction > CELLAR_LOOKUP_BYTES_MAX)
		return false;

	relation = table_open(rte->relid, NoLock);
	suitable = cellar_scan_unsuitable(root, rel, rte, relation) == NULL &&
		cellar_restrictions_offloadable(rel, &side.storage);
	side.stored_fraction = cellar_stored_fraction(relation);
	table_close(relation, NoLock);
	if (!suitable)
		return false;
	side.join_filter_fraction = fraction;
	component->side = cellar_create_scan_path(root, &side);
	component->side->rows = clamp_row_est(rel->rows * fraction);
	component->keys_path = create_keys_path(root, outer, relid, components, column, joined->rows, keys);
	return true;
}
