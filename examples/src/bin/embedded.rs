//! A TCP echo server inside a program that has its own `main` and runtime.
//!
//! ```text
//! # cargo run --release -p examples --bin embedded
//! # nc 198.18.0.2 7          (the address that it prints)
//! ```
//!
//! Once a second, the program prints its counters. A client ends the program by sending the line
//! `quit`. An optional argument selects the device. By default, the server creates its own link to
//! this host.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use control::{Named, NewWorker, ServeArgs, Snapshot, Tcp};
use nmio::device::Device;
use tcpip::{Application, Connection, Contents};
use tokio::sync::Notify;
use tokio::time::interval;

/// The line by which a client ends the program.
const QUIT: &[u8] = b"quit\n";

/// The application, which echoes the data of each connection.
struct Echo {
    /// Notifies the task that stops the server.
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
        // If the send stream is full, consume nothing. The stack offers the same bytes again later.
        conn.write_bytes(data).map_or(0, |()| data.len())
    }
}

impl Named for Echo {
    const NAME: &'static str = "embedded";
    const PORT: u16 = 7;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// Formats some of the live counters as one line.
fn counts(snapshot: &Snapshot) -> String {
    let tally = snapshot.tally();
    let names = ["connections", "connections open", "data bytes sent"];
    let counts = names.map(|name| format!("{name} {}", tally.of(name).unwrap_or_default()));
    counts.join(", ")
}

async fn echo(device: Device) -> Result<(), control::Error> {
    let quit = Arc::new(Notify::new());
    let quit_flag = Arc::clone(&quit);
    let program = Tcp::new(move |_: &mut NewWorker<()>, _: &mut Contents| {
        let quit = Arc::clone(&quit_flag);
        Ok(Echo { quit })
    });
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
