/*-------------------------------------------------------------------------
 *
 * flash_cache.c
 *	  CELL_FLASH_CACHE of relations: cellar.set_flash_cache and what carries it out.
 *
 * The settings are rows of cellar.flash_cache_setting and
 * cellar.flash_cache_tablespace_setting, which only superusers may write.  The view
 * cellar.flash_cache_settings derives the setting of each relation from them.  The
 * cell knows settings of files, not of relations: an ioctl on each file of a
 * relation sets them, and returns what the flash cache has of the file.
 *
 * The functions here apply a setting at once.  The policy worker repeats that for
 * all settings of its database, because a rewrite gives a relation other files.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_tablespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cellar/cell.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_set_flash_cache);
PG_FUNCTION_INFO_V1(cellar_set_tablespace_flash_cache);
PG_FUNCTION_INFO_V1(cellar_apply_flash_cache);
PG_FUNCTION_INFO_V1(cellar_flash_cache_of);

/* The numbers of the ioctl. */
typedef enum FlashNumber
{
	FLASH_SETTING,
	FLASH_CACHED_BYTES,
	FLASH_HITS,
	FLASH_MISSES,
	FLASH_NUMBERS
} FlashNumber;

/* The ioctl of a cell's file service; fails with ENODEV if the cell has no flash cache. */
#define FLASH_CACHE			_IOWR(0xCE, 2, uint64[FLASH_NUMBERS])
#define FLASH_CACHE_READ	PG_UINT64_MAX

/* Indexed by the value in the ioctl. */
static const char *const settings[] = {"DEFAULT", "KEEP", "NONE"};

/* Returns the number of a setting, ignoring case. */
static int
parse_setting(const char *name)
{
	for (int setting = 0; setting < lengthof(settings); setting++)
	{
		if (pg_strcasecmp(name, settings[setting]) == 0)
			return setting;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized value \"%s\" of CELL_FLASH_CACHE", name),
			 errhint("Valid values are \"DEFAULT\", \"KEEP\", and \"NONE\".")));
	return 0;					/* not reached */
}

/* ---- files ---- */

/*
 * Sends the ioctl for one file, and adds the numbers of the answer to *sum.  Returns
 * 0 or the error; ENOENT if the file does not exist.
 */
static int
exchange_file(const char *path, uint64 setting, uint64 *sum)
{
	uint64		numbers[FLASH_NUMBERS] = {setting};
	int			fd = OpenTransientFile(path, O_RDONLY);
	int			cause = errno;

	if (fd < 0)
		return cause;
	cause = ioctl(fd, FLASH_CACHE, numbers) == 0 ? 0 : errno;
	CloseTransientFile(fd);
	if (cause == 0)
	{
		sum[FLASH_SETTING] = Max(sum[FLASH_SETTING], numbers[FLASH_SETTING]);
		for (int i = FLASH_CACHED_BYTES; i < FLASH_NUMBERS; i++)
			sum[i] += numbers[i];
	}
	return cause;
}

/* Like exchange_file, for all files of a relation. */
static int
exchange_relation(Relation rel, uint64 setting, uint64 *sum)
{
	static const char *const forks[] = {"", "_fsm", "_vm"};
	char	   *path = CellarRelationPath(CellarRelationFile(rel));
	int			cause = 0;

	memset(sum, 0, sizeof(uint64) * FLASH_NUMBERS);
	for (int fork = 0; fork < lengthof(forks) && cause == 0; fork++)
	{
		for (int segment = 0; cause == 0; segment++)
		{
			char	   *file = segment == 0 ? psprintf("%s%s", path, forks[fork]) :
				psprintf("%s%s.%d", path, forks[fork], segment);

			CHECK_FOR_INTERRUPTS();
			cause = exchange_file(file, setting, sum);
			pfree(file);
		}
		/* The fork has no more segments. */
		if (cause == ENOENT)
			cause = 0;
	}
	pfree(path);
	return cause;
}

