//! The conformance test that every disk engine passes.

mod support;

use cellar_storage::disk::{DIRECT_ALIGN, DirectoryDisk, Disk, FaultyDisk, Stream};
use std::sync::Arc;

fn check(make: impl Fn(&std::path::Path) -> Arc<dyn Disk>) {
    let folder = tempfile::tempdir().unwrap();
    let disk = make(&folder.path().join("disk"));
    assert!(disk.is_blank().unwrap());
    assert!(disk.lock().unwrap() && disk.lock().unwrap(), "locking a disk again succeeds");
    assert!(!make(&folder.path().join("disk")).lock().unwrap(), "a locked disk cannot be locked by another owner");
    assert!(disk.is_blank().unwrap(), "a locked disk is still blank");

    assert_eq!(disk.read_note("note").unwrap(), None);
    disk.write_note("note", b"one").unwrap();
    disk.write_note("note", b"two").unwrap();
    assert_eq!(disk.read_note("note").unwrap().unwrap(), b"two");
    assert!(!disk.is_blank().unwrap());

    assert!(disk.open(300, Stream::Data, false).unwrap().is_none());
    assert_eq!(disk.measure(300, Stream::Data).unwrap(), (0, 0));
    let file = disk.open(300, Stream::Data, true).unwrap().unwrap();
    disk.sync_name(300).unwrap();
    assert!(file.is_empty().unwrap());
    file.write_at(b"abc", 5000).unwrap();
    file.write_at(b"", 5003).unwrap();
    file.write_at(b"defgh", 5003).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 5008);
    let mut buffer = [9; 20];
    assert_eq!(file.read_at(&mut buffer, 4998).unwrap(), 10, "short at the end of the file");
    assert_eq!(&buffer[..10], b"\0\0abcdefgh");
    assert_eq!(file.read_at(&mut buffer, 9000).unwrap(), 0, "empty beyond the end of the file");
    // A prefetch of any range changes neither length nor content.
    file.prefetch(&[]);
    file.prefetch(&[4990..5008, 5000..5000, 5005..6000, 1 << 40..1 << 41]);
    assert_eq!((file.len().unwrap(), file.read_at(&mut buffer, 5000).unwrap()), (5008, 8));

    let mut memory = vec![0; 3 * DIRECT_ALIGN];
    let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
    let aligned = &mut memory[start..start + 2 * DIRECT_ALIGN];
    assert_eq!(file.read_direct(aligned, 0).unwrap(), 5008);
    assert_eq!(&aligned[5000..5008], b"abcdefgh");

    file.set_len(5002).unwrap();
    file.set_len(6000).unwrap();
    assert_eq!(file.read_at(&mut buffer, 5000).unwrap(), 20);
    assert_eq!(&buffer[..4], b"ab\0\0", "truncated bytes read as zeros after an extension");
    file.allocate(8192, 8192, true).unwrap();
    assert_eq!(file.len().unwrap(), 6000);
    file.allocate(8192, 8192, false).unwrap();
    assert_eq!(file.len().unwrap(), 16384);
    assert!(disk.measure(300, Stream::Data).unwrap().1 > 0);
    file.punch(0, 8192).unwrap();
    assert_eq!((file.len().unwrap(), file.read_at(&mut buffer, 5000).unwrap()), (16384, 20));
    assert_eq!(buffer, [0; 20]);

    disk.open(0x1_0000_0001, Stream::Data, true).unwrap();
    for stream in Stream::ALL {
        let file = disk.open(7, stream, true).unwrap().unwrap();
        file.write_at(stream.suffix().as_bytes(), 0).unwrap();
    }
    let mut known = disk.backing_files().unwrap();
    known.sort();
    let mut expected: Vec<(u64, Stream)> = Stream::ALL.into_iter().map(|stream| (7, stream)).collect();
    expected.extend([(300, Stream::Data), (0x1_0000_0001, Stream::Data)]);
    assert_eq!(known, expected);
    for stream in Stream::ALL {
        assert_eq!(disk.measure(7, stream).unwrap().0, stream.suffix().len() as u64, "each stream is a separate file");
        disk.remove(7, stream).unwrap();
    }
    disk.remove(300, Stream::Data).unwrap();
    disk.remove(300, Stream::Data).unwrap();
    assert_eq!(disk.backing_files().unwrap(), [(0x1_0000_0001, Stream::Data)]);

    let named = disk.open_named("store").unwrap();
    named.write_at(b"x", 0).unwrap();
    assert_eq!(disk.open_named("store").unwrap().len().unwrap(), 1, "reopening keeps the content");
    disk.remove_named("store").unwrap();
    assert!(disk.open_named("store").unwrap().is_empty().unwrap());
    let space = disk.space().unwrap();
    assert!(space.total >= space.free && space.free >= space.available && space.available > 0);
}

#[test]
fn the_directory_engine_conforms() {
    check(|path| Arc::new(DirectoryDisk::new(path).unwrap()));
}

#[test]
fn a_faulty_disk_without_faults_conforms() {
    check(|path| Arc::new(FaultyDisk::new(Arc::new(DirectoryDisk::new(path).unwrap()), 1)));
}
