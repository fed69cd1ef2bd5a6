//! Metrics of the file service.

use std::sync::Arc;

use super::Source;
use super::family::{Family, Histogram, Labels, Value};
use crate::fuse::{IoCount, IoStats};

pub struct FileMetrics {
    pub io_stats: Arc<IoStats>,
}

fn labels(count: &IoCount) -> Labels {
    let database = count.area.database.map_or("other".to_owned(), |oid| oid.to_string());
    vec![("root", count.area.root.clone()), ("database", database), ("kind", count.kind.name().to_owned())]
}

impl Source for FileMetrics {
    fn families(&self) -> Vec<Family> {
        let mut counts = self.io_stats.snapshot();
        counts.sort_by(|a, b| {
            (&a.area.root, a.area.database, a.kind as u8).cmp(&(&b.area.root, b.area.database, b.kind as u8))
        });
        let latency = |count: &IoCount| Histogram {
            buckets: count.histogram.to_vec(),
            sum_seconds: count.microseconds as f64 / 1e6,
        };
        vec![
            Family::counter("cellar_file_operations_total", "File operations served, by root, database and kind")
                .with(&counts, |count| (labels(count), Value::Integer(count.operations))),
            Family::counter(
                "cellar_file_bytes_total",
                "Bytes read and written through the mount, by root, database and kind",
            )
            .with(&counts, |count| (labels(count), Value::Integer(count.bytes))),
            Family::histogram(
                "cellar_file_operation_seconds",
                "Service times of file operations, by root, database and kind",
            )
            .with(&counts, |count| (labels(count), Value::Histogram(latency(count)))),
        ]
    }
}
