//! The fields of a TCP segment that the forwarder needs.

use etherparse::{IpSlice, LinkSlice, NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use testkit::{ACK, End, FIN, RST, Route, SYN};

/// A TCP segment without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Source and destination of the segment.
    pub(crate) route: Route,
    /// Control bits. Bits other than [`SYN`], [`FIN`], [`RST`] and [`ACK`] are 0.
    pub(crate) bits: u16,
    /// Sequence number of the first byte or of the SYN.
    pub(crate) seq: u32,
    /// Acknowledgement number.
    pub(crate) ack: u32,
    /// Window field of the header, unscaled.
    pub(crate) window: u16,
    /// Length of the payload in bytes.
    pub(crate) len: u32,
    /// SACK blocks. A block is given as its first sequence number and the number after its last.
    pub(crate) sack: Vec<(u32, u32)>,
}

impl Segment {
    /// Parses a frame. Returns `None` if the frame does not contain a whole TCP segment. Checksums
    /// are not verified.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let LinkSlice::Ethernet2(link) = packet.link? else {
            return None;
        };
        let TransportSlice::Tcp(tcp) = packet.transport? else {
            return None;
        };
        let ip = match packet.net? {
            NetSlice::Ipv4(ip) => IpSlice::Ipv4(ip),
            NetSlice::Ipv6(ip) => IpSlice::Ipv6(ip),
            NetSlice::Arp(_) => return None,
        };
        let end = |mac, ip, port| End { mac, ip, port };
        let mut sack = Vec::new();
        for option in tcp.options_iterator().flatten() {
            if let TcpOptionElement::SelectiveAcknowledgement(first, others) = option {
                sack.push(first);
                sack.extend(others.into_iter().flatten());
            }
        }
        Some(Self {
            route: Route {
                src: end(link.source(), ip.source_addr(), tcp.source_port()),
                dst: end(
                    link.destination(),
                    ip.destination_addr(),
                    tcp.destination_port(),
                ),
                vlan: None,
            },
            bits: u16::from(tcp.slice()[13]) & (SYN | FIN | RST | ACK),
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            window: tcp.window_size(),
            len: tcp.payload().len() as u32,
            sack,
        })
    }

    /// Returns true if any of `bits` is set.
    pub(crate) fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    /// Returns true if the segment has no payload and none of SYN, FIN and RST.
    pub(crate) fn is_pure_ack(&self) -> bool {
        self.len == 0 && !self.has(SYN | FIN | RST)
    }
}

#[cfg(test)]
mod tests {
    use testkit::{Layout, Opt};

    use super::*;

    fn frame(v6: bool, data: &[u8]) -> Vec<u8> {
        let segment = testkit::Segment {
            bits: ACK,
            seq: 7,
            ack: 9,
            window: 512,
            options: vec![
                Opt::Timestamps(1, 2),
                Opt::Sack(vec![(100, 200), (300, 400)]),
            ],
            data: data.to_vec(),
            ..testkit::Segment::default()
        };
        Route::to_server(v6, 4_000, 80).segment(&segment, Layout::Usual)
    }

    #[test]
    fn a_segment_is_read_from_either_version() {
        for v6 in [false, true] {
            let segment = Segment::parse(&frame(v6, b"hello")).unwrap();
            let expected = Segment {
                route: Route::to_server(v6, 4_000, 80),
                bits: ACK,
                seq: 7,
                ack: 9,
                window: 512,
                len: 5,
                sack: vec![(100, 200), (300, 400)],
            };
            assert_eq!(segment, expected);
            assert!(!segment.is_pure_ack());
            assert!(Segment::parse(&frame(v6, b"")).unwrap().is_pure_ack());
        }
    }

    #[test]
    fn padding_is_not_payload() {
        let mut padded = frame(false, b"");
        padded.resize(120, 0);
        assert_eq!(Segment::parse(&padded).unwrap().len, 0);
    }

    #[test]
    fn truncated_frames_and_fragments_are_rejected() {
        let mut whole = frame(false, b"hello");
        for len in 0..whole.len() {
            assert_eq!(Segment::parse(&whole[..len]), None, "{len} bytes");
        }
        whole[20] = 0x20;
        assert_eq!(Segment::parse(&whole), None);
    }
}
