//! Tests the reload thread.

use std::sync::atomic::AtomicU32;
use std::thread;

use ip::Transports;
use nmio::Port;
use nmio::device::Transport;

use super::*;
use crate::program::WorkerContext;
use crate::status::UnreadCounts;

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
const NO_FILE: &Reread<'static, Notes> = &|_| Ok(FileRead::default());

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
    let note = |_: &Notes| {
        Ok(FileRead {
            unread: None,
            note: Some("restart".to_owned()),
        })
    };
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
fn a_configuration_file_that_cannot_be_read_is_counted_and_named() {
    let (requests, _woken) = requests();
    let program = Notes::default();
    let file = || "storm.toml".into();
    let ask = |unread: &(dyn Fn() -> Unread + Sync)| {
        let reread: &Reread<'_, Notes> = &|_| {
            Ok(FileRead {
                unread: Some(unread()),
                note: Some("restart".to_owned()),
            })
        };
        let mut outcome = requests.ask(None).unwrap();
        serve_requests((&program, reread), &requests.shared, &Supervisor::none());
        let LastReload {
            result, message, ..
        } = outcome.try_recv().unwrap();
        (result, message, reloaded(&program).len())
    };
    let (result, message, reloads) = ask(&|| Unread::Forbidden(file()));
    assert_eq!((result, reloads), (ReloadResult::Partial, 1));
    let begin = "storm.toml has changed, but the server may not read it; restart the server to \
                 use it; the rest was reloaded in ";
    assert!(message.starts_with(begin), "{message}");
    assert!(message.ends_with("; restart"), "{message}");
    let (result, message, reloads) = ask(&|| Unread::Hidden(file()));
    assert_eq!((result, reloads), (ReloadResult::Succeeded, 1));
    let end = "; the server may not look at storm.toml, so it may have changed; restart the \
               server to use it; restart";
    assert!(message.ends_with(end), "{message}");
    let gone = || Unread::Gone(file(), std::io::ErrorKind::NotFound.into());
    for _ in 0..2 {
        let (result, message, reloads) = ask(&gone);
        assert_eq!((result, reloads), (ReloadResult::Failed, 0));
        let expected = "the configuration file storm.toml is gone: entity not found; put it \
                        back and reload again";
        assert_eq!(message, expected);
    }
    let UnreadCounts {
        forbidden,
        hidden,
        gone,
    } = requests.history().unread;
    assert_eq!((forbidden, hidden, gone), (1, 1, 2));
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
