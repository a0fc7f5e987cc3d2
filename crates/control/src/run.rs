//! From the command line to the summary: open, start, watch, stop.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::Instant;

use nmio::device::QueueAccess;
use nmio::{FaultConfig, FaultCounters, PortCounters};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::args::ServeArgs;
use crate::crew::{self, Crew};
use crate::error::Error;
use crate::helper::Helper;
use crate::log;
use crate::memory;
use crate::news::{News, Published};
use crate::program::{Listening, Prepared, Program, Tally, WorkerContext};
use crate::report::{self, Block};
use crate::rights::{Kind, Plan, Table};
use crate::secret::Secret;
use crate::signals::{self, Harmless, Signals};
use crate::worker::{Ended, Ready, Worker};

/// A whole `serve` command: serves what `load` gives until SIGINT or SIGTERM,
/// or until a worker fails. It prints the start block when all workers are
/// ready, and the summary at the end.
///
/// A second SIGINT or SIGTERM, a second or more after the first, ends a serving
/// process at once. An error is printed as one message, and leads to exit
/// status 1; nothing of ours is left on the interface then. There is no summary
/// after an error.
///
/// `load` runs with the rights of the user who started the server. Rights are
/// given up before the first packet; [`Program`] says for each hook when it runs,
/// and the [crate](crate#what-a-callback-may-do-in-the-sandbox) what it may do.
///
/// A panic of a worker stops the others and is such an error. Where the profile
/// says `panic = "abort"` it ends the process by SIGABRT instead.
pub fn serve<P: Program, E: Display>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
) -> ExitCode {
    log::init(args.log);
    let outcome = load_and_run(args, load);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}: {message}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

fn load_and_run<P: Program, E: Display>(
    args: &ServeArgs,
    load: impl FnOnce() -> Result<P, E>,
) -> Result<(), String> {
    let prepare = || {
        let plan = Plan::new(args, P::NAME)?;
        // Before there is any thread or content.
        let helper = Helper::start(args, P::NAME, &plan)?;
        // Loading may take minutes: SIGINT still ends it, SIGHUP does not.
        let (runtime, harmless) = signals::catch_harmless().map_err(system(WATCHING))?;
        let start = Start {
            args,
            plan,
            helper,
            runtime,
        };
        Ok((start, harmless))
    };
    let (start, harmless) = prepare().map_err(|error: Error| error.to_string())?;
    let program = load().map_err(|error| error.to_string())?;
    start
        .run(&program, harmless)
        .map_err(|error| error.to_string())
}

const WATCHING: &str = "watching for signals";

/// What there is before the content is loaded.
struct Start<'a> {
    args: &'a ServeArgs,
    plan: Plan,
    helper: Helper,
    runtime: Runtime,
}

impl Start<'_> {
    fn run<P: Program>(&self, program: &P, harmless: Harmless) -> Result<(), Error> {
        let Self {
            args,
            plan,
            helper,
            runtime,
        } = self;
        let rights = &plan.rights(Table::for_server(program.read_paths(), program.files()))?;
        // From here on no signal ends the process before it has cleaned up.
        let mut signals = Signals::catch_all(runtime, harmless).map_err(system(WATCHING))?;
        let inside = runtime.enter();
        let helper_life = helper
            .life()
            .map_err(system("watching the helper process"))?;
        drop(inside);
        let port = args.port.unwrap_or(P::DEFAULT_PORT);
        let interface = helper.open(program.services(port))?;
        let workers = interface.queues();
        let addresses = interface.addresses().iter().map(|one| one.address);
        let listening = Listening::new(addresses.collect(), port);
        let stop = AtomicBool::new(false);
        let published: Vec<_> = (0..workers).map(|_| Published::default()).collect();
        let news = News::new(&interface, &published).map_err(system("watching the interface"))?;
        // Each worker sends two events, so that sending never waits.
        let (events_in, mut events) = mpsc::channel(2 * workers as usize);

        let outcome = thread::scope(|scope| {
            let mut gates = Vec::new();
            for index in 0..workers {
                let worker = Worker {
                    program,
                    interface: interface.name(),
                    context: context(&interface, index, workers, port)?,
                    rights,
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
                    published: &published[index as usize],
                };
                let (gate, opened) = std_mpsc::channel();
                gates.push(gate);
                let (events_in, stop) = (events_in.clone(), &stop);
                thread::Builder::new()
                    .name(format!("{}-{index}", P::NAME))
                    .spawn_scoped(scope, move || crew::work(worker, &opened, &events_in, stop))
                    .map_err(system("starting a worker's thread"))?;
            }
            drop(events_in);
            let mut crew = Crew {
                events: &mut events,
                signals: &mut signals,
                helper: &helper_life,
                gates,
                stop: &stop,
            };
            let watch = crew.watch(workers, |ready| {
                let mut given_up = rights.give_up(Kind::Control)?;
                for one in ready {
                    given_up.merge(&one.given_up);
                }
                let rights = rights.lines(given_up);
                Ok(start_block(
                    program, &interface, &listening, args.fault, rights, ready,
                ))
            });
            runtime.block_on(async {
                tokio::select! {
                    outcome = watch => outcome,
                    never = news.tell() => match never {},
                    never = memory::give_back() => match never {},
                }
            })
        });
        let Some((started, ended)) = outcome? else {
            return Ok(());
        };
        summary(started, &ended).print();
        Ok(())
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { what, source }
}

fn context(
    interface: &QueueAccess,
    index: u32,
    workers: u32,
    port: u16,
) -> Result<WorkerContext, Error> {
    Ok(WorkerContext {
        index,
        workers,
        mac: interface.mac(),
        addresses: interface.addresses().to_vec(),
        vlans: interface.vlans().to_vec(),
        own: interface.is_own(),
        mtu: interface.mtu(),
        port,
        secret: Secret::random().map_err(system("getting random bytes"))?,
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

/// Lines of the start block: label and value.
type Lines = Vec<(&'static str, String)>;

fn start_block<P: Program>(
    program: &P,
    interface: &QueueAccess,
    listening: &Listening,
    fault: Option<FaultConfig>,
    rights: Lines,
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
    for (label, value) in rights {
        block.line(label, value);
    }
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
            tx_lost,
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
        port.tx_lost += tx_lost;
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

    #[test]
    fn lines_that_differ_between_workers_are_numbered() {
        let mut other = Ready::example();
        let mut block = Block::default();
        port_lines(&mut block, &[Ready::example(), other.clone()]);
        assert_eq!(block.to_string(), "port: a test\n");
        other.port[0].1 = "another".into();
        let mut block = Block::default();
        port_lines(&mut block, &[Ready::example(), other]);
        assert_eq!(block.to_string(), "port 0: a test\nport 1: another\n");
    }

    #[test]
    fn several_workers_write_several_captures() {
        assert_eq!(pcap_path(Path::new("a.pcap"), 0, 1), Path::new("a.pcap"));
        assert_eq!(pcap_path(Path::new("a.pcap"), 1, 2), Path::new("a.pcap.1"));
    }
}
