/*-------------------------------------------------------------------------
 *
 * cellar_client.h
 *	  C interface of the cell's client library (crates/client).
 *
 * The library connects a Postgres backend to a cell.  It encodes requests,
 * sends and receives frames, and decodes results.  It also runs the cell's
 * own code on pages that Postgres has read, for the offload simulation and
 * for the compression advisor, and renders AWR reports.
 *
 * Conventions:
 *
 * - No function calls Postgres, raises a Postgres error, or blocks.  The
 *	 caller waits on the connection's socket with its own latch, and reports
 *	 errors with ereport().
 *
 * - A pointer that a function returns is valid until the next call with the
 *	 same object, unless the function's comment says otherwise.  The caller
 *	 never frees such a pointer.
 *
 * - Objects from cellar_request_new(), cellar_connect(),
 *	 cellar_simulation_new() and cellar_report_new() belong to the caller, who
 *	 frees them with the matching function.  Call this function in a memory
 *	 context callback, because ereport(ERROR) would otherwise leak the object.
 *
 * - Objects are not thread-safe.
 *
 * - Block numbers are block numbers of the relation's main fork.  A range
 *	 of blocks includes its first block and excludes its end.
 *
 * A scan, step by step:
 *
 *	  cellar_connect(), or reuse a connection without unanswered ranges
 *	  cellar_request_new(), cellar_request_*(), cellar_qual_*()
 *	  cellar_scan_open(), cellar_request_free()
 *	  cellar_scan_range() for each range, several ranges ahead
 *	  loop:
 *		  switch (cellar_next())
 *			  CELLAR_WAIT_*: wait, then continue
 *			  CELLAR_BATCH: return the rows of cellar_batch()
 *			  CELLAR_PASSTHRU: read and evaluate the block in Postgres
 *			  CELLAR_XID_QUERY: answer with cellar_answer_xids()
 *			  CELLAR_RANGE_PROGRESS: add cellar_range_stats()
 *			  CELLAR_RANGE_DONE: add cellar_range_stats(); next range
 *			  CELLAR_FAILED: report cellar_error(), then cellar_close()
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_CLIENT_H
#define CELLAR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CellarRequest CellarRequest;
typedef struct CellarConnection CellarConnection;
typedef struct CellarSimulation CellarSimulation;
typedef struct CellarReport CellarReport;

/* An error with the fields of a Postgres error report. */
typedef struct CellarError
{
	char		sqlstate[6];	/* five characters and a NUL */
	const char *message;
	const char *detail;			/* "" if there is none */
	const char *hint;			/* "" if there is none */
} CellarError;

/* What a comparison of two datums' bytes implies under their collation. */
typedef enum CellarCollation
{
	CELLAR_COLLATION_NONE = 0,	/* the type has no collation */
	CELLAR_COLLATION_BYTEWISE = 1,	/* C or POSIX: bytes define equality and order */
	CELLAR_COLLATION_DETERMINISTIC = 2, /* bytes define equality, not the order */
	CELLAR_COLLATION_NONDETERMINISTIC = 3	/* different bytes may be equal */
} CellarCollation;

/* ----------------------------------------------------------------
 *		Functions, aggregates and types that a cell supports
 *
 * The cell's code contains these lists; no connection is needed.
 * ----------------------------------------------------------------
 */

/*
 * Returns whether the cell evaluates a function with exactly Postgres's
 * result under the collation.  function is the pg_proc OID of a built-in
 * function.
 */
extern bool cellar_function_offloadable(uint32_t function, CellarCollation collation);

/*
 * Returns whether the cell evaluates calls of an offloadable function in a
 * comparison over vectors of numbers, and not row by row.
 */
extern bool cellar_function_vectorized(uint32_t function);

/* Classes of offloadable functions with additional conditions for the planner. */
typedef enum CellarFunctionClass
{
	CELLAR_FUNCTION_OTHER = 0,	/* no additional condition */
	CELLAR_FUNCTION_EQUALITY = 1,	/* = or <> */
	CELLAR_FUNCTION_ORDER = 2,	/* another comparison */
	CELLAR_FUNCTION_PATTERN = 3,	/* LIKE */

	/*
	 * ILIKE.  The collation must convert the case of ASCII letters to ASCII
	 * letters only.
	 */
	CELLAR_FUNCTION_CASE_INSENSITIVE_PATTERN = 4,

	/*
	 * lower or upper.  Same condition on the collation; the cell converts
	 * ASCII letters only.
	 */
	CELLAR_FUNCTION_CASE = 5,

	/* The first argument must be a field that cellar_field_known() accepts. */
	CELLAR_FUNCTION_FIELD = 6,

	/*
	 * The second argument must be a regular expression that
	 * cellar_regular_expression_known() accepts.
	 */
	CELLAR_FUNCTION_REGULAR_EXPRESSION = 7
} CellarFunctionClass;

