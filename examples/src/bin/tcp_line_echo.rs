//! Echoes every line: the smallest server on the TCP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin tcp_line_echo
//! # nc 198.18.0.2 7          (the command that it prints after "try")
//! ```
//!
//! Without options the server creates its own link to this host; `--device` selects another device.
//! Ctrl-C ends it.

use tcpip::{Application, Connection};

/// The longest line in bytes, including its end. It must be shorter than the receive buffer that
/// the stack gives an application by default (16 KiB).
const MAX_LINE: usize = 4_096;

/// The application on each connection.
struct LineEcho;

impl Application for LineEcho {
    /// No state for each connection: the stack keeps incomplete lines.
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let Some(end) = data.iter().rposition(|byte| *byte == b'\n') else {
            if data.len() < MAX_LINE {
                return 0; // When more arrives, all of the data is offered again.
            }
            conn.close();
            return data.len();
        };
        let lines = &data[..=end];
        match conn.write_bytes(lines) {
            Ok(()) => lines.len(),
            // The send stream is full. When the client has acknowledged more, the lines are offered
            // again.
            Err(_) => 0,
        }
    }
}

impl control::Named for LineEcho {
    const NAME: &'static str = "line-echo";
    const PORT: u16 = 7;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> std::process::ExitCode {
    control::tcp(|_, _| Ok(LineEcho))
}
