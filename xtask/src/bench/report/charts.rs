//! Charts, as SVG that takes its colours from the page: one server has one
//! colour in all of them.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use super::model::{Spread, axis_shown, digits, thousands};
use crate::bench::results::TimeLinePoint;
use crate::shell::{Context as _, Result};

/// Pixels of a chart of lines; the page scales it.
const SIZE: (u32, u32) = (560, 320);
/// A scale whose greatest value is this much greater than its least is
/// logarithmic.
const DECADES_FROM: f64 = 15.0;

// Colours that stand for those of the page, which differ by its theme.
const INK: RGBColor = RGBColor(0xf1, 0, 0);
const GRID: RGBColor = RGBColor(0xf1, 0, 1);
const PAPER: RGBColor = RGBColor(0xf1, 0, 2);
const SERIES: u8 = 0xf0;
/// Colours of the page for servers.
pub(super) const COLOURS: usize = 10;

/// How a server looks in every chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// One of [`COLOURS`].
    pub(super) colour: usize,
    pub(super) dashed: bool,
    /// A peer: its marks are rings.
    pub(super) hollow: bool,
}

/// Ours are blue, green and violet, peers warm; what is a variant of
/// something is dashed.
pub(super) fn look(server: &str) -> Look {
    let look = |colour, dashed, hollow| Look {
        colour,
        dashed,
        hollow,
    };
    match server {
        "namestorm turnaround" | "sandstorm memcopy" | "load dns" | "load http" => {
            look(0, false, false)
        }
        "namestorm turnaround fqdn" => look(0, true, false),
        "sandstorm pre-copy" | "namestorm pre-copy" => look(1, false, false),
        "namestorm pre-copy fqdn" => look(1, true, false),
        "namestorm memcopy" => look(2, false, false),
        "namestorm memcopy fqdn" => look(2, true, false),
        "nginx" | "NSD" | "wrk" => look(3, false, true),
        "nginx busy-poll" | "NSD XDP" => look(3, true, true),
        "Knot DNS XDP" | "lighttpd" | "kxdpgun" => look(4, false, true),
        "Knot DNS" => look(4, true, true),
        "BIND" | "h2o" | "dnsperf" => look(5, false, true),
        "reflect" => look(6, false, false),
        other => {
            let sum = other.bytes().fold(0, |sum: usize, byte| {
                sum.wrapping_mul(31).wrapping_add(byte.into())
            });
            look(7 + sum % (COLOURS - 7), false, true)
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub(super) struct Series<'a> {
    pub(super) server: &'a str,
    pub(super) points: Vec<(f64, Spread)>,
}

/// A chart of lines over `x`.
pub(super) struct Chart<'a> {
    pub(super) x_label: &'a str,
    pub(super) x_shown: &'a dyn Fn(f64) -> String,
    pub(super) y_shown: &'a dyn Fn(f64) -> String,
    pub(super) series: Vec<Series<'a>>,
    /// The limit, at each `x` where there is one.
    pub(super) limit: Vec<(f64, f64)>,
}

/// A scale from values to the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// For values that are put down on it; `from_zero` when it is linear.
    fn of(values: &[f64], from_zero: bool) -> Self {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if min > 0.0 && max / min >= DECADES_FROM {
            let (low, high) = (min.log10(), max.log10());
            let margin = (high - low) * 0.06;
            return Self {
                log: true,
                from: low - margin,
                to: high + margin,
            };
        }
        let low = if from_zero { 0.0 } else { min };
        let span = if max > low {
            max - low
        } else {
            max.abs().max(1.0)
        };
        Self {
            log: false,
            from: if from_zero { 0.0 } else { low - span * 0.06 },
            to: max.max(low) + span * 0.08,
        }
    }

    fn map(self, value: f64) -> f64 {
        if self.log {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        }
    }

    fn value(self, at: f64) -> f64 {
        if self.log { 10_f64.powf(at) } else { at }
    }

    fn axis(self) -> Axis {
        Axis {
            scale: self,
            ticks: self.ticks(),
        }
    }

    /// Round values, as places on the plane.
    fn ticks(self) -> Vec<f64> {
        if self.log {
            let decades = self.to - self.from;
            let steps: &[f64] = match decades {
                d if d > 3.0 => &[1.0],
                d if d > 1.6 => &[1.0, 3.0],
                _ => &[1.0, 2.0, 5.0],
            };
            let decades = self.from.floor() as i32..=self.to.ceil() as i32;
            let all = decades.flat_map(|decade| {
                steps
                    .iter()
                    .map(move |step| (step * 10_f64.powi(decade)).log10())
            });
            return all
                .filter(|at| (self.from..=self.to).contains(at))
                .collect();
        }
        let step = round_up((self.to - self.from) / 6.0);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// A scale with the places that have labels, for plotters.
#[derive(Clone, Debug)]
struct Axis {
    scale: Scale,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Scale { from, to, .. } = self.scale;
        let part = (value - from) / (to - from);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.scale.from..self.scale.to
    }
}

/// The next of 1, 2, 5, 10 and so on.
fn round_up(value: f64) -> f64 {
    let unit = 10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * unit >= value * 0.999);
    step.unwrap_or(10.0) * unit
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn server_colour(server: &str) -> RGBColor {
    RGBColor(SERIES, 0, look(server).colour as u8)
}

/// Puts the page's colours in, and leaves the size to the page.
fn for_page(svg: &str, size: (u32, u32), what: &str) -> String {
    let mut svg = svg.replace("#F10000", "var(--ink)");
    svg = svg.replace("#F10001", "var(--grid)");
    svg = svg.replace("#F10002", "var(--paper)");
    for colour in 0..COLOURS {
        let stands_for = format!("#F000{colour:02X}");
        svg = svg.replace(&stands_for, &format!("var(--c{colour})"));
    }
    let (width, height) = size;
    let open = format!("<svg width=\"{width}\" height=\"{height}\"");
    let label = super::page::escape(what);
    svg.replacen(
        &open,
        &format!("<svg role=\"img\" aria-label=\"{label}\""),
        1,
    )
}

/// Draws on a plane of `size` pixels; `what` is read to who cannot see it.
fn draw(
    size: (u32, u32),
    what: &str,
    on: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        on(&area)?;
        area.present().context("drawing a chart")?;
    }
    Ok(for_page(&svg, size, what))
}

