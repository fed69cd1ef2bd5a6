//! Reports of an inspection as text.

use crate::status::size;
use cellar_cell::inspect::report::{
    BlockReport, ChunkReport, DisksReport, FileReport, FilesOfKind, FilesReport, FlashContentReport, Inspection,
    ReportBody, UnitPlace, UnitReport,
};
use std::fmt::Write;

/// Bytes of a line of a hexadecimal listing.
const HEX_LINE: usize = 16;

pub fn text(inspection: &Inspection) -> String {
    let mut out = String::new();
    let written = match &inspection.report {
        ReportBody::Disks(report) => disks(&mut out, report),
        ReportBody::Files(report) => files(&mut out, report),
        ReportBody::File(report) => file(&mut out, report),
        ReportBody::Unit(report) => unit(&mut out, report),
        ReportBody::Block(report) => block(&mut out, report),
        ReportBody::FlashContent(report) => flash_content(&mut out, report),
    };
    written.expect("a string accepts every write");
    if let Some(pid) = inspection.cell_pid {
        out += &format!("reported by the running cell, process {pid}\n");
    }
    out
}

fn flash_content(out: &mut String, report: &FlashContentReport) -> std::fmt::Result {
    for file in &report.files {
        writeln!(out, "{} {} cached, {}", file.path, size(file.cached_bytes), file.setting)?;
    }
    Ok(())
}

fn disks(out: &mut String, report: &DisksReport) -> std::fmt::Result {
    let kind = |files: &FilesOfKind| format!("{} ({})", files.files, size(files.allocated_bytes));
    for disk in &report.disks {
        writeln!(out, "cell disk {}", disk.path)?;
        if let Some(superblock) = &disk.superblock {
            let (number, disks) = (superblock.number, superblock.disks);
            writeln!(out, "  disk group     {}, {}", superblock.group_id, superblock.state)?;
            writeln!(out, "  identity       disk {number} of {disks}, {}", superblock.disk_id)?;
            let (au, redundancy) = (size(superblock.au_bytes), &superblock.redundancy);
            writeln!(out, "  configuration  allocation units of {au}, redundancy {redundancy}")?;
        }
        let generation = match (disk.generation, disk.is_newest) {
            (None, _) => "none".into(),
            (Some(generation), true) => format!("generation {generation}, newest"),
            (Some(generation), false) => format!("generation {generation}, stale"),
        };
        writeln!(out, "  metadata       {generation}")?;
        writeln!(out, "  space          {} of {} free", size(disk.available_bytes), size(disk.total_bytes))?;
        let (backing, units, logs) = (kind(&disk.backing_files), kind(&disk.unit_files), kind(&disk.redo_logs));
        writeln!(out, "  files          {backing} backing, {units} unit, {logs} redo log")?;
    }
    match &report.problems[..] {
        [] => writeln!(out, "no problem found"),
        problems => problems.iter().try_for_each(|problem| writeln!(out, "problem: {problem}")),
    }
}

fn files(out: &mut String, report: &FilesReport) -> std::fmt::Result {
    writeln!(out, "{:>8} {:>14} {:>14} {:>8} {:>6} {:>10}  path", "inode", "size", "stored", "AU", "disks", "units")?;
    for file in &report.files {
        let units = format!("{}/{}", file.compressed_aus, file.aus);
        let (au, path) = (size(file.au_bytes), file.path.as_deref().unwrap_or("(removed, still in use)"));
        let (inode, bytes, stored, disks) = (file.inode, file.size, file.stored_bytes, file.disks);
        writeln!(out, "{inode:>8} {bytes:>14} {stored:>14} {au:>8} {disks:>6} {units:>10}  {path}")?;
    }
    let (bytes, stored): (u64, u64) =
        report.files.iter().fold((0, 0), |sum, file| (sum.0 + file.size, sum.1 + file.stored_bytes));
    writeln!(out, "{} files, {} stored as {}", report.files.len(), size(bytes), size(stored))
}

fn file(out: &mut String, report: &FileReport) -> std::fmt::Result {
    let file = &report.file;
    let path = file.path.as_deref().unwrap_or_default();
    writeln!(out, "{path}: inode {}, {} bytes, {} bytes stored", file.inode, file.size, file.stored_bytes)?;
    writeln!(out, "striped in allocation units of {} over {}", size(file.au_bytes), report.disks.join(", "))?;
    for au in &report.allocation_units {
        let stored = match &au.unit {
            Some(unit) => place(unit),
            None if au.is_hole => "hole".into(),
            None => "raw".into(),
        };
        let (number, first, last) = (au.au, au.first_block, au.end_block - 1);
        writeln!(out, "AU {number}, blocks {first} to {last}, on {}: {stored}", au.disk)?;
    }
    writeln!(
        out,
        "{} of {} allocation units compressed: {} bytes in units, {} superseded blocks, {} of them in the redo log",
        file.compressed_aus, file.aus, report.unit_bytes, report.superseded_blocks, report.logged_blocks
    )
}

fn place(unit: &UnitPlace) -> String {
    let UnitPlace { level, slot, stored_bytes, pages, superseded_pages, logged_pages, log_sequence, .. } = unit;
    let mut text = format!("unit {level}, slot {slot}, {stored_bytes} bytes, {pages} pages");
    if *superseded_pages > 0 {
        text += &format!(", {superseded_pages} superseded ({logged_pages} in the redo log)");
    }
    text + &format!(", log sequence {log_sequence}")
}

