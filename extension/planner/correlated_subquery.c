/*-------------------------------------------------------------------------
 *
 * correlated_subquery.c
 *	  Decides whether a correlated subquery with aggregates can be computed as
 *	  groups, and makes the subquery that returns the groups (unnest.c).
 *
 *		(SELECT 0.2 * avg(l.quantity) FROM lineitem l WHERE l.part = p.part)
 *
 * becomes the expression 0.2 * groups.c2 over the groups
 *
 *		SELECT l.part AS c1, avg(l.quantity) AS c2 FROM lineitem l GROUP BY l.part
 *
 * A row of the outer query has at most one group: that whose keys equal the row's
 * values.  The groups are computed for other rows than the subquery, so nothing in
 * the subquery may raise an error.  The whole statement has no volatile function and
 * locks no rows (unnest.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_node.h"
#include "parser/parse_oper.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Returns whether the table is on a cell.  Its size does not matter: many executions of a
 * subquery over a small table take long, too.
 */
static bool
is_table_on_cell(Oid relid)
{
	Relation	relation = table_open(relid, NoLock);	/* the rewriter has locked it */
	CellarLocation location;
	bool		suitable = cellar_relation_unsuitable(relation) == NULL &&
		(cellar_plan_display == CELLAR_DISPLAY_ALWAYS || cellar_relation_location(relation, &location));

	table_close(relation, NoLock);
	return suitable;
}

static bool
higher_level_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if ((IsA(node, Var) && ((Var *) node)->varlevelsup > 1) || (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup > 0))
		return true;
	return expression_tree_walker(node, higher_level_walker, context);
}

/* Returns whether the query reads a table that is on a cell. */
static bool
reads_table_on_cell(const Query *query)
{
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && is_table_on_cell(rte->relid))
			return true;
	}
	return false;
}

/*
 * Sets *on_cell if a member of the subquery's range table is on a cell.  Returns false
 * unless the member is a join, a table, or a query of WITH of the outer query.  The rows of the
 * latter may be read although they were not read before, so that it must not raise an error.
 */
static bool
is_simple_range(const Query *query, const RangeTblEntry *rte, bool *on_cell)
{
	const Query *cte;

	if (rte->rtekind == RTE_JOIN)
		return true;
	if (rte->rtekind == RTE_CTE)
	{
		cte = cellar_find_cte(query, rte, 1);
		if (cte == NULL || cellar_query_may_fail(cte))
			return false;
		*on_cell |= reads_table_on_cell(cte);
		return true;
	}
	if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW) || rte->securityQuals != NIL ||
		!cellar_has_stored_columns(rte->relid))
		return false;
	*on_cell |= is_table_on_cell(rte->relid);
	return true;
}

/*
 * Returns whether the subquery is a join of tables, or of queries of WITH, perhaps aggregated,
 * without anything else, and one of the tables is on a cell.
 */
static bool
has_simple_form(const Query *query, const Query *subquery)
{
	bool		on_cell = false;
	ListCell   *lc;

	if (subquery->commandType != CMD_SELECT || subquery->hasWindowFuncs || subquery->hasTargetSRFs ||
		subquery->hasSubLinks || subquery->hasDistinctOn || subquery->hasModifyingCTE ||
		subquery->cteList != NIL || subquery->setOperations != NULL || subquery->groupClause != NIL ||
		subquery->groupingSets != NIL || subquery->havingQual != NULL || subquery->distinctClause != NIL ||
		subquery->sortClause != NIL || subquery->limitOffset != NULL || subquery->limitCount != NULL)
		return false;
	foreach(lc, subquery->rtable)
	{
		if (!is_simple_range(query, lfirst_node(RangeTblEntry, lc), &on_cell))
			return false;
	}
	return on_cell && !query_tree_walker((Query *) subquery, higher_level_walker, NULL, 0);
}

/* Replaces columns of joins and of queries of WITH by the expressions that they stand for. */
static Node *
replace_columns(Node *node, void *arg)
{
	const CellarUnnesting *unnesting = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0 && ((Var *) node)->varattno > 0)
	{
		const Var  *var = (const Var *) node;
		RangeTblEntry *rte = rt_fetch(var->varno, unnesting->subquery->rtable);

		if (rte->rtekind == RTE_CTE)
			return copyObject((Node *) list_nth_node(TargetEntry, cellar_find_cte(unnesting->query, rte, 1)->targetList,
													 var->varattno - 1)->expr);
		if (rte->rtekind == RTE_JOIN)
			return replace_columns(list_nth(rte->joinaliasvars, var->varattno - 1), arg);
	}
	return expression_tree_mutator(node, replace_columns, arg);
}

