//! What the targets share: the two ends of a wire, and packets between them
//! that are right as far as the target wants it.

pub mod dns;
pub mod http;
pub mod talk;
pub mod tcp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header, Link, Mac, Station};
use ip::{
    Addresses, Host, IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_ICMP, PROTOCOL_ICMPV6,
    PROTOCOL_TCP, PROTOCOL_UDP, Path, Sum,
};

/// The server's addresses.
pub const OWN: (Mac, Ipv4Addr, Ipv6Addr) = (
    Mac([2, 0, 0, 0, 0, 1]),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
);
/// The client's addresses.
pub const PEER: (Mac, Ipv4Addr, Ipv6Addr) = (
    Mac([2, 0, 0, 0, 0, 9]),
    Ipv4Addr::new(10, 0, 0, 9),
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9),
);
/// The largest packet of the wire.
pub const MTU: usize = 1500;

/// The VLANs that both ends serve.
const VLANS: [u16; 3] = [0, 1, 2];

/// A station with one of the two sets of addresses.
pub fn station((mac, v4, v6): (Mac, Ipv4Addr, Ipv6Addr)) -> Station {
    Station::new(mac, &[v4.into(), v6.into()]).with_vlans(&VLANS)
}

/// A host at `address` alone, for what was sent there.
pub fn host_at(mac: Mac, address: IpAddr) -> Host {
    Host::own(Station::new(mac, &[address]).with_vlans(&VLANS))
}

/// The way from the client to the server.
pub fn path(v6: bool, vlan: Option<u16>) -> Path {
    let addresses = if v6 {
        Addresses::V6 {
            src: PEER.2,
            dst: OWN.2,
        }
    } else {
        Addresses::V4 {
            src: PEER.1,
            dst: OWN.1,
        }
    };
    let link = Link {
        peer: OWN.0,
        own: PEER.0,
        // Whatever its priority, one of four, of which both ends serve three.
        vlan: vlan.map(|tag| tag & 0xf003),
    };
    Path { link, addresses }
}

/// A whole frame, its checksums right.
pub fn packet(path: &Path, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; path.header_len()];
    path.write(&mut frame, protocol, payload.len());
    frame.extend_from_slice(payload);
    let start = path.header_len();
    sum_up(&mut frame[start..], protocol, &path.addresses);
    frame
}

/// Where the IP header of a frame is, if it has one of the two.
fn ip_at(frame: &[u8]) -> Option<(usize, u16)> {
    let link = Header::parse(frame)?;
    Some((link.len(), link.ethertype))
}

/// Writes the two ECN bits (RFC 3168) of a valid frame.
pub fn mark(frame: &mut [u8], ecn: u8) {
    match ip_at(frame) {
        Some((at, ETHERTYPE_IPV4)) => {
            let header = &mut frame[at..at + IPV4_HEADER_LEN];
            header[1] = header[1] & !3 | ecn & 3;
            header[10..12].fill(0);
            let sum = Sum::of(header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some((at, ETHERTYPE_IPV6)) => {
            frame[at + 1] = frame[at + 1] & !0x30 | (ecn & 3) << 4;
        }
        _ => {}
    }
}

/// The two ECN bits of a valid frame.
pub fn ecn_of(frame: &[u8]) -> u8 {
    match ip_at(frame) {
        Some((at, ETHERTYPE_IPV4)) => frame[at + 1] & 3,
        Some((at, ETHERTYPE_IPV6)) => frame[at + 1] >> 4 & 3,
        _ => 0,
    }
}

/// Makes what nobody hits by chance right in a frame of any bytes, as far as
/// it has the place: that it is for us, and its checksums.
pub fn mend(frame: &mut [u8]) {
    let Some(link) = Header::parse(frame) else {
        return;
    };
    let packet = &mut frame[link.len()..];
    let (addresses, protocol, len, header_len) = match link.ethertype {
        ETHERTYPE_IPV4 if packet.len() >= IPV4_HEADER_LEN => {
            packet[16..20].copy_from_slice(&OWN.1.octets());
            packet[10..12].fill(0);
            let told = usize::from(packet[0] & 15) * 4;
            let header_len = told.clamp(IPV4_HEADER_LEN, packet.len());
            let sum = Sum::of(&packet[..header_len]).finish();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let src = Ipv4Addr::from_octets(packet[12..16].try_into().expect("four bytes"));
            let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let addresses = Addresses::V4 { src, dst: OWN.1 };
            (addresses, packet[9], len, header_len)
        }
        ETHERTYPE_IPV6 if packet.len() >= IPV6_HEADER_LEN => {
            let address =
                |at: usize| -> [u8; 16] { packet[at..at + 16].try_into().expect("sixteen bytes") };
            let (src, dst) = (Ipv6Addr::from(address(8)), Ipv6Addr::from(address(24)));
            // Neighbour discovery comes to a group, too.
            let dst = if dst.is_multicast() { dst } else { OWN.2 };
            packet[24..40].copy_from_slice(&dst.octets());
            let len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let addresses = Addresses::V6 { src, dst };
            (addresses, packet[6], IPV6_HEADER_LEN + len, IPV6_HEADER_LEN)
        }
        _ => return,
    };
    if let Some(payload) = packet.get_mut(header_len..len) {
        sum_up(payload, protocol, &addresses);
    }
}

/// Writes the checksum of an IP payload, where it has one.
fn sum_up(payload: &mut [u8], protocol: u8, addresses: &Addresses) {
    let at = match protocol {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => 2,
        _ => return,
    };
    let pseudo = match protocol {
        PROTOCOL_ICMP => Sum::ZERO,
        _ => addresses.pseudo_sum(protocol, payload.len()),
    };
    if payload.len() >= at + 2 {
        payload[at..at + 2].fill(0);
        let sum = pseudo.add(Sum::of(payload));
        let field = match protocol {
            PROTOCOL_UDP => sum.finish_udp(),
            _ => sum.finish(),
        };
        payload[at..at + 2].copy_from_slice(&field.to_be_bytes());
    }
}
