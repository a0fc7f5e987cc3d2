use proptest::prelude::*;

use super::*;
use crate::pools::Pool;

const NOBODY: Owner = Owner {
    id: NONE,
    peer: NONE,
};

/// A stream, and the pools that it uses.
struct Rig {
    stream: Stream,
    lists: Lists,
    peers: Peers,
}

impl Rig {
    fn new(start: u32, max_lists: u32) -> Self {
        Self {
            stream: Stream::new(Seq(start)),
            lists: Lists::new(Pool::EntryLists, max_lists),
            peers: Peers::new([1; Pool::COUNT]),
        }
    }

    fn push(&mut self, slice: Slice) -> Result<(), Option<Pool>> {
        let (lists, peers) = (&mut self.lists, &mut self.peers);
        self.stream.push(slice, lists, NOBODY, peers)
    }

    fn locate(&self, seq: u32) -> Option<Slice> {
        self.stream.locate(Seq(seq), &self.lists)
    }

    fn retire(&mut self, una: Seq) -> Option<Source> {
        self.stream.retire(una, &mut self.lists, &mut self.peers)
    }

    fn room(&self) -> usize {
        self.stream.room(0, &self.lists, false)
    }
}

/// Returns a slice that covers all `len` bytes of a content item.
fn whole(index: u32, len: u32) -> Slice {
    slice(index, 0..len, len)
}

/// Returns the slice `range` of a content item of `len` bytes. The slice's parameters use both
/// 32-bit halves.
fn slice(index: u32, range: std::ops::Range<u32>, len: u32) -> Slice {
    let source = Source::content(index, range.end < len);
    let params = u64::from(index) << 33 | 5;
    Slice {
        source,
        from: range.start,
        len: range.end - range.start,
        params: [(params >> 32) as u32, params as u32],
    }
}

#[test]
fn sources_are_distinguished() {
    let whole = Source::content(5, false);
    assert_eq!((whole.buffer(), whole.content_index()), (None, 5));
    assert!(whole.ends_content());
    let part = Source::content(5, true);
    assert_eq!((part.buffer(), part.content_index()), (None, 5));
    assert!(!part.ends_content());
    assert_eq!(Source::write_buffer(5).buffer(), Some(5));
    assert!(!Source::write_buffer(5).ends_content());
}

#[test]
fn a_sequence_number_is_located_across_the_wrap() {
    let start = u32::MAX - 9;
    let mut rig = Rig::new(start, 0);
    rig.push(whole(1, 100)).unwrap();
    rig.push(slice(2, 30..80, 200)).unwrap();
    for (at, source, offset, left) in [
        (0, 1, 0, 100),
        (99, 1, 99, 1),
        (100, 2, 30, 50),
        (149, 2, 79, 1),
    ] {
        let place = rig.locate(start.wrapping_add(at)).unwrap();
        assert_eq!(place.source.content_index(), source);
        assert_eq!(place.params, [source << 1, 5]);
        assert_eq!((place.from, place.len), (offset, left));
    }
    assert!(rig.locate(start.wrapping_add(150)).is_none());
    assert!(rig.locate(start.wrapping_add(151)).is_none());
}

#[test]
fn distances_in_the_stream_fit_32_bits() {
    let mut rig = Rig::new(0, 0);
    assert!(rig.stream.has_span(u32::MAX - 1));
    assert!(!rig.stream.has_span(u32::MAX));
    rig.push(whole(1, 1 << 31)).unwrap();
    assert!(rig.stream.has_span((1 << 31) - 2));
    assert!(!rig.stream.has_span((1 << 31) - 1));
    // The last byte of the longest possible entry can be located.
    let mut rig = Rig::new(0, 0);
    rig.push(whole(1, u32::MAX - 1)).unwrap();
    let place = rig.locate(u32::MAX - 2).unwrap();
    assert_eq!((place.from, place.len), (u32::MAX - 2, 1));
}

#[test]
fn a_stream_holds_a_list_while_it_has_more_than_two_entries() {
    let mut rig = Rig::new(0, 1);
    assert_eq!(rig.room(), STREAM_ENTRIES);
    for n in 0..STREAM_ENTRIES as u32 {
        assert_eq!(rig.lists.in_use(), usize::from(n > 2));
        rig.push(whole(n, 10)).unwrap();
    }
    assert_eq!(rig.room(), 0);
    assert_eq!(rig.push(whole(9, 10)), Err(None));
    for n in 1..=STREAM_ENTRIES as u32 {
        assert!(rig.retire(Seq(10 * n)).is_some());
        assert_eq!(rig.retire(Seq(10 * n)), None);
        let left = STREAM_ENTRIES as u32 - n;
        assert_eq!(rig.lists.in_use(), usize::from(left > 2));
    }
}

#[test]
fn without_a_free_list_there_is_room_for_two_entries() {
    let mut rig = Rig::new(0, 0);
    assert_eq!(rig.room(), 2);
    rig.push(whole(1, 10)).unwrap();
    assert_eq!(rig.room(), 1);
    rig.push(whole(2, 10)).unwrap();
    assert_eq!(rig.room(), 0);
    assert_eq!(rig.push(whole(3, 10)), Err(Some(Pool::EntryLists)));
    assert_eq!(rig.stream.end(), Seq(20));
    assert_eq!(rig.stream.room(0, &rig.lists, true), 64);
}

