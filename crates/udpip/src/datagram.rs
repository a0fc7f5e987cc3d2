//! A received datagram and three ways to answer it.

use std::net::SocketAddr;

use ip::{Addresses, PROTOCOL_UDP, Packet, Sum};
use nmio::{Copies, Frame, Port, Resident, SendError};

use crate::HEADER_LEN;
use crate::counters::Counters;

/// Offset of the checksum in the UDP header.
const CHECKSUM_AT: usize = 6;

/// The part of an answer that was prepared in advance, with its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Tail<'a> {
    /// The bytes of the tail.
    pub bytes: &'a [u8],
    /// The partial checksum of `bytes`, computed as if they started at an even offset.
    pub sum: Sum,
}

impl<'a> Tail<'a> {
    /// The empty tail, for an answer without a prepared part.
    pub const EMPTY: Tail<'static> = Tail {
        bytes: &[],
        sum: Sum::ZERO,
    };

    /// Creates a tail from `bytes` and computes their checksum. Call this function once when an
    /// answer is prepared, not for each request.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            sum: Sum::of(bytes),
        }
    }
}

/// An answer to a datagram: head, tail and trail, one behind the other.
///
/// ```
/// # use udpip::{Answer, Tail};
/// // The first four bytes of the payload, and a prepared part behind them.
/// let answer = Answer::head(4).with_tail(Tail::new(b"prepared"));
/// // A short part that only some answers have.
/// let answer = answer.with_trail(Tail::new(&[7; 10]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Length of the head in bytes, at most that of the payload. The head is the start of the payload,
    /// as the service has changed it.
    pub head_len: usize,
    /// The part that was prepared in advance.
    pub tail: Tail<'a>,
    /// A short part behind the tail, which may differ between answers with the same tail.
    pub trail: Tail<'a>,
}

impl Answer<'static> {
    /// Creates an answer that is only a head of this length.
    #[inline(always)]
    pub fn head(head_len: usize) -> Self {
        Self {
            head_len,
            tail: Tail::EMPTY,
            trail: Tail::EMPTY,
        }
    }
}

impl<'a> Answer<'a> {
    /// Sets the part behind the head.
    #[inline(always)]
    #[must_use]
    pub fn with_tail(self, tail: Tail<'a>) -> Self {
        Self { tail, ..self }
    }

    /// Sets the part behind the tail.
    #[inline(always)]
    #[must_use]
    pub fn with_trail(self, trail: Tail<'a>) -> Self {
        Self { trail, ..self }
    }

    /// Returns the length of the answer in bytes.
    #[inline(always)]
    fn len(&self) -> usize {
        self.head_len + self.tail.bytes.len() + self.trail.bytes.len()
    }

    /// Writes the tail and the trail to `rest`, which begins behind the head.
    #[inline(always)]
    fn write_rest(&self, rest: &mut [u8]) {
        let (tail, trail) = rest.split_at_mut(self.tail.bytes.len());
        tail.copy_from_slice(self.tail.bytes);
        self.write_trail(trail);
    }

    /// Writes the trail to `to`.
    #[inline(always)]
    fn write_trail(&self, to: &mut [u8]) {
        // Most answers to short requests have no trail, so no function is called for it.
        if !self.trail.bytes.is_empty() {
            to.copy_from_slice(self.trail.bytes);
        }
    }

    /// Writes the UDP header to the start of `udp`, which already holds the answer. The checksum is
    /// computed without reading the tail and the trail, because their sums are known.
    #[inline(always)]
    fn write_header(&self, udp: &mut [u8], (src, dst): (u16, u16), addresses: &Addresses) {
        let len = udp.len() as u16;
        let mut sum = addresses
            .pseudo_sum(PROTOCOL_UDP, udp.len())
            .word(src)
            .word(dst)
            .word(len)
            .add(Sum::of(&udp[HEADER_LEN..][..self.head_len]))
            .add_at(self.tail.sum, self.head_len);
        if !self.trail.bytes.is_empty() {
            let trail_at = self.head_len + self.tail.bytes.len();
            sum = sum.add_at(self.trail.sum, trail_at);
        }
        udp[0..2].copy_from_slice(&src.to_be_bytes());
        udp[2..4].copy_from_slice(&dst.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        udp[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&sum.finish_udp().to_be_bytes());
    }
}

/// The resident packets of one prepared answer, for the *pre-copy* mode. IPv4 and IPv6 answers use
/// separate packets, because their headers differ in length.
///
/// The packets belong to the port of one worker, so this type is not `Send`. Make the value where the
/// service of the worker is made, such as in `make` of `control::Udp`, or in a callback of the service.
#[derive(Debug, Default)]
pub struct AnswerCopies {
    v4: Copies,
    v6: Copies,
    /// Length of the head and the tail together, in each packet.
    len: u16,
}

impl AnswerCopies {
    /// Returns the number of resident packets created so far.
    pub fn packets(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns true if a head and a tail of `len` bytes fit the packets. The first packet sets this
    /// length.
    #[inline(always)]
    fn suit(&mut self, len: usize) -> bool {
        usize::from(self.len) == len || self.begin_with(len)
    }

    /// Takes this length, which fits one packet, unless there are packets already. Returns true if it has
    /// taken it.
    #[cold]
    fn begin_with(&mut self, len: usize) -> bool {
        let is_empty = self.packets() == 0;
        if is_empty {
            self.len = len as u16;
        }
        is_empty
    }

    fn of(&mut self, addresses: &Addresses) -> &mut Copies {
        match addresses {
            Addresses::V4 { .. } => &mut self.v4,
            Addresses::V6 { .. } => &mut self.v6,
        }
    }
}

/// A received datagram with a verified checksum, and the network port that received it. A service
/// answers the datagram in one of three ways or drops it.
#[derive(Debug)]
pub struct Datagram<'p, P: Port> {
    port: &'p mut P,
    packet: Packet,
    counters: &'p mut Counters,
    src_port: u16,
    dst_port: u16,
    max_reply: usize,
}

impl<'p, P: Port> Datagram<'p, P> {
    /// Creates a datagram from a verified packet, whose header has these ports.
    #[inline(always)]
    pub(crate) fn new(
        port: &'p mut P,
        packet: Packet,
        (src_port, dst_port): (u16, u16),
        counters: &'p mut Counters,
    ) -> Self {
        let ip_header = packet.addresses().header_len();
        let link = port.capabilities().mtu.saturating_sub(ip_header);
        let max_len = link.min(packet.payload_capacity());
        Self {
            port,
            packet,
            counters,
            src_port,
            dst_port,
            max_reply: max_len.saturating_sub(HEADER_LEN),
        }
    }

