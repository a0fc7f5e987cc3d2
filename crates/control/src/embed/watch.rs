//! Watches the workers and the interface of an embedded server, on the thread that owns both.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::handle::{Haste, Message};
use crate::follower::{self, Follower, Removal};
use crate::notices::Notices;
use crate::observed::Observed;
use crate::report::Block;
use crate::returning::ReturningInterface;
use crate::status_log::{self, StatusLog};
use crate::transitions;
use crate::worker::Ready;
use crate::workers::Workers;

/// The sources of events for the owning thread while workers exist.
pub(super) struct Watch<'a> {
    pub(super) inbox: &'a Receiver<Message>,
    pub(super) interface: &'a mut ReturningInterface,
    pub(super) follower: Follower,
    pub(super) removals: mpsc::Receiver<Removal>,
    pub(super) log: StatusLog<'a>,
    pub(super) observed: &'a Observed,
}

impl Watch<'_> {
    /// Watches the workers until they have ended. When all workers are ready, opens their gates and
    /// passes the result of `facts` to `begun`.
    pub(super) fn until_end(
        &mut self,
        workers: &mut Workers<'_>,
        facts: impl Fn(&[Ready]) -> Block,
        begun: impl FnOnce(Block),
    ) {
        let mut begun = Some(begun);
        let mut notices = Notices::new(self.observed);
        let mut next_log = Instant::now();
        let mut next_look = next_log;
        while !workers.has_ended() {
            let now = Instant::now();
            if now >= next_log {
                self.log.log(now);
                notices.look(now);
                next_log = now + status_log::PERIOD;
            }
            if now >= next_look {
                self.look(now, workers);
                next_look = now + follower::PERIOD;
            }
            let rest = next_log.min(next_look).saturating_duration_since(now);
            match self.inbox.recv_timeout(rest) {
                Ok(Message::Stop(Haste::Drain)) => transitions::stop(workers, self.observed),
                Ok(Message::Stop(Haste::AtOnce)) | Err(RecvTimeoutError::Disconnected) => {
                    self.observed.note_stopping();
                    workers.stop_at_once();
                }
                Ok(Message::Worker(event)) => {
                    if let Some(ready) = workers.handle_event(event)
                        && let Some(begun) = begun.take()
                    {
                        let facts = facts(&ready);
                        let memory = ready.into_iter().filter_map(|one| one.memory);
                        self.interface.keep(memory.collect());
                        workers.serve();
                        self.observed.note_serving(facts.lines());
                        begun(facts);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Looks for changes of the interface.
    fn look(&mut self, now: Instant, workers: &mut Workers<'_>) {
        self.follower.step(now, self.interface);
        while let Ok(removal) = self.removals.try_recv() {
            transitions::handle_removal(removal, workers, self.observed);
        }
    }
}
