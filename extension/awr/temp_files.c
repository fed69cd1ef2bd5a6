/*-------------------------------------------------------------------------
 *
 * temp_files.c
 *	  Sizes of the temporary files of each process.
 *
 * The name of a temporary file contains the process that created the file:
 * pgsql_tmpPID.N, or pgsql_tmpPID.N.fileset, a directory of files that the leader
 * of a parallel query shares with its workers.  The sampler reads the names and
 * sizes at each tick, so statements spend no time on this accounting.
 *
 * A cell that does not answer would stop the sampler, just when samples matter
 * most.  Directories on FUSE are therefore not read: the size of the files of
 * their processes is unknown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_utils.h"
#include "common/relpath.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "cellar/awr.h"

/* Entries of directories that a tick reads at most. */
#define ENTRIES_MAX		10000
#define PROCESSES_MAX	1024

/* Symbolic links that a path leads through at most, as in Linux. */
#define LINKS_MAX		40

typedef struct TempFiles
{
	int			pid;
	int64		bytes;
} TempFiles;

static TempFiles processes[PROCESSES_MAX];
static int	process_count = 0;
static int	entry_count = 0;
static bool is_complete = true;

static void
add_bytes(int pid, int64 bytes)
{
	int			i = 0;

	while (i < process_count && processes[i].pid != pid)
		i++;
	if (i == process_count)
	{
		if (process_count == PROCESSES_MAX)
		{
			is_complete = false;
			return;
		}
		processes[process_count++] = (TempFiles)
		{
			.pid = pid
		};
	}
	processes[i].bytes += bytes;
}

/* Adds the files of a directory.  Those of a shared directory belong to one process; otherwise pid is 0. */
static void
add_directory(const char *path, int pid)
{
	DIR		   *directory = opendir(path);
	struct dirent *entry;

	if (directory == NULL)
	{
		/* PostgreSQL creates the directory with the first temporary file. */
		if (errno != ENOENT)
			is_complete = false;
		return;
	}
	while ((entry = readdir(directory)) != NULL)
	{
		char		file[MAXPGPATH];
		struct stat status;
		int			owner = pid;

		if (entry->d_name[0] == '.')
			continue;
		if (++entry_count > ENTRIES_MAX)
		{
			is_complete = false;
			break;
		}
		if (owner == 0 && sscanf(entry->d_name, PG_TEMP_FILE_PREFIX "%d.", &owner) != 1)
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		/* The file may have been deleted meanwhile. */
		if (lstat(file, &status) != 0)
			continue;
		if (S_ISREG(status.st_mode))
			add_bytes(owner, status.st_size);
		else if (S_ISDIR(status.st_mode) && pid == 0)
			add_directory(file, owner);
	}
	closedir(directory);
}

/* Decodes blanks, tabs, line feeds and backslashes in a line of /proc/self/mounts, which are octal numbers there. */
static void
decode_mount(char *mount)
{
	char	   *to = mount;

	for (const char *from = mount; *from != '\0'; to++)
	{
		unsigned int byte;

		if (*from == '\\' && sscanf(from + 1, "%3o", &byte) == 1 && strlen(from) >= 4)
		{
			*to = (char) byte;
			from += 4;
		}
		else
			*to = *from++;
	}
	*to = '\0';
}

/*
 * Returns the mounts in the order of mounting, each as 'f' for FUSE or '-', the
 * path and a line feed; NULL if they are unknown.
 */
static char *
read_mounts(void)
{
	FILE	   *file = fopen("/proc/self/mounts", "r");
	StringInfoData mounts;
	char		line[2 * MAXPGPATH];

	if (file == NULL)
		return NULL;
	initStringInfo(&mounts);
	while (fgets(line, sizeof(line), file) != NULL)
	{
		char		mount[MAXPGPATH];
		char		type[64];

		if (sscanf(line, "%*s %1023s %63s", mount, type) == 2)
		{
			decode_mount(mount);
			appendStringInfo(&mounts, "%c%s\n", strncmp(type, "fuse", 4) == 0 ? 'f' : '-', mount);
		}
	}
	fclose(file);
	return mounts.data;
}

/*
 * Returns whether an absolute path without symbolic links is on FUSE: whether the
 * last of the deepest mounts above it is.  The root directory is the empty path.
 */
