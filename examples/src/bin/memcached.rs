//! A subset of memcached's text protocol: `get`, `set` and `delete` of values up to 1 MB.
//!
//! ```text
//! # cargo run --release -p examples --bin memcached -- --workers 2
//! # printf 'set sand 0 0 6\r\nyellow\r\nget sand\r\n' | nc 198.18.0.2 11211
//! ```
//!
//! All workers have one store: each key is kept by one of them, by its hash. Another one
//! that is asked for it asks the keeper by its mailbox, and answers later. A value is
//! cut into packets once, when it is set.
//!
//! Absent: several keys in a `get`, `noreply`, and values that expire. What is not
//! understood is answered `ERROR`, and the connection closed.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use nmio::mailbox::Sender;
use tcpip::{Application, CloseReason, CongestionControl, Connection, ConnectionId, Connections};
use tcpip::{ContentId, Contents};

const MAX_LINE: usize = 1_024;
const MAX_VALUE: usize = 1 << 20;
/// The most bytes that one worker keeps, and values that are on their way to it.
const MAX_STORED: u64 = 1 << 30;
const MAX_COMING: usize = 64;
/// Places in a mailbox. Each worker has a share of them, so that none is ever full.
const PLACES: usize = 16_384;

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

/// The key of a value on its way, the answer to its `get` so far, and its length.
type Coming = Option<(String, Vec<u8>, usize)>;

struct Memcached {
    index: usize,
    workers: &'static [OnceLock<Sender<Message>>],
    /// Whole answers to `get`.
    store: HashMap<String, ContentId>,
    coming: usize,
    /// Questions to other workers that have no answer yet.
    asked: usize,
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
            Do::Delete => match self.store.remove(&key) {
                None => return Err("NOT_FOUND\r\n"),
                before => (before, "DELETED\r\n"),
            },
        };
        before.map(|before| contents.remove(before));
        Err(line)
    }

    /// Answers now, or asks the worker that keeps the key.
    fn ask(&mut self, conn: &mut Connection<'_, Coming>, key: String, what: Do) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&key) as usize;
        let keeper = hash % self.workers.len();
        if keeper == self.index {
            let answer = self.apply(conn.contents_mut(), key, what);
            return write(conn, answer);
        }
        let question = Message::Ask(self.index, conn.id(), key, what);
        let has_place = self.asked < PLACES / self.workers.len();
        let keeper = self.workers[keeper].get().filter(|_| has_place);
        if keeper.is_none_or(|keeper| keeper.send(question).is_err()) {
            return write(conn, Err("SERVER_ERROR busy\r\n"));
        }
        self.asked += 1;
        conn.park();
    }

    fn on_line(&mut self, conn: &mut Connection<'_, Coming>, line: &str) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["get", key] => return self.ask(conn, key.into(), Do::Get),
            ["delete", key] => return self.ask(conn, key.into(), Do::Delete),
            ["set", key, flags, "0", len] if self.coming < MAX_COMING => {
                let head = format!("VALUE {key} {flags} {len}\r\n").into_bytes();
                match (flags.parse::<u32>(), len.parse::<usize>()) {
                    (Ok(_), Ok(len)) if len <= MAX_VALUE => {
                        self.coming += 1;
                        let all = head.len() + len + 2;
                        *conn.state() = Some((key.into(), head, all));
                        return;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        // What follows may be a value, and must not be taken for lines.
        write(conn, Err("ERROR\r\n"));
        conn.close();
    }
}

/// Writes an answer. A client is reset where no buffer is left for it.
fn write(conn: &mut Connection<'_, Coming>, answer: Answer) {
    let written = match answer {
        Ok(value) => conn.write(value, 0),
        Err(line) => conn.write_bytes(line.as_bytes()),
    };
    written.unwrap_or_else(|_| conn.abort());
}

impl Application for Memcached {
    type State = Coming;
    type Message = Message;

    fn on_receive(&mut self, conn: &mut Connection<'_, Coming>, data: &[u8]) -> usize {
        if conn.ensure_room(1).is_err() {
            return 0;
        }
        conn.offer_again();
        let Some((key, mut value, all)) = conn.state().take() else {
            let line = data.iter().position(|byte| *byte == b'\n');
            match line {
                Some(end) => self.on_line(conn, &String::from_utf8_lossy(&data[..end])),
                None if data.len() > MAX_LINE => conn.abort(),
                None => {}
            }
            return line.map_or(0, |end| end + 1);
        };
        let part = &data[..data.len().min(all - value.len())];
        value.extend(part);
        if value.len() < all {
            *conn.state() = Some((key, value, all));
            return part.len();
        }
        self.coming -= 1;
        if value.ends_with(b"\r\n") {
            value.extend(b"END\r\n");
            self.ask(conn, key, Do::Set(value.into()));
        } else {
            write(conn, Err("CLIENT_ERROR bad data chunk\r\n"));
            conn.close();
        }
        part.len()
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Coming, C>,
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
                self.asked -= 1;
                if let Some(mut conn) = connections.get(id) {
                    conn.write_once(answer).unwrap_or_else(|_| conn.abort());
                    conn.resume();
                }
            }
        }
    }

    fn on_close(&mut self, coming: &mut Coming, _reason: CloseReason) {
        self.coming -= usize::from(coming.is_some());
    }
}

impl control::Named for Memcached {
    const NAME: &'static str = "memcached";
    const PORT: u16 = 11_211;
}

fn main() -> ExitCode {
    static WORKERS: [OnceLock<Sender<Message>>; 64] = [const { OnceLock::new() }; 64];
    control::tcp(|worker, _| {
        let workers = WORKERS.get(..worker.workers() as usize);
        let workers = workers.ok_or("at most 64 workers share one store")?;
        let index = worker.index() as usize;
        workers[index].get_or_init(|| worker.open_mailbox(PLACES));
        Ok(Memcached {
            index,
            workers,
            store: HashMap::new(),
            coming: 0,
            asked: 0,
        })
    })
}
