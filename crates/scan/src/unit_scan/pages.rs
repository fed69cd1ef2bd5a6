//! Classifies the pages of a unit before any attribute is read: which rows the snapshot sees, and how each page is scanned.

use super::{Scan, UnitScanner};
use crate::batch::Output;
use crate::heap::TupleHeader;
use crate::plan::Plan;
use crate::storage_index::{ColumnSummary, RegionSummary, unit_bounds};
use crate::unit::{self, HeaderField, PageEntry, PageKind, Unit, UnitError};
use crate::visibility::{TupleVisibility, Visibility};
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::PassthruReason;
use std::ops::Range;

const PD_ALL_VISIBLE: u16 = 0x0004;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    /// No row can qualify.
    Skipped,
    AllVisible,
    /// The snapshot sees these rows: a range of [`UnitScanner::visible`].
    SomeVisible {
        from: u32,
        to: u32,
    },
    /// The page is rebuilt and scanned as a heap page.
    Rebuild,
    Passthru(PassthruReason),
}

/// Consecutive pages in the same state: many pages of one chunk, or one page.
pub(super) struct PageRun {
    pub pages: Range<usize>,
    /// The chunk that contains the pages; 0 if none does.
    pub chunk: usize,
    pub state: PageState,
}

impl PageRun {
    /// Whether the pages are scanned column by column.
    pub fn is_columnar(&self) -> bool {
        matches!(self.state, PageState::AllVisible | PageState::SomeVisible { .. })
    }

    /// Number of visible rows.
    pub fn visible_rows(&self, unit: &Unit) -> usize {
        match self.state {
            PageState::SomeVisible { from, to } => (to - from) as usize,
            _ => rows_of(unit, &self.pages).len(),
        }
    }
}

/// The rows of consecutive pages, as numbers in the unit.
pub(super) fn rows_of(unit: &Unit, pages: &Range<usize>) -> Range<usize> {
    unit.page_rows(pages.start).start..unit.page_rows(pages.end - 1).end
}

impl UnitScanner {
    /// Fills `self.page_runs` and `self.visible`. Returns the transactions whose states are missing. If there are any, the caller
    /// obtains their states and classifies again.
    pub(super) fn classify_pages(
        &mut self,
        scan: Scan<'_>,
        pages: Range<usize>,
        stats: &mut ScanStats,
    ) -> Result<Vec<TransactionId>, UnitError> {
        self.page_runs.clear();
        self.visible.clear();
        let Scan { plan, unit, .. } = scan;
        let mut visibility = Visibility::new(&plan.snapshot, scan.xids);
        let mut needed = Vec::new();
        // Whole rows are copied from pages; without a predicate every page is needed.
        let is_columnar = !(matches!(plan.output(), Output::Rows) && plan.stages.is_empty()) && fits(plan, unit);
        let chunks = unit.chunks();
        let is_excluded = |chunk| !plan.stages.is_empty() && !plan.may_match(&chunk_summary(plan, unit, chunk));
        let excluded: Vec<bool> = chunks.iter().map(is_excluded).collect();
        let mut number = chunks.partition_point(|chunk| chunk.pages().end <= pages.start);
        let mut next = pages.start;
        while next < pages.end {
            let page = next;
            next += 1;
            while chunks.get(number).is_some_and(|chunk| chunk.pages().end <= page) {
                number += 1;
            }
            let chunk = chunks.get(number).filter(|chunk| chunk.pages().contains(&page)).map(|_| number);
            if let Some(chunk) = chunk.filter(|chunk| is_columnar && unit.is_all_visible(*chunk))
                && (excluded[chunk] || !plan.snapshot.taken_during_recovery)
            {
                next = chunks[chunk].pages().end.min(pages.end);
                if excluded[chunk] {
                    count_saved(stats, next - page);
                }
                let state = if excluded[chunk] { PageState::Skipped } else { PageState::AllVisible };
                self.page_runs.push(PageRun { pages: page..next, chunk, state });
                continue;
            }
            let entry = &unit.pages()[page];
            let state = match entry.kind {
                PageKind::Zero => PageState::Skipped,
                PageKind::Rows if entry.rows == 0 => PageState::Skipped,
                PageKind::Rows if is_columnar && chunk.is_some_and(|chunk| excluded[chunk]) => {
                    count_saved(stats, 1);
                    PageState::Skipped
                }
                PageKind::Rows if is_columnar && is_all_visible(plan, entry) => PageState::AllVisible,
                PageKind::Rows if is_columnar => self.check_rows(scan, page, &mut visibility, &mut needed)?,
                _ => {
                    let mut bytes = [0; BLOCK_BYTES];
                    self.rebuilder.page(unit, scan.source, page, &mut bytes)?;
                    needed.extend(self.page_scanner.needed_xids(scan.block(page), &bytes, scan.xids));
                    PageState::Rebuild
                }
            };
            if visibility.take_helped() && !matches!(state, PageState::Passthru(_)) {
                stats.blocks_helped_by_commit_cache += 1;
            }
            self.page_runs.push(PageRun { pages: page..page + 1, chunk: chunk.unwrap_or(0), state });
        }
        needed.sort_unstable();
        needed.dedup();
        Ok(needed)
    }

