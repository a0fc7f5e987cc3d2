//! Results that nobody has measured, for tests: round numbers whose medians
//! and ratios one can work out by hand.

use crate::bench::results::{Batches, Calls, Cost, Load, Missing, Results, Run, TimeLinePoint};

/// A run at a rate and a cost; the rest follows from them.
pub(super) fn run(figure: &str, server: &str, x: f64, rate: f64, core_us: f64) -> Run {
    let web = figure.starts_with("web") || figure == "connections";
    let (generator, bytes) = match figure {
        "limit" => ("load echo", x - 42.0),
        _ if web => ("load http", x),
        _ => ("load dns", 51.0),
    };
    Run {
        figure: figure.into(),
        server: server.into(),
        x,
        load: Load {
            generator: generator.into(),
            seconds: 4.0,
            completed: 4_000,
            rate,
            bytes_per_second: rate * bytes,
            latency_us: [100.0, 250.0, 400.0, 900.0],
            connection_rate: web.then_some([90.0, 100.0]),
            ..Load::default()
        },
        cost: Some(Cost {
            core_us,
            user_us: core_us * 0.25,
            system_us: core_us * 0.75,
            busy: 0.9,
            stolen: 0.01,
            client_busy: 0.5,
        }),
        calls: Some(Calls {
            per_request: 0.05,
            per_second: rate * 0.05,
            packets_per_call: 40.0,
        }),
        batches: None,
        memory: None,
        ..Run::default()
    }
}

/// Three repeats around a rate and a cost: the same, 10 % less, 10 % more.
fn thrice(runs: &mut Vec<Run>, run: &Run) {
    for (repeat, factor) in (0..).zip([1.0, 0.9, 1.1]) {
        let mut again = run.clone();
        again.repeat = repeat;
        if run.load.asked_rate <= 0.0 {
            again.load.rate *= factor;
            again.load.bytes_per_second *= factor;
        }
        if let Some(cost) = &mut again.cost {
            cost.core_us *= factor;
            cost.user_us *= factor;
            cost.system_us *= factor;
        }
        runs.push(again);
    }
}

const DNS: &[(&str, f64, f64)] = &[
    ("namestorm turnaround", 500e3, 1.6),
    ("namestorm memcopy", 450e3, 1.8),
    ("namestorm memcopy fqdn", 400e3, 2.0),
    ("Knot DNS XDP", 300e3, 2.2),
    ("Knot DNS", 195e3, 5.5),
    ("NSD", 150e3, 6.4),
    ("BIND", 110e3, 9.0),
];

const WEB: &[(&str, f64, f64)] = &[
    ("sandstorm memcopy", 240e3, 3.0),
    ("nginx", 60e3, 15.0),
    ("sandstorm pre-copy", 230e3, 3.1),
    ("nginx busy-poll", 65e3, 14.0),
    ("lighttpd", 50e3, 19.0),
    ("h2o", 55e3, 17.0),
];

fn limit(runs: &mut Vec<Run>) {
    for (size, rate) in [
        (64.0, 620e3),
        (77.0, 600e3),
        (512.0, 580e3),
        (1514.0, 500e3),
    ] {
        thrice(runs, &run("limit", "reflect", size, rate, 1.3));
    }
}

fn dns(runs: &mut Vec<Run>) {
    for names in [1.0, 100.0, 1e4, 1e6_f64] {
        let slower = 1.0 + names.log10() * 0.02;
        for &(server, rate, cost) in DNS {
            thrice(
                runs,
                &run("dns-names", server, names, rate / slower, cost * slower),
            );
            if (names - 100.0).abs() < 1.0 || names > 1e5 {
                let mut one = run("dns-cost", server, names, 100e3, cost * slower);
                one.panel = "100,000 queries/s".into();
                one.load.asked_rate = 100e3;
                thrice(runs, &one);
            }
        }
    }
    for n in 0..9_u8 {
        let batch = f64::from(1_u32 << n);
        let rate = 200e3 + 40e3 * f64::from(n);
        let mut one = run(
            "dns-batch",
            "namestorm turnaround",
            batch,
            rate,
            4.0 - 0.2 * f64::from(n),
        );
        let mut received = vec![10, 20];
        received.resize(usize::from(n) + 1, 1_000);
        one.batches = Some(Batches {
            sent: received.clone(),
            received,
        });
        thrice(runs, &one);
    }
}

