/*-------------------------------------------------------------------------
 *
 * relation_request.c
 *	  Describes a relation and its columns in a request to a cell.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/tupdesc_details.h"
#include "access/tupmacs.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cellar/cell.h"

/*
 * Returns the value of the column in rows that are older than the column, as
 * in a tuple, and sets *bytes; returns NULL when the value is NULL.  buffer has
 * space for a by-value datum.
 */
static const void *
missing_value(TupleDesc tupdesc, Form_pg_attribute att, char *buffer, size_t *bytes)
{
	AttrMissing *missing;

	if (!att->atthasmissing || tupdesc->constr == NULL || tupdesc->constr->missing == NULL)
		return NULL;
	missing = &tupdesc->constr->missing[att->attnum - 1];
	if (!missing->am_present)
		return NULL;

	if (att->attbyval)
	{
		store_att_byval(buffer, missing->am_value, att->attlen);
		*bytes = att->attlen;
		return buffer;
	}
	if (att->attlen == -1)
		*bytes = VARSIZE_ANY(DatumGetPointer(missing->am_value));
	else if (att->attlen == -2)
		*bytes = strlen(DatumGetCString(missing->am_value)) + 1;
	else
		*bytes = att->attlen;
	return DatumGetPointer(missing->am_value);
}

/*
 * Returns the type by which a cell knows a type: the base type of a domain, and
 * anyenum for enums.  Replaces *typmod, unless typmod is NULL, by that of the base type.
 */
Oid
cellar_cell_type(Oid type, int32 *typmod)
{
	int32		ignored = -1;

	type = getBaseTypeAndTypmod(type, typmod == NULL ? &ignored : typmod);
	return type >= FirstGenbkiObjectId && type_is_enum(type) ? ANYENUMOID : type;
}

/*
 * Adds the relation, its file below the mount and its columns to the request.
 */
void
cellar_request_relation(CellarRequest *request, Relation rel, const char *file)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);

	cellar_request_file(request, file, RELSEG_SIZE, DataChecksumsEnabled(),
						GetDatabaseEncoding());
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		char		buffer[sizeof(Datum)];
		CellarAttribute attribute = {
			.type = InvalidOid,
			.typmod = att->atttypmod,
			.typlen = att->attlen,
			.typalign = att->attalign,
			.typbyval = att->attbyval,
		};

		if (!att->attisdropped)
		{
			attribute.type = cellar_cell_type(att->atttypid, &attribute.typmod);
			attribute.missing = missing_value(tupdesc, att, buffer, &attribute.missing_bytes);
		}
		cellar_request_attribute(request, &attribute);
	}
}

/*
 * Returns a request that only describes a relation, for requests other than
 * scans.  The caller frees it.
 */
CellarRequest *
cellar_relation_request(Relation rel, const char *file)
{
	CellarRequest *request = cellar_request_new();

	PG_TRY();
	{
		cellar_request_relation(request, rel, file);
	}
	PG_CATCH();
	{
		cellar_request_free(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return request;
}
