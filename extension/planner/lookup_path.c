/*-------------------------------------------------------------------------
 *
 * lookup_path.c
 *	  Offers the planner a Smart Scan Aggregate above joins: the cell joins
 *	  the rows of one table, the outer table, with lookup tables while
 *	  scanning, and aggregates the joined rows.
 *
 * The other relations of the query are divided into components, each of which
 * is joined with the outer table, and possibly with earlier components, by
 * equalities of integers, dates or timestamps.  PostgreSQL evaluates a component by its cheapest path, and the
 * rows become a lookup table.
 *
 * The child of the Smart Scan Aggregate is PostgreSQL's own partial aggregation
 * over hash joins of the Smart Scan with the components.  Between a component
 * and its Hash node, the node Lookup Table (executor/lookup_table.c) collects
 * keys and columns for the cell.  The hash joins receive the rows that the cell
 * returns: rows of blocks that were passed through, rows with several partners
 * in a component, and all rows when a lookup table is too large.
 *
 * The Smart Scan executes the components when it starts.  A hash join executes
 * its inner side, which is then executed again, only if the cell has returned a
 * row.
 *
 * Joins are inner joins, semijoins, antijoins and left joins of the outer table
 * with a component.  If a component is the left side of a left join with the
 * outer table, the cell evaluates an inner join, and PostgreSQL's hash join adds
 * a row for each row of the component.  Such a row has NULLs in place of the
 * columns of the outer table, so it changes no group if all aggregates ignore
 * NULL.
 *
 * Not supported: full joins, and other join clauses than equalities of columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/joininfo.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Bytes of a key and of the lengths of values in a row of a lookup table. */
#define ROW_OVERHEAD		4

/*
 * Cost of a row of a lookup table beyond that of the component: collecting and
 * sending the row, adding the row to the hash table of the cell.
 */
#define ROW_COST			(2 * cpu_tuple_cost)

/* The bytes of a row are copied into the request, and from the request. */
#define ROW_TRANSFERS		2

/* Cost of looking a row of the scan up in a lookup table. */
#define LOOKUP_COST			(0.2 * cpu_operator_cost)

/* Cost of a row that PostgreSQL adds for a right join. */
#define RIGHT_ROW_COST		(2 * cpu_tuple_cost)

/*
 * A component may have this fraction of rows whose key other rows have, too.
 * Rows of the scan that match such a key are returned.
 */
#define DUPLICATE_KEYS_MAX	0.1

/* A component: relations that become one lookup table. */
typedef struct Component
{
	RelOptInfo *rel;
	JoinType	jointype;
	List	   *clauses;		/* the join clauses: RestrictInfos */
	List	   *outer;			/* Vars of the outer table or of earlier
								 * components, by clause */
	List	   *keys;			/* Vars of the component, by clause */
	Path	   *path;			/* of the node Lookup Table */
} Component;

/*
 * Sets *jointype to the type of the join of two sets of relations, the outer
 * and the inner side.  Returns false unless the join is an inner join, or
 * completes exactly one join of another type whose sides these are.
 */
static bool
find_join_type(PlannerInfo *root, Relids outer, Relids inner, JoinType *jointype)
{
	Relids		joined = bms_union(outer, inner);
	bool		found = false;
	ListCell   *lc;

	*jointype = JOIN_INNER;
	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *join = lfirst_node(SpecialJoinInfo, lc);
		Relids		both = bms_union(join->min_lefthand, join->min_righthand);

		if (!bms_overlap(join->min_righthand, joined) || bms_is_subset(joined, join->min_righthand) ||
			bms_is_subset(both, outer) || bms_is_subset(both, inner))
			continue;
		if (found || CellarOuterJoinRelid(join) != 0)
			return false;
		if (bms_is_subset(join->min_lefthand, outer) && bms_equal(join->syn_righthand, inner) &&
			(join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI || join->jointype == JOIN_LEFT))
			*jointype = join->jointype;
		else if (join->jointype == JOIN_LEFT && bms_equal(join->syn_lefthand, inner) &&
				 bms_equal(join->syn_righthand, outer))
			*jointype = JOIN_RIGHT;
		else
			return false;
		found = true;
	}
	return true;
}