/*
 * Opens a relation that has files on a cell.  Returns NULL if it does not exist, has
 * none, or is locked exclusively by another session.
 */
static Relation
open_on_cell(Oid relation)
{
	CellarLocation location;
	Relation	rel;

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		return NULL;
	rel = try_relation_open(relation, NoLock);
	if (rel == NULL)
	{
		UnlockRelationOid(relation, AccessShareLock);
		return NULL;
	}
	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind) && !RELATION_IS_OTHER_TEMP(rel) && cellar_relation_location(rel, &location))
		return rel;
	relation_close(rel, AccessShareLock);
	return NULL;
}

/*
 * cellar.apply_flash_cache(relation, setting): gives the files of one relation a
 * setting.  Returns false if the relation has no files on a cell with a flash cache.
 */
Datum
cellar_apply_flash_cache(PG_FUNCTION_ARGS)
{
	int			setting = parse_setting(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Relation	rel = open_on_cell(PG_GETARG_OID(0));
	uint64		sum[FLASH_NUMBERS];
	int			cause;

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	cause = exchange_relation(rel, setting, sum);
	if (cause != 0 && cause != ENODEV && cause != ENOTTY)
	{
		errno = cause;
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not set CELL_FLASH_CACHE of the files of relation \"%s\": %m", RelationGetRelationName(rel)),
				 errhint("The policy worker tries again.")));
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_BOOL(cause == 0);
}

/*
 * cellar.get_flash_cache(relation): what the flash cache has of one relation; NULLs if
 * the relation has no files on a cell with a flash cache.
 */
Datum
cellar_flash_cache_of(PG_FUNCTION_ARGS)
{
	Relation	rel = open_on_cell(PG_GETARG_OID(0));
	TupleDesc	tupdesc;
	uint64		sum[FLASH_NUMBERS] = {0};
	bool		nulls[FLASH_NUMBERS] = {false};
	Datum		values[FLASH_NUMBERS] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (rel == NULL || exchange_relation(rel, FLASH_CACHE_READ, sum) != 0 || sum[FLASH_SETTING] >= lengthof(settings))
		memset(nulls, true, sizeof(nulls));
	else
	{
		values[FLASH_SETTING] = CStringGetTextDatum(settings[sum[FLASH_SETTING]]);
		for (int i = FLASH_CACHED_BYTES; i < FLASH_NUMBERS; i++)
			values[i] = Int64GetDatum((int64) sum[i]);
	}
	if (rel != NULL)
		relation_close(rel, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/* ---- settings ---- */

/* Checks that the relation may have a setting, and that the current user owns it. */
static void
check_relation(Oid relation)
{
	char		relkind = get_rel_relkind(relation);

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation)));
	if (strchr("rmpiI", relkind) == NULL || get_rel_persistence(relation) == RELPERSISTENCE_TEMP ||
		IsCatalogRelationOid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot set CELL_FLASH_CACHE of relation \"%s\"", get_rel_name(relation)),
				 errdetail("Only tables, materialized views and indexes have CELL_FLASH_CACHE; temporary relations and system catalogs have not.")));
	if (!CellarOwnsRelation(relation))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind), get_rel_name(relation));
}

/* Checks that the relation is on a cell with a flash cache, unless it has no files. */
static void
check_flash_cache(Oid relation)
{
	Relation	rel = relation_open(relation, AccessShareLock);
	CellarLocation location;
	uint64		sum[FLASH_NUMBERS];

	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
	{
		int			cause;

		cellar_require_location(rel, &location);
		cause = exchange_relation(rel, FLASH_CACHE_READ, sum);
		if (cause == ENODEV)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the cell that stores \"%s\" has no flash cache", RelationGetRelationName(rel)),
					 errhint("Name flash disks in flash_disks of the cell's configuration, and restart the cell.")));
		if (cause != 0)
		{
			errno = cause;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read CELL_FLASH_CACHE of \"%s\": %m", RelationGetRelationName(rel))));
		}
	}
	relation_close(rel, NoLock);
}

