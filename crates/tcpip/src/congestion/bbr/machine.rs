//! BBR's model of the path, and the state machine that sets the window and the pacing rate. ACKs
//! and losses update the model.

use super::{
    Aggregation, Bbr, BbrFlags, BbrState, LOSS_THRESH, NONE, RATE_UNIT, Round, Sample, TICK_SHIFT,
    loses_much, percent, rate_of,
};
use crate::congestion::{
    Congestion, CongestionControl, Event, MAX_WINDOW, MIN_SEGMENTS, initial_window,
};

/// Percentage of the bandwidth that pacing leaves unused.
const PACING_MARGIN: u32 = 1;
/// Minimum percentage of a short-term limit that remains after a round with loss, and the
/// percentage that remains after an ECN echo.
const BETA: u32 = 70;
/// Number of ACKs in one round that must report a loss before loss ends Startup.
const STARTUP_LOSSES: u8 = 6;
/// The pipe counts as full when the bandwidth stays below 125 % of its earlier value for
/// [`FULL_BW_ROUNDS`] rounds.
const FULL_BW_GROWTH: u32 = 125;
const FULL_BW_ROUNDS: u8 = 3;
/// Drain ends, even if too much is still in flight, when it has lasted for more than this number of
/// rounds.
const DRAIN_ROUNDS: u8 = 3;
/// Maximum number of rounds between bandwidth probes. Up to this limit, BBR waits about as long as
/// Reno's window needs to grow back after a loss.
const MAX_PROBE_ROUNDS: u32 = 63;
const MIN_RTT_FILTER: u16 = ticks(10_000);
const PROBE_RTT_INTERVAL: u16 = ticks(5_000);
const PROBE_RTT_DURATION: u16 = ticks(200);
/// Minimum time between bandwidth probes, in ticks. A random time of up to [`PROBE_WAIT_RANDOM`] is
/// added.
const PROBE_WAIT: u16 = ticks(2_000);
const PROBE_WAIT_RANDOM: u16 = ticks(1_000);

const fn ticks(millis: u32) -> u16 {
    (millis * 1_000).div_ceil(1 << TICK_SHIFT) as u16
}

impl Bbr {
    fn reset_full_bw(&mut self, baseline: u32) {
        self.full_bw = baseline;
        self.full_bw_rounds = 0;
        self.flags.remove(BbrFlags::FULL_BW_NOW);
    }

    fn reset_shortterm(&mut self) {
        self.bw_shortterm = NONE;
        self.inflight_shortterm = NONE;
    }

    fn enter_drain(&mut self) {
        self.state = BbrState::Drain;
        self.full_bw_rounds = 0;
    }

    fn start_down(&mut self, in_flight: u32, event: &Event) {
        self.flags.remove(BbrFlags::LOSS);
        // The wait is random, so that flows on the same path do not probe at the same time.
        let random = (event.now ^ event.una).wrapping_mul(0x9e37_79b1);
        self.rounds_since_probe = (random >> 31) as u8;
        let wait = (random >> 8) % u32::from(PROBE_WAIT_RANDOM);
        self.deadline = Self::ticks(event.now)
            .wrapping_add(PROBE_WAIT)
            .wrapping_add(wait as u16);
        self.flags.insert(BbrFlags::PROBE_STOPPING);
        self.round.restart(in_flight, event.now);
        self.state = BbrState::Down;
    }

    fn start_refill(&mut self, in_flight: u32, event: &Event) {
        self.reset_shortterm();
        self.up_rounds = 0;
        self.up_acked = 0;
        self.flags
            .remove(BbrFlags::PRECAUTIONARY | BbrFlags::PROBE_STOPPING);
        self.round.restart(in_flight, event.now);
        self.state = BbrState::Refill;
    }

    fn start_up(&mut self, sample: &Sample) {
        self.flags.insert(BbrFlags::PROBE_SAMPLE);
        self.reset_full_bw(sample.rate);
        self.state = BbrState::Up;
        self.up_rounds = 1;
    }

