/*-------------------------------------------------------------------------
 *
 * file_io.c
 *	  File I/O counts of this cluster: reads, writes and syncs through the
 *	  mounts, counted by the cells.
 *
 * A read that the kernel answers from its page cache never reaches a cell, and
 * is not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_file_io_counts);
PG_FUNCTION_INFO_V1(cellar_file_type_io_counts);

static const char *const kind_names[] = {
	"single block read", "multiblock read", "data file write", "WAL write", "sync"
};

static const char *const file_type_names[] = {
	"relation", "map", "wal", "temporary", "control", "other"
};

static void
put_counts(ReturnSetInfo *rsinfo, const char *socket_path, const CellarFileIo *count)
{
	Datum		values[7];
	bool		nulls[7] = {false};
	Datum		buckets[CELLAR_FILE_IO_BUCKETS];

	for (int i = 0; i < CELLAR_FILE_IO_BUCKETS; i++)
		buckets[i] = Int64GetDatum(count->histogram[i]);

	values[0] = CStringGetTextDatum(socket_path);
	values[1] = ObjectIdGetDatum(count->database);
	nulls[1] = !OidIsValid(count->database);
	values[2] = CStringGetTextDatum(kind_names[count->kind]);
	values[3] = Int64GetDatum(count->operations);
	values[4] = Int64GetDatum(count->bytes);
	values[5] = Int64GetDatum(count->microseconds);
	values[6] = PointerGetDatum(construct_array(buckets, CELLAR_FILE_IO_BUCKETS, INT8OID, 8, true, 'd'));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* The tablespace of a relation or temporary file; InvalidOid for other files of the data directory. */
static Oid
file_tablespace(const CellarClusterCell *cell, const CellarFileTypeIo *count)
{
	Oid			tablespace = list_nth_oid(cell->tablespaces, count->root);

	if (OidIsValid(tablespace))
		return tablespace;
	if (OidIsValid(count->database))
		return DEFAULTTABLESPACE_OID;
	return count->file_type == CELLAR_FILE_RELATION || count->file_type == CELLAR_FILE_MAP ? GLOBALTABLESPACE_OID : InvalidOid;
}

static void
put_type_counts(ReturnSetInfo *rsinfo, const CellarClusterCell *cell, const CellarFileTypeIo *count)
{
	Datum		values[11];
	bool		nulls[11] = {false};
	Datum		buckets[CELLAR_FILE_IO_BUCKETS];
	Oid			tablespace = file_tablespace(cell, count);

	for (int i = 0; i < CELLAR_FILE_IO_BUCKETS; i++)
		buckets[i] = Int64GetDatum(count->histogram[i]);

	values[0] = CStringGetTextDatum(cell->location.socket_path);
	values[1] = ObjectIdGetDatum(count->database);
	nulls[1] = !OidIsValid(count->database);
	values[2] = ObjectIdGetDatum(tablespace);
	nulls[2] = !OidIsValid(tablespace);
	values[3] = CStringGetTextDatum(file_type_names[count->file_type]);
	values[4] = ObjectIdGetDatum(count->relation);
	nulls[4] = count->relation == 0;
	values[5] = CStringGetTextDatum(psprintf("%llx/%llu", (unsigned long long) cell->location.instance,
											 (unsigned long long) count->generation));
	values[6] = CStringGetTextDatum(kind_names[count->kind]);
	values[7] = Int64GetDatum(count->operations);
	values[8] = Int64GetDatum(count->bytes);
	values[9] = Int64GetDatum(count->microseconds);
	values[10] = PointerGetDatum(construct_array(buckets, CELLAR_FILE_IO_BUCKETS, INT8OID, 8, true, 'd'));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* ---- queries ---- */

static const char **
root_paths(const CellarClusterCell *cell)
{
	const char **roots = palloc(list_length(cell->roots) * sizeof(char *));

	for (int i = 0; i < list_length(cell->roots); i++)
		roots[i] = list_nth(cell->roots, i);
	return roots;
}

static void
send_query(CellarConnection *connection, const CellarClusterCell *cell)
{
	cellar_query_file_io(connection, root_paths(cell), list_length(cell->roots));
}

static void
send_type_query(CellarConnection *connection, const CellarClusterCell *cell)
{
	cellar_query_file_type_io(connection, root_paths(cell), list_length(cell->roots));
}

static void
put_all_counts(CellarConnection *connection, const CellarClusterCell *cell, ReturnSetInfo *rsinfo)
{
	size_t		count;
	const CellarFileIo *counts = cellar_file_io(connection, &count);

	for (size_t i = 0; i < count; i++)
		put_counts(rsinfo, cell->location.socket_path, &counts[i]);
}

static void
put_all_type_counts(CellarConnection *connection, const CellarClusterCell *cell, ReturnSetInfo *rsinfo)
{
	size_t		count;
	const CellarFileTypeIo *counts = cellar_file_type_io(connection, &count);

	for (size_t i = 0; i < count; i++)
	{
		if (counts[i].root < (uint32_t) list_length(cell->roots))
			put_type_counts(rsinfo, cell, &counts[i]);
	}
}

static void
warn(CellarError error)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not read file I/O counts from a cell: %s", error.message),
			 *error.detail ? errdetail("%s", error.detail) : 0,
			 *error.hint ? errhint("%s", error.hint) : 0));
}

/* cellar.get_file_io(): one row per cell, database and kind of operation */
Datum
cellar_file_io_counts(PG_FUNCTION_ARGS)
{
	static const CellarCellQuery query = {
		.answer = CELLAR_FILE_IO,
		.send = send_query,
		.put_rows = put_all_counts,
		.warn = warn
	};

	cellar_begin_rows(fcinfo, 7);
	cellar_query_cells(&query, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}

/*
 * cellar.get_file_type_io(): one row per cell, tablespace, database, file type
 * and kind of operation, and one per relation and kind.  A cell of an earlier
 * release has no such counts, and causes a warning.
 */
Datum
cellar_file_type_io_counts(PG_FUNCTION_ARGS)
{
	static const CellarCellQuery query = {
		.answer = CELLAR_FILE_TYPE_IO,
		.send = send_type_query,
		.put_rows = put_all_type_counts,
		.warn = warn
	};

	cellar_begin_rows(fcinfo, 11);
	cellar_query_cells(&query, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
