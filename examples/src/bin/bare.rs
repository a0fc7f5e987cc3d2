//! A TCP echo server on the libraries alone, without `control`: one queue, served by one thread.
//!
//! ```text
//! # cargo run --release -p examples --bin bare
//! # nc 198.18.0.2 7          (the command that it prints after "try")
//! ```
//!
//! The first argument selects another device, and the others are addresses of the server's own, such
//! as `192.0.2.80/24`. Ctrl-C ends the process, and the kernel then removes the steering program and
//! the link.
//!
//! `control` adds the rest of a server: options, several workers, a sandbox, counters, and an end in
//! which clients are told.

use std::error::Error;
use std::thread;

use ip::Host;
use nmio::device::{AddressPrefix, Interface, InterfaceConfig, MemoryPlan, QueueSource, Transport};
use nmio::{Instant, LoopConfig, Port, Stop, TscClock, Wait};
use tcpip::{Application, Config, Connection, ContentError, Contents, Server, Stack};

const PORT: u16 = 7;

type Failure = Box<dyn Error + Send + Sync>;

struct Echo;

impl Application for Echo {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        // If there is no room, the stack offers the same bytes again later.
        conn.write_bytes(data).map_or(0, |()| data.len())
    }
}

/// Serves one queue of the interface, of which `host` has the addresses.
fn serve(queue: QueueSource, host: Host, secret: [u64; 4]) -> Result<(), Failure> {
    let mut port = queue.open(MemoryPlan::default())?;
    let capabilities = port.capabilities();
    let make = |_: &mut Contents| Ok::<_, ContentError>(Echo);
    let config = Config::on_ports(&[PORT]);
    let stack = <Stack<_>>::load(&config, make, &capabilities, secret, Instant::ZERO)?;
    let host = host.with_partial_checksums(capabilities.partial_checksums);
    if host.is_own() {
        host.station().announce(&mut port);
    }
    let addresses = host.station().addresses();
    let words: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    println!("listening: {}", words.join(", "));
    println!("try: nc {} {PORT}", addresses[0]);

    let mut server = Server::new(host, stack);
    let (clock, config, stop) = (TscClock::new(), LoopConfig::default(), Stop::new());
    nmio::run(&mut port, &mut server, &clock, &config, &stop)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().unwrap_or("auto".to_owned());
    let own = arguments.map(|address| address.parse::<AddressPrefix>());
    let interface = Interface::open(&InterfaceConfig {
        device: device.parse()?,
        own_addresses: own.collect::<Result<_, _>>()?,
        services: vec![(Transport::Tcp, PORT)],
        workers: Some(1),
        wait: Wait::default(),
        program: "bare",
    })?;
    // The same random key serves the hashes of the TCP stack and of the host.
    let mut secret = [0; 4];
    for word in &mut secret {
        *word = getrandom::u64()?;
    }
    let (queue, host) = (interface.queue(0), Host::of_interface(&interface, secret));
    // With device `auto`, a thread that opens a queue leaves this host's network.
    let worker = thread::spawn(move || serve(queue, host, secret));
    worker.join().expect("the worker does not panic")
}
