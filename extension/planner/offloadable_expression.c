/*-------------------------------------------------------------------------
 *
 * offloadable_expression.c
 *	  Decides whether a cell can evaluate an expression over the rows of one
 *	  relation, with exactly PostgreSQL's result.
 *
 * A subexpression without columns is offloadable whatever it calls, unless it
 * is volatile: PostgreSQL evaluates it once, when the scan starts, and sends
 * the constant (executor/expression_request.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* The cell rejects deeper expressions; compiling a simple CASE adds levels. */
#define DEPTH_MAX			40
#define ARGUMENTS_MAX		1000

/*
 * The compiler copies some subexpressions: the test value of a simple CASE for each
 * WHEN, the first argument of NULLIF twice.  Nested copies multiply.
 */
#define STEPS_MAX			10000

/*
 * GREATEST and LEAST become nested CASE expressions that contain the first
 * arguments several times.
 */
#define MIN_MAX_ARGUMENTS_MAX	4
#define MIN_MAX_LEVELS			3	/* levels of nesting per argument */

#define LETTER_CASE_REASON	"lower, upper and ILIKE are offloadable only in comparisons with ASCII strings"

/*
 * Classifies a collation by what the cell needs to know.
 */
CellarCollation
cellar_collation(Oid collation)
{
	if (!OidIsValid(collation))
		return CELLAR_COLLATION_NONE;
	if (CellarCollationIsC(collation))
		return CELLAR_COLLATION_BYTEWISE;
	if (get_collation_isdeterministic(collation))
		return CELLAR_COLLATION_DETERMINISTIC;
	return CELLAR_COLLATION_NONDETERMINISTIC;
}

typedef struct OffloadContext
{
	PlannerInfo *root;			/* NULL: subqueries are not offloadable */
	Index		varno;
	int			depth;
	int64		steps;			/* estimated steps of the compiled expression */
	int64		case_steps;		/* steps that replace a CaseTestExpr */
	bool		in_case;		/* inside a simple CASE: CaseTestExpr has a
								 * value */
	Node	   *compared;		/* call of lower or upper whose only use is a
								 * comparison that the cell can evaluate */
	const char *reason;			/* why the expression is not offloadable */
} OffloadContext;

static bool expression_offloadable(Node *node, OffloadContext *context, bool conditional);

/* Records the reason; returns false for the caller to return. */
static bool
reject(OffloadContext *context, const char *reason)
{
	context->reason = reason;
	return false;
}

static bool
type_offloadable(Oid type)
{
	return cellar_type_offloadable(cellar_cell_type(type, NULL));
}

static bool
depends_on_row_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, CaseTestExpr) || IsA(node, CoerceToDomainValue))
		return true;

	/* The CaseTestExpr in elemexpr stands for an element of the array. */
	if (IsA(node, ArrayCoerceExpr))
		return depends_on_row_walker((Node *) ((ArrayCoerceExpr *) node)->arg, context);
	return expression_tree_walker(node, depends_on_row_walker, context);
}

/*
 * Returns whether the expression depends on a row: on a column, or on the test
 * value of an enclosing CASE.
 */
bool
cellar_depends_on_row(Node *expr)
{
	return depends_on_row_walker(expr, NULL);
}

/*
 * Returns whether the function is not built in, or executes queries.  The errors of
 * such a function must not be caught without a subtransaction, because the function
 * may have connected to SPI, or pushed a snapshot, when it fails.
 */
static bool
function_is_not_catchable(Oid funcid, void *context)
{
	HeapTuple	tuple;
	bool		builtin;

	if (funcid >= FirstGenbkiObjectId)
		return true;
	switch (funcid)
	{
		case F_PG_GET_RULEDEF_OID:
		case F_PG_GET_RULEDEF_OID_BOOL:
		case F_PG_GET_VIEWDEF_TEXT:
		case F_PG_GET_VIEWDEF_TEXT_BOOL:
		case F_PG_GET_VIEWDEF_OID:
		case F_PG_GET_VIEWDEF_OID_BOOL:
		case F_PG_GET_VIEWDEF_OID_INT4:
			return true;
		default:
			/* table_to_xml() and others return xml. */
			if (get_func_rettype(funcid) == XMLOID)
				return true;
	}
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	if (!HeapTupleIsValid(tuple))
		return true;
	builtin = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return !builtin;
}

