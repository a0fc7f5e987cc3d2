//! A whole server and an independent TCP client on a simulated link, for tests. What other threads do
//! for the server is done between two steps of the virtual clock.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use clap::Parser;
use control::ConnectionArgs;
use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{EndConfig, LinkConfig, PathConfig};
use nmio::{Bell, Clock as _, Instant};
use tcpip::{Config, ContentError, Contents, SendMode, Stack};
use testkit::smol::{Client, Talk};
use testkit::{Link, SERVER, SERVER_MAC};

use crate::app::{App, SiteOnly};
use crate::prepared::Replies;
use crate::site_options::SiteOptions;
use crate::{Http, Server, Site};

/// Maximum simulated time of a run.
const LONGEST: Duration = Duration::from_mins(2);

/// The command line of one site.
#[derive(Parser)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) site: SiteOptions,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
}

/// Makes contents for a cache to refer to.
pub(crate) fn with_contents(act: impl FnOnce(&mut Contents)) {
    let capabilities = nmio::Port::capabilities(&nmio::sim::Sink::new(1500, 16, 0));
    let make = |contents: &mut Contents| {
        act(contents);
        Err::<crate::web::Web, _>(ContentError::TooMany)
    };
    let config = Config::on_ports(&[80]);
    let _ = <Stack<_>>::load(&config, make, &capabilities, [1; 4], Instant::ZERO);
}

/// A server, a client, and the link between them.
pub(crate) struct World<A: App = SiteOnly> {
    pub(crate) link: Link,
    pub(crate) server: Server<A>,
    pub(crate) client: Client,
    /// Does the work of other threads.
    work: Box<dyn Fn()>,
}

impl<A: App> World<A> {
    /// Serves a site and an application. `complete` completes the server. `work` does the work of other
    /// threads.
    pub(crate) fn new(
        site: &Arc<Site>,
        app: A,
        mode: SendMode,
        complete: impl FnOnce(Http<A>, &Bell) -> Http<A>,
        work: impl Fn() + 'static,
    ) -> Self {
        let mut config = LinkConfig::symmetric(PathConfig {
            delay: Duration::from_millis(5),
            ..PathConfig::default()
        });
        config.b = EndConfig {
            resident_frames: 512,
            ..EndConfig::default()
        };
        let (link, bell) = (Link::new(&config, 1), Bell::new().unwrap());
        let config = Config {
            mode,
            ..Config::on_ports(&[80])
        };
        let (keys, now) = ([1, 2, 3, 4], Instant::ZERO);
        let make = |_: &mut Replies<'_>| Ok::<_, ContentError>(app);
        let site = Arc::clone(site);
        let http = Http::load(site, make, &SERVER, &config, &link.server, keys, now).unwrap();
        let http = complete(http.with_wall_clock(|| UNIX_EPOCH), &bell);
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        Self {
            link,
            server: Server::new(Host::own(station, [0; 4]), http).with_bell(bell),
            client: Client::new(1500),
            work: Box::new(work),
        }
    }

    pub(crate) fn connect(&mut self, requests: &str) {
        let talk = Talk {
            bytes: requests.as_bytes().to_vec(),
            ..Talk::default()
        };
        self.client.connect(80, talk);
    }

    /// Runs until all clients are done, or until `until` returns true. Returns true if it did not take
    /// too long.
    pub(crate) fn run(&mut self, mut until: impl FnMut(&Client) -> bool) -> bool {
        let work = &self.work;
        let done = |client: &Client, _: &Server<A>| {
            work();
            client.done() || until(client)
        };
        self.link
            .run(&mut self.client, &mut self.server, LONGEST, done)
    }

    /// Same as [`run`](Self::run), for what depends on the time.
    pub(crate) fn run_until(&mut self, mut until: impl FnMut(&Client, Instant) -> bool) -> bool {
        let clock = self.link.clock.clone();
        self.run(|client| until(client, clock.now()))
    }

    /// What the connection with this index has received.
    pub(crate) fn received(&self, index: usize) -> &[u8] {
        &self.client.connections[index].received
    }
}

pub(crate) fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// Removes a response from the start of `bytes`, and returns its status line, fields and body.
pub(crate) fn take_response<'b>(
    bytes: &mut &'b [u8],
    has_body: bool,
) -> (&'b str, &'b str, &'b [u8]) {
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let (line, fields) = head.split_once("\r\n").unwrap();
    let length = fields
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let len = length
        .filter(|_| has_body)
        .map_or(0, |len| len.parse().unwrap());
    let body = &bytes[end..end + len];
    *bytes = &bytes[end + len..];
    (line, fields, body)
}
