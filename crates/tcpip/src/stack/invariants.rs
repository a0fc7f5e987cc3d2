//! Invariants of a stack that hold between any two calls, for tests and fuzzing.

use super::{Alarm, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Flags, State};
use crate::stack::Application;
use crate::wire::Seq;

/// Number of segments that limited transmit may send beyond the congestion window (RFC 3042).
const BEYOND: u32 = 2;

/// The range of sequence numbers that was in flight on a connection at the last check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastFlight {
    una: Seq,
    nxt: Seq,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Panics if an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&mut self) {
        let ids = 0..self.table.len();
        for id in ids.clone() {
            self.check_flight(id);
        }
        let is_live = |id: &u32| self.tcb(*id).state != State::Closed;
        let all: Vec<u32> = ids.clone().filter(is_live).collect();
        let alive = all.len();
        assert_eq!(
            alive,
            self.table.index.len() as usize,
            "table and TCBs agree"
        );
        assert_eq!(alive + self.table.free.len(), ids.len());
        let of = |state: State| {
            let states = ids.clone().map(|id| self.tcb(id).state);
            states.filter(|s| *s == state).count() as u32
        };
        for (state, count) in self.cx.states.iter() {
            assert_eq!(of(state), count, "{state:?}");
        }
        assert_eq!(self.cx.states.total(), self.connections());
        assert!(self.cx.states.of(State::SynReceived) <= self.config.max_half_open);
        let [connections, recv, write, lists, ..] = self.cx.peers.totals().1;
        assert_eq!(
            connections,
            self.open_connections(),
            "connections by address"
        );
        let buffers_in_use = self.cx.buffers.in_use();
        assert_eq!(recv as usize, buffers_in_use, "buffers by address");
        assert_eq!(lists as usize, self.cx.lists.in_use(), "lists by address");
        assert_eq!(
            write as usize,
            self.sources.writes.in_use(),
            "buffers by address"
        );
        let (mut buffers, mut writes, mut recoveries) = (0, 0, 0);
        for id in all {
            self.conn(id).check_invariants();
            let tcb = self.tcb(id);
            let view = tcb.view();
            buffers += usize::from(view.has_buffer);
            writes += tcb.stream.write_buffers(&self.cx.lists);
            recoveries += usize::from(tcb.is_recovering());
            if tcb.state != State::SynReceived {
                let fin = u32::from(tcb.flags.intersects(Flags::CLOSE));
                let (una, end) = (view.snd_una, tcb.stream.end());
                assert!(una == end + 1 || view.flight <= end.since(una) + fin);
            }
            let due = self.wheel.deadline(id).expect("every TCB has a timer");
            assert!(due <= Moment::from(self.now).instant(view.deadline) || due <= self.now);
            let alarm = self.table.housekeeping[id as usize].alarm;
            assert!(!matches!(alarm, Alarm::New(_)), "a deadline runs");
            if let Alarm::At(app_due) = alarm {
                let app_due = Moment::from(self.now).instant(app_due);
                assert!(due <= app_due || due <= self.now);
            }
            let peer_first = tcb.path.addresses.reversed();
            let hash = self.keys.hash(&peer_first, view.peer_port, view.own_port);
            assert_eq!(self.table.index.find(hash, |found| found == id), Some(id));
        }
        assert_eq!(buffers, buffers_in_use);
        assert_eq!(writes, self.sources.writes.in_use());
        if !ids.is_empty() {
            assert_eq!(recoveries, self.conn(0).recoveries_in_use());
        }
    }

    /// If new data was sent since the last check, checks that the data in flight does not exceed
    /// the congestion window.
    fn check_flight(&mut self, id: u32) {
        let conn = self.conn(id);
        let (pipe_and_window, state) = (conn.pipe_and_window(), conn.tcb.state);
        let view = conn.tcb.view();
        let mss = u32::from(view.mss_max);
        let now = LastFlight {
            una: view.snd_una,
            nxt: view.snd_nxt,
        };
        let Some(before) = self.flights.get_mut(id as usize) else {
            self.flights.push(now);
            return;
        };
        let before = std::mem::replace(before, now);
        // If `una` is outside the earlier range, the TCB may belong to another connection now, so
        // skip the check.
        let is_same = now.una.since(before.una) <= before.nxt.since(before.una);
        if state == State::Closed || !is_same || !now.nxt.after(before.nxt) {
            return;
        }
        let Some((pipe, window)) = pipe_and_window else {
            return;
        };
        assert!(
            pipe <= window.max(mss) + BEYOND * mss,
            "{pipe} bytes in flight, window {window}"
        );
    }
}
