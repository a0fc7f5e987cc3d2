//! Tests of packets that take several slots, and of virtio-net headers.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;

use netmap_sys::{NS_MOREFRAG, NS_REPORT};

use super::*;
use crate::checksum::Sum;
use crate::device::Offload;
use crate::port::MAX_BATCH;

const CONFIG: SimulatedConfig = SimulatedConfig {
    slots: 8,
    spares: 4,
    resident_frames: 0,
    buffer: 2048,
};
/// Length of the header before each packet of a port with virtio-net headers.
const HEADER: usize = 12;

type Simulated = NetmapPort<SimulatedKernel>;

/// Opens a port of a switch with this MTU.
fn open(mtu: usize, offload: Offload) -> (Simulated, SimulatedKernel) {
    SimulatedKernel::open_on_switch(CONFIG, mtu, offload).unwrap()
}

/// Opens a port that exchanges buffers.
fn open_exchanging() -> (Simulated, SimulatedKernel) {
    let (port, kernel) = open(1500, Offload::Auto);
    assert!(port.copied.is_none());
    (port, kernel)
}

/// Returns `len` bytes that all differ from their neighbours.
fn packet(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_add(number)).collect()
}

fn receive(port: &mut Simulated) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(&mut batch, MAX_BATCH).unwrap();
    batch.into_iter().map(|frame| frame.to_vec()).collect()
}

/// Receives until the rings are empty.
fn receive_all(port: &mut Simulated) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..100 {
        all.extend(receive(port));
    }
    all
}

fn send(port: &mut Simulated, bytes: &[u8]) -> Result<(), SendError> {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    port.send(frame)
}

/// Closes the port, and checks that each buffer is in one slot or in the list of spares.
fn close(port: Simulated, kernel: &SimulatedKernel) {
    drop(port);
    let all = kernel.all_buffers();
    let distinct: HashSet<_> = all.iter().collect();
    let total = (2 * CONFIG.slots + CONFIG.spares) as usize;
    assert_eq!((all.len(), distinct.len()), (total, total), "{all:?}");
}

#[test]
fn slots_of_a_packet_that_fits_in_a_frame_are_joined() {
    let (mut port, kernel) = open_exchanging();
    let long = packet(3, 2048);
    // The ring has 7 usable slots, so most packets wrap around its end, and the last one arrives
    // with two calls.
    for _ in 0..9 {
        kernel.deliver_parts(&[&long[..12], &long[12..1000], &long[1000..]]);
        kernel.deliver(&packet(4, 60));
        assert_eq!(receive_all(&mut port), [long.clone(), packet(4, 60)]);
    }
    let parts: Vec<_> = long.chunks(128).collect();
    kernel.deliver_parts(&parts);
    assert_eq!(receive_all(&mut port), [long]);
    assert_eq!(port.counters().bad_descriptors, 0);
    assert_eq!(port.counters().rx_frames, 19);
    close(port, &kernel);
}

#[test]
fn a_packet_may_have_64_slots_and_no_more() {
    let (mut port, kernel) = open_exchanging();
    let all = packet(1, 65 * 20);
    for (slots, arrives) in [(64, true), (65, false), (1000, false), (63, true)] {
        let bytes: Vec<_> = all.iter().copied().cycle().take(slots * 20).collect();
        kernel.deliver_parts(&bytes.chunks(20).collect::<Vec<_>>());
        let expected = if arrives { vec![bytes] } else { vec![] };
        assert_eq!(receive_all(&mut port), expected, "{slots}");
    }
    assert_eq!(port.counters().bad_descriptors, 2);
    kernel.deliver(&packet(2, 60));
    assert_eq!(receive_all(&mut port), [packet(2, 60)]);
    close(port, &kernel);
}

