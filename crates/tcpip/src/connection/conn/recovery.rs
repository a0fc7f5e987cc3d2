//! Loss recovery: what a connection knows, and does, while something of it is
//! lost, late or out of order.
//!
//! Most connections never need any of this, so it lies beside the TCBs in a
//! pool: a [`Recovery`] is taken with the first sign of disorder and given
//! back when all is well again. What is lost is found by RACK where the peer
//! acknowledges selectively, by duplicate acknowledgements (RFC 5681, RFC
//! 6582) where it does not, and by the timeout; how much may be sent
//! meanwhile is for proportional rate reduction to say (RFC 6937); and what
//! turns out not to have been lost is undone (RFC 3522, RFC 5682, RFC 3708).

mod disorder;
mod path_mtu;
mod pool;
mod rack;
mod scoreboard;
mod timeouts;
mod undo;
#[cfg(any(test, fuzzing))]
mod view;

use std::collections::VecDeque;

use crate::congestion::CongestionControl;
use crate::connection::condition::Condition;
use crate::connection::{Flags, Tcb};
use crate::counters::Counters;
use crate::wire::{Block, Seq};

/// Ranges that scoreboards have the space for. A selective acknowledgement
/// that would need more is not taken in: it comes again, or the data is sent
/// again. The longest are for a queue that overflows in slow start, which loses
/// every second segment of a window.
const SIZES: [usize; 3] = [16, 128, 8_192];
/// Ranges such as selective acknowledgements leave for what is lost: a quarter
/// of those that there is space for, and this at most.
const MAX_RESERVE: usize = 32;

/// Partial acknowledgements in one reduction that put off the timeout.
const MAX_PARTIAL_ACKS: u32 = 100;

/// What became of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// The peer has it.
    Sacked,
    /// Something sent later has arrived, as has been known since `at`; it may
    /// be on its way by another route.
    Late { at: u32 },
    /// Taken as lost, and not sent again yet.
    Lost,
    /// Sent again.
    Retransmitted { at: u32, fence: Seq },
    /// Sent again, and something sent still later has arrived.
    LateRetransmit { at: u32 },
}

/// A range of sequence space, `end` not included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    start: Seq,
    end: Seq,
    mark: Mark,
}

impl Range {
    fn len(&self) -> u32 {
        self.end.since(self.start)
    }
}

/// A stretch of sequence space with one fate; `None`: in flight as first
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    start: Seq,
    end: Seq,
    mark: Option<Mark>,
}

impl Piece {
    fn len(&self) -> u32 {
        self.end.since(self.start)
    }
}

/// The listed ranges: disjoint, ascending, neighbours of one kind joined. All
/// lie within half of sequence space.
#[derive(Clone, Debug)]
struct Scoreboard {
    /// Changes come in near either end: at the front what is acknowledged or
    /// sent again, at the back what arrives. Its space never grows.
    ranges: VecDeque<Range>,
    /// Ranges that it has space for.
    limit: usize,
    /// Its number among those of its size.
    slot: u32,
    /// Bytes in ranges of these kinds.
    sacked: u32,
    lost: u32,
}

impl Scoreboard {
    /// Nothing listed, and space for `limit` ranges, for ever.
    fn new(limit: usize) -> Self {
        Self::numbered(limit, 0)
    }

    /// The same, with a number among those of its size.
    fn numbered(limit: usize, slot: u32) -> Self {
        Self {
            ranges: VecDeque::with_capacity(limit),
            limit,
            slot,
            sacked: 0,
            lost: 0,
        }
    }

    /// Forgets all.
    fn clear(&mut self) {
        self.ranges.clear();
        (self.sacked, self.lost) = (0, 0);
    }

    /// Which of [`SIZES`] it has.
    fn size(&self) -> usize {
        SIZES.partition_point(|size| *size < self.limit)
    }

