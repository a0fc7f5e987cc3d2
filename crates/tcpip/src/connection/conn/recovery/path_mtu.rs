//! The path's MTU: told by routers (RFC 1191, RFC 8201), found out where they
//! are silent, and found again when the path gets wider (RFC 4821, RFC 8899).
//!
//! A smaller MSS takes a segment class of its own. A probe is data that has to
//! be sent anyway, in one segment that is larger than the others; if it alone
//! is lost, that is the path's width and not congestion.

use ip::Ecn;

use super::MtuProbe;
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Conn, Flags, NONE, Plan, SegmentKind, State, StreamSegment};
use crate::content::{Family, NO_CLASS};
use crate::mss::OwnMss;
use crate::wire::{Header, Seq, TIMESTAMPS_LEN};

/// MTUs that paths often have, ascending: a path that swallows large segments
/// is tried with one that is smaller, and from there upwards. What every IPv6
/// link takes, tunnels of several kinds, Ethernet, larger frames.
const SIZES: [u16; 8] = [1_280, 1_400, 1_440, 1_476, 1_492, 1_500, 4_352, 8_980];
/// After timeouts in a row the path is taken to swallow large segments: this
/// is the first MTU that is tried then (RFC 8899, section 5.1.2), and what
/// every host takes is the last.
const BASE: u16 = 1_280;
/// After how many timeouts of one segment, each time.
const BLACK_HOLE_TIMEOUTS: [u8; 2] = [3, 5];
/// Seconds until a wider path is looked for again: after a router has told the
/// width (RFC 1191, section 6.3), or all that was tried has failed.
const RAISE_AFTER_S: u16 = 600;
/// The same after the path has been found to swallow segments.
const PROBE_AFTER_S: u16 = 1;
/// A probe needs segments behind it that tell of its loss.
const SEGMENTS_BEHIND: u32 = 4;

/// A clock of seconds that wraps after 18 hours.
fn seconds(now: Moment) -> u16 {
    (now.whole_micros / 1_000_000) as u16
}

/// The payload of a full segment on a path of `mtu` bytes.
fn payload(mtu: usize, family: Family) -> u16 {
    let payload = mtu.saturating_sub(family.headers() + TIMESTAMPS_LEN);
    payload.min(usize::from(u16::MAX)) as u16
}

/// What every host must take (RFC 1122, RFC 8200); below that it is an attempt
/// to make us work.
fn least(family: Family) -> u16 {
    OwnMss::advertised_or_default(family, None) - TIMESTAMPS_LEN as u16
}

impl<C: CongestionControl> Conn<'_, C> {
    /// A router says that a segment, which began at `sequence`, was larger than
    /// `mtu`. Whether that is believed: only a smaller size is, about something
    /// in flight (RFC 5927).
    pub(crate) fn on_too_big(&mut self, mtu: u32, sequence: u32, now: Moment) -> bool {
        let tcb = &*self.tcb;
        let family = Family::of(&tcb.path.addresses);
        let mss = payload(mtu as usize, family).max(least(family));
        let about = Seq(sequence).since(tcb.snd_una);
        if !tcb.state.sends() || mss >= tcb.mss || about >= tcb.flight() {
            return false;
        }
        self.reduce_mss(mss, now, RAISE_AFTER_S);
        // What is in flight was too big: all of it goes again.
        self.retransmit_all();
        true
    }

    /// The same segment has timed out again: perhaps it is too large for the
    /// path, and nobody says so.
    pub(super) fn suspect_black_hole(&mut self, now: Moment) {
        let tcb = &*self.tcb;
        if !BLACK_HOLE_TIMEOUTS.contains(&tcb.retries) {
            return;
        }
        let family = Family::of(&tcb.path.addresses);
        let base = payload(BASE.into(), family);
        let smaller = if tcb.mss > base {
            base
        } else if tcb.flags.has(Flags::REDUCED_MTU) {
            least(family)
        } else {
            return;
        };
        // A smaller segment than that has not come through either.
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

    /// Segments of this size have no class before the stack has found one.
    fn set_mss(&mut self, mss: u16) {
        self.tcb.mss = mss;
        let class = std::mem::replace(&mut self.tcb.class, NO_CLASS);
        self.cx.old_class.get_or_insert(class);
    }

    /// One larger segment, on a path that was found narrow, when it is time and
    /// all goes well.
    #[inline(always)]
    pub(crate) fn next_mtu_probe(&mut self, now: Moment) -> Option<Plan> {
        if self.tcb.flags.has(Flags::REDUCED_MTU) {
            self.mtu_probe(now)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn mtu_probe(&mut self, now: Moment) -> Option<Plan> {
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
            header: Header {
                seq,
                ack: tcb.rcv_nxt,
                control: tcb.control(),
                window: self.window_field(),
                timestamps: tcb.timestamps(now),
            },
            ecn: Ecn::NotEct,
            slice: segment.slice,
            len: size,
            prepared: None,
            is_run: false,
        })
    }

    /// A probe of the path MTU has been sent.
    pub(in crate::connection::conn) fn has_probed_mtu(&mut self, plan: &Plan, now: Moment) {
        let index = self.begin_recovery();
        let (start, end) = plan.range();
        let is_first = self.tcb.flight() == 0;
        self.tcb.has_sent_to(end);
        self.cx.recoveries[index].mtu_probe = Some(MtuProbe { start, end });
        self.cx.counters.size_probes += 1;
        if is_first {
            // RFC 6298, 5.1.
            let (kind, after) = self.timeout();
            self.tcb.arm(kind, after, now);
        }
    }

    /// The next larger payload to be tried, if it is time.
    fn next_size(&mut self, now: Moment) -> Option<u16> {
        let tcb = &mut *self.tcb;
        let is_time = seconds(now).wrapping_sub(tcb.raise_at).cast_signed() >= 0;
        if !is_time || tcb.recovery != NONE || tcb.state != State::Established {
            return None;
        }
        let family = Family::of(&tcb.path.addresses);
        let most = tcb.mss_max;
        let fails = if tcb.mss_too_big == 0 {
            u16::MAX
        } else {
            tcb.mss_too_big
        };
        let known = SIZES.iter().map(|mtu| payload(usize::from(*mtu), family));
        let mut candidates = known.filter(|size| *size < most).chain([most]);
        let next = candidates.find(|size| *size > tcb.mss && *size < fails);
        if next.is_none() {
            if tcb.mss == most {
                tcb.flags -= Flags::REDUCED_MTU;
            } else {
                // All is tried. Paths change.
                tcb.mss_too_big = 0;
                tcb.raise_at = seconds(now).wrapping_add(RAISE_AFTER_S);
            }
        }
        next
    }

    /// A probe of `size` bytes has arrived, or not. Any segment may be lost, so
    /// that only the third is taken as too large (RFC 8899, section 5.1.2,
    /// `MAX_PROBES`).
    #[cold]
    pub(super) fn end_mtu_probe(&mut self, size: u16, arrived: bool) {
        let tcb = &mut *self.tcb;
        if !arrived && !tcb.flags.has(Flags::MTU_PROBE_LOST) {
            tcb.flags |= Flags::MTU_PROBE_LOST;
            return;
        }
        if !arrived && !tcb.flags.has(Flags::MTU_PROBE_LOST_TWICE) {
            tcb.flags |= Flags::MTU_PROBE_LOST_TWICE;
            return;
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