#[test]
fn an_empty_slot_is_no_packet_and_no_part_of_one() {
    for mtu in [1500, 9000] {
        let (mut port, kernel) = open(mtu, Offload::Off);
        kernel.deliver_parts(&[&[]]);
        kernel.deliver(&packet(1, 60));
        assert_eq!(receive_all(&mut port), [packet(1, 60)]);
        assert_eq!(port.counters().bad_descriptors, 0);
        for parts in [
            [&[][..], &packet(2, 60)],
            [&packet(2, 60), &[]],
            [&[], &[]],
            // Together they are shorter than an Ethernet header.
            [&packet(2, 6), &packet(2, 7)],
        ] {
            kernel.deliver_parts(&parts);
        }
        kernel.deliver(&packet(3, 60));
        assert_eq!(receive_all(&mut port), [packet(3, 60)]);
        assert_eq!(port.counters().bad_descriptors, 4);
        close(port, &kernel);
    }
}

#[test]
fn a_packet_with_an_impossible_slot_is_dropped_whole() {
    for mtu in [1500, 9000] {
        for (buf_idx, len) in [
            (1_000, 60),
            (1_000_000, 60),
            (u32::MAX, 60),
            (15, 2049),
            (15, u16::MAX),
        ] {
            let (mut port, kernel) = open(mtu, Offload::Off);
            let whole = packet(1, 60);
            kernel.deliver_parts(&[&whole, &whole]);
            kernel.corrupt_next(buf_idx, len);
            assert!(receive_all(&mut port).is_empty(), "{buf_idx} {len}");
            assert_eq!(port.counters().bad_descriptors, 1);
            kernel.deliver(&packet(2, 60));
            assert_eq!(receive_all(&mut port), [packet(2, 60)]);
        }
    }
}

#[test]
fn a_long_frame_takes_several_slots() {
    let (mut port, kernel) = open(9000, Offload::Off);
    assert_eq!(port.capabilities().mtu, 9000);
    // A frame takes up to five slots, and the ring has 7 usable ones.
    assert_eq!(port.room(), 1);
    let long = packet(7, 9018);
    send(&mut port, &long).unwrap();
    assert_eq!(port.room(), 0);
    assert!(port.flush().unwrap());
    let slots = kernel.take_slots().unwrap();
    let lens: Vec<_> = slots.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [1984, 2048, 2048, 2048, 890]);
    let flags: Vec<_> = slots.iter().map(|(_, flags)| *flags).collect();
    let more = NS_MOREFRAG;
    assert_eq!(flags, [more, more, more, more, NS_REPORT]);
    let bytes: Vec<_> = slots.into_iter().flat_map(|(bytes, _)| bytes).collect();
    assert!(bytes == long);
    for len in [14, 1984, 1985, 4032, 4033] {
        send(&mut port, &packet(8, len)).unwrap();
        port.flush().unwrap();
        let slots = kernel.take_slots().unwrap();
        assert_eq!(slots.len(), 1 + len.saturating_sub(1984).div_ceil(2048));
        let bytes: Vec<_> = slots.into_iter().flat_map(|(bytes, _)| bytes).collect();
        assert!(bytes == packet(8, len));
    }
    close(port, &kernel);
}

#[test]
fn a_ring_without_room_for_a_long_frame_pushes_back() {
    let (mut port, kernel) = open(9000, Offload::Off);
    kernel.limit(2, 0);
    send(&mut port, &packet(1, 9018)).unwrap();
    // The port flushes, but the kernel takes only two slots.
    assert_eq!(send(&mut port, &packet(2, 60)), Err(SendError::RingFull));
    assert_eq!(port.counters().tx_ring_full, 1);
    assert!(kernel.take_sent().is_none(), "only a part has left");
    kernel.limit(1, 0);
    send(&mut port, &packet(2, 60)).unwrap();
    kernel.limit(u32::MAX, 0);
    assert!(port.flush().unwrap());
    let sent: Vec<_> = std::iter::from_fn(|| kernel.take_sent()).collect();
    assert!(sent == [packet(1, 9018), packet(2, 60)]);
    close(port, &kernel);
}

