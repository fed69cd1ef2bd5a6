/*-------------------------------------------------------------------------
 *
 * cellar/planner.h
 *	  Paths and plans of Smart Scans, and why a scan is not offloaded.
 *
 * Facts about a scan travel in its path and its plan, never in globals.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_PLANNER_H
#define CELLAR_PLANNER_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

#include "cellar_client.h"

/* hooks.c */

extern void cellar_install_planner_hooks(void);

/* plan.c */

/* Bits of a sort key's direction. */
#define CELLAR_DESCENDING	1
#define CELLAR_NULLS_FIRST	2

/*
 * ORDER BY ... LIMIT evaluated in the cell.  The lists have one member per
 * sort key.
 */
typedef struct CellarTopN
{
	int			rows;			/* LIMIT + OFFSET */
	List	   *keys;			/* expressions */
	List	   *less;			/* pg_proc OIDs of the < operators */
	List	   *collations;
	List	   *directions;		/* CELLAR_DESCENDING, CELLAR_NULLS_FIRST */
} CellarTopN;

/* The groups of an aggregation that a query can need; see group_pruning.c. */
typedef struct CellarGroupPruning
{
	List	   *conditions;		/* HAVING, over outputs of the cell */
	CellarTopN	top;			/* keys are outputs of the cell; rows is 0
								 * without LIMIT */
	bool		with_ties;		/* also groups that tie with the last */
	double		selectivity;	/* of HAVING; only in paths */
} CellarGroupPruning;

/*
 * Aggregates with DISTINCT, which all have the same argument and filter; see
 * distinct_path.c.  Group keys are those of the cell, without constants.
 */
typedef struct CellarDistinct
{
	int			nkeys;			/* group keys of the query; the argument and
								 * the filter may follow */
	int			argument;		/* number of a group key, starting at 1 */
	int			filter;			/* the same, or 0 */
	List	   *aggregates;		/* Aggrefs */
	double		groups;			/* of the query, estimated; only in paths */
} CellarDistinct;

/*
 * Members of custom_private of a Smart Scan Aggregate.  custom_exprs starts with
 * the arguments of the aggregates of group keys, and ends with
 * CellarDistinct.aggregates.
 */
enum CellarAggregatePrivate
{
	CELLAR_AGGREGATE_PRUNING,	/* NIL when the cell returns all groups */
	CELLAR_AGGREGATE_DISTINCT,	/* NIL, or four integers: nkeys, argument,
								 * filter and number of aggregates; in a path
								 * followed by the aggregates */
	CELLAR_AGGREGATE_VALUES,	/* CellarAggregateSpec.values */
	CELLAR_AGGREGATE_CONDITIONS,	/* in a path: conditions on joined rows;
									 * in a plan, they are the members of
									 * custom_scan_tlist with resjunk, and
									 * this is NIL */
	CELLAR_AGGREGATE_INITPLANS,	/* in a plan: as CELLAR_PLAN_INITPLANS */
	CELLAR_AGGREGATE_SUBQUERY = CELLAR_AGGREGATE_INITPLANS	/* in a path: the target
															 * list of the subquery,
															 * or NIL; see
															 * subquery_member.c */
};

/* Members of CustomPath.custom_private of a Smart Scan. */
enum CellarPathPrivate
{
	CELLAR_PATH_SORT_KEYS,		/* CellarTopN.keys */
	CELLAR_PATH_TOP_N,			/* as CELLAR_PLAN_TOP_N */
	CELLAR_PATH_THREADS,		/* as CELLAR_PLAN_THREADS */
	CELLAR_PATH_FILTER_COST,	/* a float: by how much the scan costs more
								 * without a join filter */
	CELLAR_PATH_INDEX			/* as CELLAR_PLAN_INDEX */
};

/*
 * Members of CustomScan.custom_private of a Smart Scan.  custom_exprs is the
 * storage predicate, followed by CellarTopN.keys.
 */
