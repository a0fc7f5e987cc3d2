//! Which request goes out when, and on which connection.
//!
//! A *lane* is one of the connections that ask, as the user counts them: it
//! has one connection after the other when these end.

use std::collections::VecDeque;

use nmio::{Instant, Port};

use super::client::{Client, RESPONSE_LIMIT};
use super::connection::{Connection, ENDLESS, Flags, NEVER, State};
use super::{Workload, error};
use crate::load::pace::Pace;
use crate::load::tcp::NOBODY;

/// A lane whose connection has failed rests so long, in ms.
const REST: u32 = 50;
/// The server has so long to close after its last response, or to answer our
/// closing, in ms.
const CLOSE_LIMIT: u32 = 1_000;
/// Requests of an open loop that may wait for a connection.
const MAX_BACKLOG: usize = 1 << 16;
/// Idle connections are opened at this rate a second, which a kernel's
/// listener can follow, and this many at a time.
const IDLE_RATE: f64 = 40_000.0;
const IDLE_OPENING: u32 = 512;
/// When more idle connections fail than this, no further ones are tried.
const IDLE_FAILURES: u32 = 100;

#[derive(Clone, Debug)]
struct Lane {
    /// Right answers in the measured part.
    completed: u32,
    /// It is among the ready ones.
    ready: bool,
    connection: u32,
    /// When the request that waits for its next connection should have been
    /// sent; [`Instant::FAR`]: there is none.
    asked: Instant,
}

/// The lanes, and what waits for them.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    /// Requests on one connection, or [`ENDLESS`].
    requests: u32,
    /// Lanes that need a connection.
    to_open: VecDeque<u32>,
    /// Lanes that rest, each until a time in ms, in order.
    resting: VecDeque<(u32, u32)>,
    /// Open loop: lanes that can take a request. Some may not be able to any
    /// more.
    ready: VecDeque<u32>,
    /// Open loop: requests that are due.
    backlog: VecDeque<Instant>,
    pace: Option<Pace>,
    idle: Idle,
    started: bool,
}

/// Connections that never ask.
#[derive(Debug, Default)]
struct Idle {
    wanted: u32,
    /// Begun, under way, failed at any time.
    begun: u32,
    opening: u32,
    failed: u32,
    pace: Option<Pace>,
}

impl Idle {
    fn is_settled(&self) -> bool {
        self.opening == 0 && (self.begun == self.wanted || self.failed > IDLE_FAILURES)
    }
}

impl Lanes {
    pub(super) fn new(workload: &Workload) -> Self {
        let count = workload.connections as usize;
        let lane = Lane {
            completed: 0,
            ready: false,
            connection: NOBODY,
            asked: Instant::FAR,
        };
        Self {
            all: vec![lane; count],
            requests: match workload.requests {
                0 => ENDLESS,
                n => n,
            },
            to_open: VecDeque::with_capacity(count),
            resting: VecDeque::with_capacity(count),
            ready: VecDeque::with_capacity(count),
            backlog: VecDeque::with_capacity(if workload.pace.is_some() {
                MAX_BACKLOG
            } else {
                0
            }),
            pace: workload.pace,
            idle: Idle {
                wanted: workload.idle,
                pace: (workload.idle > 0).then(|| Pace::new(IDLE_RATE, 1)),
                ..Idle::default()
            },
            started: false,
        }
    }

    /// In an open loop with a connection for each request, connections are
    /// opened when a request is due; else at once.
    fn opens_when_due(&self) -> bool {
        self.pace.is_some() && self.requests == 1
    }

