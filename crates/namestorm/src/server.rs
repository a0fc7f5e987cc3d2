//! The whole server on one port: UDP and TCP on a host.

use std::sync::Arc;

use ip::{Both, Host, Inputs, Packet, Transports};
use nmio::{Batch, Capabilities, Frame, Handler, Instant, Port};
use tcpip::{Config, Stack};
use udpip::{Datagram, Service, Udp};

use crate::ahead::Ahead;
use crate::answers::Answers;
use crate::asked::Asked;
use crate::service::{Dns, Mode};
use crate::tcp::{DnsOverTcp, TcpSettings};

/// A DNS server: give it to [`nmio::run`], one to each worker.
pub struct Server {
    host: Host,
    udp: Udp<Dns>,
    stack: Stack<DnsOverTcp>,
    ahead: Ahead,
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
        let config = Config {
            ports: vec![port],
            ..tcp.stack.clone()
        };
        Self {
            host,
            udp: Udp::new(port, Dns::new(Arc::clone(answers), mode)),
            stack: Stack::new(&config, over_tcp, capabilities, secret, Instant::ZERO),
            ahead: Ahead::new(answers),
            tells: false,
        }
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
    pub fn tcp(&self) -> &Stack<DnsOverTcp> {
        &self.stack
    }
}

/// UDP, for one packet of a batch.
struct LookedAt<'s> {
    udp: &'s mut Udp<Dns>,
    known: Option<&'s mut Asked>,
}

impl<P: Port> Transports<P> for LookedAt<'_> {
    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, packet: Packet, now: Instant) -> Option<Packet> {
        let known = self.known.take();
        self.udp
            .handle_with(port, packet, now, |dns| Known { dns, known })
    }
}

/// The service for a query whose question may have been read.
struct Known<'s> {
    dns: &'s mut Dns,
    known: Option<&'s mut Asked>,
}

impl Service for Known<'_> {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        // The datagram may be shorter than what was looked at.
        let len = datagram.payload().len();
        let known = self.known.take().filter(|known| known.question.end <= len);
        self.dns.answer(datagram, known);
    }
}

impl Server {
    /// Handles a batch with all its look-ups begun before the first is waited
    /// for.
    fn handle_together<P: Port>(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        let mut inputs = Inputs::new();
        self.host.receive_batch(batch, &mut inputs, now);
        self.ahead.fetch(self.udp.service().answers(), &inputs);
        for (place, input) in inputs.drain(..).enumerate() {
            let mut udp = LookedAt {
                udp: &mut self.udp,
                known: self.ahead.known(place),
            };
            let mut transports = Both(&mut udp, &mut self.stack);
            self.host.hand_over(port, input, &mut transports, now);
        }
    }
}

impl<P: Port> Handler<P> for Server {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        let mut transports = Both(&mut self.udp, &mut self.stack);
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
