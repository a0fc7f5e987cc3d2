//! Tells a service manager such as systemd what the server does (`sd_notify(3)`).
//!
//! The socket is connected before privileges are dropped, because a thread in the sandbox cannot
//! create one. Sending needs only `sendto`, which every thread may use.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use nix::time::ClockId;

use crate::live::Published;
use crate::progress::{self, Loading, ShowOn};
use crate::system::socket_address;

/// Maximum time for which a message waits for a service manager that does not read.
const SEND_LIMIT: Duration = Duration::from_millis(100);
/// A worker whose snapshot is older than this is assumed to hang. It publishes ten times a second.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Interval at which a hanging worker is checked again.
const RECHECK: Duration = Duration::from_millis(250);
/// Interval at which the service manager is told that the content is still being loaded.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which each of these messages extends the limit for the start.
const EXTENSION: Duration = Duration::from_secs(30);

/// What the service manager knows about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    /// The workers serve. The text describes the server.
    Serving(String),
    /// The workers have ended, because the interface was removed.
    Waiting,
    Stopping,
}

/// The connection to the service manager. Without a service manager, all methods do nothing.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// If the service manager hears nothing for this time, it restarts the server.
    watchdog: Option<Duration>,
    state: Mutex<State>,
}

impl Supervisor {
    /// Connects to the service manager that started this process, if there is one. Must be called
    /// before privileges are dropped.
    pub(crate) fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(address) = variable("NOTIFY_SOCKET") else {
            return Self::new(None, None);
        };
        let number = |name| variable(name)?.to_str()?.parse().ok();
        let is_meant =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&limit| is_meant && limit > 0);
        let socket = connect(&address)
            .inspect_err(|error| {
                tracing::warn!(
                    "the service manager is not told that the server is ready: NOTIFY_SOCKET={}: \
                     {error}",
                    address.display()
                );
            })
            .ok();
        Self::new(socket, watchdog.map(Duration::from_micros))
    }

    /// Creates a value for a server without a service manager.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::new(None, None)
    }

    fn new(socket: Option<UnixDatagram>, watchdog: Option<Duration>) -> Self {
        Self {
            socket,
            watchdog,
            state: Mutex::new(State::Starting),
        }
    }

    /// Runs `load`. If this takes long, a thread shows its progress. The thread also extends the
    /// service manager's limit for the start again and again. It ends before this method returns.
    pub(crate) fn while_loading<T>(&self, load: impl FnOnce() -> T) -> T {
        let _loading = Loading::begin("loading", ShowOn::Terminal);
        self.send("STATUS=loading the content");
        thread::scope(|scope| {
            let (done, is_done) = sync_channel::<()>(0);
            // Without this thread the server starts as well, if the load does not take too long.
            let _ = Builder::new()
                .name("loading".to_owned())
                .spawn_scoped(scope, move || {
                    let mut extended = Instant::now();
                    while is_done.recv_timeout(progress::TICK) == Err(RecvTimeoutError::Timeout) {
                        let now = Instant::now();
                        progress::tick(now);
                        if now - extended >= EXTENSION_INTERVAL {
                            extended = now;
                            self.send(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
                        }
                    }
                });
            let loaded = load();
            drop(done);
            loaded
        })
    }

    /// Says that all workers serve. `what` is one line that describes the server.
    pub(crate) fn serving(&self, what: String) {
        let mut state = self.state();
        self.send(&format!("READY=1\nSTATUS={}", one_line(&what)));
        *state = State::Serving(what);
    }

    /// Says that the server waits for something. `what` is one line that describes it.
    pub(crate) fn waiting(&self, what: &str) {
        self.send(&format!("STATUS={}", one_line(what)));
        *self.state() = State::Waiting;
    }

    /// Reports the start of a reload, if the server serves.
    pub(crate) fn reloading(&self) {
        if let State::Serving(what) = &*self.state() {
            let now = monotonic().as_micros();
            let what = one_line(what);
            self.send(&format!(
                "RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=reloading; {what}"
            ));
        }
    }

    /// Says that a reload has ended, if the server serves. `error` says why the old content stays.
    pub(crate) fn reloaded(&self, error: Option<&dyn Display>) {
        if let State::Serving(what) = &*self.state() {
            let failed = error.map(|error| format!("; not reloaded: {error}"));
            let status = format!("{what}{}", failed.unwrap_or_default());
            self.send(&format!("READY=1\nSTATUS={}", one_line(&status)));
        }
    }

    /// Says that the server stops.
    pub(crate) fn stopping(&self) {
        let mut state = self.state();
        if *state != State::Stopping {
            *state = State::Stopping;
            self.send("STOPPING=1\nSTATUS=stopping");
        }
    }

    /// While the future is polled, says at half of the watchdog's time that the server is alive.
    /// While the server serves, this is true only if every worker has published its counts lately.
    pub(crate) async fn keep_alive(&self, workers: &[Published]) -> Infallible {
        let Some(limit) = self.watchdog.filter(|_| self.socket.is_some()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(limit / 2).await;
            while !self.is_alive(workers, Instant::now()) {
                tokio::time::sleep(RECHECK.min(limit / 8)).await;
            }
            self.send("WATCHDOG=1");
        }
    }

    fn is_alive(&self, workers: &[Published], now: Instant) -> bool {
        // Before and after it serves, a worker publishes nothing. The service manager has other
        // limits for these times.
        let is_serving = matches!(*self.state(), State::Serving(_));
        let is_fresh =
            |worker: &Published| worker.lock().age_at(now).is_some_and(|age| age < MAX_AGE);
        !is_serving || workers.iter().all(is_fresh)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one message. An error is ignored: the service manager may have restarted, and it
    /// notices by its own limits what it was not told.
    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(message.as_bytes());
        }
    }
}

