//! Tests servers in this process. A test that opens a device needs root, and runs in its own
//! network namespace.

mod echo;
mod looking;
mod returns;

use std::future::Future;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use ip::Transports;
use nix::sched::{CloneFlags, unshare};
use nmio::device::{DeviceError, Transport};
use nmio::{Frame, Port};
use rustix::process::geteuid;
use rustix::thread::gettid;

use super::*;
use crate::Summary;
use crate::program::{StartError, Tally, WorkerContext};

/// Maximum time to wait for a server, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The served port. The test program counts the frames that it receives, and sends no answers.
const PORT: u16 = 7;

/// How the test program fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A worker cannot be prepared.
    Refuses,
    /// A worker panics when it receives its first frame.
    Panics,
}

struct Probe {
    fault: Fault,
    /// Thread ID of the worker.
    thread: Arc<AtomicI32>,
}

struct Counter {
    fault: Fault,
    frames: u64,
}

impl<P: Port> Transports<P> for Counter {
    const INTERCEPTS: bool = true;

    fn serves(&self, _: u8, _: u16) -> bool {
        false
    }
    fn intercept(&mut self, _: &mut P, _: Frame, _: nmio::Instant) -> Option<Frame> {
        assert!(self.fault != Fault::Panics, "as the test asks for");
        self.frames += 1;
        None
    }
}

impl Program for Probe {
    const NAME: &'static str = "probe";
    const VERSION: &'static str = "0";
    const DEFAULT_PORT: u16 = PORT;
    type Transports<P: Port> = Counter;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn transports<P: Port>(&self, _: &mut P, _: &WorkerContext) -> Result<Counter, StartError> {
        if self.fault == Fault::Refuses {
            return Err("as the test asks for".into());
        }
        let thread = gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
        Ok(Counter {
            fault: self.fault,
            frames: 0,
        })
    }

    fn tally<P: Port>(&self, counter: &Counter, tally: &mut Tally) {
        tally.event("frames", counter.frames);
    }
}

/// Returns a thread's user IDs, effective capabilities, seccomp mode and blocked signals.
fn status(thread: i32) -> [String; 4] {
    let path = format!("/proc/self/task/{thread}/status");
    let text = std::fs::read_to_string(path).unwrap();
    ["Uid:", "CapEff:", "Seccomp:", "SigBlk:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().replace('\t', " ")
    })
}

fn probe(fault: Fault) -> Probe {
    Probe {
        fault,
        thread: Arc::default(),
    }
}

fn start(device: &str, fault: Fault) -> Starting {
    embed(ServeArgs::on(device.parse().unwrap()), probe(fault))
}

/// Moves this thread into a new network namespace. Returns `false` if the thread may not do so.
fn enter_namespace() -> bool {
    geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok()
}

/// Returns true if the interface exists in this thread's network namespace.
fn exists(name: &str) -> bool {
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut names = devices.lines().filter_map(|line| line.split_once(':'));
    names.any(|(other, _)| other.trim() == name)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a datagram to the server, so that the server receives at least an ARP request.
fn send_to(server: &Server) {
    let ip = server.listening().addresses[0];
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.send_to(b"x", (ip, PORT)).unwrap();
}

fn frames(handle: &Handle) -> u64 {
    handle.snapshot().tally().of("frames").unwrap()
}

/// Runs `wait` on its own thread, and fails if it takes longer than [`TIMEOUT`].
fn in_time<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = channel();
    let waiting = thread::spawn(move || drop(sender.send(wait())));
    match result.recv_timeout(TIMEOUT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("not within {TIMEOUT:?}: {what}"),
        Err(RecvTimeoutError::Disconnected) => match waiting.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the result was sent"),
        },
    }
}

/// Waits until the server serves, without a runtime.
fn serving(starting: Starting) -> Server {
    in_time("the server serves", || starting.wait()).unwrap()
}

/// Waits for the end of the server, without a runtime.
fn ended(server: Server) -> Result<Summary, Error> {
    in_time("the server ends", || server.wait())
}

/// Waits for a future on a runtime without timers and I/O, to show that the future needs neither.
fn block_on<F>(what: &str, future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    in_time(what, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    })
}

