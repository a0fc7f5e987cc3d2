//! Code that several fuzz targets share.

pub mod dns;
pub mod http;
pub mod talk;
pub mod tcp;

use eth::{Mac, Station};
use testkit::{Route, SERVER, SERVER_MAC};

/// MTU of the simulated links.
pub const MTU: usize = 1500;
/// Client port of [`route`].
pub const CLIENT_PORT: u16 = 40_000;

/// Returns the server's station, on the untagged link and on three VLANs.
pub fn station() -> Station {
    Station::new(Mac(SERVER_MAC), &SERVER).with_vlans(&[0, 1, 2])
}

/// Returns the route from the client to the server. The VLAN ID is reduced to
/// one of four, and the server does not serve the last of them.
pub fn route(v6: bool, vlan: Option<u16>) -> Route {
    let vlan = vlan.map(|tag| tag & 0xf003);
    Route {
        vlan,
        ..Route::to_server(v6, CLIENT_PORT, 0)
    }
}

/// Overwrites single bytes: each edit is an offset and the new byte.
pub fn edit(bytes: &mut [u8], edits: &[(u8, u8)]) {
    for (at, byte) in edits {
        if let Some(place) = bytes.get_mut(usize::from(*at)) {
            *place = *byte;
        }
    }
}

/// Reduces `cuts` to offsets in `len` bytes.
pub fn offsets(cuts: &[u16], len: usize) -> Vec<usize> {
    cuts.iter()
        .map(|cut| usize::from(*cut) % (len + 1))
        .collect()
}
