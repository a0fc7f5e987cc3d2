//! The records of a zone in compact form, for zone transfers.
//!
//! Each record is stored without the part of its owner that it shares with the owner before. A record
//! takes its data and 9 bytes, and the first record of a name also takes the labels that are new.

use std::sync::Arc;

use crate::name;
use crate::query::{MAX_HEAD, NameBuf};
use crate::rtype::{RRSIG, SOA};
use crate::tail::{self, MAX_TCP_MESSAGE};
use crate::tsig::MAX_SIGNATURE;
use crate::zone::{NameRef, Place, RrsetRef, Zone};

/// Size of the fields of a stored record after its owner, in bytes: type, TTL and length of the data.
const FIELDS: usize = 8;

/// Maximum length of a record's owner and data, in bytes: a message over TCP then has room for it beside
/// the longest question and signature.
const MAX_RECORD: usize = MAX_TCP_MESSAGE - MAX_HEAD - tail::FIELDS - MAX_SIGNATURE;

/// The records of one zone, of which the SOA record is the first. The others follow in canonical order
/// of their owners, as they were read: with the upper and lower case of the file.
///
/// Each record begins with the number of its owner's bytes that differ from the owner before. If it is
/// not 0, the number of bytes that are the same follows, and then the differing bytes.
#[derive(Debug)]
pub(crate) struct ZoneRecords {
    /// The owner of the SOA record.
    apex: Arc<[u8]>,
    bytes: Box<[u8]>,
}

/// A record, in uncompressed wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferRecord<'r> {
    pub(crate) rtype: u16,
    /// In seconds.
    pub(crate) ttl: u32,
    pub(crate) data: &'r [u8],
    /// Whether the record has the owner of the previous record.
    pub(crate) has_same_owner: bool,
}

impl ZoneRecords {
    /// Stores the records of a zone.
    ///
    /// # Errors
    ///
    /// Returns the place of a record that is too long for a message over TCP.
    pub(crate) fn new(zone: &Zone) -> Result<Self, Place> {
        let mut bytes = Vec::new();
        let apex = zone.apex_name();
        let owner = apex.map_or(zone.apex(), NameRef::owner);
        let soa = apex.and_then(|apex| apex.rrset(SOA));
        if let Some(soa) = soa {
            push_rrset(&mut bytes, None, soa);
        }
        let mut before = owner;
        for name in zone.names() {
            let is_apex = name.key().is_empty();
            let rrsets = name.rrsets();
            for rrset in rrsets.filter(|rrset| !is_apex || rrset.rtype() != SOA) {
                let longest = rrset.data().map(<[u8]>::len).max().unwrap_or(0);
                if name.owner().len() + longest > MAX_RECORD {
                    return Err(rrset.place());
                }
                push_rrset(&mut bytes, Some((before, name.owner())), rrset);
                before = name.owner();
            }
        }
        Ok(Self {
            apex: owner.into(),
            bytes: bytes.into(),
        })
    }

    /// Returns the size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.apex.len() + self.bytes.len()
    }

    /// Returns a cursor at the first record.
    pub(crate) fn start(&self) -> Cursor {
        let mut owner = NameBuf::new();
        owner.set(&[&self.apex]);
        Cursor { at: 0, owner }
    }
}

/// Appends the records of an RRset. `owners` are the owner of the record before, and that of the RRset;
/// they are the same if it is `None`.
fn push_rrset(bytes: &mut Vec<u8>, owners: Option<(&[u8], &[u8])>, rrset: RrsetRef<'_>) {
    let mut owners = owners.filter(|(before, owner)| before != owner);
    for (data, own_ttl) in rrset.records_with_ttl() {
        match owners.take() {
            None => bytes.push(0),
            Some((before, owner)) => {
                let shared = shared_len(before, owner);
                let new = &owner[..owner.len() - shared];
                bytes.extend([new.len() as u8, shared as u8]);
                bytes.extend_from_slice(new);
            }
        }
        // A signature has the TTL of the RRset that it is for (RFC 4034, section 3).
        let ttl = match rrset.rtype() {
            RRSIG => own_ttl,
            _ => rrset.ttl(),
        };
        bytes.extend(rrset.rtype().to_be_bytes());
        bytes.extend(ttl.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend_from_slice(data);
    }
}

/// Returns the length of the last labels of `name` that are also the last of `other`, the root label
/// included. Unless both names are the same, they have at least one label more.
fn shared_len(other: &[u8], name: &[u8]) -> usize {
    let starts = name::label_starts(name).skip(1);
    let shared = starts.map(|start| &name[start..]).find(|end| {
        let cut = other.len().checked_sub(end.len());
        cut.is_some_and(|cut| {
            other[cut..] == **end && name::label_starts(other).any(|start| start == cut)
        })
    });
    shared.map_or(name::ROOT.len(), <[u8]>::len)
}

/// A position among the records of a zone.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    at: usize,
    owner: NameBuf,
}

