//! Zone transfers: dig gets the same records from Namestorm as from other servers with the same files. These
//! servers can be its secondaries, which sign with a key, and hear of changes by signed NOTIFY. The answers to
//! queries of dnspython have the same records, too.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;

use super::Env;
use super::checks::Checks;
use super::dns::set;
use super::matrix::Scenario;
use super::peers::servers::{ADDRESS, KEY, PEERS, Peer};
use super::peers::{self, Zones};
use super::rig::{Rig, device_options};
use crate::interrupt;
use crate::netns::Namespace;
use crate::shell;

/// Debian's interpreter, which finds Debian's package of dnspython.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("transfers.py");
const SEED: u64 = 7;
/// The name of a zone that needs many messages, and its number of addresses.
const LARGE: &str = "large.test";
const ADDRESSES: u32 = 30_000;
/// Time limit until a secondary server has a change of a zone of which NOTIFY tells. Its transfer takes a
/// part of this time.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let scratch = shell::scratch_in(&env.folder, "transfers")?;
    let folder = scratch.path();
    let Zones { mut files, .. } = peers::make_zones(folder, &mut Rng::with_seed(SEED))?;
    let large = folder.join(LARGE);
    shell::write(&large, large_zone(1))?;
    files.push((LARGE.to_owned(), large.display().to_string()));
    let scenario = Scenario::DNS.on("tap");
    let rig = Rig::build(&scenario)?;
    let socket = folder.join("socket").display().to_string();
    let zones = files
        .iter()
        .flat_map(|(apex, file)| ["--zone".to_owned(), format!("{apex}={file}")]);
    let keys = folder.join("keys").display().to_string();
    let [key, secret] = KEY;
    let text = format!("key {key} {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n");
    shell::write(Path::new(&keys), text)?;
    let (of_key, notify) = (format!("::/0 {key}"), format!("{ADDRESS} {key}"));
    // All questions come from one address.
    let more = format!("--allow-transfer 10.99.0.0/24 --rate-limit 0 --control-socket {socket}");
    let of_key = ["--allow-transfer", &of_key, "--notify", &notify];
    let more = more.split(' ').chain(["--tsig-keys", &keys]).chain(of_key);
    let options = zones.chain(more.map(str::to_owned));
    let (server, place) = rig.serve(env, "namestorm", options.chain(device_options(&scenario)))?;
    let primary = Primary {
        env,
        home: rig.client(),
        address: place.v4.to_string(),
        files,
        folder,
        socket,
    };
    let home = primary.home;
    checks.check("a client without the key gets no transfer", || {
        let output = dig(home, &place.v6.to_string(), LARGE)?;
        ensure!(output.contains("Transfer failed"), "{output}");
        Ok(())
    });
    checks.check("a client with the key gets a signed transfer", || {
        let expected = records(home, &primary.address, LARGE)?;
        // dig verifies each message.
        let signed = records(home, &format!("{} -k {keys}", place.v6), LARGE)?;
        ensure!(signed == expected, "{} records", signed.len());
        let wrong = format!("{} -y hmac-sha256:{key}:AAAA", place.v6);
        let output = dig(home, &wrong, LARGE)?;
        ensure!(output.contains("Transfer failed"), "{output}");
        Ok(())
    });
    checks.check("dnspython gets each RRset of a transfer", || {
        primary.ask_with_dnspython()
    });
    for (serial, peer) in (2..).zip(PEERS.iter().filter(|peer| peer.is_installed())) {
        primary.compare(peer, serial, checks)?;
    }
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(())
}

/// Namestorm as the primary server of all zones.
struct Primary<'a> {
    env: &'a Env,
    /// Namespace of the clients and of the other servers.
    home: &'a Namespace,
    address: String,
    /// Names and files of the zones.
    files: Vec<(String, String)>,
    folder: &'a Path,
    socket: String,
}

