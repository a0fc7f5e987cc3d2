//! A web server and a DNS server in one process, on one interface. They share the addresses and the
//! rings, but use different ports.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use control::config::{
    self, Applied, ConfigArgs, ConfigCommand, Parsed, Reread, Rereading, TakenOver,
};
use control::report::Lines;
use control::{
    Both, ConnectionArgs, ContentFiles, ControlCommand, Named, PortArgs, ServeArgs, StartError,
};
use namestorm::{
    DefenceArgs, DnsOptions, Form, IdentityArgs, Namestorm, QueryLogArgs, ReplyMode, ZONE_OPTIONS,
    ZoneArgs, ZonesArgs,
};
use sandstorm::{
    APPLIED, Congestion, SAME_SITE, SITE_DEFAULTS, SiteOptions, SiteSource, Sites,
    check_next_sites, check_sites, load_sites, same_congestion,
};
use tcpip::{Bbr, CongestionControl, Cubic, NewReno};

/// Sandstorm and Namestorm in one process on one interface: serves a folder over HTTP and zones
/// over DNS, with its own network stack.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const WEB_PORT: &str = "Port of the web server. Defaults to 80";
const DNS_PORT: &str = "Port of the DNS server, over UDP and TCP. Defaults to 53";

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a folder and zones until SIGINT or SIGTERM.
    ///
    /// Every worker serves both. The options for connections apply to the web server and to the DNS
    /// server.
    #[command(
        after_help = "Exit status: 0 if a signal ended the server, 1 after an error \
                            (standard error says which), 2 if the command line or the file is wrong."
    )]
    Serve(Box<Serve>),
    /// Load the folder and the zones as `serve` would, and report everything that is wrong with them
    /// or with the configuration file. The exit status is 1 if the server would not start.
    ///
    /// Warnings are printed at any level of `--log`. If root runs this command, it warns of files that the
    /// server's user cannot read.
    Check(Box<Serve>),
    /// Print configuration files.
    #[command(subcommand)]
    Config(ConfigCommand<Serve>),
    /// Show the zones of a running server, and whether they are served.
    ///
    /// The state `old` means that the file has an error, so that the zone keeps its old answers. The
    /// error is on the next line.
    Zones(ZonesArgs),
    #[command(flatten)]
    Control(ControlCommand),
}

#[derive(Args, Debug)]
struct Serve {
    #[command(flatten)]
    config: ConfigArgs,

    /// Folder with the files of the web server.
    #[arg(
        id = "root",
        long = "web",
        value_name = "DIR",
        help_heading = "Web site"
    )]
    root: PathBuf,

    #[command(flatten)]
    site: SiteOptions,

    #[command(flatten)]
    zones: ZoneArgs,

    /// Refuse to start if a zone cannot be loaded or is given twice. Without this option, the other
    /// zones are served.
    #[arg(long, help_heading = "Zones")]
    dns_strict: bool,

    /// Form of names in the index: `wire` as in queries, or `fqdn` as text.
    #[arg(
        long,
        default_value_t,
        value_name = "wire|fqdn",
        help_heading = "Zones"
    )]
    dns_hash: Form,

    /// How replies over UDP are sent: `pre-copy` from prepared packets, `memcopy` by copying the
    /// answer into a free frame, `turnaround` in the query's own frame.
    #[arg(
        long,
        default_value_t,
        value_name = "pre-copy|memcopy|turnaround",
        help_heading = "Zones"
    )]
    dns_mode: ReplyMode,

    #[command(flatten)]
    identity: IdentityArgs,

    #[command(flatten)]
    defence: DefenceArgs,

    #[command(flatten)]
    query_log: QueryLogArgs,

    #[command(flatten)]
    connections: ConnectionArgs,

    /// Congestion control of the web server's connections.
    #[arg(long, value_enum, default_value_t, help_heading = "Web site")]
    congestion: Congestion,

    #[command(flatten)]
    network: ServeArgs,

    #[command(flatten)]
    dns: PortArgs<Dns>,
}

/// Marker type for the DNS server. Its `NAME` is the first part of the option `--dns-port`.
struct Dns;

impl Named for Dns {
    const NAME: &'static str = "dns";
    const PORT: u16 = 53;
}

/// Marker type for the whole program, which consists of the web server and the DNS server.
struct Storm;

