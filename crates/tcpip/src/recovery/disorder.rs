//! Acknowledgements while something is lost, late or out of order, and the
//! first that tells of it.

use super::{Flight, News, Phase, event};
use crate::acks::{is_duplicate, measure, measure_selective};
use crate::app::Application;
use crate::congestion::{Congestion, CongestionControl};
use crate::counters::Counters;
use crate::options::Block;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, Tcb};
use crate::wire::{Segment, Seq};

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
        let flight = Flight::of(tcb, now);
        let mut news = recovery
            .rack
            .take_in(&mut recovery.board, &flight, una, echo, sack);
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

        if let Some(proof) = recovery.undo_if_needless(echo, &news, acked, tcb, congestion) {
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
            tcb.reorder.narrow();
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
        tcb.flags.set(Flags::REORDERING);
        tcb.reorder.widen();
    }
}
