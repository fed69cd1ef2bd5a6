//! Plan changes: what a statement cost with each plan, over time.
//!
//! Source: the columns of the script awr_plan_change (EXECS, AVG_ETIME, AVG_LIO, AVG_PIO), as used in "AWR is not enough to
//! track down IO problem on Exadata": equal reads and more time with the same plan are slower storage, not another plan.

use super::{ratio, sum};
use crate::document::{AshActivity, Document, Measure, PlanHistory};
use std::collections::{BTreeMap, BTreeSet};

/// A plan is slower if an execution takes this many times longer.
const SLOWER: f64 = 1.5;
/// A plan is a regression if an execution takes this many times longer than with another plan.
const SLOW_PLAN: f64 = 2.0;
/// Reads per execution are equal up to this factor.
const SAME_READS: f64 = 1.1;
/// The least share of the additional time that a cause explains.
const EXPLAINED_SHARE: f64 = 0.5;
/// The most time that a block from overloaded storage takes, in microseconds.
const READ_US_MAX: f64 = 20_000.0;
/// The least share of I/O in the time or the samples of a statement that became slower by storage, and the samples that tell a share.
const IO_SHARE_MIN: f64 = 0.1;
const SAMPLES_MIN: f64 = 5.0;

/// How an interval compares with the earlier intervals of the statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// No earlier interval, no complete execution, or no notable difference.
    Same,
    /// Another plan than in the interval before; contains the time per execution as a multiple of the time before.
    PlanChanged(f64),
    /// The same plan and as many reads, but more time, which the reads can explain.
    SlowerStorage(f64),
    /// The same plan and more time, most of it CPU time.
    MoreCpu(f64),
    /// The same plan and more time, which neither reads nor CPU time explain: for example for locks.
    SlowerElsewhere(f64),
    /// The same plan, and more reads in proportion to the time.
    MoreReads(f64),
}

impl Verdict {
    pub fn text(self) -> String {
        match self {
            Self::Same => String::new(),
            Self::PlanChanged(factor) if factor >= 1.0 => format!("plan changed, {factor:.1}x slower"),
            Self::PlanChanged(factor) if factor > 0.0 => format!("plan changed, {:.1}x faster", 1.0 / factor),
            Self::PlanChanged(_) => "plan changed".to_owned(),
            Self::SlowerStorage(factor) => format!("same plan, slower storage, {factor:.1}x"),
            Self::MoreCpu(factor) => format!("same plan, more CPU time, {factor:.1}x slower"),
            Self::SlowerElsewhere(factor) => format!("same plan, slower for another reason, {factor:.1}x"),
            Self::MoreReads(factor) => format!("same plan, more reads, {factor:.1}x"),
        }
    }
}

/// Executions with one plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executions {
    pub calls: f64,
    pub elapsed_us: f64,
    pub cpu_us: Measure,
    pub logical_reads: Measure,
    pub physical_reads: Measure,
}

impl Executions {
    fn add(&mut self, row: &PlanHistory) {
        self.calls += row.calls.unwrap_or(0.0);
        self.elapsed_us += row.elapsed_us.unwrap_or(0.0);
        self.cpu_us = sum([self.cpu_us, row.cpu_us]);
        self.logical_reads = sum([self.logical_reads, row.logical_reads]);
        self.physical_reads = sum([self.physical_reads, row.physical_reads]);
    }

    /// Time of one execution in microseconds.
    pub fn average_us(&self) -> Measure {
        ratio(Some(self.elapsed_us), Some(self.calls))
    }

    /// Whether an execution reads notably more blocks; true if the reads are unknown.
    fn reads_more_than(&self, other: &Self) -> bool {
        let mut reads =
            self.reads_per_call().into_iter().zip(other.reads_per_call()).filter_map(|(a, b)| a.zip(b)).peekable();
        reads.peek().is_none() || reads.any(|(mine, others)| mine > SAME_READS * others + 1.0)
    }

    /// Whether an execution computes so much longer that most of its additional time is CPU time.
    fn computes_more_than(&self, other: &Self) -> bool {
        let cpu_us = |sums: &Self| ratio(sums.cpu_us, Some(sums.calls));
        let difference = |a: Measure, b: Measure| a.zip(b).map_or(0.0, |(a, b)| a - b);
        let more_us = difference(cpu_us(self), cpu_us(other));
        cpu_us(self).zip(cpu_us(other)).is_some_and(|(mine, others)| mine >= SLOW_PLAN * others)
            && more_us > 0.0
            && more_us >= EXPLAINED_SHARE * difference(self.average_us(), other.average_us())
    }

    /// Whether the additional blocks that an execution reads, from the cache or from storage, explain `factor` times the time.
    fn reads_explain(&self, other: &Self, factor: f64) -> bool {
        let more_us = self.average_us().zip(other.average_us()).map_or(0.0, |(mine, others)| mine - others);
        let grew = |(mine, others): (f64, f64)| {
            mine > SAME_READS * others + 1.0 && mine - others >= EXPLAINED_SHARE * (factor - 1.0) * others
        };
        let [logical, physical] = self.reads_per_call();
        let [logical_before, physical_before] = other.reads_per_call();
        let storage = physical.zip(physical_before);
        logical.zip(logical_before).is_some_and(grew)
            || storage.is_some_and(|pair| grew(pair) && (pair.0 - pair.1) * READ_US_MAX >= EXPLAINED_SHARE * more_us)
    }

