//! Sends every datagram back: the smallest server on the UDP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin udp_echo
//! # nc -u 198.18.0.2 7       (the line that it prints behind "try")
//! ```
//!
//! Without options it makes a wire of its own to this host; `--device` names
//! another one. Ctrl-C ends it.

use std::process::ExitCode;

use clap::Parser;
use control::{Listening, Program, ServeArgs, StartError, Tally, WorkerContext};
use nmio::device::Transport;
use nmio::{Instant, Port};
use udpip::{Datagram, Server, Service, Tail};

/// What happens with a datagram.
struct Echo;

impl Service for Echo {
    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        // The answer is the received payload from its first to its last byte,
        // in the frame that it came in; nothing is prepared behind it. That
        // the TX ring had no room for it is counted.
        let len = datagram.payload().len();
        datagram.turn_round(len, Tail::EMPTY, &[]);
    }
}

/// What happens round about: which port, and how a worker is made.
struct EchoProgram;

impl Program for EchoProgram {
    const NAME: &'static str = "udp-echo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7;
    type Handler<P: Port> = Server<Echo>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Handler<P>, StartError> {
        let host = context.host(&port.capabilities());
        Ok(Server::new(host, context.port, Echo))
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let address = at.addresses.first().map(ToString::to_string);
        let command = address.map(|address| format!("nc -u {address} {}", at.port));
        command.into_iter().collect()
    }

    fn tally<P: Port>(&self, server: &Server<Echo>, tally: &mut Tally) {
        let counters = server.udp().counters();
        tally.event("datagrams", counters.received);
        tally.event("sent back", counters.answered);
        let drops = server.host().counters().drops().into_iter();
        for (reason, count) in drops.chain(counters.drops()) {
            tally.drop(reason, count);
        }
    }
}

/// Sends every datagram back.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    control::serve(&cli.network, || Ok::<_, StartError>(EchoProgram))
}
