//! The number of open alerts.

use super::Source;
use super::family::{Family, Value};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct OpenAlerts {
    critical: AtomicU64,
    warning: AtomicU64,
}

impl OpenAlerts {
    pub fn set(&self, critical: u64, warning: u64) {
        self.critical.store(critical, Ordering::Relaxed);
        self.warning.store(warning, Ordering::Relaxed);
    }
}

impl Source for OpenAlerts {
    fn families(&self) -> Vec<Family> {
        let counts = [("critical", &self.critical), ("warning", &self.warning)];
        let help = "Open alerts of the cell, by severity";
        vec![Family::gauge("cellar_open_alerts", help).with(counts, |(severity, count)| {
            (vec![("severity", severity.to_owned())], Value::Integer(count.load(Ordering::Relaxed)))
        })]
    }
}
