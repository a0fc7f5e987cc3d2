//! Tests of the rings. Most of them run on a loopback interface in a private network namespace, and
//! need root.

use std::sync::Arc;
use std::thread;

use super::super::fill_level::FILL_RING;
use super::super::socket::unbound_socket;
use super::*;
use crate::device::{MemoryPlan, Offload, XdpOptions};
use crate::port::Wait;
use crate::sys::Control;

/// Runs `test` on rings that are bound to a loopback interface, in a network namespace that exists
/// only during the test.
fn on_loopback(test: impl FnOnce(&mut Rings) + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            sys::unshare_network().unwrap_or_else(|error| panic!("this test needs root: {error}"));
            Control::new().unwrap().set_up("lo").unwrap();
            let mut rings = Rings::open(&XdpConfig {
                options: XdpOptions {
                    generic: true,
                    offload: Offload::Off,
                    ..XdpOptions::new("lo")
                },
                index: 1,
                queue: 0,
                mtu: 1500,
                napi: None,
                wait: Wait::Spin,
                memory: MemoryPlan::default(),
                socket: Arc::new(unbound_socket(Wait::Spin).unwrap()),
                waits_for_return: false,
            })
            .unwrap();
            test(&mut rings);
        });
    });
}

/// Sends a frame of `len` zero bytes. Its `EtherType` is 0, so no socket on the host
/// receives it.
fn send(rings: &mut Rings, len: usize) {
    let mut frame = rings.pool().take().unwrap();
    frame.set_len(len);
    frame.fill(0);
    rings.send(frame);
}

/// Wakes the kernel until it has taken all frames from the TX ring.
fn flush(rings: &mut Rings) {
    rings.submit();
    while rings.pending() > 0 {
        let _ = sys::kick_tx(rings.fd());
        rings.reap();
    }
    rings.reap();
}

/// Makes the port search for overdue frames: pretends that it has never searched, and sends frames
/// until it does.
fn search_overdue(rings: &mut Rings) {
    rings.overdue_check.last_search = None;
    while rings.overdue_check.last_search.is_none() {
        for _ in 0..MAX_MOVED {
            send(rings, 60);
        }
        flush(rings);
    }
}

/// The kernel frees a fill ring slot only some time after it returns the received frame. Until then
/// the fill ring appears full, so the port must not refill it yet.
#[test]
fn a_fill_ring_that_is_still_full_is_not_refilled() {
    on_loopback(|rings| {
        let available = rings.pool().available() + rings.offered;
        rings.fill_level.update(0, false, 0);
        rings.receive(&mut Batch::new(), 1);
        assert_eq!(rings.offered, FILL_RING, "the fill ring is full");
        rings.offered -= 3;
        rings.receive(&mut Batch::new(), 1);
        assert_eq!(
            (rings.offered, rings.invalid()),
            (FILL_RING - 3, 0),
            "the fill ring is still full"
        );
        let available = available - FILL_RING;
        assert_eq!(rings.pool().available(), available);
    });
}

#[test]
fn frames_that_are_never_completed_are_reclaimed() {
    on_loopback(|rings| {
        let available = rings.pool().available();
        // Simulates a driver that never completes these frames. No such driver is known.
        for _ in 0..3 {
            rings.pool.take().unwrap().send(&rings.pool).into_index();
            rings.in_flight += 1;
        }

        search_overdue(rings);
        assert_eq!(
            (rings.lost(), rings.max_in_flight - rings.room()),
            (0, 3),
            "one look is not enough"
        );
        search_overdue(rings);
        assert_eq!((rings.lost(), rings.max_in_flight - rings.room()), (3, 0));
        assert_eq!(rings.pool().available(), available);
        search_overdue(rings);
        assert_eq!(
            (rings.lost(), rings.invalid()),
            (3, 0),
            "no other frame is taken back"
        );
    });
}

#[test]
fn frames_that_a_zero_copy_driver_holds_are_only_counted() {
    on_loopback(|rings| {
        rings.copying = Copying::Never;
        let available = rings.pool().available();
        let held: Vec<_> = (0..3)
            .map(|_| rings.pool.take().unwrap().send(&rings.pool).into_index())
            .collect();
        rings.in_flight += 3;
        for lost in [0, 3, 3] {
            search_overdue(rings);
            assert_eq!((rings.lost(), rings.in_flight), (lost, 3));
            assert_eq!(rings.pool().available(), available - 3);
        }
        rings.count_lost_in_removal();
        assert_eq!(rings.lost(), 3, "overdue frames count once");
        // The driver completes the frames after all.
        let mut completed = Completed {
            pool: &rings.pool,
            multi_buffer: None,
            chunk_shift: rings.chunk_shift,
            in_flight: &mut rings.in_flight,
            invalid: &mut rings.invalid,
        };
        for index in held {
            completed.take_back(data_of(index, rings.chunk_shift));
        }
        assert_eq!((rings.in_flight, rings.invalid()), (0, 0));
        assert_eq!(rings.pool().available(), available);
    });
}
