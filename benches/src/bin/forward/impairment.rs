//! Random impairments of segments. Two servers can be compared, because the n-th data segment of
//! the m-th connection gets the same random numbers with either server.

use std::time::Duration;

use nmio::Instant;

use crate::Direction;
use crate::config::PathConfig;

/// If a sender sends no data segment for this time, its burst of losses ends. Real bursts also end
/// with time. Without this rule, a sender that sends one segment per timeout would stay in one
/// burst for minutes.
const BURST_PAUSE: Duration = Duration::from_millis(100);

/// Impairments of one frame after the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impairment {
    pub(crate) lost: bool,
    /// The frame is held back for [`hold_us`](PathConfig::hold_us).
    pub(crate) held: bool,
    pub(crate) duplicated: bool,
    /// The frame gets an ECN mark, if its sender uses ECN.
    pub(crate) marked: bool,
}

/// Draws the random impairments of one connection in one direction.
///
/// Data segments and pure ACKs have separate random sequences, so a sender's ACKs do not change
/// which data segments are lost. Each data segment takes the same number of random numbers, so a
/// change of one probability does not change the other impairments.
#[derive(Debug)]
pub(crate) struct Draws {
    data: fastrand::Rng,
    acks: fastrand::Rng,
    /// Number of data segments so far.
    number: u64,
    in_burst: bool,
    /// Time of the last data segment.
    last: Instant,
}

impl Draws {
    /// Creates the random sequences for one direction of a connection. They depend only on `seed`,
    /// `direction` and `connection`, the connection's number.
    pub(crate) fn new(seed: u64, direction: Direction, connection: usize) -> Self {
        let sequence = |kind: u64| {
            let place = (connection as u64) << 2 | (direction as u64) << 1 | kind;
            fastrand::Rng::with_seed(mixed(seed ^ mixed(place)))
        };
        Self {
            data: sequence(0),
            acks: sequence(1),
            number: 0,
            in_burst: false,
            last: Instant::ZERO,
        }
    }

    /// Draws the impairments of the next data segment, which arrives at `now`.
    pub(crate) fn next_data(&mut self, config: &PathConfig, now: Instant) -> Impairment {
        self.number += 1;
        self.in_burst &= now.since(self.last) < BURST_PAUSE;
        self.last = now;
        let [loss, burst, held, duplicated, marked] = [(); 5].map(|()| self.data.f64());
        self.in_burst = if self.in_burst {
            burst * config.burst_len >= 1.0
        } else {
            burst < config.burst
        };
        let every = config.every != 0 && self.number.is_multiple_of(config.every);
        Impairment {
            lost: loss < config.loss || every || self.in_burst,
            held: held < config.reorder,
            duplicated: duplicated < config.duplicate,
            marked: marked < config.mark,
        }
    }

    /// Draws the impairments of the next pure ACK.
    pub(crate) fn next_ack(&mut self, config: &PathConfig) -> Impairment {
        Impairment {
            lost: self.acks.f64() < config.ack_loss,
            ..Impairment::default()
        }
    }
}

/// Spreads a number over all 64 bits, so that similar numbers give unrelated seeds (one step of
/// `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Direction::{Down, Up};
    use super::*;

    fn draws() -> Draws {
        Draws::new(4, Down, 0)
    }

    fn losses(mut draws: Draws, json: &str, n: usize) -> Vec<bool> {
        let config = json.parse().unwrap();
        let one = |_| draws.next_data(&config, Instant::ZERO).lost;
        (0..n).map(one).collect()
    }

    #[test]
    fn the_same_seed_direction_and_connection_give_the_same_losses() {
        let of = |seed, way, number| losses(Draws::new(seed, way, number), r#"{"loss": 0.3}"#, 64);
        let first = of(1, Down, 0);
        assert_eq!(first, of(1, Down, 0));
        for other in [of(2, Down, 0), of(1, Up, 0), of(1, Down, 1)] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn acks_and_other_impairments_do_not_change_the_losses() {
        let json = r#"{"loss": 0.3, "duplicate": 0.5, "reorder": 0.5, "ack_loss": 0.5}"#;
        let (config, mut with_acks) = (json.parse().unwrap(), draws());
        let plain = losses(draws(), r#"{"loss": 0.3}"#, 200);
        assert!(plain.into_iter().all(|lost| {
            with_acks.next_ack(&config);
            with_acks.next_data(&config, Instant::ZERO).lost == lost
        }));
    }

    #[test]
    fn only_every_nth_segment_is_lost() {
        let lost = losses(draws(), r#"{"every": 5}"#, 20);
        let numbers: Vec<usize> = (1..=20).filter(|n| lost[n - 1]).collect();
        assert_eq!(numbers, [5, 10, 15, 20]);
    }

    #[test]
    fn impairments_are_as_frequent_as_configured() {
        let json = r#"{"loss": 0.03, "ack_loss": 0.1, "reorder": 0.2, "duplicate": 0.4}"#;
        let (config, mut draws, mut counts) = (json.parse().unwrap(), draws(), [0u32; 4]);
        for _ in 0..100_000 {
            let data = draws.next_data(&config, Instant::ZERO);
            let ack = draws.next_ack(&config);
            let met = [data.lost, ack.lost, data.held, data.duplicated];
            for (count, met) in counts.iter_mut().zip(met) {
                *count += u32::from(met);
            }
        }
        for (count, expected) in counts.into_iter().zip([0.03, 0.1, 0.2, 0.4]) {
            let rate = f64::from(count) / 1e5;
            assert!(
                (rate - expected).abs() < 0.01,
                "{rate} instead of {expected}"
            );
        }
    }

    #[test]
    fn bursts_have_their_mean_length_and_share() {
        let lost = losses(draws(), r#"{"burst": 0.01, "burst_len": 4}"#, 200_000);
        let total = lost.iter().filter(|&&lost| lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let (length, share) = (total / bursts, total / lost.len() as f64);
        assert!((3.7..4.3).contains(&length), "bursts of {length}");
        // At each segment, a burst begins with probability 0.01 or ends with probability 1/4. The
        // expected share of lost segments is 0.01 / (0.01 + 1/4).
        assert!((0.034..0.043).contains(&share), "{share} are lost");
    }

    #[test]
    fn a_pause_ends_a_burst() {
        let config = r#"{"burst": 0.01, "burst_len": 1e9}"#.parse().unwrap();
        let (mut draws, mut now) = (draws(), 0);
        while !draws.next_data(&config, Instant::from_millis(now)).lost {
            now += 1;
        }
        let mut lost = |later| {
            draws
                .next_data(&config, Instant::from_millis(now + later))
                .lost
        };
        assert!(lost(99) && !lost(200));
    }
}
