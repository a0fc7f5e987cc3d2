//! Assembles responses that differ from their prepared reply. They have the query of a redirect,
//! further fields, or parts of a file (RFC 9110, section 14).
//!
//! Only heads and the text between parts are assembled. The parts themselves stay slices of the
//! prepared reply, unless they are short.

use std::io::Write as _;
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::answer::{Answer, AnswerForm};
use crate::date::{SLOT_LEN, SlotWriter, Stamp};
use crate::fields::Fields;
use crate::ranges::{MAX_PARTS, Selection};
use crate::redirect_host::RedirectHost;
use crate::reply::{PartialHead, Reply, write_query};
use crate::response::{head_len, write_head_with};
use crate::site::Site;
use crate::status::Status;

/// Maximum length of a response whose slices are copied behind its head, in bytes. Copying it costs
/// less than the packets that end with a slice.
pub(crate) const MAX_JOINED_LEN: usize = 16 << 10;

/// A response, except its assembled bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    pub(crate) status: Status,
    /// Length of the body in bytes.
    pub(crate) body_len: usize,
    pub(crate) rest: Rest,
}

/// What a response contains beside its assembled bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Nothing,
    /// A slice of the prepared reply follows the assembled bytes.
    Slice(Range<usize>),
    /// Slices of the prepared reply lie between slices of the assembled bytes.
    Pieces(Vec<Piece>),
}

/// A piece of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A slice of the assembled bytes.
    Assembled(Range<usize>),
    /// A slice of the prepared reply.
    Prepared(Range<usize>),
}

impl Piece {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Assembled(range) | Self::Prepared(range) => range.len(),
        }
    }
}

