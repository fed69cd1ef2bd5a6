/*-------------------------------------------------------------------------
 *
 * packed_rows.c
 *	  Packed rows: many rows of the same columns as one text.
 *
 * An AWR snapshot handles thousands of rows with dozens of figures each.  As jsonb
 * objects, each row would repeat the names of its columns, and each figure would be
 * converted to numeric and back.  Packed rows are instead the text of a jsonb
 * string, so that they can take the place of an array of objects:
 *
 *	 KIND
 *	 name of column 1 <tab> name of column 2 ...
 *	 value <tab> value ...		one line per row
 *
 * Values have the form of COPY: \N for NULL, and \t, \n and \\ in texts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#include "cellar/awr.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_unpack_rows);

/* Rows of one kind that are packed. */
struct CellarRowPacker
{
	TupleDesc	columns;
	FmgrInfo   *output;
	Datum	   *values;
	bool	   *nulls;
	StringInfoData text;
};

/* ---- packing ---- */

static void
append_value(StringInfo out, const char *value)
{
	for (const char *c = value; *c != '\0'; c++)
	{
		switch (*c)
		{
			case '\t':
				appendStringInfoString(out, "\\t");
				break;
			case '\n':
				appendStringInfoString(out, "\\n");
				break;
			case '\\':
				appendStringInfoString(out, "\\\\");
				break;
			default:
				appendStringInfoCharMacro(out, *c);
		}
	}
}

/* Begins packed rows in the current memory context. */
CellarRowPacker *
cellar_begin_packing(const char *kind, HeapTupleHeader first)
{
	CellarRowPacker *packer = palloc(sizeof(CellarRowPacker));
	int			count;

	packer->columns = lookup_rowtype_tupdesc_copy(HeapTupleHeaderGetTypeId(first), HeapTupleHeaderGetTypMod(first));
	count = packer->columns->natts;
	packer->output = palloc(count * sizeof(FmgrInfo));
	packer->values = palloc(count * sizeof(Datum));
	packer->nulls = palloc(count * sizeof(bool));
	initStringInfo(&packer->text);
	append_value(&packer->text, kind);
	for (int i = 0; i < count; i++)
	{
		Form_pg_attribute column = TupleDescAttr(packer->columns, i);
		Oid			function;
		bool		is_varlena;

		getTypeOutputInfo(column->atttypid, &function, &is_varlena);
		fmgr_info(function, &packer->output[i]);
		appendStringInfoChar(&packer->text, i == 0 ? '\n' : '\t');
		append_value(&packer->text, NameStr(column->attname));
	}
	return packer;
}

void
cellar_pack_row(CellarRowPacker *packer, HeapTupleHeader row)
{
	HeapTupleData tuple;

	if (HeapTupleHeaderGetTypeId(row) != packer->columns->tdtypeid || HeapTupleHeaderGetTypMod(row) != packer->columns->tdtypmod)
		elog(ERROR, "rows of one kind have different columns");
	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, packer->columns, packer->values, packer->nulls);
	for (int i = 0; i < packer->columns->natts; i++)
	{
		appendStringInfoChar(&packer->text, i == 0 ? '\n' : '\t');
		if (packer->nulls[i])
			appendStringInfoString(&packer->text, "\\N");
		else if (TupleDescAttr(packer->columns, i)->atttypid == INT8OID)
		{
			/* Most columns are counts. */
			enlargeStringInfo(&packer->text, MAXINT8LEN + 1);
			packer->text.len += pg_lltoa(DatumGetInt64(packer->values[i]), packer->text.data + packer->text.len);
		}
		else
		{
			char	   *value = OutputFunctionCall(&packer->output[i], packer->values[i]);

			append_value(&packer->text, value);
			pfree(value);
		}
	}
}

/* Returns the packed rows as a jsonb string. */
Datum
cellar_end_packing(CellarRowPacker *packer)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = packer->text.data;
	value.val.string.len = packer->text.len;
	return JsonbPGetDatum(JsonbValueToJsonb(&value));
}

/* ---- unpacking ---- */

