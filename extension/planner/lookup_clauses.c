/*-------------------------------------------------------------------------
 *
 * lookup_clauses.c
 *	  How a component is joined with the outer side of a lookup join
 *	  (lookup_path.c).
 *
 * A component is joined with the outer table, and possibly with earlier
 * components, by equalities of integers, dates or timestamps.  An inner join may
 * have further conditions, which the cell evaluates for the joined rows.  A
 * semijoin or an antijoin may have one comparison of such columns, which becomes
 * the last part of the key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

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
 * Finds the columns of the outer side and of the component that a clause compares.
 * Sets *swapped to whether the column of the outer side is on the right.  Returns
 * false if the clause has another form.
 */
static bool
find_columns(const CellarComponent *component, const RestrictInfo *rinfo, Relids outer, Var **column, Var **key,
			 bool *swapped)
{
	OpExpr	   *clause = (OpExpr *) rinfo->clause;

	if (!IsA(clause, OpExpr) || list_length(clause->args) != 2)
		return false;
	*column = linitial(clause->args);
	*key = lsecond(clause->args);
	if (!IsA(*column, Var) || !IsA(*key, Var))
		return false;
	*swapped = !bms_is_member((*column)->varno, outer);
	if (*swapped)
	{
		Var		   *other = *column;

		*column = *key;
		*key = other;
	}
	return (*column)->varattno > 0 && (*key)->varattno > 0 && bms_is_member((*column)->varno, outer) &&
		bms_is_member((*key)->varno, component->rel->relids) && list_member(component->rel->reltarget->exprs, *key);
}

/*
 * Adds a clause to the keys of the component if the clause is an equality of a
 * column of the outer side and a column of the component.
 */
static bool
add_key(CellarComponent *component, RestrictInfo *rinfo, Relids outer, RelOptInfo *outer_table)
{
	Var		   *column;
	Var		   *key;
	bool		swapped;

	if (!rinfo->can_join || !OidIsValid(rinfo->hashjoinoperator) ||
		!find_columns(component, rinfo, outer, &column, &key, &swapped) ||
		!cellar_is_integer_equality(get_opcode(((OpExpr *) rinfo->clause)->opno)))
		return false;
	component->hash_clauses = lappend(component->hash_clauses, rinfo);
	component->outer = lappend(component->outer, prefer_outer_table(column, rinfo, outer_table));
	component->keys = lappend(component->keys, key);
	return true;
}

/*
 * Returns how an operator compares integers, dates or timestamps of one type class,
 * or CELLAR_COMPARISON_NONE.
 */
static int
comparison_of(Oid operator)
{
	Oid			left;
	Oid			right;
	Oid			family;

	op_input_types(operator, &left, &right);
	if (!OidIsValid(left) || !OidIsValid(right))
		return CELLAR_COMPARISON_NONE;
	family = lookup_type_cache(left, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	if (!OidIsValid(family) ||
		!cellar_is_integer_equality(get_opcode(get_opfamily_member(family, left, right, BTEqualStrategyNumber))))
		return CELLAR_COMPARISON_NONE;
	switch (get_op_opfamily_strategy(operator, family))
	{
		case BTLessStrategyNumber:
			return CELLAR_COMPARISON_LESS;
		case BTLessEqualStrategyNumber:
			return CELLAR_COMPARISON_LESS_OR_EQUAL;
		case BTGreaterEqualStrategyNumber:
			return CELLAR_COMPARISON_GREATER_OR_EQUAL;
		case BTGreaterStrategyNumber:
			return CELLAR_COMPARISON_GREATER;
		default:
			return get_negator(operator) == get_opfamily_member(family, left, right, BTEqualStrategyNumber) ?
				CELLAR_COMPARISON_NOT_EQUAL : CELLAR_COMPARISON_NONE;
	}
}

/* Returns the comparison with its sides exchanged. */
static int
commuted(int comparison)
{
	switch (comparison)
	{
		case CELLAR_COMPARISON_LESS:
			return CELLAR_COMPARISON_GREATER;
		case CELLAR_COMPARISON_LESS_OR_EQUAL:
			return CELLAR_COMPARISON_GREATER_OR_EQUAL;
		case CELLAR_COMPARISON_GREATER:
			return CELLAR_COMPARISON_LESS;
		case CELLAR_COMPARISON_GREATER_OR_EQUAL:
			return CELLAR_COMPARISON_LESS_OR_EQUAL;
		default:
			return comparison;
	}
}

/*
 * Makes a clause of a semijoin or an antijoin the comparison of the component, if it
 * compares a column of the outer side with one of the component, and sets these.
 */
static bool
add_comparison(CellarComponent *component, const RestrictInfo *rinfo, Relids outer, Var **column, Var **key)
{
	bool		swapped;
	int			comparison;

	if ((component->jointype != JOIN_SEMI && component->jointype != JOIN_ANTI) ||
		component->comparison != CELLAR_COMPARISON_NONE ||
		!find_columns(component, rinfo, outer, column, key, &swapped))
		return false;
	comparison = comparison_of(((OpExpr *) rinfo->clause)->opno);
	if (comparison == CELLAR_COMPARISON_NONE)
		return false;
	component->comparison = swapped ? commuted(comparison) : comparison;
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
	Var		   *column = NULL;
	Var		   *key = NULL;
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
			!add_comparison(component, rinfo, outer->relids, &column, &key) &&
			!add_condition(root, component, rinfo, outer_table))
			return false;
	}
	if (component->keys == NIL)
		return false;
	if (component->comparison != CELLAR_COMPARISON_NONE)
	{
		component->outer = lappend(component->outer, column);
		component->keys = lappend(component->keys, key);
	}
	return list_length(component->keys) <= CELLAR_KEY_PARTS_MAX;
}
