/*-------------------------------------------------------------------------
 *
 * lookup_keys.c
 *	  Filters a component (lookup_path.c) by the keys that remain in the outer
 *	  table, or in an earlier component, after the conditions of the outer table
 *	  and its joins with other components.
 *
 * A component is filtered because it is too large for a lookup table, or because
 * fewer rows cost less.
 *
 * The node Lookup Table gets a second child, which returns these keys: a Smart
 * Scan Aggregate without aggregates over the outer table, joined with the lookup
 * tables of other components.  The second child is executed first, and its keys
 * filter the Smart Scan of the component as the keys of a hash join do
 * (join_filter.c).  If the keys are a column of another component, the second child
 * may be a scan of that component alone.
 * Of a key with several parts, the part with the fewest values is filtered.
 * Components that are joined by the same column may use the keys of one of them.
 *
 * A component of a semijoin or an antijoin may be a Smart Scan Aggregate that
 * returns distinct keys.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
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
 * The rows per distinct key that a component of a semijoin or an antijoin has at
 * least if only distinct keys are returned.
 */
#define ROWS_PER_KEY_MIN	2

/*
 * Returns whether conditions might have another result in another execution: a
 * subquery can contain a volatile function.
 */
static bool
may_change(List *conditions)
{
	ListCell   *lc;

	foreach(lc, conditions)
	{
		Node	   *clause = (Node *) lfirst_node(RestrictInfo, lc)->clause;

		if (contain_subplans(clause) || contain_volatile_functions(clause))
			return true;
	}
	return false;
}

/*
 * Returns whether an equality that concerns the relation contains a subquery,
 * which may change.  Such clauses are in equivalence classes only.
 */
static bool
has_equal_subquery(PlannerInfo *root, const RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *class = lfirst_node(EquivalenceClass, lc);
		ListCell   *member;

		if (!bms_overlap(class->ec_relids, rel->relids))
			continue;
		foreach(member, class->ec_members)
		{
			if (contain_subplans((Node *) lfirst_node(EquivalenceMember, member)->em_expr))
				return true;
		}
	}
	return false;
}

/*
 * Returns whether the paths of a relation can be in the plan twice, and return
 * the same rows twice: it consists of tables without children and without
 * volatile conditions.  The plan of a subquery, and pruning information of
 * partitions, must not be translated twice.
 */
bool
cellar_can_repeat(PlannerInfo *root, const RelOptInfo *rel)
{
	int			relid = -1;

	while ((relid = bms_next_member(rel->relids, relid)) >= 0)
	{
		/* NULL: an outer join */
		const RelOptInfo *base = root->simple_rel_array[relid];
		const RangeTblEntry *rte = planner_rt_fetch(relid, root);

		if (base != NULL &&
			(rte->rtekind != RTE_RELATION || rte->inh ||
			 (rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW) || rte->tablesample != NULL ||
			 may_change(base->baserestrictinfo) || may_change(base->joininfo)))
			return false;
	}
	return !has_equal_subquery(root, rel);
}

/*
 * Joins the path with a component for the path of keys.  Returns NULL if the
 * join would drop no row, unless the component has the column of the keys, or if
 * the component cannot be planned twice.  The executor uses the rows of the other
 * lookup table of a component that is filtered itself; see cellar_share_lookups().
 * That table lacks only rows whose keys no row of the whole join has, so the keys
 * still contain all values that are needed.
 */
static Path *
join_component(PlannerInfo *root, RelOptInfo *outer, Path *joined, CellarComponent *component, bool has_column)
{
	Path	   *join;

	if (!cellar_can_repeat(root, component->rel) || (!has_column && component->jointype == JOIN_LEFT))
		return NULL;
	*component = (CellarComponent)
	{
		.rel = component->rel,.side = component->side,.first_part = component->first_part
	};
	join = cellar_create_lookup_join(root, outer, joined, component);
	return join == NULL || (!has_column && join->parent->rows >= joined->parent->rows) ? NULL : join;
}

/*
 * Creates the path of a Smart Scan Aggregate that returns the distinct values of
 * columns in the rows of `joined`, which is a Smart Scan or joins of it.  Scan,
 * rows and groups of the aggregation are set.
 */
