//! Tests of VLAN tags, Ethernet addresses, and checksums that the peer leaves to its network
//! device.

use ip::Host;
use testkit::TCP;

use crate::Config;
use crate::stack::testing::{Habit, Rig};

#[test]
fn replies_keep_the_vlan_tag() {
    let mut rig = Rig::new(&Config::default());
    rig.route.vlan = Some(0x2005);
    rig.app().habit = Habit::Echo;
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
}

#[test]
fn replies_go_to_the_peers_latest_mac_address() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.route.src.mac = [2, 0, 0, 0, 0, 0x77];
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
}

/// Builds a SYN whose checksum covers only the pseudo-header.
fn partial_checksum_syn(rig: &Rig) -> Vec<u8> {
    let mut packet = rig.packet(rig.irs, 0, "S", b"", None);
    let at = rig.route.header_len();
    let partial = rig.route.partial_checksum(TCP, packet.len() - at);
    packet[at + 16..at + 18].copy_from_slice(&partial);
    packet
}

#[test]
fn a_checksum_left_to_a_device_is_accepted_if_the_host_accepts_it() {
    let mut rig = Rig::new(&Config::default());
    rig.host = Host::own(rig.host.station().clone(), [0; 4]).with_partial_checksums(true);
    rig.input(&partial_checksum_syn(&rig));
    rig.sent(0, 1, "SA", b"");
}

#[test]
fn a_checksum_left_to_a_device_has_its_own_counter() {
    let mut rig = Rig::new(&Config::default());
    rig.input(&partial_checksum_syn(&rig));
    rig.sent_nothing();
    let counters = rig.stack.counters();
    assert_eq!((counters.partial_checksum, counters.bad_checksum), (1, 0));
}
