/*-------------------------------------------------------------------------
 *
 * file_io.c
 *	  What the cells' file service counted for this cluster: the reads, writes
 *	  and syncs that came through the mount.
 *
 * The kernel caches files of the mount: a read that it answers never reaches a
 * cell and is not in these counts.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include <dirent.h>

#include "common/relpath.h"
#include "funcapi.h"
#include "storage/fd.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cellar_file_io_counts);

static const char *const kind_names[] = {
	"single block read", "multiblock read", "data file write", "WAL write", "sync"
};

/* A cell, and the cluster's directories on it. */
typedef struct ClusterCell
{
	const char *socket_path;
	List	   *roots;			/* of char *, below the mount */
} ClusterCell;

static List *
add_root(List *cells, const char *path)
{
	CellarPlace place;
	ClusterCell *cell;
	ListCell   *lc;

	if (!cellar_path_place(path, &place))
		return cells;
	foreach(lc, cells)
	{
		cell = lfirst(lc);
		if (strcmp(cell->socket_path, place.socket_path) == 0)
		{
			cell->roots = lappend(cell->roots, place.file);
			return cells;
		}
	}
	cell = palloc(sizeof(ClusterCell));
	cell->socket_path = place.socket_path;
	cell->roots = list_make1(place.file);
	return lappend(cells, cell);
}

/* The cells that hold the data directory or one of the tablespaces. */
static List *
cluster_cells(void)
{
	List	   *cells = add_root(NIL, ".");
	DIR		   *dir = AllocateDir("pg_tblspc");
	struct dirent *entry;

	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		if (entry->d_name[0] != '.')
			cells = add_root(cells, psprintf("pg_tblspc/%s/%s", entry->d_name,
											 TABLESPACE_VERSION_DIRECTORY));
	}
	FreeDir(dir);
	return cells;
}

/* Paths of the sockets of the cells that the cluster lies on. */
List *
cellar_cluster_sockets(void)
{
	List	   *sockets = NIL;
	ListCell   *lc;

	foreach(lc, cluster_cells())
		sockets = lappend(sockets, unconstify(char *, ((ClusterCell *) lfirst(lc))->socket_path));
	return sockets;
}

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
 * Asks one cell.  Returns false, with *error filled, when it cannot be asked.
 */
static bool
ask_cell(ClusterCell *cell, ReturnSetInfo *rsinfo, CellarError *error)
{
	CellarSession *session = cellar_session_open(cell->socket_path, error);
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
				put_counts(rsinfo, cell->socket_path, &counts[i]);
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
 * One row a cell, database and kind of operation.  A cell that cannot be
 * asked is told in a warning, and its rows are missing.
 */
Datum
cellar_file_io_counts(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, cluster_cells())
	{
		CellarError error;

		if (!ask_cell(lfirst(lc), (ReturnSetInfo *) fcinfo->resultinfo, &error))
			ereport(WARNING,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not read the file I/O counts of a cell: %s", error.message),
					 *error.detail ? errdetail("%s", error.detail) : 0,
					 *error.hint ? errhint("%s", error.hint) : 0));
	}
	return (Datum) 0;
}
