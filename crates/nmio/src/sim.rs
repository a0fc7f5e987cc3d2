//! Ports that do not use the kernel: a simulated link on virtual time, and a sink for benchmarks.
//!
//! [`link`] creates two ports in one process, joined by a simulated wire. Time passes only when the
//! [`SimClock`] is advanced, for example by [`run_until`].
//!
//! Delay, rate, queue, loss, reordering and duplication are configured for each direction. Random
//! events depend only on a seed, so a run can be reproduced exactly.
//!
//! [`run_until`] drives a [`Handler`] on each side and jumps from event to event. So a simulated
//! minute takes only as much real time as the handling of its packets.
//!
//! ```
//! use std::time::Duration;
//! use nmio::sim::{self, LinkConfig, PathConfig, SimPort};
//! use nmio::{Frame, Handler, Instant, LoopConfig, Port};
//!
//! /// Sends every frame back.
//! struct Echo;
//! impl Handler<SimPort> for Echo {
//!     fn handle_frame(&mut self, port: &mut SimPort, frame: Frame, _now: Instant) {
//!         port.send(frame).unwrap();
//!     }
//!     fn handle_timers(&mut self, _port: &mut SimPort, _now: Instant) {}
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//! }
//!
//! /// Stores the answer and its arrival time.
//! #[derive(Default)]
//! struct Asker(Option<(Instant, Vec<u8>)>);
//! impl Handler<SimPort> for Asker {
//!     fn handle_frame(&mut self, _port: &mut SimPort, frame: Frame, now: Instant) {
//!         self.0 = Some((now, frame.to_vec()));
//!     }
//!     fn handle_timers(&mut self, _port: &mut SimPort, _now: Instant) {}
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//! }
//!
//! let slow = PathConfig { delay: Duration::from_millis(25), ..PathConfig::default() };
//! let (mut client, mut server, clock) = sim::link(&LinkConfig::symmetric(slow), 42);
//!
//! let mut frame = client.pool().take().unwrap();
//! frame.set_len(5);
//! frame.copy_from_slice(b"hello");
//! client.send(frame).unwrap();
//! client.flush().unwrap();
//!
//! let mut asker = Asker::default();
//! let answered = sim::run_until(
//!     &clock,
//!     (&mut client, &mut asker),
//!     (&mut server, &mut Echo),
//!     &LoopConfig::default(),
//!     Instant::from_millis(1_000),
//!     |asker, _| asker.0.is_some(),
//! )
//! .unwrap();
//! assert!(answered);
//! assert_eq!(asker.0.unwrap(), (Instant::from_millis(50), b"hello".to_vec()));
//! ```

mod path;
mod sink;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::event_loop::{Handler, LoopConfig, LoopState};
use crate::frame::{Frame, IdleResident, Pool, PoolLayout, Sending};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, Port, PortCounters, PortHints, PortLevels, SendError};
use crate::super_segment::{self, SuperSegment};
use crate::time::{Clock, Instant};

pub use path::{Bursts, Mark, PathConfig, PathCounters};
use path::{PASS_TIME, Path};
pub use sink::Sink;

/// Maximum size of a frame's link header, in bytes: Ethernet with one VLAN tag.
const LINK_HEADERS: usize = 18;
/// Alignment of frames, in bytes: one cache line.
const FRAME_ALIGN: usize = 64;

/// Configuration of one end of a link.
#[derive(Clone, Copy, Debug)]
pub struct EndConfig {
    /// Maximum length of an IP packet, in bytes.
    pub mtu: usize,
    /// Number of frames for received packets and scratch frames. A frame that arrives while all of
    /// them are in use is lost.
    pub io_frames: u32,
    /// Number of frames reserved for resident packets.
    pub resident_frames: u32,
    /// Number of slots in the TX ring. A sent frame occupies a slot until it has been transmitted
    /// at [`PathConfig::line_rate`].
    pub tx_ring: usize,
    /// Number of slots in the RX ring. A frame that arrives while the ring is full is lost.
    pub rx_ring: usize,
    /// Maximum number of frames that one flush transmits. This simulates a kernel's limit per
    /// wakeup. 0: unlimited.
    pub flush_budget: usize,
    /// Value of [`Capabilities::partial_checksums`].
    pub partial_checksums: bool,
    /// How super-segments are segmented, or `None` if the port does not support super-segments.
    pub segmentation: Option<Segmentation>,
}

