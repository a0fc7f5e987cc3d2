//! Super-segments over a real device.
//!
//! Several tests compare the received frames, byte for byte, with the segments that
//! `ip::write_segment` writes.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, PROTOCOL_UDP, Path};
use nmio::device::{AnyPort, Interface, MemoryPlan};
use nmio::super_segment::GsoType;
use nmio::xdp::XdpPort;
use nmio::{Batch, MAX_BATCH, Port, SuperSegment};

use crate::bursts::client_that_knows_the_server;
use crate::line;
use crate::rig::{Namespace, Rig, config};

/// Number of data bytes per segment. With this size, a segment fits in an MTU of 1,500 bytes over
/// IPv6 too.
pub(crate) const MSS: u16 = 1428;
const TCP: usize = 32;
const UDP: usize = 8;
/// Maximum IP packet length, in bytes, of a super-segment that a device accepts by default.
pub(crate) const ORDINARY: usize = 65_535 - 14;
/// TCP control bits.
const FIN: u8 = 1;
const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

pub(crate) fn open(device: &str, own: &[&str]) -> (Interface, XdpPort) {
    let interface = Interface::open(&config(device, own, 1)).unwrap();
    let AnyPort::Xdp(port) = interface.queue(0).open(MemoryPlan::default()).unwrap() else {
        panic!("{device} must open an AF_XDP port");
    };
    (interface, port)
}

pub(crate) fn path(v6: bool) -> Path {
    let addresses = if v6 {
        Addresses::V6 {
            src: "fd09::9".parse().unwrap(),
            dst: "fd09::8".parse().unwrap(),
        }
    } else {
        Addresses::V4 {
            src: "10.9.0.9".parse().unwrap(),
            dst: "10.9.0.8".parse().unwrap(),
        }
    };
    let link = Link {
        peer: Mac([2, 0, 0, 0, 0, 8]),
        own: Mac([2, 0, 0, 0, 0, 9]),
        vlan: None,
    };
    Path { link, addresses }
}

/// Builds a super-segment for `path`. It carries TCP with the control bits `control`, or UDP if
/// `control` is `None`.
pub(crate) fn run(path: &Path, bytes: &Arc<[u8]>, len: usize, control: Option<u8>) -> SuperSegment {
    run_of(MSS, path, bytes, len, control)
}

