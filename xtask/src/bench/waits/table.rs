//! The table of ways of waiting.

use std::fmt::Write as _;

use super::{Cell, Findings, SERVERS};
use crate::bench::instructions::Baseline;
use crate::bench::report::{Spread, digits, thousands};
use crate::bench::servers::Serves;
use crate::markdown::{owned, write_table};

const HEADS: &[&str] = &[
    "server",
    "waiting",
    "load, %",
    "replies/s",
    "answered, %",
    "CPU µs",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "replies per interrupt",
    "replies per wake-up",
    "slowest connection",
    "system calls",
    "instructions",
    "cycles",
];

/// What a reader must know about the columns.
const NOTES: &str = "\
The rig is a veth pair without a queueing discipline. It has an MTU of 1500, one queue, threaded \
NAPI on the core of its end, and no offloads but GRO. The client is our `load`: `load http` with 64 \
connections, and `load dns` with one address, whose queries have different source ports.

The load is a share of the server's rate in a closed loop with its first way of waiting. CPU is \
the time per reply of the server's threads and of the kernel's threads that receive for it. \
Latency counts from the time at which a request was due; requests without an answer have none. An \
interrupt is a wake-up of the kernel's receiving thread. Each request is one packet, so replies per \
interrupt and per wake-up are also packets. Slowest connection: the highest p50 of a connection, as a \
multiple of the p50 of all. DNS over UDP has no connections. System calls, instructions and cycles are \
those of the server's processes per reply. Deferral: `napi_defer_hard_irqs` is 1, and \
`gro_flush_timeout` is 50 µs.

Not in the table: busy polling by socket options for servers with `AF_XDP`, because veth tells these \
sockets no NAPI id. Our `busy-poll` polls the queue through `io_uring` instead. The kernel's own sockets \
are told the id, so nginx, Knot DNS and NSD can busy-poll. IRQ suspension needs epoll, which our workers \
do not use.
";
/// Workloads of `bench instructions` with the work of the tables' servers, and the reply of each.
const COUNTED: [(&str, &str); 2] = [
    ("http-get-1k-memcopy", "a GET of 1 KB with memcopy"),
    ("dns-turnaround-100", "an answer by turnaround"),
];

/// A value of a cell. `None` if it was not measured.
type Value = fn(&Cell) -> Option<f64>;

/// Returns the cells of a row, which has the medians of all repeats of a load.
pub(super) fn line(repeats: &[&Cell]) -> Vec<String> {
    let first = repeats[0];
    let median = |value: Value, shown: fn(f64) -> String, absent: &str| {
        let spread = Spread::of(repeats.iter().filter_map(|cell| value(cell)));
        spread.map_or(absent.to_owned(), |spread| shown(spread.median))
    };
    let micros = |value: Value| median(value, |micros| thousands(micros.round()), "–");
    let event = |value: Value| median(value, digits, "unmeasured");
    // The values are numbers of sleeps for each reply.
    let per = |value: Value| median(value, replies, "none");
    vec![
        first.server.to_owned(),
        first.policy.to_owned(),
        first.percent.to_string(),
        median(
            |cell| Some(cell.load.rate),
            |rate| thousands(rate.round()),
            "–",
        ),
        median(
            |cell| Some(answered(cell)),
            |part| format!("{part:.1}"),
            "–",
        ),
        median(|cell| Some(cell.cpu_us.iter().sum()), digits, "–"),
        micros(|cell| Some(cell.load.latency_us[0])),
        micros(|cell| Some(cell.load.latency_us[1])),
        micros(|cell| Some(cell.load.latency_us[2])),
        per(|cell| Some(cell.sleeps[1] as f64 / cell.load.completed as f64)),
        per(|cell| Some(cell.sleeps[0] as f64 / cell.load.completed as f64)),
        median(slowest, digits, "–"),
        event(|cell| cell.events[0]),
        event(|cell| cell.events[1]),
        event(|cell| cell.events[2]),
    ]
}

/// Returns the percentage of requests that were answered.
fn answered(cell: &Cell) -> f64 {
    (cell.load.rate / cell.load.asked_rate.max(1.0) * 100.0).min(100.0)
}

/// Returns the highest p50 of a connection as a multiple of the p50 of all.
fn slowest(cell: &Cell) -> Option<f64> {
    let slowest = cell.load.slowest_p50_us?;
    Some(slowest / cell.load.latency_us[0].max(0.001))
}

/// Formats the number of replies for each sleep.
fn replies(sleeps_per_reply: f64) -> String {
    match 1.0 / sleeps_per_reply {
        replies if replies.is_finite() => digits(replies),
        _ => "none".to_owned(),
    }
}

