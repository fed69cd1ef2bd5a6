/*-------------------------------------------------------------------------
 *
 * cached_pages.c
 *	  Estimates which part of a relation is in memory.
 *
 * PostgreSQL's costs assume that an index scan reads most pages from disk.  A page
 * in shared buffers costs a tenth of that or less, so the planner must know which
 * of the two holds before it compares index scans with Smart Scans.  A sample of
 * the relation's pages is looked up in shared buffers, and the pages that are not
 * there in the kernel's page cache (cachestat(2), since Linux 6.5; on older
 * kernels, the pages count as being on disk).  No file is opened for that: the planner
 * would wait for the cell, without interrupts.
 *
 * A backend keeps a sample for a second, so that short statements rarely pay for it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "access/table.h"
#include "storage/buf_internals.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

#define SAMPLED_PAGES		32	/* of a relation */
#define SAMPLED_FILES		8	/* at most */
#define SAMPLE_AGE_MAX_MS	1000
#define SAMPLES_MAX			8192	/* relations whose samples a backend keeps: more than most statements read */

/* Headers of kernels before 6.5 have no number. */
#ifdef __NR_cachestat
#define CACHESTAT_NUMBER	__NR_cachestat
#else
#define CACHESTAT_NUMBER	451
#endif

/* The kernel's cachestat_range and cachestat. */
typedef struct CachestatRange
{
	uint64		offset;
	uint64		length;
} CachestatRange;

typedef struct Cachestat
{
	uint64		cached;			/* pages */
	uint64		dirty;
	uint64		written_back;
	uint64		evicted;
	uint64		recently_evicted;
} Cachestat;

typedef struct SampleEntry
{
	CellarFileId file;			/* hash key */
	TimestampTz taken;
	CellarCachedPages cached;
} SampleEntry;

static HTAB *samples = NULL;

static bool
is_in_buffers(CellarFileId file, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	bool		found;

	CellarInitBufferTag(&tag, file, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	found = BufTableLookup(&tag, hash) >= 0;
	LWLockRelease(lock);
	return found;
}

static bool
is_in_page_cache(int fd, BlockNumber block)
{
	CachestatRange range = {(uint64) block * BLCKSZ, BLCKSZ};
	Cachestat	stat = {0};

	return syscall(CACHESTAT_NUMBER, fd, &range, &stat, 0) == 0 && stat.cached > 0;
}

/* Adds the sampled pages of a segment to *cached. */
static void
sample_segment(Relation rel, BlockNumber segment, BlockNumber pages, int sampled, CellarCachedPages *cached)
{
	int			fd = CellarSegmentDescriptor(rel, segment);

	for (int i = 0; i < sampled; i++)
	{
		BlockNumber block = (BlockNumber) ((2 * i + 1) * (uint64) pages / (2 * sampled));

		if (is_in_buffers(CellarRelationFile(rel), segment * RELSEG_SIZE + block))
			cached->buffers++;
		else if (fd >= 0 && is_in_page_cache(fd, block))
			cached->kernel++;
	}
}

static CellarCachedPages
take_sample(Relation rel)
{
	CellarCachedPages cached = {0};
	BlockNumber pages = RelationGetNumberOfBlocks(rel);
	BlockNumber segments = (pages + RELSEG_SIZE - 1) / RELSEG_SIZE;
	int			files = Min(segments, SAMPLED_FILES);

	for (int i = 0; i < files; i++)
	{
		BlockNumber segment = (BlockNumber) ((uint64) i * segments / files);

		sample_segment(rel, segment, Min(RELSEG_SIZE, pages - segment * RELSEG_SIZE),
					   SAMPLED_PAGES / files, &cached);
	}
	if (files > 0)
	{
		int			sampled = files * (SAMPLED_PAGES / files);

		cached.buffers /= sampled;
		cached.kernel /= sampled;
	}
	return cached;
}

/*
 * Returns which fractions of the relation's main fork are in memory.  A setting
 * replaces the sample.
 */
CellarCachedPages
cellar_cached_pages(Relation rel)
{
	CellarFileId file = CellarRelationFile(rel);
	TimestampTz now = GetCurrentTimestamp();
	SampleEntry *entry;
	bool		found;

	if (cellar_cached_fraction >= 0)
		return (CellarCachedPages) {.buffers = cellar_cached_fraction};
	if (samples != NULL && hash_get_num_entries(samples) >= SAMPLES_MAX)
	{
		hash_destroy(samples);
		samples = NULL;
	}
	if (samples == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(CellarFileId),.entrysize = sizeof(SampleEntry),.hcxt = TopMemoryContext};

		samples = hash_create("cellar cached pages", 32, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(samples, &file, HASH_FIND, NULL);
	if (entry != NULL && !TimestampDifferenceExceeds(entry->taken, now, SAMPLE_AGE_MAX_MS))
		return entry->cached;

	/* An error leaves no entry behind. */
	{
		CellarCachedPages cached = take_sample(rel);

		entry = hash_search(samples, &file, HASH_ENTER, &found);
		entry->taken = now;
		entry->cached = cached;
	}
	return entry->cached;
}
