/*-------------------------------------------------------------------------
 *
 * offloadable.c
 *	  Which quals a cell can evaluate, and why not the others.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* The cell refuses deeper quals; a simple CASE deepens its own. */
#define DEPTH_MAX			40
#define ARGUMENTS_MAX		1000

#define COMPARED_ONLY		"the case of letters is offloadable in comparisons with ASCII only"

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
	Index		varno;
	int			depth;
	bool		in_case;		/* below a simple CASE: its test value is known */
	Node	   *compared;		/* a call of lower or upper: its result is compared with ASCII */
	const char *reason;
} OffloadContext;

static bool expression_offloadable(Node *node, OffloadContext *context, bool conditional);

static bool
stays(OffloadContext *context, const char *reason)
{
	context->reason = reason;
	return false;
}

static bool
type_offloadable(Oid type)
{
	return cellar_type_offloadable(getBaseType(type));
}

/* Does the expression depend on a row, if only through a CASE's test value? */
bool
cellar_depends_on_row_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, CaseTestExpr) || IsA(node, CoerceToDomainValue))
		return true;
	if (IsA(node, ArrayCoerceExpr)) /* has a CaseTestExpr of its own */
		return cellar_depends_on_row_walker((Node *) ((ArrayCoerceExpr *) node)->arg, context);
	return expression_tree_walker(node, cellar_depends_on_row_walker, context);
}

/*
 * True for a function that must not be evaluated where its errors are caught:
 * it may hold something when it fails.
 */
static bool
function_is_foreign(Oid funcid, void *context)
{
	HeapTuple	tuple;
	bool		builtin;

	if (funcid >= FirstGenbkiObjectId)
		return true;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	if (!HeapTupleIsValid(tuple))
		return true;
	builtin = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return !builtin;
}

/*
 * True unless the expression is one of built-in functions over plain values,
 * which hold neither locks nor pins when they report a data exception.
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
	if (check_functions_in_node(node, function_is_foreign, NULL))
		return true;
	return expression_tree_walker(node, not_catchable_walker, context);
}

bool
cellar_catchable(Node *node)
{
	return !not_catchable_walker(node, NULL);
}

/*
 * An expression without columns: it is evaluated here when the scan starts.
 */
static bool
value_offloadable(Node *node, OffloadContext *context, bool conditional)
{
	if (contain_volatile_functions(node))
		return stays(context, "it contains a volatile function");
	if (contain_subplans(node))
		return stays(context, "it contains a subquery");
	if (conditional && !cellar_catchable(node))
		return stays(context, "it contains a function that must be evaluated only when a condition holds");
	return true;
}

static bool
has_ascii(const char *text)
{
	for (; *text != '\0'; text++)
		if (!IS_HIGHBIT_SET(*text))
			return true;
	return false;
}

/*
 * Do letters of ASCII change their case among themselves, and only the few others
 * that the cell knows become letters of ASCII?  Not in Turkish and Lithuanian.
 */
static bool
ascii_case_is_plain(Oid collation)
{
	static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz";
	static const char accented[] = "\xc3\x8c\xc3\x8d\xc4\xa8";	/* I with a grave, an acute, a tilde */
	static const char dotted[] = "i\xcc\x87";	/* i and a dot above it */

	/* A plan asks for the same collation again and again; a collation does not change. */
	static Oid	known = InvalidOid;
	static bool known_plain;

	if (known != collation)
	{
		known_plain =
			strcmp(str_tolower(upper, sizeof(upper) - 1, collation), lower) == 0 &&
			strcmp(str_toupper(lower, sizeof(lower) - 1, collation), upper) == 0;
		if (known_plain && GetDatabaseEncoding() == PG_UTF8)
			known_plain =
				!has_ascii(str_tolower(accented, sizeof(accented) - 1, collation)) &&
				strlen(str_toupper(dotted, sizeof(dotted) - 1, collation)) > 1;
		known = collation;
	}
	return known_plain;
}

