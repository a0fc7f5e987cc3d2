//! Sends super-segments through a packet socket (`AF_PACKET`) instead of the TX ring.
//!
//! `AF_XDP` can send only single frames. A packet socket accepts a run of segments as one packet
//! with a `virtio_net_hdr`. The device or the kernel segments the packet. If the receiver is on
//! this host, the packet stays whole.
//!
//! A flush sends up to 64 packets with each call of `sendmmsg`. A super-segment that the kernel cuts for a
//! device without a queueing discipline is sent with a call of its own. The socket only sends. Packets are
//! always received through the rings.
//!
//! # Order
//!
//! Packets queued before the first super-segment are sent through the TX ring. All later packets go
//! through the packet socket until its queue is empty. After that, the TX ring is used again. If the
//! kernel segments, packets may wait in the queueing discipline, so the kernel must have sent all of
//! them before. If the device has several TX queues, packets may wait in a TX queue other than the
//! ring's. Then all packets go through the packet socket permanently after its first use.
//!
//! # A packet that is never accepted
//!
//! If the kernel has no room for a packet (`EAGAIN`, `ENOBUFS`), the packet stays at the head of
//! the queue. A full queue creates backpressure, like a full ring. After `EAGAIN`, a worker
//! without room sleeps until the kernel has sent half of the bytes that it may hold for the socket.
//!
//! The socket counts tries that fail with `ENOBUFS` while the link has a carrier. A success resets
//! the count. When it reaches 1,024:
//!
//! - The socket drops super-segments above 64 KB, and uses no more of them.
//! - If none are in use, or if the next try fails too, the kernel segments instead of the device.
//!   The count then starts again.
//!
//! While the kernel segments, the packet at the head of the queue is dropped after 64 failed tries.
//! A firewall rule may reject it every time.
//!
//! # Length
//!
//! A super-segment may be as long as the device allows (`gso_max_size`, and `gso_ipv4_max_size` for
//! IPv4). The default is 64 KB. Since Linux 6.3 the IPv4 limit can be raised, and this port uses up
//! to 256 KB. If an IPv4 packet is longer than 65,535 bytes, its length field is 0.
//!
//! Packet sockets accept more than 64 KB since Linux 6.6. They store a packet in at most 16 pieces
//! of up to 32 KB each. So they may refuse a long packet if kernel memory is fragmented. If this
//! happens repeatedly, long packets are dropped, the limit falls to 64 KB, and a warning is logged.
//!
//! # When super-segments are used
//!
//! With `offload=auto`, super-segments are used if the port is in copy mode. If the device does not
//! segment TCP over both IPv4 and IPv6, the kernel does, from 8 segments on. One long packet costs the
//! kernel less than its segments, because a veth pair may receive each of these in a pass of its own.
//! A device without a queueing discipline may drop a part of such a packet. When it
//! does so, single frames are used from then on, which are sent again at their place. The dropped part is
//! counted as lost, if the device has one TX queue.
//!
//! Some devices receive a flow on the queue that sent the flow's last packet. The kernel chooses the
//! packet socket's TX queue by the CPU on which the worker runs, and the ring has its own TX queue.
//! With several queues, a super-segment could thus move a connection to another worker, which would
//! reset it. On these devices, super-segments are used only if there is one TX queue.
//!
//! In zero-copy mode, runs are sent as single frames, because frames need no copy. Using both paths
//! could also reorder packets, because the device empties its ring on its own schedule.
//!
//! A device may stop segmenting while the server runs. For example, veth stops when an XDP program
//! is attached to its peer. When the device refuses super-segments for this reason, the kernel
//! segments from then on.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::config::XdpConfig;
use super::device_drops::DeviceDrops;
use super::queued_packet::{ETHERNET_HEADER, MAX_RELIABLE_LEN, QueuedPacket};
use super::socket::Copying;
use crate::device::{DeviceError, Offload, dropped_without_queue, longest_supers, queue_kinds};
use crate::frame::Frame;
use crate::super_segment::{MAX_OVER_V6, SuperSegment};
use crate::sys::{self, Control, MAX_PACKETS};

