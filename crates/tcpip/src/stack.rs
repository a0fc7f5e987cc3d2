//! The stack of one core: its TCP connections from the handshake to TIME-WAIT.

mod admission;
mod connections;
mod events;
mod handle;
mod input;
#[cfg(any(test, fuzzing))]
mod invariants;
mod pressure;
mod setup;
mod shutdown;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timer;

pub use handle::WriteError;
pub use timer::{Deadline, Timer};

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use ip::Packet;
use nmio::{Instant, Mailbox, Port, TimerWheel, Timers};

use crate::clock::Moment;
use crate::config::Config;
use crate::congestion::{CongestionControl, Cubic};
use crate::connection::{CloseReason, Conn, Context, Flags, Plan, Record, SendInfo, State, Tcb};
use crate::content::{Contents, Family, NO_CLASS};
use crate::emit::{Emitter, NoRoom, send_control, turn_around};
use crate::outcome::ControlSegment;
use crate::pools::{NONE, Owner, Peers, Pool};
use crate::stream::{Lists, Source};
use crate::table::{Keys, Table};
use crate::writes::Writes;

/// Slots that a sampler keeps as candidates, because their holders lacked the most progress.
const CANDIDATES: usize = 16;

/// The search for a victim in one pool: where it goes on, and what it found so far.
#[derive(Clone, Debug, Default)]
struct Sampler {
    hand: usize,
    candidates: ArrayVec<u32, CANDIDATES>,
    refused: Option<Refused>,
}

/// The last asker for whom no victim was found. Thousands may ask at once. So in the same
/// millisecond, askers of that address with at least this lack are refused without a search.
#[derive(Clone, Copy, Debug)]
struct Refused {
    at: u32,
    peer: u32,
    lack: u32,
}

/// A connection that asks for a slot of a pool.
#[derive(Clone, Copy, Debug)]
struct Asker {
    owner: Owner,
    lack: u32,
}

/// How far progress may lie ahead of now, in milliseconds: the credit of a fast reader.
const CREDIT_MS: u32 = 20_000;

/// 15 days in milliseconds: beyond any deadline (7 days), and below the clock's wrap (49 days).
const BEYOND_MS: u32 = 15 * 24 * 3_600_000;

/// Milliseconds that one byte takes at a given rate, as a fixed-point number with 20 binary places.
#[derive(Clone, Copy, Debug)]
struct Pace(u64);

impl Pace {
    /// Converts a rate in bytes a second; 0 means 1.
    const fn of(rate: u32) -> Self {
        let rate = if rate == 0 { 1 } else { rate };
        Self((1_000 << 20) / rate as u64)
    }

    /// Returns the milliseconds that `bytes` take.
    #[inline(always)]
    const fn millis(self, bytes: u32) -> u64 {
        (bytes as u64 * self.0) >> 20
    }
}

/// Per-connection state of the stack beside the TCB. Its progress decides who must give way.
///
/// A connection's *progress* is a moment in virtual time. It is set to now when the connection
/// opens, and when the application answers a request while nothing else is pending. Each byte that
/// the peer acknowledges or the application consumes advances it by the time of a byte at
/// [`Config::min_rate`](crate::Config::min_rate). It never runs more than [`CREDIT_MS`] ahead of
/// now. The connection's *lack* is its distance behind now.
///
/// A reader at that rate or above does not age. Idle connections, requests that arrive byte by
/// byte, zero windows and much slower readers age at nearly real time. The rate is averaged over at
/// least [`CREDIT_MS`]. When a pool runs short, the connection with the largest lack gives way (see
/// `pressure.rs`).
#[derive(Clone, Copy, Debug)]
struct Housekeeping {
    /// In milliseconds, as [`Moment::millis`]. It wraps: a lack of more than 24 days counts as
    /// none.
    progress: u32,
    /// The client's entry in [`Peers`], or [`NONE`] if the connection does not count for its
    /// address.
    peer: u32,
    /// When the entry in the timer wheel expires, in milliseconds. Not later than the connection's
    /// deadline and the application's deadline.
    scheduled: u32,
    /// The application's deadline, and its purpose.
    alarm: Alarm,
    due_for: Deadline,
    /// Whether the connection is in the queue for the TX ring.
    is_blocked: bool,
    /// Whether to offer unconsumed data again after the current callback.
    offers_again: bool,
    /// Whether the connection is parked: nothing is offered until it is resumed.
    is_parked: bool,
    accessed: Accessed,
    /// Serial number of the connection, see [`ConnectionId`].
    serial: u64,
}

