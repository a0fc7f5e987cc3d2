//! Answers of a running server that take a while.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use super::signals::block_signals;
use crate::error::Error;

/// Number of parts of an answer that wait until they are taken.
const WAITING_PARTS: usize = 8;

/// An answer of a running server. The future completes when the answer is complete, or with an error.
/// It needs no particular runtime.
///
/// Two threads of its own make the parts of the answer and take them, from the call that asks until the
/// future completes. Dropping the future ends the work, without waiting for it.
#[derive(Debug)]
#[must_use = "dropping it ends the work"]
pub struct Answer<T, E = Error>(oneshot::Receiver<Result<T, E>>);

impl<T, E: From<Error>> Answer<T, E> {
    /// Blocks the calling thread until the answer is complete.
    ///
    /// # Errors
    /// If there is no complete answer.
    ///
    /// # Panics
    /// If called in a `tokio` runtime, where it would block other tasks.
    pub fn wait(self) -> Result<T, E> {
        let outcome = self.0.blocking_recv();
        outcome.unwrap_or_else(|_| Err(panicked().into()))
    }

    /// Returns an answer that immediately completes with `error`.
    pub(super) fn failed(error: E) -> Self {
        let (reply, answer) = oneshot::channel();
        // Sending cannot fail, because the receiver still exists.
        let _ = reply.send(Err(error));
        Self(answer)
    }
}

impl<T, E: From<Error>> Future for Answer<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(outcome.unwrap_or_else(|_| Err(panicked().into())))
    }
}

/// Takes the parts of an answer.
pub(super) trait Taker {
    type Part: Send;
    type Output;
    type Error: From<Error>;

    /// Takes the next part.
    ///
    /// # Errors
    /// If the work must end.
    fn take(&mut self, part: Self::Part) -> Result<(), Self::Error>;

    /// Returns the answer, after its last part.
    fn finish(self) -> Self::Output;
}

/// Starts two threads for a server of this name. On one of them, `make` sends the parts of an answer, and
/// on the other one, `taker` takes them. So the work can end while `taker` blocks. `make` must end when it
/// can send no more.
pub(super) fn ask<K, M, F>(name: &str, mut taker: K, make: M) -> Answer<K::Output, K::Error>
where
    K: Taker + Send + 'static,
    K::Output: Send,
    K::Error: Send,
    M: FnOnce(mpsc::Sender<K::Part>) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let (mut reply, answer) = oneshot::channel();
    let (out, parts) = mpsc::channel(WAITING_PARTS);
    let making = move || {
        prepare()?.block_on(make(out));
        Ok(())
    };
    let taking = move |maker: JoinHandle<Result<(), Error>>| {
        let runtime = prepare().map_err(K::Error::from);
        let taken = runtime.and_then(|runtime| {
            let take = take(&mut taker, parts, &mut reply);
            runtime.block_on(take)
        });
        // The work has ended, or ends soon, because it can send no more.
        let made = maker.join().unwrap_or_else(|_| Err(panicked()));
        let taken = taken.and(made.map_err(K::Error::from));
        // If the future was dropped, nobody waits for the answer.
        let _ = reply.send(taken.map(|()| taker.finish()));
    };
    let maker = spawn(format!("{name}-maker"), making);
    let started = maker.and_then(|maker| spawn(format!("{name}-answer"), move || taking(maker)));
    match started {
        Ok(_) => Answer(answer),
        Err(error) => Answer::failed(error.into()),
    }
}

/// Starts a thread.
fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let spawned = thread::Builder::new().name(name).spawn(work);
    spawned.map_err(Error::system("starting a thread"))
}

/// Prepares this thread, and returns a runtime for it.
fn prepare() -> Result<runtime::Runtime, Error> {
    block_signals().map_err(Error::system("blocking signals"))?;
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(Error::system("preparing a thread"))
}

/// Passes the parts of an answer to `taker`, until there are no more, or nobody waits for the answer.
/// At the end, no more parts can be sent.
async fn take<K: Taker>(
    taker: &mut K,
    mut parts: mpsc::Receiver<K::Part>,
    reply: &mut oneshot::Sender<Result<K::Output, K::Error>>,
) -> Result<(), K::Error> {
    loop {
        tokio::select! {
            part = parts.recv() => match part {
                // After a panic in a `Write` of the program, the work still ends in order.
                Some(part) => catch_unwind(AssertUnwindSafe(|| taker.take(part)))
                    .unwrap_or_else(|_| Err(panicked().into()))?,
                None => return Ok(()),
            },
            () = reply.closed() => return Ok(()),
        }
    }
}

/// Returns the error for a panic on a thread of an answer, possibly in a `Write` of the program.
fn panicked() -> Error {
    Error::System {
        what: "answering",
        source: io::Error::other("a thread of the answer has panicked"),
    }
}
