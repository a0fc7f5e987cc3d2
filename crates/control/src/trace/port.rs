//! A port whose frames can be traced while it is in use.

use std::io;
use std::time::Duration;

use nmio::device::{NewQueue, PacketMemory};
use nmio::{
    Batch, Bell, Capabilities, Frame, IdleResident, Pool, Port, PortCounters, PortHints,
    PortLevels, SendError, SuperSegment,
};

use super::capture::{Capture, Direction};

/// A port that copies frames while a trace is on. Otherwise the wrapper costs one predictable branch
/// for each batch, and one for each sent packet.
#[derive(Debug)]
pub(crate) struct Traced<P> {
    inner: P,
    capture: Option<Box<Capture>>,
}

impl<P: Port> Traced<P> {
    /// Wraps a port. No trace is on.
    pub(crate) fn new(inner: P) -> Self {
        Self {
            inner,
            capture: None,
        }
    }

    /// Starts a trace, or ends it. Returns the trace that was on.
    pub(crate) fn set_capture(&mut self, capture: Option<Box<Capture>>) -> Option<Box<Capture>> {
        std::mem::replace(&mut self.capture, capture)
    }

    /// Returns the wrapped port.
    pub(crate) fn into_inner(self) -> P {
        self.inner
    }

    #[cold]
    #[inline(never)]
    fn copy_received(&mut self, batch: &Batch) {
        if let Some(capture) = &mut self.capture {
            for frame in batch {
                capture.copy(Direction::Received, &[frame]);
            }
        }
    }

    /// Copies a packet that is about to be sent. Only a port with room accepts it.
    #[cold]
    #[inline(never)]
    fn copy_sent(&mut self, parts: &[&[u8]]) {
        if self.inner.room() > 0
            && let Some(capture) = &mut self.capture
        {
            capture.copy(Direction::Sent, parts);
        }
    }
}

impl<P: Port> Port for Traced<P> {
    #[inline(always)]
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    #[inline(always)]
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    #[inline(always)]
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        self.inner.receive(batch, limit)?;
        if self.capture.is_some() {
            self.copy_received(batch);
        }
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.capture.is_some() {
            self.copy_sent(&[&frame]);
        }
        self.inner.send(frame)
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        if self.capture.is_some() {
            self.copy_sent(&[&packet]);
        }
        self.inner.send_resident(packet)
    }

    #[inline(always)]
    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        if self.capture.is_some() {
            self.copy_sent(&packet.gather());
        }
        self.inner.send_super(packet)
    }

    #[inline(always)]
    fn room(&mut self) -> usize {
        self.inner.room()
    }

    #[inline(always)]
    fn flush(&mut self) -> io::Result<bool> {
        self.inner.flush()
    }

    #[inline(always)]
    fn hints(&self) -> PortHints {
        self.inner.hints()
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
        self.inner.counters()
    }

    fn levels(&self) -> PortLevels {
        self.inner.levels()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nmio::sim::{LinkConfig, Segmentation, SimClock, SimPort, link};
    use nmio::super_segment::GsoType;

    use super::super::capture::{CaptureReader, capture};
    use super::*;

    /// Makes an IPv4 packet of 60 bytes to 192.0.2.7, which ends with `last`.
    fn packet(last: u8) -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[12] = 8;
        packet[30..34].copy_from_slice(&[192, 0, 2, 7]);
        packet[59] = last;
        packet
    }

    fn traced() -> (Traced<SimPort>, SimPort, SimClock, CaptureReader) {
        let mut config = LinkConfig::default();
        config.a.segmentation = Some(Segmentation {
            largest: 65_000,
            write_segment: ip::write_segment,
        });
        let (port, peer, clock) = link(&config, 1);
        let (capture, reader) = capture("192.0.2.7".parse().unwrap(), usize::MAX);
        let mut port = Traced::new(port);
        assert!(port.set_capture(Some(capture.into())).is_none());
        (port, peer, clock, reader)
    }

    fn send<P: Port>(port: &mut P, bytes: &[u8]) {
        let mut frame = port.pool().take().unwrap();
        frame.set_len(bytes.len());
        frame.copy_from_slice(bytes);
        port.send(frame).unwrap();
        port.flush().unwrap();
    }

    fn seen(reader: &mut CaptureReader) -> Vec<(Direction, Vec<u8>)> {
        let mut seen = Vec::new();
        while let Some(one) = reader.take() {
            seen.push((one.direction, one.bytes.to_vec()));
        }
        seen
    }

    #[test]
    fn frames_of_both_directions_are_copied() {
        let (mut port, mut peer, clock, mut reader) = traced();
        send(&mut peer, &packet(1));
        clock.advance(Duration::from_millis(1));
        let mut batch = Batch::new();
        port.receive(&mut batch, 8).unwrap();
        assert_eq!(batch.len(), 1);
        send(&mut port, &packet(2));
        let mut other = packet(3);
        other[33] = 8;
        send(&mut port, &other);
        let expected = [
            (Direction::Received, packet(1)),
            (Direction::Sent, packet(2)),
        ];
        assert_eq!(seen(&mut reader), expected);
        let capture = port.set_capture(None).unwrap();
        assert_eq!(capture.dropped(), 0);
        send(&mut port, &packet(4));
        assert!(seen(&mut reader).is_empty(), "the trace is off");
    }

    #[test]
    fn super_segments_are_copied_whole() {
        let (mut port, _peer, _clock, mut reader) = traced();
        let payload: Arc<[u8]> = vec![7; 3_000].into();
        let mut run = SuperSegment::new(GsoType::TcpV4, 1_000, (54, 34), &payload, 0..3_000);
        run.headers_mut().copy_from_slice(&packet(0)[..54]);
        run.patch_mut(1_500, 1)[0] = 8;
        let expected = run.gather().concat();
        port.send_super(run).unwrap();
        assert_eq!(seen(&mut reader), [(Direction::Sent, expected)]);
    }
}
