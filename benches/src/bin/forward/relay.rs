//! The emulated network between the two sockets. The caller supplies the time.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use nmio::Instant;
use serde::Serialize;
use testkit::{ACK, IcmpError, LETTERS, SYN};

use crate::Direction;
use crate::config::PathConfig;
use crate::impairment::{Draws, Impairment};
use crate::ledger::{Ledger, Place, Sent};
use crate::path::{Outcome, Path, PathCounters};
use crate::segment::Segment;

/// Length of an Ethernet header in bytes.
const LINK_LEN: usize = 14;
/// Minimum time from a frame's scheduled arrival to its delivery for the frame to count as late.
const LATE_THRESHOLD: Duration = Duration::from_millis(1);

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DirectionReport {
    #[serde(flatten)]
    pub(crate) path: PathCounters,
    #[serde(flatten)]
    pub(crate) sent: Sent,
    /// Frames dropped because they exceeded the path MTU.
    pub(crate) too_big: u64,
    /// Frames that were delivered.
    pub(crate) forwarded: u64,
    /// Frames that were delivered at least 1 ms after their scheduled arrival.
    pub(crate) late: u64,
    /// Longest time in µs from a frame's scheduled arrival to its delivery.
    pub(crate) latest_us: u64,
}

/// Counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// From the server to the client.
    pub(crate) down: DirectionReport,
    /// From the client to the server.
    pub(crate) up: DirectionReport,
    pub(crate) connections: usize,
}

#[derive(Debug)]
struct DirectionState {
    path: Path,
    /// All counters of the direction except those of `path`.
    report: DirectionReport,
}

/// One side of a connection as a sender: the random sequences for its segments, and the record of
/// what it has sent.
#[derive(Debug)]
struct Half {
    draws: Draws,
    ledger: Ledger,
}

/// The network between client and server. Pass frames to [`handle_frame`](Relay::handle_frame).
/// When the time of [`next_arrival`](Relay::next_arrival) has come, take frames with
/// [`poll_frame`](Relay::poll_frame).
pub(crate) struct Relay {
    paths: [PathConfig; 2],
    seed: u64,
    directions: [DirectionState; 2],
    /// All connections in the order of their first SYN.
    flows: Vec<[Half; 2]>,
    /// Index in `flows` of the current connection, by the client's and the server's address and
    /// port.
    present: HashMap<[(IpAddr, u16); 2], usize>,
    trace: Option<Box<dyn Write>>,
}

impl Relay {
    /// Creates an empty network. `paths` holds the impairments from the server to the client, and
    /// then those from the client to the server. Equal seeds give equal impairments. `trace` gets a
    /// line for each TCP segment of a connection whose SYN was seen.
    pub(crate) fn new(paths: [PathConfig; 2], seed: u64, trace: Option<Box<dyn Write>>) -> Self {
        Self {
            paths,
            seed,
            directions: paths.map(|path| DirectionState {
                path: Path::new(&path),
                report: DirectionReport::default(),
            }),
            flows: Vec::new(),
            present: HashMap::new(),
            trace,
        }
    }

    /// Puts a frame that arrives at `now` on its path. If the frame belongs to a connection whose
    /// SYN was seen, also draws its impairment, and writes it to the ledger and the trace.
    pub(crate) fn handle_frame(&mut self, direction: Direction, frame: &[u8], now: Instant) {
        let segment = Segment::parse(frame);
        let number = segment
            .as_ref()
            .and_then(|segment| self.find(segment, direction, now));
        let (Some(segment), Some(number)) = (&segment, number) else {
            self.offer(
                direction,
                frame,
                segment.as_ref(),
                Impairment::default(),
                now,
            );
            return;
        };
        let flow = &mut self.flows[number];
        if segment.has(ACK) {
            let peer = &mut flow[direction.opposite() as usize].ledger;
            peer.handle_ack(segment.ack);
        }
        let half = &mut flow[direction as usize];
        let sent = &mut self.directions[direction as usize].report.sent;
        let place = half.ledger.handle_sent(segment, now, sent);
        let config = &self.paths[direction as usize];
        let impairment = if segment.len > 0 {
            half.draws.next_data(config, now)
        } else if segment.is_pure_ack() {
            half.draws.next_ack(config)
        } else {
            Impairment::default()
        };
        let outcome = self.offer(direction, frame, Some(segment), impairment, now);
        if outcome == Outcome::Passed {
            self.flows[number][direction as usize]
                .ledger
                .handle_passed(place);
        }
        // The first write error ends the trace, but not the run.
        let written = self.write_trace(number, segment, place, (direction, outcome, now));
        if written.is_err() {
            self.trace = None;
        }
    }