    /// Returns the received payload, including the service's changes so far.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        &self.packet.payload()[HEADER_LEN..]
    }

    /// Returns the received payload, so that the service can overwrite its start with the answer's
    /// head.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.packet.payload_mut()[HEADER_LEN..]
    }

    /// Returns the same payload as [`payload_mut`](Self::payload_mut), and a function that reads
    /// the client's address and port.
    #[inline(always)]
    pub fn payload_and_peer(&mut self) -> (&mut [u8], impl Fn() -> SocketAddr) {
        let src_port = self.src_port;
        let (payload, addresses) = self.packet.payload_and_addresses();
        let peer = move || SocketAddr::new(addresses().src(), src_port);
        (&mut payload[HEADER_LEN..], peer)
    }

    /// Returns the client's address and port.
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.packet.addresses().src(), self.src_port)
    }

    /// Returns the server's address and port to which the client sent the datagram.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.packet.addresses().dst(), self.dst_port)
    }

    /// Returns the maximum payload length of an answer in bytes. An answer must fit into one packet
    /// on the link.
    #[inline(always)]
    pub fn max_reply(&self) -> usize {
        self.max_reply
    }

    /// Returns how many more resident packets the port has memory for.
    #[inline(always)]
    pub fn residents_left(&self) -> u32 {
        self.port.pool().residents_left()
    }

    /// Extends the payload to `len` bytes, to make room for a head that is longer than the received
    /// payload. The caller must write the new bytes. Does nothing if the payload is already at
    /// least `len` bytes long.
    ///
    /// # Panics
    ///
    /// Panics if `len` exceeds [`Datagram::max_reply`].
    pub fn extend_payload(&mut self, len: usize) {
        assert!(len <= self.max_reply(), "{len} bytes do not fit one packet");
        if len > self.payload().len() {
            self.packet.set_payload_len(HEADER_LEN + len);
        }
    }

    /// Returns the length of the answer's UDP datagram, in bytes. If the answer does not fit one
    /// packet, or its head exceeds the payload, counts it as too long and returns `None`.
    #[inline(always)]
    fn udp_len(&mut self, answer: &Answer<'_>) -> Option<usize> {
        let len = answer.len();
        if answer.head_len > self.payload().len() || len > self.max_reply() {
            self.counters.too_long += 1;
            return None;
        }
        Some(HEADER_LEN + len)
    }

    /// Sends the answer in the received frame.
    ///
    /// The answer is lost if it does not fit one packet, or if its head is longer than the payload. It
    /// is also lost if the TX ring is full. The reason is [counted](Counters).
    #[inline(always)]
    pub fn turn_around(mut self, answer: Answer<'_>) {
        let Some(udp_len) = self.udp_len(&answer) else {
            return;
        };
        self.packet.set_payload_len(udp_len);
        let reversed = self.packet.addresses().reversed();
        let (ports, udp) = ((self.dst_port, self.src_port), self.packet.payload_mut());
        answer.write_rest(&mut udp[HEADER_LEN + answer.head_len..]);
        answer.write_header(udp, ports, &reversed);
        let frame = self.packet.turn_around_to(reversed, PROTOCOL_UDP);
        count(self.counters, self.port.send(frame));
    }

    /// Like [`Datagram::turn_around`], but sends the answer in a scratch frame. The answer is also lost
    /// if no frame is free.
    #[inline(always)]
    pub fn send_copy(mut self, answer: Answer<'_>) {
        let Some(udp_len) = self.udp_len(&answer) else {
            return;
        };
        let Some(mut frame) = self.port.pool().take() else {
            self.counters.ring_full += 1;
            return;
        };
        self.write_packet(&mut frame, udp_len, &answer);
        count(self.counters, self.port.send(frame));
    }

    /// Sends the answer in a resident packet of `copies`, which holds the tail after a head of the same
    /// length. Creates another resident packet if all packets of `copies` are in flight.
    ///
    /// Resident packets have no VLAN tag, so the answer is copied as in [`Datagram::send_copy`] if
    /// the request has a tag. If another resident packet is needed but cannot be created, the
    /// answer is also copied, and [`Counters::residents_exhausted`] is incremented.
    ///
    /// All calls with the same `copies` must pass a tail with the same bytes. If the head has another
    /// length than in the packets of `copies`, the answer is copied, too.
    #[inline(always)]
    pub fn send_resident(mut self, answer: Answer<'_>, copies: &mut AnswerCopies) {
        let Some(udp_len) = self.udp_len(&answer) else {
            return;
        };
        if self.packet.has_tag() || !copies.suit(answer.head_len + answer.tail.bytes.len()) {
            return self.send_copy(answer);
        }
        let addresses = self.packet.addresses().reversed();
        let copy = copies
            .of(&addresses)
            .free(|| self.make_resident(udp_len, answer));
        let Some((mut packet, ())) = copy else {
            self.counters.residents_exhausted += 1;
            return self.send_copy(answer);
        };
        packet.set_len(self.packet.header_len() + udp_len);
        let bytes: &mut [u8] = &mut packet;
        let at = self.packet.patch_back(bytes, PROTOCOL_UDP, udp_len);
        let udp = &mut bytes[at..];
        let (head_len, tail_len) = (answer.head_len, answer.tail.bytes.len());
        udp[HEADER_LEN..][..head_len].copy_from_slice(&self.payload()[..head_len]);
        answer.write_trail(&mut udp[HEADER_LEN + head_len + tail_len..]);
        answer.write_header(udp, (self.dst_port, self.src_port), &addresses);
        count(self.counters, self.port.send_resident(packet));
    }

    // This function is not inlined, so it gets a copy of the answer, whose fields stay in registers.
    #[cold]
    fn make_resident(&mut self, udp_len: usize, answer: Answer<'_>) -> Option<Resident> {
        let mut scratch = self.port.pool().take()?;
        self.write_packet(&mut scratch, udp_len, &answer);
        // A later answer may have a longer trail. The resident packet has room for it, because
        // every frame can hold the largest packet of the link.
        self.port.pool().make_resident(&scratch)
    }

    #[inline(always)]
    fn write_packet(&mut self, frame: &mut Frame, udp_len: usize, answer: &Answer<'_>) {
        frame.set_len(self.packet.header_len() + udp_len);
        let start = self.packet.write_back(frame, PROTOCOL_UDP, udp_len);
        let udp = &mut frame[start..];
        let (head, rest) = udp[HEADER_LEN..].split_at_mut(answer.head_len);
        head.copy_from_slice(&self.payload()[..answer.head_len]);
        answer.write_rest(rest);
        let addresses = self.packet.addresses().reversed();
        answer.write_header(udp, (self.dst_port, self.src_port), &addresses);
    }
}

