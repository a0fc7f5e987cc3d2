//! The ring protocol of copy mode, without a kernel.
//!
//! A model of the kernel makes a decision for each frame: the driver accepts it, the driver drops
//! it, or the wakeup ends before it. The test tries all sequences of decisions, also with ring
//! indices that wrap.

use super::super::ring::tests::FIRST;
use super::*;

/// Number of slots of the ring.
const SLOTS: u32 = 8;
/// Number of frames to send.
const FRAMES: u64 = 5;
/// Maximum number of decisions in one run that are not `Accept`. The ring has room for all frames
/// and for this number of retries.
const MAX_REFUSALS: u32 = 3;

/// What the kernel does with the next frame of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Accept,
    Drop,
    /// The wakeup's budget is used up.
    Stop,
}

/// Chooses each decision, so that repeated runs go through all sequences.
#[derive(Debug, Default)]
struct Choices {
    /// The decisions of this run, as indices, with the number of alternatives of each.
    taken: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    fn choose(&mut self, options: &[Decision]) -> Decision {
        if self.next == self.taken.len() {
            self.taken.push((0, options.len()));
        }
        let (choice, count) = self.taken[self.next];
        assert_eq!(count, options.len(), "a run must be repeatable");
        self.next += 1;
        options[choice]
    }

    /// Prepares the next sequence. Returns false if all have been tried.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((choice, count)) = self.taken.pop() {
            if choice + 1 < count {
                self.taken.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

/// Makes a ring in ordinary memory, whose positions start at `first`.
fn ring(first: u32) -> TxRing {
    TxRing {
        ring: Producer::in_memory(SLOTS, first),
        slots: SLOTS,
        consumed: first,
        last_drop: first,
    }
}

/// The kernel's side of the ring, as in `__xsk_generic_xmit` of Linux 6.17.
struct Kernel {
    /// Position of the next frame, which is not always published.
    position: u32,
    /// Position after the last frame that the kernel knows of.
    known: u32,
    /// Number of decisions so far that were not `Accept`.
    refusals: u32,
    /// Addresses of the frames that the driver accepted.
    accepted: Vec<u64>,
}

impl Kernel {
    /// Sends frames until the ring is empty, a frame is dropped, or the budget is used up. Returns
    /// true if a frame was dropped.
    fn wake(&mut self, slots: &mut TxRing, choices: &mut Choices) -> bool {
        let mut has_sent = false;
        let dropped = loop {
            if self.position == self.known {
                self.publish(slots);
                self.known = slots.ring.published();
                if self.position == self.known {
                    break false;
                }
            }
            let options: &[_] = if self.refusals < MAX_REFUSALS {
                &[Decision::Accept, Decision::Drop, Decision::Stop]
            } else {
                &[Decision::Accept]
            };
            let decision = choices.choose(options);
            self.refusals += u32::from(decision != Decision::Accept);
            if decision == Decision::Stop {
                break false;
            }
            let addr = slots.ring.get(self.position).addr;
            self.position = self.position.wrapping_add(1);
            if decision == Decision::Drop {
                break true;
            }
            has_sent = true;
            self.accepted.push(addr);
        };
        if has_sent {
            self.publish(slots);
        }
        dropped
    }

    fn publish(&self, slots: &TxRing) {
        slots.ring.set_consumed(self.position);
    }
}

/// Sends all frames. `batch` is the number of frames that are appended between two wakeups.
fn send_all(first: u32, batch: u64, choices: &mut Choices) {
    let mut slots = ring(first);
    let mut kernel = Kernel {
        position: first,
        known: first,
        refusals: 0,
        accepted: Vec::new(),
    };
    let mut next = 0;
    while (kernel.accepted.len() as u64) < FRAMES {
        let end = FRAMES.min(next + batch);
        for addr in next..end {
            let len = 60 + addr as u32;
            // SAFETY: the ring has room, and no memory is described.
            unsafe { slots.stage(Slot { addr, len }, false) };
        }
        slots.publish();
        next = end;
        assert_eq!(
            u64::from(slots.pending()),
            next - kernel.accepted.len() as u64
        );
        let before = kernel.accepted.len();
        if kernel.wake(&mut slots, choices) {
            let dropped = slots.dropped();
            let addr = kernel.accepted.len() as u64;
            let len = 60 + addr as u32;
            assert_eq!(dropped.slot, Slot { addr, len }, "the next frame in order");
            if kernel.accepted.len() > before {
                assert_eq!(dropped.longest_accepted, Some(len - 1));
            }
            assert!(!slots.is_full());
            // SAFETY: the ring has room, and no memory is described.
            unsafe { slots.put_back(dropped.slot) };
        }
    }
    assert!(kernel.accepted.into_iter().eq(0..FRAMES));
    assert_eq!(slots.pending(), 0);
}

#[test]
fn dropped_frames_are_sent_once_and_in_order_whatever_the_kernel_does() {
    let mut runs = 0;
    for first in FIRST {
        for batch in 1..=FRAMES {
            let mut choices = Choices::default();
            loop {
                send_all(first, batch, &mut choices);
                runs += 1;
                if !choices.advance() {
                    break;
                }
            }
        }
    }
    assert!(runs > 1_000, "only {runs} sequences were tried");
}

#[test]
fn a_descriptor_says_whether_its_packet_goes_on() {
    for first in FIRST {
        let mut slots = ring(first);
        for (addr, len, more) in [(256, 3840, true), (4096, 9, false)] {
            // SAFETY: the ring has room, and no memory is described.
            unsafe { slots.stage(Slot { addr, len }, more) };
        }
        assert_eq!(slots.pending(), 0);
        slots.publish();
        assert_eq!(slots.pending(), 2);
        let read = |nth: u32| {
            let desc = slots.ring.get(first.wrapping_add(nth));
            (desc.addr, desc.len, desc.options)
        };
        assert_eq!(read(0), (256, 3840, libc::XDP_PKT_CONTD));
        assert_eq!(read(1), (4096, 9, 0));
    }
}
