//! The workers as the control thread sees them, from their start to their end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::error::Error;
use crate::helper::Life;
use crate::program::Program;
use crate::report::Block;
use crate::signals::{Signals, Stop};
use crate::worker::{Ended, Ready, Worker};

/// What the control thread hears of a worker.
pub(crate) enum Event {
    Ready(u32, Ready),
    Ended(Box<Result<Ended, Error>>),
}

/// A worker's thread. It serves when its gate is opened, and not at all when
/// the gate is gone.
pub(crate) fn work<P: Program>(
    worker: Worker<'_, P>,
    gate: &std_mpsc::Receiver<()>,
    events: &mpsc::Sender<Event>,
    stop: &AtomicBool,
) {
    let index = worker.context.index;
    let ready = |ready| {
        // The channel has room for both events; an error means that nobody
        // listens, and then the gate is gone as well.
        let _ = events.try_send(Event::Ready(index, ready));
        gate.recv().is_ok()
    };
    // Where panics unwind, one worker's end is told like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.work(ready, stop)))
        .unwrap_or(Err(Error::Panicked { worker: index }));
    let _ = events.try_send(Event::Ended(Box::new(outcome)));
}

/// The workers, the signals, and what links them.
pub(crate) struct Crew<'a> {
    pub(crate) events: &'a mut mpsc::Receiver<Event>,
    pub(crate) signals: &'a mut Signals,
    pub(crate) helper: &'a Life,
    /// One for each worker: opened, it serves; dropped, it ends.
    pub(crate) gates: Vec<std_mpsc::Sender<()>>,
    pub(crate) stop: &'a AtomicBool,
}

impl Crew<'_> {
    /// Watches the workers from their start to their end. When all are ready,
    /// `begin` gives up this thread's rights too and composes the start block;
    /// only then do the workers serve. `None` when a signal came before.
    pub(crate) async fn watch(
        &mut self,
        workers: u32,
        begin: impl FnOnce(&[Ready]) -> Result<Block, Error>,
    ) -> Result<Option<(Instant, Vec<Ended>)>, Error> {
        let ready = self.all_ready(workers).await;
        let block = ready.and_then(|ready| ready.map(|ready| begin(&ready)).transpose());
        let mut failed = None;
        let mut started = None;
        match block {
            Ok(Some(block)) => {
                started = Some(Instant::now());
                for gate in &self.gates {
                    // An error means that the worker has ended; that is heard
                    // of below.
                    let _ = gate.send(());
                }
                block.print();
            }
            Ok(None) => self.stop(),
            Err(error) => {
                failed = Some(error);
                self.stop();
            }
        }
        let mut ended = Vec::new();
        let mut helper_is_gone = false;
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Ended(outcome)) => match *outcome {
                        Ok(end) => ended.push(end),
                        Err(error) => {
                            self.stop();
                            failed.get_or_insert(error);
                        }
                    },
                    Some(Event::Ready(..)) => {}
                    // All have ended.
                    None => break,
                },
                stop = self.signals.next() => match stop {
                    Stop::Gently => self.stop(),
                    Stop::AtOnce => std::process::exit(1),
                },
                error = self.helper.end(), if !helper_is_gone => {
                    helper_is_gone = true;
                    self.stop();
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(started.map(|started| (started, ended))),
        }
    }

    /// Waits until every worker is ready. `None` when a signal comes first.
    async fn all_ready(&mut self, workers: u32) -> Result<Option<Vec<Ready>>, Error> {
        let mut ready: Vec<(u32, Ready)> = Vec::new();
        while ready.len() < workers as usize {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Ready(index, one)) => ready.push((index, one)),
                    // No worker ends well before it was let serve.
                    Some(Event::Ended(outcome)) => return outcome.map(|_| None),
                    None => return Ok(None),
                },
                // It is the first one, so it asks for a good end.
                _ = self.signals.next() => return Ok(None),
                error = self.helper.end() => return Err(error),
            }
        }
        ready.sort_by_key(|&(index, _)| index);
        Ok(Some(ready.into_iter().map(|(_, one)| one).collect()))
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.gates.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::signals;

    /// Watches two workers that say `events`; returns what the watch gives,
    /// whether it let them serve, and whether it told them to stop.
    fn watch(
        begun: Result<Block, Error>,
        events: Vec<Event>,
    ) -> (Result<Option<usize>, Error>, bool, bool) {
        let (runtime, harmless) = signals::catch_harmless().unwrap();
        let mut signals = Signals::catch_all(&runtime, harmless).unwrap();
        let (events_in, mut events_out) = mpsc::channel(4);
        for event in events {
            assert!(events_in.try_send(event).is_ok());
        }
        drop(events_in);
        let (gate, opened) = std_mpsc::channel();
        let stop = AtomicBool::new(false);
        let inside = runtime.enter();
        let (helper, _lifeline) = Life::of_nobody();
        drop(inside);
        let mut crew = Crew {
            events: &mut events_out,
            signals: &mut signals,
            helper: &helper,
            gates: vec![gate],
            stop: &stop,
        };
        let outcome = runtime.block_on(crew.watch(2, |_| begun));
        drop(crew);
        let outcome = outcome.map(|served| served.map(|(_, ended)| ended.len()));
        (outcome, opened.recv().is_ok(), stop.load(Ordering::Relaxed))
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
            Ok(Block::default()),
            vec![
                Event::Ready(1, Ready::example()),
                Event::Ready(0, Ready::example()),
                Event::Ended(Box::new(Ok(Ended::default()))),
                Event::Ended(Box::new(Ok(Ended::default()))),
            ],
        );
        assert!(matches!(outcome, Ok(Some(2))), "{outcome:?}");
        assert!(served && !stopped);
    }

    #[test]
    fn none_serves_when_one_cannot_start() {
        let (outcome, served, stopped) = watch(
            Ok(Block::default()),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ended(Box::new(Err(gone()))),
                Event::Ended(Box::new(Ok(Ended::default()))),
            ],
        );
        assert!(outcome.is_err() && !served && stopped);
    }

    #[test]
    fn all_stop_when_one_fails() {
        let (outcome, served, stopped) = watch(
            Ok(Block::default()),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                Event::Ended(Box::new(Err(gone()))),
                Event::Ended(Box::new(Ok(Ended::default()))),
            ],
        );
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("worker 1"), "{message}");
        assert!(served && stopped);
    }

    #[test]
    fn none_serves_while_the_control_thread_has_rights() {
        let refused = Error::System {
            what: "giving up rights",
            source: io::ErrorKind::PermissionDenied.into(),
        };
        let (outcome, served, stopped) = watch(
            Err(refused),
            vec![
                Event::Ready(0, Ready::example()),
                Event::Ready(1, Ready::example()),
                Event::Ended(Box::new(Ok(Ended::default()))),
                Event::Ended(Box::new(Ok(Ended::default()))),
            ],
        );
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("giving up rights"), "{message}");
        assert!(!served && stopped);
    }
}