/// Every super-segment, including its link header, is shorter than this number of bytes, even if
/// the device accepts longer ones. The kernel stores a packet in at most 16 pieces. For this
/// length, pieces of 16 KB suffice.
pub(crate) const MAX_GSO_SIZE: usize = 256 << 10;
/// Number of consecutive failed tries between two queries of the device's features. The first query
/// follows the first failure. While the kernel segments, a packet is dropped after as many failed
/// tries.
const TRIES_PER_QUERY: u32 = 64;
/// Number of system calls between two looks at the packets that the device has dropped. A look may have to
/// wait for other changes of interfaces.
const CALLS_PER_QUERY: u64 = 1_024;
/// Number of consecutive failed tries after which the socket stops using long super-segments or, if
/// it uses none, segmentation by the device.
const TRIES_UNTIL_FALLBACK: u32 = 1_024;
/// Maximum number of packets that wait for a flush: two calls of `sendmmsg`.
const MAX_QUEUED: usize = 2 * MAX_PACKETS;
/// Number of segments from which the kernel cuts a super-segment for less than single frames cost. Runs of
/// 4 segments cost more on a veth pair, and runs of 12 cost less.
const MIN_RUN_FOR_KERNEL: usize = 8;
/// Drivers of devices that receive a flow on the queue that sent the flow's last packet. In virtio
/// 1.2, section 5.1.6.5.6, this is automatic receive steering. Intel calls it Application Targeted
/// Routing.
const DRIVERS_THAT_FOLLOW: [&str; 3] = ["virtio_net", "ixgbe", "i40e"];
/// Limit on the kernel memory, in bytes, for packets that the device or the receiver has not taken
/// yet.
const SEND_BUFFER: u32 = 8 << 20;

/// The packet socket, its queue, and the state of the device.
pub(super) struct PacketSocket {
    socket: OwnedFd,
    queue: VecDeque<QueuedPacket>,
    /// Maximum IP packet length, in bytes, of a super-segment over IPv4.
    pub(super) max_super_len: usize,
    /// Whether super-segments are left to the device to segment. If not, the kernel segments them.
    device_segments: bool,
    /// Whether the kernel takes no more until half of what the socket may have there is sent.
    is_full: bool,
    /// Number of consecutive tries that failed because there was no room.
    failed_tries: u32,
    /// Whether the device has only one TX queue, so that the ring and the packet socket share it.
    one_queue: bool,
    /// Whether the operator has asked for super-segments.
    is_chosen: bool,
    /// What the device drops, if it has no queueing discipline.
    drops: DeviceDrops,
    /// Whether a queueing discipline delays packets that the kernel no longer counts for the socket.
    delays: bool,
    /// Value of `max_super_len` at the start.
    longest_at_start: usize,
    device: Device,
    /// Number of system calls made to send packets.
    pub(super) calls: u64,
    /// Number of frames dropped because the kernel refused their packet.
    pub(super) refused: u64,
    /// Number of frames that the device has dropped. If it has several TX queues, other ports cause some of
    /// its drops, so none are counted.
    lost: u64,
}

/// How to send runs of segments.
pub(super) enum Runs {
    /// Runs are sent as single frames. The text gives the reason.
    Frames(String),
    Supers(PacketSocket),
}

impl Runs {
    /// Chooses how to send runs, as requested by `offload=` and as far as the device and the mode
    /// allow.
    pub(super) fn open(config: &XdpConfig, copying: &Copying) -> Result<Self, DeviceError> {
        let refuse = |why: String| match config.options.offload {
            Offload::On => Err(DeviceError::Offload {
                interface: config.options.interface.clone(),
                why,
            }),
            Offload::Auto | Offload::Off => Ok(Self::Frames(why)),
        };
        if config.options.offload == Offload::Off {
            return refuse("offload=off was given".to_owned());
        }
        if matches!(copying, Copying::Never) {
            // In zero-copy mode, frames need no copy. The device empties its ring on its own
            // schedule, so packets that bypass the ring could be sent out of order.
            return refuse("zero-copy needs no copy of frames, and keeps their order".to_owned());
        }
        let control = Control::new().map_err(DeviceError::set_up("query interfaces"))?;
        let device_segments = control.segments_tcp(&config.options.interface);
        let device = match Device::open(control, config) {
            Ok(device) => device,
            Err(error) => return refuse(format!("the device's features cannot be read: {error}")),
        };
        if let Some(why) = device.queue_conflict() {
            return refuse(why);
        }
        let one_queue = device.has_one_queue();
        let is_chosen = config.options.offload == Offload::On;
        if !device_segments && !is_chosen && !one_queue {
            return refuse(format!(
                "{} does not segment TCP itself (see ethtool -k: tx-tcp-segmentation, \
                 tx-tcp6-segmentation), and has several TX queues, or does not tell their number",
                config.options.interface
            ));
        }
        let max_super_len = match device.max_super_len() {
            Ok(max_super_len) => max_super_len,
            Err(error) => {
                return refuse(format!("the device's size limit cannot be read: {error}"));
            }
        };
        let socket = match sys::packet_sender(device.index) {
            Ok(socket) => socket,
            Err(error) => return refuse(format!("the kernel refuses a packet socket: {error}")),
        };
        raise_send_buffer(socket.as_fd());
        if let Err(error) = sys::bypass_queueing(socket.as_fd(), device_segments) {
            return refuse(format!(
                "the queueing discipline cannot be bypassed: {error}"
            ));
        }
        Ok(Self::Supers(PacketSocket {
            socket,
            queue: VecDeque::with_capacity(MAX_QUEUED),
            max_super_len,
            device_segments,
            is_full: false,
            failed_tries: 0,
            one_queue,
            is_chosen,
            drops: DeviceDrops::new(device.dropped_without_queue()),
            delays: delays_packets(device.index),
            longest_at_start: max_super_len,
            device,
            calls: 0,
            refused: 0,
            lost: 0,
        }))
    }

