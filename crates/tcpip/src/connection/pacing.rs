//! Spreading segments over the round trip, where that is asked for, or a window
//! opens at once. What may leave is worked out once a pass, in ticks of the event
//! loop's timers.

use super::{Flags, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;

/// The granularity of pacing, in microseconds: a tick of the timers.
const PACING_TICK: u32 = 1_000;
/// However slow the rate, a segment does not hold up the next for longer, in
/// microseconds.
const MAX_PACING_DEBT: u32 = 1_000_000;

/// Bytes of new data a second that may leave, if they are spread.
#[inline(always)]
pub(super) fn pacing_rate<C: CongestionControl>(
    tcb: &Tcb,
    congestion: &C,
    pacing: bool,
) -> Option<u64> {
    match congestion.pacing_rate() {
        None if pacing => window_rate(tcb, congestion),
        rate => rate,
    }
}

/// A window a round trip, and some more, so that it is not pacing which limits:
/// twice in slow start, 1.2 times later.
#[cold]
fn window_rate<C: CongestionControl>(tcb: &Tcb, congestion: &C) -> Option<u64> {
    let srtt = u64::from(tcb.rtt.smoothed());
    let window = u64::from(congestion.window());
    let opens = tcb.flags.has(Flags::SPREAD);
    let fifths = if opens || congestion.window() < congestion.ssthresh() {
        10
    } else {
        6
    };
    (srtt > 0).then(|| (window * fifths * 200_000 / srtt).max(1))
}

/// Bytes that may leave now at `rate` bytes a second: what a tick of the timer
/// is worth, less what was sent ahead, and a segment at least when nothing
/// was.
#[cold]
pub(super) fn budget(tcb: &Tcb, rate: u64, now: Moment) -> u32 {
    let Some(time) = PACING_TICK
        .checked_sub(ahead(tcb, now))
        .filter(|time| *time > 0)
    else {
        return 0;
    };
    let bytes = rate.saturating_mul(time.into()) / 1_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(tcb.mss.into())
}

/// `bytes` have left.
#[cold]
pub(super) fn spend(tcb: &mut Tcb, rate: u64, bytes: u32, now: Moment) {
    let micros = u64::from(bytes) * 1_000_000 / rate.max(1);
    let micros = micros.min(u64::from(MAX_PACING_DEBT)) as u32;
    let until = ahead(tcb, now).saturating_add(micros).min(MAX_PACING_DEBT);
    tcb.paced_until = now.micros.wrapping_add(until);
}

/// Whole milliseconds until there is a budget again, when there is none.
#[cold]
pub(super) fn pause(tcb: &Tcb, now: Moment) -> Option<u32> {
    let pause = ahead(tcb, now) / PACING_TICK;
    (pause > 0).then_some(pause)
}

/// Microseconds that what has left is worth yet.
fn ahead(tcb: &Tcb, now: Moment) -> u32 {
    let ahead = tcb.paced_until.wrapping_sub(now.micros);
    // More than that is a clock that has wrapped meanwhile.
    if ahead > MAX_PACING_DEBT { 0 } else { ahead }
}
