use nmio::Instant;

use crate::clock::Moment;
use crate::connection::Tcb;
use crate::connection::conn::testing::Offer;
use crate::outcome::ControlSegment;
use crate::pools::{NONE, Owner, Peers, Pool};
use crate::stream::{Lists, Slice, Source, Stream};
use crate::wire::Seq;

#[test]
fn deadlines_survive_the_wrap_of_milliseconds() {
    let wrap = 1u64 << 32;
    let now = Moment::from(Instant::from_millis(wrap - 10));
    let deadline = now.millis.wrapping_add(200);
    assert_eq!(now.instant(deadline), Instant::from_millis(wrap + 190));
    let later = Moment::from(Instant::from_millis(wrap + 500));
    assert_eq!(later.instant(deadline), Instant::from_millis(wrap + 500));
}

/// Returns the first sequence number of the last segment sent, with segments of 1,000 bytes. The
/// stream consists of `slices`, each given by its offset and length. Everything before `snd_nxt`
/// was sent.
fn last_segment(snd_nxt: u32, slices: &[(u32, u32)]) -> u32 {
    let mut lists = Lists::new(Pool::EntryLists, 0);
    let mut tcb = Tcb {
        mss: 1000,
        snd_una: Seq(1),
        snd_nxt: Seq(snd_nxt),
        stream: Stream::new(Seq(1)),
        ..Tcb::default()
    };
    let (id, peer) = (NONE, NONE);
    for (from, len) in slices.iter().copied() {
        let slice = Slice {
            source: Source::content(1, false),
            from,
            len,
            params: [0; 2],
        };
        let peers = &mut Peers::new([1; Pool::COUNT]);
        let pushed = tcb
            .stream
            .push(slice, &mut lists, Owner { id, peer }, peers);
        pushed.expect("the stream has room for two entries");
    }
    tcb.last_segment(&lists).0
}

#[test]
fn the_last_segment_is_found_in_a_stream_longer_than_half_the_sequence_space() {
    assert_eq!(last_segment(10_001, &[(0, (1 << 31) + 100_000)]), 9_001);
}

#[test]
fn the_last_segment_begins_within_its_slice() {
    assert_eq!(last_segment(301, &[(700, 9_000)]), 1);
    assert_eq!(last_segment(1_301, &[(700, 9_000)]), 301);
    assert_eq!(last_segment(1_300, &[(0, 1_200), (500, 900)]), 1_201);
}

#[test]
fn a_shutdown_resets_a_response_of_more_than_two_gibibytes() {
    // The end of the stream is so far ahead of SND.UNA that the two numbers cannot be compared.
    let mut bench = Offer::default().open();
    bench.write(3 << 30);
    bench.close();
    bench.send();
    let last = bench.conn().closing_segment();
    assert_eq!(last, Some(ControlSegment::Reset));
}
