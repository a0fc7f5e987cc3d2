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
        if src.is_group() || ethertype < MIN_ETHERTYPE || ethertype == TPID_VLAN {
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
            header[..6].copy_from_slice(&self.peer.0);
            header[6..12].copy_from_slice(&self.own.0);
            header[12..].copy_from_slice(&ethertype.to_be_bytes());
            return HEADER_LEN;
        };
        let header: &mut [u8; TAGGED_HEADER_LEN] = frame
            .first_chunk_mut()
            .expect("a frame holds a tagged Ethernet header");
        header[..6].copy_from_slice(&self.peer.0);
        header[6..12].copy_from_slice(&self.own.0);
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