/* Executes a statement with superuser rights. */
static void
execute_as_superuser(const char *statement, int nargs, Oid *types, Datum *values, const char *nulls)
{
	Oid			user;
	int			security;

	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, security | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	if (SPI_execute_with_args(statement, nargs, types, values, nulls, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", statement);
	SPI_finish();
	SetUserIdAndSecContext(user, security);
}

/* cellar.set_flash_cache(relation, setting): NULL removes the relation's own setting. */
Datum
cellar_set_flash_cache(PG_FUNCTION_ARGS)
{
	Oid			types[2] = {OIDOID, TEXTOID};
	Datum		values[2] = {0};
	const char *nulls = PG_ARGISNULL(1) ? " n" : NULL;
	Oid			relation;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("parameter \"relation\" must not be null")));
	cellar_check_not_in_recovery("cellar.set_flash_cache");
	relation = PG_GETARG_OID(0);
	values[0] = ObjectIdGetDatum(relation);
	if (!PG_ARGISNULL(1))
		values[1] = CStringGetTextDatum(settings[parse_setting(text_to_cstring(PG_GETARG_TEXT_PP(1)))]);
	check_relation(relation);
	if (!PG_ARGISNULL(1))
		check_flash_cache(relation);
	execute_as_superuser("SELECT cellar.store_flash_cache($1, $2)", 2, types, values, nulls);
	PG_RETURN_VOID();
}

/* cellar.set_tablespace_flash_cache(tablespace, setting): for the relations of this database. */
Datum
cellar_set_tablespace_flash_cache(PG_FUNCTION_ARGS)
{
	Oid			types[2] = {NAMEOID, TEXTOID};
	Datum		values[2] = {0};
	const char *nulls = PG_ARGISNULL(1) ? " n" : NULL;
	Oid			tablespace;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("parameter \"tablespace\" must not be null")));
	cellar_check_not_in_recovery("cellar.set_tablespace_flash_cache");
	values[0] = PG_GETARG_DATUM(0);
	if (!PG_ARGISNULL(1))
		values[1] = CStringGetTextDatum(settings[parse_setting(text_to_cstring(PG_GETARG_TEXT_PP(1)))]);
	tablespace = get_tablespace_oid(NameStr(*PG_GETARG_NAME(0)), false);
	if (!CellarOwnsTablespace(tablespace))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLESPACE, NameStr(*PG_GETARG_NAME(0)));
	execute_as_superuser("SELECT cellar.store_tablespace_flash_cache($1, $2)", 2, types, values, nulls);
	PG_RETURN_VOID();
}

/*
 * Locks a table of settings against changes.  Returns false if a transaction has
 * changed it, and not ended: the settings as of now may be obsolete when it ends.
 */
static bool
lock_settings(const char *table)
{
	Oid			schema = get_namespace_oid("cellar", true);
	Oid			relation = OidIsValid(schema) ? get_relname_relid(table, schema) : InvalidOid;

	return !OidIsValid(relation) || ConditionalLockRelationOid(relation, ShareLock);
}

/* Applies all settings of the worker's database, in one transaction. */
void
cellar_apply_flash_cache_settings(void)
{
	StartTransactionCommand();
	if (!lock_settings("flash_cache_setting") || !lock_settings("flash_cache_tablespace_setting"))
	{
		CommitTransactionCommand();
		return;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (OidIsValid(get_extension_oid("cellar", true)) &&
		SPI_execute("SELECT to_regclass('cellar.flash_cache_settings')", true, 1) == SPI_OK_SELECT &&
		SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1) != NULL &&
		SPI_execute("SELECT cellar.apply_flash_cache(relation, setting) FROM cellar.flash_cache_settings", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not apply the settings of the flash cache");
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}
