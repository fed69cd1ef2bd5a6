//! The report about one block: where its current content is stored, and why.

use super::report::{BlockReport, PageHeader};
use super::{InspectError, files, name};
use cellar_format::units::{AuIndex, BLOCK_BYTES, PageInAu};
use cellar_scan::unit::{PageKind, Unit};
use cellar_storage::{Ino, UnitExtent, Volume};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks of a full segment in a standard build of PostgreSQL.
const SEGMENT_BLOCKS: u64 = 131_072;
const PAGE_HEADER_BYTES: usize = 24;

/// Reports on a block of a file. With `is_complete`, includes the bytes.
pub fn report(volume: &Volume, ino: Ino, block: u64, is_complete: bool) -> Result<BlockReport, InspectError> {
    let path = name(volume, ino);
    let (size, au_bytes) = (volume.size(ino)?, volume.au_bytes(ino)?);
    let blocks = size.div_ceil(BLOCK);
    if block >= blocks {
        let message = format!("block {block} is beyond the end of {path}, which has {blocks} blocks");
        return Err(InspectError::not_found(message, "blocks are numbered from 0 in each segment file"));
    }
    let (au, page) = (block * BLOCK / au_bytes, PageInAu((block * BLOCK % au_bytes / BLOCK) as u32));
    let extent = volume.unit_extent(ino, AuIndex(au))?;
    let (place, reason) = explain(volume, (ino, au, block), page, extent.as_ref())?;
    let mut bytes = vec![0; (size - block * BLOCK).min(BLOCK) as usize];
    volume.read_uncached(ino, block * BLOCK, &mut bytes)?;
    Ok(BlockReport {
        inode: ino,
        block,
        au,
        page: page.0,
        disk: super::files::names_of(&volume.au_disks(ino, AuIndex(au))?),
        place: place.into(),
        reason,
        unit: extent.as_ref().map(files::place),
        header: page_header(&bytes, &path, block),
        bytes: is_complete.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        path,
    })
}

/// Returns where a block lies and why.
fn explain(
    volume: &Volume,
    (ino, au, block): (Ino, u64, u64),
    page: PageInAu,
    extent: Option<&UnitExtent>,
) -> Result<(&'static str, String), InspectError> {
    const RAW: &str = "backing file";
    let Some(extent) = extent else {
        return Ok(match volume.is_hole(ino, block * BLOCK, BLOCK)? {
            true => ("hole", "the block was never written, or was punched: it reads as zeros".into()),
            false => (RAW, format!("allocation unit {au} has no compression unit")),
        });
    };
    let pages = extent.superseded.page_count();
    if page.0 >= pages {
        let reason =
            format!("the compression unit contains {pages} pages; the block was added after the unit was created");
        return Ok((RAW, reason));
    }
    if extent.committed.contains(page) {
        return Ok((
            RAW,
            "superseded by a write after the unit was created; the metadata name the page superseded".into(),
        ));
    }
    if extent.superseded.contains(page) {
        let reason =
            "superseded by a write after the unit was created; the redo log has the page until the next checkpoint";
        return Ok((RAW, reason.into()));
    }
    Ok(("compression unit", in_unit(volume, ino, au, page)?))
}

fn in_unit(volume: &Volume, ino: Ino, au: u64, page: PageInAu) -> Result<String, InspectError> {
    let damaged = |source| InspectError::DamagedUnit { path: name(volume, ino), au, source };
    let Some(reader) = volume.unit_reader(ino, AuIndex(au))? else {
        return Ok("the unit was dropped during the inspection; repeat the command".into());
    };
    let unit = Unit::open(&reader).map_err(damaged)?;
    let Some(entry) = unit.pages().get(page.0 as usize) else {
        return Ok("the unit was replaced during the inspection; repeat the command".into());
    };
    let chunk = unit.chunks().iter().position(|chunk| chunk.pages().contains(&(page.0 as usize)));
    let chunk = chunk.map_or_else(|| "no chunk".into(), |chunk| format!("chunk {chunk}"));
    let first = entry.first_row;
    Ok(match entry.kind {
        PageKind::Zero => "current in the unit, as a page of zeros".into(),
        PageKind::Raw => format!("current in the unit, byte for byte ({chunk}): the columns cannot express the page"),
        PageKind::Rows => {
            let (rows, lines) = (entry.rows, entry.lines);
            format!("current in the unit ({chunk}): {rows} rows from row {first} of the unit, {lines} line pointers")
        }
    })
}

/// Reads the header of a page. None for a page of zeros or an incomplete one.
fn page_header(bytes: &[u8], path: &str, block: u64) -> Option<PageHeader> {
    let page: &[u8; BLOCK_BYTES] = bytes.try_into().ok()?;
    if page.iter().all(|byte| *byte == 0) {
        return None;
    }
    let short = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    let segment = path.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or(0);
    let in_relation = segment.wrapping_mul(SEGMENT_BLOCKS).wrapping_add(block) as u32;
    let lower = short(12);
    Some(PageHeader {
        lsn: format!("{:X}/{:X}", long(0), long(4)),
        checksum: short(8),
        computed_checksum: cellar_scan::page_checksum(page, in_relation),
        flags: short(10),
        lower,
        upper: short(14),
        special: short(16),
        page_size: short(18) & 0xff00,
        layout_version: short(18) & 0x00ff,
        prune_xid: long(20),
        line_pointers: (usize::from(lower).min(BLOCK_BYTES)).saturating_sub(PAGE_HEADER_BYTES) / 4,
    })
}
