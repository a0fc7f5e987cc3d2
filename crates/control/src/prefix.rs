//! Networks of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, or a single address. Bits of the address behind the prefix do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Returns true if the address is in the network.
    pub fn contains(self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits.into()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits.into()
            }
            _ => false,
        }
    }

    /// Returns true if both are the same network.
    pub fn is_same(self, other: Self) -> bool {
        self.bits == other.bits && self.contains(other.address)
    }

    /// Returns the length of the prefix, in bits.
    pub fn bits(self) -> u8 {
        self.bits
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "give an address, such as 192.0.2.7, or a network, such as 2001:db8::/32";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FORM)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| FORM))?;
        if bits > all {
            return Err("an IPv4 network has at most 32 bits, and an IPv6 network 128");
        }
        Ok(Self { address, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_shown_as_it_is_written() {
        for text in ["192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        let host: Prefix = "192.0.2.7".parse().unwrap();
        assert_eq!(
            (host.to_string().as_str(), host.bits()),
            ("192.0.2.7/32", 32)
        );
        assert_eq!("::1".parse::<Prefix>().unwrap().bits(), 128);
    }

    #[test]
    fn bits_behind_the_prefix_make_no_other_network() {
        let same = |a: &str, b: &str| {
            let [a, b]: [Prefix; 2] = [a, b].map(|text| text.parse().unwrap());
            a.is_same(b)
        };
        assert!(same("192.0.2.0/24", "192.0.2.7/24"));
        assert!(!same("192.0.2.0/24", "192.0.2.0/25"));
        assert!(!same("192.0.2.0/24", "192.0.3.0/24"));
        assert!(!same("0.0.0.0/0", "::/0"));
    }
}
