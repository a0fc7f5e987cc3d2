//! A program that consists of one application on TCP.

use std::fmt;
use std::marker::PhantomData;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use nmio::device::{MemoryPlan, Transport};
use nmio::{Instant, Port};
use tcpip::{Application, Config, CongestionControl, Contents, Cubic, Family, SendMode, Stack};

use crate::args::{ServeArgs, with_usage};
use crate::config::{self, ConfigArgs};
use crate::connections::{TcpArgs, check_reserved};
use crate::named::Named;
use crate::new_worker::NewWorker;
use crate::program::{
    Counted, Listening, PreparedPackets, Program, StartError, Tally, WorkerContext,
};
use crate::run::serve_loaded;
use crate::table::walk::Walk;
use crate::tcp_counts::tally_tcp;

/// Why a program with [`SendMode::PreCopy`] and without resident packets does not start.
const NO_RESIDENTS: &str = "SendMode::PreCopy needs memory for resident packets: set their number with \
                            control::Tcp::with_residents, or choose SendMode::MemCopy";

/// A [`Program`] that serves one TCP application. Each worker runs its own instance of the
/// application. [`tcp()`](crate::tcp()) creates and serves such a program.
pub struct Tcp<A, F, C = Cubic> {
    make: F,
    config: Config,
    residents: u32,
    try_command: fn(&str, u16) -> String,
    of: PhantomData<fn() -> (A, C)>,
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
            residents: 0,
            try_command: |address, port| format!("nc {address} {port}"),
            of: PhantomData,
        }
    }
}

impl<A, F, C> Tcp<A, F, C>
where
    A: Application + Named,
    F: Fn(&mut NewWorker<A::Message>, &mut Contents) -> Result<A, StartError> + Sync,
    C: CongestionControl,
{
    /// Sets the congestion control of the connections, such as [`Bbr`](tcpip::Bbr). The default is
    /// [`Cubic`].
    #[must_use]
    pub fn with_congestion<D: CongestionControl>(self) -> Tcp<A, F, D> {
        Tcp {
            make: self.make,
            config: self.config,
            residents: self.residents,
            try_command: self.try_command,
            of: PhantomData,
        }
    }

    /// Sets the TCP configuration. Its ports are ignored: the port comes from the command-line
    /// options, or else from [`Named::PORT`]. The mode [`SendMode::PreCopy`] also needs
    /// [`with_residents`](Self::with_residents).
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Sets the number of resident packets that a worker's port has memory for, by default 0. Only the
    /// mode [`SendMode::PreCopy`] uses them: one for each segment of a content item and each IP version,
    /// and more while several are in flight. A segment without one is copied when it is sent.
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

    /// Serves until Ctrl-C, with the options of [`ServeArgs`] and [`TcpArgs`]. The latter change the
    /// [configuration](Self::with_config). This call can be the complete `main`.
    pub fn serve(self) -> ExitCode {
        let cli = config::parse::<Cli>(with_usage(Cli::command().name(A::NAME))).cli;
        let config = cli.connections.config(self.config.clone());
        serve_loaded(&cli.network, self.with_config(config))
    }
}

/// Serves on its own network stack until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    network: ServeArgs,
    #[command(flatten)]
    connections: TcpArgs,
}

