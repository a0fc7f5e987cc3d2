//! Any bytes as a UDP datagram, answered in each way: the answer is what the
//! service wrote, and a peer takes it.
#![no_main]

use fuzz::{MTU, OWN, PEER, packet, path, station};
use ip::{Host, PROTOCOL_UDP};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use udpip::{AnswerCopies, Datagram, HEADER_LEN, Server, Service, Tail, Udp};

const PORT: u16 = 53;
/// Frames beside the sink's own: one is received, one sent, one made into a
/// resident.
const FRAMES: u32 = 3;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Way {
    TurnRound,
    Copy,
    Resident,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    v6: bool,
    vlan: Option<u16>,
    /// Port and length are made right.
    is_ours: bool,
    way: Way,
    /// A head that is longer than what was received.
    extend: Option<u16>,
    head_len: u16,
    tail: &'a [u8],
    trail: &'a [u8],
    datagram: &'a [u8],
}

/// Answers as the input says, and remembers what the answer must be.
struct Answering<'a> {
    input: &'a Input<'a>,
    copies: AnswerCopies,
    answer: Option<Vec<u8>>,
    answered: u64,
}

impl Service for Answering<'_> {
    type Message = ();

    fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
        let input = self.input;
        if let Some(len) = input.extend {
            let old = datagram.payload().len();
            let len = usize::from(len).min(datagram.max_reply());
            datagram.extend_payload(len);
            // What is new has the bytes of whoever used the frame before.
            if let Some(new) = datagram.payload_mut().get_mut(old..) {
                new.fill(0xee);
            }
        }
        let payload = datagram.payload();
        // The copies of one answer have heads of one length.
        let head_len = usize::from(input.head_len);
        let parts = payload
            .get(..head_len)
            .map(|head| [head, input.tail, input.trail]);
        let answer = parts.map(|parts| parts.concat());
        let fits = answer
            .as_ref()
            .is_some_and(|a| a.len() <= datagram.max_reply());
        let tail = Tail::new(input.tail);
        let sent = match input.way {
            Way::TurnRound => datagram.turn_around(head_len, tail, input.trail),
            Way::Copy => datagram.send_copy(head_len, tail, input.trail),
            Way::Resident => datagram.send_resident(head_len, &mut self.copies, tail, input.trail),
        };
        assert_eq!(sent, fits);
        self.answered += u64::from(sent);
        self.answer = answer.filter(|_| sent);
    }
}

/// Keeps what it gets.
#[derive(Default)]
struct Asker(Option<Vec<u8>>);

impl Service for Asker {
    type Message = ();

    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        assert_eq!(datagram.peer().port(), PORT);
        self.0 = Some(datagram.payload().to_vec());
    }
}

fuzz_target!(|input: Input| {
    let path = path(input.v6, input.vlan);
    let mut udp = input.datagram.to_vec();
    udp.truncate(MTU - path.addresses.header_len());
    if input.is_ours && udp.len() >= HEADER_LEN {
        let len = udp.len() as u16;
        udp[2..4].copy_from_slice(&PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let frame = packet(&path, PROTOCOL_UDP, &udp);

    let mut sink = Sink::new(MTU, FRAMES, 2);
    sink.copy_residents(true);
    let service = Answering {
        input: &input,
        copies: AnswerCopies::default(),
        answer: None,
        answered: 0,
    };
    let mut server = Server::new(Host::own(station(OWN)), Udp::new(PORT, service));
    // The first answer makes what the later ones use.
    for _ in 0..3 {
        let frame = sink.frame_from(&frame);
        server.handle_frame(&mut sink, frame, Instant::ZERO);
        if let Some(answer) = &server.transports.service().answer {
            let asker_port = u16::from_be_bytes([udp[0], udp[1]]);
            let mut asker = Server::new(
                Host::own(station(PEER)),
                Udp::new(asker_port, Asker::default()),
            );
            let mut peer = Sink::new(MTU, 2, 0);
            let frame = peer.frame_from(sink.last());
            asker.handle_frame(&mut peer, frame, Instant::ZERO);
            assert_eq!(
                asker.transports.service().0.as_ref(),
                Some(answer),
                "{:?}",
                asker.transports.counters()
            );
        }
    }
    let counters = server.transports.counters();
    assert_eq!(counters.answered, server.transports.service().answered);
    assert_eq!(counters.ring_full, 0);
    // A port that nobody serves is told to be unreachable.
    let errors = server.host.counters().errors_sent;
    assert_eq!(sink.counters().tx_frames, counters.answered + errors);
    // The sink keeps the last frame; a resident leaves it none.
    let kept = FRAMES + 1 - sink.pool().available();
    assert!(kept <= 1, "a frame has leaked");
});
