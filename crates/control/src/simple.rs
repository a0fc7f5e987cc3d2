//! Runs a complete program that consists of one application or one service.

use std::process::ExitCode;

use tcpip::{Application, Contents};
use udpip::Service;

use crate::error::StartError;
use crate::named::Named;
use crate::new_worker::NewWorker;
use crate::tcp::Tcp;
use crate::udp::Udp;

/// Serves TCP with one application for each worker. A call of this function is a complete `main`.
/// The program takes the options of [`ServeArgs`](crate::ServeArgs) and [`TcpArgs`](crate::TcpArgs). It
/// has the defaults of [`Config`](tcpip::Config).
///
/// `make` is called for each worker, before privileges are dropped. It may [open a
/// mailbox](NewWorker::open_mailbox) and add content items, which are prepared before the first
/// client connects. Callbacks may add further content items later. [`Tcp`] offers more settings. A
/// program with its own options passes a [`Tcp`] to [`serve_loaded`](crate::serve_loaded).
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
///         // If there is no room, the bytes are offered again later.
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
    Tcp::new(make).serve()
}

/// Serves UDP with one service for each worker, like [`tcp()`](crate::tcp()).
///
/// `make` is called for each worker, before privileges are dropped. It may
/// [open a mailbox](NewWorker::open_mailbox), through which other threads reach the service.
///
/// ```no_run
/// use nmio::{Instant, Port};
/// use udpip::{Answer, Datagram, Service};
///
/// struct Echo;
///
/// impl Service for Echo {
///     type Message = ();
///
///     fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
///         let len = datagram.payload().len();
///         datagram.turn_around(Answer::head(len));
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
    Udp::new(make).serve()
}
