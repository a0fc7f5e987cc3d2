//! A port that loses, doubles, reorders and corrupts what passes, on purpose.
//!
//! [`Fault`] wraps any port, so that the layers above can be shown to stand a
//! bad network where the kernel has no means to make one. What happens to
//! which frame is drawn from a seed. Faults are configured with words, as a
//! command line gives them:
//!
//! ```
//! use nmio::FaultConfig;
//!
//! let faults: FaultConfig = "drop=0.01,rx-corrupt=0.001,seed=42".parse()?;
//! assert_eq!(faults.sent.drop, 0.01);
//! assert_eq!(faults.to_string(), "drop=0.01,rx-corrupt=0.001,seed=42");
//!
//! let error = "dorp=0.01".parse::<FaultConfig>().unwrap_err();
//! assert!(error.to_string().starts_with("unknown fault `dorp`"));
//! # Ok::<(), nmio::FaultError>(())
//! ```
//!
//! A fault looks to the layers above as it would on the wire: a frame that is
//! dropped on sending was sent as far as they know, and a resident packet that
//! is dropped is simply not in flight. A resident packet itself is never
//! corrupted or held back; a copy is.
//!
//! `Fault<Pcap<P>>` records what is on the wire, `Pcap<Fault<P>>` what the
//! layers above see.

mod config;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::frame::{Frame, Pool, Resident};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, SendError};
use crate::super_segment::{self, SuperSegment};

pub use config::{FaultConfig, FaultError, FaultRates};

/// Frames held back at once in one direction, at most; also the doubles of
/// sent frames that may wait for a flush.
const MAX_HELD: usize = 32;
/// Received frames that are ready for the layers above, at most: what was
/// left of one batch, and another batch with each frame doubled.
const MAX_READY: usize = MAX_BATCH + 2 * MAX_BATCH + MAX_HELD;

/// What has been done to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Frames that came by.
    pub frames: u64,
    /// Of these, dropped.
    pub dropped: u64,
    /// Of these, doubled.
    pub duplicated: u64,
    /// Of these, held back.
    pub reordered: u64,
    /// Of these, with one bit flipped.
    pub corrupted: u64,
}

/// A port with faults; without any, a branch a call.
///
/// The [`counters`](Port::counters) are those of the port inside;
/// [`fault_counters`](Fault::fault_counters) tells what was done.
#[derive(Debug)]
pub struct Fault<P> {
    inner: P,
    faults: Option<Box<Faults>>,
}

#[derive(Debug)]
struct Faults {
    received: Direction,
    sent: Direction,
    /// Received frames that have met their faults, oldest first.
    ready: VecDeque<Frame>,
    /// Doubles of sent frames. They go out at the flush, into slots that
    /// nobody else wants: [`Port::room`] has promised the others.
    doubles: Vec<Frame>,
    /// Sends refused here because frames held back have the last slots.
    ring_full: u64,
}

/// One direction's draws and the frames that it holds back.
#[derive(Debug)]
struct Direction {
    rates: FaultRates,
    rng: fastrand::Rng,
    hold: u32,
    /// Each with the number of frames that must pass it yet.
    held: VecDeque<(Frame, u32)>,
    counters: FaultCounters,
}

/// What one frame meets.
#[derive(Clone, Copy, Debug)]
struct Fate {
    drop: bool,
    duplicate: bool,
    reorder: bool,
    corrupt: bool,
}

impl<P: Port> Fault<P> {
    /// Wraps a port; `None` lets everything pass.
    pub fn new(inner: P, config: Option<&FaultConfig>) -> Self {
        let faults = config.map(|config| {
            let mut seeds = fastrand::Rng::with_seed(config.seed);
            Box::new(Faults {
                received: Direction::new(config.received, config.hold, seeds.fork()),
                sent: Direction::new(config.sent, config.hold, seeds.fork()),
                ready: VecDeque::with_capacity(MAX_READY),
                doubles: Vec::with_capacity(MAX_HELD),
                ring_full: 0,
            })
        });
        Self { inner, faults }
    }

    /// The port inside.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The port inside, to be changed.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// What was done to received and to sent frames.
    pub fn fault_counters(&self) -> (FaultCounters, FaultCounters) {
        self.faults
            .as_ref()
            .map_or_else(Default::default, |f| (f.received.counters, f.sent.counters))
    }
}

