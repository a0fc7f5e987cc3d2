//! What the control thread asks of a worker that serves.
//!
//! A question arrives in a mailbox with the worker's bell, so a worker that is not asked does
//! nothing for it. The answers travel through channels that the control thread has made.

use tokio::sync::oneshot;

use crate::table::walk::Walk;
use crate::trace::capture::Capture;

/// Maximum number of questions that wait for one worker. The control thread asks only one at a time.
pub(crate) const MAX_WAITING: usize = 4;

/// A question to a worker.
#[derive(Debug)]
pub(crate) enum Question {
    /// Continue this walk by one slice, and send it back.
    Walk(Box<Walk>, oneshot::Sender<Box<Walk>>),
    /// Copy the packets that this value is about, until the trace is stopped. The reply confirms
    /// the start.
    StartTrace(Box<Capture>, oneshot::Sender<()>),
    /// Stop the trace, and send back its value, if there is a trace.
    StopTrace(oneshot::Sender<Option<Box<Capture>>>),
}
