//! Figures of a report by name: statistics, events, times of the time model.
//!
//! Text reports cut names to the width of the column. A cut name stands for a requested name only if no other known name
//! begins with the cut name. For example, `cell physical IO interconnect by` is ambiguous: two statistics begin so, the total, and
//! the bytes that Smart Scan returned. An ambiguous name has no figure.

use super::model::{Form, Report, Row, Section, Table, same_name};
use super::value::Value;
use std::collections::BTreeMap;

/// What a report says about a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    Found(f64),
    Absent,
    /// A cut name stands for several names; contains the cut name and the names.
    Ambiguous(String, Vec<&'static str>),
}

impl Lookup {
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Found(value) => Some(*value),
            Self::Absent | Self::Ambiguous(..) => None,
        }
    }
}

/// Names with a common beginning that text reports cut.
const LONG_NAMES: [&str; 26] = [
    "cell physical IO interconnect bytes",
    "cell physical IO interconnect bytes returned by smart scan",
    "cell physical IO bytes eligible for predicate offload",
    "cell physical IO bytes eligible for smart IOs",
    "cell physical IO bytes saved by storage index",
    "cell physical IO bytes saved by columnar cache",
    "cell physical IO bytes saved during optimized file creation",
    "cell physical IO bytes saved during optimized RMAN file restore",
    "cell physical IO bytes sent directly to DB node to balance CPU",
    "cell physical IO bytes added to storage index",
    "cell physical IO bytes pushed back due to excessive CPU on cell",
    "cell num bytes in passthru during predicate offload",
    "cell num bytes in passthru due to quarantine",
    "cell num bytes in passthru due to subheap size limit exceeded",
    "cell num bytes of IO reissued due to relocation",
    "cell single block physical read",
    "cell single block physical read: flash cache",
    "cell single block physical read: pmem cache",
    "cell single block physical read: xrmem cache",
    "cell single block physical read: RDMA",
    "cell multiblock physical read",
    "cell multiblock read request",
    "log file switch (checkpoint incomplete)",
    "log file switch (archiving needed)",
    "wait for unread message on broadcast channel",
    "wait for unread message on multiple broadcast channels",
];

/// The shortest name of an event that may be cut.
const CUT_MIN: usize = 25;

/// One event, summed over the instances of a global report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// As printed; text reports cut names.
    pub name: String,
    /// Empty if the report does not say.
    pub class: String,
    pub is_background: bool,
    pub waits: Option<f64>,
    pub time_us: Option<f64>,
    /// From the printed average or the printed total, whichever is more exact.
    pub average_us: Option<f64>,
    /// Of DB time, or of background time. Absent for idle events.
    pub percent: Option<f64>,
    /// Line of the file.
    pub line: u32,
}

/// The longest name of a column of a text report, which is the width to which names are cut.
fn cut_width(report: &Report, table: Table<'_>) -> usize {
    match report.form {
        Form::Html | Form::Json => usize::MAX,
        Form::Text => table.rows().map(|row| row.text(0).chars().count()).max().unwrap_or(0),
    }
}

/// Whether a printed name is `name`, or is cut from it.
fn is_cut(printed: &str, name: &str, width: usize) -> bool {
    // A blank at the end of the cut name is not printed.
    printed.len() + 1 >= width && printed.len() >= 16 && name.len() > printed.len() && name.starts_with(printed)
}

/// Tables of statistics, with a column.
fn statistics<'a>(report: &'a Report, column: &'static str) -> impl Iterator<Item = (Table<'a>, usize)> {
    report.tables().filter_map(move |table| {
        let first = table.columns().next()?.name();
        if !(same_name(first, "Statistic") || same_name(first, "Statistic Name")) {
            return None;
        }
        Some((table, table.column(&[column])?))
    })
}

impl Report {
    /// The total of a statistic over the interval, over all instances. Units are those of the statistic.
    pub fn statistic(&self, name: &str) -> Lookup {
        self.statistic_column(name, "Total")
    }

    /// A statistic per second, as printed.
    pub fn statistic_per_second(&self, name: &str) -> Lookup {
        self.statistic_column(name, "per Second")
    }

