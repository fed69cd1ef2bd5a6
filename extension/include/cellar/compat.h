/*-------------------------------------------------------------------------
 *
 * cellar/compat.h
 *	  Differences between the supported major versions of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_COMPAT_H
#define CELLAR_COMPAT_H

#include "access/heapam.h"
#include "access/stratnum.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "common/relpath.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "pgstat.h"
#include "rewrite/rewriteManip.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/smgr.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/pg_locale.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "nodes/queryjumble.h"
#include "varatt.h"
#else
#include "utils/queryjumble.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "cellar supports PostgreSQL 15 to 19"
#endif

/* 16 renamed relfilenodes. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator CellarFileId;
#define CellarRelationFile(rel)		((rel)->rd_locator)
#define CellarFileTablespace(file)	((file).spcOid)
#define CellarFileDatabase(file)	((file).dbOid)
#define CellarFileNumber(file)		((file).relNumber)
#define CellarFileEquals(a, b)		RelFileLocatorEquals(a, b)
#define CellarTagFile(tag)			BufTagGetRelFileLocator(&(tag))
#define CellarTagFork(tag)			BufTagGetForkNum(&(tag))
#else
typedef RelFileNode CellarFileId;
#define CellarRelationFile(rel)		((rel)->rd_node)
#define CellarFileTablespace(file)	((file).spcNode)
#define CellarFileDatabase(file)	((file).dbNode)
#define CellarFileNumber(file)		((file).relNode)
#define CellarFileEquals(a, b)		RelFileNodeEquals(a, b)
#define CellarTagFile(tag)			((tag).rnode)
#define CellarTagFork(tag)			((tag).forkNum)
#endif

/* 16 made a function of the macro. */
#if PG_VERSION_NUM >= 160000
#define CellarInitBufferTag(tag, file, block)	InitBufferTag(tag, &(file), MAIN_FORKNUM, block)
#else
#define CellarInitBufferTag(tag, file, block)	INIT_BUFFERTAG(*(tag), file, MAIN_FORKNUM, block)
#endif

/* 17 added transaction_timeout, which must not terminate a background worker. */
static inline void
CellarNoTransactionTimeout(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
}

/* 18 returns paths by value. */
static inline char *
CellarRelationPath(CellarFileId file)
{
#if PG_VERSION_NUM >= 180000
	return pstrdup(relpathperm(file, MAIN_FORKNUM).str);
#else
	return relpathperm(file, MAIN_FORKNUM);
#endif
}

/* _MdfdVec of md.c, the same in all versions. */
typedef struct CellarMdSegment
{
	File		file;
	BlockNumber segment;
} CellarMdSegment;

/*
 * Returns the kernel's descriptor of a segment of the main fork, or a negative number if this process has not
 * opened the segment.  If the descriptor was closed because the process has too many files, 18 opens the file again, as
 * RelationGetNumberOfBlocks does for the last segment.
 */
static inline int
CellarSegmentDescriptor(Relation rel, BlockNumber segment)
{
	SMgrRelation smgr = RelationGetSmgr(rel);

	if (segment >= (BlockNumber) smgr->md_num_open_segs[MAIN_FORKNUM])
		return -1;
	return FileGetRawDesc(((CellarMdSegment *) smgr->md_seg_fds[MAIN_FORKNUM])[segment].file);
}

/* 17 renamed the transaction manager's shared state. */
#if PG_VERSION_NUM >= 170000
#define CellarOldestClogXid()		(TransamVariables->oldestClogXid)
#else
#define CellarOldestClogXid()		(ShmemVariableCache->oldestClogXid)
#endif

/* 17 removed old_snapshot_threshold. */
#if PG_VERSION_NUM >= 170000
#define CellarOldSnapshotsFail()	(false)
#else
#define CellarOldSnapshotsFail()	(old_snapshot_threshold >= 0)
#endif

/* 17 removed the snapshot, with old_snapshot_threshold. */
#if PG_VERSION_NUM >= 170000
#define CellarLeftmostLeaf(index, snapshot)	_bt_get_endpoint(index, 0, false)
#else
#define CellarLeftmostLeaf(index, snapshot)	_bt_get_endpoint(index, 0, false, snapshot)
#endif