    /// When [`Client::handle_lanes`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let resting =
            (self.resting.front()).map(|(until, _)| Instant::from_millis(u64::from(*until)));
        let pace = self.pace.and_then(|pace| pace.due());
        let idle = if self.idle.begun < self.idle.wanted && self.idle.opening < IDLE_OPENING {
            self.idle.pace.and_then(|pace| pace.due())
        } else {
            None
        };
        [resting, pace, idle].into_iter().flatten().min()
    }

    /// Whether the idle connections are open, so that the others may begin.
    pub(super) fn is_ready(&self) -> bool {
        self.idle.is_settled()
    }

    pub(super) fn idle_failed(&self) -> u32 {
        if self.idle.failed > IDLE_FAILURES {
            self.idle.failed + (self.idle.wanted - self.idle.begun)
        } else {
            self.idle.failed
        }
    }

    /// Requests a second that are asked for; 0 for a closed loop.
    pub(super) fn rate(&self) -> f64 {
        self.pace.map_or(0.0, |pace| pace.rate())
    }

    /// Right answers a second of the lanes at the 10th percentile and the
    /// median.
    pub(super) fn connection_rate(&self, seconds: f64) -> Option<[f64; 2]> {
        let mut completed: Vec<u32> = self.all.iter().map(|lane| lane.completed).collect();
        completed.sort_unstable();
        let at = |percent: usize| completed.get((completed.len() - 1) * percent / 100);
        let rate = |count: &u32| f64::from(*count) / seconds;
        (seconds > 0.0).then_some(())?;
        Some([rate(at(10)?), rate(at(50)?)])
    }

    /// A right answer.
    #[inline(always)]
    pub(super) fn count(&mut self, lane: u32) {
        if let Some(lane) = self.all.get_mut(lane as usize) {
            lane.completed += 1;
        }
    }

    /// The lane has no connection any more, and needs one: for the request
    /// that was to be sent at `asked`, if there is one.
    fn reopen(&mut self, lane: u32, asked: Instant) {
        let entry = &mut self.all[lane as usize];
        entry.connection = NOBODY;
        entry.asked = asked;
        if asked == Instant::FAR && self.opens_when_due() {
            self.make_ready(lane);
        } else {
            self.to_open.push_back(lane);
        }
    }

    /// Each lane has a connection, rests, waits for one, or is ready.
    #[cfg(test)]
    pub(super) fn check(&self, connections: &[Connection]) {
        for lane in 0..self.all.len() as u32 {
            let owned = connections.iter().filter(|c| c.lane == lane).count();
            let waiting = self.to_open.iter().filter(|l| **l == lane).count();
            let resting = self.resting.iter().filter(|(_, l)| *l == lane).count();
            let started = usize::from(self.started);
            assert_eq!(owned + waiting + resting, started, "lane {lane}: {self:?}");
        }
    }

    /// The lane can take a request: the one that waits longest, or the next
    /// one. Gives the former.
    #[inline(always)]
    fn make_ready(&mut self, lane: u32) {
        let entry = &mut self.all[lane as usize];
        if !entry.ready {
            entry.ready = true;
            self.ready.push_back(lane);
        }
    }
}

impl Client {
    /// What is due for lanes: the first connections, idle ones, ends of
    /// rests, requests of an open loop.
    #[inline(always)]
    pub(super) fn handle_lanes(&mut self, now: Instant) {
        if !self.lanes.started {
            self.start_lanes(now);
        }
        while let Some((until, lane)) = self.lanes.resting.front().copied()
            && until <= self.now_ms
        {
            self.lanes.resting.pop_front();
            let asked = self.lanes.all[lane as usize].asked;
            self.lanes.reopen(lane, asked);
        }
        if self.lanes.started && self.lanes.pace.is_some() {
            self.handle_pace(now);
        }
    }

    #[cold]
    fn start_lanes(&mut self, now: Instant) {
        if self.lanes.idle.is_settled() {
            self.lanes.started = true;
            for lane in 0..self.lanes.all.len() as u32 {
                self.lanes.reopen(lane, Instant::FAR);
            }
            return;
        }
        while self.lanes.idle.begun < self.lanes.idle.wanted
            && self.lanes.idle.opening < IDLE_OPENING
            && self.lanes.idle.failed <= IDLE_FAILURES
            && (self.lanes.idle.pace.as_mut()).is_some_and(|pace| pace.take(now).is_some())
        {
            if self.open(NOBODY, now).is_none() {
                break;
            }
            self.lanes.idle.begun += 1;
            self.lanes.idle.opening += 1;
        }
    }

