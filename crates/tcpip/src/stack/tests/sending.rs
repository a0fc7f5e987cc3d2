//! Tests of sending: segmentation, windows, the TX ring, and the ways to send (resident, copied or
//! assembled).

use std::time::Duration;

use std::sync::Arc;

use ip::{ErrorKind, IcmpError, PROTOCOL_TCP};
use testkit::read_segment;

use crate::stack::testing::{Habit, MSS, Out, Rig, noise};
use crate::{Condition, Config, Family, MAX_WRITE_LEN, Negotiated, STREAM_ENTRIES, SendMode, Slot};

fn in_mode(mode: SendMode) -> Config {
    Config {
        mode,
        ..Config::default()
    }
}

/// Acknowledges segments until no more are sent, and returns all sent segments.
pub(super) fn fetch(rig: &mut Rig) -> Vec<Out> {
    let mut all = Vec::new();
    loop {
        let round = rig.sent_all();
        let Some(last) = round.last() else {
            return all;
        };
        let fin = u32::from(last.control.contains('F'));
        rig.recv(2, last.seq + last.data.len() as u32 + fin, "A", b"");
        all.extend(round);
    }
}

pub(super) fn bytes_of(segments: &[Out]) -> Vec<u8> {
    let mut at = segments[0].seq;
    let mut bytes = Vec::new();
    for segment in segments {
        assert_eq!(segment.seq, at, "no gap and no overlap");
        at += segment.data.len() as u32;
        bytes.extend_from_slice(&segment.data);
    }
    bytes
}

#[test]
fn a_content_is_segmented_at_multiples_of_the_mss() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        for (v6, mss) in [(false, 1460), (true, 1440)] {
            let content = noise(2 * mss + 80);
            let mut rig = Rig::new(&in_mode(mode));
            rig.load(&content, None);
            rig.set_v6(v6);
            rig.open(Some(mss as u16 + 12));
            rig.recv(1, 1, "PA", b"g");
            rig.sent(1, 2, "A", &content[..mss]);
            rig.sent(1 + mss as u32, 2, "A", &content[mss..2 * mss]);
            rig.sent(1 + 2 * mss as u32, 2, "PA", &content[2 * mss..]);
            rig.sent_nothing();
            let counters = *rig.stack.counters();
            let ways = (counters.sent_resident, counters.sent_copied);
            assert_eq!(
                ways,
                if mode == SendMode::PreCopy {
                    (3, 0)
                } else {
                    (0, 3)
                }
            );
            assert_eq!(counters.sent_assembled, 0);
        }
    }
}

#[test]
fn contents_of_every_size_arrive_in_both_modes_and_with_any_mss() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        for mss in [88, 536, 1001, 1460] {
            for len in [1, 87, 88, 89, 1459, 1460, 1461, 2920, 30_001] {
                let content = noise(len);
                let mut rig = Rig::new(&in_mode(mode));
                rig.load(&content, None);
                rig.open(Some(mss));
                rig.recv(1, 1, "PA", b"g");
                assert!(
                    bytes_of(&fetch(&mut rig)) == content,
                    "{mode:?} {mss} {len}"
                );
            }
        }
    }
}

#[test]
fn an_empty_content_sends_no_data() {
    let mut rig = Rig::serving(&Config::default(), b"", None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "A", b"");
}

#[test]
fn a_slot_is_rendered_with_its_parameters() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        for offset in [0, 3, 8] {
            let slot = Slot { offset, len: 5 };
            let mut rig = Rig::serving(&in_mode(mode), b"GARBAGE GARBAGE", Some(slot));
            rig.app().params = 41;
            rig.recv(1, 1, "PA", b"gg");
            let mut expected = b"GARBAGE GARBAGE".to_vec();
            expected[offset as usize..][..5].copy_from_slice(b"00041");
            rig.sent(1, 3, "PA", &expected);
            expected[offset as usize..][..5].copy_from_slice(b"00042");
            rig.sent(16, 3, "PA", &expected);
        }
    }
}

