//! The command-line options for TCP connections.

use std::time::Duration;

use clap::{Args, Command, ValueEnum};
use tcpip::{Config, SynCookies, WhenFull};

use crate::config::{self, OwnDefaults};
use crate::error::StartError;
use crate::report;
use crate::units::{number, seconds, size};

/// The command-line options for TCP connections, for use with `#[command(flatten)]`. An option that is
/// not given keeps the program's own default. [`Tcp::serve`](crate::Tcp::serve) takes these options.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Connections")]
pub struct TcpArgs {
    /// Maximum number of open connections per worker. Defaults to 65,536 (Namestorm: 16,384). An
    /// open connection takes about 360 bytes, and up to about 920 bytes while it waits for
    /// acknowledgements.
    #[arg(long, value_name = "N",
          value_parser = number::<u32>(1..=Config::MAX_CONNECTIONS))]
    max_connections: Option<u32>,

    /// What to do with a new client when the connection table is full. Defaults to `evict`.
    #[arg(long, value_enum)]
    when_full: Option<WhenFullArg>,

    /// Maximum number of connections per worker from one client address. SYNs beyond the limit are
    /// dropped. Without this option there is no limit. If connections or buffers run short, the
    /// server first closes connections of addresses that hold more than an eighth of them.
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=u32::MAX))]
    max_per_address: Option<u32>,

    /// Number of leading bits of an IPv6 address that identify one client. Defaults to 64.
    #[arg(long, value_name = "BITS", value_parser = number::<u8>(1..=128))]
    ipv6_prefix: Option<u8>,

    /// Maximum number of half-open connections (handshake not complete) per worker. Defaults to
    /// 4,096.
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=u32::MAX))]
    max_half_open: Option<u32>,

    /// When to answer a SYN with a SYN cookie, which takes no memory. Defaults to `auto`.
    #[arg(long, value_enum)]
    syn_cookies: Option<SynCookiesArg>,

    /// Close a connection after this time of silence, in seconds or with a unit, such as `2min`.
    /// Defaults to 60 s (Namestorm: 10 s).
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=MAX_SECONDS))]
    idle_timeout: Option<u32>,

    /// Drop a connection if the client acknowledges nothing for this time. Defaults to 120 s.
    /// A client that answers probes of its zero window is not dropped.
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=MAX_SECONDS))]
    user_timeout: Option<u32>,

    /// Minimum rate of a client in bytes per second, averaged over at least 20 s. If connections or
    /// buffers run short, the server closes slower connections, the slowest first. Defaults to
    /// 16,000.
    #[arg(long, value_name = "SIZE", value_parser = size(1..=u32::MAX))]
    min_rate: Option<u32>,
}

/// The options of [`TcpArgs`], and the time that a request may take. The program must know when a
/// request is complete.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Connections")]
pub struct ConnectionArgs {
    #[command(flatten)]
    tcp: TcpArgs,

    /// Close a connection if a request is not complete this time after its first byte. Defaults to
    /// 30 s (Namestorm: 10 s).
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=MAX_SECONDS))]
    request_timeout: Option<u32>,
}

/// Checks that the system can allocate the `bytes` of memory that a stack reserves for the
/// `max_connections` of `config`. The memory is freed immediately.
///
/// # Errors
/// If the system refuses the memory. Creating the stack would then abort the process.
pub fn check_reserved(config: &Config, bytes: usize) -> Result<(), StartError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
        format!(
            "--max-connections {} needs {} of memory for each worker, and the system does not \
             grant it; choose a smaller number",
            config.max_connections,
            report::bytes(bytes as u64)
        )
        .into()
    })
}

/// Maximum value of a timeout option, in seconds. The stack would shorten a longer time to this
/// maximum.
const MAX_SECONDS: u32 = Config::MAX_TIME.as_secs() as u32;

impl TcpArgs {
    /// Returns `defaults`, overridden by the options given on the command line.
    pub fn config(&self, defaults: Config) -> Config {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Config {
            max_connections: self.max_connections.unwrap_or(defaults.max_connections),
            when_full: self.when_full.map_or(defaults.when_full, Into::into),
            max_per_address: self.max_per_address.or(defaults.max_per_address),
            ipv6_prefix: self.ipv6_prefix.unwrap_or(defaults.ipv6_prefix),
            max_half_open: self.max_half_open.unwrap_or(defaults.max_half_open),
            syn_cookies: self.syn_cookies.map_or(defaults.syn_cookies, Into::into),
            idle_timeout: self.idle_timeout.map_or(defaults.idle_timeout, seconds),
            user_timeout: self.user_timeout.map(seconds).or(defaults.user_timeout),
            min_rate: self.min_rate.unwrap_or(defaults.min_rate),
            ..defaults
        }
    }
}

impl ConnectionArgs {
    /// Returns `defaults`, overridden by the options given on the command line.
    pub fn config(&self, defaults: Config) -> Config {
        self.tcp.config(defaults)
    }

