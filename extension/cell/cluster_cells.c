/*-------------------------------------------------------------------------
 *
 * cluster_cells.c
 *	  The cells that store files of this cluster, and the directories on them.
 *
 * cellar_cluster_cells works in every process, also in the postmaster: it uses no
 * catalog.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "commands/tablespace.h"
#include "common/relpath.h"
#include "funcapi.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_get_directories);

/*
 * Adds the directory of a tablespace, or the data directory (InvalidOid), to the
 * list of cells, unless the directory is not on a cell.  Returns the list.  errno is 0, or the reason why the directory's cell cannot be determined.
 */
static List *
add_root(List *cells, const char *path, Oid tablespace)
{
	CellarLocation location;
	CellarClusterCell *cell;
	ListCell   *lc;

	if (!cellar_path_location(path, &location))
		return cells;
	errno = 0;
	foreach(lc, cells)
	{
		cell = lfirst(lc);
		if (strcmp(cell->location.socket_path, location.socket_path) == 0)
		{
			cell->roots = lappend(cell->roots, location.file);
			cell->tablespaces = lappend_oid(cell->tablespaces, tablespace);
			return cells;
		}
	}
	cell = palloc(sizeof(CellarClusterCell));
	cell->location = location;
	cell->roots = list_make1(location.file);
	cell->tablespaces = list_make1_oid(tablespace);
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
			 errdetail("The location \"%.*s\" cannot be accessed: %m.", (int) Max(length, 0), location),
			 errhint("Start the cell that is mounted there.")));
}

/*
 * Returns the cells.  Sets *accessible to whether the locations of all tablespaces
 * can be accessed; if warn is true, reports those that cannot.
 */
static List *
find_cells(bool warn, bool *accessible)
{
	List	   *cells = add_root(NIL, ".", InvalidOid);
	DIR		   *dir = AllocateDir("pg_tblspc");
	struct dirent *entry;

	*accessible = true;
	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		if (entry->d_name[0] == '.')
			continue;
		errno = 0;
		cells = add_root(cells, psprintf("pg_tblspc/%s/%s", entry->d_name, TABLESPACE_VERSION_DIRECTORY),
						 atooid(entry->d_name));
		if (errno == 0)
			continue;
		*accessible = false;
		if (warn)
			warn_inaccessible(entry->d_name);
	}
	FreeDir(dir);
	return cells;
}

/*
 * Returns the cells (CellarClusterCell) that store the data directory or a
 * tablespace.  A cell whose daemon is down is missing.
 */
List *
cellar_cluster_cells(void)
{
	bool		accessible;

	return find_cells(false, &accessible);
}

/* Like cellar_cluster_cells, but warns about tablespaces whose cell does not run.  Needs a transaction. */
List *
cellar_cluster_cells_or_warn(void)
{
	bool		accessible;

	return find_cells(true, &accessible);
}

/* Returns whether the locations of all tablespaces can be accessed: no cell of a tablespace is down. */
bool
cellar_tablespaces_accessible(void)
{
	bool		accessible;

	(void) find_cells(false, &accessible);
	return accessible;
}

/* ---- directories ---- */

static void
put_directory(ReturnSetInfo *rsinfo, Oid database, Oid tablespace, const char *path)
{
	CellarLocation location;
	Datum		values[3];
	bool		nulls[3] = {false};

	if (!cellar_path_location(path, &location))
		return;
	values[0] = ObjectIdGetDatum(database);
	values[1] = ObjectIdGetDatum(tablespace);
	values[2] = CStringGetTextDatum(location.socket_path);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Puts the directories of all databases in one tablespace. */
static void
put_directories(ReturnSetInfo *rsinfo, Oid tablespace, const char *path)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *entry;

	/*
	 * The tablespace was dropped, or the cell that stores the tablespace does
	 * not run.
	 */
	if (dir == NULL)
		return;
	while ((entry = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		if (strspn(entry->d_name, "0123456789") == strlen(entry->d_name))
			put_directory(rsinfo, atooid(entry->d_name), tablespace, psprintf("%s/%s", path, entry->d_name));
	}
	FreeDir(dir);
}

/*
 * cellar.get_directories(): the directories on cells, one row per database and
 * tablespace.  All relations of a database in a tablespace are in one directory.
 */
Datum
cellar_get_directories(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	DIR		   *dir;
	struct dirent *entry;

	cellar_begin_rows(fcinfo, 3);
	put_directory(rsinfo, InvalidOid, GLOBALTABLESPACE_OID, "global");
	put_directories(rsinfo, DEFAULTTABLESPACE_OID, "base");
	dir = AllocateDir("pg_tblspc");
	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		if (entry->d_name[0] != '.')
			put_directories(rsinfo, atooid(entry->d_name), psprintf("pg_tblspc/%s/%s", entry->d_name, TABLESPACE_VERSION_DIRECTORY));
	}
	FreeDir(dir);
	return (Datum) 0;
}
