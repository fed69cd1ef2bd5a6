/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  The metrics of this cluster's cells, from which AWR snapshots take the
 *	  figures of flash cache and I/O resource management.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_cell_metrics);

static void
send_query(CellarConnection *connection, const CellarClusterCell *cell)
{
	cellar_query_metrics(connection);
}

static void
put_metrics(CellarConnection *connection, const CellarClusterCell *cell, ReturnSetInfo *rsinfo)
{
	const char *metrics = cellar_group(connection);
	Datum	   *roots = palloc(list_length(cell->roots) * sizeof(Datum));
	Datum		values[3];
	bool		nulls[3] = {false};

	for (int i = 0; i < list_length(cell->roots); i++)
		roots[i] = CStringGetTextDatum(list_nth(cell->roots, i));
	values[0] = CStringGetTextDatum(cell->location.socket_path);
	values[1] = PointerGetDatum(construct_array(roots, list_length(cell->roots), TEXTOID, -1, false, TYPALIGN_INT));
	values[2] = DirectFunctionCall1(jsonb_in, CStringGetDatum(pg_any_to_server(metrics, strlen(metrics), PG_UTF8)));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
warn(CellarError error)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not read the metrics of a cell: %s", error.message),
			 *error.detail ? errdetail("%s", error.detail) : 0,
			 *error.hint ? errhint("%s", error.hint) : 0));
}

/* cellar.get_cell_metrics(): one row per cell, with the directories of this cluster on it */
Datum
cellar_cell_metrics(PG_FUNCTION_ARGS)
{
	static const CellarCellQuery query = {
		.answer = CELLAR_GROUP,
		.send = send_query,
		.put_rows = put_metrics,
		.warn = warn
	};

	cellar_begin_rows(fcinfo, 3);
	cellar_query_cells(&query, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
