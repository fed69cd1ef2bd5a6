/*-------------------------------------------------------------------------
 *
 * expressions.c
 *	  How storage predicates, group keys, aggregates and sort keys are sent.
 *
 * When a scan's plan state is made, the quals that offloadable.c lets go are
 * turned into a list of steps in postfix order, as the cell's client wants
 * them.  When the scan starts, whatever depends on no column is evaluated here
 * and becomes a constant.
 *
 * Postgres would evaluate such an expression for each row that it gets to,
 * and so report its error only then, or never.  An error in plain values
 * (division by zero, say) is therefore caught; the qual stays here in that
 * scan and reports it in its turn.  Functions that are not built in cannot be
 * treated that way: they are evaluated at once as an index scan's keys are,
 * but only where no condition of the same qual guards them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeSubplan.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cellar/executor.h"
#include "cellar/planner.h"

typedef enum StepKind
{
	STEP_COLUMN,
	STEP_VALUE,					/* evaluated when the scan starts */
	STEP_NULL,
	STEP_CALL,
	STEP_AND,
	STEP_OR,
	STEP_NOT,
	STEP_IS_NULL,
	STEP_IS_NOT_NULL,
	STEP_ARRAY,					/* evaluated when the scan starts; stands
								 * before the scalar's steps */
	STEP_ANY_ALL,
	STEP_BOOLEAN_TEST,
	STEP_DISTINCT,
	STEP_COALESCE,
	STEP_CASE,

	/* These end an expression. */
	STEP_END,
	STEP_KEY_END,
	STEP_FILTER_END,
	STEP_AGGREGATE_END,
	STEP_SORT_KEY_END
} StepKind;

#define ENDS(step)	((step)->kind >= STEP_END)

/* An expression without columns. */
typedef struct Value
{
	ExprState  *state;
	Bitmapset  *params;			/* its PARAM_EXEC parameters */
	bool		catchable;
	Oid			type;			/* base type; of the elements for an array */
	int16		typlen;
	bool		typbyval;
	char		typalign;

	/* for the scan that starts */
	Datum		datum;
	bool		isnull;
} Value;

typedef struct Step
{
	StepKind	kind;
	AttrNumber	attribute;
	int			nargs;			/* or the BoolTestType, or a sort key's direction */
	Oid			function;
	Oid			type;
	CellarCollation collation;
	bool		any;
	bool		plain;			/* STEP_ARRAY: the scalar is a column */
	Value	   *value;
	int			partner;		/* STEP_ARRAY: its STEP_ANY_ALL, and back */
} Step;

struct CellarQuals
{
	int			nsteps;
	int			allocated;
	Step	   *steps;
};

typedef struct CompileContext
{
	CellarQuals *quals;
	PlanState  *parent;
	Node	   *case_test;		/* what CaseTestExpr stands for */
} CompileContext;

static void compile_expression(Node *node, CompileContext *context);

/* The pointer is valid until the next step is added. */
static Step *
add_step(CellarQuals *quals, StepKind kind)
{
	Step	   *step;

	if (quals->nsteps == quals->allocated)
	{
		quals->allocated = quals->allocated == 0 ? 16 : quals->allocated * 2;
		quals->steps = quals->steps == NULL ?
			palloc(quals->allocated * sizeof(Step)) :
			repalloc(quals->steps, quals->allocated * sizeof(Step));
	}
	step = &quals->steps[quals->nsteps++];
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
	value->type = getBaseType(type);
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
	step = add_step(context->quals, STEP_CALL);
	step->function = expr->opfuncid;
	step->collation = cellar_collation(expr->inputcollid);
	step->nargs = list_length(expr->args);
}

