/*
 * cellar_client.h
 *	  The cell's client: request encoding, socket, result decoding, and the
 *	  scan code for the offload simulation.
 *
 * Nothing here calls Postgres, raises an error, or blocks: the caller waits
 * on the socket with its own latch and reports errors its own way.  Pointers
 * that a function returns stay valid until the next call on the same object
 * unless its comment says otherwise.  Objects are not thread-safe.
 */
#ifndef CELLAR_CLIENT_H
#define CELLAR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CellarRequest CellarRequest;
typedef struct CellarConnection CellarConnection;
typedef struct CellarSimulation CellarSimulation;

/* What the cell and the simulation report as errors, in Postgres's terms. */
typedef struct CellarError
{
	char		sqlstate[6];
	const char *message;
	const char *detail;			/* "" when there is none */
	const char *hint;			/* "" when there is none */
} CellarError;

/* How a datum's bytes compare under a collation. */
typedef enum CellarCollation
{
	CELLAR_COLLATION_NONE = 0,	/* the type has no collation */
	CELLAR_COLLATION_BYTEWISE = 1,	/* C or POSIX */
	CELLAR_COLLATION_DETERMINISTIC = 2,
	CELLAR_COLLATION_NONDETERMINISTIC = 3
} CellarCollation;

/* ---- what can be offloaded ---- */

/*
 * True when the cell evaluates the function (a pg_proc OID of a built-in) under
 * that collation with exactly Postgres's result.
 */
extern bool cellar_function_offloadable(uint32_t function, CellarCollation collation);

/* What a planner has to know of an offloadable function besides. */
typedef enum CellarFunctionForm
{
	CELLAR_FORM_OTHER = 0,
	CELLAR_FORM_EQUALITY = 1,	/* = or <> */
	CELLAR_FORM_ORDER = 2,		/* another comparison */
	CELLAR_FORM_PATTERN = 3,	/* LIKE */
	CELLAR_FORM_CASED_PATTERN = 4,	/* ILIKE; letters of ASCII must change their case among themselves */
	CELLAR_FORM_CASE = 5,		/* lower or upper; as above, and only ASCII's letters are known */
	CELLAR_FORM_FIELD = 6		/* the first argument must be a field that is known */
} CellarFunctionForm;

extern CellarFunctionForm cellar_function_form(uint32_t function);

/* True when the cell can take this field (of extract or the like). */
extern bool cellar_field_known(uint32_t function, const char *field, size_t length);

/*
 * True when the cell makes the partial aggregate (a pg_proc OID of a built-in)
 * under that collation with exactly Postgres's result.
 */
extern bool cellar_aggregate_offloadable(uint32_t aggregate, CellarCollation collation);

/*
 * True when the cell can group rows by values of the base type; numerics must
 * all have one scale.
 */
extern bool cellar_type_groupable(uint32_t type);

/* True when values of the base type can stand in a storage predicate. */
extern bool cellar_type_offloadable(uint32_t type);

/*
 * The index'th offloadable function's OID, in ascending order; 0 past the end.
 */
extern uint32_t cellar_offloadable_function(size_t index);

/* ---- building a request ---- */

extern CellarRequest *cellar_request_new(void);
extern void cellar_request_free(CellarRequest *request);

/* Path of the relation's first segment file relative to the mount's root. */
extern void cellar_request_file(CellarRequest *request, const char *path,
								uint32_t segment_blocks, bool checksums, uint32_t encoding);

/*
 * One call an attribute of the tuple descriptor, in order.  type is the base
 * type's OID, 0 for a dropped column.  missing is what rows lack that are older
 * than the column: NULL, or a value in the form of a datum in a tuple (varlena
 * with header).
 */
extern void cellar_request_attribute(CellarRequest *request, uint32_t type, int32_t typmod,
									 int16_t typlen, char typalign, bool typbyval,
									 const void *missing, size_t missing_bytes);

extern void cellar_request_snapshot(CellarRequest *request, uint32_t xmin, uint32_t xmax,
									bool taken_during_recovery, uint64_t next_full_xid);

/* Attribute numbers, 1-based and ascending. */
extern void cellar_request_projection(CellarRequest *request, const uint16_t *attributes, size_t count,
									  bool whole_rows);

/*
 * A qual is built in postfix order: operands first, then the operation; each
 * qual ends with cellar_qual_end.  They are evaluated in the order added.
 */