extern CellarFunctionClass cellar_function_class(uint32_t function);

/*
 * Returns whether the cell supports a field of extract(), date_part() or
 * date_trunc().  field consists of length bytes and needs no NUL.
 */
extern bool cellar_field_known(uint32_t function, const char *field, size_t length);

/*
 * Returns whether the cell supports a regular expression as an argument of ~, !~
 * or regexp_replace().  pattern consists of length bytes and needs no NUL.
 */
extern bool cellar_regular_expression_known(uint32_t function, const char *pattern, size_t length);

/*
 * Returns whether the cell computes an aggregate's partial states with
 * exactly Postgres's result under the collation.  aggregate is the pg_proc
 * OID of a built-in aggregate.
 */
extern bool cellar_aggregate_offloadable(uint32_t aggregate, CellarCollation collation);

/*
 * Returns whether the cell can group by values of a base type.  The values
 * of a numeric group key must all have the same scale; the caller checks
 * that.
 */
extern bool cellar_type_groupable(uint32_t type);

/* Returns whether a storage predicate may use values of a base type. */
extern bool cellar_type_offloadable(uint32_t type);

/*
 * Returns the OID of the index'th offloadable function, in ascending order of
 * OIDs, or 0 if index is too large.
 */
extern uint32_t cellar_offloadable_function(size_t index);

/* ----------------------------------------------------------------
 *		Requests
 *
 * A request describes a relation and, for a scan, the snapshot, the storage
 * predicate and the columns to return.  Functions that build a request do not
 * fail; the first error is kept, and the function that uses the request
 * reports it.
 * ----------------------------------------------------------------
 */

extern CellarRequest *cellar_request_new(void);
extern void cellar_request_free(CellarRequest *request);

/* A cell refuses larger requests. */
#define CELLAR_REQUEST_BYTES_MAX	(16 * 1024 * 1024)

/* Returns the size of a request for a scan with what was added so far. */
extern size_t cellar_request_bytes(const CellarRequest *request);

/*
 * Sets the relation's file: path is the path of the first segment relative to
 * the mount's root, segment_blocks is RELSEG_SIZE, checksums is true if the
 * cluster has data checksums, and encoding is the database's pg_enc.
 */
extern void cellar_request_file(CellarRequest *request, const char *path,
								uint32_t segment_blocks, bool checksums, uint32_t encoding);

/* An attribute of the tuple descriptor. */
typedef struct CellarAttribute
{
	uint32_t	type;			/* OID of the base type; 0 for a dropped column */
	int32_t		typmod;
	int16_t		typlen;
	char		typalign;
	bool		typbyval;

	/*
	 * Value of the column in rows that are older than the column
	 * (attmissingval), in the form of a datum in a tuple, varlena header
	 * included.  NULL for the null value.
	 */
	const void *missing;
	size_t		missing_bytes;
} CellarAttribute;

/* Adds the next attribute.  Call once for each attribute, in order. */
extern void cellar_request_attribute(CellarRequest *request, const CellarAttribute *attribute);

/*
 * Sets the snapshot.  next_full_xid is the next full transaction id, which
 * widens the ids on pages to 64 bits.
 */
extern void cellar_request_snapshot(CellarRequest *request, uint32_t xmin, uint32_t xmax,
									bool taken_during_recovery, uint64_t next_full_xid);

/*
 * Sets the columns to return: 1-based attribute numbers, ascending.  With
 * whole_rows, the cell returns whole tuples in place of columns.
 */
extern void cellar_request_projection(CellarRequest *request, const uint16_t *attributes, size_t count,
									  bool whole_rows);

/*
 * Sets the number of the cell's threads that may share a range.  With more
 * than one thread, the blocks of a range come back in any order.
 */
extern void cellar_request_threads(CellarRequest *request, uint16_t threads);

/*
 * Expressions are built in postfix order: operands first, then the operation.
 * A call of cellar_qual_end() completes a qual.  A row qualifies if all quals
 * are true.  Add the quals in the order in which Postgres evaluates them: the
 * cell reorders only quals that cannot raise an error.
 */
extern void cellar_qual_column(CellarRequest *request, uint16_t attribute);

/*
 * A constant.  Fixed-width types: typlen bytes as in a tuple.  Varlena types:
 * the detoasted value without the header.  value is NULL for the null value.
 */
