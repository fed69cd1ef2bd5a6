/*-------------------------------------------------------------------------
 *
 * unnested_plan.c
 *	  Chooses between the plan of a statement and the plan without its correlated
 *	  subqueries (unnest.c).
 *
 * The second plan joins the table with groups.  WHERE CURRENT OF needs the current
 * row of a table: the scan of one table has a current row, but a join has none.
 * Cursors of SQL are therefore planned without unnesting.  A driver can also name a
 * portal, and functions open portals.  A plan whose current row WHERE CURRENT OF
 * could use is replaced only if it is certain that no named portal executes the
 * plan, now or later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "nodes/memnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "storage/bufmgr.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * A statement is executed without its correlated subqueries if that costs at most
 * this fraction: the costs of index scans assume reads from disk.  For compressed
 * tables they are closer to the truth, because PostgreSQL reads pages that the cell rebuilds.
 */
#define UNNESTED_COST_FRACTION	0.25

/* A statement that costs less is not planned twice: the second plan would take longer than it saves. */
#define UNNESTED_COST_MIN	1000

/* The reciprocal of the selectivity of a comparison with a subquery. */
#define ROWS_PER_MATCH	3

/*
 * The memory context of all portals, that of one portal, and the identifier of an
 * unnamed portal's context; see portalmem.c.
 */
#define PORTALS_CONTEXT		"TopPortalContext"
#define PORTAL_CONTEXT		"PortalContext"
#define UNNAMED_PORTAL		"<unnamed>"

/* Returns whether execCurrentOf could find the scan of a table below the plan node. */
static bool
has_current_row(const Plan *plan)
{
	ListCell   *lc;

	if (plan == NULL)
		return false;
	switch (nodeTag(plan))
	{
		case T_Append:
			foreach(lc, ((const Append *) plan)->appendplans)
			{
				if (has_current_row(lfirst(lc)))
					return true;
			}
			return false;
		case T_Result:
		case T_Limit:
			return has_current_row(plan->lefttree);
		case T_SubqueryScan:
			return has_current_row(((const SubqueryScan *) plan)->subplan);
		default:
			return cellar_scanned_relation(plan) > 0;
	}
}

/*
 * Returns the memory context of the portal that was created last, or NULL without
 * portals.  A portal is created before the plan is made that it executes, except by the simple
 * protocol.
 */
static MemoryContext
newest_portal(void)
{
	MemoryContext context = TopMemoryContext->firstchild;

	while (context != NULL && strcmp(context->name, PORTALS_CONTEXT) != 0)
		context = context->nextchild;
	if (context == NULL)
		return NULL;

	/* The rows that EXPLAIN returns are in a context beside that of the portal. */
	for (context = context->firstchild; context != NULL; context = context->nextchild)
	{
		if (strcmp(context->name, PORTAL_CONTEXT) == 0)
			return context;
	}
	return NULL;
}

/* Returns whether the portal executes a command that makes and executes a plan itself. */
static bool
is_command(MemoryContext portal)
{
	const PlannedStmt *statement;

	if (ActivePortal == NULL || ActivePortal->portalContext != portal || list_length(ActivePortal->stmts) != 1)
		return false;
	statement = linitial_node(PlannedStmt, ActivePortal->stmts);
	return statement->utilityStmt != NULL &&
		(IsA(statement->utilityStmt, ExplainStmt) || IsA(statement->utilityStmt, CreateTableAsStmt) ||
		 IsA(statement->utilityStmt, CopyStmt));
}

/*
 * Returns whether WHERE CURRENT OF might need the current row of the plan.  A plan
 * that is made for values of parameters is executed only once.
 */
static bool
may_be_current_of(const PlannedStmt *statement, ParamListInfo parameters)
{
	MemoryContext portal = newest_portal();

	if (portal == NULL || !has_current_row(statement->planTree) || is_command(portal))
		return false;
	return parameters == NULL || portal->ident == NULL || strcmp(portal->ident, UNNAMED_PORTAL) != 0;
}

static bool
add_call_costs(Node *node, void *cost)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && ((SubPlan *) node)->parParam != NIL)
		*(Cost *) cost += ((SubPlan *) node)->per_call_cost;
	return expression_tree_walker(node, add_call_costs, cost);
}

/* Returns how many rows a table of the statement has; -1 if nothing is known of a foreign table. */
static double
table_rows(const PlannedStmt *statement, Index scanrelid)
{
	/* The planner has locked the table. */
	Relation	relation = table_open(rt_fetch(scanrelid, statement->rtable)->relid, NoLock);
	BlockNumber pages;
	double		rows;
	double		allvisfrac;

	estimate_rel_size(relation, NULL, &pages, &rows, &allvisfrac);
	table_close(relation, NoLock);
	return rows;
}

