//! Where segments go in tests of the stack, inside the crate and out of it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use nmio::{
    Batch, Capabilities, Frame, Pool, PoolLayout, Port, PortCounters, PortHints, Resident,
    SendError, SuperSegment,
};

/// A port whose sends are kept for the test, with as much room as it says.
pub(crate) struct Outbox {
    pool: Pool,
    pub(crate) room: usize,
    pub(crate) sent: VecDeque<Vec<u8>>,
    mtu: usize,
    /// The largest super-segment; they are kept as the frames that they are
    /// cut into.
    pub(crate) segmentation: usize,
    /// The largest of those that were sent.
    pub(crate) longest: usize,
}

impl Outbox {
    pub(crate) fn new(mtu: usize, resident_frames: u32) -> Self {
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
            longest: 0,
        }
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

    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        self.take_room()?;
        let bytes = packet.bytes_mut().ok_or(SendError::InFlight)?.to_vec();
        self.sent.push_back(bytes);
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        let ip_packet = packet.len() - eth::HEADER_LEN;
        assert!(ip_packet <= self.segmentation, "no more than it takes");
        self.longest = self.longest.max(ip_packet);
        self.take_room()?;
        for index in 0..packet.segments() {
            let mut frame = Vec::new();
            ip::write_segment(&packet, index, &mut frame);
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
}
