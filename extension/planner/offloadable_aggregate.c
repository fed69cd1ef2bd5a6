/*-------------------------------------------------------------------------
 *
 * offloadable_aggregate.c
 *	  Decides whether the cell can group by a key and compute a partial
 *	  aggregate.
 *
 * The cell groups by the bytes of the keys, so a key must not have equal values
 * of different representations (float8 0 and -0, numeric 1.0 and 1.00).  For
 * the same reason min and max of numeric and bpchar need a fixed scale or
 * length: PostgreSQL and the cell could return different ones of equal values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Returns whether all values of the numeric expression have the same display
 * scale, so that equal values have the same bytes.
 */
static bool
scale_is_fixed(Node *expr)
{
	List	   *args;
	Oid			function;

	check_stack_depth();
	switch (nodeTag(expr))
	{
		case T_Var:
			return exprTypmod(expr) >= (int32) VARHDRSZ;
		case T_Const:
			return true;
		case T_FuncExpr:
			function = ((FuncExpr *) expr)->funcid;
			args = ((FuncExpr *) expr)->args;
			break;
		case T_OpExpr:
			set_opfuncid((OpExpr *) expr);
			function = ((OpExpr *) expr)->opfuncid;
			args = ((OpExpr *) expr)->args;
			break;
		default:
			return false;
	}
	switch (function)
	{
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
		case F_NUMERIC_INT8:
		case F_CEIL_NUMERIC:
		case F_CEILING_NUMERIC:
		case F_FLOOR_NUMERIC:
		case F_EXTRACT_TEXT_DATE:
		case F_EXTRACT_TEXT_TIME:
		case F_EXTRACT_TEXT_TIMESTAMP:
		case F_EXTRACT_TEXT_TIMESTAMPTZ:
			return true;
		case F_ROUND_NUMERIC_INT4:
		case F_TRUNC_NUMERIC_INT4:
			return IsA(lsecond(args), Const);
		case F_NUMERIC_ADD:
		case F_NUMERIC_SUB:
		case F_NUMERIC_MUL:
			return scale_is_fixed(linitial(args)) && scale_is_fixed(lsecond(args));
		default:
			return false;
	}
}

/*
 * Returns whether equal values of the expression have the same bytes, given
 * that the cell can group by its type.  bpchar needs a length, numeric a scale.
 */
static bool
equal_values_are_identical(Node *expr)
{
	Oid			type = getBaseType(exprType(expr));

	if (type == BPCHAROID)
		return exprTypmod(expr) >= (int32) VARHDRSZ;
	if (type == NUMERICOID)
		return scale_is_fixed(expr);
	return true;
}

/*
 * Returns whether equal values of the expression, of any type, have the same
 * bytes: what B-tree indexes require for deduplication.
 */
bool
cellar_has_one_image(Node *expr)
{
	Oid			type = getBaseType(exprType(expr));
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid			function;

	if (!OidIsValid(entry->btree_opf) || !equal_values_are_identical(expr))
		return false;
	/* Arguments of different collations: PostgreSQL raises an error when it compares values. */
	if (type_is_collatable(type) && !OidIsValid(exprCollation(expr)))
		return false;
	if (type == NUMERICOID)
		return true;
	function = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype, BTEQUALIMAGE_PROC);
	return OidIsValid(function) &&
		DatumGetBool(OidFunctionCall1Coll(function, exprCollation(expr), ObjectIdGetDatum(entry->btree_opintype)));
}

/* Returns why the cell cannot group by the key, or NULL. */
static const char *
key_unsuitable(Node *key, Index varno)
{
	const char *reason;

	/* The node returns the constant itself. */
	if (IsA(key, Const))
		return NULL;
	if (!cellar_depends_on_row(key))
		return "the group key contains no column";
	if (!cellar_type_groupable(cellar_cell_type(exprType(key), NULL)) || !equal_values_are_identical(key))
		return psprintf("equal values of type %s can have different representations",
						format_type_with_typemod(exprType(key), exprTypmod(key)));
	if (OidIsValid(exprCollation(key)) &&
		cellar_collation(exprCollation(key)) == CELLAR_COLLATION_NONDETERMINISTIC)
		return "equal strings can have different representations under a nondeterministic collation";
	if (!cellar_expression_offloadable(key, varno, &reason))
		return reason;
	return NULL;
}

/* Returns whether the aggregate is the variance or the standard deviation of numerics. */
static bool
is_numeric_deviation(Oid aggregate)
{
	switch (aggregate)
	{
		case F_VARIANCE_NUMERIC:
		case F_VAR_POP_NUMERIC:
		case F_VAR_SAMP_NUMERIC:
		case F_STDDEV_NUMERIC:
		case F_STDDEV_POP_NUMERIC:
		case F_STDDEV_SAMP_NUMERIC:
			return true;
		default:
			return false;
	}
}

