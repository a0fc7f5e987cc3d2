//! The `AF_XDP` port: rings in memory shared with the kernel.
//!
//! The steering program (`bpf/steer.bpf.c`) redirects the server's packets to the RX ring of their
//! queue. An [`XdpPort`] owns that ring and a TX ring.
//!
//! If the driver supports zero-copy, the device reads and writes frames directly; otherwise the
//! kernel copies them. [`XdpPort::summary`] and [`Capabilities::zero_copy`] report which mode is
//! active.
//!
//! Runs of segments can be sent as super-segments, which bypass the TX ring: see
//! [`Port::send_super`] and [`Offload`](crate::device::Offload).
//!
//! If a packet of the MTU does not fit in a page, packets span several buffers (`XDP_USE_SG`, Linux
//! 6.6). They are sent without a copy, and assembled by copying when they are received.
//!
//! TX metadata (checksum and timestamp requests) is deliberately not used. The server computes
//! checksums when it builds packets, and updates them when it patches one. Queues do not share a
//! UMEM, because workers share no memory.

mod config;
mod device_drops;
mod fill_level;
mod huge_pages;
mod link;
mod mapping;
mod multi_buffer;
mod overdue;
mod packet_socket;
mod queued_packet;
mod refusals;
mod removal;
mod retry;
mod ring;
mod rings;
mod sizes;
mod socket;
pub(crate) mod steer;
mod tx_ring;
mod umem;
mod virtio;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::device::{DeviceError, NewQueue, PacketMemory, ZeroCopy};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::port::{
    Batch, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, PortLevels, SendError, Wait,
};
use crate::super_segment::{self, SuperSegment};
use crate::sys::{self, NapiPoller};
pub(crate) use config::XdpConfig;
pub(crate) use packet_socket::MAX_GSO_SIZE;
use packet_socket::{PacketSocket, Runs};
use refusals::Refusals;
use removal::Removal;
use rings::Rings;
pub(crate) use sizes::{MAX_MTU, ORDINARY_MTU, frame_len};
use sizes::{MAX_SINGLE_BUFFER_MTU, RX_RING, TX_RING};
use socket::Copying;
pub(crate) use socket::unbound_socket;
pub(crate) use umem::register_memory;

/// Size of an Ethernet header, in bytes. A shorter frame is invalid.
const ETHERNET_HEADER: usize = 14;
/// Maximum number of packets that one wakeup sends in copy mode, unless the kernel accepts a larger
/// budget.
const DEFAULT_BUDGET: u32 = 32;
/// Maximum number of wakeups in one flush: twice as many as a full ring needs with the default
/// budget.
const MAX_KICKS: u32 = TX_RING / DEFAULT_BUDGET * 2;
/// Number of times that a port finds the RX ring empty before it checks that its interface still
/// exists.
const EMPTY_POLLS_UNTIL_CHECK: u32 = 1 << 16;
/// Maximum number of queries for the queue's NAPI id, one after each wait that packets ended. The
/// kernel sets the id with the first packet at the latest, so more queries would be useless.
const MAX_NAPI_ID_QUERIES: u32 = 8;

// Option from linux/socket.h that libc does not define for every target.
const SO_INCOMING_NAPI_ID: i32 = 56;

/// State of busy polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPolling {
    /// Busy polling was not requested.
    Off,
    /// The kernel refused the socket options.
    Refused,
    /// The options are set but have no effect yet, because the queue's NAPI id is unknown. Waiting
    /// blocks in `poll`.
    ///
    /// In copy mode, the kernel sets the id when the first packets arrive.
    Inert,
    /// Waiting polls the device's queue inside the kernel.
    Active,
}

