//! The impairments of one direction, read from JSON.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::Error as _;

/// Impairments of one direction. They apply to a frame in this order: path MTU, bottleneck with its
/// queue, loss, delay, reordering, ECN mark, duplication. The default has no impairments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PathConfig {
    /// Maximum length in bytes of an IP packet that passes; 0 means no limit.
    pub(crate) mtu: usize,
    /// Whether the sender of a TCP segment that exceeds `mtu` gets an ICMP error.
    pub(crate) icmp: bool,
    /// Rate of the bottleneck in bits per second; 0 means no limit. The rate includes link headers.
    pub(crate) rate: u64,
    /// Maximum number of frames in the bottleneck's queue, including the frame in transmission; 0
    /// means no limit. Further frames are dropped. Without a `rate`, no queue forms.
    pub(crate) queue: usize,
    /// One-way delay in µs, in addition to the time in the bottleneck.
    pub(crate) delay_us: u64,
    /// Probability that a data segment is lost, apart from `every` and `burst`.
    pub(crate) loss: f64,
    /// If this value is n, every n-th data segment of a connection is lost. 0 means none.
    pub(crate) every: u64,
    /// Probability that a data segment outside a burst begins a burst of losses. The bursts follow
    /// Gilbert's model, a Markov chain with two states.
    pub(crate) burst: f64,
    /// Mean length of a burst in segments. If it is at most 1, each burst is one segment.
    pub(crate) burst_len: f64,
    /// Probability that a pure ACK is lost.
    pub(crate) ack_loss: f64,
    /// Probability that a data segment is held back, so that later segments can overtake it.
    pub(crate) reorder: f64,
    /// Time in µs for which a segment is held back.
    pub(crate) hold_us: u64,
    /// Probability that a data segment is duplicated.
    pub(crate) duplicate: f64,
    /// Probability that a data segment is marked "congestion experienced" (RFC 3168, section 5), if
    /// its sender uses ECN.
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
                "{value} is not a probability; give a number from 0 to 1"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_mean_no_impairment() {
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
            (r#"{"loss": 1.5}"#, "1.5 is not a probability"),
            (r#"{"queue": -1}"#, "`-1`"),
        ] {
            let error = text.parse::<PathConfig>().unwrap_err().to_string();
            assert!(error.contains(names), "{text}: {error}");
        }
    }
}