    /// Returns the value for [`Capabilities::segmentation`](crate::Capabilities::segmentation).
    #[inline]
    pub(super) fn max_super_len(&self) -> usize {
        match self {
            Self::Frames(_) => 0,
            Self::Supers(packets) => packets.max_super_len,
        }
    }

    /// Returns the value for [`Capabilities::min_run`](crate::Capabilities::min_run).
    #[inline]
    pub(super) fn min_run(&self) -> usize {
        match self {
            Self::Supers(packets) if !packets.device_segments && !packets.is_chosen => {
                MIN_RUN_FOR_KERNEL
            }
            _ => 0,
        }
    }

    /// Numbers of system calls, of refused frames, and of frames that the device has dropped.
    pub(super) fn counts(&self) -> [u64; 3] {
        match self {
            Self::Supers(packets) => [packets.calls, packets.refused, packets.lost],
            Self::Frames(_) => [0; 3],
        }
    }

    /// Notes that the device has dropped a frame of the TX ring. The port counts it.
    pub(super) fn note_ring_drop(&mut self) {
        if let Self::Supers(packets) = self {
            packets.drops.note_counted(1);
        }
    }

    /// Describes for people how runs are sent.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Frames(why) => format!("each segment is sent as a frame: {why}"),
            Self::Supers(packets) if packets.max_super_len == 0 => format!(
                "each segment is sent as a frame: {} has dropped packets while its ring was full",
                packets.device.name
            ),
            Self::Supers(packets) => format!(
                "super-segments of up to {} KB are sent through a packet socket, {}{}",
                packets.max_super_len.div_ceil(1024),
                packets.who_cuts(),
                packets.how_to_lengthen()
            ),
        }
    }
}

/// Descriptors for querying the device's features. They stay open because a running worker may lack
/// the permission to open new ones.
struct Device {
    control: Control,
    route: File,
    name: String,
    index: u32,
}

impl Device {
    fn open(control: Control, config: &XdpConfig) -> io::Result<Self> {
        Ok(Self {
            index: config.index,
            control,
            route: sys::route_socket()?,
            name: config.options.interface.clone(),
        })
    }

    fn has_one_queue(&self) -> bool {
        let channels = self.control.channels(&self.name);
        channels.is_some_and(|has| has.tx == 1)
    }

    /// Returns the reason if super-segments could move connections to other queues.
    fn queue_conflict(&self) -> Option<String> {
        let driver = self.control.driver_name(&self.name).ok()?;
        let name = &self.name;
        moves_connections(&driver, self.has_one_queue()).then(|| {
            format!(
                "{name} receives a connection on the queue that sent to it last, and a packet socket \
                 cannot choose that queue; one queue allows super-segments (ethtool -L {name} \
                 combined 1)"
            )
        })
    }

    fn segments(&self) -> bool {
        self.control.segments_tcp(&self.name)
    }

    /// Returns the number of packets that the device has dropped instead of sending them. Returns `None` if
    /// it has a queueing discipline, or if the number cannot be read.
    fn dropped_without_queue(&self) -> Option<u64> {
        dropped_without_queue(&self.route, self.index).ok()?
    }

