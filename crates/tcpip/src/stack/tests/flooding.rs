//! Tests of SYN floods, and of SYN cookies (RFC 4987, section 3.6).

use std::time::Duration;

use proptest::prelude::*;
use testkit::{ACK, CWR, ECE, FIN, Opt, RST, SYN, Segment};

use crate::Config;
use crate::connection::{State, Tcb};
use crate::negotiated::Negotiated;
use crate::stack::admission::mss_of_cookie;
use crate::stack::testing::{Habit, MTU, Rig};
use crate::wire::Seq;

/// The options that a client's SYN offers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) mss: Option<u16>,
    pub(super) timestamps: Option<u32>,
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) ecn: bool,
}

impl Offer {
    /// An offer of all options.
    pub(super) const ALL: Self = Self {
        mss: Some(1460),
        timestamps: Some(777),
        scale: Some(7),
        sack: true,
        ecn: true,
    };

    fn options(&self) -> Vec<Opt> {
        let options = [
            self.mss.map(Opt::Mss),
            self.sack.then_some(Opt::SackPermitted),
            self.timestamps.map(|value| Opt::Timestamps(value, 0)),
            self.scale.map(Opt::Scale),
        ];
        options.into_iter().flatten().collect()
    }
}

impl Rig {
    pub(super) fn offer(&mut self, offer: &Offer) {
        let bits = if offer.ecn { SYN | ECE | CWR } else { SYN };
        self.raw(self.irs, 0, bits, &offer.options(), b"");
    }

    /// Completes the handshake: sends an ACK for `syn_ack`, together with `data`. If the SYN-ACK
    /// has timestamps, the ACK's TSval is `value`.
    pub(super) fn complete(&mut self, syn_ack: &Segment, value: u32, data: &[u8]) {
        let options = stamps(value, syn_ack.timestamps());
        let (seq, ack) = (self.irs.wrapping_add(1), syn_ack.seq.wrapping_add(1));
        self.raw(seq, ack, ACK, &options, data);
    }

    /// Returns the TCB of the current client.
    pub(super) fn tcb(&self) -> Option<&Tcb> {
        let mut all = self.stack.table.records.iter().map(|record| &record.tcb);
        let ports = (self.route.dst.port, self.route.src.port);
        all.find(|tcb| tcb.state != State::Closed && tcb.ports() == ports)
    }
}

/// Returns a timestamps option with the TSval `tsval` that echoes the TSval in `syn_ack`, the
/// SYN-ACK's timestamps. Returns no option if the SYN-ACK has no timestamps.
fn stamps(tsval: u32, syn_ack: Option<(u32, u32)>) -> Vec<Opt> {
    syn_ack
        .map(|(our_tsval, _)| Opt::Timestamps(tsval, our_tsval))
        .into_iter()
        .collect()
}

/// Settings that allow no half-open connections, so that every SYN gets a cookie.
fn full() -> Config {
    Config {
        max_half_open: 0,
        ..Config::default()
    }
}

#[test]
fn a_syn_beyond_the_half_open_limit_is_answered_without_state() {
    let mut rig = Rig::new(&Config {
        max_half_open: 1,
        ..Config::default()
    });
    for port in 1000..1100 {
        rig.route.src.port = port;
        rig.syn(Some(1472));
        assert_eq!(rig.sent_one().control, "SA");
    }
    assert_eq!(rig.stack.connections(), 1);
    assert_eq!(
        rig.stack.table.records.len(),
        1,
        "no further TCB was allocated"
    );
    let counters = *rig.stack.counters();
    assert_eq!((counters.cookies_sent, counters.half_open_full), (99, 0));
    assert_eq!(
        counters.turned_around, 100,
        "all answers reuse the received frame"
    );
}

