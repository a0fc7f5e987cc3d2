//! What protects the server, and others, against forged and excessive queries.

use std::path::PathBuf;

use clap::Args;
use control::report::{count, counted};
use control::units::number;
use control::{OptionError, Prefix, Reloaded, StartError};
use nmio::device::Device;

use crate::rate_limit::{
    DEFAULT_BITS, DEFAULT_RATE, DEFAULT_SLIP, MAX_IPV6_BITS, MAX_RATE, RateLimit,
};
use crate::secret_source::{NeededKeys, SecretFiles, SecretSource};
use crate::udp_size::{UdpSize, UdpSizes};
use crate::zone_args::ZoneArgs;

/// The options for the defence against abuse, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Zones")]
pub struct DefenceArgs {
    /// File with the secrets of server cookies, each a line of 32 hexadecimal digits, such as `openssl
    /// rand -hex 16` prints. Servers that share an address should share the file. The first secret makes
    /// cookies, and up to four verify them. A reload reads the file again. Without this option, the
    /// secret is random, and ends with the server.
    #[arg(long, value_name = "FILE")]
    cookie_secret: Option<PathBuf>,

    /// File with the keys of clients that sign their queries (TSIG), as `tsig-keygen` writes them. Replies to
    /// them are signed too. A reload reads the file again. `--allow-transfer` and `--notify` say what a key is
    /// needed for.
    #[arg(long, value_name = "FILE")]
    tsig_keys: Option<PathBuf>,

    /// Maximum number of replies over UDP per second that a worker sends to a network of clients, or 0
    /// for no limit. Valid cookies, new signatures, loopback addresses and `--rate-limit-allow` have no
    /// limit. Without this option it is 1000, or 0 if the device is `auto`, whose clients are on this host.
    #[arg(long, value_name = "N", value_parser = number::<u32>(0..=MAX_RATE))]
    rate_limit: Option<u32>,

    /// Which queries over the limit get a short reply: one of N of each network, or none with 0. The
    /// reply is truncated, so that clients ask over TCP, or has BADCOOKIE if the query has a cookie.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SLIP, value_parser = number::<u8>(0..=MAX_SLIP))]
    rate_limit_slip: u8,

    /// Length of the IPv4 networks that the limit is for, in bits.
    #[arg(long, value_name = "BITS", default_value_t = DEFAULT_BITS[0],
          value_parser = number::<u8>(8..=32))]
    rate_limit_ipv4_prefix: u8,

    /// Length of the IPv6 networks that the limit is for, in bits.
    #[arg(long, value_name = "BITS", default_value_t = DEFAULT_BITS[1],
          value_parser = number::<u8>(16..=MAX_IPV6_BITS))]
    rate_limit_ipv6_prefix: u8,

    /// Address or network of clients without a limit, such as `192.0.2.0/24`. Repeat the option for
    /// more.
    #[arg(long = "rate-limit-allow", value_name = "ADDRESS[/BITS]")]
    rate_limit_allowed: Vec<Prefix>,

    /// Maximum length of a UDP message in bytes, from 512 to 4096, for all clients or for those of a
    /// network. Repeat the option for more networks; the longest prefix counts. Replies fit one packet of
    /// the interface in any case, and longer ones are truncated, so that clients ask over TCP. Without
    /// this option it is 1232, which practically no path fragments.
    #[arg(long = "edns-size", value_name = "[PREFIX=]BYTES")]
    edns_sizes: Vec<UdpSize>,
}

/// Maximum of `--rate-limit-slip`.
const MAX_SLIP: u8 = 100;
/// Maximum number of networks without a limit. Each query over the limit is compared with all of them.
const MAX_ALLOWED: usize = 256;

impl Default for DefenceArgs {
    fn default() -> Self {
        Self {
            cookie_secret: None,
            tsig_keys: None,
            rate_limit: Some(0),
            rate_limit_slip: DEFAULT_SLIP,
            rate_limit_ipv4_prefix: DEFAULT_BITS[0],
            rate_limit_ipv6_prefix: DEFAULT_BITS[1],
            rate_limit_allowed: Vec::new(),
            edns_sizes: Vec::new(),
        }
    }
}

impl DefenceArgs {
    /// Checks that the server can start with these options, and with those for its zones. Returns lines about
    /// the defence for the operator.
    ///
    /// # Errors
    /// If a file of the options cannot be read or lacks a key, if they have too many networks, or if they
    /// contradict each other.
    pub fn check(
        &self,
        device: &Device,
        zones: &ZoneArgs,
    ) -> Result<Vec<(&'static str, String)>, StartError> {
        let defence = Defence::from_args(self, device, zones.needed_keys())?;
        Ok(defence.loaded())
    }

