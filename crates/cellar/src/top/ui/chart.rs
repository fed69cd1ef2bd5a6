//! The moving chart of active sessions: one column per slot, stacked by wait class, with a line at the number of CPUs.

use crate::top::history::Slot;
use crate::top::reading::{CLASSES, IDLE};
use cellar_awr::figures::time::CLASSES as CLASS_NAMES;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::Widget;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const LEGEND_WIDTH: u16 = 22;
const AXIS_WIDTH: u16 = 6;
/// The line of the CPUs is part of the picture unless it would flatten the sessions.
const CPU_LINE_RATIO: f64 = 4.0;

/// Colours of the wait classes: those of AWR reports, in the palette of 256 colours.
pub const COLOURS: [Color; CLASSES] = [
    Color::Indexed(35),
    Color::Indexed(26),
    Color::Indexed(74),
    Color::Indexed(172),
    Color::Indexed(88),
    Color::Indexed(167),
    Color::Indexed(94),
    Color::Indexed(243),
    Color::Indexed(137),
    Color::Indexed(179),
    Color::Indexed(113),
    Color::Indexed(175),
    Color::Indexed(250),
];
/// Letters of the wait classes, for terminals without colours.
pub const LETTERS: [&str; CLASSES] = ["C", "U", "S", "M", "N", "A", "F", "D", "W", "L", "H", "O", "I"];

pub struct Chart<'a> {
    /// Newest last.
    pub slots: &'a [&'a Slot],
    pub cpus: Option<f64>,
    pub interval_seconds: f64,
    pub has_colours: bool,
}

/// A round number at or above a value.
fn round_up(value: f64) -> f64 {
    if value <= 1.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= value * 0.999_999).unwrap_or(10.0 * power)
}

impl Widget for Chart<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.width < AXIS_WIDTH + LEGEND_WIDTH + 10 || area.height < 3 {
            return;
        }
        let plot = Rect {
            x: area.x + AXIS_WIDTH,
            y: area.y,
            width: area.width - AXIS_WIDTH - LEGEND_WIDTH,
            height: area.height - 1,
        };
        let shown = &self.slots[self.slots.len().saturating_sub(usize::from(plot.width))..];
        let busiest = shown.iter().map(|slot| slot.total()).fold(0.0, f64::max);
        let cpus = self.cpus.filter(|cpus| *cpus <= CPU_LINE_RATIO * busiest.max(1.0));
        let greatest = round_up(busiest.max(cpus.unwrap_or(0.0) * 1.1));
        self.draw_axis(area, plot, greatest, buffer);
        for (index, slot) in shown.iter().enumerate() {
            let x = plot.right() - shown.len() as u16 + index as u16;
            self.draw_slot(slot, x, plot, greatest, buffer);
        }
        if let Some(cpus) = cpus {
            draw_cpu_line(cpus, plot, greatest, buffer);
        }
        self.draw_legend(shown, area, buffer);
    }
}

