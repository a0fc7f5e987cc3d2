//! The names of sites, and the choice of a site by the host that a request names.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::str::FromStr;

use arrayvec::ArrayVec;

use crate::host::is_host;

/// Maximum length of a host name (RFC 1035, section 2.3.4).
const MAX_LEN: usize = 255;
/// Maximum length of a name between dots (RFC 1035, section 2.3.4).
const MAX_LABEL_LEN: usize = 63;

/// A host for which a site is served: `example.org`, or `*.example.org` for all names below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostName {
    /// The name in lower case. The name of all names below another begins with a dot.
    name: Box<[u8]>,
}

/// Why a host name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host; write it as in example.org, *.example.org or [2001:db8::1], without a port. \
     Between the dots are 1 to 63 letters, digits, hyphens or underscores, with no hyphen at either end. \
     Write other letters as browsers send them, beginning with xn--"
)]
pub struct NotAHost(String);

impl FromStr for HostName {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let (rest, name) = match name.strip_prefix("*.") {
            Some(rest) => (rest, &name[1..]),
            None => (name, name),
        };
        let is_valid = name.len() <= MAX_LEN
            && is_host(rest.as_bytes())
            && without_port(rest.as_bytes()).len() == rest.len()
            && is_reachable(rest.as_bytes());
        if is_valid {
            let mut lower = ArrayVec::new();
            // Cannot fail: the name is short enough.
            let _ = write_lower(name.as_bytes(), &mut lower);
            let name = lower.as_slice().into();
            Ok(Self { name })
        } else {
            Err(NotAHost(text.to_owned()))
        }
    }
}

impl HostName {
    /// Returns a host that this name stands for.
    pub(crate) fn example(&self) -> String {
        let name = String::from_utf8_lossy(&self.name);
        let start = if name.starts_with('.') { "www" } else { "" };
        format!("{start}{name}")
    }
}

impl Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.name.starts_with(b".") { "*" } else { "" };
        write!(f, "{star}{}", String::from_utf8_lossy(&self.name))
    }
}

/// Leads from hosts to sites, each of which has a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    names: HashMap<Box<[u8]>, usize>,
    /// The site for all other hosts, if there is one.
    default: Option<usize>,
}

impl Hosts {
    /// Lets a host lead to a site. Returns the site that the host leads to already, if there is one.
    pub(crate) fn add(&mut self, host: &HostName, site: usize) -> Option<usize> {
        let known = self.names.get(&host.name).copied();
        if known.is_none() {
            self.names.insert(host.name.clone(), site);
        }
        known
    }

    /// Lets all other hosts lead to a site, unless they lead to another one already.
    pub(crate) fn set_default(&mut self, site: usize) {
        self.default.get_or_insert(site);
    }

    /// Finds the site for the host of a request, which may have a port. A host leads to the site with
    /// its name, or else to the site with the longest name that it is below. A name with nothing before a dot is
    /// below none.
    pub(crate) fn find(&self, host: &[u8]) -> Option<usize> {
        let name = without_port(host);
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut lower = ArrayVec::new();
        let fits = write_lower(name, &mut lower).is_some();
        if !fits || lower.split(|b| *b == b'.').any(<[u8]>::is_empty) {
            return self.default;
        }
        let whole = self.names.get(&*lower);
        let mut dots = memchr::memchr_iter(b'.', &lower);
        let found = whole.or_else(|| dots.find_map(|at| self.names.get(&lower[at..])));
        found.copied().or(self.default)
    }
}

/// Writes a name in lower case, or an IPv6 address in its usual form (RFC 5952), because an address can be
/// written in several ways. Returns `None` if it is too long.
fn write_lower(name: &[u8], lower: &mut ArrayVec<u8, MAX_LEN>) -> Option<()> {
    if let [b'[', address @ .., b']'] = name
        && let Ok(address) = std::str::from_utf8(address)
        && let Ok(address) = address.parse::<Ipv6Addr>()
    {
        return write!(lower, "[{address}]").ok();
    }
    lower.try_extend_from_slice(name).ok()?;
    lower.make_ascii_lowercase();
    Some(())
}