    /// Returns the maximum IP packet length, in bytes, of a super-segment over IPv4 that the device
    /// accepts.
    ///
    /// If the device's IPv6 limit is below [`MAX_OVER_V6`], it applies to IPv4 too, because a port
    /// reports only one limit.
    fn max_super_len(&self) -> io::Result<usize> {
        let limits = longest_supers(&self.route, self.index)?;
        let bytes = |limit: usize| limit.min(MAX_GSO_SIZE - 1).saturating_sub(ETHERNET_HEADER);
        let [v4, v6] = limits.map(bytes);
        Ok(if v6 < MAX_OVER_V6 { v4.min(v6) } else { v4 })
    }
}

/// Lets the socket have [`SEND_BUFFER`] bytes in the kernel, or as many as this process may set.
fn raise_send_buffer(socket: BorrowedFd<'_>) {
    // `SO_SNDBUFFORCE` needs CAP_NET_ADMIN. `SO_SNDBUF` needs no capability, but the kernel limits its
    // value.
    if sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
        let _ = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
    }
}

/// Returns true if netem is among the interface's queueing disciplines. It may no longer count a packet for
/// its socket although the packet waits.
fn delays_packets(index: u32) -> bool {
    queue_kinds(index).is_ok_and(|kinds| kinds.iter().any(|kind| kind == "netem"))
}

/// Returns true if a packet socket's packets could move a connection to another RX queue.
fn moves_connections(driver: &str, one_queue: bool) -> bool {
    !one_queue && DRIVERS_THAT_FOLLOW.contains(&driver)
}

