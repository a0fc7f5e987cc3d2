//! Tests that one run of `check` tells all that is wrong, with the right places and remedies.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::cli::run_in;

const PROGRAM: &str = env!("CARGO_BIN_EXE_storm");

/// Makes a folder with a site in `www`, a zone in `a.test.zone`, and the configuration file `f`.
fn content(file: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let zone = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
    fs::create_dir(folder.path().join("www")).unwrap();
    write(&folder, "www/index.html", "hi");
    write(&folder, "a.test.zone", zone);
    write(&folder, "f", file);
    folder
}

fn write(folder: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

/// Runs `check --config f`. Returns the exit status and all that it says.
fn check(folder: &tempfile::TempDir) -> (i32, String) {
    run_in(PROGRAM, folder.path(), "check --config f")
}

/// Checks that each of these texts is said once.
fn says(told: &str, texts: &[&str]) {
    for text in texts {
        assert_eq!(told.matches(text).count(), 1, "{text}:\n{told}");
    }
}

/// What a check finds are partly warnings of the log.
#[test]
fn the_level_of_the_log_hides_no_finding() {
    let file = "[diagnosis]\nlog = \"off\"\n[metrics]\nlisten = \"unix:none/socket\"\n\
                [[web]]\nroot = \"www\"\nbasic-auth = [\"/none=users\"]\n\
                [[dns]]\nzones = [\"a.test.zone\"]\n";
    for level in ["off", "error", "warn"] {
        let folder = content(&file.replace("off", level));
        let hash = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
        write(&folder, "users", format!("ali:{hash}\n"));
        write(&folder, "www/_redirects", "/a /none 999\n");
        symlink("nowhere", folder.path().join("www/link")).unwrap();
        let (status, told) = check(&folder);
        assert_eq!(status, 0, "{told}");
        says(
            &told,
            &[
                "listen (f:4:1) unix:none/socket: ",
                "left out: \"www/link\" is a link to ",
                "left out: \"www/_redirects\" line 1",
                "basic-auth names /none, but the folder has nothing there",
            ],
        );
    }
}

#[test]
fn a_check_names_all_mistakes_and_a_server_the_first_hundred() {
    let mut file = "[network]\naddresses = [\n".to_owned();
    file += &"  \"x\",\n".repeat(150);
    file += "]\n[[web]]\nroot = \"www\"\n[[dns]]\nzones = [\"a.test.zone\"]\n";
    let folder = content(&file);
    let (_, told) = check(&folder);
    assert_eq!(told.matches("addresses is wrong").count(), 150, "{told}");
    let (status, told) = run_in(PROGRAM, folder.path(), "serve --config f");
    assert_eq!(status, 2, "{told}");
    assert_eq!(told.matches("addresses is wrong").count(), 100, "{told}");
    says(&told, &["f: and 50 more mistakes"]);
    let file = format!(
        "[network]\nworkers = 0\n{}",
        file.replace("[network]\n", "")
    );
    write(&folder, "f", file + "[connections]\nidle-timeout = \"x\"\n");
    let (_, told) = run_in(PROGRAM, folder.path(), "serve --config f");
    says(
        &told,
        &["f:2:11: workers is wrong", "f: and 52 more mistakes"],
    );
}

/// Each of two mistakes is told, and each with its own remedy only.
#[test]
fn no_mistake_hides_another_of_its_option() {
    let folder = content(
        "[privileges]\nuser = \"no-user:no-group\"\n\
         [logs]\nquery-log-sample = 9\nquery-log-format = \"json\"\naccess-log = \"link\"\n\
         [[web]]\nroot = \"www\"\n[[dns]]\nzones = [\"a.test.zone\"]\n",
    );
    symlink("nowhere", folder.path().join("link")).unwrap();
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "there is no user \"no-user\"",
            "there is no group \"no-group\"",
            "query-log-sample (f:4:1) has no effect without",
            "query-log-format (f:5:1) has no effect without",
            "f:6:14: access log: link: it is a symbolic link to a file that does not exist; make that file first\n",
        ],
    );
}
