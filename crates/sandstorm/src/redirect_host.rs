//! Hosts whose requests are sent to another host.

use std::str::FromStr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use control::WrongWords;

use crate::fields::Fields;
use crate::head::field_buffer;
use crate::host::is_host;
use crate::hosts::{HostName, NotAHost, is_reachable, without_port};
use crate::rules::{Redirect, RuleError};
use crate::session::{HeadSearch, Session, as_http_1_1};
use crate::settings::Settings;
use crate::site::{Builder, Site};

/// Stands in the location for the host of the request.
const OWN_HOST: u8 = b'*';

/// A host, and the site to which its requests are redirected with their path and query.
#[derive(Clone, Debug)]
pub(crate) struct RedirectHost {
    host: HostName,
    /// The start of the site's URL. `https://*` leads to HTTPS on the host of the request.
    to: String,
    rule: Redirect,
}

/// Why text does not name such a host.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotARedirectHost {
    #[error("there is no equals sign; write it as in www.example.org=https://example.org")]
    NoTarget,
    #[error(transparent)]
    Host(#[from] NotAHost),
    #[error(
        "{0:?} is not the start of a site's URL; write it as in https://example.org, without a path, or \
         https://* for the same host"
    )]
    Target(String),
    #[error(transparent)]
    Rule(#[from] WrongWords<RuleError>),
}

impl FromStr for RedirectHost {
    type Err = WrongWords<NotARedirectHost>;

    /// Parses `HOST=URL`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((host, to)) = text.split_once('=') else {
            return Err(WrongWords::whole(NotARedirectHost::NoTarget));
        };
        let mut wrong = WrongWords::default();
        let found = host.parse::<HostName>().map_err(NotARedirectHost::from);
        let host = wrong.take(text, host, found);
        let to = to.strip_suffix('/').unwrap_or(to);
        let authority = ["http://", "https://"]
            .into_iter()
            .find_map(|scheme| to.strip_prefix(scheme));
        let is_valid = |one: &str| {
            // The same host without HTTPS would lead to itself.
            let is_https = to.starts_with("https://");
            let host = without_port(one.as_bytes());
            let is_own = host == [OWN_HOST] && is_https;
            let host = host.strip_suffix(b".").unwrap_or(host);
            is_host(one.as_bytes()) && (is_own || is_reachable(host))
        };
        let rule = if authority.is_some_and(is_valid) {
            let rule = format!("/* {to}/:splat 301").parse::<Redirect>();
            rule.map_err(NotARedirectHost::from)
        } else {
            Err(NotARedirectHost::Target(to.to_owned()))
        };
        let rule = wrong.take(text, to, rule);
        let to = to.to_owned();
        wrong.finish(host.zip(rule).map(|(host, rule)| Self { host, to, rule }))
    }
}

impl RedirectHost {
    pub(crate) fn host(&self) -> &HostName {
        &self.host
    }

    /// The host and the place to which its requests are sent. The rule follows from these.
    pub(crate) fn host_and_place(&self) -> (&HostName, &str) {
        (&self.host, &self.to)
    }

    /// Makes the site for this host. All its responses have these fields.
    pub(crate) fn site(&self, fields: &Fields) -> Arc<Site> {
        let settings = Settings {
            fields: fields.clone(),
            redirects: vec![self.rule.clone()],
            redirects_to_own_host: self.to.contains(char::from(OWN_HOST)),
            ..Settings::default()
        };
        Arc::new(Builder::with_settings(UNIX_EPOCH, &settings).build())
    }

    /// Writes the host of the request at the start of `data` into its location, without the port. `from` is
    /// where the location begins in `out`.
    pub(crate) fn write_own_host(data: &[u8], from: usize, out: &mut Vec<u8>) {
        let mut fields = field_buffer();
        let host = match Session::default().find(data, &mut fields) {
            HeadSearch::Head { head, .. } => head.host(),
            HeadSearch::LaterMinor { skipped, digit_at } => {
                return Self::write_own_host(&as_http_1_1(&data[skipped..], digit_at), from, out);
            }
            // Cannot happen: the request was read before.
            HeadSearch::More { .. } | HeadSearch::Refused(_) => return,
        };
        let host = without_port(host);
        let host = host.strip_suffix(b".").unwrap_or(host);
        if let Some(at) = memchr::memchr(OWN_HOST, &out[from..]) {
            let at = from + at;
            drop(out.splice(at..=at, host.iter().copied()));
        }
    }

    /// The value of the option.
    pub(crate) fn value(&self) -> String {
        format!("{}={}", self.host, self.to)
    }