    fn statistic_column(&self, name: &str, column: &'static str) -> Lookup {
        let mut cut: Option<(String, Option<f64>)> = None;
        for (table, total) in statistics(self, column) {
            let width = cut_width(self, table);
            for row in table.rows() {
                let printed = row.text(0);
                if printed == name {
                    return row.number(total).map_or(Lookup::Absent, Lookup::Found);
                }
                if is_cut(printed, name, width) {
                    match &cut {
                        // Two rows with the same cut name.
                        Some(_) => cut = Some((printed.to_owned(), None)),
                        None => cut = Some((printed.to_owned(), row.number(total))),
                    }
                }
            }
        }
        match cut {
            None => Lookup::Absent,
            Some((printed, value)) => {
                let others: Vec<&str> =
                    LONG_NAMES.iter().filter(|known| known.starts_with(&printed)).copied().collect();
                match value {
                    Some(value) if others.iter().all(|known| *known == name) => Lookup::Found(value),
                    _ => Lookup::Ambiguous(printed, others),
                }
            }
        }
    }

    /// All statistics: name and total.
    pub fn statistics(&self) -> Vec<(&str, f64)> {
        let rows = statistics(self, "Total").flat_map(|(table, total)| table.rows().map(move |row| (row, total)));
        rows.filter_map(|(row, total)| Some((row.text(0), row.number(total)?))).collect()
    }

    /// The value of a row of the load profile, per second; in the unit of the row: microseconds, bytes, or a number.
    pub fn load(&self, labels: &[&str]) -> Option<f64> {
        let section = self.section("Load Profile")?;
        let rows = section.tables().flat_map(|table| table.rows().map(move |row| (table, row)));
        for (table, row) in rows {
            if labels.iter().any(|label| same_name(row.text(0), label)) {
                return row.number(table.column(&["Per Second"])?);
            }
        }
        None
    }

    /// Times of the time model in microseconds.
    pub fn time_model(&self) -> Vec<(String, f64)> {
        let mut times: Vec<(String, f64)> = Vec::new();
        for section in self.sections().filter(|section| section.heading().starts_with("Time Model")) {
            for table in section.tables() {
                let name = table.column(&["Statistic Name", "Statistic"]);
                if let (Some(name), Some(time)) = (name, table.column(&["Time (s)"])) {
                    times.extend(table.rows().filter_map(|row| Some((row.text(name).to_owned(), row.number(time)?))));
                } else if table.column(&["I#"]).is_some()
                    && let Some(sum) = table.rows().find(|row| row.text(0) == "Sum")
                {
                    times.extend(global_times(sum));
                }
            }
        }
        times
    }

    /// A time of the time model in microseconds.
    pub fn time(&self, name: &str) -> Option<f64> {
        self.time_model().into_iter().find(|(known, _)| same_name(known, name)).map(|(_, us)| us)
    }

    /// Foreground and background events. If the report lacks the complete lists, the events of the top list.
    pub fn events(&self) -> Vec<EventRow> {
        let classes = self.event_classes();
        let mut events = Vec::new();
        let mut lists = 0;
        for section in self.sections() {
            let heading = section.heading();
            let is_background = heading.starts_with("Background Wait Events");
            if is_background || heading.starts_with("Foreground Wait Events") || same_name(heading, "Wait Events") {
                let before = events.len();
                section.tables().for_each(|table| event_rows(table, is_background, &classes, &mut events));
                lists += usize::from(events.len() > before && !is_background);
            }
        }
        if lists == 0 {
            // A list of all events contains the events of background processes.
            let foreground = self.top_section(|heading| heading.contains("Foreground"));
            events.extend(self.events_of(foreground.or_else(|| self.top_section(|_| true))));
        }
        events
    }

    /// The events of the first list of the busiest events.
    pub fn top_events(&self) -> Vec<EventRow> {
        self.events_of(self.top_section(|_| true))
    }

