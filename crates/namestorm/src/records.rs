//! The records in a hook's answer.

use std::net::IpAddr;

use udpip::Tail;

use crate::body::Body;
use crate::edns::OPT_LEN;
use crate::name::Name;
use crate::rcode;
use crate::rdata;
use crate::rtype;
use crate::tail::{
    Base, FIELDS, MAX_TCP_MESSAGE, POINTER, QUESTION_AT, TailWriter, push_fields, set_data_len,
};

/// Maximum length of a message with a hook's records, in bytes. It leaves room for an OPT record
/// over TCP.
const MAX_MESSAGE: usize = MAX_TCP_MESSAGE - OPT_LEN;
/// Maximum length of a record's data, in bytes.
const MAX_DATA: usize = 65_535;
/// The largest TTL, in seconds (RFC 2181, section 8).
const MAX_TTL: u32 = i32::MAX.cast_unsigned();
/// Maximum length of a string in a TXT record, in bytes (RFC 1035, section 3.3).
const MAX_STRING: usize = 255;

/// The reason why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The type is reserved for questions and metadata (RFC 6895, section 3.1).
    #[error("type {0} is only for questions: no record can have it")]
    Type(u16),
    /// The TTL is too large.
    #[error("a TTL of {0} s exceeds the maximum of {MAX_TTL} s")]
    Ttl(u32),
    /// The data is not valid for the type, or a name in it is compressed.
    #[error("the data is not valid for type {0}: give complete data without compressed names")]
    Data(u16),
    /// The message would exceed the maximum length over TCP.
    #[error("the answer would be longer than a message over TCP: give fewer records")]
    TooLong,
    /// The record's section comes before the section of a record that was already added.
    #[error(
        "a later section already has records: add answers first, then authority, then additional \
         records"
    )]
    Order,
}

/// A section of an answer (RFC 1035, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The records that answer the question.
    Answer,
    /// Records about the authoritative zone: its SOA record or its name servers.
    Authority,
    /// Records that the client may need next, such as addresses. All of them are left out if the
    /// message would be too long with them.
    Additional,
}

/// An RRset that is checked and encoded once and then used in many answers. To change the records,
/// replace the whole RRset.
///
/// The records take the qname of the answered question as their owner.
///
/// ```
/// use std::net::Ipv4Addr;
/// use namestorm::{Rrset, rtype};
///
/// let servers = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
/// let healthy = Rrset::new(rtype::A, 30, servers.map(|server| server.octets()))?;
/// assert_eq!((healthy.rtype(), healthy.len()), (rtype::A, 2));
/// # Ok::<(), namestorm::RecordError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rrset {
    rtype: u16,
    count: u16,
    /// The composed records, whose owner is a compression pointer to the qname.
    bytes: Box<[u8]>,
}

impl Rrset {
    /// Composes one record for each item of `data`. The items are in wire format. All records have
    /// the same type and TTL (in seconds, at most 2^31 - 1).
    ///
    /// # Errors
    ///
    /// See [`RecordError`].
    pub fn new<D: AsRef<[u8]>>(
        rtype: u16,
        ttl: u32,
        data: impl IntoIterator<Item = D>,
    ) -> Result<Self, RecordError> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for data in data {
            let data = data.as_ref();
            check(rtype, ttl, data)?;
            bytes.extend((0xc000 | QUESTION_AT as u16).to_be_bytes());
            let data_at = push_fields(&mut bytes, rtype, ttl);
            bytes.extend_from_slice(data);
            set_data_len(&mut bytes, data_at);
            if bytes.len() > MAX_MESSAGE {
                return Err(RecordError::TooLong);
            }
            count += 1;
        }
        Ok(Self {
            rtype,
            count,
            bytes: bytes.into(),
        })
    }

    /// Returns the type of the records.
    pub fn rtype(&self) -> u16 {
        self.rtype
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Counting the records of a message in a `u16` cannot overflow: a message has room for fewer than
/// 65,535 records.
const _: () = assert!(MAX_MESSAGE / (POINTER + FIELDS) < u16::MAX as usize);

/// Checks the type, TTL and data of a record.
fn check(rtype: u16, ttl: u32, data: &[u8]) -> Result<(), RecordError> {
    if !rtype::is_data(rtype) {
        return Err(RecordError::Type(rtype));
    }
    if ttl > MAX_TTL {
        return Err(RecordError::Ttl(ttl));
    }
    if data.len() > MAX_DATA {
        return Err(RecordError::TooLong);
    }
    if rdata::check(rtype, data).is_err() {
        return Err(RecordError::Data(rtype));
    }
    Ok(())
}

/// Composes a hook's records. Each responder has its own composer.
#[derive(Debug)]
pub(crate) struct Composer {
    writer: TailWriter,
    /// Number of records in each section.
    counts: [u16; 3],
    /// Length of the answer and authority sections, in bytes.
    required: usize,
}

impl Composer {
    /// Creates a composer that allocates memory on first use.
    pub(crate) fn new() -> Self {
        Self {
            writer: TailWriter::new(),
            counts: [0; 3],
            required: 0,
        }
    }

    /// Allocates all the memory that the composer can ever need, so that it does not allocate
    /// during queries.
    pub(crate) fn reserve(&mut self) {
        self.writer.reserve();
    }

    /// Returns the capacity of each buffer.
    #[cfg(test)]
    fn memory(&self) -> [usize; 5] {
        self.writer.memory()
    }

    /// Starts an empty answer to a question for `name`.
    pub(crate) fn start<'r>(&'r mut self, name: &'r [u8]) -> Records<'r> {
        self.writer.start(name, Base::Exact);
        self.counts = [0; 3];
        self.required = 0;
        Records {
            composer: self,
            name,
        }
    }

    /// Returns true if no records were composed.
    pub(crate) fn is_empty(&self) -> bool {
        self.writer.bytes().is_empty()
    }

    /// Returns the composed answer.
    pub(crate) fn body(&self) -> Body<'_> {
        let [a, b, c] = self.counts.map(u16::to_be_bytes);
        let bytes = self.writer.bytes();
        let has_additional = self.counts[2] > 0;
        Body {
            tail: Tail::new(bytes),
            rcode: rcode::NOERROR,
            authoritative: true,
            counts: [a[0], a[1], b[0], b[1], c[0], c[1]],
            required: has_additional.then(|| (Tail::new(&bytes[..self.required]), 0)),
            error: None,
            prepared: None,
        }
    }

    /// Calls `write`, which writes `count` records to a section and returns `false` if they do not
    /// fit. Returns an error, and keeps none of the records, if they do not fit or a later section
    /// already has records.
    fn write(
        &mut self,
        section: Section,
        count: u16,
        write: impl FnOnce(&mut TailWriter) -> bool,
    ) -> Result<(), RecordError> {
        let at = section as usize;
        if self.counts[at + 1..].iter().any(|later| *later > 0) {
            return Err(RecordError::Order);
        }
        let mark = self.writer.mark();
        if !write(&mut self.writer) || self.writer.message_len() > MAX_MESSAGE {
            self.writer.rewind(mark);
            return Err(RecordError::TooLong);
        }
        self.counts[at] += count;
        if section != Section::Additional {
            self.required = self.writer.bytes().len();
        }
        Ok(())
    }
}

