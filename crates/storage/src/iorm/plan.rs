//! The plan: objective, and the shares, limits and reservations of databases.

use crate::request::DatabaseId;
use std::fmt;

/// The number of levels of a plan with allocations.
pub(super) const LEVEL_MAX: u8 = 8;

/// What the scheduler protects small I/O from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// Requests are counted, but not ordered.
    #[default]
    Off,
    /// Latency of small I/O as in [`Self::Balanced`]; databases have equal shares, without limits.
    Basic,
    /// The most large I/O with which small I/O is at most twice as slow as without.
    Auto,
    /// Small I/O is at most 1.2 times as slow as without large I/O, whatever the scans lose.
    LowLatency,
    /// Small I/O is at most twice as slow as without large I/O.
    Balanced,
    /// Large I/O is not held back; shares and limits apply.
    HighThroughput,
    /// Large I/O has at most this percentage of the device time: the ceilings of Exadata, to compare with.
    Static(u8),
}

/// How an objective limits large I/O.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    /// The 99th percentile of small I/O, as a multiple of its latency without large I/O.
    pub ratio: f64,
    /// The share of the device time that large I/O has in any case.
    pub floor: f64,
}

impl Objective {
    const NAMED: [(&str, Self); 9] = [
        ("off", Self::Off),
        ("basic", Self::Basic),
        ("auto", Self::Auto),
        ("low_latency", Self::LowLatency),
        ("balanced", Self::Balanced),
        ("high_throughput", Self::HighThroughput),
        ("exadata_static_40", Self::Static(40)),
        ("exadata_static_90", Self::Static(90)),
        ("exadata_static_100", Self::Static(100)),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, objective)| *objective == self).map_or("exadata_static", |(name, _)| name)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().map(|(name, _)| *name)
    }

    /// Parses a name, without regard to case. The error says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::NAMED.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, objective)| *objective).ok_or_else(|| {
            let names: Vec<&str> = Self::names().collect();
            format!("objective \"{text}\" does not exist; write one of {}", names.join(", "))
        })
    }

    /// Oracle's number of the objective in the metric IORM_MODE; 0 if large I/O is not limited by one of its modes.
    pub fn mode(self) -> u64 {
        match self {
            Self::LowLatency | Self::Static(40) => 1,
            Self::Balanced | Self::Basic | Self::Auto | Self::Static(90) => 2,
            Self::HighThroughput | Self::Static(100) => 3,
            Self::Off | Self::Static(_) => 0,
        }
    }

    pub(super) fn target(self) -> Option<Target> {
        match self {
            Self::LowLatency => Some(Target { ratio: 1.2, floor: 0.005 }),
            Self::Basic | Self::Balanced => Some(Target { ratio: 2.0, floor: 0.01 }),
            Self::Auto => Some(Target { ratio: 2.0, floor: 0.01 }),
            Self::Off | Self::HighThroughput | Self::Static(_) => None,
        }
    }

    /// Returns whether shares, limits and reservations apply.
    pub fn enforces_plan(self) -> bool {
        !matches!(self, Self::Off | Self::Basic)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(percent) => write!(f, "exadata_static_{percent}"),
            named => f.write_str(named.name()),
        }
    }
}

/// The part of a database in the device time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// Relative to the shares of the other databases.
    Share(u32),
    /// A percentage of what the databases of the levels before leave.
    Allocation { level: u8, percent: u8 },
}

/// What the plan says about one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The database's name or its OID, either also after the root directory of its cluster. `other` and `default` mean all databases that are not named.
    pub name: String,
    pub portion: Portion,
    /// Maximum percentage of the device time, also if the device is idle otherwise.
    pub limit: Option<u8>,
    /// Percentage of the device time that the database gets before others get their shares.
    pub reservation: Option<u8>,
    /// Maximum bytes of the flash cache; 0 if the database does not use flash.
    pub flash_limit: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub objective: Objective,
    pub databases: Vec<Directive>,
}

