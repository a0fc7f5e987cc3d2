//! Tests that a port on an interface leaves the kernel its packets: all of them, in order, and in both
//! directions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nmio::device::AnyPort;
use nmio::{Batch, Port};

use crate::contract::{MAX_DELIVERED, PEER, SOURCE, has_netmap, named_interfaces, opened, packet};
use crate::rig::{RawSocket, Rig};

/// Ethernet type of packets for the kernel: the first local experimental one (IEEE 802).
const EXPERIMENTAL: u16 = 0x88b5;
/// Number of packets that the kernel and the network exchange.
const KERNEL_PACKETS: u32 = 3_000;

/// Exchanges packets between the kernel and the network while a port has the interface between them.
fn leaves_the_kernel_its_packets(device: &str, own: &[&str], kernel: &RawSocket, net: &RawSocket) {
    let (_interface, port) = opened(device, own);
    match port {
        AnyPort::Xdp(port) => passes_packets(port, kernel, net),
        AnyPort::Tap(_) => panic!("a tap device shares no interface with the kernel"),
        AnyPort::Netmap(port) => passes_packets(port, kernel, net),
    }
}

fn passes_packets(mut port: impl Port, kernel: &RawSocket, net: &RawSocket) {
    let longest = port.capabilities().mtu + 14;
    let mut ways = [(kernel, net, SOURCE), (net, kernel, PEER)]
        .map(|(from, to, source)| (from, to, source, VecDeque::<Vec<u8>>::new()));
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut number, mut end) = (0, Instant::now() + Duration::from_mins(1));
    while number < KERNEL_PACKETS || ways.iter().any(|(.., missing)| !missing.is_empty()) {
        assert!(
            Instant::now() < end,
            "packets are missing after number {number}"
        );
        for (from, to, source, missing) in &mut ways {
            if missing.len() < MAX_DELIVERED && number < KERNEL_PACKETS && rng.bool() {
                number += 1;
                let mut frame = packet(*source, number, rng.usize(60..=longest));
                frame[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
                from.send(&frame);
                missing.push_back(frame);
            }
            while let Some(frame) = to.receive() {
                if frame[6..12] == *source && frame[12..14] == EXPERIMENTAL.to_be_bytes() {
                    assert!(
                        Some(frame) == missing.pop_front(),
                        "the packets arrive in order"
                    );
                    end = Instant::now() + Duration::from_secs(10);
                }
            }
        }
        let mut batch = Batch::new();
        port.receive(&mut batch, 64).unwrap();
        let none = batch
            .into_iter()
            .all(|frame| frame[12..14] != EXPERIMENTAL.to_be_bytes());
        assert!(none, "the server gets only its own packets");
        port.flush().unwrap();
    }
    let counters = port.counters();
    assert_eq!((counters.rx_lost, counters.bad_descriptors), (0, 0));
}

#[test]
fn an_interface_of_this_host_leaves_the_kernel_its_packets() {
    if let Some((device, peer)) = named_interfaces() {
        let name = device.split([':', ',']).nth(1).unwrap();
        let kernel = RawSocket::open_for(name, EXPERIMENTAL);
        let net = RawSocket::open(&peer);
        leaves_the_kernel_its_packets(&device, &["10.9.0.9/24"], &kernel, &net);
    }
}

#[test]
fn a_port_on_veth_leaves_the_kernel_its_packets() {
    let netmap = Some("netmap:srv").filter(|_| has_netmap());
    for device in ["xdp:srv", "xdp:srv,generic"].into_iter().chain(netmap) {
        let rig = Rig::new(1);
        let net = rig.client.run(|| RawSocket::open("cli"));
        let kernel = RawSocket::open_for("srv", EXPERIMENTAL);
        leaves_the_kernel_its_packets(device, &["10.9.0.9/24"], &kernel, &net);
    }
}
