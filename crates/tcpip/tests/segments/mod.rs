//! Tables of segments: which segments the server receives, and which segments it must send at what
//! time. Each case tests a rule of an RFC. `README.md` in this folder describes the language of the
//! cases.

mod acts;
mod expect;
mod expr;
mod forms;
mod language;
mod peer;
mod rig;
mod run;
mod settings;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use language::Case;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/segments")
}

fn load(file: &str) -> Vec<Case> {
    let text = fs::read_to_string(folder().join(file)).expect("a file of cases");
    language::parse(file, &text).unwrap_or_else(|what| panic!("{what}"))
}

/// Runs the cases of a file. If the environment variable `CASE` is set, runs only the cases whose
/// title contains its value.
fn run_file(file: &str) {
    let wanted = std::env::var("CASE").unwrap_or_default();
    let cases = load(file);
    let all = cases.iter().filter(|case| case.title().contains(&wanted));
    let failures: Vec<_> = all.filter_map(|case| run::run(case).err()).collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases fail\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

macro_rules! files {
    ($($test:ident: $file:literal,)*) => {
        $(
            #[test]
            fn $test() {
                run_file($file);
            }
        )*

        /// All files whose cases are run.
        const FILES: &[&str] = &[$($file),*];
    };
}

files! {
    rfc1122: "rfc1122.seg",
    options_of_others: "options-of-others.seg",
    rfc9293_opening: "rfc9293-opening.seg",
    rfc9293_receiving: "rfc9293-receiving.seg",
    rfc9293_closing: "rfc9293-closing.seg",
    rfc9293_windows: "rfc9293-windows.seg",
    rfc9293_draining: "rfc9293-draining.seg",
    rfc5961: "rfc5961.seg",
    rfc6298: "rfc6298.seg",
    rfc5681: "rfc5681.seg",
    rfc6582: "rfc6582.seg",
    rfc6928: "rfc6928.seg",
    rfc6528: "rfc6528.seg",
    rfc5927: "rfc5927.seg",
    rfc7323: "rfc7323.seg",
    rfc2018: "rfc2018.seg",
    rfc6675: "rfc6675.seg",
    rfc3042: "rfc3042.seg",
    rfc6937: "rfc6937.seg",
    rfc8899: "rfc8899.seg",
    rfc8985: "rfc8985.seg",
    rfc5682: "rfc5682.seg",
    rfc3168: "rfc3168.seg",
    rfc4987: "rfc4987.seg",
    rfc6191: "rfc6191.seg",
    rfc7661: "rfc7661.seg",
    rfc9438: "rfc9438.seg",
}

#[test]
fn every_file_is_run() {
    let listed: BTreeSet<String> = FILES.iter().map(ToString::to_string).collect();
    let present: BTreeSet<String> = fs::read_dir(folder())
        .expect("the folder of the cases")
        .map(|entry| entry.expect("a file").file_name().into_string())
        .map(|name| name.expect("a name in UTF-8"))
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "seg"))
        .collect();
    assert_eq!(listed, present);
}

#[test]
fn every_case_has_a_unique_name() {
    let mut seen = BTreeSet::new();
    for case in FILES.iter().flat_map(|file| load(file)) {
        let name = format!("{}: {}", case.section, case.name);
        assert!(seen.insert(name), "two cases are called {}", case.title());
    }
}

/// Minimum number of cases. If there are fewer cases, some were lost by mistake.
const MIN_CASES: usize = 250;

#[test]
fn there_are_enough_cases() {
    let cases = FILES.iter().flat_map(|file| load(file)).count();
    assert!(cases >= MIN_CASES, "{cases} cases");
}

/// Runs an exchange as a case, after adding a heading and a rule.
fn run_text(exchange: &str) -> Result<(), String> {
    let text = format!("RFC 1, 1: a case\n| A rule.\n{exchange}");
    let cases = language::parse("text", &text)?;
    run::run(&cases[0])
}

