use nmio::Instant;
use proptest::prelude::*;

use super::*;
use crate::stream::Source;

fn content(index: u32) -> Source {
    Source::content(index)
}

#[test]
fn sources_are_told_apart() {
    assert_eq!(Source::content(5).buffer(), None);
    assert_eq!(Source::content(5).index(), 5);
    assert_eq!(Source::write_buffer(5).buffer(), Some(5));
}

#[test]
fn a_place_is_found_across_the_wrap() {
    let mut tcb = Tcb {
        snd_una: Seq(u32::MAX - 9),
        snd_end: Seq(u32::MAX - 9),
        ..Tcb::closed()
    };
    tcb.push(content(1), 11, 100);
    tcb.push(content(2), 22, 50);
    let start = Seq(u32::MAX - 9);
    for (at, source, offset, left) in [
        (0, 1, 0, 100),
        (99, 1, 99, 1),
        (100, 2, 0, 50),
        (149, 2, 49, 1),
    ] {
        let place = tcb.locate(start + at).unwrap();
        assert_eq!(place.source, content(source));
        assert_eq!(place.stamp, source * 11);
        assert_eq!((place.offset, place.left), (offset, left));
    }
    assert!(tcb.locate(start + 150).is_none());
    assert!(tcb.locate(start + 151).is_none());
}

#[test]
fn distances_in_the_stream_fit_32_bits() {
    let mut tcb = Tcb::closed();
    assert!(tcb.spans(u32::MAX - 1));
    assert!(!tcb.spans(u32::MAX));
    tcb.push(content(1), 0, 1 << 31);
    assert!(tcb.spans((1 << 31) - 2));
    assert!(!tcb.spans((1 << 31) - 1));
    // One entry of the greatest length is addressed to its end.
    let mut tcb = Tcb::closed();
    tcb.push(content(1), 0, u32::MAX - 1);
    let place = tcb.locate(Seq(u32::MAX - 2)).unwrap();
    assert_eq!((place.offset, place.left), (u32::MAX - 2, 1));
}

#[test]
fn deadlines_survive_the_wrap_of_milliseconds() {
    let wrap = 1u64 << 32;
    let now = Moment::new(Instant::from_millis(wrap - 10));
    let deadline = now.millis.wrapping_add(200);
    assert_eq!(now.instant(deadline), Instant::from_millis(wrap + 190));
    let later = Moment::new(Instant::from_millis(wrap + 500));
    assert_eq!(later.instant(deadline), Instant::from_millis(wrap + 500));
}

proptest! {
    /// The stream against a plain list of bytes, each with where it came from.
    #[test]
    fn the_stream_agrees_with_a_list(
        start: u32,
        steps in prop::collection::vec((0u8..3, 1u32..3000), 1..60),
    ) {
        let mut tcb = Tcb { snd_una: Seq(start), snd_end: Seq(start), ..Tcb::closed() };
        let mut list: Vec<(u32, u32)> = Vec::new();
        let mut lens: Vec<(u32, u32)> = Vec::new();
        for (number, (step, n)) in steps.into_iter().enumerate() {
            let number = number as u32;
            match step {
                0 if tcb.room() > 0 => {
                    tcb.push(content(number), 0, n);
                    list.extend((0..n).map(|offset| (number, offset)));
                    lens.push((number, n));
                }
                1 => {
                    let acked = (n as usize).min(list.len());
                    list.drain(..acked);
                    tcb.snd_una = tcb.snd_una + acked as u32;
                    let mut retired = Vec::new();
                    while let Some(source) = tcb.retire() {
                        retired.push(source);
                    }
                    let gone = lens.iter().take_while(|(number, _)| list.iter().all(|b| b.0 != *number));
                    let expected: Vec<Source> = gone.map(|(number, _)| content(*number)).collect();
                    lens.drain(..expected.len());
                    prop_assert_eq!(retired, expected);
                }
                _ => {}
            }
            prop_assert_eq!(tcb.entries().len(), lens.len());
            prop_assert_eq!(tcb.snd_end.since(tcb.snd_una) as usize, list.len());
            for at in [0, list.len() / 2, list.len().saturating_sub(1)] {
                let place = tcb.locate(tcb.snd_una + at as u32);
                let found = place.map(|place| (place.source.index(), place.offset));
                prop_assert_eq!(found, list.get(at).copied());
            }
        }
    }
}

#[test]
fn the_last_segment_of_a_flight_before_more_than_half_the_circle() {
    let mut tcb = Tcb {
        mss: 1000,
        snd_una: Seq(1),
        snd_nxt: Seq(1),
        snd_end: Seq(1),
        ..Tcb::closed()
    };
    tcb.push(content(1), 0, (1 << 31) + 100_000);
    tcb.snd_nxt = Seq(10_001);
    assert_eq!(tcb.last_segment(), Seq(9_001));
}
