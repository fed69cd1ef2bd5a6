/*-------------------------------------------------------------------------
 *
 * unnest.c
 *	  Replaces correlated subqueries with aggregates by joins with groups.
 *
 *		x < (SELECT 0.2 * avg(l.quantity) FROM lineitem l WHERE l.part = p.part)
 *
 * in WHERE becomes
 *
 *		x < 0.2 * s.avg AND s.part = p.part
 *
 * where s is (SELECT l.part, avg(l.quantity) FROM lineitem l GROUP BY l.part).
 * PostgreSQL executes the subquery for each row, which takes an index scan each
 * time; the cell computes all groups in one scan, or those that a join filter
 * selects.
 *
 * The join drops a row without a group.  Without the join, the condition must not be
 * true for such a row, either.  Therefore the operator and the expression over the
 * aggregates must be strict, and the aggregates must be NULL without rows.  The join
 * evaluates some expressions for other rows than the original condition.  These must
 * not raise errors: the expressions in the subquery, both operands, and the columns
 * of views in them (query_columns.c).
 *
 * The statement is planned in both forms, and the costs decide (join_filter.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
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

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* A subquery that can be replaced. */
typedef struct Unnesting
{
	Query	   *query;			/* the outer query */
	Query	   *subquery;
	List	   *keys;			/* Vars of the subquery's tables */
	List	   *equalities;		/* OpExprs of the subquery, by key */
	List	   *conditions;		/* the other conditions of the subquery */
	List	   *aggregates;		/* Aggrefs */
	Index		rtindex;		/* of the groups in the outer query */
} Unnesting;

/* Returns whether the table is on a cell and large enough for a Smart Scan. */
static bool
is_large_table_on_cell(Oid relid)
{
	Relation	relation = table_open(relid, NoLock);	/* the rewriter has locked it */
	CellarLocation location;
	bool		suitable = cellar_relation_unsuitable(relation) == NULL &&
		(cellar_plan_display == CELLAR_DISPLAY_ALWAYS || cellar_relation_location(relation, &location)) &&
		RelationGetNumberOfBlocks(relation) >= (BlockNumber) cellar_min_scan_size;

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

/* Returns whether the query reads a table that is on a cell and large enough for a Smart Scan. */
static bool
reads_large_table_on_cell(const Query *query)
{
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && is_large_table_on_cell(rte->relid))
			return true;
	}
	return false;
}

/*
 * Sets *on_cell if a member of the subquery's FROM list is on a cell.  Returns false
 * unless the member is a table, or a query of WITH of the outer query.  The rows of the latter
 * may be read although they were not read before, so that it must not raise an error.
 */
static bool
is_simple_range(const Query *query, const RangeTblEntry *rte, bool *on_cell)
{
	const Query *cte;

	if (rte->rtekind == RTE_CTE)
	{
		cte = cellar_find_cte(query, rte, 1);
		if (cte == NULL || cte->rowMarks != NIL || contain_volatile_functions((Node *) cte) || cellar_query_may_fail(cte))
			return false;
		*on_cell |= reads_large_table_on_cell(cte);
		return true;
	}
	if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW) || rte->securityQuals != NIL ||
		!cellar_has_stored_columns(rte->relid))
		return false;
	*on_cell |= is_large_table_on_cell(rte->relid);
	return true;
}

/*
 * Returns whether the subquery is an aggregation of a join of tables, or of queries of WITH,
 * without anything else, and one of the tables is on a cell.
 */
static bool
has_simple_form(const Query *query, const Query *subquery)
{
	bool		on_cell = false;
	ListCell   *lc;

	if (subquery->commandType != CMD_SELECT || !subquery->hasAggs || subquery->hasWindowFuncs ||
		subquery->hasTargetSRFs || subquery->hasSubLinks || subquery->hasDistinctOn || subquery->hasModifyingCTE ||
		subquery->cteList != NIL || subquery->setOperations != NULL || subquery->groupClause != NIL ||
		subquery->groupingSets != NIL || subquery->havingQual != NULL || subquery->distinctClause != NIL ||
		subquery->sortClause != NIL || subquery->limitOffset != NULL || subquery->limitCount != NULL ||
		subquery->rowMarks != NIL || list_length(subquery->targetList) != 1 ||
		list_length(subquery->rtable) != list_length(subquery->jointree->fromlist))
		return false;
	foreach(lc, subquery->jointree->fromlist)
	{
		if (!IsA(lfirst(lc), RangeTblRef) ||
			!is_simple_range(query, rt_fetch(((RangeTblRef *) lfirst(lc))->rtindex, subquery->rtable), &on_cell))
			return false;
	}
	return on_cell && !contain_volatile_functions((Node *) subquery) &&
		!query_tree_walker((Query *) subquery, higher_level_walker, NULL, 0);
}

