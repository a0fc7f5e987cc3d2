//! A whole program around one application or one service.

use std::convert::Infallible;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use tcpip::{Application, Contents};
use udpip::Service;

use crate::args::ServeArgs;
use crate::named::Named;
use crate::new_worker::NewWorker;
use crate::program::StartError;
use crate::run::serve;
use crate::tcp::Tcp;
use crate::udp::Udp;

/// Serves TCP with one application for each worker, by the options of [`ServeArgs`] and
/// the defaults of [`Config`](tcpip::Config): a whole `main`.
///
/// `make` is called for each worker, before rights are given up. It may
/// [open a mailbox](NewWorker::open_mailbox), and add contents, which are prepared
/// before the first client comes; callbacks may add more. A server with options of its
/// own calls [`serve`] with a [`Tcp`] in its hand.
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
///     control::tcp(|_, _| Ok(Echo))
/// }
/// ```
pub fn tcp<A: Application + Named>(
    make: impl Fn(&mut NewWorker<A::Message>, &mut Contents) -> Result<A, StartError> + Sync,
) -> ExitCode {
    serve(&network_args(A::NAME), || {
        Ok::<_, Infallible>(Tcp::new(make))
    })
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
    serve(&network_args(S::NAME), || {
        Ok::<_, Infallible>(Udp::new(make))
    })
}

/// Serves on this stack of its own until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

/// The command line of the program with this name, which takes no options but those of
/// [`ServeArgs`]. It ends the process when it is wrong, or asks for help.
pub fn network_args(name: &'static str) -> ServeArgs {
    let matches = Cli::command().name(name).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.network
}
