//! Decides when requests are sent, and on which connections.
//!
//! A *lane* stands for one of the connections that the user asked for. When a lane's connection
//! closes or fails, the lane opens a new connection.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use nmio::{Instant, Port};

use super::client::{Client, RESPONSE_LIMIT};
use super::connection::{Connection, ENDLESS, Flags, NEVER, State};
use super::{Workload, error};
use crate::load::meter::histogram;
use crate::load::pace::Pace;
use crate::load::tcp::NOBODY;

/// Pause of a lane after its connection has failed, in ms.
const REST: u32 = 50;
/// Time limit in ms for the server to close after its last response, or to acknowledge the client's
/// FIN.
const CLOSE_LIMIT: u32 = 1_000;
/// Maximum number of requests of an open loop that wait for a connection.
const MAX_BACKLOG: usize = 1 << 16;
/// Maximum number of lanes in an open loop whose latencies are recorded separately. A histogram
/// takes 15 KB.
const MAX_RECORDED: usize = 1024;
/// Idle connections are opened at this rate per second. A kernel's listener can sustain it. At most
/// `IDLE_OPENING` handshakes run at the same time.
const IDLE_RATE: f64 = 40_000.0;
const IDLE_OPENING: u32 = 512;
/// After more failures than this number, no further idle connections are opened.
const IDLE_FAILURES: u32 = 100;

#[derive(Clone, Debug)]
struct Lane {
    /// Number of correct responses in the measured phase.
    completed: u32,
    /// Latencies of these responses in ns. An open loop spreads its requests evenly, so only
    /// latencies show whether the server prefers some connections.
    latencies: Option<Box<Histogram<u32>>>,
    /// Whether the lane is in the queue of ready lanes.
    ready: bool,
    connection: u32,
    /// Due time of the request that waits for the lane's next connection. [`Instant::FAR`] if no
    /// request waits.
    requested_at: Instant,
}

/// All lanes and the queues that they wait in.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    /// Number of requests on one connection, or [`ENDLESS`].
    requests: u32,
    /// Lanes that need a connection.
    to_open: VecDeque<u32>,
    /// Lanes that pause after a failure. An entry is the end of the pause in ms, and the lane. The
    /// earliest end is first.
    resting: VecDeque<(u32, u32)>,
    /// Open loop: lanes that can take a request. The connection of such a lane may have closed in
    /// the meantime.
    ready: VecDeque<u32>,
    /// Open loop: due times of the requests that wait for a lane.
    backlog: VecDeque<Instant>,
    pace: Option<Pace>,
    idle: Idle,
    started: bool,
}

/// The idle connections, which send no requests.
#[derive(Debug)]
struct Idle {
    count: u32,
    /// Number of connections whose SYN has been queued.
    started_count: u32,
    /// Number of handshakes under way.
    opening: u32,
    /// Number of failed connections.
    failed: u32,
    pace: Pace,
}

impl Idle {
    fn is_settled(&self) -> bool {
        self.opening == 0 && (self.started_count == self.count || self.failed > IDLE_FAILURES)
    }
}