static bool
is_on_fuse(const char *path, const char *mounts)
{
	bool		on_fuse = false;
	Size		deepest = 0;

	while (*mounts != '\0')
	{
		const char *mount = mounts + 1;
		Size		length = strchr(mount, '\n') - mount;
		Size		compared = length == 1 ? 0 : length;

		if (compared >= deepest && strncmp(path, mount, compared) == 0 &&
			(path[compared] == '/' || path[compared] == '\0'))
		{
			on_fuse = *mounts == 'f';
			deepest = compared;
		}
		mounts = mount + length + 1;
	}
	return on_fuse;
}

/*
 * Resolves the symbolic links of a path relative to a directory, an absolute path
 * without links.  Unlike realpath(), reads nothing on FUSE.  Names that do not exist
 * are kept.  Returns false if the path is on FUSE, is too long or has too many links.
 */
static bool
resolve(const char *directory, const char *path, const char *mounts, char *resolved)
{
	char		names[MAXPGPATH];
	char	   *rest = names;
	int			links = 0;

	strlcpy(resolved, directory, MAXPGPATH);
	if (strlcpy(names, path, sizeof(names)) >= sizeof(names))
		return false;
	while (!is_on_fuse(resolved, mounts))
	{
		char		target[MAXPGPATH];
		ssize_t		target_length;
		Size		end = strlen(resolved);
		Size		length;

		rest += strspn(rest, "/");
		length = strcspn(rest, "/");
		if (length == 0)
			return true;
		if (length == 2 && strncmp(rest, "..", 2) == 0)
		{
			char	   *last = strrchr(resolved, '/');

			if (last != NULL)
				*last = '\0';
		}
		else if (length != 1 || *rest != '.')
		{
			if (end + 1 + length >= MAXPGPATH)
				return false;
			snprintf(resolved + end, MAXPGPATH - end, "/%.*s", (int) length, rest);
		}
		rest += length;
		if (is_on_fuse(resolved, mounts))
			break;

		target_length = readlink(resolved, target, sizeof(target));
		if (target_length < 0)
			continue;
		if (++links > LINKS_MAX || target_length + strlen(rest) >= sizeof(target))
			return false;
		strcpy(target + target_length, rest);
		strcpy(names, target);
		rest = names;
		resolved[*rest == '/' ? 0 : end] = '\0';
	}
	return false;
}

/* Adds the files of a directory whose path is relative to the data directory, unless the directory is on FUSE. */
static void
add_temp_directory(const char *data_directory, const char *path, const char *mounts)
{
	char		resolved[MAXPGPATH];

	if (resolve(data_directory, path, mounts, resolved))
		add_directory(resolved, 0);
	else
		is_complete = false;
}

/* Reads the sizes of all temporary files.  The data directory is the working directory. */
void
cellar_read_temp_files(void)
{
	char	   *mounts = read_mounts();
	char		data_directory[MAXPGPATH];
	DIR		   *tablespaces;
	struct dirent *entry;

	process_count = 0;
	entry_count = 0;

	/*
	 * The kernel knows this path, without symbolic links, and reads no file
	 * system.
	 */
	is_complete = mounts != NULL && getcwd(data_directory, sizeof(data_directory)) != NULL &&
		data_directory[0] == '/' && !is_on_fuse(data_directory, mounts);
	if (!is_complete)
		return;
	add_temp_directory(data_directory, "base/" PG_TEMP_FILES_DIR, mounts);
	tablespaces = opendir("pg_tblspc");
	if (tablespaces == NULL)
		return;
	while ((entry = readdir(tablespaces)) != NULL)
	{
		char		path[MAXPGPATH];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "pg_tblspc/%s/%s/%s", entry->d_name, TABLESPACE_VERSION_DIRECTORY, PG_TEMP_FILES_DIR);
		add_temp_directory(data_directory, path, mounts);
	}
	closedir(tablespaces);
}

/* Returns the size of a process's temporary files at the last reading, or -1 if it is unknown. */
int64
cellar_temp_bytes(int pid)
{
	for (int i = 0; i < process_count; i++)
	{
		if (processes[i].pid == pid)
			return processes[i].bytes;
	}
	return is_complete ? 0 : -1;
}
