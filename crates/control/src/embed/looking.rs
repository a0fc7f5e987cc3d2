//! The list of connections and the traces of an embedded server.

use std::io::{self, Write};

use tokio::sync::TryAcquireError;

use super::answer::Taker;
use crate::error::Error;
use crate::table::line::{ConnectionStatus, Line, ListSummary};
use crate::table::list::ListPart;
use crate::trace::session::{TracePart, TraceSummary};

/// The TCP connections of a server, from [`Handle::connections`](super::Handle::connections).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionList {
    /// The connections that match, up to the limit.
    pub connections: Vec<ConnectionStatus>,
    /// The number of all connections, and what is missing in the list.
    pub summary: ListSummary,
}

impl Taker for ConnectionList {
    type Part = ListPart;
    type Output = Self;
    type Error = Error;

    fn take(&mut self, part: ListPart) -> Result<(), Error> {
        for line in part.into_lines() {
            match line {
                Line::Connection(connection) => self.connections.push(*connection),
                Line::End { summary } => self.summary = summary,
            }
        }
        Ok(())
    }

    fn finish(self) -> Self {
        self
    }
}

/// Why a trace has no complete capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Another trace of the same server is running.
    #[error(
        "another trace of this server is running; wait for its end, or call Handle::stop_trace"
    )]
    Running,
    /// The server has ended.
    #[error("the server has ended, so it has no packets to trace; start it again")]
    Ended,
    /// The capture cannot be written.
    #[error("the capture of the trace cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The system refuses a thread, or a thread of the trace has panicked.
    #[error(transparent)]
    Thread(#[from] Error),
}

impl From<TryAcquireError> for TraceError {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::NoPermits => Self::Running,
            TryAcquireError::Closed => Self::Ended,
        }
    }
}

/// Writes a trace.
pub(super) struct TraceWriter<W> {
    out: W,
    summary: TraceSummary,
}

impl<W: Write> TraceWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            summary: TraceSummary::default(),
        }
    }
}

impl<W: Write> Taker for TraceWriter<W> {
    type Part = TracePart;
    type Output = (TraceSummary, W);
    type Error = TraceError;

    fn take(&mut self, part: TracePart) -> Result<(), TraceError> {
        match part {
            TracePart::Bytes(bytes) => self
                .out
                .write_all(&bytes)
                .and_then(|()| self.out.flush())
                .map_err(TraceError::Write),
            TracePart::End(summary) => {
                self.summary = summary;
                Ok(())
            }
        }
    }

    fn finish(self) -> (TraceSummary, W) {
        (self.summary, self.out)
    }
}
