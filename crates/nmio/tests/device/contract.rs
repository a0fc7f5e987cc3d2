//! The contract that each kind of port keeps, checked on all of them by the same test.
//!
//! | property | check |
//! |---|---|
//! | nothing is lost, doubled or reordered | each side gets what the other sent, in order |
//! | a lost frame is counted | the device drops some frames: as many are sent as arrive in order, or count as lost |
//! | frames, residents and super-segments leave in order | the test sends them in random order |
//! | a full ring pushes back | while [`Port::room`] is not zero, no frame or resident is refused; simulated rings get full. A tap device has no ring: each send is a system call |
//! | a packet is never in flight twice | a resident is refused while it is in flight |
//! | every frame comes back | at the end, as many are free or in the RX ring as at first |
//! | the levels are true | a frame that the test takes is not free |
//! | rings wrap | the port sends and receives more frames than its rings have slots |
//! | stop and start | a real device's port works after it was closed and opened again; a simulated one has no device |
//! | a removed device is an error | the port of a real device reports it within two seconds |
//!
//! A switch, a pipe and an interface of netmap report no lost frames. [`bursts`](crate::bursts) checks that
//! the full ring of AF_XDP pushes back. [`netmap_rings`](crate::netmap_rings) checks that a full pipe of netmap
//! pushes back, and where netmap tells nothing of losses.
//!
//! Models without a kernel check more sequences of steps than this test can. `xdp/ring_tests.rs` tries all
//! sequences of steps of a ring whose 32-bit positions wrap, and `xdp/tx_ring_tests.rs` those of dropped
//! frames. `netmap/model_tests.rs` does so for a whole port. Each ring of AF_XDP has its own model: no model
//! has all four rings with their pool, and none reorders memory accesses.
//!
//! The tests `an_interface_of_this_host` check an interface that the environment names. They are for
//! drivers that a network namespace cannot offer, for example in a virtual machine:
//!
//! ```text
//! ip link set eth0 address 02:00:00:00:00:09
//! ip link set eth0 up
//! ip link set eth1 up promisc on
//! NMIO_CONTRACT_DEVICE=xdp:eth0,zerocopy=required NMIO_CONTRACT_PEER=eth1 device an_interface_of
//! ```
//!
//! What `eth0` sends must arrive at `eth1`, and vice versa. A cable or a hub without other stations
//! connects them. `device` is the test binary.

mod links;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nmio::device::{AnyPort, Interface, MemoryPlan, Offload};
use nmio::netmap::{NetmapPort, SimulatedKernel};
use nmio::{Batch, Frame, Port, PortLevels, Resident, SendError};

use self::links::{Link, Netmap, Real, Simulated, SimulatedNetmap, Switch};
use crate::rig::{Namespace, RawSocket, Rig, config, run, settle};
use crate::supers;

/// Source MAC address of the frames that the port sends. The other side ignores frames from other
/// addresses.
pub(crate) const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Source MAC address of the frames that are delivered to the port.
pub(crate) const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0xbb];
const RESIDENTS: u32 = 3;
/// Maximum number of frames sent to the port and not yet received.
pub(crate) const MAX_DELIVERED: usize = 32;

/// Returns a frame of `len` bytes from `source`. It contains an IPv4 packet of an experimental
/// protocol that carries `number`.
pub(crate) fn packet(source: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[..6].copy_from_slice(if source == SOURCE { &PEER } else { &SOURCE });
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 10, 9, 0, 8, 10, 9, 0, 9,
    ]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[34..38].copy_from_slice(&number.to_be_bytes());
    frame
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Makes random calls of a port, and keeps the frames that must still arrive at each side.
struct Caller {
    rng: fastrand::Rng,
    next: u32,
    /// Number of frames that were sent to the port.
    deliveries: u32,
    /// Frames that the other side must still get.
    sent: VecDeque<Vec<u8>>,
    /// Frames that the port must still get.
    delivered: VecDeque<Vec<u8>>,
    /// Frames that the port has received. Some of them are sent back later.
    received: Vec<Frame>,
    residents: Vec<Resident>,
    bytes: Arc<[u8]>,
    /// Length of the longest frame that the port can send and receive, in bytes.
    longest: usize,
}