extern void cellar_qual_const(CellarRequest *request, uint32_t type, const void *value, size_t bytes);
extern void cellar_qual_call(CellarRequest *request, uint32_t function, CellarCollation collation, uint16_t nargs);
extern void cellar_qual_and(CellarRequest *request, uint16_t nargs);
extern void cellar_qual_or(CellarRequest *request, uint16_t nargs);
extern void cellar_qual_not(CellarRequest *request);
extern void cellar_qual_is_null(CellarRequest *request);
extern void cellar_qual_is_not_null(CellarRequest *request);

/*
 * scalar op ANY (array) or scalar op ALL (array).  Operands: the scalar, then
 * the array's elements.
 */
extern void cellar_qual_any_all(CellarRequest *request, uint32_t function, CellarCollation collation,
								bool any, uint32_t nelements);

/*
 * scalar = ANY (integers), where function is an equality operator of integers,
 * dates or timestamps.  Operand: the scalar.  nvalues must be above 0.
 */
extern void cellar_qual_any_integer(CellarRequest *request, uint32_t function, const int64_t *values,
									uint32_t nvalues);

/* IS [NOT] TRUE, FALSE or UNKNOWN.  test is a BoolTestType. */
extern void cellar_qual_boolean_test(CellarRequest *request, int test);

/* IS DISTINCT FROM.  equal_function is the type's equality function. */
extern void cellar_qual_distinct(CellarRequest *request, uint32_t equal_function, CellarCollation collation);
extern void cellar_qual_coalesce(CellarRequest *request, uint16_t nargs);

/*
 * A searched CASE.  Operands: nbranches pairs of condition and result, then
 * the ELSE result.
 */
extern void cellar_qual_case(CellarRequest *request, uint16_t nbranches);
extern void cellar_qual_end(CellarRequest *request);

/*
 * Requests groups in place of rows.  Group keys, aggregate filters and
 * aggregate arguments are expressions that end with one of the functions
 * below instead of cellar_qual_end().
 *
 * An aggregate consists of an optional filter, an optional argument, and
 * cellar_aggregate_end(), in this order:
 *
 *	  [filter expression, cellar_aggregate_filter_end()]
 *	  [argument expression], cellar_aggregate_end()
 */
extern void cellar_request_aggregation(CellarRequest *request);
extern void cellar_group_key_end(CellarRequest *request);
extern void cellar_aggregate_filter_end(CellarRequest *request);
extern void cellar_aggregate_end(CellarRequest *request, uint32_t aggregate, CellarCollation collation);

/*
 * Requests aggregates with DISTINCT, which all have the same argument and
 * filter:
 *
 *	  [filter expression, cellar_aggregate_filter_end()]
 *	  argument expression, cellar_distinct_argument_end()
 *	  cellar_distinct_aggregate() for each aggregate
 *
 * The caller then requests all blocks of the relation as one range.  If all
 * qualifying rows are in the groups, the cell returns them with the states of
 * these aggregates (distinct_groups).  Otherwise the columns of a group are the
 * group keys, a value of the argument, true if there is a filter, and the states
 * of the other aggregates.  Each value of a group then has a row.  The other
 * aggregates' states are in one row of the group, and the states of no row in
 * its other rows.  In the row of a group without values, value and filter are
 * NULL.
 */
extern void cellar_distinct_argument_end(CellarRequest *request);
extern void cellar_distinct_aggregate(CellarRequest *request, uint32_t aggregate);

/*
 * Ends a condition over columns of the relation and of lookup tables.  Only
 * joined rows for which all such conditions are true are aggregated.
 */
extern void cellar_join_condition_end(CellarRequest *request);

#define CELLAR_TOP_ROWS_MAX 10000

/*
 * Prunes groups.  The caller then requests all blocks of the relation as one
 * range, and the cell may omit groups that the caller does not need if all
 * qualifying rows are in the groups.  Conditions and sort keys are expressions
 * over the outputs of the aggregation: column n is group key n, or after the
 * group keys the result of an aggregate.  A condition is output op constant,
 * a sort key an output.
 *
 * cellar_group_condition_end() ends a condition that needed groups satisfy.
 * cellar_request_top_groups() requests only the first groups, 1 to
 * CELLAR_TOP_ROWS_MAX, of the order of the sort keys that follow; without sort
 * keys, any groups.  with_ties also requests the groups that tie with the last
 * of them.
 */
extern void cellar_group_condition_end(CellarRequest *request);
extern void cellar_request_top_groups(CellarRequest *request, uint32_t groups, bool with_ties);

