//! Everything that is done to frames between the two sockets.

use std::io::{self, Write};
use std::time::Duration;

use nmio::Instant;
use serde::Serialize;

use super::Direction;
use super::config::PathConfig;
use super::fate::Fate;
use super::flows::{Flow, Flows};
use super::ledger::{Place, Sent};
use super::path::{Outcome, Path, PathCounters};
use super::segment::{Segment, flags, ip_packet};
use super::too_big;

/// What a run is told.
#[derive(Clone, Copy, Debug)]
pub struct RelayConfig {
    /// What happens from the server to the client.
    pub down: PathConfig,
    /// What happens from the client to the server.
    pub up: PathConfig,
    /// The same seed gives the same fates.
    pub seed: u64,
    /// Silences of a sender are counted from this on.
    pub silence: Duration,
}

/// One direction's part of the [`Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionReport {
    /// What the path did.
    pub path: PathCounters,
    /// Frames that were too large for the path.
    pub too_big: u64,
    /// What the senders did.
    pub sent: Sent,
    /// Frames that came out of the path.
    pub forwarded: u64,
    /// Frames that came out of the path more than 1 ms after their time.
    pub late: u64,
    /// The latest of these, in µs.
    pub latest_us: u64,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// From the server to the client.
    pub down: DirectionReport,
    /// From the client to the server.
    pub up: DirectionReport,
    /// Connections.
    pub connections: u64,
    /// Segments that passed unharmed because there were too many connections.
    pub unknown: u64,
    /// Segments that passed unharmed because their connections had begun
    /// before the run.
    pub strays: u64,
}

/// A frame is late from this on.
const LATE: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Way {
    path: Path,
    too_big: u64,
    forwarded: u64,
    late: u64,
    latest: Duration,
}

/// The way between client and server, on any clock: frames are given to
/// [`handle_frame`](Relay::handle_frame), and are taken with
/// [`poll_frame`](Relay::poll_frame) when [`next_arrival`](Relay::next_arrival)
/// has come.
pub struct Relay {
    ways: [Way; 2],
    flows: Flows,
    trace: Option<Box<dyn Write>>,
}

impl Relay {
    /// An empty way. What passes is told to `trace`, a line a segment.
    pub fn new(config: &RelayConfig, trace: Option<Box<dyn Write>>) -> Self {
        let way = |config| Way {
            path: Path::new(config),
            too_big: 0,
            forwarded: 0,
            late: 0,
            latest: Duration::ZERO,
        };
        Self {
            ways: [way(&config.down), way(&config.up)],
            flows: Flows::new(config.seed, config.silence),
            trace,
        }
    }

    /// Sends a frame on its way at `now`.
    pub fn handle_frame(&mut self, direction: Direction, frame: &[u8], now: Instant) {
        let config = *self.ways[direction.index()].path.config();
        let segment = Segment::parse(frame);
        let mut flow = segment
            .as_ref()
            .and_then(|segment| Some((segment, self.flows.find(segment, direction, now)?)));
        let place = flow.as_mut().map(|(segment, flow)| {
            if segment.has(flags::ACK) {
                let others = &mut flow.half(direction.opposite()).ledger;
                others.handle_ack(segment.ack);
            }
            flow.half(direction).ledger.handle_sent(segment, now)
        });
        let fate = flow.as_mut().map_or(Fate::default(), |(segment, flow)| {
            let draws = &mut flow.half(direction).draws;
            if segment.len > 0 {
                draws.next_payload(&config, now)
            } else if segment.is_plain_ack() {
                draws.next_ack(&config)
            } else {
                Fate::default()
            }
        });
        let too_big = config.mtu != 0
            && ip_packet(frame).is_some_and(|(_, packet)| packet.len() > config.mtu);
        let outcome = if too_big {
            self.ways[direction.index()].too_big += 1;
            if let Some(answer) = too_big::answer(frame, config.mtu).filter(|_| config.answer) {
                let back = &mut self.ways[direction.opposite().index()].path;
                back.offer(now, &answer, Fate::default());
            }
            None
        } else {
            Some(self.ways[direction.index()].path.offer(now, frame, fate))
        };
        if let (Some((segment, flow)), Some(place)) = (flow, place) {
            let passed = outcome.is_some_and(Outcome::passed);
            flow.half(direction).ledger.handle_outcome(place, passed);
            if let Some(trace) = &mut self.trace {
                // A trace that cannot be written is a trace that ends.
                let written = write_trace(trace, flow, direction, segment, place, outcome, now);
                if written.is_err() {
                    self.trace = None;
                }
            }
        }
    }

    /// When the next frame comes out in either direction.
    pub fn next_arrival(&self) -> Option<Instant> {
        let next = self.ways.iter().filter_map(|way| way.path.next_arrival());
        next.min()
    }

    /// The next frame that has come out by `now`. Give its buffer back by
    /// [`recycle`](Relay::recycle).
    pub fn poll_frame(&mut self, direction: Direction, now: Instant) -> Option<Vec<u8>> {
        let way = &mut self.ways[direction.index()];
        let (at, frame) = way.path.pop_arrived(now)?;
        let late = now.since(at);
        way.forwarded += 1;
        way.late += u64::from(late >= LATE);
        way.latest = way.latest.max(late);
        Some(frame)
    }

    /// Takes a frame's buffer back.
    pub fn recycle(&mut self, direction: Direction, buffer: Vec<u8>) {
        self.ways[direction.index()].path.recycle(buffer);
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        let of = |direction: Direction| {
            let way = &self.ways[direction.index()];
            DirectionReport {
                path: way.path.counters(),
                too_big: way.too_big,
                sent: self.flows.sent(direction),
                forwarded: way.forwarded,
                late: way.late,
                latest_us: way.latest.as_micros() as u64,
            }
        };
        Report {
            down: of(Direction::Down),
            up: of(Direction::Up),
            connections: self.flows.begun(),
            unknown: self.flows.unknown(),
            strays: self.flows.strays(),
        }
    }
}

/// Writes a line for a segment.
fn write_trace(
    trace: &mut dyn Write,
    flow: &mut Flow,
    direction: Direction,
    segment: &Segment,
    place: Place,
    outcome: Option<Outcome>,
    now: Instant,
) -> io::Result<()> {
    let number = flow.number;
    let others = &flow.half(direction.opposite()).ledger;
    let ack = others.offset(segment.ack);
    let sack: Vec<String> = (segment.sack.iter())
        .map(|&(from, to)| format!("{}-{}", others.offset(from), others.offset(to)))
        .collect();
    let names = [
        (flags::SYN, "S"),
        (flags::FIN, "F"),
        (flags::RST, "R"),
        (flags::ACK, "."),
    ];
    let names = names.iter().filter(|(flag, _)| segment.has(*flag));
    writeln!(
        trace,
        "{:>12.6} {direction:?} #{number} {}:{} {}{} ack {ack} win {} sack [{}] {}",
        now.as_nanos() as f64 / 1e9,
        place.start,
        place.end,
        names.map(|(_, name)| *name).collect::<String>(),
        if place.repeated > 0 { " again" } else { "" },
        segment.window,
        sack.join(" "),
        outcome.map_or("too-big".to_owned(), |outcome| format!("{outcome:?}"))
    )
}