#[test]
fn long_packets_arrive_over_many_turns_of_the_ring() {
    let (mut port, kernel) = open(9000, Offload::Off);
    let mut expected = 0u8;
    for number in 0..100u8 {
        kernel.deliver(&packet(number, 60 + 90 * usize::from(number)));
        if number % 3 == 0 {
            for bytes in receive(&mut port) {
                assert!(bytes == packet(expected, 60 + 90 * usize::from(expected)));
                expected += 1;
            }
        }
    }
    assert!(expected > 60);
    assert_eq!(port.counters().bad_descriptors, 0);
    receive_all(&mut port);
    // One byte too long for a frame.
    kernel.deliver(&packet(1, 9018));
    kernel.deliver(&packet(1, 9019));
    assert!(receive_all(&mut port) == [packet(1, 9018)]);
    assert_eq!(port.counters().bad_descriptors, 1);
    close(port, &kernel);
}

#[test]
fn a_slot_that_names_no_buffer_is_not_written() {
    let (mut port, kernel) = open(9000, Offload::Off);
    for buf_idx in [1_000, u32::MAX] {
        kernel.corrupt_tx(buf_idx);
        send(&mut port, &packet(1, 9018)).unwrap();
        send(&mut port, &packet(1, 60)).unwrap();
        assert!(port.flush().unwrap());
        assert!(kernel.take_sent().is_none());
    }
    assert_eq!(port.counters().bad_descriptors, 4);
    kernel.corrupt_tx(3);
    send(&mut port, &packet(2, 60)).unwrap();
    assert!(port.flush().unwrap());
    assert_eq!(kernel.take_sent(), Some(packet(2, 60)));
}

#[test]
fn a_resident_packet_of_a_copying_port_is_never_in_flight() {
    let config = SimulatedConfig {
        resident_frames: 1,
        ..CONFIG
    };
    let opened = SimulatedKernel::open_on_switch(config, 9000, Offload::Auto);
    let (mut port, kernel) = opened.unwrap();
    kernel.limit(0, 0);
    let mut resident = port.pool().make_resident(&packet(1, 3000)).unwrap();
    port.send_resident(resident.idle().unwrap()).unwrap();
    assert!(!resident.in_flight());
    resident.idle().unwrap()[20] = 99;
    kernel.limit(u32::MAX, 0);
    port.flush().unwrap();
    assert!(kernel.take_sent().unwrap() == packet(1, 3000), "a copy");
}

#[test]
fn an_mtu_that_does_not_fit_is_refused() {
    // Seven slots of 2,048 bytes, of which 64 stay free. The link header takes 18.
    let largest = 7 * 2048 - 64 - 18;
    open(largest, Offload::Off);
    let error = SimulatedKernel::open_on_switch(CONFIG, largest + 1, Offload::Off);
    let error = error.err().unwrap();
    assert!(matches!(error, DeviceError::NetmapMtu { mtu, .. } if mtu == largest + 1));
    let small = SimulatedConfig {
        buffer: 1024,
        ..CONFIG
    };
    let error = SimulatedKernel::open(small).err().unwrap();
    let expected = matches!(
        error,
        DeviceError::NetmapMtu {
            mtu: 1500,
            buffer: 1024,
            ..
        }
    );
    assert!(expected, "an interface needs a buffer for each packet");
}

#[test]
fn each_packet_has_a_header_if_the_port_has_them() {
    let (mut port, kernel) = open(1500, Offload::On);
    send(&mut port, &packet(1, 60)).unwrap();
    send(&mut port, &packet(2, 1972)).unwrap();
    send(&mut port, &packet(3, 1973)).unwrap();
    assert!(port.flush().unwrap());
    for (number, len, lens) in [
        (1, 60, &[72][..]),
        (2, 1972, &[1984]),
        (3, 1973, &[1984, 1]),
    ] {
        let slots = kernel.take_slots().unwrap();
        assert!(
            slots
                .iter()
                .map(|(bytes, _)| bytes.len())
                .eq(lens.iter().copied())
        );
        let bytes: Vec<_> = slots.into_iter().flat_map(|(bytes, _)| bytes).collect();
        assert_eq!(bytes[..HEADER], [0; HEADER]);
        assert!(bytes[HEADER..] == packet(number, len));
    }
    assert_eq!(port.counters().tx_bytes, 60 + 1972 + 1973);
    close(port, &kernel);
}

