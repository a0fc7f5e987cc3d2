//! Echoes every line: the smallest server on the TCP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin tcp_line_echo
//! # nc 198.18.0.2 7          (the command that it prints after "try")
//! ```
//!
//! Without options, the server creates its own link to this host; `--device` selects another
//! device. Press Ctrl-C to stop the server.

use tcpip::{Application, Connection};

/// Number of received bytes without a line end after which the connection is closed. It must be
/// smaller than the connection's receive buffer (by default 16 KiB).
const MAX_LINE: usize = 4_096;

/// The application, which echoes the lines of each connection.
struct LineEcho;

impl Application for LineEcho {
    /// Connections need no state, because the stack buffers incomplete lines.
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
            // There is no room to send. The stack offers the lines again when there is room.
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
