//! The netmap port: rings and buffers of a netmap port in memory shared with the kernel.
//!
//! This is the port of the paper. A slot of a ring names a buffer by its index, so nothing is
//! copied. A received buffer, a scratch frame or a resident packet is sent by writing its index into
//! a slot of the TX ring. A received buffer is kept by writing another index into its slot.
//!
//! Packets are copied to and from the slots' own buffers in three cases:
//!
//! - on a pipe, whose other end would get the exchanged buffers, and could keep and write them;
//! - if a packet of the MTU does not fit in one buffer. It then takes several slots, whose buffers need
//!   not be adjacent;
//! - if packets have virtio-net headers, because super-segments take several slots.
//!
//! A packet may also arrive in several slots although it would fit in one. Such a packet is copied
//! too.
//!
//! | netmap port | the other side |
//! |---|---|
//! | an interface | the network; the kernel no longer sees its packets, see below |
//! | `valeX:Y` | the other ports of a VALE switch; the switch copies packets |
//! | `NAME{N`, `NAME}N` | the other end of a pipe |
//!
//! # An interface and its kernel
//! While an interface is in netmap mode, its packets bypass the kernel. They are exchanged with the
//! kernel through the *host rings* instead. The port passes all received packets to the host rings,
//! except those that the rules of `steering` assign to the server. It passes all packets of
//! the kernel to the network. Both only exchange buffers. If the kernel's ring is full, a packet for
//! it is lost, and counts as [`rx_lost`](PortCounters::rx_lost).
//!
//! # System calls
//! The kernel moves packets only in a call: one for each batch that is sent, and one each time the
//! RX ring is found empty. Waiting polls the descriptors.

mod config;
mod gather;
mod host;
mod kernel;
mod pair;
mod region;
mod ring;
mod runs;
mod shared_pool;
mod simulated;
mod slot_copies;

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use netmap_sys::{NR_ACCEPT_VNET_HDR, NR_REG_ONE_NIC, NR_REG_ONE_SW, netmap_if, nmreq_register};

use crate::device::DeviceError;
use crate::frame::{Frame, IdleResident, Pool, PoolLayout};
use crate::mailbox::Bell;
use crate::port::{
    Batch, Capabilities, Port, PortCounters, PortHints, PortLevels, SendError, USUAL_BATCH, Wait,
};
use crate::super_segment::{self, GsoType, SuperSegment};
use crate::sys;
pub(crate) use config::NetmapConfig;
use gather::ETHERNET_HEADER;
use host::Host;
pub use kernel::{Bound, Kernel};
pub(crate) use kernel::{DEVICE, memory_info, open as open_device, port_info};
use pair::Pair;
use region::{Located, Region, Rings};
use ring::{RxRing, TxRing};
use runs::{MAX_PACKET, Runs};
use shared_pool::shared_pool;
pub use simulated::{SimulatedConfig, SimulatedKernel};
use slot_copies::SlotCopies;

/// Number of frames besides those in the rings: for a batch of 256, and for callers that hold more.
const PORT_FRAMES: u32 = USUAL_BATCH + 256;
/// Alignment of frames that are not in netmap's memory, in bytes: one cache line.
const CACHE_LINE: usize = 64;
/// Maximum time to wait at once. The kernel does not wake a waiting program when the interface is
/// removed, but tells it at the next wait.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Size of the Ethernet header with one 802.1Q tag, in bytes.
const LINK_HEADER: usize = 18;

/// One ring pair of a netmap port. Opened by
/// [`QueueSource::open`](crate::device::QueueSource::open).
pub struct NetmapPort<K: Kernel = Bound> {
    device: Pair<K>,
    host: Option<Host<K>>,
    pool: Pool,
    name: String,
    mtu: usize,
    runs: Runs,
    /// Maximum length of the IP packet of a super-segment, in bytes. 0: none can be sent.
    max_super_len: usize,
    /// Why packets are copied. `None`: buffers are exchanged.
    copied: Option<&'static str>,
    wait: Wait,
    partial_checksums: bool,
    counters: PortCounters,
    frames_at_flush: u64,
}

