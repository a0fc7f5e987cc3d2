//! A bad network between two interfaces: see [`benches::forward`].

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use benches::forward::Direction;
use benches::forward::config::{PathConfig, WORDS};
use benches::forward::relay::{Relay, RelayConfig, Report};
use benches::forward::socket::{BATCH, PacketSocket, wait, wake_exactly};
use clap::Parser;
use nmio::{Clock as _, Instant, TscClock};
use serde::Serialize;

/// A frame that is due sooner than this is not slept for: the kernel may wake
/// us later.
const SPIN: Duration = Duration::from_micros(60);
/// Turns without sleep after which standard input is looked at.
const TURNS: u32 = 1_024;

/// Forwards every frame from one interface to the other and back, over a path
/// that loses, delays, reorders and doubles by a seed. Says `ready` when it
/// does; ends when its standard input does, with counts of everything as one
/// JSON object.
#[derive(Parser)]
#[command(version, after_help = format!("A path is words with commas between: {WORDS}"))]
struct Cli {
    /// The interface on the client's side.
    #[arg(long, value_name = "IFACE")]
    client: String,

    /// The interface on the server's side.
    #[arg(long, value_name = "IFACE")]
    server: String,

    /// The path from the server to the client.
    #[arg(long, value_name = "PATH", default_value = "")]
    down: PathConfig,

    /// The path from the client to the server.
    #[arg(long, value_name = "PATH", default_value = "")]
    up: PathConfig,

    /// The same seed makes the same fates.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Count the times that a sender with bytes unacknowledged is silent for
    /// so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    silence: u64,

    /// Write a line to FILE for every TCP segment that comes by.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// What is printed at the end.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    report: Report,
    /// Frames that were not received in time. More than none: the run is
    /// worth nothing.
    not_received: u64,
    /// Frames too large to be those of a wire: an offload is on.
    oversized: u64,
    /// Times that a socket did not take frames at once.
    held_up: u64,
}

/// A socket, and what waits to be sent there.
struct Side {
    socket: PacketSocket,
    /// The way that ends here.
    to_here: Direction,
    due: Vec<Vec<u8>>,
    held_up: u64,
}

impl Side {
    fn open(interface: &str, to_here: Direction) -> Result<Self, String> {
        let socket = PacketSocket::open(interface)
            .map_err(|error| format!("opening a packet socket on {interface}: {error}"))?;
        Ok(Self {
            socket,
            to_here,
            due: Vec::new(),
            held_up: 0,
        })
    }

    /// Receives a batch; whether there was one.
    fn receive(&mut self, relay: &mut Relay, clock: &TscClock) -> io::Result<bool> {
        let direction = self.to_here.opposite();
        // Read behind the system call: that is where time goes.
        let mut now = None;
        let received = self.socket.receive(|frame| {
            let now = *now.get_or_insert_with(|| clock.now());
            relay.handle_frame(direction, frame, now);
        })?;
        Ok(received > 0)
    }

    /// Sends what is due; whether there was anything.
    fn send(&mut self, relay: &mut Relay, now: Instant) -> io::Result<bool> {
        while self.due.len() < BATCH
            && let Some(frame) = relay.poll_frame(self.to_here, now)
        {
            self.due.push(frame);
        }
        if self.due.is_empty() {
            return Ok(false);
        }
        let sent = self.socket.send(&self.due)?;
        self.held_up += u64::from(sent < self.due.len());
        for frame in self.due.drain(..sent) {
            relay.recycle(self.to_here, frame);
        }
        Ok(true)
    }
}

fn forward(cli: &Cli) -> Result<Printed, String> {
    let trace = match &cli.trace {
        None => None,
        Some(file) => {
            let opened = File::create(file)
                .map_err(|error| format!("making {}: {error}", file.display()))?;
            Some(Box::new(BufWriter::new(opened)) as Box<dyn Write>)
        }
    };
    let config = RelayConfig {
        down: cli.down,
        up: cli.up,
        seed: cli.seed,
        silence: Duration::from_millis(cli.silence),
    };
    let mut relay = Relay::new(&config, trace);
    let mut sides = [
        Side::open(&cli.client, Direction::Down)?,
        Side::open(&cli.server, Direction::Up)?,
    ];
    println!("ready");
    run(&mut relay, &mut sides).map_err(|error| format!("forwarding: {error}"))?;
    let mut printed = Printed {
        report: relay.report(),
        not_received: 0,
        oversized: 0,
        held_up: 0,
    };
    for side in &sides {
        let dropped = side.socket.dropped();
        let dropped = dropped.map_err(|error| format!("reading the sockets' drops: {error}"))?;
        printed.not_received += u64::from(dropped);
        printed.oversized += side.socket.oversized();
        printed.held_up += side.held_up;
    }
    Ok(printed)
}

/// Forwards until standard input has ended.
fn run(relay: &mut Relay, sides: &mut [Side; 2]) -> io::Result<()> {
    wake_exactly()?;
    let clock = TscClock::new();
    let stdin = io::stdin();
    let mut awake = 0;
    loop {
        let mut busy = false;
        for side in &mut *sides {
            busy |= side.receive(relay, &clock)?;
        }
        for side in &mut *sides {
            busy |= side.send(relay, clock.now())?;
        }
        awake += 1;
        let left = relay.next_arrival().map(|due| due.since(clock.now()));
        let timeout = match left {
            Some(left) if busy || left <= SPIN => {
                if awake < TURNS {
                    continue;
                }
                Some(Duration::ZERO)
            }
            None if busy => continue,
            Some(left) => Some(left.saturating_sub(SPIN)),
            None => None,
        };
        awake = 0;
        let [client, server] = &*sides;
        let fds = [client.socket.as_fd(), server.socket.as_fd(), stdin.as_fd()];
        let [.., ending] = wait(fds, timeout)?;
        if ending && stdin.lock().read(&mut [0; 64])? == 0 {
            return Ok(());
        }
    }
}

fn main() -> ExitCode {
    match forward(&Cli::parse()) {
        Ok(printed) => {
            println!("{}", serde_json::json!(printed));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("forward: {error}");
            ExitCode::FAILURE
        }
    }
}
