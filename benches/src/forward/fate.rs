//! What each frame meets, drawn so that another sender's frames meet the same.

use std::time::Duration;

use nmio::Instant;

use super::Direction;
use super::config::PathConfig;

/// A burst of losses is over when nothing was sent for so long: bursts are of
/// time as well, and a sender that is left with one segment for each timeout
/// does not meet the same burst for minutes.
const BURST_PAUSE: Duration = Duration::from_millis(100);

/// What one frame meets behind the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It is lost.
    pub lost: bool,
    /// It is held up.
    pub held: bool,
    /// It arrives twice.
    pub doubled: bool,
    /// It is marked, if its sender speaks ECN.
    pub marked: bool,
}

/// The draws of one connection in one direction.
///
/// Segments with payload and plain ACKs have a sequence of draws each, so
/// that one sender's habits in the one do not move the other. Every segment
/// draws the same number of times: a change of one probability leaves the
/// rest of the fates alone.
#[derive(Clone, Debug)]
pub struct Draws {
    payload: fastrand::Rng,
    acks: fastrand::Rng,
    /// Segments with payload so far.
    number: u64,
    in_burst: bool,
    /// When the last of them came.
    last: Instant,
}

impl Draws {
    /// The draws of the `connection`-th connection, counted from 0.
    pub fn new(seed: u64, direction: Direction, connection: u64) -> Self {
        let stream = |kind: u64| {
            let place = connection << 2 | (direction.index() as u64) << 1 | kind;
            fastrand::Rng::with_seed(mixed(seed ^ mixed(place)))
        };
        Self {
            payload: stream(0),
            acks: stream(1),
            number: 0,
            in_burst: false,
            last: Instant::ZERO,
        }
    }

    /// The fate of the next segment with payload, which comes at `now`.
    pub fn next_payload(&mut self, config: &PathConfig, now: Instant) -> Fate {
        self.number += 1;
        self.in_burst &= now.since(self.last) < BURST_PAUSE;
        self.last = now;
        let [loss, burst, held, doubled, marked] = [(); 5].map(|()| self.payload.f64());
        self.in_burst = if self.in_burst {
            burst >= config.burst.leave
        } else {
            burst < config.burst.enter
        };
        let every = config.every != 0 && self.number.is_multiple_of(config.every);
        Fate {
            lost: loss < config.loss || every || self.in_burst,
            held: held < config.reorder,
            doubled: doubled < config.duplicate,
            marked: marked < config.mark,
        }
    }

    /// The fate of the next plain ACK.
    pub fn next_ack(&mut self, config: &PathConfig) -> Fate {
        Fate {
            lost: self.acks.f64() < config.ack_loss,
            ..Fate::default()
        }
    }
}

/// Spreads a number over all 64 bits, so that neighbours have nothing in
/// common (the finalizer of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::config::Burst;

    fn losses(draws: &mut Draws, config: &PathConfig, n: usize) -> Vec<bool> {
        (0..n)
            .map(|_| draws.next_payload(config, Instant::ZERO).lost)
            .collect()
    }

    #[test]
    fn the_same_seed_and_place_give_the_same_fates() {
        let config = PathConfig {
            loss: 0.3,
            ..PathConfig::default()
        };
        let of = |seed, direction, connection| {
            let mut draws = Draws::new(seed, direction, connection);
            losses(&mut draws, &config, 64)
        };
        let first = of(1, Direction::Down, 0);
        assert_eq!(first, of(1, Direction::Down, 0));
        assert_ne!(first, of(2, Direction::Down, 0));
        assert_ne!(first, of(1, Direction::Up, 0));
        assert_ne!(first, of(1, Direction::Down, 1));
    }

    #[test]
    fn acks_and_other_probabilities_do_not_move_the_losses() {
        let config = PathConfig {
            loss: 0.3,
            ..PathConfig::default()
        };
        let other = PathConfig {
            duplicate: 0.5,
            reorder: 0.5,
            ack_loss: 0.5,
            ..config
        };
        let plain = losses(&mut Draws::new(9, Direction::Down, 3), &config, 200);
        let mut draws = Draws::new(9, Direction::Down, 3);
        let with_acks: Vec<bool> = (0..200)
            .map(|_| {
                draws.next_ack(&other);
                draws.next_payload(&other, Instant::ZERO).lost
            })
            .collect();
        assert_eq!(plain, with_acks);
    }

    #[test]
    fn every_nth_is_lost_and_no_other() {
        let config = PathConfig {
            every: 5,
            ..PathConfig::default()
        };
        let lost = losses(&mut Draws::new(1, Direction::Up, 0), &config, 20);
        let numbers: Vec<usize> = (1..=20).filter(|n| lost[n - 1]).collect();
        assert_eq!(numbers, [5, 10, 15, 20]);
    }

    #[test]
    fn rates_come_true() {
        let n = 100_000;
        let config = PathConfig {
            loss: 0.03,
            ack_loss: 0.1,
            reorder: 0.2,
            duplicate: 0.4,
            ..PathConfig::default()
        };
        let mut draws = Draws::new(4, Direction::Down, 0);
        let mut counts = [0u32; 4];
        for _ in 0..n {
            let fate = draws.next_payload(&config, Instant::ZERO);
            let ack = draws.next_ack(&config);
            for (count, met) in
                counts
                    .iter_mut()
                    .zip([fate.lost, ack.lost, fate.held, fate.doubled])
            {
                *count += u32::from(met);
            }
        }
        for (count, wanted) in counts.into_iter().zip([0.03, 0.1, 0.2, 0.4]) {
            let rate = f64::from(count) / f64::from(n);
            assert!((rate - wanted).abs() < 0.01, "{rate} instead of {wanted}");
        }
    }

    #[test]
    fn bursts_have_their_mean_length_and_their_share() {
        let config = PathConfig {
            burst: Burst {
                enter: 0.01,
                leave: 0.25,
            },
            ..PathConfig::default()
        };
        let lost = losses(&mut Draws::new(4, Direction::Down, 0), &config, 200_000);
        let total = lost.iter().filter(|&&lost| lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let (length, share) = (total / bursts, total / lost.len() as f64);
        assert!((3.7..4.3).contains(&length), "bursts of {length}");
        // enter / (enter + leave)
        assert!((0.034..0.043).contains(&share), "{share} are lost");
    }

    #[test]
    fn a_burst_does_not_outlast_a_silence() {
        let config = PathConfig {
            burst: Burst {
                enter: 0.01,
                leave: 1e-9,
            },
            ..PathConfig::default()
        };
        let mut draws = Draws::new(4, Direction::Down, 0);
        let mut now = Instant::from_millis(0);
        while !draws.next_payload(&config, now).lost {
            now = now + Duration::from_millis(1);
        }
        assert!(
            draws
                .next_payload(&config, now + Duration::from_millis(99))
                .lost
        );
        assert!(
            !draws
                .next_payload(&config, now + Duration::from_millis(200))
                .lost
        );
    }
}
