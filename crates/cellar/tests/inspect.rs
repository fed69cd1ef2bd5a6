//! Tests of `cellar inspect`, with the cell running and stopped, and on damaged disks.

use cellar_cell::unit_codec::Codec;
use cellar_format::postgres::{Align, Width, type_oid};
use cellar_format::units::AuIndex;
use cellar_scan::unit::{Attribute, Level, Shape, encode};
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{AuSize, Ino, Kind, NewNode, ROOT_INO, UnitStored, Volume, VolumeOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const PAGE: usize = 8192;
const AU_PAGES: u64 = MIB / PAGE as u64;
const ROWS: u32 = 100;
const EIO: i32 = 5;

/// A cell with two disks, whose daemon may run.
struct Cell {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Cell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mount")).unwrap();
        let cell = Self { folder, daemon: None };
        let at = |name: &str| cell.path(name).display().to_string();
        let config = format!(
            "name = \"test\"\nmount = \"{}\"\ncache_size = \"64MiB\"\n\
             [disk_group]\nau_size = \"1MiB\"\nreserve_size = \"32MiB\"\ndisks = [\"{}\", \"{}\"]\n",
            at("mount"),
            at("disk1"),
            at("disk2")
        );
        fs::write(cell.path("cell.toml"), config).unwrap();
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn volume(&self) -> Arc<Volume> {
        let disk = |name| Arc::new(DirectoryDisk::new(self.path(name)).unwrap()) as Arc<dyn Disk>;
        let options = VolumeOptions {
            au_size: AuSize::from_bytes(MIB).unwrap(),
            cache_bytes: 16 * MIB,
            unit_codec: Some(Arc::new(Codec::new(Arc::default()))),
            ..VolumeOptions::default()
        };
        Volume::open(vec![disk("disk1"), disk("disk2")], options).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(arguments).arg("--config").arg(self.path("cell.toml"));
        command
    }

    fn inspect(&self, arguments: &[&str]) -> Output {
        self.command(&[&["inspect"], arguments].concat()).output().unwrap()
    }

    /// Returns the report of a successful inspection.
    fn report(&self, arguments: &[&str]) -> Value {
        let output = self.inspect(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", message(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts the daemon and waits until it is ready.
    fn start(&mut self) {
        let mut daemon = self.command(&["cell"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let ready = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("cell test ready: "));
        assert!(ready.is_some(), "the daemon exited before it was ready");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    }

    fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    /// Returns every file on the disks with its content and its time of change.
    fn snapshot(&self) -> BTreeMap<PathBuf, (i64, i64, Vec<u8>)> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path("disk1"), self.path("disk2")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::metadata(&path).unwrap();
                if metadata.is_dir() {
                    folders.push(path);
                    continue;
                }
                let content = fs::read(&path).unwrap();
                files.insert(path, (metadata.mtime(), metadata.mtime_nsec(), content));
            }
        }
        files
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(self.path("mount")).status();
        }
    }
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A heap page with frozen rows of an int4, counted from `first`, and of a text.
fn heap_page(first: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let mut upper = PAGE;
    for row in 0..ROWS {
        let value = format!("row {}", (first + row) % 10);
        let mut tuple = vec![0; 24];
        tuple[0..4].copy_from_slice(&3_u32.to_le_bytes());
        tuple[16..18].copy_from_slice(&((row + 1) as u16).to_le_bytes());
        tuple[18..20].copy_from_slice(&2_u16.to_le_bytes());
        tuple[20..22].copy_from_slice(&0x0b02_u16.to_le_bytes());
        tuple[22] = 24;
        tuple.extend((first + row).to_le_bytes());
        tuple.push(((value.len() + 1) as u8) << 1 | 1);
        tuple.extend(value.as_bytes());
        upper -= tuple.len().next_multiple_of(8);
        page[upper..upper + tuple.len()].copy_from_slice(&tuple);
        let pointer = upper as u32 | 1 << 15 | (tuple.len() as u32) << 17;
        page[24 + row as usize * 4..][..4].copy_from_slice(&pointer.to_le_bytes());
    }
    page[12..14].copy_from_slice(&(24 + ROWS as u16 * 4).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    page[16..18].copy_from_slice(&(PAGE as u16).to_le_bytes());
    page[18..20].copy_from_slice(&(PAGE as u16 | 4).to_le_bytes());
    page
}

fn shape() -> Shape {
    let int = Attribute {
        type_oid: type_oid::INT4,
        width: Width::Fixed(4),
        align: Align::Int,
        by_value: true,
        dropped: false,
    };
    let text = Attribute { type_oid: type_oid::TEXT, width: Width::Varlena, by_value: false, ..int };
    Shape { attributes: vec![int, text] }
}

fn new_node(kind: Kind) -> NewNode<'static> {
    NewNode { kind, mode: 0o700, uid: 0, gid: 0, device: 0, target: b"" }
}

/// Stores the pages of an allocation unit as a compression unit.
fn store_unit(volume: &Volume, ino: Ino, au: u64, pages: &[u8]) {
    let version = volume.au_version(ino, AuIndex(au)).unwrap();
    let unit = encode(pages, &shape(), Level::QueryHigh).unwrap();
    let stored = volume.store_unit(ino, AuIndex(au), version, &unit, Level::QueryHigh as u32).unwrap();
    assert_eq!(stored, UnitStored::Stored);
}

/// Creates `base/table`: a unit of 100 pages in allocation unit 0 that 28 more pages follow, a hole in 1, raw pages in 2.
/// Page 3 of the unit is superseded in the metadata, page 5 in the redo log.
fn create_table(volume: &Volume) -> Ino {
    let folder = volume.create(ROOT_INO, b"base", &new_node(Kind::Directory)).unwrap().ino;
    let ino = volume.create(folder, b"table", &new_node(Kind::File)).unwrap().ino;
    let mut pages: Vec<u8> = (0..98).flat_map(|page| heap_page(page * ROWS)).collect();
    pages.extend([0; PAGE]);
    pages.extend([0xab; PAGE]);
    volume.write(ino, 0, &pages).unwrap();
    store_unit(volume, ino, 0, &pages);
    let write = |page: u64, count: usize| volume.write(ino, page * PAGE as u64, &heap_page(7).repeat(count)).unwrap();
    write(3, 1);
    write(100, 28);
    write(2 * AU_PAGES, 4);
    volume.sync().unwrap();
    write(5, 1);
    ino
}

/// Creates the table and stops like a crash, so that the redo log keeps its record.
fn cell_with_table() -> (Cell, Ino) {
    let cell = Cell::new();
    let volume = cell.volume();
    let ino = create_table(&volume);
    volume.abandon();
    drop(volume);
    (cell, ino)
}

#[test]
fn a_stopped_cell_is_inspected_without_changing_a_byte() {
    let (cell, ino) = cell_with_table();
    let before = cell.snapshot();

    let disks = cell.report(&["disks"]);
    assert_eq!(disks["problems"], serde_json::json!([]));
    for (number, disk) in disks["disks"].as_array().unwrap().iter().enumerate() {
        assert_eq!(disk["superblock"]["number"], number);
        assert_eq!(disk["superblock"]["state"], "ready");
        assert_eq!(disk["superblock"]["au_bytes"], MIB);
        assert_eq!(disk["is_newest"], true);
    }
    let sum = |kind: &str| -> u64 {
        disks["disks"].as_array().unwrap().iter().map(|disk| disk[kind]["files"].as_u64().unwrap()).sum()
    };
    assert_eq!((sum("backing_files"), sum("unit_files"), sum("redo_logs")), (1, 1, 2));

    let files = cell.report(&["files"]);
    assert_eq!(files["files"].as_array().unwrap().len(), 1);
    let table = &files["files"][0];
    assert_eq!((&table["path"], &table["inode"]), (&"base/table".into(), &ino.into()));
    assert_eq!((&table["aus"], &table["compressed_aus"]), (&3.into(), &1.into()));
    assert!(table["stored_bytes"].as_u64().unwrap() < table["size"].as_u64().unwrap());
    assert_eq!(cell.report(&["files", "--path", "global/"])["files"], serde_json::json!([]));

    let file = cell.report(&["file", "base/table"]);
    let aus = file["allocation_units"].as_array().unwrap();
    assert_eq!(aus[0]["unit"]["level"], "QUERY HIGH");
    assert_eq!(aus[0]["unit"]["pages"], 100);
    assert_eq!((&file["superseded_blocks"], &file["logged_blocks"]), (&2.into(), &1.into()));
    assert_eq!((&aus[1]["is_hole"], &aus[2]["is_hole"]), (&true.into(), &false.into()));
    assert_ne!(aus[0]["disk"], aus[1]["disk"]);
    assert_eq!(cell.report(&["file", &format!("inode:{ino}")]), file);
    assert_eq!(cell.report(&["file", cell.path("mount/base/table").to_str().unwrap()]), file);

    let unit = cell.report(&["unit", "base/table", "0", "--verify"]);
    assert_eq!(unit["superseded_blocks"], serde_json::json!([3, 5]));
    assert_eq!((&unit["zero_blocks"], &unit["raw_blocks"]), (&vec![98].into(), &vec![99].into()));
    assert_eq!(unit["rows"], 98 * ROWS);
    let columns = &unit["chunks"][0]["columns"];
    assert_eq!((&columns[0]["min"], &columns[0]["max"]), (&"0".into(), &"9799".into()));
    assert_eq!((&columns[1]["min"], &columns[1]["max"]), (&"row 0".into(), &"row 9".into()));
    assert_eq!(unit["chunks"][0]["is_all_frozen"], true);
    assert_eq!(unit["verification"]["errors"], serde_json::json!([]));

    let expected = [
        (0, "compression unit", "100 rows from row 0"),
        (3, "backing file", "the metadata name the page superseded"),
        (5, "backing file", "the redo log has the page"),
        (98, "compression unit", "a page of zeros"),
        (99, "compression unit", "byte for byte"),
        (100, "backing file", "unit contains 100 pages"),
        (AU_PAGES, "hole", "never written"),
        (2 * AU_PAGES + 1, "backing file", "no compression unit"),
    ];
    for (number, place, reason) in expected {
        let block = cell.report(&["block", "base/table", &number.to_string()]);
        assert_eq!(block["place"], place, "block {number}");
        let found = block["reason"].as_str().unwrap();
        assert!(found.contains(reason), "block {number}: {reason:?} is not in {found:?}");
    }
    for (number, first) in [(0, 0), (3, 7), (5, 7)] {
        let block = cell.report(&["block", "base/table", &number.to_string(), "--hex"]);
        let digits: String = heap_page(first).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(block["bytes"] == digits, "block {number}");
        assert_eq!(block["header"]["line_pointers"], ROWS);
    }

    let outputs: [(&[&str], &[&str]); 5] = [
        (&["disks"], &["disk 0 of 2", "generation ", "no problem found"]),
        (&["files"], &["base/table", "1/3", "1 files"]),
        (&["file", "base/table"], &["AU 0, blocks 0 to 127", "2 superseded (1 in the redo log)", ": hole", ": raw"]),
        (
            &["unit", "base/table", "0", "--verify"],
            &["superseded blocks: 3, 5", "attribute 1 (type 23)", "verified: 100 pages"],
        ),
        (
            &["block", "base/table", "5", "--hex"],
            &["reason: superseded by a write", "page header: LSN 0/0", "0000  00"],
        ),
    ];
    for (arguments, parts) in outputs {
        let output = text(&cell.inspect(arguments));
        parts.iter().for_each(|part| assert!(output.contains(part), "{part:?} is not in {output}"));
    }
    assert!(cell.snapshot() == before, "an inspection changed the disks");
}

#[test]
fn wrong_names_and_numbers_are_errors_with_a_hint() {
    let (cell, _) = cell_with_table();
    let errors: [(&[&str], &str); 9] = [
        (&["file", "/base/nothing"], "file /base/nothing does not exist"),
        (&["file", "base/nothing"], "file base/nothing does not exist; `cellar inspect files` lists"),
        (&["file", "inode:999"], "does not exist"),
        (&["file", "inode:x"], "does not exist"),
        (&["file", "base"], "base is not a regular file"),
        (&["unit", "base/table", "3"], "beyond the end of base/table, which has 3 allocation units"),
        (&["unit", "base/table", "2"], "has no compression unit"),
        (&["block", "base/table", "260"], "beyond the end of base/table, which has 260 blocks"),
        (&["block", "base/table", "18446744073709551615"], "beyond the end"),
    ];
    for (arguments, expected) in errors {
        let output = cell.inspect(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(message(&output).contains(expected), "{expected:?} is not in {}", message(&output));
    }
    let inspect = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_cellar")).arg("inspect").args(arguments).output().unwrap()
    };
    let neither = inspect(&["disks"]);
    assert_eq!(neither.status.code(), Some(2));
    assert!(message(&neither).contains("<--config <FILE>|--disk <DIRECTORY>>"), "{}", message(&neither));
    let both = cell.inspect(&["disks", "--disk", "/disk1"]);
    assert_eq!(both.status.code(), Some(2), "{}", message(&both));
    assert_eq!(inspect(&["files", "--config", "/nonexistent"]).status.code(), Some(2));
}

#[test]
fn a_running_cell_answers_over_its_socket() {
    let (mut cell, _) = cell_with_table();
    cell.start();
    let pid = cell.daemon.as_ref().unwrap().id();
    let unit = cell.report(&["unit", "base/table", "0", "--verify"]);
    assert_eq!(unit["cell_pid"], pid);
    assert_eq!(unit["superseded_blocks"], serde_json::json!([3, 5]));
    assert_eq!(unit["place"]["logged_pages"], 0, "the start made a checkpoint");
    assert_eq!(cell.report(&["disks"])["problems"], serde_json::json!([]));
    assert_eq!(cell.report(&["files"])["files"].as_array().unwrap().len(), 1);

    let table = fs::OpenOptions::new().write(true).open(cell.path("mount/base/table")).unwrap();
    table.write_all_at(&heap_page(1), 8 * PAGE as u64).unwrap();
    let block = cell.report(&["block", "base/table", "8"]);
    assert!(block["reason"].as_str().unwrap().contains("the redo log has the page"), "{block}");
    assert_eq!(cell.report(&["file", "base/table"])["logged_blocks"], 1);
    drop(table);

    let missing = cell.inspect(&["file", "nothing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(message(&missing).contains("file nothing does not exist"), "{}", message(&missing));
    let by_disk = Command::new(env!("CARGO_BIN_EXE_cellar"))
        .args(["inspect", "files", "--disk"])
        .arg(cell.path("disk1"))
        .arg("--disk")
        .arg(cell.path("disk2"))
        .output()
        .unwrap();
    assert_eq!(by_disk.status.code(), Some(3), "{}", message(&by_disk));
    assert!(message(&by_disk).contains("use --config FILE"), "{}", message(&by_disk));

    cell.stop();
    let mut stopped = cell.report(&["file", "base/table"]);
    assert_eq!(stopped["logged_blocks"], 0, "a clean stop made a checkpoint");
    assert_eq!(stopped["superseded_blocks"], 3);
    cell.start();
    let running = cell.report(&["file", "base/table"]);
    stopped["cell_pid"] = running["cell_pid"].clone();
    assert_eq!(stopped, running);
    cell.stop();
}

/// Returns the unit file of an inode, and the offset of the unit in the slot that the report names.
fn unit_file(cell: &Cell, ino: Ino) -> (PathBuf, u64, u64) {
    let unit = cell.report(&["unit", "base/table", "0"]);
    let disk = Path::new(unit["disk"].as_str().unwrap());
    let path = disk.join(format!("data/{:02x}/{ino:016x}.units", ino & 0xff));
    (path, unit["place"]["offset"].as_u64().unwrap(), unit["place"]["bytes"].as_u64().unwrap())
}

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn a_damaged_unit_is_an_error_and_never_a_panic() {
    let (cell, ino) = cell_with_table();
    let (path, offset, bytes) = unit_file(&cell, ino);
    let directory = cell.report(&["unit", "base/table", "0"])["directory_bytes"].as_u64().unwrap();
    for at in [0, 20, 70, directory / 2] {
        flip(&path, offset + at);
        let output = cell.inspect(&["unit", "base/table", "0", "--verify"]);
        assert_eq!(output.status.code(), Some(1), "byte {at}");
        let text = message(&output);
        assert!(text.contains("allocation unit 0, is damaged") && text.contains("restore the file"), "{text}");
        let block = cell.inspect(&["block", "base/table", "0"]);
        assert_eq!(block.status.code(), Some(1), "byte {at}");
        assert!(cell.inspect(&["block", "base/table", "3"]).status.success(), "the block is raw");
        flip(&path, offset + at);
    }
    for at in [directory, (directory + bytes) / 2, bytes - 1] {
        flip(&path, offset + at);
        let output = cell.inspect(&["unit", "base/table", "0", "--verify", "--json"]);
        assert_eq!(output.status.code(), Some(1), "byte {at}");
        let unit: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!unit["verification"]["errors"].as_array().unwrap().is_empty(), "byte {at}");
        assert!(cell.inspect(&["unit", "base/table", "0"]).status.success(), "the directory is intact");
        flip(&path, offset + at);
    }
    assert!(cell.inspect(&["unit", "base/table", "0", "--verify"]).status.success());
}

#[test]
fn an_older_unit_or_the_unit_of_another_file_in_a_slot_is_an_error() {
    let (mut cell, ino) = cell_with_table();
    let (path, offset, _) = unit_file(&cell, ino);
    let slot = offset / MIB * MIB;
    let read_slot = |path: &Path, slot: u64| {
        let mut bytes = Vec::new();
        let mut file = fs::File::open(path).unwrap();
        file.seek(SeekFrom::Start(slot)).unwrap();
        file.take(MIB).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let older = read_slot(&path, slot);

    // The second and the third unit of the allocation unit; the third is in the slot of the first.
    let volume = cell.volume();
    for first in [1, 2] {
        let pages: Vec<u8> = (0..AU_PAGES as u32).flat_map(|page| heap_page(first + page * ROWS)).collect();
        volume.write(ino, 0, &pages).unwrap();
        store_unit(&volume, ino, 0, &pages);
    }
    let other = volume.create(ROOT_INO, b"other", &new_node(Kind::File)).unwrap().ino;
    let pages: Vec<u8> = (0..AU_PAGES as u32).flat_map(|page| heap_page(9 + page * ROWS)).collect();
    volume.write(other, 0, &pages).unwrap();
    store_unit(&volume, other, 0, &pages);
    volume.close().unwrap();
    drop(volume);
    assert_eq!(unit_file(&cell, ino).1 / MIB * MIB, slot);
    let others = cell.report(&["unit", "other", "0"]);
    let foreign_file =
        Path::new(others["disk"].as_str().unwrap()).join(format!("data/{:02x}/{other:016x}.units", other & 0xff));
    let foreign = read_slot(&foreign_file, others["place"]["offset"].as_u64().unwrap() / MIB * MIB);
    let current = read_slot(&path, slot);

    let put = |bytes: &[u8]| fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(bytes, slot).unwrap();
    for (bytes, expected) in [
        (&older, "contains another unit of the allocation unit".to_owned()),
        (&foreign, format!("contains the unit of another allocation unit: found inode {other}")),
    ] {
        put(bytes);
        for arguments in [&["unit", "base/table", "0"][..], &["block", "base/table", "77"]] {
            let output = cell.inspect(arguments);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
            assert!(message(&output).contains(&expected), "{arguments:?}: {}", message(&output));
        }
        cell.start();
        let table = fs::File::open(cell.path("mount/base/table")).unwrap();
        let error = table.read_exact_at(&mut [0; PAGE], 77 * PAGE as u64).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "a read of a single block");
        let output = cell.inspect(&["unit", "base/table", "0"]);
        assert!(message(&output).contains(&expected), "the running cell: {}", message(&output));
        table.read_exact_at(&mut [0; PAGE], 2 * AU_PAGES * PAGE as u64).unwrap();
        drop(table);
        cell.stop();
    }
    put(&current);
    assert!(cell.inspect(&["unit", "base/table", "0", "--verify"]).status.success());
}

#[test]
fn damaged_stale_missing_and_foreign_disks_are_problems() {
    let (cell, _) = cell_with_table();
    let other = Cell::new();
    other.volume().close().unwrap();
    let problems = |disks: &[PathBuf]| -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["inspect", "disks"]);
        for disk in disks {
            command.arg("--disk").arg(disk);
        }
        let output = command.output().unwrap();
        (output.status.code(), text(&output) + &message(&output))
    };
    let check = |disks: &[PathBuf], expected: &str| {
        let (code, text) = problems(disks);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    };
    let (disk1, disk2) = (cell.path("disk1"), cell.path("disk2"));
    check(std::slice::from_ref(&disk1), "disk 1 (");
    check(&[disk1.clone(), cell.path("nothing")], "could not open cell disk");
    check(&[disk1.clone(), cell.path("mount")], "has no superblock");
    check(&[disk1.clone(), other.path("disk2")], "belongs to disk group");
    check(&[disk1.clone(), disk1.clone()], "has the identity of another disk");
    let files = Command::new(env!("CARGO_BIN_EXE_cellar")).args(["inspect", "files", "--disk"]).arg(&disk1).output();
    assert_eq!(files.unwrap().status.code(), Some(4));

    let store = disk2.join("metadata.redb");
    let old = fs::read(&store).unwrap();
    let volume = cell.volume();
    volume.create(ROOT_INO, b"later", &new_node(Kind::File)).unwrap();
    volume.close().unwrap();
    drop(volume);
    fs::write(&store, &old).unwrap();
    check(&[disk1.clone(), disk2.clone()], "the newest is");
    assert_eq!(cell.report(&["files", "--path", "later"])["files"].as_array().unwrap().len(), 1);

    fs::write(&store, b"damaged").unwrap();
    check(&[disk1.clone(), disk2.clone()], "metadata of cell disk");
    assert_eq!(cell.report(&["files"])["files"].as_array().unwrap().len(), 2, "the other disk has the metadata");
    let superblock = disk2.join("superblock");
    flip(&superblock, 40);
    check(&[disk1, disk2], "superblock checksum");
    let output = cell.inspect(&["files"]);
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    flip(&superblock, 40);
}

#[test]
fn damaged_metadata_are_an_error_and_never_a_panic() {
    let (cell, _) = cell_with_table();
    let stores = ["disk1/metadata.redb", "disk2/metadata.redb"].map(|name| cell.path(name));
    let intact = fs::read(&stores[0]).unwrap();
    for damage in 0..24 {
        let mut bytes = intact.clone();
        let start = damage * bytes.len() / 24;
        let end = (start + 700).min(bytes.len());
        bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        stores.iter().for_each(|store| fs::write(store, &bytes).unwrap());
        for arguments in [&["disks"][..], &["files"], &["file", "base/table"]] {
            let output = cell.inspect(arguments);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "damage {damage}, {arguments:?}: {code:?} {}", message(&output));
            assert!(!message(&output).contains("panicked"), "{}", message(&output));
        }
    }
}