#[test]
fn two_cookies_within_a_millisecond_are_a_flood() {
    let mut rig = Rig::new(&full());
    let mut send_cookie = |pause_ms: u64| {
        rig.pass_ms(pause_ms);
        rig.syn(Some(1472));
        rig.sent_one();
        rig.route.src.port += 1;
        let at = |after: u64| rig.now + Duration::from_micros(after);
        [0, 1_000, 1_001].map(|after| rig.stack.is_flooded(at(after)))
    };
    assert_eq!(send_cookie(0), [false; 3], "a single cookie is no flood");
    assert_eq!(send_cookie(2), [false; 3]);
    assert_eq!(send_cookie(1), [true, true, false]);
    assert_eq!(send_cookie(2), [false; 3], "the flood is over");
}

/// Opens one connection with a SYN cookie and one without, and compares their states. A cookie
/// keeps the window scale, SACK and ECN only if the client offers timestamps. It may round the MSS
/// down.
fn compare(offer: &Offer, v6: bool) {
    let open = |config: &Config| {
        let mut rig = Rig::new(config);
        rig.set_v6(v6);
        rig.offer(offer);
        let syn_ack = rig.reply();
        rig.pass_ms(100);
        rig.complete(&syn_ack, 800, b"");
        let tcb = rig.tcb().expect("a connection").clone();
        assert_eq!(rig.take_log(), "accept");
        rig.sent_nothing();
        (syn_ack, tcb)
    };
    let (syn_ack, tcb) = open(&full());
    let (_, ordinary) = open(&Config::default());
    let expected = if offer.timestamps.is_some() {
        ordinary.view().negotiated
    } else {
        Negotiated::default()
    };
    assert_eq!(tcb.view().negotiated, expected);
    if tcb.view().negotiated.timestamps() {
        assert_eq!(tcb.view().ts_recent, 800);
        assert_eq!(tcb.view().ts_offset, ordinary.view().ts_offset);
        assert_eq!(tcb.view().snd_wnd, ordinary.view().snd_wnd);
    } else {
        assert_eq!(tcb.view().snd_wnd, 65_535);
    }
    // The connection uses the options in the SYN-ACK, and no others.
    let negotiated = tcb.view().negotiated;
    assert_eq!(syn_ack.timestamps().is_some(), negotiated.timestamps());
    assert_eq!(syn_ack.sack_permitted(), negotiated.sack());
    assert_eq!(syn_ack.scale().is_some(), negotiated.scaled());
    assert_eq!(syn_ack.has(ECE), negotiated.ecn());
    assert!(tcb.mss <= ordinary.mss && u32::from(tcb.mss) * 3 / 2 + 450 >= ordinary.mss.into());
    assert_eq!(
        (tcb.view().rcv_nxt, tcb.view().snd_una),
        (ordinary.view().rcv_nxt, Seq(syn_ack.seq) + 1)
    );
    assert_eq!(
        (tcb.view().snd_nxt, tcb.stream.end()),
        (tcb.view().snd_una, tcb.view().snd_una)
    );
    assert_eq!(tcb.view().rcv_adv.since(tcb.view().rcv_nxt), 16_384);
}

#[test]
fn a_cookie_handles_every_combination_of_options() {
    for bits in 0..16 {
        for scale in [None, Some(0), Some(7), Some(14), Some(255)] {
            let offer = Offer {
                mss: Some(1460),
                timestamps: (bits & 1 > 0).then_some(700),
                scale,
                sack: bits & 2 > 0,
                ecn: bits & 4 > 0,
            };
            compare(&offer, bits & 8 > 0);
        }
    }
}

#[test]
fn a_cookie_keeps_only_configured_options() {
    let mut rig = Rig::new(&Config {
        sack: false,
        ecn: false,
        window_scaling: false,
        ..full()
    });
    rig.offer(&Offer::ALL);
    let syn_ack = rig.reply();
    assert_eq!(syn_ack.scale(), None);
    rig.complete(&syn_ack, 800, b"");
    let negotiated = rig.tcb().unwrap().view().negotiated;
    assert!(negotiated.timestamps());
    assert_eq!(negotiated, Negotiated::new(false, true, None, false));
}

