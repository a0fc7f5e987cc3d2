//! DNS on one port, over UDP and TCP.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use control::Turn;
use eth::Mac;
use ip::{IcmpError, Input, PROTOCOL_TCP, PROTOCOL_UDP, Packet, Transports};
use nmio::{Capabilities, Drain, Instant, Mailbox, Port};
use tcpip::{Config, Stack};
use udpip::{Datagram, Service, Udp};

use crate::answers::Answers;
use crate::cookie::Cookies;
use crate::hashed_question::HashedQuestion;
use crate::hook::{Hook, NoHook};
use crate::identity::Identity;
use crate::prefetcher::Prefetcher;
use crate::respond::Responder;
use crate::secret_source::Secrets;
use crate::service::{Dns, ReplyMode};
use crate::tcp::{DnsOverTcp, TcpSettings};
use crate::tsig::TsigKeys;
use crate::turnover::{NewAnswers, Turnover};
use crate::udp_size::UdpSizes;
use crate::zone_counts::QueryCounts;

/// A DNS server that [`nmio::run`] can run. Each worker needs its own server.
pub type Server<H = NoHook> = ip::Server<UdpAndTcp<H>>;

/// The DNS transports of a host: UDP and TCP.
pub struct UdpAndTcp<H: Hook = NoHook> {
    port: u16,
    udp: Udp<Dns>,
    /// The TCP application owns the hook. Queries over UDP borrow it.
    stack: Stack<DnsOverTcp<H>>,
    prefetcher: Prefetcher,
    turnover: Turnover,
    /// Brings new secrets.
    new_secrets: Option<Mailbox<Turn<Secrets>>>,
    /// Whether this worker reports the size of the answers. Only one worker does, because all
    /// workers share the answers.
    pub(crate) reports_answers: bool,
}

impl UdpAndTcp {
    /// Creates a server for `answers` on `port`, over UDP and TCP. `mode` determines how UDP
    /// replies are sent, and `capabilities` are those of the network port. `secret` keys TCP's
    /// hashes and initial sequence numbers.
    pub fn new(
        port: u16,
        answers: &Arc<Answers>,
        mode: ReplyMode,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        let tcp = TcpSettings::default();
        Self::with_tcp(port, answers, mode, &tcp, capabilities, secret)
    }

    /// Like [`UdpAndTcp::new`], with the given settings for TCP.
    pub fn with_tcp(
        port: u16,
        answers: &Arc<Answers>,
        mode: ReplyMode,
        tcp: &TcpSettings,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        let over_tcp = DnsOverTcp::new(Arc::clone(answers), tcp.request_timeout);
        let dns = Dns::new(Arc::clone(answers), mode);
        Self::with_hook(port, dns, over_tcp, &tcp.stack, capabilities, secret)
    }
}

impl<H: Hook> UdpAndTcp<H> {
    /// Combines a UDP service with a TCP service. The hook of the TCP service also answers queries
    /// over UDP. Both services must have the same answers. `tcp` holds the settings of the TCP
    /// stack. `port` replaces the ports in these settings.
    pub fn with_hook(
        port: u16,
        dns: Dns,
        mut over_tcp: DnsOverTcp<H>,
        tcp: &Config,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        over_tcp.set_idle_timeout(tcp.idle_timeout);
        let config = Config {
            ports: vec![port],
            ..tcp.clone()
        };
        let counts = dns.answers().zone_counts().open();
        let mut this = Self {
            port,
            prefetcher: Prefetcher::new(dns.answers()),
            udp: Udp::new(port, dns),
            stack: Stack::new(&config, over_tcp, capabilities, secret, Instant::ZERO),
            turnover: Turnover::default(),
            new_secrets: None,
            reports_answers: false,
        };
        this.set_zone_counts(&counts);
        this
    }

    /// Sets the mailbox that brings new answers. Its bell must be the server's.
    pub(crate) fn set_handover(&mut self, mailbox: Mailbox<Turn<NewAnswers>>) {
        self.turnover.set_mailbox(mailbox);
    }

    /// Sets the mailbox that brings new secrets. Its bell must be the server's.
    pub(crate) fn set_new_secrets(&mut self, mailbox: Mailbox<Turn<Secrets>>) {
        self.new_secrets = Some(mailbox);
    }

    /// The responders for UDP and TCP.
    fn responders(&mut self) -> [&mut Responder; 2] {
        let over_udp = self.udp.service_mut().responder_mut();
        [over_udp, self.stack.app_mut().responder_mut()]
    }

    /// Sets what the server says about itself.
    pub fn set_identity(&mut self, identity: &Arc<Identity>) {
        for responder in self.responders() {
            responder.set_identity(Arc::clone(identity));
        }
    }

    /// Sets the largest UDP message for each client. OPT records advertise it over TCP, too.
    pub fn set_udp_sizes(&mut self, sizes: &Arc<UdpSizes>) {
        self.stack.app_mut().set_udp_sizes(sizes);
        self.udp.service_mut().set_udp_sizes(sizes);
    }

    /// Sets the server cookies. A query with a client cookie gets one.
    pub fn set_cookies(&mut self, cookies: &Arc<Cookies>) {
        for responder in self.responders() {
            responder.set_cookies(Arc::clone(cookies));
        }
    }

    /// Verifies the signatures of queries with these keys, over UDP and TCP.
    pub fn set_tsig_keys(&mut self, keys: Arc<TsigKeys>) {
        self.stack.app_mut().set_tsig_keys(Arc::clone(&keys));
        self.udp.service_mut().set_tsig_keys(keys);
    }