impl Named for Storm {
    const NAME: &'static str = "storm";
    const PORT: u16 = 80;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// The web server and the DNS server.
type Servers<C> = Both<Storm, Sites<C>, Namestorm>;

/// Checks what a changed configuration file says, and takes over what a reload can apply. Returns what needs
/// a restart.
fn take_over<C: CongestionControl>(
    servers: &Servers<C>,
    reread: &Reread<'_, Cli>,
) -> Result<TakenOver, StartError> {
    let (web, zones) = servers.programs();
    let sites: Vec<_> = reread.sites().filter_map(Cli::site).collect();
    same_congestion(sites.iter().map(|site| site.congestion))?;
    let sources = sites.iter().enumerate();
    let sources: Vec<_> = sources.map(|(number, site)| site.source(number)).collect();
    let sites = check_next_sites(web, &sources, reread.numbers())?;
    if let Some(dns) = reread.shared().site() {
        zones.check_next(&dns.zones, dns.dns_strict)?.take();
    }
    Ok(sites.take())
}

impl Serve {
    /// Serves this site and `more` sites. `dns` has the options of the DNS server. A reload reads a changed
    /// configuration file again.
    fn serve<C: CongestionControl>(
        &self,
        more: &[&Self],
        dns: &Self,
        parsed: &Parsed<Cli>,
    ) -> ExitCode {
        let options = [&APPLIED[..], &ZONE_OPTIONS, &["dns_strict"]].concat();
        let applied = Applied {
            options: &options,
            same_site: &SAME_SITE,
            site_defaults: &SITE_DEFAULTS,
        };
        let rereading = Rereading::new(parsed, applied);
        let load = || self.load::<C>(more, dns);
        control::serve_rereading(&self.network, load, &rereading, take_over)
    }

    /// Loads the folders of all sites, and the zones.
    fn load<C: CongestionControl>(
        &self,
        more: &[&Self],
        dns: &Self,
    ) -> Result<Servers<C>, StartError> {
        let web = load_sites::<C>(self.source(0), Self::sources(more))?;
        let mut say = |line: String| control::log::finding(&line);
        let zones = dns.zones(&self.network).load(&mut say)?;
        Ok(Both::new(web, zones).with_port_args(&self.dns))
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

    /// Returns the congestion control of all sites.
    fn congestion(&self, more: &[&Self]) -> Result<Congestion, &'static str> {
        same_congestion(std::iter::once(&self).chain(more).map(|one| one.congestion))
    }

    /// Returns the options of the DNS server on this network.
    fn zones<'o>(&'o self, network: &'o ServeArgs) -> DnsOptions<'o> {
        DnsOptions {
            zones: &self.zones,
            strict: self.dns_strict,
            hash: self.dns_hash,
            mode: self.dns_mode,
            identity: &self.identity,
            defence: &self.defence,
            query_log: &self.query_log,
            connections: &self.connections,
            device: &network.device,
        }
    }

    /// Loads the folders and the zones, and returns the lines about each in the start block.
    fn check(&self, more: &[&Self], dns: &Self) -> Vec<Result<Lines, StartError>> {
        control::log::init_for_check(self.network.log, self.network.log_format);
        let sources: Vec<_> = std::iter::once(self.source(0))
            .chain(Self::sources(more))
            .collect();
        let mut owners = sandstorm::port_owners("--port", &sources);
        owners.push(namestorm::port_owner("--dns-port", Some(self.dns.port())));
        let mut files = ContentFiles::default();
        let sites = check_sites(&sources, &self.network.addresses, &mut files);
        let dns = dns.zones(&self.network);
        let mut say = |line: String| control::log::finding(&line);
        let zones = dns.check_zones(&mut say, &mut files);
        let mut found = self.network.check(Storm::NAME, &owners, files);
        found.extend(self.congestion(more).err().map(|error| Err(error.into())));
        found.extend(sites);
        found.extend(dns.check(Storm::NAME).into_iter().map(Err));
        found.push(zones);
        found
    }
}

/// Returns the command line. The ports are options of the servers that they belong to.
fn command() -> clap::Command {
    let command = Cli::command().mut_subcommands(|command| {
        if command.get_arguments().all(|arg| arg.get_id() != "port") {
            return command;
        }
        command
            .mut_arg("port", |port| {
                port.help(WEB_PORT).long_help(None).display_order(0)
            })
            .mut_arg("dns-port", |port| port.help(DNS_PORT).display_order(1))
    });
    namestorm::port_of_zones("dns-port", sandstorm::port_of_site(command))
}

impl Cli {
    /// Returns the options for serving, if the command serves or checks.
    fn site(&self) -> Option<&Serve> {
        match &self.command {
            Command::Serve(args) | Command::Check(args) => Some(args),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let command = command();
    let parsed = config::parse_sites::<Cli>(command.clone());
    let more = parsed.further(Cli::site);
    let dns = |site| parsed.shared().site().unwrap_or(site);
    match &parsed.cli.command {
        Command::Serve(args) => match args.congestion(&more) {
            Ok(Congestion::Cubic) => args.serve::<Cubic>(&more, dns(args), &parsed),
            Ok(Congestion::Bbr) => args.serve::<Bbr>(&more, dns(args), &parsed),
            Ok(Congestion::Reno) => args.serve::<NewReno>(&more, dns(args), &parsed),
            Err(error) => {
                control::log::error("storm", config::with_places(error));
                ExitCode::from(2)
            }
        },
        Command::Check(args) => config::print_check("storm", args.check(&more, dns(args))),
        Command::Config(what) => {
            let own = [
                sandstorm::own_defaults(),
                namestorm::own_defaults("dns-port"),
            ];
            what.run(&parsed, &command, &own)
        }
        Command::Zones(zones) => zones.run("storm"),
        Command::Control(what) => what.run("storm"),
    }
}
