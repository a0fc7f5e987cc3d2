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

mod pool;
mod timeouts;

pub(crate) use pool::Recoveries;

use crate::acks::{is_duplicate, measure, measure_selective};
use crate::app::Application;
use crate::congestion::{Congestion, CongestionControl, Event, initial_window};
use crate::counters::Counters;
use crate::options::Block;
use crate::output::segment_len_at;
use crate::prr::Prr;
use crate::rack::{DUP_THRESH, Found, News, Rack, lateness, narrow_reordering, widen_reordering};
use crate::scoreboard::{Mark, Scoreboard};
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, Tcb};
use crate::wire::{Segment, Seq};

/// Partial acknowledgements in one reduction that put off the timeout.
const PATIENCE: u32 = 100;
/// New segments that are sent to find out whether a timeout was needless (RFC
/// 5682, section 2.1).
const FRTO_SEGMENTS: u32 = 2;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Something is out of order, and nothing is taken as lost.
    Disorder,
    /// Something was lost; the window shrinks by proportional rate reduction.
    Reduction,
    /// All that was in flight goes again, in slow start: after a timeout, or
    /// because path or window have changed.
    Again,
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
    Echo,
    /// All that was sent again has arrived twice (RFC 3708).
    Duplicates,
    /// What was not sent again after a timeout has arrived (RFC 5682).
    Arrival,
}

impl Proof {
    fn count(self, counters: &mut Counters) {
        counters.undone += 1;
        match self {
            Self::Echo => counters.undone_by_echo += 1,
            Self::Duplicates => counters.undone_by_duplicates += 1,
            Self::Arrival => counters.undone_by_arrival += 1,
        }
    }
}

/// A probe of the tail that is on its way (RFC 8985, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TailProbe {
    /// SND.NXT behind it.
    end: Seq,
    /// It was no new data.
    again: bool,
}

/// A segment on its way that is larger than the path was found to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeProbe {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Recovery<C> {
    pub(crate) board: Scoreboard,
    pub(crate) phase: Phase,
    /// SND.NXT when the phase began: it ends there.
    high: Seq,
    /// Of a peer that does not acknowledge selectively.
    dup_acks: u32,
    prr: Prr,
    /// The congestion window while [`Phase::Reduction`] lasts.
    window: u32,
    rack: Rack,
    /// The congestion control before a reduction that may prove wrong.
    prior: Option<C>,
    /// Our timestamps' clock when something was first sent again.
    first_again: Option<u32>,
    /// Bytes sent again, less those that have arrived twice.
    unproven: u32,
    /// Where they lie.
    resent: Block,
    frto: Frto,
    /// New segments that [`Frto::Second`] has sent and that may still arrive.
    new_sent: u32,
    /// When the segment that has timed out was sent, in milliseconds.
    stalled_at: u32,
    /// Partial acknowledgements in this reduction.
    partial_acks: u32,
    tail_probe: Option<TailProbe>,
    pub(crate) size_probe: Option<SizeProbe>,
}

impl<C: CongestionControl> Recovery<C> {
    fn new(board: Scoreboard, una: Seq) -> Self {
        Self {
            board,
            phase: Phase::Disorder,
            high: una,
            dup_acks: 0,
            prr: Prr::default(),
            window: 0,
            rack: Rack::new(una),
            prior: None,
            first_again: None,
            unproven: 0,
            resent: (una, una),
            frto: Frto::Off,
            new_sent: 0,
            stalled_at: 0,
            partial_acks: 0,
            tail_probe: None,
            size_probe: None,
        }
    }

    /// Bytes of what is unacknowledged that are in the network no longer.
    pub(crate) fn gone(&self, tcb: &Tcb) -> u32 {
        let duplicates = self.dup_acks.saturating_mul(u32::from(tcb.mss));
        let counted = self.board.sacked() + self.board.lost();
        counted.saturating_add(duplicates).min(tcb.flight())
    }

    /// Bytes in the network: RFC 6675's pipe.
    pub(crate) fn pipe(&self, tcb: &Tcb) -> u32 {
        tcb.flight() - self.gone(tcb)
    }

