//! The command line of the web server.

mod loading;
mod program;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use control::{ConnectionArgs, ServeArgs};
use sandstorm::{Limits, REQUEST_TIMEOUT};
use tcpip::Config;

use loading::NotLoaded;
use program::Sandstorm;

/// Sandstorm serves a folder of files over HTTP, from packets that stand
/// ready before they are asked for.
///
/// It carries its own network stack and takes only the packets for its port
/// from the interface; everything else stays the kernel's.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a folder until SIGINT or SIGTERM.
    ///
    /// All files are read once, at the start; changes are seen after the next
    /// one. `/` and `/sub/` are answered with the folder's index.html, and
    /// `/sub` leads to `/sub/`. Files and folders whose names begin with a
    /// dot are left out, but for .well-known. Symbolic links are followed
    /// inside the folder. Links that lead out of it or nowhere, pipes, devices
    /// and what cannot be read are left out with a warning.
    #[command(
        after_help = "Exit status: 0 after a signal, 1 when nothing could be served \
                            (standard error says why), 2 for a wrong command line."
    )]
    Serve(Serve),
}

#[derive(Args, Debug)]
struct Serve {
    /// The folder with the files.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// How packets are sent.
    #[arg(long, value_enum, default_value_t = ModeArg::MemCopy)]
    mode: ModeArg,

    /// Refuse to start when an entry of the folder cannot be served, and name
    /// the first 100. Without it they are left out, with a warning for each of
    /// those.
    #[arg(long)]
    strict: bool,

    /// Most files to load; those beyond are left out.
    #[arg(long, value_name = "N", default_value_t = Limits::default().files)]
    max_files: u64,

    /// Most bytes of all files together, which are kept in memory; a file that
    /// does not fit is left out.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes)]
    max_bytes: u64,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ModeArg {
    /// Packets live in the port's memory, and are patched and sent in place.
    /// Takes a frame of memory for every packet of the site.
    PreCopy,
    /// Packets are copied to a free frame for each send.
    #[value(name = "memcopy")]
    MemCopy,
}

impl Serve {
    /// TCP as asked for; the port comes later.
    fn tcp(&self) -> Config {
        self.connections.config(Config {
            mode: self.mode.into(),
            ..Config::default()
        })
    }
}

impl From<ModeArg> for tcpip::Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::PreCopy => Self::PreCopy,
            ModeArg::MemCopy => Self::MemCopy,
        }
    }
}

fn main() -> ExitCode {
    let Command::Serve(serve) = Cli::parse().command;
    control::serve(&serve.network, || {
        let limits = Limits {
            files: serve.max_files,
            bytes: serve.max_bytes,
            ..Limits::default()
        };
        let site = loading::load(&serve.folder, &limits, serve.strict)?;
        let request_timeout = serve.connections.request_timeout(REQUEST_TIMEOUT);
        Ok::<_, NotLoaded>(
            Sandstorm::new(site, &serve.folder, serve.tcp()).with_request_timeout(request_timeout),
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn modes_have_the_names_that_are_documented() {
        let mode = |line: &str| {
            let Command::Serve(serve) = Cli::try_parse_from(line.split(' '))?.command;
            Ok::<_, clap::Error>(serve.mode)
        };
        assert_eq!(mode("sandstorm serve d").unwrap(), ModeArg::MemCopy);
        assert_eq!(
            mode("sandstorm serve d --mode memcopy").unwrap(),
            ModeArg::MemCopy
        );
        assert_eq!(
            mode("sandstorm serve d --mode pre-copy").unwrap(),
            ModeArg::PreCopy
        );
        assert!(mode("sandstorm serve d --mode turnaround").is_err());
        assert!(mode("sandstorm serve").is_err());
    }

    #[test]
    fn without_options_the_stack_has_its_defaults() {
        let line = ["sandstorm", "serve", "d"];
        let Command::Serve(serve) = Cli::try_parse_from(line).unwrap().command;
        assert_eq!(serve.tcp(), Config::default());
    }
}
