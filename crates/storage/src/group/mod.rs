//! The disk group: several cell disks used as one. It determines how the allocation units of a file are striped over
//! them, and which disks store the copies of an allocation unit.
//!
//! Invariants: while a [`Group`] lives, its present disks are locked by this process. With external redundancy all disks
//! are present, and a byte of a file is stored at the same offset in exactly one disk's backing file. With copies, what is
//! said of a disk holds of a copy set ([`mirror`]). The group knows neither names nor caching.

mod changes;
mod failure_groups;
mod growing;
pub mod mirror;
pub mod rebalance;
mod stripe_layout;
mod superblock;

pub use growing::Growing;
pub use stripe_layout::{AuSize, Piece, StripeLayout};
pub use superblock::{Redundancy, State, Superblock, Uuid};

use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use mirror::{AbsentDisk, Mirror, Parts, Patience};
use parking_lot::Mutex;
use rebalance::Placement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a group is formed and opened.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// Allocation-unit size of new files. A file keeps the size that it was created with.
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    /// The failure group of each disk, in the order of the disks; a disk without one forms its own.
    pub failure_groups: Vec<Option<String>>,
    /// The failure group whose disks are read if possible.
    pub preferred_read: Option<String>,
    /// Opens the group without a majority of the disks that have the newest data.
    pub force_degraded: bool,
    /// With copies: how long the group waits for its disks; None for as long as they take.
    pub patience: Option<Patience>,
}

#[derive(Debug)]
pub struct Group {
    id: Uuid,
    redundancy: Redundancy,
    /// In the order of disk numbers.
    disks: Growing<Arc<dyn Disk>>,
    /// Where the stripes are stored: on the disks, or on the copy sets.
    placement: Arc<Placement>,
    /// What files are striped over.
    stripes: Growing<Arc<dyn Disk>>,
    /// In the order of disk numbers; None for an absent disk.
    superblocks: Mutex<Vec<Option<Superblock>>>,
    /// Disks that were dropped, and disks that are being dropped: bit n of disk n.
    dropped: AtomicU64,
    dropping: AtomicU64,
    /// Blank disks among the configured ones, which are to join the group.
    joining: Mutex<Vec<Arc<dyn Disk>>>,
    mirror: Option<Arc<Mirror>>,
    au_size: AuSize,
}

