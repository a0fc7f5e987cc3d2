//! Runs a complete `serve` command: from the command line to the summary.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::FromArgMatches;
use nmio::device::QueueAccess;
use tokio::runtime::{self, Runtime};
use tokio::sync::mpsc;

use crate::args::ServeArgs;
use crate::config::{self, Rereading, TakenOver};
use crate::confined::Confined;
use crate::endpoint::Endpoints;
use crate::error::Error;
use crate::follower::{Follower, Removal};
use crate::helper::{Helper, Life};
use crate::interface_state::InterfaceState;
use crate::launch::{Launch, checked_services};
use crate::live::Published;
use crate::log;
use crate::memory;
use crate::notices::Notices;
use crate::observed::Observed;
use crate::privileges::{Kind, Plan, Privileges, Table};
use crate::program::{Program, StartError, check_name};
use crate::progress::{self, Loading, ShowOn};
use crate::readers::{Readers, Reading};
use crate::records::{RecordLog, Writers};
use crate::reload::{Reloader, Requests, Reread, unread_file};
use crate::report::{Block, Lines};
use crate::returning::Queues;
use crate::signals::{self, Harmless, Request, Signals, Stop};
use crate::status::Phase;
use crate::status_log::StatusLog;
use crate::supervisor::Supervisor;
use crate::system::CONFINES_EACH_THREAD;
use crate::transitions;
use crate::watch::Watcher;
use crate::worker::Ready;
use crate::workers::{Event, Outcome, Workers};

/// Runs a complete `serve` command: serves the program that `load` returns, until SIGINT or SIGTERM
/// or until an error. It prints the start block when all workers are ready. If they have served, it
/// prints the summary at the end, also after an error.
///
/// If the environment variable `NOTIFY_SOCKET` is set, a service manager hears when the server is
/// ready, reloads and stops. With `WATCHDOG_USEC` it also hears that all workers still run.
///
/// After the first SIGINT or SIGTERM, open connections may finish for at most
/// [`ServeArgs::drain`] seconds, while new ones are refused. A second SIGINT or SIGTERM ends the
/// process immediately, if it comes at least a second after the first. An error is printed as one message. The
/// exit status is 2 after a mistake in the options, also after an [`OptionError`](crate::OptionError)
/// of `load`, and 1 after any other error. Nothing that the server made stays on the interface.
///
/// `load` runs with the privileges of the user who started the server. It may also start further
/// threads. Privileges are dropped before the first packet. [`Program`] says when each hook runs,
/// and the [crate documentation](crate#what-a-callback-may-do-in-the-sandbox) says what a hook may
/// do.
///
/// This function takes over the whole process: it forks a helper process, catches signals, and uses
/// standard output and the log. So it fails if the process has other threads already, and inside a tokio
/// runtime. [`embed`](crate::embed()) does none of these, and works there.
///
/// A panic of a worker stops the other workers and counts as an error. The summary then has the
/// counts that this worker published last, at most 100 ms before the panic. With `panic = "abort"`
/// in the profile, a panic ends the process by SIGABRT instead, without a summary.
///
/// When this function returns, the calling thread is still in the sandbox, if it has served. Opening a
/// file for writing there kills the process by SIGSYS. To save something at the end, open the file in
/// `load`, and write to it behind this call. Or let a thread that `load` has started save it, and join that
/// thread. A second signal ends the process without a return.
///
/// A reload does not read the configuration file again: see [`serve_rereading`].
pub fn serve<P: Program, E: Into<StartError>>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
) -> ExitCode {
    serve_with(args, load, &|_: &P| Ok(unread_file()))
}

/// Same as [`serve`], for a program that has nothing to load, such as a [`Tcp`](crate::Tcp) or a
/// [`Udp`](crate::Udp).
pub fn serve_loaded<P: Program>(args: &ServeArgs, program: P) -> ExitCode {
    serve(args, || Ok::<_, Infallible>(program))
}

