//! The Grafana dashboard: the parts of Grafana's schema that an import needs.

use super::exposition::Exposition;
use super::promql;
use serde_json::Value;
use std::collections::BTreeSet;

const GRID_COLUMNS: u64 = 24;
const SCHEMA_VERSION_MIN: u64 = 36;
const TYPES: [&str; 6] = ["row", "timeseries", "stat", "table", "bargauge", "heatmap"];
const UNITS: [&str; 7] = ["Bps", "bytes", "ops", "s", "percentunit", "short", "none"];

/// Returns the number of panels and what is wrong.
pub fn check(text: &str, metrics: &Exposition) -> (usize, Vec<String>) {
    let dashboard: Value = match serde_json::from_str(text) {
        Ok(dashboard) => dashboard,
        Err(error) => return (0, vec![error.to_string()]),
    };
    let mut problems = Vec::new();
    for key in ["title", "uid"] {
        if dashboard[key].as_str().is_none_or(str::is_empty) {
            problems.push(format!("the dashboard has no {key}"));
        }
    }
    if dashboard["schemaVersion"].as_u64().is_none_or(|version| version < SCHEMA_VERSION_MIN) {
        problems.push("schemaVersion is too old".to_owned());
    }
    if !dashboard["id"].is_null() {
        problems.push("an id belongs to one Grafana; it must be null".to_owned());
    }
    let variables = dashboard["templating"]["list"].as_array().cloned().unwrap_or_default();
    if !variables.iter().any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource") {
        problems.push("there is no variable for the data source".to_owned());
    }
    let queries = variables.iter().filter(|variable| variable["type"] == "query");
    for expression in queries.map(|variable| variable["query"]["query"].as_str().unwrap_or_default()) {
        // label_values(METRIC, LABEL)
        let metric = expression.strip_prefix("label_values(").and_then(|rest| rest.split_once(','));
        problems.extend(promql::problems(metric.map_or(expression, |(metric, _)| metric), metrics));
    }
    let panels = dashboard["panels"].as_array().cloned().unwrap_or_default();
    let (mut ids, mut squares) = (BTreeSet::new(), BTreeSet::new());
    for panel in &panels {
        let title = panel["title"].as_str().unwrap_or("(untitled)");
        let found = check_panel(panel, &mut ids, &mut squares, metrics);
        problems.extend(found.into_iter().map(|problem| format!("{title}: {problem}")));
    }
    if panels.is_empty() {
        problems.push("there is no panel".to_owned());
    }
    (panels.len(), problems)
}

fn check_panel(
    panel: &Value,
    ids: &mut BTreeSet<u64>,
    squares: &mut BTreeSet<(u64, u64)>,
    metrics: &Exposition,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |condition: bool, problem: &str| {
        if !condition {
            problems.push(problem.to_owned());
        }
    };
    require(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "no title");
    require(panel["id"].as_u64().is_some_and(|id| ids.insert(id)), "no id, or the id of another panel");
    let kind = panel["type"].as_str().unwrap_or_default();
    require(TYPES.contains(&kind), "unknown type");
    let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64());
    if let (Some(x), Some(y), Some(w), Some(h)) = (x, y, w, h) {
        require(w > 0 && h > 0 && x + w <= GRID_COLUMNS, "outside of the grid");
        let overlaps =
            (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))).filter(|at| !squares.insert(*at)).count();
        require(overlaps == 0, "overlaps another panel");
    } else {
        require(false, "no position");
    }
    if kind == "row" {
        return problems;
    }
    let has_source =
        |value: &Value| value["datasource"]["type"] == "prometheus" && value["datasource"]["uid"] == "${datasource}";
    require(has_source(panel), "another data source");
    let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
    require(UNITS.contains(&unit), "unknown unit");
    let targets = panel["targets"].as_array().cloned().unwrap_or_default();
    require(!targets.is_empty(), "no query");
    let references: BTreeSet<&str> = targets.iter().filter_map(|target| target["refId"].as_str()).collect();
    require(references.len() == targets.len(), "queries without distinct refIds");
    require(targets.iter().all(has_source), "a query with another data source");
    for target in &targets {
        problems.extend(promql::problems(target["expr"].as_str().unwrap_or_default(), metrics));
    }
    problems
}
