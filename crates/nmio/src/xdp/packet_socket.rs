//! Sends super-segments through a packet socket, beside the TX ring.
//!
//! `AF_XDP` takes frames only. A packet socket takes a run of segments as one packet
//! with a `virtio_net_hdr`. The device cuts it, or nobody does when the receiver is on
//! this host. A flush is one `sendmmsg`. The socket only sends: received packets come
//! through the rings, which do not say whether a checksum is finished.
//!
//! # Order
//! What was queued before the first super-segment leaves through the ring. From then on
//! everything goes through the packet socket, until it is empty. Where the kernel cuts,
//! packets may wait in the queueing discipline. Where the device has several TX queues,
//! they may wait in another queue than the ring's. In both cases everything goes through
//! the packet socket for good once it was used.
//!
//! # A packet that nobody takes
//! A packet that the kernel has no room for (`EAGAIN`, `ENOBUFS`) stays first in line, and
//! the full queue holds the sender up like a full ring. After 1,024 tries with a carrier
//! the kernel cuts instead of the device. After 64 more the packet is dropped, because a
//! firewall rule may refuse packets to one client.
//!
//! # Length
//! A super-segment is as long as the device takes (`gso_max_size`, and
//! `gso_ipv4_max_size` for IPv4): 64 KB unless someone raised it, and up to 256 KB over
//! IPv4, where the IP header's length is then 0 (Linux 6.3). Packet sockets take long
//! ones since Linux 6.6. They gather a packet in 16 pieces of at most 32 KB, so they may refuse a
//! long one when memory is fragmented. It is dropped, the limit falls to 64 KB, and a
//! warning says so.
//!
//! # When super-segments are used
//! `offload=auto` uses them where the device cuts TCP over IPv4 and IPv6 and the rings copy
//! anyway. With zero-copy, frames are better: nothing is copied, and the device empties
//! its ring in its own time, so the two ways could not keep their order. When a device
//! stops cutting while we serve (veth does, when an XDP program is attached to its
//! peer), its refusal shows it, and the kernel cuts from then on.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::config::XdpConfig;
use super::rings::Copying;
use crate::device::{DeviceError, Offload, longest_supers};
use crate::frame::Frame;
use crate::super_segment::{MAX_OVER_V6, SuperSegment};
use crate::sys::{self, Control, FINISHED, Gather, MAX_PACKETS};

/// An Ethernet header, which limits of the device count.
const ETHERNET_HEADER: usize = 14;
/// No longer ones, whatever the device takes: the kernel gathers a packet in 16
/// pieces of at most 32 KB, and of less when its memory is in pieces.
pub(crate) const MOST_BYTES: usize = 256 << 10;
/// As bytes of an IP packet, what fits single pages.
const SURE_BYTES: usize = MAX_OVER_V6;
/// Tries in a row that fail for want of room: at the first and each time so
/// many have failed the device is asked what it takes, …
const ASK: u32 = 64;
/// … and after so many what is long is given up.
const GIVE_UP: u32 = 1_024;
/// Maximum number of packets that wait for a flush: two calls of `sendmmsg`.
const MOST: usize = 2 * MAX_PACKETS;
/// Memory that the kernel may use for super-segments that the device or the
/// receiver has not taken yet, in bytes.
const SEND_BUFFER: u32 = 8 << 20;

/// One packet that waits.
// A queue of them is made once, and most are super-segments.
#[allow(clippy::large_enum_variant)]
enum Waiting {
    Frame(Frame),
    Super(SuperSegment),
}

impl Waiting {
    /// Whether it is longer than what every kernel takes.
    fn is_long(&self) -> bool {
        matches!(self, Self::Super(packet) if packet.len() > SURE_BYTES + ETHERNET_HEADER)
    }
}

/// See the module's text.
pub(super) struct PacketSocket {
    socket: OwnedFd,
    queue: VecDeque<Waiting>,
    /// The largest super-segment over IPv4, as bytes of its IP packet.
    pub(super) largest: usize,
    /// Whether the device cuts, as it did when it was last asked.
    device_cuts: bool,
    /// Tries in a row for which there was no room.
    tries: u32,
    /// It has one TX queue, the ring's.
    one_queue: bool,
    device: Device,
    /// System calls.
    pub(super) calls: u64,
    /// Packets that the kernel refused for good.
    pub(super) refused: u64,
}

/// How runs of segments leave.
pub(super) enum Runs {
    /// As frames, and why.
    Frames(String),
    Supers(PacketSocket),
}

