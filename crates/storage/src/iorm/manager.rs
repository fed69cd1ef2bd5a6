//! The resource manager of a cell: its plan, the names of databases and groups, the devices, and what each class did.

use super::calibration::{self, Calibration};
use super::cost::CostModel;
use super::counters::{ClassCounters, CountsBySize};
pub use super::counters::{Counted, Medium};
use super::device::DeviceQueue;
pub use super::device::DeviceReport;
use super::names::Names;
use super::process_groups::ProcessGroups;
use super::{FlashLimits, Objective, Plan};
use crate::disk::{Disk, ModelParameters, on_each, within};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::request::{DatabaseId, GroupId, IoSize};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The note in which disks keep the plan.
const NOTE: &str = "iorm-plan";
/// Groups beyond this number share the entry of OTHER.
const GROUPS_MAX: usize = 1024;
/// Disks that are measured at the same time, and the time limit for one: a hanging disk does not answer.
const CALIBRATED_AT_ONCE: usize = 4;
const CALIBRATION_MAX: Duration = Duration::from_secs(90);

/// The counters of a database, a consumer group and a size at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassCounts {
    pub database: String,
    /// Identifies the database as long as the cell runs, also if its name changes.
    pub database_id: String,
    pub group: String,
    pub size: IoSize,
    /// On cell disks.
    pub disk: Counted,
    /// On flash disks.
    pub flash: Counted,
}

#[derive(Debug)]
pub struct Iorm {
    /// With its number, which each change increases.
    plan: Mutex<(u64, Plan)>,
    /// Held while a plan is kept, which waits for the disks.
    change: Mutex<()>,
    names: RwLock<Names>,
    groups: RwLock<Vec<String>>,
    /// Increased when a database gets another number.
    numbering: AtomicU64,
    process_groups: Arc<ProcessGroups>,
    devices: RwLock<Vec<Device>>,
    /// Held while disks are calibrated.
    calibrating: Mutex<()>,
    counters: Arc<ClassCounters>,
    flash_limits: Arc<FlashLimits>,
}

/// A disk with its queue. The group owns the disk: one that failed or was dropped is closed.
type Device = (Weak<dyn Disk>, Arc<DeviceQueue>);

/// What a calibration found out about a disk.
#[derive(Debug)]
pub struct DeviceCalibration {
    pub path: PathBuf,
    pub medium: Medium,
    /// The rates are those of the device model; otherwise they were measured.
    pub is_model: bool,
    /// The costs of a disk that could not be measured are unchanged.
    pub rates: Result<Calibration>,
}

impl Default for Iorm {
    fn default() -> Self {
        Self::new(Objective::Off)
    }
}

impl Iorm {
    /// Creates the resource manager of a cell whose configuration has an objective, which applies until a plan is set.
    pub fn new(objective: Objective) -> Self {
        let groups = ["OTHER_GROUPS", "_ORACLE_BACKGROUND_GROUP_", "_ORACLE_LOWPRIBG_GROUP_"].map(str::to_owned);
        Self {
            plan: Mutex::new((0, Plan { objective, databases: Vec::new() })),
            change: Mutex::default(),
            names: RwLock::new(Names::new("_OTHER_DATABASE_")),
            groups: RwLock::new(groups.into()),
            numbering: AtomicU64::default(),
            process_groups: Arc::default(),
            devices: RwLock::default(),
            calibrating: Mutex::default(),
            counters: Arc::default(),
            flash_limits: Arc::default(),
        }
    }

    pub fn plan(&self) -> Plan {
        self.plan.lock().1.clone()
    }

    /// Returns the number of the database whose files are below `root`.
    pub fn database(&self, root: &str, oid: u32) -> DatabaseId {
        if let Some(found) = self.names.read().find(root, oid) {
            return found;
        }
        let (id, is_new) = self.names.write().find_or_add(root, oid);
        if is_new {
            self.apply_to(id);
        }
        id
    }

    /// The limits of databases in the flash cache, which follow the plan.
    pub fn flash_limits(&self) -> Arc<FlashLimits> {
        self.flash_limits.clone()
    }

    /// Records the names of all databases of a cluster by OID, and the roots of the cluster's files: the data directory, and the
    /// version directories of tablespaces.
    pub fn name_cluster(&self, roots: &[String], names: &[(u32, String)]) {
        let (changed, is_renumbered) = self.names.write().name_cluster(roots, names);
        if is_renumbered {
            self.numbering.fetch_add(1, Ordering::Release);
        }
        changed.into_iter().for_each(|id| self.apply_to(id));
    }

