/*-------------------------------------------------------------------------
 *
 * lookup_order.c
 *	  Creates the hash joins of a Smart Scan with lookup tables
 *	  (lookup_path.c), in an order in which the cell can evaluate them, so that
 *	  few rows remain after each join.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/*
 * Cost of a row of a lookup table beyond that of the component: collecting and
 * sending the row, adding the row to the hash table of the cell.
 */
#define ROW_COST			(2 * cpu_tuple_cost)

/* The bytes of a row are copied into the request, and from the request. */
#define ROW_TRANSFERS		2

/*
 * The rows of a side with a larger table than the scanned one must fit into a
 * lookup table even if there are this many times as many as estimated.
 */
#define SAFE_UNDERESTIMATE	4

/*
 * The most combinations of partners that a row of the scan may be expected to
 * have; the cell combines up to 1024, and returns rows with more.
 */
#define COMBINATIONS_MAX	256

/*
 * Returns how many rows of the component have the same key, at least 1.
 */
static double
rows_per_key(PlannerInfo *root, const CellarComponent *component)
{
	double		rows = cellar_join_rows(root, component->rel);

	/* A semijoin or an antijoin needs only keys. */
	if (component->jointype == JOIN_SEMI || component->jointype == JOIN_ANTI)
		return 1;
	return Max(rows / estimate_num_groups(root, component->keys, rows, NULL, NULL), 1);
}

/* Returns whether some table of the component has more rows than the outer table. */
static bool
has_larger_table(PlannerInfo *root, const RelOptInfo *outer, const CellarComponent *component)
{
	int			relid = -1;

	while ((relid = bms_next_member(component->rel->relids, relid)) >= 0)
	{
		const RelOptInfo *rel = root->simple_rel_array[relid];

		if (rel != NULL && rel->tuples > outer->tuples)
			return true;
	}
	return false;
}

/* Returns the kind of join that the cell evaluates. */
static int
cell_join_kind(JoinType jointype)
{
	switch (jointype)
	{
		case JOIN_SEMI:
			return CELLAR_JOIN_SEMI;
		case JOIN_ANTI:
			return CELLAR_JOIN_ANTI;
		case JOIN_LEFT:
			return CELLAR_JOIN_LEFT;
		default:
			return CELLAR_JOIN_INNER;
	}
}

/* Returns the rows of a component's lookup table. */
static double
side_rows(PlannerInfo *root, const CellarComponent *component)
{
	return component->side == NULL ? cellar_join_rows(root, component->rel) : component->side->rows;
}

/* Creates the path of the node Lookup Table over the cheapest path of a component. */
Path *
cellar_create_lookup_path(PlannerInfo *root, const CellarComponent *component)
{
	RelOptInfo *rel = component->rel;
	Path	   *child = component->side != NULL ? component->side : rel->cheapest_total_path;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = child->pathtarget;
	path->parallel_safe = false;
	path->rows = side_rows(root, component);
	path->startup_cost = child->startup_cost;
	path->total_cost = (component->side != NULL ? child->total_cost : cellar_corrected_cost(root, child)) +
		(ROW_COST + ROW_TRANSFERS * cellar_returned_page_cost * child->pathtarget->width / BLCKSZ) * path->rows;
	CellarCopyDisabledNodes(path, child);
	cpath->custom_paths = list_make1(child);
	cpath->custom_private = list_make4(list_make3_int(cell_join_kind(component->jointype),
													  cellar_can_repeat(root, rel), component->comparison),
									   list_make2(component->outer, component->keys), NIL, component->keys_param);
	if (component->keys_param != NULL)
		lthird(cpath->custom_private) = list_make1_oid(component->filter_operator);
	if (component->keys_path != NULL)
	{
		path->total_cost += component->keys_path->total_cost;
		cpath->custom_paths = lappend(cpath->custom_paths, component->keys_path);
	}
	cpath->methods = &cellar_lookup_path_methods;
	return path;
}

