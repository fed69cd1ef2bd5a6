/*-------------------------------------------------------------------------
 *
 * letter_case.c
 *	  Decides when the cell can change the case of letters for a comparison.
 *
 * In lower, upper and ILIKE the cell maps the case of ASCII letters, and of
 * the few other letters whose counterpart is an ASCII letter.  That suffices
 * to compare the result with an ASCII string.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/formatting.h"

#include "cellar/compat.h"
#include "cellar/planner.h"

static bool
has_ascii(const char *bytes)
{
	for (; *bytes != '\0'; bytes++)
		if (!IS_HIGHBIT_SET(*bytes))
			return true;
	return false;
}

/*
 * Returns whether the collation maps ASCII letters to ASCII letters, and maps no
 * other letters to ASCII than those that the cell knows.  Turkish and Lithuanian
 * collations do not qualify.
 */
bool
cellar_has_plain_ascii_case(Oid collation)
{
	static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz";
	static const char accented[] = "\xc3\x8c\xc3\x8d\xc4\xa8";	/* I grave, acute, tilde */
	static const char dotted[] = "i\xcc\x87";	/* i with combining dot above */

	/*
	 * A plan checks the same collation many times.  Collations are immutable,
	 * so the last answer stays valid.
	 */
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

/* Returns whether the node is a text constant for which the test is true. */
static bool
constant_matches(Node *node, bool (*test) (const char *bytes, int length))
{
	Const	   *constant = (Const *) node;
	struct varlena *value;

	if (!IsA(node, Const) || constant->constisnull || constant->constlen != -1)
		return false;
	value = PG_DETOAST_DATUM_PACKED(constant->constvalue);
	return test(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

static bool
has_non_ascii(const char *bytes, int length)
{
	for (int i = 0; i < length; i++)
		if (IS_HIGHBIT_SET(bytes[i]))
			return true;
	return false;
}

/*
 * An underscore in a pattern matches one character, but changing the case of
 * one letter can yield two characters.
 */
static bool
has_non_ascii_or_underscore(const char *bytes, int length)
{
	return has_non_ascii(bytes, length) || memchr(bytes, '_', length) != NULL;
}

/*
 * Returns whether the cell can compare the result of lower, upper or ILIKE
 * with the expression: the expression must contain no columns, and must not be a
 * constant with characters outside ASCII.  pattern says that the expression is a
 * LIKE pattern.
 */
bool
cellar_case_comparable(Node *expr, bool pattern)
{
	return !cellar_depends_on_row(expr) &&
		!constant_matches(expr, pattern ? has_non_ascii_or_underscore : has_non_ascii);
}