    /// The first list of the busiest events whose heading fulfils a condition.
    fn top_section(&self, condition: impl Fn(&str) -> bool) -> Option<Section<'_>> {
        let mut top = self.sections().filter(|section| section.heading().starts_with("Top "));
        top.find(|section| {
            condition(section.heading())
                && section.tables().any(|table| {
                    table.column(&["Event"]).is_some() && table.column(&["Waits", "Event Waits"]).is_some()
                })
        })
    }

    /// The event for which a text report prints only the beginning of a name, or what else the beginning stands for. None if
    /// no event has the name.
    pub(super) fn cut_event<'a>(
        &self,
        events: &'a [EventRow],
        name: &str,
    ) -> Option<Result<&'a EventRow, (String, Vec<&'static str>)>> {
        if self.form != Form::Text {
            return None;
        }
        let width = events.iter().map(|event| event.name.chars().count()).max()?;
        let mut cut = events.iter().filter(|event| event.name.len() >= CUT_MIN && is_cut(&event.name, name, width));
        let event = cut.next()?;
        let others: Vec<&str> = LONG_NAMES.iter().filter(|known| known.starts_with(&event.name)).copied().collect();
        let is_unique = cut.all(|other| other.is_background && !event.is_background);
        match is_unique && others.iter().all(|known| *known == name) {
            true => Some(Ok(event)),
            false => Some(Err((event.name.clone(), others))),
        }
    }

    fn events_of(&self, top: Option<Section<'_>>) -> Vec<EventRow> {
        let classes = self.event_classes();
        let mut events = Vec::new();
        if let Some(section) = top {
            section.tables().for_each(|table| event_rows(table, false, &classes, &mut events));
        }
        events
    }

    /// The wait class of each event that a table of the report names.
    fn event_classes(&self) -> BTreeMap<String, String> {
        let mut classes = BTreeMap::new();
        for table in self.tables() {
            let columns = table.column(&["Event"]).zip(table.column(&["Wait Class", "Class"]));
            for row in table.rows().filter(|_| columns.is_some()) {
                let (event, class) = columns.unwrap_or_default();
                if let Some(class) = class_name(row.text(class)) {
                    classes.entry(row.text(event).to_owned()).or_insert_with(|| class.to_owned());
                }
            }
        }
        classes
    }
}

/// Columns of the time model of a global report, and the statistics that they contain.
fn global_times<'a>(sum: Row<'a>) -> impl Iterator<Item = (String, f64)> + 'a {
    const NAMES: [(&str, &str); 9] = [
        ("DB time (s)", "DB time"),
        ("DB CPU (s)", "DB CPU"),
        ("SQL Exec Ela (s)", "sql execute elapsed time"),
        ("Parse Ela (s)", "parse time elapsed"),
        ("Hard Parse Ela (s)", "hard parse elapsed time"),
        ("PL/SQL Ela (s)", "PL/SQL execution elapsed time"),
        ("Java Ela (s)", "Java execution elapsed time"),
        ("bg time (s)", "background elapsed time"),
        ("bg CPU (s)", "background cpu time"),
    ];
    NAMES.iter().filter_map(move |(column, name)| Some(((*name).to_owned(), sum.named(&[column])?)))
}

fn event_rows(table: Table<'_>, is_background: bool, classes: &BTreeMap<String, String>, events: &mut Vec<EventRow>) {
    let Some(name) = table.column(&["Event"]) else { return };
    let Some(waits) = table.column(&["Waits", "Event Waits"]) else { return };
    let instance = table.column(&["I#"]);
    let time =
        ["Total Wait Time (s)", "Total Wait Time (sec)", "Wait Time Total(s)", "Total(s)", "Time (s)", "Tota Time"];
    let time = table.column(&time);
    let average = table.column(&["Avg wait (ms)", "Wait Avg(ms)", "Avg wait", "Wait Event Avg(ms)", "Avg(ms)"]);
    let class = table.column(&["Wait Class", "Class"]);
    let percent =
        table.column(&["% DB time", "Wait Time %DB time", "% bg time", "Wait Time %bg time", "%Total Call Time"]);
    for row in table.rows() {
        if instance.is_some_and(|instance| row.text(instance) != "*") || row.text(name).is_empty() {
            continue;
        }
        let name = row.text(name);
        let known = class.and_then(|class| class_name(row.text(class))).or_else(|| class_of(classes, name));
        let total = time.and_then(|time| row.value(time)).map(|value| match value.unit.base() {
            "us" => value,
            // `Tota Time` has seconds.
            _ => Value { number: value.number * 1e6, error: value.error * 1e6, ..value },
        });
        let average = average.and_then(|average| row.value(average)).filter(|value| value.unit.base() == "us");
        events.push(EventRow {
            name: name.to_owned(),
            class: known.or_else(|| well_known_class(name)).unwrap_or("").to_owned(),
            is_background,
            waits: row.number(waits),
            time_us: total.map(|total| total.number),
            average_us: average_us(total, average, row.value(waits)),
            percent: percent.and_then(|percent| row.number(percent)),
            line: row.line(),
        });
    }
}

