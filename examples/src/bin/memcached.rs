//! A subset of memcached's text protocol: `get`, `set` and `delete` of values up to 1 MB.
//!
//! ```text
//! # cargo run --release -p examples --bin memcached -- --workers 2
//! # printf 'set sand 0 0 6\r\nyellow\r\nget sand\r\n' | nc 198.18.0.2 11211
//! ```
//!
//! All workers have one store: each key is kept by one of them, by its hash. Another one
//! that is asked for it asks the keeper by its mailbox, and answers later. A value waits
//! in the stack's receive buffer until it is whole, and is cut into packets once.
//!
//! Absent: several keys in a `get`, `noreply`, and values that expire. What is not
//! understood is answered `ERROR`, and the connection closed.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use control::{NewWorker, StartError, Tcp};
use nmio::mailbox::Sender;
use tcpip::{Application, Config, CongestionControl, Connection, ConnectionId, Connections};
use tcpip::{ContentId, Contents};

const MAX_LINE: usize = 1_024;
const MAX_VALUE: usize = 1 << 20;
/// The most bytes that one worker keeps.
const MAX_STORED: u64 = 1 << 30;
const MAX_WORKERS: usize = 64;
/// Of one worker. Each asks for one key at a time, so that no mailbox is ever full.
const MAX_CONNECTIONS: u32 = 4_096;

/// What to do with a key.
enum Do {
    Get,
    Set(Arc<[u8]>),
    Delete,
}

enum Message {
    /// From a worker, for a connection of its.
    Ask(usize, ConnectionId, String, Do),
    Answer(ConnectionId, Arc<[u8]>),
}

struct Memcached {
    index: usize,
    workers: &'static [OnceLock<Sender<Message>>],
    /// Whole answers to `get`.
    store: HashMap<String, ContentId>,
}

/// A value that is kept, or a line.
type Answer = Result<ContentId, &'static str>;

impl Memcached {
    /// Does what is asked with a key that this worker keeps.
    fn apply(&mut self, contents: &mut Contents, key: String, what: Do) -> Answer {
        let full = "SERVER_ERROR out of memory storing object\r\n";
        let (before, line) = match what {
            Do::Get => return self.store.get(&key).copied().ok_or("END\r\n"),
            Do::Set(_) if contents.totals().bytes > MAX_STORED => return Err(full),
            Do::Set(value) => {
                let value = contents.add(value, None).map_err(|_| full)?;
                (self.store.insert(key, value), "STORED\r\n")
            }
            Do::Delete if !self.store.contains_key(&key) => return Err("NOT_FOUND\r\n"),
            Do::Delete => (self.store.remove(&key), "DELETED\r\n"),
        };
        before.map(|before| contents.remove(before));
        Err(line)
    }

    /// Answers now, or asks the worker that keeps the key.
    fn ask(&mut self, conn: &mut Connection<'_, ()>, key: &str, what: Do) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key) as usize;
        let keeper = hash % self.workers.len();
        if keeper == self.index {
            let answer = self.apply(conn.contents_mut(), key.to_owned(), what);
            return write(conn, answer);
        }
        let question = Message::Ask(self.index, conn.id(), key.to_owned(), what);
        match self.workers[keeper]
            .get()
            .map(|keeper| keeper.send(question))
        {
            Some(Ok(())) => conn.park(),
            _ => write(conn, Err("SERVER_ERROR busy\r\n")),
        }
    }
}

/// Writes an answer. A client is reset where no buffer is left for it.
fn write(conn: &mut Connection<'_, ()>, answer: Answer) {
    let written = match answer {
        Ok(value) => conn.write(value, 0),
        Err(line) => conn.write_bytes(line.as_bytes()),
    };
    written.unwrap_or_else(|_| conn.abort());
}

impl Application for Memcached {
    type State = ();
    type Message = Message;

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let Some(end) = data.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            if data.len() >= MAX_LINE {
                conn.abort();
            }
            return 0;
        };
        if conn.ensure_room(1).is_err() {
            return 0;
        }
        let (line, rest) = (String::from_utf8_lossy(&data[..end]), &data[end + 1..]);
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        conn.offer_again();
        match words[..] {
            ["get", key] => self.ask(conn, key, Do::Get),
            ["delete", key] => self.ask(conn, key, Do::Delete),
            ["set", key, flags, "0", len] if flags.parse::<u32>().is_ok() => {
                let len = len.parse().unwrap_or(usize::MAX);
                if len <= MAX_VALUE && rest.len() < len + 2 {
                    return 0; // It is offered again when more has come.
                }
                if len <= MAX_VALUE && rest[len..].starts_with(b"\r\n") {
                    let head = format!("VALUE {key} {flags} {len}\r\n");
                    let kept = [head.as_bytes(), &rest[..len + 2], b"END\r\n"].concat();
                    self.ask(conn, key, Do::Set(kept.into()));
                    return end + 1 + len + 2;
                }
                write(conn, Err("CLIENT_ERROR bad data chunk\r\n"));
                conn.close();
            }
            _ => {
                // A value may follow, which must not be taken for lines.
                write(conn, Err("ERROR\r\n"));
                conn.close();
            }
        }
        end + 1
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, (), C>,
        message: Message,
    ) {
        match message {
            Message::Ask(from, id, key, what) => {
                let contents = connections.contents_mut();
                let answer = match self.apply(contents, key, what) {
                    Ok(value) => contents.bytes(value).cloned().unwrap_or_default(),
                    Err(line) => line.as_bytes().into(),
                };
                // Where that worker has ended there is nobody to answer.
                let asker = self.workers[from].get();
                asker.map(|asker| asker.send(Message::Answer(id, answer)));
            }
            Message::Answer(id, answer) => {
                if let Some(mut conn) = connections.get(id) {
                    conn.write_once(answer).unwrap_or_else(|_| conn.abort());
                    conn.resume();
                }
            }
        }
    }
}

impl control::Named for Memcached {
    const NAME: &'static str = "memcached";
    const PORT: u16 = 11_211;
}

/// Makes the application of a worker.
fn make(worker: &mut NewWorker<Message>, _: &mut Contents) -> Result<Memcached, StartError> {
    static WORKERS: [OnceLock<Sender<Message>>; MAX_WORKERS] =
        [const { OnceLock::new() }; MAX_WORKERS];
    let (index, count) = (worker.index() as usize, worker.workers() as usize);
    let workers = WORKERS
        .get(..count)
        .ok_or("at most 64 workers share one store")?;
    workers[index].get_or_init(|| worker.open_mailbox(count * MAX_CONNECTIONS as usize));
    let store = HashMap::new();
    Ok(Memcached {
        index,
        workers,
        store,
    })
}

fn main() -> ExitCode {
    let config = Config {
        max_connections: MAX_CONNECTIONS,
        recv_buffer: MAX_VALUE + MAX_LINE + 2,
        max_recv_buffers: 256,
        ..Config::default()
    };
    let program = Tcp::new(make).with_config(config);
    control::serve(&control::network_args("memcached"), || {
        Ok::<_, StartError>(program)
    })
}
