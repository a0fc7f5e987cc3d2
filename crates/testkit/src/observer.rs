//! A port that shows each frame to an observer.

use std::io;
use std::time::Duration;

use nmio::{
    Batch, Bell, Capabilities, Frame, IdleResident, Pool, Port, PortCounters, PortHints,
    PortLevels, SendError, SuperSegment,
};

use crate::send;

/// What happens to a received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The port delivers the frame.
    Deliver,
    /// The port drops the frame.
    Drop,
    /// The port drops the received frame and sends this frame back.
    Answer(Vec<u8>),
}

/// Inspects the frames of a port.
pub trait Observer {
    /// Inspects a received frame and decides what happens to it.
    fn received(&mut self, _frame: &[u8]) -> Verdict {
        Verdict::Deliver
    }

    /// Inspects a frame that the port sends.
    fn sent(&mut self, _frame: &[u8]) {}

    /// Inspects a super-segment that the port sends.
    fn sent_super(&mut self, _packet: &SuperSegment) {}
}

/// A port that shows its frames to a [`Observer`].
pub struct Observed<P, W> {
    inner: P,
    /// The observer.
    pub observer: W,
}

impl<P: Port, W: Observer> Observed<P, W> {
    /// Wraps a port with an observer.
    pub fn new(inner: P, observer: W) -> Self {
        Self { inner, observer }
    }
}

impl<P: Port, W: Observer> Port for Observed<P, W> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        let seen = batch.len();
        self.inner.receive(batch, limit)?;
        let new: Vec<Frame> = batch.drain(seen..).collect();
        for frame in new {
            match self.observer.received(&frame) {
                Verdict::Deliver => batch.push(frame),
                Verdict::Drop => {}
                Verdict::Answer(answer) => {
                    send(&mut self.inner, &answer);
                    self.inner.flush()?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.inner.room() > 0 {
            self.observer.sent(&frame);
        }
        self.inner.send(frame)
    }

    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        if self.inner.room() > 0 {
            self.observer.sent(&packet);
        }
        self.inner.send_resident(packet)
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        self.inner.send_super(packet.clone())?;
        self.observer.sent_super(&packet);
        Ok(())
    }

    fn room(&mut self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.inner.flush()
    }

    fn hints(&self) -> PortHints {
        self.inner.hints()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.inner.wait(timeout, bell)
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }

    fn levels(&self) -> PortLevels {
        self.inner.levels()
    }
}
