//! The threads that write the logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::log::{Buffers, RecordLog};
use crate::confined::Confined;
use crate::error::Error;
use crate::privileges::{Kind, Privileges};

/// Shortest and longest pause of a thread while no records arrive.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// Maximum time at the end until all lines are written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The control thread's side of the threads that write the logs. Each log has a thread of its own, so
/// a log whose reader is stuck holds up no other log.
pub(crate) struct Writers<'a>(Vec<Writer<'a>>);

impl<'a> Writers<'a> {
    /// Starts a thread for each log. The threads first drop their privileges, except writing their
    /// files.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        name: &str,
        logs: Vec<&'a RecordLog>,
        privileges: &'a Privileges,
    ) -> Result<Self, Error> {
        let writers = logs
            .into_iter()
            .map(|log| Writer::start(scope, name, log, privileges));
        Ok(Self(writers.collect::<Result<_, _>>()?))
    }

    /// Returns the threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Confined> {
        self.0.iter().map(|writer| &writer.thread)
    }

    /// Makes the threads open their files again.
    pub(crate) fn reopen(&self) {
        if self.0.is_empty() {
            tracing::info!("SIGUSR1 has no effect, because there is no log");
        }
        for writer in &self.0 {
            writer.is_reopening.store(true, Ordering::Relaxed);
        }
    }

    /// Lets the threads write what has arrived, and end. Returns `false` if the reader of a log is
    /// stuck, so that its thread cannot end. Also returns lines for the summary about what is lost, each
    /// a label and a value.
    pub(crate) fn finish(&mut self) -> (bool, Vec<(&'static str, String)>) {
        for writer in &mut self.0 {
            writer.stop = None;
        }
        let end = Instant::now() + LAST_LINES;
        let has_ended = |writer: &Writer<'_>| {
            let left = end.saturating_duration_since(Instant::now());
            writer.ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout)
        };
        let have_ended = self.0.iter().all(has_ended);
        let lost: Vec<_> = self
            .0
            .iter()
            .filter_map(|writer| writer.log.give_up())
            .collect();
        for (name, line) in &lost {
            tracing::warn!("{name}: {line}");
        }
        (have_ended, lost)
    }
}

/// The control thread's side of the thread that writes one log.
struct Writer<'a> {
    log: &'a RecordLog,
    is_reopening: Arc<AtomicBool>,
    thread: Confined,
    /// The thread ends when this is dropped.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl<'a> Writer<'a> {
    fn start<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        name: &str,
        log: &'a RecordLog,
        privileges: &'a Privileges,
    ) -> Result<Self, Error> {
        let is_reopening = Arc::new(AtomicBool::new(false));
        let ((stop, stopped), (end, ended)) = (channel(), channel());
        let reopening = Arc::clone(&is_reopening);
        if let Some(user) = privileges.new_user() {
            log.give_to(user);
        }
        let work = move || {
            write(log, &reopening, &stopped);
            drop(end);
        };
        let kind = if log.connects() {
            Kind::ConnectingLog
        } else {
            Kind::Log
        };
        let thread = Confined::start(scope, format!("{name}-log"), kind, privileges, work)?;
        Ok(Self {
            log,
            is_reopening,
            thread,
            stop: Some(stop),
            ended,
        })
    }
}

fn write(log: &RecordLog, is_reopening: &AtomicBool, stopped: &Receiver<()>) {
    let mut buffers = Buffers::default();
    let mut pause = PAUSES[0];
    loop {
        // The order matters: what was sent before the stop is written.
        let is_last = stopped.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Disconnected);
        if is_reopening.swap(false, Ordering::Relaxed) {
            log.reopen();
        }
        if log.write(&mut buffers) {
            pause = PAUSES[0];
        } else if is_last {
            log.finish();
            return;
        } else {
            // Ends early when the server stops.
            let _ = stopped.recv_timeout(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
    }
}
