//! The rings on a loopback interface of their own. Needs root.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use super::*;
use crate::device::{MemoryPlan, Offload};
use crate::port::Wait;
use crate::sys::Control;

/// Runs `test` on rings that the kernel sends from, in a network namespace
/// that ends with it.
fn on_loopback(test: impl FnOnce(&mut Rings) + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            sys::unshare_network().unwrap_or_else(|error| panic!("needs root: {error}"));
            Control::new().unwrap().set_up("lo").unwrap();
            let no_program = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
            let mut rings = Rings::open(&XdpConfig {
                interface: "lo",
                queue: 0,
                mtu: 1500,
                generic: true,
                partial_checksums: false,
                offload: Offload::Off,
                wait: Wait::Spin,
                memory: MemoryPlan::default(),
                xsks: no_program.as_fd(),
            })
            .unwrap();
            test(&mut rings);
        });
    });
}

/// Sends a frame of `len` bytes, which nobody on the host wants.
fn send(rings: &mut Rings, len: usize) {
    let mut frame = rings.pool().take().unwrap();
    frame.set_len(len);
    frame.fill(0);
    rings.send(frame);
}

/// Wakes the kernel until it has taken all of the TX ring.
fn flush(rings: &mut Rings) {
    rings.submit();
    while rings.untaken() > 0 {
        let _ = sys::kick_tx(rings.fd());
        rings.reap();
    }
    rings.reap();
}

/// Sends as many frames as make a look for overdue ones due, and makes it.
fn look_for_overdue(rings: &mut Rings) {
    rings.overdue.looked = None;
    while rings.overdue.looked.is_none() {
        for _ in 0..MOVE {
            send(rings, 60);
        }
        flush(rings);
    }
}

/// The kernel frees a slot of the fill ring a moment after it shows the frame
/// received. So the ring may be full although it lacks a frame.
#[test]
fn a_fill_ring_that_is_still_full_gets_its_frame_later() {
    on_loopback(|rings| {
        let available = rings.pool().available() + rings.offered;
        rings.fill_level.look(0, false, 0);
        rings.receive(&mut Batch::new(), 1);
        assert_eq!(rings.offered, FILL_RING, "it is full");
        rings.offered -= 3;
        rings.receive(&mut Batch::new(), 1);
        assert_eq!((rings.offered, rings.bad()), (FILL_RING - 3, 0), "still");
        let available = available - FILL_RING;
        assert_eq!(rings.pool().available(), available);
    });
}

#[test]
fn frames_that_are_never_completed_are_taken_back() {
    on_loopback(|rings| {
        let available = rings.pool().available();
        // As if the driver had forgotten these. None is known that does.
        for _ in 0..3 {
            rings.pool.take().unwrap().send(&rings.pool).into_index();
            rings.in_flight += 1;
        }

        look_for_overdue(rings);
        assert_eq!((rings.lost(), TX_RING - rings.room()), (0, 3), "seen once");
        look_for_overdue(rings);
        assert_eq!((rings.lost(), TX_RING - rings.room()), (3, 0));
        assert_eq!(rings.pool().available(), available);
        look_for_overdue(rings);
        assert_eq!((rings.lost(), rings.bad()), (3, 0), "nothing else is");
    });
}

#[test]
fn a_look_for_overdue_frames_waits_for_completions_and_for_time() {
    let mut overdue = Overdue::default();
    assert!(!overdue.is_due(Overdue::AFTER - 1));
    assert!(overdue.is_due(1));
    assert!(!overdue.is_due(2 * Overdue::AFTER), "too early");
    overdue.looked = Instant::now().checked_sub(Overdue::PATIENCE);
    assert!(!overdue.is_due(Overdue::AFTER - 1));
    assert!(overdue.is_due(1));
}
