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
 * An inner join drops a row without a group.  It replaces a subquery if the condition is
 * not true for such a row, for which count is 0 and other aggregates are NULL.  A left
 * join replaces a subquery in another condition, or in the select list.
 *
 * EXISTS beside OR, in CASE or in the select list becomes IN over groups, which PostgreSQL
 * computes once (exists_subquery.c).
 *
 * The join evaluates some expressions for other rows than the original condition.
 * These must not raise errors: the expressions in the subquery, the condition, and the
 * columns of views in them (query_columns.c).  PostgreSQL promises no order for the
 * other conditions of WHERE.
 *
 * A statement that is not cheap is planned in both forms, and the costs decide (join_filter.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* The subqueries that are replaced in an expression of a query. */
typedef struct ReplaceContext
{
	Query	   *query;
	bool		grouped;		/* only arguments of aggregates are replaced */
	bool		in_aggregate;
	bool		hashed;			/* EXISTS is replaced */
	List	   *unnestings;		/* CellarUnnesting */
} ReplaceContext;

/*
 * Replaces subqueries by expressions over columns of groups, which the caller adds to
 * the range table.
 */
static Node *
replace_subqueries(Node *node, void *arg)
{
	ReplaceContext *context = arg;
	const SubLink *sublink = (const SubLink *) node;

	if (node == NULL)
		return NULL;
	if (IsA(node, SubLink) && sublink->subLinkType == EXISTS_SUBLINK && (!context->grouped || context->in_aggregate))
	{
		Node	   *expr = cellar_replace_exists(context->query, sublink);

		context->hashed |= expr != NULL;
		return expr != NULL ? expr : node;
	}
	if (IsA(node, SubLink) && sublink->subLinkType == EXPR_SUBLINK && (!context->grouped || context->in_aggregate))
	{
		CellarUnnesting *unnesting = palloc0(sizeof(CellarUnnesting));
		Node	   *expr;

		unnesting->query = context->query;
		unnesting->subquery = castNode(Query, sublink->subselect);
		unnesting->rtindex = list_length(context->query->rtable) + list_length(context->unnestings) + 1;
		expr = cellar_analyze_correlated_subquery(unnesting);
		if (expr == NULL)
			return node;
		context->unnestings = lappend(context->unnestings, unnesting);
		return expr;
	}
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == 0 && !context->in_aggregate)
	{
		Aggref	   *aggref = makeNode(Aggref);

		/* Direct arguments of an ordered-set aggregate are evaluated for a group. */
		*aggref = *(Aggref *) node;
		aggref->aggdirectargs = NIL;
		context->in_aggregate = true;
		aggref = (Aggref *) expression_tree_mutator((Node *) aggref, replace_subqueries, arg);
		context->in_aggregate = false;
		aggref->aggdirectargs = ((Aggref *) node)->aggdirectargs;
		return (Node *) aggref;
	}
	return expression_tree_mutator(node, replace_subqueries, arg);
}

/* Returns whether a column of the groups is a count, which is 0 without rows. */
static bool
is_count(const CellarUnnesting *unnesting, const Var *column)
{
	int			number = column->varattno - list_length(unnesting->keys) - 1;
	Oid			function;

	if (number < 0)
		return false;
	function = list_nth_node(Aggref, unnesting->aggregates, number)->aggfnoid;
	return function == F_COUNT_ || function == F_COUNT_ANY;
}

static Const *
make_zero(void)
{
	return makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(0), false, FLOAT8PASSBYVAL);
}

/* Replaces columns of the groups by their values for a row without a group. */
static Node *
replace_by_empty_values(Node *node, void *arg)
{
	const CellarUnnesting *unnesting = arg;
	const Var  *var = (const Var *) node;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && var->varno == unnesting->rtindex && var->varlevelsup == 0)
		return is_count(unnesting, var) ? (Node *) make_zero() :
			(Node *) makeNullConst(var->vartype, var->vartypmod, var->varcollid);
	return expression_tree_mutator(node, replace_by_empty_values, arg);
}

/* Replaces columns of the groups by those of a left join with the groups. */
static Node *
replace_by_joined_columns(Node *node, void *arg)
{
	const CellarUnnesting *unnesting = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == unnesting->rtindex && ((Var *) node)->varlevelsup == 0)
	{
		Var		   *var = copyObject((Var *) node);
		CoalesceExpr *coalesce;

		CellarAddNullingRel(var, unnesting->join);
		if (!is_count(unnesting, var))
			return (Node *) var;
		coalesce = makeNode(CoalesceExpr);
		coalesce->coalescetype = INT8OID;
		coalesce->args = list_make2(var, make_zero());
		coalesce->location = -1;
		return (Node *) coalesce;
	}
	return expression_tree_mutator(node, replace_by_joined_columns, arg);
}

