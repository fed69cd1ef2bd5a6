/*-------------------------------------------------------------------------
 *
 * subquery_member.c
 *	  Lets a subquery of UNION ALL return partial states of its rows.
 *
 * PostgreSQL keeps a member of UNION ALL with a WHERE clause as a subquery, which
 * has its own plan.  If the subquery only scans one table, or one append relation,
 * and computes its columns, aggregating the rows of that relation gives the same
 * states as aggregating the rows of the subquery: the expressions of the partial
 * aggregation are written with the expressions of the subquery's columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* Returns the only relation of a subquery that just filters rows and computes columns, or NULL. */
static RelOptInfo *
only_relation(const RelOptInfo *rel, const RangeTblEntry *rte)
{
	PlannerInfo *subroot = rel->subroot;
	const Query *query;
	int			relid;

	/* A security barrier: conditions of the outer query must be evaluated after those of the subquery. */
	if (subroot == NULL || rte->security_barrier || rel->baserestrictinfo != NIL || subroot->init_plans != NIL)
		return NULL;
	query = subroot->parse;
	if (query->commandType != CMD_SELECT || query->setOperations != NULL || query->hasAggs || query->hasWindowFuncs ||
		query->hasTargetSRFs || query->groupClause != NIL || query->groupingSets != NIL || query->havingQual != NULL ||
		query->distinctClause != NIL || query->limitCount != NULL || query->limitOffset != NULL ||
		query->rowMarks != NIL || subroot->rowMarks != NIL || subroot->hasPseudoConstantQuals)
		return NULL;
	if (!bms_get_singleton_member(subroot->all_baserels, &relid))
		return NULL;
	return subroot->simple_rel_array[relid];
}

/* What replace_columns() needs. */
typedef struct Columns
{
	Index		relid;			/* of the subquery */
	List	   *targetlist;		/* of the subquery */
	bool		failed;			/* an expression cannot be moved into the
								 * subquery */
} Columns;

/* Replaces the columns of the subquery by their expressions. */
static Node *
replace_columns(Node *node, void *context)
{
	Columns    *columns = context;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;
		TargetEntry *entry = NULL;

		if (var->varno == columns->relid && var->varlevelsup == 0 && var->varattno > 0)
			entry = get_tle_by_resno(columns->targetlist, var->varattno);
		if (entry != NULL && !entry->resjunk)
			return copyObject((Node *) entry->expr);
		columns->failed = true;
		return node;
	}
	/* Results of the outer query's subqueries are not parameters of this subquery. */
	if ((IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC) || IsA(node, SubPlan) ||
		IsA(node, AlternativeSubPlan) || IsA(node, PlaceHolderVar))
	{
		columns->failed = true;
		return node;
	}
	return expression_tree_mutator(node, replace_columns, context);
}

/* Returns the columns of the subquery's plan that contain the members of the target. */
static PathTarget *
subquery_columns(PlannerInfo *root, const RelOptInfo *rel, PathTarget *target)
{
	PathTarget *columns = create_empty_pathtarget();
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		Var		   *var = makeVar(rel->relid, foreach_current_index(lc) + 1, exprType(expr), exprTypmod(expr),
								  exprCollation(expr), 0);

		add_column_to_pathtarget(columns, (Expr *) var,
								 get_pathtarget_sortgroupref(target, foreach_current_index(lc)));
	}
	columns->width = target->width;
	return columns;
}

/*
 * Returns a path of the subquery that returns the partial states of the member, or
 * NULL if the cell does not aggregate the subquery's rows.
 */
Path *
cellar_create_subquery_member_path(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member)
{
	RelOptInfo *only = only_relation(rel, planner_rt_fetch(rel->relid, root));
	Columns		columns = {.relid = rel->relid};
	CellarAggregateSpec inner = *member;
	PlannerInfo *subroot = rel->subroot;
	List	   *exprs;
	Path	   *path;
	double		rows;

	/* The plan of a subquery below another one would have the columns of both. */
	if (only == NULL || IS_DUMMY_REL(only) || member->subquery_target != NULL)
		return NULL;
	columns.targetlist = subroot->processed_tlist;
	exprs = castNode(List, replace_columns((Node *) member->target->exprs, &columns));
	if (columns.failed)
		return NULL;
	cellar_set_member_target(subroot, &inner, exprs);
	inner.subquery_target = inner.target;
	if (cellar_is_append_relation(subroot, only))
		path = cellar_create_member_append(subroot, only, &inner);
	else
		path = cellar_create_table_member_path(subroot, only, &inner);
	if (path == NULL)
		return NULL;
	rows = path->rows;
	path = CellarCreateSubqueryScanPath(root, rel, path);
	path->rows = rows;
	path->pathtarget = subquery_columns(root, rel, member->target);
	return path;
}