impl NetmapPort {
    /// Binds the rings and maps their memory.
    pub(crate) fn open(config: NetmapConfig) -> Result<Self, DeviceError> {
        let failed = |source| DeviceError::netmap(config.target.name(), source);
        let runs = config.runs()?;
        // On a pipe, only the two ends know of the headers.
        let has_switch_headers = runs == Runs::ToSwitch;
        let frames = PORT_FRAMES
            .saturating_add(config.memory.scratch_frames)
            .saturating_add(config.memory.resident_frames);
        // If packets are copied, frames are not in netmap's memory.
        let copies = config.is_pipe() || has_switch_headers;
        let wanted = if copies { 0 } else { frames };
        let mut request = nmreq_register {
            nr_mode: NR_REG_ONE_NIC,
            nr_ringid: config.ring as u16,
            nr_extra_bufs: wanted,
            nr_host_tx_rings: config.host_rings as u16,
            nr_host_rx_rings: config.host_rings as u16,
            nr_flags: if has_switch_headers {
                NR_ACCEPT_VNET_HDR
            } else {
                0
            },
            ..Default::default()
        };
        let name = config.target.name();
        let bound = Bound::open(name, &mut request).map_err(failed)?;
        if has_switch_headers {
            kernel::add_headers(name).map_err(failed)?;
        }
        if request.nr_extra_bufs < wanted {
            return Err(DeviceError::NetmapBuffers {
                name: name.to_owned(),
                wanted,
                granted: request.nr_extra_bufs,
            });
        }
        let region = Region::map(bound.as_fd(), request.nr_memsize).map_err(failed)?;
        let region = Rc::new(region);
        let mut host_bound = None;
        if config.classifier.is_some() {
            let mut request = nmreq_register {
                nr_mode: NR_REG_ONE_SW,
                nr_ringid: config.ring as u16,
                ..Default::default()
            };
            let bound = Bound::open(name, &mut request).map_err(failed)?;
            host_bound = Some((bound, request.nr_offset));
        }
        let rings = Rings::Device(config.ring);
        let device = Registered::find(bound, &region, request.nr_offset, rings).map_err(failed)?;
        let host = host_bound.map(|(bound, offset)| {
            Registered::find(bound, &region, offset, Rings::Host(config.ring))
        });
        let host = host.transpose().map_err(failed)?;
        Self::over(config, runs, &region, device, host)
    }
}

/// A registered ring pair that was found in the region.
struct Registered<K> {
    kernel: K,
    interface: NonNull<netmap_if>,
    tx: Located,
    rx: Located,
}

impl<K: Kernel> Registered<K> {
    fn find(kernel: K, region: &Region, offset: u64, rings: Rings) -> io::Result<Self> {
        let interface = region.interface(offset)?;
        let (tx, rx) = region.rings(interface, rings)?;
        Ok(Self {
            kernel,
            interface,
            tx,
            rx,
        })
    }

    /// Number of buffers that the rings hold.
    fn slots(&self) -> u32 {
        self.tx.num_slots + self.rx.num_slots
    }

    /// Splits into the kernel's side and the two rings.
    fn rings(self, region: &Rc<Region>) -> io::Result<(K, (TxRing, RxRing))> {
        let tx = TxRing::new(self.tx, Rc::clone(region))?;
        let rx = RxRing::new(self.rx, Rc::clone(region))?;
        Ok((self.kernel, (tx, rx)))
    }
}

