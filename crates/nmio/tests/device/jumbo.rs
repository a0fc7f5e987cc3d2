//! Tests of packets that do not fit in one chunk of the packet memory.

use crate::line;
use crate::rig::{Rig, Server, config, exchange, run};

/// Lengths of UDP payloads. Their packets have one, two and three pieces. Some fill their last piece
/// exactly, or exceed it by one byte.
const PAYLOADS: [usize; 9] = [1, 1400, 3797, 3798, 3799, 7893, 7894, 7895, 8972];

fn rig(mtu: u32) -> Rig {
    let rig = Rig::new(1);
    let set = |end: &str| run(&format!("ip link set {end} mtu {mtu}"));
    set("srv");
    rig.client.run(|| set("cli"));
    rig
}

#[test]
fn packets_of_several_pieces_are_received_and_sent() {
    for device in ["xdp:srv", "xdp:srv,generic", "xdp:srv,zerocopy=off"] {
        let rig = rig(9000);
        let server = Server::start(&config(device, &[], 1));
        assert_eq!(server.interface.mtu(), 9000);
        let client = rig.client_socket("10.9.0.2:0");
        let v6 = rig.client_socket("[fd09::2]:0");
        let mut packets = 0;
        for len in PAYLOADS {
            let text: String = (0..len)
                .map(|n| char::from(b'a' + (n % 23) as u8))
                .collect();
            assert_eq!(exchange(&client, "10.9.0.1:7", &text), text);
            packets += 1;
            if len <= 8952 {
                assert_eq!(exchange(&v6, "[fd09::1]:7", &text), text);
                packets += 1;
            }
        }
        let counters = server.stop()[0];
        assert_eq!((counters.rx_frames, counters.tx_frames), (packets, packets));
        let lost = (counters.rx_lost, counters.tx_lost, counters.bad_descriptors);
        assert_eq!(lost, (0, 0, 0));
    }
}

#[test]
fn an_mtu_between_one_buffer_and_one_chunk_works() {
    // A program for packets in one buffer can be attached to veth up to 3,506 bytes. A chunk holds
    // packets of up to 3,814 bytes.
    for mtu in [3507, 3814, 3815] {
        let rig = rig(mtu);
        let server = Server::start(&config("xdp:srv", &[], 1));
        let client = rig.client_socket("10.9.0.2:0");
        let text = "x".repeat(mtu as usize - 28);
        assert_eq!(exchange(&client, "10.9.0.1:7", &text), text);
        assert!(line(server.interface.summary(), "interface").contains(&mtu.to_string()));
        let advises_a_smaller_mtu = line(&server.port_summary, "data path").contains("3814");
        assert_eq!(advises_a_smaller_mtu, mtu > 3814);
        server.stop();
    }
}
