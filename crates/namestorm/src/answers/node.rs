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

/// Size of the fields before a node's key, in bytes: key length, kind, wildcard flag, hooked flags,
/// and three positions of answers.
const NODE_HEADER: usize = 16;

/// A name in the index, with the positions of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The kind of the name.
    pub(crate) kind: Kind,
    /// Whether a wildcard exists directly below the name.
    pub(crate) has_wildcard: bool,
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
}

impl Node {
    /// Creates a node without answers.
    pub(crate) const fn bare(kind: Kind) -> Self {
        Self {
            kind,
            has_wildcard: false,
            hooked: Hooked::NOTHING,
            negative: NONE,
            any: NONE,
            default: NONE,
        }
    }

    /// Writes the node as it is stored before its key, which is `key_len` bytes long.
    pub(super) fn header(&self, key_len: usize) -> [u8; NODE_HEADER] {
        let mut header = [0; NODE_HEADER];
        header[0] = key_len as u8;
        header[1] = self.kind as u8;
        header[2] = u8::from(self.has_wildcard);
        header[3] = self.hooked.0;
        for (at, answer) in [self.negative, self.any, self.default].iter().enumerate() {
            header[4 + 4 * at..][..4].copy_from_slice(&answer.to_be_bytes());
        }
        header
    }

    /// Returns the key of the node that is stored at the start of `bytes`.
    pub(super) fn key(bytes: &[u8]) -> &[u8] {
        &bytes[NODE_HEADER..][..usize::from(bytes[0])]
    }

    /// Reads the node that is stored at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; NODE_HEADER] = bytes.first_chunk()?;
        let place = |at: usize| {
            At::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(Self {
            kind: *KINDS.get(usize::from(header[1]))?,
            has_wildcard: header[2] != 0,
            hooked: Hooked(header[3]),
            negative: place(4),
            any: place(8),
            default: place(12),
        })
    }
}
