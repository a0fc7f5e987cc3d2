//! Echoes every datagram: the smallest server on the UDP stack.
//!
//! ```text
//! # cargo run --release -p examples --bin udp_echo
//! # nc -u 198.18.0.2 7       (the command that it prints after "try")
//! ```
//!
//! Without options the server creates its own link to this host; `--device` selects another device.
//! Ctrl-C ends it.

use nmio::{Instant, Port};
use udpip::{Datagram, Service, Tail};

struct Echo;

impl Service for Echo {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        // The answer is the whole received payload, in the frame in which it came, without a
        // prepared tail. If the TX ring is full, the loss is counted.
        let len = datagram.payload().len();
        datagram.turn_around(len, Tail::EMPTY, &[]);
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
