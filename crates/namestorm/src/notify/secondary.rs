//! The secondary servers that are told of changes.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use control::config::before_nth;
use control::{CONFINES_EACH_THREAD, WrongWords};

use crate::name::Name;
use crate::tsig::split_key;

/// Maximum number of secondary servers.
const MAX_SECONDARIES: usize = 64;
/// The port without `:PORT`.
const PORT: u16 = 53;

/// A secondary server: its address and port, and perhaps the key with which messages are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secondary {
    address: SocketAddr,
    key: Option<Name>,
}

impl Secondary {
    /// Returns the address and the port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name of the key, if there is one.
    pub(crate) fn key(&self) -> Option<&Name> {
        self.key.as_ref()
    }
}

impl FromStr for Secondary {
    type Err = WrongWords<String>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut wrong = WrongWords::default();
        let (address, key) = split_key(text, "address", &mut wrong);
        let address = wrong.take(text, address, parse_address(address));
        wrong.finish(address.map(|address| Self { address, key }))
    }
}

/// Reads the address and perhaps the port of a secondary server.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    const FORM: &str = "give an address, such as 192.0.2.53 or 2001:db8::53, or one with a port, such as \
         192.0.2.53:5353 or [2001:db8::53]:5353";
    let whole = |_| text.parse().map(|ip| SocketAddr::new(ip, PORT));
    let address: SocketAddr = text.parse().or_else(whole).map_err(|_| FORM)?;
    let (ip, port) = (address.ip(), address.port());
    if port == 0 {
        return Err(format!("no server has port 0: give {ip} for port {PORT}"));
    }
    let v4 = ip.to_canonical();
    if v4 != ip {
        let v4 = SocketAddr::new(v4, port);
        return Err(format!("no server has this form of an address: give {v4}"));
    }
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_link_local || ip.is_unspecified() || ip.is_multicast() {
        return Err(format!(
            "{ip} does not say which server is meant: give the server's own address, which must not be \
             link-local"
        ));
    }
    Ok(address)
}

/// The secondary servers of all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secondaries(Vec<Secondary>);

impl Secondaries {
    /// # Errors
    /// Returns a message for the operator if there are more than 64 servers, or lines about those that are
    /// given twice. Also on systems whose sandbox forbids sending.
    pub(crate) fn new(secondaries: &[Secondary]) -> Result<Self, String> {
        let all: Vec<_> = secondaries.iter().map(Secondary::address).collect();
        if all.len() > MAX_SECONDARIES {
            return Err(format!(
                "--notify has {} servers, but {MAX_SECONDARIES} are the maximum: let some of them notify others",
                all.len()
            ));
        }
        let is_twice = |(at, one): &(usize, &SocketAddr)| all[..*at].contains(one);
        let twice = all.iter().enumerate().filter(is_twice);
        let twice = twice.map(|(at, twice)| {
            let place = before_nth("notify", at);
            format!("{place}--notify has {twice} twice: leave one out")
        });
        let twice: Vec<_> = twice.collect();
        if !twice.is_empty() {
            return Err(twice.join("\n"));
        }
        if !(all.is_empty() || CONFINES_EACH_THREAD) {
            return Err("--notify works on Linux only: leave it out".to_owned());
        }
        Ok(Self(secondaries.to_vec()))
    }

    /// Returns the servers.
    pub(crate) fn all(&self) -> &[Secondary] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secondary(text: &str) -> Result<String, String> {
        let parsed = text.parse::<Secondary>();
        let shown = parsed.map(|one| one.address.to_string());
        shown.map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn the_port_is_53_unless_it_is_given() {
        for (text, shown) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
            ("127.0.0.1", "127.0.0.1:53"),
        ] {
            assert_eq!(secondary(text).unwrap(), shown);
        }
    }

    #[test]
    fn an_address_that_no_server_has_is_refused_with_a_remedy() {
        for (text, remedy) in [
            ("ns2.example.org", "give an address, such as 192.0.2.53 "),
            ("192.0.2.53:70000", "give an address"),
            ("[2001:db8::53]", "such as 192.0.2.53:5353 or [2001:db8"),
            ("192.0.2.53:0", "give 192.0.2.53 for port 53"),
            ("::ffff:192.0.2.53", "give 192.0.2.53:53"),
            ("[::ffff:192.0.2.53]:54", "give 192.0.2.53:54"),
            ("0.0.0.0", "0.0.0.0 does not say which server is meant"),
            ("ff02::1", "give the server's own address"),
            ("255.255.255.255", "give the server's own address"),
            ("fe80::1", "must not be link-local"),
        ] {
            let refusal = secondary(text).unwrap_err();
            assert!(refusal.contains(remedy), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_key_may_follow_the_address() {
        let of = |text: &str| {
            let one = text.parse::<Secondary>();
            let one = one.map(|one| (one.address.to_string(), one.key.map(|key| key.to_string())));
            one.map_err(|wrong| wrong.to_string())
        };
        let expected = ("192.0.2.53:54".to_owned(), Some("Key.".to_owned()));
        assert_eq!(of("192.0.2.53:54 \t Key "), Ok(expected));
        assert_eq!(of("192.0.2.53 ").unwrap().1, None);
        for (text, error) in [
            ("", "give an address"),
            ("key 192.0.2.53", "give an address"),
            ("192.0.2.53 a..b", "'a..b' is not a domain name"),
            ("192.0.2.53 k1 k2", "give at most one key"),
        ] {
            let found = of(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn there_are_at_most_64_different_servers() {
        let of = |number: u8, key: &str| format!("192.0.2.{number} {key}").parse().unwrap();
        let all: Vec<_> = (0..65).map(|number| of(number, "")).collect();
        assert_eq!(Secondaries::new(&all[1..]).unwrap().all().len(), 64);
        let error = Secondaries::new(&all).unwrap_err();
        assert!(error.starts_with("--notify has 65 servers"), "{error}");
        let error = Secondaries::new(&[of(1, "a"), of(2, "a"), of(1, "b")]).unwrap_err();
        assert_eq!(error, "--notify has 192.0.2.1:53 twice: leave one out");
        let both = [1, 2, 2, 1].map(|number| of(number, ""));
        assert_eq!(Secondaries::new(&both).unwrap_err().lines().count(), 2);
    }
}
