//! The stack: one core's connections, from opening to forgetting.

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
use crate::emit::{Emitter, NoRoom, send_control, turn_round};
use crate::outcome::ControlSegment;
use crate::pools::{NONE, Owner, Peers, Pool};
use crate::stream::{Lists, Source};
use crate::table::{Keys, Table};
use crate::writes::Writes;

/// Slots of a pool that stay candidates, as their holders lacked most when sampled.
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

/// Milliseconds of credit for a fast reader: progress may be so far ahead of now.
const CREDIT_MS: u32 = 20_000;

/// 15 days in milliseconds: beyond any deadline (7 days), and before the clock's wrap (49).
const BEYOND_MS: u32 = 15 * 24 * 3_600_000;

/// Milliseconds that a byte takes at a rate, with 20 bits behind the point.
#[derive(Clone, Copy, Debug)]
struct Pace(u64);

impl Pace {
    /// Of `rate` bytes a second; 0 is taken as 1.
    const fn of(rate: u32) -> Self {
        let rate = if rate == 0 { 1 } else { rate };
        Self((1_000 << 20) / rate as u64)
    }

    /// Milliseconds that `bytes` take.
    #[inline(always)]
    const fn millis(self, bytes: u32) -> u64 {
        (bytes as u64 * self.0) >> 20
    }
}

/// Decides, beside the TCB, whether a connection may stay: by its progress.
///
/// A connection's *progress* is a moment in virtual time. It is set to now when the
/// connection opens, and when the application answers a request while nothing else is
/// pending. Each byte that the peer acknowledges or the application consumes advances it
/// by the time of a byte at [`Config::min_rate`](crate::Config::min_rate), at most to
/// [`CREDIT_MS`] ahead of now. The connection's *lack* is its distance behind now.
///
/// A reader at that rate or above does not age. An idle connection, a request that
/// arrives byte by byte, a zero window and a far slower reader age at nearly real time.
/// The rate is averaged over [`CREDIT_MS`] at least. When a pool runs short, the
/// connection with the largest lack gives way (see `pressure.rs`).
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// In milliseconds, as [`Moment::millis`]. It wraps: a lack of more than 24
    /// days is taken as none.
    progress: u32,
    /// The client's entry in [`Peers`], or [`NONE`] while it is not counted.
    peer: u32,
    /// When the wheel's entry expires, in milliseconds: at the connection's
    /// deadline or at the application's, or sooner.
    scheduled: u32,
    /// The application's deadline, and what it is for.
    alarm: Alarm,
    due_for: Deadline,
    /// On the list of those that the TX ring had no room for.
    is_blocked: bool,
    /// What is not consumed is to be offered again after the callback in hand.
    offers_again: bool,
    /// Nothing is offered until it is resumed.
    is_parked: bool,
    reached: Reached,
    /// See [`ConnectionId`].
    serial: u64,
}

/// Whether the application has a connection in hand by no segment of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    No,
    /// It has, and owed it nothing before.
    Idle,
    /// It has, and something was on its way.
    Busy,
}

const _: () = assert!(size_of::<Standing>() == 32);

/// A deadline of the application, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alarm {
    Off,
    /// Just set: it runs from the end of the callback on, for so long.
    New(u32),
    /// It runs, to this [`Moment::millis`].
    At(u32),
}

impl Standing {
    /// Of a connection that begins at `now`.
    const fn new(now: Moment) -> Self {
        Self {
            progress: now.millis,
            peer: NONE,
            // There is no entry yet.
            scheduled: now.millis.wrapping_add(BEYOND_MS),
            alarm: Alarm::Off,
            due_for: Deadline::Request,
            is_blocked: false,
            offers_again: false,
            is_parked: false,
            reached: Reached::No,
            serial: 0,
        }
    }

    /// `bytes` were acknowledged or consumed.
    #[inline(always)]
    fn advance(&mut self, bytes: u32, pace: Pace, now: Moment) {
        let most = now
            .millis
            .wrapping_add(CREDIT_MS)
            .wrapping_sub(self.progress);
        let gained = pace.millis(bytes).min(most.into()) as u32;
        self.progress = self.progress.wrapping_add(gained);
    }