/* Returns whether conditions and sort keys may use the result of an aggregate. */
extern bool cellar_aggregate_prunable(uint32_t aggregate);

/*
 * Makes the entries of a btree index the rows of the scan.  The file of the
 * request is that of the index.  columns has the attribute number in the relation of
 * each index column.  Pages with an LSN above lsn are not counted.  all_visible
 * has one bit for each block of the relation, lowest bit first.
 */
extern void cellar_request_index(CellarRequest *request, uint64_t lsn,
								 const uint16_t *columns, size_t ncolumns,
								 const uint8_t *all_visible, size_t nbytes);

/*
 * Requests a join below the aggregation: a row of the scan is joined with the
 * row of a lookup table whose key equals attributes of the relation or of
 * earlier lookup tables.  keys has the nattributes parts of the key of each row,
 * nkeys in all.  Neither keys nor columns are NULL pointers unless their number
 * is 0.
 *
 * The columns of the table follow, in order, and have one value per key.  The
 * attribute numbers of the columns of all lookup tables follow those of the
 * relation.  nulls has one byte per key, 1 for a NULL, or nnulls is 0.  values
 * has typlen bytes per key; for a varlena, the length of the detoasted payload
 * as four bytes and the payload.
 *
 * The cell returns rows that it does not join, and all rows if it has no memory
 * for the tables.
 */
#define CELLAR_JOIN_INNER	0
#define CELLAR_JOIN_SEMI	1	/* no columns follow */
#define CELLAR_JOIN_ANTI	2	/* no columns follow */
#define CELLAR_JOIN_LEFT	3
#define CELLAR_KEY_PARTS_MAX 8

/*
 * How the last attribute, on the left, is compared with the last part of a key
 * in a semijoin or antijoin with at least two parts.
 */
#define CELLAR_COMPARISON_NONE	0	/* it is equal */
#define CELLAR_COMPARISON_NOT_EQUAL	1
#define CELLAR_COMPARISON_LESS	2
#define CELLAR_COMPARISON_LESS_OR_EQUAL	3
#define CELLAR_COMPARISON_GREATER	4
#define CELLAR_COMPARISON_GREATER_OR_EQUAL	5
extern void cellar_request_lookup(CellarRequest *request, uint8_t kind, uint8_t comparison,
								  const uint16_t *attributes, size_t nattributes,
								  const int64_t *keys, size_t nkeys);
extern void cellar_request_lookup_column(CellarRequest *request, const CellarAttribute *attribute,
										 const uint8_t *nulls, size_t nnulls,
										 const char *values, size_t bytes);

/*
 * Requests only the first rows of an order: 1 to CELLAR_TOP_ROWS_MAX.  The
 * cell may return further rows; the caller sorts.  Sort keys follow, each an
 * expression that ends with cellar_sort_key_end().
 */
extern void cellar_request_top_rows(CellarRequest *request, uint32_t rows);

/* less is the pg_proc OID of the ascending order's < operator. */
extern void cellar_sort_key_end(CellarRequest *request, uint32_t less, CellarCollation collation,
								bool descending, bool nulls_first);

/* ----------------------------------------------------------------
 *		Connections
 * ----------------------------------------------------------------
 */

/*
 * Creates a connection, starts to connect, and queues the greeting.
 * incarnation is a random number that identifies the lifetime of the
 * cluster's shared memory.
 *
 * Returns NULL on failure, with *error filled.  The strings of *error are
 * valid until the next call in this process that fills an error.
 */
extern CellarConnection *cellar_connect(const char *socket_path, uint32_t backend_pid, uint32_t database,
										uint64_t system_identifier, uint64_t incarnation,
										CellarError *error);
extern void cellar_close(CellarConnection *connection);

/* The name of a database (by OID), or the consumer group of a process. */
typedef struct CellarName
{
	uint32_t	number;
	const char *name;
} CellarName;

/*
 * Tells the cell the names of all databases of the cluster, and the
 * directories of the cluster on the cell.  Sends nothing if the cell was told
 * the same on this connection, or while earlier data waits to be sent: call
 * this again later.
 */
extern void cellar_tell_names(CellarConnection *connection, const char *const *roots, size_t nroots,
							  const CellarName *databases, size_t ndatabases);

/* Like cellar_tell_names(), the consumer groups of all processes. */
extern void cellar_tell_groups(CellarConnection *connection, const CellarName *processes, size_t nprocesses);

/*
 * Tells the cell the consumer group of this process, for the requests that
 * follow.
 */
extern void cellar_tell_own_group(CellarConnection *connection, uint32_t pid, const char *group);

