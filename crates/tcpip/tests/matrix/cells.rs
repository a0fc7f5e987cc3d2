//! The cells.

use std::time::Duration;

use crate::cell::Cell;

const M: u64 = 1_000_000;
const KB: usize = 1_000;
const MB: usize = 1_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The cells of the ordinary run.
pub(crate) fn sample() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |cell: Cell| cells.push(cell);
    for (loss, name) in [
        (0.0, "0"),
        (0.001, "0.1"),
        (0.01, "1"),
        (0.03, "3"),
        (0.1, "10"),
    ] {
        for (rate, round_trip) in [(10, 20), (100, 20), (100, 100)] {
            let name = format!("loss/{name}%/{rate}M-{round_trip}ms");
            let len = if loss > 0.02 { 500 * KB } else { 2 * MB };
            add(Cell::new(&name, rate * M, ms(round_trip), len).loss(loss));
        }
    }
    for rate in [10, 100] {
        let name = format!("smoltcp/1%/{rate}M-20ms");
        add(Cell::new(&name, rate * M, ms(20), MB)
            .loss(0.01)
            .smoltcp(65_535));
    }
    add(Cell::new("rate/1M-20ms", M, ms(20), 500 * KB));
    add(Cell::new("rate/1000M-20ms", 1000 * M, ms(20), 20 * MB));
    add(Cell::new("rate/10000M-1ms", 10_000 * M, ms(1), 20 * MB));
    cells
}
