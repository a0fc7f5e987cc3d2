//! The thread that owns an embedded server: it opens the interface, watches the
//! workers, and removes what was made.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nmio::device::Interface;
use tokio::sync::oneshot;

use super::handle::{Handle, Heard, Stopper};
use super::server::{Server, Starting};
use crate::args::ServeArgs;
use crate::crew::Crew;
use crate::error::Error;
use crate::launch::{Launch, services};
use crate::live::Published;
use crate::news::{self, News};
use crate::program::Program;
use crate::report::Block;
use crate::rights::{Plan, Rights, Table};
use crate::summary::Summary;
use crate::worker::Ready;

/// Interfaces are opened one at a time: each takes names and addresses that are free,
/// and keeps libbpf from printing meanwhile.
static OPENING: Mutex<()> = Mutex::new(());

/// Signals of a thread's own faults, which cannot wait.
const FAULTS: [Signal; 7] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// A server on its way to its thread.
pub(super) struct Owner<P> {
    args: ServeArgs,
    program: P,
    inbox: Receiver<Heard>,
    /// For workers.
    outbox: Sender<Heard>,
    stopper: Stopper,
    started: oneshot::Sender<Result<Server, Error>>,
}

impl<P: Program> Owner<P> {
    pub(super) fn new(args: ServeArgs, program: P) -> (Self, Starting) {
        let (outbox, inbox) = mpsc::channel();
        let stopper = Stopper::new(outbox.clone());
        let (started, told) = oneshot::channel();
        let starting = Starting::new(told, &stopper);
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

    /// Serves from the start to the end. The interface is as before when it tells
    /// the end.
    pub(super) fn run(self) {
        let Self { started, .. } = self;
        let (end, ended) = oneshot::channel();
        // Errors of sending mean that nobody wants to know.
        let mut told = Some((started, ended));
        let outcome = serve(
            &self.args,
            &self.program,
            &self.inbox,
            self.outbox,
            |facts, launch, published| {
                if let Some((started, ended)) = told.take() {
                    let handle = Handle::new(self.stopper, published);
                    let server = Server::new(ended, facts, launch.listening(), handle);
                    // Where nobody waits for the server, dropping it stops it.
                    let _ = started.send(Ok(server));
                }
            },
        );
        match (told, outcome) {
            (Some((started, _)), Err(error)) => drop(started.send(Err(error))),
            (None, Ok(Some(summary))) => drop(end.send(Ok(summary))),
            (None, Err(error)) => drop(end.send(Err(error))),
            // It was stopped before it served: who would hear of it has gone.
            (_, Ok(_)) => {}
        }
    }
}

/// Serves until it is told to stop by `inbox`; `None` when that came before all were
/// ready. `begun` gets the facts when all serve.
fn serve<P: Program>(
    args: &ServeArgs,
    program: &P,
    inbox: &Receiver<Heard>,
    outbox: Sender<Heard>,
    begun: impl FnOnce(Block, &Launch<'_, P>, Arc<[Published]>),
) -> Result<Option<Summary>, Error> {
    leave_signals().map_err(Error::system("blocking signals"))?;
    let plan = Plan::new(args, P::NAME)?;
    let rights = plan.rights(Table::for_server(Vec::new(), Vec::new()))?;
    let services = services(program, args.port)?;
    let interface = {
        let _one = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        Interface::open(&args.interface(P::NAME, services))?
    };
    let published: Arc<[_]> = Published::for_workers(interface.queues()).into();
    let news =
        News::new(&interface, &published).map_err(Error::system("watching the interface"))?;
    let stop = AtomicBool::new(false);
    let launch = Launch {
        program,
        args,
        rights: &rights,
        interface: &interface,
        published: &published,
        stop: &stop,
    };
    let outcome = thread::scope(|scope| {
        // An error means that nobody watches, and then the gates are gone as well.
        let tell = move |event| drop(outbox.send(Heard::Worker(event)));
        let mut crew = launch.start(scope, tell)?;
        let facts = |ready: &[Ready]| launch.start_block(worker_lines(&rights, ready), ready);
        watch(&mut crew, inbox, news, facts, |facts| {
            begun(facts, &launch, Arc::clone(&published));
        });
        crew.outcome()
    })?;
    Ok(outcome.map(|(started, ended)| Summary::new(started, &ended)))
}

/// Watches the workers until they have ended. When all are ready they serve, and
/// `begun` gets the `facts`.
fn watch(
    crew: &mut Crew<'_>,
    inbox: &Receiver<Heard>,
    mut news: News<'_>,
    facts: impl Fn(&[Ready]) -> Block,
    begun: impl FnOnce(Block),
) {
    let mut begun = Some(begun);
    let mut next_news = Instant::now();
    while !crew.has_ended() {
        let now = Instant::now();
        if now >= next_news {
            news.tell(now);
            next_news = now + news::PERIOD;
        }
        match inbox.recv_timeout(next_news.saturating_duration_since(now)) {
            Ok(Heard::Stop) | Err(RecvTimeoutError::Disconnected) => crew.stop(),
            Ok(Heard::Worker(event)) => {
                if let Some(ready) = crew.hear(event)
                    && let Some(begun) = begun.take()
                {
                    let facts = facts(&ready);
                    crew.serve();
                    begun(facts);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// What has become of the workers' rights.
fn worker_lines(rights: &Rights, ready: &[Ready]) -> Vec<(&'static str, String)> {
    let mut given_up = ready.iter().map(|one| &one.given_up);
    let mut sum = given_up.next().cloned().unwrap_or_default();
    for one in given_up {
        sum.merge(one);
    }
    rights.lines_of_workers(sum)
}

/// Leaves signals to other threads: a handler would meet a worker's sandbox. The
/// workers inherit this.
fn leave_signals() -> std::io::Result<()> {
    let mut others = SigSet::all();
    for fault in FAULTS {
        others.remove(fault);
    }
    Ok(others.thread_block()?)
}
