//! Tests with real packets over real devices, in private network namespaces.
//!
//! The tests need root, and the commands `ip`, `tc`, `ss`, `ethtool` and `unshare`.

#[path = "device/bursts.rs"]
mod bursts;
#[path = "device/contract.rs"]
mod contract;
#[path = "device/created.rs"]
mod created;
#[path = "device/full_device.rs"]
mod full_device;
#[path = "device/jumbo.rs"]
mod jumbo;
#[path = "device/kernel_packets.rs"]
mod kernel_packets;
#[path = "device/mailbox.rs"]
mod mailbox;
#[path = "device/netmap_rings.rs"]
mod netmap_rings;
#[path = "device/reports.rs"]
mod reports;
#[path = "device/returns.rs"]
mod returns;
#[path = "device/rig.rs"]
mod rig;
#[path = "device/supers.rs"]
mod supers;
#[path = "device/vlans.rs"]
mod vlans;
#[path = "device/waits.rs"]
mod waits;
#[path = "device/zero_copy.rs"]
mod zero_copy;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nmio::device::{AnyPort, DeviceError, Interface, InterfaceConfig, MemoryPlan, Transport};
use nmio::{Port, Wait};
use rig::{Rig, Server, config, exchange, run, settle, socket, spawn};

/// Device names for native and for generic XDP.
const MODES: [&str; 2] = ["xdp:srv", "xdp:srv,generic"];

fn has_xdp() -> bool {
    run("ip link show srv").contains("xdp")
}

/// Waits until `condition` holds. Panics if it does not hold within 5 s.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(5), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn line<'a>(lines: &'a [(impl AsRef<str>, String)], name: &str) -> &'a str {
    lines
        .iter()
        .find(|(n, _)| n.as_ref() == name)
        .map_or_else(|| panic!("no line {name}"), |l| &l.1)
}

#[test]
fn shared_mode_answers_and_leaves_no_xdp_program() {
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &[], 1));
        assert!(!server.interface.is_own());
        assert_eq!(
            server.interface.addresses()[0].address.to_string(),
            "10.9.0.1"
        );
        let v4 = rig.client_socket("10.9.0.2:0");
        assert_eq!(exchange(&v4, "10.9.0.1:7", "hello"), "hello");
        let v6 = rig.client_socket("[fd09::2]:0");
        assert_eq!(
            exchange(&v6, "[fd09::1]:7", "hello over IPv6"),
            "hello over IPv6"
        );
        let mode = if device.ends_with("generic") {
            "generic"
        } else {
            "native"
        };
        assert!(line(server.interface.summary(), "XDP mode").starts_with(mode));
        assert!(line(&server.port_summary, "data path").starts_with("AF_XDP, copy ("));
        assert!(has_xdp());
        let counters = server.stop();
        assert_eq!(
            (counters[0].rx_frames, counters[0].tx_frames),
            (2, 2),
            "no other packet arrived"
        );
        assert_eq!((counters[0].rx_lost, counters[0].bad_descriptors), (0, 0));
        assert!(!has_xdp(), "the program is detached");
        assert!(UdpSocket::bind("10.9.0.1:7").is_ok(), "the port is free");
    }
}

#[test]
fn unserved_packets_pass_to_the_kernel() {
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &[], 1));
        let kernel = socket("10.9.0.1:8");
        let client = rig.client_socket("10.9.0.2:0");
        client.send_to(b"for the kernel", "10.9.0.1:8").unwrap();
        let mut payload = [0; 64];
        let (len, _) = kernel.recv_from(&mut payload).expect("the kernel's packet");
        assert_eq!(&payload[..len], b"for the kernel");
        let error = rig
            .client
            .run(|| std::net::TcpStream::connect("10.9.0.1:7"))
            .err()
            .unwrap();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionRefused,
            "the kernel's RST"
        );
        assert_eq!(server.stop()[0].rx_frames, 0);
    }
}

