//! Cells of the matrix. A cell is an impaired path, and the files that the client fetches over it.

use serde::Serialize;
use serde_json::{Value, json};

/// Number of payload bytes in a full segment.
const SEGMENT: f64 = 1_448.0;
/// Length in bytes of the frame of a full segment.
const FRAME: u64 = 1_514;

/// Sizes of the served files in bytes.
#[rustfmt::skip]
pub(crate) const SIZES: [usize; 11] = [
    1_000, 30_000, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20,
];
/// Approximate duration of a fetch in seconds, which decides the file size.
const SECONDS: f64 = 2.0;
/// End of a cell's name if `--quick` measures the cell.
const QUICK: &str = " 100M 10ms";

/// A path without impairments: rate in Mb/s, round-trip time in ms, and length of the bottleneck
/// queue. The length is in tenths of the bandwidth-delay product.
#[derive(Clone, Copy, Debug)]
struct Path(u64, u64, u64);

const SHALLOW: u64 = 1;
const DEEP: u64 = 10;
const BLOATED: u64 = 40;

/// Paths on which all impairments are measured. Random loss is measured on more paths.
const PATHS: [Path; 3] = [
    Path(10, 50, DEEP),
    Path(100, 10, DEEP),
    Path(100, 150, DEEP),
];

/// A path with impairments, and the files that the client fetches over it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// Kind of impairment, which is the first part of the full name.
    pub(crate) group: String,
    /// Name within the group.
    pub(crate) name: String,
    /// Argument of `forward` for the path from the server to the client.
    pub(crate) down: Value,
    /// Argument of `forward` for the path from the client to the server.
    pub(crate) up: Value,
    pub(crate) rtt_ms: u64,
    /// Rate in Mb/s. 0 means unlimited.
    pub(crate) mbits: u64,
    /// Size of the file in bytes.
    pub(crate) size: usize,
    /// Number of simultaneous fetches, each on its own connection.
    pub(crate) at_once: usize,
    /// Number of consecutive fetches on new connections.
    pub(crate) in_turn: usize,
    /// Client's receive buffer in bytes, which is twice its window. 0 means the default.
    pub(crate) receive_buffer: usize,
}

impl Path {
    /// Returns the capacity of the bottleneck queue in frames.
    fn queue(self) -> u64 {
        let product = (self.0 * 1_000 * self.1 / 8 / FRAME).max(32);
        (product * self.2 / 10).max(8)
    }

    /// Returns the size of the largest file whose fetch should take at most about [`SECONDS`]. The
    /// estimated rate is that of CUBIC (RFC 9438, section 5.1) or Reno at this loss rate, whichever
    /// is higher. It is at most the path's rate.
    fn size(self, loss: f64) -> usize {
        let rtt = self.1 as f64 / 1_000.0;
        let link = self.0 as f64 * 1e6 / 8.0;
        let rate = if loss > 0.0 {
            let reno = 1.22 / loss.sqrt();
            let cubic = 1.054 * (rtt / loss).powf(0.75);
            // A high loss rate also causes timeouts, which lower the rate further.
            let timeouts = 1.0 / (1.0 + 5.0 * loss);
            link.min(reno.max(cubic) * SEGMENT / rtt * timeouts)
        } else {
            link
        };
        // In slow start, the window begins at 10 segments and doubles in each round trip.
        let rounds = (rate * rtt / (10.0 * SEGMENT)).max(1.0).log2() + 2.0;
        let bytes = rate * (SECONDS - rtt * rounds).max(SECONDS / 3.0);
        let mut sizes = SIZES[2..].iter().rev();
        let fit = sizes.find(|&&size| size as f64 <= bytes);
        *fit.unwrap_or(&SIZES[2])
    }