    /// A request was answered, and nothing was owed before.
    #[inline(always)]
    fn renew(&mut self, now: Moment) {
        if now.millis.wrapping_sub(self.progress).cast_signed() > 0 {
            self.progress = now.millis;
        }
    }

    /// Milliseconds that progress lies behind `now`.
    #[inline]
    fn lack(self, now: Moment) -> u32 {
        let lack = now.millis.wrapping_sub(self.progress).cast_signed();
        lack.max(0).unsigned_abs()
    }
}

/// What callbacks ask of the stack itself.
#[derive(Debug, Default)]
struct Asked {
    /// The pool of which the callback in hand has found nothing free.
    refused: Option<Pool>,
    timers: Timers<{ Timer::COUNT }>,
}

/// When cookies were sent.
#[derive(Debug, Default)]
struct Flood {
    /// When one was last sent, in microseconds.
    baked_at: Option<u64>,
    /// Whether the one before was sent shortly before.
    floods: bool,
}

/// What a server does with its connections: the callbacks of the paper's Table 1
/// (`tcp_accept()`, `tcp_recv()`, `tcp_sent()`), joined in one trait so that they inline.
///
/// Callbacks only queue. What they wrote is sent when they return, in the
/// same pass, as far as the windows and the TX ring allow.
pub trait Application {
    /// What the application remembers of one connection. It starts as the
    /// default and is dropped when the connection has closed.
    type State: Default;
    /// What comes to it from other threads, by a mailbox ([`Stack::set_mailbox`]). `()`
    /// where nothing does.
    type Message: Send;

    /// The stack is made, and nobody has come yet: the first
    /// [timers](Connections::set_timer) can be set. Nothing, by default.
    fn on_start<C: CongestionControl>(&mut self, all: &mut Connections<'_, Self::State, C>) {
        let _ = all;
    }

    /// A connection has been opened: the handshake's third segment has proved the peer's
    /// address. `false` refuses it with a reset, without [`on_close`](Self::on_close).
    fn on_accept(&mut self, conn: &mut Connection<'_, Self::State>) -> bool {
        let _ = conn;
        true
    }

    /// Data has arrived: `data` is all that was received in order and not consumed yet.
    /// Returns how many bytes are consumed, 0 to `data.len()` (more is taken as all).
    ///
    /// What is not consumed stays in the connection's bounded receive buffer, so that the
    /// peer's window shrinks, and is offered again: with more behind it when more arrives,
    /// or as it is when the stream has room again after a [`WriteError::Full`].
    ///
    /// Not called after [`Connection::close`] or [`Connection::abort`]; what
    /// arrives then is acknowledged and discarded.
    fn on_receive(&mut self, conn: &mut Connection<'_, Self::State>, data: &[u8]) -> usize;

    /// Everything written so far has been acknowledged, or the stream has
    /// room again after a [`WriteError::Full`]. Writes of no bytes alone are not
    /// acknowledged: nothing is called for them.
    fn on_sent(&mut self, conn: &mut Connection<'_, Self::State>) {
        let _ = conn;
    }

    /// The peer has closed its side, and all that it sent before has been
    /// offered. Closing ours too is the default.
    fn on_half_close(&mut self, conn: &mut Connection<'_, Self::State>) {
        conn.close();
    }

    /// A [deadline](Connection::set_deadline) has passed. Closing our side is the default.
    ///
    /// [`Connection::close`] does not end the connection at once. First all that
    /// was written must be acknowledged; then the peer has
    /// [`Config::fin_wait`](crate::Config::fin_wait) to close its side.
    /// [`Connection::abort`] ends it at once, with a reset.
    fn on_deadline(&mut self, conn: &mut Connection<'_, Self::State>, deadline: Deadline) {
        let _ = deadline;
        conn.close();
    }

    /// A [timer](Connections::set_timer) of the application has passed. It may be
    /// about any connections. Nothing, by default.
    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        timer: Timer,
    ) {
        let _ = (connections, timer);
    }

