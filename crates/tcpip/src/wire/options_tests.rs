use proptest::prelude::*;

use super::*;

/// Reads the options of a header whose fixed part is followed by `bytes`.
fn read(bytes: &[u8]) -> Options {
    let mut header = vec![0; HEADER_LEN];
    header.extend_from_slice(bytes);
    Options::read(&header)
}

/// Returns the encoded form of options, and checks their sum.
fn bytes_of(written: &Written) -> Vec<u8> {
    let mut bytes = vec![0; written.len()];
    let sum = written.write(&mut bytes);
    assert_eq!(sum.fold(), Sum::of(&bytes).fold());
    bytes
}

#[test]
fn options_are_read_at_any_position() {
    assert_eq!(read(&[]), Options::default());
    assert_eq!(read(&[2, 4, 5, 0xb4]).mss, Some(1460));
    // The options of a Linux SYN: MSS, SACK permitted, timestamps, NOP, window scale.
    let linux = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 9, 1, 3, 3, 7,
    ];
    let options = read(&linux);
    assert_eq!(options.mss, Some(1460));
    assert!(options.sack_permitted);
    assert_eq!(options.window_scale, Some(7));
    let timestamps = options.timestamps.unwrap();
    assert_eq!((timestamps.tsval, timestamps.tsecr), (0x0102_0304, 9));
    assert_eq!(read(&[1, 1, 2, 4, 5, 0xb4]).mss, Some(1460));
    assert_eq!(read(&[254, 5, 9, 9, 9, 2, 4, 5, 0xb4]).mss, Some(1460));
}

#[test]
fn options_of_invalid_length_or_after_the_end_are_not_read() {
    for bytes in [
        &[0, 2, 4, 5, 0xb4][..], // after the end of the options
        &[3, 0, 2, 4, 5, 0xb4],  // length 0
        &[3, 1, 2, 4, 5, 0xb4],  // length 1
        &[3, 40, 2, 4, 5, 0xb4], // beyond the header
        &[2, 3, 5],              // MSS with a wrong length
        &[2, 4, 5],              // truncated
        &[2],                    // truncated
    ] {
        assert_eq!(read(bytes).mss, None, "{bytes:?}");
    }
}

#[test]
fn a_window_scale_above_fourteen_is_read_as_fourteen() {
    // RFC 7323, section 2.3: larger shifts are treated as 14.
    assert_eq!(read(&[3, 3, 14]).window_scale, Some(14));
    assert_eq!(read(&[3, 3, 15]).window_scale, Some(14));
    assert_eq!(read(&[3, 3, 255]).window_scale, Some(14));
}

#[test]
fn truncated_sack_blocks_are_ignored() {
    assert_eq!(read(&[5, 9, 0, 0, 0, 1, 0, 0, 0]).sack.len(), 0);
    assert_eq!(read(&[5, 2]).sack.len(), 0);
}

proptest! {
    #[test]
    fn arbitrary_option_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        Options::read(&bytes);
        read(&bytes);
    }

    #[test]
    fn written_options_are_read_back(
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=MAX_SACK_BLOCKS),
        timestamps: bool,
        mss: u16, scale in prop::option::of(0..=MAX_WINDOW_SCALE), sack: bool,
    ) {
        let blocks: Vec<Block> = blocks.iter().map(|(a, b)| (Seq(*a), Seq(*b))).collect();
        let written = Written::sack(&blocks, timestamps);
        let most = blocks.len().min(if timestamps { 3 } else { 4 });
        prop_assert_eq!(&read(&bytes_of(&written)).sack[..], &blocks[..most]);
        let written = Written::syn_ack(mss, scale, sack);
        let options = read(&bytes_of(&written));
        prop_assert_eq!(options.mss, Some(mss));
        prop_assert_eq!((options.window_scale, options.sack_permitted), (scale, sack));
    }
}