    /// Makes a cell on this path. `impairment` has arguments of `forward` for the path down, except
    /// `ack_loss`, which is for the path up. `loss` is the approximate loss rate.
    fn cell(self, group: &str, what: &str, impairment: &Value, loss: f64) -> Cell {
        let Self(mbits, rtt_ms, buffer) = self;
        let mut up = json!({"rate": mbits * 1_000_000, "delay_us": rtt_ms * 500});
        let mut down = up.clone();
        down["queue"] = self.queue().into();
        let has = |field: &str| impairment.get(field).is_some();
        let direction = if has("ack_loss") { &mut up } else { &mut down };
        for (field, value) in impairment.as_object().into_iter().flatten() {
            direction[field] = value.clone();
        }
        // The file must be large enough for several bursts.
        let min_size = if has("burst") { 1 << 20 } else { 0 };
        let rate = match mbits {
            1_000 => "1G".to_owned(),
            mbits => format!("{mbits}M"),
        };
        let buffer = match buffer {
            SHALLOW => " shallow",
            BLOATED => " bloated",
            _ => "",
        };
        Cell {
            group: group.to_owned(),
            name: format!("{what} {rate} {rtt_ms}ms{buffer}"),
            down,
            up,
            rtt_ms,
            mbits,
            size: self.size(loss).max(min_size),
            at_once: 1,
            in_turn: 1,
            receive_buffer: 0,
        }
    }

    /// Makes a cell with random loss.
    fn lossy(self, group: &str, loss: f64) -> Cell {
        let what = format!("{}%", loss * 100.0);
        self.cell(group, &what, &json!({"loss": loss}), loss)
    }
}

impl Cell {
    /// Returns the group and the name.
    pub(crate) fn full_name(&self) -> String {
        format!("{}, {}", self.group, self.name)
    }

    /// Returns true if the client asks for ECN.
    pub(crate) fn ecn(&self) -> bool {
        self.down.get("mark").is_some()
    }

    /// Returns true if the servers must restart before each seed, because they remember a path MTU.
    pub(crate) fn restarts(&self) -> bool {
        self.down.get("mtu").is_some()
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.name.ends_with(QUICK) && self.receive_buffer == 0
    }
}

/// Returns a cell on a path without any limit, which measures the rig itself.
pub(crate) fn limit() -> Cell {
    let mut cell = Path(0, 0, DEEP).cell("rig", "limit", &json!({}), 0.0);
    "limit".clone_into(&mut cell.name);
    (cell.down, cell.up) = (json!({}), json!({}));
    cell.size = SIZES[SIZES.len() - 1];
    cell
}

/// Returns all cells, in the order of the page.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for mbits in [10, 100, 1_000] {
        // At 1 Gb/s and with a longer RTT, the path could hold a whole file.
        let longest = if mbits == 1_000 { 50 } else { 300 };
        for rtt_ms in [1, 10, 50, 150, 300] {
            let path = Path(mbits, rtt_ms, DEEP);
            let losses = [0.0, 0.001, 0.01, 0.03, 0.1].iter();
            let cell = |loss: &f64| path.lossy("random loss", *loss);
            cells.extend(losses.map(cell).filter(|_| rtt_ms <= longest));
        }
    }
    for path in PATHS {
        for (group, what, impairment, loss) in impairments(path.1) {
            cells.push(path.cell(group, what, &impairment, loss));
        }
        for buffer in [SHALLOW, BLOATED] {
            let path = Path(path.0, path.1, buffer);
            cells.extend([0.0, 0.01].map(|loss| path.lossy("buffers", loss)));
        }
    }
    for rtt_ms in [10, 50, 150] {
        for loss in [0.0, 0.01, 0.03, 0.1] {
            cells.push(Cell {
                size: SIZES[1],
                in_turn: 10,
                ..Path(100, rtt_ms, DEEP).lossy("30 KB ten times", loss)
            });
        }
    }
    for buffer in [SHALLOW, DEEP] {
        for loss in [0.0, 0.01] {
            cells.push(Cell {
                at_once: 8,
                size: 2 << 20,
                ..Path(100, 50, buffer).lossy("eight at once", loss)
            });
        }
    }
    // The advertised window limits these cells to a few segments per round trip.
    for kb in [4, 8, 16] {
        for (rtt_ms, size) in [(1, 512 << 10), (10, 128 << 10), (50, 32 << 10)] {
            for loss in [0.0, 0.01] {
                let group = format!("{kb} KB window");
                cells.push(Cell {
                    size: size * kb,
                    receive_buffer: kb << 11,
                    ..Path(100, rtt_ms, DEEP).lossy(&group, loss)
                });
            }
        }
    }
    cells
}

