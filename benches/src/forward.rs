//! A bad network in user space: joins two interfaces, and forwards every
//! Ethernet frame from one to the other after what the way in between would
//! do to it.
//!
//! Two servers that are compared must meet the same fate. So what happens to
//! a frame is drawn from the seed, the direction, the connection's number and
//! the frame's number among those of its connection that carry payload, and
//! from nothing else: the n-th segment with data of the first connection
//! meets the same whoever sends it. Frames without payload (SYN, FIN, plain
//! ACKs) and everything that is not TCP are not lost by those draws: one
//! handshake's loss costs a second whatever the recovery, and would hide
//! what is compared. Plain ACKs have a loss of their own.
//!
//! | module | |
//! |---|---|
//! | [`config`] | what a direction does, and the words that say so |
//! | [`segment`] | as much of a frame as must be known |
//! | [`fate`] | the draws |
//! | [`path`] | a direction's queue, rate and delay, on any clock |
//! | [`ledger`] | what a sender has done: repeated bytes, silences |
//! | [`flows`] | the connections, with draws and ledgers of both directions |
//! | [`ecn`] | marks instead of losses |
//! | [`too_big`] | ICMP's answer to a frame that does not fit |
//! | [`relay`] | all of it together, and the report |
//! | [`socket`] | raw packet sockets |

pub mod config;
pub mod ecn;
pub mod fate;
pub mod flows;
pub mod ledger;
pub mod path;
pub mod relay;
pub mod segment;
pub mod socket;
pub mod too_big;

#[cfg(test)]
mod relay_tests;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server to the client.
    Down,
    /// From the client to the server.
    Up,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Down, Self::Up];

    /// 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Self::Down => 0,
            Self::Up => 1,
        }
    }

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }
}
