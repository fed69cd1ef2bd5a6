//! A reader of the metrics of a cell in their JSON form.

use serde_json::Value;

/// A document of `/json/metrics`.
#[derive(Clone, Copy)]
pub struct Document<'a>(pub &'a Value);

impl<'a> Document<'a> {
    pub fn samples(&self, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let families = self.0["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let family = families.iter().find(|family| family["name"] == name);
        family.and_then(|family| family["samples"].as_array()).map(Vec::as_slice).unwrap_or_default().iter()
    }

    /// The value of a metric without labels; None if it has no sample.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.samples(name).next().and_then(|sample| sample["value"].as_u64())
    }

    /// The sum of all samples.
    pub fn value(&self, name: &str) -> f64 {
        self.samples(name).filter_map(|sample| sample["value"].as_f64()).fold(0.0, |sum, value| sum + value)
    }

    /// The sum of the samples with a label.
    pub fn labelled(&self, name: &str, label: &str, value: &str) -> f64 {
        let matching = self.samples(name).filter(|sample| sample["labels"][label] == value);
        matching.filter_map(|sample| sample["value"].as_f64()).fold(0.0, |sum, value| sum + value)
    }
}

/// Returns a label of a sample; empty if the sample does not have it.
pub fn label(sample: &Value, name: &str) -> String {
    sample["labels"][name].as_str().unwrap_or_default().to_owned()
}
