//! Converts an Oracle report to a report document, so that the same figures, sections and rules evaluate Oracle's reports and ours.
//!
//! A figure that the report does not contain, or whose cut name is ambiguous, is absent.

use super::lookup::Lookup;
use super::model::Report;
use crate::document::{
    Boundary, Document, Event, Instance, List, OsStatistic, Statement, Statistic, TimeStatistic, names,
};
use crate::sql_id;
use std::collections::BTreeMap;

/// Statistics whose figures the crate derives from, which cut names must not confuse.
const LOOKED_UP: [&str; 12] = [
    names::ELIGIBLE,
    names::SAVED,
    names::RETURNED,
    names::INTERCONNECT,
    names::UNCOMPRESSED,
    names::BALANCE_CPU,
    names::PASSTHRU,
    names::FLASH_HITS,
    names::READ_REQUESTS,
    names::READ_BYTES,
    names::WRITE_REQUESTS,
    names::WRITE_BYTES,
];

impl Report {
    /// The figures of the report as a report document.
    pub fn to_document(&self) -> Document {
        let header = &self.header;
        let first = header.instances.first();
        let boundary = |boundary: &super::model::Boundary| Boundary {
            snap_id: boundary.snap_id.and_then(|id| i64::try_from(id).ok()),
            time: boundary.time.as_str().into(),
            sessions: boundary.sessions,
        };
        Document {
            instance: Instance {
                id: header.db_id.map(|id| id.to_string()).unwrap_or_default().as_str().into(),
                name: first.map_or("", |instance| &instance.name).into(),
                host: first.map_or("", |instance| &instance.host).into(),
                platform: first.map_or("", |instance| &instance.platform).into(),
                server_version: header.release.as_str().into(),
                start_time: first.map_or("", |instance| &instance.startup).into(),
                cpus: header.cpus,
                memory_bytes: header.memory_bytes,
                ..Instance::default()
            },
            begin: boundary(&header.begin),
            end: boundary(&header.end),
            elapsed_us: header.elapsed_us,
            db_time_us: self.time(names::time::DB_TIME).or(header.db_time_us),
            time_model: List::from(self.document_times()),
            statistics: List::from(self.document_statistics()),
            events: List::from(self.document_events()),
            os: List::from(self.document_os()),
            statements: List::from(self.document_statements()),
            ..Document::default()
        }
    }

    fn document_times(&self) -> Vec<TimeStatistic> {
        let times = self.time_model().into_iter();
        times
            .map(|(name, us)| TimeStatistic { name: name.as_str().into(), us: Some(us), ..Default::default() })
            .collect()
    }

    fn document_statistics(&self) -> Vec<Statistic> {
        let statistic = |name: &str, value| Statistic { name: name.into(), value: Some(value), ..Default::default() };
        let mut all: Vec<Statistic> =
            self.statistics().into_iter().map(|(name, value)| statistic(name, value)).collect();
        for name in LOOKED_UP {
            if !all.iter().any(|known| &*known.name == name)
                && let Lookup::Found(value) = self.statistic(name)
            {
                all.push(statistic(name, value));
            }
        }
        // Beside the eligible bytes, an absent statistic counts as 0: an ambiguous one does not.
        let is_ambiguous = |name| matches!(self.statistic(name), Lookup::Ambiguous(..));
        if is_ambiguous(names::SAVED) || is_ambiguous(names::RETURNED) {
            all.retain(|statistic| &*statistic.name != names::ELIGIBLE);
        }
        all
    }