/* Is this a constant text with such bytes? */
static bool
constant_has(Node *node, bool (*is_wrong) (const char *bytes, int length))
{
	Const	   *constant = (Const *) node;
	struct varlena *text;

	if (!IsA(node, Const) || constant->constisnull || constant->constlen != -1)
		return false;
	text = PG_DETOAST_DATUM_PACKED(constant->constvalue);
	return is_wrong(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
}

static bool
is_beyond_ascii(const char *bytes, int length)
{
	for (int i = 0; i < length; i++)
		if (IS_HIGHBIT_SET(bytes[i]))
			return true;
	return false;
}

/* A pattern's _ stands for one character, but a letter can become two. */
static bool
is_beyond_ascii_or_counts(const char *bytes, int length)
{
	return is_beyond_ascii(bytes, length) || memchr(bytes, '_', length) != NULL;
}

static bool
is_case(Node *node)
{
	return IsA(node, FuncExpr) && cellar_function_class(((FuncExpr *) node)->funcid) == CELLAR_FUNCTION_CASE;
}

/*
 * What a function's form asks of its arguments.  lower and upper are known as far
 * as comparisons with ASCII go: the one that is compared so is noted.
 */
static bool
form_offloadable(Oid function, Oid collation, List *args, OffloadContext *context)
{
	CellarFunctionClass form = cellar_function_class(function);
	bool		pattern = form == CELLAR_FUNCTION_PATTERN || form == CELLAR_FUNCTION_CASED_PATTERN;
	ListCell   *lc;

	if (form == CELLAR_FUNCTION_FIELD)
	{
		Const	   *field = linitial(args);

		if (!IsA(field, Const) ||
			(!field->constisnull &&
			 !cellar_field_known(function, VARDATA_ANY(DatumGetPointer(field->constvalue)),
								 VARSIZE_ANY_EXHDR(DatumGetPointer(field->constvalue)))))
			return stays(context, psprintf("function %s is not offloadable with this field", get_func_name(function)));
	}
	if ((form == CELLAR_FUNCTION_CASE || form == CELLAR_FUNCTION_CASED_PATTERN) && !ascii_case_is_plain(collation))
		return stays(context, psprintf("function %s changes letters in its own way under collation \"%s\"",
									   get_func_name(function), get_collation_name(collation)));
	if ((!pattern && form != CELLAR_FUNCTION_EQUALITY) || list_length(args) != 2)
		return true;
	foreach(lc, args)
	{
		Node	   *other = list_nth(args, 1 - foreach_current_index(lc));
		bool		with_ascii = !cellar_depends_on_row_walker(other, NULL) &&
			!constant_has(other, pattern ? is_beyond_ascii_or_counts : is_beyond_ascii);

		if (is_case(lfirst(lc)) && with_ascii)
			context->compared = lfirst(lc);
		if (form == CELLAR_FUNCTION_CASED_PATTERN && foreach_current_index(lc) == 0 && !with_ascii)
			return stays(context, COMPARED_ONLY);
	}
	return true;
}

static bool
function_offloadable(Oid function, Oid collation, List *args, OffloadContext *context)
{
	CellarCollation kind = cellar_collation(collation);

	if (function < FirstGenbkiObjectId &&
		cellar_function_offloadable(function, kind))
		return form_offloadable(function, collation, args, context);

	/* The function may be fine, and only its collation in the way. */
	if (kind != CELLAR_COLLATION_NONE && function < FirstGenbkiObjectId &&
		cellar_function_offloadable(function, CELLAR_COLLATION_BYTEWISE))
		return stays(context,
					 psprintf("function %s is not offloadable under collation \"%s\"",
							  get_func_name(function), get_collation_name(collation)));
	return stays(context,
				 psprintf("function %s is not offloadable", get_func_name(function)));
}

/* The first argument is always evaluated, the others perhaps. */
static bool
arguments_offloadable(List *args, OffloadContext *context, bool conditional,
					  bool rest_conditional)
{
	ListCell   *lc;

	if (list_length(args) > ARGUMENTS_MAX)
		return stays(context, "it has too many operands");
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
	ListCell   *lc;

	if (list_length(expr->args) > ARGUMENTS_MAX)
		return stays(context, "it has too many branches");
	if (expr->arg != NULL)
	{
		/* Its value takes the place of each CaseTestExpr. */
		if (!expression_offloadable((Node *) expr->arg, context, conditional))
			return false;
		if (!cellar_depends_on_row_walker((Node *) expr->arg, NULL))
			return stays(context, "it contains a CASE over a value that is no column");
		context->in_case = true;
	}
	foreach(lc, expr->args)
	{
		CaseWhen   *when = lfirst_node(CaseWhen, lc);

		if (!expression_offloadable((Node *) when->expr, context, conditional))
			return false;
		conditional = true;
		if (!expression_offloadable((Node *) when->result, context, true))
			return false;
	}
	context->in_case = in_case;
	return expr->defresult == NULL ||
		expression_offloadable((Node *) expr->defresult, context, true);
}

/* An int4 relabelled as an oid would come as an int4: only what is the same to every function goes. */
static bool
relabel_offloadable(RelabelType *expr)
{
	Oid			from = getBaseType(exprType((Node *) expr->arg));
	Oid			to = getBaseType(expr->resulttype);

	return from == to ||
		((from == TEXTOID || from == VARCHAROID) && (to == TEXTOID || to == VARCHAROID));
}

static bool
var_offloadable(Var *var, OffloadContext *context)
{
	if (var->varno != context->varno || var->varlevelsup != 0)
		return stays(context, "it refers to another table");
	if (var->varattno <= 0)
		return stays(context, "it refers to a system column or the whole row");
	return true;
}

static bool
expression_offloadable_inner(Node *node, OffloadContext *context, bool conditional)
{
	if (!type_offloadable(exprType(node)))
		return stays(context, psprintf("type %s is not offloadable",
									   format_type_be(exprType(node))));

	if (!cellar_depends_on_row_walker(node, NULL))
		return value_offloadable(node, context, conditional);

	switch (nodeTag(node))
	{
		case T_Var:
			return var_offloadable((Var *) node, context);

		case T_CaseTestExpr:
			if (!context->in_case)
				return stays(context, "its form is not offloadable");
			return true;

		case T_RelabelType:
			if (!relabel_offloadable((RelabelType *) node))
				return stays(context, psprintf("type %s cannot be taken for type %s in the cell",
											   format_type_be(exprType((Node *) ((RelabelType *) node)->arg)),
											   format_type_be(((RelabelType *) node)->resulttype)));
			return expression_offloadable((Node *) ((RelabelType *) node)->arg, context, conditional);

		case T_FuncExpr:
			{
				FuncExpr   *expr = (FuncExpr *) node;

				if (expr->funcretset || expr->funcvariadic)
					return stays(context, "its form is not offloadable");
				if (is_case(node) && context->compared != node)
					return stays(context, COMPARED_ONLY);
				return function_offloadable(expr->funcid, expr->inputcollid, expr->args, context) &&
					arguments_offloadable(expr->args, context, conditional, false);
			}

		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			{
				OpExpr	   *expr = (OpExpr *) node;

				if (expr->opretset)
					return stays(context, "its form is not offloadable");
				set_opfuncid(expr);
				return function_offloadable(expr->opfuncid, expr->inputcollid,
											IsA(node, OpExpr) ? expr->args : NIL, context) &&
					arguments_offloadable(expr->args, context, conditional, false);
			}

		case T_ScalarArrayOpExpr:
			{
				ScalarArrayOpExpr *expr = (ScalarArrayOpExpr *) node;
				Node	   *array = lsecond(expr->args);
				Oid			element = get_element_type(getBaseType(exprType(array)));
				CellarFunctionClass form;

				set_sa_opfuncid(expr);
				form = cellar_function_class(expr->opfuncid);
				if (form != CELLAR_FUNCTION_EQUALITY && form != CELLAR_FUNCTION_ORDER)
					return stays(context, psprintf("function %s is not offloadable with an array",
												   get_func_name(expr->opfuncid)));
				if (form == CELLAR_FUNCTION_EQUALITY && is_case(linitial(expr->args)))
					context->compared = linitial(expr->args);
				if (!function_offloadable(expr->opfuncid, expr->inputcollid, NIL, context) ||
					!expression_offloadable(linitial(expr->args), context, conditional))
					return false;
				if (cellar_depends_on_row_walker(array, NULL))
					return stays(context, "its array depends on a column");
				if (!OidIsValid(element) || !type_offloadable(element))
					return stays(context, psprintf("type %s is not offloadable",
												   format_type_be(exprType(array))));
				return value_offloadable(array, context, conditional);
			}

		case T_BoolExpr:
			return arguments_offloadable(((BoolExpr *) node)->args, context, conditional, true);

		case T_NullTest:
			if (((NullTest *) node)->argisrow)
				return stays(context, "it tests a row");

			/* A column's null bit tells, whatever its type. */
			if (IsA(((NullTest *) node)->arg, Var))
				return var_offloadable((Var *) ((NullTest *) node)->arg, context);
			return expression_offloadable((Node *) ((NullTest *) node)->arg, context, conditional);

		case T_BooleanTest:
			return expression_offloadable((Node *) ((BooleanTest *) node)->arg, context, conditional);

		case T_CoalesceExpr:
			return arguments_offloadable(((CoalesceExpr *) node)->args, context, conditional, true);

		case T_CaseExpr:
			return case_offloadable((CaseExpr *) node, context, conditional);

		case T_SubPlan:
		case T_AlternativeSubPlan:
			return stays(context, "it contains a subquery");

		default:
			return stays(context, "its form is not offloadable");
	}
}

static bool
expression_offloadable(Node *node, OffloadContext *context, bool conditional)
{
	bool		result;

	if (context->depth >= DEPTH_MAX)
		return stays(context, "it is nested too deeply");
	context->depth++;
	result = expression_offloadable_inner(node, context, conditional);
	context->depth--;
	return result;
}

/*
 * Can a cell evaluate this qual over the relation?  If not, *reason says why.
 */
bool
cellar_qual_offloadable(Node *clause, Index varno, const char **reason)
{
	OffloadContext context;

	memset(&context, 0, sizeof(context));
	context.varno = varno;
	if (expression_offloadable(clause, &context, false))
		return true;
	*reason = context.reason;
	return false;
}