    /// Returns a number that changes when a database gets another number: call [`Self::database`] again then.
    pub fn numbering(&self) -> u64 {
        self.numbering.load(Ordering::Acquire)
    }

    /// Returns root, OID and name of each database with a known name, for each root of its files.
    pub fn database_names(&self) -> Vec<(String, u32, String)> {
        self.names.read().known()
    }

    pub fn process_groups(&self) -> &Arc<ProcessGroups> {
        &self.process_groups
    }

    /// Returns the number of a consumer group.
    pub fn group(&self, name: &str) -> GroupId {
        let position = |groups: &Vec<String>| groups.iter().position(|group| group == name);
        if let Some(found) = position(&self.groups.read()) {
            return GroupId(found as u32);
        }
        let mut groups = self.groups.write();
        let found = match position(&groups) {
            Some(found) => found,
            None if groups.len() >= GROUPS_MAX => return GroupId::OTHER,
            None => {
                groups.push(name.to_owned());
                groups.len() - 1
            }
        };
        GroupId(found as u32)
    }

    /// Adds the queue of a device of a medium. `model` is the device model of the disk, with real seconds per model second.
    pub(crate) fn add_device(
        &self,
        disk: &Arc<dyn Disk>,
        medium: Medium,
        model: Option<(&ModelParameters, f64)>,
    ) -> Arc<DeviceQueue> {
        let costs = model.map_or_else(CostModel::ordinary, |(model, scale)| CostModel::of_model(model, scale));
        let costs = if model.is_none() { calibration::read(disk.as_ref()).unwrap_or(costs) } else { costs };
        let queue = Arc::new(DeviceQueue::new(disk.path(), medium, costs, self.counters.clone()));
        let mut devices = self.devices.write();
        // A disk that is opened again replaces the one at its path.
        devices.retain(|(known, _)| known.upgrade().is_some_and(|known| known.path() != disk.path()));
        devices.push((Arc::downgrade(disk), queue.clone()));
        drop(devices);
        self.apply();
        queue
    }

    /// Reads the plan that the disks kept. Call this once the disks are locked.
    pub fn load(&self) {
        let read = |disk: Arc<dyn Disk>| {
            let note = disk.read_note(NOTE).ok().flatten()?;
            Plan::from_note(&note)
                .inspect_err(|error| log::error!("cell disk {}: {error}; the plan is ignored", disk.path().display()))
                .ok()
        };
        let newest = self.disks().into_iter().filter_map(read).max_by_key(|(number, _)| *number);
        if let Some(newest) = newest {
            *self.plan.lock() = newest;
        }
        self.disks().iter().for_each(|disk| calibration::remove_left_over(disk.as_ref()));
        // A device has notes only once it is locked.
        for (disk, queue) in self.open_devices().into_iter().filter(|(disk, _)| disk.model_status().is_none()) {
            if let Some(costs) = calibration::read(disk.as_ref()).filter(|costs| *costs != queue.costs()) {
                queue.set_costs(costs);
            }
        }
        self.apply();
    }

    /// Keeps a plan on the disks, and applies it. At least one disk must have kept it.
    pub(super) fn keep(&self, plan: Plan) -> Result<()> {
        let _change = self.change.lock();
        let number = self.plan.lock().0 + 1;
        let note = plan.to_note(number);
        let mut kept = Err(Error::new(ErrorKind::Invalid, "the cell has no disk to keep the plan on"));
        for disk in self.disks() {
            let written = disk.write_note(NOTE, &note);
            let written = written.context(|| format!("could not keep the plan on cell disk {}", disk.path().display()));
            if let Err(error) = &written {
                log::warn!("{error}");
            }
            kept = if kept.is_ok() { kept } else { written };
        }
        kept?;
        *self.plan.lock() = (number, plan);
        self.apply();
        Ok(())
    }