/// The answer to one question, to which a hook adds records.
///
/// A single record is checked and composed when it is added. Names in it are compressed if its type
/// allows that. An [`Rrset`] has been checked and composed before, without compression in its data.
///
/// If the answer exceeds the client's UDP limit even without additional records, the client
/// receives a truncated reply without records. The client then asks again over TCP. A record that
/// would make the answer too long for TCP is refused with a [`RecordError`].
#[derive(Debug)]
pub struct Records<'r> {
    composer: &'r mut Composer,
    name: &'r [u8],
}

impl Records<'_> {
    /// Adds a record with the qname as its owner to the answer section. `ttl` is in seconds, at
    /// most 2^31 - 1. `data` is in wire format, without compressed names.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`], and adds nothing, if the record is refused.
    pub fn add(&mut self, rtype: u16, ttl: u32, data: &[u8]) -> Result<(), RecordError> {
        self.record(Section::Answer, None, rtype, ttl, data)
    }

    /// Adds a record with any owner to a section. See [`add`](Self::add) for `ttl` and `data`.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`], and adds nothing, if the record is refused.
    pub fn add_to(
        &mut self,
        section: Section,
        owner: &Name,
        rtype: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), RecordError> {
        self.record(section, Some(owner), rtype, ttl, data)
    }

    /// Adds an A or AAAA record with the qname as its owner to the answer section.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`], and adds nothing, if the record is refused.
    pub fn add_address(&mut self, ttl: u32, address: IpAddr) -> Result<(), RecordError> {
        match address {
            IpAddr::V4(v4) => self.add(rtype::A, ttl, &v4.octets()),
            IpAddr::V6(v6) => self.add(rtype::AAAA, ttl, &v6.octets()),
        }
    }

    /// Adds a TXT record with the qname as its owner to the answer section. The record holds a
    /// single string, `text`, of at most 255 bytes. For a longer text, call [`add`](Self::add) with
    /// several strings in `data`.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`], and adds nothing, if the record is refused.
    pub fn add_text(&mut self, ttl: u32, text: &str) -> Result<(), RecordError> {
        if text.len() > MAX_STRING {
            return Err(RecordError::Data(rtype::TXT));
        }
        let mut data = [0; 1 + MAX_STRING];
        data[0] = text.len() as u8;
        data[1..=text.len()].copy_from_slice(text.as_bytes());
        self.add(rtype::TXT, ttl, &data[..=text.len()])
    }

    /// Adds an RRset to the answer section, with the qname as its owner.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::TooLong`] or [`RecordError::Order`], and adds nothing, if the RRset
    /// is refused.
    pub fn add_rrset(&mut self, rrset: &Rrset) -> Result<(), RecordError> {
        self.composer.write(Section::Answer, rrset.count, |writer| {
            writer.write_composed(&rrset.bytes).is_ok()
        })
    }

    fn record(
        &mut self,
        section: Section,
        owner: Option<&Name>,
        rtype: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), RecordError> {
        check(rtype, ttl, data)?;
        let owner = owner.map_or(self.name, Name::as_wire);
        self.composer.write(section, 1, |writer| {
            writer.record(owner, rtype, ttl, data).is_ok()
        })
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
