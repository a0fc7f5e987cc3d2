//! Hosts whose requests are sent to another host.

use std::str::FromStr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::host::is_host;
use crate::hosts::{HostName, NotAHost};
use crate::rules::{Redirect, RuleError};
use crate::settings::Settings;
use crate::site::{Builder, Site};

/// A host, and the site to which its requests are redirected with their path and query.
#[derive(Clone, Debug)]
pub(crate) struct RedirectHost {
    host: HostName,
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
        "{0:?} is not the start of a site's URL; write it as in https://example.org, without a path"
    )]
    Target(String),
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl FromStr for RedirectHost {
    type Err = NotARedirectHost;

    /// Parses `HOST=URL`.
    fn from_str(text: &str) -> Result<Self, NotARedirectHost> {
        let (host, to) = text.split_once('=').ok_or(NotARedirectHost::NoTarget)?;
        let to = to.strip_suffix('/').unwrap_or(to);
        let authority = ["http://", "https://"]
            .into_iter()
            .find_map(|scheme| to.strip_prefix(scheme));
        if !authority.is_some_and(|one| !one.is_empty() && is_host(one.as_bytes())) {
            return Err(NotARedirectHost::Target(to.to_owned()));
        }
        Ok(Self {
            host: host.parse()?,
            to: to.to_owned(),
            rule: format!("/* {to}/:splat 301").parse()?,
        })
    }
}

impl RedirectHost {
    pub(crate) fn host(&self) -> &HostName {
        &self.host
    }

    /// Makes the site for this host. Its responses have the fields of all responses of `settings`.
    pub(crate) fn site(&self, settings: &Settings) -> Arc<Site> {
        let settings = Settings {
            fields: settings.fields.clone(),
            redirects: vec![self.rule.clone()],
            ..Settings::default()
        };
        Arc::new(Builder::with_settings(UNIX_EPOCH, &settings).build())
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
    use crate::session::{Session, Step};

    /// The status and the location of the response to a GET.
    fn location(site: &crate::Site, target: &str) -> (u16, String) {
        // More bytes may follow a request.
        let request = format!("GET {target} HTTP/1.1\r\nHost: www.a.test\r\n\r\n?more bytes");
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
        let site = one.site(&Settings::default());
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
    fn a_host_and_the_start_of_a_url_are_needed() {
        let parse = |text: &str| text.parse::<RedirectHost>();
        for (text, described) in [
            ("www.a.test=https://a.test", "www.a.test to https://a.test"),
            ("*.b=http://a.test:8080/", "*.b to http://a.test:8080"),
            ("a=https://[::1]", "a to https://[::1]"),
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
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{wrong}: {error}");
        }
    }
}
