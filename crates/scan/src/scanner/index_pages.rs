//! Scans of the leaf pages of an index: the entries are the rows.
//!
//! A leaf page with an LSN above that of the request is not counted: none of its entries is written. The same applies to
//! a page that cannot be decoded, or on which a qual cannot be evaluated. Decision 0029 describes how the backend finds
//! these pages, and why the visibility of the other entries is decided by all-visible bits.

use super::{Blocks, HEADERS_AHEAD, PageState, RUN_PAGES, Results, Scanner, count_passthru, has_valid_checksum};
use crate::batch::ResultWriter;
use crate::heap::{PAGES_BYTES_MAX, Prefetch};
use crate::leaf_page::LeafPage;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{IndexScan, LeafLinks, PassthruReason};
use std::ops::Range;
use std::sync::Arc;

impl Scanner {
    /// Scans blocks of an index. Counts the entries of the leaf pages that have not changed since the LSN of the request, and
    /// writes the pages' right links. The other pages are not counted.
    pub(super) fn scan_index(
        &mut self,
        first_block: u32,
        pages: &[u8],
        out: &mut ResultWriter,
        stats: ScanStats,
    ) -> ScanStats {
        let plan = Arc::clone(&self.plan);
        let Some(index) = plan.index() else { return stats };
        self.page_states.clear();
        let mut links = Vec::with_capacity(pages.len() / BLOCK_BYTES);
        for (number, bytes) in pages.chunks(BLOCK_BYTES).enumerate() {
            Prefetch::new(pages.get((number + HEADERS_AHEAD) * BLOCK_BYTES..).unwrap_or(&[])).step();
            let block = first_block.wrapping_add(number as u32);
            let is_valid = |leaf: &LeafPage<'_>| {
                !self.verify_checksums || !plan.checksums || has_valid_checksum(leaf.page(), bytes, block)
            };
            let (state, right) = match LeafPage::new(bytes) {
                _ if pages.len() > PAGES_BYTES_MAX => (PageState::Passthru(PassthruReason::Page), None),
                Ok(None) => (PageState::Empty, None),
                Ok(Some(leaf)) if !is_valid(&leaf) => (PageState::Passthru(PassthruReason::Page), None),
                Ok(Some(leaf)) if leaf.page().lsn() > index.lsn => {
                    (PageState::Passthru(PassthruReason::Visibility), None)
                }
                Ok(Some(leaf)) => (PageState::AllVisible, Some(leaf.right)),
                Err(_) => (PageState::Passthru(PassthruReason::Page), None),
            };
            self.page_states.push(state);
            links.push(right.unwrap_or(LeafLinks::NOT_COUNTED));
        }
        let mut results = Results { out, summary: None, stats };
        for first in (0..self.page_states.len()).step_by(RUN_PAGES) {
            let last = (first + RUN_PAGES).min(self.page_states.len());
            self.scan_run(Blocks { plan: &plan, first_block, pages }, first..last, &mut results);
        }
        let Results { out, mut stats, .. } = results;
        for (state, link) in self.page_states.iter().zip(&mut links) {
            let PageState::Passthru(reason) = state else { continue };
            *link = LeafLinks::NOT_COUNTED;
            out.set_incomplete();
            count_passthru(*reason, &mut stats);
        }
        if links.iter().any(|link| *link != LeafLinks::NOT_COUNTED) {
            out.leaf_links(first_block, links);
        }
        stats
    }

    /// As [`Self::load`], for the entries of an index. A posting list becomes as many rows as it has TIDs.
    pub(super) fn load_entries(&mut self, blocks: Blocks<'_>, range: Range<usize>, ahead: &mut Prefetch<'_>) {
        let Blocks { plan, pages, .. } = blocks;
        self.rows.clear();
        self.selected.clear();
        self.tids.clear();
        for index in range {
            if self.page_states[index] != PageState::AllVisible {
                continue;
            }
            let base = index * BLOCK_BYTES;
            let first_row = self.rows.len();
            let (rows, tids) = (&mut self.rows, &mut self.tids);
            let leaf = pages.get(base..base + BLOCK_BYTES).and_then(|bytes| LeafPage::new(bytes).ok().flatten());
            let loaded = leaf.map(|leaf| {
                leaf.for_each_entry(|item, entry| {
                    for tid in entry.iter() {
                        rows.push_item(&plan.layout, base, index as u16, &item);
                        tids.push(tid);
                    }
                    ahead.step();
                })
            });
            if !matches!(loaded, Some(Ok(()))) {
                self.page_states[index] = PageState::Passthru(PassthruReason::Page);
                self.rows.truncate(first_row);
                self.tids.truncate(first_row);
            }
        }
        self.selected.extend(0..self.rows.len() as u16);
        self.rows.prepare(plan.layout.slots());
    }

    /// Deselects the rows whose heap page is not all-visible, and writes their heap TIDs.
    pub(super) fn set_unchecked_apart(&mut self, index: &IndexScan, results: &mut Results<'_>) {
        let (tids, unchecked) = (&self.tids, &mut self.unchecked);
        unchecked.clear();
        self.selected.retain(|row| {
            let tid = tids[*row as usize];
            let is_visible = index.is_all_visible(tid.block);
            if !is_visible {
                unchecked.push(tid);
            }
            is_visible
        });
        if !unchecked.is_empty() {
            results.stats.rows_returned += unchecked.len() as u64;
            results.out.heap_tids(unchecked);
        }
    }
}
