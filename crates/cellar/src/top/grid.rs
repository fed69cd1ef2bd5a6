//! Tables of a view: typed cells, sorted by any column, for the screen and for text.

use super::history::StatementKey;
use super::reading::Session;
use super::view::{CellIoRow, DatabaseRow, SMART_SCAN, StatementRow, View};
use cellar_awr::table::bytes;
use std::cmp::Ordering;

/// Smallest width of a column that takes the space that others leave.
const FILL_WIDTH_MIN: u16 = 30;

/// What a row shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    Statement(StatementKey),
    Session(i32),
    Database(String),
    Row(String),
}

pub struct Column {
    pub title: &'static str,
    /// Width in characters; 0 takes the space that the other columns leave.
    pub width: u16,
    pub is_number: bool,
    /// On a narrow screen, the columns with the highest rank are left out first; those with rank 0 always remain.
    pub rank: u8,
}

#[derive(Debug, Clone)]
pub enum Cell {
    Text(String),
    /// A figure and its printed form; None is printed blank and sorted last.
    Number(Option<f64>, fn(f64) -> String),
}

impl Cell {
    pub fn print(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, format) => value.map(format).unwrap_or_default(),
        }
    }

    /// Orders numbers from the greatest, texts from the first.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a, _), Self::Number(b, _)) => {
                b.unwrap_or(f64::NEG_INFINITY).total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
            }
            (Self::Text(a), Self::Text(b)) => a.is_empty().cmp(&b.is_empty()).then_with(|| a.cmp(b)),
            (Self::Text(_), Self::Number(..)) => Ordering::Greater,
            (Self::Number(..), Self::Text(_)) => Ordering::Less,
        }
    }
}

pub struct Grid {
    pub title: String,
    pub columns: &'static [Column],
    pub rows: Vec<(Key, Vec<Cell>)>,
}

impl Grid {
    /// Sorts by a column; None keeps the order of the view.
    pub fn sort(&mut self, column: Option<usize>, is_reversed: bool) {
        if let Some(column) = column.filter(|column| *column < self.columns.len()) {
            self.rows.sort_by(|(_, a), (_, b)| a[column].compare(&b[column]));
        }
        if is_reversed {
            self.rows.reverse();
        }
    }

    /// Returns the index and the width of the columns that a screen of `width` characters shows. The column without a width
    /// has at least [`FILL_WIDTH_MIN`].
    pub fn fitting(&self, width: u16) -> Vec<(usize, u16)> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let used: u16 = shown.iter().map(|index| self.columns[*index].width + 1).sum();
            let has_fill = shown.iter().any(|index| self.columns[*index].width == 0);
            let needed = used + if has_fill { FILL_WIDTH_MIN } else { 0 };
            let last = shown.iter().position(|index| {
                let rank = self.columns[*index].rank;
                rank > 0 && shown.iter().all(|other| self.columns[*other].rank <= rank)
            });
            match last {
                Some(last) if needed > width => drop(shown.remove(last)),
                _ => {
                    let fill = width.saturating_sub(used).max(FILL_WIDTH_MIN);
                    let width = |index: usize| match self.columns[index].width {
                        0 => fill,
                        width => width,
                    };
                    return shown.into_iter().map(|index| (index, width(index))).collect();
                }
            }
        }
    }

    /// Prints the first rows as text, without colours.
    pub fn text(&self, rows: usize, width: usize) -> String {
        let mut out = format!("{}\n", self.title);
        let fixed: usize = self.columns.iter().map(|column| usize::from(column.width) + 1).sum();
        let cell = |column: &Column, text: &str| {
            let width = if column.width == 0 { width.saturating_sub(fixed) } else { usize::from(column.width) };
            let text: String = text.chars().take(width).collect();
            if column.is_number { format!("{text:>width$} ") } else { format!("{text:<width$} ") }
        };
        let line = |texts: &mut dyn Iterator<Item = String>| {
            let line: String = self.columns.iter().zip(texts).map(|(column, text)| cell(column, &text)).collect();
            format!("{}\n", line.trim_end())
        };
        out += &line(&mut self.columns.iter().map(|column| column.title.to_owned()));
        for (_, cells) in self.rows.iter().take(rows) {
            out += &line(&mut cells.iter().map(Cell::print));
        }
        out
    }
}

const fn text(title: &'static str, width: u16) -> Column {
    Column { title, width, is_number: false, rank: 0 }
}

const fn number(title: &'static str, width: u16) -> Column {
    Column { title, width, is_number: true, rank: 0 }
}

