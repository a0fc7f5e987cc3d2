//! Tests of the port on the simulated kernel.

use std::collections::HashSet;

use super::*;
use crate::steering::{Classifier, Rules};

const CONFIG: SimulatedConfig = SimulatedConfig {
    slots: 8,
    spares: 12,
    resident_frames: 2,
    buffer: 2048,
};

type Simulated = NetmapPort<SimulatedKernel>;

fn open() -> (Simulated, SimulatedKernel) {
    SimulatedKernel::open(CONFIG).unwrap()
}

fn packet(number: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![number; len];
    packet[0] = 2;
    packet
}

fn receive(port: &mut Simulated, limit: usize) -> Vec<Frame> {
    let mut batch = Batch::new();
    port.receive(&mut batch, limit).unwrap();
    batch.into_iter().collect()
}

fn scratch(port: &Simulated, bytes: &[u8]) -> Frame {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    frame
}

#[test]
fn packets_arrive_in_order_over_many_turns_of_the_ring() {
    let (mut port, kernel) = open();
    let mut expected = 0u8;
    for number in 0..200 {
        kernel.deliver(&packet(number, 60 + usize::from(number)));
        if number % 3 != 0 {
            continue;
        }
        for frame in receive(&mut port, 5) {
            assert_eq!(
                &frame[..],
                &packet(expected, 60 + usize::from(expected))[..]
            );
            expected += 1;
        }
    }
    let counters = port.counters();
    assert_eq!(counters.rx_frames, u64::from(expected));
    assert!(expected > 190);
    assert_eq!(counters.bad_descriptors, 0);
}

#[test]
fn a_received_buffer_is_sent_without_a_copy() {
    let (mut port, kernel) = open();
    kernel.deliver(&packet(7, 100));
    let mut frames = receive(&mut port, 8);
    let mut frame = frames.pop().unwrap();
    let address = frame.as_ptr();
    frame[1] = 9;
    port.send(frame).unwrap();
    assert_eq!(kernel.next_address(), address);
    assert!(port.flush().unwrap());
    let sent = kernel.take_sent().unwrap();
    assert_eq!((sent[0], sent[1], sent[2], sent.len()), (2, 9, 7, 100));
}

#[test]
fn a_full_ring_pushes_back() {
    let (mut port, kernel) = open();
    kernel.limit(0, 0);
    let room = port.room();
    assert_eq!(room, 7, "one slot stays empty");
    for number in 0..7 {
        assert_eq!(port.room(), 7 - usize::from(number));
        let frame = scratch(&port, &packet(number, 60));
        port.send(frame).unwrap();
    }
    let frame = scratch(&port, &packet(9, 60));
    assert_eq!(port.send(frame), Err(SendError::RingFull));
    assert_eq!(port.counters().tx_ring_full, 1);
    assert!(!port.flush().unwrap(), "packets wait for the device");
    assert_eq!((port.levels().sending, port.levels().receiving), (7, 8));
    kernel.limit(u32::MAX, 0);
    assert!(port.flush().unwrap());
    assert_eq!(port.levels().sending, 0);
    let sent: Vec<_> = std::iter::from_fn(|| kernel.take_sent()).collect();
    let expected: Vec<_> = (0..7).map(|number| packet(number, 60)).collect();
    assert_eq!(sent, expected);
}

#[test]
fn a_resident_packet_is_in_flight_until_its_slot_was_sent() {
    let (mut port, kernel) = open();
    let mut resident = port.pool().make_resident(&packet(1, 60)).unwrap();
    kernel.limit(u32::MAX, 1);
    port.send_resident(resident.idle().unwrap()).unwrap();
    assert!(resident.idle().is_none());
    assert!(!port.flush().unwrap());
    assert!(resident.in_flight(), "the device still reads it");
    // The next packet takes its place as the last one.
    let frame = scratch(&port, &packet(2, 60));
    port.send(frame).unwrap();
    port.flush().unwrap();
    assert!(!resident.in_flight());
    resident.idle().unwrap()[1] = 3;
    port.send_resident(resident.idle().unwrap()).unwrap();
    kernel.limit(u32::MAX, 0);
    assert!(port.flush().unwrap());
    let sent: Vec<_> = std::iter::from_fn(|| kernel.take_sent())
        .map(|p| p[1])
        .collect();
    assert_eq!(sent, [1, 2, 3]);
}

#[test]
fn packets_stay_in_the_ring_while_no_frame_is_free() {
    let (mut port, kernel) = open();
    let held: Vec<_> = std::iter::from_fn(|| port.pool().take()).collect();
    kernel.deliver(&packet(1, 60));
    assert!(receive(&mut port, 8).is_empty());
    drop(held);
    assert_eq!(receive(&mut port, 8).len(), 1);
}