static Path *
create_distinct_path(PlannerInfo *root, CellarAggregateSpec *aggregation, Path *joined, List *columns,
					 List *conditions, Cost lookup_cost)
{
	RelOptInfo *rel = aggregation->scan.rel;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;
	Path	   *rest;
	PathTarget *target = create_empty_pathtarget();
	ListCell   *lc;

	foreach(lc, columns)
	{
		Var		   *column = lfirst_node(Var, lc);
		SortGroupClause *clause = makeNode(SortGroupClause);

		clause->tleSortGroupRef = foreach_current_index(lc) + 1;
		get_sort_group_operators(column->vartype, false, true, false, &clause->sortop, &clause->eqop, NULL,
								 &clause->hashable);
		aggregation->group_clause = lappend(aggregation->group_clause, clause);
		add_column_to_pathtarget(target, (Expr *) column, clause->tleSortGroupRef);
	}
	target = set_pathtarget_cost_width(root, target);
	joined->pathtarget = target;
	aggregation->target = target;
	aggregation->distinct = true;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = target;
	path->parallel_safe = false;
	cpath->custom_private = list_make5(NIL, NIL, NIL, conditions, NIL);
	cpath->methods = &cellar_aggregate_path_methods;
	cellar_cost_aggregate(root, path, aggregation);
	path->startup_cost += lookup_cost;
	path->total_cost += lookup_cost;

	cellar_set_join_costs(joined, path);
	rest = (Path *) create_agg_path(root, rel, joined, target, AGG_HASHED, AGGSPLIT_SIMPLE,
									aggregation->group_clause, NIL, NULL, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);
	return path;
}

/*
 * Creates the path that returns the distinct values of a column of the outer
 * table, or of one of the given components, in the rows that are joined with the
 * components.  Returns NULL if that is not possible.
 */
static Path *
create_keys_path(PlannerInfo *root, const CellarScanSpec *scan, Oid relid, List *components, Var *column,
				 double rows, double keys)
{
	CellarAggregateSpec aggregation = {.scan = *scan,.relid = relid,.rows = rows,.groups = keys};
	RelOptInfo *outer = scan->rel;
	Path	   *joined = cellar_create_scan_path(root, scan);
	Cost		lookup_cost = 0;
	List	   *conditions = NIL;
	ListCell   *lc;

	foreach(lc, components)
	{
		CellarComponent component = *(CellarComponent *) lfirst(lc);
		bool		is_repeated = component.keys_param != NULL;
		Path	   *join = join_component(root, outer, joined, &component,
										  bms_is_member(column->varno, component.rel->relids));

		if (join == NULL)
			continue;
		joined = join;
		if (!is_repeated)
			lookup_cost += component.path->total_cost;
		conditions = list_concat(conditions, component.conditions);
	}
	if (!bms_is_member(column->varno, joined->parent->relids))
		return NULL;

	return create_distinct_path(root, &aggregation, joined, list_make1(column), conditions, lookup_cost);
}

/*
 * Creates the path that returns the values of a column of one of the components,
 * without joins: the rows are few, and no scan of the outer table is needed.
 * Returns NULL if the column is one of the outer table, if the joins leave less
 * than half of the estimated `keys`, or if the component cannot be planned twice.
 */
static Path *
create_side_keys_path(PlannerInfo *root, List *components, Var *column, double keys)
{
	ListCell   *lc;

	foreach(lc, components)
	{
		CellarComponent *component = lfirst(lc);
		RelOptInfo *rel = component->rel;
		PathTarget *target = create_empty_pathtarget();

		if (!bms_is_member(column->varno, rel->relids))
			continue;
		if (component->keys_param != NULL || !cellar_can_repeat(root, rel) ||
			estimate_num_groups(root, list_make1(column), cellar_join_rows(root, rel), NULL, NULL) > 2 * keys)
			return NULL;
		add_column_to_pathtarget(target, (Expr *) column, 0);
		return (Path *) create_projection_path(root, rel, rel->cheapest_total_path,
											   set_pathtarget_cost_width(root, target));
	}
	return NULL;
}

/* Returns the operator "key = outer column" of a part of a component's key. */
static Oid
find_filter_operator(const CellarComponent *component, int part)
{
	OpExpr	   *clause = castNode(OpExpr, list_nth_node(RestrictInfo, component->hash_clauses, part)->clause);
	Var		   *key = list_nth(component->keys, part);
	Var		   *left = linitial(clause->args);

	return left->varno == key->varno && left->varattno == key->varattno ? clause->opno :
		get_commutator(clause->opno);
}