enum CellarPlanPrivate
{
	CELLAR_PLAN_QUAL_ORDER,		/* integers, one per qual in the order of
								 * evaluation: 1 for a qual of the storage
								 * predicate, 0 for a qual of the filter */
	CELLAR_PLAN_FILTER_REASONS, /* strings: why each qual of the filter is not
								 * offloaded */
	CELLAR_PLAN_TOP_N,			/* NIL, or a list of CellarTopN's members
								 * except keys */
	CELLAR_PLAN_THREADS,		/* list of one integer: how many threads of
								 * the cell share the scan */
	CELLAR_PLAN_JOIN_FILTERS,	/* conditions "column = ANY (parameter)"; see
								 * join_filter.c */
	CELLAR_PLAN_INDEX,			/* NIL, or a list of the OID of the index whose
								 * entries are the rows */
	CELLAR_PLAN_INITPLANS		/* integers: the parameters of the expressions
								 * for the cell whose initplans must not be
								 * executed in advance */
};

extern List *cellar_plan_children(Plan *plan);
extern const CustomPathMethods cellar_scan_path_methods;
extern const CustomPathMethods cellar_aggregate_path_methods;
extern const CustomScanMethods cellar_scan_methods;
extern const CustomScanMethods cellar_aggregate_methods;
extern const CustomScanMethods cellar_join_keys_methods;

extern List *cellar_top_n_private(const CellarTopN *top);
extern bool cellar_get_top_n(CustomScan *cscan, CellarTopN *top);
extern int	cellar_get_threads(CustomScan *cscan);
extern Oid	cellar_get_index(CustomScan *cscan);
extern List *cellar_get_storage_predicate(CustomScan *cscan);
extern List *cellar_get_all_quals(CustomScan *cscan);
extern void cellar_get_aggregation(CustomScan *cscan, List **keys, List **aggregates);
extern List *cellar_get_join_conditions(CustomScan *cscan);
extern bool cellar_is_value(CustomScan *cscan, int number);
extern bool cellar_has_distinct(const Plan *plan);
extern bool cellar_get_distinct(CustomScan *cscan, CellarDistinct *distinct);
extern void cellar_note_filter(CustomScan *cscan, Oid relid);

/* scan_path.c */

/* The properties of a Smart Scan from which its path is created and costed. */
typedef struct CellarScanSpec
{
	RelOptInfo *rel;
	List	   *storage;		/* RestrictInfos of the storage predicate */
	List	   *filter;			/* RestrictInfos of the filter */
	double		stored_fraction;	/* stored bytes per byte of the relation */
	double		group_bytes;	/* limit of the cell's memory for groups, if the
								 * rows are aggregated */
	double		join_filter_fraction;	/* of a scan without top-N: rows that
										 * join filters are estimated to keep */
	const CellarTopN *top;		/* NULL when the scan returns all rows */
	int			threads;		/* of the cell that share the scan */
	int			parallel_workers;	/* of PostgreSQL */
	const IndexOptInfo *index;	/* whose entries are the rows, or NULL */
} CellarScanSpec;

extern Path *cellar_create_scan_path(PlannerInfo *root, const CellarScanSpec *scan);
extern void cellar_add_scan_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation);

/* index_path.c */

extern const IndexOptInfo *cellar_covering_index(RelOptInfo *rel, Oid relid);

/* aggregate_path.c */

/* The properties of an aggregation in the cell. */
typedef struct CellarAggregateSpec
{
	CellarScanSpec scan;
	Oid			relid;
	PathTarget *target;			/* group keys and partial aggregates */
	PathTarget *input;			/* of the partial aggregation in PostgreSQL;
								 * NULL for that of the relation */
	List	   *group_clause;	/* SortGroupClauses */
	bool		distinct;		/* only removes duplicates: no aggregates */
	double		groups;			/* estimated */
	double		rows;			/* rows to aggregate, estimated; 0 for those
								 * of the scan */
	const CellarDistinct *distinct_aggregates;	/* NULL without aggregates
												 * with DISTINCT */
	List	   *outputs;		/* results to which the pruning refers,
								 * instead of the target */
	CellarGroupPruning *pruning;	/* NULL when the query needs all groups */
	List	   *values;			/* integers: members of the target that are
								 * aggregates of group keys, see
								 * computed_keys_path.c */
	bool		projects;		/* a projection above the path computes group
								 * keys */
	List	   *grouping_sets;	/* GroupingSetsPaths of rows; NIL without
								 * grouping sets */
	bool		computes_keys;	/* of a member of an append relation: the cell
								 * may group by other keys, see
								 * computed_keys_path.c */
	bool		single_thread;	/* of the cell: parallel workers execute other
								 * members */
	PathTarget *subquery_target;	/* what the subquery of the scan returns
									 * in place of its columns, or NULL */
	AggClauseCosts partial_costs;
	AggClauseCosts final_costs;
} CellarAggregateSpec;

