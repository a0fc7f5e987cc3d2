//! Tests of super-segments: the client gets the same segments as without super-segments, but the
//! stack sends fewer packets.

use nmio::super_segment::MAX_OVER_V6;

use super::sending::bytes_of;
use crate::negotiated::Negotiated;
use crate::stack::testing::{Out, Rig, noise};
use crate::{Config, SendMode, Slot};

/// Number of data bytes in a full segment. `HEADERS` is the length in bytes of a super-segment's
/// IPv4 and TCP headers, including 12 bytes reserved for timestamps.
const MSS: usize = 1460;
const HEADERS: usize = 20 + 32;

/// Fetches a content item of `len` bytes from a stack whose port supports super-segments of up to
/// `segmentation` bytes. Returns the segments received, and the number of super-segments sent.
fn fetch(len: usize, slot: Option<Slot>, v6: bool, segmentation: usize) -> (Vec<Out>, u64) {
    let (all, rig) = fetch_all(len, slot, v6, segmentation);
    (all, rig.stack.counters().super_segments_sent)
}

/// Fetches a content item like [`fetch`], but returns the rig instead of the number of
/// super-segments.
fn fetch_all(len: usize, slot: Option<Slot>, v6: bool, segmentation: usize) -> (Vec<Out>, Rig) {
    let mut rig = Rig::new(&Config::default());
    rig.window_scale = Some(4);
    rig.port.segmentation = segmentation;
    rig.load(&noise(len), slot);
    rig.set_v6(v6);
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", b"g");
    let mut all = Vec::new();
    loop {
        let round = rig.sent_all();
        let Some(last) = round.last() else {
            return (all, rig);
        };
        rig.recv(2, last.seq + last.data.len() as u32, "A", b"");
        all.extend(round);
    }
}

#[test]
fn super_segments_consist_of_the_same_segments_at_every_size() {
    // Limit super-segments to three segments, and then to the maximum length of an IPv4 packet.
    for max_size in [3 * MSS + HEADERS, 65_535] {
        for segments in [1, 2, 3, 4, 6, 7, 44, 45, 90] {
            for len in [segments * MSS - 1, segments * MSS, segments * MSS + 1] {
                let (frames, runs) = fetch(len, None, false, 0);
                assert_eq!(runs, 0);
                let (cut, runs) = fetch(len, None, false, max_size);
                assert!(frames == cut, "{len} bytes in runs of {max_size}");
                assert_eq!(runs > 0, len > MSS, "{len} bytes in runs of {max_size}");
            }
        }
    }
    assert!(fetch(100_000, None, true, 0).0 == fetch(100_000, None, true, 65_535).0);
}

#[test]
fn a_super_segment_is_as_large_as_the_port_allows() {
    // If the port's limit is one byte smaller, each super-segment contains one segment fewer.
    for (max_size, runs) in [(3 * MSS + HEADERS, 2), (3 * MSS + HEADERS - 1, 3)] {
        assert_eq!(fetch(6 * MSS, None, false, max_size).1, runs);
    }
    assert_eq!(fetch(6 * MSS, None, false, 2 * MSS).1, 0, "no run at all");
}

#[test]
fn a_peer_that_accepts_only_shorter_packets_than_the_port_cuts_gets_frames() {
    for (mss, min_segment, has_runs) in [
        (1460, 1500, true),
        (1459, 1500, false),
        (1459, 1499, true),
        (536, 0, true),
        (536, 1500, false),
    ] {
        let mut rig = Rig::new(&Config::default());
        rig.port.segmentation = 65_535;
        rig.port.min_segment = min_segment;
        rig.load(&noise(4 * MSS), None);
        rig.open(Some(mss));
        rig.recv(1, 1, "PA", b"g");
        assert!(rig.sent_all().len() > 2);
        assert_eq!(
            rig.stack.counters().super_segments_sent > 0,
            has_runs,
            "{mss}"
        );
    }
}

#[test]
fn a_run_that_is_too_short_for_the_port_is_sent_as_frames() {
    for (segments, has_runs) in [(1, false), (7, false), (8, true), (9, true)] {
        let mut rig = Rig::new(&Config::default());
        rig.port.segmentation = 65_535;
        rig.port.min_run = 8;
        rig.load(&noise(segments * MSS), None);
        rig.open(Some(MSS as u16 + 12));
        rig.recv(1, 1, "PA", b"g");
        assert_eq!(rig.sent_all().len(), segments);
        let runs = rig.stack.counters().super_segments_sent;
        assert_eq!(runs > 0, has_runs, "{segments}");
    }
}

