//! The workers as the control thread sees them, from their start to their end.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use crate::error::Error;
use crate::program::Program;
use crate::worker::{Ended, Ready, Worker};

/// What the control thread hears of a worker.
pub(crate) enum Event {
    Ready(u32, Ready),
    Ended(Box<Result<Ended, Error>>),
}

/// A worker's thread. It serves when its gate is opened, and not at all when
/// the gate is gone. It tells two events.
pub(crate) fn work<P: Program>(
    worker: Worker<'_, P>,
    gate: &mpsc::Receiver<()>,
    tell: impl Fn(Event),
    stop: &AtomicBool,
) {
    let index = worker.context.index;
    let ready = |ready| {
        tell(Event::Ready(index, ready));
        gate.recv().is_ok()
    };
    // Where panics unwind, one worker's end is told like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.work(ready, stop)))
        .unwrap_or(Err(Error::Panicked { worker: index }));
    tell(Event::Ended(Box::new(outcome)));
}

/// What is known of the workers, and what links them.
///
/// # Calling contract
/// [`add`](Self::add) each worker, then [`hear`](Self::hear) what they tell until
/// [`has_ended`](Self::has_ended). When all are ready, [`serve`](Self::serve) lets
/// them begin. Dropping it stops them.
pub(crate) struct Crew<'a> {
    ready: Vec<(u32, Ready)>,
    ended: Vec<Ended>,
    /// Workers whose end was not told yet.
    running: usize,
    /// One for each worker: opened, it serves; dropped, it ends.
    gates: Vec<mpsc::Sender<()>>,
    started: Option<Instant>,
    failed: Option<Error>,
    stop: &'a AtomicBool,
}

impl<'a> Crew<'a> {
    /// Nobody yet, who will stop when `stop` is set.
    pub(crate) fn new(stop: &'a AtomicBool) -> Self {
        Self {
            ready: Vec::new(),
            ended: Vec::new(),
            running: 0,
            gates: Vec::new(),
            started: None,
            failed: None,
            stop,
        }
    }

    /// One more worker: its gate.
    pub(crate) fn add(&mut self) -> mpsc::Receiver<()> {
        let (gate, opened) = mpsc::channel();
        self.gates.push(gate);
        self.running += 1;
        opened
    }

    /// Takes in what a worker tells. When that makes all ready, and nothing speaks
    /// against it, gives what they said, by their numbers.
    pub(crate) fn hear(&mut self, event: Event) -> Option<Vec<Ready>> {
        match event {
            Event::Ready(index, ready) => {
                self.ready.push((index, ready));
                if self.ready.len() < self.gates.len() || self.is_stopping() {
                    return None;
                }
                self.ready.sort_by_key(|&(index, _)| index);
                let ready = mem::take(&mut self.ready).into_iter();
                return Some(ready.map(|(_, one)| one).collect());
            }
            Event::Ended(outcome) => {
                self.running -= 1;
                match *outcome {
                    Ok(end) => self.ended.push(end),
                    Err(error) => self.fail(error),
                }
            }
        }
        None
    }

    /// Lets the workers serve.
    pub(crate) fn serve(&mut self) {
        self.started = Some(Instant::now());
        for gate in &self.gates {
            // An error means that the worker has ended; that is heard of later.
            let _ = gate.send(());
        }
    }

    /// Stops the workers, and keeps the first reason.
    pub(crate) fn fail(&mut self, error: Error) {
        self.stop();
        self.failed.get_or_insert(error);
    }

    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.gates.clear();
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// All workers have told their end.
    pub(crate) fn has_ended(&self) -> bool {
        self.running == 0
    }

