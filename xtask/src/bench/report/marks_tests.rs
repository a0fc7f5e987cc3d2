use super::super::sample;
use super::*;

fn shown(results: &Results) -> Vec<(String, String, &'static str)> {
    let shown = |mark: &Mark| {
        let value = mark
            .measured
            .map_or(String::new(), |ratio| digits(ratio.value));
        (mark.what.clone(), value, mark.verdict())
    };
    marks(results).iter().map(shown).collect()
}

#[test]
fn marks_are_ratios_of_medians() {
    let expected = [
        (
            "Namestorm, 100 names: rate to the reflector's",
            "0.80",
            "missed",
        ),
        (
            "Namestorm, 100 names, 100,000 queries/s: cost to Knot DNS XDP's",
            "0.73",
            "met",
        ),
        (
            "Namestorm, 100 names, each at its full rate: cost to Knot DNS XDP's",
            "0.73",
            "met",
        ),
        (
            "Namestorm, 100 names, 100,000 queries/s: cost to NSD's",
            "0.25",
            "met",
        ),
        (
            "Namestorm, 100 names, each at its full rate: cost to NSD's",
            "0.25",
            "met",
        ),
        (
            "Namestorm, 100,000 queries/s: cost of 1,000,000 names to that of 100",
            "1.08",
            "met",
        ),
        // The cheaper nginx counts.
        (
            "Sandstorm, 1 KB, keep-alive: cost to nginx busy-poll's",
            "0.21",
            "missed",
        ),
        (
            "Sandstorm, 1 KB, new connection: cost to nginx busy-poll's",
            "0.21",
            "missed",
        ),
        (
            "Sandstorm, up to 64 KB, keep-alive: cost to nginx busy-poll's at the worst size",
            "0.21",
            "met",
        ),
        (
            "Sandstorm, up to 64 KB, new connection: cost to nginx busy-poll's at the worst size",
            "0.21",
            "met",
        ),
        (
            "Sandstorm, offloads on, 16 KB: cost to nginx's, 64 connections, wrk",
            "0.20",
            "met",
        ),
        (
            "Sandstorm, offloads on, 64 KB: cost to nginx's, 64 connections, wrk",
            "0.20",
            "met",
        ),
        (
            "Sandstorm, offloads on, 1 MB: cost to nginx's",
            "",
            "not measured",
        ),
        (
            "Sandstorm, offloads on: throughput to nginx's at the worst point",
            "4.00",
            "met",
        ),
    ];
    let found = shown(&sample::results());
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        // Which of equal sizes is the worst is left to rounding.
        assert!(found.0.starts_with(expected.0), "{found:?}");
        assert_eq!(
            (found.1.as_str(), found.2),
            (expected.1, expected.2),
            "{}",
            found.0
        );
    }
}

#[test]
fn what_was_not_run_is_not_measured() {
    let found = shown(&Results::default());
    assert_eq!(found.len(), 12);
    assert!(
        found
            .iter()
            .all(|(_, value, verdict)| value.is_empty() && *verdict == "not measured")
    );
}

#[test]
fn runs_with_offloads_do_not_count() {
    let mut results = sample::results();
    for run in &mut results.runs {
        run.offloads = true;
    }
    for (what, _, verdict) in shown(&results) {
        let of_offloads = what.starts_with("Sandstorm, offloads on");
        assert!(of_offloads || verdict == "not measured", "{what}");
    }
}

#[test]
fn a_peer_that_has_not_reached_the_rate_is_named() {
    let mut results = sample::results();
    for run in &mut results.runs {
        if run.server == "NSD" && run.figure == "dns-cost" {
            run.load.rate = 50e3;
        }
    }
    let marks = marks(&results);
    let note_of = |what: &str| {
        let mark = marks.iter().find(|mark| mark.what.ends_with(what));
        &mark.unwrap().note
    };
    let note = note_of("100,000 queries/s: cost to NSD's");
    assert!(
        note.contains("NSD has reached 50,000/s of 100,000/s"),
        "{note}"
    );
    assert!(!note_of("100,000 queries/s: cost to Knot DNS XDP's").contains("reached 50"));
}