    /// The congestion window.
    pub(crate) fn window(&self, congestion: &C) -> u32 {
        match self.phase {
            Phase::Reduction => self.window,
            Phase::Disorder | Phase::Again => congestion.window(),
        }
    }

    /// The next bytes to be sent again.
    pub(crate) fn next_lost(&self) -> Option<(Seq, Seq)> {
        if self.lost_goes_first() {
            self.board.first_lost()
        } else {
            None
        }
    }

    /// Whether new data waits for what is lost.
    pub(crate) fn lost_goes_first(&self) -> bool {
        self.board.lost() > 0 && self.frto != Frto::Second
    }

    /// Milliseconds by which the timestamp of what is lost lies back when it is
    /// sent again. After a timeout, and in the probe of a tail, it may have been
    /// first sent just now.
    pub(crate) fn lateness(&self, tcb: &Tcb) -> u32 {
        match self.phase {
            Phase::Reduction => lateness(tcb),
            Phase::Disorder | Phase::Again => 0,
        }
    }

    /// `start..end` has been sent again.
    pub(crate) fn has_resent(&mut self, start: Seq, end: Seq, tcb: &Tcb, now: Moment) {
        let mark = Mark::Resent {
            at: now.micros,
            fence: tcb.snd_nxt,
        };
        self.board.set(start, end, Some(mark));
        self.rack.has_resent(end, tcb.snd_nxt, now);
        let clock = tcb.ts_clock(now).wrapping_sub(self.lateness(tcb));
        self.first_again.get_or_insert(clock);
        self.has_sent(end.since(start));
        self.resent = if self.unproven == 0 {
            (start, end)
        } else {
            (self.resent.0.earlier(start), self.resent.1.later(end))
        };
        self.unproven = self.unproven.saturating_add(end.since(start));
    }

    /// Something has been sent, new or again.
    pub(crate) fn has_sent(&mut self, bytes: u32) {
        self.prr.has_sent(bytes);
    }

    /// Without SACK each partial acknowledgement mends one gap. When there are
    /// very many, the timeout is sooner done with them, and is not put off any
    /// more (RFC 6582, section 4: the impatient variant).
    pub(crate) fn is_impatient(&self) -> bool {
        self.phase == Phase::Reduction && self.partial_acks > PATIENCE
    }

    /// Remembers what a reduction may have to be taken back to.
    fn remember(&mut self, congestion: &C) {
        self.prior = Some(*congestion);
        // What was sent again before and is still out may be echoed yet.
        if !self.board.any_resent() {
            self.first_again = None;
            self.unproven = 0;
        }
    }

    /// Something is lost (RFC 6675, section 5, step 4).
    fn begin_reduction(&mut self, tcb: &mut Tcb, congestion: &mut C, told: &Event) {
        self.remember(congestion);
        self.phase = Phase::Reduction;
        self.partial_acks = 0;
        self.high = tcb.snd_nxt;
        // What limited transmit has sent on top does not count (RFC 5681,
        // section 3.2, step 2).
        let flight = tcb.flight().min(congestion.window());
        self.prr = Prr::begin(flight);
        congestion.on_congestion(Congestion::Loss, told);
        tcb.flags.set(Flags::REDUCED);
    }

    /// What was sent again need not have been (RFC 3522; RFC 4015).
    fn undo(&mut self, tcb: &mut Tcb, congestion: &mut C) {
        if self.phase == Phase::Reduction {
            tcb.flags.set(Flags::REORDERING);
        }
        if let Some(prior) = self.prior.take() {
            *congestion = prior;
        }
        // A window that opens at once would be a burst, which may overflow the
        // queue that it is to fill again. (RFC 4015, section 3.4, lets an initial
        // window go, and comes back by slow start.)
        let opened = congestion.window().saturating_sub(self.pipe(tcb));
        let burst = 2 * initial_window(tcb.mss.into());
        if opened > burst.max(congestion.window() / 2) {
            tcb.flags.set(Flags::SPREAD);
        }
        self.board.lose_nothing(tcb.snd_una, tcb.snd_nxt);
        self.rack.look_again(tcb.snd_una);
        self.phase = Phase::Disorder;
        self.dup_acks = 0;
        self.frto = Frto::Off;
        tcb.backoff = 0;
    }