/* Moves a member of a list to its start. */
static List *
move_to_start(List *list, int number)
{
	void	   *member = list_nth(list, number);

	return lcons(member, list_delete_nth_cell(list, number));
}

/* Makes a part of a component's key, which is an equality, the first one. */
void
cellar_move_part(CellarComponent *component, int number)
{
	if (number == 0 || number >= list_length(component->hash_clauses))
		return;
	component->hash_clauses = move_to_start(component->hash_clauses, number);
	component->outer = move_to_start(component->outer, number);
	component->keys = move_to_start(component->keys, number);
}

/*
 * Chooses the part of a component's key that is filtered, and makes it the first.
 * Sets *keys to the number of distinct values of the outer column in `rows` joined
 * rows.  Returns which fraction of the component's rows has these values, at most.
 */
static double
choose_part(PlannerInfo *root, CellarComponent *component, double rows, double *keys)
{
	double		least = 1;
	int			best = -1;

	for (int i = 0; i < list_length(component->hash_clauses); i++)
	{
		double		values = estimate_num_groups(root, list_make1(list_nth(component->outer, i)), rows, NULL, NULL);
		double		fraction = values / estimate_num_groups(root, list_make1(list_nth(component->keys, i)),
															component->rel->rows, NULL, NULL);

		if (values > CELLAR_JOIN_KEYS_MAX || fraction >= least || !OidIsValid(find_filter_operator(component, i)))
			continue;
		least = fraction;
		best = i;
		*keys = values;
	}
	component->first_part = Max(best, 0);
	cellar_move_part(component, component->first_part);
	return least;
}

/*
 * Sets *side to the scan of a component that is a table on a cell.  Returns false if
 * the cell cannot evaluate it.
 */
static bool
find_side_scan(PlannerInfo *root, const CellarComponent *component, CellarScanSpec *side)
{
	RelOptInfo *rel = component->rel;
	RangeTblEntry *rte;
	Relation	relation;
	bool		suitable;

	if (rel->reloptkind != RELOPT_BASEREL || component->jointype == JOIN_RIGHT || !bms_is_empty(rel->lateral_relids))
		return false;
	rte = planner_rt_fetch(rel->relid, root);
	if (!cellar_is_scannable(rel, rte))
		return false;
	relation = table_open(rte->relid, NoLock);
	suitable = cellar_scan_unsuitable(root, rel, rte, relation) == NULL &&
		cellar_restrictions_offloadable(root, rel, &side->storage);
	side->rel = rel;
	side->threads = cellar_scan_threads(root, rel);
	side->stored_fraction = cellar_stored_fraction(relation);
	side->group_bytes = cellar_group_bytes(relation);
	side->join_filter_fraction = 1;
	table_close(relation, NoLock);
	return suitable;
}

/*
 * Creates the path that returns the distinct keys of a component of a semijoin or
 * an antijoin, which needs no other columns.  A join filter keeps `fraction` of the
 * rows.  Returns NULL if the component is of another join or has few duplicates.
 */
static Path *
create_distinct_side(PlannerInfo *root, const CellarComponent *component, const CellarScanSpec *side, double fraction)
{
	RelOptInfo *rel = component->rel;
	CellarAggregateSpec aggregation = {.scan = *side,.relid = planner_rt_fetch(rel->relid, root)->relid};
	List	   *columns = NIL;
	double		combinations = 1;
	ListCell   *lc;

	if (component->jointype != JOIN_SEMI && component->jointype != JOIN_ANTI)
		return NULL;
	foreach(lc, component->keys)
		columns = list_append_unique(columns, lfirst(lc));
	aggregation.rows = clamp_row_est(rel->rows * fraction);

	/* As in cellar_count_combinations(): columns of a key are mostly independent. */
	foreach(lc, columns)
		combinations *= estimate_num_groups(root, list_make1(lfirst(lc)), rel->rows, NULL, NULL);
	aggregation.groups = clamp_row_est(Min(combinations, rel->rows) * fraction);
	if (aggregation.groups * ROWS_PER_KEY_MIN > aggregation.rows)
		return NULL;
	return create_distinct_path(root, &aggregation, cellar_create_scan_path(root, side), columns, NIL, 0);
}

