//! The application: it writes down what it has written, and holds what it
//! gets against what the client has at those sequence numbers.

use std::collections::HashMap;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use tcpip::{Application, CloseReason, Connection, ContentId, Slot, WriteError};

use super::client::byte_at;

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
}

/// What is known of one client's connection on both sides.
#[derive(Default)]
pub(super) struct Stream {
    /// The client's initial sequence number, as the server has confirmed it.
    pub(super) irs: u32,
    /// All that the application has written since the connection opened.
    pub(super) written: Vec<u8>,
    pub(super) closed: bool,
}

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
    pub(super) bytes: Arc<[u8]>,
    pub(super) stamp: u32,
    pub(super) streams: HashMap<(u16, bool), Stream>,
    pub(super) accepted: u32,
    pub(super) ended: u32,
}

pub(super) const SLOT: Slot = Slot {
    offset: 90,
    len: 10,
};

fn slot_text(stamp: u32) -> [u8; SLOT.len as usize] {
    let mut text = [0; SLOT.len as usize];
    text.copy_from_slice(format!("{stamp:010}").as_bytes());
    text
}

pub(super) fn content(len: u16) -> Arc<[u8]> {
    (0..100 + u32::from(len) % 8000)
        .map(|i| byte_at(i * 3 + 5))
        .collect()
}

impl App {
    fn stream(&mut self, conn: &mut Connection<'_, State>) -> &mut Stream {
        let key = conn.state().key;
        self.streams.get_mut(&key).expect("a known client")
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

    fn close(&mut self, conn: &mut Connection<'_, State>) {
        conn.close();
        self.stream(conn).closed = true;
    }
}

impl Application for App {
    type State = State;

    fn on_accept(&mut self, conn: &mut Connection<'_, State>) -> bool {
        let key = (conn.peer().port(), conn.peer().is_ipv6());
        assert_eq!(conn.state().consumed, 0, "a new connection has a new state");
        conn.state().key = key;
        let stream = self.stream(conn);
        assert!(stream.written.is_empty(), "opened twice");
        if self.greet && conn.write_bytes(b"hello").is_ok() {
            self.stream(conn).written.extend(b"hello");
        }
        self.accepted += u32::from(!self.refuse);
        !self.refuse
    }

    fn on_receive(&mut self, conn: &mut Connection<'_, State>, data: &[u8]) -> usize {
        assert!(!data.is_empty());
        let consumed = conn.state().consumed;
        let stream = self.stream(conn);
        assert!(!stream.closed, "called after close");
        let start = stream.irs.wrapping_add(1).wrapping_add(consumed);
        for (at, byte) in data.iter().enumerate() {
            assert_eq!(*byte, byte_at(start.wrapping_add(at as u32)), "other data");
        }
        let consumed = match self.habit {
            Habit::Silent => data.len(),
            Habit::Lazy => 0,
            Habit::Sip => 2.min(data.len()),
            Habit::Echo => match conn.write_bytes(data) {
                Ok(()) => {
                    self.stream(conn).written.extend_from_slice(data);
                    data.len()
                }
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
        };
        conn.state().consumed += consumed as u32;
        consumed
    }

    fn on_half_close(&mut self, conn: &mut Connection<'_, State>) {
        if self.close_back {
            self.close(conn);
        }
    }

    fn on_close(&mut self, _state: &mut State, _reason: CloseReason) {
        self.ended += 1;
    }

    fn render(&mut self, stamp: u32, slot: &mut [u8]) {
        slot.copy_from_slice(&slot_text(stamp));
    }
}
