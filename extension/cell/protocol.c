/*-------------------------------------------------------------------------
 *
 * protocol.c
 *	  Questions to a cell about a relation that are not scans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "cellar/cell.h"

/*
 * Raises an error that a cell or the client has told.
 */
void
cellar_report_error(CellarError error)
{
	ereport(ERROR,
			(errcode(CellarErrorCode(error)),
			 errmsg("%s", error.message),
			 *error.detail ? errdetail("%s", error.detail) : 0,
			 *error.hint ? errhint("%s", error.hint) : 0));
}

/*
 * Finds a connection to the relation's cell.  End it, or abort it on an error.
 */
void
cellar_exchange_begin(CellarExchange *exchange, Relation rel, const CellarLocation *location)
{
	CellarError error;

	exchange->relation = cellar_relation_request(rel, location->file);
	exchange->session = cellar_session_open(location->socket_path, &error);
	if (exchange->session == NULL)
	{
		cellar_request_free(exchange->relation);
		cellar_report_error(error);
	}
}

/*
 * Waits for the answer that is wanted; heard is called for all that comes before.
 */
void
cellar_exchange_wait(const CellarExchange *exchange, CellarEvent wanted,
				  void (*on_event) (void *arg, const CellarExchange *exchange), void *arg)
{
	for (;;)
	{
		CellarEvent event = cellar_session_next(exchange->session);

		if (event == wanted)
			return;
		if (event == CELLAR_FAILED)
			cellar_report_error(cellar_error(exchange->session->connection));
		if (on_event != NULL)
			on_event(arg, exchange);
	}
}

void
cellar_exchange_end(CellarExchange *exchange)
{
	cellar_session_release(exchange->session);
	cellar_request_free(exchange->relation);
}

/* Closes the connection, which stops what the cell does for it. */
void
cellar_exchange_abort(CellarExchange *exchange)
{
	cellar_session_close(exchange->session);
	cellar_request_free(exchange->relation);
}