/*
 * Adds a clause of the join to the component if the clause is an equality of a
 * column of the outer side and a column of the component.
 */
static bool
add_clause(Component *component, RestrictInfo *rinfo, Relids outer)
{
	OpExpr	   *clause = (OpExpr *) rinfo->clause;
	Var		   *left;
	Var		   *right;

	if (!rinfo->can_join || rinfo->pseudoconstant || !OidIsValid(rinfo->hashjoinoperator) || !IsA(clause, OpExpr) ||
		list_length(clause->args) != 2)
		return false;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (!IsA(left, Var) || !IsA(right, Var) || !cellar_is_integer_equality(get_opcode(clause->opno)))
		return false;
	if (!bms_is_member(left->varno, outer))
	{
		Var		   *other = left;

		left = right;
		right = other;
	}
	if (left->varattno <= 0 || right->varattno <= 0 || !bms_is_member(left->varno, outer) ||
		!bms_is_member(right->varno, component->rel->relids))
		return false;
	component->clauses = lappend(component->clauses, rinfo);
	component->outer = lappend(component->outer, left);
	component->keys = lappend(component->keys, right);
	return true;
}

/*
 * Finds the clauses of the join of the outer side with a component.  Returns
 * false if the cell cannot evaluate a clause, or no clause contains a column of
 * the outer table.
 */
static bool
find_clauses(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outer, Component *component, Index outer_table)
{
	List	   *clauses = CellarJoinEqualities(root, joinrel->relids, outer->relids, component->rel);
	bool		has_outer_table = false;
	ListCell   *lc;

	if (IS_OUTER_JOIN(component->jointype) && clauses != NIL)
		return false;
	foreach(lc, list_concat_copy(outer->joininfo, component->rel->joininfo))
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!bms_is_subset(rinfo->required_relids, joinrel->relids))
			continue;
		if (IS_OUTER_JOIN(component->jointype) && RINFO_IS_PUSHED_DOWN(rinfo, joinrel->relids))
			return false;
		clauses = list_append_unique_ptr(clauses, rinfo);
	}
	if (list_length(clauses) > CELLAR_KEY_PARTS_MAX)
		return false;
	foreach(lc, clauses)
	{
		if (!add_clause(component, lfirst_node(RestrictInfo, lc), outer->relids))
			return false;
	}
	foreach(lc, component->outer)
		has_outer_table |= lfirst_node(Var, lc)->varno == outer_table;
	return has_outer_table;
}

/* Returns the relation of a set of base relations, or NULL. */
static RelOptInfo *
find_rel(PlannerInfo *root, Relids relids)
{
	int			relid;

	if (bms_get_singleton_member(relids, &relid))
		return root->simple_rel_array[relid];
	return find_join_rel(root, relids);
}

/*
 * Divides the relations other than the outer table into components, so that
 * joining a component estimates the fewest rows.  Returns sets of relations, or
 * NIL.
 */