/// The names of a database, any of which a directive may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseNames {
    /// The OID, after the root directory of the files unless that is the mount's.
    pub shown: String,
    /// The name in PostgreSQL, once the server has told it.
    pub name: Option<String>,
    /// The name, after the root directory of the cluster unless that is the mount's.
    pub qualified: Option<String>,
}

/// What a directive means for the scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    pub portion: Portion,
    /// Shares of the device time, from 0 to 1.
    pub limit: Option<f64>,
    pub reservation: Option<f64>,
}

impl Terms {
    pub const EQUAL: Self = Self { portion: Portion::Share(1), limit: None, reservation: None };
}

/// The portion of databases that a plan with allocations does not name.
const UNNAMED: Portion = Portion::Allocation { level: LEVEL_MAX, percent: 1 };

impl Plan {
    fn directive(&self, is: impl Fn(&str) -> bool) -> Option<&Directive> {
        self.databases.iter().find(|directive| is(&directive.name))
    }

    /// Returns the directive that applies to a database.
    fn directive_of(&self, id: DatabaseId, names: &DatabaseNames) -> Option<&Directive> {
        let number = names.shown.rsplit('/').next().unwrap_or_default();
        let is_known = id != DatabaseId::OTHER;
        let exactly = |name: &str| is_known && (name == names.shown || Some(name) == names.qualified.as_deref());
        let by_name = |name: &str| is_known && Some(name) == names.name.as_deref();
        let by_number = |name: &str| is_known && name == number;
        let others = |name: &str| name.eq_ignore_ascii_case("other") || name.eq_ignore_ascii_case("default");
        let own = self.directive(exactly).or_else(|| self.directive(by_name)).or_else(|| self.directive(by_number));
        own.or_else(|| self.directive(others))
    }

    /// Returns how many bytes of the flash cache a database may have. Whatever the objective: it is no matter of device time.
    pub(super) fn flash_limit(&self, id: DatabaseId, names: &DatabaseNames) -> Option<u64> {
        // WAL and other files that no database owns have no limit.
        self.directive_of(id, names).filter(|_| id != DatabaseId::OTHER)?.flash_limit
    }

    /// Returns what the plan says about a database.
    pub(super) fn terms(&self, id: DatabaseId, names: &DatabaseNames) -> Terms {
        if !self.objective.enforces_plan() {
            return Terms::EQUAL;
        }
        let directive = self.directive_of(id, names);
        let share = |percent: Option<u8>| percent.map(|percent| f64::from(percent) / 100.0);
        match directive {
            // WAL, which no database owns, has no limit.
            Some(Directive { portion, .. }) if id == DatabaseId::OTHER => Terms { portion: *portion, ..Terms::EQUAL },
            Some(Directive { portion, limit, reservation, .. }) => {
                Terms { portion: *portion, limit: share(*limit), reservation: share(*reservation) }
            }
            None if self.databases.iter().any(|database| matches!(database.portion, Portion::Allocation { .. })) => {
                Terms { portion: UNNAMED, ..Terms::EQUAL }
            }
            None => Terms::EQUAL,
        }
    }
}

