//! Plan changes: what a statement cost with each plan, over time.
//!
//! Source: the columns of the script awr_plan_change (EXECS, AVG_ETIME, AVG_LIO, AVG_PIO), as used in "AWR is not enough to
//! track down IO problem on Exadata": equal reads and more time with the same plan are slower storage, not another plan.

use super::{ratio, sum};
use crate::document::{Document, Measure, PlanHistory};
use std::collections::{BTreeMap, BTreeSet};

/// A plan is slower if an execution takes this many times longer.
const SLOWER: f64 = 1.5;
/// A plan is a regression if an execution takes this many times longer than with another plan.
const SLOW_PLAN: f64 = 2.0;
/// Reads per execution are equal up to this factor.
const SAME_READS: f64 = 1.1;

/// How an interval compares with the earlier intervals of the statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// No earlier interval, no complete execution, or no notable difference.
    Same,
    /// Another plan than in the interval before; contains the time per execution as a multiple of the time before.
    PlanChanged(f64),
    /// The same plan and as many reads, but more time.
    SlowerStorage(f64),
    /// The same plan and as many reads from the cache, none of them physical, but more time: for example for locks.
    SlowerElsewhere(f64),
    /// The same plan, more reads and more time.
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
            Self::SlowerElsewhere(factor) => format!("same plan, no reads from storage, {factor:.1}x slower"),
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
            && more_us >= 0.5 * difference(self.average_us(), other.average_us())
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
    by_query.into_iter().map(|(query_id, rows)| history(query_id, rows, document.begin.snap_id)).collect()
}

fn history(query_id: i64, mut rows: Vec<&PlanHistory>, begin: Option<i64>) -> StatementHistory<'_> {
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
            let verdict = verdict(row, &before, &previous_plans);
            history.executions.push((row, verdict));
            if row.calls.is_none_or(|calls| calls == 0.0) {
                continue;
            }
            history.plans.entry(row.plan_id).or_default().add(row);
            let is_reported = begin.is_none() || row.snap_id > begin;
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
                (Verdict::SlowerElsewhere(_), _) => {}
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
    let more = |(now, old): (Measure, Measure)| now.zip(old).is_some_and(|(now, old)| now > SAME_READS * old + 1.0);
    let reads_more = now.reads_per_call().into_iter().zip(old.reads_per_call()).any(more);
    match (reads_more, now.physical_reads) {
        (true, _) => Verdict::MoreReads(factor),
        (false, Some(0.0)) => Verdict::SlowerElsewhere(factor),
        (false, _) => Verdict::SlowerStorage(factor),
    }
}
