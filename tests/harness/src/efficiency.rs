//! Smart Scan's efficiency: statistics under their Oracle names, as differences of `cellar.sysstat`, and their ratios.

use anyhow::{Context, Result};
use postgres::Client;
use std::collections::BTreeMap;

const ELIGIBLE: &str = "cell physical IO bytes eligible for predicate offload";
const SAVED: &str = "cell physical IO bytes saved by storage index";
const RETURNED: &str = "cell physical IO interconnect bytes returned by smart scan";
const INTERCONNECT: &str = "cell physical IO interconnect bytes";
const TO_BALANCE_CPU: &str = "cell physical IO bytes sent directly to DB node to balance CPU";
const UNCOMPRESSED: &str = "cell IO uncompressed bytes";
const PASSTHRU: &str = "cell num bytes in passthru during predicate offload";
const READ: &str = "physical read total bytes";
const WRITTEN: &str = "physical write total bytes";
const OPTIMIZED: &str = "physical read total bytes optimized";
const READ_REQUESTS: &str = "physical read total IO requests";
const OPTIMIZED_REQUESTS: &str = "physical read requests optimized";
const FLASH_HITS: &str = "cell flash cache read hits";

const SHOWN: [&str; 13] = [
    READ,
    WRITTEN,
    INTERCONNECT,
    ELIGIBLE,
    SAVED,
    TO_BALANCE_CPU,
    RETURNED,
    UNCOMPRESSED,
    PASSTHRU,
    READ_REQUESTS,
    OPTIMIZED,
    OPTIMIZED_REQUESTS,
    FLASH_HITS,
];

/// System statistics by name, absolute or a difference.
#[derive(Default, Clone)]
pub struct Statistics(BTreeMap<String, i128>);

impl Statistics {
    /// Reads `cellar.sysstat`; empty on a cluster without the extension.
    pub fn read(client: &mut Client) -> Result<Self> {
        if client.query_one("SELECT to_regclass('cellar.sysstat') IS NULL", &[])?.get(0) {
            return Ok(Self::default());
        }
        let rows = client.query("SELECT name::text, value::text FROM cellar.sysstat", &[])?;
        let value = |text: String| text.parse().with_context(|| format!("\"{text}\" is not a whole number"));
        rows.iter().map(|row| Ok((row.get(0), value(row.get(1))?))).collect::<Result<_>>().map(Self)
    }

    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, value): (&String, &i128)| (name.clone(), value - before.0.get(name).unwrap_or(&0));
        Self(self.0.iter().map(difference).collect())
    }

    pub fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += value;
        }
    }

    fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Numerator and denominator.
type Ratio = fn(&Statistics) -> (i128, i128);

/// Returns the statistics and the ratios computed from them, with the formula of each: one column per title.
pub fn report(columns: &[(&str, &Statistics)]) -> String {
    if columns.iter().all(|(_, statistics)| statistics.0.is_empty()) {
        return "There are no cell statistics: the extension is not created in this database.".to_owned();
    }
    let line = |name: &str, value: &dyn Fn(&Statistics) -> String| {
        let values: String = columns.iter().map(|(_, statistics)| format!("{:>17}", value(statistics))).collect();
        format!("{name:<63}{values}\n")
    };
    let mut text = format!("{:<63}", "Statistic");
    columns.iter().for_each(|(title, _)| text.push_str(&format!("{title:>17}")));
    text.push('\n');
    for name in SHOWN {
        // "-" tells a statistic that this release lacks from one that counted nothing.
        text += &line(name, &|statistics| statistics.0.get(name).map_or("-".to_owned(), |value| grouped(*value)));
    }
    // Eligible bytes are counted as stored; the bytes that Smart Scan works on are uncompressed.
    let ratios: [(&str, Ratio); 5] = [
        ("Offloadable: eligible / physical reads", |s| (s.get(ELIGIBLE), s.get(READ))),
        ("Left by Smart Scan: returned / (uncompressed + saved)", |s| {
            (s.get(RETURNED), s.get(UNCOMPRESSED) + s.get(SAVED))
        }),
        ("Not read thanks to the storage index: saved / eligible", |s| (s.get(SAVED), s.get(ELIGIBLE))),
        ("Optimized reads: physical reads optimized / physical reads", |s| (s.get(OPTIMIZED), s.get(READ))),
        ("Compression: (eligible - saved) / uncompressed", |s| (s.get(ELIGIBLE) - s.get(SAVED), s.get(UNCOMPRESSED))),
    ];
    for (name, parts) in ratios {
        text += &line(name, &|statistics| match parts(statistics) {
            (_, 0) => "-".to_owned(),
            (part, whole) => format!("{:.2} %", 100.0 * part as f64 / whole as f64),
        });
    }
    text += &line("Transfer avoided, bytes: eligible - returned", &|s| grouped(s.get(ELIGIBLE) - s.get(RETURNED)));
    text += &line("of which filtered, bytes: eligible - saved - returned", &|s| {
        grouped(s.get(ELIGIBLE) - s.get(SAVED) - s.get(RETURNED))
    });
    text.truncate(text.trim_end().len());
    text
}

/// Returns a number with its thousands separated.
fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_article_s_figures_give_the_article_s_savings() {
        let figures = [
            (ELIGIBLE, 2_591_843_581_952),
            (SAVED, 85_480_210_432),
            (RETURNED, 966_839_837_864),
            (UNCOMPRESSED, 5_845_255_073_982),
            (READ, 3_515_568_717_824),
        ];
        let statistics = Statistics(figures.iter().map(|(name, value)| (name.to_string(), *value)).collect());
        let report = report(&[("Total", &statistics)]);
        assert!(report.contains("1,625,003,744,088"), "{report}");
        assert!(report.contains("42.88 %"), "{report}");
        assert!(report.contains("16.30 %"), "{report}");
    }

    #[test]
    fn a_difference_counts_only_what_happened_since() {
        let before = Statistics([("a".to_owned(), 5)].into());
        let after = Statistics([("a".to_owned(), 7), ("b".to_owned(), 2)].into());
        let since = after.since(&before);
        assert_eq!((since.get("a"), since.get("b")), (2, 2));
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(-123), "-123");
        assert_eq!(grouped(0), "0");
    }
}
