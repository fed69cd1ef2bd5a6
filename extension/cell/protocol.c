/*-------------------------------------------------------------------------
 *
 * protocol.c
 *	  Requests to a cell about one relation, other than scans.
 *
 * Begin an exchange, send a request on its connection, wait for the reply, and
 * end the exchange.  After an error, abort it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "cellar/cell.h"

/*
 * Raises an error reported by a cell or by the client library.
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
 * Opens a connection to the relation's cell and builds the request that names
 * the relation.
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
 * Waits for the wanted event, and calls the callback, unless NULL, for each event
 * before it.  Raises an error if the cell reports a failure.
 */
void
cellar_exchange_wait(const CellarExchange *exchange, CellarEvent wanted,
					 void (*on_event) (void *arg, const CellarExchange *exchange), void *arg)
{
	/*
	 * Some replies take hours.  A snapshot for catalog access would delay
	 * VACUUM of all tables during that time.
	 */
	InvalidateCatalogSnapshotConditionally();
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

/* Closes the connection; the cell then stops working on its request. */
void
cellar_exchange_abort(CellarExchange *exchange)
{
	cellar_session_close(exchange->session);
	cellar_request_free(exchange->relation);
}