/// How an end segments super-segments. The link does not know the protocol, so the caller provides
/// a function that writes the segments.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation {
    /// Maximum length of a super-segment, in bytes; see [`Capabilities::segmentation`].
    pub largest: usize,
    /// Writes segment number `index` (from 0) of a super-segment, with its headers, to an empty
    /// vector.
    pub write_segment: fn(packet: &SuperSegment, index: usize, frame: &mut Vec<u8>),
}

impl Default for EndConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            io_frames: 2048,
            resident_frames: 1024,
            tx_ring: 512,
            rx_ring: 512,
            flush_budget: 0,
            partial_checksums: false,
            segmentation: None,
        }
    }
}

impl EndConfig {
    fn pool(&self) -> Pool {
        Pool::on_heap(frame_layout(self.mtu, self.io_frames, self.resident_frames))
    }
}

/// Returns the layout of a pool whose frames hold IP packets of up to `mtu` bytes.
fn frame_layout(mtu: usize, io_frames: u32, resident_frames: u32) -> PoolLayout {
    let capacity = mtu + LINK_HEADERS;
    PoolLayout {
        stride: capacity.next_multiple_of(FRAME_ALIGN),
        capacity,
        io_frames,
        resident_frames,
    }
}

/// Configuration of a link: two ends, and a path in each direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkConfig {
    /// Configuration of the first port.
    pub a: EndConfig,
    /// Configuration of the second port.
    pub b: EndConfig,
    /// The path from the first port to the second.
    pub a_to_b: PathConfig,
    /// The path from the second port to the first.
    pub b_to_a: PathConfig,
}

impl LinkConfig {
    /// Returns a link configuration with the same path in both directions and default ends.
    pub fn symmetric(path: PathConfig) -> Self {
        Self {
            a_to_b: path,
            b_to_a: path,
            ..Self::default()
        }
    }
}

/// Creates a link with its own clock, which starts at [`Instant::ZERO`].
///
/// The same configuration, seed and calls always produce the same events.
pub fn link(config: &LinkConfig, seed: u64) -> (SimPort, SimPort, SimClock) {
    let clock = SimClock::new();
    let (a, b) = link_on(&clock, config, seed);
    (a, b, clock)
}

/// Creates a link on an existing clock. Several links on one clock can simulate several queues or
/// hosts.
pub fn link_on(clock: &SimClock, config: &LinkConfig, seed: u64) -> (SimPort, SimPort) {
    let mut seeds = fastrand::Rng::with_seed(seed);
    let mut path =
        |config: &PathConfig| Rc::new(RefCell::new(Path::new(config, seeds.fork(), clock.now())));
    let a_to_b = path(&config.a_to_b);
    let b_to_a = path(&config.b_to_a);
    let mut paths = clock.0.paths.borrow_mut();
    paths.push(Rc::clone(&a_to_b));
    paths.push(Rc::clone(&b_to_a));
    (
        SimPort::new(&config.a, clock, &a_to_b, &b_to_a),
        SimPort::new(&config.b, clock, &b_to_a, &a_to_b),
    )
}

/// A virtual clock that advances only when [`advance`](Self::advance) or
/// [`advance_to`](Self::advance_to) is called. All clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Rc<ClockState>);

#[derive(Debug, Default)]
struct ClockState {
    now: Cell<Instant>,
    paths: RefCell<Vec<Rc<RefCell<Path>>>>,
}

impl SimClock {
    /// Creates a clock without links that starts at [`Instant::ZERO`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances time by the given duration.
    pub fn advance(&self, by: Duration) {
        self.0.now.set(self.now() + by);
    }

    /// Advances time to `at`. Does nothing if `at` is in the past.
    pub fn advance_to(&self, at: Instant) {
        self.0.now.set(self.now().max(at));
    }

    /// Returns the time of the next event on the clock's links: a frame arrives or leaves a TX
    /// ring. If the time is not in the future, a port already has frames to receive or to reclaim.
    /// `None` means that no event is pending.
    pub fn next_event(&self) -> Option<Instant> {
        let paths = self.0.paths.borrow();
        paths
            .iter()
            .filter_map(|path| {
                let path = path.borrow();
                Instant::earlier(path.next_completion(), path.next_arrival())
            })
            .min()
    }
}

