//! The ring protocol of copy mode, without a kernel.
//!
//! A model of the kernel makes a decision for each frame: the driver accepts it, the driver drops
//! it, or the wakeup ends before it. The test tries all sequences of decisions, also with ring
//! indices that wrap.

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

/// A ring in ordinary memory, whose indices start at `first`.
fn ring(first: u32) -> TxSlots {
    let offsets = libc::xdp_ring_offset {
        producer: 0,
        consumer: 64,
        desc: 128,
        flags: 192,
    };
    let len = 128 + SLOTS as usize * mem::size_of::<libc::xdp_desc>();
    // SAFETY: the call creates a new mapping, at an address that the kernel chooses.
    let map = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    let slots = TxSlots {
        map: NonNull::new(map.cast()).unwrap(),
        len,
        offsets,
        mask: SLOTS - 1,
        consumed: first,
        last_drop: first,
        staged: 0,
    };
    for offset in [offsets.producer, offsets.consumer] {
        slots.index_cell(offset).store(first, Ordering::Relaxed);
    }
    slots
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
    fn wake(&mut self, slots: &mut TxSlots, choices: &mut Choices) -> bool {
        let mut has_sent = false;
        let dropped = loop {
            if self.position == self.known {
                self.publish(slots);
                self.known = slots.index(slots.offsets.producer);
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
            let slot = slots.read(self.position);
            self.position = self.position.wrapping_add(1);
            if decision == Decision::Drop {
                break true;
            }
            has_sent = true;
            self.accepted.push(slot.addr);
        };
        if has_sent {
            self.publish(slots);
        }
        dropped
    }

    fn publish(&self, slots: &TxSlots) {
        let consumer = slots.index_cell(slots.offsets.consumer);
        consumer.store(self.position, Ordering::Release);
    }
}

/// Appends a frame, as libxdp does.
fn produce(slots: &mut TxSlots, slot: Slot) {
    let end = slots.index(slots.offsets.producer);
    let used = end.wrapping_sub(slots.index(slots.offsets.consumer));
    assert!(used < SLOTS, "the ring must have a free slot");
    slots.write(end, slot, 0);
    let producer = slots.index_cell(slots.offsets.producer);
    producer.store(end.wrapping_add(1), Ordering::Release);
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
            produce(&mut slots, Slot { addr, len });
        }
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
            let last = slots.put_back(dropped.slot);
            produce(&mut slots, last);
        }
    }
    assert!(kernel.accepted.into_iter().eq(0..FRAMES));
    assert_eq!(slots.pending(), 0);
}

#[test]
fn dropped_frames_are_sent_once_and_in_order_whatever_the_kernel_does() {
    let mut runs = 0;
    for first in [0, 5, u32::MAX - 2] {
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
fn staged_descriptors_are_hidden_until_they_are_published() {
    for first in [0, 5, u32::MAX - 2] {
        let mut slots = ring(first);
        slots.stage(256, 3840, true);
        slots.stage(4096, 9, false);
        assert_eq!((slots.index(0), slots.pending()), (first, 0));
        slots.publish();
        assert_eq!(
            (slots.index(0), slots.pending()),
            (first.wrapping_add(2), 2)
        );
        slots.stage(8448, 14, false);
        slots.publish();
        slots.publish();
        assert_eq!(slots.pending(), 3);
        let read = |nth: u32| {
            let at = slots.desc(first.wrapping_add(nth));
            // SAFETY: the descriptor is mapped and aligned, and no other thread uses it.
            let desc = unsafe { at.read() };
            (desc.addr, desc.len, desc.options)
        };
        assert_eq!(read(0), (256, 3840, XDP_PKT_CONTD));
        assert_eq!(read(1), (4096, 9, 0));
        assert_eq!(read(2), (8448, 14, 0));
    }
}
