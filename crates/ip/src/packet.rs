//! A received packet with a checked IP header.

use eth::Link;
use nmio::Frame;

use crate::addresses::Addresses;
use crate::ecn::Ecn;
use crate::path::Path;
use crate::{IPV4_HEADER_LEN, PROTOCOL_UDP};
use nmio::checksum::Sum;

const UDP_HEADER_LEN: usize = 8;
const UDP_CHECKSUM_AT: usize = 6;

/// An unfragmented packet to one of our addresses, with a checked IP header. The transport's
/// checksum is not checked yet.
///
/// The payload excludes the frame's padding. IPv4 options and IPv6 extension headers are moved
/// behind the payload, which therefore starts at the same offset as in a reply.
///
/// This type is moved often, so it is kept small. It reads the addresses from the unchanged header
/// instead of storing them.
#[derive(Debug)]
pub struct Packet {
    frame: Frame,
    /// Offset of the IP header in the frame.
    ip_at: u16,
    /// Offset of the IP payload in the frame.
    start: u16,
    /// Offset in the frame at which the received payload ends. Any moved options start there. With the
    /// link header, a packet can be longer than 65,535 bytes.
    end: u32,
    /// Length in bytes of the options or extension headers that were moved behind `end`.
    options_len: u16,
    /// Whether a checksum that covers only the pseudo-header is accepted.
    partial_checksum: bool,
}

impl Packet {
    /// Creates a packet from a frame whose padding has been removed. The IP header starts at offset
    /// `ip_at`. `start` is the offset at which a header without options would end, and must be
    /// within the frame.
    #[inline(always)]
    pub(crate) fn new(frame: Frame, ip_at: usize, start: usize, partial_checksum: bool) -> Self {
        debug_assert!(start <= frame.len());
        Self {
            end: frame.len() as u32,
            frame,
            ip_at: ip_at as u16,
            start: start as u16,
            options_len: 0,
            partial_checksum,
        }
    }

    /// Moves the packet, for a function that is not inlined. The original can then stay in registers.
    #[inline(always)]
    #[must_use]
    pub fn moved(self) -> Self {
        Self {
            frame: self.frame,
            ..self
        }
    }

    /// Returns true if options or extension headers were moved behind the payload.
    pub(crate) fn has_options(&self) -> bool {
        self.options_len > 0
    }