impl Primary<'_> {
    /// Starts another server with the same files, then as a secondary server. The large zone changes to
    /// the version `serial`.
    fn compare(&self, peer: &Peer, serial: u32, checks: &mut Checks) -> Result<()> {
        let run = self.folder.join(peer.name);
        shell::make_folder(&run)?;
        let other = peer.start(self.home, &run, &self.files)?;
        checks.check(format_args!("dig gets what {} sends", peer.name), || {
            self.expect_same()
        });
        other.stop_well()?;
        let of_primary = |(apex, _): &(String, String)| (apex.clone(), self.address.clone());
        let zones: Vec<_> = self.files.iter().map(of_primary).collect();
        let run = run.join("secondary");
        shell::make_folder(&run)?;
        let other = peer.start_secondary(self.home, &run, &zones)?;
        checks.check(format_args!("{} is a secondary server", peer.name), || {
            // The server may answer queries a moment before it gives its zones away.
            let compare = || Ok(self.expect_same().ok());
            if interrupt::wait_for(LIMIT, compare)?.is_none() {
                self.expect_same()?;
            }
            let acknowledged = || acknowledged(&self.ask(&["status", "--json"])?);
            let before = acknowledged()?;
            shell::write(&self.folder.join(LARGE), large_zone(serial))?;
            self.ask(&["reload", LARGE])?;
            await_serial(self.home, serial)?;
            let found =
                interrupt::wait_for(LIMIT, || Ok((acknowledged()? > before).then_some(())))?;
            found.context("the secondary server sends no reply with a valid signature")?;
            self.expect_same()
        });
        other.stop_well().map(drop)
    }

    /// Sends a command to the primary server and returns its answer.
    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = self.home.command(self.env.programs.join("namestorm"));
        let command = command.args(words).args(["--control-socket", &self.socket]);
        shell::capture_text(command)
    }

    /// Compares what the primary and the other server transfer.
    fn expect_same(&self) -> Result<()> {
        for (zone, _) in &self.files {
            interrupt::check()?;
            let addresses = [self.address.as_str(), ADDRESS];
            let [ours, theirs] = addresses.map(|address| records(self.home, address, zone));
            let (ours, theirs) = (ours?, theirs?);
            let others = ours.symmetric_difference(&theirs);
            let others: Vec<_> = others.take(5).collect();
            ensure!(others.is_empty(), "{zone}: only one server has {others:?}");
        }
        Ok(())
    }

    /// Transfers all zones but the large one with dnspython, and asks for each of their RRsets.
    fn ask_with_dnspython(&self) -> Result<()> {
        if !shell::succeeds(Command::new(PYTHON).args(["-c", "import dns.query"])) {
            println!("skip dnspython: it is not installed (apt-get install python3-dnspython)");
            return Ok(());
        }
        let zones = self.files.iter().map(|(zone, _)| zone.as_str());
        let zones = zones.filter(|zone| *zone != LARGE);
        let mut python = self.home.command(PYTHON);
        python.args(["-c", SCRIPT, &self.address]).args(zones);
        let asked: usize = shell::capture_text(&mut python)?.trim().parse()?;
        ensure!(
            asked > 10 * self.files.len(),
            "it has asked for {asked} RRsets"
        );
        Ok(())
    }
}

/// Returns the text of a zone whose SOA record has this serial. Without NOTIFY, its secondary servers ask
/// for changes once an hour.
fn large_zone(serial: u32) -> String {
    let address = |n: u32| format!("h{n} 60 A 10.0.{}.{}\n", n / 256 % 256, n % 256);
    let start = format!(
        "@ 60 SOA ns h {serial} 3600 3600 36000 60\n@ 60 NS h1\nserial 60 TXT \"{serial}\"\n"
    );
    start + &(0..ADDRESSES).map(address).collect::<String>()
}

/// Asks a server for a transfer with dig. Returns what dig prints.
fn dig(home: &Namespace, address: &str, zone: &str) -> Result<String> {
    let options = format!("@{address} {zone}. AXFR +noall +answer +nocookie +time=5");
    shell::capture_text(home.command("dig").args(options.split(' ')))
}

/// Returns the records that a server transfers. The SOA record must be the first and the last.
fn records(home: &Namespace, address: &str, zone: &str) -> Result<BTreeSet<String>> {
    let output = dig(home, address, zone)?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = output
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(';'));
    let lines: Vec<_> = lines
        .map(|line| words(line).replacen(" IN ", " ", 1))
        .collect();
    let (first, last) = (lines.first(), lines.last());
    let is_whole =
        lines.len() > 1 && first == last && first.is_some_and(|soa| soa.contains(" SOA "));
    ensure!(
        is_whole,
        "{zone} from {address}: {}",
        shell::end_of(&output, 5)
    );
    let found = set(&lines);
    ensure!(
        found.len() == lines.len() - 1,
        "{zone} from {address}: a record is there twice"
    );
    Ok(found)
}

/// Returns how many messages the secondary servers have acknowledged, from the status of the primary one.
fn acknowledged(status: &str) -> Result<u64> {
    let status: serde_json::Value = serde_json::from_str(status)?;
    let counts = status["workers"][0]["counts"].as_array();
    let is_it = |count: &&serde_json::Value| {
        count["name"] == "notify" && count["labels"]["result"] == "acknowledged"
    };
    let found = counts.and_then(|counts| counts.iter().find(is_it));
    let found = found.and_then(|count| count["count"].as_u64());
    found.context("the status has no count of NOTIFY")
}

/// Waits until the secondary server has this version of the large zone.
fn await_serial(home: &Namespace, serial: u32) -> Result<()> {
    let options = format!("@{ADDRESS} serial.{LARGE}. TXT +short +tries=1 +time=1");
    let expected = format!("\"{serial}\"\n");
    let found = interrupt::wait_for(LIMIT, || {
        let text = shell::capture_text(home.command("dig").args(options.split(' ')))?;
        Ok((text == expected).then_some(()))
    })?;
    found.context("the secondary server does not get the change")
}
