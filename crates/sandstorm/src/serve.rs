//! A complete program for one folder and one application.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _, Parser, ValueEnum};
use control::args::{host_address, number};
use control::config::{self, ConfigArgs, Lines, OwnDefaults};
use control::units::size;
use control::{ConnectionArgs, Many, Named, NewWorker, Program as _, ServeArgs, StartError};
use tcpip::{Config, CongestionControl, Cubic};

use crate::access_log::AccessLogArgs;
use crate::app::{App, SiteOnly};
use crate::coder::Coder;
use crate::fields::Fields;
use crate::load::Limits;
use crate::loading::{NotLoaded, load};
use crate::prepared::Replies;
use crate::program::{MakeSiteOnly, Sandstorm};
use crate::rule_args::RuleArgs;
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

/// Heading of the options for the site, and so its section in a configuration file.
const SITE: &str = "Web site";

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
    let own = OwnDefaults::of(SiteOnly::NAME).with("port", &SiteOnly::PORT);
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

/// The options for loading a folder and sending its files, for use with `#[command(flatten)]`.
#[derive(Args, Debug)]
#[command(next_help_heading = SITE)]
pub struct SiteOptions {
    /// How packets are sent.
    #[arg(long, value_enum, default_value_t = ModeArg::MemCopy)]
    mode: ModeArg,

    /// Refuse to start if an entry of the folder cannot be served, and name the first 100 such
    /// entries. Without this option they are left out, with a warning for each of the first 100.
    #[arg(long)]
    strict: bool,

    /// Maximum number of files to load. Further files are left out.
    #[arg(long, value_name = "N", default_value_t = Limits::default().files,
          value_parser = number(0..=u64::MAX))]
    max_files: u64,

    /// Maximum size of all files together, in bytes or with a unit, such as `512MB`. They are kept in
    /// memory. A file that does not fit is left out.
    #[arg(long, value_name = "SIZE", default_value_t = Limits::default().bytes,
          value_parser = size(0..=1_u64 << 50))]
    max_bytes: u64,

    /// Address of the server on which the site is served. Repeat it for each. Without this option, the
    /// site is served on all addresses.
    #[arg(long = "web-address", value_name = "IP", value_parser = host_address)]
    web_addresses: Vec<IpAddr>,

    #[command(flatten)]
    rules: RuleArgs,

    #[command(flatten)]
    log: AccessLogArgs,
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
            let Self { root, site, .. } = self;
            // An application keeps its site, so no compressed forms can be added later.
            let sandstorm = site.load_with(root, &self.connections, fields, None, make)?;
            let (name, addresses) = (root.display().to_string(), site.web_addresses.clone());
            let sandstorm = sandstorm.with_congestion::<C>();
            Ok::<_, NotLoaded>(Many::new(name, sandstorm, addresses))
        })
    }

    /// Same as [`serve`](Self::serve), without an application and with the congestion control `C`, for
    /// this site and `more` sites. SIGHUP loads the folders again. The options for the network and the
    /// process are those of this site.
    pub fn serve_only<C: CongestionControl>(&self, more: &[&Self]) -> ExitCode {
        control::serve(&self.network, || {
            let sources = more.iter().map(|site| site.source());
            load_sites::<C>(self.source(), sources)
        })
    }

    /// Loads the folders of this site and of `more` sites, as [`serve_only`](Self::serve_only) does, but
    /// does not serve them. The log names what cannot be served. Returns the lines of each in the start
    /// block, or a message for the operator. Messages also name wrong options, such as an unknown user.
    pub fn check(&self, more: &[&Self]) -> Vec<Result<Lines, StartError>> {
        control::log::init(self.network.log, self.network.log_format);
        let options = self.network.check("sandstorm").map(|()| Lines::new());
        let (mut found, sites) = check_sites(self.source(), more.iter().map(|site| site.source()));
        if let Some(sites) = sites {
            let together = control::check_program(&self.network, &sites);
            found.push(together.map(|()| Lines::new()));
        }
        found.push(options.map_err(Into::into));
        found
    }

    fn source(&self) -> SiteSource<'_> {
        SiteSource {
            folder: &self.root,
            port: self.network.port,
            options: &self.site,
            connections: &self.connections,
        }
    }
}

/// The options of a site.
#[derive(Clone, Copy, Debug)]
pub struct SiteSource<'o> {
    /// The folder with the site's files.
    pub folder: &'o Path,
    /// The site's port, or `None` for the default one.
    pub port: Option<u16>,
    /// The options for loading the folder and sending its files.
    pub options: &'o SiteOptions,
    /// The options for connections.
    pub connections: &'o ConnectionArgs,
}