#[test]
fn own_mode_takes_all_packets_to_its_address() {
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &["10.9.0.9/24", "fd09::9/64"], 1));
        assert!(server.interface.is_own());
        let v4 = rig.client_socket("10.9.0.2:0");
        // The client's kernel first sends an ARP request, which the reflector answers.
        assert_eq!(exchange(&v4, "10.9.0.9:7", "hello"), "hello");
        assert_eq!(exchange(&v4, "10.9.0.9:9999", "any port"), "any port");
        // Packets to the kernel's address of the interface still go to the kernel.
        let kernel = socket("10.9.0.1:7");
        v4.send_to(b"kernel", "10.9.0.1:7").unwrap();
        kernel.recv_from(&mut [0; 64]).expect("the kernel's packet");
        // A neighbour solicitation for the server's own IPv6 address reaches the ring.
        let before = server.received(0);
        let v6 = rig.client_socket("[fd09::2]:0");
        v6.send_to(b"who has it?", "[fd09::9]:7").unwrap();
        eventually("the solicitation arrives", || server.received(0) > before);
        server.stop();

        let server = Server::start(&config(device, &["fd09::9/64"], 1));
        v6.send_to(b"who has it?", "[fd09::a]:7").unwrap();
        assert!(
            v4.send_to(b"x", "10.9.0.7:7").is_ok(),
            "the client sends an ARP request for an unused address"
        );
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(server.received(0), 0);
        let mac = server
            .interface
            .mac()
            .map(|octet| format!("{octet:02x}"))
            .join(":");
        rig.client
            .run(|| run(&format!("ip neigh replace fd09::9 lladdr {mac} dev cli")));
        let v6 = rig.client_socket("[fd09::2]:0");
        assert_eq!(exchange(&v6, "[fd09::9]:7", "hello"), "hello");
        server.stop();
    }
}

#[test]
fn own_mode_joins_the_solicited_node_multicast_group() {
    let _rig = Rig::new(1);
    // A NIC would filter out frames to this solicited-node multicast group if the server had not
    // joined it.
    let joined = || run("ip maddress show dev srv").contains("33:33:ff:12:34:56");
    let server = Server::start(&config("xdp:srv", &["fd09::12:3456/64"], 1));
    assert!(joined());
    server.stop();
    eventually("the server leaves the group", || !joined());
}

#[test]
fn fragments_go_to_the_kernel_in_shared_mode_and_to_the_server_in_own_mode() {
    let rig = Rig::new(1);
    let long = [0x61; 4000];
    let client = rig.client_socket("10.9.0.2:0");
    // In shared mode the kernel gets all fragments, so none reach the server.
    let server = Server::start(&config("xdp:srv", &[], 1));
    client.send_to(&long, "10.9.0.1:7").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.received(0), 0);
    server.stop();
    // In own mode the server gets fragments.
    let server = Server::start(&config("xdp:srv", &["10.9.0.9/24"], 1));
    assert_eq!(exchange(&client, "10.9.0.9:7", "short"), "short");
    let before = server.received(0);
    client.send_to(&long, "10.9.0.9:7").unwrap();
    eventually("three fragments arrive", || {
        server.received(0) == before + 3
    });
    server.stop();
}

#[test]
fn two_queues_serve_clients_at_the_same_time() {
    for device in MODES {
        let rig = Rig::new(2);
        let server = Server::start(&config(device, &[], 2));
        assert_eq!(line(server.interface.summary(), "queues"), "2 of 2");
        for _ in 0..64 {
            let client = rig.client_socket("10.9.0.2:0");
            assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
        }
        assert_eq!(server.received(0) + server.received(1), 64);
        // In generic mode veth does not report a packet's RX queue, so all packets arrive on the
        // first queue.
        let spread = server.received(0) > 0 && server.received(1) > 0;
        assert_eq!(
            spread,
            device == "xdp:srv",
            "{device}: {} of 64",
            server.received(0)
        );
        server.stop();
    }
}

