//! The rings in ordinary memory, with a model of the kernel at the other side.
//!
//! The tests try all sequences of steps of the two sides, also with positions that wrap.

use std::collections::VecDeque;

use super::*;

/// First positions of the rings: the beginning, the middle, and just before positions wrap.
pub(in crate::xdp) const FIRST: [u32; 3] = [0, 5, u32::MAX - 2];
/// Number of slots.
const SLOTS: u32 = 4;
/// Number of steps in a sequence.
const STEPS: u32 = 8;
/// The steps that a sequence chooses from.
const CHOICES: u32 = 3;

/// Makes a ring in ordinary memory, whose positions start at `first`.
fn ring<T: Copy>(slots: u32, first: u32) -> Ring<T> {
    let layout = libc::xdp_ring_offset {
        producer: 0,
        consumer: 64,
        flags: 128,
        desc: 192,
    };
    let len = layout.desc as usize + slots as usize * mem::size_of::<T>();
    let ring = Ring {
        map: Mapping::anonymous(len).unwrap(),
        layout,
        mask: slots - 1,
        slots: PhantomData,
    };
    ring.producer().store(first, Ordering::Relaxed);
    ring.consumer().store(first, Ordering::Relaxed);
    ring
}

impl<T: Copy> Producer<T> {
    /// Makes a ring in ordinary memory, whose positions start at `first`.
    pub(in crate::xdp) fn in_memory(slots: u32, first: u32) -> Self {
        Self {
            ring: ring(slots, first),
            position: first,
        }
    }

    /// Publishes the position up to which the kernel has emptied slots.
    pub(in crate::xdp) fn set_consumed(&self, position: u32) {
        self.ring.consumer().store(position, Ordering::Release);
    }
}

/// Calls `run` with each sequence of steps, and each first position.
fn for_all_sequences(mut run: impl FnMut(u32, &mut dyn Iterator<Item = u32>)) {
    for first in FIRST {
        for number in 0..CHOICES.pow(STEPS) {
            let mut steps = (0..STEPS).map(|step| number / CHOICES.pow(step) % CHOICES);
            run(first, &mut steps);
        }
    }
}

#[test]
fn the_kernel_gets_what_was_published_once_and_in_order() {
    for_all_sequences(|first, steps| {
        let mut producer = Producer::<u64>::in_memory(SLOTS, first);
        let (mut staged, mut published, mut taken) = (0u64, 0, 0);
        for step in steps {
            match step {
                0 if staged - taken < u64::from(SLOTS) => {
                    // SAFETY: the ring has a free slot, and no memory is described.
                    unsafe { producer.stage(staged) };
                    staged += 1;
                }
                1 => {
                    producer.publish();
                    published = staged;
                }
                _ if taken < published => {
                    let position = first.wrapping_add(taken as u32);
                    assert_ne!(position, producer.published());
                    assert_eq!(producer.get(position), taken);
                    taken += 1;
                    producer.set_consumed(position.wrapping_add(1));
                }
                _ => {}
            }
            assert_eq!(u64::from(producer.occupied()), staged - taken);
            let hidden = producer.position().wrapping_sub(producer.published());
            assert_eq!(u64::from(hidden), staged - published);
        }
    });
}

#[test]
fn what_the_kernel_has_published_is_taken_once_and_in_order() {
    for_all_sequences(|first, steps| {
        let mut consumer = Consumer::<u64> {
            ring: ring(SLOTS, first),
            position: first,
        };
        let mut waiting = VecDeque::new();
        let mut produced = 0u64;
        for step in steps {
            let released = consumer.ring.consumer().load(Ordering::Acquire);
            let position = first.wrapping_add(produced as u32);
            if step == 0 && position.wrapping_sub(released) < SLOTS {
                consumer.ring.write(position, produced);
                let producer = consumer.ring.producer();
                producer.store(position.wrapping_add(1), Ordering::Release);
                waiting.push_back(produced);
                produced += 1;
            } else if step > 0 {
                let mut taken = Vec::new();
                let count = consumer.take(step as usize, |value| taken.push(value));
                assert_eq!(count, taken.len());
                assert_eq!(count, waiting.len().min(step as usize));
                assert!(waiting.drain(..count).eq(taken));
            }
        }
    });
}

#[test]
fn the_kernel_asks_for_a_wakeup_with_a_flag() {
    let producer = Producer::<u64>::in_memory(SLOTS, 0);
    assert!(!producer.needs_wakeup());
    let flags = producer.ring.word(producer.ring.layout.flags);
    flags.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}