/// Assembles responses at the end of a buffer.
pub(crate) struct Assembler<'a> {
    pub(crate) site: &'a Site,
    /// Fields to add to the head. They replace fields of the same name.
    pub(crate) extra: &'a Fields,
    pub(crate) stamp: Stamp,
    pub(crate) slots: &'a mut SlotWriter,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Assembler<'_> {
    /// Assembles the response to the request at the start of `data`, to which `answer` is the answer.
    pub(crate) fn assemble(&mut self, answer: &Answer, data: &[u8]) -> Assembled {
        let (reply, at) = (self.site.reply(answer.reply), self.out.len());
        let value = |from_end: u16| &data[answer.consumed() - usize::from(from_end)..];
        let assembled = match answer.form {
            AnswerForm::Whole | AnswerForm::Login { .. } => self.whole(answer),
            AnswerForm::Head => self.head(answer),
            AnswerForm::Options => self.options(reply),
            AnswerForm::WithQuery { from_end } => {
                let rest = value(from_end);
                let end = rest.iter().position(|b| *b == b' ');
                self.redirect(reply, &rest[..end.unwrap_or(rest.len())])
            }
            AnswerForm::ByRule {
                rule,
                from_end,
                len,
            } => {
                let rest = value(from_end);
                self.by_rule(answer, rule, rest.split_at(usize::from(len)), data)
            }
            AnswerForm::Part { first, end, .. } => self.part(reply, first as usize..end as usize),
            AnswerForm::Parts { from_end, len } => {
                let (from, len) = (value(from_end), usize::from(len));
                match Selection::of(&from[..len], reply.body_len()) {
                    Selection::Parts(parts) => {
                        let assembled = self.parts(reply, &parts);
                        assembled.unwrap_or_else(|| self.whole(answer))
                    }
                    Selection::Part(part) => self.part(reply, part),
                    // Cannot happen: the same value has led to parts.
                    _ => self.whole(answer),
                }
            }
            AnswerForm::NoPart { page } => {
                let site = self.site.owner(answer.reply);
                self.no_part(site, site.reply(page), reply)
            }
            AnswerForm::Error { from_end, len } => {
                let path = &value(from_end)[..usize::from(len)];
                self.error(self.site.owner(answer.reply), reply, path)
            }
        };
        self.join_if_short(at, reply, assembled)
    }

    /// Copies the slices of a short response to its assembled bytes, which begin at offset `at` of the
    /// buffer.
    fn join_if_short(&mut self, at: usize, reply: &Reply, mut assembled: Assembled) -> Assembled {
        let is_long = self.out.len() - at + assembled.body_len > MAX_JOINED_LEN;
        if is_long || reply.disk().is_some() {
            return assembled;
        }
        match &assembled.rest {
            // These bytes include the head, so they are prepared packets.
            Rest::Slice(range) if range.start == 0 => return assembled,
            Rest::Nothing => return assembled,
            Rest::Slice(range) => self.out.extend_from_slice(slice(reply.bytes(), range)),
            Rest::Pieces(pieces) => {
                let own = self.out.clone();
                self.out.truncate(at);
                self.out
                    .extend_from_slice(&join(pieces, &own, reply.bytes()));
            }
        }
        assembled.rest = Rest::Nothing;
        assembled
    }

    /// The whole reply with the extra fields. Of a file that is not kept in memory, the head is always
    /// assembled.
    pub(crate) fn whole(&mut self, answer: &Answer) -> Assembled {
        let (reply, at) = (self.site.reply(answer.reply), self.out.len());
        let from = if self.extra.is_empty() && reply.disk().is_none() {
            0
        } else {
            self.out.extend_from_slice(reply.head());
            self.finish_head(at, reply.slot_at() as usize);
            reply.head().len()
        };
        Assembled {
            status: reply.status(),
            body_len: reply.body_len(),
            rest: Rest::Slice(from..reply.len()),
        }
    }

    /// The head of the reply with the extra fields.
    fn head(&mut self, answer: &Answer) -> Assembled {
        let whole = self.whole(answer);
        let head_len = self.site.reply(answer.reply).head().len();
        let rest = match whole.rest {
            Rest::Slice(range) if range.start < head_len => Rest::Slice(range.start..head_len),
            _ => Rest::Nothing,
        };
        Assembled {
            body_len: 0,
            rest,
            ..whole
        }
    }

    /// The methods for a file, with the fields of its head.
    fn options(&mut self, file: &Reply) -> Assembled {
        let at = self.out.len();
        let slot_at = PartialHead::of(file).write_options(self.out);
        self.finish_head(at, slot_at);
        Assembled {
            status: Status::NoContent,
            body_len: 0,
            rest: Rest::Nothing,
        }
    }

    /// A redirect with a query.
    fn redirect(&mut self, reply: &Reply, query: &[u8]) -> Assembled {
        let at = self.out.len();
        reply.write_with_location(self.out, |out| write_query(query, out));
        self.with_page(at, reply)
    }

    /// A redirect by a rule, whose reply lacks the location. `target` is the path, and what follows
    /// it in the request, which is at the start of `data`.
    fn by_rule(
        &mut self,
        answer: &Answer,
        rule: u16,
        target: (&[u8], &[u8]),
        data: &[u8],
    ) -> Assembled {
        let at = self.out.len();
        let (site, reply) = (self.site.owner(answer.reply), answer.of(self.site));
        let (path, rest) = target;
        let path = if path.is_empty() { b"/" } else { path };
        let end = rest.iter().position(|b| *b == b' ').unwrap_or_default();
        let query = rest[..end].strip_prefix(b"?").unwrap_or_default();
        reply.write_with_location(self.out, |out| {
            let from = out.len();
            if site.write_location(rule, (path, query), out) && !query.is_empty() {
                write_query(query, out);
            }
            if site.settings().redirects_to_own_host {
                RedirectHost::write_own_host(data, from, out);
            }
        });
        self.with_page(at, reply)
    }

    /// The page about an unsatisfiable range of a file of `site`. It has the fields that rules have set for
    /// the file. Those of all responses or of all paths, which rules have removed from the file, are not
    /// among them.
    fn no_part(&mut self, site: &Site, page: &Reply, file: &Reply) -> Assembled {
        let at = self.out.len();
        let common = site.fields();
        let is_replaced = |name: &str, line: &[u8]| {
            let mut own = file.lines_for_errors();
            common.has(name)
                || site.is_from_everywhere(name, line)
                || own.any(|(other, _)| other.eq_ignore_ascii_case(name))
        };
        let own = file.lines_for_errors().map(|(_, line)| line);
        page.write_changed_head(is_replaced, own, self.out);
        self.out.truncate(self.out.len() - "\r\n".len());
        // Writing to a vector does not fail.
        let _ = write!(
            self.out,
            "Content-Range: bytes */{}\r\n\r\n",
            file.body_len()
        );
        self.out.extend_from_slice(page.body());
        self.with_page(at, page)
    }

    /// An error with the fields that the rules of `site` have for this path.
    fn error(&mut self, site: &Site, error: &Reply, path: &[u8]) -> Assembled {
        let at = self.out.len();
        let path = if path.is_empty() { b"/" } else { path };
        site.write_error_head(error, path, self.out);
        self.finish_head(at, error.slot_at() as usize);
        Assembled {
            status: error.status(),
            body_len: error.body_len(),
            rest: Rest::Slice(error.head().len()..error.len()),
        }
    }

    /// Finishes a response whose head and body begin at offset `at` of the buffer.
    fn with_page(&mut self, at: usize, reply: &Reply) -> Assembled {
        let (body_at, slot_at) = (at + head_len(&self.out[at..]), reply.slot_at() as usize);
        let body_len = self.out.len() - body_at;
        if self.extra.is_empty() {
            self.finish_head(at, slot_at);
        } else {
            let body = self.out.split_off(body_at);
            self.finish_head(at, slot_at);
            self.out.extend_from_slice(&body);
        }
        Assembled {
            status: reply.status(),
            body_len,
            rest: Rest::Nothing,
        }
    }

    /// One part of a file.
    fn part(&mut self, reply: &Reply, part: Range<usize>) -> Assembled {
        let at = self.out.len();
        let head = PartialHead::of(reply);
        let slot_at = head.write_single(&part, self.out);
        self.finish_head(at, slot_at);
        Assembled {
            status: Status::PartialContent,
            body_len: part.len(),
            rest: Rest::Slice(head.slice(&part)),
        }
    }

    /// Several parts of a file. Returns `None` if the whole file is not longer.
    fn parts(&mut self, reply: &Reply, parts: &[Range<usize>]) -> Option<Assembled> {
        let at = self.out.len();
        let head = PartialHead::of(reply);
        let boundary = self.site.boundary();
        let mut ends = ArrayVec::<_, MAX_PARTS>::new();
        for part in parts {
            head.write_part(boundary, part, self.out);
            ends.push(self.out.len());
        }
        PartialHead::write_end(boundary, self.out);
        let head_at = self.out.len();
        let body_len = head_at - at + parts.iter().map(Range::len).sum::<usize>();
        if body_len >= reply.body_len() {
            self.out.truncate(at);
            return None;
        }
        let slot_at = head.write_multipart(boundary, body_len, self.out);
        self.finish_head(head_at, slot_at);
        // The head tells the length of the text between the parts, but comes before it.
        let head_len = self.out.len() - head_at;
        self.out[at..].rotate_right(head_len);
        let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
        let mut from = at;
        for (part, end) in parts.iter().zip(ends) {
            let to = head_len + end;
            pieces.push(Piece::Assembled(from..to));
            pieces.push(Piece::Prepared(head.slice(part)));
            from = to;
        }
        pieces.push(Piece::Assembled(from..self.out.len()));
        Some(Assembled {
            status: Status::PartialContent,
            body_len,
            rest: Rest::Pieces(pieces),
        })
    }

    /// Finishes the head between offset `at` of the buffer and its end. Writes the slot, which begins
    /// at offset `slot_at` of the head, and the extra fields.
    fn finish_head(&mut self, at: usize, slot_at: usize) {
        if self.extra.is_empty() {
            let slot = &mut self.out[at + slot_at..][..SLOT_LEN];
            self.slots.write(self.stamp, slot);
        } else {
            let head = self.out.split_off(at);
            let (stamp, slots) = (self.stamp, &mut *self.slots);
            write_head_with(&head, slot_at, self.extra, stamp, slots, self.out);
        }
    }
}