impl<P: Port> Port for Fault<P> {
    /// With faults no super-segments are taken: it is frames that they happen
    /// to.
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.faults.is_some() {
            capabilities.segmentation = 0;
        }
        capabilities
    }

    #[inline(always)]
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    #[inline(always)]
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        match &mut self.faults {
            None => self.inner.receive(batch, limit),
            Some(faults) => faults.receive(&mut self.inner, batch, limit),
        }
    }

    #[inline(always)]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        match &mut self.faults {
            None => self.inner.send(frame),
            Some(faults) => faults.send(&mut self.inner, frame),
        }
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        match &mut self.faults {
            None => self.inner.send_resident(packet),
            Some(faults) => faults.send_resident(&mut self.inner, packet),
        }
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        assert!(self.faults.is_none(), "{}", super_segment::TAKES_NONE);
        self.inner.send_super(packet)
    }

    #[inline(always)]
    fn room(&mut self) -> usize {
        match &self.faults {
            None => self.inner.room(),
            Some(faults) => faults.room(&mut self.inner),
        }
    }

    #[inline(always)]
    fn flush(&mut self) -> io::Result<bool> {
        if let Some(faults) = &mut self.faults {
            faults.release_sent(&mut self.inner);
        }
        self.inner.flush()
    }

    #[inline(always)]
    fn hints(&self) -> PortHints {
        let hints = self.inner.hints();
        // A frame held back is like one in the ring: there is no need to wait.
        let has_received = self.faults.as_ref().is_some_and(|f| f.has_received());
        PortHints {
            ready: hints.ready || has_received,
            ..hints
        }
    }

    #[inline(always)]
    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.inner.wait(timeout, bell)
    }

    #[inline(always)]
    fn poll_device(&mut self) -> io::Result<()> {
        self.inner.poll_device()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        if let Some(faults) = &self.faults {
            counters.tx_ring_full += faults.ring_full;
        }
        counters
    }
}

impl Faults {
    fn receive<P: Port>(
        &mut self,
        inner: &mut P,
        batch: &mut Batch,
        limit: usize,
    ) -> io::Result<()> {
        // `ready` holds less than a batch of leftovers after the test, so it
        // never grows beyond MAX_READY.
        if self.ready.len() < limit.min(MAX_BATCH) {
            inner.receive(batch, limit)?;
            if batch.is_empty() {
                // A pause: whatever was held back is late enough.
                self.ready
                    .extend(self.received.held.drain(..).map(|(frame, _)| frame));
            }
            for frame in batch.drain(..) {
                self.pass_received(inner.pool(), frame);
            }
        }
        let n = self.ready.len().min(limit).min(MAX_BATCH);
        batch.extend(self.ready.drain(..n));
        Ok(())
    }

    fn pass_received(&mut self, pool: &Pool, mut frame: Frame) {
        let fate = self.received.draw();
        if fate.drop {
            return;
        }
        if fate.corrupt {
            self.received.corrupt(&mut frame);
        }
        let double = fate.duplicate.then(|| copy(pool, &frame)).flatten();
        self.received.counters.duplicated += u64::from(double.is_some());
        if fate.reorder {
            self.ready.extend(self.received.hold(frame).err());
            self.ready.extend(double);
        } else {
            self.ready.push_back(frame);
            self.ready.extend(double);
            self.received.age(|frame| self.ready.push_back(frame));
        }
    }

    /// Whether the next `receive` has something to give whatever the port
    /// inside has.
    fn has_received(&self) -> bool {
        !self.ready.is_empty() || !self.received.held.is_empty()
    }

    /// A frame held back takes a slot already: it was sent.
    fn room<P: Port>(&self, inner: &mut P) -> usize {
        inner.room().saturating_sub(self.sent.held.len())
    }

    fn send<P: Port>(&mut self, inner: &mut P, mut frame: Frame) -> Result<(), SendError> {
        if self.room(inner) == 0 {
            self.ring_full += 1;
            return Err(SendError::RingFull);
        }
        let fate = self.sent.draw();
        if fate.drop {
            return Ok(());
        }
        if fate.corrupt {
            self.sent.corrupt(&mut frame);
        }
        if fate.duplicate {
            self.double(inner.pool(), &frame);
        }
        if fate.reorder {
            return match self.sent.hold(frame) {
                Ok(()) => Ok(()),
                Err(frame) => inner.send(frame),
            };
        }
        inner.send(frame)?;
        self.age_sent(inner);
        Ok(())
    }

