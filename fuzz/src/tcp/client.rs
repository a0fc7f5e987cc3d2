//! A client: segments from where it is, right or wrong on purpose.

use std::sync::LazyLock;

use eth::Link;
use ip::{Addresses, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, Path};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nmio::Instant;

use super::segment::{ACK, CWR, ECE, FIN, MAX_OPTIONS, Options, PSH, RST, Ranges, SYN, Sent};
use crate::{mark, packet};

pub(super) const OWN_PORT: u16 = 80;
/// Bytes of data in one segment.
pub(super) const MAX_DATA: u16 = 1400;

/// A sequence number or a clock, from where the client or the server is.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Near {
    Next,
    By(i8),
    Far(i16),
    Start,
    Any(u32),
}

impl Near {
    pub(super) fn of(self, start: u32, next: u32) -> u32 {
        match self {
            Self::Next => next,
            Self::By(by) => next.wrapping_add_signed(by.into()),
            Self::Far(by) => next.wrapping_add_signed(by.into()),
            Self::Start => start,
            Self::Any(any) => any,
        }
    }
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

/// An option of a segment.
#[derive(Arbitrary, Debug)]
pub enum Choice {
    /// Those that the client has agreed on.
    Agreed,
    Mss(u16),
    Scale(u8),
    SackPermitted,
    Stamps(Near, Near),
    /// Blocks, each with its length.
    Sack(Vec<(Near, u16)>),
    Bytes(Vec<u8>),
}

/// A segment of a client.
#[derive(Arbitrary, Debug)]
pub struct Segment {
    kind: Kind,
    seq: Near,
    ack: Near,
    window: Option<u16>,
    len: u16,
    options: Vec<Choice>,
}

/// What a SYN offers.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Offer {
    mss: Option<u16>,
    scale: Option<u8>,
    sack: bool,
    stamps: bool,
    ecn: bool,
}

/// What somebody on the way, or nobody at all, says about a segment.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Complaint {
    TooBig(u16),
    Unreachable(u8),
    TimeExceeded,
    Parameter,
    Quench,
}

/// After as many bytes all data begins again; sequence numbers wrap there, too.
const PERIOD: usize = 1 << 20;

/// Two periods of bytes, made once: loops over bytes are slow where each
/// comparison is noted down.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let bytes = (0..2 * PERIOD as u32).map(|at| at & (PERIOD as u32 - 1));
    bytes
        .map(|at| (at ^ (at >> 8).wrapping_mul(7) ^ (at >> 15)) as u8)
        .collect()
});

/// The `len` bytes that a client has at a sequence number.
pub(super) fn bytes_at(seq: u32, len: usize) -> &'static [u8] {
    &BYTES[seq as usize & (PERIOD - 1)..][..len]
}

/// A client's next segment, as its header says it.
pub(super) struct Header {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) control: u8,
    pub(super) window: u16,
    pub(super) options: Vec<u8>,
    /// Bytes of data.
    pub(super) len: u16,
}

impl Header {
    /// What it takes of the sequence space behind a SYN.
    pub(super) fn sequence_len(&self) -> u32 {
        u32::from(self.len) + u32::from(self.control & FIN != 0)
    }

    /// Whether it opens a connection.
    pub(super) fn is_syn(&self) -> bool {
        self.control & (FIN | SYN | RST | ACK) == SYN
    }
}

/// A client: what it believes to have sent and seen.
pub(super) struct Client {
    pub(super) path: Path,
    pub(super) port: u16,
    /// The server's initial sequence number, once a SYN-ACK has told.
    pub(super) iss: Option<u32>,
    pub(super) irs: u32,
    /// What the server expects next, as it has acknowledged.
    pub(super) snd_nxt: u32,
    /// What has come of the server's stream.
    pub(super) received: Ranges,
    /// What it has last acknowledged in order.
    pub(super) acked: u32,
    /// The window that it tells, where a segment does not choose.
    pub(super) window: u16,
    /// The server has taken these up.
    pub(super) stamps: bool,
    pub(super) sack: bool,
    /// The server's clock, to be echoed.
    pub(super) echo: u32,
    /// Its own clock, and what that is ahead of time, in milliseconds.
    pub(super) clock: u32,
    pub(super) ahead: u32,
    /// The ECN bits of its packets.
    pub(super) ecn: u8,
    /// ECE and CWR, in the segments that do not choose.
    pub(super) control: u8,
    /// Segments that have come since it has last acknowledged any.
    pub(super) unacknowledged: u32,
    /// Which of the segments to it are lost, by the bits, and in turn.
    pub(super) loss: u8,
    pub(super) seen: u32,
}