    /// Checks each row of a page, by the rules of [`crate::Scanner`]. One undecidable row passes the whole page through.
    fn check_rows(
        &mut self,
        scan: Scan<'_>,
        page: usize,
        visibility: &mut Visibility<'_>,
        needed: &mut Vec<TransactionId>,
    ) -> Result<PageState, UnitError> {
        let rows = scan.unit.page_rows(page);
        let (first_visible, first_needed) = (self.visible.len(), needed.len());
        self.headers.read(scan.unit, scan.source, page)?;
        for row in rows.clone() {
            let field = |field: HeaderField| self.headers.field(field)[row - rows.start];
            // Visibility depends only on these three fields.
            let tuple = TupleHeader {
                offset: 0,
                length: 0,
                xmin: field(HeaderField::Xmin) as u32,
                xmax: field(HeaderField::Xmax) as u32,
                infomask2: 0,
                infomask: field(HeaderField::Infomask) as u16,
                data: 0,
            };
            match visibility.check(&tuple) {
                TupleVisibility::Visible => self.visible.push(row as u32),
                TupleVisibility::Invisible => {}
                TupleVisibility::Undecided => {
                    self.visible.truncate(first_visible);
                    needed.truncate(first_needed);
                    return Ok(PageState::Passthru(PassthruReason::Visibility));
                }
                TupleVisibility::NeedsXid(xid) if needed[first_needed..].last() == Some(&xid) => {}
                TupleVisibility::NeedsXid(xid) => needed.push(xid),
            }
        }
        if self.visible.len() - first_visible == rows.len() {
            self.visible.truncate(first_visible);
            return Ok(PageState::AllVisible);
        }
        Ok(PageState::SomeVisible { from: first_visible as u32, to: self.visible.len() as u32 })
    }
}

/// Counts pages that the chunk's bounds exclude, as bytes saved.
fn count_saved(stats: &mut ScanStats, pages: usize) {
    let bytes = (pages * BLOCK_BYTES) as u64;
    stats.uncompressed_bytes -= bytes;
    stats.saved_by_storage_index_bytes += bytes;
}

/// Whether the page is marked all-visible. During recovery the mark may be ahead of the snapshot.
fn is_all_visible(plan: &Plan, page: &PageEntry) -> bool {
    page.flags & PD_ALL_VISIBLE != 0 && !plan.snapshot.taken_during_recovery
}

/// Whether the unit's attributes have the layout that the request states. The request may have more attributes, which were added
/// after the unit was written.
fn fits(plan: &Plan, unit: &Unit) -> bool {
    let is_same = |(index, attribute): (usize, &unit::Attribute)| {
        plan.layout.attribute(index) == Some((attribute.width, attribute.align))
    };
    unit.shape().attributes.iter().enumerate().all(is_same)
}

/// Returns the summary of all tuples of some pages, from the bounds of the chunks that contain the pages. Returns None if
/// the directory has no bounds for some tuples, or if there are no tuples.
pub fn unit_summary(plan: &Plan, unit: &Unit, pages: Range<usize>) -> Option<RegionSummary> {
    if !fits(plan, unit) {
        return None;
    }
    let chunks = unit.chunks();
    let mut summary: Option<RegionSummary> = None;
    let mut summarised = 0;
    for page in pages {
        let entry = unit.pages().get(page)?;
        match entry.kind {
            PageKind::Rows if entry.rows > 0 => {}
            PageKind::Rows | PageKind::Zero => continue,
            PageKind::Raw => return None,
        }
        if page < summarised {
            continue;
        }
        let chunk = chunks.iter().find(|chunk| chunk.pages().contains(&page))?;
        summarised = chunk.pages().end;
        let of_chunk = chunk_summary(plan, unit, chunk);
        summary = Some(match summary {
            Some(summary) => summary.join(&of_chunk),
            None => of_chunk,
        });
    }
    summary
}

/// The directory's bounds of the columns that the plan prunes by.
fn chunk_summary(plan: &Plan, unit: &Unit, chunk: &unit::Chunk) -> RegionSummary {
    let columns = plan.summary.iter().filter_map(|column| {
        let index = column.number as usize - 1;
        let entry = chunk.attribute(index)?;
        let is_same = unit.shape().attributes[index].is_of_type(column.type_oid);
        if !is_same || entry.missing > 0 || entry.rows() == 0 {
            return None;
        }
        Some(ColumnSummary {
            number: column.number,
            type_oid: column.type_oid,
            has_null: entry.nulls > 0,
            has_nonnull: (entry.nulls as usize) < entry.rows(),
            bounds: unit_bounds(entry, column.type_oid),
        })
    });
    RegionSummary::new(columns.collect())
}
