//! The transmission control block: all that the stack knows of one
//! connection, in four cache lines with its congestion control.

use std::net::Ipv4Addr;

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, Path, Sum};
use nmio::Instant;

use crate::content::NO_CLASS;
use crate::recovery::Reorder;
use crate::rto::Rtt;
use crate::wire::{Control, Seq, Timestamps};

/// Entries of a connection's send stream: what can be written before
/// something is acknowledged.
pub const STREAM_ENTRIES: usize = 4;

/// No receive buffer, no next TCB.
pub(crate) const NONE: u32 = u32::MAX;

/// The states of RFC 9293, section 3.3.2, that a server's connection can be
/// in; CLOSED is a free TCB, and LISTEN needs none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Closed,
    SynReceived,
    Established,
    CloseWait,
    FinWait1,
    FinWait2,
    Closing,
    LastAck,
    TimeWait,
}

impl State {
    /// The peer may still send data.
    #[inline(always)]
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// We may still send, or send again.
    #[inline(always)]
    pub(crate) const fn sends(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }

    /// Our FIN has been sent.
    #[inline(always)]
    pub(crate) const fn fin_sent(self) -> bool {
        matches!(
            self,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait
        )
    }
}

/// What else is the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags(u32);

impl Flags {
    /// The application has closed: a FIN follows what is written.
    pub(crate) const CLOSE: Self = Self(1);
    /// The application has aborted.
    pub(crate) const ABORT: Self = Self(1 << 1);
    /// A write has failed for want of room: the application waits for it.
    pub(crate) const WANTS_ROOM: Self = Self(1 << 2);
    /// The peer's FIN has come in order, and the application is still to be
    /// told.
    pub(crate) const HALF_CLOSE: Self = Self(1 << 3);
    /// Something must be acknowledged.
    pub(crate) const ACK: Self = Self(1 << 4);
    /// On the list of those that the TX ring had no room for.
    pub(crate) const BLOCKED: Self = Self(1 << 5);
    /// A segment is being timed: `rtt_seq` and `rtt_at` are valid.
    pub(crate) const TIMING: Self = Self(1 << 6);
    /// The peer's window is shut, or too small: the timer probes it.
    pub(crate) const PERSIST: Self = Self(1 << 7);
    /// The SYN-ACK was sent more than once.
    pub(crate) const SYN_AGAIN: Self = Self(1 << 8);
    /// The peer has told a window of two segments or more.
    pub(crate) const WIDE: Self = Self(1 << 9);
    /// Both sides send timestamps (RFC 7323).
    pub(crate) const TIMESTAMPS: Self = Self(1 << 10);
    /// Both sides take selective acknowledgements (RFC 2018).
    pub(crate) const SACK: Self = Self(1 << 11);
    /// Both sides scale windows (RFC 7323).
    pub(crate) const SCALED: Self = Self(1 << 12);
    /// Both sides take part in congestion notification (RFC 3168).
    pub(crate) const ECN: Self = Self(1 << 13);
    /// A router has marked a packet: the peer is told until it says CWR.
    pub(crate) const ECHO: Self = Self(1 << 14);
    /// The peer has echoed a mark or something was lost: the next new segment
    /// says CWR.
    pub(crate) const REDUCED: Self = Self(1 << 15);
    /// `cwr_high` is valid: until it is acknowledged, echoes say nothing new.
    pub(crate) const REDUCING: Self = Self(1 << 16);
    /// Segments have overtaken each other on the way (RFC 8985, section 6.2).
    pub(crate) const REORDERING: Self = Self(1 << 17);
    /// The deadline is that of a tail loss probe (RFC 8985, section 7.2).
    pub(crate) const PROBE_TAIL: Self = Self(1 << 18);
    /// The deadline is that of segments which may be reordered, or lost.
    pub(crate) const AWAIT_LATE: Self = Self(1 << 19);
    /// The path takes less than both ends would: it may widen again.
    pub(crate) const NARROW: Self = Self(1 << 20);
    /// The peer is silent, and being asked whether it is there: `backoff` counts
    /// how often it was time for that, and `retries` how often it was since it
    /// has last answered.
    pub(crate) const KEEPING: Self = Self(1 << 21);
    /// The deadline is that of the next paced segments.
    pub(crate) const PACED: Self = Self(1 << 22);
    /// The window has opened at once: what it has room for is spread.
    pub(crate) const SPREAD: Self = Self(1 << 23);
    /// The TX ring had no room for a probe of the peer's window.
    pub(crate) const OWES_PROBE: Self = Self(1 << 24);
    /// A probe of the path's width has been lost, …
    pub(crate) const SIZE_LOST: Self = Self(1 << 25);
    /// … and another one of the same size.
    pub(crate) const SIZE_LOST_TWICE: Self = Self(1 << 26);

