//! The cells of the matrix: what the network does, and what is fetched.

use serde::{Deserialize, Serialize};

/// Bytes of payload in a full segment, and of its frame.
const SEGMENT: f64 = 1_448.0;
const FRAME: u64 = 1_514;

/// Sizes of the files that are served.
pub(crate) const SIZES: [usize; 10] = [
    30_000,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
];
/// What a short fetch asks for.
const SHORT: usize = SIZES[0];

/// The frames that wait before the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Buffer {
    /// A tenth of what the path holds.
    Shallow,
    /// As much as the path holds.
    Deep,
    /// Four times that.
    Bloated,
}

/// A path without any harm.
#[derive(Clone, Copy, Debug)]
struct Path {
    mbits: u64,
    rtt_ms: u64,
    buffer: Buffer,
}

/// One cell: a network, and what is fetched through it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The kind of harm, a heading of the table.
    pub(crate) group: String,
    /// All that tells it from others.
    pub(crate) name: String,
    /// In the forwarder's words.
    pub(crate) down: String,
    pub(crate) up: String,
    pub(crate) rtt_ms: u64,
    /// Megabits per second; 0 without a limit.
    pub(crate) mbits: u64,
    /// Bytes of the file.
    pub(crate) size: usize,
    /// Fetches at the same time, on a connection each.
    pub(crate) at_once: usize,
    /// Fetches one after the other.
    pub(crate) in_turn: usize,
    /// The client asks for ECN.
    pub(crate) ecn: bool,
    /// Bytes of the client's receive buffer, half of which is its window; 0:
    /// what the kernel finds right.
    #[serde(default)]
    pub(crate) receive_buffer: usize,
    /// Servers that remember nothing, such as a path's MTU.
    pub(crate) fresh: bool,
    /// It belongs to the short matrix.
    pub(crate) quick: bool,
}

impl Path {
    const fn new(mbits: u64, rtt_ms: u64) -> Self {
        Self {
            mbits,
            rtt_ms,
            buffer: Buffer::Deep,
        }
    }

    const fn with(self, buffer: Buffer) -> Self {
        Self { buffer, ..self }
    }

    /// Frames that the path holds.
    fn holds(&self) -> u64 {
        self.mbits * 1_000 * self.rtt_ms / 8 / FRAME
    }

    fn queue(&self) -> u64 {
        match self.buffer {
            Buffer::Shallow => (self.holds() / 10).max(8),
            Buffer::Deep => self.holds().max(32),
            Buffer::Bloated => (4 * self.holds()).max(128),
        }
    }

    fn name(&self) -> String {
        let rate = match self.mbits {
            1_000 => "1G".to_owned(),
            mbits => format!("{mbits}M"),
        };
        let buffer = match self.buffer {
            Buffer::Shallow => " shallow",
            Buffer::Deep => "",
            Buffer::Bloated => " bloated",
        };
        format!("{rate} {}ms{buffer}", self.rtt_ms)
    }

    /// The largest file that takes about `seconds` when segments are lost
    /// with this probability: at the path's rate or, if that is less, at what
    /// CUBIC gets (RFC 9438, section 5.1) or Reno.
    fn size(&self, loss: f64, seconds: f64) -> usize {
        let rtt = self.rtt_ms as f64 / 1_000.0;
        let link = self.mbits as f64 * 1e6 / 8.0;
        let rate = if loss > 0.0 {
            let reno = 1.22 / loss.sqrt();
            let cubic = 1.054 * (rtt / loss).powf(0.75);
            // Much loss costs timeouts as well.
            let timeouts = 1.0 / (1.0 + 5.0 * loss);
            link.min(reno.max(cubic) * SEGMENT / rtt * timeouts)
        } else {
            link
        };
        // The window doubles from 10 segments in each round trip.
        let rounds = (rate * rtt / (10.0 * SEGMENT)).max(1.0).log2() + 2.0;
        let bytes = rate * (seconds - rtt * rounds).max(seconds / 3.0);
        let sizes = SIZES[1..].iter().rev();
        let fit = sizes.copied().find(|&size| size as f64 <= bytes);
        fit.unwrap_or(SIZES[1])
    }

    /// A cell on this path: `harm` are more words of the way down, `loss` is
    /// about as much as is lost.
    fn cell(&self, group: &str, what: &str, harm: &str, loss: f64) -> Cell {
        let delay_us = self.rtt_ms * 500;
        let common = format!("rate={}M,delay={delay_us}us", self.mbits);
        let name = format!("{what} {}", self.name());
        Cell {
            group: group.to_owned(),
            name: name.trim().to_owned(),
            down: format!("{common},queue={},{harm}", self.queue()),
            up: common,
            rtt_ms: self.rtt_ms,
            mbits: self.mbits,
            size: self.size(loss, SECONDS),
            at_once: 1,
            in_turn: 1,
            ecn: false,
            receive_buffer: 0,
            fresh: false,
            quick: false,
        }
    }
}

