//! Tests of pools without free slots. They check that slots go to connections that make progress,
//! that each address is limited to its share, and that unused memory is freed.

use std::time::Duration;

use testkit::{ACK, Opt, RST, Received, Route, read_segment};

use super::admission::{from_v4, from_v6};
use super::flooding::Offer;
use crate::Config;
use crate::clock::Moment;
use crate::connection::State;
use crate::negotiated::Negotiated;
use crate::pools::Pool;
use crate::stack::testing::{Habit, Part, Rig, noise};
use crate::wire::{Control, Segment};

/// A client and its connection.
#[derive(Clone, Copy, Debug)]
struct Client {
    route: Route,
    port: u16,
    iss: u32,
}

impl Rig {
    /// Opens a connection for a new client.
    #[track_caller]
    fn client(&mut self, route: Route, port: u16) -> Client {
        let client = self.try_client(route, port);
        client.expect("a place for the client")
    }

    fn try_client(&mut self, route: Route, port: u16) -> Option<Client> {
        self.route = route;
        let joined = self.join(port);
        let iss = self.iss;
        joined.then_some(Client { route, port, iss })
    }

    /// Makes `client` the sender of all following segments.
    fn be(&mut self, client: Client) {
        (self.route, self.iss) = (client.route, client.iss);
        self.route.src.port = client.port;
    }

    fn lives(&self, client: Client) -> bool {
        let lives = |state| state != State::TimeWait;
        self.state_of(client.port).is_some_and(lives)
    }

    /// Checks that the next segment sent is a reset to `client`.
    #[track_caller]
    fn sent_reset_to(&mut self, client: Client) {
        let packet = self.port.sent.pop_front().expect("a reset");
        let Received { route, segment, .. } = read_segment(&packet).unwrap();
        assert_eq!((route.dst.port, segment.has(RST)), (client.port, true));
    }
}

/// Settings with `limit` slots in each pool of buffers or lists.
fn pools_of(limit: u32) -> Config {
    Config {
        max_connections: 10 * limit,
        max_recv_buffers: limit,
        max_write_buffers: limit,
        max_entry_lists: limit,
        idle_timeout: Duration::from_hours(1),
        ..Config::default()
    }
}

#[test]
fn a_connection_with_a_partial_request_loses_its_receive_buffer() {
    let mut rig = Rig::new(&pools_of(2));
    rig.app().habit = Habit::Lazy;
    let halves = [20, 21].map(|last| {
        let client = rig.client(from_v4(last), 1000 + u16::from(last));
        rig.recv(1, 1, "PA", b"GET");
        rig.pass_ms(100);
        client
    });
    let guest = rig.client(from_v4(5), 3000);
    rig.port.sent.clear();
    rig.recv(1, 1, "PA", b"GET / HTTP/1.1");
    rig.sent(1, 1, "A", b"");
    assert_eq!(rig.stack.counters().no_buffer, 1, "all are in use");
    // One byte per second is too little progress.
    for at in 4..7 {
        for client in halves {
            rig.be(client);
            rig.recv(at, 1, "PA", b" ");
        }
        rig.pass_ms(1_000);
    }
    rig.port.sent.clear();
    rig.be(guest);
    rig.take_log();
    // The guest has not made progress either, but its connection is younger, so its lag is smaller.
    rig.recv(1, 1, "PA", b"GET / HTTP/1.1");
    rig.sent_reset_to(halves[0]);
    rig.sent(1, 15, "A", b"");
    assert_eq!(rig.take_log(), "receive(14) close(Evicted)");
    assert!(rig.lives(halves[1]) && rig.lives(guest));
}

#[test]
fn a_connection_with_more_progress_keeps_its_buffer() {
    let mut rig = Rig::new(&pools_of(1));
    rig.app().habit = Habit::Lazy;
    let old = rig.client(from_v4(20), 1000);
    rig.pass_ms(5_000);
    let young = rig.client(from_v4(21), 1001);
    rig.recv(1, 1, "PA", b"GET");
    rig.pass_ms(5_000);
    rig.port.sent.clear();
    rig.be(old);
    rig.recv(1, 1, "PA", b"GET");
    rig.sent(1, 1, "A", b"");
    assert!(rig.lives(old) && rig.lives(young));
    assert_eq!(rig.stack.counters().no_buffer, 1);
}

