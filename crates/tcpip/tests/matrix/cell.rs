//! A cell of the matrix: a transfer over one kind of path to one kind of peer.

use std::time::Duration;

use nmio::sim::{Bursts, Mark, PathConfig};
use testkit::mark_congestion;

use crate::ideal;
use crate::peer::Behaviour;
use crate::router::Narrow;

/// Size of a full frame in bytes, to convert queue lengths from frames to bytes.
pub(crate) const FRAME: usize = 1514;

/// Intended duration of a transfer, as a time and as a number of round trips. The longer of the two
/// applies.
const MEANT_TIME: Duration = Duration::from_secs(4);
const MEANT_ROUNDS: u32 = 50;
/// Minimum and maximum length of the content that [`Cell::sized`] chooses, in bytes.
const LEAST: usize = 100_000;
const MOST: usize = 20_000_000;

/// The client of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Our own test client.
    Ours(Behaviour),
    /// The TCP client of smoltcp, with a receive buffer of this size in bytes.
    Smoltcp(usize),
}

/// Congestion control of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Cubic,
    NewReno,
    Reno,
    Bbr,
}

/// The required result of a cell's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every byte has arrived, and both sides have closed.
    Finished,
    /// The peer still answers, but reads no more data. The server waits without a limit, because no
    /// other connection needs its resources.
    Waits,
}

/// A route: the bottleneck's rate in bits per second, and the round-trip time with an empty queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route(pub(crate) u64, pub(crate) Duration);

/// A cell: a transfer with its path and its peer.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Unique name of the cell.
    pub(crate) name: String,
    /// The path of data to the client, and the path of ACKs to the server.
    pub(crate) down: PathConfig,
    pub(crate) up: PathConfig,
    /// The last link to the client, if that link carries only short packets.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) peer: Peer,
    /// Number of connections.
    pub(crate) connections: u16,
    /// Time between the starts of two connections.
    pub(crate) apart: Duration,
    /// Length of the content in bytes.
    pub(crate) len: usize,
    /// Number of requests on each connection.
    pub(crate) times: u64,
    /// Time between the end of a response and the next request.
    pub(crate) think: Duration,
    pub(crate) v6: bool,
    pub(crate) control: Control,
    /// Whether the server paces its segments.
    pub(crate) is_paced: bool,
    pub(crate) end: End,
}

impl Cell {
    /// Creates a cell with our test client, over a path with the given rate and round trip. The
    /// path's queue holds one bandwidth-delay product, but at least sixteen frames.
    pub(crate) fn new(name: &str, Route(rate, round_trip): Route) -> Self {
        let product = (u128::from(rate) * round_trip.as_micros() / 8_000_000) as usize;
        let down = PathConfig {
            rate,
            line_rate: 10_000_000_000,
            queue: usize::MAX,
            queue_bytes: product.max(16 * FRAME),
            delay: round_trip / 2,
            ..PathConfig::default()
        };
        let up = PathConfig {
            rate: 0,
            line_rate: 0,
            queue_bytes: 0,
            ..down
        };
        Self {
            name: name.to_owned(),
            down,
            up,
            narrow: None,
            peer: Peer::Ours(Behaviour::default()),
            connections: 1,
            apart: Duration::ZERO,
            len: 0,
            times: 1,
            think: Duration::ZERO,
            v6: false,
            control: Control::Cubic,
            is_paced: false,
            end: End::Finished,
        }
    }

    /// Sets the capacity of the bottleneck's queue, in percent of the bandwidth-delay product. The
    /// queue holds at least four frames.
    pub(crate) fn queue(mut self, percent: usize) -> Self {
        let product = self.product() as usize;
        self.down.queue_bytes = (product * percent / 100).max(4 * FRAME);
        self
    }

    /// Returns the bandwidth-delay product: the number of bytes that fill the path without a queue.
    pub(crate) fn product(&self) -> u64 {
        let round_trip = self.round_trip().as_micros();
        (u128::from(self.down.rate) * round_trip / 8_000_000) as u64
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.down.delay + self.up.delay
    }

    /// Sets the probability that a data frame is lost.
    pub(crate) fn loss(mut self, probability: f64) -> Self {
        self.down.loss = probability;
        self
    }

    /// Sets the probability that an ACK is lost.
    pub(crate) fn ack_loss(mut self, probability: f64) -> Self {
        self.up.loss = probability;
        self
    }

    /// Drops every `n`-th frame with data.
    pub(crate) fn lose_every(mut self, n: u64) -> Self {
        self.down.lose_every = n;
        self
    }

    /// Drops data in bursts. Each burst lasts for `bad` on average, and all bursts together take
    /// the fraction `share` of the time.
    pub(crate) fn bursts(mut self, share: f64, bad: Duration) -> Self {
        self.down.bursts = Bursts {
            good: bad.mul_f64(1.0 / share - 1.0),
            bad,
            loss: 1.0,
        };
        self
    }

    /// Delays each data frame by the time `by` with this probability, so that later data overtakes
    /// the frame.
    pub(crate) fn reorder(mut self, probability: f64, by: Duration) -> Self {
        self.down.reorder = probability;
        self.down.reorder_delay = by;
        self
    }

    /// Duplicates each data frame with this probability.
    pub(crate) fn duplicate(mut self, probability: f64) -> Self {
        self.down.duplicate = probability;
        self
    }

    /// Makes the queue mark ECN-capable packets with CE if they wait longer than `wait`.
    pub(crate) fn mark_above(mut self, wait: Duration) -> Self {
        self.down.mark = Some(Mark {
            above: wait,
            with: mark_congestion,
        });
        self
    }

    /// Changes the behaviour of our test client.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Behaviour)) -> Self {
        if let Peer::Ours(behaviour) = &mut self.peer {
            change(behaviour);
        }
        self
    }

    /// Makes smoltcp the client, with a receive buffer of `buffer` bytes.
    pub(crate) fn smoltcp(mut self, buffer: usize) -> Self {
        self.peer = Peer::Smoltcp(buffer);
        self
    }

    /// Uses IPv6.
    pub(crate) fn v6(mut self) -> Self {
        self.v6 = true;
        self
    }

    /// Sets the length of the content in bytes.
    pub(crate) fn bytes(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    /// Applies any other change to the cell.
    pub(crate) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// If the content's length is not set yet, chooses the length by the model in [`ideal`]. The
    /// transfer should then take at least four seconds and 50 round trips, unless [`MOST`] limits
    /// its length.
    #[expect(clippy::cast_sign_loss, reason = "a model's rate is not negative")]
    pub(crate) fn sized(mut self) -> Self {
        if self.len == 0 {
            let time = MEANT_TIME.max(MEANT_ROUNDS * self.round_trip());
            let len = ideal::rate(&self) * time.as_secs_f64() / self.times as f64;
            self.len = (len as usize).clamp(LEAST, MOST).next_multiple_of(LEAST);
        }
        self
    }

    /// Returns the cell's seed, which depends only on the cell's name.
    pub(crate) fn seed(&self) -> u64 {
        // The FNV-1a hash, folded to 32 bits to keep seeds short.
        let hash = (self.name.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash ^ (hash >> 32)) & 0xffff_ffff
    }

    /// Returns the total number of bytes that all connections transfer.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.connections) * self.times * self.len as u64
    }
}
