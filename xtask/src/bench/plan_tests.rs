use super::super::results::FIGURES;
use super::*;

fn of(line: &str) -> Vec<Set> {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    plan(&Options::parse(&args).unwrap())
}

fn jobs(sets: &[Set]) -> impl Iterator<Item = (&Group, &Job)> {
    let groups = sets.iter().flat_map(|set| &set.groups);
    groups.flat_map(|group| group.jobs.iter().map(move |job| (group, job)))
}

/// Seconds of all measured parts and warm-ups, repeats included.
fn seconds(sets: &[Set]) -> f64 {
    let of_set = |set: &Set| {
        let groups = set.groups.iter().flat_map(|group| &group.jobs);
        let lengths = groups.map(|job| job.lengths.measured + job.lengths.warm_up);
        lengths.sum::<f64>() * f64::from(set.repeats)
    };
    sets.iter().map(of_set).sum()
}

#[test]
fn every_figure_has_runs() {
    for line in ["all", "all --quick"] {
        let sets = of(line);
        for (figure, _, _) in FIGURES {
            assert!(
                jobs(&sets).any(|(_, job)| job.figure == *figure),
                "{line}: {figure}"
            );
        }
    }
}

#[test]
fn no_point_is_measured_twice_in_a_repeat() {
    let sets = of("all --peer nsd-xdp=/x");
    let mut seen = Vec::new();
    for (group, job) in jobs(&sets) {
        let line = job
            .line
            .map_or_else(|| group.spec.program.name(), str::to_owned);
        let point = (job.figure, line, &job.panel, job.x.to_bits(), group.tuning);
        assert!(!seen.contains(&point), "{point:?}");
        seen.push(point);
    }
}

#[test]
fn runs_take_the_time_that_is_promised() {
    let quick = seconds(&of("--quick"));
    assert!(quick < 110.0, "{quick}");
    let all = seconds(&of("all"));
    // Starting the servers takes another eight minutes.
    assert!(all < 2_400.0, "{all}");
}

#[test]
fn a_figure_asked_for_by_its_name_may_have_more_points() {
    let some = jobs(&of("web"))
        .filter(|(_, job)| job.figure == "web-offload")
        .count();
    let sets = of("web-offload");
    assert_eq!((some, jobs(&sets).count()), (22, 70));
    // The largest to the most connections takes its time.
    let longest = jobs(&sets).map(|(_, job)| job.lengths.measured);
    assert!((60.0..70.0).contains(&longest.fold(0.0, f64::max)));
}

#[test]
fn seconds_repeats_and_servers_are_as_asked() {
    let sets = of("dns-names --seconds 7 --repeats 2 --server knot");
    assert!(sets.iter().all(|set| set.repeats == 2));
    assert!(jobs(&sets).count() > 0);
    for (group, job) in jobs(&sets) {
        assert!(group.spec.program.name().contains("Knot"));
        assert!((job.lengths.measured - 7.0).abs() < f64::EPSILON);
    }
}

#[test]
fn labels_are_for_people() {
    assert_eq!(thousands(1_024), "1,024");
    assert_eq!(thousands(16), "16");
    assert_eq!(size_label("64"), "64 B");
    assert_eq!(size_label("1k"), "1 KB");
    assert_eq!(size_label("1m"), "1 MB");
}
