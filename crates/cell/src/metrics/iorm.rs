//! Metrics of I/O resource management, by class.

use std::sync::Arc;

use cellar_storage::iorm::{ClassCounts, Iorm};

use super::Source;
use super::family::{Family, Value};

pub struct IormMetrics {
    pub iorm: Arc<Iorm>,
}

impl Source for IormMetrics {
    fn families(&self) -> Vec<Family> {
        let (counts, mode) = (self.iorm.counts(), self.iorm.plan().objective.mode());
        let of_class = |value: fn(&ClassCounts) -> Value| {
            move |class: &ClassCounts| {
                let (database, group, size) =
                    (class.database.clone(), class.group.clone(), class.size.name().to_owned());
                (vec![("database", database), ("consumer_group", group), ("size", size)], value(class))
            }
        };
        vec![
            Family::gauge("cellar_iorm_mode_number", "Objective of resource management: Oracle's IORM_MODE, 0 for off")
                .value(Value::Integer(mode)),
            Family::counter("cellar_iorm_requests_total", "Requests to cell disks that resource management ordered")
                .with(&counts, of_class(|class| Value::Integer(class.requests))),
            Family::counter("cellar_iorm_bytes_total", "Bytes of requests that resource management ordered")
                .with(&counts, of_class(|class| Value::Integer(class.counted.bytes))),
            Family::counter(
                "cellar_iorm_wait_seconds_total",
                "Time that requests waited in the queues of the cell disks",
            )
            .with(&counts, of_class(|class| Value::Real(class.counted.waited_ns as f64 / 1e9))),
            Family::counter("cellar_iorm_device_seconds_total", "Device time that requests are charged with")
                .with(&counts, of_class(|class| Value::Real(class.counted.device_ns as f64 / 1e9))),
        ]
    }
}
