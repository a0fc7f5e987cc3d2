//! Tests of admission: which connection the stack evicts when the connection table is full, and the
//! limit on the connections of an address.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use nmio::Instant;
use proptest::prelude::*;
use testkit::{Route, read};

use crate::connection::State;
use crate::stack::testing::{App, Habit, MSS, OWN_PORT, Rig, noise};
use crate::{Config, NewReno, Stack, SynCookies, WhenFull};

/// Settings with room for three connections.
fn three() -> Config {
    Config {
        max_connections: 3,
        idle_timeout: Duration::from_mins(1),
        ..Config::default()
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no virtual memory of its own")]
fn reserved_bytes_predicts_the_memory_of_a_stack() {
    // The first field of `statm` is the number of pages of virtual memory.
    let reserved = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
    };
    let config = Config {
        max_connections: 1 << 22,
        ..Config::default()
    };
    let expected = Stack::<App, NewReno>::reserved_bytes(&config);
    let before = reserved();
    let rig = Rig::new(&config);
    let growth = reserved() - before;
    drop(rig);
    // Tests in other threads also reserve memory, so allow a tolerance.
    let tolerance = expected / 10;
    assert!(
        growth.abs_diff(expected) < tolerance,
        "{growth} bytes, not {expected}"
    );
}

impl Rig {
    /// Sends the SYN of a new client with this port.
    fn send_syn(&mut self, port: u16) {
        (self.route.src.port, self.iss) = (port, 0);
        self.syn(Some(1472));
    }

    /// Opens a connection for a client with this port, and sets `iss` to our initial sequence
    /// number. Returns true if the handshake succeeds.
    pub(super) fn join(&mut self, port: u16) -> bool {
        self.send_syn(port);
        if self.port.sent.is_empty() {
            return false;
        }
        while let Some(packet) = self.port.sent.front() {
            // Skip the reset of another client's connection, which was evicted.
            if peer_port_of(packet) != port {
                self.port.sent.pop_front();
                continue;
            }
            assert_eq!(self.sent_one().control, "SA");
        }
        self.recv(1, 1, "A", b"");
        self.state_of(port) == Some(State::Established)
    }

    pub(super) fn state_of(&self, port: u16) -> Option<State> {
        let mut all = self.stack.table.records.iter().map(|record| &record.tcb);
        let found = all.find(|tcb| tcb.state != State::Closed && tcb.view().peer_port == port);
        found.map(|tcb| tcb.state)
    }

    /// Opens connections for ports 1000 to 1002, one second apart, and then waits five more
    /// seconds.
    fn three_idle(config: &Config) -> Self {
        let mut rig = Self::new(config);
        for port in 1000..1003 {
            assert!(rig.join(port));
            rig.pass_ms(1_000);
        }
        rig.pass_ms(5_000);
        rig.take_log();
        rig
    }
}

/// Returns the client's port in a packet that the stack sent.
fn peer_port_of(packet: &[u8]) -> u16 {
    read(packet).expect("a valid packet").route.dst.port
}

#[test]
fn the_longest_idle_connection_is_evicted_with_a_reset() {
    let mut rig = Rig::three_idle(&three());
    rig.send_syn(1003);
    // The SYN may be spoofed, so it gets a cookie, and no connection is evicted yet.
    rig.sent(0, 1, "SA", b"");
    assert_eq!(rig.stack.connections(), 3);
    rig.recv(1, 1, "A", b"");
    let reset = rig.port.sent.pop_front().unwrap();
    assert_eq!(u16::from_be_bytes([reset[36], reset[37]]), 1000);
    assert_eq!(reset[47] & 0x14, 0x14, "RST and ACK");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "close(Evicted) accept");
    assert_eq!(rig.state_of(1000), None);
    assert_eq!(rig.state_of(1003), Some(State::Established));
    assert_eq!(rig.stack.counters().evicted, 1);
    assert_eq!(rig.stack.connections(), 3);
}

