/*-------------------------------------------------------------------------
 *
 * cellar/planner.h
 *	  Smart Scans as paths and plans, and why a scan is not offloaded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_PLANNER_H
#define CELLAR_PLANNER_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

#include "cellar_client.h"

/* path.c, plan.c */

/* Directions of a sort key. */
#define CELLAR_DESCENDING	1
#define CELLAR_NULLS_FIRST	2

/*
 * The order of which only the first rows are wanted.  It travels in lists:
 * the keys in custom_exprs behind the storage predicate, the rest in
 * custom_private.
 */
typedef struct CellarTopN
{
	int			rows;
	List	   *keys;			/* expressions */
	List	   *less;			/* functions of the < operators */
	List	   *collations;
	List	   *directions;
} CellarTopN;

extern List *cellar_top_n_private(const CellarTopN *top);
extern bool cellar_plan_top_n(CustomScan *cscan, CellarTopN *top);
extern int	cellar_plan_threads(CustomScan *cscan);
extern List *cellar_storage_predicate(CustomScan *cscan);

extern void cellar_install_path_hooks(void);
extern Path *cellar_make_scan_path(PlannerInfo *root, RelOptInfo *rel, List *storage,
								   List *filter, double stored_fraction, const CellarTopN *top,
								   int threads, int parallel_workers);
extern int	cellar_scan_threads(RelOptInfo *rel);
extern bool cellar_restrictions_offloadable(RelOptInfo *rel, List **storage);
extern bool cellar_index_only_serves(RelOptInfo *rel, Cost total_cost, Cost row_cost);
extern void cellar_cost_aggregate(PlannerInfo *root, RelOptInfo *rel, Path *path,
								  List *storage, double stored_fraction, int threads,
								  Cost row_cost, double groups, double table_groups);
extern bool cellar_restriction_offloadable(RelOptInfo *rel, RestrictInfo *rinfo,
										   const char **reason);
extern const CustomScanMethods cellar_scan_methods;
extern const CustomPathMethods cellar_path_methods;

/* Members of CustomScan.custom_private. */
enum CellarPlanPrivate
{
	CELLAR_PLAN_QUAL_ORDER,		/* integers: 1 where the next qual, in order of
								 * evaluation, is a storage predicate, else 0 */
	CELLAR_PLAN_FILTER_REASONS, /* strings: why each qual of the filter stays */
	CELLAR_PLAN_TOP_N,			/* NIL, or lists: rows, then as in CellarTopN */
	CELLAR_PLAN_THREADS			/* an integer: how many of the cell share the scan */
};

/* aggregate_path.c */

extern void cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *grouped_rel, GroupPathExtraData *extra);
extern void cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *distinct_rel);
extern const CustomScanMethods cellar_aggregate_methods;

/* top_n_path.c */

extern void cellar_add_top_n_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
								   RelOptInfo *ordered_rel);

/* offloadable.c */

extern CellarCollation cellar_collation(Oid collation);
extern bool cellar_qual_offloadable(Node *clause, Index varno, const char **reason);
extern bool cellar_depends_on_row_walker(Node *node, void *context);
extern bool cellar_catchable(Node *node);

/* offload_reasons.c */

extern void cellar_install_why(void);
extern void cellar_note_scan(Oid relid, const char *reason);
extern void cellar_note_cheaper(Oid relid);
extern void cellar_note_chosen(Oid relid);
extern void cellar_note_aggregate(Oid relid, Index varno, Node *expression, const char *reason);
extern void cellar_note_qual(Oid relid, Index varno, Node *qual, const char *reason);

#endif							/* CELLAR_PLANNER_H */
