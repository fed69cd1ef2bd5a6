/*-------------------------------------------------------------------------
 *
 * plan_id.c
 *	  The identifier of a plan: a hash of its structure.
 *
 * Two executions of a statement have the same plan id if their plans consist of
 * the same nodes over relations and indexes of the same names in the same order.
 * Costs, row estimates and constants do not matter.  As in Oracle, names matter
 * rather than object identifiers: an index that is dropped and created again with
 * its name does not change the plan.
 *
 * A plan that is executed repeatedly is hashed once: its identifier is kept in the
 * memory context of the plan, and found by the address of the plan.  When the
 * context is reset or deleted, the identifier is forgotten, so that another plan at
 * the same address is hashed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/* Names of relations that this process has hashed, by the lowest bits of the object identifier. */
#define NAME_HASHES		256

typedef struct NameHash
{
	Oid			relation;		/* InvalidOid if not in use */
	uint64		hash;
} NameHash;

static NameHash name_hashes[NAME_HASHES];
static uint64 names_version = 0;	/* changes when names are forgotten */

/* The identifier of a plan, in the memory context of the plan. */
typedef struct KeptPlanId
{
	const PlannedStmt *statement;
	const Plan *plan;			/* as the next: a copy from the statement */
	uint64		query_id;
	int64		plan_id;
	uint64		names_version;	/* at which the plan was hashed */
	struct KeptPlanId *next;	/* in the same list */
	MemoryContextCallback callback;
} KeptPlanId;

/* By the address of the plan. */
#define KEPT_LISTS		256
static KeptPlanId *kept_plan_ids[KEPT_LISTS];

static void hash_plan(uint64 *hash, const PlannedStmt *statement, const Plan *plan);

/* A multiplication per value: the hash of a plan is computed for each execution. */
static inline void
mix(uint64 *hash, uint64 value)
{
	*hash = (*hash ^ value) * UINT64CONST(0x9e3779b97f4a7c15);
	*hash ^= *hash >> 32;
}

/* Forgets all names: a relation or a schema was renamed, or a relation was dropped. */
static void
forget_names(Datum arg, CELLAR_SYSCACHE_ID cache, uint32 hash)
{
	memset(name_hashes, 0, sizeof(name_hashes));
	names_version++;
}

/* For hash_name: the name is not in the table. */
static uint64
look_name_up(Oid relation)
{
	static bool registered = false;
	NameHash   *entry = &name_hashes[relation % NAME_HASHES];
	HeapTuple	tuple;
	uint64		hash = 0;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(RELOID, forget_names, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget_names, (Datum) 0);
		registered = true;
	}
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		/* Each session has its own schema for temporary relations. */
		char	   *schema = isAnyTempNamespace(class->relnamespace) ? "pg_temp" : get_namespace_name(class->relnamespace);

		hash = hash_bytes_extended((const unsigned char *) NameStr(class->relname), strlen(NameStr(class->relname)), 0);
		if (schema != NULL)
			hash = hash_bytes_extended((const unsigned char *) schema, strlen(schema), hash);
		ReleaseSysCache(tuple);

		/*
		 * The lookups may have processed invalidations, which cleared the
		 * table.
		 */
		entry->relation = relation;
		entry->hash = hash;
	}
	return hash;
}

/* Returns a hash of the name of a relation and of its schema. */
static inline uint64
hash_name(Oid relation)
{
	const NameHash *entry = &name_hashes[relation % NAME_HASHES];

	return OidIsValid(relation) && entry->relation == relation ? entry->hash : look_name_up(relation);
}

static void
mix_relation(uint64 *hash, const PlannedStmt *statement, Index relation)
{
	RangeTblEntry *entry;

	if (relation == 0 || relation > list_length(statement->rtable))
		return;
	entry = rt_fetch(relation, statement->rtable);
	mix(hash, entry->rtekind == RTE_RELATION ? hash_name(entry->relid) : entry->rtekind);
}

static void
hash_plans(uint64 *hash, const PlannedStmt *statement, const List *plans)
{
	ListCell   *lc;

	foreach(lc, plans)
		hash_plan(hash, statement, lfirst(lc));
}

