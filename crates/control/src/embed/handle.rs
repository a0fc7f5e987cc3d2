//! What other threads have of an embedded server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use crate::crew::Event;
use crate::live::{Published, Snapshot, snapshot};

/// What the thread hears that owns a server.
pub(super) enum Heard {
    Worker(Event),
    Stop,
}

/// Reads an embedded server's live counters, and stops it. Clones are the same
/// server's.
#[derive(Clone, Debug)]
pub struct Handle {
    stopper: Stopper,
    published: Arc<[Published]>,
}

impl Handle {
    pub(super) fn new(stopper: Stopper, published: Arc<[Published]>) -> Self {
        Self { stopper, published }
    }

    pub(super) fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop::new(&self.stopper)
    }

    /// What the workers have counted. Each publishes its counts at most once in
    /// 100 ms, between two batches, also while it has nothing to do. Reading never
    /// holds a worker up. After the end the last counts stay.
    pub fn snapshot(&self) -> Snapshot {
        snapshot(&self.published)
    }

    /// Ends the server gently, as SIGTERM ends [`serve`](crate::serve). It returns at
    /// once; the server's future tells the end. A second call changes nothing.
    pub fn stop(&self) {
        self.stopper.stop();
    }
}

/// Tells the owner to stop, once.
#[derive(Clone, Debug)]
pub(super) struct Stopper(Arc<(AtomicBool, Sender<Heard>)>);

impl Stopper {
    pub(super) fn new(owner: Sender<Heard>) -> Self {
        Self(Arc::new((AtomicBool::new(false), owner)))
    }

    pub(super) fn stop(&self) {
        let (asked, owner) = &*self.0;
        if !asked.swap(true, Ordering::Relaxed) {
            // An error means that it has ended.
            let _ = owner.send(Heard::Stop);
        }
    }
}

/// Stops a server when nobody waits for it any more.
#[derive(Debug)]
pub(super) struct StopOnDrop(Option<Stopper>);

impl StopOnDrop {
    pub(super) fn new(stopper: &Stopper) -> Self {
        Self(Some(stopper.clone()))
    }

    pub(super) fn nothing() -> Self {
        Self(None)
    }

    /// Somebody else has the server now.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stopper) = &self.0 {
            stopper.stop();
        }
    }
}
