//! One thread that changes files, and crashes at any operation: what a sync made durable is there, and nothing older.

use super::model::{Model, SECTORS};
use super::*;

/// Crashes at each operation of `work`, with several outcomes of each crash, and checks the files.
fn crash_everywhere(
    prepare: impl Fn(&Cell, &mut Model) -> io::Result<()>,
    work: impl Fn(&Machine, &Cell, &mut Model) -> io::Result<()>,
) {
    crash_everywhere_on(Machine::new, prepare, work);
}

fn crash_everywhere_on(
    new_machine: impl Fn() -> Machine,
    prepare: impl Fn(&Cell, &mut Model) -> io::Result<()>,
    work: impl Fn(&Machine, &Cell, &mut Model) -> io::Result<()>,
) {
    let outcomes = if is_long() { 200 } else { 20 };
    for changes in 1.. {
        let (machine, mut model) = (new_machine(), Model::default());
        let cell = machine.start(BOTH, &[]).unwrap();
        prepare(&cell, &mut model).unwrap();
        machine.disks.power_off_after(changes);
        let done = work(&machine, &cell, &mut model);
        assert!(done.is_ok() || machine.disks.is_off(), "{done:?}");
        for seed in 0..outcomes {
            let mut random = Random::seeded(changes << 32 | seed);
            let (crashed, mut model) = (machine.crash(Crash::Power, &mut random), model.clone());
            model.check_lacking(&crashed);
            let cell = crashed.start_after_crash(BOTH, &model.known());
            let cell = cell.unwrap_or_else(|error| panic!("a start after change {changes}: {error}"));
            model.check(&cell);
        }
        if done.is_ok() {
            assert!(changes > 2, "the power is never off");
            return;
        }
    }
}

const INO: u64 = 20;
const OTHER: u64 = 21;

fn two_files(cell: &Cell, model: &mut Model) -> io::Result<()> {
    for ino in [INO, OTHER] {
        model.create(cell, ino)?;
        model.fill(cell, ino, 8)?;
    }
    Ok(())
}

/// Synced versions of a page fill a segment, and a newer one that no sync followed is in the next segment.
fn replaced_segment(cell: &Cell, model: &mut Model) -> io::Result<()> {
    two_files(cell, model)?;
    for _ in 0..3 {
        model.write(cell, INO, of_pages(2..3))?;
    }
    model.sync(cell, INO)?;
    model.write(cell, INO, of_pages(2..3))
}

#[test]
fn a_segment_is_removed_after_the_records_that_replaced_its_pages_are_durable() {
    crash_everywhere(replaced_segment, |machine, cell, model| {
        // The destage fails, so the cell disks lack all versions of the page.
        machine.hooks.set(|_, operation| match operation {
            Operation::Sync => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        });
        let destaged = cell.write_back.destage();
        machine.hooks.clear();
        match machine.disks.is_off() {
            true => destaged,
            false => {
                destaged.unwrap_err();
                model.check_current(cell)
            }
        }
    });
}

#[test]
fn a_file_whose_shorter_length_a_crash_undoes_has_its_pages() {
    let dirty = |cell: &Cell, model: &mut Model| {
        two_files(cell, model)?;
        model.write(cell, INO, of_pages(3..8))?;
        model.sync(cell, INO)
    };
    crash_everywhere(dirty, |_, cell, model| {
        model.set_length(cell, INO, 9)?;
        model.check_current(cell)?;
        model.write(cell, INO, of_pages(3..4))?;
        model.sync(cell, INO)
    });
}

#[test]
fn a_punched_page_does_not_return() {
    let dirty = |cell: &Cell, model: &mut Model| {
        two_files(cell, model)?;
        model.write(cell, INO, of_pages(3..8))?;
        model.sync(cell, INO)
    };
    crash_everywhere(dirty, |_, cell, model| {
        model.punch(cell, INO, 7..12)?;
        model.check_current(cell)?;
        model.sync(cell, INO)?;
        model.write(cell, INO, 8..9)?;
        model.write(cell, INO, of_pages(5..6))?;
        model.sync(cell, INO)?;
        model.check_current(cell)
    });
}

#[test]
fn a_new_file_with_the_inode_number_of_a_removed_one_has_none_of_its_pages() {
    let dirty = |cell: &Cell, model: &mut Model| {
        two_files(cell, model)?;
        model.write(cell, INO, of_pages(3..8))?;
        model.sync(cell, INO)
    };
    crash_everywhere(dirty, |_, cell, model| {
        model.remove(cell, INO)?;
        model.create(cell, INO)?;
        model.set_length(cell, INO, 16)?;
        model.sync(cell, INO)?;
        model.check_current(cell)
    });
}

#[test]
fn a_page_that_a_crash_leaves_on_one_flash_disk_only_is_as_before_or_as_written() {
    crash_everywhere(two_files, |machine, cell, model| {
        machine.write_at_once();
        model.write(cell, INO, of_pages(2..4))?;
        model.sync(cell, INO)?;
        model.write(cell, INO, of_pages(3..6))?;
        model.write(cell, OTHER, of_pages(3..4))?;
        model.sync(cell, INO)?;
        cell.write_back.destage()?;
        model.write(cell, INO, of_pages(3..4))?;
        model.sync(cell, INO)?;
        model.check_current(cell)
    });
}

