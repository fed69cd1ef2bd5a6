/*-------------------------------------------------------------------------
 *
 * interpreted_cost.c
 *	  Estimates which expressions the cell interprets, and which strings it copies.
 *
 * The cell evaluates most conditions by kernels, which test a column, or numbers
 * computed over vectors of rows.  It interprets all other expressions row by row,
 * which takes about as long as in PostgreSQL.  This file follows the rules of
 * crates/scan/src/predicate/kernel.rs; a difference affects only costs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "cellar/cell.h"
#include "cellar/planner.h"

/*
 * The cost of interpreting an expression for a row, beyond what PostgreSQL's estimate contains, in
 * cpu_operator_costs: of an operand that a kernel tests, and of a whole condition.  PostgreSQL charges a
 * sequential scan more for a row and its page than they take, and so hides what its own functions cost.
 * With these costs, Smart Scans with such conditions are estimated about as they were measured, relative
 * to sequential scans.
 */
#define OPERAND_OPERATORS		2
#define CONDITION_OPERATORS		10

/* Likewise, what an expression over jsonb costs beyond these, for its searches. */
#define JSONB_OPERATORS			5

/* Likewise, what a value that contains a quotient of numerics costs. */
#define QUOTIENT_OPERATORS		24

/*
 * The cost of a byte of a string that a compression unit stores without a dictionary.  A column with
 * at least this fraction of different values has no dictionary.
 */
#define STRING_BYTE_COST		0.0003
#define DISTINCT_FRACTION_MIN	0.05

static bool has_kernel(PlannerInfo *root, Node *node, Cost *operands);
static bool is_vector(PlannerInfo *root, Node *node);

static bool
reads_jsonb_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && getBaseType(((Var *) node)->vartype) == JSONBOID)
		return true;
	return expression_tree_walker(node, reads_jsonb_walker, context);
}

static Cost
expression_cost(PlannerInfo *root, Node *node)
{
	QualCost	cost;

	cost_qual_eval_node(&cost, node, root);
	if (reads_jsonb_walker(node, NULL))
		cost.per_tuple += JSONB_OPERATORS * cpu_operator_cost;
	return cost.per_tuple;
}

static bool
is_number(Oid type)
{
	switch (cellar_cell_type(type, NULL))
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case ANYENUMOID:
			return true;
		default:
			return false;
	}
}

/*
 * Returns whether the cell computes all conditions of a CASE over vectors.  A condition of
 * a CASE with a test value compares the value, for which a CaseTestExpr stands.
 */
static bool
conditions_are_vectors(PlannerInfo *root, CaseExpr *expr)
{
	Cost		operands = 0;
	ListCell   *lc;

	if (expr->arg != NULL && !IsA(cellar_without_relabel((Node *) expr->arg), Var) &&
		!is_vector(root, (Node *) expr->arg))
		return false;

	foreach(lc, expr->args)
	{
		if (!has_kernel(root, (Node *) lfirst_node(CaseWhen, lc)->expr, &operands))
			return false;
	}
	return operands == 0;
}

/* Returns whether the cell computes the expression over vectors of numbers. */
static bool
is_vector(PlannerInfo *root, Node *node)
{
	Oid			function;
	List	   *args;
	ListCell   *lc;

	node = cellar_without_relabel(node);
	if (!cellar_depends_on_row(node))
		return true;
	switch (nodeTag(node))
	{
		case T_Var:
			return is_number(((Var *) node)->vartype);
		case T_CaseTestExpr:
			return is_number(((CaseTestExpr *) node)->typeId);
		case T_MinMaxExpr:
			if (!is_number(exprType(node)))
				return false;
			function = InvalidOid;
			args = ((MinMaxExpr *) node)->args;
			break;
		case T_FuncExpr:
			function = ((FuncExpr *) node)->funcid;
			args = ((FuncExpr *) node)->args;
			break;
		case T_OpExpr:
			function = ((OpExpr *) node)->opfuncid;
			args = ((OpExpr *) node)->args;
			break;
		case T_CoalesceExpr:
			if (!is_number(exprType(node)))
				return false;
			function = InvalidOid;
			args = ((CoalesceExpr *) node)->args;
			break;
		case T_CaseExpr:
			if (!is_number(exprType(node)) || !conditions_are_vectors(root, (CaseExpr *) node))
				return false;
			foreach(lc, ((CaseExpr *) node)->args)
			{
				if (!is_vector(root, (Node *) lfirst_node(CaseWhen, lc)->result))
					return false;
			}
			return ((CaseExpr *) node)->defresult == NULL || is_vector(root, (Node *) ((CaseExpr *) node)->defresult);
		default:
			return false;
	}
	if (OidIsValid(function) && !cellar_function_vectorized(function))
		return false;
	foreach(lc, args)
	{
		if (!is_vector(root, lfirst(lc)))
			return false;
	}
	return true;
}

