//! The resource manager of a cell: its plan, the names of databases and groups, the devices, and what each class did.

use super::cost::CostModel;
use super::counters::{ClassCounters, Counted, CountsBySize};
use super::device::DeviceQueue;
pub use super::device::DeviceReport;
use super::{DatabaseNames, Objective, Plan};
use crate::disk::{Disk, ModelParameters};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::request::{DatabaseId, GroupId, IoSize};
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};

/// The note in which disks keep the plan.
const NOTE: &str = "iorm-plan";
/// Databases and groups beyond these numbers share the entries of OTHER.
const DATABASES_MAX: usize = 4096;
const GROUPS_MAX: usize = 1024;

/// The counters of a database, a consumer group and a size at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassCounts {
    pub database: String,
    pub group: String,
    pub size: IoSize,
    pub requests: u64,
    pub counted: Counted,
}

#[derive(Debug)]
pub struct Iorm {
    /// With its number, which each change increases.
    plan: Mutex<(u64, Plan)>,
    /// Held while a plan is kept, which waits for the disks.
    change: Mutex<()>,
    names: RwLock<Names>,
    devices: RwLock<Vec<Device>>,
    counters: Arc<ClassCounters>,
}

/// A disk with its queue. The group owns the disk: one that failed or was dropped is closed.
type Device = (Weak<dyn Disk>, Arc<DeviceQueue>);

#[derive(Debug)]
struct Names {
    databases: Vec<DatabaseNames>,
    groups: Vec<String>,
}

impl Default for Iorm {
    fn default() -> Self {
        Self::new(Objective::Off)
    }
}

impl Iorm {
    /// Creates the resource manager of a cell whose configuration has an objective, which applies until a plan is set.
    pub fn new(objective: Objective) -> Self {
        let other = DatabaseNames { shown: "_OTHER_DATABASE_".into(), name: None };
        let groups = ["OTHER_GROUPS", "_ORACLE_BACKGROUND_GROUP_", "_ORACLE_LOWPRIBG_GROUP_"].map(str::to_owned);
        Self {
            plan: Mutex::new((0, Plan { objective, databases: Vec::new() })),
            change: Mutex::default(),
            names: RwLock::new(Names { databases: vec![other], groups: groups.into() }),
            devices: RwLock::default(),
            counters: Arc::default(),
        }
    }

    pub fn plan(&self) -> Plan {
        self.plan.lock().1.clone()
    }

    /// Returns the number of a database, by the name that LIST DATABASE shows.
    pub fn database(&self, shown: &str) -> DatabaseId {
        let position = |names: &Names| names.databases.iter().position(|names| names.shown == shown);
        if let Some(found) = position(&self.names.read()) {
            return DatabaseId(found as u32);
        }
        let id = {
            let mut names = self.names.write();
            let found = position(&names);
            if found.is_none() && names.databases.len() >= DATABASES_MAX {
                return DatabaseId::OTHER;
            }
            found.unwrap_or_else(|| {
                names.databases.push(DatabaseNames { shown: shown.to_owned(), name: None });
                names.databases.len() - 1
            })
        };
        self.apply_to(DatabaseId(id as u32));
        DatabaseId(id as u32)
    }

    /// Records the name of a database in PostgreSQL.
    pub fn name_database(&self, id: DatabaseId, name: &str) {
        let at = id.0 as usize;
        let is_known = |names: &DatabaseNames| names.name.as_deref() == Some(name);
        if id == DatabaseId::OTHER || self.names.read().databases.get(at).is_none_or(is_known) {
            return;
        }
        self.names.write().databases[at].name = Some(name.to_owned());
        self.apply_to(id);
    }

    /// Returns the number of a consumer group.
    pub fn group(&self, name: &str) -> GroupId {
        let position = |names: &Names| names.groups.iter().position(|group| group == name);
        if let Some(found) = position(&self.names.read()) {
            return GroupId(found as u32);
        }
        let mut names = self.names.write();
        if names.groups.len() >= GROUPS_MAX {
            return GroupId::OTHER;
        }
        let found = position(&names).unwrap_or_else(|| {
            names.groups.push(name.to_owned());
            names.groups.len() - 1
        });
        GroupId(found as u32)
    }

