//! Compares [`Wait::Adaptive`] with [`Wait::Block`] under typical loads, on virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tests::{GATHERS, MICRO, NOW, QUIET, action, block, idle};
use super::*;

/// CPU time to poll an empty RX ring.
const POLL: Duration = Duration::from_nanos(100);
/// CPU time to handle a packet.
const HANDLE: Duration = Duration::from_micros(1);
/// CPU time of a sleep and a wake-up. A packet that ends a sleep waits as long.
const WAKEUP: Duration = MAX_SPIN;
/// Length of a simulation.
const LENGTH: Duration = Duration::from_millis(200);

/// The packets that a server receives.
struct Load {
    name: &'static str,
    arrivals: BinaryHeap<Reverse<Instant>>,
    /// For clients that send a request after each answer. The first time is that from an answer to
    /// the next request. The second is the time that the clients' core needs for a request.
    closed: Option<[Duration; 2]>,
    answered: bool,
    flooded: bool,
}

impl Load {
    fn new(name: &'static str, arrivals: impl Iterator<Item = Duration>) -> Self {
        Self {
            name,
            arrivals: arrivals.map(|after| Reverse(NOW + after)).collect(),
            closed: None,
            answered: true,
            flooded: false,
        }
    }

    /// Packets at random times, independent of each other.
    fn poisson(name: &'static str, per_second: f64) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let mut after = Duration::ZERO;
        let gaps = std::iter::from_fn(|| {
            after += Duration::from_secs_f64(-random.f64().max(1e-9).ln() / per_second);
            (after < LENGTH).then_some(after)
        });
        Self::new(name, gaps)
    }

    /// `burst` packets with a gap of `gap` between two of them, once each millisecond.
    fn bursts(name: &'static str, burst: u32, gap: Duration) -> Self {
        let starts = (0..LENGTH.as_millis() as u64).map(Duration::from_millis);
        Self::new(
            name,
            starts.flat_map(|start| (0..burst).map(move |n| start + gap * n)),
        )
    }

    /// `clients` on another core, which each send the next request after an answer.
    fn closed(name: &'static str, clients: u32) -> Self {
        let mut load = Self::new(name, (0..clients).map(|_| Duration::ZERO));
        load.closed = Some([MICRO * 20, MICRO * 3]);
        load
    }

    /// ACKs and other packets that need no answer.
    fn unanswered(mut self) -> Self {
        self.answered = false;
        self
    }

    fn flooded(mut self) -> Self {
        self.flooded = true;
        self
    }
}

/// The cost of serving a load.
#[derive(Debug, Default)]
struct Cost {
    packets: u32,
    cpu: Duration,
    spun: Duration,
    sleeps: u32,
    /// Sum of the times from each packet's arrival to the pass that received it.
    delay: Duration,
}

/// Simulates a loop that waits as `wait` specifies and serves `load`.
fn serve(wait: Wait, mut load: Load) -> Cost {
    let (mut idle, mut port, mut cost) = (idle(wait), GATHERS, Cost::default());
    let (mut now, mut clients_free) = (NOW, NOW);
    while now < NOW + LENGTH {
        let mut received = false;
        while let Some(&Reverse(at)) = load.arrivals.peek()
            && at <= now
        {
            load.arrivals.pop();
            received = true;
            cost.packets += 1;
            cost.delay += now.since(at);
            cost.cpu += HANDLE;
            port.sent += u64::from(load.answered);
            if let Some([trip, work]) = load.closed {
                clients_free = clients_free.max(now + trip) + work;
                load.arrivals.push(Reverse(clients_free));
            }
        }
        idle.note_pass(received);
        if received {
            now = now + HANDLE;
            continue;
        }
        let status = LoopStatus {
            flooded: load.flooded,
            ..QUIET
        };
        if let IdleAction::Block { gather, timeout } = idle.action(port, status, now) {
            let next = load.arrivals.peek().map_or(Instant::FAR, |next| next.0);
            now = next.max(now + gather).min(now + timeout) + WAKEUP;
            cost.sleeps += 1;
            cost.cpu += WAKEUP;
        } else {
            now = now + POLL;
            cost.spun += POLL;
            cost.cpu += POLL;
        }
    }
    cost
}

