//! Sends every line back: the smallest server on the TCP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin tcp_line_echo
//! # nc 198.18.0.2 7          (the line that it prints behind "try")
//! ```
//!
//! Without options it makes a wire of its own to this host; `--device` names
//! another one. Ctrl-C ends it.

use std::process::ExitCode;

use clap::Parser;
use control::{Listening, Program, ServeArgs, StartError, WorkerContext};
use nmio::device::Transport;
use nmio::{Instant, Port};
use tcpip::{Application, Config, Connection, Server, Stack};

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

/// What happens round about: which port, and how a worker is made.
struct LineEchoProgram;

impl Program for LineEchoProgram {
    const NAME: &'static str = "line-echo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7;
    type Handler<P: Port> = Server<LineEcho>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Handler<P>, StartError> {
        let capabilities = port.capabilities();
        let stack = Stack::new(
            &Config::on_ports(&[context.port]),
            LineEcho,
            &capabilities,
            context.secret.words(),
            Instant::ZERO,
        );
        Ok(Server::new(context.host(&capabilities), stack))
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let address = at.addresses.first().map(ToString::to_string);
        let command = address.map(|address| format!("nc {address} {}", at.port));
        command.into_iter().collect()
    }
}

/// Sends every line back.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    control::serve(&cli.network, || Ok::<_, StartError>(LineEchoProgram))
}
