//! The EDNS options in replies: NSID (RFC 5001).

use crate::body::Body;
use crate::edns::{EXTENDED_RCODE_AT, Edns, NSID, OPT_LEN, OptionCodes};
use crate::identity::{Identity, MAX_NSID};
use crate::rcode;

/// Size of the fields before an option's data, in bytes: code and length.
const OPTION_FIELDS: usize = 4;
/// Maximum length of an OPT record in a reply, in bytes.
pub(crate) const MAX_OPT: usize = OPT_LEN + OPTION_FIELDS + MAX_NSID;

/// Writes the OPT records of replies. Each responder has its own writer.
#[derive(Debug)]
pub(crate) struct OptWriter {
    /// The record without options, and usually without upper bits of the response code.
    plain: [u8; OPT_LEN],
    /// The record with options.
    record: [u8; MAX_OPT],
}

impl OptWriter {
    /// Creates a writer.
    pub(crate) const fn new() -> Self {
        Self {
            plain: [0; OPT_LEN],
            record: [0; MAX_OPT],
        }
    }

    /// Writes the OPT record of a reply with this body to a query with `edns`. `room` returns the
    /// maximum length of a record with options.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        edns: Edns,
        body: &Body<'_>,
        identity: &Identity,
        room: impl FnOnce() -> usize,
    ) -> &[u8] {
        self.plain = edns.reply();
        if edns.options.may_change_reply() || body.rcode == rcode::BADVERS {
            self.plain[EXTENDED_RCODE_AT] = (body.rcode >> 4) as u8;
            return self.with_options(edns.options, identity, room());
        }
        &self.plain
    }

    /// Adds the options that the query asks for. Adds nothing if the record
    /// would become longer than `room`.
    #[cold]
    #[inline(never)]
    fn with_options(&mut self, codes: OptionCodes, identity: &Identity, room: usize) -> &[u8] {
        let Self { plain, record } = self;
        record[..OPT_LEN].copy_from_slice(plain);
        let mut len = OPT_LEN;
        let mut push = |code: u16, data: &[u8]| {
            let (fields, rest) = record[len..].split_at_mut(OPTION_FIELDS);
            fields[..2].copy_from_slice(&code.to_be_bytes());
            fields[2..].copy_from_slice(&(data.len() as u16).to_be_bytes());
            rest[..data.len()].copy_from_slice(data);
            len += OPTION_FIELDS + data.len();
        };
        // Data in the query's NSID option is ignored (RFC 5001, section 2.2).
        if let Some(nsid) = identity.nsid()
            && codes.contains(NSID)
        {
            push(NSID, nsid);
        }
        if len > room {
            len = OPT_LEN;
        }
        let data_len = (len - OPT_LEN) as u16;
        record[OPT_LEN - 2..OPT_LEN].copy_from_slice(&data_len.to_be_bytes());
        &record[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPT: [u8; OPT_LEN] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

    #[test]
    fn the_nsid_is_written_once_if_there_is_room() {
        let nsid = Identity::new("ab".parse().ok().as_ref(), None, None);
        let none = Identity::default();
        let mut writer = OptWriter::new();
        let mut write = |identity, asked: &[u16], room| {
            writer.plain = OPT;
            let record = writer.with_options(OptionCodes::of(asked), identity, room);
            record.to_vec()
        };
        let record = [&OPT[..OPT_LEN - 1], &[6, 0, 3, 0, 2, b'a', b'b']].concat();
        assert_eq!(write(&nsid, &[NSID], 17), record);
        assert_eq!(write(&nsid, &[NSID, NSID], 99), record);
        assert_eq!(write(&nsid, &[NSID], 16), OPT);
        assert_eq!(write(&nsid, &[10], 99), OPT);
        assert_eq!(write(&none, &[NSID], 99), OPT);
    }
}