/// Builds a super-segment like `run`, but with `mss` data bytes per segment.
pub(crate) fn run_of(
    mss: u16,
    path: &Path,
    bytes: &Arc<[u8]>,
    len: usize,
    control: Option<u8>,
) -> SuperSegment {
    let (gso_type, protocol, header_len) = match (control, path.addresses) {
        (None, _) => (GsoType::Udp, PROTOCOL_UDP, UDP),
        (Some(_), Addresses::V4 { .. }) => (GsoType::TcpV4, PROTOCOL_TCP, TCP),
        (Some(_), Addresses::V6 { .. }) => (GsoType::TcpV6, PROTOCOL_TCP, TCP),
    };
    let at = path.header_len();
    let mut packet = SuperSegment::new(gso_type, mss, (at + header_len, at), bytes, 7..7 + len);
    let headers = packet.headers_mut();
    path.write(headers, protocol, header_len + len);
    let pseudo = path.addresses.pseudo_sum(protocol, header_len + len);
    let transport = &mut headers[at..];
    transport[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
    let checksum_at = if let Some(control) = control {
        transport[4..12].copy_from_slice(&[0xff, 0xff, 0xf0, 0, 1, 2, 3, 4]);
        transport[12..16].copy_from_slice(&[(TCP as u8 / 4) << 4, control, 0x12, 0x34]);
        transport[20..24].copy_from_slice(&[1, 1, 8, 10]);
        16
    } else {
        transport[4..6].copy_from_slice(&((UDP + len) as u16).to_be_bytes());
        6
    };
    transport[checksum_at..][..2].copy_from_slice(&pseudo.fold().to_be_bytes());
    packet
}

/// Returns the frames into which the super-segment is segmented.
pub(crate) fn frames(packet: &SuperSegment) -> Vec<Vec<u8>> {
    let frame = |index| {
        let mut frame = Vec::new();
        ip::write_segment(packet, index, &mut frame);
        frame
    };
    (0..packet.segments()).map(frame).collect()
}

/// Receives frames until there are at least `count`, or until 5 s have passed.
pub(crate) fn take(port: &mut XdpPort, count: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let end = Instant::now() + Duration::from_secs(5);
    let mut batch = Batch::new();
    while received.len() < count && Instant::now() < end {
        port.receive(&mut batch, MAX_BATCH).unwrap();
        received.extend(batch.drain(..).map(|frame| frame.to_vec()));
        port.wait(Duration::from_millis(50), None).unwrap();
    }
    received
}

pub(crate) fn send_frame(port: &mut XdpPort, bytes: &[u8]) {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    port.send(frame).unwrap();
}

#[test]
#[should_panic(expected = "accepts no super-segments")]
fn a_port_without_super_segments_does_not_take_one() {
    let _rig = Rig::new(1);
    let (_interface, mut port) = open("xdp:srv,offload=off", &["10.9.0.9/24"]);
    let bytes = vec![0; 4_000].into();
    let _ = port.send_super(run(&path(false), &bytes, 3_000, Some(ACK)));
}

#[test]
fn kernel_segmentation_equals_ours_and_keeps_the_order() {
    let rig = Rig::new(1);
    compare_segmentation(
        &rig,
        "xdp:srv,offload=on",
        "segmented by the kernel",
        |_| {},
    );
}

#[test]
fn the_kernel_segments_packets_if_the_device_no_longer_does() {
    let rig = Rig::new(1);
    crate::rig::run("ethtool -K srv tx on sg on tso on");
    // `compare_segmentation` attaches an XDP program at the client's end, which makes `srv` stop
    // segmenting. Because veth does not complete the segments' partial checksums, the comparison
    // must ignore the checksum fields.
    compare_segmentation(&rig, "xdp:srv", "segmented by the device", |frame| {
        let (next, at) = if frame[12..14] == [0x86, 0xdd] {
            (frame[20], 54)
        } else {
            (frame[23], 34)
        };
        let field = at + if next == PROTOCOL_TCP { 16 } else { 6 };
        frame[field..][..2].fill(0);
    });
}

/// Sends super-segments over `device` and compares the received frames with the expected ones.
/// Before the comparison, `normalise` changes each frame, for example to clear a field that may
/// differ. The summary's line `segmentation` must contain the text `expected_text`.
fn compare_segmentation(
    rig: &Rig,
    device: &str,
    expected_text: &str,
    normalise: impl Fn(&mut [u8]),
) {
    let (interface, mut port) = open(device, &["10.9.0.9/24", "fd09::9/64"]);
    assert!(line(&port.summary(), "segmentation").contains(expected_text));
    assert_eq!(port.capabilities().segmentation, ORDINARY);
    let bytes: Arc<[u8]> = (0..300_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    // An XDP program at the client's end makes the kernel segment packets to it.
    let (ready, is_ready) = mpsc::channel();
    let (count_sender, count_receiver) = mpsc::channel::<usize>();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rig.client.run(move || {
                let own = ["10.9.0.8/24", "fd09::8/64"];
                let (interface, mut port) = open("xdp:cli,offload=off", &own);
                ready.send(()).unwrap();
                for count in count_receiver {
                    sender.send(take(&mut port, count)).unwrap();
                }
                drop((port, interface));
            });
        });
        is_ready.recv().unwrap();
        for v6 in [false, true] {
            let path = path(v6);
            let mss = usize::from(MSS);
            for (len, control) in [
                (mss + 1, Some(ACK)),
                (2 * mss, Some(ACK | PSH)),
                (3 * mss - 1, Some(ACK | PSH | FIN)),
                (10 * mss, Some(ACK)),
                (45 * mss - 5, Some(ACK | PSH)),
                // Over IPv4, this packet is longer than the IP length field can express.
                (if v6 { 44 } else { 180 } * mss + 5, Some(ACK | PSH)),
                (2 * mss, None),
                (3 * mss - 1, None),
                (30 * mss, None),
                // These packets consist of a single segment.
                (mss, Some(ACK | PSH)),
                (100, None),
            ] {
                let mut packet = run(&path, &bytes, len, control);
                packet.patch_mut(50, 20).fill(0xaa);
                let single = frames(&run(&path, &bytes, 300, Some(ACK)));
                let mut expected = single.clone();
                expected.extend(frames(&packet));
                expected.extend(single.clone());
                expected.extend(frames(&packet));

                send_frame(&mut port, &single[0]);
                port.send_super(packet.clone()).unwrap();
                send_frame(&mut port, &single[0]);
                port.send_super(packet).unwrap();
                assert!(port.flush().unwrap());
                count_sender.send(expected.len()).unwrap();
                let mut received = receiver.recv().unwrap();
                assert_eq!(received.len(), expected.len(), "{v6} {len} {control:?}");
                let all_frames = received.iter_mut().chain(&mut expected);
                all_frames.for_each(|frame| normalise(frame));
                for (index, (received, expected)) in received.iter().zip(&expected).enumerate() {
                    assert_eq!(received, expected, "{v6} {len} {control:?} frame {index}");
                }
            }
        }
        drop(count_sender);
    });
    let counters = port.counters();
    assert_eq!((counters.tx_supers, counters.bad_descriptors), (44, 0));
    drop((port, interface));
}