/* Replaces columns of queries of WITH by the expressions that they stand for. */
static Node *
replace_cte_columns(Node *node, void *arg)
{
	const Unnesting *unnesting = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0 && ((Var *) node)->varattno > 0)
	{
		const Var  *var = (const Var *) node;
		RangeTblEntry *rte = rt_fetch(var->varno, unnesting->subquery->rtable);

		if (rte->rtekind == RTE_CTE)
			return copyObject((Node *) list_nth_node(TargetEntry, cellar_find_cte(unnesting->query, rte, 1)->targetList,
													 var->varattno - 1)->expr);
	}
	return expression_tree_mutator(node, replace_cte_columns, arg);
}

/* Returns whether an expression of the subquery might raise an error. */
static bool
may_fail(Unnesting *unnesting, Node *expr)
{
	return cellar_may_fail(eval_const_expressions(NULL, replace_cte_columns(expr, unnesting)));
}

/*
 * Adds a condition of the subquery to the equalities with the outer query, or to
 * the other conditions.  Returns false for any other condition.
 */
static bool
add_condition(Unnesting *unnesting, Node *condition)
{
	OpExpr	   *equality = (OpExpr *) condition;
	Var		   *left;
	Var		   *right;

	if (!contain_vars_of_level(condition, 1))
	{
		unnesting->conditions = lappend(unnesting->conditions, condition);
		return !may_fail(unnesting, condition);
	}
	if (!IsA(equality, OpExpr) || list_length(equality->args) != 2 ||
		!cellar_is_integer_equality(get_opcode(equality->opno)))
		return false;
	left = linitial(equality->args);
	right = lsecond(equality->args);
	if (!IsA(left, Var) || !IsA(right, Var) || left->varlevelsup + right->varlevelsup != 1)
		return false;
	unnesting->keys = lappend(unnesting->keys, left->varlevelsup == 0 ? left : right);
	unnesting->equalities = lappend(unnesting->equalities, equality);
	return ((Var *) llast(unnesting->keys))->varattno > 0;
}

/*
 * Replaces the aggregates of an expression by columns of the groups, and adds them to
 * the list.
 */