#[test]
fn a_recently_answered_request_counts_as_progress() {
    let mut rig = Rig::three_idle(&three());
    rig.app().habit = Habit::Echo;
    // The oldest connection's client sends a request.
    rig.route.src.port = 1000;
    let iss = rig.stack.tcb(0).view().snd_una.0.wrapping_sub(1);
    rig.iss = iss;
    rig.recv(1, 1, "PA", b"x");
    rig.port.sent.clear();
    assert!(rig.join(1003));
    assert_eq!(rig.state_of(1000), Some(State::Established));
    assert_eq!(rig.state_of(1001), None);
}

#[test]
fn the_longest_idle_of_a_thousand_connections_is_evicted() {
    const ALL: u16 = 1_000;
    let mut rig = Rig::new(&Config {
        max_connections: ALL.into(),
        ..three()
    });
    rig.app().habit = Habit::Echo;
    for n in 0..ALL {
        assert!(rig.join(1_000 + n));
    }
    // The clients send their requests in an order that differs from the order of the TCBs.
    let mut eldest_first: VecDeque<u16> = (0..ALL).map(|n| 1_000 + n * 7 % ALL).collect();
    for port in eldest_first.iter().copied() {
        rig.route.src.port = port;
        let tcb = rig.stack.tcb(u32::from(port - 1_000));
        rig.iss = tcb.view().snd_una.0.wrapping_sub(1);
        rig.recv(1, 1, "PA", b"x");
        rig.port.sent.clear();
        rig.pass_ms(1);
    }
    rig.pass_ms(2_000);
    // Once each connection has been examined, the stack always evicts the one that has been idle
    // for longest.
    for n in 0..200 {
        assert!(rig.join(3_000 + n));
        if n < ALL / 64 {
            eldest_first.retain(|port| rig.state_of(*port).is_some());
        } else {
            let eldest = eldest_first.pop_front().unwrap();
            assert_eq!(rig.state_of(eldest), None, "{eldest}, after {n}");
        }
    }
}

#[test]
fn spoofed_syns_evict_no_connection() {
    let mut rig = Rig::three_idle(&three());
    for port in 2000..3000 {
        rig.send_syn(port);
    }
    assert_eq!(rig.stack.connections(), 3);
    assert_eq!(rig.stack.counters().evicted, 0);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_connection_in_time_wait_is_evicted_first_and_without_a_reset() {
    let mut rig = Rig::three_idle(&three());
    // Close the youngest connection from our side first, so that it enters TIME-WAIT.
    rig.app().habit = Habit::ServeOnce;
    rig.load(b"content", None);
    rig.app().habit = Habit::ServeOnce;
    rig.iss = rig.stack.tcb(2).view().snd_una.0.wrapping_sub(1);
    rig.recv(1, 1, "PA", b"g");
    rig.recv(2, 9, "FA", b"");
    assert_eq!(rig.state_of(1002), Some(State::TimeWait));
    rig.port.sent.clear();
    rig.take_log();
    assert!(rig.join(1003));
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "accept");
    assert_eq!(rig.stack.counters().time_waits_evicted, 1);
    assert_eq!(rig.stack.counters().evicted, 0);
    assert_eq!(rig.state_of(1000), Some(State::Established));
}

/// Opens three connections, and calls `act` to bring each into the state under test. At first, no
/// connection gives way. After more than a second without progress, the oldest connection gives
/// way.
fn the_longest_idle_is_evicted(act: impl Fn(&mut Rig)) {
    let mut rig = Rig::new(&three());
    rig.load(&[7; 3000], None);
    for port in 1000..1003 {
        assert!(rig.join(port));
        act(&mut rig);
        rig.port.sent.clear();
        rig.pass_ms(10);
    }
    // The pause must not be longer, because the stack would then retransmit.
    rig.pass_ms(150);
    rig.port.sent.clear();
    assert!(!rig.join(1003), "the table is full");
    assert_eq!(rig.stack.connections(), 3);
    assert_eq!(rig.stack.counters().connections_full, 1);
    for port in 1000..1003 {
        assert!(rig.state_of(port).is_some());
    }
    rig.pass_ms(2_000);
    rig.port.sent.clear();
    assert!(rig.join(1003));
    assert_eq!(rig.state_of(1000), None);
    assert!(rig.state_of(1001).is_some());
    assert_eq!(rig.stack.counters().evicted, 1);
}