impl Group {
    /// Locks the disks, then opens the group on them, or forms a new group if all are blank. The order of the disks
    /// does not matter. Returns also whether the group is new: then call [`Group::mark_ready`] once its metadata exist.
    pub fn open(disks: Vec<Arc<dyn Disk>>, options: &GroupOptions) -> Result<(Self, bool)> {
        if disks.is_empty() || disks.len() > superblock::DISKS_MAX {
            let message =
                format!("a disk group has 1 to {} disks, but {} are configured", superblock::DISKS_MAX, disks.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let found = lock_and_read(disks.iter().map(AsRef::as_ref))?;
        if found.iter().flatten().all(|superblock| superblock.state == State::Forming) {
            return Self::form(disks, &found, options);
        }
        let example = example_of(&found);
        check_options(&disks, &found, example, options)?;
        let group = match example.redundancy {
            Redundancy::External => Self::assemble(disks, found, options.au_size)?,
            Redundancy::Normal | Redundancy::High => {
                let members = Members::of(disks, found)?;
                let (parts, present) = members.parts(options.preferred_read.clone(), options.patience)?;
                let mirror = Mirror::open(parts, &present, options.force_degraded)?;
                Self::mirrored(mirror, members.superblocks, options.au_size)
            }
        };
        // A crash in `mark_ready` leaves some disks in state forming although the group is ready.
        group.mark_ready()?;
        Ok((group, false))
    }

    /// Locks the disks and opens the group on them. Writes nothing. A group without data is an error. With `options`, what
    /// [`Group::open`] refuses is an error too; without, a copy of everything suffices.
    pub fn open_existing(disks: Vec<Arc<dyn Disk>>, options: Option<&GroupOptions>) -> Result<Self> {
        let found = lock_and_read(disks.iter().map(AsRef::as_ref))?;
        if !found.iter().flatten().any(|superblock| superblock.state == State::Ready) {
            let message = "no disk belongs to a disk group that contains data; check the list of disks";
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let example = example_of(&found);
        options.map_or(Ok(()), |options| check_options(&disks, &found, example, options))?;
        if example.redundancy == Redundancy::External {
            return Self::assemble(disks, found, AuSize::DEFAULT);
        }
        let members = Members::of(disks, found)?;
        let (parts, present) = members.parts(None, None)?;
        let force = options.is_none_or(|options| options.force_degraded);
        let mirror = Mirror::open_read_only(parts, &present, force)?;
        Ok(Self::mirrored(mirror, members.superblocks, AuSize::DEFAULT))
    }

    /// Locks the disks and returns whether [`Group::open`] would form a new group on them. Writes nothing.
    pub fn would_form<'a>(disks: impl Iterator<Item = &'a dyn Disk> + Clone) -> Result<bool> {
        let found = lock_and_read(disks.clone())?;
        let is_new = found.iter().flatten().all(|superblock| superblock.state == State::Forming);
        if is_new {
            check_blank(disks, &found)?;
        }
        Ok(is_new)
    }

    fn form(disks: Vec<Arc<dyn Disk>>, found: &[Option<Superblock>], options: &GroupOptions) -> Result<(Self, bool)> {
        check_blank(disks.iter().map(AsRef::as_ref), found)?;
        let (au_size, redundancy) = (options.au_size, options.redundancy);
        let failure_groups = match redundancy {
            Redundancy::External => Vec::new(),
            Redundancy::Normal | Redundancy::High => failure_groups::names(&options.failure_groups, disks.len())?,
        };
        let sets = match redundancy {
            Redundancy::External => Vec::new(),
            Redundancy::Normal | Redundancy::High => failure_groups::copy_sets(&failure_groups, redundancy.copies())
                .map_err(|error| Error::new(ErrorKind::Invalid, format!("redundancy \"{redundancy}\": {error}")))?,
        };
        let superblocks = Superblock::for_new_group(disks.len(), au_size, redundancy, &failure_groups)?;
        for (disk, superblock) in disks.iter().zip(&superblocks) {
            superblock.write(disk.as_ref())?;
        }
        let group_id = superblocks[0].group_id;
        let superblocks = superblocks.into_iter().map(Some).collect();
        if redundancy == Redundancy::External {
            return Ok((Self::of(disks.clone(), disks, superblocks, None, au_size), true));
        }
        let (preferred_read, patience) = (options.preferred_read.clone(), options.patience);
        let parts = Parts { group_id, engines: disks, failure_groups, sets, preferred_read, patience };
        let mirror = Mirror::form(parts)?;
        Ok((Self::mirrored(mirror, superblocks, au_size), true))
    }

    fn mirrored(mirror: Arc<Mirror>, superblocks: Vec<Option<Superblock>>, au_size: AuSize) -> Self {
        let (disks, sets) = (mirror.disks().to_vec(), mirror.copy_sets());
        Self::of(disks, sets, superblocks, Some(mirror), au_size)
    }

    fn of(
        disks: Vec<Arc<dyn Disk>>,
        containers: Vec<Arc<dyn Disk>>,
        superblocks: Vec<Option<Superblock>>,
        mirror: Option<Arc<Mirror>>,
        au_size: AuSize,
    ) -> Self {
        let example = newest(superblocks.iter().flatten()).expect("a group has a disk");
        let (id, redundancy, dropped) = (example.group_id, example.redundancy, AtomicU64::new(example.dropped));
        let placement = Placement::new(containers);
        let stripes = (0..placement.containers().len() as u16).map(|stripe| placement.stripe(stripe)).collect();
        let (stripes, superblocks, disks) = (Growing::new(stripes), Mutex::new(superblocks), Growing::new(disks));
        let (dropping, joining) = (AtomicU64::new(0), Mutex::default());
        Self { id, redundancy, disks, placement, stripes, superblocks, dropped, dropping, joining, mirror, au_size }
    }

    fn assemble(disks: Vec<Arc<dyn Disk>>, found: Vec<Option<Superblock>>, au_size: AuSize) -> Result<Self> {
        let members = Members::of(disks, found)?;
        check_blank(members.unknown.iter().map(AsRef::as_ref), &vec![None; members.unknown.len()])?;
        let (example, ids) = (&members.example, &members.example.disk_ids);
        let missing = ids.iter().zip(&members.engines).enumerate();
        let missing = missing.filter(|(index, (_, engine))| engine.is_none() && !example.is_dropped(*index));
        let missing: Vec<String> = missing.map(|(index, (id, _))| format!("disk {index} ({id})")).collect();
        if !missing.is_empty() {
            let message = format!(
                "disk group {} has {} disks, but {} is not among the configured ones; add its directory or device; a lost \
                 disk of a group without copies cannot be dropped: form a new group and restore a backup",
                example.group_id,
                ids.len() - example.dropped.count_ones() as usize,
                missing.join(", ")
            );
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let engine = |engine: Option<Arc<dyn Disk>>| engine.unwrap_or_else(|| Arc::new(AbsentDisk::new("dropped")));
        let disks: Vec<_> = members.engines.into_iter().map(engine).collect();
        let group = Self::of(disks.clone(), disks, members.superblocks, None, au_size);
        *group.joining.lock() = members.unknown.into_iter().chain(members.joining).collect();
        Ok(group)
    }

    /// Records on every disk that the group contains data and must never be formed again, and which disks it has.
    pub fn mark_ready(&self) -> Result<()> {
        let mut superblocks = self.superblocks.lock();
        let newest = newest(superblocks.iter().flatten()).expect("a group has a disk").clone();
        for (number, (disk, superblock)) in self.disks().iter().zip(&mut *superblocks).enumerate() {
            if let Some(superblock) = superblock
                && (superblock.state != State::Ready || superblock.generation != newest.generation)
                && disk.is_accessible()
                && !newest.is_dropped(number)
            {
                *superblock = Superblock { index: superblock.index, state: State::Ready, ..newest.clone() };
                superblock.write(disk.as_ref())?;
            }
        }
        Ok(())
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// Returns the disks, in the order of their numbers, also dropped ones.
    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        self.disks.all()
    }

    /// Returns the disks that can be used now.
    pub fn accessible_disks(&self) -> Vec<Arc<dyn Disk>> {
        let disks = self.disks().iter().enumerate();
        disks
            .filter(|(number, disk)| !self.is_dropped(*number) && disk.is_accessible())
            .map(|(_, disk)| disk.clone())
            .collect()
    }

    /// Returns what files are striped over, in the order of their numbers.
    pub fn stripes(&self) -> &[Arc<dyn Disk>] {
        self.stripes.all()
    }

    /// Returns where the stripes are stored.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// Returns the state of the copies; None with external redundancy.
    pub fn mirror(&self) -> Option<&Arc<Mirror>> {
        self.mirror.as_ref()
    }

    /// Returns the disks of a container.
    pub fn disks_of(&self, container: u16) -> Vec<usize> {
        match &self.mirror {
            Some(mirror) => mirror.set(container).iter().map(|disk| usize::from(*disk)).collect(),
            None => vec![usize::from(container)],
        }
    }

    /// Returns the layout of a new file. The inode number selects the disk of its first allocation unit.
    pub fn new_layout(&self, ino: u64) -> StripeLayout {
        let avoided = self.dropped.load(Ordering::Acquire) | self.dropping.load(Ordering::Acquire);
        let disks = (0..self.stripes().len() as u16).filter(|stripe| avoided >> stripe & 1 == 0).collect::<Vec<_>>();
        let start = (ino % disks.len() as u64) as u16;
        StripeLayout { au_size: self.au_size, start, disks }
    }
}

/// The disks of a group by number.
struct Members {
    example: Superblock,
    engines: Vec<Option<Arc<dyn Disk>>>,
    superblocks: Vec<Option<Superblock>>,
    /// Disks without a superblock.
    unknown: Vec<Arc<dyn Disk>>,
    /// Disks that were to join the group, which has not recorded them.
    joining: Vec<Arc<dyn Disk>>,
}

impl Members {
    fn of(disks: Vec<Arc<dyn Disk>>, found: Vec<Option<Superblock>>) -> Result<Self> {
        let example = example_of(&found).clone();
        let count = example.disk_ids.len();
        let mut members = Self {
            engines: (0..count).map(|_| None).collect(),
            superblocks: (0..count).map(|_| None).collect(),
            unknown: Vec::new(),
            joining: Vec::new(),
            example,
        };
        for (disk, superblock) in disks.into_iter().zip(found) {
            let path = disk.path().display().to_string();
            let foreign = |message: String| Err(Error::new(ErrorKind::ForeignDisk, message));
            let Some(superblock) = superblock else {
                members.unknown.push(disk);
                continue;
            };
            if superblock.group_id != members.example.group_id {
                let (ours, its) = (members.example.group_id, superblock.group_id);
                return foreign(format!("{path} belongs to disk group {its}, not to {ours}; check the list of disks"));
            }
            let index = superblock.index as usize;
            if superblock.state == State::Dropped || members.example.is_dropped(index) {
                log::warn!("{path} was dropped from the disk group and is not used; remove it from the configuration");
                continue;
            }
            if superblock.state == State::Forming
                && members.example.disk_ids.get(index) != superblock.disk_ids.get(index)
            {
                members.joining.push(disk);
                continue;
            }
            if members.example.disk_ids.get(index) != superblock.disk_ids.get(index) {
                return foreign(format!(
                    "{path} has another identity than disk {index} of disk group {}; check the list of disks",
                    superblock.group_id
                ));
            }
            if members.engines[index].is_some() {
                return foreign(format!(
                    "{path} has the identity of another configured disk (disk {index}); list each disk once"
                ));
            }
            members.engines[index] = Some(disk);
            members.superblocks[index] = Some(superblock);
        }
        Ok(members)
    }

    fn not_a_member(&self, disk: &dyn Disk) -> Error {
        let message = format!(
            "{} is not a disk of group {}: it has no superblock; remove it from the configuration, then add it with cellar \
             group add",
            disk.path().display(),
            self.example.group_id
        );
        Error::new(ErrorKind::ForeignDisk, message)
    }

    /// Returns the parts of a group with copies, and which disks are present. A configured directory that is empty or
    /// absent stands for a missing disk.
    fn parts(&self, preferred_read: Option<String>, patience: Option<Patience>) -> Result<(Parts, Vec<bool>)> {
        let Superblock { group_id, failure_groups, redundancy, .. } = &self.example;
        let present: Vec<bool> = self.engines.iter().map(Option::is_some).collect();
        let mut unknown = self.unknown.iter();
        let mut engine = |engine: &Option<Arc<dyn Disk>>| -> Arc<dyn Disk> {
            let mut path = || unknown.next().map_or_else(|| "an unknown path".into(), |disk| disk.path().to_owned());
            engine.clone().unwrap_or_else(|| Arc::new(AbsentDisk::new(path())))
        };
        let engines = self.engines.iter().map(&mut engine).collect();
        if let Some(surplus) = unknown.next() {
            return Err(self.not_a_member(surplus.as_ref()));
        }
        let (failure_groups, sets) =
            (failure_groups.clone(), failure_groups::copy_sets(failure_groups, redundancy.copies())?);
        Ok((Parts { group_id: *group_id, engines, failure_groups, sets, preferred_read, patience }, present))
    }
}

/// Returns the superblock that describes the group: the newest of a disk that is ready, if there is one.
fn example_of(found: &[Option<Superblock>]) -> &Superblock {
    let ready = newest(found.iter().flatten().filter(|superblock| superblock.state == State::Ready));
    ready.or(found.iter().flatten().next()).expect("one disk has a superblock")
}

fn newest<'a>(superblocks: impl Iterator<Item = &'a Superblock>) -> Option<&'a Superblock> {
    // The first one of equal generations.
    superblocks.min_by_key(|superblock| std::cmp::Reverse(superblock.generation))
}

/// Checks that the configuration agrees with what the group was formed with.
fn check_options(
    disks: &[Arc<dyn Disk>],
    found: &[Option<Superblock>],
    example: &Superblock,
    options: &GroupOptions,
) -> Result<()> {
    let refused = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if example.redundancy != options.redundancy {
        return refused(format!(
            "disk group {} has redundancy \"{}\", but \"{}\" is configured; the redundancy of a group cannot be changed, \
             so write redundancy = \"{}\"",
            example.group_id, example.redundancy, options.redundancy, example.redundancy
        ));
    }
    let configured = options.failure_groups.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    for ((disk, superblock), configured) in disks.iter().zip(found).zip(configured) {
        let stored = superblock.as_ref().and_then(|found| found.failure_groups.get(usize::from(found.index)));
        if let (Some(stored), Some(configured)) = (stored, configured)
            && stored != configured
        {
            return refused(format!(
                "cell disk {} is in failure group \"{stored}\", but \"{configured}\" is configured; the failure group of a \
                 disk cannot be changed",
                disk.path().display()
            ));
        }
    }
    Ok(())
}

/// Checks that every disk without a superblock is blank.
fn check_blank<'a>(disks: impl Iterator<Item = &'a dyn Disk>, found: &[Option<Superblock>]) -> Result<()> {
    for (disk, superblock) in disks.zip(found) {
        let path = disk.path().display();
        if superblock.is_none() && !disk.is_blank().context(|| format!("could not read cell disk {path}"))? {
            let message = format!("{path} is neither empty nor a cell disk; name an empty directory or a blank device");
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
    }
    Ok(())
}

/// Locks each disk and reads its superblock. A disk that cannot be read counts as one without a superblock if another
/// disk belongs to a group with copies.
fn lock_and_read<'a>(disks: impl Iterator<Item = &'a dyn Disk>) -> Result<Vec<Option<Superblock>>> {
    let read = |disk: &dyn Disk| {
        let path = disk.path().display();
        if !disk.lock().context(|| format!("could not lock cell disk {path}"))? {
            let message = format!("cell disk {path} is in use by another cell daemon; stop that daemon first");
            return Err(Error::new(ErrorKind::Locked, message));
        }
        Superblock::read(disk)
    };
    let results: Vec<Result<Option<Superblock>>> = disks.map(read).collect();
    let has_copies = results
        .iter()
        .any(|result| matches!(result, Ok(Some(superblock)) if superblock.redundancy != Redundancy::External));
    let tolerate = |result: Result<Option<Superblock>>| match result {
        Err(error) if has_copies && error.kind() != ErrorKind::Locked => {
            log::error!("{error}; the disk counts as missing");
            Ok(None)
        }
        result => result,
    };
    results.into_iter().map(tolerate).collect()
}