    /// Returns the number of a segment's connection, and adds the connection at its first SYN.
    /// Returns `None` if no SYN was seen, so that connections of an earlier run get no number.
    fn find(&mut self, segment: &Segment, direction: Direction, now: Instant) -> Option<usize> {
        let ends = [segment.route.src, segment.route.dst].map(|end| (end.ip, end.port));
        let [src, dst] = ends;
        let key = if direction == Direction::Up {
            ends
        } else {
            [dst, src]
        };
        let opens = direction == Direction::Up && segment.has(SYN) && !segment.has(ACK);
        let present = self.present.get(&key).copied().filter(|number| {
            // A SYN after data from the server is not a retransmission, so it opens a new
            // connection.
            let answer = &self.flows[*number][Direction::Down as usize].ledger;
            !(opens && answer.has_data())
        });
        if present.is_some() || !opens {
            return present;
        }
        let number = self.flows.len();
        self.flows.push(Direction::BOTH.map(|direction| Half {
            draws: Draws::new(self.seed, direction, number),
            ledger: Ledger::new(now),
        }));
        self.present.insert(key, number);
        Some(number)
    }

    /// Offers a frame to the path, unless the frame exceeds the path MTU. In that case, sends an
    /// ICMP error to the sender of a TCP segment if so configured.
    fn offer(
        &mut self,
        direction: Direction,
        frame: &[u8],
        segment: Option<&Segment>,
        impairment: Impairment,
        now: Instant,
    ) -> Outcome {
        let PathConfig { mtu, icmp, .. } = self.paths[direction as usize];
        let state = &mut self.directions[direction as usize];
        if mtu == 0 || frame.len() <= LINK_LEN + mtu {
            return state.path.offer(now, frame, impairment);
        }
        state.report.too_big += 1;
        if let Some(segment) = segment.filter(|_| icmp) {
            // The network has no router address, so the error seems to come from the destination.
            let error = IcmpError::TooBig(mtu as u32);
            let error = segment.route.back().icmp_error(error, frame);
            let back = &mut self.directions[direction.opposite() as usize].path;
            back.offer(now, &error, Impairment::default());
        }
        Outcome::TooBig
    }

    /// Returns the time at which the next frame leaves the network in either direction.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let next = self
            .directions
            .iter()
            .filter_map(|state| state.path.next_arrival());
        next.min()
    }

    /// Removes and returns the next frame that has left the network in `direction` by `now`.
    pub(crate) fn poll_frame(&mut self, direction: Direction, now: Instant) -> Option<Vec<u8>> {
        let state = &mut self.directions[direction as usize];
        let (at, frame) = state.path.pop_arrived(now)?;
        let late = now.since(at);
        let report = &mut state.report;
        report.forwarded += 1;
        report.late += u64::from(late >= LATE_THRESHOLD);
        report.latest_us = report.latest_us.max(late.as_micros() as u64);
        Some(frame)
    }

    /// Returns the counters so far.
    pub(crate) fn report(&self) -> Report {
        let [down, up] = self.directions.each_ref().map(|state| DirectionReport {
            path: state.path.counters(),
            ..state.report
        });
        Report {
            down,
            up,
            connections: self.flows.len(),
        }
    }

    /// Writes a trace line for a segment, if there is a trace.
    fn write_trace(
        &mut self,
        number: usize,
        segment: &Segment,
        place: Place,
        (direction, outcome, now): (Direction, Outcome, Instant),
    ) -> io::Result<()> {
        let Some(trace) = &mut self.trace else {
            return Ok(());
        };
        let peer = &self.flows[number][direction.opposite() as usize].ledger;
        let offset = |seq| peer.offset(seq);
        let sack = segment.sack.iter();
        let sack = sack.map(|&(from, to)| format!("{}-{}", offset(from), offset(to)));
        let letters = LETTERS.iter().filter(|(_, bit)| segment.has(*bit));
        writeln!(
            trace,
            "{:>12.6} {direction:?} #{number} {}:{} {}{} ack {} win {} sack [{}] {outcome:?}",
            now.as_nanos() as f64 / 1e9,
            place.start,
            place.end,
            letters.map(|(letter, _)| *letter).collect::<String>(),
            if place.retransmitted > 0 {
                " retransmitted"
            } else {
                ""
            },
            offset(segment.ack),
            segment.window,
            sack.collect::<Vec<_>>().join(" "),
        )
    }
}
