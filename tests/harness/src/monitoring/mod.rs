//! Checks the Grafana dashboard and the alert rules against the metrics that programs really return.

mod alerts;
mod dashboard;
mod exposition;
mod promql;

use anyhow::{Context, Result};
use exposition::Exposition;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Files with metrics in Prometheus text format.
    #[arg(long, required = true)]
    metrics: Vec<PathBuf>,
    /// The Grafana dashboard.
    #[arg(long)]
    dashboard: PathBuf,
    /// The alert rules.
    #[arg(long)]
    alerts: PathBuf,
}

/// Prints a line for each check, and returns whether all passed.
pub fn run(options: &Options) -> Result<bool> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut all = Exposition::default();
    let mut passed = true;
    let mut report = |what: &str, problems: Vec<String>| {
        passed &= problems.is_empty();
        println!("{} - {what}", if problems.is_empty() { "ok" } else { "not ok" });
        problems.iter().for_each(|problem| println!("    {problem}"));
    };
    for path in &options.metrics {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let (metrics, problems) = Exposition::parse(&read(path)?);
        report(&format!("the metrics of {name} follow the text format: {} metrics", metrics.len()), problems);
        all.add(metrics);
    }
    let (panels, problems) = dashboard::check(&read(&options.dashboard)?, &all);
    report(&format!("the dashboard is valid and names only existing metrics: {panels} panels"), problems);
    let (rules, problems) = alerts::check(&read(&options.alerts)?, &all);
    report(&format!("the alert rules are valid and name only existing metrics: {rules} rules"), problems);
    Ok(passed)
}
