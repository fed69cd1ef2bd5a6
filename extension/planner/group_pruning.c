/*-------------------------------------------------------------------------
 *
 * group_pruning.c
 *	  Decides which groups of a Smart Scan Aggregate the query can need, so
 *	  that the cell can omit the others.
 *
 * PostgreSQL's finalizing aggregation, HAVING, Sort and Limit run above the
 * node, so the cell must return the needed groups and may return others.  The
 * cell omits groups only if all rows of the scan are in its groups.  Omitting
 * groups is sound when
 *
 * - the cell evaluates all conditions of HAVING, and no subquery in them might
 *	 raise an error: without groups, PostgreSQL does not execute it,
 * - for LIMIT, only a Sort and a Limit of a constant number of rows read the
 *	 output of the finalizing aggregation, and
 * - an omitted group could not have raised an error: only group keys and
 *	 aggregates are computed below the Sort.
 *
 * Conditions and sort keys refer to the outputs of the cell as columns, counted
 * from 1: group keys first, then aggregates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Returns the outputs of an aggregation in the cell's order: group keys, then
 * aggregates.  Constant keys are not evaluated by the cell.
 */
static List *
cell_outputs(PathTarget *target)
{
	List	   *keys = NIL;
	List	   *aggregates = NIL;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
			aggregates = lappend(aggregates, lfirst(lc));
		else if (!IsA(lfirst(lc), Const))
			keys = lappend(keys, lfirst(lc));
	}
	return list_concat(keys, aggregates);
}

/*
 * Returns the column that stands for an output, or NULL if the expression is
 * not an output by which the cell can prune groups.
 */
static Var *
output_column(Node *expr, List *outputs, Index varno)
{
	Node	   *partial = expr;
	ListCell   *lc;

	if (IsA(expr, Aggref))
	{
		Aggref	   *aggref = makeNode(Aggref);

		if (!cellar_aggregate_prunable(((Aggref *) expr)->aggfnoid))
			return NULL;
		memcpy(aggref, expr, sizeof(Aggref));
		mark_partial_aggref(aggref, AGGSPLIT_INITIAL_SERIAL);
		partial = (Node *) aggref;
	}
	foreach(lc, outputs)
	{
		if (equal(lfirst(lc), partial) || equal(lfirst(lc), expr))
			return makeVar(varno, foreach_current_index(lc) + 1, exprType(expr), exprTypmod(expr),
						   exprCollation(expr), 0);
	}
	return NULL;
}

/*
 * Returns a condition of HAVING over the columns that stand for outputs, or
 * NULL if the cell cannot evaluate the condition.
 */
static Node *
output_condition(const PlannerInfo *root, Node *qual, List *outputs, Index varno)
{
	OpExpr	   *condition = (OpExpr *) copyObject(qual);
	CellarFunctionClass class;
	ListCell   *lc;
	int			columns = 0;
	const char *reason;

	if (!IsA(condition, OpExpr) || list_length(condition->args) != 2 ||
		cellar_uncertain_initplans(root, qual) != NIL)
		return NULL;
	set_opfuncid(condition);
	class = cellar_function_class(condition->opfuncid);
	if (class != CELLAR_FUNCTION_EQUALITY && class != CELLAR_FUNCTION_ORDER)
		return NULL;
	foreach(lc, condition->args)
	{
		/* The result of a subquery is known when the scan starts. */
		if (IsA(lfirst(lc), Const) || IsA(lfirst(lc), Param))
			continue;
		lfirst(lc) = output_column(lfirst(lc), outputs, varno);
		if (lfirst(lc) == NULL)
			return NULL;
		columns++;
	}
	if (columns != 1 || !cellar_expression_offloadable((Node *) condition, varno, &reason))
		return NULL;
	return (Node *) condition;
}

/* Returns whether only group keys and aggregates are computed for a group. */
static bool
raises_no_error(PathTarget *target, List *group_clause)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(target, foreach_current_index(lc));

		if (IsA(lfirst(lc), Aggref) || IsA(lfirst(lc), Var) || IsA(lfirst(lc), Const))
			continue;
		if (ref == 0 || get_sortgroupref_clause_noerr(ref, group_clause) == NULL)
			return false;
	}
	return true;
}

/* Sets the number of groups that ORDER BY and LIMIT need, and their order. */
static void
choose_top_groups(CellarGroupPruning *pruning, PlannerInfo *root, List *outputs, Index varno)
{
	ListCell   *lc;

	pruning->top.rows = cellar_limit_rows(root);
	if (pruning->top.rows == 0)
		return;
	foreach(lc, root->parse->sortClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		Node	   *expr = get_sortgroupclause_expr(clause, root->processed_tlist);
		Var		   *column;

		if (IsA(expr, Const))
			continue;
		column = output_column(expr, outputs, varno);
		if (column == NULL || !cellar_add_sort_key(&pruning->top, clause, (Node *) column, varno))
		{
			/*
			 * PostgreSQL sorts groups that tie in the keys so far by the
			 * rest.
			 */
			pruning->with_ties = true;
			break;
		}
	}
	if (pruning->with_ties && pruning->top.keys == NIL)
		pruning->top.rows = 0;
}

/*
 * Returns which groups of an aggregation the query can need, or NULL when it
 * can need all groups.
 */
CellarGroupPruning *
cellar_choose_group_pruning(PlannerInfo *root, const CellarAggregateSpec *aggregation,
							RelOptInfo *grouped_rel, List *group_clause, List *having)
{
	RelOptInfo *rel = aggregation->scan.rel;
	CellarGroupPruning *pruning = palloc0(sizeof(CellarGroupPruning));
	List	   *outputs = aggregation->outputs != NIL ? aggregation->outputs : cell_outputs(aggregation->target);
	ListCell   *lc;

	/*
	 * A partition does not have all rows of its groups, and the groups of the cell are not
	 * those of a grouping set.
	 */
	if (group_clause == NIL || rel->reloptkind != RELOPT_BASEREL || root->parse->groupingSets != NIL)
		return NULL;
	foreach(lc, having)
	{
		Node	   *condition = output_condition(root, lfirst(lc), outputs, rel->relid);

		if (condition == NULL)
			return NULL;
		pruning->conditions = lappend(pruning->conditions, condition);
	}
	pruning->selectivity = clauselist_selectivity(root, having, 0, JOIN_INNER, NULL);
	if (raises_no_error(grouped_rel->reltarget, group_clause))
		choose_top_groups(pruning, root, outputs, rel->relid);
	if (pruning->conditions == NIL && pruning->top.rows == 0)
		return NULL;
	return pruning;
}

/*
 * Returns the pruning as a list for custom_private.
 */
List *
cellar_group_pruning_private(const CellarGroupPruning *pruning)
{
	return list_make4(pruning->conditions, pruning->top.keys, cellar_top_n_private(&pruning->top),
					  list_make1_int(pruning->with_ties));
}

/*
 * Reads the pruning of a plan.  Returns false when the cell returns all groups.
 */
bool
cellar_get_group_pruning(CustomScan *cscan, CellarGroupPruning *pruning)
{
	List	   *lists = list_nth(cscan->custom_private, CELLAR_AGGREGATE_PRUNING);
	List	   *top;

	if (lists == NIL)
		return false;
	top = lthird(lists);
	pruning->conditions = linitial(lists);
	pruning->top.keys = lsecond(lists);
	pruning->top.rows = linitial_int(linitial(top));
	pruning->top.less = lsecond(top);
	pruning->top.collations = lthird(top);
	pruning->top.directions = lfourth(top);
	pruning->with_ties = linitial_int(lfourth(lists));
	return true;
}