/// Returns a configuration that does not specify the number of workers.
fn defaults(device: &str, own: &[&str]) -> InterfaceConfig {
    InterfaceConfig {
        workers: None,
        ..config(device, own, 1)
    }
}

fn refusal(config: &InterfaceConfig) -> DeviceError {
    Interface::open(config).err().expect("it must be refused")
}

#[test]
fn by_default_every_queue_is_served() {
    for (queues, own) in [(2, false), (4, false), (8, false), (4, true)] {
        let rig = Rig::new(queues);
        let own: &[&str] = if own { &["10.9.0.9/24"] } else { &[] };
        let server = Server::start(&defaults("xdp:srv", own));
        assert_eq!(server.interface.queues(), queues);
        let summary = server.interface.summary();
        assert_eq!(line(summary, "queues"), format!("{queues} of {queues}"));
        let cores = std::thread::available_parallelism().unwrap().get();
        let advised = summary.iter().any(|(name, _)| *name == "advice");
        assert_eq!(advised, queues as usize > cores, "{summary:?}");
        let to = if own.is_empty() {
            "10.9.0.1:7"
        } else {
            "10.9.0.9:7"
        };
        // The hash of each flow selects one of the client's TX queues, and so one of the server's
        // RX queues.
        for _ in 0..200 {
            let client = rig.client_socket("10.9.0.2:0");
            assert_eq!(exchange(&client, to, "hello"), "hello");
        }
        let busy = (0..queues as usize).filter(|queue| server.received(*queue) > 0);
        assert_eq!(busy.count(), queues as usize);
        server.stop();
    }
}

#[test]
fn fewer_queues_than_rx_queues_are_refused_in_both_modes() {
    let rig = Rig::new(2);
    for own in [&[][..], &["10.9.0.9/24"]] {
        for config in [config("xdp:srv", own, 1), defaults("xdp:srv,queues=1", own)] {
            let error = refusal(&config);
            let is_expected = matches!(
                error,
                DeviceError::UnservedQueues {
                    has: 2,
                    served: 1,
                    ..
                }
            );
            assert!(is_expected, "{error}");
            let text = error.to_string();
            assert!(text.contains("ethtool -L srv rx 1 tx 1"), "{text}");
        }
    }
    // With `partial`, the user accepts that only clients whose packets arrive on the first queue
    // are served.
    let server = Server::start(&defaults("xdp:srv,queues=1,partial", &[]));
    assert!(line(server.interface.summary(), "warning").contains("partial"));
    server.stop();
    // Check that the remedy in the error message works.
    rig.client.run(|| run("ethtool -L cli tx 1"));
    run("ethtool -L srv rx 1 tx 1");
    let server = Server::start(&defaults("xdp:srv,queues=1", &[]));
    assert_eq!(line(server.interface.summary(), "queues"), "1 of 1");
    let client = rig.client_socket("10.9.0.2:0");
    assert_eq!(exchange(&client, "10.9.0.1:7", "hello"), "hello");
    server.stop();
}

#[test]
fn each_served_queue_must_exist_and_be_able_to_send() {
    let rig = Rig::new(2);
    let error = refusal(&config("xdp:srv,queues=3", &[], 3));
    let is_expected = matches!(
        error,
        DeviceError::TooManyQueues {
            asked: 3,
            has: 2,
            ..
        }
    );
    assert!(is_expected, "{error}");
    // The interface now has two RX queues, but only one TX queue.
    run("ethtool -L srv tx 1");
    let error = refusal(&config("xdp:srv,queues=2", &[], 2));
    let one = matches!(error, DeviceError::TooManyQueues { has: 1, .. });
    assert!(one, "{error}");
    let error = refusal(&defaults("xdp:srv", &[]));
    let one = matches!(error, DeviceError::FewTxQueues { rx: 2, tx: 1, .. });
    assert!(one, "{error}");
    let text = error.to_string();
    assert!(text.contains("ethtool -L srv rx 2 tx 2"), "{text}");
    // The client's end has two TX queues, so XDP requires two RX queues at the server's end.
    run("ethtool -L srv rx 1 tx 1");
    let error = refusal(&defaults("xdp:srv", &[]));
    let text = error.to_string();
    assert!(text.contains("ethtool -L PEER tx 1"), "{text}");
    drop(rig);
}

