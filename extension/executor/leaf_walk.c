/*-------------------------------------------------------------------------
 *
 * leaf_walk.c
 *	  Finds the entries of the leaf pages that the cell has not counted.
 *
 * The walk follows the right links from the leftmost leaf page.  For a page that
 * the cell has counted, the walk uses the link that the cell saw, and does not
 * read the page; for any other page, it uses the current link.  In this way the
 * walk skips pages whose entries a split moved after the cell counted them.  There
 * is one exception: if a counted page was deleted after a split, the walk reaches
 * its right half from its left half.  Such right halves are found at the end, and
 * their entries are dropped.
 *
 * docs/decisions/0029-index-pages-are-scanned-as-of-one-instant.md has the proof.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "cellar/executor.h"

/* A page that the walk has read, and its first TID in CellarIndexScan.tids. */
typedef struct WalkedPage
{
	uint32		number;
	Size		first_tid;
	bool		dropped;
} WalkedPage;

typedef struct LeafWalk
{
	CellarIndexScan *index;
	BlockNumber nblocks;		/* that the cell has scanned */
	BlockNumber nblocks_now;	/* at least; the index may have grown */
	uint32	   *numbers;		/* by block: order of the walk, starting at 1 */
	BlockNumber nnumbers;
	uint32		last_number;
	WalkedPage *pages;			/* in order */
	Size		npages;
	Size		pages_allocated;
} LeafWalk;

static void
report_corrupt(LeafWalk *walk, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("right links of index \"%s\" are inconsistent at block %u",
					RelationGetRelationName(walk->index->rel), block),
			 errhint("Please REINDEX it.")));
}

static bool
is_counted(LeafWalk *walk, BlockNumber block)
{
	return block < walk->nblocks && walk->index->links[block] != CELLAR_NOT_COUNTED;
}

static uint32
number_of(LeafWalk *walk, BlockNumber block)
{
	return block < walk->nnumbers ? walk->numbers[block] : 0;
}

static void
set_number(LeafWalk *walk, BlockNumber block)
{
	if (block >= walk->nblocks_now)
	{
		walk->nblocks_now = RelationGetNumberOfBlocks(walk->index->rel);
		if (block >= walk->nblocks_now)
			report_corrupt(walk, block);
	}
	if (block >= walk->nnumbers)
	{
		BlockNumber more = Max(block + 1, walk->nnumbers + walk->nnumbers / 8);

		walk->numbers = repalloc_huge(walk->numbers, (Size) more * sizeof(uint32));
		memset(&walk->numbers[walk->nnumbers], 0, (Size) (more - walk->nnumbers) * sizeof(uint32));
		walk->nnumbers = more;
	}
	walk->numbers[block] = ++walk->last_number;
}

/* Appends the TIDs of all entries of a leaf page. */
static void
add_entries(LeafWalk *walk, Page page, BlockNumber block)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = P_FIRSTDATAKEY(BTPageGetOpaque(page)); offset <= last; offset = OffsetNumberNext(offset))
	{
		ItemId		item = PageGetItemId(page, offset);
		IndexTuple	entry = (IndexTuple) PageGetItem(page, item);
		int			ntids;

		if (ItemIdIsDead(item))
			continue;
		if (BTreeTupleIsPivot(entry))
			report_corrupt(walk, block);
		ntids = BTreeTupleIsPosting(entry) ? BTreeTupleGetNPosting(entry) : 1;
		for (int i = 0; i < ntids; i++)
		{
			ItemPointer tid = BTreeTupleIsPosting(entry) ? BTreeTupleGetPostingN(entry, i) : &entry->t_tid;

			cellar_add_tid(walk->index, ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid));
		}
	}
}

/* Reads a page that the cell has not counted.  Returns its right link. */
static BlockNumber
read_page(LeafWalk *walk, BlockNumber block)
{
	Buffer		buffer = _bt_getbuf(walk->index->rel, block, BT_READ);
	Page		page = BufferGetPage(buffer);
	BTPageOpaque opaque = BTPageGetOpaque(page);
	BlockNumber right = opaque->btpo_next;

	if (!P_ISLEAF(opaque))
		report_corrupt(walk, block);
	if (walk->npages == walk->pages_allocated)
	{
		walk->pages_allocated = Max(64, walk->pages_allocated * 2);
		walk->pages = repalloc_huge(walk->pages, walk->pages_allocated * sizeof(WalkedPage));
	}
	walk->pages[walk->npages++] = (WalkedPage) {
		.number = walk->last_number,
		.first_tid = walk->index->ntids
	};
	if (!P_IGNORE(opaque))
		add_entries(walk, page, block);
	_bt_relbuf(walk->index->rel, buffer);
	walk->index->pages_walked++;
	return right;
}

