//! What a transfer could come to, to judge by what it came to.
//!
//! A model of rounds: the handshake and the request take a round trip each,
//! then a window is sent each round, which begins at ten segments and doubles
//! (RFC 5681 with RFC 6928), and never more than the bottleneck carries, the
//! peer's window allows, or the path's loss leaves: then the window is the
//! one that CUBIC has in the mean, or Reno if that is more (RFC 9438,
//! section 5.1).

use std::time::Duration;

use nmio::sim::PathConfig;

use crate::cell::{Cell, Peer};
use crate::peer::Reader;

const MSS: f64 = 1448.0;
const INITIAL_WINDOW: f64 = 10.0 * MSS;
/// Bytes on the wire for each full segment: its headers too.
const FRAME: f64 = 1514.0;

/// The share of frames that the path loses on its own.
fn loss(path: &PathConfig) -> f64 {
    let bursts = path.bursts;
    let mut share = path.loss;
    if path.lose_every > 0 {
        share += 1.0 / path.lose_every as f64;
    }
    if bursts.begin > 0.0 {
        // A burst is one event of congestion, whatever its length.
        share += bursts.begin * bursts.end / (bursts.begin + bursts.end);
    }
    share
}

/// The mean window in bytes at this loss and round trip.
fn window_at(loss: f64, round_trip: f64) -> f64 {
    if loss == 0.0 {
        return f64::INFINITY;
    }
    let reno = (1.5 / loss).sqrt();
    let cubic = 1.054 * (round_trip / loss).powf(0.75);
    reno.max(cubic) * MSS
}

/// Bytes that the peer lets be in flight.
fn window_of(peer: &Peer) -> f64 {
    match peer {
        Peer::Smoltcp(buffer) => *buffer as f64,
        Peer::Ours(behaviour) => {
            let most = 65_535_u64 << behaviour.window_scale.unwrap_or(0);
            behaviour.buffer.min(most) as f64
        }
    }
}

/// The time that the model takes for a cell.
pub(crate) fn time(cell: &Cell) -> Duration {
    let round_trip = cell.round_trip().as_secs_f64().max(1e-6);
    let mut rate = f64::INFINITY;
    if cell.down.rate > 0 {
        rate = cell.down.rate as f64 / 8.0 * MSS / FRAME / f64::from(cell.connections);
    }
    if let Peer::Ours(behaviour) = &cell.peer
        && let Reader::Slow(reads) = behaviour.reader
    {
        rate = rate.min(reads as f64);
    }
    let most = window_of(&cell.peer).min(window_at(loss(&cell.down), round_trip));
    // The client's last ACK of the handshake carries the request.
    let mut time = round_trip;
    let mut window = INITIAL_WINDOW.min(most);
    for _ in 0..cell.times {
        let mut left = cell.len as f64;
        // Half a round for the request, half for the last byte.
        time += round_trip;
        while left > window && window < rate * round_trip {
            left -= window;
            window = (2.0 * window).min(most);
            time += round_trip;
            if window == most && most < rate * round_trip {
                let rounds = (left / window).floor();
                time += rounds * round_trip;
                left -= rounds * window;
                break;
            }
        }
        time += left / rate;
        time += cell.think.as_secs_f64();
    }
    time -= cell.think.as_secs_f64();
    Duration::from_secs_f64(time) + cell.apart * u32::from(cell.connections - 1)
}