impl Cursor {
    /// Returns the bytes at the start of the next record's owner that are new, the number of those that
    /// stay, and the record. Returns `None` after the last record.
    fn peek<'r>(&self, records: &'r ZoneRecords) -> Option<(&'r [u8], usize, TransferRecord<'r>)> {
        let (&new_len, mut rest) = records.bytes.get(self.at..)?.split_first()?;
        let (mut new, mut kept): (&[u8], _) = (&[], self.owner().len());
        if new_len != 0 {
            let (&shared, name) = rest.split_first()?;
            kept = shared.into();
            (new, rest) = name.split_at_checked(new_len.into())?;
        }
        let (&[a, b, c, d, e, f, high, low], data) = rest.split_first_chunk::<FIELDS>()?;
        let record = TransferRecord {
            rtype: u16::from_be_bytes([a, b]),
            ttl: u32::from_be_bytes([c, d, e, f]),
            data: data.get(..u16::from_be_bytes([high, low]).into())?,
            has_same_owner: new_len == 0,
        };
        Some((new, kept, record))
    }

    /// Returns the next record, and moves behind it. Returns `None` after the last record.
    pub(crate) fn next<'r>(&mut self, records: &'r ZoneRecords) -> Option<TransferRecord<'r>> {
        let (new, kept, record) = self.peek(records)?;
        self.at += 1 + FIELDS + record.data.len();
        if !record.has_same_owner {
            self.at += 1 + new.len();
            self.owner.replace_start(new, kept);
        }
        Some(record)
    }

    /// Returns the length that the next record takes at most in a message, in bytes. Returns `None`
    /// after the last record.
    pub(crate) fn next_len(&self, records: &ZoneRecords) -> Option<usize> {
        let (new, kept, record) = self.peek(records)?;
        Some(new.len() + kept + tail::FIELDS + record.data.len())
    }

    /// Returns the owner of the last record.
    pub(crate) fn owner(&self) -> &[u8] {
        self.owner.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;

    #[test]
    fn records_come_back_as_they_were_read() {
        let text = "$ORIGIN Z.\n$TTL 60\n@ A 192.0.2.9\n@ SOA ns H 1 2 3 4 5\n@ NS ns\nNS A 192.0.2.1\n\
                    a.B 30 A 192.0.2.2\na.B 30 A 192.0.2.3\n*.b TXT \"x\"\nxb MX 5 a.b\nb TXT \"\"\n";
        let zone = load_text("zone", None, text).unwrap().zone;
        let records = ZoneRecords::new(&zone).unwrap();
        let mut cursor = records.start();
        let mut found = Vec::new();
        while let Some(record) = cursor.next(&records) {
            let owner = name::Shown(cursor.owner()).to_string();
            found.push((owner, record.rtype, record.ttl, record.data.len()));
        }
        let expected = [
            ("Z.", 6, 60, 6 + 5 + 20),
            ("Z.", 1, 60, 4),
            ("Z.", 2, 60, 6),
            ("b.Z.", 16, 60, 1),
            ("*.b.Z.", 16, 60, 2),
            ("a.B.Z.", 1, 30, 4),
            ("a.B.Z.", 1, 30, 4),
            ("NS.Z.", 1, 60, 4),
            ("xb.Z.", 15, 60, 9),
        ];
        let expected = expected.map(|(owner, rtype, ttl, len)| (owner.to_owned(), rtype, ttl, len));
        assert_eq!(found, expected);
        assert!(cursor.next(&records).is_none());
    }

    #[test]
    fn only_whole_labels_are_shared() {
        let shared = |other: &str, name: &str| {
            let [other, name] = [other, name].map(|text| name::parse(text).unwrap());
            shared_len(&other, &name)
        };
        assert_eq!(shared("a.z", "b.z"), 3);
        assert_eq!(shared("xb.z", "b.z"), 3);
        assert_eq!(shared("z", "a.z"), 3);
        assert_eq!(shared("Z", "a.z"), 1);
        assert_eq!(shared(".", "a"), 1);
        // The label of the first name has the bytes of two labels of the second.
        assert_eq!(shared("a\\001b.z", "b.z"), 3);
    }
}
