//! Queries and replies as messages of dnstap (<https://dnstap.info>), for programs that collect them.
//!
//! A worker copies each query and each reply into a record. The thread of the log turns records into
//! messages.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use control::{
    CLIENT_LEN, FrameDestination, LogName, RecordLog, RecordSender, client_from_bytes,
    client_to_bytes,
};
use nmio::Instant;
use prost::Message as _;

/// What the log is called.
pub(super) const NAME: LogName = LogName {
    shown: "dnstap",
    option: "dnstap",
};
/// The type of the frames.
const CONTENT_TYPE: &str = "protobuf:dnstap.Dnstap";
/// Length of a record without the DNS message, in bytes.
const ENTRY_LEN: usize = 1 + 2 * CLIENT_LEN + size_of::<u64>();
/// Flag of a record: the message came over TCP.
const IS_TCP: u8 = 1;
/// Flag of a record: the message is a reply.
const IS_REPLY: u8 = 2;
/// Nanoseconds after which a worker reads the wall clock again.
const CLOCK_PERIOD: u64 = 1_000_000_000;

/// The outer message. Fields have the numbers of `dnstap.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct Dnstap {
    #[prost(bytes = "vec", optional, tag = "1")]
    identity: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    version: Option<Vec<u8>>,
    #[prost(message, optional, tag = "14")]
    message: Option<Message>,
    /// Always 1: a DNS message.
    #[prost(int32, required, tag = "15")]
    kind: i32,
}

/// A DNS message, with what is known of it.
#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    /// 1 for `AUTH_QUERY`, and 2 for `AUTH_RESPONSE`.
    #[prost(int32, required, tag = "1")]
    kind: i32,
    /// 1 for IPv4, and 2 for IPv6.
    #[prost(int32, optional, tag = "2")]
    socket_family: Option<i32>,
    /// 1 for UDP, and 2 for TCP.
    #[prost(int32, optional, tag = "3")]
    socket_protocol: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    query_address: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    response_address: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "6")]
    query_port: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    response_port: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    query_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "9")]
    query_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "10")]
    query: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "12")]
    response_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "13")]
    response_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "14")]
    response: Option<Vec<u8>>,
}

/// Opens the log. `identity` and `version` are those of the server in the messages.
///
/// # Errors
/// If its file cannot be made. The error names it.
pub(super) fn open(
    to: &FrameDestination,
    identity: String,
    version: String,
) -> io::Result<RecordLog> {
    let format = move |record: &[u8], frame: &mut Vec<u8>| {
        let outer = Dnstap {
            identity: Some(identity.clone().into_bytes()),
            version: Some(version.clone().into_bytes()),
            message: message(record),
            kind: 1,
        };
        // A vector has room for every message.
        let _ = outer.encode(frame);
    };
    RecordLog::open_frames(NAME, to, CONTENT_TYPE, format)
}

/// Returns the message for a record.
fn message(record: &[u8]) -> Option<Message> {
    let (entry, bytes) = record.split_first_chunk()?;
    let Entry {
        peer,
        local,
        nanos,
        flags,
    } = Entry::from_bytes(entry);
    let (seconds, rest) = (nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32);
    let address = |end: SocketAddr| match end.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let is_reply = flags & IS_REPLY != 0;
    Some(Message {
        kind: if is_reply { 2 } else { 1 },
        socket_family: Some(if peer.is_ipv4() { 1 } else { 2 }),
        socket_protocol: Some(if flags & IS_TCP == 0 { 1 } else { 2 }),
        query_address: Some(address(peer)),
        response_address: Some(address(local)),
        query_port: Some(peer.port().into()),
        response_port: Some(local.port().into()),
        // A reply leaves in the batch of its query, whose time is both times.
        query_time_sec: Some(seconds),
        query_time_nsec: Some(rest),
        query: (!is_reply).then(|| bytes.to_vec()),
        response_time_sec: is_reply.then_some(seconds),
        response_time_nsec: is_reply.then_some(rest),
        response: is_reply.then(|| bytes.to_vec()),
    })
}

/// What a worker knows of a message, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    peer: SocketAddr,
    local: SocketAddr,
    /// Nanoseconds since 1970.
    nanos: u64,
    flags: u8,
}

