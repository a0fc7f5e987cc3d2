//! A worker's end of a trace: which frames are copied, and how.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::records::{RecordReader, RecordSender, ring};

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const IPV6: u16 = 0x86dd;

/// Length of the fixed part of a record: time, original length, and direction.
const HEAD: usize = size_of::<u64>() + size_of::<u32>() + 1;

/// Whether a frame was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Received,
    Sent,
}

/// Copies the frames from and to one address into a ring.
#[derive(Debug)]
pub(crate) struct Capture {
    peer: IpAddr,
    /// Maximum number of bytes of a frame that are copied.
    snap: usize,
    ring: RecordSender,
}

/// The control thread's end of a trace.
#[derive(Debug)]
pub(crate) struct CaptureReader {
    ring: RecordReader,
    record: Vec<u8>,
}

/// A copied frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Captured<'a> {
    /// Time since 1970.
    pub(crate) time: Duration,
    pub(crate) direction: Direction,
    /// Length of the whole frame in bytes.
    pub(crate) original_len: u32,
    /// The first bytes of the frame.
    pub(crate) bytes: &'a [u8],
}

/// Creates both ends of a trace of the packets from and to `peer`. `snap` is the maximum number of
/// bytes of a frame that are copied.
pub(crate) fn capture(peer: IpAddr, snap: usize) -> (Capture, CaptureReader) {
    let (sender, reader) = ring();
    let capture = Capture {
        peer,
        snap,
        ring: sender,
    };
    let reader = CaptureReader {
        ring: reader,
        record: Vec::new(),
    };
    (capture, reader)
}

impl Capture {
    /// Copies a frame if it comes from the client or goes there. The parts of the frame follow one
    /// another, and the first one has the headers.
    pub(crate) fn copy(&mut self, direction: Direction, parts: &[&[u8]]) {
        let headers = parts.first().copied().unwrap_or_default();
        if !is_about(headers, self.peer) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.unwrap_or_default().as_nanos() as u64;
        let original_len = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&nanos.to_ne_bytes());
        head[8..12].copy_from_slice(&original_len.to_ne_bytes());
        head[12] = u8::from(direction == Direction::Sent);
        let mut left = self.snap;
        let mut cut = [&[][..]; MAX_PARTS];
        for (cut, part) in cut.iter_mut().zip(parts) {
            *cut = &part[..part.len().min(left)];
            left -= cut.len();
        }
        self.ring.send_parts(&head, &cut);
    }

    /// Number of frames that did not fit in the ring.
    pub(crate) fn dropped(&self) -> u64 {
        self.ring.lost()
    }
}

/// Maximum number of parts of a frame. A super-segment has four.
const MAX_PARTS: usize = 4;

impl CaptureReader {
    /// Takes the oldest frame. Returns `None` if there is none.
    pub(crate) fn take(&mut self) -> Option<Captured<'_>> {
        if !self.ring.take(&mut self.record) {
            return None;
        }
        let (nanos, rest) = self.record.split_first_chunk()?;
        let (original_len, rest) = rest.split_first_chunk()?;
        let (direction, bytes) = rest.split_first()?;
        Some(Captured {
            time: Duration::from_nanos(u64::from_ne_bytes(*nanos)),
            direction: match direction {
                0 => Direction::Received,
                _ => Direction::Sent,
            },
            original_len: u32::from_ne_bytes(*original_len),
            bytes,
        })
    }
}

