//! Super-segments: a run of segments as one packet, which the kernel or the
//! device cuts.
//!
//! A run of consecutive segments differs in little: sequence number, length,
//! checksum. So it can leave as one packet with one set of headers, and be cut
//! as late as possible, by the network card or not at all when the receiver is
//! on the same host. A [`SuperSegment`] is a gather of patched headers and a
//! stretch of shared bytes, which are not copied here.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

/// Bytes that all headers of a packet may have: Ethernet with a tag, IPv6, TCP
/// with all options.
pub const MAX_HEADERS: usize = 18 + 40 + 60;
/// Bytes of the payload that may be replaced.
pub const MAX_PATCH: usize = 256;

/// The longest over IPv6, as bytes of its IP packet: what Linux lets a device
/// cut if nothing else is said, which counts an Ethernet header too. (Longer
/// ones there need a hop-by-hop option, or must not have it, as the kernel is.)
pub const MAX_OVER_V6: usize = 65_535 - 14;

/// What a port that takes none says to whoever sends one.
pub(crate) const TAKES_NONE: &str = "the port takes no super-segments, as its capabilities say";

/// By which rules a super-segment is cut: what its transport header is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either: datagrams of equal length, but for the last.
    Udp,
}

/// A run of segments as one packet; see [`Port::send_super`](crate::Port::send_super).
///
/// The headers are those of the first segment, with the lengths of the whole
/// run, and with the sum of the pseudo-header (of the whole run, not
/// complemented) in the transport's checksum field: whoever cuts it puts the
/// rest right. PSH and FIN are for the last segment. A segment with CWR set
/// (RFC 3168) goes by itself, as a frame: not every device cuts such a run.
#[derive(Clone)]
pub struct SuperSegment {
    cut: Cut,
    segment_len: u16,
    transport_at: u16,
    headers: ArrayVec<u8, MAX_HEADERS>,
    bytes: Arc<[u8]>,
    range: Range<usize>,
    /// Bytes of the payload to be replaced, from its start.
    patch_at: usize,
    patch: ArrayVec<u8, MAX_PATCH>,
}

impl SuperSegment {
    /// A run whose payload is `bytes[range]`, to be cut into segments of
    /// `segment_len` bytes of it. The headers, `headers` bytes of zeroes for
    /// now, are to be written; the transport's begins at `transport_at`.
    ///
    /// # Panics
    /// When `headers` exceeds [`MAX_HEADERS`], `transport_at` lies outside, or
    /// `range` outside of `bytes`.
    pub fn new(
        cut: Cut,
        segment_len: u16,
        (headers, transport_at): (usize, usize),
        bytes: &Arc<[u8]>,
        range: Range<usize>,
    ) -> Self {
        assert!(transport_at < headers, "the transport's header is inside");
        assert!(range.start <= range.end && range.end <= bytes.len());
        let mut zeroes = ArrayVec::new();
        zeroes
            .try_extend_from_slice(&[0; MAX_HEADERS][..headers])
            .expect("as many as there are");
        Self {
            cut,
            segment_len,
            transport_at: transport_at as u16,
            headers: zeroes,
            bytes: Arc::clone(bytes),
            range,
            patch_at: 0,
            patch: ArrayVec::new(),
        }
    }

    /// The headers, to be written.
    #[inline]
    pub fn headers_mut(&mut self) -> &mut [u8] {
        &mut self.headers
    }

    /// The bytes that replace `len` bytes of the payload from `at` on, to be
    /// written; there is one such place.
    ///
    /// # Panics
    /// When `len` exceeds [`MAX_PATCH`] or the place lies outside the payload.
    #[inline]
    pub fn patch_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at + len <= self.range.len(), "inside the payload");
        self.patch.clear();
        self.patch
            .try_extend_from_slice(&[0; MAX_PATCH][..len])
            .expect("as many as there are");
        self.patch_at = at;
        &mut self.patch
    }

    /// By which rules it is cut.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Bytes of payload in each segment but the last.
    pub fn segment_len(&self) -> usize {
        self.segment_len.into()
    }

    /// Where the transport's header begins.
    pub fn transport_at(&self) -> usize {
        self.transport_at.into()
    }

    /// The headers.
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// Segments that it is cut into.
    pub fn segments(&self) -> usize {
        self.range.len().div_ceil(self.segment_len().max(1)).max(1)
    }

    /// Bytes of the whole packet.
    // There is none without headers.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.headers.len() + self.range.len()
    }

    /// Bytes of all the frames that it is cut into.
    pub fn wire_len(&self) -> usize {
        self.headers.len() * self.segments() + self.range.len()
    }

    /// The packet's bytes, in four stretches; some may be empty.
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
            .field("cut", &self.cut)
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
    fn a_patch_replaces_what_is_there() {
        let mut run = SuperSegment::new(Cut::TcpV4, 20, (54, 34), &bytes(), 10..90);
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
            let run = SuperSegment::new(Cut::Udp, 20, (42, 34), &bytes(), 0..len);
            assert_eq!(run.segments(), segments);
            assert_eq!(run.wire_len(), len + 42 * segments);
        }
    }

    #[test]
    #[should_panic(expected = "inside the payload")]
    fn a_patch_lies_inside() {
        SuperSegment::new(Cut::TcpV4, 20, (54, 34), &bytes(), 0..10).patch_mut(8, 3);
    }
}
