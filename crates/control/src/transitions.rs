//! How a running server stops, and how it continues when its interface is removed. The same rules hold
//! for `serve` and for embedded servers.

use crate::follower::Removal;
use crate::observed::Observed;
use crate::status::Phase;
use crate::workers::Workers;

/// Stops the workers. Connections may finish first, unless the server waits for its interface.
pub(crate) fn stop(workers: &mut Workers<'_>, server: &Observed) {
    // Without an interface, no connection can finish.
    if server.phase() == Phase::Waiting {
        workers.stop_at_once();
    } else {
        workers.stop();
    }
    server.note_stopping();
}

/// Handles a removal of the interface, or its return. Returns the phase that begins. Returns `None` if
/// the server is stopping, or ends because of this.
pub(crate) fn handle_removal(
    removal: Removal,
    workers: &mut Workers<'_>,
    server: &Observed,
) -> Option<Phase> {
    if workers.is_stopping() {
        return None;
    }
    match removal {
        Removal::Waits => {
            server.note_waiting();
            Some(Phase::Waiting)
        }
        Removal::GoesOn => {
            server.note_serving_again();
            Some(Phase::Serving)
        }
        Removal::Ends(error) => {
            workers.fail(error);
            None
        }
    }
}
