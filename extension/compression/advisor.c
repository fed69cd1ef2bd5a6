/*-------------------------------------------------------------------------
 *
 * advisor.c
 *	  The compression advisor: what each level would make of a table.
 *
 * The cell's encoder runs here, in the client library, over a sample of the
 * table's pages.  So a table that is on no cell can be asked about, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_inherits.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "cellar/cell.h"
#include "cellar/compression.h"

/* A few runs of pages tell a table well. */
#define SAMPLE_PLACES	5
#define SAMPLE_RUN		19

PG_FUNCTION_INFO_V1(cellar_estimate_compression);

/* Copies runs of pages, spread over the table; returns how many pages. */
static size_t
read_sample(Relation rel, char *pages)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	BlockNumber places = Min(SAMPLE_PLACES, Max(1, blocks / SAMPLE_RUN));
	BlockNumber run = Min(blocks, SAMPLE_RUN);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	size_t		count = 0;

	for (BlockNumber place = 0; place < places; place++)
	{
		BlockNumber first = (uint64) blocks * place / places;

		for (BlockNumber block = first; block < first + run; block++)
		{
			Buffer		buffer;

			CHECK_FOR_INTERRUPTS();
			buffer = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
			LockBuffer(buffer, BUFFER_LOCK_SHARE);
			memcpy(pages + count++ * BLCKSZ, BufferGetPage(buffer), BLCKSZ);
			UnlockReleaseBuffer(buffer);
		}
	}
	FreeAccessStrategy(strategy);
	return count;
}

/* pages has room for a sample. */
static void
put_estimates(Relation rel, char *pages, ReturnSetInfo *rsinfo)
{
	size_t		count = read_sample(rel, pages);
	CellarRequest *request;

	if (count == 0)
		return;
	request = cellar_relation_request(rel, "");
	PG_TRY();
	{
		for (int level = CELLAR_LEVEL_QUERY_LOW; level < CELLAR_LEVELS; level++)
		{
			Datum		values[4];
			bool		nulls[4] = {false};
			uint64_t	bytes;
			CellarError error;

			CHECK_FOR_INTERRUPTS();
			if (!cellar_estimate(request, pages, count, level, &bytes, &error))
				cellar_report_error(error);
			values[0] = ObjectIdGetDatum(RelationGetRelid(rel));
			values[1] = CStringGetTextDatum(cellar_level_name(level));
			values[2] = Int64GetDatum(count * BLCKSZ);
			values[3] = Int64GetDatum(bytes);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	PG_FINALLY();
	{
		cellar_request_free(request);
	}
	PG_END_TRY();
}

/*
 * cellar.estimate_compression(relation): a row a table (partition) and level.
 */
Datum
cellar_estimate_compression(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	char	   *pages = palloc(SAMPLE_PLACES * SAMPLE_RUN * BLCKSZ);
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	cellar_check_kind(relation);
	cellar_check_readable(relation);
	foreach(lc, find_all_inheritors(relation, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), AccessShareLock);

		/* A standby has no pages of unlogged tables. */
		if (cellar_relation_unsuitable(rel) == NULL &&
			(RelationIsPermanent(rel) || !RecoveryInProgress()))
			put_estimates(rel, pages, (ReturnSetInfo *) fcinfo->resultinfo);
		relation_close(rel, AccessShareLock);
	}
	return (Datum) 0;
}
