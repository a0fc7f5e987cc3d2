//! Generates load for a server and prints the results; see [`benches::load`].

use std::path::PathBuf;
use std::process::ExitCode;

use benches::load::dns::{Popularity, Queries};
use benches::load::echo::Echo;
use benches::load::http;
use benches::load::link::{self, Place, Start};
use benches::load::syn::Flood;
use benches::load::udp::{Asker, Questions};
use benches::load::{LoadError, Options, Report};
use clap::{Args, Parser, Subcommand};
use nmio::Port;
use nmio::device::MemoryPlan;

/// Sends requests to a server as fast as it answers, or at a fixed rate, and checks every reply.
/// Prints the results as one JSON object.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send datagrams to a server that echoes them.
    Echo {
        #[command(flatten)]
        options: Options,
        /// Length of each frame, including the link header.
        #[arg(long, value_name = "BYTES")]
        size: usize,
        #[command(flatten)]
        window: Window,
    },
    /// Send DNS queries over UDP.
    Dns {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        names: Names,
        /// Query the n-th name n^-EXPONENT times as often as the first name.
        #[arg(long, value_name = "EXPONENT")]
        zipf: Option<f64>,
        #[command(flatten)]
        window: Window,
    },
    /// Send SYNs from made-up client addresses at the given --rate.
    Syn {
        #[command(flatten)]
        options: Options,
    },
    /// Send HTTP requests over TCP connections.
    Http {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        asked: http::Options,
    },
}

#[derive(Args)]
struct Window {
    /// Number of outstanding requests in a closed loop. A veth device queues 256 packets and drops
    /// further packets.
    #[arg(long, value_name = "N", default_value_t = 192)]
    window: usize,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Names {
    /// File with one name per line, optionally followed by a record type; the default type is A.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Query the names host0 to host(N-1) of the zone bench.test.
    #[arg(long, value_name = "N")]
    hosts: Option<u32>,
}

/// Creates an [`Asker`].
struct Ask<'a, Q> {
    name: &'static str,
    questions: Q,
    window: usize,
    options: &'a Options,
}

impl<Q: Questions> Start for Ask<'_, Q> {
    type Generator<P: Port> = Asker<Q>;

    fn start<P: Port>(self, place: &Place) -> Result<Asker<Q>, LoadError> {
        let meter = self.options.meter();
        let pace = self.options.pace();
        Asker::new(self.name, self.questions, place, self.window, pace, meter)
    }
}

/// Creates a [`Flood`].
struct Knock<'a> {
    options: &'a Options,
}

impl Start for Knock<'_> {
    type Generator<P: Port> = Flood;

    fn start<P: Port>(self, place: &Place) -> Result<Flood, LoadError> {
        let options = self.options;
        Flood::new(place, options.pace(), options.seed, options.meter())
    }
}

fn run(command: Command) -> Result<Report, LoadError> {
    let memory = MemoryPlan::default();
    match command {
        Command::Echo {
            options,
            size,
            window,
        } => {
            let start = Ask {
                name: "load echo",
                questions: Echo::new(size)?,
                window: window.window,
                options: &options,
            };
            link::run(&options, memory, start)
        }
        Command::Dns {
            options,
            names,
            zipf,
            window,
        } => {
            let popularity = zipf.map_or(Popularity::Uniform, Popularity::Zipf);
            let questions = match (&names.names, names.hosts) {
                (Some(file), _) => Queries::of_file(file, popularity, options.seed)?,
                (None, hosts) => Queries::of_hosts(hosts.unwrap_or(1), popularity, options.seed)?,
            };
            let start = Ask {
                name: "load dns",
                questions,
                window: window.window,
                options: &options,
            };
            link::run(&options, memory, start)
        }
        Command::Syn { options } => link::run(&options, memory, Knock { options: &options }),
        Command::Http { options, asked } => {
            let start = asked.start(&options)?;
            link::run(&options, memory, start)
        }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(report) => {
            println!("{}", serde_json::json!(report));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
