/*-------------------------------------------------------------------------
 *
 * cell_query.c
 *	  Queries that are sent to each cell of this cluster, and whose answers become
 *	  rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cellar/cell.h"

/* Queries one cell.  Returns false, with *error filled, if the cell does not answer. */
static bool
query_cell(const CellarCellQuery *query, const CellarClusterCell *cell, ReturnSetInfo *rsinfo, CellarError *error)
{
	CellarSession *session = cellar_session_open(cell->location.socket_path, error);
	bool		answered = false;

	if (session == NULL)
		return false;

	PG_TRY();
	{
		query->send(session->connection, cell);
		answered = cellar_session_next(session) == query->answer;
		if (answered)
			query->put_rows(session->connection, cell, rsinfo);
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

/* Queries all cells.  A cell that does not run or does not answer causes a warning, and its rows are missing. */
void
cellar_query_cells(const CellarCellQuery *query, ReturnSetInfo *rsinfo)
{
	ListCell   *lc;

	foreach(lc, cellar_cluster_cells_or_warn())
	{
		CellarError error;

		if (!query_cell(query, lfirst(lc), rsinfo, &error))
			query->warn(error);
	}
}
