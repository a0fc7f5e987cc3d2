//! A web server and a DNS server in one process, on one interface. They share the addresses and the
//! rings, but use different ports.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::{Both, ConnectionArgs, Named, PortArgs, Program, ServeArgs, StartError};
use namestorm::{Form, Namestorm, ReplyMode, TcpSettings, ZoneSpec};
use sandstorm::{Congestion, SiteOptions};
use tcpip::{Bbr, CongestionControl, Cubic, NewReno};

/// Sandstorm and Namestorm in one process on one interface: serves a folder over HTTP and zones
/// over DNS, with its own network stack.
#[derive(Parser, Debug)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "To check zone files, run: namestorm check FILE"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const WEB_PORT: &str = "Port of the web server. Defaults to 80";
const DNS_PORT: &str = "Port of the DNS server, over UDP and TCP. Defaults to 53";
const STRICT: &str = "Refuse to start if an entry of the folder cannot be served, or if a zone \
                      cannot be loaded";

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a folder and zones until SIGINT or SIGTERM.
    ///
    /// Every worker serves both. The options for connections apply to the web server and to the DNS
    /// server.
    #[command(
        after_help = "Exit status: 0 if a signal ended the server, 1 after an error \
                            (standard error says which), 2 if the command line is wrong."
    )]
    #[command(mut_arg("port", |port| port.help(WEB_PORT).long_help(None).display_order(0)))]
    #[command(mut_arg("dns-port", |port| port.help(DNS_PORT).display_order(1)))]
    #[command(mut_arg("mode", |mode| mode.help("How the web server sends packets")))]
    #[command(mut_arg("strict", |strict| strict.help(STRICT).long_help(None)))]
    Serve(Box<Serve>),
}

#[derive(Parser, Debug)]
struct Serve {
    /// Folder with the files of the web server.
    #[arg(long, value_name = "DIR")]
    web: PathBuf,

    /// Zone file to serve. Without ORIGIN, the zone's name is that of an $ORIGIN before the first
    /// record. Otherwise it is the owner of a leading SOA record, or else the file's name. Repeat
    /// the option for more zones.
    #[arg(long = "zone", required = true, value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    #[command(flatten)]
    site: SiteOptions,

    #[command(flatten)]
    connections: ConnectionArgs,

    /// Congestion control of the web server's connections.
    #[arg(long, value_enum, default_value_t, help_heading = "Connections")]
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

impl Serve {
    fn serve<C: CongestionControl>(&self) -> ExitCode {
        control::serve(&self.network, || self.load::<C>())
    }

    /// Loads the folder and the zones.
    fn load<C: CongestionControl>(&self) -> Result<impl Program + use<C>, StartError> {
        let web = self.site.load(&self.web, &self.connections)?;
        // Prints messages about the zones to standard error. If printing fails, there is no better
        // place for them.
        let mut say = |line: String| drop(writeln!(io::stderr(), "{line}"));
        let (form, mode) = (Form::default(), ReplyMode::default());
        let dns = Namestorm::load(&self.zones, form, mode, self.site.strict(), &mut say)?
            .with_tcp(TcpSettings::from_args(&self.connections));
        let both = Both::<Storm, _, _>::new(web.with_congestion::<C>(), dns);
        Ok(both.with_port_args(&self.dns))
    }
}

fn main() -> ExitCode {
    let Command::Serve(serve) = Cli::parse().command;
    match serve.congestion {
        Congestion::Cubic => serve.serve::<Cubic>(),
        Congestion::Bbr => serve.serve::<Bbr>(),
        Congestion::Reno => serve.serve::<NewReno>(),
    }
}