impl<K: Kernel + 'static> NetmapPort<K> {
    /// Creates the port over rings that were found in `region`.
    fn over(
        config: NetmapConfig,
        runs: Runs,
        region: &Rc<Region>,
        device: Registered<K>,
        host: Option<Registered<K>>,
    ) -> Result<Self, DeviceError> {
        let failed = |source| DeviceError::netmap(config.target.name(), source);
        let slots = SlotCopies::new(region, device.tx, runs.has_headers()).map_err(failed)?;
        let longest = slots.longest(device.tx.num_slots);
        let copied = copy_reason(&config, runs, &slots);
        let most = if config.is_interface() {
            slots.size()
        } else {
            longest
        };
        if config.mtu + LINK_HEADER > most {
            return Err(DeviceError::NetmapMtu {
                name: config.target.name().to_owned(),
                mtu: config.mtu,
                buffer: most,
            });
        }
        let (device, host, pool) = if copied.is_some() {
            let capacity = runs.longest_received(config.mtu) + LINK_HEADER;
            let stride = capacity.next_multiple_of(CACHE_LINE);
            let layout = config.memory.layout(stride, capacity, PORT_FRAMES)?;
            let (kernel, rings) = device.rings(region).map_err(failed)?;
            let mut device = Pair::copying(kernel, rings, slots, config.mtu + LINK_HEADER);
            if runs == Runs::ToSwitch {
                // Packets may have arrived before the port had headers.
                device.discard_received().map_err(failed)?;
            }
            (device, None, Pool::on_heap(layout))
        } else {
            let resident = config.memory.resident_frames;
            let shared = share(region, device, host, resident).map_err(failed)?;
            let host = shared.host.zip(config.classifier);
            let host = host.map(|(rings, rules)| Host::new(rings, rules));
            (shared.device, host, shared.pool)
        };
        Ok(Self {
            device,
            host,
            pool,
            max_super_len: if runs.has_headers() {
                MAX_PACKET.min(longest - LINK_HEADER)
            } else {
                0
            },
            runs,
            copied,
            name: config.target.name().to_owned(),
            mtu: config.mtu,
            wait: config.wait,
            partial_checksums: config.partial_checksums,
            counters: PortCounters::default(),
            frames_at_flush: 0,
        })
    }

    /// Returns a human-readable description of the port's settings, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        let layout = self.pool.layout();
        let (tx, rx) = self.device.ring_slots();
        let (transfer, unit) = match self.copied {
            Some(why) => (format!("packets are copied, because {why}"), "frames"),
            None => ("buffers are exchanged, not copied".to_owned(), "buffers"),
        };
        let mut lines = vec![
            ("data path", format!("netmap {}, {transfer}", self.name)),
            ("rings", format!("RX {rx}, TX {tx}")),
            (
                "packet memory",
                format!(
                    "{} {unit} of {} bytes for receiving and sending, {} for resident packets",
                    layout.io_frames, layout.capacity, layout.resident_frames
                ),
            ),
            ("waiting", self.wait.describe(true).to_owned()),
            ("segmentation", self.runs.describe(self.max_super_len)),
        ];
        if self.wait == Wait::BusyPoll {
            lines.push((
                "busy polling",
                "inert: netmap has no busy polling, so an idle worker sleeps".to_owned(),
            ));
        }
        lines
    }

    /// Receives into `batch`, and passes packets for the kernel to the host's ring.
    #[inline]
    fn take_received(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        // Each received frame needs a free one in its place.
        let available = self.device.available()?.min(self.pool.available());
        let (before, mut bytes) = (batch.len(), 0);
        let received = (0..available)
            .filter_map(|_| self.device.receive(&self.pool))
            .filter_map(|frame| match &mut self.host {
                Some(host) => host.keep(frame, &self.pool),
                None => Some(frame),
            })
            .take(limit)
            .inspect(|frame| bytes += frame.len() as u64);
        batch.extend(received);
        self.counters.rx_frames += (batch.len() - before) as u64;
        self.counters.rx_bytes += bytes;
        self.device.publish_rx();
        Ok(())
    }

    /// Ensures that the TX ring has room for one more packet. Flushes if necessary, and fails if
    /// the ring is still full after that.
    #[inline(always)]
    fn make_room(&mut self) -> Result<(), SendError> {
        if self.device.has_room() {
            return Ok(());
        }
        self.flush_for(Pair::has_room)
    }

    /// Flushes. Fails if the TX ring still has no room after that.
    #[cold]
    fn flush_for(&mut self, has_room: impl Fn(&Pair<K>) -> bool) -> Result<(), SendError> {
        // If the port is gone, the next flush by the caller reports it.
        let _ = self.flush();
        if !has_room(&self.device) {
            self.counters.tx_ring_full += 1;
            return Err(SendError::RingFull);
        }
        Ok(())
    }

    /// Counts a packet of this length.
    #[inline(always)]
    fn count_sent(&mut self, len: usize) {
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }
}