/// A resident packet keeps its slot. The slot is rendered again when the parameters change.
#[test]
fn a_resident_packet_has_the_slot_of_each_response() {
    let slot = Slot { offset: 3, len: 5 };
    let mut rig = Rig::serving(&in_mode(SendMode::PreCopy), b"GARBAGE GARBAGE", Some(slot));
    for (nth, params) in (0..).zip([7, 7, 8, 7]) {
        rig.app().params = params;
        let seq = 1 + 15 * nth;
        rig.recv(1 + nth, seq, "PA", b"g");
        let expected = format!("GAR0000{params}GARBAGE");
        rig.sent(seq, 2 + nth, "PA", expected.as_bytes());
    }
}

#[test]
fn a_slot_may_span_two_segments() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        let slot = Slot {
            offset: 1450,
            len: 21,
        };
        let mut rig = Rig::serving(&in_mode(mode), &noise(3000), Some(slot));
        rig.app().params = 1 << 40 | 7;
        rig.recv(1, 1, "PA", b"g");
        let mut expected = noise(3000);
        expected[1450..1471].copy_from_slice(b"000000001099511627783");
        assert!(bytes_of(&fetch(&mut rig)) == expected);
    }
}

#[test]
fn a_slot_is_retransmitted_with_the_same_parameters() {
    let slot = Slot { offset: 2, len: 4 };
    let mut rig = Rig::serving(&Config::default(), b"ab....cd", Some(slot));
    rig.app().params = 5;
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"ab0005cd");
    rig.app().params = 9;
    rig.pass_ms(1000);
    rig.sent(1, 2, "PA", b"ab0005cd");
}

#[test]
fn a_full_stream_leaves_requests_unconsumed_until_there_is_room() {
    let mut rig = Rig::serving(&Config::default(), b"content", None);
    rig.recv(1, 1, "PA", &[b'g'; 68]);
    let out = rig.sent_all();
    assert_eq!(out.len(), STREAM_ENTRIES);
    assert_eq!(out[65].ack, 69, "all is received");
    assert_eq!(out[65].window, 16_384 - 2);
    rig.recv(69, 15, "A", b"");
    rig.sent(463, 69, "PA", b"content");
    rig.sent(470, 69, "PA", b"content");
    assert_eq!(rig.take_log(), "receive(68) sent receive(2)");
}

#[test]
fn consecutive_writes_are_sent_as_one_segment() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.window = 0;
    rig.recv(1, 1, "A", b"a");
    for at in 2..10 {
        rig.recv(at, 1, "A", b"b");
    }
    rig.sent_all();
    rig.window = 1000;
    rig.recv(10, 1, "A", b"");
    rig.sent(1, 10, "PA", b"abbbbbbbb");
    assert_eq!(rig.stack.sources.writes.in_use(), 1);
    rig.recv(10, 10, "A", b"");
    assert_eq!(rig.stack.sources.writes.in_use(), 0);
}

#[test]
fn a_write_buffer_has_a_limit() {
    let mut rig = Rig::with_habit(Habit::Echo);
    rig.window = 0;
    let piece = noise(1000);
    let mut at = 1;
    while rig.stack.sources.writes.in_use() < 2 {
        rig.recv(at, 1, "A", &piece);
        at += 1000;
        assert!(at < MAX_WRITE_LEN as u32 + 2000);
    }
    assert_eq!(at as usize - 1, MAX_WRITE_LEN / 1000 * 1000 + 1000);
}

#[test]
fn without_a_write_buffer_the_data_is_offered_again_later() {
    let mut rig = Rig::established(&Config {
        max_write_buffers: 1,
        ..Config::default()
    });
    rig.app().habit = Habit::Echo;
    rig.recv(1, 1, "A", b"first");
    rig.sent(1, 6, "PA", b"first");
    // The second connection finds no free write buffer.
    let (port, iss) = (rig.route.src.port, rig.iss);
    (rig.route.src.port, rig.iss) = (port + 1, 0);
    rig.open(None);
    rig.recv(1, 1, "A", b"second");
    rig.sent(1, 7, "A", b"");
    let second = rig.iss;
    (rig.route.src.port, rig.iss) = (port, iss);
    rig.recv(6, 6, "A", b"");
    (rig.route.src.port, rig.iss) = (port + 1, second);
    rig.pass_ms(25);
    rig.sent(1, 7, "PA", b"second");
}