/// Unacknowledged data does not protect a connection.
#[test]
fn a_connection_without_progress_is_evicted_in_any_state() {
    // Data is in flight.
    the_longest_idle_is_evicted(|rig| rig.recv(1, 1, "PA", b"g"));
    // The application does not consume the data.
    the_longest_idle_is_evicted(|rig| {
        rig.app().habit = Habit::Lazy;
        rig.recv(1, 1, "PA", b"g");
        rig.app().habit = Habit::Silent;
    });
    // The peer's window is zero.
    the_longest_idle_is_evicted(|rig| {
        rig.window = 0;
        rig.recv(1, 1, "PA", b"g");
        rig.window = 65_535;
    });
    // Both sides have closed, and our FIN is in flight.
    the_longest_idle_is_evicted(|rig| {
        rig.app().habit = Habit::Silent;
        rig.recv(1, 1, "FA", b"");
    });
    // The connection has just opened.
    the_longest_idle_is_evicted(|_| {});
}

#[test]
fn a_connection_is_evicted_after_its_response_is_acknowledged() {
    let mut rig = Rig::new(&three());
    rig.load(&[7; 3000], None);
    for port in 1000..1003 {
        rig.pass_ms(1);
        assert!(rig.join(port));
        rig.recv(1, 1, "PA", b"g");
        rig.recv(2, 3001, "A", b"");
        rig.port.sent.clear();
    }
    rig.pass_ms(2_000);
    assert!(rig.join(1003));
    assert_eq!(rig.state_of(1000), None);
}

#[test]
fn half_closed_connections_are_evicted_too() {
    // Bring the connections into FIN-WAIT-2, in which our data and our FIN are acknowledged.
    let mut rig = Rig::new(&three());
    rig.load(b"content", None);
    rig.app().habit = Habit::ServeOnce;
    for port in 1000..1003 {
        assert!(rig.join(port));
        rig.recv(1, 1, "PA", b"g");
        rig.recv(2, 9, "A", b"");
        assert_eq!(rig.state_of(port), Some(State::FinWait2));
        rig.port.sent.clear();
    }
    rig.pass_ms(2_000);
    rig.take_log();
    assert!(rig.join(1003));
    assert_eq!(rig.take_log(), "close(Evicted) accept");
}

#[test]
fn no_connection_is_evicted_if_configured_to_refuse() {
    let mut rig = Rig::three_idle(&Config {
        when_full: WhenFull::Refuse,
        ..three()
    });
    assert!(!rig.join(1003));
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().connections_full, 1);
    assert_eq!(rig.stack.counters().cookies_sent, 0);
}

#[test]
fn without_cookies_a_syn_evicts_a_connection() {
    let mut rig = Rig::three_idle(&Config {
        syn_cookies: SynCookies::Never,
        ..three()
    });
    rig.send_syn(1003);
    assert_eq!(rig.state_of(1003), Some(State::SynReceived));
    assert_eq!(rig.state_of(1000), None);
    assert_eq!(rig.take_log(), "close(Evicted)");
}

#[test]
fn each_eviction_examines_the_next_sample() {
    let mut rig = Rig::new(&Config {
        max_connections: 200,
        ..Config::default()
    });
    for port in 1000..1200 {
        assert!(rig.join(port));
    }
    rig.pass_ms(2_000);
    for port in 2000..2200 {
        assert!(rig.join(port), "{port}");
        rig.pass_ms(6);
    }
    let old = (1000..1200).filter(|port| rig.state_of(*port).is_some());
    let left = old.count();
    assert!(left <= 10, "{left} of the old connections are left");
}

/// Returns the route from a client whose IPv4 address ends in `last`.
pub(super) fn from_v4(last: u8) -> Route {
    from(Ipv4Addr::new(10, 0, 0, last).into())
}

