//! What a report concludes: findings in the manner of Oracle's ADDM.

use crate::document::Measure;

/// The least average active sessions at which a cost is a problem or a symptom.
pub const NEARLY_IDLE_SESSIONS: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A cause that can be removed.
    Problem,
    /// A consequence of problems.
    Symptom,
    /// A fact that helps to read the report.
    Information,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Problem => "PROBLEM",
            Self::Symptom => "SYMPTOM",
            Self::Information => "INFORMATION",
        }
    }
}

/// What the condition costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impact {
    pub us: f64,
    /// Average active sessions.
    pub active_sessions: Measure,
    /// Per cent of DB time.
    pub percent: Measure,
}

/// A figure, with the identifier of the section that contains it.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    pub section: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    pub text: String,
    /// The most that the recommendation can save, in per cent of DB time.
    pub benefit_percent: Measure,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable identifier of the rule.
    pub id: &'static str,
    pub kind: Kind,
    /// A sentence that names what was found.
    pub title: String,
    pub impact: Option<Impact>,
    pub evidence: Vec<Evidence>,
    pub recommendations: Vec<Recommendation>,
}

impl Finding {
    /// Makes a cost of a nearly idle instance a piece of information: its share of DB time says nothing about a problem.
    pub(crate) fn demote(&mut self) {
        if self.impact.is_some() {
            self.kind = Kind::Information;
            for recommendation in &mut self.recommendations {
                recommendation.benefit_percent = None;
            }
        }
    }
}

/// The result of all rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Problems, symptoms, information; each by impact, greatest first.
    pub findings: Vec<Finding>,
    /// Areas whose rules were judged and found nothing.
    pub without_impact: Vec<&'static str>,
    /// Areas whose figures are missing.
    pub not_judged: Vec<&'static str>,
    /// Average active sessions, if fewer than [`NEARLY_IDLE_SESSIONS`]: shares of DB time are no problems then.
    pub nearly_idle: Option<f64>,
}

impl Findings {
    /// Demotes the costs of a nearly idle instance, and orders the findings: by kind, then by impact, greatest first.
    pub(crate) fn arrange(&mut self, average_active_sessions: Measure) {
        self.nearly_idle = average_active_sessions.filter(|sessions| *sessions < NEARLY_IDLE_SESSIONS);
        if self.nearly_idle.is_some() {
            self.findings.iter_mut().for_each(Finding::demote);
        }
        let impact = |finding: &Finding| finding.impact.map_or(0.0, |impact| impact.us);
        self.findings.sort_by(|a, b| a.kind.cmp(&b.kind).then(impact(b).total_cmp(&impact(a))));
    }
}