static List *
divide_relations(PlannerInfo *root, RelOptInfo *outer, Relids others)
{
	List	   *components = NIL;
	Relids		rest = bms_copy(others);
	int			relid = -1;
	ListCell   *special;

	/* The other side of a semijoin, an antijoin or an outer join is a component. */
	foreach(special, root->join_info_list)
	{
		SpecialJoinInfo *join = lfirst_node(SpecialJoinInfo, special);
		Relids		side = bms_is_member(outer->relid, join->syn_righthand) ? join->syn_lefthand :
			join->syn_righthand;

		if (!bms_is_member(outer->relid, bms_union(join->min_lefthand, join->min_righthand)) ||
			!bms_is_subset(side, rest))
			continue;
		components = lappend(components, bms_copy(side));
		rest = bms_del_members(rest, side);
	}

	/* Each relation that is joined with the outer table starts a component. */
	while ((relid = bms_next_member(others, relid)) >= 0)
	{
		/* PostgreSQL 16 and later number outer joins among the relations. */
		if (bms_is_member(relid, rest) && root->simple_rel_array[relid] == NULL)
			return NIL;
		if (bms_is_member(relid, rest) && have_relevant_joinclause(root, outer, root->simple_rel_array[relid]))
		{
			components = lappend(components, bms_make_singleton(relid));
			rest = bms_del_member(rest, relid);
		}
	}
	while (components != NIL && !bms_is_empty(rest))
	{
		ListCell   *best = NULL;
		int			best_relid = 0;
		double		best_rows = 0;
		ListCell   *lc;

		relid = -1;
		while ((relid = bms_next_member(rest, relid)) >= 0)
		{
			foreach(lc, components)
			{
				RelOptInfo *component = find_rel(root, lfirst(lc));
				RelOptInfo *joined;

				if (component == NULL || !have_relevant_joinclause(root, component, root->simple_rel_array[relid]))
					continue;
				joined = find_join_rel(root, bms_add_member(bms_copy(lfirst(lc)), relid));
				if (joined == NULL || joined->cheapest_total_path == NULL ||
					(best != NULL && joined->rows >= best_rows))
					continue;
				best = lc;
				best_relid = relid;
				best_rows = joined->rows;
			}
		}
		if (best == NULL)
			return NIL;
		lfirst(best) = bms_add_member(lfirst(best), best_relid);
		rest = bms_del_member(rest, best_relid);
	}
	return components;
}

/* Returns the bytes of the component's lookup table in a request. */
static double
lookup_bytes(const Component *component)
{
	const RelOptInfo *rel = component->rel;

	return rel->rows * (list_length(component->keys) * sizeof(int64) + rel->reltarget->width +
						list_length(rel->reltarget->exprs) * ROW_OVERHEAD);
}

/*
 * Returns whether the rows of the component fit into a lookup table, and few of
 * them have the same key.
 */
static bool
fits_lookup_table(PlannerInfo *root, Component *component)
{
	RelOptInfo *rel = component->rel;
	double		keys;

	if (rel->rows > CELLAR_JOIN_KEYS_MAX || lookup_bytes(component) > CELLAR_LOOKUP_BYTES_MAX)
		return false;
	if (cellar_cost_factor == 0 || component->jointype == JOIN_SEMI || component->jointype == JOIN_ANTI)
		return true;
	keys = estimate_num_groups(root, component->keys, rel->rows, NULL, NULL);
	return keys >= (1 - DUPLICATE_KEYS_MAX) * rel->rows;
}

/* Returns the kind of join that the cell evaluates. */
static int
cell_join_kind(JoinType jointype)
{
	switch (jointype)
	{
		case JOIN_SEMI:
			return CELLAR_JOIN_SEMI;
		case JOIN_ANTI:
			return CELLAR_JOIN_ANTI;
		case JOIN_LEFT:
			return CELLAR_JOIN_LEFT;
		default:
			return CELLAR_JOIN_INNER;
	}
}

/* Creates the path of the node Lookup Table over the cheapest path of a component. */
static Path *
create_lookup_path(Component *component)
{
	RelOptInfo *rel = component->rel;
	Path	   *child = rel->cheapest_total_path;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = child->pathtarget;
	path->parallel_safe = false;
	path->rows = child->rows;
	path->startup_cost = child->startup_cost;
	path->total_cost = child->total_cost +
		(ROW_COST + ROW_TRANSFERS * cellar_returned_page_cost * child->pathtarget->width / BLCKSZ) * child->rows;
	CellarCopyDisabledNodes(path, child);
	cpath->custom_paths = list_make1(child);
	cpath->custom_private = list_make3(list_make1_int(cell_join_kind(component->jointype)), component->outer,
									   component->keys);
	cpath->methods = &cellar_lookup_path_methods;
	return path;
}

/*
 * Creates the hash join of a path with a component.  Returns NULL if the cell
 * cannot evaluate the join now.
 */