    fn enter_probe_rtt(&mut self, in_flight: u32, event: &Event) {
        self.state = BbrState::ProbeRtt;
        self.flags
            .remove(BbrFlags::PROBE_RTT_TIMED | BbrFlags::PROBE_RTT_ROUND);
        self.flags.insert(BbrFlags::PROBE_STOPPING);
        self.round.restart(in_flight, event.now);
    }

    fn leave_probe_rtt(&mut self, in_flight: u32, event: &Event) {
        self.probe_rtt_stamp = Self::ticks(event.now);
        self.reset_shortterm();
        if self.flags.intersects(BbrFlags::FULL_BW_REACHED) {
            self.start_down(in_flight, event);
            self.state = BbrState::Cruise;
        } else {
            self.state = BbrState::Startup;
        }
        // `ProbeRTT` has reduced the window. Restore the window that the model of the path allows.
        let known = self.max_inflight(event.mss);
        self.cwnd = self.cwnd.max(known).min(MAX_WINDOW);
    }

    // The functions below update the model of the path.

    /// Handles an ACK that reports `delivered` and `lost` bytes.
    #[inline(always)]
    fn update(&mut self, delivered: u32, lost: u32, event: &Event) {
        let in_flight = event
            .in_flight
            .saturating_sub(delivered.saturating_add(lost));
        let sample = self.round.on_ack(delivered, lost, self.pacing_rate, event);
        if lost > 0 {
            self.on_loss(in_flight, event);
        }
        if delivered > 0 {
            let bw = self.bw();
            self.aggregation.on_ack(delivered, bw, self.cwnd, event);
        }
        if let Some(sample) = &sample {
            self.on_round(sample, in_flight, event);
        }
        if matches!(self.state, BbrState::Drain | BbrState::Down) {
            self.round.mark_limited();
        }
        match self.state {
            BbrState::Startup | BbrState::Cruise | BbrState::Refill => {}
            BbrState::Drain => {
                let drained =
                    in_flight <= self.quantized(self.bdp(self.bw(), 100, event.mss), event.mss);
                if drained || self.full_bw_rounds > DRAIN_ROUNDS {
                    self.start_down(in_flight, event);
                }
            }
            BbrState::Down => self.check_cruise(in_flight, event),
            BbrState::Up => self.check_down(delivered, in_flight, event),
            BbrState::ProbeRtt => self.handle_probe_rtt(sample.is_some(), in_flight, event),
        }
        if matches!(self.state, BbrState::Down | BbrState::Cruise) {
            self.check_probe(in_flight, event);
        }
        self.update_min_rtt(in_flight, event);
        self.flags.remove(BbrFlags::IDLE);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_cwnd(delivered, event.mss);
    }

    /// Updates the model at the end of a round.
    #[inline(never)]
    fn on_round(&mut self, sample: &Sample, in_flight: u32, event: &Event) {
        self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
        self.aggregation
            .on_round(!self.flags.intersects(BbrFlags::FULL_BW_REACHED));
        if sample.rate >= self.max_bw() || !sample.limited {
            self.max_bw[0] = self.max_bw[0].max(sample.rate);
        }
        if self.flags.intersects(BbrFlags::LOSS) {
            self.flags.remove(BbrFlags::LOSS);
            if !self.state.accelerates() {
                self.lower_bounds(sample);
            }
        }
        self.check_full_bw(sample);
        match self.state {
            BbrState::Startup => self.check_startup_done(sample, event),
            BbrState::Drain => self.full_bw_rounds = self.full_bw_rounds.saturating_add(1),
            _ => {}
        }
        if self.flags.intersects(BbrFlags::RECOVERY) {
            self.flags.insert(BbrFlags::RECOVERY_ROUND);
        }
        if !self.flags.intersects(BbrFlags::FULL_BW_REACHED) {
            return;
        }
        if self.flags.intersects(BbrFlags::PROBE_STOPPING) {
            self.flags
                .remove(BbrFlags::PROBE_STOPPING | BbrFlags::PROBE_SAMPLE);
            if self.state.probes_bw() {
                if !sample.limited && self.max_bw[0] != 0 {
                    self.max_bw = [0, self.max_bw[0]];
                }
                if self.flags.intersects(BbrFlags::PRECAUTIONARY)
                    && !self.flags.intersects(BbrFlags::TOO_HIGH)
                {
                    self.start_refill(in_flight, event);
                    return;
                }
            }
        }
        let safe = !loses_much(sample.lost, sample.tx_in_flight);
        if safe && self.state != BbrState::Down && self.inflight_longterm != NONE {
            self.inflight_longterm = self
                .inflight_longterm
                .max(sample.tx_in_flight.min(MAX_WINDOW));
        }
        match self.state {
            BbrState::Refill => self.start_up(sample),
            BbrState::Up => self.up_rounds = (self.up_rounds + 1).min(30),
            _ => {}
        }
    }