#[test]
fn a_resident_packet_can_be_sent_repeatedly() {
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &[], 1));
        let client = rig.client_socket("10.9.0.2:0");
        for _ in 0..10 {
            assert_eq!(exchange(&client, "10.9.0.1:7", "resident"), "resident");
            let (len, _) = client.recv_from(&mut [0; 64]).expect("a second copy");
            assert_eq!(len, "resident".len());
        }
        let counters = server.stop()[0];
        assert_eq!(counters.tx_frames, 20);
        assert_eq!(counters.rx_batches.to_string(), "1: 10");
        assert_eq!(counters.tx_batches.to_string(), "1: 20", "one per flush");
    }
}

#[test]
fn packets_of_another_port_are_not_sent() {
    let _rig = Rig::new(2);
    for (device, own) in [("xdp:srv", "10.9.0.9/24"), ("tap:nmiotap", "10.7.0.2/24")] {
        let interface = Interface::open(&config(device, &[own], 2)).unwrap();
        let open = |queue| {
            let memory = MemoryPlan {
                resident_frames: 1,
                scratch_frames: 0,
            };
            interface.queue(queue).open(memory).unwrap()
        };
        match (open(0), open(1)) {
            (AnyPort::Xdp(mut port), AnyPort::Xdp(other)) => refuses_foreign(&mut port, &other),
            (AnyPort::Tap(mut port), AnyPort::Tap(other)) => refuses_foreign(&mut port, &other),
            _ => panic!("{device} opened ports of different kinds"),
        }
    }
}

/// Checks that a port refuses to send a packet from another port's pool.
fn refuses_foreign<P: Port>(port: &mut P, other: &P) {
    let mut frame = other.pool().take().unwrap();
    frame.set_len(60);
    frame.fill(0xff);
    let mut packet = other.pool().make_resident(&frame).unwrap();
    catch_unwind(AssertUnwindSafe(|| port.send(frame))).unwrap_err();
    catch_unwind(AssertUnwindSafe(|| {
        port.send_resident(packet.idle().unwrap())
    }))
    .unwrap_err();
    assert_eq!(port.counters().tx_frames, 0);
}

#[test]
fn a_burst_of_a_whole_ring_loses_nothing() {
    const RING: usize = 2048;
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &[], 1));
        let client = rig.client_socket("10.9.0.2:0");
        let burst = format!("burst {RING}");
        for _ in 0..3 {
            client.send_to(burst.as_bytes(), "10.9.0.1:7").unwrap();
            for n in 0..RING {
                client
                    .recv_from(&mut [0; 64])
                    .unwrap_or_else(|e| panic!("after {n}: {e}"));
            }
        }
        assert_eq!(server.dropped(), 0);
        let counters = server.stop()[0];
        assert_eq!(counters.tx_frames, 3 * RING as u64);
        // Some slots of the TX ring are reserved for retries, so each burst needs a second flush.
        assert_eq!(counters.tx_batches.to_string(), "128-255: 3, 1024: 3");
        assert_eq!((counters.rx_lost, counters.bad_descriptors), (0, 0));
    }
}

