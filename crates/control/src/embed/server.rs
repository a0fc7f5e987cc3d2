//! An embedded server, as who embeds it waits for it.

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

/// A server that is being started; the future is ready when it serves.
///
/// Dropping it stops the server, without waiting for the end.
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

    /// Nothing was started.
    pub(super) fn failed(error: Error) -> Self {
        let (refused, started) = oneshot::channel();
        // It cannot fail while there is `started`.
        let _ = refused.send(Err(error));
        Self {
            started,
            guard: StopOnDrop::nothing(),
        }
    }

    /// Waits until it serves, on a thread outside of any runtime.
    ///
    /// # Errors
    /// Why it does not.
    ///
    /// # Panics
    /// Inside a `tokio` runtime, where waiting would block other tasks.
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

/// A server that serves; the future is ready when it has ended.
///
/// Dropping it stops the server, without waiting for the end.
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

    /// What it does and on what, in lines: version, content, device, driver mode,
    /// copy or zero-copy, addresses, rights, commands to try. Show or log them, as
    /// they tell of each thing that could not be had, too.
    pub fn facts(&self) -> &Block {
        &self.facts
    }

    /// Where it can be reached.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// For any thread: live counters, and the end.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the end, on a thread outside of any runtime.
    ///
    /// # Errors
    /// Why it ended by itself.
    ///
    /// # Panics
    /// Inside a `tokio` runtime, where waiting would block other tasks.
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

/// The thread that watches the workers has panicked, in a hook of the program maybe.
fn owner_gone() -> Error {
    Error::System {
        what: "watching the workers",
        source: io::Error::other("the thread that does so has panicked"),
    }
}
