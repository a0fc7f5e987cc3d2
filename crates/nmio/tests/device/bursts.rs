//! Bursts of packets that arrive while the worker is not running.

use std::net::UdpSocket;

use nmio::{Batch, MAX_BATCH, Port};

use crate::MODES;
use crate::rig::{Rig, run};
use crate::supers::{open, take};

/// Number of frames in the fill ring outside bursts.
const FEW: usize = 2_048;
/// Number of frames in a burst: more than the fill ring holds outside bursts, but fewer than its
/// slots.
const BURST: usize = 4_000;

fn send_burst(client: &UdpSocket) {
    for _ in 0..BURST {
        client.send_to(b"burst", "10.9.0.9:7").unwrap();
    }
}

#[test]
fn a_burst_raises_the_fill_level_for_the_next_burst() {
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        let known = "ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev cli";
        rig.client.run(|| run(known));
        let client = rig.client_socket("10.9.0.2:0");

        send_burst(&client);
        assert_eq!(take(&mut server, FEW).len(), FEW, "{mode}");
        let mut more = Batch::new();
        server.receive(&mut more, MAX_BATCH).unwrap();
        assert!(more.is_empty(), "{mode}: the other frames are lost");

        send_burst(&client);
        assert_eq!(take(&mut server, BURST).len(), BURST, "{mode}");
    }
}

#[test]
fn frames_that_the_driver_drops_are_counted() {
    const FRAMES: u64 = 10;
    for mode in MODES {
        let rig = Rig::new(1);
        let (_interface, mut server) = open(mode, &["10.9.0.9/24"]);
        // Bring the peer down: without a carrier, the kernel drops each frame.
        rig.client.run(|| run("ip link set cli down"));
        for _ in 0..FRAMES {
            let mut frame = server.pool().take().unwrap();
            frame.set_len(60);
            server.send(frame).unwrap();
        }
        server.flush().unwrap();
        assert_eq!(server.counters().tx_lost, FRAMES, "{mode}");
    }
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