#[inline(always)]
fn count(counters: &mut Counters, result: Result<(), SendError>) {
    match result {
        Ok(()) => counters.answered += 1,
        Err(_) => counters.ring_full += 1,
    }
}

/// Checks a datagram's length and checksum, and removes any bytes after the datagram's end.
#[inline(always)]
pub(crate) fn verify(packet: &mut Packet) -> Result<(), Malformed> {
    let payload = packet.payload();
    let Some(header) = payload.first_chunk::<HEADER_LEN>() else {
        return Err(Malformed::Length);
    };
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if len < HEADER_LEN || len > payload.len() {
        return Err(Malformed::Length);
    }
    let checksum = u16::from_be_bytes([header[6], header[7]]);
    packet.set_payload_len(len);
    if checksum == 0 {
        // Only IPv4 allows a missing checksum (RFC 768; RFC 8200, section 8.1).
        let is_ipv4 = matches!(packet.addresses(), Addresses::V4 { .. });
        return if is_ipv4 {
            Ok(())
        } else {
            Err(Malformed::Checksum)
        };
    }
    if packet.checksum_ok(PROTOCOL_UDP, CHECKSUM_AT) {
        Ok(())
    } else if packet.has_partial_checksum(PROTOCOL_UDP, CHECKSUM_AT) {
        Err(Malformed::PartialChecksum)
    } else {
        Err(Malformed::Checksum)
    }
}

/// Why a datagram is dropped as invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Length,
    Checksum,
    /// The checksum covers only the pseudo-header, because the sender left the rest to a network
    /// device (checksum offload).
    PartialChecksum,
}
