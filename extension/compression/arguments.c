/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  Arguments of the compression functions: levels and relations.
 *
 * Every check raises an error if the argument is not acceptable.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/compression.h"

/* Indexed by CellarLevel. */
static const char *const level_names[CELLAR_LEVELS] = {
	"none", "query low", "query high", "archive low", "archive high"
};

const char *
cellar_level_name(int level)
{
	return level_names[level];
}

/* Returns the CellarLevel of a name, ignoring case. */
int
cellar_parse_level(const char *name)
{
	for (int level = 0; level < CELLAR_LEVELS; level++)
	{
		if (pg_strcasecmp(name, level_names[level]) == 0)
			return level;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized compression level \"%s\"", name),
			 errhint("Valid levels are \"none\", \"query low\", \"query high\", \"archive low\", and \"archive high\".")));
	return 0;					/* not reached */
}

/* Checks that the server is not a standby. */
void
cellar_check_not_in_recovery(const char *command)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", command),
				 errhint("Run the command on the primary server.")));
}

static void
check_owner(Oid relation)
{
	if (!CellarOwnsRelation(relation))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
}

/* Checks that the relation exists and is of a kind that can be compressed. */
void
cellar_check_kind(Oid relation)
{
	char		relkind = get_rel_relkind(relation);

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation)));
	if ((relkind != RELKIND_RELATION && relkind != RELKIND_MATVIEW && relkind != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(relation) == RELPERSISTENCE_TEMP || IsCatalogRelationOid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot compress relation \"%s\"", get_rel_name(relation)),
				 errdetail("Only tables, partitioned tables, and materialized views can be compressed, except temporary tables and system catalogs.")));
}

/* Checks that the current user may compress the relation: only its owner may. */
void
cellar_check_compressible(Oid relation)
{
	cellar_check_kind(relation);
	check_owner(relation);
}

/* Checks that the current user may see how the relation is compressed: SELECT or ownership allow it. */
void
cellar_check_readable(Oid relation)
{
	if (pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK && !CellarOwnsRelation(relation))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relation)), get_rel_name(relation));
}

/* Fills *location with the relation's cell and file; the relation must be stored on a cell. */
void
cellar_require_location(Relation rel, CellarLocation *location)
{
	if (!cellar_relation_location(rel, location))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not stored on a cell", RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... SET TABLESPACE to move the table to a tablespace on a cell's mount.")));
}
