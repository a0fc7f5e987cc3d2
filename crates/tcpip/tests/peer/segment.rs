//! TCP segments in Ethernet frames, read and written apart from the server's
//! code, so that an error there is not made here too.

use std::net::IpAddr;

use arrayvec::ArrayVec;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
/// RFC 3168: the receiver has seen a mark.
pub(crate) const ECE: u8 = 0x40;
/// RFC 3168: the sender has reduced its window.
pub(crate) const CWR: u8 = 0x80;

/// The ECN bits of an IP header that has met congestion (RFC 3168, section 5).
pub(crate) const CE: u8 = 3;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_TCP: u8 = 6;

/// Blocks in a header at most (RFC 2018, section 3).
pub(crate) const MAX_SACK_BLOCKS: usize = 4;
/// Sequence numbers: the first of a block, and the one behind it.
pub(crate) type Block = (u32, u32);

/// What a header's options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// The value, and the one that is echoed.
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sack: ArrayVec<Block, MAX_SACK_BLOCKS>,
}

impl Options {
    /// Bytes in a header, padding included.
    fn write(&self) -> ArrayVec<u8, 40> {
        let mut bytes = ArrayVec::new();
        let mut put = |more: &[u8]| bytes.try_extend_from_slice(more).unwrap();
        if let Some(mss) = self.mss {
            put(&[2, 4]);
            put(&mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[1, 3, 3, shift]);
        }
        if self.sack_permitted {
            put(&[1, 1, 4, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[1, 1, 8, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if !self.sack.is_empty() {
            put(&[1, 1, 5, 2 + 8 * self.sack.len() as u8]);
            for (start, end) in &self.sack {
                put(&start.to_be_bytes());
                put(&end.to_be_bytes());
            }
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut all = Self::default();
        while let [kind, rest @ ..] = bytes {
            match kind {
                0 => break,
                1 => bytes = rest,
                _ => {
                    let len = usize::from(*rest.first()?);
                    let option = bytes.get(2..len)?;
                    all.take(*kind, option)?;
                    bytes = &bytes[len..];
                }
            }
        }
        Some(all)
    }

    fn take(&mut self, kind: u8, option: &[u8]) -> Option<()> {
        match kind {
            2 => self.mss = Some(u16::from_be_bytes(option.try_into().ok()?)),
            3 => self.window_scale = Some(*option.first()?),
            4 => self.sack_permitted = true,
            5 => {
                for block in option.chunks(8) {
                    let block: [u8; 8] = block.try_into().ok()?;
                    self.sack
                        .try_push((u32_at(&block, 0), u32_at(&block, 4)))
                        .ok()?;
                }
            }
            8 => {
                let both: [u8; 8] = option.try_into().ok()?;
                self.timestamps = Some((u32_at(&both, 0), u32_at(&both, 4)));
            }
            _ => {}
        }
        Some(())
    }
}

/// A segment, with what of the IP header matters to TCP.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) control: u8,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) data: &'a [u8],
    /// The two bits in the IP header.
    pub(crate) ecn: u8,
    /// As it stands in the header.
    pub(crate) checksum: u16,
    /// Bytes of the header, options included.
    pub(crate) header_len: usize,
}

impl Segment<'_> {
    /// An acknowledgement of nothing, to be filled in.
    pub(crate) fn bare(src_port: u16, dst_port: u16) -> Self {
        Self {
            src_port,
            dst_port,
            seq: 0,
            ack: 0,
            control: ACK,
            window: 0,
            options: Options::default(),
            data: &[],
            ecn: 0,
            checksum: 0,
            header_len: TCP,
        }
    }

    pub(crate) fn has(&self, control: u8) -> bool {
        self.control & control != 0
    }
}

/// The two hosts, from one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) src: (IpAddr, [u8; 6]),
    pub(crate) dst: (IpAddr, [u8; 6]),
}

impl Route {
    /// A frame with this segment.
    pub(crate) fn frame(&self, segment: &Segment<'_>) -> Vec<u8> {
        let options = segment.options.write();
        let len = TCP + options.len() + segment.data.len();
        let mut frame = Vec::with_capacity(ETHERNET + IPV6 + len);
        frame.extend_from_slice(&self.dst.1);
        frame.extend_from_slice(&self.src.1);
        match (self.src.0, self.dst.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend_from_slice(&ETHERTYPE_IPV4);
                let total = ((IPV4 + len) as u16).to_be_bytes();
                let mut header = [0; IPV4];
                header[..4].copy_from_slice(&[0x45, segment.ecn, total[0], total[1]]);
                header[6..10].copy_from_slice(&[0x40, 0, 64, PROTOCOL_TCP]);
                header[12..16].copy_from_slice(&src.octets());
                header[16..].copy_from_slice(&dst.octets());
                let sum = finish(sum(&header));
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend_from_slice(&header);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                frame.extend_from_slice(&ETHERTYPE_IPV6);
                frame.extend_from_slice(&[0x60, segment.ecn << 4, 0, 0]);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
                frame.extend_from_slice(&[PROTOCOL_TCP, 64]);
                frame.extend_from_slice(&src.octets());
                frame.extend_from_slice(&dst.octets());
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        let at = frame.len();
        frame.extend_from_slice(&segment.src_port.to_be_bytes());
        frame.extend_from_slice(&segment.dst_port.to_be_bytes());
        frame.extend_from_slice(&segment.seq.to_be_bytes());
        frame.extend_from_slice(&segment.ack.to_be_bytes());
        let words = (TCP + options.len()) as u8 / 4;
        frame.extend_from_slice(&[words << 4, segment.control]);
        frame.extend_from_slice(&segment.window.to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&options);
        frame.extend_from_slice(segment.data);
        let addresses = match self.src.0 {
            IpAddr::V4(_) => 8,
            IpAddr::V6(_) => 32,
        };
        let sum = finish(tcp_sum(&frame[at - addresses..], addresses));
        frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

/// Whether sums are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    Checked,
    Unchecked,
}

/// Takes a frame apart. `None` when it is no TCP.
///
/// # Panics
/// When it is TCP and not right.
pub(crate) fn parse(frame: &[u8], sums: Sums) -> Option<Segment<'_>> {
    let (ecn, at, addresses, end) = if frame[12..14] == ETHERTYPE_IPV4 {
        let header = &frame[ETHERNET..ETHERNET + IPV4];
        if header[9] != PROTOCOL_TCP {
            return None;
        }
        assert_eq!(header[0], 0x45, "an IPv4 header without options");
        assert_eq!(header[6] & 0x3f, 0, "a fragment");
        if sums == Sums::Checked {
            assert_eq!(finish(sum(header)), 0, "the IPv4 header's checksum");
        }
        let total = usize::from(u16_at(header, 2));
        (header[1] & 3, ETHERNET + IPV4, 8, ETHERNET + total)
    } else if frame[12..14] == ETHERTYPE_IPV6 {
        let header = &frame[ETHERNET..ETHERNET + IPV6];
        if header[6] != PROTOCOL_TCP {
            return None;
        }
        let end = ETHERNET + IPV6 + usize::from(u16_at(header, 4));
        ((header[1] >> 4) & 3, ETHERNET + IPV6, 32, end)
    } else {
        return None;
    };
    assert!(end <= frame.len(), "an IP length beyond the frame");
    if sums == Sums::Checked {
        let sum = finish(tcp_sum(&frame[at - addresses..end], addresses));
        assert_eq!(sum, 0, "the TCP checksum");
    }
    let tcp = &frame[at..end];
    let header_len = usize::from(tcp[12] >> 4) * 4;
    let options = Options::read(&tcp[TCP..header_len]);
    Some(Segment {
        src_port: u16_at(tcp, 0),
        dst_port: u16_at(tcp, 2),
        seq: u32_at(tcp, 4),
        ack: u32_at(tcp, 8),
        control: tcp[13],
        window: u16_at(tcp, 14),
        options: options.expect("options that can be read"),
        data: &tcp[header_len..],
        ecn,
        checksum: u16_at(tcp, 16),
        header_len,
    })
}

/// Marks a frame as having met congestion (RFC 3168, section 5), if its
/// transport knows of that. None is lost for want of it.
pub(crate) fn mark_congestion(frame: &mut [u8]) -> bool {
    if frame[12..14] == ETHERTYPE_IPV6 {
        if frame[ETHERNET + 1] & 0x30 != 0 {
            frame[ETHERNET + 1] |= CE << 4;
        }
        return true;
    }
    let header = &mut frame[ETHERNET..ETHERNET + IPV4];
    if header[1] & 3 != 0 {
        header[1] |= CE;
        header[10..12].fill(0);
        let sum = finish(sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The sum of a segment and its pseudo-header (RFC 9293, section 3.1), when
/// the segment follows on the `addresses` bytes of both IP addresses.
fn tcp_sum(bytes: &[u8], addresses: usize) -> u64 {
    sum(bytes) + u64::from(PROTOCOL_TCP) + (bytes.len() - addresses) as u64
}

/// The sum of the 16-bit words, not folded yet (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    // 2^16 is 1 in this arithmetic: the halves of a word add up by themselves.
    let whole: u64 = (&mut words).map(|word| u64::from(u32_at(word, 0))).sum();
    let mut rest = [0; 4];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    whole + u64::from(u32_at(&rest, 0))
}

/// The checksum: folded and complemented.
pub(crate) fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
