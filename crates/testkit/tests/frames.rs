//! The readers return what the builders wrote and reject invalid frames.

use testkit::{
    ACK, ICMP, ICMPV6, IcmpError, Layout, Opt, PSH, Route, SYN, Segment, TCP, UDP, mark_congestion,
    noise, read, read_options, read_segment,
};

fn routes() -> [Route; 4] {
    [
        (false, None),
        (true, None),
        (false, Some(7)),
        (true, Some(7)),
    ]
    .map(|(v6, vlan)| Route {
        vlan,
        ..Route::to_server(v6, 40_000, 80)
    })
}

fn segment() -> Segment {
    Segment {
        bits: ACK | PSH,
        seq: u32::MAX - 1,
        ack: 7,
        window: 65_535,
        urgent: 0,
        ecn: 2,
        options: vec![
            Opt::Sack(vec![(1, 2), (u32::MAX, 5)]),
            Opt::Timestamps(3, 4),
        ],
        data: noise(1, 11),
    }
}

#[test]
fn segments_are_read_as_they_were_written() {
    for route in routes() {
        for layout in [Layout::Dense, Layout::Usual] {
            for ecn in 0..4 {
                let segment = Segment { ecn, ..segment() };
                let received = read_segment(&route.segment(&segment, layout)).unwrap();
                assert_eq!((received.route, received.segment), (route, segment));
            }
        }
    }
}

#[test]
fn a_segment_with_an_option_of_a_wrong_length_is_rejected() {
    let options = vec![Opt::Other(2, vec![5])];
    let frame = routes()[0].segment(
        &Segment {
            options,
            ..segment()
        },
        Layout::Dense,
    );
    read_segment(&frame).unwrap_err();
}

#[test]
fn datagrams_are_read_as_they_were_written() {
    for route in routes() {
        for len in [0, 1, 1000] {
            let (data, frame) = (noise(0, len), route.datagram(&noise(0, len)));
            let packet = read(&frame).unwrap();
            assert_eq!((packet.route, packet.protocol), (route, UDP));
            assert_eq!(packet.datagram().unwrap(), data);
        }
    }
}

/// A frame with a changed bit causes an error, or is read differently. A truncated frame causes an
/// error.
#[test]
fn changed_bits_and_truncation_are_detected() {
    for route in routes() {
        let frame = route.segment(&segment(), Layout::Usual);
        let right = read_segment(&frame).unwrap();
        for bit in 0..8 * frame.len() {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let received = read_segment(&changed);
            assert_ne!(received.as_ref().ok(), Some(&right), "bit {bit}");
            // No checksum covers the Ethernet header or the first 8 bytes of an IPv6 header.
            let headers = route.link_len() + 8 * usize::from(route.is_v6());
            if bit / 8 >= headers {
                received.unwrap_err();
            }
        }
        for len in 0..frame.len() {
            read_segment(&frame[..len]).unwrap_err();
        }
    }
}

#[test]
fn a_partial_checksum_is_the_complement_of_the_checksum_of_zeros() {
    for route in routes() {
        // A payload of zeros adds nothing to the sum of the pseudo-header.
        let frame = route.packet(UDP, &[0; 8]);
        let field = &frame[route.header_len() + 6..][..2];
        let partial = route.partial_checksum(UDP, 8);
        assert_eq!(field, partial.map(|byte| !byte));
    }
}

#[test]
fn congestion_is_marked_only_if_the_sender_allows_marks() {
    for route in &routes()[..2] {
        for (ecn, marked) in [(0, 0), (1, 3), (2, 3), (3, 3)] {
            let mut frame = route.segment(&Segment { ecn, ..segment() }, Layout::Usual);
            mark_congestion(&mut frame);
            assert_eq!(read_segment(&frame).unwrap().segment.ecn, marked);
        }
    }
}

#[test]
fn icmp_errors_quote_the_frame() {
    for (v6, protocol, kind, len) in [(false, ICMP, 3, 28), (true, ICMPV6, 2, 1232)] {
        let route = Route::to_server(v6, 40_000, 80);
        let ours = route.back().packet(TCP, &[7; 1400]);
        let frame = route.icmp_error(IcmpError::TooBig(1300), &ours);
        let packet = read(&frame).unwrap();
        assert_eq!((packet.protocol, packet.payload[0]), (protocol, kind));
        assert_eq!(packet.payload[4..8], 1300_u32.to_be_bytes());
        assert_eq!(packet.payload[8..], ours[14..14 + len]);
    }
}

#[test]
fn reading_options_stops_at_the_first_malformed_option() {
    let mss = [2, 4, 5, 180];
    for (wrong, what) in [
        (&[3, 0][..], "no length"),
        (&[3, 1], "a length below 2"),
        (&[8, 10, 1, 2], "truncated"),
        (&[0, 1], "padding that is not zero"),
    ] {
        let (options, error) = read_options(&[&mss, wrong].concat());
        assert_eq!(options, [Opt::Mss(1460)], "{what}");
        assert!(error.is_some(), "{what}");
    }
    let (options, error) = read_options(&[1, 1, 254, 3, 9, 2, 3, 5, 4, 2, 0]);
    let others = [Opt::Other(2, vec![5]), Opt::Other(254, vec![9])];
    assert_eq!(options[..1], [Opt::SackPermitted]);
    assert_eq!(options[1..], others);
    assert_eq!(error, None);
}

#[test]
fn segments_are_displayed_in_packetdrill_notation() {
    let data = Segment {
        seq: 1,
        ..segment()
    };
    let expected = "[ect0] P. 1:12(11) ack 7 win 65535 <sack 1:2 -1:5,TS val 3 ecr 4>";
    assert_eq!(data.to_string(), expected);
    let syn = Segment {
        bits: SYN,
        options: vec![Opt::Mss(1460), Opt::SackPermitted, Opt::Scale(7)],
        ..Segment::default()
    };
    let expected = "S 0:0(0) win 0 <mss 1460,sackOK,wscale 7>";
    assert_eq!(syn.to_string(), expected);
}
