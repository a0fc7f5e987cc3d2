//! A complete program for one folder and one application.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use control::{ConnectionArgs, Named, NewWorker, ServeArgs, StartError};
use tcpip::{Config, CongestionControl, Cubic};

use crate::app::{App, SiteOnly};
use crate::fields::Fields;
use crate::load::Limits;
use crate::loading::{NotLoaded, load};
use crate::prepared::Replies;
use crate::program::Sandstorm;
use crate::web::REQUEST_TIMEOUT;

/// Serves the folder named on the command line, with one application per worker. A complete `main`
/// consists of one call of this function. [`SiteArgs`] defines the command line. All responses
/// contain `fields`, given as names and values.
///
/// `make` is called for each worker before privileges are dropped. It may prepare
/// [replies](Replies::add). It may also [open a mailbox](NewWorker::open_mailbox), through which
/// other threads send messages.
pub fn serve<A: App + Named>(
    fields: &[(&str, &str)],
    make: impl Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
) -> ExitCode {
    let matches = Cli::command().name(A::NAME).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.site.serve(fields, make)
}

/// Serves a folder over HTTP on its own network stack, until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    site: SiteArgs,
}

/// Command-line arguments of a program that serves a folder, for use with `#[command(flatten)]`.
/// They name the folder, and set the options for loading and serving it.
#[derive(Args, Debug)]
pub struct SiteArgs {
    /// Folder with the files to serve.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    site: SiteOptions,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

/// The options for loading a folder and sending its files, for use with `#[command(flatten)]`.
#[derive(Args, Debug)]
pub struct SiteOptions {
    /// How packets are sent.
    #[arg(long, value_enum, default_value_t = ModeArg::MemCopy)]
    mode: ModeArg,

    /// Refuse to start if an entry of the folder cannot be served, and name the first 100 such
    /// entries. Without this option they are left out, with a warning for each of the first 100.
    #[arg(long)]
    strict: bool,

    /// Maximum number of files to load. Further files are left out.
    #[arg(long, value_name = "N", default_value_t = Limits::default().files)]
    max_files: u64,

    /// Maximum size of all files together, in bytes. They are kept in memory. A file that does not
    /// fit is left out.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes)]
    max_bytes: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ModeArg {
    /// Keep the site's packets in the port's memory, and patch them there before they are sent.
    /// This takes one frame of memory per packet.
    PreCopy,
    /// Copy each packet into a free frame to send it.
    #[value(name = "memcopy")]
    MemCopy,
}

/// Values of `--congestion`, an option that a program may add to its command line.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), the default of Linux.
    #[default]
    Cubic,
    /// BBR version 3. It is faster than CUBIC on paths that lose packets at random, and slower for
    /// short responses. It retransmits more than twice as many bytes.
    Bbr,
    /// Reno with the fast recovery of RFC 6582 (New Reno).
    Reno,
}

impl SiteArgs {
    /// Loads the folder and serves it until SIGINT or SIGTERM. All responses contain `fields`.
    /// `make` creates the application of each worker, before privileges are dropped.
    pub fn serve<A: App + Named>(
        &self,
        fields: &[(&str, &str)],
        make: impl Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    ) -> ExitCode {
        self.serve_with::<Cubic, A>(fields, make)
    }

    /// Same as [`serve`](Self::serve), with the congestion control `C`.
    pub fn serve_with<C: CongestionControl, A: App + Named>(
        &self,
        fields: &[(&str, &str)],
        make: impl Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    ) -> ExitCode {
        control::serve(&self.network, || {
            let Self { folder, site, .. } = self;
            let sandstorm = site.load_with(folder, &self.connections, fields, make)?;
            Ok::<_, NotLoaded>(sandstorm.with_congestion::<C>())
        })
    }
}

impl SiteOptions {
    /// Loads `folder` for a program that serves it with the options in `connections`.
    ///
    /// # Errors
    /// [`NotLoaded`], a message for the operator, if the folder cannot be served.
    pub fn load(
        &self,
        folder: &Path,
        connections: &ConnectionArgs,
    ) -> Result<Sandstorm, NotLoaded> {
        self.load_with(folder, connections, &[], |_, _| Ok(SiteOnly))
    }

    /// Same as [`load`](Self::load), with fields for all responses and an application.
    fn load_with<A: App + Named, F>(
        &self,
        folder: &Path,
        connections: &ConnectionArgs,
        fields: &[(&str, &str)],
        make: F,
    ) -> Result<Sandstorm<A, F>, NotLoaded>
    where
        F: Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    {
        let limits = Limits {
            files: self.max_files,
            bytes: self.max_bytes,
            ..Limits::default()
        };
        let fields = Fields::of_all(fields.iter().copied())?;
        let site = load(folder, &limits, self.strict, fields)?;
        let sandstorm = Sandstorm::with_app(site, folder, self.tcp(connections), make);
        Ok(sandstorm.with_request_timeout(connections.request_timeout(REQUEST_TIMEOUT)))
    }

    /// Returns true if the server refuses to start when an entry cannot be served.
    pub fn strict(&self) -> bool {
        self.strict
    }

    /// The TCP settings from the command line, apart from the port.
    fn tcp(&self, connections: &ConnectionArgs) -> Config {
        connections.config(Config {
            mode: self.mode.into(),
            ..Config::default()
        })
    }
}

impl From<ModeArg> for tcpip::SendMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::PreCopy => Self::PreCopy,
            ModeArg::MemCopy => Self::MemCopy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn modes_have_the_names_that_are_documented() {
        let mode =
            |line: &str| Ok::<_, clap::Error>(Cli::try_parse_from(line.split(' '))?.site.site.mode);
        assert_eq!(mode("sandstorm d").unwrap(), ModeArg::MemCopy);
        assert_eq!(
            mode("sandstorm d --mode memcopy").unwrap(),
            ModeArg::MemCopy
        );
        assert_eq!(
            mode("sandstorm d --mode pre-copy").unwrap(),
            ModeArg::PreCopy
        );
        assert!(mode("sandstorm d --mode turnaround").is_err());
        assert!(mode("sandstorm").is_err());
    }

    #[test]
    fn without_options_the_stack_has_its_defaults() {
        let cli = Cli::try_parse_from(["sandstorm", "d"]).unwrap();
        let SiteArgs {
            site, connections, ..
        } = cli.site;
        assert_eq!(site.tcp(&connections), Config::default());
    }
}