/// Same as [`serve`], but a reload of all content first reads the configuration file again, if it has
/// changed. `apply` gets what the file says, on the thread of [`Program::reload`]. It checks everything,
/// notes for the reload what the program takes over, and returns what needs a restart.
///
/// If the file has a mistake or if `apply` fails, nothing is reloaded. `apply` must then change nothing.
pub fn serve_rereading<P: Program, E: Into<StartError>, T: FromArgMatches + Sync>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
    rereading: &Rereading<'_, T>,
    apply: impl Fn(&P, &config::Reread<'_, T>) -> Result<TakenOver, StartError> + Sync,
) -> ExitCode {
    serve_with(args, load, &|program: &P| {
        rereading.read(|reread| apply(program, reread))
    })
}

fn serve_with<P: Program, E: Into<StartError>>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
    reread: &Reread<'_, P>,
) -> ExitCode {
    check_name::<P>();
    log::init(args.log, args.log_format);
    log::limit_waits();
    log::log_panics();
    memory::map_large_blocks();
    match load_and_run(args, load, reread) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(P::NAME, args.message(&error));
            ExitCode::from(error.exit_status())
        }
    }
}

fn load_and_run<P: Program, E: Into<StartError>>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
    reread: &Reread<'_, P>,
) -> Result<(), Error> {
    if runtime::Handle::try_current().is_ok() {
        return Err(Error::InsideRuntime);
    }
    args.check_numbers()?;
    let plan = args.plan(P::NAME)?;
    // The fork must come before any thread is started and any content is loaded.
    let helper = Helper::start(args, P::NAME, &plan)?;
    // Loading may take minutes. During this time, SIGINT and SIGTERM still end the process, but SIGHUP
    // is ignored.
    let (runtime, harmless) = signals::catch_harmless().map_err(Error::system(WATCHING))?;
    let start = Start {
        args,
        plan,
        helper,
        runtime,
        supervisor: Supervisor::from_environment(),
    };
    let program = start.supervisor.while_loading(load);
    let program = program.map_err(|error| load_error(error.into()))?;
    start.run(&program, reread, harmless)
}

/// Returns the error of a server whose content cannot be loaded. A bare error of the system does not say
/// what failed.
fn load_error(error: StartError) -> Error {
    match error.downcast::<io::Error>() {
        Ok(bare) if bare.raw_os_error().is_some() => Error::system("loading the content")(*bare),
        Ok(told) => Error::Start(told),
        Err(error) => Error::Start(error),
    }
}

const WATCHING: &str = "watching for signals";

/// The parts that are created before the content is loaded.
struct Start<'a> {
    args: &'a ServeArgs,
    plan: Plan,
    helper: Helper,
    runtime: Runtime,
    supervisor: Supervisor,
}

impl Start<'_> {
    fn run<P: Program>(
        &self,
        program: &P,
        reread: &Reread<'_, P>,
        harmless: Harmless,
    ) -> Result<(), Error> {
        let (args, plan, helper) = (self.args, &self.plan, &self.helper);
        let (runtime, supervisor) = (&self.runtime, &self.supervisor);
        let privileges = &plan.privileges(table(program))?;
        // From here on, the first SIGINT or SIGTERM causes a graceful stop instead of killing the
        // process.
        let signals = Signals::catch_all(runtime, harmless).map_err(Error::system(WATCHING))?;
        let helper_life = helper.life(runtime)?;
        let endpoints = Endpoints::bind(&args.endpoints, P::NAME);
        let mut interface = helper.open(checked_services(args, program)?)?;
        let published: Arc<[_]> = Published::for_workers(interface.queues()).into();
        let mut queues = Queues::take(&mut interface)?;
        let launch = Launch {
            program,
            args,
            privileges,
            interface: &interface,
            published: &published,
            stop: &nmio::Stop::new(),
        };
        // Each worker reports at most two events, so the channel never fills up.
        let (events_in, events) = mpsc::channel(2 * published.len());
        thread::scope(|scope| {
            let tell = move |event| drop(events_in.try_send(event));
            let start = || Reloader::start(scope, (program, reread), privileges, supervisor);
            let reloader = can_reload(program).then(start).transpose()?;
            let writers = Writers::start(scope, P::NAME, program.logs(), privileges)?;
            let reading = Reading::start(scope, P::NAME, readers(program), privileges)?;
            let watcher = self.watch(scope, program, privileges, reloader.as_ref())?;
            let reloads = reloader.as_ref().map(|one| one.requests().clone());
            tell_places(reloads.as_ref(), launch.port(), &queues.state);
            let server = Observed::of(program, Arc::clone(&published), queues.state, reloads);
            let lines: Lines = configuration().chain(endpoints.lines()).collect();
            // The endpoints are served until the end of this scope.
            let _endpoints = endpoints.serve(&server, runtime)?;
            let mut workers = launch.start(scope, queues.sources, &mut queues.follower, tell)?;
            let mut watch = Watch {
                events,
                signals,
                helper,
                helper_life,
                reloader,
                writers,
                watcher,
                reading,
                server: Arc::clone(&server),
                supervisor,
                drain_seconds: args.drain,
                removals: queues.removals,
                serving: String::new(),
            };
            let watched = watch.until_end(&mut workers, |ready, others| {
                keep_memory(&interface, helper, ready)?;
                begin(&launch, privileges, lines.clone(), ready, others)
            });
            runtime.block_on(async {
                tokio::select! {
                    () = watched => {}
                    never = self.keep_following(queues.follower) => match never {},
                    never = housekeeping(supervisor, program, &server) => match never {},
                }
            });
            conclude::<P>(workers.outcome(), watch.finish(), helper)
        })
    }
}

