/*-------------------------------------------------------------------------
 *
 * exchange.c
 *	  Exchanges: requests to a cell about one relation, other than scans, and
 *	  the replies.
 *
 * The caller begins an exchange, sends a request on its connection, waits for
 * the reply, and ends the exchange.  After an error the caller must abort the
 * exchange, because its connection may still have a request in progress.
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
 * Gets a connection to the relation's cell and builds the description of the
 * relation that each request of the exchange contains.
 */
void
cellar_exchange_begin(CellarExchange *exchange, Relation rel, const CellarLocation *location)
{
	CellarError error;

	exchange->session = cellar_session_open(location->socket_path, &error);
	if (exchange->session == NULL)
		cellar_report_error(error);
	exchange->relation = cellar_relation_request(rel, location->file);
}

/*
 * Waits for the wanted event.  Calls on_event, unless NULL, for each other event
 * that arrives before.  Raises an error if the cell reports a failure or the
 * connection fails.
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

/* Returns the connection to the cache of connections. */
void
cellar_exchange_end(CellarExchange *exchange)
{
	cellar_session_release(exchange->session);
	cellar_request_free(exchange->relation);
}

/* Closes the connection; the cell then stops processing the request. */
void
cellar_exchange_abort(CellarExchange *exchange)
{
	cellar_session_close(exchange->session);
	cellar_request_free(exchange->relation);
}