/// A virtio-net header with these flags, this kind of segmentation, and a checksum field at offset
/// 36 that covers the packet from offset 34.
fn header(flags: u8, gso: u8) -> Vec<u8> {
    let [start, field] = [34u16, 2].map(u16::to_ne_bytes);
    let mut header = vec![flags, gso, 0, 0, 0, 0];
    header.extend(start.into_iter().chain(field).chain([0, 0]));
    header
}

/// Returns `packet` with its checksum completed, as `header(1, _)` says.
fn completed(mut packet: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::of(&packet[34..]).finish_udp();
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

#[test]
fn headers_are_removed_and_checksums_completed() {
    let (mut port, kernel) = open(1500, Offload::On);
    let plain = packet(1, 100);
    let partial = packet(2, 1400);
    let long = packet(3, 9000);
    kernel.deliver(&[header(0, 0), plain.clone()].concat());
    kernel.deliver(&[header(1, 0), partial.clone()].concat());
    // The header alone in its slot, as some programs send it.
    kernel.deliver_parts(&[&header(1, 0), &partial[..60], &partial[60..]]);
    // A super-segment stays whole.
    kernel.deliver(&[header(1, 1), long.clone()].concat());
    // The header of the packet before does not matter.
    kernel.deliver(&[header(0, 0), plain.clone()].concat());
    let received = receive_all(&mut port);
    let partial = completed(partial);
    let expected = [
        plain.clone(),
        partial.clone(),
        partial,
        completed(long),
        plain,
    ];
    assert!(received == expected);
    assert_eq!(port.counters().bad_descriptors, 0);
    close(port, &kernel);
}

#[test]
fn packets_with_invalid_headers_are_dropped() {
    let (mut port, kernel) = open(1500, Offload::On);
    let body = packet(1, 100);
    let with = |header: Vec<u8>| [header, body.clone()].concat();
    let mut outside = header(1, 0);
    outside[6..8].copy_from_slice(&99u16.to_ne_bytes());
    let bad = [
        // A run of UDP datagrams, and an unknown kind of segmentation.
        vec![with(header(1, 5))],
        vec![with(header(0, 2))],
        // A checksum field beyond the packet's end.
        vec![with(outside)],
        // No whole header, in one or in two slots; no packet.
        vec![header(0, 0)[..11].to_vec()],
        vec![header(0, 0)[..11].to_vec(), vec![0; 100]],
        vec![header(0, 0)],
        vec![with(header(0, 0))[..HEADER + 13].to_vec()],
        vec![header(0, 0), vec![]],
    ];
    for (rejected, parts) in (1..).zip(&bad) {
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        kernel.deliver_parts(&parts);
        kernel.deliver(&with(header(0, 0)));
        assert_eq!(receive_all(&mut port), slice::from_ref(&body));
        assert_eq!(port.counters().bad_descriptors, rejected);
    }
    close(port, &kernel);
}

#[test]
fn the_longest_packet_of_a_peer_fits_in_a_frame() {
    let (mut port, kernel) = open(1500, Offload::On);
    for (len, arrives) in [(65_535 + 18, true), (65_535 + 19, false)] {
        let longest = packet(1, len);
        kernel.deliver(&[header(0, 1), longest.clone()].concat());
        let expected = if arrives { vec![longest] } else { vec![] };
        assert!(receive_all(&mut port) == expected);
    }
    assert_eq!(port.counters().bad_descriptors, 1);
}

/// A run over IPv4 with the payload `bytes[range]`, and with headers of 66 bytes.
fn run(gso_type: GsoType, bytes: &Arc<[u8]>, len: usize) -> SuperSegment {
    let mut run = SuperSegment::new(gso_type, 1448, (66, 34), bytes, 5..5 + len);
    for (at, byte) in (0..).zip(run.headers_mut()) {
        *byte = at;
    }
    run.patch_mut(3000, 4).copy_from_slice(b"abcd");
    run
}

#[test]
fn a_super_segment_takes_several_slots() {
    let (mut port, kernel) = open(1500, Offload::On);
    let bytes: Arc<[u8]> = packet(9, 20_000).into();
    // Six slots for the first one, and three for the frame's header and the frame.
    let run = |len| run(GsoType::TcpV4, &bytes, len);
    port.send_super(run(10_000)).unwrap();
    send(&mut port, &packet(1, 60)).unwrap();
    assert!(port.flush().unwrap());
    let slots = kernel.take_slots().unwrap();
    let lens: Vec<_> = slots.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [1984, 2048, 2048, 2048, 1950]);
    let sent: Vec<_> = slots.into_iter().flat_map(|(bytes, _)| bytes).collect();
    let mut expected = vec![1, 1];
    for number in [66u16, 1448, 34, 16, 0] {
        expected.extend(number.to_ne_bytes());
    }
    expected.extend(run(10_000).gather().concat());
    assert!(sent == expected);
    assert_eq!(sent[HEADER + 66 + 3000..][..4], *b"abcd");
    assert_eq!(kernel.take_sent().unwrap()[HEADER..], packet(1, 60));
    let counters = port.counters();
    assert_eq!((counters.tx_supers, counters.tx_frames), (1, 7 + 1));
    assert_eq!(counters.tx_bytes, 7 * 66 + 10_000 + 60);
    close(port, &kernel);
}