    /// Whether the physical reads of an execution can take most of `more_us`; true if they are unknown.
    fn storage_explains(&self, more_us: f64) -> bool {
        let [_, physical] = self.reads_per_call();
        physical.is_none_or(|reads| reads > 0.0 && reads * READ_US_MAX >= EXPLAINED_SHARE * more_us)
    }

    fn reads_per_call(&self) -> [Measure; 2] {
        [ratio(self.logical_reads, Some(self.calls)), ratio(self.physical_reads, Some(self.calls))]
    }
}

/// The history of one statement, oldest interval first.
pub struct StatementHistory<'a> {
    pub query_id: i64,
    pub executions: Vec<(&'a PlanHistory, Verdict)>,
    /// Sums by plan, over all intervals.
    pub plans: BTreeMap<Option<i64>, Executions>,
    /// Sums by plan, over the intervals of the report. The history may begin before the report.
    pub reported: BTreeMap<Option<i64>, Executions>,
    /// Time above that of an execution before, in the report's intervals with the verdict `SlowerStorage`, in microseconds.
    pub slower_storage_us: f64,
}

/// A plan that is slower than another plan of the same statement.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    pub slow_plan: Option<i64>,
    pub fast_plan: Option<i64>,
    pub factor: f64,
    /// Time that the slow plan took above the fast plan's time, in the report's intervals, in microseconds.
    pub excess_us: f64,
}

impl StatementHistory<'_> {
    /// Time of the executions in the report's intervals, in microseconds.
    pub fn elapsed_us(&self) -> f64 {
        self.reported.values().map(|plan| plan.elapsed_us).sum()
    }

    /// Whether the statement changed its plan, or became slower.
    pub fn is_notable(&self) -> bool {
        self.executions.iter().any(|(_, verdict)| *verdict != Verdict::Same) || self.plans.len() > 1
    }

    /// The slower of the statement's plans, if the plan was used in the last interval, takes twice the time or more, and
    /// reads more blocks or computes longer. A plan that does as much waits for something else, for example for locks.
    pub fn regression(&self) -> Option<Regression> {
        let last = self.executions.iter().filter_map(|(row, _)| row.snap_id).max();
        let is_current = |plan: Option<i64>| {
            self.executions.iter().any(|(row, _)| row.plan_id == plan && row.snap_id == last && row.calls > Some(0.0))
        };
        let timed = || self.plans.iter().filter_map(|(plan, sums)| Some((*plan, sums, sums.average_us()?)));
        let (fast_plan, fast, fast_us) = timed().min_by(|a, b| a.2.total_cmp(&b.2))?;
        let does_more = |sums: &Executions| sums.reads_more_than(fast) || sums.computes_more_than(fast);
        let is_slow = |sums: &Executions, us: f64| us >= SLOW_PLAN * fast_us && fast_us > 0.0 && does_more(sums);
        timed()
            .filter(|(plan, sums, us)| *plan != fast_plan && is_current(*plan) && is_slow(sums, *us))
            .filter_map(|(plan, _, us)| {
                let reported = self.reported.get(&plan)?;
                let excess_us = reported.elapsed_us - reported.calls * fast_us;
                Some(Regression { slow_plan: plan, fast_plan, factor: us / fast_us, excess_us })
            })
            .max_by(|a, b| a.excess_us.total_cmp(&b.excess_us))
    }
}

/// The histories of a document, by statement.
pub fn statements(document: &Document) -> Vec<StatementHistory<'_>> {
    let mut by_query: BTreeMap<i64, Vec<&PlanHistory>> = BTreeMap::new();
    for row in &document.plan_history {
        if let Some(query_id) = row.query_id {
            by_query.entry(query_id).or_default().push(row);
        }
    }
    let waits_for_io = |query_id: i64| {
        let (io, all) = samples(document, query_id, |activity| &*activity.class == "User I/O");
        all < SAMPLES_MIN || io >= IO_SHARE_MIN * all || is_timed_io(document, query_id)
    };
    let history = |(query_id, rows)| history(query_id, rows, document.begin.snap_id, waits_for_io(query_id));
    by_query.into_iter().map(history).collect()
}

/// Whether track_io_timing shows that the executions of a statement waited for I/O.
fn is_timed_io(document: &Document, query_id: i64) -> bool {
    let statements = || document.statements.iter().filter(|statement| statement.query_id == Some(query_id));
    let io_us = sum(statements().flat_map(|statement| [statement.blk_read_us, statement.blk_write_us]));
    let elapsed_us = sum(statements().map(|statement| statement.elapsed_us));
    io_us.zip(elapsed_us).is_some_and(|(io_us, elapsed_us)| io_us > 0.0 && io_us >= IO_SHARE_MIN * elapsed_us)
}

