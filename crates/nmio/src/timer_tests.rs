//! Tests of the wheel. One compares it with a sorted map, which is slow but obviously correct.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// The reference implementation: timers sorted by tick and then by order of scheduling.
struct Oracle {
    elapsed: u64,
    sequence: u64,
    timers: BTreeMap<(u64, u64), u32>,
    keys: BTreeMap<u32, (u64, u64)>,
}

impl Oracle {
    fn new(now: Instant) -> Self {
        Self {
            elapsed: now.as_nanos() / TICK_NANOS,
            sequence: 0,
            timers: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    fn schedule(&mut self, id: u32, at: Instant) {
        self.cancel(id);
        let tick = at.as_nanos().div_ceil(TICK_NANOS).max(self.elapsed);
        self.sequence += 1;
        self.timers.insert((tick, self.sequence), id);
        self.keys.insert(id, (tick, self.sequence));
    }

    fn cancel(&mut self, id: u32) -> bool {
        let Some(key) = self.keys.remove(&id) else {
            return false;
        };
        self.timers.remove(&key).is_some()
    }

    fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos() / TICK_NANOS;
        match self.timers.first_key_value() {
            Some((&(tick, _), &id)) if tick <= now => {
                self.elapsed = tick;
                self.cancel(id);
                Some(id)
            }
            _ => {
                self.elapsed = self.elapsed.max(now);
                None
            }
        }
    }

    fn earliest(&self) -> Option<Instant> {
        self.timers
            .first_key_value()
            .map(|(&(tick, _), _)| instant(tick))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Schedules an id to expire the given number of nanoseconds from now.
    Schedule(u32, u64),
    /// Schedules an id to expire at the given time in nanoseconds, usually in the past or in the
    /// far future.
    ScheduleAt(u32, u64),
    Cancel(u32),
    /// Advances time by the given number of nanoseconds, and pops all expired timers.
    Advance(u64),
    /// Advances time by the given number of nanoseconds, and pops at most one timer.
    AdvancePopOne(u64),
    /// Sleeps until `next_deadline`, and pops all expired timers.
    Sleep,
}

const IDS: u32 = 40;

/// Time spans in nanoseconds, of every order of magnitude from less than a tick to a century.
fn span() -> impl Strategy<Value = u64> {
    (0u32..62, any::<u64>()).prop_map(|(bits, x)| x & ((2 << bits) - 1))
}

/// Time spans in nanoseconds that are typical of a server's timers: up to 10 s.
fn near() -> impl Strategy<Value = u64> {
    0..10_000_000_000u64
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..IDS;
    prop_oneof![
        6 => (id.clone(), near()).prop_map(|(id, n)| Step::Schedule(id, n)),
        3 => (id.clone(), span()).prop_map(|(id, n)| Step::Schedule(id, n)),
        1 => (id.clone(), any::<u64>()).prop_map(|(id, n)| Step::ScheduleAt(id, n)),
        2 => id.prop_map(Step::Cancel),
        4 => near().prop_map(Step::Advance),
        1 => span().prop_map(Step::Advance),
        2 => near().prop_map(Step::AdvancePopOne),
        4 => Just(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_timer_wheel_agrees_with_a_sorted_map(
        start in span(),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut now = start;
        let mut wheel = TimerWheel::new(IDS, Instant::from_nanos(now));
        let mut oracle = Oracle::new(Instant::from_nanos(now));
        for step in steps {
            let mut pops = u32::MAX;
            match step {
                Step::Schedule(id, after) => {
                    let at = Instant::from_nanos(now.saturating_add(after));
                    wheel.schedule(id, at);
                    oracle.schedule(id, at);
                    pops = 0;
                }
                Step::ScheduleAt(id, at) => {
                    wheel.schedule(id, Instant::from_nanos(at));
                    oracle.schedule(id, Instant::from_nanos(at));
                    pops = 0;
                }
                Step::Cancel(id) => {
                    prop_assert_eq!(wheel.cancel(id), oracle.cancel(id));
                    pops = 0;
                }
                Step::Advance(by) => now = now.saturating_add(by),
                Step::AdvancePopOne(by) => {
                    now = now.saturating_add(by);
                    pops = 1;
                }
                Step::Sleep => {
                    if let Some(at) = wheel.next_deadline() {
                        now = now.max(at.as_nanos());
                    }
                }
            }
            let at = Instant::from_nanos(now);
            for _ in 0..pops {
                let (popped, due) = (wheel.pop_expired(at), oracle.pop_expired(at));
                prop_assert_eq!(popped, due);
                if due.is_none() {
                    break;
                }
            }
            prop_assert_eq!(wheel.is_empty(), oracle.timers.is_empty());
            prop_assert_eq!(wheel.next_deadline().is_none(), oracle.timers.is_empty());
            if let Some(earliest) = oracle.earliest() {
                prop_assert!(wheel.next_deadline().unwrap() <= earliest);
            }
            for id in 0..IDS {
                let tick = oracle.keys.get(&id).map(|&(tick, _)| instant(tick));
                prop_assert_eq!(wheel.deadline(id), tick);
            }
        }
    }
}

fn millis(n: u64) -> Instant {
    Instant::from_millis(n)
}

#[test]
fn a_timer_never_fires_early() {
    let mut wheel = TimerWheel::new(1, Instant::ZERO);
    let at = millis(5) + Duration::from_nanos(1);
    wheel.schedule(0, at);
    assert_eq!(wheel.deadline(0), Some(millis(6)));
    assert_eq!(wheel.pop_expired(at), None, "the tick has not ended yet");
    assert_eq!(wheel.pop_expired(millis(6)), Some(0));
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let mut wheel = TimerWheel::new(2, millis(1000));
    wheel.schedule(0, millis(3));
    assert_eq!(wheel.next_deadline(), Some(millis(1000)));
    assert_eq!(wheel.pop_expired(millis(1000)), Some(0));
    assert_eq!(wheel.pop_expired(millis(1000)), None);
    assert_eq!(wheel.deadline(0), None);
}

#[test]
fn rescheduling_moves_the_timer() {
    let mut wheel = TimerWheel::new(1, Instant::ZERO);
    wheel.schedule(0, millis(10));
    wheel.schedule(0, millis(50_000));
    assert_eq!(wheel.pop_expired(millis(49_999)), None);
    wheel.schedule(0, millis(49_999));
    assert_eq!(wheel.pop_expired(millis(49_999)), Some(0));
    assert!(wheel.is_empty());
}

#[test]
fn the_latest_possible_deadline_has_a_slot() {
    let mut wheel = TimerWheel::new(1, Instant::ZERO);
    wheel.schedule(0, Instant::FAR);
    assert_eq!(wheel.pop_expired(millis(1 << 43)), None);
    assert!(wheel.next_deadline().is_some());
    assert!(wheel.cancel(0));
    assert!(!wheel.cancel(0));
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn sleeping_until_the_next_deadline_wakes_only_a_few_times() {
    let day = Duration::from_hours(24);
    let mut wheel = TimerWheel::new(1, millis(123));
    wheel.schedule(0, millis(123) + day);
    let mut wakes = 0;
    loop {
        let now = wheel.next_deadline().unwrap();
        wakes += 1;
        if wheel.pop_expired(now).is_some() {
            assert_eq!(now, millis(123) + day);
            break;
        }
    }
    assert!(wakes <= LEVELS, "woke {wakes} times");
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn an_id_above_the_capacity_panics() {
    TimerWheel::new(3, Instant::ZERO).schedule(3, Instant::ZERO);
}

/// Returns the resident set size of this process, in bytes.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn memory_is_touched_only_for_used_ids() {
    const IDS: u32 = 16 << 20;
    let before = resident_bytes();
    let mut wheel = TimerWheel::new(IDS, Instant::ZERO);
    for id in (0..IDS).step_by(1 << 20) {
        wheel.schedule(id, millis(u64::from(id)));
    }
    // The entries occupy 256 MiB. The limit leaves room for memory used by tests that run at the
    // same time.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes were touched");
}
