//! The client: frames in, frames out, timers.

use std::net::SocketAddrV4;
use std::time::Duration;

use eth::Station;
use ip::{Addresses, Host, Input, PROTOCOL_TCP};
use nmio::{Batch, Frame, Handler, Instant, Port, TimerWheel};

use super::connection::{Connection, Flags, NEVER, State, Troubles};
use super::head::Remembered;
use super::lanes::Lanes;
use super::site::{Draw, MAX_PATHS, request};
use super::{Workload, error};
use crate::load::LoadError;
use crate::load::link::{Generator, Place};
use crate::load::meter::{Meter, Phase, Report};
use crate::load::tcp::{
    ACK, CHECKSUM_AT, Fields, MSS, NOBODY, PSH, PacketTemplates, Segment, Slots, Template,
};

/// What is not acknowledged is sent again after this long, then after twice
/// as long each time, in ms: the least of Linux.
const RTO: u32 = 200;
/// Times that something is sent again before we give up.
const MAX_TRIES: u8 = 6;
/// A kernel delays an acknowledgement so long, in ms.
const DELAYED_ACK: u32 = 40;
/// A response in which nothing comes for so long, in ms, has failed.
pub(super) const RESPONSE_LIMIT: u32 = 10_000;
/// Closed connections that may linger until the server has acknowledged, if
/// there are not more that ask.
const MIN_LINGERING: u32 = 1024;
/// Resets sent in one go at the end: a veth queue takes them.
const FINISH_BURST: usize = 200;
/// Nanoseconds for which one initial sequence number is good: fast enough for
/// any stream of requests, and half round the circle in more than the two
/// minutes that a server may remember.
const ISN_STEP: u128 = 64;

/// A page, prepared.
#[derive(Debug)]
pub(super) struct PreparedPage {
    pub(super) len: u32,
    pub(super) crc: u32,
    pub(super) head: Remembered,
    /// The request, and the last one on a connection.
    requests: [Template; 2],
    request_lens: [u32; 2],
}

/// Asks over HTTP. See the [module](super)'s text.
pub struct Client {
    host: Host,
    target: SocketAddrV4,
    /// Ours.
    pub(super) addresses: Box<[u32]>,
    pub(super) packets: PacketTemplates,
    pub(super) pages: Box<[PreparedPage]>,
    /// Bytes of the longest request.
    pub(super) longest_request: u32,
    pub(super) draw: Draw,
    pub(super) connections: Vec<Connection>,
    pub(super) free: Vec<u32>,
    pub(super) slots: Slots,
    pub(super) troubles: Troubles,
    timers: TimerWheel,
    /// Connections that have something to send, or something to acknowledge
    /// later.
    out: Vec<u32>,
    pub(super) lanes: Lanes,
    pub(super) meter: Meter,
    pub(super) now_ms: u32,
    epoch: Duration,
    /// Connections before this one have been reset at the end.
    finished: usize,
}

impl Client {
    /// A client in `place`.
    ///
    /// # Errors
    /// When the workload cannot be, such as more connections than there are
    /// ports.
    pub fn new(place: &Place, workload: &Workload, meter: Meter) -> Result<Self, LoadError> {
        let asked = |why: String| Err(LoadError::Asked(why));
        if workload.pages.is_empty() || workload.pages.len() > MAX_PATHS {
            return asked(format!("a mix has 1 to {MAX_PATHS} paths"));
        }
        let slots = Slots::new(place.addresses.len(), workload.epoch.subsec_nanos());
        let active = u64::from(workload.connections);
        let wanted = active + u64::from(workload.idle);
        if active == 0 {
            return asked("0 connections ask for nothing".into());
        }
        if wanted > slots.len() as u64 {
            return asked(format!(
                "{wanted} connections are more than the {} ports of the addresses given: \
                 give more --address",
                slots.len()
            ));
        }
        let lingering = workload.connections.max(MIN_LINGERING);
        let capacity = wanted as u32 + lingering;
        let host = SocketAddrV4::new(place.target.0, place.target.1);
        let prepare = |page: &super::Page| {
            let texts = [request(page, host, false)?, request(page, host, true)?];
            Ok(PreparedPage {
                len: page.len,
                crc: page.crc,
                head: Remembered::new(),
                requests: [0, 1].map(|i| Template::new(place, PSH | ACK, &[], &texts[i])),
                request_lens: [0, 1].map(|i| texts[i].len() as u32),
            })
        };
        let pages: Result<Box<[PreparedPage]>, LoadError> =
            workload.pages.iter().map(prepare).collect();
        let pages = pages?;
        let longest_request = (pages.iter())
            .map(|page| page.request_lens[1])
            .max()
            .unwrap_or(0);
        let own: Vec<std::net::IpAddr> = (place.addresses.iter())
            .map(|address| (*address).into())
            .collect();
        let station = Station::new(place.link.own, &own);
        Ok(Self {
            host: Host::own(station).with_partial_checksums(true),
            target: host,
            addresses: place.addresses.iter().map(|a| a.to_bits()).collect(),
            packets: PacketTemplates::new(place),
            pages,
            longest_request,
            draw: Draw::new(&workload.pages, workload.seed),
            connections: vec![Connection::default(); capacity as usize],
            free: (0..capacity).rev().collect(),
            slots,
            troubles: Troubles::default(),
            timers: TimerWheel::new(capacity, Instant::ZERO),
            out: Vec::with_capacity(capacity as usize),
            lanes: Lanes::new(workload),
            meter,
            now_ms: 0,
            epoch: workload.epoch,
            finished: 0,
        })
    }

