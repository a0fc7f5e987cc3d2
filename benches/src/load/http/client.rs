//! The client: input and output of frames, and timers.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use eth::Station;
use ip::{Addresses, Host, Input, PROTOCOL_TCP};
use nmio::{Batch, Frame, Handler, Instant, Port, TimerWheel};

use super::connection::{Connection, Flags, MAX_TROUBLES, NEVER, State, Trouble};
use super::lanes::Lanes;
use super::pages::Pages;
use super::{Workload, error};
use crate::load::LoadError;
use crate::load::link::{Generator, Place};
use crate::load::meter::{Meter, Report};
use crate::load::tcp::{CHECKSUM_AT, MSS, NOBODY, PacketTemplates, Segment, Slots, send};

/// First retransmission timeout in ms. Except on a closing connection, the timeout doubles after
/// each retransmission. Linux has the same minimum.
const RTO: u32 = 200;
/// Number of retransmissions after which the client gives up.
const MAX_TRIES: u8 = 6;
/// Delay of a delayed ACK in ms. Linux has the same minimum.
const DELAYED_ACK: u32 = 40;
/// Maximum time in ms without new data while a response is expected. After this time, the request
/// has failed.
pub(super) const RESPONSE_LIMIT: u32 = 10_000;
/// Minimum number of entries in addition to the connections that the user asked for. The additional
/// entries hold connections that are still closing when their successors open.
const MIN_LINGERING: u32 = 1024;
/// Maximum number of resets per call of `finish`. A veth queue has room for this number.
const FINISH_BURST: usize = 200;
/// Nanoseconds per step of the initial sequence number. The initial sequence number advances faster
/// than any stream of requests, so it is above the numbers that earlier connections used. It needs
/// more than two minutes for half of the sequence space. A server that remembers an old number for
/// two minutes therefore still sees the new number as higher.
const ISN_STEP: u128 = 64;

/// An HTTP load generator; see the [module](super)'s documentation.
pub struct Client {
    host: Host,
    target: SocketAddrV4,
    /// Local addresses.
    pub(super) addresses: Box<[u32]>,
    pub(super) packets: PacketTemplates,
    pub(super) pages: Pages,
    /// Length of the longest request in bytes.
    pub(super) longest_request: u32,
    pub(super) connections: Vec<Connection>,
    pub(super) free: Vec<u32>,
    pub(super) slots: Slots,
    /// Additional state of the few connections that need it.
    pub(super) troubles: HashMap<u32, Trouble>,
    timers: TimerWheel,
    /// Output list: connections that have something to send or that need a delayed ACK.
    out: Vec<u32>,
    pub(super) lanes: Lanes,
    pub(super) meter: Meter,
    pub(super) now_ms: u32,
    epoch: Duration,
    /// Field by which the server recognizes that a page has not changed.
    validator: Option<&'static str>,
    /// Progress of `finish` at the end of a run: connections with lower numbers are reset or
    /// closed.
    finished: usize,
}

impl Client {
    /// Creates a client with the addresses of `place`.
    ///
    /// # Errors
    /// Fails if the workload is impossible, for example with more connections than ports.
    pub fn new(place: &Place, workload: &Workload, meter: Meter) -> Result<Self, LoadError> {
        let invalid = |why: String| Err(LoadError::Asked(why));
        let slots = Slots::new(place.addresses.len(), workload.epoch.subsec_nanos());
        let active = u64::from(workload.connections);
        let total = active + u64::from(workload.idle);
        if active == 0 {
            return invalid("0 connections can send no requests".into());
        }
        if total > slots.len() as u64 {
            return invalid(format!(
                "{total} connections are more than the {} ports of the addresses given: \
                 give more --address",
                slots.len()
            ));
        }
        let lingering = workload.connections.max(MIN_LINGERING);
        let capacity = total as u32 + lingering;
        let host = SocketAddrV4::new(place.target.0, place.target.1);
        let pages = Pages::new(place, workload)?;
        let own: Vec<std::net::IpAddr> = (place.addresses.iter())
            .map(|address| (*address).into())
            .collect();
        let station = Station::new(place.link.own, &own);
        Ok(Self {
            host: Host::own(station, [0; 4]).with_partial_checksums(true),
            target: host,
            addresses: place.addresses.iter().map(|a| a.to_bits()).collect(),
            packets: PacketTemplates::new(place),
            longest_request: pages.longest_request(),
            pages,
            connections: vec![Connection::free(); capacity as usize],
            free: (0..capacity).rev().collect(),
            slots,
            troubles: HashMap::new(),
            timers: TimerWheel::new(capacity, Instant::ZERO),
            out: Vec::with_capacity(capacity as usize),
            lanes: Lanes::new(workload),
            meter,
            now_ms: 0,
            epoch: workload.epoch,
            validator: workload.pages.iter().find_map(|page| page.form.validator()),
            finished: 0,
        })
    }

