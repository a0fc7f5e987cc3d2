//! Tests of the fault rates, of their effect on frames and residents, and of the event loop on a
//! port with faults.

use std::collections::BTreeMap;

use super::*;
use crate::event_loop::{Handler, LoopConfig, LoopState};
use crate::frame::Resident;
use crate::idle::STOP_CHECK;
use crate::pcap::Pcap;
use crate::sim::{self, EndConfig, LinkConfig, PathConfig, SimClock, SimPort};
use crate::time::{Clock, Instant};

/// Creates a link whose first port has faults.
fn link(faults: &str) -> (Fault<SimPort>, SimPort, SimClock) {
    let end = EndConfig {
        io_frames: 16_384,
        tx_ring: 4096,
        rx_ring: 8192,
        ..EndConfig::default()
    };
    let config = LinkConfig {
        a: end,
        b: end,
        ..LinkConfig::default()
    };
    let (a, b, clock) = sim::link(&config, 0);
    let faults = faults.parse().unwrap();
    (Fault::new(a, Some(&faults)), b, clock)
}

fn frame<P: Port>(port: &P, number: u32) -> Frame {
    copy(port.pool(), &number.to_be_bytes()).unwrap()
}

/// Receives frames in batches of 16 until no more arrive, and returns their numbers.
fn receive<P: Port>(port: &mut P) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut batch = Batch::new();
    let mut empty = 0;
    // An empty batch does not prove that no frames are left, because all its frames may have been
    // dropped.
    while empty < 40 {
        port.receive(&mut batch, 16).unwrap();
        assert!(batch.len() <= 16);
        empty = if batch.is_empty() { empty + 1 } else { 0 };
        for frame in batch.drain(..) {
            numbers.push(u32::from_be_bytes(frame[..].try_into().unwrap()));
        }
    }
    numbers
}

/// Sends 4000 numbered frames to the port with faults. Returns the numbers of the frames that the
/// port delivers.
fn received(faults: &str) -> (Vec<u32>, FaultCounters) {
    let (mut a, mut b, _) = link(faults);
    let free = a.pool().available();
    for number in 0..4000 {
        let frame = frame(&b, number);
        b.send(frame).unwrap();
    }
    b.flush().unwrap();
    let numbers = receive(&mut a);
    assert_eq!(a.pool().available(), free, "no frame is kept");
    (numbers, a.fault_counters().0)
}

/// Sends 4000 numbered frames from the port with faults, ten per flush. Returns the numbers of the
/// frames that arrive.
fn sent(faults: &str) -> (Vec<u32>, FaultCounters) {
    let (mut a, mut b, _) = link(faults);
    let free = a.pool().available();
    for number in 0..4000 {
        let frame = frame(&a, number);
        a.send(frame).unwrap();
        if number % 10 == 9 {
            a.flush().unwrap();
        }
    }
    a.flush().unwrap();
    a.room();
    assert_eq!(a.pool().available(), free, "no frame is kept");
    (receive(&mut b), a.fault_counters().1)
}

/// Range for the number of events in 4000 draws with probability 0.1: the mean plus or minus five
/// standard deviations.
const ABOUT_400: std::ops::Range<u64> = 305..495;

#[test]
fn frames_are_dropped_at_the_configured_rate() {
    for (numbers, counters) in [received("drop=0.1,seed=5"), sent("drop=0.1,seed=5")] {
        assert!(ABOUT_400.contains(&counters.dropped), "{counters:?}");
        assert_eq!(counters.frames, 4000);
        assert_eq!(numbers.len() as u64, 4000 - counters.dropped);
        assert!(numbers.is_sorted());
    }
}

#[test]
fn frames_are_duplicated_at_the_configured_rate() {
    for (mut numbers, counters) in [
        received("duplicate=0.1,seed=5"),
        sent("duplicate=0.1,seed=5"),
    ] {
        assert!(ABOUT_400.contains(&counters.duplicated), "{counters:?}");
        assert_eq!(numbers.len() as u64, 4000 + counters.duplicated);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4000, "each frame arrives");
    }
}

