//! Writes the messages of a transfer.

use crate::name;
use crate::rtype;
use crate::tail::{POINTER_BITS, QUESTION_AT, QUESTION_REST, push_fields, set_data_len};
use crate::zone_records::TransferRecord;

/// Size of the length field before a message over TCP, in bytes.
pub(crate) const LENGTH: usize = 2;

/// A message that is being written.
pub(super) struct Message<'o> {
    out: &'o mut Vec<u8>,
    /// Where the message begins in `out`.
    start: usize,
    /// Length of the header and the question, in bytes.
    head_len: usize,
    /// Maximum length of the message, unless it has a single record.
    room: usize,
    answers: u16,
    /// The place in the message of the last record's owner.
    last_owner: Option<u16>,
}

impl<'o> Message<'o> {
    /// Starts a message with this header and question. It holds at most `room` bytes, or a single record.
    pub(super) fn new(out: &'o mut Vec<u8>, head: &[u8], room: usize) -> Self {
        out.extend([0; LENGTH]);
        let start = out.len();
        out.extend_from_slice(head);
        Self {
            out,
            start,
            head_len: head.len(),
            room,
            answers: 0,
            last_owner: None,
        }
    }

    /// Returns the name in the question.
    fn qname(&self) -> &[u8] {
        &self.out[self.start..][QUESTION_AT..self.head_len - QUESTION_REST]
    }

    /// Returns true if a record of at most `len` bytes fits.
    pub(super) fn has_room_for(&self, len: usize) -> bool {
        self.answers == 0 || self.out.len() - self.start + len <= self.room
    }

    /// Same as [`push`](Self::push), for the first record of a zone.
    pub(super) fn push_first(&mut self, owner: &[u8], record: TransferRecord<'_>) {
        self.last_owner = None;
        self.push(owner, record);
    }

    /// Appends a record to the answers. Its owner may be the owner of the previous record.
    pub(super) fn push(&mut self, owner: &[u8], record: TransferRecord<'_>) {
        let TransferRecord {
            rtype, ttl, data, ..
        } = record;
        match self.last_owner {
            Some(at) if record.has_same_owner => self.pointer(at),
            _ => {
                let at = self.out.len() - self.start;
                self.last_owner = Some(if self.qname() == owner {
                    QUESTION_AT
                } else {
                    at
                } as u16);
                self.name(owner);
            }
        }
        let data_at = push_fields(self.out, rtype, ttl);
        let (fixed, names, rest) = rtype::split_data(rtype, data);
        self.out.extend_from_slice(fixed);
        for name in names {
            self.name(name);
        }
        self.out.extend_from_slice(rest);
        set_data_len(self.out, data_at);
        self.answers += 1;
    }

    /// Appends a name. If it ends with the name in the question, a pointer replaces this end. The case
    /// must be the same, because a transfer must not change it (RFC 5936, section 3.4).
    fn name(&mut self, name: &[u8]) {
        let qname = self.qname();
        let own = name.len().checked_sub(qname.len());
        match own.filter(|own| qname != name::ROOT && name[*own..] == *qname) {
            Some(own) if name::label_starts(name).any(|start| start == own) => {
                self.out.extend_from_slice(&name[..own]);
                self.pointer(QUESTION_AT as u16);
            }
            _ => self.out.extend_from_slice(name),
        }
    }

    fn pointer(&mut self, to: u16) {
        self.out.extend((POINTER_BITS | to).to_be_bytes());
    }

    /// Completes the message, except its length field. It ends with this OPT record if it then has at most
    /// `max` bytes. The record may be empty.
    pub(super) fn finish(self, opt: &[u8], max: usize) {
        let has_room = self.out.len() - self.start + opt.len() <= max;
        let opt = if has_room { opt } else { &[] };
        self.out.extend_from_slice(opt);
        let message = &mut self.out[self.start..];
        message[6..8].copy_from_slice(&self.answers.to_be_bytes());
        message[10..12].copy_from_slice(&u16::from(!opt.is_empty()).to_be_bytes());
    }
}

/// Sets the length field at offset `at` of the message that ends with `out`.
pub(crate) fn set_length(out: &mut [u8], at: usize) {
    let len = (out.len() - at - LENGTH) as u16;
    out[at..at + LENGTH].copy_from_slice(&len.to_be_bytes());
}
