//! A thread beside the workers, which drops its privileges before it works.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Builder, Scope};

use crate::error::Error;
use crate::privileges::{Dropped, Kind, Privileges};
use crate::system;

/// Warns of content that a server with these privileges cannot read again, as its reload thread does. A thread
/// of its own drops the privileges for that.
///
/// # Errors
/// If the system refuses the thread, or if it cannot drop the privileges.
pub(crate) fn look_at_files(program: &str, privileges: &Privileges) -> Result<(), Error> {
    thread::scope(|scope| {
        let (name, kind) = (format!("{program}-look"), privileges.reload_kind());
        let thread = Confined::start(scope, name, kind, privileges, || {})?;
        thread.dropped()?;
        Ok(())
    })
}

/// The control thread's side of a thread that drops its privileges before it works.
#[derive(Debug)]
pub(crate) struct Confined(Receiver<Result<Dropped, Error>>);

impl Confined {
    /// Starts a thread of this `kind`. It drops its privileges, and then does `work`.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        name: String,
        kind: Kind,
        privileges: &'env Privileges,
        work: impl FnOnce() + Send + 'scope,
    ) -> Result<Self, Error> {
        let (tell, dropped) = channel();
        let confined = move || {
            if matches!(kind, Kind::Reload | Kind::StoringReload | Kind::Exchange) {
                system::give_way();
            }
            let outcome = privileges.drop_all(kind);
            let dropped = outcome.as_ref().ok().cloned();
            if tell.send(outcome).is_ok()
                && let Some(dropped) = dropped
            {
                // The start does not wait for a look at so many files.
                privileges.warn_of_unreadable(kind, &dropped);
                work();
            }
        };
        Builder::new()
            .name(name)
            .spawn_scoped(scope, confined)
            .map_err(Error::system("starting a thread beside the workers"))?;
        Ok(Self(dropped))
    }

    /// Waits until the thread has dropped its privileges.
    ///
    /// # Errors
    /// If it cannot drop them.
    pub(crate) fn dropped(&self) -> Result<Dropped, Error> {
        self.0.recv().unwrap_or_else(|_| {
            Err(Error::System {
                what: "waiting for a thread beside the workers",
                source: std::io::ErrorKind::BrokenPipe.into(),
            })
        })
    }
}
