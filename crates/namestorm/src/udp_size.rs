//! The largest UDP message for each client.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use control::config::before_nth;
use control::{Prefix, WrongWords};

use crate::edns::{MAX_UDP_MESSAGE, MIN_UDP_MESSAGE};

/// Maximum of a [`UdpSize`], in bytes.
pub const MAX_UDP_SIZE: u16 = 4096;
/// Maximum number of networks with a size of their own. Each query is compared with all of them.
const MAX_NETWORKS: usize = 256;
/// Length of the headers in front of a message, in bytes: those of IPv6 and UDP.
const HEADERS: usize = 40 + 8;

/// The largest UDP message for all clients, or for those of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSize {
    network: Option<Prefix>,
    bytes: u16,
}

impl FromStr for UdpSize {
    type Err = WrongWords<String>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut wrong = WrongWords::default();
        let (network, bytes) = match text.split_once('=') {
            Some((network, bytes)) => (Some(network.trim()), bytes.trim()),
            None => (None, text),
        };
        let network = network.and_then(|word| wrong.take(text, word, word.parse()));
        let range = MIN_UDP_MESSAGE as u16..=MAX_UDP_SIZE;
        let number = bytes.parse().ok().filter(|bytes| range.contains(bytes));
        let number = number.ok_or_else(|| {
            format!(
                "give a number of bytes from {} to {}, such as 1232, or 2001:db8::/32=1232 for a network",
                range.start(),
                range.end()
            )
        });
        let bytes = wrong.take(text, bytes, number);
        wrong.finish(bytes.map(|bytes| Self { network, bytes }))
    }
}

impl fmt::Display for UdpSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(network) = self.network {
            write!(f, "{network}=")?;
        }
        write!(f, "{}", self.bytes)
    }
}

/// Why sizes contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UdpSizeError {
    /// A network has two sizes, or there are two for all clients.
    #[error(
        "{}--edns-size gives two sizes for {of}, {first} and {second}: remove one of them",
        before_nth("edns_sizes", *index)
    )]
    Twice {
        /// The index of the second size among all values of the option, from 0.
        index: usize,
        /// The clients.
        of: String,
        /// The first size.
        first: u16,
        /// The second size.
        second: u16,
    },
    /// There are too many networks.
    #[error("--edns-size has {0} networks, but {MAX_NETWORKS} are the maximum: combine them")]
    TooMany(usize),
}

/// The largest UDP message for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSize {
    pub(crate) bytes: u16,
    /// The size for clients in none of the networks.
    pub(crate) of_others: u16,
}

/// The largest UDP message for each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSizes {
    /// The size for clients in none of the networks.
    others: u16,
    /// The networks and their sizes, those with the longest prefixes first.
    networks: Vec<(Prefix, u16)>,
}

impl Default for UdpSizes {
    fn default() -> Self {
        Self {
            others: MAX_UDP_MESSAGE as u16,
            networks: Vec::new(),
        }
    }
}

