//! Metrics of I/O resource management, by class.

use std::sync::Arc;

use cellar_storage::Volume;
use cellar_storage::iorm::{ClassCounts, Iorm};

use super::Source;
use super::family::{Family, Value};

pub struct IormMetrics {
    pub iorm: Arc<Iorm>,
    pub volume: Arc<Volume>,
}

fn seconds(nanoseconds: u64) -> Value {
    Value::Real(nanoseconds as f64 / 1e9)
}

impl Source for IormMetrics {
    fn families(&self) -> Vec<Family> {
        let (counts, mode) = (self.iorm.counts(), self.iorm.plan().objective.mode());
        let of_class = |value: fn(&ClassCounts) -> Value| {
            move |class: &ClassCounts| {
                let labels = vec![
                    ("database", class.database.clone()),
                    ("consumer_group", class.group.clone()),
                    ("size", class.size.name().to_owned()),
                    ("database_id", class.database_id.clone()),
                ];
                (labels, value(class))
            }
        };
        let in_flash = self.iorm.named(&self.volume.flash_bytes_of_databases());
        let of_database = |(name, id, bytes): &(String, String, u64)| {
            (vec![("database", name.clone()), ("database_id", id.clone())], Value::Integer(*bytes))
        };
        let names = self.iorm.database_names();
        let name = |(root, oid, name): &(String, u32, String)| {
            let labels = vec![("root", root.clone()), ("database", oid.to_string()), ("name", name.clone())];
            (labels, Value::Integer(1))
        };
        vec![
            Family::gauge(
                "cellar_database_info",
                "Name of a database whose files the cell serves; the value is always 1",
            )
            .with(&names, name),
            Family::gauge("cellar_iorm_mode_number", "Objective of resource management: Oracle's IORM_MODE, 0 for off")
                .value(Value::Integer(mode)),
            Family::counter("cellar_iorm_requests_total", "Requests to cell disks")
                .with(&counts, of_class(|class| Value::Integer(class.disk.requests))),
            Family::counter("cellar_iorm_bytes_total", "Bytes of requests to cell disks")
                .with(&counts, of_class(|class| Value::Integer(class.disk.bytes))),
            Family::counter(
                "cellar_iorm_wait_seconds_total",
                "Time that requests waited in the queues of the cell disks",
            )
            .with(&counts, of_class(|class| seconds(class.disk.waited_ns))),
            Family::counter(
                "cellar_iorm_request_seconds_total",
                "Time that requests to cell disks took, without the time in the queues",
            )
            .with(&counts, of_class(|class| seconds(class.disk.took_ns))),
            Family::counter(
                "cellar_iorm_device_seconds_total",
                "Device time of the cell disks that requests are charged with",
            )
            .with(&counts, of_class(|class| seconds(class.disk.device_ns))),
            Family::counter("cellar_iorm_flash_requests_total", "Requests to disks of the flash cache")
                .with(&counts, of_class(|class| Value::Integer(class.flash.requests))),
            Family::counter("cellar_iorm_flash_bytes_total", "Bytes of requests to disks of the flash cache")
                .with(&counts, of_class(|class| Value::Integer(class.flash.bytes))),
            Family::gauge("cellar_iorm_flash_used_bytes", "Bytes of pages of a database in the flash cache")
                .with(&in_flash, of_database),
        ]
    }
}