extern void cellar_qual_column(CellarRequest *request, uint16_t attribute);

/*
 * Fixed-width types: typlen bytes as in a tuple; varlenas: the detoasted
 * payload without header; NULL for the null value.
 */
extern void cellar_qual_const(CellarRequest *request, uint32_t type, const void *value, size_t bytes);
extern void cellar_qual_call(CellarRequest *request, uint32_t function, CellarCollation collation, uint16_t nargs);
extern void cellar_qual_and(CellarRequest *request, uint16_t nargs);
extern void cellar_qual_or(CellarRequest *request, uint16_t nargs);
extern void cellar_qual_not(CellarRequest *request);
extern void cellar_qual_is_null(CellarRequest *request);
extern void cellar_qual_is_not_null(CellarRequest *request);

/* scalar op ANY/ALL (elements): first the scalar, then the elements. */
extern void cellar_qual_any_all(CellarRequest *request, uint32_t function, CellarCollation collation,
								bool any, uint32_t nelements);

/* test is a BoolTestType. */
extern void cellar_qual_boolean_test(CellarRequest *request, int test);
extern void cellar_qual_distinct(CellarRequest *request, uint32_t equal_function, CellarCollation collation);
extern void cellar_qual_coalesce(CellarRequest *request, uint16_t nargs);

/* Pairs of condition and result, then the ELSE result, were pushed. */
extern void cellar_qual_case(CellarRequest *request, uint16_t nbranches);
extern void cellar_qual_end(CellarRequest *request);

/* So many threads of the cell may share a range, whose blocks then come in any order. */
extern void cellar_request_threads(CellarRequest *request, uint16_t threads);

/*
 * Asks for groups instead of rows.  An expression built as a qual is, but
 * ended with one of the following instead of cellar_qual_end, becomes the next
 * group key, or the next aggregate's filter or argument: the filter comes
 * first, both may be left out, and cellar_aggregate_end closes the aggregate.
 */
extern void cellar_request_aggregation(CellarRequest *request);
extern void cellar_group_key_end(CellarRequest *request);
extern void cellar_aggregate_filter_end(CellarRequest *request);
extern void cellar_aggregate_end(CellarRequest *request, uint32_t aggregate, CellarCollation collation);

/*
 * Asks only for the first rows of an order, 1 to CELLAR_TOP_ROWS_MAX of them.
 * Others may come too: the caller sorts.  An expression ended with
 * cellar_sort_key_end is the next key; less is the pg_proc row of the
 * ascending order's < operator.
 */
#define CELLAR_TOP_ROWS_MAX 10000
extern void cellar_request_top_rows(CellarRequest *request, uint32_t rows);
extern void cellar_sort_key_end(CellarRequest *request, uint32_t less, CellarCollation collation,
								bool descending, bool nulls_first);

/* ---- talking to a cell ---- */

/*
 * Starts to connect and queues the greeting.  NULL on failure, with *error
 * filled; its strings stay valid until the next call that fills an error in
 * this process.
 */
extern CellarConnection *cellar_connect(const char *socket_path, uint32_t backend_pid, uint32_t database,
										uint64_t system_identifier, uint64_t incarnation,
										CellarError *error);
extern void cellar_close(CellarConnection *connection);

/* The descriptor to wait on. */
extern int	cellar_socket(const CellarConnection *connection);

/*
 * Opens a scan; a connection carries one at a time, and opening another one
 * abandons what is still under way of the first.  The request may be freed afterwards.
 */
extern void cellar_scan_open(CellarConnection *connection, const CellarRequest *request);

/*
 * Asks for blocks [first, end).  Several ranges may be asked for ahead; they
 * are answered in order, each closed by CELLAR_RANGE_DONE.
 */
extern void cellar_scan_range(CellarConnection *connection, uint32_t first, uint32_t end);

typedef enum CellarEvent
{
	CELLAR_WAIT_READABLE,		/* wait until the socket is readable */
	CELLAR_WAIT_WRITABLE,		/* wait until the socket is readable or writable */
	CELLAR_BATCH,				/* rows; see cellar_batch */
	CELLAR_PASSTHRU,			/* read this block yourself; see cellar_passthru */
	CELLAR_XID_QUERY,			/* answer with cellar_answer_xids */
	CELLAR_RANGE_DONE,			/* a range is answered; see cellar_range_stats */
	CELLAR_FAILED,				/* see cellar_error; only cellar_close is left to do */
	CELLAR_FILE_IO,				/* see cellar_file_io */
	CELLAR_WAIT_CONNECT,		/* no connection yet: wait some milliseconds, not on the socket */
	CELLAR_RANGE_PROGRESS,		/* a range goes on; see cellar_range_stats */
	CELLAR_COMPRESS_PROGRESS,	/* see cellar_compression */
	CELLAR_COMPRESS_DONE,		/* see cellar_compression */
	CELLAR_UNITS,				/* see cellar_units */
	CELLAR_DUE_UNITS			/* see cellar_due_units */
} CellarEvent;