/// One queue of an interface, accessed through `AF_XDP`. Opened by
/// [`QueueSource::open`](crate::device::QueueSource::open).
pub struct XdpPort {
    rings: Rings,
    /// How to send runs of segments.
    runs: Runs,
    /// Whether all packets currently go through the packet socket, to keep them in order.
    bypasses_ring: bool,
    capabilities: Capabilities,
    counters: PortCounters,
    busy_polling: BusyPolling,
    /// Polls the queue's NAPI instance in place of the socket.
    poller: Option<NapiPoller>,
    napi_id_queries: u32,
    /// Maximum number of packets that one wakeup sends in copy mode.
    tx_budget: u32,
    /// Decides whether and when frames that the driver has dropped are sent again.
    refusals: Refusals,
    /// Number of frames that the driver dropped and the port did not send again.
    dropped: u64,
    /// Whether some packets are staged, or in the TX ring but not yet taken by the kernel.
    unflushed: bool,
    /// Value of `counters.tx_frames` at the last flush.
    frames_at_flush: u64,
    empty_polls: u32,
    config: XdpConfig,
    removal: Removal,
}

impl XdpPort {
    pub(crate) fn open(config: XdpConfig) -> Result<Self, DeviceError> {
        let mut rings = Rings::open(&config)?;
        // Kernels without a larger budget send at most 32 packets per wakeup, so `flush` wakes them
        // repeatedly.
        let tx_budget = if rings.raise_budget() {
            // Linux 6.17 added this option. Since the same version, the kernel publishes its
            // position in the TX ring at the end of each wakeup that has sent a frame.
            rings.track_drops();
            TX_RING
        } else {
            DEFAULT_BUDGET
        };
        let mut busy_polling = BusyPolling::of(&rings, config.wait);
        let is_inert = busy_polling == BusyPolling::Inert;
        let poller = config.napi.filter(|_| is_inert).map(NapiPoller::open);
        let step = "poll a queue through io_uring".to_owned();
        let poller = poller.transpose().map_err(DeviceError::set_up(step))?;
        if poller.is_some() {
            busy_polling = BusyPolling::Active;
        }
        let runs = Runs::open(&config, rings.copying())?;
        let capabilities = Capabilities {
            mtu: config.mtu,
            zero_copy: matches!(rings.copying(), Copying::Never),
            partial_checksums: config.options.partial_checksums,
            // `capabilities()` fills in the current values.
            segmentation: 0,
            min_run: 0,
            min_segment: 0,
            resident_frames: config.memory.resident_frames,
        };
        Ok(Self {
            rings,
            runs,
            bypasses_ring: false,
            capabilities,
            counters: PortCounters::default(),
            busy_polling,
            poller,
            napi_id_queries: 0,
            tx_budget,
            refusals: Refusals::default(),
            dropped: 0,
            unflushed: false,
            frames_at_flush: 0,
            empty_polls: 0,
            removal: Removal::expected(config.waits_for_return),
            config,
        })
    }

