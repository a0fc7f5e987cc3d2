//! Tests of the simulated link: times, losses, rings, and the two functions that can drive it,
//! `run` and `run_until`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn micros(n: u64) -> Instant {
    Instant::from_nanos(n * 1000)
}

fn frame(port: &SimPort, packet: &[u8]) -> Frame {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(packet.len());
    frame.copy_from_slice(packet);
    frame
}

fn send(port: &mut SimPort, packet: &[u8]) {
    let frame = frame(port, packet);
    port.send(frame).unwrap();
}

/// Returns all packets that have arrived.
fn receive(port: &mut SimPort) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut batch = Batch::new();
    loop {
        port.receive(&mut batch, 32).unwrap();
        if batch.is_empty() {
            return packets;
        }
        packets.extend(batch.drain(..).map(|frame| frame.to_vec()));
    }
}

/// Sends `n` numbered frames over `path`, one per millisecond. Returns each frame's arrival time
/// and number, and the path's counters.
fn trace(path: PathConfig, n: u32, seed: u64) -> (Vec<(Instant, u32)>, PathCounters) {
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), seed);
    let mut arrived = Vec::new();
    let mut sent = 0;
    loop {
        let due = (sent < n).then(|| Instant::from_millis(u64::from(sent)));
        let Some(at) = Instant::earlier(due, clock.next_event()) else {
            break;
        };
        clock.advance_to(at);
        if due == Some(at) {
            send(&mut a, &sent.to_be_bytes());
            a.flush().unwrap();
            sent += 1;
        }
        let _ = a.room();
        for packet in receive(&mut b) {
            let number = u32::from_be_bytes(packet.try_into().unwrap());
            arrived.push((clock.now(), number));
        }
    }
    (arrived, a.path_counters())
}