static void
compile_any_all(ScalarArrayOpExpr *expr, CompileContext *context)
{
	CellarQuals *quals = context->quals;
	Node	   *array = lsecond(expr->args);
	Node	   *scalar = linitial(expr->args);
	int			first = quals->nsteps;
	Step	   *step;

	step = add_step(quals, STEP_ARRAY);
	step->value = compile_value(array, get_element_type(getBaseType(exprType(array))),
								context->parent);
	step->plain = IsA(scalar, Var) ||
		(IsA(scalar, RelabelType) && IsA(((RelabelType *) scalar)->arg, Var));
	compile_expression(scalar, context);

	quals->steps[first].partner = quals->nsteps;
	step = add_step(quals, STEP_ANY_ALL);
	step->function = expr->opfuncid;
	step->collation = cellar_collation(expr->inputcollid);
	step->any = expr->useOr;
	step->partner = first;
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
		add_step(context->quals, STEP_NULL)->type = getBaseType(expr->casetype);
	add_step(context->quals, STEP_CASE)->nargs = list_length(expr->args);
}

static void
compile_expression(Node *node, CompileContext *context)
{
	CellarQuals *quals = context->quals;
	Step	   *step;

	if (!cellar_depends_on_row(node))
	{
		Value	   *value = compile_value(node, exprType(node), context->parent);

		add_step(quals, STEP_VALUE)->value = value;
		return;
	}

	switch (nodeTag(node))
	{
		case T_Var:
			add_step(quals, STEP_COLUMN)->attribute = ((Var *) node)->varattno;
			break;

		case T_CaseTestExpr:
			{
				Node	   *case_test = context->case_test;

				/* The tested expression does not see its own CASE. */
				context->case_test = NULL;
				compile_expression(case_test, context);
				context->case_test = case_test;
				break;
			}

		case T_RelabelType:
			compile_expression((Node *) ((RelabelType *) node)->arg, context);
			break;

		case T_FuncExpr:
			{
				FuncExpr   *expr = (FuncExpr *) node;

				compile_list(expr->args, context);
				step = add_step(quals, STEP_CALL);
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
			step = add_step(quals, STEP_DISTINCT);
			step->function = ((DistinctExpr *) node)->opfuncid;
			step->collation = cellar_collation(((DistinctExpr *) node)->inputcollid);
			break;

		case T_NullIfExpr:
			/* CASE WHEN a = b THEN NULL ELSE a END */
			compile_call((OpExpr *) node, context);
			add_step(quals, STEP_NULL)->type = getBaseType(exprType(node));
			compile_expression(linitial(((NullIfExpr *) node)->args), context);
			add_step(quals, STEP_CASE)->nargs = 1;
			break;

		case T_ScalarArrayOpExpr:
			compile_any_all((ScalarArrayOpExpr *) node, context);
			break;

		case T_BoolExpr:
			{
				BoolExpr   *expr = (BoolExpr *) node;
				StepKind	kind = expr->boolop == AND_EXPR ? STEP_AND :
					expr->boolop == OR_EXPR ? STEP_OR : STEP_NOT;

				compile_list(expr->args, context);
				add_step(quals, kind)->nargs = list_length(expr->args);
				break;
			}

		case T_NullTest:
			compile_expression((Node *) ((NullTest *) node)->arg, context);
			add_step(quals, ((NullTest *) node)->nulltesttype == IS_NULL ?
					 STEP_IS_NULL : STEP_IS_NOT_NULL);
			break;

		case T_BooleanTest:
			compile_expression((Node *) ((BooleanTest *) node)->arg, context);
			add_step(quals, STEP_BOOLEAN_TEST)->nargs = ((BooleanTest *) node)->booltesttype;
			break;

		case T_CoalesceExpr:
			compile_list(((CoalesceExpr *) node)->args, context);
			add_step(quals, STEP_COALESCE)->nargs = list_length(((CoalesceExpr *) node)->args);
			break;

		case T_CaseExpr:
			compile_case((CaseExpr *) node, context);
			break;

		default:
			elog(ERROR, "unexpected node in a storage predicate: %d", (int) nodeTag(node));
	}
}

/*
 * Prepares quals, which cellar_qual_offloadable agreed to, for a plan state.
 */
CellarQuals *
cellar_quals_init(List *quals, Index varno, PlanState *parent)
{
	CompileContext context = {.quals = palloc0(sizeof(CellarQuals)), .parent = parent};
	ListCell   *lc;

	foreach(lc, quals)
	{
		compile_expression(lfirst(lc), &context);
		add_step(context.quals, STEP_END);
	}
	return context.quals;
}

/*
 * Prepares group keys and aggregates, which cellar_qual_offloadable agreed to.
 */
CellarQuals *
cellar_aggregation_init(List *keys, List *aggregates, PlanState *parent)
{
	CompileContext context = {.quals = palloc0(sizeof(CellarQuals)), .parent = parent};
	ListCell   *lc;

	foreach(lc, keys)
	{
		compile_expression(lfirst(lc), &context);
		add_step(context.quals, STEP_KEY_END);
	}
	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		Step	   *step;

		if (aggref->aggfilter != NULL)
		{
			compile_expression((Node *) aggref->aggfilter, &context);
			add_step(context.quals, STEP_FILTER_END);
		}
		if (aggref->args != NIL)
			compile_expression((Node *) linitial_node(TargetEntry, aggref->args)->expr, &context);
		step = add_step(context.quals, STEP_AGGREGATE_END);
		step->function = aggref->aggfnoid;
		step->collation = cellar_collation(aggref->inputcollid);
	}
	return context.quals;
}

