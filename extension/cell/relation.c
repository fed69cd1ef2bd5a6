/*-------------------------------------------------------------------------
 *
 * relation.c
 *	  Which cell stores a relation, how much of it is compressed, and whether
 *	  a cell can scan it.
 *
 * A cell's file service answers an ioctl on each of its files and directories
 * with seven lines: the version of the answer, the path of the cell's socket, the
 * instance of the daemon, the instance's age in microseconds, whether the cell
 * refuses changes, the limit of the memory for groups, and the file's path relative
 * to the mount.
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

/* The stored fraction is estimated from at most this number of segments. */
#define STORED_SEGMENTS_MAX	8

/* Limit of the memory for groups of a cell with a small page cache. */
#define GROUP_BYTES_DEFAULT	(128.0 * 1024 * 1024)

/* The ioctl of a cell's file service.  Other file systems reject it. */
#define CELL_ANSWER_BYTES	4096
#define WHICH_CELL			_IOR(0xCE, 1, char[CELL_ANSWER_BYTES])

/*
 * All relations of one database in one tablespace are in one directory, so one
 * ioctl answers for all of them.  A directory cannot move while the server runs,
 * so a backend keeps the answers until it exits.
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
	uint64		group_bytes;
	char	   *socket_path;
	char	   *directory;		/* relative to the mount, with a final slash */
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
 * Requests a file's location from the file service.  Returns 1 and fills *location
 * if the file is on a cell.  Returns 0 if no cell stores the file, and -1, with
 * errno set, if its location cannot be determined.
 */
static int
request_location(const char *path, CellarLocation *location)
{
	char		answer[CELL_ANSWER_BYTES];
	int			fd;
	char	   *line[6];
	char	   *next = answer;

	fd = OpenTransientFile(path, O_RDONLY);
	if (fd < 0)
		return -1;
	memset(answer, 0, sizeof(answer));
	if (ioctl(fd, WHICH_CELL, answer) != 0)
	{
		int			cause = errno;

		CloseTransientFile(fd);
		errno = cause;
		return cause == ENOTTY || cause == EINVAL ? 0 : -1;
	}
	CloseTransientFile(fd);
	answer[sizeof(answer) - 1] = '\0';

	/* Another version of the protocol. */
	errno = EPROTO;
	for (int i = 0; i < lengthof(line); i++)
	{
		line[i] = next;
		next = strchr(next, '\n');
		if (next == NULL)
			return -1;
		*next++ = '\0';
	}
	if (strcmp(line[0], "3") != 0)
		return -1;

	location->socket_path = pstrdup(line[1]);
	location->instance = strtoull(line[2], NULL, 10);
	location->age_us = strtoull(line[3], NULL, 10);
	location->refuses_changes = strcmp(line[4], "0") != 0;
	location->group_bytes = strtoull(line[5], NULL, 10);
	location->file = pstrdup(next);
	return 1;
}

/*
 * Fills *location, in the current memory context, with the location of a file or
 * directory of the cluster.  Returns false if no cell stores the file (errno is
 * 0), or if its location cannot be determined (errno is the cause).
 */
bool
cellar_path_location(const char *path, CellarLocation *location)
{
	int			answer = request_location(path, location);

	if (answer == 0)
		errno = 0;
	return answer == 1;
}

/*
 * Fills *location, in the current memory context, with the location of a relation's
 * main fork.  Returns false if no cell stores the relation, or if its location
 * cannot be determined.
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
		location->group_bytes = entry->group_bytes;
		location->socket_path = pstrdup(entry->socket_path);
		location->file = psprintf("%s%u", entry->directory, CellarFileNumber(file));
		return true;
	}

	path = CellarRelationPath(file);
	answer = request_location(path, location);
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
		entry->group_bytes = answer ? location->group_bytes : 0;
		entry->socket_path = socket_path;
		entry->directory = directory;
	}
	pfree(name);
	return answer == 1;
}

/*
 * Returns the limit of the memory for groups of the relation's cell, or the
 * default if no cell stores the relation.
 */
double
cellar_group_bytes(Relation rel)
{
	CellarLocation location;

	return cellar_relation_location(rel, &location) ? (double) location.group_bytes : GROUP_BYTES_DEFAULT;
}

/*
 * Returns allocated bytes / size of every step'th segment, at most 1.  sync is
 * AT_STATX_DONT_SYNC or AT_STATX_FORCE_SYNC: whether statx may return the
 * attributes that the kernel has cached.
 */
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
 * Returns the stored fraction of the relation's size: 1 for raw pages, less if
 * pages are in compression units.  Estimated from a few segments, and from the
 * kernel's cached attributes, so that the planner never waits for a cell.
 */
double
cellar_stored_fraction(Relation rel)
{
	BlockNumber segments = RelationGetNumberOfBlocks(rel) / RELSEG_SIZE + 1;

	return stored_fraction(rel, segments, (segments + STORED_SEGMENTS_MAX - 1) / STORED_SEGMENTS_MAX, AT_STATX_DONT_SYNC);
}

/*
 * Refreshes the kernel's cached attributes of all segments, from which
 * cellar_stored_fraction estimates.
 */
void
cellar_refresh_stored(Relation rel)
{
	(void) stored_fraction(rel, RelationGetNumberOfBlocks(rel) / RELSEG_SIZE + 1, 1, AT_STATX_FORCE_SYNC);
}

/*
 * Returns why no cell could scan the relation, wherever the relation is stored,
 * or NULL.
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
