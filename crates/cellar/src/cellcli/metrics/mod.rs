//! Metrics under Oracle's names, computed from the counters of the cell and of the machine.
//!
//! A cumulative metric is a counter since the start of the daemon, a rate is the increase of a counter between two readings, per
//! second or per request, and an instantaneous metric is a value at the moment of the reading. CL_CPUT and CL_CPUT_CS, which are
//! instantaneous in Oracle's terms, are shares of the time between the two readings too.

mod definitions;
mod reading;

pub use definitions::{Definition, definitions};
pub use reading::{Counter, Reading};

use super::value::Value;

/// The value of a metric for one object.
pub struct Observation {
    pub definition: &'static Definition,
    pub object: String,
    pub value: Value,
}

/// Computes all metrics that need one reading. Those that need a second one are pending.
pub fn observe(reading: &Reading) -> Vec<Observation> {
    observations(reading, |definition, object| match definition.needs_two_readings() {
        true => definition.exists(reading, object).then_some(Value::Pending),
        false => definition.at(reading, object),
    })
}

/// Computes all metrics from two readings.
pub fn observe_between(before: &Reading, after: &Reading) -> Vec<Observation> {
    observations(after, |definition, object| match definition.needs_two_readings() {
        true => definition.between(before, after, object),
        false => definition.at(after, object),
    })
}

fn observations(reading: &Reading, value: impl Fn(&'static Definition, &str) -> Option<Value>) -> Vec<Observation> {
    let mut observations = Vec::new();
    for definition in definitions() {
        for object in definition.objects(reading) {
            if let Some(value) = value(definition, &object.key) {
                observations.push(Observation { definition, object: object.name, value });
            }
        }
    }
    observations
}

#[cfg(test)]
mod tests;
