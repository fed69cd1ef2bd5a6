//! The object types of commands. A new type is one more file here and one more line in [`TYPES`].
//!
//! An object type reads its objects from the cell at each command; nothing is kept between commands.

mod alert_definition;
mod alert_history;
mod cell;
mod database;
mod disk_group;
mod disk_group_changes;
mod disks;
mod flash_cache;
mod flash_cache_content;
mod flash_log;
mod iorm_plan;
mod metric_current;
mod metric_definition;
mod metric_history;
mod threshold;

pub use metric_history::{MetricHistory, TIME};

use super::ast::Operation;
use super::connection::Connection;
use super::error::Error;
use super::keyword::resolve;
use super::recorded::{Recorded, Times};
use super::value::Value;

/// The values of an object, in the order of [`ObjectType::attributes`]. The first one is the name.
pub type Object = Vec<Value>;

/// What a condition says before the objects are read.
pub struct Selection<'a> {
    /// Returns whether the condition may hold for an object.
    pub may_hold: &'a dyn Fn(&Object) -> bool,
    /// Returns the times outside of which the condition does not hold because of some attributes.
    pub times: &'a dyn Fn(&[Recorded]) -> Result<Times, Error>,
}

pub trait ObjectType: Sync {
    fn name(&self) -> &'static str;

    /// The name in messages about one object.
    fn title(&self) -> &'static str;

    /// The first attribute is the name.
    fn attributes(&self) -> &'static [&'static str];

    /// What LIST shows without a list of attributes.
    fn default_attributes(&self) -> &'static [&'static str];

    /// Returns the objects. Values that take more time to read may be [`Value::Pending`].
    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error>;

    /// Returns the objects of a selection, and maybe others.
    fn read_selected(&self, cell: &Connection, _selection: &Selection<'_>) -> Result<Vec<Object>, Error> {
        self.read(cell)
    }

    /// Fails if objects of the type cannot have one of these names. A name that only no present object has is no error.
    fn check_names(&self, names: &[String], objects: &[Object]) -> Result<(), Error> {
        let known: Vec<String> = objects.iter().map(|object| object[0].text()).collect();
        match names.iter().find(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            Some(name) => Err(Error::unknown_object(self.name(), name, &known)),
            None => Ok(()),
        }
    }

    /// Reads the pending values of the objects that a condition without these values has not excluded.
    fn complete(&self, _cell: &Connection, objects: Vec<Object>) -> Result<Vec<Object>, Error> {
        Ok(objects)
    }

    /// Returns whether ALTER takes names of objects.
    fn has_names(&self) -> bool {
        true
    }

    /// Why an operation on all objects is an error if the cell has none; None if there is nothing to do then.
    fn absence(&self) -> Option<&'static str> {
        None
    }

    /// The operations of ALTER, for messages and HELP, without the verb and the object type.
    fn alterations(&self) -> &'static [&'static str] {
        &[]
    }

    /// Changes one object, and returns what happened to it: the end of a sentence that starts with its name.
    fn alter(&self, _cell: &Connection, _object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        Err(self.cannot(operation))
    }

    /// The objects that CREATE creates, for HELP, without the verb and the object type. Empty if the type has no CREATE.
    fn creations(&self) -> &'static [&'static str] {
        &[]
    }

    /// Creates an object of a type with [`ObjectType::creations`].
    fn create(&self, _cell: &Connection, _name: &str, _values: &[(String, String)]) -> Result<(), Error> {
        Err(Error::unsupported(format!("CREATE does not create objects of type {}", self.name())))
    }

    /// Returns whether DROP applies to objects of this type.
    fn can_drop(&self) -> bool {
        false
    }

    /// Drops objects of a type for which [`ObjectType::can_drop`] returns true: all of them or none.
    fn drop(&self, _cell: &Connection, _names: Vec<String>) -> Result<(), Error> {
        Err(Error::unsupported(format!("DROP does not drop objects of type {}", self.name())))
    }

    /// Returns the index of an attribute. Names of attributes are not case-sensitive.
    fn attribute(&self, name: &str) -> Result<usize, Error> {
        let found = self.attributes().iter().position(|attribute| attribute.eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::unknown_attribute(self.name(), name, self.attributes()))
    }

    /// Returns the error for an operation that the type does not have.
    fn cannot(&self, operation: &Operation) -> Error {
        let name = self.name();
        let operations = match self.alterations() {
            [] => return Error::unsupported(format!("ALTER does not change {name}")),
            operations => operations.join("; "),
        };
        match operation {
            Operation::Words(words) if words.is_empty() => Error::syntax(None, &operations),
            Operation::Assign(values) => {
                let attributes: Vec<&str> = values.iter().map(|(attribute, _)| attribute.as_str()).collect();
                let attributes = attributes.join(", ");
                Error::unsupported(format!("ALTER {name} cannot assign {attributes}: the operations are {operations}"))
            }
            Operation::Words(words) => {
                let words = words.join(" ");
                Error::unsupported(format!("ALTER {name} does not know \"{words}\": the operations are {operations}"))
            }
        }
    }
}

