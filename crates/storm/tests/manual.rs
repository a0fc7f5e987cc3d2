//! Tests the manual pages and the shell completions that `storm config manual` writes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::cli;

/// The subcommands with a page of their own.
const PAGES: [&str; 7] = [
    "serve",
    "check",
    "config",
    "config-show",
    "config-example",
    "connections",
    "trace",
];

fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("config manual {}", folder.path().display());
    assert_eq!(
        cli::run(env!("CARGO_BIN_EXE_storm"), &line),
        (0, String::new())
    );
    folder
}

#[test]
fn each_subcommand_has_a_page_and_its_parent_names_it() {
    let folder = written();
    let page = |name: &str| {
        let path = folder.path().join("man1").join(name).with_extension("1");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for name in PAGES {
        let name = format!("storm-{name}");
        let (parent, _) = name.rsplit_once('-').unwrap();
        page(&name);
        // In a page, a hyphen is written with a backslash.
        let reference = format!("{}(1)", name.replace('-', "\\-"));
        assert!(page(parent).contains(&reference), "{reference} in {parent}");
    }
    for option in ["\\-\\-web", "\\-\\-zone", "\\-\\-device"] {
        assert!(page("storm-serve").contains(option), "{option}");
    }
    assert!(!folder.path().join("man1/storm-config-manual.1").exists());
}

#[test]
fn formatters_accept_the_pages() {
    let folder = written();
    for (formatter, arguments) in [
        ("mandoc", &["-T", "lint", "-W", "error"][..]),
        ("groff", &["-man", "-Tutf8", "-ww", "-Wbreak", "-z"]),
    ] {
        if Command::new(formatter)
            .arg("--version")
            .stderr(Stdio::null())
            .output()
            .is_err()
        {
            eprintln!("skip: {formatter} is not installed");
            continue;
        }
        for page in fs::read_dir(folder.path().join("man1")).unwrap() {
            let page = page.unwrap().path();
            let output = Command::new(formatter)
                .args(arguments)
                .arg(&page)
                .output()
                .unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(
                output.status.success() && said.is_empty(),
                "{formatter} {}: {said}",
                page.display()
            );
        }
    }
}

#[test]
fn shells_accept_the_completions() {
    let folder = written();
    let expect_valid =
        |shell: &str, file: &Path| match Command::new(shell).arg("-n").arg(file).output() {
            Err(_) => eprintln!("skip: {shell} is not installed"),
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
        };
    for (shell, file) in [
        ("bash", "storm.bash"),
        ("zsh", "_storm"),
        ("fish", "storm.fish"),
    ] {
        let file = folder.path().join("completions").join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("zones-from"), "{shell}");
        expect_valid(shell, &file);
    }
}
