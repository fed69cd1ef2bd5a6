/*-------------------------------------------------------------------------
 *
 * report.c
 *	  awr.render(): a report from the documents of awr.report_data().
 *
 * The client library contains the code that computes and formats reports, which
 * the command "cellar awr" uses, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar_client.h"

PG_FUNCTION_INFO_V1(cellar_render_report);

/* Returns a document as JSON text in UTF-8. */
static char *
document_text(Jsonb *document)
{
	char	   *text = JsonbToCString(NULL, &document->root, VARSIZE(document));

	return pg_server_to_any(text, strlen(text), PG_UTF8);
}

static int
parse_format(const char *name)
{
	static const char *const names[] = {"text", "html", "json"};

	for (int i = 0; i < lengthof(names); i++)
	{
		if (pg_strcasecmp(name, names[i]) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized report format \"%s\"", name),
			 errhint("Valid formats are \"text\", \"html\" and \"json\".")));
}

/* awr.render(document, compared, format); compared is NULL for a report about one period. */
Datum
cellar_render_report(PG_FUNCTION_ARGS)
{
	int			format;
	char	   *document;
	char	   *compared = NULL;
	CellarReport *report;
	CellarError error;
	char	   *rendered;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	format = parse_format(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	document = document_text(PG_GETARG_JSONB_P(0));
	if (!PG_ARGISNULL(1))
		compared = document_text(PG_GETARG_JSONB_P(1));
	report = cellar_report_new(document, strlen(document), compared != NULL ? compared : "",
							   compared != NULL ? strlen(compared) : 0, format, &error);
	if (report == NULL)
		cellar_report_error(error);
	rendered = pnstrdup(cellar_report_text(report), cellar_report_length(report));
	cellar_report_free(report);
	rendered = pg_any_to_server(rendered, strlen(rendered), PG_UTF8);
	PG_RETURN_TEXT_P(cstring_to_text(rendered));
}
