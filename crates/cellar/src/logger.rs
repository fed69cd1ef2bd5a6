//! Log lines on stderr: time, level, context of the thread, message. Under systemd, a `<n>` prefix carries the level
//! and the journal adds the time.

use cellar_cell::log_context;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

struct StderrLogger {
    /// stderr is connected to the journal.
    for_journal: bool,
}

/// Installs the logger for messages up to `level`.
pub fn start(level: LevelFilter) {
    let for_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    log::set_max_level(level);
    // Fails only if a logger is already set.
    let _ = log::set_logger(Box::leak(Box::new(StderrLogger { for_journal })));
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The FUSE library logs ordinary events as errors: interrupted requests, mounts that are already unmounted.
        log::max_level() >= LevelFilter::Debug || !metadata.target().starts_with("fuser")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let context = match log_context::current() {
            context if context.is_empty() => context,
            context => format!("[{context}] "),
        };
        let line = match self.for_journal {
            true => format!("<{}>{context}{}\n", priority(record.level()), record.args()),
            false => format!("{} {:5} {context}{}\n", timestamp(), record.level(), record.args()),
        };
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Returns the syslog priority of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Returns the current time in UTC, for example 2026-01-31T23:59:59.123Z.
fn timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Converts days since 1970-01-01 to year, month and day of the Gregorian calendar.
fn civil_date(days: u64) -> (u64, u64, u64) {
    // Count years from March, so that the leap day is the last day of its year. An era is 400 years.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn day_numbers_convert_to_dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_513), (2026, 3, 1));
    }
}
