//! The port option of one program, in a server of several programs.

use std::fmt;
use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::named::Named;
use crate::units::number;

/// The option `--NAME-port`, with the name and the default port of `T`. Use it with
/// `#[command(flatten)]` together with [`ServeArgs`](crate::ServeArgs). `--port` sets the port of
/// the first program, and each other program needs an option of this kind.
///
/// `T` is the application or service, or a type of your own with another name.
///
/// ```
/// use clap::Parser as _;
/// use control::{Named, PortArgs, ServeArgs};
///
/// struct Dns;
///
/// impl Named for Dns {
///     const NAME: &'static str = "dns";
///     const PORT: u16 = 53;
/// }
///
/// #[derive(clap::Parser)]
/// struct Cli {
///     #[command(flatten)]
///     network: ServeArgs,
///     #[command(flatten)]
///     dns: PortArgs<Dns>,
/// }
///
/// let cli = Cli::parse_from(["pair", "--port", "8080", "--dns-port", "5353"]);
/// assert_eq!((cli.network.port, cli.dns.port()), (Some(8080), 5353));
/// assert_eq!(Cli::parse_from(["pair"]).dns.port(), 53);
/// ```
pub struct PortArgs<T> {
    port: u16,
    of: PhantomData<fn() -> T>,
}

impl<T: Named> PortArgs<T> {
    /// Returns the port given on the command line, or else `T`'s default.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl<T: Named> Args for PortArgs<T> {
    fn augment_args(command: Command) -> Command {
        command.arg(port_arg(T::NAME, T::PORT))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Named> FromArgMatches for PortArgs<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            port: port_of(T::NAME, matches).unwrap_or(T::PORT),
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(port) = port_of(T::NAME, matches) {
            self.port = port;
        }
        Ok(())
    }
}

fn option(name: &str) -> String {
    format!("{name}-port")
}

/// Returns the option `--NAME-port` of the program with this name, as written on the command line.
pub(crate) fn long_option(name: &str) -> String {
    format!("--{}", option(name))
}

/// Makes the option `--NAME-port` of the program with this name.
pub(crate) fn port_arg(name: &str, default: u16) -> Arg {
    Arg::new(option(name))
        .long(option(name))
        .value_name("N")
        .value_parser(number::<u16>(1..=u16::MAX))
        .help(format!("Port of {name}. Defaults to {default}"))
        .help_heading("Network")
}

/// Returns the port given with the option `--NAME-port`, or `None` if the option was not given.
pub(crate) fn port_of(name: &str, matches: &ArgMatches) -> Option<u16> {
    matches.get_one(&option(name)).copied()
}

impl<T> fmt::Debug for PortArgs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortArgs")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use crate::args::ServeArgs;

    struct Web;
    struct Clock;

    impl Named for Web {
        const NAME: &'static str = "web";
        const PORT: u16 = 80;
    }

    impl Named for Clock {
        const NAME: &'static str = "clock";
        const PORT: u16 = 123;
    }

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        network: ServeArgs,
        #[command(flatten)]
        web: PortArgs<Web>,
        #[command(flatten)]
        clock: PortArgs<Clock>,
    }

    fn parse(line: &str) -> Result<(Option<u16>, u16, u16), clap::Error> {
        let cli = Cli::try_parse_from(line.split(' '))?;
        Ok((cli.network.port, cli.web.port(), cli.clock.port()))
    }

    #[test]
    fn each_program_has_its_own_option() {
        Cli::command().debug_assert();
        assert_eq!(parse("three").unwrap(), (None, 80, 123));
        let line = "three --clock-port 3 --port 1 --web-port 2";
        assert_eq!(parse(line).unwrap(), (Some(1), 2, 3));
        let help = Cli::command().render_help().to_string();
        assert!(help.contains("Port of clock. Defaults to 123"), "{help}");
    }

    #[test]
    fn a_wrong_port_is_an_error_with_option_and_range() {
        for port in ["0", "65536", "http"] {
            let error = parse(&format!("three --clock-port {port}")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("--clock-port"), "{message}");
            assert!(message.contains("from 1 to 65535"), "{message}");
        }
    }
}
