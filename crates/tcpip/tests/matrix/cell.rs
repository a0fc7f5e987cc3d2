//! A cell of the matrix: one path, one peer, one transfer.

use std::time::Duration;

use nmio::sim::{Bursts, Mark, PathConfig};
use testkit::mark_congestion;

use crate::ideal;
use crate::peer::Behaviour;
use crate::router::Narrow;

/// Bytes of a full frame, for queues counted in those.
pub(crate) const FRAME: usize = 1514;

/// A transfer takes about so long, or as many round trips,
const MEANT_TIME: Duration = Duration::from_secs(4);
const MEANT_ROUNDS: u32 = 50;
/// and has as many bytes at least and at most.
const LEAST: usize = 100_000;
const MOST: usize = 20_000_000;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Our test client.
    Ours(Behaviour),
    /// smoltcp, with a receive buffer of so many bytes.
    Smoltcp(usize),
}

/// How the server controls congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Cubic,
    NewReno,
    Reno,
    Bbr,
}

/// How a cell's transfer must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every byte has come, and both sides have closed.
    Finished,
    /// The peer answers and reads no more: the server waits for it, as nothing
    /// runs short.
    Waits,
}

/// Bits a second at the bottleneck, and the round trip without a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route(pub(crate) u64, pub(crate) Duration);

/// One transfer, and what it meets.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Unlike any other's.
    pub(crate) name: String,
    /// What data meets, and what ACKs do.
    pub(crate) down: PathConfig,
    pub(crate) up: PathConfig,
    /// The last link takes only short packets.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) peer: Peer,
    /// Connections at a time.
    pub(crate) connections: u16,
    /// Time between two connections' beginnings.
    pub(crate) apart: Duration,
    /// Bytes of the content.
    pub(crate) len: usize,
    /// How often it is asked for on each connection.
    pub(crate) times: u64,
    /// Time between an answer's end and the next request.
    pub(crate) think: Duration,
    pub(crate) v6: bool,
    pub(crate) control: Control,
    pub(crate) end: End,
}

impl Cell {
    /// A transfer to our client over a path of one rate in bits a second, one
    /// round trip, and a queue of one bandwidth-delay product, at least of
    /// sixteen frames.
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
            end: End::Finished,
        }
    }

    /// The queue of the bottleneck, in hundredths of the bandwidth-delay
    /// product; at least four frames.
    pub(crate) fn queue(mut self, percent: usize) -> Self {
        let product = self.product() as usize;
        self.down.queue_bytes = (product * percent / 100).max(4 * FRAME);
        self
    }

    /// Bytes that fill the path without a queue.
    pub(crate) fn product(&self) -> u64 {
        let round_trip = self.round_trip().as_micros();
        (u128::from(self.down.rate) * round_trip / 8_000_000) as u64
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.down.delay + self.up.delay
    }

    /// Random loss of data.
    pub(crate) fn loss(mut self, probability: f64) -> Self {
        self.down.loss = probability;
        self
    }

    /// Random loss of ACKs.
    pub(crate) fn ack_loss(mut self, probability: f64) -> Self {
        self.up.loss = probability;
        self
    }

    /// Every `n`-th frame with data is lost.
    pub(crate) fn lose_every(mut self, n: u64) -> Self {
        self.down.lose_every = n;
        self
    }

    /// Data is lost in bursts: so much of the time, for so long at a time.
    pub(crate) fn bursts(mut self, share: f64, bad: Duration) -> Self {
        self.down.bursts = Bursts {
            good: bad.mul_f64(1.0 / share - 1.0),
            bad,
            loss: 1.0,
        };
        self
    }

    /// Data is held up with this probability, for so long.
    pub(crate) fn reorder(mut self, probability: f64, by: Duration) -> Self {
        self.down.reorder = probability;
        self.down.reorder_delay = by;
        self
    }

    /// Data comes twice with this probability.
    pub(crate) fn duplicate(mut self, probability: f64) -> Self {
        self.down.duplicate = probability;
        self
    }

    /// The queue marks what waits longer than this, rather than lose it.
    pub(crate) fn mark_above(mut self, wait: Duration) -> Self {
        self.down.mark = Some(Mark {
            above: wait,
            with: mark_congestion,
        });
        self
    }

    /// Changes how our client takes part.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Behaviour)) -> Self {
        if let Peer::Ours(behaviour) = &mut self.peer {
            change(behaviour);
        }
        self
    }

    /// smoltcp is the client.
    pub(crate) fn smoltcp(mut self, buffer: usize) -> Self {
        self.peer = Peer::Smoltcp(buffer);
        self
    }

    /// Over IPv6.
    pub(crate) fn v6(mut self) -> Self {
        self.v6 = true;
        self
    }

    /// So many bytes.
    pub(crate) fn bytes(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    /// Any other change.
    pub(crate) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// As many bytes as the path carries in some seconds, by the model, when
    /// it was not said how many.
    #[expect(clippy::cast_sign_loss, reason = "a model's rate is not negative")]
    pub(crate) fn sized(mut self) -> Self {
        if self.len == 0 {
            let time = MEANT_TIME.max(MEANT_ROUNDS * self.round_trip());
            let len = ideal::rate(&self) * time.as_secs_f64() / self.times as f64;
            self.len = (len as usize).clamp(LEAST, MOST).next_multiple_of(LEAST);
        }
        self
    }

    /// The cell's own seed: a change of the matrix leaves it alone.
    pub(crate) fn seed(&self) -> u64 {
        // FNV-1a, folded so that it can be read out.
        let hash = (self.name.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash ^ (hash >> 32)) & 0xffff_ffff
    }

    /// Bytes on all connections.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.connections) * self.times * self.len as u64
    }
}
