//! A router before the client, whose next link takes only short packets.

use std::io;
use std::time::Duration;

use nmio::sim::SimClock;
use nmio::{
    Batch, Capabilities, Clock, Frame, Instant, Pool, Port, PortCounters, PortHints, Resident,
};
use nmio::{SendError, SuperSegment};

use crate::peer::{finish, sum};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const ICMP: usize = 8;
/// Of an IPv4 packet as much is quoted (RFC 792).
const QUOTED_V4: usize = IPV4 + 8;
/// Of an IPv6 packet as much, that the error fits every link (RFC 4443,
/// section 2.4).
const QUOTED_V6: usize = 1280 - IPV6 - ICMP;
const OWN_V4: [u8; 4] = [10, 0, 0, 254];
const OWN_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe];

/// What the link behind the router takes, and what the router does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrow {
    /// Bytes of the largest IP packet.
    pub(crate) mtu: usize,
    /// The link is narrow from then on.
    pub(crate) from: Instant,
    /// Whether ICMP errors are sent (RFC 1191, RFC 8201); otherwise packets
    /// vanish.
    pub(crate) tells: bool,
}

/// The client's port, behind a router.
pub(crate) struct Router<P> {
    inner: P,
    clock: SimClock,
    narrow: Option<Narrow>,
}

impl<P: Port> Router<P> {
    pub(crate) fn new(inner: P, clock: &SimClock, narrow: Option<Narrow>) -> Self {
        Self {
            inner,
            clock: clock.clone(),
            narrow,
        }
    }

    fn tell(&mut self, error: &[u8]) -> io::Result<()> {
        let mut frame = self.inner.pool().take().expect("a free frame");
        frame.set_len(error.len());
        frame.copy_from_slice(error);
        self.inner.send(frame).unwrap();
        self.inner.flush()?;
        Ok(())
    }
}

/// The error about a packet that is too long.
fn too_big(frame: &[u8], mtu: usize) -> Vec<u8> {
    let packet = &frame[ETHERNET..];
    let v6 = packet[0] >> 4 == 6;
    let quoted = &packet[..packet.len().min(if v6 { QUOTED_V6 } else { QUOTED_V4 })];
    let len = (ICMP + quoted.len()) as u16;

    let mut error = Vec::new();
    error.extend_from_slice(&frame[6..12]);
    error.extend_from_slice(&frame[..6]);
    error.extend_from_slice(&frame[12..14]);
    let mut icmp = vec![0; ICMP];
    icmp[4..].copy_from_slice(&(mtu as u32).to_be_bytes());
    icmp.extend_from_slice(quoted);
    if v6 {
        error.extend_from_slice(&[0x60, 0, 0, 0]);
        error.extend_from_slice(&len.to_be_bytes());
        error.extend_from_slice(&[58, 64]);
        error.extend_from_slice(&OWN_V6);
        error.extend_from_slice(&packet[8..24]);
        icmp[0] = 2;
        let pseudo = sum(&OWN_V6) + sum(&packet[8..24]) + u64::from(len) + 58;
        let checksum = finish(pseudo + sum(&icmp));
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    } else {
        let total = (IPV4 as u16 + len).to_be_bytes();
        let mut header = [0; IPV4];
        header[..4].copy_from_slice(&[0x45, 0, total[0], total[1]]);
        header[8..10].copy_from_slice(&[64, 1]);
        header[12..16].copy_from_slice(&OWN_V4);
        header[16..].copy_from_slice(&packet[12..16]);
        let checksum = finish(sum(&header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        error.extend_from_slice(&header);
        icmp[..2].copy_from_slice(&[3, 4]);
        let checksum = finish(sum(&icmp));
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    error.extend_from_slice(&icmp);
    error
}

impl<P: Port> Port for Router<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        self.inner.receive(batch, limit)?;
        let Some(narrow) = self.narrow.filter(|narrow| narrow.from <= self.clock.now()) else {
            return Ok(());
        };
        let frames: Vec<Frame> = batch.drain(..).collect();
        for frame in frames {
            if frame.len() <= ETHERNET + narrow.mtu {
                batch.push(frame);
            } else if narrow.tells {
                self.tell(&too_big(&frame, narrow.mtu))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        self.inner.send(frame)
    }

    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        self.inner.send_resident(packet)
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        self.inner.send_super(packet)
    }

    fn room(&mut self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.inner.flush()
    }

    fn hints(&self) -> PortHints {
        self.inner.hints()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&nmio::Bell>) -> io::Result<()> {
        self.inner.wait(timeout, bell)
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}
