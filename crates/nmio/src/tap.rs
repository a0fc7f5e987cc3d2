//! The tap port: Ethernet frames through a file, one system call each.
//!
//! The portable fallback. It needs no XDP and works inside a user namespace.
//! What is sent is on its way at once, so that a resident packet is never in
//! flight, and `flush` has nothing to do.
//!
//! Super-segments pass whole in both directions: nothing on the way to this
//! host's kernel needs them cut. What the kernel sends may have a checksum that
//! is not finished, says so, and is finished here. Received super-segments need
//! frames of 64 KB, so they are left to the kernel to cut when packets are
//! resident, which live in frames of the same size.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::checksum::Sum;
use crate::device::{DeviceError, MemoryPlan};
use crate::frame::{Frame, Pool, Resident};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, SendError, Wait};
use crate::super_segment::SuperSegment;
use crate::sys::{self, FINISHED, Gather};

/// Frames for callers that keep some beside a batch.
const RESERVE: u32 = 256;
/// Ethernet header and one 802.1Q tag: what a frame has beyond the MTU.
const LINK_HEADER: usize = 18;
/// An Ethernet header: nothing shorter is a frame.
const ETHERNET_HEADER: usize = 14;
/// A tap device takes what is written at once, so there is always as much
/// room as anyone asks for in one pass.
const ROOM: usize = MAX_BATCH;
/// The largest IP packet.
const MAX_PACKET: usize = 65_535;
/// Frames begin on cache lines.
const CACHE_LINE: usize = 64;

/// What a port is opened with.
pub(crate) struct TapConfig {
    pub(crate) name: String,
    pub(crate) mtu: usize,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
}

/// One queue of a tap device. Made by
/// [`QueueSource::open`](crate::device::QueueSource::open).
pub struct TapPort {
    file: Arc<OwnedFd>,
    pool: Pool,
    config: TapConfig,
    counters: PortCounters,
    /// Why sending failed for good; told by the next `flush`.
    gone: Option<io::Error>,
}

impl TapPort {
    /// Serves the queue behind `file`, which does not block.
    pub(crate) fn new(file: Arc<OwnedFd>, config: TapConfig) -> Result<Self, DeviceError> {
        let supers = config.memory.resident_frames == 0;
        let largest = if supers { MAX_PACKET } else { config.mtu };
        sys::offer_offload(file.as_fd(), supers).map_err(DeviceError::set_up(
            "say what the tap device need not finish",
        ))?;
        let capacity = largest + LINK_HEADER;
        let stride = capacity.next_multiple_of(CACHE_LINE);
        let own = MAX_BATCH as u32 + RESERVE;
        let layout = config.memory.layout(stride, capacity, own)?;
        Ok(Self {
            file,
            pool: Pool::on_heap(layout),
            config,
            counters: PortCounters::default(),
            gone: None,
        })
    }

    /// What the port really does, for people: pairs of a name and a value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        let layout = self.pool.layout();
        let mut lines = vec![
            (
                "data path",
                format!("tap device {}, one system call a packet", self.config.name),
            ),
            ("segmentation", self.segmentation().to_owned()),
            (
                "packet memory",
                format!(
                    "{} KiB: {} frames for receiving and sending, {} for resident packets",
                    layout.stride * layout.frames() as usize / 1024,
                    layout.io_frames,
                    layout.resident_frames
                ),
            ),
        ];
        if self.config.wait == Wait::BusyPoll {
            lines.push((
                "busy polling",
                "inert: a tap device has no queue to poll; waiting blocks instead".to_owned(),
            ));
        }
        lines
    }

    fn segmentation(&self) -> &'static str {
        if self.config.memory.resident_frames == 0 {
            "super-segments of up to 64 KB pass whole, sent and received"
        } else {
            "super-segments of up to 64 KB are sent whole; those received are cut by the kernel, \
             as packets are resident"
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() < ETHERNET_HEADER {
            self.counters.bad_descriptors += 1;
            return;
        }
        let packet = Gather {
            vnet: FINISHED,
            stretches: [bytes, &[], &[], &[]],
        };
        self.write_packet(&packet, 1, bytes.len());
    }

    /// Writes what is `frames` frames of `bytes` in all.
    fn write_packet(&mut self, packet: &Gather<'_>, frames: usize, bytes: usize) {
        self.counters.tx_wakeups += 1;
        match sys::write_packet(self.file.as_fd(), packet) {
            Ok(()) => {
                self.counters.tx_frames += frames as u64;
                self.counters.tx_batches.count(frames);
                self.counters.tx_bytes += bytes as u64;
            }
            Err(error) if is_gone(&error) => self.gone = Some(error),
            // The device is down (EIO) or the kernel has no memory: the
            // packet is lost, as on any wire.
            Err(_) => self.counters.tx_ring_full += 1,
        }
    }
}