    /// Its number among those of its size.
    fn slot(&self) -> u32 {
        self.slot
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Ranges listed.
    fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether something that was sent again is still out.
    fn any_retransmitted(&self) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|range| {
            matches!(
                range.mark,
                Mark::Retransmitted { .. } | Mark::LateRetransmit { .. }
            )
        })
    }

    /// Bytes that the peer has, beyond what it has acknowledged.
    fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes that are lost and to be sent again.
    fn lost(&self) -> u32 {
        self.lost
    }

    /// Ranges up to which selective acknowledgements are taken in.
    fn open(&self) -> usize {
        self.limit - (self.limit / 4).min(MAX_RESERVE)
    }

    /// The piece that begins at `start`, if it is not `end`.
    fn first_piece(&self, start: Seq, end: Seq) -> Option<Piece> {
        self.pieces(start, end).next()
    }

    /// Whether there may be no place for what an acknowledgement of so many
    /// blocks tells: each divides what it lies in, every gap may turn out to be
    /// lost, and RACK divides one.
    fn is_short_of_space(&self, blocks: usize) -> bool {
        2 * (self.ranges.len() + 2 * blocks + 1) > self.open()
    }

    /// What it lists goes to a board with more space, in exchange for that.
    fn move_to(&mut self, mut larger: Self) -> Self {
        larger.ranges.extend(self.ranges.drain(..));
        (larger.sacked, larger.lost) = (self.sacked, self.lost);
        self.clear();
        std::mem::replace(self, larger)
    }

    /// The first range to be sent again.
    fn first_lost(&self) -> Option<(Seq, Seq)> {
        if self.lost == 0 {
            return None;
        }
        let first = self.ranges.iter().find(|range| range.mark == Mark::Lost)?;
        Some((first.start, first.end))
    }

    /// All of `una..nxt` that the peer has not is lost.
    fn lose_all(&mut self, una: Seq, nxt: Seq) {
        self.rebuild(una, nxt, |mark| match mark {
            Some(Mark::Sacked) => mark,
            _ => Some(Mark::Lost),
        });
    }

    /// What was taken as lost, or as late, is in flight after all.
    fn lose_nothing(&mut self, una: Seq, nxt: Seq) {
        self.rebuild(una, nxt, |mark| {
            mark.filter(|mark| matches!(mark, Mark::Sacked | Mark::Retransmitted { .. }))
        });
    }

    /// The peer may have thrown away what it had told to have (RFC 2018,
    /// section 8).
    fn forget_sacked(&mut self, una: Seq, nxt: Seq) {
        self.rebuild(una, nxt, |mark| mark.filter(|mark| *mark != Mark::Sacked));
    }
}

/// What one acknowledgement tells of.
#[derive(Clone, Copy, Default, Debug)]
struct Delivery {
    /// Bytes that have newly arrived.
    delivered: u32,
    /// Some of them as they were first sent, though taken as lost.
    not_lost: bool,
    /// Some of them as they were first sent, after something behind them.
    reordered: bool,
    /// What has arrived twice.
    twice: Option<Block>,
    /// Bytes that were sent again and have arrived too soon for that: what was
    /// first sent has.
    early: u32,
    /// A block found no place on the scoreboard.
    no_place: bool,
}

/// What is late, and what is newly lost.
#[derive(Clone, Copy, Default, Debug)]
struct Losses {
    /// Bytes newly taken as lost.
    lost: u32,
    /// Some of them had been sent again before.
    again: bool,
    /// Microseconds after which to look again.
    recheck_in: Option<u32>,
}

/// The latest of what has arrived, in order of transmission.
#[derive(Clone, Copy, Debug)]
struct Rack {
    /// What was first sent before this has been overtaken.
    overtaken: Seq,
    /// Behind the last byte that has arrived as it was first sent.
    fack: Seq,
    /// When the latest of what was sent again and has arrived was sent, and
    /// its end.
    latest_retransmit: Option<(u32, Seq)>,
    /// Everything before this has been looked at since it was overtaken.
    checked: Seq,
    /// The earliest of what was sent again and is still out: its fence, its
    /// moment and its end; perhaps it has arrived meanwhile.
    earliest_retransmit: Option<(Seq, u32, Seq)>,
    /// Something is late.
    late: bool,
}

impl Rack {
    const fn new(una: Seq) -> Self {
        Self {
            overtaken: una,
            fack: una,
            latest_retransmit: None,
            checked: una,
            earliest_retransmit: None,
            late: false,
        }
    }

    /// Nothing that was sent again is out: its clock must not wrap.
    fn forget_retransmit(&mut self) {
        self.latest_retransmit = None;
    }

    /// The scoreboard has been written anew.
    fn recheck(&mut self, una: Seq) {
        self.checked = una;
        self.earliest_retransmit = Some((una, self.latest_retransmit.map_or(0, |(at, _)| at), una));
        self.late = true;
    }
}

/// What is in flight, and when: all that [`Rack`] knows of a connection.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// SND.UNA.
    una: Seq,
    /// SND.NXT.
    nxt: Seq,
    /// Most bytes of data in a segment.
    mss: u32,
    /// Everything that was written has been sent.
    all_sent: bool,
    /// The peer acknowledges selectively.
    selective: bool,
    /// The least round trip in microseconds; 0 before it is measured.
    min_rtt: u32,
    /// How long a segment that was overtaken may stay out, in microseconds.
    reordering_window: u32,
    /// Our timestamps' clock now.
    ts_clock: u32,
    /// Milliseconds by which the timestamp of what is sent again lies back.
    backdating: u32,
    /// Now, in microseconds.
    now: u32,
}

