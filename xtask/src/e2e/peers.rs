//! Compares Namestorm with NSD, Knot and BIND. Each has the same random zones, which other programs have
//! signed. Each difference must be in the table `peers/explained.txt`.

pub(super) mod servers;
mod signers;
mod zone;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;

use super::Env;
use super::checks::{Checks, row};
use super::dns::{Message, TYPE, replies, set};
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use crate::interrupt;
use crate::netns::Namespace;
use crate::server::Server;
use crate::shell;
use servers::{ADDRESS, PEERS};
use signers::Denial;
use zone::Zone;

/// The explained differences. The comment at the top of the file describes its columns.
const EXPLAINED: &str = include_str!("peers/explained.txt");
/// Number of questions about each zone. Each is asked over UDP and over TCP.
const QUESTIONS: usize = 150;
const SEED: u64 = 1;
/// Number of seeds of the long test. With them, each explanation is needed.
const SEEDS: u64 = 20;
/// The name of the zone that is not signed.
pub(super) const UNSIGNED: &str = "plain.test";
/// Options of dig for all questions.
const DIG: &str = "+norecurse +nocookie +noadflag +tries=2 +timeout=3 +ignore";
/// How the questions are asked: the options for dig, and words for the table.
const WAYS: [(&str, &str); 6] = [
    ("+noedns", "plain"),
    ("+edns=0 +bufsize=512", "EDNS"),
    ("+edns=0 +bufsize=1232", "EDNS"),
    ("+dnssec +bufsize=600", "DO"),
    ("+dnssec +bufsize=4096", "DO"),
    ("+dnssec +bufsize=1232 +cdflag", "DO CD"),
];

/// Maximum number of aliases in a reply that are no loop.
const MAX_STEPS: usize = 10;

/// Maximum length of replies of Namestorm, compared with those of a peer that have the same records. The
/// servers find different names for compression pointers.
const MAX_LEN_PERCENT: usize = 101;

/// A property in which two replies differ, and its values with the peer and with Namestorm.
type Difference = (&'static str, String, String);

/// Signed zones and their files.
pub(super) struct Zones {
    pub(super) zones: Vec<Zone>,
    /// The name and the file of each zone.
    pub(super) files: Vec<(String, String)>,
}

/// Makes a random zone for each signer that is installed and each kind of proof, and an unsigned one.
pub(super) fn make_zones(folder: &Path, rng: &mut Rng) -> Result<Zones> {
    let (mut zones, mut files) = (Vec::new(), Vec::new());
    let signers = signers::installed();
    let mut kinds = vec![(UNSIGNED.to_owned(), None)];
    for (name, sign) in signers {
        let kind = |(denial, how)| (format!("{name}-{denial}.test"), Some((sign, how)));
        kinds.extend(Denial::ALL.map(kind));
    }
    for (apex, signed) in kinds {
        let (zone, home) = (Zone::random(&apex, rng), folder.join(&apex));
        shell::make_folder(&home)?;
        shell::write(&home.join("zone"), zone.text())?;
        let file = match signed {
            Some((sign, how)) => sign(&home, &apex, how).with_context(|| zone.text())?,
            None => home.join("zone"),
        };
        files.push((apex, file.display().to_string()));
        zones.push(zone);
    }
    Ok(Zones { zones, files })
}

/// Starts Namestorm with these zones.
pub(super) fn start(rig: &Rig, env: &Env, files: &[(String, String)]) -> Result<(Server, Place)> {
    let zones = files
        .iter()
        .flat_map(|(apex, file)| ["--zone".to_owned(), format!("{apex}={file}")]);
    // All questions come from one address.
    let options = zones.chain(["--rate-limit", "0"].map(str::to_owned));
    let options = options.chain(device_options(&Scenario::DNS.on("tap")));
    rig.serve(env, "namestorm", options)
}

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    compare(env, seed.unwrap_or(SEED), checks).map(drop)
}

/// Compares the servers with many seeds.
pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    let mut used = BTreeSet::new();
    for seed in SEED..=SEEDS {
        used.extend(compare(env, seed, checks)?);
    }
    checks.check("each explanation is needed", || {
        let unused: Vec<_> = explanations().filter(|line| !used.contains(line)).collect();
        ensure!(unused.is_empty(), "{}", unused.join("\n"));
        Ok(())
    });
    Ok(())
}

