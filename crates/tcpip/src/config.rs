//! Settings of a stack, with their limits and defaults.

use std::time::Duration;

use crate::content::SendMode;
use crate::rto::{MIN_RTO_MS, QUICK_MIN_RTO_MS};

/// How a new connection is handled when the connection table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The stack drops the new connection's SYN, or the final ACK that returns a SYN cookie.
    Refuse,
    /// Another connection gives way. The stack evicts the first of the following connections that
    /// exists:
    ///
    /// - a connection in TIME-WAIT, which is silently forgotten;
    /// - a connection of an address that holds more than an eighth of the table, which is reset;
    /// - the connection that is furthest behind [`Config::min_rate`], in any state, if it is
    ///   behind by at least one second.
    ///
    /// For an evicted open connection, the application's [`on_close`](crate::Application::on_close)
    /// is called with [`CloseReason::Evicted`](crate::CloseReason::Evicted). An address that
    /// already holds an eighth of the table can only replace its own connections and those in
    /// TIME-WAIT.
    ///
    /// The connections are not kept sorted by progress, because sorting would slow down every
    /// connection. Instead, each decision examines the next 64 connections of the table, and up to
    /// 16 candidates from earlier decisions. A table of a thousand connections is thus searched
    /// completely in 16 decisions.
    #[default]
    Evict,
}

/// When a stack answers a SYN with a cookie instead of keeping state for the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SynCookies {
    /// When [`Config::max_half_open`] is reached. With [`WhenFull::Evict`] also when the table is
    /// full, so that only a peer that has proved its address can replace another connection.
    #[default]
    Auto,
    /// For every SYN, except one that reopens a connection in TIME-WAIT. Such a SYN is handled as
    /// in [`Auto`](Self::Auto).
    Always,
    /// Never: a SYN beyond [`Config::max_half_open`] is dropped.
    Never,
}