/// A fetch takes about so long.
const SECONDS: f64 = 2.0;

/// Paths on which losses in patterns, reordering and the like are tried.
const SOME: [Path; 3] = [Path::new(10, 50), Path::new(100, 10), Path::new(100, 150)];

impl Cell {
    fn quick(self) -> Self {
        Self {
            quick: true,
            ..self
        }
    }

    fn short(self) -> Self {
        Self {
            size: SHORT,
            in_turn: 10,
            ..self
        }
    }

    /// A sender that is silent for so long has waited for a timer: shorter
    /// than the least RTO of Linux, longer than any burst of losses.
    pub(crate) fn silence_ms(&self) -> u64 {
        self.rtt_ms + 150
    }
}

/// The path without any limit: what the rig itself can do.
pub(crate) fn limit() -> Cell {
    Cell {
        group: "rig".to_owned(),
        name: "the rig's limit".to_owned(),
        down: String::new(),
        up: String::new(),
        rtt_ms: 0,
        mbits: 0,
        size: SIZES[SIZES.len() - 1],
        at_once: 1,
        in_turn: 1,
        ecn: false,
        receive_buffer: 0,
        fresh: false,
        quick: true,
    }
}

/// Every cell, in the order of the table.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    random_loss(&mut cells);
    patterns_of_loss(&mut cells);
    reordering(&mut cells);
    duplication(&mut cells);
    acks_and_marks(&mut cells);
    buffers(&mut cells);
    short_and_many(&mut cells);
    small_windows(&mut cells);
    path_mtu(&mut cells);
    cells
}

fn random_loss(cells: &mut Vec<Cell>) {
    for mbits in [10, 100, 1_000] {
        // At 1 Gb/s longer paths hold more than a fetch has.
        let longest = if mbits == 1_000 { 50 } else { 300 };
        let delays = [1, 10, 50, 150, 300];
        for rtt_ms in delays.into_iter().filter(|&rtt_ms| rtt_ms <= longest) {
            for (loss, percent) in [
                (0.0, "0%"),
                (0.001, "0.1%"),
                (0.01, "1%"),
                (0.03, "3%"),
                (0.1, "10%"),
            ] {
                let path = Path::new(mbits, rtt_ms);
                let mut cell = path.cell("random loss", percent, &format!("loss={loss}"), loss);
                let usual = mbits == 100 && rtt_ms == 10;
                cell.quick = usual || (rtt_ms, percent) == (150, "1%");
                cells.push(cell);
            }
        }
    }
}

fn patterns_of_loss(cells: &mut Vec<Cell>) {
    for path in SOME {
        for (n, loss) in [(100, 0.01), (20, 0.05), (7, 0.14)] {
            let what = format!("every {n}th");
            let mut cell = path.cell("every n-th lost", &what, &format!("every={n}"), loss);
            cell.quick = path.rtt_ms == 50 && n == 20;
            cells.push(cell);
        }
    }
    for path in SOME {
        for (words, what) in [
            ("0.01:0.5", "of 2"),
            ("0.004:0.1", "of 10"),
            ("0.002:0.02", "of 50"),
        ] {
            // Losses of a burst are one event to a congestion control.
            let mut cell = path.cell("bursts", what, &format!("burst={words}"), 0.005);
            // Long enough to meet some.
            cell.size = cell.size.max(1 << 20);
            cell.quick = path.rtt_ms == 10 && what == "of 10";
            cells.push(cell);
        }
    }
}

fn reordering(cells: &mut Vec<Cell>) {
    for path in SOME {
        let (quarter, more) = (path.rtt_ms * 250, path.rtt_ms * 1_500);
        for (reorder, hold, what, as_lost) in [
            (0.01, quarter, "1% by 1/4 RTT", 0.0),
            (0.1, quarter, "10% by 1/4 RTT", 0.0),
            // So late that a sender may take it for lost.
            (0.02, more, "2% by 1.5 RTT", 0.02),
        ] {
            let harm = format!("reorder={reorder},hold={hold}us");
            let mut cell = path.cell("reordering", what, &harm, as_lost);
            cell.quick = path.rtt_ms == 10 && what.starts_with("1%");
            cells.push(cell);
        }
        let harm = format!("reorder=0.1,hold={quarter}us,loss=0.01");
        let mut cell = path.cell("reordering", "10% by 1/4 RTT, 1% lost", &harm, 0.01);
        cell.quick = path.rtt_ms == 10;
        cells.push(cell);
    }
}

fn duplication(cells: &mut Vec<Cell>) {
    for path in SOME {
        for (harm, what, loss) in [
            ("duplicate=0.01", "1%", 0.0),
            ("duplicate=0.1", "10%", 0.0),
            ("duplicate=0.1,loss=0.01", "10%, 1% lost", 0.01),
        ] {
            let mut cell = path.cell("duplication", what, harm, loss);
            cell.quick = path.rtt_ms == 50 && loss > 0.0;
            cells.push(cell);
        }
    }
}