/// Returns the rows of the cells that `is_here` selects, in the order in which they were measured first.
fn rows(findings: &Findings, is_here: impl Fn(&&Cell) -> bool) -> Vec<Vec<String>> {
    let key = |cell: &Cell| (cell.server, cell.policy, cell.percent);
    let mut rows: Vec<Vec<&Cell>> = Vec::new();
    for cell in findings.cells.iter().filter(is_here) {
        match rows.iter_mut().find(|row| key(row[0]) == key(cell)) {
            Some(row) => row.push(cell),
            None => rows.push(vec![cell]),
        }
    }
    rows.iter().map(|row| line(row)).collect()
}

/// Returns the page with the tables.
pub(super) fn page(findings: &Findings, counts: &Baseline) -> String {
    let mut text = "# Ways of waiting for packets\n\n".to_owned();
    for (name, value) in &findings.machine {
        let _ = writeln!(text, "- {name}: {value}");
    }
    let _ = writeln!(text, "\n{NOTES}");
    if findings.repeats > 1 {
        let repeats = findings.repeats;
        let _ = writeln!(
            text,
            "Values are medians of up to {repeats} interleaved repeats.\n"
        );
    }
    let mut inert: Vec<_> = (findings.inert.iter())
        .map(|cell| [cell.server, cell.policy])
        .collect();
    inert.dedup();
    for [server, policy] in inert {
        let _ = writeln!(
            text,
            "- inert: {server}, {policy}: it moves no work from the kernel's threads to the server"
        );
    }
    for what in &findings.missing {
        let _ = writeln!(text, "- missing: {what}");
    }
    for (title, is_web) in [
        ("Web: a file of 1 KB, 64 connections", true),
        ("DNS: 100 names", false),
    ] {
        let is_here = |cell: &&Cell| {
            let mut servers = SERVERS.iter();
            let served = servers.find(|(program, ..)| program.name == cell.server);
            served.is_some_and(|(_, serves, _)| (*serves == Serves::Files) == is_web)
        };
        let _ = writeln!(text, "\n## {title}\n");
        write_table(&mut text, &owned(HEADS), &rows(findings, is_here));
    }
    let of = |(workload, reply): (&str, &str)| {
        let count = counts.instructions.get(workload)?;
        Some(format!("{} for {reply}", thousands(count.round())))
    };
    let counted: Vec<_> = COUNTED.into_iter().filter_map(of).collect();
    let _ = writeln!(
        text,
        "\n`cargo xtask bench instructions` counts our own instructions, without the kernel's: {}.",
        counted.join(", and ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Load;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let mut cell = Cell {
            server: "nginx",
            policy: "block",
            percent: 50,
            load: Load {
                completed: 1_000,
                rate: 500.0,
                latency_us: [1.4, 2.6, 3_000.0, 4_000.0],
                asked_rate: 1_000.0,
                slowest_p50_us: Some(2.1),
                ..Load::default()
            },
            cpu_us: [3.0, 1.5],
            sleeps: [500, 0],
            ..Cell::default()
        };
        cell.events[0] = Some(2.0);
        let row = line(&[&cell]);
        assert_eq!(row.len(), HEADS.len());
        assert_eq!(row[4..8], ["50.0", "4.50", "1", "3"]);
        assert_eq!(
            row[9..],
            ["none", "2.00", "1.50", "2.00", "unmeasured", "unmeasured"]
        );
    }

    #[test]
    fn a_row_has_the_medians_of_its_repeats() {
        let cells = [(5.0, 10), (1.0, 0), (2.0, 5)].map(|(cpu_us, sleeps)| Cell {
            server: "nginx",
            load: Load {
                completed: 100,
                ..Load::default()
            },
            cpu_us: [cpu_us, 0.0],
            sleeps: [sleeps, 0],
            ..Cell::default()
        });
        let rows = rows(
            &Findings {
                cells: cells.to_vec(),
                ..Findings::default()
            },
            |_| true,
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(
            [&rows[0][5], &rows[0][9], &rows[0][10]],
            ["2.00", "none", "20.0"]
        );
    }

    #[test]
    fn web_and_dns_servers_have_tables_of_their_own() {
        let cell = |server| Cell {
            server,
            ..Cell::default()
        };
        let findings = Findings {
            repeats: 5,
            cells: vec![cell("NSD"), cell("nginx")],
            inert: vec![cell("NSD"); 2],
            missing: vec!["Knot DNS: skipped, as it is not installed".to_owned()],
            ..Findings::default()
        };
        let page = page(&findings, &Baseline::read().unwrap());
        let (web, dns) = page.split_once("## DNS").unwrap();
        assert!(web.contains("| nginx |") && !web.contains("| NSD |"));
        assert!(dns.contains("| NSD |") && !dns.contains("| nginx |"));
        assert_eq!(web.matches("- inert: NSD,").count(), 1);
        assert!(web.contains("- missing: Knot"));
        assert!(web.contains("medians of up to 5 interleaved repeats"));
        for (_, reply) in COUNTED {
            assert!(dns.contains(&format!(" for {reply}")), "{dns}");
        }
    }
}