extern bool cellar_init_aggregation(CellarAggregateSpec *aggregation, PlannerInfo *root,
									RelOptInfo *rel, Relation relation, List *targetlist);
extern List *cellar_offer_aggregate_paths(PlannerInfo *root, const CellarAggregateSpec *aggregation,
										  RelOptInfo *upper_rel);
extern Path *cellar_create_member_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									   const CellarAggregateSpec *member);
extern bool cellar_has_partial_states(const PlannerInfo *root, const GroupPathExtraData *extra);
extern bool cellar_can_hash_groups(PlannerInfo *root, const GroupPathExtraData *extra);
extern void cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *grouped_rel, GroupPathExtraData *extra);
extern PathTarget *cellar_partial_target(PlannerInfo *root, PathTarget *grouping_target, List *group_clause,
										 Node *having);
extern PathTarget *cellar_partial_input(PlannerInfo *root, const Path *path,
										const CellarAggregateSpec *aggregation);
extern void cellar_add_final_paths(PlannerInfo *root, RelOptInfo *grouped_rel,
								   const CellarAggregateSpec *aggregation,
								   Path *path, GroupPathExtraData *extra);
extern List *cellar_group_clause(PlannerInfo *root);
extern const char *cellar_aggregation_unsuitable(PlannerInfo *root);
extern List *cellar_distinct_private(const CellarDistinct *distinct);
extern void cellar_estimate_groups(PlannerInfo *root, CellarAggregateSpec *aggregation, List *targetlist, double rows);
extern bool cellar_can_hash_distinct(PlannerInfo *root);
extern CellarAggregateSpec cellar_distinct_spec(PlannerInfo *root, const RelOptInfo *rel);
extern void cellar_add_final_distinct_path(PlannerInfo *root, RelOptInfo *distinct_rel,
										   const CellarAggregateSpec *aggregation, Path *path);
extern void cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									 RelOptInfo *distinct_rel);

/* append_path.c */

extern bool cellar_is_append_relation(PlannerInfo *root, RelOptInfo *rel);
extern void cellar_set_member_target(PlannerInfo *root, CellarAggregateSpec *member, List *exprs);
extern Path *cellar_create_table_member_path(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member);
extern Path *cellar_create_member_append(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *aggregation);
extern void cellar_add_grouped_append_paths(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *grouped_rel,
											GroupPathExtraData *extra);
extern void cellar_add_distinct_append_path(PlannerInfo *root, RelOptInfo *rel, RelOptInfo *distinct_rel);

/* subquery_member.c */

extern Path *cellar_create_subquery_member_path(PlannerInfo *root, RelOptInfo *rel, const CellarAggregateSpec *member);

/* computed_keys_path.c */

extern bool cellar_choose_computed_keys(CellarAggregateSpec *aggregation, PlannerInfo *root, RelOptInfo *rel,
										const CellarAggregateSpec *plain);
extern bool cellar_add_computed_keys_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
										  RelOptInfo *grouped_rel, GroupPathExtraData *extra,
										  const CellarAggregateSpec *plain);

/* group_pruning.c */

extern CellarGroupPruning *cellar_choose_group_pruning(PlannerInfo *root,
													   const CellarAggregateSpec *aggregation,
													   RelOptInfo *grouped_rel, List *group_clause, List *having);