static Path *
create_join(PlannerInfo *root, RelOptInfo *outer, Path *path, Component *component)
{
	SpecialJoinInfo sjinfo = {.type = T_SpecialJoinInfo};
	JoinPathExtraData extra = {.sjinfo = &sjinfo};
	JoinCostWorkspace workspace;
	RelOptInfo *joinrel;
	JoinType	jointype;

	if (!find_join_type(root, path->parent->relids, component->rel->relids, &component->jointype))
		return NULL;
	joinrel = find_join_rel(root, bms_union(path->parent->relids, component->rel->relids));
	if (joinrel == NULL ||
		!find_clauses(root, joinrel, path->parent, component, outer->relid) || !fits_lookup_table(root, component))
		return NULL;
	/* The cell adds no columns to the rows of a semijoin or an antijoin. */
	if ((component->jointype == JOIN_SEMI || component->jointype == JOIN_ANTI) &&
		bms_overlap(pull_varnos(root, (Node *) joinrel->reltarget->exprs), component->rel->relids))
		return NULL;
	component->path = create_lookup_path(component);

	jointype = component->jointype;
	sjinfo.min_lefthand = path->parent->relids;
	sjinfo.min_righthand = component->rel->relids;
	sjinfo.syn_lefthand = path->parent->relids;
	sjinfo.syn_righthand = component->rel->relids;
	sjinfo.jointype = jointype;
	extra.restrictlist = component->clauses;
	initial_cost_hashjoin(root, &workspace, jointype, extra.restrictlist, path, component->path, &extra, false);
	return (Path *) create_hashjoin_path(root, joinrel, jointype, &workspace, &extra, path, component->path,
										 false, extra.restrictlist, NULL, extra.restrictlist);
}

/* What the joins of a path with lookup tables need. */
typedef struct LookupJoins
{
	Path	   *path;
	int			count;
	Cost		cost;			/* of the lookup tables */
	double		bytes;			/* of the lookup tables in a request */
	double		right_rows;		/* rows that PostgreSQL adds for a right join */
	bool		is_right;		/* the only join is a right join */
} LookupJoins;

/*
 * Creates the hash joins of the scan with the components.  Returns false if the
 * cell cannot evaluate a join.
 */
static bool
create_joins(PlannerInfo *root, RelOptInfo *outer, Path *scan, List *components, LookupJoins *joins)
{
	memset(joins, 0, sizeof(LookupJoins));
	joins->path = scan;
	joins->count = list_length(components);
	while (components != NIL)
	{
		Path	   *path = NULL;
		ListCell   *lc;

		/* A key may be a column of another component, which is joined first. */
		foreach(lc, components)
		{
			Component	component = {.rel = find_rel(root, lfirst(lc))};

			if (component.rel == NULL || component.rel->cheapest_total_path == NULL ||
				component.rel->cheapest_total_path->param_info != NULL)
				return false;
			path = create_join(root, outer, joins->path, &component);
			if (path == NULL)
				continue;
			joins->cost += component.path->total_cost;
			joins->bytes += lookup_bytes(&component);
			if (component.jointype == JOIN_RIGHT)
			{
				joins->is_right = true;
				joins->right_rows = component.rel->rows;
			}
			components = list_delete_cell(components, lc);
			break;
		}
		if (path == NULL)
			return false;
		joins->path = path;
	}
	return joins->bytes <= CELLAR_LOOKUP_BYTES_MAX && (!joins->is_right || joins->count == 1);
}

/*
 * Returns whether rows without columns of the outer table change no group of the
 * rows that have a partner: the group keys are columns of the other side, and all
 * aggregates ignore NULL.  PostgreSQL then adds a row for each row of the other
 * side of a right join.
 */
static bool
ignores_missing_rows(PlannerInfo *root, PathTarget *target, RelOptInfo *outer)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Node	   *expr = lfirst(lc);
		Relids		relids;

		if (IsA(expr, Aggref))
		{
			List	   *args = ((Aggref *) expr)->args;

			if (list_length(args) != 1)
				return false;
			expr = (Node *) linitial_node(TargetEntry, args)->expr;
			if (!bms_is_member(outer->relid, pull_varnos(root, expr)) || contain_nonstrict_functions(expr))
				return false;
			continue;
		}
		relids = pull_varnos(root, expr);
		if (bms_is_member(outer->relid, relids))
			return false;
	}
	return true;
}

