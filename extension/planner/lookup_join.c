/*-------------------------------------------------------------------------
 *
 * lookup_join.c
 *	  How the relations of a query are divided into components that become
 *	  lookup tables (lookup_path.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/joininfo.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Bytes of the lengths of a value in a row of a lookup table. */
#define VALUE_OVERHEAD		4

/* Returns the relation of a set of base relations and outer joins, or NULL. */
RelOptInfo *
cellar_find_rel(PlannerInfo *root, Relids relids)
{
	int			relid;

	if (bms_get_singleton_member(relids, &relid))
		return root->simple_rel_array[relid];
	return find_join_rel(root, relids);
}

/*
 * Returns the bytes of a component's row in a request: the key, and the columns
 * that are needed above the join.
 */
double
cellar_lookup_row_bytes(PlannerInfo *root, const CellarComponent *component)
{
	double		bytes = list_length(component->keys) * sizeof(int64);
	ListCell   *lc;

	/* The target of the last join has expressions of the step above it. */
	foreach(lc, list_concat_unique(NIL, pull_vars_of_level((Node *) component->joinrel->reltarget->exprs, 0)))
	{
		Var		   *var = lfirst(lc);
		const RelOptInfo *rel;

		if (!IsA(var, Var) || !bms_is_member(var->varno, component->rel->relids))
			continue;
		rel = root->simple_rel_array[var->varno];
		bytes += rel->attr_widths[var->varattno - rel->min_attr] + VALUE_OVERHEAD;
	}
	return bytes;
}

/* Returns whether this many rows of a component are expected to fit into a lookup table. */
bool
cellar_fits_lookup_table(PlannerInfo *root, const CellarComponent *component, double rows)
{
	return rows <= cellar_lookup_table_rows &&
		rows * cellar_lookup_row_bytes(root, component) <= CELLAR_LOOKUP_BYTES_MAX;
}

/* As cellar_fits_lookup_table() for a relation whose join is not known yet. */
static bool
is_small(PlannerInfo *root, const RelOptInfo *rel)
{
	double		rows = cellar_join_rows(root, rel);

	return rows <= cellar_lookup_table_rows &&
		rows * (sizeof(int64) + rel->reltarget->width +
					 list_length(rel->reltarget->exprs) * VALUE_OVERHEAD) <= CELLAR_LOOKUP_BYTES_MAX;
}

/*
 * Adds the outer joins within a set of relations, which PostgreSQL 16 and later
 * number among the relations.
 */
Relids
cellar_add_outer_joins(PlannerInfo *root, Relids relids)
{
	ListCell   *lc;

	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *join = lfirst_node(SpecialJoinInfo, lc);

		if (CellarOuterJoinRelid(join) != 0 && bms_is_subset(join->min_lefthand, relids) &&
			bms_is_subset(join->min_righthand, relids))
			relids = bms_add_member(relids, CellarOuterJoinRelid(join));
	}
	return relids;
}

/*
 * Merges each component that is too large for a lookup table with the component
 * with which it has the fewest rows, if these are fewer.  The first nspecial
 * components are sides of joins other than inner joins, and are not changed.
 */
static List *
merge_large_components(PlannerInfo *root, List *components, int nspecial)
{
	for (int i = nspecial; i < list_length(components); i++)
	{
		RelOptInfo *large = cellar_find_rel(root, list_nth(components, i));
		RelOptInfo *best = NULL;
		double		best_rows = large == NULL ? 0 : cellar_join_rows(root, large);
		int			best_number = -1;

		if (large == NULL || is_small(root, large))
			continue;
		for (int j = nspecial; j < list_length(components); j++)
		{
			RelOptInfo *other = cellar_find_rel(root, list_nth(components, j));
			RelOptInfo *joined;

			if (j == i || other == NULL || !have_relevant_joinclause(root, large, other))
				continue;
			joined = find_join_rel(root, cellar_add_outer_joins(root, bms_union(large->relids, other->relids)));
			if (joined == NULL || joined->cheapest_total_path == NULL || cellar_join_rows(root, joined) >= best_rows)
				continue;
			best = joined;
			best_rows = cellar_join_rows(root, joined);
			best_number = j;
		}
		if (best == NULL)
			continue;
		lfirst(list_nth_cell(components, i)) = best->relids;
		components = list_delete_nth_cell(components, best_number);
		/* Other components have moved, and the new one may be too large. */
		i = nspecial - 1;
	}
	return components;
}

