//! The web server and the DNS server in one process, on one interface: the same
//! addresses and rings, and ports of their own.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::{Both, ConnectionArgs, Named, ServeArgs, StartError};
use namestorm::{Form, Mode, Namestorm, TcpSettings, ZoneSpec};
use sandstorm::SiteOptions;

/// Sandstorm and Namestorm together: a folder over HTTP and zones over DNS, from one
/// interface and one process with a network stack of its own.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const STRICT: &str = "Refuse to start when an entry of the folder cannot be served, or a zone \
                      not be loaded";

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a folder and zones until SIGINT or SIGTERM.
    ///
    /// The options about connections hold for each of the two. Every worker serves both.
    #[command(
        after_help = "Exit status: 0 after a signal, 1 when nothing could be served \
                            (standard error says why), 2 for a wrong command line."
    )]
    #[command(mut_arg("port", |port| port.help("The port of the web server; 80 without it")))]
    #[command(mut_arg("mode", |mode| mode.help("How packets of the web server are sent")))]
    #[command(mut_arg("strict", |strict| strict.help(STRICT).long_help(None)))]
    Serve(Box<Serve>),
}

#[derive(Parser, Debug)]
struct Serve {
    /// The folder with the files of the web server.
    #[arg(long, value_name = "DIR")]
    web: PathBuf,

    /// A master file, and the zone's name if it is not the file's first
    /// $ORIGIN or the file's own name; may repeat.
    #[arg(long = "zone", required = true, num_args = 1.., value_name = "[ORIGIN=]FILE")]
    zones: Vec<ZoneSpec>,

    /// The port of the DNS server, over UDP and TCP.
    #[arg(long, value_name = "N", default_value_t = 53,
          value_parser = clap::value_parser!(u16).range(1..), help_heading = "Network")]
    dns_port: u16,

    #[command(flatten)]
    site: SiteOptions,

    #[command(flatten)]
    connections: ConnectionArgs,

    #[command(flatten)]
    network: ServeArgs,
}

/// The name of the whole.
struct Storm;

impl Named for Storm {
    const NAME: &'static str = "storm";
    const PORT: u16 = 80;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

impl Serve {
    /// Both programs, loaded.
    fn load(&self) -> Result<Both<Storm, sandstorm::Sandstorm, Namestorm>, StartError> {
        let web = self.site.load(&self.web, &self.connections)?;
        // Lines about loading; nobody hears of one that is not written.
        let mut say = |line: String| drop(writeln!(io::stderr(), "{line}"));
        let (form, mode) = (Form::default(), Mode::default());
        let dns = Namestorm::load(&self.zones, form, mode, self.site.strict(), &mut say)?
            .with_tcp(TcpSettings::asked(&self.connections));
        Ok(Both::new(web, dns).with_second_port(self.dns_port))
    }
}

fn main() -> ExitCode {
    let Command::Serve(serve) = Cli::parse().command;
    control::serve(&serve.network, || serve.load())
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
    fn a_folder_and_a_zone_are_needed() {
        let serves = serve("storm serve --web d --zone z").unwrap();
        assert_eq!((serves.dns_port, serves.network.port), (53, None));
        for line in [
            "storm",
            "storm serve --web d",
            "storm serve --zone z",
            "storm serve",
        ] {
            assert!(serve(line).is_err(), "{line}");
        }
        assert!(serve("storm serve --web d --zone z --dns-port 0").is_err());
    }
}
