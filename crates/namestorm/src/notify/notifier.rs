//! The thread that sends NOTIFY.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use control::report::count;
use control::{Readers, Secret, Source, StartError, Tally};
use nmio::Mailbox;
use nmio::mailbox::{self, Sender};

use super::log::NotifyLog;
use super::message::message;
use super::schedule::{Cause, Event, Outcome, Schedule};
use super::secondary::{Secondaries, Secondary};
use super::sockets::{Sockets, address_towards};
use crate::name::Name;
use crate::tsig::{self, TsigKeys};
use crate::zone_files::ZoneFiles;

/// Number of secondary servers that the start block names.
const NAMED: usize = 4;

/// Tells secondary servers that zones have changed. A thread of its own does so while the workers serve.
#[derive(Debug)]
pub(crate) struct Notifier {
    servers: Vec<Secondary>,
    /// The kernel's addresses from which the servers are told, as far as there is a route.
    from: OnceLock<Vec<Option<IpAddr>>>,
    sockets: Sockets,
    state: Mutex<State>,
    wake: Sender<()>,
    woken: Mutex<Mailbox<()>>,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The workers do not serve yet, so a secondary server would ask in vain.
    Starting,
    Serving,
    Ending,
}

/// Numbers of events since the start.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

impl Notifier {
    /// Opens the sockets. Returns `None` if there are no secondary servers.
    ///
    /// # Errors
    /// If the system refuses a socket or random bytes.
    pub(crate) fn open(secondaries: &Secondaries) -> Result<Option<Self>, StartError> {
        let servers = secondaries.all();
        if servers.is_empty() {
            return Ok(None);
        }
        let sockets = Sockets::open(servers);
        let sockets =
            sockets.map_err(|error| format!("cannot make a UDP socket for --notify: {error}"))?;
        let [low, high, ..] = Secret::random()?.words();
        let (wake, woken) = mailbox::mailbox(1)?;
        Ok(Some(Self {
            servers: servers.to_vec(),
            from: OnceLock::new(),
            sockets,
            state: Mutex::new(State {
                schedule: Schedule::new(servers, [low, high], Instant::now()),
                phase: Phase::Starting,
            }),
            wake,
            woken: Mutex::new(woken),
            counts: Counts::default(),
        }))
    }

    /// Returns the name of the key that messages to each server are signed with.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Option<&Name>> {
        self.servers.iter().map(Secondary::key)
    }

    /// Signs messages with these keys from now on. Servers whose keys are not among them are told nothing.
    pub(crate) fn set_keys(&self, keys: &TsigKeys) {
        self.state().schedule.set_keys(keys);
        self.wake();
    }

    /// Finds out from which addresses the kernel sends. Called when the device is open, because the kernel's
    /// address may come with it, and before privileges are dropped.
    pub(crate) fn find_addresses(&self) {
        let towards = |to: &Secondary| address_towards(to.address());
        let from = || self.servers.iter().map(towards).collect();
        self.from.get_or_init(from);
    }

    /// Returns each server, and the kernel's address from which it is told, if it is known.
    fn routes(&self) -> impl Iterator<Item = (&Secondary, Option<IpAddr>)> {
        let from = self.from.get().into_iter().flatten().copied();
        self.servers.iter().zip(from.chain(std::iter::repeat(None)))
    }

    /// Tells of the zones whose serials differ from those `before`, and of new ones. The workers must
    /// already use their answers, because a secondary server asks at once.
    pub(crate) fn note_change(&self, zones: &ZoneFiles, before: &ZoneFiles) {
        let news = zones.news_since(before);
        let mut state = self.state();
        for apex in news.gone {
            state.schedule.forget(apex);
        }
        let cause = match state.phase {
            Phase::Starting => Cause::Start,
            Phase::Serving | Phase::Ending => Cause::Change,
        };
        for (apex, answers) in news.changed {
            let message = message(&apex, answers);
            state.schedule.change(cause, apex, message);
        }
        drop(state);
        self.wake();
    }

    /// Describes the secondary servers in the words of the start block.
    pub(crate) fn describe(&self) -> String {
        let described = self.routes().take(NAMED).map(|(server, from)| {
            let (to, key) = (server.address(), server.key());
            let key = key.map_or(String::new(), |key| format!(" with the key {key}"));
            match from {
                Some(from) => format!("{to} from {from}{key}"),
                None => format!("{to}{key}, to which the kernel has no route"),
            }
        });
        let mut described: Vec<_> = described.collect();
        if let Some(more @ 1..) = self.servers.len().checked_sub(NAMED) {
            described.push(format!("{} more", count(more as u64)));
        }
        described.join("; ")
    }

    /// Adds the counts.
    pub(crate) fn tally(&self, tally: &mut Tally) {
        let Counts {
            sent,
            acknowledged,
            refused,
            unanswered,
        } = &self.counts;
        tally.event("notify messages", sent.load(Ordering::Relaxed));
        for (result, count) in [
            ("acknowledged", acknowledged),
            ("refused", refused),
            ("unanswered", unanswered),
        ] {
            let count = count.load(Ordering::Relaxed);
            tally.event_of("notify", ("result", result), count);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        self.state().phase = phase;
        self.wake();
    }

    fn wake(&self) {
        // If the mailbox is full, the thread is already being woken.
        let _ = self.wake.send(());
    }

    /// Receives and sends what is due. Returns the time at which there is more to do.
    fn work(&self, schedule: &mut Schedule, log: &mut NotifyLog, now: Instant) -> Option<Instant> {
        let time = tsig::seconds(SystemTime::now());
        let mut note = |event: Event| {
            self.counts.add(event.outcome);
            log.note(&event, now);
        };
        self.sockets.receive(|from, datagram| {
            let event = schedule.handle_datagram(from, datagram, time);
            event.into_iter().for_each(&mut note);
        });
        std::iter::from_fn(|| schedule.next_unanswered(now)).for_each(&mut note);
        let mut datagram = Vec::new();
        while let Some((number, to)) = schedule.write_next(now, time, &mut datagram) {
            self.counts.sent.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.sockets.send(to, &datagram) {
                log.note_unsent(number, &error, now);
            }
        }
        schedule.next_deadline(now)
    }
}

impl Readers for Notifier {
    fn threads(&self) -> usize {
        1
    }

    fn source(&self) -> Source {
        Source::Datagrams
    }

    fn run(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut log = NotifyLog::default();
        loop {
            woken.bell().silence();
            woken.take_all(drop);
            let now = Instant::now();
            let mut state = self.state();
            let deadline = match state.phase {
                Phase::Starting => None,
                Phase::Serving if log.is_empty() => {
                    log = NotifyLog::new(self.routes());
                    continue;
                }
                Phase::Serving => self.work(&mut state.schedule, &mut log, now),
                Phase::Ending => return,
            };
            drop(state);
            log.write(now);
            let deadlines = [deadline, log.next_deadline()];
            let deadline = deadlines.into_iter().flatten().min();
            self.sockets.wait(woken.bell(), deadline);
        }
    }

    fn serving(&self) {
        self.enter(Phase::Serving);
    }

    fn end(&self) {
        self.enter(Phase::Ending);
    }
}

impl Counts {
    fn add(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Acknowledged => &self.acknowledged,
            Outcome::Refused(_) => &self.refused,
            // The message is sent again.
            Outcome::Doubtful(_) => return,
            Outcome::Unanswered(_) => &self.unanswered,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