#[test]
fn a_port_in_use_is_refused_and_a_served_port_is_reserved() {
    let _rig = Rig::new(1);
    for (transport, address) in [
        (Transport::Udp, "10.9.0.1:7"),
        (Transport::Udp, "0.0.0.0:7"),
    ] {
        let occupied = UdpSocket::bind(address).unwrap();
        let mut config = config("xdp:srv", &[], 1);
        config.services = vec![(transport, 7)];
        let error = Interface::open(&config).err().unwrap();
        assert!(
            matches!(error, DeviceError::PortTaken { port: 7, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("UDP port 7 on 10.9.0.1"),
            "{error}"
        );
        eventually("nothing is left attached", || !has_xdp());
        drop(occupied);
        settle();
    }
    let mut config = config("xdp:srv", &[], 1);
    config.services = vec![(Transport::Tcp, 80)];
    let listener = std::net::TcpListener::bind("[::]:80").unwrap();
    assert!(matches!(
        Interface::open(&config),
        Err(DeviceError::PortTaken { .. })
    ));
    drop(listener);
    settle();
    let interface = Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        std::net::TcpListener::bind("10.9.0.1:80").is_err(),
        "the port is reserved"
    );
    assert!(std::net::TcpListener::bind("10.9.0.1:81").is_ok());
    drop(interface);
    settle();
    eventually("the port is free again", || {
        std::net::TcpListener::bind("10.9.0.1:80").is_ok()
    });
}

#[test]
fn connections_of_an_earlier_program_do_not_hold_its_port() {
    let rig = Rig::new(1);
    let listener = std::net::TcpListener::bind("10.9.0.1:80").unwrap();
    let client = rig
        .client
        .run(|| std::net::TcpStream::connect("10.9.0.1:80"))
        .unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let mut config = config("xdp:srv", &[], 1);
    config.services = vec![(Transport::Tcp, 80)];
    // Close the accepted connection first, so that the server's side enters TIME-WAIT.
    drop(accepted);
    drop(client);
    drop(listener);
    settle();
    eventually("the connection is in TIME-WAIT", || {
        run("ss -Htan state time-wait").contains("10.9.0.1:80")
    });
    let interface = Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
    assert!(std::net::TcpListener::bind("10.9.0.1:80").is_err());
    assert!(std::net::TcpListener::bind("0.0.0.0:80").is_err());
    drop(interface);
}

#[test]
fn two_servers_do_not_share_an_interface() {
    let _rig = Rig::new(1);
    let first = Server::start(&config("xdp:srv", &[], 1));
    // The first server has also reserved the port, but the error must name the interface as the
    // real obstacle.
    for device in MODES {
        let error = Interface::open(&config(device, &[], 1)).err().unwrap();
        assert!(matches!(error, DeviceError::ProgramBusy { .. }), "{error}");
    }
    first.stop();
    // After the first server has stopped, its queue stays in use for several milliseconds. Opening
    // the queue waits until it is free.
    Server::start(&config("xdp:srv", &[], 1)).stop();
}

#[test]
fn a_larger_mtu_gets_larger_frames() {
    let rig = Rig::new(1);
    run("ip link set srv mtu 3000");
    rig.client.run(|| run("ip link set cli mtu 3000"));
    let server = Server::start(&config("xdp:srv", &[], 1));
    assert_eq!(server.interface.mtu(), 3000);
    let client = rig.client_socket("10.9.0.2:0");
    let long = "x".repeat(1900);
    assert_eq!(exchange(&client, "10.9.0.1:7", &long), long);
    server.stop();
}

#[test]
fn too_much_packet_memory_is_refused_without_an_attempt() {
    let _rig = Rig::new(1);
    for (device, own) in [("xdp:srv", "10.9.0.9/24"), ("tap:nmiotap", "10.7.0.2/24")] {
        let interface =
            Interface::open(&config(device, &[own], 1)).unwrap_or_else(|e| panic!("{e}"));
        for resident_frames in [1 << 30, u32::MAX] {
            let memory = MemoryPlan {
                resident_frames,
                scratch_frames: 0,
            };
            let error = interface.queue(0).open(memory).err().unwrap();
            assert!(matches!(error, DeviceError::Memory { .. }), "{error}");
        }
    }
}

#[test]
fn serving_ends_with_an_error_when_the_interface_is_removed() {
    for wait in [Wait::Adaptive, Wait::Block, Wait::Spin, Wait::BusyPoll] {
        let _rig = Rig::new(1);
        let mut xdp_config = config("xdp:srv", &[], 1);
        xdp_config.wait = wait;
        let server = Server::start(&xdp_config);
        run("ip link delete srv");
        let error = server.wait_for_end().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown, "{error}");

        let mut tap_config = config("tap:nmiotap", &["10.7.0.2/24"], 1);
        tap_config.wait = wait;
        let server = Server::start(&tap_config);
        run("ip link delete nmiotap");
        server.wait_for_end().unwrap_err();
    }
}