/*
 * Returns whether built-in functions of the type may call functions of users:
 * array_in, for example, calls the CHECK constraints of a domain.  The fields of a
 * record can have any type.  Enums call none.
 */
static bool
type_calls_functions_of_users(Oid type)
{
	Oid			element = get_element_type(type);

	if (OidIsValid(element))
		type = element;
	return (type >= FirstGenbkiObjectId && !type_is_enum(type)) || type == RECORDOID;
}

/*
 * Returns whether the expression contains anything but built-in functions over
 * values of built-in types.
 */
static bool
not_catchable_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Const:
		case T_Param:
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_ArrayExpr:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_SQLValueFunction:
		case T_NullTest:
		case T_BooleanTest:
		case T_List:
			break;
		default:
			return true;
	}
	if (!IsA(node, List) && !IsA(node, CaseWhen) && type_calls_functions_of_users(exprType(node)))
		return true;
	if (check_functions_in_node(node, function_is_not_catchable, NULL))
		return true;
	return expression_tree_walker(node, not_catchable_walker, context);
}

/*
 * Returns whether errors of the expression can be caught without a subtransaction.
 */
bool
cellar_catchable(Node *expr)
{
	return !not_catchable_walker(expr, NULL);
}

/*
 * Returns whether an expression without columns can be evaluated when the scan
 * starts.  conditional says that PostgreSQL might not evaluate the expression.
 */
static bool
value_offloadable(Node *node, OffloadContext *context, bool conditional)
{
	if (contain_volatile_functions(node))
		return reject(context, "the expression contains a volatile function");
	if (contain_subplans(node))
		return reject(context, "the expression contains a subquery");
	if (conditional && !cellar_catchable(node))
		return reject(context,
					  "the expression conditionally evaluates a function or a type that is not built in");
	return true;
}

/* Returns the expression below casts that do not change the value's representation. */
Node *
cellar_without_relabel(Node *node)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return node;
}

/* Returns whether the time zone of the session never differs from UTC, as the cell assumes. */
static bool
session_is_in_utc(void)
{
	long		offset;

	return pg_get_timezone_offset(session_timezone, &offset) && offset == 0;
}

/* Returns whether AT TIME ZONE 'UTC' means UTC: abbreviations take precedence over names, and could be those of another zone. */
static bool
utc_is_utc(void)
{
	return DatumGetTimestamp(DirectFunctionCall2(timestamptz_zone, CStringGetTextDatum("UTC"), TimestampTzGetDatum(0))) == 0;
}

/*
 * Returns whether an offloadable function has the result that it has in UTC: it does
 * not depend on settings of time zones, or these agree with UTC at present.
 */
bool
cellar_agrees_with_utc(Oid function)
{
	switch (function)
	{
		case F_DATE_PART_TEXT_TIMESTAMPTZ:
		case F_EXTRACT_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TIMESTAMPTZ:
		case F_TIMESTAMP_TIMESTAMPTZ:
		case F_TIMESTAMPTZ_TIMESTAMP:
			return session_is_in_utc();
		case F_TIMEZONE_TEXT_TIMESTAMPTZ:
			return utc_is_utc();
		default:
			return true;
	}
}

/* Returns whether the zone of AT TIME ZONE has the name of UTC. */
static bool
zone_is_utc(Const *zone)
{
	char	   *name;

	if (!IsA(zone, Const) || zone->constisnull)
		return false;
	name = TextDatumGetCString(zone->constvalue);
	return pg_strcasecmp(name, "UTC") == 0 || pg_strcasecmp(name, "Etc/UTC") == 0;
}

