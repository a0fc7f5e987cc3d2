//! What one direction does to frames, and the words that say so.

use std::str::FromStr;
use std::time::Duration;

/// Frames that wait before the bottleneck, when no word says otherwise.
const DEFAULT_QUEUE: usize = 1_000;

/// Bursts of losses as a Markov chain of two states (Gilbert's model): in the
/// good one nothing is lost, in the bad one everything is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Burst {
    /// Probability, for each frame in the good state, that the bad one begins
    /// with it.
    pub enter: f64,
    /// Probability, for each frame in the bad state, that the good one is
    /// back with it: bursts have 1/`leave` frames in the mean.
    pub leave: f64,
}

/// What a direction does, in this order: a link that is too narrow for large
/// packets, a bottleneck with its queue, loss, delay, reordering,
/// duplication.
///
/// As text, a list of `word=value` with commas between: see [`WORDS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathConfig {
    /// Bits of frames per second of the bottleneck; 0: unlimited.
    pub rate: u64,
    /// Frames that may wait before it, the one on it included; more are lost.
    pub queue_frames: usize,
    /// Bytes of frames that may wait; 0: no bound but that of frames.
    pub queue_bytes: usize,
    /// One-way delay, beside the time at the rate.
    pub delay: Duration,
    /// Probability that a segment with payload is lost.
    pub loss: f64,
    /// Each segment with payload whose number (from 1) is a multiple of this
    /// is lost; 0: none.
    pub every: u64,
    /// Losses in bursts.
    pub burst: Burst,
    /// Probability that a plain ACK is lost.
    pub ack_loss: f64,
    /// Probability that a segment with payload is held up, and overtaken.
    pub reorder: f64,
    /// For how long it is held up.
    pub hold: Duration,
    /// Probability that a segment with payload arrives twice.
    pub duplicate: f64,
    /// Probability that a segment with payload is marked "congestion
    /// experienced" (RFC 3168, section 5), if its sender speaks ECN.
    pub mark: f64,
    /// Largest IP packet that passes; 0: any.
    pub mtu: usize,
    /// Whether the sender of a larger one is told by ICMP.
    pub answer: bool,
}

impl Default for PathConfig {
    /// A perfect wire.
    fn default() -> Self {
        Self {
            rate: 0,
            queue_frames: DEFAULT_QUEUE,
            queue_bytes: 0,
            delay: Duration::ZERO,
            loss: 0.0,
            every: 0,
            burst: Burst::default(),
            ack_loss: 0.0,
            reorder: 0.0,
            hold: Duration::ZERO,
            duplicate: 0.0,
            mark: 0.0,
            mtu: 0,
            answer: false,
        }
    }
}

/// The words of a [`PathConfig`], for a usage text.
pub const WORDS: &str = "\
rate=BITS[K|M|G] queue=FRAMES|BYTESB delay=TIME(us|ms|s) loss=P every=N burst=ENTER:LEAVE \
ack-loss=P reorder=P hold=TIME duplicate=P mark=P mtu=BYTES answer=yes|no";

/// Why a text is no [`PathConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A word that is none of ours, or has no value.
    #[error("`{0}` is no word of a path; the words are: {WORDS}")]
    UnknownWord(String),
    /// A value that cannot be read.
    #[error("`{word}={value}`: give {wanted}")]
    NoValue {
        /// Whose value.
        word: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
}