/*
 * Prepares the keys of an order, which cellar_qual_offloadable agreed to.
 */
CellarQuals *
cellar_sort_keys_init(const CellarTopN *top, PlanState *parent)
{
	CompileContext context = {.quals = palloc0(sizeof(CellarQuals)), .parent = parent};
	ListCell   *lc;

	foreach(lc, top->keys)
	{
		int			number = foreach_current_index(lc);
		Step	   *step;

		compile_expression(lfirst(lc), &context);
		step = add_step(context.quals, STEP_SORT_KEY_END);
		step->function = list_nth_oid(top->less, number);
		step->collation = cellar_collation(list_nth_oid(top->collations, number));
		step->nargs = list_nth_int(top->directions, number);
	}
	return context.quals;
}

/* ----------------------------------------------------------------
 *		From steps to the request
 * ----------------------------------------------------------------
 */

/*
 * Evaluates an expression without columns.  Returns false when it fails in a
 * way that Postgres would report only on getting there.
 */
static bool
evaluate(Value *value, ExprContext *econtext)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	volatile bool done = false;

	/* Initplans run outside the trap: they may do anything. */
	if (value->params != NULL)
		ExecSetParamPlanMulti(value->params, econtext);

	if (!value->catchable)
	{
		value->datum = ExecEvalExprSwitchContext(value->state, econtext, &value->isnull);
		return true;
	}

	PG_TRY();
	{
		value->datum = ExecEvalExprSwitchContext(value->state, econtext, &value->isnull);
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(error);
	}
	PG_END_TRY();
	return done;
}

/*
 * Sends a datum: a fixed-width one as it stands in a tuple, a varlena without
 * its header.
 */
static void
send_datum(CellarRequest *request, Value *value, Datum datum, bool isnull)
{
	if (isnull)
		cellar_qual_const(request, value->type, NULL, 0);
	else if (value->typlen == -1)
	{
		struct varlena *plain = PG_DETOAST_DATUM_PACKED(datum);

		cellar_qual_const(request, value->type, VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain));
	}
	else if (value->typlen == -2)
	{
		char	   *string = DatumGetCString(datum);

		cellar_qual_const(request, value->type, string, strlen(string) + 1);
	}
	else if (value->typbyval)
	{
		char		bytes[sizeof(Datum)];

		store_att_byval(bytes, datum, value->typlen);
		cellar_qual_const(request, value->type, bytes, value->typlen);
	}
	else
		cellar_qual_const(request, value->type, DatumGetPointer(datum), value->typlen);
}

