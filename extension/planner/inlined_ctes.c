/*-------------------------------------------------------------------------
 *
 * inlined_ctes.c
 *	  Replaces queries of WITH that are used several times by subqueries.
 *
 * PostgreSQL executes such a query once and keeps its rows.  It evaluates all groups
 * although each reference may need few of them, and scans the rows once for each
 * reference.  A subquery is planned for its place: conditions and join filters
 * reach the Smart Scan below, and the cell computes only the groups that are needed.
 *
 * The subqueries have the same rows as the query of WITH, because it is not volatile and
 * has no results that depend on the order of rows.
 * PostgreSQL evaluates the conditions of a reference below the grouping of the
 * subquery, and so for more rows.  Therefore neither these conditions nor the
 * query of WITH may raise an error.
 *
 * The statement is planned in both forms, and the costs decide (join_filter.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"

#include "cellar.h"
#include "cellar/planner.h"

/* Returns whether the query may be executed several times, and reads a large table on a cell. */
static bool
is_suitable(const CommonTableExpr *cte)
{
	const Query *query = (const Query *) cte->ctequery;

	return cte->cterefcount > 1 && cte->ctematerialized == CTEMaterializeDefault && !cte->cterecursive &&
		IsA(query, Query) && !query->hasDistinctOn && !cellar_query_may_fail(query) && !contain_volatile_functions((Node *) query) &&
		cellar_reads_large_table(query);
}

static bool
bool_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, BoolExpr) || expression_tree_walker(node, bool_walker, context);
}

/*
 * Returns whether PostgreSQL might evaluate one of the conditions, or a part of a
 * disjunction, below a subquery, and the condition might raise an error.
 */
static bool
may_fail_below(const Query *query, Node *conditions)
{
	ListCell   *lc;

	foreach(lc, make_ands_implicit((Expr *) conditions))
	{
		Relids		relids = pull_varnos(NULL, lfirst(lc));
		bool		subquery = false;
		int			relid = -1;

		while ((relid = bms_next_member(relids, relid)) >= 0)
			subquery |= rt_fetch(relid, query->rtable)->rtekind != RTE_RELATION;
		if (subquery && (bms_membership(relids) == BMS_SINGLETON || bool_walker(lfirst(lc), NULL)) &&
			cellar_may_fail(eval_const_expressions(NULL, copyObject(lfirst(lc)))))
			return true;
	}
	return false;
}

static bool
condition_walker(Node *node, void *query)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return may_fail_below((Query *) node, ((Query *) node)->havingQual) ||
			query_tree_walker((Query *) node, condition_walker, node, 0);
	if (IsA(node, FromExpr) && may_fail_below(query, ((FromExpr *) node)->quals))
		return true;
	if (IsA(node, JoinExpr) && may_fail_below(query, ((JoinExpr *) node)->quals))
		return true;
	return expression_tree_walker(node, condition_walker, query);
}

/*
 * Returns a copy of the query without queries of WITH that can be replaced, or NULL if
 * there are none.
 */
Query *
cellar_inline_ctes(const Query *query)
{
	Query	   *copy = NULL;
	ListCell   *lc;

	if (!cellar_offload_processing || !cellar_unnest_subqueries_enabled || query->commandType != CMD_SELECT ||
		query->rowMarks != NIL)
		return NULL;
	foreach(lc, query->cteList)
	{
		if (!is_suitable(lfirst(lc)))
			continue;
		if (copy == NULL)
			copy = copyObject((Query *) query);
		list_nth_node(CommonTableExpr, copy->cteList, foreach_current_index(lc))->ctematerialized = CTEMaterializeNever;
	}
	return copy == NULL || condition_walker((Node *) copy, NULL) ? NULL : copy;
}
