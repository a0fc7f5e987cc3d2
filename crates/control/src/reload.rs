//! The thread that reloads the content.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};

use crate::error::Error;
use crate::privileges::{Dropped, Kind, Privileges};
use crate::program::{Program, StartError};
use crate::report::{self, Block};
use crate::supervisor::Supervisor;

/// The control thread's side of the reload thread, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Reloader<'a> {
    requests: SyncSender<()>,
    dropped: Receiver<Result<Dropped, Error>>,
    is_busy: &'a AtomicBool,
}

impl<'a> Reloader<'a> {
    /// Starts the thread, which first drops its privileges, except reading the content.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start<'scope, P: Program>(
        scope: &'scope Scope<'scope, '_>,
        program: &'a P,
        privileges: &'a Privileges,
        supervisor: &'a Supervisor,
        is_busy: &'a AtomicBool,
    ) -> Result<Self, Error>
    where
        'a: 'scope,
    {
        // One request can wait while another one is served. Further ones would change nothing.
        let (requests, inbox) = sync_channel::<()>(1);
        let (tell, dropped) = sync_channel(1);
        let work = move || {
            let outcome = privileges.drop_all(Kind::Reload);
            let failed = outcome.is_err();
            if tell.send(outcome).is_err() || failed {
                return;
            }
            for () in inbox {
                is_busy.store(true, Ordering::Relaxed);
                supervisor.reloading();
                let failed = reload(program).err();
                supervisor.reloaded(failed.as_ref().map(|error| error as &dyn Display));
                is_busy.store(false, Ordering::Relaxed);
            }
        };
        Builder::new()
            .name(format!("{}-load", P::NAME))
            .spawn_scoped(scope, work)
            .map_err(Error::system("starting the reload thread"))?;
        Ok(Self {
            requests,
            dropped,
            is_busy,
        })
    }

    /// Waits until the thread has dropped its privileges.
    ///
    /// # Errors
    /// If it cannot drop them.
    pub(crate) fn dropped(&self) -> Result<Dropped, Error> {
        self.dropped.recv().unwrap_or_else(|_| {
            Err(Error::System {
                what: "waiting for the reload thread",
                source: std::io::ErrorKind::BrokenPipe.into(),
            })
        })
    }

    /// Asks for a reload. If one is running, another one follows.
    pub(crate) fn request(&self) {
        // A full channel has a request already.
        let _ = self.requests.try_send(());
    }

    /// Returns true while content is reloaded.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }
}

/// Reloads the content, and reports the outcome to the operator.
fn reload<P: Program>(program: &P) -> Result<(), StartError> {
    let start = Instant::now();
    let what = program.reload().inspect_err(|error| {
        tracing::error!("not reloaded, the old content stays: {error}");
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut block = Block::default();
    let line = format!("in {seconds:.2} s, {what}{}", memory_peak());
    block.line("reloaded", line);
    block.print();
    Ok(())
}

/// Describes the most memory that the process has had, if the system tells.
fn memory_peak() -> String {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return String::new();
    };
    // Linux and FreeBSD report units of 1,024 bytes.
    let bytes = u64::try_from(usage.max_rss()).unwrap_or_default() * 1_024;
    format!("; memory peak so far {}", report::bytes(bytes))
}
