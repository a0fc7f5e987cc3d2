//! The whole server on one port: UDP and TCP on a host.

use std::sync::Arc;

use ip::{Host, IcmpError, Inputs, Packet, Transports};
use nmio::{Batch, Bell, Capabilities, Frame, Handler, Instant, Mailbox, Port};
use tcpip::{Config, Stack};
use udpip::{Datagram, Service, Udp};

use crate::ahead::Ahead;
use crate::answers::Answers;
use crate::asked::Asked;
use crate::hook::{Hook, NoHook};
use crate::service::{Dns, Mode};
use crate::tcp::{DnsOverTcp, TcpSettings};

/// A DNS server: give it to [`nmio::run`], one to each worker.
pub struct Server<H: Hook = NoHook> {
    host: Host,
    udp: Udp<Dns>,
    /// The hook is the application's. Queries over UDP borrow it.
    stack: Stack<DnsOverTcp<H>>,
    ahead: Ahead,
    mailbox: Option<Mailbox<H::Message>>,
    /// It is the one worker that tells of the answers, which all share.
    pub(crate) tells: bool,
}

impl Server {
    /// Serves `answers` on `port` of `host`, over UDP and TCP. Replies over
    /// UDP are sent in the way of `mode`. `capabilities` are those of the
    /// port that it will be used with; `secret` keys TCP's hashes and initial
    /// sequence numbers.
    pub fn new(
        host: Host,
        port: u16,
        answers: &Arc<Answers>,
        mode: Mode,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        let tcp = TcpSettings::default();
        Self::with_tcp(host, port, answers, mode, &tcp, capabilities, secret)
    }

    /// The same with other settings for TCP.
    pub fn with_tcp(
        host: Host,
        port: u16,
        answers: &Arc<Answers>,
        mode: Mode,
        tcp: &TcpSettings,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        let over_tcp = DnsOverTcp::new(Arc::clone(answers), tcp.request_timeout);
        let dns = Dns::new(Arc::clone(answers), mode);
        Self::with_hook(host, port, dns, over_tcp, &tcp.stack, capabilities, secret)
    }
}

impl<H: Hook> Server<H> {
    /// A server of these services, the one on TCP with a hook, which serves both. They
    /// must have the same answers; `tcp` are the stack's settings but for the port.
    pub fn with_hook(
        host: Host,
        port: u16,
        dns: Dns,
        over_tcp: DnsOverTcp<H>,
        tcp: &Config,
        capabilities: &Capabilities,
        secret: [u64; 4],
    ) -> Self {
        let config = Config {
            ports: vec![port],
            ..tcp.clone()
        };
        Self {
            host,
            ahead: Ahead::new(dns.answers()),
            udp: Udp::new(port, dns),
            stack: Stack::new(&config, over_tcp, capabilities, secret, Instant::ZERO),
            mailbox: None,
            tells: false,
        }
    }

    /// Gives the hook the messages that come by `mailbox`: [`Hook::on_message`].
    #[must_use]
    pub fn with_mailbox(mut self, mailbox: Mailbox<H::Message>) -> Self {
        self.mailbox = Some(mailbox);
        self
    }

    /// The hook.
    pub fn hook(&self) -> &H {
        self.stack.app().hook()
    }

    fn hook_mut(&mut self) -> &mut H {
        self.stack.app_mut().hook_mut()
    }

    /// What it answers from.
    pub fn answers(&self) -> &Arc<Answers> {
        self.dns().answers()
    }

    /// The network layer, for its counters.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The UDP layer, for its counters.
    pub fn udp(&self) -> &Udp<Dns> {
        &self.udp
    }

    /// The service on UDP, for its counters.
    pub fn dns(&self) -> &Dns {
        self.udp.service()
    }

    /// TCP and the service on it, for their counters.
    pub fn tcp(&self) -> &Stack<DnsOverTcp<H>> {
        &self.stack
    }
}

/// UDP and TCP, for one packet, whose question may have been read.
struct Both<'s, H: Hook> {
    udp: &'s mut Udp<Dns>,
    stack: &'s mut Stack<DnsOverTcp<H>>,
    known: Option<&'s mut Asked>,
}

impl<P: Port, H: Hook> Transports<P> for Both<'_, H> {
    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.stack.handle_tcp(port, segment, now)
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, packet: Packet, now: Instant) -> Option<Packet> {
        let known = self.known.take();
        let hook = self.stack.app_mut().hook_mut();
        self.udp
            .handle_with(port, packet, now, |dns| OneQuery { dns, known, hook })
    }

    #[inline(always)]
    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        Transports::<P>::handle_icmp_error(self.stack, error, now)
    }
}

/// The service for one query.
struct OneQuery<'s, H> {
    dns: &'s mut Dns,
    known: Option<&'s mut Asked>,
    hook: &'s mut H,
}

impl<H: Hook> Service for OneQuery<'_, H> {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant) {
        // The datagram may be shorter than what was looked at.
        let len = datagram.payload().len();
        let known = self.known.take().filter(|known| known.question.end <= len);
        self.dns.answer(datagram, known, self.hook, now);
    }
}

impl<H: Hook> Server<H> {
    /// Handles a batch with all its look-ups begun before the first is waited
    /// for.
    fn handle_together<P: Port>(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        let mut inputs = Inputs::new();
        self.host.receive_batch(batch, &mut inputs, now);
        self.ahead.fetch(self.udp.service().answers(), &inputs);
        for (place, input) in inputs.drain(..).enumerate() {
            let mut transports = Both {
                udp: &mut self.udp,
                stack: &mut self.stack,
                known: self.ahead.known(place),
            };
            self.host.hand_over(port, input, &mut transports, now);
        }
    }
}

impl<H: Hook, P: Port> Handler<P> for Server<H> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        let mut transports = Both {
            udp: &mut self.udp,
            stack: &mut self.stack,
            known: None,
        };
        self.host.handle_frame(port, frame, &mut transports, now);
    }

    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        if self.ahead.is_worth(batch.len()) {
            return self.handle_together(port, batch, now);
        }
        for frame in batch.drain(..) {
            self.handle_frame(port, frame, now);
        }
    }

    #[inline(always)]
    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        let Self { stack, mailbox, .. } = self;
        if let Some(mailbox) = mailbox {
            mailbox.take_all(|message| stack.handle_message(port, message, now));
        }
    }

    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        self.mailbox.as_ref().map(Mailbox::bell)
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.stack.handle_timers(port, now);
        if self.hook().poll_timeout().is_some_and(|due| due <= now) {
            self.hook_mut().on_timer(now);
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.stack.poll_timeout(), self.hook().poll_timeout()];
        due.into_iter().flatten().min()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.stack.hang_up(port, now)
    }
}
