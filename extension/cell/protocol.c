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
#include "cellar.h"

#include "utils/builtins.h"

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
cellar_talk_begin(CellarTalk *talk, Relation rel, const CellarPlace *place)
{
	CellarError error;

	talk->relation = cellar_relation_request(rel, place->file);
	talk->session = cellar_session_open(place->socket_path, &error);
	if (talk->session == NULL)
	{
		cellar_request_free(talk->relation);
		cellar_report_error(error);
	}
}

/*
 * Waits for the wanted event, and calls the callback, unless NULL, for each event
 * before it.  Raises an error if the cell reports a failure.
 */
void
cellar_talk_until(const CellarTalk *talk, CellarEvent wanted,
				  void (*heard) (void *arg, const CellarTalk *talk), void *arg)
{
	for (;;)
	{
		CellarEvent event = cellar_session_next(talk->session);

		if (event == wanted)
			return;
		if (event == CELLAR_FAILED)
			cellar_report_error(cellar_error(talk->session->connection));
		if (heard != NULL)
			heard(arg, talk);
	}
}

void
cellar_talk_end(CellarTalk *talk)
{
	cellar_session_release(talk->session);
	cellar_request_free(talk->relation);
}

/* Closes the connection; the cell then stops working on its request. */
void
cellar_talk_abort(CellarTalk *talk)
{
	cellar_session_close(talk->session);
	cellar_request_free(talk->relation);
}