/// We may discard data that we have acknowledged only selectively (RFC 2018, section 8).
#[test]
fn a_buffer_without_in_order_data_is_taken_and_its_connection_stays_open() {
    let mut rig = Rig::new(&pools_of(1));
    rig.app().habit = Habit::Echo;
    let first = rig.client(from_v4(20), 1000);
    rig.recv(4, 1, "PA", b"def");
    rig.sent(1, 1, "A", b"");
    rig.pass_ms(2_000);
    let second = rig.client(from_v4(21), 1001);
    rig.recv(4, 1, "PA", b"DEF");
    rig.sent(1, 1, "A", b"");
    rig.recv(1, 1, "PA", b"ABC");
    rig.sent(1, 7, "PA", b"ABCDEF");
    assert_eq!(rig.stack.counters().recv_buffers_taken, 1);
    rig.be(second);
    rig.recv(7, 7, "A", b"");
    // The first client retransmits the data that was discarded, and its connection continues.
    rig.be(first);
    rig.recv(1, 1, "PA", b"abc");
    rig.sent(1, 4, "PA", b"abc");
    rig.recv(4, 4, "PA", b"def");
    rig.sent(4, 7, "PA", b"def");
    assert_eq!(rig.stack.counters().evicted, 0);
}

/// Opens two connections whose clients do not read, so that the connections occupy all write
/// buffers.
fn unread() -> (Rig, [Client; 2]) {
    let mut rig = Rig::new(&pools_of(2));
    rig.app().habit = Habit::Echo;
    let readers = [20, 21].map(|last| {
        let client = rig.client(from_v4(last), 1000 + u16::from(last));
        rig.window = 0;
        rig.recv(1, 1, "PA", b"query");
        rig.window = 65_535;
        rig.pass_ms(1_000);
        client
    });
    // The server writes the answers to these queries too, but the clients do not read them.
    for client in readers {
        rig.be(client);
        rig.window = 0;
        rig.recv(6, 1, "PA", b"query");
        rig.window = 65_535;
    }
    (rig, readers)
}

#[test]
fn connections_with_unread_answers_lose_their_write_buffers() {
    let (mut rig, readers) = unread();
    rig.port.sent.clear();
    let guest = rig.client(from_v4(5), 3000);
    rig.take_log();
    rig.recv(1, 1, "PA", b"query");
    rig.sent_reset_to(readers[0]);
    rig.sent(1, 6, "PA", b"query");
    assert_eq!(
        rig.take_log(),
        "receive(5) close(Evicted) receive(5)",
        "the application is asked again at once"
    );
    assert!(rig.lives(readers[1]) && rig.lives(guest));
    assert_eq!(rig.stack.counters().write_buffers_taken, 1);
}

#[test]
fn a_connection_that_gives_way_to_another_accessed_one_gets_no_further_callback() {
    let mut rig = Rig::new(&pools_of(1));
    rig.app().habit = Habit::Echo;
    rig.app().close_back = false;
    let ids = [20, 5].map(|last| {
        rig.client(from_v4(last), 1000 + u16::from(last));
        if last == 20 {
            // The client does not read the answer, so the connection keeps the only write buffer.
            rig.window = 0;
            rig.recv(1, 1, "PA", b"query");
            rig.app().habit = Habit::Park;
            rig.recv(6, 1, "FPA", b"ab");
            rig.window = 65_535;
            rig.pass_ms(2_000);
        } else {
            rig.recv(1, 1, "PA", b"abc");
        }
        rig.app().accepted.unwrap().0
    });
    rig.app().habit = Habit::Echo;
    rig.take_log();
    let (stack, port, now) = (&mut rig.stack, &mut rig.port, rig.now);
    stack.reach(port, now, |_, connections| {
        for id in ids {
            connections.get(id).unwrap().resume();
        }
    });
    let log = rig.take_log();
    assert!(log.ends_with("close(Evicted) receive(1)"), "{log}");
}

#[test]
fn connections_with_unread_responses_of_many_parts_lose_their_entry_lists() {
    let mut rig = Rig::new(&pools_of(2));
    let content = rig.add(&noise(100), None);
    rig.app().habit = Habit::Parts;
    rig.app().at_once = 3;
    let parts = || {
        (0..3)
            .rev()
            .map(|from| Part::Slice(content, from..from + 1, 0))
    };
    let ask = |rig: &mut Rig, last| {
        let client = rig.client(from_v4(last), 3000 + u16::from(last));
        rig.app().parts.extend(parts());
        rig.take_log();
        rig.recv(1, 1, "PA", b"g");
        client
    };
    let readers = [20, 21].map(|last| {
        let client = ask(&mut rig, last);
        rig.pass_ms(1_000);
        client
    });
    rig.port.sent.clear();
    let guest = ask(&mut rig, 5);
    rig.sent_reset_to(readers[0]);
    assert_eq!(
        rig.take_log(),
        "receive(1) close(Evicted) receive(1)",
        "the application is asked again at once"
    );
    assert_eq!(rig.sent_all().len(), 3);
    assert!(rig.lives(readers[1]) && rig.lives(guest));
    assert_eq!(rig.stack.counters().entry_lists_taken, 1);
}

