//! Loss recovery: state and actions while segments are lost, late or out of order.
//!
//! Most connections never need this state, so it is stored in a pool, outside the TCBs. A
//! connection takes a [`Recovery`] from the pool only when needed, for example at a sign of
//! disorder, after a timeout, or for a probe. It releases the recovery when everything is in order
//! again and no window reduction can be undone.
//!
//! - If the peer uses SACK, RACK detects losses (RFC 8985). Otherwise duplicate ACKs reveal losses
//!   (RFC 5681, RFC 6582). The retransmission timeout covers all other losses.
//! - Proportional rate reduction decides how much may be sent during fast recovery (RFC 6937).
//! - Window reductions that prove spurious are undone (RFC 3522, RFC 5682, RFC 3708).

mod disorder;
mod path_mtu;
mod pool;
mod rack;
mod scoreboard;
mod timeouts;
mod undo;
#[cfg(any(test, feature = "fuzzing"))]
mod view;

use std::collections::VecDeque;

use crate::congestion::CongestionControl;
use crate::connection::condition::Condition;
use crate::connection::{Flags, Tcb};
use crate::counters::Counters;
use crate::wire::{Block, Seq};

/// Capacities of the three scoreboard sizes, in ranges.
///
/// A SACK block that does not fit is ignored. If the peer does not repeat the block, its data is
/// retransmitted. The largest size is needed when a queue overflows in slow start and drops every
/// second segment of a window.
const SIZES: [usize; 3] = [16, 128, 8_192];
/// Maximum number of ranges in a scoreboard that are reserved for losses and retransmissions, so
/// that SACK blocks cannot fill the scoreboard. The reserve is a quarter of the capacity, up to
/// this limit.
const MAX_RESERVE: usize = 32;

/// Maximum number of partial ACKs in one recovery that restart the retransmission timer if the peer
/// does not use SACK. If there are more gaps, a timeout repairs them faster.
const MAX_PARTIAL_ACKS: u32 = 100;

#[cfg(test)]
thread_local! {
    /// Number of ranges that this thread has read in order, or has moved to make or fill a gap.
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to [`STEPS`], so that tests can limit the work that an ACK causes.
#[cfg(test)]
fn note_steps(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

#[cfg(not(test))]
const fn note_steps(_: usize) {}

/// State of a range of sequence numbers. Times are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// The peer has SACKed the range.
    Sacked,
    /// The ACK that first showed the delivery of a later segment arrived at time `at`. The range
    /// may be reordered rather than lost.
    Late { at: u32 },
    /// The range counts as lost, and was not yet retransmitted.
    Lost,
    /// The range was retransmitted at time `at`, when SND.NXT was `fence`.
    Retransmitted { at: u32, fence: Seq },
    /// The range was retransmitted. The ACK that first showed the delivery of a segment sent after
    /// the retransmission arrived at time `at`.
    LateRetransmit { at: u32 },
}

/// A range of sequence numbers, `end` excluded.
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

/// Consecutive sequence numbers with the same mark. The mark `None` means that their first
/// transmission is in flight.
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

/// Marked ranges of the data in flight. They are disjoint and in ascending order, and neighbours
/// with the same mark are merged. All ranges lie within half of the sequence space, so their
/// sequence numbers can be compared.
#[derive(Clone, Debug)]
struct Scoreboard {
    /// The ranges in order. They are stored in a ring because most changes happen near its ends:
    /// acknowledgement and retransmission at the front, SACK blocks at the back. The ring's memory
    /// is allocated once and never grows.
    ranges: VecDeque<Range>,
    /// Maximum number of ranges.
    limit: usize,
    /// Index of this scoreboard in the pool for its size.
    slot: u32,
    sums: Sums,
    /// Whether ranges were removed for lack of room since the last check of all ranges.
    has_forgotten: bool,
}

/// Sums over the ranges of a scoreboard. They spare an ACK a walk over all ranges.
#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    /// Number of bytes in SACKed ranges.
    sacked: u32,
    /// Number of bytes in lost ranges.
    lost: u32,
    /// Number of bytes in retransmitted ranges, late ones included.
    retransmitted: u32,
    /// Number of bytes in late ranges.
    late: u32,
    /// Time `at` before which no late range became late, and the number of late bytes with exactly
    /// this time. If the number is 0, all of these bytes have left the scoreboard.
    first_late: (u32, u32),
    /// Sequence number below which no range is lost. It has no meaning if nothing is lost.
    first_lost: Seq,
}

