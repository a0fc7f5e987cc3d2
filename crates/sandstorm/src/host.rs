//! Validation of the host and port in a request (RFC 9110, section 7.2).

use std::net::Ipv6Addr;

/// The bytes that a name may contain unencoded: unreserved characters and sub-delimiters (RFC 3986,
/// sections 2.3 and 2.2).
const IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"-._~!$&'()*+,;=";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    let mut byte: u8 = 0;
    while byte.is_ascii() {
        table[byte as usize] |= byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Returns true if `value` is a valid `uri-host [ ":" port ]` (RFC 3986, sections 3.2.2 and 3.2.3).
/// An empty value is valid too: clients send it for targets without an authority (RFC 9112, section
/// 3.2).
#[inline]
pub(crate) fn is_host(value: &[u8]) -> bool {
    // Nearly all hosts are names or IPv4 addresses without a port.
    value.iter().all(|b| IN_NAME[usize::from(*b)]) || is_other_host(value)
}

/// The slow path of [`is_host`], for values that contain bytes other than those in [`IN_NAME`].
#[inline(never)]
fn is_other_host(value: &[u8]) -> bool {
    if let [b'[', rest @ ..] = value {
        return is_literal(rest);
    }
    let end = value.iter().position(|b| *b == b':');
    let (name, port) = value.split_at(end.unwrap_or(value.len()));
    !name.is_empty() && is_registered_name(name) && is_port(port)
}

/// Returns true if `name` is a valid `reg-name` (RFC 3986, section 3.2.2). Every IPv4 address is
/// also a valid `reg-name`.
fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, more @ ..] = rest {
        rest = match more {
            _ if IN_NAME[usize::from(*first)] => more,
            [high, low, more @ ..]
                if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                more
            }
            _ => return false,
        };
    }
    true
}

/// Returns true if `value` is valid after the opening bracket of an `IP-literal`: an address, the
/// closing bracket, and an optional port. A zone identifier is invalid, because clients must remove
/// it before they send the address (RFC 6874, section 4).
#[cold]
fn is_literal(value: &[u8]) -> bool {
    let Some(end) = value.iter().position(|b| *b == b']') else {
        return false;
    };
    let (address, rest) = value.split_at(end);
    let is_address = match address {
        [b'v' | b'V', future @ ..] => is_future(future),
        _ => std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok()),
    };
    is_address && is_port(&rest[1..])
}

/// Returns true if `value` is an `IPvFuture` (RFC 3986, section 3.2.2) without its leading `v`.
fn is_future(value: &[u8]) -> bool {
    let Some(dot) = value.iter().position(|b| *b == b'.') else {
        return false;
    };
    let (version, address) = (&value[..dot], &value[dot + 1..]);
    let is_address_byte = |b: &u8| *b == b':' || IN_NAME[usize::from(*b)];
    !version.is_empty()
        && !address.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && address.iter().all(is_address_byte)
}

/// Returns true if `value` is empty, or a colon with any number of digits.
fn is_port(value: &[u8]) -> bool {
    match value {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_valid_by_rfc_3986_are_accepted() {
        for host in [
            "",
            "a",
            "example.com",
            "example.com.",
            "example.com:80",
            "example.com:",
            "example.com:0080",
            "EXAMPLE.com",
            "xn--dne-hoa.test",
            "a_b.test",
            "192.0.2.1",
            "192.0.2.1:8080",
            "999.0.2.1",
            "d%C3%bcne.test",
            "!$&'()*+,;=~",
            "[::1]",
            "[::1]:80",
            "[::1]:",
            "[2001:db8::192.0.2.1]",
            "[1:2:3:4:5:6:7:8]",
            "[v1.a]",
            "[vF.a:b~!]:80",
            "[V1f.x]",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for host in [
            ":80",
            ":",
            "example.com:http",
            "example.com:80:80",
            "a:b:c",
            "a:-1",
            "a:+1",
            "a: 80",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "u@a",
            "u:p@a",
            "\"a\"",
            "<a>",
            "a\\b",
            "a|b",
            "{a}",
            "a^b",
            "d\u{fc}ne.test",
            "a\tb",
            "%",
            "%z",
            "%zz",
            "a%2",
            "a%2g",
            "[",
            "]",
            "[]",
            "[]:80",
            "[::1",
            "::1",
            "[::1]80",
            "[::1]:http",
            "[::1]]",
            "[[::1]]",
            "a[::1]",
            "[::1]a",
            "[1:2:3:4:5:6:7]",
            "[1:2:3:4:5:6:7:8:9]",
            "[1::2::3]",
            "[12345::]",
            "[::g]",
            "[192.0.2.1]",
            "[::192.0.2.256]",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[v.a]",
            "[v1.]",
            "[v1]",
            "[vg.a]",
            "[v1.a/b]",
            "[example.com]",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
