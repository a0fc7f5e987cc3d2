//! Tests of slices of content items: the client gets the expected bytes, no matter how the bytes
//! are segmented, lost or retransmitted.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::sending::{fetch, too_big};
use crate::pools::Pool;
use crate::stack::testing::{Habit, Out, Part, Rig, noise};
use crate::{Config, ContentId, STREAM_ENTRIES, SendMode, Slot, WriteError};

const MSS: usize = 1460;

/// Makes a rig whose application answers the first received byte with its `parts`.
fn answering(config: &Config, segmentation: usize) -> Rig {
    let mut rig = Rig::new(config);
    rig.port.segmentation = segmentation;
    rig.window_scale = Some(4);
    rig.open(Some(MSS as u16 + 12));
    rig.app().habit = Habit::Parts;
    rig
}

/// Returns the number of data bytes in each segment of a response made of `parts`.
fn lens_for(rig: &mut Rig, parts: impl IntoIterator<Item = Part>) -> Vec<usize> {
    rig.app().parts.extend(parts);
    rig.recv(1, 1, "PA", b"g");
    fetch(rig).iter().map(|out| out.data.len()).collect()
}

#[test]
fn only_the_first_and_the_last_segment_of_a_slice_are_assembled() {
    for (mode, segmentation) in [
        (SendMode::MemCopy, 0),
        (SendMode::PreCopy, 0),
        (SendMode::MemCopy, 65_535),
    ] {
        let mut rig = answering(
            &Config {
                mode,
                ..Config::default()
            },
            segmentation,
        );
        let content = rig.add(&noise(10 * MSS + 300), None);
        let range = 700..(9 * MSS + 5) as u32;
        let lens = lens_for(&mut rig, [Part::Slice(content, range, 0)]);
        let counters = rig.stack.counters();
        if segmentation == 0 {
            let mut expected = vec![MSS; 10];
            (expected[0], expected[9]) = (MSS - 700, 5);
            assert_eq!(lens, expected);
            assert_eq!(counters.sent_assembled, 2);
            assert_eq!(counters.sent_copied + counters.sent_resident, 8);
        } else {
            // A super-segment needs no prepared checksums, so it begins where the slice does.
            let mut expected = vec![MSS; 9];
            expected[8] = MSS - 695;
            assert_eq!(lens, expected);
            assert_eq!(
                (counters.super_segments_sent, counters.sent_assembled),
                (1, 0)
            );
        }
    }
}

#[test]
fn a_slice_up_to_the_end_of_its_content_ends_with_a_prepared_segment() {
    let mut rig = answering(&Config::default(), 0);
    let content = rig.add(&noise(2 * MSS + 300), None);
    let end = (2 * MSS + 300) as u32;
    let lens = lens_for(&mut rig, [Part::Slice(content, MSS as u32..end, 0)]);
    assert_eq!(lens, [MSS, 300]);
    assert_eq!(rig.stack.counters().sent_assembled, 0);
}

#[test]
fn head_and_body_of_one_content_are_sent_as_one_segment() {
    let mut rig = answering(&Config::default(), 0);
    let content = rig.add(&noise(1000), None);
    let slices = [0..200, 200..1000].map(|range| Part::Slice(content, range, 0));
    assert_eq!(lens_for(&mut rig, slices), [1000]);
    assert_eq!(rig.stack.counters().sent_assembled, 0);
}

#[test]
fn a_slice_outside_its_content_is_refused() {
    let mut rig = answering(&Config::default(), 0);
    let id = rig.add(&noise(1000), None);
    let (_, mut conn) = rig.stack.connection(0);
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    for range in [900..1001, 1001..1001, 700..600] {
        let (from, end) = (range.start, range.end);
        let expected = WriteError::OutsideContent {
            from,
            end,
            len: 1000,
        };
        assert_eq!(conn.write_slice(id, range, 0), Err(expected));
    }
    assert_eq!(conn.write_slice(id, 1000..1000, 0), Ok(()));
    assert_eq!(conn.room(), STREAM_ENTRIES, "nothing was written");
}