/// What short spins achieve under a load.
#[derive(Clone, Copy)]
enum Gain {
    /// At most an eighth of the sleeps remain.
    Awake,
    /// The loop sleeps as often, and hardly spins.
    None,
    /// Between the two.
    Some,
}

fn check(load: impl Fn() -> Load, gain: Gain) {
    let name = load().name;
    let block = serve(Wait::Block, load());
    let adaptive = serve(Wait::Adaptive, load());
    let costs = format!("{name}: {block:?} {adaptive:?}");
    let per_packet = |cost: &Cost, time: Duration| time.as_secs_f64() / f64::from(cost.packets);
    let cpu = per_packet(&adaptive, adaptive.cpu) / per_packet(&block, block.cpu);
    assert!(cpu <= 1.2, "{cpu} times the CPU time; {costs}");
    let delay = per_packet(&adaptive, adaptive.delay) / per_packet(&block, block.delay);
    assert!(delay <= 1.01, "{delay} times the delay; {costs}");
    match gain {
        Gain::Awake => assert!(adaptive.sleeps <= block.sleeps / 8, "{costs}"),
        Gain::None => {
            assert!(adaptive.sleeps >= block.sleeps * 95 / 100, "{costs}");
            // Ten trials in vain, until the trials become rare.
            assert!(
                adaptive.spun <= adaptive.cpu / 50 + MAX_SPIN * 10,
                "{costs}"
            );
        }
        Gain::Some => assert!(adaptive.sleeps <= block.sleeps, "{costs}"),
    }
}

#[test]
fn short_spins_never_cost_much_and_pay_where_packets_follow_closely() {
    check(|| Load::poisson("1,000/s", 1e3), Gain::None);
    check(|| Load::poisson("10,000/s", 1e4), Gain::None);
    check(|| Load::poisson("100,000/s", 1e5), Gain::Some);
    check(|| Load::poisson("200,000/s", 2e5), Gain::Some);
    check(|| Load::poisson("400,000/s", 4e5), Gain::Awake);
    check(|| Load::bursts("bursts", 32, Duration::ZERO), Gain::None);
    check(|| Load::bursts("spaced bursts", 32, MICRO * 5), Gain::Awake);
    check(|| Load::closed("1 client", 1), Gain::None);
    check(|| Load::closed("4 clients", 4), Gain::Some);
    check(|| Load::closed("16 clients", 16), Gain::Awake);
    check(|| Load::closed("256 clients", 256), Gain::Awake);
    check(
        || Load::bursts("ACK trains", 44, MICRO * 12).unanswered(),
        Gain::None,
    );
}

#[test]
fn a_flooded_loop_neither_sleeps_nor_counts_spins() {
    for wait in [Wait::Adaptive, Wait::Block] {
        let cost = serve(wait, Load::poisson("flood", 1e5).unanswered().flooded());
        assert_eq!(cost.sleeps, 0, "{cost:?}");
    }
}

#[test]
fn a_loop_without_a_ring_does_not_spin() {
    let action = action(Wait::Adaptive, PortHints::default(), QUIET);
    assert_eq!(action, block(STOP_CHECK));
}

#[test]
fn spins_that_find_nothing_become_rare_and_return_with_the_load() {
    let (mut spins, mut now) = (Spins::default(), NOW);
    // Returns how many of the next waits spin. Each of them ends after `length`.
    let mut count = |waits: u32, length: Duration| {
        let spins_of_waits = (0..waits).filter(|_| {
            let spun = spins.should_spin(now);
            if spins.should_spin(now + length) && spun {
                assert!(length < MAX_SPIN);
            }
            now = now + MAX_SPIN * 2;
            spins.note_packets();
            spun
        });
        spins_of_waits.count()
    };
    assert!(
        count(10_000, MAX_SPIN) <= 20,
        "10 doublings, then one in 1,024"
    );
    assert_eq!(count(20_000, MAX_SPIN), 20);
    count(3_000, MICRO);
    assert_eq!(count(100, MICRO), 100);
    assert!(count(100, MAX_SPIN) <= 15);
}