/// Whether the application got the connection from [`Connections::get`] in this callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accessed {
    No,
    /// Yes, and its send stream was empty before.
    Idle,
    /// Yes, and its send stream was not empty before.
    Busy,
}

const _: () = assert!(size_of::<Housekeeping>() == 32);

/// The application's deadline for a connection, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alarm {
    Off,
    /// Newly set: it starts at the end of the callback, and runs this long.
    New(u32),
    /// It expires at this [`Moment::millis`].
    At(u32),
}

impl Housekeeping {
    /// Returns the state of a connection that opens at `now`.
    const fn new(now: Moment) -> Self {
        Self {
            progress: now.millis,
            peer: NONE,
            // The wheel has no entry yet.
            scheduled: now.millis.wrapping_add(BEYOND_MS),
            alarm: Alarm::Off,
            due_for: Deadline::Request,
            is_blocked: false,
            offers_again: false,
            is_parked: false,
            accessed: Accessed::No,
            serial: 0,
        }
    }

    /// Advances progress by `bytes` that were acknowledged or consumed.
    #[inline(always)]
    fn advance(&mut self, bytes: u32, pace: Pace, now: Moment) {
        let most = now
            .millis
            .wrapping_add(CREDIT_MS)
            .wrapping_sub(self.progress);
        let gained = pace.millis(bytes).min(most.into()) as u32;
        self.progress = self.progress.wrapping_add(gained);
    }

    /// Brings progress up to now: a request was answered while nothing else was pending.
    #[inline(always)]
    fn renew(&mut self, now: Moment) {
        if now.millis.wrapping_sub(self.progress).cast_signed() > 0 {
            self.progress = now.millis;
        }
    }

    /// Returns the milliseconds by which progress lies behind `now`.
    #[inline]
    fn lack(self, now: Moment) -> u32 {
        let lack = now.millis.wrapping_sub(self.progress).cast_signed();
        lack.max(0).unsigned_abs()
    }
}

/// Requests of a callback to the stack itself.
#[derive(Debug, Default)]
struct Asked {
    /// The pool in which the current callback found no free slot.
    refused: Option<Pool>,
    timers: Timers<{ Timer::COUNT }>,
}

/// The time and rate of the SYN cookies sent.
#[derive(Debug, Default)]
struct Flood {
    /// When the last cookie was sent, in microseconds.
    baked_at: Option<u64>,
    /// Whether the last two cookies were sent shortly after each other.
    floods: bool,
}

/// The callbacks of a server: the paper's Table 1 (`tcp_accept()`, `tcp_recv()`, `tcp_sent()`),
/// joined in one trait so that they inline.
///
/// A write in a callback only queues. The stack sends the data when the callback returns, as far as
/// the windows and the TX ring allow.
pub trait Application {
    /// The application's state of one connection. It starts as the default, and is dropped when the
    /// connection has closed.
    type State: Default;
    /// Messages from other threads, which come through a mailbox ([`Stack::set_mailbox`]). `()` if
    /// there are none.
    type Message: Send;

    /// Called once when the stack is made, before the first connection. The application can set its
    /// first [timers](Connections::set_timer) here. Does nothing by default.
    fn on_start<C: CongestionControl>(&mut self, all: &mut Connections<'_, Self::State, C>) {
        let _ = all;
    }

    /// A connection has opened: the third segment of the handshake has proved the peer's address.
    /// `false` refuses the connection with a reset, without [`on_close`](Self::on_close).
    fn on_accept(&mut self, conn: &mut Connection<'_, Self::State>) -> bool {
        let _ = conn;
        true
    }