impl Chart<'_> {
    fn draw_axis(&self, area: Rect, plot: Rect, greatest: f64, buffer: &mut Buffer) {
        let soft = Style::new().add_modifier(Modifier::DIM);
        let digits = usize::from(greatest < 10.0);
        let width = usize::from(AXIS_WIDTH) - 1;
        for (value, y) in [(greatest, plot.y), (greatest / 2.0, plot.y + plot.height / 2)] {
            buffer.set_string(area.x, y, format!("{value:>width$.digits$}"), soft);
        }
        let slots_per_minute = 60.0 / self.interval_seconds;
        let minutes = (f64::from(plot.width) / slots_per_minute) as u16;
        let y = plot.bottom();
        buffer.set_string(plot.right().saturating_sub(3), y, "now", soft);
        let step = (minutes / 5).max(1);
        for minute in (step..=minutes).step_by(usize::from(step)) {
            let left = (f64::from(minute) * slots_per_minute) as u16;
            if left + 2 < plot.width && left > 8 {
                buffer.set_string(plot.right() - left, y, format!("-{minute}m"), soft);
            }
        }
    }

    /// Draws the column of a slot: whole cells, and eighths of a cell at the borders between classes.
    fn draw_slot(&self, slot: &Slot, x: u16, plot: Rect, greatest: f64, buffer: &mut Buffer) {
        let eighths = f64::from(plot.height) * 8.0;
        let mut tops = [0_u32; IDLE];
        let mut sum = 0.0;
        for (class, top) in tops.iter_mut().enumerate() {
            sum += slot.classes[class];
            *top = (sum / greatest * eighths).round().min(eighths) as u32;
        }
        // The smallest activity is visible.
        if slot.total() > 0.0 && tops[IDLE - 1] == 0 {
            let class = (0..IDLE).find(|class| slot.classes[*class] > 0.0).unwrap_or(0);
            tops[class..].fill(1);
        }
        let class_at = |eighth: u32| tops.iter().position(|top| *top > eighth);
        for row in 0..plot.height {
            let bottom = u32::from(row) * 8;
            let Some(class) = class_at(bottom) else { break };
            let filled = (tops[class] - bottom).min(8);
            let above = if filled < 8 { class_at(bottom + filled) } else { None };
            let cell = &mut buffer[(x, plot.bottom() - 1 - row)];
            if !self.has_colours {
                let upper = above.filter(|_| filled < 4);
                cell.set_symbol(LETTERS[upper.unwrap_or(class)]);
                continue;
            }
            cell.set_symbol(EIGHTHS[filled as usize]).set_fg(COLOURS[class]);
            if let Some(above) = above {
                cell.set_bg(COLOURS[above]);
            }
        }
    }

    fn draw_legend(&self, shown: &[&Slot], area: Rect, buffer: &mut Buffer) {
        let x = area.right() - LEGEND_WIDTH + 2;
        let present = (0..IDLE).filter(|class| shown.iter().any(|slot| slot.classes[*class] > 0.0));
        for (y, class) in (area.y..area.bottom()).zip(present) {
            let now = shown.last().map_or(0.0, |slot| slot.classes[class]);
            let (mark, style) = match self.has_colours {
                true => ("█", Style::new().fg(COLOURS[class])),
                false => (LETTERS[class], Style::new()),
            };
            buffer.set_string(x, y, mark, style);
            buffer.set_string(x + 2, y, format!("{:<14}{now:>4.0}", CLASS_NAMES[class]), Style::new());
        }
    }
}

fn draw_cpu_line(cpus: f64, plot: Rect, greatest: f64, buffer: &mut Buffer) {
    let rows = (cpus / greatest * f64::from(plot.height)).round() as u16;
    if rows == 0 || rows > plot.height {
        return;
    }
    let y = plot.bottom() - rows;
    for x in plot.left()..plot.right() {
        let cell = &mut buffer[(x, y)];
        if cell.symbol() == " " {
            cell.set_symbol("┄").set_fg(Color::Red);
        }
    }
    let label = format!("{cpus:.0} CPUs ");
    buffer.set_string(plot.x, y, label, Style::new().fg(Color::Red));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(slots: &[Slot], cpus: Option<f64>) -> Vec<String> {
        let area = Rect::new(0, 0, 50, 6);
        let mut buffer = Buffer::empty(area);
        let slots: Vec<&Slot> = slots.iter().collect();
        Chart { slots: &slots, cpus, interval_seconds: 1.0, has_colours: false }.render(area, &mut buffer);
        let line = |y: u16| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..area.height).map(line).collect()
    }

    #[test]
    fn classes_are_stacked_from_cpu_upwards_with_the_line_of_the_cpus() {
        let mut slot = Slot::default();
        (slot.classes[0], slot.classes[1]) = (2.0, 3.0);
        let chart = lines(&[Slot::default(), slot], Some(4.0));
        let expected = [
            "  5.0                      U  C CPU              2",
            "      4 CPUs ┄┄┄┄┄┄┄┄┄┄┄┄┄┄U  U User I/O         3",
            "  2.5                      U",
            "                           C",
            "                           C",
            "                         now",
        ];
        assert_eq!(chart, expected);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [(0.0, 1.0), (1.0, 1.0), (2.2, 3.0), (17.0, 20.0), (64.0, 80.0), (100.0, 100.0)] {
            assert_eq!(round_up(value), expected, "{value}");
        }
    }
}
