//! Echoes every datagram: the smallest server on the UDP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin udp_echo
//! # nc -u 198.18.0.2 7       (the command that it prints after "try")
//! ```
//!
//! Without options, the server creates its own link to this host; `--device` selects another
//! device. Press Ctrl-C to stop the server.

use nmio::{Instant, Port};
use udpip::{Answer, Datagram, Service};

struct Echo;

impl Service for Echo {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        // The answer is the whole received payload, and is sent in the received frame. If the TX ring
        // is full, the answer is lost and counted.
        let len = datagram.payload().len();
        datagram.turn_around(Answer::head(len));
    }
}

impl control::Named for Echo {
    const NAME: &'static str = "udp-echo";
    const PORT: u16 = 7;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> std::process::ExitCode {
    control::udp(|_| Ok(Echo))
}