#[test]
fn a_write_in_on_sent_takes_a_write_buffer_too() {
    let (mut rig, readers) = unread();
    rig.load(b"content", None);
    let guest = rig.client(from_v4(5), 3000);
    rig.recv(1, 1, "PA", b"1");
    rig.app().later = Some(b"later");
    rig.take_log();
    rig.port.sent.clear();
    rig.recv(2, 8, "A", b"");
    rig.pass_ms(100);
    rig.sent_reset_to(readers[0]);
    rig.sent(8, 2, "PA", b"later");
    assert_eq!(
        rig.take_log(),
        "sent sent close(Evicted) sent",
        "the application is asked again, and once more when there is a buffer"
    );
    assert!(rig.lives(readers[1]) && rig.lives(guest));
}

#[test]
fn a_write_in_on_deadline_takes_a_write_buffer_soon() {
    let (mut rig, readers) = unread();
    rig.app().habit = Habit::Silent;
    rig.app().deadline = Some(Duration::from_millis(50));
    rig.client(from_v4(5), 3000);
    rig.recv(1, 1, "PA", b"1");
    rig.app().later = Some(b"later");
    rig.take_log();
    rig.port.sent.clear();
    rig.pass_ms(100);
    rig.sent_reset_to(readers[0]);
    rig.sent(1, 2, "PA", b"later");
    let log = "deadline(Request) sent close(Evicted) sent";
    assert_eq!(rig.take_log(), log);
}

#[test]
fn claiming_to_consume_more_than_offered_gains_no_progress() {
    let housekeeping = |habit| {
        let mut rig = Rig::established(&Config::default());
        rig.app().habit = habit;
        rig.pass_ms(10_000);
        // The second half of the data arrives before the first half and is stored in a receive
        // buffer.
        rig.recv(4, 1, "PA", b"def");
        rig.recv(1, 1, "PA", b"abc");
        format!("{:?}", rig.stack.table.housekeeping)
    };
    assert_eq!(housekeeping(Habit::Boast), housekeeping(Habit::Silent));
}

#[test]
fn a_connection_with_progress_keeps_its_write_buffer() {
    let mut rig = Rig::new(&pools_of(2));
    rig.app().habit = Habit::Echo;
    for last in [20, 21] {
        rig.client(from_v4(last), 1000 + u16::from(last));
        rig.recv(1, 1, "PA", b"query");
        rig.sent_one();
    }
    rig.pass_ms(100);
    let guest = rig.client(from_v4(5), 3000);
    rig.recv(1, 1, "PA", b"query");
    rig.sent(1, 6, "A", b"");
    assert!(rig.lives(guest));
    assert_eq!(rig.stack.counters().evicted, 0);
    assert_eq!(rig.stack.counters().write_buffers_taken, 0);
}

/// Opens a connection that loses every second segment of a window. The scoreboard needs more
/// entries for the losses than its smallest size has.
fn loser(rig: &mut Rig, route: Route, port: u16) -> Client {
    rig.route = route;
    rig.route.src.port = port;
    rig.offer(&Offer {
        mss: Some(1472),
        sack: true,
        ..Offer::default()
    });
    let syn_ack = rig.reply();
    rig.complete(&syn_ack, 0, b"");
    rig.iss = syn_ack.seq;
    rig.recv(1, 1, "PA", b"g");
    for n in [1, 3, 5, 7] {
        sack(rig, n);
    }
    rig.port.sent.clear();
    let iss = rig.iss;
    Client { route, port, iss }
}

/// Selectively acknowledges segment number `n`.
fn sack(rig: &mut Rig, n: u32) {
    let edge = |segment: u32| rig.iss.wrapping_add(1 + segment * 1460);
    let option = Opt::Sack(vec![(edge(n), edge(n + 1))]);
    let (seq, ack) = (rig.irs.wrapping_add(2), rig.iss.wrapping_add(1));
    rig.raw(seq, ack, ACK, &[option], b"");
}