#[test]
fn parts_of_own_bytes_and_contents_are_written_together_or_not_at_all() {
    use crate::Part::{Of, Own};

    let mut rig = answering(&Config::default(), 0);
    let bytes = noise(5000);
    let id = rig.add(&bytes, None);
    let own: std::sync::Arc<[u8]> = (*b"head, part, end").into();
    let parts = [
        Own(0..6),
        Of(id, 3000..4500),
        Own(6..12),
        Of(id, 10..10),
        Of(id, 10..20),
        Own(12..15),
    ];
    let (_, mut conn) = rig.stack.connection(0);
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    for wrong in [Own(10..16), Of(id, 4999..5001), Of(id, 2..1)] {
        let refused = conn.write_parts(own.clone(), &[Own(0..6), wrong], 0);
        assert!(matches!(refused, Err(WriteError::OutsideContent { .. })));
    }
    let many = vec![Own(0..1); STREAM_ENTRIES + 1];
    let refused = conn.write_parts(own.clone(), &many, 0);
    assert!(matches!(refused, Err(WriteError::TooManyEntries { .. })));
    assert_eq!(conn.room(), STREAM_ENTRIES, "nothing was written");
    assert_eq!(std::sync::Arc::strong_count(&own), 1);
    conn.write_parts(own.clone(), &parts, 0).unwrap();
    assert_eq!(conn.contents().totals().temporary_bytes, 15);
    rig.recv(1, 1, "PA", b"g");
    let sent: Vec<u8> = fetch(&mut rig)
        .iter()
        .flat_map(|out| out.data.clone())
        .collect();
    let expected = [
        b"head, ",
        &bytes[3000..4500],
        b"part, ",
        &bytes[10..20],
        b"end",
    ]
    .concat();
    assert_eq!(sent, expected);
    let totals = rig.stack.contents().totals();
    assert_eq!((totals.contents, totals.temporary_bytes), (1, 0));
    assert_eq!(std::sync::Arc::strong_count(&own), 1);
}

#[test]
fn a_response_of_many_parts_waits_for_room_for_all_of_them() {
    let mut rig = answering(&Config::default(), 0);
    let content = rig.add(&noise(100), None);
    rig.app().at_once = STREAM_ENTRIES;
    let part = |from: u32| Part::Slice(content, from..from + 1, 0);
    rig.app().parts = (0..66).chain(0..66).rev().map(part).collect();
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.app().parts.len(), 66, "there is no room yet");
    let (_, mut conn) = rig.stack.connection(0);
    let entries = STREAM_ENTRIES + 1;
    let never = WriteError::TooManyEntries { entries };
    assert_eq!(conn.ensure_room(entries), Err(never));
    fetch(&mut rig);
    assert_eq!(rig.app().parts.len(), 0);
    assert_eq!(rig.stack.cx.lists.in_use(), 0);
}

#[test]
fn what_is_taken_back_leaves_its_content_and_the_copy_is_sent() {
    let bytes = noise(20_000);
    // The last segment before the window closes is lost, or not.
    for lost in [0, MSS] {
        let mut rig = answering(&Config::default(), 0);
        rig.window_scale = None;
        let content = rig.add(&bytes, None);
        rig.window = 3_000;
        rig.recv(1, 1, "A", b"");
        let parts = [
            Part::Bytes(b"head".to_vec()),
            Part::Slice(content, 0..20_000, 0),
        ];
        rig.app().parts.extend(parts);
        rig.recv(1, 1, "PA", b"g");
        let sent: usize = rig.sent_all().iter().map(|out| out.data.len()).sum();
        let id = rig.id();
        let take_back = |rig: &mut Rig, len: usize| {
            let mut taken = None;
            rig.reach(id, |_, conn| taken = conn.take_back(len));
            taken
        };
        assert_eq!(take_back(&mut rig, sent - 1), None, "so much is in flight");
        rig.window = 0;
        let acked = sent - lost;
        rig.recv(2, 1 + acked as u32, "A", b"");
        let kept = 4_000;
        let taken = (bytes.len() + 4 - acked - kept) as u32;
        assert_eq!(take_back(&mut rig, kept), Some(taken));
        assert_eq!(take_back(&mut rig, kept), Some(0));
        assert!(rig.stack.contents_mut().remove(content));
        assert_eq!(rig.stack.contents().totals().contents, 0);
        rig.window = 65_535;
        rig.recv(2, 1 + acked as u32, "A", b"");
        let mut client = Client::new([b"head", &bytes[..acked + kept - 4]].concat());
        client.has[..acked].fill(true);
        client.in_order = acked;
        for _ in 0..100 {
            for out in rig.sent_all() {
                rig.recv(2, client.receive(&out), "A", b"");
            }
            rig.pass_ms(50);
        }
        assert_eq!(client.in_order, acked + kept);
    }
}