    /// Reacts to the loss that an ACK has reported.
    #[cold]
    fn on_loss(&mut self, in_flight: u32, event: &Event) {
        self.flags.insert(BbrFlags::LOSS);
        if self.flags.intersects(BbrFlags::PROBE_SAMPLE) && self.round.loses_much() {
            self.on_inflight_too_high(in_flight, event);
        }
    }

    /// Sets the long-term limit after too much loss or an ECN echo, and ends the Up state:
    /// `HandleInflightTooHigh` of the draft.
    #[cold]
    fn on_inflight_too_high(&mut self, in_flight: u32, event: &Event) {
        self.flags.insert(BbrFlags::TOO_HIGH);
        self.flags.remove(BbrFlags::PROBE_SAMPLE);
        if let Some(carried) = self.round.carried() {
            self.inflight_longterm = carried
                .min(MAX_WINDOW)
                .max(percent(self.target(event.mss), BETA))
                .max(Self::min_pipe(event.mss));
            self.round.limit_in_flight(self.inflight_longterm);
        }
        if self.state == BbrState::Up {
            self.start_down(in_flight, event);
        }
    }

    /// Lowers the short-term limits at the end of a round with loss: `LossLowerBounds` of the
    /// draft.
    fn lower_bounds(&mut self, sample: &Sample) {
        if self.bw_shortterm == NONE {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm == NONE {
            self.inflight_shortterm = self.cwnd;
        }
        let sent = sample.delivered.saturating_add(sample.lost);
        let loses_much = loses_much(sample.lost, sent);
        if sample.limited && !loses_much {
            // An application-limited sample shows the rate of the application, not of the path.
            return;
        }
        let tolerated = if loses_much {
            LOSS_THRESH
        } else {
            // Loss below the threshold is not a sign of congestion, so the lost part is added back.
            (u64::from(sample.lost) * 100).div_ceil(u64::from(sent.max(1))) as u32
        };
        let latest = 100 + PACING_MARGIN + tolerated;
        let bw = percent(sample.rate, latest);
        let reduced = percent(self.bw_shortterm, BETA);
        self.bw_shortterm = bw.max(reduced);
        let inflight = percent(sample.delivered, latest);
        let reduced = percent(self.inflight_shortterm, BETA);
        self.inflight_shortterm = inflight.max(reduced);
    }

    /// Checks whether the pipe is full: `CheckFullBWReached` of the draft.
    fn check_full_bw(&mut self, sample: &Sample) {
        if self.flags.intersects(BbrFlags::FULL_BW_NOW)
            || self.state == BbrState::Drain
            || sample.limited
        {
            return;
        }
        if u64::from(sample.rate) * 100 >= u64::from(self.full_bw) * u64::from(FULL_BW_GROWTH) {
            self.reset_full_bw(sample.rate);
            return;
        }
        self.full_bw_rounds = self.full_bw_rounds.saturating_add(1);
        if self.full_bw_rounds >= FULL_BW_ROUNDS {
            self.flags
                .insert(BbrFlags::FULL_BW_NOW | BbrFlags::FULL_BW_REACHED);
        }
    }

    /// Ends Startup if the pipe is full or the loss is high: `CheckStartupHighLoss` and
    /// `CheckStartupDone` of the draft.
    fn check_startup_done(&mut self, sample: &Sample, event: &Event) {
        if self.flags.intersects(BbrFlags::RECOVERY_ROUND)
            && sample.losses >= STARTUP_LOSSES
            && loses_much(sample.lost, sample.tx_in_flight)
        {
            self.flags.insert(BbrFlags::FULL_BW_REACHED);
            self.inflight_longterm = self
                .bdp(self.bw(), 100, event.mss)
                .max(sample.delivered.min(MAX_WINDOW))
                .max(Self::min_pipe(event.mss));
        }
        if self.flags.intersects(BbrFlags::FULL_BW_REACHED) {
            self.enter_drain();
        }
    }

    /// Begins the Cruise state if few enough bytes are in flight: `IsTimeToCruise` of the draft.
    fn check_cruise(&mut self, in_flight: u32, event: &Event) {
        let bdp = self.bdp(self.max_bw(), 100, event.mss);
        if in_flight <= self.with_headroom(event.mss) && in_flight <= self.quantized(bdp, event.mss)
        {
            self.state = BbrState::Cruise;
        }
    }

    /// Begins a bandwidth probe when its time has come: `IsTimeToProbeBW` of the draft.
    fn check_probe(&mut self, in_flight: u32, event: &Event) {
        let segments = self.target(event.mss) / event.mss.max(1);
        let reno_rounds = segments.clamp(1, MAX_PROBE_ROUNDS);
        if Self::has_come(Self::ticks(event.now), self.deadline)
            || u32::from(self.rounds_since_probe) >= reno_rounds
        {
            self.start_refill(in_flight, event);
        }
    }

    /// Raises the long-term limit, or ends the probe: `ProbeInflightLongtermUpward` and
    /// `IsTimeToGoDown` of the draft.
    fn check_down(&mut self, delivered: u32, in_flight: u32, event: &Event) {
        if self.flags.intersects(BbrFlags::TOO_HIGH) && in_flight >= self.inflight_longterm {
            self.flags.insert(BbrFlags::PRECAUTIONARY);
            self.flags.remove(BbrFlags::TOO_HIGH);
            self.start_down(in_flight, event);
        } else if self.round.window_is_used() && self.cwnd >= self.inflight_longterm {
            // The long-term limit, not the path, stops the growth. Therefore the pipe does not
            // count as full.
            self.reset_full_bw(self.full_bw);
            self.up_acked = self.up_acked.saturating_add(delivered);
            let growth = 1_u32 << self.up_rounds.saturating_sub(1).min(30);
            let per_segment = (self.cwnd / growth).max(event.mss).max(1);
            let segments = self.up_acked / per_segment;
            self.up_acked -= segments * per_segment;
            self.inflight_longterm = self
                .inflight_longterm
                .saturating_add(segments.saturating_mul(event.mss))
                .min(MAX_WINDOW);
        } else if self.flags.intersects(BbrFlags::FULL_BW_NOW) {
            self.flags.remove(BbrFlags::TOO_HIGH);
            self.start_down(in_flight, event);
        }
    }

    /// Updates the minimum round-trip time, and starts `ProbeRTT` when the old minimum has expired:
    /// `UpdateMinRTT` of the draft.
    #[inline(always)]
    fn update_min_rtt(&mut self, in_flight: u32, event: &Event) {
        let ticks = Self::ticks(event.now);
        let expired = ticks.wrapping_sub(self.probe_rtt_stamp) > PROBE_RTT_INTERVAL;
        if event.rtt != 0 && (event.rtt < self.probe_rtt_min || expired) {
            self.probe_rtt_min = event.rtt;
            self.probe_rtt_stamp = ticks;
        }
        if self.probe_rtt_min < self.min_rtt
            || ticks.wrapping_sub(self.min_rtt_stamp) > MIN_RTT_FILTER
        {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_stamp = self.probe_rtt_stamp;
        }
        if expired
            && self.min_rtt != NONE
            && self.state != BbrState::ProbeRtt
            && !self.flags.intersects(BbrFlags::IDLE)
        {
            self.enter_probe_rtt(in_flight, event);
        }
    }

    /// Continues `ProbeRTT`, and ends it after its duration: `HandleProbeRTT` of the draft.
    #[cold]
    fn handle_probe_rtt(&mut self, round_start: bool, in_flight: u32, event: &Event) {
        self.round.mark_limited();
        if !self.flags.intersects(BbrFlags::PROBE_RTT_TIMED) {
            if in_flight <= self.probe_rtt_cwnd(event.mss) {
                self.flags.insert(BbrFlags::PROBE_RTT_TIMED);
                self.deadline = Self::ticks(event.now).wrapping_add(PROBE_RTT_DURATION);
                self.round.restart(in_flight, event.now);
            }
            return;
        }
        if round_start {
            self.flags.insert(BbrFlags::PROBE_RTT_ROUND);
        }
        if self.flags.intersects(BbrFlags::PROBE_RTT_ROUND) {
            self.check_probe_rtt_done(in_flight, event);
        }
    }

    fn check_probe_rtt_done(&mut self, in_flight: u32, event: &Event) {
        if self.flags.intersects(BbrFlags::PROBE_RTT_TIMED)
            && Self::has_come(Self::ticks(event.now), self.deadline)
        {
            self.leave_probe_rtt(in_flight, event);
        }
    }

    fn probe_rtt_cwnd(&self, mss: u32) -> u32 {
        self.bdp(self.bw(), BbrState::ProbeRtt.cwnd_gain(), mss)
            .max(Self::min_pipe(mss))
    }

    // The functions below set the window and the pacing rate.

    fn set_pacing_rate(&mut self, gain: u32) {
        let rate = percent(percent(self.bw(), gain), 100 - PACING_MARGIN);
        if self.flags.intersects(BbrFlags::FULL_BW_REACHED) || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1);
        }
    }

    fn max_inflight(&self, mss: u32) -> u32 {
        let bdp = self.bdp(self.bw(), self.state.cwnd_gain(), mss);
        let inflight = bdp.saturating_add(self.aggregation.extra());
        self.quantized(inflight, mss).min(MAX_WINDOW)
    }

    fn set_cwnd(&mut self, delivered: u32, mss: u32) {
        let max_inflight = self.max_inflight(mss);
        if self.flags.intersects(BbrFlags::FULL_BW_REACHED) {
            self.cwnd = self.cwnd.saturating_add(delivered).min(max_inflight);
        } else if self.cwnd < max_inflight || self.max_bw() == 0 {
            self.cwnd = self.cwnd.saturating_add(delivered);
        }
        let cap = match self.state {
            BbrState::Startup | BbrState::Drain => NONE,
            BbrState::Down | BbrState::Refill | BbrState::Up => self.inflight_longterm,
            BbrState::Cruise => self.with_headroom(mss),
            BbrState::ProbeRtt => self.with_headroom(mss).min(self.probe_rtt_cwnd(mss)),
        };
        let cap = cap.min(self.inflight_shortterm).max(Self::min_pipe(mss));
        self.cwnd = self.cwnd.max(Self::min_pipe(mss)).min(cap).min(MAX_WINDOW);
    }
}