/// Returns true if a frame is queued in the TX ring, which has more room than the packet socket's queue.
fn uses_the_ring(port: &mut XdpPort) -> bool {
    port.room() > 128
}

#[test]
fn the_ring_is_used_again_when_the_kernel_has_sent_what_it_segments() {
    let _rig = Rig::new(1);
    let (interface, mut port) = open("xdp:srv", &["10.9.0.9/24"]);
    let bytes: Arc<[u8]> = vec![7; 21_000].into();
    let send = |port: &mut XdpPort| {
        port.send_super(run(&path(false), &bytes, 20_000, Some(ACK)))
            .unwrap();
        assert!(!uses_the_ring(port));
        assert!(port.flush().unwrap());
    };
    send(&mut port);
    assert!(uses_the_ring(&mut port), "without a queue, nothing waits");
    // 20,000 bytes wait for some 0.3 s in this queue.
    crate::rig::run("tc qdisc add dev srv root tbf rate 500kbit burst 2000 limit 100000");
    send(&mut port);
    assert!(!uses_the_ring(&mut port), "packets wait in the kernel");
    send_frame(&mut port, &[2; 60]);
    let end = Instant::now() + Duration::from_secs(5);
    while !(port.flush().unwrap() && uses_the_ring(&mut port)) {
        assert!(Instant::now() < end, "the queue becomes empty");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((port, interface));
}

#[test]
fn packets_without_room_in_the_kernel_wait_in_order() {
    let rig = Rig::new(1);
    let (interface, mut port) = open("xdp:srv,offload=on", &["10.9.0.9/24"]);
    let bytes: Arc<[u8]> = vec![0; 70_000].into();
    let path = path(false);
    // Bring the link down, so that packets stay in the port's queue, and fill the queue.
    crate::rig::run("ip link set srv down");
    let mut expected = Vec::new();
    for len in 2_000.. {
        let packet = run(&path, &bytes, len, Some(ACK));
        let segments = frames(&packet);
        if port.send_super(packet).is_err() {
            break;
        }
        expected.extend(segments);
        assert!(len < 3_000, "the queue is bounded");
    }
    assert_eq!(port.room(), 0);
    assert!(!port.flush().unwrap(), "the packets are still queued");
    // When the link is up again, all packets must arrive in order.
    let (ready, is_ready) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    let count = expected.len();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rig.client.run(move || {
                let (interface, mut port) = open("xdp:cli,offload=off", &["10.9.0.8/24"]);
                ready.send(()).unwrap();
                sender.send(take(&mut port, count)).unwrap();
                drop((port, interface));
            });
        });
        is_ready.recv().unwrap();
        crate::rig::run("ip link set srv up");
        let end = Instant::now() + Duration::from_secs(5);
        while !port.flush().unwrap() {
            assert!(Instant::now() < end, "the queued packets leave");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(receiver.recv().unwrap(), expected);
    });
    assert_eq!(port.counters().bad_descriptors, 0);
    drop((port, interface));
}

