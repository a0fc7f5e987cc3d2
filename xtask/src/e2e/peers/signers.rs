//! Programs that sign zones.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::servers::is_installed;
use crate::shell;

/// How a zone proves what does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    Nsec,
    Nsec3,
    OptOut,
}

impl Denial {
    pub(crate) const ALL: [(&str, Self); 3] = [
        ("nsec", Self::Nsec),
        ("nsec3", Self::Nsec3),
        ("optout", Self::OptOut),
    ];

    /// Returns one of the words that stand for the three ways.
    fn pick(self, words: [&str; 3]) -> &str {
        words[self as usize]
    }
}

/// A program that signs the file `zone` in a folder. Returns the path of the signed zone.
type Sign = fn(folder: &Path, apex: &str, denial: Denial) -> Result<PathBuf>;

/// The name of each signer, the program, its Debian package, and how it signs.
pub(crate) const SIGNERS: [(&str, &str, &str, Sign); 3] = [
    ("ldns", "ldns-signzone", "ldnsutils", ldns),
    ("bind", "dnssec-signzone", "bind9-utils", bind),
    ("knot", "kzonesign", "knot-dnssecutils", knot),
];

/// Returns the signers that are installed, and says which are skipped.
pub(crate) fn installed() -> Vec<(&'static str, Sign)> {
    let mut all = SIGNERS.to_vec();
    all.retain(|(_, program, package, _)| is_installed("signer", program, package));
    all.into_iter()
        .map(|(name, .., sign)| (name, sign))
        .collect()
}

/// Runs a program in a folder and returns its output.
fn run(folder: &Path, line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    shell::capture_text(command.args(words).current_dir(folder))
}

fn ldns(folder: &Path, apex: &str, denial: Denial) -> Result<PathBuf> {
    let keygen = "ldns-keygen -a ECDSAP256SHA256";
    let ksk = run(folder, &format!("{keygen} -k {apex}"))?;
    let zsk = run(folder, &format!("{keygen} {apex}"))?;
    let options = denial.pick(["", "-n", "-n -p -t 1 -s ab"]);
    run(
        folder,
        &format!("ldns-signzone {options} -o {apex} -f signed zone {ksk} {zsk}"),
    )?;
    Ok(folder.join("signed"))
}

fn bind(folder: &Path, apex: &str, denial: Denial) -> Result<PathBuf> {
    let keygen = "dnssec-keygen -q -a ECDSAP256SHA256";
    run(folder, &format!("{keygen} -f KSK {apex}"))?;
    run(folder, &format!("{keygen} {apex}"))?;
    let options = denial.pick(["", "-3 - -H 0", "-3 abcd -H 2 -A"]);
    run(
        folder,
        &format!("dnssec-signzone -q -S {options} -o {apex} -f signed zone"),
    )?;
    Ok(folder.join("signed"))
}

fn knot(folder: &Path, apex: &str, denial: Denial) -> Result<PathBuf> {
    let (nsec3, opt_out) = (
        denial.pick(["off", "on", "on"]),
        denial.pick(["off", "off", "on"]),
    );
    let path = folder.display();
    let config = format!(
        "database:\n    storage: {path}\n\
         policy:\n  - id: p\n    algorithm: ECDSAP256SHA256\n    nsec3: {nsec3}\n    \
         nsec3-opt-out: {opt_out}\n    nsec3-iterations: 0\n    nsec3-salt-length: 0\n\
         zone:\n  - domain: {apex}\n    file: {path}/zone\n    dnssec-signing: on\n    \
         dnssec-policy: p\n    journal-content: none\n"
    );
    shell::write(&folder.join("config"), config)?;
    let signed = folder.join("signed");
    shell::make_folder(&signed)?;
    // With -r, it makes the keys that it lacks.
    run(folder, &format!("kzonesign -c config -r -o signed {apex}"))?;
    Ok(signed.join("zone"))
}