    /// Returns the initial sequence number of a connection that opens at `now`.
    pub(super) fn initial_sequence(&self, now: Instant) -> u32 {
        let nanos = self.epoch.as_nanos() + u128::from(now.as_nanos());
        (nanos / ISN_STEP) as u32
    }

    #[inline(always)]
    fn tick(&mut self, now: Instant) {
        self.now_ms = (now.as_nanos() / 1_000_000) as u32;
    }

    #[inline(always)]
    fn frame<P: Port>(&mut self, port: &mut P, frame: Frame, now: Instant) {
        let packet = match self.host.receive(frame, now) {
            Input::Tcp(packet) => packet,
            Input::Reply(frame) => {
                let _ = port.send(frame);
                return;
            }
            _ => return,
        };
        let Addresses::V4 { src, dst } = packet.addresses() else {
            return;
        };
        let Some(segment) = Segment::parse(packet.payload()) else {
            return;
        };
        let from_server = src == *self.target.ip() && segment.src_port == self.target.port();
        if !from_server || !packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT) {
            return;
        }
        let dst = dst.to_bits();
        let Some(address) = self.addresses.iter().position(|own| *own == dst) else {
            return;
        };
        let id = self.slots.get(address, segment.dst_port);
        if id == NOBODY {
            self.handle_stray(port, address, &segment);
        } else {
            self.handle_segment(port, id, &segment, packet.payload(), now);
        }
    }

    /// Sets `flags` of a connection, and adds the connection to the output list if it is not there.
    #[inline(always)]
    pub(super) fn queue(&mut self, id: u32, flags: Flags) {
        let connection = &mut self.connections[id as usize];
        if !connection.flags.intersects(Flags::QUEUED) {
            // A connection is in the list at most once, so the list never reallocates.
            self.out.push(id);
        }
        connection.flags.insert(flags | Flags::QUEUED);
    }

    /// Sends the pending segments of the connections in the output list, as far as the port has
    /// room.
    #[inline(always)]
    fn drain<P: Port>(&mut self, port: &mut P) {
        let mut done = 0;
        while let Some(&id) = self.out.get(done) {
            if !self.emit(port, id) {
                break;
            }
            self.connections[id as usize].flags.remove(Flags::QUEUED);
            done += 1;
        }
        self.out.drain(..done);
    }

    /// Sends the pending segments of one connection, or delays its ACK. Returns false if the port
    /// has no room.
    #[inline(always)]
    fn emit<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        if connection.flags.intersects(Flags::THIRD | Flags::SYN) && !self.emit_opening(port, id) {
            return false;
        }
        let connection = &mut self.connections[id as usize];
        if connection.flags.intersects(Flags::REQUEST) {
            let (page, is_last) = (connection.page, connection.flags.intersects(Flags::LAST));
            let len = self.pages.request_len(page, is_last);
            if connection.snd_wnd < len && !connection.flags.intersects(Flags::PROBE) {
                // The server's window is too small. The client tries again after a window update or
                // when the retransmission timer expires.
                self.set_rto(id);
                return true;
            }
            let fields = connection.fields(&self.addresses, connection.snd_nxt);
            if !self.pages.send_request(port, page, is_last, &fields) {
                return false;
            }
            connection.snd_nxt = connection.snd_nxt.wrapping_add(len);
            connection.limit_at = self.now_ms + RESPONSE_LIMIT;
            self.acknowledged(id);
            self.set_rto(id);
            return true;
        }
        if connection.flags.intersects(Flags::RESEND | Flags::FIN) {
            return self.emit_rarely(port, id);
        }
        if connection.flags.intersects(Flags::ACK) || connection.unacknowledged() > u32::from(MSS) {
            let fields = connection.fields(&self.addresses, connection.snd_nxt);
            if !send(port, &self.packets.acks[0], &fields) {
                return false;
            }
            self.acknowledged(id);
            if self.connections[id as usize].is_over() {
                self.release(id);
            }
        } else if connection.unacknowledged() > 0 && !connection.flags.intersects(Flags::DELAYED) {
            connection.flags.insert(Flags::DELAYED);
            connection.ack_at = self.now_ms + DELAYED_ACK;
            let at = connection.ack_at;
            self.arm(id, at);
        }
        true
    }

    /// Updates the state after a segment was sent that acknowledges all received data.
    #[inline(always)]
    fn acknowledged(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.rcv_acked = connection.rcv_nxt;
        connection
            .flags
            .remove(Flags::REQUEST | Flags::ACK | Flags::DELAYED | Flags::PROBE);
    }

    /// Sends a SYN or the third segment of the handshake. Returns false if the port has no room.
    fn emit_opening<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        let syn = connection.flags.intersects(Flags::SYN);
        let (packet, seq) = if syn {
            (&self.packets.syn, connection.snd_una)
        } else {
            (&self.packets.acks[0], connection.snd_nxt)
        };
        if !send(port, packet, &connection.fields(&self.addresses, seq)) {
            return false;
        }
        connection.flags.remove(Flags::SYN | Flags::THIRD);
        connection.rcv_acked = connection.rcv_nxt;
        if syn {
            self.set_rto(id);
        }
        true
    }

    /// Sends a FIN, or retransmits a FIN or a request. Returns false if the port has no room.
    fn emit_rarely<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        if connection.flags.intersects(Flags::FIN) {
            connection.flags.insert(Flags::FIN_SENT);
            connection.flags.remove(Flags::FIN);
            connection.flags.insert(Flags::RESEND);
            connection.snd_nxt = connection.snd_nxt.wrapping_add(1);
        }
        let (page, is_last) = (connection.page, connection.flags.intersects(Flags::LAST));
        let fields = |len| connection.fields(&self.addresses, connection.snd_nxt.wrapping_sub(len));
        let sent = if connection.flags.intersects(Flags::FIN_SENT) {
            send(port, &self.packets.fin, &fields(1))
        } else {
            let len = self.pages.request_len(page, is_last);
            self.pages.send_request(port, page, is_last, &fields(len))
        };
        if !sent {
            return false;
        }
        connection.flags.remove(Flags::RESEND);
        self.acknowledged(id);
        self.set_rto(id);
        true
    }

    /// Sends an ACK immediately, with SACK blocks for out-of-order data.
    pub(super) fn acknowledge_now<P: Port>(&mut self, port: &mut P, id: u32) {
        let connection = &self.connections[id as usize];
        let blocks = (self.troubles.get(&id))
            .filter(|_| connection.flags.intersects(Flags::SACK))
            .map(|trouble| trouble.ranges.blocks())
            .unwrap_or_default();
        let fields = connection.fields(&self.addresses, connection.snd_nxt);
        if self.packets.send_ack(port, &fields, &blocks) {
            let connection = &mut self.connections[id as usize];
            connection.rcv_acked = connection.rcv_nxt;
            connection.flags.remove(Flags::ACK | Flags::DELAYED);
        }
    }

    /// Sends a reset. Returns false if the port has no room. The caller may ignore the result,
    /// because the server's next data gets a reset as well.
    pub(super) fn reset<P: Port>(&self, port: &mut P, id: u32) -> bool {
        let connection = &self.connections[id as usize];
        let fields = connection.fields(&self.addresses, connection.snd_nxt);
        send(port, &self.packets.reset_ack, &fields)
    }

    #[inline(always)]
    fn set_rto(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        let at = self.now_ms + rto(connection);
        connection.rto_at = at;
        self.arm(id, at);
    }

    /// Arms the connection's timer so that it expires at `at` or earlier.
    #[inline(always)]
    pub(super) fn arm(&mut self, id: u32, at: u32) {
        let connection = &mut self.connections[id as usize];
        // An earlier expiry is not changed, because most deadlines are postponed before they pass.
        // When the timer expires, `handle_timer` arms it again.
        if at < connection.armed {
            connection.armed = at;
            self.timers
                .schedule(id, Instant::from_millis(u64::from(at)));
        }
    }

    /// Handles the expired timer of a connection.
    fn handle_timer<P: Port>(&mut self, port: &mut P, id: u32) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        connection.armed = NEVER;
        if connection.state == State::Closed {
            return;
        }
        if connection.flags.intersects(Flags::DELAYED) && connection.ack_at <= now_ms {
            connection.flags.remove(Flags::DELAYED);
            self.queue(id, Flags::ACK);
        }
        let connection = &mut self.connections[id as usize];
        let unsent = connection.flags.intersects(Flags::REQUEST);
        if (connection.in_flight() || unsent) && connection.rto_at <= now_ms {
            if connection.tries >= MAX_TRIES {
                return self.give_up(port, id);
            }
            connection.tries += 1;
            let again = match connection.state {
                State::Opening => Flags::SYN,
                _ if unsent => Flags::REQUEST | Flags::PROBE,
                _ => Flags::RESEND,
            };
            connection.rto_at = now_ms + rto(connection);
            self.queue(id, again);
        }
        let connection = &self.connections[id as usize];
        if is_limited(connection) && connection.limit_at <= now_ms {
            return self.handle_limit(port, id);
        }
        self.rearm(id);
    }

    /// Arms the timer for the connection's earliest deadline.
    pub(super) fn rearm(&mut self, id: u32) {
        let connection = &self.connections[id as usize];
        let mut next = NEVER;
        if connection.flags.intersects(Flags::DELAYED) {
            next = next.min(connection.ack_at);
        }
        if connection.in_flight() || connection.flags.intersects(Flags::REQUEST) {
            next = next.min(connection.rto_at);
        }
        if is_limited(connection) {
            next = next.min(connection.limit_at);
        }
        if next != NEVER {
            // A deadline that has already passed is handled in the next millisecond.
            self.arm(id, next.max(self.now_ms + 1));
        }
    }

    /// Gives up a connection on which the server has not acknowledged or responded in time.
    #[cold]
    fn give_up<P: Port>(&mut self, port: &mut P, id: u32) {
        match self.connections[id as usize].state {
            State::Opening => self.fail_silently(id, error::CONNECT_TIMEOUT),
            State::Closing => {
                self.meter.error(error::CLOSE_TIMEOUT);
                self.reset(port, id);
                self.release(id);
            }
            _ => self.fail(port, id, error::TIMEOUT),
        }
    }

    /// Handles a response or a close that has exceeded its time limit.
    #[cold]
    fn handle_limit<P: Port>(&mut self, port: &mut P, id: u32) {
        let connection = &self.connections[id as usize];
        if connection.state == State::Closing || connection.flags.intersects(Flags::BUSY) {
            self.give_up(port, id);
        } else {
            // The server has not closed the connection in time, so the client closes it.
            self.close(id);
            self.rearm(id);
        }
    }

    /// Returns the additional state of a connection, and creates it if there is none. Returns
    /// `None` if [`MAX_TROUBLES`] other connections have additional state.
    pub(super) fn trouble(&mut self, id: u32) -> Option<&mut Trouble> {
        if self.troubles.len() >= MAX_TROUBLES && !self.troubles.contains_key(&id) {
            return None;
        }
        self.connections[id as usize].flags.insert(Flags::TROUBLE);
        Some(self.troubles.entry(id).or_default())
    }

    /// Frees the entry of a connection.
    pub(super) fn release(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        if connection.state == State::Closed {
            return;
        }
        if connection.flags.intersects(Flags::TROUBLE) {
            self.troubles.remove(&id);
        }
        self.slots.free(connection.address, connection.port);
        // The output list and the timer wheel may still contain this entry, so `QUEUED` and `armed`
        // keep their values.
        *connection = Connection {
            flags: connection.flags & Flags::QUEUED,
            armed: connection.armed,
            ..Connection::free()
        };
        self.free.push(id);
    }
}

