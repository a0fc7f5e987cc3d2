//! The stack of one core: its TCP connections from the handshake to TIME-WAIT.

mod admission;
mod connections;
mod drain;
mod events;
mod handle;
mod input;
#[cfg(any(test, feature = "fuzzing"))]
mod invariants;
mod looking;
mod overview;
mod own_mac;
mod pressure;
mod setup;
mod shutdown;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod transmit;

pub use handle::{Part, WriteError};
pub use overview::{Overview, Sending};
pub use timer::{Deadline, Timer};

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ip::Packet;
use nmio::{Instant, Mailbox, Port, TimerWheel, Timers};

use crate::clock::Moment;
use crate::config::Config;
use crate::congestion::{CongestionControl, Cubic};
use crate::connection::conn::{Conn, Context, Record, SendInfo};
use crate::connection::{CloseReason, Flags, Plan, State, Tcb};
use crate::content::{Contents, Family};
use crate::emit::{Emitter, NoRoom, send_control, turn_around};
use crate::outcome::ControlSegment;
use crate::pools::{LendingPool, NONE, Peers, Pool};
use crate::stream::{Lists, Source};
use crate::table::{Keys, Table};
use overview::History;

/// Maximum number of candidates for eviction that a [`Sampler`] keeps from one search to the next.
const CANDIDATES: usize = 16;

/// State of the search for connections that give way, for one pool.
#[derive(Clone, Debug, Default)]
struct Sampler {
    /// Slot at which the next search of the pool continues.
    next_slot: usize,
    /// Slots whose holders were the next to give way in the last search.
    candidates: ArrayVec<u32, CANDIDATES>,
    /// The last asker, if no connection gave way to it.
    last_refusal: Option<Refusal>,
}

/// An `Asker` to which no connection gave way. For the rest of the millisecond, askers of the same address
/// with at least the same lag are refused without a search. So thousands of askers cost little time.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    at: u32,
    peer: u32,
    lag: u32,
}

/// Number of fractional bits in [`Stack::pace`].
const PACE_BITS: u32 = 20;

/// Returns the value of [`Stack::pace`] for a rate in bytes per second, which is not 0.
const fn pace_of(rate: u32) -> u64 {
    (1_000 << PACE_BITS) / rate as u64
}

/// A time in milliseconds that is further ahead than any deadline: 15 days. A deadline is at most 7 days
/// ahead. The sum of both is less than half the range of 32-bit times (24 days).
const BEYOND_MS: u32 = 15 * 24 * 3_600_000;

/// State that the stack keeps for each connection in addition to the TCB.
#[derive(Clone, Copy, Debug)]
struct Housekeeping {
    /// The virtual clock in milliseconds, comparable to [`Moment::millis`]: see `pressure.rs`. The
    /// clock wraps, so a lag of more than 24 days counts as no lag.
    progress: u32,
    /// Index of the client in [`Peers`], or [`NONE`] if the connection is not counted for its address.
    peer: u32,
    /// Time at which the connection's entry in the timer wheel expires, in milliseconds. If this
    /// time is later than the TCB's `deadline`, `Stack::reschedule_if_late` moves the entry.
    scheduled: u32,
    /// The application's deadline for the connection. Its purpose is `alarm_purpose`.
    alarm: Alarm,
    alarm_purpose: Deadline,
    /// Whether the connection is in the queue of connections that wait for room in the TX ring.
    is_blocked: bool,
    /// Whether to offer unconsumed data to the application again after the current callback.
    offers_again: bool,
    /// Whether the connection is parked: the application is offered no data until it is resumed.
    is_parked: bool,
    accessed: Accessed,
    /// Serial number of the connection: see [`ConnectionId`].
    serial: u64,
}

/// Whether the current callback has obtained the connection from [`Connections::get`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accessed {
    No,
    /// The callback has obtained the connection, whose send stream was empty at that time.
    Idle,
    /// The callback has obtained the connection, whose send stream was not empty at that time.
    Busy,
}

const _: () = assert!(size_of::<Housekeeping>() == 32);

