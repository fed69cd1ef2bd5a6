/*-------------------------------------------------------------------------
 *
 * names.c
 *	  The names of databases and the consumer groups of processes, which the cells
 *	  of this cluster are told.
 *
 * A cell sees files and processes.  For its metrics and for the plan of I/O
 * resource management, it needs the names of databases, which are in a catalog, and
 * the consumer groups, which are in shared memory.
 *
 * The launcher can read the catalog.  The cell monitor has a connection to each
 * cell, and waits for the file system of a cell that does not answer without
 * delaying anything else.  So the launcher copies the names to shared memory, and the
 * monitor sends them with the consumer groups of all processes, every second if
 * something changed.  In addition, a backend tells its own group before it scans
 * (connection.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compat.h"

/* Further databases have no names on cells. */
#define NAMES_MAX	1024

/* Oracle's groups of the processes of the server. */
#define BACKGROUND_GROUP	"_ORACLE_BACKGROUND_GROUP_"
#define LOW_PRIORITY_GROUP	"_ORACLE_LOWPRIBG_GROUP_"

typedef struct DatabaseName
{
	Oid			oid;
	NameData	name;
} DatabaseName;

typedef struct SharedNames
{
	LWLock	   *lock;
	int			count;
	DatabaseName names[NAMES_MAX];
} SharedNames;

static SharedNames *shared = NULL;

/* What the launcher has read of the catalog. */
static DatabaseName read_names[NAMES_MAX];
static int	read_count = 0;

Size
cellar_names_bytes(void)
{
	return sizeof(SharedNames);
}

void
cellar_names_init(LWLock *lock)
{
	bool		found;

	shared = ShmemInitStruct("cellar names", cellar_names_bytes(), &found);
	if (!found)
	{
		memset(shared, 0, cellar_names_bytes());
		shared->lock = lock;
	}
}

/* The launcher calls this, cellar_add_name for each database, and cellar_publish_names. */
void
cellar_begin_names(void)
{
	read_count = 0;
}

void
cellar_add_name(Form_pg_database database, void *arg)
{
	if (read_count == NAMES_MAX)
		return;
	read_names[read_count].oid = database->oid;
	read_names[read_count].name = database->datname;
	read_count++;
}

void
cellar_publish_names(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	memcpy(shared->names, read_names, read_count * sizeof(DatabaseName));
	shared->count = read_count;
	LWLockRelease(shared->lock);
}

static void
tell_names(CellarConnection *connection, const CellarClusterCell *cell)
{
	CellarName *names = palloc(NAMES_MAX * sizeof(CellarName));
	const char **roots = palloc(list_length(cell->roots) * sizeof(char *));
	int			count;

	for (int i = 0; i < list_length(cell->roots); i++)
		roots[i] = list_nth(cell->roots, i);
	LWLockAcquire(shared->lock, LW_SHARED);
	count = shared->count;
	for (int i = 0; i < count; i++)
	{
		names[i].number = shared->names[i].oid;
		names[i].name = pstrdup(NameStr(shared->names[i].name));
	}
	LWLockRelease(shared->lock);
	/* Before the launcher has read the names, there are none to tell. */
	if (count > 0)
		cellar_tell_names(connection, roots, list_length(cell->roots), names, count);
}

/* Returns the consumer group of a process. */
static const char *
group_of(const PgBackendStatus *status, PGPROC *proc)
{
	char	   *group = palloc(NAMEDATALEN);
	PGPROC	   *leader = proc->lockGroupLeader;

	switch (status->st_backendType)
	{
		case B_BACKEND:
		case B_BG_WORKER:
		case B_WAL_SENDER:
			/* A parallel worker belongs to the group of its leader. */
			if (leader == NULL)
				leader = proc;
			cellar_read_consumer_group(CellarProcNumber(leader), leader->pid,
									   status->st_appname != NULL ? status->st_appname : "", group);
			return group;
		case B_AUTOVAC_WORKER:
			return LOW_PRIORITY_GROUP;
		default:
			return BACKGROUND_GROUP;
	}
}

/* Returns the consumer groups of all processes. */
CellarName *
cellar_process_groups(int *number)
{
	int			slots = pgstat_fetch_stat_numbackends();
	CellarName *groups = palloc((slots + 1) * sizeof(CellarName));
	int			count = 0;

	for (int i = 1; i <= slots; i++)
	{
		LocalPgBackendStatus *local = CellarBackendStatusByIndex(i);
		PgBackendStatus *status;
		PGPROC	   *proc;

		if (local == NULL)
			continue;
		status = &local->backendStatus;
		proc = BackendPidGetProc(status->st_procpid);
		if (proc == NULL)
			proc = AuxiliaryPidGetProc(status->st_procpid);
		if (proc == NULL)
			continue;
		groups[count].number = status->st_procpid;
		groups[count].name = group_of(status, proc);
		count++;
	}
	pgstat_clear_backend_activity_snapshot();
	*number = count;
	return groups;
}

/*
 * Tells a cell what has changed since the last call: the names of databases, and
 * the groups of cellar_process_groups().  Never waits for the cell.
 * Called by the cell monitor.
 */
void
cellar_tell_cell(CellarConnection *connection, const CellarClusterCell *cell, const CellarName *groups, int count)
{
	tell_names(connection, cell);
	cellar_tell_groups(connection, groups, count);
}
