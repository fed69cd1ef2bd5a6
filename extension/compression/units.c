/*-------------------------------------------------------------------------
 *
 * units.c
 *	  cellar.get_compression: the allocation units of a table, by level.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "funcapi.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_compression_units);

static void
put_levels(ReturnSetInfo *rsinfo, Oid relation, const CellarLevelUnits *levels, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		const CellarLevelUnits *line = &levels[i];
		Datum		values[7];
		bool		nulls[7] = {false};

		values[0] = ObjectIdGetDatum(relation);
		values[1] = CStringGetTextDatum(cellar_level_name(Min(line->level, CELLAR_LEVELS - 1)));
		values[2] = Int64GetDatum(line->units);
		values[3] = Int64GetDatum(line->superseded_blocks);
		values[4] = Int64GetDatum(line->blocks * BLCKSZ);
		values[5] = Int64GetDatum(line->stored_bytes);
		/* dead_blocks, the former name of superseded_blocks */
		values[6] = values[3];
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* Appends one row per level of one table; none for a relation without storage on a cell. */
static void
put_units(ReturnSetInfo *rsinfo, Oid relation)
{
	Relation	rel = relation_open(relation, AccessShareLock);
	CellarLocation location;

	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind) && cellar_relation_location(rel, &location))
	{
		CellarExchange exchange;

		cellar_exchange_begin(&exchange, rel, &location);
		PG_TRY();
		{
			const CellarLevelUnits *levels;
			size_t		count;

			cellar_query_units(exchange.session->connection, exchange.relation, 0,
							   RelationGetNumberOfBlocks(rel));
			cellar_exchange_wait(&exchange, CELLAR_UNITS, NULL, NULL);
			levels = cellar_units(exchange.session->connection, &count);
			put_levels(rsinfo, relation, levels, count);
		}
		PG_CATCH();
		{
			cellar_exchange_abort(&exchange);
			PG_RE_THROW();
		}
		PG_END_TRY();
		cellar_exchange_end(&exchange);
	}
	relation_close(rel, AccessShareLock);
}

/*
 * cellar.get_compression(relation): one row per table, partition or child
 * table, and level.
 */
Datum
cellar_compression_units(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	ListCell   *lc;

	cellar_begin_rows(fcinfo, 7);
	cellar_check_readable(relation);
	foreach(lc, find_all_inheritors(relation, AccessShareLock, NULL))
		put_units((ReturnSetInfo *) fcinfo->resultinfo, lfirst_oid(lc));
	return (Datum) 0;
}