extern List *cellar_group_pruning_private(const CellarGroupPruning *pruning);
extern bool cellar_get_group_pruning(CustomScan *cscan, CellarGroupPruning *pruning);

/* deduplicated_path.c */

extern bool cellar_add_key(PathTarget *target, List **clause, Index *last_ref, Expr *expr);
extern bool cellar_raises_no_error(Expr *expr);
extern bool cellar_init_deduplication(CellarAggregateSpec *aggregation, PlannerInfo *root, PathTarget *grouping_target,
									  Node *having);
extern bool cellar_has_duplicates(double rows, double groups);
extern double cellar_count_combinations(PlannerInfo *root, const PathTarget *target, double rows);
extern bool cellar_can_sort_groups(PlannerInfo *root, const GroupPathExtraData *extra);
extern void cellar_add_final_deduplicated_path(PlannerInfo *root, RelOptInfo *grouped_rel,
											   const CellarAggregateSpec *aggregation, Path *path,
											   GroupPathExtraData *extra);
extern List *cellar_add_group_clause(PathTarget *target, List **clause, Index *last_ref, PlannerInfo *root,
									 PathTarget *grouping_target, Node *having);
extern void cellar_add_deduplicated_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
										 RelOptInfo *grouped_rel, GroupPathExtraData *extra);

/* distinct_path.c */

/* The partial state that a distinct value of a group contributes. */
typedef enum CellarDistinctState
{
	CELLAR_STATE_COPIED,		/* not of an aggregate with DISTINCT */
	CELLAR_STATE_COUNT,			/* of count: int8 */
	CELLAR_STATE_INT2_SUM,		/* of sum(int2): int8 */
	CELLAR_STATE_INT4_SUM,		/* of sum(int4): int8 */
	CELLAR_STATE_INT2_AVG,		/* of avg(int2): int8[] of count and sum */
	CELLAR_STATE_INT4_AVG		/* of avg(int4): the same */
} CellarDistinctState;

/*
 * The rows between the nodes.  Aggregates have the same order in all targets;
 * those with DISTINCT are the last ones, and are missing in the first level.
 */
typedef struct CellarDistinctLevels
{
	PathTarget *input;			/* of the first level: keys, and columns for
								 * the other aggregates */
	PathTarget *first;			/* of Smart Scan Aggregate */
	PathTarget *combined;		/* the same, after combining */
	PathTarget *states;			/* of Distinct States */
	PathTarget *second;			/* of the finalizing aggregation */
	PathTarget *results;		/* of Distinct Aggregates */
	List	   *first_clause;	/* SortGroupClauses */
	List	   *second_clause;
	List	   *kinds;			/* integers: CellarDistinctState of each
								 * member of states */
	List	   *sources;		/* integers: the column of combined */
	int			filter;			/* column of combined, or 0 */
	Expr	   *argument;		/* of the DISTINCT aggregates */
	Expr	   *filter_expr;
	int			naggregates;
	CellarDistinct distinct;
	bool		only_distinct;	/* no other aggregates */
	bool		ignores_duplicates; /* so does each aggregate */
	AggClauseCosts combine_costs;
	double		groups;			/* of the query, estimated */
} CellarDistinctLevels;

/* Members of custom_private of Distinct States and Distinct Aggregates. */
enum CellarDistinctPrivate
{
	CELLAR_DISTINCT_SOURCES,	/* integers: for each output column, the
								 * number of a column of the child */
	CELLAR_DISTINCT_STATES,		/* integers: CellarDistinctState of each
								 * output column */
	CELLAR_DISTINCT_FILTER		/* one integer: the child's column with the
								 * filter of the aggregates with DISTINCT, or
								 * 0 */
};

/*
 * Combines serialized partial states, and returns them serialized.
 */
#define CELLAR_AGGSPLIT_COMBINE \
	((AggSplit) (AGGSPLITOP_COMBINE | AGGSPLITOP_SKIPFINAL | AGGSPLITOP_SERIALIZE | AGGSPLITOP_DESERIALIZE))