/// All object types that a cell has.
static TYPES: [&dyn ObjectType; 15] = [
    &cell::Cell,
    &disks::CELL_DISK,
    &disks::GRID_DISK,
    &disk_group::DiskGroup,
    &flash_cache::FlashCache,
    &flash_cache_content::FlashCacheContent,
    &flash_log::FlashLog,
    &database::Database,
    &iorm_plan::IormPlan,
    &alert_definition::AlertDefinitions,
    &alert_history::AlertHistory,
    &threshold::Threshold,
    &metric_definition::MetricDefinition,
    &metric_current::MetricCurrent,
    &metric_history::MetricHistory,
];

/// Object types of Oracle's CellCLI that a cell does not have, and why.
const ABSENT: [(&str, &str); 22] = [
    ("ACTIVEREQUEST", "this cell does not list requests; LIST METRICCURRENT shows their numbers"),
    ("DIAGPACK", "this cell makes no diagnostic packages; its log says what happened"),
    ("DISKMAP", "this cell has no disk map; LIST GRIDDISK shows the disks of the group"),
    ("IBPORT", "this cell has no ports; servers use its mount and its socket"),
    ("IORMPROFILE", "this cell has no profiles; ALTER IORMPLAN has a directive for each database"),
    ("KEY", "this cell has no keys; the operating system tells it the user of a connection"),
    ("LUN", "this cell does not manage devices; LIST CELLDISK shows its disks"),
    ("METRICSTREAM", "this cell sends no metrics; LIST METRICCURRENT and its HTTP endpoint show them"),
    ("OFFLOADGROUP", "this cell has no offload servers; the cell itself scans"),
    ("OFFLOADPACKAGE", "this cell has no offload servers; the cell itself scans"),
    ("PHYSICALDISK", "this cell does not manage devices; LIST CELLDISK shows its disks"),
    ("PLUGGABLEDATABASE", "PostgreSQL has no pluggable databases; LIST DATABASE shows the databases"),
    ("PMEMCACHE", "this cell has no persistent memory; LIST FLASHCACHE shows its flash cache"),
    ("PMEMLOG", "this cell has no persistent memory; LIST FLASHLOG shows its flash log"),
    ("PRIVILEGE", "this cell has no users; the cluster's user and the user that started the cell administer it"),
    ("QUARANTINE", "this cell has no quarantines"),
    ("ROLE", "this cell has no users; the cluster's user and the user that started the cell administer it"),
    ("SOFTWAREHISTORY", "this cell does not install software; LIST CELL ATTRIBUTES releaseVersion shows its version"),
    ("SOFTWAREUPDATE", "this cell does not install software; LIST CELL ATTRIBUTES releaseVersion shows its version"),
    ("USER", "this cell has no users; the cluster's user and the user that started the cell administer it"),
    ("XRMEMCACHE", "this cell has no remote memory cache; LIST CELL DETAIL shows its page cache"),
    ("XRMEMLOG", "this cell has no remote memory log; LIST FLASHLOG shows its flash log"),
];

pub fn types() -> impl Iterator<Item = &'static dyn ObjectType> {
    TYPES.iter().copied()
}

/// The names of the object types that the cell has.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    TYPES.iter().map(|object_type| object_type.name())
}

/// The names of all object types, those that a cell does not have included.
fn all_names() -> impl Iterator<Item = &'static str> + Clone {
    names().chain(ABSENT.iter().map(|(name, _)| *name))
}

/// Returns the name of the object type that a word names or abbreviates. Types that the cell has take precedence. An error says which
/// types the word could mean.
pub fn resolve_name(word: &str) -> Result<&'static str, Vec<&'static str>> {
    match resolve(word, names()) {
        Err(starts) if starts.is_empty() => resolve(word, all_names()),
        found => found,
    }
}

/// Returns the object type with a name of [`all_names`].
pub fn get(name: &str) -> Result<&'static dyn ObjectType, Error> {
    if let Some(object_type) = types().find(|object_type| object_type.name() == name) {
        return Ok(object_type);
    }
    let reason = ABSENT.iter().find(|(absent, _)| *absent == name).map_or("unknown object type", |(_, reason)| *reason);
    Err(Error::absent_type(name, reason))
}