    /// The application has set a deadline: see
    /// [`Standing`](crate::progress::Standing).
    pub(crate) const DUE: Self = Self(1 << 27);
    /// It has just set one, which does not run yet.
    pub(crate) const DUE_NEW: Self = Self(1 << 28);

    #[inline(always)]
    pub(crate) const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    #[inline(always)]
    pub(crate) const fn set(&mut self, bits: Self) {
        self.0 |= bits.0;
    }

    #[inline(always)]
    pub(crate) const fn clear(&mut self, bits: Self) {
        self.0 &= !bits.0;
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Where a stream entry's bytes are: a content, or a write buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Source(u32);

impl Source {
    const BUFFER: u32 = 1 << 31;

    pub(crate) const fn content(index: u32) -> Self {
        Self(index)
    }

    pub(crate) const fn write_buffer(index: u32) -> Self {
        Self(index | Self::BUFFER)
    }

    /// The write buffer, if it is one.
    #[inline(always)]
    pub(crate) const fn buffer(self) -> Option<u32> {
        if self.0 & Self::BUFFER == 0 {
            None
        } else {
            Some(self.0 & !Self::BUFFER)
        }
    }

    /// The content, where it is no buffer.
    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        self.0
    }
}

const _: () = assert!(crate::content::MAX_CONTENTS < 1 << 31);

/// One entry of the send stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// Of its first byte.
    pub(crate) start: Seq,
    pub(crate) source: Source,
    /// For [`Application::render`](crate::Application::render).
    pub(crate) stamp: u32,
}

/// A place in the send stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) stamp: u32,
    /// From the source's start.
    pub(crate) offset: u32,
    /// Bytes from here to the entry's end.
    pub(crate) left: u32,
}

/// A moment on the clocks that a TCB uses. They wrap, so differences must be
/// less than half their range: 35 minutes and 24 days.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Microseconds, for round trips.
    pub(crate) micros: u32,
    /// Milliseconds, for deadlines.
    pub(crate) millis: u32,
    /// Microseconds without wrapping.
    pub(crate) whole_micros: u64,
}

impl Moment {
    #[inline(always)]
    pub(crate) const fn new(now: Instant) -> Self {
        let micros = now.as_micros();
        Self {
            micros: micros as u32,
            millis: (micros / 1000) as u32,
            whole_micros: micros,
        }
    }

    /// Microseconds since the last whole millisecond.
    #[inline(always)]
    pub(crate) const fn past_millis(self) -> u32 {
        self.micros.wrapping_sub(self.millis.wrapping_mul(1000))
    }

    /// The moment of a deadline in milliseconds; now when it has passed.
    #[inline]
    pub(crate) fn instant(self, deadline: u32) -> Instant {
        let ahead = deadline.wrapping_sub(self.millis).cast_signed().max(0);
        Instant::from_millis(self.whole_micros / 1000 + u64::from(ahead.unsigned_abs()))
    }
}

