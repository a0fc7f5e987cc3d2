//! Parses device names and addresses from the command line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::interface_name::interface_name;
use super::{NetmapOptions, ParseDeviceError, XdpOptions};
use crate::WrongWords;

/// The device that carries the packets.
///
/// A device is written as `auto`,
/// `xdp:IFACE[,queues=N[,partial]][,vlan=ID[,ID]][,generic][,partial-checksums][,zerocopy=auto|required|off][,offload=auto|on|off][,qdisc=pfifo]`,
/// `tap:NAME`, or
/// `netmap:PORT[,queues=N[,partial]][,partial-checksums][,mtu=BYTES][,offload=auto|on|off]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A private link to this host: a veth pair with `AF_XDP`, or a tap device if that fails.
    #[default]
    Auto,
    /// An existing interface, served through `AF_XDP`.
    Xdp(XdpOptions),
    /// A tap device, created if it does not exist.
    Tap {
        /// The device's name.
        name: String,
    },
    /// A netmap port.
    Netmap(NetmapOptions),
}

impl FromStr for Device {
    type Err = WrongWords<ParseDeviceError>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let unknown = || Err(WrongWords::whole(ParseDeviceError::Kind(text.to_owned())));
        let Some((kind, rest)) = text.split_once(':') else {
            return match interface_name(text) {
                Ok(name) => Err(WrongWords::whole(ParseDeviceError::OnlyName(name))),
                Err(_) => unknown(),
            };
        };
        let parsed = match kind {
            "tap" => match interface_name(rest) {
                Ok(name) => Ok(Self::Tap { name }),
                Err(why) => Err(WrongWords::whole(why)),
            },
            "xdp" => XdpOptions::parse(rest).map(Self::Xdp),
            "netmap" => NetmapOptions::parse(rest).map(Self::Netmap),
            _ => return unknown(),
        };
        parsed.map_err(|wrong| wrong.behind(kind.len() + 1))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Tap { name } => write!(f, "tap:{name}"),
            Self::Netmap(options) => write!(f, "netmap:{options}"),
            Self::Xdp(options) => write!(f, "xdp:{options}"),
        }
    }
}

/// An address with a prefix length, such as `10.0.0.2/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressPrefix {
    /// The IP address.
    pub address: IpAddr,
    /// Length of the network prefix in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub prefix: u8,
}

