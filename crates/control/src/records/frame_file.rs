//! A file of frames on a disk that may be full for a while.

use std::io::{self, Write};

use super::frame::{START, STOP, control, from_next_frame, unwritten_frames};
use super::unwritten::{Unwritten, write_all};

/// A file of frames. The rest of a frame that a full disk has cut off is written first, as soon as there
/// is room. So the file always begins with one START, and no frame is cut.
#[derive(Debug)]
pub(super) struct FrameFile<W> {
    file: W,
    /// The rest of the frame that was written in part or not at all, such as START.
    rest: Vec<u8>,
}

impl<W: Write> FrameFile<W> {
    /// Begins a file. If its START cannot be written, also returns the reason.
    pub(super) fn begin(file: W, content_type: &str) -> (Self, io::Result<()>) {
        let rest = control(START, content_type);
        let mut begun = Self { file, rest };
        let outcome = begun.complete();
        (begun, outcome)
    }

    /// Returns the file itself.
    pub(super) fn file(&self) -> &W {
        &self.file
    }

    /// Returns true if the disk has cut off nothing, or if all of it was written later.
    pub(super) fn is_complete(&self) -> bool {
        self.rest.is_empty()
    }

    /// Writes what a full disk has cut off.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        let written = write_all(&mut self.file, &self.rest);
        let len = written
            .as_ref()
            .err()
            .map_or(self.rest.len(), |error| error.1);
        self.rest.drain(..len);
        written.map_err(|(error, _)| error)
    }

    /// Writes complete frames.
    pub(super) fn write(&mut self, frames: &[u8]) -> Result<(), Unwritten> {
        self.complete()
            .map_err(|error| unwritten_frames(error, frames))?;
        write_all(&mut self.file, frames).map_err(|(error, written)| {
            let next = from_next_frame(frames, written);
            let next_at = frames.len() - next.len();
            self.rest.extend_from_slice(&frames[written..next_at]);
            unwritten_frames(error, next)
        })
    }

    /// Ends the file. It is complete as far as the disk has room.
    pub(super) fn end(&mut self) {
        self.rest.extend(control(STOP, ""));
        // The caller asks whether the file is complete.
        let _ = self.complete();
    }
}

#[cfg(test)]
mod tests {
    use super::super::full_disk::Disk;
    use super::super::unwritten::is_full;
    use super::*;

    const FRAMES: &[u8] = b"\0\0\0\x03one\0\0\0\x03two\0\0\0\x05three";

    #[test]
    fn a_file_that_a_full_disk_has_cut_is_completed_first() {
        let start = control(START, "test");
        let last = b"\0\0\0\x04last";
        for room in 0..start.len() + FRAMES.len() {
            let disk = Disk {
                bytes: Vec::new(),
                room,
            };
            let (mut file, begun) = FrameFile::begin(disk, "test");
            assert_eq!(begun.is_ok(), room >= start.len(), "{room}");
            let lost = file.write(FRAMES).unwrap_err();
            // Frames begin at 0, 7 and 14. One that was begun is not lost.
            let begun = room.saturating_sub(start.len()).div_ceil(7).min(3);
            assert_eq!(lost.lines, 3 - begun as u64, "{room}");
            assert!(is_full(&lost.error));
            if !file.is_complete() {
                assert_eq!(file.write(last).unwrap_err().lines, 1);
            }
            file.file.room = 100;
            file.write(last).unwrap();
            file.end();
            let whole = [0, 7, 14, FRAMES.len()][begun];
            let expected = [&start, &FRAMES[..whole], last, &control(STOP, "")].concat();
            assert_eq!(file.file.bytes, expected, "{room}");
            assert!(file.is_complete());
        }
    }

    #[test]
    fn a_file_that_ends_on_a_full_disk_is_completed_later() {
        let disk = Disk {
            bytes: Vec::new(),
            room: 3,
        };
        let (mut file, _) = FrameFile::begin(disk, "test");
        file.end();
        assert!(!file.is_complete());
        file.file.room = 100;
        file.complete().unwrap();
        let expected = [control(START, "test"), control(STOP, "")].concat();
        assert_eq!(file.file.bytes, expected);
    }
}
