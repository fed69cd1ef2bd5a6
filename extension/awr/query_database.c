/*-------------------------------------------------------------------------
 *
 * query_database.c
 *	  awr.query_database(): the rows of a query in any database.
 *
 * Statistics of tables and indexes can be read only in their own database.  A
 * background worker connects to that database with superuser rights, runs the
 * query in a read-only transaction and sends each result through a shared-memory
 * queue: as a message of type 'B', the bytes of the jsonb value, or of type 'D',
 * its text in UTF-8, if the databases have different encodings.  Errors of the
 * worker travel through the same queue as protocol messages, and are raised in the
 * calling session.  A query in this database is run by the session itself.
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

/* ---- the query ---- */

/* Where the results of a query go. */
typedef void (*PutResult) (Datum jsonb, void *arg);

typedef struct PackedKind
{
	char	   *kind;
	CellarRowPacker *packer;
} PackedKind;

/*
 * Adds a row of three columns: its kind; the row, which is packed with the others of
 * its kind; and a result that is not packed, if the row is NULL.
 */
static void
pack_row(HeapTuple tuple, TupleDesc columns, List **kinds, PutResult put, void *arg)
{
	bool		is_json;
	bool		null;
	Datum		row = SPI_getbinval(tuple, columns, 2, &is_json);
	Datum		json = SPI_getbinval(tuple, columns, 3, &null);
	char	   *kind;
	ListCell   *lc;
	PackedKind *packed = NULL;

	if (is_json)
	{
		if (!null)
			put(json, arg);
		return;
	}
	kind = SPI_getvalue(tuple, columns, 1);
	foreach(lc, *kinds)
	{
		if (strcmp(((PackedKind *) lfirst(lc))->kind, kind) == 0)
			packed = lfirst(lc);
	}
	if (packed == NULL)
	{
		packed = palloc(sizeof(PackedKind));
		packed->kind = pstrdup(kind);
		packed->packer = cellar_begin_packing(kind, DatumGetHeapTupleHeader(row));
		*kinds = lappend(*kinds, packed);
	}
	cellar_pack_row(packed->packer, DatumGetHeapTupleHeader(row));
	pfree(kind);
}

/* Returns the value of the first column as jsonb. */
static Datum
first_column(HeapTuple tuple, TupleDesc columns)
{
	bool		null;
	Datum		value = SPI_getbinval(tuple, columns, 1, &null);

	if (!null && SPI_gettypeid(columns, 1) == JSONBOID)
		return value;
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(null ? "null" : SPI_getvalue(tuple, columns, 1)));
}

/* Runs a query of one column, or of three as described at pack_row. */
static void
run_query(const char *query, bool read_only, PutResult put, void *arg)
{
	SPIPlanPtr	plan;
	Portal		portal;
	List	   *kinds = NIL;
	ListCell   *lc;

	SPI_connect();
	plan = SPI_prepare(query, 0, NULL);
	if (plan == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not prepare the query: %s", SPI_result_code_string(SPI_result))));
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, read_only);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, ROWS_PER_FETCH);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	tuple = SPI_tuptable->vals[i];
			TupleDesc	columns = SPI_tuptable->tupdesc;

			if (columns->natts == 3)
				pack_row(tuple, columns, &kinds, put, arg);
			else
				put(first_column(tuple, columns), arg);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	foreach(lc, kinds)
		put(cellar_end_packing(((PackedKind *) lfirst(lc))->packer), arg);
	SPI_cursor_close(portal);
	SPI_finish();
}

/* ---- the worker ---- */

typedef struct Sender
{
	shm_mq_handle *queue;
	int			encoding;		/* of the session's database */
	StringInfoData message;
} Sender;

static void
send_result(Datum jsonb, void *arg)
{
	Sender	   *sender = arg;
	StringInfo	message = &sender->message;
	Jsonb	   *binary = DatumGetJsonbP(jsonb);

	resetStringInfo(message);
	if (sender->encoding == GetDatabaseEncoding())
	{
		appendStringInfoChar(message, 'B');
		appendBinaryStringInfo(message, (char *) binary, VARSIZE(binary));
	}
	else
	{
		char	   *text = JsonbToCString(NULL, &binary->root, VARSIZE(binary));

		appendStringInfoChar(message, 'D');
		cellar_append_converted(message, text, strlen(text), GetDatabaseEncoding(), PG_UTF8, "\\\\");
		pfree(text);
	}
	/* The session that called has exited or raised an error. */
	if (shm_mq_send(sender->queue, message->len, message->data, false, true) != SHM_MQ_SUCCESS)
		proc_exit(0);
}

void
cellar_query_worker_main(Datum arg)
{
	dsm_segment *segment;
	QueryRequest *request;
	shm_mq	   *mq;
	Sender		sender;

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
	sender.queue = shm_mq_attach(mq, segment, NULL);
	sender.encoding = request->encoding;
	initStringInfo(&sender.message);
	pq_redirect_to_shm_mq(segment, sender.queue);

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
	run_query(request->query, true, send_result, &sender);
	PopActiveSnapshot();
	CommitTransactionCommand();
	(void) shm_mq_send(sender.queue, 1, "Z", false, true);
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

static void
put_row(Datum jsonb, void *arg)
{
	ReturnSetInfo *rsinfo = arg;
	bool		null = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &jsonb, &null);
}

/* Puts the rows that a worker sends. */
static void
receive_rows(shm_mq_handle *queue, ReturnSetInfo *rsinfo)
{
	bool		done = false;
	StringInfoData converted;

	initStringInfo(&converted);
	while (!done)
	{
		Size		length;
		void	   *data;
		StringInfoData message;
		ErrorData	error;
		Datum		value;

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
				put_row(value, rsinfo);
				pfree(DatumGetPointer(value));
				break;
			case 'D':
				resetStringInfo(&converted);
				cellar_append_converted(&converted, message.data + 1, length - 1, PG_UTF8, GetDatabaseEncoding(), "\\\\");
				value = DirectFunctionCall1(jsonb_in, CStringGetDatum(converted.data));
				put_row(value, rsinfo);
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
}

/* Runs a query in another database and returns its rows. */
static void
query_other_database(Oid database, const char *query, ReturnSetInfo *rsinfo)
{
	Size		queue_offset = MAXALIGN(offsetof(QueryRequest, query) + strlen(query) + 1);
	dsm_segment *segment = dsm_create(queue_offset + QUEUE_BYTES, 0);
	QueryRequest *request = dsm_segment_address(segment);
	BackgroundWorkerHandle *handle;
	shm_mq	   *mq;
	shm_mq_handle *queue;

	request->database = database;
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

	PG_TRY();
	{
		receive_rows(queue, rsinfo);
	}
	PG_CATCH();
	{
		/* The query may run for hours before the worker sends a row. */
		TerminateBackgroundWorker(handle);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dsm_detach(segment);
}

/* awr.query_database() */
Datum
cellar_query_database(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			database = PG_GETARG_OID(0);
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(1));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (database == MyDatabaseId)
		run_query(query, false, put_row, rsinfo);
	else
		query_other_database(database, query, rsinfo);
	return (Datum) 0;
}

/* awr.get_incarnation() */
Datum
cellar_get_incarnation(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) cellar_incarnation());
}
