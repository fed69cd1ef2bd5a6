/*-------------------------------------------------------------------------
 *
 * lookup_sharing.c
 *	  What the Lookup Tables of a Smart Scan Aggregate share: keys that filter
 *	  several tables, and the rows of a table that is in the plan twice.
 *
 * A table that shares something with an earlier table depends on parameters of
 * the earlier one.  The executor notifies the plan nodes of a hash join of changed
 * parameters when the join is executed, and may build the hash table of a later
 * join first.  So a table that is executed again first passes the parameters on to
 * the earlier tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/plannodes.h"

#include "cellar.h"
#include "cellar/planner.h"
#include "lookup_table.h"

/* Called when a table is executed again: notes the changed parameters for the earlier tables. */
void
cellar_note_new_parameters(CellarLookupState *table)
{
	Bitmapset  *changed = table->css.ss.ps.chgParam;
	MemoryContext oldcontext = MemoryContextSwitchTo(table->css.ss.ps.state->es_query_cxt);
	ListCell   *lc;

	foreach(lc, changed == NULL ? NIL : table->earlier)
	{
		CellarLookupState *other = lfirst(lc);

		other->new_parameters = bms_add_members(other->new_parameters, changed);
	}
	MemoryContextSwitchTo(oldcontext);
}

/* Forgets the noted parameters, because the earlier tables were executed since. */
void
cellar_forget_new_parameters(CellarLookupState *table)
{
	ListCell   *lc;

	foreach(lc, table->earlier)
	{
		CellarLookupState *other = lfirst(lc);

		bms_free(other->new_parameters);
		other->new_parameters = NULL;
	}
}

/* Passes the noted parameters on to the earlier tables. */
void
cellar_pass_new_parameters(CellarLookupState *table)
{
	ListCell   *lc;

	foreach(lc, table->earlier)
	{
		CellarLookupState *other = lfirst(lc);

		if (other->new_parameters != NULL)
			UpdateChangedParamSet(other->hash, other->new_parameters);
	}
	cellar_forget_new_parameters(table);
}

/*
 * Prepares a new execution if parameters have changed.  A new parameter has not
 * reached this node if the Hash node was not executed since.
 */
void
cellar_apply_new_parameters(CellarLookupState *table)
{
	PlanState  *node = &table->css.ss.ps;

	if (table->hash->chgParam != NULL)
	{
		/* A later execution of the Hash node must not execute the child again. */
		UpdateChangedParamSet(node, table->hash->chgParam);
		bms_free(table->hash->chgParam);
		table->hash->chgParam = NULL;
	}
	if (node->chgParam != NULL)
		ExecReScan(node);
}

static bool
has_same_key(const CellarLookupState *table, const CellarLookupState *other)
{
	if (table->nparts != other->nparts)
		return false;
	for (int i = 0; i < table->nparts; i++)
	{
		if (table->parts[i].source != other->parts[i].source)
			return false;
	}
	return true;
}

/* Returns the number of the parameter with the keys that filter a table, or -1. */
static int
keys_parameter(const CellarLookupState *table)
{
	const Param *param = list_nth(((CustomScan *) table->css.ss.ps.plan)->custom_private, CELLAR_LOOKUP_KEYS);

	return param == NULL ? -1 : param->paramid;
}

/* Finds the table whose second child returns the keys that filter a table without one. */
static void
find_keys_owner(CellarLookupState *table, List *tables)
{
	ListCell   *lc;

	if (keys_parameter(table) < 0 || list_length(table->css.custom_ps) == 2)
		return;
	foreach(lc, tables)
	{
		CellarLookupState *other = lfirst(lc);

		if (list_length(other->css.custom_ps) == 2 && keys_parameter(other) == keys_parameter(table))
			table->keys_owner = other;
	}
}

/*
 * Lets the tables of a Smart Scan Aggregate that returns keys for one of the
 * tables use the rows of the others: the planner has created both from the same
 * path.
 */
void
cellar_share_lookups(List *tables)
{
	List	   *earlier = NIL;
	ListCell   *lc;

	foreach(lc, tables)
	{
		List	   *children = ((CellarLookupState *) lfirst(lc))->css.custom_ps;
		PlanState  *keys = list_length(children) < 2 ? NULL : outerPlanState((PlanState *) lsecond(children));
		CellarAggregateState *aggregate = keys == NULL ? NULL : cellar_aggregate_state(keys);
		ListCell   *own;
		ListCell   *other;

		((CellarLookupState *) lfirst(lc))->earlier = list_copy(earlier);
		earlier = lappend(earlier, lfirst(lc));
		find_keys_owner(lfirst(lc), tables);
		foreach(own, aggregate == NULL ? NIL : aggregate->lookups)
		{
			CellarLookupState *table = lfirst(own);
			List	   *tlist = ((CustomScan *) table->css.ss.ps.plan)->custom_scan_tlist;

			foreach(other, tables)
			{
				CellarLookupState *twin = lfirst(other);

				if (equal(tlist, ((CustomScan *) twin->css.ss.ps.plan)->custom_scan_tlist) &&
					has_same_key(table, twin))
					table->twin = twin;
			}
		}
	}
}