/// Returns impairments: group, name, arguments of `forward`, and approximate loss rate.
fn impairments(rtt_ms: u64) -> Vec<(&'static str, &'static str, Value, f64)> {
    // A segment that is late by more than a round trip appears to be lost.
    let (quarter, longer) = (rtt_ms * 250, rtt_ms * 1_500);
    let reorder = |part: f64, hold_us: u64| json!({"reorder": part, "hold_us": hold_us});
    let mut reorder_and_lose = reorder(0.1, quarter);
    reorder_and_lose["loss"] = 0.01.into();
    // Congestion control counts a burst as one event, so the approximate loss rate is low.
    let burst = |part: f64, len: u64| json!({"burst": part, "burst_len": len});
    #[rustfmt::skip]
    let all = vec![
        ("every n-th lost", "every 100th", json!({"every": 100}), 0.01),
        ("every n-th lost", "every 20th", json!({"every": 20}), 0.05),
        ("every n-th lost", "every 7th", json!({"every": 7}), 0.14),
        ("bursts", "of 2", burst(0.01, 2), 0.005),
        ("bursts", "of 10", burst(0.004, 10), 0.005),
        ("bursts", "of 50", burst(0.002, 50), 0.005),
        ("reordering", "1% by 1/4 RTT", reorder(0.01, quarter), 0.0),
        ("reordering", "10% by 1/4 RTT", reorder(0.1, quarter), 0.0),
        ("reordering", "2% by 1.5 RTT", reorder(0.02, longer), 0.02),
        ("reordering", "10% by 1/4 RTT, 1% lost", reorder_and_lose, 0.01),
        ("duplication", "1%", json!({"duplicate": 0.01}), 0.0),
        ("duplication", "10%", json!({"duplicate": 0.1}), 0.0),
        ("duplication", "10%, 1% lost", json!({"duplicate": 0.1, "loss": 0.01}), 0.01),
        ("lost ACKs", "10%", json!({"ack_loss": 0.1}), 0.0),
        ("lost ACKs", "50%", json!({"ack_loss": 0.5}), 0.0),
        ("ECN marks", "0.1%", json!({"mark": 0.001}), 0.001),
        ("ECN marks", "1%", json!({"mark": 0.01}), 0.01),
        ("path MTU", "1400 with ICMP", json!({"mtu": 1_400, "icmp": true}), 0.0),
        ("path MTU", "1280 black hole", json!({"mtu": 1_280}), 0.0),
    ];
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cell_names_are_unique_and_their_files_exist() {
        let cells = all();
        let names: BTreeSet<_> = cells.iter().map(Cell::full_name).collect();
        assert_eq!((names.len(), cells.len()), (168, 168));
        assert_eq!(cells.iter().filter(|cell| cell.is_quick()).count(), 28);
        assert!(cells.iter().all(|cell| SIZES.contains(&cell.size)));
        assert!(names.contains("random loss, 0.1% 10M 50ms"));
    }

    #[test]
    fn files_are_small_on_lossy_and_long_paths() {
        let path = Path(100, 10, DEEP);
        assert!(path.size(0.0) >= 8 << 20);
        assert!(path.size(0.1) < path.size(0.01));
        assert!(Path(100, 300, DEEP).size(0.01) < path.size(0.01));
        assert_eq!(Path(10, 300, DEEP).size(0.1), SIZES[2]);
    }

    #[test]
    fn queue_sizes_are_fractions_of_the_bandwidth_delay_product() {
        for (path, queues) in [((100, 50), [41, 412, 1_648]), ((10, 1), [8, 32, 128])] {
            let queue = |part| Path(path.0, path.1, part).queue();
            assert_eq!([SHALLOW, DEEP, BLOATED].map(queue), queues);
        }
    }

    #[test]
    fn an_impairment_applies_to_the_direction_that_it_concerns() {
        let cells = all();
        let find = |name: &str| cells.iter().find(|cell| cell.full_name() == name).unwrap();
        let acks = find("lost ACKs, 10% 10M 50ms");
        assert_eq!(
            (&acks.up["ack_loss"], acks.down.get("ack_loss")),
            (&json!(0.1), None)
        );
        let marks = find("ECN marks, 1% 100M 10ms");
        assert!(marks.ecn() && marks.down["mark"] == json!(0.01));
        assert!(find("path MTU, 1280 black hole 100M 10ms").restarts());
    }
}
