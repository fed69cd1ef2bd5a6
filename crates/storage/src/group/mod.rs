//! The disk group: several cell disks used as one. The group determines how the allocation units of a file are striped over
//! the disks, and which disks store the copies of an allocation unit.
//!
//! Invariants: while a [`Group`] lives, its present disks are locked by this process. With external redundancy, all disks
//! are present, and a byte of a file is stored in the backing file of exactly one disk, at the same offset. With copies, exactly
//! one copy set stores the byte ([`mirror`]). The group knows neither names nor caching.

mod changes;
mod failure_groups;
mod file_copies;
mod members;
pub mod mirror;
mod present_disks;
pub mod rebalance;
mod shares;
mod spread;
mod stripe_layout;
mod stripe_order;
mod superblock;

use crate::growing::Growing;
pub use changes::Leaving;
pub use file_copies::{FileCopies, value_name as copies_value};
pub use stripe_layout::{AuSize, Piece, StripeLayout};
pub use stripe_order::StripeOrder;
pub use superblock::{Redundancy, State, Superblock, Uuid};

use crate::disk::{Disk, FileStore};
use crate::error::{Error, ErrorKind, Result};
use crate::flash::{CellDisks, FlashCache, FlashCachedDisk};
use crate::write_back::{WriteBack, WriteBackDisk};
use changes::Records;
use members::{Joining, Members, check_blank, check_options, lock_and_read};
use mirror::{AbsentDisk, Mirror, Parts, Patience};
use parking_lot::{Mutex, RwLock};
use present_disks::PresentDisks;
use rebalance::Placement;
use spread::{SpaceFacts, Spread};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How a group is formed and opened.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// Allocation-unit size of new files. A file keeps the size that it was created with.
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    /// The numbers of copies that files of some types get when the group is formed.
    pub file_copies: Vec<usize>,
    /// The failure group of each disk, in the order of the disks; a disk without one forms its own.
    pub failure_groups: Vec<Option<String>>,
    /// The failure group whose disks are read if possible.
    pub preferred_read: Option<String>,
    /// Opens the group without a majority of the disks that have the newest data.
    pub force_degraded: bool,
    /// With copies: how long the group waits for its disks; None for as long as they take.
    pub patience: Option<Patience>,
}

impl GroupOptions {
    /// Returns the failure groups and the copy sets of a new group; none with external redundancy. Fails if the failure groups
    /// are too few for the redundancy of the group or of a file type.
    pub fn new_copy_sets(&self, disks: usize) -> Result<(Vec<String>, Vec<Vec<u16>>)> {
        if self.redundancy == Redundancy::External {
            return Ok((Vec::new(), Vec::new()));
        }
        let names = failure_groups::names(&self.failure_groups, disks)?;
        let sets_of = |copies: usize, what: String| {
            failure_groups::copy_sets(&names, copies)
                .map_err(|error| Error::new(ErrorKind::Invalid, format!("{what}: {error}")))
        };
        let sets = sets_of(self.redundancy.copies(), format!("redundancy \"{}\"", self.redundancy))?;
        for copies in &self.file_copies {
            sets_of(*copies, "redundancy of file types".into())?;
        }
        Ok((names, sets))
    }
}

