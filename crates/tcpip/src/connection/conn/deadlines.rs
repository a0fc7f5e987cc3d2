//! Deadlines of a connection, and what happens when they expire.

use super::{Conn, DeadlineKind, Flags, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{PACING_TICK, Plan, SegmentKind};
use crate::outcome::Expiry;

/// Initial delay in milliseconds until an application that waits for room is called again.
///
/// The delay applies if nothing is in flight, because otherwise the next ACK triggers the call.
/// Each later delay equals the time waited so far, up to [`MAX_ROOM_RETRY_MS`], so that many
/// waiting applications cost little.
const ROOM_RETRY_MS: u32 = 20;
/// Maximum delay in milliseconds until an application that waits for room is called again.
const MAX_ROOM_RETRY_MS: u32 = 1_000;
/// Maximum wait for room in milliseconds, because the microsecond clock that measures the wait
/// wraps around soon afterwards.
const MAX_ROOM_WAIT_MS: u32 = 3_600_000;
/// Maximum time in milliseconds for which a peer with a zero window may stay silent. The
/// microsecond clock that measures this time wraps around soon afterwards.
const MAX_PERSIST_MS: u32 = 3_600_000;

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes an expired timer. If the deadline was postponed meanwhile, only records that the
    /// timer has expired needlessly. An inherited timer does not count.
    pub(crate) fn on_deadline(&mut self, now: Moment) -> Expiry {
        if self.tcb.deadline.wrapping_sub(now.millis).cast_signed() > 0 {
            if !self.tcb.flags.intersects(Flags::INHERITED_TIMER) {
                self.on_needless_timer();
            }
            return Expiry::Wait;
        }
        match self.tcb.deadline_kind {
            DeadlineKind::Handshake => self.on_handshake_timeout(now),
            DeadlineKind::TimeWait => Expiry::Forget,
            DeadlineKind::FinWait => Expiry::TimeOut,
            DeadlineKind::ZeroWindow => self.on_zero_window(now),
            DeadlineKind::Pacing => {
                if let Some(pause) = self.tcb.pacing_delay(now) {
                    self.tcb.arm(DeadlineKind::Pacing, pause, now);
                    return Expiry::Wait;
                }
                let is_in_order = self.is_in_order();
                self.arm_after_ack(is_in_order, now);
                Expiry::Transmit
            }
            DeadlineKind::Idle | DeadlineKind::KeepAlive => self.on_idle_deadline(now),
            DeadlineKind::Retransmit if self.tcb.snd_wnd == 0 => self.begin_zero_window(now),
            DeadlineKind::TailProbe | DeadlineKind::Reordering | DeadlineKind::Retransmit => {
                self.on_loss_deadline(now)
            }
        }
    }

    /// Returns the RTO, and the time since the last segment if nothing is in flight, both in
    /// milliseconds.
    pub(crate) fn waits(&self, now: Moment) -> (u32, u32) {
        let waited_for = match self.tcb.deadline_kind {
            DeadlineKind::Idle if !self.tcb.flags.intersects(Flags::WANTS_ROOM | Flags::CLOSE) => 1,
            DeadlineKind::KeepAlive => u32::from(self.tcb.backoff) + 1,
            _ => 0,
        };
        let end = waited_for.saturating_mul(self.cx.settings.first_idle_ms);
        let left = self.tcb.deadline.wrapping_sub(now.millis).cast_signed();
        let idle = end.saturating_sub(left.max(0).unsigned_abs());
        (self.rto(), idle)
    }

    /// Records that a timer has expired needlessly.
    ///
    /// The timer of an active connection expires about once per initial minimum RTO. After three
    /// such timers, one of which may belong to the handshake, the peer has been observed for long
    /// enough to adapt the minimum RTO.
    fn on_needless_timer(&mut self) {
        for needless in [Flags::NEEDLESS_TIMER, Flags::NEEDLESS_TIMER_TWICE] {
            if !self.tcb.flags.intersects(needless) {
                self.tcb.flags |= needless;
                return;
            }
        }
        self.adapt_min_rto();
    }

    fn on_handshake_timeout(&mut self, now: Moment) -> Expiry {
        let tcb = &mut *self.tcb;
        if tcb.retries >= self.cx.settings.syn_ack_retries {
            self.cx.counters.handshakes_failed += 1;
            return Expiry::Forget;
        }
        tcb.retries += 1;
        tcb.backoff += 1;
        tcb.flags |= Flags::SYN_ACK_RETRANSMITTED;
        tcb.flags -= Flags::TIMING;
        // RFC 6298, 5.7, raises the timeout to three seconds only for data, not for the SYN-ACK.
        let min_rto = self.cx.settings.min_rto_ms;
        let rto = tcb.rtt.timeout(tcb.backoff, false, min_rto);
        tcb.arm(DeadlineKind::Handshake, rto, now);
        Expiry::SynAck
    }

    /// Starts probing a window that the peer has closed while data was in flight.
    fn begin_zero_window(&mut self, now: Moment) -> Expiry {
        self.tcb.flags -= Flags::TIMING;
        self.tcb.rtt_at = now.micros;
        self.tcb.deadline_kind = DeadlineKind::ZeroWindow;
        self.on_zero_window(now)
    }

    fn on_zero_window(&mut self, now: Moment) -> Expiry {
        let left = self.persist_time_left(now);
        if self.tcb.retries >= self.cx.settings.probes || left == 0 {
            return Expiry::Reset;
        }
        Expiry::ProbeWindow(self.probe_window(now))
    }

    /// Returns a window probe: as much of the next segment as fits into the peer's window, but at
    /// least one byte or the FIN.
    fn probe_window(&self, now: Moment) -> Plan {
        let max_len = self.tcb.snd_wnd.clamp(1, u32::from(self.tcb.mss));
        self.plan(SegmentKind::WindowProbe, self.tcb.snd_una, max_len, 0, now)
    }

    /// Returns the zero-window probe that found no room in the TX ring, if it is still needed.
    pub(crate) fn pending_probe(&mut self, now: Moment) -> Option<Plan> {
        if !self.tcb.flags.intersects(Flags::PROBE_PENDING) {
            return None;
        }
        self.tcb.flags -= Flags::PROBE_PENDING;
        let probes = self.tcb.probes_window();
        probes.then(|| self.probe_window(now))
    }

    /// Sets the deadline to the next zero-window probe.
    ///
    /// If `is_sent` is false, the last probe found no room in the TX ring, and is sent as soon as
    /// there is room. The interval then stays the same, because it grows only after a probe that
    /// was sent.
    pub(crate) fn arm_window_probe(&mut self, is_sent: bool, now: Moment) {
        if !is_sent {
            self.tcb.flags |= Flags::PROBE_PENDING;
        }
        let left = self.persist_time_left(now);
        let max_interval = self.cx.settings.max_probe_interval_ms;
        let interval = self.tcb.probe_interval(self.cx.settings.min_rto_ms);
        let interval = interval.min(max_interval).min(left.max(1));
        self.tcb.arm(DeadlineKind::ZeroWindow, interval, now);
    }

    /// Returns the time in milliseconds until the user timeout ends a connection whose peer has a
    /// zero window. Returns `u32::MAX` if there is no user timeout.
    fn persist_time_left(&self, now: Moment) -> u32 {
        let user_timeout = self.cx.settings.user_timeout_ms;
        if user_timeout == u32::MAX {
            return u32::MAX;
        }
        let idle_for = now.micros.wrapping_sub(self.tcb.rtt_at) / 1000;
        user_timeout.min(MAX_PERSIST_MS).saturating_sub(idle_for)
    }

    /// Processes a deadline that expires while nothing is in flight.
    fn on_idle_deadline(&mut self, now: Moment) -> Expiry {
        let (first_idle, idle) = (self.cx.settings.first_idle_ms, self.cx.settings.idle_ms);
        if self.tcb.flags.intersects(Flags::WANTS_ROOM) {
            return Expiry::OfferAgain;
        }
        if self.has_new() {
            // There is unsent data but nothing in flight, because the TX ring was full.
            self.tcb.arm(DeadlineKind::Idle, idle, now);
            return Expiry::Transmit;
        }
        if first_idle < idle
            && let Some(expiry) = self.keep_alive(now)
        {
            return expiry;
        }
        // Our side is not closed yet: otherwise a FIN would be in flight.
        self.close_idle(now)
    }

    /// Closes our side after the idle timeout.
    fn close_idle(&mut self, now: Moment) -> Expiry {
        self.tcb.flags -= Flags::WANTS_ROOM;
        self.tcb.flags |= Flags::CLOSE;
        self.cx.counters.idle_closed += 1;
        self.tcb
            .arm(DeadlineKind::Idle, self.cx.settings.idle_ms, now);
        Expiry::CloseIdle
    }

    /// Returns a keep-alive to send (RFC 1122, section 4.2.3.6). Returns a reset if the peer has
    /// not answered the configured number of keep-alives. Returns `None` if the idle timeout or 255
    /// intervals have passed.
    fn keep_alive(&mut self, now: Moment) -> Option<Expiry> {
        let settings = &self.cx.settings;
        let tcb = &mut *self.tcb;
        if tcb.deadline_kind != DeadlineKind::KeepAlive {
            tcb.deadline_kind = DeadlineKind::KeepAlive;
            (tcb.retries, tcb.backoff) = (0, 0);
        }
        let idle_for = u64::from(settings.first_idle_ms) * (u64::from(tcb.backoff) + 1);
        if idle_for >= u64::from(settings.idle_ms) || tcb.backoff == u8::MAX {
            (tcb.retries, tcb.backoff) = (0, 0);
            return None;
        }
        if tcb.retries >= settings.probes {
            return Some(Expiry::Reset);
        }
        tcb.backoff += 1;
        tcb.arm(DeadlineKind::KeepAlive, settings.first_idle_ms, now);
        Some(Expiry::KeepAlive)
    }

    /// Sets a deadline to call an application that waits for room, if nothing is in flight and the
    /// peer's window is not probed. Otherwise the next ACK triggers the call.
    pub(crate) fn wait_for_room(&mut self, now: Moment) {
        let waits = self.tcb.waits_for_room() && self.tcb.state != State::Closed;
        if waits && !self.tcb.probes_window() {
            self.tcb.rtt_at = now.micros;
            self.tcb.arm(DeadlineKind::Idle, ROOM_RETRY_MS, now);
        }
    }

    /// Sets the next deadline after an application that waits for room was called again. If the
    /// wait has lasted for the idle timeout, closes our side.
    ///
    /// `rtt_at` holds the start of the wait, because no segment is timed while nothing is in
    /// flight.
    pub(crate) fn has_offered_again(&mut self, now: Moment) -> Expiry {
        let idle = self.cx.settings.idle_ms;
        let waited = now.micros.wrapping_sub(self.tcb.rtt_at) / 1000;
        if !self.tcb.flags.intersects(Flags::WANTS_ROOM) {
            self.tcb.arm(DeadlineKind::Idle, idle, now);
        } else if waited < idle.min(MAX_ROOM_WAIT_MS) {
            let next = waited.clamp(ROOM_RETRY_MS, MAX_ROOM_RETRY_MS);
            self.tcb.arm(DeadlineKind::Idle, next, now);
        } else {
            return self.close_idle(now);
        }
        Expiry::Transmit
    }
}

impl Tcb {
    /// Returns the whole milliseconds until the pacing budget is positive again, or `None` if the
    /// budget is positive now.
    #[cold]
    fn pacing_delay(&self, now: Moment) -> Option<u32> {
        let pause = self.pacing_debt(now) / PACING_TICK;
        (pause > 0).then_some(pause)
    }

    /// Returns true if the application waits for room while nothing is in flight.
    #[inline(always)]
    fn waits_for_room(&self) -> bool {
        self.flags.intersects(Flags::WANTS_ROOM) && self.flight() == 0
    }
}
