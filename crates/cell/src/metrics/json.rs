//! The JSON form of metrics; `docs/reference/metrics.md` describes the schema.

use super::family::{Family, Sample, Value};
use serde_json::{Map, Value as Json, json};

/// Increased when a field changes its meaning or is removed. New fields and new metrics do not change the version.
pub const SCHEMA_VERSION: u32 = 1;

pub fn json(families: &[Family], time_ms: u64) -> Json {
    let families = families.iter().map(|family| {
        json!({
            "name": family.name,
            "type": family.metric_type.name(),
            "help": family.help,
            "samples": family.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    });
    json!({ "schema_version": SCHEMA_VERSION, "time_ms": time_ms, "metrics": families.collect::<Vec<_>>() })
}

fn sample(sample: &Sample) -> Json {
    let labels: Map<String, Json> =
        sample.labels.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
    match &sample.value {
        Value::Integer(value) => json!({ "labels": labels, "value": value }),
        Value::Real(value) => json!({ "labels": labels, "value": value }),
        Value::Histogram(histogram) => json!({
            "labels": labels,
            "count": histogram.count(),
            "sum": histogram.sum_seconds,
            "buckets": histogram.cumulative().collect::<Vec<_>>(),
        }),
    }
}
