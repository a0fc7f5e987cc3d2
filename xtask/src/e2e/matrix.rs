//! Scenarios: every way to run a server, and a sample that still has every pair of choices.

use std::collections::BTreeSet;
use std::fmt;

/// Programs: the name, Sandstorm's mode, Namestorm's mode, and Namestorm's hash.
const PROGRAMS: [[&str; 4]; 8] = [
    ["sandstorm", "pre-copy", "", ""],
    ["sandstorm", "memcopy", "", ""],
    ["namestorm", "", "pre-copy", "wire"],
    ["namestorm", "", "pre-copy", "fqdn"],
    ["namestorm", "", "memcopy", "wire"],
    ["namestorm", "", "memcopy", "fqdn"],
    ["namestorm", "", "turnaround", "wire"],
    ["namestorm", "", "turnaround", "fqdn"],
];
/// Choices with `AF_XDP`: the hook, the number of queues and workers, whether the server shares the
/// kernel's address, and whether the client sends partial checksums.
const XDP: [[&str; 2]; 4] = [
    ["xdp-native", "xdp-generic"],
    ["1-queue", "2-queues"],
    ["shared", "own"],
    ["whole", "partial"],
];
/// Choices of packet loss, which applies to both directions.
const LOSS: [&str; 2] = ["no-loss", "1%-loss"];

/// Index of the device in a [`Scenario`]. With `AF_XDP`, the choices of [`XDP`] begin here.
const DEVICE: usize = 4;
/// Number of kinds of choice in a [`Scenario`].
const KINDS: usize = 9;
/// Indices of the modes, the device and the loss. The sample has every combination of these.
const MAIN: [usize; 4] = [1, 2, DEVICE, KINDS - 1];

/// The choice of each kind, or an empty string for a kind that does not apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scenario([&'static str; KINDS]);

/// Index of a kind in a [`Scenario`], and the choice.
type Choice = (usize, &'static str);

impl Scenario {
    /// The basic scenario of each server, with one worker on one queue.
    pub(crate) const WEB: Self = Self::plain(PROGRAMS[1]);
    pub(crate) const DNS: Self = Self::plain(PROGRAMS[6]);

    const fn plain(program: [&'static str; 4]) -> Self {
        Self::new(
            program,
            [XDP[0][0], XDP[1][0], XDP[2][0], XDP[3][0]],
            LOSS[0],
        )
    }

    const fn new(p: [&'static str; 4], d: [&'static str; 4], loss: &'static str) -> Self {
        Self([p[0], p[1], p[2], p[3], d[0], d[1], d[2], d[3], loss])
    }

    /// Returns the same scenario on the device `tap` or `auto`, which has no further choices.
    pub(crate) fn on(self, device: &'static str) -> Self {
        let [a, b, c, d, .., loss] = self.0;
        Self::new([a, b, c, d], [device, "", "", ""], loss)
    }

    /// Returns the same scenario with another choice for `AF_XDP`.
    pub(crate) fn with(mut self, choice: &'static str) -> Self {
        let kind = XDP.iter().position(|choices| choices.contains(&choice));
        self.0[DEVICE + kind.expect("the choice is in the table")] = choice;
        self
    }

    pub(crate) fn has(&self, choice: &str) -> bool {
        self.0.contains(&choice)
    }

    pub(crate) fn is_dns(&self) -> bool {
        self.has("namestorm")
    }

    pub(crate) fn is_xdp(&self) -> bool {
        !self.has("tap") && !self.has("auto")
    }

    pub(crate) fn is_lossy(&self) -> bool {
        self.has(LOSS[1])
    }

    pub(crate) fn program(&self) -> &'static str {
        self.0[0]
    }

    /// Returns the options that select the mode and, for Namestorm, the hash.
    pub(crate) fn options(&self) -> Vec<&'static str> {
        let [_, web, dns, hash, ..] = self.0;
        if self.is_dns() {
            return vec!["--mode", dns, "--hash", hash];
        }
        vec!["--mode", web]
    }

    fn choices(&self) -> impl Iterator<Item = Choice> {
        let choices = self.0.into_iter().enumerate();
        choices.filter(|(_, choice)| !choice.is_empty())
    }

    /// Returns the combinations that the scenario covers: each pair of its choices, and its mode,
    /// device and loss together.
    fn combinations(&self) -> Vec<Vec<Choice>> {
        let choices: Vec<Choice> = self.choices().collect();
        let mut combinations = Vec::new();
        for (i, &one) in choices.iter().enumerate() {
            combinations.extend(choices[i + 1..].iter().map(|&other| vec![one, other]));
        }
        let main = choices.into_iter().filter(|(kind, _)| MAIN.contains(kind));
        combinations.push(main.collect());
        combinations
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.choices().map(|(_, choice)| choice).collect();
        f.write_str(&words.join(" "))
    }
}

/// Returns all scenarios.
pub(crate) fn full() -> Vec<Scenario> {
    let mut devices = vec![["tap", "", "", ""], ["auto", "", "", ""]];
    for bits in 0..16 {
        let choice = |kind: usize| XDP[kind][bits >> kind & 1];
        devices.push([choice(0), choice(1), choice(2), choice(3)]);
    }
    let mut all = Vec::new();
    for program in PROGRAMS {
        for &device in &devices {
            all.extend(LOSS.map(|loss| Scenario::new(program, device, loss)));
        }
    }
    all
}

/// Selects a small sample of [`full`] that covers the same combinations. Each step adds the first
/// scenario that covers the most new combinations, so the sample is always the same.
pub(crate) fn sample() -> Vec<Scenario> {
    let mut left = full();
    let mut uncovered: BTreeSet<_> = left.iter().flat_map(Scenario::combinations).collect();
    let mut sample = Vec::new();
    while !uncovered.is_empty() {
        let new = |s: &Scenario| {
            s.combinations()
                .iter()
                .filter(|c| uncovered.contains(*c))
                .count()
        };
        let Some(best) = (0..left.len()).rev().max_by_key(|&i| new(&left[i])) else {
            break;
        };
        let chosen = left.swap_remove(best);
        uncovered.retain(|combination| !chosen.combinations().contains(combination));
        sample.push(chosen);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_covers_every_combination_and_is_small() {
        let covered = |scenarios: &[Scenario]| -> BTreeSet<Vec<Choice>> {
            scenarios.iter().flat_map(Scenario::combinations).collect()
        };
        let (full, sample) = (full(), sample());
        assert_eq!(covered(&full), covered(&sample));
        assert_eq!(full.len(), (2 + 6) * 18 * 2);
        assert!(sample.len() <= 44, "{} scenarios", sample.len());
    }
}
