//! The ways in which workers wait for packets.

use nmio::Wait;

use crate::line;
use crate::rig::{Rig, Server, config, exchange};

#[test]
fn each_way_of_waiting_works_and_is_in_the_summary() {
    let rig = Rig::new(1);
    let client = rig.client_socket("10.9.0.2:0");
    for wait in [Wait::Adaptive, Wait::Block, Wait::Spin, Wait::BusyPoll] {
        let mut config = config("xdp:srv", &[], 1);
        config.wait = wait;
        let server = Server::start(&config);
        assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
        let is_reported = server
            .port_summary
            .iter()
            .any(|(name, _)| *name == "busy polling");
        assert_eq!(is_reported, wait == Wait::BusyPoll);
        let interrupts = line(server.interface.summary(), "interrupts");
        // Before Linux 6.13, only /sys tells the settings. Here it shows another network namespace.
        let says = |text| interrupts.contains(text);
        assert!(
            says("napi_defer_hard_irqs") || says("/sys shows another network namespace"),
            "{interrupts}"
        );
        if is_reported {
            // The driver does not tell the socket its NAPI id, so only io_uring can poll.
            let state = if interrupts.starts_with("deferred") {
                "active, through io_uring"
            } else {
                "inert"
            };
            assert!(line(&server.port_summary, "busy polling").starts_with(state));
        }
        server.stop();
    }
}

#[test]
fn each_worker_polls_its_own_queue() {
    let rig = Rig::new(4);
    let mut config = config("xdp:srv", &[], 4);
    config.wait = Wait::BusyPoll;
    let server = Server::start(&config);
    for _ in 0..32 {
        let client = rig.client_socket("10.9.0.2:0");
        assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
    }
    let used = (0..4).filter(|queue| server.received(*queue) > 0).count();
    assert!(used > 1, "the clients are spread over the queues");
    server.stop();
}
