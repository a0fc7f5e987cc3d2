//! Lets validators check what Namestorm answers from signed zones. Unbound asks Namestorm, and delv and
//! drill check chosen replies. The zones are random, and other programs have signed them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;

use super::Env;
use super::checks::Checks;
use super::dns::{Message, TYPE};
use super::matrix::Scenario;
use super::peers::servers::{ADDRESS, UNBOUND, is_installed};
use super::peers::{UNSIGNED, Zones, ask, make_zones, start};
use super::rig::Rig;
use crate::bench::peers::fill;
use crate::interrupt;
use crate::netns::Namespace;
use crate::shell;

/// Number of questions about each zone.
const QUESTIONS: usize = 150;
const SEED: u64 = 1;
const SEEDS: u64 = 10;
/// Types that a resolver answers by itself, or without the proofs of the zone.
const UNFIT: [&str; 4] = ["ANY", "RRSIG", "NSEC3", "NSEC"];
/// Programs that check one reply, with their Debian packages, their arguments, and what they print about
/// a valid reply.
const PROGRAMS: [[&str; 4]; 3] = [
    [
        "delv",
        "bind9-dnsutils",
        "-a {folder}/delv +root={apex} @{server} {name} {type}",
        "fully validated",
    ],
    [
        "drill",
        "ldnsutils",
        "-t -S -k {folder}/key @{server} {name} {type}",
        "Chase successful",
    ],
    [
        "kdig",
        "knot-dnsutils",
        "+dnssec +norecurse @{server} {name} {type}",
        "status: {rcode};",
    ],
];

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    validate(env, SEED, checks)
}

/// Validates the replies from many zones.
pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    (SEED..=SEEDS).try_for_each(|seed| validate(env, seed, checks))
}

/// A name and a type.
type Question = (String, &'static str);

/// A question, and Namestorm's reply.
struct Asked {
    apex: String,
    question: Question,
    reply: Message,
}

fn validate(env: &Env, seed: u64, checks: &mut Checks) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let scratch = shell::scratch_in(&env.folder, "validators")?;
    let Zones { zones, files } = make_zones(scratch.path(), &mut rng)?;
    let rig = Rig::build(&Scenario::DNS.on("tap"))?;
    let (server, place) = start(&rig, env, &files)?;
    let lab = Lab {
        seed,
        folder: scratch.path().to_owned(),
        home: rig.client(),
        server: place.v4.to_string(),
    };
    let mut asked = Vec::new();
    for zone in &zones {
        let questions: Vec<_> = (0..QUESTIONS).map(|_| zone.question(&mut rng)).collect();
        let options = format!("@{} +norecurse +nocookie +tcp +dnssec", lab.server);
        let replies = lab.ask(&options, &questions)?;
        let pairs = questions.into_iter().zip(replies);
        asked.extend(pairs.map(|(question, reply)| Asked {
            apex: zone.apex.clone(),
            question,
            reply,
        }));
    }
    asked.retain(Asked::is_whole);
    if UNBOUND.is_installed() {
        lab.resolve(&files, &asked, checks)?;
    }
    for program in PROGRAMS {
        if is_installed(program[0], program[0], program[1]) {
            interrupt::check()?;
            let name = format!("{}, seed {seed}", program[0]);
            checks.check(name, || lab.check_some(program, &asked));
        }
    }
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(())
}

/// Where the validators run, and the address of Namestorm.
struct Lab<'a> {
    seed: u64,
    folder: PathBuf,
    home: &'a Namespace,
    server: String,
}

