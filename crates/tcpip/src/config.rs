//! What can be set, and its limits.

use std::time::Duration;

use crate::content::SendMode;
use crate::rto::MIN_RTO_MS;

/// What happens to a new connection when there are as many as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// Its SYN is dropped.
    Refuse,
    /// Another one gives way: one in TIME-WAIT is forgotten; if there is none,
    /// one of an address that holds more than an eighth of the table is reset;
    /// if there is none, the one that has made the least progress
    /// ([`Config::min_rate`]), if it lacks a second of it at least, whatever its
    /// state. [`on_close`](crate::Application::on_close) is told
    /// [`CloseReason::Evicted`](crate::CloseReason::Evicted). An address that
    /// holds an eighth of the table takes nobody else's place.
    ///
    /// Nothing is kept in order for it that would cost the others anything:
    /// each time the next 64 connections in the table are looked at, and the
    /// 16 that were the next candidates so far. Of a thousand connections it is
    /// the right one when each was looked at once.
    #[default]
    Evict,
}

/// When a stack answers SYNs without keeping anything of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SynCookies {
    /// When there are as many half-open connections as may be, or, where
    /// idle ones give way, no place for another connection: only a peer that
    /// proves its address takes another's place.
    #[default]
    Auto,
    /// To every SYN.
    Always,
    /// Never: a SYN beyond the limits is dropped.
    Never,
}

/// How a [`Stack`](crate::Stack) serves.
///
/// Times are counted in whole milliseconds: a shorter one, 0 included, is taken
/// as 1 ms, and a longer one than [`MAX_TIME`](Self::MAX_TIME) as that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Ports that connections are accepted on.
    pub ports: Vec<u16>,
    /// How prepared segments are sent. [`SendMode::MemCopy`] by default.
    pub mode: SendMode,
    /// Connections at a time, those in TIME-WAIT included: 1 to
    /// [`MAX_CONNECTIONS`](Self::MAX_CONNECTIONS), 65,536 by default. Takes
    /// about 340 bytes for each that is open, and up to about 900 while
    /// acknowledgements are missing. Memory is touched when it is first used;
    /// [`Stack::reserved_bytes`](crate::Stack::reserved_bytes) of it are
    /// reserved.
    pub max_connections: u32,
    /// What happens beyond that: [`WhenFull::Evict`] by default.
    pub when_full: WhenFull,
    /// Connections whose handshake is not complete, 4,096 by default. A SYN
    /// beyond gets a cookie, or is dropped where
    /// [`syn_cookies`](Self::syn_cookies) is [`SynCookies::Never`]. With 0 every
    /// SYN is beyond. `u32::MAX` sets no bound but
    /// [`max_connections`](Self::max_connections).
    pub max_half_open: u32,
    /// When SYNs are answered with cookies (RFC 4987, section 3.6), which take
    /// no memory: [`SynCookies::Auto`] by default. A connection opened by one
    /// has window scaling, selective acknowledgements and congestion
    /// notification only if the client sends timestamps; an MSS is rounded
    /// down to one of eight. A cookie is good for one to two minutes.
    pub syn_cookies: SynCookies,
    /// Connections of one client address at a time; as many as there are by
    /// default. Those in TIME-WAIT are not counted, and those that are half open
    /// neither, as anybody could have opened them in a client's name. A SYN
    /// beyond is dropped. `None` sets no bound. With `Some(0)` every SYN is
    /// dropped.
    pub max_per_address: Option<u32>,
    /// Leading bits by which IPv6 addresses count as one client address, 64 by
    /// default: whoever has one address of such a network has them all. At most
    /// 128.
    pub ipv6_prefix: u8,
    /// Bytes a second from which on a client makes full use of what it holds,
    /// 16,000 by default. A connection that takes or sends less, averaged over
    /// at least 20 s, stays as long as nothing runs short: connections, receive
    /// buffers, write buffers or scoreboards. Then the one gives way that has
    /// made the least progress by this measure. The answer to a request that
    /// comes while nothing else is owed counts as full use. Any value will do; 0
    /// is taken as 1.
    pub min_rate: u32,
    /// Connections in TIME-WAIT, 32,768 by default. Beyond it a connection is
    /// forgotten at once when it has closed. With 0 none is remembered.
    pub max_time_wait: u32,
    /// Bytes of a receive buffer, and so the window that is told: 536 to 16
    /// MiB, 16,384 by default. Beyond 65,535 only clients that scale windows
    /// are told all of it. An application gets no more than that in
    /// one piece.
    pub recv_buffer: usize,
    /// Receive buffers, 4,096 by default. Only connections with data that is
    /// out of order or not consumed need one. Beyond it the connection with the
    /// least progress gives way; if there is none, the data is dropped, and
    /// comes again. With 0 there are no buffers, and such data is always dropped.
    /// Each takes [`recv_buffer`](Self::recv_buffer) bytes of memory, from its
    /// first use on.
    pub max_recv_buffers: u32,
    /// Buffers for [`write_bytes`](crate::Connection::write_bytes), 4,096 by
    /// default: one for each stream entry that is no content. Beyond it the
    /// connection with the least progress gives way; if there is none, a write
    /// fails with [`WriteError::Full`](crate::WriteError::Full). With 0 each one
    /// does. A buffer has the memory that its bytes take, at most
    /// [`MAX_WRITE_LEN`](crate::MAX_WRITE_LEN).
    pub max_write_buffers: u32,
    /// Lists of stream entries, 4,096 by default: only connections with more than
    /// two entries need one. Beyond it the connection with the least progress
    /// gives way; if there is none, a write fails with
    /// [`WriteError::Full`](crate::WriteError::Full) until there is room for it
    /// without a list. With 0 there are none. Each takes 1,280 bytes of memory,
    /// from its first use on.
    pub max_entry_lists: u32,
    /// Bytes of memory that segments may take for clients whose maximum
    /// segment size is not ours, 64 MiB by default. Beyond it they are served
    /// by the general path, which sums the payload.
    pub class_budget: usize,
    /// Times that a SYN-ACK is sent again, 3 by default: after 1, 3 and 7
    /// seconds; the connection is forgotten after 15.
    pub syn_ack_retries: u8,
    /// Times that data is sent again before the connection is given up, 10 by
    /// default: after one to several minutes (RFC 9293, section 3.8.3: R2 is
    /// at least 100 s).
    pub retries: u8,
    /// Probes of a shut window, or keep-alives, that stay without an answer
    /// before the connection is given up, 10 by default. A peer that answers
    /// may keep its window shut for as long as nothing runs short (RFC 6429).
    pub probes: u8,
    /// How long a closed connection is remembered. 2 MSL in RFC 9293, section
    /// 3.4.2; 10 s by default, the time in which segments really get lost.
    pub time_wait: Duration,
    /// How long a connection that we have closed may stay half-closed, 30 s
    /// by default.
    pub fin_wait: Duration,
    /// How long a connection may be silent before it is closed (with a FIN,
    /// as by the application), 60 s by default. It cannot be turned off: 0 is
    /// taken as 1 ms.
    pub idle_timeout: Duration,
    /// How long a peer that has something to acknowledge may stay silent before
    /// the connection is given up (the user timeout of RFC 9293, section 3.9.1,
    /// or RFC 5482, of ours alone): data is not acknowledged, or probes of a shut
    /// window are not answered. `None` for as long as [`retries`](Self::retries)
    /// and [`probes`](Self::probes) take. 120 s by default.
    pub user_timeout: Option<Duration>,
    /// After how much silence a client is asked whether it is there (RFC 1122,
    /// section 4.2.3.6), and again after as much; after
    /// [`probes`](Self::probes) without an answer the connection is given up.
    /// Silence ends with the idle timeout all the same, so a time that is not
    /// shorter than [`idle_timeout`](Self::idle_timeout) has no effect.
    /// `Some(Duration::ZERO)` is taken as 1 ms. `None`, the default: nobody is
    /// asked.
    pub keep_alive: Option<Duration>,
    /// Whether segments are spread over the round trip instead of leaving in
    /// bursts. Timers tick once a millisecond, so bursts of that long remain.
    /// Off by default: the ACK is the clock. Algorithms that ask for a rate
    /// ([`Bbr`](crate::Bbr)) are paced in any case.
    pub pacing: bool,
    /// The least retransmission timeout, 200 ms by default (RFC 6298, 2.4,
    /// would have a second).
    pub min_rto: Duration,
    /// Whether selective acknowledgements are taken part in where the client
    /// offers them (RFC 2018). On by default, as are the three that follow.
    pub sack: bool,
    /// Likewise for timestamps (RFC 7323, section 3).
    pub timestamps: bool,
    /// Likewise for scaled windows (RFC 7323, section 2).
    pub window_scaling: bool,
    /// Likewise for explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Whether a segment to no connection is answered with a reset (RFC 9293,
    /// section 3.10.7.1). On by default; off, such segments are dropped.
    pub reset_unknown: bool,
}

