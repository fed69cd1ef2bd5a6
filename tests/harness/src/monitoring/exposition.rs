//! A strict parser of Prometheus text format 0.0.4, with the rules of `promtool check metrics` that concern one scrape.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with the label values that occur.
#[derive(Debug, Default, Clone)]
pub struct Metric {
    pub metric_type: String,
    has_help: bool,
    pub labels: BTreeMap<String, BTreeSet<String>>,
    samples: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct Exposition(BTreeMap<String, Metric>);

/// One line `name{label="value"} number`.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Exposition {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the metric to which a series belongs: for a histogram, the metric of its buckets, sum and count.
    pub fn metric_of(&self, series: &str) -> Option<&Metric> {
        let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| {
            let metric = self.0.get(series.strip_suffix(suffix)?)?;
            (metric.metric_type == "histogram").then_some(metric)
        });
        of_histogram.or_else(|| self.0.get(series).filter(|metric| metric.metric_type != "histogram"))
    }

    /// Returns the metrics and all violations of the format.
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut metrics = Self::default();
        let mut problems = Vec::new();
        let mut current = String::new();
        let mut finished = BTreeSet::new();
        let mut histograms: BTreeMap<(String, String), Vec<(f64, f64)>> = BTreeMap::new();
        let mut counts: BTreeMap<(String, String), f64> = BTreeMap::new();
        if !text.ends_with('\n') {
            problems.push("the last line does not end with a line feed".to_owned());
        }
        for (number, line) in text.lines().enumerate() {
            let mut problem = |what: String| problems.push(format!("line {}: {what}: {line}", number + 1));
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (kind, name, rest) =
                    (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
                if name != current {
                    if !finished.insert(name.to_owned()) {
                        problem("the lines of a metric are not together".to_owned());
                    }
                    current = name.to_owned();
                }
                let metric = metrics.0.entry(name.to_owned()).or_default();
                match kind {
                    Some("HELP") => {
                        if metric.has_help || rest.is_empty() {
                            problem("a second or an empty help".to_owned());
                        }
                        metric.has_help = true;
                    }
                    Some("TYPE") => {
                        if !metric.metric_type.is_empty() || !["counter", "gauge", "histogram"].contains(&rest) {
                            problem("a second or an unknown type".to_owned());
                        }
                        if (rest == "counter") != name.ends_with("_total") {
                            problem("counters, and nothing else, end with _total".to_owned());
                        }
                        metric.metric_type = rest.to_owned();
                    }
                    _ => problem("neither HELP nor TYPE".to_owned()),
                }
                continue;
            }
            let Some(sample) = sample(line) else {
                problem("not a sample".to_owned());
                continue;
            };
            let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| sample.name.strip_suffix(suffix));
            let is_histogram = metrics.0.get(&current).is_some_and(|metric| metric.metric_type == "histogram");
            let name = if is_histogram { base.unwrap_or(&sample.name) } else { &sample.name };
            if name != current {
                problem("a sample without a preceding TYPE".to_owned());
                continue;
            }
            let Some(metric) = metrics.0.get_mut(name) else { continue };
            if !metric.has_help || metric.metric_type.is_empty() {
                problem("HELP or TYPE is missing".to_owned());
            }
            let others: Vec<String> = sample
                .labels
                .iter()
                .filter(|(name, _)| name != "le")
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let id = others.join("\u{1}");
            if !metric.samples.insert(format!("{} {:?}", sample.name, sample.labels)) {
                problem("the same series twice".to_owned());
            }
            if metric.metric_type != "gauge" && sample.value < 0.0 {
                problem("a negative count".to_owned());
            }
            if is_histogram {
                let key = (name.to_owned(), id);
                let bound = sample.labels.iter().find(|(name, _)| name == "le").map(|(_, bound)| bound.as_str());
                match (sample.name.strip_prefix(name), bound.map(number_of)) {
                    (Some("_bucket"), Some(Some(bound))) => {
                        histograms.entry(key).or_default().push((bound, sample.value))
                    }
                    (Some("_sum"), None) => {}
                    (Some("_count"), None) => drop(counts.insert(key, sample.value)),
                    _ => problem("not a series of a histogram".to_owned()),
                }
            }
            for (name, value) in sample.labels {
                metric.labels.entry(name).or_default().insert(value);
            }
        }
        for ((name, labels), buckets) in &histograms {
            let is_ascending =
                buckets.is_sorted_by(|(bound, count), (next, next_count)| bound < next && count <= next_count);
            let last = buckets.last().copied();
            if !is_ascending || last.is_none_or(|(bound, _)| bound != f64::INFINITY) {
                problems.push(format!("{name} {labels}: buckets do not ascend to +Inf"));
            }
            if last.map(|(_, count)| count) != counts.get(&(name.clone(), labels.clone())).copied() {
                problems.push(format!("{name} {labels}: the count differs from the bucket +Inf"));
            }
        }
        (metrics, problems)
    }
}

fn number_of(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = Vec::new();
    let mut rest = rest;
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"")?;
            if label.is_empty() || !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return None;
            }
            let (value, after) = quoted(value)?;
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix('}')?;
                    break;
                }
            }
        }
    }
    Some(Sample { name: name.to_owned(), labels, value: number_of(rest.strip_prefix(' ')?)? })
}

/// Reads a value up to its closing quote; returns the rest of the line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                _ => return None,
            },
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        Exposition::parse(text).1
    }

    #[test]
    fn violations_of_the_format_are_found() {
        let valid = "# HELP a_total A\n# TYPE a_total counter\na_total{x=\"1\\\\\\\"\"} 1\na_total{x=\"2\"} 0.5\n";
        assert_eq!(problems(valid), Vec::<String>::new());
        let wrong = [
            "a_total 1\n",
            "# TYPE a_total counter\na_total 1\n",
            "# HELP a A\n# TYPE a counter\na 1\n",
            "# HELP a A\n# TYPE a gauge\na 1\na 1\n",
            "# HELP a A\n# TYPE a gauge\na{x=1} 1\n",
            "# HELP a A\n# TYPE a gauge\na NaN\n",
            "# HELP a A\n# TYPE a gauge\na 1",
            "# HELP h H\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
            "# HELP h H\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 1\n",
            "# HELP h H\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        ];
        for text in wrong {
            assert!(!problems(text).is_empty(), "{text}");
        }
    }
}
