//! A port with no peer, for benches and unit tests.

use std::io;
use std::time::Duration;

use crate::frame::{Frame, Pool, Resident};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, Port, PortCounters, PortHints, SendError};

use super::frame_layout;
use crate::super_segment::{self, SuperSegment};

/// What [`Port::room`] tells: as much as anybody asks for.
const ROOM: usize = 1 << 16;

/// A port that nothing arrives at, and whose sends complete at once: what is
/// measured over it is the sender's work and the pool's, nothing else.
///
/// The last packet sent can be read, see [`Sink::last`].
#[derive(Debug)]
pub struct Sink {
    pool: Pool,
    mtu: usize,
    /// The last packet, when it was a frame: its owner.
    frame: Option<Frame>,
    /// The last packet, when it was a resident and those are copied.
    copy: Option<Vec<u8>>,
    counters: PortCounters,
}

impl Sink {
    /// A sink for packets up to `mtu` bytes, with this many frames for
    /// scratch and for residents. One of the former is kept by the sink.
    pub fn new(mtu: usize, io_frames: u32, resident_frames: u32) -> Self {
        Self {
            pool: Pool::on_heap(frame_layout(mtu, io_frames + 1, resident_frames)),
            mtu,
            frame: None,
            copy: None,
            counters: PortCounters::default(),
        }
    }

    /// Whether a resident packet is copied when it is sent, so that
    /// [`Sink::last`] gives it too. Off at first, as a copy is work that a
    /// real port does not do: benches leave it off, tests turn it on.
    pub fn copy_residents(&mut self, on: bool) {
        self.copy = on.then(Vec::new);
    }

    /// The last packet sent. Empty when none was, and when it was a resident
    /// and [`Sink::copy_residents`] is off: the packet is its owner's again,
    /// who may be changing it.
    pub fn last(&self) -> &[u8] {
        match (&self.frame, &self.copy) {
            (Some(frame), _) => frame,
            (None, Some(copy)) => copy,
            (None, None) => &[],
        }
    }

    /// A frame that holds `packet`, as if it had been received.
    ///
    /// # Panics
    /// When no frame is free or the packet does not fit one.
    #[inline]
    pub fn frame_from(&self, packet: &[u8]) -> Frame {
        let mut frame = self.pool.take().expect("a free frame in the sink's pool");
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        frame
    }
}

impl Port for Sink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            zero_copy: false,
            partial_checksums: false,
            segmentation: 0,
            resident_frames: self.pool.layout().resident_frames,
        }
    }

    #[inline(always)]
    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline(always)]
    fn receive(&mut self, _batch: &mut Batch, _limit: usize) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        frame.assert_of(&self.pool);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += frame.len() as u64;
        self.frame = Some(frame);
        Ok(())
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        let packet = packet.send(&self.pool).ok_or(SendError::InFlight)?;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += packet.len() as u64;
        self.frame = None;
        if let Some(copy) = &mut self.copy {
            copy.clear();
            copy.extend_from_slice(&packet);
        }
        Ok(())
    }

    fn send_super(&mut self, _packet: SuperSegment) -> Result<(), SendError> {
        panic!("{}", super_segment::TAKES_NONE)
    }

    #[inline(always)]
    fn room(&mut self) -> usize {
        ROOM
    }

    #[inline(always)]
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn hints(&self) -> PortHints {
        PortHints::default()
    }

    fn wait(&mut self, _timeout: Duration, _bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packet_sent_can_be_read() {
        let mut sink = Sink::new(1500, 1, 1);
        assert_eq!(sink.last(), b"");
        for packet in [b"one", b"two"] {
            let frame = sink.frame_from(packet);
            sink.send(frame).unwrap();
            assert_eq!(sink.last(), packet);
        }
        assert_eq!(sink.counters().tx_frames, 2);
        assert_eq!(sink.counters().tx_bytes, 6);
        assert_eq!(sink.pool().available(), 1, "all but the last are back");
    }

    #[test]
    fn a_resident_completes_at_once() {
        let mut sink = Sink::new(1500, 1, 1);
        let mut packet = sink.pool().make_resident(b"abc").unwrap();
        sink.send_resident(&mut packet).unwrap();
        assert_eq!(sink.last(), b"", "not copied");
        sink.copy_residents(true);
        packet.bytes_mut().unwrap()[0] = b'A';
        sink.send_resident(&mut packet).unwrap();
        packet.bytes_mut().unwrap()[0] = b'Z';
        assert_eq!(sink.last(), b"Abc");
        let frame = sink.frame_from(b"frame");
        sink.send(frame).unwrap();
        assert_eq!(sink.last(), b"frame");
    }
}