impl Caller {
    fn new<L: Link>(link: &mut L, seed: u64) -> Self {
        let longest = link.port().capabilities().mtu + 14;
        let len = |n| if n == 0 { longest } else { 500 };
        let pool = link.port().pool();
        let residents = pool.layout().resident_frames;
        let packets = (0..residents).map(|n| packet(SOURCE, n, len(n)));
        Self {
            rng: fastrand::Rng::with_seed(seed),
            next: 0,
            deliveries: 0,
            sent: VecDeque::new(),
            delivered: VecDeque::new(),
            received: Vec::new(),
            residents: packets.map(|p| pool.make_resident(&p).unwrap()).collect(),
            bytes: (0..40_000u32).map(|n| (n * 31) as u8).collect(),
            longest,
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Makes one random call, and then checks the frames that have left the port.
    fn call<L: Link>(&mut self, link: &mut L) {
        match self.rng.u8(..16) {
            6..=8 if !self.residents.is_empty() => self.send_resident(link.port()),
            0..=8 => self.send(link.port()),
            9 => self.turn_around(link.port()),
            10 if link.port().capabilities().segmentation > 0 => self.send_super(link),
            10 | 11 => {
                link.port().flush().unwrap();
            }
            12..=13 if self.delivered.len() < MAX_DELIVERED => {
                let frame = packet(PEER, self.number(), self.rng.usize(60..=self.longest));
                link.deliver(&frame);
                self.deliveries += 1;
                self.delivered.push_back(frame);
            }
            _ => self.receive(link.port()),
        }
        self.compare(link);
    }

    /// Records the result of a send. `had_room` says whether the port promised to accept it.
    fn note(&mut self, result: Result<(), SendError>, had_room: bool, frames: Vec<Vec<u8>>) {
        match result {
            Ok(()) => self.sent.extend(frames),
            Err(error) => {
                assert_eq!(error, SendError::RingFull);
                assert!(!had_room, "the port has promised room");
            }
        }
    }

    fn send<P: Port>(&mut self, port: &mut P) {
        let bytes = packet(SOURCE, self.number(), self.rng.usize(60..=self.longest));
        let Some(mut frame) = port.pool().take() else {
            port.flush().unwrap();
            return;
        };
        frame.set_len(bytes.len());
        frame.copy_from_slice(&bytes);
        let had_room = port.room() > 0;
        let result = port.send(frame);
        self.note(result, had_room, vec![bytes]);
    }

    /// Sends frames until the ring of a device that takes none is full.
    fn fill<L: Link>(&mut self, link: &mut L) {
        let port = link.stopped_port();
        loop {
            let bytes = packet(SOURCE, self.number(), 60);
            let mut frame = port.pool().take().expect("more frames than slots");
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            let had_room = port.room() > 0;
            let result = port.send(frame);
            self.note(result, had_room, vec![bytes]);
            if !had_room {
                break;
            }
        }
        assert!(port.counters().tx_ring_full > 0);
    }

    fn send_resident<P: Port>(&mut self, port: &mut P) {
        let index = self.rng.usize(..self.residents.len());
        let number = self.number();
        let had_room = port.room() > 0;
        let resident = &mut self.residents[index];
        let Some(mut packet) = resident.idle() else {
            return;
        };
        packet[34..38].copy_from_slice(&number.to_be_bytes());
        let bytes = packet.to_vec();
        let result = port.send_resident(packet);
        // A port that has copied the packet can send it once more.
        let again = resident.idle().filter(|_| result.is_ok());
        let second_result = again.map(|packet| port.send_resident(packet));
        self.note(result, had_room, vec![bytes.clone()]);
        if let Some(result) = second_result {
            self.note(result, false, vec![bytes]);
        }
    }

    fn send_super<L: Link>(&mut self, link: &mut L) {
        let mss = link.mss();
        let len = self.rng.usize(usize::from(mss) + 1..20_000);
        let path = supers::path(false);
        let packet = supers::run_of(mss, &path, &self.bytes, len, Some(supers::ACK));
        let frames = link.frames(&packet);
        let result = link.port().send_super(packet);
        // A super-segment may need several slots.
        self.note(result, false, frames);
    }

    /// Sends a received frame back.
    fn turn_around<P: Port>(&mut self, port: &mut P) {
        let Some(mut frame) = self.received.pop() else {
            return;
        };
        frame[..6].copy_from_slice(&PEER);
        frame[6..12].copy_from_slice(&SOURCE);
        let bytes = frame.to_vec();
        let had_room = port.room() > 0;
        let result = port.send(frame);
        self.note(result, had_room, vec![bytes]);
    }

    fn receive<P: Port>(&mut self, port: &mut P) {
        let limit = self.rng.usize(1..20);
        let mut batch = Batch::new();
        port.receive(&mut batch, limit).unwrap();
        assert!(batch.len() <= limit);
        for frame in batch {
            if frame[6..12] == PEER {
                let expected = self.delivered.pop_front().expect("no frame twice");
                assert!(frame[..] == expected[..], "the frames arrive in order");
                self.received.push(frame);
            }
        }
        self.received.truncate(8);
    }

    /// Compares the frames that have arrived at the other side with those that the port sent.
    fn compare<L: Link>(&mut self, link: &mut L) {
        while let Some(frame) = link.next() {
            let expected = self.sent.pop_front().expect("no frame twice");
            let describe = |frame: &[u8]| (u32_at(frame, 34), frame.len());
            assert!(
                frame == expected,
                "the frames leave in order: number and length are {:?} instead of {:?}",
                describe(&frame),
                describe(&expected)
            );
        }
    }

    /// Waits until all frames have arrived, and have come back to the port whose levels were `before`.
    /// Checks that the port has counted no losses.
    fn finish<L: Link>(&mut self, link: &mut L, before: PortLevels) {
        let end = Instant::now() + Duration::from_secs(5);
        let ours = |levels: PortLevels| (levels.sending, levels.free + levels.receiving);
        loop {
            self.received.clear();
            let levels = link.port().levels();
            let is_missing = !(self.sent.is_empty() && self.delivered.is_empty());
            if !is_missing && ours(levels) == ours(before) {
                break;
            }
            assert!(
                Instant::now() < end,
                "{} sent and {} delivered frames are missing, and the levels are {levels:?} instead of \
                 {before:?}",
                self.sent.len(),
                self.delivered.len()
            );
            link.port().flush().unwrap();
            self.receive(link.port());
            self.compare(link);
        }
        let counters = link.port().counters();
        let lost = (counters.rx_lost, counters.tx_lost, counters.bad_descriptors);
        assert_eq!(lost, (0, 0, 0));
    }
}

/// Sends frames while the device drops some, and frames afterwards. Checks that each of them arrives in
/// order, or counts as lost.
fn tells_its_losses<L: Link>(link: &mut L) {
    const FRAMES: u32 = 10;
    if !link.refuse() {
        return;
    }
    let before = link.lost();
    send_numbered(link.port(), 0..FRAMES);
    link.accept();
    send_numbered(link.port(), FRAMES..2 * FRAMES);
    let end = Instant::now() + Duration::from_secs(5);
    let mut arrived: Vec<u32> = Vec::new();
    let mut lost = 0;
    while (arrived.len() as u64) + lost < u64::from(2 * FRAMES) {
        let numbers = std::iter::from_fn(|| link.next()).map(|frame| u32_at(&frame, 34));
        arrived.extend(numbers);
        lost = link.lost() - before;
        assert!(
            Instant::now() < end,
            "{arrived:?} arrived, and {lost} are lost"
        );
    }
    assert!(lost > 0, "the device drops frames");
    assert_eq!(arrived.len() as u64 + lost, u64::from(2 * FRAMES));
    assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
}

/// Sends a frame with each of these numbers, and flushes until none is queued.
fn send_numbered<P: Port>(port: &mut P, numbers: Range<u32>) {
    for number in numbers {
        let bytes = packet(SOURCE, number, 60);
        let mut frame = port.pool().take().unwrap();
        frame.set_len(bytes.len());
        frame.copy_from_slice(&bytes);
        port.send(frame).unwrap();
    }
    while !port.flush().unwrap() {
        port.wait(Duration::from_micros(50), None).unwrap();
        port.receive(&mut Batch::new(), MAX_DELIVERED).unwrap();
    }
}

/// Makes random calls of the port, and checks that every sent or delivered frame arrives in order. If
/// `fills` is set, fills the TX ring first.
fn keeps_its_contract<L: Link>(link: &mut L, seed: u64, fills: bool) {
    let frames = link.port().pool().layout().io_frames;
    let before = link.port().levels();
    assert_eq!(before.frames, frames);
    let frame = link.port().pool().take();
    assert_eq!(link.port().levels().free, before.free - 1);
    drop(frame);
    assert_eq!(link.port().levels(), before);
    let mut caller = Caller::new(link, seed);
    if fills {
        caller.fill(link);
    }
    while caller.next < 4 * frames || caller.deliveries < frames {
        caller.call(link);
    }
    caller.finish(link, before);
    tells_its_losses(link);
}

pub(crate) fn opened(device: &str, own: &[&str]) -> (Interface, AnyPort) {
    settle();
    let interface = Interface::open(&config(device, own, 1)).unwrap();
    // A netmap port with super-segments has no resident packets.
    let is_netmap_with_supers = device.starts_with("netmap:") && device.contains("offload=on");
    let memory = MemoryPlan {
        resident_frames: if is_netmap_with_supers { 0 } else { RESIDENTS },
        scratch_frames: 0,
    };
    let port = interface.queue(0).open(memory).unwrap();
    (interface, port)
}

/// Opens a port of a real device twice, and checks the contract each time.
fn opens_keep_the_contract(
    device: &str,
    own: &[&str],
    switch: Option<Switch<'_>>,
    socket: impl Fn() -> RawSocket,
) {
    for seed in 1..=2 {
        let (_interface, port) = opened(device, own);
        for (name, value) in port.summary() {
            println!("{name}: {value}");
        }
        let whole = matches!(port, AnyPort::Tap(_));
        match port {
            AnyPort::Xdp(port) => real_keeps_its_contract(port, socket(), whole, switch, seed),
            AnyPort::Tap(port) => real_keeps_its_contract(port, socket(), whole, switch, seed),
            AnyPort::Netmap(port) => real_keeps_its_contract(port, socket(), whole, switch, seed),
        }
    }
}

fn real_keeps_its_contract(
    port: impl Port,
    socket: RawSocket,
    whole: bool,
    switch: Option<Switch<'_>>,
    seed: u64,
) {
    let mut link = Real {
        port,
        socket,
        whole,
        switch,
    };
    keeps_its_contract(&mut link, seed, false);
}

/// Opens a port of a real device twice, and checks the contract each time. Then removes the device
/// with the command `remove`, and checks that the port reports this.
fn device_keeps_the_contract(
    device: &str,
    own: &[&str],
    remove: &str,
    switch: Option<Switch<'_>>,
    socket: impl Fn() -> RawSocket,
) {
    opens_keep_the_contract(device, own, switch, socket);
    let (_interface, port) = opened(device, own);
    // While a netmap port is open, the command waits.
    let mut words = remove.split(' ');
    let command = words.next().unwrap();
    let mut removal = Command::new(command).args(words).spawn().unwrap();
    match port {
        AnyPort::Xdp(port) => reports_that_it_is_gone(port),
        AnyPort::Tap(port) => reports_that_it_is_gone(port),
        AnyPort::Netmap(port) => reports_that_it_is_gone(port),
    }
    assert!(removal.wait().unwrap().success());
}

fn reports_that_it_is_gone(mut port: impl Port) {
    let end = Instant::now() + Duration::from_secs(2);
    let mut pass = || {
        port.receive(&mut Batch::new(), 1)?;
        port.flush()?;
        port.wait(Duration::from_millis(10), None)
    };
    while pass().is_ok() {
        assert!(
            Instant::now() < end,
            "the port must report that its device is gone"
        );
    }
}

#[test]
fn a_simulated_port_keeps_the_contract() {
    for seed in 1..20 {
        keeps_its_contract(&mut Simulated::new(), seed, true);
    }
}

#[test]
fn a_netmap_port_keeps_the_contract_on_a_simulated_kernel() {
    for seed in 1..20 {
        keeps_its_contract(&mut SimulatedNetmap::interface(seed), seed, true);
        for (mtu, offload) in [
            (1500, Offload::Auto),
            (9000, Offload::Auto),
            (1500, Offload::On),
            (9000, Offload::On),
        ] {
            for open in [
                SimulatedKernel::open_on_switch,
                SimulatedKernel::open_on_pipe,
            ] {
                let mut link = SimulatedNetmap::with_offload(open, mtu, offload, seed);
                keeps_its_contract(&mut link, seed, true);
            }
        }
    }
}

pub(crate) fn open_netmap(device: &str) -> NetmapPort {
    let (_, AnyPort::Netmap(port)) = opened(device, &["10.9.0.9/24"]) else {
        panic!("{device} must be a netmap port");
    };
    port
}

/// Returns false, and says so, if this host has no netmap.
pub(crate) fn has_netmap() -> bool {
    let has = Path::new("/dev/netmap").exists();
    if !has {
        println!("skipped: this host has no netmap");
    }
    has
}

#[test]
fn netmap_ports_of_a_switch_and_of_a_pipe_keep_the_contract() {
    let pairs = [
        ("netmap:vale9:a", "netmap:vale9:b"),
        ("netmap:vale9:a,mtu=9000", "netmap:vale9:b,mtu=9000"),
        // Both take super-segments whole, the switch cuts them, or it completes checksums.
        ("netmap:vale9:a,offload=on", "netmap:vale9:b,offload=on"),
        ("netmap:vale9:a,offload=on", "netmap:vale9:b"),
        ("netmap:vale9:a", "netmap:vale9:b,offload=on"),
        (
            "netmap:vale9:a,mtu=9000,offload=on",
            "netmap:vale9:b,mtu=9000,offload=on",
        ),
        ("netmap:nmio{1", "netmap:nmio}1"),
        ("netmap:nmio}2", "netmap:nmio{2"),
        ("netmap:nmio{3,mtu=9000", "netmap:nmio}3,mtu=9000"),
        ("netmap:nmio{4,offload=on", "netmap:nmio}4,offload=on"),
    ];
    for (near, far) in pairs.into_iter().filter(|_| has_netmap()) {
        for seed in 1..=2 {
            println!("{near} and {far}, seed {seed}");
            let whole = far.contains("offload=on");
            let (near, far) = (open_netmap(near), open_netmap(far));
            keeps_its_contract(&mut Netmap { near, far, whole }, seed, false);
        }
    }
}

#[test]
fn a_netmap_port_on_an_interface_keeps_the_contract() {
    if has_netmap() {
        let rig = Rig::new(1);
        let socket = || rig.client.run(|| RawSocket::open("cli"));
        let remove = "ip link del srv";
        device_keeps_the_contract("netmap:srv", &["10.9.0.9/24"], remove, None, socket);
    }
}

/// Checks the contract of an AF_XDP port. While its peer is down, the device drops frames.
fn xdp_keeps_the_contract(rig: &Rig, mode: &str) {
    let switch = |up| {
        let state = if up { "up" } else { "down" };
        rig.client.run(|| run(&format!("ip link set cli {state}")));
    };
    let socket = || rig.client.run(|| RawSocket::open("cli"));
    let own = &["10.9.0.9/24"];
    println!("{mode}");
    device_keeps_the_contract(mode, own, "ip link del srv", Some(&switch), socket);
}

#[test]
fn an_xdp_port_keeps_the_contract() {
    for mode in ["xdp:srv", "xdp:srv,generic"] {
        for offload in ["on", "off"] {
            xdp_keeps_the_contract(&Rig::new(1), &format!("{mode},offload={offload}"));
        }
    }
}

#[test]
fn an_xdp_port_with_a_large_mtu_keeps_the_contract() {
    for (mode, mtu) in [("xdp:srv,offload=off", 9000), ("xdp:srv,generic", 5000)] {
        let rig = Rig::new(1);
        let set_mtu = |end| run(&format!("ip link set {end} mtu {mtu}"));
        set_mtu("srv");
        rig.client.run(|| set_mtu("cli"));
        xdp_keeps_the_contract(&rig, mode);
    }
}

/// Returns the device and the peer that the environment names. Says so, if it names none.
pub(crate) fn named_interfaces() -> Option<(String, String)> {
    let [device, peer] = ["NMIO_CONTRACT_DEVICE", "NMIO_CONTRACT_PEER"].map(std::env::var);
    let named = device.ok().zip(peer.ok());
    if named.is_none() {
        eprintln!("skipped: NMIO_CONTRACT_DEVICE and NMIO_CONTRACT_PEER name no interfaces");
    }
    named
}

#[test]
fn an_interface_of_this_host_keeps_the_contract() {
    if let Some((device, peer)) = named_interfaces() {
        opens_keep_the_contract(&device, &["10.9.0.9/24"], None, || RawSocket::open(&peer));
    }
}

#[test]
fn a_tap_port_keeps_the_contract() {
    Namespace::unshare();
    run("ip tuntap add dev tap9 mode tap");
    let switch = |up| {
        let state = if up { "up" } else { "down" };
        run(&format!("ip link set tap9 {state}"));
    };
    let (own, remove) = (&["10.9.0.9/24"], "ip link del tap9");
    device_keeps_the_contract("tap:tap9", own, remove, Some(&switch), || {
        RawSocket::open("tap9")
    });
}
