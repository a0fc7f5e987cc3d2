//! The thread that asks for a reload when files of the content change.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::confined::Confined;
use crate::error::Error;
use crate::privileges::{Kind, Privileges};
use crate::program::Watched;
use crate::reload::Requests;

/// Time without changes after which the content is read again.
const SETTLED: Duration = Duration::from_millis(500);
/// Maximum time from a change to the reload, if changes go on.
const MAX_DELAY: Duration = Duration::from_secs(5);

enum Message {
    Changed,
    /// Changes are no longer seen.
    Blind(notify::Error),
    Stop,
}

/// The control thread's side of the thread, which ends when this value is dropped.
pub(crate) struct Watcher {
    messages: Sender<Message>,
    thread: Confined,
}

impl Watcher {
    /// Starts the thread, which first drops its privileges.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        name: &str,
        watched: Vec<Watched>,
        privileges: &'env Privileges,
        requests: Requests,
    ) -> Result<Self, Error> {
        let (messages, inbox) = channel();
        let sender = messages.clone();
        let work = move || {
            // The watcher's own thread inherits the limits of this one.
            match watch(&watched, sender) {
                Ok(_watcher) => ask_for_reloads(&inbox, &requests),
                Err(error) => tracing::error!(
                    "--watch: changes of the content are not seen: {error}; SIGHUP still reloads it"
                ),
            }
        };
        let name = format!("{name}-watch");
        let thread = Confined::start(scope, name, Kind::Watch, privileges, work)?;
        Ok(Self { messages, thread })
    }

    /// Returns the thread.
    pub(crate) fn thread(&self) -> &Confined {
        &self.thread
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // An error means that the thread has ended.
        let _ = self.messages.send(Message::Stop);
    }
}

/// Sends a message for each change, as long as the returned value exists.
fn watch(watched: &[Watched], messages: Sender<Message>) -> notify::Result<RecommendedWatcher> {
    let tell = move |event: notify::Result<Event>| {
        let message = match event {
            Ok(event) if !is_change(&event) => return,
            Ok(_) => Message::Changed,
            Err(error) => Message::Blind(error),
        };
        // An error means that the server stops.
        let _ = messages.send(message);
    };
    let mut watcher = notify::recommended_watcher(tell)?;
    for one in watched {
        let (path, mode): (&PathBuf, _) = match one {
            Watched::Folder(path) => (path, RecursiveMode::NonRecursive),
            Watched::Tree(path) => (path, RecursiveMode::Recursive),
        };
        watcher.watch(path, mode)?;
    }
    Ok(watcher)
}

/// Returns true if the content may be another one after the event. Reading it causes events, too.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) => true,
        // The kernel has left out events.
        _ => event.need_rescan(),
    }
}

/// Asks for a reload when changes have settled for a moment, until the server stops.
fn ask_for_reloads(inbox: &Receiver<Message>, requests: &Requests) {
    loop {
        match inbox.recv() {
            Ok(Message::Changed) => {}
            Ok(Message::Blind(error)) => {
                tracing::warn!("--watch: some changes may not be seen: {error}");
                continue;
            }
            Ok(Message::Stop) | Err(_) => return,
        }
        let latest = Instant::now() + MAX_DELAY;
        loop {
            let left = latest.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(SETTLED.min(left)) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => break,
                Ok(_) if left.is_zero() => break,
                Ok(_) => {}
            }
        }
        requests.request();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    #[test]
    fn a_burst_of_changes_causes_one_reload_and_reading_causes_none() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("old"), "1").unwrap();
        let requests = Requests::for_tests();
        let (messages, inbox) = channel();
        let watched = [Watched::Tree(folder.path().to_owned())];
        let watcher = watch(&watched, messages.clone()).unwrap();
        fs::read(below.join("old")).unwrap();
        thread::scope(|scope| {
            let asked = &requests;
            scope.spawn(move || ask_for_reloads(&inbox, asked));
            thread::sleep(2 * SETTLED);
            assert_eq!(requests.waiting(), 0, "a file was only read");
            for n in 0..20 {
                fs::write(below.join(n.to_string()), "new").unwrap();
            }
            let start = Instant::now();
            while requests.waiting() == 0 {
                assert!(start.elapsed() < Duration::from_mins(1));
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(requests.waiting(), 1);
            messages.send(Message::Stop).unwrap();
        });
        drop(watcher);
    }
}