impl Answer {
    /// Appends the complete response to `out`, with `stamp` in its slot. `data` must be the bytes
    /// that were passed to [`Session::next`](crate::Session::next).
    pub fn write(
        &self,
        site: &Site,
        data: &[u8],
        stamp: Stamp,
        slots: &mut SlotWriter,
        out: &mut Vec<u8>,
    ) {
        let mut assembled = Vec::new();
        let mut assembler = Assembler {
            site,
            extra: &Fields::new(),
            stamp,
            slots,
            out: &mut assembled,
        };
        let rest = assembler.assemble(self, data).rest;
        let prepared = self.of(site).bytes();
        match rest {
            Rest::Nothing => out.extend(assembled),
            Rest::Slice(range) => {
                out.extend(assembled);
                let from = out.len();
                out.extend_from_slice(slice(prepared, &range));
                // A response that begins with the prepared head has the slot of that head.
                if range.start == 0 {
                    let slot_at = from + self.of(site).slot_at() as usize;
                    slots.write(stamp, &mut out[slot_at..slot_at + SLOT_LEN]);
                }
            }
            Rest::Pieces(pieces) => out.extend(join(&pieces, &assembled, prepared)),
        }
    }
}

/// Joins pieces of assembled and prepared bytes.
pub(crate) fn join(pieces: &[Piece], assembled: &[u8], prepared: &[u8]) -> Vec<u8> {
    let bytes = pieces.iter().map(|piece| match piece {
        Piece::Assembled(range) => slice(assembled, range),
        Piece::Prepared(range) => slice(prepared, range),
    });
    bytes.collect::<Vec<_>>().concat()
}

/// Returns the bytes in `range`.
fn slice<'b>(bytes: &'b [u8], range: &Range<usize>) -> &'b [u8] {
    &bytes[range.clone()]
}
