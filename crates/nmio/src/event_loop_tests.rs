//! Tests of the event loop. Most of them run it on a scripted port that records the loop's calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use crate::frame::{IdleResident, Pool, PoolLayout};
use crate::idle::STOP_CHECK;
use crate::port::{Capabilities, PortCounters, PortHints, PortLevels, SendError, Wait};
use crate::sim::{self, LinkConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// A call of `receive`, and the number of frames that it returned.
    Receive(usize),
    Flush,
    Wait(Duration),
    Poll,
}

/// A port that returns scripted results, and records how it was called.
struct Scripted {
    pool: Pool,
    hints: PortHints,
    /// Number of frames that each `receive` returns, in order. Later calls return 0.
    arrivals: VecDeque<usize>,
    /// Number of slots in the TX ring. Each received frame takes one until a flush returns `true`.
    slots: usize,
    queued: usize,
    /// Result of each flush, in order. Later flushes return `true`.
    flushes: VecDeque<bool>,
    calls: Rc<RefCell<Vec<Call>>>,
    /// Set when the script ends, which stops the loop.
    stop: Rc<Stop>,
}

impl Port for Scripted {
    fn capabilities(&self) -> Capabilities {
        unreachable!("the loop does not need the capabilities")
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        assert!(batch.is_empty());
        let arrived = self.arrivals.pop_front().unwrap_or(0);
        let count = arrived.min(limit);
        if count < arrived {
            self.arrivals.push_front(arrived - count);
        }
        self.queued += count;
        batch.extend((0..count).map_while(|_| self.pool.take()));
        self.calls.borrow_mut().push(Call::Receive(batch.len()));
        Ok(())
    }

    fn send(&mut self, _: Frame) -> Result<(), SendError> {
        Ok(())
    }

    fn send_resident(&mut self, _: IdleResident<'_>) -> Result<(), SendError> {
        Ok(())
    }

    fn send_super(&mut self, _packet: crate::SuperSegment) -> Result<(), SendError> {
        panic!("{}", crate::super_segment::NO_SUPER_SEGMENTS)
    }

    fn room(&mut self) -> usize {
        self.slots - self.queued
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.calls.borrow_mut().push(Call::Flush);
        let flushed = self.flushes.pop_front().unwrap_or(true);
        if flushed {
            self.queued = 0;
        }
        Ok(flushed)
    }

    fn hints(&self) -> PortHints {
        self.hints
    }

    fn wait(&mut self, timeout: Duration, _: Option<&Bell>) -> io::Result<()> {
        self.rest(Call::Wait(timeout));
        Ok(())
    }

    fn poll_device(&mut self, _: Duration, _: Option<&Bell>) -> io::Result<()> {
        self.rest(Call::Poll);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    fn levels(&self) -> PortLevels {
        PortLevels::of_pool(&self.pool)
    }
}

impl Scripted {
    fn rest(&mut self, call: Call) {
        self.calls.borrow_mut().push(call);
        if self.arrivals.is_empty() && self.flushes.is_empty() {
            self.stop.request();
        }
    }
}

/// A clock that advances by a fixed step with each reading.
struct Ticking(std::cell::Cell<Instant>, Duration);

impl Clock for Ticking {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + self.1);
        self.0.get()
    }
}

/// A handler that counts frames. A test can set the timer, the flood, and how long the connections
/// take to close.
#[derive(Default)]
struct Counting {
    frames: usize,
    due: Option<Instant>,
    flooded_until: Option<Instant>,
    /// Number of `handle_stop` calls after which all connections are closed.
    stops: usize,
    /// Number of flushes after the first `handle_stop` call that leave packets queued.
    late: usize,
    /// When each batch was received, and when it was flushed, in units of `STEP`.
    flushed: Vec<(u64, u64)>,
}

