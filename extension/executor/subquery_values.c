/*-------------------------------------------------------------------------
 *
 * subquery_values.c
 *	  Executes an uncorrelated subquery of IN when a Smart Scan starts, for the
 *	  request to the cell.
 *
 * PostgreSQL executes the subquery again, for its own hash table, if it evaluates
 * the condition for rows that the cell has not decided.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "cellar/executor.h"
#include "expression_steps.h"

/* The values have at first this much space, and then twice as much. */
#define INITIAL_VALUES	256

/* Returns the value of an integer, a date or a timestamp of this many bytes. */
int64
cellar_integer_value(Datum datum, int16 typlen)
{
	return typlen == sizeof(int16) ? DatumGetInt16(datum) :
		typlen == sizeof(int32) ? DatumGetInt32(datum) : DatumGetInt64(datum);
}

static int
compare_integers(const void *left, const void *right)
{
	int64		a = *(const int64 *) left;
	int64		b = *(const int64 *) right;

	return a < b ? -1 : a > b;
}

/* Sorts the values and removes duplicates. */
static void
remove_duplicates(SubqueryValues *values)
{
	int			kept = 0;

	qsort(values->integers, values->nintegers, sizeof(int64), compare_integers);
	for (int i = 0; i < values->nintegers; i++)
	{
		if (kept == 0 || values->integers[kept - 1] != values->integers[i])
			values->integers[kept++] = values->integers[i];
	}
	values->nintegers = kept;
}

/*
 * Executes the subquery, unless its values are known.  Its parameters never change,
 * so one execution suffices.  Returns false if there are too many different values
 * for a request.
 */
bool
cellar_execute_subquery(SubqueryValues *values, ExprContext *econtext)
{
	PlanState  *subquery = values->subquery;
	ScanDirection direction = subquery->state->es_direction;
	MemoryContext oldcontext;
	int			allocated = INITIAL_VALUES;

	if (values->integers != NULL)
		return values->nintegers <= CELLAR_SUBQUERY_VALUES_MAX;

	oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_query_memory);
	values->integers = palloc(allocated * sizeof(int64));
	subquery->state->es_direction = ForwardScanDirection;
	ExecReScan(subquery);
	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(subquery);
		Datum		datum;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
			break;
		datum = slot_getattr(slot, 1, &isnull);
		if (isnull)
		{
			values->has_null = true;
			continue;
		}
		if (values->nintegers == allocated)
		{
			remove_duplicates(values);
			if (values->nintegers > CELLAR_SUBQUERY_VALUES_MAX)
				break;
			if (values->nintegers > allocated / 2)
			{
				allocated *= 2;
				values->integers = repalloc(values->integers, allocated * sizeof(int64));
			}
		}
		values->integers[values->nintegers++] = cellar_integer_value(datum, values->typlen);
	}
	remove_duplicates(values);
	subquery->state->es_direction = direction;
	MemoryContextSwitchTo(oldcontext);
	return values->nintegers <= CELLAR_SUBQUERY_VALUES_MAX;
}
