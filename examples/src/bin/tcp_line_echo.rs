//! Sends every line back: the smallest server on the TCP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin tcp_line_echo
//! # nc 198.18.0.2 7          (the line that it prints behind "try")
//! ```
//!
//! Without options it makes a wire of its own to this host; `--device` names
//! another one. Ctrl-C ends it.

use tcpip::{Application, Connection};

/// The most bytes of a line, its end included. Less than the stack keeps for
/// an application that waits for more (16 KiB).
const MAX_LINE: usize = 4_096;

/// What happens on a connection.
struct LineEcho;

impl Application for LineEcho {
    /// Nothing is remembered of a connection: the stack keeps what is not a
    /// whole line yet.
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let Some(end) = data.iter().rposition(|byte| *byte == b'\n') else {
            if data.len() < MAX_LINE {
                return 0; // More will come, and then all of it is offered again.
            }
            conn.close();
            return data.len();
        };
        let lines = &data[..=end];
        match conn.write_bytes(lines) {
            Ok(()) => lines.len(),
            // No room before the client has taken more of what it asked for:
            // the lines are offered again then.
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
