//! The rules that judge a document: one table, [`RULES`].
//!
//! A rule has an area, a condition and a recommendation, which docs/reference/findings.md repeats word for word. A rule
//! returns None if the figures of its condition are missing. A finding with an impact is reported only if the impact exceeds a share
//! of DB time ([`SIGNIFICANT_PERCENT`], unless the rule names another share). A finding becomes a symptom if a finding of another
//! rule explains it: the table names that rule as an explanation, and the other finding covers at least half of the impact.

mod chains;
mod commit;
mod contention;
mod cpu;
mod interval;
mod io;
mod neighbours;
mod sessions;
mod smart_scan;
mod sql;
mod vacuum;

use crate::document::Document;
use crate::findings::{Evidence, Finding, Findings, Impact, Kind, Recommendation};
use crate::view::View;
pub(crate) use io::FLASH_READ_US;
use std::collections::{BTreeMap, BTreeSet};

/// The least impact of a problem or symptom, in per cent of DB time.
pub const SIGNIFICANT_PERCENT: f64 = 5.0;
/// The least share of a finding's impact that the finding that explains it covers.
const EXPLAINED_SHARE: f64 = 0.5;

/// What a rule found, before the impact is put into proportion.
#[derive(Default)]
struct Found {
    title: String,
    /// Time that the condition cost; None for a condition without a measurable cost.
    impact_us: Option<f64>,
    /// The least impact in per cent of DB time, in place of [`SIGNIFICANT_PERCENT`].
    significant_percent: Option<f64>,
    /// Time, in findings of other rules, that the condition explains; None: the impact.
    covers_us: Option<f64>,
    evidence: Vec<Evidence>,
    /// Texts, and the time that following them can save at most.
    recommendations: Vec<(String, Option<f64>)>,
}

impl Found {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    fn impact(mut self, us: f64) -> Self {
        self.impact_us = Some(us);
        self
    }

    fn significant_at(mut self, percent: f64) -> Self {
        self.significant_percent = Some(percent);
        self
    }

    fn covers(mut self, us: f64) -> Self {
        self.covers_us = Some(us);
        self
    }

    fn evidence(mut self, section: &'static str, text: impl Into<String>) -> Self {
        self.evidence.push(Evidence { section, text: text.into() });
        self
    }

    fn recommend(mut self, text: impl Into<String>, saved_us: Option<f64>) -> Self {
        self.recommendations.push((text.into(), saved_us));
        self
    }
}

/// None: the figures are missing.
type Judgement = Option<Vec<Found>>;

pub struct Rule {
    /// Stable: programs may match findings by it.
    pub id: &'static str,
    pub area: &'static str,
    pub kind: Kind,
    pub condition: &'static str,
    pub recommendation: &'static str,
    /// Rules whose findings are symptoms of this rule's finding.
    pub explains: &'static [&'static str],
    evaluate: fn(&View<'_>) -> Judgement,
}

const CPU: &str = "CPU";
const IO: &str = "User I/O";
const COMMIT: &str = "Commit and WAL";
const CHECKPOINTS: &str = "Checkpoints";
const LOCKS: &str = "Locks";
const TRANSACTIONS: &str = "Open transactions";
const CONCURRENCY: &str = "Concurrency inside the server";
const SQL: &str = "SQL statements and plans";
const TEMP: &str = "Temporary files";
const NEIGHBOURS: &str = "Databases that share the storage";
const SMART_SCAN: &str = "Smart Scan";
const VACUUM: &str = "Vacuum";
const REPLICATION: &str = "Replication";
const INTERVAL: &str = "The interval";

