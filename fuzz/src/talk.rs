//! A client without faults, and a server on a simulated wire: bytes over TCP, cut as
//! they come, and all that is sent in answer.

use std::time::Duration;

use ip::{Host, Input, PROTOCOL_TCP, Path, Server, Transports};
use nmio::sim::{self, EndConfig, LinkConfig, SimPort};
use nmio::{Batch, Handler, Instant, Port};
use smoltcp::wire::TcpPacket;

use crate::{OWN, PEER, packet, path, station};

const CLIENT_PORT: u16 = 40_000;
/// Bytes of data in one segment.
const MAX_DATA: usize = 1_400;
const FRAMES: u32 = 160;
/// How the client's time goes by when it waits.
const STEP: Duration = Duration::from_millis(10);
/// It waits for so many steps for a window that opens.
const PATIENCE: u32 = 100;
/// After so many steps without anything from the server nothing comes any more.
const QUIET: u32 = 20;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// What a client has got.
#[derive(Debug, PartialEq, Eq)]
pub struct Got {
    pub bytes: Vec<u8>,
    /// The server has closed its side.
    pub is_closed: bool,
}

/// Sends `pieces`, each in segments of its own, to the server on `port` that `make` makes,
/// and closes its side then if it `ends`. The server must not be silent for 0.2 s before
/// its last byte.
pub fn talk<T: Transports<SimPort>>(
    port: u16,
    make: impl FnOnce(&SimPort) -> T,
    pieces: &[&[u8]],
    ends: bool,
) -> Got {
    let end = EndConfig {
        io_frames: FRAMES,
        resident_frames: 0,
        tx_ring: FRAMES as usize,
        ..EndConfig::default()
    };
    let config = LinkConfig {
        a: end,
        b: end,
        ..LinkConfig::default()
    };
    let (server_port, wire, _) = sim::link(&config, 0);
    let transports = make(&server_port);
    let mut client = Client {
        server: Server::new(Host::own(station(OWN)), transports),
        server_port,
        wire,
        host: Host::own(station(PEER)),
        path: path(false, None),
        port,
        now: Instant::ZERO,
        snd_nxt: 1,
        edge: 1,
        rcv_nxt: 0,
        got: Got {
            bytes: Vec::new(),
            is_closed: false,
        },
    };
    client.send_alone(SYN, &[]);
    client.snd_nxt += 1;
    client.collect();
    client.send(ACK, &[]);
    for piece in pieces {
        client.send_piece(piece);
    }
    if ends {
        client.end();
    }
    let mut quiet = 0;
    while quiet < QUIET {
        let before = client.rcv_nxt;
        client.pass();
        quiet = if client.rcv_nxt == before {
            quiet + 1
        } else {
            0
        };
    }
    client.got
}

struct Client<T> {
    server: Server<T>,
    server_port: SimPort,
    wire: SimPort,
    /// Takes what the server sends apart.
    host: Host,
    path: Path,
    port: u16,
    now: Instant,
    snd_nxt: u32,
    /// Where the server's window ends.
    edge: u32,
    rcv_nxt: u32,
    got: Got,
}

impl<T: Transports<SimPort>> Client<T> {
    /// Sends as the server's window allows, until that has closed its side.
    fn send_piece(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !self.got.is_closed {
            let most = self.window().min(MAX_DATA);
            let (data, rest) = piece.split_at(piece.len().min(most));
            self.send(PSH | ACK, data);
            piece = rest;
        }
    }

    /// Closes the client's side, unless the server has closed its own.
    fn end(&mut self) {
        if !self.got.is_closed && self.window() > 0 {
            self.send_alone(FIN | ACK, &[]);
            self.snd_nxt = self.snd_nxt.wrapping_add(1);
            self.collect();
        }
    }

    /// Waits until the server's window is open. 0 when that closes its side meanwhile.
    fn window(&mut self) -> usize {
        let mut patience = PATIENCE;
        while self.edge == self.snd_nxt && !self.got.is_closed {
            assert!(patience > 0, "the window stays shut");
            patience -= 1;
            self.pass();
        }
        self.edge.wrapping_sub(self.snd_nxt) as usize
    }

    fn pass(&mut self) {
        self.now = self.now + STEP;
        self.server.handle_timers(&mut self.server_port, self.now);
        self.collect();
    }

    /// Sends one segment, and acknowledges what it brings about.
    fn send(&mut self, control: u8, data: &[u8]) {
        self.send_alone(control, data);
        self.snd_nxt = self.snd_nxt.wrapping_add(data.len() as u32);
        self.collect();
    }

    fn send_alone(&mut self, control: u8, data: &[u8]) {
        let mut segment = Vec::with_capacity(20 + data.len());
        segment.extend(CLIENT_PORT.to_be_bytes());
        segment.extend(self.port.to_be_bytes());
        segment.extend(self.snd_nxt.to_be_bytes());
        segment.extend(self.rcv_nxt.to_be_bytes());
        segment.extend([5 << 4, control, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend_from_slice(data);
        let packet = packet(&self.path, PROTOCOL_TCP, &segment);
        let frame = self.server_port.pool().take();
        let mut frame = frame.expect("a free frame");
        frame.set_len(packet.len());
        frame.copy_from_slice(&packet);
        self.server
            .handle_frame(&mut self.server_port, frame, self.now);
    }

    /// Takes what the server has sent, and acknowledges it, until nothing comes any more.
    fn collect(&mut self) {
        loop {
            self.server_port.flush().expect("a simulated port");
            let mut batch = Batch::new();
            let received = self.wire.receive(&mut batch, nmio::MAX_BATCH);
            received.expect("a simulated port");
            if batch.is_empty() {
                return;
            }
            let before = self.rcv_nxt;
            for frame in batch {
                match self.host.receive(frame, self.now) {
                    Input::Tcp(packet) => self.take(packet.payload()),
                    other => panic!("the client refuses it: {other:?}"),
                }
            }
            if self.rcv_nxt != before && before != 0 {
                self.send_alone(ACK, &[]);
            }
        }
    }

    fn take(&mut self, segment: &[u8]) {
        let tcp = TcpPacket::new_checked(segment).expect("a segment");
        assert!(!tcp.rst(), "a reset");
        let seq = tcp.seq_number().0.cast_unsigned();
        let ack = tcp.ack_number().0.cast_unsigned();
        self.edge = ack.wrapping_add(tcp.window_len().into());
        if tcp.syn() {
            self.rcv_nxt = seq.wrapping_add(1);
            return;
        }
        let len = tcp.payload().len() as u32 + u32::from(tcp.fin());
        if len > 0 {
            assert_eq!(
                seq, self.rcv_nxt,
                "nothing is lost, and nothing comes again"
            );
            self.rcv_nxt = seq.wrapping_add(len);
            self.got.bytes.extend_from_slice(tcp.payload());
            self.got.is_closed |= tcp.fin();
        }
    }
}

/// The parts of `bytes`, cut at these places.
pub fn cut<'a>(bytes: &'a [u8], cuts: &[u16]) -> Vec<&'a [u8]> {
    let cuts = cuts.iter().map(|cut| usize::from(*cut) % (bytes.len() + 1));
    let mut at: Vec<usize> = cuts.chain([0, bytes.len()]).collect();
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}
