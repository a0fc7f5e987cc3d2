//! The ACK field: what has arrived, what is lost, how much more may be sent.

use nmio::Port;

use crate::app::{Application, CloseReason};
use crate::config::Settings;
use crate::congestion::CongestionControl;
use crate::options::Block;
use crate::output::{Cut, window_to_tell};
use crate::recovery::{Recoveries, event};
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, State, Tcb};
use crate::transmit::fits_window;
use crate::wire::{Control, Segment};

/// A tail is not probed sooner, in milliseconds: the timers of many fast
/// connections would cost more than they mend.
const MIN_PROBE_MS: u32 = 10;
/// How long a peer may hold back the acknowledgement of a lone segment, in
/// milliseconds (RFC 8985, section 7.2: `TLP.max_ack_delay`).
const MAX_ACK_DELAY_MS: u32 = 200;

/// An older echo is not of anything in flight, in milliseconds.
const MAX_ECHO_MS: u32 = 600_000;

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lives,
    Over,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// The ACK field: what has arrived, and how much more may be sent. `sack`
    /// is what the segment acknowledges selectively.
    #[inline(always)]
    pub(crate) fn process_ack<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: Segment,
        sack: &[Block],
        now: Moment,
    ) -> Fate {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let acked = segment.ack.since(tcb.snd_una);
        if acked.cast_signed() > 0 {
            self.standings[id as usize].advance(acked, self.settings.pace, now);
            if tcb.recovery == NONE && sack.is_empty() {
                advance(tcb, congestion, segment, acked, now);
                let after = due_after_ack(tcb, true, &self.settings);
                if tcb.is_due_in(after, now) {
                    self.schedule(id, now);
                }
            } else {
                self.process_disorder(id, segment, sack, now);
            }
            self.update_window(id, segment, now);
            if self.retire(id) {
                self.tell_sent(port, id, now);
            }
            if self.records[id as usize].tcb.flags.has(Flags::CLOSE) {
                return self.process_fin_ack(id, now);
            }
        } else if acked == 0 {
            if tcb.flags.has(Flags::KEEPING) {
                // It is there.
                tcb.retries = 0;
            }
            if !sack.is_empty() || is_duplicate(tcb, segment) {
                self.process_same_ack(id, segment, sack, now);
            }
            self.update_window(id, segment, now);
        }
        Fate::Lives
    }

    /// An ACK of nothing new, which says that something else has arrived.
    #[cold]
    fn process_same_ack(&mut self, id: u32, segment: Segment, sack: &[Block], now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.snd_nxt != tcb.snd_una && !tcb.flags.has(Flags::PERSIST) {
            self.process_disorder(id, segment, sack, now);
        }
    }

    /// Takes what has been acknowledged out of the stream. Whether an entry
    /// of it is done with.
    #[inline(always)]
    fn retire(&mut self, id: u32) -> bool {
        let mut retired = false;
        loop {
            let tcb = &mut self.records[id as usize].tcb;
            let Some(source) = tcb.retire() else {
                return retired;
            };
            self.release_source(source);
            retired = true;
        }
    }

    /// Sets the timer after an ACK of something new (RFC 6298, 5.2 and 5.3).
    pub(crate) fn arm_after_ack(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        let is_calm = is_calm(tcb, &self.recoveries);
        let after = due_after_ack(tcb, is_calm, &self.settings);
        self.arm(id, now, after);
    }

    /// As [`timeout`], for a connection.
    #[inline(always)]
    pub(crate) fn timeout(&mut self, id: u32) -> u32 {
        let tcb = &mut self.records[id as usize].tcb;
        let is_calm = is_calm(tcb, &self.recoveries);
        timeout(tcb, is_calm, self.settings.min_rto_ms)
    }

    /// SND.WND, unless the segment is older than the one it was taken from.
    /// (RFC 9293's comparison of SND.WL2 is always true here, as older ACKs
    /// do not come this far.)
    #[inline(always)]
    fn update_window(&mut self, id: u32, segment: Segment, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        let is_newer = !segment.seq.before(tcb.snd_wl1);
        if is_newer {
            tcb.snd_wl1 = segment.seq;
            tcb.set_peer_window(segment.window);
            if tcb.snd_wnd >= 2 * u32::from(tcb.mss) {
                tcb.flags.set(Flags::WIDE);
            }
        }
        if tcb.flags.has(Flags::PERSIST) {
            // It is there (RFC 6429, section 3).
            tcb.retries = 0;
            tcb.rtt_at = now.micros;
            self.end_probing(id, is_newer && segment.window > 0, now);
        }
    }

    /// The peer's window was shut; `is_open`: it is no longer.
    #[cold]
    fn end_probing(&mut self, id: u32, is_open: bool, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.snd_una == tcb.limit() {
            // Probes have sent all that there was.
            tcb.flags.clear(Flags::PERSIST);
            tcb.backoff = 0;
            let idle = self.settings.silence_ms;
            self.arm(id, now, idle);
        } else if is_open {
            // What was sent beyond the window has most likely been dropped.
            match tcb.flight() {
                // What it had place for has arrived.
                0 => tcb.backoff = 0,
                // A probe: it goes again with what lies behind it, if that may go.
                1 if tcb.recovery == NONE => {
                    let next = Cut::at(tcb, tcb.snd_una);
                    if next.is_none_or(|cut| fits_window(tcb, &cut)) {
                        tcb.snd_nxt = tcb.snd_una;
                    }
                }
                _ => {
                    tcb.stop_probing();
                    self.send_all_again(id);
                }
            }
        }
    }

    /// After close: has our FIN been acknowledged?
    #[cold]
    fn process_fin_ack(&mut self, id: u32, now: Moment) -> Fate {
        let tcb = &mut self.records[id as usize].tcb;
        let acked = tcb.state.fin_sent() && tcb.snd_una == tcb.snd_end + 1;
        if !acked || tcb.flags.has(Flags::ABORT) {
            return Fate::Lives;
        }
        match tcb.state {
            State::FinWait1 => {
                tcb.state = State::FinWait2;
                self.arm(id, now, self.settings.fin_wait_ms);
            }
            State::Closing => self.enter_time_wait(id, now),
            State::LastAck => {
                self.close(id, CloseReason::Finished);
                return Fate::Over;
            }
            _ => {}
        }
        Fate::Lives
    }

    /// Something written has arrived as a whole.
    #[inline(always)]
    fn tell_sent<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.flags.has(Flags::WANTS_ROOM) {
            self.offer_again(port, id, now);
        } else if tcb.entries().is_empty() {
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
        }
    }

    /// A write that found no room may be tried again.
    #[cold]
    pub(crate) fn offer_again<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::WANTS_ROOM);
        loop {
            self.writes.forget_refusal();
            let (app, mut connection) = self.connection(id);
            app.on_sent(&mut connection);
            if !self.writes.was_refused(id) || !self.free_write_buffer(port, id, now) {
                break;
            }
        }
        self.offer_buffered(port, id, now);
        let tcb = &mut self.records[id as usize].tcb;
        let told = tcb.rcv_adv.since(tcb.rcv_nxt);
        let most = u32::from(u16::MAX) << tcb.own_scale();
        if window_to_tell(tcb, &self.buffers).min(most) > told {
            // The window has opened, and the peer may wait for it.
            tcb.flags.set(Flags::ACK);
        }
        self.tell_half_close(id);
    }
}

