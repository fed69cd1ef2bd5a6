/*-------------------------------------------------------------------------
 *
 * lookup_join.c
 *	  How the relations of a query are divided into components that become
 *	  lookup tables, and how each component is joined (lookup_path.c).
 *
 * A component is joined with the outer table, and possibly with earlier
 * components, by equalities of integers, dates or timestamps.  An inner join may
 * have further conditions, which the cell evaluates for the joined rows.
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
#include "utils/lsyscache.h"

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

	foreach(lc, component->joinrel->reltarget->exprs)
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
 * Finds the type of the join of the outer side with the component, and the
 * relation of the join.  Returns false unless the join is an inner join, or
 * completes exactly one join of another type whose sides these are.
 */
static bool
find_join_type(PlannerInfo *root, Relids outer, CellarComponent *component)
{
	Relids		inner = component->rel->relids;
	Relids		joined = bms_union(outer, inner);
	ListCell   *lc;

	component->jointype = JOIN_INNER;
	component->special = NULL;
	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *join = lfirst_node(SpecialJoinInfo, lc);
		Relids		both = bms_union(join->min_lefthand, join->min_righthand);

		if (!bms_overlap(join->min_righthand, joined) || bms_is_subset(joined, join->min_righthand) ||
			bms_is_subset(both, outer) || bms_is_subset(both, inner))
			continue;
		if (component->special != NULL)
			return false;
		if (bms_is_subset(join->min_lefthand, outer) && bms_equal(join->syn_righthand, inner) &&
			(join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI || join->jointype == JOIN_LEFT))
			component->jointype = join->jointype;
		else if (join->jointype == JOIN_LEFT && bms_equal(join->syn_lefthand, inner) &&
				 bms_equal(join->syn_righthand, outer))
			component->jointype = JOIN_RIGHT;
		else
			return false;
		component->special = join;
	}
	if (component->special != NULL && CellarOuterJoinRelid(component->special) != 0)
		joined = bms_add_member(bms_copy(joined), CellarOuterJoinRelid(component->special));
	component->joinrel = find_join_rel(root, joined);
	return component->joinrel != NULL;
}

/*
 * Returns a column of the outer table that is equal to `column`, a column of an
 * earlier component, or `column`: the cell prunes by columns of the table.
 */
static Var *
prefer_outer_table(Var *column, RestrictInfo *rinfo, RelOptInfo *outer_table)
{
	ListCell   *lc;

	if (column->varno == outer_table->relid || rinfo->parent_ec == NULL)
		return column;
	foreach(lc, rinfo->parent_ec->ec_members)
	{
		EquivalenceMember *member = lfirst_node(EquivalenceMember, lc);
		Var		   *other = (Var *) member->em_expr;

		if (IsA(other, Var) && bms_equal(member->em_relids, outer_table->relids) && other->varattno > 0 &&
			other->vartype == column->vartype)
			return other;
	}
	return column;
}

/*
 * Adds a clause to the keys of the component if the clause is an equality of a
 * column of the outer side and a column of the component.
 */
static bool
add_key(CellarComponent *component, RestrictInfo *rinfo, Relids outer, RelOptInfo *outer_table)
{
	OpExpr	   *clause = (OpExpr *) rinfo->clause;
	Var		   *left;
	Var		   *right;

	if (!rinfo->can_join || !OidIsValid(rinfo->hashjoinoperator) || !IsA(clause, OpExpr) ||
		list_length(clause->args) != 2)
		return false;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (!IsA(left, Var) || !IsA(right, Var) || !cellar_is_integer_equality(get_opcode(clause->opno)))
		return false;
	if (!bms_is_member(left->varno, outer))
	{
		Var		   *other = left;

		left = right;
		right = other;
	}
	if (left->varattno <= 0 || right->varattno <= 0 || !bms_is_member(left->varno, outer) ||
		!bms_is_member(right->varno, component->rel->relids) ||
		!list_member(component->rel->reltarget->exprs, right))
		return false;
	component->hash_clauses = lappend(component->hash_clauses, rinfo);
	component->outer = lappend(component->outer, prefer_outer_table(left, rinfo, outer_table));
	component->keys = lappend(component->keys, right);
	return true;
}