/// Formats ascending numbers as ranges; "none" if there are none.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|one, other| one + 1 == *other).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    let text = runs.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".into() } else { text }
}

fn unit(out: &mut String, report: &UnitReport) -> std::fmt::Result {
    let (first, last) = (report.first_block, report.end_block.saturating_sub(1));
    writeln!(out, "{}: AU {}, blocks {first} to {last}, on {}", report.path, report.au, report.disk)?;
    writeln!(out, "{}", place(&report.place))?;
    writeln!(out, "unit at byte {} of the unit file, {} bytes", report.place.offset, report.place.bytes)?;
    let (directory, residue, group) = (report.directory_bytes, report.residue_bytes, report.residue_pages);
    writeln!(
        out,
        "{} rows; directory {directory} bytes; residues {residue} bytes, in groups of {group} pages",
        report.rows
    )?;
    writeln!(out, "superseded blocks: {}", ranges(&report.superseded_blocks))?;
    writeln!(out, "blocks of zeros: {}", ranges(&report.zero_blocks))?;
    writeln!(out, "blocks stored byte for byte: {}", ranges(&report.raw_blocks))?;
    for (number, chunk) in report.chunks.iter().enumerate() {
        write_chunk(out, number, chunk)?;
    }
    let Some(verification) = &report.verification else { return Ok(()) };
    verification.errors.iter().try_for_each(|error| writeln!(out, "problem: {error}"))?;
    match &verification.errors[..] {
        [] => writeln!(out, "verified: {} pages rebuilt", verification.pages),
        _ => writeln!(out, "damaged blocks: {}", ranges(&verification.damaged_blocks)),
    }
}

fn write_chunk(out: &mut String, number: usize, chunk: &ChunkReport) -> std::fmt::Result {
    let (first, last) = (chunk.first_block, chunk.end_block.saturating_sub(1));
    let frozen = match (chunk.is_all_frozen, chunk.is_all_visible) {
        (true, _) => ", all frozen",
        (false, true) => ", all visible",
        (false, false) => "",
    };
    let (rows, lines, headers) = (chunk.rows, chunk.line_pointers, chunk.header_bytes);
    writeln!(
        out,
        "chunk {number}, blocks {first} to {last}: {rows} rows, {lines} line pointers, {headers} bytes of headers{frozen}"
    )?;
    for column in &chunk.columns {
        let (attribute, oid, encoding, bytes) = (column.attribute, column.type_oid, &column.encoding, column.bytes);
        write!(out, "  attribute {attribute} (type {oid}): {encoding}, {bytes} bytes")?;
        let counts = [(column.nulls, "NULL"), (column.missing, "missing"), (column.exceptions, "exceptions")];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(out, ", {count} {what}")?;
        }
        if let (Some(min), Some(max)) = (&column.min, &column.max) {
            write!(out, ", {min} to {max}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn block(out: &mut String, report: &BlockReport) -> std::fmt::Result {
    let BlockReport { path, block, au, page, disk, place: location, reason, .. } = report;
    writeln!(out, "{path}, block {block}: AU {au}, page {page}, on {disk}")?;
    writeln!(out, "content: {location}")?;
    writeln!(out, "reason: {reason}")?;
    if let Some(unit) = &report.unit {
        writeln!(out, "compression unit of the AU: {}", place(unit))?;
    }
    match &report.header {
        None => writeln!(out, "page header: none, the page contains only zeros or is incomplete")?,
        Some(header) => {
            let checksum = match (header.checksum, header.computed_checksum) {
                (0, _) => "none".into(),
                (stored, computed) if stored == computed => format!("{stored:#06x}, correct"),
                (stored, computed) => format!("{stored:#06x}, computed {computed:#06x}"),
            };
            writeln!(
                out,
                "page header: LSN {}, checksum {checksum}, flags {:#06x}, lower {}, upper {}, special {}, page size {}, \
                 layout version {}, prune xid {}, {} line pointers",
                header.lsn,
                header.flags,
                header.lower,
                header.upper,
                header.special,
                header.page_size,
                header.layout_version,
                header.prune_xid,
                header.line_pointers
            )?;
        }
    }
    report.bytes.as_deref().map_or(Ok(()), |digits| hex(out, digits))
}

/// Writes hexadecimal digits as lines of 16 bytes with their offset; runs of equal lines as an asterisk.
fn hex(out: &mut String, digits: &str) -> std::fmt::Result {
    let lines: Vec<&[u8]> = digits.as_bytes().chunks(2 * HEX_LINE).collect();
    let mut is_repeated = false;
    for (number, line) in lines.iter().enumerate() {
        if number > 0 && lines[number - 1] == *line {
            if !is_repeated {
                writeln!(out, "*")?;
            }
            is_repeated = true;
            continue;
        }
        is_repeated = false;
        let bytes: Vec<&str> = line.chunks(2).map(|byte| std::str::from_utf8(byte).unwrap_or("??")).collect();
        writeln!(out, "{:04x}  {}", number * HEX_LINE, bytes.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_ranges() {
        assert_eq!(ranges(&[]), "none");
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
    }

    #[test]
    fn equal_lines_of_a_listing_are_printed_once() {
        let mut out = String::new();
        hex(&mut out, &("00".repeat(48) + "ff")).unwrap();
        let zeros = ["00"; 16].join(" ");
        assert_eq!(out, format!("0000  {zeros}\n*\n0030  ff\n"));
    }
}
