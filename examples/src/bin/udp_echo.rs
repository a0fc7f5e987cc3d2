//! Sends every datagram back: the smallest server on the UDP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin udp_echo
//! # nc -u 198.18.0.2 7       (the line that it prints behind "try")
//! ```
//!
//! Without options it makes a wire of its own to this host; `--device` names
//! another one. Ctrl-C ends it.

use nmio::{Instant, Port};
use udpip::{Datagram, Service, Tail};

struct Echo;

impl Service for Echo {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        // The answer is the received payload from its first to its last byte,
        // in the frame that it came in; nothing is prepared behind it. That
        // the TX ring had no room for it is counted.
        let len = datagram.payload().len();
        datagram.turn_round(len, Tail::EMPTY, &[]);
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
