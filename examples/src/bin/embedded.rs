//! A TCP echo inside a program with a `main` and a runtime of its own.
//!
//! ```text
//! # cargo run --release -p examples --bin embedded
//! # nc 198.18.0.2 7          (the address that it prints)
//! ```
//!
//! Each second it prints how much was echoed. A client that sends `quit` ends it.
//! Another device than a wire of its own is the only argument.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use control::{Listening, Program, ServeArgs, Snapshot, StartError, Tally, WorkerContext};
use nmio::device::{Device, Transport};
use nmio::{Instant, Port};
use tcpip::{Application, Config, Connection, Server, Stack};
use tokio::sync::Notify;
use tokio::time::interval;

/// The line that ends the program.
const QUIT: &[u8] = b"quit\n";

/// What happens on a connection.
struct Echo {
    /// The runtime's task waits for it.
    quit: Arc<Notify>,
}

impl Application for Echo {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        if data == QUIT {
            self.quit.notify_one();
            conn.close();
            return data.len();
        }
        // Without room the bytes are offered again later.
        conn.write_bytes(data).map_or(0, |()| data.len())
    }
}

/// The server, as `control` puts it on ports.
struct Echoes {
    quit: Arc<Notify>,
}

impl Program for Echoes {
    const NAME: &'static str = "embedded";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7;
    type Handler<P: Port> = Server<Echo>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Handler<P>, StartError> {
        let (capabilities, secret) = (port.capabilities(), context.secret.words());
        let quit = Arc::clone(&self.quit);
        let config = Config::on_ports(&[context.port]);
        let stack = Stack::new(&config, Echo { quit }, &capabilities, secret, Instant::ZERO);
        Ok(Server::new(context.host(&capabilities), stack))
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(|address, port| format!("nc {address} {port}"))
    }

    fn tally<P: Port>(&self, server: &Server<Echo>, tally: &mut Tally) {
        tally.event("connections", server.stack.counters().accepted);
        tally.event("bytes", server.stack.counters().bytes_sent);
    }
}

/// The live counts in a line.
fn counts(snapshot: &Snapshot) -> String {
    let tally = snapshot.tally();
    let events = tally.events().iter();
    let counts: Vec<_> = events.map(|(name, n)| format!("{name} {n}")).collect();
    counts.join(", ")
}

async fn echo(device: Device) -> Result<(), control::Error> {
    let quit = Arc::new(Notify::new());
    let program = Echoes {
        quit: Arc::clone(&quit),
    };
    let mut server = control::embed(ServeArgs::on(device), program).await?;
    print!("{}", server.facts());
    let handle = server.handle();
    let mut period = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = period.tick() => println!("{}", counts(&handle.snapshot())),
            () = quit.notified() => handle.stop(),
            ended = &mut server => {
                println!("echoed for {} s", ended?.uptime().as_secs());
                return Ok(());
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let device = std::env::args().nth(1).unwrap_or("auto".to_owned());
    let device = match device.parse() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("embedded: {error}");
            return ExitCode::FAILURE;
        }
    };
    match echo(device).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("embedded: {error}");
            ExitCode::FAILURE
        }
    }
}
