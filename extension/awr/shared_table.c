/*-------------------------------------------------------------------------
 *
 * shared_table.c
 *	  Bounded hash tables in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "cellar/compat.h"
#include "cellar/shared_table.h"

Size
cellar_shared_table_bytes(const CellarSharedTable *table, int entries_max)
{
	return add_size(sizeof(uint64), hash_estimate_size(entries_max, table->entry_bytes));
}

/* Attaches to a table, and creates it first.  The caller holds AddinShmemInitLock. */
void
cellar_shared_table_init(CellarSharedTable *table, int entries_max, LWLock *lock)
{
	HASHCTL		info;
	bool		found;

	table->last_number = ShmemInitStruct(psprintf("%s numbers", table->name), sizeof(uint64), &found);
	if (!found)
		*table->last_number = 0;
	info.keysize = table->key_bytes;
	info.entrysize = table->entry_bytes;
	table->entries = CellarShmemInitHash(table->name, entries_max, &info, HASH_ELEM | HASH_BLOBS);
	table->lock = lock;
}

/*
 * Returns the entry of a key, which is created with zeros if necessary, or NULL if
 * the table is full.  The caller holds the lock.
 */
void *
cellar_shared_table_enter(CellarSharedTable *table, const void *key)
{
	bool		found;
	char	   *entry = hash_search(table->entries, key, HASH_ENTER_NULL, &found);

	if (entry != NULL && !found)
	{
		memset(entry + table->key_bytes, 0, table->entry_bytes - table->key_bytes);
		*(uint64 *) (entry + table->generation_offset) = ++*table->last_number;
	}
	return entry;
}
