//! Metrics of the file service and the page cache, collected when a client reads the metrics.

use std::sync::Arc;

use cellar_storage::{DiskSpace, Volume};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::fuse::{IoCount, IoStats};

pub struct FileMetrics {
    pub volume: Arc<Volume>,
    pub io_stats: Arc<IoStats>,
}

impl std::fmt::Debug for FileMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileMetrics")
    }
}

/// One counter of every [`IoCount`].
struct Family<'a> {
    counts: &'a [IoCount],
    value: fn(&IoCount) -> u64,
}

impl EncodeMetric for Family<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for count in self.counts {
            let labels = labels(count);
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&(self.value)(count), None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// The latency histogram of every [`IoCount`]; buckets end at powers of two microseconds.
struct Latencies<'a>(&'a [IoCount]);

impl EncodeMetric for Latencies<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for count in self.0 {
            let labels = labels(count);
            let last = count.histogram.len() - 1;
            let buckets: Vec<(f64, u64)> = count
                .histogram
                .iter()
                .enumerate()
                .map(
                    |(index, waits)| {
                        if index == last { (f64::MAX, *waits) } else { (((1u64 << index) as f64) / 1e6, *waits) }
                    },
                )
                .collect();
            let seconds = count.microseconds as f64 / 1e6;
            encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                seconds,
                count.operations,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// One gauge of every cell disk.
struct DiskGauges<'a> {
    disks: &'a [DiskSpace],
    value: fn(&DiskSpace) -> u64,
}

impl EncodeMetric for DiskGauges<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for disk in self.disks {
            let labels = [("disk", disk.path.display().to_string())];
            encoder.encode_family(&labels)?.encode_gauge(&((self.value)(disk) as i64))?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

fn labels(count: &IoCount) -> [(&'static str, String); 3] {
    let database = count.area.database.map_or("other".to_owned(), |oid| oid.to_string());
    [("root", count.area.root.clone()), ("database", database), ("kind", count.kind.name().to_owned())]
}

impl Collector for FileMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.io_stats.snapshot();
        let mut family = |name: &str, help: &str, value: fn(&IoCount) -> u64| {
            let family = Family { counts: &counts, value };
            let metric = encoder.encode_descriptor(name, help, None, family.metric_type())?;
            family.encode(metric)
        };
        family("file_operations", "File operations served, by root, database and kind", |count| count.operations)?;
        family("file_bytes", "Bytes read and written through the mount, by root, database and kind", |count| {
            count.bytes
        })?;
        let latencies = Latencies(&counts);
        let metric = encoder.encode_descriptor(
            "file_operation_seconds",
            "Service times of file operations, by root, database and kind",
            None,
            latencies.metric_type(),
        )?;
        latencies.encode(metric)?;

        let cache = self.volume.cache_stats();
        let counters = [
            ("page_cache_hits", "Regions that scans found in the page cache", cache.hits),
            ("page_cache_misses", "Regions that scans had to load", cache.misses),
            ("page_cache_evictions", "Regions that were evicted for other regions", cache.evictions),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("page_cache_capacity_bytes", "Size of the page cache", cache.capacity_bytes),
            ("page_cache_used_bytes", "Bytes of the page cache in use", cache.used_bytes),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let disks = self.volume.disk_spaces();
        let size: fn(&DiskSpace) -> u64 = |disk| disk.total;
        let gauges = [
            ("disk_size_bytes", "Size of the filesystem of a cell disk", size),
            ("disk_available_bytes", "Free space of a cell disk beyond its reserve", |disk| disk.available),
            ("disk_reserve_bytes", "Size of the reserve of a cell disk", |disk| disk.reserve),
            ("disk_reserve_free_bytes", "Free part of the reserve of a cell disk", |disk| disk.reserve_free),
        ];
        for (name, help, value) in gauges {
            let gauges = DiskGauges { disks: &disks, value };
            gauges.encode(encoder.encode_descriptor(name, help, None, gauges.metric_type())?)?;
        }
        Ok(())
    }
}
