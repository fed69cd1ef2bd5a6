/*-------------------------------------------------------------------------
 *
 * offloadable_subquery.c
 *	  Decides whether a cell can evaluate expression IN (subquery), and whether
 *	  an initplan may be executed before its value is needed.
 *
 * PostgreSQL executes an uncorrelated subquery once, when the scan starts, and
 * sends its values as a set (executor/subquery_values.c).  Most subqueries of IN
 * become joins; NOT IN and IN below OR do not.
 *
 * A subquery that returns one value is an initplan.  PostgreSQL executes it for the
 * first row that reaches the expression, or never; a scan in the cell needs the value
 * when it starts.
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
 * Returns whether a subquery refers to values of the queries around it, so that its
 * rows can change during the statement.
 */
bool
cellar_is_correlated(const PlannerInfo *root)
{
	const Query *query = root->parse;

	return outer_reference_walker((Node *) query->targetList, NULL) ||
		outer_reference_walker((Node *) query->jointree, NULL) ||
		outer_reference_walker(query->havingQual, NULL);
}

static bool
may_fail_when_simplified(Node *expr)
{
	return cellar_may_fail(eval_const_expressions(NULL, copyObject(expr)));
}

/* Returns whether reading the rows of a range table entry might raise an error. */
static bool
range_may_fail(RangeTblEntry *rte)
{
	if (CELLAR_IS_RTE_GROUP(rte))
		return may_fail_when_simplified((Node *) CELLAR_GROUP_EXPRESSIONS(rte));
	if (rte->rtekind == RTE_JOIN || rte->rtekind == RTE_RESULT)
		return false;
	/* The rewriter has expanded views; the query of a pulled-up subquery is NULL. */
	if (rte->rtekind == RTE_SUBQUERY)
		return rte->subquery != NULL && cellar_query_may_fail(rte->subquery);
	return rte->rtekind != RTE_RELATION || rte->tablesample != NULL || rte->securityQuals != NIL ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW &&
		 rte->relkind != RELKIND_PARTITIONED_TABLE) || !cellar_has_stored_columns(rte->relid);
}

/*
 * Returns whether a subquery might raise an error: PostgreSQL executes it only
 * for the first row that reaches the condition.  Only queries of tables are examined.
 */
bool
cellar_query_may_fail(const Query *query)
{
	ListCell   *lc;

	if (query->commandType != CMD_SELECT || query->setOperations != NULL || query->hasTargetSRFs ||
		query->hasWindowFuncs || query->hasSubLinks || query->groupingSets != NIL || query->limitCount != NULL ||
		query->limitOffset != NULL || query->rowMarks != NIL)
		return true;
	foreach(lc, query->rtable)
	{
		if (range_may_fail(lfirst_node(RangeTblEntry, lc)))
			return true;
	}
	return may_fail_when_simplified((Node *) query->targetList) ||
		may_fail_when_simplified((Node *) query->jointree) || may_fail_when_simplified(query->havingQual);
}

/* As cellar_query_may_fail() for a planned subquery of IN. */
static bool
may_fail(const PlannerInfo *root)
{
	return root->init_plans != NIL || cellar_query_may_fail(root->parse);
}

/*
 * Returns whether the parameter is the value of an initplan that must not be executed
 * unless PostgreSQL would execute it: it might raise an error, or it contains a
 * volatile function, which might have effects.
 */
static bool
is_uncertain(const PlannerInfo *root, int paramid)
{
	const PlannerGlobal *glob = root->glob;

	for (; root != NULL; root = root->parent_root)
	{
		ListCell   *lc;

		foreach(lc, root->init_plans)
		{
			const SubPlan *initplan = lfirst_node(SubPlan, lc);
			const Query *query;

			if (!list_member_int(initplan->setParam, paramid))
				continue;
			query = list_nth_node(PlannerInfo, glob->subroots, initplan->plan_id - 1)->parse;
			return cellar_query_may_fail(query) || contain_volatile_functions((Node *) query);
		}
	}
	return false;				/* a value of an outer query */
}

typedef struct UncertainContext
{
	const PlannerInfo *root;
	List	   *paramids;
} UncertainContext;

static bool
uncertain_walker(Node *node, void *arg)
{
	UncertainContext *context = arg;
	const Param *param = (const Param *) node;

	if (node == NULL)
		return false;
	if (IsA(node, Param) && param->paramkind == PARAM_EXEC && is_uncertain(context->root, param->paramid))
		context->paramids = list_append_unique_int(context->paramids, param->paramid);
	return expression_tree_walker(node, uncertain_walker, arg);
}

/*
 * Returns the parameters of an expression that are values of initplans which must not
 * be executed unless PostgreSQL would execute them.
 */
List *
cellar_uncertain_initplans(const PlannerInfo *root, Node *expr)
{
	UncertainContext context = {.root = root};

	uncertain_walker(expr, &context);
	return context.paramids;
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
	if (cellar_is_correlated(list_nth_node(PlannerInfo, root->glob->subroots, subplan->plan_id - 1)))
		return "the expression contains a subquery whose values depend on the query around it";
	if (may_fail(list_nth_node(PlannerInfo, root->glob->subroots, subplan->plan_id - 1)))
		return "the expression contains a subquery that might raise an error";
	if (is_volatile(root, subplan->plan_id))
		return "the expression contains a subquery with a volatile function";
	return NULL;
}
