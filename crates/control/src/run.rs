//! From the command line to the summary: open, start, watch, stop.

use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::Instant;

use nmio::device::{Interface, InterfaceConfig};
use nmio::{FaultConfig, FaultCounters, PortCounters};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::ServeArgs;
use crate::error::Error;
use crate::program::{Listening, Prepared, Program, Tally, WorkerContext};
use crate::report::{self, Block};
use crate::worker::{Ended, Ready, Worker};
use crate::{log, rights};

/// A whole `serve` command: logs, then [`run`] with what `load` gives. An
/// error is printed as one message, and leads to exit status 1.
pub fn serve<P: Program, E: Display>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
) -> ExitCode {
    log::init(args.log);
    let outcome = match load() {
        Ok(program) => run(args, &program).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}: {message}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

/// Serves `program` until SIGINT or SIGTERM, or until a worker fails; prints
/// the start block when all workers are ready, and the summary at the end.
///
/// A second signal ends the process at once.
///
/// # Errors
/// When the device, a port or a worker's handler cannot be had, or when a
/// port goes away. The other workers have ended then, and nothing of ours is
/// left on the interface.
pub fn run<P: Program>(args: &ServeArgs, program: &P) -> Result<(), Error> {
    // Signals first: from here on none ends the process before it has
    // cleaned up.
    let (runtime, mut signals) = watch_signals().map_err(system("watching for signals"))?;
    let port = args.port.unwrap_or(P::DEFAULT_PORT);
    let interface = Interface::open(&InterfaceConfig {
        device: args.device.clone(),
        own_addresses: args.addresses.clone(),
        services: program.services(port),
        workers: args.workers,
        wait: args.wait.into(),
        program: P::NAME,
    })?;
    let workers = interface.queues();
    let listening = Listening::new(interface.addresses().to_vec(), port);
    let stop = AtomicBool::new(false);
    // Each worker sends two events, so that sending never waits.
    let (events_in, mut events) = mpsc::channel(2 * workers as usize);

    let outcome = thread::scope(|scope| {
        let mut gates = Vec::new();
        for index in 0..workers {
            let worker = Worker {
                program,
                context: context(&interface, index, workers, port)?,
                source: interface.queue(index),
                pcap: args
                    .pcap
                    .as_deref()
                    .map(|path| pcap_path(path, index, workers)),
                fault: args.fault.map(|fault| FaultConfig {
                    seed: fault.seed.wrapping_add(u64::from(index)),
                    ..fault
                }),
                config: args.loop_config(),
            };
            let (gate, opened) = std_mpsc::channel();
            gates.push(gate);
            let (events_in, stop) = (events_in.clone(), &stop);
            thread::Builder::new()
                .name(format!("{}-{index}", P::NAME))
                .spawn_scoped(scope, move || work(worker, &opened, &events_in, stop))
                .map_err(system("starting a worker's thread"))?;
        }
        drop(events_in);
        let mut crew = Crew {
            events: &mut events,
            signals: &mut signals,
            gates,
            stop: &stop,
        };
        runtime.block_on(crew.watch(workers, |ready| {
            let given_up = if interface.needs_removal() {
                rights::keep_interfaces()
            } else {
                rights::give_up_all()
            };
            if let Err(error) = given_up {
                tracing::warn!("the rights of the main thread stay: {error}");
            }
            start_block(program, &interface, &listening, args.fault, ready).print();
        }))
    });
    drop(interface);
    let Some((started, ended)) = outcome? else {
        return Ok(());
    };
    summary(started, &ended).print();
    Ok(())
}

fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { what, source }
}

/// SIGINT and SIGTERM.
struct Signals(Signal, Signal);

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

fn watch_signals() -> io::Result<(Runtime, Signals)> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let signals = Signals(
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    drop(inside);
    Ok((runtime, signals))
}

fn context(
    interface: &Interface,
    index: u32,
    workers: u32,
    port: u16,
) -> Result<WorkerContext, Error> {
    let mut secret = [0; 32];
    // At most 256 bytes come at once and whole, once the system has any.
    getrandom(&mut secret, GetRandomFlags::empty())
        .map_err(|errno| system("getting random bytes")(errno.into()))?;
    Ok(WorkerContext {
        index,
        workers,
        mac: interface.mac(),
        addresses: interface.addresses().to_vec(),
        own: interface.is_own(),
        mtu: interface.mtu(),
        port,
        secret,
    })
}