/* Returns the descriptor to wait on.  cellar_scan_open() may change it. */
extern int	cellar_socket(const CellarConnection *connection);

/*
 * Returns the instance of the daemon, a random number that each run of the
 * daemon chooses, or 0 until cellar_next() has received the cell's greeting.
 */
extern uint64_t cellar_instance(const CellarConnection *connection);

/*
 * Opens a scan.  A connection carries one scan at a time: opening a scan
 * abandons the previous one, whose remaining results are dropped.  The
 * request can be freed after the call.
 */
extern void cellar_scan_open(CellarConnection *connection, const CellarRequest *request);

/*
 * Requests the results of blocks [first, end).  Several ranges may be
 * requested ahead.  The cell processes ranges in the order of the requests
 * and ends each one with CELLAR_RANGE_DONE.
 */
extern void cellar_scan_range(CellarConnection *connection, uint32_t first, uint32_t end);

typedef enum CellarEvent
{
	CELLAR_WAIT_READABLE,		/* wait until the socket is readable */
	CELLAR_WAIT_WRITABLE,		/* wait until the socket is readable or writable */
	CELLAR_BATCH,				/* rows or groups: cellar_batch() */
	CELLAR_PASSTHRU,			/* a block for Postgres: cellar_passthru() */
	CELLAR_XID_QUERY,			/* cellar_xids(); answer with cellar_answer_xids() */
	CELLAR_RANGE_DONE,			/* the range is complete: cellar_range_stats() */
	CELLAR_FAILED,				/* cellar_error(); the connection is unusable */
	CELLAR_FILE_IO,				/* answer to cellar_query_file_io() */
	CELLAR_WAIT_CONNECT,		/* call again after some milliseconds; the
								 * socket is not connected yet */
	CELLAR_RANGE_PROGRESS,		/* the range continues: cellar_range_stats() */
	CELLAR_COMPRESS_PROGRESS,	/* the compression continues:
								 * cellar_compression() */
	CELLAR_COMPRESS_DONE,		/* cellar_compression() */
	CELLAR_UNITS,				/* answer to cellar_query_units() */
	CELLAR_DUE_UNITS,			/* answer to cellar_query_due_units() */
	CELLAR_FILE_TYPE_IO,		/* answer to cellar_query_file_type_io() */
	CELLAR_GROUP,				/* answer to cellar_query_group() or
								 * cellar_query_metrics() */
	CELLAR_LEAF_LINKS,			/* counted index pages: cellar_leaf_links() */
	CELLAR_HEAP_TIDS			/* rows for Postgres: cellar_heap_tids() */
} CellarEvent;

/*
 * Sends queued bytes, receives available bytes, and returns the next event.
 * Never blocks.
 */
extern CellarEvent cellar_next(CellarConnection *connection);

/* Returns the error of CELLAR_FAILED. */
extern CellarError cellar_error(const CellarConnection *connection);

/* ----------------------------------------------------------------
 *		Results of a scan
 * ----------------------------------------------------------------
 */

/* A column of a batch. */
typedef struct CellarColumn
{
	const uint8_t *nulls;		/* one byte per row, 1 for null; NULL if no
								 * row is null */
	const char *values;			/* fixed width: stride bytes per row, as in a
								 * tuple; else unused */
	const uint32_t *offsets;	/* varlena and cstring: offset in data of each
								 * row's datum; else NULL */
	const char *data;			/* varlena and cstring: datums with their
								 * headers, aligned; else NULL */
	uint32_t	stride;			/* 0 for varlena and cstring */
} CellarColumn;

/* A tuple of a batch of whole rows. */
typedef struct CellarRow
{
	const void *tuple;			/* a HeapTupleHeader, MAXALIGNed */
	uint32_t	bytes;
	uint32_t	block;
	uint16_t	line_pointer;
} CellarRow;

typedef struct CellarBatch
{
	uint32_t	rows;
	uint16_t	ncolumns;		/* 0 for whole rows, and if no column was
								 * requested */
	bool		whole_rows;		/* use cellar_batch_row() */
	bool		groups;			/* columns are group keys, then serialized
								 * partial states */
	bool		distinct_groups;	/* groups that also have the states of
									 * aggregates with DISTINCT */
	const CellarColumn *columns;
} CellarBatch;

/*
 * Returns the batch of CELLAR_BATCH.  The batch and everything that it points
 * to are valid until the next call of cellar_next().
 */
extern const CellarBatch *cellar_batch(const CellarConnection *connection);

/* Returns a tuple of a batch of whole rows.  row must be less than rows. */
extern CellarRow cellar_batch_row(const CellarConnection *connection, uint32_t row);