    /// Measures the disks that `is_used` accepts, and uses their costs from now on. Disks with a device model are not measured. Fails
    /// if none can be measured.
    pub fn calibrate(&self, is_used: impl Fn(&Path, Medium) -> bool) -> Result<Vec<DeviceCalibration>> {
        let _one_at_a_time = self.calibrating.try_lock().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "the disks are being calibrated; repeat the command when that has ended")
        })?;
        let calibrated = |(disk, queue): &(Arc<dyn Disk>, Arc<DeviceQueue>)| {
            let is_model = disk.model_status().is_some();
            let rates = match is_model {
                true => Ok(Calibration::of_costs(&queue.costs(), None)),
                false => measured(disk).map(|(costs, rates)| {
                    queue.set_costs(costs);
                    rates
                }),
            };
            DeviceCalibration { path: disk.path().to_owned(), medium: queue.medium(), is_model, rates }
        };
        let mut devices = self.open_devices();
        devices.retain(|(disk, queue)| is_used(disk.path(), queue.medium()));
        let of_some = |some: &[_]| on_each(some, calibrated);
        let found: Vec<DeviceCalibration> = devices.chunks(CALIBRATED_AT_ONCE).flat_map(of_some).collect();
        match found.iter().any(|device| device.rates.is_ok()) {
            true => Ok(found),
            false => found.into_iter().find_map(|device| device.rates.err()).map_or(Ok(Vec::new()), Err),
        }
    }

    fn open_devices(&self) -> Vec<(Arc<dyn Disk>, Arc<DeviceQueue>)> {
        let devices = self.devices.read();
        devices.iter().filter_map(|(disk, queue)| Some((disk.upgrade()?, queue.clone()))).collect()
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.open_devices().into_iter().map(|(disk, _)| disk).collect()
    }

    fn queues(&self) -> Vec<Arc<DeviceQueue>> {
        let devices = self.devices.read();
        devices.iter().filter(|(disk, _)| disk.strong_count() > 0).map(|(_, queue)| queue.clone()).collect()
    }

    fn apply(&self) {
        let (plan, count) = (self.plan(), self.names.read().len());
        (0..count as u32).for_each(|id| self.apply_to(DatabaseId(id)));
        self.queues().iter().for_each(|queue| queue.set_objective(plan.objective));
    }

    fn apply_to(&self, id: DatabaseId) {
        let (plan, names) = (self.plan(), self.names.read().of_plan(id));
        self.flash_limits.set(id, plan.flash_limit(id, &names));
        let terms = plan.terms(id, &names);
        self.queues().iter().for_each(|queue| queue.set_terms(id, terms));
    }

    pub fn devices(&self) -> Vec<DeviceReport> {
        self.queues().iter().map(|queue| queue.report()).collect()
    }

    /// Returns name and key of each database with its part of some figures by number. Parts of a database with several numbers are added.
    pub fn named(&self, of: &HashMap<DatabaseId, u64>) -> Vec<(String, String, u64)> {
        let (names, mut sums) = (self.names.read(), BTreeMap::new());
        for (id, value) in of {
            *sums.entry((names.label(*id), names.key(*id).to_owned())).or_default() += value;
        }
        sums.into_iter().map(|((name, key), sum)| (name, key, sum)).collect()
    }

    /// Returns the counters of all classes. Counters of one number never become those of another, so several databases can have the
    /// same name: one that was dropped, or parts of one that were counted before its cluster was known.
    pub fn counts(&self) -> Vec<ClassCounts> {
        let (names, groups) = (self.names.read(), self.groups.read());
        let named = self.counters.counts().into_iter().map(|((database, group), sizes)| {
            let group = groups[group.0 as usize].clone();
            ((names.label(database), names.key(database).to_owned(), group), sizes)
        });
        let classes: BTreeMap<(String, String, String), CountsBySize> = named.collect();
        let of_class = |((database, database_id, group), sizes): ((String, String, String), CountsBySize)| {
            IoSize::ALL.map(|size| {
                let (disk, flash) = (sizes.of(Medium::Disk, size), sizes.of(Medium::Flash, size));
                let (database, database_id, group) = (database.clone(), database_id.clone(), group.clone());
                ClassCounts { database, database_id, group, size, disk, flash }
            })
        };
        classes.into_iter().flat_map(of_class).collect()
    }
}