#[test]
fn a_handle_reads_live_counts_and_stops_the_server() {
    if !enter_namespace() {
        return;
    }
    let server = serving(start("tap:live", Fault::None));
    assert!(exists("live"));
    let handle = server.handle();
    let first = handle.snapshot();
    assert!(
        first.tally().of("frames").is_some(),
        "there are counts from the start"
    );
    assert!(first.age().is_some());
    send_to(&server);
    eventually("a frame is counted", || frames(&handle) > 0);
    let snapshot = handle.snapshot();
    assert_eq!(snapshot.workers().len(), 1);
    let received = snapshot.port().rx_frames;
    assert_eq!(snapshot.tally().of("frames"), Some(received));
    // An idle worker also publishes its counts.
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(100));
        eventually("a fresh snapshot", || {
            handle.snapshot().age().unwrap() < Duration::from_millis(250)
        });
    }
    let stopping = thread::spawn({
        let handle = handle.clone();
        move || handle.stop()
    });
    let summary = ended(server).unwrap();
    stopping.join().unwrap();
    assert!(
        !exists("live"),
        "the device is removed before the future is ready"
    );
    assert_eq!(summary.tally().of("frames"), Some(frames(&handle)));
    assert_eq!(summary.port(), &handle.snapshot().port());
    let status = handle.status();
    assert_eq!(status.phase, crate::status::Phase::Ended);
    assert!(status.facts.iter().any(|(label, _)| label == "device"));
    let metrics = handle.metrics(crate::MetricsFormat::Prometheus);
    let counted = format!("_frames_total{{worker=\"0\"}} {}\n", frames(&handle));
    assert!(metrics.contains(&counted), "{counted}{metrics}");
    assert!(summary.block().to_string().contains("frames: "));
    handle.stop();
}

#[test]
fn a_worker_has_the_frames_of_its_largest_batch() {
    if !enter_namespace() {
        return;
    }
    let [usual, more] = [64, 1_024].map(|batch| {
        let args = ServeArgs {
            batch,
            ..ServeArgs::on("tap:frames".parse().unwrap())
        };
        let server = serving(embed(args, probe(Fault::None)));
        let frames = server.handle().snapshot().workers()[0].levels().frames;
        server.handle().stop();
        ended(server).unwrap();
        frames
    });
    assert_eq!(more - usual, 1_024 - 256);
}

#[test]
fn facts_describe_the_device() {
    if !enter_namespace() {
        return;
    }
    let starting = start("tap:facts", Fault::None);
    let server = block_on("the server serves", starting).unwrap();
    let facts: Vec<_> = server.facts().lines().collect();
    assert_eq!(facts[0], ("probe", "0"));
    let of = |label| facts.iter().find(|(name, _)| *name == label).unwrap().1;
    assert_eq!(of("device"), "tap facts, made for the server");
    assert!(of("listening").ends_with(", port 7"));
    assert!(of("sandbox").ends_with("other threads of this process keep their privileges"));
    server.handle().stop();
    block_on("the server ends", server).unwrap();
}

#[test]
fn the_future_returns_the_error_of_the_start() {
    let starting = start("xdp:no-such-if", Fault::None);
    let outcome = in_time("an error", || starting.wait());
    let unknown = matches!(
        &outcome,
        Err(Error::Device(DeviceError::UnknownInterface { name, .. })) if name == "no-such-if"
    );
    assert!(unknown, "{outcome:?}");
    let args = ServeArgs {
        user: Some("no-such-user".parse().unwrap()),
        ..ServeArgs::default()
    };
    let outcome = block_on("an error", embed(args, probe(Fault::None)));
    assert!(
        matches!(outcome, Err(Error::UnknownUser { .. })),
        "{outcome:?}"
    );
    let args = ServeArgs {
        port: Some(0),
        ..ServeArgs::default()
    };
    let outcome = block_on("an error", embed(args, probe(Fault::None)));
    assert!(
        matches!(&outcome, Err(Error::PortZero { option }) if option == "--port"),
        "{outcome:?}"
    );
    let args = ServeArgs {
        batch: 0,
        ..ServeArgs::default()
    };
    let outcome = block_on("an error", embed(args, probe(Fault::None)));
    let is_out_of_range = matches!(outcome, Err(Error::OutOfRange { value: 0, .. }));
    assert!(is_out_of_range, "{outcome:?}");
    if !enter_namespace() {
        return;
    }
    let outcome = block_on("an error", start("tap:refused", Fault::Refuses));
    assert!(matches!(outcome, Err(Error::Start(_))), "{outcome:?}");
    assert!(!exists("refused"));
}

#[test]
fn options_without_effect_are_refused() {
    let wanted: [fn(&mut ServeArgs); 3] = [
        |args| args.endpoints.metrics_listen = Some("9153".parse().unwrap()),
        |args| args.endpoints.control_socket = Some("socket".parse().unwrap()),
        |args| args.endpoints.watch = true,
    ];
    for want in wanted {
        let mut args = ServeArgs::default();
        want(&mut args);
        let outcome = block_on("an error", embed(args, probe(Fault::None)));
        assert!(matches!(outcome, Err(Error::NotEmbedded(_))), "{outcome:?}");
    }
}