#[test]
fn without_a_write_buffer_the_data_is_offered_once_a_second_until_the_idle_timeout() {
    let mut rig = Rig::established(&Config {
        max_write_buffers: 0,
        ..Config::default()
    });
    rig.app().habit = Habit::Echo;
    rig.pass_ms(30_000);
    rig.recv(1, 1, "PA", b"first");
    rig.sent(1, 6, "A", b"");
    // The peer now sends data, which restarts the idle timeout.
    rig.pass_ms(30_000);
    rig.recv(6, 1, "PA", b"second");
    rig.sent(1, 12, "A", b"");
    rig.take_log();
    rig.pass_ms(59_000);
    rig.sent_nothing();
    let asked = rig.take_log().matches("receive(11)").count();
    assert!((59..70).contains(&asked), "{asked} times in a minute");
    rig.pass_ms(2_000);
    rig.sent(1, 12, "FA", b"");
    assert_eq!(rig.stack.counters().idle_closed, 1);
    assert_eq!(rig.stack.cx.buffers.in_use(), 0, "nobody will read it");
    rig.recv(12, 2, "FA", b"");
    assert!(rig.take_log().ends_with("close(Finished)"));
}

#[test]
fn a_full_ring_delays_segments_without_loss() {
    let content = noise(10_000);
    let mut rig = Rig::serving(&Config::default(), &content, None);
    rig.port.room = 3;
    rig.recv(1, 1, "PA", b"g");
    let mut segments = rig.sent_all();
    assert_eq!(segments.len(), 3);
    assert_eq!(
        rig.stack.poll_timeout(),
        Some(rig.now + Duration::from_micros(125)),
        "a short sleep instead of spinning"
    );
    rig.timers();
    rig.sent_nothing();
    rig.port.room = 2;
    rig.timers();
    segments.extend(rig.sent_all());
    assert_eq!(segments.len(), 5);
    rig.port.room = 100;
    rig.timers();
    segments.extend(rig.sent_all());
    assert!(bytes_of(&segments) == content);
    assert_eq!(rig.stack.counters().retransmits, 0);
}

#[test]
fn connections_that_wait_for_the_ring_are_served_in_order() {
    let mut rig = Rig::new(&Config::default());
    rig.load(b"content", None);
    let mut isses = Vec::new();
    for port in 1000..1004 {
        (rig.route.src.port, rig.iss) = (port, 0);
        rig.open(None);
        isses.push(rig.iss);
    }
    rig.port.room = 0;
    for port in 1000..1004 {
        (rig.route.src.port, rig.iss) = (port, isses[usize::from(port) - 1000]);
        rig.recv(1, 1, "PA", b"g");
    }
    // The client of one waiting connection resets the connection before its turn.
    (rig.route.src.port, rig.iss) = (1002, isses[2]);
    rig.recv(2, 1, "R", b"");
    for port in [1000, 1001, 1003] {
        rig.port.room = 1;
        rig.timers();
        (rig.route.src.port, rig.iss) = (port, isses[usize::from(port) - 1000]);
        rig.sent(1, 2, "PA", b"content");
        rig.sent_nothing();
    }
}

