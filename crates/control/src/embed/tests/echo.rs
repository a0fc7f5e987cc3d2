//! An echo server on TCP for the tests, and its client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tcpip::{Application, Connection, Contents};

use super::*;
use crate::{Named, NewWorker, Tcp};

struct Echo;

impl Application for Echo {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, connection: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        connection.write_bytes(data).map_or(0, |()| data.len())
    }
}

impl Named for Echo {
    const NAME: &'static str = "embed-echo";
    const PORT: u16 = PORT;
}

/// Starts an echo server.
pub(super) fn start_echo(args: ServeArgs) -> Starting {
    let make = |_: &mut NewWorker<()>, _: &mut Contents| Ok(Echo);
    embed(args, Tcp::new(make))
}

/// Opens a connection from this thread's network namespace. A worker may need a moment until it serves
/// a new address.
pub(super) fn connect(address: impl Into<IpAddr>) -> TcpStream {
    let server = SocketAddr::new(address.into(), PORT);
    let mut connected = None;
    eventually("a connection", || {
        connected = TcpStream::connect_timeout(&server, TIMEOUT).ok();
        connected.is_some()
    });
    let stream = connected.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends a text, and expects it back.
pub(super) fn expect_echo(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut bytes = vec![0; text.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, text.as_bytes());
}