/* Returns the right link of a page that must be deleted, or about to be. */
static BlockNumber
link_of_deleted(LeafWalk *walk, BlockNumber block)
{
	Buffer		buffer = _bt_getbuf(walk->index->rel, block, BT_READ);
	BTPageOpaque opaque = BTPageGetOpaque(BufferGetPage(buffer));
	BlockNumber right = opaque->btpo_next;

	if (!P_IGNORE(opaque))
		report_corrupt(walk, block);
	_bt_relbuf(walk->index->rel, buffer);
	return right;
}

/*
 * Returns the number of the first page at or right of the block that the walk has
 * visited.
 */
static uint32
first_number(LeafWalk *walk, BlockNumber block)
{
	while (block != P_NONE && number_of(walk, block) == 0)
	{
		CHECK_FOR_INTERRUPTS();
		block = link_of_deleted(walk, block);
	}
	return block == P_NONE ? PG_UINT32_MAX : number_of(walk, block);
}

/*
 * Drops the entries of the right halves of a page that was deleted after the cell
 * counted its entries.
 */
static void
drop_right_halves(LeafWalk *walk, BlockNumber deleted)
{
	BlockNumber right = link_of_deleted(walk, deleted);
	uint32		first;
	uint32		end;
	Size		low = 0;
	Size		high = walk->npages;

	if (right == walk->index->links[deleted])
		return;
	first = first_number(walk, right);
	end = first_number(walk, walk->index->links[deleted]);
	if (first >= end)
		return;
	while (low < high)
	{
		Size		middle = low + (high - low) / 2;

		if (walk->pages[middle].number < first)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < walk->npages && walk->pages[low].number < end; low++)
		walk->pages[low].dropped = true;
}

/* Removes the TIDs of dropped pages.  TIDs from before the walk stay. */
static void
remove_dropped(LeafWalk *walk)
{
	CellarIndexScan *index = walk->index;
	Size		kept = walk->npages > 0 ? walk->pages[0].first_tid : index->ntids;

	for (Size i = 0; i < walk->npages; i++)
	{
		Size		first = walk->pages[i].first_tid;
		Size		end = i + 1 < walk->npages ? walk->pages[i + 1].first_tid : index->ntids;

		if (walk->pages[i].dropped)
			continue;
		memmove(&index->tids[kept], &index->tids[first], (end - first) * sizeof(ItemPointerData));
		kept += end - first;
	}
	index->ntids = kept;
}

/*
 * Appends the heap TIDs of the leaf pages that the cell has not counted.
 */
void
cellar_walk_leaf_pages(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;
	LeafWalk	walk = {.index = index, .nblocks = state->setup.nblocks, .nblocks_now = state->setup.nblocks};
	BlockNumber block = index->leftmost;

	walk.nnumbers = Max(walk.nblocks, 64);
	walk.numbers = MemoryContextAllocExtended(CurrentMemoryContext, (Size) walk.nnumbers * sizeof(uint32),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	walk.pages_allocated = 64;
	walk.pages = palloc(walk.pages_allocated * sizeof(WalkedPage));

	for (uint32 steps = 0; block != P_NONE; steps++)
	{
		if (steps % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (number_of(&walk, block) != 0)
			report_corrupt(&walk, block);
		set_number(&walk, block);
		block = is_counted(&walk, block) ? index->links[block] : read_page(&walk, block);
	}

	/*
	 * The snapshot sees no entry of an index that was empty at the first step,
	 * also if the cell has counted a page since.
	 */
	for (block = 0; block < walk.nblocks && index->leftmost != P_NONE; block++)
	{
		if (is_counted(&walk, block) && walk.numbers[block] == 0)
		{
			CHECK_FOR_INTERRUPTS();
			drop_right_halves(&walk, block);
		}
	}
	remove_dropped(&walk);
	pfree(walk.pages);
	pfree(walk.numbers);
	index->walked = true;
}