/* Returns whether the cell can evaluate the join of a path with a component now. */
static bool
find_join(PlannerInfo *root, RelOptInfo *outer, const Path *path, CellarComponent *component)
{
	if (!cellar_find_lookup_join(root, path->parent, component, outer))
		return false;
	/* The cell adds no columns to the rows of a semijoin or an antijoin. */
	return (component->jointype != JOIN_SEMI && component->jointype != JOIN_ANTI) ||
		!bms_overlap(pull_varnos(root, (Node *) component->joinrel->reltarget->exprs), component->rel->relids);
}

/* Creates the hash join of a path with a component, for which find_join() was true. */
static Path *
create_join(PlannerInfo *root, Path *path, CellarComponent *component)
{
	SpecialJoinInfo sjinfo = {.type = T_SpecialJoinInfo};
	JoinPathExtraData extra = {.sjinfo = &sjinfo};
	JoinCostWorkspace workspace;
	JoinType	jointype;

	component->path = cellar_create_lookup_path(root, component);

	jointype = component->jointype;
	if (component->special != NULL)
		sjinfo = *component->special;
	sjinfo.min_lefthand = path->parent->relids;
	sjinfo.min_righthand = component->rel->relids;
	sjinfo.syn_lefthand = path->parent->relids;
	sjinfo.syn_righthand = component->rel->relids;
	sjinfo.jointype = jointype;
	extra.restrictlist = component->clauses;
	CellarSetJoinMask(root, &extra);
	initial_cost_hashjoin(root, &workspace, jointype, component->hash_clauses, path, component->path, &extra, false);
	return (Path *) create_hashjoin_path(root, component->joinrel, jointype, &workspace, &extra, path,
										 component->path, false, component->clauses, NULL,
										 component->hash_clauses);
}

/*
 * Creates the hash join of a path with a component.  Returns NULL if the cell
 * cannot evaluate the join now.
 */
Path *
cellar_create_lookup_join(PlannerInfo *root, RelOptInfo *outer, Path *path, CellarComponent *component)
{
	if (!find_join(root, outer, path, component))
		return NULL;
	cellar_move_part(component, component->first_part);
	if (!cellar_fits_lookup_table(root, component, side_rows(root, component)))
		return NULL;
	return create_join(root, path, component);
}

/*
 * Lets a component of a semijoin or an antijoin return distinct keys if these cost
 * less than all rows.
 */
static void
use_distinct_keys(PlannerInfo *root, CellarComponent *component)
{
	CellarComponent distinct = *component;

	if (cellar_use_distinct_keys(root, &distinct) &&
		(cellar_cost_factor == 0 ||
		 cellar_create_lookup_path(root, &distinct)->total_cost < cellar_create_lookup_path(root, component)->total_cost))
		*component = distinct;
}

/*
 * Chooses one of the components that the cell can join with the joined rows now,
 * so that the fewest rows remain, and deletes it from the list.  Chooses a
 * component that is too large only if `filtered`.  Returns NULL if there is none.
 */
static CellarComponent *
choose_component(PlannerInfo *root, const CellarAggregateSpec *aggregation, CellarLookupJoins *joins, List *joined,
				 List **components, bool filtered)
{
	CellarComponent *best = NULL;
	double		best_rows = 0;
	ListCell   *lc;

	/* A key may be a column of another component, which is joined first. */
	foreach(lc, *components)
	{
		CellarComponent *component = palloc0(sizeof(CellarComponent));
		double		rows;

		component->rel = cellar_find_rel(root, lfirst(lc));
		if (component->rel == NULL || component->rel->cheapest_total_path == NULL ||
			component->rel->cheapest_total_path->param_info != NULL)
			return NULL;
		if (!find_join(root, aggregation->scan.rel, joins->path, component))
			continue;
		rows = cellar_join_rows(root, component->joinrel);
		if (best != NULL && rows >= best_rows)
			continue;
		use_distinct_keys(root, component);
		if (!cellar_fits_lookup_table(root, component, side_rows(root, component)) &&
			(!filtered || !cellar_filter_by_outer_keys(root, &aggregation->scan, aggregation->relid,
													   joins->path->parent, joined, component)))
			continue;
		best = component;
		best_rows = rows;
	}
	if (best != NULL)
	{
		foreach(lc, *components)
		{
			if (bms_equal(lfirst(lc), best->rel->relids))
				break;
		}
		*components = list_delete_cell(*components, lc);
	}
	return best;
}

