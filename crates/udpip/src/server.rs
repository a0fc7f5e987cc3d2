//! Datagrams to services.

use ip::{Host, Packet, Transports};
use nmio::{Frame, Handler, Instant, Port};

use crate::datagram::{Datagram, Malformed, verify};

/// What answers datagrams.
pub trait Service {
    /// Answers one datagram, or drops it. Called in the pass over the
    /// received packet: whatever it does delays every other client.
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant);
}

impl<S: Service> Service for &mut S {
    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant) {
        S::on_datagram(self, datagram, now);
    }
}

/// Datagrams by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams given to the service.
    pub received: u64,
    /// Answers queued.
    pub answered: u64,
    /// Dropped: a length field that does not fit the packet.
    pub malformed: u64,
    /// Dropped: a wrong checksum, or none over IPv6.
    pub bad_checksum: u64,
    /// Dropped: a checksum that its sender has left to a device
    /// ([`Packet::has_unfinished_checksum`]).
    pub unfinished_checksum: u64,
    /// Dropped: from port 0, which nobody can answer.
    pub bad_source: u64,
    /// Not answered: the TX ring was full.
    pub ring_full: u64,
    /// Not answered: longer than the link takes.
    pub too_long: u64,
    /// Answered by a copy, because the port has no memory for another
    /// resident packet.
    pub residents_exhausted: u64,
}

impl Counters {
    /// The drops, by reason, for whoever reports them.
    pub fn drops(&self) -> [(&'static str, u64); 6] {
        [
            ("malformed UDP header", self.malformed),
            ("bad UDP checksum", self.bad_checksum),
            ("unfinished UDP checksum", self.unfinished_checksum),
            ("UDP source port 0", self.bad_source),
            ("TX ring full", self.ring_full),
            ("answer too long", self.too_long),
        ]
    }
}

/// The UDP layer: one port of ours, and the service on it.
#[derive(Clone, Debug)]
pub struct Udp<S> {
    port: u16,
    counters: Counters,
    service: S,
}

impl<S> Udp<S> {
    /// Serves `port` with `service`.
    pub fn new(port: u16, service: S) -> Self {
        Self {
            port,
            counters: Counters::default(),
            service,
        }
    }

    /// What has been received and answered.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Checks one datagram, and gives it to what `with` makes of the service.
    /// One to another port is given back.
    #[inline(always)]
    pub fn handle_with<'s, P: Port, T: Service>(
        &'s mut self,
        port: &mut P,
        mut packet: Packet,
        now: Instant,
        with: impl FnOnce(&'s mut S) -> T,
    ) -> Option<Packet> {
        match verify(&mut packet) {
            Err(Malformed::Length) => self.counters.malformed += 1,
            Err(Malformed::Checksum) => self.counters.bad_checksum += 1,
            Err(Malformed::Unfinished) => self.counters.unfinished_checksum += 1,
            Ok(()) => {
                let header = packet.payload();
                let src_port = u16::from_be_bytes([header[0], header[1]]);
                let dst_port = u16::from_be_bytes([header[2], header[3]]);
                if src_port == 0 {
                    self.counters.bad_source += 1;
                } else if dst_port != self.port {
                    return Some(packet);
                } else {
                    self.counters.received += 1;
                    let datagram = Datagram::new(port, packet, &mut self.counters);
                    with(&mut self.service).on_datagram(datagram, now);
                }
            }
        }
        None
    }
}

impl<P: Port, S: Service> Transports<P> for Udp<S> {
    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, packet: Packet, now: Instant) -> Option<Packet> {
        self.handle_with(port, packet, now, |service| service)
    }
}

/// A server that speaks UDP only.
#[derive(Debug)]
pub struct Server<S> {
    host: Host,
    udp: Udp<S>,
}

impl<S: Service> Server<S> {
    /// Serves `port` of `host` with `service`.
    pub fn new(host: Host, port: u16, service: S) -> Self {
        Self {
            host,
            udp: Udp::new(port, service),
        }
    }

    /// The network layer, for its counters.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The UDP layer, for its counters.
    pub fn udp(&self) -> &Udp<S> {
        &self.udp
    }

    /// The service.
    pub fn service(&self) -> &S {
        self.udp.service()
    }
}

impl<P: Port, S: Service> Handler<P> for Server<S> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        self.host.handle_frame(port, frame, &mut self.udp, now);
    }

    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