#[test]
fn a_response_with_a_slot_is_not_taken_back() {
    let mut rig = answering(&Config::default(), 0);
    let slot = Slot { offset: 10, len: 5 };
    let content = rig.add(&noise(5_000), Some(slot));
    rig.window = 0;
    rig.recv(1, 1, "A", b"");
    rig.app().parts.push_back(Part::Slice(content, 0..5_000, 0));
    rig.recv(1, 1, "PA", b"g");
    let id = rig.id();
    assert!(rig.reach(id, |_, conn| assert_eq!(conn.take_back(1_000), None)));
    assert!(rig.stack.contents().is_in_use(content));
    assert_eq!(rig.stack.sources.writes.in_use(), 0);
}

/// Returns the bytes that a client should receive for these `parts`.
fn bytes_of(parts: &VecDeque<Part>, contents: &[(ContentId, Vec<u8>, Option<Slot>)]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend(bytes),
            Part::Slice(id, range, params) => {
                let (_, bytes, slot) = contents.iter().find(|content| content.0 == *id).unwrap();
                let mut bytes = bytes.clone();
                if let Some(slot) = slot {
                    let (at, len) = (slot.offset as usize, slot.len as usize);
                    bytes[at..at + len].copy_from_slice(format!("{params:0len$}").as_bytes());
                }
                all.extend(&bytes[range.start as usize..range.end as usize]);
            }
        }
    }
    all
}

/// A client that checks the received bytes, and acknowledges the bytes that are in order.
struct Client {
    expected: Vec<u8>,
    has: Vec<bool>,
    in_order: usize,
}

impl Client {
    fn new(expected: Vec<u8>) -> Self {
        let has = vec![false; expected.len()];
        Self {
            expected,
            has,
            in_order: 0,
        }
    }

    /// Receives and checks a segment. Returns the acknowledgement number.
    fn receive(&mut self, out: &Out) -> u32 {
        let start = out.seq as usize - 1;
        let end = start + out.data.len();
        assert!(self.expected[start..end] == out.data, "bytes from {start}");
        self.has[start..end].fill(true);
        while self.has.get(self.in_order) == Some(&true) {
            self.in_order += 1;
        }
        1 + self.in_order as u32
    }
}

#[derive(Clone, Debug)]
struct Setting {
    mode: SendMode,
    segmentation: usize,
    max_entry_lists: u32,
    at_once: usize,
    /// Seed of the random losses. On average, one in `lost` segments is dropped.
    seed: u64,
    lost: u64,
    /// Path MTU changes: the number of segments before the change, and the new MTU in bytes.
    mtus: Vec<(usize, u32)>,
}

fn setting() -> impl Strategy<Value = Setting> {
    (
        prop_oneof![Just(SendMode::MemCopy), Just(SendMode::PreCopy)],
        prop_oneof![Just(0usize), Just(4_000), Just(65_535)],
        0u32..2,
        1usize..3,
        any::<u64>(),
        3u64..40,
        prop::collection::vec((1usize..60, 600u32..1500), 0..3),
    )
        .prop_map(
            |(mode, segmentation, max_entry_lists, at_once, seed, lost, mtus)| Setting {
                mode,
                segmentation,
                max_entry_lists,
                at_once,
                seed,
                lost,
                mtus,
            },
        )
}