/*
 * Lets a component of a semijoin or an antijoin return distinct keys.  Returns false
 * if that is not possible.
 */
bool
cellar_use_distinct_keys(PlannerInfo *root, CellarComponent *component)
{
	CellarScanSpec side = {0};

	if ((component->jointype != JOIN_SEMI && component->jointype != JOIN_ANTI) ||
		!find_side_scan(root, component, &side))
		return false;
	component->side = create_distinct_side(root, component, &side, 1);
	return component->side != NULL;
}

/*
 * Sets the path of a component's rows to a Smart Scan of which a join filter keeps
 * `fraction` of the rows.  Returns false if the rows would still be too many.
 */
static bool
set_filtered_side(PlannerInfo *root, CellarComponent *component, const CellarScanSpec *scan, double fraction)
{
	CellarScanSpec side = *scan;

	if (fraction > CELLAR_JOIN_FILTER_FRACTION_MAX)
		return false;
	component->side = create_distinct_side(root, component, &side, fraction);
	if (component->side == NULL)
	{
		side.join_filter_fraction = fraction;
		component->side = cellar_create_scan_path(root, &side);
		component->side->rows = clamp_row_est(component->rel->rows * fraction);
	}
	component->filter_operator = find_filter_operator(component, 0);
	return cellar_fits_lookup_table(root, component, component->side->rows);
}

/*
 * Filters a component by the keys of an earlier one, if both are values of the same
 * column.  A component whose own keys would be `keys` values gets `fraction` of its
 * rows; the earlier keys are mostly more values.
 */
static bool
share_keys(PlannerInfo *root, const List *components, CellarComponent *component, const CellarScanSpec *side,
		   double keys, double fraction)
{
	const CellarComponent *best = NULL;
	ListCell   *lc;

	foreach(lc, components)
	{
		const CellarComponent *other = lfirst(lc);

		if (other->keys_path != NULL && equal(linitial(other->outer), linitial(component->outer)) &&
			(best == NULL || other->nkeys < best->nkeys))
			best = other;
	}
	if (best == NULL)
		return false;
	component->keys_param = best->keys_param;
	return set_filtered_side(root, component, side, Max(fraction * best->nkeys / keys, fraction));
}

/* Filters a component by keys that its Lookup Table collects. */
static bool
add_keys(PlannerInfo *root, const CellarScanSpec *outer, Oid relid, double rows, List *components,
		 CellarComponent *component, const CellarScanSpec *side, double keys, double fraction)
{
	if (!set_filtered_side(root, component, side, fraction))
		return false;
	component->keys_path = create_side_keys_path(root, components, linitial(component->outer), keys);
	if (component->keys_path == NULL)
		component->keys_path = create_keys_path(root, outer, relid, components, linitial(component->outer), rows,
												keys);
	component->nkeys = keys;
	component->keys_param = makeNode(Param);
	component->keys_param->paramid = -1;
	return component->keys_path != NULL;
}

/*
 * Adds to a component the path of a Smart Scan that is filtered by keys, and the
 * path of the keys unless those of an earlier component are used.  `joined` is the
 * outer table joined with `components`.  Returns false if that is not possible, or
 * the rows would still be too many.
 */
bool
cellar_filter_by_outer_keys(PlannerInfo *root, const CellarScanSpec *outer, Oid relid, const RelOptInfo *joined,
							List *components, CellarComponent *component)
{
	CellarScanSpec side = {0};
	CellarComponent shared;
	double		rows = cellar_join_rows(root, joined);
	double		keys = 0;
	double		fraction;
	bool		can_share;
	bool		can_add;

	if (!cellar_join_filters || !find_side_scan(root, component, &side))
		return false;
	fraction = choose_part(root, component, rows, &keys);
	if (fraction > CELLAR_JOIN_FILTER_FRACTION_MAX)
		return false;
	shared = *component;
	can_share = share_keys(root, components, &shared, &side, keys, fraction);
	can_add = add_keys(root, outer, relid, rows, components, component, &side, keys, fraction);
	if (can_share && (!can_add || cellar_create_lookup_path(root, &shared)->total_cost <=
					  cellar_create_lookup_path(root, component)->total_cost))
		*component = shared;
	return can_share || can_add;
}