    /// Returns the whole IP packet. Must not be called after
    /// [`set_options_aside`](Self::set_options_aside), because the options would be missing.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.frame[usize::from(self.ip_at)..]
    }

    /// Moves `len` bytes of options or extension headers, which follow the IP header, behind the
    /// payload.
    pub(crate) fn set_options_aside(&mut self, len: usize) {
        let start = usize::from(self.start);
        self.frame[start..].rotate_left(len);
        self.frame.set_len(self.frame.len() - len);
        self.end = self.frame.len() as u32;
        self.options_len = len as u16;
    }

    /// Moves any options back in front of the payload, and returns the received frame without
    /// padding. Must be called before the packet is changed, because a reply may overwrite the
    /// options.
    pub(crate) fn restore(mut self) -> Frame {
        let options_len = usize::from(self.options_len);
        self.frame.set_len(self.end as usize + options_len);
        self.frame[usize::from(self.start)..].rotate_right(options_len);
        self.frame
    }

    /// Returns the frame that holds the packet.
    pub(crate) fn into_frame(self) -> Frame {
        self.frame
    }

    /// Returns the destination port of a TCP or UDP packet, or 0 if the packet is too short.
    #[inline(always)]
    pub(crate) fn dst_port(&self) -> u16 {
        match self.payload() {
            [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        }
    }

    /// Returns the source and destination addresses.
    #[inline(always)]
    pub fn addresses(&self) -> Addresses {
        let header = &self.frame[usize::from(self.ip_at)..usize::from(self.start)];
        Addresses::of_header(header)
    }

    fn is_v4(&self) -> bool {
        usize::from(self.start - self.ip_at) == IPV4_HEADER_LEN
    }

    /// Returns the path back to the sender.
    #[inline(always)]
    pub fn path_back(&self) -> Path {
        Path {
            link: self.link_back(),
            addresses: self.addresses().reversed(),
        }
    }

    /// Returns the link back to the sender.
    #[inline(always)]
    pub fn link_back(&self) -> Link {
        Link::back_from(&self.frame, usize::from(self.ip_at))
    }

    /// Returns true if the packet came from the peer of `link`, with its tag.
    #[inline(always)]
    pub fn came_over(&self, link: &Link) -> bool {
        link.has_sent(&self.frame, usize::from(self.ip_at))
    }

    /// Returns the ECN bits. Congested routers on the path may have changed them.
    #[inline(always)]
    pub fn ecn(&self) -> Ecn {
        let bits = self.frame[usize::from(self.ip_at) + 1];
        Ecn::from_bits(if self.is_v4() { bits } else { bits >> 4 })
    }

    /// Returns the IP payload: the transport's header and data.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        &self.frame[usize::from(self.start)..]
    }

    /// Returns the IP payload, to be changed in place.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.frame[usize::from(self.start)..]
    }

    /// Returns the IP payload, to be changed in place, and a function that reads the addresses. If
    /// the function is not called, the addresses are never read.
    #[inline(always)]
    pub fn payload_and_addresses(&mut self) -> (&mut [u8], impl Fn() -> Addresses) {
        let ip_at = usize::from(self.ip_at);
        let (head, payload) = self.frame.split_at_mut(usize::from(self.start));
        (payload, move || Addresses::of_header(&head[ip_at..]))
    }

    /// Returns the maximum length of an IP payload in this frame, in bytes.
    #[inline(always)]
    pub fn payload_capacity(&self) -> usize {
        self.frame.capacity() - usize::from(self.start)
    }

    /// Sets the length of the IP payload in bytes, for a reply that is longer or shorter than the
    /// request.
    ///
    /// # Panics
    /// Panics if `len` exceeds [`Packet::payload_capacity`].
    #[inline(always)]
    pub fn set_payload_len(&mut self, len: usize) {
        self.frame.set_len(usize::from(self.start) + len);
    }

    /// Returns true if the transport checksum is correct. A host [with partial
    /// checksums](crate::Host::with_partial_checksums) also accepts a checksum that covers only the
    /// pseudo-header, such as one from a local peer with checksum offload.
    ///
    /// `field_at` is the checksum's offset in the payload.
    #[inline(always)]
    pub fn checksum_ok(&self, protocol: u8, field_at: usize) -> bool {
        self.checksum_is_whole(protocol)
            || self.partial_checksum && self.has_partial_checksum(protocol, field_at)
    }

    /// Returns true if the checksum over the pseudo-header and the whole payload is correct.
    #[inline(always)]
    pub(crate) fn checksum_is_whole(&self, protocol: u8) -> bool {
        // The addresses directly precede the payload, so a single pass sums the addresses and the
        // payload.
        let start = usize::from(self.start);
        let addresses_len = if self.is_v4() { 8 } else { 32 };
        sum_of(&self.frame[start - addresses_len..])
            .word(u16::from(protocol))
            .dword((self.frame.len() - start) as u32)
            .is_valid()
    }

    /// Returns true if the transport checksum covers only the pseudo-header, because the sender
    /// left the payload to checksum offload. Use this method to classify packets that
    /// [`checksum_ok`](Self::checksum_ok) has refused.
    #[inline(always)]
    pub fn has_partial_checksum(&self, protocol: u8, field_at: usize) -> bool {
        has_partial_checksum(self.payload(), self.addresses(), protocol, field_at)
    }

    /// Returns true if this UDP datagram may cause an ICMP error. Its source port must not be 0,
    /// because a sender that expects no answer uses port 0. Its checksum must be correct. Over
    /// IPv4, the checksum may also be absent.
    pub(crate) fn is_answerable_udp(&self) -> bool {
        let Some(&[a, b, .., c, d]) = self.payload().first_chunk::<UDP_HEADER_LEN>() else {
            return false;
        };
        let is_unsummed = [c, d] == [0; 2] && self.is_v4();
        [a, b] != [0; 2] && (is_unsummed || self.checksum_ok(PROTOCOL_UDP, UDP_CHECKSUM_AT))
    }

    /// Writes link and IP headers that address the sender to the start of `frame`, as
    /// [`Path::write`] does. Returns the payload's offset.
    ///
    /// # Panics
    /// Panics if `frame` is shorter than the headers.
    #[inline(always)]
    pub fn write_back(&self, frame: &mut [u8], protocol: u8, payload_len: usize) -> usize {
        let at = usize::from(self.ip_at);
        Link::write_back(&self.frame, at, frame);
        let back = self.addresses().reversed();
        at + back.write(&mut frame[at..], protocol, payload_len, Ecn::NotEct)
    }

    /// Like [`write_back`](Self::write_back), for a resident packet: see [`Path::patch_marked`].
    #[inline(always)]
    pub fn patch_back(&self, frame: &mut [u8], protocol: u8, payload_len: usize) -> usize {
        debug_assert!(!self.has_tag(), "prepared packets have no tag");
        let at = usize::from(self.ip_at);
        Link::write_macs_back(&self.frame, frame);
        let back = self.addresses().reversed();
        at + back.patch(&mut frame[at..], protocol, payload_len, Ecn::NotEct)
    }

    /// Returns true if the link header has a VLAN tag.
    #[inline(always)]
    pub fn has_tag(&self) -> bool {
        usize::from(self.ip_at) != eth::HEADER_LEN
    }

    /// Returns the length of the link and IP headers of a reply, in bytes.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.start)
    }

    /// Turns the packet into a reply: writes link and IP headers that address the sender. The
    /// caller has already written the reply's payload and transport checksum.
    #[inline(always)]
    pub fn turn_around(self, protocol: u8) -> Frame {
        let back = self.addresses().reversed();
        self.turn_around_to(back, protocol)
    }

    /// Like [`turn_around`](Self::turn_around), for a caller that has already read the packet's
    /// addresses. `back` are those addresses, [reversed](Addresses::reversed).
    #[inline(always)]
    pub fn turn_around_to(mut self, back: Addresses, protocol: u8) -> Frame {
        let payload_len = self.frame.len() - usize::from(self.start);
        let packet: &mut [u8] = &mut self.frame;
        Link::turn_around(packet);
        let packet = &mut packet[usize::from(self.ip_at)..];
        back.write(packet, protocol, payload_len, Ecn::NotEct);
        self.frame
    }
}

/// Returns the sum of a packet's addresses and payload. For the lengths of nearly all ACKs over IPv4,
/// with and without timestamps, the compiler makes code without loops and branches.
#[inline(always)]
fn sum_of(bytes: &[u8]) -> Sum {
    if let Ok(ack) = <&[u8; 28]>::try_from(bytes) {
        Sum::of(ack)
    } else if let Ok(ack) = <&[u8; 40]>::try_from(bytes) {
        Sum::of(ack)
    } else {
        Sum::of(bytes)
    }
}

/// See [`Packet::has_partial_checksum`]. This function has no reference to the packet, which can
/// therefore stay in registers.
#[cold]
#[inline(never)]
fn has_partial_checksum(
    payload: &[u8],
    addresses: Addresses,
    protocol: u8,
    field_at: usize,
) -> bool {
    let field = payload.get(field_at..).and_then(<[u8]>::first_chunk);
    let pseudo = addresses.pseudo_sum(protocol, payload.len());
    field.is_some_and(|field| u16::from_be_bytes(*field) == pseudo.fold())
}