/* Replaces columns of groups by the aggregates that they stand for. */
static Node *
replace_by_aggregates(Node *node, void *arg)
{
	const ReplaceContext *context = arg;
	const Var  *var = (const Var *) node;
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) || var->varlevelsup > 0)
		return expression_tree_mutator(node, replace_by_aggregates, arg);
	foreach(lc, context->unnestings)
	{
		const CellarUnnesting *unnesting = lfirst(lc);

		if (var->varno == unnesting->rtindex)
			return copyObject(list_nth(unnesting->resolved, var->varattno - list_length(unnesting->keys) - 1));
	}
	return copyObject(node);
}

/* Returns whether a condition of which subqueries are replaced might raise an error. */
static bool
may_fail(Node *condition, ReplaceContext *context)
{
	/* An aggregate shows the precision of its argument. */
	return cellar_may_fail(eval_const_expressions(NULL, replace_by_aggregates(condition, context)));
}

/* Returns whether the condition is not true for a row without a group. */
static bool
drops_row_without_group(Node *condition, CellarUnnesting *unnesting)
{
	const Const *value = (const Const *) eval_const_expressions(NULL, replace_by_empty_values(condition, unnesting));

	return IsA(value, Const) && (value->constisnull || !DatumGetBool(value->constvalue));
}

/* Joins the FROM list of the query with the groups. */
static void
add_inner_join(CellarUnnesting *unnesting)
{
	RangeTblRef *groups = makeNode(RangeTblRef);

	groups->rtindex = unnesting->rtindex;
	unnesting->query->jointree->fromlist = lappend(unnesting->query->jointree->fromlist, groups);
}

/* As add_inner_join() with a left join, which keeps rows without a group. */
static void
add_left_join(CellarUnnesting *unnesting)
{
	Query	   *query = unnesting->query;
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	JoinExpr   *join = makeNode(JoinExpr);
	RangeTblRef *groups = makeNode(RangeTblRef);
	List	   *fromlist = query->jointree->fromlist;

	rte->rtekind = RTE_JOIN;
	rte->jointype = JOIN_LEFT;
	rte->eref = makeAlias("unnamed_join", NIL);
	rte->inFromCl = true;
	query->rtable = lappend(query->rtable, rte);
	unnesting->join = list_length(query->rtable);

	groups->rtindex = unnesting->rtindex;
	join->jointype = JOIN_LEFT;
	join->larg = list_length(fromlist) == 1 ? linitial(fromlist) : (Node *) makeFromExpr(fromlist, NULL);
	join->rarg = (Node *) groups;
	join->quals = (Node *) make_ands_explicit(cellar_group_equalities(unnesting));
	join->rtindex = unnesting->join;
	query->jointree->fromlist = list_make1(join);
}

static void
add_groups(List *unnestings)
{
	ListCell   *lc;

	foreach(lc, unnestings)
		cellar_add_groups(lfirst(lc));
}

/* Returns the subquery if the condition is EXISTS or NOT EXISTS, which PostgreSQL makes a semijoin or an antijoin, or NULL. */
static Node *
exists_query(Node *condition)
{
	if (is_notclause(condition))
		condition = (Node *) get_notclausearg(condition);
	if (!IsA(condition, SubLink) || ((SubLink *) condition)->subLinkType != EXISTS_SUBLINK)
		return NULL;
	return ((SubLink *) condition)->subselect;
}

/* Returns the conditions of WHERE.  The parser keeps parentheses around AND. */
static List *
and_conditions(Node *quals)
{
	List	   *conditions = NIL;
	ListCell   *lc;

	if (quals == NULL || !is_andclause(quals))
		return quals == NULL ? NIL : list_make1(quals);
	foreach(lc, ((BoolExpr *) quals)->args)
		conditions = list_concat(conditions, and_conditions(lfirst(lc)));
	return conditions;
}

/*
 * Replaces the subqueries of a condition of WHERE, if all can be replaced.
 * Returns the new conditions, or NIL.
 */
