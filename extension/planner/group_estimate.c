/*-------------------------------------------------------------------------
 *
 * group_estimate.c
 *	  Estimates the number of groups of keys that have few values.
 *
 * PostgreSQL estimates that an expression has as many values as its columns:
 * date_trunc('month', at) as many as there are instants, and extract(dow FROM at),
 * total % 10 or CASE WHEN total > 10 THEN 'a' ELSE 'b' END likewise.  With such an
 * estimate, the groups of a Smart Scan Aggregate do not seem to fit into the cell,
 * and the plan above expects millions of rows.  This file bounds the number of
 * values from the expression, and from the statistics of its column.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/transam.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/selfuncs.h"
#include "utils/timestamp.h"

#include "cellar/planner.h"

/* Numbers, days of dates and microseconds of timestamps */
typedef struct Range
{
	double		min;
	double		max;
} Range;

/* Values of the fields of extract(), and microseconds of the fields of date_trunc() */
static const struct
{
	const char *name;
	double		values;			/* 0: grows with the range */
	double		microseconds;	/* the least; 0: date_trunc() does not know the field */
}			fields[] =
{
	{"minute", 60, 60e6},
	{"hour", 24, 3600e6},
	{"day", 31, USECS_PER_DAY},
	{"dow", 7, 0},
	{"isodow", 7, 0},
	{"doy", 366, 0},
	{"week", 53, 7.0 * USECS_PER_DAY},
	{"month", 12, 28.0 * USECS_PER_DAY},
	{"quarter", 4, 90.0 * USECS_PER_DAY},
	{"year", 0, 365.0 * USECS_PER_DAY},
};

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

static bool
is_number(Oid type)
{
	return is_integer(type) || type == FLOAT4OID || type == FLOAT8OID || type == NUMERICOID;
}

/* Converts a finite value.  Returns false for other values and types. */
static bool
as_double(Datum value, Oid type, double *number)
{
	switch (getBaseType(type))
	{
		case INT2OID:
			*number = DatumGetInt16(value);
			return true;
		case INT4OID:
			*number = DatumGetInt32(value);
			return true;
		case INT8OID:
			*number = DatumGetInt64(value);
			return true;
		case FLOAT4OID:
			*number = DatumGetFloat4(value);
			break;
		case FLOAT8OID:
			*number = DatumGetFloat8(value);
			break;
		case NUMERICOID:
			*number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
			break;
		case DATEOID:
			*number = DatumGetDateADT(value);
			return !DATE_NOT_FINITE(DatumGetDateADT(value));
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*number = DatumGetTimestamp(value);
			return !TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value));
		default:
			return false;
	}
	return isfinite(*number);
}

/* Extends the range by the values of a slot of the statistics.  Returns false if a value is not finite. */
static bool
add_slot(HeapTuple statistics, Oid type, int kind, Range *range)
{
	AttStatsSlot slot;
	bool		finite = true;

	if (!get_attstatsslot(&slot, statistics, kind, InvalidOid, ATTSTATSSLOT_VALUES))
		return true;
	for (int i = 0; i < slot.nvalues && finite; i++)
	{
		double		number;

		finite = as_double(slot.values[i], type, &number);
		if (finite)
		{
			range->min = Min(range->min, number);
			range->max = Max(range->max, number);
		}
	}
	free_attstatsslot(&slot);
	return finite;
}

/* Sets *range to about the least and the greatest value of a column.  Returns false if they are not known. */
static bool
column_range(PlannerInfo *root, Var *var, Range *range)
{
	VariableStatData variable;
	bool		known = false;

	*range = (Range) {INFINITY, -INFINITY};
	examine_variable(root, (Node *) var, 0, &variable);
	if (HeapTupleIsValid(variable.statsTuple))
		known = add_slot(variable.statsTuple, var->vartype, STATISTIC_KIND_HISTOGRAM, range) &&
			add_slot(variable.statsTuple, var->vartype, STATISTIC_KIND_MCV, range);
	ReleaseVariableStats(variable);
	return known && range->min <= range->max;
}