#[test]
fn a_slice_is_merged_into_the_entry_that_it_continues() {
    let mut rig = Rig::new(0, 1);
    let merge = |rig: &mut Rig, slice| rig.stream.merge(slice, &mut rig.lists);
    assert!(
        !merge(&mut rig, slice(1, 0..20, 100)),
        "the stream is empty"
    );
    rig.push(slice(1, 0..20, 100)).unwrap();
    assert!(!merge(&mut rig, slice(1, 21..30, 100)), "a gap");
    assert!(!merge(&mut rig, slice(2, 20..30, 100)), "another content");
    let other = Slice {
        source: Source::content(1, true),
        from: 20,
        len: 10,
        params: [0, 7],
    };
    assert!(!merge(&mut rig, other), "other parameters");
    assert!(merge(&mut rig, slice(1, 20..100, 100)));
    let place = rig.locate(10).unwrap();
    assert_eq!((place.from, place.len), (10, 90));
    assert!(place.source.ends_content());
    assert!(
        !merge(&mut rig, slice(1, 0..20, 100)),
        "the content has ended"
    );
    assert_eq!(rig.room(), STREAM_ENTRIES - 1);
}

/// One operation on a stream.
#[derive(Clone, Debug)]
enum Step {
    Push { from: u32, len: u32, behind: u32 },
    Merge { len: u32 },
    Acknowledge { bytes: u32 },
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..3000, 1u32..3000, 0u32..3)
            .prop_map(|(from, len, behind)| Step::Push { from, len, behind }),
        2 => (1u32..100).prop_map(|len| Step::Merge { len }),
        4 => (1u32..9000).prop_map(|bytes| Step::Acknowledge { bytes }),
        1 => Just(Step::Discard),
    ]
}

proptest! {
    /// Compares the stream with a simple model: a list with the content item and offset of each
    /// byte.
    #[test]
    fn the_stream_agrees_with_a_list(
        start: u32,
        max_lists in 0u32..2,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut rig = Rig::new(start, max_lists);
        let mut una = Seq(start);
        let mut list: Vec<(u32, u32)> = Vec::new();
        // The model's entries: the content item and length of each. `last` is the content item and
        // end of the last slice, or `None` if that slice ends where its content item ends.
        let mut entries: VecDeque<(u32, usize)> = VecDeque::new();
        let mut last = None;
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u32;
            match step {
                Step::Push { from, len, behind } => {
                    let until = from + len;
                    let pushed = rig.push(slice(number, from..until, until + behind));
                    let max_entries = if max_lists == 0 { 2 } else { STREAM_ENTRIES };
                    prop_assert_eq!(pushed.is_ok(), entries.len() < max_entries);
                    if pushed.is_ok() {
                        list.extend((from..until).map(|offset| (number, offset)));
                        entries.push_back((number, len as usize));
                        last = (behind > 0).then_some((number, until));
                    }
                }
                Step::Merge { len } => {
                    let Some((content, until)) = last.filter(|_| !entries.is_empty()) else {
                        continue;
                    };
                    let range = until..until + len;
                    let merged = slice(content, range.clone(), range.end + 1);
                    prop_assert!(rig.stream.merge(merged, &mut rig.lists));
                    list.extend(range.clone().map(|offset| (content, offset)));
                    entries.back_mut().unwrap().1 += len as usize;
                    last = Some((content, range.end));
                }
                Step::Acknowledge { bytes } => {
                    let acked = (bytes as usize).min(list.len());
                    list.drain(..acked);
                    una = una + acked as u32;
                    let held: usize = entries.iter().map(|entry| entry.1).sum();
                    let mut gone = held - list.len();
                    while let Some((content, len)) = entries.front().copied()
                        && len <= gone
                    {
                        gone -= len;
                        entries.pop_front();
                        prop_assert_eq!(rig.retire(una).map(Source::content_index), Some(content));
                    }
                    prop_assert_eq!(rig.retire(una), None);
                }
                Step::Discard => {
                    let expected = entries.pop_front();
                    let source = rig.stream.retire(rig.stream.end(), &mut rig.lists, &mut rig.peers);
                    prop_assert_eq!(source.map(Source::content_index), expected.map(|entry| entry.0));
                    let held: usize = entries.iter().map(|entry| entry.1).sum();
                    let gone = list.len().saturating_sub(held);
                    list.drain(..gone);
                    una = una + gone as u32;
                }
            }
            let room = if max_lists == 0 { 2 } else { STREAM_ENTRIES } - entries.len();
            prop_assert_eq!(rig.room(), room);
            prop_assert_eq!(rig.stream.is_empty(), list.is_empty());
            prop_assert_eq!(rig.stream.end().since(una) as usize, list.len());
            prop_assert_eq!(rig.lists.in_use(), usize::from(entries.len() > 2));
            for at in [0, list.len() / 3, list.len() / 2, list.len().saturating_sub(1)] {
                let seq = una + at as u32;
                let place = rig.stream.locate(seq, &rig.lists);
                let found = place.map(|place| (place.source.content_index(), place.from));
                prop_assert_eq!(found, list.get(at).copied());
                if at > 0 && !list.is_empty() {
                    let start = rig.stream.entry_start(seq, &rig.lists);
                    let entry = list[at].0;
                    let first = list.iter().position(|byte| byte.0 == entry).unwrap();
                    // A part of the first entry may already be acknowledged.
                    let expected = una + first as u32;
                    prop_assert!(start == expected || first == 0 && !start.after(una));
                }
            }
        }
    }
}
