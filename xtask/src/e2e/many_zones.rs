//! Many zones, of which one is broken. All others are served, and the broken one is named.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::Env;
use super::checks::Checks;
use super::dns::udp;
use super::matrix::Scenario;
use super::rig::{Rig, device_options};
use crate::interrupt;
use crate::shell;

/// Numbers of zones, usually and with `--all`.
const FEW: u32 = 400;
const MANY: u32 = 100_000;
/// Number of the broken zone.
const BROKEN: u32 = 123;
/// Number of a zone that changes while it is served.
const CHANGED: u32 = 7;
/// Number of zone files in a folder.
const IN_FOLDER: u32 = 1_000;
const SERVFAIL: u8 = 2;

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    run(env, FEW, checks)
}

/// Runs the test with [`MANY`] zones.
pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    run(env, MANY, checks)
}

fn run(env: &Env, count: u32, checks: &mut Checks) -> Result<()> {
    let scratch = shell::scratch_in(&env.folder, "zones")?;
    write_zones(scratch.path(), count)?;
    let folder = scratch.path().display();
    let scenario = Scenario::DNS.on("tap");
    let rig = Rig::build(&scenario)?;
    let socket = format!("{folder}/socket");
    let options =
        format!("--zones-from {folder}/*/*.zone --control-socket {socket} --rate-limit 0");
    let options = options.split(' ').map(str::to_owned);
    let begun = Instant::now();
    let (server, place) = rig.serve(env, "namestorm", options.chain(device_options(&scenario)))?;
    println!(
        "many zones: {count} zones are served after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    let broken = format!("z{BROKEN}.test.zone:3:");
    checks.check("the start names the broken zone", || {
        let output = server.output();
        ensure!(output.contains(&broken), "{output}");
        Ok(())
    });
    checks.check("all other zones are served", || {
        rig.as_client(|| ask_all(place.socket(place.v4), count))?
    });
    checks.check("the list of zones names the broken zone", || {
        let mut zones = rig.client().command(env.programs.join("namestorm"));
        let output =
            shell::capture_text(zones.args(["zones", "--json", "--control-socket", &socket]))?;
        let lines: Result<Vec<serde_json::Value>, _> =
            output.lines().map(serde_json::from_str).collect();
        let lines = lines.context("reading the list")?;
        let states = |state: &str| {
            lines
                .iter()
                .filter(|line| line["state"] == state)
                .collect::<Vec<_>>()
        };
        let (served, found) = (states("served").len(), states("broken"));
        let is_right = served == count as usize - 1 && found.len() == 1;
        let is_named = found.iter().all(|line| line.to_string().contains(&broken));
        ensure!(is_right && is_named, "{served} are served; {found:?}");
        Ok(())
    });
    checks.check("a zone that changes is read again", || {
        let at = scratch.path().join(format!("0/z{CHANGED}.test.zone"));
        let text = shell::read(&at)?;
        shell::write(&at, text.replace(" A 10.", " A 11."))?;
        let mut reload = rig.client().command(env.programs.join("namestorm"));
        reload.args(["reload", "--control-socket", &socket]);
        // The broken zone stays broken.
        let partial = shell::capture_text(&mut reload).err().context("no error")?;
        let is_right = partial.to_string().contains("the rest was reloaded");
        ensure!(is_right, "{partial:#}");
        let to = place.socket(place.v4);
        let reply = rig.as_client(|| ask(&udp(to)?, CHANGED))??;
        ensure!(reply.ends_with(&[11, 0, 0, CHANGED as u8]), "{reply:?}");
        Ok(())
    });
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(())
}

/// Writes the files. The broken zone has an error in its third line.
fn write_zones(folder: &Path, count: u32) -> Result<()> {
    for number in 0..count {
        let home = folder.join((number / IN_FOLDER).to_string());
        if number % IN_FOLDER == 0 {
            interrupt::check()?;
            shell::make_folder(&home)?;
        }
        let [_, a, b, c] = number.to_be_bytes();
        let last = if number == BROKEN { 256 } else { u32::from(c) };
        let zone =
            format!("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\nwww 60 A 10.{a}.{b}.{last}\n");
        shell::write(&home.join(format!("z{number}.test.zone")), zone)?;
    }
    Ok(())
}

/// Asks each zone for the address of its `www`. The address is the number of the zone.
fn ask_all(to: SocketAddr, count: u32) -> Result<()> {
    let socket = udp(to)?;
    for number in 0..count {
        let reply = ask(&socket, number)?;
        let [_, rest @ ..] = number.to_be_bytes();
        let address = [&[10][..], &rest].concat();
        let is_right = if number == BROKEN {
            reply[3] % 16 == SERVFAIL
        } else {
            reply[3] % 16 == 0 && reply.ends_with(&address)
        };
        ensure!(is_right, "z{number}.test: {reply:?}");
    }
    Ok(())
}

/// Asks for the address of `www` in the zone with this number.
fn ask(socket: &UdpSocket, number: u32) -> Result<Vec<u8>> {
    let label = format!("z{number}");
    let mut query = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x03www".to_vec();
    query.push(label.len() as u8);
    query.extend_from_slice(label.as_bytes());
    query.extend_from_slice(b"\x04test\0\0\x01\0\x01");
    socket.send(&query).context("sending")?;
    let mut reply = [0; 512];
    let len = socket
        .recv(&mut reply)
        .with_context(|| format!("{label}.test"))?;
    Ok(reply[..len].to_vec())
}
