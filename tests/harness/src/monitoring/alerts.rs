//! The alert rules: a YAML file as Prometheus reads it.

use super::exposition::Exposition;
use super::promql;
use std::collections::BTreeSet;
use yaml_rust2::{Yaml, YamlLoader};

const RULE_KEYS: [&str; 5] = ["alert", "expr", "for", "labels", "annotations"];
const SEVERITIES: [&str; 2] = ["warning", "critical"];

/// Returns the number of rules and what is wrong.
pub fn check(text: &str, metrics: &Exposition) -> (usize, Vec<String>) {
    let documents = match YamlLoader::load_from_str(text) {
        Ok(documents) => documents,
        Err(error) => return (0, vec![error.to_string()]),
    };
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    let mut count = 0;
    let groups = documents.first().and_then(|document| document["groups"].as_vec());
    for group in groups.map(Vec::as_slice).unwrap_or_default() {
        if group["name"].as_str().is_none() {
            problems.push("a group has no name".to_owned());
        }
        for rule in group["rules"].as_vec().map(Vec::as_slice).unwrap_or_default() {
            count += 1;
            let name = rule["alert"].as_str().unwrap_or("(unnamed)");
            let found = check_rule(rule, metrics);
            problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
            if !names.insert(name.to_owned()) {
                problems.push(format!("{name} occurs twice"));
            }
        }
    }
    if count == 0 {
        problems.push("there is no rule".to_owned());
    }
    (count, problems)
}

fn check_rule(rule: &Yaml, metrics: &Exposition) -> Vec<String> {
    let mut problems = Vec::new();
    let keys = rule.as_hash().into_iter().flat_map(|rule| rule.keys()).filter_map(Yaml::as_str);
    problems.extend(keys.filter(|key| !RULE_KEYS.contains(key)).map(|key| format!("unknown key {key}")));
    match rule["expr"].as_str() {
        Some(expression) => problems.extend(promql::problems(expression, metrics)),
        None => problems.push("no expression".to_owned()),
    }
    if !rule["for"].as_str().is_some_and(promql::is_duration) {
        problems.push("\"for\" is not a duration".to_owned());
    }
    if !rule["labels"]["severity"].as_str().is_some_and(|severity| SEVERITIES.contains(&severity)) {
        problems.push("severity is neither warning nor critical".to_owned());
    }
    for annotation in ["summary", "description"] {
        if rule["annotations"][annotation].as_str().is_none_or(str::is_empty) {
            problems.push(format!("no {annotation}"));
        }
    }
    problems
}