pub const RULES: [Rule; 28] = [
    Rule {
        id: "cpu-run-queue",
        area: CPU,
        kind: Kind::Problem,
        condition: "Sessions waited for a core, outside of other waits, for at least 5 % of DB time.",
        recommendation: "Add cores, lower the number of active sessions or parallel workers, or tune the statements at the \
                         top of SQL ordered by CPU Time. Faster storage does not help.",
        explains: &["lwlock-contention"],
        evaluate: cpu::run_queue,
    },
    Rule {
        id: "cpu-bound",
        area: CPU,
        kind: Kind::Symptom,
        condition: "DB CPU is at least half of DB time.",
        recommendation: "Tune the statements at the top of SQL ordered by CPU Time. Storage does not limit this workload.",
        explains: &[],
        evaluate: cpu::bound,
    },
    Rule {
        id: "io-bound",
        area: IO,
        kind: Kind::Symptom,
        condition: "Waits of class User I/O are at least 30 % of DB time.",
        recommendation: "Do less I/O, or make I/O faster: the findings about sequential and single-block reads show which.",
        explains: &[],
        evaluate: io::bound,
    },
    Rule {
        id: "offloadable-scans",
        area: SMART_SCAN,
        kind: Kind::Problem,
        condition: "Sequential and direct-path reads that no cell scanned cost at least 5 % of DB time.",
        recommendation: "Move the named tables to a cell, where Smart Scan filters them next to the disks; on a cell, see \
                         cellar.why_not_offloaded. An index avoids the scan where few rows are needed.",
        explains: &[],
        evaluate: io::offloadable_scans,
    },
    Rule {
        id: "single-block-reads",
        area: IO,
        kind: Kind::Problem,
        condition: "Single-block reads cost at least 5 % of DB time.",
        recommendation: "Store the named objects on flash, or raise shared_buffers or memory so that they are cached.",
        explains: &[],
        evaluate: io::single_block_reads,
    },
    Rule {
        id: "latency-tail",
        area: IO,
        kind: Kind::Problem,
        condition: "One wait in a hundred of a timed event took at least 8 times the average, and such waits cost at least \
                    5 % of DB time.",
        recommendation: "Judge storage by its histogram, not by its average; look for the cause of the slow requests: \
                         garbage collection of flash, a slow disk of the group, competing scans.",
        explains: &["single-block-reads", "commit-waits"],
        evaluate: io::latency_tail,
    },
    Rule {
        id: "noisy-neighbour",
        area: NEIGHBOURS,
        kind: Kind::Problem,
        condition: "One database read and wrote at least half of all bytes, and at least 1.5 times the bytes of the others \
                    per active second. Bytes are those on the disks of the cells if they are more than half of the \
                    requested bytes, otherwise the requested bytes. The others lost at least 5 % of DB time by it, or at \
                    least 1 % of DB time and 20 % of the active time of the others. The loss is their I/O waits times \
                    the database's share of the bytes; ten samples of a wait are the least that count.",
        recommendation: "Tune or reschedule the named statement of that database, or limit the I/O of the database.",
        explains: &["io-bound", "single-block-reads", "offloadable-scans", "latency-tail", "slower-storage"],
        evaluate: neighbours::noisy_neighbour,
    },
    Rule {
        id: "temp-spills",
        area: TEMP,
        kind: Kind::Problem,
        condition: "Reading and writing temporary files cost at least 5 % of DB time. Without timed blocks, the time is \
                    estimated by the share of temporary blocks in the blocks of each statement.",
        recommendation: "Raise work_mem for the named statement, or reduce the rows that it sorts or hashes.",
        explains: &["io-bound"],
        evaluate: io::temp_spills,
    },
    Rule {
        id: "commit-waits",
        area: COMMIT,
        kind: Kind::Problem,
        condition: "Waits of class Commit cost at least 5 % of DB time.",
        recommendation: "Commit several changes in one transaction, store pg_wal on a faster device, or set \
                         synchronous_commit to off for transactions that may be lost. Waits for a standby need a faster \
                         network or standby.",
        explains: &[],
        evaluate: commit::waits,
    },
    Rule {
        id: "wal-buffers-full",
        area: COMMIT,
        kind: Kind::Information,
        condition: "Sessions found all WAL buffers full at least once per second.",
        recommendation: "Raise wal_buffers.",
        explains: &[],
        evaluate: commit::buffers_full,
    },
    Rule {
        id: "full-page-images",
        area: COMMIT,
        kind: Kind::Information,
        condition: "Full-page images are at least half of the WAL, of at least 100 MB.",
        recommendation: "Make checkpoints rarer with max_wal_size and checkpoint_timeout, or set wal_compression.",
        explains: &[],
        evaluate: commit::full_page_images,
    },
    Rule {
        id: "checkpoint-storm",
        area: CHECKPOINTS,
        kind: Kind::Problem,
        condition: "More checkpoints were requested than started by time, at least two; writes and syncs of sessions cost at \
                    least 5 % of DB time. The cause is the amount of WAL if the WAL suffices for at least half of the \
                    requested checkpoints, or else commands: CHECKPOINT, CREATE DATABASE, base backups.",
        recommendation: "Raise max_wal_size to the WAL of checkpoint_timeout, so that checkpoint_timeout starts the \
                         checkpoints; or run the commands less often.",
        explains: &["commit-waits", "backend-writes", "lwlock-contention"],
        evaluate: commit::checkpoint_storm,
    },
    Rule {
        id: "backend-writes",
        area: CHECKPOINTS,
        kind: Kind::Problem,
        condition: "Sessions that needed a free buffer wrote at least 20 % of all written buffers themselves, and data file \
                    writes cost at least 5 % of DB time.",
        recommendation: "Raise bgwriter_lru_maxpages, lower bgwriter_delay, or raise shared_buffers.",
        explains: &[],
        evaluate: commit::backend_writes,
    },
    Rule {
        id: "lock-waits",
        area: LOCKS,
        kind: Kind::Problem,
        condition: "Waits for locks of other sessions cost at least 5 % of DB time, without the waits that \
                    idle-in-transaction reports. The named session is the head of the chains with the most samples.",
        recommendation: "Shorten the transaction of the named session; storage does not cure lock waits.",
        explains: &[],
        evaluate: contention::locks,
    },
    Rule {
        id: "lwlock-contention",
        area: CONCURRENCY,
        kind: Kind::Problem,
        condition: "Waits of class Concurrency cost at least 5 % of DB time.",
        recommendation: "The named lock shows the resource. Fewer active sessions, for example with a connection pool, \
                         reduce contention; storage does not.",
        explains: &[],
        evaluate: contention::lwlocks,
    },
    Rule {
        id: "plan-regression",
        area: SQL,
        kind: Kind::Problem,
        condition: "A statement's last plan takes at least twice the time of another plan of the statement, and reads more \
                    blocks or takes at least twice the CPU time; the difference costs at least 5 % of DB time.",
        recommendation: "Compare the plans in Execution Plans. Check the changed settings and analyzed tables that the \
                         evidence names; refresh the statistics of the tables, or extend them with CREATE STATISTICS.",
        explains: &["io-bound", "cpu-bound", "cpu-run-queue", "single-block-reads", "offloadable-scans", "temp-spills"],
        evaluate: sql::plan_regression,
    },
    Rule {
        id: "slower-storage",
        area: SQL,
        kind: Kind::Problem,
        condition: "A statement takes at least 1.5 times the time of earlier intervals, with the same plan and as many \
                    reads; the difference, as far as the statement waited for I/O, costs at least 5 % of DB time.",
        recommendation: "The plan is not the cause. Look for what competes for the storage, or for a degraded disk.",
        explains: &["io-bound", "single-block-reads", "offloadable-scans"],
        evaluate: sql::slower_storage,
    },
    Rule {
        id: "top-sql",
        area: SQL,
        kind: Kind::Symptom,
        condition: "A statement takes at least 10 % of DB time.",
        recommendation: "Tune the named statements first.",
        explains: &[],
        evaluate: sql::top_sql,
    },
    Rule {
        id: "missing-statistics",
        area: SQL,
        kind: Kind::Information,
        condition: "A table with at least 10,000 rows that was read was never analyzed.",
        recommendation: "ANALYZE the named tables: plans of their queries are guesses.",
        explains: &[],
        evaluate: sql::missing_statistics,
    },
    Rule {
        id: "idle-in-transaction",
        area: TRANSACTIONS,
        kind: Kind::Problem,
        condition: "A session was idle in a transaction for at least a minute. The impact is the time that other sessions \
                    waited for it, directly or in a chain, if at least 5 % of DB time.",
        recommendation: "Commit before waiting for a user or another service; idle_in_transaction_session_timeout ends \
                         such sessions. They keep locks, and dead rows from being removed.",
        explains: &[],
        evaluate: sessions::idle_in_transaction,
    },
    Rule {
        id: "xmin-holder",
        area: VACUUM,
        kind: Kind::Problem,
        condition: "A session, slot or prepared transaction has held the vacuum horizon for at least a million \
                    transactions.",
        recommendation: "End the named transaction, or drop the named slot: VACUUM cannot remove rows that died since.",
        explains: &[],
        evaluate: vacuum::horizon,
    },
    Rule {
        id: "freeze-age",
        area: VACUUM,
        kind: Kind::Problem,
        condition: "The freeze age of a database is at least 1.5 times autovacuum_freeze_max_age.",
        recommendation: "Find out why autovacuum cannot freeze the oldest tables (see Freeze Age and What Holds the Vacuum \
                         Horizon), and VACUUM (FREEZE) them.",
        explains: &[],
        evaluate: vacuum::freeze_age,
    },
    Rule {
        id: "replication-lag",
        area: REPLICATION,
        kind: Kind::Problem,
        condition: "A standby lagged by at least 10 seconds or 1 GB at the end, or an inactive slot retains at least 1 GB.",
        recommendation: "Check the network and the disks of the standby; drop slots that are not used any more.",
        explains: &[],
        evaluate: sessions::replication_lag,
    },
    Rule {
        id: "smart-scan-passthru",
        area: SMART_SCAN,
        kind: Kind::Information,
        condition: "At least 20 % of the eligible bytes passed through the cell unfiltered.",
        recommendation: "Passthrough blocks contain rows that only PostgreSQL can judge: VACUUM the tables, so that rows are \
                         frozen or all-visible.",
        explains: &[],
        evaluate: smart_scan::passthru,
    },
    Rule {
        id: "compressed-comparison",
        area: SMART_SCAN,
        kind: Kind::Information,
        condition: "Returned and eligible bytes of Smart Scan cannot be compared, because the scanned tables are compressed.",
        recommendation: "Use Smart Scan efficiency, returned / (uncompressed + saved by storage index). A negative \
                         efficiency of returned against eligible only says that data compress better than queries filter.",
        explains: &[],
        evaluate: smart_scan::compressed_comparison,
    },
    Rule {
        id: "mixed-directions",
        area: SMART_SCAN,
        kind: Kind::Information,
        condition: "Writes are at least 10 % of the interconnect bytes while Smart Scans ran.",
        recommendation: "Do not divide by interconnect bytes: they contain both directions, mirrored writes, redo and \
                         temporary files.",
        explains: &[],
        evaluate: smart_scan::mixed_directions,
    },
    Rule {
        id: "unaccounted-time",
        area: INTERVAL,
        kind: Kind::Information,
        condition: "At least 20 % of DB time is neither DB CPU nor a wait; or DB CPU and waits exceed DB time by at least 20 %, \
                    and by more than three standard errors of the sampled waits.",
        recommendation: "Shorten cellar.awr_sample_period for short waits, and check that no source is missing. If DB CPU \
                         and waits exceed DB time, set track_activities to on for all roles and databases: DB time lacks \
                         sessions without it.",
        explains: &[],
        evaluate: interval::unaccounted,
    },
    Rule {
        id: "interrupted-interval",
        area: INTERVAL,
        kind: Kind::Information,
        condition: "The server restarted or crashed, statistics were reset or evicted, or the clock was set.",
        recommendation: "Prefer an interval without the event: activity before it is partly missing.",
        explains: &[],
        evaluate: interval::interrupted,
    },
];

