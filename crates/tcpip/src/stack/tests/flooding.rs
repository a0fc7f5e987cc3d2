//! Floods: SYN cookies (RFC 4987, section 3.6).

use std::time::Duration;

use ip::PROTOCOL_TCP;
use proptest::prelude::*;

use crate::connection::{State, Tcb};
use crate::negotiated::Negotiated;
use crate::stack::admission::mss_of_cookie;
use crate::stack::testing::{Habit, Rig, v4_path, v6_path};
use crate::wire::{Control, Options, Segment, Seq, Timestamps};
use crate::{Config, SynCookies};

const SYN: Control = Control::SYN;
const ACK: Control = Control::ACK;

/// What a client's SYN offers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) mss: Option<u16>,
    pub(super) timestamps: Option<u32>,
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) ecn: bool,
}

impl Offer {
    /// What clients of today offer.
    pub(super) const ALL: Self = Self {
        mss: Some(1460),
        timestamps: Some(777),
        scale: Some(7),
        sack: true,
        ecn: true,
    };

    fn options(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(mss) = self.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if self.sack {
            options.extend([4, 2]);
        }
        if let Some(value) = self.timestamps {
            options.extend(stamps(value, 0));
        }
        if let Some(scale) = self.scale {
            options.extend([3, 3, scale]);
        }
        padded(options)
    }

    fn control(&self) -> Control {
        if self.ecn {
            SYN | Control::ECE | Control::CWR
        } else {
            SYN
        }
    }
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    let mut option = vec![8, 10];
    option.extend(value.to_be_bytes());
    option.extend(echo.to_be_bytes());
    option
}

fn padded(mut options: Vec<u8>) -> Vec<u8> {
    options.resize(options.len().next_multiple_of(4), 1);
    options
}

/// What came out, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) segment: Segment,
    pub(super) options: Options,
}

impl Rig {
    /// A segment of the client's with options, in absolute numbers.
    pub(super) fn raw(
        &mut self,
        seq: u32,
        ack: u32,
        control: Control,
        options: &[u8],
        data: &[u8],
    ) {
        let mut segment = Vec::new();
        segment.extend(self.peer_port.to_be_bytes());
        segment.extend(self.own_port.to_be_bytes());
        segment.extend(seq.to_be_bytes());
        segment.extend(ack.to_be_bytes());
        segment.extend([((20 + options.len()) as u8 / 4) << 4, control.0]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend_from_slice(options);
        segment.extend_from_slice(data);
        let addresses = self.path.addresses;
        let sum = addresses.pseudo_sum(PROTOCOL_TCP, segment.len());
        let sum = sum.add(ip::Sum::of(&segment)).finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0; self.path.header_len()];
        self.path.write(&mut packet, PROTOCOL_TCP, segment.len());
        packet.extend_from_slice(&segment);
        self.input(&packet);
    }

    pub(super) fn offer(&mut self, offer: &Offer) {
        self.raw(self.irs, 0, offer.control(), &offer.options(), b"");
    }

    /// The next packet that came out, unparsed by any checker.
    pub(super) fn reply(&mut self) -> Reply {
        let packet = self.port.sent.pop_front().expect("a reply");
        let payload = &packet[self.path.header_len()..];
        let segment = Segment::parse(payload).unwrap();
        Reply {
            segment,
            options: Options::read(&payload[..usize::from(segment.data_at)]),
        }
    }

    /// The third segment to a SYN-ACK, with `data`.
    pub(super) fn complete(&mut self, syn_ack: &Reply, value: u32, data: &[u8]) {
        let echo = syn_ack.options.timestamps.map(|stamps| stamps.value);
        let options = echo.map_or_else(Vec::new, |echo| padded(stamps(value, echo)));
        let (seq, ack) = (
            self.irs.wrapping_add(1),
            syn_ack.segment.seq.0.wrapping_add(1),
        );
        self.raw(seq, ack, ACK, &options, data);
    }

    /// The connection of the client.
    pub(super) fn tcb(&self) -> Option<&Tcb> {
        let mut all = self.stack.records.iter().map(|record| &record.tcb);
        let ports = (self.own_port, self.peer_port);
        all.find(|tcb| tcb.state != State::Closed && tcb.ports() == ports)
    }
}

/// A table of half-open connections without a place.
fn full() -> Config {
    Config {
        max_half_open: 0,
        ..Config::default()
    }
}

