//! What the server says about itself to clients that ask: its NSID (RFC 5001), and TXT records in
//! class CHAOS (RFC 4892). By default it says nothing.

use std::str::FromStr;

use clap::Args;
use udpip::Tail;

use crate::body::Body;
use crate::name;
use crate::rcode;
use crate::rtype;
use crate::tail::QUESTION_AT;

/// Maximum length of an NSID, in bytes.
pub const MAX_NSID: usize = 128;
/// Maximum length of a text in class CHAOS, in bytes: the limit of a string in a TXT record.
pub const MAX_CHAOS_TEXT: usize = 255;
/// The class CHAOS (RFC 1035, section 3.2.4).
pub(crate) const CLASS_CHAOS: u16 = 3;

/// The names under which clients ask for the server's version.
const VERSION_NAMES: [&[u8]; 2] = [b"\x07version\x04bind\0", b"\x07version\x06server\0"];
/// The names under which clients ask which server it is.
const ID_NAMES: [&[u8]; 2] = [b"\x08hostname\x04bind\0", b"\x02id\x06server\0"];

/// The options for what the server says about itself, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Zones")]
pub struct IdentityArgs {
    /// Name of this server, for clients that ask with the EDNS option NSID. It is a text, or `0x` and
    /// the bytes in hexadecimal. Without it, the server ignores NSID.
    #[arg(long, value_name = "TEXT|0xHEX")]
    nsid: Option<Nsid>,

    /// Text for TXT queries for `version.bind` and `version.server` in class CHAOS. Without it, they are
    /// refused.
    #[arg(long, value_name = "TEXT")]
    chaos_version: Option<ChaosText>,

    /// Text for TXT queries for `hostname.bind` and `id.server` in class CHAOS. Without it, the text of
    /// `--nsid` is the answer. If that is missing or hexadecimal, they are refused.
    #[arg(long, value_name = "TEXT")]
    chaos_id: Option<ChaosText>,
}

/// The server's NSID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nsid {
    bytes: Vec<u8>,
    is_text: bool,
}

impl FromStr for Nsid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x");
        let bytes = match digits {
            Some(digits) => hex(digits).ok_or_else(|| {
                format!("'{text}' is not hexadecimal: write two digits for each byte after 0x")
            })?,
            None => text.as_bytes().to_vec(),
        };
        check_len(&bytes, MAX_NSID)?;
        Ok(Self {
            bytes,
            is_text: digits.is_none(),
        })
    }
}

/// A text for queries in class CHAOS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChaosText(String);

impl FromStr for ChaosText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        check_len(text.as_bytes(), MAX_CHAOS_TEXT)?;
        Ok(Self(text.to_owned()))
    }
}

fn check_len(bytes: &[u8], max: usize) -> Result<(), String> {
    match bytes.len() {
        0 => Err("it is empty: leave the option out to say nothing".to_owned()),
        len if len > max => Err(format!("it has {len} bytes, but {max} are the maximum")),
        _ => Ok(()),
    }
}

/// Returns the bytes that pairs of hexadecimal digits stand for.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// What the server says about itself. The default says nothing.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    nsid: Option<Vec<u8>>,
    /// The tail of the answers to [`VERSION_NAMES`].
    version: Option<Vec<u8>>,
    /// The tail of the answers to [`ID_NAMES`].
    id: Option<Vec<u8>>,
}

impl Identity {
    /// Creates an identity. `version` is the text for `version.bind` and `version.server`, and `id` that
    /// for `hostname.bind` and `id.server`. An NSID that was given as text is the default for `id`.
    pub fn new(nsid: Option<&Nsid>, version: Option<&ChaosText>, id: Option<&ChaosText>) -> Self {
        let of_nsid = nsid.filter(|nsid| nsid.is_text);
        let of_nsid = of_nsid.map(|nsid| nsid.bytes.as_slice());
        let id = id.map(|id| id.0.as_bytes()).or(of_nsid);
        Self {
            nsid: nsid.map(|nsid| nsid.bytes.clone()),
            version: version.map(|version| record(version.0.as_bytes())),
            id: id.map(record),
        }
    }