    /// Counts queries of each zone in this table.
    pub(crate) fn set_zone_counts(&mut self, counts: &QueryCounts) {
        for responder in self.responders() {
            responder.set_zone_counts(counts.clone());
        }
    }

    /// Uses these secrets.
    pub(crate) fn set_secrets(&mut self, secrets: Secrets) {
        self.set_cookies(&secrets.cookies);
        self.set_tsig_keys(secrets.keys);
    }

    /// Uses new secrets, if there are any.
    fn take_secrets(&mut self) {
        let mut newest = None;
        if let Some(mailbox) = &mut self.new_secrets {
            mailbox.take_all(|turn| newest = Some(turn.content));
        }
        if let Some(secrets) = newest {
            self.set_secrets(secrets);
        }
    }

    /// Replies from new answers, if there are any.
    fn take_answers(&mut self) {
        let Some(turn) = self.turnover.next() else {
            return;
        };
        let NewAnswers { answers, counts } = &turn.content;
        self.prefetcher.set_answers(answers);
        self.stack.app_mut().set_answers(Arc::clone(answers));
        let dns = self.udp.service_mut();
        let residents = dns.set_answers(Arc::clone(answers));
        if let Some(counts) = counts {
            self.set_zone_counts(counts);
        }
        self.turnover.leave(residents, turn);
    }

    /// Sets the mailbox whose messages go to [`Hook::on_message`]. Pass the mailbox's bell to
    /// [`ip::Server::with_bell`], so that a message wakes the worker.
    pub fn set_mailbox(&mut self, mailbox: Mailbox<H::Message>) {
        self.stack.set_mailbox(mailbox);
    }

    /// Returns the hook.
    pub fn hook(&self) -> &H {
        self.stack.app().hook()
    }

    fn hook_mut(&mut self) -> &mut H {
        self.stack.app_mut().hook_mut()
    }

    /// Returns the prepared answers.
    pub fn answers(&self) -> &Arc<Answers> {
        self.dns().answers()
    }

    /// Returns the UDP layer, for its counters.
    pub fn udp(&self) -> &Udp<Dns> {
        &self.udp
    }

    /// Returns the UDP service, for its counters.
    pub fn dns(&self) -> &Dns {
        self.udp.service()
    }

    /// Returns the TCP stack and its service, for their counters.
    pub fn tcp(&self) -> &Stack<DnsOverTcp<H>> {
        &self.stack
    }

    /// Returns the TCP stack, to look at its connections.
    pub(crate) fn tcp_mut(&mut self) -> &mut Stack<DnsOverTcp<H>> {
        &mut self.stack
    }
}

/// The UDP service for a single query. It borrows the hook of the TCP service.
struct OneQuery<'s, H> {
    dns: &'s mut Dns,
    parsed: Option<&'s mut HashedQuestion>,
    hook: &'s mut H,
}

impl<H: Hook> Service for OneQuery<'_, H> {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant) {
        // The prefetcher parses questions before the datagram's length is checked, so a question
        // may extend beyond the datagram's end. Such a question is not used.
        let len = datagram.payload().len();
        let parsed = self
            .parsed
            .take()
            .filter(|parsed| parsed.question.end <= len);
        self.dns.answer(datagram, parsed, self.hook, now);
    }
}

impl<H: Hook, P: Port> Transports<P> for UdpAndTcp<H> {
    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        port == self.port && (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.stack.handle_tcp(port, segment, now)
    }

    fn refuse_tcp(&mut self, port: &mut P, segment: Packet) -> Option<Packet> {
        self.stack.refuse_tcp(port, segment)
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, packet: Packet, now: Instant) -> Option<Packet> {
        let hook = self.stack.app_mut().hook_mut();
        self.udp.handle_with(port, packet, now, |dns| OneQuery {
            dns,
            parsed: None,
            hook,
        })
    }

    #[inline(always)]
    fn handle_prefetched_udp(
        &mut self,
        port: &mut P,
        packet: Packet,
        position: usize,
        now: Instant,
    ) -> Option<Packet> {
        let parsed = self.prefetcher.question(position);
        let hook = self.stack.app_mut().hook_mut();
        self.udp
            .handle_with(port, packet, now, |dns| OneQuery { dns, parsed, hook })
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        Transports::<P>::handle_icmp_error(&mut self.stack, error, now)
    }

    #[inline(always)]
    fn wants_prefetch(&self, len: usize) -> bool {
        self.prefetcher.pays_off(len)
    }

    #[inline(always)]
    fn prefetch_batch(&mut self, batch: &[Input]) {
        self.prefetcher.fetch(self.udp.service().answers(), batch);
    }

    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        self.take_answers();
        self.take_secrets();
        self.stack.handle_messages(port, now);
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.stack.handle_timers(port, now);
        if self.hook().poll_timeout().is_some_and(|due| due <= now) {
            self.hook_mut().on_timer(now);
        }
        if self.turnover.is_leaving() {
            self.turnover.free_some();
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        if self.turnover.is_leaving() {
            return Some(Instant::ZERO);
        }
        let due = [self.stack.poll_timeout(), self.hook().poll_timeout()];
        due.into_iter().flatten().min()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    /// Queries over UDP are answered until the end, because nothing else tells a resolver to ask
    /// another server.
    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        // Clients that ask are told to close their connections (RFC 7828, section 3.4).
        self.stack.app_mut().set_idle_timeout(Duration::ZERO);
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