/// Packets that the server cannot answer yet would otherwise end each wait at once.
#[test]
fn a_port_without_room_sleeps_until_the_kernel_has_sent_some_packets() {
    const LONG: Duration = Duration::from_secs(5);
    const PAUSE: Duration = Duration::from_millis(50);
    let rig = Rig::new(1);
    let client = client_that_knows_the_server(&rig);
    let set_rate = |rate| {
        let queue = format!("tbf rate {rate} burst 100kb limit 100mb");
        crate::rig::run(&format!("tc qdisc replace dev srv root {queue}"));
    };
    // The kernel segments, and half of the socket's memory leaves in some seconds.
    crate::rig::run("ethtool -K srv tso off");
    set_rate("8mbit");
    let (interface, mut port) = open("xdp:srv,offload=on", &["10.9.0.9/24"]);
    let bytes: Arc<[u8]> = vec![7; 61_000].into();
    let packet = || run(&path(false), &bytes, 60_000, Some(ACK));
    let time_of = |port: &mut XdpPort, timeout| {
        let start = Instant::now();
        port.wait(timeout, None).unwrap();
        start.elapsed()
    };

    let mut sent = 0;
    while port.flush().unwrap() {
        assert!(
            sent < 2_000,
            "the kernel's memory for the socket is bounded"
        );
        port.send_super(packet()).unwrap();
        sent += 1;
    }
    client.send_to(b"with room", "10.9.0.9:7").unwrap();
    assert!(time_of(&mut port, LONG) < LONG, "a packet ends the wait");
    let mut batch = Batch::new();
    port.receive(&mut batch, MAX_BATCH).unwrap();
    assert!(batch.drain(..).any(|frame| frame.ends_with(b"with room")));

    while port.send_super(packet()).is_ok() {}
    client.send_to(b"without room", "10.9.0.9:7").unwrap();
    assert!(time_of(&mut port, PAUSE) >= PAUSE, "no packet ends it");
    set_rate("800mbit");
    assert!(time_of(&mut port, LONG) < LONG, "room ends it");
    let end = Instant::now() + LONG;
    while !port.flush().unwrap() {
        assert!(Instant::now() < end, "the queued packets leave");
        port.wait(PAUSE, None).unwrap();
    }
    port.receive(&mut batch, MAX_BATCH).unwrap();
    let mut received = batch.drain(..);
    assert!(received.any(|frame| frame.ends_with(b"without room")));
    drop(received);
    drop((port, interface));
}

#[test]
fn the_summary_shows_what_performs_segmentation() {
    let _rig = Rig::new(1);
    for (device, expected_text) in [
        ("xdp:srv,offload=off", "offload=off was given"),
        // The rig turns off checksum offload, which also turns off TSO.
        ("xdp:srv", "segmented by the kernel"),
        ("xdp:srv,generic,offload=on", "segmented by the kernel"),
    ] {
        let (interface, port) = open(device, &["10.9.0.9/24"]);
        let summary = port.summary();
        assert!(
            line(&summary, "segmentation").contains(expected_text),
            "{summary:?}"
        );
        drop((port, interface));
        crate::rig::settle();
    }
    crate::rig::run("ethtool -K srv tx on sg on tso on");
    for (kind, expected_text) in [
        ("on", "segmented by the device"),
        ("off", "segmented by the kernel"),
    ] {
        crate::rig::run(&format!("ethtool -K srv tx-tcp6-segmentation {kind}"));
        let (interface, port) = open("xdp:srv", &["10.9.0.9/24"]);
        assert!(line(&port.summary(), "segmentation").contains(expected_text));
        drop((port, interface));
        crate::rig::settle();
    }
}