/*
 * Sets the costs of the joins to those of the Smart Scan Aggregate.  A hash join
 * whose outer side has no startup cost executes that side first, and builds its
 * hash table only if there are outer rows.
 */
static void
set_costs(Path *path, const Path *aggregate)
{
	path->rows = 1;
	path->startup_cost = 0;
	path->total_cost = aggregate->startup_cost;
	if (IsA(path, HashPath))
		set_costs(((HashPath *) path)->jpath.outerjoinpath, aggregate);
}

typedef struct ReplaceContext
{
	PlannerInfo *root;
	Index		outer_table;
} ReplaceContext;

/*
 * Replaces the columns of lookup tables by columns of the outer table, for which
 * the same expressions are offloadable.
 */
static Node *
replace_looked_up(Node *node, void *arg)
{
	ReplaceContext *context = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno != context->outer_table && var->varattno > 0 && var->varlevelsup == 0 &&
			planner_rt_fetch(var->varno, context->root)->rtekind == RTE_RELATION)
		{
			var = copyObject(var);
			var->varno = context->outer_table;
			return (Node *) var;
		}
	}
	return expression_tree_mutator(node, replace_looked_up, arg);
}

/* Returns whether the cell can evaluate the target over the joined rows. */
static bool
target_offloadable(PlannerInfo *root, RelOptInfo *outer, Oid relid, PathTarget *target)
{
	ReplaceContext context = {.root = root,.outer_table = outer->relid};
	PathTarget *replaced = copy_pathtarget(target);
	const char *reason;

	replaced->exprs = castNode(List, replace_looked_up((Node *) replaced->exprs, &context));
	reason = cellar_target_unsuitable(replaced, NIL, outer->relid, NULL);
	if (reason != NULL)
		cellar_note_aggregate(relid, 0, NULL, reason);
	return reason == NULL;
}

/* Adds paths with one base relation as the outer table. */
static void
add_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *outer, Relation relation,
		  RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {.group_clause = CellarGroupClause(root)};
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;
	Path	   *scan;
	Path	   *rest;
	LookupJoins joins;
	Cost		lookup_cost;
	List	   *components;

	components = divide_relations(root, outer, bms_difference(input_rel->relids, outer->relids));
	if (components == NIL || !cellar_restrictions_offloadable(outer, &aggregation.scan.storage))
		return;
	aggregation.relid = RelationGetRelid(relation);
	aggregation.scan.rel = outer;
	aggregation.scan.stored_fraction = cellar_stored_fraction(relation);
	aggregation.scan.threads = cellar_scan_threads(outer);
	aggregation.scan.join_filter_fraction = 1;
	scan = cellar_create_scan_path(root, &aggregation.scan);
	if (!create_joins(root, outer, scan, components, &joins))
		return;
	aggregation.target = cellar_partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
											   extra->havingQual);
	if (!target_offloadable(root, outer, aggregation.relid, aggregation.target) ||
		(joins.is_right && !ignores_missing_rows(root, aggregation.target, outer)))
		return;
	aggregation.rows = input_rel->rows;
	aggregation.groups = 1;
	if (aggregation.group_clause != NIL)
		aggregation.groups =
			estimate_num_groups(root, get_sortgrouplist_exprs(aggregation.group_clause, extra->targetList),
								input_rel->rows, NULL, NULL);
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation.partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation.final_costs);

	path->pathtype = T_CustomScan;
	path->parent = outer;
	path->pathtarget = aggregation.target;
	path->parallel_safe = false;
	/* PostgreSQL adds rows to the groups of a right join. */
	if (!joins.is_right)
		aggregation.pruning = cellar_choose_group_pruning(root, &aggregation, grouped_rel, aggregation.group_clause,
														  (List *) extra->havingQual);
	/* No aggregates with DISTINCT: see CellarAggregatePrivate. */
	cpath->custom_private = list_make3(aggregation.pruning == NULL ? NIL :
									   cellar_group_pruning_private(aggregation.pruning), NIL, NIL);
	cpath->methods = &cellar_aggregate_path_methods;
	cellar_cost_aggregate(root, path, &aggregation);
	lookup_cost = joins.cost +
		joins.right_rows * (RIGHT_ROW_COST + aggregation.partial_costs.transCost.per_tuple) +
		LOOKUP_COST * joins.count * outer->rows / aggregation.scan.threads;
	path->rows += joins.right_rows;
	path->startup_cost += lookup_cost;
	path->total_cost += lookup_cost;

	/* EXPLAIN shows the cost at the scan too, where the time is spent. */
	set_costs(joins.path, path);
	rest = (Path *) create_agg_path(root, outer, joins.path, aggregation.target,
									aggregation.group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									AGGSPLIT_INITIAL_SERIAL, aggregation.group_clause, NIL,
									&aggregation.partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);

	cellar_add_final_paths(root, grouped_rel, &aggregation, path, extra);
}

