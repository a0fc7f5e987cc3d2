//! Sends random requests for a random folder to Sandstorm and to another server, and compares the
//! responses. Each difference must be in the table of this server: `differential/nginx.txt` or
//! `differential/caddy.txt`.
//!
//! A test is skipped if its server is not installed. `SEED=N` runs it with another seed, and
//! `DIFFERENTIAL=full` with many.
#![cfg(target_os = "linux")]

mod differential {
    pub(super) mod folder;
    pub(super) mod peers;
    pub(super) mod requests;
}

use std::collections::BTreeSet;

use differential::folder::Folder;
use differential::peers::{Answered, CADDY, NGINX, Peer, Tags, ask_sandstorm, site};
use differential::requests::Request;
use fastrand::Rng;

const REQUESTS: usize = 3_000;
/// The usual seed.
const SEED: u64 = 1;
/// Number of seeds in a full test. With them, each explanation is needed.
const SEEDS: u64 = 20;

/// A property in which two responses differ, and its values with the other server and with Sandstorm.
type Difference = (&'static str, String, String);

/// Returns the differences between the other server's and Sandstorm's response.
fn differences(other: &Answered, sandstorm: &Answered) -> Vec<Difference> {
    let fields: &[_] = match sandstorm.status {
        _ if other.status != sandstorm.status => &["status"],
        200 => &[
            "close",
            "Content-Type",
            "Content-Encoding",
            "Content-Length",
            "Last-Modified",
            "Vary",
            "body",
        ],
        206 => &["close", "Content-Encoding", "Last-Modified", "Vary", "body"],
        301 => &["close", "Location"],
        304 => &["close", "Vary"],
        416 => &["close", "Content-Range"],
        _ => &["close"],
    };
    let value = |of: &Answered, name: &str| match name {
        "status" => of.status.to_string(),
        "close" => of.closes().to_string(),
        "body" => {
            let file = of.file();
            let text = file.iter().map(|byte| byte.map_or('.', char::from));
            text.collect()
        }
        // The servers name charsets and encode paths in different ways.
        "Content-Type" => of.field(name).split(';').next().unwrap().to_owned(),
        "Location" => percent_encoding::percent_decode_str(of.field(name))
            .decode_utf8_lossy()
            .into(),
        _ => of.field(name).to_owned(),
    };
    let pairs = fields
        .iter()
        .map(|name| (*name, value(other, name), value(sandstorm, name)));
    pairs
        .filter(|(_, other, sandstorm)| other != sandstorm)
        .collect()
}

/// Returns the line of the table that explains a difference.
fn explanation(
    peer: &Peer,
    request: &Request,
    (what, other, sandstorm): &Difference,
) -> Option<&'static str> {
    let is_one = |list: &str, value: &str| {
        list == "*" || list == value || list.split('/').any(|one| one == value)
    };
    explanations(peer).find(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        is_one(cells[0], what)
            && is_one(cells[1], other)
            && is_one(cells[2], sandstorm)
            && request.is(cells[3])
    })
}

fn explanations(peer: &Peer) -> impl Iterator<Item = &'static str> + use<> {
    let lines = peer.explained.lines();
    lines.filter(|line| !line.starts_with('#'))
}

/// Returns the tags that a server gives to the files.
fn tags(folder: &Folder, mut ask: impl FnMut(&Request, &[u8]) -> Answered) -> Tags {
    let mut tag = |request: &Request| {
        ask(request, &request.bytes(&Tags::new()))
            .field("ETag")
            .to_owned()
    };
    let files = folder.files.iter();
    files
        .map(|file| {
            (
                file.path.clone(),
                [false, true].map(|coded| tag(&Request::plain(file, coded))),
            )
        })
        .collect()
}

#[test]
fn each_difference_from_nginx_is_explained() {
    compare(&NGINX);
}

#[test]
fn each_difference_from_caddy_is_explained() {
    compare(&CADDY);
}

fn compare(peer: &Peer) {
    let is_full = std::env::var_os("DIFFERENTIAL").is_some();
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) if is_full => (SEED..=SEEDS).collect(),
        Err(_) => vec![SEED],
    };
    let mut used = BTreeSet::new();
    for seed in &seeds {
        if !compare_with(peer, *seed, &mut used) {
            eprintln!(
                "skipped: {} is not installed (apt-get install {})",
                peer.name, peer.package
            );
            return;
        }
    }
    let unused: Vec<_> = explanations(peer)
        .filter(|line| !used.contains(line))
        .collect();
    let may_be_unused = seeds.len() < SEEDS as usize;
    assert!(
        may_be_unused || unused.is_empty(),
        "{}: not needed: {}",
        peer.name,
        unused.join("\n")
    );
}

/// Compares the servers. Adds the explanations that were needed to `used`. Returns false if the other
/// server is not installed.
fn compare_with(peer: &Peer, seed: u64, used: &mut BTreeSet<&str>) -> bool {
    let (name, mut rng) = (peer.name, Rng::with_seed(seed));
    let folder = Folder::make(&mut rng);
    let Some(mut other) = peer.start(&folder) else {
        return false;
    };
    let site = site(&folder);
    let their_tags = tags(&folder, |request, bytes| other.ask(request, bytes));
    let our_tags = tags(&folder, |request, bytes| {
        ask_sandstorm(&site, request, bytes)
    });
    let (mut faults, mut same) = (Vec::new(), 0);
    for _ in 0..REQUESTS {
        let request = Request::random(&folder, &mut rng);
        let bytes = request.bytes(&our_tags);
        let theirs = other.ask(&request, &request.bytes(&their_tags));
        let found = differences(&theirs, &ask_sandstorm(&site, &request, &bytes));
        same += usize::from(found.is_empty());
        for difference in found {
            match explanation(peer, &request, &difference) {
                Some(line) => drop(used.insert(line)),
                None => faults.push(format!("{difference:.99?}\n{}", bytes.escape_ascii())),
            }
        }
    }
    let count = faults.len();
    faults.truncate(9);
    assert!(
        count == 0,
        "{name}, seed {seed}: {count} differences are not explained:\n{}",
        faults.join("\n")
    );
    println!("{name}, seed {seed}: {same} of {REQUESTS} responses are the same");
    assert!(
        same > REQUESTS / 2,
        "{name}, seed {seed}: only {same} responses are the same"
    );
    true
}