typedef enum CellarPassthruReason
{
	CELLAR_PASSTHRU_VISIBILITY = 1, /* a row's visibility is undecided */
	CELLAR_PASSTHRU_PREDICATE = 2,	/* the predicate cannot be evaluated, or
									 * would raise an error */
	CELLAR_PASSTHRU_PAGE = 3	/* the page is missing, unreadable, or has a
								 * wrong checksum */
} CellarPassthruReason;

/*
 * Returns the block of CELLAR_PASSTHRU, which the caller must read and
 * evaluate.  reason may be NULL.
 */
extern uint32_t cellar_passthru(const CellarConnection *connection, CellarPassthruReason *reason);

/*
 * Returns the right links of consecutive blocks of an index, from *first_block
 * on, until the next event: CELLAR_NOT_COUNTED for a block that the cell has not
 * counted, 0 for the rightmost leaf page.
 */
#define CELLAR_NOT_COUNTED	UINT32_MAX
extern const uint32_t *cellar_leaf_links(const CellarConnection *connection, uint32_t *first_block,
										 size_t *count);

/*
 * Returns heap rows whose visibility and conditions the caller must check,
 * until the next event: block number * 65536 + line pointer number.
 */
extern const uint64_t *cellar_heap_tids(const CellarConnection *connection, size_t *count);

/* The state of a transaction under the scan's snapshot. */
typedef enum CellarXidState
{
	CELLAR_XID_UNKNOWN = 0,		/* the backend's own transaction, or a
								 * truncated status; blocks pass through */
	CELLAR_XID_COMMITTED = 1,	/* committed and visible to the snapshot */
	CELLAR_XID_RUNNING = 2,		/* running under the snapshot, even if
								 * finished since */
	CELLAR_XID_ABORTED = 3
} CellarXidState;

/* Returns the transaction ids of CELLAR_XID_QUERY. */
extern const uint32_t *cellar_xids(const CellarConnection *connection, size_t *count);

/* Answers CELLAR_XID_QUERY: one CellarXidState per id, in the same order. */
extern void cellar_answer_xids(CellarConnection *connection, const uint8_t *states, size_t count);

/*
 * Statistics of a scan.  Units are bytes unless the name says otherwise.
 * crates/format/src/stats.rs defines each field.
 */
typedef struct CellarScanStats
{
	uint64_t	eligible_bytes;
	uint64_t	saved_by_storage_index_bytes;
	uint64_t	saved_by_columnar_cache_bytes;
	uint64_t	returned_bytes;
	uint64_t	uncompressed_bytes;
	uint64_t	passthru_bytes;
	uint64_t	passthru_blocks_visibility;
	uint64_t	passthru_blocks_predicate;
	uint64_t	passthru_blocks_page;
	uint64_t	disk_read_requests;
	uint64_t	disk_read_bytes;
	uint64_t	flash_read_requests;
	uint64_t	flash_read_bytes;
	uint64_t	cache_hit_bytes;
	uint64_t	blocks_helped_by_commit_cache;
	uint64_t	commit_cache_queries;
	uint64_t	found_in_commit_cache;
	uint64_t	rows_scanned;
	uint64_t	rows_returned;
	uint64_t	rows_aggregated;
	uint64_t	cell_cpu_ns;
} CellarScanStats;

/*
 * Returns the statistics of CELLAR_RANGE_PROGRESS or CELLAR_RANGE_DONE: the
 * range's counts since the previous one of these events.
 */
extern CellarScanStats cellar_range_stats(const CellarConnection *connection);

/* ----------------------------------------------------------------
 *		File I/O statistics
 * ----------------------------------------------------------------
 */

/*
 * Requests the file service's counters of files below the given directories
 * (relative to the mount's root).  CELLAR_FILE_IO announces the answer.  No
 * range may be unanswered.
 */
extern void cellar_query_file_io(CellarConnection *connection, const char *const *roots, size_t count);

typedef enum CellarFileIoKind
{
	CELLAR_SINGLE_BLOCK_READ = 0,	/* at most one block */
	CELLAR_MULTIBLOCK_READ = 1,
	CELLAR_DATA_FILE_WRITE = 2,
	CELLAR_WAL_WRITE = 3,
	CELLAR_SYNC = 4
} CellarFileIoKind;

#define CELLAR_FILE_IO_BUCKETS 27

