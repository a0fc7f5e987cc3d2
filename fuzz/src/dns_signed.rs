//! Sends queries with a signature (TSIG), of which some bytes are then changed. An independent reader must
//! accept each reply.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::dns::{HEADER_LEN, Message, ZONE, labels};
use crate::{CLIENT_PORT, edit, station};
use arbitrary::Arbitrary;
use domain::base::Message as Reader;
use ip::Host;
use namestorm::{Form, MAX_UDP_MESSAGE, ReplyMode, Server, TsigKeys, UdpAndTcp, prepare_text};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use testkit::tsig::{KEY_FILE, Signature};
use testkit::{Route, read};

const PORT: u16 = 53;
/// Seconds since 1970.
const NOW: u64 = 1_800_000_000;
/// Maximum length of a message without its signature.
const MAX_MESSAGE: usize = 1300;

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    message: Message<'a>,
    /// How far the client's clock is ahead, in seconds.
    ahead: i16,
    /// Number of bytes at the end that are missing.
    missing: u8,
    /// Edits of the signature.
    edits: Vec<(u8, u8)>,
}

thread_local! {
    static SERVER: RefCell<(Server, Sink)> = RefCell::new(server());
    static LABELS: Vec<&'static str> = labels();
}

fn server() -> (Server, Sink) {
    let zone = format!("$ORIGIN storm.test.\n{ZONE}");
    let answers = Arc::new(prepare_text(&zone, Form::Wire).expect("a valid zone"));
    let sink = Sink::new(1500, 8, 0);
    let mode = ReplyMode::Turnaround;
    let mut udp_and_tcp = UdpAndTcp::new(PORT, &answers, mode, &sink.capabilities(), [1; 4]);
    let keys = TsigKeys::parse(KEY_FILE).expect("a key");
    let keys = keys.with_clock(|| UNIX_EPOCH + Duration::from_secs(NOW));
    udp_and_tcp.set_tsig_keys(Arc::new(keys));
    (Server::new(Host::own(station(), [0; 4]), udp_and_tcp), sink)
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let query = LABELS.with(|labels| input.message.bytes(labels, MAX_MESSAGE));
    if query.len() < HEADER_LEN {
        return;
    }
    let signature = Signature::at(NOW.saturating_add_signed(input.ahead.into()));
    let (mut signed, _) = signature.sign(&query);
    edit(&mut signed[query.len()..], &input.edits);
    signed.truncate(signed.len() - usize::from(input.missing).min(signed.len() - query.len()));
    SERVER.with_borrow_mut(|(server, sink)| {
        let sent = sink.counters().tx_frames;
        let route = Route::to_server(false, CLIENT_PORT, PORT);
        let frame = sink.frame_from(&route.datagram(&signed));
        server.handle_frame(sink, frame, Instant::ZERO);
        if sink.counters().tx_frames == sent {
            return;
        }
        let packet = read(sink.last()).expect("a valid packet");
        let reply = packet.datagram().expect("a datagram");
        assert!(reply.len() <= MAX_UDP_MESSAGE, "{} bytes", reply.len());
        let reply = Reader::from_octets(reply).expect("a header");
        assert!(reply.header().qr());
        assert_eq!(reply.header().id().to_be_bytes(), query[..2]);
        let records = reply.iter().map(|record| record.expect("a record")).count();
        let counts = reply.header_counts();
        let counts = [counts.ancount(), counts.nscount(), counts.arcount()];
        assert_eq!(records, counts.into_iter().map(usize::from).sum::<usize>());
    });
}