    /// Adds the queue of a device. `model` is the device model of the disk, with real seconds per model second.
    pub(crate) fn add_device(&self, disk: &Arc<dyn Disk>, model: Option<(&ModelParameters, f64)>) -> Arc<DeviceQueue> {
        let costs = model.map_or_else(CostModel::ordinary, |(model, scale)| CostModel::of_model(model, scale));
        let queue = Arc::new(DeviceQueue::new(disk.path(), costs, self.counters.clone()));
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

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.devices.read().iter().filter_map(|(disk, _)| disk.upgrade()).collect()
    }

    fn queues(&self) -> Vec<Arc<DeviceQueue>> {
        let devices = self.devices.read();
        devices.iter().filter(|(disk, _)| disk.strong_count() > 0).map(|(_, queue)| queue.clone()).collect()
    }

    fn apply(&self) {
        let (plan, count) = (self.plan(), self.names.read().databases.len());
        (0..count as u32).for_each(|id| self.apply_to(DatabaseId(id)));
        self.queues().iter().for_each(|queue| queue.set_objective(plan.objective));
    }

    fn apply_to(&self, id: DatabaseId) {
        let terms = self.plan().terms(id, &self.names.read().databases[id.0 as usize]);
        self.queues().iter().for_each(|queue| queue.set_terms(id, terms));
    }

    pub fn devices(&self) -> Vec<DeviceReport> {
        self.queues().iter().map(|queue| queue.report()).collect()
    }

    /// Returns the counters of all classes.
    pub fn counts(&self) -> Vec<ClassCounts> {
        let classes = self.counters.counts();
        let names = self.names.read();
        let of_class = |((database, group), sizes): ((DatabaseId, GroupId), CountsBySize)| {
            let DatabaseNames { shown, name } = &names.databases[database.0 as usize];
            let database = name.as_ref().unwrap_or(shown).clone();
            let group = names.groups[group.0 as usize].clone();
            IoSize::ALL.map(|size| {
                let (requests, counted) = sizes[size as usize];
                ClassCounts { database: database.clone(), group: group.clone(), size, requests, counted }
            })
        };
        classes.into_iter().flat_map(of_class).collect()
    }
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
            disks.iter().for_each(|disk| drop(iorm.add_device(disk, None)));
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
    fn a_disk_that_its_group_closed_has_no_queue() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| {
            let directory: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap());
            directory
        });
        let iorm = Iorm::default();
        for disk in [&first, &second] {
            iorm.add_device(disk, None);
        }
        let closed = Arc::downgrade(&second);
        drop(second);
        assert!(closed.upgrade().is_none(), "nothing else keeps the disk open");
        let paths: Vec<_> = iorm.devices().into_iter().map(|device| device.path).collect();
        assert_eq!(paths, [folder.path().join("a")]);
        iorm.alter(Some("auto"), None).unwrap();
    }

    #[test]
    fn databases_and_groups_keep_their_numbers() {
        let iorm = Iorm::default();
        let (first, second) = (iorm.database("16384"), iorm.database("pg/16385"));
        assert!(first != second && first != DatabaseId::OTHER && iorm.database("16384") == first);
        iorm.name_database(first, "sales");
        let group = iorm.group("reports");
        assert_eq!(iorm.group("reports"), group);
        assert_eq!(iorm.group("OTHER_GROUPS"), GroupId::OTHER);
        let origin = Origin { database: first, group, ..Origin::default() };
        iorm.counters.count(origin, IoSize::Large, Counted { bytes: 5, waited_ns: 6, device_ns: 7 });
        let counts = iorm.counts();
        assert_eq!((counts[0].requests, counts[1].requests), (0, 1));
        assert_eq!((counts[1].database.as_str(), counts[1].group.as_str()), ("sales", "reports"));
        let shown: Vec<_> = (0..2 * DATABASES_MAX).map(|number| iorm.database(&format!("x/{number}"))).collect();
        assert_eq!(shown.last(), Some(&DatabaseId::OTHER), "their number is bounded");
    }
}