/// Returns the weights of databases that are active now. With allocations, a level gets what the active databases of the levels
/// before it leave; a database that gets nothing has a small weight, so that it does not starve.
pub(super) fn weights(active: &[Portion]) -> Vec<f64> {
    const WEIGHT_MIN: f64 = 1e-3;
    let mut weights = vec![0.0; active.len()];
    let mut left = 1.0;
    for level in 1..=LEVEL_MAX {
        let before = left;
        for (weight, portion) in weights.iter_mut().zip(active) {
            if let Portion::Allocation { level: own, percent } = portion
                && *own == level
            {
                *weight = before * f64::from(*percent) / 100.0;
                left -= *weight;
            }
        }
    }
    for (weight, portion) in weights.iter_mut().zip(active) {
        match portion {
            Portion::Share(share) => *weight = f64::from(*share),
            Portion::Allocation { .. } => *weight = weight.max(WEIGHT_MIN),
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_have_names() {
        for name in Objective::names() {
            assert_eq!(Objective::parse(&name.to_uppercase()).unwrap().to_string(), name);
        }
        assert!(Objective::parse("fast").unwrap_err().contains("write one of off, basic, auto"));
    }

    #[test]
    fn levels_get_what_the_active_databases_before_them_leave() {
        let at = |level, percent| Portion::Allocation { level, percent };
        let check = |active: &[Portion], expected: &[f64]| {
            let found = weights(active);
            let close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
            assert!(close && found.len() == expected.len(), "{active:?}: {found:?}");
        };
        check(&[at(1, 80), at(2, 100)], &[0.8, 0.2]);
        check(&[at(1, 60), at(1, 40), at(2, 100)], &[0.6, 0.4, 0.001]);
        check(&[at(1, 60), at(2, 100)], &[0.6, 0.4]);
        check(&[at(2, 50), at(3, 50)], &[0.5, 0.25]);
        check(&[Portion::Share(2), Portion::Share(1)], &[2.0, 1.0]);
    }

    #[test]
    fn a_directive_names_a_database_by_name_or_number_and_others_apply_to_the_rest() {
        let directive = |name: &str, share| Directive {
            name: name.into(),
            portion: Portion::Share(share),
            limit: Some(50),
            reservation: None,
            flash_limit: None,
        };
        let databases = vec![
            directive("sales", 8),
            directive("16385", 4),
            directive("pg2/16385", 3),
            directive("pg2/sales", 7),
            directive("other", 2),
        ];
        let mut plan = Plan { objective: Objective::Auto, databases };
        let portion = |plan: &Plan, id, shown: &str, name: Option<&str>| {
            let qualified = name.zip(shown.split_once('/')).map(|(name, (root, _))| format!("{root}/{name}"));
            let names = DatabaseNames { shown: shown.into(), name: name.map(str::to_owned), qualified };
            plan.terms(DatabaseId(id), &names).portion
        };
        assert_eq!(portion(&plan, 1, "16384", Some("sales")), Portion::Share(8));
        assert_eq!(portion(&plan, 1, "16384", None), Portion::Share(2));
        assert_eq!(portion(&plan, 2, "pg1/16385", Some("x")), Portion::Share(4));
        assert_eq!(portion(&plan, 3, "pg2/16385", Some("x")), Portion::Share(3));
        assert_eq!(portion(&plan, 4, "pg1/16384", Some("sales")), Portion::Share(8));
        assert_eq!(portion(&plan, 5, "pg2/16384", Some("sales")), Portion::Share(7));
        assert_eq!(portion(&plan, 0, "", None), Portion::Share(2));
        plan.databases.pop();
        assert_eq!(portion(&plan, 1, "16384", None), Portion::Share(1));
        plan.objective = Objective::Basic;
        assert_eq!(portion(&plan, 1, "16384", Some("sales")), Portion::Share(1));
    }

    #[test]
    fn limits_of_flash_apply_to_databases_whatever_the_objective() {
        let directive = |name: &str, flash_limit| Directive {
            name: name.into(),
            portion: Portion::Share(1),
            limit: None,
            reservation: None,
            flash_limit,
        };
        let databases = vec![directive("sales", None), directive("dev", Some(0)), directive("other", Some(100))];
        let plan = Plan { objective: Objective::Off, databases };
        let limit = |id, name: &str| {
            let names = DatabaseNames { shown: "1".into(), name: Some(name.into()), qualified: None };
            plan.flash_limit(DatabaseId(id), &names)
        };
        assert_eq!([limit(1, "sales"), limit(2, "dev"), limit(3, "x")], [None, Some(0), Some(100)]);
        assert_eq!(limit(0, ""), None, "WAL belongs to no database");
    }
}
