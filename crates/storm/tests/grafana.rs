//! Checks the Grafana dashboard and the guide against the metrics of a running `storm`. Needs root.

mod content;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use content::content;
use serde_json::Value;
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
const DASHBOARD: &str = include_str!("../../../packaging/grafana.json");
const GUIDE: &str = include_str!("../../../docs/observing.md");
/// Maximum time to wait for the first counts, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Labels that Prometheus adds, or that belong to its histograms.
const FOREIGN_LABELS: [&str; 2] = ["instance", "le"];

/// Returns the metrics of a server that has just begun and has reloaded once.
fn exported() -> String {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let at = ["--control-socket", socket];
    let content = ["serve", "--web", www, "--zone", zone];
    let arguments = [&content[..], &["--notify", "127.0.0.1"], &at].concat();
    let storm = Server::start(STORM, &arguments);
    // The outcome does not matter: a failed reload is a last reload too.
    Command::new(STORM).arg("reload").args(at).output().unwrap();
    // Workers publish their counts for the first time soon after the start.
    let start = Instant::now();
    let metrics = loop {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--unix-socket", socket, "http://localhost/metrics"]);
        let metrics = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        if metrics.contains("storm_snapshot_age_seconds{") {
            break metrics;
        }
        assert!(start.elapsed() < TIMEOUT, "{metrics}");
    };
    storm.stop();
    metrics
}

/// Returns the names of all metrics and of all labels in Prometheus' text format.
fn names(metrics: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let samples = || metrics.lines().filter(|line| !line.starts_with('#'));
    let names = samples().filter_map(|line| line.split(['{', ' ']).next());
    let labels = samples().filter_map(|line| line.split_once('{'));
    // A label's name ends with `="`, after `{` or after the comma behind another label.
    let labels = labels.flat_map(|(_, rest)| rest.split("=\""));
    let labels = labels.filter_map(|part| part.rsplit(['"', ',']).next());
    (names.collect(), labels.collect())
}

/// Returns the queries of all panels.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let queries = targets.flatten().map(|target| target["expr"].as_str());
    queries.map(Option::unwrap).collect()
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Returns the metrics of a query. Each has a selector in braces.
fn metrics_of(query: &str) -> Vec<&str> {
    let parts: Vec<_> = query.split('{').collect();
    let before = &parts[..parts.len() - 1];
    let names = before
        .iter()
        .map(|part| part.rsplit(|c| !is_word(c)).next());
    names.map(Option::unwrap).collect()
}

/// Returns the labels by which a query groups.
fn labels_of(query: &str) -> Vec<&str> {
    let groups = query.split("by (").skip(1);
    let lists = groups.map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(", ")).collect()
}

/// Returns the metrics in the table of the guide.
fn metrics_in_guide() -> Vec<String> {
    let rows = GUIDE.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split('`'));
    let words = words.filter(|word| word.contains('_') && word.chars().all(is_word));
    let both =
        words.flat_map(|word| ["sandstorm", "namestorm"].map(|p| word.replace("PROGRAM", p)));
    both.collect()
}

#[test]
fn the_dashboard_and_the_guide_name_metrics_that_exist() {
    let metrics = exported();
    let (names, labels) = names(&metrics);
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 30, "{}", queries.len());
    for query in &queries {
        let found = metrics_of(query);
        assert!(!found.is_empty(), "{query} has no metric");
        for metric in found {
            assert!(
                names.contains(metric),
                "{metric} of {query} is not in:\n{metrics}"
            );
        }
        for label in labels_of(query) {
            let is_known = labels.contains(label) || FOREIGN_LABELS.contains(&label);
            assert!(is_known, "{label} of {query} is not in:\n{metrics}");
        }
    }
    let guide = metrics_in_guide();
    assert!(guide.len() > 40, "{guide:?}");
    for metric in guide {
        let bucket = format!("{metric}_bucket");
        let is_exported = names.contains(&*metric) || names.contains(&*bucket);
        assert!(is_exported, "{metric} of the guide is not in:\n{metrics}");
        let is_shown = queries.iter().any(|query| query.contains(&metric));
        assert!(is_shown, "{metric} of the guide is in no panel");
    }
}

#[test]
fn the_panels_have_places_and_names_of_their_own() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|of| panel["gridPos"][of].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        let cells = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        for cell in cells {
            assert!(taken.insert(cell), "two panels at {cell:?}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().map(|one| one["name"].as_str()).collect();
    assert_eq!(variables, ["datasource", "program", "instance"].map(Some));
}
