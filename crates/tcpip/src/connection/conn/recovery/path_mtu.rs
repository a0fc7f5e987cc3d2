//! Path MTU discovery: by ICMP (RFC 1191, RFC 8201), and by probes (PLPMTUD: RFC 4821, RFC
//! 8899).
//!
//! Once the segment size was reduced, probes look for a larger size, because the path may change
//! and routers may not report its MTU. A probe carries data that has to be sent anyway, in a
//! segment that is larger than the others. If only the probe is lost, the path MTU is the cause,
//! not congestion.

use ip::Ecn;

use super::MtuProbe;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::conn::Conn;
use crate::connection::{Flags, NONE, Plan, SegmentKind, State, StreamSegment};
use crate::content::{Contents, Family};
use crate::mss::OwnMss;
use crate::wire::{Seq, TIMESTAMPS_LEN};

/// Common path MTUs, ascending: the IPv6 minimum, several tunnels, Ethernet, and larger frames.
/// After a reduction of the segment size, probes try these MTUs.
const COMMON_MTUS: [u16; 8] = [1_280, 1_400, 1_440, 1_476, 1_492, 1_500, 4_352, 8_980];
/// MTU to try first after a black hole (RFC 8899, section 5.1.2). If segments of this size vanish
/// too, the minimum that every host accepts is used.
const BASE_MTU: u16 = 1_280;
/// Number of consecutive timeouts of one segment that indicate a black hole, for the first and for
/// the second reduction.
const BLACK_HOLE_TIMEOUTS: [u8; 2] = [3, 5];
/// Time in seconds until a larger MTU is probed, after an ICMP report (RFC 1191, section 6.3) or
/// when all probes have failed.
const RAISE_AFTER_S: u16 = 600;
/// Time in seconds until a larger MTU is probed after a black hole.
const PROBE_AFTER_S: u16 = 1;
/// Number of segments that must be ready to follow a probe, so that their ACKs reveal a loss of the
/// probe.
const SEGMENTS_BEHIND: u32 = 4;

/// Returns the current time in seconds, on a clock that wraps around after 18 hours.
fn seconds(now: Moment) -> u16 {
    (now.whole_micros / 1_000_000) as u16
}

/// Returns the payload in bytes of a full segment with timestamps, at an MTU of `mtu` bytes.
fn payload(mtu: usize, family: Family) -> u16 {
    let payload = mtu.saturating_sub(family.headers() + TIMESTAMPS_LEN);
    payload.min(usize::from(u16::MAX)) as u16
}