    /// Events with their histograms. An event without a share of DB time is idle.
    fn document_events(&self) -> Vec<Event> {
        let histograms = self.histograms();
        let events =
            self.events().into_iter().filter(|event| event.name != "DB CPU" && event.name != "background cpu time");
        let convert = |event: super::lookup::EventRow| {
            let class = match event.class.as_str() {
                "" if event.percent.is_none() => "Idle",
                "" => "Other",
                class => class,
            };
            let histogram = match event.is_background {
                true => Vec::new(),
                false => histograms.get(&event.name).cloned().unwrap_or_default(),
            };
            Event {
                event: event.name.as_str().into(),
                class: class.into(),
                foreground: Some(!event.is_background),
                waits: event.waits,
                time_us: event.time_us,
                histogram: List::from(histogram),
                ..Event::default()
            }
        };
        events.map(convert).collect()
    }

    fn document_os(&self) -> Vec<OsStatistic> {
        let Some(section) = self.section("Operating System Statistics").or_else(|| self.section("OS Statistics"))
        else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for table in section.tables() {
            let (Some(name), Some(value)) = (table.column(&["Statistic"]), table.column(&["Value", "Total"])) else {
                continue;
            };
            let end = table.column(&["End Value"]);
            all.extend(table.rows().map(|row| OsStatistic {
                name: row.text(name).into(),
                value: row.number(value),
                begin: row.number(value),
                end: end.and_then(|end| row.number(end)).or_else(|| row.number(value)),
                ..OsStatistic::default()
            }));
        }
        all
    }

    /// Statements of the lists of SQL, with the figures of every list that names them.
    fn document_statements(&self) -> Vec<Statement> {
        let mut statements: BTreeMap<i64, Statement> = BTreeMap::new();
        for section in super::lookup::sections_of(self, "SQL ordered by") {
            for table in section.tables() {
                let Some(id) = table.column(&["SQL Id"]) else { continue };
                let figure = |row: &super::model::Row<'_>, names: &[&str]| row.named(names);
                for row in table.rows() {
                    let Some(query_id) = sql_id::parse(row.text(id)) else { continue };
                    let statement = statements
                        .entry(query_id)
                        .or_insert_with(|| Statement { query_id: Some(query_id), ..Statement::default() });
                    let set = |known: &mut Option<f64>, names: &[&str]| *known = known.or_else(|| figure(&row, names));
                    set(&mut statement.elapsed_us, &["Elapsed Time (s)", "Total Elapsed (s)"]);
                    set(&mut statement.cpu_us, &["CPU Time (s)", "Total CPU (s)"]);
                    set(&mut statement.blk_read_us, &["User I/O Time (s)", "Total IOWait (s)"]);
                    set(&mut statement.calls, &["Executions", "Total Execs"]);
                    set(&mut statement.shared_blks_read, &["Physical Reads", "Total Reads"]);
                    set(&mut statement.rows, &["Rows Processed", "Total Rows"]);
                    if statement.text.is_empty()
                        && let Some(text) = table.column(&["SQL Text"])
                    {
                        statement.text = row.text(text).into();
                    }
                }
            }
        }
        statements.into_values().collect()
    }

    /// Waits by log2 bucket of microseconds, by event, from the tables of histograms. Tables of parts of the range
    /// (`up to 32 ms`) refine the base table: their shares are of the same total. Those of releases before 12.2 (`Detail`)
    /// divide its column of 32 ms to 1 s, and what is above.
    pub fn histograms(&self) -> BTreeMap<String, Vec<f64>> {
        let mut all: BTreeMap<String, Distribution> = BTreeMap::new();
        for section in super::lookup::sections_of(self, "Wait Event Histogram") {
            let heading = section.heading();
            let part = match heading {
                _ if heading.contains("up to") => Part::Range,
                _ if heading.contains("Detail") => Part::Detail,
                _ => Part::Base,
            };
            let is_part = part != Part::Base;
            for table in section.tables() {
                let Some(event) = table.column(&["Event"]) else { continue };
                let total = table.column(&["Total Waits", "Waits"]);
                let bounds: Vec<(usize, bool, u32)> = table
                    .columns()
                    .enumerate()
                    .filter_map(|(index, column)| {
                        bound(column.name()).map(|(is_above, exponent)| (index, is_above, exponent))
                    })
                    .collect();
                for row in table.rows() {
                    let entry = match is_part {
                        true => match all.get_mut(row.text(event)) {
                            Some(known) => known,
                            None => continue,
                        },
                        false => all.entry(row.text(event).to_owned()).or_default(),
                    };
                    if let Some(total) = total.and_then(|total| row.number(total)).filter(|_| !is_part) {
                        entry.total = total;
                    }
                    entry.add(
                        bounds.iter().map(|(column, above, exponent)| (*above, *exponent, row.number(*column))),
                        part,
                    );
                }
            }
        }
        all.into_iter().map(|(event, distribution)| (event, distribution.counts())).collect()
    }
}