/*
 * Ends the text at "start" at its first separator, a tab or a line feed, and decodes
 * the text in place.  Returns the rest after the separator, or NULL at the end of
 * the packed rows.  Sets *separator, and *is_null for \N.
 */
static char *
take_value(char *start, char *separator, bool *is_null)
{
	char	   *end = start + strcspn(start, "\t\n");
	char	   *to = start;

	*separator = *end;
	*end = '\0';
	*is_null = strcmp(start, "\\N") == 0;
	for (char *from = strchr(start, '\\'); from != NULL && from < end; from++)
	{
		if (to == start)
			to = from;
		if (*from == '\\' && from[1] == 't')
			*to = '\t';
		else if (*from == '\\' && from[1] == 'n')
			*to = '\n';
		else if (*from == '\\' && from[1] == '\\')
			*to = '\\';
		else
		{
			*to++ = *from;
			continue;
		}
		to++;
		from++;
	}
	if (to != start)
		*to = '\0';
	return *separator == '\0' ? NULL : end + 1;
}

/* Returns, for each column of packed rows, the column of the result with its name, or -1. */
static int *
match_columns(char **rest, TupleDesc result, int *count)
{
	int			capacity = 64;
	int		   *targets = palloc(capacity * sizeof(int));
	char		separator = '\t';

	*count = 0;
	while (*rest != NULL && separator == '\t')
	{
		char	   *name = *rest;
		bool		is_null;

		*rest = take_value(name, &separator, &is_null);
		if (*count == capacity)
		{
			capacity *= 2;
			targets = repalloc(targets, capacity * sizeof(int));
		}
		targets[*count] = -1;
		for (int i = 0; i < result->natts; i++)
		{
			if (strcmp(NameStr(TupleDescAttr(result, i)->attname), name) == 0)
				targets[*count] = i;
		}
		(*count)++;
	}
	return targets;
}

static void
unpack(char *rest, ReturnSetInfo *rsinfo)
{
	TupleDesc	result = rsinfo->setDesc;
	FmgrInfo   *input = palloc(result->natts * sizeof(FmgrInfo));
	Oid		   *parameters = palloc(result->natts * sizeof(Oid));
	Datum	   *values = palloc(result->natts * sizeof(Datum));
	bool	   *nulls = palloc(result->natts * sizeof(bool));
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "cellar packed row", ALLOCSET_DEFAULT_SIZES);
	char		separator;
	bool		is_null;
	int		   *targets;
	int			count;

	for (int i = 0; i < result->natts; i++)
	{
		Oid			function;

		getTypeInputInfo(TupleDescAttr(result, i)->atttypid, &function, &parameters[i]);
		fmgr_info(function, &input[i]);
	}
	/* The kind */
	rest = take_value(rest, &separator, &is_null);
	targets = match_columns(&rest, result, &count);
	while (rest != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);

		memset(nulls, true, result->natts * sizeof(bool));
		for (int i = 0; i < count; i++)
		{
			char	   *value = rest;
			int			target = targets[i];

			rest = value != NULL ? take_value(value, &separator, &is_null) : NULL;
			if (value == NULL || (separator == '\t') != (i < count - 1))
				elog(ERROR, "a packed row does not have %d columns", count);
			if (target < 0 || is_null)
				continue;
			nulls[target] = false;
			values[target] = InputFunctionCall(&input[target], value, parameters[target], TupleDescAttr(result, target)->atttypmod);
		}
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, result, values, nulls);
		MemoryContextReset(row_context);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextDelete(row_context);
}

/* awr.unpack_rows(jsonb): the rows of packed rows, or of an array of objects */
Datum
cellar_unpack_rows(PG_FUNCTION_ARGS)
{
	Jsonb	   *packed = PG_GETARG_JSONB_P(0);
	JsonbValue	value;

	if (!JB_ROOT_IS_SCALAR(packed))
		return jsonb_to_recordset(fcinfo);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (JsonbExtractScalar(&packed->root, &value) && value.type == jbvString)
		unpack(pnstrdup(value.val.string.val, value.val.string.len), (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
