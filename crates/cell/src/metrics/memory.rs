//! Metrics of the memory budget, collected when a client reads the metrics.

use std::fmt;
use std::sync::Arc;

use cellar_storage::Volume;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

use crate::state::MemoryBudget;
use crate::state::memory::MemoryUse;

pub struct MemoryMetrics {
    pub volume: Arc<Volume>,
    pub budget: Arc<MemoryBudget>,
}

impl fmt::Debug for MemoryMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryMetrics")
    }
}

/// One gauge of every kind of memory.
struct Family<'a> {
    usage: &'a [MemoryUse],
    value: fn(&MemoryUse) -> u64,
}

impl EncodeMetric for Family<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for usage in self.usage {
            encoder.encode_family(&[("kind", usage.kind.name())])?.encode_gauge(&((self.value)(usage) as i64))?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl Collector for MemoryMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let usage = self.budget.usage(self.volume.cache_stats().used_bytes);
        let mut by_kind = |name: &str, help: &str, value: fn(&MemoryUse) -> u64| {
            let family = Family { usage: &usage, value };
            let metric = encoder.encode_descriptor(name, help, None, family.metric_type())?;
            family.encode(metric)
        };
        by_kind("memory_used_bytes", "Memory in use, by kind", |usage| usage.used_bytes)?;
        by_kind("memory_limit_bytes", "Limit of the memory budget, by kind", |usage| usage.limit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::state::MemoryKind;
    use cellar_storage::VolumeOptions;
    use cellar_storage::disk::{DirectoryDisk, Disk};

    #[test]
    fn every_kind_of_memory_has_its_use_and_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()) as Arc<dyn Disk>;
        let volume = Volume::open(vec![disk], VolumeOptions::default()).unwrap();
        let budget = Arc::new(MemoryBudget::new(1 << 20, 8 << 20));
        budget.account(MemoryKind::Groups).add(4711);
        let text = Metrics::new(Some((volume, budget)), Arc::default()).render().unwrap();
        assert!(text.contains("cellar_memory_used_bytes{kind=\"groups\"} 4711\n"), "{text}");
        assert!(text.contains("cellar_memory_limit_bytes{kind=\"groups\"} 2097152\n"), "{text}");
        for kind in MemoryKind::ALL {
            assert!(text.contains(&format!("cellar_memory_limit_bytes{{kind=\"{}\"}}", kind.name())), "{text}");
        }
    }
}
