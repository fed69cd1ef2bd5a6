/*-------------------------------------------------------------------------
 *
 * cellar/awr.h
 *	  The Automatic Workload Repository: background workers and settings.
 *
 * cellar--1.0--1.1.sql defines the repository.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_AWR_H
#define CELLAR_AWR_H

/* settings.c */
extern char *cellar_awr_database;
extern int	cellar_awr_snapshot_interval;	/* minutes, 0 for none */
extern int	cellar_awr_retention;	/* days */

/* snapshot_worker.c */
extern void cellar_register_snapshot_worker(void);

#endif							/* CELLAR_AWR_H */