impl CongestionControl for Bbr {
    const NAME: &'static str = "bbr";

    fn with_window(window: u32) -> Self {
        // The draft assumes a round trip of 1 ms until one is measured.
        let pacing_rate = percent(rate_of(window, 1_000), BbrState::Startup.pacing_gain());
        Self {
            round: Round::default(),
            aggregation: Aggregation::default(),
            cwnd: window,
            max_bw: [0; 2],
            bw_shortterm: NONE,
            inflight_shortterm: NONE,
            inflight_longterm: NONE,
            full_bw: 0,
            pacing_rate,
            min_rtt: NONE,
            probe_rtt_min: NONE,
            up_acked: 0,
            min_rtt_stamp: 0,
            probe_rtt_stamp: 0,
            deadline: 0,
            flags: BbrFlags::default(),
            state: BbrState::Startup,
            full_bw_rounds: 0,
            rounds_since_probe: 0,
            up_rounds: 0,
        }
    }

    #[inline(always)]
    fn window(&self) -> u32 {
        self.cwnd
    }

    /// Returns the long-term limit of bytes in flight, or `u32::MAX` while none is set.
    #[inline(always)]
    fn ssthresh(&self) -> u32 {
        self.inflight_longterm
    }

    #[inline(always)]
    fn pacing_rate(&self) -> Option<u64> {
        Some(u64::from(self.pacing_rate) * RATE_UNIT)
    }

