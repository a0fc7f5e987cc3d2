use proptest::prelude::*;

use super::super::converged;
use super::*;

const MSS: u32 = 1448;

fn at(now: u32, srtt: u32) -> Event {
    Event {
        now,
        mss: MSS,
        srtt,
        nxt: 1,
        ..Event::default()
    }
}

/// Returns the window in bytes by equation 1 of RFC 9438, `t` seconds after the start of the epoch.
fn w_cubic(w_max: f64, cwnd: f64, t: f64) -> f64 {
    let mss = f64::from(MSS);
    let k = ((w_max - cwnd) / mss / 0.4).cbrt();
    (0.4 * (t - k).powi(3) + w_max / mss) * mss
}

proptest! {
    #[test]
    fn cube_roots_are_exact(root in 0u64..=2_642_245, off in 0u64..1000) {
        let cube = root * root * root;
        prop_assert_eq!(u64::from(cube_root(cube)), root);
        prop_assert_eq!(u64::from(cube_root(cube.saturating_sub(1))), root.saturating_sub(1));
        let found = u64::from(cube_root(cube.saturating_add(off)));
        prop_assert!(found.pow(3) <= cube.saturating_add(off));
    }

    #[test]
    fn the_curve_is_that_of_the_rfc(
        segments in 2u32..100_000,
        start in any::<u32>(),
        millis in 0u32..40_000,
    ) {
        let w_max = segments * MSS;
        let cwnd = w_max / 10 * 7;
        let mut curve = Curve::new(w_max);
        let mut flags = EpochFlags::default();
        curve.begin(cwnd, &mut flags, &at(start, 0));
        let now = start.wrapping_add(millis * 1_000);
        let seconds = f64::from(millis) / 1e3;
        let found = curve.window_at(now, MSS) as f64;
        let right = w_cubic(f64::from(w_max), f64::from(cwnd), seconds).max(0.0);
        // The tolerance is 1 % plus the rise of the curve in two milliseconds.
        let k = (f64::from(w_max - cwnd) / f64::from(MSS) / 0.4).cbrt();
        let slope = 1.2 * (seconds - k).powi(2) * f64::from(MSS) * 0.002;
        let tolerance = right * 0.01 + slope + 1.0;
        prop_assert!((found - right).abs() <= tolerance, "{found} {right}");
    }
}

#[test]
fn the_curve_never_wraps() {
    let mut curve = Curve::new(100 * MSS);
    let mut flags = EpochFlags::default();
    curve.begin(70 * MSS, &mut flags, &at(0, 0));
    let mut now = 0_u32;
    for _ in 0..200 {
        now = now.wrapping_add(60_000_000);
        let cwnd = curve.update_gain(70 * MSS, &mut flags, &at(now, 0));
        assert!(cwnd >= 70 * MSS);
        assert!(curve.window_at(now, MSS) >= 100 * u64::from(MSS));
    }
    assert!(curve.window_at(now, MSS) > u64::from(MAX_WINDOW));
}

#[test]
fn fast_convergence_lowers_the_plateau() {
    // Fast convergence multiplies the plateau by (1 + 0.7) / 2 (RFC 9438, section 4.7).
    assert_eq!(converged(100_000), 85_000);
    assert_eq!(converged(MAX_WINDOW), 912_680_550);
}