/// The application's deadline for a connection, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alarm {
    Off,
    /// A callback has set the deadline, but `Stack::schedule` has not started it yet. The value is its delay.
    New(u32),
    /// The deadline is running. The value is the time at which it expires, comparable to
    /// [`Moment::millis`].
    At(u32),
}

impl Housekeeping {
    /// Returns the initial state of a connection that opens at `now`.
    const fn new(now: Moment) -> Self {
        Self {
            progress: now.millis,
            peer: NONE,
            // A time later than any deadline makes the stack add an entry to the timer wheel.
            scheduled: now.millis.wrapping_add(BEYOND_MS),
            alarm: Alarm::Off,
            alarm_purpose: Deadline::Request,
            is_blocked: false,
            offers_again: false,
            is_parked: false,
            accessed: Accessed::No,
            serial: 0,
        }
    }

    /// Advances the virtual clock to `now`, unless it is ahead. Called when the handshake is
    /// complete, and when the application has written to an empty send stream.
    #[inline(always)]
    fn renew(&mut self, now: Moment) {
        if now.millis.wrapping_sub(self.progress).cast_signed() > 0 {
            self.progress = now.millis;
        }
    }

    /// Returns the lag in milliseconds: how far the virtual clock is behind `now`.
    #[inline]
    fn lag(self, now: Moment) -> u32 {
        let lag = now.millis.wrapping_sub(self.progress).cast_signed();
        lag.max(0).unsigned_abs()
    }
}

/// What the application's callbacks request from the stack.
#[derive(Debug, Default)]
struct Requests {
    /// The pool that had no free slot when the current callback wrote data.
    exhausted_pool: Option<Pool>,
    /// Connections that the callback obtained from [`Connections::get`], to process afterwards.
    accessed: Vec<u32>,
    /// The application's own timers.
    timers: Timers<{ Timer::COUNT }>,
}

/// When and how fast SYN cookies were sent, to detect floods.
#[derive(Debug, Default)]
struct Flood {
    /// Time when the last cookie was sent, in microseconds.
    sent_at: Option<u64>,
    /// Whether the last two cookies were sent within `FLOOD_GAP_MICROS`.
    floods: bool,
}

/// State of a drain: see `drain.rs`.
#[derive(Debug)]
struct Draining {
    /// The next connection to visit in this round.
    next: u32,
    /// Whether a connection of this round has a message in progress.
    is_busy: bool,
    /// Whether a peer of this round has to acknowledge something.
    awaits_peers: bool,
    /// Start of the next round.
    resume_at: Instant,
    /// End of the first of the rounds in a row in which no connection was busy.
    quiet_since: Option<Instant>,
}

/// An application's callbacks. They include the paper's `tcp_accept()`, `tcp_recv()` and
/// `tcp_sent()` (see the [crate's documentation](crate)). The callbacks are methods of one trait,
/// so that the compiler can inline them.
///
/// A write only queues data. When the callback returns, the stack sends as much of the data as the
/// windows and the TX ring allow.
pub trait Application {
    /// The application's state for each connection. It starts as the default, and is dropped when
    /// the connection has closed.
    type State: Default;
    /// Type of messages from other threads, delivered through a mailbox ([`Stack::set_mailbox`]).
    /// Use `()` if there are no messages.
    type Message: Send;

