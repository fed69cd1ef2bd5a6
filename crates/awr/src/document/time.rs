//! Time stamps: ISO 8601 with an offset, as `jsonb` stores `timestamptz`.

use std::fmt;

/// Microseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Timestamp {
    /// Parses `YYYY-MM-DD`, `T` or a space, `HH:MM:SS`, an optional fraction, and an optional offset (`Z`, `+HH`, `+HH:MM`,
    /// `+HHMM`). A time without an offset is UTC. Returns None for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.trim().split_once(['T', ' '])?;
        let mut parts = date.splitn(3, '-');
        let year: i64 = parts.next()?.parse().ok()?;
        let month: i64 = parts.next()?.parse().ok()?;
        let day: i64 = parts.next()?.parse().ok()?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(0..=9999).contains(&year) {
            return None;
        }
        let end = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
        let (clock, offset) = rest.split_at(end);
        let (clock, fraction) = clock.trim_end().split_once('.').unwrap_or((clock.trim_end(), ""));
        let mut parts = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
        let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
        if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
            return None;
        }
        let micros: i64 = match fraction {
            "" => 0,
            digits => format!("{digits:0<6}").get(..6)?.parse().ok()?,
        };
        let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        Some(Self((seconds - offset_seconds(offset)?) * MICROS_PER_SECOND + micros))
    }

    /// Returns the time this many microseconds after 1970-01-01 00:00:00 UTC.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// ISO 8601 with an offset, UTC, to the second: `2026-11-23T05:00:00+00:00`.
    pub fn iso(self) -> String {
        let (year, month, day) = civil_from_days(self.0.div_euclid(MICROS_PER_SECOND).div_euclid(SECONDS_PER_DAY));
        format!("{year:04}-{month:02}-{day:02}T{}+00:00", self.clock())
    }

    pub fn plus(self, micros: i64) -> Self {
        Self(self.0 + micros)
    }

    /// Microseconds from `earlier` to `self`; negative if `self` is earlier.
    pub fn since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / MICROS_PER_SECOND as f64
    }

    /// The clock time `HH:MM:SS`, UTC.
    pub fn clock(self) -> String {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND).rem_euclid(SECONDS_PER_DAY);
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

/// Oracle's form, UTC: `23-Nov-26 05:00:00`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(MICROS_PER_SECOND).div_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        let month = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
        write!(f, "{day:02}-{month}-{:02} {}", year.rem_euclid(100), self.clock())
    }
}

fn offset_seconds(offset: &str) -> Option<i64> {
    let (sign, digits) = match offset.trim().as_bytes() {
        [] | [b'Z'] => return Some(0),
        [b'+', ..] => (1, &offset.trim()[1..]),
        [b'-', ..] => (-1, &offset.trim()[1..]),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    let hours: i64 = digits.get(..2)?.parse().ok()?;
    let minutes: i64 = digits.get(2..4).map_or(Some(0), |minutes| minutes.parse().ok())?;
    Some(sign * (hours * 3600 + minutes * 60))
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. The year starts in March, so that the leap day is the last
/// day of a year, and 400 years are an era of 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_of_jsonb_are_read_and_printed_in_utc() {
        for (text, printed) in [
            ("1970-01-01T00:00:00+00:00", "01-Jan-70 00:00:00"),
            ("2024-02-29T23:59:59.5+00:00", "29-Feb-24 23:59:59"),
            ("2026-11-23T06:30:00+05:30", "23-Nov-26 01:00:00"),
            ("2026-01-01 00:00:00-03", "01-Jan-26 03:00:00"),
            ("2000-12-31T24:00:00Z", "01-Jan-01 00:00:00"),
        ] {
            assert_eq!(Timestamp::parse(text).map(|time| time.to_string()).as_deref(), Some(printed), "{text}");
        }
        for text in ["", "now", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00*"] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_stamp_in_iso_form_reads_back() {
        let time = Timestamp::parse("2026-03-01T00:30:07.9+01:00").unwrap();
        assert_eq!(time.iso(), "2026-02-28T23:30:07+00:00");
        assert_eq!(time.since(Timestamp::parse(&time.iso()).unwrap()), 900_000);
        assert_eq!(Timestamp::from_micros(-1).iso(), "1969-12-31T23:59:59+00:00");
    }

    #[test]
    fn fractions_and_offsets_count_in_differences() {
        let a = Timestamp::parse("2026-11-23T06:00:00.25+01:00").unwrap();
        let b = Timestamp::parse("2026-11-23T05:00:01.000001+00:00").unwrap();
        assert_eq!(b.since(a), 750_001);
    }

    #[test]
    fn days_and_dates_agree_over_eight_centuries() {
        for days in (-150_000..150_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