#[test]
fn any_difference_fails_a_case() {
    const FIRST: &str = "+0 > P. 1:1+seg(seg) ack 2 win RECV";
    const AGAIN: &str = "+0.2 > P. 1:1+seg(seg) ack 2";
    let right = format!("open\napp serve seg\n+0 < P. 1:2(1) ack 1\n{FIRST}\n{AGAIN}");
    run_text(&right).expect("nothing differs");
    for wrong in [
        "+0 > . 1:1+seg(seg) ack 2 win RECV",
        "+0 > P. 2:2+seg(seg) ack 2 win RECV",
        "+0 > P. 1:seg(seg-1) ack 2 win RECV",
        "+0 > P. 1:1+seg(seg) ack 1 win RECV",
        "+0 > P. 1:1+seg(seg) ack 2 win RECV-1",
        "+0 > [ect0] P. 1:1+seg(seg) ack 2 win RECV",
        "+0 > P. 1:1+seg(seg) ack 2 win RECV urg 1",
        "+0 > P. 1:1+seg(seg) ack 2 win RECV <sackOK>",
        "+0 > P. 1:1+seg(seg) ack 2 win RECV port 81",
        "+.1~+.2 > P. 1:1+seg(seg) ack 2 win RECV",
        "silence",
        "",
    ] {
        run_text(&right.replacen(FIRST, wrong, 1)).expect_err(wrong);
    }
    for wrong in [
        "+0.199 > P. 1:1+seg(seg) ack 2",
        "+0.201 > P. 1:1+seg(seg) ack 2",
        "+0~+0.199 > P. 1:1+seg(seg) ack 2",
        "0.1 > P. 1:1+seg(seg) ack 2",
        "+0.2 > P. 1:1+seg(seg) ack 2 x2",
        "+0.2 silence",
        "+0.2 < . 2:2(0) ack 1+seg",
        "+0.2 log receive(1)",
    ] {
        run_text(&right.replacen(AGAIN, wrong, 1)).expect_err(wrong);
    }
    for other in [
        "0.2 > P. 1:1+seg(seg) ack 2",
        "+.1~+.3 > P. 1:1+seg(seg) ack 2",
        "* > P. 1:1+seg(seg) ack 2",
        "+0.2 > P. 1:1+seg(seg) ack 2 <...>",
    ] {
        run_text(&right.replacen(AGAIN, other, 1)).expect(other);
    }
}

#[test]
fn our_sequence_numbers_wrap_in_one_form() {
    let form = forms::FORMS.iter().find(|form| form.iss.is_some());
    let form = *form.expect("a form that waits for its number");
    let iss = run::first_iss(form).expect("a SYN-ACK");
    // Our initial sequence number advances by 250 per millisecond.
    let before = form.iss.map(|target| target - iss);
    assert!(before.is_some_and(|before| before < 250), "{iss}");
}

#[test]
fn invalid_lines_are_refused() {
    for wrong in [
        "opne",
        "+0 < Q 1:1(0)",
        "+0 < . 1:1(0)",
        "+0 < S 1:1(0) ack 1",
        "+0 < S 1",
        "+0 < S 1:2(0)",
        "< S 1:1(0)",
        "+0~+1 < S 1:1(0)",
        "+0 > . 1:3(2 ack 1",
        "+0 > . 1:1(0) ack one",
        "+x silence",
        "+1",
        "+0 < S 0:0(0) <mss>",
        "+0 < S 0:0(0) <foo 1>",
        "+0 < S 0:0(0) 1",
        "+0 < [ect2] S 0:0(0)",
        "+0 < icmp unreachable [1:1(0)]",
        "+0 < icmp time_exceeded 1",
        "app",
        "app dance",
        "set nothing 1",
        "count nothing 1",
        "only ipv5",
        "control none",
    ] {
        assert!(run_text(wrong).is_err(), "{wrong}");
    }
}
