//! One worker: one thread, one queue, one handler.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use nmio::device::{AnyPort, QueueSource};
use nmio::{
    Fault, FaultConfig, FaultCounters, LoopConfig, Pcap, PcapSummary, Port, PortCounters, TscClock,
};

use crate::error::Error;
use crate::program::{Prepared, Program, Tally, WorkerContext};
use crate::rights;

/// Everything a worker takes onto its thread.
pub(crate) struct Worker<'a, P> {
    pub(crate) program: &'a P,
    pub(crate) context: WorkerContext,
    pub(crate) source: QueueSource,
    pub(crate) pcap: Option<PathBuf>,
    pub(crate) fault: Option<FaultConfig>,
    pub(crate) config: LoopConfig,
}

/// What a worker says before it serves.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// What the port really does.
    pub(crate) port: Vec<(&'static str, String)>,
    pub(crate) prepared: Prepared,
    /// Whether the thread could give up its rights.
    pub(crate) unprivileged: bool,
}

/// What a worker says when it has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) counters: PortCounters,
    pub(crate) tally: Tally,
    /// What was done to received and to sent frames, with `--fault`.
    pub(crate) faults: Option<(FaultCounters, FaultCounters)>,
    /// What was recorded, with `--pcap`.
    pub(crate) capture: Option<PcapSummary>,
}

impl<P: Program> Worker<'_, P> {
    /// Opens the port, prepares, and serves until `stop` is set, if
    /// `ready` says so.
    pub(crate) fn work(
        self,
        ready: impl FnOnce(Ready) -> bool,
        stop: &AtomicBool,
    ) -> Result<Ended, Error> {
        let port = self.source.open(self.program.memory(&self.context))?;
        let stage = Stage {
            program: self.program,
            context: self.context,
            summary: port.summary(),
            pcap: self.pcap,
            fault: self.fault,
            config: self.config,
            stop,
        };
        // The only place that knows which port it is: everything below is
        // compiled once for each.
        match port {
            AnyPort::Xdp(port) => stage.observe(port, ready),
            AnyPort::Tap(port) => stage.observe(port, ready),
        }
    }
}

/// A worker whose port is open.
struct Stage<'a, P> {
    program: &'a P,
    context: WorkerContext,
    summary: Vec<(&'static str, String)>,
    pcap: Option<PathBuf>,
    fault: Option<FaultConfig>,
    config: LoopConfig,
    stop: &'a AtomicBool,
}

impl<P: Program> Stage<'_, P> {
    /// Puts the wrappers round the port, when they are asked for: the capture
    /// outside, so that it shows what the server sees.
    fn observe<Q: Port>(
        self,
        mut port: Q,
        ready: impl FnOnce(Ready) -> bool,
    ) -> Result<Ended, Error> {
        if self.pcap.is_none() && self.fault.is_none() {
            return self.serve(&mut port, ready);
        }
        let faulty = Fault::new(port, self.fault.as_ref());
        let mut port = Pcap::new(faulty, self.pcap.as_deref())?;
        let with_faults = self.fault.is_some();
        let mut ended = self.serve(&mut port, ready)?;
        ended.faults = with_faults.then(|| port.inner().fault_counters());
        ended.capture = port.finish();
        Ok(ended)
    }

    fn serve<Q: Port>(
        self,
        port: &mut Q,
        ready: impl FnOnce(Ready) -> bool,
    ) -> Result<Ended, Error> {
        let mut handler = self
            .program
            .handler(port, &self.context)
            .map_err(Error::Start)?;
        let unprivileged = match rights::give_up_all() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("the rights of worker {} stay: {error}", self.context.index);
                false
            }
        };
        let go = ready(Ready {
            port: self.summary,
            prepared: self.program.prepared(&handler),
            unprivileged,
        });
        if go {
            let clock = TscClock::new();
            nmio::run(port, &mut handler, &clock, &self.config, self.stop).map_err(|source| {
                Error::PortGone {
                    worker: self.context.index,
                    source,
                }
            })?;
        }
        let mut tally = Tally::default();
        self.program.tally(&handler, &mut tally);
        Ok(Ended {
            counters: port.counters(),
            tally,
            ..Ended::default()
        })
    }
}
