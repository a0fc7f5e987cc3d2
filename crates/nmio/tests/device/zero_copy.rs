//! Tests of `zerocopy=` on a device without zero-copy.

use nmio::device::{DeviceError, Interface, MemoryPlan};

use crate::rig::{Rig, Server, config, exchange, run};
use crate::{has_xdp, line};

#[test]
fn required_zero_copy_is_refused_if_the_driver_has_none() {
    let rig = Rig::new(1);
    let interface = Interface::open(&config("xdp:srv,zerocopy=required", &[], 1)).unwrap();
    let error = interface.queue(0).open(MemoryPlan::default()).err();
    let error = error.expect("veth has no zero-copy");
    assert!(
        matches!(&error, DeviceError::NoZeroCopy { interface, .. } if interface == "srv"),
        "{error}"
    );
    let text = error.to_string();
    for part in ["srv", "os error 95", "zerocopy=auto"] {
        assert!(text.contains(part), "{text}");
    }
    drop(interface);
    assert!(!has_xdp(), "the program is detached");

    // The refusal leaves nothing behind that disturbs the next server.
    let server = Server::start(&config("xdp:srv", &[], 1));
    let client = rig.client_socket("10.9.0.2:0");
    assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
    assert!(line(&server.port_summary, "data path").contains("refuses zero-copy"));
    server.stop();
}

#[test]
fn a_refusal_of_zero_copy_names_an_mtu_that_needs_several_buffers() {
    let rig = Rig::new(1);
    let set_mtu = |end| run(&format!("ip link set {end} mtu 9000"));
    set_mtu("srv");
    rig.client.run(|| set_mtu("cli"));
    let interface = Interface::open(&config("xdp:srv,zerocopy=required", &[], 1)).unwrap();
    let error = interface.queue(0).open(MemoryPlan::default()).err();
    let text = error.expect("veth has no zero-copy").to_string();
    for part in ["srv", "an MTU of 9000", "above 3814 bytes", "zerocopy=auto"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn zero_copy_can_be_turned_off() {
    let rig = Rig::new(1);
    let server = Server::start(&config("xdp:srv,zerocopy=off", &[], 1));
    assert_eq!(
        line(&server.port_summary, "data path"),
        "AF_XDP, copy (zerocopy=off)"
    );
    let client = rig.client_socket("10.9.0.2:0");
    assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
    server.stop();
}