    /// Called once when the stack is created, before the first connection. The application can set
    /// its first [timers](Connections::set_timer) here. Does nothing by default.
    fn on_start<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
    ) {
        let _ = connections;
    }

    /// A connection has opened: the final ACK of the handshake has proved the peer's address.
    /// Return `false` to refuse the connection. The stack then resets the connection, and does not
    /// call [`on_close`](Self::on_close). Accepts every connection by default.
    fn on_accept(&mut self, conn: &mut Connection<'_, Self::State>) -> bool {
        let _ = conn;
        true
    }

    /// Data has arrived: `data` is everything received in order and not yet consumed. Return the
    /// number of bytes consumed, 0 to `data.len()` (a larger number means `data.len()`).
    ///
    /// Unconsumed data stays in the connection's bounded receive buffer, so the window advertised
    /// to the peer shrinks. The stack offers the data again when more data arrives, after a
    /// [`WriteError::Full`] when the stream has room, and after [`Connection::offer_again`].
    ///
    /// Not called while the connection is [parked](Connection::park), nor after
    /// [`Connection::close`] or [`Connection::abort`]. After `close`, the stack acknowledges and
    /// discards received data.
    fn on_receive(&mut self, conn: &mut Connection<'_, Self::State>, data: &[u8]) -> usize;

    /// All written data has been acknowledged, or the stream has room again after a
    /// [`WriteError::Full`] or [`Connection::notify_of_room`]. Empty writes alone do not cause this
    /// callback.
    fn on_sent(&mut self, conn: &mut Connection<'_, Self::State>) {
        let _ = conn;
    }

    /// The peer has closed its side, and all its data has been offered. By default, closes our side
    /// too.
    fn on_half_close(&mut self, conn: &mut Connection<'_, Self::State>) {
        conn.close();
    }

    /// A [deadline](Connection::set_deadline) has passed. By default, closes our side.
    ///
    /// [`Connection::close`] does not end the connection immediately. First the peer must
    /// acknowledge all written data. The peer is then given
    /// [`Config::fin_wait`](crate::Config::fin_wait) to close its side. [`Connection::abort`] ends
    /// the connection immediately, with a reset.
    fn on_deadline(&mut self, conn: &mut Connection<'_, Self::State>, deadline: Deadline) {
        let _ = deadline;
        conn.close();
    }

    /// One of the application's [timers](Connections::set_timer) has expired. The application can
    /// access any of its connections through `connections`. Does nothing by default.
    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        timer: Timer,
    ) {
        let _ = (connections, timer);
    }

    /// A message from another thread has arrived. The application can access any of its connections
    /// through `connections`. Does nothing by default.
    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        message: Self::Message,
    ) {
        let _ = (connections, message);
    }

    /// The server stops, and this connection is still open. By default, closes our side when the
    /// connection is [idle](Connection::is_idle). Called for each open connection that does not wait
    /// for room, when the drain begins and then about every 10 ms ([`Stack::drain`]). An application
    /// decides here when a connection may end.
    fn on_drain(&mut self, conn: &mut Connection<'_, Self::State>) {
        if conn.is_idle() {
            conn.close();
        }
    }

    /// The connection with this [id](Connection::id) has ended. Called once for each connection
    /// that [`on_accept`](Self::on_accept) has accepted.
    fn on_close(&mut self, id: ConnectionId, state: &mut Self::State, reason: CloseReason) {
        let _ = (id, state, reason);
    }

    /// Writes the bytes of a content item's [slot](crate::Slot). `params` are the parameters given
    /// to [`Connection::write`] or [`Connection::write_slice`]. Fills the slot with spaces by
    /// default.
    ///
    /// The same parameters must always produce the same bytes, because segments may be
    /// retransmitted, and because resident packets keep the bytes for later responses. `slot`
    /// contains arbitrary bytes at first, so this method must write every byte.
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        let _ = params;
        slot.fill(b' ');
    }
}

/// Identifies a connection. The stack never reuses an id, so an application can keep the id even
/// after the connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    index: u32,
    /// Number of connections that the stack had opened up to and including this one.
    serial: u64,
}

/// The connections of a stack. Each vector but `free` has one element for each TCB. They are parallel, because
/// a record fills whole cache lines, and hardly any segment needs the `histories`.
struct ConnectionTable<S, C> {
    records: Vec<Record<C>>,
    /// The application's state for each connection.
    states: Vec<S>,
    housekeeping: Vec<Housekeeping>,
    /// What an operator may ask of each connection.
    histories: Vec<History>,
    /// TCBs that were used and are free again.
    free: Vec<u32>,
    /// Finds a TCB by the hash of its addresses and ports.
    index: Table,
    /// Number of connections opened so far, including half-open ones.
    opened: u64,
}

impl<S, C> ConnectionTable<S, C> {
    /// Returns the number of TCBs, including free ones. It never falls.
    fn len(&self) -> u32 {
        self.records.len() as u32
    }

    /// Returns the id that the application knows a connection by.
    fn id(&self, index: u32) -> ConnectionId {
        let serial = self.housekeeping[index as usize].serial;
        ConnectionId { index, serial }
    }
}

