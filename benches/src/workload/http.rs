//! GET requests for pages of 1 KB or for a missing page, on a persistent connection or with a new
//! connection for each request.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, SystemTime};

use control::{LogDestination, WorkerSnapshot};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port, Times};
use sandstorm::reply::Status;
use sandstorm::{AccessLogArgs, AccessLogSenders, AccessLogs, Builder, Http, Sandstorm, Server};
use tcpip::{Config, SendMode};
use testkit::{ACK, PSH};

use super::tcp::Visit;
use super::{SECRET, Workload};
use crate::{Client, numbers, patch};

pub(super) const KEEP_ALIVE: &[u8] =
    b"GET /page HTTP/1.1\r\nHost: storm.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
const CLOSE: &[u8] =
    b"GET /page HTTP/1.1\r\nHost: storm.test\r\nUser-Agent: bench\r\nConnection: close\r\n\r\n";
const NOT_FOUND: &[u8] =
    b"GET /none HTTP/1.1\r\nHost: storm.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
/// Chromium's request for a page, with its own 16 fields.
const CHROMIUM: &[u8] = b"GET /page HTTP/1.1\r\n\
    Host: storm.test\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/140.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
    image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: http://storm.test/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-US,en;q=0.9\r\n\
    Cookie: session=bench/0123456789abcdef0123; theme=dark\r\n\
    \r\n";
pub(super) const PAGE_LEN: usize = 1024;
/// 2026-11-21T08:29:37Z, the fixed time of the server's clock.
const NOW: Duration = Duration::from_secs(1_795_249_777);

/// Number of different pages that a workload requests in turn. The server's cache of answers has
/// fewer entries, so it does not hold the answers to most requests.
const PAGES: usize = 1_000;

/// Creates a server on `port` with `/page` of 1 KB.
pub(super) fn server_on<P: Port>(port: &P, mode: SendMode) -> Server {
    server_of(port, mode, PAGE_LEN, 0)
}

/// Creates a server on `port` with `/page` of `len` bytes and `others` further pages of 1 KB.
fn server_of<P: Port>(port: &P, mode: SendMode, len: usize, others: usize) -> Server {
    let now = SystemTime::UNIX_EPOCH + NOW;
    let mut site =
        Builder::keyed(now, SECRET).file(b"/page", SystemTime::UNIX_EPOCH, &vec![b'x'; len]);
    for n in 0..others {
        let path = format!("/{n:04}");
        let content = [b"0123456789"[n % 10]; PAGE_LEN];
        site = site.file(path.as_bytes(), SystemTime::UNIX_EPOCH, &content);
    }
    let site = site.build();
    let config = Config {
        mode,
        max_time_wait: 0,
        ..Config::on_ports(&[80])
    };
    let host = crate::host();
    let addresses = host.station().addresses();
    let http = Http::new(site.into(), addresses, &config, port, SECRET, Instant::ZERO)
        .expect("the site fits")
        .with_wall_clock(|| SystemTime::UNIX_EPOCH + NOW);
    Server::new(host, http)
}

/// Creates a sink and a server on it, with `/page` of `len` bytes and `others` further pages of 1 KB.
fn server(mode: SendMode, len: usize, others: usize) -> (Sink, Server) {
    let sink = Sink::new(1500, 64, 256);
    let server = server_of(&sink, mode, len, others);
    (sink, server)
}

/// Returns the length of the response to `request`. The response must fit into one segment.
fn response_len(sink: &mut Sink, server: &mut Server, request: &[u8]) -> u32 {
    sink.copy_residents(true);
    let mut client = Client::open(sink, server, 5000, 65_535);
    client.send(sink, server, ACK | PSH, request);
    let len = numbers(sink.last()).2;
    sink.copy_residents(false);
    len
}

/// Returns a request with one more field at its end.
fn with_field(request: &[u8], field: &str) -> Vec<u8> {
    let end = request.len() - "\r\n".len();
    [&request[..end], field.as_bytes(), b"\r\n\r\n"].concat()
}

