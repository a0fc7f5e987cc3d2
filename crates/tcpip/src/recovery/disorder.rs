//! What acknowledgements tell while something is lost, late or out of order.

use super::{Flight, Found, News, Phase};
use crate::clock::Moment;
use crate::congestion::{Congestion, CongestionControl, Event};
use crate::connection::{Conn, Due, Flags, Tcb, is_duplicate};
use crate::counters::Counters;
use crate::options::Block;
use crate::wire::{Segment, Seq};

/// What an acknowledgement has told.
struct Told {
    news: News,
    /// Bytes acknowledged for the first time.
    acked: u32,
    /// The reduction has ended with it.
    ends: bool,
    event: Event,
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Whether an acknowledgement may tell more than the scoreboard has place
    /// for.
    #[cold]
    pub(crate) fn is_short_of_space(&mut self, segment: Segment, sack: &[Block]) -> bool {
        let tcb = &*self.tcb;
        let acked = segment.ack.since(tcb.snd_una).cast_signed();
        let counts = acked > 0 || acked == 0 && tcb.flight() > 0 && !tcb.probes_window();
        let is_news = |end: Seq| end.after(tcb.snd_una) && !end.after(tcb.snd_nxt);
        let news = sack.iter().filter(|(_, end)| is_news(*end)).count();
        if !counts {
            return false;
        }
        let index = self.begin_recovery();
        self.losses.is_short_of_space(index, news)
    }