/// Settings of a [`Stack`](crate::Stack).
///
/// Times are truncated to whole milliseconds, and clamped to the range from 1 ms to
/// [`MAX_TIME`](Self::MAX_TIME).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// TCP ports on which the stack accepts connections.
    pub ports: Vec<u16>,
    /// How prepared segments are sent: [`SendMode::MemCopy`] by default.
    pub mode: SendMode,
    /// Maximum number of connections, including those in TIME-WAIT: 1 to
    /// [`MAX_CONNECTIONS`](Self::MAX_CONNECTIONS), 65,536 by default. An open connection uses about
    /// 360 bytes of memory, or about 900 during loss recovery. It also borrows from the pools of
    /// buffers, lists and scoreboards. The stack reserves
    /// [`Stack::reserved_bytes`](crate::Stack::reserved_bytes) of address space, but physical
    /// memory is used only as connections need it.
    pub max_connections: u32,
    /// What happens to a new connection when [`max_connections`](Self::max_connections) exist
    /// already: [`WhenFull::Evict`] by default.
    pub when_full: WhenFull,
    /// Maximum number of connections with an incomplete handshake, 4,096 by default. A SYN beyond
    /// this limit gets a cookie, or is dropped if [`syn_cookies`](Self::syn_cookies) is
    /// [`SynCookies::Never`]. With 0 every SYN is beyond the limit. With `u32::MAX` the number is
    /// limited only by [`max_connections`](Self::max_connections).
    pub max_half_open: u32,
    /// When the stack answers SYNs with cookies (RFC 4987, section 3.6), which need no memory per
    /// SYN: [`SynCookies::Auto`] by default. A connection opened by a cookie uses window scaling,
    /// SACK and ECN only if the client sends timestamps. Its MSS is rounded down to one of eight
    /// values. A cookie is valid for 64 to 128 seconds.
    pub syn_cookies: SynCookies,
    /// Maximum number of connections of one client address, `None` (no limit) by default.
    /// Connections in TIME-WAIT do not count. Half-open ones do not count either, because anybody
    /// can open them with a spoofed address. A SYN beyond the limit is dropped, and a handshake
    /// that completes beyond the limit is reset. With `Some(0)` every SYN is dropped.
    pub max_per_address: Option<u32>,
    /// IPv6 addresses that share a prefix of this length, in bits, count as one client address: 64
    /// by default, at most 128. A client in a /64 network can usually use all addresses of that
    /// network.
    pub ipv6_prefix: u8,
    /// Minimum data rate that counts as full progress, in bytes per second, 16,000 by default. A
    /// faster connection may get up to 20 s ahead of this rate. When connections, receive buffers,
    /// write buffers, entry lists or scoreboards run short, usually the connection that is furthest
    /// behind this rate gives way. It is evicted, or loses only its receive buffer or scoreboard. A
    /// connection that was behind catches up completely when the application answers a request
    /// while no other response is pending. A rate of 0 is treated as 1.
    pub min_rate: u32,
    /// Maximum number of connections in TIME-WAIT, 32,768 by default. Above this limit, a closed
    /// connection is forgotten immediately. With 0 there is no TIME-WAIT.
    pub max_time_wait: u32,
    /// Size of a receive buffer, which is also the largest window advertised: 536 bytes to 16 MiB,
    /// 16,384 bytes by default. A client without window scaling sees a window of at most 65,535
    /// bytes. [`on_receive`](crate::Application::on_receive) is given at most this many bytes.
    pub recv_buffer: usize,
    /// Maximum number of receive buffers, 4,096 by default. Only connections with out-of-order or
    /// unconsumed data need a buffer. When none is free, usually the connection with the least
    /// progress gives way. If no connection can give way, the data is dropped, and the client
    /// retransmits it. With 0, out-of-order and unconsumed data is always dropped. Each buffer in
    /// use occupies [`recv_buffer`](Self::recv_buffer) bytes of memory.
    pub max_recv_buffers: u32,
    /// Maximum number of buffers for [`write_bytes`](crate::Connection::write_bytes), 4,096 by
    /// default. Each stream entry that is not a slice of a content item needs one buffer. When no
    /// buffer is free, usually the connection with the least progress gives way. If no connection
    /// can give way, `write_bytes` fails with [`WriteError::Full`](crate::WriteError::Full). With
    /// 0, it fails for any data of at least one byte. A buffer grows with its data, up to
    /// [`MAX_WRITE_LEN`](crate::MAX_WRITE_LEN) bytes.
    pub max_write_buffers: u32,
    /// Maximum number of lists of stream entries, 4,096 by default. Only connections with more than
    /// two entries need a list. When none is free, usually the connection with the least progress
    /// gives way. If no connection can give way, a write that needs a third entry fails with
    /// [`WriteError::Full`](crate::WriteError::Full). With 0 there are no lists. Each list in use
    /// occupies 1,280 bytes of memory.
    pub max_entry_lists: u32,
    /// Maximum memory for the checksums and bookkeeping of segments for clients whose maximum
    /// segment size is not our own, in bytes, 64 MiB by default. Above this limit, segments for
    /// such clients are assembled, and their checksums computed, when they are sent.
    pub class_budget: usize,
    /// Number of SYN-ACK retransmissions, 3 by default: after 1, 3 and 7 seconds. The connection is
    /// forgotten after 15 seconds.
    pub syn_ack_retries: u8,
    /// Number of retransmission timeouts of the same data after which the next timeout ends the
    /// connection, 10 by default. If the first timeout is 200 ms, the eleventh expires after 222 s.
    /// The default [`user_timeout`](Self::user_timeout) ends the connection earlier. (RFC 9293,
    /// section 3.8.3, calls this limit R2, and recommends at least 100 s.)
    pub retries: u8,
    /// Number of unanswered zero window probes or keep-alives before the connection is given up, 10
    /// by default. A peer that answers the probes may keep its window at zero until resources run
    /// short (RFC 6429).
    pub probes: u8,
    /// Duration of TIME-WAIT, 10 s by default. RFC 9293, section 3.6.1, specifies 2 MSL (four
    /// minutes), but segments do not survive for longer than 10 s in real networks.
    pub time_wait: Duration,
    /// How long to wait for the peer's FIN after our own FIN was acknowledged, 30 s by default.
    pub fin_wait: Duration,
    /// How long a connection may be silent before the stack closes our side with a FIN: 60 s by
    /// default. The timeout cannot be disabled: 0 means 1 ms.
    pub idle_timeout: Duration,
    /// How long a peer may leave data or zero window probes unanswered before the connection is
    /// given up, 120 s by default. This is the user timeout of RFC 9293, section 3.9.1, without the
    /// option of RFC 5482. With `None`, only [`retries`](Self::retries) and
    /// [`probes`](Self::probes) limit how long the stack waits for such a peer.
    pub user_timeout: Option<Duration>,
    /// Interval of keep-alives to a silent client (RFC 1122, section 4.2.3.6). After
    /// [`probes`](Self::probes) unanswered keep-alives the connection is given up. The idle timeout
    /// still applies, so a value of at least [`idle_timeout`](Self::idle_timeout) has no effect.
    /// `Some(Duration::ZERO)` means 1 ms. `None`, the default, sends no keep-alives.
    pub keep_alive: Option<Duration>,
    /// Whether segments are spread over the round trip instead of being sent in bursts. Timers tick
    /// once per millisecond, so the segments of one millisecond are still sent together. Off by
    /// default, because ACKs clock the transmission. Connections whose congestion control sets a
    /// rate ([`Bbr`](crate::Bbr)) are always paced.
    pub pacing: bool,
    /// Initial minimum of a connection's retransmission timeout, 200 ms by default and at most
    /// [`MAX_RTO_MS`](crate::MAX_RTO_MS). RFC 6298, section 2.4, recommends one second.
    pub min_rto: Duration,
    /// Lowest minimum of a connection's retransmission timeout, 10 ms by default.
    ///
    /// The minimum falls from [`min_rto`](Self::min_rto) after about half a second of activity, if
    /// the client uses SACK and the round trip is below 10 ms. It then covers the longest delay that
    /// the client's ACKs have shown. Spurious retransmissions raise it again. With a value of at
    /// least `min_rto`, the minimum never falls.
    pub quick_min_rto: Duration,
    /// Whether connections use SACK if the client offers it (RFC 2018). On by default.
    pub sack: bool,
    /// Whether connections use timestamps if the client offers them (RFC 7323, section 3). On by
    /// default.
    pub timestamps: bool,
    /// Whether connections use window scaling if the client offers it (RFC 7323, section 2). On by
    /// default.
    pub window_scaling: bool,
    /// Whether connections use explicit congestion notification if the client offers it (RFC 3168).
    /// On by default.
    pub ecn: bool,
    /// Whether the stack sends a reset in reply to a segment that belongs to no connection (RFC
    /// 9293, section 3.10.7.1). On by default. If off, such segments are silently dropped.
    pub reset_unknown: bool,
}

