/*-------------------------------------------------------------------------
 *
 * cellar/cell.h
 *	  Relations on cells, connections to cells and requests other than scans.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_CELL_H
#define CELLAR_CELL_H

#include "catalog/pg_database.h"
#include "nodes/execnodes.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/relcache.h"

#include "cellar/compat.h"
#include "cellar_client.h"

/* relation.c */

/* Where a file is stored. */
typedef struct CellarLocation
{
	char	   *socket_path;	/* of the cell */
	char	   *file;			/* path below the mount */
	uint64		instance;		/* identifies the run of the cell's daemon
								 * that serves the mount */
	uint64		age_us;			/* of the instance, in microseconds */
	bool		refuses_changes;	/* processes use a mount of an earlier
									 * instance */
	uint64		group_bytes;	/* limit of the cell's memory for groups */
} CellarLocation;

extern bool cellar_path_location(const char *path, CellarLocation *location);
extern bool cellar_relation_location(Relation rel, CellarLocation *location);
extern double cellar_group_bytes(Relation rel);
extern double cellar_stored_fraction(Relation rel);
extern void cellar_refresh_stored(Relation rel);
extern const char *cellar_relation_unsuitable(Relation rel);

/* cluster_cells.c */

/* A cell that stores the data directory or a tablespace. */
typedef struct CellarClusterCell
{
	CellarLocation location;	/* of one of the directories */
	List	   *roots;			/* directories of this cluster on the cell:
								 * paths (char *) relative to the mount */
	List	   *tablespaces;	/* OID list: the tablespace of each root;
								 * InvalidOid for the data directory */
} CellarClusterCell;

extern List *cellar_cluster_cells(void);
extern List *cellar_cluster_cells_or_warn(void);
extern bool cellar_tablespaces_accessible(void);

/* previous_mount.c */

extern void cellar_install_previous_mount_wait(void);

/* monitor.c */

extern void cellar_register_monitor(void);

/* names.c */

extern Size cellar_names_bytes(void);
extern void cellar_names_init(LWLock *lock);
extern void cellar_begin_names(void);
extern void cellar_add_name(Form_pg_database database, void *arg);
extern void cellar_publish_names(void);
extern CellarName *cellar_process_groups(int *number);
extern void cellar_tell_cell(CellarConnection *connection, const CellarClusterCell *cell, const CellarName *groups, int count);

/* sync_method.c */

extern void cellar_install_sync_method_check(void);
extern void cellar_check_sync_method(void);

/* flash_cache.c */

extern void cellar_apply_flash_cache_settings(void);

/* relation_request.c */

extern Oid	cellar_cell_type(Oid type, int32 *typmod);
extern void cellar_request_relation(CellarRequest *request, Relation rel, const char *file);
extern CellarRequest *cellar_relation_request(Relation rel, const char *file);

/* connection.c */

/* A connection to a cell; see connection.c. */
typedef struct CellarSession
{
	CellarConnection *connection;
	WaitEventSet *wait_set;
	int			socket_position;
	bool		wait_writable;
	bool		reused;			/* from the session cache, and the cell has
								 * sent nothing since */
	bool		scans_index;	/* the current request scans an index */
	char		socket_path[128];
} CellarSession;

/* The SQLSTATE of a CellarError, for errcode(). */
#define CellarErrorCode(error) \
	MAKE_SQLSTATE((error).sqlstate[0], (error).sqlstate[1], (error).sqlstate[2], \
				  (error).sqlstate[3], (error).sqlstate[4])

extern CellarSession *cellar_session_open(const char *socket_path, CellarError *error);
extern void cellar_session_release(CellarSession *session);
extern void cellar_session_close(CellarSession *session);
extern void cellar_session_pause(CellarSession *session, CellarEvent event);
extern CellarEvent cellar_session_next(CellarSession *session);
extern CellarError cellar_session_error(CellarSession *session);
extern uint64 cellar_session_wait(CellarSession *session, CellarEvent event);

/* cell_query.c */

/* A query to each cell; see cell_query.c. */
typedef struct CellarCellQuery
{
	CellarEvent answer;
	void		(*send) (CellarConnection *connection, const CellarClusterCell *cell);
	void		(*put_rows) (CellarConnection *connection, const CellarClusterCell *cell, ReturnSetInfo *rsinfo);
	void		(*warn) (CellarError error);
} CellarCellQuery;

extern void cellar_query_cells(const CellarCellQuery *query, ReturnSetInfo *rsinfo);

/* exchange.c */

/* A request about a relation, other than a scan; see exchange.c. */
typedef struct CellarExchange
{
	CellarSession *session;
	CellarRequest *relation;	/* describes the relation */
} CellarExchange;

extern void cellar_report_error(CellarError error);
extern void cellar_exchange_begin(CellarExchange *exchange, Relation rel, const CellarLocation *location);
extern void cellar_exchange_wait(const CellarExchange *exchange, CellarEvent wanted,
								 void (*on_event) (void *arg, const CellarExchange *exchange), void *arg);
extern void cellar_exchange_end(CellarExchange *exchange);
extern void cellar_exchange_abort(CellarExchange *exchange);

#endif							/* CELLAR_CELL_H */
