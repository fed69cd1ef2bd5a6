//! A unit slot whose content is intact but wrong is an error of every read: an older unit of the allocation unit, which
//! a lost write leaves, or the unit of another allocation unit or file, which a misdirected write leaves. Slots of
//! earlier releases, which have no header, are readable and verified too.
//!
//! The fixture is a cell disk that an earlier release wrote; it never changes. `CELLAR_WRITE_FIXTURES` writes the file
//! of a new metadata version.

use crate::support;
use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, RegionIndex};
use cellar_storage::disk::{Disk, Fault, FaultyDisk, Stream};
use cellar_storage::{Error, ErrorKind, Ino, ROOT_INO, UnitStored, Volume, VolumeOptions};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::codec::{PAGE, UnverifiedPageCodec, compress, superseded};
use support::{MIB, create, open, open_with, options, read_all};

/// Options with a codec that does not notice an older unit by itself.
fn unverified() -> VolumeOptions {
    VolumeOptions { unit_codec: Some(Arc::new(UnverifiedPageCodec)), cache_bytes: 0, ..options() }
}

/// Returns compressible content of `aus` allocation units that differs from page to page and from `round` to `round`.
fn content(aus: u64, round: u8) -> Vec<u8> {
    (0..aus * MIB).map(|at| (at / PAGE as u64 * 7 + at % 64) as u8 ^ round.wrapping_mul(0x51)).collect()
}

fn write_and_compress(volume: &Volume, ino: Ino, round: u8) -> Vec<u8> {
    let model = content(2, round);
    volume.write(ino, 0, &model).unwrap();
    volume.fsync(ino).unwrap();
    for au in 0..2 {
        assert_eq!(compress(volume, ino, au, 1).unwrap(), UnitStored::Stored);
    }
    model
}

/// Returns the unit file of an inode on the only disk.
fn unit_file(folder: &Path, ino: Ino) -> PathBuf {
    folder.join(format!("disk0/data/{:02x}/{ino:016x}.units", ino & 0xff))
}

/// Returns the offset of the current unit of an allocation unit in the unit file.
fn slot_offset(volume: &Volume, ino: Ino, au: u64) -> u64 {
    volume.unit_extent(ino, AuIndex(au)).unwrap().unwrap().offset / MIB * MIB
}

fn slot_bytes(path: &Path, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; MIB as usize];
    let file = fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len().saturating_sub(offset).min(MIB) as usize;
    file.read_exact_at(&mut bytes[..length], offset).unwrap();
    bytes
}

fn replace_slot(path: &Path, offset: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Checks that reads of allocation unit 0 are errors that contain `expected`, and that other reads are not affected.
fn check_damaged(volume: &Volume, ino: Ino, model: &[u8], expected: &str) {
    let check = |what: &str, error: Error| {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {text}");
        for part in [&format!("inode {ino}, blocks 0 to 127, on cell disk"), expected] {
            assert!(text.contains(part), "{what}: {part:?} is not in {text}");
        }
    };
    for page in [0, 5, 127] {
        let error = volume.read(ino, page * PAGE as u64, &mut [0; PAGE]).unwrap_err();
        check("a read of a page", error);
    }
    check("a read of a part of a page", volume.read(ino, 100, &mut [0; 10]).unwrap_err());
    let reader = volume.unit_reader(ino, AuIndex(0)).unwrap().unwrap();
    check("the start of the unit", Error::of_source(reader.read_unverified_at(&mut [0; 64], 0).unwrap_err()));
    // The checksum table detects the other unit without the slot header.
    for result in [
        volume.region(ino, RegionIndex(0)).map(drop),
        volume.decompress(ino, AuIndex(0)).map(drop),
        reader.read_at(&mut [0; 64], 0).map_err(Error::of_source),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let mut page = [0; PAGE];
    volume.read(ino, MIB, &mut page).unwrap();
    assert!(page[..] == model[MIB as usize..][..PAGE], "allocation unit 1 is intact");
    // A whole page can be written over the unit, and is then readable.
    volume.write(ino, 5 * PAGE as u64, &page).unwrap();
    assert_eq!(volume.read(ino, 5 * PAGE as u64, &mut page).unwrap(), PAGE);
}

#[test]
fn an_older_unit_of_the_same_allocation_unit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 1);
    let ino = create(&volume, "file");
    write_and_compress(&volume, ino, 0);
    let older_at = slot_offset(&volume, ino, 0);
    let older = slot_bytes(&unit_file(folder.path(), ino), older_at);
    write_and_compress(&volume, ino, 1);
    let model = write_and_compress(&volume, ino, 2);
    assert_eq!(slot_offset(&volume, ino, 0), older_at, "the third unit replaces the first");
    volume.close().unwrap();
    drop(volume);
    replace_slot(&unit_file(folder.path(), ino), older_at, &older);
    let volume = open_with(folder.path(), 1, unverified);
    check_damaged(&volume, ino, &model, "slot 0 contains another unit of the allocation unit: found inode");
}

#[test]
fn the_unit_of_another_allocation_unit_or_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for other_file in [false, true] {
        let volume = open_with(folder.path(), 1, unverified);
        let (ino, other) = (create(&volume, &format!("file {other_file}")), create(&volume, &format!("{other_file}")));
        let model = write_and_compress(&volume, ino, 0);
        write_and_compress(&volume, other, 7);
        let (from, au) = if other_file { (other, 0) } else { (ino, 1) };
        let foreign = slot_bytes(&unit_file(folder.path(), from), slot_offset(&volume, from, au));
        replace_slot(&unit_file(folder.path(), ino), slot_offset(&volume, ino, 0), &foreign);
        let expected =
            format!("contains the unit of another allocation unit: found inode {from}, allocation unit {au},");
        check_damaged(&volume, ino, &model, &expected);
        volume.close().unwrap();
        drop(volume);
    }
}

