//! A whole program around one application or one service.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use nmio::device::Transport;
use nmio::mailbox::Sender;
use nmio::{Instant, Mailbox, Port};
use tcpip::{Application, Config, Contents, Family, Stack};
use udpip::Service;

use crate::args::ServeArgs;
use crate::connections::check_reserved;
use crate::new_worker::NewWorker;
use crate::program::{Listening, Program, StartError, Tally, WorkerContext};
use crate::run::serve;

/// What a program is called, and where it serves: see [`tcp()`](crate::tcp()) and
/// [`udp()`](crate::udp()).
pub trait Named {
    /// The program's name, at most 12 bytes long.
    const NAME: &'static str;
    /// The port that is served without `--port`.
    const PORT: u16;
    /// The program's version, for the start block: `env!("CARGO_PKG_VERSION")` is the
    /// package's.
    const VERSION: &'static str = "without a version";
}

/// Serves TCP with one application for each worker, by the options of [`ServeArgs`] and
/// the defaults of [`Config`]: a whole `main`.
///
/// `make` is called for each worker, before rights are given up. It may add
/// [contents](TcpWorker::contents_mut), which are prepared before the first client
/// comes; callbacks may add more. A server with options of its own implements
/// [`Program`] and calls [`serve`].
///
/// ```no_run
/// use tcpip::{Application, Connection};
///
/// struct Echo;
///
/// impl Application for Echo {
///     type State = ();
///     type Message = ();
///
///     fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
///         // Without room the bytes are offered again later.
///         conn.write_bytes(data).map_or(0, |()| data.len())
///     }
/// }
///
/// impl control::Named for Echo {
///     const NAME: &'static str = "echo";
///     const PORT: u16 = 7;
/// }
///
/// fn main() -> std::process::ExitCode {
///     control::tcp(|_| Ok(Echo))
/// }
/// ```
pub fn tcp<A: Application + Named>(
    make: impl Fn(&mut TcpWorker<'_, A::Message>) -> Result<A, StartError> + Sync,
) -> ExitCode {
    let program = TcpProgram {
        make,
        of: PhantomData,
    };
    serve(&network_args(A::NAME), || Ok::<_, Infallible>(program))
}

/// Serves UDP with one service for each worker: as [`tcp()`](crate::tcp()).
///
/// `make` is called for each worker, before rights are given up. It may
/// [open a mailbox](NewWorker::open_mailbox), by which other threads reach the
/// service.
///
/// ```no_run
/// use nmio::{Instant, Port};
/// use udpip::{Datagram, Service, Tail};
///
/// struct Echo;
///
/// impl Service for Echo {
///     type Message = ();
///
///     fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
///         let len = datagram.payload().len();
///         datagram.turn_round(len, Tail::EMPTY, &[]);
///     }
/// }
///
/// impl control::Named for Echo {
///     const NAME: &'static str = "echo";
///     const PORT: u16 = 7;
/// }
///
/// fn main() -> std::process::ExitCode {
///     control::udp(|_| Ok(Echo))
/// }
/// ```
pub fn udp<S: Service + Named>(
    make: impl Fn(&mut NewWorker<S::Message>) -> Result<S, StartError> + Sync,
) -> ExitCode {
    let program = UdpProgram {
        make,
        of: PhantomData,
    };
    serve(&network_args(S::NAME), || Ok::<_, Infallible>(program))
}

/// A worker whose application is being made.
#[derive(Debug)]
pub struct TcpWorker<'c, M> {
    index: u32,
    workers: u32,
    contents: &'c mut Contents,
    mailbox: Option<Mailbox<M>>,
}

