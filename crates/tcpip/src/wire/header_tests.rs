use proptest::prelude::*;
use testkit::{Layout, Opt, Route, TCP, read_segment};

use super::*;
use crate::wire::Options;

#[test]
fn a_payload_longer_than_an_ip_packet_is_refused() {
    let mut bytes = vec![0; usize::from(u16::MAX)];
    bytes[12] = 5 << 4;
    let longest = u16::MAX - HEADER_LEN as u16;
    assert_eq!(Segment::parse(&bytes).unwrap().len, longest);
    bytes.push(0);
    assert_eq!(Segment::parse(&bytes), None);
}

#[test]
fn sequence_numbers_compare_across_the_wrap() {
    let before = Seq(u32::MAX - 5);
    let after = before + 10;
    assert_eq!(after, Seq(4));
    assert!(before.before(after) && after.after(before));
    assert!(!before.before(before) && !before.after(before));
    assert_eq!(after.since(before), 10);
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
        if let Some(segment) = Segment::parse(&bytes) {
            let at = usize::from(segment.data_at);
            prop_assert_eq!(at + usize::from(segment.len), bytes.len());
            prop_assert!(at >= HEADER_LEN);
        }
    }

    #[test]
    fn testkit_reads_our_header(
        seq: u32, ack: u32, window: u16, stamps: Option<(u32, u32)>, control: u8, data: Vec<u8>
    ) {
        let timestamps = stamps.map(|(tsval, tsecr)| Timestamps { tsval, tsecr });
        let control = Control(control);
        let header = Header { seq: Seq(seq), ack: Seq(ack), control, window, timestamps };
        let mut bytes = vec![0xee; header.len()];
        header.write(&mut bytes, (80, 40_000), 0x1234, 0);
        bytes.extend_from_slice(&data);
        prop_assert_eq!(&bytes[CHECKSUM_AT..][..2], &[0x12, 0x34]);
        let ours = Segment::parse(&bytes).unwrap();
        prop_assert_eq!((ours.seq, ours.ack, ours.control), (Seq(seq), Seq(ack), control));
        prop_assert_eq!(ours.timestamps, timestamps);
        prop_assert!(!ours.has_more_options());
        // `Header::sum` does not cover the ports and the checksum field.
        let whole = Sum::of(&bytes[..header.len()]).fold();
        let sum = header.sum(0).word(80).word(40_000).word(0x1234).fold();
        prop_assert_eq!(sum % 0xffff, whole % 0xffff);
        let route = Route::to_server(false, 40_000, 80).back();
        let received = read_segment(&route.packet(TCP, &bytes)).unwrap();
        prop_assert_eq!(received.route, route);
        let expected = testkit::Segment {
            bits: control.0.into(),
            seq,
            ack,
            window,
            options: stamps.map(|(value, echo)| Opt::Timestamps(value, echo)).into_iter().collect(),
            data,
            ..testkit::Segment::default()
        };
        prop_assert_eq!(received.segment, expected);
    }

    #[test]
    fn we_read_a_header_of_testkit(
        seq: u32, ack: u32, window: u16, mss: Option<u16>, scale in 0u8..15, usual: bool,
        data: Vec<u8>
    ) {
        let mut options = vec![Opt::Scale(scale), Opt::SackPermitted];
        options.extend(mss.map(Opt::Mss));
        let written = testkit::Segment {
            bits: testkit::SYN | testkit::ACK,
            seq,
            ack,
            window,
            options,
            data: data.clone(),
            ..testkit::Segment::default()
        };
        let route = Route::to_server(true, 1, 2);
        let layout = if usual { Layout::Usual } else { Layout::Dense };
        let frame = route.segment(&written, layout);
        let bytes = &frame[route.header_len()..];
        let segment = Segment::parse(bytes).unwrap();
        prop_assert_eq!((segment.src_port, segment.dst_port), (1, 2));
        prop_assert_eq!((segment.seq, segment.ack, segment.window), (Seq(seq), Seq(ack), window));
        prop_assert_eq!(segment.control, Control::SYN | Control::ACK);
        prop_assert_eq!(&bytes[usize::from(segment.data_at)..], &data[..]);
        prop_assert!(segment.has_more_options());
        let options = Options::read(&bytes[..usize::from(segment.data_at)]);
        prop_assert_eq!((options.mss, options.window_scale), (mss, Some(scale)));
        prop_assert!(options.sack_permitted);
    }
}