/*
 * Adds the cost of interpreting an operand that a kernel tests, or of calling a function that
 * returns a boolean.  Arithmetic on numerics costs as much as a condition.
 */
static void
add_operand(PlannerInfo *root, Node *node, Cost *operands)
{
	int			operators = exprType(node) == NUMERICOID ? CONDITION_OPERATORS : OPERAND_OPERATORS;

	node = cellar_without_relabel(node);
	if (!IsA(node, Var) && !IsA(node, CaseTestExpr))
		*operands += operators * cpu_operator_cost + expression_cost(root, node);
}

/* As has_kernel(), for a call of a function that returns a boolean. */
static bool
has_call_kernel(PlannerInfo *root, Node *node, Oid function, List *args, Cost *operands)
{
	CellarFunctionClass class = cellar_function_class(function);
	Node	   *left;
	Node	   *right;

	if (class != CELLAR_FUNCTION_EQUALITY && class != CELLAR_FUNCTION_ORDER &&
		class != CELLAR_FUNCTION_PATTERN && class != CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN)
	{
		add_operand(root, node, operands);
		return true;
	}
	if (list_length(args) != 2)
		return false;
	left = cellar_without_relabel(linitial(args));
	right = cellar_without_relabel(lsecond(args));
	switch (class)
	{
		case CELLAR_FUNCTION_EQUALITY:
		case CELLAR_FUNCTION_ORDER:
			if (is_number(exprType(left)) && is_vector(root, left) && is_vector(root, right))
				return true;
			if (cellar_depends_on_row(left) && cellar_depends_on_row(right))
			{
				*operands += 2 * OPERAND_OPERATORS * cpu_operator_cost + expression_cost(root, node);
				return true;
			}
			add_operand(root, cellar_depends_on_row(left) ? left : right, operands);
			return true;
		case CELLAR_FUNCTION_PATTERN:
		case CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN:
			if (cellar_depends_on_row(right))
				return false;
			/* ILIKE converts the text to lower case. */
			if (class == CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN)
				*operands += (OPERAND_OPERATORS + 1) * cpu_operator_cost;
			add_operand(root, left, operands);
			return true;
		default:
			return false;		/* not reached */
	}
}

/*
 * Returns whether the cell evaluates a condition by a kernel, or by calling a single function.  Adds
 * the cost of interpreted operands.
 */
static bool
has_kernel(PlannerInfo *root, Node *node, Cost *operands)
{
	ListCell   *lc;

	node = cellar_without_relabel(node);
	if (!cellar_depends_on_row(node))
		return true;
	switch (nodeTag(node))
	{
		case T_Var:
			return true;
		case T_BoolExpr:
			foreach(lc, ((BoolExpr *) node)->args)
			{
				if (!has_kernel(root, lfirst(lc), operands))
					return false;
			}
			return true;
		case T_NullTest:
			return IsA(cellar_without_relabel((Node *) ((NullTest *) node)->arg), Var);
		case T_BooleanTest:
			return (((BooleanTest *) node)->booltesttype == IS_TRUE || ((BooleanTest *) node)->booltesttype == IS_FALSE) &&
				has_kernel(root, (Node *) ((BooleanTest *) node)->arg, operands);
		case T_FuncExpr:
			return has_call_kernel(root, node, ((FuncExpr *) node)->funcid, ((FuncExpr *) node)->args, operands);
		case T_OpExpr:
			return has_call_kernel(root, node, ((OpExpr *) node)->opfuncid, ((OpExpr *) node)->args, operands);
		case T_ScalarArrayOpExpr:
			{
				ScalarArrayOpExpr *expr = (ScalarArrayOpExpr *) node;
				Oid			type = getBaseType(exprType(linitial(expr->args)));
				bool		has_set = type != NUMERICOID && type != FLOAT4OID && type != FLOAT8OID;

				/* = ANY and <> ALL */
				if (cellar_function_class(expr->opfuncid) != CELLAR_FUNCTION_EQUALITY ||
					expr->useOr != op_hashjoinable(expr->opno, type) ||
					!(has_set || IsA(cellar_without_relabel(linitial(expr->args)), Var)))
					return false;
				add_operand(root, linitial(expr->args), operands);
				return true;
			}
		case T_SubPlan:
			add_operand(root, linitial(castNode(OpExpr, ((SubPlan *) node)->testexpr)->args), operands);
			return true;
		default:
			return false;
	}
}