#[test]
fn an_mss_is_rounded_down_to_a_class() {
    // Our MSS is 1,472 over IPv4 here, and 1,452 over IPv6. Segments reserve 12 bytes for
    // timestamps.
    for (v6, mss, expected) in [
        (false, None, 536),
        (false, Some(0), 88),
        (false, Some(88), 88),
        (false, Some(535), 88),
        (false, Some(1219), 536),
        (false, Some(1300), 1220),
        (false, Some(1452), 1440),
        (false, Some(1460), 1460),
        (false, Some(1471), 1460),
        (false, Some(1472), 1472),
        (false, Some(9000), 1472),
        (true, None, 1220),
        (true, Some(1440), 1440),
        (true, Some(1452), 1452),
        (true, Some(65_535), 1452),
    ] {
        let mut rig = Rig::new(&full());
        rig.set_v6(v6);
        rig.syn(mss);
        rig.sent_one();
        rig.recv(1, 1, "A", b"");
        assert_eq!(rig.tcb().unwrap().mss, expected - 12, "{mss:?}");
    }
}

#[test]
fn our_timestamps_never_decrease() {
    // RFC 7323, section 5.3: the peer would drop a segment with an older timestamp.
    for wait in 0..200 {
        let mut rig = Rig::new(&full());
        rig.pass_ms(wait);
        rig.offer(&Offer::ALL);
        let syn_ack = rig.reply();
        rig.app().habit = Habit::Echo;
        rig.complete(&syn_ack, 777, b"hello");
        let (first, echo) = syn_ack.timestamps().unwrap();
        let (later, _) = rig.reply().timestamps().unwrap();
        let ahead = later.wrapping_sub(first);
        assert!(ahead <= 64, "{ahead} ms behind the clock");
        assert_eq!(echo, 777);
    }
}

#[test]
fn an_ack_without_a_valid_cookie_is_reset() {
    let mut rig = Rig::new(&full());
    rig.offer(&Offer::ALL);
    let syn_ack = rig.reply();
    let (irs, isn) = (rig.irs, syn_ack.seq);
    let (echo, _) = syn_ack.timestamps().unwrap();
    let mut bad = 0;
    let mut try_it = |rig: &mut Rig, seq: u32, ack: u32, options: &[Opt]| {
        rig.raw(seq, ack, ACK, options, b"");
        assert!(rig.reply().has(RST));
        assert_eq!(rig.stack.connections(), 0);
        bad += 1;
        assert_eq!(rig.stack.counters().cookies_failed, bad);
    };
    let (seq, ack) = (irs.wrapping_add(1), isn.wrapping_add(1));
    let good = [Opt::Timestamps(778, echo)];
    for other in [1, u32::MAX, 1 << 24, 1 << 27, 1 << 31] {
        try_it(&mut rig, seq, ack.wrapping_add(other), &good);
        try_it(&mut rig, seq.wrapping_add(other), ack, &good);
    }
    // A cookie is invalid if the TSecr encodes other options, or if there is no timestamps option.
    for bit in 0..6 {
        try_it(&mut rig, seq, ack, &[Opt::Timestamps(778, echo ^ 1 << bit)]);
    }
    try_it(&mut rig, seq, ack, &[]);
    // A cookie is also invalid for another port or address.
    rig.route.src.port += 1;
    try_it(&mut rig, seq, ack, &good);
    rig.route.src.port -= 1;
    let route = rig.route;
    rig.route.src.ip = std::net::Ipv4Addr::new(10, 0, 0, 10).into();
    try_it(&mut rig, seq, ack, &good);
    rig.route = route;
    // The valid cookie opens a connection.
    rig.raw(seq, ack, ACK, &good, b"");
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 1);
}