impl Scoreboard {
    /// Creates an empty scoreboard with a fixed capacity of `limit` ranges.
    fn new(limit: usize) -> Self {
        Self::numbered(limit, 0)
    }

    /// Creates an empty scoreboard for up to `limit` ranges. Its index in the pool for its size is
    /// `slot`.
    fn numbered(limit: usize, slot: u32) -> Self {
        Self {
            ranges: VecDeque::with_capacity(limit),
            limit,
            slot,
            sums: Sums::default(),
            has_forgotten: false,
        }
    }

    /// Removes all ranges.
    fn clear(&mut self) {
        self.ranges.clear();
        self.sums = Sums::default();
        self.has_forgotten = false;
    }

    /// Returns the index of this scoreboard's capacity in [`SIZES`].
    fn size(&self) -> usize {
        SIZES.partition_point(|size| *size < self.limit)
    }

    /// Returns the index of this scoreboard in the pool for its size.
    fn slot(&self) -> u32 {
        self.slot
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if there is room for another sacked range.
    fn takes_sacked(&self) -> bool {
        // The new range may also divide an existing range, so up to two ranges are added.
        self.ranges.len() + 2 <= self.sack_limit()
    }

    /// Returns true if a retransmission is still in flight.
    fn any_retransmitted(&self) -> bool {
        self.sums.retransmitted > 0
    }

    /// Returns the number of bytes that the peer has SACKed beyond the cumulative ACK.
    fn sacked(&self) -> u32 {
        self.sums.sacked
    }

    /// Returns the number of bytes that are lost and were not yet retransmitted.
    fn lost(&self) -> u32 {
        self.sums.lost
    }

    /// Returns the number of ranges up to which this scoreboard accepts SACK blocks.
    fn sack_limit(&self) -> usize {
        self.limit - (self.limit / 4).min(MAX_RESERVE)
    }

    /// Returns the piece of `start..end` that begins at `start`, or `None` if `start..end` is
    /// empty.
    fn first_piece(&self, start: Seq, end: Seq) -> Option<Piece> {
        self.pieces(start, end).next()
    }

    /// Returns true if the capacity may be too small for an ACK with `blocks` SACK blocks. Each
    /// block may add two ranges, RACK may divide one range, and each gap may become a lost range.
    fn is_short_of_space(&self, blocks: usize) -> bool {
        2 * (self.ranges.len() + 2 * blocks + 1) > self.sack_limit()
    }

    /// Moves all ranges to `larger`, which replaces this scoreboard. Returns the old scoreboard,
    /// which is then empty.
    fn move_to(&mut self, mut larger: Self) -> Self {
        larger.ranges.extend(self.ranges.drain(..));
        (larger.sums, larger.has_forgotten) = (self.sums, self.has_forgotten);
        self.clear();
        std::mem::replace(self, larger)
    }

    /// Returns the lost range with the lowest sequence numbers, as `(start, end)`, or `None` if
    /// nothing is lost.
    fn first_lost(&mut self) -> Option<(Seq, Seq)> {
        if self.sums.lost == 0 {
            return None;
        }
        let end = self.ranges.back()?.end;
        let mut pieces = self.pieces(self.sums.first_lost, end);
        let first = pieces.find(|piece| piece.mark == Some(Mark::Lost))?;
        drop(pieces);
        self.sums.first_lost = first.start;
        Some((first.start, first.end))
    }

    /// Returns the time since which the range is late that has been late for longest, or `None` if
    /// no range is late. The time may be too early if [`knows_late`](Self::knows_late) is false.
    fn late_since(&self) -> Option<u32> {
        (self.sums.late > 0).then_some(self.sums.first_late.0)
    }

    /// Returns true if [`late_since`](Self::late_since) is exact.
    fn knows_late(&self) -> bool {
        self.sums.late == 0 || self.sums.first_late.1 > 0
    }

    /// Marks all data in `una..nxt` as lost, except SACKed data. If the result would need too many
    /// ranges, SACKed data is marked as lost too.
    fn mark_all_lost(&mut self, una: Seq, nxt: Seq) {
        self.advance(una);
        if self.pieces(una, nxt).count() > self.limit {
            // The gaps between the ranges would become ranges too, which would exceed the capacity.
            // Therefore all data becomes one range.
            self.clear();
        }
        self.remark(una, nxt, |piece| match piece.mark {
            Some(Mark::Sacked) => piece.mark,
            _ => Some(Mark::Lost),
        });
    }

    /// Removes the marks of lost and late ranges, so that they count as in flight again.
    fn unmark_lost(&mut self, una: Seq) {
        self.advance(una);
        self.remark(una, una, |piece| {
            let mark = piece.mark?;
            matches!(mark, Mark::Sacked | Mark::Retransmitted { .. }).then_some(mark)
        });
    }

    /// Removes the marks of SACKed ranges, because the peer may have discarded their data
    /// (reneging; RFC 2018, section 8).
    fn forget_sacked(&mut self, una: Seq) {
        self.advance(una);
        self.remark(una, una, |piece| {
            piece.mark.filter(|mark| *mark != Mark::Sacked)
        });
    }
}

/// What one ACK reports about the data in flight.
#[derive(Clone, Copy, Default, Debug)]
struct Delivery {
    /// Number of newly delivered bytes.
    delivered: u32,
    /// Whether some delivered bytes had counted as lost although their first transmission has
    /// arrived.
    spurious_loss: bool,
    /// Whether the first transmission of some delivered bytes arrived after later data.
    reordered: bool,
    /// Range of bytes that the peer reports as duplicates (DSACK).
    dsack: Option<Block>,
    /// Number of delivered bytes whose retransmission cannot have arrived yet, so the original must
    /// have arrived.
    early_bytes: u32,
    /// Whether a SACK block did not fit into the scoreboard.
    board_full: bool,
}

/// Result of a check for late and lost segments.
#[derive(Clone, Copy, Default, Debug)]
struct Losses {
    /// Number of bytes that newly count as lost.
    lost: u32,
    /// Whether some of these bytes were retransmissions.
    lost_retransmission: bool,
    /// Time in microseconds until the next check, or `None` if no segment is late.
    recheck_in: Option<u32>,
}

/// State of RACK (RFC 8985): which of the delivered segments were sent most recently.
#[derive(Clone, Copy, Debug)]
struct Rack {
    /// Sequence number below which all data was first sent before some delivered segment.
    overtaken: Seq,
    /// End of the highest range of sequence numbers whose first transmission was delivered.
    fack: Seq,
    /// Send time and end of the delivered retransmission that was sent last.
    latest_retransmit: Option<(u32, Seq)>,
    /// Value of `overtaken` at the last check for losses.
    checked: Seq,
    /// Lowest fence (see [`Mark::Retransmitted`]) of the retransmissions in flight, and the send
    /// time and end of the one that was sent first. The values may be too low, because a
    /// retransmission may have been delivered since the last check of all ranges.
    earliest_retransmit: Option<(Seq, u32, Seq)>,
    /// Whether a range was late after the last check, or the scoreboard was rebuilt since then.
    any_late: bool,
    /// Whether the other fields may not show all ranges whose marks change at the next check.
    is_incomplete: bool,
}

impl Rack {
    const fn new(una: Seq) -> Self {
        Self {
            overtaken: una,
            fack: una,
            latest_retransmit: None,
            checked: una,
            earliest_retransmit: None,
            any_late: false,
            is_incomplete: false,
        }
    }

