//! Work that no segment causes: deadlines, connections that wait for the TX ring, messages, freeing
//! memory, and access to connections outside their callbacks.

use std::time::Duration;

use nmio::{Instant, Port};

use super::{Accessed, Alarm, Connections, Stack, Timer};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags, Plan, State};
use crate::outcome::{ControlSegment, Expiry};
use crate::stack::Application;

/// Maximum time until the event loop tries again to send while connections wait for the TX ring. A
/// 10 Gb/s port sends about a hundred full-sized packets in this time.
const BLOCKED_RETRY: Duration = Duration::from_micros(125);

/// Maximum number of packets with new data that a connection sends in one turn while others wait
/// for the TX ring. With fewer packets, long responses have more turns than their clients need.
/// With more, a round of all waiting connections takes longer than a client's delayed ACK.
const FAIR_SHARE: usize = 32;

/// Interval over which the use of the pools is measured. Memory that was not needed for one to two
/// intervals is freed.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of slots per pool whose memory one call of `Stack::trim` frees, so that the call
/// is short.
const TRIM_STEP: usize = 32;
/// Pause after a call of `Stack::trim` that may have left unneeded memory, before the next call.
const TRIM_PAUSE: Duration = Duration::from_millis(10);

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Returns the time by which [`handle_timers`](Self::handle_timers) must be called next.
    /// Returns `None` if there is nothing to wait for. A timer of a connection that has ended is
    /// still waited for, unless the next connection of its TCB has replaced it.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.sources.contents.is_freeing() {
            return Some(self.now);
        }
        if !self.blocked.is_empty() {
            // The port gives no notice when its TX ring has room again, so poll it.
            return Some(self.now + BLOCKED_RETRY);
        }
        let app_timer = self.requests.timers.next();
        let due = Instant::earlier(self.wheel.next_deadline(), app_timer);
        let (cx, writes) = (&self.cx, &self.sources.writes);
        if cx.buffers.has_surplus() || writes.has_surplus() || cx.lists.has_surplus() {
            return Instant::earlier(due, Some(self.trim_at));
        }
        due
    }

    /// Handles deadlines and timers that have expired at `now`. Resumes connections that wait for
    /// the TX ring. Frees some resident packets of contents that are gone.
    #[inline]
    pub fn handle_timers<P: Port>(&mut self, port: &mut P, now: Instant) {
        self.now = now;
        if !self.blocked.is_empty() {
            self.resume_blocked(port, Moment::from(now));
        }
        while let Some(id) = self.wheel.pop_expired(now) {
            self.handle_expired(port, id, Moment::from(now));
        }
        if self.requests.timers.has_passed(now) {
            self.handle_timer(port, now);
        }
        if now >= self.trim_at {
            self.trim(now);
        }
        self.sources.contents.free_some();
    }

    /// Calls `on_timer` for each expired timer of the application. A timer that is set in one of
    /// these callbacks is not handled before the next call of this method.
    #[cold]
    fn handle_timer<P: Port>(&mut self, port: &mut P, now: Instant) {
        for timer in self.requests.timers.take_passed(now) {
            self.reach(port, now, |app, connections| {
                app.on_timer(connections, Timer::new(timer));
            });
        }
    }

    /// Calls `act` with the application and all of its connections. Afterwards, sends data and
    /// closes connections as `act` has requested. An application can thus answer a request later,
    /// for example when a back-end delivers the answer.
    ///
    /// Pass the same port as in all other calls, and a `now` that does not decrease.
    pub fn reach<P: Port, R>(
        &mut self,
        port: &mut P,
        now: Instant,
        act: impl FnOnce(&mut A, &mut Connections<'_, A::State, C>) -> R,
    ) -> R {
        self.now = now;
        self.requests.exhausted_pool = None;
        let mut connections = Connections {
            table: &mut self.table,
            sources: &mut self.sources,
            cx: &mut self.cx,
            requests: &mut self.requests,
            now,
        };
        let result = act(&mut self.app, &mut connections);
        while let Some(id) = self.requests.accessed.pop() {
            self.finish_accessed(port, id, Moment::from(now));
        }
        result
    }

    /// Finishes the processing of a connection that the application accessed in
    /// [`reach`](Self::reach).
    fn finish_accessed<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let before = std::mem::replace(&mut self.housekeeping(id).accessed, Accessed::No);
        if self.tcb(id).state == State::Closed {
            // It has given way to another accessed connection.
            return;
        }
        if before == Accessed::Idle && !self.tcb(id).stream.is_empty() {
            self.housekeeping(id).renew(now);
        }
        self.finish_callback(port, id, now);
        self.reschedule_if_late(id, now);
    }

    /// Passes a message from another thread to the application. The conditions of
    /// [`reach`](Self::reach) apply.
    pub fn handle_message<P: Port>(&mut self, port: &mut P, message: A::Message, now: Instant) {
        self.reach(port, now, |app, connections| {
            app.on_message(connections, message);
        });
    }

    /// Passes all messages in the [mailbox](Self::set_mailbox) to the application.
    pub fn handle_messages<P: Port>(&mut self, port: &mut P, now: Instant) {
        if let Some(mut mailbox) = self.mailbox.take() {
            mailbox.take_all(|message| self.handle_message(port, message, now));
            self.mailbox = Some(mailbox);
        }
    }

    /// Frees a limited amount of pool memory that was not needed since the last measurement began:
    /// see [`TRIM_INTERVAL`].
    #[cold]
    fn trim(&mut self, now: Instant) {
        for _ in 0..TRIM_STEP {
            let (buffers, lists) = (&mut self.cx.buffers, &mut self.cx.lists);
            let writes = &mut self.sources.writes;
            if !(buffers.trim() | writes.trim() | lists.trim()) {
                buffers.reset_peak();
                writes.reset_peak();
                lists.reset_peak();
                self.trim_at = now + TRIM_INTERVAL;
                return;
            }
        }
        self.trim_at = now + TRIM_PAUSE;
    }

    #[cold]
    fn handle_expired<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        if self.tcb(id).state == State::Closed {
            // The connection ended before its entry in the timer wheel expired.
            return;
        }
        // The entry has expired, so the call of `schedule` below adds a new one.
        if let Alarm::At(due) = self.housekeeping(id).alarm
            && has_passed(due, now)
        {
            self.handle_app_deadline(port, id, now);
        }
        if self.tcb(id).state != State::Closed {
            self.handle_deadline(port, id, now);
        }
        self.schedule(id, now);
    }

    /// Handles a connection's deadline, unless it was postponed meanwhile.
    fn handle_deadline<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.ensure_space(id);
        let expiry = self.conn(id).on_deadline(now);
        self.settle_losses(id);
        self.apply_expiry(port, id, expiry, now);
    }

    /// Carries out what `expiry` says, then sends everything that may be sent.
    fn apply_expiry<P: Port>(&mut self, port: &mut P, id: u32, expiry: Expiry, now: Moment) {
        match expiry {
            Expiry::Wait => return,
            Expiry::Transmit => {}
            Expiry::Forget => self.forget(id),
            Expiry::TimeOut => self.close(id, CloseReason::TimedOut),
            Expiry::Reset => {
                self.send_reset(port, id, now);
                self.close(id, CloseReason::TimedOut);
            }
            // If the TX ring is full, the next deadline sends the segment.
            Expiry::SynAck => drop(self.send_control(port, id, ControlSegment::SynAck, now)),
            // If the TX ring is full, the retransmission timeout sends the segment.
            Expiry::Send(plan) => drop(self.send(port, id, &plan, now)),
            Expiry::ProbeWindow(plan) => self.probe_window(port, id, &plan, now),
            Expiry::KeepAlive => drop(self.send_control(port, id, ControlSegment::KeepAlive, now)),
            Expiry::OfferAgain => {
                self.offer_again(port, id, now);
                let next = self.conn(id).has_offered_again(now);
                return self.apply_expiry(port, id, next, now);
            }
            // Our side is now closed, so this call discards data that the application has not
            // consumed.
            Expiry::CloseIdle => self.offer_rest(port, id, now),
        }
        self.reset_or_resume(port, id, now);
    }

    /// Completes a callback or an expired deadline. If the application has aborted the connection,
    /// sends a reset. Otherwise sends everything that may be sent.
    fn reset_or_resume<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = self.tcb(id);
        if tcb.state == State::Closed {
            return;
        }
        if tcb.flags.intersects(Flags::ABORT) {
            self.abort(port, id, now);
        } else {
            self.resume(port, id, now);
        }
    }

    /// Calls the application because the deadline that it had set for the connection has passed.
    fn handle_app_deadline<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.housekeeping(id).alarm = Alarm::Off;
        if self.tcb(id).flags.intersects(Flags::CLOSE) {
            // Our side is already closed, so the deadline no longer matters.
            return;
        }
        self.cx.counters.deadlines_missed += 1;
        let deadline = self.housekeeping(id).alarm_purpose;
        let (app, mut connection) = self.connection(id);
        app.on_deadline(&mut connection, deadline);
        self.finish_callback(port, id, now);
    }

    /// Carries out the requests of a callback that was not caused by a segment.
    fn finish_callback<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let is_closed = self.tcb(id).flags.intersects(Flags::CLOSE);
        // If our side is closed, `offer_rest` discards data that the application has not consumed.
        if is_closed || self.housekeeping(id).offers_again {
            self.offer_rest(port, id, now);
        }
        self.reset_or_resume(port, id, now);
        self.conn(id).wait_for_room(now);
    }

    /// Gives each waiting connection one turn, until the TX ring is full.
    #[cold]
    fn resume_blocked<P: Port>(&mut self, port: &mut P, now: Moment) {
        // A connection that blocks again is appended to the queue, and waits for the next call.
        for _ in 0..self.blocked.len() {
            if port.room() == 0 {
                return;
            }
            let Some(id) = self.blocked.pop_front() else {
                return;
            };
            self.housekeeping(id).is_blocked = false;
            if self.tcb(id).state == State::Closed {
                continue;
            }
            let is_alone = self.blocked.is_empty();
            let limit = if is_alone { usize::MAX } else { FAIR_SHARE };
            self.transmit_at_most(port, id, limit, now);
            self.acknowledge(port, id, now);
            if let Some(plan) = self.conn(id).pending_probe(now) {
                self.probe_window(port, id, &plan, now);
            }
            self.reschedule_if_late(id, now);
        }
    }

    /// Sends a zero window probe and arms the timer for the next one.
    fn probe_window<P: Port>(&mut self, port: &mut P, id: u32, plan: &Plan, now: Moment) {
        let sent = self.send(port, id, plan, now);
        if sent.is_err() {
            self.block(id);
        }
        self.conn(id).arm_window_probe(sent.is_ok(), now);
    }

    /// Sends the data that may be sent now, and a pending acknowledgement. If the TX ring is full,
    /// the connection waits for room.
    fn resume<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.transmit(port, id, now);
        self.acknowledge(port, id, now);
    }

    /// Sends an acknowledgement if one is pending.
    fn acknowledge<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let flags = self.tcb(id).flags;
        if flags.intersects(Flags::ACK_PENDING) {
            let sent = self.send_control(port, id, ControlSegment::Ack, now);
            if sent.is_err() {
                self.block(id);
            }
        }
    }
}

/// Returns true if a deadline in milliseconds has passed.
const fn has_passed(deadline: u32, now: Moment) -> bool {
    deadline.wrapping_sub(now.millis).cast_signed() <= 0
}
