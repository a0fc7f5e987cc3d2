//! The command line of the web server.

mod loading;
mod program;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use control::ServeArgs;
use sandstorm::Limits;
use tcpip::{Config, SynCookies, WhenFull};

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
    /// all of them. Without it they are left out, with a warning each.
    #[arg(long)]
    strict: bool,

    /// Most files to load; those beyond are left out.
    #[arg(long, value_name = "N", default_value_t = Limits::default().files)]
    max_files: u64,

    /// Most bytes of all files together, which are kept in memory; a file that
    /// does not fit is left out.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes)]
    max_bytes: u64,

    /// Most connections of one worker at a time. Each takes about 300 bytes
    /// once it is used.
    #[arg(long, value_name = "N", default_value_t = Config::default().max_connections,
          value_parser = value_parser!(u32).range(1..=i64::from(Config::MAX_CONNECTIONS)))]
    max_connections: u32,

    /// What happens to a client beyond that.
    #[arg(long, value_enum, default_value_t = WhenFullArg::Evict)]
    when_full: WhenFullArg,

    /// Most connections of one client address to one worker, or of one IPv6
    /// network of 64 bits: beyond it a client is not let in. Without it as
    /// many as there are.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_per_address: Option<u32>,

    /// Most connections of one worker whose handshake is not complete.
    #[arg(long, value_name = "N", default_value_t = Config::default().max_half_open,
          value_parser = value_parser!(u32).range(1..))]
    max_half_open: u32,

    /// When to answer a client's first packet with a SYN cookie, which takes
    /// no memory.
    #[arg(long, value_enum, default_value_t = SynCookiesArg::Auto)]
    syn_cookies: SynCookiesArg,

    /// Close a connection that has been silent for this long.
    #[arg(long, value_name = "SECONDS",
          default_value_t = Config::default().idle_timeout.as_secs() as u32,
          value_parser = value_parser!(u32).range(1..=MAX_IDLE_SECONDS))]
    idle_timeout: u32,

    #[command(flatten)]
    network: ServeArgs,
}

/// The stack takes a longer time as this one.
const MAX_IDLE_SECONDS: i64 = Config::MAX_TIME.as_secs().cast_signed();

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ModeArg {
    /// Packets live in the port's memory, and are patched and sent in place.
    /// Takes a frame of memory for every packet of the site.
    PreCopy,
    /// Packets are copied to a free frame for each send.
    #[value(name = "memcopy")]
    MemCopy,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFullArg {
    /// The connection that has made the least progress gives way, first those
    /// of an address that holds more than an eighth of the table.
    #[value(alias = "evict-idle")]
    Evict,
    /// The client waits: its first packet is dropped, and comes again.
    Refuse,
}

impl From<WhenFullArg> for WhenFull {
    fn from(arg: WhenFullArg) -> Self {
        match arg {
            WhenFullArg::Evict => Self::Evict,
            WhenFullArg::Refuse => Self::Refuse,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum SynCookiesArg {
    /// When a limit is reached: nobody is shut out by clients that are not
    /// there.
    Auto,
    /// Always.
    Always,
    /// Never: beyond a limit first packets are dropped.
    Never,
}

impl From<SynCookiesArg> for SynCookies {
    fn from(arg: SynCookiesArg) -> Self {
        match arg {
            SynCookiesArg::Auto => Self::Auto,
            SynCookiesArg::Always => Self::Always,
            SynCookiesArg::Never => Self::Never,
        }
    }
}

impl Serve {
    /// TCP as asked for; the port comes later.
    fn tcp(&self) -> Config {
        Config {
            mode: self.mode.into(),
            max_connections: self.max_connections,
            when_full: self.when_full.into(),
            max_per_address: self.max_per_address,
            max_half_open: self.max_half_open,
            syn_cookies: self.syn_cookies.into(),
            idle_timeout: Duration::from_secs(self.idle_timeout.into()),
            ..Config::default()
        }
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
        Ok::<_, NotLoaded>(Sandstorm::new(site, &serve.folder, serve.tcp()))
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
    fn limits_of_connections_are_the_stacks() {
        let tcp = |options: &str| {
            let line = format!("sandstorm serve d {options}");
            let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace())?.command;
            Ok::<_, clap::Error>(serve.tcp())
        };
        assert_eq!(tcp("").unwrap(), Config::default());
        let set = tcp("--max-connections 1000000 --idle-timeout 3600").unwrap();
        assert_eq!(set.max_connections, 1_000_000);
        assert_eq!(set.idle_timeout, Duration::from_hours(1));
        let set =
            tcp("--when-full refuse --max-per-address 9 --max-half-open 1 --syn-cookies never");
        let expected = Config {
            when_full: WhenFull::Refuse,
            max_per_address: Some(9),
            max_half_open: 1,
            syn_cookies: SynCookies::Never,
            ..Config::default()
        };
        assert_eq!(set.unwrap(), expected);
        for refused in [
            "--max-connections 0",
            "--max-per-address 0",
            "--max-half-open 0",
            "--syn-cookies sometimes",
            "--when-full idle",
            "--max-connections 268435457",
            "--idle-timeout 0",
            "--idle-timeout 604801",
        ] {
            assert!(tcp(refused).is_err(), "{refused}");
        }
    }
}
