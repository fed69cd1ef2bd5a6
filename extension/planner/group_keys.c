/*-------------------------------------------------------------------------
 *
 * group_keys.c
 *	  Tells the planner that the groups of a subquery are unique by their keys,
 *	  for joins by several keys.
 *
 * PostgreSQL estimates a join by several columns as if these were independent.
 * For example, it estimates one row for the join of a table of 800,000 pairs of
 * part and supplier with a subquery that groups by part and supplier, although
 * each group has a partner.  Nested loops over such a join look cheap.
 *
 * PostgreSQL estimates joins by the columns of a foreign key correctly: each row
 * of the referencing side has one partner in the referenced side.  This file
 * assumes the same of the side with fewer distinct keys: it adds a foreign key for
 * the join to the planner's list of foreign keys that the query uses.  The list is
 * complete when base relations get their paths.  After that, only the estimates of
 * joins read the list.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/planner.h"

/* Returns the column numbers of the keys by which the subquery is unique, or NIL. */
static List *
group_columns(const Query *subquery)
{
	List	   *columns = NIL;
	ListCell   *lc;

	/* HAVING and LIMIT remove groups: most rows might have no partner. */
	if (subquery->groupingSets != NIL || subquery->distinctClause != NIL || subquery->setOperations != NULL ||
		subquery->hasTargetSRFs || subquery->havingQual != NULL || subquery->limitCount != NULL ||
		subquery->limitOffset != NULL)
		return NIL;
	foreach(lc, subquery->groupClause)
	{
		TargetEntry *entry = get_sortgroupclause_tle(lfirst_node(SortGroupClause, lc), subquery->targetList);

		if (entry->resjunk)
			return NIL;
		columns = list_append_unique_int(columns, entry->resno);
	}
	return columns;
}

/* Returns the member of the class that is a column of the relation, `column` if not 0. */
static EquivalenceMember *
find_column(const EquivalenceClass *class, const RelOptInfo *rel, AttrNumber column)
{
	ListCell   *lc;

	foreach(lc, class->ec_members)
	{
		EquivalenceMember *member = lfirst_node(EquivalenceMember, lc);
		const Var  *var = (const Var *) member->em_expr;

		if (IsA(var, Var) && var->varno == rel->relid && var->varattno > 0 &&
			(column == 0 || var->varattno == column))
			return member;
	}
	return NULL;
}

/*
 * Adds an equality of a key with a column of the other relation to the description
 * of the join.  Returns false if there is none.
 */
static bool
match_key(PlannerInfo *root, const RelOptInfo *groups, AttrNumber key, const RelOptInfo *other, ForeignKeyOptInfo *join)
{
	ListCell   *lc;

	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *class = lfirst_node(EquivalenceClass, lc);
		EquivalenceMember *column;

		if (class->ec_has_const || class->ec_has_volatile || !bms_is_member(groups->relid, class->ec_relids) ||
			!bms_is_member(other->relid, class->ec_relids) || find_column(class, groups, key) == NULL)
			continue;
		column = find_column(class, other, 0);
		if (column == NULL)
			continue;
		for (int i = 0; i < join->nkeys; i++)
		{
			if (join->eclass[i] == class)
				return false;
		}
		join->conkey[join->nkeys] = ((Var *) column->em_expr)->varattno;
		join->confkey[join->nkeys] = key;
		join->eclass[join->nkeys] = class;
		join->fk_eclass_member[join->nkeys] = column;
		join->nkeys++;
		join->nmatched_ec++;
		return true;
	}
	return false;
}

/* Returns whether the columns of the join contain all columns of a unique index. */
static bool
is_unique(const RelOptInfo *rel, const ForeignKeyOptInfo *join)
{
	ListCell   *lc;

	foreach(lc, rel->indexlist)
	{
		const IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);
		int			found = 0;

		if (!index->unique || !index->immediate || (index->indpred != NIL && !index->predOK))
			continue;
		for (int i = 0; i < index->nkeycolumns; i++)
		{
			for (int j = 0; j < join->nkeys; j++)
			{
				if (join->conkey[j] == index->indexkeys[i])
				{
					found++;
					break;
				}
			}
		}
		if (found == index->nkeycolumns)
			return true;
	}
	return false;
}

/* Returns whether the planner considers Smart Scans of the table, which it has locked. */
static bool
is_on_cell(const RangeTblEntry *rte)
{
	Relation	relation = table_open(rte->relid, NoLock);
	bool		on_cell = cellar_relation_unsuitable(relation) == NULL;

	table_close(relation, NoLock);
	return on_cell;
}

/*
 * Exchanges the sides: each group has one partner in the other relation, which has
 * more distinct keys than there are groups.
 */
static void
swap_sides(ForeignKeyOptInfo *join, const RelOptInfo *groups)
{
	Index		relid = join->con_relid;

	join->con_relid = join->ref_relid;
	join->ref_relid = relid;
	for (int i = 0; i < join->nkeys; i++)
	{
		AttrNumber	column = join->conkey[i];

		join->conkey[i] = join->confkey[i];
		join->confkey[i] = column;
		join->fk_eclass_member[i] = find_column(join->eclass[i], groups, join->conkey[i]);
	}
}

/*
 * Describes the joins of a subquery with tables on a cell, by all of its several
 * group keys.  The sizes of all base relations are known.
 */
void
cellar_add_group_keys(PlannerInfo *root, const RelOptInfo *groups, const RangeTblEntry *rte)
{
	List	   *keys;

	if (!cellar_offload_processing || rte->rtekind != RTE_SUBQUERY || groups->reloptkind != RELOPT_BASEREL)
		return;
	keys = group_columns(rte->subquery);
	if (list_length(keys) < 2 || list_length(keys) > INDEX_MAX_KEYS)
		return;
	for (int relid = 1; relid < root->simple_rel_array_size; relid++)
	{
		RelOptInfo *other = root->simple_rel_array[relid];
		ForeignKeyOptInfo *join;
		ListCell   *lc;

		if (other == NULL || other->reloptkind != RELOPT_BASEREL ||
			!cellar_is_scannable(other, planner_rt_fetch(relid, root)))
			continue;
		join = makeNode(ForeignKeyOptInfo);
		join->con_relid = relid;
		join->ref_relid = groups->relid;
		foreach(lc, keys)
		{
			if (!match_key(root, groups, lfirst_int(lc), other, join))
				break;
		}
		if (join->nkeys < list_length(keys) || !is_on_cell(planner_rt_fetch(relid, root)))
			continue;
		if (other->tuples > groups->tuples && is_unique(other, join))
			swap_sides(join, groups);
		root->fkey_list = lappend(root->fkey_list, join);
	}
}
