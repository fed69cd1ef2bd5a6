/*-------------------------------------------------------------------------
 *
 * cellar/compression.h
 *	  The compression command, its background worker and compression policies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_COMPRESSION_H
#define CELLAR_COMPRESSION_H

#include "storage/block.h"

#include "cellar/cell.h"

/* task.c, arguments.c, command_worker.c */

#define CELLAR_TASKS	16

typedef enum CellarPhase
{
	CELLAR_PHASE_STARTING,
	CELLAR_PHASE_VACUUMING,
	CELLAR_PHASE_COMPRESSING,
	CELLAR_PHASE_DECOMPRESSING
} CellarPhase;

/* A compression command in progress, in shared memory. */
typedef struct CellarTask
{
	uint64		command;		/* number of the command, never reused */
	int			session;		/* process id of the session; 0 if there is
								 * none or it has detached */
	bool		done;
	Oid			database;
	Oid			user;
	Oid			relation;
	int			level;			/* a CellarLevel */

	/* written by the worker */
	int			pid;			/* process id of the worker; 0 before it
								 * attaches and after it detaches */
	Oid			current;		/* the table or partition in progress */
	CellarPhase phase;
	uint64		blocks_total;
	CellarCompression progress;
	int			sqlstate;		/* 0 without an error */
	char		message[512];
	char		detail[512];
	char		hint[256];
} CellarTask;

/* The argument of a compression worker, in bgw_extra. */
typedef struct CellarCommandStart
{
	int			task;			/* number of the slot */
	uint64		command;
	Oid			database;
	Oid			login;			/* the role that the session logged in as */
	Oid			user;			/* the role that the command runs as */
} CellarCommandStart;

extern void cellar_request_tasks(void);
extern void cellar_init_tasks(void);
extern void cellar_tasks_lock(bool exclusive);
extern void cellar_tasks_unlock(void);
extern CellarTask *cellar_task(int number);
extern bool cellar_task_attach(CellarTask *task, uint64 command);
extern void cellar_task_leave(CellarTask *task);
extern int	cellar_claim_task(Oid relation, int level);
extern CellarTask *cellar_claim_policy_task(Oid relation, int level);
extern const char *cellar_level_name(int level);
extern int	cellar_parse_level(const char *name);
extern void cellar_check_not_in_recovery(const char *command);
extern void cellar_check_kind(Oid relation);
extern void cellar_check_compressible(Oid relation);
extern void cellar_check_readable(Oid relation);
extern void cellar_task_phase(CellarTask *task, CellarPhase phase, Oid current, uint64 blocks_total);
extern void cellar_vacuum(Oid relation, const char *options);
extern void cellar_compress_blocks(CellarTask *task, const CellarExchange *exchange, BlockNumber first, BlockNumber end);
extern void cellar_require_location(Relation rel, CellarLocation *location);

#endif							/* CELLAR_COMPRESSION_H */