/* The operations of one kind on the files of one database. */
typedef struct CellarFileIo
{
	uint32_t	database;		/* 0 for files without a database */
	uint32_t	kind;			/* a CellarFileIoKind */
	uint64_t	operations;
	uint64_t	bytes;
	uint64_t	microseconds;	/* sum of the service times */

	/*
	 * Bucket i counts service times below 2^i microseconds that are in no
	 * lower bucket.  The last bucket has no upper bound.
	 */
	uint64_t	histogram[CELLAR_FILE_IO_BUCKETS];
} CellarFileIo;

extern const CellarFileIo *cellar_file_io(const CellarConnection *connection, size_t *count);

/*
 * Like cellar_query_file_io, by file type and relation.  CELLAR_FILE_TYPE_IO
 * announces the answer.  A cell of an earlier release answers with
 * CELLAR_FAILED.
 */
extern void cellar_query_file_type_io(CellarConnection *connection, const char *const *roots, size_t count);

typedef enum CellarFileType
{
	CELLAR_FILE_RELATION = 0,	/* main fork of a table, index, TOAST table or
								 * sequence */
	CELLAR_FILE_MAP = 1,		/* free space map, visibility map */
	CELLAR_FILE_WAL = 2,
	CELLAR_FILE_TEMPORARY = 3,
	CELLAR_FILE_CONTROL = 4,
	CELLAR_FILE_OTHER = 5
} CellarFileType;

/*
 * The operations of one kind on the files of one type in one directory and
 * database, or on one relation among them.
 */
typedef struct CellarFileTypeIo
{
	uint32_t	root;			/* position of the directory in the query */
	uint32_t	database;		/* 0 for files without a database */
	uint32_t	file_type;		/* a CellarFileType */
	uint32_t	relation;		/* file number of a relation; 0 for the file
								 * type, whose counts include those of
								 * relations */
	uint32_t	kind;			/* a CellarFileIoKind */
	uint32_t	reserved;
	uint64_t	generation;		/* differs if the counters of the relation
								 * have started from zero again */
	uint64_t	operations;
	uint64_t	bytes;
	uint64_t	microseconds;
	uint64_t	histogram[CELLAR_FILE_IO_BUCKETS];	/* as in CellarFileIo */
} CellarFileTypeIo;

extern const CellarFileTypeIo *cellar_file_type_io(const CellarConnection *connection, size_t *count);

/* ----------------------------------------------------------------
 *		Disk group
 * ----------------------------------------------------------------
 */

/*
 * Requests the state of the cell's disk group, its disks and its operations.
 * CELLAR_GROUP announces the answer.  No range may be unanswered.
 */
extern void cellar_query_group(CellarConnection *connection);

/*
 * Requests the cell's metrics.  CELLAR_GROUP announces the answer.  No range may
 * be unanswered.
 */
extern void cellar_query_metrics(CellarConnection *connection);

/* Returns the answer as JSON text, valid until the next event. */
extern const char *cellar_group(const CellarConnection *connection);

/* ----------------------------------------------------------------
 *		Compression units
 *
 * The relation of these functions is a request with cellar_request_file() and
 * cellar_request_attribute(); other parts of the request are ignored.  No
 * range may be unanswered.
 * ----------------------------------------------------------------
 */

typedef enum CellarLevel
{
	CELLAR_LEVEL_RAW = 0,
	CELLAR_LEVEL_QUERY_LOW = 1,
	CELLAR_LEVEL_QUERY_HIGH = 2,
	CELLAR_LEVEL_ARCHIVE_LOW = 3,
	CELLAR_LEVEL_ARCHIVE_HIGH = 4
} CellarLevel;

#define CELLAR_LEVELS	5

/*
 * Rewrites the allocation units of blocks [first, end) to a level;
 * CELLAR_LEVEL_RAW decompresses them.  CELLAR_COMPRESS_PROGRESS arrives after
 * each allocation unit and during pauses, CELLAR_COMPRESS_DONE at the end.
 * Closing the connection cancels the compression between two allocation units.
 */
extern void cellar_compress(CellarConnection *connection, const CellarRequest *relation,
							uint32_t first, uint32_t end, uint8_t level);

/* The running totals of a compression. */
typedef struct CellarCompression
{
	uint64_t	blocks_done;	/* blocks of processed allocation units */
	uint64_t	units_written;
	uint64_t	units_skipped;	/* unchanged: modified while being encoded,
								 * incompressible, in use, or damaged */

	/*
	 * Compression: bytes of the encoded pages, and of their new units.
	 * Decompression: bytes of the units, and of their raw pages.
	 */
	uint64_t	bytes_before;
	uint64_t	bytes_after;
} CellarCompression;

extern CellarCompression cellar_compression(const CellarConnection *connection);