impl Entry {
    fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[0] = self.flags;
        bytes[1..9].copy_from_slice(&self.nanos.to_ne_bytes());
        bytes[9..9 + CLIENT_LEN].copy_from_slice(&client_to_bytes(self.peer));
        bytes[9 + CLIENT_LEN..].copy_from_slice(&client_to_bytes(self.local));
        bytes
    }

    fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Self {
        let (mut nanos, mut peer, mut local) = ([0; 8], [0; CLIENT_LEN], [0; CLIENT_LEN]);
        nanos.copy_from_slice(&bytes[1..9]);
        peer.copy_from_slice(&bytes[9..9 + CLIENT_LEN]);
        local.copy_from_slice(&bytes[9 + CLIENT_LEN..]);
        Self {
            peer: client_from_bytes(&peer),
            local: client_from_bytes(&local),
            nanos: u64::from_ne_bytes(nanos),
            flags: bytes[0],
        }
    }
}

/// The end of dnstap that belongs to one worker and transport.
#[derive(Debug)]
pub(super) struct Tap {
    sender: RecordSender,
    flags: u8,
    clock: WallClock,
    /// The time of the last query, in nanoseconds since 1970.
    nanos: u64,
}

impl Tap {
    pub(super) fn new(sender: RecordSender, is_tcp: bool) -> Self {
        Self {
            sender,
            flags: if is_tcp { IS_TCP } else { 0 },
            clock: WallClock::default(),
            nanos: 0,
        }
    }

    /// Sends a query.
    pub(super) fn on_query(&mut self, ends: [SocketAddr; 2], query: &[u8], now: Instant) {
        self.nanos = self.clock.at(now);
        self.send(ends, self.flags, &[query]);
    }

    /// Sends the reply to the last query.
    pub(super) fn on_reply(&mut self, ends: [SocketAddr; 2], parts: &[&[u8]]) {
        self.send(ends, self.flags | IS_REPLY, parts);
    }

    fn send(&mut self, [peer, local]: [SocketAddr; 2], flags: u8, parts: &[&[u8]]) {
        let entry = Entry {
            peer,
            local,
            nanos: self.nanos,
            flags,
        };
        self.sender.send_parts(&entry.to_bytes(), parts);
    }

    /// Number of messages that are lost.
    pub(super) fn lost(&self) -> u64 {
        self.sender.lost()
    }
}

/// Turns a worker's time into the time of day. It reads the system's clock at most once a second,
/// because on some hosts that takes a system call.
#[derive(Debug, Default)]
struct WallClock {
    /// A worker's time, and the same time in nanoseconds since 1970.
    read: Option<(Instant, u64)>,
}

impl WallClock {
    fn at(&mut self, now: Instant) -> u64 {
        let since = |read: Instant| now.since(read).as_nanos() as u64;
        if let Some((read, nanos)) = self.read
            && since(read) < CLOCK_PERIOD
        {
            return nanos + since(read);
        }
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = nanos.unwrap_or_default().as_nanos() as u64;
        self.read = Some((now, nanos));
        nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn entry(peer: &str, flags: u8) -> Entry {
        Entry {
            peer: peer.parse().unwrap(),
            local: "[2001:db8::1]:53".parse().unwrap(),
            nanos: 1_700_000_000_000_000_007,
            flags,
        }
    }

    #[test]
    fn messages_have_the_fields_of_dnstap() {
        let record = [&entry("192.0.2.1:4000", 0).to_bytes()[..], QUERY].concat();
        let encoded = message(&record).unwrap().encode_to_vec();
        let expected = [
            // AUTH_QUERY, IPv4, UDP, and the addresses and ports.
            &b"\x08\x01\x10\x01\x18\x01\x22\x04\xc0\0\x02\x01"[..],
            b"\x2a\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x30\xa0\x1f\x38\x35",
            // The time.
            b"\x40\x80\xe2\xcf\xaa\x06\x4d\x07\0\0\0",
            b"\x52\x13",
            QUERY,
        ];
        assert_eq!(encoded, expected.concat());
        let record = [&entry("[::1]:1", IS_TCP | IS_REPLY).to_bytes()[..], QUERY].concat();
        let reply = message(&record).unwrap();
        assert_eq!(
            (reply.kind, reply.socket_family, reply.socket_protocol),
            (2, Some(2), Some(2))
        );
        assert_eq!(reply.response.as_deref(), Some(QUERY));
        assert_eq!(
            (reply.response_time_sec, reply.response_time_nsec),
            (Some(1_700_000_000), Some(7))
        );
        assert!(reply.query.is_none() && message(b"short").is_none());
    }

    #[test]
    fn the_wall_clock_goes_on_with_the_time_of_the_worker() {
        let mut clock = WallClock::default();
        let start = clock.at(Instant::from_millis(5));
        assert_eq!(clock.at(Instant::from_millis(905)), start + 900_000_000);
        assert!(
            clock.at(Instant::from_millis(1_005)) < start + 900_000_000,
            "it is read again"
        );
    }
}
