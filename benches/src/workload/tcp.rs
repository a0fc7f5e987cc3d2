//! ACKs that each release one segment, and whole short connections, on the TCP stack without an
//! application protocol.

use std::sync::Arc;

use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use tcpip::{Application, Config, Connection, ContentId, Family, SendMode, Server, Stack};
use testkit::{ACK, FIN, PSH, SYN};

use super::{SECRET, Workload};
use crate::{Client, numbers, patch};

const MSS: u32 = 1448;
/// Number of segments of the content item. The content item is small enough to stay in the CPU
/// cache.
const SEGMENTS: u32 = 64;
/// Number of segments in flight. Each ACK acknowledges one segment and releases the next.
const IN_FLIGHT: u32 = 8;
/// Limit for the difference between the numbers of ACKs and sent segments. The numbers differ by
/// the segments in flight and the growth of the congestion window.
const SLACK: u64 = 64;

/// An application that sends one content item, either once or repeatedly.
struct Stream {
    content: Option<ContentId>,
    once: bool,
}

impl Application for Stream {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        self.on_sent(conn);
        if self.once {
            conn.close();
        }
        data.len()
    }

    fn on_sent(&mut self, conn: &mut Connection<'_, ()>) {
        let Some(content) = self.content else { return };
        while conn.write(content, 0).is_ok() && !self.once {}
    }
}

fn server(mode: SendMode, len: usize, once: bool) -> (Sink, Server<Stream>) {
    let mut sink = Sink::new(1500, 64, 4 * SEGMENTS);
    sink.copy_residents(true);
    let config = Config {
        mode,
        max_time_wait: 0,
        ..Config::on_ports(&[80])
    };
    let app = Stream {
        content: None,
        once,
    };
    let mut stack = Stack::new(&config, app, &sink.capabilities(), SECRET, Instant::ZERO);
    let (app, contents) = stack.parts_mut();
    let id = contents
        .add(Arc::from(vec![b'x'; len]), None)
        .expect("the content is added");
    contents.prepare(id, sink.pool(), Family::V4);
    app.content = Some(id);
    (sink, Server::new(crate::host(), stack))
}

/// A workload of ACKs that each release a full segment in the middle of a long download.
pub struct AckToSegment {
    sink: Sink,
    server: Server<Stream>,
    frame: Vec<u8>,
    seq: u32,
    ack: u32,
    acked: u64,
    sent_before: u64,
}

impl AckToSegment {
    /// Creates a workload with a download that has just started. Its window is a few segments.
    ///
    /// # Panics
    /// Panics if the server does not send full segments.
    pub fn new(mode: SendMode) -> Self {
        let (mut sink, mut server) = server(mode, (SEGMENTS * MSS) as usize, false);
        let window = (IN_FLIGHT * MSS) as u16;
        let mut client = Client::open(&mut sink, &mut server, 4096, window);
        client.send(&mut sink, &mut server, ACK | PSH, b"go");
        assert_eq!(numbers(sink.last()).2, MSS);
        sink.copy_residents(false);
        Self {
            frame: client.segment(ACK, &[]),
            seq: client.seq,
            ack: client.ack,
            acked: 0,
            sent_before: sink.counters().tx_frames,
            sink,
            server,
        }
    }
}

impl Workload for AckToSegment {
    #[inline(always)]
    fn run(&mut self) {
        self.acked += 1;
        self.ack = self.ack.wrapping_add(MSS);
        patch(&mut self.frame, self.seq, self.ack);
        let frame = self.sink.frame_from(&self.frame);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
    }

    fn check(&self) {
        let sent = self.sink.counters().tx_frames - self.sent_before;
        assert!(
            sent.abs_diff(self.acked) < SLACK,
            "{sent} segments for {} ACKs",
            self.acked
        );
    }
}

/// A workload that opens a new connection for each download of 1 KB.
pub struct ShortConnection {
    sink: Sink,
    server: Server<Stream>,
    visit: Visit,
}

impl ShortConnection {
    /// Creates a workload whose server sends a content item of 1,024 bytes on each connection.
    pub fn new(mode: SendMode) -> Self {
        let (mut sink, server) = server(mode, 1024, true);
        sink.copy_residents(false);
        Self {
            sink,
            server,
            visit: Visit::new(b"GET", 1024),
        }
    }
}

impl Workload for ShortConnection {
    #[inline(always)]
    fn run(&mut self) {
        self.visit.run(&mut self.sink, &mut self.server);
    }

    fn check(&self) {
        assert_eq!(
            self.server.transports.connections(),
            0,
            "each connection has ended"
        );
        assert_eq!(self.server.transports.counters().accepted, self.visit.made);
    }
}

/// One visit of a client: it opens a connection, sends one request, receives the answer and closes.
/// Its four frames are built in advance.
pub(super) struct Visit {
    frames: [Vec<u8>; 4],
    /// Sequence numbers of the frames.
    seqs: [u32; 4],
    /// Length of the answer in bytes.
    answer: u32,
    /// Number of visits so far.
    pub(super) made: u64,
}

impl Visit {
    pub(super) fn new(request: &[u8], answer: u32) -> Self {
        let mut client = Client {
            port: 4096,
            seq: 1000,
            ack: 0,
            window: u16::MAX,
        };
        let behind = 1 + request.len() as u32;
        let pieces: [(u16, &[u8], u32); 4] = [
            (SYN, &[], 0),
            (ACK, &[], 1),
            (ACK | PSH, request, 1),
            (FIN | ACK, &[], behind),
        ];
        let first = client.seq;
        let seqs = pieces.map(|(_, _, at)| first + at);
        let frames = pieces.map(|(bits, data, at)| {
            client.seq = first + at;
            client.segment(bits, data)
        });
        Self {
            frames,
            seqs,
            answer,
            made: 0,
        }
    }

    #[inline(always)]
    pub(super) fn run<H: Handler<Sink>>(&mut self, sink: &mut Sink, server: &mut H) {
        let mut send = |sink: &mut Sink, at: usize, ack: u32| {
            let frame = &mut self.frames[at];
            patch(frame, self.seqs[at], ack);
            let frame = sink.frame_from(frame);
            server.handle_frame(sink, frame, Instant::ZERO);
        };
        send(sink, 0, 0);
        // The server sends the SYN-ACK as an ordinary frame in every mode, so the sink has the
        // bytes of the SYN-ACK.
        let ack = numbers(sink.last()).0.wrapping_add(1);
        send(sink, 1, ack);
        send(sink, 2, ack);
        // Acknowledges the answer and the server's FIN.
        send(sink, 3, ack.wrapping_add(self.answer + 1));
        self.made += 1;
    }
}
