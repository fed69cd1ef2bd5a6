/*-------------------------------------------------------------------------
 *
 * cluster_cells.c
 *	  The cells that store files of this cluster.
 *
 * Works in every process, also in the postmaster: uses no catalog.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>

#include "common/relpath.h"
#include "storage/fd.h"

#include "cellar/cell.h"

/* Adds a directory to the list of cells, unless it is not on a cell.  Returns the list. */
static List *
add_root(List *cells, const char *path)
{
	CellarLocation location;
	CellarClusterCell *cell;
	ListCell   *lc;

	if (!cellar_path_location(path, &location))
		return cells;
	foreach(lc, cells)
	{
		cell = lfirst(lc);
		if (strcmp(cell->location.socket_path, location.socket_path) == 0)
		{
			cell->roots = lappend(cell->roots, location.file);
			return cells;
		}
	}
	cell = palloc(sizeof(CellarClusterCell));
	cell->location = location;
	cell->roots = list_make1(location.file);
	return lappend(cells, cell);
}

/*
 * Returns the cells (CellarClusterCell) that store the data directory or a
 * tablespace.  A cell whose daemon is down is missing.
 */
List *
cellar_cluster_cells(void)
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
