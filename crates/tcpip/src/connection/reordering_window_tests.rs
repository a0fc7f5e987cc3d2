use super::ReorderingWindow;
use crate::rto::Rtt;

fn rtt(micros: u32) -> Rtt {
    let mut rtt = Rtt::default();
    rtt.sample(micros);
    rtt
}

#[test]
fn spurious_retransmissions_widen_the_window_up_to_a_round_trip() {
    // Each spurious retransmission adds a quarter of the minimum RTT to the window (RFC 8985,
    // section 6.2, step 4).
    let rtt = rtt(40_000);
    let mut reo_wnd = ReorderingWindow::new();
    let mut windows = vec![reo_wnd.window(rtt)];
    for _ in 0..20 {
        reo_wnd.widen();
        windows.push(reo_wnd.window(rtt));
    }
    assert_eq!(windows[..4], [10_000, 20_000, 30_000, 40_000]);
    assert!(windows[4..].iter().all(|window| *window == 40_000));
}

#[test]
fn the_window_is_reset_after_fifteen_recoveries() {
    // A widened window lasts for RACK.reo_wnd_persist recoveries (RFC 8985, section 6.2).
    let rtt = rtt(40_000);
    let mut reo_wnd = ReorderingWindow::new();
    reo_wnd.widen();
    reo_wnd.widen();
    for recovery in 1..15 {
        reo_wnd.decay();
        assert_eq!(reo_wnd.window(rtt), 30_000, "{recovery}");
    }
    reo_wnd.decay();
    assert_eq!(reo_wnd, ReorderingWindow::new());
    // After the reset, more recoveries have no effect.
    reo_wnd.decay();
    assert_eq!(reo_wnd, ReorderingWindow::new());
}

#[test]
fn without_an_rtt_sample_the_window_is_zero() {
    assert_eq!(ReorderingWindow::new().window(Rtt::default()), 0);
}
