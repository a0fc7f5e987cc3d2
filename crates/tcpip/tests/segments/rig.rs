//! The application that the cases use. Each case tells the application what to do.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::{Application, CloseReason, Connection, ConnectionId, ContentId};

/// What the application does when it receives data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Reads everything and sends no data.
    Silent,
    /// Reads nothing.
    Lazy,
    /// Reads at most this many bytes at a time.
    Sip(usize),
    /// Sends the received data back.
    Echo,
    /// Answers each received byte with the content.
    Serve,
    /// Answers the first received byte with the content, and closes our side.
    ServeOnce,
    /// Answers each received byte with this number of plain bytes, not with the content. Plain
    /// bytes go through a write buffer.
    Say(usize),
    Close,
    Abort,
}

/// What the application has written and read on one connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// All bytes that the application has written.
    pub(crate) written: Vec<u8>,
    /// Number of bytes that the application has consumed.
    consumed: usize,
}

/// An application that does what the case says, and keeps a log of its callbacks.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) habit: Habit,
    /// Whether the application refuses connections.
    pub(crate) refuse: bool,
    /// Number of bytes that the application sends when it accepts a connection.
    pub(crate) greeting: usize,
    /// Whether the application closes our side when the peer's FIN arrives.
    pub(crate) close_back: bool,
    pub(crate) content: Option<(ContentId, Arc<[u8]>)>,
    pub(crate) log: String,
    /// Data of each connection, keyed by the peer's port.
    pub(crate) streams: HashMap<u16, Streams>,
    /// Description of the first wrong byte, if a callback received bytes that differ from those
    /// that the peer sent.
    pub(crate) fault: Option<String>,
}

/// Returns the byte that the peer sends at an offset of its stream.
pub(crate) fn peers_byte(at: usize) -> u8 {
    (at * 7 + at / 251 + at / 65_521) as u8
}

/// Returns `len` bytes for a content item. The bytes' pattern does not repeat within a segment, so
/// misplaced data is detected.
pub(crate) fn content(len: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 13 + at / 241 + at / 65_521 + 5) as u8;
    (0..len).map(byte).collect()
}

impl App {
    pub(crate) fn new() -> Self {
        Self {
            habit: Habit::Silent,
            refuse: false,
            greeting: 0,
            close_back: true,
            content: None,
            log: String::new(),
            streams: HashMap::new(),
            fault: None,
        }
    }

    fn note(&mut self, event: std::fmt::Arguments<'_>) {
        if !self.log.is_empty() {
            self.log.push(' ');
        }
        self.log
            .write_fmt(event)
            .expect("writing to a string cannot fail");
    }

    fn streams(&mut self, conn: &Connection<'_, ()>) -> &mut Streams {
        self.streams.entry(conn.peer().port()).or_default()
    }

    fn say(&mut self, conn: &mut Connection<'_, ()>, bytes: &[u8]) -> bool {
        let done = conn.write_bytes(bytes).is_ok();
        if done {
            self.streams(conn).written.extend_from_slice(bytes);
        }
        done
    }

    fn serve(&mut self, conn: &mut Connection<'_, ()>) -> bool {
        let (id, bytes) = self.content.clone().expect("app serve comes first");
        let done = conn.write(id, 0).is_ok();
        if done {
            self.streams(conn).written.extend_from_slice(&bytes);
        }
        done
    }

    /// Answers the bytes of `data` while the stream has room. With [`Habit::ServeOnce`], answers
    /// only the first byte. Returns the number of bytes that were answered.
    fn answer(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        for done in 0..data.len() {
            let answered = match self.habit {
                Habit::Say(len) => self.say(conn, &content(len)),
                _ => self.serve(conn),
            };
            if !answered {
                return done;
            }
            if self.habit == Habit::ServeOnce {
                conn.close();
                return done + 1;
            }
        }
        data.len()
    }
}

impl Application for App {
    type State = ();
    type Message = ();

    fn on_accept(&mut self, conn: &mut Connection<'_, ()>) -> bool {
        self.streams.insert(conn.peer().port(), Streams::default());
        if self.greeting > 0 {
            self.say(conn, &content(self.greeting));
        }
        self.note(format_args!("accept"));
        !self.refuse
    }

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        self.note(format_args!("receive({})", data.len()));
        let from = self.streams(conn).consumed;
        let wrong = (0..data.len()).find(|at| data[*at] != peers_byte(from + at));
        if let Some(at) = wrong {
            self.fault = Some(format!("byte {} of the peer's stream is wrong", from + at));
        }
        let consumed = match self.habit {
            Habit::Silent => data.len(),
            Habit::Lazy => 0,
            Habit::Sip(len) => len.min(data.len()),
            Habit::Echo => data.len() * usize::from(self.say(conn, data)),
            Habit::Serve | Habit::ServeOnce | Habit::Say(_) => self.answer(conn, data),
            Habit::Close => {
                conn.close();
                data.len()
            }
            Habit::Abort => {
                conn.abort();
                data.len()
            }
        };
        self.streams(conn).consumed += consumed;
        consumed
    }

    fn on_sent(&mut self, _conn: &mut Connection<'_, ()>) {
        self.note(format_args!("sent"));
    }

    fn on_half_close(&mut self, conn: &mut Connection<'_, ()>) {
        self.note(format_args!("half-close"));
        if self.close_back {
            conn.close();
        }
    }

    fn on_close(&mut self, _: ConnectionId, (): &mut (), reason: CloseReason) {
        self.note(format_args!("close({reason:?})"));
    }
}
