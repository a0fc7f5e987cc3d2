//! The table of ways of waiting.

use std::fmt::Write as _;

use super::Cell;
use crate::bench::report::{digits, thousands};
use crate::markdown::{owned, write_table};

const HEADS: &[&str] = &[
    "server",
    "waiting",
    "load, %",
    "replies/s",
    "CPU µs",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "replies per interrupt",
    "replies per wake-up",
    "slow connections",
    "system calls",
    "instructions",
    "cycles",
];

/// What a reader must know about the columns.
const NOTES: &str = "\
CPU is the time of the server's core per reply, with the kernel's work. Latency counts from the \
time at which a request was due. An interrupt is a wake-up of the kernel's receiving thread. Slow \
connections: the rate of the slowest tenth, as a part of the median. System calls, instructions \
and cycles are those of the server's processes per reply.

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
    let slow = cell.load.connection_rate;
    let slow = slow.filter(|[_, median]| *median > 0.0);
    let event = |at: usize| cell.events[at].map_or("unmeasured".to_owned(), digits);
    vec![
        cell.server.to_owned(),
        cell.policy.to_owned(),
        cell.percent.to_string(),
        thousands(cell.load.rate.round()),
        digits(cell.cost.core_us),
        p50,
        p99,
        p999,
        per(cell.sleeps[1]),
        per(cell.sleeps[0]),
        slow.map_or("–".to_owned(), |[tenth, median]| digits(tenth / median)),
        event(0),
        event(1),
        event(2),
    ]
}

/// Returns the page with the table. `missing` says what could not be measured, and why.
pub(super) fn page(cells: &[Cell], machine: &[(String, String)], missing: &[String]) -> String {
    let mut text = "# Ways of waiting for packets\n\n".to_owned();
    for (name, value) in machine {
        let _ = writeln!(text, "- {name}: {value}");
    }
    let _ = writeln!(text, "\n{NOTES}");
    let rows: Vec<_> = cells.iter().map(line).collect();
    write_table(&mut text, &owned(HEADS), &rows);
    for what in missing {
        let _ = writeln!(text, "- missing: {what}");
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
            server: "a",
            policy: "block",
            percent: 50,
            load: Load {
                completed: 1_000,
                rate: 500.0,
                latency_us: [1.4, 2.6, 3_000.0, 4_000.0],
                connection_rate: Some([9.0, 10.0]),
                ..Load::default()
            },
            sleeps: [500, 0],
            ..Cell::default()
        };
        cell.events[0] = Some(2.0);
        let row = line(&cell);
        assert_eq!(row.len(), HEADS.len());
        assert_eq!(row[5..8], ["1", "3", "3,000"]);
        assert_eq!(
            row[8..],
            ["none", "2.00", "0.90", "2.00", "unmeasured", "unmeasured"]
        );
        let page = page(&[cell], &[], &["b: it is not installed".to_owned()]);
        assert!(page.contains("| a | block | 50 |") && page.contains("- missing: b:"));
    }
}
