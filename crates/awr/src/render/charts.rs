//! Charts as inline SVG. Colours are variables of the page's style sheet, so that light and dark pages share the picture.

mod lines;

use super::escape::escape;
use crate::figures::histogram;
use crate::figures::time::CLASSES;
use crate::sections::{Bar, Chart, Column};
use crate::table::grouped;
pub use lines::standalone;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
/// Space that the name of a bucket takes, such as <512us.
const BUCKET_NAME_WIDTH: f64 = 48.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;
const BAR_HEIGHT: f64 = 22.0;
const TIME_LABELS: usize = 8;
/// Greatest values of a vertical axis, by powers of ten, with the number of grid lines that divides each into round numbers.
const SCALES: [(f64, u32); 10] =
    [(1.0, 5), (1.5, 3), (2.0, 4), (2.5, 5), (3.0, 3), (4.0, 4), (5.0, 5), (6.0, 3), (8.0, 4), (10.0, 5)];

pub fn svg(chart: &Chart) -> String {
    match chart {
        Chart::ActiveSessions { slots, cpus } => active_sessions(slots, *cpus),
        Chart::Bars { title, unit, bars } if !bars.is_empty() => bar_chart(title, unit, bars),
        Chart::Bars { .. } => String::new(),
        Chart::Columns { title, series, slots } => column_chart(title, series, slots),
        Chart::Histogram { title, buckets } => histogram_chart(title, buckets),
        Chart::Lines { title, unit, series } => lines::chart(title, unit, series),
    }
}

/// Name of the colour of a wait class; unknown classes share the colour of Other.
fn class_colour(class: &str) -> String {
    let index = CLASSES.iter().position(|known| *known == class).unwrap_or(11);
    format!("var(--class-{index})")
}

/// Returns the scale of [`SCALES`] for a value, and its power of ten.
fn scale(value: f64) -> ((f64, u32), f64) {
    if value <= 0.0 || !value.is_finite() {
        return (SCALES[0], 1.0);
    }
    let power = 10_f64.powf(value.log10().floor());
    let fits = |(greatest, _): &(f64, u32)| greatest * power >= value * 0.999_999;
    (SCALES.into_iter().find(fits).unwrap_or(SCALES[SCALES.len() - 1]), power)
}

/// Returns the least round number at or above a value.
fn round_up(value: f64) -> f64 {
    let ((greatest, _), power) = scale(value);
    greatest * power
}

fn frame(label: &str, height: f64, body: &str) -> String {
    format!(
        "<div class=\"chart\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">{body}</svg></div>\n",
        escape(label)
    )
}

/// Horizontal grid lines with values at the left.
fn grid(greatest: f64) -> String {
    let mut out = String::new();
    let ((_, lines), _) = scale(greatest);
    for step in 0..=lines {
        let value = greatest * f64::from(step) / f64::from(lines);
        let y = TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - f64::from(step) / f64::from(lines));
        // As many digits as distinguish the lines.
        let digits = [20.0, 2.0, 0.2, 0.02].iter().filter(|bound| greatest < **bound).count();
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"axis\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            grouped(value, digits)
        );
    }
    out
}

