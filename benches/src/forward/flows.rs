//! The connections that pass, each with a number, its draws and its ledgers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use nmio::Instant;

use super::Direction;
use super::fate::Draws;
use super::ledger::{Ledger, Sent};
use super::segment::{Segment, flags};

/// Connections of one run, at most; segments of others pass unharmed, and
/// the report says that there were some.
pub const MAX_FLOWS: usize = 65_536;

/// One end's part of a connection.
#[derive(Clone, Debug)]
pub struct Half {
    /// What becomes of its segments.
    pub draws: Draws,
    /// What it has sent.
    pub ledger: Ledger,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Counted from 0 by the first frame.
    pub number: u64,
    halves: [Half; 2],
}

impl Flow {
    /// The end that sends in this direction.
    pub fn half(&mut self, direction: Direction) -> &mut Half {
        &mut self.halves[direction.index()]
    }
}

/// All connections of a run.
#[derive(Debug)]
pub struct Flows {
    seed: u64,
    silence: Duration,
    /// By the client's and the server's socket.
    table: HashMap<(SocketAddr, SocketAddr), Flow>,
    /// What the senders of connections before had done whose sockets have
    /// come back.
    ended: [Sent; 2],
    begun: u64,
    unknown: u64,
    strays: u64,
}

impl Flows {
    /// Without a connection yet.
    pub fn new(seed: u64, silence: Duration) -> Self {
        Self {
            seed,
            silence,
            table: HashMap::new(),
            ended: [Sent::default(); 2],
            begun: 0,
            unknown: 0,
            strays: 0,
        }
    }

    /// The connection of a segment that goes in `direction`; `None` when
    /// there are too many, and for a segment of a connection whose beginning
    /// was not seen: what is left of a run before must not have a number.
    pub fn find(
        &mut self,
        segment: &Segment,
        direction: Direction,
        now: Instant,
    ) -> Option<&mut Flow> {
        let key = match direction {
            Direction::Up => (segment.src, segment.dst),
            Direction::Down => (segment.dst, segment.src),
        };
        let opens =
            direction == Direction::Up && segment.flags & (flags::SYN | flags::ACK) == flags::SYN;
        let used_again = opens
            && self.table.get_mut(&key).is_some_and(|flow| {
                // A SYN that is no repetition: a new connection.
                let sent = flow.half(Direction::Down).ledger.sent();
                sent.segments > 0
            });
        if used_again && let Some(old) = self.table.remove(&key) {
            for (sum, half) in self.ended.iter_mut().zip(&old.halves) {
                sum.add(half.ledger.sent());
            }
        }
        if !self.table.contains_key(&key) {
            let refused = if !opens {
                Some(&mut self.strays)
            } else if self.table.len() >= MAX_FLOWS {
                Some(&mut self.unknown)
            } else {
                None
            };
            if let Some(count) = refused {
                *count += 1;
                return None;
            }
        }
        let (seed, silence, begun) = (self.seed, self.silence, &mut self.begun);
        Some(self.table.entry(key).or_insert_with(|| {
            let number = *begun;
            *begun += 1;
            let half = |direction| Half {
                draws: Draws::new(seed, direction, number),
                ledger: Ledger::new(now, silence),
            };
            Flow {
                number,
                halves: Direction::BOTH.map(half),
            }
        }))
    }

    /// Connections so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Segments of connections that had begun before.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Segments of connections beyond [`MAX_FLOWS`].
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// What the senders in this direction have done, all together.
    pub fn sent(&self, direction: Direction) -> Sent {
        let mut sum = self.ended[direction.index()];
        for flow in self.table.values() {
            sum.add(flow.halves[direction.index()].ledger.sent());
        }
        sum
    }
}
