//! A client's end for tests: whole frames in, whole frames out. What comes
//! back is taken apart by smoltcp, which shares no code with the server.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use eth::{Mac, Station};
use ip::Host;
use namestorm::{
    Answers, Dns, DnsOverTcp, Form, Hook, IDLE_TIMEOUT, Mode, NoHook, Server, TcpSettings,
    UdpAndTcp, Zones, compile, load_text,
};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet,
    Ipv6Repr, UdpPacket, UdpRepr,
};

pub(crate) const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
pub(crate) const SERVER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
pub(crate) const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
pub(crate) const PORT: u16 = 53;
pub(crate) const CLIENT_PORT: u16 = 40_000;

pub(crate) const FORMS: [Form; 2] = [Form::Wire, Form::Fqdn];
pub(crate) const MODES: [Mode; 3] = [Mode::Turnaround, Mode::MemCopy, Mode::PreCopy];

/// Zones, each as (origin, text), prepared.
pub(crate) fn prepare(zones: &[(&str, &str)], form: Form) -> Arc<Answers> {
    prepare_beside(zones, &[], form)
}

/// Zones, each as (origin, text), prepared beside broken ones.
pub(crate) fn prepare_beside(zones: &[(&str, &str)], broken: &[&str], form: Form) -> Arc<Answers> {
    prepare_hooked(zones, broken, &[], form)
}

/// The same with names that a hook answers for.
pub(crate) fn prepare_hooked(
    zones: &[(&str, &str)],
    broken: &[&str],
    hooked: &[&str],
    form: Form,
) -> Arc<Answers> {
    let zones = zones
        .iter()
        .map(
            |(origin, text)| match load_text(origin, Some(origin), text) {
                Ok(loaded) => loaded.zone,
                Err(report) => panic!("{report}"),
            },
        )
        .collect();
    let broken = broken.iter().map(|apex| name(apex)).collect();
    let mut zones = Zones::with_broken(zones, broken).expect("zones of different names");
    for name in hooked {
        zones.hook(name).expect("a name of the zones");
    }
    Arc::new(compile(&zones, form, [1, 2, 3, 4], &mut |_| {}).unwrap())
}

/// A server with a port and a client's end.
pub(crate) struct Client<H: Hook = NoHook> {
    pub(crate) server: Server<H>,
    pub(crate) sink: Sink,
    pub(crate) v6: bool,
}

impl Client {
    pub(crate) fn new(answers: &Arc<Answers>, mode: Mode, v6: bool) -> Self {
        Self::with_hook(answers, mode, v6, NoHook)
    }
}

impl<H: Hook> Client<H> {
    pub(crate) fn with_hook(answers: &Arc<Answers>, mode: Mode, v6: bool, hook: H) -> Self {
        let mut sink = Sink::new(1500, 64, 256);
        sink.copy_residents(true);
        let addresses = [IpAddr::from(SERVER_V4), IpAddr::from(SERVER_V6)];
        let host = Host::own(Station::new(SERVER_MAC, &addresses));
        let capabilities = sink.capabilities();
        let transports = UdpAndTcp::with_hook(
            PORT,
            Dns::new(Arc::clone(answers), mode),
            DnsOverTcp::with_hook(Arc::clone(answers), IDLE_TIMEOUT, hook),
            &TcpSettings::default().stack,
            &capabilities,
            [5, 6, 7, 8],
        );
        let server = Server::new(host, transports);
        Self { server, sink, v6 }
    }

    /// Sends a query in a datagram, and gives the reply's payload, if any.
    pub(crate) fn ask(&mut self, query: &[u8]) -> Option<Vec<u8>> {
        let reply = self.handle(&datagram(self.v6, query))?;
        Some(payload(self.v6, &reply))
    }

    /// Gives a frame to the server, and what it sends, if it does.
    pub(crate) fn handle(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let sent = self.sink.counters().tx_frames;
        let frame = self.sink.frame_from(frame);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
        (self.sink.counters().tx_frames > sent).then(|| self.sink.last().to_vec())
    }
}

/// A query datagram from the client, as a whole frame.
pub(crate) fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr {
        src_port: CLIENT_PORT,
        dst_port: PORT,
    };
    let len = 8 + payload.len();
    let checksums = ChecksumCapabilities::default();
    let fill = |bytes: &mut [u8]| bytes.copy_from_slice(payload);
    if v6 {
        let ip = Ipv6Repr {
            src_addr: CLIENT_V6,
            dst_addr: SERVER_V6,
            next_header: IpProtocol::Udp,
            payload_len: len,
            hop_limit: 64,
        };
        let mut frame = ethernet(40 + len, EthernetProtocol::Ipv6);
        let mut packet = Ipv6Packet::new_unchecked(&mut frame[14..]);
        ip.emit(&mut packet);
        let mut out = UdpPacket::new_unchecked(packet.payload_mut());
        udp.emit(
            &mut out,
            &ip.src_addr.into(),
            &ip.dst_addr.into(),
            payload.len(),
            fill,
            &checksums,
        );
        return frame;
    }
    let ip = Ipv4Repr {
        src_addr: CLIENT_V4,
        dst_addr: SERVER_V4,
        next_header: IpProtocol::Udp,
        payload_len: len,
        hop_limit: 64,
    };
    let mut frame = ethernet(20 + len, EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    ip.emit(&mut packet, &checksums);
    let mut out = UdpPacket::new_unchecked(packet.payload_mut());
    udp.emit(
        &mut out,
        &ip.src_addr.into(),
        &ip.dst_addr.into(),
        payload.len(),
        fill,
        &checksums,
    );
    frame
}

