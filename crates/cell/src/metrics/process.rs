//! Metrics of the daemon: what it is, when it was started, and its use of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::Source;
use super::family::{Family, Value};
use crate::config::Config;

pub struct ProcessMetrics {
    name: String,
    mount: String,
    started_seconds: f64,
}

impl ProcessMetrics {
    pub fn new(config: &Config) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mount = config.mount.display().to_string();
        Self { name: config.name.clone(), mount, started_seconds: started.as_secs_f64() }
    }
}

impl Source for ProcessMetrics {
    fn families(&self) -> Vec<Family> {
        let labels = || {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            vec![("name", self.name.clone()), ("mount", self.mount.clone()), ("version", version)]
        };
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        vec![
            Family::gauge("cellar_cell_info", "Name, mount and version of the cell; the value is 1")
                .with([1], |value| (labels(), Value::Integer(value))),
            Family::gauge("cellar_start_time_seconds", "Start of the daemon, in seconds since 1970")
                .value(Value::Real(self.started_seconds)),
            Family::counter("cellar_cpu_seconds_total", "CPU time of the daemon").value(Value::Real(cpu_seconds)),
        ]
    }
}
