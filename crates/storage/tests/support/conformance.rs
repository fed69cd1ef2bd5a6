//! The conformance suite that every disk engine passes. Each check gets a new, empty disk.

use super::Random;
use cellar_storage::disk::{DIRECT_ALIGN, Disk, DiskFile, Stream};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = DIRECT_ALIGN;
const SEED: u64 = 20;

type OpenSmall<'a> = &'a dyn Fn(&Path, u64) -> Arc<dyn Disk>;

/// How the suite creates the disks of one engine.
pub struct Engine<'a> {
    /// Opens the disk at a path, or creates an empty disk if there is none.
    pub open: &'a dyn Fn(&Path) -> Arc<dyn Disk>,
    /// As `open`, for a disk with space for about this number of bytes; None if the engine has no such disks.
    pub open_small: Option<OpenSmall<'a>>,
}

impl Engine<'_> {
    pub fn check_all(&self) {
        let checks: [fn(&Self, &Path); 10] = [
            Self::locks_and_notes,
            Self::reads_and_writes,
            Self::lengths_and_holes,
            Self::files_and_names,
            Self::named_files,
            Self::reopened_disk,
            Self::random_operations,
            Self::space_accounting,
            Self::full_disk,
            Self::concurrent_access,
        ];
        for check in checks {
            let folder = tempfile::tempdir().unwrap();
            check(self, &folder.path().join("disk"));
        }
    }

    fn locks_and_notes(&self, path: &Path) {
        let disk = (self.open)(path);
        assert!(disk.is_blank().unwrap());
        assert!(disk.lock().unwrap() && disk.lock().unwrap(), "locking a disk again succeeds");
        assert!(!(self.open)(path).lock().unwrap(), "a locked disk cannot be locked by another owner");
        assert!(disk.is_blank().unwrap(), "a locked disk is still blank");
        assert_eq!(disk.read_note("note").unwrap(), None);
        disk.write_note("note", b"one").unwrap();
        disk.write_note("note", b"two").unwrap();
        disk.write_note("other", &[7; 4096]).unwrap();
        assert_eq!(disk.read_note("note").unwrap().unwrap(), b"two");
        assert_eq!(disk.read_note("other").unwrap().unwrap(), [7; 4096]);
        assert!(!disk.is_blank().unwrap());
        std::thread::scope(|scope| {
            let write = |byte: u8| (0..8).for_each(|_| disk.write_note("note", &[byte; 16]).unwrap());
            (0..3).for_each(|byte| drop(scope.spawn(move || write(byte))));
        });
        let note = disk.read_note("note").unwrap().unwrap();
        assert!(note.len() == 16 && note.iter().all(|byte| *byte == note[0]), "{note:?}");
    }

    fn reads_and_writes(&self, path: &Path) {
        let disk = locked(self, path);
        assert!(disk.open(300, Stream::Data, false).unwrap().is_none());
        assert_eq!(disk.measure(300, Stream::Data).unwrap(), (0, 0));
        assert_eq!(disk.stamp(300, Stream::Data).unwrap(), None);
        let file = created(&*disk, 300);
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
        // Another handle of the file has the same content.
        let again = disk.open(300, Stream::Data, false).unwrap().unwrap();
        again.write_at(b"X", 5001).unwrap();
        assert_eq!(content(&*file)[4999..5003], *b"\0aXc");
        assert_eq!(disk.measure(300, Stream::Data).unwrap().0, 5008);
        assert!(disk.stamp(300, Stream::Data).unwrap().is_some());
        for (offset, expected) in [(0, 5008), (BLOCK as u64, 5008 - BLOCK), (2 * BLOCK as u64, 0)] {
            let mut memory = vec![9; 3 * BLOCK];
            let start = memory.as_ptr().align_offset(BLOCK);
            let aligned = &mut memory[start..start + 2 * BLOCK];
            assert_eq!(file.read_direct(aligned, offset).unwrap(), expected, "direct read at {offset}");
            assert_eq!(aligned[..expected], content(&*file)[5008 - expected..]);
        }
    }

    fn lengths_and_holes(&self, path: &Path) {
        let disk = locked(self, path);
        let file = created(&*disk, 300);
        file.write_at(&[1; 5008], 0).unwrap();
        file.set_len(5002).unwrap();
        file.set_len(6000).unwrap();
        let mut buffer = [9; 20];
        assert_eq!(file.read_at(&mut buffer, 5000).unwrap(), 20);
        assert_eq!(&buffer[..4], [1, 1, 0, 0], "truncated bytes read as zeros after an extension");
        file.write_at(&[2; 100], 5990).unwrap();
        file.set_len(10).unwrap();
        file.write_at(&[3], 9000).unwrap();
        let mut expected = vec![0; 9001];
        expected[..10].fill(1);
        expected[9000] = 3;
        assert!(content(&*file) == expected, "a write beyond the end leaves zeros between");
        file.set_len(6000).unwrap();
        file.allocate(8192, 8192, true).unwrap();
        assert_eq!(file.len().unwrap(), 6000);
        file.allocate(8192, 8192, false).unwrap();
        assert_eq!(file.len().unwrap(), 16384);
        expected.truncate(6000);
        expected.resize(16384, 0);
        assert!(content(&*file) == expected, "allocated space reads as zeros");
        assert!(disk.measure(300, Stream::Data).unwrap().1 > 0);
        file.write_at(&[4; 16384], 0).unwrap();
        file.punch(100, 8192).unwrap();
        expected.fill(4);
        expected[100..8292].fill(0);
        assert!(content(&*file) == expected, "a punched range of any alignment reads as zeros");
        file.punch(0, 1 << 30).unwrap();
        assert_eq!(file.len().unwrap(), 16384, "punching beyond the end keeps the length");
        assert!(content(&*file) == vec![0; 16384]);
        file.write_at(&[5; 300], 40_000).unwrap();
        let is_hole = file.is_hole(0, 40_000 / BLOCK as u64 * BLOCK as u64).unwrap();
        assert!(!is_hole || content(&*file)[..40_000].iter().all(|byte| *byte == 0));
        assert!(!file.is_hole(32_768, 65_536).unwrap(), "data are no hole");
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap() && content(&*file).is_empty());
    }

    fn files_and_names(&self, path: &Path) {
        let disk = locked(self, path);
        created(&*disk, 300);
        created(&*disk, 0x1_0000_0001);
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
            let length = disk.measure(7, stream).unwrap().0;
            assert_eq!(length, stream.suffix().len() as u64, "each stream is a separate file");
            disk.remove(7, stream).unwrap();
        }
        disk.remove(300, Stream::Data).unwrap();
        disk.remove(300, Stream::Data).unwrap();
        assert_eq!(disk.backing_files().unwrap(), [(0x1_0000_0001, Stream::Data)]);
        let file = created(&*disk, 300);
        assert!(file.is_empty().unwrap(), "a file that is created again is empty");
        file.write_at(&[1; 9000], 0).unwrap();
        drop(file);
        disk.remove(300, Stream::Data).unwrap();
        let file = created(&*disk, 300);
        file.set_len(9000).unwrap();
        assert!(content(&*file) == vec![0; 9000], "a file that is created again has no bytes of its predecessor");
    }

    fn named_files(&self, path: &Path) {
        let disk = locked(self, path);
        assert!(disk.open_existing("store").unwrap().is_none());
        let named = disk.open_named("store").unwrap();
        named.write_at(b"x", 0).unwrap();
        assert_eq!(disk.open_named("store").unwrap().len().unwrap(), 1, "reopening keeps the content");
        let open = disk.open_existing("store").unwrap().unwrap();
        disk.remove_named("store").unwrap();
        disk.remove_named("store").unwrap();
        assert!(content(&*open) == b"x", "an open file stays readable after its removal");
        assert!(disk.open_named("store").unwrap().is_empty().unwrap());
        assert!(disk.backing_files().unwrap().is_empty(), "named files are no files of inodes");
    }

    /// What was written is found by another owner after the first one is gone.
    fn reopened_disk(&self, path: &Path) {
        let disk = locked(self, path);
        disk.write_note("note", b"text").unwrap();
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
        created(&*disk, 5).write_at(&bytes, 123_456).unwrap();
        created(&*disk, 6).set_len(777).unwrap();
        disk.open_named("store").unwrap().write_at(b"named", 0).unwrap();
        disk.open(5, Stream::Data, false).unwrap().unwrap().punch(123_456, 50_000).unwrap();
        disk.sync_everything().unwrap();
        created(&*disk, 8).write_at(b"not synced", 0).unwrap();
        let stamps = [5, 6].map(|ino| disk.stamp(ino, Stream::Data).unwrap());
        drop(disk);
        let disk = locked(self, path);
        let file = disk.open(5, Stream::Data, false).unwrap().unwrap();
        let mut expected = vec![0; 123_456];
        expected.extend(&bytes);
        expected[123_456..173_456].fill(0);
        assert!(content(&*file) == expected);
        assert_eq!(content(&*disk.open(6, Stream::Data, false).unwrap().unwrap()), vec![0; 777]);
        assert_eq!(content(&*disk.open_named("store").unwrap()), b"named");
        let unsynced = disk.open(8, Stream::Data, false).unwrap().expect("the machine was not interrupted");
        assert_eq!(content(&*unsynced), b"not synced");
        assert_eq!(disk.read_note("note").unwrap().unwrap(), b"text");
        assert_eq!([5, 6].map(|ino| disk.stamp(ino, Stream::Data).unwrap()), stamps, "reading keeps the stamps");
        file.write_at(b"changed", 200_000).unwrap();
        file.sync().unwrap();
        assert_ne!(disk.stamp(5, Stream::Data).unwrap(), stamps[0], "a change of the bytes changes the stamp");
        assert_eq!(disk.stamp(6, Stream::Data).unwrap(), stamps[1]);
    }

    /// Compares random operations on several files with the same operations on vectors.
    fn random_operations(&self, path: &Path) {
        let mut random = Random::seeded(SEED);
        let mut disk = locked(self, path);
        let mut expected: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for step in 0..600 {
            let ino = 1 + random.below(5);
            let offset = random.below(200_000);
            let limit = [10, 5000, 60_000][random.below(3) as usize];
            let length = 1 + random.below(limit);
            let known = expected.entry(ino).or_default();
            let file = created(&*disk, ino);
            match random.below(12) {
                0..=4 => {
                    let bytes = random.bytes(length as usize);
                    known.resize(known.len().max((offset + length) as usize), 0);
                    known[offset as usize..(offset + length) as usize].copy_from_slice(&bytes);
                    file.write_at(&bytes, offset).unwrap();
                }
                5 | 6 => {
                    known.resize(offset as usize, 0);
                    file.set_len(offset).unwrap();
                }
                7 | 8 => {
                    let end = (offset + length).min(known.len() as u64).max(offset.min(known.len() as u64));
                    known[(offset as usize).min(end as usize)..end as usize].fill(0);
                    file.punch(offset, length).unwrap();
                }
                9 => {
                    let keep_size = random.below(2) == 0;
                    if !keep_size {
                        known.resize(known.len().max((offset + length) as usize), 0);
                    }
                    file.allocate(offset, length, keep_size).unwrap();
                }
                10 => {
                    expected.remove(&ino);
                    disk.remove(ino, Stream::Data).unwrap();
                }
                _ if random.below(8) == 0 => {
                    drop(file);
                    drop(disk);
                    disk = locked(self, path);
                }
                _ => file.sync().unwrap(),
            }
            if let Some(known) = expected.get(&ino) {
                let file = disk.open(ino, Stream::Data, false).unwrap().expect("the file exists");
                assert!(content(&*file) == *known, "step {step}: inode {ino}");
            }
        }
        let mut found: Vec<u64> = disk.backing_files().unwrap().into_iter().map(|(ino, _)| ino).collect();
        found.sort_unstable();
        assert!(found.iter().eq(expected.keys()), "{found:?}");
        for (ino, known) in &expected {
            assert!(content(&*disk.open(*ino, Stream::Data, false).unwrap().unwrap()) == *known, "inode {ino}");
        }
    }

    fn space_accounting(&self, path: &Path) {
        let disk = locked(self, path);
        let space = disk.space().unwrap();
        assert!(space.total >= space.free && space.free >= space.available && space.available > 0);
        let file = created(&*disk, 300);
        file.write_at(&[1; 1 << 20], 1 << 30).unwrap();
        file.sync().unwrap();
        let allocated = || disk.measure(300, Stream::Data).unwrap();
        let (length, bytes) = allocated();
        assert_eq!(length, (1 << 30) + (1 << 20));
        assert!((1 << 20..4 << 20).contains(&bytes), "a file with a hole occupies {bytes} bytes");
        assert!(file.is_hole(0, 1 << 20).unwrap() && !file.is_hole(1 << 30, 4096).unwrap());
        file.punch(1 << 30, 1 << 19).unwrap();
        assert!(allocated().1 <= bytes - (1 << 19), "punching frees space");
        file.set_len(0).unwrap();
        assert_eq!(allocated(), (0, 0));
        file.allocate(0, 1 << 20, true).unwrap();
        assert!(allocated().1 >= 1 << 20, "allocating takes space");
    }

    /// Fills the disk, frees space, and writes again. No earlier byte changes.
    fn full_disk(&self, path: &Path) {
        let Some(open) = self.open_small else { return };
        let disk = open(path, 24 << 20);
        assert!(disk.lock().unwrap());
        let kept = created(&*disk, 1);
        kept.write_at(&[1; 100_000], 0).unwrap();
        kept.sync().unwrap();
        for round in 0..3 {
            let file = created(&*disk, 2);
            let (piece, mut written) = (vec![2 + round; 300_000], 0);
            let error = loop {
                match file.write_at(&piece, written) {
                    Ok(()) => written += piece.len() as u64,
                    Err(error) => break error,
                }
                assert!(written < 1 << 30, "the disk is never full");
            };
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            assert!(written > 8 << 20, "round {round}: full after {written} bytes");
            assert!(disk.space().unwrap().available < 4 << 20);
            assert!(file.allocate(1 << 30, 30 << 20, true).is_err());
            file.write_at(&[9; 100_000], 0).expect("an overwrite needs no space");
            kept.write_at(&[1; 100_000], 0).unwrap();
            assert!(content(&*kept) == vec![1; 100_000]);
            let mut expected = vec![2 + round; written as usize];
            expected[..100_000].fill(9);
            assert!(content(&*file)[..written as usize] == expected, "round {round}");
            match round {
                0 => disk.remove(2, Stream::Data).unwrap(),
                1 => file.set_len(0).unwrap(),
                _ => file.punch(0, written).unwrap(),
            }
            drop(file);
        }
        created(&*disk, 3).write_at(&vec![7; 8 << 20], 0).expect("freed space is usable");
        kept.sync().unwrap();
    }

    /// Writers of separate ranges, readers, and changes of other files at the same time: no read sees foreign bytes.
    fn concurrent_access(&self, path: &Path) {
        let disk = locked(self, path);
        let file = created(&*disk, 1);
        let is_done = AtomicBool::new(false);
        let (part, rounds) = (3 * BLOCK as u64 + 100, 40_u8);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u64)
                .map(|writer| {
                    let file = file.clone();
                    scope.spawn(move || {
                        for round in 1..=rounds {
                            file.write_at(&vec![writer as u8 * 64 + round; part as usize], writer * part).unwrap();
                            if round % 16 == 0 {
                                file.sync().unwrap();
                            }
                        }
                    })
                })
                .collect();
            let (disk, done) = (&disk, &is_done);
            scope.spawn(move || {
                for round in 0_u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let ino = 10 + round % 3;
                    let file = created(&**disk, ino);
                    file.write_at(&[255; 20_000], 0).unwrap();
                    file.punch(4096, 8192).unwrap();
                    disk.remove(ino, Stream::Data).unwrap();
                }
            });
            let reader = file.clone();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for writer in 0..3 {
                        let mut buffer = vec![0; part as usize];
                        let count = reader.read_at(&mut buffer, writer * part).unwrap();
                        let is_own = |byte: u8| byte == 0 || u64::from(byte / 64) == writer && byte % 64 <= rounds;
                        assert!(buffer[..count].iter().all(|byte| is_own(*byte)), "writer {writer}");
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
        });
        let bytes = content(&*file);
        for writer in 0..3 {
            let own = &bytes[writer * part as usize..(writer + 1) * part as usize];
            assert!(own.iter().all(|byte| *byte == writer as u8 * 64 + rounds));
        }
    }
}

fn locked(engine: &Engine<'_>, path: &Path) -> Arc<dyn Disk> {
    let disk = (engine.open)(path);
    assert!(disk.lock().unwrap());
    disk
}

fn created(disk: &dyn Disk, ino: u64) -> Arc<dyn DiskFile> {
    disk.open(ino, Stream::Data, true).unwrap().unwrap()
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![9; file.len().unwrap() as usize + 10];
    let count = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count, bytes.len() - 10, "a read to the end of the file returns its length");
    bytes.truncate(count);
    bytes
}
