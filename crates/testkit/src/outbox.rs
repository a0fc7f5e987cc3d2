//! A port that records sent packets, for tests of one stack without a peer.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use nmio::{
    Batch, Capabilities, Frame, IdleResident, Pool, PoolLayout, Port, PortCounters, PortHints,
    PortLevels, SendError, SuperSegment,
};

/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;

/// A function that appends one segment of a super-segment to a buffer, as a complete frame. The
/// number is the index of the segment.
type Cut = fn(&SuperSegment, usize, &mut Vec<u8>);

/// A port that keeps all sent packets and receives none.
pub struct Outbox {
    pool: Pool,
    /// Number of packets that the TX ring still accepts.
    pub room: usize,
    /// Sent frames, oldest first. A super-segment appears as one frame per segment.
    pub sent: VecDeque<Vec<u8>>,
    mtu: usize,
    /// Maximum length of a super-segment's IP packet, in bytes. If 0, the port accepts no
    /// super-segments.
    pub segmentation: usize,
    /// Minimum length of the packets that receivers of super-segments must accept, in bytes.
    pub min_segment: usize,
    /// Value of [`Capabilities::min_run`].
    pub min_run: usize,
    cut: Cut,
    /// Length in bytes of the longest super-segment sent so far, as an IP packet.
    pub longest: usize,
}

impl Outbox {
    /// Makes a port with this MTU. `cut` splits super-segments into frames.
    pub fn new(mtu: usize, resident_frames: u32, cut: Cut) -> Self {
        let capacity = mtu.max(1500).next_multiple_of(512) + 512;
        Self {
            pool: Pool::on_heap(PoolLayout {
                stride: capacity,
                capacity,
                io_frames: 64,
                resident_frames,
            }),
            room: usize::MAX,
            sent: VecDeque::new(),
            mtu,
            segmentation: 0,
            min_segment: 0,
            min_run: 0,
            cut,
            longest: 0,
        }
    }

    /// Returns a frame with these bytes, as if the port had received it.
    ///
    /// # Panics
    /// Panics if no frame is free.
    pub fn frame_from(&self, packet: &[u8]) -> Frame {
        let mut frame = self.pool.take().expect("a free frame");
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        frame
    }

    fn take_room(&mut self) -> Result<(), SendError> {
        self.room = self.room.checked_sub(1).ok_or(SendError::RingFull)?;
        Ok(())
    }
}

impl Port for Outbox {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            zero_copy: false,
            partial_checksums: false,
            segmentation: self.segmentation,
            min_segment: self.min_segment,
            min_run: self.min_run,
            resident_frames: self.pool.layout().resident_frames,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn receive(&mut self, _batch: &mut Batch, _limit: usize) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        self.take_room()?;
        self.sent.push_back(frame.to_vec());
        Ok(())
    }

    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        self.take_room()?;
        self.sent.push_back(packet.to_vec());
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        let ip_packet = packet.len() - ETHERNET;
        assert!(ip_packet <= self.segmentation, "{ip_packet} bytes at once");
        self.longest = self.longest.max(ip_packet);
        self.take_room()?;
        for index in 0..packet.segments() {
            let mut frame = Vec::new();
            (self.cut)(&packet, index, &mut frame);
            self.sent.push_back(frame);
        }
        Ok(())
    }

    fn room(&mut self) -> usize {
        self.room
    }

    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn hints(&self) -> PortHints {
        PortHints::default()
    }

    fn wait(&mut self, _timeout: Duration, _bell: Option<&nmio::Bell>) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    fn levels(&self) -> PortLevels {
        PortLevels::of_pool(&self.pool)
    }
}