#[test]
fn redo_is_in_flash_or_on_the_cell_disks_also_while_the_log_is_nearly_full() {
    let with_redo = |cell: &Cell, model: &mut Model| {
        two_files(cell, model)?;
        model.create(cell, REDO)?;
        model.fill(cell, REDO, 6)
    };
    crash_everywhere_on(Machine::taking_redo, with_redo, |_, cell, model| {
        model.write(cell, REDO, of_pages(2..3))?;
        model.sync(cell, REDO)?;
        while !cell.write_back.last_log().unwrap().is_nearly_full() {
            model.write(cell, INO, of_pages(2..4))?;
        }
        // The first page is dirty, the second one goes to the cell disks.
        model.write(cell, REDO, of_pages(2..4))?;
        model.sync(cell, REDO)?;
        model.write(cell, REDO, of_pages(3..4))?;
        assert_eq!(cell.write_back.stats().destage_requests, 0);
        cell.write_back.destage()?;
        model.write(cell, REDO, of_pages(2..4))?;
        model.sync(cell, REDO)?;
        model.check_current(cell)
    });
}

/// Changes files at random until the power is off, or for some steps.
fn change(cell: &Cell, model: &mut Model, steps: u64, random: &mut Random) -> io::Result<()> {
    for _ in 0..steps {
        let ino = INO + random.below(3);
        let Some(length) = model.files.get(&ino).map(|file| file.length()) else {
            model.create(cell, ino)?;
            continue;
        };
        let pages = length / 2;
        match random.below(24) {
            // Grows.
            0 | 1 => {
                let start = random.below((SECTORS - 4) as u64) as usize;
                model.write(cell, ino, start..start + 1 + random.below(4) as usize)?;
            }
            2 => model.fill(cell, ino, 4 + random.below(12) as usize)?,
            // A part of a page.
            3..=5 if length > 0 => {
                let sector = random.below(length as u64) as usize;
                model.write(cell, ino, sector..sector + 1)?;
            }
            6..=12 if pages > 0 => {
                let limit = if random.below(2) == 0 { pages } else { pages.min(2) };
                let page = random.below(limit as u64) as usize;
                model.write(cell, ino, of_pages(page..pages.min(page + 1 + random.below(3) as usize)))?;
            }
            13 | 14 => model.set_length(cell, ino, random.below(SECTORS as u64) as usize)?,
            15 if length > 0 => {
                let start = random.below(length as u64) as usize;
                model.punch(cell, ino, start..length.min(start + 1 + random.below(6) as usize))?;
            }
            16 => model.remove(cell, ino)?,
            17 => cell.write_back.destage()?,
            18..=21 => model.sync(cell, ino)?,
            _ => model.check_current(cell)?,
        }
    }
    Ok(())
}

/// Starts, sometimes without one of the flash disks. Returns None if the power is off.
fn start(machine: &Machine, model: &Model, random: &mut Random) -> Option<(Cell, Present)> {
    let mut present = BOTH;
    if random.below(8) == 0 {
        present[random.below(2) as usize] = false;
    }
    for present in [present, BOTH] {
        match machine.start_after_crash(present, &model.known()) {
            _ if machine.disks.is_off() => return None,
            Ok(cell) => return Some((cell, present)),
            // The flash disk that is missing is the only one that counts.
            Err(error) => assert!(error.kind() == crate::ErrorKind::ForeignDisk && present != BOTH, "{error}"),
        }
    }
    unreachable!("a start with both flash disks failed")
}

#[test]
fn files_are_as_a_sync_left_them_or_newer_after_any_crash() {
    let seeds = if is_long() { 50_000 } else { 40 };
    let mut recovered = 0;
    for seed in seeds_up_to(seeds) {
        let (mut random, mut machine, mut model) = (Random::seeded(seed), Machine::new(), Model::default());
        machine.takes_redo = seed % 2 == 1;
        println!("SEED={seed}");
        for _ in 0..6 {
            if let Some((cell, present)) = start(&machine, &model, &mut random) {
                recovered += cell.write_back.stats().recovered_bytes;
                let changes = 1 + random.below(200);
                machine.disks.power_off_after(1 << 40);
                model.check(&cell);
                machine.disks.power_off_after(changes);
                // Histories of other seeds are repeated exactly.
                if seed % 4 == 3 {
                    machine.write_at_once();
                }
                if present == BOTH && random.below(4) == 0 {
                    machine.breakers[random.below(2) as usize].break_after(random.below(300));
                }
                let changed = change(&cell, &mut model, 60, &mut random);
                assert!(changed.is_ok() || machine.disks.is_off(), "{changed:?}");
            }
            let crash = if random.below(4) == 0 { Crash::Kill } else { Crash::Power };
            machine = machine.crash(crash, &mut random);
            model.check_lacking(&machine);
            if random.below(3) == 0 {
                machine.disks.power_off_after(1 + random.below(60));
            }
        }
    }
    assert!(std::env::var("SEED").is_ok() || recovered > 100 * PAGE, "{recovered}");
}
