use proptest::prelude::*;
use smoltcp::wire::{TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use super::*;
use crate::wire::Options;

#[test]
fn more_than_an_ip_packet_holds_is_refused() {
    let mut bytes = vec![0; HEADER_LEN + usize::from(u16::MAX)];
    bytes[12] = 5 << 4;
    assert_eq!(Segment::parse(&bytes).unwrap().len, u16::MAX);
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
    fn what_we_write_smoltcp_reads(
        seq: u32, ack: u32, window: u16, stamps: Option<(u32, u32)>, control: u8, data: Vec<u8>
    ) {
        let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
        let control = Control(control);
        let header = Header { seq: Seq(seq), ack: Seq(ack), control, window, timestamps };
        let mut segment = vec![0xee; header.len()];
        header.write(&mut segment, (80, 40_000), 0x1234, 0);
        segment.extend_from_slice(&data);
        let packet = TcpPacket::new_checked(&segment[..]).unwrap();
        prop_assert_eq!((packet.src_port(), packet.dst_port()), (80, 40_000));
        prop_assert_eq!(packet.seq_number(), TcpSeqNumber(seq.cast_signed()));
        prop_assert_eq!(packet.ack_number(), TcpSeqNumber(ack.cast_signed()));
        prop_assert_eq!(packet.window_len(), window);
        prop_assert_eq!(packet.checksum(), 0x1234);
        prop_assert_eq!(packet.urgent_at(), 0);
        prop_assert_eq!(packet.syn(), control.has(Control::SYN));
        prop_assert_eq!(packet.payload(), &data[..]);
        let ours = Segment::parse(&segment).unwrap();
        prop_assert_eq!(ours.control, control);
        prop_assert_eq!((ours.seq, ours.ack), (Seq(seq), Seq(ack)));
        prop_assert_eq!(ours.timestamps, timestamps);
        prop_assert!(!ours.has_more_options());
        // The sum leaves out ports and checksum.
        let whole = Sum::of(&segment[..header.len()]).fold();
        let ours = header.sum(0).word(80).word(40_000).word(0x1234).fold();
        prop_assert_eq!(ours % 0xffff, whole % 0xffff);
    }

    #[test]
    fn what_smoltcp_writes_we_read(
        seq: i32, ack: i32, window: u16, mss: Option<u16>, scale in 0u8..15, data: Vec<u8>
    ) {
        let repr = TcpRepr {
            src_port: 1,
            dst_port: 2,
            control: TcpControl::Syn,
            seq_number: TcpSeqNumber(seq),
            ack_number: Some(TcpSeqNumber(ack)),
            window_len: window,
            window_scale: Some(scale),
            max_seg_size: mss,
            sack_permitted: true,
            sack_ranges: [None, None, None],
            timestamp: None,
            payload: &data,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(
            &mut TcpPacket::new_unchecked(&mut bytes[..]),
            &smoltcp::wire::IpAddress::v4(1, 2, 3, 4),
            &smoltcp::wire::IpAddress::v4(5, 6, 7, 8),
            &smoltcp::phy::ChecksumCapabilities::ignored(),
        );
        let segment = Segment::parse(&bytes).unwrap();
        prop_assert_eq!(segment.seq, Seq(seq.cast_unsigned()));
        prop_assert_eq!(segment.ack, Seq(ack.cast_unsigned()));
        prop_assert_eq!(segment.window, window);
        prop_assert_eq!(segment.control, Control::SYN | Control::ACK);
        prop_assert_eq!(&bytes[usize::from(segment.data_at)..], &data[..]);
        let options = Options::read(&bytes[..usize::from(segment.data_at)]);
        prop_assert!(segment.has_more_options());
        prop_assert_eq!(options.mss, mss);
        prop_assert_eq!(options.window_scale, Some(scale));
        prop_assert!(options.sack_permitted);
    }
}
