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
 * Waits for the answer that is wanted; heard is called for all that comes before.
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

/* Closes the connection, which stops what the cell does for it. */
void
cellar_talk_abort(CellarTalk *talk)
{
	cellar_session_close(talk->session);
	cellar_request_free(talk->relation);
}