    /// Records a retransmission that ends at `end` and was sent at time `at`, when SND.NXT was `fence`.
    fn note_retransmit(&mut self, fence: Seq, at: u32, end: Seq) {
        let noted = (fence, at, end);
        self.earliest_retransmit = Some(earliest(self.earliest_retransmit.unwrap_or(noted), noted));
    }

    /// Forgets the latest delivered retransmission, because the clock that measured its send time
    /// wraps around. Must not be called while a retransmission is in flight.
    fn forget_retransmit(&mut self) {
        self.latest_retransmit = None;
    }

    /// Forces the next check to examine the scoreboard, because the scoreboard was rebuilt.
    fn recheck(&mut self, una: Seq) {
        self.checked = una;
        self.any_late = true;
        self.is_incomplete = true;
    }
}

/// Combines two retransmissions: the lowest fence, and the send time and end of the one that was sent
/// first. Retransmissions with the same send time are sent in the order of their ends.
fn earliest(one: (Seq, u32, Seq), other: (Seq, u32, Seq)) -> (Seq, u32, Seq) {
    let after = other.1.wrapping_sub(one.1).cast_signed();
    let other_first = after < 0 || after == 0 && other.2.before(one.2);
    let (_, at, end) = if other_first { other } else { one };
    (one.0.earlier(other.0), at, end)
}

/// Snapshot of a connection's data in flight, as input for [`Rack`].
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// SND.UNA.
    una: Seq,
    /// SND.NXT.
    nxt: Seq,
    /// Maximum payload of a segment, in bytes.
    mss: u32,
    /// Whether all written data has been sent.
    all_sent: bool,
    /// Whether the peer uses SACK.
    sack: bool,
    /// Minimum RTT in microseconds, or 0 before the first sample.
    min_rtt: u32,
    /// Time in microseconds for which an overtaken segment may be late before it counts as lost.
    reordering_window: u32,
    /// TSval of a segment sent now.
    tsval: u32,
    /// Time in milliseconds by which the TSvals of retransmissions are backdated.
    backdating: u32,
    /// Current time in microseconds.
    now: u32,
}

