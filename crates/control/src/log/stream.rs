//! A standard stream that may fail, or whose reader may be stuck.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, write};

use crate::ready::ready_within;

/// Maximum time for which a line of a server waits for room.
const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum length of a write to a pipe that has room, so that the write does not block.
const PIPE_PIECE: usize = libc::PIPE_BUF;
/// The same for a terminal. Linux gives room to it in blocks of 256 bytes, and a line feed takes two.
const TERMINAL_PIECE: usize = 128;

/// Whether this process is a server, which waits only for a short time.
static IS_SERVER: AtomicBool = AtomicBool::new(false);

/// From now on, a line that finds no room is lost. The threads of a server have more to do than to write.
/// Other commands wait, for example until a person reads on in a pager.
pub(crate) fn limit_waits() {
    IS_SERVER.store(true, Ordering::Relaxed);
}

/// A standard stream. Lines that cannot be written are counted, and the next line that can be written
/// comes after one about them.
#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<State>,
    /// Maximum length of a write.
    piece: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// Number of lines that are lost and not yet told.
    lost: u64,
    /// How the stream ends.
    end: End,
    /// Whether the last line found no room.
    is_stuck: bool,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With a line or a drawing.
    Whole,
    /// With a part of a line.
    CutLine,
    /// With a part of a drawing.
    CutDrawing,
}

impl Stream {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                lost: 0,
                end: End::Whole,
                is_stuck: false,
            }),
            piece: AtomicUsize::new(PIPE_PIECE),
        }
    }

    /// Says that the stream is a terminal. A thread in the sandbox cannot ask.
    pub(super) fn set_terminal(&self) {
        self.piece.store(TERMINAL_PIECE, Ordering::Relaxed);
    }

    /// Writes a line to this stream, which is open at `out`. `describe` is the line about so many lost
    /// ones.
    pub(super) fn write(
        &self,
        out: BorrowedFd<'_>,
        line: &[u8],
        describe: impl FnOnce(u64) -> Vec<u8>,
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = self.piece.load(Ordering::Relaxed);
        let lost = state.lost;
        if lost > 0 && state.write(out, &describe(lost), piece) {
            state.lost = 0;
        }
        if state.lost > 0 || !state.write(out, line, piece) {
            state.lost += 1;
        }
    }

    /// Draws on this stream, which is a terminal. A drawing may be lost without a trace.
    pub(super) fn draw(&self, out: BorrowedFd<'_>, drawing: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The rest of a line would be drawn over.
        if state.end == End::CutLine {
            return;
        }
        let written = state.put(out, drawing, self.piece.load(Ordering::Relaxed));
        if written == drawing.len() {
            state.end = End::Whole;
        } else if written > 0 {
            state.end = End::CutDrawing;
        }
    }
}

impl State {
    /// Writes a line, below a part of another one or of a drawing. Returns `false` if a part of it could not be written.
    fn write(&mut self, out: BorrowedFd<'_>, line: &[u8], piece: usize) -> bool {
        let end = if self.end == End::Whole {
            &b""[..]
        } else {
            b"\n"
        };
        let line = [end, line].concat();
        let written = self.put(out, &line, piece);
        if let Some(last) = line[..written].last() {
            self.end = if *last == b'\n' {
                End::Whole
            } else {
                End::CutLine
            };
        }
        written == line.len()
    }

    /// Writes bytes, and returns the number of those that were written. While a reader is stuck, only the
    /// first line waits for it.
    fn put(&mut self, out: BorrowedFd<'_>, bytes: &[u8], piece: usize) -> usize {
        let is_server = IS_SERVER.load(Ordering::Relaxed);
        let patience = if self.is_stuck {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let until = is_server.then(|| Instant::now() + patience);
        let mut written = 0;
        self.is_stuck = false;
        for piece in bytes.chunks(piece) {
            self.is_stuck = !ready_within(out, PollFlags::OUT, until);
            if self.is_stuck {
                break;
            }
            let len = write_some(out, piece);
            written += len;
            if len < piece.len() {
                break;
            }
        }
        written
    }
}

/// Returns the number of bytes that were written before an error.
fn write_some(out: BorrowedFd<'_>, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match write(out, &bytes[written..]) {
            Ok(0) => break,
            Ok(len) => written += len,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read as _, pipe};
    use std::os::fd::AsFd as _;

    use super::*;

    fn describe(lost: u64) -> Vec<u8> {
        format!("{lost} lost\n").into_bytes()
    }

    fn rest(mut reader: PipeReader) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn lines_that_a_full_disk_loses_are_told_later() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, writer) = pipe().unwrap();
        let stream = Stream::new();
        stream.write(full.as_fd(), b"one\n", describe);
        stream.write(full.as_fd(), b"two\n", describe);
        stream.write(writer.as_fd(), b"three\n", describe);
        stream.write(writer.as_fd(), b"four\n", describe);
        drop(writer);
        assert_eq!(rest(reader), "2 lost\nthree\nfour\n");
    }

    /// Writes in this way 100 times to a pipe, of which nobody reads more than a part. Returns the rest, after
    /// one more line.
    fn after_a_stuck_reader(write: impl Fn(&Stream, BorrowedFd<'_>)) -> String {
        limit_waits();
        let (mut reader, writer) = pipe().unwrap();
        let stream = Stream::new();
        let start = Instant::now();
        for _ in 0..100 {
            write(&stream, writer.as_fd());
        }
        assert!(start.elapsed() < 50 * PATIENCE);
        let mut part = vec![0; 50_000];
        reader.read_exact(&mut part).unwrap();
        stream.write(writer.as_fd(), b"last\n", describe);
        drop(writer);
        rest(reader)
    }

    #[test]
    fn drawings_that_find_no_room_are_not_told() {
        let drawing = vec![b'x'; 50_000];
        let text = after_a_stuck_reader(|stream, writer| stream.draw(writer, &drawing));
        assert!(text.ends_with("x\nlast\n"), "{text}");
    }

    #[test]
    fn a_reader_that_is_stuck_costs_one_short_wait() {
        // Longer than the pipe, whose size is 64 kB.
        let long = [vec![b'x'; 100_000], b"\n".to_vec()].concat();
        let text = after_a_stuck_reader(|stream, writer| stream.write(writer, &long, describe));
        assert!(text.ends_with("x\n100 lost\nlast\n"), "{text}");
    }
}
