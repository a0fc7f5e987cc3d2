//! A port that deliberately drops, duplicates, reorders and corrupts frames.
//!
//! [`Fault`] wraps any port. To the layers above, the wrapped port behaves as if it were on a bad
//! network. This works even on ports where the kernel cannot emulate a bad network.
//!
//! A seed makes the faults reproducible. The whole configuration can be given as text:
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
//! # Ok::<(), nmio::WrongWords<nmio::FaultError>>(())
//! ```
//!
//! To the layers above, a fault looks as if it happened on the wire. If a sent frame is dropped,
//! the send still succeeds. If a resident packet is dropped, it is immediately available again.
//! Corruption and reordering affect a copy of a resident packet, never the packet itself.
//!
//! `Fault<Pcap<P>>` captures the frames on the wire. `Pcap<Fault<P>>` captures the frames as the
//! layers above send and receive them.

mod config;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::device::{NewQueue, PacketMemory};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::port::{
    Batch, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, PortLevels, SendError,
};
use crate::super_segment::{self, SuperSegment};

pub use config::{FaultConfig, FaultError, FaultRates};

/// Maximum number of frames held back in each direction. This is also the maximum number of
/// duplicates of sent frames that wait for a flush.
const MAX_HELD: usize = 32;
/// Maximum number of received frames that are ready for the layers above. They are the rest of an
/// earlier batch, a new batch in which each frame is duplicated, and all held-back frames.
const MAX_READY: usize = MAX_BATCH + 2 * MAX_BATCH + MAX_HELD;

/// Counters of the faults in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Number of frames in this direction.
    pub frames: u64,
    /// Number of these frames that were dropped.
    pub dropped: u64,
    /// Number of these frames that were duplicated.
    pub duplicated: u64,
    /// Number of these frames that were held back.
    pub reordered: u64,
    /// Number of these frames in which a bit was flipped.
    pub corrupted: u64,
}

/// A port with faults. If no faults are configured, the wrapper costs one branch per call.
///
/// The [`counters`](Port::counters) are those of the inner port, plus the sends that this wrapper
/// itself refused. [`fault_counters`](Fault::fault_counters) returns the counts of faults.
#[derive(Debug)]
pub struct Fault<P> {
    inner: P,
    faults: Option<Box<Faults>>,
}

#[derive(Debug)]
struct Faults {
    received: Direction,
    sent: Direction,
    /// Received frames to which faults have been applied, in the order in which `receive` returns
    /// them.
    ready: VecDeque<Frame>,
    /// Duplicates of sent frames. They wait for a flush, because until then they could use slots
    /// that [`Port::room`] has promised to the caller. A flush sends them if slots are free.
    duplicates: Vec<Frame>,
    /// Number of sends that this wrapper refused, because no slot of the inner port was free except
    /// those reserved for held-back frames.
    ring_full: u64,
}

/// The state of one direction, received or sent.
#[derive(Debug)]
struct Direction {
    rates: FaultRates,
    rng: fastrand::Rng,
    hold: u32,
    /// Each held-back frame, with the number of frames that must still overtake it.
    held: VecDeque<(Frame, u32)>,
    counters: FaultCounters,
}

/// The faults to apply to one frame.
#[derive(Clone, Copy, Debug)]
struct FrameFaults {
    drop: bool,
    duplicate: bool,
    reorder: bool,
    corrupt: bool,
}

impl<P: Port> Fault<P> {
    /// Wraps a port. If `config` is `None`, no faults occur.
    pub fn new(inner: P, config: Option<&FaultConfig>) -> Self {
        let faults = config.map(|config| {
            let mut seeds = fastrand::Rng::with_seed(config.seed);
            Box::new(Faults {
                received: Direction::new(config.received, config.hold, seeds.fork()),
                sent: Direction::new(config.sent, config.hold, seeds.fork()),
                ready: VecDeque::with_capacity(MAX_READY),
                duplicates: Vec::with_capacity(MAX_HELD),
                ring_full: 0,
            })
        });
        Self { inner, faults }
    }

    /// Returns the inner port.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Returns the inner port for modification.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Returns the fault counters for received frames and for sent frames, in this order.
    pub fn fault_counters(&self) -> (FaultCounters, FaultCounters) {
        self.faults
            .as_ref()
            .map_or_else(Default::default, |f| (f.received.counters, f.sent.counters))
    }
}

impl<P: Port> Port for Fault<P> {
    /// With faults configured, the port accepts no super-segments, because faults apply to single
    /// frames.
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
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        match &mut self.faults {
            None => self.inner.send_resident(packet),
            Some(faults) => faults.send_resident(&mut self.inner, packet),
        }
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        assert!(
            self.faults.is_none(),
            "{}",
            super_segment::NO_SUPER_SEGMENTS
        );
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
        // The inner port's `wait` does not notice received frames that this wrapper still holds,
        // so the loop must not call it.
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
    fn poll_device(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.inner.poll_device(timeout, bell)
    }

    fn attach(&mut self, queue: NewQueue) -> io::Result<()> {
        self.inner.attach(queue)
    }

    fn shared_memory(&self) -> Option<PacketMemory> {
        self.inner.shared_memory()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        if let Some(faults) = &self.faults {
            counters.tx_ring_full += faults.ring_full;
        }
        counters
    }

    fn levels(&self) -> PortLevels {
        self.inner.levels()
    }
}

