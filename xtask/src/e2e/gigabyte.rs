//! One `curl` of a large file on the server's own host, over what the server
//! makes for itself: a veth pair, a tap device.

use std::net::SocketAddr;
use std::path::Path;

use super::Content;
use super::checks::Checks;
use super::flood::scenario;
use super::matrix::{Device, Scenario};
use super::rig::{self, Rig};
use super::supers::expect_sent;
use super::web::body;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// Bytes of the file, a thousand times these.
const PIECE: usize = 1_000_000;
/// The median of so many fetches is at least this, in Gb/s: the mark of
/// super-segments.
const REPEATS: usize = 3;
const LEAST: f64 = 10.0;

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let site = content.folder.join("gigabyte");
    std::fs::create_dir(&site).context(format_args!("making {}", site.display()))?;
    std::fs::write(site.join("1g.bin"), body(PIECE).repeat(1_000)).context("writing 1 GB")?;
    for (name, device) in [("auto", Device::Auto), ("tap", Device::Tap)] {
        let rig = Rig::build(&Scenario {
            device,
            ..scenario()
        })?;
        let mut command = rig.server().command(programs.join("sandstorm"));
        command.arg("serve").arg(&site);
        rig::add_device(&mut command, device);
        let server = Server::start(command)?;
        let place = rig::place(&server.output(), false)?;
        for address in place.addresses() {
            let what = format!("1 GB over {name} from {address} at {LEAST} Gb/s or more");
            checks.check(&what, || {
                let mut speeds = Vec::new();
                for _ in 0..REPEATS {
                    speeds.push(fetch(&rig, place.socket(address))?);
                }
                speeds.sort_by(f64::total_cmp);
                let said = format!("1 GB over {name} from {address}: {speeds:.1?} Gb/s");
                println!("{said}");
                if speeds[REPEATS / 2] < LEAST {
                    return Err(Failure::new(said));
                }
                Ok(())
            });
        }
        checks.check("it has sent super-segments", || expect_sent(server));
    }
    Ok(())
}

/// Fetches it once; how fast, in Gb/s.
fn fetch(rig: &Rig, from: SocketAddr) -> Result<f64> {
    let mut curl = rig.server().command("curl");
    let url = format!("http://{from}/1g.bin");
    let report = "%{size_download} %{speed_download}";
    curl.args(["-s", "-g", "-o", "/dev/null", "-w", report, &url]);
    let said = shell::capture_text(&mut curl)?;
    let wrong = || Failure::new(format!("curl says {said:?}"));
    let (size, speed) = said.split_once(' ').ok_or_else(wrong)?;
    if size != (1_000 * PIECE).to_string() {
        return Err(wrong());
    }
    let bytes: f64 = speed.trim().parse().map_err(|_| wrong())?;
    Ok(bytes * 8.0 / 1e9)
}
