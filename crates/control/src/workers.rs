//! The states of the workers, as the control thread tracks them.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Instant;

use nmio::Stop;

use crate::error::Error;
use crate::program::Program;
use crate::summary::Summary;
use crate::worker::{Ended, Ready, Worker};

/// An event that a worker reports to the control thread.
pub(crate) enum Event {
    Ready(u32, Ready),
    /// The worker has ended, with its counts and maybe an error.
    Ended(Box<Ended>, Option<Error>),
}

/// Runs a worker on the calling thread. Reports when the worker is ready, and when it has ended. A
/// worker that cannot start reports only its end. A ready worker serves when its gate opens, and
/// ends without serving if the gate is dropped instead.
pub(crate) fn work<P: Program>(
    worker: Worker<'_, P>,
    gate: &mpsc::Receiver<()>,
    report: impl Fn(Event),
    stop: &Stop,
) {
    let (index, published) = (worker.context.index, worker.published);
    let ready = |ready| {
        report(Event::Ready(index, ready));
        gate.recv().is_ok()
    };
    // If panics unwind, a panic is reported as an error with which the worker has ended.
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.work(ready, stop)))
        .unwrap_or(Err(Error::Panicked { worker: index }));
    let (ended, error) = match outcome {
        Ok(ended) => (ended, None),
        Err(error) => (Ended::of(&published.lock()), Some(error)),
    };
    report(Event::Ended(Box::new(ended), error));
}

/// The states of all workers, and their gates. A worker begins to serve when its gate opens.
///
/// # Calling contract
/// [`add`](Self::add) each worker, then call [`handle_event`](Self::handle_event) until
/// [`has_ended`](Self::has_ended). When all workers are ready, [`serve`](Self::serve) opens their
/// gates. Dropping this value stops the workers.
pub(crate) struct Workers<'a> {
    ready: Vec<(u32, Ready)>,
    ended: Vec<Ended>,
    /// Number of workers that have not ended yet.
    running: usize,
    /// The gates of all workers. A message opens a gate. A worker whose gate is dropped before it
    /// opens ends without serving.
    gates: Vec<mpsc::Sender<()>>,
    started: Option<Instant>,
    failed: Option<Error>,
    stop: &'a Stop,
}

impl<'a> Workers<'a> {
    /// Creates an empty set of workers, which will stop when `stop` is set.
    pub(crate) fn new(stop: &'a Stop) -> Self {
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

    /// Adds a worker. Returns the receiving end of its gate, on which the worker waits.
    pub(crate) fn add(&mut self) -> mpsc::Receiver<()> {
        let (gate, opened) = mpsc::channel();
        self.gates.push(gate);
        self.running += 1;
        opened
    }

    /// Handles a worker's event. When all workers have become ready, returns their reports, ordered
    /// by worker number. Returns `None` if the workers are already stopping.
    pub(crate) fn handle_event(&mut self, event: Event) -> Option<Vec<Ready>> {
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
            Event::Ended(ended, error) => {
                self.running -= 1;
                self.ended.push(*ended);
                if let Some(error) = error {
                    self.fail(error);
                }
            }
        }
        None
    }

    /// Opens the gates, so that the workers begin to serve.
    pub(crate) fn serve(&mut self) {
        self.started = Some(Instant::now());
        for gate in &self.gates {
            // An error means that the worker has ended, which its event reports.
            let _ = gate.send(());
        }
    }

    /// Stops the workers at once because of `error`. [`outcome`](Self::outcome) later returns the first
    /// error.
    pub(crate) fn fail(&mut self, error: Error) {
        self.stop_at_once();
        self.failed.get_or_insert(error);
    }

    /// Stops the workers, which let their connections finish first.
    pub(crate) fn stop(&mut self) {
        self.stop.request();
        self.gates.clear();
    }

    /// Stops the workers without a drain, also if they drain already.
    pub(crate) fn stop_at_once(&mut self) {
        self.stop.at_once();
        self.gates.clear();
    }

    /// Returns true if the workers have begun to serve and are not asked to stop.
    pub(crate) fn is_serving(&self) -> bool {
        self.started.is_some() && !self.is_stopping()
    }

    /// Returns true if the workers have been asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// Returns true if all workers have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.running == 0
    }

    /// Returns the result of all workers. Must be called after all workers have ended.
    pub(crate) fn outcome(mut self) -> Outcome {
        let ended = mem::take(&mut self.ended);
        Outcome {
            summary: self.started.map(|started| Summary::new(started, &ended)),
            error: self.failed.take(),
        }
    }
}

