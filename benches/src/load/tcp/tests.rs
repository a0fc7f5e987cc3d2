use testkit::{Opt, Received, read_segment};

use super::*;

/// Writes `packet` with random fields, and parses it as strictly as the server does.
fn written(
    len: usize,
    rng: &mut fastrand::Rng,
    write: impl FnOnce(&mut [u8], &Fields),
) -> testkit::Segment {
    let place = Place::of_tests();
    let fields = Fields {
        src: place.addresses[0].to_bits(),
        src_port: 40_000,
        seq: rng.u32(..),
        ack: rng.u32(..),
        window: rng.u16(..),
    };
    let mut frame = vec![0xee; len];
    write(&mut frame, &fields);
    let Received { route, segment, .. } = read_segment(&frame).unwrap();
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
            let segment = written(packet.len(), &mut rng, |frame, fields| {
                packet.write(frame, fields);
            });
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
        let segment = written(packets.sack_len(count), &mut rng, |frame, fields| {
            packets.write_sack(frame, fields, &blocks);
        });
        assert_eq!((segment.bits, segment.len()), (ACK.into(), 0));
        assert_eq!(segment.sack(), blocks);
    }
}

#[test]
fn hostile_options() {
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