#[test]
fn a_packet_that_is_longer_than_a_buffer_is_dropped_whole() {
    let (mut port, kernel) = open();
    kernel.deliver(&packet(1, 60));
    kernel.deliver_parts(&[&packet(2, 2048), &packet(2, 2048), &packet(2, 10)]);
    kernel.deliver(&packet(3, 60));
    let numbers: Vec<_> = receive(&mut port, 8).iter().map(|frame| frame[1]).collect();
    assert_eq!(numbers, [1, 3]);
    assert_eq!(port.counters().bad_descriptors, 1);
}

#[test]
fn impossible_slots_are_rejected() {
    let (mut port, kernel) = open();
    for (index, len) in [(0, 60), (1_000_000, 60), (u32::MAX, 60), (2, 4000)] {
        kernel.deliver(&packet(1, 60));
        kernel.corrupt_next(index, len);
        assert!(receive(&mut port, 8).is_empty());
    }
    assert_eq!(port.counters().bad_descriptors, 4);
    kernel.deliver(&packet(1, 60));
    assert_eq!(receive(&mut port, 8).len(), 1, "the port goes on");
}

#[test]
fn a_position_beyond_the_ring_ends_the_port() {
    let (mut port, kernel) = open();
    kernel.set_tails(8);
    let error = port.receive(&mut Batch::new(), 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let error = port.device.reap(&port.pool).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn all_buffers_go_back_to_the_kernel() {
    let (mut port, kernel) = open();
    let mut resident = port.pool().make_resident(&packet(1, 60)).unwrap();
    for number in 0..50 {
        kernel.deliver(&packet(number, 60));
        for frame in receive(&mut port, 8) {
            port.send(frame).unwrap();
        }
        if !resident.in_flight() {
            port.send_resident(resident.idle().unwrap()).unwrap();
        }
        port.flush().unwrap();
    }
    let held = scratch(&port, &packet(1, 60));
    drop(port);
    drop(resident);
    drop(held);
    assert_each_once(&kernel.all_buffers(), 2 * CONFIG.slots + CONFIG.spares);
}

#[test]
fn a_port_can_be_opened_again_on_the_same_rings() {
    let (mut port, kernel) = open();
    for number in 0..5 {
        let frame = scratch(&port, &packet(number, 60));
        port.send(frame).unwrap();
    }
    port.flush().unwrap();
    drop(port);
    let mut port = kernel.reopen(CONFIG).unwrap();
    kernel.deliver(&packet(6, 60));
    assert_eq!(receive(&mut port, 1)[0][1], 6);
    let frame = scratch(&port, &packet(5, 60));
    port.send(frame).unwrap();
    assert!(port.flush().unwrap());
    let sent: Vec<_> = std::iter::from_fn(|| kernel.take_sent())
        .map(|p| p[1])
        .collect();
    assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
}

/// A classifier for a server in own mode, with the MAC address of [`ours`].
fn rules() -> Classifier {
    Classifier::new(&Rules {
        own: true,
        mac: [2; 6],
        vlans: &[],
        addresses: &[[192, 0, 2, 1].into()],
        services: &[],
    })
}

/// A frame with an IPv4 packet to the server.
fn ours(number: u8) -> Vec<u8> {
    let mut frame = vec![number; 60];
    frame[..6].fill(2);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame
}

/// Checks that each of `total` buffers occurs once.
fn assert_each_once(buffers: &[u32], total: u32) {
    let distinct: HashSet<_> = buffers.iter().collect();
    let total = total as usize;
    assert_eq!(
        (buffers.len(), distinct.len()),
        (total, total),
        "{buffers:?}"
    );
}

fn drain(kernel: &SimulatedKernel) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| kernel.take_sent()).collect()
}

#[test]
fn packets_that_are_not_the_servers_go_to_the_host() {
    let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
    for frame in [packet(1, 60), ours(2), packet(3, 60)] {
        device.deliver(&frame);
    }
    let received = receive(&mut port, 8);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0][..], ours(2)[..]);
    assert!(port.flush().unwrap());
    assert_eq!(drain(&host), [packet(1, 60), packet(3, 60)]);
    assert_eq!(port.counters().rx_frames, 1, "only the server's");
    assert!(drain(&device).is_empty());
}

#[test]
fn packets_of_the_host_go_to_the_network() {
    let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
    for number in 0..20 {
        host.deliver(&packet(number, 60));
    }
    // The network takes one packet at a time. The others wait in the host's ring.
    device.limit(1, 0);
    for _ in 0..40 {
        assert!(receive(&mut port, 8).is_empty());
        port.flush().unwrap();
    }
    let expected: Vec<_> = (0..20).map(|number| packet(number, 60)).collect();
    assert_eq!(drain(&device), expected);
    assert_eq!(port.counters().tx_frames, 0, "none of the server's");
}