/* Returns why the cell cannot compute the partial aggregate, or NULL. */
static const char *
aggregate_unsuitable(Aggref *aggref, Index varno)
{
	const char *reason;
	Node	   *argument;

	if (aggref->aggdistinct != NIL || aggref->aggorder != NIL || aggref->aggdirectargs != NIL ||
		aggref->aggvariadic || aggref->aggkind != AGGKIND_NORMAL)
		return "an aggregate uses DISTINCT, ORDER BY or VARIADIC";
	if (CellarStateDiffers(aggref->aggfnoid) ||
		!cellar_aggregate_offloadable(aggref->aggfnoid, cellar_collation(aggref->inputcollid)))
	{
		if (!CellarStateDiffers(aggref->aggfnoid) &&
			cellar_aggregate_offloadable(aggref->aggfnoid, CELLAR_COLLATION_BYTEWISE))
			return psprintf("aggregate %s is not offloadable under collation \"%s\"",
							get_func_name(aggref->aggfnoid), get_collation_name(aggref->inputcollid));
		return psprintf("aggregate %s is not offloadable", get_func_name(aggref->aggfnoid));
	}
	if (aggref->aggfilter != NULL &&
		!cellar_expression_offloadable((Node *) aggref->aggfilter, varno, &reason))
		return reason;
	if (aggref->args == NIL)
		return NULL;
	argument = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	if (aggref->aggtranstype == NUMERICOID && !equal_values_are_identical(argument))
		return "equal numbers can have different representations";
	if (aggref->aggtranstype == BPCHAROID && !equal_values_are_identical(argument))
		return "equal strings can have different representations";
	if (!cellar_expression_offloadable(argument, varno, &reason))
		return reason;

	/* The cell adds up squares of numbers in vectors, which have a known number of decimals. */
	if (is_numeric_deviation(aggref->aggfnoid) && !IsA(argument, Var) &&
		(!scale_is_fixed(argument) || cellar_is_interpreted(NULL, argument)))
		return psprintf("aggregate %s is not offloadable for an expression that is not computed over vectors",
						get_func_name(aggref->aggfnoid));
	return NULL;
}

/* Returns whether the cell can group by the key. */
bool
cellar_key_offloadable(Node *key, RelOptInfo *rel)
{
	return key_unsuitable(key, rel->relid) == NULL;
}

/* Returns whether the cell can compute the partial aggregate. */
bool
cellar_partial_aggregate_offloadable(Aggref *aggref, RelOptInfo *rel)
{
	return aggregate_unsuitable(aggref, rel->relid) == NULL;
}

/*
 * Returns why the cell cannot compute a group key or partial aggregate of the
 * target, or NULL.  Sets *key, unless key is NULL, to the group key, or to NULL
 * for an aggregate.  values are the numbers of members that the cell does not
 * compute.
 */
const char *
cellar_target_unsuitable(PathTarget *target, List *values, Index varno, Node **key)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		const char *reason = list_member_int(values, foreach_current_index(lc)) ? NULL :
			IsA(expr, Aggref) ? aggregate_unsuitable((Aggref *) expr, varno) : key_unsuitable(expr, varno);

		if (reason == NULL)
			continue;
		if (key != NULL)
			*key = IsA(expr, Aggref) ? NULL : expr;
		return reason;
	}
	return NULL;
}

/*
 * Returns whether the cell can compute all group keys and partial aggregates
 * of the target, and notes why not.  values as in cellar_target_unsuitable().
 */
bool
cellar_target_offloadable(PathTarget *target, List *values, RelOptInfo *rel, Oid relid)
{
	Node	   *key;
	const char *reason = cellar_target_unsuitable(target, values, rel->relid, &key);

	if (reason != NULL)
		cellar_note_aggregate(relid, rel->relid, key, reason);
	return reason == NULL;
}

/*
 * Returns whether the aggregate has the same result if duplicates of its input
 * are removed: aggregates with DISTINCT, min, max, bool_and, bool_or and every.
 */
bool
cellar_ignores_duplicates(const Aggref *aggref)
{
	HeapTuple	tuple;
	bool		is_extreme;

	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggvariadic)
		return false;
	if (aggref->aggdistinct != NIL)
		return true;
	if (aggref->aggorder != NIL)
		return false;
	switch (aggref->aggfnoid)
	{
		case F_BOOL_AND:
		case F_BOOL_OR:
		case F_EVERY:
			return true;
	}

	/*
	 * An aggregate with a sort operator returns the first value in that
	 * order.
	 */
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		return false;
	is_extreme = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop);
	ReleaseSysCache(tuple);
	return is_extreme;
}

/*
 * Returns whether the partial state of the aggregate after one value is the
 * value, and the states of equal values are combined without a change: min,
 * max, bool_and, bool_or and every, without a filter.
 */
bool
cellar_state_is_value(const Aggref *aggref)
{
	HeapTuple	tuple;
	Form_pg_aggregate aggregate;
	bool		initial_null;
	bool		is_value;

	if (list_length(aggref->args) != 1 || aggref->aggdistinct != NIL || aggref->aggfilter != NULL ||
		!cellar_ignores_duplicates(aggref) ||
		aggref->aggtranstype != exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr))
		return false;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		return false;
	aggregate = (Form_pg_aggregate) GETSTRUCT(tuple);
	(void) SysCacheGetAttr(AGGFNOID, tuple, Anum_pg_aggregate_agginitval, &initial_null);
	is_value = initial_null && func_strict(aggregate->aggtransfn) &&
		OidIsValid(aggregate->aggcombinefn) && !OidIsValid(aggregate->aggserialfn);
	ReleaseSysCache(tuple);
	return is_value;
}