impl Handler<Scripted> for Counting {
    fn handle_frame(&mut self, _: &mut Scripted, _: Frame, _: Instant) {
        self.frames += 1;
    }
    fn handle_timers(&mut self, _: &mut Scripted, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
    fn is_flooded(&self, now: Instant) -> bool {
        self.flooded_until.is_some_and(|until| now <= until)
    }
    fn note_flushed(&mut self, received: Instant, now: Instant) {
        let steps = |at: Instant| at.as_nanos() / STEP.as_nanos() as u64;
        self.flushed.push((steps(received), steps(now)));
    }
    fn handle_stop(&mut self, port: &mut Scripted, _: Instant) -> bool {
        let late = std::mem::take(&mut self.late);
        port.flushes.extend(std::iter::repeat_n(false, late));
        self.stops = self.stops.saturating_sub(1);
        self.stops == 0
    }
}

/// A handler with one timer.
struct Timed(Option<Instant>);

impl<P: Port> Handler<P> for Timed {
    fn handle_frame(&mut self, _: &mut P, _: Frame, _: Instant) {}
    fn handle_timers(&mut self, _: &mut P, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        self.0
    }
}

const BATCH: usize = 4;
const SLOTS: usize = 6;
const STEP: Duration = Duration::from_micros(30);
const MILLI: Duration = Duration::from_millis(1);

/// Runs a blocking loop to the end of the script, and returns its calls of the port.
fn calls(arrivals: &[usize], flushes: &[bool], handler: &mut Counting) -> Vec<Call> {
    let script = (arrivals, flushes);
    calls_of(Wait::Block, PortHints::default(), script, handler)
}

fn calls_of(
    wait: Wait,
    hints: PortHints,
    (arrivals, flushes): (&[usize], &[bool]),
    handler: &mut Counting,
) -> Vec<Call> {
    let stop = Rc::new(Stop::new());
    let calls = Rc::new(RefCell::new(Vec::new()));
    let mut port = Scripted {
        pool: Pool::on_heap(PoolLayout {
            stride: 64,
            capacity: 64,
            io_frames: BATCH as u32,
            resident_frames: 0,
        }),
        hints,
        slots: SLOTS,
        queued: 0,
        arrivals: arrivals.iter().copied().collect(),
        flushes: flushes.iter().copied().collect(),
        calls: Rc::clone(&calls),
        stop: Rc::clone(&stop),
    };
    let clock = Ticking(Instant::ZERO.into(), STEP);
    let config = LoopConfig {
        batch: BATCH,
        wait,
        ..LoopConfig::default()
    };
    run(&mut port, handler, &clock, &config, &stop).unwrap();
    calls.take()
}

use Call::{Flush, Poll, Receive, Wait as Waits};

#[test]
fn the_handler_learns_how_long_a_batch_waited_for_its_flush() {
    // The loop reads the clock before the first pass. A full batch is not flushed until 80 µs after
    // the last flush, so the first two batches are flushed with the third.
    let mut handler = Counting::default();
    calls(&[BATCH, BATCH, BATCH, 1, 0, 1], &[], &mut handler);
    assert_eq!(handler.flushed, [(2, 5), (5, 6), (7, 8)]);
    // The second pass receives nothing, and flushes the batch of the first. The loop then rests.
    let mut handler = Counting::default();
    calls(&[BATCH, 0, 0, 1], &[], &mut handler);
    assert_eq!(handler.flushed, [(2, 3), (5, 6)]);
}

#[test]
fn packets_are_flushed_when_the_ring_is_empty() {
    let mut handler = Counting::default();
    assert_eq!(
        calls(&[2], &[], &mut handler),
        [
            Receive(2),
            Flush,
            Receive(0),
            Flush,
            Waits(STOP_CHECK),
            Flush
        ],
        "the loop waits only after an empty ring, and flushes at the end"
    );
    assert_eq!(handler.frames, 2);
}

#[test]
fn packets_are_flushed_after_delta_t_while_the_ring_is_not_empty() {
    let mut handler = Counting::default();
    // Each batch takes 30 µs, so 80 µs have passed after the third batch.
    assert_eq!(
        calls(&[BATCH; 5], &[], &mut handler),
        [
            Receive(4),
            Receive(4),
            Receive(4),
            Flush,
            Receive(4),
            Receive(4),
            Receive(0),
            Flush,
            Waits(STOP_CHECK),
            Flush
        ]
    );
    assert_eq!(handler.frames, 20);
}

#[test]
fn the_loop_flushes_queued_packets_with_growing_delays() {
    let micros = Duration::from_micros;
    assert_eq!(
        calls(&[], &[false, false, true], &mut Counting::default()),
        [
            Receive(0),
            Flush,
            Waits(micros(50)),
            Receive(0),
            Flush,
            Waits(micros(100)),
            Receive(0),
            Flush,
            Waits(STOP_CHECK),
            Flush
        ]
    );
}

#[test]
fn packets_wait_in_the_rx_ring_while_the_tx_ring_is_full() {
    let waits = |micros| Waits(Duration::from_micros(micros));
    let mut handler = Counting::default();
    let mut flushes = [false; 9];
    flushes[8] = true;
    let calls = calls(&[3, 4, 2], &flushes, &mut handler);
    let mut expected = vec![Receive(3), Flush, Receive(3), Flush];
    for micros in [50, 100, 200, 400, 400, 400] {
        expected.extend([Receive(0), Flush, waits(micros)]);
    }
    // This flush makes room, so the loop does not wait before it receives the other packets.
    expected.extend([Receive(0), Flush, Receive(1), Flush, Receive(2), Flush]);
    expected.extend([Receive(0), Flush, Waits(STOP_CHECK), Flush]);
    assert_eq!(calls, expected);
    assert_eq!(handler.frames, 9);
}

#[test]
fn a_timer_ends_the_wait() {
    let mut handler = Counting {
        due: Some(Instant::ZERO + STEP * 2 + MILLI),
        ..Counting::default()
    };
    let seen = calls(&[], &[], &mut handler);
    assert_eq!(seen[2], Waits(MILLI), "the wait ends at the timer");
}

#[test]
fn a_loop_with_a_flooded_handler_does_not_sleep() {
    let mut handler = Counting {
        flooded_until: Some(Instant::ZERO + STEP * 4),
        ..Counting::default()
    };
    assert_eq!(
        calls(&[1], &[], &mut handler),
        [
            Receive(1),
            Flush,
            Receive(0),
            Flush,
            Receive(0),
            Flush,
            Receive(0),
            Flush,
            Waits(STOP_CHECK),
            Flush
        ]
    );
    // With busy polling, the flood changes nothing: the loop polls the device, or sleeps if the
    // port cannot poll.
    for (can_poll, rest) in [(true, Poll), (false, Waits(STOP_CHECK))] {
        let hints = PortHints {
            can_poll,
            ..PortHints::default()
        };
        let polling = calls_of(Wait::BusyPoll, hints, (&[], &[]), &mut handler);
        assert_eq!(polling, [Receive(0), Flush, rest, Flush]);
    }
}

#[test]
fn a_caller_may_end_the_wait_before_the_next_timer() {
    let (mut port, _peer, clock) = sim::link(&LinkConfig::default(), 0);
    let mut state = LoopState::new(&LoopConfig::default(), clock.now());
    for (latest, due, end) in [(1, None, 1), (3, Some(2), 2), (3, Some(4), 3)] {
        let handler = Timed(due.map(Instant::from_millis));
        let latest = Instant::from_millis(latest);
        state
            .rest(&mut port, &handler, latest, clock.now())
            .unwrap();
        assert_eq!(clock.now(), Instant::from_millis(end));
    }
}

#[test]
fn shutdown_ends_when_all_is_closed_and_sent_or_after_one_second() {
    let shutdown = |stops, late| {
        let mut handler = Counting {
            stops,
            late,
            ..Counting::default()
        };
        // The last wait sets the stop flag.
        let calls = calls(&[], &[], &mut handler);
        let waited = calls.iter().rposition(|call| matches!(call, Waits(_)));
        calls[waited.unwrap() + 1..].to_vec()
    };
    assert_eq!(shutdown(1, 0), [Flush]);
    assert_eq!(shutdown(3, 0), [Flush; 3]);
    assert_eq!(shutdown(1, 4), [Flush; 5]);
    let steps = (SHUTDOWN.as_micros() / STEP.as_micros()) as usize;
    assert_eq!(shutdown(usize::MAX, 0).len(), steps + 1);
}

/// A handler with a stop that is requested when a frame arrives. The drain is busy until a number
/// of further frames have arrived.
struct Draining<'a> {
    stop: &'a Stop,
    /// Whether the next frame requests that the drain ends.
    hurries: bool,
    frames_left: usize,
    /// Interval of the calls of `handle_drain`.
    interval: Duration,
    /// Times of the calls of `handle_drain` and `handle_stop`, in milliseconds.
    drained_at: Vec<u64>,
    stopped_at: Vec<u64>,
}

