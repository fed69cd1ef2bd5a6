//! Compression units behind the file interface: files read the same and occupy less space.

use crate::support;
use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, PageInAu, RegionIndex};
use cellar_storage::disk::{Disk, FaultyDisk, Stream};
use cellar_storage::{AuSize, Error, ErrorKind, Fallocate, Ino, ROOT_INO, UnitStored, Volume, VolumeOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::codec::{PAGE, compress, compress_together, encode, superseded};
use support::memory_disk::MemoryDisks;
use support::{MIB, Random, create, disks, open, options, read_all};

fn filled(volume: &Volume, name: &str, bytes: u64) -> (Ino, Vec<u8>) {
    let ino = create(volume, name);
    let data: Vec<u8> = (0..bytes).map(|at| (at / PAGE as u64 * 7 + at % 64) as u8).collect();
    volume.write(ino, 0, &data).unwrap();
    volume.fsync(ino).unwrap();
    (ino, data)
}

fn reopened(volume: Arc<Volume>, folder: &std::path::Path) -> Arc<Volume> {
    volume.close().unwrap();
    drop(volume);
    open(folder, 2)
}

fn check(volume: &Volume, ino: Ino, model: &[u8]) {
    assert_eq!(volume.size(ino).unwrap(), model.len() as u64);
    let whole = read_all(volume, ino);
    let differs = whole.iter().zip(model).position(|(one, other)| one != other);
    assert_eq!(differs, None, "read");
    for (region, expected) in model.chunks(MIB as usize).enumerate() {
        assert!(volume.region(ino, RegionIndex(region as u32)).unwrap()[..] == *expected, "region {region}");
    }
}

fn compress_all(volume: &Volume, ino: Ino, aus: u64) {
    (0..aus).for_each(|au| assert_eq!(compress(volume, ino, au, 1).unwrap(), UnitStored::Stored));
}

fn allocated(volume: &Volume, ino: Ino, stream: Stream) -> u64 {
    volume.disks().iter().map(|disk| disk.measure(ino, stream).unwrap().1).sum()
}

#[test]
fn a_stored_unit_reads_the_same_as_its_pages_and_occupies_less_space() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let (ino, model) = filled(&volume, "file", 3 * MIB + 5 * PAGE as u64 + 100);
    assert_eq!(volume.getattr(ino).unwrap().stored_bytes, model.len() as u64);
    for au in 0..4 {
        assert_eq!(compress(&volume, ino, au, 7).unwrap(), UnitStored::Stored);
    }
    check(&volume, ino, &model);
    let mut part = [0; 5000];
    volume.read(ino, MIB - 2500, &mut part).unwrap();
    assert!(part[..] == model[MIB as usize - 2500..][..5000]);
    assert!(allocated(&volume, ino, Stream::Data) <= 8192, "only the partial last page is raw");
    assert!(volume.getattr(ino).unwrap().stored_bytes < MIB);
    let units = volume.au_infos(ino).unwrap();
    assert_eq!(units.len(), 4);
    let cellar_storage::AuFormat::Unit { bytes, tag: 7, superseded } = &units[3].format else {
        panic!("{:?}", units[3])
    };
    assert_eq!((*bytes < 3000, superseded.page_count(), superseded.len()), (true, 5, 0));
    let volume = reopened(volume, folder.path());
    check(&volume, ino, &model);
    assert!(volume.getattr(ino).unwrap().stored_bytes < MIB);
    drop(volume.region(ino, RegionIndex(0)).unwrap());
}

#[test]
fn an_allocation_unit_is_idle_since_its_last_write_and_after_a_restart_since_the_last_write_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let (ino, _) = filled(&volume, "file", 2 * MIB);
    std::thread::sleep(Duration::from_millis(50));
    volume.write(ino, MIB, &[9; PAGE]).unwrap();
    let idle = |volume: &Volume, au| volume.au_idle(ino, AuIndex(au)).unwrap();
    assert!(idle(&volume, 0) >= idle(&volume, 1) + Duration::from_millis(50));
    let before = idle(&volume, 0);
    assert_eq!(compress(&volume, ino, 0, 7).unwrap(), UnitStored::Stored);
    assert!(idle(&volume, 0) >= before, "compressing is not a write");
    let volume = reopened(volume, folder.path());
    let both = (idle(&volume, 0), idle(&volume, 1));
    assert!(both.0 <= both.1, "after a restart the file's last write counts for all allocation units: {both:?}");
}

