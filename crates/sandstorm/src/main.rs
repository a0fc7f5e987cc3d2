//! The command line of the web server.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use sandstorm::{SiteArgs, SiteOnly};
use tcpip::{Bbr, CongestionControl, Cubic, NewReno};

/// Sandstorm serves a folder of files over HTTP, from packets that are prepared in advance.
///
/// It has its own network stack and takes only the packets for its port from the interface. All
/// other packets go to the kernel.
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
    /// All files are read once, at the start; later changes need a restart. `/` and `/sub/` are
    /// answered with the folder's index.html, and `/sub` redirects to `/sub/`. Files and folders
    /// whose names begin with a dot are left out, except .well-known. Symbolic links are followed
    /// inside the folder. Links that lead out of it or nowhere, pipes, devices, and unreadable
    /// entries are left out with a warning.
    #[command(
        after_help = "Exit status: 0 after a signal, 1 when nothing could be served \
                            (standard error says why), 2 for a wrong command line."
    )]
    Serve {
        #[command(flatten)]
        site: SiteArgs,

        /// The congestion control of all connections.
        #[arg(long, value_enum, default_value_t, help_heading = "Connections")]
        congestion: Congestion,
    },
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Congestion {
    /// CUBIC (RFC 9438), the default of Linux.
    #[default]
    Cubic,
    /// BBR version 3: faster than CUBIC on paths that lose packets at random,
    /// slower for short responses. It retransmits more than twice as much.
    Bbr,
    /// Reno with the fast recovery of RFC 6582.
    Reno,
}

fn main() -> ExitCode {
    let Command::Serve { site, congestion } = Cli::parse().command;
    match congestion {
        Congestion::Cubic => serve::<Cubic>(&site),
        Congestion::Bbr => serve::<Bbr>(&site),
        Congestion::Reno => serve::<NewReno>(&site),
    }
}

fn serve<C: CongestionControl>(site: &SiteArgs) -> ExitCode {
    site.serve_with::<C, _>(&[], |_, _| Ok(SiteOnly))
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
    fn the_congestion_control_is_named_and_cubic_by_default() {
        let congestion = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' '))?;
            let Command::Serve { congestion, .. } = cli.command;
            Ok::<_, clap::Error>(congestion)
        };
        let line = "sandstorm serve d";
        assert_eq!(congestion(line).unwrap(), Congestion::Cubic);
        for (word, expected) in [
            ("cubic", Congestion::Cubic),
            ("bbr", Congestion::Bbr),
            ("reno", Congestion::Reno),
        ] {
            let line = format!("{line} --congestion {word}");
            assert_eq!(congestion(&line).unwrap(), expected);
        }
        assert!(congestion("sandstorm serve d --congestion vegas").is_err());
    }

    #[test]
    fn a_folder_is_needed() {
        assert!(Cli::try_parse_from(["sandstorm", "serve", "d"]).is_ok());
        assert!(Cli::try_parse_from(["sandstorm", "serve"]).is_err());
        assert!(Cli::try_parse_from(["sandstorm", "d"]).is_err());
    }
}