/// Returns the current retransmission timeout in ms. It does not double on a closing connection,
/// because doubling would allow only two retransmissions within `CLOSE_LIMIT`.
#[inline(always)]
fn rto(connection: &Connection) -> u32 {
    match connection.state {
        State::Closing => RTO,
        _ => RTO << connection.tries.min(MAX_TRIES),
    }
}

/// Returns true if `limit_at` applies to the connection.
fn is_limited(connection: &Connection) -> bool {
    connection.state == State::Closing
        || connection.flags.intersects(Flags::BUSY | Flags::EXPECT_FIN)
}

impl<P: Port> Handler<P> for Client {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        self.tick(now);
        self.frame(port, frame, now);
        self.drain(port);
    }

    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        self.tick(now);
        for frame in batch.drain(..) {
            self.frame(port, frame, now);
        }
        self.open_waiting(now);
        self.drain(port);
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.tick(now);
        while let Some(id) = self.timers.pop_expired(now) {
            self.handle_timer(port, id);
        }
        self.handle_lanes(now);
        self.open_waiting(now);
        self.drain(port);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [self.timers.next_deadline(), self.lanes.due()];
        deadlines.into_iter().flatten().min()
    }
}

impl Generator for Client {
    fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    fn report(&self) -> Report {
        let mut report = self.meter.report("load http", self.lanes.rate());
        report.connection_rate = self.lanes.connection_rate(report.seconds);
        report.validator = self.validator;
        report.slowest_p50_us = self.lanes.slowest_p50_us();
        if self.lanes.idle_failed() > 0 {
            report
                .errors
                .insert(error::IDLE, u64::from(self.lanes.idle_failed()));
        }
        report
    }

    fn is_ready(&self) -> bool {
        self.lanes.is_ready()
    }

    /// Resets the open connections, at most `FINISH_BURST` in each call. Without the resets, the
    /// server would keep these connections, and the next run would collide with them.
    fn finish<P: Port>(&mut self, port: &mut P) -> bool {
        let mut sent = 0;
        while self.finished < self.connections.len() {
            let open = self.connections[self.finished].state != State::Closed;
            if open {
                if sent == FINISH_BURST || !self.reset(port, self.finished as u32) {
                    return false;
                }
                sent += 1;
            }
            self.finished += 1;
        }
        true
    }
}
