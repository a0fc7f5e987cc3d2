//! An application that records what it writes and checks what it receives.

use std::collections::HashMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use tcpip::{
    Application, CloseReason, Connection, ConnectionId, ContentId, MAX_WRITE_LEN, Slot, WriteError,
};

use super::client::bytes_at;
use super::stream::Stream;

/// How the application handles received data.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Habit {
    /// Consumes everything and writes nothing.
    Silent,
    /// Consumes nothing.
    Lazy,
    /// Writes the received data back.
    Echo,
    /// Answers each byte with the content item.
    Serve,
    /// Answers the first byte with the content item and closes.
    ServeOnce,
    /// Aborts the connection.
    Abort,
    /// Consumes two bytes per callback.
    Sip,
    /// Makes the scripted calls.
    Script,
}

/// A scripted call of the application.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Call {
    Write,
    WriteBytes(u16),
    WriteTooMuch,
    WriteRemoved,
    Close,
    Abort,
    /// Consumes this number of bytes if called for received data.
    Consume(u8),
}

/// Maximum number of pending calls for a connection.
const MAX_CALLS: usize = 256;

/// The application's state of a connection: the client's key, and the number of bytes consumed.
#[derive(Default)]
pub(super) struct State {
    key: (u16, bool),
    consumed: u32,
}

type Conn<'a> = Connection<'a, State>;

pub(super) struct App {
    pub(super) habit: Habit,
    pub(super) refuse: bool,
    pub(super) greet: bool,
    pub(super) close_back: bool,
    pub(super) content: Option<ContentId>,
    /// The content item that was removed last.
    pub(super) removed: Option<ContentId>,
    pub(super) bytes: Arc<[u8]>,
    stamp: u64,
    pub(super) streams: HashMap<(u16, bool), Stream>,
    /// Acknowledgement number of the segment that the server is handling.
    pub(super) ack: u32,
    pub(super) accepted: u32,
    pub(super) ended: u32,
}

pub(super) const SLOT: Slot = Slot {
    offset: 90,
    len: 10,
};

/// Returns the text that fills the slot.
fn slot_text(stamp: u64) -> String {
    format!("{stamp:010}")
}

/// Returns the bytes of a content item. Both their values and their number depend on `len`. There
/// are at least 100 bytes, so that the slot fits.
pub(super) fn content(len: u16) -> Arc<[u8]> {
    bytes_at(u32::from(len) * 3, 100 + usize::from(len)).into()
}

impl App {
    pub(super) fn new(streams: HashMap<(u16, bool), Stream>) -> Self {
        Self {
            habit: Habit::Serve,
            refuse: false,
            greet: false,
            close_back: true,
            content: None,
            removed: None,
            bytes: content(5000),
            stamp: 0,
            streams,
            ack: 0,
            accepted: 0,
            ended: 0,
        }
    }

    pub(super) fn stream(&mut self, key: (u16, bool)) -> &mut Stream {
        self.streams.get_mut(&key).expect("a known client")
    }

    fn stream_of(&mut self, conn: &mut Conn<'_>) -> &mut Stream {
        self.stream(conn.state().key)
    }

    /// Returns the stream of a connection, which must be open.
    fn open_stream(&mut self, conn: &mut Conn<'_>) -> &mut Stream {
        let stream = self.stream_of(conn);
        assert!(stream.is_open, "a callback without a connection");
        stream
    }

    /// Adds calls to the script of a connection.
    pub(super) fn instruct(&mut self, key: (u16, bool), calls: &[Call]) {
        let stream = self.stream(key);
        let room = MAX_CALLS.saturating_sub(stream.calls.len());
        stream.calls.extend(calls.iter().take(room));
    }

    fn serve(&mut self, conn: &mut Conn<'_>) -> Result<(), WriteError> {
        conn.write(self.content.expect("a content"), self.stamp)?;
        let mut bytes = self.bytes.to_vec();
        let at = SLOT.offset as usize;
        bytes[at..at + SLOT.len as usize].copy_from_slice(slot_text(self.stamp).as_bytes());
        self.stamp += 1;
        self.stream_of(conn).written.extend(bytes);
        Ok(())
    }

    fn write_bytes(&mut self, conn: &mut Conn<'_>, bytes: &[u8]) -> Result<(), WriteError> {
        conn.write_bytes(bytes)?;
        self.stream_of(conn).written.extend_from_slice(bytes);
        Ok(())
    }

