/*-------------------------------------------------------------------------
 *
 * lookup_columns.c
 *	  The columns of lookup tables in a request: in the expressions for the
 *	  cell, the columns of all tables follow those of the scanned relation,
 *	  table by table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "cellar/cell.h"
#include "cellar/planner.h"
#include "lookup_table.h"

/* Returns the number of a column in the rows of the table, or 0. */
static AttrNumber
source_of(CellarLookupState *table, const Var *var)
{
	ListCell   *lc;

	foreach(lc, ((CustomScan *) table->css.ss.ps.plan)->custom_scan_tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Var		   *column = (Var *) entry->expr;

		if (IsA(column, Var) && column->varno == var->varno && column->varattno == var->varattno)
			return entry->resno;
	}
	return 0;
}

/* Adds a column unless the table has it. */
static void
add_column(CellarLookupState *table, AttrNumber source, const Var *var)
{
	LookupColumn *column;
	CellarAttribute *attribute;

	for (int i = 0; i < table->ncolumns; i++)
	{
		if (table->columns[i].source == source - 1)
			return;
	}
	table->columns = table->columns == NULL ? palloc(sizeof(LookupColumn)) :
		repalloc(table->columns, (table->ncolumns + 1) * sizeof(LookupColumn));
	column = &table->columns[table->ncolumns++];
	memset(column, 0, sizeof(LookupColumn));
	column->source = source - 1;
	attribute = &column->attribute;
	attribute->typmod = var->vartypmod;
	attribute->type = cellar_cell_type(var->vartype, &attribute->typmod);
	get_typlenbyvalalign(attribute->type, &attribute->typlen, &attribute->typbyval, &attribute->typalign);
}

typedef struct NumberContext
{
	List	   *tables;
	Index		relation;
	int			natts;			/* of the relation */
} NumberContext;

/* Gives the columns of lookup tables the attribute numbers after those of the relation. */
static Node *
number_columns(Node *node, void *arg)
{
	NumberContext *context = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno != context->relation)
	{
		Var		   *var = copyObject((Var *) node);
		int			before = context->natts;
		ListCell   *lc;

		foreach(lc, context->tables)
		{
			CellarLookupState *table = lfirst(lc);
			AttrNumber	source = source_of(table, var);

			for (int i = 0; source > 0 && i < table->ncolumns; i++)
			{
				if (table->columns[i].source != source - 1)
					continue;
				var->varno = context->relation;
				var->varattno = before + i + 1;
				return (Node *) var;
			}
			before += table->ncolumns;
		}
		elog(ERROR, "a column is in no lookup table");
	}
	return expression_tree_mutator(node, number_columns, arg);
}

/*
 * Returns the column with which a part of the table's key is compared.
 */
static Var
outer_column(CellarLookupState *table, int part)
{
	CustomScan *cscan = (CustomScan *) table->css.ss.ps.plan;
	List	   *numbers = list_nth(list_nth(cscan->custom_private, CELLAR_LOOKUP_PARTS), part);
	Var		   *key = (Var *) list_nth_node(TargetEntry, cscan->custom_scan_tlist, table->parts[part].source)->expr;
	Var			column = {.varattno = lsecond_int(numbers)};

	/* The planner has moved range table indexes since it created the path. */
	column.varno = linitial_int(numbers) + key->varno - lthird_int(numbers);
	return column;
}

/*
 * Calls add_column for the columns of tables that are parts of the keys of later
 * tables, or with numbers sets the attributes of all parts.
 */
static void
resolve_keys(List *tables, Index relation, int natts, bool numbers)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		CellarLookupState *table = lfirst(lc);

		for (int i = 0; i < table->nparts; i++)
		{
			Var			column = outer_column(table, i);
			int			before = natts;
			bool		found = column.varno == relation;
			ListCell   *other;

			table->parts[i].attribute = column.varattno;
			foreach(other, tables)
			{
				CellarLookupState *earlier = lfirst(other);
				AttrNumber	source = found ? 0 : source_of(earlier, &column);

				if (source > 0 && !numbers)
				{
					Var		   *var = (Var *) list_nth_node(TargetEntry,
														((CustomScan *) earlier->css.ss.ps.plan)->custom_scan_tlist,
														source - 1)->expr;

					add_column(earlier, source, var);
				}
				for (int j = 0; source > 0 && j < earlier->ncolumns; j++)
				{
					if (earlier->columns[j].source == source - 1)
						table->parts[i].attribute = before + j + 1;
				}
				found |= source > 0;
				before += earlier->ncolumns;
			}
			if (!found)
				elog(ERROR, "the key of a lookup table is in no other table");
		}
	}
}

/*
 * Decides which columns of the lookup tables the expressions need, and returns
 * the expressions over the relation's columns and those that follow them.
 */
List *
cellar_number_lookup_columns(List *tables, List *expressions, Index relation, int natts)
{
	NumberContext context = {.tables = tables,.relation = relation,.natts = natts};
	List	   *vars = pull_var_clause((Node *) expressions, PVC_RECURSE_AGGREGATES);
	ListCell   *table;
	ListCell   *var;

	foreach(table, tables)
	{
		foreach(var, vars)
		{
			AttrNumber	source = source_of(lfirst(table), lfirst(var));

			if (lfirst_node(Var, var)->varno != relation && source > 0)
				add_column(lfirst(table), source, lfirst(var));
		}
	}
	resolve_keys(tables, relation, natts, false);
	resolve_keys(tables, relation, natts, true);
	return castNode(List, number_columns((Node *) expressions, &context));
}

/* Adds the tables to a request. */
void
cellar_request_lookups(CellarRequest *request, List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		CellarLookupState *table = lfirst(lc);
		uint16		attributes[CELLAR_KEY_PARTS_MAX];

		for (int i = 0; i < table->nparts; i++)
			attributes[i] = table->parts[i].attribute;
		cellar_request_lookup(request, table->kind, table->comparison, attributes, table->nparts,
							  table->keys, table->nrows * table->nparts);
		for (int i = 0; i < table->ncolumns; i++)
		{
			LookupColumn *column = &table->columns[i];

			cellar_request_lookup_column(request, &column->attribute, (const uint8 *) column->nulls.data,
										 column->has_nulls ? table->nrows : 0,
										 column->values.data, table->nrows == 0 ? 0 : column->values.len);
		}
	}
}
