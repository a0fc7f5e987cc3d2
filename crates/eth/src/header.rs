//! The Ethernet header, with at most one 802.1Q tag.

use std::fmt;

/// Ethertype of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethertype of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// Ethertype of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Tag protocol identifier of 802.1Q.
const TPID_VLAN: u16 = 0x8100;
/// Minimum ethertype. Smaller values of the field are the length of an 802.3 frame.
const MIN_ETHERTYPE: u16 = 0x0600;

/// Length of an untagged header, in bytes.
pub const HEADER_LEN: usize = 14;
/// Length of a header with one 802.1Q tag, in bytes.
pub const TAGGED_HEADER_LEN: usize = 18;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true if this is a group address (multicast or broadcast). A group address is never
    /// the source of a frame.
    #[inline(always)]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A parsed Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The destination address.
    pub dst: Mac,
    /// The source address.
    pub src: Mac,
    /// Tag control information (priority and VLAN ID), if the frame has an 802.1Q tag.
    pub vlan: Option<u16>,
    /// The payload's protocol. The value is at least 0x0600.
    pub ethertype: u16,
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Header {
    /// Mask of the VLAN ID in the tag control information.
    pub const VLAN_ID: u16 = 0x0fff;

    /// Parses the header of a frame. Returns `None` if the frame is too short, its source is a
    /// group address, or it has an 802.3 length or a second tag.
    #[inline(always)]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let dst = Mac(*frame.first_chunk()?);
        let src = Mac(*frame.get(6..)?.first_chunk()?);
        let mut ethertype = u16_at(frame, 12)?;
        let mut vlan = None;
        if ethertype == TPID_VLAN {
            vlan = Some(u16_at(frame, 14)?);
            ethertype = u16_at(frame, 16)?;
        }
        if src.is_group() {
            return None;
        }
        // Nearly all frames hold IPv4 or IPv6, so these need no other comparison.
        let is_valid = match ethertype {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => true,
            _ => ethertype >= MIN_ETHERTYPE && ethertype != TPID_VLAN,
        };
        if !is_valid {
            return None;
        }
        Some(Self {
            dst,
            src,
            vlan,
            ethertype,
        })
    }

    /// Returns the length of this header: [`HEADER_LEN`] or [`TAGGED_HEADER_LEN`].
    // A header is never empty, so `is_empty` would be useless.
    #[allow(clippy::len_without_is_empty)]
    #[inline(always)]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() {
            TAGGED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }
}

/// The addresses and the tag in the Ethernet header of frames to a peer. They are copied from a
/// frame that the peer has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The MAC address of the peer, or of the router that forwards the peer's packets to us.
    pub peer: Mac,
    /// Our MAC address, taken from the destination of the peer's frame.
    pub own: Mac,
    /// Tag control information of sent frames, or `None` to send untagged frames.
    pub vlan: Option<u16>,
}

impl Link {
    /// Returns the link back to the sender of a frame.
    #[inline(always)]
    pub const fn back(header: &Header) -> Self {
        Self {
            peer: header.src,
            own: header.dst,
            vlan: header.vlan,
        }
    }

    /// Returns the link back to the sender of a frame. The header is `len` bytes long, and
    /// [`Header::parse`] has already accepted it.
    ///
    /// # Panics
    /// Panics if the frame is shorter than `len`.
    #[inline(always)]
    pub fn back_from(frame: &[u8], len: usize) -> Self {
        let header = &frame[..len];
        let mac = |at: usize| Mac(header[at..at + 6].try_into().expect("six bytes"));
        Self {
            peer: mac(6),
            own: mac(0),
            vlan: (len == TAGGED_HEADER_LEN).then(|| u16::from_be_bytes([header[14], header[15]])),
        }
    }

    /// Returns true if a frame came from this link's peer, with this link's tag. Our own address is
    /// not compared. See [`back_from`](Self::back_from) for `frame` and `len`.
    #[inline(always)]
    pub fn has_sent(&self, frame: &[u8], len: usize) -> bool {
        let header = &frame[..len];
        let has_tag = match self.vlan {
            None => len == HEADER_LEN,
            Some(tci) => len == TAGGED_HEADER_LEN && header[14..16] == tci.to_be_bytes(),
        };
        has_tag && header[6..].starts_with(&self.peer.0)
    }

    /// Turns the header of a received frame around, so that the frame goes back to its sender. The
    /// tag and the ethertype stay.
    ///
    /// # Panics
    /// Panics if the frame is shorter than two MAC addresses.
    #[inline(always)]
    pub fn turn_around(frame: &mut [u8]) {
        let (dst, rest) = frame.split_at_mut(6);
        dst.swap_with_slice(&mut rest[..6]);
    }

    /// Writes a header back to the sender of `received` to the start of `frame`, with the tag and
    /// the ethertype of `received`. The header is `len` bytes long, as in
    /// [`back_from`](Self::back_from).
    ///
    /// # Panics
    /// Panics if a frame is shorter than its header.
    #[inline(always)]
    pub fn write_back(received: &[u8], len: usize, frame: &mut [u8]) {
        Self::write_macs_back(received, frame);
        if len == TAGGED_HEADER_LEN {
            frame[12..TAGGED_HEADER_LEN].copy_from_slice(&received[12..TAGGED_HEADER_LEN]);
        } else {
            frame[12..HEADER_LEN].copy_from_slice(&received[12..HEADER_LEN]);
        }
    }

    /// Like [`write_back`](Self::write_back), but writes only the MAC addresses.
    #[inline(always)]
    pub fn write_macs_back(received: &[u8], frame: &mut [u8]) {
        frame[..6].copy_from_slice(&received[6..12]);
        frame[6..12].copy_from_slice(&received[..6]);
    }

