/*-------------------------------------------------------------------------
 *
 * file_io.c
 *	  File I/O counts of this cluster: reads, writes and syncs through the
 *	  mounts, counted by the cells.
 *
 * A read that the kernel answers from its page cache never reaches a cell, and
 * is not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_file_io_counts);

static const char *const kind_names[] = {
	"single block read", "multiblock read", "data file write", "WAL write", "sync"
};

static void
put_counts(ReturnSetInfo *rsinfo, const char *socket_path, const CellarFileIo *count)
{
	Datum		values[7];
	bool		nulls[7] = {false};
	Datum		buckets[CELLAR_FILE_IO_BUCKETS];

	for (int i = 0; i < CELLAR_FILE_IO_BUCKETS; i++)
		buckets[i] = Int64GetDatum(count->histogram[i]);

	values[0] = CStringGetTextDatum(socket_path);
	values[1] = ObjectIdGetDatum(count->database);
	nulls[1] = !OidIsValid(count->database);
	values[2] = CStringGetTextDatum(kind_names[count->kind]);
	values[3] = Int64GetDatum(count->operations);
	values[4] = Int64GetDatum(count->bytes);
	values[5] = Int64GetDatum(count->microseconds);
	values[6] = PointerGetDatum(construct_array(buckets, CELLAR_FILE_IO_BUCKETS, INT8OID, 8, true, 'd'));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * Appends the counts of one cell.  Returns false, with *error filled, if the
 * cell does not answer.
 */
static bool
put_cell(CellarClusterCell *cell, ReturnSetInfo *rsinfo, CellarError *error)
{
	CellarSession *session = cellar_session_open(cell->location.socket_path, error);
	const char **roots = palloc(list_length(cell->roots) * sizeof(char *));
	const CellarFileIo *counts;
	size_t		count;
	bool		answered = false;

	if (session == NULL)
		return false;
	for (int i = 0; i < list_length(cell->roots); i++)
		roots[i] = list_nth(cell->roots, i);

	PG_TRY();
	{
		cellar_query_file_io(session->connection, roots, list_length(cell->roots));
		answered = cellar_session_next(session) == CELLAR_FILE_IO;
		if (answered)
		{
			counts = cellar_file_io(session->connection, &count);
			for (size_t i = 0; i < count; i++)
				put_counts(rsinfo, cell->location.socket_path, &counts[i]);
		}
		else
			*error = cellar_session_error(session);
	}
	PG_CATCH();
	{
		cellar_session_close(session);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (answered)
		cellar_session_release(session);
	else
		cellar_session_close(session);
	return answered;
}

/*
 * cellar.get_file_io(): one row per cell, database and kind of operation.  A
 * cell that does not run or does not answer causes a warning, and its rows are
 * missing.
 */
Datum
cellar_file_io_counts(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, cellar_cluster_cells_or_warn())
	{
		CellarError error;

		if (!put_cell(lfirst(lc), (ReturnSetInfo *) fcinfo->resultinfo, &error))
			ereport(WARNING,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not read file I/O counts from a cell: %s", error.message),
					 *error.detail ? errdetail("%s", error.detail) : 0,
					 *error.hint ? errhint("%s", error.hint) : 0));
	}
	return (Datum) 0;
}
