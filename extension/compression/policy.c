/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  cellar.set_compression: sets and removes compression policies.
 *
 * A policy is a row of cellar.compression_policy: a table, a level, and how
 * long an allocation unit must go without writes before it is compressed.
 * Only superusers may write that table; after checking that the caller owns
 * the relation, this function writes it with superuser rights.
 * launcher.c and policy_worker.c carry policies out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "cellar/cell.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_set_compression);

#define AFTER_YEARS_MAX	1000

/* Checks that the delay is between 0 and 1000 years, in the order of the type interval. */
static void
check_after(Datum after)
{
	Interval	none = {0};
	Interval	longest = {0};

	longest.month = AFTER_YEARS_MAX * MONTHS_PER_YEAR;
	if (DatumGetBool(DirectFunctionCall2(interval_lt, after, IntervalPGetDatum(&none))) ||
		DatumGetBool(DirectFunctionCall2(interval_gt, after, IntervalPGetDatum(&longest))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("parameter \"after\" must be between 0 and 1000 years")));
}

/* Checks that the relation is stored on a cell.  A partitioned table has no storage to check. */
static void
check_stored_on_cell(Oid relation)
{
	Relation	rel = relation_open(relation, AccessShareLock);
	CellarLocation location;

	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		cellar_require_location(rel, &location);
	relation_close(rel, NoLock);
}

/* Executes a statement and returns the number of rows it processed. */
static uint64
execute(const char *statement, int nargs, Oid *types, Datum *values)
{
	if (SPI_execute_with_args(statement, nargs, types, values, NULL, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", statement);
	return SPI_processed;
}

/*
 * Reports the removal of a relation's policy.  inherited is the parent whose
 * policy applies now, or InvalidOid.
 */
static void
report_removal(Oid relation, bool had_own, Oid inherited)
{
	const char *name = get_rel_name(relation);

	if (had_own)
		ereport(NOTICE,
				(errmsg("removed the compression policy of \"%s\"", name),
				 errdetail("Units already compressed remain compressed."),
				 errhint("Use cellar.decompress to decompress the table.")));
	else
		ereport(NOTICE,
				(errmsg("\"%s\" does not have its own compression policy", name)));
	if (OidIsValid(inherited))
		ereport(NOTICE,
				(errmsg("the compression policy of \"%s\" applies to \"%s\"", get_rel_name(inherited), name)));
}

/*
 * cellar.set_compression(relation, level, after): level "none" or NULL removes
 * the policy.
 */
Datum
cellar_set_compression(PG_FUNCTION_ARGS)
{
	Oid			types[3] = {REGCLASSOID, TEXTOID, INTERVALOID};
	Datum		values[3];
	Oid			relation;
	int			level;
	Oid			user;
	int			security;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("parameters \"relation\" and \"after\" must not be null")));
	cellar_check_not_in_recovery("cellar.set_compression");
	relation = PG_GETARG_OID(0);
	level = PG_ARGISNULL(1) ? CELLAR_LEVEL_RAW : cellar_parse_level(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	cellar_check_compressible(relation);
	check_after(PG_GETARG_DATUM(2));
	if (level != CELLAR_LEVEL_RAW)
		check_stored_on_cell(relation);

	values[0] = ObjectIdGetDatum(relation);
	values[1] = CStringGetTextDatum(cellar_level_name(level));
	values[2] = PG_GETARG_DATUM(2);
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, security | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	if (level == CELLAR_LEVEL_RAW)
	{
		bool		had_own = execute("DELETE FROM cellar.compression_policy WHERE relation = $1",
									  1, types, values) > 0;
		Oid			inherited = InvalidOid;
		bool		isnull;

		if (execute("SELECT set_for FROM cellar.compression_policies WHERE \"table\" = $1", 1, types, values) > 0)
			inherited = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		report_removal(relation, had_own, inherited);
	}
	else
		execute("INSERT INTO cellar.compression_policy VALUES ($1, $2, $3)"
				" ON CONFLICT (relation) DO UPDATE SET level = excluded.level, after = excluded.after",
				3, types, values);

	/*
	 * A changed policy is carried out in the next round, without the delay
	 * after earlier failures.
	 */
	execute("UPDATE cellar.compression_run SET retries = 0, next_run = NULL, last_freeze = NULL"
			" WHERE relation IN (SELECT \"table\" FROM cellar.compression_policies WHERE set_for = $1)",
			1, types, values);
	SPI_finish();
	SetUserIdAndSecContext(user, security);
	PG_RETURN_VOID();
}
