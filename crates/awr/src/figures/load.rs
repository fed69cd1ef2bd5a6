//! The load profile: totals per second, per transaction, per execution and per call.

use super::time::TimeModel;
use super::{MEGABYTE, per_second, ratio, sum};
use crate::document::{Document, How, Measure, names};

/// A line of the load profile. Columns that Oracle leaves blank are None.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadLine {
    pub label: &'static str,
    pub per_second: Measure,
    pub per_transaction: Measure,
    pub per_execution: Measure,
    pub per_call: Measure,
    pub how: How,
}

/// Transactions: commits and rollbacks.
pub fn transactions(document: &Document) -> Measure {
    sum([document.statistic(names::COMMITS), document.statistic(names::ROLLBACKS)])
}

/// Lines whose statistic is available, in Oracle's order and with Oracle's labels (release 12.2).
pub fn load_profile(document: &Document) -> Vec<LoadLine> {
    let model = TimeModel::of(document);
    let transactions = transactions(document);
    let executions = document.statistic(names::EXECUTIONS);
    let calls = document.statistic(names::USER_CALLS);
    let second = |value| per_second(value, document.elapsed_us);
    let time = |label, us: Measure, how| {
        let seconds = us.map(|us| us / 1e6);
        LoadLine {
            label,
            per_second: second(seconds),
            per_transaction: ratio(seconds, transactions),
            per_execution: ratio(seconds, executions),
            per_call: ratio(seconds, calls),
            how,
        }
    };
    let total = |label, value| LoadLine {
        label,
        per_second: second(value),
        per_transaction: ratio(value, transactions),
        per_execution: None,
        per_call: None,
        how: How::Counted,
    };
    let statistic = |label, name| total(label, document.statistic(name));
    let megabytes = |label, name| total(label, document.statistic(name).map(|bytes| bytes / MEGABYTE));
    let lines = [
        time("DB Time(s):", model.db_time_us, How::Timed),
        time("DB CPU(s):", model.db_cpu_us, How::Counted),
        time("Background CPU(s):", document.time(names::time::BACKGROUND_CPU), How::Counted),
        statistic("Redo size (bytes):", names::REDO_SIZE),
        statistic("Logical read (blocks):", names::LOGICAL_READS),
        statistic("Block changes:", names::BLOCK_CHANGES),
        statistic("Physical read (blocks):", names::PHYSICAL_READS),
        statistic("Physical write (blocks):", names::PHYSICAL_WRITES),
        statistic("Read IO requests:", names::READ_REQUESTS),
        statistic("Write IO requests:", names::WRITE_REQUESTS),
        megabytes("Read IO (MB):", names::READ_BYTES),
        megabytes("Write IO (MB):", names::WRITE_BYTES),
        statistic("User calls:", names::USER_CALLS),
        statistic("Parses (SQL):", names::PARSES),
        statistic("Hard parses (SQL):", names::HARD_PARSES),
        megabytes("Temp written (MB):", names::TEMP_BYTES),
        statistic("Logons:", names::LOGONS),
        statistic("Executes (SQL):", names::EXECUTIONS),
        statistic("Rollbacks:", names::ROLLBACKS),
        LoadLine { per_transaction: None, ..total("Transactions:", transactions) },
    ];
    lines.into_iter().filter(|line| line.per_second.is_some()).collect()
}