#[test]
fn a_ring_without_room_for_a_super_segment_pushes_back() {
    let (mut port, kernel) = open(1500, Offload::On);
    let bytes: Arc<[u8]> = packet(9, 20_000).into();
    kernel.limit(0, 0);
    port.send_super(run(GsoType::TcpV4, &bytes, 10_000))
        .unwrap();
    assert_eq!(port.room(), 2);
    let refused = port.send_super(run(GsoType::TcpV4, &bytes, 5_000));
    assert_eq!(refused, Err(SendError::RingFull));
    port.send_super(run(GsoType::TcpV4, &bytes, 3_500)).unwrap();
    kernel.limit(u32::MAX, 0);
    assert!(port.flush().unwrap());
    let sent: Vec<_> = std::iter::from_fn(|| kernel.take_sent()).collect();
    let lens: Vec<_> = sent.iter().map(Vec::len).collect();
    assert_eq!(lens, [HEADER + 66 + 10_000, HEADER + 66 + 3_500]);
}

#[test]
fn a_super_segment_is_as_long_as_the_ring_allows() {
    let (mut port, kernel) = open(1500, Offload::On);
    let limit = port.capabilities().segmentation;
    assert_eq!(limit, 7 * 2048 - 64 - HEADER - 18);
    assert_eq!(port.capabilities().min_segment, 1500);
    let bytes: Arc<[u8]> = packet(9, 20_000).into();
    port.send_super(run(GsoType::TcpV4, &bytes, limit + 14 - 66))
        .unwrap();
    port.flush().unwrap();
    assert_eq!(kernel.take_sent().unwrap().len(), HEADER + 14 + limit);
    // Longer ones, and datagrams, are dropped.
    port.send_super(run(GsoType::TcpV4, &bytes, limit + 18 - 65))
        .unwrap();
    port.send_super(run(GsoType::Udp, &bytes, 4_000)).unwrap();
    port.flush().unwrap();
    assert!(kernel.take_sent().is_none());
    let counters = port.counters();
    assert_eq!((counters.bad_descriptors, counters.tx_supers), (2, 1));
    let longer = SimulatedConfig {
        slots: 64,
        ..CONFIG
    };
    let (port, _) = SimulatedKernel::open_on_switch(longer, 1500, Offload::On).unwrap();
    assert_eq!(port.capabilities().segmentation, 65_535);
}

