/*-------------------------------------------------------------------------
 *
 * lookup_table.h
 *	  The plan state of Lookup Table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_LOOKUP_TABLE_H
#define CELLAR_LOOKUP_TABLE_H

#include "lib/stringinfo.h"

#include "cellar/executor.h"

/* A column of the child's rows that the cell needs. */
typedef struct LookupColumn
{
	AttrNumber	source;			/* zero-based */
	CellarAttribute attribute;
	bool		has_nulls;
	StringInfoData nulls;		/* one byte per row */
	StringInfoData values;
} LookupColumn;

/* A part of the key. */
typedef struct KeyPart
{
	AttrNumber	source;			/* zero-based column of the child's rows */
	int16		length;
	uint16		attribute;		/* with which it is compared: of the scanned
								 * relation, or the number of a lookup table's
								 * column */
} KeyPart;

/* Plan state of Lookup Table. */
struct CellarLookupState
{
	CustomScanState css;
	int			kind;			/* of join */
	int			comparison;		/* of the last part */
	int			nparts;
	KeyPart		parts[CELLAR_KEY_PARTS_MAX];
	PlanState  *hash;			/* the Hash node above */
	bool		repeats;		/* a new execution of the child returns the
								 * same rows */
	bool		executed;		/* the child has returned rows that the Hash
								 * node has not read, and that were not kept */
	bool		replaying;		/* the child is executed for the Hash node */
	uint64		ncounted;		/* rows that EXPLAIN has counted before the
								 * Hash node reads them */
	Tuplestorestate *rows;		/* rows of the child that were kept; NULL if
								 * there are none */
	TupleTableSlot *row;
	int			ncolumns;
	LookupColumn *columns;
	bool		has_outer_keys; /* the second child has returned its last row */
	struct CellarLookupState *keys_owner;	/* whose second child returns the
											 * keys that filter the rows; NULL:
											 * this table, if any */
	List	   *earlier;		/* CellarLookupStates of the joins below */
	Bitmapset  *new_parameters; /* changed parameters that a later table
								 * knows, and this one perhaps not yet */
	struct CellarLookupState *twin; /* a table with the same rows, or NULL */
	bool		borrowed;		/* keys and columns are those of the twin */
	bool		complete;		/* the child has returned its last row */
	bool		too_large;
	Size		bytes;
	size_t		nrows;
	size_t		allocated;		/* rows */
	int64	   *keys;			/* nparts per row */
	MemoryContext context;		/* of keys and columns */
};

/* lookup_sharing.c */

extern void cellar_note_new_parameters(CellarLookupState *table);
extern void cellar_pass_new_parameters(CellarLookupState *table);
extern void cellar_forget_new_parameters(CellarLookupState *table);
extern void cellar_apply_new_parameters(CellarLookupState *table);

#endif							/* CELLAR_LOOKUP_TABLE_H */