#[test]
fn frames_are_reordered_at_the_configured_rate() {
    for (mut numbers, counters) in [received("reorder=0.1,seed=5"), sent("reorder=0.1,seed=5")] {
        assert!(ABOUT_400.contains(&counters.reordered), "{counters:?}");
        let late = numbers.windows(2).filter(|w| w[0] > w[1]).count();
        assert!(late > 200, "only {late} were overtaken");
        numbers.sort_unstable();
        assert!(
            numbers.iter().copied().eq(0..4000),
            "each frame arrives once"
        );
    }
}

#[test]
fn frames_are_corrupted_at_the_configured_rate_by_one_bit() {
    for (numbers, counters) in [received("corrupt=0.1,seed=5"), sent("corrupt=0.1,seed=5")] {
        assert!(ABOUT_400.contains(&counters.corrupted), "{counters:?}");
        let wrong = numbers.iter().zip(0..).filter(|&(&n, i)| n != i);
        let wrong: Vec<u32> = wrong.map(|(&n, i)| (n ^ i).count_ones()).collect();
        assert_eq!(wrong.len() as u64, counters.corrupted);
        assert!(wrong.iter().all(|&bits| bits == 1));
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_directions_are_independent() {
    let faults = "drop=0.1,duplicate=0.1,reorder=0.1,corrupt=0.1";
    let run = |seed| received(&format!("{faults},seed={seed}"));
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert_eq!(received("tx-drop=1").0.len(), 4000);
    assert_eq!(sent("rx-drop=1").0.len(), 4000);
    assert_eq!(sent("drop=1").0.len(), 0);
}

#[test]
fn hold_sets_how_many_frames_overtake_a_held_back_frame() {
    let (mut a, mut b, _) = link("hold=2");
    a.faults.as_mut().unwrap().sent.rates.reorder = 1.0;
    let first = frame(&a, 0);
    a.send(first).unwrap();
    a.faults.as_mut().unwrap().sent.rates.reorder = 0.0;
    for number in 1..5 {
        let frame = frame(&a, number);
        a.send(frame).unwrap();
    }
    a.flush().unwrap();
    assert_eq!(receive(&mut b), [1, 2, 0, 3, 4]);
}

#[test]
fn faults_leave_a_resident_packet_unchanged_and_available() {
    for (faults, arrived) in [
        ("drop=1", 0),
        ("corrupt=1", 1),
        ("reorder=1", 1),
        ("duplicate=1", 2),
    ] {
        let (mut a, mut b, _) = link(faults);
        let mut packet = a.pool().make_resident(&[0; 4]).unwrap();
        a.send_resident(packet.idle().unwrap()).unwrap();
        let in_flight = packet.in_flight();
        assert_eq!(in_flight, faults == "duplicate=1", "{faults}");
        a.flush().unwrap();
        a.room();
        assert_eq!(*packet.idle().unwrap(), [0; 4], "{faults}");
        let numbers = receive(&mut b);
        assert_eq!(numbers.len(), arrived, "{faults}");
        let bits = u32::from(faults == "corrupt=1");
        assert!(numbers.iter().all(|n| n.count_ones() == bits), "{faults}");
    }
}

#[test]
fn room_is_reliable_with_held_back_and_duplicated_frames() {
    let end = EndConfig {
        tx_ring: 8,
        ..EndConfig::default()
    };
    let config = LinkConfig {
        a: end,
        a_to_b: PathConfig {
            line_rate: 1,
            ..PathConfig::default()
        },
        ..LinkConfig::default()
    };
    for seed in 0..50 {
        let (a, _b, clock) = sim::link(&config, 0);
        let faults = format!("drop=0.2,reorder=0.5,duplicate=0.5,seed={seed}");
        let mut a = Fault::new(a, Some(&faults.parse().unwrap()));
        let mut packets: Vec<_> = (0..4)
            .map(|_| a.pool().make_resident(&[0; 4]).unwrap())
            .collect();
        for _ in 0..20 {
            for i in 0..a.room() {
                if let Some(packet) = packets.get_mut(i).and_then(Resident::idle) {
                    a.send_resident(packet).unwrap();
                } else {
                    let frame = frame(&a, 0);
                    a.send(frame).unwrap();
                }
            }
            a.flush().unwrap();
            if a.room() == 0 {
                let full = a.counters().tx_ring_full;
                let frame = frame(&a, 0);
                assert_eq!(a.send(frame), Err(SendError::RingFull));
                assert_eq!(a.counters().tx_ring_full, full + 1);
            }
            clock.advance(Duration::from_secs(64));
        }
    }
}

#[test]
fn a_flush_sends_held_back_frames() {
    let (mut a, mut b, _) = link("reorder=1,hold=100");
    for number in 0..5 {
        let frame = frame(&a, number);
        a.send(frame).unwrap();
    }
    a.flush().unwrap();
    assert_eq!(receive(&mut b), [0, 1, 2, 3, 4]);
}

#[test]
fn a_pause_releases_held_back_frames_without_a_wait() {
    let (mut a, mut b, clock) = link("reorder=1,hold=100");
    let first = frame(&b, 7);
    b.send(first).unwrap();
    b.flush().unwrap();
    let mut batch = Batch::new();
    a.receive(&mut batch, 16).unwrap();
    assert!(batch.is_empty());
    let mut state = LoopState::new(&LoopConfig::default(), clock.now());
    let echo = Echo::default();
    let mut wait_idle = |port: &mut _| state.rest(port, &echo, Instant::FAR, clock.now());
    wait_idle(&mut a).unwrap();
    assert_eq!(
        clock.now(),
        Instant::ZERO,
        "the port does not wait for a held-back frame"
    );
    a.receive(&mut batch, 16).unwrap();
    assert_eq!(batch.len(), 1);
    batch.clear();
    wait_idle(&mut a).unwrap();
    assert_eq!(
        clock.now(),
        Instant::ZERO + STOP_CHECK,
        "with no held-back frame the port waits"
    );
}

#[test]
fn without_faults_everything_is_forwarded() {
    let (a, mut b, _) = sim::link(&LinkConfig::default(), 0);
    let mut a = Fault::new(a, None);
    let mut packet = a.pool().make_resident(&[0; 4]).unwrap();
    a.send_resident(packet.idle().unwrap()).unwrap();
    assert!(packet.idle().is_none());
    let first = frame(&a, 1);
    a.send(first).unwrap();
    assert_eq!(a.room(), a.inner_mut().room());
    assert!(a.flush().unwrap());
    assert_eq!(receive(&mut b), [0, 1]);
    assert_eq!(a.counters(), a.inner().counters());
    assert_eq!(a.capabilities(), a.inner().capabilities());
    assert_eq!(a.fault_counters(), Default::default());
}

/// Echoes every intact request. A request consists of a number and the number's complement.
#[derive(Default)]
struct Echo {
    answered: u32,
    corrupted: u32,
}

fn parse_request(packet: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(packet.get(..4)?.try_into().ok()?);
    (packet[4..] == (!number).to_be_bytes()).then_some(number)
}

impl<P: Port> Handler<P> for Echo {
    fn handle_frame(&mut self, port: &mut P, frame: Frame, _now: Instant) {
        if parse_request(&frame).is_none() {
            self.corrupted += 1;
        } else if port.send(frame).is_ok() {
            self.answered += 1;
        }
    }

    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends each number repeatedly until it is answered. At most `WINDOW` numbers are unanswered at
/// the same time.
struct Client {
    next: u32,
    total: u32,
    due: BTreeMap<u32, Instant>,
    requests: u32,
}

const WINDOW: usize = 16;
const RETRY: Duration = Duration::from_millis(50);

impl Client {
    fn done(&self) -> bool {
        self.next == self.total && self.due.is_empty()
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, _now: Instant) {
        if let Some(number) = parse_request(&frame) {
            self.due.remove(&number);
        }
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        while self.due.len() < WINDOW && self.next < self.total {
            self.due.insert(self.next, now);
            self.next += 1;
        }
        for (number, due) in self.due.iter_mut().filter(|(_, due)| **due <= now) {
            let Some(mut frame) = port.pool().take() else {
                return;
            };
            frame.set_len(8);
            frame[..4].copy_from_slice(&number.to_be_bytes());
            frame[4..].copy_from_slice(&(!number).to_be_bytes());
            if port.send(frame).is_ok() {
                *due = now + RETRY;
                self.requests += 1;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }
}

#[test]
fn the_event_loop_works_with_all_faults_at_once() {
    let path = PathConfig {
        delay: Duration::from_millis(2),
        rate: 10_000_000,
        loss: 0.05,
        ..PathConfig::default()
    };
    let (a, b, clock) = sim::link(&LinkConfig::symmetric(path), 11);
    let free = (a.pool().available(), b.pool().available());
    let faults = "drop=0.1,duplicate=0.1,reorder=0.1,corrupt=0.1,seed=3"
        .parse()
        .unwrap();
    let mut client = Fault::new(a, None);
    let mut server = Fault::new(Pcap::new(b, None).unwrap(), Some(&faults));
    let mut requester = Client {
        next: 0,
        total: 2000,
        due: BTreeMap::new(),
        requests: 0,
    };
    let mut echo = Echo::default();
    let ended = sim::run_until(
        &clock,
        (&mut client, &mut requester),
        (&mut server, &mut echo),
        &LoopConfig::default(),
        Instant::from_millis(600_000),
        |requester, _| requester.done(),
    )
    .unwrap();
    assert!(ended, "every number is answered");
    assert!(requester.requests > 2000 && echo.answered > 2000 && echo.corrupted > 50);
    let (received, sent) = server.fault_counters();
    for counters in [received, sent] {
        assert!(counters.dropped.min(counters.duplicated) > 50);
        assert!(counters.reordered.min(counters.corrupted) > 50);
    }
    clock.advance(Duration::from_secs(10));
    let _ = (receive(&mut client), receive(&mut server));
    assert_eq!(client.pool().available(), free.0, "no frame is lost");
    assert_eq!(server.pool().available(), free.1, "no frame is lost");
}

#[test]
fn run_works_with_faults_until_it_is_stopped() {
    /// Echoes requests, and stops the loop when the request with the given number arrives.
    struct StopAt<'a>(Echo, u32, &'a crate::Stop);
    impl<P: Port> Handler<P> for StopAt<'_> {
        fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
            if parse_request(&frame) == Some(self.1) {
                self.2.request();
            }
            self.0.handle_frame(port, frame, now);
        }
        fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
    }
    let (mut server, mut client, clock) =
        link("rx-reorder=0.5,rx-drop=0.2,tx-drop=0.2,hold=5,seed=8");
    for number in 0..1000u32 {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend((!number).to_be_bytes());
        let frame = copy(client.pool(), &bytes).unwrap();
        client.send(frame).unwrap();
    }
    client.flush().unwrap();
    let stop = crate::Stop::new();
    let mut stop_at = StopAt(Echo::default(), 998, &stop);
    crate::run(
        &mut server,
        &mut stop_at,
        &clock,
        &LoopConfig::default(),
        &stop,
    )
    .unwrap();
    let (received, sent) = server.fault_counters();
    assert!(received.dropped > 150, "{received:?}");
    assert_eq!(sent.frames, u64::from(stop_at.0.answered));
    let mut batch = Batch::new();
    let mut answers = 0;
    while {
        client.receive(&mut batch, 64).unwrap();
        !batch.is_empty()
    } {
        answers += batch.drain(..).count() as u64;
    }
    assert_eq!(answers, sent.frames - sent.dropped);
}