impl SiteSource<'_> {
    /// Loads the folder for a program that serves it with these options.
    ///
    /// # Errors
    /// [`NotLoaded`], a message for the operator, if the folder cannot be served.
    fn load(&self) -> Result<Sandstorm, NotLoaded> {
        let make: MakeSiteOnly = |_, _| Ok(SiteOnly);
        let Self { options, .. } = self;
        let coder = options.rules.coder()?;
        let loaded = options.load_with(self.folder, self.connections, &[], coder, make);
        let place = || config::place_of(self.folder.to_str()?);
        let sandstorm = loaded.map_err(|error| match place() {
            Some(place) => NotLoaded::At {
                place,
                error: Box::new(error),
            },
            None => error,
        })?;
        Ok(sandstorm.with_reloads(options.limits(), options.strict))
    }
}

/// Loads sites to check them. Returns the lines about the content of each in the start block, or a
/// message for the operator. If all can be loaded, also returns the program that serves them.
pub fn check_sites<'o>(
    first: SiteSource<'o>,
    more: impl IntoIterator<Item = SiteSource<'o>>,
) -> (Vec<Result<Lines, StartError>>, Option<Sites>) {
    let mut found = Vec::new();
    let mut loaded = Vec::new();
    for source in std::iter::once(first).chain(more) {
        found.push(source.load().map_err(Into::into).map(|program| {
            let mut lines = program.loaded();
            lines.retain(|(label, _)| !["congestion", "mode"].contains(label));
            loaded.push((source, program));
            lines
        }));
    }
    let are_all = loaded.len() == found.len();
    let mut loaded = loaded.into_iter();
    let first = loaded.next().filter(|_| are_all);
    (found, first.map(|first| together(first, loaded)))
}

/// The program that serves sites without an application.
pub type Sites<C = Cubic> = Many<Sandstorm<SiteOnly, MakeSiteOnly, C>>;

/// Loads sites for a program that serves all of them. Each is named after its folder, and also after
/// its port if an earlier one has the same folder.
///
/// # Errors
/// [`NotLoaded`], a message for the operator, if a folder cannot be served.
pub fn load_sites<'o, C: CongestionControl>(
    first: SiteSource<'o>,
    more: impl IntoIterator<Item = SiteSource<'o>>,
) -> Result<Sites<C>, NotLoaded> {
    let load = |source: SiteSource<'o>| Ok((source, source.load()?.with_congestion::<C>()));
    let first = load(first)?;
    let more = more.into_iter().map(load);
    Ok(together(
        first,
        more.collect::<Result<Vec<_>, NotLoaded>>()?,
    ))
}

/// A loaded site.
type Loaded<'o, C> = (SiteSource<'o>, Sandstorm<SiteOnly, MakeSiteOnly, C>);

/// Returns the program that serves these sites.
fn together<'o, C: CongestionControl>(
    (source, program): Loaded<'o, C>,
    more: impl IntoIterator<Item = Loaded<'o, C>>,
) -> Sites<C> {
    let name = |source: SiteSource<'_>| source.folder.display().to_string();
    let addresses = |source: SiteSource<'_>| source.options.web_addresses.clone();
    let mut names = vec![name(source)];
    let mut sites = Many::new(name(source), program, addresses(source));
    for (source, program) in more {
        let port = source.port.unwrap_or(SiteOnly::PORT);
        let mut name = name(source);
        if names.contains(&name) {
            name = format!("{name}:{port}");
        }
        sites = sites.with(name.clone(), program, port, addresses(source));
        names.push(name);
    }
    sites
}

/// Returns the congestion control that all sites of a process have.
///
/// # Errors
/// A message for the operator, if two sites have different ones.
pub fn same_congestion(
    all: impl IntoIterator<Item = Congestion>,
) -> Result<Congestion, &'static str> {
    let mut all = all.into_iter();
    let first = all.next().unwrap_or_default();
    if all.all(|other| other == first) {
        Ok(first)
    } else {
        Err("congestion must be the same in each [[web]]")
    }
}

impl SiteOptions {
    fn limits(&self) -> Limits {
        Limits {
            files: self.max_files,
            bytes: self.max_bytes,
            ..Limits::default()
        }
    }

    /// Loads `folder` for a program with an application. All responses contain `fields`. `coder` makes
    /// compressed forms.
    fn load_with<A: App + Named, F>(
        &self,
        folder: &Path,
        connections: &ConnectionArgs,
        fields: &[(&str, &str)],
        coder: Option<Coder>,
        make: F,
    ) -> Result<Sandstorm<A, F>, NotLoaded>
    where
        F: Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    {
        let fields = Fields::of_all(fields.iter().copied())?;
        let settings = self.rules.settings(fields, coder)?;
        let site = load(folder, &self.limits(), self.strict, &settings)?;
        let sandstorm = Sandstorm::with_app(site, folder, self.tcp(connections), make)
            .with_access_log(self.log.open(A::NAME)?);
        Ok(sandstorm.with_request_timeout(connections.request_timeout(REQUEST_TIMEOUT)))
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