/*
 * Returns whether the expression is a CASE among constants, of any type.  The cell computes
 * over vectors which of them it is.
 */
static bool
is_choice(PlannerInfo *root, Node *node)
{
	CaseExpr   *choice = (CaseExpr *) node;
	ListCell   *lc;

	if (!IsA(node, CaseExpr) || (choice->defresult != NULL && !IsA(choice->defresult, Const)))
		return false;
	foreach(lc, choice->args)
	{
		if (!IsA(lfirst_node(CaseWhen, lc)->result, Const))
			return false;
	}
	return conditions_are_vectors(root, choice);
}

/* Returns whether the cell computes the expression row by row, not over vectors. */
bool
cellar_is_interpreted(PlannerInfo *root, Node *expr)
{
	Cost		operands = 0;

	if (exprType(expr) == BOOLOID)
		return !has_kernel(root, expr, &operands) || operands > 0;
	expr = cellar_without_relabel(expr);
	return !IsA(expr, Var) && !is_choice(root, expr) && !is_vector(root, expr);
}

/*
 * Returns the cost of interpreting expressions of the conditions for a row.  conditions are
 * RestrictInfos.
 */
Cost
cellar_interpreted_cost(PlannerInfo *root, List *conditions)
{
	Cost		interpreted = 0;
	ListCell   *lc;

	foreach(lc, conditions)
	{
		Node	   *condition = (Node *) lfirst_node(RestrictInfo, lc)->clause;
		Cost		operands = 0;

		if (has_kernel(root, condition, &operands))
			interpreted += operands;
		else
			interpreted += CONDITION_OPERATORS * cpu_operator_cost + expression_cost(root, condition);
	}
	return interpreted;
}

static bool
has_quotient_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, OpExpr) && ((OpExpr *) node)->opfuncid == F_NUMERIC_DIV)
		return true;
	return expression_tree_walker(node, has_quotient_walker, context);
}

/* Returns the cost of interpreting an expression, or of each of the expressions of an aggregate, for a row. */
static Cost
value_cost(PlannerInfo *root, Node *expr)
{
	Cost		cost = 0;
	ListCell   *lc;

	if (IsA(expr, Aggref))
	{
		foreach(lc, ((Aggref *) expr)->args)
			cost += value_cost(root, (Node *) lfirst_node(TargetEntry, lc)->expr);
		if (((Aggref *) expr)->aggfilter != NULL)
			cost += value_cost(root, (Node *) ((Aggref *) expr)->aggfilter);
		return cost;
	}
	if (!cellar_depends_on_row(expr) || !cellar_is_interpreted(root, expr))
		return 0;
	return (has_quotient_walker(expr, NULL) ? QUOTIENT_OPERATORS : OPERAND_OPERATORS) * cpu_operator_cost +
		expression_cost(root, expr);
}

/* Returns the cost of interpreting the group keys and the arguments of aggregates for a row. */
Cost
cellar_interpreted_values_cost(PlannerInfo *root, List *exprs)
{
	Cost		cost = 0;
	ListCell   *lc;

	foreach(lc, exprs)
		cost += value_cost(root, lfirst(lc));
	return cost;
}

/*
 * Returns the cost of the strings of a row, in a compression unit, that expressions of a
 * relation read and that have no dictionary.
 */
Cost
cellar_strings_cost(PlannerInfo *root, RelOptInfo *rel, List *exprs)
{
	Oid			relid = planner_rt_fetch(rel->relid, root)->relid;
	Bitmapset  *attributes = NULL;
	Cost		cost = 0;
	int			member = -1;

	pull_varattnos((Node *) exprs, rel->relid, &attributes);
	while ((member = bms_next_member(attributes, member)) >= 0)
	{
		AttrNumber	number = member + FirstLowInvalidHeapAttributeNumber;
		VariableStatData statistics;
		bool		is_default;
		Oid			type;
		int32		typmod;
		Oid			collation;
		Var		   *column;

		if (number <= 0)
			continue;
		get_atttypetypmodcoll(relid, number, &type, &typmod, &collation);
		if (get_typlen(type) >= 0 || getBaseType(type) == NUMERICOID)
			continue;
		column = makeVar(rel->relid, number, type, typmod, collation, 0);
		examine_variable(root, (Node *) column, 0, &statistics);
		if (get_variable_numdistinct(&statistics, &is_default) >= DISTINCT_FRACTION_MIN * rel->tuples && !is_default)
			cost += STRING_BYTE_COST * get_attavgwidth(relid, number);
		ReleaseVariableStats(statistics);
	}
	return cost;
}
