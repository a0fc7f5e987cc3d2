//! Requests that are one datagram each, answered by one.

use std::collections::VecDeque;
use std::time::Duration;

use ip::{Addresses, Host, Input, PROTOCOL_UDP, Packet, Path, Sum};
use nmio::{Frame, Handler, Instant, Port};

use super::link::{Generator, LoadError, Place};
use super::meter::{Meter, Report};
use super::pace::Pace;

/// UDP's header.
const HEADER_LEN: usize = 8;
/// Where the checksum lies in it.
const CHECKSUM_AT: usize = 6;
/// Both protocols here begin their messages with an identifier of two bytes.
pub const ID_LEN: usize = 2;
/// Requests under way at most: what the identifier can tell apart.
pub const MAX_WINDOW: usize = 1 << 16;
/// Requests under way at most in an open loop.
const OPEN_LOOP_WINDOW: usize = 1 << 15;
/// What has no reply after this long is lost.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How often that is looked for.
const SWEEP: Duration = Duration::from_millis(50);
/// Source ports are taken in turn from here.
const FIRST_PORT: u16 = 1024;

/// What requests say, and what replies must.
pub trait Questions {
    /// The next request's message behind its identifier, with its sum as if
    /// it began at an even offset; and a number to know it by.
    fn next(&mut self) -> (u32, &[u8], Sum);

    /// Looks at the reply to request `number`, identifier included.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, number: u32, reply: &[u8]) -> Result<(), &'static str>;
}

/// A request under way, or none.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When it was sent or should have been; [`Instant::FAR`] when free.
    asked: Instant,
    question: u32,
    /// Tells this use of the slot from the one before.
    src_port: u16,
}

/// Asks by UDP; the identifier is the number of the request's slot.
pub struct Asker<Q> {
    name: &'static str,
    questions: Q,
    host: Host,
    path: Path,
    /// The addresses' part of the checksum.
    path_sum: Sum,
    target_port: u16,
    slots: Vec<Slot>,
    /// Slots that are free, the longest free one first.
    free: VecDeque<u16>,
    pace: Option<Pace>,
    next_sweep: Instant,
    meter: Meter,
}

impl<Q: Questions> Asker<Q> {
    /// Asks `questions` in `place`: in a closed loop of `window` requests, or
    /// at a `pace`.
    ///
    /// # Errors
    /// When `window` is 0 or more than [`MAX_WINDOW`].
    pub fn new(
        name: &'static str,
        questions: Q,
        place: &Place,
        window: usize,
        pace: Option<Pace>,
        meter: Meter,
    ) -> Result<Self, LoadError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(LoadError::Asked(format!(
                "a window of {window} requests: 1 to {MAX_WINDOW} can be under way"
            )));
        }
        let src = place.addresses[0];
        let (dst, target_port) = place.target;
        let addresses = Addresses::V4 { src, dst };
        let slots = if pace.is_some() {
            OPEN_LOOP_WINDOW
        } else {
            window
        };
        let station = eth::Station::new(place.link.own, &[src.into()]);
        Ok(Self {
            name,
            questions,
            host: Host::own(station).with_partial_checksums(true),
            path: Path {
                link: place.link,
                addresses,
            },
            path_sum: addresses.sum().word(u16::from(PROTOCOL_UDP)),
            target_port,
            slots: vec![
                Slot {
                    asked: Instant::FAR,
                    question: 0,
                    src_port: FIRST_PORT
                };
                slots
            ],
            free: (0..slots).map(|slot| slot as u16).collect(),
            pace,
            next_sweep: Instant::ZERO,
            meter,
        })
    }

    /// Sends one request; false when that cannot be now.
    #[inline(always)]
    fn ask<P: Port>(&mut self, port: &mut P, asked: Instant) -> bool {
        let Some(&id) = self.free.front() else {
            return false;
        };
        let Some(mut frame) = port.pool().take() else {
            return false;
        };
        let slot = &mut self.slots[usize::from(id)];
        let (number, message, sum) = self.questions.next();
        let src_port = slot.src_port.wrapping_add(1).max(FIRST_PORT);
        let udp_len = HEADER_LEN + ID_LEN + message.len();
        frame.set_len(self.path.header_len() + udp_len);
        let start = self.path.write(&mut frame, PROTOCOL_UDP, udp_len);
        let udp = &mut frame[start..];
        let sum = (self.path_sum.add(sum))
            .word(udp_len as u16)
            .word(udp_len as u16)
            .word(src_port)
            .word(self.target_port)
            .word(id);
        udp[..2].copy_from_slice(&src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.target_port.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        udp[CHECKSUM_AT..8].copy_from_slice(&sum.finish_udp().to_be_bytes());
        udp[8..10].copy_from_slice(&id.to_be_bytes());
        udp[10..].copy_from_slice(message);
        if port.send(frame).is_err() {
            return false;
        }
        *slot = Slot {
            asked,
            question: number,
            src_port,
        };
        self.free.pop_front();
        true
    }

    #[inline(always)]
    fn reply(&mut self, packet: &Packet, now: Instant) {
        let udp = packet.payload();
        if udp.len() < HEADER_LEN + ID_LEN {
            return self.meter.error("malformed datagram");
        }
        // Over IPv4 a sender may leave the checksum out (RFC 768): some do.
        let unsummed = udp[CHECKSUM_AT..][..2] == [0, 0];
        if !unsummed && !packet.checksum_ok(PROTOCOL_UDP, CHECKSUM_AT) {
            return self.meter.error("wrong checksum");
        }
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let id = word(8);
        let Some(slot) = self.slots.get_mut(usize::from(id)) else {
            return self.meter.error("unknown id");
        };
        if slot.asked == Instant::FAR || slot.src_port != word(2) || word(0) != self.target_port {
            return self.meter.error("late or unasked");
        }
        match self.questions.check(slot.question, &udp[HEADER_LEN..]) {
            Ok(()) => self.meter.complete(slot.asked, now, udp.len() - HEADER_LEN),
            Err(wrong) => self.meter.error(wrong),
        }
        slot.asked = Instant::FAR;
        self.free.push_back(id);
    }

    /// Frees what will have no reply.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = now + SWEEP;
        for (id, slot) in self.slots.iter_mut().enumerate() {
            if slot.asked != Instant::FAR && now.since(slot.asked) > TIMEOUT {
                slot.asked = Instant::FAR;
                self.free.push_back(id as u16);
                self.meter.error("timeout");
            }
        }
    }
}

impl<P: Port, Q: Questions> Handler<P> for Asker<Q> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        match self.host.receive(frame, now) {
            Input::Udp(packet) => {
                self.reply(&packet, now);
                // The frame goes back first, and is taken again at once.
                drop(packet);
                if self.pace.is_none() {
                    self.ask(port, now);
                }
            }
            Input::Reply(frame) => {
                let _ = port.send(frame);
            }
            _ => {}
        }
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        if now >= self.next_sweep {
            self.sweep(now);
        }
        let Some(mut pace) = self.pace else {
            while self.ask(port, now) {}
            return;
        };
        while let Some(due) = pace.take(now) {
            if !self.ask(port, due) {
                self.meter.error("not sent");
            }
        }
        self.pace = Some(pace);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.pace.and_then(|pace| pace.due());
        Some(due.map_or(self.next_sweep, |due| due.min(self.next_sweep)))
    }
}

impl<P: Port, Q: Questions> Generator<P> for Asker<Q> {
    fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    fn report(&self) -> Report {
        let rate = self.pace.map_or(0.0, |pace| pace.rate());
        self.meter.report(self.name, rate)
    }
}
