/*-------------------------------------------------------------------------
 *
 * offloadable_scan.c
 *	  Decides whether a cell can scan a relation for a query, and which
 *	  restrictions the cell can evaluate.
 *
 * The decision is repeated when the scan starts (executor/scan.c), because a
 * cached plan can outlive the settings and the location of the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Returns whether the relation is a table or materialized view that is
 * scanned directly, wherever it is stored.
 */
bool
cellar_is_scannable(RelOptInfo *rel, RangeTblEntry *rte)
{
	return IS_SIMPLE_REL(rel) && rte->rtekind == RTE_RELATION && !rte->inh &&
		(rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW) &&
		!IS_DUMMY_REL(rel) && IsUnderPostmaster;
}

/*
 * Returns why this query cannot use a Smart Scan of the relation, or NULL.
 */
static const char *
query_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	ListCell   *lc;

	if (rte->tablesample != NULL)
		return "the table is sampled with TABLESAMPLE";
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if (CellarOldSnapshotsFail())
		return "old_snapshot_threshold is set";
	if (!bms_is_empty(rel->lateral_relids))
		return "the scan has a LATERAL reference to another table";
	if (root->parse->resultRelation == (int) rel->relid ||
		bms_is_member(rel->relid, root->all_result_relids))
		return "the statement modifies the table";
	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (mark->rti == rel->relid)
			return "the statement may lock or recheck rows of the table";
	}
	return NULL;
}

/*
 * Returns the attributes that the scan outputs or the filter reads, as
 * attribute numbers offset by FirstLowInvalidHeapAttributeNumber.
 */
Bitmapset *
cellar_needed_attributes(RelOptInfo *rel, List *filter)
{
	Bitmapset  *needed = NULL;
	ListCell   *lc;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &needed);
	foreach(lc, filter)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &needed);
	return needed;
}

/* Returns whether the query reads a system column other than tableoid and ctid. */
static bool
needs_system_column(RelOptInfo *rel)
{
	Bitmapset  *needed = cellar_needed_attributes(rel, rel->baserestrictinfo);
	int			member = -1;

	while ((member = bms_next_member(needed, member)) >= 0)
	{
		int			attribute = member + FirstLowInvalidHeapAttributeNumber;

		if (attribute < 0 && attribute != TableOidAttributeNumber &&
			attribute != SelfItemPointerAttributeNumber)
			return true;
	}
	return false;
}

/*
 * Returns why no Smart Scan of the relation can be offered, or NULL.
 */
const char *
cellar_scan_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, Relation relation)
{
	CellarLocation location;
	const char *reason;

	if (!cellar_offload_processing)
		return "cellar.cell_offload_processing is off";
	reason = cellar_relation_unsuitable(relation);
	if (reason == NULL && !cellar_simulate_offload &&
		cellar_plan_display != CELLAR_DISPLAY_ALWAYS &&
		!cellar_relation_location(relation, &location))
		reason = "the table is not on a cell";
	if (reason == NULL)
		reason = query_unsuitable(root, rel, rte);
	if (reason == NULL && rel->pages < (BlockNumber) cellar_min_scan_size)
		reason = "the table is smaller than cellar.min_scan_size";
	if (reason == NULL && needs_system_column(rel))
		reason = "the query reads a system column";
	return reason;
}

/*
 * Returns whether the cell can evaluate a restriction, else sets *reason.
 *
 * As with index quals, a restriction may run before one of a lower security
 * level only if it is leakproof.
 */
bool
cellar_restriction_offloadable(PlannerInfo *root, RelOptInfo *rel, RestrictInfo *rinfo, const char **reason)
{
	if (rinfo->security_level > rel->baserestrict_min_security && !rinfo->leakproof)
	{
		*reason = "the condition is not leakproof, and a security policy must be evaluated first";
		return false;
	}
	return cellar_condition_offloadable(root, (Node *) rinfo->clause, rel->relid, reason);
}

/*
 * Returns whether the cell can evaluate all restrictions of the relation, and
 * sets *storage to them.
 */
bool
cellar_restrictions_offloadable(PlannerInfo *root, RelOptInfo *rel, List **storage)
{
	ListCell   *lc;
	const char *reason;

	*storage = NIL;
	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (rinfo->pseudoconstant || !cellar_restriction_offloadable(root, rel, rinfo, &reason))
			return false;
		*storage = lappend(*storage, rinfo);
	}
	return true;
}
