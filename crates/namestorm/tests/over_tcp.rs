//! DNS over TCP as a whole, through the stack: many queries before a reply is
//! acknowledged.

mod harness;

use std::net::SocketAddr;

use harness::{
    CLIENT_MAC, CLIENT_V4, Client, FORMS, MODES, PORT, Query, SERVER_MAC, SERVER_V4, name, prepare,
    prepare_hooked,
};
use namestorm::{Hook, Question, RecordError, Records, Verdict, rcode};
use nmio::{Handler, Instant};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl,
    TcpPacket, TcpRepr, TcpSeqNumber,
};

const ZONE: &str = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n";

/// A segment from the client, as a whole frame.
fn segment(seq: u32, ack: Option<u32>, control: TcpControl, data: &[u8]) -> Vec<u8> {
    let tcp = TcpRepr {
        src_port: 40_000,
        dst_port: PORT,
        control,
        seq_number: TcpSeqNumber(seq.cast_signed()),
        ack_number: ack.map(|ack| TcpSeqNumber(ack.cast_signed())),
        window_len: 65_535,
        window_scale: None,
        max_seg_size: (control == TcpControl::Syn).then_some(1460),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: data,
    };
    let ip = Ipv4Repr {
        src_addr: CLIENT_V4,
        dst_addr: SERVER_V4,
        next_header: IpProtocol::Tcp,
        payload_len: tcp.buffer_len(),
        hop_limit: 64,
    };
    let mut frame = vec![0; 34 + tcp.buffer_len()];
    let mut ethernet = EthernetFrame::new_unchecked(&mut frame);
    ethernet.set_dst_addr(EthernetAddress(SERVER_MAC.0));
    ethernet.set_src_addr(EthernetAddress(CLIENT_MAC.0));
    ethernet.set_ethertype(EthernetProtocol::Ipv4);
    let checksums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    ip.emit(&mut packet, &checksums);
    let mut out = TcpPacket::new_unchecked(packet.payload_mut());
    let (from, to) = (CLIENT_V4.into(), SERVER_V4.into());
    tcp.emit(&mut out, &from, &to, &checksums);
    frame
}

impl Client {
    /// Nothing arrives until `now`.
    fn wait_until(&mut self, now: Instant) {
        self.server.handle_timers(&mut self.sink, now);
    }
}

/// Where the last thing the server sent ends in its sequence space.
fn end(frame: &[u8]) -> u32 {
    let packet = Ipv4Packet::new_checked(&frame[14..]).unwrap();
    let tcp = TcpPacket::new_checked(packet.payload()).unwrap();
    let end = tcp.seq_number() + tcp.segment_len();
    end.0.cast_unsigned()
}

/// A message with its length in front.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend(message);
    bytes
}

/// RFC 7766, section 6.2.3, leaves it to the server when to close; a reset
/// could destroy replies that the client has not read yet.
#[test]
fn a_broken_message_closes_the_connection_after_the_replies_before_it() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let mut query = Query::new(&name("ns.example.org"), 1);
    let good = framed(&query.bytes());
    query.flags |= 0x8000;
    let response = framed(&query.bytes());
    let too_long = [0xff, 0xff, 1, 2, 3];
    for broken in [&framed(b"short")[..], &framed(b""), &response, &too_long] {
        let mut client = Client::new(&answers, MODES[0], false);
        let syn_ack = client.handle(&segment(0, None, TcpControl::Syn, b""));
        let heard = end(&syn_ack.unwrap());
        let sent = [&good, &good, broken, &good].concat();
        let reply = client.handle(&segment(1, Some(heard), TcpControl::None, &sent));
        let reply = reply.unwrap();
        let packet = Ipv4Packet::new_checked(&reply[14..]).unwrap();
        let tcp = TcpPacket::new_checked(packet.payload()).unwrap();
        assert!(tcp.fin() && !tcp.rst(), "{broken:?}");
        // Two replies, each as long as the query and one record.
        assert_eq!(tcp.payload().len(), 2 * (good.len() + 16), "{broken:?}");
        // What the client sends meanwhile is acknowledged, not reset.
        let seq = 1 + sent.len() as u32;
        let last = client.handle(&segment(seq, Some(heard), TcpControl::None, &good));
        let last = last.unwrap();
        let packet = Ipv4Packet::new_checked(&last[14..]).unwrap();
        let tcp = TcpPacket::new_checked(packet.payload()).unwrap();
        assert!(!tcp.rst() && tcp.payload().is_empty());
        let acknowledged = tcp.ack_number().0.cast_unsigned();
        assert_eq!(acknowledged, seq + good.len() as u32);
    }
}

