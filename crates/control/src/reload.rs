//! The thread that reloads the content.

use std::fmt::Display;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::resource::{UsageWho, getrusage};
use tokio::sync::oneshot;

use crate::config::{self, FileNow, FileRead, Unread};
use crate::confined::Confined;
use crate::error::Error;
use crate::log;
use crate::place::Place;
use crate::privileges::Privileges;
use crate::program::{Program, Reloaded, StartError, Watched};
use crate::progress::{Loading, ShowOn};
use crate::report::{self, Block, joined_lines};
use crate::status::{LastReload, ReloadResult, Reloads};
use crate::supervisor::Supervisor;

/// Introduces the reason why all content stays old.
const STAYS: &str = "not reloaded, the old content stays";
/// Introduces the parts that keep their old content, and the reasons.
const PARTLY: &str = "only a part is reloaded, other content stays old";
/// Interval at which old content is freed that was in use when a reload ended.
const FREE_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of requests that wait for a reload.
const MAX_WAITING: usize = 64;

/// Reads a changed configuration file, before a reload of all content. After an error, nothing is reloaded.
pub(crate) type Reread<'a, P> = dyn Fn(&P) -> Result<FileRead, StartError> + Sync + 'a;

/// A request to read content again.
struct Request {
    /// The content's name, or `None` for all content.
    only: Option<String>,
    /// Whether to read a changed configuration file first.
    reads_options: bool,
    /// Where to send the outcome. `None`: nobody waits for it.
    reply: Option<oneshot::Sender<LastReload>>,
}

/// The way to ask for reloads. All clones ask the same thread.
#[derive(Clone)]
pub(crate) struct Requests {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Vec<Request>>,
    history: Mutex<Reloads>,
    /// Whether the thread improves content.
    is_preparing: AtomicBool,
    /// Whether the thread has to end.
    is_closed: AtomicBool,
    /// Hears which files are content after a reload, if somebody watches them.
    watcher: Mutex<Option<Box<TellWatched>>>,
    /// Hears after a reload where the programs and sites are served, with this port.
    places: Mutex<Option<(u16, Box<TellPlaces>)>>,
}

/// Tells somebody which files are content.
type TellWatched = dyn Fn(Vec<Watched>) + Send;

/// Tells somebody where the programs and sites are served.
type TellPlaces = dyn Fn(Vec<Place>) + Send;

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Vec<Request>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watcher(&self) -> MutexGuard<'_, Option<Box<TellWatched>>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, Option<(u16, Box<TellPlaces>)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, Reloads> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    /// Asks for a reload of all content, and of the options of a changed configuration file if
    /// `reads_options` is set. If a reload is running, another one follows.
    pub(crate) fn request(&self, reads_options: bool) {
        let mut waiting = self.shared.waiting();
        let is_same = |other: &Request| {
            other.only.is_none() && other.reply.is_none() && other.reads_options == reads_options
        };
        if !waiting.iter().any(is_same) {
            waiting.push(Request {
                only: None,
                reads_options,
                reply: None,
            });
        }
        drop(waiting);
        self.wake();
    }

    /// Asks for a reload of the content with this name, or of all content. The receiver gets the
    /// outcome. Returns `None` if too many requests wait.
    pub(crate) fn ask(&self, only: Option<String>) -> Option<oneshot::Receiver<LastReload>> {
        let (reply, outcome) = oneshot::channel();
        let mut waiting = self.shared.waiting();
        if waiting.len() >= MAX_WAITING {
            return None;
        }
        waiting.push(Request {
            reads_options: only.is_none(),
            only,
            reply: Some(reply),
        });
        drop(waiting);
        self.wake();
        Some(outcome)
    }

    /// Lets `tell` hear after each reload which files are content from then on.
    pub(crate) fn tell_watched(&self, tell: impl Fn(Vec<Watched>) + Send + 'static) {
        *self.shared.watcher() = Some(Box::new(tell));
    }

    /// Lets `tell` hear after each reload where the programs and sites are served, if the first port is `port`.
    pub(crate) fn tell_places(&self, port: u16, tell: impl Fn(Vec<Place>) + Send + 'static) {
        *self.shared.places() = Some((port, Box::new(tell)));
    }

    /// Returns the reloads so far.
    pub(crate) fn history(&self) -> Reloads {
        self.shared.history().clone()
    }

    fn wake(&self) {
        // If the channel is full, the thread will look for requests anyway.
        let _ = self.wake.try_send(());
    }
}

