//! What must hold between two calls, whatever has come: for tests and fuzzing.

use super::Stack;
use crate::app::Application;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Flags, Record, State};
use crate::pools::NONE;
use crate::wire::Seq;

/// Segments of limited transmit, by which what is in flight may exceed the
/// congestion window (RFC 3042).
const BEYOND: u32 = 2;

/// What was in flight of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    una: Seq,
    nxt: Seq,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Panics when a rule is broken that must hold between two calls.
    #[doc(hidden)]
    pub fn check_invariants(&mut self) {
        for id in 0..self.records.len() {
            self.check_flight(id);
        }
        let live = |id: &u32| self.records[*id as usize].tcb.state != State::Closed;
        let all = 0..self.records.len() as u32;
        let alive = all.clone().filter(live).count();
        assert_eq!(alive, self.table.len() as usize, "table and TCBs agree");
        assert_eq!(alive + self.free.len(), self.records.len());
        let of = |state: State| {
            let states = self.records.iter().map(|record| record.tcb.state);
            states.filter(|s| *s == state).count() as u32
        };
        assert_eq!(of(State::SynReceived), self.half_open);
        assert_eq!(of(State::TimeWait), self.time_waits);
        assert!(self.half_open <= self.cx.settings.max_half_open);
        let apart = self.half_open + self.time_waits;
        let [connections, recv, write, lists, ..] = self.cx.peers.totals().1;
        assert_eq!(connections, alive as u32 - apart, "connections by address");
        let buffers_in_use = self.cx.buffers.lent().in_use();
        assert_eq!(recv as usize, buffers_in_use, "buffers by address");
        assert_eq!(lists as usize, self.cx.lists.in_use(), "lists by address");
        assert_eq!(write as usize, self.writes.in_use(), "buffers by address");
        let (mut buffers, mut writes, mut recoveries) = (0, 0, 0);
        for id in all.filter(live) {
            let tcb = &self.records[id as usize].tcb;
            buffers += usize::from(tcb.buffer != NONE);
            writes += tcb.stream.write_buffers(&self.cx.lists);
            let una = tcb.snd_una;
            let flight = tcb.flight();
            if tcb.state != State::SynReceived {
                let fin = u32::from(tcb.flags.has(Flags::CLOSE));
                let acked_fin = una == tcb.stream.end() + 1;
                assert!(acked_fin || flight <= tcb.stream.end().since(una) + fin);
            }
            if tcb.recovery != NONE {
                let recovery = self.cx.losses.get(tcb.recovery);
                recoveries += 1;
                assert!(!recovery.is_calm() || recovery.board_size() == 0);
                assert!(recovery.gone(tcb.flight(), tcb.mss) <= flight);
                for (start, end) in recovery.ranges() {
                    assert!(end.since(una) <= flight, "inside what was sent");
                    assert!(start.since(una) < end.since(una));
                }
            }
            assert!(tcb.rcv_adv.since(tcb.rcv_nxt) <= self.cx.buffers.capacity() as u32);
            let due = self.wheel.deadline(id).expect("every TCB has a timer");
            assert!(due <= Moment::new(self.now).instant(tcb.deadline) || due <= self.now);
            assert!(!tcb.flags.has(Flags::DUE_NEW), "a deadline runs");
            if tcb.flags.has(Flags::DUE) {
                let standing = &self.standings[id as usize];
                let app_due = Moment::new(self.now).instant(standing.due);
                assert!(due <= app_due || due <= self.now);
            }
            let hash = self
                .keys
                .hash(&tcb.path.addresses.reversed(), tcb.peer_port, tcb.own_port);
            assert_eq!(self.table.find(hash, |found| found == id), Some(id));
        }
        assert_eq!(buffers, buffers_in_use);
        assert_eq!(writes, self.writes.in_use());
        assert_eq!(recoveries, self.cx.losses.in_use());
    }

    /// What was sent since the last look was within the congestion window.
    fn check_flight(&mut self, id: usize) {
        let Record { tcb, congestion } = &self.records[id];
        let now = Flight {
            una: tcb.snd_una,
            nxt: tcb.snd_nxt,
        };
        let Some(before) = self.flights.get_mut(id) else {
            self.flights.push(now);
            return;
        };
        let before = std::mem::replace(before, now);
        // Not another connection since.
        let is_same = now.una.since(before.una) <= before.nxt.since(before.una);
        if tcb.state == State::Closed || !is_same || !now.nxt.after(before.nxt) {
            return;
        }
        let (pipe, window) = match tcb.recovery {
            NONE => (tcb.flight(), congestion.window()),
            // It asks for no window (RFC 8985, section 7.3).
            index if self.cx.losses.get(index).probes_tail(now.nxt) => return,
            index => {
                let recovery = self.cx.losses.get(index);
                (
                    recovery.pipe(tcb.flight(), tcb.mss),
                    recovery.window(congestion),
                )
            }
        };
        let mss = u32::from(tcb.mss_most);
        assert!(
            pipe <= window.max(mss) + BEYOND * mss,
            "{pipe} bytes in flight, window {window}"
        );
    }
}
