//! Charts of values over time: a part of an HTML page, or an SVG file.

use super::super::COLOURS;
use super::super::escape::escape;
use super::{BOTTOM, HEIGHT, LEFT, RIGHT, TIME_LABELS, TOP, WIDTH, frame, grid, legend, round_up, series_colour};
use crate::sections::{Chart, Line};
use std::fmt::Write;

/// Space that the label of a time takes.
const LABEL_WIDTH: f64 = 118.0;
/// More points are drawn without marks.
const MARKS_MAX: usize = 200;
/// Heights of the parts of a picture: caption, and a line of the legend.
const CAPTION: f64 = 26.0;
const LEGEND: f64 = 20.0;
const STYLE: &str = "svg { background: var(--back); font-family: system-ui, \"Segoe UI\", Roboto, sans-serif; }
.back { fill: var(--back); }
.grid { stroke: var(--line); stroke-width: 1; }
.axis, .caption { font-size: 12px; fill: var(--soft); }
.caption { font-size: 13px; fill: var(--text); }
";

/// A chart for an HTML page.
pub fn chart(title: &str, unit: &str, series: &[Line]) -> String {
    let Some(body) = body(series) else { return String::new() };
    let names = series.iter().enumerate().map(|(index, line)| (series_colour(index), line.name.as_str()));
    let legend = if series.len() > 1 { legend(names) } else { String::new() };
    let caption = format!("{title} ({unit})");
    format!("<p class=\"caption\">{}</p>{}{legend}", escape(&caption), frame(&caption, HEIGHT, &body))
}

/// An SVG file with the charts of lines, one below the other. It contains its colours, for light and dark.
pub fn standalone(charts: &[Chart]) -> String {
    let mut body = String::new();
    let mut top = 0.0;
    let mut label = String::new();
    for chart in charts {
        let Chart::Lines { title, unit, series } = chart else { continue };
        let Some(lines) = self::body(series) else { continue };
        let caption = escape(&format!("{title} ({unit})"));
        let _ = write!(body, "<text class=\"caption\" x=\"{LEFT}\" y=\"{}\">{caption}</text>", top + 18.0);
        let _ = write!(body, "<g transform=\"translate(0 {})\">{lines}</g>", top + CAPTION);
        top += CAPTION + HEIGHT;
        if series.len() > 1 {
            for (index, line) in series.iter().enumerate() {
                let (name, colour) = (escape(&line.name), series_colour(index));
                let _ = write!(
                    body,
                    "<rect x=\"{LEFT}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/><text class=\"axis\" x=\"{}\" y=\"{}\">{name}</text>",
                    top + 2.0,
                    LEFT + 16.0,
                    top + 11.0
                );
                top += LEGEND;
            }
        }
        label = if label.is_empty() { caption } else { format!("{label}; {caption}") };
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" role=\"img\" aria-label=\"{label}\">\n<style>\n{COLOURS}{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{top}\"/>{body}\n</svg>\n"
    )
}

/// Grid, lines, marks and labels of times. None without a point.
fn body(series: &[Line]) -> Option<String> {
    let points = || series.iter().flat_map(|line| &line.points);
    let greatest = round_up(points().map(|point| point.value).fold(0.0, f64::max) * 1.05);
    let first = points().map(|point| point.at).min_by(f64::total_cmp)?;
    let last = points().map(|point| point.at).max_by(f64::total_cmp)?;
    let x = |at: f64| match last - first {
        span if span > 0.0 => LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / span,
        _ => (LEFT + WIDTH - RIGHT) / 2.0,
    };
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value.max(0.0) / greatest);
    let mut out = grid(greatest);
    for (index, line) in series.iter().enumerate() {
        let colour = series_colour(index);
        let path: String = line
            .points
            .iter()
            .enumerate()
            .map(|(place, point)| {
                format!("{}{:.1} {:.1}", if place == 0 { "M" } else { "L" }, x(point.at), y(point.value))
            })
            .collect();
        let _ = write!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        if line.points.len() <= MARKS_MAX {
            for point in &line.points {
                let _ = write!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{}</title></circle>",
                    x(point.at),
                    y(point.value),
                    escape(&point.description)
                );
            }
        }
    }
    out.push_str(&labels(series, x));
    Some(out)
}

/// Labels of times below the points, as many as have space.
fn labels(series: &[Line], x: impl Fn(f64) -> f64) -> String {
    let mut times: Vec<(f64, &str)> = series
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| (x(point.at), point.label.as_str()))
        .filter(|(_, label)| !label.is_empty())
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let space = LABEL_WIDTH.max((WIDTH - LEFT - RIGHT) / TIME_LABELS as f64);
    let mut out = String::new();
    let mut end = f64::NEG_INFINITY;
    for (place, label) in times {
        let middle = place.clamp(LABEL_WIDTH / 2.0, WIDTH - LABEL_WIDTH / 2.0);
        if middle - LABEL_WIDTH / 2.0 < end {
            continue;
        }
        end = middle - LABEL_WIDTH / 2.0 + space;
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(label)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::LinePoint;

    fn line(name: &str, values: &[(f64, f64)]) -> Line {
        let point = |(at, value): &(f64, f64)| LinePoint {
            at: *at,
            label: format!("12-Dec-23 {at}"),
            value: *value,
            description: format!("<{value}>"),
        };
        Line { name: name.to_owned(), points: values.iter().map(point).collect() }
    }

    #[test]
    fn points_are_placed_by_their_times() {
        let series = [line("a&b", &[(0.0, 1.0), (10.0, 2.0), (100.0, 0.0)]), line("c", &[(50.0, 4.0)])];
        let chart = Chart::Lines { title: "t".to_owned(), unit: "s".to_owned(), series: series.to_vec() };
        let svg = standalone(&[chart]);
        let places: Vec<f64> =
            svg.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        let width = places[2] - places[0];
        assert!(
            (places[1] - places[0] - width / 10.0).abs() < 0.1 && (places[3] - places[0] - width / 2.0).abs() < 0.1
        );
        assert!(svg.contains("a&amp;b") && svg.contains("&lt;2&gt;") && svg.contains("prefers-color-scheme"), "{svg}");
        // Labels of neighbours would overlap.
        assert_eq!(svg.matches("12-Dec-23 10<").count(), 0, "{svg}");
        assert_eq!(svg.matches("12-Dec-23 100<").count(), 1, "{svg}");
    }

    #[test]
    fn a_chart_without_points_is_empty() {
        assert_eq!(chart("t", "s", &[line("a", &[])]), "");
        assert!(chart("t", "s", &[line("a", &[(5.0, 0.0)])]).contains("<circle"));
    }
}
