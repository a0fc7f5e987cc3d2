//! The command line of the web server.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sandstorm::{SiteArgs, SiteOnly};

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
    Serve(SiteArgs),
}

fn main() -> ExitCode {
    let Command::Serve(site) = Cli::parse().command;
    site.serve(&[], |_, _| Ok(SiteOnly))
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
    fn a_folder_is_needed() {
        assert!(Cli::try_parse_from(["sandstorm", "serve", "d"]).is_ok());
        assert!(Cli::try_parse_from(["sandstorm", "serve"]).is_err());
        assert!(Cli::try_parse_from(["sandstorm", "d"]).is_err());
    }
}
