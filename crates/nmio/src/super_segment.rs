//! Super-segments: runs of TCP segments or UDP datagrams that are sent as one packet.
//!
//! Consecutive segments of a connection have almost the same headers, so they can be sent as one
//! packet with one set of headers. The device (TSO) or the kernel (GSO) later splits this packet
//! into segments. If the receiver is on the same host, the packet stays whole.
//!
//! A [`SuperSegment`] consists of headers and a range of shared payload bytes. The payload is not
//! copied.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

/// Maximum length of all headers, in bytes: an Ethernet header with a VLAN tag, an IPv6 header, and
/// the longest TCP header.
pub const MAX_HEADERS: usize = 18 + 40 + 60;
/// Maximum number of payload bytes that a patch replaces.
pub const MAX_PATCH: usize = 256;

/// Maximum length of a super-segment's IP packet over IPv6, in bytes. Linux's default limit is
/// 65,535 bytes including the Ethernet header. For longer packets, some kernels require a
/// hop-by-hop option (RFC 2675), and others forbid it.
pub const MAX_OVER_V6: usize = 65_535 - 14;

/// The message of the panic when a super-segment is sent on a port that accepts none.
pub(crate) const NO_SUPER_SEGMENTS: &str =
    "this port accepts no super-segments; check Capabilities::segmentation first";

/// The kind of segmentation (Linux's `gso_type`), determined by the IP version and the transport
/// protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsoType {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either IP version. All datagrams have the same length, except that the last may be
    /// shorter.
    Udp,
}

/// A run of segments that is sent as one packet with [`Port::send_super`](crate::Port::send_super).
///
/// The headers are those of the first segment, except that the length fields cover the whole run.
/// The transport checksum field holds only the sum of the run's pseudo-header, not complemented.
/// Segmentation corrects the lengths, sequence numbers and checksums. It keeps the PSH and FIN bits
/// only in the last segment.
///
/// A segment with the CWR bit (RFC 3168) must be sent as an ordinary frame, because some devices
/// cannot segment a run with this bit.
#[derive(Clone)]
pub struct SuperSegment {
    gso_type: GsoType,
    segment_len: u16,
    transport_at: u16,
    headers: ArrayVec<u8, MAX_HEADERS>,
    bytes: Arc<[u8]>,
    range: Range<usize>,
    /// Offset of the patch in the payload.
    patch_at: usize,
    patch: ArrayVec<u8, MAX_PATCH>,
}

impl SuperSegment {
    /// Creates a run with the payload `bytes[range]`, in segments of `segment_len` payload bytes.
    /// The headers occupy `headers` bytes. They are initially zero, and the caller must write them.
    /// The transport header begins at offset `transport_at`.
    ///
    /// # Panics
    /// If `headers` exceeds [`MAX_HEADERS`], if `transport_at` is not below `headers`, or if
    /// `range` is not within `bytes`.
    pub fn new(
        gso_type: GsoType,
        segment_len: u16,
        (headers, transport_at): (usize, usize),
        bytes: &Arc<[u8]>,
        range: Range<usize>,
    ) -> Self {
        assert!(
            transport_at < headers,
            "the transport header must begin inside the headers"
        );
        assert!(range.start <= range.end && range.end <= bytes.len());
        let mut zeroes = ArrayVec::new();
        zeroes
            .try_extend_from_slice(&[0; MAX_HEADERS][..headers])
            .expect("as many as there are");
        Self {
            gso_type,
            segment_len,
            transport_at: transport_at as u16,
            headers: zeroes,
            bytes: Arc::clone(bytes),
            range,
            patch_at: 0,
            patch: ArrayVec::new(),
        }
    }

    /// Returns the headers for writing.
    #[inline]
    pub fn headers_mut(&mut self) -> &mut [u8] {
        &mut self.headers
    }

    /// Adds a patch, and returns its bytes for writing. The patch replaces `len` payload bytes from
    /// offset `at`. A run has only one patch, so this call removes an earlier one.
    ///
    /// # Panics
    /// If `len` exceeds [`MAX_PATCH`] or the patch reaches beyond the payload.
    #[inline]
    pub fn patch_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(
            at + len <= self.range.len(),
            "the patch must lie inside the payload"
        );
        self.patch.clear();
        self.patch
            .try_extend_from_slice(&[0; MAX_PATCH][..len])
            .expect("as many as there are");
        self.patch_at = at;
        &mut self.patch
    }

    /// Returns the kind of segmentation.
    pub fn gso_type(&self) -> GsoType {
        self.gso_type
    }

    /// Returns the number of payload bytes of each segment except the last.
    pub fn segment_len(&self) -> usize {
        self.segment_len.into()
    }

    /// Returns the offset of the transport header, in bytes.
    pub fn transport_at(&self) -> usize {
        self.transport_at.into()
    }

    /// Returns the headers of the packet.
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.range.len().div_ceil(self.segment_len().max(1)).max(1)
    }

    /// Returns the length of the whole packet, in bytes.
    // A packet always has headers, so it is never empty.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.headers.len() + self.range.len()
    }

    /// Returns the total number of bytes that all segments occupy on the wire, with their headers.
    pub fn wire_len(&self) -> usize {
        self.headers.len() * self.segments() + self.range.len()
    }

    /// Returns the packet's bytes in four consecutive pieces. A piece may be empty.
    #[inline]
    pub fn gather(&self) -> [&[u8]; 4] {
        let payload = &self.bytes[self.range.clone()];
        let (before, rest) = payload.split_at(self.patch_at);
        [
            &self.headers,
            before,
            &self.patch,
            &rest[self.patch.len()..],
        ]
    }
}

impl fmt::Debug for SuperSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuperSegment")
            .field("gso_type", &self.gso_type)
            .field("segment_len", &self.segment_len)
            .field("headers", &self.headers)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Arc<[u8]> {
        (0..100).collect::<Vec<u8>>().into()
    }

    #[test]
    fn a_patch_replaces_payload_bytes() {
        let mut run = SuperSegment::new(GsoType::TcpV4, 20, (54, 34), &bytes(), 10..90);
        run.headers_mut()[0] = 7;
        run.patch_mut(5, 3).copy_from_slice(b"abc");
        let all = run.gather().concat();
        assert_eq!(all.len(), run.len());
        assert_eq!((all[0], all[1]), (7, 0));
        let mut expected: Vec<u8> = (10..90).collect();
        expected[5..8].copy_from_slice(b"abc");
        assert_eq!(all[54..], expected);
    }

    #[test]
    fn segments_and_their_bytes_are_counted() {
        for (len, segments) in [(1, 1), (20, 1), (21, 2), (40, 2), (100, 5)] {
            let run = SuperSegment::new(GsoType::Udp, 20, (42, 34), &bytes(), 0..len);
            assert_eq!(run.segments(), segments);
            assert_eq!(run.wire_len(), len + 42 * segments);
        }
    }

    #[test]
    #[should_panic(expected = "must lie inside the payload")]
    fn a_patch_outside_the_payload_panics() {
        SuperSegment::new(GsoType::TcpV4, 20, (54, 34), &bytes(), 0..10).patch_mut(8, 3);
    }
}
