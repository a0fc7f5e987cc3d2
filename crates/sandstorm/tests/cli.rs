//! Tests the command line of the finished program.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use testkit::cli::{expect, run};

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
fn options_of_a_site_that_contradict_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "page").unwrap();
    let with = |command: &str, options: &str| {
        let folder = folder.path().display();
        format!("{command} {folder} {options}")
    };
    let pairs = [
        "--basic-auth /a=/none/1 --basic-auth /a=/none/2",
        "--basic-auth-realm /a=1 --basic-auth-realm /a=2",
        "--error-page 404=/page.html --error-page 404=/a%20b",
        "--media-type txt=a/b --media-type txt=c/d",
        "--redirect-host a.test=https://b --redirect-host a.test=https://c",
        "--host a.test --redirect-host a.test=https://b",
    ];
    for pair in pairs {
        let at = pair.rfind(" --").unwrap();
        let message = format!(
            "{} and {} contradict each other; leave one of them out",
            &pair[..at],
            &pair[at + 1..]
        );
        let (serve, check) = (with("serve", pair), with("check", pair));
        expect(PROGRAM, &[(&serve, 2, &message), (&check, 1, &message)]);
    }
    let other_case = "--media-type txt=a/b --media-type TXT=c/d";
    let other_form = "--basic-auth /a=/none/1 --basic-auth /%61/=/none/2";
    expect(
        PROGRAM,
        &[
            (&with("serve", other_case), 2, "contradict each other"),
            (&with("serve", other_form), 2, "contradict each other"),
        ],
    );
    // The same thing twice is no contradiction.
    let twice = "--host a.test --host a.test --media-type txt=a/b --media-type txt=a/b";
    let other = "--etag-key /none";
    expect(
        PROGRAM,
        &[(&with("serve", &format!("{twice} {other}")), 1, "/none")],
    );
}

/// The folder belongs to one site, so a request for help or another mistake must not count as one.
#[test]
fn a_folder_that_is_not_on_the_command_line_is_not_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let text = "[[web]]\nroot = \"a\"\n[[web]]\nroot = \"b\"\nport = 81\n";
    std::fs::write(&file, text).unwrap();
    let with = |command: &str, rest: &str| format!("{command} --config {} {rest}", file.display());
    expect(
        PROGRAM,
        &[
            (&with("serve", "--help"), 0, "Usage:"),
            (&with("check", "--help"), 0, "Usage:"),
            (
                &with("check", "--bogus"),
                2,
                "unexpected argument '--bogus'",
            ),
        ],
    );
    let (_, told) = run(PROGRAM, &with("check", "--bogus"));
    assert!(!told.contains("cannot be on the command line"), "{told}");
}

/// A server opens the device after it has read the content.
#[test]
fn the_log_says_which_compressed_files_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.txt", b"text");
    write("a.txt.gz", b"longer text");
    write("b.txt", b"longer text");
    write("b.txt.gz", b"text");
    write("_headers", b"/b.txt\n  Content-Encoding: x\n");
    let folder = folder.path().display();
    for (command, status) in [
        (format!("serve {folder} --log info --device xdp:none0"), 1),
        (format!("check {folder} --log info"), 0),
    ] {
        let of_a =
            "/a.txt.gz is sent only under its own name, because it is not shorter than the file";
        let of_b = "/b.txt.gz is sent only under its own name, because it is beside a file to which a rule";
        expect(
            PROGRAM,
            &[(&command, status, of_a), (&command, status, of_b)],
        );
    }
}

#[test]
fn a_check_as_root_names_a_page_that_the_servers_user_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("index.html");
    std::fs::write(&page, "page").unwrap();
    let is_root = std::fs::metadata(&page).unwrap().uid() == 0;
    let told = |mode| {
        for path in [folder.path(), &page] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let (status, told) = run(PROGRAM, &format!("check {}", folder.path().display()));
        assert_eq!(status, 0, "{told}");
        told.contains("although the server's user cannot read them: ")
    };
    assert!(!told(0o755));
    // The user of another check stays the same, and has made the file.
    assert_eq!(told(0o700), is_root);
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