fn acks_and_marks(cells: &mut Vec<Cell>) {
    for path in SOME {
        for (harm, what) in [(0.1, "10%"), (0.5, "50%")] {
            let mut cell = path.cell("lost ACKs", what, "", 0.0);
            cell.up = format!("{},ack-loss={harm}", cell.up);
            cell.quick = path.rtt_ms == 50 && what == "50%";
            cells.push(cell);
        }
    }
    for path in SOME {
        for (harm, what) in [(0.001, "0.1%"), (0.01, "1%")] {
            let mut cell = path.cell("ECN marks", what, &format!("mark={harm}"), harm);
            cell.ecn = true;
            cell.quick = path.rtt_ms == 10 && what == "1%";
            cells.push(cell);
        }
    }
}

fn buffers(cells: &mut Vec<Cell>) {
    for path in SOME {
        for buffer in [Buffer::Shallow, Buffer::Bloated] {
            let path = path.with(buffer);
            for (harm, what, loss) in [("", "0%", 0.0), ("loss=0.01", "1%", 0.01)] {
                let mut cell = path.cell("buffers", what, harm, loss);
                cell.quick = path.rtt_ms == 10 && buffer == Buffer::Shallow && loss == 0.0;
                cells.push(cell);
            }
        }
    }
}

fn short_and_many(cells: &mut Vec<Cell>) {
    for path in [Path::new(100, 10), Path::new(100, 50), Path::new(100, 150)] {
        for (loss, what) in [(0.0, "0%"), (0.01, "1%"), (0.03, "3%"), (0.1, "10%")] {
            let harm = format!("loss={loss}");
            let cell = path.cell("30 KB, ten in turn", what, &harm, loss).short();
            cells.push(if path.rtt_ms == 10 && loss >= 0.03 {
                cell.quick()
            } else {
                cell
            });
        }
    }
    for buffer in [Buffer::Shallow, Buffer::Deep] {
        let path = Path::new(100, 50).with(buffer);
        for (harm, what) in [("", "0%"), ("loss=0.01", "1%")] {
            let mut cell = path.cell("eight at once", what, harm, 0.0);
            cell.at_once = 8;
            cell.size = 2 << 20;
            cells.push(cell);
        }
    }
}

/// The peer's window limits these, to a few segments in each round trip.
fn small_windows(cells: &mut Vec<Cell>) {
    for (kb, factor) in [(4, 1), (8, 2), (16, 4)] {
        for (rtt_ms, size) in [(1, 2 << 20), (10, 512 << 10), (50, 128 << 10)] {
            let path = Path::new(100, rtt_ms);
            for (loss, what) in [(0.0, "0%"), (0.01, "1%")] {
                let harm = format!("loss={loss}");
                let mut cell = path.cell(&format!("{kb} KB window"), what, &harm, loss);
                cell.size = size * factor;
                cell.receive_buffer = kb << 11;
                cells.push(cell);
            }
        }
    }
}

fn path_mtu(cells: &mut Vec<Cell>) {
    for path in SOME {
        for (harm, what) in [
            ("mtu=1400,answer=yes", "1400, told by ICMP"),
            ("mtu=1280", "1280, in silence"),
        ] {
            let mut cell = path.cell("path MTU", what, harm, 0.0);
            cell.fresh = true;
            cell.quick = path.rtt_ms == 10;
            cells.push(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cells_are_all_different() {
        let cells = all();
        let names: BTreeSet<_> = cells.iter().map(|cell| (&cell.group, &cell.name)).collect();
        assert_eq!(names.len(), cells.len());
        let quick = cells.iter().filter(|cell| cell.quick).count();
        assert!((10..=24).contains(&quick), "{quick} quick cells");
        assert!(cells.iter().all(|cell| SIZES.contains(&cell.size)));
    }

    #[test]
    fn much_loss_and_long_paths_have_small_files() {
        let path = Path::new(100, 10);
        assert!(path.size(0.0, 2.0) >= 8 << 20);
        assert!(path.size(0.1, 2.0) < path.size(0.01, 2.0));
        assert!(Path::new(100, 300).size(0.01, 2.0) < path.size(0.01, 2.0));
        assert_eq!(Path::new(10, 300).size(0.1, 2.0), SIZES[1]);
    }

    #[test]
    fn buffers_are_those_of_their_paths() {
        let path = Path::new(100, 50);
        assert_eq!(path.holds(), 412);
        let queues = [Buffer::Shallow, Buffer::Deep, Buffer::Bloated]
            .map(|buffer| path.with(buffer).queue());
        assert_eq!(queues, [41, 412, 1_648]);
    }
}