    /// Returns a human-readable description of the port's settings, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        let copying = match self.rings.copying() {
            Copying::Never => "zero-copy".to_owned(),
            Copying::Generic => "copy (generic mode always copies)".to_owned(),
            Copying::Requested => "copy (zerocopy=off)".to_owned(),
            Copying::Faulty => {
                "copy (with zero-copy, virtio_net as a module sends damaged frames)".to_owned()
            }
            Copying::Refused(error) if self.capabilities.mtu > MAX_SINGLE_BUFFER_MTU => format!(
                "copy (the driver refuses zero-copy: {error}; it may accept it with an MTU of up to \
                 {MAX_SINGLE_BUFFER_MTU})"
            ),
            Copying::Refused(error) => format!("copy (the driver refuses zero-copy: {error})"),
        };
        let (io, resident) = (
            self.rings.pool().layout().io_frames,
            self.capabilities.resident_frames,
        );
        let mut lines = vec![
            ("data path", format!("AF_XDP, {copying}")),
            (
                "rings",
                format!("RX {RX_RING}, TX {TX_RING}, fill {}", fill_level::FILL_RING),
            ),
            (
                "packet memory",
                format!(
                    "{} KiB in pages of {} KiB: {io} frames for receiving and sending, {resident} for \
                     resident packets",
                    self.rings.memory() / 1024,
                    self.rings.page_size() / 1024
                ),
            ),
            (
                "wakeups",
                format!(
                    "when the kernel asks; each sends up to {} packets",
                    self.tx_budget
                ),
            ),
        ];
        lines.push(("waiting", self.config.wait.describe(true).to_owned()));
        if let Some(drops) = self.rings.describe_drops() {
            lines.push(("full device", drops.to_owned()));
        }
        lines.push(("segmentation", self.runs.describe()));
        let busy = match self.busy_polling {
            BusyPolling::Off => return lines,
            BusyPolling::Refused => "refused by the kernel, so an idle worker sleeps",
            BusyPolling::Inert => {
                "inert: the driver has set no NAPI id for this queue (some set it with the first \
                 packets); until then waiting blocks"
            }
            BusyPolling::Active if self.poller.is_some() => "active, through io_uring",
            BusyPolling::Active => "active",
        };
        lines.push(("busy polling", busy.to_owned()));
        lines
    }

    /// Returns the state of busy polling. The state may change to [`Active`](BusyPolling::Active)
    /// when the first packets arrive.
    pub fn busy_polling(&self) -> BusyPolling {
        self.busy_polling
    }

    /// Wakes the kernel so that it sends the packets in the TX ring, as often as needed while it
    /// makes progress. Returns false if packets remain that need another wakeup later.
    fn kick(&mut self) -> io::Result<bool> {
        if self.refusals.hold_back(Instant::now) {
            return Ok(false);
        }
        let mut pending = self.rings.pending() + 1;
        for _ in 0..MAX_KICKS {
            if !self.rings.tx_needs_wakeup() {
                return Ok(true);
            }
            self.counters.tx_wakeups += 1;
            let Err(error) = sys::kick_tx(self.rings.fd()) else {
                return Ok(true);
            };
            match error.raw_os_error() {
                // In copy mode, `EBUSY` means that the driver dropped the frame that the kernel
                // took from the ring last.
                Some(libc::EBUSY) if self.pauses_after_drop() => return Ok(false),
                // The wakeup's budget is used up, or the device or the completion ring is full.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                // The interface is down and may come up again.
                Some(libc::ENETDOWN) => return Ok(false),
                _ => return self.fail(error).map(|()| true),
            }
            let remaining = self.rings.pending();
            if remaining == 0 {
                return Ok(true);
            }
            if remaining >= pending {
                return Ok(false);
            }
            pending = remaining;
            self.rings.reap();
        }
        Ok(false)
    }

    /// Handles `EBUSY`: puts the frame that the driver has dropped back into the TX ring, or counts
    /// it as lost. Returns true if the kernel must not be woken until a pause is over.
    ///
    /// In zero-copy mode, `EBUSY` means that the device is busy, and nothing is lost. This method
    /// then returns false.
    #[cold]
    fn pauses_after_drop(&mut self) -> bool {
        self.runs.note_ring_drop();
        let Some(dropped) = self.rings.dropped() else {
            self.dropped += u64::from(!self.capabilities.zero_copy);
            return false;
        };
        let (slot, now) = (dropped.slot, Instant::now());
        if self.refusals.retry(slot.len, dropped.longest_accepted, now) && self.rings.put_back(slot)
        {
            self.counters.tx_retries += 1;
        } else {
            self.dropped += 1;
        }
        self.refusals.is_paused()
    }

    /// Handles the failure of a system call. If the interface was removed and the port waits for its
    /// return, packets are dropped from now on.
    ///
    /// # Errors
    /// The error that made the port unusable: the socket's pending error if there is one, otherwise
    /// `error`.
    #[cold]
    fn fail(&mut self, error: io::Error) -> io::Result<()> {
        let cause = sys::option(self.rings.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        let error = match cause {
            Ok(errno) if errno != 0 => io::Error::from_raw_os_error(errno),
            _ => error,
        };
        if !self.removal.note(&error) {
            return Err(error);
        }
        if let Runs::Supers(packets) = &mut self.runs {
            self.dropped += packets.clear() as u64;
        }
        // Sending then takes the path on which it is checked whether the interface is gone.
        (self.bypasses_ring, self.unflushed) = (true, false);
        Ok(())
    }

    fn check_alive(&mut self) -> io::Result<()> {
        if self.removal.is_gone() {
            return Ok(());
        }
        match sys::option(self.rings.fd(), libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            errno => self.fail(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Ensures that the TX ring has room for one more packet. Flushes if necessary, and fails if
    /// the ring is still full after that.
    #[inline(always)]
    fn make_room(&mut self) -> Result<(), SendError> {
        if self.rings.room() > 0 {
            return Ok(());
        }
        self.rings.reap();
        self.flush_for(|port| port.rings.room() as usize)
    }

    /// Flushes if `room` returns 0. Fails if `room` still returns 0 after the flush.
    #[cold]
    fn flush_for(&mut self, room: impl Fn(&Self) -> usize) -> Result<(), SendError> {
        if room(self) == 0 {
            // If the port is gone, the next flush by the caller reports it.
            let _ = self.flush();
            self.rings.reap();
        }
        if room(self) == 0 && self.capabilities.zero_copy {
            // Some drivers report sent frames only when they are woken.
            let _ = sys::kick_tx(self.rings.fd());
            self.counters.tx_wakeups += 1;
            self.rings.reap();
        }
        if room(self) == 0 {
            self.counters.tx_ring_full += 1;
            return Err(SendError::RingFull);
        }
        Ok(())
    }

    /// Returns the packet socket. Panics if the port has none.
    fn packets(&mut self) -> &mut PacketSocket {
        match &mut self.runs {
            Runs::Supers(packets) => packets,
            Runs::Frames(_) => panic!("{}", super_segment::NO_SUPER_SEGMENTS),
        }
    }

    /// Queues a frame for the packet socket, so that it stays behind earlier super-segments.
    #[cold]
    fn send_in_order(&mut self, frame: Frame) -> Result<(), SendError> {
        frame.assert_of(self.rings.pool());
        if self.removal.is_gone() {
            self.dropped += 1;
            return Ok(());
        }
        self.flush_for(Self::packet_room)?;
        if !self.bypasses_ring {
            // The flush has sent all earlier packets, so the ring can be used again without
            // reordering.
            return self.send(frame);
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += frame.len() as u64;
        self.packets().push_frame(frame);
        Ok(())
    }

    /// Queues a copy of a resident packet for the packet socket, whose queue can hold frames but not
    /// residents.
    #[cold]
    fn send_resident_in_order(&mut self, packet: &[u8]) -> Result<(), SendError> {
        if self.removal.is_gone() {
            self.dropped += 1;
            return Ok(());
        }
        let mut frame = self.rings.pool().take().ok_or(SendError::RingFull)?;
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        self.send_in_order(frame)
    }

    /// Returns the number of packets that the packet socket's queue still has room for.
    fn packet_room(&self) -> usize {
        if self.removal.is_gone() {
            // What is queued is dropped at once.
            return TX_RING as usize;
        }
        match &self.runs {
            Runs::Supers(packets) => packets.room(),
            Runs::Frames(_) => 0,
        }
    }

    /// Counts a packet that was staged for the TX ring.
    #[inline(always)]
    fn staged(&mut self, len: usize) {
        self.unflushed = true;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    /// Checks again for the queue's NAPI id, which the kernel may set only with the first packet.
    fn query_napi_id(&mut self) {
        if self.napi_id_queries == MAX_NAPI_ID_QUERIES {
            return;
        }
        self.napi_id_queries += 1;
        if has_napi_id(self.rings.fd()) {
            self.busy_polling = BusyPolling::Active;
        }
    }
}

fn has_napi_id(fd: BorrowedFd<'_>) -> bool {
    sys::option(fd, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID).is_ok_and(|id| id != 0)
}

impl BusyPolling {
    /// Returns the state of a socket with these rings.
    fn of(rings: &Rings, wait: Wait) -> Self {
        match wait {
            Wait::BusyPoll if !rings.prefers_busy_polling() => Self::Refused,
            Wait::BusyPoll if has_napi_id(rings.fd()) => Self::Active,
            Wait::BusyPoll => Self::Inert,
            Wait::Adaptive | Wait::Block | Wait::Spin => Self::Off,
        }
    }
}

impl Port for XdpPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            segmentation: self.runs.max_super_len(),
            min_run: self.runs.min_run(),
            ..self.capabilities
        }
    }

    fn pool(&self) -> &Pool {
        self.rings.pool()
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        self.rings.reap();
        self.rings.receive(batch, limit.min(MAX_BATCH));
        if batch.is_empty() {
            self.empty_polls += 1;
            if self.empty_polls == EMPTY_POLLS_UNTIL_CHECK {
                self.empty_polls = 0;
                self.check_alive()?;
            }
        } else {
            self.counters.rx_frames += batch.len() as u64;
            self.counters.rx_batches.count(batch.len());
            self.counters.rx_bytes += batch.iter().map(|frame| frame.len() as u64).sum::<u64>();
        }
        if self.rings.fill_needs_wakeup() && !self.removal.is_gone() {
            self.counters.waits += 1;
            // Ignore errors: if the port is gone, a later call reports it.
            let _ = sys::kick_rx(self.rings.fd());
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        let len = frame.len();
        if len < ETHERNET_HEADER {
            // The kernel would reject such a short frame and never complete it.
            self.rings.count_invalid();
            return Ok(());
        }
        if self.bypasses_ring {
            return self.send_in_order(frame);
        }
        self.make_room()?;
        self.rings.send(frame);
        self.staged(len);
        Ok(())
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        let len = packet.len();
        if len < ETHERNET_HEADER {
            self.rings.count_invalid();
            return Ok(());
        }
        if self.bypasses_ring {
            return self.send_resident_in_order(&packet);
        }
        self.make_room()?;
        self.rings.send_resident(packet);
        self.staged(len);
        Ok(())
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        // Without a packet socket there is no room either, and the caller would try for ever.
        assert!(
            matches!(self.runs, Runs::Supers(_)),
            "{}",
            super_segment::NO_SUPER_SEGMENTS
        );
        if self.removal.is_gone() {
            self.dropped += packet.segments() as u64;
            return Ok(());
        }
        self.flush_for(Self::packet_room)?;
        self.counters.tx_frames += packet.segments() as u64;
        self.counters.tx_bytes += packet.wire_len() as u64;
        self.counters.tx_supers += 1;
        self.bypasses_ring = true;
        self.packets().push_super(packet);
        Ok(())
    }

    #[inline]
    fn room(&mut self) -> usize {
        if self.rings.room() < TX_RING / 4 {
            self.rings.reap();
        }
        if self.bypasses_ring {
            return self.packet_room();
        }
        self.rings.room() as usize
    }

    #[inline]
    fn flush(&mut self) -> io::Result<bool> {
        if !self.unflushed && !self.bypasses_ring {
            return Ok(true);
        }
        let frames = self.counters.tx_frames - self.frames_at_flush;
        self.frames_at_flush = self.counters.tx_frames;
        self.counters.tx_batches.count(frames as usize);
        if self.unflushed {
            self.rings.submit();
            self.unflushed = !self.kick()?;
        }
        if self.removal.is_gone() {
            return Ok(true);
        }
        if !self.bypasses_ring || self.unflushed {
            return Ok(!self.unflushed);
        }
        let packets = self.packets();
        match packets.send() {
            Ok(done) => {
                self.bypasses_ring = !done || !packets.can_return_to_ring();
                Ok(done)
            }
            Err(error) => self.fail(error).map(|()| true),
        }
    }

    fn hints(&self) -> PortHints {
        PortHints {
            ready: false,
            can_poll: self.busy_polling == BusyPolling::Active && !self.removal.is_gone(),
            gathers: true,
            sent: self.counters.tx_frames,
        }
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        // Polling the socket also makes the kernel send. In copy mode, `poll` would not report a
        // frame that the driver drops. So the socket is not polled while packets are unflushed.
        let is_polled = !self.unflushed || self.capabilities.zero_copy;
        let rings = (is_polled && !self.removal.is_gone()).then(|| self.rings.fd());
        let (polled, events) = match &self.runs {
            Runs::Supers(packets) if packets.room() == 0 => packets.wait_for_room(),
            _ => (rings, libc::POLLIN),
        };
        let events = sys::poll(polled, events, timeout, bell.map(Bell::event))?;
        // A removed interface causes no event, only a pending socket error.
        if events & libc::POLLIN == 0 {
            return self.check_alive();
        }
        if self.busy_polling == BusyPolling::Inert {
            self.query_napi_id();
        }
        Ok(())
    }

    fn poll_device(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        self.counters.waits += 1;
        if let Some(poller) = &mut self.poller {
            let readable = poller.poll(self.rings.fd(), bell.map(Bell::event), timeout)?;
            // A removed interface causes no event, only a pending socket error.
            return if readable { Ok(()) } else { self.check_alive() };
        }
        let Err(error) = sys::kick_rx(self.rings.fd()) else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            Some(libc::ENETDOWN) => self.check_alive(),
            _ => self.fail(error),
        }
    }

    fn attach(&mut self, queue: NewQueue) -> io::Result<()> {
        if !self.removal.is_expected() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.poller.is_some() {
            let why = "a port that polls its queue through io_uring cannot use another queue";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut config = XdpConfig {
            index: queue.index,
            socket: queue.socket,
            ..self.config.clone()
        };
        config.options.zero_copy = match self.rings.copying() {
            Copying::Never => ZeroCopy::Required,
            _ => ZeroCopy::Off,
        };
        let counts = self.rings.kernel_counts();
        match self.rings.attach(&config) {
            Err(error) if Removal::prevents(&error) => return Ok(()),
            attached => attached.map_err(io::Error::other)?,
        }
        self.removal.keep_counts(counts);
        // The kernel accepts the budget if it did so for the first socket.
        let _ = self.rings.raise_budget();
        if let Runs::Supers(packets) = &mut self.runs
            && let Err(error) = packets.attach(config.index)
        {
            return self.fail(error);
        }
        self.busy_polling = BusyPolling::of(&self.rings, config.wait);
        self.napi_id_queries = 0;
        (self.config.index, self.config.socket) = (config.index, config.socket);
        self.removal.end();
        (self.bypasses_ring, self.unflushed) = (false, false);
        Ok(())
    }

    fn shared_memory(&self) -> Option<PacketMemory> {
        Some(self.rings.shared_memory())
    }

    fn counters(&self) -> PortCounters {
        let (lost, invalid) = self.removal.with_earlier(self.rings.kernel_counts());
        let [calls, tx_refused, dropped] = self.runs.counts();
        PortCounters {
            rx_lost: lost,
            tx_lost: self.dropped + dropped + self.rings.lost(),
            tx_refused,
            bad_descriptors: self.rings.invalid() + invalid,
            tx_wakeups: self.counters.tx_wakeups + calls,
            ..self.counters
        }
    }

    fn levels(&self) -> PortLevels {
        self.rings.levels()
    }
}