extern const CustomPathMethods cellar_distinct_states_path_methods;
extern const CustomPathMethods cellar_distinct_aggregates_path_methods;
extern const CustomScanMethods cellar_distinct_states_methods;
extern const CustomScanMethods cellar_distinct_aggregates_methods;

extern CellarDistinctLevels *cellar_create_distinct_levels(PlannerInfo *root, PathTarget *grouping_target, Node *having);
extern void cellar_set_first_level(CellarAggregateSpec *aggregation, const CellarDistinctLevels *levels);
extern bool cellar_levels_pay(const CellarAggregateSpec *aggregation, double rows);
extern void cellar_cost_distinct_levels(PlannerInfo *root, CellarDistinctLevels *levels, CellarAggregateSpec *aggregation,
										double rows, RelOptInfo *grouped_rel, GroupPathExtraData *extra);
extern void cellar_add_final_levels(PlannerInfo *root, RelOptInfo *grouped_rel, CellarDistinctLevels *levels,
									const CellarAggregateSpec *aggregation, Path *path, GroupPathExtraData *extra);
extern void cellar_add_distinct_aggregate_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
												RelOptInfo *grouped_rel, GroupPathExtraData *extra);

/* grouping_sets_path.c */

extern const CustomPathMethods cellar_grouping_sets_path_methods;
extern const CustomScanMethods cellar_grouping_sets_methods;

extern List *cellar_grouping_sets(const RelOptInfo *grouped_rel);
extern bool cellar_has_finest_set(const CellarAggregateSpec *aggregation);
extern void cellar_add_grouping_sets_paths(PlannerInfo *root, RelOptInfo *grouped_rel,
										   const CellarAggregateSpec *aggregation, Path *path, GroupPathExtraData *extra);

/* scan_path.c */

extern Cost cellar_cost_without_join_filter(const Path *path);

/* top_n_path.c */

extern int	cellar_limit_rows(PlannerInfo *root);
extern bool cellar_add_sort_key(CellarTopN *top, const SortGroupClause *clause, Node *key, Index varno);

extern void cellar_add_top_n_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
								   RelOptInfo *ordered_rel);

/* cost.c */

extern double cellar_parallel_divisor(int workers);
extern int	cellar_workers_max(void);
extern int	cellar_scan_threads(const PlannerInfo *root, RelOptInfo *rel);
extern int	cellar_index_threads(const CellarScanSpec *scan);
extern double cellar_join_filter_fraction(PlannerInfo *root, RelOptInfo *rel);
extern void cellar_cost_scan(PlannerInfo *root, Path *path, const CellarScanSpec *scan);
extern void cellar_cost_aggregate(PlannerInfo *root, Path *path,
								  const CellarAggregateSpec *aggregation);
extern Cost cellar_aggregated_row_cost(const CellarAggregateSpec *aggregation);
extern bool cellar_groups_fit(const CellarAggregateSpec *aggregation);
extern bool cellar_index_only_scan_is_cheaper(RelOptInfo *rel, Cost total_cost, Cost row_cost);

/* interpreted_cost.c */

extern Cost cellar_interpreted_cost(PlannerInfo *root, List *conditions);
extern Cost cellar_interpreted_values_cost(PlannerInfo *root, List *exprs);
extern Cost cellar_strings_cost(PlannerInfo *root, RelOptInfo *rel, List *exprs);
extern bool cellar_is_interpreted(PlannerInfo *root, Node *expr);

/* offloadable_scan.c */

extern bool cellar_is_scannable(RelOptInfo *rel, RangeTblEntry *rte);
extern const char *cellar_scan_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte,
										  Relation relation);
extern bool cellar_restriction_offloadable(PlannerInfo *root, RelOptInfo *rel, RestrictInfo *rinfo,
										   const char **reason);
extern bool cellar_restrictions_offloadable(PlannerInfo *root, RelOptInfo *rel, List **storage);
extern Bitmapset *cellar_needed_attributes(RelOptInfo *rel, List *filter);

/* offloadable_aggregate.c */