/*
 * Returns for how many rows a plan node evaluates a correlated subquery in its conditions, at
 * most: ROWS_PER_MATCH times as many as it returns, but no more than it reads.
 */
static double
condition_calls(const PlannedStmt *statement, const Plan *plan)
{
	double		calls = plan->plan_rows * ROWS_PER_MATCH;
	Index		scanrelid = cellar_scanned_relation(plan);

	if (scanrelid > 0 && rt_fetch(scanrelid, statement->rtable)->rtekind == RTE_RELATION)
	{
		double		rows = table_rows(statement, scanrelid);

		if (rows >= 0)
			calls = Min(calls, rows);
	}
	switch (nodeTag(plan))
	{
		case T_HashJoin:
		case T_MergeJoin:
		case T_NestLoop:
			/* A row of the outer side has at most one partner. */
			if (((const Join *) plan)->inner_unique)
				calls = Min(calls, plan->lefttree->plan_rows);
			break;
		case T_Agg:
		case T_Group:
		case T_Result:
			if (plan->lefttree != NULL)
				calls = Min(calls, plan->lefttree->plan_rows);
			break;
		case T_SubqueryScan:
			calls = Min(calls, ((const SubqueryScan *) plan)->subplan->plan_rows);
			break;
		default:
			break;
	}
	/* Outer joins and grouping sets can return more rows than they read of one input. */
	return Max(plan->plan_rows, calls);
}

/* A statement and the cost of the subqueries in its joins. */
typedef struct JoinSubqueries
{
	const PlannedStmt *statement;
	Cost		cost;
} JoinSubqueries;

/*
 * Adds the cost of correlated subqueries in the condition of a join, which the cost of a
 * hash join with a unique inner side does not contain.
 */
static void
add_join_subqueries(Plan *plan, void *arg)
{
	JoinSubqueries *subqueries = arg;
	Cost		call = 0;

	if (!IsA(plan, HashJoin) || !((HashJoin *) plan)->join.inner_unique)
		return;
	add_call_costs((Node *) ((HashJoin *) plan)->join.joinqual, &call);
	if (call > 0)
		subqueries->cost += call * condition_calls(subqueries->statement, plan);
}

/* Returns the cost of a statement with correlated subqueries. */
static Cost
cost_with_subqueries(PlannedStmt *statement)
{
	JoinSubqueries subqueries = {.statement = statement};

	cellar_visit_plans(statement, add_join_subqueries, &subqueries);
	return statement->planTree->total_cost + subqueries.cost;
}

/* Returns whether to plan the statement a second time, without correlated subqueries. */
bool
cellar_may_unnest(PlannedStmt *statement, ParamListInfo parameters)
{
	if (may_be_current_of(statement, parameters))
		return false;
	return cellar_cost_factor == 0 || cost_with_subqueries(statement) >= UNNESTED_COST_MIN;
}

/* The tables of index scans in the subqueries of a statement. */
typedef struct IndexedTables
{
	const PlannedStmt *statement;
	double		stored_fraction;	/* the least one of a table */
	double		read_fraction;	/* the least stored fraction of a table's pages that are not in memory */
} IndexedTables;

/* Returns which part of a relation's pages is not in memory. */
static double
uncached_fraction(Relation relation)
{
	CellarCachedPages cached = cellar_cached_pages(relation);

	return 1 - Min(cached.buffers + cached.kernel, 1);
}

static void
add_indexed_table(Plan *plan, void *arg)
{
	IndexedTables *tables = arg;
	Relation	relation;

	if (!IsA(plan, IndexScan) && !IsA(plan, IndexOnlyScan) && !IsA(plan, BitmapHeapScan))
		return;
	/* The planner has locked the table. */
	relation = table_open(rt_fetch(((Scan *) plan)->scanrelid, tables->statement->rtable)->relid, NoLock);
	if (cellar_relation_unsuitable(relation) == NULL)
	{
		double		stored = cellar_stored_fraction(relation);

		tables->stored_fraction = Min(tables->stored_fraction, stored);
		tables->read_fraction = Min(tables->read_fraction, stored * uncached_fraction(relation));
	}
	table_close(relation, NoLock);
}

static IndexedTables
indexed_tables(const PlannedStmt *statement)
{
	IndexedTables tables = {.statement = statement,.stored_fraction = 1,.read_fraction = 1};
	ListCell   *lc;

	foreach(lc, statement->subplans)
		cellar_visit_plan(lfirst(lc), add_indexed_table, &tables);
	return tables;
}

/* The executions of a correlated subquery, and the cost of reads from memory that its estimate contains as reads from disk. */
typedef struct SubqueryReads
{
	const PlannedStmt *statement;
	double		calls;
	Cost		cost;
} SubqueryReads;