#[test]
fn a_larger_scoreboard_goes_to_the_connection_with_more_progress() {
    // In tests, each of the two pools of larger scoreboards has only one slot.
    let mut rig = Rig::new(&pools_of(16));
    rig.load(&noise(100_000), None);
    let holders = |rig: &Rig| {
        let of = |pool| {
            rig.stack
                .cx
                .peers
                .owners(pool)
                .first()
                .map(|owner| owner.id)
        };
        [Pool::Boards, Pool::LargeBoards].map(of)
    };
    let first = loser(&mut rig, from_v4(20), 1000);
    assert_eq!(holders(&rig), [Some(0), None]);
    loser(&mut rig, from_v4(21), 1001);
    assert_eq!(holders(&rig), [Some(0), Some(1)]);
    rig.pass_ms(100);
    let third = loser(&mut rig, from_v4(22), 1002);
    assert_eq!(holders(&rig), [Some(0), Some(1)], "both are in use");
    rig.pass_ms(2_000);
    rig.be(third);
    sack(&mut rig, 9);
    assert_eq!(holders(&rig), [Some(2), Some(1)]);
    assert_eq!(rig.stack.counters().scoreboards_taken, 1);
    assert_eq!(rig.stack.counters().evicted, 0);
    // The first connection has lost its larger scoreboard, but still sends all of its data.
    rig.be(first);
    rig.port.sent.clear();
    let mut at = 1;
    for _ in 0..500 {
        let next = rig.stack.tcb(0).view().snd_nxt.0.wrapping_sub(rig.iss);
        at = next.min(at + 2 * 1460);
        rig.recv(2, at, "A", b"");
        rig.pass_ms(10);
        rig.port.sent.clear();
    }
    assert_eq!(at, 100_001);
}

/// Settings with room for 16 connections. When the table is full, one address may hold two of them.
fn sixteen() -> Config {
    Config {
        max_connections: 16,
        idle_timeout: Duration::from_hours(1),
        ..Config::default()
    }
}

#[test]
fn connections_of_an_address_beyond_its_share_are_evicted_first() {
    let mut rig = Rig::new(&sixteen());
    let others: Vec<Client> = (0..8)
        .map(|n| rig.client(from_v4(20 + n), 1000 + u16::from(n)))
        .collect();
    rig.pass_ms(10_000);
    // One address fills half of the table with new connections.
    let many: Vec<Client> = (0..8).map(|n| rig.client(from_v4(5), 2000 + n)).collect();
    for n in 0..6 {
        rig.client(from_v4(40 + n), 3000 + u16::from(n));
    }
    assert!(others.iter().all(|client| rig.lives(*client)));
    let left = many.iter().filter(|client| rig.lives(**client)).count();
    assert_eq!(left, 2);
    // When the address holds only its share, the longest idle connections of all addresses give
    // way.
    rig.client(from_v4(50), 3050);
    assert!(many.iter().any(|client| rig.lives(*client)));
    assert!(!others.iter().all(|client| rig.lives(*client)));
}

#[test]
fn an_address_at_its_share_evicts_no_other_address() {
    let mut rig = Rig::new(&sixteen());
    for n in 0..14 {
        rig.client(from_v4(20 + n), 1000 + u16::from(n));
    }
    rig.pass_ms(10_000);
    let own = [2000, 2001].map(|port| {
        rig.pass_ms(10);
        rig.client(from_v4(5), port)
    });
    assert!(
        rig.try_client(from_v4(5), 2002).is_none(),
        "the table is full"
    );
    assert_eq!(rig.stack.counters().connections_full, 1);
    assert_eq!(rig.stack.connections(), 16);
    // The address may still replace its own idle connections.
    rig.pass_ms(1_500);
    rig.client(from_v4(5), 2003);
    assert!(!rig.lives(own[0]) && rig.lives(own[1]));
    assert!((0..14).all(|n| rig.state_of(1000 + n).is_some()));
}

#[test]
fn an_ipv6_network_has_one_share_and_its_size_can_be_set() {
    for (prefix, left) in [(64, 2), (128, 8), (32, 2)] {
        let mut rig = Rig::new(&Config {
            ipv6_prefix: prefix,
            ..sixteen()
        });
        let many: Vec<Client> = (0..8)
            .map(|n| rig.client(from_v6(1, n), 2000 + n))
            .collect();
        for n in 0..8 {
            rig.client(from_v4(20 + n), 1000 + u16::from(n));
        }
        rig.pass_ms(100);
        for n in 0..6 {
            let _ = rig.try_client(from_v4(40 + n), 3000 + u16::from(n));
        }
        let living = many.iter().filter(|client| rig.lives(**client));
        assert_eq!(living.count(), left, "/{prefix}");
    }
}

