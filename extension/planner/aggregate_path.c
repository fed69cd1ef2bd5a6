/*-------------------------------------------------------------------------
 *
 * aggregate_path.c
 *	  Offers the planner a Smart Scan whose rows the cell aggregates.
 *
 * The path stands where Postgres would put a partial aggregation: it puts out
 * grouping columns and serialized transition states, and Postgres's own
 * finalizing aggregation comes above it.  HAVING stays up there.  Several of
 * the cell's threads may share the scan, where Postgres would start workers.
 * See aggregate.c for what lies below.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_aggregate.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

#define GROUPS_BYTES		(16.0 * 1024 * 1024)	/* when they are more, the cell's groups leave */
#define CLUSTERED_CORRELATION	0.9

static const CustomPathMethods aggregate_path_methods;

/*
 * As make_partial_grouping_target, which is not exported: the grouping
 * columns, and aggregates in partial mode.
 */
static PathTarget *
partial_target(PlannerInfo *root, PathTarget *grouping_target, List *group_clause, Node *having)
{
	PathTarget *target = create_empty_pathtarget();
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, grouping_target->exprs)
	{
		Index		sortgroupref = get_pathtarget_sortgroupref(grouping_target, foreach_current_index(lc));

		if (sortgroupref != 0 &&
			get_sortgroupref_clause_noerr(sortgroupref, group_clause) != NULL)
			add_column_to_pathtarget(target, lfirst(lc), sortgroupref);
		else
			others = lappend(others, lfirst(lc));
	}
	if (having != NULL)
		others = lappend(others, having);
	add_new_columns_to_pathtarget(target,
								  pull_var_clause((Node *) others,
												  PVC_INCLUDE_AGGREGATES |
												  PVC_RECURSE_WINDOWFUNCS |
												  PVC_INCLUDE_PLACEHOLDERS));
	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
		{
			Aggref	   *aggref = makeNode(Aggref);

			memcpy(aggref, lfirst(lc), sizeof(Aggref));
			mark_partial_aggref(aggref, AGGSPLIT_INITIAL_SERIAL);
			lfirst(lc) = aggref;
		}
	}
	return set_pathtarget_cost_width(root, target);
}

/* Does the type of the expression fix how its equal values show? */
static bool
shows_alike(Node *expr)
{
	Oid			type = getBaseType(exprType(expr));

	if (type == BPCHAROID)
		return exprTypmod(expr) >= (int32) VARHDRSZ;
	if (type == NUMERICOID)
		return IsA(expr, Var) && exprTypmod(expr) >= (int32) VARHDRSZ;
	return true;
}

/* A field of a date or time has the same number of decimals in all rows. */
static bool
is_extract(Node *expr)
{
	if (!IsA(expr, FuncExpr))
		return false;
	switch (((FuncExpr *) expr)->funcid)
	{
		case F_EXTRACT_TEXT_DATE:
		case F_EXTRACT_TEXT_TIMESTAMP:
			return true;
		default:
			return false;
	}
}

/* Why the cell cannot group by this; NULL when it can. */
static const char *
key_stays(Node *key, Index varno)
{
	const char *reason;

	if (!cellar_depends_on_row_walker(key, NULL))
		return "it is a group key without a column";
	if (!cellar_type_groupable(getBaseType(exprType(key))) || !(shows_alike(key) || is_extract(key)))
		return psprintf("values of type %s that are equal may look different",
						format_type_with_typemod(exprType(key), exprTypmod(key)));
	if (OidIsValid(exprCollation(key)) &&
		cellar_collation(exprCollation(key)) == CELLAR_COLLATION_NONDETERMINISTIC)
		return "strings that are equal under its collation may look different";
	if (!cellar_qual_offloadable(key, varno, &reason))
		return reason;
	return NULL;
}