impl UdpSizes {
    /// Combines sizes.
    ///
    /// # Errors
    /// All errors: if two sizes are for the same clients, or if there are too many networks.
    pub fn new(sizes: &[UdpSize]) -> Result<Self, Vec<UdpSizeError>> {
        let mut wrong = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let is_same = |other: &&UdpSize| other.network == size.network;
            if let Some(first) = sizes[..at].iter().find(is_same) {
                let of = size.network.map(|network| network.to_string());
                wrong.push(UdpSizeError::Twice {
                    index: at,
                    of: of.unwrap_or_else(|| "all clients".to_owned()),
                    first: first.bytes,
                    second: size.bytes,
                });
            }
        }
        let of_all = sizes.iter().find(|size| size.network.is_none());
        let networks = sizes.iter();
        let networks = networks.filter_map(|size| Some((size.network?, size.bytes)));
        let mut networks: Vec<_> = networks.collect();
        if networks.len() > MAX_NETWORKS {
            wrong.push(UdpSizeError::TooMany(networks.len()));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.bits()));
        let others = of_all.map_or(Self::default().others, |size| size.bytes);
        Ok(Self { others, networks })
    }

    /// Limits all sizes to those of messages that fit one packet of an interface with this MTU.
    #[must_use]
    pub fn fitting(&self, mtu: usize) -> Self {
        let most = mtu.saturating_sub(HEADERS).max(MIN_UDP_MESSAGE);
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        let networks = self.networks.iter();
        Self {
            others: self.others.min(most),
            networks: networks
                .map(|(network, bytes)| (*network, (*bytes).min(most)))
                .collect(),
        }
    }

    /// Returns true if the size depends on the client.
    pub(crate) fn differ(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Returns the size for clients in none of the networks.
    pub(crate) fn others(&self) -> ClientSize {
        ClientSize {
            bytes: self.others,
            of_others: self.others,
        }
    }

    /// Returns the size for a client. The longest matching prefix determines it.
    pub(crate) fn of(&self, client: IpAddr) -> ClientSize {
        let mut networks = self.networks.iter();
        let found = networks.find(|(network, _)| network.contains(client));
        let others = self.others();
        let bytes = found.map_or(others.bytes, |(_, bytes)| *bytes);
        ClientSize { bytes, ..others }
    }

    /// Describes the sizes for the start block, unless they are the defaults.
    pub(crate) fn describe(&self) -> Option<String> {
        let networks = match self.networks.len() as u64 {
            0 => String::new(),
            n => format!(
                ", and other sizes for {}",
                control::report::counted(n, "network")
            ),
        };
        let others = control::report::count(self.others.into());
        (*self != Self::default()).then(|| format!("at most {others} B{networks}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(texts: &[&str]) -> Result<UdpSizes, Vec<UdpSizeError>> {
        let sizes: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        UdpSizes::new(&sizes)
    }

    #[test]
    fn a_size_is_shown_as_it_is_written() {
        for text in [
            "512",
            "4096",
            "192.0.2.0/24=1400",
            "2001:db8::/32=512",
            "::/0=1232",
        ] {
            assert_eq!(text.parse::<UdpSize>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "511",
            "4097",
            "192.0.2.0/24",
            "192.0.2.0/33=512",
            "x=512",
            "::1=",
            "=512",
        ] {
            assert!(text.parse::<UdpSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_wrong_word_of_a_size_is_named() {
        for (text, expected) in [("x=9999", &[0, 2][..]), ("x=512", &[0]), ("::/0= 9", &[6])] {
            let wrong = text.parse::<UdpSize>().unwrap_err();
            let places: Vec<_> = wrong.iter().map(|(at, _)| at).collect();
            assert_eq!(places, expected, "{text}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let sizes = sizes(&[
            "192.0.0.0/8=600",
            "192.0.2.9=800",
            "1000",
            "192.0.2.0/24=700",
            "::/0=900",
        ]);
        let sizes = sizes.unwrap();
        for (client, bytes) in [
            ("192.0.2.9", 800),
            ("192.0.2.8", 700),
            ("192.0.3.9", 600),
            ("193.0.2.9", 1000),
            ("2001:db8::1", 900),
        ] {
            let size = sizes.of(client.parse().unwrap());
            let expected = ClientSize {
                bytes,
                of_others: 1000,
            };
            assert_eq!(size, expected, "{client}");
        }
        assert!(sizes.differ());
        assert_eq!(sizes.others().bytes, 1000);
        let described = sizes.describe();
        assert_eq!(
            described.as_deref(),
            Some("at most 1,000 B, and other sizes for 4 networks")
        );
    }

    #[test]
    fn the_default_is_1232_bytes_for_everybody() {
        let default = sizes(&[]).unwrap();
        assert_eq!(default, UdpSizes::default());
        assert_eq!((default.differ(), default.others().bytes), (false, 1232));
        assert_eq!(default.describe(), None);
        let one = sizes(&["1400"]).unwrap();
        assert_eq!(one.describe().as_deref(), Some("at most 1,400 B"));
    }

    #[test]
    fn two_sizes_for_the_same_clients_are_an_error() {
        let error = |texts: &[&str]| sizes(texts).unwrap_err()[0].to_string();
        assert_eq!(
            error(&["1232", "192.0.2.0/24=512", "1400"]),
            "--edns-size gives two sizes for all clients, 1232 and 1400: remove one of them"
        );
        assert_eq!(
            error(&["192.0.2.0/24=512", "192.0.2.0/24=600"]),
            "--edns-size gives two sizes for 192.0.2.0/24, 512 and 600: remove one of them"
        );
        assert!(sizes(&["0.0.0.0/0=512", "::/0=600"]).is_ok());
        let two = sizes(&["600", "700", "::/0=600", "::/0=700"]);
        assert_eq!(two.unwrap_err().len(), 2);
        let many: Vec<UdpSize> = (0..=256)
            .map(|n| {
                format!("192.0.{}.{}=512", n / 256, n % 256)
                    .parse()
                    .unwrap()
            })
            .collect();
        assert!(UdpSizes::new(&many[1..]).is_ok());
        assert_eq!(UdpSizes::new(&many), Err(vec![UdpSizeError::TooMany(257)]));
    }

    #[test]
    fn a_size_is_at_most_that_of_a_packet() {
        let all = sizes(&["4096", "192.0.2.0/24=1400", "198.51.100.0/24=600"]).unwrap();
        let of = |mtu: usize, client: &str| all.fitting(mtu).of(client.parse().unwrap()).bytes;
        for (mtu, expected) in [
            (9000, [4096, 1400, 600]),
            (1500, [1452, 1400, 600]),
            (1280, [1232, 1232, 600]),
            (100, [512, 512, 512]),
        ] {
            let clients = ["::1", "192.0.2.1", "198.51.100.1"];
            assert_eq!(clients.map(|client| of(mtu, client)), expected, "{mtu}");
        }
    }
}