static Node *
replace_aggregates(Node *node, void *arg)
{
	Unnesting  *unnesting = arg;

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

/* Returns whether all aggregates are NULL without rows and raise no error. */
static bool
are_suitable(Unnesting *unnesting)
{
	ListCell   *lc;

	foreach(lc, unnesting->aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (aggref->agglevelsup != 0 || aggref->aggfnoid == F_COUNT_ || aggref->aggfnoid == F_COUNT_ANY ||
			may_fail(unnesting, (Node *) aggref))
			return false;
	}
	return unnesting->aggregates != NIL;
}

/*
 * Returns the expression of the subquery over columns of the groups, or NULL if the
 * subquery cannot be replaced.
 */
static Node *
analyze_subquery(Unnesting *unnesting)
{
	Query	   *subquery = unnesting->subquery;
	Node	   *expr;
	ListCell   *lc;

	if (!has_simple_form(unnesting->query, subquery))
		return NULL;
	foreach(lc, make_ands_implicit((Expr *) subquery->jointree->quals))
	{
		if (!add_condition(unnesting, lfirst(lc)))
			return NULL;
	}
	if (unnesting->keys == NIL)
		return NULL;
	expr = (Node *) linitial_node(TargetEntry, subquery->targetList)->expr;
	if (contain_vars_of_level(expr, 1) || may_fail(unnesting, expr))
		return NULL;
	expr = replace_aggregates(expr, unnesting);
	if (!are_suitable(unnesting) || contain_nonstrict_functions(expr))
		return NULL;
	return expr;
}

/* Makes the subquery return the groups, and adds it to the range table of the outer query. */
static void
add_groups(Query *query, Unnesting *unnesting)
{
	Query	   *subquery = unnesting->subquery;
	RangeTblRef *reference = makeNode(RangeTblRef);
	ParseNamespaceItem *item;
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
	subquery->jointree->quals = unnesting->conditions == NIL ? NULL :
		(Node *) make_ands_explicit(unnesting->conditions);

	item = addRangeTableEntryForSubquery(make_parsestate(NULL), subquery, makeAlias("groups", NIL), false, false);
	query->rtable = lappend(query->rtable, item->p_rte);
	Assert(list_length(query->rtable) == unnesting->rtindex);
	reference->rtindex = unnesting->rtindex;
	query->jointree->fromlist = lappend(query->jointree->fromlist, reference);
}

/* Returns the equalities of the outer query's columns with the groups' keys. */
static List *
join_conditions(const Unnesting *unnesting)
{
	List	   *conditions = NIL;
	ListCell   *lc;

	foreach(lc, unnesting->equalities)
	{
		OpExpr	   *equality = copyObject(lfirst_node(OpExpr, lc));
		ListCell   *arg;

		foreach(arg, equality->args)
		{
			Var		   *var = lfirst_node(Var, arg);

			if (var->varlevelsup == 1)
				var->varlevelsup = 0;
			else
				lfirst(arg) = makeVar(unnesting->rtindex, foreach_current_index(lc) + 1, var->vartype, var->vartypmod,
									  var->varcollid, 0);
		}
		conditions = lappend(conditions, equality);
	}
	return conditions;
}

/* Returns whether a column of the outer query in the equalities might raise an error. */
static bool
outer_column_may_fail(Query *query, List *equalities)
{
	ListCell   *lc;

	foreach(lc, equalities)
	{
		ListCell   *arg;

		foreach(arg, lfirst_node(OpExpr, lc)->args)
		{
			const Var  *var = lfirst_node(Var, arg);

			if (var->varlevelsup == 1 && cellar_column_may_fail(query, var))
				return true;
		}
	}
	return false;
}

/*
 * Replaces the subquery of a condition of WHERE, if it has one that can be replaced.
 * Returns the new conditions, or NIL.
 */
static List *
unnest_condition(Query *query, Node *condition)
{
	OpExpr	   *comparison = (OpExpr *) condition;

	if (!IsA(comparison, OpExpr) || list_length(comparison->args) != 2 || comparison->opretset ||
		!func_strict(get_opcode(comparison->opno)) || !cellar_is_comparison(get_opcode(comparison->opno)) ||
		contain_volatile_functions(condition))
		return NIL;
	for (int i = 0; i < 2; i++)
	{
		SubLink    *sublink = list_nth(comparison->args, i);
		Unnesting	unnesting = {.query = query,.rtindex = list_length(query->rtable) + 1};
		Node	   *expr;

		if (!IsA(sublink, SubLink) || sublink->subLinkType != EXPR_SUBLINK)
			continue;
		if (cellar_may_fail(eval_const_expressions(NULL, copyObject(list_nth(comparison->args, 1 - i)))))
			return NIL;
		unnesting.subquery = castNode(Query, sublink->subselect);
		expr = analyze_subquery(&unnesting);
		if (expr == NULL || cellar_columns_may_fail(query, list_nth(comparison->args, 1 - i)) ||
			outer_column_may_fail(query, unnesting.equalities))
			return NIL;
		lfirst(list_nth_cell(comparison->args, i)) = expr;
		add_groups(query, &unnesting);
		return lcons(comparison, join_conditions(&unnesting));
	}
	return NIL;
}

/* Replaces subqueries in WHERE of a query.  Returns whether there are any. */
static bool
unnest_query(Query *query)
{
	List	   *conditions = NIL;
	bool		unnested = false;
	ListCell   *lc;

	if (query->commandType != CMD_SELECT || query->rowMarks != NIL || !query->hasSubLinks || query->jointree == NULL)
		return false;

	/* PostgreSQL does not plan subqueries beside a condition that is false. */
	foreach(lc, make_ands_implicit((Expr *) query->jointree->quals))
	{
		Node	   *condition = lfirst(lc);

		if (!checkExprHasSubLink(condition) && IsA(eval_const_expressions(NULL, copyObject(condition)), Const))
			return false;
	}
	foreach(lc, make_ands_implicit((Expr *) query->jointree->quals))
	{
		List	   *replaced = unnest_condition(query, lfirst(lc));

		unnested |= replaced != NIL;
		conditions = replaced != NIL ? list_concat(conditions, replaced) : lappend(conditions, lfirst(lc));
	}
	if (unnested)
		query->jointree->quals = (Node *) make_ands_explicit(conditions);
	return unnested;
}

static bool
unnest_walker(Node *node, void *context)
{
	bool	   *unnested = context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		*unnested |= unnest_query((Query *) node);
		return query_tree_walker((Query *) node, unnest_walker, context, 0);
	}
	return expression_tree_walker(node, unnest_walker, context);
}

static bool
has_sublink_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_sublink_walker, context, 0);
	if (IsA(node, SubLink) && ((SubLink *) node)->subLinkType == EXPR_SUBLINK)
		return true;
	return expression_tree_walker(node, has_sublink_walker, context);
}

/*
 * Returns a copy of the query without correlated subqueries that can be replaced, or
 * NULL if there are none.
 */
Query *
cellar_unnest_subqueries(const Query *query)
{
	Query	   *copy;
	bool		unnested = false;

	if (!cellar_offload_processing || !cellar_unnest_subqueries_enabled || query->commandType != CMD_SELECT ||
		!has_sublink_walker((Node *) query, NULL))
		return NULL;
	copy = copyObject((Query *) query);
	unnest_walker((Node *) copy, &unnested);
	return unnested ? copy : NULL;
}
