//! A network emulator in user space. It forwards Ethernet frames between two interfaces, and
//! impairs them as a real path does.
//!
//! Two compared servers must get the same impairments. The random numbers for a data segment
//! therefore depend only on the seed, the direction, and the numbers of the connection and the
//! segment. For example, the fifth data segment of the first connection gets the same random
//! numbers with either server. Segments with SYN, FIN or RST and no payload are never lost at
//! random. A lost SYN costs a second with any recovery algorithm and would hide the difference
//! between the servers. Pure ACKs have their own loss rate.

mod config;
mod impairment;
mod ledger;
mod path;
mod relay;
#[cfg(test)]
mod relay_tests;
mod segment;
mod socket;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use nmio::{Clock as _, TscClock};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use config::PathConfig;
use relay::{Relay, Report};
use socket::{PacketSocket, wait, wake_exactly};

/// Maximum number of frames handled in one direction before the other direction has its turn.
const BATCH: usize = 64;
/// Time before a frame is due at which the loop stops sleeping, because the kernel may wake it
/// late.
const SPIN: Duration = Duration::from_micros(60);
/// Maximum duration of a sleep. After it, the loop checks whether a signal has arrived.
const SLEEP: Duration = Duration::from_millis(100);

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the server to the client.
    Down,
    /// From the client to the server.
    Up,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::Down, Self::Up];

    const fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }
}

/// Forwards frames between two interfaces. Delays them, and loses, reorders, duplicates or marks
/// some of them at random. Prints `ready` when forwarding begins. On SIGTERM or SIGINT, prints all
/// counters as one JSON object and exits.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Interface on the client's side.
    #[arg(long, value_name = "IFACE")]
    client: String,

    /// Interface on the server's side.
    #[arg(long, value_name = "IFACE")]
    server: String,

    /// Impairments from the server to the client, as in `{"rate": 10000000, "loss": 0.01}`. The
    /// error for an unknown field lists all fields.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    down: PathConfig,

    /// Impairments from the client to the server, in the same form.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    up: PathConfig,

    /// Seed of the random impairments; equal seeds give equal impairments.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write a line to FILE for each TCP segment of a connection whose SYN was seen.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Counters of a run.
#[derive(Serialize)]
struct Counters {
    #[serde(flatten)]
    report: Report,
    /// Number of frames that the kernel dropped because the sockets' buffers were full. If there
    /// are any, the run is invalid.
    not_received: u64,
}

/// The socket of one interface, and the frame that waits to be sent on the socket.
struct Side {
    socket: PacketSocket,
    /// Direction of the frames that are sent on this socket.
    to_here: Direction,
    next: Option<Vec<u8>>,
}

impl Side {
    fn open(interface: &str, to_here: Direction) -> Result<Self, String> {
        let socket = PacketSocket::open(interface)
            .map_err(|error| format!("opening a packet socket on {interface}: {error}"))?;
        Ok(Self {
            socket,
            to_here,
            next: None,
        })
    }

    /// Receives up to [`BATCH`] frames and passes them to `relay`. Returns true if there was at
    /// least one frame.
    fn receive(&mut self, relay: &mut Relay, clock: &TscClock) -> io::Result<bool> {
        let direction = self.to_here.opposite();
        for received in 0..BATCH {
            let Some(frame) = self.socket.receive()? else {
                return Ok(received > 0);
            };
            relay.handle_frame(direction, frame, clock.now());
        }
        Ok(true)
    }

    /// Sends up to [`BATCH`] of the frames that are due. Returns true if at least one was due.
    fn send(&mut self, relay: &mut Relay, clock: &TscClock) -> io::Result<bool> {
        for sent in 0..BATCH {
            let polled = || relay.poll_frame(self.to_here, clock.now());
            let Some(frame) = self.next.take().or_else(polled) else {
                return Ok(sent > 0);
            };
            if !self.socket.send(&frame)? {
                self.next = Some(frame);
                break;
            }
        }
        Ok(true)
    }
}

fn forward(cli: &Cli) -> Result<Counters, String> {
    let open = |file: &PathBuf| match File::create(file) {
        Ok(opened) => Ok(Box::new(BufWriter::new(opened)) as Box<dyn Write>),
        Err(error) => Err(format!("creating {}: {error}", file.display())),
    };
    let trace = cli.trace.as_ref().map(open).transpose()?;
    let mut relay = Relay::new([cli.down, cli.up], cli.seed, trace);
    let mut sides = [
        Side::open(&cli.client, Direction::Down)?,
        Side::open(&cli.server, Direction::Up)?,
    ];
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&ended));
        registered.map_err(|error| format!("waiting for signal {signal}: {error}"))?;
    }
    println!("ready");
    run(&mut relay, &mut sides, &ended).map_err(|error| format!("forwarding: {error}"))?;
    let mut not_received = 0;
    for side in &sides {
        let dropped = side.socket.dropped();
        let dropped = dropped.map_err(|error| format!("reading the sockets' drops: {error}"))?;
        not_received += u64::from(dropped);
    }
    let report = relay.report();
    Ok(Counters {
        report,
        not_received,
    })
}

/// Forwards frames until a signal arrives.
fn run(relay: &mut Relay, sides: &mut [Side; 2], ended: &AtomicBool) -> io::Result<()> {
    wake_exactly()?;
    let clock = TscClock::new();
    while !ended.load(Ordering::Relaxed) {
        let mut busy = false;
        for side in &mut *sides {
            busy |= side.receive(relay, &clock)?;
        }
        for side in &mut *sides {
            busy |= side.send(relay, &clock)?;
        }
        let left = relay.next_arrival().map(|at| at.since(clock.now()));
        let left = left.map_or(SLEEP, |left| left.min(SLEEP));
        if !busy && left > SPIN {
            let [client, server] = &*sides;
            wait(
                [client.socket.as_fd(), server.socket.as_fd()],
                left.saturating_sub(SPIN),
            )?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match forward(&Cli::parse()) {
        Ok(counters) => {
            println!("{}", serde_json::json!(counters));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("forward: {error}");
            ExitCode::FAILURE
        }
    }
}
