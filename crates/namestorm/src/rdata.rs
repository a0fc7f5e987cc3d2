//! Record data: its check, the names in it, and its text form.

mod fault;
mod measure;
mod rules;
pub(crate) mod text;

use std::borrow::Cow;
use std::ops::Range;

use self::fault::Fault;
use self::measure::{Flaw, measure, name_in};
use crate::fields::{self, Form};
use crate::rtype;

/// Checks data in uncompressed wire format. Data of a type without a form is always valid.
///
/// # Errors
///
/// Returns the first fault.
pub(crate) fn check(rtype: u16, data: &[u8]) -> Result<(), Fault> {
    let Some(form) = fields::of(rtype) else {
        return Ok(());
    };
    let mut at = 0;
    for (word, kind) in form.fields() {
        at += measure(*kind, data, at).map_err(|flaw| {
            // A field that consists of several words has none that fits here.
            let has_several = word.contains(' ') && !word.ends_with("...");
            let word = if has_several { form.mnemonic() } else { word };
            match flaw {
                Flaw::Short => Fault::Short { word },
                Flaw::Rule(rule) => Fault::Rule { word, rule },
            }
        })?;
    }
    if at < data.len() {
        let bytes = data.len() - at;
        return Err(Fault::Trailing { bytes });
    }
    rules::check(rtype, data)
}

/// Returns the position of each name in valid data of type `rtype`.
pub(crate) fn names(rtype: u16, data: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let fields = fields::of(rtype).map_or(&[][..], Form::fields);
    let mut at = 0;
    fields.iter().filter_map(move |(_, kind)| {
        // The data is valid, so each field can be measured. Otherwise the rest is skipped.
        let len = measure(*kind, data, at).unwrap_or(data.len() - at);
        let name = name_in(*kind, data, at, len);
        at += len;
        name
    })
}

/// Returns the canonical form of valid data (RFC 4034, section 6.2). It has names in lower case if
/// [`rtype::has_canonical_names`] says so.
pub(crate) fn canonical(rtype: u16, data: &[u8]) -> Cow<'_, [u8]> {
    let mut canonical = Cow::Borrowed(data);
    if rtype::has_canonical_names(rtype) && data.iter().any(u8::is_ascii_uppercase) {
        for name in names(rtype, data) {
            canonical.to_mut()[name].make_ascii_lowercase();
        }
    }
    canonical
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_old_types_are_lowered() {
        let name = b"\x01A\x00";
        let with = |before: &[u8], after: &[u8]| [before, name, after].concat();
        for (rtype, before) in [
            (rtype::NS, &b""[..]),
            (rtype::MX, b"\0A"),
            (18, b"\0A"),
            (rtype::SRV, b"AAAAAA"),
            (rtype::NAPTR, b"AAAA\x01A\x01A\x01A"),
            (rtype::DNAME, b""),
            (38, b"\x78A"),
        ] {
            let data = with(before, b"");
            assert_eq!(check(rtype, &data), Ok(()), "{rtype}");
            let lowered = [before, b"\x01a\x00"].concat();
            assert_eq!(*canonical(rtype, &data), lowered, "{rtype}");
        }
        for (rtype, data) in [
            // RFC 6840, section 5.1, excludes NSEC. Later types were never included.
            (rtype::NSEC, with(b"", b"\x00\x01\x40")),
            (rtype::SVCB, with(b"\0\x01", b"")),
            (58, with(name, b"")),
            (rtype::TXT, b"\x01A".to_vec()),
            (65_280, with(b"", b"")),
        ] {
            assert_eq!(check(rtype, &data), Ok(()), "{rtype}");
            assert_eq!(*canonical(rtype, &data), data, "{rtype}");
        }
        let signed = with(&[b'A'; 18], b"AAA");
        assert_eq!(canonical(rtype::RRSIG, &signed)[18..21], *b"\x01a\x00");
        assert_eq!(canonical(rtype::RRSIG, &signed)[21..], *b"AAA");
    }

    #[test]
    fn faults_name_the_field() {
        let fault = |rtype, data: &[u8]| check(rtype, data).unwrap_err().to_string();
        assert_eq!(
            fault(rtype::A, b"\x01\x02\x03"),
            "it ends before the end of ADDRESS"
        );
        assert_eq!(
            fault(rtype::A, b"\x01\x02\x03\x04\x05\x06"),
            "2 bytes follow its last field"
        );
        assert_eq!(
            fault(rtype::MX, b"\0\x0a\xc0\x0c"),
            "HOST-NAME must be a whole name without compression"
        );
        assert_eq!(
            fault(rtype::DS, &[0, 1, 13, 2, 9]),
            "DIGEST must have 32 bytes for this algorithm, not 1"
        );
    }
}