static bool
fails_early_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, List) || IsA(node, TargetEntry) || IsA(node, Aggref))
		return expression_tree_walker(node, fails_early_walker, context);
	if (!cellar_depends_on_row(node))
		return !cellar_catchable(node);
	return expression_tree_walker(node, fails_early_walker, context);
}

/*
 * Returns whether evaluating the parts of an expression that contain no column
 * when the scan starts could raise an error that cannot be caught.  PostgreSQL
 * evaluates an expression over joined rows only if there is a joined row.
 */
bool
cellar_fails_early(Node *expr)
{
	return fails_early_walker(expr, NULL);
}

/*
 * Adds a clause to the conditions of the component, if the join is an inner
 * join and the cell can evaluate the clause for the joined rows.
 */
static bool
add_condition(PlannerInfo *root, CellarComponent *component, RestrictInfo *rinfo, RelOptInfo *outer_table)
{
	const char *reason = NULL;

	if (component->jointype != JOIN_INNER || contain_subplans((Node *) rinfo->clause) ||
		contain_volatile_functions((Node *) rinfo->clause) || cellar_fails_early((Node *) rinfo->clause) ||
		!cellar_expression_offloadable(cellar_as_outer_columns((Node *) rinfo->clause, outer_table->relid),
									   outer_table->relid, &reason))
		return false;
	component->conditions = lappend(component->conditions, rinfo->clause);
	return true;
}

/*
 * Finds type, relation and clauses of the join of the outer side with a
 * component.  Returns false if the cell cannot evaluate the join now.
 */
bool
cellar_find_lookup_join(PlannerInfo *root, RelOptInfo *outer, CellarComponent *component, RelOptInfo *outer_table)
{
	RelOptInfo *inner = component->rel;
	Relids		both = bms_union(outer->relids, inner->relids);
	ListCell   *lc;

	if (!find_join_type(root, outer->relids, component))
		return false;
	component->clauses = CellarJoinEqualities(root, component->joinrel->relids, outer->relids, inner,
											  component->special);
	if (IS_OUTER_JOIN(component->jointype) && component->clauses != NIL)
		return false;
	foreach(lc, list_concat_copy(outer->joininfo, inner->joininfo))
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!bms_is_subset(rinfo->required_relids, component->joinrel->relids) ||
			!CellarClauseApplies(rinfo, both))
			continue;
		if (IS_OUTER_JOIN(component->jointype) && RINFO_IS_PUSHED_DOWN(rinfo, component->joinrel->relids))
			return false;
		component->clauses = list_append_unique_ptr(component->clauses, rinfo);
	}
	foreach(lc, component->clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (rinfo->pseudoconstant)
			return false;
		if (!add_key(component, rinfo, outer->relids, outer_table) &&
			!add_condition(root, component, rinfo, outer_table))
			return false;
	}
	return component->keys != NIL && list_length(component->keys) <= CELLAR_KEY_PARTS_MAX;
}

/*
 * Adds the outer joins within a set of relations, which PostgreSQL 16 and later
 * number among the relations.
 */
static Relids
add_outer_joins(PlannerInfo *root, Relids relids)
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
		int			best_number = -1;

		if (large == NULL || is_small(root, large))
			continue;
		for (int j = nspecial; j < list_length(components); j++)
		{
			RelOptInfo *other = cellar_find_rel(root, list_nth(components, j));
			RelOptInfo *joined;

			if (j == i || other == NULL || !have_relevant_joinclause(root, large, other))
				continue;
			joined = find_join_rel(root, add_outer_joins(root, bms_union(large->relids, other->relids)));
			if (joined == NULL || joined->cheapest_total_path == NULL ||
				joined->rows >= (best == NULL ? large->rows : best->rows))
				continue;
			best = joined;
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
			joined = find_join_rel(root, add_outer_joins(root, bms_add_member(bms_copy(lfirst(lc)), relid)));
			if (joined == NULL || joined->cheapest_total_path == NULL ||
				(best != NULL && joined->rows >= best->rows))
				continue;
			best = joined;
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
 * Returns divisions of the base relations other than the outer table into
 * components, as lists of sets of relations: the one whose components have the
 * fewest rows, and for each component that is a join, a division in which the
 * cell evaluates the join with the component's largest table.
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
