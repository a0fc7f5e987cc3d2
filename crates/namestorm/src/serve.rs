//! Runs a complete server program for one zone and one hook.

use std::process::ExitCode;

use control::config::OwnDefaults;
use control::{ConnectionArgs, Named, NewWorker, StartError};

use crate::hook::{Hook, NoHook};
use crate::load::load_text;
use crate::program::{LoadError, Namestorm};
use crate::report::Report;
use crate::tcp::TcpSettings;
use crate::zones::{HookNameError, Zones};

/// The reason why a zone and its hook cannot be served.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("{0}")]
    Zone(Report),
    #[error(transparent)]
    Name(#[from] HookNameError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Serves one zone with a hook in each worker. This function can be the whole body of `main`.
/// `zone` is the text of the zone's master file. The hook answers for `names` (see
/// [`Zones::hook`]). The command line has the options of [`control::ServeArgs`].
///
/// `make` is called once for each worker, before the process drops its privileges. `make` may [open
/// a mailbox](NewWorker::open_mailbox), through which other threads reach the hook. Use
/// [`Namestorm::with_hook`] for several zones, zones in files, or other options.
pub fn serve<H: Hook + Named>(
    zone: &str,
    names: &[&str],
    make: impl Fn(&mut NewWorker<H::Message>) -> Result<H, StartError> + Sync,
) -> ExitCode {
    control::serve(&control::network_args(H::NAME), || {
        Ok::<_, ServeError>(Namestorm::with_hook(&hooked_zone(zone, names)?, make)?)
    })
}

/// Returns the defaults that Namestorm's command line does not define, for `config show`. `port` is
/// the identifier of the option for its port.
pub fn own_defaults(port: &'static str) -> OwnDefaults {
    let own = OwnDefaults::of(NoHook::NAME)
        .with(port, &NoHook::PORT)
        .without("zones", "no file")
        .without("zones_from", "no pattern")
        .without("cookie_secret", "a random secret")
        .without("tsig_keys", "no key")
        .without("rate_limit", "1000, or 0 on device auto")
        .without("rate_limit_allowed", "no network")
        .without("allow_transfers", "no network")
        .without("notify", "no server")
        .without("edns_sizes", "1232")
        .without("nsid", "no NSID")
        .without("chaos_version", "refused")
        .without("chaos_id", "nsid if it is text, else refused");
    let tcp = TcpSettings::default();
    ConnectionArgs::own_defaults(own, &tcp.stack, tcp.request_timeout)
}

/// Loads the zone and registers the names for the hook.
fn hooked_zone(zone: &str, names: &[&str]) -> Result<Zones, ServeError> {
    let loaded = load_text("zone", None, zone).map_err(ServeError::Zone)?;
    let mut zones = Zones::new(vec![loaded.zone]).unwrap_or_else(|_| unreachable!("one zone"));
    for name in names {
        zones.hook(name)?;
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_zone_and_in_hooked_names_are_reported() {
        let zone = "$ORIGIN z.\n@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns.y.\n";
        let zones = hooked_zone(zone, &["a.z", "*.b.z"]).unwrap();
        assert_eq!(zones.hooked().bases().count(), 2);
        let error = |zone, names: &[&str]| hooked_zone(zone, names).unwrap_err().to_string();
        let outside = error(zone, &["a.z", "a.y"]);
        assert!(
            outside.starts_with("a.y. lies in none of the zones: "),
            "{outside}"
        );
        let no_name = error(zone, &["a..z"]);
        assert!(
            no_name.starts_with("'a..z' is not a domain name: "),
            "{no_name}"
        );
        let no_zone = error("$ORIGIN z.\n@ 60 NS", &[]);
        assert!(no_zone.starts_with("zone:2:6: "), "{no_zone}");
    }
}
