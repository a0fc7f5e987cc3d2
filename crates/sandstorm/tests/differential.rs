//! Sends random requests for a random folder to Sandstorm and to nginx, and compares the responses.
//! Each difference must be in the table `differential/explained.txt`.
//!
//! The test is skipped if nginx is not installed. `SEED=N` runs it with another seed.
#![cfg(target_os = "linux")]

mod differential {
    pub(super) mod folder;
    pub(super) mod peers;
    pub(super) mod requests;
}

use std::collections::BTreeSet;

use differential::folder::Folder;
use differential::peers::{Answered, Nginx, Tags, ask_sandstorm, site};
use differential::requests::Request;
use fastrand::Rng;

const REQUESTS: usize = 3_000;
/// The usual seed. With it, each explanation is needed.
const SEED: u64 = 1;

/// A property in which two responses differ, and its values with nginx and with Sandstorm.
type Difference = (&'static str, String, String);

/// Returns the differences between nginx's and Sandstorm's response.
fn differences(nginx: &Answered, sandstorm: &Answered) -> Vec<Difference> {
    let fields: &[_] = match sandstorm.status {
        _ if nginx.status != sandstorm.status => &["status"],
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
        .map(|name| (*name, value(nginx, name), value(sandstorm, name)));
    pairs
        .filter(|(_, nginx, sandstorm)| nginx != sandstorm)
        .collect()
}

/// Returns the line of the table that explains a difference.
fn explanation(request: &Request, (what, nginx, sandstorm): &Difference) -> Option<&'static str> {
    let is_one = |list: &str, value: &str| {
        list == "*" || list == value || list.split('/').any(|one| one == value)
    };
    explanations().find(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        is_one(cells[0], what)
            && is_one(cells[1], nginx)
            && is_one(cells[2], sandstorm)
            && request.is(cells[3])
    })
}

fn explanations() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("differential/explained.txt").lines();
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
    let seed = std::env::var("SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let mut rng = Rng::with_seed(seed);
    let folder = Folder::make(&mut rng);
    let Some(mut nginx) = Nginx::start(&folder) else {
        eprintln!("skipped: nginx is not installed (apt-get install nginx-light)");
        return;
    };
    let site = site(&folder);
    let their_tags = tags(&folder, |request, bytes| nginx.ask(request, bytes));
    let our_tags = tags(&folder, |request, bytes| {
        ask_sandstorm(&site, request, bytes)
    });
    let (mut faults, mut used, mut same) = (Vec::new(), BTreeSet::new(), 0);
    for _ in 0..REQUESTS {
        let request = Request::random(&folder, &mut rng);
        let bytes = request.bytes(&our_tags);
        let theirs = nginx.ask(&request, &request.bytes(&their_tags));
        let found = differences(&theirs, &ask_sandstorm(&site, &request, &bytes));
        same += usize::from(found.is_empty());
        for difference in found {
            match explanation(&request, &difference) {
                Some(line) => drop(used.insert(line)),
                None => faults.push(format!("{difference:.99?}\n{}", bytes.escape_ascii())),
            }
        }
    }
    let count = faults.len();
    faults.truncate(9);
    assert!(
        count == 0,
        "seed {seed}: {count} differences are not explained:\n{}",
        faults.join("\n")
    );
    println!("seed {seed}: {same} of {REQUESTS} responses are the same");
    assert!(
        same > REQUESTS / 2,
        "seed {seed}: only {same} responses are the same"
    );
    let unused: Vec<_> = explanations().filter(|line| !used.contains(line)).collect();
    assert!(
        seed != SEED || unused.is_empty(),
        "not needed: {}",
        unused.join("\n")
    );
}
