//! Tests of a server whose interface is removed, and returns. The server's end of a veth pair is in
//! this thread's network namespace, and the client's end in another one.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use nix::sched::setns;
use nmio::Wait;
use nmio::device::{Interface, InterfaceConfig, MemoryPlan};

use super::echo::{connect, expect_echo, start_echo};
use super::*;
use crate::status::Phase;
use crate::trace::port::Traced;

/// The network namespace of the client.
struct Client(File);

impl Client {
    fn new() -> Self {
        let entered = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Self(entered.join().unwrap())
    }

    /// Runs `work` on a thread in the client's namespace.
    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Makes the veth pair, with this MTU.
    fn add_pair(&self, mtu: u16) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        run(&format!(
            "ip link add srv mtu {mtu} type veth peer name cli mtu {mtu} netns {path}"
        ));
        run("ip address add 10.9.0.1/24 dev srv");
        run("ip link set srv up");
        self.run(|| {
            run("ip address add 10.9.0.2/24 dev cli");
            run("ip link set cli up");
            run("ethtool -K cli tx off");
        });
    }

    /// Connects to the server's address 10.9.0.`last`.
    fn connect(&self, last: u8) -> TcpStream {
        self.run(|| connect(Ipv4Addr::new(10, 9, 0, last)))
    }
}

/// Runs a command in this thread's namespace. Returns its output.
fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap());
    let output = process.args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a server on the veth pair, with a client.
fn start_on(device: &str) -> (Client, Server) {
    let client = Client::new();
    client.add_pair(1500);
    let server = serving(start_echo(ServeArgs::on(device.parse().unwrap())));
    (client, server)
}

fn remove(handle: &Handle) {
    run("ip link delete srv");
    eventually("the server waits", || {
        handle.status().phase == Phase::Waiting
    });
}

/// Waits until no program steers the packets of the interface. The kernel may remove it later than it
/// closes the descriptor.
fn given_back() {
    eventually("an interface without a program", || {
        !run("ip -details link show srv").contains("xdp")
    });
}

#[test]
fn a_server_and_its_connections_go_on_when_the_interface_returns() {
    if !enter_namespace() {
        return;
    }
    for device in ["xdp:srv", "xdp:srv,generic"] {
        let (client, server) = start_on(device);
        let handle = server.handle();
        let mut kept = client.connect(1);
        expect_echo(&mut kept, "before");
        for text in ["once", "twice"] {
            remove(&handle);
            client.add_pair(1500);
            eventually("the server goes on", || {
                handle.status().phase == Phase::Serving
            });
            expect_echo(&mut client.connect(1), text);
            expect_echo(&mut kept, text);
        }
        // The addresses of the new interface are followed, too.
        run("ip address add 10.9.0.3/24 dev srv");
        eventually("the new address", || {
            handle.status().interface.addresses.len() == 2
        });
        expect_echo(&mut client.connect(3), "new");
        handle.stop_at_once();
        ended(server).unwrap();
        given_back();
        run("ip link delete srv");
    }
}

#[test]
fn a_server_ends_if_its_new_interface_does_not_fit() {
    if !enter_namespace() {
        return;
    }
    let (client, server) = start_on("xdp:srv");
    remove(&server.handle());
    client.add_pair(1400);
    let outcome = ended(server);
    let why = outcome.unwrap_err().to_string();
    assert!(why.contains("MTU 1400 instead of 1500"), "{why}");
    given_back();
}

#[test]
fn a_server_that_waits_for_its_interface_stops_at_once() {
    if !enter_namespace() {
        return;
    }
    let (client, server) = start_on("xdp:srv");
    let mut open = client.connect(1);
    expect_echo(&mut open, "before");
    let handle = server.handle();
    remove(&handle);
    let start = Instant::now();
    handle.stop();
    ended(server).unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "without a drain");
}

#[test]
fn a_traced_port_shares_its_packet_memory() {
    if !enter_namespace() {
        return;
    }
    let client = Client::new();
    client.add_pair(1500);
    let config = InterfaceConfig {
        device: "xdp:srv".parse().unwrap(),
        own_addresses: Vec::new(),
        services: Vec::new(),
        workers: Some(1),
        wait: Wait::Block,
        program: "control",
    };
    let interface = Interface::open(&config).unwrap();
    let port = interface.queue(0).open(MemoryPlan::default()).unwrap();
    assert!(Traced::new(port).shared_memory().is_some());
}