impl FromStr for PathConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let unknown = || ConfigError::UnknownWord(part.to_owned());
            let (word, value) = part.split_once('=').ok_or_else(unknown)?;
            let no_value = |wanted| ConfigError::NoValue {
                word: word.to_owned(),
                value: value.to_owned(),
                wanted,
            };
            let probability = || chance(value).ok_or_else(|| no_value("a probability from 0 to 1"));
            let time = || duration(value).ok_or_else(|| no_value("a time such as 25ms"));
            match word {
                "rate" => {
                    config.rate = rate(value)
                        .ok_or_else(|| no_value("bits per second, such as 100M; 0: unlimited"))?;
                }
                "queue" => {
                    let (digits, in_bytes) = match value.strip_suffix('B') {
                        Some(digits) => (digits, true),
                        None => (value, false),
                    };
                    let bound = digits.parse().ok().filter(|&bound| bound > 0);
                    let bound = bound.ok_or_else(|| {
                        no_value("frames, such as 64, or bytes, such as 65536B; at least 1")
                    })?;
                    if in_bytes {
                        config.queue_bytes = bound;
                        config.queue_frames = usize::MAX;
                    } else {
                        config.queue_bytes = 0;
                        config.queue_frames = bound;
                    }
                }
                "delay" => config.delay = time()?,
                "hold" => config.hold = time()?,
                "loss" => config.loss = probability()?,
                "ack-loss" => config.ack_loss = probability()?,
                "reorder" => config.reorder = probability()?,
                "duplicate" => config.duplicate = probability()?,
                "mark" => config.mark = probability()?,
                "burst" => {
                    let pair = value.split_once(':');
                    let pair =
                        pair.and_then(|(enter, leave)| Some((chance(enter)?, chance(leave)?)));
                    let (enter, leave) =
                        pair.filter(|&(_, leave)| leave > 0.0).ok_or_else(|| {
                            no_value(
                                "the probabilities to enter and to leave a burst, such as 0.01:0.3",
                            )
                        })?;
                    config.burst = Burst { enter, leave };
                }
                "every" => {
                    config.every = value
                        .parse()
                        .map_err(|_| no_value("a number of segments"))?;
                }
                "mtu" => config.mtu = value.parse().map_err(|_| no_value("bytes"))?,
                "answer" => {
                    config.answer = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(no_value("yes or no")),
                    };
                }
                _ => return Err(unknown()),
            }
        }
        Ok(config)
    }
}

fn chance(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|chance| (0.0..=1.0).contains(chance))
}

fn rate(text: &str) -> Option<u64> {
    let units = [('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let unit = units
        .iter()
        .find_map(|&(letter, unit)| Some((text.strip_suffix(letter)?, unit)));
    let (digits, unit) = unit.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn duration(text: &str) -> Option<Duration> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (digits, unit) = units
        .iter()
        .find_map(|&(letters, unit)| Some((text.strip_suffix(letters)?, unit)))?;
    let seconds = digits.parse::<f64>().ok()? * unit;
    // A path is no longer than from here to the moon.
    (0.0..=60.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_a_path_does() {
        let text = "rate=100M, queue=64, delay=25ms,loss=0.01,every=50,burst=0.002:0.25,\
                    ack-loss=0.1,reorder=0.05,hold=500us,duplicate=1,mark=0.2,mtu=1400,answer=yes";
        let config: PathConfig = text.parse().unwrap();
        let expected = PathConfig {
            rate: 100_000_000,
            queue_frames: 64,
            queue_bytes: 0,
            delay: Duration::from_millis(25),
            loss: 0.01,
            every: 50,
            burst: Burst {
                enter: 0.002,
                leave: 0.25,
            },
            ack_loss: 0.1,
            reorder: 0.05,
            hold: Duration::from_micros(500),
            duplicate: 1.0,
            mark: 0.2,
            mtu: 1_400,
            answer: true,
        };
        assert_eq!(config, expected);
        assert_eq!("".parse(), Ok(PathConfig::default()));
        let bytes: PathConfig = "queue=9000B".parse().unwrap();
        assert_eq!((bytes.queue_bytes, bytes.queue_frames), (9_000, usize::MAX));
    }

    #[test]
    fn a_wrong_word_or_value_is_named() {
        for (text, says) in [
            ("lose=1", "`lose=1` is no word"),
            ("loss", "`loss` is no word"),
            ("loss=1.5", "`loss=1.5`: give a probability"),
            ("loss=NaN", "`loss=NaN`: give a probability"),
            ("queue=0", "at least 1"),
            ("delay=5", "give a time"),
            ("delay=-5ms", "give a time"),
            ("burst=0.1:0", "to leave a burst"),
            ("rate=99999999999999999999", "bits per second"),
            ("rate=99999999999999999G", "bits per second"),
            ("answer=maybe", "yes or no"),
        ] {
            let error = text.parse::<PathConfig>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