    /// Data has arrived: `data` is everything received in order and not yet consumed. Returns the
    /// number of bytes consumed, 0 to `data.len()` (a larger number means `data.len()`).
    ///
    /// Unconsumed data stays in the connection's bounded receive buffer, so the peer's window
    /// shrinks. The stack offers it again together with the next data that arrives. After a
    /// [`WriteError::Full`] it also offers it again when the stream has room.
    ///
    /// Not called after [`Connection::close`] or [`Connection::abort`]: later data is acknowledged
    /// and discarded.
    fn on_receive(&mut self, conn: &mut Connection<'_, Self::State>, data: &[u8]) -> usize;

    /// All written data has been acknowledged, or the stream has room again after a
    /// [`WriteError::Full`]. Empty writes alone do not cause this callback.
    fn on_sent(&mut self, conn: &mut Connection<'_, Self::State>) {
        let _ = conn;
    }

    /// The peer has closed its side, and all its data has been offered. Closes our side too by
    /// default.
    fn on_half_close(&mut self, conn: &mut Connection<'_, Self::State>) {
        conn.close();
    }

    /// A [deadline](Connection::set_deadline) has passed. Closes our side by default.
    ///
    /// [`Connection::close`] does not end the connection at once. First the peer must acknowledge
    /// all written data; then it has [`Config::fin_wait`](crate::Config::fin_wait) to close its
    /// side. [`Connection::abort`] ends the connection at once, with a reset.
    fn on_deadline(&mut self, conn: &mut Connection<'_, Self::State>, deadline: Deadline) {
        let _ = deadline;
        conn.close();
    }

    /// A [timer](Connections::set_timer) of the application has expired. The application can reach
    /// any of its connections here. Does nothing by default.
    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        timer: Timer,
    ) {
        let _ = (connections, timer);
    }

    /// A message has come from another thread. The application can reach any of its connections
    /// through `connections`. Does nothing by default.
    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        message: Self::Message,
    ) {
        let _ = (connections, message);
    }

    /// The connection with this [name](Connection::id) has ended. Called once for each connection
    /// that [`on_accept`](Self::on_accept) accepted.
    fn on_close(&mut self, id: ConnectionId, state: &mut Self::State, reason: CloseReason) {
        let _ = (id, state, reason);
    }

    /// Writes the bytes of a content's [slot](crate::Slot) for `params`, the parameters given to
    /// [`Connection::write`] or [`Connection::write_slice`].
    ///
    /// The same parameters must give the same bytes for the whole connection, because segments may
    /// be retransmitted. `slot` has arbitrary content at first: write all of its bytes.
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        let _ = params;
        slot.fill(b' ');
    }
}

/// The name of one connection. No later connection of the stack has the same name, so an
/// application can keep it as long as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    index: u32,
    /// Number of connections the stack had opened, including this one.
    serial: u64,
}

/// All connections of an application: see [`Application::on_message`].
pub struct Connections<'a, S, C> {
    states: &'a mut [S],
    housekeeping: &'a mut [Housekeeping],
    records: &'a mut [Record<C>],
    contents: &'a mut Contents,
    writes: &'a mut Writes,
    cx: &'a mut Context<C>,
    asked: &'a mut Asked,
    accessed: &'a mut Vec<u32>,
    now: Instant,
}

/// A connection, as a callback sees it.
pub struct Connection<'a, S> {
    tcb: &'a mut Tcb,
    state: &'a mut S,
    contents: &'a mut Contents,
    writes: &'a mut Writes,
    peers: &'a mut Peers,
    lists: &'a mut Lists,
    housekeeping: &'a mut Housekeeping,
    asked: &'a mut Asked,
    id: u32,
    now: Instant,
    send_info: SendInfo,
}