/*
 * Adds one of the relations `rest` to one of the components, so that the join of
 * the component has the fewest rows.  `equal` says that the join must have an
 * equality.  Returns false if there is no such relation.
 */
static bool
grow_component(PlannerInfo *root, List *components, Relids *rest, bool equal)
{
	RelOptInfo *best = NULL;
	double		best_rows = 0;
	ListCell   *best_cell = NULL;
	int			best_relid = 0;
	int			relid = -1;

	while ((relid = bms_next_member(*rest, relid)) >= 0)
	{
		RelOptInfo *rel = root->simple_rel_array[relid];
		ListCell   *lc;

		foreach(lc, components)
		{
			RelOptInfo *component = cellar_find_rel(root, lfirst(lc));
			RelOptInfo *joined;

			if (component == NULL || !(equal ? have_relevant_eclass_joinclause(root, component, rel) :
									   have_relevant_joinclause(root, component, rel)))
				continue;
			joined = find_join_rel(root, cellar_add_outer_joins(root, bms_add_member(bms_copy(lfirst(lc)), relid)));
			if (joined == NULL || joined->cheapest_total_path == NULL ||
				(best != NULL && cellar_join_rows(root, joined) >= best_rows))
				continue;
			best = joined;
			best_rows = cellar_join_rows(root, joined);
			best_cell = lc;
			best_relid = relid;
		}
	}
	if (best == NULL)
		return false;
	lfirst(best_cell) = best->relids;
	*rest = bms_del_member(*rest, best_relid);
	return true;
}

/*
 * Divides the base relations other than the outer table into components, so that
 * joining a component estimates the fewest rows.  Sets *nspecial to the number of
 * components that are sides of joins other than inner joins, and come first.
 * Returns sets of relations, or NIL.
 */
static List *
divide_by_rows(PlannerInfo *root, RelOptInfo *outer, Relids others, int *nspecial)
{
	List	   *components = NIL;
	Relids		rest = bms_intersect(others, root->all_baserels);
	int			relid = -1;
	ListCell   *special;

	/* The other side of a semijoin, an antijoin or an outer join is a component. */
	foreach(special, root->join_info_list)
	{
		SpecialJoinInfo *join = lfirst_node(SpecialJoinInfo, special);
		Relids		side = bms_is_member(outer->relid, join->syn_righthand) ? join->syn_lefthand :
			join->syn_righthand;
		Relids		base = bms_intersect(side, root->all_baserels);

		if (!bms_is_member(outer->relid, bms_union(join->min_lefthand, join->min_righthand)) ||
			!bms_is_subset(base, rest))
			continue;
		components = lappend(components, bms_copy(side));
		rest = bms_del_members(rest, base);
	}
	*nspecial = list_length(components);

	/* Each relation that is joined with the outer table starts a component. */
	others = bms_copy(rest);
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
		if (!grow_component(root, components, &rest, true) && !grow_component(root, components, &rest, false))
			return NIL;
	}
	return merge_large_components(root, components, *nspecial);
}

/*
 * Divides a component once more: into the largest relation that is joined with the
 * outer table, and parts that are joined with that relation.
 * Returns NIL if the component cannot be divided.
 */
