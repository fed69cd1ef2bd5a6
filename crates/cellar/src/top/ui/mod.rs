//! The screen: state, keys and drawing. Nothing here reads a source or a terminal, so that tests drive the same code.

mod chart;
mod detail;
#[cfg(test)]
mod tests;

use super::grid::{self, Grid, Key, printable};
use super::history::{History, Slot};
use super::view::View;
use chart::Chart;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

const TABS: [&str; 6] = ["Overview", "SQL", "Sessions", "Databases", "Cell I/O", "Cells"];
const OVERVIEW: usize = 0;
const SQL: usize = 1;
const SESSIONS: usize = 2;
const DATABASES: usize = 3;
const CELL_IO: usize = 4;
const CELLS: usize = 5;
const INTERVALS_MS: [u64; 6] = [500, 1000, 2000, 5000, 10_000, 60_000];
/// The smallest screen, in characters.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 12;

const HELP: &str = " \
1 … 6, Tab     choose a screen
 Up Down        choose a row; PgUp PgDn Home End, also j k
 Enter          details of the statement, session or database
 Esc, Backspace close details or help
 Left Right     on the overview: statements or sessions
 s  S           sort by the next or the previous column; 0 restores the order
 r              reverse the order
 i              sessions: show or hide idle sessions
 p, Space       pause or continue
 +  -           longer or shorter interval
 ?  h           this help
 q, Ctrl-C      quit

 Active: average number of sessions that were active with a statement, sampled at each interval.
 Rates are increases of the server's and the cells' counters. p50, p95 and p99 are upper bounds
 of the histogram's buckets.";

/// How the rows of one screen are ordered, and which row is chosen.
#[derive(Debug, Clone, Default)]
struct Choice {
    sort: Option<usize>,
    is_reversed: bool,
    selected: Option<Key>,
    /// The row on which the cursor was, for a selected row that disappeared.
    index: usize,
}

/// What the loop of the terminal does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Redraw,
    /// Read the sources again, with the new interval.
    Wake,
    Quit,
}

pub struct App {
    history: History,
    view: Option<View>,
    tab: usize,
    /// The table that the keys of the overview apply to: `SQL` or `SESSIONS`.
    focus: usize,
    choices: [Choice; TABS.len()],
    detail: Option<Key>,
    scroll: u16,
    is_help_shown: bool,
    pub is_paused: bool,
    with_idle: bool,
    pub interval_ms: u64,
    has_colours: bool,
    /// Rows of the table that the keys apply to, as drawn last; for pages.
    page: usize,
}

impl App {
    pub fn new(interval_ms: u64, has_colours: bool) -> Self {
        Self {
            history: History::default(),
            view: None,
            tab: OVERVIEW,
            focus: SQL,
            choices: Default::default(),
            detail: None,
            scroll: 0,
            is_help_shown: false,
            is_paused: false,
            with_idle: false,
            interval_ms,
            has_colours,
            page: 10,
        }
    }

    pub fn begin_with(&mut self, activity: &[(f64, String, f64)]) {
        self.history.begin_with(activity, self.interval_ms as f64 / 1000.0);
    }

    /// Adds a reading. A paused screen keeps its figures.
    pub fn push(&mut self, reading: super::reading::Reading) {
        self.history.push(reading);
        if !self.is_paused || self.view.is_none() {
            self.view = View::of(&self.history);
        }
    }

    fn table(&self) -> usize {
        if self.tab == OVERVIEW { self.focus } else { self.tab }
    }

    /// Returns the sorted table with this number.
    fn grid(&self, table: usize) -> Option<Grid> {
        let view = self.view.as_ref()?;
        let mut grid = match table {
            SQL => grid::statements(view),
            SESSIONS => grid::sessions(view, self.with_idle),
            DATABASES => grid::databases(view),
            CELL_IO => grid::cell_io(view),
            _ => grid::disks(view),
        };
        let choice = &self.choices[table];
        grid.sort(choice.sort, choice.is_reversed);
        Some(grid)
    }

