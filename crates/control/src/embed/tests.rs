//! Servers in this process, on devices in network namespaces of the tests' own
//! threads. They need root.

use std::future::Future;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ip::Transports;
use nix::sched::{CloneFlags, unshare};
use nmio::device::{DeviceError, Transport};
use nmio::{Frame, Port};
use rustix::process::geteuid;
use rustix::thread::gettid;

use super::*;
use crate::program::{StartError, Tally, WorkerContext};

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The served port; nothing listens there.
const PORT: u16 = 7;

/// What a test program does beside counting frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It cannot be prepared.
    Refuses,
    /// It panics at the first frame.
    Panics,
}

struct Probe {
    fault: Fault,
    /// The worker's thread.
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

/// Lines of the status of one of this process's threads: user, capabilities, seccomp
/// and blocked signals.
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

/// Moves this thread into a network namespace of its own; `false` without the right
/// to.
fn alone() -> bool {
    geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok()
}

/// Whether this thread's network namespace has the interface.
fn exists(name: &str) -> bool {
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut names = devices.lines().filter_map(|line| line.split_once(':'));
    names.any(|(other, _)| other.trim() == name)
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a datagram to the server; ARP at least arrives.
fn send_to(server: &Server) {
    let ip = server.listening().addresses[0];
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.send_to(b"x", (ip, PORT)).unwrap();
}

fn frames(handle: &Handle) -> u64 {
    handle.snapshot().tally().of("frames").unwrap()
}

/// A runtime that can neither wait nor read: nothing more is needed.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn counts_are_seen_while_it_serves_and_a_handle_ends_it() {
    if !alone() {
        return;
    }
    let server = start("tap:live", Fault::None).wait().unwrap();
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
    // It sleeps, and publishes all the same.
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
    let summary = server.wait().unwrap();
    stopping.join().unwrap();
    assert!(!exists("live"), "removed before the end is told");
    assert_eq!(summary.tally().of("frames"), Some(frames(&handle)));
    assert_eq!(summary.port(), &handle.snapshot().port());
    assert!(summary.block().to_string().contains("frames: "));
    handle.stop();
}

#[test]
fn facts_tell_what_the_device_does() {
    if !alone() {
        return;
    }
    let server = block_on(start("tap:facts", Fault::None)).unwrap();
    let facts: Vec<_> = server.facts().lines().collect();
    assert_eq!(facts[0], ("probe", "0"));
    let of = |label| facts.iter().find(|(name, _)| *name == label).unwrap().1;
    assert_eq!(of("device"), "tap facts, made for the server");
    assert!(of("listening").ends_with(", port 7"));
    assert!(of("sandbox").ends_with("other threads of this process are as they were"));
    server.handle().stop();
    block_on(server).unwrap();
}

#[test]
fn what_is_wrong_comes_back() {
    let outcome = start("xdp:no-such-if", Fault::None).wait();
    let unknown = matches!(
        &outcome,
        Err(Error::Device(DeviceError::UnknownInterface { name, .. })) if name == "no-such-if"
    );
    assert!(unknown, "{outcome:?}");
    let mut args = ServeArgs::default();
    args.user = Some("no-such-user".parse().unwrap());
    let outcome = block_on(embed(args, probe(Fault::None)));
    assert!(
        matches!(outcome, Err(Error::UnknownUser { .. })),
        "{outcome:?}"
    );
    if !alone() {
        return;
    }
    let outcome = block_on(start("tap:refused", Fault::Refuses));
    assert!(matches!(outcome, Err(Error::Start(_))), "{outcome:?}");
    assert!(!exists("refused"));
}

#[test]
fn waiting_inside_a_runtime_is_refused() {
    let waiting =
        thread::spawn(|| block_on(async { start("xdp:no-such-if", Fault::None).wait().is_ok() }));
    assert!(waiting.join().is_err());
}

#[test]
fn futures_and_handles_go_to_other_threads() {
    fn is_send<T: Send + Unpin + 'static>() {}
    fn is_shared<T: Sync>() {}
    is_send::<Starting>();
    is_send::<Server>();
    is_send::<Handle>();
    is_shared::<Handle>();
}

#[test]
fn a_worker_that_panics_ends_its_server_only() {
    if !alone() {
        return;
    }
    let bystander = start("tap:other", Fault::None).wait().unwrap();
    let server = start("tap:panics", Fault::Panics).wait().unwrap();
    let handle = server.handle();
    send_to(&server);
    let outcome = server.wait();
    let panicked = matches!(outcome, Err(Error::Panicked { worker: 0 }));
    assert!(panicked, "{outcome:?}");
    assert!(!exists("panics"));
    assert_eq!(handle.snapshot().workers().len(), 1);
    send_to(&bystander);
    let handle = bystander.handle();
    eventually("the other one serves", || frames(&handle) > 0);
    handle.stop();
    bystander.wait().unwrap();
}

#[test]
fn dropping_a_future_stops_the_server() {
    if !alone() {
        return;
    }
    let server = block_on(start("tap:dropped", Fault::None)).unwrap();
    let handle = server.handle();
    assert!(exists("dropped"));
    drop(server);
    eventually("the device is gone", || !exists("dropped"));
    assert_eq!(handle.snapshot().workers().len(), 1);
    // While it starts, too: at once, and at any later moment.
    for delay in [0, 1, 10, 100] {
        let starting = start("tap:dropped", Fault::None);
        thread::sleep(Duration::from_millis(delay));
        drop(starting);
        thread::sleep(Duration::from_millis(20));
        eventually("the device is gone", || !exists("dropped"));
    }
    // A task that is aborted drops what it waits for.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let server = runtime.block_on(start("tap:dropped", Fault::None)).unwrap();
    let task = runtime.spawn(server);
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    eventually("the device is gone", || !exists("dropped"));
}

#[test]
fn two_serve_at_once_and_one_after_another() {
    if !alone() {
        return;
    }
    // Names and networks are chosen for each.
    let starting = [start("auto", Fault::None), start("auto", Fault::None)];
    let [first, second] = starting.map(|one| one.wait().unwrap());
    let address = |server: &Server| -> IpAddr { server.listening().addresses[0] };
    assert_ne!(address(&first), address(&second));
    let handles = [first.handle(), second.handle()];
    for (server, handle) in [&first, &second].into_iter().zip(&handles) {
        send_to(server);
        eventually("a frame is counted", || frames(handle) > 0);
    }
    assert!(exists("probe0") && exists("probe1"));
    handles[0].stop();
    first.wait().unwrap();
    assert!(exists("probe0") != exists("probe1"), "one is gone");
    let before = frames(&handles[1]);
    send_to(&second);
    eventually("the other one serves", || frames(&handles[1]) > before);
    handles[1].stop();
    second.wait().unwrap();
    for _ in 0..2 {
        let server = start("tap:again", Fault::None).wait().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }
    assert!(!["probe0", "probe1", "again"].into_iter().any(exists));
}

#[test]
fn workers_alone_give_up_rights_and_take_no_signals() {
    if !alone() {
        return;
    }
    let program = probe(Fault::None);
    let (worker, this) = (Arc::clone(&program.thread), gettid().as_raw_nonzero().get());
    let before = status(this);
    let args = ServeArgs::on("tap:rights".parse().unwrap());
    let server = embed(args, program).wait().unwrap();
    let [user, capabilities, seccomp, signals] = status(worker.load(Ordering::Relaxed));
    assert_eq!(user, "65534 65534 65534 65534");
    assert_eq!(capabilities, "0000000000000000");
    assert_eq!(seccomp, "2");
    let blocked = u64::from_str_radix(&signals, 16).unwrap();
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
    assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGINT) && is_blocked(libc::SIGUSR1));
    assert!(!is_blocked(libc::SIGSEGV));
    assert_eq!(status(this), before, "other threads are as they were");
    server.handle().stop();
    server.wait().unwrap();
}