#[test]
fn a_frame_takes_the_delay_and_its_serialization_time() {
    let path = PathConfig {
        line_rate: 1_000_000_000,
        rate: 8_000_000, // one byte per microsecond
        delay: 10 * MILLI,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    send(&mut a, &[1; 1000]);
    send(&mut a, &[2; 500]);
    assert_eq!(clock.next_event(), None, "nothing is sent before the flush");
    assert!(a.flush().unwrap());

    assert_eq!(
        clock.next_event(),
        Some(micros(8)),
        "the first frame has left"
    );
    let first = micros(8 + 1000 + 10_000);
    clock.advance_to(micros(11_007));
    assert!(receive(&mut b).is_empty());
    assert_eq!(a.room(), EndConfig::default().tx_ring);
    assert_eq!(clock.next_event(), Some(first));
    clock.advance_to(first);
    assert_eq!(receive(&mut b), [vec![1; 1000]]);
    assert_eq!(clock.next_event(), Some(micros(8 + 1500 + 10_000)));
    clock.advance(500 * MILLI);
    assert_eq!(receive(&mut b), [vec![2; 500]]);
    assert_eq!(clock.next_event(), None);
}

#[test]
fn the_bottleneck_drops_frames_if_its_queue_is_full() {
    let path = PathConfig {
        rate: 8_000_000,
        queue: 3,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    for i in 0..5 {
        send(&mut a, &[i; 1000]);
    }
    a.flush().unwrap();
    assert_eq!(a.path_counters().overflowed, 2);
    // The first frame has left the queue, so another frame fits.
    clock.advance_to(micros(1000));
    send(&mut a, &[5; 1000]);
    send(&mut a, &[6; 1000]);
    a.flush().unwrap();
    assert_eq!(a.path_counters().overflowed, 3);
    clock.advance(10 * MILLI);
    let firsts: Vec<u8> = receive(&mut b).iter().map(|packet| packet[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 5]);
}

#[test]
fn a_resident_packet_is_in_flight_until_it_has_left() {
    let path = PathConfig {
        line_rate: 8_000_000,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    let mut packet = a.pool().make_resident(&[7; 100]).unwrap();
    a.send_resident(packet.idle().unwrap()).unwrap();
    assert!(packet.idle().is_none());
    a.flush().unwrap();
    clock.advance_to(micros(99));
    a.room();
    assert!(packet.in_flight());
    clock.advance_to(micros(100));
    a.room();
    packet.idle().unwrap().fill(8);
    assert_eq!(
        receive(&mut b),
        [vec![7; 100]],
        "the bytes are those at the time of sending"
    );
}

/// Checks that sending a frame or resident from another port's pool panics. Checks that the
/// resident and the number of free frames in both pools are then unchanged.
fn refuses_foreign(port: &mut impl Port, other: &impl Port) {
    let own = port.pool().available();
    let others = other.pool().available();
    let frame = other.pool().take().unwrap();
    let mut packet = other.pool().make_resident(&[7; 60]).unwrap();
    let refuses = |send: &mut dyn FnMut()| {
        let message = catch_unwind(AssertUnwindSafe(send)).unwrap_err();
        let message = message.downcast::<&str>().unwrap();
        assert!(message.contains("does not belong"), "{message}");
    };
    let mut frame = Some(frame);
    refuses(&mut || port.send(frame.take().unwrap()).unwrap());
    refuses(&mut || port.send_resident(packet.idle().unwrap()).unwrap());
    assert_eq!(*packet.idle().unwrap(), [7; 60]);
    assert_eq!(port.counters().tx_frames, 0);
    assert_eq!(port.pool().available(), own);
    assert_eq!(other.pool().available(), others);
}

#[test]
fn packets_of_another_port_are_not_sent() {
    let (mut a, b, _) = link(&LinkConfig::default(), 0);
    refuses_foreign(&mut a, &b);
    refuses_foreign(&mut Sink::new(1500, 1, 1), &b);
}

#[test]
fn the_tx_ring_is_bounded() {
    let path = PathConfig {
        line_rate: 8_000_000,
        ..PathConfig::default()
    };
    let config = LinkConfig {
        a: EndConfig {
            tx_ring: 2,
            ..EndConfig::default()
        },
        ..LinkConfig::symmetric(path)
    };
    let (mut a, _b, clock) = link(&config, 0);
    let mut packet = a.pool().make_resident(&[0; 10]).unwrap();
    let available = a.pool().available();
    send(&mut a, &[1; 10]);
    assert_eq!(a.room(), 1);
    send(&mut a, &[2; 10]);
    a.flush().unwrap();
    let third = frame(&a, &[3; 10]);
    assert_eq!(a.send(third), Err(SendError::RingFull));
    assert_eq!(
        a.send_resident(packet.idle().unwrap()),
        Err(SendError::RingFull)
    );
    assert!(!packet.in_flight());
    assert_eq!(a.counters().tx_ring_full, 2);
    assert_eq!(
        a.pool().available(),
        available - 2,
        "two frames are in the ring"
    );
    let levels = a.levels();
    assert_eq!((levels.free, levels.sending), (available - 2, 2));
    clock.advance_to(micros(10));
    assert_eq!(a.room(), 1);
    assert_eq!(a.levels().sending, 1);
    a.send_resident(packet.idle().unwrap()).unwrap();
    clock.advance(MILLI);
    a.flush().unwrap();
    clock.advance(MILLI);
    assert_eq!(a.room(), 2);
    assert_eq!(a.pool().available(), available);
    assert_eq!(a.counters().tx_frames, 3);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let path = PathConfig {
        delay: 3 * MILLI,
        loss: 0.1,
        reorder: 0.2,
        reorder_delay: 5 * MILLI,
        duplicate: 0.1,
        ..PathConfig::default()
    };
    assert_eq!(trace(path, 500, 1), trace(path, 500, 1));
    assert_ne!(trace(path, 500, 1), trace(path, 500, 2));
}

#[test]
fn the_loss_rate_is_as_configured() {
    let loss = PathConfig {
        loss: 0.25,
        ..PathConfig::default()
    };
    let (arrived, counters) = trace(loss, 4000, 7);
    assert!((900..1100).contains(&counters.lost), "{counters:?}");
    assert_eq!(arrived.len() as u64, 4000 - counters.lost);

    let every = PathConfig {
        lose_every: 3,
        ..PathConfig::default()
    };
    let (arrived, counters) = trace(every, 9, 7);
    let numbers: Vec<u32> = arrived.into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, [0, 1, 3, 4, 6, 7]);
    assert_eq!(counters.lost, 3);
}

#[test]
fn delayed_frames_are_overtaken_and_duplicates_arrive_twice() {
    let reorder = PathConfig {
        reorder: 0.1,
        reorder_delay: Duration::from_micros(2500),
        ..PathConfig::default()
    };
    let (arrived, counters) = trace(reorder, 1000, 7);
    assert_eq!(arrived.len(), 1000);
    assert!((70..130).contains(&counters.reordered), "{counters:?}");
    let late = arrived
        .iter()
        .filter(|&&(at, n)| at > Instant::from_millis(u64::from(n)))
        .count();
    assert_eq!(late as u64, counters.reordered);
    assert!(arrived.windows(2).any(|pair| pair[0].1 > pair[1].1));

    let duplicate = PathConfig {
        duplicate: 1.0,
        ..PathConfig::default()
    };
    let (arrived, counters) = trace(duplicate, 10, 7);
    assert_eq!((arrived.len(), counters.duplicated), (20, 10));
}

#[test]
fn frames_without_room_at_the_receiver_are_lost_and_counted() {
    let mut config = LinkConfig::default();
    config.b.rx_ring = 4;
    let (mut a, mut b, _clock) = link(&config, 0);
    for i in 0..6 {
        send(&mut a, &[i]);
    }
    a.flush().unwrap();
    assert_eq!(receive(&mut b).len(), 4, "limited by the RX ring's slots");
    assert_eq!(b.counters().rx_lost, 2);

    config.b.io_frames = 3;
    config.b.mtu = 100;
    let (mut a, mut b, _clock) = link(&config, 0);
    send(&mut a, &[0; 1000]);
    for i in 0..4 {
        send(&mut a, &[i]);
    }
    a.flush().unwrap();
    assert_eq!(receive(&mut b).len(), 3, "limited by the pool's frames");
    assert_eq!(
        b.counters().rx_lost,
        2,
        "one frame too many, and one too long"
    );
}

#[test]
fn a_bounded_flush_leaves_the_rest_queued() {
    let mut config = LinkConfig::default();
    config.a.flush_budget = 2;
    let (mut a, mut b, _clock) = link(&config, 0);
    for i in 0..3 {
        send(&mut a, &[i]);
    }
    assert!(!a.flush().unwrap());
    assert_eq!(receive(&mut b).len(), 2);
    assert!(a.flush().unwrap());
    assert_eq!(receive(&mut b).len(), 1);
    let (sent, received) = (a.counters().tx_batches, b.counters().rx_batches);
    assert_eq!(
        sent.to_string(),
        "2-3: 1",
        "the first flush hands all three over"
    );
    assert_eq!(received.to_string(), "1: 1, 2-3: 1");
}

/// Echoes frames, and stops the loop after `left` frames.
struct Echo<'a> {
    left: u32,
    stop: &'a crate::Stop,
}

impl<P: Port> Handler<P> for Echo<'_> {
    fn handle_frame(&mut self, port: &mut P, frame: Frame, _now: Instant) {
        port.send(frame).unwrap();
        self.left -= 1;
        if self.left == 0 {
            self.stop.request();
        }
    }

    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn the_event_loop_runs_on_virtual_time() {
    let path = PathConfig {
        delay: 20 * MILLI,
        rate: 1_000_000,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    for i in 0..100u8 {
        send(&mut a, &[i; 125]); // takes 1 ms at this rate
    }
    a.flush().unwrap();
    let stop = crate::Stop::new();
    let mut echo = Echo {
        left: 100,
        stop: &stop,
    };
    crate::run(&mut b, &mut echo, &clock, &LoopConfig::default(), &stop).unwrap();
    assert_eq!(clock.now(), Instant::from_millis(120));
    clock.advance_to(Instant::from_millis(140));
    assert_eq!(
        receive(&mut a).len(),
        99,
        "the last frame is still on the way"
    );
    clock.advance(MILLI);
    assert_eq!(receive(&mut a), [[99; 125]]);
}

/// Sends a frame at each due time.
struct Ticker {
    due: VecDeque<Instant>,
    ran: Vec<Instant>,
    received: usize,
}

impl Ticker {
    fn new(due: &[u64]) -> Self {
        Self {
            due: due.iter().map(|&ms| Instant::from_millis(ms)).collect(),
            ran: Vec::new(),
            received: 0,
        }
    }
}

impl Handler<SimPort> for Ticker {
    fn handle_frame(&mut self, _port: &mut SimPort, _frame: Frame, _now: Instant) {
        self.received += 1;
    }

    fn handle_timers(&mut self, port: &mut SimPort, now: Instant) {
        if self.due.front().is_some_and(|&due| due <= now) {
            self.due.pop_front();
            self.ran.push(now);
            send(port, b"tick");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.front().copied()
    }
}

#[test]
fn the_driver_jumps_from_event_to_event() {
    let slow = PathConfig {
        delay: 30 * MILLI,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(slow), 0);
    let mut ticker = Ticker::new(&[5, 7, 100_000]);
    let mut other = Ticker::new(&[]);
    let mut passes = 0;
    let ended = run_until(
        &clock,
        (&mut a, &mut ticker),
        (&mut b, &mut other),
        &LoopConfig::default(),
        Instant::from_millis(200_000),
        |_, other| {
            passes += 1;
            other.received == 3
        },
    )
    .unwrap();
    assert!(ended);
    let times: Vec<u64> = ticker.ran.iter().map(|at| at.as_micros()).collect();
    assert_eq!(times, [5_000, 7_000, 100_000_000]);
    assert_eq!(clock.now(), Instant::from_millis(100_030));
    assert!(passes < 1_100, "at most one pass per stop check: {passes}");
}

#[test]
fn the_driver_ends_at_its_deadline_even_if_a_timer_is_always_due() {
    /// A handler whose timer has always expired already.
    struct Restless;
    impl Handler<SimPort> for Restless {
        fn handle_frame(&mut self, _port: &mut SimPort, _frame: Frame, _now: Instant) {}
        fn handle_timers(&mut self, _port: &mut SimPort, _now: Instant) {}
        fn poll_timeout(&self) -> Option<Instant> {
            Some(Instant::ZERO)
        }
    }
    let (mut a, mut b, clock) = link(&LinkConfig::default(), 0);
    let ended = run_until(
        &clock,
        (&mut a, &mut Restless),
        (&mut b, &mut Restless),
        &LoopConfig::default(),
        Instant::from_millis(1),
        |_, _| false,
    )
    .unwrap();
    assert!(!ended);
    assert_eq!(clock.now(), Instant::from_millis(1));
}

#[test]
fn several_links_share_a_clock() {
    let clock = SimClock::new();
    let path = |ms| PathConfig {
        delay: ms * MILLI,
        ..PathConfig::default()
    };
    let (mut a, _b) = link_on(&clock, &LinkConfig::symmetric(path(9)), 0);
    let (mut c, mut d) = link_on(&clock, &LinkConfig::symmetric(path(4)), 0);
    send(&mut a, b"far");
    a.flush().unwrap();
    a.room();
    assert_eq!(clock.next_event(), Some(Instant::from_millis(9)));
    send(&mut c, b"near");
    c.flush().unwrap();
    c.room();
    assert_eq!(clock.next_event(), Some(Instant::from_millis(4)));
    clock.advance_to(Instant::from_millis(4));
    assert_eq!(receive(&mut d), [b"near"]);
    clock.advance_to(Instant::ZERO);
    assert_eq!(clock.now(), Instant::from_millis(4), "time never goes back");
}

/// Returns the length of each gap in the sequence of frame numbers that arrived. `n` is the number
/// of frames sent.
fn gaps(arrived: &[(Instant, u32)], n: u32) -> Vec<u32> {
    let mut gaps = Vec::new();
    let mut expected = 0;
    let end = (Instant::ZERO, n);
    for &(_, number) in arrived.iter().chain([&end]) {
        if number > expected {
            gaps.push(number - expected);
        }
        expected = number + 1;
    }
    gaps
}

#[test]
fn bursts_lose_consecutive_frames() {
    let path = PathConfig {
        bursts: Bursts {
            good: 95 * MILLI,
            bad: 5 * MILLI,
            loss: 1.0,
        },
        ..PathConfig::default()
    };
    let (arrived, counters) = trace(path, 20_000, 7);
    let gaps = gaps(&arrived, 20_000);
    assert!((160..240).contains(&gaps.len()), "{}", gaps.len());
    let lost: u64 = gaps.iter().map(|&gap| u64::from(gap)).sum();
    assert_eq!(lost, counters.lost);
    let mean = lost as f64 / gaps.len() as f64;
    assert!((4.0..6.0).contains(&mean), "{mean}");
    assert!(gaps.iter().all(|&gap| gap <= 10), "{gaps:?}");

    let mut milder = path;
    milder.bursts.loss = 0.5;
    let (_, halved) = trace(milder, 20_000, 7);
    let share = halved.lost as f64 / lost as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn a_frame_too_long_for_the_path_is_lost() {
    let path = PathConfig {
        max_frame: 100,
        ..PathConfig::default()
    };
    let (mut a, mut b, _clock) = link(&LinkConfig::symmetric(path), 0);
    for len in [100, 101, 99] {
        send(&mut a, &vec![0; len]);
    }
    a.flush().unwrap();
    let lens: Vec<usize> = receive(&mut b).iter().map(Vec::len).collect();
    assert_eq!(lens, [100, 99]);
    assert_eq!(a.path_counters().too_long, 1);
}

#[test]
fn a_queue_is_bounded_in_bytes_too() {
    let path = PathConfig {
        rate: 8_000_000,
        queue_bytes: 1500,
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    for len in [1000, 501, 500, 1] {
        send(&mut a, &vec![0; len]);
    }
    a.flush().unwrap();
    assert_eq!(a.path_counters().overflowed, 2);
    clock.advance_to(micros(1000));
    send(&mut a, &[0; 1000]);
    a.flush().unwrap();
    clock.advance(10 * MILLI);
    let lens: Vec<usize> = receive(&mut b).iter().map(Vec::len).collect();
    assert_eq!(lens, [1000, 500, 1000]);
}

#[test]
fn a_queue_marks_or_drops_frames_that_waited_long() {
    fn mark(frame: &mut [u8]) -> bool {
        frame[1] += 1;
        frame[0] != 3
    }
    let path = PathConfig {
        rate: 8_000_000,
        mark: Some(Mark {
            above: MILLI,
            with: mark,
        }),
        ..PathConfig::default()
    };
    let (mut a, mut b, clock) = link(&LinkConfig::symmetric(path), 0);
    for i in 0..5 {
        let mut packet = [0; 1000];
        packet[0] = i;
        send(&mut a, &packet);
    }
    a.flush().unwrap();
    clock.advance(10 * MILLI);
    let marks: Vec<[u8; 2]> = (receive(&mut b).iter())
        .map(|packet| [packet[0], packet[1]])
        .collect();
    // The second frame waits exactly a millisecond, which does not exceed the limit, so it is not
    // marked.
    assert_eq!(marks, [[0, 0], [1, 0], [2, 1], [4, 1]]);
    let counters = a.path_counters();
    assert_eq!((counters.marked, counters.lost), (2, 1));
}
