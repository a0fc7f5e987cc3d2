use nmio::PoolLayout;
use proptest::prelude::*;

use super::*;
use crate::content::payload_sum;

fn contents(mode: SendMode, budget: usize) -> Contents {
    Contents::new(mode, 1460, 1440, budget)
}

fn add(contents: &mut Contents, len: usize) -> ContentId {
    contents.add(vec![7; len].into(), None).unwrap()
}

fn pool(residents: u32) -> Pool {
    Pool::on_heap(PoolLayout {
        stride: 2048,
        capacity: 1526,
        io_frames: 4,
        resident_frames: residents,
    })
}

#[test]
fn slots_must_lie_in_the_content() {
    let mut all = contents(SendMode::MemCopy, 0);
    let mut add = |offset, len| all.add(vec![0; 1000].into(), Some(Slot { offset, len }));
    assert!(add(0, 256).is_ok());
    assert!(add(999, 1).is_ok());
    for (offset, len) in [(0, 0), (0, 257), (999, 2), (1000, 1), (u32::MAX, u32::MAX)] {
        let slot = Slot { offset, len };
        assert_eq!(
            add(offset, len),
            Err(ContentError::BadSlot { slot, len: 1000 })
        );
    }
    assert_eq!(all.totals().contents, 2);
}

#[test]
fn a_removed_id_is_not_found_even_if_its_index_is_reused() {
    let mut all = contents(SendMode::MemCopy, 0);
    let first = add(&mut all, 10);
    assert!(all.remove(first));
    let second = add(&mut all, 20);
    assert_eq!(all.lookup(first), None);
    assert_eq!(all.bytes(first), None);
    assert!(!all.remove(first));
    assert_eq!(all.lookup(second).map(|(_, len)| len), Some(20));
    assert_eq!(all.totals().bytes, 20);
}

#[test]
fn after_reserving_no_table_moves() {
    let mut all = contents(SendMode::MemCopy, 0);
    let old: Vec<_> = (0..100).map(|_| add(&mut all, 10)).collect();
    all.reserve(200);
    let tables = (all.list.as_ptr(), all.free.as_ptr());
    let new: Vec<_> = (0..200).map(|_| add(&mut all, 10)).collect();
    for id in old.into_iter().chain(new) {
        assert!(all.remove(id));
    }
    assert_eq!(all.free.len(), 300);
    assert_eq!((all.list.as_ptr(), all.free.as_ptr()), tables);
}

#[test]
fn preparing_computes_all_checksums_and_makes_residents_while_there_is_memory() {
    let pool = pool(5);
    let mut all = contents(SendMode::PreCopy, 0);
    let a = add(&mut all, 3 * 1460);
    let b = add(&mut all, 3 * 1460);
    assert_eq!(all.prepare(a, &pool, Family::V4), 3);
    assert_eq!(all.prepare(a, &pool, Family::V4), 0, "already prepared");
    assert_eq!(all.prepare(b, &pool, Family::V4), 2);
    assert_eq!(all.totals().packets, 6);
    assert_eq!(all.totals().residents, 5);
    all.remove(a);
    assert_eq!(all.totals().residents, 2);
    assert_eq!(pool.residents_left(), 3);
    all.remove(b);
    assert_eq!(all.totals(), Totals::default());
}

/// A worker must not stop for milliseconds when a long content leaves.
#[test]
fn a_content_with_many_resident_packets_is_freed_in_passes() {
    const PACKETS: u32 = 50_000;
    let pool = Pool::on_heap(PoolLayout {
        stride: 256,
        capacity: 256,
        io_frames: 4,
        resident_frames: PACKETS + 10,
    });
    let mut all = Contents::new(SendMode::PreCopy, 100, 100, 0);
    let long = add(&mut all, PACKETS as usize * 100);
    let short = add(&mut all, 10 * 100);
    assert_eq!(all.prepare(long, &pool, Family::V4), PACKETS);
    assert_eq!(all.prepare(short, &pool, Family::V4), 10);
    assert!(all.remove(long));
    assert!(all.remove(short), "its packets wait, too");
    assert_eq!((all.totals().contents, all.totals().memory), (0, 0));
    let mut passes = 0;
    while all.is_freeing() {
        let before = all.totals().residents;
        all.free_some();
        let freed = before - all.totals().residents;
        assert!((1..=256).contains(&freed), "{freed}");
        passes += 1;
    }
    assert_eq!(passes, (PACKETS + 10 - 256).div_ceil(256));
    assert_eq!(all.totals(), Totals::default());
    assert_eq!(pool.residents_left(), PACKETS + 10);
}