/// Builds one request like `request` for each of the pages `/0000` to `/0999`. `client` returns what
/// the fields have in place of `bench` for a page number.
fn page_requests(request: &[u8], client: fn(usize) -> String) -> Vec<Vec<u8>> {
    let request = |n| {
        let request = String::from_utf8_lossy(request).replace("/page", &format!("/{n:04}"));
        request.replace("bench", &client(n)).into_bytes()
    };
    (0..PAGES).map(request).collect()
}

/// A workload of requests on one persistent connection.
pub struct KeepAlive {
    sink: Sink,
    server: Server,
    client: Client,
    /// Frames of the requests, which the client sends in turn.
    requests: Vec<Vec<u8>>,
    next: usize,
    request_len: u32,
    response_len: u32,
    status: Status,
    sent_requests: u64,
    sent_before: u64,
}

impl KeepAlive {
    /// Creates a workload that requests the page of 1 KB.
    ///
    /// # Panics
    /// Panics if the response is not as long as a head and this page in one segment.
    pub fn page(mode: SendMode) -> Self {
        let new = Self::new(mode, 0, &[KEEP_ALIVE.to_vec()], Status::Ok);
        assert!(
            (PAGE_LEN as u32 + 1..1460).contains(&new.response_len),
            "the response is a head and the page in one segment"
        );
        new
    }

    /// Creates a workload that requests the page of 1 KB, and logs each request. No thread writes
    /// the records, so they stay in the ring.
    ///
    /// # Panics
    /// Panics if the log cannot be opened.
    pub fn logged(mode: SendMode) -> Self {
        let log = AccessLogArgs::to(LogDestination::File("/dev/null".into()));
        let log = AccessLogs::of_one("bench", "site", &log).expect("the log can be opened");
        let mut page = Self::page(mode);
        let Server { transports, .. } = page.server;
        let http = transports.with_access_log(log.senders());
        page.server = Server::new(crate::host(), http);
        page
    }

    /// Creates a workload that requests a thousand pages of 1 KB in turn.
    pub fn pages(mode: SendMode) -> Self {
        Self::of_client(mode, KEEP_ALIVE)
    }

    /// Creates a workload that requests a thousand pages in turn, each with a different user agent.
    pub fn strangers(mode: SendMode) -> Self {
        Self::of_strangers(mode, KEEP_ALIVE)
    }

    /// Creates a workload that requests the page of 1 KB with Chromium's fields.
    pub fn chromium(mode: SendMode) -> Self {
        Self::new(mode, 0, &[CHROMIUM.to_vec()], Status::Ok)
    }

    /// Creates a workload that requests a thousand pages in turn with the same fields of Chromium.
    pub fn chromium_pages(mode: SendMode) -> Self {
        Self::of_client(mode, CHROMIUM)
    }

    /// Creates a workload that requests a thousand pages in turn with Chromium's fields, each with a
    /// different cookie.
    pub fn chromium_strangers(mode: SendMode) -> Self {
        Self::of_strangers(mode, CHROMIUM)
    }

    fn of_client(mode: SendMode, request: &[u8]) -> Self {
        let requests = page_requests(request, |_| "bench".into());
        Self::new(mode, PAGES, &requests, Status::Ok)
    }

    fn of_strangers(mode: SendMode, request: &[u8]) -> Self {
        let requests = page_requests(request, |n| format!("b{n:04}"));
        Self::new(mode, PAGES, &requests, Status::Ok)
    }

    /// Creates a workload that requests a page that does not exist.
    pub fn not_found(mode: SendMode) -> Self {
        Self::new(mode, 0, &[NOT_FOUND.to_vec()], Status::NotFound)
    }

    /// Creates a workload that requests the page of 1 KB, which the client already has.
    pub fn not_modified(mode: SendMode) -> Self {
        Self::with_field(mode, "If-None-Match: *", Status::NotModified)
    }

