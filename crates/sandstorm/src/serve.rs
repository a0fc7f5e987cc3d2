//! A complete program for one folder and one application.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _, FromArgMatches, Parser, ValueEnum};
use control::config::{self, ConfigArgs, OwnDefaults, Rereading};
use control::report::Lines;
use control::{
    ConnectionArgs, ContentFiles, Many, Named, NewWorker, PortOwner, Program, ServeArgs, StartError,
};
use nmio::device::Transport;
use tcpip::{Config, CongestionControl, Cubic};

use crate::access_log::AccessLogArgs;
use crate::app::{App, SiteOnly};
use crate::loading::NotLoaded;
use crate::prepared::Replies;
use crate::rule_args::SITE;
use crate::site_options::{SiteOptions, SiteSource};
use crate::sites::{check_next_sites, check_sites, load_sites};
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
    let command = port_of_site(Cli::command().name(A::NAME));
    config::parse::<Cli>(command).cli.site.serve(fields, make)
}

/// Moves `--port` to the options of the site, so that it is a key of `[[web]]`.
#[must_use]
pub fn port_of_site(command: Command) -> Command {
    config::under(SITE, "port", command)
}

/// Serves a folder over HTTP on its own network stack, until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    site: SiteArgs,
}

/// Returns the defaults that Sandstorm's command line does not define, for `config show`.
pub fn own_defaults() -> OwnDefaults {
    let own = OwnDefaults::of(SiteOnly::NAME)
        .with("port", &SiteOnly::PORT)
        .without("memory", "half of the free memory")
        .without("pinned", "an eighth of memory, at most 256 MB")
        .without("hosts", "all hosts that no other site has")
        .without("redirect_hosts", "no redirect")
        .without("redirects", "no rule")
        .without("headers", "no rule")
        .without("media_types", "the usual types")
        .without("error_pages", "404.html of the folder")
        .without("basic_auth", "no passwords")
        .without("basic_auth_realm", "the path")
        .without("etag_key", "tags without a key")
        .without("compress_cache", "forms are made at each start");
    ConnectionArgs::own_defaults(own, &Config::default(), REQUEST_TIMEOUT)
}

/// Command-line arguments of a program that serves a folder, for use with `#[command(flatten)]`.
/// They name the folder, and set the options for loading and serving it.
#[derive(Args, Debug)]
pub struct SiteArgs {
    /// Folder with the files to serve.
    #[arg(value_name = "DIR", help_heading = SITE)]
    root: PathBuf,

    #[command(flatten)]
    site: SiteOptions,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
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
            let loaded = self.load_with_app::<C, A>(fields, make);
            loaded.map_err(NotLoaded::into_start_error)
        })
    }

    /// Loads the folder for a program with an application.
    fn load_with_app<C: CongestionControl, A: App + Named>(
        &self,
        fields: &[(&str, &str)],
        make: impl Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    ) -> Result<impl Program, NotLoaded> {
        let Self { root, site, .. } = self;
        if let Some(error) = site.contradictions().into_iter().next() {
            return Err(error);
        }
        // An application keeps its site, so no compressed forms can be added later.
        let source = (&**root, site.memory(1), &[] as &[PathBuf]);
        let sandstorm = site.load_with(source, &self.connections, fields, None, make)?;
        let (name, addresses) = (root.display().to_string(), site.addresses());
        AccessLogArgs::check(std::iter::once(site.log()))?;
        let sandstorm = sandstorm.with_access_logs(A::NAME, &[site.log()])?;
        let sandstorm = sandstorm.with_congestion::<C>();
        Ok(Many::new(name, sandstorm, addresses))
    }

    /// Same as [`serve`](Self::serve), without an application and with the congestion control `C`, for
    /// this site and `more` sites. SIGHUP loads the folders again. This site's options for the network
    /// and the process are used.
    ///
    /// A reload reads a changed configuration file again. `of` takes the sites from what it says.
    pub fn serve_only<C: CongestionControl, T: FromArgMatches + Sync>(
        &self,
        more: &[&Self],
        rereading: &Rereading<'_, T>,
        of: impl for<'t> Fn(&'t T) -> Option<&'t Self> + Sync,
    ) -> ExitCode {
        let load = || load_sites::<C>(self.source(0), Self::sources(more));
        control::serve_rereading(&self.network, load, rereading, |sites, reread| {
            let new = reread.sites().filter_map(&of).enumerate();
            let new: Vec<_> = new.map(|(number, site)| site.source(number)).collect();
            Ok(check_next_sites(sites, &new, reread.numbers())?.take())
        })
    }

    /// Loads the folders of this site and of `more` sites, as [`serve_only`](Self::serve_only) does, but
    /// does not serve them. The log names what cannot be served, or not read by the server's user. Returns the lines of each in the start
    /// block, or a message for the operator. Messages also name wrong options, such as an unknown user.
    pub fn check(&self, more: &[&Self]) -> Vec<Result<Lines, StartError>> {
        control::log::init_for_check(self.network.log, self.network.log_format);
        let sources = std::iter::once(self.source(0)).chain(Self::sources(more));
        let sources: Vec<_> = sources.collect();
        let mut files = ContentFiles::default();
        let mut found = check_sites(&sources, &self.network.addresses, &mut files);
        let owners = port_owners("--port", &sources);
        found.extend(self.network.check(SiteOnly::NAME, &owners, files));
        found
    }

    /// Returns the sources of the sites after the first one.
    fn sources<'s>(more: &'s [&'s Self]) -> impl Iterator<Item = SiteSource<'s>> {
        (1..).zip(more).map(|(number, site)| site.source(number))
    }

    fn source(&self, number: usize) -> SiteSource<'_> {
        SiteSource {
            number,
            folder: &self.root,
            port: self.network.port,
            options: &self.site,
            connections: &self.connections,
        }
    }
}

/// Returns the owner of each known port of these sites. `option` sets the port.
pub fn port_owners(option: &str, sources: &[SiteSource<'_>]) -> Vec<PortOwner> {
    let mut ports = BTreeMap::new();
    for source in sources.iter().filter(|one| !one.is_wrong("port")) {
        ports.entry(source.port()).or_insert(source);
    }
    let owners = ports.into_iter().map(|(port, first)| PortOwner {
        program: SiteOnly::NAME,
        option: first.option_of_port(option),
        services: vec![(Transport::Tcp, port)],
    });
    owners.collect()
}

/// Returns the congestion control that all sites of a process have, as far as it is known.
///
/// # Errors
/// A message for the operator, if two sites have different ones.
pub fn same_congestion(
    all: impl IntoIterator<Item = Congestion>,
) -> Result<Congestion, &'static str> {
    let all = all.into_iter().enumerate();
    let known = all.filter(|(site, _)| !config::is_wrong(*site, "congestion"));
    let mut all = known.map(|(_, one)| one);
    let first = all.next().unwrap_or_default();
    if all.all(|other| other == first) {
        Ok(first)
    } else {
        Err("--congestion must be the same in each [[web]]; correct one of them")
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
    fn a_folder_is_required() {
        assert!(Cli::try_parse_from(["sandstorm", "d"]).is_ok());
        assert!(Cli::try_parse_from(["sandstorm"]).is_err());
    }
}