/// What a table of histograms contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Base,
    /// A range of the base table.
    Range,
    /// A range of the base table of releases before 12.2.
    Detail,
}

/// Shares of waits by bucket, in per cent.
#[derive(Default)]
struct Distribution {
    total: f64,
    below: BTreeMap<u32, f64>,
    /// The rest, and the first bucket that can contain it.
    above: (u32, f64),
}

impl Distribution {
    /// Adds a row of a table: the bucket and its share, and whether the column counts the values above the bound.
    fn add(&mut self, shares: impl Iterator<Item = (bool, u32, Option<f64>)>, part: Part) {
        let is_part = part != Part::Base;
        let shares: Vec<_> = shares.collect();
        let first = shares.iter().filter(|(is_above, ..)| !is_above).map(|(_, exponent, _)| *exponent).min();
        let last = shares.iter().filter(|(is_above, ..)| !is_above).map(|(_, exponent, _)| *exponent).max();
        let (Some(first), Some(last)) = (first, last) else { return };
        if part == Part::Detail && first + 1 < self.above.0 {
            return self.divide(first, &shares);
        }
        // A part above continues the rest of the table before; a part below divides its first bucket.
        let continues = is_part && first + 1 >= self.above.0;
        let lowest = self.below.keys().next().copied().unwrap_or(0);
        for (is_above, exponent, share) in shares {
            let share = share.unwrap_or(0.0);
            match (is_above, is_part) {
                (true, false) => self.above = (exponent, share),
                (true, true) if continues => self.above = (last + 1, share),
                (true, true) => {}
                (false, false) => *self.below.entry(exponent).or_default() += share,
                (false, true) if continues && exponent > first => *self.below.entry(exponent).or_default() += share,
                (false, true) if !continues && exponent <= lowest => {
                    self.below.insert(exponent, share);
                }
                (false, true) => {}
            }
        }
    }

    /// Replaces the buckets above the first column of a part, which are coarse, by those of the part.
    fn divide(&mut self, first: u32, shares: &[(bool, u32, Option<f64>)]) {
        let finer = |is_above: bool| {
            shares
                .iter()
                .filter(move |share| share.0 == is_above && share.1 > first)
                .map(|share| (share.1, share.2.unwrap_or(0.0)))
        };
        if finer(false).chain(finer(true)).all(|(_, share)| share == 0.0) {
            return;
        }
        self.below.retain(|exponent, _| *exponent <= first);
        self.below.extend(finer(false));
        self.above = finer(true).next_back().unwrap_or(self.above);
    }

    fn counts(&self) -> Vec<f64> {
        let last = self.below.keys().next_back().copied().unwrap_or(0).max(self.above.0);
        let mut buckets = vec![0.0; last.min(63) as usize + 1];
        for (exponent, share) in self.below.iter().chain([(&self.above.0, &self.above.1)]) {
            if let Some(bucket) = buckets.get_mut(*exponent as usize) {
                *bucket += self.total * share / 100.0;
            }
        }
        buckets
    }
}