static void
send_any_all(CellarRequest *request, Step *step, Value *value)
{
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;

	deconstruct_array(DatumGetArrayTypeP(value->datum), value->type,
					  value->typlen, value->typbyval, value->typalign,
					  &elements, &nulls, &nelements);
	for (int i = 0; i < nelements; i++)
		send_datum(request, value, elements[i], nulls[i]);
	cellar_qual_any_all(request, step->function, step->collation, step->any, nelements);
}

/* Sends the steps from first to before end. */
static void
send_steps(CellarQuals *quals, int first, int end, CellarRequest *request)
{
	for (int i = first; i < end; i++)
	{
		Step	   *step = &quals->steps[i];

		switch (step->kind)
		{
			case STEP_COLUMN:
				cellar_qual_column(request, step->attribute);
				break;
			case STEP_VALUE:
				send_datum(request, step->value, step->value->datum, step->value->isnull);
				break;
			case STEP_NULL:
				cellar_qual_const(request, step->type, NULL, 0);
				break;
			case STEP_CALL:
				cellar_qual_call(request, step->function, step->collation, step->nargs);
				break;
			case STEP_AND:
				cellar_qual_and(request, step->nargs);
				break;
			case STEP_OR:
				cellar_qual_or(request, step->nargs);
				break;
			case STEP_NOT:
				cellar_qual_not(request);
				break;
			case STEP_IS_NULL:
				cellar_qual_is_null(request);
				break;
			case STEP_IS_NOT_NULL:
				cellar_qual_is_not_null(request);
				break;
			case STEP_ARRAY:
				/* Without an array the result is null. */
				if (step->value->isnull)
				{
					cellar_qual_const(request, BOOLOID, NULL, 0);
					i = step->partner;
				}
				break;
			case STEP_ANY_ALL:
				send_any_all(request, step, quals->steps[step->partner].value);
				break;
			case STEP_BOOLEAN_TEST:
				cellar_qual_boolean_test(request, step->nargs);
				break;
			case STEP_DISTINCT:
				cellar_qual_distinct(request, step->function, step->collation);
				break;
			case STEP_COALESCE:
				cellar_qual_coalesce(request, step->nargs);
				break;
			case STEP_CASE:
				cellar_qual_case(request, step->nargs);
				break;
			case STEP_END:
				cellar_qual_end(request);
				break;
			case STEP_KEY_END:
				cellar_group_key_end(request);
				break;
			case STEP_FILTER_END:
				cellar_aggregate_filter_end(request);
				break;
			case STEP_AGGREGATE_END:
				cellar_aggregate_end(request, step->function, step->collation);
				break;
			case STEP_SORT_KEY_END:
				cellar_sort_key_end(request, step->function, step->collation,
									(step->nargs & CELLAR_DESCENDING) != 0,
									(step->nargs & CELLAR_NULLS_FIRST) != 0);
				break;
		}
	}
}

/*
 * Evaluates what depends on no column and adds the quals to the request.
 * Returns false when some qual had to be left out, so that the rows that
 * come back are to be checked again.  Uses the context's per-tuple memory.
 */
bool
cellar_quals_send(CellarQuals *quals, ExprContext *econtext, CellarRequest *request)
{
	bool		complete = true;
	int			first = 0;

	while (first < quals->nsteps)
	{
		MemoryContext oldcontext;
		bool		sendable = true;
		int			end;

		for (end = first; !ENDS(&quals->steps[end]); end++)
		{
			Step	   *step = &quals->steps[end];

			if (step->value == NULL)
				continue;
			if (!evaluate(step->value, econtext))
				sendable = false;

			/* The scalar's error would come first; leave it to Postgres. */
			else if (step->kind == STEP_ARRAY && step->value->isnull && !step->plain)
				sendable = false;
			if (!sendable)
				break;
		}
		while (!ENDS(&quals->steps[end]))
			end++;

		oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		if (sendable)
			send_steps(quals, first, end + 1, request);
		else
			complete = false;
		MemoryContextSwitchTo(oldcontext);
		first = end + 1;
	}
	return complete;
}
