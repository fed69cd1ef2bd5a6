/*-------------------------------------------------------------------------
 *
 * expression_steps.h
 *	  Expressions as lists of steps in postfix order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_EXPRESSION_STEPS_H
#define CELLAR_EXPRESSION_STEPS_H

#include "nodes/primnodes.h"

#include "cellar/executor.h"

typedef enum StepKind
{
	STEP_COLUMN,
	STEP_VALUE,					/* an expression without columns */
	STEP_NULL,
	STEP_CALL,
	STEP_AND,
	STEP_OR,
	STEP_NOT,
	STEP_IS_NULL,
	STEP_IS_NOT_NULL,
	STEP_ARRAY,					/* the array of ANY or ALL, without columns;
								 * precedes the steps of the scalar */
	STEP_ANY_ALL,
	STEP_IN_SUBQUERY,			/* follows the steps of the scalar */
	STEP_BOOLEAN_TEST,
	STEP_DISTINCT,
	STEP_COALESCE,
	STEP_CASE,

	/* Each of these ends an expression. */
	STEP_END,
	STEP_KEY_END,
	STEP_FILTER_END,
	STEP_AGGREGATE_END,
	STEP_DISTINCT_ARGUMENT_END,
	STEP_SORT_KEY_END,
	STEP_JOIN_CONDITION_END,
	STEP_GROUP_CONDITION_END
} StepKind;

#define ENDS_EXPRESSION(step)	((step)->kind >= STEP_END)

/* An expression without columns, evaluated when the scan starts. */
typedef struct Value
{
	ExprState  *state;
	Bitmapset  *params;			/* its PARAM_EXEC parameters */
	bool		catchable;		/* see cellar_catchable */
	Oid			type;			/* base type, or that of the array's elements */
	int16		typlen;
	bool		typbyval;
	char		typalign;

	/* the result */
	Datum		datum;
	bool		isnull;
} Value;

/* The most different values of a subquery that reach a scan. */
#define CELLAR_SUBQUERY_VALUES_MAX	262144

/* The subquery of IN, executed when the scan starts. */
typedef struct SubqueryValues
{
	PlanState  *subquery;
	int16		typlen;			/* of the first column */

	/* the different values of the first column */
	int64	   *integers;		/* NULL before the first execution */
	int			nintegers;
	bool		has_null;
} SubqueryValues;

extern bool cellar_execute_subquery(SubqueryValues *values, ExprContext *econtext);

typedef struct Step
{
	StepKind	kind;
	AttrNumber	attribute;
	int			nargs;			/* operands, or branches of STEP_CASE */
	BoolTestType test;			/* STEP_BOOLEAN_TEST */
	int			direction;		/* STEP_SORT_KEY_END: as in CellarTopN */
	Oid			function;
	Oid			type;
	CellarCollation collation;
	bool		any;			/* STEP_ANY_ALL: ANY, not ALL */
	bool		scalar_is_column;	/* STEP_ARRAY */
	Value	   *value;			/* STEP_VALUE, STEP_ARRAY */
	SubqueryValues *subquery;	/* STEP_IN_SUBQUERY */
	int			partner;		/* STEP_ARRAY: index of its STEP_ANY_ALL, and
								 * vice versa */
} Step;

struct CellarExpressions
{
	int			nsteps;
	int			allocated;
	Step	   *steps;
};

#endif							/* CELLAR_EXPRESSION_STEPS_H */
