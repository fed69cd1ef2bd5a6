//! I/O resource management: which request to a device starts next, and which ones wait.
//!
//! Each device has one queue and one controller ([`Scheduler`]). A request belongs to a class: database, consumer group and
//! [`IoKind`](crate::request::IoKind). Databases, the groups of a database and the kinds of a group share the device time by weights; a database may have
//! a limit and a reservation. The controller limits large I/O so that small I/O keeps its latency ([`Objective`]).
//!
//! Invariants: a request waits only while the device has enough work, or because of a limit or of the controller; every
//! request starts at the latest after [`device::WAIT_MAX`]; a thread that must not wait never does. The scheduler reads no clock
//! and starts no thread, so simulations run it in virtual time.
//!
//! `docs/decisions/0033-one-queue-and-one-controller-per-device.md` has the reasons.

mod calibration;
mod controller;
mod cost;
mod counters;
mod device;
mod fair;
mod flash_limits;
mod manager;
mod names;
mod plan;
mod plan_text;
mod process_groups;
mod scheduled_disk;
mod scheduler;
#[cfg(test)]
mod simulation;

pub use calibration::Calibration;
pub(crate) use calibration::remove_left_over;
pub use flash_limits::FlashLimits;
pub use manager::{ClassCounts, Counted, DeviceCalibration, DeviceReport, Iorm, Medium};
pub use plan::{Objective, Plan};
pub use process_groups::{ProcessGroups, ToldGroups};
pub use scheduled_disk::ScheduledDisk;
use scheduler::Scheduler;

/// Time in nanoseconds of a clock that never goes back.
pub type Nanoseconds = u64;

/// Time that a device needs for requests, in seconds: the unit in which classes share a device.
pub type DeviceSeconds = f64;

const SECOND: f64 = 1e9;

/// Large reads are split while small I/O is active, into parts whose length is between these.
const SPLIT_BYTES_MIN: usize = 32 << 10;
const SPLIT_BYTES_MAX: usize = 256 << 10;