fn pcap_path(path: &Path, index: u32, workers: u32) -> PathBuf {
    if workers == 1 {
        return path.to_path_buf();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    name.into()
}

/// What the main thread hears of a worker.
enum Event {
    Ready(u32, Ready),
    Ended(Box<Result<Ended, Error>>),
}

/// A worker's thread. It serves when its gate is opened, and not at all when
/// the gate is gone.
fn work<P: Program>(
    worker: Worker<'_, P>,
    gate: &std_mpsc::Receiver<()>,
    events: &mpsc::Sender<Event>,
    stop: &AtomicBool,
) {
    let index = worker.context.index;
    let ready = |ready| {
        // The channel has room for both events; an error means that nobody
        // listens, and then the gate is gone as well.
        let _ = events.try_send(Event::Ready(index, ready));
        gate.recv().is_ok()
    };
    // Where panics unwind, one worker's end is told like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.work(ready, stop)))
        .unwrap_or(Err(Error::Panicked { worker: index }));
    let _ = events.try_send(Event::Ended(Box::new(outcome)));
}

/// The workers as the main thread sees them.
struct Crew<'a> {
    events: &'a mut mpsc::Receiver<Event>,
    signals: &'a mut Signals,
    gates: Vec<std_mpsc::Sender<()>>,
    stop: &'a AtomicBool,
}

impl Crew<'_> {
    /// Watches the workers from their start to their end. `None` when a
    /// signal came before all were ready.
    async fn watch(
        &mut self,
        workers: u32,
        serving: impl FnOnce(&[Ready]),
    ) -> Result<Option<(Instant, Vec<Ended>)>, Error> {
        let mut failed = None;
        let mut started = None;
        match self.all_ready(workers).await {
            Ok(Some(ready)) => {
                started = Some(Instant::now());
                for gate in &self.gates {
                    // An error means that the worker has ended; that is heard
                    // of below.
                    let _ = gate.send(());
                }
                serving(&ready);
            }
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
        let mut ended = Vec::new();
        if started.is_none() {
            self.stop();
        }
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Ended(outcome)) => match *outcome {
                        Ok(end) => ended.push(end),
                        Err(error) => {
                            self.stop();
                            failed.get_or_insert(error);
                        }
                    },
                    Some(Event::Ready(..)) => {}
                    // All have ended.
                    None => break,
                },
                () = self.signals.next() => {
                    if self.stop.load(Ordering::Relaxed) {
                        // The second one: whoever sends it will not wait.
                        std::process::exit(1);
                    }
                    self.stop();
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(started.map(|started| (started, ended))),
        }
    }

    /// Waits until every worker is ready. `None` when a signal comes first.
    async fn all_ready(&mut self, workers: u32) -> Result<Option<Vec<Ready>>, Error> {
        let mut ready: Vec<(u32, Ready)> = Vec::new();
        while ready.len() < workers as usize {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Ready(index, one)) => ready.push((index, one)),
                    // No worker ends well before it was let serve.
                    Some(Event::Ended(outcome)) => return outcome.map(|_| None),
                    None => return Ok(None),
                },
                () = self.signals.next() => return Ok(None),
            }
        }
        ready.sort_by_key(|&(index, _)| index);
        Ok(Some(ready.into_iter().map(|(_, one)| one).collect()))
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.gates.clear();
    }
}

fn start_block<P: Program>(
    program: &P,
    interface: &Interface,
    listening: &Listening,
    fault: Option<FaultConfig>,
    ready: &[Ready],
) -> Block {
    let mut block = Block::default();
    block.line(P::NAME, P::VERSION);
    for (label, value) in program.loaded() {
        block.line(label, value);
    }
    let prepared = ready.iter().fold(Prepared::default(), |sum, one| Prepared {
        packets: sum.packets + one.prepared.packets,
        bytes: sum.bytes + one.prepared.bytes,
    });
    let packets = report::count(prepared.packets);
    block.line(
        "prepared",
        format!("{packets} packets, {}", report::bytes(prepared.bytes)),
    );
    for (label, value) in interface.summary() {
        block.line(label, value);
    }
    port_lines(&mut block, ready);
    if let Some(fault) = fault {
        let text = format!("{fault}, for tests only; every segment is a frame");
        block.line("faults", text);
    }
    block.line("workers", ready.len().to_string());
    let rights = if ready.iter().all(|one| one.unprivileged) {
        "workers have given up all capabilities"
    } else {
        "could not be given up, see the log"
    };
    block.line("rights", rights);
    let addresses: Vec<String> = listening
        .addresses
        .iter()
        .map(std::string::ToString::to_string)
        .collect();
    block.line(
        "listening",
        format!("{}, port {}", addresses.join(" "), listening.port),
    );
    for command in program.try_commands(listening) {
        block.line("try", command);
    }
    block
}

/// What the ports really do: once where all say the same, else by worker.
fn port_lines(block: &mut Block, ready: &[Ready]) {
    let Some(first) = ready.first() else { return };
    if ready.iter().all(|one| one.port == first.port) {
        for (label, value) in &first.port {
            block.line(*label, value.clone());
        }
        return;
    }
    for (index, one) in ready.iter().enumerate() {
        for (label, value) in &one.port {
            block.line(format!("{label} {index}"), value.clone());
        }
    }
}