#[test]
fn waiting_inside_a_runtime_is_refused() {
    let waiting = thread::spawn(|| {
        block_on("a panic", async {
            start("xdp:no-such-if", Fault::None).wait().is_ok()
        })
    });
    let panic = waiting.join().unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("runtime"), "{message}");
}

#[test]
fn futures_and_handles_can_move_to_other_threads() {
    fn is_send<T: Send + Unpin + 'static>() {}
    fn is_shared<T: Sync>() {}
    is_send::<Starting>();
    is_send::<Server>();
    is_send::<Handle>();
    is_shared::<Handle>();
}

#[test]
fn a_worker_that_panics_ends_its_server_only() {
    if !enter_namespace() {
        return;
    }
    let other = serving(start("tap:other", Fault::None));
    let server = serving(start("tap:panics", Fault::Panics));
    let handle = server.handle();
    send_to(&server);
    let outcome = ended(server);
    let panicked = matches!(outcome, Err(Error::Panicked { worker: 0 }));
    assert!(panicked, "{outcome:?}");
    assert!(!exists("panics"));
    assert_eq!(handle.snapshot().workers().len(), 1);
    send_to(&other);
    let handle = other.handle();
    eventually("the other server counts a frame", || frames(&handle) > 0);
    handle.stop();
    ended(other).unwrap();
}

#[test]
fn dropping_a_future_stops_the_server() {
    if !enter_namespace() {
        return;
    }
    let starting = start("tap:dropped", Fault::None);
    let server = block_on("the server serves", starting).unwrap();
    let handle = server.handle();
    assert!(exists("dropped"));
    drop(server);
    eventually("the device is gone", || !exists("dropped"));
    assert_eq!(handle.snapshot().workers().len(), 1);
    // Drops the future of the start after different delays, before it is polled.
    for delay in [0, 1, 10, 100] {
        let starting = start("tap:dropped", Fault::None);
        thread::sleep(Duration::from_millis(delay));
        drop(starting);
        thread::sleep(Duration::from_millis(20));
        eventually("the device is gone", || !exists("dropped"));
    }
    // Aborting a task drops its future, which stops the server.
    let starting = start("tap:dropped", Fault::None);
    let is_cancelled = block_on("the task ends", async {
        let task = tokio::spawn(starting.await.unwrap());
        task.abort();
        task.await.unwrap_err().is_cancelled()
    });
    assert!(is_cancelled);
    eventually("the device is gone", || !exists("dropped"));
}

#[test]
fn two_servers_run_at_once_and_one_after_another() {
    if !enter_namespace() {
        return;
    }
    // Each server gets its own interface name and network.
    let starting = [start("auto", Fault::None), start("auto", Fault::None)];
    let [first, second] = starting.map(serving);
    let address = |server: &Server| -> IpAddr { server.listening().addresses[0] };
    assert_ne!(address(&first), address(&second));
    let handles = [first.handle(), second.handle()];
    for (server, handle) in [&first, &second].into_iter().zip(&handles) {
        send_to(server);
        eventually("a frame is counted", || frames(handle) > 0);
    }
    assert!(exists("probe0") && exists("probe1"));
    handles[0].stop();
    ended(first).unwrap();
    // The pair of `auto` is removed a moment later.
    eventually("one pair is gone", || exists("probe0") != exists("probe1"));
    let before = frames(&handles[1]);
    send_to(&second);
    eventually("the other server counts a frame", || {
        frames(&handles[1]) > before
    });
    handles[1].stop();
    ended(second).unwrap();
    for _ in 0..2 {
        let server = serving(start("tap:again", Fault::None));
        server.handle().stop();
        ended(server).unwrap();
    }
    assert!(!exists("again"));
    eventually("both pairs are gone", || {
        !exists("probe0") && !exists("probe1")
    });
}

#[test]
fn only_workers_drop_privileges_and_they_block_signals() {
    if !enter_namespace() {
        return;
    }
    let program = probe(Fault::None);
    let (worker, this) = (Arc::clone(&program.thread), gettid().as_raw_nonzero().get());
    let before = status(this);
    let args = ServeArgs::on("tap:privileges".parse().unwrap());
    let server = serving(embed(args, program));
    let [user, capabilities, seccomp, signals] = status(worker.load(Ordering::Relaxed));
    assert_eq!(user, "65534 65534 65534 65534");
    assert_eq!(capabilities, "0000000000000000");
    assert_eq!(seccomp, "2");
    let blocked = u64::from_str_radix(&signals, 16).unwrap();
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
    assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGINT) && is_blocked(libc::SIGUSR1));
    assert!(!is_blocked(libc::SIGSEGV));
    assert_eq!(status(this), before, "other threads keep their privileges");
    server.handle().stop();
    ended(server).unwrap();
}
