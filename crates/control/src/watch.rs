//! The thread that asks for a reload when files of the content change.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use glob::Pattern;
use notify::event::{CreateKind, RemoveKind};
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
    /// Other files may be content now.
    Content(Vec<Watched>),
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
        let reloaded = messages.clone();
        // An error means that the server stops.
        requests.tell_watched(move |watched| drop(reloaded.send(Message::Content(watched))));
        let work = move || {
            // The watcher's own thread inherits the limits of this one.
            match Watching::start(watched, sender) {
                Ok(mut watching) => {
                    ask_for_reloads(&inbox, &requests, |content| watching.go_on(content));
                }
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

/// The watch over the content.
struct Watching {
    watched: Vec<Watched>,
    watcher: RecommendedWatcher,
    /// The folders that are watched with everything below them.
    trees: Vec<PathBuf>,
    messages: Sender<Message>,
}

impl Watching {
    fn start(watched: Vec<Watched>, messages: Sender<Message>) -> notify::Result<Self> {
        let (watcher, trees) = watch(&watched, messages.clone())?;
        Ok(Self {
            watched,
            watcher,
            trees,
            messages,
        })
    }

    /// Watches other content, if `content` has other files. Without `content`, watches the folders at
    /// the same paths again.
    fn go_on(&mut self, content: Option<Vec<Watched>>) {
        let Some(content) = content else {
            return watch_again(&mut self.watcher, &self.trees);
        };
        if content == self.watched {
            return;
        }
        // The earlier watch ends after the start of the new one, so that no change is missed.
        match Self::start(content, self.messages.clone()) {
            Ok(next) => *self = next,
            Err(error) => tracing::warn!(
                "--watch: files that are new in the content are not seen: {error}; SIGHUP still reads \
                 them"
            ),
        }
    }
}

/// Sends a message for each change, as long as the returned watcher exists. Also returns the folders
/// that are watched with everything below them.
fn watch(
    watched: &[Watched],
    messages: Sender<Message>,
) -> notify::Result<(RecommendedWatcher, Vec<PathBuf>)> {
    let content = Content::of(watched);
    let folders: Vec<_> = content.folders.keys().cloned().collect();
    let trees: Vec<_> = content.trees.iter().map(|one| one.0.clone()).collect();
    let tell = move |event: notify::Result<Event>| {
        let message = match event {
            Ok(event) if !is_change(&event) || !content.may_have_changed(&event) => return,
            Ok(_) => Message::Changed,
            Err(error) => Message::Blind(error),
        };
        // An error means that the server stops.
        let _ = messages.send(message);
    };
    let mut watcher = notify::recommended_watcher(tell)?;
    for folder in folders {
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
            let folder = folder.display();
            tracing::warn!(
                "--watch: new files in {folder} are not seen: {error}; SIGHUP still reads them"
            );
        }
    }
    for tree in &trees {
        watcher.watch(tree, RecursiveMode::Recursive)?;
    }
    Ok((watcher, trees))
}

/// Watches the folders at these paths, because other folders may have taken the places of the earlier
/// ones.
fn watch_again(watcher: &mut RecommendedWatcher, trees: &[PathBuf]) {
    for tree in trees {
        // An error means that the earlier folder is gone.
        let _ = watcher.unwatch(tree);
        if let Err(error) = watcher.watch(tree, RecursiveMode::Recursive) {
            let tree = tree.display();
            tracing::warn!("--watch: changes below {tree} are not seen for now: {error}");
        }
    }
}

/// Which files are content. Other files in the same folders are not: logs, for example, to which the
/// server itself writes.
#[derive(Debug, Default)]
struct Content {
    folders: HashMap<PathBuf, Names>,
    /// The folders with everything below them, or only with the names that match.
    trees: Vec<(PathBuf, Option<Pattern>)>,
}

/// Names of files in a folder.
#[derive(Debug, Default)]
struct Names {
    names: HashSet<OsString>,
    patterns: Vec<Pattern>,
}

impl Content {
    /// Returns the content that `watched` names. All its paths are absolute, as in events.
    fn of(watched: &[Watched]) -> Self {
        let mut content = Self::default();
        for one in watched {
            match one {
                Watched::Entry(path) => {
                    let path = absolute(path);
                    let (folder, name) = (path.parent(), path.file_name());
                    let folder = folder.unwrap_or(&path);
                    let names = content.folders.entry(folder.to_owned()).or_default();
                    names.names.extend(name.map(OsString::from));
                }
                Watched::Matching {
                    folder,
                    names,
                    below: false,
                } => {
                    let of_folder = content.folders.entry(absolute(folder)).or_default();
                    of_folder.patterns.push(names.clone());
                }
                Watched::Matching { folder, names, .. } => {
                    content.trees.push((absolute(folder), Some(names.clone())));
                }
                Watched::Tree(path) => content.trees.push((absolute(path), None)),
            }
        }
        content
    }

    /// Returns true if an event is about the content, or may be.
    fn may_have_changed(&self, event: &Event) -> bool {
        let is_folder = matches!(
            event.kind,
            EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder)
        );
        let mut paths = event.paths.iter();
        event.need_rescan() || paths.any(|path| self.has(path, is_folder))
    }

    fn has(&self, path: &Path, is_folder: bool) -> bool {
        let leads_on = || path.is_symlink() || is_folder || path.is_dir();
        let in_tree = |(tree, names): &(PathBuf, Option<Pattern>)| {
            let matches = |names: &Pattern| is_match(names, path) || leads_on();
            path.starts_with(tree) && names.as_ref().is_none_or(matches)
        };
        let in_folder = |names: &Names| {
            let is_named = path
                .file_name()
                .is_some_and(|name| names.names.contains(name));
            is_named || names.patterns.iter().any(|one| is_match(one, path)) || path.is_symlink()
        };
        let folder = path.parent().and_then(|folder| self.folders.get(folder));
        folder.is_some_and(in_folder)
            || self.folders.contains_key(path)
            || self.trees.iter().any(in_tree)
    }
}