    /// Bytes that have arrived twice because they were sent again, and not
    /// because the network has doubled them.
    fn needless_bytes(&self, news: &News) -> u32 {
        match news.twice {
            Some((start, end))
                if self.unproven > 0
                    && !start.before(self.resent.0)
                    && !end.after(self.resent.1) =>
            {
                end.since(start)
            }
            _ => 0,
        }
    }

    /// By what an acknowledgement proves that nothing was lost, if it does.
    fn was_needless(
        &mut self,
        echo: Option<u32>,
        news: &News,
        acked: u32,
        tcb: &Tcb,
    ) -> Option<Proof> {
        let unproven = self.unproven;
        self.unproven = unproven.saturating_sub(self.needless_bytes(news) + news.early);
        self.prior.as_ref()?;
        let of_the_first = match (self.first_again, echo) {
            (Some(first), Some(echo)) => acked > 0 && Seq(echo).before(Seq(first)),
            _ => false,
        };
        let all_twice = (unproven > 0 && self.unproven == 0).then_some(Proof::Duplicates);
        match self.phase {
            Phase::Disorder => return all_twice,
            // One echo is not of all that was sent again.
            Phase::Reduction if self.board.any_resent() || self.board.lost() > 0 => {
                return all_twice;
            }
            Phase::Reduction | Phase::Again => {}
        }
        let after_timeout = match self.frto {
            Frto::Off => false,
            Frto::First => tcb.flags.has(Flags::SACK) && news.not_lost,
            Frto::Second => acked > 0,
        };
        if of_the_first {
            Some(Proof::Echo)
        } else if after_timeout {
            Some(Proof::Arrival)
        } else {
            all_twice
        }
    }

    /// RFC 5682, section 2.1; with selective acknowledgements the first step
    /// lasts, as each tells what has arrived.
    fn step_frto(&mut self, tcb: &Tcb, acked: u32, is_duplicate: bool) {
        if self.frto == Frto::Off || tcb.flags.has(Flags::SACK) {
            return;
        }
        let has_new = tcb.snd_nxt != tcb.limit()
            && tcb.flight().saturating_add(u32::from(tcb.mss)) <= tcb.snd_wnd;
        self.frto = match self.frto {
            Frto::First if acked > 0 && has_new => {
                self.new_sent = FRTO_SEGMENTS;
                Frto::Second
            }
            Frto::Second if !is_duplicate => Frto::Second,
            _ => Frto::Off,
        };
    }

    /// Whether a probe of the path's width has arrived, and its bytes, once
    /// that is known. Its loss alone does not tell of congestion (RFC 4821,
    /// section 7.5).
    fn take_size_probe(&mut self, tcb: &Tcb, found: &mut Found) -> Option<(u16, bool)> {
        let probe = self.size_probe?;
        let size = probe.end.since(probe.start);
        let mut arrived = true;
        if tcb.snd_una.before(probe.end) {
            let mut pieces = self.board.pieces(probe.start, probe.end);
            arrived = match pieces.next()?.mark? {
                Mark::Sacked => true,
                Mark::Lost => false,
                _ => return None,
            };
        }
        if !arrived && found.lost <= size {
            found.lost = 0;
            self.board.set(probe.start, probe.end, Some(Mark::Lost));
        }
        self.size_probe = None;
        Some((size as u16, arrived))
    }

    /// Without SACK each duplicate is a segment that has arrived somewhere.
    fn count_duplicates(&mut self, tcb: &Tcb, is_duplicate: bool, acked: u32, news: &mut News) {
        let mss = u32::from(tcb.mss);
        if is_duplicate {
            let gone = match self.phase {
                Phase::Again => self.take_new_arrived(),
                Phase::Disorder | Phase::Reduction => 1,
            };
            self.dup_acks = self.dup_acks.saturating_add(gone);
            news.delivered += gone * mss;
        } else if acked > 0 {
            let eaten = self.dup_acks.min(acked.div_ceil(mss) - 1);
            self.dup_acks -= eaten;
            news.delivered = news.delivered.saturating_sub(eaten * mss);
            if self.phase == Phase::Disorder || tcb.snd_una == self.high {
                self.dup_acks = 0;
            }
        }
    }