    /// Creates the identity that the options describe.
    pub fn from_args(args: &IdentityArgs) -> Self {
        Self::new(
            args.nsid.as_ref(),
            args.chaos_version.as_ref(),
            args.chaos_id.as_ref(),
        )
    }

    /// Returns the NSID.
    pub(crate) fn nsid(&self) -> Option<&[u8]> {
        self.nsid.as_deref()
    }

    /// Answers a query for `qtype` at `name` in class CHAOS. Returns `None` if the query must be refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn chaos(&self, name: &[u8], qtype: u16) -> Option<Body<'_>> {
        let is_one_of = |names: &[&[u8]]| names.iter().any(|one| name::eq(one, name));
        let record = if is_one_of(&VERSION_NAMES) {
            self.version.as_deref()?
        } else if is_one_of(&ID_NAMES) {
            self.id.as_deref()?
        } else {
            return None;
        };
        matches!(qtype, rtype::TXT | rtype::ANY).then(|| Body {
            tail: Tail::new(record),
            authoritative: true,
            counts: [0, 1, 0, 0, 0, 0],
            ..Body::empty(rcode::NOERROR)
        })
    }
}

/// Returns a TXT record in class CHAOS, whose owner is the qname. Its TTL is 0, because a cached record
/// may be that of another server.
fn record(text: &[u8]) -> Vec<u8> {
    let len = text.len() as u8;
    let mut record = (0xc000 | QUESTION_AT as u16).to_be_bytes().to_vec();
    record.extend(rtype::TXT.to_be_bytes());
    record.extend(CLASS_CHAOS.to_be_bytes());
    record.extend([0; 4]);
    record.extend((1 + u16::from(len)).to_be_bytes());
    record.push(len);
    record.extend_from_slice(text);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nsid_is_a_text_or_hexadecimal() {
        let nsid = |text: &str| text.parse::<Nsid>();
        let bytes = |text: &str| nsid(text).map(|nsid| (nsid.bytes, nsid.is_text));
        assert_eq!(bytes("ns1.example"), Ok((b"ns1.example".to_vec(), true)));
        assert_eq!(bytes("0x00fFa9"), Ok((vec![0, 255, 0xa9], false)));
        assert!(bytes(&"x".repeat(MAX_NSID)).is_ok());
        for wrong in ["", "0x", "0x1", "0xfg", "0x+1", &"x".repeat(MAX_NSID + 1)] {
            assert!(nsid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_chaos_text_fits_one_string() {
        let text = |len| "x".repeat(len).parse::<ChaosText>();
        assert!(text(0).is_err() && text(256).is_err());
        let identity = Identity::new(None, text(255).as_ref().ok(), None);
        let body = identity.chaos(VERSION_NAMES[0], rtype::TXT).unwrap();
        let expected = b"\xc0\x0c\0\x10\0\x03\0\0\0\0\x01\0\xffxx";
        assert_eq!(body.tail.bytes[..expected.len()], *expected);
        assert_eq!(body.tail.bytes.len(), 12 + 256);
    }

    #[test]
    fn an_nsid_in_hexadecimal_is_no_answer_in_class_chaos() {
        let text = Identity::new("ns1".parse().ok().as_ref(), None, None);
        let hex = Identity::new("0x6e".parse().ok().as_ref(), None, None);
        for name in ID_NAMES {
            assert!(text.chaos(name, rtype::TXT).is_some());
            assert!(hex.chaos(name, rtype::TXT).is_none());
        }
        assert_eq!(hex.nsid(), Some(&b"n"[..]));
        assert!(text.chaos(VERSION_NAMES[0], rtype::TXT).is_none());
    }
}