/// The activities of a statement in the samples of the report.
fn activities(document: &Document, query_id: i64) -> impl Iterator<Item = &AshActivity> {
    // The samples of an SQL report are those of its statement.
    let is_reported = document.statement.query_id == Some(query_id);
    let of_statement = document.ash.top_sql.iter().filter(move |activity| activity.query_id == Some(query_id));
    of_statement.chain(document.history.groups.iter().filter(move |_| is_reported))
}

/// Samples of a statement that match, and all of them.
fn samples(document: &Document, query_id: i64, matches: impl Fn(&AshActivity) -> bool) -> (f64, f64) {
    activities(document, query_id).fold((0.0, 0.0), |(some, all), activity| {
        let samples = activity.samples.unwrap_or(0.0);
        (some + if matches(activity) { samples } else { 0.0 }, all + samples)
    })
}

/// What a statement did in most samples of the report, for example `mostly transactionid (Application)`; None if no event stands out.
pub fn sampled_reason(document: &Document, query_id: i64) -> Option<String> {
    let mut by_event: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for activity in activities(document, query_id) {
        let is_cpu = activity.event.is_empty() || &*activity.event == "CPU";
        let name = if is_cpu { ("on a CPU or waiting for one", "") } else { (&*activity.event, &*activity.class) };
        *by_event.entry(name).or_default() += activity.samples.unwrap_or(0.0);
    }
    let all: f64 = by_event.values().sum();
    let ((event, class), samples) = by_event.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let name = if class.is_empty() { event.to_owned() } else { format!("{event} ({class})") };
    (all > 0.0 && samples >= EXPLAINED_SHARE * all).then(|| format!("mostly {name}"))
}

/// `waits_for_io`: whether the samples of the report's intervals do not contradict slow storage.
fn history(query_id: i64, mut rows: Vec<&PlanHistory>, begin: Option<i64>, waits_for_io: bool) -> StatementHistory<'_> {
    rows.sort_by_key(|row| (row.snap_id, row.plan_id));
    let mut history = StatementHistory {
        query_id,
        executions: Vec::new(),
        plans: BTreeMap::new(),
        reported: BTreeMap::new(),
        slower_storage_us: 0.0,
    };
    // What executions cost before, without the intervals that were slower.
    let mut before: BTreeMap<Option<i64>, Executions> = BTreeMap::new();
    let mut previous_plans: BTreeSet<Option<i64>> = BTreeSet::new();
    for interval in rows.chunk_by(|a, b| a.snap_id == b.snap_id) {
        for row in interval {
            let is_reported = begin.is_none() || row.snap_id > begin;
            let verdict = match verdict(row, &before, &previous_plans) {
                Verdict::SlowerStorage(factor) if is_reported && !waits_for_io => Verdict::SlowerElsewhere(factor),
                verdict => verdict,
            };
            history.executions.push((row, verdict));
            if row.calls.is_none_or(|calls| calls == 0.0) {
                continue;
            }
            history.plans.entry(row.plan_id).or_default().add(row);
            if is_reported {
                history.reported.entry(row.plan_id).or_default().add(row);
            }
            match (verdict, before.get(&row.plan_id).and_then(Executions::average_us)) {
                (Verdict::SlowerStorage(_), Some(average_us)) => {
                    if is_reported {
                        let usual_us = row.calls.unwrap_or(0.0) * average_us;
                        history.slower_storage_us += row.elapsed_us.unwrap_or(0.0) - usual_us;
                    }
                }
                (Verdict::SlowerElsewhere(_) | Verdict::MoreCpu(_), _) => {}
                _ => before.entry(row.plan_id).or_default().add(row),
            }
        }
        let used = interval.iter().filter(|row| row.calls > Some(0.0)).map(|row| row.plan_id).collect::<BTreeSet<_>>();
        if !used.is_empty() {
            previous_plans = used;
        }
    }
    history
}

fn verdict(
    row: &PlanHistory,
    before: &BTreeMap<Option<i64>, Executions>,
    previous_plans: &BTreeSet<Option<i64>>,
) -> Verdict {
    let mut now = Executions::default();
    now.add(row);
    let Some(now_us) = now.average_us() else { return Verdict::Same };
    if !previous_plans.is_empty() && !previous_plans.contains(&row.plan_id) {
        let mut old = Executions::default();
        for plan in previous_plans.iter().filter_map(|plan| before.get(plan)) {
            old.calls += plan.calls;
            old.elapsed_us += plan.elapsed_us;
        }
        return Verdict::PlanChanged(ratio(Some(now_us), old.average_us()).unwrap_or(0.0));
    }
    let Some(old) = before.get(&row.plan_id) else { return Verdict::Same };
    let Some(factor) = ratio(Some(now_us), old.average_us()).filter(|factor| *factor >= SLOWER) else {
        return Verdict::Same;
    };
    let more_us = now_us - old.average_us().unwrap_or(0.0);
    if now.reads_explain(old, factor) {
        Verdict::MoreReads(factor)
    } else if now.computes_more_than(old) {
        Verdict::MoreCpu(factor)
    } else if now.storage_explains(more_us) {
        Verdict::SlowerStorage(factor)
    } else {
        Verdict::SlowerElsewhere(factor)
    }
}