    /// Returns the index of the selected row.
    fn index(&self, grid: &Grid, table: usize) -> usize {
        let choice = &self.choices[table];
        let found = grid.rows.iter().position(|(key, _)| Some(key) == choice.selected.as_ref());
        found.unwrap_or(choice.index).min(grid.rows.len().saturating_sub(1))
    }

    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Redraw };
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.is_help_shown = !self.is_help_shown,
            KeyCode::Esc | KeyCode::Backspace if self.is_help_shown => self.is_help_shown = false,
            KeyCode::Esc | KeyCode::Backspace => self.detail = None,
            KeyCode::Char(digit @ '1'..='6') => self.open_tab(digit as usize - '1' as usize),
            KeyCode::Tab => self.open_tab((self.tab + 1) % TABS.len()),
            KeyCode::BackTab => self.open_tab((self.tab + TABS.len() - 1) % TABS.len()),
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    self.view = View::of(&self.history);
                }
            }
            KeyCode::Char('i') => self.with_idle = !self.with_idle,
            KeyCode::Char('+' | '-') => return self.change_interval(key.code == KeyCode::Char('+')),
            KeyCode::Char('s') => self.change_sort(1),
            KeyCode::Char('S') => self.change_sort(-1),
            KeyCode::Char('0') => self.choices[self.table()].sort = None,
            KeyCode::Char('r') => {
                let table = self.table();
                self.choices[table].is_reversed = !self.choices[table].is_reversed;
            }
            KeyCode::Left | KeyCode::Right if self.tab == OVERVIEW => {
                self.focus = if self.focus == SQL { SESSIONS } else { SQL };
            }
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-(self.page as isize)),
            KeyCode::PageDown => self.move_by(self.page as isize),
            KeyCode::Home => self.move_by(isize::MIN / 2),
            KeyCode::End => self.move_by(isize::MAX / 2),
            KeyCode::Enter => self.open_detail(),
            _ => {}
        }
        Action::Redraw
    }

    fn open_tab(&mut self, tab: usize) {
        (self.tab, self.detail, self.is_help_shown) = (tab, None, false);
    }

    fn change_interval(&mut self, is_longer: bool) -> Action {
        let next = match is_longer {
            true => INTERVALS_MS.into_iter().find(|interval| *interval > self.interval_ms),
            false => INTERVALS_MS.into_iter().rev().find(|interval| *interval < self.interval_ms),
        };
        self.interval_ms = next.unwrap_or(self.interval_ms);
        Action::Wake
    }

    /// Sorts by the next column; after the last column, the order of the view follows.
    fn change_sort(&mut self, step: isize) {
        let table = self.table();
        let Some(grid) = self.grid(table) else { return };
        let positions = grid.columns.len() as isize + 1;
        let present = self.choices[table].sort.map_or(0, |column| column as isize + 1);
        let next = (present + step).rem_euclid(positions);
        self.choices[table].sort = (next > 0).then(|| next as usize - 1);
    }

    fn move_by(&mut self, rows: isize) {
        if self.detail.is_some() {
            self.scroll = (isize::try_from(self.scroll).unwrap_or(0)).saturating_add(rows).clamp(0, 1000) as u16;
            return;
        }
        let table = self.table();
        let Some(grid) = self.grid(table) else { return };
        let last = grid.rows.len().saturating_sub(1) as isize;
        let index = (self.index(&grid, table) as isize).saturating_add(rows).clamp(0, last) as usize;
        let choice = &mut self.choices[table];
        (choice.index, choice.selected) = (index, grid.rows.get(index).map(|(key, _)| key.clone()));
    }

    fn open_detail(&mut self) {
        let table = self.table();
        let Some(grid) = self.grid(table) else { return };
        let key = grid.rows.get(self.index(&grid, table)).map(|(key, _)| key.clone());
        self.detail = key.filter(|key| !matches!(key, Key::Row(_)));
        self.scroll = 0;
    }

    // ---- drawing ----

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
            let text = format!("The terminal is smaller than {WIDTH_MIN} x {HEIGHT_MIN} characters.");
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
            return;
        }
        let missing = self.view.as_ref().map_or(0, |view| view.missing.len().min(3)) as u16;
        let [title, tabs, body, notes, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(missing),
            Constraint::Length(1),
        ])
        .areas(area);
        self.draw_title(frame, title);
        self.draw_tabs(frame, tabs);
        self.draw_notes(frame, notes);
        let hint = " ? help  Tab screen  Enter details  s sort  p pause  q quit";
        frame.render_widget(Paragraph::new(hint).style(soft()), keys);
        match (&self.view, self.detail.clone()) {
            (None, _) => frame.render_widget(Paragraph::new("\n connecting …"), body),
            (Some(view), Some(key)) => {
                let detail = detail::lines(&key, view, &self.history);
                let block = Block::new().borders(Borders::TOP).title(detail.title);
                let lines: Vec<Line<'_>> = detail.lines.into_iter().map(Line::from).collect();
                let text = Paragraph::new(lines).block(block).wrap(Wrap { trim: false }).scroll((self.scroll, 0));
                frame.render_widget(text, body);
            }
            (Some(_), None) => self.draw_tab(frame, body),
        }
        if self.is_help_shown {
            let lines = HELP.lines().count() as u16 + 2;
            let [help] = Layout::vertical([Constraint::Length(lines.min(body.height))]).areas(body);
            frame.render_widget(Clear, help);
            frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" Keys ")), help);
        }
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: Rect) {
        let interval = grid::seconds(self.interval_ms as f64 / 1000.0);
        let mut spans = vec![Span::styled("cellar top", Style::new().add_modifier(Modifier::BOLD))];
        if let Some(view) = &self.view {
            spans.push(Span::raw(format!("  {} UTC every {interval}  ", clock(view.time))));
        }
        if self.is_paused {
            spans.push(Span::styled("PAUSED", Style::new().add_modifier(Modifier::REVERSED)));
            spans.push(Span::raw("  "));
        }
        if let Some(view) = &self.view {
            spans.push(Span::raw(match &view.server {
                Some(server) => {
                    // The sum of no numbers would be -0.0.
                    let active: f64 =
                        view.active_sessions.iter().map(|row| row.now).fold(0.0, |sum, sessions| sum + sessions);
                    format!(
                        "{} {}, PostgreSQL {}{}, up {}  {} sessions, {active:.0} active",
                        printable(&server.address),
                        printable(&server.database),
                        server.version.split(' ').next().unwrap_or_default(),
                        if server.is_standby { ", standby" } else { "" },
                        grid::seconds(server.uptime_seconds),
                        view.sessions.len(),
                    )
                }
                None => "no server".to_owned(),
            }));
        }
        frame.render_widget(Paragraph::new(Line::from(spans)), area);
    }

    fn draw_tabs(&self, frame: &mut Frame<'_>, area: Rect) {
        let spans = TABS.iter().enumerate().flat_map(|(index, name)| {
            let style = if index == self.tab { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            [Span::styled(format!(" {} {name} ", index + 1), style), Span::raw(" ")]
        });
        frame.render_widget(Paragraph::new(Line::from(spans.collect::<Vec<_>>())), area);
    }

    fn draw_notes(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(view) = &self.view else { return };
        let note = |note: &String| Line::styled(format!(" {}", printable(note)), Style::new().fg(Color::Yellow));
        let lines: Vec<Line<'_>> = view.missing.iter().take(usize::from(area.height)).map(note).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_tab(&mut self, frame: &mut Frame<'_>, area: Rect) {
        match self.tab {
            OVERVIEW => {
                let third = area.height / 3;
                let chart = third.max(6).min(area.height.saturating_sub(6));
                let [chart, sql, sessions] =
                    Layout::vertical([Constraint::Length(chart), Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
                self.draw_chart(frame, chart);
                self.draw_grid(frame, sql, SQL);
                self.draw_grid(frame, sessions, SESSIONS);
            }
            SESSIONS | DATABASES => {
                let chart = (area.height / 4).min(10);
                let [chart, table] = Layout::vertical([Constraint::Length(chart), Constraint::Fill(1)]).areas(area);
                self.draw_chart(frame, chart);
                self.draw_grid(frame, table, self.tab);
            }
            CELLS => {
                let lines = self.view.as_ref().map(grid::cell_lines).unwrap_or_default();
                let text = if lines.is_empty() { vec![String::from("no cell")] } else { lines };
                let height = (text.len() as u16 * 3).min(area.height / 2);
                let [cells, disks] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
                let lines: Vec<Line<'_>> = text.into_iter().map(Line::from).collect();
                frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), cells);
                self.draw_grid(frame, disks, CELLS);
            }
            table => self.draw_grid(frame, area, table),
        }
    }

    fn draw_chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(view) = &self.view else { return };
        let average: f64 = view.active_sessions.iter().map(|row| row.average).fold(0.0, |sum, sessions| sum + sessions);
        let cpus = view.server.as_ref().and_then(|server| server.cpus);
        let cpus_text = cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        let title = format!(" Active sessions by wait class: {average:.1} on average{cpus_text} ");
        let block = Block::new().borders(Borders::TOP).title(title);
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let slots: Vec<&Slot> = self.history.slots().iter().collect();
        let interval_seconds = self.interval_ms as f64 / 1000.0;
        let cpus = cpus.map(|cpus| cpus as f64);
        frame.render_widget(Chart { slots: &slots, cpus, interval_seconds, has_colours: self.has_colours }, inner);
    }

    fn draw_grid(&mut self, frame: &mut Frame<'_>, area: Rect, table: usize) {
        let Some(grid) = self.grid(table) else { return };
        let has_focus = self.table() == table;
        let title_style = if has_focus { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        let block = Block::new().borders(Borders::TOP).title(Span::styled(format!(" {} ", grid.title), title_style));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        if inner.height < 2 {
            return;
        }
        let columns = grid.fitting(inner.width);
        let choice = &self.choices[table];
        let header = columns.iter().flat_map(|(index, width)| {
            let column = &grid.columns[*index];
            let is_sorted = choice.sort == Some(*index);
            let style = if is_sorted { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
            [
                Span::styled(fit(column.title, *width, column.is_number), Style::new().add_modifier(style)),
                Span::raw(" "),
            ]
        });
        let mut lines = vec![Line::from(header.collect::<Vec<_>>())];
        let visible = usize::from(inner.height) - 1;
        let selected = self.index(&grid, table);
        let first = selected.saturating_sub(visible.saturating_sub(1));
        for (index, (_, cells)) in grid.rows.iter().enumerate().skip(first).take(visible) {
            let print = |(column, width): &(usize, u16)| {
                fit(&cells[*column].print(), *width, grid.columns[*column].is_number) + " "
            };
            let text: String = columns.iter().map(print).collect();
            let is_selected = has_focus && index == selected;
            let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            lines.push(Line::styled(text, style));
        }
        if grid.rows.is_empty() {
            lines.push(Line::styled(" none", soft()));
        }
        if has_focus {
            self.page = visible;
        }
        frame.render_widget(Paragraph::new(lines), inner);
    }
}

fn soft() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// The text in exactly `width` columns of the terminal.
fn fit(text: &str, width: u16, to_the_right: bool) -> String {
    let width = usize::from(width);
    let mut fitted = String::new();
    let mut used = 0;
    for character in text.chars() {
        let columns = Span::raw(character.to_string()).width();
        if used + columns > width {
            break;
        }
        used += columns;
        fitted.push(character);
    }
    let padding = " ".repeat(width - used);
    if to_the_right { padding + &fitted } else { fitted + &padding }
}

/// Hours, minutes and seconds, UTC.
fn clock(time: f64) -> String {
    let seconds = time as u64 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
