//! Turns UDP packets round and does nothing else: no checksum is looked at,
//! nothing is looked up. What it reaches on a link is the most that any server
//! of one answer to one request can reach there, so figures are told as
//! fractions of it.
//!
//! ```text
//! # cargo run --release -p examples --bin reflect -- --device xdp:eth0 --wait spin
//! ```

use std::process::ExitCode;

use clap::Parser;
use control::{Listening, Program, ServeArgs, StartError, WorkerContext};
use ip::{Host, Input};
use nmio::device::Transport;
use nmio::{Frame, Handler, Instant, Port};

/// Where an untagged frame's fields lie.
const MAC_LEN: usize = 6;
const ETHERTYPE_AT: usize = 12;
const V4_PROTOCOL_AT: usize = 23;
const V4_ADDRESS_AT: usize = 26;
const V4_UDP_AT: usize = 34;

struct Reflect {
    /// Answers ARP and neighbour discovery where nobody else does.
    host: Host,
}

impl Reflect {
    /// Exchanges source and destination in place, of which no checksum takes
    /// notice; `false` when the frame is no IPv4 UDP packet.
    #[inline(always)]
    fn turn_round(frame: &mut [u8]) -> bool {
        if frame.len() < V4_UDP_AT + 4
            || frame[ETHERTYPE_AT..ETHERTYPE_AT + 3] != [0x08, 0x00, 0x45]
            || frame[V4_PROTOCOL_AT] != ip::PROTOCOL_UDP
        {
            return false;
        }
        let mut swap = |at: usize, len: usize| {
            let (src, dst) = frame[at..at + 2 * len].split_at_mut(len);
            src.swap_with_slice(dst);
        };
        swap(0, MAC_LEN);
        swap(V4_ADDRESS_AT, 4);
        swap(V4_UDP_AT, 2);
        true
    }
}

impl<P: Port> Handler<P> for Reflect {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, mut frame: Frame, _now: Instant) {
        // What finds the ring full is lost, as on the wire.
        if Self::turn_round(&mut frame) {
            let _ = port.send(frame);
        } else if let Input::Reply(reply) = self.host.receive(frame) {
            let _ = port.send(reply);
        }
    }

    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

struct ReflectProgram;

impl Program for ReflectProgram {
    const NAME: &'static str = "reflect";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7;
    type Handler<P: Port> = Reflect;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Handler<P>, StartError> {
        let host = context.host(&port.capabilities());
        Ok(Reflect { host })
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let address = at.addresses.first().map(ToString::to_string);
        let command = address.map(|address| format!("nc -u {address} {}", at.port));
        command.into_iter().collect()
    }
}

/// Turns UDP packets round (IPv4), and nothing else.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    control::serve(&cli.network, || Ok::<_, StartError>(ReflectProgram))
}
