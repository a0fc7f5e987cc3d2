//! A SYN flood from made-up client addresses.
//!
//! The client addresses belong to a block that is reserved for benchmarks (RFC 2544, appendix
//! C.2.2). The server's answers are routed to the generator's namespace, where the kernel drops
//! them. The SYNs have the options that clients use today.

use std::net::Ipv4Addr;

use ip::{Host, Input};
use nmio::{Frame, Handler, Instant, Port};

use super::link::{Generator, LoadError, Options, Place};
use super::meter::{Meter, Report};
use super::pace::Pace;
use super::tcp::{Fields, SYN, Template, send};

/// First client address.
const BLOCK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// Number of random bits at the end of a client address. The block is a /15.
const BLOCK_BITS: u32 = 17;
/// Lowest source port.
const FIRST_PORT: u16 = 1024;
/// TCP options of the SYN: MSS 1460, SACK-permitted, timestamps, no operation, window scale 7 (RFC
/// 9293, section 3.1; RFC 7323; RFC 2018).
const OPTIONS: [u8; 20] = [
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 3, 9, 0, 0, 0, 0, 1, 3, 3, 7,
];

/// Sends SYNs at a fixed rate, each from a random client address and port.
pub struct Flood {
    host: Host,
    syn: Template,
    random: fastrand::Rng,
    pace: Pace,
    meter: Meter,
}

impl Flood {
    /// Creates a flood against the server of `place`.
    ///
    /// # Errors
    /// Fails if `options` have no rate. A closed loop is impossible, because the generator receives
    /// no replies.
    pub fn new(place: &Place, options: &Options) -> Result<Self, LoadError> {
        let Some(pace) = options.pace() else {
            return Err(LoadError::Asked("a flood needs a --rate".into()));
        };
        let station = eth::Station::new(place.link.own, &[place.addresses[0].into()]);
        Ok(Self {
            host: Host::own(station, [0; 4]),
            syn: Template::new(place, SYN, &OPTIONS, &[]),
            random: fastrand::Rng::with_seed(options.seed),
            pace,
            meter: options.meter(),
        })
    }

    /// Sends one SYN. Returns false if the port has no free frame or no room.
    #[inline(always)]
    fn knock<P: Port>(&mut self, port: &mut P) -> bool {
        let random = self.random.u64(..);
        let fields = Fields {
            src: BLOCK.to_bits() | random as u32 & ((1 << BLOCK_BITS) - 1),
            src_port: ((random >> 48) as u16).max(FIRST_PORT),
            seq: (random >> 16) as u32,
            ack: 0,
            window: u16::MAX,
        };
        send(port, &self.syn, &fields)
    }
}

impl<P: Port> Handler<P> for Flood {
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        if let Input::Reply(frame) = self.host.receive(frame, now) {
            let _ = port.send(frame);
        }
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        while let Some(due) = self.pace.take(now) {
            if self.knock(port) {
                self.meter.complete(due, now, 0);
            } else {
                self.meter.error("not sent");
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // The first SYN is due immediately.
        Some(self.pace.due().unwrap_or(Instant::ZERO))
    }
}

impl Generator for Flood {
    fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    fn report(&self) -> Report {
        self.meter.report("load syn", self.pace.rate())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use nmio::sim::Sink;
    use testkit::{Opt, read_segment};

    use super::*;

    #[test]
    fn syns_are_valid_and_come_from_many_clients() {
        let place = Place::of_tests();
        assert!(Flood::new(&place, &Options::of_tests(&[])).is_err());
        let options = Options::of_tests(&["--rate", "1000", "--warmup", "0"]);
        let mut flood = Flood::new(&place, &options).unwrap();
        let mut port = Sink::new(1500, 64, 0);
        let mut clients = HashSet::new();
        for n in 0..1_000 {
            flood.handle_timers(&mut port, Instant::from_millis(n));
            let received = read_segment(port.last()).unwrap();
            let (route, segment) = (received.route, received.segment);
            assert_eq!((segment.bits, segment.len()), (testkit::SYN, 0));
            assert_eq!((segment.mss(), segment.scale()), (Some(1460), Some(7)));
            assert!(segment.options.contains(&Opt::SackPermitted));
            assert_eq!((route.dst.ip, route.dst.port), (place.target.0.into(), 80));
            assert!(route.src.ip.to_string().starts_with("198.1"), "{route:?}");
            clients.insert((route.src.ip, route.src.port));
        }
        assert!(clients.len() > 990);
    }
}
