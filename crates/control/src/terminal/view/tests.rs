use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::status::{
    Histogram, InterfaceStatus, LastReload, PORT, ReloadResult, Reloads, StatusCount, WorkerStatus,
};

fn count(name: &str, is_level: bool, count: u64) -> StatusCount {
    StatusCount {
        program: "web".to_owned(),
        name: name.to_owned(),
        meaning: None,
        labels: [].into(),
        is_level,
        count,
    }
}

/// Returns the status of a server with two workers after this time. The second worker does nothing.
fn status(uptime_seconds: f64, answers: u64) -> Status {
    let worker = |answers: u64, age: f64| WorkerStatus {
        age_seconds: Some(age),
        port: [
            ("received frames".to_owned(), 2 * answers),
            ("sent bytes".to_owned(), 1_000 * answers),
        ]
        .into(),
        counts: vec![
            count("answers", false, answers),
            count("never", false, 0),
            count("connections open", true, 0),
            StatusCount {
                program: PORT.to_owned(),
                ..count("pool frames free", true, 8_000)
            },
        ],
        drops: vec![count("late", false, answers / 100)],
        histograms: vec![Histogram {
            program: "web".to_owned(),
            name: "request seconds".to_owned(),
            meaning: None,
            labels: [].into(),
            sum: 0.0,
            ranges: vec![(Some(2e-6), answers), (None, 7)],
        }],
    };
    Status {
        program: "web".to_owned(),
        version: "1.2".to_owned(),
        phase: Phase::Serving,
        uptime_seconds,
        clock_steps: 0,
        reloads: Reloads::default(),
        endpoints: [].into(),
        interface: InterfaceStatus::default(),
        facts: Vec::new(),
        workers: vec![worker(answers, 0.0), worker(0, 5.0)],
    }
}

/// Returns the page as lines, without spaces at the end and in rows.
fn lines(page: &mut Page, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| page.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(width.into());
    let lines = rows.map(|row| {
        row.iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect::<String>()
    });
    let one_space = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.map(one_space).collect()
}

fn assert_has(lines: &[String], parts: &[&str]) {
    for part in parts {
        let found = lines.iter().any(|line| line.contains(part));
        assert!(found, "{part} is missing:\n{}", lines.join("\n"));
    }
}

#[test]
fn the_page_shows_rates_totals_drops_and_workers() {
    let mut page = Page::new(status(60.0, 1_000));
    page.take(Ok(status(62.0, 21_000)));
    for width in [80, 140] {
        let lines = lines(&mut page, width, 36);
        assert_eq!(
            lines[0],
            "web 1.2 serving for 1m 2s generation 1 (no reload failed)"
        );
        assert_has(
            &lines,
            &[
                "0 20.0 k 0 0 80.0 M 0 8,000 0 0.0 s ago",
                "1 0 0 0 0 0 8,000 0 5 s ago",
                "web: request ≤ 2 µs ≤ 2 µs ≤ 2 µs",
                "web: answers 10.0 k 21,000",
                "web: connections open 0",
                "received frames 20.0 k 42,000",
                "web: late 100 210",
                "q quits",
            ],
        );
        assert!(!lines.iter().any(|line| line.contains("never")));
    }
}

#[test]
fn a_lost_server_is_named_and_the_figures_stay() {
    let mut page = Page::new(status(60.0, 1_000));
    page.take(Err("/run/web.sock: nobody listens".to_owned()));
    let lost = lines(&mut page, 80, 24);
    assert_eq!(
        lost[1],
        "no answer, trying again: /run/web.sock: nobody listens"
    );
    assert_has(&lost, &["web: answers 0 1,000"]);
    // A new server counts from 0.
    page.take(Ok(status(1.0, 500)));
    let found = lines(&mut page, 80, 24);
    assert!(!found[1].contains("no answer"));
    assert_has(&found, &["web: answers 0 500"]);
}

#[test]
fn a_failed_reload_is_named_in_as_many_lines_as_it_needs() {
    let mut failed = status(60.0, 0);
    failed.reloads.failed = 1;
    failed.reloads.last = Some(LastReload {
        result: ReloadResult::Failed,
        message: "a folder does not exist and ".repeat(4) + "the-end",
        seconds: 0.1,
        unix_time: 0.0,
    });
    let lines = lines(&mut Page::new(failed), 60, 30);
    assert!(lines[1].starts_with("the last reload failed: a folder"));
    assert!(
        lines[..6].iter().any(|line| line.ends_with("the-end")),
        "{lines:#?}"
    );
}

#[test]
fn counts_that_do_not_fit_are_reached_by_scrolling() {
    let mut many = status(60.0, 1);
    let counts = (0..40).map(|number| count(&format!("count {number:02}"), false, 1));
    many.workers[0].counts = counts.collect();
    many.workers[1].counts.clear();
    let mut page = Page::new(many);
    let first = lines(&mut page, 80, 24);
    assert_has(&first, &["web: count 00", "more below"]);
    page.scroll(i32::MAX);
    let last = lines(&mut page, 80, 24);
    assert_has(&last, &["web: count 39", "sent bytes 0 1,000"]);
    assert!(!last.iter().any(|line| line.contains("more below")));
    page.scroll(-1);
    assert_has(&lines(&mut page, 80, 24), &[" 1 more below"]);
    page.scroll(i32::MIN);
    assert_eq!(lines(&mut page, 80, 24), first);
}

#[test]
fn a_tiny_terminal_shows_what_fits() {
    for (width, height) in [(1, 1), (5, 3), (20, 8), (200, 2)] {
        lines(&mut Page::new(status(60.0, 1)), width, height);
    }
}
