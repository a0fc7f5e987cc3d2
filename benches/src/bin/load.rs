//! Generates load for a server and prints the results; see [`benches::load`].

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::load::dns::{Kind, Queries, zone};
use benches::load::echo::Echo;
use benches::load::http::{self, Client, NumberedSite, numbered};
use benches::load::syn::Flood;
use benches::load::udp::{Asker, Questions};
use benches::load::{LoadError, Options, Report, link};
use clap::{Parser, Subcommand, value_parser};

/// Sends requests to a server as fast as it answers, or at a fixed rate. Checks every reply that it
/// receives. Prints the results as one JSON object.
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
        /// Length of each frame in bytes, including the link header.
        #[arg(long, value_name = "BYTES")]
        size: usize,
        /// Number of outstanding requests in a closed loop. A veth device queues 256 packets and
        /// drops further packets.
        #[arg(long, value_name = "N", default_value_t = WINDOW)]
        window: usize,
    },
    /// Send DNS queries over UDP.
    Dns {
        #[command(flatten)]
        options: Options,
        /// Query the names host0 to host(N-1) of the zone bench.test.
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
        hosts: u32,
        /// What to ask for.
        #[arg(long, value_enum, default_value_t = Kind::Plain)]
        kind: Kind,
        /// Require that each address is of one of the two versions of a zone that `cargo xtask bench
        /// reloads` serves in turn.
        #[arg(long)]
        versions: bool,
        /// Number of outstanding requests in a closed loop. A veth device queues 256 packets and
        /// drops further packets.
        #[arg(long, value_name = "N", default_value_t = WINDOW)]
        window: usize,
    },
    /// Write the zone that queries of some kinds need.
    Zone {
        /// File of the zone.
        file: PathBuf,
        /// Number of names, beginning with host0.
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
        hosts: u32,
        /// What the zone has.
        #[arg(long, value_enum)]
        form: zone::Form,
    },
    /// Send SYNs from made-up client addresses at the given --rate.
    Syn {
        #[command(flatten)]
        options: Options,
    },
    /// Write the site that `load http --numbered N` requests.
    Files {
        /// Empty directory of the site.
        folder: PathBuf,
        /// Number of files.
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(numbered::MAX_FILES)))]
        count: u32,
        /// Length of each file in bytes.
        #[arg(long, value_name = "BYTES", default_value_t = numbered::LEN)]
        length: u32,
    },
    /// Send HTTP requests over TCP connections.
    Http {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        workload: http::Options,
    },
}

/// Default number of outstanding requests. It fits into the queue of a veth device.
const WINDOW: usize = 192;

/// Runs a command. Only generators have a report.
fn run(command: Command) -> Result<Option<Report>, LoadError> {
    let report = match command {
        Command::Echo {
            options,
            size,
            window,
        } => ask("load echo", Echo::new(size)?, window, &options),
        Command::Dns {
            options,
            hosts,
            kind,
            versions,
            window,
        } => {
            let mut queries = Queries::new(kind, hosts, options.seed);
            if versions && !kind.has_versions() {
                let why = "--versions needs --kind plain or hoster";
                return Err(LoadError::Asked(why.into()));
            }
            if versions {
                queries = queries.of_two_versions();
            }
            ask("load dns", queries, window, &options)
        }
        Command::Syn { options } => link::run(&options, |place| Flood::new(place, &options)),
        Command::Files {
            folder,
            count,
            length: len,
        } => {
            return written(&folder, NumberedSite { count, len }.write(&folder));
        }
        Command::Zone { file, hosts, form } => {
            return written(&file, zone::write(&file, form, hosts));
        }
        Command::Http { options, workload } => {
            let workload = workload.read(&options)?;
            link::run(&options, |place| {
                Client::new(place, &workload, options.meter())
            })
        }
    };
    report.map(Some)
}

fn written(path: &Path, result: io::Result<()>) -> Result<Option<Report>, LoadError> {
    result
        .map(|()| None)
        .map_err(|error| LoadError::Asked(format!("{}: {error}", path.display())))
}

fn ask(
    name: &'static str,
    questions: impl Questions,
    window: usize,
    options: &Options,
) -> Result<Report, LoadError> {
    link::run(options, |place| {
        Asker::new(name, questions, place, window, options)
    })
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(report) => {
            if let Some(report) = report {
                println!("{}", serde_json::json!(report));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
