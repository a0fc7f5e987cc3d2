//! Line charts, which the crate plotters draws.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::numbers::{Spread, digits};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (640, 380);

/// Values of a server. There is one value for each label of the x axis.
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) values: Vec<Option<Spread>>,
}

/// Draws medians as lines, with a bar from minimum to maximum, and returns SVG.
pub(super) fn draw(title: &str, x_labels: &[String], series: &[Series<'_>]) -> Result<String> {
    let mut svg = String::new();
    try_draw(&mut svg, title, x_labels, series)
        .map_err(|error| anyhow!("drawing the chart {title}: {error}"))?;
    Ok(svg)
}

/// Returns a value's place on the axis, which is logarithmic because ratios between servers matter.
fn scaled(value: f64) -> f64 {
    value.max(1e-3).log10()
}

/// Returns ticks for a logarithmic axis: the places of 1, 2 and 5 times each power of ten.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let decades = from as i32..=to as i32;
    let of_decade = |decade| [1.0, 2.0, 5.0].map(|n| scaled(n) + f64::from(decade));
    decades
        .flat_map(of_decade)
        .filter(|tick| *tick <= to)
        .collect()
}

fn try_draw(
    svg: &mut String,
    title: &str,
    x_labels: &[String],
    series: &[Series<'_>],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let spreads = || series.iter().flat_map(|one| one.values.iter().flatten());
    let min = spreads()
        .map(|one| scaled(one.min))
        .fold(f64::MAX, f64::min);
    let max = spreads().map(|one| scaled(one.max)).fold(-3.0, f64::max);
    let (from, to) = (min.min(max).floor(), max + 0.05);
    let x = Axis {
        // Leave room for the legend at the right.
        range: -0.3..x_labels.len() as f64 * 1.35 - 0.7,
        ticks: (0..x_labels.len()).map(|at| at as f64).collect(),
    };
    let y = Axis {
        range: from..to,
        ticks: ticks(from, to),
    };
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 17))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)?;
    // Ticks are at integers from 0 on.
    #[allow(clippy::cast_sign_loss)]
    let label = |at: &f64| {
        x_labels
            .get(at.round() as usize)
            .cloned()
            .unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_label_formatter(&label)
        .y_label_formatter(&|at| digits(10_f64.powf(*at)))
        .draw()?;
    for (index, one) in series.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let points = one.values.iter().enumerate();
        let points: Vec<(f64, Spread)> = points
            .filter_map(|(at, spread)| Some((at as f64, (*spread)?)))
            .collect();
        let medians = points
            .iter()
            .map(|(at, spread)| (*at, scaled(spread.median)));
        chart
            .draw_series(LineSeries::new(medians, colour.stroke_width(2)).point_size(3))?
            .label(one.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|(at, spread)| {
            let ends = [spread.min, spread.max].map(|value| (*at, scaled(value)));
            PathElement::new(ends, colour.stroke_width(1))
        }))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    area.present()?;
    Ok(())
}

/// An axis with ticks at given values.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}
