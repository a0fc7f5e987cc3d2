//! What happens when nothing arrives.

use nmio::Port;

use crate::app::{Application, CloseReason};
use crate::congestion::CongestionControl;
use crate::output::send_control;
use crate::pacing::pause;
use crate::pmtu::BLACK_HOLE_TIMEOUTS;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, State};

/// An application that found no write buffer is asked again after this time,
/// in milliseconds, when no ACK is to come that would ask it; and then each
/// time after as long as it has waited already, up to a second: many that wait
/// for long must not cost much.
pub(crate) const ROOM_RETRY_MS: u32 = 20;
const MAX_ROOM_RETRY_MS: u32 = 1_000;
/// Waiting is timed by a clock that wraps soon after.
const MAX_ROOM_WAIT_MS: u32 = 3_600_000;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A connection's deadline has passed. What it was for follows from the
    /// TCB, as only one thing can be due at a time.
    pub(crate) fn handle_deadline<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        let in_flight = tcb.snd_nxt != tcb.snd_una;
        match tcb.state {
            State::Closed => {}
            State::SynReceived => self.handle_handshake_timeout(port, id, now),
            State::TimeWait => self.forget(id),
            State::FinWait2 => self.close(id, CloseReason::TimedOut),
            _ if tcb.flags.has(Flags::PERSIST) => self.handle_persist_timeout(port, id, now),
            _ if tcb.flags.has(Flags::PACED) && !tcb.flags.has(Flags::AWAIT_LATE) => {
                if let Some(pause) = pause(tcb, now) {
                    self.arm(id, now, pause);
                    return;
                }
                self.arm_after_ack(id, now);
            }
            _ if !in_flight => self.handle_silence(port, id, now),
            _ if tcb.flags.has(Flags::PROBE_TAIL) => self.probe_tail(port, id, now),
            _ if tcb.flags.has(Flags::AWAIT_LATE) => self.handle_late(id, now),
            _ => self.handle_rto(port, id, now),
        }
        self.go_on(port, id, now);
    }

    /// What is left to do after a timer: a reset, or what may be sent.
    fn go_on<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.state == State::Closed {
            return;
        }
        if tcb.flags.has(Flags::ABORT) {
            self.abort(port, id, now);
        } else {
            self.resume(port, id, now);
        }
    }

    /// The application's deadline has passed.
    pub(crate) fn handle_due<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::DUE);
        if tcb.flags.has(Flags::CLOSE) {
            // By the idle timeout.
            return;
        }
        self.counters.deadlines_missed += 1;
        let deadline = self.standings[id as usize].due_for;
        let (app, mut connection) = self.connection(id);
        app.on_deadline(&mut connection, deadline);
        if self.records[id as usize].tcb.flags.has(Flags::CLOSE) {
            // What it has not taken it never will.
            self.offer_buffered(port, id, now);
        }
        self.go_on(port, id, now);
        let tcb = &self.records[id as usize].tcb;
        let waits = tcb.flags.has(Flags::WANTS_ROOM) && tcb.snd_nxt == tcb.snd_una;
        if waits && tcb.state != State::Closed {
            self.settle(id, waits, now);
        }
    }

    /// A deadline that the application has just set runs from now on.
    pub(crate) fn start_due(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::DUE_NEW) {
            tcb.flags.clear(Flags::DUE_NEW);
            tcb.flags.set(Flags::DUE);
            let due = &mut self.standings[id as usize].due;
            *due = due.wrapping_add(now.millis);
        }
    }

    fn handle_handshake_timeout<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.retries >= self.settings.syn_ack_retries {
            self.counters.handshakes_failed += 1;
            self.forget(id);
            return;
        }
        tcb.retries += 1;
        tcb.backoff += 1;
        tcb.flags.set(Flags::SYN_AGAIN);
        tcb.flags.clear(Flags::TIMING);
        // The first timeout was for the first SYN-ACK; RFC 6298, 5.7, is
        // about data.
        let rto = tcb
            .rtt
            .timeout(tcb.backoff, false, self.settings.min_rto_ms);
        self.arm(id, now, rto);
        let (header, options) = self.syn_ack(&self.records[id as usize].tcb, now);
        let tcb = &mut self.records[id as usize].tcb;
        if send_control(port, tcb, &header, &options).is_ok() {
            tcb.has_told_unscaled(header.window);
            self.counters.segments_sent += 1;
        }
    }

    /// RFC 6298, 5.4 to 5.6, and RFC 5681, section 3.1.
    fn handle_rto<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.snd_wnd == 0 {
            // The peer has shut its window on what is in flight.
            tcb.flags.set(Flags::PERSIST);
            tcb.flags.clear(Flags::TIMING);
            tcb.rtt_at = now.micros;
            self.handle_persist_timeout(port, id, now);
            return;
        }
        let stalled = self.stalled_for(id, now);
        if self.records[id as usize].tcb.retries >= self.settings.retries
            || stalled >= self.settings.user_timeout_ms
        {
            self.close(id, CloseReason::TimedOut);
            return;
        }
        self.lose_all_by_timeout(id, now);
        self.counters.timeouts += 1;
        let tcb = &mut self.records[id as usize].tcb;
        tcb.retries += 1;
        tcb.backoff = tcb.backoff.saturating_add(1);
        tcb.flags.clear(Flags::TIMING);
        if BLACK_HOLE_TIMEOUTS.contains(&tcb.retries) {
            self.suspect_black_hole(id, now);
        }
        let rto = self.rto(id).min(self.user_time_left(id, now));
        self.arm_timeout(id, now, rto);
    }

    fn handle_persist_timeout<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        let left = self.settings.persist_time_left(tcb, now);
        if tcb.retries >= self.settings.probes || left == 0 {
            self.send_reset(port, id, now);
            self.close(id, CloseReason::TimedOut);
            return;
        }
        self.probe(port, id, now);
    }

    /// Nothing is in flight.
    fn handle_silence<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) {
            self.wait_for_room(port, id, now);
        } else if tcb.snd_nxt == tcb.limit() {
            if self.settings.silence_ms < self.settings.idle_ms && self.keep_alive(port, id, now) {
                return;
            }
            // Silent for too long. The application has not closed, or its FIN
            // would be in flight.
            let tcb = &mut self.records[id as usize].tcb;
            tcb.flags.set(Flags::CLOSE);
            self.counters.idle_closed += 1;
            // What it has not taken it never will.
            self.offer_buffered(port, id, now);
            self.arm(id, now, self.settings.idle_ms);
        } else {
            // Held up by the ring all the time.
            self.arm(id, now, self.settings.idle_ms);
        }
    }

    /// Asks the peer whether it is there (RFC 1122, section 4.2.3.6): a segment
    /// just before what it expects must be acknowledged. `false` when the
    /// silence has lasted for as long as it may.
    fn keep_alive<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) -> bool {
        let tcb = &mut self.records[id as usize].tcb;
        if !tcb.flags.has(Flags::KEEPING) {
            tcb.flags.set(Flags::KEEPING);
            (tcb.retries, tcb.backoff) = (0, 0);
        }
        let silent = u64::from(self.settings.silence_ms) * (u64::from(tcb.backoff) + 1);
        if silent >= u64::from(self.settings.idle_ms) || tcb.backoff == u8::MAX {
            tcb.stop_keeping();
            return false;
        }
        if tcb.retries >= self.settings.probes {
            self.send_reset(port, id, now);
            self.close(id, CloseReason::TimedOut);
            return true;
        }
        tcb.backoff += 1;
        self.arm(id, now, self.settings.silence_ms);
        self.send_keep_alive(port, id, now);
        true
    }

    /// Asks an application again that had found no room. The peer has been
    /// silent since `rtt_at`: nothing is in flight that could be timed.
    fn wait_for_room<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.offer_again(port, id, now);
        let idle = self.settings.idle_ms;
        let tcb = &mut self.records[id as usize].tcb;
        let waited = now.micros.wrapping_sub(tcb.rtt_at) / 1000;
        if !tcb.flags.has(Flags::WANTS_ROOM) {
            self.arm(id, now, idle);
        } else if waited < idle.min(MAX_ROOM_WAIT_MS) {
            let next = waited.clamp(ROOM_RETRY_MS, MAX_ROOM_RETRY_MS);
            self.arm(id, now, next);
        } else {
            tcb.flags.clear(Flags::WANTS_ROOM);
            tcb.flags.set(Flags::CLOSE);
            self.counters.idle_closed += 1;
            // What it has not taken it never will.
            self.offer_buffered(port, id, now);
            self.arm(id, now, idle);
        }
    }
}