/// What one pass frees is limited for all contents together.
#[test]
fn many_contents_that_leave_in_one_pass_are_freed_in_passes() {
    let pool = pool(600);
    let mut all = contents(SendMode::PreCopy, 0);
    let ids: Vec<_> = (0..200).map(|_| add(&mut all, 3 * 1460)).collect();
    for id in &ids {
        assert_eq!(all.prepare(*id, &pool, Family::V4), 3);
    }
    for id in ids {
        all.remove(id);
    }
    assert_eq!(all.totals().residents, 600 - 256);
    all.free_some();
    assert_eq!(all.totals().residents, 600 - 2 * 256);
    all.free_some();
    assert!(!all.is_freeing());
    // The next pass may free a whole number of packets again.
    let id = add(&mut all, 256 * 1460);
    assert_eq!(all.prepare(id, &pool, Family::V4), 256);
    all.remove(id);
    assert!(!all.is_freeing());
}

/// The pieces of downloads can leave faster than passes free packets. A reload waits for what passes
/// are still to free.
#[test]
fn temporary_contents_leave_nothing_for_passes() {
    for residents in [400, 30, 0] {
        let pool = pool(residents);
        let mut all = contents(SendMode::PreCopy, 0);
        for _ in 0..10 {
            let add = |_| all.add_temporary(vec![7; 4 * 1460].into()).unwrap();
            let ids: Vec<_> = (0..100).map(add).collect();
            let made: u32 = ids
                .iter()
                .map(|id| all.prepare(*id, &pool, Family::V4))
                .sum();
            assert_eq!(made, residents);
            for id in ids {
                assert!(all.remove(id));
            }
            assert!(!all.is_freeing());
            assert_eq!(pool.residents_left(), residents);
            assert_eq!(all.totals(), Totals::default());
            all.free_some();
        }
    }
}

#[test]
fn a_content_is_prepared_for_both_families() {
    let pool = pool(0);
    let mut all = contents(SendMode::MemCopy, 0);
    let id = add(&mut all, 14_400);
    all.prepare(id, &pool, Family::V4);
    all.prepare(id, &pool, Family::V6);
    assert_eq!(all.totals().packets, 10 + 10);
    assert_eq!(all.totals().memory, 2 * 20);
}

#[test]
fn a_content_of_a_single_segment_needs_no_memory_for_segments() {
    let pool = pool(1);
    let mut all = contents(SendMode::MemCopy, 1 << 20);
    // The content is a single segment for IPv4 only.
    let id = add(&mut all, 1450);
    let (index, _) = all.lookup(id).unwrap();
    for _ in 0..2 {
        all.prepare(id, &pool, Family::V4);
        assert_eq!((all.totals().packets, all.totals().memory), (1, 0));
    }
    let whole = all.sum(index, 0, 0);
    assert!(whole.is_some());
    let first = all.sum(index, 1, 0);
    assert!(first.is_some_and(|first| Some(first) != whole));
    assert!(all.sum(index, 1, 1).is_some());
    assert_eq!((all.totals().packets, all.totals().memory), (3, 4));
    let other = all.acquire_class(Family::V4, 1460 / 2);
    assert!(all.sum(index, other, 1).is_some());
    assert_eq!(all.sum(index, 0, 0), whole);
    all.remove(id);
    assert_eq!(all.totals(), Totals::default());
    let again = add(&mut all, 100);
    assert_eq!(all.lookup(again).unwrap().0, index);
    assert_ne!(all.sum(index, 0, 0), whole, "the old sum is gone");
}

#[test]
fn classes_are_shared_and_our_own_classes_are_permanent() {
    let mut all = contents(SendMode::MemCopy, 1 << 20);
    assert_eq!(all.acquire_class(Family::V4, 1460), 0);
    assert_eq!(all.acquire_class(Family::V6, 1440), 1);
    let other = all.acquire_class(Family::V4, 1440);
    assert_eq!(other, 2);
    assert_eq!(all.acquire_class(Family::V4, 1440), 2);
    all.release_class(0);
    all.release_class(Contents::NO_CLASS);
}