/*
 * Adds paths for GROUP BY, or for aggregates, above inner joins.
 */
void
cellar_add_lookup_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *grouped_rel,
						GroupPathExtraData *extra)
{
	List	   *other_paths = grouped_rel->pathlist;
	int			relid = -1;

	if (!cellar_lookup_joins || !enable_hashjoin || root->placeholder_list != NIL ||
		root->hasPseudoConstantQuals || !bms_is_empty(input_rel->lateral_relids) || IS_DUMMY_REL(input_rel) ||
		cellar_aggregation_unsuitable(root) != NULL || (extra->flags & GROUPING_CAN_PARTIAL_AGG) == 0 ||
		(CellarGroupClause(root) != NIL && (extra->flags & GROUPING_CAN_USE_HASH) == 0))
		return;

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
		grouped_rel->pathlist = NIL;
	while ((relid = bms_next_member(input_rel->relids, relid)) >= 0)
	{
		RelOptInfo *outer = root->simple_rel_array[relid];
		RangeTblEntry *rte = planner_rt_fetch(relid, root);
		Relation	relation;

		if (outer == NULL || !cellar_is_scannable(outer, rte))
			continue;
		relation = table_open(rte->relid, NoLock);
		if (cellar_scan_unsuitable(root, outer, rte, relation) == NULL)
			add_paths(root, input_rel, outer, relation, grouped_rel, extra);
		table_close(relation, NoLock);
	}
	if (grouped_rel->pathlist == NIL)
		grouped_rel->pathlist = other_paths;
}

/*
 * custom_private of the plan has lists of integers: the kind of join; for each
 * part of the key the range table index and the attribute number of the outer
 * column, the range table index of the key, and the number of the key in the
 * rows of the child.
 */
static Plan *
plan_lookup(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
			List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *parts = NIL;
	ListCell   *outer;
	ListCell   *key;

	forboth(outer, lsecond(best_path->custom_private), key, lthird(best_path->custom_private))
	{
		Var		   *column = lfirst_node(Var, outer);
		TargetEntry *entry = tlist_member(lfirst(key), tlist);

		if (entry == NULL)
			elog(ERROR, "the key of a lookup table is not in the target list");
		parts = lappend(parts, list_make4_int(column->varno, column->varattno, lfirst_node(Var, key)->varno,
											  entry->resno));
	}
	cscan->scan.plan.targetlist = tlist;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	cscan->custom_private = list_make2(linitial(best_path->custom_private), parts);
	cscan->methods = &cellar_lookup_methods;
	return &cscan->scan.plan;
}

const CustomPathMethods cellar_lookup_path_methods = {
	.CustomName = CELLAR_LOOKUP_NAME,
	.PlanCustomPath = plan_lookup
};

const CustomScanMethods cellar_lookup_methods = {
	.CustomName = CELLAR_LOOKUP_NAME,
	.CreateCustomScanState = cellar_create_lookup_state
};