pub(super) fn from_v6(network: u16, host: u16) -> Route {
    from(Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into())
}

fn from(ip: IpAddr) -> Route {
    let mut route = Route::to_server(ip.is_ipv6(), 0, OWN_PORT);
    route.src.ip = ip;
    route
}

fn two_each() -> Config {
    Config {
        max_per_address: Some(2),
        ..Config::default()
    }
}

/// Opens a connection for a client with this `route` and `port`. Returns true if the handshake
/// succeeds.
fn joins(rig: &mut Rig, route: Route, port: u16) -> bool {
    rig.route = route;
    (rig.route.src.port, rig.iss) = (port, 0);
    rig.syn(Some(1472));
    if rig.port.sent.is_empty() {
        return false;
    }
    rig.sent(0, 1, "SA", b"");
    rig.recv(1, 1, "A", b"");
    let refused = rig.port.sent.pop_front();
    refused.is_none()
}

#[test]
fn an_address_is_limited_to_its_share() {
    let mut rig = Rig::new(&two_each());
    assert!(joins(&mut rig, from_v4(5), 1000));
    assert!(joins(&mut rig, from_v4(5), 1001));
    assert!(!joins(&mut rig, from_v4(5), 1002));
    assert_eq!(rig.stack.counters().per_address_full, 1);
    assert!(
        joins(&mut rig, from_v4(6), 1002),
        "other addresses have their own share"
    );
    // After one connection is closed, the address may open another.
    rig.route = from_v4(5);
    rig.route.src.port = 1000;
    rig.recv(1, 1, "R", b"");
    let tcb = rig.stack.tcb(0);
    let next = tcb.view().rcv_nxt.0;
    rig.send_raw(next, 0, "R", b"", None);
    assert!(joins(&mut rig, from_v4(5), 1003));
    assert!(!joins(&mut rig, from_v4(5), 1004));
}

#[test]
fn an_ipv6_network_of_64_bits_counts_as_one_address() {
    let mut rig = Rig::new(&two_each());
    assert!(joins(&mut rig, from_v6(1, 1), 1000));
    assert!(joins(&mut rig, from_v6(1, 2), 1000));
    assert!(!joins(&mut rig, from_v6(1, 3), 1000));
    assert!(joins(&mut rig, from_v6(2, 3), 1000));
}

#[test]
fn spoofed_syns_do_not_use_up_the_share_of_an_address() {
    let mut rig = Rig::new(&two_each());
    rig.route = from_v4(5);
    for port in 2000..2100 {
        rig.send_syn(port);
    }
    rig.port.sent.clear();
    assert!(joins(&mut rig, from_v4(5), 1000));
    assert!(joins(&mut rig, from_v4(5), 1001));
}

/// Starts five handshakes from one address before completing any, and checks that only two succeed.
fn five_knock_and_two_are_let_in(rig: &mut Rig) {
    let halves = (1000..1005).map(|port| {
        rig.send_syn(port);
        rig.sent_one();
        (port, rig.iss)
    });
    for (port, iss) in halves.collect::<Vec<_>>() {
        (rig.route.src.port, rig.iss) = (port, iss);
        rig.recv(1, 1, "A", b"");
        let refused = !rig.port.sent.is_empty();
        assert_eq!(refused, port >= 1002);
        if refused {
            assert_eq!(rig.sent_one().control, "R");
        }
    }
}

#[test]
fn an_address_establishes_no_more_half_open_connections_than_its_share() {
    let mut rig = Rig::new(&two_each());
    rig.route = from_v4(5);
    five_knock_and_two_are_let_in(&mut rig);
    assert_eq!(rig.take_log(), "accept accept");
    assert_eq!(rig.stack.connections(), 2);
    assert_eq!(rig.stack.counters().per_address_full, 3);
}

#[test]
fn cookies_do_not_bypass_the_share() {
    let mut rig = Rig::new(&Config {
        syn_cookies: SynCookies::Always,
        ..two_each()
    });
    rig.route = from_v4(5);
    five_knock_and_two_are_let_in(&mut rig);
    assert_eq!(rig.stack.connections(), 2);
}

