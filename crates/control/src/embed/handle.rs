//! Access to an embedded server from other threads.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;

use super::answer::{Answer, ask};
use super::looking::{ConnectionList, TraceError, TraceWriter};
use crate::live::Snapshot;
use crate::metrics::{self, MetricsFormat};
use crate::observed::Observed;
use crate::status::Status;
use crate::table::filter::ConnectionFilter;
use crate::table::list::ListRequest;
use crate::trace::session::{TraceRequest, TraceSummary};
use crate::workers::Event;

/// A message to the thread that owns an embedded server.
pub(super) enum Message {
    Worker(Event),
    Stop(Haste),
}

/// How fast a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// After the drain.
    Drain = 1,
    /// Without a drain.
    AtOnce = 2,
}

/// A handle that reads the live counters of an embedded server, lists its connections, traces its
/// clients, and can stop it. All clones refer to the same server.
#[derive(Clone, Debug)]
pub struct Handle {
    stopper: Stopper,
    server: Arc<Observed>,
}

impl Handle {
    pub(super) fn new(stopper: Stopper, server: Arc<Observed>) -> Self {
        Self { stopper, server }
    }

    pub(super) fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop::new(&self.stopper)
    }

    /// Returns the counts of the workers. Each worker publishes its counts between two batches, at
    /// most once in 100 ms, and also while it is idle. A reader does not delay a worker that
    /// serves. After the server has ended, the last counts remain available.
    pub fn snapshot(&self) -> Snapshot {
        self.server.snapshot()
    }

    /// Returns the server's state with all counts, as the command `status` shows it. It can be
    /// written as JSON with `serde`.
    pub fn status(&self) -> Status {
        self.server.status()
    }

    /// Returns all metrics as text, for the answer of your own HTTP server.
    /// [`MetricsFormat::content_type`] is the answer's media type.
    pub fn metrics(&self, format: MetricsFormat) -> String {
        metrics::encode(&self.status(), format)
    }

    /// Lists the TCP connections that match, but at most `limit` of them. A connection in the list takes
    /// about half a kilobyte. The program needs a [`walk`](crate::Program::walk), as [`Tcp`](crate::Tcp)
    /// has it.
    ///
    /// Each worker shows at most 64 places of its tables between two batches of packets, so a long list
    /// does not delay clients. A connection that exists during the whole call is in the list once.
    ///
    /// ```no_run
    /// # async fn list(handle: control::Handle) -> Result<(), Box<dyn std::error::Error>> {
    /// let filter = control::ConnectionFilter::default().with_peer("192.0.2.0/24".parse()?);
    /// let list = handle.connections(filter, 10_000).await?; // Or `wait`, without a runtime.
    /// for connection in &list.connections {
    ///     println!("{} {}", connection.peer, connection.state);
    /// }
    /// println!("{}", list.summary);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// This call starts threads, so a callback in the sandbox must not make it.
    ///
    /// # Errors
    /// The future returns an [`Error`](crate::Error) if the system refuses a thread. A worker that does not answer is
    /// no error, but in [`ListSummary::silent_workers`](crate::ListSummary::silent_workers). After the
    /// server has ended, no worker answers.
    pub fn connections(&self, filter: ConnectionFilter, limit: u64) -> Answer<ConnectionList> {
        let server = Arc::clone(&self.server);
        let request = ListRequest { filter, limit };
        ask(
            self.server.program(),
            ConnectionList::default(),
            move |out| async move {
                server.lister().list(request, out).await;
            },
        )
    }

    /// Writes the packets of one client to `out`, as a capture in the format pcapng. On `AF_XDP`, a
    /// capture on the interface does not show them. The trace ends with its number of packets or its
    /// time, after [`stop_trace`](Self::stop_trace), or with the server. The future then returns the
    /// numbers of packets, and `out`. If the future is dropped, the trace ends too, but the capture may
    /// be incomplete.
    ///
    /// A server has one trace at a time. Each worker copies packets into a ring of 4 MB. If `out` is
    /// slow, packets that find no room in the ring are counted and left out, but still served. A trace
    /// also ends if `out` blocks for a minute. Others can begin then. After the end of a trace, `out` has
    /// a minute for the rest of it. If the capture was cut short, [`TraceSummary::stalled`] is set. The
    /// future completes as soon as `out` returns.
    ///
    /// ```no_run
    /// # fn trace(handle: control::Handle) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let request = control::TraceRequest::of("192.0.2.7".parse()?)
    ///     .with_count(1_000)
    ///     .with_time(Duration::from_secs(60));
    /// let file = std::fs::File::create("client.pcapng")?;
    /// let (summary, _file) = handle.trace(request, file).wait()?; // Or `await`.
    /// println!("{} packets, {} missing", summary.packets, summary.dropped);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// This call starts threads, so a callback in the sandbox must not make it.
    ///
    /// # Errors
    /// The future returns a [`TraceError`] if another trace is running, if the server has ended, or if
    /// `out` fails.
    pub fn trace<W>(&self, request: TraceRequest, out: W) -> Answer<(TraceSummary, W), TraceError>
    where
        W: Write + Send + 'static,
    {
        let place = match self.server.tracer().begin() {
            Ok(place) => place,
            Err(error) => return Answer::failed(error.into()),
        };
        let server = Arc::clone(&self.server);
        ask(
            self.server.program(),
            TraceWriter::new(out),
            move |parts| async move {
                server.tracer().trace(request, place, parts).await;
            },
        )
    }

    /// Ends the trace that is running, as if its time were over. Returns immediately. Returns false if
    /// no trace is running.
    pub fn stop_trace(&self) -> bool {
        self.server.tracer().stop(None)
    }

    /// Begins a graceful shutdown, like SIGTERM with [`serve`](crate::serve). Returns immediately;
    /// the server's future completes when the server has ended. A second call has no effect.
    ///
    /// Open connections may finish for at most [`ServeArgs::drain`](crate::ServeArgs::drain)
    /// seconds, while new ones are refused.
    pub fn stop(&self) {
        self.stopper.stop(Haste::Drain);
    }

    /// Stops without a drain, or ends the drain that [`stop`](Self::stop) has started. All
    /// connections are closed, which takes at most a second. Returns immediately.
    pub fn stop_at_once(&self) {
        self.stopper.stop(Haste::AtOnce);
    }
}

/// Asks the owning thread to stop the server, at most once for each [`Haste`].
#[derive(Clone, Debug)]
pub(super) struct Stopper(Arc<(AtomicU8, Sender<Message>)>);

impl Stopper {
    pub(super) fn new(owner: Sender<Message>) -> Self {
        Self(Arc::new((AtomicU8::new(0), owner)))
    }

    pub(super) fn stop(&self, haste: Haste) {
        let (asked, owner) = &*self.0;
        if asked.fetch_max(haste as u8, Ordering::Relaxed) < haste as u8 {
            // An error means that the owning thread has ended.
            let _ = owner.send(Message::Stop(haste));
        }
    }
}

/// Stops a server when this value, which is a part of the server's future, is dropped.
#[derive(Debug)]
pub(super) struct StopOnDrop(Option<Stopper>);

impl StopOnDrop {
    pub(super) fn new(stopper: &Stopper) -> Self {
        Self(Some(stopper.clone()))
    }

    /// Creates a value that does not stop any server.
    pub(super) fn disarmed() -> Self {
        Self(None)
    }

    /// Lets the server continue when this value is dropped, because another future now owns the
    /// server.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stopper) = &self.0 {
            stopper.stop(Haste::Drain);
        }
    }
}