#[test]
fn super_segments_respect_the_devices_limit() {
    let _rig = Rig::new(1);
    crate::rig::run("ethtool -K srv tx on sg on tso on");
    crate::rig::run("ip link set srv gso_max_size 20000");
    let (interface, mut port) = open("xdp:srv", &["10.9.0.9/24"]);
    let largest = port.capabilities().segmentation;
    assert_eq!(largest, 20_000 - 1 - 14);
    let segmentation = line(&port.summary(), "segmentation").to_owned();
    assert!(segmentation.contains("up to 20 KB"), "{segmentation}");
    let bytes: Arc<[u8]> = vec![0; 70_000].into();
    let path = path(false);
    let mut send = |bytes_of_packet| {
        let len = bytes_of_packet - (path.header_len() - 14) - TCP;
        port.send_super(run(&path, &bytes, len, Some(ACK))).unwrap();
        port.flush().unwrap()
    };
    assert!(send(largest), "the packet leaves at once");
    // Lower the device's limit below the length of the next packet, so that the kernel segments
    // this packet.
    crate::rig::run("ip link set srv gso_max_size 15000");
    assert!(send(largest), "the packet still leaves");
    drop((port, interface));
}

/// Opens a port of device `auto`. Returns `None` if the kernel does not support super-segments
/// longer than 64 KB.
fn open_auto() -> Option<(Interface, XdpPort)> {
    let (interface, port) = open("auto", &[]);
    let largest = port.capabilities().segmentation;
    if largest == ORDINARY {
        return None;
    }
    assert_eq!(largest, (256 << 10) - 1 - 14);
    Some((interface, port))
}

#[test]
fn a_packet_that_is_always_refused_is_eventually_dropped() {
    // Opening the port moves this thread into the server's namespace. `_home` keeps the current
    // namespace alive.
    let _home = Namespace::unshare();
    let Some((interface, mut port)) = open_auto() else {
        return;
    };
    let largest = port.capabilities().segmentation;
    let bytes: Arc<[u8]> = vec![0; 300_000].into();
    let path = path(false);
    let mut run = |len| {
        port.send_super(run(&path, &bytes, len, Some(ACK))).unwrap();
        port.flush().unwrap()
    };
    let headers = path.header_len() - 14 + TCP;
    assert!(run(largest - headers), "the packet leaves at once");
    assert!(
        !run(largest - headers + 1),
        "the device refuses a longer packet"
    );
    // Head-of-line blocking: later packets wait behind the refused packet until it is dropped.
    assert!(!run(100));
    let mut tries = 0;
    while !port.flush().unwrap() {
        tries += 1;
        assert!(tries < 2_000, "the port gives the packet up");
    }
    assert!(tries > 100);
    assert_eq!(port.capabilities().segmentation, ORDINARY);
    let segments = largest.div_ceil(usize::from(MSS)) as u64;
    let counters = port.counters();
    assert!(counters.tx_refused.abs_diff(segments) <= 1, "{counters:?}");
    assert_eq!(counters.bad_descriptors, 0);
    drop((port, interface));
}

#[test]
fn a_packet_that_is_too_long_is_dropped_without_a_retry() {
    // Opening the port moves this thread into the server's namespace. `_home` keeps the current
    // namespace alive.
    let _home = Namespace::unshare();
    let Some((interface, mut port)) = open_auto() else {
        return;
    };
    // Send a packet above 64 KB that is a single segment. The kernel cannot split it, so it refuses
    // the packet immediately.
    let bytes: Arc<[u8]> = vec![0; 65_535].into();
    let headers = path(false).header_len() + TCP;
    let place = (headers, headers - TCP);
    let packet = SuperSegment::new(GsoType::TcpV4, 65_535, place, &bytes, 0..65_535);
    port.send_super(packet).unwrap();
    assert!(port.flush().unwrap(), "the packet is given up at once");
    assert_eq!(port.capabilities().segmentation, ORDINARY);
    let counters = port.counters();
    assert_eq!((counters.tx_refused, counters.bad_descriptors), (1, 0));
    drop((port, interface));
}

#[test]
fn a_smaller_mtu_does_not_shorten_super_segments() {
    let _home = Namespace::unshare();
    let Some((interface, mut port)) = open_auto() else {
        return;
    };
    let before = port.capabilities().segmentation;
    let bytes: Arc<[u8]> = vec![0; 4_000].into();
    crate::rig::run("ip link set server mtu 1400");
    let packet = run(&path(false), &bytes, 3_000, Some(ACK));
    port.send_super(packet).unwrap();
    send_frame(&mut port, &[2; 1514]);
    assert!(port.flush().unwrap());
    assert_eq!(port.capabilities().segmentation, before);
    drop((port, interface));
}