/// Measures a disk in another thread, which stays if the disk hangs.
fn measured(disk: &Arc<dyn Disk>) -> Result<(CostModel, Calibration)> {
    let other = disk.clone();
    within(CALIBRATION_MAX, move || Ok(calibration::measure(other.as_ref())))
        .context(|| format!("could not calibrate disk {}", disk.path().display()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DirectoryDisk;
    use crate::request::Origin;

    #[test]
    fn a_plan_is_kept_on_the_disks_and_the_newest_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let disks: Vec<Arc<dyn Disk>> = ["a", "b"]
            .map(|name| Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap()) as Arc<dyn Disk>)
            .into();
        let open = |disks: &[Arc<dyn Disk>]| {
            let iorm = Iorm::new(Objective::Off);
            disks.iter().for_each(|disk| drop(iorm.add_device(disk, Medium::Disk, None)));
            iorm.load();
            iorm
        };
        let first = open(&disks);
        first.alter(Some("balanced"), Some("((name=a,share=3))")).unwrap();
        assert!(first.alter(Some("auto"), Some("((name=a,share=0))")).is_err(), "an invalid part changes nothing");
        assert_eq!(first.plan().objective, Objective::Balanced);
        // The second disk misses a change.
        open(&disks[..1]).alter(Some("low_latency"), None).unwrap();
        let again = open(&disks);
        assert_eq!((again.plan().objective, again.dbplan()), (Objective::LowLatency, "((name=a,share=3))".into()));
        again.alter(None, Some("")).unwrap();
        assert_eq!(open(&disks[1..]).dbplan(), "");
        assert!(Iorm::default().alter(Some("auto"), None).is_err(), "no disk keeps the plan");
    }

    #[test]
    fn a_disk_that_cannot_be_measured_leaves_the_others_their_new_costs() {
        let folder = tempfile::tempdir().unwrap();
        let disks: Vec<Arc<dyn Disk>> = ["a", "b", "c"]
            .map(|name| Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap()) as Arc<dyn Disk>)
            .into();
        let iorm = Iorm::default();
        disks.iter().for_each(|disk| drop(iorm.add_device(disk, Medium::Disk, None)));
        // A file that cannot be replaced, and one that a process left that was killed.
        std::fs::create_dir(folder.path().join("b/calibration")).unwrap();
        std::fs::write(folder.path().join("a/calibration"), [1; 9]).unwrap();
        let found = iorm.calibrate(|path, _| !path.ends_with("c")).unwrap();
        let is_measured: Vec<_> = found.iter().map(|device| (&*device.path, device.rates.is_ok())).collect();
        assert_eq!(is_measured, [(disks[0].path(), true), (disks[1].path(), false)]);
        std::fs::write(folder.path().join("a/calibration"), [1; 9]).unwrap();
        iorm.load();
        assert!(!folder.path().join("a/calibration").exists());
    }

    #[test]
    fn a_disk_that_its_group_closed_has_no_queue() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| {
            let directory: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap());
            directory
        });
        let iorm = Iorm::default();
        for disk in [&first, &second] {
            iorm.add_device(disk, Medium::Disk, None);
        }
        let closed = Arc::downgrade(&second);
        drop(second);
        assert!(closed.upgrade().is_none(), "nothing else keeps the disk open");
        let paths: Vec<_> = iorm.devices().into_iter().map(|device| device.path).collect();
        assert_eq!(paths, [folder.path().join("a")]);
        iorm.alter(Some("auto"), None).unwrap();
    }

    #[test]
    fn what_was_counted_has_the_names_of_database_and_group() {
        let iorm = Iorm::default();
        let (first, second) = (iorm.database("", 16384), iorm.database("space", 16384));
        assert!(first != second && first != DatabaseId::OTHER && iorm.database("", 16384) == first);
        let group = iorm.group("reports");
        assert_eq!((iorm.group("reports"), iorm.group("OTHER_GROUPS")), (group, GroupId::OTHER));
        for database in [first, second] {
            let origin = Origin { database, group, ..Origin::default() };
            iorm.counters.count(
                origin,
                Medium::Disk,
                IoSize::Large,
                Counted { requests: 1, bytes: 5, ..Counted::default() },
            );
        }
        let large = |iorm: &Iorm| -> Vec<(String, String, String, u64)> {
            let large = iorm.counts().into_iter().filter(|class| class.size == IoSize::Large);
            large.map(|class| (class.database, class.database_id, class.group, class.disk.bytes)).collect()
        };
        let of = |database: &str, id: &str| (database.to_owned(), id.to_owned(), "reports".to_owned(), 5);
        assert_eq!(large(&iorm), [of("16384", "16384"), of("space/16384", "space/16384")]);
        let bytes = iorm.named(&HashMap::from([(first, 5), (DatabaseId::OTHER, 7)]));
        assert_eq!(bytes.len(), 2);
        assert!(bytes.contains(&("16384".into(), "16384".into(), 5)), "{bytes:?}");
        let before = iorm.numbering();
        iorm.name_cluster(&["".into(), "space".into()], &[(16384, "sales".into())]);
        assert_eq!(large(&iorm), [of("sales", "16384"), of("sales", "space/16384")], "the counters stay apart");
        assert!(iorm.numbering() != before && iorm.database("space", 16384) == first);
    }
}
