//! The stack: one core's connections, from opening to forgetting.

mod admission;
mod flood;
mod input;
#[cfg(any(test, fuzzing))]
mod invariants;
mod opening;
mod pressure;
mod receiving;
mod sending;
mod shutdown;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use nmio::{Capabilities, Instant, TimerWheel};

use self::flood::Flood;
use crate::app::{Application, Connection};
use crate::clock::Moment;
use crate::config::Config;
use crate::congestion::{CongestionControl, Cubic};
use crate::connection::{CloseReason, Conn, Context, Record, State};
use crate::content::{Contents, NO_CLASS};
use crate::counters::Counters;
use crate::emit::Emitter;
use crate::pools::{Owner, Pool};
use crate::progress::{Pace, Standing};
use crate::segments::Family;
use crate::stream::Source;
use crate::table::{Keys, Table};
use crate::wire::TIMESTAMPS_LEN;
use crate::writes::Writes;

/// What the timer wheel takes for each connection.
const TIMER_LEN: usize = 16;

/// Parts of a pool whose holders lacked most when they were looked at: they are
/// looked at again.
const CANDIDATES: usize = 16;

/// Where a pool was looked at last.
#[derive(Clone, Debug, Default)]
struct Sampler {
    hand: usize,
    candidates: ArrayVec<u32, CANDIDATES>,
    refused: Option<Refused>,
}

/// Who found nobody to give way. In the same millisecond others of that address
/// who lack as much are not looked for again: thousands may ask at once.
#[derive(Clone, Copy, Debug)]
struct Refused {
    at: u32,
    peer: u32,
    lack: u32,
}

/// Who asks for a part of a pool.
#[derive(Clone, Copy, Debug)]
struct Asker {
    owner: Owner,
    lack: u32,
}

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
    app: A,
    /// Beside the TCBs: what the application remembers of each.
    states: Vec<A::State>,
    /// Beside the TCBs: what decides whether each may stay.
    standings: Vec<Standing>,
    records: Vec<Record<C>>,
    /// TCBs that were used and are free.
    free: Vec<u32>,
    table: Table,
    keys: Keys,
    wheel: TimerWheel,
    contents: Contents,
    writes: Writes,
    /// The pool of which the callback in hand has found nothing free.
    refused: Option<Pool>,
    cx: Context<C>,
    config: Config,
    /// That of [`Config::min_rate`].
    pace: Pace,
    half_open: u32,
    time_waits: u32,
    flood: Flood,
    samplers: [Sampler; Pool::COUNT],
    /// Those that the TX ring had no room for, first come first served.
    blocked: VecDeque<u32>,
    /// Number of records already shut down, see
    /// [`hang_up`](Self::hang_up).
    hung_up: usize,
    /// When pools are next looked at for memory that was not needed.
    trim_at: Instant,
    /// When it was last called.
    now: Instant,
    #[cfg(any(test, fuzzing))]
    flights: Vec<invariants::Flight>,
}

