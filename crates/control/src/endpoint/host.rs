//! The names under which a metrics address on loopback answers.
//!
//! The owner of a web page can point the page's name at 127.0.0.1 (DNS rebinding). A browser then takes
//! the server and the page for one site, so the page can read all answers. Only the field `Host` shows
//! that. Browsers send no `Sec-Fetch-Site` to a site over plain HTTP, and no `Origin` with a GET to the
//! page's own site.
//!
//! Therefore only names that no stranger can own are allowed: addresses, `localhost`, names without a
//! dot, and the name of this machine. An address that is not on loopback answers under every name,
//! because the operator has opened it to others.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// Maximum length of a name in a message, in characters.
const SHOWN: usize = 253;

/// The names that the metrics address accepts.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The name of this machine.
    own: String,
    /// Whether the log has told of a refusal.
    has_told: AtomicBool,
}

impl Hosts {
    /// Allows the name of this machine.
    pub(super) fn new() -> Self {
        let own = rustix::system::uname();
        Self {
            own: own.nodename().to_string_lossy().into_owned(),
            has_told: AtomicBool::new(false),
        }
    }

    /// Checks the name to which a request is sent. A request without one is not from a browser. Logs
    /// the first refusal. Any client can cause it, so further ones are not logged.
    ///
    /// # Errors
    /// If the name is not allowed. The message says what to do.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        let in_target = request.uri().authority().map(Authority::as_str);
        let fields = request.headers().get_all(HOST).iter();
        let fields = fields.map(|field| field.to_str().unwrap_or("?"));
        in_target.into_iter().chain(fields).try_for_each(|text| {
            let is_allowed = |host: Authority| self.allows(host.host());
            if text.is_empty() || text.parse().is_ok_and(is_allowed) {
                return Ok(());
            }
            let shown: String = text.chars().take(SHOWN).collect();
            let why = format!(
                "{shown:?} is not a name of this host; use localhost or the address, and let a proxy \
                 send one of these as Host"
            );
            if !self.has_told.swap(true, Ordering::Relaxed) {
                tracing::warn!("a request to the metrics address is refused: {why}");
            }
            Err(why)
        })
    }

    fn allows(&self, host: &str) -> bool {
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if literal.unwrap_or(host).parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let name = name.to_ascii_lowercase();
        !name.contains('.') || name.ends_with(".localhost") || name == self.own.to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, target: &str, fields: &[&str]) -> Result<(), String> {
        let mut request = Request::builder().uri(target);
        for field in fields {
            request = request.header(HOST, *field);
        }
        hosts.check(&request.body(()).unwrap())
    }

    #[test]
    fn names_that_a_stranger_can_own_are_refused() {
        let hosts = Hosts {
            own: "Web1.Example.net".to_owned(),
            ..Hosts::new()
        };
        for host in [
            "127.0.0.1:9153",
            "192.0.2.7",
            "[::1]:9153",
            "[2001:db8::1]",
            "localhost:9153",
            "LOCALHOST",
            "storm.localhost",
            "web1",
            "web1.example.net:9153",
            "web1.example.net.",
            "",
        ] {
            assert_eq!(check(&hosts, "/metrics", &[host]), Ok(()), "{host}");
        }
        assert_eq!(check(&hosts, "/metrics", &[]), Ok(()), "HTTP/1.0");
        for host in [
            "web2.example.net",
            "web1.example.net.evil.example:9153",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "a b",
            "::1",
            "\u{e4}.example",
        ] {
            assert!(check(&hosts, "/metrics", &[host]).is_err(), "{host}");
        }
        assert!(check(&hosts, "/", &["localhost", "evil.example"]).is_err());
        assert!(check(&hosts, "http://evil.example/", &["localhost"]).is_err());
        assert!(check(&hosts, "http://localhost/", &["localhost"]).is_ok());
    }

    #[test]
    fn the_machines_own_name_is_allowed() {
        let own = rustix::system::uname();
        let own = own.nodename().to_str().unwrap();
        assert_eq!(check(&Hosts::new(), "/", &[own]), Ok(()));
    }
}
