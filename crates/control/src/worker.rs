//! A worker: one thread that serves one queue with its own server.

use std::path::PathBuf;

use ip::{Host, Server};
use nmio::device::{AnyPort, PacketMemory, PortVisitor, QueueSource};
use nmio::{
    Fault, FaultConfig, FaultCounters, LoopConfig, Mailbox, Pcap, PcapSummary, Port, PortCounters,
    Stop, TscClock,
};

use crate::error::Error;
use crate::follower::NetworkChange;
use crate::live::{Published, WorkerSnapshot};
use crate::privileges::{Dropped, Kind, Privileges};
use crate::program::{PreparedPackets, Program, Tally, WorkerContext};
use crate::publisher::Publisher;
use crate::trace::port::Traced;

/// Everything that is passed to a worker's thread.
pub(crate) struct Worker<'a, P> {
    pub(crate) program: &'a P,
    /// Name of the interface, for messages.
    pub(crate) interface: &'a str,
    pub(crate) context: WorkerContext,
    pub(crate) host: Host,
    pub(crate) privileges: &'a Privileges,
    pub(crate) source: QueueSource,
    pub(crate) pcap: Option<PathBuf>,
    pub(crate) fault: Option<FaultConfig>,
    pub(crate) config: LoopConfig,
    pub(crate) published: &'a Published,
    pub(crate) network: Mailbox<NetworkChange>,
}

/// The report of a worker that is ready to serve.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// Facts about the port, for the start block.
    pub(crate) port: Vec<(&'static str, String)>,
    pub(crate) prepared: PreparedPackets,
    pub(crate) dropped: Dropped,
    /// The packet memory, if the port can continue on another queue.
    pub(crate) memory: Option<PacketMemory>,
}

#[cfg(test)]
impl Ready {
    pub(crate) fn example() -> Self {
        Self {
            port: vec![("port", "a test".into())],
            prepared: PreparedPackets::default(),
            dropped: Dropped::default(),
            memory: None,
        }
    }
}

/// The report of a worker that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) counters: PortCounters,
    pub(crate) tally: Tally,
    /// Counts of injected faults in received and in sent frames, if `--fault` was given.
    pub(crate) faults: Option<(FaultCounters, FaultCounters)>,
    /// The result of the capture, if `--pcap` was given.
    pub(crate) capture: Option<PcapSummary>,
}

impl Ended {
    /// Returns a report with the counts in `last`, the worker's last snapshot.
    pub(crate) fn of(last: &WorkerSnapshot) -> Self {
        Self {
            counters: *last.port(),
            tally: last.tally().clone(),
            ..Self::default()
        }
    }
}

impl<P: Program> Worker<'_, P> {
    /// Opens the port, prepares the transports, drops the thread's privileges, and calls `ready`.
    /// If `ready` returns true, serves until `stop` is set.
    pub(crate) fn work(
        self,
        ready: impl FnOnce(Ready) -> bool,
        stop: &Stop,
    ) -> Result<Ended, Error> {
        let memory = self.program.memory(&self.context);
        let port = self.source.open(memory.with_batch(self.config.batch))?;
        let stage = Stage {
            program: self.program,
            interface: self.interface,
            context: self.context,
            host: self.host,
            privileges: self.privileges,
            summary: port.summary(),
            memory: port.shared_memory(),
            pcap: self.pcap,
            fault: self.fault,
            config: self.config,
            published: self.published,
            network: self.network,
            stop,
        };
        let is_observed = stage.pcap.is_some() || stage.fault.is_some();
        let service = Service { stage, ready };
        if is_observed {
            service.visit_any(port)
        } else {
            port.visit(service)
        }
    }
}

/// A stage that serves on any port, and the callback for when it is ready.
struct Service<'a, P, R> {
    stage: Stage<'a, P>,
    ready: R,
}

