//! Notices when the host of a virtual machine holds up the whole machine.
//!
//! A host may take a machine's pages away and give them back at their next use. Measured on a shared
//! host: 400 of a program's 1,024 pages were gone at once, and each cost 45 µs at its next use. Meanwhile
//! every program on the machine runs at a fraction of its speed, for up to 100 ms. A latency of such a
//! run tells nothing about a server.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::interrupt;

const PAGE: usize = 4_096;
/// Number of pages that the witness uses in turn.
const PAGES: usize = 1_024;
/// Time from one use of the pages to the next.
const INTERVAL: Duration = Duration::from_millis(10);
/// A page whose use takes longer was gone. Usually the use takes less than 0.1 µs.
const SLOW: Duration = Duration::from_micros(4);
/// Number of slow pages from which the host is the cause. A program that gets the core in between
/// causes a few.
const MANY: usize = PAGES / 8;
/// Maximum number of runs until one is not held up.
const TRIES: u32 = 5;

/// Repeats `run` until the host does not hold it up, at most four times. Returns the result of the last
/// run, and the number of runs that were held up.
pub(super) fn undisturbed<T>(mut run: impl FnMut() -> Result<T>) -> Result<(T, u32)> {
    let mut held_up = 0;
    loop {
        interrupt::check()?;
        let (result, is_held_up) = watch(&mut run);
        held_up += u32::from(is_held_up);
        if !is_held_up || held_up == TRIES {
            return Ok((result?, held_up));
        }
    }
}

/// Calls `work`. Also returns whether the host has held up the machine meanwhile.
fn watch<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let witness = scope.spawn(|| {
            let mut memory = vec![1; PAGES * PAGE];
            let mut is_held_up = false;
            while !ended.load(Ordering::Relaxed) {
                is_held_up |= slow_pages(&mut memory) >= MANY;
                thread::sleep(INTERVAL);
            }
            is_held_up
        });
        let result = work();
        ended.store(true, Ordering::Relaxed);
        let is_held_up = witness.join().expect("the witness does not panic");
        (result, is_held_up)
    })
}

/// Uses all pages, and returns the number of slow ones.
fn slow_pages(memory: &mut [u8]) -> usize {
    let use_page = |page: &mut [u8]| {
        let start = Instant::now();
        black_box(page)[0] ^= 1;
        start.elapsed() > SLOW
    };
    memory
        .chunks_mut(PAGE)
        .map(use_page)
        .filter(|slow| *slow)
        .count()
}