/// `acked` bytes are acknowledged for the first time, and nothing is out of
/// order.
#[inline(always)]
fn advance<C: CongestionControl>(
    tcb: &mut Tcb,
    congestion: &mut C,
    segment: Segment,
    acked: u32,
    now: Moment,
) {
    let in_flight = tcb.flight();
    tcb.snd_una = segment.ack;
    tcb.retries = 0;
    let rtt = measure(tcb, segment, now);
    // RFC 3168, section 6.1.2: an echo of congestion opens no window.
    if !segment.control.has(Control::ECE) || !tcb.flags.has(Flags::ECN) {
        congestion.on_ack(acked, &event(tcb, in_flight, rtt, now));
    }
}

/// In how many milliseconds something is due after an ACK of something new;
/// `is_calm` as for [`timeout`].
#[inline(always)]
fn due_after_ack(tcb: &mut Tcb, is_calm: bool, settings: &Settings) -> u32 {
    if tcb.snd_nxt == tcb.snd_una && !tcb.flags.has(Flags::PERSIST) {
        // (Whatever the deadline was for, it is for silence now.)
        settings.silence_ms
    } else {
        timeout(tcb, is_calm, settings.min_rto_ms)
    }
}

/// Whether nothing of what is in flight is known to be out of order.
#[inline(always)]
fn is_calm<C: CongestionControl>(tcb: &Tcb, recoveries: &Recoveries<C>) -> bool {
    tcb.recovery == NONE || recoveries.get(tcb.recovery).is_calm()
}