    /// The first sequence number of a connection that begins at `now`.
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

    /// Puts a connection into the output list.
    #[inline(always)]
    pub(super) fn queue(&mut self, id: u32, flags: u32) {
        let connection = &mut self.connections[id as usize];
        if !connection.flags.has(Flags::QUEUED) {
            // Each connection is in it at most once, so it never grows.
            self.out.push(id);
        }
        connection.flags.set(flags | Flags::QUEUED);
    }

    /// Sends what the connections in the output list have to send.
    #[inline(always)]
    fn drain<P: Port>(&mut self, port: &mut P) {
        let mut done = 0;
        while let Some(&id) = self.out.get(done) {
            if !self.emit(port, id) {
                break;
            }
            self.connections[id as usize].flags.clear(Flags::QUEUED);
            done += 1;
        }
        self.out.drain(..done);
    }

    /// Sends what one connection has to send; false when the port has no
    /// room.
    #[inline(always)]
    fn emit<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        if connection.flags.has(Flags::THIRD | Flags::SYN) && !self.emit_opening(port, id) {
            return false;
        }
        let connection = &mut self.connections[id as usize];
        if connection.flags.has(Flags::REQUEST) {
            let page = &self.pages[connection.page as usize];
            let last = usize::from(connection.flags.has(Flags::LAST));
            let len = page.request_lens[last];
            if connection.snd_wnd < len && !connection.flags.has(Flags::PROBE) {
                // A window update, or the timer, tries again.
                self.set_rto(id);
                return true;
            }
            let fields = connection.fields(&self.addresses, connection.snd_nxt);
            if !send(port, &page.requests[last], &fields) {
                return false;
            }
            connection.snd_nxt = connection.snd_nxt.wrapping_add(len);
            connection.limit_at = self.now_ms + RESPONSE_LIMIT;
            self.acknowledged(id);
            self.set_rto(id);
            return true;
        }
        if connection.flags.has(Flags::RESEND | Flags::FIN) {
            return self.emit_rarely(port, id);
        }
        if connection.flags.has(Flags::ACK) || connection.unacknowledged() > u32::from(MSS) {
            let fields = connection.fields(&self.addresses, connection.snd_nxt);
            if !send(port, &self.packets.ack, &fields) {
                return false;
            }
            self.acknowledged(id);
            if self.connections[id as usize].is_over() {
                self.release(id);
            }
        } else if connection.unacknowledged() > 0 && !connection.flags.has(Flags::DELAYED) {
            connection.flags.set(Flags::DELAYED);
            connection.ack_at = self.now_ms + DELAYED_ACK;
            let at = connection.ack_at;
            self.arm(id, at);
        }
        true
    }

    /// A segment with an acknowledgement has gone out.
    #[inline(always)]
    fn acknowledged(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.rcv_acked = connection.rcv_nxt;
        connection
            .flags
            .clear(Flags::REQUEST | Flags::ACK | Flags::DELAYED | Flags::PROBE);
    }

    /// A SYN, or the third segment of the handshake.
    fn emit_opening<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        let syn = connection.flags.has(Flags::SYN);
        let (packet, seq) = if syn {
            (&self.packets.syn, connection.snd_una)
        } else {
            (&self.packets.ack, connection.snd_nxt)
        };
        if !send(port, packet, &connection.fields(&self.addresses, seq)) {
            return false;
        }
        connection.flags.clear(Flags::SYN | Flags::THIRD);
        connection.rcv_acked = connection.rcv_nxt;
        if syn {
            self.set_rto(id);
        }
        true
    }

    /// What was lost, or a FIN.
    fn emit_rarely<P: Port>(&mut self, port: &mut P, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        if connection.flags.has(Flags::FIN) {
            connection.flags.set(Flags::FIN_SENT);
            connection.flags.clear(Flags::FIN);
            connection.flags.set(Flags::RESEND);
            connection.snd_nxt = connection.snd_nxt.wrapping_add(1);
        }
        let page = &self.pages[connection.page as usize];
        let last = usize::from(connection.flags.has(Flags::LAST));
        let (packet, len) = if connection.flags.has(Flags::FIN_SENT) {
            (&self.packets.fin, 1)
        } else {
            (&page.requests[last], page.request_lens[last])
        };
        let seq = connection.snd_nxt.wrapping_sub(len);
        if !send(port, packet, &connection.fields(&self.addresses, seq)) {
            return false;
        }
        connection.flags.clear(Flags::RESEND);
        self.acknowledged(id);
        self.set_rto(id);
        true
    }

    /// Sends an acknowledgement at once, with what has come out of order.
    pub(super) fn acknowledge_now<P: Port>(&mut self, port: &mut P, id: u32) {
        let connection = &self.connections[id as usize];
        let blocks = (self.troubles.get(connection.trouble))
            .filter(|_| connection.flags.has(Flags::SACK))
            .map(|trouble| trouble.ranges.blocks())
            .unwrap_or_default();
        let Some(mut frame) = port.pool().take() else {
            return;
        };
        let len = self.packets.sack_len(blocks.len());
        if len > frame.capacity() {
            return;
        }
        frame.set_len(len);
        let fields = connection.fields(&self.addresses, connection.snd_nxt);
        self.packets.write_sack(&mut frame, &fields, &blocks);
        if port.send(frame).is_ok() {
            let connection = &mut self.connections[id as usize];
            connection.rcv_acked = connection.rcv_nxt;
            connection.flags.clear(Flags::ACK | Flags::DELAYED);
        }
    }

    /// Sends a reset; one that finds no room is left out.
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

    /// Has the connection's timer run out at `at` or earlier.
    #[inline(always)]
    pub(super) fn arm(&mut self, id: u32, at: u32) {
        let connection = &mut self.connections[id as usize];
        // One that will run out earlier is left alone, and looked at then:
        // most deadlines are moved on before they come.
        if at < connection.armed {
            connection.armed = at;
            self.timers
                .schedule(id, Instant::from_millis(u64::from(at)));
        }
    }

    /// A connection's timer has run out.
    fn handle_timer<P: Port>(&mut self, port: &mut P, id: u32) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id as usize];
        connection.armed = NEVER;
        if connection.state == State::Closed {
            return;
        }
        if connection.flags.has(Flags::DELAYED) && connection.ack_at <= now_ms {
            connection.flags.clear(Flags::DELAYED);
            self.queue(id, Flags::ACK);
        }
        let connection = &mut self.connections[id as usize];
        let unsent = connection.flags.has(Flags::REQUEST);
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

    /// Sets the timer to the first deadline.
    pub(super) fn rearm(&mut self, id: u32) {
        let connection = &self.connections[id as usize];
        let mut next = NEVER;
        if connection.flags.has(Flags::DELAYED) {
            next = next.min(connection.ack_at);
        }
        if connection.in_flight() || connection.flags.has(Flags::REQUEST) {
            next = next.min(connection.rto_at);
        }
        if is_limited(connection) {
            next = next.min(connection.limit_at);
        }
        if next != NEVER {
            // Whatever is due already waits for the next round.
            self.arm(id, next.max(self.now_ms + 1));
        }
    }

    /// Nobody acknowledges.
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

    /// Nothing has happened for too long.
    #[cold]
    fn handle_limit<P: Port>(&mut self, port: &mut P, id: u32) {
        let connection = &self.connections[id as usize];
        if connection.state == State::Closing {
            self.meter.error(error::CLOSE_TIMEOUT);
            self.reset(port, id);
            self.release(id);
        } else if connection.flags.has(Flags::BUSY) {
            self.fail(port, id, error::TIMEOUT);
        } else {
            // The server does not close, so we do.
            self.close(id);
            self.rearm(id);
        }
    }

    /// Forgets a connection.
    pub(super) fn release(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        if connection.state == State::Closed {
            return;
        }
        self.troubles.leave(&mut connection.trouble);
        self.slots.free(connection.address, connection.port);
        // The output list and the wheel may still name it.
        *connection = Connection {
            flags: connection.flags.only(Flags::QUEUED),
            armed: connection.armed,
            ..Connection::default()
        };
        self.free.push(id);
    }
}