    /// Adds what holds without these options in a server with these defaults, for `config show`.
    #[must_use]
    pub fn own_defaults(
        own: OwnDefaults,
        defaults: &Config,
        request_timeout: Duration,
    ) -> OwnDefaults {
        let seconds = |time: Duration| format!("{} s", time.as_secs());
        let when_full = match defaults.when_full {
            WhenFull::Evict => "evict",
            WhenFull::Refuse => "refuse",
        };
        let syn_cookies = match defaults.syn_cookies {
            SynCookies::Auto => "auto",
            SynCookies::Always => "always",
            SynCookies::Never => "never",
        };
        let own = own
            .with("max_connections", &defaults.max_connections)
            .with("when_full", &when_full)
            .with("ipv6_prefix", &defaults.ipv6_prefix)
            .with("max_half_open", &defaults.max_half_open)
            .with("syn_cookies", &syn_cookies)
            .with("idle_timeout", &seconds(defaults.idle_timeout))
            .with("request_timeout", &seconds(request_timeout))
            .with("min_rate", &defaults.min_rate);
        let own = match defaults.max_per_address {
            Some(limit) => own.with("max_per_address", &limit),
            None => own.without("max_per_address", "no limit"),
        };
        match defaults.user_timeout {
            Some(time) => own.with("user_timeout", &seconds(time)),
            None => own.without("user_timeout", "no limit"),
        }
    }

    /// Returns the value of `--request-timeout`, or `default` if it was not given.
    pub fn request_timeout(&self, default: Duration) -> Duration {
        let seconds = self.request_timeout;
        seconds.map_or(default, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns true if the configuration file has a wrong value of one of these options for the site with this
    /// number, as [`config::is_wrong`] does.
    pub fn are_wrong(site: usize) -> bool {
        let command = Self::augment_args(Command::new(""));
        let mut options = command.get_arguments();
        options.any(|option| config::is_wrong(site, option.get_id().as_str()))
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFullArg {
    /// Evict the connection with the least progress. Connections of an address that holds more than
    /// an eighth of the table are evicted first.
    #[value(alias = "evict-idle")]
    Evict,
    /// Drop the client's SYN. The client retransmits it later.
    Refuse,
}

impl From<WhenFullArg> for WhenFull {
    fn from(arg: WhenFullArg) -> Self {
        match arg {
            WhenFullArg::Evict => Self::Evict,
            WhenFullArg::Refuse => Self::Refuse,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum SynCookiesArg {
    /// Only when a limit on connections is reached, so that a SYN flood cannot lock out real
    /// clients.
    Auto,
    /// For every SYN.
    Always,
    /// Never. SYNs beyond a limit are dropped.
    Never,
}

impl From<SynCookiesArg> for SynCookies {
    fn from(arg: SynCookiesArg) -> Self {
        match arg {
            SynCookiesArg::Auto => Self::Auto,
            SynCookiesArg::Always => Self::Always,
            SynCookiesArg::Never => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        connections: ConnectionArgs,
    }

    fn parse(line: &str) -> Result<ConnectionArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("server").chain(line.split_whitespace()))
            .map(|cli| cli.connections)
    }

    #[test]
    fn without_options_the_defaults_apply() {
        let defaults = Config {
            max_connections: 7,
            max_per_address: Some(3),
            user_timeout: None,
            ..Config::default()
        };
        let args = parse("").unwrap();
        assert_eq!(args.config(defaults.clone()), defaults);
        let default = Duration::from_secs(9);
        assert_eq!(args.request_timeout(default), default);
    }

    #[test]
    fn each_option_overrides_its_default() {
        let line = "--max-connections 1000000 --idle-timeout 3600 --when-full refuse \
                    --max-per-address 9 --ipv6-prefix 48 --max-half-open 1 --syn-cookies never \
                    --user-timeout 5 --min-rate 240 --request-timeout 2";
        let args = parse(line).unwrap();
        let expected = Config {
            max_connections: 1_000_000,
            idle_timeout: Duration::from_hours(1),
            when_full: WhenFull::Refuse,
            max_per_address: Some(9),
            ipv6_prefix: 48,
            max_half_open: 1,
            syn_cookies: SynCookies::Never,
            user_timeout: Some(Duration::from_secs(5)),
            min_rate: 240,
            ..Config::default()
        };
        assert_eq!(args.config(Config::default()), expected);
        let timeout = args.request_timeout(Duration::from_secs(9));
        assert_eq!(timeout, Duration::from_secs(2));
    }

    #[test]
    fn memory_that_the_system_refuses_is_an_error_with_the_option() {
        let config = Config {
            max_connections: 9,
            ..Config::default()
        };
        check_reserved(&config, 1 << 20).unwrap();
        // No address space has 2^60 bytes.
        let error = check_reserved(&config, 1 << 60).unwrap_err().to_string();
        let start = "--max-connections 9 needs 1152.9 PB of memory for each worker";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn the_error_for_an_invalid_number_contains_the_range() {
        for line in ["--idle-timeout 0.5", "--idle-timeout 0"] {
            let message = parse(line).unwrap_err().to_string();
            assert!(message.contains("from 1 to 604800"), "{message}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for line in [
            "--max-connections 0",
            "--max-connections 268435457",
            "--max-per-address 0",
            "--ipv6-prefix 0",
            "--ipv6-prefix 129",
            "--max-half-open 0",
            "--syn-cookies sometimes",
            "--when-full idle",
            "--idle-timeout 0",
            "--idle-timeout 604801",
            "--request-timeout 0",
            "--user-timeout 0",
            "--min-rate 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