/* Sends what is queued, receives what has come, and tells the next event. Never blocks. */
extern CellarEvent cellar_next(CellarConnection *connection);

/* One projected column of a batch. */
typedef struct CellarColumn
{
	const uint8_t *nulls;		/* one byte a row, 1 for null; NULL when no row is */
	const char *values;			/* fixed width: stride bytes a row, as in a tuple */
	const uint32_t *offsets;	/* varlena and cstring: where in data a row's datum starts; else NULL */
	const char *data;
	uint32_t	stride;
} CellarColumn;

/* One tuple of a batch of whole rows. */
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
	uint16_t	ncolumns;		/* 0 for whole rows and for bare counts */
	bool		whole_rows;
	bool		groups;			/* keys, then states of partial aggregates */
	const CellarColumn *columns;
} CellarBatch;

/*
 * The batch that CELLAR_BATCH announced.  It and all it points to stay valid
 * until the next cellar_next.
 */
extern const CellarBatch *cellar_batch(const CellarConnection *connection);
extern CellarRow cellar_batch_row(const CellarConnection *connection, uint32_t row);

typedef enum CellarPassthruReason
{
	CELLAR_PASSTHRU_VISIBILITY = 1,
	CELLAR_PASSTHRU_PREDICATE = 2,
	CELLAR_PASSTHRU_PAGE = 3
} CellarPassthruReason;

/* The block that CELLAR_PASSTHRU announced. */
extern uint32_t cellar_passthru(const CellarConnection *connection, CellarPassthruReason *reason);

/* What a transaction is to the scan's snapshot. */
typedef enum CellarXidState
{
	CELLAR_XID_UNKNOWN = 0,		/* own transaction, or status no longer known */
	CELLAR_XID_COMMITTED = 1,	/* and visible to the snapshot */
	CELLAR_XID_RUNNING = 2,		/* for the snapshot, whatever became of it since */
	CELLAR_XID_ABORTED = 3
} CellarXidState;

extern const uint32_t *cellar_xids(const CellarConnection *connection, size_t *count);
extern void cellar_answer_xids(CellarConnection *connection, const uint8_t *states, size_t count);

/* Counts of one range since they were last told; bytes unless the name says otherwise.  The fields mean what stats.rs says. */
typedef struct CellarScanStats
{
	uint64_t	eligible_bytes;
	uint64_t	saved_by_storage_index_bytes;
	uint64_t	returned_bytes;
	uint64_t	uncompressed_bytes;
	uint64_t	passthru_bytes;
	uint64_t	passthru_blocks_visibility;
	uint64_t	passthru_blocks_predicate;
	uint64_t	passthru_blocks_page;
	uint64_t	disk_read_requests;
	uint64_t	disk_read_bytes;
	uint64_t	cache_hit_bytes;
	uint64_t	blocks_helped_by_commit_cache;
	uint64_t	commit_cache_queries;
	uint64_t	found_in_commit_cache;
	uint64_t	rows_scanned;
	uint64_t	rows_returned;
	uint64_t	rows_aggregated;
	uint64_t	cell_cpu_ns;
} CellarScanStats;

extern CellarScanStats cellar_range_stats(const CellarConnection *connection);

/*
 * What the file service counted of files below the given paths (relative to
 * the mount's root), answered by CELLAR_FILE_IO.  Ask between scans only.
 */
extern void cellar_ask_file_io(CellarConnection *connection, const char *const *roots, size_t count);

typedef enum CellarFileIoKind
{
	CELLAR_SINGLE_BLOCK_READ = 0,	/* at most one block */
	CELLAR_MULTIBLOCK_READ = 1,
	CELLAR_DATA_FILE_WRITE = 2,
	CELLAR_WAL_WRITE = 3,
	CELLAR_SYNC = 4
} CellarFileIoKind;

