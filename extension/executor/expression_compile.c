/*-------------------------------------------------------------------------
 *
 * expression_compile.c
 *	  Compiles storage predicates, group keys, aggregates and sort keys to
 *	  steps.
 *
 * Runs once per plan state.  The expressions must be offloadable; see
 * planner/offloadable_expression.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "cellar/cell.h"
#include "cellar/executor.h"
#include "cellar/planner.h"
#include "expression_steps.h"

typedef struct CompileContext
{
	CellarExpressions *expressions;
	PlanState  *parent;
	Node	   *case_test;		/* the expression that CaseTestExpr stands for */
} CompileContext;

static void compile_expression(Node *node, CompileContext *context);

/* Returns the new step; the pointer is valid until the next step is added. */
static Step *
add_step(CellarExpressions *expressions, StepKind kind)
{
	Step	   *step;

	if (expressions->nsteps == expressions->allocated)
	{
		expressions->allocated = expressions->allocated == 0 ? 16 : expressions->allocated * 2;
		expressions->steps = expressions->steps == NULL ?
			palloc(expressions->allocated * sizeof(Step)) :
			repalloc(expressions->steps, expressions->allocated * sizeof(Step));
	}
	step = &expressions->steps[expressions->nsteps++];
	memset(step, 0, sizeof(Step));
	step->kind = kind;
	return step;
}

static bool
exec_params_walker(Node *node, Bitmapset **params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
	{
		if (((Param *) node)->paramkind == PARAM_EXEC)
			*params = bms_add_member(*params, ((Param *) node)->paramid);
		return false;
	}
	return expression_tree_walker(node, exec_params_walker, (void *) params);
}

static Value *
compile_value(Node *node, Oid type, PlanState *parent)
{
	Value	   *value = palloc0(sizeof(Value));

	value->state = ExecInitExpr((Expr *) node, parent);
	exec_params_walker(node, &value->params);
	value->catchable = cellar_catchable(node);
	value->type = cellar_cell_type(type, NULL);
	get_typlenbyvalalign(value->type, &value->typlen, &value->typbyval, &value->typalign);
	return value;
}

static void
compile_list(List *args, CompileContext *context)
{
	ListCell   *lc;

	foreach(lc, args)
		compile_expression(lfirst(lc), context);
}

static void
compile_call(OpExpr *expr, CompileContext *context)
{
	Step	   *step;

	compile_list(expr->args, context);
	step = add_step(context->expressions, STEP_CALL);
	step->function = expr->opfuncid;
	step->collation = cellar_collation(expr->inputcollid);
	step->nargs = list_length(expr->args);
}

/* Compiles scalar op ANY (array) or scalar op ALL (array). */
static void
compile_any_all(ScalarArrayOpExpr *expr, CompileContext *context)
{
	CellarExpressions *expressions = context->expressions;
	Node	   *array = lsecond(expr->args);
	Node	   *scalar = linitial(expr->args);
	int			first = expressions->nsteps;
	Step	   *step;

	step = add_step(expressions, STEP_ARRAY);
	step->value = compile_value(array, get_element_type(getBaseType(exprType(array))),
								context->parent);
	step->scalar_is_column = IsA(scalar, Var) ||
		(IsA(scalar, RelabelType) && IsA(((RelabelType *) scalar)->arg, Var));
	compile_expression(scalar, context);

	expressions->steps[first].partner = expressions->nsteps;
	step = add_step(expressions, STEP_ANY_ALL);
	step->function = expr->opfuncid;
	step->collation = cellar_collation(expr->inputcollid);
	step->any = expr->useOr;
	step->partner = first;
}

/* Compiles scalar IN (subquery). */
static void
compile_in_subquery(SubPlan *subplan, CompileContext *context)
{
	OpExpr	   *test = castNode(OpExpr, subplan->testexpr);
	SubqueryValues *values = palloc0(sizeof(SubqueryValues));
	Step	   *step;

	compile_expression(linitial(test->args), context);
	values->subquery = list_nth(context->parent->state->es_subplanstates, subplan->plan_id - 1);
	values->typlen = get_typlen(getBaseType(subplan->firstColType));
	step = add_step(context->expressions, STEP_IN_SUBQUERY);
	step->function = test->opfuncid;
	step->collation = cellar_collation(test->inputcollid);
	step->subquery = values;
}

