//! Real packets over real devices, in network namespaces made here. Needs
//! root, and the commands `ip` and `ethtool`.

#[path = "device/rig.rs"]
mod rig;

use rig::{Rig, Server, ask, config, run};

fn answers(device: &str, queues: u32) {
    let rig = Rig::new(queues);
    let server = Server::start(&config(device, &[], queues));
    let v4 = rig.client_socket("10.9.0.2:0");
    assert_eq!(ask(&v4, "10.9.0.1:7", "hello"), "hello");
    let v6 = rig.client_socket("[fd09::2]:0");
    assert_eq!(
        ask(&v6, "[fd09::1]:7", "hello over IPv6"),
        "hello over IPv6"
    );
    eprintln!("{:?} {:?}", server.interface.summary(), server.port_summary);
    assert!(run("ip link show srv").contains("xdp"));
    server.stop();
    assert!(
        !run("ip link show srv").contains("xdp"),
        "the program is gone"
    );
}

#[test]
fn native_mode_answers_on_one_queue() {
    answers("xdp:srv", 1);
}

#[test]
fn generic_mode_answers_on_one_queue() {
    answers("xdp:srv,generic", 1);
}