    /// Returns both MAC addresses, as a header to the peer has them. The compiler copies bytes more
    /// cheaply than two arrays of six.
    #[inline(always)]
    pub fn macs(&self) -> [u8; 12] {
        let (Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l])) = (self.peer, self.own);
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Returns the length of the header that [`Link::write`] writes, in bytes.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() {
            TAGGED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }

    /// Writes the header to the start of `frame` and returns its length.
    ///
    /// # Panics
    /// Panics if `frame` is shorter than [`Link::header_len`].
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], ethertype: u16) -> usize {
        let Some(tci) = self.vlan else {
            let header: &mut [u8; HEADER_LEN] = frame
                .first_chunk_mut()
                .expect("a frame holds an Ethernet header");
            header[..12].copy_from_slice(&self.macs());
            header[12..].copy_from_slice(&ethertype.to_be_bytes());
            return HEADER_LEN;
        };
        let header: &mut [u8; TAGGED_HEADER_LEN] = frame
            .first_chunk_mut()
            .expect("a frame holds a tagged Ethernet header");
        header[..12].copy_from_slice(&self.macs());
        header[12..14].copy_from_slice(&TPID_VLAN.to_be_bytes());
        header[14..16].copy_from_slice(&tci.to_be_bytes());
        header[16..].copy_from_slice(&ethertype.to_be_bytes());
        TAGGED_HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_back_in_three_ways() {
        for (vlan, len) in [(None, HEADER_LEN), (Some(7), TAGGED_HEADER_LEN)] {
            let (peer, own) = (Mac([2, 3, 4, 5, 6, 7]), Mac([8, 9, 10, 11, 12, 13]));
            let (link, back) = (
                Link { peer, own, vlan },
                Link {
                    peer: own,
                    own: peer,
                    vlan,
                },
            );
            let mut received = [0u8; 64];
            link.write(&mut received, ETHERTYPE_IPV4);
            assert_eq!(Link::back_from(&received, len), back);
            let mut expected = [0u8; 64];
            back.write(&mut expected, ETHERTYPE_IPV4);

            let mut written = [0u8; 64];
            Link::write_back(&received, len, &mut written);
            assert_eq!(written, expected);
            let mut turned = received;
            Link::turn_around(&mut turned);
            assert_eq!(turned, expected);
        }
    }

    #[test]
    fn a_frame_from_another_peer_or_with_another_tag_is_told_apart() {
        let (peer, own) = (Mac([2; 6]), Mac([4; 6]));
        for (vlan, len) in [(None, HEADER_LEN), (Some(7), TAGGED_HEADER_LEN)] {
            let link = Link { peer, own, vlan };
            let received_over = |back: Link| {
                let mut frame = [0u8; 64];
                let sent = Link {
                    peer: back.own,
                    own: back.peer,
                    vlan: back.vlan,
                };
                let len = sent.write(&mut frame, ETHERTYPE_IPV4);
                link.has_sent(&frame, len)
            };
            assert!(received_over(link));
            assert_eq!(link.header_len(), len);
            let own = Mac([5; 6]);
            assert!(received_over(Link { own, ..link }), "only the peer counts");
            for other in 0..6 {
                let mut peer = peer;
                peer.0[other] ^= 1;
                assert!(!received_over(Link { peer, ..link }), "byte {other}");
            }
            for vlan in [None, Some(7), Some(8), Some(7 + 256)] {
                assert_eq!(received_over(Link { vlan, ..link }), vlan == link.vlan);
            }
        }
    }

    #[test]
    fn a_reply_keeps_the_vlan_tag() {
        let link = Link {
            peer: Mac([2; 6]),
            own: Mac([4; 6]),
            vlan: Some(0x2005),
        };
        let mut frame = [0u8; 64];
        assert_eq!(link.write(&mut frame, ETHERTYPE_IPV6), TAGGED_HEADER_LEN);
        let header = Header::parse(&frame).unwrap();
        assert_eq!(header.vlan, Some(0x2005));
        assert_eq!(header.ethertype, ETHERTYPE_IPV6);
        assert_eq!(header.len(), TAGGED_HEADER_LEN);
        assert_eq!(
            Link::back(&header),
            Link {
                peer: link.own,
                own: link.peer,
                vlan: link.vlan
            }
        );
    }

    #[test]
    fn a_mac_address_is_displayed_in_hexadecimal() {
        let mac = Mac([0, 0x1a, 2, 0xff, 4, 5]);
        assert_eq!(mac.to_string(), "00:1a:02:ff:04:05");
        assert_eq!(format!("{mac:?}"), "00:1a:02:ff:04:05");
    }

    #[test]
    fn the_smallest_ethertype_is_accepted() {
        let mut frame = [0u8; HEADER_LEN];
        frame[12..].copy_from_slice(&MIN_ETHERTYPE.to_be_bytes());
        assert!(Header::parse(&frame).is_some());
        frame[12..].copy_from_slice(&(MIN_ETHERTYPE - 1).to_be_bytes());
        assert_eq!(Header::parse(&frame), None, "802.3 length");
    }

    #[test]
    fn frames_other_than_ethernet_ii_are_refused() {
        let mut frame = [0u8; 64];
        assert_eq!(Header::parse(&frame), None, "802.3 length");
        frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        assert!(Header::parse(&frame).is_some());
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&frame[..len]), None);
        }
        frame[6] = 1;
        assert_eq!(Header::parse(&frame), None, "a group address as source");
        frame[6] = 0;
        frame[12..18].copy_from_slice(&[0x81, 0, 0, 1, 0x81, 0]);
        assert_eq!(Header::parse(&frame), None, "two tags");
        assert_eq!(
            Header::parse(&frame[..16]),
            None,
            "truncated inside the tag"
        );
    }
}
