//! What one direction does to frames, read from JSON.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::Error as _;

/// The impairments of one direction, in the order in which a frame meets them:
/// the path MTU, a bottleneck with its queue, loss, delay, reordering,
/// duplication. The default is a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PathConfig {
    /// Largest IP packet that passes; 0: any.
    pub(crate) mtu: usize,
    /// Whether ICMP tells the sender of a larger one.
    pub(crate) icmp: bool,
    /// Bits of frames per second at the bottleneck; 0: unlimited.
    pub(crate) rate: u64,
    /// Frames in the bottleneck's queue, the one on the link included; 0: any
    /// number. More are dropped.
    pub(crate) queue: usize,
    /// One-way delay in microseconds, beside the time at the bottleneck.
    pub(crate) delay_us: u64,
    /// Probability that a data segment is lost.
    pub(crate) loss: f64,
    /// Each data segment whose number (from 1) is a multiple of this is lost;
    /// 0: none.
    pub(crate) every: u64,
    /// Loss in bursts, as a Markov chain of two states (Gilbert's model). This
    /// is the probability, for each data segment, that a burst begins with it.
    pub(crate) burst: f64,
    /// Mean length of a burst in segments, at least 1; 0 without bursts.
    pub(crate) burst_len: f64,
    /// Probability that a pure ACK is lost.
    pub(crate) ack_loss: f64,
    /// Probability that a data segment is held back, and overtaken.
    pub(crate) reorder: f64,
    /// For how long it is held back, in microseconds.
    pub(crate) hold_us: u64,
    /// Probability that a data segment arrives twice.
    pub(crate) duplicate: f64,
    /// Probability that a data segment is marked "congestion experienced" (RFC
    /// 3168, section 5), if its sender speaks ECN.
    pub(crate) mark: f64,
}

impl FromStr for PathConfig {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let config: Self = serde_json::from_str(text)?;
        let Self { loss, burst, .. } = config;
        let others = [
            config.ack_loss,
            config.reorder,
            config.duplicate,
            config.mark,
        ];
        let mut all = [loss, burst].into_iter().chain(others);
        match all.find(|value| !(0.0..=1.0).contains(value)) {
            None => Ok(config),
            Some(value) => Err(serde_json::Error::custom(format_args!(
                "{value} is no probability; give a number from 0 to 1"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_are_those_of_a_perfect_wire() {
        let config: PathConfig = r#"{"rate": 100, "loss": 0.01}"#.parse().unwrap();
        let expected = PathConfig {
            rate: 100,
            loss: 0.01,
            ..PathConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn errors_name_the_field_or_the_value() {
        for (text, names) in [
            (
                r#"{"lose": 1}"#,
                "unknown field `lose`, expected one of `mtu`",
            ),
            (r#"{"loss": 1.5}"#, "1.5 is no probability"),
            (r#"{"queue": -1}"#, "`-1`"),
        ] {
            let error = text.parse::<PathConfig>().unwrap_err().to_string();
            assert!(error.contains(names), "{text}: {error}");
        }
    }
}
