//! A web server for one body of any size, with range requests. The body is sent as slices of one
//! prepared content item.
//!
//! ```text
//! # cargo run --release -p examples --bin large_body -- --size 5368709120
//! # curl -r 4294967290-4294967301 http://198.18.0.2:8080/
//! ```
//!
//! The body repeats a piece of about 1 MB, so it is never held in memory as a whole. A response is
//! written slice by slice whenever the send stream has room, so its size is not limited. Without
//! `--device`, the server creates its own link to this host. Press Ctrl-C to stop the server.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use control::{Named, NewWorker, ServeArgs, Tcp};
use tcpip::{Application, Connection, ContentId, Contents, WriteError};

/// The length of the repeated piece in bytes. To test slices, it is not a multiple of the segment
/// length.
const PIECE: u64 = 1_000_003;
/// Number of received bytes without the end of a request's head after which the connection is
/// closed.
const MAX_HEAD: usize = 4_096;

/// The application, which answers the requests of each connection.
struct LargeBody {
    piece: ContentId,
    size: u64,
}

impl LargeBody {
    /// Writes as much of the remaining response as the send stream has room for.
    fn write_on(&self, conn: &mut Connection<'_, Range<u64>>) {
        while !conn.state().is_empty() {
            let Range { start, end } = conn.state().clone();
            let from = start % PIECE;
            let len = (end - start).min(PIECE - from);
            let slice = from as u32..(from + len) as u32;
            match conn.write_slice(self.piece, slice, 0) {
                Ok(()) => conn.state().start += len,
                // `on_sent` continues when there is room.
                Err(WriteError::Full) => return,
                Err(_) => return conn.abort(),
            }
        }
    }

    /// Writes the head of a response. Returns the range of the body that must follow.
    fn write_head(
        &self,
        conn: &mut Connection<'_, Range<u64>>,
        head: &str,
    ) -> Result<Range<u64>, WriteError> {
        let size = self.size;
        if !head.starts_with("GET / ") {
            conn.write_bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(0..0);
        }
        let range = requested_range(head).filter(|range| !range.is_empty());
        let (status, range) = match range {
            None => ("200 OK".to_owned(), 0..size),
            Some(range) if range.start >= size => {
                let head = format!(
                    "HTTP/1.1 416 Range Not Satisfiable\r\n\
                     Content-Range: bytes */{size}\r\nContent-Length: 0\r\n\r\n"
                );
                conn.write_bytes(head.as_bytes())?;
                return Ok(0..0);
            }
            Some(Range { start, end }) => {
                let end = end.min(size);
                let last = end - 1;
                let field = format!("Content-Range: bytes {start}-{last}/{size}");
                (format!("206 Partial Content\r\n{field}"), start..end)
            }
        };
        let len = range.end - range.start;
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n");
        conn.write_bytes(head.as_bytes())?;
        Ok(range)
    }
}

/// Parses the requested range. Returns `None` if the request has no range, or one that is neither
/// `FIRST-` nor `FIRST-LAST`.
fn requested_range(head: &str) -> Option<Range<u64>> {
    let field = head
        .lines()
        .find_map(|line| line.strip_prefix("Range: bytes="))?;
    let (first, last) = field.split_once('-')?;
    let end = match last {
        "" => u64::MAX,
        last => last.parse::<u64>().ok()?.saturating_add(1),
    };
    Some(first.parse().ok()?..end)
}

impl Application for LargeBody {
    /// The range of the body that is still to be written.
    type State = Range<u64>;
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, Range<u64>>, data: &[u8]) -> usize {
        if !conn.state().is_empty() {
            return 0; // The data is offered again when there is room.
        }
        let Some(end) = data.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            if data.len() < MAX_HEAD {
                return 0;
            }
            conn.close();
            return data.len();
        };
        let head = String::from_utf8_lossy(&data[..end + 2]);
        match self.write_head(conn, &head) {
            Ok(range) => *conn.state() = range,
            Err(_) => return 0,
        }
        self.write_on(conn);
        end + 4
    }

    fn on_sent(&mut self, conn: &mut Connection<'_, Range<u64>>) {
        self.write_on(conn);
    }
}

/// Creates the piece that the body repeats. Each byte depends on its position, so misplaced data
/// can be detected.
fn piece() -> Arc<[u8]> {
    let byte = |at: u64| (at ^ at >> 8 ^ at >> 16) as u8;
    (0..PIECE).map(byte).collect()
}

impl Named for LargeBody {
    const NAME: &'static str = "large-body";
    const PORT: u16 = 8_080;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// Serves one large body, with ranges.
#[derive(Parser)]
struct Cli {
    /// Length of the body in bytes.
    #[arg(long, default_value_t = 5 << 30)]
    size: u64,
    #[command(flatten)]
    network: ServeArgs,
}

fn main() -> ExitCode {
    let Cli { size, network } = Cli::parse();
    let make = move |_: &mut NewWorker<()>, contents: &mut Contents| {
        let piece = contents.add(piece(), None)?;
        Ok(LargeBody { piece, size })
    };
    let example = |address: &str, port| format!("curl http://{address}:{port}/ | wc -c");
    let program = Tcp::new(make).with_try_command(example);
    control::serve_loaded(&network, program)
}