/// Returns the payload in bytes that every host must accept (RFC 1122, RFC 8200). A report of a
/// smaller MTU would be an attempt to make us send tiny segments.
fn min_payload(family: Family) -> u16 {
    OwnMss::advertised_or_default(family, None) - TIMESTAMPS_LEN as u16
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Processes a router's report that the segment at `sequence` exceeded `mtu`. Returns true if
    /// the report is plausible.
    ///
    /// A plausible report concerns data in flight and reduces the segment size (RFC 5927).
    pub(crate) fn on_too_big(&mut self, mtu: u32, sequence: u32, now: Moment) -> bool {
        let tcb = &*self.tcb;
        let family = Family::of(&tcb.path.addresses);
        let mss = payload(mtu as usize, family).max(min_payload(family));
        let about = Seq(sequence).since(tcb.snd_una);
        if !tcb.state.sends() || mss >= tcb.mss || about >= tcb.flight() {
            return false;
        }
        self.reduce_mss(mss, now, RAISE_AFTER_S);
        // All segments in flight may be too large, not only the reported one.
        self.retransmit_all();
        true
    }

    /// After a timeout, reduces the segment size if large segments seem to vanish without an ICMP
    /// report (a path MTU black hole).
    pub(super) fn suspect_black_hole(&mut self, now: Moment) {
        let tcb = &*self.tcb;
        if !BLACK_HOLE_TIMEOUTS.contains(&tcb.retries) {
            return;
        }
        let family = Family::of(&tcb.path.addresses);
        let base = payload(BASE_MTU.into(), family);
        let smaller = if tcb.mss > base {
            base
        } else if tcb.flags.intersects(Flags::REDUCED_MTU) {
            min_payload(family)
        } else {
            return;
        };
        // If the segment that timed out is already small enough, its size is not the cause.
        let len = StreamSegment::segment_len(tcb, tcb.snd_una, &self.cx.lists);
        if smaller < tcb.mss && u32::from(smaller) < len {
            self.reduce_mss(smaller, now, PROBE_AFTER_S);
            self.cx.counters.black_holes += 1;
        }
    }

    fn reduce_mss(&mut self, mss: u16, now: Moment, raise_after: u16) {
        self.set_mss(mss);
        let tcb = &mut *self.tcb;
        tcb.flags |= Flags::REDUCED_MTU;
        tcb.flags -= Flags::TIMING | Flags::MTU_PROBE_LOST | Flags::MTU_PROBE_LOST_TWICE;
        tcb.mss_too_big = 0;
        tcb.raise_at = seconds(now).wrapping_add(raise_after);
    }

    /// Sets the segment size, and unsets the class until the stack finds one for this size.
    fn set_mss(&mut self, mss: u16) {
        self.tcb.mss = mss;
        let class = std::mem::replace(&mut self.tcb.class, Contents::NO_CLASS);
        self.cx.old_class.get_or_insert(class);
    }

    /// Returns a path MTU probe if the time for one has come, and enough data follows. Returns `None`
    /// while data is lost or out of order. Called only if the segment size was reduced.
    pub(crate) fn next_mtu_probe(&mut self, now: Moment) -> Option<Plan> {
        let size = u32::from(self.next_size(now)?);
        let tcb = &*self.tcb;
        let seq = tcb.snd_nxt;
        let reach = self.congestion.window().min(tcb.snd_wnd);
        let behind = size + SEGMENTS_BEHIND * u32::from(tcb.mss);
        let fits = tcb.flight().saturating_add(size) <= reach;
        let enough = reach >= behind && tcb.stream.end().since(seq) >= behind;
        let segment = StreamSegment::at(tcb, seq, &self.cx.lists)?;
        if !fits || !enough || segment.slice.len < size {
            return None;
        }
        Some(Plan {
            kind: SegmentKind::MtuProbe,
            header: self.header(seq, now),
            ecn: Ecn::NotEct,
            slice: segment.slice,
            len: size,
            prepared: None,
            is_run: false,
        })
    }

    /// Records that a path MTU probe was sent.
    pub(in crate::connection::conn) fn has_probed_mtu(&mut self, plan: &Plan, now: Moment) {
        let index = self.begin_recovery();
        let (start, end) = plan.range();
        let is_first = self.tcb.flight() == 0;
        self.has_sent_to(end);
        self.cx.recoveries[index].mtu_probe = Some(MtuProbe { start, end });
        self.cx.counters.mtu_probes += 1;
        if is_first {
            // Sending data starts the retransmission timer (RFC 6298, 5.1).
            let (kind, after) = self.timeout();
            self.tcb.arm(kind, after, now);
        }
    }

    /// Returns the next larger payload to probe, or `None` if no probe may be sent now or no size
    /// is left to probe.
    fn next_size(&mut self, now: Moment) -> Option<u16> {
        let tcb = &mut *self.tcb;
        let is_time = seconds(now).wrapping_sub(tcb.raise_at).cast_signed() >= 0;
        if !is_time || tcb.recovery != NONE || tcb.state != State::Established {
            return None;
        }
        let family = Family::of(&tcb.path.addresses);
        let max = tcb.mss_max;
        let fails = if tcb.mss_too_big == 0 {
            u16::MAX
        } else {
            tcb.mss_too_big
        };
        let known = COMMON_MTUS
            .iter()
            .map(|mtu| payload(usize::from(*mtu), family));
        let mut candidates = known.filter(|size| *size < max).chain([max]);
        let next = candidates.find(|size| *size > tcb.mss && *size < fails);
        if next.is_none() {
            if tcb.mss == max {
                tcb.flags -= Flags::REDUCED_MTU;
            } else {
                // All sizes have failed. Probes try them again later, because paths change.
                tcb.mss_too_big = 0;
                tcb.raise_at = seconds(now).wrapping_add(RAISE_AFTER_S);
            }
        }
        next
    }

    /// Records the outcome of a probe of `size` bytes. Congestion can also cause a loss, so a size
    /// counts as too large only after the third lost probe (RFC 8899, section 5.1.2, `MAX_PROBES`).
    #[cold]
    pub(super) fn end_mtu_probe(&mut self, size: u16, arrived: bool) {
        let tcb = &mut *self.tcb;
        for lost in [Flags::MTU_PROBE_LOST, Flags::MTU_PROBE_LOST_TWICE] {
            if !arrived && !tcb.flags.intersects(lost) {
                tcb.flags |= lost;
                return;
            }
        }
        tcb.flags -= Flags::MTU_PROBE_LOST | Flags::MTU_PROBE_LOST_TWICE;
        if arrived {
            self.set_mss(size);
            self.cx.counters.path_mtu_raises += 1;
        } else {
            tcb.mss_too_big = size;
        }
    }
}