impl Runs {
    /// What is asked for, as far as the device and the mode allow.
    pub(super) fn open(config: &XdpConfig<'_>, copying: &Copying) -> Result<Self, DeviceError> {
        let refuse = |why: String| match config.offload {
            Offload::On => Err(DeviceError::Offload {
                interface: config.interface.to_owned(),
                why,
            }),
            Offload::Auto | Offload::Off => Ok(Self::Frames(why)),
        };
        if config.offload == Offload::Off {
            return refuse("as asked for".to_owned());
        }
        if matches!(copying, Copying::Never) {
            // The device's own queue is emptied in its own time: what goes
            // past it would overtake. And frames in it are not copied.
            return refuse("with zero-copy frames are not copied, and keep their order".to_owned());
        }
        let control = Control::new().map_err(DeviceError::set_up("ask for interfaces"))?;
        let cuts = control.cuts_segments(config.interface);
        if !cuts && config.offload == Offload::Auto {
            return refuse(format!(
                "{} does not cut TCP segments itself (ethtool -k: tx-tcp-segmentation, \
                 tx-tcp6-segmentation)",
                config.interface
            ));
        }
        let device = match Device::open(control, config.interface) {
            Ok(device) => device,
            Err(error) => return refuse(format!("the kernel cannot be asked for it: {error}")),
        };
        let largest = match device.largest() {
            Ok(largest) => largest,
            Err(error) => return refuse(format!("the kernel does not say how large: {error}")),
        };
        let opened = sys::packet_sender(device.index);
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return refuse(format!("the kernel refuses a packet socket: {error}")),
        };
        // The first needs CAP_NET_ADMIN, the second is capped.
        let fd = socket.as_fd();
        if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
            let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
        }
        if let Err(error) = sys::bypass_queueing(fd, cuts) {
            return refuse(format!(
                "its queueing discipline cannot be passed by: {error}"
            ));
        }
        Ok(Self::Supers(PacketSocket {
            socket,
            queue: VecDeque::with_capacity(MOST),
            largest,
            device_cuts: cuts,
            tries: 0,
            one_queue: device.has_one_queue(),
            device,
            calls: 0,
            refused: 0,
        }))
    }

    /// See [`Capabilities::segmentation`](crate::Capabilities::segmentation).
    #[inline]
    pub(super) fn largest(&self) -> usize {
        match self {
            Self::Frames(_) => 0,
            Self::Supers(packets) => packets.largest,
        }
    }
}

/// Whom to ask what the device does, without opening anything: a worker that
/// serves may not.
struct Device {
    control: Control,
    route: File,
    name: String,
    index: u32,
}

impl Device {
    fn open(control: Control, name: &str) -> io::Result<Self> {
        Ok(Self {
            index: control.index(name)?,
            control,
            route: sys::route_socket()?,
            name: name.to_owned(),
        })
    }

    fn has_one_queue(&self) -> bool {
        let channels = self.control.channels(&self.name);
        channels.is_some_and(|has| has.tx == 1)
    }

    fn cuts(&self) -> bool {
        self.control.cuts_segments(&self.name)
    }

    /// The longest super-segments that it takes, as bytes of an IP packet.
    /// Where those over IPv6 are bounded more than they are anyway, all are.
    fn largest(&self) -> io::Result<usize> {
        let limits = longest_supers(&self.route, self.index)?;
        let bytes = |limit: usize| limit.min(MOST_BYTES - 1).saturating_sub(ETHERNET_HEADER);
        let [v4, v6] = limits.map(bytes);
        Ok(if v6 < MAX_OVER_V6 { v4.min(v6) } else { v4 })
    }
}

