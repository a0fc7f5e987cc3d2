//! The table of ways of waiting.

use std::fmt::Write as _;

use super::{Cell, Findings, SERVERS};
use crate::bench::report::{digits, thousands};
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
NAPI on the core of its end, and no offloads but GRO.

The load is a share of the server's rate in a closed loop with its first way of waiting. CPU is \
the time per reply of the server's threads and of the kernel's threads that receive for it. \
Latency counts from the time at which a request was due; requests without an answer have none. An \
interrupt is a wake-up of the kernel's receiving thread. Slowest connection: the highest p50 of a \
connection, as a multiple of the p50 of all. System calls, instructions and cycles are those of \
the server's processes per reply. Deferral: `napi_defer_hard_irqs` is 1, and `gro_flush_timeout` \
is 50 µs.

Not in the table, because veth cannot do it: busy polling by socket options, as its `AF_XDP` \
sockets are told no NAPI id. Our `busy-poll` polls the queue through `io_uring` instead. IRQ \
suspension works only with epoll and such an id.
";

/// Returns the cells of a row.
pub(super) fn line(cell: &Cell) -> Vec<String> {
    let per = |count: u64| match count {
        0 => "none".to_owned(),
        count => digits(cell.load.completed as f64 / count as f64),
    };
    let [p50, p99, p999, _] = cell.load.latency_us.map(|micros| thousands(micros.round()));
    let slowest = cell.load.slowest_p50_us;
    let slowest = slowest.map(|slowest| slowest / cell.load.latency_us[0].max(0.001));
    let answered = cell.load.rate / cell.load.asked_rate.max(1.0) * 100.0;
    let event = |at: usize| cell.events[at].map_or("unmeasured".to_owned(), digits);
    vec![
        cell.server.to_owned(),
        cell.policy.to_owned(),
        cell.percent.to_string(),
        thousands(cell.load.rate.round()),
        format!("{:.1}", answered.min(100.0)),
        digits(cell.cpu_us.iter().sum()),
        p50,
        p99,
        p999,
        per(cell.sleeps[1]),
        per(cell.sleeps[0]),
        slowest.map_or("–".to_owned(), digits),
        event(0),
        event(1),
        event(2),
    ]
}

/// Returns the page with the tables.
pub(super) fn page(findings: &Findings) -> String {
    let mut text = "# Ways of waiting for packets\n\n".to_owned();
    for (name, value) in &findings.machine {
        let _ = writeln!(text, "- {name}: {value}");
    }
    let _ = writeln!(text, "\n{NOTES}");
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
        let rows: Vec<_> = findings.cells.iter().filter(is_here).map(line).collect();
        let _ = writeln!(text, "\n## {title}\n");
        write_table(&mut text, &owned(HEADS), &rows);
    }
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
        let row = line(&cell);
        assert_eq!(row.len(), HEADS.len());
        assert_eq!(row[4..8], ["50.0", "4.50", "1", "3"]);
        assert_eq!(
            row[9..],
            ["none", "2.00", "1.50", "2.00", "unmeasured", "unmeasured"]
        );
    }

    #[test]
    fn web_and_dns_servers_have_tables_of_their_own() {
        let cell = |server| Cell {
            server,
            ..Cell::default()
        };
        let page = page(&Findings {
            cells: vec![cell("NSD"), cell("nginx")],
            inert: vec![cell("NSD"); 2],
            missing: vec!["Knot DNS: skipped, as it is not installed".to_owned()],
            ..Findings::default()
        });
        let (web, dns) = page.split_once("## DNS").unwrap();
        assert!(web.contains("| nginx |") && !web.contains("| NSD |"));
        assert!(dns.contains("| NSD |") && !dns.contains("| nginx |"));
        assert_eq!(web.matches("- inert: NSD,").count(), 1);
        assert!(web.contains("- missing: Knot"));
    }
}
