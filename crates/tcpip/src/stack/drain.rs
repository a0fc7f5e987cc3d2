//! Drain of a stack before it shuts down: new connections are refused, and open ones may finish.
//!
//! The stack visits its connections in rounds, a few in each call, and asks the application what to
//! do with each one ([`Application::on_drain`]). No other code path checks for a drain, except the
//! opening of connections.

use std::time::Duration;

use nmio::{Instant, Port};

use super::{Draining, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Flags, State};
use crate::outcome::ControlSegment;
use crate::stack::Application;

/// Maximum number of connections that one call visits. Even if each of them gets a FIN, the call
/// takes less than 200 µs.
const SLICE: u32 = 64;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum time for peers that only have to acknowledge something, once no other connection needs
/// more time. It also lets a client whose handshake was under way send its request.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What a connection still needs before the stack shuts down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// Nothing: our FIN is acknowledged, so the peer has everything.
    Nothing,
    /// Only the end of the handshake, or the acknowledgement of our FIN.
    Acknowledgement,
    /// A message is in progress, or data is not acknowledged.
    Time,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Lets the open connections finish before [`shut_down`](Self::shut_down). From the first call
    /// on, the stack refuses new connections with a reset. Handshakes that have begun may be
    /// completed.
    ///
    /// Each call visits at most 64 connections, and passes them to [`Application::on_drain`]. The
    /// drain is done when no connection has a message in progress, and all peers have acknowledged
    /// our FINs. If only acknowledgements are missing, the stack waits for them for at most a
    /// second. It waits neither for the peers' FINs nor for the end of TIME-WAIT.
    ///
    /// Call this method once per batch, and no later than the returned time. Everything else stays
    /// the same.
    pub fn drain<P: Port>(&mut self, port: &mut P, now: Instant) -> nmio::Drain {
        self.now = now;
        let begun = Draining {
            next: 0,
            is_busy: false,
            awaits_peers: false,
            resume_at: now,
            quiet_since: None,
        };
        let state = self.draining.get_or_insert_with(|| begun.into());
        if now < state.resume_at {
            return nmio::Drain::Busy(state.resume_at);
        }
        let (start, len) = (state.next, self.table.len());
        let end = len.min(start.saturating_add(SLICE));
        let (mut is_busy, mut awaits_peers) = (false, false);
        for id in start..end {
            match self.drain_one(port, id, Moment::from(now)) {
                Need::Nothing => {}
                Need::Acknowledgement => awaits_peers = true,
                Need::Time => is_busy = true,
            }
        }
        let Some(state) = &mut self.draining else {
            return nmio::Drain::Done;
        };
        state.is_busy |= is_busy;
        state.awaits_peers |= awaits_peers;
        state.next = end;
        if end < len {
            return nmio::Drain::Busy(now);
        }
        state.end_round(now)
    }

    /// Returns true once a drain has started.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Visits one connection.
    fn drain_one<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) -> Need {
        let tcb = self.tcb(id);
        let (state, flags) = (tcb.state, tcb.flags);
        let is_open = matches!(state, State::Established | State::CloseWait);
        if is_open && !flags.intersects(Flags::CLOSE | Flags::ABORT) {
            if flags.intersects(Flags::OPENED_LATE) && self.is_new(id, now) {
                return Need::Acknowledgement;
            }
            if flags.intersects(Flags::WANTS_ROOM) {
                return Need::Time;
            }
            let name = self.table.id(id);
            self.reach(port, self.now, |app, connections| {
                if let Some(mut connection) = connections.get(name) {
                    app.on_drain(&mut connection);
                }
            });
        }
        let conn = self.conn(id);
        match conn.tcb.state {
            State::Closed | State::FinWait2 | State::TimeWait => Need::Nothing,
            State::Established | State::CloseWait => Need::Time,
            // Only data that is not acknowledged would make a reset necessary.
            State::FinWait1 | State::Closing | State::LastAck
                if conn.closing_segment() == Some(ControlSegment::Reset) =>
            {
                Need::Time
            }
            State::SynReceived | State::FinWait1 | State::Closing | State::LastAck => {
                Need::Acknowledgement
            }
        }
    }

    /// Returns true if a connection was opened only a moment ago, and its client's request is
    /// probably still on the way.
    fn is_new(&mut self, id: u32, now: Moment) -> bool {
        let lag = self.housekeeping(id).lag(now);
        let (_, connection) = self.connection(id);
        connection.is_idle() && lag < LAST_WAIT.as_millis() as u32
    }
}

impl Draining {
    /// Ends a round in which all connections were visited.
    fn end_round(&mut self, now: Instant) -> nmio::Drain {
        let (is_busy, awaits_peers) = (self.is_busy, self.awaits_peers);
        (self.next, self.is_busy, self.awaits_peers) = (0, false, false);
        if is_busy {
            self.quiet_since = None;
        } else {
            let quiet_since = *self.quiet_since.get_or_insert(now);
            if !awaits_peers || now.since(quiet_since) >= LAST_WAIT {
                return nmio::Drain::Done;
            }
        }
        self.resume_at = now + PAUSE;
        nmio::Drain::Busy(self.resume_at)
    }
}
