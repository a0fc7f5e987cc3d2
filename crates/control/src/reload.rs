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

use crate::config::{self, FileNow};
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

/// Reads a changed configuration file, before a reload of all content. Returns what the operator should
/// know. After an error, nothing is reloaded.
pub(crate) type Reread<'a, P> = dyn Fn(&P) -> Result<Option<String>, StartError> + Sync + 'a;

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
        let (outcome, kept) = reload(program, reread, only.as_deref());
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
        }
        for reply in served.into_iter().filter_map(|request| request.reply) {
            // The asker may have gone away.
            drop(reply.send(outcome.clone()));
        }
    }
}

/// Reloads content, after the options if there is a function that reads them. Returns the outcome, and the
/// reason if content stays old.
fn reload<P: Program>(
    program: &P,
    reread: Option<&Reread<'_, P>>,
    only: Option<&str>,
) -> (LastReload, Option<String>) {
    let start = Instant::now();
    let ready = match only {
        Some(name) if !program.has_content(name) => Err(unknown(name)),
        _ => reread.map_or_else(|| Ok(unread_file()), |reread| reread(program)),
    };
    let (note, outcome) = match ready {
        Ok(note) => (note, program.reload(only)),
        Err(error) => (None, Err(error)),
    };
    let seconds = start.elapsed().as_secs_f64();
    let (done, kept) = match outcome {
        Ok(Reloaded { done, kept }) => (Some(done), kept.as_deref().map(joined_lines)),
        Err(error) => (None, Some(joined_lines(&error.to_string()))),
    };
    let done = done.map(|what| format!("in {seconds:.2} s, {what}{}", memory_peak()));
    if let Some(line) = &done {
        print_line("reloaded", line.clone());
    }
    if let Some(why) = &kept {
        let what = if done.is_some() { PARTLY } else { STAYS };
        tracing::error!("{what}: {why}");
    }
    if let Some(note) = &note {
        tracing::warn!("{note}");
    }
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
        message: note.map_or(message.clone(), |note| format!("{message}; {note}")),
        seconds,
        unix_time: since_1970.unwrap_or_default().as_secs_f64(),
    };
    (outcome, kept)
}

