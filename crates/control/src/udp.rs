//! A program that consists of one service on UDP.

use std::fmt;
use std::marker::PhantomData;
use std::process::ExitCode;

use nmio::Port;
use nmio::device::{MemoryPlan, Transport};
use udpip::{Counters, Service, Udp as UdpPort};

use crate::args::network_args;
use crate::named::Named;
use crate::new_worker::NewWorker;
use crate::program::{Counted, Listening, Program, StartError, Tally, WorkerContext};
use crate::run::serve_loaded;
use crate::tally::Labels;

/// A [`Program`] that serves one UDP service. Each worker runs its own instance of the service.
/// [`udp()`](crate::udp()) creates and serves such a program.
pub struct Udp<S, F> {
    make: F,
    residents: u32,
    try_command: fn(&str, u16) -> String,
    of: PhantomData<fn() -> S>,
}

impl<S, F> Udp<S, F>
where
    S: Service + Named,
    F: Fn(&mut NewWorker<S::Message>) -> Result<S, StartError> + Sync,
{
    /// Creates the program. `make` creates the service of each worker, before privileges are
    /// dropped.
    pub fn new(make: F) -> Self {
        Self {
            make,
            residents: 0,
            try_command: |address, port| format!("nc -u {address} {port}"),
            of: PhantomData,
        }
    }

    /// Sets the number of resident packets that a worker's port has memory for, by default 0. They are
    /// the packets of [`AnswerCopies`](udpip::AnswerCopies): for each prepared answer, one for each IP
    /// version, and more while several are in flight.
    #[must_use]
    pub fn with_residents(self, residents: u32) -> Self {
        Self { residents, ..self }
    }

    /// Sets the function that makes the command in the start block's line `try`. The function gets
    /// one of the server's addresses and the port.
    #[must_use]
    pub fn with_try_command(self, try_command: fn(&str, u16) -> String) -> Self {
        Self {
            try_command,
            ..self
        }
    }

    /// Serves until Ctrl-C, with the options of [`ServeArgs`](crate::ServeArgs). This call can be
    /// the complete `main`.
    pub fn serve(self) -> ExitCode {
        serve_loaded(&network_args(S::NAME), self)
    }
}

impl<S, F> Program for Udp<S, F>
where
    S: Service + Named,
    F: Fn(&mut NewWorker<S::Message>) -> Result<S, StartError> + Sync,
{
    const NAME: &'static str = S::NAME;
    const VERSION: &'static str = S::VERSION;
    const DEFAULT_PORT: u16 = S::PORT;
    type Transports<P: Port> = UdpPort<S>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn memory(&self, _: &WorkerContext) -> MemoryPlan {
        MemoryPlan {
            resident_frames: self.residents,
            ..MemoryPlan::default()
        }
    }

    fn transports<P: Port>(
        &self,
        _port: &mut P,
        context: &WorkerContext,
    ) -> Result<UdpPort<S>, StartError> {
        let mut worker = NewWorker::new(context);
        let service = (self.make)(&mut worker)?;
        let mut udp = UdpPort::new(context.port, service);
        if let Some(mailbox) = worker.into_mailbox() {
            udp.set_mailbox(mailbox);
        }
        Ok(udp)
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(self.try_command)
    }

    fn counted<P: Port>(&self, udp: &UdpPort<S>) -> Counted {
        Counted {
            partial_checksums: udp.counters().partial_checksum,
            ..Counted::default()
        }
    }

    fn tally<P: Port>(&self, udp: &UdpPort<S>, tally: &mut Tally) {
        let counters = udp.counters();
        tally.event("datagrams", counters.received);
        tally.event("answered", counters.answered);
        tally_udp(tally, counters);
    }
}

/// Adds the counts of UDP to `tally` that every program with UDP has.
pub fn tally_udp(tally: &mut Tally, udp: &Counters) {
    let copies = "datagrams copied for want of resident packets";
    tally.detail(copies, Labels::NONE, udp.residents_exhausted);
    for (reason, count) in udp.drops() {
        tally.drop(reason, count);
    }
}

impl<S: Named, F> fmt::Debug for Udp<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Udp")
            .field("name", &S::NAME)
            .finish_non_exhaustive()
    }
}