/// Returns true if clients can reach a valid host without a port. It is an address in brackets, or a name that
/// DNS can have (RFC 1123, section 2.1). Underscores are in use, too.
pub(crate) fn is_reachable(host: &[u8]) -> bool {
    match host {
        // There are no addresses of future versions.
        [b'[', b'v' | b'V', ..] => false,
        [b'[', ..] => true,
        name => name.split(|b| *b == b'.').all(is_label),
    }
}

/// Returns true if a name may stand between two dots of a host.
fn is_label(label: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"-_".contains(b);
    (1..=MAX_LABEL_LEN).contains(&label.len())
        && label.iter().all(is_part)
        && !label.starts_with(b"-")
        && !label.ends_with(b"-")
}

/// Removes the port from a valid host.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let from = match host {
        [b'[', ..] => memchr::memchr(b']', host).unwrap_or(0),
        _ => 0,
    };
    let colon = memchr::memchr(b':', &host[from..]);
    colon.map_or(host, |at| &host[..from + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_a_name_an_address_or_all_names_below_a_name() {
        for text in [
            "example.org",
            "*.example.org",
            "192.0.2.1",
            "[2001:db8::1]",
            "a",
            "xn--dne-hoa.test",
            "_a.b-c.test",
        ] {
            assert_eq!(host(text).to_string(), text);
        }
        assert_eq!(host("*.Example.ORG."), host("*.example.org"));
        assert_eq!(host("[2001:DB8:0::1]"), host("[2001:db8::1]"));
        for wrong in [
            "",
            ".",
            "*",
            "*.",
            "a.*.b",
            "*a.b",
            "a:80",
            "[::1]:80",
            "a/b",
            "a b",
            "::1",
            "d\u{fc}ne.test",
            "*..a",
            ".a",
            "-a",
            "a-.test",
            "a..b",
            "a..",
            "*.-a",
            "a!b",
            "a%41",
            "[v1.a]",
        ] {
            assert!(wrong.parse::<HostName>().is_err(), "{wrong}");
        }
        let (label, dots) = ("a".repeat(MAX_LABEL_LEN), "a.".repeat(MAX_LEN / 2));
        for (longest, longer) in [
            (label.clone(), label + "a"),
            (dots.clone() + "a", dots + "aa"),
        ] {
            assert!(longest.parse::<HostName>().is_ok(), "{longest}");
            assert!(longer.parse::<HostName>().is_err(), "{longer}");
        }
    }

    #[test]
    fn the_longest_name_leads_to_the_site() {
        let mut hosts = Hosts::default();
        for (site, name) in ["a.test", "*.a.test", "*.b.a.test", "www.b.a.test", "[::1]"]
            .into_iter()
            .enumerate()
        {
            assert_eq!(hosts.add(&host(name), site), None);
        }
        assert_eq!(hosts.add(&host("A.test"), 9), Some(0));
        for (name, site) in [
            ("a.test", Some(0)),
            ("A.TEST.:8080", Some(0)),
            ("x.a.test", Some(1)),
            ("x.y.a.test", Some(1)),
            ("b.a.test", Some(1)),
            ("x.b.a.test", Some(2)),
            ("www.b.a.test", Some(3)),
            ("[::1]:80", Some(4)),
            ("[0:0::0:1]", Some(4)),
            ("[0000:0:0:0:0:0:0.0.0.1]:8080", Some(4)),
            ("[::2]", None),
            ("xa.test", None),
            ("test", None),
            ("", None),
            (".", None),
            (".a.test", None),
            (".b.a.test:80", None),
            ("x..a.test", None),
            ("a.test..", None),
        ] {
            assert_eq!(hosts.find(name.as_bytes()), site, "{name}");
        }
        assert_eq!(hosts.find(&[b'a'; 300]), None);
        hosts.set_default(7);
        assert_eq!(hosts.find(b"test"), Some(7));
        assert_eq!(hosts.find(&[b'a'; 300]), Some(7));
    }
}