impl Client {
    pub(super) fn new(path: Path, port: u16) -> Self {
        Self {
            path,
            port,
            iss: None,
            irs: 0,
            snd_nxt: 0,
            received: Ranges::default(),
            acked: 0,
            window: u16::MAX,
            stamps: false,
            sack: false,
            echo: 0,
            clock: 0,
            ahead: 0,
            ecn: 0,
            control: 0,
            unacknowledged: 0,
            loss: 0,
            seen: 0,
        }
    }

    pub(super) fn key(&self) -> (u16, bool) {
        (
            self.port,
            matches!(self.path.addresses, Addresses::V6 { .. }),
        )
    }

    /// Its clock goes on.
    pub(super) fn tick(&mut self, now: Instant) {
        self.clock = ((now.as_micros() / 1000) as u32).wrapping_add(self.ahead);
    }

    /// Behind all that has come in order.
    pub(super) fn rcv_nxt(&self) -> u32 {
        let first = self.iss.unwrap_or(0).wrapping_add(1);
        first.wrapping_add(self.received.prefix())
    }

    /// Takes a segment in, or loses it.
    pub(super) fn take(&mut self, sent: &Sent<'_>) {
        self.seen = self.seen.wrapping_add(1);
        if self.loss >> (self.seen % 8) & 1 != 0 || sent.has(RST) {
            return;
        }
        if sent.has(SYN) {
            if (self.iss, self.irs) != (Some(sent.seq), sent.ack.wrapping_sub(1)) {
                self.iss = Some(sent.seq);
                self.irs = sent.ack.wrapping_sub(1);
                self.received = Ranges::default();
            }
            self.stamps = sent.options.stamps.is_some();
            self.sack = sent.options.sack_permitted;
        } else if let Some(iss) = self.iss {
            let offset = sent.seq.wrapping_sub(iss).wrapping_sub(1);
            self.received.insert(offset, sent.len());
            self.unacknowledged += u32::from(sent.len() > 0);
        }
        self.snd_nxt = sent.ack;
        if let Some((value, _)) = sent.options.stamps {
            self.echo = value;
        }
    }

    /// The options that were agreed on.
    fn agreed(&self) -> Options {
        let first = self.iss.unwrap_or(0).wrapping_add(1);
        let islands = self.received.islands().iter().rev();
        let blocks =
            islands.map(|(start, end)| (first.wrapping_add(*start), first.wrapping_add(*end)));
        Options {
            stamps: self.stamps.then_some((self.clock, self.echo)),
            sack: blocks.filter(|_| self.sack).collect(),
            ..Options::default()
        }
    }

    /// A SYN with what it offers.
    pub(super) fn syn(&self, isn: u32, offer: Offer, window: u16) -> Header {
        let options = Options {
            mss: offer.mss,
            scale: offer.scale,
            sack_permitted: offer.sack,
            stamps: offer.stamps.then_some((self.clock, 0)),
            sack: Vec::new(),
        };
        Header {
            seq: isn,
            ack: 0,
            control: if offer.ecn { SYN | ECE | CWR } else { SYN },
            window,
            options: options.bytes(),
            len: 0,
        }
    }

    /// The next bytes, with an acknowledgement of everything to `ack`.
    pub(super) fn in_order(&self, ack: u32, control: u8, len: u16) -> Header {
        Header {
            seq: self.snd_nxt,
            ack,
            control: control | self.control,
            window: self.window,
            options: self.agreed().bytes(),
            len,
        }
    }