extern const char *cellar_target_unsuitable(PathTarget *target, List *values, Index varno, Node **key);
extern bool cellar_key_offloadable(Node *key, RelOptInfo *rel);
extern bool cellar_partial_aggregate_offloadable(Aggref *aggref, RelOptInfo *rel);
extern bool cellar_target_offloadable(PathTarget *target, List *values, RelOptInfo *rel, Oid relid);
extern bool cellar_state_is_value(const Aggref *aggref);
extern bool cellar_has_one_image(Node *expr);
extern bool cellar_ignores_duplicates(const Aggref *aggref);

/* offloadable_expression.c */

extern CellarCollation cellar_collation(Oid collation);
extern bool cellar_is_integer_equality(Oid function);
extern bool cellar_condition_offloadable(PlannerInfo *root, Node *expr, Index varno, const char **reason);
extern bool cellar_expression_offloadable(Node *expr, Index varno, const char **reason);
extern bool cellar_depends_on_row(Node *expr);
extern bool cellar_catchable(Node *expr);
extern Node *cellar_without_relabel(Node *node);
extern bool cellar_agrees_with_utc(Oid function);
extern FuncExpr *cellar_input_call(CoerceViaIO *expr);
extern Oid	cellar_min_max_function(const MinMaxExpr *expr);

/* offloadable_subquery.c */

extern bool cellar_query_may_fail(const Query *query);
extern bool cellar_is_correlated(const PlannerInfo *root);
extern const char *cellar_subquery_unsuitable(const PlannerInfo *root, SubPlan *subplan);
extern List *cellar_uncertain_initplans(const PlannerInfo *root, Node *expr);

/* jit.c */

extern void cellar_install_jit_decision(void);

/* grouped_filter.c */

extern bool cellar_is_comparison(Oid function);
extern bool cellar_may_fail(Node *expr);
extern bool cellar_has_plain_targets(const Plan *plan);
extern bool cellar_has_group_key(const Plan *plan, const Var *column);
extern bool cellar_returns_groups(Plan *plan, const Var *column);

/* group_estimate.c */

extern double cellar_num_groups(PlannerInfo *root, List *keys, double rows);

/* group_keys.c */

extern void cellar_add_group_keys(PlannerInfo *root, const RelOptInfo *groups, const RangeTblEntry *rte);

/* cached_pages.c */

/* Fractions of a relation's pages. */
typedef struct CellarCachedPages
{
	double		buffers;		/* in shared buffers */
	double		kernel;			/* in the kernel's page cache, but not in shared buffers */
} CellarCachedPages;

extern CellarCachedPages cellar_cached_pages(Relation rel);

/* index_scan_cost.c */

extern double cellar_block_cost(PlannerInfo *root, const RelOptInfo *rel);
extern void cellar_correct_index_scans(PlannerInfo *root, RelOptInfo *rel, Relation relation);

/* join_estimate.c */

extern double cellar_join_rows(PlannerInfo *root, const RelOptInfo *rel);
extern Cost cellar_corrected_cost(PlannerInfo *root, const Path *path);
extern void cellar_correct_antijoin(PlannerInfo *root, RelOptInfo *joinrel, const RelOptInfo *outer, const RelOptInfo *inner);
extern void cellar_correct_join_costs(PlannerInfo *root, RelOptInfo *upper_rel);

/* join_filter.c */

/* The most values of a join key that reach a scan. */
#define CELLAR_JOIN_KEYS_MAX	1048576
/* The same for keys that the cell does not take as a set of integers. */
#define CELLAR_OTHER_JOIN_KEYS_MAX	131072

/*
 * A join filter is added when the join is estimated to return at most this
 * fraction of its outer rows.
 */
#define CELLAR_JOIN_FILTER_FRACTION_MAX	0.5

typedef void (*CellarPlanVisitor) (Plan *plan, void *context);

extern void cellar_visit_plan(Plan *plan, CellarPlanVisitor visit, void *context);