#[test]
fn packets_of_the_host_pass_even_while_the_network_is_busy() {
    let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
    host.deliver(&packet(7, 60));
    for _ in 0..20 {
        device.deliver(&ours(1));
        assert_eq!(receive(&mut port, 8).len(), 1);
        port.flush().unwrap();
    }
    assert_eq!(drain(&device), [packet(7, 60)]);
}

#[test]
fn a_packet_for_a_full_host_ring_is_lost_and_counted() {
    let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
    host.limit(0, 0);
    for number in 0..10 {
        device.deliver(&packet(number, 60));
    }
    for _ in 0..4 {
        receive(&mut port, 8);
    }
    // One slot of the ring stays empty.
    assert_eq!(port.counters().rx_lost, 10 - 7);
    host.limit(u32::MAX, 0);
    port.flush().unwrap();
    assert_eq!(drain(&host).len(), 7);
}

#[test]
fn the_buffers_of_both_ring_pairs_go_back_to_the_kernel() {
    let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
    for number in 0..30 {
        device.deliver(&packet(number, 60));
        device.deliver(&ours(number));
        host.deliver(&packet(number, 60));
        for frame in receive(&mut port, 8) {
            port.send(frame).unwrap();
        }
        port.flush().unwrap();
    }
    drop(port);
    let all = [device.all_buffers(), host.slot_buffers()].concat();
    assert_each_once(&all, 4 * CONFIG.slots + CONFIG.spares);
}

/// What a call returns when the kernel has stopped the rings with each of these error numbers.
const STOPS: [(i32, &str); 3] = [
    (libc::EIO, "has stopped its rings"),
    (libc::ENXIO, "os error 6"),
    (libc::ENODEV, "os error 19"),
];

#[test]
fn a_ring_that_stops_is_reported_and_loses_no_buffer() {
    for (errno, cause) in STOPS {
        let (mut port, kernel) = open();
        kernel.deliver(&packet(1, 60));
        let held = receive(&mut port, 1).pop().unwrap();
        let mut resident = port.pool().make_resident(&packet(2, 60)).unwrap();
        port.send_resident(resident.idle().unwrap()).unwrap();
        let frame = scratch(&port, &packet(3, 60));
        port.send(frame).unwrap();
        // The device still reads the first packet, and has not taken the second one.
        kernel.limit(1, 1);
        assert!(!port.flush().unwrap());
        kernel.stop(Some(errno));
        port.send(held).unwrap();
        for error in [
            port.receive(&mut Batch::new(), 1).unwrap_err(),
            port.flush().unwrap_err(),
        ] {
            assert!(error.to_string().contains(cause), "{error}");
        }
        drop((port, resident));
        assert_each_once(&kernel.all_buffers(), 2 * CONFIG.slots + CONFIG.spares);
    }
}

#[test]
fn a_host_ring_that_stops_is_reported_and_loses_no_buffer() {
    for (errno, cause) in STOPS {
        let (mut port, device, host) = SimulatedKernel::open_with_host(CONFIG, rules());
        device.deliver(&packet(1, 60));
        receive(&mut port, 1);
        host.stop(Some(errno));
        for error in [
            port.receive(&mut Batch::new(), 1).unwrap_err(),
            port.flush().unwrap_err(),
        ] {
            assert!(error.to_string().contains(cause), "{error}");
        }
        // Packets for the kernel are lost, and the server's still arrive.
        for number in 0..20 {
            device.deliver(&packet(number, 60));
            device.deliver(&ours(number));
        }
        let mut batch = Batch::new();
        while batch.len() < 8 {
            let _ = port.receive(&mut batch, 8);
        }
        drop((port, batch));
        let all = [device.all_buffers(), host.slot_buffers()].concat();
        assert_each_once(&all, 4 * CONFIG.slots + CONFIG.spares);
    }
}

#[test]
fn a_port_that_cannot_be_polled_says_why() {
    let (mut port, kernel) = open();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    // Polling a pipe without a reader reports an error.
    kernel.poll_on(writer.into());
    let mut error = || port.wait(Duration::ZERO, None).unwrap_err().to_string();
    assert!(error().contains("netmap port simulated cannot be polled"));
    kernel.stop(Some(libc::EIO));
    assert!(error().contains("has stopped its rings"));
}

#[test]
fn an_error_names_the_cause() {
    for (errno, cause) in [
        (libc::EBUSY, "another program"),
        (libc::ENXIO, "no interface has this name"),
        (libc::EINVAL, "no such ring"),
        (libc::ENOMEM, "memory is used up"),
        (libc::EIO, "virtio-net headers"),
        (libc::EPERM, "kernel log"),
    ] {
        let source = io::Error::from_raw_os_error(errno);
        let message = DeviceError::netmap("eth0", source).to_string();
        assert!(
            message.contains("eth0") && message.contains(cause),
            "{message}"
        );
    }
}
