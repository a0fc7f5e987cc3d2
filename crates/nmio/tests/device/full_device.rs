//! Super-segments that the kernel cuts for a device without a queueing discipline.

use std::collections::HashSet;
use std::sync::Arc;

use nmio::device::{AnyPort, Interface, MemoryPlan};
use nmio::tap::TapPort;
use nmio::{Batch, Frame, MAX_BATCH, Port};

use crate::line;
use crate::rig::{Namespace, config};
use crate::supers::{ACK, ORDINARY, frames, open, path, run, send_frame};

/// More packets than the kernel sends of its own. The device counts those that it drops, too.
const OF_THE_KERNEL: u64 = 16;

fn is_ours(frame: &Frame) -> bool {
    frame[..6] == path(false).link.peer.0
}

/// Makes the tap device `tap9` in a new network namespace. It has no queueing discipline, does not segment,
/// and has room for `room` packets.
fn tap_without_queue(room: u32) -> (Interface, TapPort) {
    Namespace::unshare();
    let tap = Interface::open(&config("tap:tap9", &["10.9.0.1/24"], 1)).unwrap();
    let AnyPort::Tap(receiver) = tap.queue(0).open(MemoryPlan::default()).unwrap() else {
        panic!("tap:tap9 must open a tap port");
    };
    crate::rig::run(&format!("ip link set tap9 txqueuelen {room}"));
    crate::rig::run("tc qdisc replace dev tap9 root noqueue");
    crate::rig::run("ethtool -K tap9 tso off");
    // A kernel without IPv6 has no such file.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/tap9/disable_ipv6", "1");
    (tap, receiver)
}

/// The kernel does not say that a packet has failed, unless it is the first of its system call.
#[test]
fn each_packet_for_a_full_device_arrives_once_or_counts_as_lost() {
    const ROUNDS: u8 = 64;
    let (tap, mut receiver) = tap_without_queue(64);
    let (interface, mut port) = open("xdp:tap9,offload=on", &["10.9.0.9/24"]);
    let mut batch = Batch::new();
    let mut seen = HashSet::new();
    for round in 0..ROUNDS {
        let packet = |kind| {
            let bytes = vec![4 * round + kind; 61_000].into();
            run(&path(false), &bytes, 60_000, Some(ACK))
        };
        for kind in 0..3 {
            port.send_super(packet(kind)).unwrap();
        }
        let single = &frames(&packet(3))[..2];
        for frame in single {
            send_frame(&mut port, frame);
        }
        assert!(!port.flush().unwrap(), "the device is full");
        let mut received = Vec::new();
        let mut is_flushed = false;
        while !is_flushed || received.last() != single.last() {
            receiver.receive(&mut batch, MAX_BATCH).unwrap();
            received.extend(batch.drain(..).filter(is_ours).map(|frame| frame.to_vec()));
            is_flushed = port.flush().unwrap();
        }
        assert!(received.ends_with(single), "frames are sent again");
        for frame in received {
            assert!(seen.insert(frame), "a packet arrives twice");
        }
    }
    let counters = port.counters();
    let lost = counters.tx_frames - seen.len() as u64;
    let counted = lost..lost + OF_THE_KERNEL;
    assert!(
        lost > 0 && counted.contains(&counters.tx_lost),
        "{lost} are lost: {counters:?}"
    );
    assert_eq!(counters.tx_refused, 0);
    drop((port, interface, tap));
}

#[test]
fn a_device_that_drops_without_a_queue_gets_frames_from_then_on() {
    let (tap, mut receiver) = tap_without_queue(8);
    let bytes: Arc<[u8]> = vec![7; 61_000].into();
    for (device, stays) in [("xdp:tap9,offload=on", true), ("xdp:tap9", false)] {
        let (interface, mut port) = open(device, &["10.9.0.9/24"]);
        assert_eq!(port.capabilities().segmentation, ORDINARY, "{device}");
        let mut batch = Batch::new();
        let mut received = 0;
        // The port looks at the dropped packets before the last of these system calls, which drops none.
        for rest in (0..1_024).rev() {
            if port.capabilities().segmentation > 0 {
                let len = if rest > 0 { 60_000 } else { 5_000 };
                let packet = run(&path(false), &bytes, len, Some(ACK));
                port.send_super(packet).unwrap();
            }
            assert!(port.flush().unwrap());
            receiver.receive(&mut batch, MAX_BATCH).unwrap();
            received += batch.drain(..).filter(is_ours).count() as u64;
        }
        let counters = port.counters();
        let lost = counters.tx_frames - received;
        let counted = lost..lost + OF_THE_KERNEL;
        assert!(
            lost > 0 && counted.contains(&counters.tx_lost),
            "{device}: {counters:?}"
        );
        assert_eq!(counters.tx_refused, 0, "{device}");
        assert_eq!(port.capabilities().segmentation > 0, stays, "{device}");
        let summary = port.summary();
        let segmentation = line(&summary, "segmentation");
        assert_eq!(segmentation.contains("as a frame"), !stays, "{summary:?}");
        drop((port, interface));
        crate::rig::settle();
    }
    drop(tap);
}
