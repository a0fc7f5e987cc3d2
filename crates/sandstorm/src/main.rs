//! The command line of the web server.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use control::ControlCommand;
use control::config::{self, Applied, ConfigArgs, ConfigCommand, Parsed, Rereading};
use control::report::Lines;
use sandstorm::{APPLIED, Congestion, SAME_SITE, SITE_DEFAULTS, SiteArgs, same_congestion};
use tcpip::{Bbr, Cubic, NewReno};

/// Sandstorm serves a folder of files over HTTP, from packets that it prepares at start.
///
/// It has its own network stack. It takes only the packets for its port from the interface and
/// leaves all others to the kernel.
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
    /// All files are read at start. SIGHUP makes the server read changed files.
    ///
    /// A request for `/` or `/sub/` gets the index.html of that folder. A request for `/sub` is
    /// redirected to `/sub/`. The files `_redirects` and `_headers` in the folder have further rules.
    ///
    /// Files and folders whose names begin with a dot are left out, except `.well-known` (see
    /// `--hidden-files`). A symbolic link is followed if its target is inside the folder (see
    /// `--follow-links`). The server leaves out other
    /// entries that it cannot serve, with a warning: links out of the folder, broken links, pipes,
    /// devices and unreadable files. Started as root, it also serves files that only root can read.
    #[command(
        after_help = "Exit status: 0 if a signal ended the server, 1 after an error \
                            (standard error says which), 2 if the command line or the file is wrong."
    )]
    Serve(Box<Serve>),
    /// Load the folder as `serve` would, and report everything that is wrong with it or with the
    /// configuration file. The exit status is 1 if the server would not start.
    ///
    /// Warnings are printed at any level of `--log`. If root runs this command, it warns of files that the
    /// server's user cannot read.
    Check(Box<Serve>),
    /// Print configuration files.
    #[command(subcommand)]
    Config(ConfigCommand<Serve>),
    #[command(flatten)]
    Control(ControlCommand),
}

#[derive(Args, Debug)]
struct Serve {
    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    site: SiteArgs,

    /// Congestion control of all connections.
    #[arg(long, value_enum, default_value_t, help_heading = "Web site")]
    congestion: Congestion,
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
    let command = sandstorm::port_of_site(Cli::command());
    let parsed = config::parse_sites::<Cli>(command.clone());
    let more = parsed.further(Cli::site);
    match &parsed.cli.command {
        Command::Serve(args) => serve(args, &more, &parsed),
        Command::Check(args) => check(args, &more),
        Command::Config(what) => what.run(&parsed, &command, &[sandstorm::own_defaults()]),
        Command::Control(what) => what.run("sandstorm"),
    }
}

fn congestion(args: &Serve, more: &[&Serve]) -> Result<Congestion, &'static str> {
    same_congestion(
        std::iter::once(&args)
            .chain(more)
            .map(|args| args.congestion),
    )
}

fn serve(args: &Serve, more: &[&Serve], parsed: &Parsed<Cli>) -> ExitCode {
    let sites: Vec<_> = more.iter().map(|args| &args.site).collect();
    let applied = Applied {
        options: &APPLIED,
        same_site: &SAME_SITE,
        site_defaults: &SITE_DEFAULTS,
    };
    let rereading = Rereading::new(parsed, applied);
    match congestion(args, more) {
        Ok(Congestion::Cubic) => args
            .site
            .serve_only::<Cubic, _>(&sites, &rereading, site_args),
        Ok(Congestion::Bbr) => args
            .site
            .serve_only::<Bbr, _>(&sites, &rereading, site_args),
        Ok(Congestion::Reno) => args
            .site
            .serve_only::<NewReno, _>(&sites, &rereading, site_args),
        Err(error) => {
            control::log::error("sandstorm", config::with_places(error));
            ExitCode::from(2)
        }
    }
}

fn site_args(cli: &Cli) -> Option<&SiteArgs> {
    cli.site().map(|args| &args.site)
}

fn check(args: &Serve, more: &[&Serve]) -> ExitCode {
    let sites: Vec<_> = more.iter().map(|args| &args.site).collect();
    let congestion = congestion(args, more).map(|_| Lines::new());
    let mut found = args.site.check(&sites);
    found.push(congestion.map_err(Into::into));
    config::print_check("sandstorm", found)
}