#[test]
fn connections_in_time_wait_do_not_count_towards_the_share() {
    let mut rig = Rig::new(&two_each());
    rig.load(b"content", None);
    rig.app().habit = Habit::ServeOnce;
    for port in 1000..1020 {
        assert!(joins(&mut rig, from_v4(5), port), "{port}");
        rig.recv(1, 1, "PA", b"g");
        rig.recv(2, 9, "FA", b"");
        assert_eq!(rig.state_of(port), Some(State::TimeWait));
        rig.port.sent.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After each step, the rig checks that the counts of connections per address agree with the
    /// TCBs.
    #[test]
    fn shares_are_counted_correctly_in_any_sequence(
        steps in prop::collection::vec((0u8..6, 0u8..4, 1000u16..1006, 0u64..4_000), 1..150),
        cookies: bool,
    ) {
        let syn_cookies = if cookies { SynCookies::Always } else { SynCookies::Auto };
        let mut rig = Rig::new(&Config {
            max_connections: 5,
            max_half_open: 2,
            max_time_wait: 2,
            syn_cookies,
            ..two_each()
        });
        rig.load(b"content", None);
        rig.app().habit = Habit::ServeOnce;
        for (what, client, port, wait) in steps {
            rig.route = if client < 2 { from_v4(client + 5) } else { from_v6(client.into(), 1) };
            let known = rig.stack.table.records.iter().map(|record| &record.tcb).find(|tcb| {
                tcb.state != State::Closed
                    && tcb.matches(&rig.addresses(), port, rig.route.dst.port)
            });
            let (seq, ack) = known.map_or((1, 1), |tcb| (tcb.view().rcv_nxt.0, tcb.view().snd_nxt.0));
            rig.route.src.port = port;
            match what {
                0 => { joins_or_not(&mut rig, port); }
                1 => rig.send_raw(seq, ack, "PA", b"g", None),
                2 => rig.send_raw(seq, ack, "FA", b"", None),
                3 => rig.send_raw(seq, ack, "R", b"", None),
                4 => rig.send_syn(port),
                _ => rig.pass_ms(wait),
            }
            rig.port.sent.clear();
        }
        // Now all clients are silent, so the stack gives up every connection.
        rig.pass_ms(2_000_000);
        prop_assert_eq!(rig.stack.cx.peers.totals(), (0, [0; 6]));
    }
}

fn joins_or_not(rig: &mut Rig, port: u16) {
    rig.send_syn(port);
    let Some(packet) = rig.port.sent.pop_back() else {
        return;
    };
    let at = rig.route.header_len();
    let isn = u32::from_be_bytes(packet[at + 4..at + 8].try_into().unwrap());
    let seq = rig.irs.wrapping_add(1);
    rig.send_raw(seq, isn.wrapping_add(1), "A", b"", None);
}

/// Pacing does not stop a connection that a cookie has opened, even when the 32-bit clock is about
/// to wrap.
#[test]
fn pacing_works_after_a_cookie() {
    let config = Config {
        pacing: true,
        syn_cookies: SynCookies::Always,
        ..Config::default()
    };
    let mut rig = Rig::new(&config);
    // Start half a second before the 32-bit clock in microseconds wraps.
    rig.now = Instant::ZERO + Duration::from_micros((1 << 32) - 500_000);
    rig.open(Some(MSS));
    rig.load(&noise(100_000), None);
    // Pacing begins only when a round trip has been measured.
    rig.recv(1, 1, "PA", b"g");
    rig.pass_ms(10);
    let sent = rig.sent_all().len() as u32;
    rig.recv(2, 1 + sent * 1460, "A", b"");
    rig.pass_ms(20);
    assert!(!rig.sent_all().is_empty(), "{sent} before");
}

#[test]
fn the_end_of_a_handshake_may_come_from_another_router() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(MSS));
    rig.sent_one();
    let router = [2, 0, 0, 0, 0, 0x77];
    rig.route.src.mac = router;
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.stack.tcb(0).path.link.peer.0, router);
}