/*
 * Requests the levels of the allocation units of blocks [first, end).
 * CELLAR_UNITS announces the answer.
 */
extern void cellar_query_units(CellarConnection *connection, const CellarRequest *relation,
							   uint32_t first, uint32_t end);

/* The allocation units of one level. */
typedef struct CellarLevelUnits
{
	uint64_t	level;			/* a CellarLevel */
	uint64_t	units;
	uint64_t	blocks;
	uint64_t	superseded_blocks;	/* raw, because they were written after
									 * their unit was created */
	uint64_t	stored_bytes;
} CellarLevelUnits;

/* Returns the levels that have allocation units, in ascending order. */
extern const CellarLevelUnits *cellar_units(const CellarConnection *connection, size_t *count);

/*
 * Requests the allocation units of blocks [first, end) that cellar_compress()
 * would rewrite to the level, among those without a write in the last idle_us
 * microseconds.  An allocation unit that already has the level is due only if
 * at least a tenth of its blocks is raw.  CELLAR_DUE_UNITS announces the
 * answer.
 */
extern void cellar_query_due_units(CellarConnection *connection, const CellarRequest *relation,
								   uint32_t first, uint32_t end, uint8_t level, uint64_t idle_us);

/* The blocks [first, end) of a due allocation unit. */
typedef struct CellarDueUnit
{
	uint32_t	first;
	uint32_t	end;
	uint64_t	idle_us;		/* microseconds since the last write */
} CellarDueUnit;

/* Returns the due allocation units in block order. */
extern const CellarDueUnit *cellar_due_units(const CellarConnection *connection, size_t *count);

/* ----------------------------------------------------------------
 *		Compression advisor
 * ----------------------------------------------------------------
 */

/*
 * Encodes count pages of BLCKSZ bytes and returns the length of their
 * compression unit in *stored_bytes.  The request needs the attributes only.
 * level must not be CELLAR_LEVEL_RAW.  Returns false on failure, with *error
 * filled.
 */
extern bool cellar_estimate(const CellarRequest *relation, const void *pages, size_t count,
							uint8_t level, uint64_t *stored_bytes, CellarError *error);

/* ----------------------------------------------------------------
 *		Offload simulation
 *
 * Runs the cell's scan code on pages that Postgres has read, and counts the
 * bytes and rows that a cell would scan and return.
 * ----------------------------------------------------------------
 */

/*
 * Creates a simulation.  Returns NULL on failure, with *error filled.  The
 * request can be freed after the call.
 */
extern CellarSimulation *cellar_simulation_new(const CellarRequest *request, CellarError *error);
extern void cellar_simulation_free(CellarSimulation *simulation);

/*
 * Scans one block of BLCKSZ bytes.
 *
 * Returns CELLAR_RANGE_DONE if the block is counted.  Returns CELLAR_XID_QUERY
 * if the scan needs transaction states: answer the query, then call this
 * function again with the same block.  Returns CELLAR_FAILED after an internal
 * error.
 */
extern CellarEvent cellar_simulation_block(CellarSimulation *simulation, uint32_t block, const void *page);
extern const uint32_t *cellar_simulation_xids(const CellarSimulation *simulation, size_t *count);
extern void cellar_simulation_answer_xids(CellarSimulation *simulation, const uint8_t *states, size_t count);

/* Returns the totals of all blocks. */
extern CellarScanStats cellar_simulation_stats(CellarSimulation *simulation);

/* ----------------------------------------------------------------
 *		AWR reports
 * ----------------------------------------------------------------
 */

/* Forms of a report. */
typedef enum CellarReportFormat
{
	CELLAR_REPORT_TEXT = 0,		/* lines of at most 132 characters */
	CELLAR_REPORT_HTML = 1,		/* one file without references to others */
	CELLAR_REPORT_JSON = 2
} CellarReportFormat;

/*
 * Renders a report about json, a document of awr.report_data() or an array of
 * documents (one per instance), in UTF-8.  If compared_length is not 0, renders
 * the comparison of json with compared; each is the document of one instance.
 * format is a CellarReportFormat.  Returns NULL on failure, with *error filled.
 */
extern CellarReport *cellar_report_new(const char *json, size_t length,
									   const char *compared, size_t compared_length,
									   uint8_t format, CellarError *error);

/* Returns the text, UTF-8 without a terminating NUL, valid until cellar_report_free(). */
extern const char *cellar_report_text(const CellarReport *report);

/* Returns the length of the text in bytes. */
extern size_t cellar_report_length(const CellarReport *report);
extern void cellar_report_free(CellarReport *report);

#endif							/* CELLAR_CLIENT_H */