impl PacketSocket {
    /// Describes whether the device or the kernel segments, and how this affects other packets.
    fn who_cuts(&self) -> &'static str {
        match (self.device_segments, self.one_queue) {
            (true, true) => "segmented by the device if necessary",
            (true, false) => {
                "segmented by the device if necessary; after the first one all packets go through \
                 this socket, because the device has several TX queues"
            }
            (false, true) => "segmented by the kernel if necessary",
            (false, false) => {
                "segmented by the kernel if necessary; after the first one all packets go through \
                 this socket, because the device has several TX queues"
            }
        }
    }

    /// Returns the end of a sentence that says how to allow longer super-segments. It is empty if they
    /// cannot be longer.
    fn how_to_lengthen(&self) -> String {
        let wanted = MAX_GSO_SIZE;
        if self.max_super_len + ETHERNET_HEADER + 1 >= wanted {
            return String::new();
        }
        let name = &self.device.name;
        format!(
            "; for {} KB over IPv4: ip link set {name} gso_ipv4_max_size {wanted} (Linux 6.6)",
            wanted / 1024
        )
    }

    /// Drops all queued packets. Returns the number of frames.
    pub(super) fn clear(&mut self) -> usize {
        self.is_full = false;
        self.queue.drain(..).map(|packet| packet.frames()).sum()
    }

    /// Sends on the interface with this index from now on. It has taken the place of a removed one.
    pub(super) fn attach(&mut self, index: u32) -> io::Result<()> {
        sys::bind_packet_sender(self.socket.as_fd(), index)?;
        self.device.index = index;
        self.one_queue = self.device.has_one_queue();
        self.failed_tries = 0;
        self.drops = DeviceDrops::new(self.device.dropped_without_queue());
        if self.max_super_len == 0 {
            self.max_super_len = self.longest_at_start;
        }
        if self.device_segments {
            self.still_segments();
        }
        Ok(())
    }

    /// Returns true if the TX ring may be used again after this queue has become empty. Returns
    /// false if that could reorder packets.
    pub(super) fn can_return_to_ring(&self) -> bool {
        // What the kernel segments may wait in the queueing discipline.
        let has_sent_all = || !self.delays && sys::has_sent_all(self.socket.as_fd());
        self.one_queue && (self.device_segments || has_sent_all())
    }

    /// Queries the device. Returns true if it still segments packets of the maximum length.
    ///
    /// For example, a veth device stops segmenting when an XDP program is attached to its peer. If
    /// the device has stopped, this method lets the kernel segment. For that, packets must no
    /// longer bypass the queueing discipline.
    #[cold]
    fn still_segments(&mut self) -> bool {
        self.device_segments = self.device.segments()
            && self
                .device
                .max_super_len()
                .is_ok_and(|now| now >= self.max_super_len);
        if !self.device_segments {
            tracing::warn!(
                target: "nmio::xdp",
                "{} no longer segments TCP: from now on the kernel segments",
                self.device.name
            );
            self.drops = DeviceDrops::new(self.device.dropped_without_queue());
            // Ignore errors: the option was already set when the socket was opened, so the kernel
            // supports it.
            let _ = sys::bypass_queueing(self.socket.as_fd(), false);
        }
        self.device_segments
    }

    /// Handles `ENOBUFS`: for example, the device's queue is full, or the kernel has no memory for
    /// a long packet. Returns true if sending should continue immediately.
    #[cold]
    fn handle_no_buffers(&mut self) -> bool {
        if !self.device.control.is_running(&self.device.name) {
            // Without a carrier no packet can be sent, so do not count this try. The first packet stays in
            // the queue, so its segments are not lost.
            if self.looks_at_drops() {
                self.drops.note_counted(self.queue[0].frames());
                self.count_drops();
            }
            return false;
        }
        if self.looks_at_drops() && self.drops_first_in_part() {
            return true;
        }
        self.failed_tries += 1;
        if self.failed_tries % TRIES_PER_QUERY == 1
            && self.device_segments
            && !self.still_segments()
        {
            return true;
        }
        if self.failed_tries >= TRIES_UNTIL_FALLBACK
            && (self.stop_long_supers() || self.segment_in_kernel())
        {
            return true;
        }
        // A firewall rule may reject this packet on every try, so drop the packet after enough
        // tries.
        let max_tries = if self.device_segments {
            TRIES_UNTIL_FALLBACK
        } else {
            TRIES_PER_QUERY
        };
        if self.failed_tries < max_tries {
            return false;
        }
        self.drop_first();
        true
    }

    fn drop_first(&mut self) {
        let first = self.queue.pop_front();
        self.refused += first.map_or(0, |packet| packet.frames() as u64);
        self.failed_tries = 0;
    }

    /// Moves segmentation from the device to the kernel, because the device refuses packets that it
    /// claims to segment, such as runs of UDP datagrams. Returns false if the kernel already
    /// segments, or if the change fails.
    #[cold]
    fn segment_in_kernel(&mut self) -> bool {
        if !self.device_segments || sys::bypass_queueing(self.socket.as_fd(), false).is_err() {
            return false;
        }
        tracing::warn!(
            target: "nmio::xdp",
            "{} refuses packets that it claims to segment: from now on the kernel segments",
            self.device.name
        );
        self.drops = DeviceDrops::new(self.device.dropped_without_queue());
        self.device_segments = false;
        self.failed_tries = 0;
        true
    }

    /// Returns true if the device may drop a part of a super-segment, and counts such drops. It then
    /// segments none itself and has no queueing discipline.
    fn looks_at_drops(&self) -> bool {
        self.drops.is_known() && !self.device_segments
    }

    /// Counts what the device has dropped since the last look. Returns the number of packets, and of those
    /// that are lost.
    fn count_drops(&mut self) -> [u64; 2] {
        let [dropped, lost] = self.drops.look(self.device.dropped_without_queue());
        if self.one_queue {
            self.lost += lost;
        }
        [dropped, lost]
    }

    /// Looks at what the device has dropped. If it has dropped packets, gives up super-segments, unless the
    /// operator has asked for them. Returns true if packets are lost.
    #[cold]
    fn look_at_drops(&mut self) -> bool {
        let [dropped, lost] = self.count_drops();
        if dropped > 0 && self.max_super_len > 0 && !self.is_chosen {
            self.stop_supers();
        }
        lost > 0
    }

    /// Handles `ENOBUFS` where the device may drop a part of a super-segment. If it has dropped segments
    /// since the last look, those of the first packet are among them, unless the packet has failed for
    /// another reason. The packet's other segments were perhaps sent, so it must not be sent again. This
    /// method takes it from the queue and returns true.
    #[cold]
    fn drops_first_in_part(&mut self) -> bool {
        let is_super = self.queue.front().is_some_and(|first| !first.is_frame());
        if !is_super {
            // The frame is tried again, or counts as refused.
            self.drops.note_counted(1);
        }
        if !self.look_at_drops() || !is_super {
            return false;
        }
        if self.one_queue {
            self.queue.pop_front();
            self.failed_tries = 0;
        } else {
            self.drop_first();
        }
        true
    }

    /// Stops using super-segments, because the kernel does not say which of their segments the device has
    /// dropped.
    fn stop_supers(&mut self) {
        tracing::info!(
            target: "nmio::xdp",
            "{} drops packets while its ring is full: from now on each segment is sent as a frame",
            self.device.name
        );
        self.max_super_len = 0;
    }

    /// Permanently stops using long super-segments, and drops those in the queue. Returns false if
    /// long super-segments were not in use.
    #[cold]
    fn stop_long_supers(&mut self) -> bool {
        if self.max_super_len <= MAX_RELIABLE_LEN {
            return false;
        }
        tracing::warn!(
            target: "nmio::xdp",
            "{} or the kernel has no room for super-segments above 64 KB: from now on they are shorter",
            self.device.name
        );
        self.max_super_len = MAX_RELIABLE_LEN;
        // These packets are lost, as if the network had dropped them.
        let long = self.queue.iter().filter(|packet| packet.is_long());
        self.refused += long.map(|packet| packet.frames() as u64).sum::<u64>();
        self.queue.retain(|packet| !packet.is_long());
        true
    }

    fn first_is_long(&self) -> bool {
        self.queue.front().is_some_and(QueuedPacket::is_long)
    }

    pub(super) fn room(&self) -> usize {
        MAX_QUEUED - self.queue.len()
    }

    /// Returns what a port without room waits for: the socket, and its event. Received packets would end
    /// each wait at once, because there is no room for their answers. If the socket is not full, the
    /// kernel refuses packets for another reason. Then only time helps.
    pub(super) fn wait_for_room(&self) -> (Option<BorrowedFd<'_>>, i16) {
        (self.is_full.then(|| self.socket.as_fd()), libc::POLLOUT)
    }

    /// Queues a frame behind earlier super-segments. The queue must have room.
    pub(super) fn push_frame(&mut self, frame: Frame) {
        self.queue.push_back(QueuedPacket::Frame(frame));
    }

    /// Queues a super-segment. The queue must have room.
    pub(super) fn push_super(&mut self, packet: SuperSegment) {
        self.queue.push_back(QueuedPacket::Super(packet));
    }

    /// Returns the number of packets to send with one system call. If the device may drop a part of a
    /// super-segment, a super-segment is sent alone. Otherwise, the kernel would not say that it has failed.
    fn count_together(&self) -> usize {
        let first = self.queue.iter().take(MAX_PACKETS);
        if !self.looks_at_drops() {
            return first.count();
        }
        first.take_while(|packet| packet.is_frame()).count().max(1)
    }

    /// Sends queued packets until the queue is empty or the kernel accepts no more for now. Returns
    /// true if the queue is empty.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        while !self.queue.is_empty() {
            self.calls += 1;
            if self.calls.is_multiple_of(CALLS_PER_QUERY) && self.looks_at_drops() {
                self.look_at_drops();
            }
            // A full socket probably refuses the first packet again.
            let was_full = std::mem::take(&mut self.is_full);
            let tried = if was_full { 1 } else { self.count_together() };
            let packets = self.queue.iter().map(QueuedPacket::gather).take(tried);
            let sent = match sys::send_packets(self.socket.as_fd(), packets) {
                Ok(sent) => sent,
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOBUFS) if self.handle_no_buffers() => continue,
                    // Packet sockets before Linux 6.6 accept at most 68 KB.
                    Some(libc::EMSGSIZE) if self.first_is_long() && self.stop_long_supers() => {
                        continue;
                    }
                    Some(libc::EAGAIN) => {
                        self.is_full = true;
                        return Ok(false);
                    }
                    Some(libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => return Ok(false),
                    Some(libc::ENODEV | libc::ENXIO | libc::EBADF) => return Err(error),
                    // The kernel would refuse this packet on every try, so drop it.
                    _ => {
                        self.drop_first();
                        0
                    }
                },
            };
            self.failed_tries = 0;
            self.queue.drain(..sent);
            if 0 < sent && sent < tried && self.looks_at_drops() {
                // The device has probably dropped the frame that is now the first. It is sent again.
                self.drops.note_counted(1);
            }
        }
        if self.max_super_len == 0 && self.drops.is_known() {
            // No super-segment is left, and the port counts the drops of frames.
            self.look_at_drops();
            self.drops = DeviceDrops::new(None);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_move_only_between_queues_that_follow_sent_packets() {
        for driver in ["virtio_net", "ixgbe", "i40e"] {
            assert!(moves_connections(driver, false), "{driver}");
            assert!(!moves_connections(driver, true), "{driver}");
        }
        assert!(!moves_connections("veth", false));
        assert!(!moves_connections("ena", false));
    }
}
