//! The report about one compression unit, and its verification.

use super::report::{ChunkReport, ColumnReport, UnitReport, Verification};
use super::{InspectError, files, name};
use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, BLOCK_BYTES};
use cellar_scan::unit::{ChunkDescription, ColumnDescription, Rebuilder, Unit};
use cellar_storage::{Ino, UnitReader, Volume};

/// Bytes that are read, and verified against the unit's checksum table, at once.
const READ_BYTES: u64 = 16 << 10;
const ERRORS_MAX: usize = 20;

/// Reports what the unit of an allocation unit contains. With `is_complete`, reads every byte and rebuilds every page.
pub fn report(volume: &Volume, ino: Ino, au: u64, is_complete: bool) -> Result<UnitReport, InspectError> {
    let path = name(volume, ino);
    let au_bytes = volume.au_bytes(ino)?;
    let aus = volume.size(ino)?.div_ceil(au_bytes);
    if au >= aus {
        let message = format!("allocation unit {au} is beyond the end of {path}, which has {aus} allocation units");
        return Err(InspectError::not_found(message, "`cellar inspect file` lists the allocation units"));
    }
    let (extent, reader) = (volume.unit_extent(ino, AuIndex(au))?, volume.unit_reader(ino, AuIndex(au))?);
    let (Some(extent), Some(reader)) = (extent, reader) else {
        let message = format!("allocation unit {au} of {path} has no compression unit: its blocks are raw");
        return Err(InspectError::not_found(message, "`cellar inspect file` lists the units of the file"));
    };
    let damaged = |source| InspectError::DamagedUnit { path: path.clone(), au, source };
    let unit = Unit::open(&reader).map_err(damaged)?;
    let described = unit.describe();
    let first_block = au * (au_bytes / BLOCK_BYTES as u64);
    let blocks = |pages: &[u32]| pages.iter().map(|page| first_block + u64::from(*page)).collect();
    Ok(UnitReport {
        inode: ino,
        au,
        first_block,
        end_block: first_block + described.pages as u64,
        disk: super::files::names_of(&volume.au_disks(ino, AuIndex(au))?),
        place: files::place(&extent),
        superseded_blocks: blocks(&extent.superseded.iter().map(|page| page.0).collect::<Vec<_>>()),
        rows: described.rows,
        directory_bytes: described.directory_bytes,
        residue_bytes: described.residue_bytes,
        residue_pages: described.residue_pages,
        zero_blocks: blocks(&described.zero_pages),
        raw_blocks: blocks(&described.raw_pages),
        chunks: described.chunks.into_iter().map(|chunk| chunk_report(first_block, chunk)).collect(),
        verification: is_complete.then(|| verify(&reader, &unit, first_block)),
        path,
    })
}

fn chunk_report(first_block: u64, chunk: ChunkDescription) -> ChunkReport {
    ChunkReport {
        first_block: first_block + chunk.pages.start as u64,
        end_block: first_block + chunk.pages.end as u64,
        rows: chunk.rows.len(),
        line_pointers: chunk.lines,
        is_all_visible: chunk.is_all_visible,
        is_all_frozen: chunk.is_all_frozen,
        header_bytes: chunk.header_bytes,
        columns: chunk.columns.into_iter().map(column_report).collect(),
    }
}

fn column_report(column: ColumnDescription) -> ColumnReport {
    let ColumnDescription { number, type_oid, encoding, bytes, nulls, missing, exceptions, bounds } = column;
    let (min, max) = bounds.unzip();
    ColumnReport { attribute: number, type_oid, encoding, bytes, nulls, missing, exceptions, min, max }
}

/// Reads the unit piece by piece against its checksum table, then rebuilds every page.
fn verify(reader: &UnitReader, unit: &Unit, first_block: u64) -> Verification {
    let mut verification = Verification { pages: unit.pages().len(), ..Verification::default() };
    let note = |errors: &mut Vec<String>, error: String| {
        if errors.len() < ERRORS_MAX {
            errors.push(error);
        }
    };
    let mut buffer = vec![0; READ_BYTES as usize];
    for offset in (0..reader.length()).step_by(READ_BYTES as usize) {
        let part = &mut buffer[..(reader.length() - offset).min(READ_BYTES) as usize];
        if let Err(error) = reader.read_at(part, offset) {
            note(&mut verification.errors, error.to_string());
        }
    }
    let (mut rebuilder, mut page) = (Rebuilder::new(), [0; BLOCK_BYTES]);
    for number in 0..unit.pages().len() {
        if let Err(error) = rebuilder.page(unit, reader, number, &mut page) {
            let block = first_block + number as u64;
            verification.damaged_blocks.push(block);
            note(&mut verification.errors, format!("block {block}: {error}"));
        }
    }
    verification
}
