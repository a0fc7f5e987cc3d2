//! The futures of an embedded server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::handle::{Handle, StopOnDrop, Stopper};
use crate::error::Error;
use crate::program::Listening;
use crate::report::Block;
use crate::summary::Summary;

/// A server that is starting. The future completes when the server serves, or with an error.
///
/// Dropping the future stops the server, without waiting for its end.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct Starting {
    started: oneshot::Receiver<Result<Server, Error>>,
    guard: StopOnDrop,
}

impl Starting {
    pub(super) fn new(
        started: oneshot::Receiver<Result<Server, Error>>,
        stopper: &Stopper,
    ) -> Self {
        Self {
            started,
            guard: StopOnDrop::new(stopper),
        }
    }

    /// Returns a future that immediately completes with `error`.
    pub(super) fn failed(error: Error) -> Self {
        let (sender, started) = oneshot::channel();
        // Sending cannot fail, because the receiver still exists.
        let _ = sender.send(Err(error));
        Self {
            started,
            guard: StopOnDrop::disarmed(),
        }
    }

    /// Blocks the calling thread until the server serves.
    ///
    /// # Errors
    /// If the server cannot start.
    ///
    /// # Panics
    /// If called in a `tokio` runtime, where it would block other tasks.
    pub fn wait(self) -> Result<Server, Error> {
        let Self { started, mut guard } = self;
        let outcome = started
            .blocking_recv()
            .unwrap_or_else(|_| Err(owner_gone()));
        guard.disarm();
        outcome
    }
}

impl Future for Starting {
    type Output = Result<Server, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.started).poll(context));
        self.guard.disarm();
        Poll::Ready(outcome.unwrap_or_else(|_| Err(owner_gone())))
    }
}

/// A running server. The future completes when the server has ended.
///
/// Dropping the future stops the server, without waiting for its end.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct Server {
    ended: oneshot::Receiver<Result<Summary, Error>>,
    facts: Block,
    listening: Listening,
    handle: Handle,
    _guard: StopOnDrop,
}

impl Server {
    pub(super) fn new(
        ended: oneshot::Receiver<Result<Summary, Error>>,
        facts: Block,
        listening: Listening,
        handle: Handle,
    ) -> Self {
        Self {
            ended,
            facts,
            listening,
            _guard: handle.stop_on_drop(),
            handle,
        }
    }

    /// Returns the start block: version, content, device, driver mode, copy or zero-copy,
    /// addresses, privileges, and commands to try. You should print or log the block, because it
    /// also names the parts of the sandbox that the system lacks.
    pub fn facts(&self) -> &Block {
        &self.facts
    }

    /// Returns the addresses and the port of the server.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Returns a handle that any thread can use to read live counters and to stop the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Blocks the calling thread until the server has ended.
    ///
    /// # Errors
    /// If the server ended without a request to stop.
    ///
    /// # Panics
    /// If called in a `tokio` runtime, where it would block other tasks.
    pub fn wait(self) -> Result<Summary, Error> {
        let Self {
            ended,
            _guard: guard,
            ..
        } = self;
        let outcome = ended.blocking_recv().unwrap_or_else(|_| Err(owner_gone()));
        drop(guard);
        outcome
    }
}

impl Future for Server {
    type Output = Result<Summary, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.ended).poll(context));
        Poll::Ready(outcome.unwrap_or_else(|_| Err(owner_gone())))
    }
}

/// Returns the error for a panic on the thread that watches the workers, possibly in a hook of the
/// program.
fn owner_gone() -> Error {
    Error::System {
        what: "watching the workers",
        source: io::Error::other("the thread that watches them has panicked"),
    }
}
