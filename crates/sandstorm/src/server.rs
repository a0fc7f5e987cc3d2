//! The complete server: a site and an application, served on the network.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::Turn;
use eth::Mac;
use ip::{IcmpError, Packet, Transports};
use nmio::{Drain, Instant, Mailbox, Port};
use tcpip::{CongestionControl, ContentError, Cubic, Family, MIN_MSS, Stack};

use crate::access_log::AccessLogSenders;
use crate::app::{App, SiteOnly};
use crate::coding::Coding;
use crate::disk::Chunks;
use crate::login::Logins;
use crate::prepared::Replies;
use crate::reply::Reply;
use crate::site::Site;
use crate::turnover::{Share, Turnover};
use crate::verdict::Sees;
pub use crate::web::{Conversation, Counters, Web};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A function that returns the time of day. It is [`SystemTime::now`], except in tests.
pub type WallClock = fn() -> SystemTime;

/// A complete web server. Pass it to [`nmio::run`].
pub type Server<A = SiteOnly, C = Cubic> = ip::Server<Http<A, C>>;

/// The HTTP service of a host, over TCP.
///
/// The wall clock is read at most once per second, when the first segment or message of a new
/// second is handled. With an application, timers also cause a reading. The field `Date` shows the
/// second that was read last.
pub struct Http<A: App = SiteOnly, C = Cubic> {
    stack: Stack<Web<A>, C>,
    packets: PacketTotals,
    /// Whether this is the worker that reports what all workers share.
    reports_shared: bool,
    wall_clock: WallClock,
    second_ends: Instant,
    turnover: Turnover,
}

impl<C: CongestionControl> Http<SiteOnly, C> {
    /// Creates a service that serves `site` at `addresses`. All replies are segmented for `port`.
    /// With [`tcpip::SendMode::PreCopy`] they become resident packets, smallest replies first,
    /// until the port's memory is used up.
    ///
    /// `secret` must be random; see [`Stack::new`]. `now` is the start of the event loop's clock.
    ///
    /// # Errors
    /// [`ContentError`] if a reply is longer than the stack accepts, or if the site has too many
    /// replies.
    pub fn new<P: Port>(
        site: Arc<Site>,
        addresses: &[IpAddr],
        config: &tcpip::Config,
        port: &P,
        secret: [u64; 4],
        now: Instant,
    ) -> Result<Self, ContentError> {
        Self::load(site, |_| Ok(SiteOnly), addresses, config, port, secret, now)
    }
}

impl<A: App, C: CongestionControl> Http<A, C> {
    /// Same as [`new`](Http::new), with the application that `make` creates. `make` may prepare
    /// replies before the first client connects.
    ///
    /// # Errors
    /// The errors of [`new`](Http::new), and those of `make`.
    pub fn load<P: Port, E: From<ContentError>>(
        site: Arc<Site>,
        make: impl FnOnce(&mut Replies<'_>) -> Result<A, E>,
        addresses: &[IpAddr],
        config: &tcpip::Config,
        port: &P,
        secret: [u64; 4],
        now: Instant,
    ) -> Result<Self, E> {
        let capabilities = port.capabilities();
        let make = |contents: &mut _| Web::load(site, contents, make);
        let mut stack = Stack::load(config, make, &capabilities, secret, now)?;
        let (web, contents) = stack.parts_mut();
        let packets = packets(web.site(), addresses, capabilities.mtu);
        let families = families(addresses);
        let mut order: Vec<usize> = (0..web.prepared().len()).collect();
        order.sort_by_key(|index| web.site().replies()[*index].bytes().len());
        for index in order {
            for family in &families {
                contents.prepare(web.prepared()[index].content, port.pool(), *family);
            }
        }
        if A::SEES != Sees::Nothing {
            for family in &families {
                contents.prepare_all(port.pool(), *family);
            }
        }
        Ok(Self {
            stack,
            packets,
            reports_shared: false,
            wall_clock: SystemTime::now,
            second_ends: now,
            turnover: Turnover::default(),
        })
    }

    /// Sets the mailbox that brings the next site. Its bell must be the server's. Makes room for both
    /// sites, even if the next one is twice as large. The system provides the memory only when it is
    /// used.
    #[must_use]
    pub(crate) fn with_handover(mut self, mailbox: Mailbox<Turn<Share>>) -> Self {
        let (web, contents) = self.stack.parts_mut();
        contents.reserve(2 * web.prepared().len());
        self.turnover.set_mailbox(mailbox);
        self
    }

    /// Sets the maximum time for receiving a request and its body, measured from its first byte.
    /// After this time the connection is closed.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.stack.app_mut().set_request_timeout(timeout);
        self
    }