/// See the module's text. Fields are named as in RFC 9293, section 3.3.1.
#[derive(Clone, Debug)]
pub(crate) struct Tcb {
    pub(crate) path: Path,
    pub(crate) own_port: u16,
    pub(crate) peer_port: u16,
    /// What addresses, ports and protocol add to every checksum, folded.
    pub(crate) sum: u16,
    /// Most bytes of data in a segment.
    pub(crate) mss: u16,
    /// Of prepared segments, or [`NO_CLASS`].
    pub(crate) class: u8,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// Timeouts since the peer has last acknowledged something.
    pub(crate) retries: u8,
    /// Doublings of the timeout (RFC 6298, 5.5), until a round trip is
    /// measured again.
    pub(crate) backoff: u8,
    /// Entries of `stream` in use.
    pub(crate) entries: u8,
    /// Shifts of the windows that the peer tells (low half) and that we tell.
    pub(crate) scales: u8,
    pub(crate) reorder: Reorder,
    /// The largest segments that the peer and we could take, as `mss`.
    pub(crate) mss_most: u16,
    /// The least that the path was found too narrow for; 0: none.
    pub(crate) mss_fails: u16,
    /// When a larger one may be tried, in seconds.
    pub(crate) raise_at: u16,
    /// When a challenge ACK was last sent: low bits of a clock of 32 ms, which
    /// come again after 35 minutes.
    pub(crate) challenged_at: u16,
    pub(crate) snd_una: Seq,
    /// Behind everything that was ever sent: new data begins here. What is to
    /// be sent again before it, the scoreboard tells.
    pub(crate) snd_nxt: Seq,
    /// Behind everything that was written; a FIN comes here.
    pub(crate) snd_end: Seq,
    /// The peer's window, in bytes from `snd_una`.
    pub(crate) snd_wnd: u32,
    /// The largest window that the peer has ever told (RFC 5961's
    /// `MAX.SND.WND`), as its field has it: scaled.
    pub(crate) max_snd_wnd: u16,
    /// Segment that `snd_wnd` was taken from.
    pub(crate) snd_wl1: Seq,
    pub(crate) rcv_nxt: Seq,
    /// Right edge of the window that we have told.
    pub(crate) rcv_adv: Seq,
    pub(crate) rtt: Rtt,
    /// An ACK of this ends the timing that began at `rtt_at`.
    pub(crate) rtt_seq: Seq,
    /// In microseconds. While the peer's window is shut, and while nothing is in
    /// flight and the application waits for room: when the peer was last heard.
    pub(crate) rtt_at: u32,
    /// When something is due, in milliseconds. What, follows from the rest.
    pub(crate) deadline: u32,
    /// When the wheel's entry expires: not later than `deadline`.
    pub(crate) scheduled: u32,
    pub(crate) stream: [Entry; STREAM_ENTRIES],
    /// Receive buffer, or [`NONE`].
    pub(crate) buffer: u32,
    /// What became of what is in flight, or [`NONE`] while all goes well.
    pub(crate) recovery: u32,
    /// The peer's latest timestamp (RFC 7323's `TS.Recent`).
    pub(crate) ts_recent: u32,
    /// What our timestamps are ahead of the clock's milliseconds.
    pub(crate) ts_offset: u32,
    /// An ACK of this ends the window in which an echo was answered.
    pub(crate) cwr_high: Seq,
    /// Until when, in microseconds, what has been sent lasts at the rate of
    /// pacing.
    pub(crate) paced_until: u32,
}

impl Tcb {
    /// A free TCB.
    pub(crate) const fn closed() -> Self {
        Self {
            path: Path {
                link: Link {
                    peer: Mac([0; 6]),
                    own: Mac([0; 6]),
                    vlan: None,
                },
                addresses: Addresses::V4 {
                    src: Ipv4Addr::UNSPECIFIED,
                    dst: Ipv4Addr::UNSPECIFIED,
                },
            },
            own_port: 0,
            peer_port: 0,
            sum: 0,
            mss: 0,
            class: NO_CLASS,
            state: State::Closed,
            flags: Flags(0),
            retries: 0,
            backoff: 0,
            entries: 0,
            scales: 0,
            reorder: Reorder::new(),
            mss_most: 0,
            mss_fails: 0,
            raise_at: 0,
            challenged_at: 0,
            snd_una: Seq(0),
            snd_nxt: Seq(0),
            snd_end: Seq(0),
            snd_wnd: 0,
            max_snd_wnd: 0,
            snd_wl1: Seq(0),
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            rtt: Rtt::UNKNOWN,
            rtt_seq: Seq(0),
            rtt_at: 0,
            deadline: 0,
            scheduled: 0,
            stream: [Entry {
                start: Seq(0),
                source: Source(0),
                stamp: 0,
            }; STREAM_ENTRIES],
            buffer: NONE,
            recovery: NONE,
            ts_recent: 0,
            ts_offset: 0,
            cwr_high: Seq(0),
            paced_until: 0,
        }
    }

    /// What a connection adds to every checksum.
    pub(crate) fn connection_sum(path: &Path, own_port: u16, peer_port: u16) -> u16 {
        Sum::ZERO
            .add(path.addresses.sum())
            .word(u16::from(PROTOCOL_TCP))
            .word(own_port)
            .word(peer_port)
            .fold()
    }

