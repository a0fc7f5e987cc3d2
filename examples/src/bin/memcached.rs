//! A subset of memcached's text protocol: `get`, `set` and `delete` of values up to 1 MiB.
//!
//! ```text
//! # cargo run --release -p examples --bin memcached -- --workers 2
//! # printf 'set sand 0 0 6\r\nyellow\r\nget sand\r\n' | nc 198.18.0.2 11211
//! ```
//!
//! The store is divided among the workers. The hash of a key selects the worker that keeps its
//! value. Any other worker forwards a request for the key to that worker's mailbox, and parks the
//! client's connection until the answer arrives. A value stays in the stack's receive buffer until
//! it is complete, and is then segmented once.
//!
//! If the length in a `set` request is too large or not a number, the connection is reset.
//!
//! Not implemented: several keys in a `get`, `noreply`, and values that expire.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use control::{Mailboxes, Named, Peers, Tcp};
use tcpip::{Application, Config, CongestionControl, Connection, ConnectionId, Connections};
use tcpip::{ContentId, Contents};

const MAX_LINE: usize = 1_024;
const MAX_VALUE: usize = 1 << 20;
/// A worker that stores more than this number of bytes refuses further values.
const MAX_STORED: u64 = 1 << 30;
/// Maximum number of connections of one worker. Each connection has at most one request in
/// progress, so the mailboxes never overflow.
const MAX_CONNECTIONS: u32 = 4_096;
const UNENDED: &str = "CLIENT_ERROR bad data chunk\r\n";
const FULL: &str = "SERVER_ERROR out of memory storing object\r\n";

enum Message {
    /// A request that another worker forwards: that worker's index, the client's connection, and
    /// the request's bytes.
    Request(usize, ConnectionId, Vec<u8>),
    /// The bytes of the answer to such a request.
    Answer(ConnectionId, Arc<[u8]>),
}

struct Memcached {
    peers: Peers<Message>,
    /// For each key, the complete answer to a `get` request.
    store: HashMap<String, ContentId>,
}

/// What a request gets: a stored value, or a line of text.
type Outcome = Result<ContentId, &'static str>;

/// Splits off the first line, or `MAX_LINE` bytes if no line ends within them. Returns the words of
/// the line and the remaining bytes, or `None` if `data` is shorter than `MAX_LINE` and has no line
/// end.
fn split_line(data: &[u8]) -> Option<(Vec<&str>, &[u8])> {
    let end = data.iter().take(MAX_LINE).position(|byte| *byte == b'\n');
    let end = end.or((data.len() >= MAX_LINE).then_some(MAX_LINE - 1))?;
    let line = str::from_utf8(&data[..end]).unwrap_or_default();
    Some((line.split_ascii_whitespace().collect(), &data[end + 1..]))
}

impl Memcached {
    /// Executes a request for a key that this worker keeps.
    fn execute(&mut self, contents: &mut Contents, request: &[u8]) -> Outcome {
        let (words, value) = split_line(request).unwrap_or_default();
        let (removed, line) = match words[..] {
            ["get", key] => return self.store.get(key).copied().ok_or("END\r\n"),
            ["delete", key] if !self.store.contains_key(key) => return Err("NOT_FOUND\r\n"),
            ["delete", key] => (self.store.remove(key), "DELETED\r\n"),
            ["set", ..] if contents.totals().bytes > MAX_STORED => return Err(FULL),
            ["set", ..] if !value.ends_with(b"\r\n") => return Err(UNENDED),
            ["set", key, flags, "0", len] if flags.parse::<u32>().is_ok() => {
                let head = format!("VALUE {key} {flags} {len}\r\n");
                let kept = [head.as_bytes(), value, b"END\r\n"].concat();
                let value = contents.add(kept.into(), None).map_err(|_| FULL)?;
                (self.store.insert(key.to_owned(), value), "STORED\r\n")
            }
            _ => return Err("ERROR\r\n"),
        };
        if let Some(value) = removed {
            contents.remove(value);
        }
        Err(line)
    }

    /// Answers a request, or forwards it to the worker that keeps its key.
    fn handle(&mut self, conn: &mut Connection<'_, ()>, key: &str, request: &[u8]) {
        let (own, keeper) = (self.peers.own(), self.peers.keeper_of(key));
        if keeper != own {
            conn.park();
            let request = Message::Request(own, conn.id(), request.to_vec());
            let sent = self.peers.send(keeper, request);
            return sent.unwrap_or_else(|_| conn.abort());
        }
        let written = match self.execute(conn.contents_mut(), request) {
            Ok(value) => conn.write(value, 0),
            Err(line) => conn.write_bytes(line.as_bytes()),
        };
        written.unwrap_or_else(|_| conn.abort());
    }
}

impl Application for Memcached {
    type State = ();
    type Message = Message;

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let Some((words, rest)) = split_line(data) else {
            return 0;
        };
        let value_len = match words[..] {
            ["set", .., len] => len.parse().unwrap_or(usize::MAX).saturating_add(2),
            _ => 0,
        };
        if value_len > MAX_VALUE + 2 {
            conn.abort();
        } else if rest.len() >= value_len && conn.ensure_room(1).is_ok() {
            let len = data.len() - rest.len() + value_len;
            self.handle(conn, words.get(1).unwrap_or(&""), &data[..len]);
            conn.offer_again();
            return len;
        }
        0 // The data is offered again when more has arrived, or when there is room to answer.
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, (), C>,
        message: Message,
    ) {
        match message {
            Message::Request(from, id, request) => {
                let contents = connections.contents_mut();
                let answer = match self.execute(contents, &request) {
                    Ok(value) => contents.bytes(value).cloned().unwrap_or_default(),
                    Err(line) => line.as_bytes().into(),
                };
                // Sending fails only if the other worker has stopped.
                let _ = self.peers.send(from, Message::Answer(id, answer));
            }
            Message::Answer(id, answer) => connections.answer(id, answer),
        }
    }
}

impl Named for Memcached {
    const NAME: &'static str = "memcached";
    const PORT: u16 = 11_211;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    let config = Config {
        max_connections: MAX_CONNECTIONS,
        recv_buffer: MAX_VALUE + MAX_LINE + 2,
        max_recv_buffers: 256,
        ..Config::default()
    };
    let mailboxes = Mailboxes::default();
    let program = Tcp::new(|worker, _| {
        let peers = mailboxes.open(worker, 2 * MAX_CONNECTIONS as usize);
        let store = HashMap::new();
        Ok(Memcached { peers, store })
    });
    // The number of connections bounds the mailboxes, so there are no options for connections.
    let args = control::network_args(Memcached::NAME);
    control::serve_loaded(&args, program.with_config(config))
}
