//! A SYN flood from made-up client addresses.
//!
//! The client addresses belong to a block that is reserved for benchmarks (RFC 2544, appendix
//! C.2.2). The kernel of the generator's namespace drops the answers. The SYNs have the options
//! that clients use today.

use std::net::Ipv4Addr;

use ip::{Addresses, Host, Input, PROTOCOL_TCP, Path, Sum};
use nmio::{Frame, Handler, Instant, Port};

use super::link::{Generator, LoadError, Place};
use super::meter::{Meter, Report};
use super::pace::Pace;

/// First address of the block, and the number of random bits in an address.
const BLOCK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const BLOCK_BITS: u32 = 17;
/// Lowest source port.
const FIRST_PORT: u16 = 1024;
/// The TCP header and these options: MSS 1460, SACK-permitted, timestamps, no operation, window
/// scale 7 (RFC 9293, section 3.1; RFC 7323; RFC 2018).
const HEADER_LEN: usize = 20;
const OPTIONS: [u8; 20] = [
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 3, 9, 0, 0, 0, 0, 1, 3, 3, 7,
];
const SEGMENT_LEN: usize = HEADER_LEN + OPTIONS.len();
const CHECKSUM_AT: usize = 16;
const SYN: u8 = 2;

/// Sends SYNs at a fixed rate, each from another client address and port.
pub struct Flood {
    host: Host,
    path: Path,
    target: (Ipv4Addr, u16),
    random: fastrand::Rng,
    pace: Pace,
    meter: Meter,
}

impl Flood {
    /// Creates a flood that sends from `place` at the rate of `pace`.
    ///
    /// # Errors
    /// Fails without a pace. A closed loop is impossible, because no replies arrive.
    pub fn new(
        place: &Place,
        pace: Option<Pace>,
        seed: u64,
        meter: Meter,
    ) -> Result<Self, LoadError> {
        let Some(pace) = pace else {
            return Err(LoadError::Asked("a flood needs a --rate".into()));
        };
        let own = place.addresses[0];
        let station = eth::Station::new(place.link.own, &[own.into()]);
        Ok(Self {
            host: Host::own(station),
            path: Path {
                link: place.link,
                addresses: Addresses::V4 {
                    src: own,
                    dst: place.target.0,
                },
            },
            target: place.target,
            random: fastrand::Rng::with_seed(seed),
            pace,
            meter,
        })
    }

    /// Sends one SYN. Returns false if the port has no free frame or no room.
    #[inline(always)]
    fn knock<P: Port>(&mut self, port: &mut P) -> bool {
        let Some(mut frame) = port.pool().take() else {
            return false;
        };
        let (dst, dst_port) = self.target;
        let random = self.random.u64(..);
        let src = Ipv4Addr::from_bits(BLOCK.to_bits() | random as u32 & ((1 << BLOCK_BITS) - 1));
        let src_port = (random >> 48) as u16;
        let seq = (random >> 16) as u32;
        self.path.addresses = Addresses::V4 { src, dst };
        frame.set_len(self.path.header_len() + SEGMENT_LEN);
        let at = self.path.write(&mut frame, PROTOCOL_TCP, SEGMENT_LEN);
        let tcp = &mut frame[at..];
        tcp[..2].copy_from_slice(&src_port.max(FIRST_PORT).to_be_bytes());
        tcp[2..4].copy_from_slice(&dst_port.to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[8..12].fill(0);
        tcp[12] = ((SEGMENT_LEN / 4) as u8) << 4;
        tcp[13] = SYN;
        tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        tcp[CHECKSUM_AT..HEADER_LEN].fill(0);
        tcp[HEADER_LEN..].copy_from_slice(&OPTIONS);
        let sum = (self.path.addresses)
            .pseudo_sum(PROTOCOL_TCP, SEGMENT_LEN)
            .add(Sum::of(tcp));
        tcp[CHECKSUM_AT..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        port.send(frame).is_ok()
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
        // The first SYN is due at once.
        Some(self.pace.due().unwrap_or(Instant::ZERO))
    }
}

impl<P: Port> Generator<P> for Flood {
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
    use std::time::Duration;

    use eth::{Link, Mac};
    use nmio::sim::Sink;

    use super::*;

    #[test]
    fn every_syn_is_valid_and_from_another_client() {
        let place = Place {
            link: Link {
                peer: Mac([2, 0, 0, 0, 0, 1]),
                own: Mac([2, 0, 0, 0, 0, 9]),
                vlan: None,
            },
            addresses: vec![Ipv4Addr::new(10, 0, 0, 9)],
            target: (Ipv4Addr::new(10, 0, 0, 1), 80),
        };
        let meter = || Meter::new(Duration::ZERO, Duration::from_secs(1));
        assert!(Flood::new(&place, None, 1, meter()).is_err());
        let pace = Pace::new(1_000.0, 1);
        let mut flood = Flood::new(&place, Some(pace), 1, meter()).unwrap();
        let mut port = Sink::new(1500, 64, 0);
        let server = eth::Station::new(Mac([2, 0, 0, 0, 0, 1]), &[place.target.0.into()]);
        let mut host = Host::own(server);
        let mut clients = HashSet::new();
        for n in 0..1_000 {
            flood.handle_timers(&mut port, Instant::from_millis(n));
            let packet = port.last().to_vec();
            let frame = port.frame_from(&packet);
            let Input::Tcp(packet) = host.receive(frame, Instant::ZERO) else {
                panic!("the server rejects the frame");
            };
            assert!(packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT));
            let tcp = packet.payload();
            assert_eq!((tcp[13], tcp.len()), (SYN, SEGMENT_LEN));
            assert_eq!(tcp[2..4], 80u16.to_be_bytes());
            let src_port = u16::from_be_bytes([tcp[0], tcp[1]]);
            let source = packet.addresses().src();
            assert!(source.to_string().starts_with("198.1"), "{source}");
            clients.insert((source, src_port));
        }
        assert!(clients.len() > 990);
    }
}
