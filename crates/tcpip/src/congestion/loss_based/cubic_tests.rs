use super::*;

const MSS: u32 = 1000;
const MS: u32 = 1_000;

/// A sender with unlimited data on a path whose round trip takes `srtt`. ACKs arrive evenly, each
/// for `stretch` segments.
struct Path {
    cubic: Cubic,
    now: u32,
    srtt: u32,
    una: u32,
    stretch: u32,
    /// Fraction of a microsecond to add to `now`, in nanoseconds.
    nanos: u64,
}

impl Path {
    fn new(srtt: u32) -> Self {
        Self {
            cubic: Cubic::new(MSS),
            // Start shortly before the clock wraps around, so that the tests cover the wrap-around.
            now: u32::MAX - 3_000_000,
            srtt,
            una: u32::MAX - 100 * MSS,
            stretch: 1,
            nanos: 0,
        }
    }

    /// A sender that enters congestion avoidance after a loss at a window of `segments` segments.
    /// The epoch begins with the next ACK.
    fn after_loss(srtt: u32, segments: u32) -> Self {
        let mut path = Self::new(srtt);
        path.cubic.cwnd = segments * MSS;
        path.lose();
        path
    }

    fn event(&self, in_flight: u32) -> Event {
        Event {
            now: self.now,
            in_flight,
            mss: MSS,
            srtt: self.srtt,
            rtt: self.srtt,
            una: self.una,
            nxt: self.una.wrapping_add(in_flight),
            is_paced: false,
        }
    }

    fn lose(&mut self) {
        self.lose_and_deliver(0);
    }

    /// Loses a segment, and ends recovery with an ACK of `delivered` bytes.
    fn lose_and_deliver(&mut self, delivered: u32) {
        let event = self.event(self.cubic.window());
        self.cubic.on_congestion(Congestion::Loss, &event);
        let event = self.event(self.cubic.window());
        self.cubic.on_recovered(delivered, &event);
    }

    fn segments(&self) -> f64 {
        f64::from(self.cubic.window()) / f64::from(MSS)
    }

    fn ack(&mut self) {
        let window = self.cubic.window();
        let acked = (self.stretch * MSS).min(window);
        self.una = self.una.wrapping_add(acked);
        let event = Event {
            nxt: self.una.wrapping_add(window - acked),
            ..self.event(window)
        };
        self.cubic.on_ack(acked, &event);
        self.cubic.on_send(acked, &event);
        self.pass(acked, window);
    }

    /// Advances the time by `acked / window` of a round trip.
    fn pass(&mut self, acked: u32, window: u32) {
        self.nanos += u64::from(self.srtt) * 1_000 * u64::from(acked) / u64::from(window);
        self.now = self.now.wrapping_add((self.nanos / 1_000) as u32);
        self.nanos %= 1_000;
    }

    /// Acknowledges all data that is now in flight, but not the data that these ACKs release.
    fn round(&mut self) {
        let window = self.cubic.window();
        let end = self.una.wrapping_add(window);
        while self.una != end {
            let acked = MSS.min(end.wrapping_sub(self.una));
            let in_flight = self.cubic.window();
            self.una = self.una.wrapping_add(acked);
            let event = Event {
                nxt: self.una.wrapping_add(in_flight - acked),
                ..self.event(in_flight)
            };
            self.cubic.on_ack(acked, &event);
            self.cubic.on_send(acked, &event);
            self.pass(acked, window);
        }
    }

    fn run(&mut self, micros: u32) {
        let start = self.now;
        while self.now.wrapping_sub(start) < micros {
            self.ack();
        }
    }
}

#[test]
fn the_cubic_state_has_the_expected_size() {
    assert_eq!(size_of::<Cubic>(), 48);
}

#[test]
fn the_first_slow_start_doubles_each_round_trip() {
    let mut path = Path::new(100 * MS);
    for segments in [20, 40] {
        path.round();
        assert_eq!(path.cubic.window(), segments * MSS);
    }
    assert_eq!(path.cubic.ssthresh(), u32::MAX);
    // Forty ACKs arrive evenly over a whole round trip. This long train shows that the path cannot
    // hold twice the window.
    path.round();
    path.round();
    assert!(path.cubic.ssthresh() < 160 * MSS);
}

