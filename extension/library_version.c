/*-------------------------------------------------------------------------
 *
 * library_version.c
 *	  Versions of the library and of the extension's SQL objects.
 *
 * The server loads the library when it starts; each database contains the SQL
 * objects of the version that CREATE EXTENSION or ALTER EXTENSION installed there.
 * After an upgrade both can differ: the library is older until the server is
 * restarted, and the SQL objects are older until ALTER EXTENSION.  A function whose
 * declaration has other columns than the library expects must not be executed, and
 * the error says what to do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_get_library_version);

/* Returns the version of the extension in this database; NULL if the database does not contain the extension. */
static char *
extension_version(void)
{
	Relation	relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("cellar"));
	scan = systable_beginscan(relation, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		is_null;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(relation), &is_null);

		if (!is_null)
			version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return version;
}

/* Orders versions, which are numbers separated by dots. */
static int
compare_versions(const char *a, const char *b)
{
	while (*a != '\0' || *b != '\0')
	{
		char	   *a_end;
		char	   *b_end;
		long		x = strtol(a, &a_end, 10);
		long		y = strtol(b, &b_end, 10);

		if (x != y)
			return x < y ? -1 : 1;
		/* Skip the dot, or what is no number. */
		a = *a_end != '\0' ? a_end + 1 : a_end;
		b = *b_end != '\0' ? b_end + 1 : b_end;
	}
	return 0;
}

/* Returns the hint for an extension of another version than the library, or of another build of the same version. */
static char *
version_hint(const char *version)
{
	int			order = compare_versions(version, CELLAR_VERSION);

	if (order < 0)
		return psprintf("Run ALTER EXTENSION cellar UPDATE in database \"%s\".", get_database_name(MyDatabaseId));
	if (order > 0)
		return psprintf("Restart the server, so that it loads the library of version %s.", version);
	return "Library and SQL objects are of different builds: install both from one build, restart the server, and create the extension again.";
}

/* Raises an error unless a function of this extension is declared with the columns that the library expects. */
void
cellar_check_columns(FunctionCallInfo fcinfo, TupleDesc declared, int columns)
{
	char	   *version;

	if (declared->natts == columns)
		return;
	version = extension_version();
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"cellar\" is not of the same version as the library that the server has loaded"),
			 errdetail("Function %s of extension version %s returns %d columns, that of library version %s returns %d.",
					   format_procedure(fcinfo->flinfo->fn_oid), version != NULL ? version : "(none)", declared->natts,
					   CELLAR_VERSION, columns),
			 errhint("%s", version_hint(version != NULL ? version : CELLAR_VERSION))));
}

/* Prepares a function that returns a set of rows with this number of columns. */
void
cellar_begin_rows(FunctionCallInfo fcinfo, int columns)
{
	InitMaterializedSRF(fcinfo, 0);
	cellar_check_columns(fcinfo, ((ReturnSetInfo *) fcinfo->resultinfo)->setDesc, columns);
}

/* Logs a warning if this database contains the extension in another version than the library. */
void
cellar_warn_of_other_version(void)
{
	char	   *version = extension_version();

	if (version != NULL && compare_versions(version, CELLAR_VERSION) != 0)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"cellar\" in database \"%s\" is of version %s, but the server has loaded the library of version %s",
						get_database_name(MyDatabaseId), version, CELLAR_VERSION),
				 errhint("%s", version_hint(version))));
}

/* cellar.get_library_version() */
Datum
cellar_get_library_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(CELLAR_VERSION));
}
