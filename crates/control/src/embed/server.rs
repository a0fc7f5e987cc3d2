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

/// A server that starts. The future is ready when it serves.
///
/// Dropping the future stops the server, and does not wait for the end.
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

    /// A server that could not be started.
    pub(super) fn failed(error: Error) -> Self {
        let (refused, started) = oneshot::channel();
        // It cannot fail: the receiver exists.
        let _ = refused.send(Err(error));
        Self {
            started,
            guard: StopOnDrop::disarmed(),
        }
    }

    /// Waits until the server serves, on a thread outside any runtime.
    ///
    /// # Errors
    /// When the server cannot start.
    ///
    /// # Panics
    /// Inside a `tokio` runtime, where it would block other tasks.
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

/// A running server. The future is ready when the server has ended.
///
/// Dropping the future stops the server, and does not wait for the end.
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

    /// The start block: version, content, device, driver mode, copy or zero-copy, addresses,
    /// rights, and commands to try. Print or log it, as it also names all that the system
    /// refused.
    pub fn facts(&self) -> &Block {
        &self.facts
    }

    /// Addresses and port of the server.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// A handle for any thread, which reads live counters and stops the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the end, on a thread outside any runtime.
    ///
    /// # Errors
    /// When the server ended by itself.
    ///
    /// # Panics
    /// Inside a `tokio` runtime, where it would block other tasks.
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

/// The thread that watches the workers has panicked, maybe in a hook of the program.
fn owner_gone() -> Error {
    Error::System {
        what: "watching the workers",
        source: io::Error::other("the thread that watches them has panicked"),
    }
}