/// The result of all workers.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The counts of all workers, or `None` if the workers never served.
    pub(crate) summary: Option<Summary>,
    /// The first error.
    pub(crate) error: Option<Error>,
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        self.stop_at_once();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Passes `events` of two workers to a `Workers`. `begin` says whether they may serve. Returns
    /// the outcome, whether they serve, and whether they must stop.
    fn watch(begin: impl Fn() -> Result<(), Error>, events: Vec<Event>) -> (Outcome, bool, bool) {
        let stop = Stop::new();
        let mut workers = Workers::new(&stop);
        let gates = [workers.add(), workers.add()];
        for event in events {
            assert!(!workers.has_ended());
            match workers.handle_event(event).map(|_| begin()) {
                Some(Ok(())) => workers.serve(),
                Some(Err(error)) => workers.fail(error),
                None => {}
            }
        }
        assert!(workers.has_ended());
        let stopped = stop.is_requested();
        let outcome = workers.outcome();
        let served = gates.map(|gate| gate.recv().is_ok());
        assert_eq!(served[0], served[1]);
        (outcome, served[0], stopped)
    }

    fn ended(error: Option<Error>) -> Event {
        let mut ended = Ended::default();
        ended.counters.rx_frames = 5;
        Event::Ended(Box::new(ended), error)
    }

    fn ended_well() -> Event {
        ended(None)
    }

    fn frames(outcome: &Outcome) -> Option<u64> {
        let summary = outcome.summary.as_ref();
        summary.map(|summary| summary.port().rx_frames)
    }

    fn port_gone() -> Error {
        Error::PortGone {
            interface: "srv0".into(),
            worker: 1,
            source: io::ErrorKind::NotConnected.into(),
        }
    }

    #[test]
    fn workers_serve_when_all_are_ready() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(1, Ready::example()),
                Event::Ready(0, Ready::example()),
                ended_well(),
                ended_well(),
            ],
        );
        assert_eq!(frames(&outcome), Some(10));
        assert!(outcome.error.is_none() && served && !stopped);
    }

    #[test]
    fn ready_workers_are_ordered_by_number() {
        let stop = Stop::new();
        let mut workers = Workers::new(&stop);
        let _gates = [workers.add(), workers.add()];
        let mut other = Ready::example();
        other.port[0].1 = "another".into();
        assert!(workers.handle_event(Event::Ready(1, other)).is_none());
        let ready = workers
            .handle_event(Event::Ready(0, Ready::example()))
            .unwrap();
        assert_eq!(
            [&ready[0].port[0].1, &ready[1].port[0].1],
            ["a test", "another"]
        );
    }

    #[test]
    fn no_worker_serves_when_one_cannot_start() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(0, Ready::example()),
                ended(Some(port_gone())),
                ended_well(),
            ],
        );
        assert!(outcome.error.is_some() && outcome.summary.is_none());
        assert!(!served && stopped);
    }

    #[test]
    fn a_worker_that_is_ready_too_late_does_not_serve() {
        let (outcome, served, stopped) = watch(
            || unreachable!("one has failed"),
            vec![
                ended(Some(port_gone())),
                Event::Ready(0, Ready::example()),
                ended_well(),
            ],
        );
        assert!(outcome.error.is_some() && !served && stopped);
        let stop = Stop::new();
        let mut workers = Workers::new(&stop);
        let gate = workers.add();
        workers.stop();
        assert!(
            workers
                .handle_event(Event::Ready(0, Ready::example()))
                .is_none()
        );
        assert!(gate.recv().is_err());
        assert!(workers.handle_event(ended_well()).is_none() && workers.has_ended());
        let outcome = workers.outcome();
        assert!(outcome.error.is_none() && outcome.summary.is_none());
    }

    #[test]
    fn all_workers_stop_when_one_fails() {
        let (outcome, served, stopped) = watch(
            || Ok(()),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                ended(Some(port_gone())),
                ended_well(),
            ],
        );
        assert_eq!(
            frames(&outcome),
            Some(10),
            "the summary counts both workers"
        );
        let message = outcome.error.unwrap().to_string();
        assert!(message.contains("worker 1"), "{message}");
        assert!(served && stopped);
    }

    #[test]
    fn no_worker_serves_while_the_control_thread_has_privileges() {
        let denied = || {
            Err(Error::System {
                what: "dropping privileges",
                source: io::ErrorKind::PermissionDenied.into(),
            })
        };
        let (outcome, served, stopped) = watch(
            denied,
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                ended_well(),
                ended_well(),
            ],
        );
        let message = outcome.error.unwrap().to_string();
        assert!(message.contains("dropping privileges"), "{message}");
        assert!(!served && stopped);
    }

    #[test]
    fn dropping_the_set_stops_its_workers() {
        let stop = Stop::new();
        let mut workers = Workers::new(&stop);
        let gate = workers.add();
        drop(workers);
        assert!(gate.recv().is_err() && stop.is_requested());
    }
}
