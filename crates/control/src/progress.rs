//! Shows how far a load of content is, if it takes longer than a second.
//!
//! The loading thread describes its progress only when it is asked to, so a load is not slower for
//! it. Another thread asks and shows: a spinner on a terminal, or else a line in the log every few
//! seconds.

mod screen;

use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::screen::Screen;
use crate::log;

/// Time after which a load shows its progress.
const DELAY: Duration = Duration::from_secs(1);
/// Interval between two lines in the log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two calls of [`tick`] while something is loaded.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Interval at which the control thread looks whether something is loaded.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The progress of this process. Like the log, it belongs to the whole process.
static BOARD: Board = Board::new();

/// Says how far the load of this process is, such as `12 files, 3.0 MB`. A program calls it often
/// while it loads. `describe` is called at most ten times a second, and never for a short load.
pub fn say(describe: impl FnOnce() -> String) {
    BOARD.say(describe);
}

/// Where progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShowOn {
    /// A spinner if standard error is a terminal, and else the log.
    Terminal,
    /// The log. A thread in the sandbox cannot ask a terminal for its size.
    Log,
}

/// A load that is under way. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Loading(());

impl Loading {
    /// Begins a load. `what` is a word for it, such as `loading`.
    pub(crate) fn begin(what: &'static str, on: ShowOn) -> Self {
        let has_spinner = on == ShowOn::Terminal && stderr().is_terminal();
        BOARD.begin(Shown::new(what, has_spinner, Instant::now()));
        Self(())
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        BOARD.end();
    }
}

/// Shows the progress of the load that is under way, if it is time. Returns whether there is one.
pub(crate) fn tick(now: Instant) -> bool {
    let (is_loading, line) = BOARD.tick(now);
    if let Some(line) = line {
        log::note(&line);
    }
    is_loading
}

/// Shows the progress of loads while the future is polled.
pub(crate) async fn keep_showing() -> std::convert::Infallible {
    loop {
        let is_loading = tick(Instant::now());
        tokio::time::sleep(if is_loading { TICK } else { LOOK_INTERVAL }).await;
    }
}

/// What the loading thread and the showing thread share.
#[derive(Debug)]
struct Board {
    /// The load that is under way.
    current: Mutex<Option<Shown>>,
    /// How far the load is, in its own words.
    text: Mutex<String>,
    /// Whether the text is old.
    is_wanted: AtomicBool,
}

impl Board {
    const fn new() -> Self {
        Self {
            current: Mutex::new(None),
            text: Mutex::new(String::new()),
            is_wanted: AtomicBool::new(false),
        }
    }

    fn begin(&self, shown: Shown) {
        locked(&self.text).clear();
        *locked(&self.current) = Some(shown);
    }

    fn end(&self) {
        let mut current = locked(&self.current);
        // Dropping the old value clears the spinner.
        *current = None;
        self.is_wanted.store(false, Ordering::Relaxed);
    }

    fn say(&self, describe: impl FnOnce() -> String) {
        let is_wanted = &self.is_wanted;
        if is_wanted.load(Ordering::Relaxed) && is_wanted.swap(false, Ordering::Relaxed) {
            *locked(&self.text) = describe();
        }
    }

    /// Returns whether something is loaded, and the line to log, if there is one.
    fn tick(&self, now: Instant) -> (bool, Option<String>) {
        let mut current = locked(&self.current);
        let Some(shown) = &mut *current else {
            return (false, None);
        };
        let line = shown.tick(&locked(&self.text), now);
        self.is_wanted.store(true, Ordering::Relaxed);
        (true, line)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is shown of a load.
#[derive(Debug)]
struct Shown {
    what: &'static str,
    begun: Instant,
    has_spinner: bool,
    spinner: Option<ProgressBar>,
    /// When the next line is logged.
    next_line: Instant,
}

impl Shown {
    fn new(what: &'static str, has_spinner: bool, now: Instant) -> Self {
        Self {
            what,
            begun: now,
            has_spinner,
            spinner: None,
            next_line: now + DELAY,
        }
    }

    /// Moves the spinner, or returns a line for the log if it is time.
    fn tick(&mut self, text: &str, now: Instant) -> Option<String> {
        let elapsed = now.saturating_duration_since(self.begun);
        if elapsed < DELAY {
            return None;
        }
        let colon = if text.is_empty() { "" } else { ": " };
        let line = format!("{}, {} s{colon}{text}", self.what, elapsed.as_secs());
        if self.has_spinner {
            let spinner = self.spinner.get_or_insert_with(new_spinner);
            log::share_line(true);
            spinner.set_message(line);
            spinner.tick();
            return None;
        }
        if now < self.next_line {
            return None;
        }
        self.next_line = now + LINE_INTERVAL;
        Some(line)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
            log::share_line(false);
        }
    }
}

/// Creates a spinner of one line, which is cut to the terminal's width.
fn new_spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    let target = ProgressDrawTarget::term_like(Box::new(Screen::default()));
    let spinner = ProgressBar::with_draw_target(None, target);
    match style {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks ten times a second for so many seconds. Returns the lines, each with its second.
    fn lines(shown: &mut Shown, text: &str, seconds: u32) -> Vec<(u32, String)> {
        let tick = |n: u32| {
            let now = shown.begun + n * TICK;
            Some((n / 10, shown.tick(text, now)?))
        };
        (0..=10 * seconds).filter_map(tick).collect()
    }

    #[test]
    fn a_long_load_has_a_line_after_a_second_and_then_every_five() {
        let now = Instant::now();
        let mut shown = Shown::new("loading", false, now);
        let line = |second: u32| (second, format!("loading, {second} s: 5 files"));
        let expected = [line(1), line(6), line(11)];
        assert_eq!(lines(&mut shown, "5 files", 12), expected);
        let mut silent = Shown::new("loading", false, now);
        assert_eq!(lines(&mut silent, "", 1), [(1, "loading, 1 s".to_owned())]);
    }

    #[test]
    fn a_short_load_shows_nothing() {
        let now = Instant::now();
        for has_spinner in [false, true] {
            let mut shown = Shown::new("loading", has_spinner, now);
            let end = now + DELAY.saturating_sub(Duration::from_nanos(1));
            assert_eq!(shown.tick("5 files", end), None);
            assert!(shown.spinner.is_none());
        }
    }

    #[test]
    fn a_load_describes_itself_only_when_it_is_asked() {
        let (board, now) = (Board::new(), Instant::now());
        board.say(|| unreachable!("nothing is loaded"));
        assert_eq!(board.tick(now), (false, None));
        board.begin(Shown::new("loading", false, now));
        board.say(|| unreachable!("nobody has asked yet"));
        assert_eq!(board.tick(now), (true, None));
        board.say(|| "5 files".to_owned());
        board.say(|| unreachable!("asked only once"));
        let line = board.tick(now + DELAY);
        assert_eq!(line, (true, Some("loading, 1 s: 5 files".to_owned())));
        board.end();
        board.say(|| unreachable!("the load has ended"));
        assert_eq!(board.tick(now), (false, None));
    }
}