#[test]
fn long_responses_share_a_full_ring() {
    const LEN: usize = 200 * 100;
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(LEN), None);
    let mut isses = [0; 2];
    for (port, iss) in (1000..).zip(&mut isses) {
        (rig.route.src.port, rig.iss) = (port, 0);
        rig.open(Some(100));
        *iss = rig.iss;
        // A first response opens the congestion window.
        rig.recv(1, 1, "PA", b"g");
        let mut ack = 1;
        while ack <= LEN as u32 {
            ack += rig.sent_one().data.len() as u32;
            rig.recv(2, ack, "A", b"");
        }
    }
    let acked = LEN as u32 + 1;
    rig.port.room = 0;
    for (port, iss) in (1000..).zip(isses) {
        (rig.route.src.port, rig.iss) = (port, iss);
        rig.recv(2, acked, "PA", b"g");
    }
    let mut visit = |room, expected: &[(u16, usize)]| {
        rig.port.room = room;
        // An ACK does not let a connection overtake those that wait.
        rig.recv(3, acked, "A", b"");
        rig.timers();
        let to_port = |frame: Vec<u8>| {
            read_segment(&frame)
                .expect("a valid segment")
                .route
                .dst
                .port
        };
        let ports: Vec<_> = rig.port.sent.drain(..).map(to_port).collect();
        let runs = ports.chunk_by(|a, b| a == b);
        let counts: Vec<_> = runs.map(|run| (run[0], run.len())).collect();
        assert_eq!(counts, expected);
    };
    // The first packet acknowledges the last request, which came from port 1001.
    visit(50, &[(1001, 1), (1000, 32), (1001, 17)]);
    visit(50, &[(1000, 32), (1001, 18)]);
    visit(1_000, &[(1000, 32), (1001, 32)]);
}

#[test]
fn segments_wait_while_no_frame_is_free() {
    let mut rig = Rig::serving(&Config::default(), &noise(3000), None);
    let mut held = Vec::new();
    let request = rig.packet(
        rig.irs.wrapping_add(1),
        rig.iss.wrapping_add(1),
        "PA",
        b"g",
        None,
    );
    let mut frame = None;
    while let Some(taken) = nmio::Port::pool(&rig.port).take() {
        if frame.is_none() {
            frame = Some(taken);
        } else {
            held.push(taken);
        }
    }
    let mut frame = frame.unwrap();
    frame.set_len(request.len());
    frame.copy_from_slice(&request);
    let ip::Input::Tcp(packet) = rig.host.receive(frame, rig.now) else {
        panic!("not passed on")
    };
    rig.stack.handle_segment(&mut rig.port, packet, rig.now);
    // Only one segment could be sent, by reusing the received frame.
    assert_eq!(rig.sent_all().len(), 1);
    drop(held);
    rig.timers();
    assert_eq!(rig.sent_all().len(), 3);
}

#[test]
fn checksums_of_prepared_contents_are_computed_once() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        let mut rig = Rig::serving(&in_mode(mode), &noise(3000), None);
        let id = rig.app().content.unwrap();
        let pool = nmio::Port::pool(&rig.port).clone();
        let residents = rig.stack.contents_mut().prepare(id, &pool, Family::V4);
        assert_eq!(residents, if mode == SendMode::PreCopy { 3 } else { 0 });
        let totals = rig.stack.contents().totals();
        assert_eq!((totals.packets, totals.bytes), (3, 3000));
        rig.recv(1, 1, "PA", b"g");
        assert!(bytes_of(&fetch(&mut rig)) == noise(3000));
        assert_eq!(rig.stack.contents().totals(), totals);
    }
}

#[test]
fn without_memory_for_residents_segments_are_copied() {
    let mut rig = Rig::serving(&in_mode(SendMode::PreCopy), &noise(100 * 1460), None);
    rig.recv(1, 1, "PA", b"g");
    assert!(bytes_of(&fetch(&mut rig)) == noise(100 * 1460));
    let counters = rig.stack.counters();
    assert_eq!(counters.sent_resident, 64);
    assert_eq!(counters.sent_copied, 36);
    assert_eq!(counters.resident_fallbacks, 36);
}