    /// A duplicate after a timeout: 1 if it is of one of the new segments that
    /// were sent to find out about it, which makes room for one of what is
    /// lost (RFC 5682, section 2.1, step 3a).
    fn take_new_arrived(&mut self) -> u32 {
        let arrived = self.new_sent.min(1);
        self.new_sent -= arrived;
        arrived
    }

    /// What is lost by now; `advanced`: something was acknowledged.
    fn find_lost(&mut self, tcb: &Tcb, advanced: bool, now: Moment) -> Found {
        let mss = u32::from(tcb.mss);
        if tcb.flags.has(Flags::SACK) {
            let enough = self.board.sacked() > (DUP_THRESH - 1) * mss;
            let at_once =
                !tcb.flags.has(Flags::REORDERING) && (self.phase != Phase::Disorder || enough);
            return self.rack.find_lost(&mut self.board, tcb, at_once, now);
        }
        let lost = match self.phase {
            Phase::Disorder => self.dup_acks >= DUP_THRESH,
            // RFC 6582, 3.2, step 3: all of it; what is new may be lost as well.
            Phase::Reduction if tcb.snd_una == self.high => self.dup_acks >= DUP_THRESH,
            // The next gap begins here.
            Phase::Reduction => advanced,
            Phase::Again => false,
        };
        let una = tcb.snd_una;
        let first = self.board.pieces(una, tcb.snd_nxt).next();
        let len = segment_len_at(tcb, una).min(tcb.flight());
        let mut found = Found::default();
        if lost
            && first.is_some_and(|piece| piece.mark.is_none())
            && self.board.set(una, una + len, Some(Mark::Lost))
        {
            found.lost = len;
        }
        found
    }

    /// All that was in flight when the phase began has arrived. For as long as
    /// it takes, the peer may still tell that some of it has arrived twice
    /// (RFC 3708).
    fn end_phase(&mut self, tcb: &Tcb) {
        self.phase = Phase::Disorder;
        self.high = tcb.snd_nxt;
        self.dup_acks = 0;
        self.frto = Frto::Off;
        if self.unproven == 0 || !tcb.flags.has(Flags::SACK) {
            self.prior = None;
        }
    }

    fn begin_again(&mut self, tcb: &Tcb) {
        self.board.lose_all(tcb.snd_una, tcb.snd_nxt);
        self.rack.look_again(tcb.snd_una);
        self.phase = Phase::Again;
        self.high = tcb.snd_nxt;
        self.dup_acks = 0;
        self.tail_probe = None;
        self.size_probe = None;
    }

    /// Whether the probe of a tail has sent what ends at `nxt`.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn probes_tail(&self, nxt: Seq) -> bool {
        self.tail_probe.is_some_and(|probe| probe.end == nxt)
    }

    /// Whether all is as it should be again, though something may yet be
    /// learnt of what was not.
    pub(crate) fn is_calm(&self) -> bool {
        self.phase == Phase::Disorder
            && self.dup_acks == 0
            && self.tail_probe.is_none()
            && self.size_probe.is_none()
            && self.board.is_empty()
    }
}