/* Returns whether the cell supports a regular expression in a call of the function. */
static bool
regular_expression_known(Oid function, Datum pattern)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(pattern);

	/* Compiling can last some milliseconds, for each of many conditions. */
	CHECK_FOR_INTERRUPTS();
	return cellar_regular_expression_known(function, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

/* Returns whether the node is a call of lower or upper. */
static bool
is_case_call(Node *node)
{
	return IsA(node, FuncExpr) && cellar_function_class(((FuncExpr *) node)->funcid) == CELLAR_FUNCTION_CASE;
}

/*
 * Returns whether the call of an offloadable function meets the function's
 * requirements on its arguments.  Sets context->compared to an argument that
 * is a call of lower or upper and whose result the cell can compare.
 */
static bool
call_offloadable(Oid function, Oid collation, List *args, OffloadContext *context)
{
	CellarFunctionClass class = cellar_function_class(function);
	bool		pattern = class == CELLAR_FUNCTION_PATTERN || class == CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN;
	ListCell   *lc;

	if (function == F_TIMEZONE_TEXT_TIMESTAMPTZ && !zone_is_utc(linitial(args)))
		return reject(context, "the time zone of AT TIME ZONE is not UTC");
	if (!cellar_agrees_with_utc(function))
		return reject(context, psprintf("function %s depends on the time zone, which is not UTC",
										get_func_name(function)));
	if (class == CELLAR_FUNCTION_FIELD)
	{
		Const	   *field = linitial(args);

		if (!IsA(field, Const) ||
			(!field->constisnull &&
			 !cellar_field_known(function, VARDATA_ANY(DatumGetPointer(field->constvalue)),
								 VARSIZE_ANY_EXHDR(DatumGetPointer(field->constvalue)))))
			return reject(context, psprintf("function %s is not offloadable for this field",
											get_func_name(function)));
	}
	if (class == CELLAR_FUNCTION_REGULAR_EXPRESSION)
	{
		Const	   *pattern = lsecond(args);

		if (!IsA(pattern, Const) ||
			(!pattern->constisnull && !regular_expression_known(function, pattern->constvalue)))
			return reject(context, psprintf("function %s is not offloadable for this regular expression",
											get_func_name(function)));
	}
	if ((class == CELLAR_FUNCTION_CASE || class == CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN) &&
		!cellar_has_plain_ascii_case(collation))
		return reject(context, psprintf("function %s maps ASCII letters irregularly under collation \"%s\"",
										get_func_name(function), get_collation_name(collation)));
	if ((!pattern && class != CELLAR_FUNCTION_EQUALITY) || list_length(args) != 2)
		return true;
	foreach(lc, args)
	{
		Node	   *other = list_nth(args, 1 - foreach_current_index(lc));
		bool		comparable = cellar_case_comparable(other, pattern);

		if (is_case_call(lfirst(lc)) && comparable)
			context->compared = lfirst(lc);
		if (class == CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN && foreach_current_index(lc) == 0 && !comparable)
			return reject(context, LETTER_CASE_REASON);
	}
	return true;
}

/* Returns whether the cell can call the function. */
static bool
function_offloadable(Oid function, Oid collation, List *args, OffloadContext *context)
{
	CellarCollation kind = cellar_collation(collation);

	if (function < FirstGenbkiObjectId &&
		cellar_function_offloadable(function, kind))
		return call_offloadable(function, collation, args, context);

	/* Name the collation when it is the only obstacle. */
	if (kind != CELLAR_COLLATION_NONE && function < FirstGenbkiObjectId &&
		cellar_function_offloadable(function, CELLAR_COLLATION_BYTEWISE))
		return reject(context,
					  psprintf("function %s is not offloadable under collation \"%s\"",
							   get_func_name(function), get_collation_name(collation)));
	return reject(context,
				  psprintf("function %s is not offloadable", get_func_name(function)));
}

/*
 * Returns whether all arguments are offloadable.  rest_conditional says that
 * PostgreSQL might evaluate only the first one.
 */
static bool
arguments_offloadable(List *args, OffloadContext *context, bool conditional,
					  bool rest_conditional)
{
	ListCell   *lc;

	if (list_length(args) > ARGUMENTS_MAX)
		return reject(context, "the expression has too many operands");
	foreach(lc, args)
	{
		if (!expression_offloadable(lfirst(lc), context, conditional))
			return false;
		conditional = conditional || rest_conditional;
	}
	return true;
}

static bool
case_offloadable(CaseExpr *expr, OffloadContext *context, bool conditional)
{
	bool		in_case = context->in_case;
	int64		outer_case_steps = context->case_steps;
	int64		case_steps = 0;
	ListCell   *lc;

	if (list_length(expr->args) > ARGUMENTS_MAX)
		return reject(context, "the expression has too many CASE branches");
	if (expr->arg != NULL)
	{
		int64		steps = context->steps;

		/* The compiler replaces each CaseTestExpr by this expression. */
		if (!expression_offloadable((Node *) expr->arg, context, conditional))
			return false;
		if (!cellar_depends_on_row((Node *) expr->arg))
			return reject(context, "the expression contains a CASE whose test value contains no column");
		context->in_case = true;
		case_steps = context->steps - steps;
		context->steps = steps;
	}
	foreach(lc, expr->args)
	{
		CaseWhen   *when = lfirst_node(CaseWhen, lc);

		if (expr->arg != NULL)
			context->case_steps = case_steps;
		if (!expression_offloadable((Node *) when->expr, context, conditional))
			return false;
		context->case_steps = outer_case_steps;
		conditional = true;
		if (!expression_offloadable((Node *) when->result, context, true))
			return false;
	}
	context->in_case = in_case;
	return expr->defresult == NULL ||
		expression_offloadable((Node *) expr->defresult, context, true);
}

/*
 * Returns the function that decides whether an argument of GREATEST or LEAST
 * replaces the arguments before it, or InvalidOid.
 */
Oid
cellar_min_max_function(const MinMaxExpr *expr)
{
	bool		greatest = expr->op == IS_GREATEST;
	TypeCacheEntry *type = lookup_type_cache(getBaseType(expr->minmaxtype),
											 greatest ? TYPECACHE_GT_OPR : TYPECACHE_LT_OPR);
	Oid			operator = greatest ? type->gt_opr : type->lt_opr;

	return OidIsValid(operator) ? get_opcode(operator) : InvalidOid;
}

static bool
min_max_offloadable(MinMaxExpr *expr, OffloadContext *context, bool conditional)
{
	int			levels = MIN_MAX_LEVELS * list_length(expr->args);
	int64		steps = context->steps;
	Oid			function = cellar_min_max_function(expr);
	bool		result;

	if (list_length(expr->args) > MIN_MAX_ARGUMENTS_MAX)
		return reject(context, "GREATEST or LEAST has too many arguments");
	if (!OidIsValid(function))
		return reject(context, "the expression contains a construct that is not offloadable");
	if (context->depth + levels >= DEPTH_MAX)
		return reject(context, "the expression is nested too deeply");
	context->depth += levels;
	result = function_offloadable(function, expr->inputcollid, NIL, context) &&
		arguments_offloadable(expr->args, context, conditional, false);
	context->depth -= levels;

	/* Each further argument triples the copies of the arguments before it. */
	for (int i = 1; i < list_length(expr->args); i++)
		context->steps += 2 * (context->steps - steps);
	return result;
}

/*
 * The cell ignores RelabelType and sees the original type.  Accepts only types
 * that all functions treat alike: int4 relabelled as oid would remain int4.
 */
static bool
relabel_offloadable(RelabelType *expr)
{
	Oid			from = getBaseType(exprType((Node *) expr->arg));
	Oid			to = getBaseType(expr->resulttype);

	return from == to ||
		((from == TEXTOID || from == VARCHAROID) && (to == TEXTOID || to == VARCHAROID));
}

/*
 * Returns the call of an input function that a cast of text stands for, or NULL if
 * the expression casts another type.
 */
FuncExpr *
cellar_input_call(CoerceViaIO *expr)
{
	Oid			from = getBaseType(exprType((Node *) expr->arg));
	Oid			function;
	Oid			parameter;
	List	   *args;

	if (from != TEXTOID && from != VARCHAROID)
		return NULL;
	getTypeInputInfo(expr->resulttype, &function, &parameter);
	args = list_make1(expr->arg);
	if (get_func_nargs(function) == 3)
	{
		args = lappend(args, makeConst(OIDOID, -1, InvalidOid, sizeof(Oid), ObjectIdGetDatum(parameter), false, true));
		args = lappend(args, makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(-1), false, true));
	}
	return makeFuncExpr(function, expr->resulttype, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CAST);
}