/* Returns the number of the relation that a node scans, or 0. */
static inline Index
cellar_scanned_relation(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
		case T_ForeignScan:
		case T_CustomScan:
			return ((const Scan *) plan)->scanrelid;
		default:
			return 0;
	}
}

extern void cellar_visit_plans(PlannedStmt *statement, CellarPlanVisitor visit, void *context);
extern bool cellar_has_key_set(Oid column, Oid key);
extern void cellar_install_join_filters(void);

/* letter_case.c */

extern bool cellar_has_plain_ascii_case(Oid collation);
extern bool cellar_case_comparable(Node *expr, bool pattern);

/* lookup_join.c */

/* The most bytes of a lookup table in a request. */
#define CELLAR_LOOKUP_BYTES_MAX	(12 * 1024 * 1024)

/* A component: relations that become one lookup table. */
typedef struct CellarComponent
{
	RelOptInfo *rel;
	JoinType	jointype;
	SpecialJoinInfo *special;	/* of a join other than an inner join */
	RelOptInfo *joinrel;
	List	   *clauses;		/* the join clauses: RestrictInfos */
	List	   *hash_clauses;	/* those that are equalities of columns */
	List	   *outer;			/* Vars of the outer table or of earlier
								 * components, by hash clause */
	List	   *keys;			/* Vars of the component, by hash clause */
	int			comparison;		/* CELLAR_COMPARISON_...: if not NONE, `outer`
								 * and `keys` have one more member */
	List	   *conditions;		/* the other clauses, without RestrictInfos */
	int			first_part;		/* the clause that was moved to the start */
	Path	   *side;			/* of the rows; NULL: the cheapest path */
	Path	   *keys_path;		/* returns keys that filter `side`, or NULL */
	double		nkeys;			/* estimated, with keys_path */
	Param	   *keys_param;		/* of the keys that filter `side`, of this or
								 * an earlier component; NULL: no keys */
	Oid			filter_operator;	/* key = outer column, with keys_param */
	Path	   *path;			/* of the node Lookup Table */
} CellarComponent;

extern RelOptInfo *cellar_find_rel(PlannerInfo *root, Relids relids);
extern Relids cellar_add_outer_joins(PlannerInfo *root, Relids relids);
extern double cellar_lookup_row_bytes(PlannerInfo *root, const CellarComponent *component);
extern bool cellar_fits_lookup_table(PlannerInfo *root, const CellarComponent *component, double rows);
extern List *cellar_divide_relations(PlannerInfo *root, RelOptInfo *outer, Relids others);
extern bool cellar_ignores_missing_rows(PlannerInfo *root, const PathTarget *target, const RelOptInfo *outer);

/* lookup_clauses.c */

extern bool cellar_fails_early(Node *expr);
extern bool cellar_find_lookup_join(PlannerInfo *root, RelOptInfo *outer, CellarComponent *component,
									RelOptInfo *outer_table);

/* lookup_keys.c */

extern bool cellar_can_repeat(PlannerInfo *root, const RelOptInfo *rel);
extern void cellar_move_part(CellarComponent *component, int number);
extern bool cellar_use_distinct_keys(PlannerInfo *root, CellarComponent *component);
extern bool cellar_filter_by_outer_keys(PlannerInfo *root, const CellarScanSpec *outer, Oid relid,
										const RelOptInfo *joined, List *components, CellarComponent *component);

/* lookup_order.c */

/* What the joins of a path with lookup tables need. */
typedef struct CellarLookupJoins
{
	Path	   *path;
	int			count;
	Cost		cost;			/* of the lookup tables */
	double		bytes;			/* of the lookup tables in a request */
	double		lookups;		/* rows that are looked up, of all tables */
	double		combinations;	/* of partners of a row of the scan */
	double		right_rows;		/* rows that PostgreSQL adds for a right join */
	List	   *conditions;		/* that the cell evaluates for joined rows */
	bool		is_right;		/* the only join is a right join */
} CellarLookupJoins;

extern Path *cellar_create_lookup_path(PlannerInfo *root, const CellarComponent *component);
extern Path *cellar_create_lookup_join(PlannerInfo *root, RelOptInfo *outer, Path *path,
									   CellarComponent *component);