/// The control thread's side of the reload thread, which ends when this value is dropped.
pub(crate) struct Reloader {
    requests: Requests,
    thread: Confined,
}

impl Reloader {
    /// Starts the thread, which first drops its privileges, except reading the content.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start<'scope, 'env, P: Program>(
        scope: &'scope Scope<'scope, 'env>,
        (program, reread): (&'env P, &'env Reread<'env, P>),
        privileges: &'env Privileges,
        supervisor: &'env Supervisor,
    ) -> Result<Self, Error> {
        let (wake, woken) = sync_channel::<()>(1);
        let shared = Arc::new(Shared::default());
        let requests = Requests {
            shared: Arc::clone(&shared),
            wake,
        };
        let work = move || work((program, reread), &shared, supervisor, &woken, FREE_EVERY);
        let name = format!("{}-load", P::NAME);
        let thread = Confined::start(scope, name, privileges.reload_kind(), privileges, work)?;
        Ok(Self { requests, thread })
    }

    /// Returns the thread.
    pub(crate) fn thread(&self) -> &Confined {
        &self.thread
    }

    /// Returns true while content is reloaded or improved.
    pub(crate) fn is_busy(&self) -> bool {
        let shared = &self.requests.shared;
        shared.is_preparing.load(Ordering::Acquire) || shared.history().running
    }

    /// Returns the way to ask for reloads.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        self.requests
            .shared
            .is_closed
            .store(true, Ordering::Release);
        self.requests.wake();
    }
}

