//! Construction of the shared state from the configuration.

use super::recovery::{Recoveries, Recovery};
use super::{Context, Settings};
use crate::config::{Config, millis};
use crate::congestion::CongestionControl;
use crate::connection::StateCounts;
use crate::counters::Counters;
use crate::mss::OwnMss;
use crate::pools::{LendingPool, Peers, Pool};
use crate::rto::MAX_RTO_MS;
use crate::stream::Lists;

/// The user timeout divided by this number is the longest interval between zero-window probes, but
/// the interval is at least the minimum RTO.
const PROBES_IN_USER_TIMEOUT: u32 = 4;

/// Returns the smallest shift with which a window of `window` bytes fits into the header field (RFC
/// 7323, section 2.3).
fn window_scale(window: usize) -> u8 {
    let beyond = window >> u16::BITS;
    (usize::BITS - beyond.leading_zeros()) as u8
}

impl Settings {
    fn new(config: &Config) -> Self {
        let user_timeout_ms = config.user_timeout.map_or(u32::MAX, millis);
        let min_rto_ms = millis(config.min_rto).min(MAX_RTO_MS);
        let silence = config
            .keep_alive
            .map_or(config.idle_timeout, |time| time.min(config.idle_timeout));
        Self {
            syn_ack_retries: config.syn_ack_retries,
            retries: config.retries,
            probes: config.probes,
            pacing: config.pacing,
            time_wait_ms: millis(config.time_wait),
            fin_wait_ms: millis(config.fin_wait),
            idle_ms: millis(config.idle_timeout),
            user_timeout_ms,
            max_probe_interval_ms: (user_timeout_ms / PROBES_IN_USER_TIMEOUT).max(min_rto_ms),
            first_idle_ms: millis(silence),
            min_rto_ms,
            quick_min_rto_ms: millis(config.quick_min_rto),
        }
    }
}

impl<C> Context<C> {
    /// Returns the number of bytes that [`new`](Self::new) reserves for the recoveries and the
    /// client addresses of `connections` connections.
    pub(crate) fn reserved_bytes(connections: u32) -> usize {
        // Each connection can have a recovery. The list of free recoveries must have room for the
        // recovery's index (a `u32`).
        let each = size_of::<Recovery<C>>() + size_of::<u32>();
        connections as usize * each + Peers::bytes(connections)
    }
}

impl<C: CongestionControl> Context<C> {
    /// Creates the state for a stack on a port that accepts packets of up to `mtu` bytes. `config`
    /// must be [clamped](Config::clamped).
    pub(crate) fn new(config: &Config, mtu: usize) -> Self {
        let connections = config.max_connections;
        let (recoveries, [boards, large_boards]) = Recoveries::new(connections);
        Self {
            settings: Settings::new(config),
            counters: Counters::default(),
            states: StateCounts::default(),
            own_mss: OwnMss::new(mtu),
            peers: Peers::new([
                connections,
                config.max_recv_buffers,
                config.max_write_buffers,
                config.max_entry_lists,
                boards,
                large_boards,
            ]),
            lists: Lists::new(Pool::EntryLists, config.max_entry_lists),
            buffers: LendingPool::new(Pool::RecvBuffers, config.max_recv_buffers),
            buffer_len: config.recv_buffer,
            window_scale: window_scale(config.recv_buffer),
            recoveries,
            dsack: None,
            old_class: None,
        }
    }
}