/// Compares the servers with one seed. Returns the explanations that were needed.
fn compare(env: &Env, seed: u64, checks: &mut Checks) -> Result<BTreeSet<&'static str>> {
    let mut rng = Rng::with_seed(seed);
    let folder = shell::scratch_in(&env.folder, "peers")?;
    let Zones { zones, files } = make_zones(folder.path(), &mut rng)?;
    let rig = Rig::build(&Scenario::DNS.on("tap"))?;
    let (server, place) = start(&rig, env, &files)?;
    let questions = Questions::random(folder.path(), &zones, &mut rng);
    let ours = questions.ask(rig.client(), &place.v4.to_string())?;
    checks.check(format_args!("seed {seed}: dig finds no fault"), || {
        ours.iter().try_for_each(expect_well_formed)
    });
    let mut used = BTreeSet::new();
    for peer in PEERS.iter().filter(|peer| peer.is_installed()) {
        interrupt::check()?;
        let run = folder.path().join(peer.name);
        shell::make_folder(&run)?;
        let _other = peer.start(rig.client(), &run, &files)?;
        let theirs = questions.ask(rig.client(), ADDRESS)?;
        let name = format!("{}, seed {seed}", peer.name);
        checks.check(&name, || {
            let Same { replies, lens } = questions.compare(peer.name, &theirs, &ours, &mut used)?;
            let of = format!("of {} replies are the same", ours.len());
            println!(
                "{name}: {replies} {of}, with {} B, and here {} B",
                lens[0], lens[1]
            );
            ensure!(
                replies > ours.len() / 2,
                "only {replies} replies are the same"
            );
            ensure!(100 * lens[1] <= MAX_LEN_PERCENT * lens[0], "{lens:?} B");
            Ok(())
        });
    }
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(used)
}

/// The replies that are the same from two servers.
#[derive(Default)]
struct Same {
    replies: usize,
    /// The length of those that are not truncated, in bytes: from the peer, and from Namestorm.
    lens: [usize; 2],
}

/// Questions for dig, each with words about it for the table.
struct Questions {
    folder: PathBuf,
    lines: Vec<(String, &'static str)>,
}

impl Questions {
    fn random(folder: &Path, zones: &[Zone], rng: &mut Rng) -> Self {
        let mut lines = Vec::new();
        for zone in zones {
            for _ in 0..QUESTIONS {
                let (name, rtype) = zone.question(rng);
                let (options, words) = WAYS[rng.usize(..WAYS.len())];
                lines.push((format!("{name} {rtype} {options}"), words));
            }
        }
        let folder = folder.to_owned();
        Self { folder, lines }
    }

    /// Asks a server all questions over UDP, and then over TCP.
    fn ask(&self, home: &Namespace, address: &str) -> Result<Vec<Message>> {
        let mut all = Vec::new();
        for transport in ["+notcp", "+tcp"] {
            let options = format!("@{address} {transport} {DIG}");
            let lines = self.lines.iter().map(|(line, _)| line.as_str());
            all.extend(ask(home, &self.folder, &options, lines)?);
        }
        Ok(all)
    }