/* Returns whether the built-in function of one number is a cast between numbers, or rounds. */
static bool
keeps_range(const FuncExpr *expr)
{
	const char *name;

	if (expr->funcid >= FirstGenbkiObjectId || list_length(expr->args) != 1 ||
		!is_number(expr->funcresulttype) || !is_number(exprType(linitial(expr->args))))
		return false;
	if (expr->funcformat != COERCE_EXPLICIT_CALL)
		return true;
	name = get_func_name(expr->funcid);
	return name != NULL && (strcmp(name, "floor") == 0 || strcmp(name, "ceil") == 0 || strcmp(name, "ceiling") == 0 ||
							strcmp(name, "round") == 0 || strcmp(name, "trunc") == 0);
}

/* Returns the symbol of a built-in operator of two numbers, or 0.  Sets *constant to a constant right operand, or else to NaN. */
static char
arithmetic(Node *node, Node **left, double *constant)
{
	OpExpr	   *expr = (OpExpr *) node;
	Const	   *right;
	char	   *name;

	if (!IsA(node, OpExpr) || expr->opno >= FirstGenbkiObjectId || list_length(expr->args) != 2 ||
		!is_number(expr->opresulttype) || !is_number(exprType(linitial(expr->args))))
		return 0;
	*left = linitial(expr->args);
	right = (Const *) cellar_without_relabel(lsecond(expr->args));
	if (!IsA(right, Const) || right->constisnull || !as_double(right->constvalue, right->consttype, constant))
		*constant = NAN;
	name = get_opname(expr->opno);
	return name != NULL && strlen(name) == 1 ? name[0] : 0;
}

/* Sets *range to about the least and the greatest value of an expression.  Returns false if they are not known. */
static bool
value_range(PlannerInfo *root, Node *node, Range *range)
{
	Node	   *operand;
	double		constant;
	Range		of;
	char		operator;

	check_stack_depth();
	node = cellar_without_relabel(node);
	if (IsA(node, Var))
		return column_range(root, (Var *) node, range);
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *expr = (FuncExpr *) node;

		if (expr->funcid == F_TIMEZONE_TEXT_TIMESTAMP || expr->funcid == F_TIMEZONE_TEXT_TIMESTAMPTZ)
			return value_range(root, lsecond(expr->args), range);
		return keeps_range(expr) && value_range(root, linitial(expr->args), range);
	}
	operator = arithmetic(node, &operand, &constant);
	if (operator == 0 || isnan(constant) || !value_range(root, operand, &of))
		return false;
	switch (operator)
	{
		case '+':
			*range = (Range) {of.min + constant, of.max + constant};
			return true;
		case '-':
			*range = (Range) {of.min - constant, of.max - constant};
			return true;
		case '*':
			*range = (Range) {Min(of.min * constant, of.max * constant), Max(of.min * constant, of.max * constant)};
			return true;
		case '/':
			if (constant == 0)
				return false;
			*range = (Range) {Min(of.min / constant, of.max / constant), Max(of.min / constant, of.max / constant)};
			return true;
		default:
			return false;
	}
}

/* Returns the number of intervals of a length in the range of an expression. */
static double
intervals(PlannerInfo *root, Node *node, double microseconds)
{
	Range		range;

	if (microseconds <= 0 || !value_range(root, node, &range))
		return INFINITY;
	if (getBaseType(exprType(node)) == DATEOID)
		microseconds /= USECS_PER_DAY;
	return floor((range.max - range.min) / microseconds) + 2;
}

/* As values_max() for extract(), date_part() and date_trunc(). */
static double
field_values(PlannerInfo *root, const FuncExpr *expr, bool truncates)
{
	Const	   *field = linitial(expr->args);
	char	   *name;

	if (!IsA(field, Const) || field->constisnull)
		return INFINITY;
	name = TextDatumGetCString(field->constvalue);
	for (int i = 0; i < lengthof(fields); i++)
	{
		if (pg_strcasecmp(name, fields[i].name) != 0)
			continue;
		if (!truncates && fields[i].values > 0)
			return fields[i].values;
		return intervals(root, lsecond(expr->args), fields[i].microseconds);
	}
	return INFINITY;
}