impl Flight {
    /// Returns the number of bytes that were sent and are not acknowledged cumulatively, including
    /// lost bytes. A FIN counts as one byte.
    fn len(&self) -> u32 {
        self.nxt.since(self.una)
    }
}

impl Tcb {
    /// Returns the time in milliseconds by which to backdate the TSvals of retransmissions.
    ///
    /// After a retransmission has filled a gap, the receiver discards segments with older TSvals,
    /// including late originals (PAWS: RFC 7323, section 5). On a path that reorders segments, the
    /// TSval is therefore backdated by the reordering window, in which originals may still arrive.
    /// The limit is one minimum RTT. If the TSval were older than the original's, the receiver
    /// could discard the retransmission.
    fn backdating(&self) -> u32 {
        if self.flags.intersects(Flags::REORDERING) {
            let min_rtt_ms = self.rtt.min() / 1_000;
            self.reo_wnd
                .window(self.rtt)
                .div_ceil(1_000)
                .min(min_rtt_ms)
        } else {
            0
        }
    }
}

/// State of proportional rate reduction (RFC 6937), in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Prr {
    delivered: u32,
    sent: u32,
    /// Number of bytes in flight when recovery began: `RecoverFS`.
    flight: u32,
}

impl Prr {
    /// Counts sent bytes: new data and retransmissions.
    fn has_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }
}

/// Phase of recovery, as in the public [`Condition`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No segment counts as lost. Segments may be out of order, a probe may be in flight, or the
    /// last window reduction may still be undone.
    Disorder,
    /// Fast recovery: a segment was lost, and the window shrinks by proportional rate reduction.
    Recovery,
    /// All data that is not SACKed is retransmitted, for example after a timeout or a reduction of
    /// the path MTU.
    Loss,
}

/// Step of F-RTO, which uses the ACKs after a timeout to find out whether the timeout was spurious
/// (RFC 5682).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frto {
    Off,
    /// F-RTO waits for the first ACK after the timeout. If the peer uses SACK, this step continues
    /// with every later ACK.
    First,
    /// The first ACK acknowledged new data, so new data is sent before lost data. If the second ACK
    /// also acknowledges new data, the timeout was spurious.
    Second,
}

/// Evidence that a reduction of the congestion window was spurious.
#[derive(Clone, Copy, Debug)]
enum Proof {
    /// A TSecr that belongs to the original transmission (Eifel, RFC 3522).
    Eifel,
    /// All retransmitted bytes were reported as duplicates (DSACK, RFC 3708), or were delivered
    /// before their retransmission could arrive.
    Dsack,
    /// After a timeout, the delivery of data that was not retransmitted (F-RTO, RFC 5682).
    Frto,
}

impl Proof {
    fn count(self, counters: &mut Counters) {
        counters.undos += 1;
        match self {
            Self::Eifel => counters.eifel_undos += 1,
            Self::Dsack => counters.dsack_undos += 1,
            Self::Frto => counters.spurious_rtos += 1,
        }
    }
}

/// A tail loss probe in flight (RFC 8985, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TailProbe {
    /// SND.NXT after the probe.
    end: Seq,
    /// Whether the probe is a retransmission rather than new data.
    is_retransmission: bool,
}

/// A path MTU probe in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MtuProbe {
    start: Seq,
    end: Seq,
}

