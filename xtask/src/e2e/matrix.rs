//! The scenarios: every way of running a server, and a sample of them in
//! which every pair of choices still meets.

use std::collections::BTreeSet;
use std::fmt;

/// What serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    Sandstorm {
        mode: &'static str,
    },
    Namestorm {
        mode: &'static str,
        hash: &'static str,
    },
}

/// What it serves on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Xdp(Xdp),
    Tap,
    Auto,
}

/// How `AF_XDP` is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Xdp {
    /// The stack's generic hook instead of the driver's.
    pub(crate) generic: bool,
    /// Queues, and workers.
    pub(crate) queues: u32,
    /// An address of the server's own, instead of the interface's.
    pub(crate) own: bool,
    /// The peer leaves checksums to its offload, and the server is told so.
    pub(crate) partial: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scenario {
    pub(crate) program: Program,
    pub(crate) device: Device,
    /// One frame in a hundred is lost, both ways.
    pub(crate) loss: bool,
}

impl Scenario {
    /// The choices that make up the scenario, each with the name of what was
    /// chosen from.
    fn choices(&self) -> Vec<(&'static str, &'static str)> {
        let mut choices = match self.program {
            Program::Sandstorm { mode } => vec![("program", "sandstorm"), ("sandstorm mode", mode)],
            Program::Namestorm { mode, hash } => {
                vec![
                    ("program", "namestorm"),
                    ("namestorm mode", mode),
                    ("hash", hash),
                ]
            }
        };
        match self.device {
            Device::Xdp(xdp) => choices.extend([
                (
                    "device",
                    if xdp.generic {
                        "xdp-generic"
                    } else {
                        "xdp-native"
                    },
                ),
                (
                    "queues",
                    if xdp.queues == 1 {
                        "1-queue"
                    } else {
                        "2-queues"
                    },
                ),
                ("address", if xdp.own { "own" } else { "shared" }),
                ("checksums", if xdp.partial { "partial" } else { "whole" }),
            ]),
            Device::Tap => choices.push(("device", "tap")),
            Device::Auto => choices.push(("device", "auto")),
        }
        choices.push(("loss", if self.loss { "1%-loss" } else { "no-loss" }));
        choices
    }

    /// What the scenario shows: every two of its choices together, and its
    /// mode, device and loss all three.
    fn combinations(&self) -> Vec<Vec<Choice>> {
        let choices = self.choices();
        let mut combinations = Vec::new();
        for (i, &one) in choices.iter().enumerate() {
            combinations.extend(choices[i + 1..].iter().map(|&other| vec![one, other]));
        }
        let is_main =
            |&(kind, _): &Choice| kind.ends_with("mode") || kind == "device" || kind == "loss";
        combinations.push(choices.into_iter().filter(is_main).collect());
        combinations
    }
}

type Choice = (&'static str, &'static str);

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.choices().into_iter().map(|(_, word)| word).collect();
        f.write_str(&words.join(" "))
    }
}

/// Every combination.
pub(crate) fn full() -> Vec<Scenario> {
    let mut programs = ["pre-copy", "memcopy"]
        .map(|mode| Program::Sandstorm { mode })
        .to_vec();
    for mode in ["pre-copy", "memcopy", "turnaround"] {
        programs.extend(["wire", "fqdn"].map(|hash| Program::Namestorm { mode, hash }));
    }
    let mut devices = vec![Device::Tap, Device::Auto];
    for bits in 0..16 {
        devices.push(Device::Xdp(Xdp {
            generic: bits & 1 != 0,
            queues: 1 + u32::from(bits & 2 != 0),
            own: bits & 4 != 0,
            partial: bits & 8 != 0,
        }));
    }
    let mut all = Vec::new();
    for program in programs {
        for &device in &devices {
            all.extend([false, true].map(|loss| Scenario {
                program,
                device,
                loss,
            }));
        }
    }
    all
}

/// A small sample of [`full`] in which every pair of choices that meets there
/// meets as well, and every mode is on every kind of device with and without
/// loss: each next scenario is the one that shows the most that is new, the
/// first of them where several do. Always the same.
pub(crate) fn sample() -> Vec<Scenario> {
    let mut left = full();
    let mut wanted: BTreeSet<_> = left.iter().flat_map(Scenario::combinations).collect();
    let mut sample = Vec::new();
    while !wanted.is_empty() {
        let news = |s: &Scenario| {
            let combinations = s.combinations();
            combinations
                .iter()
                .filter(|one| wanted.contains(*one))
                .count()
        };
        let Some(best) = (0..left.len()).rev().max_by_key(|&i| news(&left[i])) else {
            break;
        };
        let chosen = left.swap_remove(best);
        for combination in chosen.combinations() {
            wanted.remove(&combination);
        }
        sample.push(chosen);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_that_counts_is_in_the_sample() {
        let combinations = |scenarios: &[Scenario]| -> BTreeSet<Vec<Choice>> {
            scenarios.iter().flat_map(Scenario::combinations).collect()
        };
        let (full, sample) = (full(), sample());
        assert_eq!(combinations(&full), combinations(&sample));
        assert_eq!(full.len(), (2 + 6) * 18 * 2);
        assert!(
            sample.len() <= 44,
            "{} scenarios take too long",
            sample.len()
        );
    }
}
