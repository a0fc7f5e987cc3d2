//! The command line of namestorm.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::{ConnectionArgs, ServeArgs};
use namestorm::{Form, Namestorm, ReplyMode, TcpSettings, ZoneSpec};

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
    #[command(
        after_help = "Exit status: 0 after a signal, 1 when nothing could be served \
                            (standard error says why), 2 for a wrong command line."
    )]
    Serve(Box<Serve>),
    /// Check zones and print their sizes. The exit status is 1 if a zone cannot be served or is
    /// given twice.
    Check {
        /// The master files. Without ORIGIN, the zone's name is the file's first $ORIGIN or the
        /// file's name.
        #[arg(required = true, value_name = "[ORIGIN=]FILE")]
        zones: Vec<ZoneSpec>,
    },
}

#[derive(Parser)]
struct Serve {
    /// A master file. Give ORIGIN if the zone's name is neither the file's first $ORIGIN nor the
    /// file's name. May be repeated.
    #[arg(long = "zone", required = true, num_args = 1.., value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    /// Do not start if a zone cannot be loaded. Without this option the other zones are served, and
    /// queries for the broken zone get SERVFAIL.
    #[arg(long)]
    strict: bool,

    /// The form of names in the index: `wire` format, as in queries, or `fqdn`, as text.
    #[arg(long, default_value_t, value_name = "wire|fqdn")]
    hash: Form,

    /// How UDP replies are sent: `pre-copy` sends resident packets, `memcopy` copies the answer
    /// into a new frame, `turnaround` writes the reply into the query's frame.
    #[arg(long, default_value_t, value_name = "pre-copy|memcopy|turnaround")]
    mode: ReplyMode,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

/// Writes lines to a reader that may close its end early.
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

    /// Flushes the output. A closed reader is not an error.
    fn finish(mut self) -> io::Result<()> {
        let result = self.failed.map_or_else(|| self.out.flush(), Err);
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// Runs `namestorm check`. The error is a message for the user.
fn check(zones: &[ZoneSpec], say: &mut dyn FnMut(String), out: impl Write) -> Result<(), String> {
    let mut lines = Lines::new(out);
    let checked = namestorm::check(zones, say, &mut |line| lines.print(&line));
    let written = lines.finish();
    checked.map_err(|error| error.to_string())?;
    written.map_err(|error| format!("cannot write to standard output: {error}"))
}

fn main() -> ExitCode {
    // Loading may take seconds, so it reports progress on standard error. Failed writes are
    // ignored.
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
                .map(|program| program.with_tcp(TcpSettings::asked(&serve.connections)))
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use clap::CommandFactory as _;

    use super::*;

    fn check_one(out: impl Write) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let zone = "$ORIGIN example.\n\
                    @ 60 SOA ns. mail. 1 2 3 4 5\n\
                    @ 60 NS ns.example.net.\n";
        std::fs::write(file.path(), zone).unwrap();
        let spec = file.path().to_str().unwrap().parse().unwrap();
        check(&[spec], &mut |line| panic!("{line}"), out)
    }

    #[test]
    fn a_full_output_is_one_error() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let message = check_one(full).unwrap_err();
        let start = "cannot write to standard output: No space left";
        assert!(message.starts_with(start), "{message}");
    }

    #[test]
    fn a_closed_reader_is_not_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(check_one(writer), Ok(()));
        let mut out = Vec::new();
        assert_eq!(check_one(&mut out), Ok(()));
        assert!(out.starts_with(b"example.: "), "{out:?}");
    }

    #[test]
    fn the_help_describes_the_exit_status() {
        let mut cli = Cli::command();
        let serve = cli.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        assert!(help.contains("Exit status: 0 after a signal"), "{help}");
    }
}