static bool
input_offloadable(CoerceViaIO *expr, OffloadContext *context, bool conditional)
{
	FuncExpr   *call = cellar_input_call(expr);

	if (call == NULL)
		return reject(context, psprintf("casting type %s to type %s is not offloadable",
										format_type_be(exprType((Node *) expr->arg)),
										format_type_be(expr->resulttype)));
	return function_offloadable(call->funcid, InvalidOid, call->args, context) &&
		arguments_offloadable(call->args, context, conditional, false);
}

static bool
var_offloadable(Var *var, OffloadContext *context)
{
	if (var->varno != context->varno || var->varlevelsup != 0)
		return reject(context, "the expression refers to another table");
	if (var->varattno <= 0)
		return reject(context, "the expression refers to a system column or the whole row");
	return true;
}

/* Returns whether the cell can evaluate expression IN (subquery). */
static bool
subplan_offloadable(SubPlan *subplan, OffloadContext *context, bool conditional)
{
	const char *reason = cellar_subquery_unsuitable(context->root, subplan);

	if (reason != NULL)
		return reject(context, reason);
	return expression_offloadable(linitial(castNode(OpExpr, subplan->testexpr)->args), context, conditional);
}

static bool
expression_offloadable_inner(Node *node, OffloadContext *context, bool conditional)
{
	if (!type_offloadable(exprType(node)))
		return reject(context, psprintf("type %s is not offloadable",
										format_type_be(exprType(node))));

	if (!cellar_depends_on_row(node))
		return value_offloadable(node, context, conditional);

	switch (nodeTag(node))
	{
		case T_Var:
			return var_offloadable((Var *) node, context);

		case T_CaseTestExpr:
			if (!context->in_case)
				return reject(context, "the expression contains a construct that is not offloadable");
			context->steps += context->case_steps;
			return true;

		case T_RelabelType:
			if (!relabel_offloadable((RelabelType *) node))
				return reject(context, psprintf("relabeling type %s as type %s is not offloadable",
												format_type_be(exprType((Node *) ((RelabelType *) node)->arg)),
												format_type_be(((RelabelType *) node)->resulttype)));
			return expression_offloadable((Node *) ((RelabelType *) node)->arg, context, conditional);

		case T_CoerceViaIO:
			return input_offloadable((CoerceViaIO *) node, context, conditional);

		case T_FuncExpr:
			{
				FuncExpr   *expr = (FuncExpr *) node;

				if (expr->funcretset || expr->funcvariadic)
					return reject(context, "the expression contains a construct that is not offloadable");
				if (is_case_call(node) && context->compared != node)
					return reject(context, LETTER_CASE_REASON);
				return function_offloadable(expr->funcid, expr->inputcollid, expr->args, context) &&
					arguments_offloadable(expr->args, context, conditional, false);
			}

		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			{
				OpExpr	   *expr = (OpExpr *) node;
				int64		steps = context->steps;

				if (expr->opretset)
					return reject(context, "the expression contains a construct that is not offloadable");
				set_opfuncid(expr);
				if (!function_offloadable(expr->opfuncid, expr->inputcollid,
										  IsA(node, OpExpr) ? expr->args : NIL, context))
					return false;
				if (!IsA(node, NullIfExpr))
					return arguments_offloadable(expr->args, context, conditional, false);
				if (!expression_offloadable(linitial(expr->args), context, conditional))
					return false;
				context->steps += context->steps - steps;
				return expression_offloadable(lsecond(expr->args), context, conditional);
			}

		case T_ScalarArrayOpExpr:
			{
				ScalarArrayOpExpr *expr = (ScalarArrayOpExpr *) node;
				Node	   *array = lsecond(expr->args);
				Oid			element = get_element_type(getBaseType(exprType(array)));
				CellarFunctionClass class;

				set_sa_opfuncid(expr);
				class = cellar_function_class(expr->opfuncid);
				if (class != CELLAR_FUNCTION_EQUALITY && class != CELLAR_FUNCTION_ORDER)
					return reject(context, psprintf("function %s is not offloadable with an array",
													get_func_name(expr->opfuncid)));
				if (class == CELLAR_FUNCTION_EQUALITY && is_case_call(linitial(expr->args)))
					context->compared = linitial(expr->args);
				if (!function_offloadable(expr->opfuncid, expr->inputcollid, NIL, context) ||
					!expression_offloadable(linitial(expr->args), context, conditional))
					return false;
				if (cellar_depends_on_row(array))
					return reject(context, "the array depends on a column");
				if (!OidIsValid(element) || !type_offloadable(element))
					return reject(context, psprintf("type %s is not offloadable",
													format_type_be(exprType(array))));
				return value_offloadable(array, context, conditional);
			}

		case T_BoolExpr:
			return arguments_offloadable(((BoolExpr *) node)->args, context, conditional, true);

		case T_NullTest:
			if (((NullTest *) node)->argisrow)
				return reject(context, "the expression tests a row value for NULL");

			/* The null bit of a column can be tested for every type. */
			if (IsA(((NullTest *) node)->arg, Var))
				return var_offloadable((Var *) ((NullTest *) node)->arg, context);
			return expression_offloadable((Node *) ((NullTest *) node)->arg, context, conditional);

		case T_BooleanTest:
			return expression_offloadable((Node *) ((BooleanTest *) node)->arg, context, conditional);

		case T_CoalesceExpr:
			return arguments_offloadable(((CoalesceExpr *) node)->args, context, conditional, true);

		case T_MinMaxExpr:
			return min_max_offloadable((MinMaxExpr *) node, context, conditional);

		case T_CaseExpr:
			return case_offloadable((CaseExpr *) node, context, conditional);

		case T_SubPlan:
			return subplan_offloadable((SubPlan *) node, context, conditional);

		case T_AlternativeSubPlan:
			return reject(context, "the expression contains a subquery");

		default:
			return reject(context, "the expression contains a construct that is not offloadable");
	}
}

static bool
expression_offloadable(Node *node, OffloadContext *context, bool conditional)
{
	bool		result;

	if (context->depth >= DEPTH_MAX)
		return reject(context, "the expression is nested too deeply");
	context->depth++;
	result = expression_offloadable_inner(node, context, conditional);
	context->depth--;
	if (result && ++context->steps > STEPS_MAX)
		return reject(context, "the expression is too large when nested CASE, NULLIF, GREATEST and LEAST are expanded");
	return result;
}

/*
 * As cellar_expression_offloadable() for a restriction, which may contain
 * subqueries.
 */
bool
cellar_condition_offloadable(PlannerInfo *root, Node *expr, Index varno, const char **reason)
{
	OffloadContext context = {.root = root,.varno = varno};

	if (expression_offloadable(expr, &context, false))
		return true;
	*reason = context.reason;
	return false;
}

/*
 * Returns whether a cell can evaluate the expression over rows of relation
 * varno, else sets *reason.
 */
bool
cellar_expression_offloadable(Node *expr, Index varno, const char **reason)
{
	return cellar_condition_offloadable(NULL, expr, varno, reason);
}
