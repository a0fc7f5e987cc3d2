//! Tests of 802.1Q tags over a real device: which frames reach the ring, and whether tags stay
//! unchanged in both directions.

use std::thread;

use eth::{ETHERTYPE_IPV4, Link, Mac};
use nmio::Port;
use nmio::device::{DeviceError, Interface};

use crate::rig::{Rig, config, run};
use crate::supers::{open, send_frame, take};
use crate::{MODES, line};

const SERVER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 8]);

/// Length in bytes of the IP packet in a frame from `datagram`.
const DATAGRAM: usize = 29;

/// Builds a frame with a UDP packet from the client to port 7 of the server. The packet's payload
/// is the byte `name`.
fn datagram(vlan: Option<u16>, name: u8) -> Vec<u8> {
    let link = Link {
        peer: SERVER,
        own: CLIENT,
        vlan,
    };
    let mut frame = vec![0; link.header_len()];
    link.write(&mut frame, ETHERTYPE_IPV4);
    frame.extend([0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([10, 9, 0, 8, 10, 9, 0, 9]);
    frame.extend([0x30, 0x39, 0, 7, 0, 9, 0, 0, name]);
    frame
}

/// Returns the reply to a frame. The MAC and IP addresses are swapped, and the VLAN tag is
/// unchanged.
fn turned_round(frame: &[u8]) -> Vec<u8> {
    let (link, packet) = frame.split_at(frame.len() - DATAGRAM);
    let tag = &link[12..];
    let (ip, addresses) = (&packet[..12], [&packet[16..20], &packet[12..16]].concat());
    [&CLIENT.0[..], &SERVER.0, tag, ip, &addresses, &packet[20..]].concat()
}

/// Turns off hardware VLAN tagging, so that tags stay in the frames that arrive at `srv`.
fn keep_tags(rig: &Rig) {
    run("ethtool -K srv rxvlan off");
    rig.client.run(|| run("ethtool -K cli txvlan off"));
}

#[test]
fn only_configured_vlans_reach_the_ring_with_their_tags() {
    for mode in MODES {
        let rig = Rig::new(1);
        keep_tags(&rig);
        let device = format!("{mode},vlan=10,4094");
        let (interface, mut server) = open(&device, &["10.9.0.9/24"]);
        assert_eq!(interface.vlans(), [10, 4094]);
        let summary_line = line(interface.summary(), "VLANs");
        assert_eq!(summary_line, "10, 4094, and untagged frames");
        let served = [
            datagram(None, 0),
            datagram(Some(10), 1),
            datagram(Some(0xe00a), 2),
            datagram(Some(4094), 3),
        ];
        let others = [11, 0, 0xe000].map(|tag| datagram(Some(tag), 9));
        let (received, back) = thread::scope(|scope| {
            let client = scope.spawn(|| {
                rig.client.run(|| {
                    run("ethtool -K cli rxvlan off");
                    let (_client, mut client) = open("xdp:cli,vlan=10,4094", &["10.9.0.8/24"]);
                    for frame in others.iter().chain(&served) {
                        send_frame(&mut client, frame);
                    }
                    client.flush().unwrap();
                    take(&mut client, served.len())
                })
            });
            let received = take(&mut server, served.len());
            for frame in &received {
                send_frame(&mut server, &turned_round(frame));
            }
            server.flush().unwrap();
            (received, client.join().unwrap())
        });
        assert_eq!(received, served, "{device}");
        let expected: Vec<_> = served.iter().map(|frame| turned_round(frame)).collect();
        assert_eq!(back, expected, "{device}");
    }
}

#[test]
fn by_default_tagged_frames_pass_to_the_kernel() {
    let rig = Rig::new(1);
    keep_tags(&rig);
    let (interface, mut server) = open("xdp:srv", &["10.9.0.9/24"]);
    assert!(interface.vlans().is_empty());
    assert!(interface.summary().iter().all(|(name, _)| *name != "VLANs"));
    rig.client.run(|| {
        let (_client, mut client) = open("xdp:cli", &["10.9.0.8/24"]);
        for vlan in [Some(10), Some(0), None] {
            send_frame(&mut client, &datagram(vlan, 5));
        }
        client.flush().unwrap();
    });
    assert_eq!(take(&mut server, 1), [datagram(None, 5)]);
}

#[test]
fn vlan_is_refused_where_tags_are_stripped() {
    let _rig = Rig::new(1);
    let open = |device: &str| Interface::open(&config(device, &[], 1));
    let error = open("xdp:srv,vlan=10").err().unwrap();
    assert!(matches!(error, DeviceError::TagsStripped { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("ethtool -K srv rxvlan off"), "{text}");
    let interface = open("xdp:srv").unwrap_or_else(|error| panic!("{error}"));
    let summary_line = line(interface.summary(), "VLANs");
    assert!(
        summary_line.contains("ethtool -K srv rxvlan off"),
        "{summary_line}"
    );
}
