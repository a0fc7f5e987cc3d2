//! A generator of requests that consist of one UDP datagram each. It also checks the replies.

use std::collections::VecDeque;
use std::time::Duration;

use ip::{Addresses, Host, Input, PROTOCOL_UDP, Packet, Path, Sum};
use nmio::{Frame, Handler, Instant, Port};

use super::link::{Generator, LoadError, Options, Place};
use super::meter::{Meter, Report};
use super::pace::Pace;

/// Length of the UDP header in bytes.
const HEADER_LEN: usize = 8;
/// Offset of the checksum in the UDP header.
const CHECKSUM_AT: usize = 6;
/// Length in bytes of the identifier at the start of each DNS or echo message.
pub const ID_LEN: usize = 2;
/// Maximum number of outstanding requests. Each needs its own identifier of 16 bits.
pub const MAX_WINDOW: usize = 1 << 16;
/// Maximum number of outstanding requests in an open loop.
const OPEN_LOOP_WINDOW: usize = 1 << 15;
/// Maximum number of single requests that an open loop sends in one pass of the event loop. If the
/// generator itself was held up, it therefore does not flood the server with all late requests.
const CATCH_UP: u32 = 64;
/// A request without a reply counts as lost after this time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two searches for lost requests.
const SWEEP: Duration = Duration::from_millis(50);
/// Lowest source port. Each slot uses this port and all higher ports in turn. No service with one of them
/// replies to any message, so servers do not drop requests because of their port.
const FIRST_PORT: u16 = 16_384;

/// Supplies the requests and checks the replies.
pub trait Questions {
    /// Returns the next request: its number for [`check`](Self::check), its message without the
    /// identifier, and the sum of the message. The sum is for a message at an even offset.
    fn next(&mut self) -> (u32, &[u8], Sum);

    /// Checks the reply to request `number`. `reply` includes the identifier.
    ///
    /// # Errors
    /// Returns what is wrong with the reply.
    fn check(&self, number: u32, reply: &[u8]) -> Result<(), &'static str>;
}

/// Entry for one outstanding request.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Time at which the request was sent or due, or [`Instant::FAR`] if the slot is free.
    requested_at: Instant,
    question: u32,
    /// Source port of the request. It changes with each use of the slot, so that late replies to
    /// earlier requests are recognized.
    src_port: u16,
}

/// Sends requests over UDP. The identifier of a request is the number of its slot.
pub struct Asker<Q> {
    name: &'static str,
    questions: Q,
    host: Host,
    path: Path,
    /// Sum of the addresses and the protocol, for the checksum.
    path_sum: Sum,
    target_port: u16,
    slots: Vec<Slot>,
    /// Free slots. The slot that has been free longest is first.
    free: VecDeque<u16>,
    pace: Option<Pace>,
    next_sweep: Instant,
    meter: Meter,
}

