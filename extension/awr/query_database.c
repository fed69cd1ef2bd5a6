/*-------------------------------------------------------------------------
 *
 * query_database.c
 *	  awr.query_database(): the rows of a query in another database.
 *
 * Statistics of tables and indexes can be read only in their own database.  A
 * background worker connects to that database with superuser rights, runs the
 * query in a read-only transaction and sends each row through a shared-memory
 * queue: as a message of type 'B', the bytes of the jsonb value, or of type 'D',
 * its text in UTF-8, if the databases have different encodings.  Errors of the
 * worker travel through the same queue as protocol messages, and are raised in the
 * calling session.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "libpq/pqformat.h"
#include "libpq/pqmq.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/shm_mq.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_query_database);
PG_FUNCTION_INFO_V1(cellar_get_incarnation);

PGDLLEXPORT void cellar_query_worker_main(Datum arg);

#define QUEUE_BYTES		(256 * 1024)
#define ROWS_PER_FETCH	1000

/* At the start of the segment, followed by the query's text and the queue. */
typedef struct QueryRequest
{
	Oid			database;
	int			encoding;		/* of the session's database */
	Size		queue_offset;
	char		query[FLEXIBLE_ARRAY_MEMBER];
} QueryRequest;

/* ---- the worker ---- */

static void
send_rows(shm_mq_handle *queue, const char *query, int encoding)
{
	SPIPlanPtr	plan;
	Portal		portal;
	StringInfoData row;

	initStringInfo(&row);
	SPI_connect();
	plan = SPI_prepare(query, 0, NULL);
	if (plan == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not prepare the query: %s", SPI_result_code_string(SPI_result))));
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, ROWS_PER_FETCH);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	tuple = SPI_tuptable->vals[i];
			TupleDesc	columns = SPI_tuptable->tupdesc;
			bool		null;
			Datum		value = SPI_getbinval(tuple, columns, 1, &null);

			resetStringInfo(&row);
			if (!null && encoding == GetDatabaseEncoding() && SPI_gettypeid(columns, 1) == JSONBOID)
			{
				Jsonb	   *binary = DatumGetJsonbP(value);

				appendStringInfoChar(&row, 'B');
				appendBinaryStringInfo(&row, (char *) binary, VARSIZE(binary));
			}
			else
			{
				char	   *text = null ? pstrdup("null") : SPI_getvalue(tuple, columns, 1);

				appendStringInfoChar(&row, 'D');
				cellar_append_converted(&row, text, strlen(text), GetDatabaseEncoding(), PG_UTF8, "\\\\");
				pfree(text);
			}
			/* The session that called has exited or raised an error. */
			if (shm_mq_send(queue, row.len, row.data, false, true) != SHM_MQ_SUCCESS)
				proc_exit(0);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_finish();
}

void
cellar_query_worker_main(Datum arg)
{
	dsm_segment *segment;
	QueryRequest *request;
	shm_mq	   *mq;
	shm_mq_handle *queue;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "cellar query worker");
	segment = dsm_attach(DatumGetUInt32(arg));
	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not map dynamic shared memory segment")));
	dsm_pin_mapping(segment);
	request = dsm_segment_address(segment);
	mq = (shm_mq *) ((char *) request + request->queue_offset);
	shm_mq_set_sender(mq, MyProc);
	queue = shm_mq_attach(mq, segment, NULL);
	pq_redirect_to_shm_mq(segment, queue);

	BackgroundWorkerInitializeConnectionByOid(request->database, InvalidOid, 0);
	CellarNoTransactionTimeout();

	/*
	 * The query runs with superuser rights: it must not use functions that
	 * the owner of the database has put in front of PostgreSQL's own.  Values
	 * must not depend on settings of the database, and a lock that another
	 * session holds must not stop AWR snapshots.
	 */
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("timezone", "UTC", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("datestyle", "ISO, YMD", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "1s", PGC_SUSET, PGC_S_OVERRIDE);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactReadOnly = true;
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, request->query);
	send_rows(queue, request->query, request->encoding);
	PopActiveSnapshot();
	CommitTransactionCommand();
	(void) shm_mq_send(queue, 1, "Z", false, true);
	dsm_detach(segment);
	proc_exit(0);
}

/* ---- the session ---- */

/* Starts the worker.  Raises an error if no worker process is available. */
static BackgroundWorkerHandle *
start_worker(dsm_segment *segment)
{
	BackgroundWorker worker = cellar_worker("cellar_query_worker_main", "cellar awr query");
	BackgroundWorkerHandle *handle;

	/* A standby can collect values, too. */
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a background worker"),
				 errhint("Increasing max_worker_processes might help.")));
	return handle;
}

Datum
cellar_query_database(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(1));
	Size		queue_offset = MAXALIGN(offsetof(QueryRequest, query) + strlen(query) + 1);
	dsm_segment *segment = dsm_create(queue_offset + QUEUE_BYTES, 0);
	QueryRequest *request = dsm_segment_address(segment);
	BackgroundWorkerHandle *handle;
	shm_mq	   *mq;
	shm_mq_handle *queue;
	bool		done = false;
	StringInfoData converted;

	initStringInfo(&converted);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	request->database = PG_GETARG_OID(0);
	request->encoding = GetDatabaseEncoding();
	request->queue_offset = queue_offset;
	strcpy(request->query, query);
	mq = shm_mq_create((char *) request + queue_offset, QUEUE_BYTES);
	shm_mq_set_receiver(mq, MyProc);
	handle = start_worker(segment);

	/*
	 * With the handle, a worker that exits before it attaches counts as
	 * detached.
	 */
	queue = shm_mq_attach(mq, segment, handle);

	while (!done)
	{
		Size		length;
		void	   *data;
		StringInfoData message;
		ErrorData	error;
		Datum		value;
		bool		null = false;

		if (shm_mq_receive(queue, &length, &data, false) != SHM_MQ_SUCCESS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("background worker exited before completing the query"),
					 errhint("See the server log for the reason.")));
		initStringInfo(&message);
		appendBinaryStringInfo(&message, data, length);
		switch (pq_getmsgbyte(&message))
		{
			case 'B':
				value = PointerGetDatum(palloc(length - 1));
				memcpy(DatumGetPointer(value), message.data + 1, length - 1);
				tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &null);
				pfree(DatumGetPointer(value));
				break;
			case 'D':
				resetStringInfo(&converted);
				cellar_append_converted(&converted, message.data + 1, length - 1, PG_UTF8, GetDatabaseEncoding(), "\\\\");
				value = DirectFunctionCall1(jsonb_in, CStringGetDatum(converted.data));
				tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &null);
				pfree(DatumGetPointer(value));
				break;
			case 'E':
				pq_parse_errornotice(&message, &error);
				error.elevel = Min(error.elevel, ERROR);
				ThrowErrorData(&error);
				break;
			case 'Z':
				done = true;
				break;
			default:
				/* Notices and notifications of the worker are dropped. */
				break;
		}
		pfree(message.data);
	}
	dsm_detach(segment);
	return (Datum) 0;
}

/* awr.get_incarnation() */
Datum
cellar_get_incarnation(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) cellar_incarnation());
}
