//! Metrics of the file service.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Source;
use super::family::{Family, Histogram, Labels, Value};
use crate::fuse::{IoCount, IoStats};
use cellar_format::postgres::Oid;
use cellar_format::wire::FILE_IO_BUCKETS;

pub struct FileMetrics {
    pub io_stats: Arc<IoStats>,
}

/// The operations of one kind in one area, or on the files of one type there.
struct Sum {
    operations: u64,
    bytes: u64,
    microseconds: u64,
    histogram: [u64; FILE_IO_BUCKETS],
}

/// Root, database, file type or an empty string, kind.
type Key = (String, Option<Oid>, &'static str, u8);

/// Returns the sums of counts by key, ordered by key.
fn sums(counts: &[IoCount], key: impl Fn(&IoCount) -> Key) -> Vec<(Labels, Sum)> {
    let mut sums: BTreeMap<Key, (Labels, Sum)> = BTreeMap::new();
    for count in counts {
        let key = key(count);
        let labels = labels(count, key.2);
        let empty = Sum { operations: 0, bytes: 0, microseconds: 0, histogram: [0; FILE_IO_BUCKETS] };
        let (_, sum) = sums.entry(key).or_insert((labels, empty));
        sum.operations += count.operations;
        sum.bytes += count.bytes;
        sum.microseconds += count.microseconds;
        sum.histogram.iter_mut().zip(count.histogram).for_each(|(sum, operations)| *sum += operations);
    }
    sums.into_values().collect()
}

fn labels(count: &IoCount, file_type: &'static str) -> Labels {
    let database = count.area.database.map_or("other".to_owned(), |oid| oid.to_string());
    let mut labels = vec![("root", count.area.root.clone()), ("database", database)];
    if !file_type.is_empty() {
        labels.push(("type", file_type.to_owned()));
    }
    labels.push(("kind", count.kind.name().to_owned()));
    labels
}

impl Source for FileMetrics {
    fn families(&self) -> Vec<Family> {
        let counts = self.io_stats.snapshot();
        let area =
            |count: &IoCount, file_type| (count.area.root.clone(), count.area.database, file_type, count.kind as u8);
        let by_kind = sums(&counts, |count| area(count, ""));
        let by_type = sums(&counts, |count| area(count, count.file_type.name()));
        let integer =
            |value: fn(&Sum) -> u64| move |(labels, sum): &(Labels, Sum)| (labels.clone(), Value::Integer(value(sum)));
        let latency = |(labels, sum): &(Labels, Sum)| {
            let sum_seconds = sum.microseconds as f64 / 1e6;
            (labels.clone(), Value::Histogram(Histogram { buckets: sum.histogram.to_vec(), sum_seconds }))
        };
        vec![
            Family::counter("cellar_file_operations_total", "File operations served, by root, database and kind")
                .with(&by_kind, integer(|sum| sum.operations)),
            Family::counter(
                "cellar_file_bytes_total",
                "Bytes read and written through the mount, by root, database and kind",
            )
            .with(&by_kind, integer(|sum| sum.bytes)),
            Family::histogram(
                "cellar_file_operation_seconds",
                "Service times of file operations, by root, database and kind",
            )
            .with(&by_kind, latency),
            Family::counter(
                "cellar_file_type_operations_total",
                "File operations served, by root, database, file type and kind",
            )
            .with(&by_type, integer(|sum| sum.operations)),
            Family::counter(
                "cellar_file_type_bytes_total",
                "Bytes read and written through the mount, by root, database, file type and kind",
            )
            .with(&by_type, integer(|sum| sum.bytes)),
            Family::counter(
                "cellar_file_type_seconds_total",
                "Service time of file operations, by root, database, file type and kind",
            )
            .with(&by_type, |(labels, sum)| (labels.clone(), Value::Real(sum.microseconds as f64 / 1e6))),
        ]
    }
}