/*
 * Filters the rows of a component, which fits into a lookup table, if its rows
 * and the keys cost less than all rows.
 */
static void
filter_if_cheaper(PlannerInfo *root, const CellarAggregateSpec *aggregation, const CellarLookupJoins *joins, List *joined,
				  CellarComponent *component)
{
	CellarComponent filtered = *component;

	if (component->keys_param != NULL || cellar_cost_factor == 0)
		return;
	filtered.hash_clauses = list_copy(component->hash_clauses);
	filtered.outer = list_copy(component->outer);
	filtered.keys = list_copy(component->keys);
	if (cellar_filter_by_outer_keys(root, &aggregation->scan, aggregation->relid, joins->path->parent, joined,
									&filtered) &&
		cellar_create_lookup_path(root, &filtered)->total_cost < cellar_create_lookup_path(root, component)->total_cost)
		*component = filtered;
}

/*
 * Creates the hash join of the joined rows with the component that
 * choose_component() returns.
 */
static CellarComponent *
join_next(PlannerInfo *root, const CellarAggregateSpec *aggregation, CellarLookupJoins *joins, List *joined,
		  List **components, bool filtered)
{
	CellarComponent *component = choose_component(root, aggregation, joins, joined, components, filtered);

	if (component == NULL)
		return NULL;
	filter_if_cheaper(root, aggregation, joins, joined, component);
	joins->path = create_join(root, joins->path, component);
	return component;
}

/*
 * Creates the hash joins of the scan with the components.  Returns false if the
 * cell cannot evaluate a join.
 */
bool
cellar_create_lookup_joins(PlannerInfo *root, const CellarAggregateSpec *aggregation, List *components, CellarLookupJoins *joins)
{
	List	   *joined = NIL;

	memset(joins, 0, sizeof(CellarLookupJoins));
	joins->path = cellar_create_scan_path(root, &aggregation->scan);
	joins->count = list_length(components);
	components = list_copy(components);
	joins->combinations = 1;
	while (components != NIL)
	{
		double		rows = cellar_join_rows(root, joins->path->parent);
		CellarComponent *component = join_next(root, aggregation, joins, joined, &components, false);

		if (component == NULL)
			component = join_next(root, aggregation, joins, joined, &components, true);
		if (component == NULL)
			return false;
		joined = lappend(joined, component);
		joins->lookups += rows;
		joins->cost += component->path->total_cost;
		joins->bytes += cellar_lookup_row_bytes(root, component) * component->path->rows;

		/*
		 * If the rows of a larger table are underestimated, the lookup table
		 * is too large after most of the work was done.
		 */
		if ((component->jointype == JOIN_INNER || component->jointype == JOIN_LEFT) && cellar_cost_factor > 0 &&
			has_larger_table(root, aggregation->scan.rel, component) &&
			!cellar_fits_lookup_table(root, component, component->path->rows * SAFE_UNDERESTIMATE))
			return false;
		joins->combinations *= rows_per_key(root, component);
		joins->conditions = list_concat(joins->conditions, component->conditions);
		if (component->jointype == JOIN_RIGHT)
		{
			joins->is_right = true;
			joins->right_rows = cellar_join_rows(root, component->rel);
		}
	}
	return joins->bytes <= CELLAR_LOOKUP_BYTES_MAX && (!joins->is_right || joins->count == 1) &&
		(joins->combinations <= COMBINATIONS_MAX || cellar_cost_factor == 0);
}
