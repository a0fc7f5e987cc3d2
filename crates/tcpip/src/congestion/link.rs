//! A simulated bottleneck: flows of any algorithm share one link with a drop-tail queue.
//!
//! Each flow always has data to send, and each segment is acknowledged separately. A segment counts
//! as lost when the third segment sent after it, or a later one, is delivered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Congestion, CongestionControl, Event};

pub(super) const MSS: u32 = 1_448;
const NANOS: u64 = 1_000_000_000;
/// Minimum distance, in segments, from a missing segment to the delivered segment that reveals its
/// loss.
const REORDERING: u64 = 3;

/// Parameters of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Rate of the link in bytes per second.
    pub(super) rate: u64,
    /// Round-trip time with an empty queue, in microseconds.
    pub(super) rtt: u64,
    /// Capacity of the queue in bytes.
    pub(super) buffer: u64,
    /// Number of random losses per million segments.
    pub(super) loss: u64,
    /// Seed of the random numbers.
    pub(super) seed: u64,
    /// An optional change of the rate: its time in milliseconds, and the new rate in bytes per
    /// second.
    pub(super) later: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    /// The ACK of the segment with this number arrives.
    Ack(u64),
    /// Pacing allows a flow to send.
    Send,
    /// The retransmission timer of the segment with this number expires. The event counts only
    /// while this segment or an older one is in flight.
    Timeout(u64),
}

struct Flow<C> {
    cc: C,
    /// Number of the next segment. Lost data is retransmitted as a segment with a new number.
    next: u64,
    /// Send time of each segment in flight, by segment number.
    in_flight_since: BTreeMap<u64, u64>,
    in_flight: u32,
    una: u64,
    recover: Option<u64>,
    /// Earliest time at which pacing allows the next segment.
    next_send: u64,
    /// Whether a `Send` event is already queued for this flow.
    is_queued: bool,
    srtt: u64,
    delivered: u64,
    lost: u64,
    sum_rtt: u64,
}

/// Result of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Bytes delivered in the measured period.
    pub(super) delivered: u64,
    /// Bytes lost in the whole run, except for bytes in flight at a timeout.
    pub(super) lost: u64,
    /// Mean round-trip time in the measured period, in microseconds.
    pub(super) rtt: u64,
}

struct Run<C> {
    link: Link,
    flows: Vec<Flow<C>>,
    events: BinaryHeap<Reverse<(u64, usize, EventKind)>>,
    /// Time at which the link has sent all queued segments.
    free_at: u64,
    rng: fastrand::Rng,
}

impl Link {
    /// Creates a link of `mbits` Mb/s whose queue holds `tenths` tenths of the bandwidth-delay
    /// product.
    pub(super) const fn new(mbits: u64, rtt_millis: u64, tenths: u64) -> Self {
        let rate = mbits * 125_000;
        Self {
            rate,
            rtt: rtt_millis * 1_000,
            buffer: rate * rtt_millis * tenths / 10_000,
            loss: 0,
            seed: 1,
            later: None,
        }
    }

    fn rate_at(&self, now: u64) -> u64 {
        match self.later {
            Some((millis, rate)) if now >= millis * 1_000_000 => rate,
            _ => self.rate,
        }
    }

    /// Returns the fraction of the link's capacity over `millis` milliseconds that `delivered`
    /// bytes use.
    pub(super) fn share(&self, delivered: u64, millis: u64) -> f64 {
        delivered as f64 / (self.rate * millis / 1_000) as f64
    }

    /// Runs flows for `millis` milliseconds. Each flow starts `apart` milliseconds after the
    /// previous one. The measured period begins after `from` milliseconds.
    pub(super) fn run<C: CongestionControl>(
        self,
        flows: &[C],
        apart: u64,
        from: u64,
        millis: u64,
    ) -> Vec<Outcome> {
        self.watch(flows, apart, from, millis, |_, _, _| {})
    }

    /// Runs flows like [`run`](Self::run). After each ACK it calls `watch` with the time in
    /// microseconds, the index of the flow, and the flow's algorithm.
    pub(super) fn watch<C: CongestionControl>(
        self,
        flows: &[C],
        apart: u64,
        from: u64,
        millis: u64,
        mut watch: impl FnMut(u64, usize, &C),
    ) -> Vec<Outcome> {
        let mut run = Run {
            link: self,
            flows: flows.iter().map(|cc| Flow::new(*cc, self.rtt)).collect(),
            events: BinaryHeap::new(),
            free_at: 0,
            rng: fastrand::Rng::with_seed(self.seed),
        };
        for index in 0..flows.len() {
            let at = index as u64 * apart * 1_000_000;
            run.events.push(Reverse((at, index, EventKind::Send)));
        }
        let mut begun = false;
        while let Some(Reverse((now, index, kind))) = run.events.pop() {
            if now > millis * 1_000_000 {
                break;
            }
            if !begun && now >= from * 1_000_000 {
                begun = true;
                for flow in &mut run.flows {
                    (flow.delivered, flow.sum_rtt) = (0, 0);
                }
            }
            match kind {
                EventKind::Ack(number) => {
                    run.flows[index].acknowledge(number, now);
                    watch(now / 1_000, index, &run.flows[index].cc);
                }
                EventKind::Send => run.flows[index].is_queued = false,
                EventKind::Timeout(number) => run.flows[index].time_out(number, now),
            }
            run.send(index, now);
        }
        run.flows
            .iter()
            .map(|flow| Outcome {
                delivered: flow.delivered,
                lost: flow.lost,
                rtt: flow.sum_rtt / 1_000 / (flow.delivered / u64::from(MSS)).max(1),
            })
            .collect()
    }
}

