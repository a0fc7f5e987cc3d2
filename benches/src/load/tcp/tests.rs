use nmio::sim::Sink;
use testkit::{Opt, Received, read_segment};

use super::*;

/// Sends a packet with random sequence number, acknowledgement number and window. Checks the packet
/// and returns its segment.
fn sent(
    rng: &mut fastrand::Rng,
    send: impl FnOnce(&mut Sink, &Fields) -> bool,
) -> testkit::Segment {
    let mut sink = Sink::new(1500, 4, 0);
    let place = Place::of_tests();
    let fields = Fields {
        src: place.addresses[0].to_bits(),
        src_port: 40_000,
        seq: rng.u32(..),
        ack: rng.u32(..),
        window: rng.u16(..),
    };
    assert!(send(&mut sink, &fields));
    let Received { route, segment, .. } = read_segment(sink.last()).unwrap();
    assert_eq!(route, testkit::Route::to_server(false, 40_000, 80));
    assert_eq!((segment.seq, segment.ack), (fields.seq, fields.ack));
    assert_eq!(segment.window, fields.window);
    segment
}

#[test]
fn prepared_packets_are_valid() {
    let mut rng = fastrand::Rng::with_seed(1);
    let packets = PacketTemplates::new(&Place::of_tests());
    for _ in 0..200 {
        let data: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
        let request = Template::new(&Place::of_tests(), PSH | ACK, &[], &data);
        for (packet, control, data) in [
            (&packets.syn, SYN, &[][..]),
            (&packets.fin, FIN | ACK, &[]),
            (&packets.reset, RST, &[]),
            (&packets.reset_ack, RST | ACK, &[]),
            (&request, PSH | ACK, &data),
        ] {
            let segment = sent(&mut rng, |port, fields| send(port, packet, fields));
            assert_eq!(
                (segment.bits, segment.data.as_slice()),
                (control.into(), data)
            );
            if control == SYN {
                let options = [Opt::Mss(1460), Opt::Scale(7), Opt::SackPermitted];
                assert_eq!(segment.options, options);
            }
        }
    }
}

#[test]
fn acks_with_sack_blocks_are_valid() {
    let mut rng = fastrand::Rng::with_seed(3);
    let packets = PacketTemplates::new(&Place::of_tests());
    for count in 0..=MAX_SACK_BLOCKS {
        let blocks: Vec<(u32, u32)> = (0..count).map(|_| (rng.u32(..), rng.u32(..))).collect();
        let segment = sent(&mut rng, |port, fields| {
            packets.send_ack(port, fields, &blocks)
        });
        assert_eq!((segment.bits, segment.len()), (ACK.into(), 0));
        assert_eq!(segment.sack(), blocks);
    }
}

#[test]
fn malformed_options_are_ignored() {
    let nothing = Negotiated {
        mss: DEFAULT_MSS,
        window_scale: None,
        sack: false,
    };
    let read = |options: &[u8]| Negotiated::read(&[&[0; HEADER_LEN], options].concat());
    for options in [
        &[][..],
        &[2],
        &[2, 4, 5],
        &[2, 0, 5, 180],
        &[2, 1, 5, 180],
        &[3, 2, 1, 1],
        &[4, 3, 0],
        &[0, 4, 2, 3],
        &[255, 255, 4, 2],
        &[1, 1, 1],
    ] {
        assert_eq!(read(options), nothing, "{options:?}");
    }
    assert_eq!(read(&[3, 3, 200]).window_scale, Some(14));
    assert_eq!(read(&[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 4, 0]).mss, 1024);
    assert_eq!(Negotiated::read(&[1, 2, 3]), nothing, "a truncated header");
}
