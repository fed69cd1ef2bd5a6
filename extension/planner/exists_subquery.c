/*-------------------------------------------------------------------------
 *
 * exists_subquery.c
 *	  Replaces EXISTS of a correlated subquery by IN over groups (unnest.c).
 *
 *		EXISTS (SELECT FROM lineitem l WHERE l.part = p.part AND l.tax > 0)
 *
 * becomes
 *
 *		p.part IS NOT NULL AND p.part IN
 *			(SELECT l.part FROM lineitem l WHERE l.tax > 0 AND l.part IS NOT NULL GROUP BY l.part)
 *
 * PostgreSQL executes the second subquery once, and looks values up in a hash table.  It has such a
 * plan for some EXISTS, but below a nested loop it compares the costs for one outer row only.
 * Neither side of IN is NULL, so that IN, as EXISTS, is never NULL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

#include "cellar.h"
#include "cellar/planner.h"

static Node *
make_not_null_test(Node *expr)
{
	NullTest   *test = makeNode(NullTest);

	test->arg = (Expr *) copyObject(expr);
	test->nulltesttype = IS_NOT_NULL;
	test->location = -1;
	return (Node *) test;
}

/*
 * Returns a condition that equals EXISTS of a correlated subquery and has no correlated subquery,
 * or NULL.  Changes neither the query nor the subquery.
 */
Node *
cellar_replace_exists(Query *query, const SubLink *exists)
{
	CellarUnnesting unnesting = {.query = query,.subquery = copyObject(castNode(Query, exists->subselect))};
	SubLink    *in = makeNode(SubLink);
	List	   *comparisons = NIL;
	List	   *conditions = NIL;
	ListCell   *lc;
	ListCell   *key;

	if (unnesting.subquery->hasAggs || !cellar_find_group_keys(&unnesting))
		return NULL;
	forboth(lc, unnesting.equalities, key, unnesting.keys)
	{
		OpExpr	   *comparison = copyObject(lfirst_node(OpExpr, lc));
		Node	   *outer;
		Param	   *param = makeNode(Param);

		/* IN compares a value of the outer query with a column of the subquery, in this order. */
		if (!contain_vars_of_level(linitial(comparison->args), 1))
		{
			if (!OidIsValid(get_commutator(comparison->opno)))
				return NULL;
			CommuteOpExpr(comparison);
		}
		outer = linitial(comparison->args);
		IncrementVarSublevelsUp(outer, -1, 1);
		param->paramkind = PARAM_SUBLINK;
		param->paramid = foreach_current_index(lc) + 1;
		param->paramtype = exprType(lfirst(key));
		param->paramtypmod = exprTypmod(lfirst(key));
		param->paramcollid = exprCollation(lfirst(key));
		param->location = -1;
		lsecond(comparison->args) = param;
		comparisons = lappend(comparisons, comparison);
		conditions = lappend(conditions, make_not_null_test(outer));
		unnesting.conditions = lappend(unnesting.conditions, make_not_null_test(lfirst(key)));
	}
	cellar_group_subquery(&unnesting);
	in->subLinkType = ANY_SUBLINK;
	in->testexpr = (Node *) make_ands_explicit(comparisons);
	in->operName = list_make1(makeString("="));
	in->subselect = (Node *) unnesting.subquery;
	in->location = -1;
	return (Node *) make_ands_explicit(lappend(conditions, in));
}