static double
function_values(PlannerInfo *root, FuncExpr *expr)
{
	Range		range;

	switch (expr->funcid)
	{
		case F_EXTRACT_TEXT_DATE:
		case F_EXTRACT_TEXT_TIME:
		case F_EXTRACT_TEXT_TIMESTAMP:
		case F_EXTRACT_TEXT_TIMESTAMPTZ:
		case F_DATE_PART_TEXT_TIME:
		case F_DATE_PART_TEXT_TIMESTAMP:
		case F_DATE_PART_TEXT_TIMESTAMPTZ:
			return field_values(root, expr, false);
		case F_DATE_TRUNC_TEXT_TIMESTAMP:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
			return field_values(root, expr, true);
		case F_DATE_TIMESTAMP:
		case F_DATE_TIMESTAMPTZ:
			return intervals(root, linitial(expr->args), USECS_PER_DAY);
		default:
			/* Rounding, or a cast to an integer */
			if (keeps_range(expr) && (is_integer(expr->funcresulttype) || expr->funcformat == COERCE_EXPLICIT_CALL) &&
				value_range(root, linitial(expr->args), &range))
				return floor(range.max) - floor(range.min) + 2;
			return INFINITY;
	}
}

static double values_max(PlannerInfo *root, Node *node);

/* Returns how many combinations of values the arguments of a function have at most. */
static double
argument_combinations(PlannerInfo *root, List *args)
{
	double		combinations = 1;
	ListCell   *lc;

	foreach(lc, args)
		combinations *= values_max(root, lfirst(lc));
	return combinations;
}

/*
 * Returns an estimate of the most values other than NULL that an expression without
 * volatile functions can have; infinity: as many as its columns.
 */
static double
values_max(PlannerInfo *root, Node *node)
{
	Range		range;
	Node	   *operand;
	double		constant;
	double		sum;
	ListCell   *lc;
	char		operator;

	check_stack_depth();
	node = cellar_without_relabel(node);
	if (IsA(node, Var))
		return INFINITY;
	if (exprType(node) == BOOLOID)
		return 2;
	if (!contain_var_clause(node))
		return 1;
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			return Min(function_values(root, (FuncExpr *) node),
					   argument_combinations(root, ((FuncExpr *) node)->args));
		case T_OpExpr:
			operator = arithmetic(node, &operand, &constant);
			if (operator == '%' && is_integer(exprType(node)) && !isnan(constant))
				return value_range(root, operand, &range) && range.min >= 0 ? fabs(constant) : 2 * fabs(constant) - 1;
			if (operator != 0 && is_integer(exprType(node)) && value_range(root, node, &range))
				return floor(range.max) - floor(range.min) + 1;
			return argument_combinations(root, ((OpExpr *) node)->args);
		case T_CoerceViaIO:
			return values_max(root, (Node *) ((CoerceViaIO *) node)->arg);
		case T_CoalesceExpr:
			sum = 0;
			foreach(lc, ((CoalesceExpr *) node)->args)
				sum += values_max(root, lfirst(lc));
			return sum;
		case T_CaseExpr:
			sum = ((CaseExpr *) node)->defresult == NULL ? 1 :
				values_max(root, (Node *) ((CaseExpr *) node)->defresult);
			foreach(lc, ((CaseExpr *) node)->args)
				sum += values_max(root, (Node *) lfirst_node(CaseWhen, lc)->result);
			return sum;
		default:
			return INFINITY;
	}
}

/*
 * As estimate_num_groups() for keys without grouping sets.
 */
double
cellar_num_groups(PlannerInfo *root, List *keys, double rows)
{
	double		groups = estimate_num_groups(root, keys, rows, NULL, NULL);
	double		combinations = 1;
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, keys)
	{
		double		values = contain_volatile_functions(lfirst(lc)) ? INFINITY : values_max(root, lfirst(lc));

		if (isinf(values))
			others = lappend(others, lfirst(lc));
		else
			combinations *= Max(values, 1);
	}
	if (list_length(others) == list_length(keys))
		return groups;
	if (others != NIL)
		combinations *= estimate_num_groups(root, others, rows, NULL, NULL);
	return clamp_row_est(Min(groups, combinations));
}
