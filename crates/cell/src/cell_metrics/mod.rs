//! Metrics under Oracle's names, computed from the counters of the cell and of the machine.
//!
//! A cumulative metric is a counter since the start of the daemon, a rate is the increase of a counter between two readings, per
//! second or per request, and an instantaneous metric is a value at the moment of the reading. CL_CPUT and CL_CPUT_CS, which are
//! instantaneous in Oracle's terms, are shares of the time between the two readings too.

mod definitions;
mod document;
mod reading;

pub use definitions::{Definition, definitions};
pub use document::{Document, label};
pub use reading::{Counter, Reading};

/// The value of a metric for one object.
pub struct Observation {
    pub definition: &'static Definition,
    pub object: String,
    /// None if the value needs a second reading.
    pub number: Option<f64>,
}

/// Computes all metrics that need one reading. Those that need a second one have no number yet.
pub fn observe(reading: &Reading) -> Vec<Observation> {
    observations(reading, |definition, object| match definition.needs_two_readings() {
        true => definition.exists(reading, object).then_some(None),
        false => definition.at(reading, object).map(Some),
    })
}

/// Computes all metrics from two readings.
pub fn observe_between(before: &Reading, after: &Reading) -> Vec<Observation> {
    observations(after, |definition, object| {
        let number = match definition.needs_two_readings() {
            true => definition.between(before, after, object),
            false => definition.at(after, object),
        };
        number.map(Some)
    })
}

fn observations(
    reading: &Reading,
    number: impl Fn(&'static Definition, &str) -> Option<Option<f64>>,
) -> Vec<Observation> {
    let mut observations = Vec::new();
    for definition in definitions() {
        for object in definition.objects(reading) {
            if let Some(number) = number(definition, &object.key) {
                observations.push(Observation { definition, object: object.name, number });
            }
        }
    }
    observations
}

/// Formats the number of a metric with its unit: requests and microseconds as integers with commas, MB with three decimals, and
/// others with one. A number without a unit has the unit `Number`.
pub fn quantity(number: f64, unit: &str) -> String {
    let decimals = match unit {
        "IO requests" | "us" => 0,
        "MB" | "MB/sec" => 3,
        _ => 1,
    };
    let text = format!("{number:.decimals$}");
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in integer.chars().enumerate() {
        if at > 0 && (integer.len() - at).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let number = if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") };
    if unit == "Number" { number } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests;