    /// When they began to serve and what they said at their end; `None` when they
    /// were told to stop before.
    ///
    /// # Errors
    /// The first one that was heard of.
    pub(crate) fn outcome(mut self) -> Result<Option<(Instant, Vec<Ended>)>, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let ended = mem::take(&mut self.ended);
        Ok(self.started.map(|started| (started, ended)))
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Two workers tell `events`; `begin` says whether they may serve. Returns what
    /// is made of it, whether they serve, and whether they are to stop.
    fn watch(
        begin: impl Fn() -> Result<(), Error>,
        events: Vec<Event>,
    ) -> (Result<Option<usize>, Error>, bool, bool) {
        let stop = AtomicBool::new(false);
        let mut crew = Crew::new(&stop);
        let gates = [crew.add(), crew.add()];
        for event in events {
            assert!(!crew.has_ended());
            match crew.hear(event).map(|_| begin()) {
                Some(Ok(())) => crew.serve(),
                Some(Err(error)) => crew.fail(error),
                None => {}
            }
        }
        assert!(crew.has_ended());
        let stopped = stop.load(Ordering::Relaxed);
        let outcome = crew.outcome();
        let outcome = outcome.map(|served| served.map(|(_, ended)| ended.len()));
        let served = gates.map(|gate| gate.recv().is_ok());
        assert_eq!(served[0], served[1]);
        (outcome, served[0], stopped)
    }

    fn ended_well() -> Event {
        Event::Ended(Box::new(Ok(Ended::default())))
    }

    fn gone() -> Error {
        Error::PortGone {
            interface: "srv0".into(),
            worker: 1,
            source: io::ErrorKind::NotConnected.into(),
        }
    }

    #[test]
    fn all_serve_when_all_are_ready() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(1, Ready::example()),
                Event::Ready(0, Ready::example()),
                ended_well(),
                ended_well(),
            ],
        );
        assert!(matches!(outcome, Ok(Some(2))), "{outcome:?}");
        assert!(served && !stopped);
    }

    #[test]
    fn who_is_ready_is_told_by_number() {
        let stop = AtomicBool::new(false);
        let mut crew = Crew::new(&stop);
        let _gates = [crew.add(), crew.add()];
        let mut other = Ready::example();
        other.port[0].1 = "another".into();
        assert!(crew.hear(Event::Ready(1, other)).is_none());
        let ready = crew.hear(Event::Ready(0, Ready::example())).unwrap();
        assert_eq!(
            [&ready[0].port[0].1, &ready[1].port[0].1],
            ["a test", "another"]
        );
    }

    #[test]
    fn none_serves_when_one_cannot_start() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ended(Box::new(Err(gone()))),
                ended_well(),
            ],
        );
        assert!(outcome.is_err() && !served && stopped);
    }

    #[test]
    fn none_serves_that_is_ready_too_late() {
        let (outcome, served, stopped) = watch(
            || unreachable!("one has failed"),
            vec![
                Event::Ended(Box::new(Err(gone()))),
                Event::Ready(0, Ready::example()),
                ended_well(),
            ],
        );
        assert!(outcome.is_err() && !served && stopped);
        let stop = AtomicBool::new(false);
        let mut crew = Crew::new(&stop);
        let gate = crew.add();
        crew.stop();
        assert!(crew.hear(Event::Ready(0, Ready::example())).is_none());
        assert!(gate.recv().is_err());
        assert!(crew.hear(ended_well()).is_none() && crew.has_ended());
        assert!(matches!(crew.outcome(), Ok(None)));
    }

    #[test]
    fn all_stop_when_one_fails() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                Event::Ended(Box::new(Err(gone()))),
                ended_well(),
            ],
        );
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("worker 1"), "{message}");
        assert!(served && stopped);
    }

    #[test]
    fn none_serves_while_the_control_thread_has_rights() {
        let refused = || {
            Err(Error::System {
                what: "giving up rights",
                source: io::ErrorKind::PermissionDenied.into(),
            })
        };
        let (outcome, served, stopped) = watch(
            refused,
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                ended_well(),
                ended_well(),
            ],
        );
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("giving up rights"), "{message}");
        assert!(!served && stopped);
    }

    #[test]
    fn who_is_not_watched_stops() {
        let stop = AtomicBool::new(false);
        let mut crew = Crew::new(&stop);
        let gate = crew.add();
        drop(crew);
        assert!(gate.recv().is_err() && stop.load(Ordering::Relaxed));
    }
}