    /// Takes the requests that are due, and gives lanes to those that can
    /// have one.
    #[inline(always)]
    fn handle_pace(&mut self, now: Instant) {
        while let Some(due) = (self.lanes.pace.as_mut()).and_then(|pace| pace.take(now)) {
            if self.lanes.backlog.len() < MAX_BACKLOG {
                self.lanes.backlog.push_back(due);
            } else {
                self.meter.error(error::NOT_SENT);
            }
        }
        while !self.lanes.backlog.is_empty()
            && let Some(lane) = self.lanes.ready.pop_front()
        {
            let when_due = self.lanes.opens_when_due();
            let entry = &mut self.lanes.all[lane as usize];
            entry.ready = false;
            let id = entry.connection;
            if when_due {
                if let Some(asked) = self.lanes.backlog.pop_front() {
                    self.lanes.reopen(lane, asked);
                }
            } else if self.can_ask(id, lane)
                && let Some(asked) = self.lanes.backlog.pop_front()
            {
                self.ask(id, asked);
            }
        }
    }

    /// Whether the lane that was made ready with this connection still is.
    #[inline(always)]
    fn can_ask(&self, id: u32, lane: u32) -> bool {
        (self.connections.get(id as usize)).is_some_and(|connection| {
            connection.state == State::Open
                && connection.lane == lane
                && !connection.flags.has(Flags::BUSY | Flags::EXPECT_FIN)
        })
    }

    /// Opens connections for the lanes that need one.
    #[inline(always)]
    pub(super) fn open_waiting(&mut self, now: Instant) {
        while let Some(&lane) = self.lanes.to_open.front() {
            let asked = self.lanes.all[lane as usize].asked;
            let asked = if asked == Instant::FAR { now } else { asked };
            let Some(id) = self.open(lane, now) else {
                break;
            };
            self.connections[id as usize].asked = asked;
            self.lanes.all[lane as usize].connection = id;
            self.lanes.to_open.pop_front();
        }
    }

    /// Opens a connection; `None` while there is no entry or no port free.
    #[inline(always)]
    fn open(&mut self, lane: u32, now: Instant) -> Option<u32> {
        let id = *self.free.last()?;
        let (address, port) = self.slots.take(id)?;
        self.free.pop();
        let isn = self.initial_sequence(now);
        let connection = &mut self.connections[id as usize];
        *connection = Connection {
            state: State::Opening,
            flags: connection.flags,
            armed: connection.armed,
            address,
            port,
            snd_una: isn,
            snd_nxt: isn.wrapping_add(1),
            left: self.lanes.requests,
            lane,
            asked: now,
            ..Connection::default()
        };
        self.queue(id, Flags::SYN);
        Some(id)
    }

    /// The server has accepted a connection.
    #[inline(always)]
    pub(super) fn handle_established(&mut self, id: u32, now: Instant) {
        self.queue(id, Flags::THIRD);
        let connection = &self.connections[id as usize];
        let lane = connection.lane;
        if lane == NOBODY {
            self.lanes.idle.opening -= 1;
            return;
        }
        let asked = connection.asked;
        if self.lanes.pace.is_none() || self.lanes.all[lane as usize].asked != Instant::FAR {
            self.ask(id, asked);
        } else {
            self.next_request(id, lane, now);
        }
    }

    /// A connection can take its next request.
    #[inline(always)]
    pub(super) fn next_request(&mut self, id: u32, lane: u32, now: Instant) {
        if self.lanes.pace.is_none() {
            self.ask(id, now);
        } else if let Some(asked) = self.lanes.backlog.pop_front() {
            self.ask(id, asked);
        } else {
            self.lanes.make_ready(lane);
        }
    }

