//! The names of a zone in its index.

use crate::hooked::Hooked;
use crate::index::At;

/// A position that stands for "no answer".
pub(crate) const NONE: At = At::MAX;

/// The kind of a name, which decides how queries for it and for names below it are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A name that is none of the kinds below. Queries for types that the name
    /// does not have get NODATA.
    Plain,
    /// A CNAME owner. Queries for types that the owner does not have are answered by following the
    /// alias.
    Alias,
    /// A zone cut. Queries for this name and for names below it get a referral. The exception is a
    /// query for DS at the cut.
    Cut,
    /// A DNAME owner: names below the owner are substituted (RFC 6672).
    Dname,
}

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Alias, Kind::Cut, Kind::Dname];

/// Size of the fields before a node's key, in bytes: key length, kind, flags, hooked flags, and three
/// positions of answers.
const NODE_HEADER: usize = 16;
/// Flag: a wildcard exists directly below the name.
const WILDCARD: u8 = 1;
/// Flag: two positions of proofs follow the key.
const PROOFS: u8 = 2;
/// Flag: the zone cut has DS records.
const SIGNERS: u8 = 4;

/// A name in the index, with the positions of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The kind of the name.
    pub(crate) kind: Kind,
    /// Whether a wildcard exists directly below the name.
    pub(crate) has_wildcard: bool,
    /// Whether the name is a zone cut with DS records.
    pub(crate) has_signers: bool,
    /// Whether a hook answers for the name, and whether for all names below it. If either flag is
    /// set, `negative` is set too.
    pub(crate) hooked: Hooked,
    /// Position of the answer for NODATA and NXDOMAIN, which holds the zone's SOA record. It is
    /// [`NONE`] if the node needs no such answer.
    pub(crate) negative: At,
    /// Position of the answer to ANY, which holds the RRsets of the name that fit one message. It
    /// is [`NONE`] if the name has no records or is a zone cut.
    pub(crate) any: At,
    /// Position of an answer that depends on the node's kind, or [`NONE`] if the kind has no such
    /// answer:
    ///
    /// - alias: the CNAME record;
    /// - cut: the referral;
    /// - DNAME owner: the DNAME record.
    pub(crate) default: At,
    /// The proofs of a name in a signed zone.
    pub(crate) proofs: Proofs,
}

/// The positions of a name's proofs of non-existence. Each is [`NONE`] if it is not known in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proofs {
    /// The proof that the name has only certain types: its NSEC record, or its NSEC3 record.
    pub(crate) name: At,
    /// The proof that there is no wildcard directly below the name: the record that covers it.
    pub(crate) no_wildcard: At,
}

impl Proofs {
    /// No proofs. All names of an unsigned zone have none.
    pub(crate) const NONE: Self = Self {
        name: NONE,
        no_wildcard: NONE,
    };
}

impl Node {
    /// Creates a node without answers.
    pub(crate) const fn bare(kind: Kind) -> Self {
        Self {
            kind,
            has_wildcard: false,
            has_signers: false,
            hooked: Hooked::NOTHING,
            negative: NONE,
            any: NONE,
            default: NONE,
            proofs: Proofs::NONE,
        }
    }

    /// Appends to `to` the node as it is stored. Its name has the key `key`. Proofs follow the key, if
    /// there are any.
    pub(super) fn encode(&self, to: &mut Vec<u8>, key: &[u8]) {
        let has_proofs = self.proofs != Proofs::NONE;
        let flags = [
            (WILDCARD, self.has_wildcard),
            (PROOFS, has_proofs),
            (SIGNERS, self.has_signers),
        ];
        let set = flags.iter().filter(|(_, is_set)| *is_set);
        let flags = set.fold(0, |flags, (flag, _)| flags | flag);
        to.extend([key.len() as u8, self.kind as u8, flags, self.hooked.0]);
        for place in [self.negative, self.any, self.default] {
            to.extend(place.to_be_bytes());
        }
        to.extend(key);
        if has_proofs {
            to.extend(self.proofs.name.to_be_bytes());
            to.extend(self.proofs.no_wildcard.to_be_bytes());
        }
    }

    /// Returns the key of the node that is stored at the start of `bytes`.
    pub(super) fn key(bytes: &[u8]) -> &[u8] {
        &bytes[NODE_HEADER..][..usize::from(bytes[0])]
    }

    /// Reads the node that is stored at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<NODE_HEADER>()?;
        let proofs = if header[2] & PROOFS != 0 {
            let [name, no_wildcard] = places(rest.get(usize::from(header[0])..)?)?;
            Proofs { name, no_wildcard }
        } else {
            Proofs::NONE
        };
        let [negative, any, default] = places(&header[4..])?;
        Some(Self {
            kind: *KINDS.get(usize::from(header[1]))?,
            has_wildcard: header[2] & WILDCARD != 0,
            has_signers: header[2] & SIGNERS != 0,
            hooked: Hooked(header[3]),
            negative,
            any,
            default,
            proofs,
        })
    }
}

/// Reads the positions at the start of `bytes`.
fn places<const N: usize>(bytes: &[u8]) -> Option<[At; N]> {
    let (words, _) = bytes.as_chunks();
    let words: &[[u8; 4]; N] = words.first_chunk()?;
    Some(words.map(At::from_be_bytes))
}
