//! A port without a peer, for benchmarks and unit tests.

use std::io;
use std::time::Duration;

use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, Port, PortCounters, PortHints, PortLevels, SendError};

use super::frame_layout;
use crate::super_segment::{self, SuperSegment};

/// The constant result of [`Port::room`]. A sink is never full.
const ROOM: usize = 1 << 16;

/// A port that never receives a frame. A sent resident packet completes immediately, and a sent
/// frame returns to the pool when the next packet is sent.
///
/// So a benchmark on this port measures only the sender and the pool.
///
/// The last sent packet can be read with [`Sink::last`].
#[derive(Debug)]
pub struct Sink {
    pool: Pool,
    mtu: usize,
    /// The last sent packet, if it was a frame.
    frame: Option<Frame>,
    /// A copy of the last sent resident packet. `None`: copying is disabled.
    copy: Option<Vec<u8>>,
    counters: PortCounters,
}

impl Sink {
    /// Creates a sink for packets of up to `mtu` bytes. Its pool holds `io_frames` scratch frames
    /// and `resident_frames` resident packets. The sink itself keeps one scratch frame.
    pub fn new(mtu: usize, io_frames: u32, resident_frames: u32) -> Self {
        Self {
            pool: Pool::on_heap(frame_layout(mtu, io_frames + 1, resident_frames)),
            mtu,
            frame: None,
            copy: None,
            counters: PortCounters::default(),
        }
    }

    /// Sets whether to copy a sent resident packet, so that [`Sink::last`] returns it.
    ///
    /// Copying is off by default, so that benchmarks do not measure it. Tests that read resident
    /// packets enable it.
    pub fn copy_residents(&mut self, on: bool) {
        self.copy = on.then(Vec::new);
    }

    /// Returns the last sent packet, or an empty slice if no packet was sent.
    ///
    /// The result is also empty if the last packet was a resident and [`Sink::copy_residents`] is
    /// off. The sink keeps no reference to a resident, because the sender may change its bytes.
    pub fn last(&self) -> &[u8] {
        match (&self.frame, &self.copy) {
            (Some(frame), _) => frame,
            (None, Some(copy)) => copy,
            (None, None) => &[],
        }
    }

    /// Returns a frame that holds `packet`, as if it had been received.
    ///
    /// # Panics
    /// If no frame is free or the packet does not fit.
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
            min_segment: 0,
            min_run: 0,
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
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        let packet = packet.send(&self.pool);
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
        panic!("{}", super_segment::NO_SUPER_SEGMENTS)
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

    fn levels(&self) -> PortLevels {
        PortLevels::of_pool(&self.pool)
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
        assert_eq!(
            sink.pool().available(),
            1,
            "the sink holds only the last frame"
        );
    }

    #[test]
    fn a_resident_packet_completes_at_once() {
        let mut sink = Sink::new(1500, 1, 1);
        let mut packet = sink.pool().make_resident(b"abc").unwrap();
        sink.send_resident(packet.idle().unwrap()).unwrap();
        assert_eq!(sink.last(), b"", "not copied");
        sink.copy_residents(true);
        packet.idle().unwrap()[0] = b'A';
        sink.send_resident(packet.idle().unwrap()).unwrap();
        packet.idle().unwrap()[0] = b'Z';
        assert_eq!(sink.last(), b"Abc");
        let frame = sink.frame_from(b"frame");
        sink.send(frame).unwrap();
        assert_eq!(sink.last(), b"frame");
    }
}