impl Config {
    /// The most connections: the table that finds them has twice as many
    /// places.
    pub const MAX_CONNECTIONS: u32 = 1 << 28;
    /// The least receive buffer: one segment of the least default size.
    pub const MIN_RECV_BUFFER: usize = 536;
    /// The largest receive buffer.
    pub const MAX_RECV_BUFFER: usize = 16 << 20;
    /// A longer time is taken as this one: deadlines wrap.
    pub const MAX_TIME: Duration = Duration::from_hours(7 * 24);

    /// The defaults, on `ports`.
    pub fn on_ports(ports: &[u16]) -> Self {
        Self {
            ports: ports.to_vec(),
            ..Self::default()
        }
    }

    /// The same with every number inside its bounds.
    pub(crate) fn clamped(&self) -> Self {
        Self {
            max_connections: self.max_connections.clamp(1, Self::MAX_CONNECTIONS),
            ipv6_prefix: self.ipv6_prefix.min(128),
            recv_buffer: self
                .recv_buffer
                .clamp(Self::MIN_RECV_BUFFER, Self::MAX_RECV_BUFFER),
            ..self.clone()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            mode: SendMode::default(),
            max_connections: 65_536,
            when_full: WhenFull::default(),
            max_half_open: 4_096,
            syn_cookies: SynCookies::default(),
            max_per_address: None,
            ipv6_prefix: 64,
            min_rate: 16_000,
            max_time_wait: 32_768,
            recv_buffer: 16_384,
            max_recv_buffers: 4_096,
            max_write_buffers: 4_096,
            max_entry_lists: 4_096,
            class_budget: 64 << 20,
            syn_ack_retries: 3,
            retries: 10,
            probes: 10,
            time_wait: Duration::from_secs(10),
            fin_wait: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(1),
            user_timeout: Some(Duration::from_mins(2)),
            keep_alive: None,
            pacing: false,
            min_rto: Duration::from_millis(MIN_RTO_MS.into()),
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: true,
            reset_unknown: true,
        }
    }
}

/// A time as deadlines are counted: 1 to [`Config::MAX_TIME`].
pub(crate) fn millis(time: Duration) -> u32 {
    time.min(Config::MAX_TIME).as_millis().max(1) as u32
}