#[test]
fn a_region_of_a_unit_is_read_without_a_page_cache() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(support::disks(folder.path(), 2), VolumeOptions { cache_bytes: 0, ..options() }).unwrap();
    let (ino, model) = filled(&volume, "file", 2 * MIB);
    compress(&volume, ino, 1, 0).unwrap();
    let region = volume.region(ino, RegionIndex(1)).unwrap();
    assert!(region[..] == model[MIB as usize..]);
    assert!(region.cost().disk_bytes > 0 && region.cost().disk_requests > 0);
}

#[test]
fn writes_over_a_unit_supersede_single_pages() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 2 * MIB);
    compress(&volume, ino, 0, 1).unwrap();
    compress(&volume, ino, 1, 1).unwrap();
    let writes =
        [(3 * PAGE as u64, PAGE), (10 * PAGE as u64 + 4096, 4096), (MIB - 10, 20), (MIB + 77, 3 * PAGE), (MIB + 78, 1)];
    for (round, (offset, length)) in writes.into_iter().enumerate() {
        if round % 2 == 0 {
            // Cache one of the two regions in some of the rounds.
            drop(volume.region(ino, RegionIndex(0)).unwrap());
        }
        let data = vec![round as u8 + 1; length];
        volume.write(ino, offset, &data).unwrap();
        model[offset as usize..][..length].copy_from_slice(&data);
        check(&volume, ino, &model);
    }
    assert_eq!(superseded(&volume, ino, 0).unwrap(), [3, 10, 127]);
    assert_eq!(superseded(&volume, ino, 1).unwrap(), [0, 1, 2, 3]);
    volume.fsync(ino).unwrap();
    check(&volume, ino, &model);
    assert_eq!(allocated(&volume, ino, Stream::Redo0) + allocated(&volume, ino, Stream::Redo1), 0);
    volume = reopened(volume, folder.path());
    check(&volume, ino, &model);
    assert_eq!(superseded(&volume, ino, 0).unwrap(), [3, 10, 127]);
    // A new unit contains the superseded pages again.
    assert_eq!(compress(&volume, ino, 0, 2).unwrap(), UnitStored::Stored);
    assert_eq!(superseded(&volume, ino, 0).unwrap(), [0; 0]);
    check(&volume, ino, &model);
}

#[test]
fn acknowledged_writes_survive_a_kill_of_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 2 * MIB);
    compress(&volume, ino, 0, 1).unwrap();
    for round in 0..20_u64 {
        for number in 0..5 {
            let (offset, fill) = ((round * 31 + number * 17) % 120 * PAGE as u64 + number * 1000, round as u8 + 100);
            volume.write(ino, offset, &[fill; 3000]).unwrap();
            model[offset as usize..][..3000].fill(fill);
            if number == round % 7 {
                volume.fsync(ino).unwrap();
            }
        }
        volume.abandon();
        drop(volume);
        volume = open(folder.path(), 2);
        check(&volume, ino, &model);
    }
    volume.close().unwrap();
}