    /// Creates a workload that requests an empty page. Its response is the shortest one with status 200.
    pub fn empty(mode: SendMode) -> Self {
        let request = with_field(KEEP_ALIVE, "X-Not-Match: *");
        Self::on(server(mode, 0, 0), &[request], Status::Ok)
    }

    /// Creates a workload that requests all bytes of the page of 1 KB as a range.
    pub fn range(mode: SendMode) -> Self {
        Self::with_field(mode, "Range: bytes=0-", Status::PartialContent)
    }

    /// Creates a workload that requests a whole page. Its request and its response are as long as those
    /// of [`range`](Self::range).
    ///
    /// # Panics
    /// Panics if they are not.
    pub fn as_long_as_range(mode: SendMode) -> Self {
        let (range, field) = (Self::range(mode), "X-Pad: bytes=0-");
        let page = Self::with_field(mode, field, Status::Ok);
        let len = PAGE_LEN + (range.response_len - page.response_len) as usize;
        let request = with_field(KEEP_ALIVE, field);
        let new = Self::on(server(mode, len, 0), &[request], Status::Ok);
        let lens = |one: &Self| (one.request_len, one.response_len);
        assert_eq!(lens(&new), lens(&range));
        new
    }

    /// Creates a workload that requests all bytes of a thousand pages as a range, each with a different
    /// user agent.
    pub fn range_strangers(mode: SendMode) -> Self {
        let request = with_field(KEEP_ALIVE, "Range: bytes=0-");
        let requests = page_requests(&request, |n| format!("b{n:04}"));
        Self::new(mode, PAGES, &requests, Status::PartialContent)
    }

    /// Creates a workload that requests the page of 1 KB with Chromium's fields. The client already has
    /// the page.
    pub fn chromium_not_modified(mode: SendMode) -> Self {
        let request = with_field(CHROMIUM, "If-None-Match: *");
        Self::new(mode, 0, &[request], Status::NotModified)
    }

    /// Creates a workload that requests all bytes of the page of 1 KB as a range, with Chromium's fields.
    pub fn chromium_range(mode: SendMode) -> Self {
        let request = with_field(CHROMIUM, "Range: bytes=0-");
        Self::new(mode, 0, &[request], Status::PartialContent)
    }

    fn with_field(mode: SendMode, field: &str, status: Status) -> Self {
        Self::new(mode, 0, &[with_field(KEEP_ALIVE, field)], status)
    }

    /// Creates a workload that sends `requests` in turn. All requests must have the same length,
    /// and all responses must have the same length.
    fn new(mode: SendMode, others: usize, requests: &[Vec<u8>], status: Status) -> Self {
        Self::on(server(mode, PAGE_LEN, others), requests, status)
    }

    /// Same as [`new`](Self::new), on a server that exists.
    fn on((mut sink, mut server): (Sink, Server), requests: &[Vec<u8>], status: Status) -> Self {
        let response_len = response_len(&mut sink, &mut server, &requests[0]);
        let client = Client::open(&mut sink, &mut server, 4096, 65_535);
        let frame = |request: &Vec<u8>| client.segment(ACK | PSH, request);
        Self {
            requests: requests.iter().map(frame).collect(),
            next: 0,
            request_len: requests[0].len() as u32,
            response_len,
            status,
            sent_requests: 0,
            sent_before: server.transports.stack().counters().segments_sent,
            sink,
            server,
            client,
        }
    }
}

impl Workload for KeepAlive {
    #[inline(always)]
    fn run(&mut self) {
        let client = &mut self.client;
        self.next += 1;
        if self.next == self.requests.len() {
            self.next = 0;
        }
        let request = &mut self.requests[self.next];
        patch(request, client.seq, client.ack);
        let frame = self.sink.frame_from(request);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
        client.seq = client.seq.wrapping_add(self.request_len);
        client.ack = client.ack.wrapping_add(self.response_len);
        self.sent_requests += 1;
    }

