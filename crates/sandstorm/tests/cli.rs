//! Tests the command line of the finished program.

use testkit::cli::expect;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandstorm");

/// The message of a valid command line whose folder does not exist.
const NO_FOLDER: &str = "there is no folder /none";

#[test]
fn a_folder_is_required() {
    expect(
        PROGRAM,
        &[
            ("serve /none", 1, NO_FOLDER),
            ("serve", 2, "required arguments were not provided"),
            ("/none", 2, "unrecognized subcommand"),
            ("", 2, "Usage:"),
        ],
    );
}

/// Only the status tells a service manager that another start is useless.
#[test]
fn mistakes_in_the_options_have_another_status_than_wrong_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "page").unwrap();
    let with = |options: &str| format!("serve {} {options}", folder.path().display());
    let own = "--address 192.0.2.1/24 --web-address 192.0.2.2";
    expect(
        PROGRAM,
        &[
            (&with("--user no-such-user"), 2, "there is no user"),
            (
                &with("--access-log-format json"),
                2,
                "has no effect without",
            ),
            (
                &with("--basic-auth-realm /a=b"),
                2,
                "but --basic-auth does not",
            ),
            (&with(own), 2, "which is not an address of the server"),
            (&with("--etag-key /none"), 1, "/none"),
        ],
    );
}

#[test]
fn keys_of_the_dns_server_in_a_shared_file_are_skipped() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "[logs]\nquery-log = \"q\"\nquery-log-format = \"json\"\nquery-log-sample = 9\n\
                dnstap = \"unix:/tap\"\n[[web]]\nroot = \"/none\"\n[[dns]]\nzones = [\"z\"]\n";
    std::fs::write(file.path(), text).unwrap();
    let serve = format!("serve --config {}", file.path().display());
    expect(PROGRAM, &[(&serve, 1, NO_FOLDER)]);
    std::fs::write(file.path(), text.replace("query-log-s", "query-s")).unwrap();
    expect(PROGRAM, &[(&serve, 2, "no key query-sample")]);
}

#[test]
fn the_congestion_control_is_cubic_unless_another_is_named() {
    expect(
        PROGRAM,
        &[
            ("serve --help", 0, "[default: cubic]"),
            ("serve /none --congestion cubic", 1, NO_FOLDER),
            ("serve /none --congestion bbr", 1, NO_FOLDER),
            ("serve /none --congestion reno", 1, NO_FOLDER),
            ("serve /none --congestion vegas", 2, "invalid value 'vegas'"),
        ],
    );
}