/// Connects to an address from `NOTIFY_SOCKET`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_LIMIT))?;
    socket.connect_addr(&socket_address(address)?)?;
    Ok(socket)
}

/// Returns the time of `CLOCK_MONOTONIC`. `rustix` would first look for the vDSO by a system call that
/// the sandbox forbids.
fn monotonic() -> Duration {
    let now = ClockId::CLOCK_MONOTONIC.now();
    now.map_or(Duration::ZERO, Duration::from)
}

/// Replaces line breaks, because a line break would begin another assignment.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::SocketAddr;

    use nmio::Times;

    use super::*;
    use crate::program::Counted;

    /// Returns a service manager's socket, and a supervisor that is connected to it.
    fn pair() -> (UnixDatagram, Supervisor) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let socket = connect(path.as_os_str()).unwrap();
        let supervisor = Supervisor::new(Some(socket), Some(Duration::from_millis(20)));
        (manager, supervisor)
    }

    /// Returns the next message, or an empty text if there is none.
    fn next(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let received = manager.recv(&mut bytes).unwrap_or_default();
        String::from_utf8(bytes[..received].to_vec()).unwrap()
    }

    fn publish(worker: &Published) {
        let (port, counted) = (Default::default(), Counted::default());
        worker
            .try_write()
            .unwrap()
            .fill(port, &Times::default(), counted, |_| {});
    }

    #[test]
    fn messages_follow_the_life_of_a_server() {
        let (manager, supervisor) = pair();
        assert_eq!(supervisor.while_loading(|| 5), 5);
        assert_eq!(next(&manager), "STATUS=loading the content");
        // A reload that ends before the server serves must not claim that it is ready.
        supervisor.reloading();
        supervisor.reloaded(None);
        assert_eq!(next(&manager), "");
        supervisor.serving("port 80".to_owned());
        assert_eq!(next(&manager), "READY=1\nSTATUS=port 80");
        supervisor.reloading();
        let message = next(&manager);
        let lines: Vec<_> = message.lines().collect();
        let [first, second, third] = lines[..] else {
            panic!("{message}");
        };
        assert_eq!((first, third), ("RELOADING=1", "STATUS=reloading; port 80"));
        let at = second.strip_prefix("MONOTONIC_USEC=").unwrap();
        let now = monotonic().as_micros();
        assert!((1..=now).contains(&at.parse().unwrap()), "{at} at {now}");
        supervisor.reloaded(Some(&"no folder\nat all"));
        assert_eq!(
            next(&manager),
            "READY=1\nSTATUS=port 80; not reloaded: no folder at all"
        );
        supervisor.reloaded(None);
        assert_eq!(next(&manager), "READY=1\nSTATUS=port 80");
        supervisor.stopping();
        assert_eq!(next(&manager), "STOPPING=1\nSTATUS=stopping");
        supervisor.stopping();
        supervisor.reloaded(None);
        assert_eq!(next(&manager), "");
    }

    #[test]
    fn a_worker_that_hangs_counts_only_while_the_server_serves() {
        let (_manager, supervisor) = pair();
        let workers = [Published::default(), Published::default()];
        let now = Instant::now();
        assert!(supervisor.is_alive(&workers, now), "still starting");
        supervisor.serving(String::new());
        publish(&workers[0]);
        assert!(!supervisor.is_alive(&workers, Instant::now()));
        publish(&workers[1]);
        let now = Instant::now();
        assert!(supervisor.is_alive(&workers, now));
        assert!(!supervisor.is_alive(&workers, now + MAX_AGE));
        supervisor.stopping();
        assert!(supervisor.is_alive(&workers, now + MAX_AGE));
    }

    #[test]
    fn the_watchdog_is_fed_again_when_a_worker_has_recovered() {
        let (manager, supervisor) = pair();
        let workers = [Published::default()];
        supervisor.serving(String::new());
        assert_eq!(next(&manager), "READY=1\nSTATUS=");
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        let silence = Duration::from_millis(100);
        runtime.block_on(async {
            tokio::select! {
                never = supervisor.keep_alive(&workers) => match never {},
                () = tokio::time::sleep(silence) => {}
            }
        });
        assert_eq!(next(&manager), "", "the worker has published nothing yet");
        let message = runtime.block_on(async {
            tokio::select! {
                never = supervisor.keep_alive(&workers) => match never {},
                message = async {
                    loop {
                        publish(&workers[0]);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        let message = next(&manager);
                        if !message.is_empty() {
                            return message;
                        }
                    }
                } => message,
            }
        });
        assert_eq!(message, "WATCHDOG=1");
    }

    #[test]
    fn a_manager_that_does_not_read_does_not_stop_the_server() {
        let (manager, supervisor) = pair();
        // The kernel keeps a bounded number of messages for a reader.
        let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
        let queue: usize = queue.map_or(10, |text| text.trim().parse().unwrap());
        for _ in 0..=queue {
            supervisor.send("STATUS=x");
        }
        supervisor.stopping();
        assert_eq!(next(&manager), "STATUS=x");
        drop(manager);
        supervisor.send("STATUS=nobody hears this");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_address_begins_with_an_at_sign() {
        use std::os::linux::net::SocketAddrExt as _;

        let name = format!("control-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(OsStr::new(&format!("@{name}"))).unwrap();
        Supervisor::new(Some(socket), None).serving("x".to_owned());
        assert_eq!(next(&manager), "READY=1\nSTATUS=x");
        assert!(connect(OsStr::new("/nowhere/notify")).is_err());
    }
}