/// Average active sessions, stacked by wait class in steps of a slot.
fn active_sessions(slots: &[(String, BTreeMap<String, f64>)], cpus: Option<f64>) -> String {
    let total = |slot: &BTreeMap<String, f64>| slot.values().sum::<f64>();
    let busiest = slots.iter().map(|(_, slot)| total(slot)).fold(0.0, f64::max);
    // The line of the CPUs is part of the picture unless it would flatten the sessions.
    let shown_cpus = cpus.filter(|cpus| *cpus <= 4.0 * busiest.max(0.5));
    let greatest = round_up(busiest.max(shown_cpus.unwrap_or(0.0)) * 1.05);
    let x = |slot: usize| LEFT + (WIDTH - LEFT - RIGHT) * slot as f64 / slots.len() as f64;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / greatest);
    let mut present: Vec<&str> = CLASSES
        .into_iter()
        .filter(|class| slots.iter().any(|(_, slot)| slot.get(*class).is_some_and(|v| *v > 0.0)))
        .collect();
    let is_unknown = |class: &str| !CLASSES.contains(&class);
    let has_unknown = slots.iter().any(|(_, slot)| slot.keys().any(|class| is_unknown(class)));
    if has_unknown && !present.contains(&"Other") {
        present.push("Other");
    }
    let value = |slot: &BTreeMap<String, f64>, class: &str| {
        let unknown: f64 = match class {
            "Other" => slot.iter().filter(|(class, _)| is_unknown(class)).map(|(_, value)| value).sum(),
            _ => 0.0,
        };
        slot.get(class).copied().unwrap_or(0.0) + unknown
    };
    let mut body = grid(greatest);
    let mut below = vec![0.0; slots.len()];
    for class in &present {
        let mut upper = String::new();
        let mut lower: Vec<String> = Vec::new();
        let mut sum = 0.0;
        for (index, (_, slot)) in slots.iter().enumerate() {
            let (bottom, top) = (below[index], below[index] + value(slot, class));
            sum += top - bottom;
            let _ = write!(
                upper,
                "{}{:.1} {:.1}L{:.1} {:.1}",
                if index == 0 { "M" } else { "L" },
                x(index),
                y(top),
                x(index + 1),
                y(top)
            );
            lower.push(format!("L{:.1} {:.1}L{:.1} {:.1}", x(index + 1), y(bottom), x(index), y(bottom)));
            below[index] = top;
        }
        lower.reverse();
        let average = sum / slots.len() as f64;
        let _ = write!(
            body,
            "<path d=\"{upper}{}Z\" fill=\"{}\"><title>{}: {average:.2} average active sessions</title></path>",
            lower.concat(),
            class_colour(class),
            escape(class)
        );
    }
    if let Some(cpus) = shown_cpus {
        let _ = write!(
            body,
            "<line class=\"cpus\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text class=\"axis over\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{cpus:.0} CPUs</text>",
            WIDTH - RIGHT,
            y(cpus),
            y(cpus),
            WIDTH - RIGHT - 4.0,
            y(cpus) - 5.0
        );
    }
    let step = slots.len().div_ceil(TIME_LABELS).max(1);
    for (index, (time, _)) in slots.iter().enumerate().step_by(step) {
        let _ = write!(
            body,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(index),
            HEIGHT - 8.0,
            escape(time)
        );
    }
    let legend = legend(present.iter().map(|class| (class_colour(class), *class)));
    let host = cpus.map_or_else(String::new, |cpus| format!("; the host has {cpus:.0} CPUs"));
    let caption = format!("Average active sessions by wait class{host}");
    format!("<p class=\"caption\">{caption}</p>{}{legend}", frame(&caption, HEIGHT, &body))
}

/// Horizontal bars with labels at the left and values behind the bars.
fn bar_chart(title: &str, unit: &str, bars: &[Bar]) -> String {
    const LABEL: f64 = 360.0;
    const VALUE: f64 = 210.0;
    let greatest = bars.iter().map(|bar| bar.value.abs()).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let height = BAR_HEIGHT * bars.len() as f64 + 8.0;
    let mut body = String::new();
    for (index, bar) in bars.iter().enumerate() {
        let y = 4.0 + BAR_HEIGHT * index as f64;
        let width = ((WIDTH - LABEL - VALUE) * bar.value.abs() / greatest).max(1.0);
        let class = if bar.value < 0.0 { "bar less" } else { "bar" };
        let label: String = bar.label.chars().take(46).collect();
        let text = format!(
            "<text class=\"label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LABEL - 8.0,
            y + 15.0,
            escape(&label)
        );
        let text = match &bar.link {
            Some(link) => format!("<a href=\"#{}\">{text}</a>", escape(link)),
            None => text,
        };
        let _ = write!(
            body,
            "{text}<rect class=\"{class}\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" rx=\"2\"><title>{}</title></rect><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y + 2.0,
            BAR_HEIGHT - 5.0,
            escape(&bar.label),
            LABEL + width + 6.0,
            y + 15.0,
            escape(&bar.text)
        );
    }
    format!("<p class=\"caption\">{} ({})</p>{}", escape(title), escape(unit), frame(title, height, &body))
}

/// Colours of series, which differ most for the first ones.
const SERIES_COLOURS: [usize; 12] = [1, 3, 0, 11, 2, 5, 9, 6, 10, 4, 8, 7];

fn series_colour(series: usize) -> String {
    format!("var(--class-{})", SERIES_COLOURS[series % SERIES_COLOURS.len()])
}

