//! The configuration of faults, and its text form.

use std::fmt;
use std::str::FromStr;

use crate::WrongWords;

/// Default number of frames that overtake a held-back frame.
const DEFAULT_HOLD: u32 = 3;

/// The probability of each fault, from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// Probability that a frame is lost.
    pub drop: f64,
    /// Probability that a frame is duplicated.
    pub duplicate: f64,
    /// Probability that a frame is held back until [`FaultConfig::hold`] later frames have
    /// overtaken it. The frame is released earlier if no more frames arrive (when receiving), or at
    /// the next flush (when sending).
    pub reorder: f64,
    /// Probability that one bit of a frame, including its link header, is flipped.
    pub corrupt: f64,
}

/// Faults in both directions.
///
/// The text form is a list of `word=value` items, separated by commas. `drop`, `duplicate`,
/// `reorder` and `corrupt` set a rate in both directions. With the prefix `rx-` or `tx-`, they set
/// the rate only for received or sent frames. `hold` (3 by default) and `seed` (0 by default) are
/// whole numbers. Later items override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// Rates of faults in received frames.
    pub received: FaultRates,
    /// Rates of faults in sent frames.
    pub sent: FaultRates,
    /// Number of later frames that overtake a held-back frame, at least 1.
    pub hold: u32,
    /// Seed of the random generators. With the same configuration, the same seed causes the same
    /// faults in the same sequence of frames.
    pub seed: u64,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            received: FaultRates::default(),
            sent: FaultRates::default(),
            hold: DEFAULT_HOLD,
            seed: 0,
        }
    }
}

/// Why a text could not be parsed as a [`FaultConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// This word is unknown.
    #[error(
        "unknown fault `{0}`; choose from drop, duplicate, reorder and corrupt \
         (with the prefix rx- or tx- for one direction), hold and seed"
    )]
    UnknownWord(String),
    /// This word is not followed by `=` and a value.
    #[error("fault `{0}` has no value; write {0}=VALUE")]
    NoValue(String),
    /// A rate is not a number from 0 to 1.
    #[error("fault `{word}` is `{value}`; give a probability from 0 to 1, such as {word}=0.01")]
    NoProbability {
        /// The word whose value is wrong.
        word: String,
        /// The given value.
        value: String,
    },
    /// The value of `hold` or `seed` is not a whole number, or is out of range.
    #[error("fault `{word}` is `{value}`; give a whole number from {least}")]
    NoNumber {
        /// The word whose value is wrong.
        word: String,
        /// The given value.
        value: String,
        /// The smallest allowed value.
        least: u32,
    },
}

impl FaultRates {
    /// Returns the rate that `word` names.
    fn named(&mut self, word: &str) -> Option<&mut f64> {
        match word {
            "drop" => Some(&mut self.drop),
            "duplicate" => Some(&mut self.duplicate),
            "reorder" => Some(&mut self.reorder),
            "corrupt" => Some(&mut self.corrupt),
            _ => None,
        }
    }

    fn words(&self) -> [(&'static str, f64); 4] {
        [
            ("drop", self.drop),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }
}

impl FaultConfig {
    /// Returns the rates that `word` names: one if it has a prefix, two if not, none if it is
    /// unknown.
    fn rates(&mut self, word: &str) -> impl Iterator<Item = &mut f64> {
        let (received, sent) = match word.split_once('-') {
            Some(("rx", rate)) => (self.received.named(rate), None),
            Some(("tx", rate)) => (None, self.sent.named(rate)),
            _ => (self.received.named(word), self.sent.named(word)),
        };
        received.into_iter().chain(sent)
    }

    /// Reads one item.
    fn read(&mut self, item: &str) -> Result<(), FaultError> {
        let (word, value) = item.split_once('=').unwrap_or((item, ""));
        let (word, value) = (word.trim(), value.trim());
        let number = |least| FaultError::NoNumber {
            word: word.to_owned(),
            value: value.to_owned(),
            least,
        };
        let known = matches!(word, "seed" | "hold") || self.rates(word).next().is_some();
        if !known {
            return Err(FaultError::UnknownWord(word.to_owned()));
        }
        if value.is_empty() {
            return Err(FaultError::NoValue(word.to_owned()));
        }
        match word {
            "seed" => self.seed = value.parse().map_err(|_| number(0))?,
            "hold" => {
                let hold = value.parse().ok().filter(|hold| *hold > 0);
                self.hold = hold.ok_or_else(|| number(1))?;
            }
            _ => {
                let rate = value.parse::<f64>().ok();
                let rate = rate.filter(|rate| (0.0..=1.0).contains(rate));
                let rate = rate.ok_or_else(|| FaultError::NoProbability {
                    word: word.to_owned(),
                    value: value.to_owned(),
                })?;
                self.rates(word).for_each(|named| *named = rate);
            }
        }
        Ok(())
    }
}

impl FromStr for FaultConfig {
    type Err = WrongWords<FaultError>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut config, mut wrong) = (Self::default(), WrongWords::default());
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            wrong.take(text, item, config.read(item));
        }
        wrong.finish(Some(config))
    }
}

