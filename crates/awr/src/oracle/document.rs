//! The report document of an Oracle report: the same figures, sections and rules then read Oracle's reports and our own.
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

    /// Waits by log2 bucket of microseconds, by event, from the tables of histograms.
    pub fn histograms(&self) -> BTreeMap<String, Vec<f64>> {
        let mut shares: BTreeMap<String, (f64, BTreeMap<u32, f64>)> = BTreeMap::new();
        for section in super::lookup::sections_of(self, "Wait Event Histogram") {
            let is_base = section.heading().len() <= "Wait Event Histogram (Global)".len()
                && !section.heading().contains("up to");
            for table in section.tables() {
                let (Some(event), Some(total)) = (table.column(&["Event"]), table.column(&["Total Waits", "Waits"]))
                else {
                    continue;
                };
                let bounds: Vec<Option<u32>> = table.columns().map(|column| bound(column.name())).collect();
                for row in table.rows().filter(|_| is_base) {
                    let entry = shares.entry(row.text(event).to_owned()).or_default();
                    entry.0 = row.number(total).unwrap_or(0.0);
                    for (column, exponent) in bounds.iter().enumerate() {
                        if let (Some(exponent), Some(share)) = (exponent, row.number(column)) {
                            *entry.1.entry(*exponent).or_default() += share;
                        }
                    }
                }
            }
        }
        let counts = |(total, shares): (f64, BTreeMap<u32, f64>)| {
            let last = shares.keys().next_back().copied().unwrap_or(0) as usize;
            let mut buckets = vec![0.0; last + 1];
            shares.into_iter().for_each(|(exponent, share)| buckets[exponent as usize] += total * share / 100.0);
            buckets
        };
        shares.into_iter().map(|(event, shares)| (event, counts(shares))).collect()
    }
}

/// The bucket of a column of a histogram: `<1ms` is below 2^10 microseconds, `>1s` the bucket above.
fn bound(name: &str) -> Option<u32> {
    let (is_above, text) = match name.split_at_checked(1)? {
        ("<", rest) => (false, rest.trim_start_matches('=')),
        (">", rest) => (true, rest.trim_start_matches('=')),
        _ => return None,
    };
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: f64 = text[..digits].parse().ok()?;
    let us = match text[digits..].trim() {
        "us" => number,
        "ms" => number * 1024.0,
        "s" => number * 1_048_576.0,
        "m" | "min" => number * 67_108_864.0,
        _ => return None,
    };
    let exponent = us.log2().round() as u32;
    Some(if is_above { exponent + 1 } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::bound;

    #[test]
    fn bounds_of_histograms_are_powers_of_two() {
        let cases =
            [("<1us", 0), ("<512us", 9), ("<1ms", 10), ("<32ms", 15), ("<=1s", 20), (">1s", 21), (">=512us", 10)];
        for (name, exponent) in cases {
            assert_eq!(bound(name), Some(exponent), "{name}");
        }
        assert_eq!(bound("Event"), None);
    }
}
