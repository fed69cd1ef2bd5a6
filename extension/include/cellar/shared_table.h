/*-------------------------------------------------------------------------
 *
 * cellar/shared_table.h
 *	  Bounded hash tables in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_SHARED_TABLE_H
#define CELLAR_SHARED_TABLE_H

#include "storage/lwlock.h"
#include "utils/hsearch.h"

/*
 * An entry begins with its key.  Its member generation, a uint64, differs if the
 * entry was removed and created again.
 */
typedef struct CellarSharedTable
{
	const char *name;
	Size		key_bytes;
	Size		entry_bytes;
	Size		generation_offset;
	HTAB	   *entries;		/* NULL in a server that has not loaded the
								 * library at its start */
	LWLock	   *lock;
	uint64	   *last_number;	/* the last generation; the owner may take
								 * numbers, too */
} CellarSharedTable;

extern Size cellar_shared_table_bytes(const CellarSharedTable *table, int entries_max);
extern void cellar_shared_table_init(CellarSharedTable *table, int entries_max, LWLock *lock);
extern void *cellar_shared_table_enter(CellarSharedTable *table, const void *key);

#endif							/* CELLAR_SHARED_TABLE_H */