#[test]
fn packets_that_arrived_before_the_port_had_headers_are_discarded() {
    let (port, kernel) = open(1500, Offload::Off);
    for number in 0..3 {
        kernel.deliver(&packet(number, 60));
    }
    kernel.sync_rx().unwrap();
    drop(port);
    let mut port = kernel.reopen_on_switch(CONFIG, Offload::On).unwrap();
    kernel.deliver(&[header(0, 0), packet(7, 60)].concat());
    assert_eq!(receive_all(&mut port), [packet(7, 60)]);
    assert_eq!(port.counters().bad_descriptors, 0);
}

#[test]
fn the_other_end_of_a_pipe_gets_a_super_segment_whole() {
    let opened = SimulatedKernel::open_on_pipe(CONFIG, 1500, Offload::On);
    let (mut port, kernel) = opened.unwrap();
    assert_eq!(port.capabilities().min_segment, 0, "nobody cuts it");
    let bytes: Arc<[u8]> = packet(9, 20_000).into();
    let run = || run(GsoType::TcpV4, &bytes, 10_000);
    port.send_super(run()).unwrap();
    assert!(port.flush().unwrap());
    let sent = kernel.take_sent().unwrap();
    assert!(sent[HEADER..] == run().gather().concat());
    kernel.deliver(&[header(0, 1), packet(1, 9000)].concat());
    assert!(receive_all(&mut port) == [packet(1, 9000)]);
    close(port, &kernel);
}

#[test]
fn super_segments_need_a_switch_or_a_pipe_and_no_resident_packets() {
    let config = SimulatedConfig {
        resident_frames: 1,
        ..CONFIG
    };
    for open in [
        SimulatedKernel::open_on_switch,
        SimulatedKernel::open_on_pipe,
    ] {
        let error = open(config, 1500, Offload::On).err().unwrap();
        let message = error.to_string();
        assert!(
            message.contains("pre-copy") && message.contains("simulated"),
            "{message}"
        );
        for offload in [Offload::Auto, Offload::Off] {
            let (port, _) = open(config, 1500, offload).unwrap();
            assert_eq!(port.capabilities().segmentation, 0);
        }
    }
}

#[test]
#[should_panic(expected = "accepts no super-segments")]
fn a_super_segment_on_a_port_without_headers_is_a_bug() {
    let (mut port, _kernel) = open(1500, Offload::Auto);
    let bytes: Arc<[u8]> = packet(9, 20_000).into();
    let _ = port.send_super(run(GsoType::TcpV4, &bytes, 4_000));
}

#[test]
fn the_summary_says_how_packets_and_runs_are_sent() {
    let line = |mtu, offload, name| {
        let summary = open(mtu, offload).0.summary();
        let line = summary.into_iter().find(|line| line.0 == name);
        line.unwrap().1
    };
    let path = |mtu, offload| line(mtu, offload, "data path");
    assert!(path(1500, Offload::Auto).ends_with("buffers are exchanged, not copied"));
    assert!(path(9000, Offload::Auto).ends_with("takes several buffers"));
    assert!(path(1500, Offload::On).ends_with("have virtio-net headers"));
    let runs = |offload| line(1500, offload, "segmentation");
    assert!(runs(Offload::Off).ends_with("offload=off was given"));
    assert!(runs(Offload::Auto).ends_with("offload=on sends them"));
    assert!(runs(Offload::On).starts_with("super-segments of up to 14 KB"));
    let pipe = |offload| {
        let (port, _) = SimulatedKernel::open_on_pipe(CONFIG, 1500, offload).unwrap();
        port.summary().pop().unwrap().1
    };
    assert!(pipe(Offload::Auto).ends_with("offload=on sends them"));
    assert!(pipe(Offload::On).contains("other end of the pipe"));
}
