//! Log lines on stderr: time, level, what. systemd's journal reads the level from the `<n>` prefix when it is there.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

struct StderrLogger {
    /// stderr is the journal's, which has times of its own.
    for_journal: bool,
}

pub fn start(level: LevelFilter) {
    let for_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    log::set_max_level(level);
    // Fails only when there is a logger already.
    let _ = log::set_logger(Box::leak(Box::new(StderrLogger { for_journal })));
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The FUSE library complains of the ordinary: of an interrupted request, of a mount that is gone already.
        log::max_level() >= LevelFilter::Debug || !metadata.target().starts_with("fuser")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = match self.for_journal {
            true => format!("<{}>{}\n", priority(record.level()), record.args()),
            false => format!("{} {:5} {}\n", timestamp(), record.level(), record.args()),
        };
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// syslog's numbers.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// UTC, like 2026-01-31T23:59:59.123Z.
fn timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a day number since 1970, in the Gregorian calendar.
fn civil_date(days: u64) -> (u64, u64, u64) {
    // Years are taken to begin in March, so that the leap day is the last of its year; eras are 400 years.
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
    fn day_numbers_become_dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_513), (2026, 3, 1));
    }
}
