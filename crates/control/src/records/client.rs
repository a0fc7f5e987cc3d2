//! The address of a client in a record.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Length of a client's address and port in a record, in bytes.
pub const CLIENT_LEN: usize = 18;

/// Returns the address and port of a client in the form of a record. An IPv4 address is mapped into
/// IPv6 (RFC 4291, section 2.5.5.2).
#[inline]
pub fn client_to_bytes(client: SocketAddr) -> [u8; CLIENT_LEN] {
    // `Ipv4Addr::to_ipv6_mapped` would take the address apart.
    let ip = match client.ip() {
        IpAddr::V4(v4) => 0xffff_0000_0000 | u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let mut bytes = [0; CLIENT_LEN];
    bytes[..16].copy_from_slice(&ip.to_be_bytes());
    bytes[16..].copy_from_slice(&client.port().to_be_bytes());
    bytes
}

/// Reads what [`client_to_bytes`] has written.
pub fn client_from_bytes(bytes: &[u8; CLIENT_LEN]) -> SocketAddr {
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    let port = u16::from_be_bytes([bytes[16], bytes[17]]);
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read_as_they_were_written() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:65535", "[::]:0"] {
            let client = text.parse().unwrap();
            assert_eq!(client_from_bytes(&client_to_bytes(client)), client);
        }
    }
}
