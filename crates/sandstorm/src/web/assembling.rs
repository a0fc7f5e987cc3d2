//! Sends answers that differ from their prepared reply.

use std::ops::Range;

use tcpip::{Connection, Contents, MAX_WRITE_LEN, Part, WriteError};

use super::core::{Core, write};
use crate::assembled::{Assembler, MAX_JOINED_LEN, Piece, Rest, slice};
use crate::date::Stamp;
use crate::fields::{Fields, MAX_FIELDS_LEN};
use crate::pending::{Outgoing, OutgoingContent};
use crate::session::{Answer, Form};
use crate::status::Status;

/// Maximum memory of one worker for the text between the parts of files, in bytes. While clients that
/// receive slowly keep it in use, other clients that ask for several parts get the whole file.
const MAX_TEMPORARY_BYTES: u64 = 16 << 20;

// A short part of a file fits into one write together with its head.
const _: () = assert!(MAX_JOINED_LEN + 2 * MAX_FIELDS_LEN + 1_024 <= MAX_WRITE_LEN);

impl Core {
    /// Writes an answer that differs from its prepared reply. Returns the response's status and the
    /// length of its body.
    #[cold]
    pub(super) fn write_assembled<S>(
        &mut self,
        conn: &mut Connection<'_, S>,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<(Status, usize), WriteError> {
        if let Form::Part { first, end } = answer.form
            && (end - first) as usize <= MAX_JOINED_LEN
            && !conn.has_unacknowledged()
        {
            return self.write_short_part(conn, answer, first..end, stamp);
        }
        self.response.clear();
        // The request is offered again when the client has acknowledged what it gets now.
        let max_pieces = if conn.has_unacknowledged() {
            usize::MAX
        } else {
            conn.room()
        };
        let contents = conn.contents();
        let (status, body_len, outgoing) = self.assemble(answer, data, stamp, contents, max_pieces);
        write(conn, &self.out, &outgoing)?;
        Ok((status, body_len))
    }

    /// Writes the answer with a short part of a file. The client must have acknowledged all data. The
    /// part is copied only once, directly behind its head.
    #[inline]
    fn write_short_part<S>(
        &mut self,
        conn: &mut Connection<'_, S>,
        answer: &Answer,
        part: Range<u32>,
        stamp: Stamp,
    ) -> Result<(Status, usize), WriteError> {
        let reply = self.site.reply(answer.reply);
        self.out.clear();
        let mut assembler = Assembler {
            site: &self.site,
            extra: &Fields::new(),
            stamp,
            slots: &mut self.slots,
            out: &mut self.out,
        };
        let assembled = assembler.part(reply, part);
        conn.write_bytes(&self.out)?;
        // Cannot fail: the head is alone in its buffer, which has room for the part.
        if let Rest::Slice(part) = assembled.rest
            && conn.write_bytes(slice(reply.bytes(), &part)).is_err()
        {
            conn.abort();
        }
        Ok((assembled.status, assembled.body_len))
    }

    /// Assembles an answer of the site in `out`, with the fields of `response`. Returns the status,
    /// the length of the body, and the part of the response that follows `out`. A response of more
    /// than `max_pieces` pieces is the whole file instead.
    pub(super) fn assemble(
        &mut self,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
        contents: &Contents,
        max_pieces: usize,
    ) -> (Status, usize, Outgoing) {
        self.out.clear();
        let mut assembler = Assembler {
            site: &self.site,
            extra: self.response.fields(),
            stamp,
            slots: &mut self.slots,
            out: &mut self.out,
        };
        let mut assembled = assembler.assemble(answer, data);
        if let Rest::Pieces(pieces) = &assembled.rest {
            let temporary = contents.totals().temporary_bytes + assembler.out.len() as u64;
            if temporary > MAX_TEMPORARY_BYTES || pieces.len() > max_pieces {
                // Too many clients are slow to receive their parts. A server may always ignore
                // ranges.
                assembler.out.clear();
                assembled = assembler.whole(answer);
            }
        }
        let content = self.prepared[answer.reply.index()].content;
        let rest = match assembled.rest {
            Rest::Nothing => OutgoingContent::None,
            Rest::Slice(range) => OutgoingContent::Slice(content, range),
            Rest::Pieces(pieces) => {
                let part = |piece| match piece {
                    Piece::Assembled(range) => Part::Own(range),
                    Piece::Prepared(range) => Part::Of(content, range),
                };
                OutgoingContent::Parts(pieces.into_iter().map(part).collect())
            }
        };
        let outgoing = Outgoing::new(rest, stamp);
        (assembled.status, assembled.body_len, outgoing)
    }
}
