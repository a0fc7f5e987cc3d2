//! Frames to another station's MAC address are not answered.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::Content;
use super::checks::Checks;
use super::http::PATIENCE;
use super::matrix::{Device, Program, Scenario, Xdp};
use super::rig::{CLIENT_LINK, Rig};
use crate::shell::{Context as _, Failure, Result};

/// A MAC address that nobody has.
const ANOTHER: &str = "02:00:00:00:00:99";
/// A client that has no connection after so long gets none.
const SILENCE: Duration = Duration::from_millis(1_500);

/// Devices with addresses of the server's own. A steering program looks at
/// frames before the server does; a tap device has none.
const DEVICES: [(Device, &str); 2] = [
    (
        Device::Xdp(Xdp {
            generic: false,
            queues: 1,
            own: true,
            partial: false,
        }),
        CLIENT_LINK,
    ),
    (Device::Tap, "tap0"),
];

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    for (device, link) in DEVICES {
        let scenario = Scenario {
            program: Program::Sandstorm { mode: "memcopy" },
            device,
            loss: false,
        };
        let rig = Rig::build(&scenario)?;
        let (_server, place) = rig.start(&scenario, None, programs, content)?;
        for address in place.addresses() {
            let to = place.socket(address);
            let neighbour = format!("neigh replace {address} lladdr {ANOTHER} dev {link}");
            rig.client().ip(&format!("{neighbour} nud permanent"))?;
            checks.check(&format!("{scenario}: another's MAC, {address}"), || {
                expect_silence(&rig, to)
            });
            rig.client()
                .ip(&format!("neigh del {address} dev {link}"))?;
            checks.check(&format!("{scenario}: the server's own, {address}"), || {
                expect_answer(&rig, to)
            });
        }
    }
    Ok(())
}

fn expect_answer(rig: &Rig, to: SocketAddr) -> Result<()> {
    let connected = rig.as_client(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    connected.map(drop).context("connecting")
}

fn expect_silence(rig: &Rig, to: SocketAddr) -> Result<()> {
    match rig.as_client(|| TcpStream::connect_timeout(&to, SILENCE))? {
        Ok(_) => Err(Failure::new("it was answered")),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Ok(()),
        Err(error) => Err(error).context("connecting"),
    }
}