/// Lets the state hear after each reload where the programs and sites are served.
fn tell_places(reloads: Option<&Requests>, port: u16, state: &Arc<InterfaceState>) {
    if let Some(reloads) = reloads {
        let state = Arc::clone(state);
        reloads.tell_places(port, move |places| state.note_places(places));
    }
}

/// Returns true if there is a reload thread.
fn can_reload<P: Program>(program: &P) -> bool {
    CONFINES_EACH_THREAD && program.can_reload()
}

/// Returns the threads that read files for the workers.
fn readers<P: Program>(program: &P) -> Vec<&dyn Readers> {
    if CONFINES_EACH_THREAD {
        program.readers()
    } else {
        Vec::new()
    }
}

/// Makes the helper keep the packet memory of the workers, if their ports wait for the return of the
/// interface.
fn keep_memory(interface: &QueueAccess, helper: &Helper, ready: &[Ready]) -> Result<(), Error> {
    if !interface.may_return() {
        return Ok(());
    }
    let memory = ready.iter().filter_map(|one| one.memory.as_ref());
    helper.keep(&memory.collect::<Vec<_>>())
}

impl Start<'_> {
    /// Follows the changes of the interface, with the help of the helper process.
    async fn keep_following(&self, follower: Follower) -> Infallible {
        follower.keep_following(&self.helper).await
    }

    /// Starts the thread that watches the content, if `--watch` asks for it.
    fn watch<'scope, 'env, P: Program>(
        &self,
        scope: &'scope thread::Scope<'scope, 'env>,
        program: &P,
        privileges: &'env Privileges,
        reloader: Option<&Reloader>,
    ) -> Result<Option<Watcher>, Error> {
        if !self.args.endpoints.watch {
            return Ok(None);
        }
        let Some(reloader) = reloader else {
            let message = "--watch has no effect, because this program cannot reload its content";
            tracing::warn!("{}", config::with_places(message));
            return Ok(None);
        };
        let requests = reloader.requests().clone();
        Watcher::start(scope, P::NAME, program.watched(), privileges, requests).map(Some)
    }
}

/// Returns the line about the configuration file for the start block, if there is a file.
fn configuration() -> impl Iterator<Item = (&'static str, String)> {
    let line = |file: PathBuf| ("configuration", file.display().to_string());
    config::file().map(line).into_iter()
}

/// Does what the control thread does from time to time.
async fn housekeeping<P: Program>(
    supervisor: &Supervisor,
    program: &P,
    server: &Observed,
) -> Infallible {
    tokio::select! {
        never = StatusLog::new(server, program.logs()).keep_logging() => never,
        never = Notices::new(server).keep_looking() => never,
        never = supervisor.keep_alive(server.workers()) => never,
        never = memory::give_back() => never,
        never = progress::keep_showing() => never,
    }
}