/// All TCP connections of one port. It does no I/O except that it fills the TX ring.
///
/// # Calling contract
/// Pass each received segment to [`handle_segment`](Self::handle_segment). Call
/// [`handle_timers`](Self::handle_timers) once per batch, and at the latest at
/// [`poll_timeout`](Self::poll_timeout). `now` must not decrease between calls. Always use the same
/// port. A [`Server`](crate::Server) does all this.
///
/// `C` is the congestion control of every connection.
pub struct Stack<A: Application, C = Cubic> {
    app: A,
    /// The application's state of each connection, with the same index as `records`.
    states: Vec<A::State>,
    /// The stack's state of each connection, with the same index as `records`.
    housekeeping: Vec<Housekeeping>,
    records: Vec<Record<C>>,
    /// Used TCBs that are free again.
    free: Vec<u32>,
    table: Table,
    keys: Keys,
    wheel: TimerWheel,
    contents: Contents,
    writes: Writes,
    asked: Asked,
    mailbox: Option<Mailbox<A::Message>>,
    cx: Context<C>,
    config: Config,
    /// The pace of [`Config::min_rate`].
    pace: Pace,
    half_open: u32,
    time_waits: u32,
    /// Connections opened so far, including half-open ones.
    opened: u64,
    /// Connections the application got from [`Connections::get`], to be processed after its
    /// callback.
    accessed: Vec<u32>,
    flood: Flood,
    samplers: [Sampler; Pool::COUNT],
    /// Connections that wait for room in the TX ring, in order of arrival.
    blocked: VecDeque<u32>,
    /// Number of records already shut down, see [`shut_down`](Self::shut_down).
    shut_down_records: usize,
    /// When the pools are next checked for unused memory.
    trim_at: Instant,
    /// Time of the last call.
    now: Instant,
    #[cfg(any(test, fuzzing))]
    flights: Vec<invariants::Flight>,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Returns a connection as a callback gets it, and the application.
    #[inline(always)]
    fn connection(&mut self, id: u32) -> (&mut A, Connection<'_, A::State>) {
        let send_info = self.conn(id).send_info();
        let connection = Connection {
            send_info,
            id,
            now: self.now,
            housekeeping: &mut self.housekeeping[id as usize],
            peers: &mut self.cx.peers,
            tcb: &mut self.records[id as usize].tcb,
            state: &mut self.states[id as usize],
            contents: &mut self.contents,
            writes: &mut self.writes,
            lists: &mut self.cx.lists,
            asked: &mut self.asked,
        };
        (&mut self.app, connection)
    }