/* 19 added flags. */
#if PG_VERSION_NUM >= 190000
#define CellarIndexFetchBegin(rel)	table_index_fetch_begin(rel, 0)
#else
#define CellarIndexFetchBegin(rel)	table_index_fetch_begin(rel)
#endif

/* 18 added an entry for the expressions of GROUP BY. */
#if PG_VERSION_NUM >= 180000
#define CELLAR_IS_RTE_GROUP(rte)	((rte)->rtekind == RTE_GROUP)
#define CELLAR_GROUP_EXPRESSIONS(rte)	((rte)->groupexprs)
#else
#define CELLAR_IS_RTE_GROUP(rte)	false
#define CELLAR_GROUP_EXPRESSIONS(rte)	NIL
#endif

/* 18 marks the columns that grouping sets may set to NULL. */
#if PG_VERSION_NUM >= 180000
static inline Node *
CellarUngrouped(PlannerInfo *root, Node *node)
{
	if (root->parse->groupingSets == NIL || root->group_rtindex == 0)
		return node;
	return remove_nulling_relids(node, bms_make_singleton(root->group_rtindex), NULL);
}
#else
#define CellarUngrouped(root, node)	((Node *) (node))
#endif

/* 16 removed the number of groups, which was not used. */
#if PG_VERSION_NUM >= 160000
#define CellarCreateGroupingSetsPath(root, rel, subpath, having, strategy, rollups, costs) \
	create_groupingsets_path(root, rel, subpath, having, strategy, rollups, costs)
#else
#define CellarCreateGroupingSetsPath(root, rel, subpath, having, strategy, rollups, costs) \
	create_groupingsets_path(root, rel, subpath, having, strategy, rollups, costs, 0)
#endif

/* 17 renamed the number of a process. */
#if PG_VERSION_NUM >= 170000
#define CellarProcNumber(proc)		((int) GetNumberFromPGProc(proc))
#else
#define CellarProcNumber(proc)		((proc)->pgprocno)
#endif

/* 16 allocates the values of settings in a memory context. */
#if PG_VERSION_NUM >= 160000
#define CellarGucMalloc(size)	guc_malloc(LOG, size)
#define CellarGucFree(pointer)	guc_free(pointer)
#else
#define CellarGucMalloc(size)	malloc(size)
#define CellarGucFree(pointer)	free(pointer)
#endif

/* 18 removed a parameter of ExecutorRun. */
#if PG_VERSION_NUM >= 180000
#define CELLAR_EXECUTE_ONCE_PARAMETER
#define CELLAR_EXECUTE_ONCE_ARGUMENT
#else
#define CELLAR_EXECUTE_ONCE_PARAMETER	, bool execute_once
#define CELLAR_EXECUTE_ONCE_ARGUMENT	, execute_once
#endif

/* 16 added right anti joins, 18 right semi joins.  All these joins drop outer rows without partner. */
static inline bool
CellarDropsOuterRows(JoinType type)
{
	switch (type)
	{
		case JOIN_INNER:
		case JOIN_SEMI:
		case JOIN_RIGHT:
#if PG_VERSION_NUM >= 160000
		case JOIN_RIGHT_ANTI:
#endif
#if PG_VERSION_NUM >= 180000
		case JOIN_RIGHT_SEMI:
#endif
			return true;
		default:
			return false;
	}
}

/* 19 made a parameter of the analyze hook constant, and added one to the planner hook. */
#if PG_VERSION_NUM >= 190000
#define CELLAR_JUMBLE_STATE			const JumbleState
#define CELLAR_PLANNER_PARAMETER	, ExplainState *explain
#define CELLAR_PLANNER_ARGUMENT		, explain
#else
#define CELLAR_JUMBLE_STATE			JumbleState
#define CELLAR_PLANNER_PARAMETER
#define CELLAR_PLANNER_ARGUMENT
#endif

/* 19 enables kinds of joins by a mask of the join; a mask of 0 disables all. */
#if PG_VERSION_NUM >= 190000
#define CellarSetJoinMask(root, extra)	((extra)->pgs_mask = (root)->glob->default_pgs_mask)
#else
#define CellarSetJoinMask(root, extra)	((void) 0)
#endif