#[test]
fn a_loss_reduces_the_window_to_seven_tenths() {
    // A loss reduces the window to 0.7 of its size (RFC 9438, section 4.6).
    let mut path = Path::new(100 * MS);
    path.cubic.cwnd = 100 * MSS;
    path.lose();
    assert_eq!(path.cubic.window(), 70 * MSS);
    assert_eq!(path.cubic.ssthresh(), 70 * MSS);
}

#[test]
fn an_ecn_mark_reduces_the_window_to_85_percent() {
    // An ECN mark reduces the window to 0.85 of its size (RFC 8511, section 3).
    let mut path = Path::new(100 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(100 * MSS);
    path.cubic.on_congestion(Congestion::Ecn, &event);
    assert_eq!(path.cubic.window(), 85 * MSS);
    // The plateau is the window before the mark.
    path.run(20_000 * MS);
    assert!(path.segments() > 99.0, "{}", path.segments());
}

#[test]
fn the_window_follows_the_curve() {
    // The window is within 1 % of equations 1 and 2 of RFC 9438. This holds in both regions of the
    // curve, concave and convex, and for ACKs of several sizes.
    for (segments, srtt, stretch) in [
        (1_000, 100 * MS, 1),
        (1_000, 100 * MS, 2),
        (1_000, 100 * MS, 40),
        (5_000, 40 * MS, 2),
        (20_000, 200 * MS, 10),
    ] {
        let mut path = Path::after_loss(srtt, segments);
        path.stretch = stretch;
        path.ack();
        let start = path.now;
        let w_max = f64::from(segments);
        let k = (w_max * 0.3 / 0.4).cbrt();
        while f64::from(path.now.wrapping_sub(start)) < k * 1.4e6 {
            path.run(srtt);
            let t = f64::from(path.now.wrapping_sub(start)) / 1e6;
            let right = 0.4 * (t - k).powi(3) + w_max;
            let off = (path.segments() - right).abs() / right;
            assert!(
                off < 0.01,
                "{segments} {srtt} {t}: {} {right}",
                path.segments()
            );
        }
    }
}

#[test]
fn fast_convergence_releases_bandwidth() {
    // If the window has not reached the last plateau, the new plateau is (1 + 0.7) / 2 of that
    // window (RFC 9438, section 4.7).
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.ack();
    let window = path.cubic.window();
    assert!((700 * MSS..700 * MSS + 100).contains(&window), "{window}");
    path.lose();
    assert_eq!(path.cubic.window(), (u64::from(window) * 7 / 10) as u32);
    assert!(path.cubic.w_max().abs_diff(595 * MSS) < 100);
    // If the window has reached the last plateau, the new plateau is that window.
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.run(12_000 * MS);
    let before = path.cubic.window();
    assert!(before > 1_000 * MSS);
    path.lose();
    assert_eq!(path.cubic.w_max(), before);
}

#[test]
fn a_small_window_grows_like_renos() {
    // Reno's growth factor alpha is 9/17 until the window reaches its size before the loss. After
    // that, alpha is 1 (RFC 9438, section 4.3).
    for (segments, srtt, stretch) in [(20, 10 * MS, 1), (10, 2 * MS, 2), (40, MS, 4), (20, 100, 2)]
    {
        let mut path = Path::after_loss(srtt, segments);
        path.stretch = stretch;
        path.ack();
        let start = path.now;
        let mut oracle = 0.7 * f64::from(segments);
        for round in 1..=40_u32 {
            // A round acknowledges the window that was open at the start of the round.
            let alpha = if oracle >= f64::from(segments) {
                1.0
            } else {
                9.0 / 17.0
            };
            oracle += alpha;
            while path.now.wrapping_sub(start) < round * srtt {
                path.ack();
            }
            let off = (path.segments() - oracle).abs();
            assert!(
                off < 1.0 + oracle * 0.02,
                "{srtt} {round}: {} {oracle}",
                path.segments()
            );
        }
    }
}

#[test]
fn below_the_plateau_the_window_grows_in_whole_segments() {
    // The value of the curve is 8.2 segments one round trip after the loss, and 9.0 after two.
    let mut path = Path::after_loss(300 * MS, 10);
    path.ack();
    path.run(300 * MS);
    assert!((9.0..9.5).contains(&path.segments()), "{}", path.segments());
    // The value of the curve is 9.9 segments now. It reaches 10 segments at 1.96 s.
    path.run(1_000 * MS);
    assert!(
        (10.0..10.5).contains(&path.segments()),
        "{}",
        path.segments()
    );
}

#[test]
fn the_first_ack_of_a_burst_follows_the_curve_at_its_arrival() {
    let mut path = Path::after_loss(150 * MS, 10);
    let mut windows = Vec::new();
    for _ in 0..5 {
        // In each round trip the ACKs for all data in flight arrive at the same time.
        let now = path.now;
        for _ in 0..path.cubic.window() / MSS {
            path.ack();
            path.now = now;
        }
        windows.push(path.cubic.window() / MSS);
        path.now = now.wrapping_add(150 * MS);
    }
    // The values of the curve in these round trips are 7.6, 8.2, 8.6, 9.0 and 9.3 segments.
    assert_eq!(windows, [8, 9, 9, 10, 10]);
}

#[test]
fn the_ack_that_ends_recovery_grows_the_window() {
    let mut path = Path::new(300 * MS);
    path.cubic.cwnd = 10 * MSS;
    path.lose_and_deliver(3 * MSS);
    // The curve begins with a growth of two segments per seven acknowledged segments.
    assert_eq!(path.cubic.window(), 7 * MSS + 3 * MSS * 2 / 7);
}

#[test]
fn before_the_first_loss_each_round_trip_grows_the_window_by_a_twentieth() {
    let mut path = Path::new(50 * MS);
    while path.cubic.ssthresh() == u32::MAX {
        path.round();
    }
    let before = path.segments();
    path.run(500 * MS);
    let grown = path.segments() / before;
    assert!((1.5..1.7).contains(&grown), "{grown}");
    path.lose();
    let before = path.segments();
    path.run(500 * MS);
    let grown = path.segments() / before;
    assert!(grown < 1.3, "{grown}");
}

#[test]
fn acks_of_single_bytes_add_up_to_the_same_growth() {
    let mut bytewise = Path::after_loss(100 * MS, 20);
    bytewise.ack();
    let mut event = bytewise.event(14 * MSS);
    let before = bytewise.cubic.window();
    for _ in 0..14 * MSS {
        event.now = event.now.wrapping_add(7);
        event.una = event.una.wrapping_add(1);
        event.nxt = event.nxt.wrapping_add(1);
        bytewise.cubic.on_ack(1, &event);
    }
    // The growth ends at the next whole segment.
    let grown = bytewise.cubic.window() - before;
    assert!((MSS * 9 / 10..MSS * 5 / 4).contains(&grown), "{grown}");
}

#[test]
fn hystart_leaves_slow_start_without_a_loss() {
    // After slow start, K is 0: the curve starts flat at the current window (RFC 9438, section
    // 4.10).
    let mut path = Path::new(100 * MS);
    path.round();
    path.round();
    assert_eq!(path.cubic.window(), 40 * MSS);
    path.srtt = 120 * MS;
    for _ in 0..6 {
        path.round();
    }
    assert!(path.cubic.ssthresh() < u32::MAX, "{:?}", path.cubic);
    let left_at = path.cubic.ssthresh();
    assert!(left_at < 250 * MSS, "{left_at}");
    assert_eq!(path.cubic.w_max(), left_at);
    let w = path.cubic.window();
    path.run(120 * MS);
    assert!(
        path.cubic.window() <= w * 106 / 100,
        "growth by a twentieth"
    );
}

#[test]
fn after_a_timeout_the_curve_starts_at_its_plateau() {
    // After a timeout and slow start, K is 0 (RFC 9438, section 4.8).
    let mut path = Path::new(50 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(100 * MSS);
    path.cubic.on_timeout(false, &event);
    assert_eq!(
        (path.cubic.window(), path.cubic.ssthresh()),
        (MSS, 70 * MSS)
    );
    path.cubic.on_timeout(true, &event);
    assert_eq!(
        (path.cubic.window(), path.cubic.ssthresh()),
        (MSS, 70 * MSS)
    );
    // Slow start ends exactly at the threshold.
    while path.cubic.window() < 70 * MSS {
        path.ack();
    }
    assert_eq!(path.cubic.window(), 70 * MSS);
    path.ack();
    assert_eq!(path.cubic.w_max(), 70 * MSS);
    // HyStart++ is inactive after a timeout, so a higher RTT does not end slow start.
    let mut path = Path::new(50 * MS);
    let event = path.event(10 * MSS);
    path.cubic.on_timeout(false, &event);
    path.cubic.ssthresh = 1_000 * MSS;
    path.run(150 * MS);
    path.srtt = 100 * MS;
    path.run(1_500 * MS);
    assert!(path.segments() >= 1_000.0);
}

#[test]
fn a_timeout_in_recovery_does_not_reduce_the_threshold_again() {
    let mut path = Path::new(50 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(100 * MSS);
    path.cubic.on_congestion(Congestion::Loss, &event);
    path.cubic.on_timeout(false, &event);
    assert_eq!(
        (path.cubic.window(), path.cubic.ssthresh()),
        (MSS, 70 * MSS)
    );
}

#[test]
fn the_curve_stops_while_the_window_is_unused() {
    // While the application limits the window, the curve must not advance (RFC 9438, section 5.8).
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.run(500 * MS);
    let mut before = 0;
    for ack in 0..300 {
        if ack == 15 {
            // By now the sampling period is over, so the unused window has been detected.
            before = path.cubic.window();
        }
        path.now = path.now.wrapping_add(100 * MS);
        path.una = path.una.wrapping_add(MSS);
        let event = Event {
            nxt: path.una.wrapping_add(MSS),
            ..path.event(MSS)
        };
        path.cubic.on_ack(MSS, &event);
    }
    assert_eq!(path.cubic.window(), before);
    // When the window is used again, the curve resumes at the point where it stopped, not half a
    // minute later.
    let later = 1_000.0 - 0.4 * (9.08_f64 - 0.5 - 1.2).powi(3);
    path.run(100 * MS);
    assert!(path.segments() <= later, "{} {later}", path.segments());
    let resumed = path.cubic.window();
    path.run(1_000 * MS);
    assert!(path.cubic.window() > resumed);
}

#[test]
fn the_curve_stops_while_nothing_is_in_flight() {
    let steady = {
        let mut path = Path::after_loss(100 * MS, 1_000);
        path.run(1_000 * MS);
        path.cubic.window()
    };
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.run(500 * MS);
    // All data is acknowledged, and the application sends nothing for 150 ms.
    let window = path.cubic.window();
    path.una = path.una.wrapping_add(window);
    let event = Event {
        nxt: path.una,
        ..path.event(window)
    };
    path.cubic.on_ack(MSS, &event);
    path.now = path.now.wrapping_add(150 * MS);
    let event = path.event(0);
    path.cubic.on_send(MSS, &event);
    path.run(500 * MS);
    let off = path.cubic.window().abs_diff(steady);
    assert!(off < steady / 200, "{} {steady}", path.cubic.window());
}

#[test]
fn after_an_idle_period_slow_start_returns_to_near_the_old_window() {
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.run(500 * MS);
    let before = path.cubic.window();
    path.now = path.now.wrapping_add(10_000 * MS);
    let event = path.event(0);
    path.cubic.on_idle(&event);
    assert_eq!(path.cubic.window(), 10 * MSS);
    assert_eq!(path.cubic.ssthresh(), 700 * MSS);
    assert!(before > 700 * MSS);
    path.run(800 * MS);
    assert!(path.segments() >= 700.0, "{}", path.segments());
    // The curve continues towards its old plateau.
    assert_eq!(path.cubic.w_max(), 1_000 * MSS);
    path.run(15_000 * MS);
    assert!(path.segments() > 990.0, "{}", path.segments());
}

#[test]
fn congestion_of_an_unused_window_reduces_the_used_part() {
    // A window that is not validated is reduced to a part of the used bytes (RFC 7661, section
    // 4.4.1).
    let mut path = Path::new(100 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(10 * MSS);
    path.cubic.on_congestion(Congestion::Loss, &event);
    assert_eq!(path.cubic.window(), 7 * MSS);
    path.cubic.on_recovery_ack(MSS, 2 * MSS, &event);
    path.cubic.on_recovered(0, &event);
    assert_eq!(path.cubic.window(), 5_600);
    assert_eq!(path.cubic.w_max(), 10 * MSS);
}

#[test]
fn congestion_of_a_half_used_window_reduces_all_of_it() {
    // A window of which half is used is validated (RFC 7661, section 4.4), so the whole window is
    // reduced (RFC 9438, section 4.6).
    let mut path = Path::new(100 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(50 * MSS);
    let mut timed_out = path.cubic;
    timed_out.on_timeout(true, &event);
    assert_eq!(timed_out.ssthresh(), 70 * MSS);
    path.cubic.on_congestion(Congestion::Loss, &event);
    assert_eq!(path.cubic.window(), 70 * MSS);
    assert_eq!(path.cubic.w_max(), 100 * MSS);
}

#[test]
fn restoring_an_earlier_state_undoes_a_reduction() {
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.run(500 * MS);
    let kept = path.cubic;
    path.lose();
    assert!(path.cubic.window() < kept.window());
    path.cubic = kept;
    let before = path.cubic.window();
    path.run(100 * MS);
    assert!(path.cubic.window() > before);
}

#[test]
fn aggregated_acks_open_the_window_like_single_ones() {
    // A second slow start follows an idle period.
    let mut path = Path::after_loss(100 * MS, 1_000);
    path.ack();
    let event = path.event(0);
    path.cubic.on_idle(&event);
    let event = Event {
        nxt: path.una,
        ..path.event(10 * MSS)
    };
    path.cubic.on_ack(10 * MSS, &event);
    assert_eq!(path.cubic.window(), 20 * MSS);
    // After a timeout the limit is lower, because an ACK may cover data that arrived long before.
    path.cubic.on_timeout(false, &event);
    path.cubic.ssthresh = 100 * MSS;
    path.cubic.on_ack(10 * MSS, &event);
    assert_eq!(path.cubic.window(), 3 * MSS);
    path.cubic.on_recovered(0, &event);
    path.cubic.on_ack(10 * MSS, &event);
    assert_eq!(path.cubic.window(), 13 * MSS);
}

#[test]
fn after_a_loss_repaired_by_a_probe_a_timeout_reduces_the_threshold() {
    // A tail loss probe has repaired the loss (RFC 8985, section 7.4.2), so `on_recovered` is not
    // called.
    let mut path = Path::new(100 * MS);
    path.cubic.cwnd = 100 * MSS;
    let event = path.event(100 * MSS);
    path.cubic.on_congestion(Congestion::Loss, &event);
    path.run(200 * MS);
    let window = path.cubic.window();
    let event = path.event(window);
    path.cubic.on_timeout(false, &event);
    assert_eq!(
        path.cubic.ssthresh(),
        window / 10 * 7 + window % 10 * 7 / 10
    );
}

/// A window that is one byte too small for another segment wastes that segment: a seventh of a
/// window of seven segments.
#[test]
fn acks_of_a_whole_window_add_a_whole_segment() {
    const MSS: u32 = 1448;
    let event = |now: u32, in_flight: u32, una: u32| Event {
        now,
        in_flight: in_flight * MSS,
        mss: MSS,
        srtt: 150_000,
        una: una * MSS,
        nxt: (una + in_flight) * MSS,
        ..Event::default()
    };
    let mut cubic = Cubic::new(MSS);
    cubic.on_congestion(Congestion::Loss, &event(300_000, 10, 0));
    assert_eq!(cubic.window(), 7 * MSS);
    cubic.on_recovered(3 * MSS, &event(453_000, 7, 12));
    for (acked, una) in [(1, 13), (1, 14), (2, 16)] {
        cubic.on_ack(acked * MSS, &event(453_200, 23 - una, una));
    }
    assert_eq!(cubic.window(), 8 * MSS);
}