static List *
unnest_condition(Query *query, Node *condition)
{
	ReplaceContext context = {.query = query};
	List	   *inner = NIL;
	List	   *outer = NIL;
	List	   *conditions;
	bool		may_fail_elsewhere;
	ListCell   *lc;

	if (!checkExprHasSubLink(condition) || exists_query(condition) != NULL)
		return NIL;
	may_fail_elsewhere = cellar_columns_may_fail(query, condition);
	condition = replace_subqueries(condition, &context);
	if (context.unnestings == NIL)
		return context.hashed ? list_make1(condition) : NIL;
	if (may_fail_elsewhere || expression_returns_set(condition) || may_fail(condition, &context))
		return NIL;
	foreach(lc, context.unnestings)
	{
		if (drops_row_without_group(condition, lfirst(lc)))
			inner = lappend(inner, lfirst(lc));
		else
			outer = lappend(outer, lfirst(lc));
	}
	add_groups(context.unnestings);
	conditions = NIL;
	foreach(lc, inner)
	{
		add_inner_join(lfirst(lc));
		conditions = list_concat(conditions, cellar_group_equalities(lfirst(lc)));
	}
	foreach(lc, outer)
	{
		add_left_join(lfirst(lc));
		condition = replace_by_joined_columns(condition, lfirst(lc));
	}
	return lcons(condition, conditions);
}

/* Replaces subqueries in WHERE of a query.  Returns whether there are any. */
static bool
unnest_conditions(Query *query)
{
	List	   *conditions = NIL;
	bool		unnested = false;
	ListCell   *lc;

	/* PostgreSQL does not plan subqueries beside a condition that is false. */
	foreach(lc, and_conditions(query->jointree->quals))
	{
		Node	   *condition = lfirst(lc);

		if (!checkExprHasSubLink(condition) && IsA(eval_const_expressions(NULL, copyObject(condition)), Const))
			return false;
	}
	foreach(lc, and_conditions(query->jointree->quals))
	{
		List	   *replaced = unnest_condition(query, lfirst(lc));

		unnested |= replaced != NIL;
		conditions = replaced != NIL ? list_concat(conditions, replaced) : lappend(conditions, lfirst(lc));
	}
	if (unnested)
		query->jointree->quals = (Node *) make_ands_explicit(conditions);
	return unnested;
}

/* Replaces subqueries in the select list of a query.  Returns whether there are any. */
static bool
unnest_select_list(Query *query)
{
	bool		unnested = false;
	ListCell   *lc;

	if (!checkExprHasSubLink((Node *) query->targetList))
		return false;
	foreach(lc, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		ReplaceContext context = {.query = query};
		Node	   *expr;
		ListCell   *unnesting;

		context.grouped = query->hasAggs || query->groupClause != NIL || query->groupingSets != NIL ||
			query->havingQual != NULL;
		expr = replace_subqueries((Node *) entry->expr, &context);
		if (context.unnestings == NIL && !context.hashed)
			continue;
		add_groups(context.unnestings);
		foreach(unnesting, context.unnestings)
		{
			add_left_join(lfirst(unnesting));
			expr = replace_by_joined_columns(expr, lfirst(unnesting));
		}
		entry->expr = (Expr *) expr;
		unnested = true;
	}
	return unnested;
}

/* Replaces subqueries of a query.  Returns whether there are any. */
static bool
unnest_query(Query *query)
{
	bool		unnested;

	if (query->commandType != CMD_SELECT || !query->hasSubLinks || query->jointree == NULL ||
		query->setOperations != NULL)
		return false;
	unnested = unnest_conditions(query);
	return unnest_select_list(query) || unnested;
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

/* Returns whether the query has a subquery that may be replaced. */
static bool
has_sublink_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_sublink_walker, context, 0);
	if (IsA(node, FromExpr))
	{
		ListCell   *lc;

		foreach(lc, and_conditions(((FromExpr *) node)->quals))
		{
			Node	   *condition = lfirst(lc);

			if (has_sublink_walker(exists_query(condition) != NULL ? exists_query(condition) : condition, context))
				return true;
		}
		return expression_tree_walker((Node *) ((FromExpr *) node)->fromlist, has_sublink_walker, context);
	}
	if (IsA(node, SubLink) &&
		(((SubLink *) node)->subLinkType == EXPR_SUBLINK || ((SubLink *) node)->subLinkType == EXISTS_SUBLINK))
		return true;
	return expression_tree_walker(node, has_sublink_walker, context);
}

static bool
locks_rows_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return ((Query *) node)->rowMarks != NIL || query_tree_walker((Query *) node, locks_rows_walker, context, 0);
	return expression_tree_walker(node, locks_rows_walker, context);
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

	/*
	 * A join can change for which rows a volatile function is called, and which rows a
	 * subquery or a query of WITH reads and locks.
	 */
	if (contain_volatile_functions((Node *) query) || locks_rows_walker((Node *) query, NULL))
		return NULL;
	copy = copyObject((Query *) query);
	unnest_walker((Node *) copy, &unnested);
	return unnested ? copy : NULL;
}
