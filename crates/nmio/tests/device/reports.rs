//! Tests of the summary lines, warnings and errors about an interface, and of the changes that its
//! monitor reports.

use std::net::{IpAddr, UdpSocket};

use nmio::device::{Change, DeviceError, Interface, Monitor};

use crate::rig::{Namespace, PORT, Rig, config, run, settle};
use crate::{eventually, has_xdp, line, refusal};

/// Returns the values of all summary lines named `name`.
fn summary_values(interface: &Interface, name: &str) -> Vec<String> {
    let lines = interface.summary().iter();
    let lines = lines.filter(|(n, _)| n == name);
    lines.map(|(_, value)| value.clone()).collect()
}

fn open(own: &[&str]) -> Interface {
    // A test may have opened the interface before.
    settle();
    Interface::open(&config("xdp:srv", own, 1)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn in_shared_mode_the_summary_advises_local_clients() {
    let _rig = Rig::new(1);
    let interface = open(&[]);
    let hint = line(interface.summary(), "this host");
    assert!(hint.contains("--device auto"), "{hint}");
    assert!(hint.contains("UDP: no answer"), "{hint}");
    assert!(summary_values(&interface, "warning").is_empty());
    drop(interface);
    assert!(summary_values(&open(&["10.9.0.9/24"]), "this host").is_empty());
}

#[test]
fn a_missing_ipv4_address_causes_a_warning() {
    let _rig = Rig::new(1);
    run("ip -4 address flush dev srv");
    let [warning] = &summary_values(&open(&[]), "warning")[..] else {
        panic!("expected exactly one warning");
    };
    assert!(warning.contains("no IPv4 address"), "{warning}");
    assert!(warning.contains("ip address add"), "{warning}");
    run("ip address del fd09::1/64 dev srv");
    let warning = summary_values(&open(&[]), "warning").concat();
    assert!(warning.contains("only link-local addresses"), "{warning}");
    // In own mode the user chooses the addresses, so there is no warning.
    assert!(summary_values(&open(&["fd09::9/64"]), "warning").is_empty());
}

#[test]
fn a_bridge_port_causes_a_warning() {
    let _rig = Rig::new(1);
    run("ip link add br7 type bridge");
    run("ip link set srv master br7");
    for own in [&[][..], &["10.9.0.9/24"]] {
        let warning = summary_values(&open(own), "warning").concat();
        assert!(warning.contains("a port of the bridge br7"), "{warning}");
        assert!(warning.contains("xdp:br7,generic"), "{warning}");
        assert!(warning.contains("ip link set srv nomaster"), "{warning}");
    }
    run("ip address flush dev srv");
    let error = refusal(&config("xdp:srv", &[], 1));
    let is_expected = matches!(error, DeviceError::PortWithoutAddress { .. });
    assert!(
        is_expected && error.to_string().contains("xdp:br7"),
        "{error}"
    );
    // Check that the remedy in the error message works.
    run("ip address add 10.9.0.1/24 dev br7");
    run("ip link set br7 up");
    let bridge = Interface::open(&config("xdp:br7,generic", &[], 1));
    assert!(bridge.is_ok(), "{:?}", bridge.err());
}

/// The ports are reserved once for each address. When the address is removed with all its prefixes, it
/// leaves the steering program.
#[test]
fn an_address_with_two_prefixes_is_served() {
    let _rig = Rig::new(1);
    run("ip address add 10.9.0.1/16 dev srv");
    let mut interface = open(&[]);
    assert!(UdpSocket::bind(("10.9.0.1", PORT)).is_err(), "reserved");
    run("ip -4 address flush dev srv");
    run("ip address add 10.9.0.3/24 dev srv");
    let current = interface.follow_addresses().unwrap().unwrap();
    let expected: IpAddr = "10.9.0.3".parse().unwrap();
    assert!(current.distinct().contains(&expected), "{current:?}");
    assert!(UdpSocket::bind(("10.9.0.3", PORT)).is_err(), "reserved");
}

/// Waits until the monitor reports `change`.
fn wait_for_change(monitor: &mut Monitor, change: Change) {
    let mut changes = Vec::new();
    eventually(&format!("{change:?}"), || {
        while let Some(one) = monitor.next_change().unwrap() {
            changes.push(one);
        }
        changes.contains(&change)
    });
}

#[test]
fn the_monitor_reports_changes() {
    let rig = Rig::new(1);
    let interface = open(&[]);
    let mut monitor = interface.monitor().unwrap().unwrap();
    assert_eq!(monitor.next_change().unwrap(), None);
    let address: IpAddr = "10.9.0.77".parse().unwrap();
    run("ip address add 10.9.0.77/24 dev srv");
    wait_for_change(&mut monitor, Change::AddressAdded(address));
    run("ip address del 10.9.0.77/24 dev srv");
    wait_for_change(&mut monitor, Change::AddressRemoved(address));
    rig.client.run(|| run("ip link set cli down"));
    wait_for_change(&mut monitor, Change::NoCarrier);
    rig.client.run(|| run("ip link set cli up"));
    wait_for_change(&mut monitor, Change::Carrier);
    run("ip link set srv down");
    wait_for_change(&mut monitor, Change::Down);
    run("ip link set srv up");
    wait_for_change(&mut monitor, Change::Up);
    run("ip link set srv address 02:00:00:00:00:77");
    wait_for_change(&mut monitor, Change::Mac([2, 0, 0, 0, 0, 0x77]));
}

/// The kernel drops the messages about the removal and the return, because the monitor does not read.
#[test]
fn the_monitor_notices_a_removal_after_the_kernel_has_dropped_messages() {
    let rig = Rig::new(1);
    let interface = open(&[]);
    let mut monitor = interface.monitor().unwrap().unwrap();
    for _ in 0..100 {
        run("ip link add other type bridge");
        run("ip link delete other");
    }
    run("ip link delete srv");
    rig.connect(1);
    let mut changes = Vec::new();
    changes.extend(std::iter::from_fn(|| monitor.next_change().unwrap()));
    let expected = [Change::Removed, Change::Returned, Change::Missed];
    assert!(changes.starts_with(&expected), "{changes:?}");
    assert!(monitor.is_usable(true), "it has an address again");
    run("ip link set srv address 02:00:00:00:00:77");
    wait_for_change(&mut monitor, Change::Mac([2, 0, 0, 0, 0, 0x77]));
}

#[test]
fn the_monitor_works_in_a_private_namespace() {
    Namespace::unshare();
    let interface = Interface::open(&config("auto", &[], 1)).unwrap_or_else(|e| panic!("{e}"));
    let mut monitor = interface.monitor().unwrap().unwrap();
    run("ip link set nmiotest0 down");
    wait_for_change(&mut monitor, Change::NoCarrier);
    run("ip link set nmiotest0 up");
    wait_for_change(&mut monitor, Change::Carrier);
}

#[test]
fn errors_about_interfaces_name_the_remedy() {
    let _rig = Rig::new(1);
    let error = |device: &str, own: &[&str]| {
        Interface::open(&config(device, own, 1))
            .err()
            .unwrap()
            .to_string()
    };
    let text = error("xdp:nosuch", &[]);
    assert!(
        text.contains("\"nosuch\"") && text.contains("srv"),
        "{text}"
    );
    let text = error("xdp:srv", &["10.9.0.1/24"]);
    assert!(text.contains("srv already has address 10.9.0.1"), "{text}");
    let text = error("xdp:lo,generic", &[]);
    assert!(text.contains("--device auto"), "{text}");
    run("ip link add br0 type bridge");
    run("ip link set br0 up");
    let text = error("xdp:br0", &["10.9.0.9/24"]);
    assert!(text.contains("xdp:br0,generic"), "{text}");
    run("ip address flush dev srv");
    let text = error("xdp:srv", &[]);
    assert!(text.contains("ip address add"), "{text}");
    run("ip link set srv mtu 12007");
    let text = error("xdp:srv,generic", &["10.9.0.9/24"]);
    assert!(
        text.contains("12007") && text.contains("ip link set srv mtu 12006"),
        "{text}"
    );
    run("ip link set srv mtu 1500");
    run("ip link set srv down");
    let text = error("xdp:srv", &[]);
    assert!(text.contains("ip link set srv up"), "{text}");
    eventually("nothing is left attached", || !has_xdp());
}