impl Lab<'_> {
    fn ask(&self, options: &str, questions: &[Question]) -> Result<Vec<Message>> {
        let lines = questions
            .iter()
            .map(|(name, rtype)| format!("{name} {rtype}"));
        let lines: Vec<_> = lines.collect();
        ask(
            self.home,
            &self.folder,
            options,
            lines.iter().map(String::as_str),
        )
    }

    /// Returns the key of a zone that others sign: its flags, protocol, algorithm and text. It is empty
    /// for an unsigned zone. With a wrong key, no reply would be valid.
    fn key(&self, apex: &str) -> Result<String> {
        let command = format!("dig @{} +short +tcp DNSKEY {apex}", self.server);
        let keys = self.home.run(&command)?;
        let key = keys.lines().find(|line| line.starts_with("257 "));
        Ok(key.unwrap_or_default().to_owned())
    }

    /// Asks Unbound the questions.
    fn resolve(
        &self,
        files: &[(String, String)],
        asked: &[Asked],
        checks: &mut Checks,
    ) -> Result<()> {
        let run = self.folder.join("unbound");
        shell::make_folder(&run)?;
        let signed = files.iter().filter(|(apex, _)| apex != UNSIGNED);
        let anchor = |(apex, _): &(String, String)| {
            let key = self.key(apex)?;
            anyhow::Ok(format!("{apex}. IN DNSKEY {key}\n"))
        };
        let anchors = signed.map(anchor).collect::<Result<String>>()?;
        shell::write(&run.join("anchors"), anchors)?;
        let stubs = files
            .iter()
            .map(|(apex, _)| (apex.clone(), self.server.clone()));
        let unbound = UNBOUND.start(self.home, &run, &stubs.collect::<Vec<_>>())?;
        let options = format!("@{ADDRESS} +dnssec +timeout=5 +tries=2");
        let questions: Vec<_> = asked.iter().map(|asked| asked.question.clone()).collect();
        let replies = self.ask(&options, &questions)?;
        let secure = replies.iter().filter(|reply| reply.has("ad")).count();
        let name = format!("Unbound, seed {}", self.seed);
        println!("{name}: {} replies, {secure} of them secure", replies.len());
        for (asked, reply) in asked.iter().zip(&replies) {
            let (name, rtype) = &asked.question;
            checks.check(
                format_args!("Unbound, seed {}: {name} {rtype}", self.seed),
                || {
                    let valid = asked.expect_valid(reply);
                    valid.with_context(|| shell::end_of(&unbound.output(), 10))
                },
            );
        }
        Ok(())
    }

    /// Runs a program once for each kind of reply from each zone.
    fn check_some(
        &self,
        [program, _, arguments, expected]: [&str; 4],
        asked: &[Asked],
    ) -> Result<()> {
        let mut chosen = BTreeMap::new();
        for asked in asked.iter().filter(|asked| asked.apex != UNSIGNED) {
            // drill knows no CNAME records without signatures, and no names without records.
            let reply = &asked.reply;
            let is_hard = reply.has_type(0, "DNAME") || reply.has_type(1, "SOA");
            if program != "drill" || !is_hard {
                chosen.entry(asked.kind()).or_insert(asked);
            }
        }
        for asked in chosen.values() {
            let (apex, (name, rtype)) = (&asked.apex, &asked.question);
            let key = self.key(apex)?;
            let words: Vec<_> = key.splitn(4, ' ').collect();
            let text = words.last().copied().unwrap_or_default();
            let delv = format!("trust-anchors {{ {apex}. static-key 257 3 13 \"{text}\"; }};");
            shell::write(&self.folder.join("delv"), delv)?;
            shell::write(
                &self.folder.join("key"),
                format!("{apex}. IN DNSKEY {key}\n"),
            )?;
            let words = [
                ("folder", self.folder.display().to_string()),
                ("server", self.server.clone()),
                ("apex", apex.clone()),
                ("name", name.clone()),
                ("type", (*rtype).to_owned()),
                ("rcode", asked.reply.rcode.clone()),
            ];
            let arguments = fill(arguments, &words);
            let output = shell::output(self.home.command(program).args(arguments.split(' ')))?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            // With opt-out, the proof of a wildcard's reply is insecure.
            let is_insecure = apex.contains("optout") && text.contains("; unsigned answer");
            ensure!(
                is_insecure || text.contains(&fill(expected, &words)),
                "{program} {arguments}:\n{text}"
            );
        }
        println!("{program}, seed {}: {} replies", self.seed, chosen.len());
        Ok(())
    }
}

impl Asked {
    /// Returns true if a resolver can find and prove the answer without other servers than Namestorm.
    fn is_whole(&self) -> bool {
        let (reply, (name, rtype)) = (&self.reply, &self.question);
        let [answer, authority, _] = &reply.sections;
        let aliases = answer
            .iter()
            .filter(|record| record.contains(" CNAME "))
            .count();
        let has_target = |record: &String| {
            let rtype = record.split(' ').nth(TYPE).unwrap_or_default();
            !["CNAME", "DNAME", "RRSIG"].contains(&rtype)
        };
        let goes_on = !reply.has_type(1, "SOA") && !answer.iter().any(has_target);
        // Unbound refuses these replies, also if they come from NSD.
        let is_below =
            reply.has_type(0, "DNAME") && (aliases > 1 || ["CNAME", "DNAME"].contains(rtype));
        let is_of_parent = *rtype == "DS"
            && (aliases > 0 || name.trim_end_matches('.').eq_ignore_ascii_case(&self.apex));
        // Unbound takes a name for a wildcard if it begins with an asterisk. It knows no proof for a
        // wildcard that has only names below it.
        let is_odd = name.starts_with('*')
            || reply.has_type(1, "NSEC") && authority.iter().any(|record| record.contains(".*."));
        let is_unfit = UNFIT.contains(rtype) || reply.has_type(1, "NS");
        !(goes_on || is_below || is_of_parent || is_odd || is_unfit)
    }

    /// Returns the zone, the response code, and whether there are records and aliases.
    fn kind(&self) -> (&str, &str, bool, bool) {
        let (reply, is_negative) = (&self.reply, self.reply.has_type(1, "SOA"));
        (
            &self.apex,
            &reply.rcode,
            is_negative,
            reply.has_type(0, "CNAME"),
        )
    }

    /// Returns an error if the reply of a validating resolver is not what a valid zone has.
    fn expect_valid(&self, reply: &Message) -> Result<()> {
        // In a zone with opt-out, a negative reply may be insecure.
        let may_be_insecure = self.apex == UNSIGNED || self.apex.contains("optout");
        let is_secure = may_be_insecure || reply.has("ad");
        let is_valid = is_secure && reply.rcode == self.reply.rcode;
        ensure!(
            is_valid,
            "{}\nNamestorm's reply:\n{}",
            reply.text,
            self.reply.text
        );
        Ok(())
    }
}
