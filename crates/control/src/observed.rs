//! A running server as its endpoints see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::interface_state::InterfaceState;
use crate::live::{Published, Snapshot, snapshot};
use crate::program::{ContentList, ContentNames, Program};
use crate::reload::Requests;
use crate::status::{Phase, Reloads, Status};
use crate::table::list::Lister;
use crate::tcp_counts::OPEN;
use crate::trace::session::Tracer;

type ContentLists = Vec<Arc<dyn ContentList>>;

/// What a server tells of itself. All threads may read it.
pub(crate) struct Observed {
    program: &'static str,
    version: &'static str,
    started: Instant,
    phase: Mutex<Phase>,
    facts: OnceLock<Vec<(String, String)>>,
    /// The sockets for the operator, each with whether it can be used.
    endpoints: OnceLock<BTreeMap<String, bool>>,
    interface: Arc<InterfaceState>,
    published: Arc<[Published]>,
    reloads: Option<Requests>,
    lister: Lister,
    tracer: Tracer,
    content_lists: ContentLists,
    /// How often the system's clock was set.
    clock_steps: AtomicU64,
}

/// Leaves out what is long or cannot be shown.
impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Observed");
        shown.field("program", &self.program);
        shown.field("phase", &self.phase()).finish_non_exhaustive()
    }
}

impl Observed {
    /// Creates the view of a server that is starting. `reloads` is `None` if the server cannot
    /// reload its content.
    pub(crate) fn of<P: Program>(
        program: &P,
        published: Arc<[Published]>,
        interface: Arc<InterfaceState>,
        reloads: Option<Requests>,
    ) -> Arc<Self> {
        let content = (program.content_names(), program.content_lists());
        Self::new(
            (P::NAME, P::VERSION),
            published,
            interface,
            reloads,
            content,
        )
    }

    /// Like [`of`](Self::of), with the name and the version of the program, and the names and the
    /// lists of its content.
    pub(crate) fn new(
        (program, version): (&'static str, &'static str),
        published: Arc<[Published]>,
        interface: Arc<InterfaceState>,
        reloads: Option<Requests>,
        (names, content_lists): (Vec<Arc<dyn ContentNames>>, ContentLists),
    ) -> Arc<Self> {
        let lister = Lister::new(Arc::clone(&published), names);
        let tracer = Tracer::new(program, Arc::clone(&published));
        Arc::new(Self {
            program,
            version,
            started: Instant::now(),
            phase: Mutex::default(),
            facts: OnceLock::new(),
            endpoints: OnceLock::new(),
            interface,
            published,
            reloads,
            lister,
            tracer,
            content_lists,
            clock_steps: AtomicU64::new(0),
        })
    }

    /// Notes that the workers serve, and the lines of the start block.
    pub(crate) fn note_serving<'l>(&self, lines: impl Iterator<Item = (&'l str, &'l str)>) {
        let lines = lines.map(|(label, value)| (label.to_owned(), value.to_owned()));
        // The workers begin to serve once.
        let _ = self.facts.set(lines.collect());
        self.set_phase(Phase::Serving);
    }

    /// Notes the sockets for the operator, each with whether it can be used.
    pub(crate) fn note_endpoints(&self, endpoints: impl Iterator<Item = (&'static str, bool)>) {
        let endpoints = endpoints.map(|(name, is_up)| (name.to_owned(), is_up));
        // They are bound once.
        let _ = self.endpoints.set(endpoints.collect());
    }

    /// Notes that the server has been asked to stop.
    pub(crate) fn note_stopping(&self) {
        self.set_phase(Phase::Stopping);
    }

    /// Notes that the server has ended, and ends its traces.
    pub(crate) fn end(&self) {
        self.tracer.end();
        self.set_phase(Phase::Ended);
    }

    /// Notes that the server serves its interface again, if it has waited for it.
    pub(crate) fn note_serving_again(&self) {
        if self.phase() == Phase::Waiting {
            self.set_phase(Phase::Serving);
        }
    }

    /// Notes that the server waits until its interface returns.
    pub(crate) fn note_waiting(&self) {
        self.set_phase(Phase::Waiting);
    }

    /// Counts that the system's clock was set.
    pub(crate) fn count_clock_step(&self) {
        self.clock_steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what the workers have published.
    pub(crate) fn workers(&self) -> &[Published] {
        &self.published
    }

    /// Returns the program's name.
    pub(crate) fn program(&self) -> &'static str {
        self.program
    }

    /// Returns the interface.
    pub(crate) fn interface(&self) -> &InterfaceState {
        &self.interface
    }

    /// Returns true if the program serves TCP.
    pub(crate) fn has_connections(&self) -> bool {
        snapshot(&self.published).tally().of(OPEN).is_some()
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// Returns what the server is doing.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the way to ask for reloads.
    pub(crate) fn reloads(&self) -> Option<&Requests> {
        self.reloads.as_ref()
    }

    /// Returns the way to list connections.
    pub(crate) fn lister(&self) -> &Lister {
        &self.lister
    }

    /// Returns the lists of content.
    pub(crate) fn content_lists(&self) -> &[Arc<dyn ContentList>] {
        &self.content_lists
    }

    /// Returns the way to trace a client.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Returns the numbers of the workers that have not published their counts for `limit`, although
    /// they serve.
    pub(crate) fn stuck_workers(&self, limit: Duration) -> Vec<usize> {
        let snapshot = self.snapshot();
        let workers = snapshot.workers().iter().enumerate();
        let is_stuck = |age: Option<Duration>| age.is_none_or(|age| age > limit);
        let stuck = workers.filter(|(_, worker)| is_stuck(worker.age()));
        stuck.map(|(number, _)| number).collect()
    }

    /// Returns the counts that the workers published last.
    pub(crate) fn snapshot(&self) -> Snapshot {
        snapshot(&self.published)
    }

    /// Returns the server's state.
    pub(crate) fn status(&self) -> Status {
        let reloads = match &self.reloads {
            Some(requests) => requests.history(),
            None => Reloads::default(),
        };
        Status {
            program: self.program.to_owned(),
            version: self.version.to_owned(),
            phase: self.phase(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            clock_steps: self.clock_steps.load(Ordering::Relaxed),
            reloads,
            endpoints: self.endpoints.get().cloned().unwrap_or_default(),
            interface: self.interface.read(),
            facts: self.facts.get().cloned().unwrap_or_default(),
            workers: Status::workers_of(&self.snapshot(), self.program),
        }
    }
}