/// Returns the files that threads may use after they have dropped their privileges.
fn table<P: Program>(program: &P) -> Table {
    let folders = program.logs().into_iter().filter_map(RecordLog::folder);
    Table::for_server(program.read_paths(), program.files())
        .with_configuration_in(config::folders())
        .with_logs_in(folders.collect())
        .with_store_in(program.stored_paths())
}

/// The state of the other threads when they have been told to end.
struct Finished {
    /// Whether a thread is busy with something that nobody needs any more: new content, or lines for a
    /// reader that is stuck.
    is_busy: bool,
    /// Lines for the summary about what the logs have lost at the end, each a label and a value.
    lost: Vec<(&'static str, String)>,
}

/// Prints the summary, and returns the error, if there is one. If a thread is busy, the process need
/// not wait for it.
fn conclude<P: Program>(
    outcome: Outcome,
    Finished { is_busy, lost }: Finished,
    helper: &Helper,
) -> Result<(), Error> {
    if let Some(mut summary) = outcome.summary {
        summary.add(lost);
        log::print("ended", &summary.block());
    }
    if is_busy {
        helper.end();
    }
    match outcome.error {
        Some(error) if is_busy => {
            log::error(P::NAME, config::with_places(&error.to_string()));
            std::process::exit(error.exit_status().into())
        }
        None if is_busy => std::process::exit(0),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Drops the control thread's privileges, after those of all other threads, and composes the start
/// block.
fn begin<P: Program>(
    launch: &Launch<'_, P>,
    privileges: &Privileges,
    endpoints: Lines,
    ready: &[Ready],
    others: &[&Confined],
) -> Result<Block, Error> {
    let others = others.iter().map(|thread| thread.dropped());
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let mut dropped = privileges.drop_all(Kind::Control)?;
    for one in &others {
        dropped.merge(one);
    }
    for one in ready {
        dropped.merge(&one.dropped);
    }
    let lines = [endpoints, privileges.lines(dropped)].concat();
    Ok(launch.start_block(lines, ready))
}

/// The sources of events for the control thread while workers exist.
struct Watch<'a> {
    events: mpsc::Receiver<Event>,
    signals: Signals,
    helper: &'a Helper,
    helper_life: Life,
    reloader: Option<Reloader>,
    writers: Writers<'a>,
    watcher: Option<Watcher>,
    reading: Reading<'a>,
    server: Arc<Observed>,
    supervisor: &'a Supervisor,
    drain_seconds: u32,
    removals: mpsc::Receiver<Removal>,
    /// What the server serves, in one line for the service manager.
    serving: String,
}

impl Watch<'_> {
    /// Watches the workers until they have ended. The workers begin to serve when all are ready and
    /// `begin` has returned the start block.
    async fn until_end(
        &mut self,
        workers: &mut Workers<'_>,
        begin: impl Fn(&[Ready], &[&Confined]) -> Result<Block, Error>,
    ) {
        let (reloader, writers) = (self.reloader.as_ref(), &self.writers);
        let others: Vec<_> = [
            reloader.map(Reloader::thread),
            self.watcher.as_ref().map(Watcher::thread),
        ]
        .into_iter()
        .flatten()
        .chain(writers.threads())
        .chain(self.reading.threads())
        .collect();
        let mut helper_is_gone = false;
        let mut preparing = Some(Loading::begin("preparing the packets", ShowOn::Terminal));
        while !workers.has_ended() {
            tokio::select! {
                Some(event) = self.events.recv() => match workers.handle_event(event).map(|all| {
                    // A spinner needs the terminal, which a thread without privileges cannot use.
                    preparing = None;
                    begin(&all, &others)
                }) {
                    Some(Ok(block)) => {
                        workers.serve();
                        self.reading.serving();
                        self.server.note_serving(block.lines());
                        log::print("serving", &block);
                        self.serving = status(&block);
                        self.supervisor.serving(self.serving.clone());
                    }
                    Some(Err(error)) => workers.fail(error),
                    None => {}
                },
                request = self.signals.next() => match (request, reloader) {
                    (Request::Stop(Stop::Gracefully), _) => self.stop(workers),
                    (Request::Stop(Stop::AtOnce), _) => exit_at_once(self.helper),
                    (Request::ReopenLogs, _) => writers.reopen(),
                    (Request::Reload, Some(_)) if workers.is_stopping() => {}
                    (Request::Reload, Some(reloader)) => reloader.requests().request(true),
                    (Request::Reload, None) => tracing::warn!(
                        "SIGHUP: this program cannot reload its content; restart it"
                    ),
                },
                Some(removal) = self.removals.recv() => self.handle_removal(removal, workers),
                error = self.helper_life.end(), if !helper_is_gone => {
                    helper_is_gone = true;
                    workers.fail(error);
                }
            }
        }
        self.supervisor.stopping();
    }

    /// Stops the workers after the first signal.
    fn stop(&self, workers: &mut Workers<'_>) {
        // Before the start block there is nothing to drain.
        if workers.is_serving() && self.server.phase() != Phase::Waiting {
            self.announce_drain();
        }
        self.supervisor.stopping();
        transitions::stop(workers, &self.server);
    }

    /// Handles a removal of the interface, or its return.
    fn handle_removal(&self, removal: Removal, workers: &mut Workers<'_>) {
        match transitions::handle_removal(removal, workers, &self.server) {
            Some(Phase::Waiting) => {
                let name = self.server.interface().read().name;
                let waiting = format!("until there is an interface {name} again");
                self.supervisor.waiting(&format!("waiting {waiting}"));
                let mut block = Block::default();
                block.line("waiting", waiting);
                log::print("waiting", &block);
            }
            Some(_) => self.supervisor.serving(self.serving.clone()),
            None => {}
        }
    }

    /// Ends the other threads, except those of workers.
    fn finish(&mut self) -> Finished {
        let (have_ended, lost) = self.writers.finish();
        let reloads = self.reloader.as_ref().is_some_and(Reloader::is_busy);
        Finished {
            is_busy: reloads || !have_ended,
            lost,
        }
    }

    /// Prints a line about the drain that begins, if the server has TCP connections.
    fn announce_drain(&self) {
        if self.drain_seconds == 0 {
            return;
        }
        if self.server.has_connections() {
            let mut block = Block::default();
            let seconds = self.drain_seconds;
            block.line(
                "stopping",
                format!(
                    "open connections may finish within {seconds} s; a second signal, at least 1 s later, \
                     ends them at once"
                ),
            );
            log::print("stopping", &block);
        }
    }
}

/// Ends the process after a second stop signal.
fn exit_at_once(helper: &Helper) -> ! {
    tracing::warn!("a second signal ends the server at once, and open connections are cut");
    helper.end();
    std::process::exit(1)
}

/// Describes a serving server in one line, for the service manager.
fn status(block: &Block) -> String {
    let listening = block.lines().find(|(label, _)| *label == "listening");
    format!("serving {}", listening.map_or("", |(_, value)| value))
}

#[cfg(test)]
mod tests {
    use nmio::Port;
    use tokio::runtime::Builder;
    use udpip::{Datagram, Service};

    use super::*;
    use crate::named::Named;
    use crate::new_worker::NewWorker;
    use crate::udp::Udp;

    struct Silent;

    impl Service for Silent {
        type Message = ();

        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: nmio::Instant) {}
    }

    impl Named for Silent {
        const NAME: &'static str = "silent";
        const PORT: u16 = 9;
    }

    #[test]
    fn a_bare_system_error_of_a_load_says_what_failed() {
        let bare = io::Error::from_raw_os_error(libc::ENOENT);
        let text = load_error(bare.into()).to_string();
        let start = "loading the content: No such file or directory";
        assert!(text.starts_with(start), "{text}");
        let told = io::Error::other("query log: no such folder");
        for own in [told.into(), "the zone is empty".into()] {
            let expected = format!("{own}");
            assert_eq!(load_error(own).to_string(), expected);
        }
    }

    #[test]
    fn a_call_inside_a_runtime_is_an_error() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(async {
            let load = || Ok::<_, Infallible>(Udp::new(|_: &mut NewWorker<()>| Ok(Silent)));
            load_and_run(&ServeArgs::default(), load, &|_| Ok(unread_file()))
        });
        assert!(matches!(outcome, Err(Error::InsideRuntime)), "{outcome:?}");
    }
}