static List *
split_component(PlannerInfo *root, RelOptInfo *outer, Relids component)
{
	RelOptInfo *hub = NULL;
	Relids		rest;
	List	   *parts;
	int			relid = -1;

	while ((relid = bms_next_member(component, relid)) >= 0)
	{
		RelOptInfo *rel = root->simple_rel_array[relid];

		if (rel == NULL)
			return NIL;			/* an outer join */
		if ((hub == NULL || rel->tuples > hub->tuples) && have_relevant_joinclause(root, outer, rel))
			hub = rel;
	}
	if (bms_membership(component) != BMS_MULTIPLE || hub == NULL)
		return NIL;
	parts = list_make1(hub->relids);
	rest = bms_difference(component, hub->relids);
	while (!bms_is_empty(rest))
	{
		Relids		part = bms_make_singleton(bms_next_member(rest, -1));
		bool		grown = true;

		while (grown)
		{
			grown = false;
			relid = -1;
			while ((relid = bms_next_member(rest, relid)) >= 0)
			{
				RelOptInfo *rel = cellar_find_rel(root, part);

				if (rel == NULL)
					return NIL;
				if (bms_is_member(relid, part) || !have_relevant_joinclause(root, rel, root->simple_rel_array[relid]))
					continue;
				part = bms_add_member(part, relid);
				grown = true;
			}
		}
		parts = lappend(parts, part);
		rest = bms_difference(rest, part);
	}
	return parts;
}

/*
 * Returns divisions in which a part of a component is joined with another
 * component, if that has fewer rows then.  PostgreSQL derives the equality: in
 * TPC-H q05, s_nationkey = n_nationkey and c_nationkey = s_nationkey imply
 * c_nationkey = n_nationkey, so the nations select suppliers or customers.
 */
static List *
move_part(PlannerInfo *root, List *components, int nspecial, int from, Relids part)
{
	RelOptInfo *moved = cellar_find_rel(root, part);
	List	   *divisions = NIL;

	for (int to = nspecial; to < list_length(components) && moved != NULL; to++)
	{
		RelOptInfo *target = cellar_find_rel(root, list_nth(components, to));
		RelOptInfo *joined;
		List	   *division;

		if (to == from || target == NULL || !have_relevant_eclass_joinclause(root, target, moved))
			continue;
		joined = find_join_rel(root, cellar_add_outer_joins(root, bms_union(target->relids, part)));
		if (joined == NULL || joined->cheapest_total_path == NULL ||
			cellar_join_rows(root, joined) >= cellar_join_rows(root, target))
			continue;
		division = list_copy(components);
		lfirst(list_nth_cell(division, from)) = bms_difference(list_nth(components, from), part);
		lfirst(list_nth_cell(division, to)) = joined->relids;
		divisions = lappend(divisions, division);
	}
	return divisions;
}

/*
 * Returns divisions of the base relations other than the outer table into
 * components, as lists of sets of relations: the one whose components have the
 * fewest rows, and for each component that is a join, a division in which the
 * cell evaluates the join with the component's largest table, and divisions in
 * which a part of the component is joined with another component.
 */
List *
cellar_divide_relations(PlannerInfo *root, RelOptInfo *outer, Relids others)
{
	int			nspecial;
	List	   *components = divide_by_rows(root, outer, others, &nspecial);
	List	   *divisions = components == NIL ? NIL : list_make1(components);

	for (int i = nspecial; i < list_length(components); i++)
	{
		List	   *parts = split_component(root, outer, list_nth(components, i));

		for (int part = 1; part < list_length(parts); part++)
			divisions = list_concat(divisions, move_part(root, components, nspecial, i, list_nth(parts, part)));
		if (parts != NIL)
			divisions = lappend(divisions, list_concat(parts, list_delete_nth_cell(list_copy(components), i)));
	}
	return divisions;
}

/*
 * Returns whether rows without columns of the outer table change no group of the
 * rows that have a partner: the group keys are columns of the other side, and all
 * aggregates ignore NULL.  PostgreSQL then adds a row for each row of the other
 * side of a right join.
 */
bool
cellar_ignores_missing_rows(PlannerInfo *root, const PathTarget *target, const RelOptInfo *outer)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		Relids		relids;

		if (IsA(expr, Aggref))
		{
			List	   *args = ((Aggref *) expr)->args;

			if (list_length(args) != 1)
				return false;
			expr = (Node *) linitial_node(TargetEntry, args)->expr;
			if (!bms_is_member(outer->relid, pull_varnos(root, expr)) || contain_nonstrict_functions(expr))
				return false;
			continue;
		}
		relids = pull_varnos(root, expr);
		if (bms_is_member(outer->relid, relids))
			return false;
	}
	return true;
}
