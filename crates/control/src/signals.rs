//! Handles the signals that stop the server, the one that reloads its content, and those that only
//! cause a log line.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A second stop signal within this time counts as the same request, because supervisors and
/// terminals often send two signals together.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Signals that would kill the process by default, but must not. SIGPIPE needs no handler, because
/// Rust's runtime makes the process ignore it.
pub(crate) struct Harmless {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    /// Whether SIGINT and SIGTERM end the process at once, if they have no such default effect.
    is_loading: Arc<AtomicBool>,
}

impl Harmless {
    /// Waits for SIGHUP or SIGUSR1. Logs that SIGUSR2 has no effect.
    async fn next(&mut self) -> Request {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => return Request::Reload,
                _ = self.user1.recv() => return Request::ReopenLogs,
                _ = self.user2.recv() => tracing::info!("SIGUSR2 has no effect"),
            }
        }
    }
}

/// Creates a runtime for the calling thread, and catches SIGHUP, SIGUSR1 and SIGUSR2. SIGINT and SIGTERM
/// end the process, also if it is the first one of a container. The kernel would ignore them there.
pub(crate) fn catch_harmless() -> io::Result<(Runtime, Harmless)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let harmless = Harmless {
        hangup: signal(SignalKind::hangup())?,
        user1: signal(SignalKind::user_defined1())?,
        user2: signal(SignalKind::user_defined2())?,
        is_loading: Arc::new(AtomicBool::new(true)),
    };
    drop(inside);
    if std::process::id() == 1 {
        for signal in [SIGINT, SIGTERM] {
            // This is the status that a shell shows for the default effect.
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&harmless.is_loading))?;
        }
    }
    Ok((runtime, harmless))
}

/// A request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Stop(Stop),
    /// Read the content again (SIGHUP).
    Reload,
    /// Open the files of the logs again (SIGUSR1).
    ReopenLogs,
}

/// The meaning of a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Close all connections, then end the process.
    Gracefully,
    /// End the process immediately, because a second signal arrived.
    AtOnce,
}

/// Distinguishes the first stop signal from later ones.
#[derive(Debug, Default)]
struct StopSignals {
    first: Option<Instant>,
}

impl StopSignals {
    /// Returns the meaning of a stop signal at `now`, or `None` if the signal only repeats the
    /// first one.
    fn receive(&mut self, now: Instant) -> Option<Stop> {
        match self.first {
            None => {
                self.first = Some(now);
                Some(Stop::Gracefully)
            }
            Some(first) if now.duration_since(first) < SAME_REQUEST => None,
            Some(_) => Some(Stop::AtOnce),
        }
    }
}

/// All signals that the server catches.
pub(crate) struct Signals {
    harmless: Harmless,
    interrupt: Signal,
    terminate: Signal,
    stops: StopSignals,
}

impl Signals {
    /// Also catches SIGINT and SIGTERM. From now on, these signals do not kill the process, but are
    /// returned by [`next`](Self::next) as stop requests.
    pub(crate) fn catch_all(runtime: &Runtime, harmless: Harmless) -> io::Result<Self> {
        let _inside = runtime.enter();
        let signals = Self {
            harmless,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            stops: StopSignals::default(),
        };
        signals.harmless.is_loading.store(false, Ordering::SeqCst);
        Ok(signals)
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Request {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                request = self.harmless.next() => return request,
            }
            if let Some(stop) = self.stops.receive(Instant::now()) {
                return Request::Stop(stop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_stop_signals_are_ignored_for_one_second() {
        let start = Instant::now();
        let mut stops = StopSignals::default();
        let mut at = |millis| stops.receive(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(Stop::Gracefully));
        assert_eq!(at(0), None);
        assert_eq!(at(999), None);
        assert_eq!(at(1_000), Some(Stop::AtOnce));
        assert_eq!(at(1_001), Some(Stop::AtOnce));
    }
}
