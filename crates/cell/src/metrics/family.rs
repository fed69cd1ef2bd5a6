//! Metrics as values: families of samples, which the text and JSON forms print.
//!
//! A family's name is the name that Prometheus stores: it starts with `cellar_`, ends with the unit, and with `_total` for
//! a counter. Names and label names are constants of the code, so they need no escaping.

/// Log2 histogram of microseconds: element `i` counts operations shorter than 2^i microseconds and not shorter than half
/// of that; the last element counts all longer operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    pub buckets: Vec<u64>,
    pub sum_seconds: f64,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound in seconds and the cumulative count of each bucket but the last, which has no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounded = &self.buckets[..self.buckets.len().saturating_sub(1)];
        bounded.iter().enumerate().scan(0, |sum, (index, count)| {
            *sum += count;
            Some(((index as f64).exp2() / 1e6, *sum))
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(u64),
    Real(f64),
    Histogram(Histogram),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl MetricType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

pub type Labels = Vec<(&'static str, String)>;

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub labels: Labels,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    pub name: &'static str,
    pub metric_type: MetricType,
    pub help: &'static str,
    pub samples: Vec<Sample>,
}

impl Family {
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, metric_type: MetricType::Counter, help, samples: Vec::new() }
    }

    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { metric_type: MetricType::Gauge, ..Self::counter(name, help) }
    }

    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { metric_type: MetricType::Histogram, ..Self::counter(name, help) }
    }

    pub fn add(&mut self, labels: Labels, value: Value) {
        self.samples.push(Sample { labels, value });
    }

    /// Adds a sample for each item.
    pub fn with<T>(mut self, items: impl IntoIterator<Item = T>, sample: impl Fn(T) -> (Labels, Value)) -> Self {
        self.samples.extend(items.into_iter().map(|item| {
            let (labels, value) = sample(item);
            Sample { labels, value }
        }));
        self
    }

    /// Adds a sample without labels.
    pub fn value(self, value: Value) -> Self {
        self.with([value], |value| (Vec::new(), value))
    }
}