extern bool cellar_create_lookup_joins(PlannerInfo *root, const CellarAggregateSpec *aggregation,
									   List *components, CellarLookupJoins *joins);

/* lookup_path.c */

/* Members of custom_private of a Lookup Table's path and plan. */
enum CellarLookupPrivate
{
	CELLAR_LOOKUP_KIND,			/* three integers: the kind of join, whether a
								 * new execution returns the same rows, and
								 * the comparison of the key's last part */
	CELLAR_LOOKUP_PARTS,		/* of the key: in a path, two lists of Vars,
								 * of the outer side and of the component; in
								 * a plan, for each part four integers: the
								 * range table index and the attribute number
								 * of the outer column, the range table index
								 * of the key, and the number of the key in
								 * the rows of the child */
	CELLAR_LOOKUP_FILTER,		/* NIL, or the operator "key = outer column"
								 * if keys filter the first child */
	CELLAR_LOOKUP_KEYS			/* NULL, or the parameter of these keys: one
								 * node for the table with a second child,
								 * which returns them, and all tables that
								 * use the same keys.  Its number is assigned
								 * when the plan is finished. */
};

extern const CustomPathMethods cellar_lookup_path_methods;
extern const CustomScanMethods cellar_lookup_methods;

extern void cellar_set_join_costs(Path *path, const Path *aggregate);
extern Node *cellar_as_outer_columns(Node *node, Index outer_table);
extern void cellar_add_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *grouped_rel,
									GroupPathExtraData *extra);
extern void cellar_add_distinct_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *distinct_rel);

/* offload_reasons.c */

extern void cellar_install_offload_reasons(void);
extern List *cellar_save_notes(void);
extern void cellar_restore_notes(List *saved);
extern void cellar_note_scan(Oid relid, const char *reason);
extern void cellar_note_cheaper(Oid relid, bool aggregate);
extern void cellar_note_chosen(Oid relid, bool aggregate);
extern void cellar_note_aggregate(Oid relid, Index varno, Node *expr, const char *reason);
extern void cellar_note_qual(Oid relid, Index varno, Node *qual, const char *reason);

/* query_columns.c */

extern bool cellar_has_stored_columns(Oid relid);
extern Query *cellar_find_cte(const Query *query, const RangeTblEntry *rte, Index level);
extern bool cellar_column_may_fail(Query *query, const Var *column);
extern bool cellar_columns_may_fail(Query *query, Node *expr);

/* correlated_subquery.c */

/* A correlated subquery that is replaced by groups. */
typedef struct CellarUnnesting
{
	Query	   *query;			/* the outer query */
	Query	   *subquery;
	List	   *keys;			/* expressions of the subquery */
	List	   *equalities;		/* OpExprs of the subquery, by key */
	List	   *conditions;		/* the other conditions of the subquery */
	List	   *aggregates;		/* Aggrefs */
	List	   *resolved;		/* aggregates of the columns behind those of
								 * joins and of WITH */
	Index		rtindex;		/* of the groups in the outer query */
	Index		join;			/* range table index of the left join, or 0 */
} CellarUnnesting;

extern Node *cellar_analyze_correlated_subquery(CellarUnnesting *unnesting);
extern bool cellar_find_group_keys(CellarUnnesting *unnesting);
extern void cellar_group_subquery(CellarUnnesting *unnesting);
extern void cellar_add_groups(CellarUnnesting *unnesting);
extern List *cellar_group_equalities(const CellarUnnesting *unnesting);

/* exists_subquery.c */

extern Node *cellar_replace_exists(Query *query, const SubLink *exists);

/* unnest.c */

extern Query *cellar_unnest_subqueries(const Query *query);

/* unnested_plan.c */

extern bool cellar_may_unnest(PlannedStmt *statement, ParamListInfo parameters);
extern bool cellar_is_unnested_cheaper(PlannedStmt *statement, PlannedStmt *unnested);

#endif							/* CELLAR_PLANNER_H */
