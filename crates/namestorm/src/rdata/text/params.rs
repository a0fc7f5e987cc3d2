//! Finds the wrong parameter of a service (RFC 9460). The `domain` crate reads the parameters.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::utils::base64;

use super::{Reader, TextFault};
use crate::words;

/// What a parameter needs. Each has an example.
const ALPN: &str = "alpn needs the names of protocols, such as alpn=h2,h3";
const DOHPATH: &str = "dohpath needs a path, such as dohpath=/dns-query{?dns}";
const ECH: &str = "ech needs whole groups of 4 characters in base64";
const IPV4HINT: &str = "ipv4hint needs IPv4 addresses, such as ipv4hint=192.0.2.1,192.0.2.2";
const IPV6HINT: &str = "ipv6hint needs IPv6 addresses, such as ipv6hint=2001:db8::1,2001:db8::2";
const MANDATORY: &str =
    "mandatory needs other keys of the record, each once, such as mandatory=alpn,port";
const PORT: &str = "port needs a number from 0 to 65535, such as port=8443";
const GROUPS: &str =
    "tls-supported-groups needs numbers, each once, such as tls-supported-groups=29,23";
const NO_VALUE: &str = "no-default-alpn and ohttp have no value; remove it";
const WITHOUT_ALPN: &str = "no-default-alpn needs alpn beside it, such as alpn=h2 no-default-alpn";
const UNKNOWN: &str = "the key is not known; write key and its number, such as key65280=VALUE";
const TWICE: &str = "each key may occur once; remove this one";

impl Reader<'_> {
    /// Returns the first fault that is found in the parameters.
    pub(super) fn params(&mut self) -> Result<(), TextFault> {
        let params = self.pairs();
        let keys: Vec<_> = params
            .iter()
            .map(|(_, key, _)| key.to_ascii_lowercase())
            .collect();
        for (at, (index, _, value)) in params.iter().enumerate() {
            let key = keys[at].as_str();
            let rule = if keys[..at].iter().any(|earlier| earlier == key) {
                Some(TWICE)
            } else {
                wrong(key, value, &keys)
            };
            if let Some(rule) = rule {
                let index = *index;
                return Err(TextFault::Param { index, rule });
            }
        }
        Ok(())
    }

    /// Takes all remaining words. Returns the index of each parameter, its key and its value. A value in
    /// quotes is a word of its own.
    fn pairs(&mut self) -> Vec<(usize, String, String)> {
        let mut pairs: Vec<(usize, String, String)> = Vec::new();
        for word in self.rest() {
            let value = words::content(word);
            match (word.starts_with('"'), pairs.last_mut()) {
                (true, Some((_, _, last))) if last.is_empty() => value.clone_into(last),
                _ => {
                    let (key, value) = value.split_once('=').unwrap_or((value, ""));
                    pairs.push((self.index, key.to_owned(), value.to_owned()));
                }
            }
            self.index += 1;
        }
        pairs
    }
}

/// Returns the rule that a parameter breaks, if it breaks one. `keys` are those of all parameters.
fn wrong(key: &str, value: &str, keys: &[String]) -> Option<&'static str> {
    let items: Vec<_> = value.split(',').collect();
    let is_listed = |key: &&str| {
        items
            .iter()
            .filter(|item| item.eq_ignore_ascii_case(key))
            .count()
            == 1
    };
    let has = |key: &str| keys.iter().any(|other| other.eq_ignore_ascii_case(key));
    let is_code = |digits: &str| digits.parse::<u16>().is_ok();
    let (is_right, rule) = match key {
        "mandatory" => {
            let is_other = |item: &&str| *item != "mandatory" && has(item) && is_listed(item);
            (items.iter().all(is_other), MANDATORY)
        }
        "alpn" => (items.iter().all(|item| !item.is_empty()), ALPN),
        "no-default-alpn" if value.is_empty() => (has("alpn"), WITHOUT_ALPN),
        "no-default-alpn" | "ohttp" => (value.is_empty(), NO_VALUE),
        "port" => (is_code(value), PORT),
        "ipv4hint" => (
            items.iter().all(|item| item.parse::<Ipv4Addr>().is_ok()),
            IPV4HINT,
        ),
        "ipv6hint" => (
            items.iter().all(|item| item.parse::<Ipv6Addr>().is_ok()),
            IPV6HINT,
        ),
        "ech" => {
            let bytes: Option<Vec<u8>> = base64::decode(value).ok();
            (bytes.is_some_and(|bytes| !bytes.is_empty()), ECH)
        }
        "dohpath" => (!value.is_empty(), DOHPATH),
        "tls-supported-groups" => {
            let is_group = |item: &&str| is_code(item) && is_listed(item);
            (items.iter().all(is_group), GROUPS)
        }
        _ => (key.strip_prefix("key").is_some_and(is_code), UNKNOWN),
    };
    (!is_right).then_some(rule)
}