/// A chart on `area` with room for the labels of both axes.
fn labelled<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart
        .margin(8)
        .margin_right(18)
        .x_label_area_size(42)
        .y_label_area_size(58);
    chart
}

/// Whether the values of a chart are drawn on a logarithmic scale.
pub(super) fn is_logarithmic(chart: &Chart<'_>) -> bool {
    chart.scales().1.log
}

impl Chart<'_> {
    fn scales(&self) -> (Scale, Scale) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs: Vec<f64> = points().map(|point| point.0).collect();
        let ys: Vec<f64> = points()
            .flat_map(|point| [point.1.min, point.1.max])
            .chain(self.limit.iter().map(|point| point.1))
            .collect();
        (Scale::of(&xs, false), Scale::of(&ys, true))
    }
}

/// A chart of lines: a mark at each median, a stroke from the least to the
/// greatest of the repeats.
pub(super) fn lines(chart: &Chart<'_>, what: &str) -> Result<String> {
    let (x, y) = chart.scales();
    let points = chart.series.iter().flat_map(|series| &series.points);
    let mut marks: Vec<f64> = points.map(|point| x.map(point.0)).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let marks = if marks.len() <= 10 {
        apart(&marks, x)
    } else {
        x.ticks()
    };
    draw(SIZE, what, |area| {
        let mut plane = labelled(area)
            .build_cartesian_2d(
                Axis {
                    scale: x,
                    ticks: marks,
                },
                y.axis(),
            )
            .context("drawing a chart")?;
        plane
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(15))
            .x_desc(chart.x_label)
            .axis_desc_style(text(15))
            .x_label_formatter(&|at| (chart.x_shown)(tidy(x.value(*at))))
            .y_label_formatter(&|at| (chart.y_shown)(tidy(y.value(*at))))
            .draw()
            .context("drawing a chart")?;
        let limit: Vec<(f64, f64)> = chart
            .limit
            .iter()
            .map(|&(at, value)| (x.map(at), y.map(value)))
            .collect();
        plane
            .draw_series(DashedLineSeries::new(limit, 8, 5, INK.stroke_width(2)))
            .context("drawing a chart")?;
        // Ours last, so that nothing lies above them.
        let mut order: Vec<&Series<'_>> = chart.series.iter().collect();
        order.sort_by_key(|series| !look(series.server).hollow);
        for series in order {
            let colour = server_colour(series.server);
            let look = look(series.server);
            let stroke = colour.stroke_width(2);
            let line = series
                .points
                .iter()
                .map(|(at, spread)| (x.map(*at), y.map(spread.median)));
            if look.dashed {
                let line: Vec<_> = line.collect();
                plane
                    .draw_series(DashedLineSeries::new(line, 4, 4, stroke))
                    .context("drawing a chart")?;
            } else {
                plane
                    .draw_series(LineSeries::new(line, stroke))
                    .context("drawing a chart")?;
            }
            let ranges = series.points.iter().map(|(at, spread)| {
                let ends = [spread.min, spread.max].map(|value| (x.map(*at), y.map(value)));
                PathElement::new(ends.to_vec(), colour.stroke_width(1))
            });
            plane.draw_series(ranges).context("drawing a chart")?;
            for (at, spread) in &series.points {
                let centre = (x.map(*at), y.map(spread.median));
                let inner = if look.hollow { PAPER } else { colour };
                let circles = [
                    Circle::new(centre, 4, inner.filled()),
                    Circle::new(centre, 4, stroke),
                ];
                plane.draw_series(circles).context("drawing a chart")?;
            }
        }
        Ok(())
    })
}

