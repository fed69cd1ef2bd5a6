//! What a report concludes: findings in the manner of Oracle's ADDM.

use crate::document::Measure;

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

/// The result of all rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Problems, symptoms, information; each by impact, greatest first.
    pub findings: Vec<Finding>,
    /// Areas whose rules were judged and found nothing.
    pub without_impact: Vec<&'static str>,
    /// Areas whose figures are missing.
    pub not_judged: Vec<&'static str>,
}