impl Flight {
    /// Bytes and FIN sent and not acknowledged, lost ones included.
    fn len(&self) -> u32 {
        self.nxt.since(self.una)
    }
}

impl Tcb {
    /// Milliseconds by which the timestamp of what is sent again lies back. It
    /// fills a gap, and from then on the receiver takes what is older for another
    /// connection's (RFC 7323, section 5: PAWS): also what is merely late, and would
    /// be lost that way. So it is as old as what may still be on its way, but not by
    /// more than a round trip: older than what was first sent it would itself be
    /// thrown away.
    fn backdating(&self) -> u32 {
        if self.flags.has(Flags::REORDERING) {
            let least = self.rtt.min() / 1_000;
            self.reo_wnd.window(self.rtt).div_ceil(1_000).min(least)
        } else {
            0
        }
    }
}

/// Proportional rate reduction (RFC 6937), in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Prr {
    delivered: u32,
    sent: u32,
    /// In flight when it began: `RecoverFS`.
    flight: u32,
}

impl Prr {
    /// Bytes have been sent, new or again.
    fn has_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// What may be sent with an acknowledgement of `delivered` bytes, when
    /// `pipe` are in flight and the window is to become `target`. `progress`:
    /// it was cumulative and told of no further loss.
    fn allowance(
        &mut self,
        delivered: u32,
        pipe: u32,
        target: u32,
        progress: bool,
        mss: u32,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let allowed = if pipe > target {
            let share = u64::from(self.delivered) * u64::from(target);
            let share = share.div_ceil(u64::from(self.flight.max(1)));
            // Segments are counted, as a part of one cannot be sent.
            let share = share.next_multiple_of(u64::from(mss));
            u32::try_from(share)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.sent)
        } else {
            // Slow start while the network drains faster than it should.
            let behind = self.delivered.saturating_sub(self.sent);
            let grown = behind.max(delivered) + if progress { mss } else { 0 };
            grown.min(target - pipe)
        };
        // The fast retransmit itself goes at once.
        if self.sent == 0 {
            allowed.max(mss)
        } else {
            allowed
        }
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Something is out of order, and nothing is taken as lost.
    Disorder,
    /// Something was lost; the window shrinks by proportional rate reduction.
    Recovery,
    /// All that was in flight goes again, in slow start: after a timeout, or
    /// because path or window have changed.
    Loss,
}

/// What the first acknowledgements after a timeout must tell for it to have
/// been needless (RFC 5682).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frto {
    Off,
    /// The first is awaited.
    First,
    /// The first was of something new, and new data was sent: the second must
    /// be so too.
    Second,
}

/// By what a reduction proves to have been needless.
#[derive(Clone, Copy, Debug)]
enum Proof {
    /// An echo is of what was first sent (RFC 3522).
    Eifel,
    /// All that was sent again has arrived twice (RFC 3708).
    Dsack,
    /// What was not sent again after a timeout has arrived (RFC 5682).
    Frto,
}

impl Proof {
    fn count(self, counters: &mut Counters) {
        counters.undone += 1;
        match self {
            Self::Eifel => counters.undone_by_echo += 1,
            Self::Dsack => counters.undone_by_duplicates += 1,
            Self::Frto => counters.undone_by_arrival += 1,
        }
    }
}

/// A probe of the tail that is on its way (RFC 8985, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TailProbe {
    /// SND.NXT behind it.
    end: Seq,
    /// It was no new data.
    is_retransmission: bool,
}

/// A segment on its way that is larger than the path was found to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MtuProbe {
    start: Seq,
    end: Seq,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Recovery<C> {
    board: Scoreboard,
    phase: Phase,
    /// SND.NXT when the phase began: it ends there.
    high_seq: Seq,
    /// Of a peer that does not acknowledge selectively.
    dup_acks: u32,
    prr: Prr,
    /// The congestion window while [`Phase::Recovery`] lasts.
    window: u32,
    rack: Rack,
    /// The congestion control before a reduction that may prove wrong.
    prior: Option<C>,
    /// Our timestamps' clock when something was first sent again.
    first_retransmit_ts: Option<u32>,
    /// Bytes sent again, less those that have arrived twice.
    undo_retrans: u32,
    /// Where they lie.
    retransmitted: Block,
    frto: Frto,
    /// New segments that [`Frto::Second`] has sent and that may still arrive.
    new_sent: u32,
    /// When the segment that has timed out was sent, in milliseconds.
    stalled_at: u32,
    /// Partial acknowledgements in this reduction.
    partial_acks: u32,
    tail_probe: Option<TailProbe>,
    mtu_probe: Option<MtuProbe>,
}

