//! Checks that the server does not answer frames that are sent to another MAC address.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use super::checks::Checks;
use super::matrix::Scenario;
use super::rig::Rig;
use super::{Env, http};
use crate::netns::CLIENT_LINK;
use anyhow::{Result, ensure};

/// A MAC address that no interface has.
const ANOTHER: &str = "02:00:00:00:00:99";
/// Time limit for a connection to open. After this time the server counts as silent.
const SILENCE: Duration = Duration::from_millis(1_500);

/// Runs the checks on AF_XDP, where the steering program filters frames first, and on a tap device,
/// which has no such program. The server has its own addresses, so the kernel does not answer for
/// them.
pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let devices = [
        (Scenario::WEB.with("own"), CLIENT_LINK),
        (Scenario::WEB.on("tap"), "tap0"),
    ];
    for (scenario, link) in devices {
        let rig = Rig::build(&scenario)?;
        let (_server, place) = rig.start(env, &scenario, &[])?;
        for address in place.addresses() {
            let to = place.socket(address);
            rig.client().ip(&format!(
                "neigh replace {address} lladdr {ANOTHER} dev {link} nud permanent"
            ))?;
            checks.check(format_args!("{scenario}: another's MAC, {address}"), || {
                let outcome = rig.as_client(|| TcpStream::connect_timeout(&to, SILENCE))?;
                let failure = outcome.as_ref().err().map(std::io::Error::kind);
                ensure!(failure == Some(ErrorKind::TimedOut), "{outcome:?}");
                Ok(())
            });
            let forget = format!("neigh del {address} dev {link}");
            rig.client().ip(&forget)?;
            checks.check(
                format_args!("{scenario}: the server's own, {address}"),
                || rig.as_client(|| http::connect(to))?.map(drop),
            );
        }
    }
    Ok(())
}