/// The average of a wait in microseconds: of the printed average, and the total over the waits, what is rounded less.
fn average_us(total: Option<Value>, average: Option<Value>, waits: Option<Value>) -> Option<f64> {
    let waits = waits.filter(|waits| waits.number > 0.0);
    let quotient = total.zip(waits).map(|(total, waits)| {
        let us = total.number / waits.number;
        // Numbers of waits may be rounded, too: `12.3K`.
        let rounded = if waits.number.fract() == 0.0 && waits.error <= 0.5 { 0.0 } else { waits.error / waits.number };
        (us, total.error / waits.number + us * rounded)
    });
    match (quotient, average.filter(|average| average.number > 0.0)) {
        (Some((_, error)), Some(average)) if average.error < error => Some(average.number),
        (Some((us, _)), _) => Some(us),
        (None, average) => average.map(|average| average.number),
    }
}

/// The class of an event, by its name or by the names that begin with it, if they are of one class.
fn class_of<'a>(classes: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let mut candidates = classes.range(name.to_owned()..).take_while(|(known, _)| known.starts_with(name));
    let (known, class) = candidates.next()?;
    if known == name {
        return Some(class);
    }
    (name.len() >= CUT_MIN && candidates.all(|(_, other)| other == class)).then_some(class)
}

/// The wait class of a printed class, which text reports cut (`Configurat`).
pub fn class_name(printed: &str) -> Option<&'static str> {
    let classes = crate::figures::time::CLASSES.iter().filter(|class| **class != "CPU");
    let mut found = classes.filter(|class| **class == printed || (printed.len() >= 7 && class.starts_with(printed)));
    found.next().copied().filter(|_| found.next().is_none())
}

/// The wait class of events whose class no table of a report names.
fn well_known_class(event: &str) -> Option<&'static str> {
    const CLASSES: [(&str, &str); 33] = [
        ("enq: KO", "Application"),
        ("enq: HW", "Configuration"),
        ("enq: SQ", "Configuration"),
        ("log buffer space", "Configuration"),
        ("Disk file operations I/O", "User I/O"),
        ("row cache lock", "Concurrency"),
        ("SQL*Net more data", "Network"),
        ("db file sequential read", "User I/O"),
        ("db file scattered read", "User I/O"),
        ("db file parallel read", "User I/O"),
        ("direct path ", "User I/O"),
        ("read by other session", "User I/O"),
        ("cell single block", "User I/O"),
        ("cell multiblock", "User I/O"),
        ("cell smart ", "User I/O"),
        ("cell list of blocks", "User I/O"),
        ("log file sync", "Commit"),
        ("log file parallel write", "System I/O"),
        ("log file sequential read", "System I/O"),
        ("log file switch", "Configuration"),
        ("control file ", "System I/O"),
        ("db file parallel write", "System I/O"),
        ("enq: TX - row lock", "Application"),
        ("enq: TM - contention", "Application"),
        ("enq: TX - index", "Concurrency"),
        ("buffer busy waits", "Concurrency"),
        ("latch: ", "Concurrency"),
        ("library cache", "Concurrency"),
        ("cursor: ", "Concurrency"),
        ("gc ", "Cluster"),
        ("free buffer waits", "Configuration"),
        ("resmgr:", "Scheduler"),
        ("SQL*Net message from cl", "Idle"),
    ];
    CLASSES.iter().find(|(beginning, _)| event.starts_with(beginning)).map(|(_, class)| *class)
}

/// The sections whose heading begins with a text.
pub fn sections_of<'a>(report: &'a Report, beginning: &'a str) -> impl Iterator<Item = Section<'a>> {
    report.sections().filter(move |section| section.heading().starts_with(beginning))
}