/* Why the cell cannot make this partial aggregate; NULL when it can. */
static const char *
aggregate_stays(Aggref *aggref, Index varno)
{
	const char *reason;
	Node	   *argument;

	if (aggref->aggdistinct != NIL || aggref->aggorder != NIL || aggref->aggdirectargs != NIL ||
		aggref->aggvariadic || aggref->aggkind != AGGKIND_NORMAL)
		return "it has DISTINCT, ORDER BY or VARIADIC inside";
	if (!cellar_aggregate_offloadable(aggref->aggfnoid, cellar_collation(aggref->inputcollid)))
	{
		if (cellar_aggregate_offloadable(aggref->aggfnoid, CELLAR_COLLATION_BYTEWISE))
			return psprintf("aggregate %s is not offloadable under collation \"%s\"",
							get_func_name(aggref->aggfnoid), get_collation_name(aggref->inputcollid));
		return psprintf("aggregate %s is not offloadable", get_func_name(aggref->aggfnoid));
	}
	if (aggref->aggfilter != NULL &&
		!cellar_qual_offloadable((Node *) aggref->aggfilter, varno, &reason))
		return reason;
	if (aggref->args == NIL)
		return NULL;
	argument = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	if (aggref->aggtranstype == NUMERICOID && !shows_alike(argument))
		return "numbers that are equal may look different";
	if (aggref->aggtranstype == BPCHAROID && !shows_alike(argument))
		return "strings that are equal may look different";
	if (!cellar_qual_offloadable(argument, varno, &reason))
		return reason;
	return NULL;
}

/* Can the cell evaluate all of this?  Notes why not. */
static bool
target_offloadable(PathTarget *target, RelOptInfo *rel, Oid relid)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		const char *reason = IsA(expr, Aggref) ?
			aggregate_stays((Aggref *) expr, rel->relid) : key_stays(expr, rel->relid);

		if (reason != NULL)
		{
			cellar_note_aggregate(relid, rel->relid, IsA(expr, Aggref) ? NULL : expr, reason);
			return false;
		}
	}
	return true;
}

/* What the paths of one aggregation have in common. */
typedef struct Aggregation
{
	RelOptInfo *rel;			/* the table */
	Oid			relid;
	List	   *storage;		/* its storage predicate */
	PathTarget *target;			/* of the partial aggregation */
	double		stored_fraction;	/* of the table's size */
	List	   *group_clause;
	bool		distinct;		/* SELECT DISTINCT, not GROUP BY */
	double		groups;
	int			threads;		/* of the cell */
	AggClauseCosts partial_costs;
	AggClauseCosts final_costs;
} Aggregation;

/* What a row that qualifies costs in Postgres's aggregation. */
static Cost
row_cost(const Aggregation *aggregation)
{
	return aggregation->partial_costs.transCost.per_tuple +
		cpu_operator_cost * list_length(aggregation->group_clause);
}

/* Do rows with the same value of the column lie near each other? */
static bool
is_clustered(Oid relid, Node *expr)
{
	HeapTuple	tuple;
	AttStatsSlot slot;
	bool		clustered = false;

	if (!IsA(expr, Var))
		return false;
	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relid), Int16GetDatum(((Var *) expr)->varattno),
							BoolGetDatum(false));
	if (!HeapTupleIsValid(tuple))
		return false;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		clustered = slot.nnumbers > 0 && fabsf(slot.numbers[0]) > CLUSTERED_CORRELATION;
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return clustered;
}

/* How many groups the cell's table of them has room for, about; no limit where few are met at a time. */
static double
table_groups(const Aggregation *aggregation)
{
	PathTarget *target = aggregation->target;
	double		bytes = 20;
	bool		has_strings = false;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		Oid			type = exprType(expr);

		if (IsA(expr, Aggref))
			bytes += 50;
		if (get_pathtarget_sortgroupref(target, foreach_current_index(lc)) == 0)
			continue;
		if (is_clustered(aggregation->relid, expr))
			return HUGE_VAL;
		bytes += 8;
		if ((get_typlen(type) > 0 && get_typlen(type) <= 8) || type == NUMERICOID)
			continue;
		bytes += 80;
		has_strings = true;
	}
	if (has_strings)
		bytes += 2 * target->width;
	return GROUPS_BYTES / bytes;
}

