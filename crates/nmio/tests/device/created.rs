//! Tests of device `auto`, and of tap devices that the server creates or finds.

use nmio::Port;
use nmio::device::{AnyPort, DeviceError, Interface, MemoryPlan};

use crate::rig::{Namespace, Server, config, exchange, run, socket};
use crate::{eventually, line};

#[test]
fn device_auto_is_a_link_to_this_host() {
    Namespace::unshare();
    for queues in [1, 2] {
        let server = Server::start(&config("auto", &[], queues));
        let summary = server.interface.summary();
        assert!(line(summary, "device").contains("veth"), "{summary:?}");
        assert_eq!(
            server.interface.addresses()[0].address.to_string(),
            "198.18.0.2"
        );
        assert!(summary.iter().all(|(name, _)| *name != "VLANs"));
        let client = socket("0.0.0.0:0");
        assert_eq!(exchange(&client, "198.18.0.2:7", "hello"), "hello");
        // The summary shows the maximum length of super-segments. Newer kernels allow longer ones.
        let segmentation = line(&server.port_summary, "segmentation");
        assert!(
            segmentation.contains("of up to 256 KB") || segmentation.contains("of up to 64 KB")
        );
        // A second server must choose another interface name and other networks.
        let second = Server::start(&config("auto", &[], 1));
        assert_eq!(
            second.interface.addresses()[0].address.to_string(),
            "198.18.0.6"
        );
        assert_eq!(exchange(&client, "198.18.0.6:7", "hello"), "hello");
        assert!(run("ip -br link").contains("nmiotest1"));
        let end = run("ip link show nmiotest0");
        assert!(
            end.contains("qdisc pfifo"),
            "without a queue, a full ring drops packets: {end}"
        );
        second.stop();
        server.stop();
        assert!(!run("ip -br link").contains("nmiotest"), "the pair is gone");
    }
}

#[test]
fn device_auto_removes_only_its_own_interface() {
    Namespace::unshare();
    let interface = Interface::open(&config("auto", &[], 1)).unwrap_or_else(|e| panic!("{e}"));
    run("ip link set nmiotest0 down");
    run("ip link set nmiotest0 name renamed");
    run("ip link add nmiotest0 type bridge");
    drop(interface);
    let links = run("ip -br link");
    assert!(links.contains("nmiotest0"), "another one: {links}");
    assert!(!links.contains("renamed"), "{links}");
}

#[test]
fn device_auto_works_if_ipv6_is_disabled() {
    Namespace::unshare();
    // New interfaces in the namespace inherit this setting, so IPv6 is off on the new pair.
    let switch = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    std::fs::write(switch, "1").unwrap();
    let server = Server::start(&config("auto", &[], 1));
    assert_eq!(server.interface.addresses().len(), 1);
    assert!(line(server.interface.summary(), "warning").contains("IPv6 is off"));
    assert_eq!(
        exchange(&socket("0.0.0.0:0"), "198.18.0.2:7", "hello"),
        "hello"
    );
    server.stop();
}

#[test]
fn device_auto_uses_the_given_address() {
    Namespace::unshare();
    let server = Server::start(&config("auto", &["10.8.0.1/29"], 1));
    assert!(run("ip -br address show nmiotest0").contains("10.8.0.2/29"));
    assert_eq!(
        exchange(&socket("0.0.0.0:0"), "10.8.0.1:7", "hello"),
        "hello"
    );
    server.stop();
    let error = Interface::open(&config("auto", &["10.8.0.1/32"], 1))
        .err()
        .unwrap();
    assert!(
        matches!(error, DeviceError::NoRoomForClient { .. }),
        "{error}"
    );
}

#[test]
fn a_tap_device_answers_and_is_removed_at_the_end() {
    Namespace::unshare();
    for queues in [1, 2] {
        let server = Server::start(&config("tap:nmiotap", &["10.7.0.2/24"], queues));
        assert!(server.interface.is_own());
        assert_eq!(server.interface.queues(), queues);
        let client = socket("0.0.0.0:0");
        assert_eq!(exchange(&client, "10.7.0.2:7", "hello"), "hello");
        assert_eq!(exchange(&client, "10.7.0.2:7", "resident"), "resident");
        client
            .recv_from(&mut [0; 64])
            .expect("the second copy arrives");
        client.send_to(b"burst 200", "10.7.0.2:7").unwrap();
        for _ in 0..200 {
            client
                .recv_from(&mut [0; 64])
                .expect("the whole burst arrives");
        }
        server.stop();
        eventually("the device is gone", || {
            !run("ip -br link").contains("nmiotap")
        });
    }
}

#[test]
fn interfaces_of_other_kinds_are_refused_as_tap_devices() {
    Namespace::unshare();
    run("ip link add v0 type veth peer name v1");
    run("ip tuntap add dev t0 mode tun");
    for (device, addresses) in [
        ("tap:v0", &[][..]),
        ("tap:v0", &["10.7.0.2/24"]),
        ("tap:t0", &[]),
    ] {
        let error = Interface::open(&config(device, addresses, 1))
            .err()
            .unwrap();
        assert!(matches!(error, DeviceError::NotTap { .. }), "{error}");
    }
}

#[test]
fn an_existing_tap_device_is_used_and_kept() {
    Namespace::unshare();
    run("ip tuntap add dev nmiotap mode tap");
    let error = Interface::open(&config("tap:nmiotap", &[], 1))
        .err()
        .unwrap();
    assert!(
        matches!(error, DeviceError::TapNeedsAddress { .. }),
        "{error}"
    );
    run("ip address add 10.7.0.1/24 dev nmiotap");
    let error = Interface::open(&config("tap:nmiotap", &["10.7.0.1/24"], 1))
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::AddressTaken { .. }), "{error}");
    let server = Server::start(&config("tap:nmiotap", &["10.7.0.2/24"], 1));
    assert_eq!(
        exchange(&socket("0.0.0.0:0"), "10.7.0.2:7", "hello"),
        "hello"
    );
    server.stop();
    assert!(
        run("ip -br link").contains("nmiotap"),
        "an existing device is not removed"
    );
}

#[test]
fn a_tap_device_that_is_down_loses_frames_and_counts_them() {
    Namespace::unshare();
    let interface = Interface::open(&config("tap:tap8", &["10.9.0.9/24"], 1)).unwrap();
    let AnyPort::Tap(mut port) = interface.queue(0).open(MemoryPlan::default()).unwrap() else {
        panic!("tap:tap8 must open a tap port");
    };
    run("ip link set tap8 down");
    let mut frame = port.pool().take().unwrap();
    frame.set_len(60);
    frame.fill(0);
    port.send(frame).unwrap();
    assert!(port.flush().unwrap());
    let counters = port.counters();
    assert_eq!((counters.tx_lost, counters.tx_ring_full), (1, 0));
}