    /// A message has come from outside. It may be about any connections: those that
    /// it names are found in `connections`. Nothing, by default.
    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        message: Self::Message,
    ) {
        let _ = (connections, message);
    }

    /// The connection of this [name](Connection::id) is over. Called once for each
    /// connection that [`on_accept`](Self::on_accept) has accepted.
    fn on_close(&mut self, id: ConnectionId, state: &mut Self::State, reason: CloseReason) {
        let _ = (id, state, reason);
    }

    /// Writes the bytes of a content's [slot](crate::Slot) for `params`, the parameters
    /// that were given to [`Connection::write`] or [`Connection::write_slice`].
    ///
    /// The same parameters must give the same bytes for as long as the connection lasts,
    /// as a segment may be sent again. `slot` comes with any bytes: write all of them.
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        let _ = params;
        slot.fill(b' ');
    }
}

/// Names one connection. No later connection of the stack has the same name, so an
/// application can keep it for as long as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    index: u32,
    /// How many connections the stack had opened with this one.
    serial: u64,
}

/// All connections of an application: see [`Application::on_message`].
pub struct Connections<'a, S, C> {
    states: &'a mut [S],
    standings: &'a mut [Standing],
    records: &'a mut [Record<C>],
    contents: &'a mut Contents,
    writes: &'a mut Writes,
    cx: &'a mut Context<C>,
    asked: &'a mut Asked,
    reached: &'a mut Vec<u32>,
    now: Instant,
}

/// A connection, in the hands of a callback.
pub struct Connection<'a, S> {
    tcb: &'a mut Tcb,
    state: &'a mut S,
    contents: &'a mut Contents,
    writes: &'a mut Writes,
    peers: &'a mut Peers,
    lists: &'a mut Lists,
    standing: &'a mut Standing,
    asked: &'a mut Asked,
    id: u32,
    now: Instant,
    send_info: SendInfo,
}

