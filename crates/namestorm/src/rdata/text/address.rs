//! Fields with addresses: of IPv4, IPv6, ATM and NSAP, prefixes, ports, relays and host identities.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::utils::{base16, base64};

use super::{Reader, TextFault, decimal};

const NEED_IPV4: &str = "an IPv4 address such as 192.0.2.1";
const NEED_IPV6: &str = "an IPv6 address such as 2001:db8::1";
/// The address family numbers of IPv4 and IPv6.
const IPV4: u16 = 1;
const IPV6: u16 = 2;
/// Format bytes of ATM addresses (AF-DANS-0152, section 5.2).
const AESA: u8 = 0;
const E164: u8 = 1;
/// Length of an AESA, in bytes.
const AESA_LEN: usize = 20;
/// Numbers of the protocols and ports that a WKS record may name (RFC 1010).
const PROTOCOLS: [(&str, u16); 3] = [("icmp", 1), ("tcp", 6), ("udp", 17)];
const PORTS: [(&str, u16); 14] = [
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("domain", 53),
    ("tftp", 69),
    ("finger", 79),
    ("http", 80),
    ("pop3", 110),
    ("nntp", 119),
    ("ntp", 123),
    ("snmp", 161),
    ("https", 443),
];

impl Reader<'_> {
    pub(super) fn ipv4(&mut self) -> Result<(), TextFault> {
        let address: Option<Ipv4Addr> = self.word()?.parse().ok();
        let address = self.some(address, NEED_IPV4)?;
        self.out.extend(address.octets());
        Ok(())
    }

    pub(super) fn ipv6(&mut self) -> Result<(), TextFault> {
        let address: Option<Ipv6Addr> = self.word()?.parse().ok();
        let address = self.some(address, NEED_IPV6)?;
        self.out.extend(address.octets());
        Ok(())
    }

    /// Reads the discovery flag, the type of the relay, and the relay (RFC 8777, section 4.3).
    pub(super) fn relay(&mut self) -> Result<(), TextFault> {
        self.field = "DISCOVERY";
        let discovery = self.number(1, "0 or 1")? as u8;
        self.field = "RELAY-TYPE";
        let kind = self.number(3, "0 (none), 1 (IPv4), 2 (IPv6) or 3 (name)")? as u8;
        self.field = "RELAY";
        self.out.push(discovery << 7 | kind);
        match kind {
            0 => {
                let is_none = self.word()? == ".";
                self.some(is_none.then_some(()), "'.', because RELAY-TYPE is 0")
            }
            1 => self.ipv4(),
            2 => self.ipv6(),
            _ => self.name(),
        }
    }

    /// Reads the gateway of the type that was read before (RFC 4025, section 3.1). The key after it may be
    /// missing only without an algorithm.
    pub(super) fn gateway(&mut self) -> Result<(), TextFault> {
        let [_, kind, algorithm] = *self.out else {
            return Err(TextFault::Missing);
        };
        match kind {
            0 => {
                let is_none = self.word()? == ".";
                self.some(is_none.then_some(()), "'.', because GATEWAY-TYPE is 0")?;
            }
            1 => self.ipv4()?,
            2 => self.ipv6()?,
            3 => self.name()?,
            _ => {
                // The word before the algorithm.
                self.field = "GATEWAY-TYPE";
                self.index -= 1;
                return Err(self.wrong("0 (none), 1 (IPv4), 2 (IPv6) or 3 (name)"));
            }
        }
        if algorithm != 0 && self.rest().is_empty() {
            return Err(TextFault::Missing);
        }
        Ok(())
    }

    /// Reads address prefixes up to the end (RFC 3123, section 5).
    pub(super) fn prefixes(&mut self) -> Result<(), TextFault> {
        while !self.rest().is_empty() {
            let word = self.word()?;
            let prefix = prefix(word);
            let prefix = self.some(
                prefix,
                "a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32",
            )?;
            self.out.extend(prefix);
        }
        Ok(())
    }

    /// Reads a protocol and its ports up to the end.
    pub(super) fn ports(&mut self) -> Result<(), TextFault> {
        self.field = "PROTOCOL";
        let protocol = self.numbered(&PROTOCOLS, 255, "TCP, UDP, or a number from 0 to 255")?;
        self.out.push(protocol as u8);
        self.field = "PORT";
        let mut ports = Vec::new();
        while !self.rest().is_empty() {
            const NEED: &str = "a number from 0 to 65535, or a name such as smtp";
            ports.push(self.numbered(&PORTS, u16::MAX, NEED)?);
        }
        let start = self.out.len();
        for port in ports.into_iter().map(usize::from) {
            let len = self.out.len().max(start + port / 8 + 1);
            self.out.resize(len, 0);
            self.out[start + port / 8] |= 0x80 >> (port % 8);
        }
        Ok(())
    }

    /// Reads `0x` and hexadecimal digits, perhaps with dots (RFC 1706, section 7).
    pub(super) fn nsap(&mut self) -> Result<(), TextFault> {
        let word = self.word()?;
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let bytes = digits.and_then(|digits| base16::decode_vec(&digits.replace('.', "")).ok());
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = self.some(bytes, "0x and an even number of hexadecimal digits")?;
        self.out.extend(bytes);
        Ok(())
    }

    /// Reads `+` and the digits of an E.164 number, or an AESA in hexadecimal.
    pub(super) fn atm(&mut self) -> Result<(), TextFault> {
        let word = self.word()?.replace('.', "");
        let address = if let Some(digits) = word.strip_prefix('+') {
            let is_valid = decimal(digits).is_some();
            is_valid.then(|| [&[E164], digits.as_bytes()].concat())
        } else {
            let bytes = base16::decode_vec(&word).ok();
            let bytes = bytes.filter(|bytes| bytes.len() == AESA_LEN);
            bytes.map(|bytes| [&[AESA][..], &bytes].concat())
        };
        let address = self.some(address, "+ and digits, or 40 hexadecimal digits")?;
        self.out.extend(address);
        Ok(())
    }

    /// Reads the algorithm, identity and key of a host, and its servers up to the end (RFC 8005,
    /// section 6).
    pub(super) fn host(&mut self) -> Result<(), TextFault> {
        self.field = "ALGORITHM";
        let algorithm = self.number(255, "a number from 0 to 255")? as u8;
        self.field = "HIT";
        let identity = base16::decode_vec(self.word()?).ok();
        let identity = identity.filter(|bytes| (1..=255).contains(&bytes.len()));
        let identity = self.some(identity, "2 to 510 hexadecimal digits")?;
        self.field = "KEY";
        let key: Option<Vec<u8>> = base64::decode(self.word()?).ok();
        let key = key.filter(|bytes| (1..=65_535).contains(&bytes.len()));
        let key = self.some(key, "one word in base64")?;
        self.out.extend([identity.len() as u8, algorithm]);
        self.out.extend((key.len() as u16).to_be_bytes());
        self.out.extend(identity);
        self.out.extend(key);
        self.field = "SERVER-NAME";
        while !self.rest().is_empty() {
            self.name()?;
        }
        Ok(())
    }

    /// Reads the length of a prefix, the suffix of an address, and the name of the prefix (RFC
    /// 2874, section 3.1.2).
    pub(super) fn suffix(&mut self) -> Result<(), TextFault> {
        self.field = "PREFIX-LENGTH";
        let bits = self.number(128, "a number from 0 to 128")? as u8;
        self.out.push(bits);
        if bits < 128 {
            self.field = "SUFFIX";
            let address: Option<Ipv6Addr> = self.word()?.parse().ok();
            let address = u128::from(self.some(address, NEED_IPV6)?);
            let suffix = address << bits >> bits;
            let bytes = suffix.to_be_bytes();
            self.out.extend(&bytes[usize::from(bits / 8)..]);
        }
        if bits > 0 {
            self.field = "PREFIX-NAME";
            self.name()?;
        }
        Ok(())
    }
}

/// Reads one address prefix. Zero bytes at the end of the address are left out.
fn prefix(word: &str) -> Option<Vec<u8>> {
    let negated = word.strip_prefix('!');
    let (family, rest) = negated.unwrap_or(word).split_once(':')?;
    let (address, bits) = rest.split_once('/')?;
    let (family, mut address, max) = match decimal(family)? {
        1 => (
            IPV4,
            address.parse::<Ipv4Addr>().ok()?.octets().to_vec(),
            32,
        ),
        2 => (
            IPV6,
            address.parse::<Ipv6Addr>().ok()?.octets().to_vec(),
            128,
        ),
        _ => return None,
    };
    let bits = decimal(bits).filter(|bits| *bits <= max)? as u8;
    while address.last() == Some(&0) {
        address.pop();
    }
    let negation = u8::from(negated.is_some()) << 7;
    let mut prefix = family.to_be_bytes().to_vec();
    prefix.extend([bits, negation | address.len() as u8]);
    prefix.extend(address);
    Some(prefix)
}
