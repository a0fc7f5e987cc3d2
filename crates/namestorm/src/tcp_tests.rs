use clap::Parser;
use eth::{Mac, Station};
use ip::Host;
use nmio::sim::Sink;
use nmio::{Handler as _, Instant, Port as _};
use testkit::{ACK, Layout, Route, SERVER, SERVER_MAC, SYN, Segment, read_segment};

use super::*;
use crate::key::Form;
use crate::query_log::{QueryLog, QueryLogArgs};
use crate::server::{Server, UdpAndTcp};
use crate::service::{Dns, ReplyMode};
use crate::{prepare_text, rcode, rtype};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    log: QueryLogArgs,
}

/// A client of a server whose log has a place for one of so many queries.
struct Client {
    server: Server,
    sink: Sink,
    seq: u32,
    ack: u32,
}

impl Client {
    fn open(zone: &str, log: &QueryLog) -> Self {
        let answers = Arc::new(prepare_text(zone, Form::Wire).unwrap());
        let mut over_tcp = DnsOverTcp::new(Arc::clone(&answers), IDLE_TIMEOUT);
        over_tcp.set_query_log(Some(log.sender(true)));
        let sink = Sink::new(1500, 64, 256);
        let dns = Dns::new(answers, ReplyMode::Turnaround);
        let (config, capabilities) = (TcpSettings::default().stack, sink.capabilities());
        let transports = UdpAndTcp::with_hook(53, dns, over_tcp, &config, &capabilities, [5; 4]);
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        let mut client = Self {
            server: Server::new(Host::own(station, [0; 4]), transports),
            sink,
            seq: 0,
            ack: 0,
        };
        client.exchange(&Segment::of_client(SYN, 0, 0, b""));
        client
    }

    /// Sends bytes, and returns true if the server sends something. Acknowledges the segments of earlier
    /// calls only if `reads` is set.
    fn send(&mut self, data: &[u8], reads: bool) -> bool {
        let ack = self.ack;
        let has_reply = self.exchange(&Segment::of_client(ACK, self.seq, ack, data));
        if !reads {
            self.ack = ack;
        }
        has_reply
    }

    fn exchange(&mut self, segment: &Segment) -> bool {
        let sent = self.sink.counters().tx_frames;
        let frame = Route::to_server(false, 40_000, 53).segment(segment, Layout::Usual);
        let frame = self.sink.frame_from(&frame);
        self.seq += segment.span();
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
        let has_reply = self.sink.counters().tx_frames > sent;
        if has_reply {
            let reply = read_segment(self.sink.last()).unwrap().segment;
            self.ack = reply.seq.wrapping_add(reply.span());
        }
        has_reply
    }

    fn app(&self) -> &DnsOverTcp {
        self.server.transports.tcp().app()
    }
}

#[test]
fn a_query_whose_reply_has_to_wait_is_logged_once() {
    const SAMPLE: u32 = 1_000_000;
    const AT_ONCE: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let options = [
        "test".to_owned(),
        format!("--query-log={}", path("log")),
        format!("--dnstap={}", path("tap")),
        format!("--query-log-sample={SAMPLE}"),
    ];
    let args = Cli::parse_from(options).log;
    let log = QueryLog::open(&args, "test", "1").unwrap().unwrap();
    let text = format!(" {}", "x".repeat(250)).repeat(12);
    let zone = format!("$ORIGIN z.\n@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns.y.\n@ 60 TXT{text}\n");
    let mut client = Client::open(&zone, &log);
    let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let query = [
        &[0, 19][..],
        &header,
        b"\x01z\0",
        &rtype::TXT.to_be_bytes(),
        &[0, 1],
    ]
    .concat();
    let logged = |client: &Client| client.app().query_log().unwrap().queries();
    // The client reads nothing, so the server's send buffer fills up.
    let mut queries = 0;
    for _ in 0..36 {
        client.send(&query.repeat(AT_ONCE), false);
        queries += AT_ONCE as u32;
        let answered = client.app().counters().queries as u32;
        assert_eq!(logged(&client), answered);
    }
    assert!(logged(&client) < queries, "all replies fit at once");
    while client.send(b"", true) {}
    assert_eq!(logged(&client), queries);
    let replies = client.app().counters().replies[usize::from(rcode::NOERROR)];
    assert_eq!(replies, u64::from(queries));
    // A query without a reply counts, too.
    client.send(b"\0\x05short", true);
    assert_eq!(logged(&client), queries + 1);
}
