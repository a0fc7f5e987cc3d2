//! Medians, ratios and marks of made-up runs.

use std::time::Duration;

use super::*;
use crate::loss::cells;
use crate::loss::forwarder::{Sent, Way};
use crate::loss::report;

/// A cell with runs of both stacks: seconds and repeated bytes of each.
fn measured(name: &str, kernel: &[(f64, u64)], ours: &[(f64, u64)]) -> Measured {
    let mut cell = cells::limit();
    cell.name = name.to_owned();
    cell.size = 1_000_000;
    let run = |stack, &(seconds, repeated_bytes): &(f64, u64)| Run {
        stack,
        paths: Paths::default(),
        seconds,
        fetches: vec![Times {
            connected: 1_000,
            first: 2_000,
            last: Duration::from_secs_f64(seconds).as_micros() as u64,
        }],
        failures: Vec::new(),
        seen: Seen {
            down: Way {
                sent: Sent {
                    bytes: 1_000_000 + repeated_bytes,
                    repeated_bytes,
                    ..Sent::default()
                },
                ..Way::default()
            },
            ..Seen::default()
        },
        noise: None,
    };
    let kernel = kernel.iter().map(|one| run(Stack::Kernel, one));
    let ours = ours.iter().map(|one| run(Stack::Sandstorm, one));
    Measured {
        cell,
        runs: kernel.chain(ours).collect(),
    }
}

fn summary(cells: Vec<Measured>) -> Summary {
    Summary::of(&Results {
        cells,
        ..Results::default()
    })
}

fn met(summary: &Summary) -> Vec<bool> {
    summary.marks().into_iter().map(|(_, _, met)| met).collect()
}

#[test]
fn medians_of_any_number() {
    let of = |values: &[f64]| median(values.iter().copied());
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[3.0]), Some(3.0));
    assert_eq!(of(&[9.0, 1.0]), Some(5.0));
    assert_eq!(of(&[9.0, 1.0, 2.0]), Some(2.0));
}

#[test]
fn figures_are_medians_of_goodput_and_sums_of_bytes() {
    let runs = [(1.0, 10_000), (2.0, 20_000), (4.0, 0)];
    let measured = measured("a", &runs, &[]);
    let figures = measured.figures(Stack::Kernel).unwrap();
    assert!((figures.goodput - 4e6).abs() < 1.0);
    assert_eq!((figures.repeated, figures.sent), (30_000, 3_030_000));
    assert!((figures.first_ms - 2.0).abs() < 1e-9 && (figures.last_ms - 2_000.0).abs() < 1e-9);
    assert_eq!(measured.both(), None);
}

#[test]
fn every_mark_can_be_met_and_missed() {
    let good = || measured("good", &[(1.0, 10_000)], &[(0.9, 10_000)]);
    assert_eq!(met(&summary(vec![good()])), [true; 4]);
    // One slow cell, which the sum makes up for.
    let slow = measured("slow", &[(100.0, 10_000)], &[(200.0, 10_000)]);
    let with_slow = summary(vec![good(), slow]);
    assert_eq!(met(&with_slow), [false, true, true, true]);
    assert_eq!(with_slow.worst, Some((0.5, "rig, slow".to_owned())));
    assert_eq!((with_slow.cells, with_slow.met), (2, 1));
    let wasteful = measured("wasteful", &[(1.0, 10_000)], &[(0.9, 12_000)]);
    assert_eq!(met(&summary(vec![wasteful])), [true, true, false, true]);
    let mut broken = good();
    broken.runs[1].failures.push("why".to_owned());
    assert_eq!(met(&summary(vec![broken])), [false, false, true, false]);
    assert_eq!(met(&summary(Vec::new())), [false, false, false, true]);
}

#[test]
fn next_to_nothing_is_no_ground_for_a_ratio() {
    let ratio = |kernel, ours| {
        let measured = measured("a", &[(1.0, kernel)], &[(1.0, ours)]);
        repeated_ratio(&measured.both().unwrap())
    };
    assert!(ratio(0, 0) <= REPEATED_MARK);
    // A segment of a thousand.
    assert!(ratio(0, 1_448) <= REPEATED_MARK);
    assert!(ratio(0, 5_000) > REPEATED_MARK);
    assert!((ratio(10_000, 20_000) - 2.0).abs() < 1e-9);
}

#[test]
fn a_cell_in_which_the_kernel_fails_is_no_ground_either() {
    let mut cell = measured("a", &[(1.0, 0)], &[(1.0, 0)]);
    cell.runs[0].failures.push("why".to_owned());
    let summary = summary(vec![cell]);
    assert_eq!((summary.met, summary.failures), (1, [1, 0]));
}

#[test]
fn the_page_has_every_cell_and_says_what_is_missed() {
    let results = Results {
        cells: vec![
            measured("fast", &[(1.0, 10_000)], &[(0.5, 10_000)]),
            measured("slow", &[(1.0, 10_000)], &[(2.0, 90_000)]),
        ],
        missing: vec![("one|two".to_owned(), "why".to_owned())],
        ..Results::default()
    };
    let page = report::page(&results);
    assert!(page.contains("| fast | 1000000 | 8.0 Mb/s | 16.0 Mb/s | 2.00 | 1.00 % | 1.00 % |"));
    assert!(page.contains("| slow | 1000000 | 8.0 Mb/s | 4.0 Mb/s | **0.50** | 1.00 % | 9.00 % |"));
    assert!(page.contains("**missed**") && page.contains("- one\\|two: why"));
    let line = report::line(&results.cells[1]);
    assert!(line.contains("× 0.50"), "{line}");
}

#[test]
fn results_are_read_back() {
    let results = Results {
        cells: vec![measured("a", &[(1.0, 1)], &[(2.0, 3)])],
        limit: [(Stack::Kernel, 3e9)].into(),
        ..Results::default()
    };
    let text = serde_json::to_string(&results).unwrap();
    let read: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(summary(read.cells), summary(results.cells));
    assert!(text.contains("\"kernel\":3000000000.0"));
}