/// Serves requests, improves content and frees old content, until the thread has to end.
fn work<P: Program>(
    (program, reread): (&P, &Reread<'_, P>),
    shared: &Shared,
    supervisor: &Supervisor,
    woken: &Receiver<()>,
    free_every: Duration,
) {
    let (mut is_in_use, mut has_more) = (false, true);
    loop {
        let wake = if has_more {
            woken.recv_timeout(Duration::ZERO)
        } else if is_in_use {
            woken.recv_timeout(free_every)
        } else {
            woken.recv().map_err(RecvTimeoutError::from)
        };
        if wake == Err(RecvTimeoutError::Disconnected) || shared.is_closed.load(Ordering::Acquire) {
            return;
        }
        serve_requests((program, reread), shared, supervisor);
        if has_more || wake.is_ok() {
            shared.is_preparing.store(true, Ordering::Release);
            has_more = program.prepare_more(&mut print_line);
            shared.is_preparing.store(false, Ordering::Release);
        }
        is_in_use = program.free_unused();
    }
}

/// Serves all requests that wait: first those for all content, then those for each name. One reload serves
/// all that ask for the same, because each of them gets its result.
fn serve_requests<P: Program>(
    (program, reread): (&P, &Reread<'_, P>),
    shared: &Shared,
    supervisor: &Supervisor,
) {
    let mut waiting = mem::take(&mut *shared.waiting());
    while let Some(next) = waiting.first() {
        let everything = waiting.iter().any(|request| request.only.is_none());
        let only = if everything { None } else { next.only.clone() };
        let (served, later): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|request| request.only == only);
        waiting = later;
        shared.history().running = true;
        supervisor.reloading();
        let loading = Loading::begin("reloading", ShowOn::Log);
        let reads_options = served.iter().any(|request| request.reads_options);
        let reread = Some(reread).filter(|_| reads_options);
        let Ended {
            outcome,
            kept,
            unread,
        } = reload(program, reread, only.as_deref());
        drop(loading);
        if let Some(tell) = &*shared.watcher() {
            tell(program.watched());
        }
        if let Some((port, tell)) = &*shared.places() {
            tell(program.places(*port));
        }
        supervisor.reloaded(kept.as_ref().map(|kept| kept as &dyn Display));
        {
            let mut history = shared.history();
            history.running = false;
            history.add(outcome.clone());
            if let Some(unread) = &unread {
                history.unread.count(unread);
            }
        }
        for reply in served.into_iter().filter_map(|request| request.reply) {
            // The asker may have gone away.
            drop(reply.send(outcome.clone()));
        }
    }
}

/// A reload that has ended.
struct Ended {
    outcome: LastReload,
    /// Why content or options stay old.
    kept: Option<String>,
    /// Why the configuration file could not be read.
    unread: Option<Unread>,
}

/// Reloads content, after the options if there is a function that reads them.
fn reload<P: Program>(program: &P, reread: Option<&Reread<'_, P>>, only: Option<&str>) -> Ended {
    let start = Instant::now();
    let ready = match only {
        Some(name) if !program.has_content(name) => Err(unknown(name)),
        _ => reread.map_or_else(|| Ok(unread_file()), |reread| reread(program)),
    };
    let (file, outcome) = match ready {
        Ok(file) => {
            let outcome = match &file.unread {
                Some(gone @ Unread::Gone(..)) => Err(gone.to_string().into()),
                _ => program.reload(only),
            };
            (file, outcome)
        }
        Err(error) => (FileRead::default(), Err(error)),
    };
    let seconds = start.elapsed().as_secs_f64();
    let (done, kept) = match outcome {
        Ok(Reloaded { done, kept }) => (Some(done), kept.as_deref().map(joined_lines)),
        Err(error) => (None, Some(joined_lines(&error.to_string()))),
    };
    let unread = file.unread.as_ref().map(Unread::to_string);
    let (kept, note) = match &file.unread {
        None => (kept, file.note),
        Some(Unread::Forbidden(_)) => (joined([unread, kept]), file.note),
        Some(Unread::Hidden(_)) => (kept, joined([unread, file.note])),
        Some(Unread::Gone(..)) => (kept, None),
    };
    let done = done.map(|what| format!("in {seconds:.2} s, {what}{}", memory_peak()));
    tell(done.as_deref(), kept.as_deref(), note.as_deref());
    let (result, message) = match (done, kept.clone()) {
        (Some(done), None) => (ReloadResult::Succeeded, done),
        (Some(done), Some(why)) => (
            ReloadResult::Partial,
            format!("{why}; the rest was reloaded {done}"),
        ),
        (None, why) => (ReloadResult::Failed, why.unwrap_or_default()),
    };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let outcome = LastReload {
        result,
        message: joined([Some(message), note]).unwrap_or_default(),
        seconds,
        unix_time: since_1970.unwrap_or_default().as_secs_f64(),
    };
    Ended {
        outcome,
        kept,
        unread: file.unread,
    }
}

/// Tells the operator what was reloaded, why content or options stay old, and what else there is to know.
fn tell(done: Option<&str>, kept: Option<&str>, note: Option<&str>) {
    if let Some(line) = done {
        print_line("reloaded", line.to_owned());
    }
    if let Some(why) = kept {
        let what = if done.is_some() { PARTLY } else { STAYS };
        tracing::error!("{what}: {why}");
    }
    if let Some(note) = note {
        tracing::warn!("{note}");
    }
}

/// Joins what there is to say.
fn joined(parts: [Option<String>; 2]) -> Option<String> {
    let [first, second] = parts;
    first
        .into_iter()
        .chain(second)
        .reduce(|all, next| format!("{all}; {next}"))
}

/// Returns a message for the operator if the configuration file has changed since it was read, or is gone.
/// It is for reloads that do not read the file.
pub(crate) fn unread_file() -> FileRead {
    let (file, what) = match config::file_now() {
        FileNow::Same | FileNow::Hidden(_) => return FileRead::default(),
        FileNow::Changed(file) => (file, "has changed"),
        FileNow::Gone(file, _) => (file, "is gone"),
    };
    let file = file.display();
    FileRead {
        unread: None,
        note: Some(format!(
            "{file} {what}, but this reload does not read options"
        )),
    }
}

/// Prints a line for the operator.
fn print_line(label: &'static str, line: String) {
    let mut block = Block::default();
    block.line(label, line);
    log::print(label, &block);
}

fn unknown(name: &str) -> StartError {
    format!("no content is called {name:?}; give the folder of a site as status shows it, or a zone's name").into()
}

/// Describes the most memory that the process has had, if the system tells.
fn memory_peak() -> String {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return String::new();
    };
    // Linux and FreeBSD report units of 1,024 bytes.
    let bytes = u64::try_from(usage.max_rss()).unwrap_or_default() * 1_024;
    format!("; memory peak so far {}", report::bytes(bytes))
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
