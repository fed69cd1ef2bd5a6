//! What an existing workload would gain from a cell: `cellar awr advise`, for reports of Oracle and of Cellar.
//!
//! A claim is a range. Each claim names its assumptions, and the figures from which it is computed, with their places in the
//! report. Without figures there is no claim; the advice names what is missing.

mod claims;
mod figures;
mod segments;

use super::findings::head;
use super::model::{Kind, Report};
use crate::findings::{Evidence, Finding, Findings, Kind as FindingKind};
use crate::report::{self, Kind as ReportKind};
use crate::sections::{Block, Group, Section};
use crate::table::{Cell, Table};
use figures::Figures;

/// A gain, as a range in per cent.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Stable identifier.
    pub id: &'static str,
    pub title: String,
    pub low_percent: f64,
    pub high_percent: f64,
    /// What the per cents are of.
    pub of: &'static str,
    /// Figures of the report, with their places.
    pub figures: Vec<String>,
    pub assumptions: Vec<String>,
}

/// The claims that the figures of the report allow, and the reasons why other claims are missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    pub claims: Vec<Claim>,
    pub not_claimed: Vec<String>,
}

/// The claims about a report.
pub fn advise(report: &Report) -> Advice {
    let figures = Figures::new(report);
    let mut advice = Advice::default();
    for claim in [claims::offloadable, claims::scan_time, claims::transfer, claims::storage_index] {
        claim(&figures, &mut advice);
    }
    for claim in [claims::flash_requests, claims::flash_time, claims::compression, claims::bound] {
        claim(&figures, &mut advice);
    }
    advice
}

/// The advice as a report.
pub fn report(report: &Report) -> report::Report {
    let advice = advise(report);
    let mut gains = Section::new("gains", Group::Summary, "What This Workload Would Gain")
        .note("Ranges from the figures and assumptions below. Shares of different bases do not add up")
        .table_or(claims_table(&advice), "The report has no figures of reads from which a gain could be computed.");
    let findings = Findings { findings: advice.claims.iter().map(finding).collect(), ..Findings::default() };
    gains.blocks.extend(findings.findings.iter().cloned().map(|finding| Block::Finding(Box::new(finding))));
    let mut all = vec![head(report), gains];
    if !advice.not_claimed.is_empty() {
        let section = Section::new("not-claimed", Group::Summary, "Not Claimed");
        all.push(advice.not_claimed.iter().fold(section, |section, reason| section.sentence(reason.clone())));
    }
    all.extend(segments::sections(report));
    let subject = format!("DB: {}", report.header.db_name);
    report::Report {
        kind: ReportKind::Advice,
        title: format!("Advice about {}: {subject}", report.name),
        subject,
        sections: all,
        findings,
    }
}

fn claims_table(advice: &Advice) -> Table {
    Table::new(&["<Gain", "Low %", "High %", "<Of", "<Id"]).with_rows(advice.claims.iter().map(|claim| {
        vec![
            Cell::text(&claim.title),
            Cell::Percent(claim.low_percent, 1),
            Cell::Percent(claim.high_percent, 1),
            Cell::text(claim.of),
            Cell::text(claim.id),
        ]
    }))
}

fn finding(claim: &Claim) -> Finding {
    let (low, high) = (claim.low_percent, claim.high_percent);
    let range = match (high - low).abs() < 0.05 {
        true => format!("{high:.1} %"),
        false => format!("{low:.1} to {high:.1} %"),
    };
    let figures = claim.figures.iter().map(|text| Evidence { section: "", text: text.clone() });
    let assumptions =
        claim.assumptions.iter().map(|text| Evidence { section: "", text: format!("Assumption: {text}") });
    Finding {
        id: claim.id,
        kind: FindingKind::Information,
        title: format!("{}: {range} of {}", claim.title, claim.of),
        impact: None,
        evidence: figures.chain(assumptions).collect(),
        recommendations: Vec::new(),
    }
}

/// Whether the report is about PostgreSQL.
fn is_own(report: &Report) -> bool {
    report.kind == Kind::Cellar
}
