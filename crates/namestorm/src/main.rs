//! The command line of the DNS server.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use control::config::{self, Applied, ConfigArgs, ConfigCommand, Rereading, TakenOver};
use control::{ConnectionArgs, ControlCommand, ServeArgs, StartError, log};
use namestorm::{
    DefenceArgs, DnsOptions, Form, IdentityArgs, NoZones, QueryLogArgs, ReplyMode, ZONE_OPTIONS,
    ZoneArgs, ZoneSpec, ZonesArgs,
};

/// Namestorm is an authoritative DNS server that answers from packets that it prepares when it
/// starts.
///
/// It has its own network stack. It takes only the packets for its port from the interface and
/// leaves all others to the kernel.
#[derive(Parser, Debug)]
#[command(name = "namestorm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve zones until SIGINT or SIGTERM.
    #[command(
        after_help = "Exit status: 0 if a signal ended the server, 1 after an error \
                            (standard error says which), 2 if the command line or the file is wrong."
    )]
    Serve(Box<Serve>),
    /// Check zone files and print their size. The exit status is 1 if a zone has an error or is
    /// given twice, or if the configuration file is wrong.
    ///
    /// Warnings are printed at any level of `--log`. If root runs this command, it warns of files that the
    /// server's user cannot read.
    Check(Box<Check>),
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
struct Check {
    /// Zone files to check. Without ORIGIN, the zone's name is that of an $ORIGIN before the first
    /// record. Otherwise it is the owner of a leading SOA record, or else the file's name.
    #[arg(value_name = "[ORIGIN=]FILE")]
    files: Vec<ZoneSpec>,

    #[command(flatten)]
    serve: Serve,
}

#[derive(Args, Debug)]
struct Serve {
    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    zones: ZoneArgs,

    /// Refuse to start if a zone cannot be loaded or is given twice. Without this option, the other
    /// zones are served, and queries for a broken zone get SERVFAIL. At least one zone must load in
    /// any case.
    #[arg(long, help_heading = "Zones")]
    strict: bool,

    /// Form of names in the index: `wire` as in queries, or `fqdn` as text.
    #[arg(
        long,
        default_value_t,
        value_name = "wire|fqdn",
        help_heading = "Zones"
    )]
    hash: Form,

    /// How replies over UDP are sent: `pre-copy` from prepared packets, `memcopy` by copying the
    /// answer into a free frame, `turnaround` in the query's own frame.
    #[arg(
        long,
        default_value_t,
        value_name = "pre-copy|memcopy|turnaround",
        help_heading = "Zones"
    )]
    mode: ReplyMode,

    #[command(flatten)]
    identity: IdentityArgs,

    #[command(flatten)]
    defence: DefenceArgs,

    #[command(flatten)]
    query_log: QueryLogArgs,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

impl Serve {
    /// Returns the options for these zones.
    fn options<'o>(&'o self, zones: &'o ZoneArgs) -> DnsOptions<'o> {
        DnsOptions {
            zones,
            strict: self.strict,
            hash: self.hash,
            mode: self.mode,
            identity: &self.identity,
            defence: &self.defence,
            query_log: &self.query_log,
            connections: &self.connections,
            device: &self.network.device,
        }
    }
}

/// Checks the zones, and adds a line about each good one. The error is a message for the operator.
fn check(
    (specs, wrong): (&[ZoneSpec], Vec<NoZones>),
    zones: &ZoneArgs,
    say: &mut dyn FnMut(String),
    lines: &mut Vec<(String, String)>,
) -> Result<(), StartError> {
    let clients = zones.transfer_clients();
    let keeps_records = clients.is_ok_and(|clients| !clients.is_empty());
    let checked = namestorm::check(specs, keeps_records, say, &mut |zone, size| {
        lines.push((zone, size));
    });
    NoZones::tell(wrong, say)?;
    Ok(checked?)
}

fn main() -> ExitCode {
    // Loading may take seconds, so messages are written immediately.
    let mut say = |line: String| log::finding(&line);
    let command = namestorm::port_of_zones("port", Cli::command());
    let parsed = config::parse_to_check::<Cli>(command.clone());
    match &parsed.cli.command {
        Command::Serve(serve) => {
            let options = serve.options(&serve.zones);
            let load = || options.load(&mut say);
            let applied = [&ZONE_OPTIONS[..], &["strict"]].concat();
            let applied = Applied {
                options: &applied,
                same_site: &[&[]],
                site_defaults: &[],
            };
            let rereading = Rereading::new(&parsed, applied);
            control::serve_rereading(&serve.network, load, &rereading, |server, reread| {
                if let Command::Serve(new) = &reread.shared().command {
                    server.check_next(&new.zones, new.strict)?.take();
                }
                Ok(TakenOver::default())
            })
        }
        Command::Check(args) => {
            let zones = args.serve.zones.clone().with_zones(&args.files);
            let network = &args.serve.network;
            log::init_for_check(network.log, network.log_format);
            let mut lines = Vec::new();
            let (specs, wrong) = zones.found();
            let checked = check((&specs, wrong), &zones, &mut say, &mut lines);
            let found = checked.err().into_iter();
            let options = args.serve.options(&zones);
            let found = found.chain(options.check("namestorm"));
            let owner = namestorm::port_owner("--port", network.port);
            let named = |(label, value): (&str, String)| (label.to_owned(), value);
            let files = options.files(&specs);
            let of_network = network.check("namestorm", &[owner], files).into_iter();
            let of_network = of_network.map(|one| Ok(one?.into_iter().map(named).collect()));
            let found = found.map(Err).chain(of_network);
            config::print_check("namestorm", [Ok(lines)].into_iter().chain(found))
        }
        Command::Config(what) => what.run(&parsed, &command, &[namestorm::own_defaults("port")]),
        Command::Zones(zones) => zones.run("namestorm"),
        Command::Control(what) => what.run("namestorm"),
    }
}