impl<P: Port> Handler<P> for Draining<'_> {
    fn handle_frame(&mut self, port: &mut P, frame: Frame, _: Instant) {
        if self.stop.is_requested() {
            self.frames_left -= 1;
            if self.hurries {
                self.stop.at_once();
            }
        }
        self.stop.request();
        port.send(frame).unwrap();
    }
    fn handle_timers(&mut self, _: &mut P, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn handle_drain(&mut self, _: &mut P, now: Instant) -> Drain {
        self.drained_at.push(now.as_micros() / 1_000);
        match self.frames_left {
            0 => Drain::Done,
            _ => Drain::Busy(now + self.interval),
        }
    }
    fn handle_stop(&mut self, _: &mut P, now: Instant) -> bool {
        self.stopped_at.push(now.as_micros() / 1_000);
        true
    }
}

/// Runs a loop with a drain of 10 ms on virtual time. Frames arrive every 4 ms, and the first one
/// requests the stop. Returns the times of the calls of `handle_drain` and `handle_stop`, and the
/// number of frames that came back.
fn drained(frames: usize, frames_left: usize, hurries: bool) -> (Vec<u64>, Vec<u64>, usize) {
    let path = sim::PathConfig {
        rate: 8 * 64 * 250,
        ..sim::PathConfig::default()
    };
    let config = LinkConfig {
        b_to_a: path,
        ..LinkConfig::default()
    };
    let (mut port, mut peer, clock) = sim::link(&config, 0);
    for _ in 0..frames {
        let mut frame = peer.pool().take().unwrap();
        frame.set_len(64);
        peer.send(frame).unwrap();
    }
    peer.flush().unwrap();
    let stop = Stop::new();
    let mut handler = Draining {
        stop: &stop,
        hurries,
        frames_left,
        interval: 3 * MILLI,
        drained_at: Vec::new(),
        stopped_at: Vec::new(),
    };
    let config = LoopConfig {
        drain: 10 * MILLI,
        ..LoopConfig::default()
    };
    run(&mut port, &mut handler, &clock, &config, &stop).unwrap();
    clock.advance(MILLI);
    let mut batch = Batch::new();
    peer.receive(&mut batch, MAX_BATCH).unwrap();
    (handler.drained_at, handler.stopped_at, batch.len())
}

#[test]
fn the_loop_drains_until_the_handler_is_done_or_the_time_is_over() {
    let nothing_to_do = drained(3, 0, false);
    assert_eq!(nothing_to_do, (vec![4], vec![4], 1));
    let done = drained(3, 2, false);
    assert_eq!(done, (vec![4, 7, 8, 8, 11, 12, 12], vec![12], 3));
    let too_late = drained(3, 9, false);
    assert_eq!(too_late, (vec![4, 7, 8, 8, 11, 12, 12], vec![14], 3));
    let hurried = drained(3, 9, true);
    assert_eq!(hurried, (vec![4, 7, 8], vec![8], 2));
}

#[test]
fn the_loop_does_not_wait_for_an_expired_timer() {
    let config = LoopConfig::default();
    let state = LoopState::new(&config, Instant::ZERO);
    let now = Instant::from_millis(5);
    for due in [Instant::ZERO, now] {
        assert_eq!(state.timeout(Some(due), now), Duration::ZERO);
    }
    assert_eq!(state.timeout(Some(now + MILLI), now), MILLI);
    assert_eq!(state.timeout(Some(Instant::FAR), now), STOP_CHECK);
    assert_eq!(state.timeout(None, now), STOP_CHECK);
}