impl<C: CongestionControl> Flow<C> {
    fn new(cc: C, rtt: u64) -> Self {
        Self {
            cc,
            next: 0,
            in_flight_since: BTreeMap::new(),
            in_flight: 0,
            una: 0,
            recover: None,
            next_send: 0,
            is_queued: false,
            srtt: rtt * 1_000,
            delivered: 0,
            lost: 0,
            sum_rtt: 0,
        }
    }

    fn event(&self, now: u64) -> Event {
        let oldest = self
            .in_flight_since
            .keys()
            .next()
            .copied()
            .unwrap_or(self.next);
        Event {
            now: (now / 1_000) as u32,
            in_flight: self.in_flight,
            mss: MSS,
            srtt: (self.srtt / 1_000) as u32,
            rtt: 0,
            una: (oldest * u64::from(MSS)) as u32,
            nxt: (self.next * u64::from(MSS)) as u32,
            is_paced: false,
        }
    }

    fn acknowledge(&mut self, number: u64, now: u64) {
        let before = self.in_flight;
        let Some(sent_at) = self.in_flight_since.remove(&number) else {
            return;
        };
        self.in_flight -= MSS;
        self.delivered += u64::from(MSS);
        let rtt = now - sent_at;
        self.sum_rtt += rtt;
        self.srtt = (self.srtt * 7 + rtt) / 8;
        let mut lost = 0;
        while let Some((&oldest, _)) = self.in_flight_since.first_key_value()
            && oldest + REORDERING <= number
        {
            self.in_flight_since.remove(&oldest);
            self.in_flight -= MSS;
            lost += MSS;
        }
        self.lost += u64::from(lost);
        self.una = self
            .in_flight_since
            .keys()
            .next()
            .copied()
            .unwrap_or(self.next);
        let event = Event {
            in_flight: before,
            rtt: (rtt / 1_000).max(1) as u32,
            ..self.event(now)
        };
        if lost > 0 && self.recover.is_none() {
            self.recover = Some(self.next);
            self.cc.on_congestion(Congestion::Loss, &event);
        }
        if let Some(recover) = self.recover {
            self.cc.on_recovery_ack(MSS, lost, &event);
            if self.una >= recover {
                self.recover = None;
                self.cc.on_recovered(0, &event);
            }
        } else {
            self.cc.on_ack(MSS, &event);
        }
    }

    fn time_out(&mut self, number: u64, now: u64) {
        if self.una <= number && self.in_flight > 0 {
            let event = self.event(now);
            self.cc.on_timeout(false, &event);
            self.in_flight_since.clear();
            self.in_flight = 0;
            self.una = self.next;
            self.recover = None;
        }
    }
}

impl<C: CongestionControl> Run<C> {
    fn send(&mut self, index: usize, now: u64) {
        let flow = &mut self.flows[index];
        while flow.in_flight + MSS <= flow.cc.window() {
            if let Some(rate) = flow.cc.pacing_rate() {
                if flow.next_send > now {
                    if !flow.is_queued {
                        flow.is_queued = true;
                        let at = Reverse((flow.next_send, index, EventKind::Send));
                        self.events.push(at);
                    }
                    return;
                }
                flow.next_send = flow.next_send.max(now) + u64::from(MSS) * NANOS / rate.max(1);
            }
            let event = flow.event(now);
            flow.cc.on_send(MSS, &event);
            let number = flow.next;
            flow.next += 1;
            flow.in_flight_since.insert(number, now);
            flow.in_flight += MSS;
            let rate = self.link.rate_at(now);
            let timeout = now + 200_000_000 + 2 * flow.srtt;
            self.events
                .push(Reverse((timeout, index, EventKind::Timeout(number))));
            let queued = self.free_at.saturating_sub(now) * rate / NANOS;
            if queued + u64::from(MSS) > self.link.buffer
                || self.rng.u64(..1_000_000) < self.link.loss
            {
                continue;
            }
            self.free_at = self.free_at.max(now) + u64::from(MSS) * NANOS / rate;
            let at = self.free_at + self.link.rtt * 1_000;
            self.events
                .push(Reverse((at, index, EventKind::Ack(number))));
        }
    }
}
