//! A program that consists of one application on TCP.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::process::ExitCode;

use nmio::device::Transport;
use nmio::{Instant, Port};
use tcpip::{Application, Config, Contents, Family, Stack};

use crate::args::network_args;
use crate::connections::check_reserved;
use crate::named::Named;
use crate::new_worker::NewWorker;
use crate::program::{
    Counted, Listening, PreparedPackets, Program, StartError, Tally, WorkerContext,
};
use crate::run::serve;
use crate::table::walk::Walk;
use crate::tcp_counts::tally_tcp;

/// A [`Program`] that serves one TCP application. Each worker runs its own instance of the
/// application. [`tcp()`](crate::tcp()) creates and serves such a program.
pub struct Tcp<A, F> {
    make: F,
    config: Config,
    try_command: fn(&str, u16) -> String,
    of: PhantomData<fn() -> A>,
}

impl<A, F> Tcp<A, F>
where
    A: Application + Named,
    F: Fn(&mut NewWorker<A::Message>, &mut Contents) -> Result<A, StartError> + Sync,
{
    /// Creates the program. `make` creates the application of each worker, before privileges are
    /// dropped. Content items that `make` adds are prepared before the first client connects.
    pub fn new(make: F) -> Self {
        Self {
            make,
            config: Config::default(),
            try_command: |address, port| format!("nc {address} {port}"),
            of: PhantomData,
        }
    }

    /// Sets the TCP configuration. Its ports are ignored: the port comes from the command-line
    /// options, or else from [`Named::PORT`].
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
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
        let args = network_args(A::NAME);
        serve(&args, || Ok::<_, Infallible>(self))
    }
}

impl<A, F> Program for Tcp<A, F>
where
    A: Application + Named,
    F: Fn(&mut NewWorker<A::Message>, &mut Contents) -> Result<A, StartError> + Sync,
{
    const NAME: &'static str = A::NAME;
    const VERSION: &'static str = A::VERSION;
    const DEFAULT_PORT: u16 = A::PORT;
    type Transports<P: Port> = Stack<A>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Stack<A>, StartError> {
        let config = Config {
            ports: vec![context.port],
            ..self.config.clone()
        };
        check_reserved(&config, <Stack<A>>::reserved_bytes(&config))?;
        let mut worker = NewWorker::new(context);
        let make = |contents: &mut Contents| (self.make)(&mut worker, contents);
        let (capabilities, secret) = (port.capabilities(), context.secret.words());
        let mut stack = Stack::load(&config, make, &capabilities, secret, Instant::ZERO)?;
        for family in [Family::V4, Family::V6] {
            stack.contents_mut().prepare_all(port.pool(), family);
        }
        if let Some(mailbox) = worker.into_mailbox() {
            stack.set_mailbox(mailbox);
        }
        Ok(stack)
    }

    fn prepared<P: Port>(&self, stack: &Stack<A>) -> PreparedPackets {
        let totals = stack.contents().totals();
        PreparedPackets {
            packets: totals.packets,
            bytes: totals.bytes,
        }
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(self.try_command)
    }

    fn counted<P: Port>(&self, stack: &Stack<A>) -> Counted {
        let tcp = stack.counters();
        Counted {
            partial_checksums: tcp.partial_checksum,
            evicted: tcp.evicted,
            ..Counted::default()
        }
    }

    fn tally<P: Port>(&self, stack: &Stack<A>, tally: &mut Tally) {
        tally_tcp(tally, stack.counters(), stack.states());
    }

    fn walk<P: Port>(&self, stack: &mut Stack<A>, now: Instant, walk: &mut Walk) {
        walk.visit(A::NAME, stack, now);
    }
}

impl<A: Named, F> fmt::Debug for Tcp<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp")
            .field("name", &A::NAME)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