    /// Logs answered requests through `senders`, if there are any. They belong to
    /// [`AccessLogs`](crate::AccessLogs).
    #[must_use]
    pub fn with_access_log(mut self, senders: Option<AccessLogSenders>) -> Self {
        self.stack.app_mut().set_access_log(senders);
        self
    }

    /// Sets the maximum time for a deferred answer. After this time the client receives 504. If
    /// [`tcpip::Config::idle_timeout`] is shorter, an idle connection is closed earlier.
    #[must_use]
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.stack.app_mut().set_answer_timeout(timeout);
        self
    }

    /// Passes messages from `mailbox` to [`App::on_message`]. The mailbox's
    /// [bell](ip::Server::with_bell) must be registered with the server.
    #[must_use]
    pub fn with_mailbox(mut self, mailbox: Mailbox<A::Message>) -> Self {
        self.stack.set_mailbox(mailbox);
        self
    }

    /// Sets the cache of chunks through which files on the disk are sent.
    #[must_use]
    pub(crate) fn with_chunks(mut self, chunks: Chunks) -> Self {
        self.stack.app_mut().set_chunks(chunks);
        self
    }

    /// Says whether this is the worker that reports what all workers share.
    #[must_use]
    pub(crate) fn with_shared_reports(self, reports_shared: bool) -> Self {
        Self {
            reports_shared,
            ..self
        }
    }

    /// Checks names and passwords on the thread of `logins`.
    #[must_use]
    pub(crate) fn with_logins(mut self, logins: Logins) -> Self {
        self.stack.app_mut().set_logins(logins);
        self
    }

    #[cold]
    fn continue_waiting<P: Port>(&mut self, port: &mut P, now: Instant) {
        self.stack.reach(port, now, |web, connections| {
            web.continue_downloads(connections);
            web.continue_logins(connections);
        });
    }

    /// Reads the wall clock if the current second has ended.
    #[inline(always)]
    fn keep_time(&mut self, now: Instant) {
        if now >= self.second_ends {
            self.read_wall_clock(now);
        }
    }

    #[cold]
    fn read_wall_clock(&mut self, now: Instant) {
        let time = (self.wall_clock)().duration_since(UNIX_EPOCH);
        // A time before 1970 means that the clock has not been set. It counts as 1970.
        let time = time.unwrap_or_default();
        self.stack.app_mut().set_second(time.as_secs());
        let rest = NANOS_PER_SECOND - u64::from(time.subsec_nanos());
        self.second_ends = now + Duration::from_nanos(rest);
    }
}

impl<A: App, C> Http<A, C> {
    /// Replaces the wall clock.
    #[must_use]
    pub fn with_wall_clock(self, wall_clock: WallClock) -> Self {
        Self { wall_clock, ..self }
    }

    /// The number of bytes that a server reserves for its connections; see
    /// [`Stack::reserved_bytes`].
    pub fn reserved_bytes(config: &tcpip::Config) -> usize {
        Stack::<Web<A>, C>::reserved_bytes(config)
    }

    /// Number and total length of the site's prepared packets.
    pub fn packets(&self) -> PacketTotals {
        self.packets
    }

    /// The TCP stack, including the application.
    pub fn stack(&self) -> &Stack<Web<A>, C> {
        &self.stack
    }

    /// Whether this is the worker that reports what all workers share.
    pub(crate) fn reports_shared(&self) -> bool {
        self.reports_shared
    }

