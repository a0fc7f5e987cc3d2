//! Sends answers that differ from their prepared reply.

use std::ops::Range;
use std::sync::Arc;

use tcpip::{Connection, Contents, MAX_WRITE_LEN, Part, WriteError};

use super::conversation::Conn;
use super::core::Core;
use super::writing::{Written, write};
use crate::answer::{Answer, AnswerForm};
use crate::assembled::{Assembler, MAX_JOINED_LEN, Piece, Rest};
use crate::date::{SLOT_LEN, Stamp};
use crate::fields::MAX_FIELDS_LEN;
use crate::login::Login;
use crate::pending::{Outgoing, OutgoingContent};
use crate::status::Status;

/// Maximum memory of one worker for the text between the parts of files, in bytes. While clients that
/// receive slowly keep it in use, other clients that ask for several parts get the whole file.
const MAX_TEMPORARY_BYTES: u64 = 16 << 20;

// A short part of a file fits into one write together with its head.
const _: () = assert!(MAX_JOINED_LEN + 2 * MAX_FIELDS_LEN + 1_024 <= MAX_WRITE_LEN);

impl Core {
    /// Writes an answer that differs from its prepared reply, or whose file is on the disk.
    #[cold]
    pub(super) fn write_assembled<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<Written, WriteError> {
        if let AnswerForm::Login { .. } = answer.form {
            return self.write_after_login(conn, answer, data, stamp);
        }
        conn.state().login = Login::Unknown;
        if let AnswerForm::Part { first, end, recurs } = answer.form
            && (end - first) as usize <= MAX_JOINED_LEN
            && self.site.reply(answer.reply).disk().is_none()
        {
            let part = first as usize..end as usize;
            if recurs && let Some(kept) = self.keep_part(conn, answer, &part, data) {
                return self.write_answer(conn, &kept, data, stamp);
            }
            if !conn.has_unacknowledged() {
                let (status, body_len) = self.write_short_part(conn, answer, part, stamp)?;
                return Ok(Written::Response(status, body_len));
            }
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
        if let OutgoingContent::Disk(..) = outgoing.content {
            let head = &data[..answer.consumed().min(data.len())];
            let response = (self.hosted(answer), status, body_len);
            let continuation = self.begin_download(conn, response, head, outgoing);
            return Ok(Written::Other(continuation));
        }
        write(conn, &self.out, &outgoing)?;
        Ok(Written::Response(status, body_len))
    }

    /// Writes the answer with a short part of a file. The client must have acknowledged all data. Head and
    /// part are made directly in the buffer that they are sent from.
    #[inline]
    fn write_short_part<S>(
        &mut self,
        conn: &mut Connection<'_, S>,
        answer: &Answer,
        part: Range<usize>,
        stamp: Stamp,
    ) -> Result<(Status, usize), WriteError> {
        let Self { site, slots, .. } = self;
        let reply = site.reply(answer.reply);
        conn.write_with(|out| {
            let slot_at = reply.write_with_part(&part, out);
            slots.write(stamp, &mut out[slot_at..][..SLOT_LEN]);
        })?;
        Ok((Status::PartialContent, part.len()))
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
        let reply = self.site.reply(answer.reply);
        let mut assembled = assembler.assemble(answer, data);
        if let Rest::Pieces(pieces) = &assembled.rest {
            let temporary = contents.totals().temporary_bytes + self.downloads.own_bytes() as u64;
            let temporary = temporary + assembler.out.len() as u64;
            let has_room = pieces.len() <= max_pieces || reply.disk().is_some();
            if temporary > MAX_TEMPORARY_BYTES || !has_room {
                // Too many clients are slow to receive their parts. A server may always ignore
                // ranges.
                assembler.out.clear();
                assembled = assembler.whole(answer);
            }
        }
        let content = self.prepared[answer.reply.index()].content;
        // Replies in memory are shorter than 4 GiB.
        let short = |range: Range<usize>| range.start as u32..range.end as u32;
        let rest = match (assembled.rest, reply.disk()) {
            (Rest::Nothing, _) => OutgoingContent::None,
            (rest, Some(file)) => {
                let spare = self.downloads.spare_pieces();
                let lens = (self.out.len(), reply.head().len());
                let pieces = pieces_in_file(rest, lens, spare);
                OutgoingContent::Disk(Arc::clone(file), pieces)
            }
            (Rest::Slice(range), None) => OutgoingContent::Slice(content, short(range)),
            (Rest::Pieces(pieces), None) => {
                let part = |piece| match piece {
                    Piece::Assembled(range) => Part::Own(short(range)),
                    Piece::Prepared(range) => Part::Of(content, short(range)),
                };
                OutgoingContent::Parts(pieces.into_iter().map(part).collect())
            }
        };
        let outgoing = Outgoing::new(rest, stamp);
        (assembled.status, assembled.body_len, outgoing)
    }
}

/// Returns the pieces of a response, of which `out_len` bytes are assembled. Prepared pieces become
/// ranges of the file, whose reply begins with `head_len` other bytes. `pieces` is an empty list.
fn pieces_in_file(
    rest: Rest,
    (out_len, head_len): (usize, usize),
    mut pieces: Vec<Piece>,
) -> Vec<Piece> {
    let in_file =
        |range: Range<usize>| Piece::Prepared(range.start - head_len..range.end - head_len);
    match rest {
        Rest::Nothing => pieces.push(Piece::Assembled(0..out_len)),
        Rest::Slice(range) => pieces.extend([Piece::Assembled(0..out_len), in_file(range)]),
        Rest::Pieces(several) => pieces.extend(several.into_iter().map(|piece| match piece {
            Piece::Prepared(range) => in_file(range),
            assembled @ Piece::Assembled(_) => assembled,
        })),
    }
    pieces
}