    /// Whether this is the connection of a segment between `addresses`, the
    /// peer's first.
    #[inline(always)]
    pub(crate) fn is_of(&self, addresses: &Addresses, src_port: u16, dst_port: u16) -> bool {
        if self.peer_port != src_port || self.own_port != dst_port {
            return false;
        }
        match (&self.path.addresses, addresses) {
            (
                Addresses::V4 { src, dst },
                Addresses::V4 {
                    src: peer,
                    dst: own,
                },
            ) => src == own && dst == peer,
            (
                Addresses::V6 { src, dst },
                Addresses::V6 {
                    src: peer,
                    dst: own,
                },
            ) => src.to_bits() == own.to_bits() && dst.to_bits() == peer.to_bits(),
            _ => false,
        }
    }

    /// Bytes and FIN sent and not acknowledged, lost ones included.
    #[inline(always)]
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Sequence number for a RST, above everything the peer may have received,
    /// so that it is in order then. A probe of a zero window was most likely
    /// dropped.
    pub(crate) fn reset_at(&self) -> Seq {
        if self.flags.has(Flags::PERSIST) {
            self.snd_una
        } else {
            self.snd_nxt
        }
    }

    /// Behind the last thing to be sent: what was written, and the FIN if the
    /// application has closed.
    #[inline(always)]
    pub(crate) fn limit(&self) -> Seq {
        self.snd_end + u32::from(self.flags.has(Flags::CLOSE))
    }

    /// The retransmission timeout in milliseconds, at least `least_ms` before
    /// it is doubled.
    #[inline(always)]
    pub(crate) fn rto(&self, least_ms: u32) -> u32 {
        let after_loss = self.flags.has(Flags::SYN_AGAIN);
        self.rtt.timeout(self.backoff, after_loss, least_ms)
    }

    /// Something is due in `after` milliseconds. Later than before costs one
    /// store: the wheel's entry expires early and is set again then. Sooner
    /// than that entry, and the wheel must be set: true.
    #[inline(always)]
    pub(crate) fn is_due_in(&mut self, after: u32, now: Moment) -> bool {
        self.deadline = now.millis.wrapping_add(after);
        self.scheduled.wrapping_sub(self.deadline).cast_signed() > 0
    }

    /// The peer has said something, or the silence is over otherwise.
    pub(crate) fn stop_keeping(&mut self) {
        self.flags.clear(Flags::KEEPING);
        (self.retries, self.backoff) = (0, 0);
    }

    /// The peer's window has opened.
    pub(crate) fn stop_probing(&mut self) {
        self.flags.clear(Flags::PERSIST);
        (self.retries, self.backoff) = (0, 0);
    }

    /// The control bit that tells the peer of a smaller window, in the next
    /// segment with new data (RFC 3168, section 6.1.2).
    #[cold]
    pub(crate) fn tell_reduction(&mut self) -> Control {
        self.flags.clear(Flags::REDUCED);
        if self.flags.has(Flags::ECN) {
            Control::CWR
        } else {
            Control(0)
        }
    }