#define CELLAR_FILE_IO_BUCKETS 27

/* Bucket i counts times below 2^i microseconds; the last one is open. */
typedef struct CellarFileIo
{
	uint32_t	database;		/* 0 for files that belong to none */
	uint32_t	kind;			/* a CellarFileIoKind */
	uint64_t	operations;
	uint64_t	bytes;
	uint64_t	microseconds;
	uint64_t	histogram[CELLAR_FILE_IO_BUCKETS];
} CellarFileIo;

extern const CellarFileIo *cellar_file_io(const CellarConnection *connection, size_t *count);

/* ---- compression units ---- */

/* Levels of compression. */
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
 * Brings the allocation units of blocks [first, end) to a level, raw included.
 * The request needs the file and its attributes only.  CELLAR_COMPRESS_PROGRESS
 * tells each allocation unit, CELLAR_COMPRESS_DONE the end; closing the
 * connection stops the work between two of them.
 */
extern void cellar_compress(CellarConnection *connection, const CellarRequest *relation,
							uint32_t first, uint32_t end, uint8_t level);

typedef struct CellarCompression
{
	uint64_t	blocks_done;	/* whose allocation unit was looked at */
	uint64_t	units_written;
	uint64_t	units_skipped;	/* changed while they were encoded: they stay as they are */
	uint64_t	bytes_before;	/* of the pages encoded, and of their units */
	uint64_t	bytes_after;
} CellarCompression;

extern CellarCompression cellar_compression(const CellarConnection *connection);

/*
 * Asks for the forms of the allocation units of blocks [first, end), answered
 * by CELLAR_UNITS.
 */
extern void cellar_ask_units(CellarConnection *connection, const CellarRequest *relation,
							 uint32_t first, uint32_t end);

typedef struct CellarLevelUnits
{
	uint64_t	level;			/* a CellarLevel */
	uint64_t	units;
	uint64_t	blocks;
	uint64_t	dead_blocks;	/* written since they were compressed: they lie raw */
	uint64_t	stored_bytes;
} CellarLevelUnits;

extern const CellarLevelUnits *cellar_units(const CellarConnection *connection, size_t *count);

/*
 * Asks which allocation units of blocks [first, end) cellar_compress would
 * rewrite, of those that nothing has written to for idle_us microseconds;
 * answered by CELLAR_DUE_UNITS.  A unit at the level is left alone while few of
 * its blocks lie raw.
 */
extern void cellar_ask_due(CellarConnection *connection, const CellarRequest *relation,
						   uint32_t first, uint32_t end, uint8_t level, uint64_t idle_us);

typedef struct CellarDueUnit
{
	uint32_t	first;			/* block */
	uint32_t	end;
	uint64_t	idle_us;		/* nothing wrote to it for so long */
} CellarDueUnit;

/* In the order of their blocks. */
extern const CellarDueUnit *cellar_due_units(const CellarConnection *connection, size_t *count);

/* The failure that CELLAR_FAILED announced. */
extern CellarError cellar_error(const CellarConnection *connection);

/* ---- the compression advisor: the cell's encoder over pages that Postgres has read ---- */

/*
 * How many bytes a level other than CELLAR_LEVEL_RAW would make of so many whole pages; the request
 * needs the attributes only.  False on failure, with *error filled.
 */
extern bool cellar_estimate(const CellarRequest *relation, const void *pages, size_t count,
							uint8_t level, uint64_t *stored_bytes, CellarError *error);

/* ---- offload simulation: the cell's scan code over pages that Postgres has read ---- */

/* NULL on failure, with *error filled. */
extern CellarSimulation *cellar_simulation_new(const CellarRequest *request, CellarError *error);
extern void cellar_simulation_free(CellarSimulation *simulation);

/*
 * Scans one block.  Returns CELLAR_RANGE_DONE when it is counted, or
 * CELLAR_XID_QUERY: answer, then call again with the same block.
 */
extern CellarEvent cellar_simulation_block(CellarSimulation *simulation, uint32_t block, const void *page);
extern const uint32_t *cellar_simulation_xids(const CellarSimulation *simulation, size_t *count);
extern void cellar_simulation_answer_xids(CellarSimulation *simulation, const uint8_t *states, size_t count);

/* All counts so far: what a cell would have found eligible and have returned. */
extern CellarScanStats cellar_simulation_stats(CellarSimulation *simulation);

#endif							/* CELLAR_CLIENT_H */