    /// The TCP stack, to look at its connections.
    pub(crate) fn stack_mut(&mut self) -> &mut Stack<Web<A>, C> {
        &mut self.stack
    }
}

impl<A: App, C: CongestionControl, P: Port> Transports<P> for Http<A, C> {
    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        Transports::<P>::serves(&self.stack, protocol, port)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.keep_time(now);
        self.stack.handle_tcp(port, segment, now)
    }

    fn refuse_tcp(&mut self, port: &mut P, segment: Packet) -> Option<Packet> {
        self.stack.refuse_tcp(port, segment)
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        Transports::<P>::handle_icmp_error(&mut self.stack, error, now)
    }

    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        self.keep_time(now);
        self.turnover.begin();
        self.stack.handle_messages(port, now);
        self.continue_waiting(port, now);
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        if A::SEES != Sees::Nothing {
            self.keep_time(now);
        }
        self.stack.handle_timers(port, now);
        if self.stack.app().retries_downloads(now) {
            self.continue_waiting(port, now);
        }
        if self.turnover.is_under_way() {
            let (web, contents) = self.stack.parts_mut();
            self.turnover.step(web, contents);
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        if self.turnover.is_under_way() {
            return Some(Instant::ZERO);
        }
        let retry_at = self.stack.app().retry_downloads_at();
        Instant::earlier(self.stack.poll_timeout(), retry_at)
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        self.stack.drain(port, now)
    }

    fn reset_strangers(
        &mut self,
        port: &mut P,
        slots: Range<u32>,
        is_ours: &dyn Fn(&IpAddr) -> bool,
        now: Instant,
    ) -> bool {
        self.stack.reset_strangers(port, slots, is_ours, now)
    }

    fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
        self.stack.set_own_mac(slots, own)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.stack.shut_down(port, now)
    }
}

impl<A: App, C> fmt::Debug for Http<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// Returns the IP versions in `addresses`, each once.
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

/// Number and total length of prepared packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Number of packets.
    pub count: u64,
    /// Total length in bytes, including headers.
    pub bytes: u64,
}

/// Counts the packets of all replies of `site` at this `mtu`, once for each IP version in
/// `addresses`. In [`tcpip::SendMode::PreCopy`], the port needs this number of resident packets to
/// send all replies without copying.
pub fn packets(site: &Site, addresses: &[IpAddr], mtu: usize) -> PacketTotals {
    let mut packets = PacketTotals::default();
    for family in families(addresses) {
        let headers = headers(family);
        let mss = mss(family, mtu);
        let of = |reply: &Reply| reply.bytes().len().div_ceil(mss) as u64;
        let count: u64 = site.replies().iter().map(of).sum();
        packets.count += count;
        packets.bytes += site.totals().reply_bytes + count * (eth::HEADER_LEN + headers) as u64;
    }
    packets
}

/// Returns the maximum number of packets of the compressed forms that the server may still make, once
/// for each IP version in `addresses`. Each form is shorter than the file, and has two responses.
pub(crate) fn packets_to_come(site: &Site, addresses: &[IpAddr], mtu: usize) -> u64 {
    let files = || site.uncoded().iter().map(|id| site.reply(*id).len());
    let of_family = |family: Family| -> u64 {
        let of = |len: usize| len.div_ceil(mss(family, mtu)) as u64 + 1;
        files().map(of).sum()
    };
    let plain: u64 = families(addresses).into_iter().map(of_family).sum();
    Coding::ALL.len() as u64 * plain
}

/// The length of the IP and TCP headers of prepared packets, in bytes.
fn headers(family: Family) -> usize {
    let ip_header = match family {
        Family::V4 => ip::IPV4_HEADER_LEN,
        Family::V6 => ip::IPV6_HEADER_LEN,
    };
    ip_header + tcpip::PREPARED_HEADER_LEN
}

/// The bytes of a response in a full packet.
fn mss(family: Family, mtu: usize) -> usize {
    mtu.saturating_sub(headers(family)).max(MIN_MSS.into())
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