#[test]
fn a_link_with_a_vlan_tag_gets_copies_of_resident_packets() {
    let mut rig = Rig::new(&in_mode(SendMode::PreCopy));
    rig.route.vlan = Some(7);
    rig.load(&noise(3000), None);
    rig.open(Some(1472));
    rig.recv(1, 1, "PA", b"g");
    let segments = fetch(&mut rig);
    assert!(bytes_of(&segments) == noise(3000));
}

#[test]
fn without_a_budget_for_classes_segments_are_assembled() {
    let mut rig = Rig::new(&Config {
        class_budget: 0,
        ..Config::default()
    });
    rig.load(&noise(5000), None);
    rig.open(Some(1012));
    rig.recv(1, 1, "PA", b"g");
    assert!(bytes_of(&fetch(&mut rig)) == noise(5000));
    assert_eq!(rig.stack.counters().sent_assembled, 5);
}

#[test]
fn a_removed_content_lives_until_it_is_acknowledged() {
    let mut rig = Rig::serving(&Config::default(), &noise(3000), None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    let id = rig.app().content.unwrap();
    assert!(rig.stack.contents_mut().remove(id));
    assert!(!rig.stack.contents_mut().remove(id));
    assert_eq!(rig.stack.contents().totals().contents, 1);
    rig.pass_ms(200);
    rig.sent(1, 2, "A", &noise(3000)[..1460]);
    rig.recv(2, 3001, "A", b"");
    let totals = rig.stack.contents().totals();
    assert_eq!((totals.contents, totals.memory, totals.packets), (0, 0, 0));
    let other = rig
        .stack
        .contents_mut()
        .add(Arc::from(*b"x"), None)
        .unwrap();
    assert_ne!(other, id, "ids are not given twice");
    rig.recv(2, 3001, "PA", b"g");
    rig.sent(3001, 3, "A", b"");
}

#[test]
fn the_last_release_of_a_long_content_frees_its_packets_in_passes() {
    let mut rig = Rig::serving(&in_mode(SendMode::PreCopy), &noise(1000 * 1460), None);
    let pool = nmio::Port::pool(&rig.port).clone();
    let left = pool.residents_left();
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    assert!(pool.residents_left() < left);
    let id = rig.app().content.unwrap();
    assert!(rig.stack.contents_mut().remove(id));
    assert!(!rig.stack.contents().is_freeing(), "a connection sends it");
    rig.recv(2, 1, "R", b"");
    assert!(rig.stack.contents().is_freeing());
    let mut passes = 0;
    while rig.stack.contents().is_freeing() {
        assert_eq!(rig.stack.poll_timeout(), Some(rig.now));
        rig.timers();
        passes += 1;
    }
    assert_eq!(passes, 3);
    assert_eq!(rig.stack.contents().totals().residents, 0);
    assert_eq!(pool.residents_left(), left);
}

pub(super) fn too_big(rig: &Rig, mtu: u32, sequence: u32) -> IcmpError {
    IcmpError {
        kind: ErrorKind::TooBig { mtu },
        addresses: rig.addresses().reversed(),
        protocol: PROTOCOL_TCP,
        src_port: rig.route.dst.port,
        dst_port: rig.route.src.port,
        sequence: rig.iss.wrapping_add(sequence),
    }
}

/// Pacing delays new data after the window opens. Meanwhile, the stack must not send a window
/// probe.
#[test]
fn pacing_after_the_window_opens_causes_no_probe() {
    let config = Config {
        pacing: true,
        ..Config::default()
    };
    let mut rig = Rig::new(&config);
    rig.syn(Some(MSS));
    rig.sent_one();
    // The handshake is slow, but later round trips are short.
    rig.pass_ms(500);
    rig.window = 1460;
    rig.recv(1, 1, "A", b"");
    rig.load(&noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    assert_eq!(rig.sent_all().len(), 1);
    rig.pass_ms(12);
    rig.window = 0;
    rig.recv(2, 1 + 1460, "A", b"");
    rig.sent_all();
    rig.pass_ms(1);
    rig.window = 65_535;
    rig.recv(2, 1 + 1460, "A", b"");
    rig.sent_all();
    rig.pass_ms(12);
    let sent: Vec<_> = rig
        .sent_all()
        .iter()
        .map(|out| (out.control.clone(), out.seq, out.data.len()))
        .collect();
    assert!(sent.iter().all(|out| !out.0.contains('R')), "{sent:?}");
    assert!(sent.len() <= 1, "{sent:?}");
}

/// The override timeout of silly window syndrome avoidance is 0.1 to 1 s (RFC 9293, section
/// 3.8.6.2.1). All data sent is acknowledged, so the stack must not increase the timeout
/// exponentially.
#[test]
fn a_window_that_stays_small_is_used_at_least_once_a_second() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.window = 150;
    rig.recv(1, 1, "PA", b"g");
    rig.sent_one();
    let mut waits = Vec::new();
    for n in 0..9 {
        let mut wait = 0;
        while rig.port.sent.is_empty() {
            rig.pass_ms(10);
            wait += 10;
        }
        waits.push(wait);
        rig.sent_one();
        rig.recv(2, 1 + 150 * (n + 1), "A", b"");
    }
    assert!(waits.iter().all(|wait| *wait <= 1_000), "{waits:?}");
}

#[test]
fn windows_that_are_small_since_the_syn_are_used_at_once() {
    let mut rig = Rig::new(&Config::default());
    rig.load(&noise(10_000), None);
    rig.syn(Some(MSS));
    rig.sent_one();
    rig.window = 500;
    rig.recv(1, 1, "A", b"");
    rig.recv(1, 1, "PA", b"g");
    for acked in [501, 1_001] {
        assert_eq!(rig.sent_one().data.len(), 500);
        rig.recv(2, acked, "A", b"");
    }
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    let mut rig = Rig::new(&Config {
        pacing: true,
        ..Config::default()
    });
    rig.load(&noise(100_000), None);
    rig.syn(Some(1472));
    rig.sent_one();
    // The round trip takes 100 ms. In slow start, pacing spreads ten segments over half a round
    // trip.
    rig.pass_ms(100);
    rig.recv(1, 1, "A", b"");
    rig.recv(1, 1, "PA", b"g");
    let mut times = Vec::new();
    for millis in 0..100 {
        if millis == 1 {
            // The stack has set a timer for the next paced segment.
            let due = rig.stack.poll_timeout().unwrap();
            assert!(due.since(rig.now).as_millis() >= 2);
        }
        for _ in rig.sent_all() {
            times.push(millis);
        }
        rig.pass_ms(1);
    }
    assert_eq!(times.len(), 10, "{times:?}");
    assert_eq!(times[0], 0);
    let last = times[9];
    assert!((35..=55).contains(&last), "{times:?}");
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] <= 7),
        "{times:?}"
    );
}

#[test]
fn info_describes_a_connection() {
    let mut rig = Rig::serving(&Config::default(), &noise(100_000), None);
    rig.recv(1, 1, "PA", b"g");
    rig.sent_all();
    let info = rig.info();
    assert_eq!(info.condition, Condition::Open);
    assert_eq!((info.unacked, info.unsent), (14_600, 85_400));
    assert_eq!(
        (info.mss, info.cwnd, info.ssthresh),
        (1460, 14_600, u32::MAX)
    );
    assert_eq!((info.snd_wnd, info.rcv_wnd), (65_535, 16_384));
    assert_eq!(info.negotiated, Negotiated::default());
    assert_eq!(
        format!("{:?}", info.negotiated),
        "Negotiated { sack: false, timestamps: false, peer_scale: None, ecn: false }"
    );
    for _ in 0..3 {
        rig.recv(2, 1, "A", b"");
    }
    let info = rig.info();
    assert_eq!(info.condition, Condition::Recovery);
    assert_eq!(info.ssthresh, 7_300);
    rig.pass_ms(500);
    let info = rig.info();
    assert_eq!((info.condition, info.retries), (Condition::Loss, 1));
    assert!(info.lost > 0);
}