#[test]
fn a_syn_beyond_the_half_open_limit_is_answered_and_forgotten() {
    let mut rig = Rig::new(&Config {
        max_half_open: 1,
        ..Config::default()
    });
    for port in 1000..1100 {
        rig.peer_port = port;
        rig.syn(Some(1472));
        assert_eq!(rig.sent_one().control, "SA");
    }
    assert_eq!(rig.stack.connections(), 1);
    assert_eq!(rig.stack.records.len(), 1, "and nothing was allocated");
    let counters = *rig.stack.counters();
    assert_eq!((counters.cookies_sent, counters.half_open_full), (99, 0));
    assert_eq!(counters.turned_round, 100, "made of the received frames");
}

#[test]
fn a_cookie_is_answered_once_however_long_one_waits() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    rig.pass_ms(200_000);
    rig.sent_nothing();
    assert_eq!(rig.stack.poll_timeout(), None);
}

#[test]
fn cookies_that_follow_one_another_within_a_millisecond_are_a_flood() {
    let mut rig = Rig::new(&full());
    let mut bake = |pause_ms: u64| {
        rig.pass_ms(pause_ms);
        rig.syn(Some(1472));
        rig.sent_one();
        rig.peer_port += 1;
        let at = |after: u64| rig.now + Duration::from_micros(after);
        [0, 1_000, 1_001].map(|after| rig.stack.is_flooded(at(after)))
    };
    assert_eq!(bake(0), [false; 3], "a single one is none");
    assert_eq!(bake(2), [false; 3]);
    assert_eq!(bake(1), [true, true, false]);
    assert_eq!(bake(2), [false; 3], "and it is over");
}

#[test]
fn the_third_segment_brings_the_connection_back() {
    let mut rig = Rig::new(&full());
    rig.app().habit = Habit::Echo;
    rig.syn(Some(1472));
    let syn_ack = rig.sent(0, 1, "SA", b"");
    assert_eq!((syn_ack.mss, syn_ack.window), (Some(1472), 16_384));
    rig.recv(1, 1, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "accept");
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
    assert_eq!(rig.stack.counters().cookies_accepted, 1);
    assert_eq!(rig.stack.counters().accepted, 1);
}

#[test]
fn data_and_fin_with_the_third_segment_are_processed() {
    let mut rig = Rig::new(&full());
    rig.app().habit = Habit::Echo;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "FPA", b"early");
    rig.sent(1, 7, "FPA", b"early");
    assert_eq!(rig.take_log(), "accept receive(5) half-close");
}

#[test]
fn a_lost_third_segment_is_made_up_for_by_the_data_behind_it() {
    let mut rig = Rig::new(&full());
    rig.app().habit = Habit::Echo;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.pass_ms(1_000);
    rig.recv(1, 1, "PA", b"hello");
    rig.sent(1, 6, "PA", b"hello");
}

#[test]
fn what_the_application_refuses_is_reset() {
    let mut rig = Rig::new(&full());
    rig.app().refuse = true;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "A", b"");
    let out = rig.sent_one();
    assert_eq!((out.seq, out.control.as_str()), (1, "R"));
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn without_cookies_a_syn_beyond_the_limit_is_dropped() {
    let mut rig = Rig::new(&Config {
        syn_cookies: SynCookies::Never,
        ..full()
    });
    rig.syn(Some(1472));
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().half_open_full, 1);
}

#[test]
fn cookies_may_be_had_always() {
    let mut rig = Rig::new(&Config {
        syn_cookies: SynCookies::Always,
        ..Config::default()
    });
    rig.syn(Some(1472));
    rig.sent_one();
    assert_eq!(rig.stack.connections(), 0);
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "accept");
}

