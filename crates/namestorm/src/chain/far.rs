//! Writes records that lie beyond the reach of compression pointers (RFC 1035, section 4.1.4).
//!
//! A pointer reaches only the first 16 kB of a message. A name beyond them is written with its labels
//! wherever it occurs. Such long messages are rare, so this code is apart from the usual path.

use std::ops::Range;

use ip::Sum;

use super::{Chain, Move, NamePlace, Piece, Stop};
use crate::name;
use crate::rtype::{CNAME, layout};
use crate::tail::{FIELDS, MAX_POINTER, POINTER, POINTER_BITS, split_name};

/// Writes bytes to the tail of a message.
struct Writer<'c> {
    tail: &'c mut [u8],
    /// Number of bytes that are written.
    len: usize,
}

impl Writer<'_> {
    /// Returns `None` if there is no room.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.tail.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Writes bytes of the tail again. Returns `None` if there is no room.
    fn repeat(&mut self, range: Range<usize>) -> Option<()> {
        let end = self.len + range.len();
        self.tail.get(self.len..end)?;
        self.tail.copy_within(range, self.len);
        self.len = end;
        Some(())
    }
}

/// Copies records of a prepared answer.
struct Copier<'c, 'p> {
    to: Writer<'c>,
    /// The whole tail of the prepared answer.
    from: &'p [u8],
    moves: Move<'c>,
}

impl Copier<'_, '_> {
    /// Copies the record at offset `at` of the answer. Returns the offset of the next one, or `None` if
    /// there is no room.
    fn record(&mut self, at: usize) -> Option<usize> {
        let fields_at = self.name(at)?;
        let data_at = fields_at + FIELDS;
        let fields = &self.from[fields_at..data_at];
        self.to.push(fields)?;
        let word = |at: usize| u16::from_be_bytes([fields[at], fields[at + 1]]);
        let (layout, end) = (layout(word(0)), data_at + usize::from(word(8)));
        let new_at = self.to.len;
        let mut at = data_at + layout.fixed;
        self.to.push(&self.from[data_at..at])?;
        for _ in 0..layout.names {
            at = self.name(at)?;
        }
        self.to.push(&self.from[at..end])?;
        let len = (self.to.len - new_at) as u16;
        self.to.tail[new_at - 2..new_at].copy_from_slice(&len.to_be_bytes());
        Some(end)
    }

    /// Copies the name at offset `at` of the answer. Returns the offset of its end, or `None` if there is
    /// no room.
    ///
    /// A name that is written with its labels moves the names after it. No pointer leads to them,
    /// because they are out of reach anyway.
    fn name(&mut self, at: usize) -> Option<usize> {
        let mut from = at;
        let mut end = None;
        loop {
            let (labels, to) = split_name(&self.from[from..]);
            self.to.push(labels)?;
            let rest = to.map_or(name::ROOT.len(), |_| POINTER);
            let end = *end.get_or_insert(from + labels.len() + rest);
            let Some(to) = to else {
                return self.to.push(name::ROOT).map(|()| end);
            };
            let new = self.moves.target(to);
            if new < MAX_POINTER {
                let pointer = POINTER_BITS | new as u16;
                return self.to.push(&pointer.to_be_bytes()).map(|()| end);
            }
            match self.moves.offset_in_answer(to) {
                Some(offset) => from = offset,
                None => return self.name_of_chain(to).map(|()| end),
            }
        }
    }

    /// Writes a name of the chain that is out of reach. [`Chain::step_far`] has written it as a whole.
    fn name_of_chain(&mut self, to: u16) -> Option<()> {
        let Move { names, tail_at, .. } = self.moves;
        let (step, offset) = names.written_at(self.moves.step, self.moves.offset_in_name(to));
        let NamePlace { at, len, .. } = names.0[step];
        let start = at - tail_at;
        self.to.repeat(start + offset..start + len)
    }
}

impl Chain<'_, '_, '_> {
    /// Does what [`append_part`](Self::append_part) does, if there are pointers that cannot reach so far.
    #[cold]
    #[inline(never)]
    pub(super) fn append_far(
        &mut self,
        piece: &Piece<'_>,
        range: Range<usize>,
        counts: [u16; 3],
        before: usize,
    ) -> bool {
        let (tail_at, places) = (self.tail_at(), (before, self.len));
        let moves = piece.moves(&self.names, tail_at, range.start, places);
        let mut copier = Copier {
            to: Writer {
                tail: self.tail,
                len: self.len,
            },
            from: piece.answer.tail().bytes,
            moves,
        };
        let mut at = range.start;
        while at < range.end {
            match copier.record(at) {
                Some(next) => at = next,
                None => return false,
            }
        }
        let end = copier.to.len;
        self.count_written(end, counts);
        true
    }

    /// Writes the records of [`step`](Self::step) with whole names.
    #[cold]
    #[inline(never)]
    pub(super) fn step_far(
        &mut self,
        from: &[u8],
        fields: &[u8],
        signatures: &[u8],
    ) -> Result<(), Stop> {
        let at = self.tail_at() + self.len + from.len() + FIELDS;
        let to = self.name.bytes();
        let mut writer = Writer {
            tail: self.tail,
            len: self.len,
        };
        let records = write_step(&mut writer, (from, to), fields, signatures);
        let (end, records) = (writer.len, records.ok_or(Stop::NoRoom)?);
        // The number of steps is bounded.
        let _ = self.names.0.try_push(NamePlace {
            at,
            len: to.len(),
            rest: (0, 0),
        });
        self.count_written(end, [records, 0, 0]);
        Ok(())
    }

    /// Counts the records of each section in the bytes up to offset `end` of the tail.
    fn count_written(&mut self, end: usize, counts: [u16; 3]) {
        let sum = Sum::of(&self.tail[self.len..end]);
        self.count(end - self.len, sum, counts);
    }
}

/// Writes a CNAME record with its signatures. Returns the number of records, or `None` if there is no
/// room.
fn write_step(
    writer: &mut Writer<'_>,
    (from, to): (&[u8], &[u8]),
    fields: &[u8],
    mut signatures: &[u8],
) -> Option<u16> {
    writer.push(from)?;
    writer.push(&CNAME.to_be_bytes())?;
    writer.push(&fields[2..8])?;
    writer.push(&(to.len() as u16).to_be_bytes())?;
    writer.push(to)?;
    let mut records = 1;
    while !signatures.is_empty() {
        let data_len = u16::from_be_bytes([signatures[10], signatures[11]]);
        let (record, rest) = signatures.split_at(POINTER + FIELDS + usize::from(data_len));
        writer.push(from)?;
        writer.push(&record[POINTER..])?;
        signatures = rest;
        records += 1;
    }
    Some(records)
}
