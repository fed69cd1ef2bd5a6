/*-------------------------------------------------------------------------
 *
 * expression_request.c
 *	  Adds compiled expressions to the request for a scan.
 *
 * Subexpressions without columns are evaluated when the scan starts and become
 * constants.
 *
 * Without the cell, PostgreSQL evaluates such a subexpression for each row that
 * reaches the subexpression, and raises an error only for such a row.  Therefore
 * an error of a built-in function over built-in types, such as a division by
 * zero or an unknown configuration parameter, is caught when the scan starts.
 * The scan then runs without the cell, and PostgreSQL raises the error in its
 * own order of evaluation.  Errors of other functions cannot be caught safely.
 * Such functions are evaluated when the scan starts, like index scan keys, and
 * are offloadable only where PostgreSQL evaluates them unconditionally.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeSubplan.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "cellar/executor.h"
#include "cellar/planner.h"
#include "expression_steps.h"

/* Arrays of at least this many integers are sent as a set. */
#define INTEGER_SET_MIN	64

/*
 * Returns whether an error may be caught without a subtransaction: built-in
 * functions report errors of these classes before they change any state, and
 * PostgreSQL might never evaluate the expression.
 */
static bool
is_error_of_expression(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_INVALID_SCHEMA_NAME:
		case ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION:
			return true;
		default:
			return false;
	}
}

/* Releases what an evaluation left to its resource owner, and deletes the owner. */
static void
release_resources(ResourceOwner owner, bool success)
{
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, success, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_LOCKS, success, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_AFTER_LOCKS, success, false);
	ResourceOwnerDelete(owner);
}

/*
 * Evaluates an expression without columns.  Returns false after an error that
 * PostgreSQL might not raise.
 */
static bool
evaluate(Value *value, ExprContext *econtext)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	ResourceOwner owner;
	volatile bool done = false;

	/*
	 * Initplans can execute anything, so their errors must not be caught: run
	 * them before PG_TRY.
	 */
	if (value->params != NULL)
		ExecSetParamPlanMulti(value->params, econtext);

	if (!value->catchable)
	{
		value->datum = ExecEvalExprSwitchContext(value->state, econtext, &value->isnull);
		return true;
	}

	/* Releases the pins, references and locks that a function holds when it fails. */
	owner = ResourceOwnerCreate(oldowner, "Smart Scan value");
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		value->datum = ExecEvalExprSwitchContext(value->state, econtext, &value->isnull);
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		CurrentResourceOwner = oldowner;
		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		if (!is_error_of_expression(error->sqlerrcode))
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(error);
	}
	PG_END_TRY();
	release_resources(owner, done);
	CurrentResourceOwner = oldowner;
	return done;
}

/*
 * Adds a constant to the request: a fixed-width datum as in a tuple, a varlena
 * without its header.
 */
static void
add_datum(CellarRequest *request, Value *value, Datum datum, bool isnull)
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

/*
 * Returns whether the cell takes the elements of scalar = ANY (array) as a set of
 * integers: the operator compares integers, dates or timestamps.
 */
bool
cellar_is_integer_equality(Oid function)
{
	switch (function)
	{
		case F_INT2EQ:
		case F_INT24EQ:
		case F_INT28EQ:
		case F_INT4EQ:
		case F_INT42EQ:
		case F_INT48EQ:
		case F_INT8EQ:
		case F_INT82EQ:
		case F_INT84EQ:
		case F_DATE_EQ:
		case F_TIMESTAMP_EQ:
		case F_TIMESTAMPTZ_EQ:
			return true;
		default:
			return false;
	}
}

static void
add_any_all(CellarRequest *request, Step *step, Value *value)
{
	ArrayType  *array = DatumGetArrayTypeP(value->datum);
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;

	deconstruct_array(array, value->type,
					  value->typlen, value->typbyval, value->typalign,
					  &elements, &nulls, &nelements);
	if (nelements >= INTEGER_SET_MIN && step->any && cellar_is_integer_equality(step->function) &&
		!array_contains_nulls(array))
	{
		int64	   *integers = palloc(nelements * sizeof(int64));

		for (int i = 0; i < nelements; i++)
			integers[i] = cellar_integer_value(elements[i], value->typlen);
		cellar_qual_any_integer(request, step->function, integers, nelements);
		return;
	}
	for (int i = 0; i < nelements; i++)
		add_datum(request, value, elements[i], nulls[i]);
	cellar_qual_any_all(request, step->function, step->collation, step->any, nelements);
}

