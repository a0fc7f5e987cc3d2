//! Recognises source addresses that cannot be answered (RFC 1122, section 3.2.1.3; RFC 6890; RFC
//! 4291, section 2.5).

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::Station;

/// Why an address cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadSource {
    /// A multicast group, or the limited broadcast address.
    Group,
    /// 127/8 or `::1`.
    Loopback,
    /// 0/8, 240/4, or an unspecified, IPv4-compatible or IPv4-mapped IPv6 address.
    Reserved,
    /// The network address or the broadcast address of one of our IPv4 networks.
    Subnet,
    /// One of our own addresses.
    Own,
}

/// Returns the reason why `src` cannot be answered, or `None` if it can.
#[inline(always)]
pub(crate) fn refuse_v4(station: &Station, src: Ipv4Addr) -> Option<BadSource> {
    let first = src.octets()[0];
    let is_special = first == 0 || first == 127 || first >= 224;
    if is_special || station.is_on_link(src) {
        return classify_v4(station, src);
    }
    None
}

#[inline(never)]
fn classify_v4(station: &Station, src: Ipv4Addr) -> Option<BadSource> {
    match src.octets()[0] {
        127 => Some(BadSource::Loopback),
        224..=239 => Some(BadSource::Group),
        _ if src.is_broadcast() => Some(BadSource::Group),
        0 | 240.. => Some(BadSource::Reserved),
        _ if station.serves_v4(src) => Some(BadSource::Own),
        _ => station
            .is_reserved_on_link(src)
            .then_some(BadSource::Subnet),
    }
}

/// Like [`refuse_v4`], but never returns [`BadSource::Subnet`]. An IPv6 subnet has no broadcast
/// address, and its subnet-router anycast address may be a source (RFC 4291, section 2.6).
#[inline(always)]
pub(crate) fn refuse_v6(station: &Station, src: Ipv6Addr) -> Option<BadSource> {
    // All special addresses except multicast are in ::/64.
    if (src.to_bits() >> 64) as u64 == 0 || src.is_multicast() || station.serves_v6(src) {
        return classify_v6(station, src);
    }
    None
}

#[cold]
#[inline(never)]
fn classify_v6(station: &Station, src: Ipv6Addr) -> Option<BadSource> {
    match src.segments() {
        [0xff00..=0xffff, ..] => Some(BadSource::Group),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(BadSource::Loopback),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] => Some(BadSource::Reserved),
        _ => station.serves_v6(src).then_some(BadSource::Own),
    }
}
