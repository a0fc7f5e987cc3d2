//! The application: it writes down what it has written, and holds what it
//! gets against what the client has at those sequence numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use tcpip::{
    Application, CloseReason, Connection, ConnectionId, ContentId, MAX_WRITE_LEN, Slot, WriteError,
};

use super::client::bytes_at;
use super::stream::Stream;

/// What the application does on data.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Habit {
    /// Consumes all and says nothing.
    Silent,
    /// Consumes nothing.
    Lazy,
    /// Writes what it gets.
    Echo,
    /// A request is one byte, and answered with the content.
    Serve,
    /// Likewise, and closes after the first.
    ServeOnce,
    /// Aborts.
    Abort,
    /// Consumes two bytes at a time.
    Sip,
    /// Makes the calls that it was told to make.
    Script,
}

/// A call that the application makes when it has the connection in hand.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Call {
    Write,
    WriteBytes(u16),
    WriteTooMuch,
    WriteRemoved,
    Close,
    Abort,
    /// Consumes as many bytes, if this is a call about data.
    Consume(u8),
}

/// Calls for each connection, at most.
const MAX_CALLS: usize = 256;

/// Bytes consumed by a connection, and whose it is.
#[derive(Default)]
pub(super) struct State {
    pub(super) key: (u16, bool),
    pub(super) consumed: u32,
}

pub(super) struct App {
    pub(super) habit: Habit,
    pub(super) refuse: bool,
    pub(super) greet: bool,
    pub(super) close_back: bool,
    pub(super) content: Option<ContentId>,
    /// A content that is no more.
    pub(super) removed: Option<ContentId>,
    pub(super) bytes: Arc<[u8]>,
    pub(super) stamp: u64,
    pub(super) streams: HashMap<(u16, bool), Stream>,
    /// What the segment acknowledges that is being handled.
    pub(super) ack: u32,
    pub(super) accepted: u32,
    pub(super) ended: u32,
}

pub(super) const SLOT: Slot = Slot {
    offset: 90,
    len: 10,
};

fn slot_text(stamp: u64) -> [u8; SLOT.len as usize] {
    let mut text = [0; SLOT.len as usize];
    text.copy_from_slice(format!("{stamp:010}").as_bytes());
    text
}

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

    fn stream(&mut self, conn: &mut Connection<'_, State>) -> &mut Stream {
        let key = conn.state().key;
        self.streams.get_mut(&key).expect("a known client")
    }

    /// Tells it what to call; `Habit::Script` does.
    pub(super) fn instruct(&mut self, key: (u16, bool), calls: &[Call]) {
        let stream = self.streams.get_mut(&key).expect("a known client");
        let room = MAX_CALLS.saturating_sub(stream.calls.len());
        stream.calls.extend(calls.iter().take(room));
    }

    fn serve(&mut self, conn: &mut Connection<'_, State>) -> Result<(), WriteError> {
        conn.write(self.content.expect("a content"), self.stamp)?;
        let mut bytes = self.bytes.to_vec();
        let at = SLOT.offset as usize;
        bytes[at..at + SLOT.len as usize].copy_from_slice(&slot_text(self.stamp));
        self.stamp += 1;
        self.stream(conn).written.extend(bytes);
        Ok(())
    }

    fn write_bytes(
        &mut self,
        conn: &mut Connection<'_, State>,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        conn.write_bytes(bytes)?;
        self.stream(conn).written.extend_from_slice(bytes);
        Ok(())
    }

    fn close(&mut self, conn: &mut Connection<'_, State>) {
        conn.close();
        self.stream(conn).closed = true;
    }

    /// The next of the calls; how much of the data it consumes, if it does.
    fn call(&mut self, conn: &mut Connection<'_, State>) -> Option<usize> {
        let call = self.stream(conn).calls.pop_front()?;
        let closed = self.stream(conn).closed;
        let outcome = match call {
            Call::Write => self.serve(conn),
            Call::WriteBytes(len) => self.write_bytes(conn, bytes_at(len.into(), len.into())),
            Call::WriteTooMuch => {
                let outcome = conn.write_bytes(bytes_at(0, MAX_WRITE_LEN + 1));
                assert!(outcome.is_err());
                outcome
            }
            Call::WriteRemoved => match self.removed {
                Some(removed) => {
                    let outcome = conn.write(removed, 0);
                    assert!(outcome.is_err());
                    outcome
                }
                None => return Some(0),
            },
            Call::Close => {
                self.close(conn);
                return Some(0);
            }
            Call::Abort => {
                conn.abort();
                self.stream(conn).closed = true;
                return Some(0);
            }
            Call::Consume(n) => return Some(usize::from(n)),
        };
        assert!(outcome.is_err() || !closed, "written after close");
        Some(0)
    }
}

