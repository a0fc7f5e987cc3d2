//! The stack: one core's connections, from opening to forgetting.

use std::collections::VecDeque;
use std::time::Duration;

use nmio::{Capabilities, Instant, Port, TimerWheel};

use crate::admission::Admission;
use crate::app::{Application, CloseReason, Connection};
use crate::config::{Config, Settings};
use crate::congestion::{CongestionControl, Cubic};
use crate::content::{Contents, NO_CLASS};
use crate::counters::Counters;
use crate::info::Sight;
use crate::options::Block;
use crate::peers::{Peers, Pool};
use crate::pressure::Sampler;
use crate::progress::Standing;
use crate::recovery::{Recoveries, Recovery};
use crate::recv::Buffers;
use crate::segments::Family;
use crate::table::{Keys, Table};
use crate::tcb::{Flags, Moment, NONE, Record, Source, State, Tcb};
use crate::wire::TIMESTAMPS_LEN;
use crate::writes::Writes;

/// The least maximum segment size that we send by, whatever a peer asks for:
/// smaller ones only make us work (RFC 9293, section 3.7.1, leaves it open).
/// Of it 12 bytes are kept for timestamps.
pub const MIN_MSS: u16 = 88;
/// The MSS of a peer that tells none (RFC 9293, section 3.7.1), IPv4.
pub const DEFAULT_MSS_V4: u16 = 536;
/// The same for IPv6.
pub const DEFAULT_MSS_V6: u16 = 1220;
/// Bytes of the largest link header: Ethernet with a tag.
const LINK_HEADER: usize = eth::TAGGED_HEADER_LEN;

/// What the timer wheel takes for each connection.
const TIMER_LEN: usize = 16;

/// All TCP connections of one port: a sans-I/O state machine but for the
/// TX ring, which it fills itself.
///
/// # Calling contract
/// Give it each segment that was received
/// ([`handle_segment`](Self::handle_segment)) and, once a batch and at the
/// latest at [`poll_timeout`](Self::poll_timeout), the time
/// ([`handle_timers`](Self::handle_timers)). `now` must not go back from one
/// call to the next. Always use it with the same port. A
/// [`Server`](crate::Server) does all this.
///
/// `C` is the congestion control of every connection.
pub struct Stack<A: Application, C = Cubic> {
    pub(crate) app: A,
    /// Beside the TCBs: what the application remembers of each.
    pub(crate) states: Vec<A::State>,
    /// Beside the TCBs: what decides whether each may stay.
    pub(crate) standings: Vec<Standing>,
    pub(crate) records: Vec<Record<C>>,
    /// TCBs that were used and are free.
    pub(crate) free: Vec<u32>,
    pub(crate) table: Table,
    pub(crate) keys: Keys,
    pub(crate) wheel: TimerWheel,
    pub(crate) contents: Contents,
    pub(crate) writes: Writes,
    pub(crate) buffers: Buffers,
    pub(crate) recoveries: Recoveries<C>,
    /// What the segment in hand has brought that was here already: told with
    /// its acknowledgement.
    pub(crate) twice: Option<Block>,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) own_mss: OwnMss,
    pub(crate) half_open: u32,
    pub(crate) time_waits: u32,
    pub(crate) admission: Admission,
    /// What each client address holds.
    pub(crate) peers: Peers,
    pub(crate) samplers: [Sampler; Pool::COUNT],
    /// Those that the TX ring had no room for, first come first served.
    blocked: VecDeque<u32>,
    /// Number of records already shut down, see
    /// [`hang_up`](Self::hang_up).
    pub(crate) hung_up: usize,
    /// When pools are next looked at for memory that was not needed.
    trim_at: Instant,
    /// When it was last called.
    pub(crate) now: Instant,
    #[cfg(any(test, fuzzing))]
    pub(crate) flights: Vec<crate::invariants::Flight>,
}

/// How soon a sleeping loop looks again whether a full TX ring has room. At
/// 10 Gb/s about a hundred full packets leave in this time.
pub(crate) const BLOCKED_RETRY: Duration = Duration::from_micros(125);

/// The memory of a buffer is given back when it was not needed for so long, or
/// for twice as long.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);
/// Of each pool so many buffers at a time, …
const TRIM_STEP: usize = 32;
/// … and then not before this time has passed.
const TRIM_PAUSE: Duration = Duration::from_millis(10);