/// Finishes the checksum of a packet that was never on a wire: its field, at
/// `field` from `start`, holds the pseudo-header's sum. `false` when it lies
/// outside.
fn finish_checksum(packet: &mut [u8], (start, field): (usize, usize)) -> bool {
    let Some(rest) = packet.get_mut(start..) else {
        return false;
    };
    let checksum = Sum::of(rest).finish_udp().to_be_bytes();
    let place = rest
        .get_mut(field..)
        .and_then(|rest| rest.first_chunk_mut());
    place.map(|place| *place = checksum).is_some()
}

/// Whether the device was removed, as against being down for a while.
fn is_gone(error: &io::Error) -> bool {
    sys::is_errno(error, libc::EBADFD) || sys::is_errno(error, libc::ENODEV)
}

impl Port for TapPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.config.mtu,
            zero_copy: false,
            partial_checksums: false,
            segmentation: MAX_PACKET,
            resident_frames: self.config.memory.resident_frames,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        let limit = limit.min(batch.remaining_capacity());
        while batch.len() < limit {
            let Some(mut frame) = self.pool.take() else {
                break;
            };
            frame.set_len(frame.capacity());
            match sys::read_packet(self.file.as_fd(), &mut frame) {
                Ok((vnet, len)) if len >= ETHERNET_HEADER => {
                    frame.set_len(len);
                    if let Some(unfinished) = sys::unfinished_checksum(vnet)
                        && !finish_checksum(&mut frame, unfinished)
                    {
                        self.counters.bad_descriptors += 1;
                        continue;
                    }
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                    batch.push(frame);
                }
                Ok(_) => self.counters.bad_descriptors += 1,
                Err(error) if is_gone(&error) => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing there; or the device is down, and comes up again.
                Err(_) => break,
            }
        }
        self.counters.rx_batches.count(batch.len());
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        // It would do no harm here, but in every other port.
        frame.assert_of(&self.pool);
        self.write(&frame);
        Ok(())
    }

    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        packet.assert_of(&self.pool);
        let bytes = packet.bytes_mut().ok_or(SendError::InFlight)?;
        self.write(bytes);
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        let gather = Gather {
            vnet: sys::vnet_header(&packet),
            stretches: packet.gather(),
        };
        self.write_packet(&gather, packet.segments(), packet.wire_len());
        self.counters.tx_supers += 1;
        Ok(())
    }

    fn room(&mut self) -> usize {
        ROOM
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.gone.take().map_or(Ok(true), Err)
    }

    fn hints(&self) -> PortHints {
        PortHints::default()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        let events = sys::poll(
            self.file.as_fd(),
            libc::POLLIN,
            timeout,
            bell.map(Bell::event),
        )?;
        if events & (libc::POLLERR | libc::POLLNVAL) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADFD));
        }
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
    fn an_unfinished_checksum_is_finished() {
        // Four bytes before, then a header whose field at 2 holds a sum.
        let mut packet = [9, 9, 9, 9, 0x12, 0x34, 0x00, 0x07, 0x56, 0x78];
        assert!(finish_checksum(&mut packet, (4, 2)));
        // The sum of all is the complement of what the field held.
        assert_eq!(Sum::of(&packet[4..]).fold(), !0x0007);
        assert_eq!(packet[..6], [9, 9, 9, 9, 0x12, 0x34]);
    }

    #[test]
    fn a_checksum_that_lies_outside_is_refused() {
        let mut packet = [0; 10];
        assert!(finish_checksum(&mut packet, (4, 4)));
        assert!(!finish_checksum(&mut packet, (4, 5)));
        assert!(!finish_checksum(&mut packet, (11, 0)));
    }
}
