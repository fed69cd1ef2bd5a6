/*-------------------------------------------------------------------------
 *
 * query_columns.c
 *	  Decides whether reading a column of a query might raise an error, because
 *	  it is an expression of a view, a subquery or a query of WITH (unnest.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/rel.h"

#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Returns whether no column of a table is an expression that a query evaluates.
 */
bool
cellar_has_stored_columns(Oid relid)
{
	Relation	relation = table_open(relid, NoLock);
	bool		stored = !CellarHasVirtualColumns(RelationGetDescr(relation));

	table_close(relation, NoLock);
	return stored;
}

/*
 * Returns the query of WITH of `query` to which a range table entry refers, or NULL.
 * The entry is in a subquery `level` levels below.
 */
Query *
cellar_find_cte(const Query *query, const RangeTblEntry *rte, Index level)
{
	ListCell   *lc;

	foreach(lc, query->cteList)
	{
		const CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		if (rte->ctelevelsup == level && !cte->cterecursive && strcmp(cte->ctename, rte->ctename) == 0)
			return IsA(cte->ctequery, Query) ? (Query *) cte->ctequery : NULL;
	}
	return NULL;
}

static bool column_may_fail_walker(Node *node, void *query);

/*
 * Returns whether a column of the query, which can be an expression of a view, might
 * raise an error.  PostgreSQL evaluates such an expression where the column is used.
 */
bool
cellar_column_may_fail(Query *query, const Var *column)
{
	RangeTblEntry *rte = rt_fetch(column->varno, query->rtable);
	Query	   *columns;
	Node	   *expr;

	switch (rte->rtekind)
	{
		case RTE_RELATION:
			return !cellar_has_stored_columns(rte->relid);
		case RTE_JOIN:
			return column->varattno <= 0 ||
				column_may_fail_walker(list_nth(rte->joinaliasvars, column->varattno - 1), query);
		case RTE_SUBQUERY:
			columns = rte->subquery;
			break;
		case RTE_CTE:
			columns = cellar_find_cte(query, rte, 0);
			break;
		default:
			/* A column of GROUP BY, in which there are only columns of the tables. */
			if (!CELLAR_IS_RTE_GROUP(rte))
				return true;
			columns = query;
			break;
	}
	if (CELLAR_IS_RTE_GROUP(rte))
		expr = list_nth(CELLAR_GROUP_EXPRESSIONS(rte), column->varattno - 1);
	else if (columns == NULL || rte->lateral || column->varattno <= 0 || columns->setOperations != NULL)
		return true;
	else
		expr = (Node *) list_nth_node(TargetEntry, columns->targetList, column->varattno - 1)->expr;
	return contain_volatile_functions(expr) || cellar_may_fail(eval_const_expressions(NULL, copyObject(expr))) ||
		column_may_fail_walker(expr, columns);
}

/* Returns whether a column in an expression of the query might raise an error. */
static bool
column_may_fail_walker(Node *node, void *query)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varlevelsup == 0 && cellar_column_may_fail(query, (Var *) node);
	return expression_tree_walker(node, column_may_fail_walker, query);
}

/* As cellar_column_may_fail() for the columns in an expression of the query. */
bool
cellar_columns_may_fail(Query *query, Node *expr)
{
	return column_may_fail_walker(expr, query);
}
