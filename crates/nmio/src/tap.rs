//! The tap port: reads and writes Ethernet frames through a file descriptor, with one system call
//! per packet.
//!
//! The tap port is the portable fallback. It needs no XDP and works inside a user namespace. A send
//! completes immediately, so resident packets are never in flight, and `flush` sends nothing.
//!
//! Super-segments are sent unsegmented, because packets travel only between the server and this
//! host's kernel. They are also received unsegmented, unless the port has residents. Receiving them
//! requires frames of 64 KB, and residents use frames of the same size. So if there are residents,
//! the kernel segments packets before this port receives them, which saves memory.
//!
//! Packets from the kernel may have partial checksums: the checksum field holds only the sum of the
//! pseudo-header. This port completes them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::device::{DeviceError, MemoryPlan};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::port::{
    Batch, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, PortLevels, SendError,
    USUAL_BATCH, Wait,
};
use crate::super_segment::SuperSegment;
use crate::sys::{self, Gather};
use crate::vnet::{self, FINISHED};

/// Number of spare frames, for callers that hold more than a batch of 256.
const RESERVE: u32 = 256;
/// Size of the Ethernet header with one 802.1Q tag, in bytes.
const LINK_HEADER: usize = 18;
/// Size of an Ethernet header, in bytes. A shorter frame is invalid.
const ETHERNET_HEADER: usize = 14;
/// Value of [`Port::room`]. A tap device takes each packet immediately, so there is always room for
/// a full batch.
const ROOM: usize = MAX_BATCH;
/// Maximum length of an IP packet, in bytes, including super-segments.
const MAX_PACKET: usize = 65_535;
/// Alignment of frames, in bytes: one cache line.
const CACHE_LINE: usize = 64;

/// The configuration of a tap port.
pub(crate) struct TapConfig {
    pub(crate) name: String,
    pub(crate) mtu: usize,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
}

/// One queue of a tap device. Opened by [`QueueSource::open`](crate::device::QueueSource::open).
pub struct TapPort {
    file: Arc<OwnedFd>,
    pool: Pool,
    config: TapConfig,
    counters: PortCounters,
    /// The error that a send got because the device was removed. The next `flush` returns this
    /// error.
    write_error: Option<io::Error>,
}

impl TapPort {
    /// Creates the port for one queue. `file` is the queue's descriptor, in nonblocking mode.
    pub(crate) fn new(file: Arc<OwnedFd>, config: TapConfig) -> Result<Self, DeviceError> {
        let supers = config.memory.resident_frames == 0;
        let max_packet = if supers { MAX_PACKET } else { config.mtu };
        sys::offer_offload(file.as_fd(), supers).map_err(DeviceError::set_up(
            "set the offload features of the tap device",
        ))?;
        let capacity = max_packet + LINK_HEADER;
        let stride = capacity.next_multiple_of(CACHE_LINE);
        let port_frames = USUAL_BATCH + RESERVE;
        let layout = config.memory.layout(stride, capacity, port_frames)?;
        Ok(Self {
            file,
            pool: Pool::on_heap(layout),
            config,
            counters: PortCounters::default(),
            write_error: None,
        })
    }

    /// Returns a human-readable description of the port's settings, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        let layout = self.pool.layout();
        let mut lines = vec![
            (
                "data path",
                format!(
                    "tap device {}, one system call per packet",
                    self.config.name
                ),
            ),
            ("waiting", self.config.wait.describe(false).to_owned()),
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
                "inert: a tap device has no queue to poll, so an idle worker sleeps".to_owned(),
            ));
        }
        lines
    }

    fn segmentation(&self) -> &'static str {
        if self.config.memory.resident_frames == 0 {
            "super-segments of up to 64 KB are sent and received whole"
        } else {
            "super-segments of up to 64 KB are sent whole; the kernel segments received ones, because \
             packets are resident"
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

    /// Writes a packet that counts as `frames` frames with `bytes` bytes in total.
    fn write_packet(&mut self, packet: &Gather<'_>, frames: usize, bytes: usize) {
        self.counters.tx_wakeups += 1;
        match sys::write_packet(self.file.as_fd(), packet) {
            Ok(()) => {
                self.counters.tx_frames += frames as u64;
                self.counters.tx_batches.count(frames);
                self.counters.tx_bytes += bytes as u64;
            }
            Err(error) if is_removed(&error) => self.write_error = Some(error),
            // The device is down (EIO) or the kernel is out of memory. The packet is lost, as if
            // the network had dropped it.
            Err(_) => self.counters.tx_lost += frames as u64,
        }
    }
}

/// Returns true if the device was removed, and false if it is only down.
fn is_removed(error: &io::Error) -> bool {
    sys::is_errno(error, libc::EBADFD) || sys::is_errno(error, libc::ENODEV)
}

impl Port for TapPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.config.mtu,
            zero_copy: false,
            partial_checksums: false,
            segmentation: MAX_PACKET,
            min_segment: 0,
            min_run: 0,
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
                    if !vnet::complete(vnet, &mut frame) {
                        self.counters.bad_descriptors += 1;
                        continue;
                    }
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                    batch.push(frame);
                }
                Ok(_) => self.counters.bad_descriptors += 1,
                Err(error) if is_removed(&error) => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No packet is available, or the device is down and may come up again.
                Err(_) => break,
            }
        }
        self.counters.rx_batches.count(batch.len());
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        // This port could send a packet from another pool, but it panics so that all ports behave
        // alike.
        frame.assert_of(&self.pool);
        self.write(&frame);
        Ok(())
    }

    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        packet.assert_of(&self.pool);
        self.write(&packet);
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        let gather = Gather {
            vnet: vnet::vnet_header(&packet),
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
        self.write_error.take().map_or(Ok(true), Err)
    }

    fn hints(&self) -> PortHints {
        PortHints::default()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        let file = Some(self.file.as_fd());
        let events = sys::poll(file, libc::POLLIN, timeout, bell.map(Bell::event))?;
        if events & (libc::POLLERR | libc::POLLNVAL) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADFD));
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn levels(&self) -> PortLevels {
        PortLevels::of_pool(&self.pool)
    }
}
