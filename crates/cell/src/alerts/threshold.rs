//! Thresholds: limits of a metric of one object. The alert begins after some violations in succession.

use super::definitions::{Finding, Severity};
use crate::cell_metrics::{Definition, definitions, quantity};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const COUNT_MAX: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = ">=")]
    GreaterOrEqual,
    #[serde(rename = ">")]
    Greater,
}

impl Comparison {
    const ALL: [(&'static str, Self); 5] = [
        ("<", Self::Less),
        ("<=", Self::LessOrEqual),
        ("=", Self::Equal),
        (">=", Self::GreaterOrEqual),
        (">", Self::Greater),
    ];

    pub fn sign(self) -> &'static str {
        Self::ALL.iter().find(|(_, comparison)| *comparison == self).map_or("", |(sign, _)| *sign)
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Less => value < limit,
            Self::LessOrEqual => value <= limit,
            Self::Equal => value == limit,
            Self::GreaterOrEqual => value >= limit,
            Self::Greater => value > limit,
        }
    }

    /// Returns whether all values that violate the limit `other`, and some more, violate `limit`.
    fn is_weaker(self, limit: f64, other: f64) -> bool {
        match self {
            Self::Less | Self::LessOrEqual => limit > other,
            Self::Equal => false,
            Self::GreaterOrEqual | Self::Greater => limit < other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// Name of the metric, a dot, and the name of the object.
    pub name: String,
    pub comparison: Comparison,
    pub warning: Option<f64>,
    pub critical: Option<f64>,
    /// Violations in succession before the alert begins.
    pub occurrences: u32,
    /// Values whose average is compared.
    pub observation: u32,
}

impl Threshold {
    /// Makes a threshold from the attributes of CREATE.
    pub fn new(name: &str, values: &[(String, String)]) -> Result<Self, String> {
        let (metric, object) = name.split_once('.').unwrap_or((name, ""));
        let Some(definition) = find_definition(metric) else {
            return Err(format!("metric \"{metric}\" does not exist; LIST METRICDEFINITION shows the metrics"));
        };
        if object.is_empty() {
            let metric = definition.name;
            return Err(format!(
                "\"{name}\" does not name an object; write {metric}.object, with an object that LIST METRICCURRENT {metric} shows"
            ));
        }
        if !values.iter().any(|(attribute, _)| attribute.eq_ignore_ascii_case("comparison")) {
            return Err("comparison is missing; write, for example, comparison = '>'".to_owned());
        }
        let name = format!("{}.{object}", definition.name);
        let comparison = Comparison::Greater;
        let new = Self { name, comparison, warning: None, critical: None, occurrences: 1, observation: 1 };
        new.altered(values)
    }

    /// Returns the threshold with other attributes.
    pub fn altered(mut self, values: &[(String, String)]) -> Result<Self, String> {
        for (attribute, value) in values {
            match attribute.to_ascii_lowercase().as_str() {
                "comparison" => self.comparison = comparison(value)?,
                "warning" => self.warning = limit("warning", value)?,
                "critical" => self.critical = limit("critical", value)?,
                "occurrences" => self.occurrences = count("occurrences", value)?,
                "observation" => self.observation = count("observation", value)?,
                _ => {
                    return Err(format!(
                        "\"{attribute}\" is not an attribute of thresholds that a command sets; these are comparison, critical, \
                         observation, occurrences and warning"
                    ));
                }
            }
        }
        match (self.warning, self.critical) {
            (Some(warning), Some(critical)) if self.comparison.is_weaker(critical, warning) => Err(format!(
                "critical = {critical} is violated before warning = {warning}, so that no alert would be a warning; with comparison \
                 '{}' write a critical limit that is {} the warning limit",
                self.comparison.sign(),
                if critical < warning { "above" } else { "below" },
            )),
            (None, None) => Err("a threshold needs warning or critical; write, for example, warning = 80".to_owned()),
            _ => Ok(self),
        }
    }

    /// Returns the name of the metric, and the name of the object.
    pub fn metric_and_object(&self) -> (&str, &str) {
        self.name.split_once('.').unwrap_or((&self.name, ""))
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

pub fn find_definition(metric: &str) -> Option<&'static Definition> {
    definitions().iter().find(|definition| definition.name.eq_ignore_ascii_case(metric))
}

fn comparison(text: &str) -> Result<Comparison, String> {
    let found = Comparison::ALL.iter().find(|(sign, _)| *sign == text.trim());
    found
        .map(|(_, comparison)| *comparison)
        .ok_or_else(|| format!("comparison = \"{text}\" is not valid; write '<', '<=', '=', '>=' or '>'"))
}

/// Reads a limit; an empty text is none.
fn limit(attribute: &str, text: &str) -> Result<Option<f64>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(Some).ok_or_else(|| format!("{attribute} = \"{text}\" is not a number; write one such as 80 or 0.5"))
}

fn count(attribute: &str, text: &str) -> Result<u32, String> {
    let number = text.trim().parse::<u32>().ok().filter(|number| (1..=COUNT_MAX).contains(number));
    number.ok_or_else(|| format!("{attribute} = \"{text}\" is not valid; write a number from 1 to {COUNT_MAX}"))
}

/// What a threshold has seen.
#[derive(Debug, Default)]
pub struct Progress {
    /// The last values, at most as many as [`Threshold::observation`].
    values: VecDeque<f64>,
    /// Violations in succession of any limit, and of the critical one.
    violations: u32,
    critical_violations: u32,
}

impl Progress {
    /// Takes the next value of the metric. Returns None while the state of the alert does not change: too few values, or too few
    /// violations in succession.
    pub fn observe(&mut self, threshold: &Threshold, value: f64) -> Option<Finding> {
        self.values.push_back(value);
        while self.values.len() > threshold.observation as usize {
            self.values.pop_front();
        }
        if self.values.len() < threshold.observation as usize {
            return None;
        }
        let average = self.values.iter().sum::<f64>() / self.values.len() as f64;
        let violates = |limit: Option<f64>| limit.is_some_and(|limit| threshold.comparison.holds(average, limit));
        let is_critical = violates(threshold.critical);
        let is_violation = is_critical || violates(threshold.warning);
        let next = |count: u32, holds: bool| if holds { count.saturating_add(1) } else { 0 };
        self.violations = next(self.violations, is_violation);
        self.critical_violations = next(self.critical_violations, is_critical);
        let severity = match () {
            () if !is_violation => Severity::Clear,
            () if self.critical_violations >= threshold.occurrences => Severity::Critical,
            () if threshold.warning.is_some() && self.violations >= threshold.occurrences => Severity::Warning,
            () => return None,
        };
        Some(finding(threshold, severity, average))
    }
}

fn finding(threshold: &Threshold, severity: Severity, value: f64) -> Finding {
    let (metric, object) = threshold.metric_and_object();
    let unit = find_definition(metric).map_or("", |definition| definition.unit);
    let limit = |(name, limit): (&str, Option<f64>)| {
        limit.map(|limit| format!("{name} {} {}", threshold.comparison.sign(), quantity(limit, unit)))
    };
    let limits = [("warning", threshold.warning), ("critical", threshold.critical)];
    let limits = limits.into_iter().filter_map(limit).collect::<Vec<_>>().join(", ");
    let value_text = quantity(value, unit);
    let state = match severity {
        Severity::Clear => "is within the threshold:",
        Severity::Warning | Severity::Critical => "is beyond the threshold:",
    };
    let message = format!("{metric} of {object} is {value_text}, which {state} {limits}");
    Finding { object: object.to_owned(), severity, message, value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let pair = |pair: &str| pair.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
        text.split_whitespace().map(pair).collect()
    }

    #[test]
    fn attributes_are_checked() {
        let check = |name: &str, attributes: &str, expected: &str| {
            let error = Threshold::new(name, &values(attributes)).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        };
        check("CL_NOTHING.c1", "comparison:> warning:1", "metric \"CL_NOTHING\" does not exist");
        check("CL_RUNQ", "comparison:> warning:1", "write CL_RUNQ.object");
        check("CL_RUNQ.c1", "warning:1", "comparison is missing");
        check("CL_RUNQ.c1", "comparison:=> warning:1", "comparison = \"=>\" is not valid");
        check("CL_RUNQ.c1", "comparison:>", "needs warning or critical");
        check("CL_RUNQ.c1", "comparison:> warning:much", "warning = \"much\" is not a number");
        check("CL_RUNQ.c1", "comparison:> warning:inf", "is not a number");
        check("CL_RUNQ.c1", "comparison:> warning:1 occurrences:0", "write a number from 1 to 1000");
        check(
            "CL_RUNQ.c1",
            "comparison:> warning:5 critical:2",
            "write a critical limit that is above the warning limit",
        );
        check("CL_RUNQ.c1", "comparison:<= warning:2 critical:5", "write a critical limit that is below");
        assert!(Threshold::new("CL_RUNQ.c1", &values("comparison:= warning:5 critical:2")).is_ok());
        assert!(Threshold::new("CL_RUNQ.c1", &values("comparison:> warning:5 critical:5")).is_ok());
        check("CL_RUNQ.c1", "comparison:> warning:1 limit:3", "\"limit\" is not an attribute");
        let threshold = Threshold::new("cl_runq.c1", &values("Comparison:>= critical:2.5 observation:3")).unwrap();
        assert_eq!((threshold.name.as_str(), threshold.critical, threshold.observation), ("CL_RUNQ.c1", Some(2.5), 3));
        let error = threshold.altered(&values("critical:")).unwrap_err();
        assert!(error.contains("needs warning or critical"), "{error}");
    }

    #[test]
    fn messages_have_the_unit_of_the_metric() {
        let message = |name: &str| {
            let threshold = Threshold::new(name, &values("comparison:> warning:2")).unwrap();
            finding(&threshold, Severity::Warning, 4.7).message
        };
        assert_eq!(message("CL_RUNQ.c1"), "CL_RUNQ of c1 is 4.7, which is beyond the threshold: warning > 2.0");
        assert_eq!(message("CL_MEMUT.c1"), "CL_MEMUT of c1 is 4.7 %, which is beyond the threshold: warning > 2.0 %");
    }

    fn severities(attributes: &str, values_seen: &[f64]) -> Vec<Option<&'static str>> {
        let threshold = Threshold::new("CL_RUNQ.c1", &values(attributes)).unwrap();
        let mut progress = Progress::default();
        let severity = |value: &f64| progress.observe(&threshold, *value).map(|found| found.severity.name());
        values_seen.iter().map(severity).collect()
    }

    #[test]
    fn violations_in_succession_begin_the_alert_and_one_good_value_ends_it() {
        let (clear, warning, critical) = (Some("clear"), Some("warning"), Some("critical"));
        let simple = severities("comparison:> warning:5 critical:9", &[5.0, 6.0, 10.0, 7.0, 5.0]);
        assert_eq!(simple, [clear, warning, critical, warning, clear]);
        let twice = severities("comparison:> warning:5 critical:9 occurrences:2", &[6.0, 10.0, 10.0, 1.0, 10.0]);
        assert_eq!(twice, [None, warning, critical, clear, None]);
        let average = severities("comparison:< critical:4 observation:2", &[1.0, 9.0, 1.0, 2.0]);
        assert_eq!(average, [None, clear, clear, critical], "averages 5, 5 and 1.5");
        let only_critical = severities("comparison:= critical:4", &[4.0, 3.0]);
        assert_eq!(only_critical, [critical, clear]);
    }
}
