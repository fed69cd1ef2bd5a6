/*-------------------------------------------------------------------------
 *
 * disk_group.c
 *	  The disk groups of this cluster's cells: a report from each cell, which
 *	  the views disk_groups, disks and rebalance_operations take apart.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/tuplestore.h"

#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_disk_group_reports);

/* Appends the report of one cell.  Returns false, with *error filled, if the cell does not answer. */
static bool
put_report(const char *socket_path, ReturnSetInfo *rsinfo, CellarError *error)
{
	CellarSession *session = cellar_session_open(socket_path, error);
	bool		answered = false;

	if (session == NULL)
		return false;

	PG_TRY();
	{
		cellar_query_group(session->connection);
		answered = cellar_session_next(session) == CELLAR_GROUP;
		if (answered)
		{
			const char *report = cellar_group(session->connection);
			Datum		values[2];
			bool		nulls[2] = {false, false};

			values[0] = CStringGetTextDatum(socket_path);
			values[1] = DirectFunctionCall1(jsonb_in, CStringGetDatum(report));
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
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
 * cellar.get_disk_groups(): one row per cell.  A cell that does not run or does
 * not answer causes a warning, and its row is missing.
 */
Datum
cellar_disk_group_reports(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, cellar_cluster_cells_or_warn())
	{
		CellarClusterCell *cell = lfirst(lc);
		CellarError error;

		if (!put_report(cell->location.socket_path, (ReturnSetInfo *) fcinfo->resultinfo, &error))
			ereport(WARNING,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not read the disk group of a cell: %s", error.message),
					 *error.detail ? errdetail("%s", error.detail) : 0,
					 *error.hint ? errhint("%s", error.hint) : 0));
	}
	return (Datum) 0;
}