/// What an algorithm of congestion control is told.
#[inline(always)]
pub(crate) fn event(tcb: &Tcb, in_flight: u32, rtt: u32, now: Moment) -> Event {
    Event {
        now: now.micros,
        in_flight,
        mss: u32::from(tcb.mss),
        srtt: tcb.rtt.smoothed(),
        rtt,
        una: tcb.snd_una.0,
        nxt: tcb.snd_nxt.0,
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// The recovery of a connection, which begins now if there was none, and
    /// has place for what an acknowledgement of so many blocks tells.
    pub(crate) fn recovery_of(&mut self, id: u32, blocks: usize) -> u32 {
        let tcb = &mut self.records[id as usize].tcb;
        if tcb.recovery == NONE {
            tcb.recovery = self.recoveries.take(tcb.snd_una);
        }
        let index = tcb.recovery;
        if self.recoveries.is_short_of_space(index, blocks) {
            self.lend_larger_board(id);
        }
        index
    }

    /// An acknowledgement while something is out of order, or the first that
    /// tells of it. SND.UNA is `una` still. What it acknowledges is not taken
    /// out of the stream here.
    #[cold]
    #[inline(never)]
    pub(crate) fn process_disorder(
        &mut self,
        id: u32,
        segment: Segment,
        sack: &[Block],
        now: Moment,
    ) {
        let index = self.recovery_of(id, news_of(&self.records[id as usize].tcb, sack));
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let recovery = self.recoveries.get_mut(index);
        let una = tcb.snd_una;
        let acked = segment.ack.since(una);
        let before = recovery.pipe(tcb);
        let had_gaps = !recovery.board.is_empty();
        let is_duplicate = acked == 0 && is_duplicate(tcb, segment);
        tcb.snd_una = segment.ack;

        // What has arrived.
        let echo = echo(tcb, segment);
        let mut news = recovery
            .rack
            .take_in(&mut recovery.board, tcb, una, echo, sack, now);
        let selective = tcb.flags.has(Flags::SACK);
        let mss = u32::from(tcb.mss);
        if !selective {
            recovery.count_duplicates(tcb, is_duplicate, acked, &mut news);
        }
        let needless = recovery.needless_bytes(&news);
        note_disorder(&mut self.counters, tcb, &news, needless > 0);

        // The round trip, where the peer's echo tells it even of what was
        // sent again (RFC 7323, section 4).
        let mut rtt = measure_selective(tcb, sack, now);
        if acked > 0 {
            tcb.retries = 0;
            if rtt == 0 {
                rtt = measure(tcb, segment, now);
            }
        }
        // What fills a gap was late itself, and no queue need be the reason.
        let told = event(tcb, before, if had_gaps { 0 } else { rtt }, now);
        if let Some(probe) = recovery.tail_probe
            && !segment.ack.before(probe.end)
        {
            recovery.tail_probe = None;
            if probe.again && news.twice.is_none() && recovery.phase == Phase::Disorder {
                // RFC 8985, section 7.4.2: the probe has mended a loss.
                congestion.on_congestion(Congestion::Loss, &told);
                tcb.flags.set(Flags::REDUCED);
                self.counters.tail_losses += 1;
            }
        }

        if let Some(proof) = recovery.was_needless(echo, &news, acked, tcb) {
            recovery.undo(tcb, congestion);
            proof.count(&mut self.counters);
        }
        recovery.step_frto(tcb, acked, is_duplicate);

        // Is all of it mended? RFC 6582, section 3.2: without SACK, duplicates
        // of what was sent again may still come, so only something behind it
        // tells.
        let mended = if selective || tcb.flight() == 0 {
            !tcb.snd_una.before(recovery.high)
        } else {
            // Plain Reno ends with any acknowledgement of something new.
            let partial = C::PARTIAL_ACK_RECOVERY || recovery.phase == Phase::Again;
            tcb.snd_una.after(recovery.high) || acked > 0 && !partial
        };
        let ends = recovery.phase == Phase::Reduction && mended;
        if recovery.phase != Phase::Disorder && mended {
            recovery.end_phase(tcb);
            congestion.on_recovered(if ends { news.delivered } else { 0 }, &told);
            narrow_reordering(tcb);
        } else if tcb.snd_una.after(recovery.high) {
            // What was sent after all was mended has arrived: no report of
            // duplicates comes any more.
            recovery.prior = None;
        }

        // What is lost?
        let mut found = recovery.find_lost(tcb, acked > 0, now);
        let size = recovery.take_size_probe(tcb, &mut found);
        self.counters.lost_again += u64::from(found.again);
        if found.lost > 0 && recovery.phase == Phase::Disorder {
            recovery.begin_reduction(tcb, congestion, &told);
            self.counters.fast_retransmits += 1;
        }
        match recovery.phase {
            Phase::Reduction => {
                let pipe = recovery.pipe(tcb);
                let progress = acked > 0 && found.lost == 0;
                let target = congestion.window();
                let prr = &mut recovery.prr;
                let mut allowed = prr.allowance(news.delivered, pipe, target, progress, mss);
                if !selective && found.lost > 0 {
                    // RFC 6582, section 3.2, step 3: it goes at once.
                    allowed = allowed.max(mss);
                }
                recovery.window = pipe + allowed;
                congestion.on_recovery_ack(news.delivered, found.lost, &told);
            }
            Phase::Disorder | Phase::Again => {
                // Where segments change their order, those behind a gap count
                // when they arrive.
                let at_once = recovery.phase == Phase::Disorder
                    && selective
                    && tcb.flags.has(Flags::REORDERING);
                let counted = if at_once { news.delivered } else { acked };
                if counted > 0 && !ends {
                    congestion.on_ack(counted, &told);
                }
            }
        }
        let partial = acked > 0 && recovery.phase == Phase::Reduction;
        recovery.partial_acks += u32::from(partial);
        let impatient = !selective && recovery.is_impatient();
        let progress = acked > 0 && !impatient || selective && news.delivered > 0;
        if self.recoveries.settle(index, &mut self.peers) {
            tcb.recovery = NONE;
        }
        if let Some((size, arrived)) = size {
            self.end_size_probe(id, size, arrived);
        }
        self.rearm(id, now, progress, found.look_in);
    }

    /// Sets the timer after an acknowledgement, or when late segments have
    /// been looked at: `look_in` microseconds from now again.
    fn rearm(&mut self, id: u32, now: Moment, progress: bool, look_in: Option<u32>) {
        let tcb = &mut self.records[id as usize].tcb;
        if let Some(micros) = look_in {
            tcb.flags.clear(Flags::PROBE_TAIL);
            tcb.flags.set(Flags::AWAIT_LATE);
            self.arm(id, now, micros.div_ceil(1000).max(1));
        } else if progress || tcb.flags.has(Flags::AWAIT_LATE) {
            tcb.flags.clear(Flags::AWAIT_LATE);
            self.arm_after_ack(id, now);
        }
    }

    /// Late segments have had their time.
    #[cold]
    pub(crate) fn handle_late(&mut self, id: u32, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let recovery = self.recoveries.get_mut(tcb.recovery);
        let told = event(tcb, recovery.pipe(tcb), 0, now);
        let mut found = recovery.find_lost(tcb, false, now);
        let size = recovery.take_size_probe(tcb, &mut found);
        self.counters.lost_again += u64::from(found.again);
        if found.lost > 0 && recovery.phase == Phase::Disorder {
            recovery.begin_reduction(tcb, congestion, &told);
            self.counters.fast_retransmits += 1;
        }
        if recovery.phase == Phase::Reduction {
            let pipe = recovery.pipe(tcb);
            let target = congestion.window();
            let prr = &mut recovery.prr;
            recovery.window = pipe + prr.allowance(0, pipe, target, false, told.mss);
        }
        if let Some((size, arrived)) = size {
            self.end_size_probe(id, size, arrived);
        }
        self.rearm(id, now, true, found.look_in);
    }
}

/// Blocks that may tell of something in flight.
fn news_of(tcb: &Tcb, sack: &[Block]) -> usize {
    let is_news = |end: Seq| end.after(tcb.snd_una) && !end.after(tcb.snd_nxt);
    sack.iter().filter(|(_, end)| is_news(*end)).count()
}

/// The timestamp of ours that comes back with a segment.
fn echo(tcb: &Tcb, segment: Segment) -> Option<u32> {
    let timestamps = segment
        .timestamps
        .filter(|_| tcb.flags.has(Flags::TIMESTAMPS));
    timestamps.map(|timestamps| timestamps.echo)
}

/// Counts and remembers what is not as it should be; `needless`: something was
/// sent again for nothing.
fn note_disorder(counters: &mut Counters, tcb: &mut Tcb, news: &News, needless: bool) {
    counters.scoreboard_full += u64::from(news.no_place);
    counters.duplicates_reported += u64::from(news.twice.is_some());
    if news.reordered && !tcb.flags.has(Flags::REORDERING) {
        tcb.flags.set(Flags::REORDERING);
        counters.reorderings += 1;
    }
    if news.early > 0 || needless {
        widen_reordering(tcb);
    }
}