/// Where the bytes of stream entries are.
struct Sources {
    contents: Contents,
    writes: LendingPool<Vec<u8>>,
}

impl Sources {
    /// Releases the content item or write buffer of a stream entry that was removed.
    #[inline(always)]
    fn release(&mut self, source: Source, peers: &mut Peers) {
        match source.buffer() {
            Some(buffer) => self.writes.release(buffer, peers),
            None => self.contents.release(source.content_index()),
        }
    }
}

/// Access to all connections of an application, as passed to [`Application::on_start`],
/// [`Application::on_message`] and [`Application::on_timer`], and to the closure of
/// [`Stack::reach`].
pub struct Connections<'a, S, C> {
    table: &'a mut ConnectionTable<S, C>,
    sources: &'a mut Sources,
    cx: &'a mut Context<C>,
    requests: &'a mut Requests,
    now: Instant,
}

/// A connection, as passed to a callback or returned by [`Connections::get`].
pub struct Connection<'a, S> {
    tcb: &'a mut Tcb,
    state: &'a mut S,
    sources: &'a mut Sources,
    peers: &'a mut Peers,
    lists: &'a mut Lists,
    housekeeping: &'a mut Housekeeping,
    requests: &'a mut Requests,
    id: u32,
    now: Instant,
    send_info: SendInfo,
}

/// All TCP connections of one network port. The stack does no I/O itself, but only places packets
/// in the [`Port`]'s TX ring.
///
/// # Calling contract
///
/// Pass each received segment to [`handle_segment`](Self::handle_segment). Call
/// [`handle_timers`](Self::handle_timers) once per batch of segments, and no later than
/// [`poll_timeout`](Self::poll_timeout) says. `now` must not decrease between calls. Always use the
/// same port. A [`Server`](crate::Server) makes these calls as required.
///
/// `C` is the congestion control algorithm of all connections.
pub struct Stack<A: Application, C = Cubic> {
    app: A,
    table: ConnectionTable<A::State, C>,
    keys: Keys,
    wheel: TimerWheel,
    sources: Sources,
    /// Buffers for runs of several stream entries: see [`Emitter`].
    join_buffers: Vec<Arc<[u8]>>,
    requests: Requests,
    mailbox: Option<Mailbox<A::Message>>,
    cx: Context<C>,
    config: Config,
    /// Milliseconds per byte at [`Config::min_rate`], as a fixed-point number.
    pace: u64,
    flood: Flood,
    samplers: [Sampler; Pool::COUNT],
    /// Connections that wait for room in the TX ring, in order of arrival.
    blocked: VecDeque<u32>,
    draining: Option<Box<Draining>>,
    /// Number of TCBs that [`shut_down`](Self::shut_down) has already processed.
    shut_down_tcbs: u32,
    /// Time of the next check of the pools for unused memory.
    trim_at: Instant,
    /// The value of `now` in the last call.
    now: Instant,
    #[cfg(any(test, feature = "fuzzing"))]
    flights: Vec<invariants::LastFlight>,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Returns the application, and a connection in the form in which it is passed to callbacks.
    #[inline(always)]
    fn connection(&mut self, id: u32) -> (&mut A, Connection<'_, A::State>) {
        let send_info = self.conn(id).send_info();
        let connection = Connection {
            send_info,
            id,
            now: self.now,
            housekeeping: &mut self.table.housekeeping[id as usize],
            peers: &mut self.cx.peers,
            tcb: &mut self.table.records[id as usize].tcb,
            state: &mut self.table.states[id as usize],
            sources: &mut self.sources,
            lists: &mut self.cx.lists,
            requests: &mut self.requests,
        };
        (&mut self.app, connection)
    }

    #[inline(always)]
    fn tcb(&self, id: u32) -> &Tcb {
        &self.table.records[id as usize].tcb
    }

    #[inline(always)]
    fn tcb_mut(&mut self, id: u32) -> &mut Tcb {
        &mut self.table.records[id as usize].tcb
    }

    #[inline(always)]
    fn housekeeping(&mut self, id: u32) -> &mut Housekeeping {
        &mut self.table.housekeeping[id as usize]
    }