impl fmt::Display for FaultConfig {
    /// Writes the configuration as text. The seed is always included, so that a reader can repeat
    /// the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((word, received), (_, sent)) in
            self.received.words().into_iter().zip(self.sent.words())
        {
            // If both directions have the same rate, write it once, without a prefix. Compare the
            // bits, because Clippy warns about `==` on floating-point numbers.
            if received.to_bits() == sent.to_bits() {
                if received != 0.0 {
                    write!(f, "{word}={received},")?;
                }
                continue;
            }
            if received != 0.0 {
                write!(f, "rx-{word}={received},")?;
            }
            if sent != 0.0 {
                write!(f, "tx-{word}={sent},")?;
            }
        }
        if self.hold != DEFAULT_HOLD {
            write!(f, "hold={},", self.hold)?;
        }
        write!(f, "seed={}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<FaultConfig>().unwrap_err().to_string()
    }

    #[test]
    fn fault_options_set_one_direction_or_both() {
        let config: FaultConfig = "drop=0.5, tx-drop=0.25 ,rx-reorder=1,hold=7,seed=9"
            .parse()
            .unwrap();
        let expected = FaultConfig {
            received: FaultRates {
                drop: 0.5,
                reorder: 1.0,
                ..FaultRates::default()
            },
            sent: FaultRates {
                drop: 0.25,
                ..FaultRates::default()
            },
            hold: 7,
            seed: 9,
        };
        assert_eq!(config, expected);
        assert_eq!("".parse(), Ok(FaultConfig::default()));
    }

    #[test]
    fn an_error_quotes_the_fault_option_and_shows_a_valid_value() {
        assert!(error("drop=0.1,lose=1").starts_with("unknown fault `lose`; choose from drop,"));
        assert!(error("xx-drop=1").starts_with("unknown fault `xx-drop`"));
        assert_eq!(error("seed"), "fault `seed` has no value; write seed=VALUE");
        for value in ["1.5", "-0.1", "NaN", "many"] {
            assert_eq!(
                error(&format!("corrupt={value}")),
                format!(
                    "fault `corrupt` is `{value}`; \
                     give a probability from 0 to 1, such as corrupt=0.01"
                )
            );
        }
        assert_eq!(
            error("hold=0"),
            "fault `hold` is `0`; give a whole number from 1"
        );
        assert_eq!(
            error("seed=x"),
            "fault `seed` is `x`; give a whole number from 0"
        );
    }

    #[test]
    fn all_wrong_fault_options_are_named() {
        let wrong = "drop=2, lose=1 ,seed=1,hold"
            .parse::<FaultConfig>()
            .unwrap_err();
        let places: Vec<_> = wrong.iter().map(|(at, _)| at).collect();
        assert_eq!(places, [0, 8, 23]);
        let lines = wrong.to_string();
        let starts = [
            "fault `drop` is `2`",
            "unknown fault `lose`",
            "fault `hold` has no value",
        ];
        for (line, start) in lines.lines().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    fn rates() -> impl Strategy<Value = FaultRates> {
        let rate = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
        (rate(), rate(), rate(), rate()).prop_map(|(drop, duplicate, reorder, corrupt)| {
            FaultRates {
                drop,
                duplicate,
                reorder,
                corrupt,
            }
        })
    }

    proptest! {
        #[test]
        fn displayed_configurations_parse_back(
            received in rates(), sent in rates(), hold in 1u32.., seed: u64,
        ) {
            let config = FaultConfig { received, sent, hold, seed };
            prop_assert_eq!(config.to_string().parse(), Ok(config));
        }

        #[test]
        fn arbitrary_fault_options_do_not_panic(text in ".*") {
            let _ = text.parse::<FaultConfig>();
        }
    }
}