fn web(runs: &mut Vec<Run>) {
    for kb in [1.0, 4.0, 16.0, 64.0_f64] {
        let slower = kb.powf(0.6);
        for &(server, rate, cost) in WEB {
            let size = kb * 1024.0;
            for (panel, dearer) in [("keep-alive", 1.0), ("new connection", 2.5)] {
                let mut one = run("web-cost", server, size, 20e3, cost * slower * dearer);
                one.panel = panel.into();
                one.load.asked_rate = 20e3;
                thrice(runs, &one);
            }
            for panel in ["1 connection", "16 connections", "256 connections"] {
                let mut one = run("web-sizes", server, size, rate / slower, cost * slower);
                one.panel = panel.into();
                thrice(runs, &one);
            }
            let mut one = run(
                "web-offload",
                server,
                size,
                rate / slower * 1.5,
                cost * slower,
            );
            one.panel = "64 connections, wrk".into();
            one.load.generator = "wrk".into();
            one.offloads = true;
            thrice(runs, &one);
            thrice(
                runs,
                &run("web-loss", server, size, rate / slower / 50.0, cost),
            );
        }
    }
    for connections in [16.0, 64.0, 256.0] {
        for &(server, rate, cost) in WEB {
            let mut one = run("web-mix", server, connections, rate / 8.0, cost * 8.0);
            one.load.bytes_per_second = one.load.rate * 30e3;
            thrice(runs, &one);
        }
    }
    for connections in [1_000, 10_000, 100_000_u32] {
        for (server, each) in [("sandstorm memcopy", 260), ("nginx", 3_000)] {
            let mut one = run("connections", server, connections.into(), 60e3, 5.0);
            one.load.bytes_per_second = one.load.rate * 1024.0;
            one.memory = Some(20_000_000 + u64::from(connections) * each);
            thrice(runs, &one);
        }
    }
}

fn others(runs: &mut Vec<Run>) {
    for us in [0.0, 20.0, 40.0, 80.0, 160.0, 320.0] {
        let mut one = run(
            "delta-t",
            "namestorm turnaround",
            us,
            400e3 + us * 100.0,
            2.0,
        );
        one.panel = "DNS, 10,000 names".into();
        thrice(runs, &one);
    }
    for (rate, loads) in [
        (100e3, ["load dns", "kxdpgun"]),
        (0.0, ["load http", "wrk"]),
    ] {
        for load in loads {
            let mut one = run("agreement", load, rate, 100e3, 2.0);
            one.panel = if rate > 0.0 {
                "DNS, namestorm, fixed rate"
            } else {
                "HTTP, nginx"
            }
            .into();
            one.load.asked_rate = rate;
            one.load.generator = load.into();
            thrice(runs, &one);
        }
    }
}

/// All figures, with something hostile in every text.
pub(super) fn results() -> Results {
    let mut runs = Vec::new();
    limit(&mut runs);
    dns(&mut runs);
    web(&mut runs);
    others(&mut runs);
    let mut hostile = run("<i>figure</i>", "<script>alert(1)</script>", 3.0, 77.0, 1.0);
    hostile.panel = "\"><img src=x>".into();
    hostile.load.errors.insert("<u>reset</u>".into(), 4_321);
    runs.push(hostile);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let point = |n: u32, sent| TimeLinePoint {
        us: f64::from(n / 8 * 80 + if sent { 40 } else { 0 }) + f64::from(n % 8) * 0.8,
        sent,
        seq: if sent { n + 8 } else { n } * 1_460,
        len: if sent { 1_460 } else { 0 },
    };
    let mut time_line: Vec<TimeLinePoint> = (0..160)
        .flat_map(|n| [point(n, true), point(n, false)])
        .collect();
    time_line.sort_by(|a, b| a.us.total_cmp(&b.us));
    Results {
        started: "2026-11-21 12:00 UTC".into(),
        command: "bench all".into(),
        machine: vec![pair("kernel", "Linux 6.18 <x86>"), pair("cores", "2")],
        versions: [pair("nginx", "1.22.1"), pair("NSD", "4.6.1")].into(),
        cores: vec![
            "Core 0: the server's.".into(),
            "Core 1: the client's.".into(),
        ],
        runs,
        missing: vec![Missing {
            what: "H2O <2>".into(),
            why: "it has ended with 1".into(),
            log: "last <line>\nof its log".into(),
        }],
        instructions: [
            ("dns-turnaround-100".to_owned(), 1_500.0),
            ("new".to_owned(), 10.0),
        ]
        .into(),
        instructions_baseline: [("dns-turnaround-100".to_owned(), 1_600.0)].into(),
        time_line,
    }
}