/* Returns whether an expression of the subquery might raise an error. */
static bool
may_fail(CellarUnnesting *unnesting, Node *expr)
{
	return cellar_may_fail(eval_const_expressions(NULL, replace_columns(expr, unnesting)));
}

static bool
outer_column_walker(Node *node, void *query)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varlevelsup == 1 && cellar_column_may_fail(query, (Var *) node);
	return expression_tree_walker(node, outer_column_walker, query);
}

static bool
contain_system_column_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varlevelsup == 0 && ((Var *) node)->varattno <= 0;
	return expression_tree_walker(node, contain_system_column_walker, context);
}

/*
 * Returns whether all values of a group of GROUP BY compare alike with a value of the
 * outer query: the operator is an equality of the keys' type, and the equality is
 * bytewise if the type has collations.
 */
static bool
is_equality_of_groups(const OpExpr *equality, Node *key)
{
	Oid			type = exprType(key);
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);

	if (cellar_is_integer_equality(get_opcode(equality->opno)))
		return true;
	if (!OidIsValid(entry->btree_opf) || exprType(linitial(equality->args)) != exprType(lsecond(equality->args)) ||
		get_op_opfamily_strategy(equality->opno, entry->btree_opf) != BTEqualStrategyNumber ||
		!cellar_is_comparison(get_opcode(equality->opno)))
		return false;
	if (!type_is_collatable(type))
		return true;
	return OidIsValid(equality->inputcollid) && get_collation_isdeterministic(equality->inputcollid) &&
		OidIsValid(exprCollation(key)) && get_collation_isdeterministic(exprCollation(key));
}

/*
 * Adds a condition of the subquery to the equalities with the outer query, or to
 * the other conditions.  Returns false for any other condition.
 */
static bool
add_condition(CellarUnnesting *unnesting, Node *condition)
{
	OpExpr	   *equality = (OpExpr *) condition;
	Node	   *key;
	Node	   *outer;

	if (may_fail(unnesting, condition))
		return false;
	if (!contain_vars_of_level(condition, 1))
	{
		unnesting->conditions = lappend(unnesting->conditions, condition);
		return true;
	}
	if (!IsA(equality, OpExpr) || list_length(equality->args) != 2)
		return false;
	key = linitial(equality->args);
	outer = lsecond(equality->args);
	if (contain_vars_of_level(key, 1))
	{
		key = lsecond(equality->args);
		outer = linitial(equality->args);
	}
	if (contain_vars_of_level(key, 1) || contain_vars_of_level(outer, 0) || !contain_vars_of_level(key, 0) ||
		contain_system_column_walker(key, NULL) || !is_equality_of_groups(equality, key))
		return false;
	unnesting->keys = lappend(unnesting->keys, key);
	unnesting->equalities = lappend(unnesting->equalities, equality);
	return true;
}

/*
 * Adds the conditions of inner joins of the subquery, and those of WHERE.  The
 * conditions of outer joins remain in the joins.
 */
static bool
add_conditions(CellarUnnesting *unnesting, Node *node)
{
	Node	   *quals;
	ListCell   *lc;

	if (IsA(node, RangeTblRef))
		return true;
	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
		{
			if (!add_conditions(unnesting, lfirst(lc)))
				return false;
		}
		quals = ((FromExpr *) node)->quals;
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);

		if (join->jointype != JOIN_INNER)
			return !contain_vars_of_level(node, 1) && !may_fail(unnesting, node);
		if (!add_conditions(unnesting, join->larg) || !add_conditions(unnesting, join->rarg))
			return false;
		quals = join->quals;
	}
	foreach(lc, make_ands_implicit((Expr *) quals))
	{
		if (!add_condition(unnesting, lfirst(lc)))
			return false;
	}
	return true;
}

/* Removes the conditions that add_conditions() has collected. */
static void
remove_conditions(Node *node)
{
	ListCell   *lc;

	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
			remove_conditions(lfirst(lc));
		((FromExpr *) node)->quals = NULL;
	}
	else if (IsA(node, JoinExpr) && ((JoinExpr *) node)->jointype == JOIN_INNER)
	{
		remove_conditions(((JoinExpr *) node)->larg);
		remove_conditions(((JoinExpr *) node)->rarg);
		((JoinExpr *) node)->quals = NULL;
	}
}

/*
 * Finds the keys of the groups, and the other conditions of the subquery.  Returns false if the
 * subquery cannot be computed as groups.
 */
bool
cellar_find_group_keys(CellarUnnesting *unnesting)
{
	return has_simple_form(unnesting->query, unnesting->subquery) &&
		add_conditions(unnesting, (Node *) unnesting->subquery->jointree) && unnesting->keys != NIL &&
		!outer_column_walker((Node *) unnesting->equalities, unnesting->query);
}