#[test]
fn the_least_recently_used_class_without_connections_is_replaced_first() {
    let mut all = contents(SendMode::MemCopy, 1 << 20);
    let id = add(&mut all, 10_000);
    let (index, _) = all.lookup(id).unwrap();
    let mss = |n: usize| 500 + n as u16;
    for n in PINNED_CLASSES..MAX_CLASSES {
        let class = all.acquire_class(Family::V4, mss(n));
        assert_eq!(usize::from(class), n);
        assert!(all.ensure_segments(index, class));
    }
    assert_eq!(
        all.acquire_class(Family::V4, 1000),
        Contents::NO_CLASS,
        "all classes are in use"
    );
    assert!(!all.ensure_segments(index, Contents::NO_CLASS));
    all.release_class(9);
    all.release_class(5);
    assert_eq!(
        all.acquire_class(Family::V4, mss(9)),
        9,
        "the class still exists"
    );
    all.release_class(9);
    assert_eq!(all.acquire_class(Family::V4, 1000), 5);
    let segments = &all.list[index as usize].segments[5];
    assert_eq!(segments.sum(0), None, "the old class's sums are gone");
    assert_eq!(all.acquire_class(Family::V4, 1001), 9);
}

#[test]
fn only_unused_classes_give_memory_back_to_the_budget() {
    // 100 segments need 200 bytes for checksums, so the budget suffices for the segments of this
    // content in two classes.
    let mut all = contents(SendMode::MemCopy, 500);
    let id = add(&mut all, 10_000);
    let (index, _) = all.lookup(id).unwrap();
    let classes = [100, 101, 102].map(|mss| all.acquire_class(Family::V4, mss));
    assert!(all.ensure_segments(index, classes[0]));
    assert!(all.ensure_segments(index, classes[1]));
    assert!(
        !all.ensure_segments(index, classes[2]),
        "both classes are in use"
    );
    assert_eq!(all.totals().memory, 200 + 200);
    all.release_class(classes[0]);
    assert!(all.ensure_segments(index, classes[2]));
    assert_eq!(all.totals().memory, 200 + 198);
    assert_eq!(all.on_demand, 398);
    all.remove(id);
    assert_eq!((all.on_demand, all.totals().memory), (0, 0));
}

#[test]
fn the_list_of_a_class_stays_correct_when_contents_are_removed() {
    let mut all = contents(SendMode::MemCopy, 1 << 20);
    let class = all.acquire_class(Family::V4, 1000);
    let ids: Vec<ContentId> = (0..10).map(|_| add(&mut all, 5000)).collect();
    for id in &ids {
        let (index, _) = all.lookup(*id).unwrap();
        assert!(all.ensure_segments(index, class));
    }
    for id in [ids[0], ids[9], ids[4]] {
        all.remove(id);
    }
    let again = add(&mut all, 5000);
    let (index, _) = all.lookup(again).unwrap();
    assert!(all.ensure_segments(index, class));
    let mut listed = all.classes[usize::from(class)].contents.clone();
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed.len(), 8);
    all.empty_class(usize::from(class));
    assert_eq!((all.on_demand, all.totals().memory), (0, 0));
}

proptest! {
    /// A segment's checksum counts the bytes of its slot as zeros.
    #[test]
    fn checksums_count_slot_bytes_as_zeros(
        mut bytes in prop::collection::vec(any::<u8>(), 1..2000),
        offset: prop::sample::Index,
        len in 1usize..=MAX_SLOT_LEN,
        start: prop::sample::Index,
        end: prop::sample::Index,
    ) {
        let offset = offset.index(bytes.len());
        let len = len.min(bytes.len() - offset);
        let slot = Slot { offset: offset as u32, len: len as u32 };
        let (start, end) = (start.index(bytes.len() + 1), end.index(bytes.len() + 1));
        let (start, end) = (start.min(end), start.max(end));
        let sum = payload_sum(&bytes, Some(slot), start, end).fold();
        bytes[offset..offset + len].fill(0);
        prop_assert_eq!(sum % 0xffff, ip::Sum::of(&bytes[start..end]).fold() % 0xffff);
    }
}
