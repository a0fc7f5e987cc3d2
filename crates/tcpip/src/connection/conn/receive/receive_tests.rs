use proptest::prelude::*;

use super::*;
use crate::pools::{Owner, Peers, Pool};

const CAPACITY: usize = 64;

fn buffer(capacity: usize) -> Buffer {
    let mut buffer = Buffer::default();
    buffer.provide(capacity);
    buffer
}

#[test]
fn the_pool_is_bounded_and_lends_empty_buffers() {
    let mut buffers = LendingPool::<Buffer>::new(Pool::RecvBuffers, 2);
    let mut peers = Peers::new([1; Pool::COUNT]);
    let owner = Owner {
        id: 3,
        peer: peers.join(1),
    };
    let a = buffers.take(owner, &mut peers).unwrap();
    let b = buffers.take(owner, &mut peers).unwrap();
    assert_eq!(buffers.take(owner, &mut peers), None);
    buffers[a].provide(CAPACITY);
    buffers[a].insert(0, b"abc").unwrap();
    buffers[a].insert(5, b"f").unwrap();
    buffers[a].set_fin(6);
    buffers.release(a, &mut peers);
    assert_eq!(buffers.in_use(), 1);
    let again = buffers.take(owner, &mut peers).unwrap();
    assert!(buffers[again].is_empty());
    assert!(buffers[b].is_empty());
}

#[test]
fn data_beyond_the_buffer_is_discarded() {
    let mut buffer = buffer(4);
    assert_eq!(buffer.insert(2, b"cdef"), Some(0));
    assert_eq!(buffer.insert(100, b"x"), Some(0));
    assert_eq!(buffer.insert(0, b"abcdef"), Some(4));
    assert_eq!(buffer.ready(), b"abcd");
    assert_eq!(buffer.space(), 0);
}

#[test]
fn the_fin_is_taken_when_everything_before_it_has_arrived() {
    let mut buffer = buffer(8);
    buffer.insert(2, b"cd").unwrap();
    buffer.set_fin(4);
    assert_eq!(buffer.fin_ahead(), Some(4));
    buffer.set_fin(3);
    assert_eq!(buffer.fin_ahead(), Some(4), "the first FIN counts");
    assert!(!buffer.take_fin());
    assert_eq!(buffer.insert(0, b"ab"), Some(4));
    buffer.consume(3);
    assert_eq!(buffer.fin_ahead(), Some(0));
    assert!(buffer.take_fin() && !buffer.take_fin());
    assert_eq!(buffer.ready(), b"d");
}

#[test]
fn a_fin_before_received_data_is_ignored() {
    let mut buffer = buffer(8);
    buffer.insert(2, b"cd").unwrap();
    buffer.set_fin(3);
    assert_eq!(buffer.fin_ahead(), None);
}

/// Returns the ranges of arrived bytes at or after `start`.
fn runs(arrived: &[bool], start: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (start..arrived.len()).filter(|at| arrived[*at]) {
        match runs.last_mut() {
            Some(run) if run.1 == at => run.1 = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

proptest! {
    /// Compares the buffer with a model: a list that tells for each byte of the stream whether the
    /// byte has arrived.
    #[test]
    fn the_buffer_agrees_with_a_list(
        steps in prop::collection::vec((0usize..80, 0usize..30, 0usize..20), 1..100),
    ) {
        // Byte n of the stream has the value n.
        let mut buffer = buffer(CAPACITY);
        let mut arrived = [false; 10_000];
        let (mut base, mut next) = (0, 0);
        for (ahead, len, consume) in steps {
            let data: Vec<u8> = (next + ahead..next + ahead + len).map(|n| n as u8).collect();
            let all = arrived[next + ahead..next + ahead + len].iter().all(|arrived| *arrived);
            prop_assert!(len == 0 || buffer.has(ahead, len) == all);
            let inserted = buffer.insert(ahead, &data);
            if inserted.is_some() {
                let end = (next + ahead + len).min(base + CAPACITY);
                if next + ahead < end {
                    arrived[next + ahead..end].fill(true);
                }
            } else {
                // Data is refused only if it would need more ranges than the buffer can hold.
                let gaps = (next..base + CAPACITY)
                    .filter(|n| arrived[*n] && (*n == next || !arrived[*n - 1]))
                    .count();
                prop_assert_eq!(gaps, MAX_RANGES);
            }
            let before = next;
            while next < base + CAPACITY && arrived[next] {
                next += 1;
            }
            if let Some(n) = inserted {
                prop_assert_eq!(n, next - before);
            }
            // The buffer reports the ranges after the first gap. The most recently changed range
            // comes first.
            let islands = runs(&arrived[..base + CAPACITY], next);
            let mut reported: Vec<_> = buffer
                .out_of_order()
                .into_iter()
                .map(|(start, end)| (next + start, next + end))
                .collect();
            let cut = (before + ahead, (before + ahead + len).min(base + CAPACITY));
            if inserted.is_some() && cut.0 < cut.1 && cut.0 >= next {
                prop_assert!(reported[0].0 <= cut.0 && cut.1 <= reported[0].1, "{reported:?}");
            }
            reported.sort_unstable();
            prop_assert_eq!(reported, islands);
            let expected: Vec<u8> = (base..next).map(|n| n as u8).collect();
            prop_assert_eq!(buffer.ready(), &expected[..]);
            let consume = consume.min(next - base);
            buffer.consume(consume);
            base += consume;
            prop_assert_eq!(buffer.space(), CAPACITY - (next - base));
            let nothing = next == base && !arrived[next..base + CAPACITY].contains(&true);
            prop_assert_eq!(buffer.is_empty(), nothing);
        }
    }
}
