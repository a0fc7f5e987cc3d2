//! The thread that owns an embedded server. The thread opens the interface, watches the workers,
//! and at the end removes what it created.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nmio::device::QueueAccess;
use tokio::sync::oneshot;

use super::handle::{Handle, Message, Stopper};
use super::server::{Server, Starting};
use super::signals::block_signals;
use super::watch::Watch;
use crate::args::ServeArgs;
use crate::endpoint::{ControlSocket, EndpointArgs};
use crate::error::Error;
use crate::launch::{Launch, checked_services};
use crate::live::Published;
use crate::observed::Observed;
use crate::privileges::{Privileges, Table};
use crate::program::Program;
use crate::readers::Reading;
use crate::report::Block;
use crate::returning::{Queues, ReturningInterface};
use crate::status_log::StatusLog;
use crate::summary::Summary;
use crate::worker::Ready;

/// The parts of a server that move to the owning thread.
pub(super) struct Owner<P> {
    args: ServeArgs,
    program: P,
    inbox: Receiver<Message>,
    /// The sending end of `inbox`, which the workers' threads clone.
    outbox: Sender<Message>,
    stopper: Stopper,
    started: oneshot::Sender<Result<Server, Error>>,
}

impl<P: Program> Owner<P> {
    pub(super) fn new(args: ServeArgs, program: P) -> (Self, Starting) {
        let (outbox, inbox) = mpsc::channel();
        let stopper = Stopper::new(outbox.clone());
        let (started, receiver) = oneshot::channel();
        let starting = Starting::new(receiver, &stopper);
        let owner = Self {
            args,
            program,
            inbox,
            outbox,
            stopper,
            started,
        };
        (owner, starting)
    }

    /// Runs the server from start to end. The future of the running [`Server`] completes after the
    /// interface is closed.
    pub(super) fn run(self) {
        let Self { started, .. } = self;
        let (end, ended) = oneshot::channel();
        // If the caller has dropped its future, sending to the future fails. The error is ignored,
        // because nobody waits for the result.
        let mut futures = Some((started, ended));
        let outcome = serve(
            &self.args,
            &self.program,
            &self.inbox,
            self.outbox,
            |facts, launch, observed| {
                if let Some((started, ended)) = futures.take() {
                    let handle = Handle::new(self.stopper, observed);
                    let server = Server::new(ended, facts, launch.listening(), handle);
                    // If the future was dropped, this drops the `Server`, which stops the server.
                    let _ = started.send(Ok(server));
                }
            },
        );
        match (futures, outcome) {
            (Some((started, _)), Err(error)) => drop(started.send(Err(error))),
            (None, Ok(Some(summary))) => drop(end.send(Ok(summary))),
            (None, Err(error)) => drop(end.send(Err(error))),
            // The future was dropped, which stopped the server before it served.
            (_, Ok(_)) => {}
        }
    }
}

/// Serves until a message in `inbox` asks the server to stop, or until an error. Returns `None` if
/// the message arrived before all workers were ready. `begun` receives the start block when all
/// workers serve.
fn serve<P: Program>(
    args: &ServeArgs,
    program: &P,
    inbox: &Receiver<Message>,
    outbox: Sender<Message>,
    begun: impl FnOnce(Block, &Launch<'_, P>, Arc<Observed>),
) -> Result<Option<Summary>, Error> {
    refuse_what_is_missing(args, program)?;
    block_signals().map_err(Error::system("blocking signals"))?;
    args.check_numbers()?;
    let plan = args.plan(P::NAME)?;
    let privileges = plan.privileges(Table::for_embedded())?;
    let services = checked_services(args, program)?;
    let mut interface = ReturningInterface::new(args.interface(P::NAME, services));
    let mut access = QueueAccess::clone(interface.open()?);
    let published: Arc<[_]> = Published::for_workers(access.queues()).into();
    let Queues {
        sources,
        mut follower,
        state,
        removals,
    } = Queues::take(&mut access)?;
    let observed = Observed::of(program, Arc::clone(&published), state, None);
    let _end = End(&observed);
    let launch = Launch {
        program,
        args,
        privileges: &privileges,
        interface: &access,
        published: &published,
        stop: &nmio::Stop::new(),
    };
    let outcome = thread::scope(|scope| {
        // An error means that the owning thread has ended, which also drops the gates and so stops
        // the workers.
        let send = move |event| drop(outbox.send(Message::Worker(event)));
        let reading = Reading::start_embedded(scope, P::NAME, program.readers())?;
        let mut workers = launch.start(scope, sources, &mut follower, send)?;
        let facts = |ready: &[Ready]| launch.start_block(worker_lines(&privileges, ready), ready);
        let mut watch = Watch {
            inbox,
            interface: &mut interface,
            follower,
            removals,
            log: StatusLog::new(&observed, Vec::new()),
            observed: &observed,
        };
        watch.until_end(&mut workers, facts, |facts| {
            reading.serving();
            begun(facts, &launch, Arc::clone(&observed));
        });
        observed.note_stopping();
        Ok::<_, Error>(workers.outcome())
    })?;
    match outcome.error {
        Some(error) => Err(error),
        None => Ok(outcome.summary),
    }
}

/// Notes the end of a server when this value is dropped, also after a panic.
struct End<'a>(&'a Observed);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Refuses options that would have no effect.
///
/// # Errors
/// [`Error::NotEmbedded`].
fn refuse_what_is_missing<P: Program>(args: &ServeArgs, program: &P) -> Result<(), Error> {
    let EndpointArgs {
        metrics_listen,
        control_socket,
        watch,
    } = &args.endpoints;
    let has_socket = matches!(control_socket, Some(ControlSocket::At(_)));
    for (is_asked_for, what) in [
        (!program.logs().is_empty(), "log of requests"),
        (metrics_listen.is_some(), "metrics address"),
        (has_socket, "control socket"),
        (*watch, "watch on its content"),
    ] {
        if is_asked_for {
            return Err(Error::NotEmbedded(what));
        }
    }
    Ok(())
}

/// Returns the lines about the privileges that the workers dropped.
fn worker_lines(privileges: &Privileges, ready: &[Ready]) -> Vec<(&'static str, String)> {
    let mut dropped = ready.iter().map(|one| &one.dropped);
    let mut sum = dropped.next().cloned().unwrap_or_default();
    for one in dropped {
        sum.merge(one);
    }
    privileges.lines(sum)
}