impl<K: Kernel + 'static> Port for NetmapPort<K> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            zero_copy: false,
            partial_checksums: self.partial_checksums,
            segmentation: self.max_super_len,
            min_segment: self.runs.min_segment(),
            min_run: 0,
            resident_frames: self.pool.layout().resident_frames,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        let limit = limit.min(batch.remaining_capacity());
        let mut idle = false;
        if self.device.available()? == 0 {
            self.counters.waits += 1;
            self.device.sync_rx()?;
            idle = self.device.available()? == 0;
        }
        self.take_received(batch, limit)?;
        self.counters.rx_batches.count(batch.len());
        if let Some(host) = &mut self.host {
            host.pass_down(&mut self.device, &self.pool, idle)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        let len = frame.len();
        if len < ETHERNET_HEADER {
            self.counters.bad_descriptors += 1;
            return Ok(());
        }
        self.make_room()?;
        self.device.push(frame, &self.pool);
        self.count_sent(len);
        Ok(())
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        let len = packet.len();
        if len < ETHERNET_HEADER {
            self.counters.bad_descriptors += 1;
            return Ok(());
        }
        self.make_room()?;
        self.device.push_resident(packet, &self.pool);
        self.count_sent(len);
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        assert!(
            self.runs.has_headers(),
            "{}",
            super_segment::NO_SUPER_SEGMENTS
        );
        // A switch cannot cut a run of UDP datagrams, and it drops packets that are too long. The other
        // end of a pipe may not know such runs either.
        if packet.gso_type() == GsoType::Udp || packet.len() > self.max_super_len + LINK_HEADER {
            self.counters.bad_descriptors += 1;
            return Ok(());
        }
        if !self.device.has_room_for(packet.len()) {
            self.flush_for(|device| device.has_room_for(packet.len()))?;
        }
        self.counters.tx_frames += packet.segments() as u64;
        self.counters.tx_bytes += packet.wire_len() as u64;
        self.counters.tx_supers += 1;
        self.device.push_super(&packet);
        Ok(())
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.device.room() as usize
    }

    #[inline]
    fn flush(&mut self) -> io::Result<bool> {
        if let Some(host) = &mut self.host
            && host.rings().in_flight() > 0
        {
            host.rings_mut().sync_tx(&self.pool)?;
        }
        if self.device.in_flight() == 0 {
            return Ok(true);
        }
        let frames = self.counters.tx_frames - self.frames_at_flush;
        self.frames_at_flush = self.counters.tx_frames;
        self.counters.tx_batches.count(frames as usize);
        self.counters.tx_wakeups += 1;
        self.device.sync_tx(&self.pool)?;
        // Packets that the device has not sent yet need another call, which also takes back the
        // buffers of those that it has sent since.
        Ok(self.device.in_flight() == 0)
    }

    fn hints(&self) -> PortHints {
        PortHints {
            ready: false,
            can_poll: false,
            gathers: true,
            sent: self.counters.tx_frames,
        }
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        let device = self.device.kernel().descriptor();
        let host = self.host.as_ref();
        let host = host.and_then(|host| host.rings().kernel().descriptor());
        let fds = [device, host, bell.map(Bell::event)];
        let events = sys::poll_readable(fds, timeout.min(MAX_WAIT))?;
        let gone = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        if (events[0] | events[1]) & gone != 0 {
            // The rings may have stopped, or they are gone.
            self.device.sync_rx()?;
            return Err(poll_error(&self.name));
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        let host = self.host.as_ref();
        let host_invalid = host.map_or(0, |host| host.rings().invalid());
        PortCounters {
            rx_lost: host.map_or(0, Host::lost),
            bad_descriptors: self.counters.bad_descriptors + self.device.invalid() + host_invalid,
            ..self.counters
        }
    }

    fn levels(&self) -> PortLevels {
        PortLevels {
            sending: self.device.in_flight(),
            // Every slot of the RX ring has a buffer, full or empty.
            receiving: self.device.ring_slots().1,
            ..PortLevels::of_pool(&self.pool)
        }
    }
}

impl<K: Kernel> Drop for NetmapPort<K> {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
            host.rings_mut().close(&self.pool);
        }
        self.device.close(&self.pool);
    }
}

/// Returns the error of a port on which only polling fails.
#[cold]
fn poll_error(name: &str) -> io::Error {
    io::Error::other(format!(
        "netmap port {name} cannot be polled: its rings have stopped or are gone, or another program has \
         changed their positions; start the server again"
    ))
}

/// Returns why packets are copied. `None`: buffers are exchanged.
fn copy_reason(config: &NetmapConfig, runs: Runs, slots: &SlotCopies) -> Option<&'static str> {
    if config.is_pipe() {
        Some("a pipe keeps sent buffers")
    } else if runs.has_headers() {
        Some("they have virtio-net headers")
    } else if !config.is_interface() && slots.slots_for(config.mtu + LINK_HEADER) > 1 {
        Some("a packet of the MTU takes several buffers")
    } else {
        None
    }
}

/// Ring pairs whose buffers are frames of a pool.
struct Shared<K> {
    device: Pair<K>,
    host: Option<Pair<K>>,
    pool: Pool,
}

/// Makes the extra buffers and those of the rings the frames of a pool, of which `resident` are for
/// resident packets.
fn share<K: Kernel + 'static>(
    region: &Rc<Region>,
    device: Registered<K>,
    host: Option<Registered<K>>,
    resident: u32,
) -> io::Result<Shared<K>> {
    let buffers = region.buffers(device.tx)?;
    let size = buffers.size() as usize;
    let extra = Region::take_extra(&buffers, device.interface, buffers.count())?;
    let slots = device.slots() + host.as_ref().map_or(0, Registered::slots);
    let layout = PoolLayout {
        stride: size,
        capacity: size,
        io_frames: (extra.len() as u32 + slots).saturating_sub(resident),
        resident_frames: resident,
    };
    let kept = (device.kernel.clone(), Rc::clone(region));
    let pool = shared_pool(buffers, layout, device.interface, &extra, kept);
    let pair = |registered: Registered<K>| -> io::Result<Pair<K>> {
        let slots = SlotCopies::new(region, registered.tx, false)?;
        let (kernel, rings) = registered.rings(region)?;
        Ok(Pair::exchanging(kernel, rings, slots, &pool))
    };
    let device = pair(device)?;
    let host = host.map(pair).transpose()?;
    Ok(Shared { device, host, pool })
}

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