/// When something must be done about what is in flight, in milliseconds: sent
/// again, or, while all `is_calm`, its tail probed.
#[inline(always)]
fn timeout(tcb: &mut Tcb, is_calm: bool, min_rto_ms: u32) -> u32 {
    let rto = tcb.rto(min_rto_ms);
    tcb.flags.clear(Flags::PROBE_TAIL | Flags::PACED);
    let is_measured = tcb.rtt.smoothed() > 0;
    let may_probe = tcb.flags.has(Flags::SACK) && is_measured && tcb.backoff == 0;
    if !may_probe || !is_calm || tcb.flags.has(Flags::PERSIST) {
        return rto;
    }
    tcb.flags.set(Flags::PROBE_TAIL);
    // RFC 8985, section 7.2.
    let mut probe = (tcb.rtt.smoothed() / 500).max(MIN_PROBE_MS);
    if tcb.flight() <= u32::from(tcb.mss) {
        probe += MAX_ACK_DELAY_MS;
    }
    probe.min(rto)
}

/// Whether an ACK of nothing new is a duplicate (RFC 5681, section 2).
#[inline(always)]
pub(crate) fn is_duplicate(tcb: &Tcb, segment: Segment) -> bool {
    segment.len == 0
        && tcb.snd_nxt != tcb.snd_una
        && tcb.peer_window(segment.window) == tcb.snd_wnd
        && !segment.control.has(Control::FIN)
}

/// Takes a measurement of the round trip from an acknowledgement of something
/// new, if it tells one; in microseconds, or 0.
#[inline(always)]
pub(crate) fn measure(tcb: &mut Tcb, segment: Segment, now: Moment) -> u32 {
    if tcb.flags.has(Flags::TIMING) && !segment.ack.before(tcb.rtt_seq) {
        return end_timing(tcb, now);
    }
    // The echo is as fine as its clock, and there is one for each
    // acknowledgement: it only helps out where nothing else is timed.
    match segment.timestamps {
        Some(timestamps) if tcb.flags.has(Flags::TIMESTAMPS) => echoed(tcb, timestamps.echo, now),
        _ => 0,
    }
}

/// The same from a selective acknowledgement, of which the echo tells nothing.
pub(crate) fn measure_selective(tcb: &mut Tcb, sack: &[Block], now: Moment) -> u32 {
    let timed = tcb.rtt_seq;
    let mut blocks = sack.iter();
    if tcb.flags.has(Flags::TIMING)
        && blocks.any(|(start, end)| start.before(timed) && !end.before(timed))
    {
        return end_timing(tcb, now);
    }
    0
}

/// What was timed has arrived.
#[inline(always)]
pub(crate) fn end_timing(tcb: &mut Tcb, now: Moment) -> u32 {
    tcb.flags.clear(Flags::TIMING);
    tcb.backoff = 0;
    let rtt = now.micros.wrapping_sub(tcb.rtt_at);
    tcb.rtt.sample(rtt);
    rtt
}

/// The round trip that an echo tells, in microseconds; 0 when it tells none. It
/// was up to a millisecond shorter, and the shortest of several is about right.
#[inline]
fn echoed(tcb: &mut Tcb, echo: u32, now: Moment) -> u32 {
    let millis = tcb.ts_clock(now).wrapping_sub(echo);
    if echo == 0 || millis == 0 || millis > MAX_ECHO_MS {
        return 0;
    }
    if !tcb.flags.has(Flags::TIMING) {
        tcb.backoff = 0;
        tcb.rtt.sample(millis * 1000);
    }
    millis * 1000 + now.past_millis()
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