/// Applies all rules.
pub fn judge(document: &Document) -> Findings {
    let view = View::new(document);
    let mut result = Findings::default();
    let mut judged: BTreeSet<&str> = BTreeSet::new();
    let mut with_impact: BTreeSet<&str> = BTreeSet::new();
    let mut covered_us: BTreeMap<&str, f64> = BTreeMap::new();
    for rule in &RULES {
        let Some(found) = (rule.evaluate)(&view) else { continue };
        // An area is judged by its problems and symptoms.
        if rule.kind != Kind::Information {
            judged.insert(rule.area);
        }
        for found in found {
            let covers_us = found.covers_us.or(found.impact_us).unwrap_or(0.0);
            if let Some(finding) = finding(rule, found, &view) {
                *covered_us.entry(rule.id).or_default() += covers_us;
                if finding.kind != Kind::Information {
                    with_impact.insert(rule.area);
                }
                result.findings.push(finding);
            }
        }
    }
    for finding in &mut result.findings {
        let impact_us = finding.impact.map_or(f64::INFINITY, |impact| impact.us);
        let explains = |rule: &&Rule| rule.explains.contains(&finding.id) && covered_us.contains_key(rule.id);
        let explained_us = RULES.iter().filter(explains).map(|rule| covered_us[rule.id]).fold(0.0, f64::max);
        if finding.kind == Kind::Problem && explained_us >= EXPLAINED_SHARE * impact_us {
            finding.kind = Kind::Symptom;
        }
    }
    result.arrange(view.model.average_active_sessions());
    let mut areas: Vec<&str> = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.kind != Kind::Information) {
        if !areas.contains(&rule.area) {
            areas.push(rule.area);
        }
    }
    for area in areas {
        match (judged.contains(area), with_impact.contains(area)) {
            (false, _) => result.not_judged.push(area),
            (true, false) => result.without_impact.push(area),
            (true, true) => {}
        }
    }
    result
}