    fn check(&self) {
        let stack = self.server.transports.stack();
        let sent = stack.counters().segments_sent - self.sent_before;
        assert_eq!(sent, self.sent_requests, "one segment for each request");
        // `new` sent one more request to measure the length of the response.
        let replies = stack.app().counters().of(self.status);
        assert_eq!(replies, self.sent_requests + 1);
        let lost = stack.app().access_log().map_or(0, AccessLogSenders::lost);
        assert_eq!(lost, 0, "the ring has room for all records");
    }
}

/// A workload that publishes the counts of a server, as a worker does ten times a second. The lock of
/// the snapshot is left out.
pub struct Publish {
    worker: KeepAlive,
    program: Sandstorm,
    snapshot: WorkerSnapshot,
}

impl Publish {
    /// Number of requests before the first snapshot.
    const REQUESTS_BEFORE: u64 = 100;

    /// Creates a server that has answered some requests.
    pub fn new() -> Self {
        let mut worker = KeepAlive::page(SendMode::MemCopy);
        for _ in 0..Self::REQUESTS_BEFORE {
            worker.run();
        }
        let site = Builder::keyed(SystemTime::UNIX_EPOCH + NOW, SECRET).build();
        Self {
            worker,
            program: Sandstorm::new(site, Path::new("/"), Config::default()),
            snapshot: WorkerSnapshot::default(),
        }
    }
}

impl Default for Publish {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for Publish {
    fn run(&mut self) {
        let KeepAlive { server, sink, .. } = &self.worker;
        let times = black_box(Times::default());
        control::take_snapshot(&mut self.snapshot, &self.program, server, sink, &times);
    }

    fn check(&self) {
        // One more request measures the length of the response.
        let requests = self.snapshot.tally().of("requests");
        assert_eq!(requests, Some(Self::REQUESTS_BEFORE + 1));
        self.worker.check();
    }
}

/// A workload that only parses Chromium's request with `httparse`, to compare with requests that the
/// server reads anew.
pub struct Httparse {
    parsed: u64,
    requests: u64,
}

impl Httparse {
    /// Creates the workload.
    ///
    /// # Panics
    /// Panics on an x86 processor without AVX2. `httparse` selects its instructions when it runs, so
    /// its count would be another there.
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        assert!(
            is_x86_feature_detected!("avx2"),
            "the count of `httparse` needs a processor with AVX2"
        );
        Self {
            parsed: 0,
            requests: 0,
        }
    }
}

impl Default for Httparse {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for Httparse {
    #[inline(always)]
    fn run(&mut self) {
        let mut fields = [const { MaybeUninit::uninit() }; sandstorm::MAX_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(CHROMIUM), &mut fields);
        self.parsed += u64::from(parsed == Ok(httparse::Status::Complete(CHROMIUM.len())));
        black_box(&request);
        self.requests += 1;
    }

    fn check(&self) {
        assert_eq!(self.parsed, self.requests, "each request is complete");
    }
}

/// A workload that opens a new connection for each request and closes it afterwards.
pub struct OwnConnection {
    sink: Sink,
    server: Server,
    visit: Visit,
    open_before: u32,
}

impl OwnConnection {
    /// Creates a workload that requests the page of 1 KB.
    pub fn new(mode: SendMode) -> Self {
        let (mut sink, mut server) = server(mode, PAGE_LEN, 0);
        let len = response_len(&mut sink, &mut server, CLOSE);
        Self {
            open_before: server.transports.stack().connections(),
            sink,
            server,
            visit: Visit::new(CLOSE, len),
        }
    }
}

impl Workload for OwnConnection {
    #[inline(always)]
    fn run(&mut self) {
        self.visit.run(&mut self.sink, &mut self.server);
    }

    fn check(&self) {
        let stack = self.server.transports.stack();
        assert_eq!(
            stack.connections(),
            self.open_before,
            "each connection has ended"
        );
        assert_eq!(
            stack.app().counters().of(Status::Ok),
            self.visit.made + 1,
            "each connection got an answer"
        );
    }
}
