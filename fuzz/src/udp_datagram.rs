//! Delivers arbitrary UDP datagrams to a service. The input selects how the service replies. An
//! independent parser must find the bytes that the service wrote.

use crate::{MTU, route, station};
use arbitrary::Arbitrary;
use ip::Host;
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use testkit::{UDP, read};
use udpip::{Answer, AnswerCopies, Datagram, HEADER_LEN, Server, Service, Tail, Udp};

const PORT: u16 = 53;
/// Number of frames in addition to the sink's own frames: one for the datagram, one for the reply,
/// and one that becomes a resident.
const FRAMES: u32 = 3;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum ReplyMethod {
    TurnRound,
    Copy,
    Resident,
}

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    v6: bool,
    vlan: Option<u16>,
    /// Whether to set the server's port and a valid length in the UDP header.
    is_ours: bool,
    method: ReplyMethod,
    /// Length in bytes to which the service extends the payload.
    extend: Option<u16>,
    head_len: u16,
    tail: &'a [u8],
    trail: &'a [u8],
    datagram: &'a [u8],
}

/// A service that replies as the input says and records the expected reply.
struct Scripted<'a> {
    input: &'a Input<'a>,
    copies: AnswerCopies,
    answer: Option<Vec<u8>>,
    answered: u64,
}

impl Service for Scripted<'_> {
    type Message = ();

    fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
        let input = self.input;
        if let Some(len) = input.extend {
            let old = datagram.payload().len();
            let len = usize::from(len).min(datagram.max_reply());
            datagram.extend_payload(len);
            // The new bytes are left over from an earlier packet in this frame, so the service must
            // overwrite them.
            if let Some(new) = datagram.payload_mut().get_mut(old..) {
                new.fill(0xee);
            }
        }
        // An answer with a head of another length than the copies would itself be copied, so the input
        // sets one length.
        let head_len = usize::from(input.head_len);
        let head = datagram.payload().get(..head_len);
        let answer = head.map(|head| [head, input.tail, input.trail].concat());
        let max_reply = datagram.max_reply();
        let fits = answer
            .as_ref()
            .is_some_and(|answer| answer.len() <= max_reply);
        let (tail, trail) = (Tail::new(input.tail), Tail::new(input.trail));
        let parts = Answer {
            head_len,
            tail,
            trail,
        };
        match input.method {
            ReplyMethod::TurnRound => datagram.turn_around(parts),
            ReplyMethod::Copy => datagram.send_copy(parts),
            ReplyMethod::Resident => datagram.send_resident(parts, &mut self.copies),
        }
        self.answered += u64::from(fits);
        self.answer = answer.filter(|_| fits);
    }
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let route = route(input.v6, input.vlan);
    let mut udp = input.datagram.to_vec();
    udp.truncate(MTU + route.link_len() - route.header_len());
    if input.is_ours && udp.len() >= HEADER_LEN {
        let len = udp.len() as u16;
        udp[2..4].copy_from_slice(&PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let frame = route.packet(UDP, &udp);

    let mut sink = Sink::new(MTU, FRAMES, 2);
    sink.copy_residents(true);
    let service = Scripted {
        input: &input,
        copies: AnswerCopies::default(),
        answer: None,
        answered: 0,
    };
    let mut server = Server::new(Host::own(station(), [0; 4]), Udp::new(PORT, service));
    // With `ReplyMethod::Resident`, the first answer creates the resident packet that later answers
    // use.
    for _ in 0..3 {
        let frame = sink.frame_from(&frame);
        server.handle_frame(&mut sink, frame, Instant::ZERO);
        if let Some(answer) = &server.transports.service().answer {
            let mut expected = route.back();
            expected.src.port = PORT;
            expected.dst.port = u16::from_be_bytes([udp[0], udp[1]]);
            let packet = read(sink.last()).expect("a valid packet");
            assert_eq!(packet.route, expected);
            assert_eq!(packet.datagram().expect("a datagram"), answer);
        }
    }
    let counters = server.transports.counters();
    assert_eq!(counters.answered, server.transports.service().answered);
    assert_eq!(counters.ring_full, 0);
    // A datagram to another port causes an ICMP error.
    let errors = server.host.counters().errors_sent;
    assert_eq!(sink.counters().tx_frames, counters.answered + errors);
    // The sink keeps the last packet if it is a frame and not a resident packet. So at most one
    // frame is missing.
    let kept = FRAMES + 1 - sink.pool().available();
    assert!(kept <= 1, "a frame has leaked");
}