/*
 * Replaces the aggregates of an expression by columns of the groups, and adds them to
 * the list.
 */
static Node *
replace_aggregates(Node *node, void *arg)
{
	CellarUnnesting *unnesting = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
	{
		unnesting->aggregates = list_append_unique(unnesting->aggregates, node);
		for (int i = 0; i < list_length(unnesting->aggregates); i++)
		{
			if (equal(list_nth(unnesting->aggregates, i), node))
				return (Node *) makeVar(unnesting->rtindex, list_length(unnesting->keys) + i + 1, exprType(node),
										exprTypmod(node), exprCollation(node), 0);
		}
	}
	return expression_tree_mutator(node, replace_aggregates, arg);
}

/*
 * Returns the expression of the subquery over columns of the groups, in terms of the outer
 * query, or NULL if the subquery cannot be replaced.  Changes neither query.
 */
Node *
cellar_analyze_correlated_subquery(CellarUnnesting *unnesting)
{
	Query	   *subquery = unnesting->subquery;
	Node	   *expr;

	if (!subquery->hasAggs || list_length(subquery->targetList) != 1 || !cellar_find_group_keys(unnesting))
		return NULL;
	expr = (Node *) linitial_node(TargetEntry, subquery->targetList)->expr;
	if (may_fail(unnesting, expr))
		return NULL;
	expr = replace_aggregates(expr, unnesting);
	if (unnesting->aggregates == NIL || contain_vars_of_level((Node *) unnesting->aggregates, 1) ||
		outer_column_walker(expr, unnesting->query))
		return NULL;
	unnesting->resolved = (List *) replace_columns((Node *) unnesting->aggregates, unnesting);
	expr = copyObject(expr);
	IncrementVarSublevelsUp(expr, -1, 1);
	return expr;
}

/* Makes the subquery return the groups: a row of keys and aggregates for each. */
void
cellar_group_subquery(CellarUnnesting *unnesting)
{
	Query	   *subquery = unnesting->subquery;
	ListCell   *lc;

	subquery->targetList = NIL;
	foreach(lc, list_concat_copy(unnesting->keys, unnesting->aggregates))
	{
		Expr	   *expr = copyObject(lfirst(lc));
		AttrNumber	number = foreach_current_index(lc) + 1;
		TargetEntry *entry = makeTargetEntry(expr, number, psprintf("c%d", number), false);
		SortGroupClause *clause;
		Oid			less;
		Oid			equal;
		bool		hashable;

		subquery->targetList = lappend(subquery->targetList, entry);
		if (number > list_length(unnesting->keys))
			continue;
		get_sort_group_operators(exprType((Node *) expr), true, true, false, &less, &equal, NULL, &hashable);
		clause = makeNode(SortGroupClause);
		clause->tleSortGroupRef = number;
		clause->eqop = equal;
		clause->sortop = less;
		clause->hashable = hashable;
		entry->ressortgroupref = number;
		subquery->groupClause = lappend(subquery->groupClause, clause);
	}
	remove_conditions((Node *) subquery->jointree);
	subquery->jointree->quals = unnesting->conditions == NIL ? NULL :
		(Node *) make_ands_explicit(unnesting->conditions);
}

/* Makes the subquery return the groups, and adds it to the range table of the outer query. */
void
cellar_add_groups(CellarUnnesting *unnesting)
{
	Query	   *query = unnesting->query;
	ParseNamespaceItem *item;

	cellar_group_subquery(unnesting);
	item = addRangeTableEntryForSubquery(make_parsestate(NULL), unnesting->subquery, makeAlias("groups", NIL), false, false);
	query->rtable = lappend(query->rtable, item->p_rte);
	Assert(list_length(query->rtable) == unnesting->rtindex);
}

/* Returns the equalities of the outer query's columns with the groups' keys. */
List *
cellar_group_equalities(const CellarUnnesting *unnesting)
{
	List	   *conditions = NIL;
	ListCell   *lc;

	foreach(lc, unnesting->equalities)
	{
		OpExpr	   *equality = copyObject(lfirst_node(OpExpr, lc));
		Node	   *key = list_nth(unnesting->keys, foreach_current_index(lc));
		ListCell   *arg;

		foreach(arg, equality->args)
		{
			if (contain_vars_of_level(lfirst(arg), 1))
				IncrementVarSublevelsUp(lfirst(arg), -1, 1);
			else
				lfirst(arg) = makeVar(unnesting->rtindex, foreach_current_index(lc) + 1, exprType(key),
									  exprTypmod(key), exprCollation(key), 0);
		}
		conditions = lappend(conditions, equality);
	}
	return conditions;
}
