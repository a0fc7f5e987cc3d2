//! The page and the table as a whole.

use super::*;
use crate::shell::Scratch;

/// Whether tags are closed in the order in which they were opened.
fn is_well_formed(html: &str) -> std::result::Result<(), String> {
    const EMPTY: [&str; 4] = ["meta", "!doctype", "br", "img"];
    let mut open = Vec::new();
    let css = html.find("<style>").unwrap()..html.find("</style>").unwrap();
    let html = html.replacen(&html[css], "<style>", 1);
    for piece in html.split('<').skip(1) {
        let (tag, _) = piece
            .split_once('>')
            .ok_or(format!("not closed: {piece}"))?;
        let name = tag.split_whitespace().next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("</{name}> closes {last:?}"));
            }
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
    }
    open.is_empty()
        .then_some(())
        .ok_or(format!("left open: {open:?}"))
}

#[test]
fn the_page_shows_every_run_and_stands_alone() {
    let results = sample::results();
    let html = page::page(&results).unwrap();
    is_well_formed(&html).unwrap();
    for foreign in ["<script", "<img", "<link", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(html.contains("&lt;u&gt;reset&lt;/u&gt; 4,321"));
    assert!(html.contains("last &lt;line&gt;\nof its log"));
    // All tables of single runs together have a row for each.
    let counts = html.match_indices("<summary>All ").map(|(at, found)| {
        let number = html[at + found.len()..].split(' ').next().unwrap();
        number.parse::<usize>().unwrap()
    });
    assert_eq!(counts.sum::<usize>(), results.runs.len());
    let closed_loops = results.runs.iter().filter(|run| run.load.asked_rate <= 0.0);
    let rows = html.matches("<td>closed loop</td>").count();
    let agreements = 1;
    assert_eq!(rows, closed_loops.count() + agreements);
    for word in [
        "Figure 8b",
        "Linux 6.18 &lt;x86&gt;",
        "NSD 4.6.1",
        "Core 1: the client",
        "met",
    ] {
        assert!(html.contains(word), "{word}");
    }
}

#[test]
fn charts_have_a_line_for_each_server_and_one_for_the_limit() {
    let mut results = sample::results();
    results
        .runs
        .retain(|run| ["limit", "dns-names"].contains(&run.figure.as_str()));
    let html = page::page(&results).unwrap();
    let figure = &html[html.find("<h2 id=\"dns-names\"").unwrap()..];
    let chart = &figure[figure.find("<figure>").unwrap()..figure.find("</figure>").unwrap()];
    let lines = chart.matches("stroke-width=\"2\" points").count();
    assert!(lines >= 7, "{lines} lines");
    assert!(figure.contains("the rig's limit"));
    assert!(chart.contains("1,000,000"));
}

#[test]
fn the_table_has_marks_and_medians() {
    let table = markdown::table(&sample::results());
    let line = |start: &str| {
        table
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no line {start} in\n{table}"))
    };
    let mark = line("| Namestorm, 100 names: rate");
    assert!(
        mark.contains("≥ 0.85 | 0.80 (0.72 to 0.88) | **missed** | 480,769/s of 600,000/s"),
        "{mark}"
    );
    assert!(line("| Figure 8b").contains("> 2 | 2.00"));
    assert!(line("| nginx | 60,000 (54,000 to 66,000)").contains("26,"));
    assert!(line("- H2O \\<2>: it has ended with 1").len() > 10);
    assert!(line("| DNS, namestorm, fixed rate").ends_with("| 1.00 | 1.00 | they agree |"));
    let growth = "| sandstorm memcopy | 1,000 | 100,000 | 260 |";
    assert_eq!(line(growth), growth);
    assert!(line("| dns-turnaround-100").contains("1,500 | -6.2 %"));
    let escaped = table.matches("\\<script>").count();
    assert!(escaped > 0 && escaped == table.matches("<script>").count());
    // Each table has as many cells in every row.
    for block in table.split("\n\n").filter(|block| block.starts_with('|')) {
        let mut cells = block
            .lines()
            .map(|row| row.replace("\\|", "").matches('|').count());
        let first = cells.next().unwrap();
        assert!(cells.all(|count| count == first), "{block}");
    }
}

#[test]
fn a_run_without_a_reply_is_told_and_has_no_connections() {
    let mut results = sample::results();
    let runs = results.runs.iter_mut();
    for run in runs.filter(|run| run.figure == "connections" && run.x > 2e4) {
        run.load.completed = 0;
    }
    let table = markdown::table(&results);
    assert!(!table.contains("| sandstorm memcopy | 1,000 | 100,000 |"));
    assert!(table.contains("| nginx, 100,000 connections | runs without one reply: 3 |"));
    assert!(
        page::page(&results)
            .unwrap()
            .contains("runs without one reply: 3")
    );
}

#[test]
fn files_are_written_and_drawn_again_from_the_raw_results() {
    let scratch = Scratch::create("report-test").unwrap();
    // Through JSON once, where a number may lose its last bit.
    let json = serde_json::to_vec(&sample::results()).unwrap();
    let results: Results = serde_json::from_slice(&json).unwrap();
    write(&results, scratch.path()).unwrap();
    let first = std::fs::read(scratch.path().join(PAGE)).unwrap();
    let raw = scratch.path().join("results.json");
    std::fs::write(&raw, json).unwrap();
    run(&[raw.display().to_string()]).unwrap();
    assert!(std::fs::read(scratch.path().join(PAGE)).unwrap() == first);
    assert!(scratch.path().join(TABLE).is_file());
    let missing = run(&["/nonexistent/results.json".into()]).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/results.json"));
    assert!(run(&["--what".into()]).is_err());
}

#[test]
fn nothing_measured_is_a_page_too() {
    let html = page::page(&Results::default()).unwrap();
    is_well_formed(&html).unwrap();
    assert!(html.contains("not measured"));
    let table = markdown::table(&Results::default());
    assert!(table.contains("not measured"));
}

#[test]
fn generators_that_differ_are_told() {
    let table = |change: &dyn Fn(&mut crate::bench::results::Run)| {
        let mut results = sample::results();
        let runs = results.runs.iter_mut();
        runs.filter(|run| run.server == "kxdpgun").for_each(change);
        markdown::table(&results)
    };
    let slower = table(&|run| run.load.rate *= 0.9);
    assert!(slower.contains("| kxdpgun | 100,000 | 90,000 | 1.11 | 1.00 | they differ |"));
    let nearly = table(&|run| run.load.rate *= 0.96);
    assert!(nearly.contains("| 1.04 | 1.00 | they agree |"));
    let full = table(&|run| {
        run.load.rate *= 0.9;
        run.cost.as_mut().unwrap().client_busy = 1.0;
    });
    assert!(full.contains("they differ: the other's client's core is full"));
}
