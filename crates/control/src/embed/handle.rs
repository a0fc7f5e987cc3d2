//! Access to an embedded server from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;

use crate::live::Snapshot;
use crate::metrics::{self, MetricsFormat};
use crate::observed::Observed;
use crate::status::Status;
use crate::workers::Event;

/// A message to the thread that owns an embedded server.
pub(super) enum Message {
    Worker(Event),
    Stop(Haste),
}

/// How fast a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// After the drain.
    Drain = 1,
    /// Without a drain.
    AtOnce = 2,
}

/// A handle that reads the live counters of an embedded server and can stop the server. All clones
/// refer to the same server.
#[derive(Clone, Debug)]
pub struct Handle {
    stopper: Stopper,
    server: Arc<Observed>,
}

impl Handle {
    pub(super) fn new(stopper: Stopper, server: Arc<Observed>) -> Self {
        Self { stopper, server }
    }

    pub(super) fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop::new(&self.stopper)
    }

    /// Returns the counts of the workers. Each worker publishes its counts between two batches, at
    /// most once in 100 ms, and also while it is idle. A reader does not delay a worker that
    /// serves. After the server has ended, the last counts remain available.
    pub fn snapshot(&self) -> Snapshot {
        self.server.snapshot()
    }

    /// Returns the server's state with all counts, as the command `status` shows it. It can be
    /// written as JSON with `serde`.
    pub fn status(&self) -> Status {
        self.server.status()
    }

    /// Returns all metrics as text, for the answer of your own HTTP server.
    /// [`MetricsFormat::content_type`] is the answer's media type.
    pub fn metrics(&self, format: MetricsFormat) -> String {
        metrics::encode(&self.status(), format)
    }

    /// Begins a graceful shutdown, like SIGTERM with [`serve`](crate::serve). Returns immediately;
    /// the server's future completes when the server has ended. A second call has no effect.
    ///
    /// Open connections may finish for at most [`ServeArgs::drain`](crate::ServeArgs::drain)
    /// seconds, while new ones are refused.
    pub fn stop(&self) {
        self.stopper.stop(Haste::Drain);
    }

    /// Stops without a drain, or ends the drain that [`stop`](Self::stop) has begun. All connections
    /// are closed, which takes at most a second. Returns immediately.
    pub fn stop_at_once(&self) {
        self.stopper.stop(Haste::AtOnce);
    }
}

/// Asks the owning thread to stop the server, at most once for each [`Haste`].
#[derive(Clone, Debug)]
pub(super) struct Stopper(Arc<(AtomicU8, Sender<Message>)>);

impl Stopper {
    pub(super) fn new(owner: Sender<Message>) -> Self {
        Self(Arc::new((AtomicU8::new(0), owner)))
    }

    pub(super) fn stop(&self, haste: Haste) {
        let (asked, owner) = &*self.0;
        if asked.fetch_max(haste as u8, Ordering::Relaxed) < haste as u8 {
            // An error means that the owning thread has ended.
            let _ = owner.send(Message::Stop(haste));
        }
    }
}

/// Stops a server when this value, which is a part of the server's future, is dropped.
#[derive(Debug)]
pub(super) struct StopOnDrop(Option<Stopper>);

impl StopOnDrop {
    pub(super) fn new(stopper: &Stopper) -> Self {
        Self(Some(stopper.clone()))
    }

    /// Creates a value that does not stop any server.
    pub(super) fn disarmed() -> Self {
        Self(None)
    }

    /// Lets the server continue when this value is dropped, because another future now owns the
    /// server.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stopper) = &self.0 {
            stopper.stop(Haste::Drain);
        }
    }
}