#[test]
fn a_unit_that_does_not_match_its_pages_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 2 * MIB);
    let version = volume.au_version(ino, AuIndex(1)).unwrap();
    let unit = encode(&model[MIB as usize..]);
    volume.write(ino, MIB + 5, b"later").unwrap();
    model[MIB as usize + 5..][..5].copy_from_slice(b"later");
    assert_eq!(volume.store_unit(ino, AuIndex(1), version, &unit, 0).unwrap(), UnitStored::Changed);
    let version = volume.au_version(ino, AuIndex(1)).unwrap();
    let error = volume.store_unit(ino, AuIndex(1), version, &unit, 0).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("does not rebuild page 0"), "{error}");
    let error = volume.store_unit(ino, AuIndex(1), version, &unit[..unit.len() - 1], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for (au, bytes) in [(2, &unit[..]), (1, &[]), (1, &vec![0; MIB as usize])] {
        let version = volume.au_version(ino, AuIndex(au)).unwrap();
        assert_eq!(volume.store_unit(ino, AuIndex(au), version, bytes, 0).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(volume.au_version(ino, AuIndex(1 << 60)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(superseded(&volume, ino, 1), None);
    check(&volume, ino, &model);
    assert_eq!(allocated(&volume, ino, Stream::Units), 0, "rejected units leave no bytes");
    let codecless = VolumeOptions { unit_codec: None, ..options() };
    let elsewhere = tempfile::tempdir().unwrap();
    let volume = Volume::open(support::disks(elsewhere.path(), 1), codecless).unwrap();
    let (ino, _) = filled(&volume, "file", MIB);
    assert_eq!(compress(&volume, ino, 0, 0).unwrap_err().kind(), ErrorKind::NotSupported);
}

#[test]
fn units_stored_together_share_a_sync_of_each_disk_and_a_transaction() {
    const AUS: u64 = 24;
    let folder = tempfile::tempdir().unwrap();
    let faulty: Vec<Arc<FaultyDisk>> =
        disks(folder.path(), 2).into_iter().map(|disk| FaultyDisk::new(disk, 1).into()).collect();
    let as_disks = faulty.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let volume = Volume::open(as_disks, options()).unwrap();
    let syncs = || faulty.iter().map(|disk| disk.syncs()).sum::<u64>();
    let (ino, model) = filled(&volume, "file", AUS * MIB);
    let before = syncs();
    let stored = compress_together(&volume, ino, 0..AUS, || {}).unwrap();
    let together = syncs() - before;
    assert_eq!(stored, [UnitStored::Stored; AUS as usize]);
    check(&volume, ino, &model);
    let before = syncs();
    compress_all(&volume, ino, AUS);
    let each = syncs() - before;
    println!("{AUS} units: {together} syncs together, {each} one by one");
    // Names, unit files and metadata of two disks.
    assert!(together <= 16 && each >= AUS * 3, "{together} and {each} syncs");
    volume.abandon();
    drop((volume, faulty));
    check(&open(folder.path(), 2), ino, &model);
}

#[test]
fn staged_units_are_published_only_if_their_allocation_units_did_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 5 * MIB);
    let stored = compress_together(&volume, ino, 0..5, || {
        volume.write(ino, MIB + 5, b"later").unwrap();
        // A decompression without a unit changes nothing; another conversion of the same allocation unit may win.
        assert!(!volume.decompress(ino, AuIndex(2)).unwrap());
        assert_eq!(compress(&volume, ino, 2, 9).unwrap(), UnitStored::Stored);
        volume.truncate(ino, 3 * MIB + PAGE as u64).unwrap();
    });
    model[MIB as usize + 5..][..5].copy_from_slice(b"later");
    model.truncate(3 * MIB as usize + PAGE);
    use UnitStored::{Changed, Stored};
    assert_eq!(stored.unwrap(), [Stored, Changed, Stored, Changed, Changed]);
    check(&volume, ino, &model);
    assert!(superseded(&volume, ino, 1).is_none() && superseded(&volume, ino, 3).is_none());
    let units = allocated(&volume, ino, Stream::Units);
    let mut staged = volume.stage_units(ino).unwrap();
    let version = volume.au_version(ino, AuIndex(1)).unwrap();
    let unit = encode(&model[MIB as usize..2 * MIB as usize]);
    volume.stage_unit(&mut staged, AuIndex(1), version, &unit, 0).unwrap();
    assert!(allocated(&volume, ino, Stream::Units) > units);
    drop(staged);
    assert_eq!(allocated(&volume, ino, Stream::Units), units, "the slot is punched");
    assert_eq!(superseded(&volume, ino, 1), None, "units that are not published leave the pages raw");
    let volume = reopened(volume, folder.path());
    check(&volume, ino, &model);
}

#[test]
fn a_truncated_and_extended_file_has_no_old_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 4 * MIB);
    compress_all(&volume, ino, 4);
    for size in [3 * MIB + 5 * PAGE as u64, 2 * MIB + 5 * PAGE as u64 + 1, 2 * MIB, MIB + 9, 10] {
        volume.truncate(ino, size).unwrap();
        model.truncate(size as usize);
        check(&volume, ino, &model);
        if size % 2 == 0 {
            volume = reopened(volume, folder.path());
            check(&volume, ino, &model);
        }
        volume.truncate(ino, 4 * MIB).unwrap();
        model.resize(4 * MIB as usize, 0);
        check(&volume, ino, &model);
        volume.write(ino, size + 30_000, b"new").unwrap();
        model[size as usize + 30_000..][..3].copy_from_slice(b"new");
        check(&volume, ino, &model);
        volume.abandon();
        drop(volume);
        volume = open(folder.path(), 2);
        check(&volume, ino, &model);
    }
    assert_eq!(
        volume.au_infos(ino).unwrap().iter().filter(|unit| unit.format == cellar_storage::AuFormat::Raw).count(),
        4
    );
}

