/*-------------------------------------------------------------------------
 *
 * grouped_filter.c
 *	  Decides whether a join filter (join_filter.c) may drop rows below an
 *	  aggregation.
 *
 * If the joined column is a group key, the filter drops all rows of a group or
 * none, and the join would drop the group anyway.  But a filter would also hide an
 * error that the rows of a dropped group raise.  Therefore the aggregation may
 * evaluate only what cannot raise an error: columns, comparisons, LIKE with a plain
 * pattern, sums and products of numerics that cannot overflow, and aggregates of
 * these that raise no error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "cellar.h"
#include "cellar/planner.h"

/* The digits of a constant that counts as of a declared precision. */
#define DIGITS_MAX	1000

/* Returns whether the target list consists of columns and constants. */
bool
cellar_has_plain_targets(const Plan *plan)
{
	ListCell   *lc;

	foreach(lc, plan->targetlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (!IsA(expr, Var) && !IsA(expr, Const))
			return false;
	}
	return true;
}

/* Returns whether the collation is certain by which values of a type are compared, if the type has collations. */
static bool
has_collation(Oid type, Oid collation)
{
	return OidIsValid(collation) || !type_is_collatable(type);
}

/* Returns whether the aggregate is built in and raises no error, whatever its arguments are. */
static bool
is_safe_aggregate(const Aggref *aggref)
{
	if (aggref->aggdistinct != NIL || aggref->aggfnoid >= FirstGenbkiObjectId)
		return false;
	switch (aggref->aggfnoid)
	{
		case F_COUNT_:
		case F_COUNT_ANY:
		case F_SUM_INT2:
		case F_SUM_INT4:
		case F_SUM_INT8:
		case F_SUM_NUMERIC:
		case F_AVG_INT2:
		case F_AVG_INT4:
		case F_AVG_INT8:
		case F_AVG_NUMERIC:
			return aggref->aggorder == NIL;
		default:
			return cellar_ignores_duplicates(aggref) && list_length(aggref->aggargtypes) == 1 &&
				has_collation(linitial_oid(aggref->aggargtypes), aggref->inputcollid);
	}
}

/* Returns whether a numeric may have more digits than a declared precision allows. */
static bool
is_unbounded(Node *node)
{
	int32		typmod = exprTypmod(node);

	/* A domain can limit the precision. */
	if (getBaseTypeAndTypmod(exprType(node), &typmod) != NUMERICOID)
		return false;
	if (IsA(node, Const))
		return !((Const *) node)->constisnull &&
			strlen(DatumGetCString(DirectFunctionCall1(numeric_out, ((Const *) node)->constvalue))) > DIGITS_MAX;
	return (IsA(node, Var) || IsA(node, Param)) && typmod < 0;
}

static bool
unbounded_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if ((IsA(node, Var) || IsA(node, Param) || IsA(node, Const)) && is_unbounded(node))
		return true;
	return expression_tree_walker(node, unbounded_walker, context);
}

/*
 * Returns whether a numeric operator cannot overflow: numerics of a declared precision
 * have at most 1000 digits.
 */
static bool
is_safe_arithmetic(OpExpr *expr)
{
	return (expr->opfuncid == F_NUMERIC_ADD || expr->opfuncid == F_NUMERIC_SUB || expr->opfuncid == F_NUMERIC_MUL) &&
		!unbounded_walker((Node *) expr, NULL);
}

/* Returns whether the function converts integers without loss. */
static bool
is_safe_cast(Oid function)
{
	return function == F_NUMERIC_INT2 || function == F_NUMERIC_INT4 || function == F_NUMERIC_INT8 ||
		function == F_INT4_INT2 || function == F_INT8_INT2 || function == F_INT8_INT4;
}

/*
 * Returns whether an operator is LIKE with a constant pattern without escapes, under a
 * collation for which every version of PostgreSQL supports LIKE.
 */
