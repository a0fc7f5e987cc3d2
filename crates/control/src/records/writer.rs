//! The thread that writes the logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

use super::log::{Buffers, RecordLog};
use crate::confined::Confined;
use crate::error::Error;
use crate::privileges::{Kind, Privileges};

/// Shortest and longest pause of the thread while no records arrive.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// Maximum time at the end until all lines are written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The control thread's side of the thread that writes the logs.
pub(crate) struct Writer {
    is_reopening: Arc<AtomicBool>,
    thread: Confined,
    /// The thread ends when this is dropped.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Writer {
    /// Starts the thread, which first drops its privileges, except writing its files. Returns `None`
    /// if there is no log.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        name: &str,
        logs: Vec<&'env RecordLog>,
        privileges: &'env Privileges,
    ) -> Result<Option<Self>, Error> {
        if logs.is_empty() {
            return Ok(None);
        }
        let is_reopening = Arc::new(AtomicBool::new(false));
        let ((stop, stopped), (end, ended)) = (channel(), channel());
        let reopening = Arc::clone(&is_reopening);
        if let Some(user) = privileges.new_user() {
            for log in &logs {
                log.give_to(user);
            }
        }
        let work = move || {
            write(&logs, &reopening, &stopped);
            drop(end);
        };
        let name = format!("{name}-log");
        let thread = Confined::start(scope, name, Kind::Log, privileges, work)?;
        Ok(Some(Self {
            is_reopening,
            thread,
            stop: Some(stop),
            ended,
        }))
    }

    /// Returns the thread.
    pub(crate) fn thread(&self) -> &Confined {
        &self.thread
    }

    /// Makes the thread open its files again.
    pub(crate) fn reopen(&self) {
        self.is_reopening.store(true, Ordering::Relaxed);
    }

    /// Lets the thread write what has arrived, and end. Returns `false` if a reader of the log is
    /// stuck, so that the thread cannot end.
    pub(crate) fn finish(&mut self) -> bool {
        self.stop = None;
        self.ended.recv_timeout(LAST_LINES) != Err(RecvTimeoutError::Timeout)
    }
}

fn write(logs: &[&RecordLog], is_reopening: &AtomicBool, stopped: &Receiver<()>) {
    let mut buffers = Buffers::default();
    let mut pause = PAUSES[0];
    loop {
        // The order matters: what was sent before the stop is written.
        let is_last = stopped.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Disconnected);
        if is_reopening.swap(false, Ordering::Relaxed) {
            for log in logs {
                log.reopen();
            }
        }
        let mut has_written = false;
        for log in logs {
            has_written |= log.write(&mut buffers);
        }
        if has_written {
            pause = PAUSES[0];
        } else if is_last {
            return;
        } else {
            // Ends early when the server stops.
            let _ = stopped.recv_timeout(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
    }
}
