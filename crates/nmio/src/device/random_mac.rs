//! Ethernet addresses for ports that have none.

/// Returns a random Ethernet address. The lowest two bits of its first byte say that it is a
/// locally administered unicast address (IEEE 802).
pub(super) fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    fastrand::Rng::new().fill(&mut mac);
    mac[0] = mac[0] & 0xfc | 0x02;
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_mac_addresses_are_local_and_unicast() {
        for _ in 0..100 {
            assert_eq!(random_mac()[0] & 0x03, 0x02);
        }
    }
}