/// Our own maximum segment sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMss {
    v4: u16,
    v6: u16,
}

impl OwnMss {
    fn new(mtu: usize) -> Self {
        let of = |family: Family| {
            let mss = mtu.saturating_sub(family.headers());
            mss.clamp(usize::from(MIN_MSS), usize::from(u16::MAX)) as u16
        };
        Self {
            v4: of(Family::V4),
            v6: of(Family::V6),
        }
    }

    pub(crate) fn of(self, family: Family) -> u16 {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

impl<A: Application, C> Stack<A, C> {
    /// Bytes of the tables that [`new`](Self::new) reserves for
    /// [`Config::max_connections`]. They are touched as connections are first
    /// used.
    pub fn reserved_bytes(config: &Config) -> usize {
        let most = Settings::new(config).max_connections;
        // `free`, `blocked`, and those of the recoveries that are free.
        let indices = 3 * size_of::<u32>();
        let records = size_of::<A::State>() + size_of::<Standing>() + size_of::<Record<C>>();
        let each = records + size_of::<Recovery<C>>() + TIMER_LEN + indices;
        most as usize * each + Table::bytes(most) + Peers::bytes(most)
    }
}

impl<A: Application> Stack<A> {
    /// A stack with [`Cubic`]. `capabilities` are those of the port that it will
    /// be used with; `secret` keys the hash of the connection table and the
    /// initial sequence numbers, and must be random and unknown to others.
    ///
    /// Where the system refuses [`reserved_bytes`](Stack::reserved_bytes) of
    /// memory, the process aborts, as with all allocations that fail.
    pub fn new(
        config: &Config,
        app: A,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Self {
        Self::with_congestion_control(config, app, capabilities, secret, now)
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A stack with the congestion control `C`; otherwise as
    /// [`new`](Stack::new).
    pub fn with_congestion_control(
        config: &Config,
        app: A,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Self {
        let settings = Settings::new(config);
        let most = settings.max_connections;
        let own_mss = OwnMss::new(capabilities.mtu);
        let recv_buffer = config
            .recv_buffer
            .clamp(Config::MIN_RECV_BUFFER, Config::MAX_RECV_BUFFER);
        Self {
            app,
            // Reserved, so that nothing moves or is allocated later; the
            // memory is touched as the number of connections grows.
            states: Vec::with_capacity(most as usize),
            standings: Vec::with_capacity(most as usize),
            records: Vec::with_capacity(most as usize),
            free: Vec::with_capacity(most as usize),
            table: Table::new(most),
            keys: Keys::new(secret),
            wheel: TimerWheel::new(most, now),
            contents: Contents::new(
                settings.mode,
                own_mss.v4 - TIMESTAMPS_LEN as u16,
                own_mss.v6 - TIMESTAMPS_LEN as u16,
                config.class_budget,
            ),
            writes: Writes::new(config.max_write_buffers),
            buffers: Buffers::new(config.max_recv_buffers, recv_buffer),
            recoveries: Recoveries::new(most),
            twice: None,
            settings,
            counters: Counters::default(),
            own_mss,
            half_open: 0,
            time_waits: 0,
            admission: Admission::default(),
            peers: Peers::new(most),
            samplers: Default::default(),
            blocked: VecDeque::with_capacity(most as usize),
            hung_up: 0,
            trim_at: now,
            now,
            #[cfg(any(test, fuzzing))]
            flights: Vec::new(),
        }
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application, to be changed.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// All contents.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// All contents, to be loaded and removed.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// The application and all contents: for loading what the application
    /// then refers to.
    pub fn parts_mut(&mut self) -> (&mut A, &mut Contents) {
        (&mut self.app, &mut self.contents)
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections now, half-open ones and those in TIME-WAIT included.
    pub fn connections(&self) -> u32 {
        self.table.len()
    }

    /// Whether connections are accepted on `port`.
    #[inline]
    pub fn serves(&self, port: u16) -> bool {
        self.settings.ports.contains(&port)
    }

    /// When [`handle_timers`](Self::handle_timers) must be called next, at
    /// the latest; `None` when only a segment can cause work.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.blocked.is_empty() {
            // The port cannot tell when its ring has room.
            return Some(self.now + BLOCKED_RETRY);
        }
        let due = self.wheel.next_deadline();
        if self.buffers.has_surplus() || self.writes.has_surplus() {
            return Some(due.map_or(self.trim_at, |due| due.min(self.trim_at)));
        }
        due
    }

    /// Runs what is due at `now`, and goes on with what the TX ring had no
    /// room for.
    #[inline]
    pub fn handle_timers<P: Port>(&mut self, port: &mut P, now: Instant) {
        self.now = now;
        if !self.blocked.is_empty() {
            self.resume_blocked(port, Moment::new(now));
        }
        while let Some(id) = self.wheel.pop_expired(now) {
            self.handle_expired(port, id, Moment::new(now));
        }
        if now >= self.trim_at {
            self.trim(now);
        }
    }

    /// Gives back memory of the pools that was not needed since the last look.
    #[cold]
    fn trim(&mut self, now: Instant) {
        for _ in 0..TRIM_STEP {
            let more = self.buffers.trim() | self.writes.trim();
            if !more {
                self.buffers.free().look();
                self.writes.free().look();
                self.trim_at = now + TRIM_INTERVAL;
                return;
            }
        }
        self.trim_at = now + TRIM_PAUSE;
    }

    /// A connection, in the hands of a callback.
    #[inline(always)]
    pub(crate) fn connection(&mut self, id: u32) -> (&mut A, Connection<'_, A::State>) {
        let sight = Sight::of(&self.records[id as usize], &self.recoveries);
        let connection = Connection {
            sight,
            id,
            standing: &mut self.standings[id as usize],
            peers: &mut self.peers,
            tcb: &mut self.records[id as usize].tcb,
            state: &mut self.states[id as usize],
            contents: &mut self.contents,
            writes: &mut self.writes,
        };
        (&mut self.app, connection)
    }

    /// A free TCB, or `None` when all are in use.
    pub(crate) fn take_tcb(&mut self) -> Option<u32> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        if self.records.len() >= self.settings.max_connections as usize {
            return None;
        }
        self.records.push(Record {
            tcb: Tcb::closed(),
            congestion: C::new(u32::from(MIN_MSS)),
        });
        self.states.push(A::State::default());
        self.standings.push(Standing::new(Moment::new(self.now)));
        Some(self.records.len() as u32 - 1)
    }

    /// The most bytes of data in a segment to this peer, if any segment fits
    /// a frame of the port. The place of timestamps is kept, with or without
    /// them, so that content is cut the same way for all (RFC 6691 would have
    /// it so where they are).
    pub(crate) fn effective_mss(
        &self,
        family: Family,
        told: Option<u16>,
        frame_capacity: usize,
    ) -> Option<u16> {
        let default = match family {
            Family::V4 => DEFAULT_MSS_V4,
            Family::V6 => DEFAULT_MSS_V6,
        };
        let fits = frame_capacity.checked_sub(LINK_HEADER + family.headers())?;
        let mss = told
            .unwrap_or(default)
            .max(MIN_MSS)
            .min(self.own_mss.of(family));
        let mss = usize::from(mss).min(fits).checked_sub(TIMESTAMPS_LEN)?;
        (fits >= usize::from(MIN_MSS)).then_some(mss as u16)
    }

    /// Sets what is due next to `after` milliseconds from now.
    #[inline(always)]
    pub(crate) fn arm(&mut self, id: u32, now: Moment, after: u32) {
        if self.records[id as usize].tcb.is_due_in(after, now) {
            self.schedule(id, now);
        }
    }

    /// Sets the wheel, which would expire after the deadline, or after that of
    /// the application.
    #[inline(never)]
    pub(crate) fn schedule(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.scheduled = tcb.deadline;
        if tcb.flags.has(Flags::DUE) {
            let due = self.standings[id as usize].due;
            let ahead = tcb.deadline.wrapping_sub(due).cast_signed();
            if ahead > 0 {
                tcb.scheduled = due;
            }
        }
        self.wheel.schedule(id, now.instant(tcb.scheduled));
    }

    /// The retransmission timeout of a connection, in milliseconds.
    #[inline(always)]
    pub(crate) fn rto(&self, id: u32) -> u32 {
        self.records[id as usize].tcb.rto(self.settings.min_rto_ms)
    }

    #[cold]
    fn handle_expired<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        // The wheel has no entry now: `arm` need not look at it.
        tcb.scheduled = now.millis;
        let has_passed = |moment: u32| moment.wrapping_sub(now.millis).cast_signed() <= 0;
        if tcb.flags.has(Flags::DUE) && has_passed(self.standings[id as usize].due) {
            self.handle_due(port, id, now);
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.state != State::Closed && has_passed(tcb.deadline) {
            self.handle_deadline(port, id, now);
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.state != State::Closed {
            self.start_due(id, now);
            self.schedule(id, now);
        }
    }

    /// Ends a connection: tells the application, and forgets it.
    #[cold]
    pub(crate) fn close(&mut self, id: u32, reason: CloseReason) {
        self.finish(id, reason);
        self.forget(id);
    }

    /// The application's part of a connection ends here.
    pub(crate) fn finish(&mut self, id: u32, reason: CloseReason) {
        let counter = match reason {
            CloseReason::Finished => &mut self.counters.finished,
            CloseReason::Reset => &mut self.counters.reset_by_peer,
            CloseReason::TimedOut => &mut self.counters.timed_out,
            CloseReason::Aborted => &mut self.counters.aborted,
            CloseReason::Evicted => &mut self.counters.evicted,
        };
        *counter += 1;
        self.app.on_close(&mut self.states[id as usize], reason);
        self.release_all(id);
    }

    /// Gives back all that a connection holds but its TCB.
    pub(crate) fn release_all(&mut self, id: u32) {
        while let Some(source) = self.records[id as usize].tcb.discard() {
            self.release_source(source);
        }
        self.release_buffer(id);
        let tcb = &mut self.records[id as usize].tcb;
        let recovery = std::mem::replace(&mut tcb.recovery, NONE);
        if recovery != NONE {
            self.recoveries.release(recovery, &mut self.peers);
        }
        let class = std::mem::replace(&mut tcb.class, NO_CLASS);
        self.contents.release_class(class);
        self.states[id as usize] = A::State::default();
    }

    /// Gives back a connection's receive buffer, if it has one, with all that
    /// is in it.
    pub(crate) fn release_buffer(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        let buffer = std::mem::replace(&mut tcb.buffer, NONE);
        if buffer != NONE {
            self.buffers.release(buffer, &mut self.peers);
        }
    }

    /// The stream no longer refers to `source`.
    #[inline(always)]
    pub(crate) fn release_source(&mut self, source: Source) {
        match source.buffer() {
            Some(buffer) => self.writes.release(buffer, &mut self.peers),
            None => self.contents.release(source.index()),
        }
    }

    /// Frees a TCB that holds nothing any more.
    pub(crate) fn forget(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        match tcb.state {
            State::SynReceived => self.half_open -= 1,
            State::TimeWait => self.time_waits -= 1,
            _ => self.count_out(id),
        }
        let tcb = &mut self.records[id as usize].tcb;
        tcb.state = State::Closed;
        let peer_first = tcb.path.addresses.reversed();
        let hash = self.keys.hash(&peer_first, tcb.peer_port, tcb.own_port);
        let known = self.table.remove(hash, id);
        debug_assert!(known, "every TCB is in the table");
        self.wheel.cancel(id);
        self.free.push(id);
    }

    /// Puts a connection on the list of those that wait for the TX ring. A
    /// TCB that is freed meanwhile stays there; nothing is to be sent then.
    #[cold]
    pub(crate) fn block(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::BLOCKED) {
            return;
        }
        tcb.flags.set(Flags::BLOCKED);
        self.counters.blocked += 1;
        // Each connection at most once: there is place.
        self.blocked.push_back(id);
    }

    #[cold]
    fn resume_blocked<P: Port>(&mut self, port: &mut P, now: Moment) {
        // Whoever blocks again comes behind these, and has had its turn.
        for _ in 0..self.blocked.len() {
            if port.room() == 0 {
                return;
            }
            let Some(id) = self.blocked.pop_front() else {
                return;
            };
            let tcb = &mut self.records[id as usize].tcb;
            let owes_probe = tcb.flags.has(Flags::OWES_PROBE);
            tcb.flags.clear(Flags::BLOCKED | Flags::OWES_PROBE);
            if tcb.state == State::Closed {
                continue;
            }
            self.resume(port, id, now);
            if owes_probe && self.records[id as usize].tcb.flags.has(Flags::PERSIST) {
                self.probe(port, id, now);
            }
        }
    }
}