    /// Returns the replies that are the same. Fails if a difference is not explained. Adds the
    /// explanations that were needed to `used`.
    fn compare(
        &self,
        peer: &str,
        theirs: &[Message],
        ours: &[Message],
        used: &mut BTreeSet<&'static str>,
    ) -> Result<Same> {
        let (mut faults, mut same) = (Vec::new(), Same::default());
        let lines = self.lines.iter().cycle();
        for (((line, words), theirs), ours) in lines.zip(theirs).zip(ours) {
            let found = differences(theirs, ours);
            if found.is_empty() {
                same.replies += 1;
                for (sum, reply) in same.lens.iter_mut().zip([theirs, ours]) {
                    let len = reply.len().context("dig says no length")?;
                    *sum += if ours.has("tc") { 0 } else { len };
                }
            }
            for difference in found {
                match explanation(peer, &tags(line, words, ours), &difference) {
                    Some(line) => drop(used.insert(line)),
                    None => faults.push((difference, line, theirs, ours)),
                }
            }
        }
        let count = faults.len();
        match faults.first() {
            None => Ok(same),
            Some((difference, line, theirs, ours)) => bail!(
                "{count} differences are not explained. The first is {difference:?}: {line}\n{}\n{}",
                theirs.text,
                ours.text
            ),
        }
    }
}

/// Asks a server with dig. Each line is a question with its options. Returns a reply to each.
pub(super) fn ask<'a>(
    home: &Namespace,
    folder: &Path,
    options: &str,
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Message>> {
    let (file, lines) = (folder.join("questions"), lines.collect::<Vec<_>>());
    shell::write(&file, lines.join("\n"))?;
    let mut dig = home.command("dig");
    // The exit status is that of the last question.
    let output = shell::output(dig.args(options.split(' ')).arg("-f").arg(file))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let replies = replies(&text);
    let (answered, all, end) = (replies.len(), lines.len(), shell::end_of(&text, 20));
    ensure!(
        answered == all,
        "{answered} of {all} questions are answered:\n{end}"
    );
    Ok(replies)
}

/// Returns an error if dig complains about a reply, or if the reply has a record twice.
fn expect_well_formed(reply: &Message) -> Result<()> {
    let count = |records: &Vec<String>| records.len() == set(records).len();
    let is_right =
        !reply.text.to_lowercase().contains("warning") && reply.sections.iter().all(count);
    ensure!(is_right, "{}", reply.text);
    Ok(())
}

/// Returns the differences between two replies. Truncated replies may have any records.
fn differences(theirs: &Message, ours: &Message) -> Vec<Difference> {
    let flags = |reply: &Message| reply.flags.split(' ').map(str::to_owned).collect();
    let (their_flags, our_flags) = (flags(theirs), flags(ours));
    let mut pairs = vec![(
        "flags",
        only(&their_flags, &our_flags, 0),
        only(&our_flags, &their_flags, 0),
    )];
    if !theirs.has("tc") && !ours.has("tc") {
        for (at, what) in ["answer", "authority", "additional"]
            .into_iter()
            .enumerate()
        {
            let (theirs, ours) = (set(&theirs.sections[at]), set(&ours.sections[at]));
            pairs.push((what, only(&theirs, &ours, TYPE), only(&ours, &theirs, TYPE)));
        }
    }
    pairs.retain(|(_, theirs, ours)| !(theirs.is_empty() && ours.is_empty()));
    for (what, theirs, ours) in [
        ("rcode", &*theirs.rcode, &*ours.rcode),
        ("edns", theirs.edns(), ours.edns()),
    ] {
        pairs.extend((theirs != ours).then(|| (what, theirs.to_owned(), ours.to_owned())));
    }
    pairs
}

/// Returns the words at this index of the lines that only the first set has.
fn only(lines: &BTreeSet<String>, others: &BTreeSet<String>, word: usize) -> String {
    let words = lines
        .difference(others)
        .filter_map(|line| line.split(' ').nth(word));
    let words: BTreeSet<_> = words.map(str::to_lowercase).collect();
    words.into_iter().collect::<Vec<_>>().join(" ")
}

/// Returns words about a question and its reply.
fn tags<'a>(line: &'a str, words: &'a str, ours: &Message) -> BTreeSet<&'a str> {
    let mut tags: BTreeSet<_> = words.split(' ').collect();
    tags.extend(line.split(' ').nth(1));
    let transport = if ours.came_by_tcp() { "TCP" } else { "UDP" };
    let found = [
        (transport, true),
        ("alias", ours.has_type(0, "CNAME")),
        ("below DNAME", ours.has_type(0, "DNAME")),
        ("negative", ours.has_type(1, "SOA")),
        ("referral", !ours.has("aa")),
        ("truncated", ours.has("tc")),
        ("opt-out", line.to_lowercase().contains("-optout.")),
        ("wildcard", line.starts_with("*.")),
        ("loop", is_loop(&ours.sections[0])),
    ];
    tags.extend(
        found
            .into_iter()
            .filter(|(_, is_so)| *is_so)
            .map(|(tag, _)| tag),
    );
    tags
}

/// Returns true if these records have aliases that never end.
fn is_loop(answer: &[String]) -> bool {
    let words = answer.iter().map(|record| record.to_lowercase());
    let words: Vec<Vec<_>> = words
        .map(|record| record.split(' ').map(str::to_owned).collect())
        .collect();
    let aliases = || words.iter().filter(|words| words[TYPE] == "cname");
    let count = aliases().count();
    count > MAX_STEPS
        || count > 0 && aliases().all(|alias| aliases().any(|other| other[0] == alias[TYPE + 1]))
}

/// Returns the line of the table that explains a difference.
fn explanation(
    peer: &str,
    tags: &BTreeSet<&str>,
    (what, theirs, ours): &Difference,
) -> Option<&'static str> {
    let is_one =
        |list: &str, value: &str| list == "*" || list.split(',').any(|one| one.trim() == value);
    explanations().find(|line| {
        let [of, peers, others, own, when, _] = row(line);
        let mut words = when
            .split('+')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let is_about = is_one(of, what) && is_one(peers, peer);
        is_about
            && is_one(others, theirs)
            && is_one(own, ours)
            && words.all(|word| tags.contains(word))
    })
}

fn explanations() -> impl Iterator<Item = &'static str> {
    EXPLAINED.lines().filter(|line| !line.starts_with('#'))
}