    /// Ours and the peer's.
    #[inline(always)]
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.own_port, self.peer_port)
    }

    /// The window that a field of a segment of the peer's tells, in bytes.
    #[inline(always)]
    pub(crate) fn peer_window(&self, field: u16) -> u32 {
        u32::from(field) << (self.scales & 0x0f)
    }

    /// Takes the peer's window from a segment's field.
    #[inline(always)]
    pub(crate) fn set_peer_window(&mut self, field: u16) {
        self.snd_wnd = self.peer_window(field);
        self.max_snd_wnd = self.max_snd_wnd.max(field);
    }

    /// Whether an ACK says what was known already, and is not older than the
    /// largest window (RFC 5961, section 5.2).
    pub(crate) fn is_old_ack(&self, ack: Seq) -> bool {
        self.snd_una.since(ack) <= self.peer_window(self.max_snd_wnd)
    }

    /// How our windows are shifted.
    #[inline(always)]
    pub(crate) fn own_scale(&self) -> u32 {
        u32::from(self.scales >> 4)
    }

    /// A segment has told all that has come, and a window by its field.
    #[inline(always)]
    pub(crate) fn has_told(&mut self, window: u16) {
        self.rcv_adv = self.rcv_nxt + (u32::from(window) << self.own_scale());
        self.flags.clear(Flags::ACK);
    }

    /// The same for a SYN-ACK.
    pub(crate) fn has_told_unscaled(&mut self, window: u16) {
        self.rcv_adv = self.rcv_nxt + u32::from(window);
        self.flags.clear(Flags::ACK);
    }

    /// The timestamps of a segment that is sent now, if both sides send them.
    #[inline(always)]
    pub(crate) fn timestamps(&self, now: Moment) -> Option<Timestamps> {
        self.flags.has(Flags::TIMESTAMPS).then(|| Timestamps {
            value: self.ts_clock(now),
            echo: self.ts_recent,
        })
    }

    /// The clock of our timestamps: milliseconds (RFC 7323, section 5.4).
    #[inline(always)]
    pub(crate) fn ts_clock(&self, now: Moment) -> u32 {
        now.millis.wrapping_add(self.ts_offset)
    }

    /// Everything before `seq` has been sent, the FIN perhaps too.
    #[inline(always)]
    pub(crate) fn has_sent_to(&mut self, seq: Seq) {
        if seq.after(self.snd_nxt) {
            self.snd_nxt = seq;
        }
        if seq == self.snd_end + 1 {
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
    }

    /// Entries that the stream has room for.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        STREAM_ENTRIES - usize::from(self.entries)
    }

    /// Whether distances in the stream still fit 32 bits when `len` more
    /// bytes are written.
    #[inline(always)]
    pub(crate) fn spans(&self, len: u32) -> bool {
        let first = if self.entries == 0 {
            self.snd_end
        } else {
            self.stream[0].start
        };
        // One is for the FIN.
        self.snd_end
            .since(first)
            .checked_add(len)
            .is_some_and(|span| span < u32::MAX)
    }

    /// Appends an entry; there is room for it.
    #[inline(always)]
    pub(crate) fn push(&mut self, source: Source, stamp: u32, len: u32) {
        self.stream[usize::from(self.entries)] = Entry {
            start: self.snd_end,
            source,
            stamp,
        };
        self.entries += 1;
        self.snd_end = self.snd_end + len;
    }

    /// The last entry has become longer.
    pub(crate) fn extend(&mut self, len: u32) {
        self.snd_end = self.snd_end + len;
    }

    /// The source of the last entry.
    pub(crate) fn last_source(&self) -> Option<Source> {
        self.entries().last().map(|entry| entry.source)
    }

    /// The stream's entries, oldest first.
    #[inline(always)]
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.stream[..usize::from(self.entries)]
    }

    /// Finds what lies at `seq` of the stream, which must not be before the
    /// first entry; `None` from the stream's end on.
    #[inline(always)]
    pub(crate) fn locate(&self, seq: Seq) -> Option<Place> {
        let entries = self.entries();
        let first = entries.first()?.start;
        let at = seq.since(first);
        let mut start = 0;
        for (index, entry) in entries.iter().enumerate() {
            let next = entries.get(index + 1).map_or(self.snd_end, |e| e.start);
            let end = next.since(first);
            if at < end {
                return Some(Place {
                    source: entry.source,
                    stamp: entry.stamp,
                    offset: at - start,
                    left: end - at,
                });
            }
            start = end;
        }
        None
    }

    /// Takes the first entry out of the stream if all of it is acknowledged.
    #[inline(always)]
    pub(crate) fn retire(&mut self) -> Option<Source> {
        let entries = self.entries();
        let first = entries.first()?;
        let end = entries.get(1).map_or(self.snd_end, |next| next.start);
        if self.snd_una.since(first.start) < end.since(first.start) {
            return None;
        }
        Some(self.drop_first())
    }

    /// Takes the first entry out of the stream, acknowledged or not.
    pub(crate) fn discard(&mut self) -> Option<Source> {
        (self.entries > 0).then(|| self.drop_first())
    }

    #[inline(always)]
    fn drop_first(&mut self) -> Source {
        let source = self.stream[0].source;
        self.stream.copy_within(1.., 0);
        self.entries -= 1;
        source
    }
}

/// A TCB and its congestion control.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Record<C> {
    pub(crate) tcb: Tcb,
    pub(crate) congestion: C,
}

// Four cache lines, with the congestion control that is the default.
const _: () = assert!(size_of::<Record<crate::Cubic>>() <= 256);
const _: () = assert!(size_of::<Record<crate::Bbr>>() <= 320);

#[cfg(test)]
#[path = "tcb_tests.rs"]
mod tests;