/* Mixes what distinguishes nodes of the same type. */
static void
hash_details(uint64 *hash, const PlannedStmt *statement, const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			mix(hash, hash_name(((const IndexScan *) plan)->indexid));
			break;
		case T_IndexOnlyScan:
			mix(hash, hash_name(((const IndexOnlyScan *) plan)->indexid));
			break;
		case T_BitmapIndexScan:
			mix(hash, hash_name(((const BitmapIndexScan *) plan)->indexid));
			break;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			mix(hash, ((const Join *) plan)->jointype);
			break;
		case T_Agg:
			mix(hash, ((const Agg *) plan)->aggstrategy);
			mix(hash, ((const Agg *) plan)->aggsplit);
			break;
		case T_SetOp:
			mix(hash, ((const SetOp *) plan)->cmd);
			break;
		case T_ModifyTable:
			mix(hash, ((const ModifyTable *) plan)->operation);
			break;
		case T_CustomScan:
			mix(hash, hash_bytes((const unsigned char *) ((const CustomScan *) plan)->methods->CustomName,
								 strlen(((const CustomScan *) plan)->methods->CustomName)));
			hash_plans(hash, statement, ((const CustomScan *) plan)->custom_plans);
			break;
		case T_Append:
			hash_plans(hash, statement, ((const Append *) plan)->appendplans);
			break;
		case T_MergeAppend:
			hash_plans(hash, statement, ((const MergeAppend *) plan)->mergeplans);
			break;
		case T_BitmapAnd:
			hash_plans(hash, statement, ((const BitmapAnd *) plan)->bitmapplans);
			break;
		case T_BitmapOr:
			hash_plans(hash, statement, ((const BitmapOr *) plan)->bitmapplans);
			break;
		case T_SubqueryScan:
			hash_plan(hash, statement, ((const SubqueryScan *) plan)->subplan);
			break;
		default:
			break;
	}
}

static void
hash_plan(uint64 *hash, const PlannedStmt *statement, const Plan *plan)
{
	/* Most nodes are leaves, or have one child. */
	for (; plan != NULL; plan = plan->righttree)
	{
		mix(hash, nodeTag(plan));
		mix_relation(hash, statement, cellar_scanned_relation(plan));
		hash_details(hash, statement, plan);
		if (plan->lefttree == NULL)
			mix(hash, 0);
		else
			hash_plan(hash, statement, plan->lefttree);
	}
	mix(hash, 0);
}

/* Returns the identifier of a plan, above 0. */
int64
cellar_plan_id(const PlannedStmt *statement)
{
	uint64		hash = 0;

	hash_plan(&hash, statement, statement->planTree);
	hash_plans(&hash, statement, statement->subplans);
	hash &= PG_INT64_MAX;
	return hash == 0 ? 1 : (int64) hash;
}

static inline KeptPlanId **
kept_list(const PlannedStmt *statement)
{
	uint64		hash = (uint64) (uintptr_t) statement * UINT64CONST(0x9e3779b97f4a7c15);

	return &kept_plan_ids[(hash >> 32) % KEPT_LISTS];
}

/* Called before the memory of a plan is freed. */
static void
forget_plan_id(void *arg)
{
	for (KeptPlanId **link = kept_list(((KeptPlanId *) arg)->statement); *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

/* Returns what is kept of a plan, which is added if necessary. */
static KeptPlanId *
keep_plan_id(const PlannedStmt *statement)
{
	KeptPlanId **list = kept_list(statement);
	KeptPlanId *kept = *list;
	MemoryContext context;

	while (kept != NULL && kept->statement != statement)
		kept = kept->next;
	if (kept != NULL)
		return kept;
	context = GetMemoryChunkContext((void *) statement);
	kept = MemoryContextAllocZero(context, sizeof(KeptPlanId));
	kept->statement = statement;
	kept->callback.func = forget_plan_id;
	kept->callback.arg = kept;
	MemoryContextRegisterResetCallback(context, &kept->callback);
	kept->next = *list;
	*list = kept;
	return kept;
}

/*
 * As cellar_plan_id, for a plan that is executed without having been planned just
 * now, and is therefore probably executed again.
 */
int64
cellar_kept_plan_id(const PlannedStmt *statement)
{
	KeptPlanId *kept = keep_plan_id(statement);

	/* Memory of a plan can be freed by itself, and contain another plan now. */
	if (kept->plan_id == 0 || kept->names_version != names_version || kept->plan != statement->planTree ||
		kept->query_id != (uint64) statement->queryId)
	{
		/* Names that are forgotten meanwhile can be part of the hash already. */
		kept->names_version = names_version;
		kept->plan_id = 0;
		kept->plan_id = cellar_plan_id(statement);
		kept->plan = statement->planTree;
		kept->query_id = (uint64) statement->queryId;
	}
	return kept->plan_id;
}
