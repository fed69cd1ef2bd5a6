/*-------------------------------------------------------------------------
 *
 * relation.c
 *	  Is a relation on a cell, and can a cell scan it?
 *
 * A cell's file service answers an ioctl on every file and directory that it
 * stores with three lines: the version of this answer, the path of the cell's
 * socket, and the file's path below the mount.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "cellar/cell.h"
#include "cellar/compat.h"

/* Segments of a relation that tell how much of it is compressed. */
#define STORED_SEGMENTS_MAX	8

/* Asks the file service which cell serves a file; others know no such ioctl. */
#define CELL_ANSWER_BYTES	4096
#define WHICH_CELL			_IOR(0xCE, 1, char[CELL_ANSWER_BYTES])

/*
 * All relations of one database in one tablespace lie in one directory, so
 * the answer for one of them tells that of the others: on no cell, or on this
 * one below that directory.  A directory cannot change place while the server
 * runs, so the answers hold for the life of the backend.
 */
typedef struct DirectoryKey
{
	Oid			tablespace;
	Oid			database;
} DirectoryKey;

typedef struct DirectoryEntry
{
	DirectoryKey key;
	bool		on_cell;
	char	   *socket_path;
	char	   *directory;		/* below the mount, with its final slash */
} DirectoryEntry;

static HTAB *directories = NULL;

static DirectoryEntry *
directory_entry(CellarFileId file, HASHACTION action, bool *found)
{
	DirectoryKey key;

	if (directories == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(DirectoryKey);
		ctl.entrysize = sizeof(DirectoryEntry);
		ctl.hcxt = TopMemoryContext;
		directories = hash_create("cellar directories", 16, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	memset(&key, 0, sizeof(key));
	key.tablespace = CellarFileTablespace(file);
	key.database = CellarFileDatabase(file);
	return hash_search(directories, &key, action, found);
}

/*
 * Asks the file service.  Returns 1 when the file is on a cell, 0 when it
 * is not, and -1 when that is unknown.
 */
static int
ask_file_service(const char *path, CellarLocation *location)
{
	char		answer[CELL_ANSWER_BYTES];
	int			fd;
	char	   *socket_path;
	char	   *file;
	char	   *end;

	fd = OpenTransientFile(path, O_RDONLY);
	if (fd < 0)
		return -1;
	memset(answer, 0, sizeof(answer));
	if (ioctl(fd, WHICH_CELL, answer) != 0)
	{
		bool		no_cell = errno == ENOTTY || errno == EINVAL;

		CloseTransientFile(fd);
		return no_cell ? 0 : -1;
	}
	CloseTransientFile(fd);
	answer[sizeof(answer) - 1] = '\0';

	if (strncmp(answer, "1\n", 2) != 0)
		return -1;
	socket_path = answer + 2;
	file = strchr(socket_path, '\n');
	if (file == NULL)
		return -1;
	*file++ = '\0';
	end = strchr(file, '\n');
	if (end != NULL)
		*end = '\0';

	location->socket_path = pstrdup(socket_path);
	location->file = pstrdup(file);
	return 1;
}

/*
 * Tells where a file or directory of the cluster lies, in the current memory
 * context.  Returns false when it is on no cell.
 */
bool
cellar_path_location(const char *path, CellarLocation *location)
{
	return ask_file_service(path, location) == 1;
}

/*
 * Tells where a relation lies, in the current memory context.  Returns false
 * when it is on no cell.
 */
bool
cellar_relation_location(Relation rel, CellarLocation *location)
{
	CellarFileId file = CellarRelationFile(rel);
	DirectoryEntry *entry;
	char	   *path;
	char	   *name;
	char	   *slash;
	int			answer;

	if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		return false;

	entry = directory_entry(file, HASH_FIND, NULL);
	if (entry != NULL)
	{
		if (!entry->on_cell)
			return false;
		location->socket_path = pstrdup(entry->socket_path);
		location->file = psprintf("%s%u", entry->directory, CellarFileNumber(file));
		return true;
	}

	path = CellarRelationPath(file);
	answer = ask_file_service(path, location);
	pfree(path);
	if (answer < 0)
		return false;

	name = psprintf("%u", CellarFileNumber(file));
	slash = answer ? strrchr(location->file, '/') : NULL;
	if (answer == 0 || (slash != NULL && strcmp(slash + 1, name) == 0))
	{
		bool		found;
		char	   *socket_path = NULL;
		char	   *directory = NULL;

		if (answer)
		{
			socket_path = MemoryContextStrdup(TopMemoryContext, location->socket_path);
			directory = MemoryContextStrdup(TopMemoryContext, location->file);
			directory[slash + 1 - location->file] = '\0';
		}
		entry = directory_entry(file, HASH_ENTER, &found);
		entry->on_cell = answer;
		entry->socket_path = socket_path;
		entry->directory = directory;
	}
	pfree(name);
	return answer == 1;
}

/* How much of its size is kept of every step'th segment, as the kernel knows it or as the cell says. */
static double
stored_fraction(Relation rel, BlockNumber segments, BlockNumber step, int sync)
{
	char	   *path = CellarRelationPath(CellarRelationFile(rel));
	double		size = 0;
	double		stored = 0;

	for (BlockNumber segment = 0; segment < segments; segment += step)
	{
		char	   *name = segment == 0 ? pstrdup(path) : psprintf("%s.%u", path, segment);
		struct statx file;

		if (statx(AT_FDCWD, name, sync, STATX_SIZE | STATX_BLOCKS, &file) == 0)
		{
			size += file.stx_size;
			stored += file.stx_blocks * 512.0;
		}
		pfree(name);
	}
	pfree(path);
	return size > 0 ? Min(stored / size, 1.0) : 1.0;
}

/*
 * How much of the relation's size its cell keeps: 1 for plain pages, less for
 * those in compression units.  A few segments stand for all.  What the kernel knows
 * is enough, an hour old at most: a cell that stands still must not stop a planner.
 */
double
cellar_stored_fraction(Relation rel)
{
	BlockNumber segments = RelationGetNumberOfBlocks(rel) / RELSEG_SIZE + 1;

	return stored_fraction(rel, segments, (segments + STORED_SEGMENTS_MAX - 1) / STORED_SEGMENTS_MAX, AT_STATX_DONT_SYNC);
}

/* Has the kernel learn how much the cell keeps now. */
void
cellar_refresh_stored(Relation rel)
{
	(void) stored_fraction(rel, RelationGetNumberOfBlocks(rel) / RELSEG_SIZE + 1, 1, AT_STATX_FORCE_SYNC);
}

/*
 * Why a cell cannot scan the relation, wherever it lies; NULL when it can.
 */
const char *
cellar_relation_unsuitable(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW)
		return "it is not a table or materialized view";
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		return "its access method is not heap";
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		return "it is a temporary table";
	if (IsCatalogRelation(rel) || IsToastRelation(rel))
		return "it is a system catalog";
	return NULL;
}
