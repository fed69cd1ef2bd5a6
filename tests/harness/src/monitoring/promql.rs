//! Reads the series and labels that a PromQL expression names. It checks brackets and names, not the types of operands.

use super::exposition::Exposition;

const FUNCTIONS: [&str; 17] = [
    "abs",
    "avg",
    "changes",
    "clamp_min",
    "count",
    "delta",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "min",
    "predict_linear",
    "rate",
    "resets",
    "sum",
    "time",
    "topk",
];
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
/// Labels that Prometheus adds to every series.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];
/// The series that Prometheus stores for each target.
const OWN_SERIES: [&str; 1] = ["up"];

/// Returns what is wrong with an expression.
pub fn problems(expression: &str, metrics: &Exposition) -> Vec<String> {
    match check(expression, metrics) {
        Ok(0) => vec![format!("names no metric: {expression}")],
        Ok(_) => Vec::new(),
        Err(problem) => vec![format!("{problem}: {expression}")],
    }
}

/// Returns the number of series selectors.
fn check(expression: &str, metrics: &Exposition) -> Result<usize, String> {
    let mut selectors = 0;
    let mut brackets = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let mut grouped: Vec<&str> = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let word;
            (word, rest) = rest.split_at(end);
            let after = rest.trim_start();
            let is_grouped = GROUPINGS
                .iter()
                .any(|grouping| after.strip_prefix(grouping).is_some_and(|list| list.trim_start().starts_with('(')));
            if GROUPINGS.contains(&word) {
                let list = after.strip_prefix('(').and_then(|list| list.split_once(')'));
                let (list, after) = list.ok_or_else(|| format!("{word} without labels"))?;
                grouped.extend(list.split(',').map(str::trim).filter(|label| !label.is_empty()));
                rest = after;
            } else if after.starts_with('(') || is_grouped && FUNCTIONS.contains(&word) {
                if !FUNCTIONS.contains(&word) {
                    return Err(format!("unknown function {word}"));
                }
            } else if !OPERATORS.contains(&word) {
                selectors += 1;
                names.push(word);
                let metric = metrics.metric_of(word);
                if metric.is_none() && !OWN_SERIES.contains(&word) {
                    return Err(format!("metric {word} does not exist"));
                }
                if let Some(matchers) = after.strip_prefix('{') {
                    let (matchers, after) = matchers.split_once('}').ok_or("a brace is not closed")?;
                    for matcher in matchers.split(',').map(str::trim).filter(|matcher| !matcher.is_empty()) {
                        check_matcher(matcher, word, metrics)?;
                    }
                    rest = after;
                }
            }
        } else {
            match first {
                '(' => brackets.push(first),
                ')' if brackets.pop().is_none() => return Err("brackets do not match".to_owned()),
                '[' => {
                    let (duration, after) = rest[1..].split_once(']').ok_or("a bracket is not closed")?;
                    if !is_duration(duration) && duration != "$__rate_interval" {
                        return Err(format!("{duration} is not a duration"));
                    }
                    rest = after;
                    continue;
                }
                ']' => return Err("brackets do not match".to_owned()),
                '{' | '}' => return Err("a brace without a metric".to_owned()),
                _ => {}
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    if !brackets.is_empty() {
        return Err("a bracket is not closed".to_owned());
    }
    for label in grouped {
        let has_label = |name: &&str| metrics.metric_of(name).is_some_and(|metric| metric.labels.contains_key(label));
        if !TARGET_LABELS.contains(&label) && !names.iter().any(has_label) {
            return Err(format!("no metric of the expression has a label {label}"));
        }
    }
    Ok(selectors)
}

/// Whether the text is a number and a unit.
pub fn is_duration(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    number.parse::<u32>().is_ok() && ["s", "m", "h", "d"].contains(&&text[number.len()..])
}

/// Checks `label="value"`; the value of an equality must occur.
fn check_matcher(matcher: &str, name: &str, metrics: &Exposition) -> Result<(), String> {
    let operator = ["=~", "!~", "!=", "="].into_iter().find(|operator| matcher.contains(operator));
    let (label, value) = operator.and_then(|operator| matcher.split_once(operator)).ok_or("not a label matcher")?;
    let value =
        value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).ok_or("a label value without quotes")?;
    if TARGET_LABELS.contains(&label) {
        return Ok(());
    }
    let values = metrics.metric_of(name).and_then(|metric| metric.labels.get(label));
    let values = values.ok_or_else(|| format!("metric {name} has no label {label}"))?;
    let wanted: Vec<&str> = if operator == Some("=~") { value.split('|').collect() } else { vec![value] };
    let is_pattern = value.contains(['$', '.', '*', '+', '[']);
    match wanted.into_iter().find(|value| !is_pattern && operator != Some("!=") && !values.contains(*value)) {
        Some(value) => Err(format!("metric {name} has no label {label}=\"{value}\"")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_brackets_are_checked() {
        let text = "# HELP a_total A\n# TYPE a_total counter\na_total{x=\"1 2\"} 1\n\
                    # HELP h_seconds H\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"+Inf\"} 1\nh_seconds_sum 1\nh_seconds_count 1\n";
        let (metrics, _) = Exposition::parse(text);
        let valid = [
            "sum by (instance, x) (rate(a_total{x=\"1 2\", instance=~\"$instance\"}[5m])) > 0.5",
            "histogram_quantile(0.99, sum by (le) (rate(h_seconds_bucket[5m]))) > 2 * 3600 and on (instance) up{job=\"c\"} == 1",
        ];
        for expression in valid {
            assert_eq!(problems(expression, &metrics), Vec::<String>::new());
        }
        let wrong = [
            "1 > 0",
            "b_total > 0",
            "rate(a_total[5m]",
            "a_total{x=\"3\"}",
            "a_total{y=\"1 2\"}",
            "h_seconds > 1",
            "sum by (y) (a_total)",
            "average(a_total)",
            "a_total{x=\"1 2\"",
            "(a_total]",
            "rate(a_total[5])",
        ];
        for expression in wrong {
            assert_eq!(problems(expression, &metrics).len(), 1, "{expression}");
        }
    }
}