    /// Sends a request that was due at `asked`.
    #[inline(always)]
    fn ask(&mut self, id: u32, asked: Instant) {
        let page = self.draw.next();
        let limit_at = self.now_ms + RESPONSE_LIMIT;
        let connection = &mut self.connections[id as usize];
        connection.page = page;
        connection.asked = asked;
        connection.rto_at = NEVER;
        connection.limit_at = limit_at;
        if connection.left == 1 {
            connection.flags.set(Flags::LAST);
        }
        self.queue(id, Flags::REQUEST | Flags::BUSY);
    }

    /// After a whole response: the next request, or the end.
    #[inline(always)]
    pub(super) fn after_response(&mut self, id: u32, server_closes: bool, now: Instant) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        if connection.left != ENDLESS {
            connection.left -= 1;
        }
        if server_closes || connection.left == 0 {
            connection.flags.set(Flags::EXPECT_FIN);
            connection.limit_at = now_ms + CLOSE_LIMIT;
            self.arm(id, now_ms + CLOSE_LIMIT);
        } else {
            let lane = connection.lane;
            self.next_request(id, lane, now);
        }
    }

    /// The server has closed its side: we close ours. Its lane goes on with
    /// another connection.
    #[inline(always)]
    pub(super) fn handle_fin(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
        connection.flags.set(Flags::FIN_RECEIVED);
        if connection.state == State::Closing {
            self.queue(id, Flags::ACK);
        } else {
            self.close(id);
        }
    }

    /// Closes our side. A request that was not sent yet goes to the lane's
    /// next connection, one without a response has failed.
    #[inline(always)]
    pub(super) fn close(&mut self, id: u32) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        let (lane, flags, asked) = (connection.lane, connection.flags, connection.asked);
        connection.state = State::Closing;
        connection.lane = NOBODY;
        connection.limit_at = now_ms + CLOSE_LIMIT;
        connection
            .flags
            .clear(Flags::RESPONSE | Flags::REQUEST | Flags::EXPECT_FIN);
        self.queue(id, Flags::FIN);
        if lane == NOBODY {
            self.lanes.idle.failed += 1;
        } else if !flags.has(Flags::BUSY) {
            self.lanes.reopen(lane, Instant::FAR);
        } else if flags.has(Flags::REQUEST) {
            self.lanes.reopen(lane, asked);
        } else {
            self.meter.error(error::CLOSED_EARLY);
            self.rest(lane, Instant::FAR);
        }
    }

    /// A connection has failed, as `kind` says, and is reset; its lane rests.
    #[cold]
    pub(super) fn fail<P: Port>(&mut self, port: &mut P, id: u32, kind: &'static str) {
        self.reset(port, id);
        self.fail_silently(id, kind);
    }

    /// As [`Client::fail`], when the server knows.
    #[cold]
    pub(super) fn fail_silently(&mut self, id: u32, kind: &'static str) {
        let connection = &self.connections[id as usize];
        let (lane, flags, asked) = (connection.lane, connection.flags, connection.asked);
        let state = connection.state;
        self.release(id);
        if state == State::Closing || state == State::Closed {
            return;
        }
        if lane == NOBODY {
            self.lanes.idle.failed += 1;
            if state == State::Opening {
                self.lanes.idle.opening -= 1;
            }
            return;
        }
        let unsent = flags.has(Flags::REQUEST) && state == State::Open;
        let asking = state == State::Opening || (flags.has(Flags::BUSY) && !unsent);
        if asking || kind == error::UNASKED {
            self.meter.error(kind);
        }
        self.rest(lane, if unsent { asked } else { Instant::FAR });
    }

    /// Lets a lane rest before its next connection.
    fn rest(&mut self, lane: u32, asked: Instant) {
        let entry = &mut self.lanes.all[lane as usize];
        entry.connection = NOBODY;
        entry.asked = asked;
        let until = self.now_ms + REST;
        self.lanes.resting.push_back((until, lane));
    }
}