/// When what is sent now is sent again, in ms from now. What closes does not
/// back off: it has a second in all, in which two losses may come together.
#[inline(always)]
fn rto(connection: &Connection) -> u32 {
    match connection.state {
        State::Closing => RTO,
        _ => RTO << connection.tries.min(MAX_TRIES),
    }
}

/// The connection's limit is of meaning.
fn is_limited(connection: &Connection) -> bool {
    connection.state == State::Closing || connection.flags.has(Flags::BUSY | Flags::EXPECT_FIN)
}

/// Sends a prepared packet; false when the port has no room.
#[inline(always)]
pub(super) fn send<P: Port>(port: &mut P, packet: &Template, fields: &Fields) -> bool {
    let Some(mut frame) = port.pool().take() else {
        return false;
    };
    if packet.len() > frame.capacity() {
        return false;
    }
    frame.set_len(packet.len());
    packet.write(&mut frame, fields);
    port.send(frame).is_ok()
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
        let timers = self.timers.next_deadline();
        let lanes = self.lanes.due();
        match (timers, lanes) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
    }
}

impl<P: Port> Generator<P> for Client {
    fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    fn report(&self) -> Report {
        let mut report = self.meter.report("load http", self.lanes.rate());
        report.connection_rate = self.lanes.connection_rate(report.seconds);
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

    /// Resets what is open: servers would go on waiting, and the next run
    /// would meet its connections there.
    fn finish(&mut self, port: &mut P) -> bool {
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

impl Client {
    /// Whether what comes now is measured.
    #[inline(always)]
    pub(super) fn measuring(&self) -> bool {
        self.meter.phase() == Phase::Measuring
    }
}
