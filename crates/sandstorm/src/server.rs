//! A site on the TCP stack.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ip::{IcmpError, Packet, Transports};
use nmio::{Instant, Port};
use tcpip::{
    Application, CongestionControl, Connection, ContentError, ContentId, Contents, Cubic, Deadline,
    Family, MIN_MSS, Slot, Stack, WriteError,
};

use crate::date::{SLOT_LEN, SlotWriter, Stamp};
use crate::recent::Recent;
use crate::reply::{Reply, Status};
use crate::request::{Fields, HEAD_LIMIT};
use crate::session::{Answer, Session, Step};
use crate::site::Site;

// A redirect has the path twice, the query once, each byte encoded in three.
const _: () = assert!(2 * 3 * HEAD_LIMIT + 1_024 <= tcpip::MAX_WRITE_LEN);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A client has so long for a request, without
/// [`Server::with_request_timeout`].
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What has been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests answered, those refused included.
    pub requests: u64,
    /// Answers by status, in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
}

impl Counters {
    /// Answers of one status.
    pub fn of(&self, status: Status) -> u64 {
        self.by_status[status as usize]
    }
}

/// A reply as the stack knows it.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    content: ContentId,
    status: Status,
}

/// The application: requests in, contents out.
#[derive(Debug)]
pub struct Web {
    site: Arc<Site>,
    /// In the order of the site's replies.
    prepared: Box<[Prepared]>,
    slots: SlotWriter,
    /// A redirect that keeps a query, while it is written.
    redirect: Vec<u8>,
    /// Answers to whole requests seen lately.
    answers: Recent<Answer>,
    /// What the fields of requests seen lately say.
    fields: Recent<Fields>,
    request_timeout: Duration,
    /// The present second, since 1970.
    second: u64,
    counters: Counters,
}

impl Web {
    /// An application that serves `site`, once its replies are
    /// [added](Self::add_contents) to the stack that it runs on.
    pub fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            prepared: Box::default(),
            slots: SlotWriter::new(),
            redirect: Vec::new(),
            answers: Recent::new(),
            fields: Recent::new(),
            request_timeout: REQUEST_TIMEOUT,
            second: 0,
            counters: Counters::default(),
        }
    }

    /// Adds all replies to the stack's contents.
    ///
    /// # Errors
    /// When a reply is longer than the stack takes, or there are too many.
    pub fn add_contents(&mut self, contents: &mut Contents) -> Result<(), ContentError> {
        let mut added = Vec::with_capacity(self.site.replies().len());
        for reply in self.site.replies() {
            let slot = Slot {
                offset: reply.slot_at(),
                len: SLOT_LEN as u32,
            };
            added.push(Prepared {
                content: contents.add(Arc::clone(reply.bytes()), Some(slot))?,
                status: reply.status(),
            });
        }
        self.prepared = added.into();
        Ok(())
    }

    /// Sets the present second, since 1970: what `Date` says from now on.
    pub fn set_second(&mut self, second: u64) {
        self.second = second;
    }

    /// [`Session::next`], by memory where that knows.
    #[inline]
    fn next(&mut self, session: &mut Session, data: &[u8]) -> Step {
        if !session.is_fresh() {
            return session.next(&self.site, data);
        }
        match self.answers.find(data) {
            Ok(answer) => Step::Answer(answer),
            Err(place) => {
                let step = session.next_by(&self.site, data, &mut self.fields);
                if let Step::Answer(answer) = step {
                    self.answers.remember(place, data, answer);
                }
                step
            }
        }
    }

    /// Writes a redirect with the query of the request at the start of `data`.
    #[cold]
    fn write_redirect(
        &mut self,
        conn: &mut Connection<'_, Session>,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<(), WriteError> {
        self.redirect.clear();
        answer.write(&self.site, data, stamp, &mut self.slots, &mut self.redirect);
        conn.write_bytes(&self.redirect)
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What has been answered.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Application for Web {
    type State = Session;
    type Message = ();

    #[inline]
    fn on_receive(&mut self, conn: &mut Connection<'_, Session>, data: &[u8]) -> usize {
        let mut consumed = 0;
        while consumed < data.len() {
            let answer = match self.next(conn.state(), &data[consumed..]) {
                Step::Answer(answer) => answer,
                Step::More { consumed: more } => {
                    // From its first byte, empty lines before it included.
                    if conn.deadline().is_none() {
                        conn.set_deadline(Deadline::Request, self.request_timeout);
                    }
                    return consumed + more;
                }
            };
            conn.clear_deadline();
            let Some(reply) = self.prepared.get(answer.reply.index()).copied() else {
                conn.abort();
                return data.len();
            };
            let stamp = Stamp::new(self.second, answer.close);
            let written = if answer.keeps_query() {
                self.write_redirect(conn, &answer, &data[consumed..], stamp)
            } else {
                conn.write(reply.content, stamp.as_u64())
            };
            match written {
                Ok(()) => {}
                // The request is offered again when something has arrived at
                // the client.
                Err(WriteError::Full) => return consumed,
                Err(_) => {
                    conn.abort();
                    return data.len();
                }
            }
            self.counters.requests += 1;
            self.counters.by_status[reply.status as usize] += 1;
            if answer.close {
                conn.close();
                return data.len();
            }
            consumed += answer.consumed;
        }
        consumed
    }

    #[inline]
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        self.slots.write(Stamp::from_u64(params), slot);
    }
}