static void
compile_case(CaseExpr *expr, CompileContext *context)
{
	Node	   *case_test = context->case_test;
	ListCell   *lc;

	foreach(lc, expr->args)
	{
		CaseWhen   *when = lfirst_node(CaseWhen, lc);

		if (expr->arg != NULL)
			context->case_test = (Node *) expr->arg;
		compile_expression((Node *) when->expr, context);
		context->case_test = case_test;
		compile_expression((Node *) when->result, context);
	}
	if (expr->defresult != NULL)
		compile_expression((Node *) expr->defresult, context);
	else
		add_step(context->expressions, STEP_NULL)->type = cellar_cell_type(expr->casetype, NULL);
	add_step(context->expressions, STEP_CASE)->nargs = list_length(expr->args);
}

/*
 * Compiles GREATEST or LEAST of the first nargs arguments: a for one argument a,
 * else CASE WHEN rest IS NULL OR last > rest THEN last ELSE rest END, where last
 * is the last argument and rest is GREATEST of the arguments before the last.
 */
static void
compile_min_max(MinMaxExpr *expr, int nargs, CompileContext *context)
{
	Node	   *last = list_nth(expr->args, nargs - 1);
	Step	   *step;

	if (nargs == 1)
	{
		compile_expression(last, context);
		return;
	}
	compile_min_max(expr, nargs - 1, context);
	add_step(context->expressions, STEP_IS_NULL);
	compile_expression(last, context);
	compile_min_max(expr, nargs - 1, context);
	step = add_step(context->expressions, STEP_CALL);
	step->function = cellar_min_max_function(expr);
	step->collation = cellar_collation(expr->inputcollid);
	step->nargs = 2;
	add_step(context->expressions, STEP_OR)->nargs = 2;
	compile_expression(last, context);
	compile_min_max(expr, nargs - 1, context);
	add_step(context->expressions, STEP_CASE)->nargs = 1;
}

static void
compile_expression(Node *node, CompileContext *context)
{
	CellarExpressions *expressions = context->expressions;
	Step	   *step;

	if (!cellar_depends_on_row(node))
	{
		Value	   *value = compile_value(node, exprType(node), context->parent);

		add_step(expressions, STEP_VALUE)->value = value;
		return;
	}

	switch (nodeTag(node))
	{
		case T_Var:
			add_step(expressions, STEP_COLUMN)->attribute = ((Var *) node)->varattno;
			break;

		case T_CaseTestExpr:
			{
				Node	   *case_test = context->case_test;

				/*
				 * The tested expression is not part of the CASE that tests
				 * it.
				 */
				context->case_test = NULL;
				compile_expression(case_test, context);
				context->case_test = case_test;
				break;
			}

		case T_RelabelType:
			compile_expression((Node *) ((RelabelType *) node)->arg, context);
			break;

		case T_CoerceViaIO:
			compile_expression((Node *) cellar_input_call((CoerceViaIO *) node), context);
			break;

		case T_FuncExpr:
			{
				FuncExpr   *expr = (FuncExpr *) node;

				compile_list(expr->args, context);
				step = add_step(expressions, STEP_CALL);
				step->function = expr->funcid;
				step->collation = cellar_collation(expr->inputcollid);
				step->nargs = list_length(expr->args);
				break;
			}

		case T_OpExpr:
			compile_call((OpExpr *) node, context);
			break;

		case T_DistinctExpr:
			compile_list(((DistinctExpr *) node)->args, context);
			step = add_step(expressions, STEP_DISTINCT);
			step->function = ((DistinctExpr *) node)->opfuncid;
			step->collation = cellar_collation(((DistinctExpr *) node)->inputcollid);
			break;

		case T_NullIfExpr:
			/* CASE WHEN a = b THEN NULL ELSE a END */
			compile_call((OpExpr *) node, context);
			add_step(expressions, STEP_NULL)->type = cellar_cell_type(exprType(node), NULL);
			compile_expression(linitial(((NullIfExpr *) node)->args), context);
			add_step(expressions, STEP_CASE)->nargs = 1;
			break;

		case T_ScalarArrayOpExpr:
			compile_any_all((ScalarArrayOpExpr *) node, context);
			break;

		case T_SubPlan:
			compile_in_subquery((SubPlan *) node, context);
			break;

		case T_BoolExpr:
			{
				BoolExpr   *expr = (BoolExpr *) node;
				StepKind	kind = expr->boolop == AND_EXPR ? STEP_AND :
					expr->boolop == OR_EXPR ? STEP_OR : STEP_NOT;

				compile_list(expr->args, context);
				add_step(expressions, kind)->nargs = list_length(expr->args);
				break;
			}

		case T_NullTest:
			compile_expression((Node *) ((NullTest *) node)->arg, context);
			add_step(expressions, ((NullTest *) node)->nulltesttype == IS_NULL ?
					 STEP_IS_NULL : STEP_IS_NOT_NULL);
			break;

		case T_BooleanTest:
			compile_expression((Node *) ((BooleanTest *) node)->arg, context);
			add_step(expressions, STEP_BOOLEAN_TEST)->test = ((BooleanTest *) node)->booltesttype;
			break;

		case T_CoalesceExpr:
			compile_list(((CoalesceExpr *) node)->args, context);
			add_step(expressions, STEP_COALESCE)->nargs = list_length(((CoalesceExpr *) node)->args);
			break;

		case T_MinMaxExpr:
			compile_min_max((MinMaxExpr *) node, list_length(((MinMaxExpr *) node)->args), context);
			break;

		case T_CaseExpr:
			compile_case((CaseExpr *) node, context);
			break;

		default:
			elog(ERROR, "unrecognized node type in an offloadable expression: %d", (int) nodeTag(node));
	}
}

