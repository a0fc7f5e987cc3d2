//! Tests the command line of the finished program.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use testkit::cli::expect;

const PROGRAM: &str = env!("CARGO_BIN_EXE_namestorm");

const ZONE: &str = "\
$ORIGIN example.
@ 60 SOA ns. mail. 1 2 3 4 5
@ 60 NS ns.example.net.
";

/// Checks a good zone file, which everybody may read. Returns the exit status, and the text on standard output and
/// standard error.
fn check_one(out: impl Into<Stdio>) -> (Option<i32>, String) {
    check_with_mode(0o644, out)
}

/// Same as [`check_one`], for a file with this mode.
fn check_with_mode(mode: u32, out: impl Into<Stdio>) -> (Option<i32>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ZONE).unwrap();
    std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
    let output = Command::new(PROGRAM)
        .arg("check")
        .arg(file.path())
        .stdout(out)
        .output()
        .unwrap();
    let written = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(written).unwrap())
}

#[test]
fn a_failed_write_to_standard_output_is_one_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (status, message) = check_one(full);
    let start = "namestorm: cannot write to standard output: No space left";
    assert!(message.starts_with(start), "{message}");
    assert_eq!((status, message.lines().count()), (Some(1), 1));
}

#[test]
fn a_broken_pipe_on_standard_output_is_not_an_error() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    assert_eq!(check_one(writer), (Some(0), String::new()));
    let (status, text) = check_one(Stdio::piped());
    assert!(text.starts_with("example.: "), "{text}");
    assert_eq!(status, Some(0));
}

#[test]
fn each_zone_option_takes_one_file() {
    expect(
        PROGRAM,
        &[
            ("serve --zone /a --zone b=/c", 1, "/c: cannot read the file"),
            ("serve --zone a b", 2, "unexpected argument 'b'"),
            ("serve", 2, "no zone is given"),
            ("serve --zone", 2, "a value is required"),
        ],
    );
}

#[test]
fn keys_of_the_web_server_in_a_shared_file_are_skipped() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "[logs]\naccess-log = \"a\"\naccess-log-format = \"json\"\n[[web]]\n\
                root = \"/none\"\n[[dns]]\nzones = [\"/none/zone\"]\n";
    std::fs::write(file.path(), text).unwrap();
    let serve = format!("serve --config {}", file.path().display());
    expect(PROGRAM, &[(&serve, 1, "/none/zone: cannot read the file")]);
}

/// Only the status tells a service manager that another start is useless.
#[test]
fn mistakes_in_the_options_have_another_status_than_wrong_files() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ZONE).unwrap();
    let serve = format!("serve --zone {}", file.path().display());
    let with = |options: &str| format!("{serve} {options}");
    expect(
        PROGRAM,
        &[
            (
                &with("--edns-size 600 --edns-size 700"),
                2,
                "two sizes for all clients",
            ),
            (&with("--user no-such-user"), 2, "there is no user"),
            (&with("--query-log-sample 2"), 2, "has no effect without"),
            (&with("--cookie-secret /none"), 1, "/none cannot be read"),
            ("serve --zones-from /none/*", 1, "no zone file matches"),
        ],
    );
}

/// A key that the file of keys does not have is found before the server opens its device.
#[test]
fn a_key_that_is_missing_is_a_mistake_in_the_options() {
    let [zone, keys] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    std::fs::write(zone.path(), ZONE).unwrap();
    std::fs::write(
        keys.path(),
        "key other { algorithm hmac-sha256; secret AAAA; };",
    )
    .unwrap();
    let run = |start: &[&str], option: &str, more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(start).arg(zone.path());
        command.args([option, "192.0.2.53 Key"]).args(more);
        let output = command.output().unwrap();
        let written = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(written).unwrap())
    };
    let keys = ["--tsig-keys", keys.path().to_str().unwrap()];
    for option in ["--allow-transfer", "--notify"] {
        for (more, why) in [
            (
                &[][..],
                "but there are no keys: name a file with --tsig-keys",
            ),
            (
                &keys,
                "which is not in the file of --tsig-keys: add it there",
            ),
        ] {
            let expected = format!("{option} names the key Key., {why}");
            for (start, status) in [(&["serve", "--zone"][..], 2), (&["check"], 1)] {
                let (found, text) = run(start, option, more);
                assert_eq!(found, Some(status), "{text}");
                assert!(text.contains(&expected), "{text}");
            }
        }
    }
}

#[test]
fn the_help_explains_the_exit_status() {
    expect(
        PROGRAM,
        &[("serve --help", 0, "Exit status: 0 if a signal")],
    );
}

#[test]
fn the_help_names_values_in_capitals() {
    let named = "--query-log-format <FORMAT>";
    expect(PROGRAM, &[("serve --help", 0, named)]);
}

#[test]
fn a_check_reports_errors_in_zones_and_in_options() {
    let command = "check /c --cookie-secret /none --edns-size 600 --edns-size 700";
    expect(
        PROGRAM,
        &[
            (command, 1, "1 of 1 zones cannot be served"),
            (command, 1, "the cookie secrets /none cannot be read"),
            (command, 1, "two sizes for all clients"),
        ],
    );
}

#[test]
fn a_check_as_root_names_a_zone_that_the_servers_user_cannot_read() {
    let (status, text) = check_with_mode(0o600, Stdio::piped());
    assert_eq!(status, Some(0), "{text}");
    let is_told = text.contains("although the server's user cannot read them: ");
    // The user of another check stays the same, and has made the file.
    let own = tempfile::NamedTempFile::new().unwrap();
    let is_root = own.as_file().metadata().unwrap().uid() == 0;
    assert_eq!(is_told, is_root, "{text}");
}
