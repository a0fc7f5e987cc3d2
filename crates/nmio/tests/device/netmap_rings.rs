//! Tests what netmap's ports do with frames for which the other side has no room.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nmio::device::AnyPort;
use nmio::netmap::NetmapPort;
use nmio::{Batch, MAX_BATCH, Port, SendError};

use crate::contract::{SOURCE, has_netmap, open_netmap, opened, packet};
use crate::rig::{RawSocket, Rig, run};

/// Number of frames that are more than any ring of these tests has slots.
const MANY: u32 = 10_000;

fn send(port: &mut NetmapPort, number: u32) -> Result<(), SendError> {
    let bytes = packet(SOURCE, number, 60);
    let mut frame = port.pool().take().expect("a free frame");
    frame.set_len(bytes.len());
    frame.copy_from_slice(&bytes);
    port.send(frame)
}

/// Appends the numbers of frames that have arrived at a port to `numbers`. Returns how many there are.
fn receive(port: &mut NetmapPort, numbers: &mut Vec<u32>) -> usize {
    let mut batch = Batch::new();
    port.receive(&mut batch, MAX_BATCH).unwrap();
    // The slots of the next frames become free.
    port.flush().unwrap();
    let number = |frame: &[u8]| u32::from_be_bytes(frame[34..38].try_into().unwrap());
    let ours = batch.iter().filter(|frame| frame[6..12] == SOURCE);
    numbers.extend(ours.map(|frame| number(frame)));
    batch.len()
}

#[test]
fn a_full_pipe_pushes_back_unlike_a_full_port_of_a_switch() {
    if !has_netmap() {
        return;
    }
    let (mut near, mut far) = (open_netmap("netmap:nmio{5"), open_netmap("netmap:nmio}5"));
    let (mut sent, mut arrived) = (0, Vec::new());
    for refusals in 1..=3 {
        while send(&mut near, sent).is_ok() {
            sent += 1;
            assert!(sent < MANY, "the pipe is never full");
        }
        assert_eq!(near.room(), 0);
        assert_eq!(near.counters().tx_ring_full, refusals);
        let mut passes = 0;
        while arrived.len() < sent as usize {
            receive(&mut far, &mut arrived);
            near.flush().unwrap();
            passes += 1;
            assert!(passes < MANY, "{} of {sent} frames arrive", arrived.len());
        }
    }
    assert!(arrived.into_iter().eq(0..sent), "all arrive in order");
    assert_eq!(near.counters().tx_lost, 0);
}

#[test]
fn a_full_port_of_a_switch_takes_no_frames_and_the_sender_is_not_told() {
    if !has_netmap() {
        return;
    }
    let (mut near, mut far) = (open_netmap("netmap:vale9:a"), open_netmap("netmap:vale9:b"));
    let before = near.levels();
    for number in 0..MANY {
        send(&mut near, number).expect("a switch takes each frame");
    }
    near.flush().unwrap();
    assert_eq!(near.levels(), before);
    let mut arrived = Vec::new();
    while receive(&mut far, &mut arrived) > 0 {}
    assert!(arrived.is_sorted_by(|one, next| one < next), "in order");
    let slots = far.levels().receiving as usize;
    assert!((1..=slots).contains(&arrived.len()), "{}", arrived.len());
    let counters = near.counters();
    assert_eq!((counters.tx_lost, counters.tx_ring_full), (0, 0));
    // There is room again.
    arrived.clear();
    send(&mut near, MANY).unwrap();
    near.flush().unwrap();
    receive(&mut far, &mut arrived);
    assert_eq!(arrived, [MANY]);
}

#[test]
fn a_netmap_port_on_an_interface_without_carrier_gets_its_frames_back() {
    if !has_netmap() {
        return;
    }
    let rig = Rig::new(1);
    let socket = rig.client.run(|| RawSocket::open("cli"));
    let (_interface, AnyPort::Netmap(mut port)) = opened("netmap:srv", &["10.9.0.9/24"]) else {
        panic!("this is a netmap port");
    };
    let before = port.levels().sending;
    rig.client.run(|| run("ip link set cli down"));
    for number in 0..MANY {
        send(&mut port, number).expect("the kernel drops each frame");
    }
    port.flush().unwrap();
    assert_eq!((port.levels().sending, before), (0, 0));
    assert_eq!(port.counters().tx_lost, 0, "netmap does not tell");
    rig.client.run(|| run("ip link set cli up"));
    let end = Instant::now() + Duration::from_secs(20);
    let is_new = |frame: &[u8]| frame[..] == packet(SOURCE, MANY, 60);
    loop {
        assert!(Instant::now() < end, "frames arrive again");
        send(&mut port, MANY).unwrap();
        port.flush().unwrap();
        if std::iter::from_fn(|| socket.receive()).any(|frame| is_new(&frame)) {
            break;
        }
        sleep(Duration::from_millis(50));
    }
}