    /// Returns a connection's TCB and congestion control with the shared state.
    #[inline(always)]
    fn conn(&mut self, id: u32) -> Conn<'_, C> {
        Conn::new(&mut self.records[id as usize], &mut self.cx)
    }

    /// Ends a connection: calls `on_close` and frees the TCB.
    #[cold]
    fn close(&mut self, id: u32, reason: CloseReason) {
        self.finish(id, reason);
        self.forget(id);
    }

    /// Ends the application's part of a connection.
    fn finish(&mut self, id: u32, reason: CloseReason) {
        let counter = match reason {
            CloseReason::Finished => &mut self.cx.counters.finished,
            CloseReason::Reset => &mut self.cx.counters.reset_by_peer,
            CloseReason::TimedOut => &mut self.cx.counters.timed_out,
            CloseReason::Aborted => &mut self.cx.counters.aborted,
            CloseReason::Evicted => &mut self.cx.counters.evicted,
        };
        *counter += 1;
        let (index, serial) = (id, self.housekeeping[id as usize].serial);
        let (name, state) = (
            ConnectionId { index, serial },
            &mut self.states[id as usize],
        );
        self.app.on_close(name, state, reason);
        self.release_all(id);
    }

    /// Releases everything that a connection holds except its TCB.
    fn release_all(&mut self, id: u32) {
        let end = self.records[id as usize].tcb.stream.end();
        while let Some(source) =
            self.records[id as usize]
                .tcb
                .stream
                .retire(end, &mut self.cx.lists, &mut self.cx.peers)
        {
            self.release_source(source);
        }
        self.conn(id).release();
        let tcb = &mut self.records[id as usize].tcb;
        let class = std::mem::replace(&mut tcb.class, NO_CLASS);
        self.contents.release_class(class);
        self.states[id as usize] = A::State::default();
    }

    /// Releases the content or write buffer of a stream entry that was removed.
    #[inline(always)]
    fn release_source(&mut self, source: Source) {
        match source.buffer() {
            Some(buffer) => self.writes.release(buffer, &mut self.cx.peers),
            None => self.contents.release(source.content_index()),
        }
    }

    /// Frees a TCB that holds no resources any more.
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

    /// Asks for a larger scoreboard if the connection's own is nearly full.
    fn ensure_space(&mut self, id: u32) {
        if self.conn(id).needs_larger_board(None) {
            self.lend_larger_board(id);
        }
    }

    /// Releases what loss recovery no longer needs. If the segment size has changed, also finds a
    /// new class.
    fn settle_losses(&mut self, id: u32) {
        if let Some(left) = self.conn(id).release_unused() {
            self.contents.release_class(left);
            self.find_class(id);
        }
    }

    /// Finds a class for a connection's segments.
    fn find_class(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.contents.acquire_class(family, tcb.mss);
    }

    /// Reschedules the wheel's entry if it would expire after the connection's deadline.
    #[inline(always)]
    fn keep_time(&mut self, id: u32, now: Moment) {
        let deadline = self.records[id as usize].tcb.deadline;
        let scheduled = self.housekeeping[id as usize].scheduled;
        if scheduled.wrapping_sub(deadline).cast_signed() > 0 {
            self.schedule(id, now);
        }
    }

    /// Sets the wheel's entry to the connection's deadline or the application's, if that is
    /// earlier.
    #[inline(never)]
    fn schedule(&mut self, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::Closed {
            return;
        }
        let deadline = tcb.deadline;
        let housekeeping = &mut self.housekeeping[id as usize];
        if let Alarm::New(after) = housekeeping.alarm {
            housekeeping.alarm = Alarm::At(now.millis.wrapping_add(after));
        }
        housekeeping.scheduled = match housekeeping.alarm {
            Alarm::At(due) if deadline.wrapping_sub(due).cast_signed() > 0 => due,
            _ => deadline,
        };
        self.wheel.schedule(id, now.instant(housekeeping.scheduled));
    }

    /// Appends a connection to the queue for the TX ring. A TCB that is freed meanwhile stays
    /// queued, and is skipped later.
    #[cold]
    fn block(&mut self, id: u32) {
        let is_blocked = &mut self.housekeeping[id as usize].is_blocked;
        if std::mem::replace(is_blocked, true) {
            return;
        }
        self.cx.counters.blocked += 1;
        // A connection is queued at most once, so this does not allocate.
        self.blocked.push_back(id);
    }

    /// Stops counting a connection for its address: it has ended, or is in TIME-WAIT.
    #[inline]
    fn count_out(&mut self, id: u32) {
        let peer = std::mem::replace(&mut self.housekeeping[id as usize].peer, NONE);
        self.cx.peers.leave(peer);
    }

    /// Sends lost and new data, as far as the congestion window, the peer's window and the TX ring
    /// allow.
    #[inline(always)]
    fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if self.records[id as usize].tcb.is_recovering() {
            self.retransmit(port, id, now);
        }
        if !self.conn(id).has_new() {
            return;
        }
        if let Some(plan) = self.conn(id).next_mtu_probe(now) {
            // Without room in the TX ring the probe leaves another time.
            let _ = self.send(port, id, &plan, now);
        }
        let segmentation = port.capabilities().segmentation;
        let mut room = port.room();
        let (mut conn, mut emitter) = self.conn_and_emitter(id);
        let mut burst = conn.begin_burst(segmentation, now);
        let mut is_refused = false;
        while let Some(plan) = conn.next_segment(&mut burst, room, now) {
            let counters = &mut conn.cx.counters;
            if emitter.send(port, conn.tcb, plan, counters).is_err() {
                is_refused = true;
                break;
            }
            conn.has_sent_segment(&mut burst, plan, now);
            room -= 1;
        }
        if conn.end_burst(&burst, is_refused, now) {
            self.block(id);
        }
    }

    /// Retransmits lost segments.
    #[cold]
    #[inline(never)]
    fn retransmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.ensure_space(id);
        while let Some(plan) = self.conn(id).next_lost(now) {
            if self.send(port, id, &plan, now).is_err() {
                self.block(id);
                return;
            }
            self.ensure_space(id);
        }
    }

    /// Sends a segment other than the next new data.
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
        emitter.send(port, conn.tcb, *plan, &mut conn.cx.counters)?;
        conn.has_sent(plan, now);
        Ok(())
    }

    /// Answers with a segment without data, written into the received frame.
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
        let fits = packet.payload_capacity() >= header.len() + options.bytes().len();
        if fits && turn_around(port, packet, &header, &options, conn.tcb.ports()).is_ok() {
            conn.has_sent_control(segment, &header);
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else if segment == ControlSegment::Ack {
            conn.tcb.flags |= Flags::ACK_PENDING;
            self.block(id);
        } else {
            // The retransmission timer sends it again.
            self.cx.counters.blocked += 1;
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

    /// Sends a reset, and does not wait if the TX ring is full.
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
        let (app, contents) = (&mut self.app, &mut self.contents);
        let emitter = Emitter::new(app, contents, &self.writes, self.config.mode);
        let conn = Conn::new(&mut self.records[id as usize], &mut self.cx);
        (conn, emitter)
    }
}