impl Config {
    /// Maximum value of [`max_connections`](Self::max_connections). With this value the connection
    /// table alone occupies 4 GiB of address space.
    pub const MAX_CONNECTIONS: u32 = 1 << 28;
    /// Minimum size of a receive buffer, in bytes: one segment of the default IPv4 MSS.
    pub const MIN_RECV_BUFFER: usize = 536;
    /// Maximum size of a receive buffer, in bytes.
    pub const MAX_RECV_BUFFER: usize = 16 << 20;
    /// Upper limit on every time setting: seven days. Longer times are reduced to this limit,
    /// because deadlines are 32-bit numbers of milliseconds, which wrap.
    pub const MAX_TIME: Duration = Duration::from_hours(7 * 24);

    /// Returns the default settings for `ports`.
    pub fn on_ports(ports: &[u16]) -> Self {
        Self {
            ports: ports.to_vec(),
            ..Self::default()
        }
    }

    /// Returns the settings with `max_connections`, `ipv6_prefix` and `recv_buffer` clamped to
    /// their ranges.
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
            quick_min_rto: Duration::from_millis(QUICK_MIN_RTO_MS.into()),
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: true,
            reset_unknown: true,
        }
    }
}

/// Converts a time to milliseconds, and clamps it to the range from 1 ms to [`Config::MAX_TIME`].
pub(crate) fn millis(time: Duration) -> u32 {
    time.min(Config::MAX_TIME).as_millis().max(1) as u32
}
