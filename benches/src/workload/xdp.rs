//! Packets that an `AF_XDP` port receives, turns round and sends. Nothing parses them.
//!
//! The kernel is the real one. The workload makes a veth pair in the process's network namespace,
//! which must have no interface besides loopback. A second port, on the other end of the pair, sends
//! the packets back. The counts exclude that port: see [`Workload`].

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use eth::Mac;
use nmio::device::{
    AddressPrefix, AnyPort, Device, Interface, InterfaceConfig, MemoryPlan, Offload, XdpOptions,
};
use nmio::xdp::XdpPort;
use nmio::{Batch, Frame, Port, Wait};

use super::Workload;
use crate::load::link::arp_request;

/// Number of packets that go round.
const BURST: usize = 32;
/// Time limit for one wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of waits in a row after which packets count as lost.
const MAX_WAITS: u32 = 10;
/// Address of the server at both ends, so that each end accepts a packet to it.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// One end of the pair, with a port on its only queue.
struct End {
    port: XdpPort,
    batch: Batch,
    /// Keeps the steering program attached.
    _interface: Interface,
}

impl End {
    fn open(name: &str) -> Self {
        let address = AddressPrefix {
            address: ADDRESS.into(),
            prefix: 24,
        };
        let interface = Interface::open(&InterfaceConfig {
            device: Device::Xdp(XdpOptions {
                offload: Offload::Off,
                ..XdpOptions::new(name)
            }),
            own_addresses: vec![address],
            services: Vec::new(),
            workers: Some(1),
            wait: Wait::Block,
            program: "bench",
        });
        let interface = interface.unwrap_or_else(|error| panic!("{name}: {error}"));
        let port = interface.queue(0).open(MemoryPlan::default());
        let Ok(AnyPort::Xdp(port)) = port else {
            panic!("{name} has no AF_XDP port");
        };
        Self {
            port,
            batch: Batch::new(),
            _interface: interface,
        }
    }

    /// Sends [`BURST`] packets back.
    #[inline(always)]
    fn turn_round(&mut self) {
        let mut left = BURST;
        let mut waits = 0;
        loop {
            let received = self.port.receive(&mut self.batch, left);
            received.expect("the interface exists");
            left -= self.batch.len();
            for frame in self.batch.drain(..) {
                // A frame that finds the ring full is dropped, and the next turn misses it.
                let _ = self.port.send(frame);
            }
            if left == 0 {
                break;
            }
            self.wait();
            waits += 1;
            assert!(waits < MAX_WAITS, "{left} of {BURST} packets are lost");
        }
        while !self.port.flush().expect("the interface exists") {}
    }

    /// Waits for packets. This happens only if the kernel has not delivered all of them yet.
    #[cold]
    fn wait(&mut self) {
        self.port.flush().expect("the interface exists");
        let waited = self.port.wait(PATIENCE, None);
        waited.expect("the interface exists");
    }
}

/// A workload of packets that the port sends back in their own frames.
pub struct TurnRound {
    end: End,
    peer: End,
    runs: u64,
}

impl TurnRound {
    /// Makes the pair, and a workload of frames of `len` bytes on it.
    ///
    /// # Panics
    /// If the pair cannot be made, if it is not the namespace's only one, or if `len` is less than
    /// 42.
    pub fn new(len: usize) -> Self {
        let links = ip("-oneline link show");
        assert_eq!(
            links.lines().count(),
            1,
            "run this in a network namespace of its own: unshare --net"
        );
        ip("link add bench0 type veth peer name bench1");
        for name in ["bench0", "bench1"] {
            // The kernel sends no packets of its own.
            ip(&format!("link set {name} addrgenmode none up"));
        }
        let mut new = Self {
            end: End::open("bench0"),
            peer: End::open("bench1"),
            runs: 0,
        };
        let mut packet = arp_request(Mac([2; 6]), ADDRESS, ADDRESS);
        packet.resize(len, 0);
        let pool = new.peer.port.pool().clone();
        let frames = (0..BURST).map(|_| {
            let mut frame = pool.take().expect("the pool has frames");
            frame.set_len(len);
            frame.copy_from_slice(&packet);
            frame
        });
        for frame in frames.collect::<Vec<Frame>>() {
            new.peer.port.send(frame).expect("the ring is empty");
        }
        while !new.peer.port.flush().expect("the interface exists") {}
        new
    }

    /// Lets the other end send the packets back.
    #[inline(never)]
    fn uncounted_peer(&mut self) {
        self.peer.turn_round();
    }
}

impl Workload for TurnRound {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        self.end.turn_round();
        self.uncounted_peer();
        self.runs += 1;
    }

    fn check(&self) {
        let counters = self.end.port.counters();
        let packets = self.runs * Self::REQUESTS;
        assert_eq!((counters.rx_frames, counters.tx_frames), (packets, packets));
        assert_eq!((counters.bad_descriptors, counters.tx_ring_full), (0, 0));
    }
}

/// Runs `ip ARGUMENTS`, and returns its output.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("ip {arguments}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