/// Returns true if a frame is an IP packet from or to `peer`, or an ARP packet about it.
fn is_about(frame: &[u8], peer: IpAddr) -> bool {
    let mut at = ETHERNET;
    let mut kind = be16(frame, at - 2);
    while matches!(kind, Some(VLAN | SERVICE_VLAN)) {
        at += VLAN_TAG;
        kind = be16(frame, at - 2);
    }
    let has = |offset: usize| match peer {
        IpAddr::V4(peer) => frame.get(at + offset..at + offset + 4) == Some(&peer.octets()[..]),
        IpAddr::V6(peer) => frame.get(at + offset..at + offset + 16) == Some(&peer.octets()[..]),
    };
    match (kind, peer) {
        (Some(IPV4), IpAddr::V4(_)) => has(12) || has(16),
        (Some(ARP), IpAddr::V4(_)) => has(14) || has(24),
        (Some(IPV6), IpAddr::V6(_)) => has(8) || has(24),
        _ => false,
    }
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the headers of a frame of this kind, with an address at an offset behind them.
    fn frame(kinds: &[u16], offset: usize, address: &str) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for (index, kind) in kinds.iter().enumerate() {
            if index > 0 {
                frame.extend([0, 5]);
            }
            frame.extend(kind.to_be_bytes());
        }
        frame.resize(frame.len() + offset, 0);
        match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(address) => frame.extend(address.octets()),
            IpAddr::V6(address) => frame.extend(address.octets()),
        }
        frame.resize(frame.len() + 40, 0);
        frame
    }

    #[test]
    fn frames_from_and_to_the_client_are_about_it() {
        for (kinds, offset, address, expected) in [
            (&[IPV4][..], 12, "192.0.2.7", true),
            (&[IPV4], 16, "192.0.2.7", true),
            (&[IPV4], 20, "192.0.2.7", false),
            (&[IPV4], 12, "192.0.2.8", false),
            (&[IPV6], 12, "192.0.2.7", false),
            (&[ARP], 14, "192.0.2.7", true),
            (&[ARP], 24, "192.0.2.7", true),
            (&[VLAN, IPV4], 12, "192.0.2.7", true),
            (&[SERVICE_VLAN, VLAN, IPV4], 16, "192.0.2.7", true),
            (&[VLAN, IPV4], 8, "192.0.2.7", false),
        ] {
            let frame = frame(kinds, offset, address);
            let peer = "192.0.2.7".parse().unwrap();
            assert_eq!(is_about(&frame, peer), expected, "{kinds:x?} {offset}");
            for len in 0..frame.len() {
                is_about(&frame[..len], peer);
            }
        }
        let peer: IpAddr = "2001:db8::7".parse().unwrap();
        for (offset, expected) in [(8, true), (24, true), (12, false)] {
            assert_eq!(
                is_about(&frame(&[IPV6], offset, "2001:db8::7"), peer),
                expected
            );
        }
    }

    #[test]
    fn frames_are_copied_in_order_and_cut() {
        let peer = "192.0.2.7".parse().unwrap();
        let (mut capture, mut reader) = capture(peer, 50);
        let frame = frame(&[IPV4], 12, "192.0.2.7");
        capture.copy(Direction::Received, &[&frame[..40]]);
        capture.copy(Direction::Received, &[b"other"]);
        capture.copy(Direction::Sent, &[&frame[..34], b"a", b"", &[b'b'; 1_000]]);
        let first = reader.take().unwrap();
        assert_eq!(
            (first.direction, first.original_len),
            (Direction::Received, 40)
        );
        assert_eq!(first.bytes, &frame[..40]);
        assert!(
            first.time > Duration::from_hours(24 * 365 * 50),
            "since 1970"
        );
        let second = reader.take().unwrap();
        assert_eq!(
            (second.direction, second.original_len),
            (Direction::Sent, 1_035)
        );
        let expected = [&frame[..34], b"a", &[b'b'; 15]].concat();
        assert_eq!(second.bytes, expected);
        assert_eq!(reader.take(), None);
        assert_eq!(capture.dropped(), 0);
    }

    #[test]
    fn frames_that_do_not_fit_are_counted() {
        let peer = "192.0.2.7".parse().unwrap();
        let (mut capture, mut reader) = capture(peer, usize::MAX);
        let mut large = frame(&[IPV4], 12, "192.0.2.7");
        large.resize(1 << 20, 0);
        for _ in 0..6 {
            capture.copy(Direction::Sent, &[&large]);
        }
        assert_eq!(capture.dropped(), 3);
        let mut frames = 0;
        while let Some(one) = reader.take() {
            assert_eq!(one.bytes.len(), 1 << 20);
            frames += 1;
        }
        assert_eq!(frames, 3);
    }
}
