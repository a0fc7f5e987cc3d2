//! Datagrams to services.

use ip::{Host, Packet, Transports};
use nmio::{Frame, Handler, Instant, Port};

use crate::counters::Counters;
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