impl<M: Send> TcpWorker<'_, M> {
    /// Its number, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// How many workers there are.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// The contents of its stack, none yet.
    pub fn contents_mut(&mut self) -> &mut Contents {
        self.contents
    }

    /// Opens the worker's mailbox, for `capacity` messages. What is sent to it comes
    /// to [`Application::on_message`]. A second one takes the place of the first.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn open_mailbox(&mut self, capacity: usize) -> io::Result<Sender<M>> {
        let (sender, mailbox) = nmio::mailbox(capacity)?;
        self.mailbox = Some(mailbox);
        Ok(sender)
    }
}

/// Serves on this stack of its own until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

/// The command line of the program with this name, which takes no options but those of
/// [`ServeArgs`]. Ends the process when it is
/// wrong, or asks for help.
pub fn network_args(name: &'static str) -> ServeArgs {
    let matches = Cli::command().name(name).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.network
}

struct TcpProgram<A, F> {
    make: F,
    of: PhantomData<fn() -> A>,
}

impl<A, F> Program for TcpProgram<A, F>
where
    A: Application + Named,
    F: Fn(&mut TcpWorker<'_, A::Message>) -> Result<A, StartError> + Sync,
{
    const NAME: &'static str = A::NAME;
    const VERSION: &'static str = A::VERSION;
    const DEFAULT_PORT: u16 = A::PORT;
    type Handler<P: Port> = tcpip::Server<A>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<tcpip::Server<A>, StartError> {
        let capabilities = port.capabilities();
        let config = Config::on_ports(&[context.port]);
        check_reserved(&config, <Stack<A>>::reserved_bytes(&config))?;
        let mut mailbox = None;
        let make = |contents: &mut Contents| {
            let mut worker = TcpWorker {
                index: context.index,
                workers: context.workers,
                contents,
                mailbox: None,
            };
            let app = (self.make)(&mut worker);
            mailbox = worker.mailbox;
            app
        };
        let secret = context.secret.words();
        let mut stack = Stack::load(&config, make, &capabilities, secret, Instant::ZERO)?;
        for family in [Family::V4, Family::V6] {
            stack.contents_mut().prepare_all(port.pool(), family);
        }
        let server = tcpip::Server::new(context.host(&capabilities), stack);
        Ok(match mailbox {
            Some(mailbox) => server.with_mailbox(mailbox),
            None => server,
        })
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(|address, port| format!("nc {address} {port}"))
    }

    fn tally<P: Port>(&self, server: &tcpip::Server<A>, tally: &mut Tally) {
        let tcp = server.stack.counters();
        tally.event("connections", tcp.accepted);
        tally.event("bytes sent", tcp.bytes_sent);
        let drops = server.host.counters().drops().into_iter();
        for (reason, count) in drops.chain(tcp.drops()) {
            tally.drop(reason, count);
        }
    }
}

struct UdpProgram<S, F> {
    make: F,
    of: PhantomData<fn() -> S>,
}

impl<S, F> Program for UdpProgram<S, F>
where
    S: Service + Named,
    F: Fn(&mut NewWorker<S::Message>) -> Result<S, StartError> + Sync,
{
    const NAME: &'static str = S::NAME;
    const VERSION: &'static str = S::VERSION;
    const DEFAULT_PORT: u16 = S::PORT;
    type Handler<P: Port> = udpip::Server<S>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn handler<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<udpip::Server<S>, StartError> {
        let mut worker = NewWorker::new(context);
        let service = (self.make)(&mut worker)?;
        let host = context.host(&port.capabilities());
        let server = udpip::Server::new(host, context.port, service);
        Ok(match worker.into_mailbox() {
            Some(mailbox) => server.with_mailbox(mailbox),
            None => server,
        })
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(|address, port| format!("nc -u {address} {port}"))
    }

    fn tally<P: Port>(&self, server: &udpip::Server<S>, tally: &mut Tally) {
        let udp = server.udp().counters();
        tally.event("datagrams", udp.received);
        tally.event("answered", udp.answered);
        let drops = server.host().counters().drops().into_iter();
        for (reason, count) in drops.chain(udp.drops()) {
            tally.drop(reason, count);
        }
    }
}
