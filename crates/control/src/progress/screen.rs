//! The terminal on which a spinner is drawn.

use std::io::{self, stderr};
use std::mem;
use std::sync::{Mutex, PoisonError};

use indicatif::TermLike;
use rustix::termios::tcgetwinsize;

use crate::log;

/// Width of a terminal that does not tell its own.
const WIDTH: u16 = 80;

/// Standard error, which is a terminal. A drawing is written at once, when it is complete. If the reader of the
/// terminal is stuck, the thread soon goes on.
#[derive(Debug, Default)]
pub(super) struct Screen(Mutex<String>);

impl Screen {
    fn add(&self, text: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += text;
    }

    /// Adds a control function with a number (ECMA-48).
    fn move_cursor(&self, n: usize, function: char) {
        if n > 0 {
            self.add(&format!("\x1b[{n}{function}"));
        }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        let size = tcgetwinsize(stderr()).ok();
        let width = size.map(|size| size.ws_col);
        width.filter(|width| *width > 0).unwrap_or(WIDTH)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D');
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text);
        self.add("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add(log::CLEAR_LINE);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let drawing = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        log::draw(&drawing);
        Ok(())
    }
}