static bool
is_plain_pattern(const OpExpr *expr)
{
	Const	   *pattern = list_length(expr->args) == 2 ? lsecond(expr->args) : NULL;

	return cellar_function_class(expr->opfuncid) == CELLAR_FUNCTION_PATTERN && pattern != NULL &&
		IsA(pattern, Const) && !pattern->constisnull &&
		OidIsValid(expr->inputcollid) && get_collation_isdeterministic(expr->inputcollid) &&
		strchr(TextDatumGetCString(pattern->constvalue), '\\') == NULL;
}

/*
 * Returns whether the function of an operator compares values, and raises no error if
 * their collation is certain.
 */
bool
cellar_is_comparison(Oid function)
{
	CellarFunctionClass class = cellar_function_class(function);

	return class == CELLAR_FUNCTION_EQUALITY || class == CELLAR_FUNCTION_ORDER;
}

static bool
is_safe_comparison(Oid function, List *args, Oid collation)
{
	return cellar_is_comparison(function) && has_collation(exprType(linitial(args)), collation);
}

static bool
may_fail_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_TargetEntry:
		case T_Var:
		case T_Const:
		case T_Param:
		case T_RelabelType:
		case T_FromExpr:
		case T_JoinExpr:
		case T_RangeTblRef:
		case T_BoolExpr:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_BooleanTest:
		case T_NullTest:
			break;
		case T_Aggref:
			if (!is_safe_aggregate((Aggref *) node))
				return true;
			/* A sum of numerics without a declared precision can overflow. */
			if (((Aggref *) node)->aggtranstype == INTERNALOID && unbounded_walker((Node *) ((Aggref *) node)->args, NULL))
				return true;
			break;
		case T_OpExpr:
			set_opfuncid((OpExpr *) node);
			if (!is_safe_comparison(((OpExpr *) node)->opfuncid, ((OpExpr *) node)->args, ((OpExpr *) node)->inputcollid) &&
				!is_safe_arithmetic((OpExpr *) node) &&
				!is_plain_pattern((OpExpr *) node))
				return true;
			break;
		case T_FuncExpr:
			if (!is_safe_cast(((FuncExpr *) node)->funcid))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			set_sa_opfuncid((ScalarArrayOpExpr *) node);
			if (!is_safe_comparison(((ScalarArrayOpExpr *) node)->opfuncid, ((ScalarArrayOpExpr *) node)->args,
									((ScalarArrayOpExpr *) node)->inputcollid))
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, may_fail_walker, context);
}

/*
 * Returns whether evaluating an expression might raise an error: it contains
 * anything but columns, constants, comparisons, CASE, COALESCE, safe arithmetic and
 * safe aggregates.
 */
bool
cellar_may_fail(Node *expr)
{
	return may_fail_walker(expr, NULL);
}

/*
 * Returns whether a column of a plan's child is a group key of the plan, and nothing
 * that is evaluated for a group can raise an error.
 */
bool
cellar_has_group_key(const Plan *plan, const Var *column)
{
	const Agg  *agg = (const Agg *) plan;

	if (!IsA(plan, Agg) || agg->groupingSets != NIL || agg->chain != NIL ||
		cellar_may_fail((Node *) plan->targetlist) || cellar_may_fail((Node *) plan->qual))
		return false;
	for (int i = 0; i < agg->numCols; i++)
	{
		/* Values of a group are equal for the join, too. */
		if (agg->grpColIdx[i] == column->varattno)
			return !OidIsValid(agg->grpCollations[i]) || get_collation_isdeterministic(agg->grpCollations[i]);
	}
	return false;
}

/*
 * Returns whether the plan is a Smart Scan Aggregate of which a column of its
 * custom_scan_tlist is a group key, and no group is omitted because of another one.
 * Its child has the same columns.
 */
bool
cellar_returns_groups(Plan *plan, const Var *column)
{
	CustomScan *cscan = (CustomScan *) plan;
	CellarGroupPruning pruning = {0};

	if (!IsA(plan, CustomScan) || cscan->methods != &cellar_aggregate_methods || column->varno != INDEX_VAR)
		return false;
	return IsA(list_nth_node(TargetEntry, cscan->custom_scan_tlist, column->varattno - 1)->expr, Var) &&
		(!cellar_get_group_pruning(cscan, &pruning) || pruning.top.rows == 0);
}