/* 16 made a time a number of ticks, with an exact conversion to nanoseconds. */
#if PG_VERSION_NUM >= 160000
#define CellarTimeNs(time)	((uint64) INSTR_TIME_GET_NANOSEC(time))
#else
#define CellarTimeNs(time)	((uint64) (time).tv_sec * UINT64CONST(1000000000) + (uint64) (time).tv_nsec)
#endif

/* 19 removed the initial size of hash tables in shared memory, and widened the state of buffers. */
#if PG_VERSION_NUM >= 190000
#define CellarShmemInitHash(name, size, info, flags)	ShmemInitHash(name, size, info, flags)
#define CellarReadBufferState(buffer)	pg_atomic_read_u64(&(buffer)->state)
#else
#define CellarShmemInitHash(name, size, info, flags)	ShmemInitHash(name, size, size, info, flags)
#define CellarReadBufferState(buffer)	pg_atomic_read_u32(&(buffer)->state)
#endif

/* 19 writes a buffer without copying the page, so a share lock does not suffice. */
#if PG_VERSION_NUM >= 190000
#define CELLAR_BUFFER_LOCK_FLUSH	BUFFER_LOCK_SHARE_EXCLUSIVE
#else
#define CELLAR_BUFFER_LOCK_FLUSH	BUFFER_LOCK_SHARE
#endif

/* 17 distinguishes the times of shared and local blocks. */
#if PG_VERSION_NUM >= 170000
#define CellarBlockReadUs(usage)	INSTR_TIME_GET_MICROSEC((usage)->shared_blk_read_time)
#define CellarBlockWriteUs(usage)	INSTR_TIME_GET_MICROSEC((usage)->shared_blk_write_time)
#else
#define CellarBlockReadUs(usage)	INSTR_TIME_GET_MICROSEC((usage)->blk_read_time)
#define CellarBlockWriteUs(usage)	INSTR_TIME_GET_MICROSEC((usage)->blk_write_time)
#endif

/* 16 renamed the function that returns the status of the i-th process. */
#if PG_VERSION_NUM >= 160000
#define CellarBackendStatusByIndex(i)	pgstat_get_local_beentry_by_index(i)
#else
#define CellarBackendStatusByIndex(i)	pgstat_fetch_stat_local_beentry(i)
#endif

/*
 * 17 lets extensions name their wait events. Before, PostgreSQL calls all events of the class Extension, whatever their other bits, and
 * only samples of sessions show the names of these events. The number in the bits is unlikely in another extension.
 */
#if PG_VERSION_NUM >= 170000
#define CellarNewWaitEvent(name, number)	((void) (number), WaitEventExtensionNew(name))
#define CellarIsWaitEvent(info, number)		false
#else
#define CellarNewWaitEvent(name, number)	((uint32) (PG_WAIT_EXTENSION | 0xCE1100 | (number)))
#define CellarIsWaitEvent(info, number)		((info) == CellarNewWaitEvent(NULL, number))
#endif

