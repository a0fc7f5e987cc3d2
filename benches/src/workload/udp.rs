//! UDP datagrams that the server sends back unchanged. This is the least work that a server can do.

use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use udpip::{Answer, Datagram, Server, Service, Udp};

use super::Workload;

/// Sends every datagram back.
#[derive(Debug)]
struct Echo;

impl Service for Echo {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        let len = datagram.payload().len();
        datagram.turn_around(Answer::head(len));
    }
}

/// A workload of datagrams that the server sends back in the received frame.
pub struct Reflect {
    sink: Sink,
    server: Server<Echo>,
    request: Vec<u8>,
}

impl Reflect {
    /// Creates a workload of datagrams with a payload of `payload` bytes.
    pub fn new(payload: usize) -> Self {
        Self {
            sink: Sink::new(1500, 64, 0),
            server: Server::new(crate::host(), Udp::new(7, Echo)),
            request: crate::datagram(4096, 7, &vec![b'x'; payload]),
        }
    }

    /// Returns the length of the frame in bytes.
    pub fn frame_len(&self) -> usize {
        self.request.len()
    }
}

impl Workload for Reflect {
    #[inline(always)]
    fn run(&mut self) {
        let frame = self.sink.frame_from(&self.request);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
    }

    fn check(&self) {
        let counters = self.server.transports.counters();
        assert_eq!(counters.answered, counters.received);
    }
}
