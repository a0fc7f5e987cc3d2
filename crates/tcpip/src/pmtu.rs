//! The path's MTU: told by routers (RFC 1191, RFC 8201), found out where they
//! are silent, and found again when the path gets wider (RFC 4821, RFC 8899).
//!
//! A smaller MSS takes a segment class of its own. A probe is data that has to
//! be sent anyway, in one segment that is larger than the others; if it alone
//! is lost, that is the path's width and not congestion.

use ip::{Ecn, ErrorKind, IcmpError, PROTOCOL_TCP};
use nmio::{Instant, Port};

use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::content::NO_CLASS;
use crate::output::Cut;
use crate::recovery::SizeProbe;
use crate::segments::Family;
use crate::stack::{DEFAULT_MSS_V4, DEFAULT_MSS_V6, Stack};
use crate::tcb::{Flags, Moment, NONE, State};
use crate::transmit::marks;
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
pub(crate) const BLACK_HOLE_TIMEOUTS: [u8; 2] = [3, 5];
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
    let mss = match family {
        Family::V4 => DEFAULT_MSS_V4,
        Family::V6 => DEFAULT_MSS_V6,
    };
    mss - TIMESTAMPS_LEN as u16
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Takes in what somebody says about a segment of ours. Only a smaller
    /// path MTU changes anything (RFC 5927: a connection survives all other
    /// errors), and only when it is about something in flight. What is to be
    /// sent again because of it is sent by the next
    /// [`handle_timers`](Self::handle_timers).
    #[cold]
    pub fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) {
        self.now = now;
        if self.reduce_mss(error, Moment::new(now)) {
            self.counters.path_mtu_reductions += 1;
        } else {
            self.counters.icmp_ignored += 1;
        }
    }

    fn reduce_mss(&mut self, error: &IcmpError, now: Moment) -> bool {
        let ErrorKind::TooBig { mtu } = error.kind else {
            return false;
        };
        if error.protocol != PROTOCOL_TCP {
            return false;
        }
        let addresses = error.addresses.reversed();
        let (src_port, dst_port) = (error.dst_port, error.src_port);
        let hash = self.keys.hash(&addresses, src_port, dst_port);
        let found = self.table.find(hash, |id| {
            let tcb = &self.records[id as usize].tcb;
            tcb.is_of(&addresses, src_port, dst_port)
        });
        let Some(id) = found else {
            return false;
        };
        let family = Family::of(&addresses);
        let mss = payload(mtu as usize, family).max(least(family));
        let tcb = &self.records[id as usize].tcb;
        let about = Seq(error.sequence).since(tcb.snd_una);
        if !tcb.state.sends() || mss >= tcb.mss || about >= tcb.flight() {
            return false;
        }
        self.narrow(id, mss, now, RAISE_AFTER_S);
        // What is in flight was too big: all of it goes again.
        self.send_all_again(id);
        self.block(id);
        true
    }

    /// The same segment has timed out again: perhaps it is too large for the
    /// path, and nobody says so.
    pub(crate) fn suspect_black_hole(&mut self, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        let family = Family::of(&tcb.path.addresses);
        let base = payload(BASE.into(), family);
        let smaller = if tcb.mss > base {
            base
        } else if tcb.flags.has(Flags::NARROW) {
            least(family)
        } else {
            return;
        };
        // A smaller segment than that has not come through either.
        let len = crate::output::segment_len_at(tcb, tcb.snd_una);
        if smaller < tcb.mss && u32::from(smaller) < len {
            self.narrow(id, smaller, now, PROBE_AFTER_S);
            self.counters.black_holes += 1;
        }
    }

    fn narrow(&mut self, id: u32, mss: u16, now: Moment, raise_after: u16) {
        self.set_mss(id, mss);
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::NARROW);
        tcb.flags
            .clear(Flags::TIMING | Flags::SIZE_LOST | Flags::SIZE_LOST_TWICE);
        tcb.mss_fails = 0;
        tcb.raise_at = seconds(now).wrapping_add(raise_after);
    }

    fn set_mss(&mut self, id: u32, mss: u16) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.mss = mss;
        let family = Family::of(&tcb.path.addresses);
        let class = std::mem::replace(&mut tcb.class, NO_CLASS);
        self.contents.release_class(class);
        self.records[id as usize].tcb.class = self.contents.acquire_class(family, mss);
    }

    /// Sends one larger segment, on a path that was found narrow, when it is
    /// time and all goes well.
    #[cold]
    #[inline(never)]
    pub(crate) fn probe_size<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let Some(size) = self.next_size(id, now) else {
            return;
        };
        let tcb = &self.records[id as usize].tcb;
        let seq = tcb.snd_nxt;
        let reach = self.records[id as usize]
            .congestion
            .window()
            .min(tcb.snd_wnd);
        let mss = u32::from(tcb.mss);
        let fits = tcb.flight().saturating_add(u32::from(size)) <= reach;
        let ahead = tcb.snd_end.since(seq);
        let enough = reach >= u32::from(size) + SEGMENTS_BEHIND * mss
            && ahead >= u32::from(size) + SEGMENTS_BEHIND * mss;
        let Some(cut) = Cut::at(tcb, seq) else {
            return;
        };
        if !fits || !enough || cut.place.left < u32::from(size) {
            return;
        }
        let window = crate::output::window_field(tcb, &self.buffers);
        let header = Header {
            seq,
            ack: tcb.rcv_nxt,
            control: marks(tcb).1,
            window,
            timestamps: tcb.timestamps(now),
        };
        let out = cut.take_more(size.into(), header, Ecn::NotEct);
        if port.room() == 0 || self.send_one(port, id, out).is_err() {
            return;
        }
        let index = self.recovery_of(id, 0);
        let tcb = &mut self.records[id as usize].tcb;
        let end = seq + u32::from(size);
        let is_first = tcb.flight() == 0;
        tcb.has_told(window);
        tcb.has_sent_to(end);
        self.recoveries.get_mut(index).size_probe = Some(SizeProbe { start: seq, end });
        self.counters.size_probes += 1;
        if is_first {
            // RFC 6298, 5.1.
            let timeout = self.timeout(id);
            self.arm(id, now, timeout);
        }
    }

    /// The next larger payload to be tried, if it is time.
    fn next_size(&mut self, id: u32, now: Moment) -> Option<u16> {
        let tcb = &mut self.records[id as usize].tcb;
        let due = seconds(now).wrapping_sub(tcb.raise_at).cast_signed() >= 0;
        if !due || tcb.recovery != NONE || tcb.state != State::Established {
            return None;
        }
        let family = Family::of(&tcb.path.addresses);
        let most = tcb.mss_most;
        let fails = if tcb.mss_fails == 0 {
            u16::MAX
        } else {
            tcb.mss_fails
        };
        let known = SIZES.iter().map(|mtu| payload(usize::from(*mtu), family));
        let mut candidates = known.filter(|size| *size < most).chain([most]);
        let next = candidates.find(|size| *size > tcb.mss && *size < fails);
        if next.is_none() {
            if tcb.mss == most {
                tcb.flags.clear(Flags::NARROW);
            } else {
                // All is tried. Paths change.
                tcb.mss_fails = 0;
                tcb.raise_at = seconds(now).wrapping_add(RAISE_AFTER_S);
            }
        }
        next
    }

    /// A probe of `size` bytes has arrived, or not. Any segment may be lost, so
    /// that only the third is taken as too large (RFC 8899, section 5.1.2,
    /// `MAX_PROBES`).
    #[cold]
    pub(crate) fn end_size_probe(&mut self, id: u32, size: u16, arrived: bool) {
        let tcb = &mut self.records[id as usize].tcb;
        if !arrived && !tcb.flags.has(Flags::SIZE_LOST) {
            tcb.flags.set(Flags::SIZE_LOST);
            return;
        }
        if !arrived && !tcb.flags.has(Flags::SIZE_LOST_TWICE) {
            tcb.flags.set(Flags::SIZE_LOST_TWICE);
            return;
        }
        tcb.flags.clear(Flags::SIZE_LOST | Flags::SIZE_LOST_TWICE);
        if arrived {
            self.set_mss(id, size);
            self.counters.path_mtu_raises += 1;
        } else {
            tcb.mss_fails = size;
        }
    }
}