impl<A, F, C> Program for Tcp<A, F, C>
where
    A: Application + Named,
    F: Fn(&mut NewWorker<A::Message>, &mut Contents) -> Result<A, StartError> + Sync,
    C: CongestionControl,
{
    const NAME: &'static str = A::NAME;
    const VERSION: &'static str = A::VERSION;
    const DEFAULT_PORT: u16 = A::PORT;
    type Transports<P: Port> = Stack<A, C>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn memory(&self, _: &WorkerContext) -> MemoryPlan {
        MemoryPlan {
            resident_frames: self.residents,
            ..MemoryPlan::default()
        }
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Transports<P>, StartError> {
        if self.config.mode == SendMode::PreCopy && self.residents == 0 {
            return Err(NO_RESIDENTS.into());
        }
        let config = Config {
            ports: vec![context.port],
            ..self.config.clone()
        };
        check_reserved(&config, <Stack<A, C>>::reserved_bytes(&config))?;
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

    fn prepared<P: Port>(&self, stack: &Stack<A, C>) -> PreparedPackets {
        let totals = stack.contents().totals();
        PreparedPackets {
            packets: totals.packets,
            bytes: totals.bytes,
        }
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(self.try_command)
    }

    fn counted<P: Port>(&self, stack: &Stack<A, C>) -> Counted {
        let tcp = stack.counters();
        Counted {
            partial_checksums: tcp.partial_checksum,
            evicted: tcp.evicted,
            ..Counted::default()
        }
    }

    fn tally<P: Port>(&self, stack: &Stack<A, C>, tally: &mut Tally) {
        tally_tcp(tally, stack.counters(), stack.states());
    }

    fn walk<P: Port>(&self, stack: &mut Stack<A, C>, now: Instant, walk: &mut Walk) {
        walk.visit(A::NAME, stack, now);
    }
}

impl<A: Named, F, C> fmt::Debug for Tcp<A, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp")
            .field("name", &A::NAME)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nmio::sim::Sink;
    use tcpip::{Connection, NewReno};

    use super::*;

    struct Silent;

    impl Application for Silent {
        type State = ();
        type Message = ();

        fn on_receive(&mut self, _: &mut Connection<'_, ()>, data: &[u8]) -> usize {
            data.len()
        }
    }

    impl Named for Silent {
        const NAME: &'static str = "silent";
        const PORT: u16 = 9;
    }

    #[test]
    fn a_program_has_the_options_and_the_congestion_control_that_it_is_given() {
        let words = ["silent", "--max-connections", "9", "--port", "8"];
        let cli = Cli::try_parse_from(words).unwrap();
        let program = Tcp::new(|_: &mut NewWorker<()>, _: &mut Contents| Ok(Silent));
        let config = cli.connections.config(Config {
            ipv6_prefix: 48,
            ..Config::default()
        });
        let program = program.with_config(config).with_congestion::<NewReno>();
        let mut context = WorkerContext::example(0, 1);
        context.port = cli.network.port.unwrap();
        let mut port = Sink::new(1500, 64, 0);
        let stack: Stack<Silent, NewReno> = program.transports(&mut port, &context).unwrap();
        assert!(stack.serves(8) && !stack.serves(9));
        assert_eq!(program.config.max_connections, 9);
        assert_eq!(program.config.ipv6_prefix, 48);
    }

    #[test]
    fn pre_copy_needs_memory_for_resident_packets() {
        let make = |_: &mut NewWorker<()>, contents: &mut Contents| {
            contents.add(vec![7; 2_000].into(), None)?;
            Ok(Silent)
        };
        let program = Tcp::new(make).with_config(Config {
            mode: SendMode::PreCopy,
            ..Config::default()
        });
        let context = WorkerContext::example(0, 1);
        let residents = |program: &Tcp<Silent, _>| {
            let mut port = Sink::new(1500, 64, program.memory(&context).resident_frames);
            let stack = program.transports(&mut port, &context)?;
            Ok::<_, StartError>(stack.contents().totals().residents)
        };
        let error = residents(&program).unwrap_err().to_string();
        assert!(error.contains("with_residents"), "{error}");
        // Two segments over IPv4, and two over IPv6.
        assert_eq!(residents(&program.with_residents(5)).unwrap(), 4);
    }

    /// The stack does not know when a request is complete.
    #[test]
    fn there_is_no_option_that_has_no_effect() {
        let words = ["silent", "--request-timeout", "2"];
        assert!(Cli::try_parse_from(words).is_err());
    }
}