    fn send_resident<P: Port>(
        &mut self,
        inner: &mut P,
        packet: &mut Resident,
    ) -> Result<(), SendError> {
        let room = self.room(inner);
        let Some(bytes) = packet.bytes_mut() else {
            return Err(SendError::InFlight);
        };
        if room == 0 {
            self.ring_full += 1;
            return Err(SendError::RingFull);
        }
        let fate = self.sent.draw();
        if fate.drop {
            return Ok(());
        }
        // A copy takes the packet's place where the packet must not change or
        // be kept; without a scratch frame for it, the fault does not happen.
        let mut stand_in = None;
        if fate.corrupt || fate.reorder {
            stand_in = copy(inner.pool(), bytes);
        }
        if fate.corrupt
            && let Some(frame) = &mut stand_in
        {
            self.sent.corrupt(frame);
        }
        if fate.duplicate {
            self.double(inner.pool(), stand_in.as_deref().unwrap_or(bytes));
        }
        match stand_in {
            None => inner.send_resident(packet)?,
            Some(frame) if fate.reorder => {
                return match self.sent.hold(frame) {
                    Ok(()) => Ok(()),
                    Err(frame) => inner.send(frame),
                };
            }
            Some(frame) => inner.send(frame)?,
        }
        self.age_sent(inner);
        Ok(())
    }

    /// Keeps a double of a sent packet for the flush.
    fn double(&mut self, pool: &Pool, packet: &[u8]) {
        if self.doubles.len() < MAX_HELD
            && let Some(frame) = copy(pool, packet)
        {
            self.doubles.push(frame);
            self.sent.counters.duplicated += 1;
        }
    }

    /// Sends what enough frames have passed.
    fn age_sent<P: Port>(&mut self, inner: &mut P) {
        // Their slots were kept by `room`, so none is refused.
        self.sent.age(|frame| {
            let _ = inner.send(frame);
        });
    }

    /// Sends all that is held: nothing may stay behind a flush. Doubles that
    /// find no slot are dropped, like those of a wire that is full.
    fn release_sent<P: Port>(&mut self, inner: &mut P) {
        for (frame, _) in self.sent.held.drain(..) {
            let _ = inner.send(frame);
        }
        for frame in self.doubles.drain(..) {
            if inner.room() > 0 {
                let _ = inner.send(frame);
            }
        }
    }
}

impl Direction {
    fn new(rates: FaultRates, hold: u32, rng: fastrand::Rng) -> Self {
        Self {
            rates,
            rng,
            hold: hold.max(1),
            held: VecDeque::with_capacity(MAX_HELD),
            counters: FaultCounters::default(),
        }
    }

    /// Draws a frame's fate: always four draws, so that a change of one rate
    /// leaves what the others do as it was.
    fn draw(&mut self) -> Fate {
        let mut draw = |rate: f64| self.rng.f64() < rate;
        let fate = Fate {
            drop: draw(self.rates.drop),
            duplicate: draw(self.rates.duplicate),
            reorder: draw(self.rates.reorder),
            corrupt: draw(self.rates.corrupt),
        };
        self.counters.frames += 1;
        self.counters.dropped += u64::from(fate.drop);
        fate
    }

    /// Flips one bit.
    fn corrupt(&mut self, packet: &mut [u8]) {
        if packet.is_empty() {
            return;
        }
        let bit = self.rng.usize(..packet.len() * 8);
        packet[bit / 8] ^= 1 << (bit % 8);
        self.counters.corrupted += 1;
    }

    /// Holds a frame back; gives it again when too many are held.
    fn hold(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.held.len() >= MAX_HELD {
            return Err(frame);
        }
        self.held.push_back((frame, self.hold));
        self.counters.reordered += 1;
        Ok(())
    }

    /// A frame has passed those held back: gives the ones that have been
    /// passed by enough. Each waits for as many, so the oldest goes first.
    fn age(&mut self, mut release: impl FnMut(Frame)) {
        for (_, left) in &mut self.held {
            *left -= 1;
        }
        while let Some((_, 0)) = self.held.front() {
            if let Some((frame, _)) = self.held.pop_front() {
                release(frame);
            }
        }
    }
}

/// A scratch frame with the same bytes, when one is free.
fn copy(pool: &Pool, packet: &[u8]) -> Option<Frame> {
    let mut frame = pool.take()?;
    frame.set_len(packet.len());
    frame.copy_from_slice(packet);
    Some(frame)
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
