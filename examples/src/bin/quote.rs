//! Sayings over UDP, from prepared packets. A client sends a name, and gets the name and a saying.
//!
//! ```text
//! # cargo run --release -p examples --bin quote
//! # echo kay | nc -u -w 1 198.18.0.2 17
//! ```
//!
//! The answer's *head* is the name as the client has sent it, which differs from request to request.
//! The rest is a prepared *tail*: its checksum is known, and it lies in packets in the port's memory.
//! For each answer, the server writes only the headers and the head into such a packet (*pre-copy*).

use std::collections::HashMap;
use std::process::ExitCode;

use control::{Named, Udp};
use nmio::{Instant, Port};
use udpip::{Answer, AnswerCopies, Datagram, Service, Tail};

const SAYINGS: [(&[u8], &[u8]); 3] = [
    (
        b"dijkstra",
        b": Simplicity is prerequisite for reliability.\n",
    ),
    (b"kay", b": Simple things should be simple.\n"),
    (b"saltzer", b": Functions belong at the ends.\n"),
];
const UNKNOWN: &[u8] = b": nobody knows this name\n";
/// Number of packets for each saying. With IPv4 and IPv6, two of each can be in flight. The server
/// copies further answers.
const PACKETS: usize = 4;

/// The service. Maps each name to its prepared answer.
struct Quotes {
    known: HashMap<&'static [u8], (Tail<'static>, AnswerCopies)>,
    unknown: Tail<'static>,
}

impl Service for Quotes {
    type Message = ();

    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        let name = datagram.payload().trim_ascii_end();
        let head = Answer::head(name.len());
        match self.known.get_mut(name) {
            // A name has one length, so all answers with these copies have heads of this length.
            Some((tail, copies)) => datagram.send_resident(head.with_tail(*tail), copies),
            None => datagram.turn_around(head.with_tail(self.unknown)),
        }
    }
}

impl Named for Quotes {
    const NAME: &'static str = "quote";
    const PORT: u16 = 17;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    let program = Udp::new(|_| {
        let prepare = |(name, text)| (name, (Tail::new(text), AnswerCopies::default()));
        Ok(Quotes {
            known: SAYINGS.map(prepare).into(),
            unknown: Tail::new(UNKNOWN),
        })
    });
    let program = program.with_residents((PACKETS * SAYINGS.len()) as u32);
    let example = |address: &str, port| format!("echo kay | nc -u -w 1 {address} {port}");
    program.with_try_command(example).serve()
}