#[test]
fn punched_and_zeroed_ranges_over_units_stay_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 3 * MIB);
    compress_all(&volume, ino, 3);
    let holes = [(5 * PAGE as u64, 2 * PAGE as u64), (MIB - 100, 200), (MIB + 20_000, 30_001), (2 * MIB, MIB)];
    for (number, (offset, length)) in holes.into_iter().enumerate() {
        let what = if number % 2 == 0 { Fallocate::PunchHole } else { Fallocate::Zero { keep_size: true } };
        volume.fallocate(ino, offset, length, what).unwrap();
        model[offset as usize..(offset + length) as usize].fill(0);
        check(&volume, ino, &model);
        volume.abandon();
        drop(volume);
        volume = open(folder.path(), 2);
        check(&volume, ino, &model);
    }
    assert_eq!(superseded(&volume, ino, 0).unwrap(), [5, 6, 127]);
    assert_eq!(superseded(&volume, ino, 2), None, "a unit without current pages is dropped");
    volume.fallocate(ino, 0, MIB, Fallocate::Reserve { keep_size: false }).unwrap();
    check(&volume, ino, &model);
}

#[test]
fn damage_fails_only_the_pages_that_it_hits_and_writing_a_page_repairs_it() {
    let disks = MemoryDisks::new(1);
    let volume = Volume::open(disks.disks(), VolumeOptions { cache_bytes: 0, ..options() }).unwrap();
    let ino = create(&volume, "file");
    let mut random = support::Random::from_environment();
    // Random bytes do not compress, so the unit has several checksum blocks.
    let mut model: Vec<u8> = (0..MIB).map(|at| if at % 8192 < 4000 { random.next() as u8 } else { 0 }).collect();
    volume.write(ino, 0, &model).unwrap();
    compress(&volume, ino, 0, 0).unwrap();
    disks.damage_units(300_000);
    let mut page = [0; PAGE];
    let mut failed = Vec::new();
    for number in 0..128_u32 {
        match volume.read(ino, u64::from(number) * PAGE as u64, &mut page) {
            Ok(_) => assert!(page[..] == model[number as usize * PAGE..][..PAGE]),
            Err(error) => {
                assert_eq!(error.errno(), libc::EIO);
                let text = error.to_string();
                for part in ["file: ", "blocks 0 to 127", "memory0"] {
                    assert!(text.contains(part), "{text} lacks {part}");
                }
                failed.push(number);
            }
        }
    }
    assert!((1..=6).contains(&failed.len()), "{failed:?}");
    assert_eq!(volume.region(ino, RegionIndex(0)).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    let offset = u64::from(failed[0]) * PAGE as u64;
    assert_eq!(volume.write(ino, offset, b"part").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(volume.decompress(ino, AuIndex(0)).unwrap_err().kind(), ErrorKind::Corrupt);
    for number in failed {
        volume.write(ino, u64::from(number) * PAGE as u64, &[9; PAGE]).unwrap();
        model[number as usize * PAGE..][..PAGE].fill(9);
    }
    check(&volume, ino, &model);
}

#[test]
fn a_unit_that_is_read_repeatedly_is_read_in_the_page_cache_until_it_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let options = VolumeOptions { au_size: AuSize::from_bytes(4 * MIB).unwrap(), ..options() };
    let volume = Volume::open(disks(folder.path(), 1), options).unwrap();
    let ino = create(&volume, "file");
    // Half of each page is random and does not compress.
    let mut random = Random::from_environment();
    let mut noise = || random.next() as u8;
    let model: Vec<u8> = (0..4 * MIB).map(|at| if at / 4096 % 2 == 0 { noise() } else { 0 }).collect();
    volume.write(ino, 0, &model).unwrap();
    volume.fsync(ino).unwrap();
    compress(&volume, ino, 0, 1).unwrap();
    let unit = encode(&model);
    assert!(unit.len() as u64 > 2 * MIB);
    let reader = || volume.unit_reader(ino, AuIndex(0)).unwrap().unwrap();
    let first = reader();
    assert!(first.in_cache().is_none(), "the first reader");
    let used = volume.cache_stats().used_bytes;

    let second = reader();
    let cached = second.in_cache().unwrap();
    let (at, length) = (MIB - 1000, 2000);
    assert!(cached.verified_slice_at(10, 5000) == Some(&unit[10..5010]));
    assert!(cached.verified_slice_at(at, length).is_none(), "the range spans two regions");
    assert!(
        cached.verified_slice_at(unit.len() as u64 - 1, 2).is_none() && cached.verified_slice_at(u64::MAX, 2).is_none()
    );
    let mut bytes = vec![0; length];
    cached.read_unverified_at(&mut bytes, at).unwrap();
    assert!(bytes == unit[at as usize..][..length]);
    cached.read_at(&mut bytes, at).unwrap();
    assert!(bytes == unit[at as usize..][..length]);
    assert_eq!(cached.hit_bytes(), 0, "this reader loaded both regions");
    let loaded = second.cost();
    assert_eq!(
        (loaded.disk_bytes, loaded.disk_requests),
        (unit.len() as u64 + (32 << 10), 4),
        "three regions, and the checksum blocks of the range that spans two"
    );
    drop(cached);
    let again = second.in_cache().unwrap();
    assert!(again.verified_slice_at(2 * MIB - 500, 500) == Some(&unit[2 * MIB as usize - 500..][..500]));
    assert_eq!((again.hit_bytes(), second.cost()), (500, loaded));
    drop(again);
    assert!(volume.cache_stats().used_bytes >= used + 2 * MIB);

    drop((first, second));
    volume.write(ino, 0, b"x").unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(compress(&volume, ino, 0, 1).unwrap(), UnitStored::Stored);
    assert_eq!(volume.cache_stats().used_bytes, used, "the regions of the replaced unit are dropped");
    let unit = encode(&read_all(&volume, ino));
    assert!(reader().in_cache().is_none());
    assert!(reader().in_cache().unwrap().verified_slice_at(600, 5000) == Some(&unit[600..5600]));
}

#[test]
fn a_unit_is_loaded_into_the_page_cache_after_many_page_reads() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(disks(folder.path(), 1), options()).unwrap();
    let (ino, model) = filled(&volume, "file", MIB);
    compress(&volume, ino, 0, 1).unwrap();
    let used = volume.cache_stats().used_bytes;
    let mut page = vec![0; PAGE];
    let mut read = |number: usize| {
        volume.read(ino, (number * PAGE) as u64, &mut page).unwrap();
        assert!(page == model[number * PAGE..][..PAGE]);
        volume.cache_stats().used_bytes
    };
    assert!((0..10).all(|number| read(number) == used), "the first page reads do not load the unit");
    assert!((10..60).any(|number| read(number) > used));
    let loaded = read(60);
    assert!((60..128).all(|number| read(number) == loaded));
    drop(volume.unit_reader(ino, AuIndex(0)).unwrap());
    volume.write(ino, 0, b"x").unwrap();
    assert_eq!(read(1), loaded, "a write over one page keeps the unit in the cache");
}