#[test]
fn a_lost_carrier_does_not_shorten_super_segments() {
    let home = Namespace::unshare();
    let Some((interface, mut port)) = open_auto() else {
        return;
    };
    let before = port.capabilities().segmentation;
    let bytes: Arc<[u8]> = vec![0; 300_000].into();
    home.run(|| crate::rig::run("ip link set nmiotest0 down"));
    let packet = run(&path(false), &bytes, 100_000, Some(ACK));
    port.send_super(packet).unwrap();
    for _ in 0..1_100 {
        port.flush().unwrap();
    }
    home.run(|| crate::rig::run("ip link set nmiotest0 up"));
    assert_eq!(port.capabilities().segmentation, before);
    drop((port, interface));
}

/// Opens a port on a device that segments, and runs the commands `changes`. Then sends an IPv6
/// super-segment and a frame.
///
/// After at most `flushes` flushes, both packets must have been sent or dropped.
fn passes(device: &str, changes: &[&str], control: Option<u8>, flushes: usize) {
    let rig = Rig::new(1);
    crate::rig::run("ethtool -K srv tx on sg on tso on");
    let (interface, mut port) = open(device, &["10.9.0.9/24", "fd09::9/64"]);
    for change in changes {
        crate::rig::run(change);
    }
    let bytes: Arc<[u8]> = vec![7; 21_000].into();
    let packet = run(&path(true), &bytes, 20_000, control);
    port.send_super(packet).unwrap();
    send_frame(&mut port, &[2; 60]);
    let flushed = (0..flushes).any(|_| port.flush().unwrap());
    assert!(flushed, "{changes:?}: {:?}", port.counters());
    drop((port, interface, rig));
}

/// A packet that the device refuses must not block the packets to other clients.
#[test]
fn the_kernel_segments_what_the_device_refuses() {
    // The port soon notices that the device no longer segments TCP. It does not query the device
    // about UDP, so it reacts only after many refusals.
    let without = |kind| format!("ethtool -K srv tx-{kind}-segmentation off");
    passes("xdp:srv", &[&without("tcp6")], Some(ACK), 100);
    passes("xdp:srv", &[&without("udp")], None, 5_000);
}

#[test]
fn a_packet_refused_by_a_rule_does_not_block_others() {
    let changes = [
        "ethtool -K srv tx off",
        "tc qdisc add dev srv root tbf rate 8mbit burst 200 limit 200",
    ];
    passes("xdp:srv,offload=on", &changes, Some(ACK), 5_000);
}

#[test]
fn a_tap_device_receives_whole_super_segments() {
    let _home = Namespace::unshare();
    let tap = Interface::open(&config("tap:nmiotap", &["10.9.0.8/24"], 1)).unwrap();
    let AnyPort::Tap(mut receiver) = tap.queue(0).open(MemoryPlan::default()).unwrap() else {
        panic!("tap:nmiotap must open a tap port");
    };
    let (host, mut sender) = open("xdp:nmiotap,generic,offload=on", &["10.9.0.9/24"]);
    let bytes: Arc<[u8]> = (0..21_000u32).map(|n| (n * 31) as u8).collect();
    for v6 in [false, true] {
        let path = path(v6);
        let packet = run(&path, &bytes, 20_000, Some(ACK | PSH));
        sender.send_super(packet).unwrap();
        assert!(sender.flush().unwrap());
        // Expect one packet, as if it were a single segment with a complete checksum.
        let unsegmented = run_of(20_000, &path, &bytes, 20_000, Some(ACK | PSH));
        let end = Instant::now() + Duration::from_secs(5);
        let mut batch = Batch::new();
        let received = loop {
            receiver.receive(&mut batch, MAX_BATCH).unwrap();
            // Skip other packets, which this host may send at any time.
            if let Some(frame) = batch.drain(..).find(|frame| frame.len() > 200) {
                break frame.to_vec();
            }
            assert!(Instant::now() < end, "the packet arrives");
            let pause = Duration::from_millis(50);
            receiver.wait(pause, None).unwrap();
        };
        assert!(
            received == frames(&unsegmented)[0],
            "{} bytes",
            received.len()
        );
    }
    drop((sender, host, receiver, tap));
}
