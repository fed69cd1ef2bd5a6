/*-------------------------------------------------------------------------
 *
 * index_path.c
 *	  Chooses an index whose entries a cell can aggregate instead of the rows
 *	  of the table.
 *
 * docs/decisions/0029-index-pages-are-scanned-as-of-one-instant.md lists which indexes
 * are never chosen, and why.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/planner.h"

/* Returns whether the index has all columns that the scan needs. */
static bool
covers(const IndexOptInfo *index, const Bitmapset *needed)
{
	int			member = -1;

	while ((member = bms_next_member(needed, member)) >= 0)
	{
		int			attribute = member + FirstLowInvalidHeapAttributeNumber;
		bool		found = false;

		/* System columns and whole rows are in no index. */
		for (int i = 0; i < index->ncolumns && attribute > 0; i++)
			found |= index->indexkeys[i] == attribute;
		if (!found)
			return false;
	}
	return true;
}

/*
 * Returns whether the columns of the index have the types of the table's columns, so
 * that a cell can read them.  An operator class may store another type.
 */
static bool
stores_columns(Relation index, Relation table)
{
	for (int i = 0; i < RelationGetNumberOfAttributes(index); i++)
	{
		Form_pg_attribute stored = TupleDescAttr(RelationGetDescr(index), i);
		int			number = index->rd_index->indkey.values[i];
		Form_pg_attribute column;

		if (number <= 0)
			return false;
		column = TupleDescAttr(RelationGetDescr(table), number - 1);
		if (stored->atttypid != column->atttypid || stored->attlen != column->attlen ||
			stored->attalign != column->attalign || stored->attbyval != column->attbyval)
			return false;
	}
	return true;
}

static bool
is_scannable(const IndexOptInfo *index, Relation table)
{
	Relation	rel;
	CellarLocation location;
	bool		scannable;

	if (index->relam != BTREE_AM_OID || index->hypothetical || index->indexprs != NIL ||
		(index->indpred != NIL && !index->predOK))
		return false;

	/* The planner already locked the index. */
	rel = index_open(index->indexoid, NoLock);
	scannable = RelationNeedsWAL(rel) && stores_columns(rel, table) && cellar_relation_location(rel, &location);
	index_close(rel, NoLock);
	return scannable;
}

/*
 * Returns the smallest index whose entries the cell can scan instead of the rows of
 * the relation, or NULL.
 */
const IndexOptInfo *
cellar_covering_index(RelOptInfo *rel, Oid relid)
{
	Bitmapset  *needed = cellar_needed_attributes(rel, rel->baserestrictinfo);
	const IndexOptInfo *smallest = NULL;
	Relation	table;
	ListCell   *lc;

	if (cellar_index_scans == CELLAR_INDEX_SCANS_OFF || RecoveryInProgress())
		return NULL;
	table = table_open(relid, NoLock);
	foreach(lc, rel->indexlist)
	{
		const IndexOptInfo *index = lfirst(lc);

		if ((smallest == NULL || index->pages < smallest->pages) && covers(index, needed) &&
			is_scannable(index, table))
			smallest = index;
	}
	table_close(table, NoLock);
	return smallest;
}