#[test]
fn long_segments_are_sent_in_the_longest_runs_that_the_port_accepts() {
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 5 * MSS;
    rig.port.min_run = 8;
    rig.load(&noise(9 * MSS), None);
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 9);
    assert_eq!(rig.stack.counters().super_segments_sent, 2);
}

#[test]
fn over_ipv4_a_super_segment_may_exceed_the_length_field() {
    for (v6, max_size) in [(false, 100_000), (true, MAX_OVER_V6)] {
        let (frames, _) = fetch_all(3_000_000, None, v6, 0);
        let (cut, rig) = fetch_all(3_000_000, None, v6, 100_000);
        assert!(frames == cut, "the same segments");
        let longest = rig.port.longest;
        assert!(
            (max_size - MSS + 1..=max_size).contains(&longest),
            "{v6} {longest}"
        );
    }
}

#[test]
fn a_slot_is_rendered_wherever_it_lies() {
    let len = 4 * MSS + 100;
    for offset in [0, 1, MSS - 10, MSS, 3 * MSS + 7, len - 29] {
        let slot = Some(Slot {
            offset: offset as u32,
            len: 29,
        });
        let frames = fetch(len, slot, false, 0).0;
        assert!(frames == fetch(len, slot, false, 65_535).0, "{offset}");
    }
}

#[test]
fn a_run_is_limited_by_the_windows() {
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 65_535;
    rig.window = (4 * MSS + 700) as u16;
    rig.load(&noise(40 * MSS), None);
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", b"g");
    // The peer's window limits the super-segment, and only whole segments are sent.
    assert_eq!(rig.sent_all().len(), 4);
    rig.window = 65_535;
    rig.recv(2, 1 + 4 * MSS as u32, "A", b"");
    // The congestion window limits the super-segment. The congestion window has not grown, because
    // it was not fully used.
    assert_eq!(rig.sent_all().len(), 10);
    assert_eq!(rig.stack.counters().segments_sent, 1 + 4 + 10);
    assert_eq!(rig.stack.counters().super_segments_sent, 2);
}

#[test]
fn a_run_without_room_in_the_ring_is_sent_later_as_a_whole() {
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 65_535;
    rig.load(&noise(5 * MSS), None);
    rig.open(Some(MSS as u16 + 12));
    rig.port.room = 0;
    rig.recv(1, 1, "PA", b"g");
    rig.sent_nothing();
    rig.port.room = 1;
    rig.pass_ms(10);
    let sent = rig.sent_all();
    assert_eq!(sent.len(), 5);
    let pushed: Vec<bool> = sent.iter().map(|out| out.control.contains('P')).collect();
    assert_eq!(pushed, [false, false, false, false, true]);
    assert_eq!(rig.stack.counters().super_segments_sent, 1);
}

#[test]
fn a_lost_segment_is_retransmitted_alone() {
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 65_535;
    let content = noise(8 * MSS);
    rig.load(&content, None);
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 8);
    rig.recv(2, 1 + MSS as u32, "A", b"");
    for _ in 0..3 {
        rig.recv(2, 1 + MSS as u32, "A", b"");
    }
    rig.sent(1 + MSS as u32, 2, "A", &content[MSS..2 * MSS]);
    assert_eq!(rig.stack.counters().super_segments_sent, 1);
}

#[test]
fn a_link_with_a_vlan_tag_gets_no_super_segments() {
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 65_535;
    rig.route.vlan = Some(5);
    rig.load(&noise(5 * MSS), None);
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 5);
    assert_eq!(rig.stack.counters().super_segments_sent, 0);
}