    /// An acknowledgement while something is out of order, or the first that
    /// tells of it. SND.UNA is the one before still. What it acknowledges is not
    /// taken out of the stream here.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_disorder(mut self, segment: Segment, sack: &[Block], now: Moment) {
        let mut told = self.take_in(segment, sack, now);
        self.end_phase_if_mended(&mut told);
        self.look_for_losses(&told, now);
    }

    /// What has arrived, and whether what was sent again had to be.
    fn take_in(&mut self, segment: Segment, sack: &[Block], now: Moment) -> Told {
        let index = self.begin_recovery();
        let (tcb, recovery) = (&mut *self.tcb, self.losses.get_mut(index));
        let una = tcb.snd_una;
        let acked = segment.ack.since(una);
        let before = recovery.pipe(tcb);
        let had_gaps = !recovery.board.is_empty();
        let is_duplicate = acked == 0 && is_duplicate(tcb, segment);
        tcb.snd_una = segment.ack;

        let echo = echo(tcb, segment);
        let flight = Flight::of(tcb, now);
        let mut news = recovery
            .rack
            .take_in(&mut recovery.board, &flight, una, echo, sack);
        if !tcb.negotiated.sack() {
            recovery.count_duplicates(tcb, is_duplicate, acked, &mut news);
        }
        let needless = recovery.needless_bytes(&news);
        note_disorder(&mut self.cx.counters, tcb, &news, needless > 0);

        // The round trip, where the peer's echo tells it even of what was
        // sent again (RFC 7323, section 4).
        let mut rtt = tcb.measure_selective(sack, now);
        if acked > 0 {
            tcb.retries = 0;
            if rtt == 0 {
                rtt = tcb.measure(segment, now);
            }
        }
        // What fills a gap was late itself, and no queue need be the reason.
        let event = tcb.event(before, if had_gaps { 0 } else { rtt }, now);
        if let Some(probe) = recovery.tail_probe
            && !segment.ack.before(probe.end)
        {
            recovery.tail_probe = None;
            if probe.again && news.twice.is_none() && recovery.phase == Phase::Disorder {
                // RFC 8985, section 7.4.2: the probe has mended a loss.
                self.congestion.on_congestion(Congestion::Loss, &event);
                tcb.flags.set(Flags::REDUCED);
                self.cx.counters.tail_losses += 1;
            }
        }

        let congestion = &mut *self.congestion;
        if let Some(proof) = recovery.undo_if_needless(echo, &news, acked, tcb, congestion) {
            proof.count(&mut self.cx.counters);
        }
        recovery.step_frto(tcb, acked, is_duplicate);
        Told {
            news,
            acked,
            ends: false,
            event,
        }
    }

    /// Is all of it mended? RFC 6582, section 3.2: without SACK, duplicates of
    /// what was sent again may still come, so only something behind it tells.
    fn end_phase_if_mended(&mut self, told: &mut Told) {
        let tcb = &mut *self.tcb;
        let recovery = self.losses.get_mut(tcb.recovery);
        let mended = if tcb.negotiated.sack() || tcb.flight() == 0 {
            !tcb.snd_una.before(recovery.high)
        } else {
            // Plain Reno ends with any acknowledgement of something new.
            let partial = C::PARTIAL_ACK_RECOVERY || recovery.phase == Phase::Again;
            tcb.snd_una.after(recovery.high) || told.acked > 0 && !partial
        };
        told.ends = recovery.phase == Phase::Reduction && mended;
        if recovery.phase != Phase::Disorder && mended {
            recovery.end_phase(tcb);
            let delivered = if told.ends { told.news.delivered } else { 0 };
            self.congestion.on_recovered(delivered, &told.event);
            tcb.reorder.narrow();
        } else if tcb.snd_una.after(recovery.high) {
            // What was sent after all was mended has arrived: no report of
            // duplicates comes any more.
            recovery.prior = None;
        }
    }

    /// What is lost, and how much may be sent meanwhile.
    fn look_for_losses(&mut self, told: &Told, now: Moment) {
        let (found, size) = self.find_lost(told.acked > 0, &told.event, now);
        let tcb = &mut *self.tcb;
        let recovery = self.losses.get_mut(tcb.recovery);
        let selective = tcb.negotiated.sack();
        let Told { news, acked, .. } = *told;
        match recovery.phase {
            Phase::Reduction => {
                let pipe = recovery.pipe(tcb);
                let progress = acked > 0 && found.lost == 0;
                let target = self.congestion.window();
                let mss = u32::from(tcb.mss);
                let prr = &mut recovery.prr;
                let mut allowed = prr.allowance(news.delivered, pipe, target, progress, mss);
                if !selective && found.lost > 0 {
                    // RFC 6582, section 3.2, step 3: it goes at once.
                    allowed = allowed.max(mss);
                }
                recovery.window = pipe + allowed;
                let (delivered, lost) = (news.delivered, found.lost);
                self.congestion
                    .on_recovery_ack(delivered, lost, &told.event);
            }
            Phase::Disorder | Phase::Again => {
                // Where segments change their order, those behind a gap count
                // when they arrive.
                let at_once = recovery.phase == Phase::Disorder
                    && selective
                    && tcb.flags.has(Flags::REORDERING);
                let counted = if at_once { news.delivered } else { acked };
                if counted > 0 && !told.ends {
                    self.congestion.on_ack(counted, &told.event);
                }
            }
        }
        let partial = acked > 0 && recovery.phase == Phase::Reduction;
        recovery.partial_acks += u32::from(partial);
        let impatient = !selective && recovery.is_impatient();
        let progress = acked > 0 && !impatient || selective && news.delivered > 0;
        if let Some((size, arrived)) = size {
            self.end_size_probe(size, arrived);
        }
        self.rearm(progress, found.look_in, now);
    }

    /// Finds what is lost by now, and begins a reduction if something is.
    fn find_lost(
        &mut self,
        advanced: bool,
        event: &Event,
        now: Moment,
    ) -> (Found, Option<(u16, bool)>) {
        let tcb = &mut *self.tcb;
        let recovery = self.losses.get_mut(tcb.recovery);
        let mut found = recovery.find_lost(tcb, &self.cx.lists, advanced, now);
        let size = recovery.take_size_probe(tcb, &mut found);
        self.cx.counters.lost_again += u64::from(found.again);
        if found.lost > 0 && recovery.phase == Phase::Disorder {
            recovery.begin_reduction(tcb, self.congestion, event);
            self.cx.counters.fast_retransmits += 1;
        }
        (found, size)
    }

    /// Sets the deadline after an acknowledgement, or when late segments have
    /// been looked at: `look_in` microseconds from now again.
    fn rearm(&mut self, progress: bool, look_in: Option<u32>, now: Moment) {
        if let Some(micros) = look_in {
            let after = micros.div_ceil(1000).max(1);
            let due = if self.tcb.probes_window() {
                Due::ZeroWindow
            } else {
                Due::Reorder
            };
            self.tcb.arm(due, after, now);
        } else if progress || self.tcb.due == Due::Reorder {
            let is_calm = self.is_calm();
            self.arm_after_ack(is_calm, now);
        }
    }

    /// Late segments have had their time.
    #[cold]
    pub(crate) fn on_late(&mut self, now: Moment) {
        let recovery = self.losses.get_mut(self.tcb.recovery);
        let event = self.tcb.event(recovery.pipe(self.tcb), 0, now);
        let (found, size) = self.find_lost(false, &event, now);
        let recovery = self.losses.get_mut(self.tcb.recovery);
        if recovery.phase == Phase::Reduction {
            let pipe = recovery.pipe(self.tcb);
            let target = self.congestion.window();
            let prr = &mut recovery.prr;
            recovery.window = pipe + prr.allowance(0, pipe, target, false, event.mss);
        }
        if let Some((size, arrived)) = size {
            self.end_size_probe(size, arrived);
        }
        self.rearm(true, found.look_in, now);
    }
}

/// The timestamp of ours that comes back with a segment.
fn echo(tcb: &Tcb, segment: Segment) -> Option<u32> {
    let timestamps = segment.timestamps.filter(|_| tcb.negotiated.timestamps());
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