/// Returns a message for the operator if the configuration file has changed since it was read, or is gone.
/// It is for reloads that do not read the file.
pub(crate) fn unread_file() -> Option<String> {
    let (file, what) = match config::file_now() {
        FileNow::Same | FileNow::Hidden(_) => return None,
        FileNow::Changed(file) => (file, "has changed"),
        FileNow::Gone(file, _) => (file, "is gone"),
    };
    let file = file.display();
    Some(format!(
        "{file} {what}, but this reload does not read options"
    ))
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
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use ip::Transports;
    use nmio::Port;
    use nmio::device::Transport;

    use super::*;
    use crate::program::WorkerContext;

    /// A program that notes what it reloads. It fails to reload `broken`, and a part of `half`.
    #[derive(Default)]
    struct Notes {
        reloaded: Mutex<Vec<Option<String>>>,
        /// How often it was asked to free old content.
        asked: AtomicU32,
    }

    struct Nothing;

    impl<P: Port> Transports<P> for Nothing {
        fn serves(&self, _: u8, _: u16) -> bool {
            false
        }
    }

    impl Program for Notes {
        const NAME: &'static str = "notes";
        const VERSION: &'static str = "0";
        const DEFAULT_PORT: u16 = 7;
        type Transports<P: Port> = Nothing;

        fn services(&self, _: u16) -> Vec<(Transport, u16)> {
            Vec::new()
        }

        fn transports<P: Port>(&self, _: &mut P, _: &WorkerContext) -> Result<Nothing, StartError> {
            Ok(Nothing)
        }

        fn watched(&self) -> Vec<Watched> {
            vec![Watched::Entry("a".into())]
        }

        fn has_content(&self, name: &str) -> bool {
            ["a", "b", "broken", "half", "lists"].contains(&name)
        }

        fn free_unused(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed) + 1 < ASKED
        }

        fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
            self.reloaded.lock().unwrap().push(only.map(str::to_owned));
            match only {
                Some("broken") => Err("syntax error".into()),
                Some("lists") => Err("2 mistakes\n  line 3: no colon\n  line 7: no name".into()),
                Some("half") => Ok(Reloaded {
                    done: "done".to_owned(),
                    kept: Some("zone: line 3\nand line 4".to_owned()),
                }),
                _ => Ok("done".to_owned().into()),
            }
        }
    }

    /// Old content is in use until the program was asked this often.
    const ASKED: u32 = 3;

    /// Stands for a server without a configuration file.
    const NO_FILE: &Reread<'static, Notes> = &|_| Ok(None);

    fn requests() -> (Requests, Receiver<()>) {
        let (wake, woken) = sync_channel(1);
        let shared = Arc::default();
        (Requests { shared, wake }, woken)
    }

    impl Requests {
        /// Creates the way to ask a thread that does nothing.
        pub(crate) fn for_tests() -> Self {
            requests().0
        }

        /// Returns the number of requests that wait.
        pub(crate) fn waiting(&self) -> usize {
            self.shared.waiting().len()
        }
    }

    fn reloaded(program: &Notes) -> Vec<Option<String>> {
        mem::take(&mut program.reloaded.lock().unwrap())
    }

    fn is_success(outcome: &LastReload) -> bool {
        outcome.result == ReloadResult::Succeeded
    }

    #[test]
    fn a_reload_of_all_content_serves_all_requests_for_it() {
        let (requests, woken) = requests();
        let program = Notes::default();
        requests.request(true);
        requests.request(true);
        assert_eq!(requests.shared.waiting().len(), 1, "one request is enough");
        let mut outcome = requests.ask(None).unwrap();
        assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
        serve_requests((&program, NO_FILE), &requests.shared, &Supervisor::none());
        assert_eq!(reloaded(&program), [None]);
        assert!(is_success(&outcome.try_recv().unwrap()));
        assert_eq!(requests.history().generation, 2);
    }

    #[test]
    fn a_name_has_its_own_result_although_all_content_is_reloaded() {
        let (requests, _woken) = requests();
        let program = Notes::default();
        let [mut wrong, mut right] =
            ["unknown", "a"].map(|name| requests.ask(Some(name.to_owned())).unwrap());
        requests.request(true);
        serve_requests((&program, NO_FILE), &requests.shared, &Supervisor::none());
        assert_eq!(reloaded(&program), [None, Some("a".to_owned())]);
        let wrong = wrong.try_recv().unwrap();
        assert_eq!(wrong.result, ReloadResult::Failed);
        assert!(wrong.message.contains("no content is called"));
        assert!(is_success(&right.try_recv().unwrap()));
    }

    #[test]
    fn each_name_is_reloaded_once() {
        let (requests, _woken) = requests();
        let program = Notes::default();
        let names = ["a", "b", "a"].map(|name| requests.ask(Some(name.to_owned())));
        serve_requests((&program, NO_FILE), &requests.shared, &Supervisor::none());
        let expected = ["a", "b"].map(|name| Some(name.to_owned()));
        assert_eq!(reloaded(&program), expected);
        for outcome in names {
            assert!(is_success(&outcome.unwrap().try_recv().unwrap()));
        }
        assert_eq!(requests.history().generation, 3);
    }

    #[test]
    fn a_failed_reload_keeps_the_generation_and_says_why() {
        let (requests, _woken) = requests();
        let program = Notes::default();
        for (name, why) in [
            ("broken", "syntax error"),
            ("c", "no content is called"),
            ("lists", "2 mistakes; line 3: no colon; line 7: no name"),
        ] {
            let mut outcome = requests.ask(Some(name.to_owned())).unwrap();
            serve_requests((&program, NO_FILE), &requests.shared, &Supervisor::none());
            let outcome = outcome.try_recv().unwrap();
            assert!(outcome.result == ReloadResult::Failed && outcome.message.contains(why));
        }
        let history = requests.history();
        assert_eq!((history.generation, history.failed), (1, 3));
        assert!(!history.running && !is_success(&history.last.unwrap()));
        let reloads = ["broken", "lists"].map(|name| Some(name.to_owned()));
        assert_eq!(reloaded(&program), reloads);
    }

    #[test]
    fn a_partial_reload_is_a_new_generation_and_says_what_stays() {
        let (requests, _woken) = requests();
        let mut outcome = requests.ask(Some("half".to_owned())).unwrap();
        serve_requests(
            (&Notes::default(), NO_FILE),
            &requests.shared,
            &Supervisor::none(),
        );
        let outcome = outcome.try_recv().unwrap();
        assert_eq!(outcome.result, ReloadResult::Partial);
        let message = &outcome.message;
        let begin = "zone: line 3; and line 4; the rest was reloaded in ";
        assert!(message.starts_with(begin), "{message}");
        assert!(message.contains(" s, done; "), "{message}");
        let history = requests.history();
        let counts = (history.generation, history.partial, history.failed);
        assert_eq!((counts, history.succeeded()), ((2, 1, 0), 0));
        assert_eq!(history.errors(), "no reload failed, 1 was partial");
    }

    #[test]
    fn a_reload_of_all_content_reads_the_configuration_file_first() {
        let (requests, _woken) = requests();
        let program = Notes::default();
        let note = |_: &Notes| Ok(Some("restart".to_owned()));
        let wrong = |_: &Notes| Err("storm.toml:1:1: wrong".into());
        let ask = |only: Option<&str>, reread: &Reread<'_, Notes>| {
            let mut outcome = requests.ask(only.map(str::to_owned)).unwrap();
            serve_requests((&program, reread), &requests.shared, &Supervisor::none());
            let LastReload { message, .. } = outcome.try_recv().unwrap();
            (message, reloaded(&program).len())
        };
        let (message, reloads) = ask(None, &note);
        assert!(message.ends_with("; restart") && reloads == 1, "{message}");
        assert_eq!(ask(None, &wrong), ("storm.toml:1:1: wrong".to_owned(), 0));
        let (message, reloads) = ask(Some("a"), &wrong);
        assert!(!message.contains("wrong") && reloads == 1, "{message}");
    }

    #[test]
    fn a_watcher_causes_no_reading_of_the_configuration_file() {
        let (requests, _woken) = requests();
        let program = Notes::default();
        let wrong: &Reread<'_, Notes> = &|_| Err("read".into());
        requests.request(false);
        serve_requests((&program, wrong), &requests.shared, &Supervisor::none());
        assert_eq!(reloaded(&program), [None]);
        requests.request(false);
        requests.request(true);
        serve_requests((&program, wrong), &requests.shared, &Supervisor::none());
        assert_eq!(
            reloaded(&program).len(),
            0,
            "the file was read and is wrong"
        );
    }

    #[test]
    fn old_content_that_is_in_use_is_freed_later() {
        let (requests, woken) = requests();
        let program = Notes::default();
        requests.request(true);
        let shared = Arc::clone(&requests.shared);
        let (at, supervisor) = (&program, Supervisor::none());
        let loaded = Arc::clone(&shared);
        let reload_thread = move || {
            work(
                (at, NO_FILE),
                &loaded,
                &supervisor,
                &woken,
                Duration::from_millis(1),
            );
        };
        thread::scope(|scope| {
            scope.spawn(reload_thread);
            while program.asked.load(Ordering::Relaxed) < ASKED {
                thread::yield_now();
            }
            shared.is_closed.store(true, Ordering::Release);
            requests.wake();
        });
        assert_eq!(reloaded(&program), [None]);
        assert_eq!(program.asked.load(Ordering::Relaxed), ASKED);
    }

    #[test]
    fn the_files_of_the_content_are_told_after_each_reload() {
        let (requests, _woken) = requests();
        let (told, watched) = sync_channel(2);
        requests.tell_watched(move |watched| told.send(watched).unwrap());
        for name in ["a", "broken"] {
            requests.ask(Some(name.to_owned())).unwrap();
            serve_requests(
                (&Notes::default(), NO_FILE),
                &requests.shared,
                &Supervisor::none(),
            );
            assert_eq!(watched.try_recv().unwrap(), [Watched::Entry("a".into())]);
        }
    }

    #[test]
    fn requests_that_wait_are_bounded() {
        let (requests, _woken) = requests();
        let asked: Vec<_> = (0..MAX_WAITING).map(|_| requests.ask(None)).collect();
        assert!(asked.iter().all(Option::is_some) && requests.ask(None).is_none());
        requests.request(true);
        assert_eq!(requests.shared.waiting().len(), MAX_WAITING + 1);
    }
}
