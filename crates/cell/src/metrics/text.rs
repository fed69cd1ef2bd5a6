//! The text form of metrics: Prometheus exposition format 0.0.4.

use super::family::{Family, Labels, Value};
use std::fmt::Write;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn text(families: &[Family]) -> String {
    let mut out = String::with_capacity(1 << 16);
    for family in families {
        let Family { name, metric_type, help, samples } = family;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", metric_type.name());
        for sample in samples {
            let labels = &sample.labels;
            match &sample.value {
                Value::Integer(value) => line(&mut out, name, "", labels, None, value),
                Value::Real(value) => line(&mut out, name, "", labels, None, value),
                Value::Histogram(histogram) => {
                    for (bound, count) in histogram.cumulative() {
                        line(&mut out, name, "_bucket", labels, Some(&bound.to_string()), count);
                    }
                    line(&mut out, name, "_bucket", labels, Some("+Inf"), histogram.count());
                    line(&mut out, name, "_sum", labels, None, histogram.sum_seconds);
                    line(&mut out, name, "_count", labels, None, histogram.count());
                }
            }
        }
    }
    out
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &Labels, le: Option<&str>, value: impl std::fmt::Display) {
    let _ = write!(out, "{name}{suffix}");
    let labels = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(le.map(|bound| ("le", bound)));
    let mut opening = '{';
    for (name, value) in labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{opening}{name}=\"{value}\"");
        opening = ',';
    }
    if opening == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::family::Histogram;

    #[test]
    fn labels_are_escaped_and_buckets_are_cumulative() {
        let labels = || vec![("disk", "/a\\\"b\n".to_owned())];
        let histogram = Histogram { buckets: vec![1, 0, 2, 4], sum_seconds: 0.5 };
        let families = [
            Family::gauge("cellar_x_bytes", "Bytes \\ x").with([7], |value| (labels(), Value::Integer(value))),
            Family::histogram("cellar_y_seconds", "Times").value(Value::Histogram(histogram)),
        ];
        let expected = "# HELP cellar_x_bytes Bytes \\\\ x\n\
                        # TYPE cellar_x_bytes gauge\n\
                        cellar_x_bytes{disk=\"/a\\\\\\\"b\\n\"} 7\n\
                        # HELP cellar_y_seconds Times\n\
                        # TYPE cellar_y_seconds histogram\n\
                        cellar_y_seconds_bucket{le=\"0.000001\"} 1\n\
                        cellar_y_seconds_bucket{le=\"0.000002\"} 1\n\
                        cellar_y_seconds_bucket{le=\"0.000004\"} 3\n\
                        cellar_y_seconds_bucket{le=\"+Inf\"} 7\n\
                        cellar_y_seconds_sum 0.5\n\
                        cellar_y_seconds_count 7\n";
        assert_eq!(text(&families), expected);
    }
}
