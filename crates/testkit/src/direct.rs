//! A client of one connection that reaches a server without a link.

use std::time::Duration;

use nmio::sim::Sink;
use nmio::{Frame, Instant, Port as _};

use crate::packet::Route;
use crate::segment::{ACK, Layout, SYN, Segment, read_segment};

/// The client's port.
const PORT: u16 = 40_000;
/// The server's port.
const SERVER_PORT: u16 = 80;

/// A client of one connection. It hands each segment to the server in a call, and reads the last segment
/// that the server has sent.
pub struct Direct {
    sink: Sink,
    now: Instant,
    seq: u32,
    ack: u32,
}

impl Direct {
    /// Creates a client that has sent nothing yet. The server sends to `sink`.
    pub fn new(sink: Sink, now: Instant) -> Self {
        Self {
            sink,
            now,
            seq: 0,
            ack: 0,
        }
    }

    /// Establishes the connection. `handle` lets the server handle a frame.
    pub fn connect(&mut self, mut handle: impl FnMut(&mut Sink, Frame, Instant)) {
        self.pass(SYN, b"", &mut handle);
        self.pass(ACK, b"", &mut handle);
    }

    /// Sends `data`, and acknowledges what the server sends, a millisecond later each time, until it sends
    /// nothing more. `handle` lets the server handle a frame, and returns a count. Returns their sum.
    pub fn request(
        &mut self,
        data: &[u8],
        mut handle: impl FnMut(&mut Sink, Frame, Instant) -> u64,
    ) -> u64 {
        let mut count = self.pass(ACK, data, &mut handle);
        loop {
            let before = self.ack;
            self.now = self.now + Duration::from_millis(1);
            count += self.pass(ACK, b"", &mut handle);
            if self.ack == before {
                return count;
            }
        }
    }

    /// Passes a segment to the server, and returns what `handle` returns.
    fn pass<T>(
        &mut self,
        bits: u16,
        data: &[u8],
        handle: impl FnOnce(&mut Sink, Frame, Instant) -> T,
    ) -> T {
        let segment = Segment::of_client(bits, self.seq, self.ack, data);
        self.seq = self.seq.wrapping_add(segment.span());
        let frame = Route::to_server(false, PORT, SERVER_PORT).segment(&segment, Layout::Usual);
        let frame = self.sink.frame_from(&frame);
        let before = self.sink.counters().tx_frames;
        let result = handle(&mut self.sink, frame, self.now);
        if self.sink.counters().tx_frames > before {
            let sent = read_segment(self.sink.last()).expect("a segment").segment;
            self.ack = sent.seq.wrapping_add(sent.span());
        }
        result
    }
}