#[test]
fn a_query_whose_reply_had_to_wait_counts_once() {
    const SEGMENTS: u32 = 36;
    const AT_ONCE: u32 = 40;
    let text = format!(" {}", "x".repeat(250)).repeat(12);
    let zone = format!("@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 TXT{text}\n");
    let answers = prepare(&[("example.org.", &zone)], FORMS[0]);
    let mut client = Client::new(&answers, MODES[0], false);
    let query = Query::new(&name("ns.example.org"), 16).bytes();
    let queries = framed(&query).repeat(AT_ONCE as usize);
    let syn_ack = client.handle(&segment(0, None, TcpControl::Syn, b""));
    let mut heard = end(&syn_ack.unwrap());
    let mut seq = 1;
    // Nothing is acknowledged meanwhile, so that replies find no room.
    for _ in 0..SEGMENTS {
        client.handle(&segment(seq, Some(heard), TcpControl::None, &queries));
        seq += queries.len() as u32;
    }
    let asked = u64::from(SEGMENTS * AT_ONCE);
    let counters = |client: &Client| *client.server.transports.tcp().app().counters();
    assert!(counters(&client).queries < asked, "all found room at once");
    while let Some(reply) = client.handle(&segment(seq, Some(heard), TcpControl::None, b"")) {
        heard = end(&reply);
    }
    let counters = counters(&client);
    assert_eq!(counters.queries, asked);
    assert_eq!(counters.replies[usize::from(rcode::NOERROR)], asked);
}

#[test]
fn a_query_has_ten_seconds_from_its_first_byte_on() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    for (bytes, is_closed) in [(1, true), (2, true), (20, true), (0, false)] {
        let mut client = Client::new(&answers, MODES[0], false);
        let query = Query::new(&name("ns.example.org"), 1).bytes();
        let mut message = framed(&query);
        let syn_ack = client.handle(&segment(0, None, TcpControl::Syn, b""));
        let heard = end(&syn_ack.unwrap());
        message.extend_from_within(..bytes);
        let reply = client.handle(&segment(1, Some(heard), TcpControl::None, &message));
        let heard = end(&reply.unwrap());
        let seq = 1 + message.len() as u32;
        client.handle(&segment(seq, Some(heard), TcpControl::None, b""));
        let missed = |client: &Client| client.server.transports.tcp().counters().deadlines_missed;
        client.wait_until(Instant::from_millis(9_998));
        assert_eq!(missed(&client), 0);
        client.wait_until(Instant::from_millis(10_001));
        assert_eq!(missed(&client), u64::from(is_closed), "{bytes} bytes");
    }
}

/// Counts what it is asked and by whom, and drops questions for names that start with `d`.
#[derive(Default)]
struct Counting(u8, Vec<(SocketAddr, bool)>);

impl Hook for Counting {
    type Message = ();

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        self.0 += 1;
        self.1.push((question.peer(), question.is_over_tcp()));
        records.add(1, 1, &[192, 0, 2, self.0])?;
        Ok(match question.labels().next() {
            Some([b'd', ..]) => Verdict::Drop,
            _ => Verdict::Records,
        })
    }
}

#[test]
fn one_hook_answers_over_udp_and_tcp() {
    let zones = [("example.org.", ZONE)];
    let answers = prepare_hooked(&zones, &[], &["*.example.org"], FORMS[0]);
    let mut client = Client::with_hook(&answers, MODES[0], false, Counting::default());
    let query = |text| Query::new(&name(text), 1).bytes();
    let over_udp = client.ask(&query("a.example.org")).unwrap();
    assert!(over_udp.ends_with(&[192, 0, 2, 1]));
    assert_eq!(client.ask(&query("d.example.org")), None);
    let syn_ack = client.handle(&segment(0, None, TcpControl::Syn, b""));
    let heard = end(&syn_ack.unwrap());
    let asked = ["b.example.org", "dropped.example.org", "c.example.org"];
    let sent = asked.map(|text| framed(&query(text))).concat();
    let reply = client.handle(&segment(1, Some(heard), TcpControl::None, &sent));
    let reply = reply.unwrap();
    let packet = Ipv4Packet::new_checked(&reply[14..]).unwrap();
    let tcp = TcpPacket::new_checked(packet.payload()).unwrap();
    // The reply to the first, and the end.
    assert!(tcp.fin() && !tcp.rst());
    let expected = framed(&[&over_udp[..over_udp.len() - 1], &[3]].concat());
    let expected = [&expected[..15], b"b", &expected[16..]].concat();
    assert_eq!(tcp.payload(), expected);
    let Counting(count, asked_by) = client.server.transports.hook();
    let peer = SocketAddr::new(CLIENT_V4.into(), 40_000);
    assert_eq!(
        (*count, &asked_by[..]),
        (4, &[false, false, true, true].map(|tcp| (peer, tcp))[..])
    );
    let drops = client.server.transports.tcp().app().counters().drops();
    assert_eq!(drops[2], ("no reply by the hook", 1));
}