#[test]
fn a_unit_is_not_loaded_if_the_page_cache_evicts_half_of_its_slots_between_reads() {
    let folder = tempfile::tempdir().unwrap();
    let options = VolumeOptions { cache_bytes: 8 * MIB, ..options() };
    let volume = Volume::open(disks(folder.path(), 1), options).unwrap();
    let (ino, _) = filled(&volume, "file", MIB);
    compress(&volume, ino, 0, 1).unwrap();
    let reader = || volume.unit_reader(ino, AuIndex(0)).unwrap().unwrap();
    let is_read_in_cache = || reader().in_cache().is_some_and(|cached| cached.verified_slice_at(0, 100).is_some());
    let (other, _) = filled(&volume, "other", 32 * MIB);
    let evict = |count: u64| {
        let before = volume.cache_stats().evictions;
        for region in (0..32).cycle().take_while(|_| volume.cache_stats().evictions < before + count) {
            volume.region(other, RegionIndex(region)).unwrap();
        }
    };
    evict(1);
    assert!(!is_read_in_cache());
    evict(4);
    assert!(!is_read_in_cache(), "half of the slots were evicted");
    evict(1);
    assert!(is_read_in_cache());
    assert!(is_read_in_cache());
}

#[test]
fn a_reader_of_a_replaced_unit_still_reads_the_unit_that_it_opened() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 1);
    let (ino, model) = filled(&volume, "file", MIB);
    assert!(volume.unit_reader(ino, AuIndex(0)).unwrap().is_none());
    compress(&volume, ino, 0, 5).unwrap();
    let reader = volume.unit_reader(ino, AuIndex(0)).unwrap().unwrap();
    let unit = encode(&model);
    assert_eq!((reader.tag(), reader.length(), reader.superseded().len()), (5, unit.len() as u64, 0));
    assert_eq!(reader.version(), volume.au_version(ino, AuIndex(0)).unwrap());
    volume.write(ino, 9 * PAGE as u64, b"x").unwrap();
    assert_ne!(reader.version(), volume.au_version(ino, AuIndex(0)).unwrap());
    assert_eq!(
        volume.unit_reader(ino, AuIndex(0)).unwrap().unwrap().superseded().iter().collect::<Vec<_>>(),
        [PageInAu(9)]
    );
    compress(&volume, ino, 0, 6).unwrap();
    assert_eq!(compress(&volume, ino, 0, 7).unwrap(), UnitStored::Busy);
    let mut bytes = vec![0; unit.len()];
    reader.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == unit);
    assert!(reader.cost().disk_bytes >= unit.len() as u64);
    let beyond_end = reader.read_at(&mut [0; 2], unit.len() as u64 - 1).unwrap_err();
    assert_eq!(Error::of_source(beyond_end).kind(), ErrorKind::Corrupt);
    let before = allocated(&volume, ino, Stream::Units);
    drop(reader);
    assert!(allocated(&volume, ino, Stream::Units) < before, "the last reader frees the slot");
    assert_eq!(compress(&volume, ino, 0, 7).unwrap(), UnitStored::Stored);
}