/// Why a text could not be parsed as an address with a prefix length.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} {reason}; write the address of one host, like 192.0.2.10/24 or 2001:db8::10/64")]
pub struct ParseAddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for AddressPrefix {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).map_err(|reason| ParseAddressError {
            text: text.to_owned(),
            reason,
        })
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl AddressPrefix {
    /// Parses the text. An error is the end of a sentence that begins with the text, such as "is a
    /// multicast address".
    fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = || {
            let (address, prefix) = text.split_once('/')?;
            Some((address.parse().ok()?, prefix.parse::<u32>().ok()?))
        };
        let (address, prefix): (IpAddr, _) =
            parts().ok_or("is not an address with a prefix length")?;
        let (most, too_long) = match address {
            IpAddr::V4(_) => (32, "has a prefix length over 32"),
            IpAddr::V6(_) => (128, "has a prefix length over 128"),
        };
        let prefix = u8::try_from(prefix).map_err(|_| too_long)?;
        if prefix > most {
            return Err(too_long);
        }
        if address.is_multicast() {
            return Err("is a multicast address");
        }
        if address.is_unspecified() {
            return Err("is the unspecified address");
        }
        // Packets with a loopback address must not appear on the wire (RFC 1122, section 3.2.1.3).
        if address.is_loopback() {
            return Err("is a loopback address, which no packet on the wire has");
        }
        if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err("is the limited broadcast address");
        }
        // An IPv4-mapped IPv6 address must not appear on the wire.
        if address.to_canonical() != address {
            return Err("is an IPv4-mapped IPv6 address");
        }
        let parsed = Self { address, prefix };
        parsed.check_host()?;
        Ok(parsed)
    }

    /// Refuses an IPv4 network address or broadcast address. A network of one or two addresses has
    /// neither (RFC 3021).
    fn check_host(&self) -> Result<(), &'static str> {
        let IpAddr::V4(address) = self.address else {
            return Ok(());
        };
        if self.prefix > 30 {
            return Ok(());
        }
        let hosts = u32::MAX >> self.prefix;
        match address.to_bits() & hosts {
            0 => Err("is the address of a whole network"),
            host if host == hosts => Err("is the broadcast address of its network"),
            _ => Ok(()),
        }
    }

    /// Returns true if `other` is in the same network as this address.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                (a.to_bits() ^ b.to_bits()) & mask == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                (a.to_bits() ^ b.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::limits::MAX_VLANS;
    use crate::device::{Offload, Queues, ZeroCopy};

    /// Returns the first error.
    fn first(wrong: &WrongWords<ParseDeviceError>) -> ParseDeviceError {
        wrong.iter().next().unwrap().1.clone()
    }

    fn xdp(interface: &str) -> Device {
        Device::Xdp(XdpOptions::new(interface))
    }

    #[test]
    fn each_form_is_parsed() {
        assert_eq!("auto".parse(), Ok(Device::Auto));
        assert_eq!(
            "tap:tap0".parse(),
            Ok(Device::Tap {
                name: "tap0".into()
            })
        );
        assert_eq!("xdp:eth0".parse(), Ok(xdp("eth0")));
        assert_eq!(
            "xdp:eth0,partial-checksums,qdisc=pfifo,queues=4,generic,offload=on,zerocopy=off"
                .parse(),
            Ok(Device::Xdp(XdpOptions {
                queues: Queues::Exactly(4),
                generic: true,
                partial_checksums: true,
                zero_copy: ZeroCopy::Off,
                offload: Offload::On,
                pfifo: true,
                ..XdpOptions::new("eth0")
            }))
        );
        assert_eq!("xdp:eth0,offload=auto".parse(), Ok(xdp("eth0")));
        assert_eq!("xdp:eth0,zerocopy=auto".parse(), Ok(xdp("eth0")));
        for text in ["xdp:eth0,queues=2,partial", "xdp:eth0,partial,queues=2"] {
            let Ok(Device::Xdp(options)) = text.parse() else {
                panic!("{text}");
            };
            assert_eq!(options.queues, Queues::Partial(2));
        }
    }

    #[test]
    fn numbers_after_the_vlan_option_are_vlan_ids() {
        let vlans = |text: &str| match text.parse() {
            Ok(Device::Xdp(options)) => Ok(options.vlans),
            Ok(other) => panic!("{other}"),
            Err(error) => Err(first(&error)),
        };
        assert_eq!(vlans("xdp:eth0,vlan=10"), Ok(vec![10]));
        assert_eq!(
            vlans("xdp:eth0,vlan=20,10,0,4094"),
            Ok(vec![20, 10, 0, 4094])
        );
        assert_eq!(
            vlans("xdp:eth0,vlan=10,20,queues=2,generic"),
            Ok(vec![10, 20])
        );
        let error = |text: &str| vlans(text).unwrap_err();
        for id in ["4095", "65546", "-1", "+1", "x", ""] {
            let text = format!("xdp:eth0,vlan={id}");
            assert_eq!(error(&text), ParseDeviceError::Vlan(id.into()));
        }
        let text = "xdp:eth0,vlan=10,4095";
        assert_eq!(error(text), ParseDeviceError::Vlan("4095".into()));
        for text in ["xdp:eth0,vlan=10,generic,20", "xdp:eth0,queues=2,20"] {
            assert_eq!(error(text), ParseDeviceError::Option("20".into()));
        }
        for text in ["xdp:eth0,vlan=10,10", "xdp:eth0,vlan=10,010"] {
            assert_eq!(error(text), ParseDeviceError::Duplicate("VLAN 10".into()));
        }
        let twice = "xdp:eth0,vlan=10,vlan=20";
        assert_eq!(error(twice), ParseDeviceError::Duplicate("vlan".into()));
        let many = |count| {
            let ids: Vec<_> = (1..=count).map(|id: usize| id.to_string()).collect();
            format!("xdp:eth0,vlan={}", ids.join(","))
        };
        assert_eq!(vlans(&many(MAX_VLANS)).unwrap().len(), MAX_VLANS);
        assert_eq!(error(&many(MAX_VLANS + 1)), ParseDeviceError::Vlans);
    }

    #[test]
    fn errors_quote_the_invalid_word() {
        use ParseDeviceError::{Duplicate, Kind, Name, OnlyName, Option, Partial, Queues};
        let error = |text: &str| first(&text.parse::<Device>().unwrap_err());
        assert_eq!(error("eth0"), OnlyName("eth0".into()));
        assert_eq!(error("veth:eth0"), Kind("veth:eth0".into()));
        assert_eq!(error(""), Kind(String::new()));
        assert_eq!(error("xdp:"), Name(String::new()));
        assert_eq!(error("tap:a name"), Name("a name".into()));
        assert_eq!(
            error("xdp:sixteen-letters-"),
            Name("sixteen-letters-".into())
        );
        assert_eq!(error("xdp:eth0,native"), Option("native".into()));
        assert_eq!(error("xdp:eth0,queues"), Option("queues".into()));
        assert_eq!(error("xdp:eth0,offload=yes"), Option("offload=yes".into()));
        assert_eq!(
            error("xdp:eth0,generic,generic"),
            Duplicate("generic".into())
        );
        let offload = "xdp:eth0,offload=on,queues=1,offload=off";
        assert_eq!(error(offload), Duplicate("offload".into()));
        assert_eq!(error("xdp:eth0,partial"), Partial);
        assert_eq!(error("xdp:eth0,partial=2"), Option("partial=2".into()));
        assert_eq!(error("xdp:eth0,queues=0"), Queues("0".into()));
        assert_eq!(error("xdp:eth0,queues=257"), Queues("257".into()));
        let wrong = "xdp:eth0,zerocopy=on";
        assert_eq!(error(wrong), Option("zerocopy=on".into()));
        for text in ["generic,zerocopy=required", "zerocopy=required,generic"] {
            let text = format!("xdp:eth0,{text}");
            assert_eq!(error(&text), ParseDeviceError::GenericZeroCopy);
        }
        let message = error("eth0").to_string();
        assert!(message.contains("write xdp:eth0 to serve"), "{message}");
        let message = error("veth:eth0").to_string();
        let netmap = "netmap:IFACE[,queues=N[,partial]][,partial-checksums]";
        assert!(message.contains(netmap), "{message}");
        let message = error("xdp:eth0,native").to_string();
        assert!(
            message.contains("\"native\"") && message.contains("generic"),
            "{message}"
        );
    }

    #[test]
    fn all_wrong_words_of_a_device_are_named() {
        let wrong = |text: &str| {
            let wrong = text.parse::<Device>().unwrap_err();
            let wrong = wrong.iter().map(|(at, why)| {
                let why = format!("{why:?}");
                format!("{at} {}", why.split('"').next().unwrap_or_default())
            });
            wrong.collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("xdp:eth0,native,queues=0", &["9 Option(", "16 Queues("][..]),
            ("xdp:a name,queue=1", &["4 Name(", "11 Option("]),
            ("tap:a/b", &["4 Name("]),
            // Nothing is concluded from a wrong number of queues.
            ("xdp:eth0,partial,queues=x", &["17 Queues("]),
            (
                "xdp:eth0,generic,zerocopy=required,partial,x",
                &["17 GenericZeroCopy", "35 Partial", "43 Option("],
            ),
            (
                "xdp:eth0,vlan=x,7,5000,vlan=3",
                &["9 Vlan(", "18 Vlan(", "23 Duplicate("],
            ),
            (
                "netmap:vale0:a,mtu=1,queues=2,offload=x",
                &["15 Mtu(", "21 NetmapOption(", "30 NetmapOption("],
            ),
            // The options of each kind of port are right if the name does not say which one it is.
            (
                "netmap:x:y,mtu=9000,queues=2,generic",
                &["7 NetmapName(", "29 NetmapOption("],
            ),
        ] {
            assert_eq!(wrong(text), expected, "{text}");
        }
    }

    #[test]
    fn addresses_are_parsed_with_their_prefix() {
        let parse = |text: &str| text.parse::<AddressPrefix>();
        assert_eq!(parse("10.0.0.2/24").unwrap().to_string(), "10.0.0.2/24");
        assert_eq!(parse("2001:db8::2/64").unwrap().prefix, 64);
        for two in [
            "10.0.0.0/31",
            "10.0.0.255/31",
            "10.0.0.0/32",
            "2001:db8::/64",
        ] {
            assert_eq!(parse(two).unwrap().to_string(), two);
        }
        for (wrong, reason) in [
            ("10.0.0.2", "is not an address with a prefix length"),
            ("10.0.0.2/", "is not an address with a prefix length"),
            ("/24", "is not an address with a prefix length"),
            ("10.0.0/8", "is not an address with a prefix length"),
            ("10.0.0.2/33", "has a prefix length over 32"),
            ("10.0.0.2/256", "has a prefix length over 32"),
            ("::1/129", "has a prefix length over 128"),
            ("224.0.0.1/4", "is a multicast address"),
            ("::/0", "is the unspecified address"),
            (
                "127.0.0.9/8",
                "is a loopback address, which no packet on the wire has",
            ),
            (
                "::1/128",
                "is a loopback address, which no packet on the wire has",
            ),
            ("255.255.255.255/32", "is the limited broadcast address"),
            ("10.0.0.0/24", "is the address of a whole network"),
            ("10.0.0.255/24", "is the broadcast address of its network"),
            ("255.255.255.255/0", "is the limited broadcast address"),
            ("10.0.0.7/30", "is the broadcast address of its network"),
            ("::ffff:192.0.2.10/96", "is an IPv4-mapped IPv6 address"),
        ] {
            let message = parse(wrong).unwrap_err().to_string();
            let start = format!("{wrong:?} {reason}; write the address of one host");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn contains_compares_the_network_prefix() {
        let net: AddressPrefix = "10.0.0.2/30".parse().unwrap();
        assert!(net.contains("10.0.0.1".parse().unwrap()));
        assert!(!net.contains("10.0.0.4".parse().unwrap()));
        assert!(!net.contains("::1".parse().unwrap()));
        let all: AddressPrefix = "10.0.0.2/0".parse().unwrap();
        assert!(all.contains("192.0.2.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn arbitrary_device_names_do_not_panic(text in ".*") {
            let _ = text.parse::<Device>();
            let _ = text.parse::<AddressPrefix>();
        }

        #[test]
        fn almost_valid_device_names_do_not_panic(
            text in "(auto|xdp|tap|netmap)?:?[a-z0-9/.:{}]{0,18}(,(queues=|vlan=|partial|generic|partial-checksums|zerocopy=|offload=|qdisc=|=)[a-z0-9]{0,12}){0,4}",
        ) {
            let _ = text.parse::<Device>();
        }

        #[test]
        fn displayed_devices_parse_back(
            interface in "[a-z][a-z0-9.-]{0,14}",
            queues in prop_oneof![
                Just(Queues::All),
                (1u32..=256).prop_map(Queues::Exactly),
                (1u32..=256).prop_map(Queues::Partial),
            ],
            vlans in proptest::collection::hash_set(0u16..=4094, 0..5),
            generic: bool,
            partial_checksums: bool,
            zero_copy in prop::sample::select(vec![ZeroCopy::Auto, ZeroCopy::Required, ZeroCopy::Off]),
            offload in prop::sample::select(vec![Offload::Auto, Offload::On, Offload::Off]),
            pfifo: bool,
        ) {
            let vlans = vlans.into_iter().collect();
            let generic = generic && zero_copy != ZeroCopy::Required;
            let device = Device::Xdp(XdpOptions {
                interface, queues, vlans, generic, partial_checksums, zero_copy, offload, pfifo,
            });
            prop_assert_eq!(device.to_string().parse(), Ok(device));
        }
    }
}