/// A value that went through a logarithm, without what it has brought along.
fn tidy(value: f64) -> f64 {
    let whole = value.round();
    if (value - whole).abs() < whole.abs().max(1.0) * 1e-9 {
        whole
    } else {
        value
    }
}

/// Of these places those whose labels do not run into each other.
fn apart(marks: &[f64], scale: Scale) -> Vec<f64> {
    let least = (scale.to - scale.from) * 0.09;
    let mut kept: Vec<f64> = Vec::new();
    for mark in marks {
        if kept.last().is_none_or(|last| mark - last >= least) {
            kept.push(*mark);
        }
    }
    kept
}

/// A bar, made of parts that lie behind each other.
pub(super) struct Bar<'a> {
    pub(super) server: &'a str,
    /// One, or the part in the server process and that in the kernel.
    pub(super) parts: Vec<f64>,
    /// Of the whole.
    pub(super) spread: Spread,
}

/// Bars from the left; with the limit as a line down across them.
pub(super) fn bars(bars: &[Bar<'_>], limit: Option<f64>, what: &str) -> Result<String> {
    const ROW: u32 = 30;
    const ROW_MIDDLE: i32 = 14;
    const NAMES: u32 = 190;
    const TOP: u32 = 6;
    const VALUES: u32 = 84;
    let size = (SIZE.0, TOP * 2 + ROW * bars.len() as u32);
    let most = bars.iter().map(|bar| bar.spread.max).chain(limit);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let at = |value: f64| {
        let width = f64::from(SIZE.0 - NAMES - VALUES);
        (f64::from(NAMES) + value / most * width).round() as i32
    };
    draw(size, what, |area| {
        for (row, bar) in (0..).zip(bars) {
            let top = (TOP + row * ROW).cast_signed();
            let middle = top + ROW_MIDDLE;
            let name = Text::new(
                bar.server.to_owned(),
                (NAMES.cast_signed() - 8, middle),
                right(&text(16)),
            );
            area.draw(&name).context("drawing a chart")?;
            let colour = server_colour(bar.server);
            let mut from = 0.0;
            for (part, value) in bar.parts.iter().enumerate() {
                let ends = [
                    (at(from), top + 4),
                    (at(from + value), top + 2 * ROW_MIDDLE - 4),
                ];
                let strength = if part == 0 { 1.0 } else { 0.45 };
                let fill = colour.mix(strength).filled();
                area.draw(&Rectangle::new(ends, fill))
                    .context("drawing a chart")?;
                from += value;
            }
            let range = vec![(at(bar.spread.min), middle), (at(bar.spread.max), middle)];
            area.draw(&PathElement::new(range, INK.stroke_width(2)))
                .context("drawing a chart")?;
            let place = (at(bar.spread.max) + 8, middle);
            let value = Text::new(digits(bar.spread.median), place, left(&text(16)));
            area.draw(&value).context("drawing a chart")?;
        }
        if let Some(limit) = limit {
            let ends = [(at(limit), 2), (at(limit), size.1.cast_signed() - 2)];
            for dash in dashes(ends[0].1, ends[1].1) {
                let path = vec![(ends[0].0, dash.0), (ends[0].0, dash.1)];
                area.draw(&PathElement::new(path, INK.stroke_width(2)))
                    .context("drawing a chart")?;
            }
        }
        Ok(())
    })
}

fn dashes(from: i32, to: i32) -> impl Iterator<Item = (i32, i32)> {
    (from..to)
        .step_by(12)
        .map(move |start| (start, (start + 7).min(to)))
}

fn right(style: &TextStyle<'static>) -> TextStyle<'static> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    style.pos(Pos::new(HPos::Right, VPos::Center))
}

fn left(style: &TextStyle<'static>) -> TextStyle<'static> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    style.pos(Pos::new(HPos::Left, VPos::Center))
}

/// The busy connection: what was sent as strokes over the bytes that a
/// segment carries, what was acknowledged as a line of steps.
pub(super) fn time_line(points: &[TimeLinePoint], what: &str) -> Result<String> {
    const WIDE: (u32, u32) = (1_140, 420);
    let acknowledged = points.iter().filter(|point| !point.sent);
    let kb = |bytes: u32| f64::from(bytes) / 1e3;
    let end = points.iter().map(|point| point.us).fold(1.0, f64::max);
    let most = points.iter().map(|point| kb(point.seq)).fold(1.0, f64::max);
    let x = Scale::of(&[0.0, end], true);
    let y = Scale::of(&[0.0, most], true);
    draw(WIDE, what, |area| {
        let mut plane = labelled(area)
            .build_cartesian_2d(x.axis(), y.axis())
            .context("drawing the time line")?;
        plane
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(15))
            .x_desc("µs since the connection's first segment")
            .axis_desc_style(text(15))
            .x_label_formatter(&|at| thousands(*at))
            .y_label_formatter(&|at| axis_shown(*at))
            .draw()
            .context("drawing the time line")?;
        let mut steps = Vec::new();
        for point in acknowledged {
            if let Some((_, last)) = steps.last().copied() {
                steps.push((point.us, last));
            }
            steps.push((point.us, kb(point.seq)));
        }
        let ours = RGBColor(SERIES, 0, 0).stroke_width(2);
        let theirs = RGBColor(SERIES, 0, 3).stroke_width(2);
        plane
            .draw_series(LineSeries::new(steps, theirs))
            .context("drawing the time line")?;
        let sent = points.iter().filter(|point| point.sent);
        let strokes = sent.clone().map(|point| {
            let first = point.seq.saturating_sub(point.len);
            let ends = vec![(point.us, kb(first)), (point.us, kb(point.seq))];
            PathElement::new(ends, ours)
        });
        plane
            .draw_series(strokes)
            .context("drawing the time line")?;
        let ends = sent.map(|point| Circle::new((point.us, kb(point.seq)), 2, ours.filled()));
        plane.draw_series(ends).context("drawing the time line")?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> Spread {
        Spread::of([value]).unwrap()
    }

    #[test]
    fn a_scale_over_decades_is_logarithmic() {
        let scale = Scale::of(&[1.0, 1e6], false);
        assert!(scale.log);
        assert_eq!(scale.ticks().len(), 7);
        let scale = Scale::of(&[80.0, 0.0, 320.0], false);
        assert!(!scale.log, "it has a zero");
        let scale = Scale::of(&[3.0, 10.0], true);
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        for values in [&[5.0][..], &[0.0], &[1e-9], &[f64::MAX]] {
            let scale = Scale::of(values, true);
            assert!(scale.to > scale.from, "{values:?}: {scale:?}");
        }
        assert!((round_up(0.3) - 0.5).abs() < 1e-9);
        assert!((round_up(7.0) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn charts_take_their_colours_from_the_page() {
        let series = |server, values: [f64; 2]| Series {
            server,
            points: vec![(1.0, one(values[0])), (1e4, one(values[1]))],
        };
        let chart = Chart {
            x_label: "names",
            x_shown: &axis_shown,
            y_shown: &axis_shown,
            series: vec![
                series("namestorm turnaround", [5e5, 4e5]),
                series("Knot DNS", [1e5, 9e4]),
            ],
            limit: vec![(1.0, 6e5), (1e4, 6e5)],
        };
        let svg = lines(&chart, "a \"chart\" <of> lines").unwrap();
        assert!(svg.contains("var(--c0)") && svg.contains("var(--c4)"));
        assert!(svg.contains("aria-label=\"a &quot;chart&quot; &lt;of&gt; lines\""));
        assert!(!svg.contains("#F"), "no colour is left that stands for one");
        assert!(svg.contains("viewBox"));
        assert!(svg.contains("600 k"), "an axis label");
    }

    #[test]
    fn names_in_bars_are_escaped() {
        let bar = Bar {
            server: "<b>&",
            parts: vec![1.0, 2.0],
            spread: one(3.0),
        };
        let svg = bars(&[bar], Some(4.0), "bars").unwrap();
        assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"));
        assert!(svg.contains("3.00"));
    }

    #[test]
    fn hostile_numbers_are_drawn_somewhere() {
        for value in [0.0, -1.0, 1e300, 1e-300] {
            let chart = Chart {
                x_label: "",
                x_shown: &axis_shown,
                y_shown: &axis_shown,
                series: vec![Series {
                    server: "x",
                    points: vec![(value, one(value))],
                }],
                limit: Vec::new(),
            };
            lines(&chart, "").unwrap();
        }
        time_line(&[], "").unwrap();
    }
}