impl<Q: Questions> Asker<Q> {
    /// Creates a generator that sends `questions` from `place`. It runs a closed loop with `window`
    /// outstanding requests, or an open loop if `options` have a rate.
    ///
    /// # Errors
    /// Fails if `window` is 0 or more than [`MAX_WINDOW`].
    pub fn new(
        name: &'static str,
        questions: Q,
        place: &Place,
        window: usize,
        options: &Options,
    ) -> Result<Self, LoadError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(LoadError::Asked(format!(
                "a window of {window} requests is not possible: give 1 to {MAX_WINDOW}"
            )));
        }
        let pace = options.pace();
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
            host: Host::own(station, [0; 4]).with_partial_checksums(true),
            path: Path {
                link: place.link,
                addresses,
            },
            path_sum: addresses.sum().word(u16::from(PROTOCOL_UDP)),
            target_port,
            slots: vec![
                Slot {
                    requested_at: Instant::FAR,
                    question: 0,
                    src_port: FIRST_PORT
                };
                slots
            ],
            free: (0..slots).map(|slot| slot as u16).collect(),
            pace,
            next_sweep: Instant::ZERO,
            meter: options.meter(),
        })
    }

    /// Sends one request. Returns false if there is no free slot, no free frame or no room in the
    /// port.
    #[inline(always)]
    fn ask<P: Port>(&mut self, port: &mut P, requested_at: Instant) -> bool {
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
            requested_at,
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
        // Over IPv4 a sender may omit the checksum (RFC 768), and some senders do.
        let unsummed = udp[CHECKSUM_AT..][..2] == [0, 0];
        if !unsummed && !packet.checksum_ok(PROTOCOL_UDP, CHECKSUM_AT) {
            return self.meter.error("wrong checksum");
        }
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let id = word(8);
        let Some(slot) = self.slots.get_mut(usize::from(id)) else {
            return self.meter.error("unknown id");
        };
        if slot.requested_at == Instant::FAR
            || slot.src_port != word(2)
            || word(0) != self.target_port
        {
            return self.meter.error("late or unsolicited");
        }
        match self.questions.check(slot.question, &udp[HEADER_LEN..]) {
            Ok(()) => self
                .meter
                .complete(slot.requested_at, now, udp.len() - HEADER_LEN),
            Err(wrong) => self.meter.error(wrong),
        }
        slot.requested_at = Instant::FAR;
        self.free.push_back(id);
    }

    /// Frees the slots of lost requests, and counts a timeout for each.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = now + SWEEP;
        for (id, slot) in self.slots.iter_mut().enumerate() {
            if slot.requested_at != Instant::FAR && now.since(slot.requested_at) > TIMEOUT {
                slot.requested_at = Instant::FAR;
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
                // Returning the received frame to the pool first lets the next request reuse the
                // frame.
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
        // Further requests wait for a later pass, and their latency grows.
        for _ in 0..pace.burst().max(CATCH_UP) {
            let Some(due) = pace.take(now) else {
                return;
            };
            if !self.ask(port, due) {
                return;
            }
            self.pace = Some(pace);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.pace.and_then(|pace| pace.due());
        Some(due.map_or(self.next_sweep, |due| due.min(self.next_sweep)))
    }
}

impl<Q: Questions> Generator for Asker<Q> {
    fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    fn report(&self) -> Report {
        let rate = self.pace.map_or(0.0, |pace| pace.rate());
        self.meter.report(self.name, rate)
    }
}

#[cfg(test)]
mod tests {
    use nmio::sim::Sink;

    use super::super::dns::{Kind, Queries};
    use super::*;

    fn asker(options: &[&str]) -> Asker<Queries> {
        let options = Options::of_tests(&[&["--warmup", "0"], options].concat());
        let queries = Queries::new(Kind::Plain, 100, 1);
        let mut asker = Asker::new("test", queries, &Place::of_tests(), 1, &options).unwrap();
        asker.meter().advance(Instant::ZERO);
        asker.meter().advance(Instant::ZERO);
        asker
    }

    fn due(asker: &Asker<Queries>) -> Option<Instant> {
        Handler::<Sink>::poll_timeout(asker)
    }

    #[test]
    fn late_requests_are_sent_in_several_passes() {
        let late = Instant::from_millis(1);
        for (burst, sent) in [("1", 64), ("100", 100)] {
            let mut asker = asker(&["--rate", "1000000", "--burst", burst]);
            let mut port = Sink::new(1500, 1, 0);
            asker.handle_timers(&mut port, Instant::ZERO);
            let before = port.counters().tx_frames;
            asker.handle_timers(&mut port, late);
            assert_eq!(port.counters().tx_frames - before, sent);
            while due(&asker) <= Some(late) {
                asker.handle_timers(&mut port, late);
            }
            assert!((1_001..=1_100).contains(&port.counters().tx_frames));
        }
    }

    #[test]
    fn requests_without_room_keep_their_due_times() {
        let mut asker = asker(&["--rate", "1000"]);
        // The sink keeps the only frame that it has.
        let mut port = Sink::new(1500, 0, 0);
        for at in [0, 5] {
            asker.handle_timers(&mut port, Instant::from_millis(at));
            assert_eq!(port.counters().tx_frames, 1);
            assert_eq!(due(&asker), Some(Instant::from_millis(1)));
        }
        assert!(asker.report().errors.is_empty());
    }
}
