//! A model of the time that a transfer should take. The measured time is compared with the model's
//! time.
//!
//! The model counts round trips. The handshake and the request take a round trip each. In each
//! later round trip, the server sends a whole window. The first window has ten segments, and each
//! later window is twice as large as the previous one (RFC 5681, RFC 6928). The window is limited
//! by the bottleneck and by the peer's window. After the first loss, the larger of the mean windows
//! of CUBIC and Reno is also a limit (RFC 9438, section 5.1). The model is not a bound: a lucky
//! transfer can be faster.

use std::time::Duration;

use nmio::sim::PathConfig;

use crate::cell::{Cell, Peer};
use crate::peer::Reader;

/// Size of the initial window in segments.
const INITIAL_WINDOW: f64 = 10.0;
/// Size in bytes of a frame's headers with timestamps, and of the timestamps option alone.
const HEADERS: f64 = 66.0;
const OPTIONS: f64 = 12.0;

/// Returns the number of data bytes in a full segment.
fn segment(cell: &Cell) -> f64 {
    let mss = match &cell.peer {
        Peer::Ours(behaviour) => behaviour.mss.unwrap_or(536),
        Peer::Smoltcp(_) => 1460,
    };
    let narrow = cell.narrow.map_or(1500, |narrow| narrow.mtu as u16);
    f64::from(mss.min(narrow - 40).min(1460)) - OPTIONS
}

/// Returns the mean congestion window in segments at the path's loss rate, or infinity if the path
/// has no losses of its own.
fn window_at(path: &PathConfig, round_trip: f64) -> f64 {
    let mut share = path.loss;
    if path.lose_every > 0 {
        share += 1.0 / path.lose_every as f64;
    }
    let mut window = f64::INFINITY;
    if share > 0.0 {
        let reno = (1.5 / share).sqrt();
        let cubic = 1.054 * (round_trip / share).powf(0.75);
        window = reno.max(cubic);
    }
    if !path.bursts.bad.is_zero() {
        // Each burst of losses counts as one loss. These forms of RFC 9438's formulas give the
        // window from the time between two bursts.
        let between = (path.bursts.good + path.bursts.bad).as_secs_f64();
        let reno = 1.5 * between / round_trip;
        let cubic = 1.234 * between.powi(3);
        window = window.min(reno.max(cubic).max(1.0));
    }
    window
}

/// Returns the number of bytes that the peer's window allows in flight.
fn window_of(peer: &Peer) -> f64 {
    match peer {
        Peer::Smoltcp(buffer) => *buffer as f64,
        Peer::Ours(behaviour) => {
            let max_window = 65_535_u64 << behaviour.window_scale.unwrap_or(0);
            behaviour.buffer.min(max_window) as f64
        }
    }
}

/// Returns the maximum rate of a connection in bytes per second, as limited by the bottleneck and
/// by the reader.
fn max_rate(cell: &Cell) -> f64 {
    let mut rate = f64::INFINITY;
    if cell.down.rate > 0 {
        let segment = segment(cell);
        rate = cell.down.rate as f64 / 8.0 * segment / (segment + HEADERS);
    }
    if cell.apart.is_zero() {
        rate /= f64::from(cell.connections);
    }
    if let Peer::Ours(behaviour) = &cell.peer
        && let Reader::Slow(reads) = behaviour.reader
    {
        rate = rate.min(reads as f64);
    }
    rate
}

/// Returns the mean window of a connection after its first loss, in bytes. The peer's window is the
/// upper limit.
fn window(cell: &Cell) -> f64 {
    let left = window_at(&cell.down, round_trip(cell)) * segment(cell);
    window_of(&cell.peer).min(left)
}

fn round_trip(cell: &Cell) -> f64 {
    cell.round_trip().as_secs_f64().max(1e-6)
}

/// Returns the steady rate of a connection after slow start, in bytes per second.
pub(crate) fn rate(cell: &Cell) -> f64 {
    max_rate(cell).min(window(cell) / round_trip(cell))
}

/// Returns the mean number of bytes sent before the first single loss, and the mean time before the
/// first burst of losses.
fn before_loss(cell: &Cell) -> (f64, f64) {
    let (path, mut bytes) = (&cell.down, f64::INFINITY);
    if path.loss > 0.0 {
        bytes = segment(cell) / path.loss;
    }
    if path.lose_every > 0 {
        bytes = bytes.min(path.lose_every as f64 * segment(cell));
    }
    let bursts = path.bursts;
    let time = if bursts.bad.is_zero() {
        f64::INFINITY
    } else {
        bursts.good.as_secs_f64()
    };
    (bytes, time)
}

/// Returns the model's time from a connection's SYN to its last byte.
pub(crate) fn time(cell: &Cell) -> Duration {
    let round_trip = round_trip(cell);
    let rate = max_rate(cell);
    let (bytes_before, time_before) = before_loss(cell);
    let mut open = INITIAL_WINDOW * segment(cell);
    // The client sends the first request together with the last ACK of the handshake, so the
    // handshake takes one round trip.
    let (mut time, mut sent) = (round_trip, 0.0);
    for _ in 0..cell.times {
        let mut left = cell.len as f64;
        // The request takes half a round trip to the server, and the last byte half a round trip
        // back.
        time += round_trip;
        loop {
            let limit = if sent < bytes_before && time < time_before {
                window_of(&cell.peer)
            } else {
                window(cell)
            };
            open = open.min(limit);
            let round = open.min(rate * round_trip);
            if left <= round {
                break;
            }
            left -= round;
            sent += round;
            time += round_trip;
            open *= 2.0;
        }
        sent += left;
        time += left / rate + cell.think.as_secs_f64();
    }
    if let Peer::Ours(behaviour) = &cell.peer
        && let Reader::Pause { lasting, .. } = behaviour.reader
    {
        time += lasting.as_secs_f64();
    }
    Duration::from_secs_f64(time - cell.think.as_secs_f64())
}
