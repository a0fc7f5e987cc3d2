use std::net::Ipv4Addr;

use eth::{Link, Mac, Station};
use ip::{Host, Input};
use nmio::Instant;
use nmio::sim::Sink;

use super::*;

fn place() -> Place {
    Place {
        link: Link {
            peer: Mac([2, 0, 0, 0, 0, 1]),
            own: Mac([2, 0, 0, 0, 0, 9]),
            vlan: None,
        },
        addresses: vec![Ipv4Addr::new(10, 0, 0, 9)],
        target: (Ipv4Addr::new(10, 0, 0, 1), 80),
    }
}

/// Parses a frame as the server does and verifies all its checksums.
fn received(frame: &[u8]) -> (Segment, Vec<u8>) {
    let sink = Sink::new(1500, 4, 0);
    let place = place();
    let mut host = Host::own(Station::new(place.link.peer, &[place.target.0.into()]));
    let Input::Tcp(packet) = host.receive(sink.frame_from(frame), Instant::ZERO) else {
        panic!("the server rejects {frame:x?}");
    };
    assert!(packet.checksum_ok(PROTOCOL_TCP, CHECKSUM_AT));
    assert_eq!(packet.addresses().src(), place.addresses[0]);
    let segment = Segment::parse(packet.payload()).unwrap();
    assert_eq!((segment.src_port, segment.dst_port), (40_000, 80));
    (segment, packet.payload().to_vec())
}

fn fields(rng: &mut fastrand::Rng) -> Fields {
    Fields {
        src: place().addresses[0].to_bits(),
        src_port: 40_000,
        seq: rng.u32(..),
        ack: rng.u32(..),
        window: rng.u16(..),
    }
}

#[test]
fn prepared_packets_are_valid() {
    let mut rng = fastrand::Rng::with_seed(1);
    let packets = PacketTemplates::new(&place());
    for _ in 0..200 {
        let data: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
        let request = Template::new(&place(), PSH | ACK, &[], &data);
        for (packet, control, data) in [
            (&packets.syn, SYN, &[][..]),
            (&packets.fin, FIN | ACK, &[]),
            (&packets.reset, RST, &[]),
            (&packets.reset_ack, RST | ACK, &[]),
            (&request, PSH | ACK, &data),
        ] {
            let fields = fields(&mut rng);
            let mut frame = vec![0xee; packet.len()];
            packet.write(&mut frame, &fields);
            let (segment, payload) = received(&frame);
            assert_eq!((segment.seq, segment.ack), (fields.seq, fields.ack));
            assert_eq!(segment.window, fields.window);
            assert_eq!(segment.control, control);
            assert_eq!(&payload[segment.data_at..], data);
        }
    }
}

#[test]
fn a_syn_offers_all_supported_options() {
    let mut frame = vec![0; PacketTemplates::new(&place()).syn.len()];
    let fields = fields(&mut fastrand::Rng::with_seed(2));
    PacketTemplates::new(&place())
        .syn
        .write(&mut frame, &fields);
    let (_, header) = received(&frame);
    let negotiated = Negotiated {
        mss: 1460,
        window_scale: Some(7),
        sack: true,
    };
    assert_eq!(Negotiated::read(&header), negotiated);
}

#[test]
fn acks_with_sack_blocks_have_valid_checksums() {
    let mut rng = fastrand::Rng::with_seed(3);
    let packets = PacketTemplates::new(&place());
    for count in 0..=MAX_SACK_BLOCKS {
        let blocks: Vec<(u32, u32)> = (0..count).map(|_| (rng.u32(..), rng.u32(..))).collect();
        let mut frame = vec![0xee; packets.sack_len(count)];
        packets.write_sack(&mut frame, &fields(&mut rng), &blocks);
        let (segment, payload) = received(&frame);
        assert_eq!(segment.control, ACK);
        assert_eq!(segment.data_at, payload.len());
        if count > 0 {
            let mut option = vec![1, 1, 5, 2 + 8 * count as u8];
            for (start, end) in blocks {
                option.extend_from_slice(&start.to_be_bytes());
                option.extend_from_slice(&end.to_be_bytes());
            }
            assert_eq!(payload[HEADER_LEN..], option);
        }
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
