use super::super::sample;
use super::*;

#[test]
fn a_median_lies_between_least_and_greatest() {
    assert_eq!(Spread::of([]), None);
    assert_eq!(Spread::of([f64::NAN]), None);
    let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
    assert_eq!(
        (spread.median, spread.min, spread.max, spread.repeats),
        (2.0, 1.0, 3.0, 3)
    );
    let even = Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap();
    assert!(same(even.median, 2.5));
    assert!(same(spread.relative().unwrap(), 1.0));
}

#[test]
fn a_ratio_is_of_medians_and_its_range_of_neighbours() {
    let runs = |costs: [f64; 3]| {
        (0..)
            .zip(costs)
            .map(|(repeat, cost)| {
                let mut run = sample::run("web-cost", "s", 1.0, 10.0, cost);
                run.repeat = repeat;
                run
            })
            .collect::<Vec<_>>()
    };
    let (ours, others) = (runs([1.0, 2.0, 3.0]), runs([4.0, 4.0, 12.0]));
    let (ours, others): (Vec<_>, Vec<_>) = (ours.iter().collect(), others.iter().collect());
    let ratio = Ratio::of(Quantity::Core, &ours, &others, &Limit::default()).unwrap();
    assert!(same(ratio.value, 0.5));
    assert!(same(ratio.min, 0.25) && same(ratio.max, 0.5));
    assert_eq!(ratio.shown(), "0.50 (0.25 to 0.50)");
    assert_eq!(
        Ratio::of(Quantity::Core, &ours, &[], &Limit::default()),
        None
    );
    assert_eq!(
        Ratio::of(Quantity::Memory, &ours, &others, &Limit::default()),
        None
    );
}

#[test]
fn the_limit_is_the_nearest_frames_and_counts_a_responses_frames() {
    let results = sample::results();
    let limit = Limit::new(&results);
    assert_eq!(limit.frames(93.0), Some(600e3));
    assert_eq!(limit.frames(9000.0), Some(500e3));
    assert_eq!(Limit::default().frames(64.0), None);
    let of = |figure: &str, x: f64| limit.of(&sample::run(figure, "s", x, 10.0, 1.0));
    assert_eq!(of("dns-names", 100.0), Some(600e3));
    // A head and 100 bytes are nearer to 512 than to the others.
    assert_eq!(of("web-sizes", 100.0), Some(580e3));
    assert_eq!(of("web-sizes", 1024.0), Some(500e3), "one large frame");
    assert_eq!(of("web-sizes", 65_536.0), Some(500e3 / 46.0));
    let mut new = sample::run("web-cost", "s", 1024.0, 10.0, 1.0);
    new.panel = "new connection".into();
    assert_eq!(limit.of(&new), Some(250e3), "and the SYN-ACK");
    new.offloads = true;
    assert_eq!(limit.of(&new), None, "it was measured without");
    let mut fixed = sample::run("dns-names", "s", 1.0, 300e3, 1.0);
    assert_eq!(Quantity::Fraction.of(&fixed, &limit), Some(0.5));
    fixed.load.asked_rate = 300e3;
    assert_eq!(Quantity::Fraction.of(&fixed, &limit), None);
}

#[test]
fn every_run_has_its_cell() {
    let results = sample::results();
    let figures = figures(&results);
    let panels = figures.iter().flat_map(|figure| &figure.panels);
    let cells = panels
        .flat_map(|panel| &panel.lines)
        .flat_map(|line| &line.cells);
    assert_eq!(
        cells.map(|cell| cell.runs.len()).sum::<usize>(),
        results.runs.len()
    );
    assert_eq!(figures.last().unwrap().name, "<i>figure</i>");
    let sizes = figures
        .iter()
        .find(|figure| figure.name == "web-sizes")
        .unwrap();
    assert_eq!(sizes.panels.len(), 3);
    let offload = figures.iter().find(|figure| figure.name == "web-offload");
    assert_eq!(
        offload.unwrap().panels[0].heading(),
        "64 connections, wrk, offloads on"
    );
    let xs = sizes.panels[0].xs();
    assert_eq!(xs, [1024.0, 4096.0, 16_384.0, 65_536.0]);
}

#[test]
fn numbers_have_three_digits_that_count() {
    for (value, shown) in [
        (0.0, "0.00"),
        (0.0123, "0.012"),
        (0.5, "0.50"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-1_000_000.0, "-1,000,000"),
    ] {
        assert_eq!(digits(value), shown);
    }
    assert_eq!(thousands(999.0), "999");
    assert_eq!(percent(0.123), "12 %");
    assert_eq!(percent(0.0123), "1.2 %");
    assert_eq!(x_shown(65_536.0, "body, bytes"), "64 KB");
    assert_eq!(x_shown(1_048_576.0, "body, bytes"), "1 MB");
    assert_eq!(x_shown(1024.0, "frame, bytes"), "1,024");
    assert_eq!(x_shown(1_000_000.0, "names"), "1,000,000");
    assert_eq!(axis_shown(1_500_000.0), "1.5 M");
    assert_eq!(axis_shown(20_000.0), "20 k");
    assert_eq!(axis_shown(0.25), "0.25");
}

#[test]
fn noise_is_the_spread_of_repeats() {
    let results = sample::results();
    let limit = Limit::new(&results);
    let noise = noise(&results, &figures(&results), &limit);
    let [median, most] = noise.rate.unwrap();
    assert!((median - 0.2).abs() < 1e-6 && (most - 0.2).abs() < 1e-6);
    let [median, most] = noise.stolen.unwrap();
    assert!(same(median, 0.01) && same(most, 0.01));
    assert_eq!(noise.client_full, Some(0.0));
}