#[test]
fn only_plain_acks_are_checked_for_a_cookie() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    rig.sent_one();
    for control in ["", "F", "R", "RA", "SA", "SFA"] {
        rig.recv(1, 1, control, b"");
        assert_eq!(rig.stack.connections(), 0, "{control}");
    }
    assert_eq!(rig.stack.counters().cookies_failed, 0);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_cookie_is_valid_for_at_least_one_and_at_most_two_minutes() {
    for (wait, good) in [
        (0, true),
        (1_000, true),
        (63_999, true),
        (128_000, false),
        (1_000_000, false),
        // After 32 periods, the 5-bit period number in the cookie repeats.
        (2_048_000, false),
    ] {
        for start in [0, 20_000, 63_000] {
            let mut rig = Rig::new(&full());
            rig.pass_ms(start);
            rig.syn(Some(1472));
            rig.sent_one();
            rig.pass_ms(wait);
            // The stack checks ACKs for cookies only for a while after it has sent the last cookie.
            // Therefore, the test makes it send a cookie to another client.
            rig.route.src.port += 1;
            let iss = rig.iss;
            rig.syn(Some(1472));
            rig.sent_one();
            rig.route.src.port -= 1;
            rig.iss = iss;
            rig.recv(1, 1, "A", b"");
            assert_eq!(rig.stack.connections() == 1, good, "after {wait} ms");
            assert_eq!(rig.stack.counters().cookies_failed, u64::from(!good));
        }
    }
}

#[test]
fn long_after_the_flood_no_ack_is_checked_for_a_cookie() {
    let mut rig = Rig::new(&full());
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.sent_one().control, "R");
    rig.syn(Some(1472));
    rig.sent_one();
    rig.pass_ms(128_001);
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.sent_one().control, "R");
    assert_eq!(
        rig.stack.counters().cookies_failed,
        0,
        "the number was not checked"
    );
}

#[test]
fn a_replayed_third_segment_opens_no_second_connection() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    rig.sent_one();
    for _ in 0..3 {
        rig.recv(1, 1, "A", b"");
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 1);
    assert_eq!(rig.take_log(), "accept");
    // A delayed duplicate of the SYN does not open a second connection.
    rig.syn(Some(1472));
    assert_eq!(rig.sent_one().control, "A");
    assert_eq!(rig.stack.counters().cookies_sent, 1);
}

#[test]
fn a_million_random_acks_open_no_connection() {
    // At any time, only 16 of the 2^32 possible acknowledgement numbers contain a valid cookie.
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    let good = rig.reply().seq.wrapping_add(1);
    let mut random = fastrand::Rng::with_seed(1);
    let (addresses, seq) = (rig.addresses(), rig.irs.wrapping_add(1));
    let now = crate::clock::Moment::from(rig.now);
    let check = |rig: &Rig, ack: u32| {
        let numbers = (Seq(rig.irs), Seq(ack.wrapping_sub(1)));
        let ports = (rig.route.src.port, rig.route.dst.port);
        mss_of_cookie(&rig.stack, &addresses, ports, numbers, now)
    };
    assert_eq!(check(&rig, good), Some(1472));
    let accepted = (0..1 << 20).filter(|_| check(&rig, random.u32(..)).is_some());
    assert_eq!(accepted.count(), 0);
    // Numbers near the valid cookie are also invalid, because their hash or another field differs.
    let near = |bits: u32| (0..1 << 20).map(move |n: u32| good.wrapping_add(n << bits));
    let accepted = near(0).skip(1).chain(near(12).skip(1));
    assert_eq!(
        accepted.filter(|ack| check(&rig, *ack).is_some()).count(),
        0
    );
    rig.raw(seq, good, ACK, &[], b"");
    assert_eq!(rig.stack.connections(), 1);
}

#[test]
fn cookies_differ_by_connection_and_grow_with_time() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    let first = Seq(rig.reply().seq);
    rig.pass_ms(64_000);
    rig.syn(Some(1472));
    let later = Seq(rig.reply().seq);
    assert!(later.after(first), "{} more", later.since(first));
    rig.route.src.port += 1;
    rig.syn(Some(1472));
    let other = Seq(rig.reply().seq);
    assert_ne!(
        later.0 >> 24,
        other.0 >> 24,
        "the fields differ although period and class are equal"
    );
}