impl Clock for SimClock {
    #[inline]
    fn now(&self) -> Instant {
        self.0.now.get()
    }
}

/// One end of a simulated link. Created by [`link`] or [`link_on`].
///
/// A sent frame is inaccessible until it has left the TX ring. The port reclaims it at the next
/// call that receives or sends, and in [`room`](Port::room).
///
/// [`wait`](Port::wait) advances the clock to the port's next event or to the end of the timeout,
/// whichever is earlier. So the ordinary event loop, [`run`](crate::run), works on virtual time. It
/// does not work with [`Wait::Spin`](crate::Wait::Spin): a spinning loop never waits, so it never
/// advances the clock.
#[derive(Debug)]
pub struct SimPort {
    config: EndConfig,
    pool: Pool,
    clock: SimClock,
    /// Packets that were queued but not flushed yet.
    queued: VecDeque<Sending>,
    outbound: Rc<RefCell<Path>>,
    inbound: Rc<RefCell<Path>>,
    counters: PortCounters,
    /// Value of `counters.tx_frames` at the last flush.
    handed_over: u64,
}

impl SimPort {
    fn new(
        config: &EndConfig,
        clock: &SimClock,
        outbound: &Rc<RefCell<Path>>,
        inbound: &Rc<RefCell<Path>>,
    ) -> Self {
        Self {
            config: *config,
            pool: config.pool(),
            clock: clock.clone(),
            queued: VecDeque::with_capacity(config.tx_ring),
            outbound: Rc::clone(outbound),
            inbound: Rc::clone(inbound),
            counters: PortCounters::default(),
            handed_over: 0,
        }
    }

    /// Returns the counters of the path that this port sends over.
    pub fn path_counters(&self) -> PathCounters {
        self.outbound.borrow().counters()
    }

    /// Reclaims frames that have left the TX ring, and returns the number of free slots.
    fn reap(&mut self) -> usize {
        let now = self.clock.now();
        let mut outbound = self.outbound.borrow_mut();
        outbound.complete(now);
        self.config
            .tx_ring
            .saturating_sub(self.queued.len() + outbound.in_ring())
    }

    /// Puts a packet into the TX ring.
    fn queue(&mut self, packet: Sending) {
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += packet.len() as u64;
        self.queued.push_back(packet);
    }

    /// Moves arrived frames into the RX ring, and counts those without room as lost.
    fn fill(&mut self, now: Instant) {
        let mut inbound = self.inbound.borrow_mut();
        while let Some(bytes) = inbound.pop_arrived(now) {
            let frame = if inbound.ring.len() < self.config.rx_ring
                && bytes.len() <= self.pool.layout().capacity
            {
                self.pool.take()
            } else {
                None
            };
            if let Some(mut frame) = frame {
                frame.set_len(bytes.len());
                frame.copy_from_slice(&bytes);
                inbound.ring.push_back(frame);
            } else {
                self.counters.rx_lost += 1;
            }
            inbound.recycle(bytes);
        }
    }
}

