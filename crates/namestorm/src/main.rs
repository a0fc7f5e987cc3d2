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
    mode: ReplyMode,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

/// Lines for somebody who may have stopped reading.
struct Lines<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        Self { out, failed: None }
    }

    /// Writes a line, unless an earlier one has failed.
    fn print(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }

    /// Writes the rest. A reader who has gone is no error.
    fn finish(mut self) -> io::Result<()> {
        let result = self.failed.map_or_else(|| self.out.flush(), Err);
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// `namestorm check`; the error is a message for a person.
fn check(zones: &[ZoneSpec], say: &mut dyn FnMut(String), out: impl Write) -> Result<(), String> {
    let mut lines = Lines::new(out);
    let checked = namestorm::check(zones, say, &mut |line| lines.print(&line));
    let written = lines.finish();
    checked.map_err(|error| error.to_string())?;
    written.map_err(|error| format!("cannot write to standard output: {error}"))
}

fn main() -> ExitCode {
    // Lines about loading: it may take seconds. Nobody hears of one that is
    // not written.
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
    fn a_reader_may_go_before_the_end() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(check_one(writer), Ok(()));
        let mut out = Vec::new();
        assert_eq!(check_one(&mut out), Ok(()));
        assert!(out.starts_with(b"example.: "), "{out:?}");
    }

    #[test]
    fn the_help_tells_the_exit_status() {
        let mut cli = Cli::command();
        let serve = cli.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        assert!(help.contains("Exit status: 0 after a signal"), "{help}");
    }
}