/*
 * The path of a scan that the cell aggregates, over that of the partial
 * aggregation of what it passes through, of which little is expected.
 */
static Path *
make_aggregate_path(PlannerInfo *root, Aggregation *aggregation)
{
	RelOptInfo *rel = aggregation->rel;
	Path	   *scan = cellar_make_scan_path(root, rel, aggregation->storage, NIL,
											   aggregation->stored_fraction, NULL,
											   aggregation->threads, 0);
	Path	   *rest;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = aggregation->target;
	path->param_info = NULL;
	path->parallel_aware = false;
	path->parallel_safe = rel->consider_parallel;
	path->parallel_workers = 0;
	path->pathkeys = NIL;
	cpath->flags = 0;
	cpath->methods = &aggregate_path_methods;

	cellar_cost_aggregate(root, rel, path, aggregation->storage, aggregation->stored_fraction,
						  aggregation->threads, row_cost(aggregation), aggregation->groups, table_groups(aggregation));

	/* All the time is spent in the scan. */
	scan->rows = 1;
	scan->startup_cost = path->startup_cost;
	scan->total_cost = path->startup_cost;
	((CustomPath *) scan)->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	rest = (Path *) create_agg_path(root, rel, scan, aggregation->target,
									aggregation->group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									aggregation->distinct ? AGGSPLIT_SIMPLE : AGGSPLIT_INITIAL_SERIAL,
									aggregation->group_clause, NIL,
									&aggregation->partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);
	return path;
}

/* Is it cheaper to aggregate what an index-only scan returns?  Notes so. */
static bool
index_only_serves(Aggregation *aggregation, Path *path)
{
	if (!cellar_index_only_serves(aggregation->rel, path->total_cost, row_cost(aggregation)))
		return false;
	cellar_note_aggregate(aggregation->relid, 0, NULL, "an index-only scan is cheaper");
	return true;
}

/* Adds what finalizes the groups of a path. */
static void
add_final_paths(PlannerInfo *root, RelOptInfo *grouped_rel, Aggregation *aggregation,
				Path *path, GroupPathExtraData *extra)
{
	List	   *having = (List *) extra->havingQual;

	if (aggregation->group_clause == NIL)
	{
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_PLAIN,
								 AGGSPLIT_FINAL_DESERIAL, NIL, having,
								 &aggregation->final_costs, 1));
		return;
	}
	if (extra->flags & GROUPING_CAN_USE_HASH)
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_HASHED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, aggregation->groups));
	if (extra->flags & GROUPING_CAN_USE_SORT)
	{
		Path	   *sorted = path;

		/* Keys that are all the same constant need no order. */
		if (root->group_pathkeys != NIL)
			sorted = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);

		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, sorted, grouped_rel->reltarget, AGG_SORTED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, aggregation->groups));
	}
}

/* Why Postgres itself would not split this aggregation in two; NULL when it would. */
static const char *
query_stays(PlannerInfo *root, GroupPathExtraData *extra)
{
	Query	   *parse = root->parse;

	if (parse->groupingSets != NIL)
		return "it has grouping sets";
	if (parse->hasTargetSRFs)
		return "the query returns sets";
	if ((extra->flags & GROUPING_CAN_PARTIAL_AGG) == 0)
		return "an aggregate has DISTINCT or ORDER BY inside, or no partial form";
	if (parse->groupClause != NIL &&
		(CellarGroupClause(root) == NIL || (extra->flags & GROUPING_CAN_USE_HASH) == 0))
		return "its groups cannot be hashed";
	return NULL;
}

/*
 * Fills *aggregation for this table.  Returns false, and notes why, when the
 * cell cannot aggregate its rows.
 */
