//! Opens the status page of a running `storm` in Chromium. Needs root and Chromium, so
//! `cargo xtask test` runs it as a step of its own.

mod content;

use std::process::Command;

use content::content;
use testkit::rig::Server;

/// Port of the page. Only the test's own network namespace has it.
const PORT: u16 = 9153;
/// Chromium's own time for the script, in milliseconds. It passes as fast as the page works.
const SCRIPT_TIME: &str = "--virtual-time-budget=5000";

fn succeed(program: &str, arguments: &[&str]) -> (String, String) {
    let mut limited = Command::new("timeout");
    limited.args(["60", program]).args(arguments);
    let output = limited.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{program}, 124 after 60 s: {err}");
    (out, err)
}

#[test]
#[ignore = "needs Chromium"]
fn a_browser_shows_the_figures_and_finds_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile");
    // The page must show the name as it is, and not as HTML.
    let [www, zone, socket] = &content(folder.path(), "<i>www");
    // The namespace's own address does not exist yet.
    let listen = format!("0.0.0.0:{PORT}");
    let arguments = ["serve", "--web", www, "--zone", zone, "--workers", "2"];
    let socket = ["--control-socket", socket];
    let arguments = [&arguments[..], &["--metrics-listen", &listen], &socket].concat();
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let (page, log) = storm.beside(|| {
        succeed("ip", &["link", "set", "lo", "up"]);
        let site = format!("http://{}/", storm.addresses[0]);
        for path in ["", "none", "none"] {
            succeed("curl", &["-s", &(site.clone() + path)]);
        }
        let profile = format!("--user-data-dir={}", profile.display());
        let url = format!("http://127.0.0.1:{PORT}/");
        // Workers publish their counts only now and then.
        succeed("sleep", &["0.5"]);
        let quiet = ["--headless", "--no-sandbox", "--disable-gpu", &profile];
        let read = ["--enable-logging=stderr", SCRIPT_TIME, "--dump-dom", &url];
        succeed("chromium", &[quiet, read].concat())
    });
    storm.stop();
    assert!(!log.contains("CONSOLE"), "{log}");
    let (page, _script) = page.split_once("<script").unwrap();
    for part in [
        "<h1 id=\"program\">storm 0.1.0</h1>",
        "<span id=\"phase\" class=\"serving\">serving</span>",
        "<span id=\"generation\">generation 1</span>",
        "<p id=\"notice\" role=\"status\"></p>",
        "<h3>bits per second</h3>",
        "<h3>sandstorm: answers per second</h3>",
        "<h3>batch frames, received: ",
        "<path class=\"s0\" d=\"M",
        "<dt>listening</dt>",
        // What the server tells is text.
        "&lt;i&gt;www",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(!page.contains("<i>"), "{page}");
    for (name, expected) in [
        ("sandstorm: requests", "3"),
        ("sandstorm: answers 404", "2"),
        ("namestorm: connections open", "0"),
    ] {
        assert_eq!(total(page, name), expected, "{name}");
    }
}

/// Returns the cell behind a count's name and rate.
fn total<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, row) = page.split_once(&format!("<td>{name}</td>")).unwrap();
    let cells: Vec<_> = row.split("</td>").collect();
    cells[1].strip_prefix("<td>").unwrap()
}
