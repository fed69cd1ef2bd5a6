/*-------------------------------------------------------------------------
 *
 * offloadable_subquery.c
 *	  Decides whether a cell can evaluate expression IN (subquery).
 *
 * PostgreSQL executes an uncorrelated subquery once, when the scan starts, and
 * sends its values as a set (executor/subquery_values.c).  Most subqueries of IN
 * become joins; NOT IN and IN below OR do not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"

#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * A subquery may be estimated to return at most this many rows.  The executor
 * accepts four times as many different values.
 */
#define SUBQUERY_ROWS_MAX		65536

/*
 * Returns whether one of the first n subqueries of the statement, which include
 * those in the nth, contains a volatile function: the values must be the same when
 * PostgreSQL executes the subquery again.
 */
static bool
is_volatile(const PlannerInfo *root, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (contain_volatile_functions((Node *) list_nth_node(PlannerInfo, root->glob->subroots, i)->parse))
			return true;
	}
	return false;
}

/* Returns whether a planned expression refers to values of the queries around it. */
static bool
outer_reference_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC)
		return true;
	return expression_tree_walker(node, outer_reference_walker, context);
}

/*
 * Returns whether the values of a planned subquery can change during the statement.
 * PostgreSQL and the cell would each have to notice that, in every scan.
 */
static bool
may_change(const PlannerInfo *root)
{
	const Query *query = root->parse;

	return outer_reference_walker((Node *) query->targetList, NULL) ||
		outer_reference_walker((Node *) query->jointree, NULL) ||
		outer_reference_walker(query->havingQual, NULL);
}

/*
 * Returns whether a planned subquery might raise an error: PostgreSQL executes it only
 * for the first row that reaches the condition.  Only queries of tables are examined.
 */
static bool
may_fail(const PlannerInfo *root)
{
	const Query *query = root->parse;
	ListCell   *lc;

	if (query->setOperations != NULL || query->hasTargetSRFs || query->hasWindowFuncs || query->hasSubLinks ||
		query->groupingSets != NIL || query->limitCount != NULL || query->limitOffset != NULL ||
		root->init_plans != NIL)
		return true;
	foreach(lc, query->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_JOIN || rte->rtekind == RTE_RESULT || CELLAR_IS_RTE_GROUP(rte))
			continue;
		if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL || rte->securityQuals != NIL ||
			(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW &&
			 rte->relkind != RELKIND_PARTITIONED_TABLE))
			return true;
	}
	return cellar_may_fail((Node *) query->targetList) || cellar_may_fail((Node *) query->jointree) ||
		cellar_may_fail(query->havingQual);
}

/*
 * Returns why the cell cannot evaluate a condition with a subquery, or NULL.  `root`
 * is NULL if the condition is not a restriction of a scan.
 */
const char *
cellar_subquery_unsuitable(const PlannerInfo *root, SubPlan *subplan)
{
	OpExpr	   *test = (OpExpr *) subplan->testexpr;

	if (root == NULL || subplan->subLinkType != ANY_SUBLINK || !subplan->useHashTable || subplan->parParam != NIL ||
		!IsA(test, OpExpr) || list_length(test->args) != 2 || !IsA(lsecond(test->args), Param))
		return "the expression contains a subquery";
	set_opfuncid(test);
	if (!cellar_is_integer_equality(test->opfuncid))
		return "the expression contains a subquery whose values are not integers, dates or timestamps";
	if (((Plan *) list_nth(root->glob->subplans, subplan->plan_id - 1))->plan_rows > SUBQUERY_ROWS_MAX)
		return "the expression contains a subquery with too many rows";
	if (may_change(list_nth_node(PlannerInfo, root->glob->subroots, subplan->plan_id - 1)))
		return "the expression contains a subquery whose values depend on the query around it";
	if (may_fail(list_nth_node(PlannerInfo, root->glob->subroots, subplan->plan_id - 1)))
		return "the expression contains a subquery that might raise an error";
	if (is_volatile(root, subplan->plan_id))
		return "the expression contains a subquery with a volatile function";
	return NULL;
}
