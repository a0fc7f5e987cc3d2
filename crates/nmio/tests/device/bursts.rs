//! Tests of bursts that arrive while the worker is not running, and of sent frames that the driver
//! drops. One test counts the system calls for a pass of answers.

use std::net::UdpSocket;
use std::time::Duration;

use nmio::device::{AnyPort, Interface, MemoryPlan};
use nmio::tap::TapPort;
use nmio::xdp::XdpPort;
use nmio::{Batch, Frame, MAX_BATCH, Pcap, Port};

use crate::rig::{Namespace, Rig, config, run, settle};
use crate::supers::{open, take};
use crate::{MODES, line};

/// Payload of the datagrams in a burst.
const PAYLOAD: &[u8] = b"burst";
/// Number of frames in the fill ring before the first burst.
const FEW: usize = 4_096;
/// Number of frames in a burst: more than [`FEW`], but fewer than the fill ring has slots.
const BURST: usize = 6_000;
/// Number of slots in the RX ring.
const RX_RING: usize = 8_192;

/// Returns a socket of the client, which needs no ARP to send to the server.
pub(crate) fn client_that_knows_the_server(rig: &Rig) -> UdpSocket {
    let known = "ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev cli";
    rig.client.run(|| run(known));
    rig.client_socket("10.9.0.2:0")
}

fn send_burst(client: &UdpSocket, frames: usize) {
    for _ in 0..frames {
        client.send_to(PAYLOAD, "10.9.0.9:7").unwrap();
    }
}

#[test]
fn a_burst_raises_the_fill_level_for_the_next_burst() {
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        let client = client_that_knows_the_server(&rig);

        send_burst(&client, BURST);
        assert_eq!(take(&mut server, FEW).len(), FEW, "{mode}");
        let mut more = Batch::new();
        server.receive(&mut more, MAX_BATCH).unwrap();
        assert!(more.is_empty(), "{mode}: the other frames are lost");

        send_burst(&client, BURST);
        assert_eq!(take(&mut server, BURST).len(), BURST, "{mode}");
    }
}

#[test]
fn a_worker_that_has_no_room_for_replies_offers_more_frames() {
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        let client = client_that_knows_the_server(&rig);

        let first = FEW - 100;
        send_burst(&client, first);
        server.receive(&mut Batch::new(), 0).unwrap();
        send_burst(&client, RX_RING - first);
        assert_eq!(take(&mut server, RX_RING).len(), RX_RING, "{mode}");
    }
}

#[test]
fn the_answers_of_a_pass_cost_one_wakeup() {
    /// Number of answers: as many as one wakeup sends on kernels that refuse a larger budget.
    const ANSWERS: usize = 32;
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        let client = client_that_knows_the_server(&rig);
        for pass in 1..=3 {
            send_burst(&client, ANSWERS);
            let (mut batch, mut answers) = (Batch::new(), 0);
            while answers < ANSWERS {
                server.receive(&mut batch, MAX_BATCH).unwrap();
                // The kernel may send packets of its own.
                for frame in batch.drain(..).filter(|frame| frame.ends_with(PAYLOAD)) {
                    server.send(frame).unwrap();
                    answers += 1;
                }
            }
            assert!(server.flush().unwrap(), "{mode}");
            assert_eq!(server.counters().tx_wakeups, pass, "{mode}");
            assert!(server.flush().unwrap(), "{mode}");
            assert_eq!(
                server.counters().tx_wakeups,
                pass,
                "{mode}: nothing to send"
            );
        }
    }
}

#[test]
fn frames_that_the_driver_always_drops_are_counted() {
    const FRAMES: u64 = 10;
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        // Bring the peer down. Without a carrier, the driver drops each frame.
        rig.client.run(|| run("ip link set cli down"));
        for _ in 0..FRAMES {
            let mut frame = server.pool().take().unwrap();
            frame.set_len(60);
            server.send(frame).unwrap();
        }
        let levels = server.levels();
        assert_eq!(u64::from(levels.sending), FRAMES, "{mode}");
        // All frames are free, or with the kernel.
        let busy = levels.sending + levels.receiving;
        assert_eq!(levels.free + busy, levels.frames, "{mode}");
        flush(&mut server);
        let counters = server.counters();
        assert_eq!(counters.tx_lost, FRAMES, "{mode}");
        assert!(counters.tx_retries > 0, "{mode}");
        assert_eq!(counters.bad_descriptors, 0, "{mode}");
    }
}

/// Flushes until no packet is left to be sent.
fn flush(port: &mut impl Port) {
    let mut batch = Batch::new();
    while !port.flush().unwrap() {
        port.wait(Duration::from_micros(50), None).unwrap();
        port.receive(&mut batch, MAX_BATCH).unwrap();
        batch.clear();
    }
}

