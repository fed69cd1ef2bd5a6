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

#include <dirent.h>
#include <unistd.h>

#include "commands/tablespace.h"
#include "common/relpath.h"
#include "funcapi.h"
#include "storage/fd.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_file_io_counts);

static const char *const kind_names[] = {
	"single block read", "multiblock read", "data file write", "WAL write", "sync"
};

/* A cell, and the directories of this cluster on it. */
typedef struct ClusterCell
{
	const char *socket_path;
	List	   *roots;			/* paths (char *) relative to the mount */
} ClusterCell;

/*
 * Adds a directory to the list of cells, unless it is not on a cell.  Returns the
 * list.  errno is 0, or the reason why the directory's cell cannot be determined.
 */
static List *
add_root(List *cells, const char *path)
{
	CellarLocation location;
	ClusterCell *cell;
	ListCell   *lc;

	if (!cellar_path_location(path, &location))
		return cells;
	errno = 0;
	foreach(lc, cells)
	{
		cell = lfirst(lc);
		if (strcmp(cell->socket_path, location.socket_path) == 0)
		{
			cell->roots = lappend(cell->roots, location.file);
			return cells;
		}
	}
	cell = palloc(sizeof(ClusterCell));
	cell->socket_path = location.socket_path;
	cell->roots = list_make1(location.file);
	return lappend(cells, cell);
}

/*
 * Warns that the location of a tablespace cannot be determined, for the reason
 * in errno.
 */
static void
warn_inaccessible(const char *tablespace)
{
	int			cause = errno;
	char	   *name = get_tablespace_name(atooid(tablespace));
	char		location[MAXPGPATH];
	ssize_t		length;

	/* Without a name, the tablespace was dropped meanwhile. */
	if (name == NULL)
		return;
	length = readlink(psprintf("pg_tblspc/%s", tablespace), location, sizeof(location));
	errno = cause;
	ereport(WARNING,
			(errcode_for_file_access(),
			 errmsg("could not access tablespace \"%s\"", name),
			 errdetail("Its location \"%.*s\" cannot be accessed: %m.", (int) Max(length, 0), location),
			 errhint("Start the cell that is mounted there.")));
}

/*
 * Returns the cells that store the data directory or a tablespace.  If warn is
 * true, tablespaces whose cell does not run are reported.
 */
static List *
cluster_cells(bool warn)
{
	List	   *cells = add_root(NIL, ".");
	DIR		   *dir = AllocateDir("pg_tblspc");
	struct dirent *entry;

	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		if (entry->d_name[0] == '.')
			continue;
		errno = 0;
		cells = add_root(cells, psprintf("pg_tblspc/%s/%s", entry->d_name, TABLESPACE_VERSION_DIRECTORY));
		if (warn && errno != 0)
			warn_inaccessible(entry->d_name);
	}
	FreeDir(dir);
	return cells;
}

static List *
sockets(List *cells)
{
	List	   *paths = NIL;
	ListCell   *lc;

	foreach(lc, cells)
		paths = lappend(paths, unconstify(char *, ((ClusterCell *) lfirst(lc))->socket_path));
	return paths;
}

/* Returns the socket paths (char *) of the cells that store the data directory or a tablespace. */
List *
cellar_cluster_sockets(void)
{
	return sockets(cluster_cells(false));
}

/* Like cellar_cluster_sockets, but warns about tablespaces whose cell does not run.  Needs a transaction. */
List *
cellar_cluster_sockets_or_warn(void)
{
	return sockets(cluster_cells(true));
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
 * Appends the counts of one cell.  Returns false, with *error filled, if the
 * cell does not answer.
 */
static bool
put_cell(ClusterCell *cell, ReturnSetInfo *rsinfo, CellarError *error)
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
 * cellar.get_file_io(): one row per cell, database and kind of operation.  A
 * cell that does not run or does not answer causes a warning, and its rows are
 * missing.
 */
Datum
cellar_file_io_counts(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, cluster_cells(true))
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