#[test]
fn serving_resumes_when_the_interface_is_up_again() {
    for device in MODES {
        let rig = Rig::new(1);
        let server = Server::start(&config(device, &[], 1));
        let client = rig.client_socket("10.9.0.2:0");
        assert_eq!(exchange(&client, "10.9.0.1:7", "before"), "before");
        run("ip link set srv down");
        std::thread::sleep(Duration::from_millis(50));
        run("ip link set srv up");
        eventually("the carrier is back", || {
            run("ip -br link show srv").contains("LOWER_UP")
        });
        assert_eq!(exchange(&client, "10.9.0.1:7", "after"), "after");
        server.stop();
    }
}

/// The environment variable that makes `child_process` a server.
const CHILD: &str = "NMIO_TEST_CHILD";

/// The server process that the tests below start. Without the environment variable, this test does
/// nothing.
#[test]
fn child_process() {
    let Ok(device) = std::env::var(CHILD) else {
        return assert!(std::env::current_exe().is_ok());
    };
    let server = Server::start(&config(&device, &[], 1));
    println!(
        "serving on {} {:?}",
        server.interface.addresses()[0].address,
        server.interface.summary()
    );
    if !device.starts_with("xdp") {
        let client = UdpSocket::bind("0.0.0.0:0").unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let to = format!("{}:7", server.interface.addresses()[0].address);
        assert_eq!(exchange(&client, &to, "hello"), "hello");
        println!("answered");
    }
    // Runs until it is killed or its parent exits.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn child(program: &str, arguments: &[&str], device: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(["--exact", "child_process", "--nocapture"])
        .env(CHILD, device)
        .stdin(Stdio::piped());
    spawn(&mut command)
}

/// Reads a child's output up to a line that contains `word`, and returns this output.
fn read_until(output: BufReader<ChildStdout>, word: &str) -> String {
    let mut seen = String::new();
    for line in output.lines() {
        let line = line.unwrap();
        seen.push_str(&line);
        if line.contains(word) {
            return seen;
        }
    }
    panic!("the child ended: {seen}");
}

#[test]
fn a_killed_server_leaves_no_xdp_program_and_no_interface() {
    let _rig = Rig::new(1);
    let me = std::env::current_exe().unwrap();
    for (device, word) in [
        ("xdp:srv", "serving"),
        ("xdp:srv,generic", "serving"),
        ("auto", "answered"),
        ("tap:nmiotap", "answered"),
    ] {
        let (mut server, output) = child(me.to_str().unwrap(), &[], device);
        read_until(output, word);
        let attached = || run("ip -details link");
        let attached_names = attached();
        assert!(
            attached_names.contains("xdp") || attached_names.contains("nmiot"),
            "{attached_names}"
        );
        server.kill().unwrap(); // SIGKILL
        server.wait().unwrap();
        eventually(device, || {
            let attached_names = attached();
            !attached_names.contains("xdp") && !attached_names.contains("nmiot")
        });
    }
    // Check that the queue can be served again.
    Server::start(&config("xdp:srv", &[], 1)).stop();
}

#[test]
fn without_privileges_auto_falls_back_to_tap_and_reports_why() {
    let me = std::env::current_exe().unwrap();
    let arguments = ["--user", "--map-root-user", "--net", me.to_str().unwrap()];
    let (mut server, output) = child("unshare", &arguments, "auto");
    let text = read_until(output, "answered");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(text.contains("auto: a tap device"), "{text}");
    assert!(
        text.contains("why not AF_XDP") && text.contains("no permission to"),
        "{text}"
    );
}
