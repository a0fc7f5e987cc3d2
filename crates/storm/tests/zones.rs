//! Looks at the zones of a running `storm`, and changes them. Needs root.

mod content;

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use content::content;
use serde_json::Value;
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
/// Maximum time to wait for a change, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a command for the server at this socket.
fn run(socket: &str, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["20", STORM]).args(words);
    command.args(["--control-socket", socket]).output().unwrap()
}

/// Returns the lines of `zones --json`.
fn zones(socket: &str) -> Vec<Value> {
    let output = run(socket, &["zones", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

/// Starts a server whose zone is in the folder `zones` in `base`.
fn start(folder: &Path, base: &Path, more: &[&str]) -> (Server, String) {
    let [www, zone, socket] = content(folder, "www");
    let own = base.join("zones");
    fs::create_dir(&own).unwrap();
    let moved = own.join("a.zone");
    fs::rename(zone, &moved).unwrap();
    let zone = moved.to_str().unwrap();
    let arguments = [
        "serve",
        "--web",
        &www,
        "--zone",
        zone,
        "--control-socket",
        &socket,
    ];
    (Server::start(STORM, &[&arguments, more].concat()), socket)
}

fn answers(server: IpAddr, name: &str) -> bool {
    let mut dig = Command::new("dig");
    dig.args([
        &format!("@{server}"),
        "+time=2",
        "+tries=1",
        "+short",
        name,
        "TXT",
    ]);
    let output = dig.output().unwrap();
    String::from_utf8(output.stdout).unwrap().contains('"')
}

#[test]
fn the_zones_are_listed_and_one_with_an_error_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path(), folder.path(), &[]);
    let rows = zones(&socket);
    assert_eq!(
        (&rows[0]["zone"], &rows[0]["state"]),
        (&"a.test.".into(), &"served".into())
    );
    assert_eq!(rows[1]["summary"]["zones"], 1);
    let file = folder.path().join("zones/a.zone");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}x 60 A nonsense\n")).unwrap();
    let reload = run(&socket, &["reload"]);
    let message = String::from_utf8(reload.stderr).unwrap();
    assert!(message.contains("only a part is reloaded"), "{message}");
    let rows = zones(&socket);
    assert_eq!(rows[0]["state"], "old");
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.contains("a.zone:5:8: "), "{error}");
    let unknown = run(&socket, &["zones", "b.test"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(unknown.stderr).unwrap(),
        "storm: no zone is called b.test.\n"
    );
    storm.stop();
}

#[test]
fn a_file_that_is_included_since_a_reload_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, _) = start(folder.path(), folder.path(), &["--watch"]);
    let server = storm.addresses[0];
    let file = |name: &str| folder.path().join("zones").join(name);
    let wait_for = |name: &str| {
        let start = Instant::now();
        while !storm.beside(|| answers(server, name)) {
            assert!(start.elapsed() < TIMEOUT, "there is no {name}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    let text = fs::read_to_string(file("a.zone")).unwrap();
    fs::write(file("more"), "one 60 TXT one\n").unwrap();
    fs::write(file("a.zone"), format!("{text}$INCLUDE more\n")).unwrap();
    wait_for("one.a.test");
    // The watch over the new file begins after the reload.
    thread::sleep(Duration::from_secs(1));
    fs::write(file("more"), "one 60 TXT one\ntwo 60 TXT two\n").unwrap();
    wait_for("two.a.test");
    storm.stop();
}

/// Corrections may be in a file that only a zone with errors includes, also in one that was missing.
#[test]
fn a_file_that_a_zone_with_errors_includes_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path(), folder.path(), &["--watch"]);
    let server = storm.addresses[0];
    let file = |name: &str| folder.path().join("zones").join(name);
    let wait_for = |what: &str, is_there: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_there() {
            assert!(start.elapsed() < TIMEOUT, "{what}");
            thread::sleep(Duration::from_millis(100));
        }
        // The watch over new files begins after the reload.
        thread::sleep(Duration::from_secs(1));
    };
    let text = fs::read_to_string(file("a.zone")).unwrap();
    fs::create_dir(file("parts")).unwrap();
    let include = |name: &str| fs::write(file("a.zone"), format!("{text}$INCLUDE parts/{name}\n"));
    for (name, content) in [("wrong", Some("wrong 60 TXT (\n")), ("missing", None)] {
        if let Some(content) = content {
            fs::write(file("parts").join(name), content).unwrap();
        }
        include(name).unwrap();
        wait_for("the error", &|| zones(&socket)[0]["state"] == "old");
        fs::write(file("parts").join(name), format!("{name} 60 TXT x\n")).unwrap();
        let corrected = || storm.beside(|| answers(server, &format!("{name}.a.test")));
        wait_for(name, &corrected);
    }
    storm.stop();
}

#[test]
fn a_folder_that_was_replaced_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // The sandbox lets the server read what is beside the site.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o755)).unwrap();
    let (storm, socket) = start(folder.path(), elsewhere.path(), &[]);
    let [zones, old] = ["zones", "old"].map(|name| elsewhere.path().join(name));
    fs::rename(&zones, &old).unwrap();
    fs::create_dir(&zones).unwrap();
    fs::copy(old.join("a.zone"), zones.join("a.zone")).unwrap();
    let reload = run(&socket, &["reload"]);
    let message = String::from_utf8(reload.stderr).unwrap();
    let expected = format!(
        "; the folder {} was replaced after the start, and the sandbox lets the server read only \
         the old one: restart the server",
        zones.display()
    );
    assert!(message.contains("Permission denied"), "{message}");
    assert!(message.contains(&expected), "{message}");
    storm.stop();
}