/* 17 ties wait event sets to resource owners; NULL lets a set outlive the query. */
static inline WaitEventSet *
CellarCreateWaitEventSet(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* 18 replaced lc_collate_is_c by a member of the locale. */
static inline bool
CellarCollationIsC(Oid collation)
{
#if PG_VERSION_NUM >= 180000
	return pg_newlocale_from_collation(collation)->collate_is_c;
#else
	return lc_collate_is_c(collation);
#endif
}

/* 16 marks aggregates whose input the plan sorts. */
#if PG_VERSION_NUM >= 160000
#define CellarClearPresorted(aggref)	((aggref)->aggpresorted = false)
#else
#define CellarClearPresorted(aggref)	((void) 0)
#endif

/* 16 removes redundant columns from GROUP BY and DISTINCT: see cellar_group_clause(). */
#if PG_VERSION_NUM >= 160000
#define CellarGroupClause(root)		((root)->processed_groupClause)
#define CellarDistinctClause(root)	((root)->processed_distinctClause)
#else
#define CellarGroupClause(root)		((root)->parse->groupClause)
#define CellarDistinctClause(root)	((root)->parse->distinctClause)
#endif

/* 19 renamed the path that removes adjacent duplicates. */
#if PG_VERSION_NUM >= 190000
#define T_UpperUniquePath	T_UniquePath
typedef UniquePath UpperUniquePath;
#endif

/* 18 added generated columns that are computed when they are read. */
#if PG_VERSION_NUM >= 180000
#define CellarHasVirtualColumns(tupdesc) \
	((tupdesc)->constr != NULL && (tupdesc)->constr->has_generated_virtual)
#else
#define CellarHasVirtualColumns(tupdesc)	((void) (tupdesc), false)
#endif

/* 16 added the join's SpecialJoinInfo, which is NULL for an inner join. */
#if PG_VERSION_NUM >= 160000
#define CellarJoinEqualities(root, join, outer, inner, special) \
	generate_join_implied_equalities(root, join, outer, inner, special)
#else
#define CellarJoinEqualities(root, join, outer, inner, special) \
	generate_join_implied_equalities(root, join, outer, inner)
#endif

/*
 * 16 numbers outer joins, marks the columns that they may set to NULL, and clones
 * clauses for different orders of outer joins; see subbuild_joinrel_restrictlist.
 */
#if PG_VERSION_NUM >= 160000
#define CellarOuterJoinRelid(join)	((join)->ojrelid)
#define CellarClearNullingRels(var)	((var)->varnullingrels = NULL)
#define CellarAddNullingRel(var, join) \
	((var)->varnullingrels = bms_add_member((var)->varnullingrels, join))
#define CellarClauseApplies(rinfo, input_relids) \
	(!((rinfo)->has_clone || (rinfo)->is_clone) || \
	 (bms_is_subset((rinfo)->required_relids, input_relids) && \
	  !bms_overlap((rinfo)->incompatible_relids, input_relids)))
#else
#define CellarOuterJoinRelid(join)	((void) (join), 0)
#define CellarClearNullingRels(var)	((void) (var))
#define CellarAddNullingRel(var, join)	((void) (var), (void) (join))
#define CellarClauseApplies(rinfo, input_relids)	((void) (input_relids), true)
#endif

/* 16 renamed the counters of a relation. */
#if PG_VERSION_NUM >= 160000
#define CellarCountTuplesReturned(rel, n) \
	do { \
		if (pgstat_should_count_relation(rel)) \
			(rel)->pgstat_info->counts.tuples_returned += (n); \
	} while (0)
#else
#define CellarCountTuplesReturned(rel, n) \
	do { \
		if (pgstat_should_count_relation(rel)) \
			(rel)->pgstat_info->t_counts.t_tuples_returned += (n); \
	} while (0)
#endif

/* 18 counts disabled nodes instead of adding a huge cost. */
static inline void
CellarDisablePath(Path *path)
{
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes++;
#else
	path->startup_cost += disable_cost;
	path->total_cost += disable_cost;
#endif
}

/* Returns the cost that a setting like enable_indexscan = off has added to the costs of a path; 0 since 18. */
static inline Cost
CellarDisabledCost(const Path *path)
{
#if PG_VERSION_NUM >= 180000
	return 0;
#else
	return path->startup_cost >= disable_cost ? disable_cost : 0;
#endif
}

/* Returns how many nodes of a plan are disabled. */
static inline int
CellarPlanDisabledNodes(const Plan *plan)
{
#if PG_VERSION_NUM >= 180000
	return plan->disabled_nodes;
#else
	return 0;
#endif
}

/* Disables a path if its child is disabled. */
static inline void
CellarCopyDisabledNodes(Path *path, const Path *child)
{
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes = child->disabled_nodes;
#endif
}

/*
 * Returns the btree ordering of an operator < or >.  18 has orderings of other
 * index types too.
 */
static inline bool
CellarOrder(Oid sort_operator, Oid *opfamily, Oid *type, bool *descending)
{
#if PG_VERSION_NUM >= 180000
	CompareType compare;

	if (!get_ordering_op_properties(sort_operator, opfamily, type, &compare))
		return false;
	*descending = compare == COMPARE_GT;
	return get_opfamily_method(*opfamily) == BTREE_AM_OID;
#else
	int16		strategy;

	if (!get_ordering_op_properties(sort_operator, opfamily, type, &strategy))
		return false;
	*descending = strategy == BTGreaterStrategyNumber;
	return true;
#endif
}

/*
 * Returns an Append of paths, a parallel one if workers is not 0.  19 combined the lists of
 * paths in a struct.
 */
static inline Path *
CellarCreateAppendPath(PlannerInfo *root, RelOptInfo *rel, List *paths, int workers)
{
#if PG_VERSION_NUM >= 190000
	AppendPathInput input = {.subpaths = paths};

	return (Path *) create_append_path(root, rel, input, NIL, NULL, workers, workers > 0, -1);
#else
	return (Path *) create_append_path(root, rel, paths, NIL, NIL, NULL, workers, workers > 0, -1);
#endif
}

/* Returns a scan of a subquery that returns the columns of its path.  16 added whether these are all columns. */
static inline Path *
CellarCreateSubqueryScanPath(PlannerInfo *root, RelOptInfo *rel, Path *path)
{
#if PG_VERSION_NUM >= 160000
	return (Path *) create_subqueryscan_path(root, rel, path, true, NIL, NULL);
#else
	return (Path *) create_subqueryscan_path(root, rel, path, NIL, NULL);
#endif
}

/* 16 replaced the ownership checks by one function. */
#if PG_VERSION_NUM >= 160000
#define CellarOwnsRelation(oid)		object_ownercheck(RelationRelationId, (oid), GetUserId())
#define CellarOwnsTablespace(oid)	object_ownercheck(TableSpaceRelationId, (oid), GetUserId())
#else
#define CellarOwnsRelation(oid)		pg_class_ownercheck((oid), GetUserId())
#define CellarOwnsTablespace(oid)	pg_tablespace_ownercheck((oid), GetUserId())
#endif

/*
 * Prunes a heap page if pruning is useful and possible without waiting.  19 can
 * also set the page all-visible, which a scan of passthrough blocks does not
 * request.  19 may pin a page of the visibility map.
 */
static inline void
CellarPrunePage(Relation rel, Buffer buffer)
{
#if PG_VERSION_NUM >= 190000
	Buffer		map = InvalidBuffer;

	heap_page_prune_opt(rel, buffer, &map, false);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
#else
	heap_page_prune_opt(rel, buffer);
#endif
}

/* 19 gave the numbers of system caches an enum type. */
#if PG_VERSION_NUM >= 190000
#define CELLAR_SYSCACHE_ID	SysCacheIdentifier
#else
#define CELLAR_SYSCACHE_ID	int
#endif

/* 19 added flags of slots. */
#if PG_VERSION_NUM >= 190000
#define CellarAllocTableSlot(table, desc, ops)	ExecAllocTableSlot((table), (desc), (ops), 0)
#else
#define CellarAllocTableSlot(table, desc, ops)	ExecAllocTableSlot((table), (desc), (ops))
#endif

/*
 * 19 changed the serialized transition states that contain 128-bit integers
 * (int8_avg_serialize, numeric_poly_serialize): of sum and avg of bigint, and
 * of the variance and the standard deviation of int and smallint.  Cells compute
 * the former formats, so PostgreSQL computes these aggregates.
 */
#if PG_VERSION_NUM >= 190000
#define CellarStateDiffers(aggregate) \
	((aggregate) == F_SUM_INT8 || (aggregate) == F_AVG_INT8 || \
	 (aggregate) == F_VARIANCE_INT4 || (aggregate) == F_VARIANCE_INT2 || \
	 (aggregate) == F_VAR_POP_INT4 || (aggregate) == F_VAR_POP_INT2 || \
	 (aggregate) == F_VAR_SAMP_INT4 || (aggregate) == F_VAR_SAMP_INT2 || \
	 (aggregate) == F_STDDEV_INT4 || (aggregate) == F_STDDEV_INT2 || \
	 (aggregate) == F_STDDEV_POP_INT4 || (aggregate) == F_STDDEV_POP_INT2 || \
	 (aggregate) == F_STDDEV_SAMP_INT4 || (aggregate) == F_STDDEV_SAMP_INT2)
#else
#define CellarStateDiffers(aggregate)	(false)
#endif

#endif							/* CELLAR_COMPAT_H */
