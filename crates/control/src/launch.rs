//! Starts a worker's thread for each queue of an open interface, and composes the start block when
//! all workers are ready.

use std::ops::Add;
use std::path::{Path, PathBuf};
use std::thread::{Builder, Scope};

use ip::Host;
use nmio::device::{QueueAccess, QueueSource, Transport};
use nmio::{Bell, FaultConfig, Mailbox, Stop};

use crate::args::ServeArgs;
use crate::error::{Error, OptionError};
use crate::follower::{self, Follower, NetworkChange};
use crate::live::Published;
use crate::port_conflicts::wrong_ports;
use crate::privileges::Privileges;
use crate::program::{Listening, PreparedPackets, Program, WorkerContext};
use crate::report::{self, Block, Lines};
use crate::secret::Secret;
use crate::status::SITE_AT;
use crate::worker::{Ready, Worker};
use crate::workers::{self, Event, Workers};

/// Everything that is needed to start the workers.
pub(crate) struct Launch<'a, P> {
    pub(crate) program: &'a P,
    pub(crate) args: &'a ServeArgs,
    pub(crate) privileges: &'a Privileges,
    pub(crate) interface: &'a QueueAccess,
    /// The places where the workers publish their counts, one for each queue.
    pub(crate) published: &'a [Published],
    pub(crate) stop: &'a Stop,
}

