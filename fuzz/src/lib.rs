//! The fuzz targets, a module each, and what they share. libFuzzer's programs are in `fuzz_targets`.

mod dns;
mod http;
mod talk;

pub mod device_name;
pub mod dns_batch;
pub mod dns_hook;
pub mod dns_query;
pub mod dns_signed;
pub mod http_app;
pub mod http_request;
pub mod ip_receive;
pub mod site_rules;
pub mod tcp_segments;
pub mod udp_datagram;
pub mod zone_text;

#[cfg(test)]
mod corpus;

use eth::{Mac, Station};
use testkit::{Route, SERVER, SERVER_MAC};

/// MTU of the simulated links in bytes.
pub const MTU: usize = 1500;
/// Client port of [`route`].
pub const CLIENT_PORT: u16 = 40_000;

/// Returns the server's station, which accepts untagged frames and frames of three VLANs.
pub fn station() -> Station {
    Station::new(Mac(SERVER_MAC), &SERVER).with_vlans(&[0, 1, 2])
}

/// Returns the route from the client to the server. The VLAN ID is reduced to a number from 0 to 3.
/// The server does not accept VLAN 3.
pub fn route(v6: bool, vlan: Option<u16>) -> Route {
    let vlan = vlan.map(|tag| tag & 0xf003);
    Route {
        vlan,
        ..Route::to_server(v6, CLIENT_PORT, 0)
    }
}

/// Overwrites single bytes. An edit is the offset and the new value of a byte.
pub fn edit(bytes: &mut [u8], edits: &[(u8, u8)]) {
    for (at, byte) in edits {
        if let Some(place) = bytes.get_mut(usize::from(*at)) {
            *place = *byte;
        }
    }
}

/// Reduces `cuts` to valid offsets in a buffer of `len` bytes.
pub fn offsets(cuts: &[u16], len: usize) -> Vec<usize> {
    cuts.iter()
        .map(|cut| usize::from(*cut) % (len + 1))
        .collect()
}
