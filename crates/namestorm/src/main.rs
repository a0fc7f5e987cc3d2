//! The command line of namestorm.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::{ConnectionArgs, ServeArgs};
use namestorm::{Form, Mode, Namestorm, TcpSettings, ZoneSpec};

/// An authoritative DNS server that answers from prepared packets, with a
/// network stack of its own.
#[derive(Parser)]
#[command(name = "namestorm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve zones until SIGINT or SIGTERM.
    Serve(Box<Serve>),
    /// Check zones and say how much is in them; status 1 when one cannot
    /// be served, or is given twice.
    Check {
        /// The master files. Without ORIGIN a file's first $ORIGIN or its
        /// name decides.
        #[arg(required = true, value_name = "[ORIGIN=]FILE")]
        zones: Vec<ZoneSpec>,
    },
}

#[derive(Parser)]
struct Serve {
    /// A master file, and the zone's name if it is not the file's first
    /// $ORIGIN or the file's own name; may repeat.
    #[arg(long = "zone", required = true, num_args = 1.., value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    /// Do not start when a zone cannot be loaded. Otherwise the others are
    /// served, and queries for the broken one get SERVFAIL.
    #[arg(long)]
    strict: bool,

    /// The form of names in the index: `wire`, as queries have them, or
    /// `fqdn`, as text.
    #[arg(long, default_value_t, value_name = "wire|fqdn")]
    hash: Form,

    /// How replies over UDP are sent: `pre-copy` from packets that lie ready,
    /// `memcopy` by copying, `turnaround` in the query's own frame.
    #[arg(long, default_value_t, value_name = "pre-copy|memcopy|turnaround")]
    mode: Mode,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

impl Serve {
    /// TCP as asked for.
    fn tcp(&self) -> TcpSettings {
        let defaults = TcpSettings::default();
        TcpSettings {
            stack: self.connections.config(defaults.stack),
            request_timeout: self.connections.request_timeout(defaults.request_timeout),
        }
    }
}

fn main() -> ExitCode {
    // Lines about loading: it may take seconds.
    let mut say = |line: String| eprintln!("{line}");
    match Cli::parse().command {
        Command::Serve(serve) => control::serve(&serve.network, || {
            let Serve {
                zones,
                hash,
                mode,
                strict,
                ..
            } = &*serve;
            Namestorm::load(zones, *hash, *mode, *strict, &mut say)
                .map(|program| program.with_tcp(serve.tcp()))
        }),
        Command::Check { zones } => {
            match namestorm::check(&zones, &mut say, &mut |line| println!("{line}")) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("namestorm: {error}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}