    #[inline(always)]
    fn on_send(&mut self, bytes: u32, event: &Event) {
        if !self.flags.intersects(BbrFlags::PACED) && event.srtt != 0 {
            self.flags.insert(BbrFlags::PACED);
            let nominal = rate_of(initial_window(event.mss), event.srtt);
            self.pacing_rate = percent(nominal, BbrState::Startup.pacing_gain()).max(1);
            let ticks = Self::ticks(event.now);
            (self.min_rtt_stamp, self.probe_rtt_stamp) = (ticks, ticks);
            self.min_rtt = event.srtt;
            self.probe_rtt_min = event.srtt;
        }
        self.round.on_send(bytes, self.cwnd, event);
    }

    fn on_ack(&mut self, acked: u32, event: &Event) {
        // The flags are cleared here too, because this function is called only outside recovery. If
        // a tail loss probe has repaired the loss, the end of recovery is not reported.
        self.flags
            .remove(BbrFlags::RECOVERY | BbrFlags::RECOVERY_ROUND);
        self.update(acked, 0, event);
    }

    #[cold]
    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
        match cause {
            Congestion::Loss => self.flags.insert(BbrFlags::RECOVERY),
            Congestion::Ecn => {
                let window = self.cwnd;
                if self.inflight_shortterm == NONE {
                    self.inflight_shortterm = window;
                }
                self.inflight_shortterm = percent(self.inflight_shortterm, BETA);
                match self.state {
                    BbrState::Startup => {
                        self.flags.insert(BbrFlags::FULL_BW_REACHED);
                        self.enter_drain();
                    }
                    BbrState::Refill | BbrState::Up => {
                        self.on_inflight_too_high(event.in_flight, event);
                    }
                    _ => {}
                }
                self.cwnd = window.min(self.inflight_shortterm);
            }
        }
        let floor = event.mss.saturating_mul(MIN_SEGMENTS).min(MAX_WINDOW);
        self.cwnd = self.cwnd.max(floor);
    }

    fn on_recovery_ack(&mut self, delivered: u32, lost: u32, event: &Event) {
        self.update(delivered, lost, event);
    }

    fn on_recovered(&mut self, _delivered: u32, _event: &Event) {
        self.flags
            .remove(BbrFlags::RECOVERY | BbrFlags::RECOVERY_ROUND);
    }

    #[cold]
    fn on_timeout(&mut self, _is_repeated: bool, event: &Event) {
        self.flags.insert(BbrFlags::LOSS);
        self.flags
            .remove(BbrFlags::RECOVERY | BbrFlags::RECOVERY_ROUND);
        self.round.mark_limited();
        self.round.restart(0, event.now);
        self.cwnd = event.mss.clamp(1, MAX_WINDOW);
    }

    /// Keeps the window. In `ProbeBW`, paces at the estimated bandwidth. Ends `ProbeRTT` if its
    /// time has passed. This is `HandleRestartFromIdle` of the draft.
    #[cold]
    fn on_idle(&mut self, event: &Event) {
        self.flags.insert(BbrFlags::IDLE);
        self.aggregation.restart(event.now);
        if self.state.probes_bw() {
            self.set_pacing_rate(100);
        } else if self.state == BbrState::ProbeRtt {
            self.check_probe_rtt_done(0, event);
        }
    }
}