#[test]
fn the_slower_of_two_readers_is_evicted() {
    let mut rig = Rig::new(&Config {
        max_connections: 2,
        ..sixteen()
    });
    rig.load(&noise(1_000_000), None);
    let slow = rig.client(from_v4(20), 1000);
    rig.recv(1, 1, "PA", b"g");
    let fast = rig.client(from_v4(21), 1001);
    rig.recv(1, 1, "PA", b"g");
    let (mut slow_at, mut fast_at) = (1, 1);
    for _ in 0..9 {
        rig.pass_ms(100);
        fast_at += 1460;
        rig.be(fast);
        rig.recv(2, fast_at, "A", b"");
    }
    for _ in 0..20 {
        rig.pass_ms(1_000);
        slow_at += 1460;
        rig.be(slow);
        rig.recv(2, slow_at, "A", b"");
        for _ in 0..10 {
            fast_at += 1460;
            rig.be(fast);
            rig.recv(2, fast_at, "A", b"");
        }
    }
    rig.port.sent.clear();
    rig.client(from_v4(5), 3000);
    assert!(!rig.lives(slow) && rig.lives(fast));
}

#[test]
fn memory_is_freed_after_the_pressure() {
    let mut rig = Rig::new(&Config {
        max_connections: 1_000,
        ..pools_of(1_000)
    });
    let quiet = |rig: &Rig| {
        let writes = rig.stack.sources.writes.all().iter().map(Vec::capacity);
        rig.stack.cx.buffers.memory() + writes.sum::<usize>()
    };
    rig.app().habit = Habit::Echo;
    let mut clients = Vec::new();
    for n in 0..500 {
        let client = rig.client(from_v4(20), 1000 + n);
        rig.recv(1, 1, "PA", &[b'x'; 1000]);
        rig.recv(1002, 1, "PA", b"out of order");
        rig.port.sent.clear();
        clients.push(client);
    }
    assert!(quiet(&rig) >= 500 * (16_384 + 1_000));
    for client in clients {
        rig.be(client);
        rig.send_raw(rig.irs.wrapping_add(1001), 0, "R", b"", None);
    }
    assert_eq!(rig.stack.connections(), 0);
    assert!(rig.stack.poll_timeout().is_some(), "freeing memory is due");
    rig.pass_ms(4_500);
    assert!(quiet(&rig) <= 64 * (16_384 + 2_048), "{}", quiet(&rig));
    assert_eq!(rig.stack.poll_timeout(), None);
    // Memory is allocated again when it is needed.
    rig.client(from_v4(20), 5000);
    rig.recv(1, 1, "PA", b"query");
    rig.sent(1, 6, "PA", b"query");
}

#[test]
fn the_larger_scoreboard_is_returned_and_the_smallest_is_kept_after_recovery() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 10);
    let tcb = rig.stack.tcb_mut(0);
    tcb.set_negotiated(Negotiated::new(true, false, None, false));
    let una = tcb.view().snd_una;
    let acknowledgement = Segment {
        src_port: tcb.view().peer_port,
        dst_port: tcb.view().own_port,
        seq: tcb.view().rcv_nxt,
        ack: una,
        control: Control::ACK,
        window: u16::MAX,
        data_at: 20,
        len: 0,
        timestamps: None,
    };
    let blocks = [2, 5, 8].map(|n| (una + n * 1460, una + (n + 1) * 1460));
    let now = Moment::from(rig.now);
    let mut conn = rig.stack.conn(0);
    assert!(conn.needs_larger_board(Some((acknowledgement, &blocks))));
    rig.stack.lend_larger_board(0);
    let conn = rig.stack.conn(0);
    conn.on_disorder(acknowledgement, &blocks, now);
    let size = |rig: &mut Rig| rig.stack.conn(0).board_size();
    assert_eq!(size(&mut rig), Some(1));
    rig.recv(2, 1, "A", b"");
    assert!(!rig.sent_all().is_empty(), "a segment is retransmitted");
    rig.pass_ms(20);
    rig.recv(2, 1 + 10 * 1460, "A", b"");
    // The smallest scoreboard is kept, because the peer may still report duplicates.
    assert_eq!(size(&mut rig), Some(0));
}