impl<P: Program, R: FnOnce(Ready) -> bool> PortVisitor for Service<'_, P, R> {
    type Output = Result<Ended, Error>;

    fn visit<Q: Port>(self, port: Q) -> Self::Output {
        self.stage.serve(port, self.ready).map(|(ended, _)| ended)
    }

    fn visit_any(self, port: AnyPort) -> Self::Output {
        self.stage.observe(port, self.ready)
    }
}

/// What a worker needs after it has opened its port, apart from the port itself.
struct Stage<'a, P> {
    program: &'a P,
    interface: &'a str,
    context: WorkerContext,
    host: Host,
    privileges: &'a Privileges,
    summary: Vec<(&'static str, String)>,
    memory: Option<PacketMemory>,
    pcap: Option<PathBuf>,
    fault: Option<FaultConfig>,
    config: LoopConfig,
    published: &'a Published,
    network: Mailbox<NetworkChange>,
    stop: &'a Stop,
}

impl<P: Program> Stage<'_, P> {
    /// Wraps the port to inject faults and to capture frames, if requested, and serves on it. The
    /// capture is the outer layer, so it shows the frames that the server sees.
    fn observe<Q: Port>(
        mut self,
        port: Q,
        ready: impl FnOnce(Ready) -> bool,
    ) -> Result<Ended, Error> {
        if self.fault.is_some() {
            // Faults act on single frames, so super-segments are off. The start block's line
            // `faults` mentions this, and the line `segmentation` would contradict it.
            self.summary.retain(|(name, _)| *name != "segmentation");
        }
        let faulty = Fault::new(port, self.fault.as_ref());
        let port = Pcap::new(faulty, self.pcap.as_deref())?;
        let with_faults = self.fault.is_some();
        let (mut ended, mut port) = self.serve(port, ready)?;
        ended.faults = with_faults.then(|| port.inner().fault_counters());
        ended.capture = port.finish();
        Ok(ended)
    }

    /// Serves on a port, which is returned at the end.
    fn serve<Q: Port>(
        self,
        port: Q,
        ready: impl FnOnce(Ready) -> bool,
    ) -> Result<(Ended, Q), Error> {
        let mut traced = Traced::new(port);
        let port = &mut traced;
        let transports = self
            .program
            .transports(port, &self.context)
            .map_err(Error::Start)?;
        let accepts = port.capabilities().partial_checksums;
        let host = self.host.with_partial_checksums(accepts);
        let announces = host.is_own() && self.context.index == 0;
        let announced = announces.then(|| host.station().clone());
        let bell = self.context.bell.clone();
        // Calibrating the first clock of a process takes some milliseconds, so the clock is created
        // before the worker is ready.
        let clock = TscClock::new();
        let dropped = self.privileges.drop_all(Kind::Worker)?;
        let prepared = self.program.prepared(&transports);
        let server = Server::new(host, transports).with_bell(bell);
        let questions = self.published.open_questions(&self.context.bell);
        let mailboxes = (self.network, questions);
        let (program, published, stop) = (self.program, self.published, self.stop);
        let mut publisher = Publisher::new(program, server, port, published, mailboxes, stop);
        let go = ready(Ready {
            port: self.summary,
            prepared,
            dropped,
            memory: self.memory,
        });
        let mut outcome = Ok(());
        if go {
            if let Some(station) = announced {
                station.announce(port);
            }
            outcome = nmio::run(port, &mut publisher, &clock, &self.config, self.stop);
        }
        let failure = publisher.take_failure();
        let last = publisher.finish(port);
        if let Some(error) = failure {
            return Err(Error::InterfaceBack {
                interface: self.interface.to_owned(),
                why: format!(
                    "worker {} cannot use its queue ({error})",
                    self.context.index
                ),
            });
        }
        outcome.map_err(|source| Error::PortGone {
            interface: self.interface.to_owned(),
            worker: self.context.index,
            source,
        })?;
        Ok((Ended::of(&last), traced.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::LazyLock;
    use std::time::Duration;

    use eth::{Mac, Station};
    use ip::Transports;
    use nmio::device::Transport;
    use nmio::{Batch, Bell, sim};

    use super::*;
    use crate::program::StartError;
    use crate::secret::Secret;

    static STOPPED: LazyLock<Stop> = LazyLock::new(|| {
        let stop = Stop::new();
        stop.request();
        stop
    });

    /// A program that serves nothing.
    struct Idle;

    impl<P: Port> Transports<P> for Idle {
        fn serves(&self, _: u8, _: u16) -> bool {
            false
        }
    }

    impl Program for Idle {
        const NAME: &'static str = "idle";
        const VERSION: &'static str = "0";
        const DEFAULT_PORT: u16 = 7;
        type Transports<P: Port> = Self;

        fn services(&self, port: u16) -> Vec<(Transport, u16)> {
            vec![(Transport::Udp, port)]
        }

        fn transports<P: Port>(&self, _: &mut P, _: &WorkerContext) -> Result<Self, StartError> {
            Ok(Self)
        }
    }

    /// Creates a worker that stops as soon as it serves.
    fn stage(index: u32, own: bool) -> Stage<'static, Idle> {
        let station = Station::new(
            Mac([2, 0, 0, 0, 0, 1]),
            &[Ipv4Addr::new(192, 0, 2, 1).into()],
        );
        Stage {
            program: &Idle,
            interface: "srv0",
            privileges: Privileges::for_tests(),
            host: if own {
                Host::own(station, [0; 4])
            } else {
                Host::shared(station, [0; 4])
            },
            context: WorkerContext {
                index,
                workers: 2,
                mac: [2, 0, 0, 0, 0, 1],
                addresses: vec!["192.0.2.1/24".parse().unwrap()],
                vlans: Vec::new(),
                own,
                mtu: 1500,
                resident_len: Ok(2048),
                port: 7,
                secret: Secret::random().unwrap(),
                bell: Bell::new().unwrap(),
            },
            memory: None,
            summary: vec![("rings", "two".into()), ("segmentation", "runs".into())],
            pcap: None,
            fault: None,
            config: LoopConfig::default(),
            published: Box::leak(Box::default()),
            network: nmio::mailbox(1).unwrap().1,
            stop: &STOPPED,
        }
    }

    /// Runs a worker on the calling thread, which drops its privileges. Returns the number of
    /// frames that the worker sends.
    fn sent_at_start(index: u32, own: bool, serve: bool) -> usize {
        let (port, mut peer, clock) = sim::link(&sim::LinkConfig::default(), 0);
        let (ended, _port) = stage(index, own).serve(port, |_| serve).unwrap();
        clock.advance(Duration::from_millis(1));
        let mut batch = Batch::new();
        peer.receive(&mut batch, 8).unwrap();
        assert_eq!(batch.len() as u64, ended.counters.tx_frames);
        batch.len()
    }

    #[test]
    fn only_the_first_worker_announces_the_servers_own_addresses() {
        assert_eq!(sent_at_start(0, true, true), 1);
        assert_eq!(sent_at_start(1, true, true), 0, "once is enough");
        assert_eq!(sent_at_start(0, false, true), 0, "the kernel has them");
        assert_eq!(sent_at_start(0, true, false), 0, "nobody serves");
    }

    #[test]
    fn the_segmentation_line_is_left_out_with_faults() {
        for (fault, expected) in [(None, 2), (Some(FaultConfig::default()), 1)] {
            let (port, _peer, _clock) = sim::link(&sim::LinkConfig::default(), 0);
            let mut stage = stage(0, false);
            stage.fault = fault;
            let mut lines = Vec::new();
            let note = |ready: Ready| {
                lines = ready.port;
                false
            };
            stage.observe(port, note).unwrap();
            assert_eq!(lines.len(), expected);
        }
    }
}