/* The result of IN is NULL instead of false if the subquery has returned a NULL. */
static void
add_in_subquery(CellarRequest *request, const Step *step)
{
	const SubqueryValues *values = step->subquery;

	if (values->nintegers == 0)
	{
		if (values->has_null)
			cellar_qual_const(request, INT8OID, NULL, 0);
		cellar_qual_any_all(request, step->function, step->collation, true, values->has_null ? 1 : 0);
		return;
	}
	cellar_qual_any_integer(request, step->function, values->integers, values->nintegers);
	if (values->has_null)
	{
		cellar_qual_const(request, BOOLOID, NULL, 0);
		cellar_qual_or(request, 2);
	}
}

/* Adds the steps [first, end) to the request. */
static void
add_steps(CellarExpressions *expressions, int first, int end, CellarRequest *request)
{
	for (int i = first; i < end; i++)
	{
		Step	   *step = &expressions->steps[i];

		switch (step->kind)
		{
			case STEP_COLUMN:
				cellar_qual_column(request, step->attribute);
				break;
			case STEP_VALUE:
				add_datum(request, step->value, step->value->datum, step->value->isnull);
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
				/* The result of ANY and ALL over a NULL array is NULL. */
				if (step->value->isnull)
				{
					cellar_qual_const(request, BOOLOID, NULL, 0);
					i = step->partner;
				}
				break;
			case STEP_ANY_ALL:
				add_any_all(request, step, expressions->steps[step->partner].value);
				break;
			case STEP_IN_SUBQUERY:
				add_in_subquery(request, step);
				break;
			case STEP_BOOLEAN_TEST:
				cellar_qual_boolean_test(request, step->test);
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
			case STEP_DISTINCT_ARGUMENT_END:
				cellar_distinct_argument_end(request);
				break;
			case STEP_SORT_KEY_END:
				cellar_sort_key_end(request, step->function, step->collation,
									(step->direction & CELLAR_DESCENDING) != 0,
									(step->direction & CELLAR_NULLS_FIRST) != 0);
				break;
			case STEP_JOIN_CONDITION_END:
				cellar_join_condition_end(request);
				break;
			case STEP_GROUP_CONDITION_END:
				cellar_group_condition_end(request);
				break;
		}
	}
}

/*
 * Evaluates subexpressions without columns and adds the expressions to the
 * request.  Returns false when an expression could not be added because of an
 * error, or because a subquery has too many values.  Uses the per-tuple memory
 * of the expression context.
 */
bool
cellar_request_expressions(CellarRequest *request, CellarExpressions *expressions,
						   ExprContext *econtext)
{
	bool		complete = true;
	int			first = 0;

	while (first < expressions->nsteps)
	{
		MemoryContext oldcontext;
		bool		evaluated = true;
		int			end;

		for (end = first; !ENDS_EXPRESSION(&expressions->steps[end]); end++)
		{
			Step	   *step = &expressions->steps[end];

			if (step->subquery != NULL && !cellar_execute_subquery(step->subquery, econtext))
			{
				evaluated = false;
				break;
			}
			/* The time zone may have changed since the query was planned. */
			if (step->kind == STEP_CALL && !cellar_agrees_with_utc(step->function))
			{
				evaluated = false;
				break;
			}
			if (step->value == NULL)
				continue;
			if (!evaluate(step->value, econtext))
				evaluated = false;

			/*
			 * ANY over a NULL array omits the scalar's steps, but PostgreSQL
			 * evaluates the scalar first and might raise an error.
			 */
			else if (step->kind == STEP_ARRAY && step->value->isnull && !step->scalar_is_column)
				evaluated = false;
			if (!evaluated)
				break;
		}
		while (!ENDS_EXPRESSION(&expressions->steps[end]))
			end++;

		oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		if (evaluated)
			add_steps(expressions, first, end + 1, request);
		else
			complete = false;
		MemoryContextSwitchTo(oldcontext);
		first = end + 1;
	}
	return complete;
}