impl<'a, P: Program> Launch<'a, P> {
    /// Starts a worker for each of the queues `sources`. The workers report their events through
    /// `tell`, and hear of changes of the network from `follower`.
    ///
    /// # Errors
    /// If the system refuses a thread or random bytes. Workers already started then end without
    /// serving.
    pub(crate) fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        sources: Vec<QueueSource>,
        follower: &mut Follower,
        tell: impl Fn(Event) + Clone + Send + 'scope,
    ) -> Result<Workers<'a>, Error>
    where
        'a: 'scope,
    {
        let mut workers = Workers::new(self.stop);
        let mut mailboxes = Vec::new();
        for (index, source) in (0..).zip(sources) {
            let context = self.context(index)?;
            let (mailbox, network) = context.bell.mailbox(follower::MAILBOX);
            mailboxes.push(mailbox);
            let worker = self.worker(context, source, network);
            let (gate, tell, stop) = (workers.add(), tell.clone(), self.stop);
            Builder::new()
                .name(format!("{}-{index}", P::NAME))
                .spawn_scoped(scope, move || workers::work(worker, &gate, tell, stop))
                .map_err(Error::system("starting a worker's thread"))?;
        }
        let places = self.program.places(self.port());
        follower.state().note_places(places);
        follower.set_workers(mailboxes);
        Ok(workers)
    }

    fn worker(
        &self,
        context: WorkerContext,
        source: QueueSource,
        network: Mailbox<NetworkChange>,
    ) -> Worker<'a, P> {
        let (index, workers) = (context.index, context.workers);
        let pcap = self.args.pcap.as_deref();
        Worker {
            program: self.program,
            interface: self.interface.name(),
            host: Host::of_interface(self.interface, context.secret.words()),
            context,
            privileges: self.privileges,
            source,
            pcap: pcap.map(|path| pcap_path(path, index, workers)),
            fault: self.args.fault.map(|fault| FaultConfig {
                seed: fault.seed.wrapping_add(u64::from(index)),
                ..fault
            }),
            config: self.args.loop_config(),
            published: &self.published[index as usize],
            network,
        }
    }

    fn context(&self, index: u32) -> Result<WorkerContext, Error> {
        let interface = self.interface;
        Ok(WorkerContext {
            index,
            workers: interface.queues(),
            mac: interface.mac(),
            addresses: interface.addresses().to_vec(),
            vlans: interface.vlans().to_vec(),
            own: interface.is_own(),
            mtu: interface.mtu(),
            resident_len: interface.resident_len(),
            port: self.port(),
            secret: Secret::random().map_err(Error::system("getting random bytes"))?,
            bell: Bell::new().map_err(Error::system("making an eventfd"))?,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.args.port.unwrap_or(P::DEFAULT_PORT)
    }

    /// Returns the addresses and the port of the server.
    pub(crate) fn listening(&self) -> Listening {
        let addresses = self.interface.addresses().iter().map(|one| one.address);
        Listening::new(addresses.collect(), self.port())
    }

    /// Composes the start block from the reports in `ready`, one for each worker. `more` are lines
    /// about the endpoints and about the dropped privileges.
    pub(crate) fn start_block(&self, more: Lines, ready: &[Ready]) -> Block {
        let mut block = Block::default();
        block.line(P::NAME, P::VERSION);
        for (label, value) in self.program.loaded() {
            block.line(label, value);
        }
        let prepared = ready.iter().map(|one| one.prepared);
        if let Some(packets) = prepared_packets(prepared.fold(PreparedPackets::default(), Add::add))
        {
            block.line("prepared", packets);
        }
        for (label, value) in self.interface.summary() {
            block.line(label, value);
        }
        port_lines(&mut block, ready);
        if let Some(fault) = self.args.fault {
            let text = format!("{fault}, for tests only; each segment is sent as a frame");
            block.line("faults", text);
        }
        block.line("workers", ready.len().to_string());
        for (label, value) in more {
            block.line(label, value);
        }
        let listening = self.listening();
        let addresses = listening.addresses.iter().map(ToString::to_string);
        let addresses: Vec<String> = addresses.collect();
        block.line(
            "listening",
            format!(
                "{}, {}",
                addresses.join(" "),
                ports(&self.program.services(listening.port))
            ),
        );
        for place in self.program.places(listening.port) {
            if let Some(site) = place.among(&listening.addresses).site_line() {
                block.line(SITE_AT, site);
            }
        }
        for command in self.program.try_commands(&listening) {
            block.line("try", command);
        }
        block
    }
}

/// Returns the services of `program` with these options. Its ports must differ. The addresses of a site
/// must be among the server's own ones, if it has any.
///
/// # Errors
/// [`Error::PortZero`] and [`Error::PortTwice`], or an [`OptionError`] about an address.
pub(crate) fn checked_services<P: Program>(
    args: &ServeArgs,
    program: &P,
) -> Result<Vec<(Transport, u16)>, Error> {
    let services = services(program, args.port)?;
    let own: Vec<_> = args.addresses.iter().map(|one| one.address).collect();
    if !own.is_empty() {
        let checked = program.check_addresses(&own);
        checked.map_err(|error| Error::Start(OptionError::new(error).into()))?;
    }
    Ok(services)
}

/// Returns the services of `program` on `port`, or on its default port if `port` is `None`.
///
/// # Errors
/// [`Error::PortZero`] and [`Error::PortTwice`].
pub(crate) fn services<P: Program>(
    program: &P,
    port: Option<u16>,
) -> Result<Vec<(Transport, u16)>, Error> {
    let owners = program.port_owners(port.unwrap_or(P::DEFAULT_PORT));
    match wrong_ports(&owners).into_iter().next() {
        Some(error) => Err(error),
        None => Ok(owners.into_iter().flat_map(|one| one.services).collect()),
    }
}

/// Formats the ports of `services` for the start block. If there are several ports, adds their
/// transports.
fn ports(services: &[(Transport, u16)]) -> String {
    let mut ports: Vec<(u16, Vec<&str>)> = Vec::new();
    for (transport, port) in services {
        let name = match transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        match ports.iter_mut().find(|(listed, _)| listed == port) {
            Some((_, transports)) => transports.push(name),
            None => ports.push((*port, vec![name])),
        }
    }
    match &ports[..] {
        [(port, _)] => format!("port {port}"),
        ports => {
            let each = ports
                .iter()
                .map(|(port, transports)| format!("{} port {port}", transports.join(" and ")));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Describes the packets that all workers have prepared. Returns `None` if there are none, because a
/// program may also make its packets later.
fn prepared_packets(prepared: PreparedPackets) -> Option<String> {
    let packets = report::count(prepared.packets);
    let text = format!("{packets} packets, {}", report::bytes(prepared.bytes));
    (prepared.packets > 0).then_some(text)
}

/// Adds the facts about the workers' ports: once if they are the same for all workers, and
/// otherwise for each worker.
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

fn pcap_path(path: &Path, index: u32, workers: u32) -> PathBuf {
    if workers == 1 {
        return path.to_path_buf();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    name.into()
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
    fn packets_are_counted_only_if_some_are_prepared() {
        let prepared = PreparedPackets {
            packets: 2,
            bytes: 300,
        };
        assert_eq!(prepared_packets(prepared).unwrap(), "2 packets, 300 B");
        assert_eq!(prepared_packets(PreparedPackets::default()), None);
    }

    #[test]
    fn several_ports_are_listed_with_their_transports() {
        let (tcp, udp) = (Transport::Tcp, Transport::Udp);
        assert_eq!(ports(&[(tcp, 80)]), "port 80");
        assert_eq!(ports(&[(udp, 53), (tcp, 53)]), "port 53");
        assert_eq!(
            ports(&[(tcp, 80), (udp, 53), (tcp, 53)]),
            "TCP port 80, UDP and TCP port 53"
        );
    }

    #[test]
    fn each_of_several_workers_writes_its_own_capture() {
        assert_eq!(pcap_path(Path::new("a.pcap"), 0, 1), Path::new("a.pcap"));
        assert_eq!(pcap_path(Path::new("a.pcap"), 1, 2), Path::new("a.pcap.1"));
    }
}
