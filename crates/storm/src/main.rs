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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn serve(line: &str) -> Result<Serve, clap::Error> {
        let Command::Serve(serve) = Cli::try_parse_from(line.split(' '))?.command;
        Ok(*serve)
    }

    #[test]
    fn a_folder_and_a_zone_are_required() {
        serve("storm serve --web d --zone z").unwrap();
        let two = serve("storm serve --zone y --web d --zone z").unwrap();
        assert_eq!(two.zones.len(), 2);
        let stray = serve("storm serve --zone z web").unwrap_err().to_string();
        assert!(stray.contains("unexpected argument 'web'"), "{stray}");
        for line in [
            "storm",
            "storm serve --web d",
            "storm serve --zone z",
            "storm serve",
        ] {
            assert!(serve(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_help_names_the_program_that_checks_zones() {
        let help = Cli::command().render_help().to_string();
        assert!(help.contains("namestorm check"), "{help}");
    }

    #[test]
    fn the_congestion_control_is_cubic_unless_another_is_named() {
        let congestion = |options: &str| {
            let serve = serve(&format!("storm serve --web d --zone z{options}"));
            serve.unwrap().congestion
        };
        assert_eq!(congestion(""), Congestion::Cubic);
        assert_eq!(congestion(" --congestion bbr"), Congestion::Bbr);
    }

    #[test]
    fn each_server_has_its_own_port_option() {
        let ports = |options: &str| {
            let serve = serve(&format!("storm serve --web d --zone z{options}"))?;
            Ok::<_, clap::Error>((serve.network.port, serve.dns.port()))
        };
        assert_eq!(ports("").unwrap(), (None, 53));
        assert_eq!(ports(" --port 81 --dns-port 54").unwrap(), (Some(81), 54));
        let message = ports(" --dns-port 0").unwrap_err().to_string();
        assert!(message.contains("from 1 to 65535"), "{message}");
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("serve").unwrap().render_help();
        let help = help.to_string();
        for (option, port) in [("--port <N>", 80), ("--dns-port <N>", 53)] {
            let (_, rest) = help.split_once(option).unwrap();
            let end = rest.find("--").unwrap();
            assert!(
                rest[..end].contains(&format!("Defaults to {port}")),
                "{help}"
            );
        }
    }
}
