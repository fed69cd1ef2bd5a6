//! Commits that fail, and commits while files are removed.

use super::*;
use crate::disk::{DirectoryDisk, Disk};
use crate::flash::FlashOptions;
use crate::volume::{Kind, NewNode, ROOT_INO, VolumeOptions};
use crate::write_back::WriteBackOptions;
use crate::write_back::tests::breakable_disk::{BreakableDisk, Breaker};

/// For a thread that waits for something that happens unless the test fails.
const HOPELESS: Duration = Duration::from_secs(20);

#[test]
fn after_a_panic_that_may_have_lost_changes_no_sync_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
    let volume = Volume::open(vec![disk], VolumeOptions::default()).unwrap();
    let change = || volume.namespace.write().node_mut(ROOT_INO).map(drop);
    change().unwrap();
    volume.fsyncdir(ROOT_INO).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _lost_on_panic = MetadataLost(&volume.metadata_lost);
        panic!("between the namespace and the stores");
    }));
    assert!(panicked.is_err());
    change().unwrap();
    for _ in 0..2 {
        assert!(volume.fsyncdir(ROOT_INO).unwrap_err().to_string().contains("restart the cell"));
    }
    volume.abandon();
}

/// Waits until a condition holds. Returns false if it does not.
fn happens(what: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !what() && started.elapsed() < HOPELESS {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

#[test]
fn no_commit_waits_for_the_removal_of_a_file_that_a_destage_writes() {
    const SEGMENT: u64 = 64 << 10;
    const PAGE: u64 = 8192;
    let (folder, breaker) = (tempfile::tempdir().unwrap(), Breaker::new());
    let directory = |name| Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap()) as Arc<dyn Disk>;
    let disk: Arc<dyn Disk> = Arc::new(BreakableDisk { inner: directory("disk"), breaker: breaker.clone() });
    let flash = FlashOptions {
        disks: vec![directory("flash1"), directory("flash2")],
        size: Some(16 * SEGMENT),
        columnar_bytes: 0,
        segment_bytes: SEGMENT,
        fills_in_background: false,
        timeout: None,
    };
    let write_back = WriteBackOptions {
        size: 8 * SEGMENT,
        segment_bytes: SEGMENT,
        allows_one_disk: false,
        takes_redo: false,
        destages_in_background: false,
    };
    let options = VolumeOptions { flash: Some(flash), write_back: Some(write_back), ..VolumeOptions::default() };
    let volume = Volume::open(vec![disk], options).unwrap();
    let new_file = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    let create = |name: &str| {
        let ino = volume.create(ROOT_INO, name.as_bytes(), &new_file).unwrap().ino;
        volume.write(ino, 0, &[1; 4 * PAGE as usize]).unwrap();
        volume.fsync(ino).unwrap();
        volume.fsyncdir(ROOT_INO).unwrap();
        ino
    };
    let removed = create("removed");
    volume.write(removed, 0, &[2; PAGE as usize]).unwrap();
    assert_eq!(volume.write_back_stats().unwrap().dirty_bytes, PAGE);
    breaker.hold_one_write();
    let (is_removing, is_committed) = std::thread::scope(|scope| {
        scope.spawn(|| volume.flush_flash_cache().unwrap());
        assert!(happens(|| breaker.has_held()));
        volume.unlink(ROOT_INO, b"removed").unwrap();
        volume.forget(removed, 1);
        let removal = scope.spawn(|| volume.fsyncdir(ROOT_INO).unwrap());
        // That thread or the maintenance waits for the destage now.
        let is_removing = happens(|| volume.removed_files.lock().is_empty());
        let other = scope.spawn(|| create("other"));
        let is_committed = happens(|| other.is_finished());
        let is_removing = is_removing && (!removal.is_finished() || volume.removing.try_lock().is_none());
        breaker.release_writes();
        (is_removing, is_committed)
    });
    assert!(is_removing, "the removal did not wait for the destage");
    assert!(is_committed, "a commit waited for the removal of another file");
    assert_eq!(volume.write_back_stats().unwrap().dirty_bytes, 0);
    volume.close().unwrap();
}
