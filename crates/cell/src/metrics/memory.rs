//! Metrics of the memory budget.

use std::sync::Arc;

use cellar_storage::Volume;

use super::Source;
use super::family::{Family, Value};
use crate::state::MemoryBudget;
use crate::state::memory::MemoryUse;

pub struct MemoryMetrics {
    pub volume: Arc<Volume>,
    pub budget: Arc<MemoryBudget>,
}

impl Source for MemoryMetrics {
    fn families(&self) -> Vec<Family> {
        let usage = self.budget.usage(self.volume.cache_stats().used_bytes);
        let of_kind = |value: fn(&MemoryUse) -> u64| {
            move |usage: &MemoryUse| (vec![("kind", usage.kind.name().to_owned())], Value::Integer(value(usage)))
        };
        vec![
            Family::gauge("cellar_memory_used_bytes", "Memory in use, by kind")
                .with(&usage, of_kind(|usage| usage.used_bytes)),
            Family::gauge("cellar_memory_limit_bytes", "Limit of the memory budget, by kind")
                .with(&usage, of_kind(|usage| usage.limit_bytes)),
        ]
    }
}