impl PacketSocket {
    /// What cuts them, for people, and what that means for all else.
    pub(super) fn describe(&self) -> &'static str {
        match (self.device_cuts, self.one_queue) {
            (true, true) => "cut by the device where they must be",
            (true, false) => {
                "cut by the device where they must be; as it has several TX queues, all else \
                 takes the same way once one did"
            }
            (false, _) => {
                "cut by the kernel where they must be; all else takes the same way once one did"
            }
        }
    }

    /// Whether, when nothing waits here, what comes next may leave through the
    /// ring again and not overtake.
    pub(super) fn may_return(&self) -> bool {
        self.device_cuts && self.one_queue
    }

    /// Whether the device still cuts segments, and as long ones: an XDP program
    /// at the other end of a veth pair takes that away. The kernel then does
    /// it, which does not go past the queueing discipline.
    #[cold]
    fn still_cuts(&mut self) -> bool {
        self.device_cuts =
            self.device.cuts() && self.device.largest().is_ok_and(|now| now >= self.largest);
        if !self.device_cuts {
            tracing::warn!(
                target: "nmio::xdp",
                "{} cuts TCP segments no longer: the kernel does from now on, and all that is \
                 sent takes its way",
                self.device.name
            );
            // What does not work is tried again, and told as a full ring.
            let _ = sys::bypass_queueing(self.socket.as_fd(), false);
        }
        self.device_cuts
    }

    /// There is no room: in the device's queue, which time will mend, or for
    /// packets as long as ours. Whether something was done about it.
    #[cold]
    fn finds_no_room(&mut self) -> bool {
        if !self.device.control.is_running(&self.device.name) {
            // A link without carrier has no room for anything.
            return false;
        }
        self.tries += 1;
        if self.tries % ASK == 1 && self.device_cuts && !self.still_cuts() {
            return true;
        }
        if self.tries >= GIVE_UP && (self.shorten() || self.leave_cutting()) {
            return true;
        }
        // A rule of the kernel's may refuse this one packet for ever.
        let most = if self.device_cuts { GIVE_UP } else { ASK };
        if self.tries < most {
            return false;
        }
        self.queue.pop_front();
        self.refused += 1;
        self.tries = 0;
        true
    }

    /// The device says that it cuts, and does not take what there is, such as
    /// UDP: the kernel knows what to do with it.
    #[cold]
    fn leave_cutting(&mut self) -> bool {
        if !self.device_cuts || sys::bypass_queueing(self.socket.as_fd(), false).is_err() {
            return false;
        }
        tracing::warn!(
            target: "nmio::xdp",
            "{} does not take what it should cut: the kernel cuts from now on, and all that is \
             sent takes its way",
            self.device.name
        );
        self.device_cuts = false;
        self.tries = 0;
        true
    }

    /// Gives long super-segments up for good, those that wait among them.
    /// Whether there were any.
    #[cold]
    fn shorten(&mut self) -> bool {
        if self.largest <= SURE_BYTES {
            return false;
        }
        tracing::warn!(
            target: "nmio::xdp",
            "{} or the kernel has no room for long packets: super-segments are shorter from now on",
            self.device.name
        );
        self.largest = SURE_BYTES;
        let waiting = self.queue.len();
        self.queue.retain(|packet| !packet.is_long());
        // They are lost, as on any wire.
        self.refused += (waiting - self.queue.len()) as u64;
        true
    }

    fn first_is_long(&self) -> bool {
        self.queue.front().is_some_and(Waiting::is_long)
    }

    pub(super) fn room(&self) -> usize {
        MOST - self.queue.len()
    }

    /// Queues a frame behind a super-segment; there is room.
    pub(super) fn push_frame(&mut self, frame: Frame) {
        self.queue.push_back(Waiting::Frame(frame));
    }

    /// Queues a super-segment; there is room.
    pub(super) fn push_super(&mut self, packet: SuperSegment) {
        self.queue.push_back(Waiting::Super(packet));
    }

    /// Hands over what waits, as far as the kernel takes it: whether that was
    /// all. What the device has no room for it takes another time.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        while !self.queue.is_empty() {
            self.calls += 1;
            let packets = self.queue.iter().map(Waiting::gather);
            let sent = match sys::send_packets(self.socket.as_fd(), packets) {
                Ok(sent) => sent,
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOBUFS) if self.finds_no_room() => continue,
                    // Packet sockets before Linux 6.6 take 68 KB.
                    Some(libc::EMSGSIZE) if self.first_is_long() && self.shorten() => continue,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => {
                        return Ok(false);
                    }
                    Some(libc::ENODEV | libc::ENXIO | libc::EBADF) => return Err(error),
                    // It would refuse this one again.
                    _ => {
                        self.refused += 1;
                        1
                    }
                },
            };
            self.tries = 0;
            self.queue.drain(..sent);
        }
        Ok(true)
    }
}

impl Waiting {
    fn gather(&self) -> Gather<'_> {
        match self {
            Self::Frame(frame) => Gather {
                vnet: FINISHED,
                stretches: [frame, &[], &[], &[]],
            },
            Self::Super(packet) => Gather {
                vnet: sys::vnet_header(packet),
                stretches: packet.gather(),
            },
        }
    }
}