fn ethernet(len: usize, ethertype: EthernetProtocol) -> Vec<u8> {
    let mut bytes = vec![0; 14 + len];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_dst_addr(EthernetAddress(SERVER_MAC.0));
    frame.set_src_addr(EthernetAddress(CLIENT_MAC.0));
    frame.set_ethertype(ethertype);
    bytes
}

/// The payload of a datagram from the server, every header and checksum of
/// which has been checked.
pub(crate) fn payload(v6: bool, frame: &[u8]) -> Vec<u8> {
    let frame = EthernetFrame::new_checked(frame).unwrap();
    assert_eq!(frame.dst_addr(), EthernetAddress(CLIENT_MAC.0));
    assert_eq!(frame.src_addr(), EthernetAddress(SERVER_MAC.0));
    let (src, dst, segment);
    if v6 {
        assert_eq!(frame.ethertype(), EthernetProtocol::Ipv6);
        let packet = Ipv6Packet::new_checked(frame.payload()).unwrap();
        assert_eq!(packet.next_header(), IpProtocol::Udp);
        assert_eq!(
            (packet.src_addr(), packet.dst_addr()),
            (SERVER_V6, CLIENT_V6)
        );
        assert_eq!(packet.total_len(), frame.payload().len());
        (src, dst) = (packet.src_addr().into(), packet.dst_addr().into());
        segment = packet.payload().to_vec();
    } else {
        assert_eq!(frame.ethertype(), EthernetProtocol::Ipv4);
        let packet = Ipv4Packet::new_checked(frame.payload()).unwrap();
        assert_eq!(packet.next_header(), IpProtocol::Udp);
        assert!(packet.verify_checksum());
        assert_eq!(
            (packet.src_addr(), packet.dst_addr()),
            (SERVER_V4, CLIENT_V4)
        );
        assert_eq!(usize::from(packet.total_len()), frame.payload().len());
        (src, dst) = (packet.src_addr().into(), packet.dst_addr().into());
        segment = packet.payload().to_vec();
    }
    let udp = UdpPacket::new_checked(segment.as_slice()).unwrap();
    assert_ne!(udp.checksum(), 0);
    assert!(udp.verify_checksum(&src, &dst), "the UDP checksum is wrong");
    assert_eq!((udp.src_port(), udp.dst_port()), (PORT, CLIENT_PORT));
    assert_eq!(usize::from(udp.len()), segment.len());
    udp.payload().to_vec()
}

/// A query, as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) name: Vec<u8>,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    /// Size, version and flags of an OPT record.
    pub(crate) edns: Option<(u16, u8, u16)>,
    /// The authority section holds an SOA record, as in an IXFR query.
    pub(crate) has_soa: bool,
}

impl Query {
    /// A query for `name` in wire format, class IN, recursion desired.
    pub(crate) fn new(name: &[u8], qtype: u16) -> Self {
        Self {
            id: 0x1234,
            flags: 0x0100,
            name: name.to_vec(),
            qtype,
            qclass: 1,
            edns: None,
            has_soa: false,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let additional = u16::from(self.edns.is_some());
        let authority = u16::from(self.has_soa);
        for word in [self.id, self.flags, 1, 0, authority, additional] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(&self.name);
        bytes.extend(self.qtype.to_be_bytes());
        bytes.extend(self.qclass.to_be_bytes());
        if self.has_soa {
            // Owner, type, class, TTL, length; two root names, five numbers.
            bytes.extend(b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0");
            bytes.extend([0; 20]);
        }
        if let Some((size, version, flags)) = self.edns {
            bytes.extend([0, 0, 41]);
            bytes.extend(size.to_be_bytes());
            bytes.extend([0, version]);
            bytes.extend(flags.to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes
    }
}

/// A name in wire format.
pub(crate) fn name(text: &str) -> Vec<u8> {
    use std::str::FromStr;
    domain::base::Name::<Vec<u8>>::from_str(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .into_octets()
}

/// The number of a type.
pub(crate) fn rtype(text: &str) -> u16 {
    use std::str::FromStr;
    domain::base::iana::Rtype::from_str(text)
        .unwrap_or_else(|_| panic!("{text} is no type"))
        .to_int()
}