impl Application for App {
    type State = State;
    type Message = ();

    fn on_accept(&mut self, conn: &mut Connection<'_, State>) -> bool {
        let key = (conn.peer().port(), conn.peer().is_ipv6());
        assert_eq!(conn.state().consumed, 0, "a new connection has a new state");
        conn.state().key = key;
        let iss = self.ack.wrapping_sub(1);
        self.stream(conn).open(iss);
        if self.greet {
            // Whether there is room or not.
            let _ = self.write_bytes(conn, b"hello");
        }
        if matches!(self.habit, Habit::Script) {
            self.call(conn);
        }
        let stream = self.streams.get_mut(&key).expect("a known client");
        stream.is_open = !self.refuse;
        self.accepted += u32::from(!self.refuse);
        !self.refuse
    }

    fn on_receive(&mut self, conn: &mut Connection<'_, State>, data: &[u8]) -> usize {
        assert!(!data.is_empty());
        let consumed = conn.state().consumed;
        let stream = self.stream(conn);
        assert!(stream.is_open, "called outside of its life");
        assert!(!stream.closed, "called after close");
        let start = stream.start().wrapping_add(consumed);
        assert!(data == bytes_at(start, data.len()), "other data");
        let end = consumed + data.len() as u32;
        assert!(stream.sent.contains(0, end), "data that nobody has sent");
        let consumed = match self.habit {
            Habit::Silent => data.len(),
            Habit::Lazy => 0,
            Habit::Sip => 2.min(data.len()),
            Habit::Echo => match self.write_bytes(conn, data) {
                Ok(()) => data.len(),
                Err(_) => 0,
            },
            Habit::Serve => data.iter().take_while(|_| self.serve(conn).is_ok()).count(),
            Habit::ServeOnce => match self.serve(conn) {
                Ok(()) => {
                    self.close(conn);
                    1
                }
                Err(_) => 0,
            },
            Habit::Abort => {
                conn.abort();
                self.stream(conn).closed = true;
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

    fn on_sent(&mut self, conn: &mut Connection<'_, State>) {
        assert!(self.stream(conn).is_open, "called outside of its life");
        if matches!(self.habit, Habit::Script) {
            self.call(conn);
        }
    }

    fn on_half_close(&mut self, conn: &mut Connection<'_, State>) {
        assert!(self.stream(conn).is_open, "called outside of its life");
        if self.close_back {
            self.close(conn);
        } else if matches!(self.habit, Habit::Script) {
            self.call(conn);
        }
    }

    fn on_close(&mut self, _: ConnectionId, state: &mut State, _reason: CloseReason) {
        self.ended += 1;
        let stream = self.streams.get_mut(&state.key).expect("a known client");
        assert!(stream.is_open, "closed twice");
        stream.is_open = false;
    }

    fn render(&mut self, stamp: u64, slot: &mut [u8]) {
        slot.copy_from_slice(&slot_text(stamp));
    }
}

/// Calls that wait.
pub(super) type Calls = VecDeque<Call>;
