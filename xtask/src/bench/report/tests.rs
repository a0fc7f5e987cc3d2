use super::*;
use crate::bench::results::{Cost, Load, Missing, Run};

/// Makes three repeats: the given rate and cost, 10 % less, and 10 % more.
fn runs(figure: &str, panel: &str, server: &str, x: f64, [rate, core_us]: [f64; 2]) -> Vec<Run> {
    let run = |(repeat, factor)| Run {
        figure: figure.into(),
        panel: panel.into(),
        server: server.into(),
        x,
        repeat,
        load: Load {
            rate: rate * factor,
            bytes_per_second: rate * factor * x,
            latency_us: [100.0, 250.0, 400.0, 900.0],
            ..Load::default()
        },
        cost: Cost {
            core_us: core_us * factor,
            user_us: core_us * factor / 4.0,
            ..Cost::default()
        },
        refused: 0.0,
        // In %: 0.09 and 0.11 besides the median, 0.1.
        lost: (figure == "web-bursts").then_some(0.001 * factor),
        memory: if x.to_bits() == 1e5_f64.to_bits() {
            26_000_000
        } else {
            260_000
        },
    };
    (0..).zip([1.0, 0.9, 1.1]).map(run).collect()
}

/// Makes results with round numbers, so that ratios are easy to check by hand.
fn results() -> Results {
    const KB: f64 = 1024.0;
    let mut all = Vec::new();
    let mut add = |figure, panel, server, x, values| {
        all.extend(runs(figure, panel, server, x, values));
    };
    for (server, values) in [
        ("namestorm turnaround", [480e3, 1.1]),
        ("namestorm memcopy", [500e3, 1.0]),
        ("reflector", [600e3, 1.0]),
        ("NSD", [200e3, 4.0]),
        ("BIND", [100e3, 8.0]),
    ] {
        add("dns-names", "", server, 100.0, values);
    }
    for (server, core_us) in [("namestorm turnaround", 1.0), ("NSD", 4.0)] {
        add("dns-cost", "100,000/s", server, 100.0, [100e3, core_us]);
    }
    for (server, cost) in [
        ("sandstorm memcopy", 2.0),
        ("nginx", 10.0),
        ("nginx busy-poll", 9.0),
    ] {
        add("web-cost", "keep-alive", server, KB, [50e3, cost]);
        add(
            "web-cost",
            "keep-alive",
            server,
            64.0 * KB,
            [5e3, 50.0 + cost],
        );
    }
    for (connections, sandstorm) in [("1 connection", 30.0), ("16 connections", 20.0)] {
        add(
            "web-offload",
            connections,
            "sandstorm memcopy",
            64.0 * KB,
            [1e4, sandstorm],
        );
        add("web-offload", connections, "nginx", 64.0 * KB, [1e4, 50.0]);
    }
    add(
        "web-bursts",
        "1 connection",
        "sandstorm memcopy",
        KB,
        [1e4, 9.0],
    );
    for (server, values) in [("load", [90e3, 1.0]), ("wrk", [100e3, 1.0])] {
        add("agreement", "HTTP", server, KB, values);
    }
    for x in [1e3, 1e5] {
        add("connections", "", "sandstorm memcopy", x, [1e5, 3.0]);
    }
    Results {
        started: "2026-11-21 12:00 UTC".into(),
        command: "bench all".into(),
        versions: BTreeMap::from([("commit".into(), "004c3ce".into())]),
        runs: all,
        missing: vec![Missing {
            what: "h2o".into(),
            why: "it ended with <1>".into(),
            log: String::new(),
        }],
        ..Results::default()
    }
}

#[test]
fn marks_are_ratios_of_medians_and_the_worst_point_counts() {
    let rows = comparisons::rows(&results());
    let of = |what: &str| -> Vec<[&str; 3]> {
        let rows = rows.iter().filter(|row| row[0] == what);
        rows.map(|row| [&*row[1], &*row[3], &*row[4]]).collect()
    };
    let rate = ["100 names", "0.80 (0.80 to 0.80)", "**missed**"].map(|text| text);
    assert_eq!(
        of("Namestorm's rate to the reflector's"),
        [[rate[0], "0.80", rate[2]]]
    );
    assert_eq!(
        of("Namestorm's cost to NSD's"),
        [["100,000/s, 100 names", "0.25", "met"]]
    );
    let absent = ["", "–", "not measured"];
    assert_eq!(of("Namestorm's cost to Knot DNS XDP's"), [absent]);
    // The cheaper of the two nginx variants counts.
    assert_eq!(
        of("Sandstorm's cost to nginx's")[0],
        ["keep-alive, 1 KB", "0.22", "**missed**"]
    );
    let sizes = of("Sandstorm's cost to nginx's, worst size up to 64 KB");
    assert_eq!(sizes[0], ["keep-alive, 64 KB", "0.88", "met"]);
    let offload =
        of("Sandstorm's cost to nginx's with offloads, 64 KB, worst point from 16 connections");
    assert_eq!(offload, [["16 connections, 64 KB", "0.40", "**missed**"]]);
    let lost = of("Sandstorm's lost frames in %, no queueing discipline");
    assert_eq!(
        lost,
        [["1 connection, 1 KB", "0.10 (0.090 to 0.11)", "met"]]
    );
    assert_eq!(
        of("Our generator's rate to wrk's"),
        [["HTTP, 1 KB", "0.90", "**missed**"]]
    );
    assert!(
        of("Figure 5: throughput to nginx's, sizes of a CDN").is_empty(),
        "not measured"
    );
}

