//! Networks of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, or a single address. The bits of the address behind the prefix are 0.
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "give an address, such as 192.0.2.7, or a network, such as 2001:db8::/32";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FORM)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| FORM))?;
        if bits > all {
            return Err("an IPv4 network has at most 32 bits, and an IPv6 network 128".to_owned());
        }
        let v4 = address.to_canonical();
        if v4 != address {
            let bits = bits.saturating_sub(96);
            return Err(format!(
                "no client has this form of an address: give {v4}/{bits}"
            ));
        }
        let start = masked(address, bits);
        if start != address {
            return Err(format!(
                "the address has bits behind its prefix: give {start}/{bits}, or {address} without a prefix"
            ));
        }
        Ok(Self { address, bits })
    }
}

/// Returns the address with zeros behind its first bits.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
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
    fn what_can_match_no_client_or_too_many_is_refused_with_a_remedy() {
        let refusal = |text: &str| text.parse::<Prefix>().unwrap_err();
        for (text, remedy) in [
            ("192.0.2.7/24", "give 192.0.2.0/24, or 192.0.2.7 without"),
            (
                "2001:db8::1/127",
                "give 2001:db8::/127, or 2001:db8::1 without",
            ),
            ("128.0.0.0/0", "give 0.0.0.0/0, "),
            ("::1/0", "give ::/0, "),
            ("::ffff:192.0.2.7", "give 192.0.2.7/32"),
            ("::ffff:0:0/96", "give 0.0.0.0/0"),
            ("192.0.2.0/33", "at most 32 bits"),
        ] {
            assert!(refusal(text).contains(remedy), "{}", refusal(text));
        }
    }
}