#[test]
fn a_full_ring_drops_the_answer_and_nothing_else() {
    let mut rig = Rig::new(&full());
    rig.port.room = 0;
    rig.syn(Some(1472));
    assert_eq!(rig.stack.counters().ring_full, 1);
    assert_eq!(rig.stack.counters().cookies_sent, 0);
    rig.port.room = 100;
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
}

#[test]
fn a_connection_in_time_wait_is_reopened_by_a_cookie_where_both_have_timestamps() {
    for (stamped, reopened) in [(true, true), (false, false)] {
        let mut rig = Rig::new(&Config {
            max_half_open: 1,
            ..Config::default()
        });
        rig.app().close_back = true;
        let offer = Offer {
            timestamps: stamped.then_some(700),
            ..Offer::ALL
        };
        rig.offer(&offer);
        let syn_ack = rig.reply();
        rig.complete(&syn_ack, 701, b"");
        rig.load(b"content", None);
        rig.app().habit = Habit::ServeOnce;
        let (seq, ack) = (rig.irs.wrapping_add(1), syn_ack.seq.wrapping_add(1));
        let options = |value| stamps(value, syn_ack.timestamps());
        rig.raw(seq, ack, ACK, &options(702), b"g");
        let (seq, ack) = (seq.wrapping_add(1), ack.wrapping_add(8));
        rig.raw(seq, ack, ACK | FIN, &options(703), b"");
        assert_eq!(rig.tcb().unwrap().state, State::TimeWait);
        rig.port.sent.clear();
        // Another client's half-open connection uses up the limit of one.
        rig.route.src.port += 1;
        rig.offer(&offer);
        rig.port.sent.clear();
        rig.route.src.port -= 1;
        rig.irs = rig.irs.wrapping_add(1 << 20);
        rig.offer(&Offer {
            timestamps: stamped.then_some(800),
            ..offer
        });
        assert_eq!(rig.tcb().is_none(), reopened);
        assert_eq!(rig.stack.counters().cookies_sent, u64::from(reopened));
        assert_eq!(rig.stack.counters().half_open_full, u64::from(!reopened));
        if reopened {
            let syn_ack = rig.reply();
            rig.complete(&syn_ack, 801, b"");
            assert_eq!(rig.tcb().unwrap().state, State::Established);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_a_syn_offers_its_cookie_opens_the_same_connection(
        mss: Option<u16>,
        timestamps: Option<u32>,
        scale: Option<u8>,
        sack: bool,
        ecn: bool,
        v6: bool,
        irs: u32,
        wait in 0u64..64_000,
    ) {
        let mut rig = Rig::new(&full());
        rig.set_v6(v6);
        rig.irs = irs;
        rig.offer(&Offer { mss, timestamps, scale, sack, ecn });
        let syn_ack = rig.reply();
        rig.pass_ms(wait);
        let value = timestamps.unwrap_or(0).wrapping_add(1);
        rig.app().habit = Habit::Echo;
        rig.complete(&syn_ack, value, b"hello");
        let tcb = rig.tcb().expect("a connection");
        prop_assert_eq!(tcb.view().negotiated.timestamps(), timestamps.is_some());
        prop_assert_eq!(tcb.view().negotiated.sack(), timestamps.is_some() && sack);
        let scaled = scale.filter(|_| timestamps.is_some());
        prop_assert_eq!(tcb.view().negotiated.peer_scale(), scaled.unwrap_or(0).min(14));
        prop_assert_eq!(rig.reply().len(), 5);
    }
}

#[test]
fn initial_sequence_numbers_depend_on_the_first_half_of_the_secret() {
    let of = |secret| {
        let mut rig = Rig::with_secret(&Config::default(), MTU, secret);
        rig.syn(None);
        rig.sent_one();
        rig.iss
    };
    let first = of([1, 2, 3, 4]);
    assert_eq!(of([1, 2, 3, 4]), first);
    for other in [[0; 4], [1, 5, 3, 4], [5, 2, 3, 4]] {
        assert_ne!(of(other), first, "{other:?}");
    }
    // The other half is the key of the hash tables.
    assert_eq!(of([1, 2, 5, 6]), first);
}