/// Where the time of day comes from: [`SystemTime::now`], but for tests.
pub type WallClock = fn() -> SystemTime;

/// A whole web server: give it to [`nmio::run`].
pub type Server<C = Cubic> = ip::Server<Http<C>>;

/// HTTP on TCP, for a host.
///
/// The time of day is read once a second, when a packet comes. It is then
/// that the present second ends which `Date` shows.
pub struct Http<C = Cubic> {
    stack: Stack<Web, C>,
    packets: Packets,
    wall_clock: WallClock,
    second_ends: Instant,
}

impl<C: CongestionControl> Http<C> {
    /// Serves `site` at `addresses`, on `port` and with its memory: everything is segmented, and in [`tcpip::Mode::PreCopy`] made
    /// into resident packets as far as the port has room for them, the
    /// smallest replies first.
    ///
    /// `secret` must be random; see [`Stack::new`]. `now` is the start of the
    /// clock that the event loop will use.
    ///
    /// # Errors
    /// When a reply is longer than the stack takes, or there are too many.
    pub fn new<P: Port>(
        site: Arc<Site>,
        addresses: &[IpAddr],
        config: &tcpip::Config,
        port: &P,
        secret: [u64; 4],
        now: Instant,
    ) -> Result<Self, ContentError> {
        let web = Web::new(site);
        let capabilities = port.capabilities();
        let mut stack = Stack::with_congestion_control(config, web, &capabilities, secret, now);
        let (web, contents) = stack.parts_mut();
        web.add_contents(contents)?;
        let packets = packets(&web.site, addresses, capabilities.mtu);
        let families = families(addresses);
        let mut order: Vec<usize> = (0..web.prepared.len()).collect();
        order.sort_by_key(|index| web.site.replies()[*index].bytes().len());
        for index in order {
            for family in &families {
                contents.prepare(web.prepared[index].content, port.pool(), *family);
            }
        }
        Ok(Self {
            stack,
            packets,
            wall_clock: SystemTime::now,
            second_ends: now,
        })
    }
}

impl<C> Http<C> {
    /// Takes the time of day from elsewhere.
    #[must_use]
    pub fn with_wall_clock(self, wall_clock: WallClock) -> Self {
        Self { wall_clock, ..self }
    }

    /// Bytes that a server reserves for its connections, see
    /// [`Stack::reserved_bytes`].
    pub fn reserved_bytes(config: &tcpip::Config) -> usize {
        Stack::<Web, C>::reserved_bytes(config)
    }

    /// What stands ready.
    pub fn packets(&self) -> Packets {
        self.packets
    }

    /// The TCP stack, with the application.
    pub fn stack(&self) -> &Stack<Web, C> {
        &self.stack
    }
}

impl<C: CongestionControl> Http<C> {
    /// Closes a connection when a request has not arrived whole in this time from
    /// its first byte on.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.stack.app_mut().request_timeout = timeout;
        self
    }

    /// Sees to it that the present second is known.
    #[inline(always)]
    fn keep_time(&mut self, now: Instant) {
        if now >= self.second_ends {
            self.read_wall_clock(now);
        }
    }

    #[cold]
    fn read_wall_clock(&mut self, now: Instant) {
        let time = (self.wall_clock)().duration_since(UNIX_EPOCH);
        // A clock that shows a time before 1970 is not set.
        let time = time.unwrap_or_default();
        self.stack.app_mut().set_second(time.as_secs());
        let rest = NANOS_PER_SECOND - u64::from(time.subsec_nanos());
        self.second_ends = now + Duration::from_nanos(rest);
    }
}

impl<C: CongestionControl, P: Port> Transports<P> for Http<C> {
    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        Transports::<P>::serves(&self.stack, protocol, port)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.keep_time(now);
        self.stack.handle_tcp(port, segment, now)
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        Transports::<P>::handle_icmp_error(&mut self.stack, error, now)
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.stack.handle_timers(port, now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.stack.hang_up(port, now)
    }
}

impl<C> fmt::Debug for Http<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// The families that clients can come by.
fn families(addresses: &[IpAddr]) -> Vec<Family> {
    let served = |family: &Family| {
        addresses.iter().any(|address| match family {
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        })
    };
    [Family::V4, Family::V6]
        .into_iter()
        .filter(served)
        .collect()
}

/// Packets that stand ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// How many.
    pub count: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// The packets that all replies of `site` make for clients that can come to
/// `addresses`, over links of `mtu` bytes. As many resident packets are needed
/// to serve everything in place.
pub fn packets(site: &Site, addresses: &[IpAddr], mtu: usize) -> Packets {
    let mut packets = Packets::default();
    for family in families(addresses) {
        let ip_header = match family {
            Family::V4 => ip::IPV4_HEADER_LEN,
            Family::V6 => ip::IPV6_HEADER_LEN,
        };
        let headers = ip_header + tcpip::PREPARED_HEADER_LEN;
        let mss = mtu.saturating_sub(headers).max(MIN_MSS.into());
        let of = |reply: &Reply| reply.bytes().len().div_ceil(mss) as u64;
        let count: u64 = site.replies().iter().map(of).sum();
        packets.count += count;
        packets.bytes += site.totals().reply_bytes + count * (eth::HEADER_LEN + headers) as u64;
    }
    packets
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