/// Times of each slot side by side, in the colours of their series. The unit suits the longest time.
fn column_chart(title: &str, series: &[String], slots: &[(String, Vec<Column>)]) -> String {
    const LABEL_WIDTH: f64 = 90.0;
    const COLUMN_WIDTH_MAX: f64 = 70.0;
    let longest = slots.iter().flat_map(|(_, columns)| columns).map(|column| column.us).fold(0.0, f64::max);
    let (unit, us) = match longest {
        us if us >= 1e6 => ("s", 1e6),
        us if us >= 1e3 => ("ms", 1e3),
        _ => ("us", 1.0),
    };
    let greatest = round_up(longest / us * 1.05);
    let width = (WIDTH - LEFT - RIGHT) / slots.len().max(1) as f64;
    let mut body = grid(greatest);
    for (index, (_, columns)) in slots.iter().enumerate() {
        let count = columns.len().max(1) as f64;
        let column_width = (width * 0.86 / count).clamp(0.5, COLUMN_WIDTH_MAX);
        let left = LEFT + width * (index as f64 + 0.5) - column_width * count / 2.0;
        for (place, column) in columns.iter().enumerate() {
            // A short time is still visible beside a long one.
            let size = ((HEIGHT - TOP - BOTTOM) * column.us / us / greatest).max(1.5);
            let _ = write!(
                body,
                "<rect x=\"{:.2}\" y=\"{:.1}\" width=\"{column_width:.2}\" height=\"{size:.1}\" fill=\"{}\"><title>{}</title></rect>",
                left + column_width * place as f64,
                HEIGHT - BOTTOM - size,
                series_colour(column.series),
                escape(&column.description)
            );
        }
    }
    let step = (slots.len().div_ceil(TIME_LABELS)).max((LABEL_WIDTH / width).ceil() as usize).max(1);
    for (index, (label, _)) in slots.iter().enumerate().step_by(step) {
        let middle = (LEFT + width * (index as f64 + 0.5)).max(LABEL_WIDTH / 2.0);
        if middle + LABEL_WIDTH / 2.0 > WIDTH {
            break;
        }
        let _ = write!(
            body,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(label)
        );
    }
    let legend = legend(series.iter().enumerate().map(|(index, name)| (series_colour(index), name.as_str())));
    let caption = format!("{title} ({unit})");
    format!("<p class=\"caption\">{}</p>{}{legend}", escape(&caption), frame(&caption, HEIGHT, &body))
}

/// Names beside squares of their colours.
fn legend<'a>(entries: impl Iterator<Item = (String, &'a str)>) -> String {
    let spans: String = entries
        .map(|(colour, name)| format!("<span><i style=\"background:{colour}\"></i>{}</span>", escape(name)))
        .collect();
    format!("<p class=\"legend\">{spans}</p>\n")
}

/// Counts by bucket, from the first to the last bucket with waits; the percentage stands above each column.
fn histogram_chart(title: &str, buckets: &[f64]) -> String {
    let total = histogram::total(buckets);
    let is_used = |count: &f64| *count > 0.0;
    let (Some(first), Some(last)) = (buckets.iter().position(is_used), buckets.iter().rposition(is_used)) else {
        return String::new();
    };
    let first = first.saturating_sub(1);
    let last = (last + 1).min(buckets.len() - 1);
    let columns = (last - first + 1) as f64;
    let highest = buckets[first..=last].iter().copied().fold(0.0, f64::max);
    let height = 190.0;
    let step = (WIDTH - LEFT - RIGHT) / columns;
    let labelled = (BUCKET_NAME_WIDTH / step).ceil() as usize;
    let mut body = String::new();
    for (index, count) in buckets[first..=last].iter().enumerate() {
        let x = LEFT + step * index as f64;
        let size = (height - 60.0) * count / highest;
        let name = histogram::bound_name(first + index);
        let share = 100.0 * count / total;
        let text = match share {
            share if share >= 0.05 => format!("{share:.1}"),
            share if share > 0.0 => "&lt;0.1".to_owned(),
            _ => String::new(),
        };
        let middle = x + step / 2.0;
        // Names of neighbouring buckets must not overlap.
        let label = if index % labelled == 0 { format!("&lt;{name}") } else { String::new() };
        let _ = write!(
            body,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{size:.1}\"><title>shorter than {name}: {}</title></rect><text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text><text class=\"axis\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x + step * 0.1,
            height - 28.0 - size,
            step * 0.8,
            grouped(*count, 0),
            height - 33.0 - size,
            height - 10.0
        );
    }
    let caption = format!("{title}: {} waits by time, in % of the waits", grouped(total, 0));
    format!("<p class=\"caption\">{}</p>{}", escape(&caption), frame(&caption, height, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(0.0, 1.0), (0.3, 0.3), (1.0, 1.0), (7.2, 8.0), (96.0, 100.0), (130.0, 150.0)] {
            assert!((round_up(value) - end).abs() < 1e-9, "{value}");
            let ((greatest, lines), _) = scale(end);
            let line = greatest / f64::from(lines) * 10.0;
            assert!((line - line.round()).abs() < 1e-9, "{value} has {lines} lines");
        }
    }

    #[test]
    fn names_of_many_buckets_do_not_overlap() {
        for (buckets, names) in [(8, 8), (24, 12)] {
            let chart = histogram_chart("read", &vec![1.0; buckets]);
            assert_eq!(chart.matches(">&lt;").count(), names, "{chart}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let bar =
            Bar { label: "<script>".to_owned(), value: 1.0, text: "\"&".to_owned(), link: Some("a\"b".to_owned()) };
        let svg = svg(&Chart::Bars { title: "<t>".to_owned(), unit: "s", bars: vec![bar] });
        assert!(!svg.contains("<script>") && !svg.contains("<t>") && !svg.contains("a\"b"), "{svg}");
    }
}