    fn close(&mut self, conn: &mut Conn<'_>) {
        conn.close();
        self.stream_of(conn).closed = true;
    }

    fn abort(&mut self, conn: &mut Conn<'_>) {
        conn.abort();
        self.stream_of(conn).closed = true;
    }

    /// Makes the next scripted call. Returns the number of bytes to consume, or `None` if the
    /// script has no more calls.
    fn call(&mut self, conn: &mut Conn<'_>) -> Option<usize> {
        let call = self.stream_of(conn).calls.pop_front()?;
        let closed = self.stream_of(conn).closed;
        match call {
            Call::Write => {
                let written = self.serve(conn);
                assert!(written.is_err() || !closed, "a write after close");
            }
            Call::WriteBytes(len) => {
                let written = self.write_bytes(conn, bytes_at(len.into(), len.into()));
                assert!(written.is_err() || !closed, "a write after close");
            }
            Call::WriteTooMuch => {
                let bytes = bytes_at(0, MAX_WRITE_LEN + 1);
                conn.write_bytes(bytes).unwrap_err();
            }
            Call::WriteRemoved => {
                if let Some(removed) = self.removed {
                    conn.write(removed, 0).unwrap_err();
                }
            }
            Call::Close => self.close(conn),
            Call::Abort => self.abort(conn),
            Call::Consume(n) => return Some(usize::from(n)),
        }
        Some(0)
    }

    /// Makes the next scripted call if the application follows its script.
    fn call_if_scripted(&mut self, conn: &mut Conn<'_>) {
        if matches!(self.habit, Habit::Script) {
            self.call(conn);
        }
    }
}

impl Application for App {
    type State = State;
    type Message = ();

    fn on_accept(&mut self, conn: &mut Conn<'_>) -> bool {
        assert_eq!(conn.state().consumed, 0, "the state is not new");
        conn.state().key = (conn.peer().port(), conn.peer().is_ipv6());
        let iss = self.ack.wrapping_sub(1);
        self.stream_of(conn).open(iss);
        if self.greet {
            // The write may fail because there is no room. That is not an error here.
            let _ = self.write_bytes(conn, b"hello");
        }
        self.call_if_scripted(conn);
        let accepts = !self.refuse;
        self.stream_of(conn).is_open = accepts;
        self.accepted += u32::from(accepts);
        accepts
    }

    fn on_receive(&mut self, conn: &mut Conn<'_>, data: &[u8]) -> usize {
        assert!(!data.is_empty());
        let consumed = conn.state().consumed;
        let stream = self.open_stream(conn);
        assert!(!stream.closed, "data after close");
        let start = stream.start().wrapping_add(consumed);
        assert!(data == bytes_at(start, data.len()), "wrong data");
        let received = consumed.into()..u64::from(consumed) + data.len() as u64;
        assert!(stream.sent.contains(&received), "data never sent");
        let consumed = match self.habit {
            Habit::Silent => data.len(),
            Habit::Lazy => 0,
            Habit::Sip => 2.min(data.len()),
            Habit::Echo => self.write_bytes(conn, data).map_or(0, |()| data.len()),
            Habit::Serve => data.iter().take_while(|_| self.serve(conn).is_ok()).count(),
            Habit::ServeOnce => self.serve(conn).map_or(0, |()| {
                self.close(conn);
                1
            }),
            Habit::Abort => {
                self.abort(conn);
                data.len()
            }
            Habit::Script => {
                let calls = (0..4).map_while(|_| self.call(conn));
                calls.sum::<usize>().min(data.len())
            }
        };
        conn.state().consumed += consumed as u32;
        consumed
    }

    fn on_sent(&mut self, conn: &mut Conn<'_>) {
        self.open_stream(conn);
        self.call_if_scripted(conn);
    }

    fn on_half_close(&mut self, conn: &mut Conn<'_>) {
        self.open_stream(conn);
        if self.close_back {
            self.close(conn);
        } else {
            self.call_if_scripted(conn);
        }
    }

    fn on_close(&mut self, _: ConnectionId, state: &mut State, _reason: CloseReason) {
        self.ended += 1;
        let stream = self.stream(state.key);
        assert!(stream.is_open, "on_close comes twice");
        stream.is_open = false;
    }

    fn render(&mut self, stamp: u64, slot: &mut [u8]) {
        slot.copy_from_slice(slot_text(stamp).as_bytes());
    }
}
