//! Tests the command line of the finished program.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use testkit::cli::{expect, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_storm");

/// A valid command line, and its message, because the folder does not exist.
const VALID: &str = "serve --web /none --zone /none.zone";
const NO_FOLDER: &str = "there is no folder /none";

#[test]
fn a_folder_and_a_zone_are_required() {
    let two = format!("{VALID} --zone /other.zone");
    expect(
        PROGRAM,
        &[
            (VALID, 1, NO_FOLDER),
            (&two, 1, NO_FOLDER),
            ("", 2, "Usage:"),
            ("serve", 2, "required arguments were not provided"),
            ("serve --web /none", 1, NO_FOLDER),
            ("serve --zone z", 2, "required arguments were not provided"),
            ("serve --zone z web", 2, "unexpected argument 'web'"),
        ],
    );
}

#[test]
fn the_congestion_control_is_cubic_unless_another_is_named() {
    let bbr = format!("{VALID} --congestion bbr");
    expect(
        PROGRAM,
        &[
            ("serve --help", 0, "[default: cubic]"),
            (&bbr, 1, NO_FOLDER),
        ],
    );
}

#[test]
fn each_server_has_its_own_port_option() {
    let both = format!("{VALID} --port 81 --dns-port 54");
    let none = format!("{VALID} --dns-port 0");
    expect(
        PROGRAM,
        &[(&both, 1, NO_FOLDER), (&none, 2, "from 1 to 65535")],
    );
    let (_, help) = run(PROGRAM, "serve -h");
    for (option, port) in [("--port <N>", 80), ("--dns-port <N>", 53)] {
        let (_, rest) = help.split_once(option).unwrap();
        let end = rest.find("--").unwrap();
        let default = format!("Defaults to {port}");
        assert!(rest[..end].contains(&default), "{help}");
    }
}

#[test]
fn a_status_is_the_same_although_nobody_can_read_why() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    fs::write(file.path(), "[web]\nfolde = \"/none\"\n").unwrap();
    let wrong = format!("{VALID} --config {}", file.path().display());
    for (line, expected) in [
        (VALID, 1),
        (&wrong, 2),
        ("check --web /none --zone /none.zone", 1),
        ("status --control-socket /none/socket", 1),
        ("zones --control-socket /none/socket", 1),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut program = Command::new(PROGRAM);
        let program = program.args(line.split(' ')).stderr(full);
        assert_eq!(program.status().unwrap().code(), Some(expected), "{line}");
    }
}

#[test]
fn a_check_waits_for_a_reader_that_pauses() {
    const ZONES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let web = folder.path().join("web");
    fs::create_dir(&web).unwrap();
    fs::write(web.join("index.html"), "hello").unwrap();
    let wrong = "x 60 A wrong\n".repeat(40);
    for zone in 0..ZONES {
        let text = format!("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\n{wrong}");
        fs::write(folder.path().join(format!("z{zone}.test.zone")), text).unwrap();
    }
    let pattern = folder.path().join("*.zone");
    let mut check = Command::new(PROGRAM);
    let arguments = ["check".as_ref(), "--web".as_ref(), web.as_os_str()];
    check.args(arguments).arg("--zones-from").arg(pattern);
    let mut check = check.stderr(Stdio::piped()).spawn().unwrap();
    // What the program writes until then is more than a pipe holds.
    thread::sleep(Duration::from_secs(1));
    let mut found = String::new();
    let mut stderr = check.stderr.take().unwrap();
    stderr.read_to_string(&mut found).unwrap();
    assert_eq!(check.wait().unwrap().code(), Some(1));
    assert!(found.len() > 1 << 17, "{}", found.len());
    assert!(!found.contains("are lost"), "{found}");
    let lines = found.lines().filter(|line| line.contains("wrong")).count();
    assert_eq!(lines, 40 * ZONES);
}