impl Port for SimPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.config.mtu,
            zero_copy: false,
            partial_checksums: self.config.partial_checksums,
            segmentation: self.config.segmentation.map_or(0, |how| how.largest),
            min_segment: 0,
            min_run: 0,
            resident_frames: self.config.resident_frames,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        self.reap();
        self.fill(self.clock.now());
        let mut inbound = self.inbound.borrow_mut();
        while batch.len() < limit && !batch.is_full() {
            let Some(frame) = inbound.ring.pop_front() else {
                break;
            };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            batch.push(frame);
        }
        self.counters.rx_batches.count(batch.len());
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.reap() == 0 {
            self.counters.tx_ring_full += 1;
            return Err(SendError::RingFull);
        }
        let packet = frame.send(&self.pool);
        self.queue(packet);
        Ok(())
    }

    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        if self.reap() == 0 {
            self.counters.tx_ring_full += 1;
            return Err(SendError::RingFull);
        }
        let packet = packet.send(&self.pool);
        self.queue(packet);
        Ok(())
    }

    /// Segments the packet immediately. Each segment occupies one slot of the ring.
    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        let how = self
            .config
            .segmentation
            .expect(super_segment::NO_SUPER_SEGMENTS);
        let segments = packet.segments();
        let available = self.pool.available() as usize;
        if self.reap() < segments || available < segments {
            self.counters.tx_ring_full += 1;
            return Err(SendError::RingFull);
        }
        let mut bytes = Vec::new();
        for index in 0..segments {
            bytes.clear();
            (how.write_segment)(&packet, index, &mut bytes);
            let mut frame = self
                .pool
                .take()
                .expect("the pool has enough frames for all segments");
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            self.send(frame)?;
        }
        self.counters.tx_supers += 1;
        Ok(())
    }

    fn room(&mut self) -> usize {
        self.reap()
    }

    fn flush(&mut self) -> io::Result<bool> {
        if self.queued.is_empty() {
            return Ok(true);
        }
        self.counters.tx_wakeups += 1;
        let frames = self.counters.tx_frames - self.handed_over;
        self.handed_over = self.counters.tx_frames;
        self.counters.tx_batches.count(frames as usize);
        let budget = match self.config.flush_budget {
            0 => self.queued.len(),
            budget => budget.min(self.queued.len()),
        };
        let now = self.clock.now();
        let mut outbound = self.outbound.borrow_mut();
        for packet in self.queued.drain(..budget) {
            outbound.transmit(now, packet);
        }
        Ok(self.queued.is_empty())
    }

    fn hints(&self) -> PortHints {
        PortHints::default()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        if bell.is_some_and(Bell::is_rung) {
            return Ok(());
        }
        let event = Instant::earlier(
            self.inbound.borrow().next_arrival(),
            self.outbound.borrow().next_completion(),
        );
        let end = self.clock.now() + timeout;
        self.clock
            .advance_to(event.map_or(end, |event| event.min(end)));
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn levels(&self) -> PortLevels {
        let sending = self.queued.len() + self.outbound.borrow().in_ring();
        PortLevels {
            sending: sending as u32,
            ..PortLevels::of_pool(&self.pool)
        }
    }
}

/// Drives a handler on each side of a link, on virtual time.
///
/// Returns `true` when `done` returns true, and `false` when the clock reaches `deadline`. `done`
/// is called after each pass of both event loops.
///
/// After each pass, time jumps to the next link event, handler timer or straggler flush, whichever
/// is first. A jump is at most 100 ms long, and ends at `deadline` at the latest. Time advances by
/// only 1 µs if the first event is not in the future. The same is true if the pass received frames,
/// or if a message waits in a mailbox.
///
/// The ports may be wrapped, for example in a [`Pcap`](crate::Pcap).
///
/// # Errors
/// An error that one of the ports returned. A [`SimPort`] never fails.
pub fn run_until<PA, HA, PB, HB>(
    clock: &SimClock,
    a: (&mut PA, &mut HA),
    b: (&mut PB, &mut HB),
    config: &LoopConfig,
    deadline: Instant,
    mut done: impl FnMut(&HA, &HB) -> bool,
) -> io::Result<bool>
where
    PA: Port,
    HA: Handler<PA>,
    PB: Port,
    HB: Handler<PB>,
{
    let (port_a, handler_a) = a;
    let (port_b, handler_b) = b;
    let mut state_a = LoopState::new(config, clock.now());
    let mut state_b = LoopState::new(config, clock.now());
    loop {
        let now = clock.now();
        let received_a = state_a.pass(port_a, handler_a, now)?;
        let received_b = state_b.pass(port_b, handler_b, now)?;
        if done(handler_a, handler_b) {
            return Ok(true);
        }
        if now >= deadline {
            return Ok(false);
        }
        let mut next = now;
        if !received_a && !received_b {
            let is_rung = |bell: Option<&Bell>| bell.is_some_and(Bell::is_rung);
            if !is_rung(handler_a.bell()) && !is_rung(handler_b.bell()) {
                let sleep_a = state_a.timeout(handler_a.poll_timeout(), now);
                let sleep_b = state_b.timeout(handler_b.poll_timeout(), now);
                next = deadline.min(now + sleep_a.min(sleep_b));
                next = clock.next_event().map_or(next, |event| next.min(event));
            }
        }
        clock.advance_to(next.max(now + PASS_TIME));
    }
}

#[cfg(test)]
#[path = "sim_tests.rs"]
mod tests;