    /// Returns a connection's TCB and congestion control, together with the state that all
    /// connections share.
    #[inline(always)]
    fn conn(&mut self, id: u32) -> Conn<'_, C> {
        Conn::new(&mut self.table.records[id as usize], &mut self.cx)
    }

    /// Ends a connection: calls `on_close` and frees the TCB.
    #[cold]
    fn close(&mut self, id: u32, reason: CloseReason) {
        self.finish(id, reason);
        self.forget(id);
    }

    /// Tells the application that a connection has ended. Releases all resources of the connection
    /// except its TCB.
    fn finish(&mut self, id: u32, reason: CloseReason) {
        let counter = match reason {
            CloseReason::Finished => &mut self.cx.counters.finished,
            CloseReason::Reset => &mut self.cx.counters.reset_by_peer,
            CloseReason::TimedOut => &mut self.cx.counters.timed_out,
            CloseReason::Aborted => &mut self.cx.counters.aborted,
            CloseReason::Evicted => &mut self.cx.counters.evicted,
        };
        *counter += 1;
        self.cx.counters.drained += u64::from(self.draining.is_some());
        let (name, state) = (self.table.id(id), &mut self.table.states[id as usize]);
        self.app.on_close(name, state, reason);
        self.release_all(id);
    }

    /// Releases all resources of a connection except its TCB.
    fn release_all(&mut self, id: u32) {
        let end = self.tcb(id).stream.end();
        loop {
            let Conn { tcb, cx, .. } = self.conn(id);
            let Some(source) = tcb.stream.retire(end, &mut cx.lists, &mut cx.peers) else {
                break;
            };
            self.sources.release(source, &mut self.cx.peers);
        }
        self.conn(id).release();
        let class = std::mem::replace(&mut self.tcb_mut(id).class, Contents::NO_CLASS);
        self.sources.contents.release_class(class);
        self.table.states[id as usize] = A::State::default();
    }

    /// Frees a TCB whose resources have been released.
    fn forget(&mut self, id: u32) {
        let state = self.tcb(id).state;
        self.cx.states.change(state, State::Closed);
        if !matches!(state, State::SynReceived | State::TimeWait) {
            self.uncount_peer(id);
        }
        let tcb = self.tcb_mut(id);
        tcb.state = State::Closed;
        let peer_first = tcb.path.addresses.reversed();
        let (own_port, peer_port) = tcb.ports();
        let hash = self.keys.hash(&peer_first, peer_port, own_port);
        let was_present = self.table.index.remove(hash, id);
        debug_assert!(was_present, "every TCB is in the table");
        // The entry in the timer wheel stays for the next connection of this TCB.
        self.table.free.push(id);
    }

    /// Tries to borrow a larger scoreboard if the connection's current one is nearly full.
    fn ensure_space(&mut self, id: u32) {
        if self.conn(id).needs_larger_board(None) {
            self.lend_larger_board(id);
        }
    }

    /// Releases resources that loss recovery no longer needs. If the segment size has changed, also
    /// moves the connection to another class.
    fn settle_losses(&mut self, id: u32) {
        if let Some(old_class) = self.conn(id).release_unused() {
            self.sources.contents.release_class(old_class);
            self.find_class(id);
        }
    }

    /// Assigns a connection to the class for its IP family and segment size.
    fn find_class(&mut self, id: u32) {
        let tcb = &mut self.table.records[id as usize].tcb;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.sources.contents.acquire_class(family, tcb.mss);
    }

    /// Reschedules the connection's entry in the timer wheel if the entry would expire after the
    /// connection's deadline.
    #[inline(always)]
    fn reschedule_if_late(&mut self, id: u32, now: Moment) {
        let deadline = self.tcb(id).deadline;
        let scheduled = self.housekeeping(id).scheduled;
        if scheduled.wrapping_sub(deadline).cast_signed() > 0 {
            self.schedule(id, now);
        }
    }

    /// Starts a deadline that the application has just set. Then sets the connection's entry in the
    /// timer wheel to the earlier of the connection's and the application's deadline.
    #[inline(never)]
    fn schedule(&mut self, id: u32, now: Moment) {
        let tcb = self.tcb_mut(id);
        if tcb.state == State::Closed {
            return;
        }
        tcb.flags -= Flags::INHERITED_TIMER;
        let deadline = tcb.deadline;
        let housekeeping = &mut self.table.housekeeping[id as usize];
        if let Alarm::New(after) = housekeeping.alarm {
            housekeeping.alarm = Alarm::At(now.millis.wrapping_add(after));
        }
        housekeeping.scheduled = match housekeeping.alarm {
            Alarm::At(due) if deadline.wrapping_sub(due).cast_signed() > 0 => due,
            _ => deadline,
        };
        self.wheel.schedule(id, now.instant(housekeeping.scheduled));
    }

    /// Appends a connection to the queue of those that wait for room in the TX ring. If its TCB is
    /// free when the queue entry is processed, that entry is skipped.
    #[cold]
    fn block(&mut self, id: u32) {
        let is_blocked = &mut self.housekeeping(id).is_blocked;
        if std::mem::replace(is_blocked, true) {
            return;
        }
        self.cx.counters.sends_delayed += 1;
        // Each TCB is queued at most once, so the reserved capacity suffices.
        self.blocked.push_back(id);
    }

    /// Stops counting a connection for its client: the connection has ended or is in TIME-WAIT.
    #[inline]
    fn uncount_peer(&mut self, id: u32) {
        let peer = std::mem::replace(&mut self.housekeeping(id).peer, NONE);
        self.cx.peers.leave(peer);
    }

    /// Sends a planned retransmission or probe.
    #[cold]
    #[inline(never)]
    fn send<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        plan: &Plan,
        now: Moment,
    ) -> Result<(), NoRoom> {
        if port.room() == 0 {
            return Err(NoRoom);
        }
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        emitter.send(port, conn.tcb, *plan, conn.cx)?;
        let is_again = conn.has_sent(plan, now);
        self.table.histories[id as usize].add(0, 0, is_again.into());
        Ok(())
    }

    /// Answers a received packet with an ACK or SYN-ACK, in the received frame. If the answer
    /// cannot be sent now, it is sent later.
    #[inline(always)]
    fn answer<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        segment: ControlSegment,
        now: Moment,
    ) {
        let mut conn = self.conn(id);
        let (header, options) = conn.control_segment(segment, now);
        let fits = packet.payload_capacity() >= header.len() + options.len();
        if fits && turn_around(port, packet, &header, &options, conn.tcb.ends()).is_ok() {
            conn.has_sent_control(segment, &header);
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_around += 1;
        } else if segment == ControlSegment::Ack {
            conn.tcb.flags |= Flags::ACK_PENDING;
            self.block(id);
        } else {
            // The handshake's next retransmission takes the place of this SYN-ACK.
            self.cx.counters.sends_delayed += 1;
        }
    }

    /// Sends a segment without data when there is no received frame to reuse.
    #[cold]
    fn send_control<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: ControlSegment,
        now: Moment,
    ) -> Result<(), NoRoom> {
        let mut conn = self.conn(id);
        let (header, options) = conn.control_segment(segment, now);
        send_control(port, conn.tcb, &header, &options)?;
        conn.has_sent_control(segment, &header);
        self.cx.counters.segments_sent += 1;
        Ok(())
    }

    /// Sends a reset. If the TX ring is full or no frame is free, the reset is dropped.
    #[cold]
    fn send_reset<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let sent = self.send_control(port, id, ControlSegment::Reset, now);
        self.cx.counters.ring_full += u64::from(sent.is_err());
    }

    /// Resets and closes a connection that the application has aborted.
    #[cold]
    fn abort<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.send_reset(port, id, now);
        self.close(id, CloseReason::Aborted);
    }

    /// Returns a connection, and the emitter that sends its segments.
    #[inline(always)]
    fn conn_and_emitter(&mut self, id: u32) -> (Conn<'_, C>, Emitter<'_, A>) {
        let Sources { contents, writes } = &mut self.sources;
        let (app, buffers) = (&mut self.app, &mut self.join_buffers);
        let emitter = Emitter::new(app, contents, writes, buffers, self.config.mode);
        let conn = Conn::new(&mut self.table.records[id as usize], &mut self.cx);
        (conn, emitter)
    }
}