/// All TCP connections of one port: a sans-I/O state machine but for the
/// TX ring, which it fills itself.
///
/// # Calling contract
/// Give it each segment that was received ([`handle_segment`](Self::handle_segment))
/// and, once a batch and at the latest at [`poll_timeout`](Self::poll_timeout), the
/// time ([`handle_timers`](Self::handle_timers)). `now` must not go back from one call
/// to the next. Always use it with the same port. A [`Server`](crate::Server) does all
/// this.
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
    asked: Asked,
    mailbox: Option<Mailbox<A::Message>>,
    cx: Context<C>,
    config: Config,
    /// That of [`Config::min_rate`].
    pace: Pace,
    half_open: u32,
    time_waits: u32,
    /// Connections opened so far, half-open ones included.
    opened: u64,
    /// Those that the application has had in hand by no segment of theirs, and that
    /// are to be seen to.
    reached: Vec<u32>,
    flood: Flood,
    samplers: [Sampler; Pool::COUNT],
    /// Those that the TX ring had no room for, first come first served.
    blocked: VecDeque<u32>,
    /// Number of records already shut down, see [`hang_up`](Self::hang_up).
    hung_up: usize,
    /// When pools are next looked at for memory that was not needed.
    trim_at: Instant,
    /// When it was last called.
    now: Instant,
    #[cfg(any(test, fuzzing))]
    flights: Vec<invariants::Flight>,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A connection, in the hands of a callback.
    #[inline(always)]
    fn connection(&mut self, id: u32) -> (&mut A, Connection<'_, A::State>) {
        let send_info = self.conn(id).send_info();
        let connection = Connection {
            send_info,
            id,
            now: self.now,
            standing: &mut self.standings[id as usize],
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

    /// A connection in hand.
    #[inline(always)]
    fn conn(&mut self, id: u32) -> Conn<'_, C> {
        Conn::new(&mut self.records[id as usize], &mut self.cx)
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
        let (index, serial) = (id, self.standings[id as usize].serial);
        let (name, state) = (
            ConnectionId { index, serial },
            &mut self.states[id as usize],
        );
        self.app.on_close(name, state, reason);
        self.release_all(id);
    }

    /// Gives back all that a connection holds but its TCB.
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

    /// The stream no longer refers to `source`.
    #[inline(always)]
    fn release_source(&mut self, source: Source) {
        match source.buffer() {
            Some(buffer) => self.writes.release(buffer, &mut self.cx.peers),
            None => self.contents.release(source.content_index()),
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

    /// Sees to space on a scoreboard that is nearly full.
    fn ensure_space(&mut self, id: u32) {
        if self.conn(id).needs_larger_board(None) {
            self.lend_larger_board(id);
        }
    }

    /// Gives back what loss recovery needs no longer, and finds a class for a
    /// connection whose segments have another size now.
    fn settle_losses(&mut self, id: u32) {
        if let Some(left) = self.conn(id).release_unused() {
            self.contents.release_class(left);
            self.find_class(id);
        }
    }

    /// Finds a class for the segments of a connection.
    fn find_class(&mut self, id: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        let family = Family::of(&tcb.path.addresses);
        tcb.class = self.contents.acquire_class(family, tcb.mss);
    }

    /// Sets the wheel if it would expire after the deadline of a connection.
    #[inline(always)]
    fn keep_time(&mut self, id: u32, now: Moment) {
        let deadline = self.records[id as usize].tcb.deadline;
        let scheduled = self.standings[id as usize].scheduled;
        if scheduled.wrapping_sub(deadline).cast_signed() > 0 {
            self.schedule(id, now);
        }
    }

    /// Sets the wheel to a connection's deadline, or to that of its application.
    #[inline(never)]
    fn schedule(&mut self, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::Closed {
            return;
        }
        let deadline = tcb.deadline;
        let standing = &mut self.standings[id as usize];
        if let Alarm::New(after) = standing.alarm {
            standing.alarm = Alarm::At(now.millis.wrapping_add(after));
        }
        standing.scheduled = match standing.alarm {
            Alarm::At(due) if deadline.wrapping_sub(due).cast_signed() > 0 => due,
            _ => deadline,
        };
        self.wheel.schedule(id, now.instant(standing.scheduled));
    }

    /// Puts a connection on the list of those that wait for the TX ring. A
    /// TCB that is freed meanwhile stays there; nothing is to be sent then.
    #[cold]
    fn block(&mut self, id: u32) {
        let is_blocked = &mut self.standings[id as usize].is_blocked;
        if std::mem::replace(is_blocked, true) {
            return;
        }
        self.cx.counters.blocked += 1;
        // Each connection at most once: there is place.
        self.blocked.push_back(id);
    }

    /// A connection that was counted is over, or only remembered.
    #[inline]
    fn count_out(&mut self, id: u32) {
        let peer = std::mem::replace(&mut self.standings[id as usize].peer, NONE);
        self.cx.peers.leave(peer);
    }

    /// Sends what is lost and what is new, as far as the congestion window,
    /// the peer's window and the TX ring allow.
    #[inline(always)]
    fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if self.records[id as usize].tcb.is_recovering() {
            self.retransmit(port, id, now);
        }
        if !self.conn(id).has_new() {
            return;
        }
        if let Some(plan) = self.conn(id).next_mtu_probe(now) {
            // Without room it goes another time.
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

    /// Sends again what is lost.
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

    /// Sends a segment that is not the next of new data.
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

    /// Answers with a segment without data, which the received frame itself becomes.
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
        if fits && turn_round(port, packet, &header, &options, conn.tcb.ports()).is_ok() {
            conn.has_sent_control(segment, &header);
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else if segment == ControlSegment::Ack {
            conn.tcb.flags |= Flags::ACK_PENDING;
            self.block(id);
        } else {
            // The timer sends it again.
            self.cx.counters.blocked += 1;
        }
    }

    /// Sends a segment without data when no received frame is in hand.
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

    /// Resets a connection, without waiting for room.
    #[cold]
    fn send_reset<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let sent = self.send_control(port, id, ControlSegment::Reset, now);
        self.cx.counters.ring_full += u64::from(sent.is_err());
    }

    /// The application has aborted.
    #[cold]
    fn abort<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.send_reset(port, id, now);
        self.close(id, CloseReason::Aborted);
    }

    /// A connection in hand, and what sends its segments.
    #[inline(always)]
    fn conn_and_emitter(&mut self, id: u32) -> (Conn<'_, C>, Emitter<'_, A>) {
        let (app, contents) = (&mut self.app, &mut self.contents);
        let emitter = Emitter::new(app, contents, &self.writes, self.config.mode);
        let conn = Conn::new(&mut self.records[id as usize], &mut self.cx);
        (conn, emitter)
    }
}
