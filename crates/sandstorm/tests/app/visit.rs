//! Simulated clients, their requests, and the responses that they should receive.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::probe::Probe;
use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{LinkConfig, PathConfig};
use nmio::{Clock, Instant};
use sandstorm::{Builder, Fields, Http, Server};
use tcpip::Config;
use testkit::smol::{Client, Talk};
use testkit::{Link, SERVER, SERVER_MAC};

pub(crate) const PORT: u16 = 80;
/// Maximum simulated time of one run of the clients and the server.
pub(crate) const LONGEST: Duration = Duration::from_mins(3);

/// Returns the tests' time of day: Sat, 21 Nov 2026 08:29:37.5 GMT.
pub(crate) fn wall_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_795_249_777_500)
}

/// The result of one client's visit.
pub(crate) struct Outcome {
    pub(crate) received: String,
    pub(crate) closed_by_server: bool,
}

/// Runs several clients concurrently against one server.
pub(crate) fn visits<const FIRST: bool>(
    config: &Config,
    talks: &[Talk],
) -> (Vec<Outcome>, Server<Probe<FIRST>>) {
    visits_over(path(), config, talks)
}

/// Returns the settings of a short link without loss.
pub(crate) fn path() -> PathConfig {
    PathConfig {
        delay: Duration::from_millis(2),
        ..PathConfig::default()
    }
}

/// Same as [`visits`], but over the given link.
pub(crate) fn visits_over<const FIRST: bool>(
    path: PathConfig,
    config: &Config,
    talks: &[Talk],
) -> (Vec<Outcome>, Server<Probe<FIRST>>) {
    let mut link = Link::new(&LinkConfig::symmetric(path), 1);
    let modified = wall_clock() - Duration::from_secs(1000);
    let fields = Fields::of_all([("Server", "probe")]).unwrap();
    let site = Builder::with_fields(wall_clock(), fields)
        .file(b"/a.txt", modified, b"a file\n")
        .file(b"/docs/index.html", modified, b"docs\n")
        .build();
    let (sender, mailbox) = nmio::mailbox(1_024).unwrap();
    let station = Station::new(Mac(SERVER_MAC), &SERVER);
    let bell = mailbox.bell().clone();
    let http: Http<Probe<FIRST>> = Http::load(
        Arc::new(site),
        |replies| Probe::new(sender, replies),
        &SERVER,
        config,
        &link.server,
        [1, 2, 3, 4],
        Instant::ZERO,
    )
    .unwrap()
    .with_wall_clock(wall_clock)
    .with_mailbox(mailbox)
    .with_answer_timeout(Duration::from_secs(20));
    let mut server = Server::new(Host::own(station, [0; 4]), http).with_bell(bell);
    let mut client = Client::new(1500);
    for talk in talks {
        client.connect(PORT, talk.clone());
    }
    let mut since = None;
    let clock = link.clock.clone();
    let done = link.run(&mut client, &mut server, LONGEST, |client, _| {
        // Requests of clients that have gone may still be pending, so the server runs for another
        // second.
        let now = clock.now();
        client.done() && now > *since.get_or_insert(now) + Duration::from_secs(1)
    });
    assert!(done, "the clients did not finish in time");
    let outcomes = client.connections.into_iter().map(|connection| Outcome {
        received: String::from_utf8(connection.received).unwrap(),
        closed_by_server: connection.closed_by_server,
    });
    (outcomes.collect(), server)
}

pub(crate) fn config() -> Config {
    Config::on_ports(&[PORT])
}

/// Sends `bytes`, half-closes the connection, and returns everything that the server sends.
pub(crate) fn talk(bytes: impl AsRef<[u8]>) -> String {
    talk_cut(bytes.as_ref(), Vec::new())
}

pub(crate) fn talk_cut(bytes: &[u8], cuts: Vec<usize>) -> String {
    let talk = Talk {
        bytes: bytes.to_vec(),
        cuts,
        half_close: true,
        ..Talk::default()
    };
    let (mut outcomes, _) = visits::<true>(&config(), &[talk]);
    assert!(outcomes[0].closed_by_server);
    outcomes.remove(0).received
}

pub(crate) fn request(method: &str, target: &str, fields: &str, body: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

pub(crate) fn get(target: &str) -> String {
    request("GET", target, "", "")
}

pub(crate) fn post(target: &str, body: &str) -> String {
    let len = format!("Content-Length: {}\r\n", body.len());
    request("POST", target, &len, body)
}

pub(crate) fn chunked(target: &str, chunks: &str) -> String {
    request("POST", target, "Transfer-Encoding: chunked\r\n", chunks)
}

/// Returns the expected text of a response. The lines in `fields` follow the fields that all
/// responses contain.
pub(crate) fn response(status: &str, keep_alive: bool, fields: &str, body: &str) -> String {
    let option = if keep_alive {
        "keep-alive"
    } else {
        "close     "
    };
    format!(
        "HTTP/1.1 {status}\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: {option}\r\n\
         Server: probe\r\n\
         {fields}\r\n\
         {body}"
    )
}

pub(crate) fn text(body: &str) -> String {
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
        body.len()
    );
    response("200 OK", true, &fields, body)
}

/// Returns the expected response with the server's own page about `status`.
pub(crate) fn page(status: &str, keep_alive: bool, explanation: &str) -> String {
    let paragraph = match explanation {
        "" => String::new(),
        text => format!("<p>{text}</p>\n"),
    };
    let body = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{status}</title>\n<h1>{status}</h1>\n{paragraph}</html>\n"
    );
    let fields = format!(
        "Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n",
        body.len()
    );
    response(status, keep_alive, &fields, &body)
}

pub(crate) fn file(fields: &str) -> String {
    let own = "Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: 7\r\n\
         Last-Modified: Sat, 21 Nov 2026 08:12:57 GMT\r\n\
         ETag: \"TAG\"\r\n\
         Accept-Ranges: bytes\r\n";
    response("200 OK", true, &format!("{own}{fields}"), "a file\n")
}

/// Replaces the value of each entity tag with `TAG`, because these tests do not check the values.
pub(crate) fn without_tags(received: &str) -> String {
    let mut parts = received.split("ETag: \"");
    let mut kept = parts.next().unwrap().to_owned();
    for part in parts {
        kept += "ETag: \"TAG";
        kept += &part[16..];
    }
    kept
}