    /// Returns the files with secrets that the options name.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.cookie_secret, &self.tsig_keys];
        files.into_iter().flatten().cloned()
    }

    /// Returns the limit of replies on this device, if there is one.
    fn limit(&self, device: &Device) -> Result<Option<RateLimit>, StartError> {
        if self.rate_limit_allowed.len() > MAX_ALLOWED {
            let error = format!(
                "--rate-limit-allow has {} networks, but {MAX_ALLOWED} are the maximum: combine them",
                self.rate_limit_allowed.len()
            );
            return Err(OptionError::new(error).into());
        }
        let default = if *device == Device::Auto {
            0
        } else {
            DEFAULT_RATE
        };
        let rate = self.rate_limit.unwrap_or(default);
        Ok((rate > 0).then(|| RateLimit {
            rate,
            slip: self.rate_limit_slip,
            bits: [self.rate_limit_ipv4_prefix, self.rate_limit_ipv6_prefix],
            allowed: self.rate_limit_allowed.clone(),
        }))
    }
}

/// Combines errors into one, with a line for each. It is a mistake in the options if one of them is.
fn together(errors: &[StartError]) -> StartError {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let all = lines.join("\n");
    if errors.iter().any(|error| error.is::<OptionError>()) {
        OptionError::new(all).into()
    } else {
        all.into()
    }
}

/// Returns the result of a reload of zones and of secrets. The secrets have had these errors.
pub(crate) fn both_reloaded(
    zones: Result<Reloaded, StartError>,
    errors: &[StartError],
) -> Result<Reloaded, StartError> {
    if errors.is_empty() {
        return zones;
    }
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let error = errors.join("; ");
    match zones {
        Ok(Reloaded { done, kept }) => {
            let kept = kept.map_or(error.clone(), |kept| format!("{kept}; {error}"));
            Ok(Reloaded {
                done,
                kept: Some(kept),
            })
        }
        Err(zones) => Err(format!("{zones}; {error}").into()),
    }
}

/// The defence of one server.
#[derive(Debug)]
pub(crate) struct Defence {
    secrets: SecretSource,
    rate_limit: Option<RateLimit>,
    udp_sizes: UdpSizes,
}

impl Defence {
    /// Creates the defence that the options describe, for a server on this device that needs these keys.
    ///
    /// # Errors
    /// If a file cannot be read or lacks a key, or if the system returns no random bytes. Also if there are
    /// too many networks, or if options contradict each other. The message has a line for each error.
    pub(crate) fn from_args(
        args: &DefenceArgs,
        device: &Device,
        needed: NeededKeys,
    ) -> Result<Self, StartError> {
        let files = SecretFiles {
            cookies: args.cookie_secret.clone(),
            keys: args.tsig_keys.clone(),
        };
        let secrets = SecretSource::open(files, needed);
        let udp_sizes = UdpSizes::new(&args.edns_sizes);
        match (secrets, args.limit(device), udp_sizes) {
            (Ok(secrets), Ok(rate_limit), Ok(udp_sizes)) => Ok(Self {
                secrets,
                rate_limit,
                udp_sizes,
            }),
            (secrets, rate_limit, udp_sizes) => {
                let of_sizes = udp_sizes.err().into_iter().flatten();
                let of_sizes = of_sizes.map(|error| OptionError::new(error).into());
                let errors = secrets.err().into_iter().flatten();
                let errors = errors.chain(rate_limit.err()).chain(of_sizes);
                Err(together(&errors.collect::<Vec<_>>()))
            }
        }
    }

    /// Returns the source of the secrets.
    pub(crate) fn secrets(&self) -> &SecretSource {
        &self.secrets
    }

    /// Returns the limit of replies, if there is one.
    pub(crate) fn rate_limit(&self) -> Option<&RateLimit> {
        self.rate_limit.as_ref()
    }

    /// Returns the largest UDP message for each client.
    pub(crate) fn udp_sizes(&self) -> &UdpSizes {
        &self.udp_sizes
    }

    /// Returns lines for the start block.
    pub(crate) fn loaded(&self) -> Vec<(&'static str, String)> {
        let limit = match &self.rate_limit {
            None => "none".to_owned(),
            Some(limit) => {
                let (rate, [v4, v6]) = (count(limit.rate.into()), limit.bits);
                let except = match limit.allowed.len() as u64 {
                    0 => String::new(),
                    allowed => format!(", except {}", counted(allowed, "network")),
                };
                format!("{rate}/s to each /{v4} and /{v6} network, per worker{except}")
            }
        };
        let mut lines = self.secrets.describe();
        lines.push(("rate limit", limit));
        let sizes = self.udp_sizes.describe();
        lines.extend(sizes.map(|sizes| ("UDP replies", sizes)));
        lines
    }
}
