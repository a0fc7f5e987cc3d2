//! The status of a running server as a page in a terminal, refreshed each second.

mod rates;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::status::Status;
use view::Page;

/// Time between two questions to the server.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest time until the page shows an answer that has come.
const TICK: Duration = Duration::from_millis(100);
/// The signals that end the page.
const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];
/// Number of lines of a long step through the counts.
const LEAP: i32 = 10;

/// Shows the page until the user quits. `first` is the status now, and `ask` asks the server for
/// the next one. If `ask` returns an error, the page shows it and asks again.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn run(
    first: Status,
    mut ask: impl FnMut() -> Result<Status, String> + Send + 'static,
) -> io::Result<()> {
    let (sender, answers) = mpsc::channel();
    // A server that does not answer must not keep the page from quitting. The thread ends with the
    // process, or when nobody receives its answers.
    thread::spawn(move || {
        loop {
            thread::sleep(PERIOD);
            if sender.send(ask()).is_err() {
                return;
            }
        }
    });
    let signal = Arc::new(AtomicUsize::new(0));
    for (index, number) in SIGNALS.into_iter().enumerate() {
        flag::register_usize(number, Arc::clone(&signal), index + 1)?;
    }
    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, Page::new(first), &answers, &signal);
    ratatui::try_restore().and(ended)?;
    let received = signal.load(Ordering::Relaxed).checked_sub(1);
    match received.and_then(|index| SIGNALS.get(index)) {
        None => Ok(()),
        // The terminal is as it was, so the process may end as it would have without the page.
        Some(number) => low_level::emulate_default_handler(*number),
    }
}

/// A key's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Quit,
    Scroll(i32),
}

/// Shows the page until the user quits, or until `signal` is not 0.
fn show(
    terminal: &mut DefaultTerminal,
    mut page: Page,
    answers: &Receiver<Result<Status, String>>,
    signal: &AtomicUsize,
) -> io::Result<()> {
    while signal.load(Ordering::Relaxed) == 0 {
        for answer in answers.try_iter() {
            page.take(answer);
        }
        terminal.draw(|frame| page.draw(frame))?;
        if !event::poll(TICK)? {
            continue;
        }
        // After a change of the terminal's size, the next pass draws everything.
        if let Event::Key(key) = event::read()? {
            match action(key) {
                Some(Action::Quit) => return Ok(()),
                Some(Action::Scroll(lines)) => page.scroll(lines),
                None => {}
            }
        }
    }
    Ok(())
}

fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Action::Quit),
        // In raw mode, the terminal sends no signal.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Action::Quit),
        KeyCode::Down | KeyCode::Char('j') => Some(Action::Scroll(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Action::Scroll(-1)),
        KeyCode::PageDown => Some(Action::Scroll(LEAP)),
        KeyCode::PageUp => Some(Action::Scroll(-LEAP)),
        KeyCode::Home => Some(Action::Scroll(i32::MIN)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_quit_and_scroll() {
        let press = |code, modifiers| action(KeyEvent::new(code, modifiers));
        for (code, expected) in [
            (KeyCode::Char('q'), Some(Action::Quit)),
            (KeyCode::Esc, Some(Action::Quit)),
            (KeyCode::Char('c'), None),
            (KeyCode::Down, Some(Action::Scroll(1))),
            (KeyCode::PageUp, Some(Action::Scroll(-10))),
        ] {
            assert_eq!(press(code, KeyModifiers::NONE), expected, "{code}");
        }
        let interrupt = press(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(interrupt, Some(Action::Quit));
    }
}