/*
 * Returns how many pages a number of reads of random pages fetches if all pages fit into
 * memory, as index_pages_fetched() does.
 */
static double
pages_fetched(double reads, double pages)
{
	return pages <= 0 ? 0 : Min(2 * pages * reads / (2 * pages + reads), pages);
}

/*
 * Adds the reads of an index scan.  The estimate of an execution contains the read of a page of
 * the index and, unless it is an index-only scan, of a page of the table, or more.
 */
static void
add_index_reads(Plan *plan, void *arg)
{
	SubqueryReads *reads = arg;
	Relation	relation;
	Relation	index;
	double		pages;
	double		index_pages;
	double		repeated;
	double		random_page;
	bool		corrected;

	if (!IsA(plan, IndexScan) && !IsA(plan, IndexOnlyScan))
		return;
	/* The planner has locked both.  A hypothetical index has no relation and no pages. */
	index = try_relation_open(IsA(plan, IndexScan) ? ((IndexScan *) plan)->indexid : ((IndexOnlyScan *) plan)->indexid,
							  NoLock);
	if (index == NULL)
		return;
	relation = table_open(rt_fetch(((Scan *) plan)->scanrelid, reads->statement->rtable)->relid, NoLock);
	pages = IsA(plan, IndexScan) ? RelationGetNumberOfBlocks(relation) : 0;
	index_pages = RelationGetNumberOfBlocks(index);
	if (pages + index_pages <= effective_cache_size)
	{
		/* The estimate contains no reads of pages in memory, if index_scan_cost.c has corrected it. */
		corrected = cellar_relation_unsuitable(relation) == NULL;
		repeated = (reads->calls - pages_fetched(reads->calls, index_pages)) * (corrected ? uncached_fraction(index) : 1);
		if (pages > 0)
			repeated += (reads->calls - pages_fetched(reads->calls, pages)) * (corrected ? uncached_fraction(relation) : 1);
		get_tablespace_page_costs(relation->rd_rel->reltablespace, &random_page, NULL);
		reads->cost += random_page * repeated;
	}
	table_close(relation, NoLock);
	relation_close(index, NoLock);
}

static bool
subquery_reads_walker(Node *node, void *context)
{
	SubqueryReads *reads = context;

	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && ((SubPlan *) node)->parParam != NIL)
		cellar_visit_plan(list_nth(reads->statement->subplans, ((SubPlan *) node)->plan_id - 1), add_index_reads, reads);
	return expression_tree_walker(node, subquery_reads_walker, context);
}

/* Adds the reads of the correlated subqueries in the expressions of a plan node. */
static void
add_subquery_reads(Plan *plan, void *arg)
{
	SubqueryReads *reads = arg;

	reads->calls = plan->plan_rows;
	subquery_reads_walker((Node *) plan->targetlist, reads);
	if (!contain_subplans((Node *) plan->qual) &&
		!(IsA(plan, HashJoin) && contain_subplans((Node *) ((HashJoin *) plan)->join.joinqual)))
		return;
	reads->calls = condition_calls(reads->statement, plan);
	subquery_reads_walker((Node *) plan->qual, reads);
	if (IsA(plan, HashJoin))
		subquery_reads_walker((Node *) ((HashJoin *) plan)->join.joinqual, reads);
}

/*
 * Returns the part of the cost of a statement that is for pages which its correlated
 * subqueries have read before.  PostgreSQL's estimate of a subquery knows one execution.
 */
static Cost
repeated_reads_cost(const PlannedStmt *statement)
{
	SubqueryReads reads = {.statement = statement};

	cellar_visit_plans((PlannedStmt *) statement, add_subquery_reads, &reads);
	return reads.cost;
}

/*
 * Returns whether the statement without correlated subqueries costs less than the other one,
 * with most pages read from disk, and also with pages read again from memory.  Pages that the cell
 * rebuilds cost more than a read from memory.
 */
bool
cellar_is_unnested_cheaper(PlannedStmt *statement, PlannedStmt *unnested)
{
	Cost		cost;
	IndexedTables tables;

	if (cellar_cost_factor == 0)
		return true;
	if (CellarPlanDisabledNodes(unnested->planTree) > CellarPlanDisabledNodes(statement->planTree))
		return false;
	cost = cost_with_subqueries(statement);
	tables = indexed_tables(statement);
	if (tables.stored_fraction >= 1 && unnested->planTree->total_cost >= cost - repeated_reads_cost(statement))
		return false;
	return unnested->planTree->total_cost < cost * (1 - (1 - UNNESTED_COST_FRACTION) * tables.read_fraction);
}