impl Lanes {
    pub(super) fn new(workload: &Workload) -> Self {
        let count = workload.connections as usize;
        let is_recorded = workload.pace.is_some() && count <= MAX_RECORDED;
        let lane = Lane {
            completed: 0,
            latencies: is_recorded.then(|| Box::new(histogram())),
            ready: false,
            connection: NOBODY,
            requested_at: Instant::FAR,
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
                count: workload.idle,
                started_count: 0,
                opening: 0,
                failed: 0,
                pace: Pace::new(IDLE_RATE, 1),
            },
            started: false,
        }
    }

    /// Returns true if a connection opens only when a request is due. This is the case in an open
    /// loop with one request per connection.
    fn opens_when_due(&self) -> bool {
        self.pace.is_some() && self.requests == 1
    }

    /// Returns the time at which [`Client::handle_lanes`] next has work to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let resting =
            (self.resting.front()).map(|(until, _)| Instant::from_millis(u64::from(*until)));
        let pace = self.pace.and_then(|pace| pace.due());
        let idle = if self.idle.started_count < self.idle.count && self.idle.opening < IDLE_OPENING
        {
            self.idle.pace.due()
        } else {
            None
        };
        [resting, pace, idle].into_iter().flatten().min()
    }

    /// Returns true if the lanes may start: each idle connection has opened or failed, or too many
    /// have failed.
    pub(super) fn is_ready(&self) -> bool {
        self.idle.is_settled()
    }

    pub(super) fn idle_failed(&self) -> u32 {
        if self.idle.failed > IDLE_FAILURES {
            self.idle.failed + (self.idle.count - self.idle.started_count)
        } else {
            self.idle.failed
        }
    }

    /// Returns the requested rate per second, or 0 for a closed loop.
    pub(super) fn rate(&self) -> f64 {
        self.pace.map_or(0.0, |pace| pace.rate())
    }

    /// Returns the number of correct responses per second and lane: the 10th percentile and the
    /// median over all lanes.
    pub(super) fn connection_rate(&self, seconds: f64) -> Option<[f64; 2]> {
        let mut completed: Vec<u32> = self.all.iter().map(|lane| lane.completed).collect();
        completed.sort_unstable();
        let at = |percent: usize| completed.get((completed.len() - 1) * percent / 100);
        let rate = |count: &u32| f64::from(*count) / seconds;
        (seconds > 0.0).then_some(())?;
        Some([rate(at(10)?), rate(at(50)?)])
    }

    /// Returns the highest p50 of a lane's latencies in µs.
    pub(super) fn slowest_p50_us(&self) -> Option<f64> {
        let all = self.all.iter().filter_map(|lane| lane.latencies.as_ref());
        let slowest = all.map(|latencies| latencies.value_at_quantile(0.5)).max();
        slowest.map(|nanos| nanos as f64 / 1_000.0)
    }

    /// Counts a correct response of a lane.
    #[inline(always)]
    pub(super) fn count(&mut self, lane: u32, latency: Duration) {
        if let Some(lane) = self.all.get_mut(lane as usize) {
            lane.completed += 1;
            if let Some(latencies) = &mut lane.latencies {
                latencies.saturating_record((latency.as_nanos() as u64).max(1));
            }
        }
    }

    /// Queues a lane without a connection, so that it gets a new one. `requested_at` is the due
    /// time of the request that waits for the connection, or [`Instant::FAR`]. If no request waits
    /// and connections open only when a request is due, makes the lane ready instead.
    fn reopen(&mut self, lane: u32, requested_at: Instant) {
        let entry = &mut self.all[lane as usize];
        entry.connection = NOBODY;
        entry.requested_at = requested_at;
        if requested_at == Instant::FAR && self.opens_when_due() {
            self.make_ready(lane);
        } else {
            self.to_open.push_back(lane);
        }
    }

    /// Checks the lanes of a closed loop. Once the lanes have started, each has a connection,
    /// pauses, or waits for a connection.
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

    /// Queues a lane that can take a request, unless it is queued already.
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
    /// Handles everything that is due: the first connections, idle connections, ends of pauses, and
    /// requests of an open loop.
    #[inline(always)]
    pub(super) fn handle_lanes(&mut self, now: Instant) {
        if !self.lanes.started {
            self.start_lanes(now);
        }
        while let Some((until, lane)) = self.lanes.resting.front().copied()
            && until <= self.now_ms
        {
            self.lanes.resting.pop_front();
            let requested_at = self.lanes.all[lane as usize].requested_at;
            self.lanes.reopen(lane, requested_at);
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
        while self.lanes.idle.started_count < self.lanes.idle.count
            && self.lanes.idle.opening < IDLE_OPENING
            && self.lanes.idle.failed <= IDLE_FAILURES
            && self.lanes.idle.pace.take(now).is_some()
        {
            if self.open(NOBODY, now).is_none() {
                break;
            }
            self.lanes.idle.started_count += 1;
            self.lanes.idle.opening += 1;
        }
    }

    /// Takes the requests that are due and passes them to ready lanes.
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
                if let Some(requested_at) = self.lanes.backlog.pop_front() {
                    self.lanes.reopen(lane, requested_at);
                }
            } else if self.can_ask(id, lane)
                && let Some(requested_at) = self.lanes.backlog.pop_front()
            {
                self.ask(id, requested_at);
            }
        }
    }

    /// Returns true if a lane can still use the connection with which it became ready.
    #[inline(always)]
    fn can_ask(&self, id: u32, lane: u32) -> bool {
        (self.connections.get(id as usize)).is_some_and(|connection| {
            connection.state == State::Open
                && connection.lane == lane
                && !connection.flags.intersects(Flags::BUSY | Flags::EXPECT_FIN)
        })
    }

    /// Opens connections for the lanes that need one.
    #[inline(always)]
    pub(super) fn open_waiting(&mut self, now: Instant) {
        while let Some(&lane) = self.lanes.to_open.front() {
            let requested_at = self.lanes.all[lane as usize].requested_at;
            let requested_at = if requested_at == Instant::FAR {
                now
            } else {
                requested_at
            };
            let Some(id) = self.open(lane, now) else {
                break;
            };
            self.connections[id as usize].requested_at = requested_at;
            self.lanes.all[lane as usize].connection = id;
            self.lanes.to_open.pop_front();
        }
    }

    /// Opens a connection. Returns `None` if there is no free entry or port.
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
            requested_at: now,
            ..Connection::free()
        };
        self.queue(id, Flags::SYN);
        Some(id)
    }

    /// Handles the server's SYN-ACK, which establishes the connection.
    #[inline(always)]
    pub(super) fn handle_established(&mut self, id: u32, now: Instant) {
        self.queue(id, Flags::THIRD);
        let connection = &self.connections[id as usize];
        let lane = connection.lane;
        if lane == NOBODY {
            self.lanes.idle.opening -= 1;
            return;
        }
        let requested_at = connection.requested_at;
        if self.lanes.pace.is_none() || self.lanes.all[lane as usize].requested_at != Instant::FAR {
            self.ask(id, requested_at);
        } else {
            self.next_request(id, lane, now);
        }
    }

    /// Queues the next request on a connection. If no request is due, makes the lane ready.
    #[inline(always)]
    pub(super) fn next_request(&mut self, id: u32, lane: u32, now: Instant) {
        if self.lanes.pace.is_none() {
            self.ask(id, now);
        } else if let Some(requested_at) = self.lanes.backlog.pop_front() {
            self.ask(id, requested_at);
        } else {
            self.lanes.make_ready(lane);
        }
    }

    /// Queues a request for sending. Its latency is measured from `requested_at`.
    #[inline(always)]
    fn ask(&mut self, id: u32, requested_at: Instant) {
        let page = self.pages.next();
        let limit_at = self.now_ms + RESPONSE_LIMIT;
        let connection = &mut self.connections[id as usize];
        connection.page = page;
        connection.requested_at = requested_at;
        connection.rto_at = NEVER;
        connection.limit_at = limit_at;
        if connection.left == 1 {
            connection.flags.insert(Flags::LAST);
        }
        self.queue(id, Flags::REQUEST | Flags::BUSY);
    }

    /// Continues after a complete response. Waits for the server to close, or else takes the next
    /// request.
    #[inline(always)]
    pub(super) fn after_response(&mut self, id: u32, server_closes: bool, now: Instant) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        if connection.left != ENDLESS {
            connection.left -= 1;
        }
        if server_closes || connection.left == 0 {
            connection.flags.insert(Flags::EXPECT_FIN);
            connection.limit_at = now_ms + CLOSE_LIMIT;
            self.arm(id, now_ms + CLOSE_LIMIT);
        } else {
            let lane = connection.lane;
            self.next_request(id, lane, now);
        }
    }

    /// Handles the server's FIN. If the client has not closed yet, it closes too, and the lane
    /// opens another connection.
    #[inline(always)]
    pub(super) fn handle_fin(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
        connection.flags.insert(Flags::FIN_RECEIVED);
        if connection.state == State::Closing {
            self.queue(id, Flags::ACK);
        } else {
            self.close(id);
        }
    }

    /// Closes the client's side of a connection. A request that was not sent moves to the lane's
    /// next connection. A request without a response has failed.
    #[inline(always)]
    pub(super) fn close(&mut self, id: u32) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        let (lane, flags, requested_at) =
            (connection.lane, connection.flags, connection.requested_at);
        connection.state = State::Closing;
        connection.lane = NOBODY;
        connection.limit_at = now_ms + CLOSE_LIMIT;
        connection
            .flags
            .remove(Flags::RESPONSE | Flags::REQUEST | Flags::EXPECT_FIN);
        self.queue(id, Flags::FIN);
        if lane == NOBODY {
            self.lanes.idle.failed += 1;
        } else if !flags.intersects(Flags::BUSY) {
            self.lanes.reopen(lane, Instant::FAR);
        } else if flags.intersects(Flags::REQUEST) {
            self.lanes.reopen(lane, requested_at);
        } else {
            self.meter.error(error::CLOSED_EARLY);
            self.rest(lane, Instant::FAR);
        }
    }

    /// Resets a connection that failed with the error `kind`. Its lane pauses.
    #[cold]
    pub(super) fn fail<P: Port>(&mut self, port: &mut P, id: u32, kind: &'static str) {
        self.reset(port, id);
        self.fail_silently(id, kind);
    }

    /// Like [`Client::fail`], but sends no reset. The server already knows of the failure, or has
    /// not answered the SYN.
    #[cold]
    pub(super) fn fail_silently(&mut self, id: u32, kind: &'static str) {
        let connection = &self.connections[id as usize];
        let (lane, flags, requested_at) =
            (connection.lane, connection.flags, connection.requested_at);
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
        let unsent = flags.intersects(Flags::REQUEST) && state == State::Open;
        let asking = state == State::Opening || (flags.intersects(Flags::BUSY) && !unsent);
        if asking || kind == error::UNASKED {
            self.meter.error(kind);
        }
        self.rest(lane, if unsent { requested_at } else { Instant::FAR });
    }

    /// Lets a lane pause before its next connection.
    fn rest(&mut self, lane: u32, requested_at: Instant) {
        let entry = &mut self.lanes.all[lane as usize];
        entry.connection = NOBODY;
        entry.requested_at = requested_at;
        let until = self.now_ms + REST;
        self.lanes.resting.push_back((until, lane));
    }
}