    pub(super) fn segment(&self, segment: &Segment) -> Header {
        let (control, len) = match segment.kind {
            Kind::Ack => (ACK, 0),
            Kind::Data => (ACK | PSH, segment.len % MAX_DATA),
            Kind::Syn => (SYN, 0),
            Kind::Fin => (ACK | FIN, segment.len % 4),
            Kind::Reset => (RST | ACK, 0),
            Kind::Any(bits) => (bits, segment.len % MAX_DATA),
        };
        Header {
            seq: segment.seq.of(self.irs, self.snd_nxt),
            ack: segment.ack.of(self.iss.unwrap_or(0), self.rcv_nxt()),
            control,
            window: segment.window.unwrap_or(self.window),
            options: self.chosen(&segment.options),
            len,
        }
    }

    fn chosen(&self, choices: &[Choice]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for choice in choices {
            let mut options = Options::default();
            match choice {
                Choice::Agreed => options = self.agreed(),
                Choice::Mss(mss) => options.mss = Some(*mss),
                Choice::Scale(shift) => options.scale = Some(*shift),
                Choice::SackPermitted => options.sack_permitted = true,
                Choice::Stamps(value, echo) => {
                    let value = value.of(self.clock.wrapping_add(1 << 31), self.clock);
                    options.stamps = Some((value, echo.of(0, self.echo)));
                }
                Choice::Sack(blocks) => {
                    let blocks = blocks.iter().map(|(start, len)| {
                        let start = start.of(self.acked, self.rcv_nxt());
                        (start, start.wrapping_add(u32::from(*len)))
                    });
                    options.sack = blocks.collect();
                }
                Choice::Bytes(any) => bytes.extend_from_slice(any),
            }
            bytes.extend(options.bytes());
            if bytes.len() >= MAX_OPTIONS {
                break;
            }
        }
        bytes.truncate(MAX_OPTIONS);
        bytes
    }

    /// The frame of a segment.
    pub(super) fn frame(&self, header: &Header) -> Vec<u8> {
        let options = &header.options;
        let header_len = 20 + options.len().next_multiple_of(4);
        let mut tcp = vec![0; header_len];
        tcp[..2].copy_from_slice(&self.port.to_be_bytes());
        tcp[2..4].copy_from_slice(&OWN_PORT.to_be_bytes());
        tcp[4..8].copy_from_slice(&header.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&header.ack.to_be_bytes());
        tcp[12] = (header_len as u8 / 4) << 4;
        tcp[13] = header.control;
        tcp[14..16].copy_from_slice(&header.window.to_be_bytes());
        tcp[20..20 + options.len()].copy_from_slice(options);
        let first = header
            .seq
            .wrapping_add(u32::from(header.control & SYN != 0));
        tcp.extend_from_slice(bytes_at(first, header.len.into()));
        let mut frame = packet(&self.path, PROTOCOL_TCP, &tcp);
        mark(&mut frame, self.ecn);
        frame
    }

    /// Somebody's word about the server's segment at `seq`.
    pub(super) fn complaint(&self, complaint: Complaint, seq: u32) -> Vec<u8> {
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
        let v6 = matches!(back.addresses, Addresses::V6 { .. });
        let (kind, code, mtu) = match (complaint, v6) {
            (Complaint::TooBig(mtu), false) => (3, 4, mtu),
            (Complaint::TooBig(mtu), true) => (2, 0, mtu),
            (Complaint::Unreachable(code), false) => (3, code, 0),
            (Complaint::Unreachable(code), true) => (1, code, 0),
            (Complaint::TimeExceeded, false) => (11, 0, 0),
            (Complaint::TimeExceeded, true) => (3, 0, 0),
            (Complaint::Parameter, false) => (12, 0, 0),
            (Complaint::Parameter, true) | (Complaint::Quench, false) => (4, 0, 0),
            // IPv6 has no such thing.
            (Complaint::Quench, true) => (100, 0, 0),
        };
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend(quoted);
        let protocol = if v6 { PROTOCOL_ICMPV6 } else { PROTOCOL_ICMP };
        packet(&self.path, protocol, &message)
    }
}
