//! The command line of the DNS server.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::{ConnectionArgs, ServeArgs};
use namestorm::{Form, Namestorm, ReplyMode, TcpSettings, ZoneSpec};

/// Namestorm is an authoritative DNS server that answers from packets that it prepares when it
/// starts.
///
/// It has its own network stack. It takes only the packets for its port from the interface and
/// leaves all others to the kernel.
#[derive(Parser)]
#[command(name = "namestorm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve zones until SIGINT or SIGTERM.
    #[command(
        after_help = "Exit status: 0 if a signal ended the server, 1 after an error \
                            (standard error says which), 2 if the command line is wrong."
    )]
    Serve(Box<Serve>),
    /// Check zone files and print their size. The exit status is 1 if a zone has an error or is
    /// given twice.
    Check {
        /// Zone files to check. Without ORIGIN, the zone's name is that of an $ORIGIN before the
        /// first record. Otherwise it is the owner of a leading SOA record, or else the file's name.
        #[arg(required = true, value_name = "[ORIGIN=]FILE")]
        zones: Vec<ZoneSpec>,
    },
}

#[derive(Parser)]
struct Serve {
    /// Zone file to serve. Without ORIGIN, the zone's name is that of an $ORIGIN before the first
    /// record. Otherwise it is the owner of a leading SOA record, or else the file's name. Repeat
    /// the option for more zones.
    #[arg(long = "zone", required = true, value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    /// Refuse to start if a zone cannot be loaded or is given twice. Without this option, the other
    /// zones are served, and queries for a broken zone get SERVFAIL. At least one zone must load in
    /// any case.
    #[arg(long)]
    strict: bool,

    /// Form of names in the index: `wire` as in queries, or `fqdn` as text.
    #[arg(long, default_value_t, value_name = "wire|fqdn")]
    hash: Form,

    /// How replies over UDP are sent: `pre-copy` from prepared packets, `memcopy` by copying the
    /// answer into a free frame, `turnaround` in the query's own frame.
    #[arg(long, default_value_t, value_name = "pre-copy|memcopy|turnaround")]
    mode: ReplyMode,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

/// Writes lines to an output. A reader that stops early, such as `head`, does not cause an error.
struct Lines<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        Self { out, failed: None }
    }

    /// Writes a line, unless an earlier write has failed.
    fn print(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }

    /// Flushes the output. Returns the first error, unless the error is that the reader has stopped
    /// reading.
    fn finish(mut self) -> io::Result<()> {
        let result = self.failed.map_or_else(|| self.out.flush(), Err);
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// Runs `namestorm check`. The error is a message for the operator.
fn check(zones: &[ZoneSpec], say: &mut dyn FnMut(String), out: impl Write) -> Result<(), String> {
    let mut lines = Lines::new(out);
    let checked = namestorm::check(zones, say, &mut |line| lines.print(&line));
    let written = lines.finish();
    checked.map_err(|error| error.to_string())?;
    written.map_err(|error| format!("cannot write to standard output: {error}"))
}

fn main() -> ExitCode {
    // Loading may take seconds, so messages are written immediately. A failure to write to standard
    // error is ignored, because it cannot be reported.
    let mut say = |line: String| drop(writeln!(io::stderr(), "{line}"));
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
                .map(|program| program.with_tcp(TcpSettings::from_args(&serve.connections)))
        }),
        Command::Check { zones } => match check(&zones, &mut say, io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                say(format!("namestorm: {message}"));
                ExitCode::FAILURE
            }
        },
    }
}