static bool
aggregation_offloadable(PlannerInfo *root, RelOptInfo *rel, Relation relation, PathTarget *target,
						List *group_clause, List *targetlist, Aggregation *aggregation)
{
	Oid			relid = RelationGetRelid(relation);

	memset(aggregation, 0, sizeof(Aggregation));
	if (!cellar_restrictions_offloadable(rel, &aggregation->storage))
	{
		cellar_note_aggregate(relid, 0, NULL, "a condition before it stays in Postgres");
		return false;
	}
	if (!target_offloadable(target, rel, relid))
		return false;

	aggregation->rel = rel;
	aggregation->relid = relid;
	aggregation->stored_fraction = cellar_stored_fraction(relation);
	aggregation->threads = cellar_scan_threads(rel);
	aggregation->target = target;
	aggregation->group_clause = group_clause;
	aggregation->groups = 1;
	if (group_clause != NIL)
		aggregation->groups = estimate_num_groups(root,
												  get_sortgrouplist_exprs(group_clause, targetlist),
												  rel->rows, NULL, NULL);
	return true;
}

/* GROUP BY, or aggregates over the whole table. */
void
cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	List	   *group_clause = CellarGroupClause(root);
	const char *reason = query_stays(root, extra);
	Aggregation whole;
	Aggregation *aggregation = &whole;
	PathTarget *target;
	Path	   *path;

	if (reason != NULL)
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL, reason);
		return;
	}
	target = partial_target(root, grouped_rel->reltarget, group_clause, extra->havingQual);
	if (!aggregation_offloadable(root, rel, relation, target, group_clause, extra->targetList, aggregation))
		return;
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation->partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation->final_costs);

	path = make_aggregate_path(root, aggregation);
	if (index_only_serves(aggregation, path))
		return;

	/* Preferred to everything, as the scan is. */
	if (cellar_cost_factor == 0)
		grouped_rel->pathlist = NIL;

	add_final_paths(root, grouped_rel, aggregation, path, extra);
}

/* SELECT DISTINCT: groups without aggregates, which are merged above as rows would be. */
void
cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *distinct_rel)
{
	Query	   *parse = root->parse;
	List	   *distinct_clause = CellarDistinctClause(root);
	Aggregation aggregation;
	Path	   *path;

	if (parse->hasDistinctOn || parse->hasTargetSRFs || parse->hasWindowFuncs ||
		distinct_clause == NIL || !enable_hashagg || !grouping_is_hashable(distinct_clause))
		return;
	if (!aggregation_offloadable(root, rel, relation, rel->reltarget, distinct_clause,
								 parse->targetList, &aggregation))
		return;
	aggregation.distinct = true;
	path = make_aggregate_path(root, &aggregation);
	if (index_only_serves(&aggregation, path))
		return;
	if (cellar_cost_factor == 0)
		distinct_rel->pathlist = NIL;
	add_path(distinct_rel, (Path *)
			 create_agg_path(root, distinct_rel, path, path->pathtarget, AGG_HASHED,
							 AGGSPLIT_SIMPLE, distinct_clause, NIL, NULL, aggregation.groups));
}

/* ----------------------------------------------------------------
 *		From path to plan
 * ----------------------------------------------------------------
 */

static bool
params_walker(Node *node, List **params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
	{
		*params = lappend(*params, node);
		return false;
	}
	return expression_tree_walker(node, params_walker, (void *) params);
}

/*
 * The tuples of the scan are its output: keys and aggregates as the cell
 * evaluates them stand in custom_scan_tlist.  That may refer to parameters,
 * which the planner does not look for there: custom_exprs has them too.
 */
static Plan *
plan_aggregate(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
			   List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = NIL;
	cscan->scan.scanrelid = rel->relid;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	params_walker((Node *) tlist, &cscan->custom_exprs);
	cscan->methods = &cellar_aggregate_methods;
	return &cscan->scan.plan;
}

static const CustomPathMethods aggregate_path_methods = {
	.CustomName = CELLAR_AGGREGATE_NAME,
	.PlanCustomPath = plan_aggregate
};

const CustomScanMethods cellar_aggregate_methods = {
	.CustomName = CELLAR_AGGREGATE_NAME,
	.CreateCustomScanState = cellar_create_aggregate_state
};