impl<C: CongestionControl> Recovery<C> {
    fn new(board: Scoreboard, una: Seq) -> Self {
        Self {
            board,
            phase: Phase::Disorder,
            high_seq: una,
            dup_acks: 0,
            prr: Prr::default(),
            window: 0,
            rack: Rack::new(una),
            prior: None,
            first_retransmit_ts: None,
            undo_retrans: 0,
            retransmitted: (una, una),
            frto: Frto::Off,
            new_sent: 0,
            stalled_at: 0,
            partial_acks: 0,
            tail_probe: None,
            mtu_probe: None,
        }
    }

    /// Bytes of the `flight` sent and not acknowledged that are in the network no
    /// longer.
    fn left_network(&self, flight: u32, mss: u16) -> u32 {
        let duplicates = self.dup_acks.saturating_mul(mss.into());
        let counted = self.board.sacked() + self.board.lost();
        counted.saturating_add(duplicates).min(flight)
    }

    /// Bytes of it in the network: RFC 6675's pipe.
    fn pipe(&self, flight: u32, mss: u16) -> u32 {
        flight - self.left_network(flight, mss)
    }

    /// The congestion window.
    fn window(&self, congestion: &C) -> u32 {
        match self.phase {
            Phase::Recovery => self.window,
            Phase::Disorder | Phase::Loss => congestion.window(),
        }
    }

    /// The next bytes to be sent again.
    fn next_lost(&self) -> Option<(Seq, Seq)> {
        if self.lost_goes_first() {
            self.board.first_lost()
        } else {
            None
        }
    }

    /// Whether new data waits for what is lost.
    fn lost_goes_first(&self) -> bool {
        self.board.lost() > 0 && self.frto != Frto::Second
    }

    /// Something has been sent, new or again.
    fn has_sent(&mut self, bytes: u32) {
        self.prr.has_sent(bytes);
    }

    /// Without SACK each partial acknowledgement mends one gap. When there are
    /// very many, the timeout is sooner done with them, and is not put off any
    /// more (RFC 6582, section 4: the impatient variant).
    fn is_impatient(&self) -> bool {
        self.phase == Phase::Recovery && self.partial_acks > MAX_PARTIAL_ACKS
    }

    /// Remembers what a reduction may have to be taken back to.
    fn remember(&mut self, congestion: &C) {
        self.prior = Some(*congestion);
        // What was sent again before and is still out may be echoed yet.
        if !self.board.any_retransmitted() {
            self.first_retransmit_ts = None;
            self.undo_retrans = 0;
        }
    }

    /// Bytes that have arrived twice because they were sent again, and not
    /// because the network has doubled them.
    fn spurious_bytes(&self, delivery: &Delivery) -> u32 {
        match delivery.twice {
            Some((start, end))
                if self.undo_retrans > 0
                    && !start.before(self.retransmitted.0)
                    && !end.after(self.retransmitted.1) =>
            {
                end.since(start)
            }
            _ => 0,
        }
    }

    /// How it goes, with the congestion window, and what the peer has beyond what it
    /// has acknowledged, and what is lost and to be sent again, in bytes.
    #[cold]
    pub(super) fn summary(&self, congestion: &C) -> (Condition, u32, u32, u32) {
        let condition = match self.phase {
            Phase::Disorder => Condition::Disorder,
            Phase::Recovery => Condition::Recovery,
            Phase::Loss => Condition::Loss,
        };
        let window = self.window(congestion);
        (condition, window, self.board.sacked(), self.board.lost())
    }

    /// Whether all is as it should be again, though something may yet be
    /// learnt of what was not.
    pub(crate) fn is_in_order(&self) -> bool {
        self.phase == Phase::Disorder
            && self.dup_acks == 0
            && self.tail_probe.is_none()
            && self.mtu_probe.is_none()
            && self.board.is_empty()
    }
}

/// The pool: one for each connection that needs it, so there are never more
/// than connections.
#[derive(Debug)]
pub(crate) struct Recoveries<C> {
    /// Its place is reserved. A scoreboard's is taken with the first use, and
    /// kept.
    list: Vec<Recovery<C>>,
    free: Vec<u32>,
    /// Scoreboards that none has need of, by their size: of the first those of
    /// who has a larger one.
    boards: [Vec<Scoreboard>; SIZES.len()],
}

impl<C: CongestionControl> Recoveries<C> {
    pub(super) fn take(&mut self, una: Seq) -> u32 {
        if let Some(index) = self.free.pop() {
            let recovery = &mut self[index];
            let board = std::mem::replace(&mut recovery.board, Scoreboard::new(0));
            *recovery = Recovery::new(board, una);
            return index;
        }
        let board = Scoreboard::new(SIZES[0]);
        self.list.push(Recovery::new(board, una));
        self.list.len() as u32 - 1
    }
}