/// Opens by a cookie and by the ordinary way, and compares.
fn compare(offer: &Offer, v6: bool) {
    let open = |config: &Config| {
        let mut rig = Rig::new(config);
        rig.path = if v6 { v6_path() } else { v4_path() };
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
    // What the SYN-ACK has told is what is kept.
    let told = syn_ack.options;
    assert_eq!(
        told.timestamps.is_some(),
        tcb.view().negotiated.timestamps()
    );
    assert_eq!(told.sack_permitted, tcb.view().negotiated.sack());
    assert_eq!(told.window_scale.is_some(), tcb.view().negotiated.scaled());
    assert_eq!(
        syn_ack.segment.control.has(Control::ECE),
        tcb.view().negotiated.ecn()
    );
    assert!(tcb.mss <= ordinary.mss && u32::from(tcb.mss) * 3 / 2 + 450 >= ordinary.mss.into());
    assert_eq!(
        (tcb.view().rcv_nxt, tcb.view().snd_una),
        (ordinary.view().rcv_nxt, syn_ack.segment.seq + 1)
    );
    assert_eq!(
        (tcb.view().snd_nxt, tcb.stream.end()),
        (tcb.view().snd_una, tcb.view().snd_una)
    );
    assert_eq!(tcb.view().rcv_adv.since(tcb.view().rcv_nxt), 16_384);
}

#[test]
fn a_cookie_keeps_every_combination_of_options() {
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
fn what_is_not_configured_is_not_kept() {
    let mut rig = Rig::new(&Config {
        sack: false,
        ecn: false,
        window_scaling: false,
        ..full()
    });
    rig.offer(&Offer::ALL);
    let syn_ack = rig.reply();
    assert_eq!(syn_ack.options.window_scale, None);
    rig.complete(&syn_ack, 800, b"");
    let negotiated = rig.tcb().unwrap().view().negotiated;
    assert!(negotiated.timestamps());
    assert_eq!(negotiated, Negotiated::new(false, true, None, false));
}

#[test]
fn an_mss_is_rounded_down_to_a_class() {
    // Ours is 1,472 over IPv4 here, and 1,452 over IPv6. Segments leave the
    // place of timestamps.
    for (v6, told, expected) in [
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
        rig.path = if v6 { v6_path() } else { v4_path() };
        rig.syn(told);
        rig.sent_one();
        rig.recv(1, 1, "A", b"");
        assert_eq!(rig.tcb().unwrap().mss, expected - 12, "{told:?}");
    }
}

#[test]
fn our_timestamps_never_go_back() {
    // RFC 7323, section 5.3: the peer would drop what seems older.
    for wait in 0..200 {
        let mut rig = Rig::new(&full());
        rig.pass_ms(wait);
        rig.offer(&Offer::ALL);
        let syn_ack = rig.reply();
        rig.app().habit = Habit::Echo;
        rig.complete(&syn_ack, 777, b"hello");
        let stamp = |reply: &Reply| reply.options.timestamps.unwrap();
        let answer = rig.reply();
        let ahead = stamp(&answer).value.wrapping_sub(stamp(&syn_ack).value);
        assert!(ahead <= 64, "{ahead} ms behind the clock");
        assert_eq!(stamp(&syn_ack).echo, 777);
    }
}

#[test]
fn anything_else_than_the_cookie_is_reset() {
    let mut rig = Rig::new(&full());
    rig.offer(&Offer::ALL);
    let syn_ack = rig.reply();
    let (irs, isn) = (rig.irs, syn_ack.segment.seq.0);
    let Timestamps { value: echo, .. } = syn_ack.options.timestamps.unwrap();
    let mut bad = 0;
    let mut try_it = |rig: &mut Rig, seq: u32, ack: u32, options: Vec<u8>| {
        rig.raw(seq, ack, ACK, &padded(options), b"");
        assert!(rig.reply().segment.control.has(Control::RST));
        assert_eq!(rig.stack.connections(), 0);
        bad += 1;
        assert_eq!(rig.stack.counters().cookies_bad, bad);
    };
    let (seq, ack) = (irs.wrapping_add(1), isn.wrapping_add(1));
    let good = stamps(778, echo);
    for other in [1, u32::MAX, 1 << 24, 1 << 27, 1 << 31] {
        try_it(&mut rig, seq, ack.wrapping_add(other), good.clone());
        try_it(&mut rig, seq.wrapping_add(other), ack, good.clone());
    }
    // Other terms, or none.
    for bit in 0..6 {
        try_it(&mut rig, seq, ack, stamps(778, echo ^ 1 << bit));
    }
    try_it(&mut rig, seq, ack, Vec::new());
    // Somebody else.
    rig.peer_port += 1;
    try_it(&mut rig, seq, ack, good.clone());
    rig.peer_port -= 1;
    let path = rig.path;
    if let ip::Addresses::V4 { src, .. } = &mut rig.path.addresses {
        *src = std::net::Ipv4Addr::new(10, 0, 0, 10);
    }
    try_it(&mut rig, seq, ack, good.clone());
    rig.path = path;
    // And the true one.
    rig.raw(seq, ack, ACK, &padded(good), b"");
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 1);
}

#[test]
fn segments_that_acknowledge_nothing_or_reset_bring_no_cookie() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    rig.sent_one();
    for control in ["", "F", "R", "RA", "SA", "SFA"] {
        rig.recv(1, 1, control, b"");
        assert_eq!(rig.stack.connections(), 0, "{control}");
    }
    assert_eq!(rig.stack.counters().cookies_bad, 0);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_cookie_is_good_for_a_minute_and_not_for_longer_than_two() {
    for (wait, good) in [
        (0, true),
        (1_000, true),
        (63_999, true),
        (128_000, false),
        (1_000_000, false),
        // 32 periods later.
        (2_048_000, false),
    ] {
        for start in [0, 20_000, 63_000] {
            let mut rig = Rig::new(&full());
            rig.pass_ms(start);
            rig.syn(Some(1472));
            rig.sent_one();
            rig.pass_ms(wait);
            // Others get cookies all the time.
            rig.peer_port += 1;
            let iss = rig.iss;
            rig.syn(Some(1472));
            rig.sent_one();
            rig.peer_port -= 1;
            rig.iss = iss;
            rig.recv(1, 1, "A", b"");
            assert_eq!(rig.stack.connections() == 1, good, "after {wait} ms");
            assert_eq!(rig.stack.counters().cookies_bad, u64::from(!good));
        }
    }
}

#[test]
fn long_after_the_flood_nothing_is_taken_for_a_cookie() {
    let mut rig = Rig::new(&full());
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.sent_one().control, "R");
    rig.syn(Some(1472));
    rig.sent_one();
    rig.pass_ms(128_001);
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.sent_one().control, "R");
    assert_eq!(rig.stack.counters().cookies_bad, 0, "not even looked at");
}