/// Loss recovery state: see [the module](self).
#[derive(Clone, Debug)]
pub(crate) struct Recovery<C> {
    board: Scoreboard,
    phase: Phase,
    /// SND.NXT when the last fast recovery or loss phase began or ended. An ACK of all data before
    /// this number ends such a phase.
    high_seq: Seq,
    /// Number of segments that duplicate ACKs have reported as delivered, if the peer does not use
    /// SACK.
    dup_acks: u32,
    prr: Prr,
    /// The congestion window during [`Phase::Recovery`], in bytes.
    window: u32,
    rack: Rack,
    /// Copy of the congestion control state from before a reduction that may be spurious.
    prior: Option<C>,
    /// TSval of the first retransmission.
    first_retransmit_ts: Option<u32>,
    /// Number of retransmitted bytes that have not proved spurious.
    undo_retrans: u32,
    /// Range of sequence numbers that contains the bytes counted in `undo_retrans`.
    retransmitted: Block,
    /// Value of SND.UNA at which the peer has paid for all undos.
    undos_paid_by: Seq,
    frto: Frto,
    /// Number of new segments of [`Frto::Second`] that no duplicate ACK has reported as delivered
    /// yet.
    new_sent: u32,
    /// Time in milliseconds of the last start of the retransmission timer before the first timeout.
    stalled_at: u32,
    /// Number of partial ACKs in this recovery.
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
            undos_paid_by: una,
            frto: Frto::Off,
            new_sent: 0,
            stalled_at: 0,
            partial_acks: 0,
            tail_probe: None,
            mtu_probe: None,
        }
    }

    /// Returns the number of bytes of `flight` that have left the network: bytes that are SACKed,
    /// lost, or counted by duplicate ACKs.
    fn left_network(&self, flight: u32, mss: u16) -> u32 {
        let duplicates = self.dup_acks.saturating_mul(mss.into());
        let marked = self.board.sacked() + self.board.lost();
        marked.saturating_add(duplicates).min(flight)
    }

    /// Returns the number of bytes in the network: the `pipe` of RFC 6675.
    fn pipe(&self, flight: u32, mss: u16) -> u32 {
        flight - self.left_network(flight, mss)
    }

    /// Returns the congestion window in the current phase.
    fn window(&self, congestion: &C) -> u32 {
        match self.phase {
            Phase::Recovery => self.window,
            Phase::Disorder | Phase::Loss => congestion.window(),
        }
    }

    /// Counts sent bytes: new data and retransmissions.
    fn has_sent(&mut self, bytes: u32) {
        self.prr.has_sent(bytes);
    }

    /// Returns true if partial ACKs no longer restart the retransmission timer (RFC 6582, section
    /// 4: the impatient variant).
    ///
    /// Without SACK, recovery repairs one gap per partial ACK. If there are many gaps, a timeout
    /// repairs them faster.
    fn is_impatient(&self) -> bool {
        self.phase == Phase::Recovery && self.partial_acks > MAX_PARTIAL_ACKS
    }

    /// Saves the state that an undo restores.
    fn save_prior(&mut self, congestion: &C) {
        self.prior = Some(*congestion);
        // The values below are kept while a retransmission is in flight, because a TSecr or a DSACK
        // for the retransmission may still arrive.
        if !self.board.any_retransmitted() {
            self.first_retransmit_ts = None;
            self.undo_retrans = 0;
        }
    }

    /// Returns the number of bytes of the DSACK that are duplicates because we retransmitted them,
    /// not because the network duplicated a packet.
    fn spurious_bytes(&self, delivery: &Delivery) -> u32 {
        match delivery.dsack {
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

    /// Returns the phase, the congestion window, the number of SACKed bytes, and the number of lost
    /// bytes that were not yet retransmitted.
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

    /// Returns true if there is no sign of loss or reordering, and no tail loss probe or MTU probe
    /// is outstanding. The last window reduction may still be undone.
    pub(crate) fn is_in_order(&self) -> bool {
        self.phase == Phase::Disorder
            && self.dup_acks == 0
            && self.tail_probe.is_none()
            && self.mtu_probe.is_none()
            && self.board.is_empty()
    }
}

/// Pool of loss recovery states. Each connection holds at most one.
#[derive(Debug)]
pub(crate) struct Recoveries<C> {
    /// All recoveries that were ever used. The capacity is reserved at the start. Each recovery
    /// allocates a scoreboard of the smallest size on first use.
    list: Vec<Recovery<C>>,
    free: Vec<u32>,
    /// Free scoreboards by size. A recovery that borrows a larger scoreboard leaves its smallest
    /// one here.
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
