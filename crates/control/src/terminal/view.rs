//! What the page shows, drawn to any backend.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, Wrap};

use super::rates::{Rates, Row, shown};
use crate::latency::{Latency, QUANTILES};
use crate::report;
use crate::status::{Phase, Status, time};

/// A terminal with fewer columns shows all tables below each other.
const WIDE: u16 = 132;
/// Number of columns of the table of workers when it is beside the counts.
const WORKERS_WIDTH: u16 = 80;
/// Lines of a table's frame and heading.
const FRAME: u16 = 3;
/// A worker that has not published its counts for this time does not run, in seconds.
const STUCK: f64 = 2.0;

/// The page and its figures.
#[derive(Debug)]
pub(super) struct Page {
    status: Status,
    rates: Rates,
    /// The times since the status before this one.
    latencies: Vec<Latency>,
    /// Why there is no newer status.
    trouble: Option<String>,
    /// Number of counts above the first one that is shown.
    above: usize,
}

impl Page {
    /// Creates a page without rates.
    pub(super) fn new(status: Status) -> Self {
        Self {
            rates: Rates::between(None, &status),
            latencies: latencies(None, &status),
            status,
            trouble: None,
            above: 0,
        }
    }

    /// Takes the server's answer in. After an error, the page keeps its figures.
    pub(super) fn take(&mut self, answer: Result<Status, String>) {
        match answer {
            Ok(status) => {
                // A new server at the same place counts from 0.
                let is_same = status.uptime_seconds >= self.status.uptime_seconds;
                let before = Some(&self.status).filter(|_| is_same);
                self.rates = Rates::between(before, &status);
                self.latencies = latencies(before, &status);
                self.status = status;
                self.trouble = None;
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// Scrolls the counts by this number of lines.
    pub(super) fn scroll(&mut self, lines: i32) {
        let amount = lines.unsigned_abs() as usize;
        self.above = if lines < 0 {
            self.above.saturating_sub(amount)
        } else {
            self.above.saturating_add(amount)
        };
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let width = frame.area().width;
        let head = self.head();
        let lines = height(&head, width).min(frame.area().height / 2);
        let head = Paragraph::new(head).wrap(Wrap { trim: true });
        let parts = [
            Constraint::Length(lines),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(head, top);
        frame.render_widget(Line::from("q quits, ↑ ↓ scroll the counts").dim(), bottom);
        let workers = self.status.workers.len() as u16 + FRAME;
        let times = self.latencies.len().max(1) as u16 + FRAME;
        let drops = self.drops().len().max(1) as u16 + FRAME;
        let [counts_area, workers_area, times_area, drops_area] = if width < WIDE {
            let part = |lines: u16| Constraint::Max(lines.min(middle.height / 4));
            let parts = [part(workers), part(times), Constraint::Fill(1), part(drops)];
            let [workers, times, counts, drops] = Layout::vertical(parts).areas(middle);
            [counts, workers, times, drops]
        } else {
            let beside = [Constraint::Fill(1), Constraint::Length(WORKERS_WIDTH)];
            let [counts, right] = Layout::horizontal(beside).areas(middle);
            let stacked = [
                Constraint::Max(workers),
                Constraint::Max(times),
                Constraint::Fill(1),
            ];
            let [workers, times, drops] = Layout::vertical(stacked).areas(right);
            [counts, workers, times, drops]
        };
        self.draw_counts(frame, counts_area);
        self.draw_workers(frame, workers_area);
        self.draw_latencies(frame, times_area);
        let rows = self.drops();
        draw_rows(frame, drops_area, "dropped packets", &rows);
    }

    /// Returns the lines at the top.
    fn head(&self) -> Text<'static> {
        let status = &self.status;
        let colour = match status.phase {
            Phase::Serving => Color::Green,
            Phase::Starting | Phase::Waiting | Phase::Stopping | Phase::Ended => Color::Yellow,
        };
        let name = format!("{} {}", status.program, status.version).bold();
        let phase = status.phase.to_string().fg(colour);
        let content = &status.reloads;
        let rest = format!(
            "  for {}  generation {} ({}){}",
            time(status.uptime_seconds),
            content.generation,
            content.errors(),
            if content.running { "  reloading" } else { "" },
        );
        let mut lines = vec![Line::from_iter([name, "  ".into(), phase, rest.into()])];
        if let Some(error) = content.last_error() {
            lines.push(Line::from(error).red());
        }
        if let Some(why) = &self.trouble {
            lines.push(Line::from(format!("no answer, trying again: {why}")).red());
        }
        lines.into()
    }

    fn draw_counts(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let all = self.counts().len();
        // The last rows fill the table.
        self.above = self.above.min(all.saturating_sub(fitting(area)));
        draw_rows(frame, area, "counts", &self.counts()[self.above..]);
    }

    fn draw_workers(&self, frame: &mut Frame<'_>, area: Rect) {
        let port = |name: &str, number: usize| {
            let rate = self.rates.of_port(name).get(number);
            rate.copied().unwrap_or_default()
        };
        let rows = self
            .status
            .workers
            .iter()
            .enumerate()
            .map(|(number, worker)| {
                let waits = port("system calls to wait", number);
                let cells = [
                    port("received frames", number),
                    port("sent frames", number),
                    8.0 * port("received bytes", number),
                    8.0 * port("sent bytes", number),
                    waits + port("system calls to send", number),
                ];
                let seen = match worker.age_seconds {
                    None => Text::from("not ready").yellow(),
                    Some(age) if age > STUCK => Text::from(format!("{age:.0} s ago")).red(),
                    Some(age) => Text::from(format!("{age:.1} s ago")),
                };
                let cells = cells.iter().map(|rate| right(shown(*rate)));
                let levels = [
                    worker.level("pool frames free"),
                    worker.level("ring frames"),
                ];
                let levels = levels.map(|level| right(report::count(level)));
                let cells = cells.chain(levels);
                let number = Cell::from(number.to_string());
                let seen = Cell::from(seen.alignment(Alignment::Right));
                TableRow::new([number].into_iter().chain(cells).chain([seen]))
            });
        let names = [
            "",
            "frames in",
            "frames out",
            "bit/s in",
            "bit/s out",
            "calls",
            "free",
            "rings",
            "seen",
        ];
        let widths = [2, 9, 10, 8, 9, 7, 7, 6, 9].map(Constraint::Min);
        let table = Table::new(rows, widths).header(heading(&names));
        let title = "workers: rates per second, free frames, frames in rings";
        frame.render_widget(table.block(titled(title)), area);
    }

    fn draw_latencies(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.latencies.iter().map(|latency| {
            let each = QUANTILES.map(|(quantile, _)| right(latency.quantile(quantile)));
            TableRow::new([Cell::from(latency.name.clone())].into_iter().chain(each))
        });
        let widths = [16, 10, 10, 10].map(Constraint::Min);
        let names = [""].into_iter().chain(QUANTILES.map(|(_, name)| name));
        let table = Table::new(rows, widths).header(heading(&names.collect::<Vec<_>>()));
        frame.render_widget(table.block(titled("times")), area);
    }

    /// Returns the counts to show: levels, and what has happened.
    fn counts(&self) -> Vec<&Row> {
        let all = self.rates.counts.iter().chain(&self.rates.port);
        all.filter(|row| row.total > 0 || row.is_level).collect()
    }

    fn drops(&self) -> Vec<&Row> {
        let all = self.rates.drops.iter();
        all.filter(|row| row.total > 0).collect()
    }
}

/// Returns how long things took since an earlier status, or since the start.
fn latencies(before: Option<&Status>, now: &Status) -> Vec<Latency> {
    let before = before.map_or_else(Vec::new, Status::latencies);
    let all = now.latencies().into_iter();
    let measured = all.filter(|latency| !latency.is_empty());
    measured.map(|latency| latency.since(&before)).collect()
}

/// Draws a table of counts. If it is too short, its last line says how many are missing.
fn draw_rows(frame: &mut Frame<'_>, area: Rect, title: &str, rows: &[&Row]) {
    let hidden = rows.len().saturating_sub(fitting(area));
    let mut block = titled(title);
    if hidden > 0 {
        block = block.title_bottom(format!(" {hidden} more below "));
    }
    let shown_rows = rows.iter().map(|row| {
        let rate = if row.is_level {
            String::new()
        } else {
            shown(row.rate())
        };
        let total = report::count(row.total);
        TableRow::new([row.name.clone().into(), right(rate), right(total)])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(11),
        Constraint::Length(20),
    ];
    let table = Table::new(shown_rows, widths).header(heading(&["", "per second", "total"]));
    frame.render_widget(table.block(block), area);
}

/// Returns the number of rows that a table in `area` shows.
fn fitting(area: Rect) -> usize {
    area.height.saturating_sub(FRAME).into()
}

/// Returns how many lines a text takes at most when its words are wrapped.
fn height(text: &Text<'_>, width: u16) -> u16 {
    let wrapped = text.lines.iter().map(|line| {
        let lines = line.width().div_ceil(usize::from(width).max(1));
        // Words that are moved to the next line need room.
        if lines > 1 { lines + 1 } else { 1 }
    });
    wrapped.sum::<usize>() as u16
}

fn titled(title: &str) -> Block<'static> {
    Block::bordered()
        .title(format!(" {title} "))
        .border_style(Style::new().dim())
}

fn heading(names: &[&'static str]) -> TableRow<'static> {
    TableRow::new(names.iter().map(|name| right((*name).to_owned()))).dim()
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}

#[cfg(test)]
mod tests;