/* Compiles offloadable conditions, each of which ends with a step of kind end. */
static CellarExpressions *
compile_conditions(List *conditions, StepKind end, PlanState *parent)
{
	CompileContext context = {.expressions = palloc0(sizeof(CellarExpressions)),.parent = parent};
	ListCell   *lc;

	foreach(lc, conditions)
	{
		compile_expression(lfirst(lc), &context);
		add_step(context.expressions, end);
	}
	return context.expressions;
}

/*
 * Compiles offloadable quals.
 */
CellarExpressions *
cellar_compile_quals(List *quals, PlanState *parent)
{
	return compile_conditions(quals, STEP_END, parent);
}

/*
 * Compiles conditions on joined rows.
 */
CellarExpressions *
cellar_compile_join_conditions(List *conditions, PlanState *parent)
{
	return compile_conditions(conditions, STEP_JOIN_CONDITION_END, parent);
}

/*
 * Compiles conditions over the outputs of an aggregation.
 */
CellarExpressions *
cellar_compile_group_conditions(List *conditions, PlanState *parent)
{
	return compile_conditions(conditions, STEP_GROUP_CONDITION_END, parent);
}

/*
 * Compiles offloadable group keys and aggregates.
 */
CellarExpressions *
cellar_compile_aggregation(List *keys, List *aggregates, PlanState *parent)
{
	CompileContext context = {.expressions = palloc0(sizeof(CellarExpressions)),.parent = parent};
	ListCell   *lc;

	foreach(lc, keys)
	{
		compile_expression(lfirst(lc), &context);
		add_step(context.expressions, STEP_KEY_END);
	}
	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		Step	   *step;

		if (aggref->aggfilter != NULL)
		{
			compile_expression((Node *) aggref->aggfilter, &context);
			add_step(context.expressions, STEP_FILTER_END);
		}
		if (aggref->args != NIL)
			compile_expression((Node *) linitial_node(TargetEntry, aggref->args)->expr, &context);
		step = add_step(context.expressions, STEP_AGGREGATE_END);
		step->function = aggref->aggfnoid;
		step->collation = cellar_collation(aggref->inputcollid);
	}
	return context.expressions;
}

/*
 * Compiles the argument and the filter of aggregates with DISTINCT.  The filter
 * may be NULL.
 */
CellarExpressions *
cellar_compile_distinct(Node *argument, Node *filter, PlanState *parent)
{
	CompileContext context = {.expressions = palloc0(sizeof(CellarExpressions)),.parent = parent};

	if (filter != NULL)
	{
		compile_expression(filter, &context);
		add_step(context.expressions, STEP_FILTER_END);
	}
	compile_expression(argument, &context);
	add_step(context.expressions, STEP_DISTINCT_ARGUMENT_END);
	return context.expressions;
}

/*
 * Compiles the sort keys of a top-N.
 */
CellarExpressions *
cellar_compile_sort_keys(const CellarTopN *top, PlanState *parent)
{
	CompileContext context = {.expressions = palloc0(sizeof(CellarExpressions)),.parent = parent};
	ListCell   *lc;

	foreach(lc, top->keys)
	{
		int			number = foreach_current_index(lc);
		Step	   *step;

		compile_expression(lfirst(lc), &context);
		step = add_step(context.expressions, STEP_SORT_KEY_END);
		step->function = list_nth_oid(top->less, number);
		step->collation = cellar_collation(list_nth_oid(top->collations, number));
		step->direction = list_nth_int(top->directions, number);
	}
	return context.expressions;
}