#[test]
fn a_replayed_third_segment_opens_nothing_twice() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    rig.sent_one();
    for _ in 0..3 {
        rig.recv(1, 1, "A", b"");
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 1);
    assert_eq!(rig.take_log(), "accept");
    // A repeated SYN, which has wandered, neither.
    rig.syn(Some(1472));
    assert_eq!(rig.sent_one().control, "A");
    assert_eq!(rig.stack.counters().cookies_sent, 1);
}

#[test]
fn a_million_random_acknowledgements_open_nothing() {
    // Of 2^32, 16 are good.
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    let good = rig.reply().segment.seq.0.wrapping_add(1);
    let mut random = fastrand::Rng::with_seed(1);
    let (path, seq) = (rig.path, rig.irs.wrapping_add(1));
    let now = crate::clock::Moment::from(rig.now);
    let check = |rig: &Rig, ack: u32| {
        let numbers = (Seq(rig.irs), Seq(ack.wrapping_sub(1)));
        let ports = (rig.peer_port, rig.own_port);
        mss_of_cookie(&rig.stack, &path.addresses, ports, numbers, now)
    };
    assert_eq!(check(&rig, good), Some(1472));
    let accepted = (0..1 << 20).filter(|_| check(&rig, random.u32(..)).is_some());
    assert_eq!(accepted.count(), 0);
    // Nor what looks like it: the same but for the hash, or but for the rest.
    let near = |bits: u32| (0..1 << 20).map(move |n: u32| good.wrapping_add(n << bits));
    let accepted = near(0).skip(1).chain(near(12).skip(1));
    assert_eq!(
        accepted.filter(|ack| check(&rig, *ack).is_some()).count(),
        0
    );
    rig.raw(seq, good, ACK, b"", b"");
    assert_eq!(rig.stack.connections(), 1);
}

#[test]
fn numbers_of_a_connection_differ_and_grow_with_time() {
    let mut rig = Rig::new(&full());
    rig.syn(Some(1472));
    let first = rig.reply().segment.seq;
    rig.pass_ms(64_000);
    rig.syn(Some(1472));
    let later = rig.reply().segment.seq;
    assert!(later.after(first), "{} more", later.since(first));
    rig.peer_port += 1;
    rig.syn(Some(1472));
    let other = rig.reply().segment.seq;
    assert_ne!(later.0 >> 24, other.0 >> 24, "the same period and class");
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
        let (seq, ack) = (
            rig.irs.wrapping_add(1),
            syn_ack.segment.seq.0.wrapping_add(1),
        );
        let echo = syn_ack.options.timestamps.map_or(0, |stamps| stamps.value);
        let options = |value| {
            padded(if stamped {
                stamps(value, echo)
            } else {
                Vec::new()
            })
        };
        rig.raw(seq, ack, ACK, &options(702), b"g");
        let ack = ack.wrapping_add(8);
        rig.raw(
            seq.wrapping_add(1),
            ack,
            ACK | Control::FIN,
            &options(703),
            b"",
        );
        assert_eq!(rig.tcb().unwrap().state, State::TimeWait);
        rig.port.sent.clear();
        // Somebody else is half open.
        rig.peer_port += 1;
        rig.offer(&offer);
        rig.port.sent.clear();
        rig.peer_port -= 1;
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
        rig.path = if v6 { v6_path() } else { v4_path() };
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
        prop_assert_eq!(rig.reply().segment.len, 5);
    }
}
