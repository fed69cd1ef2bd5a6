/*-------------------------------------------------------------------------
 *
 * views.c
 *	  SQL functions that return statistics, wait events, cells and offloadable
 *	  functions.  cellar--1.0.sql defines views over them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_sysstat);
PG_FUNCTION_INFO_V1(cellar_sesstat);
PG_FUNCTION_INFO_V1(cellar_system_event);
PG_FUNCTION_INFO_V1(cellar_session_event);
PG_FUNCTION_INFO_V1(cellar_event_histogram);
PG_FUNCTION_INFO_V1(cellar_offloadable_functions);
PG_FUNCTION_INFO_V1(cellar_cell_of);
PG_FUNCTION_INFO_V1(cellar_cells);

static void
put_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
cellar_sysstat(PG_FUNCTION_ARGS)
{
	CellarCounts counts;

	cellar_begin_rows(fcinfo, 2);
	cellar_read_system_counts(&counts);
	for (int i = 0; i < CELLAR_STATS; i++)
	{
		Datum		values[2];
		bool		nulls[2] = {false, false};

		values[0] = CStringGetTextDatum(cellar_statistic_names[i]);
		values[1] = Int64GetDatum(counts.stats[i]);
		put_row(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/* Same rule as pg_stat_activity: sessions of roles that the user is a member of, or all with pg_read_all_stats. */
static bool
may_read_session(int pid)
{
	PGPROC	   *proc;

	if (pid == MyProcPid || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		return true;
	proc = BackendPidGetProc(pid);
	return proc != NULL && OidIsValid(proc->roleId) &&
		has_privs_of_role(GetUserId(), proc->roleId);
}

/* Reads a slot's counters.  Returns the session's process id, or 0 if there is none that the user may see. */
static int
visible_session(int slot, CellarCounts *counts)
{
	int			pid = cellar_read_session_counts(slot, counts);

	return pid != 0 && may_read_session(pid) ? pid : 0;
}

Datum
cellar_sesstat(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 3);
	cellar_attach_session();
	for (int slot = 0; slot < cellar_session_slots(); slot++)
	{
		CellarCounts counts;
		int			pid = visible_session(slot, &counts);

		for (int i = 0; pid != 0 && i < CELLAR_STATS; i++)
		{
			Datum		values[3];
			bool		nulls[3] = {false, false, false};

			values[0] = Int32GetDatum(pid);
			values[1] = CStringGetTextDatum(cellar_statistic_names[i]);
			values[2] = Int64GetDatum(counts.stats[i]);
			put_row(fcinfo, values, nulls);
		}
	}
	return (Datum) 0;
}

/* Fills five columns: event, number of waits, and total, average and maximum time in microseconds. */
static void
fill_event(Datum *values, bool *nulls, int event, const CellarEventCounts *counts)
{
	values[0] = CStringGetTextDatum(cellar_wait_names[event]);
	values[1] = Int64GetDatum(counts->waits);
	values[2] = Int64GetDatum(counts->time_us);
	nulls[3] = counts->waits == 0;
	values[3] = nulls[3] ? (Datum) 0 : Float8GetDatum((double) counts->time_us / counts->waits);
	values[4] = Int64GetDatum(counts->max_us);
}

Datum
cellar_system_event(PG_FUNCTION_ARGS)
{
	CellarCounts counts;

	cellar_begin_rows(fcinfo, 5);
	cellar_read_system_counts(&counts);
	for (int event = 0; event < CELLAR_WAITS; event++)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		fill_event(values, nulls, event, &counts.events[event]);
		put_row(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

Datum
cellar_session_event(PG_FUNCTION_ARGS)
{
	cellar_begin_rows(fcinfo, 6);
	cellar_attach_session();
	for (int slot = 0; slot < cellar_session_slots(); slot++)
	{
		CellarCounts counts;
		int			pid = visible_session(slot, &counts);

		for (int event = 0; pid != 0 && event < CELLAR_WAITS; event++)
		{
			Datum		values[6];
			bool		nulls[6] = {false};

			values[0] = Int32GetDatum(pid);
			fill_event(values + 1, nulls + 1, event, &counts.events[event]);
			put_row(fcinfo, values, nulls);
		}
	}
	return (Datum) 0;
}

Datum
cellar_event_histogram(PG_FUNCTION_ARGS)
{
	CellarCounts counts;

	cellar_begin_rows(fcinfo, 3);
	cellar_read_system_counts(&counts);
	for (int event = 0; event < CELLAR_WAITS; event++)
	{
		for (int i = 0; i < CELLAR_HISTOGRAM_BUCKETS; i++)
		{
			Datum		values[3];
			bool		nulls[3] = {false, false, false};

			values[0] = CStringGetTextDatum(cellar_wait_names[event]);
			values[1] = Int64GetDatum(INT64CONST(1) << i);
			values[2] = Int64GetDatum(counts.events[event].histogram[i]);
			put_row(fcinfo, values, nulls);
		}
	}
	return (Datum) 0;
}

Datum
cellar_offloadable_functions(PG_FUNCTION_ARGS)
{
	Oid			function;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (size_t i = 0; (function = cellar_offloadable_function(i)) != InvalidOid; i++)
	{
		Datum		value = ObjectIdGetDatum(function);
		bool		null = false;

		put_row(fcinfo, &value, &null);
	}
	return (Datum) 0;
}

/* cellar.get_cells(): one socket path per cell that stores the data directory or a tablespace. */
Datum
cellar_cells(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	foreach(lc, cellar_cluster_cells_or_warn())
	{
		CellarClusterCell *cell = lfirst(lc);
		Datum		value = CStringGetTextDatum(cell->location.socket_path);
		bool		null = false;

		put_row(fcinfo, &value, &null);
	}
	return (Datum) 0;
}

/*
 * cellar.cell_of(relation): the socket path of the cell that stores the relation,
 * and the file's path relative to the mount.  NULL if no cell stores it.
 */
Datum
cellar_cell_of(PG_FUNCTION_ARGS)
{
	Relation	rel = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	CellarLocation location;
	TupleDesc	tupdesc;
	Datum		values[2];
	bool		nulls[2] = {false, false};

	if (rel == NULL)
		PG_RETURN_NULL();
	if (!cellar_relation_location(rel, &location))
	{
		relation_close(rel, AccessShareLock);
		PG_RETURN_NULL();
	}
	relation_close(rel, AccessShareLock);

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = CStringGetTextDatum(location.socket_path);
	values[1] = CStringGetTextDatum(location.file);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