/// Puts a finding's impact into proportion. Returns None if the impact is not significant.
fn finding(rule: &Rule, found: Found, view: &View<'_>) -> Option<Finding> {
    let impact = match found.impact_us {
        None => None,
        Some(us) => {
            // Sampled waits can exceed DB time by chance, and waits of background processes are no part of it.
            let percent = view.model.percent_of_db_time(Some(us)).map(|percent| percent.min(100.0));
            let least = found.significant_percent.unwrap_or(SIGNIFICANT_PERCENT);
            if rule.kind != Kind::Information && percent.is_none_or(|percent| percent < least) {
                return None;
            }
            Some(Impact { us, active_sessions: view.model.active_sessions(Some(us)), percent })
        }
    };
    // What costs a time cannot save more.
    let most = impact.and_then(|impact| impact.percent).unwrap_or(100.0);
    let recommendations = found.recommendations.into_iter().map(|(text, saved_us)| {
        let benefit = view.model.percent_of_db_time(saved_us).map(|percent| percent.clamp(0.0, most));
        Recommendation { text, benefit_percent: benefit }
    });
    Some(Finding {
        id: rule.id,
        kind: rule.kind,
        title: found.title,
        impact,
        evidence: found.evidence,
        recommendations: recommendations.collect(),
    })
}

/// `12.3 %` of DB time, or an empty text.
fn share_text(view: &View<'_>, us: f64) -> String {
    let percent = view.model.percent_of_db_time(Some(us)).map(|percent| percent.min(100.0));
    percent.map_or_else(String::new, |percent| format!("{percent:.1} % of DB time"))
}