#[test]
fn a_segment_with_cwr_is_not_part_of_a_super_segment() {
    // Not every device segments a super-segment with CWR correctly.
    let mut rig = Rig::new(&Config::default());
    rig.port.segmentation = 65_535;
    rig.load(&noise(40 * MSS), None);
    rig.open(Some(MSS as u16 + 12));
    let tcb = rig.stack.tcb_mut(0);
    tcb.set_negotiated(Negotiated::new(false, false, None, true));
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    rig.port.room = 1;
    rig.recv(2, 1 + 10 * MSS as u32, "AE", b"");
    let first = rig.sent_one();
    assert_eq!((first.control.as_str(), first.data.len()), ("WA", MSS));
    rig.sent_nothing();
    rig.port.room = 1;
    rig.pass_ms(10);
    let rest = rig.sent_all();
    assert!(rest.len() > 1 && rest.iter().all(|out| out.control == "A"));
}

/// Opens a connection that requests a content item of `len` bytes `requests` times at once. The
/// item has a slot. Returns the rig before the first response is acknowledged.
fn pipelined(len: usize, requests: usize, mode: SendMode, segmentation: usize) -> Rig {
    let mut rig = Rig::new(&Config {
        mode,
        ..Config::default()
    });
    rig.port.segmentation = segmentation;
    let (offset, slot_len) = (len as u32 - 21, 20);
    rig.load(
        &noise(len),
        Some(Slot {
            offset,
            len: slot_len,
        }),
    );
    rig.open(Some(MSS as u16 + 12));
    rig.recv(1, 1, "PA", &vec![b'g'; requests]);
    rig
}

#[test]
fn short_responses_to_pipelined_requests_are_sent_as_one_packet() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        let frames = pipelined(1_000, 14, mode, 0).sent_all();
        assert_eq!(frames.len(), 14);
        let mut rig = pipelined(1_000, 14, mode, 65_535);
        let cut = rig.sent_all();
        assert!(bytes_of(&frames) == bytes_of(&cut));
        let full = cut.iter().take(9).all(|out| out.data.len() == MSS);
        assert!(full && cut.len() == 10, "the run is cut at the MSS");
        let counters = rig.stack.counters();
        assert_eq!(
            (counters.super_segments_sent, counters.segments_sent),
            (1, 1 + 10)
        );
        assert_eq!(counters.sent_in_super_segments, 10);
        assert_eq!(counters.bytes_sent, 14_000);
    }
}

#[test]
fn short_responses_that_fit_into_one_segment_are_sent_in_one_frame() {
    for len in [40, 292, 293] {
        let frames = pipelined(len, 5, SendMode::MemCopy, 0).sent_all();
        let mut rig = pipelined(len, 5, SendMode::MemCopy, 65_535);
        let sent = rig.sent_all();
        assert!(bytes_of(&frames) == bytes_of(&sent));
        let is_frame = 5 * len <= MSS;
        assert_eq!(sent.len(), if is_frame { 1 } else { 2 });
        let counters = rig.stack.counters();
        let expected = (u64::from(is_frame), u64::from(!is_frame));
        assert_eq!(
            (counters.sent_assembled, counters.super_segments_sent),
            expected
        );
    }
}

#[test]
fn a_lost_segment_of_several_responses_is_retransmitted() {
    let expected = bytes_of(&pipelined(1_000, 14, SendMode::MemCopy, 0).sent_all());
    let mut rig = pipelined(1_000, 14, SendMode::MemCopy, 65_535);
    assert_eq!(rig.sent_all().len(), 10);
    let lost = MSS..2 * MSS;
    for _ in 0..4 {
        rig.recv(15, 1 + lost.start as u32, "A", b"");
    }
    // The lost segment contains the end of the second response, and most of the third.
    let mut resent = rig.sent_all();
    rig.recv(15, 1 + 2_000, "A", b"");
    resent.extend(rig.sent_all());
    let ends = [1 + 2_000, 1 + 3_000];
    let ends_of = |out: &Out| out.seq + out.data.len() as u32;
    assert!(resent.iter().map(ends_of).eq(ends));
    assert!(bytes_of(&resent) == expected[lost.start..3_000]);
}

#[test]
fn responses_without_room_in_the_ring_are_sent_later_as_one_packet() {
    let mut rig = pipelined(1_000, 2, SendMode::MemCopy, 65_535);
    assert_eq!(rig.sent_all().len(), 2);
    rig.port.room = 0;
    rig.recv(3, 1 + 2_000, "PA", b"ggg");
    rig.sent_nothing();
    rig.port.room = 1;
    rig.pass_ms(10);
    assert_eq!(rig.sent_all().len(), 3);
    assert_eq!(rig.stack.counters().super_segments_sent, 2);
}
