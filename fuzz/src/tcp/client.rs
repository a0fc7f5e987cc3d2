//! A client: segments from where it is.

use eth::Link;
use ip::{Addresses, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, Path};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use crate::packet;

pub(super) const OWN_PORT: u16 = 80;
/// Bytes of data in one segment.
pub(super) const MAX_DATA: u16 = 1400;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;

/// A sequence number, from where the client or the server is.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Near {
    Next,
    By(i8),
    Far(i16),
    Start,
    Any(u32),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Kind {
    Ack,
    Data,
    Syn,
    Fin,
    Reset,
    Any(u8),
}

/// A segment of a client.
#[derive(Arbitrary, Debug)]
pub struct Segment {
    kind: Kind,
    seq: Near,
    ack: Near,
    window: Option<u16>,
    len: u16,
    options: Option<Vec<u8>>,
}

pub(super) fn near(near: Near, start: u32, next: u32) -> u32 {
    match near {
        Near::Next => next,
        Near::By(by) => next.wrapping_add_signed(by.into()),
        Near::Far(by) => next.wrapping_add_signed(by.into()),
        Near::Start => start,
        Near::Any(any) => any,
    }
}

/// The byte that a client has at a sequence number.
pub(super) fn byte_at(seq: u32) -> u8 {
    (seq ^ (seq >> 8).wrapping_mul(7) ^ (seq >> 19)) as u8
}

/// A client: what it has sent and seen.
pub(super) struct Client {
    pub(super) path: Path,
    pub(super) port: u16,
    /// Our initial sequence number, once a SYN-ACK has told.
    pub(super) iss: Option<u32>,
    pub(super) irs: u32,
    /// What the server expects next, as it has acknowledged.
    pub(super) snd_nxt: u32,
    /// Behind the last that came from the server.
    pub(super) rcv_nxt: u32,
    /// What it has last acknowledged in order.
    pub(super) acked: u32,
}

impl Client {
    pub(super) fn key(&self) -> (u16, bool) {
        (
            self.port,
            matches!(self.path.addresses, Addresses::V6 { .. }),
        )
    }

    pub(super) fn segment(&self, segment: &Segment) -> Vec<u8> {
        let seq = near(segment.seq, self.irs, self.snd_nxt);
        let ack = near(segment.ack, self.iss.unwrap_or(0), self.rcv_nxt);
        let (control, len) = match segment.kind {
            Kind::Ack => (ACK, 0),
            Kind::Data => (ACK | PSH, segment.len % MAX_DATA),
            Kind::Syn => (SYN, 0),
            Kind::Fin => (ACK | FIN, segment.len % 4),
            Kind::Reset => (RST | ACK, 0),
            Kind::Any(bits) => (bits, segment.len % MAX_DATA),
        };
        let window = segment.window.unwrap_or(u16::MAX);
        let options = segment.options.as_deref().unwrap_or_default();
        self.frame(seq, ack, control, window, options, len)
    }

    pub(super) fn frame(
        &self,
        seq: u32,
        ack: u32,
        control: u8,
        window: u16,
        options: &[u8],
        len: u16,
    ) -> Vec<u8> {
        let options = &options[..options.len().min(40)];
        let header_len = 20 + options.len().next_multiple_of(4);
        let mut tcp = vec![0; header_len];
        tcp[..2].copy_from_slice(&self.port.to_be_bytes());
        tcp[2..4].copy_from_slice(&OWN_PORT.to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&ack.to_be_bytes());
        tcp[12] = (header_len as u8 / 4) << 4;
        tcp[13] = control;
        tcp[14..16].copy_from_slice(&window.to_be_bytes());
        tcp[20..20 + options.len()].copy_from_slice(options);
        let first = seq.wrapping_add(u32::from(control & SYN != 0));
        tcp.extend((0..u32::from(len)).map(|at| byte_at(first.wrapping_add(at))));
        packet(&self.path, PROTOCOL_TCP, &tcp)
    }

    /// A router's word that the server's segment at `seq` was too big.
    pub(super) fn too_big(&self, mtu: u16, seq: u32) -> Vec<u8> {
        let back = Path {
            link: Link {
                vlan: None,
                ..self.path.link
            },
            addresses: self.path.addresses.reversed(),
        };
        let mut quoted = vec![0; back.header_len()];
        back.write(&mut quoted, PROTOCOL_TCP, 1000);
        quoted.drain(..back.link.header_len());
        quoted.extend(OWN_PORT.to_be_bytes());
        quoted.extend(self.port.to_be_bytes());
        quoted.extend(seq.to_be_bytes());
        let (protocol, kind, code) = match back.addresses {
            Addresses::V4 { .. } => (PROTOCOL_ICMP, 3, 4),
            Addresses::V6 { .. } => (PROTOCOL_ICMPV6, 2, 0),
        };
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend(quoted);
        packet(&self.path, protocol, &message)
    }
}