#[test]
fn a_server_that_missed_the_rate_is_named() {
    let mut results = results();
    for run in results
        .runs
        .iter_mut()
        .filter(|run| run.figure == "dns-cost")
    {
        run.load.asked_rate = if run.server == "NSD" { 200e3 } else { 100e3 };
    }
    let rows = comparisons::rows(&results);
    let row = rows
        .iter()
        .find(|row| row[0] == "Namestorm's cost to NSD's")
        .unwrap();
    assert_eq!(row[5], "1.00 to 4.00; NSD reached 100,000/s of 200,000/s");
}

#[test]
fn the_summary_has_the_range_of_our_modes() {
    let rows = summary::rows(&[results(), Results::default()]);
    let ours = "namestorm 480,000 to 500,000";
    let others = "reflector 600,000; NSD 200,000; BIND 100,000";
    let measured = "2026-11-21, commit 004c3ce";
    let [what, load] = ["DNS, 100 names, answers/s", "`load`, 240 queries in flight"];
    assert_eq!(rows[0], [what, load, ours, others, measured]);
    let memory = "one of 100,000 open connections, bytes of memory";
    let last = &rows.last().unwrap()[..3];
    assert_eq!(
        last,
        [memory, "`load`, 16 of them busy", "sandstorm memcopy 260"]
    );
}

#[test]
fn the_pages_have_every_run_and_whole_tables() {
    let mut hostile = results();
    let panel = "<script>|`x`";
    for rate in [0.0, -1.0, 1e300] {
        hostile
            .runs
            .extend(runs("delta-t", panel, "<b>", rate, [rate, rate]));
    }
    let short = page(&[results(), hostile.clone()], false).unwrap();
    assert!(short.contains("| nginx, keep-alive | 10.0 (9.00 to 11.0) | 60.0 (54.0 to 66.0) |"));
    assert!(short.contains("| h2o | it ended with \\<1> |"));
    assert_eq!(
        short.matches("<script>").count(),
        short.matches("\\<script>").count()
    );
    for block in short.split("\n\n").filter(|block| block.starts_with('|')) {
        let mut cells = block
            .lines()
            .map(|row| row.replace("\\|", "").matches('|').count());
        let first = cells.next().unwrap();
        assert!(cells.all(|count| count == first), "{block}");
    }
    let full = html(&page(&[hostile], true).unwrap());
    assert!(full.contains("&lt;script&gt;") && !full.contains("<script>"));
    let charts = full.matches("<svg ").count();
    assert_eq!(
        (charts, full.matches("</svg>").count()),
        (full.matches("<figure>").count(), charts)
    );
    assert!(charts > 10);
}

#[test]
fn headings_name_the_load_generators() {
    let mut results = results();
    for run in &mut results.runs {
        run.load.generator = match (&*run.figure, &*run.server) {
            ("agreement", server) => server.into(),
            ("web-offload", _) => "wrk".into(),
            ("web-cost", _) => "load http".into(),
            ("dns-cost" | "dns-names", _) => "load dns".into(),
            _ => continue,
        };
    }
    let reflected = results
        .runs
        .iter_mut()
        .find(|run| run.server == "reflector");
    reflected.unwrap().load.generator = "load echo".into();
    let page = page(&[results], false).unwrap();
    for heading in [
        "### DNS at full rate, by zone size (Figure 8a), `load` as the client\n",
        "### HTTP: cost of a request, `load` as the client\n",
        "### HTTP with segmentation offload, wrk as the client\n",
        "### Our load generators beside others, `load` and wrk as clients\n",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}

#[test]
fn raw_results_are_read_and_drawn_again() {
    let scratch = crate::shell::scratch("report-test").unwrap();
    let raw = scratch.path().join("results.json");
    std::fs::write(&raw, serde_json::to_vec(&results()).unwrap()).unwrap();
    let all = [read(&raw).unwrap()];
    write(&all, scratch.path()).unwrap();
    let short = std::fs::read_to_string(scratch.path().join(SHORT)).unwrap();
    assert!(short == page(&all, false).unwrap());
    assert!(
        read(Path::new("/nonexistent"))
            .unwrap_err()
            .to_string()
            .contains("/nonexistent")
    );
}