/// Returns a numbered frame.
fn numbered(port: &XdpPort, number: u32) -> Frame {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(60);
    frame.fill(0);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Receives up to [`MAX_BATCH`] frames from the tap device's queue, and returns the numbers of
/// those that [`numbered`] made. The kernel sends frames of its own, for example to find routers.
fn numbers(tap: &mut TapPort) -> Vec<u32> {
    let mut batch = Batch::new();
    tap.receive(&mut batch, MAX_BATCH).unwrap();
    let number = |frame: Frame| u32::from_be_bytes(frame[14..18].try_into().unwrap());
    let is_ours = |frame: &Frame| frame[..14] == [0; 14];
    batch.drain(..).filter(is_ours).map(number).collect()
}

#[test]
fn frames_for_a_full_device_are_neither_lost_nor_reordered() {
    const QUEUE: usize = 8;
    for mode in ["xdp:tap9", "xdp:tap9,generic"] {
        Namespace::unshare();
        // A tap device drops frames while its queue is full.
        let interface = Interface::open(&config("tap:tap9", &["10.9.0.1/24"], 1)).unwrap();
        let AnyPort::Tap(mut tap) = interface.queue(0).open(MemoryPlan::default()).unwrap() else {
            panic!("tap:tap9 must open a tap port");
        };
        run(&format!("ip link set tap9 txqueuelen {QUEUE}"));
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        numbers(&mut tap);

        // The full device fills the ring, which then refuses a frame.
        let mut frames = 0;
        while server.send(numbered(&server, frames)).is_ok() {
            frames += 1;
        }
        assert_eq!(server.room(), 0, "{mode}");
        let mut received = Vec::new();
        while received.len() < frames as usize {
            // The tap device's queue takes up to `QUEUE` frames. The device drops the next frame.
            server.flush().unwrap();
            let some = numbers(&mut tap);
            assert!(some.len() <= QUEUE, "{mode}");
            received.extend(some);
            server.receive(&mut Batch::new(), MAX_BATCH).unwrap();
        }
        assert!(received.into_iter().eq(0..frames), "{mode}");
        assert!(server.flush().unwrap(), "{mode}");
        let counters = server.counters();
        assert!(counters.tx_retries > 0, "{mode}");
        assert_eq!(
            (counters.tx_lost, counters.bad_descriptors),
            (0, 0),
            "{mode}"
        );
    }
}

#[test]
fn a_capture_has_the_frames_that_a_full_ring_makes_room_for() {
    const FRAMES: u32 = 3_000;
    let _rig = Rig::new(1);
    let (_interface, server) = open("xdp:srv", &["10.9.0.9/24"]);
    let name = format!("nmio-{}-burst.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut server = Pcap::new(server, Some(&path)).unwrap();
    for number in 0..FRAMES {
        let frame = numbered(server.inner(), number);
        server.send(frame).unwrap();
    }
    flush(&mut server);
    let summary = server.finish().unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(summary.packets, u64::from(FRAMES));
}

#[test]
fn the_summary_warns_of_a_veth_without_a_queue() {
    let _rig = Rig::new(1);
    let is_mentioned = || {
        let (interface, _server) = open("xdp:srv", &["10.9.0.9/24"]);
        let mut lines = interface.summary().iter();
        lines.any(|(_, value)| value.contains("tc qdisc add dev srv root pfifo"))
    };
    assert!(is_mentioned());
    run("tc qdisc add dev srv root pfifo limit 1000");
    assert!(!is_mentioned());
}

#[test]
fn a_pfifo_queue_lasts_as_long_as_the_server() {
    let _rig = Rig::new(1);
    let queue = || run("tc qdisc show dev srv");
    assert!(queue().contains("noqueue"), "{}", queue());
    let (interface, port) = open("xdp:srv,qdisc=pfifo", &["10.9.0.9/24"]);
    assert!(queue().contains("pfifo"), "{}", queue());
    assert!(interface.needs_removal());
    assert!(line(interface.summary(), "TX queue").contains("a pfifo queue of 1000 packets"));
    drop((port, interface));
    settle();
    assert!(queue().contains("noqueue"), "{}", queue());

    let (interface, port) = open("xdp:srv,qdisc=pfifo", &["10.9.0.9/24"]);
    run("tc qdisc replace dev srv root bfifo limit 77777");
    drop((port, interface));
    settle();
    assert!(
        queue().contains("bfifo"),
        "the administrator's: {}",
        queue()
    );
    run("tc qdisc del dev srv root");

    run("tc qdisc add dev srv root pfifo limit 77");
    let (interface, port) = open("xdp:srv,qdisc=pfifo", &["10.9.0.9/24"]);
    assert!(line(interface.summary(), "TX queue").contains("stays as it is"));
    drop((port, interface));
    assert!(queue().contains("limit 77p"), "{}", queue());
}
