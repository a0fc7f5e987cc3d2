//! The frames of Frame Streams as bytes.

use std::io;

use super::unwritten::Unwritten;

/// Length of the length in front of a frame, in bytes.
const LEN: usize = size_of::<u32>();

/// Appends a frame with the content that `write` appends.
pub(super) fn append_frame(frames: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = frames.len();
    frames.extend([0; LEN]);
    write(frames);
    let len = (frames.len() - at - LEN) as u32;
    frames[at..at + LEN].copy_from_slice(&len.to_be_bytes());
}

// The types of control frames, and of the only field in them.
pub(super) const ACCEPT: u32 = 1;
pub(super) const START: u32 = 2;
pub(super) const STOP: u32 = 3;
pub(super) const READY: u32 = 4;
pub(super) const FINISH: u32 = 5;
pub(super) const CONTENT_TYPE: u32 = 1;

/// Returns a control frame. An empty `content_type` is left out.
pub(super) fn control(kind: u32, content_type: &str) -> Vec<u8> {
    let mut payload = kind.to_be_bytes().to_vec();
    if !content_type.is_empty() {
        payload.extend(CONTENT_TYPE.to_be_bytes());
        payload.extend((content_type.len() as u32).to_be_bytes());
        payload.extend(content_type.as_bytes());
    }
    let mut frame = vec![0; 4];
    frame.extend((payload.len() as u32).to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the frames of which nothing is among the first `written` bytes.
pub(super) fn from_next_frame(frames: &[u8], written: usize) -> &[u8] {
    let mut rest = frames;
    while frames.len() - rest.len() < written {
        rest = after_frame(rest);
    }
    rest
}

/// Returns what follows the first frame.
fn after_frame(frames: &[u8]) -> &[u8] {
    let Some((len, rest)) = frames.split_first_chunk() else {
        return &[];
    };
    rest.get(u32::from_be_bytes(*len) as usize..).unwrap_or(&[])
}

/// Names the error, and counts the frames that were not written.
pub(super) fn unwritten_frames(error: io::Error, mut frames: &[u8]) -> Unwritten {
    let mut lines = 0;
    while !frames.is_empty() {
        frames = after_frame(frames);
        lines += 1;
    }
    Unwritten { error, lines }
}