fn summary(started: Instant, ended: &[Ended]) -> Block {
    let mut port = PortCounters::default();
    let mut tally = Tally::default();
    for one in ended {
        let PortCounters {
            rx_frames,
            rx_bytes,
            tx_frames,
            tx_bytes,
            tx_supers,
            tx_ring_full,
            rx_lost,
            bad_descriptors,
            tx_wakeups,
            waits,
            rx_batches,
            tx_batches,
        } = one.counters;
        port.rx_frames += rx_frames;
        port.rx_bytes += rx_bytes;
        port.tx_frames += tx_frames;
        port.tx_bytes += tx_bytes;
        port.tx_supers += tx_supers;
        port.tx_ring_full += tx_ring_full;
        port.rx_lost += rx_lost;
        port.bad_descriptors += bad_descriptors;
        port.tx_wakeups += tx_wakeups;
        port.waits += waits;
        port.rx_batches.merge(&rx_batches);
        port.tx_batches.merge(&tx_batches);
        tally.merge(&one.tally);
    }
    let mut block = report::summary(started.elapsed(), &port, &tally);
    for one in ended {
        if let Some((received, sent)) = &one.faults {
            block.line("faults received", faults(received));
            block.line("faults sent", faults(sent));
        }
        if let Some(capture) = &one.capture {
            let mut text = format!("{}, {} frames", capture.path.display(), capture.packets);
            if let Some(why) = &capture.stopped {
                text += "; ended early: ";
                text += why;
            }
            block.line("capture", text);
        }
    }
    block
}

fn faults(counters: &FaultCounters) -> String {
    let FaultCounters {
        frames,
        dropped,
        duplicated,
        reordered,
        corrupted,
    } = counters;
    format!(
        "of {frames} frames {dropped} dropped, {duplicated} doubled, {reordered} held back, \
         {corrupted} corrupted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Ready {
        Ready {
            port: vec![("port", "a test".into())],
            prepared: Prepared::default(),
            unprivileged: true,
        }
    }

    /// Watches two workers that say `events`; returns what the watch gives,
    /// whether it let them serve, and whether it told them to stop.
    fn watch(events: Vec<Event>) -> (Result<Option<usize>, Error>, bool, bool) {
        let (runtime, mut signals) = watch_signals().unwrap();
        let (events_in, mut events_out) = mpsc::channel(4);
        for event in events {
            assert!(events_in.try_send(event).is_ok());
        }
        drop(events_in);
        let (gate, opened) = std_mpsc::channel();
        let stop = AtomicBool::new(false);
        let mut crew = Crew {
            events: &mut events_out,
            signals: &mut signals,
            gates: vec![gate],
            stop: &stop,
        };
        let mut block_printed = false;
        let outcome = runtime.block_on(crew.watch(2, |_| block_printed = true));
        drop(crew);
        assert_eq!(opened.recv().is_ok(), block_printed);
        let outcome = outcome.map(|served| served.map(|(_, ended)| ended.len()));
        (outcome, block_printed, stop.load(Ordering::Relaxed))
    }

    fn gone() -> Error {
        Error::PortGone {
            worker: 1,
            source: io::ErrorKind::NotConnected.into(),
        }
    }

    #[test]
    fn all_serve_when_all_are_ready() {
        let (outcome, served, stopped) = watch(vec![
            Event::Ready(1, ready()),
            Event::Ready(0, ready()),
            Event::Ended(Box::new(Ok(Ended::default()))),
            Event::Ended(Box::new(Ok(Ended::default()))),
        ]);
        assert!(matches!(outcome, Ok(Some(2))), "{outcome:?}");
        assert!(served && !stopped);
    }

    #[test]
    fn none_serves_when_one_cannot_start() {
        let (outcome, served, stopped) = watch(vec![
            Event::Ready(0, ready()),
            Event::Ended(Box::new(Err(gone()))),
            Event::Ended(Box::new(Ok(Ended::default()))),
        ]);
        assert!(outcome.is_err() && !served && stopped);
    }

    #[test]
    fn all_stop_when_one_fails() {
        let (outcome, served, stopped) = watch(vec![
            Event::Ready(0, ready()),
            Event::Ready(1, ready()),
            Event::Ended(Box::new(Err(gone()))),
            Event::Ended(Box::new(Ok(Ended::default()))),
        ]);
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("worker 1"), "{message}");
        assert!(served && stopped);
    }

    #[test]
    fn lines_that_differ_between_workers_are_numbered() {
        let mut other = ready();
        let mut block = Block::default();
        port_lines(&mut block, &[ready(), other.clone()]);
        assert_eq!(block.to_string(), "port: a test\n");
        other.port[0].1 = "another".into();
        let mut block = Block::default();
        port_lines(&mut block, &[ready(), other]);
        assert_eq!(block.to_string(), "port 0: a test\nport 1: another\n");
    }

    #[test]
    fn several_workers_write_several_captures() {
        assert_eq!(pcap_path(Path::new("a.pcap"), 0, 1), Path::new("a.pcap"));
        assert_eq!(pcap_path(Path::new("a.pcap"), 1, 2), Path::new("a.pcap.1"));
    }
}