impl Faults {
    fn receive<P: Port>(
        &mut self,
        inner: &mut P,
        batch: &mut Batch,
        limit: usize,
    ) -> io::Result<()> {
        // Because of this condition, `ready` contains less than a batch of older frames when a new
        // batch is added. So it never grows above MAX_READY.
        if self.ready.len() < limit.min(MAX_BATCH) {
            inner.receive(batch, limit)?;
            if batch.is_empty() {
                // No frames arrived, so release all held-back frames.
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
        let faults = self.received.draw();
        if faults.drop {
            return;
        }
        if faults.corrupt {
            self.received.corrupt(&mut frame);
        }
        let duplicate_frame = faults.duplicate.then(|| copy(pool, &frame)).flatten();
        self.received.counters.duplicated += u64::from(duplicate_frame.is_some());
        if faults.reorder {
            self.ready.extend(self.received.hold(frame).err());
            self.ready.extend(duplicate_frame);
        } else {
            self.ready.push_back(frame);
            self.ready.extend(duplicate_frame);
            self.received.age(|frame| self.ready.push_back(frame));
        }
    }

    /// Returns true if the next `receive` returns frames even if the inner port has none.
    fn has_received(&self) -> bool {
        !self.ready.is_empty() || !self.received.held.is_empty()
    }

    /// Returns the number of free slots that are not reserved. One slot is reserved for each
    /// held-back frame, because the send of that frame has already succeeded.
    fn room<P: Port>(&self, inner: &mut P) -> usize {
        inner.room().saturating_sub(self.sent.held.len())
    }

    fn send<P: Port>(&mut self, inner: &mut P, mut frame: Frame) -> Result<(), SendError> {
        if self.room(inner) == 0 {
            self.ring_full += 1;
            return Err(SendError::RingFull);
        }
        let faults = self.sent.draw();
        if faults.drop {
            return Ok(());
        }
        if faults.corrupt {
            self.sent.corrupt(&mut frame);
        }
        if faults.duplicate {
            self.duplicate(inner.pool(), &frame);
        }
        if faults.reorder {
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
        packet: IdleResident<'_>,
    ) -> Result<(), SendError> {
        if self.room(inner) == 0 {
            self.ring_full += 1;
            return Err(SendError::RingFull);
        }
        let faults = self.sent.draw();
        if faults.drop {
            return Ok(());
        }
        // Corruption and reordering use a copy, because the resident packet itself must not be
        // changed or held back. If no scratch frame is free for the copy, the fault does not
        // happen.
        let mut substitute = None;
        if faults.corrupt || faults.reorder {
            substitute = copy(inner.pool(), &packet);
        }
        if faults.corrupt
            && let Some(frame) = &mut substitute
        {
            self.sent.corrupt(frame);
        }
        if faults.duplicate {
            self.duplicate(inner.pool(), substitute.as_deref().unwrap_or(&packet));
        }
        match substitute {
            None => inner.send_resident(packet)?,
            Some(frame) if faults.reorder => {
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

    /// Stores a duplicate of a sent packet until the next flush, unless [`MAX_HELD`] duplicates are
    /// already stored or no scratch frame is free.
    fn duplicate(&mut self, pool: &Pool, packet: &[u8]) {
        if self.duplicates.len() < MAX_HELD
            && let Some(frame) = copy(pool, packet)
        {
            self.duplicates.push(frame);
            self.sent.counters.duplicated += 1;
        }
    }

    /// Sends the held-back frames that enough later frames have overtaken.
    fn age_sent<P: Port>(&mut self, inner: &mut P) {
        // `room` has reserved slots for held-back frames, so no send is refused.
        self.sent.age(|frame| {
            let _ = inner.send(frame);
        });
    }

    /// Sends all held-back frames, because no frame may stay held back after a flush. Then sends
    /// the duplicates, and drops those for which no slot is free.
    fn release_sent<P: Port>(&mut self, inner: &mut P) {
        for (frame, _) in self.sent.held.drain(..) {
            let _ = inner.send(frame);
        }
        for frame in self.duplicates.drain(..) {
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

    /// Decides at random which faults affect a frame. Each call uses four random numbers, whatever
    /// the rates are. So changing one rate does not change the other faults, until a frame is
    /// corrupted.
    fn draw(&mut self) -> FrameFaults {
        let mut draw = |rate: f64| self.rng.f64() < rate;
        let faults = FrameFaults {
            drop: draw(self.rates.drop),
            duplicate: draw(self.rates.duplicate),
            reorder: draw(self.rates.reorder),
            corrupt: draw(self.rates.corrupt),
        };
        self.counters.frames += 1;
        self.counters.dropped += u64::from(faults.drop);
        faults
    }

    /// Flips one random bit of a packet.
    fn corrupt(&mut self, packet: &mut [u8]) {
        if packet.is_empty() {
            return;
        }
        let bit = self.rng.usize(..packet.len() * 8);
        packet[bit / 8] ^= 1 << (bit % 8);
        self.counters.corrupted += 1;
    }

    /// Holds a frame back, or returns the frame if too many frames are already held back.
    fn hold(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.held.len() >= MAX_HELD {
            return Err(frame);
        }
        self.held.push_back((frame, self.hold));
        self.counters.reordered += 1;
        Ok(())
    }

    /// Counts a frame that overtakes all held-back frames. Releases the held-back frames that
    /// enough frames have overtaken.
    ///
    /// Every held-back frame waits for the same number of frames, so the oldest is released first.
    fn age(&mut self, mut release: impl FnMut(Frame)) {
        for (_, remaining) in &mut self.held {
            *remaining -= 1;
        }
        while let Some((_, 0)) = self.held.front() {
            if let Some((frame, _)) = self.held.pop_front() {
                release(frame);
            }
        }
    }
}

/// Returns a scratch frame with a copy of `packet`, if a frame is free.
fn copy(pool: &Pool, packet: &[u8]) -> Option<Frame> {
    let mut frame = pool.take()?;
    frame.set_len(packet.len());
    frame.copy_from_slice(packet);
    Some(frame)
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