    /// Describes the redirect for the operator.
    pub(crate) fn describe(&self) -> String {
        format!("{} to {}", self.host, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::{SlotWriter, Stamp};
    use crate::session::Step;

    /// The status and the location of the response to a GET.
    fn location(site: &crate::Site, target: &str) -> (u16, String) {
        // More bytes may follow a request.
        let request = format!("GET {target} HTTP/1.1\r\nHost: www.a.test\r\n\r\n?more bytes");
        located(site, &request)
    }

    /// The status and the location of the response to a request.
    fn located(site: &crate::Site, request: &str) -> (u16, String) {
        let Step::Answer(answer) = Session::default().next(site, request.as_bytes()) else {
            panic!("no answer");
        };
        let (mut out, mut slots) = (Vec::new(), SlotWriter::new());
        let stamp = Stamp::new(0, answer.close);
        answer.write(site, request.as_bytes(), stamp, &mut slots, &mut out);
        let out = String::from_utf8(out).unwrap();
        let location = out.lines().find_map(|line| line.strip_prefix("Location: "));
        let status = out["HTTP/1.1 ".len()..][..3].parse().unwrap();
        (status, location.unwrap_or_default().to_owned())
    }

    #[test]
    fn path_and_query_stay_and_no_path_leads_to_another_host() {
        let one: RedirectHost = "www.a.test=https://a.test".parse().unwrap();
        let site = one.site(&Fields::new());
        for (target, to) in [
            ("/", "/"),
            ("/a%2Fb/c?d=%2F", "/a%2Fb/c?d=%2F"),
            ("/%2fevil.test", "/%2Fevil.test"),
            ("/%2F%2Fevil.test/%5C", "/%2F%2Fevil.test/%5C"),
            ("/@evil.test", "/%40evil.test"),
            ("/a/%2e%2e/b", "/a/../b"),
            ("/.evil.test", "/.evil.test"),
            ("http://www.a.test/?d=1", "/?d=1"),
            ("http://www.a.test?d=1", "/?d=1"),
            ("http://www.a.test", "/"),
        ] {
            let to = format!("https://a.test{to}");
            assert_eq!(location(&site, target), (301, to), "{target}");
        }
    }

    #[test]
    fn the_host_of_the_request_may_stay() {
        let one: RedirectHost = "*.a.test=https://*:8443".parse().unwrap();
        let site = one.site(&Fields::new());
        let to = |host: &str, target: &str| {
            let mut locations = ["", "\r\n"].into_iter().flat_map(|before| {
                [0, 1, 2].map(|minor| {
                    let line = format!("{before}GET {target} HTTP/1.{minor}\r\n");
                    located(&site, &format!("{line}X: *\r\nHost: {host}\r\n\r\n")).1
                })
            });
            let first = locations.next().unwrap();
            assert!(locations.all(|one| one == first));
            first
        };
        for (host, target, location) in [
            ("x.a.test", "/", "https://x.a.test:8443/"),
            ("X.a.test:8080", "/*?*", "https://X.a.test:8443/%2A?*"),
            ("x.a.test.", "/%2fb", "https://x.a.test:8443/%2Fb"),
            ("b", "http://x.a.test:80/c", "https://x.a.test:8443/c"),
            ("[::1]:80", "/", "https://[::1]:8443/"),
        ] {
            assert_eq!(to(host, target), location);
        }
    }

    #[test]
    fn a_host_and_the_start_of_a_url_are_needed() {
        let parse = |text: &str| text.parse::<RedirectHost>();
        for (text, described) in [
            ("www.a.test=https://a.test", "www.a.test to https://a.test"),
            ("*.b=http://a.test:8080/", "*.b to http://a.test:8080"),
            ("a=https://[::1]", "a to https://[::1]"),
            ("*.a=https://*", "*.a to https://*"),
            ("*.a=https://*:8443/", "*.a to https://*:8443"),
        ] {
            assert_eq!(parse(text).unwrap().describe(), described);
        }
        for wrong in [
            "",
            "www.a.test",
            "=https://a",
            "a:80=https://a",
            "a=a.test",
            "a=https://",
            "a=https://b/c",
            "a=https://b?c",
            "a=https://b c",
            "a=ftp://b",
            "a=https://b/:splat",
            "a=http://*",
            "a=http://*:8080",
            "a=https://*.b",
            "a=https://b*",
            "a=https://**",
            "a=https://[v1.*]",
            "a=https://-b",
            "a=https://b..c",
            "a=https://b!c:80",
            "-a=https://b",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{wrong}: {error}");
        }
        let both = parse("-a=b").unwrap_err();
        let places: Vec<_> = both.iter().map(|(at, _)| at).collect();
        assert_eq!(places, [0, 3]);
    }
}