#[test]
fn a_lost_write_of_a_unit_is_an_error_once_the_page_cache_has_dropped_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = support::disks(folder.path(), 1).remove(0);
    let faulty = Arc::new(FaultyDisk::new(disk, 1));
    let volume = Volume::open(vec![faulty.clone() as Arc<dyn Disk>], unverified()).unwrap();
    let ino = create(&volume, "file");
    write_and_compress(&volume, ino, 0);
    let older_at = slot_offset(&volume, ino, 0);
    write_and_compress(&volume, ino, 1);
    // The slot of the first unit is punched, so put the unit back: a disk that loses writes loses the punch too.
    let image = slot_bytes(&unit_file(folder.path(), ino), slot_offset(&volume, ino, 0));
    replace_slot(&unit_file(folder.path(), ino), older_at, &image);
    let model = content(2, 2);
    volume.write(ino, 0, &model).unwrap();
    volume.fsync(ino).unwrap();
    faulty.set_faults(&[Fault::LoseWrite { stream: Stream::Units, one_in: 1 }]);
    assert_eq!(compress(&volume, ino, 0, 1).unwrap(), UnitStored::Stored);
    faulty.set_faults(&[]);
    assert_eq!(compress(&volume, ino, 1, 1).unwrap(), UnitStored::Stored);
    assert_eq!(slot_offset(&volume, ino, 0), older_at);
    assert!(read_all(&volume, ino) == model, "the page cache of the operating system has the unit");
    assert_eq!(faulty.drop_lost_writes(), 1);
    check_damaged(&volume, ino, &model, "contains another unit of the allocation unit: found inode");
}

#[test]
fn a_slot_without_a_unit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 1, unverified);
    let ino = create(&volume, "file");
    let model = write_and_compress(&volume, ino, 0);
    replace_slot(&unit_file(folder.path(), ino), slot_offset(&volume, ino, 0), &[0; MIB as usize]);
    check_damaged(&volume, ino, &model, "slot header magic");
}

const FIXTURE: &str = "tests/fixtures/disk_v2.lz4";
/// The page of allocation unit 0 that the fixture's metadata name superseded.
const SUPERSEDED: u64 = 3;

fn fixture_model() -> Vec<u8> {
    let mut model = content(2, 9);
    model[SUPERSEDED as usize * PAGE..][..PAGE].fill(0x77);
    model
}

/// Packs the files of a folder: length and bytes of each path, length and bytes of each content; then compresses all.
fn pack(folder: &Path) -> Vec<u8> {
    let (mut folders, mut out) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().as_bytes().to_vec();
            for part in [name, fs::read(&path).unwrap()] {
                out.extend((part.len() as u32).to_le_bytes());
                out.extend(part);
            }
        }
    }
    lz4_flex::compress_prepend_size(&out)
}

fn fixture() -> (tempfile::TempDir, Ino) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
    if std::env::var_os("CELLAR_WRITE_FIXTURES").is_some() && !file.exists() {
        let folder = tempfile::tempdir().unwrap();
        let volume = open(folder.path(), 1);
        let ino = create(&volume, "file");
        write_and_compress(&volume, ino, 9);
        volume.write(ino, SUPERSEDED * PAGE as u64, &[0x77; PAGE]).unwrap();
        volume.close().unwrap();
        drop(volume);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, pack(folder.path())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    support::unpack(&fs::read(file).unwrap(), folder.path());
    let volume = open(folder.path(), 1);
    let ino = volume.lookup(ROOT_INO, b"file").unwrap().ino;
    volume.close().unwrap();
    (folder, ino)
}

#[test]
fn a_cell_disk_of_metadata_version_2_is_readable_and_its_units_can_be_replaced() {
    for options in [options, unverified] {
        let (folder, ino) = fixture();
        let volume = open_with(folder.path(), 1, options);
        let mut model = fixture_model();
        assert!(read_all(&volume, ino) == model);
        for page in [0, SUPERSEDED as usize, 200] {
            let mut bytes = [0; PAGE];
            volume.read(ino, (page * PAGE) as u64, &mut bytes).unwrap();
            assert!(bytes[..] == model[page * PAGE..][..PAGE], "page {page}");
        }
        assert_eq!(superseded(&volume, ino, 0).unwrap(), [SUPERSEDED as u32]);
        // The record of a changed unit keeps its version; a new unit has a slot header.
        volume.write(ino, MIB, &[0x55; PAGE]).unwrap();
        model[MIB as usize..][..PAGE].fill(0x55);
        volume.fsync(ino).unwrap();
        assert_eq!(volume.unit_extent(ino, AuIndex(1)).unwrap().unwrap().offset % MIB, 0);
        assert_eq!(compress(&volume, ino, 0, 1).unwrap(), UnitStored::Stored);
        assert_eq!(volume.unit_extent(ino, AuIndex(0)).unwrap().unwrap().offset % MIB, 64);
        volume.close().unwrap();
        drop(volume);
        let volume = open_with(folder.path(), 1, options);
        assert!(read_all(&volume, ino) == model);
        assert_eq!(superseded(&volume, ino, 1).unwrap(), [0]);
    }
}

#[test]
fn a_wrong_unit_in_a_slot_without_a_header_is_an_error() {
    let (folder, ino) = fixture();
    let path = unit_file(folder.path(), ino);
    let volume = open_with(folder.path(), 1, unverified);
    let foreign = slot_bytes(&path, slot_offset(&volume, ino, 1));
    replace_slot(&path, slot_offset(&volume, ino, 0), &foreign);
    check_damaged(&volume, ino, &fixture_model(), "checksum of the checksum table is");
}