/// Generates the lengths and slots of a few content items.
fn contents() -> impl Strategy<Value = Vec<(usize, Option<Slot>)>> {
    // Short contents are sent several at a time if the port supports super-segments.
    let len = prop_oneof![100usize..500, 100usize..20_000];
    let content = (len, prop::option::of((0u32..60, 21u32..40)));
    let content = content.prop_map(|(len, slot)| {
        let slot = slot.map(|(offset, len)| Slot { offset, len });
        (len, slot)
    });
    prop::collection::vec(content, 1..4)
}

/// Generates the parts of a response. A part has a content index (`None` for plain bytes), and a
/// start and an end in thousandths of the content. The flag tells whether the part starts where the
/// previous slice ends. For plain bytes, the start gives their number.
fn parts() -> impl Strategy<Value = Vec<(Option<usize>, u32, u32, bool)>> {
    let part = (
        prop::option::weighted(0.9, 0usize..4),
        0u32..1000,
        0u32..=1000,
        prop::bool::weighted(0.3),
    );
    prop::collection::vec(part, 1..90)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Sends random slices and plain bytes as single segments or super-segments, with losses and a
    /// decreasing path MTU. The client must receive the expected bytes.
    #[test]
    fn any_slices_arrive_unchanged(
        setting in setting(),
        contents in contents(),
        chosen in parts(),
    ) {
        let config = Config {
            mode: setting.mode,
            max_entry_lists: setting.max_entry_lists,
            // The same data may be lost many times in a row. Before a round trip is measured, repeated
            // retransmission timeouts may exceed the default user timeout.
            retries: u8::MAX,
            user_timeout: None,
            ..Config::default()
        };
        let mut rig = answering(&config, setting.segmentation);
        let contents: Vec<_> = contents
            .into_iter()
            .map(|(len, slot)| {
                let bytes = noise(len);
                (rig.add(&bytes, slot), bytes, slot)
            })
            .collect();
        let mut parts = VecDeque::new();
        let mut ended = 0;
        for (content, a, b, should_offer_again) in chosen {
            let Some(content) = content else {
                parts.push_back(Part::Bytes(noise(a as usize + 1)));
                continue;
            };
            let (id, bytes, _) = &contents[content % contents.len()];
            let len = bytes.len() as u32;
            let at = |thousandth: u32| len * thousandth / 1000;
            let from = if should_offer_again { ended.min(len) } else { at(a) };
            let until = at(b).max(from);
            ended = until;
            parts.push_back(Part::Slice(*id, from..until, u64::from(a % 3) << 34));
        }
        let mut client = Client::new(bytes_of(&parts, &contents));
        rig.app().parts = parts;
        rig.app().at_once = setting.at_once;
        rig.recv(1, 1, "PA", b"g");
        let mut seed = setting.seed;
        let mut is_lost = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33).is_multiple_of(setting.lost)
        };
        let mut mtus = VecDeque::from(setting.mtus.clone());
        let mut mtu = u32::MAX;
        let mut number = 0;
        let mut silent = 0;
        while client.in_order < client.expected.len() {
            let round = rig.sent_all();
            for out in &round {
                number += 1;
                if let Some((_, narrower)) = mtus.pop_front_if(|(at, _)| *at <= number) {
                    mtu = mtu.min(narrower);
                }
                let headers = 20 + 20;
                if out.data.len() + headers > mtu as usize {
                    rig.icmp(&too_big(&rig, mtu, out.seq));
                } else if !is_lost() && !out.data.is_empty() {
                    rig.recv(2, client.receive(out), "A", b"");
                }
            }
            silent = if round.is_empty() { silent + 1 } else { 0 };
            prop_assert!(silent < 300, "the transfer has stopped");
            if round.is_empty() {
                rig.pass_ms(500);
            }
        }
        rig.recv(2, 1 + client.in_order as u32, "A", b"");
        prop_assert_eq!(rig.stack.cx.lists.in_use(), 0);
        let ids: Vec<_> = contents.iter().map(|content| content.0).collect();
        for id in ids {
            rig.stack.contents_mut().remove(id);
        }
        prop_assert_eq!(rig.stack.contents().totals().contents, 0, "no content is referred to");
        prop_assert_eq!(rig.stack.cx.peers.held(0, Pool::EntryLists), 0);
    }
}
