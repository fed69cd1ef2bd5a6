/*-------------------------------------------------------------------------
 *
 * advisor.c
 *	  cellar.estimate_compression: a table's compressed size at each level,
 *	  estimated from a sample.
 *
 * The session reads sample pages through the buffer manager and encodes them
 * with the cell's encoder, which is part of the client library.  No cell is
 * involved, so the estimate also works for tables that are not on a cell.
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
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/compression.h"

/* The sample consists of runs of consecutive pages, evenly spread over the table. */
#define SAMPLE_RUNS		5
#define SAMPLE_RUN_PAGES	19

PG_FUNCTION_INFO_V1(cellar_estimate_compression);

/* Copies the sample's pages to *pages.  Returns the number of pages. */
static size_t
read_sample(Relation rel, char *pages)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	BlockNumber runs = Min(SAMPLE_RUNS, Max(1, blocks / SAMPLE_RUN_PAGES));
	BlockNumber run_pages = Min(blocks, SAMPLE_RUN_PAGES);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	size_t		count = 0;

	for (BlockNumber run = 0; run < runs; run++)
	{
		BlockNumber first = (uint64) blocks * run / runs;

		for (BlockNumber block = first; block < first + run_pages; block++)
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

/* Appends one row per level.  *pages is scratch space for a sample. */
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
 * cellar.estimate_compression(relation): one row per table, partition or
 * child table, and level.
 */
Datum
cellar_estimate_compression(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	char	   *pages = palloc(SAMPLE_RUNS * SAMPLE_RUN_PAGES * BLCKSZ);
	ListCell   *lc;

	cellar_begin_rows(fcinfo, 4);
	cellar_check_kind(relation);
	cellar_check_readable(relation);
	foreach(lc, find_all_inheritors(relation, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), AccessShareLock);

		/* Unlogged tables have no pages on a standby. */
		if (cellar_relation_unsuitable(rel) == NULL &&
			(RelationIsPermanent(rel) || !RecoveryInProgress()))
			put_estimates(rel, pages, (ReturnSetInfo *) fcinfo->resultinfo);
		relation_close(rel, AccessShareLock);
	}
	return (Datum) 0;
}