/// The bucket of a column of a histogram: `<1ms` is below 2^10 microseconds, `>1s` the bucket above (true).
fn bound(name: &str) -> Option<(bool, u32)> {
    let (is_above, text) = match name.split_at_checked(1)? {
        ("<", rest) => (false, rest.trim_start_matches('=')),
        (">", rest) => (true, rest.trim_start_matches('=')),
        _ => return None,
    };
    let text = text.trim();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'/').count();
    let (dividend, divisor) = text[..digits].split_once('/').unwrap_or((&text[..digits], "1"));
    let number = dividend.parse::<f64>().ok()? / divisor.parse::<f64>().ok().filter(|divisor| *divisor > 0.0)?;
    let us = match text[digits..].trim() {
        "us" | "u" => number,
        // Text reports cut `ms`. Minutes are 1 to 8: there are quarters of hours above.
        "m" if number >= 16.0 => number * 1024.0,
        "ms" => number * 1024.0,
        "s" => number * 1_048_576.0,
        "m" | "min" => number * 67_108_864.0,
        "h" => number * 4_294_967_296.0,
        _ => return None,
    };
    let exponent = us.log2().round().clamp(0.0, 62.0) as u32;
    Some((is_above, if is_above { exponent + 1 } else { exponent }))
}

#[cfg(test)]
mod tests {
    use super::{Part, bound};

    #[test]
    fn bounds_of_histograms_are_powers_of_two() {
        let cases = [
            ("<1/8s", 17),
            ("<1/2s", 19),
            ("<1/4h", 30),
            ("<1h", 32),
            ("<128u", 7),
            (">=32m", 16),
            ("<2m", 27),
            ("<1us", 0),
            ("<512us", 9),
            ("<1ms", 10),
            ("<32ms", 15),
            ("<=1s", 20),
            (">1s", 21),
            (">=512us", 10),
        ];
        for (name, exponent) in cases {
            assert_eq!(bound(name), Some((name.starts_with('>'), exponent)), "{name}");
        }
        assert_eq!(bound("Event"), None);
    }

    #[test]
    fn tables_of_parts_refine_the_base_table() {
        let mut distribution = super::Distribution { total: 1000.0, ..Default::default() };
        // <8us, <16us, >=16us; then 1 to 8 us; then 16 us to 64 us.
        distribution
            .add([(false, 3, Some(50.0)), (false, 4, Some(20.0)), (true, 5, Some(30.0))].into_iter(), Part::Base);
        distribution
            .add([(false, 2, Some(10.0)), (false, 3, Some(40.0)), (true, 4, Some(50.0))].into_iter(), Part::Range);
        let above = [(false, 4, Some(70.0)), (false, 5, Some(10.0)), (false, 6, Some(15.0)), (true, 7, Some(5.0))];
        distribution.add(above.into_iter(), Part::Range);
        assert_eq!(distribution.counts(), [0.0, 0.0, 100.0, 400.0, 200.0, 100.0, 150.0, 50.0]);
    }

    #[test]
    fn tables_of_details_divide_the_coarse_bucket() {
        let mut distribution = super::Distribution { total: 1000.0, ..Default::default() };
        // <32ms, <=1s, >1s; then 64 ms to 2 s; then 4 s to 8 s.
        distribution
            .add([(false, 15, Some(50.0)), (false, 20, Some(40.0)), (true, 21, Some(10.0))].into_iter(), Part::Base);
        let shares = [50.0, 25.0, 10.0, 5.0, 0.0, 0.0, 6.0];
        let detail = shares.iter().zip(15..).map(|(share, exponent)| (false, exponent, Some(*share)));
        distribution.add(detail.chain([(true, 22, Some(4.0))]), Part::Detail);
        let above = [(false, 21, Some(96.0)), (false, 22, Some(1.0)), (false, 23, Some(1.0)), (true, 24, Some(2.0))];
        distribution.add(above.into_iter(), Part::Detail);
        let counts = distribution.counts();
        assert_eq!(counts[15..], [500.0, 250.0, 100.0, 50.0, 0.0, 0.0, 60.0, 10.0, 10.0, 20.0]);
    }
}
