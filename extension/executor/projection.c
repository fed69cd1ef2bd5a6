/*-------------------------------------------------------------------------
 *
 * projection.c
 *	  Chooses the columns that the cell returns of each row, or whole rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cellar/executor.h"

/*
 * Chooses the columns that the cell returns, or whole rows.  with_ctid says
 * that the rows need a ctid; only whole rows contain one.
 */
void
cellar_choose_projection(CellarScanState *state, bool with_ctid)
{
	CellarProjection *projection = &state->projection;
	Plan	   *plan = state->css.ss.ps.plan;
	Index		scanrelid = ((Scan *) plan)->scanrelid;
	Relation	rel = state->css.ss.ss_currentRelation;
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Bitmapset  *needed = NULL;
	int			width_needed = 0;
	int			width = 0;
	bool		few_rows;

	pull_varattnos((Node *) plan->targetlist, scanrelid, &needed);
	pull_varattnos((Node *) plan->qual, scanrelid, &needed);

	projection->targets = palloc(tupdesc->natts * sizeof(CellarTarget) + 1);
	projection->attributes = palloc(tupdesc->natts * sizeof(uint16) + 1);
	projection->ntargets = 0;
	projection->whole_rows = with_ctid ||
		bms_is_member(-FirstLowInvalidHeapAttributeNumber, needed) ||
		bms_is_member(SelfItemPointerAttributeNumber - FirstLowInvalidHeapAttributeNumber, needed);

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		int			bytes;

		if (att->attisdropped)
			continue;
		bytes = att->attlen;
		if (bytes < 0)
			bytes = get_attavgwidth(RelationGetRelid(rel), att->attnum);
		if (bytes <= 0)
			bytes = get_typavgwidth(att->atttypid, att->atttypmod);
		width += bytes;

		if (bms_is_member(att->attnum - FirstLowInvalidHeapAttributeNumber, needed))
		{
			CellarTarget *target = &projection->targets[projection->ntargets];

			target->attribute = i;
			target->typlen = att->attlen;
			target->byval = att->attbyval;
			projection->attributes[projection->ntargets] = att->attnum;
			projection->ntargets++;
			width_needed += bytes;
		}
	}

	/* A top-N scan returns few rows too. */
	few_rows = state->plan.top_rows > 0 ||
		(plan->qual == NIL && plan->plan_rows < CELLAR_FEW_ROWS_FRACTION * rel->rd_rel->reltuples);
	if (!few_rows && projection->ntargets > 1 && width_needed >= CELLAR_WHOLE_ROWS_FRACTION * width)
		projection->whole_rows = true;
}

/*
 * Maps result columns to columns of a batch, if every result column is a column
 * of the batch and the scan has no filter.  cellar_next_output then bypasses the
 * scan tuple and the projection.
 */
void
cellar_choose_outputs(CellarScanState *state)
{
	CellarProjection *projection = &state->projection;
	List	   *targetlist = state->css.ss.ps.plan->targetlist;
	ListCell   *lc;

	projection->noutputs = -1;
	if (projection->whole_rows || state->plan.filter_quals != NULL ||
		state->css.ss.ps.ps_ProjInfo == NULL)
		return;

	projection->outputs = palloc(list_length(targetlist) * sizeof(CellarOutput) + 1);
	foreach(lc, targetlist)
	{
		Var		   *var = (Var *) lfirst_node(TargetEntry, lc)->expr;
		CellarOutput *output = &projection->outputs[foreach_current_index(lc)];

		if (!IsA(var, Var) || var->varattno <= 0)
			return;
		output->column = 0;
		while (output->column < projection->ntargets &&
			   projection->attributes[output->column] != var->varattno)
			output->column++;
		if (output->column == projection->ntargets)
			return;
		output->typlen = projection->targets[output->column].typlen;
		output->byval = projection->targets[output->column].byval;
	}
	projection->noutputs = list_length(targetlist);
}