/// A column that a narrow screen leaves out.
const fn optional(rank: u8, column: Column) -> Column {
    Column { rank, ..column }
}

/// A text on one line, without characters that control a terminal.
pub fn printable(text: &str) -> String {
    let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cell(value: impl AsRef<str>) -> Cell {
    Cell::Text(printable(value.as_ref()))
}

/// A count or a rate with at most four significant digits: 0, 0.25, 12.5, 830, 12.4k.
pub fn count(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        size if size < 9_999.5 => format!("{value:.0}"),
        size if size < 999_950.0 => format!("{:.1}k", value / 1e3),
        size if size < 999_950_000.0 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

/// A time in seconds with three significant digits: 12us, 1.25ms, 12.5s, 3.2h.
pub fn seconds(value: f64) -> String {
    let digits = |value: f64, unit: &str| match value {
        value if value < 9.995 => format!("{value:.2}{unit}"),
        value if value < 99.95 => format!("{value:.1}{unit}"),
        value => format!("{value:.0}{unit}"),
    };
    match value {
        value if value < 0.0 => "0s".to_owned(),
        value if value < 0.000_999_5 => format!("{:.0}us", value * 1e6),
        value if value < 0.999_5 => digits(value * 1e3, "ms"),
        value if value < 600.0 => digits(value, "s"),
        value if value < 36_000.0 => digits(value / 60.0, "min"),
        value => digits(value / 3600.0, "h"),
    }
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

const STATEMENTS: [Column; 11] = [
    text("SQL Id", 13),
    number("active", 6),
    text("mostly", 12),
    number("calls/s", 7),
    number("mean", 7),
    optional(4, number("CPU", 5)),
    optional(5, number("rows/s", 7)),
    optional(3, number("reads/s", 7)),
    optional(2, number("offload/s", 9)),
    optional(1, text("database", 10)),
    text("statement", 0),
];

pub fn statements(view: &View) -> Grid {
    let row = |row: &StatementRow| {
        let cells = vec![
            cell(row.sql_id.as_deref().unwrap_or_default()),
            Cell::Number(Some(row.active_sessions), count),
            cell(row.wait_class.unwrap_or_default()),
            Cell::Number(row.calls_per_second, count),
            Cell::Number(row.mean_seconds, seconds),
            Cell::Number(row.cpu_cores, count),
            Cell::Number(row.rows_per_second, count),
            Cell::Number(row.blocks_read_per_second, count),
            Cell::Number(row.eligible_bytes_per_second.filter(|bytes| *bytes > 0.0), bytes),
            cell(&row.database),
            cell(row.text.as_deref().unwrap_or_default()),
        ];
        (Key::Statement(row.key()), cells)
    };
    let title = match view.rate_seconds {
        Some(rate) => format!("Top SQL: sampled activity of the last minute, rates over {}", seconds(rate)),
        None => "Top SQL: sampled activity of the last minute".to_owned(),
    };
    Grid { title, columns: &STATEMENTS, rows: view.statements.iter().map(row).collect() }
}

const SESSIONS: [Column; 12] = [
    number("pid", 7),
    text("database", 10),
    optional(5, text("role", 10)),
    optional(2, text("application", 14)),
    optional(6, text("group", 12)),
    optional(4, text("state", 10)),
    optional(3, text("class", 12)),
    text("wait event", 20),
    number("since", 7),
    optional(1, number("xact", 7)),
    text("blocked by", 10),
    text("statement", 0),
];

/// Short form of a state of `pg_stat_activity`.
fn state(session: &Session) -> &str {
    match session.state.as_deref() {
        Some("idle in transaction") => "idle xact",
        Some("idle in transaction (aborted)") => "idle abort",
        Some(state) => state,
        None => "",
    }
}

/// The wait event as `type:event`; `CPU` if an active session does not wait.
pub fn wait_event(session: &Session) -> String {
    match (&session.wait_event_type, &session.wait_event) {
        (Some(event_type), Some(event)) => format!("{event_type}:{event}"),
        _ if session.is_active => "CPU".to_owned(),
        _ => String::new(),
    }
}

/// Sessions; without `with_idle`, only those that are active, in a transaction, or blocked.
pub fn sessions(view: &View, with_idle: bool) -> Grid {
    let is_shown = |session: &&Session| with_idle || session.is_busy();
    let row = |session: &Session| {
        let blockers: Vec<String> = session.blockers.iter().map(i32::to_string).collect();
        let is_running = session.state.as_deref() == Some("active");
        let name = if session.application.is_empty() { &session.backend_type } else { &session.application };
        let cells = vec![
            Cell::Number(Some(f64::from(session.pid)), whole),
            cell(session.database.as_deref().unwrap_or_default()),
            cell(session.role.as_deref().unwrap_or_default()),
            cell(name),
            cell(session.consumer_group.as_deref().unwrap_or_default()),
            cell(state(session)),
            cell(if session.is_active { session.wait_class.as_str() } else { "" }),
            cell(wait_event(session)),
            Cell::Number(session.query_age_seconds.filter(|_| is_running), seconds),
            Cell::Number(session.xact_age_seconds, seconds),
            cell(blockers.join(",")),
            cell(session.query.as_deref().unwrap_or(&session.backend_type)),
        ];
        (Key::Session(session.pid), cells)
    };
    let mut shown: Vec<&Session> = view.sessions.iter().filter(is_shown).collect();
    shown.sort_by(|a, b| a.list_order(b));
    let which = if with_idle { "all" } else { "active, blocked, or in a transaction" };
    let title = format!("Sessions: {which} ({} of {})", shown.len(), view.sessions.len());
    Grid { title, columns: &SESSIONS, rows: shown.into_iter().map(row).collect() }
}

const DATABASES: [Column; 12] = [
    text("database", 18),
    number("sessions", 8),
    number("active", 6),
    number("commits/s", 9),
    number("rollb/s", 7),
    number("reads/s", 8),
    number("hit %", 6),
    optional(2, number("rows read/s", 11)),
    optional(3, number("written/s", 9)),
    optional(1, number("temp/s", 7)),
    number("cell I/O/s", 10),
    optional(4, number("deadlocks", 9)),
];

pub fn databases(view: &View) -> Grid {
    let row = |row: &DatabaseRow| {
        let commits = row.transactions_per_second.zip(row.rollbacks_per_second).map(|(all, rollbacks)| all - rollbacks);
        let cells = vec![
            cell(&row.database),
            Cell::Number(Some(row.sessions as f64), whole),
            Cell::Number(Some(row.active_sessions), count),
            Cell::Number(commits, count),
            Cell::Number(row.rollbacks_per_second, count),
            Cell::Number(row.blocks_read_per_second, count),
            Cell::Number(row.hit_percent, percent),
            Cell::Number(row.rows_read_per_second, count),
            Cell::Number(row.rows_written_per_second, count),
            Cell::Number(row.temp_bytes_per_second, bytes),
            Cell::Number(row.cell_bytes_per_second, bytes),
            Cell::Number(Some(row.deadlocks as f64), whole),
        ];
        (Key::Database(row.database.clone()), cells)
    };
    let title = "Databases".to_owned();
    Grid { title, columns: &DATABASES, rows: view.databases.iter().map(row).collect() }
}

const CELL_IO: [Column; 11] = [
    text("database", 14),
    text("class", 9),
    text("kind", 15),
    number("ops/s", 7),
    number("bytes/s", 8),
    optional(3, number("returned/s", 10)),
    optional(2, number("mean", 8)),
    number("p50", 8),
    number("p95", 8),
    number("p99", 8),
    optional(1, text("cell", 0)),
];

/// The kind as DBAs call it: a read of one block is small, a read of several blocks is large.
fn kind(kind: &str) -> &str {
    match kind {
        "single block read" => "small read",
        "multiblock read" => "large read",
        kind => kind,
    }
}

pub fn cell_io(view: &View) -> Grid {
    let row = |row: &CellIoRow| {
        let name = kind(&row.kind);
        let cells = vec![
            cell(&row.database),
            cell(row.class.as_deref().unwrap_or_default()),
            cell(name),
            Cell::Number(row.operations_per_second, count),
            Cell::Number(row.bytes_per_second, bytes),
            Cell::Number(row.returned_bytes_per_second, bytes),
            Cell::Number(row.mean_seconds, seconds),
            Cell::Number(row.p50_seconds, seconds),
            Cell::Number(row.p95_seconds, seconds),
            Cell::Number(row.p99_seconds, seconds),
            cell(&row.cell),
        ];
        let key = match row.kind.as_str() {
            SMART_SCAN | "sync" => Key::Row(format!(
                "{} {} {} {}",
                row.cell,
                row.database,
                row.class.as_deref().unwrap_or_default(),
                row.kind
            )),
            _ => Key::Database(row.database.clone()),
        };
        (key, cells)
    };
    let title =
        "Cell I/O: small and large reads and writes through the mount, eligible bytes of Smart Scans".to_owned();
    Grid {
        title,
        columns: &CELL_IO,
        rows: view.cell_io.iter().filter(|row| row.operations_per_second != Some(0.0)).map(row).collect(),
    }
}

const DISKS: [Column; 8] = [
    text("cell", 12),
    number("size", 8),
    number("available", 9),
    number("use %", 6),
    number("reserve", 8),
    number("free", 8),
    number("errors", 6),
    text("cell disk", 0),
];

pub fn disks(view: &View) -> Grid {
    let of_cell = |cell_state: &super::reading::CellState| {
        let name = cell_state.name.clone();
        let rows = cell_state.disks.iter().map(|disk| {
            let (size, available) = (disk.size_bytes as f64, disk.available_bytes as f64);
            let cells = vec![
                cell(&name),
                Cell::Number(Some(size), bytes),
                Cell::Number(Some(available), bytes),
                Cell::Number(Some(100.0 * (size - available) / size.max(1.0)), percent),
                Cell::Number(Some(disk.reserve_bytes as f64), bytes),
                Cell::Number(Some(disk.reserve_free_bytes as f64), bytes),
                Cell::Number(Some(disk.io_errors as f64), whole),
                cell(&disk.path),
            ];
            (Key::Row(disk.path.clone()), cells)
        });
        rows.collect::<Vec<_>>()
    };
    let rows = view.cells.iter().flat_map(of_cell).collect();
    Grid { title: "Cell disks".to_owned(), columns: &DISKS, rows }
}

/// One line about each cell.
pub fn cell_lines(view: &View) -> Vec<String> {
    let flash_cache = |flash: &super::reading::FlashCacheState| match flash.is_online {
        false => ", flash cache switched off".to_owned(),
        true => {
            let hits = flash.hit_percent.map_or_else(String::new, |percent| format!(", {percent:.1} % hits"));
            format!(", flash cache {} of {}{hits}", bytes(flash.used_bytes as f64), bytes(flash.capacity_bytes as f64))
        }
    };
    let waits = |wait: f64| format!(", IORM wait {} a request", seconds(wait));
    let line = |state: &super::reading::CellState| {
        format!(
            "cell {}, version {}, on {}, up {}: page cache {} of {}, memory {} of {}, redo logs {}, {} checkpoints queued{}{}",
            printable(&state.name),
            state.version,
            printable(&state.mount),
            seconds(state.uptime_seconds),
            bytes(state.cache_used_bytes as f64),
            bytes(state.cache_capacity_bytes as f64),
            bytes(state.memory_used_bytes as f64),
            bytes(state.memory_limit_bytes as f64),
            bytes(state.redo_log_bytes as f64),
            state.checkpoints_queued,
            state.flash_cache.as_ref().map_or_else(String::new, flash_cache),
            state.iorm_wait_per_request_seconds.map_or_else(String::new, waits),
        )
    };
    view.cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_or_four_digits() {
        let counts =
            [(0.0, "0"), (0.25, "0.25"), (12.34, "12.3"), (830.2, "830"), (12_400.0, "12.4k"), (2.5e9, "2.5G")];
        for (value, expected) in counts {
            assert_eq!(count(value), expected);
        }
        let times = [
            (12e-6, "12us"),
            (0.001, "1.00ms"),
            (0.0125, "12.5ms"),
            (12.5, "12.5s"),
            (720.0, "12.0min"),
            (36_000.0, "10.0h"),
        ];
        for (value, expected) in times {
            assert_eq!(seconds(value), expected);
        }
    }

    #[test]
    fn texts_cannot_control_the_terminal() {
        assert_eq!(printable("SELECT\n\t1 \u{1b}[2J\u{7}--\u{9b}31m"), "SELECT 1 [2J -- 31m");
    }

    #[test]
    fn figures_sort_from_the_greatest_and_absent_ones_last() {
        let row = |value| (Key::Session(1), vec![Cell::Number(value, count)]);
        const COLUMNS: [Column; 1] = [number("n", 4)];
        let mut grid =
            Grid { title: String::new(), columns: &COLUMNS, rows: vec![row(None), row(Some(1.0)), row(Some(7.0))] };
        grid.sort(Some(0), false);
        let printed: Vec<String> = grid.rows.iter().map(|(_, cells)| cells[0].print()).collect();
        assert_eq!(printed, ["7.00", "1.00", ""]);
    }
}
