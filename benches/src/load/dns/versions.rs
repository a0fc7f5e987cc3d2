//! Answers from zones that alternate between two versions, as those of `cargo xtask bench reloads`.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::Kind;
use super::kind::{A, AAAA};

/// Length in bytes of a record with an IPv6 address and a compressed name.
const MAX_RECORD_LEN: usize = 28;
/// Start of a record that has the name of the question (RFC 1035, section 4.1.4).
const NAME_OF_QUESTION: [u8; 2] = [0xc0, 12];
/// Length of the type and the class at the end of a question.
const TYPE_LEN: usize = 4;

/// A version of a zone's addresses. The TTLs differ too, so that an answer of parts is recognized.
#[derive(Clone, Copy, Debug)]
struct Version {
    ttl: u32,
    /// First byte of the address of a numbered name.
    net: u8,
    /// Addresses of a hoster's names.
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

const VERSIONS: [Version; 2] = [
    Version {
        ttl: 300,
        net: 10,
        v4: Ipv4Addr::new(192, 0, 2, 80),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80),
    },
    Version {
        ttl: 400,
        net: 11,
        v4: Ipv4Addr::new(192, 0, 2, 81),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x81),
    },
];

impl Kind {
    /// Returns whether zones for these queries may have two versions.
    pub fn has_versions(self) -> bool {
        matches!(self, Self::Plain | Self::Hoster)
    }
}

/// Checks the answer section that follows `question`. For an address it must be the record of one of
/// both versions. It may be anything for other types.
pub(super) fn is_of_one(kind: Kind, question: &[u8], answers: u16, section: &[u8]) -> bool {
    let [high, low] = [0, 1].map(|at| question[question.len() - TYPE_LEN + at]);
    let rtype = u16::from_be_bytes([high, low]);
    if rtype != A && rtype != AAAA {
        return true;
    }
    let is_of = |version: &Version| section.starts_with(&version.record(kind, question, rtype));
    answers == 1 && VERSIONS.iter().any(is_of)
}

impl Version {
    /// Returns the only record of the right answer.
    fn record(self, kind: Kind, question: &[u8], rtype: u16) -> ArrayVec<u8, MAX_RECORD_LEN> {
        let mut record = ArrayVec::new();
        record.extend(NAME_OF_QUESTION);
        record.extend(question[question.len() - TYPE_LEN..].iter().copied());
        record.extend(self.ttl.to_be_bytes());
        if rtype == AAAA {
            record.extend([0, 16]);
            record.extend(self.v6.octets());
        } else {
            record.extend([0, 4]);
            record.extend(match kind {
                Kind::Plain => {
                    let [_, a, b, c] = number_of(question).to_be_bytes();
                    [self.net, a, b, c]
                }
                _ => self.v4.octets(),
            });
        }
        record
    }
}

/// Returns the number at the end of a question's first label.
fn number_of(question: &[u8]) -> u32 {
    let label = &question[1..=usize::from(question[0])];
    let digits = label.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question with the end of the name left out.
    fn question(labels: &[u8], rtype: u16) -> Vec<u8> {
        let [high, low] = rtype.to_be_bytes();
        [labels, &[0, high, low, 0, 1]].concat()
    }

    /// The record of an address, with the name of the question.
    fn record(rtype: u8, ttl: u8, address: &[u8]) -> Vec<u8> {
        let [high, low] = (256 + u16::from(ttl)).to_be_bytes();
        let len = address.len() as u8;
        [
            &[0xc0, 12, 0, rtype, 0, 1, 0, 0, high, low, 0, len],
            address,
        ]
        .concat()
    }

    const TTLS: [u8; 2] = [44, 144];

    #[test]
    fn an_answer_must_be_wholly_of_one_version() {
        let question = question(b"\x07host299", A);
        let is_right =
            |answers, section: &[u8]| is_of_one(Kind::Plain, &question, answers, section);
        let [old, new] = [(TTLS[0], 10), (TTLS[1], 11)];
        for (ttl, net) in [old, new] {
            let right = record(1, ttl, &[net, 0, 1, 43]);
            assert!(is_right(1, &right));
            assert!(
                is_right(1, &[&right[..], &[0, 0, 41]].concat()),
                "an OPT record"
            );
            assert!(
                !is_right(2, &[&right[..], &right].concat()),
                "two addresses"
            );
            assert!(!is_right(1, &right[..15]), "a part");
        }
        assert!(!is_right(1, &record(1, old.0, &[new.1, 0, 1, 43])), "a mix");
        assert!(!is_right(1, &record(1, new.0, &[old.1, 0, 1, 43])), "a mix");
        assert!(
            !is_right(1, &record(1, old.0, &[10, 0, 1, 44])),
            "of another name"
        );
        assert!(
            !is_right(1, &record(28, old.0, &[10, 0, 1, 43])),
            "of another type"
        );
        assert!(!is_right(1, &[]));
    }

    #[test]
    fn a_hoster_has_the_same_addresses_in_all_zones() {
        for (rtype, addresses) in [
            (A, [vec![192, 0, 2, 80], vec![192, 0, 2, 81]]),
            (
                AAAA,
                [0x80, 0x81].map(|last| [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[last]].concat()),
            ),
        ] {
            let question = question(b"\x03www\x05host7", rtype);
            for (section, is_right) in [
                (record(rtype as u8, TTLS[0], &addresses[0]), true),
                (record(rtype as u8, TTLS[1], &addresses[1]), true),
                (record(rtype as u8, TTLS[0], &addresses[1]), false),
            ] {
                assert_eq!(is_of_one(Kind::Hoster, &question, 1, &section), is_right);
            }
        }
        let other = question(b"\x05host7", 16);
        assert!(is_of_one(Kind::Hoster, &other, 1, b"text"));
    }
}