#[test]
fn decompressing_restores_raw_pages() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let (ino, mut model) = filled(&volume, "file", 2 * MIB);
    assert!(!volume.decompress(ino, AuIndex(0)).unwrap());
    compress_all(&volume, ino, 2);
    volume.write(ino, 5 * PAGE as u64 + 1, b"new").unwrap();
    model[5 * PAGE + 1..][..3].copy_from_slice(b"new");
    assert!(volume.decompress(ino, AuIndex(0)).unwrap());
    assert_eq!((superseded(&volume, ino, 0), superseded(&volume, ino, 1)), (None, Some(Vec::new())));
    check(&volume, ino, &model);
    assert!(volume.decompress(ino, AuIndex(1)).unwrap());
    assert_eq!(volume.getattr(ino).unwrap().stored_bytes, 2 * MIB);
    assert_eq!(allocated(&volume, ino, Stream::Units), 0);
    let volume = reopened(volume, folder.path());
    check(&volume, ino, &model);
    assert_eq!(superseded(&volume, ino, 0), None);
}

#[test]
fn removing_a_file_removes_its_units() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    for crashes in [false, true] {
        let (ino, _) = filled(&volume, "file", 2 * MIB);
        compress_all(&volume, ino, 2);
        volume.write(ino, 0, b"x").unwrap();
        volume.unlink(ROOT_INO, b"file").unwrap();
        assert!(
            volume.region(ino, RegionIndex(0)).unwrap().starts_with(b"x"),
            "an unlinked file exists while it is referenced"
        );
        volume.fsyncdir(ROOT_INO).unwrap();
        if crashes {
            volume.abandon();
            drop(volume);
            volume = open(folder.path(), 2);
        } else {
            volume.forget(ino, 1);
            volume.sync().unwrap();
        }
        let left: Vec<_> = volume.disks().iter().flat_map(|disk| disk.backing_files().unwrap()).collect();
        assert_eq!(left, []);
    }
    // A new inode has no extents of a removed one.
    let (ino, model) = filled(&volume, "file", 2 * MIB);
    let volume = reopened(volume, folder.path());
    check(&volume, ino, &model);
}

#[test]
fn a_recovery_reports_its_progress() {
    static REPORTS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
    let disks = MemoryDisks::new(2);
    let volume = Volume::open(disks.disks(), options()).unwrap();
    for name in ["one", "two", "raw"] {
        let (ino, _) = filled(&volume, name, MIB);
        if name != "raw" {
            compress_all(&volume, ino, 1);
        }
    }
    volume.abandon();
    let options =
        VolumeOptions { recovery_progress: |done, files| REPORTS.lock().unwrap().push((done, files)), ..options() };
    Volume::open(disks.disks(), options).unwrap().abandon();
    assert_eq!(*REPORTS.lock().unwrap(), [(0, 2), (1, 2)]);
}