/// Returns the absolute form of a path. An empty path is the current folder.
fn absolute(path: &Path) -> PathBuf {
    let path = Path::new(".").join(path);
    std::path::absolute(&path).unwrap_or(path)
}

fn is_match(names: &Pattern, path: &Path) -> bool {
    let name = path.file_name().map(Path::new);
    name.is_some_and(|name| names.matches_path(name))
}

/// Returns true if the content may be another one after the event. Reading it causes events, too.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) => true,
        // The kernel has left out events.
        _ => event.need_rescan(),
    }
}

/// Asks for a reload when changes have settled for a moment, until the server stops. Before that, calls
/// `go_on` without content, so that no change after the reload is missed. Also calls it when a reload
/// has told which files are content.
fn ask_for_reloads(
    inbox: &Receiver<Message>,
    requests: &Requests,
    mut go_on: impl FnMut(Option<Vec<Watched>>),
) {
    loop {
        match inbox.recv() {
            Ok(Message::Changed) => {}
            Ok(Message::Content(watched)) => {
                go_on(Some(watched));
                continue;
            }
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
                Ok(Message::Content(watched)) => go_on(Some(watched)),
                Err(RecvTimeoutError::Timeout) => break,
                Ok(_) if left.is_zero() => break,
                Ok(_) => {}
            }
        }
        go_on(None);
        // Nobody says when an edit of the options is finished.
        requests.request(false);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    #[test]
    fn only_changes_of_the_content_count() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("web")).unwrap();
        fs::write(at("server.log"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", at("..data")).unwrap();
        let matching = |below| Watched::Matching {
            folder: folder.path().to_owned(),
            names: Pattern::new("*.zone").unwrap(),
            below,
        };
        let created = |watched: &[Watched], path: PathBuf| {
            let kind = EventKind::Create(CreateKind::File);
            Content::of(watched).may_have_changed(&Event::new(kind).add_path(path))
        };
        let web = [Watched::Tree(at("web")), Watched::Entry(at("web"))];
        assert!(created(&web, at("web")) && created(&web, at("web/new")));
        let zone = [Watched::Entry(at("a.zone"))];
        assert!(created(&zone, at("a.zone")) && !created(&zone, at("b.zone")));
        assert!(created(&[matching(false)], at("b.zone")));
        assert!(!created(&[matching(false)], at("below/b.zone")));
        assert!(created(&[matching(true)], at("below/b.zone")));
        for watched in [&web[..], &zone, &[matching(false)], &[matching(true)]] {
            assert!(!created(watched, at("server.log")), "{watched:?}");
            assert!(created(watched, at("..data")), "{watched:?}");
        }
        let lost = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert!(Content::of(&zone).may_have_changed(&lost));
    }

    #[test]
    fn relative_paths_are_those_of_events() {
        let content = Content::of(&[
            Watched::Tree("www/".into()),
            Watched::Entry("./zones/a.zone".into()),
            Watched::Matching {
                folder: "".into(),
                names: Pattern::new("*.zone").unwrap(),
                below: false,
            },
        ]);
        let here = std::env::current_dir().unwrap();
        for (path, is_content) in [
            ("www/a", true),
            ("zones/a.zone", true),
            ("zones/b.zone", false),
            ("b.zone", true),
            ("b", false),
        ] {
            assert_eq!(content.has(&here.join(path), false), is_content, "{path}");
        }
    }

    #[test]
    fn a_burst_of_changes_causes_one_reload_and_reading_causes_none() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("old"), "1").unwrap();
        let requests = Requests::for_tests();
        let (messages, inbox) = channel();
        let watched = [Watched::Tree(folder.path().to_owned())];
        let (watcher, _) = watch(&watched, messages.clone()).unwrap();
        fs::read(below.join("old")).unwrap();
        thread::scope(|scope| {
            let asked = &requests;
            scope.spawn(move || ask_for_reloads(&inbox, asked, |_| ()));
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

    #[test]
    fn a_folder_that_takes_the_place_of_another_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let [web, next, old] = ["web", "next", "old"].map(|name| folder.path().join(name));
        for folder in [&web, &next] {
            fs::create_dir(folder).unwrap();
        }
        let (messages, inbox) = channel();
        let watched = [Watched::Tree(web.clone()), Watched::Entry(web.clone())];
        let (mut watcher, trees) = watch(&watched, messages).unwrap();
        let more_changes = || {
            let next = || inbox.recv_timeout(SETTLED).ok();
            std::iter::from_fn(next).count()
        };
        let has_changed = || {
            let is_told = inbox.recv_timeout(Duration::from_mins(1)).is_ok();
            more_changes();
            is_told
        };
        fs::rename(&web, &old).unwrap();
        fs::rename(&next, &web).unwrap();
        // The folders are watched again when no more changes arrive.
        assert!(has_changed());
        watch_again(&mut watcher, &trees);
        fs::write(web.join("new"), "new").unwrap();
        assert!(has_changed(), "the new folder");
        fs::write(old.join("new"), "new").unwrap();
        assert_eq!(more_changes(), 0, "the old folder");
    }

    #[test]
    fn files_that_are_new_in_the_content_are_watched_and_others_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        for folder in [&old, &new] {
            fs::create_dir(folder).unwrap();
        }
        let file = |folder: &Path| vec![Watched::Entry(folder.join("a.zone"))];
        let (messages, inbox) = channel();
        let mut watching = Watching::start(file(&old), messages).unwrap();
        let changes = |folder: &Path| {
            fs::write(folder.join("a.zone"), "new").unwrap();
            let next = || inbox.recv_timeout(SETTLED).ok();
            std::iter::from_fn(next).count()
        };
        assert_eq!((changes(&old) > 0, changes(&new)), (true, 0));
        watching.go_on(Some(file(&new)));
        assert_eq!((changes(&old), changes(&new) > 0), (0, true));
    }
}
