//! Kinds of queries, and what a right reply to each has.

use clap::ValueEnum;
use fastrand::Rng;

pub(super) const A: u16 = 1;
const NS: u16 = 2;
const MX: u16 = 15;
const TXT: u16 = 16;
pub(super) const AAAA: u16 = 28;
const DS: u16 = 43;
const HTTPS: u16 = 65;
pub(super) const NOERROR: u8 = 0;
const NXDOMAIN: u8 = 3;

/// What the queries of a run ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Addresses of names, without EDNS.
    Plain,
    /// Addresses of names, with signatures.
    Signed,
    /// Names that do not exist, with proofs.
    Missing,
    /// Names that a wildcard matches, with proofs.
    Wildcard,
    /// Names below a chain of two DNAMEs, with signatures.
    Dname,
    /// What a root server is asked: TLDs, and many names that do not exist.
    Root,
    /// What a server of a TLD is asked: delegations.
    Tld,
    /// What a hoster is asked: addresses and other records in many zones.
    Hoster,
}

/// What a right reply has: its response code, and the least number of records in the answer and in
/// the authority section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) rcode: u8,
    pub(super) answers: u16,
    pub(super) authority: u16,
}

/// A query, before it is a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Labels below `bench.test`, with dots.
    pub(super) labels: String,
    pub(super) rtype: u16,
    /// Whether the query has an OPT record, and if so, its DO bit.
    pub(super) wants_signatures: Option<bool>,
    pub(super) expected: Expected,
}

/// A part of a mix: how many of 100 queries, their type, the labels before the name, and whether the
/// name exists. The last field has the least number of answers and of authority records in a reply.
type Part = (u32, u16, &'static str, bool, [u16; 2]);

/// A mix of queries, and how many of 100 want signatures. The others have an OPT record too.
struct Mix {
    parts: &'static [Part],
    wanting: u32,
}

/// Half of the queries to the root were random labels of browsers (Verisign, 2020). The rest of the
/// shares is our estimate.
const ROOT: Mix = Mix {
    parts: &[
        (50, A, "", false, [0, 1]),
        (28, A, "www.site.", true, [0, 2]),
        (12, AAAA, "www.site.", true, [0, 2]),
        (6, NS, "", true, [0, 2]),
        (4, DS, "", true, [1, 0]),
    ],
    wanting: 80,
};

/// Some 60 % of the queries for .nl came from validating resolvers (SIDN, 2022). Some 14 % of them
/// asked for nothing that exists (Moura et al., IMC 2020). The shares of types are our estimate.
const TLD: Mix = Mix {
    parts: &[
        (14, A, "", false, [0, 1]),
        (44, A, "www.", true, [0, 2]),
        (18, AAAA, "www.", true, [0, 2]),
        (10, NS, "", true, [0, 2]),
        // Half of the delegations have a DS record.
        (10, DS, "", true, [0, 0]),
        (4, MX, "", true, [0, 2]),
    ],
    wanting: 60,
};

/// A hoster saw 3 to 4 % of names that do not exist (NS1, 2023). Resolvers ask for A in 55 to 60 %
/// and for AAAA in 20 to 25 % of their queries. The rest of the shares is our estimate.
const HOSTER: Mix = Mix {
    parts: &[
        (4, A, "missing.", false, [0, 1]),
        (40, A, "www.", true, [1, 0]),
        (16, A, "", true, [1, 0]),
        (22, AAAA, "www.", true, [1, 0]),
        (10, HTTPS, "www.", true, [0, 1]),
        (4, MX, "", true, [1, 0]),
        (4, TXT, "", true, [1, 0]),
    ],
    wanting: 60,
};

impl Query {
    /// Returns a query for the address of a name, without EDNS.
    pub(super) fn address(labels: String) -> Self {
        Self {
            labels,
            rtype: A,
            wants_signatures: None,
            expected: Expected {
                rcode: NOERROR,
                answers: 1,
                authority: 0,
            },
        }
    }
}

impl Kind {
    fn mix(self) -> Option<&'static Mix> {
        match self {
            Self::Root => Some(&ROOT),
            Self::Tld => Some(&TLD),
            Self::Hoster => Some(&HOSTER),
            _ => None,
        }
    }

    /// Returns whether the names are drawn by a Zipf law. Otherwise all names are equally likely.
    pub(super) fn is_mix(self) -> bool {
        self.mix().is_some()
    }

    /// Returns a query for the name with a number.
    pub(super) fn query(self, number: u32, rng: &mut Rng) -> Query {
        let (labels, rcode, [answers, authority]) = match self {
            Self::Plain => return Query::address(format!("host{number}")),
            Self::Signed => (format!("host{number}"), NOERROR, [2, 0]),
            // These names lie between the existing ones.
            Self::Missing => (format!("host{number}-"), NXDOMAIN, [0, 4]),
            Self::Wildcard => (format!("host{number}.wild"), NOERROR, [2, 2]),
            Self::Dname => (format!("host{number}.old"), NOERROR, [8, 0]),
            Self::Root | Self::Tld | Self::Hoster => return self.mixed(number, rng),
        };
        Query {
            labels,
            rtype: A,
            wants_signatures: Some(true),
            expected: Expected {
                rcode,
                answers,
                authority,
            },
        }
    }

    fn mixed(self, number: u32, rng: &mut Rng) -> Query {
        let mix = self.mix().unwrap_or(&HOSTER);
        let mut drawn = rng.u32(..100);
        let part = mix.parts.iter().find(|part| {
            let is_it = drawn < part.0;
            drawn = drawn.saturating_sub(part.0);
            is_it
        });
        let &(_, rtype, before, exists, [answers, authority]) = part.unwrap_or(&mix.parts[0]);
        // In a hoster's zones, the label before the name does not exist. Elsewhere the name itself.
        let after = if exists || self == Self::Hoster {
            ""
        } else {
            "-"
        };
        Query {
            labels: format!("{before}host{number}{after}"),
            rtype,
            wants_signatures: Some(rng.u32(..100) < mix.wanting),
            expected: Expected {
                rcode: if exists { NOERROR } else { NXDOMAIN },
                answers,
                authority,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_mix_are_drawn() {
        for kind in [Kind::Root, Kind::Tld, Kind::Hoster] {
            let mix = kind.mix().unwrap();
            assert_eq!(mix.parts.iter().map(|part| part.0).sum::<u32>(), 100);
            let mut rng = Rng::with_seed(1);
            let queries: Vec<_> = (0..10_000).map(|n| kind.query(n, &mut rng)).collect();
            let missing = queries.iter().filter(|it| it.expected.rcode == NXDOMAIN);
            let wanting = queries
                .iter()
                .filter(|it| it.wants_signatures == Some(true));
            let near = |count: usize, share: u32| count.abs_diff(100 * share as usize) < 250;
            assert!(near(missing.count(), mix.parts[0].0));
            assert!(near(wanting.count(), mix.wanting));
        }
    }
}