impl<A: Application, C> Stack<A, C> {
    /// Bytes of the tables that [`new`](Self::new) reserves for
    /// [`Config::max_connections`]. They are touched as connections are first
    /// used.
    pub fn reserved_bytes(config: &Config) -> usize {
        let most = config.clamped().max_connections;
        // `free` and `blocked`.
        let indices = 2 * size_of::<u32>();
        let records = size_of::<A::State>() + size_of::<Standing>() + size_of::<Record<C>>();
        let each = records + TIMER_LEN + indices;
        most as usize * each + Table::bytes(most) + Context::<C>::reserved_bytes(most)
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
        let config = config.clamped();
        let cx = Context::new(&config, capabilities.mtu);
        let most = config.max_connections;
        let own_mss = cx.own_mss;
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
                config.mode,
                own_mss.of(Family::V4) - TIMESTAMPS_LEN as u16,
                own_mss.of(Family::V6) - TIMESTAMPS_LEN as u16,
                config.class_budget,
            ),
            writes: Writes::new(Pool::WriteBuffers, config.max_write_buffers),
            refused: None,
            cx,
            pace: Pace::of(config.min_rate),
            config,
            half_open: 0,
            time_waits: 0,
            flood: Flood::default(),
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
        &self.cx.counters
    }

    /// Connections now, half-open ones and those in TIME-WAIT included.
    pub fn connections(&self) -> u32 {
        self.table.len()
    }

    /// Whether connections are accepted on `port`.
    #[inline]
    pub fn serves(&self, port: u16) -> bool {
        self.config.ports.contains(&port)
    }

    /// A connection, in the hands of a callback.
    #[inline(always)]
    fn connection(&mut self, id: u32) -> (&mut A, Connection<'_, A::State>) {
        let sight = self.conn(id).sight();
        let connection = Connection {
            sight,
            id,
            standing: &mut self.standings[id as usize],
            peers: &mut self.cx.peers,
            tcb: &mut self.records[id as usize].tcb,
            state: &mut self.states[id as usize],
            contents: &mut self.contents,
            writes: &mut self.writes,
            lists: &mut self.cx.lists,
            refused: &mut self.refused,
        };
        (&mut self.app, connection)
    }

    /// A connection in hand.
    #[inline(always)]
    fn conn(&mut self, id: u32) -> Conn<'_, C> {
        Conn::new(&mut self.records[id as usize], &mut self.cx)
    }

    /// The same, and what sends its segments.
    #[inline(always)]
    fn conn_and_emitter(&mut self, id: u32) -> (Conn<'_, C>, Emitter<'_, A>) {
        let (app, contents) = (&mut self.app, &mut self.contents);
        let emitter = Emitter::new(app, contents, &self.writes, self.config.mode);
        let conn = Conn::new(&mut self.records[id as usize], &mut self.cx);
        (conn, emitter)
    }

    /// A free TCB, or `None` when all are in use.
    fn take_tcb(&mut self) -> Option<u32> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        if self.records.len() >= self.config.max_connections as usize {
            return None;
        }
        self.records.push(Record::closed());
        self.states.push(A::State::default());
        self.standings.push(Standing::new(Moment::new(self.now)));
        Some(self.records.len() as u32 - 1)
    }

    /// Ends a connection: tells the application, and forgets it.
    #[cold]
    fn close(&mut self, id: u32, reason: CloseReason) {
        self.finish(id, reason);
        self.forget(id);
    }

    /// The application's part of a connection ends here.
    fn finish(&mut self, id: u32, reason: CloseReason) {
        let counter = match reason {
            CloseReason::Finished => &mut self.cx.counters.finished,
            CloseReason::Reset => &mut self.cx.counters.reset_by_peer,
            CloseReason::TimedOut => &mut self.cx.counters.timed_out,
            CloseReason::Aborted => &mut self.cx.counters.aborted,
            CloseReason::Evicted => &mut self.cx.counters.evicted,
        };
        *counter += 1;
        self.app.on_close(&mut self.states[id as usize], reason);
        self.release_all(id);
    }

    /// Gives back all that a connection holds but its TCB.
    fn release_all(&mut self, id: u32) {
        while let Some(source) = self.conn(id).discard() {
            self.release_source(source);
        }
        self.conn(id).release();
        let tcb = &mut self.records[id as usize].tcb;
        let class = std::mem::replace(&mut tcb.class, NO_CLASS);
        self.contents.release_class(class);
        self.states[id as usize] = A::State::default();
    }

    /// The stream no longer refers to `source`.
    #[inline(always)]
    fn release_source(&mut self, source: Source) {
        match source.buffer() {
            Some(buffer) => self.writes.release(buffer, &mut self.cx.peers),
            None => self.contents.release(source.index()),
        }
    }

    /// Frees a TCB that holds nothing any more.
    fn forget(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        match tcb.state {
            State::SynReceived => self.half_open -= 1,
            State::TimeWait => self.time_waits -= 1,
            _ => self.count_out(id),
        }
        let tcb = &mut self.records[id as usize].tcb;
        tcb.state = State::Closed;
        let peer_first = tcb.path.addresses.reversed();
        let (own_port, peer_port) = tcb.ports();
        let hash = self.keys.hash(&peer_first, peer_port, own_port);
        let known = self.table.remove(hash, id);
        debug_assert!(known, "every TCB is in the table");
        self.wheel.cancel(id);
        self.free.push(id);
    }
}