#[derive(Debug)]
pub struct Group {
    id: Uuid,
    redundancy: Redundancy,
    disks: Arc<PresentDisks>,
    /// Where the stripes are stored: on the disks, or on the copy sets.
    placement: Arc<Placement>,
    /// What files are striped over.
    stripes: Growing<Arc<dyn FileStore>>,
    records: Mutex<Records>,
    /// Disks that are being dropped: bit n of disk n.
    dropping: AtomicU64,
    /// How many copies new files have.
    copies: RwLock<FileCopies>,
    /// Held while copy sets are added and come into use.
    sets_changing: Mutex<()>,
    /// What new files are striped over, by the number of their copies.
    spread: RwLock<BTreeMap<usize, Spread>>,
    /// Held during updates of `spread`.
    spread_changing: Mutex<()>,
    /// The space of the disks, as far as it was measured.
    space: RwLock<SpaceFacts>,
    joining: Mutex<Vec<Joining>>,
    mirror: Option<Arc<Mirror>>,
    /// Caches the files of the stripes.
    flash: Option<Arc<FlashCache>>,
    write_back: Option<Arc<WriteBack>>,
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
        let members = Members::of(&disks, &found, options.force_degraded)?;
        check_options(&disks, &found, &members.example, options)?;
        let group = match members.example.redundancy {
            Redundancy::External => Self::assemble(members, options.au_size)?,
            Redundancy::Normal | Redundancy::High => {
                let (parts, present) = members.parts(options.preferred_read.clone(), options.patience)?;
                let mirror = Mirror::open(parts, &present, options.force_degraded)?;
                Self::mirrored(mirror, members, options.au_size)
            }
        };
        // A crash in `mark_ready`, or while the disks changed, leaves some disks with an earlier superblock.
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
        let force = options.is_none_or(|options| options.force_degraded);
        let members = Members::of(&disks, &found, force)?;
        options.map_or(Ok(()), |options| check_options(&disks, &found, &members.example, options))?;
        if members.example.redundancy == Redundancy::External {
            return Self::assemble(members, AuSize::DEFAULT);
        }
        let (parts, present) = members.parts(None, None)?;
        let mirror = Mirror::open_read_only(parts, &present, force)?;
        Ok(Self::mirrored(mirror, members, AuSize::DEFAULT))
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
        // Before anything is written: afterwards, the next start would open the group without the failure groups.
        let (failure_groups, sets) = options.new_copy_sets(disks.len())?;
        let superblocks = Superblock::for_new_group(disks.len(), au_size, redundancy, &failure_groups)?;
        for (disk, superblock) in disks.iter().zip(&superblocks) {
            superblock.write(disk.as_ref())?;
        }
        let (group_id, dropped) = (superblocks[0].group_id, 0);
        let superblocks = superblocks.into_iter().map(Some).collect();
        let members = Members::formed(disks, superblocks);
        if redundancy == Redundancy::External {
            return Ok((Self::assemble(members, au_size)?, true));
        }
        let (preferred_read, patience) = (options.preferred_read.clone(), options.patience);
        let engines = members.engines.iter().flatten().cloned().collect();
        let parts = Parts { group_id, engines, failure_groups, sets, dropped, preferred_read, patience };
        let mirror = Mirror::form(parts)?;
        Ok((Self::mirrored(mirror, members, au_size), true))
    }

    fn mirrored(mirror: Arc<Mirror>, members: Members, au_size: AuSize) -> Self {
        let (disks, sets) = (mirror.disks().cloned().collect(), mirror.copy_sets());
        Self::on(disks, sets, members, Some(mirror), au_size)
    }

    fn on(
        disks: Vec<Arc<dyn Disk>>,
        containers: Vec<Arc<dyn FileStore>>,
        members: Members,
        mirror: Option<Arc<Mirror>>,
        au_size: AuSize,
    ) -> Self {
        let Superblock { group_id: id, redundancy, dropped, .. } = members.example;
        let (all, dropped) = (Growing::new(disks), AtomicU64::new(dropped));
        let disks = Arc::new(PresentDisks { all, dropped, mirror: mirror.clone() });
        let placement = Placement::new(containers);
        let stripes = (0..placement.containers().len() as u16).map(|stripe| placement.stripe(stripe)).collect();
        let group = Self {
            id,
            redundancy,
            disks,
            placement,
            stripes: Growing::new(stripes),
            joining: Mutex::new(members.joining),
            records: Mutex::new(Records::new(members.example, &members.superblocks)),
            dropping: AtomicU64::new(0),
            copies: RwLock::new(FileCopies::restore(redundancy, &BTreeMap::new())),
            sets_changing: Mutex::default(),
            spread: RwLock::default(),
            spread_changing: Mutex::default(),
            space: RwLock::default(),
            mirror,
            flash: None,
            write_back: None,
            au_size,
        };
        group.set_dropping(0);
        group
    }

    fn assemble(members: Members, au_size: AuSize) -> Result<Self> {
        members.check_unused(members.unknown.iter())?;
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
        let engine =
            |engine: &Option<Arc<dyn Disk>>| engine.clone().unwrap_or_else(|| Arc::new(AbsentDisk::new("dropped")));
        let disks: Vec<Arc<dyn Disk>> = members.engines.iter().map(engine).collect();
        let containers = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn FileStore>).collect();
        Ok(Self::on(disks, containers, members, None, au_size))
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// Returns the disks, in the order of their numbers, also dropped ones.
    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        self.disks.all.all()
    }

    /// Returns the disks that can be used now.
    pub fn accessible_disks(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.accessible().into_iter().map(|(_, disk)| disk).collect()
    }

    /// Returns what the flash cache knows of the disks.
    pub fn cell_disks(&self) -> Arc<dyn CellDisks> {
        self.disks.clone()
    }

    /// Returns what files are striped over, in the order of their numbers.
    pub fn stripes(&self) -> &[Arc<dyn FileStore>] {
        self.stripes.all()
    }

    /// Puts a flash cache in front of the stripes. Before the first file is opened.
    pub fn cache_in(&mut self, flash: Arc<FlashCache>) {
        self.flash = Some(flash);
        let stripes = (0..self.stripes.all().len() as u16).map(|stripe| self.stripe(stripe)).collect();
        self.stripes = Growing::new(stripes);
    }

    /// Lets small writes to the stripes go to a write-back log. Before the first file is opened.
    pub fn write_back_in(&mut self, write_back: Arc<WriteBack>) {
        self.write_back = Some(write_back);
        let stripes = (0..self.stripes.all().len() as u16).map(|stripe| self.stripe(stripe)).collect();
        self.stripes = Growing::new(stripes);
    }

    pub fn write_back(&self) -> Option<&Arc<WriteBack>> {
        self.write_back.as_ref()
    }

    /// Returns the flash cache in front of the stripes.
    pub fn flash(&self) -> Option<&Arc<FlashCache>> {
        self.flash.as_ref()
    }

    /// Returns a stripe of the placement, behind the flash cache and write-back if they are in use.
    fn stripe(&self, stripe: u16) -> Arc<dyn FileStore> {
        let disk = self.placement.stripe(stripe);
        let cached: Arc<dyn FileStore> = match &self.flash {
            Some(flash) => Arc::new(FlashCachedDisk::new(disk, stripe, flash.clone())),
            None => disk,
        };
        match &self.write_back {
            Some(write_back) => Arc::new(WriteBackDisk::new(cached, stripe, write_back.clone())),
            None => cached,
        }
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
}
