//! The codings that a client accepts (RFC 9110, section 12.5.3).

use crate::coding::Coding;
use crate::list::list;

/// How much a client wants each coding, in thousandths. With 0, it refuses the coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    codings: [u16; Coding::ALL.len()],
    identity: u16,
}

impl Accepted {
    /// What a client accepts that has not sent `Accept-Encoding`. It would have to accept every coding,
    /// but simple clients know none.
    pub(crate) const PLAIN: Self = Self {
        codings: [0; Coding::ALL.len()],
        identity: MAX_QUALITY,
    };

    /// How much the client wants `coding`.
    pub(crate) fn quality(self, coding: Coding) -> u16 {
        self.codings[coding as usize]
    }

    /// How much the client wants content without a coding.
    pub(crate) fn identity(self) -> u16 {
        self.identity
    }
}

/// The quality of an element without a weight.
const MAX_QUALITY: u16 = 1_000;
/// The quality of content without a coding if the field names neither `identity` nor `*`. Such
/// content is acceptable, but the client wants each coding more that it names.
const UNNAMED_IDENTITY: u16 = 1;

/// The fields `Accept-Encoding` of a request. Several of them form one list.
#[derive(Clone, Copy, Default)]
pub(crate) struct AcceptEncoding {
    is_present: bool,
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
}

impl AcceptEncoding {
    /// Adds the value of a field. Elements that are unknown or invalid are ignored.
    #[inline]
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.is_present = true;
        // Nearly all browsers send one of these values.
        let named: &[Coding] = match value {
            b"gzip, deflate, br, zstd" => &Coding::ALL,
            b"gzip, deflate, br" => &[Coding::Gzip, Coding::Brotli],
            b"gzip, deflate" => &[Coding::Gzip],
            _ => return self.add_list(value),
        };
        for coding in named {
            *self.of(*coding) = Some(MAX_QUALITY);
        }
    }

    fn add_list(&mut self, value: &[u8]) {
        for element in list(value) {
            let mut parts = element.splitn(2, |b| *b == b';');
            let name = parts.next().unwrap_or_default().trim_ascii_end();
            let Some(quality) = parts.next().map_or(Some(MAX_QUALITY), quality) else {
                continue;
            };
            let place = match name.len() {
                1 if name == b"*" => &mut self.others,
                2 if name.eq_ignore_ascii_case(b"br") => self.of(Coding::Brotli),
                4 if name.eq_ignore_ascii_case(b"gzip") => self.of(Coding::Gzip),
                4 if name.eq_ignore_ascii_case(b"zstd") => self.of(Coding::Zstd),
                // An old name of gzip (RFC 9110, section 8.4.1.3).
                6 if name.eq_ignore_ascii_case(b"x-gzip") => self.of(Coding::Gzip),
                8 if name.eq_ignore_ascii_case(b"identity") => &mut self.identity,
                _ => continue,
            };
            *place = Some(quality);
        }
    }

    fn of(&mut self, coding: Coding) -> &mut Option<u16> {
        &mut self.codings[coding as usize]
    }

    /// Returns what the client accepts.
    #[inline(always)]
    pub(crate) fn accepted(self) -> Accepted {
        if !self.is_present {
            return Accepted::PLAIN;
        }
        let others = self.others.unwrap_or(0);
        Accepted {
            codings: self.codings.map(|quality| quality.unwrap_or(others)),
            identity: self.identity.or(self.others).unwrap_or(UNNAMED_IDENTITY),
        }
    }
}

/// Parses the parameter `q` of an element, which follows a semicolon (RFC 9110, section 12.4.2).
/// Returns the value in thousandths.
fn quality(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole, rest @ ..] = parameter.trim_ascii() else {
        return None;
    };
    let thousandths = match rest {
        [] => 0,
        [b'.', digits @ ..] if digits.len() <= 3 => {
            let digits = digits.iter().map(|digit| char::from(*digit).to_digit(10));
            let padded = digits.chain(std::iter::repeat(Some(0))).take(3);
            padded.reduce(|sum, digit| Some(sum? * 10 + digit?))??
        }
        _ => return None,
    };
    match (whole, thousandths) {
        (b'0', _) => Some(thousandths as u16),
        (b'1', 0) => Some(MAX_QUALITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the qualities of gzip, brotli, zstd and identity.
    fn qualities(values: &[&str]) -> [u16; 4] {
        let mut field = AcceptEncoding::default();
        for value in values {
            field.add(value.as_bytes());
        }
        let accepted = field.accepted();
        let [gzip, brotli, zstd] = Coding::ALL.map(|coding| accepted.quality(coding));
        [gzip, brotli, zstd, accepted.identity()]
    }

    #[test]
    fn each_coding_has_the_quality_of_its_element() {
        for (values, expected) in [
            (&[][..], [0, 0, 0, 1000]),
            (&[""], [0, 0, 0, 1]),
            (&["gzip"], [1000, 0, 0, 1]),
            (&["X-GZIP"], [1000, 0, 0, 1]),
            (&["gzip, deflate, br, zstd"], [1000, 1000, 1000, 1]),
            (&["gzip, deflate, br"], [1000, 1000, 0, 1]),
            (&["gzip, deflate"], [1000, 0, 0, 1]),
            (&["gzip;q=0, br;q=0", "gzip, deflate"], [1000, 0, 0, 1]),
            (&["gzip", "br"], [1000, 1000, 0, 1]),
            (&["gzip;q=0.5, br;q=0.25"], [500, 250, 0, 1]),
            (&["gzip ; q=0.1,, ,zstd;Q=1.000"], [100, 0, 1000, 1]),
            (&["br;q=0"], [0, 0, 0, 1]),
            (&["*"], [1000, 1000, 1000, 1000]),
            (&["*;q=0"], [0, 0, 0, 0]),
            (&["*;q=0, gzip"], [1000, 0, 0, 0]),
            (&["gzip;q=0, *;q=0.3"], [0, 300, 300, 300]),
            (&["identity;q=0"], [0, 0, 0, 0]),
            (&["identity, *;q=0"], [0, 0, 0, 1000]),
            (&["identity;q=0.7, br;q=0.7"], [0, 700, 0, 700]),
            (&["compress, deflate"], [0, 0, 0, 1]),
        ] {
            assert_eq!(qualities(values), expected, "{values:?}");
        }
    }

    #[test]
    fn an_invalid_element_is_ignored() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=.5",
            "gzip;q=0.x",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;level=1",
            "gzip br",
            "\"gzip\"",
        ] {
            assert_eq!(qualities(&[value]), [0, 0, 0, 1], "{value}");
            assert_eq!(qualities(&[value, "br"]), [0, 1000, 0, 1], "{value}");
        }
    }
}
