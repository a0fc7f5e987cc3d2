//! Tests that one run of `check` tells all that is wrong, with the right places and remedies.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use testkit::cli::run_in;

const PROGRAM: &str = env!("CARGO_BIN_EXE_storm");

/// Makes a folder with a site in `www`, a zone in `a.test.zone`, and the configuration file `f`.
fn content(file: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let zone = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
    fs::create_dir(folder.path().join("www")).unwrap();
    write(&folder, "www/index.html", "hi");
    write(&folder, "a.test.zone", zone);
    write(&folder, "f", file);
    folder
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether this process may do everything. Files that it makes then belong to root.
fn is_root(folder: &tempfile::TempDir) -> bool {
    fs::metadata(folder.path()).is_ok_and(|found| found.uid() == 0)
}

fn write(folder: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), text).unwrap();
}

/// Runs `check --config f`. Returns the exit status and all that it says.
fn check(folder: &tempfile::TempDir) -> (i32, String) {
    run_in(PROGRAM, folder.path(), "check --config f")
}

/// Returns a command that runs the program as another user than root.
fn as_nobody(folder: &tempfile::TempDir) -> Command {
    // The program may be where others cannot run it. If this process wrote the copy, children of other tests could
    // hold it open while it is started.
    let copy = folder.path().join("storm");
    let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status();
    assert!(copied.unwrap().success());
    set_mode(&copy, 0o755);
    let mut command = Command::new(copy);
    command.uid(65_534);
    command
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
                "left out: \"www/_redirects\" line 1, column 10: ",
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

#[test]
fn a_check_describes_the_defence_that_the_server_would_have() {
    let web =
        "[[web]]\nroot = \"www\"\n[[dns]]\nzones = [\"a.test.zone\"]\ncookie-secret = \"secret\"\n";
    let on = |device: &str| format!("[network]\ndevice = \"{device}\"\n{web}");
    let folder = content(&on("tap:tap0"));
    write(&folder, "secret", "00112233445566778899aabbccddeeff\n");
    let (status, told) = check(&folder);
    assert_eq!(status, 0, "{told}");
    says(
        &told,
        &[
            "rate limit: 1,000/s to each /24",
            "cookies: 1 secret from secret",
        ],
    );
    write(&folder, "f", on("auto"));
    let (status, told) = check(&folder);
    assert_eq!(status, 0, "{told}");
    says(&told, &["rate limit: none"]);
    // Nothing is said of a defence that cannot be set up.
    for (device, secret) in [
        ("tap:a/b", "00112233445566778899aabbccddeeff"),
        ("auto", "x"),
    ] {
        write(&folder, "f", on(device));
        write(&folder, "secret", secret);
        let (status, told) = check(&folder);
        assert_eq!(status, 1, "{told}");
        assert!(
            !told.contains("rate limit:") && !told.contains("cookies:"),
            "{told}"
        );
        says(&told, &["zones: 1"]);
    }
}

/// Sites without a folder, zones, the network and logs are checked all the same.
#[test]
fn a_missing_folder_hides_no_other_mistake() {
    let folder = content(
        "[privileges]\nuser = \"no-user\"\n[logs]\nquery-log = \"none/log\"\n\
         [[web]]\nport = 53\nredirects = [\"/a\"]\n\
         [[web]]\nroot = 2026-01-01\nport = 81\nhosts = [\"a.test\"]\n\
         [[web]]\nroot = \"www\"\nport = 81\nhosts = [\"a.test\"]\n\
         [[dns]]\nzones = [\"a.test.zone\", \"none.zone\"]\n",
    );
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "f:5:1: [[web]] has no key root, which it needs",
            "f:7:17: redirects is wrong",
            "f:9:8: root must be a text",
            "files: 1, 2 B, from www",
            "there is no user \"no-user\"",
            "f:4:13: query log: none/log: No such file",
            "sandstorm (port (f:6:1)) and namestorm (--dns-port) both have TCP port 53",
            "the host a.test leads to [[web]] (f:11:10) and to www (f:15:10)",
            "none.zone: cannot read the file, which f:17:25 names",
        ],
    );
    let folder = content("[[dns]]\nzones = [\"none.zone\"]\nport = 80\n");
    let (_, told) = check(&folder);
    says(
        &told,
        &[
            "there is no [[web]] with the key root",
            "none.zone: cannot read",
        ],
    );
    assert!(!told.contains("both have"), "{told}");
}

/// A wrong value is replaced by the default. Nothing is concluded from that.
#[test]
fn nothing_is_concluded_from_what_is_wrong() {
    let folder = content(
        "[network]\naddresses = [\"192.0.2.1/24\", \"192.0.2.9\"]\n\
         [connections]\nmin-rat = 1\n\
         [logs]\nquery-log = true\nquery-log-sample = 9\nquery-log-format = \"json\"\n\
         access-log = true\naccess-log-format = \"json\"\n\
         [[web]]\nroot = \"www\"\nport = 99999\ncongestion = \"bbr\"\n\
         [[web]]\nroot = \"www\"\naddresses = [\"192.0.2.9\"]\nport = 82\ncongestion = \"bbr\"\n\
         [[web]]\nroot = \"www\"\nprot = 81\ncongestion = \"x\"\n\
         [[web]]\nroot = \"www\"\nhosts = [\"a..b\"]\ncongestion = \"bbr\"\n\
         basic-auth = [\"x\"]\nbasic-auth-realm = [\"/c=text\"]\n\
         [[web]]\nroot = \"www\"\nhosts = [\"a.test\"]\nmin-rate = 2\ncongestion = \"bbr\"\n\
         [[dns]]\nport = 0\nzones-from = [\"***\"]\ntsig-keys = true\nnotify = [\"192.0.2.53 k\"]\n",
    );
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    for untrue in [
        "both have TCP port",
        "is not an address of the server",
        "must be the same",
        "have the same limits",
        "has no effect without",
        "names /c",
        "names the key",
        "no zone is given",
        "leads to",
    ] {
        assert!(!told.contains(untrue), "{untrue}:\n{told}");
    }
    says(&told, &["f:37:15: zones-from is wrong"]);
}

/// Equal values of several options have places of their own, and so have keys of several sites.
#[test]
fn each_mistake_has_its_own_place() {
    let folder = content(
        "[[dns]]\nzones = [\"none\"]\ncookie-secret = \"none\"\ntsig-keys = \"none\"\n\
         [[web]]\nroot = \"www\"\netag-key = \"none\"\n\
         basic-auth = [\"/a=none\"]\nbasic-auth-realm = [\"/b=text\"]\n\
         [[web]]\nroot = \"www\"\nport = 81\n\
         basic-auth = [\"/a=none\"]\nbasic-auth-realm = [\n  \"/a=text\",\n  \"/b=text\",\n]\n\
         [[web]]\nroot = \"none\"\nport = 82\nhosts = [\"A.test\"]\n\
         redirect-hosts = [\"b.test=https://c\", \"a.test=https://b\"]\n",
    );
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "none: cannot read the file, which f:2:10 names",
            "f:3:17: the cookie secrets none",
            "f:4:13: the TSIG keys none",
            "f:7:12: none cannot be read",
            "f:8:15: none cannot be read",
            "f:9:21: basic-auth-realm (f:9:1) names /b, but basic-auth (f:8:1) does not",
            "f:13:15: none cannot be read",
            "f:16:3: basic-auth-realm (f:14:1) names /b, but basic-auth (f:13:1) does not",
            "f:19:8: there is no folder none",
            "f:22:39: hosts (f:21:1) a.test and redirect-hosts (f:22:1) a.test=https://b contradict",
        ],
    );
    let folder = content(
        "[network]\naddresses = [\n\"192.0.2.1/24\",\n\"192.0.2.1/24\",\n\"192.0.2.1/16\",\n]\n\
         [[web]]\nroot = \"www\"\n[[dns]]\nzones = [\"a.test.zone\"]\n",
    );
    let (_, told) = check(&folder);
    says(&told, &["f:4:1: ", "f:5:1: "]);
}

/// Each folder that cannot be searched is told with the pattern that leads there.
#[test]
fn all_folders_that_cannot_be_searched_are_told_with_their_pattern() {
    let file = "[[web]]\nroot = \"www\"\n[[dns]]\nzones-from = [\"*.zone\", \"closed*/*\"]\n";
    let folder = content(file);
    for name in ["closed1", "closed2"] {
        let closed = folder.path().join(name);
        fs::create_dir(&closed).unwrap();
        set_mode(&closed, 0o000);
    }
    // Root may search all folders.
    let mut command = if is_root(&folder) {
        as_nobody(&folder)
    } else {
        Command::new(PROGRAM)
    };
    command.args(["check", "--config", "f"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    for name in ["closed1", "closed2"] {
        // The folder can be removed again.
        set_mode(&folder.path().join(name), 0o700);
    }
    let told = String::from_utf8(output.stderr).unwrap();
    says(
        &told,
        &[
            "f:4:25: cannot read closed1: Permission denied",
            "f:4:25: cannot read closed2: Permission denied",
        ],
    );
}

#[test]
fn a_mistake_on_the_command_line_hides_none_of_the_file() {
    let folder = content("[network]\nworkers = 0\n[[web]]\nroot = \"www\"\n");
    let run = |line: &str| run_in(PROGRAM, folder.path(), line);
    for (line, mistake) in [
        ("check --config f --bogus", "unexpected argument '--bogus'"),
        ("check --bogus --config f", "unexpected argument '--bogus'"),
        (
            "check --port x --config=f",
            "invalid value 'x' for '--port <N>'",
        ),
        (
            "serve --port x --config=f",
            "invalid value 'x' for '--port <N>'",
        ),
    ] {
        let (status, told) = run(line);
        assert_eq!(status, 2, "{line}: {told}");
        says(&told, &["f:2:11: workers is wrong", mistake]);
    }
    let (status, told) = run("check --config f --help");
    assert_eq!(status, 0, "{told}");
    write(&folder, "f", "[network\n");
    let (status, told) = run("check --config f --bogus");
    assert_eq!(status, 2, "{told}");
    says(&told, &["f:1:9: ", "unexpected argument '--bogus'"]);
    for (line, mistake) in [
        ("check --config", "a value is required for '--config <"),
        ("check --config --bogus", "unexpected argument '--bogus'"),
    ] {
        let (status, told) = run(line);
        assert_eq!(status, 2, "{line}: {told}");
        says(&told, &[mistake]);
        assert!(!told.contains("cannot read"), "{line}: {told}");
    }
}

/// What stands on the command line cannot belong to all sites, but a request for help comes first.
#[test]
fn a_folder_on_the_command_line_hides_no_help_and_no_mistake() {
    let folder = content("[[web]]\nroot = \"www\"\n[[web]]\nroot = \"www\"\nport = 81\n");
    let run = |line: &str| run_in(PROGRAM, folder.path(), line);
    let (status, told) = run("serve --config f --web www --help");
    assert_eq!(status, 0, "{told}");
    let (status, told) = run("check --config f --web www --bogus");
    assert_eq!(status, 2, "{told}");
    says(
        &told,
        &["so root cannot be", "unexpected argument '--bogus'"],
    );
}

/// Links to secrets show only when the folder is loaded, which then begins again without the secrets.
#[test]
fn secrets_in_the_folder_are_told_with_all_else_and_nothing_twice() {
    let file = "[[web]]\nroot = \"www\"\netag-key = \"key\"\nbasic-auth = [\"/=users\", \"/a=users2\"]\n\
                [[dns]]\nzones = [\"a.test.zone\"]\n";
    let folder = content(file);
    let at = |name: &str| folder.path().join(name);
    let hash = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
    for name in ["users", "users2"] {
        write(&folder, name, format!("ali:{hash}\n"));
    }
    write(&folder, "key", [7; 32]);
    for name in ["key", "users", "users2"] {
        fs::hard_link(at(name), at("www").join(name)).unwrap();
    }
    write(&folder, "www/_redirects", "/a /none 999\n");
    symlink("nowhere", at("www/link")).unwrap();
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "f:3:12: key is www/key too, which is in the served folder",
            "f:4:15: users is www/users too, which is in the served folder",
            "f:4:26: users2 is www/users2 too, which is in the served folder",
            "left out: \"www/_redirects\" line 1, column 10: ",
            "left out: \"www/link\" is a link to ",
        ],
    );
}

/// A server that root has started warns of the same files, in the same words.
#[test]
fn files_that_the_servers_user_cannot_read_are_told() {
    let file = "[privileges]\nuser = \"USER\"\n\
                [[web]]\nroot = \"www\"\nbasic-auth = [\"/=users\"]\n\
                [[web]]\nroot = \"www\"\nport = 81\nbasic-auth = [\"/=users\"]\netag-key = \"none\"\n\
                [[dns]]\nzones = [\"a.test.zone\"]\ntsig-keys = \"wrong\"\n";
    let folder = content(&file.replace("USER", "nobody"));
    if !is_root(&folder) {
        return;
    }
    let hash = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
    write(&folder, "users", format!("ali:{hash}\n"));
    write(&folder, "wrong", "x");
    write(&folder, "www/open.html", "open");
    let at = |name: &str| folder.path().join(name);
    let (_, told) = check(&folder);
    assert!(!told.contains("cannot read these files"), "{told}");
    assert!(!told.contains("cannot read them"), "{told}");
    for name in ["www/index.html", "a.test.zone", "users", "wrong"] {
        set_mode(&at(name), 0o600);
    }
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "these files are served, although the server's user cannot read them: a.test.zone, www/index.html; ",
            "reloads will fail, because the server's user cannot read these files: users, wrong; ",
        ],
    );
    assert_eq!(
        told.matches("its user is then nobody (uid ").count(),
        2,
        "{told}"
    );
    // Without its capabilities, root may not read the files of others.
    for name in ["users", "www/index.html"] {
        std::os::unix::fs::chown(at(name), Some(65_534), None).unwrap();
    }
    write(&folder, "f", file.replace("USER", "root"));
    let (_, told) = check(&folder);
    says(
        &told,
        &[
            "the server's user cannot read them: www/index.html; ",
            "cannot read these files: users; ",
        ],
    );
    // A user that stays the same has its own errors.
    write(
        &folder,
        "f",
        file.replace("[privileges]\nuser = \"USER\"\n", ""),
    );
    let mut command = as_nobody(&folder);
    command.args(["check", "--config", "f"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    says(&told, &["a.test.zone: cannot read the file"]);
    assert!(!told.contains("the server's user cannot"), "{told}");
    // Nothing is known of a user that is wrong.
    for (right, wrong) in [("\"root\"", "1"), ("root\"", "no-user\"")] {
        write(
            &folder,
            "f",
            file.replace("USER", "root").replacen(right, wrong, 1),
        );
        let (_, told) = check(&folder);
        assert!(!told.contains("the server's user cannot"), "{told}");
    }
}

/// A folder that is not there hides no mistake in a file with users or a key. A file with rules that cannot be read
/// hides none in the other one, and none in the folder.
#[test]
fn what_cannot_be_read_hides_nothing_else_of_a_site() {
    let file = "[[web]]\nroot = \"none\"\netag-key = \"key\"\nbasic-auth = [\"/a=users\", \"/b=users\"]\n\
                basic-auth-realm = [\"/c=text\"]\n\
                [[web]]\nroot = \"www\"\nport = 81\nstrict = true\n\
                [[dns]]\nzones = [\"a.test.zone\"]\n";
    let folder = content(file);
    write(&folder, "key", "short");
    write(&folder, "users", "ali:\nbob\n");
    write(&folder, "www/_redirects", b"/\xe4 /b\n");
    fs::create_dir(folder.path().join("www/_headers")).unwrap();
    symlink("nowhere", folder.path().join("www/link")).unwrap();
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "f:2:8: there is no folder none",
            "f:3:12: key has 5 bytes",
            "f:4:15: users has 2 mistakes",
            "f:5:21: basic-auth-realm (f:5:1) names /c",
            "f:7:8: www/_redirects is not UTF-8 in line 1, column 2, so no rule is used",
            "f:7:8: www/_headers is a folder, so no rule is used",
            "\"www/link\" is a link to ",
        ],
    );
}

/// Whether somebody reads a pipe shows only when it is opened, and that would give its reader an end.
#[test]
fn a_pipe_as_a_log_is_told() {
    let file = "[logs]\naccess-log = \"pipe\"\nquery-log = \"pipe2\"\n\
                [[web]]\nroot = \"www\"\n[[web]]\nroot = \"www\"\nport = 81\n\
                [[dns]]\nzones = [\"a.test.zone\"]\n";
    let folder = content(file);
    for name in ["pipe", "pipe2"] {
        let path = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let (status, told) = check(&folder);
    assert_eq!(status, 0, "{told}");
    says(
        &told,
        &[
            "f:2:14: access log: pipe is a pipe; its reader must run before the server",
            "f:3:13: query log: pipe2 is a pipe; its reader must run before the server",
        ],
    );
}

#[test]
fn a_key_or_a_section_that_stands_there_twice_hides_no_other_mistake() {
    let file = "[network]\naddresses = [\"192.0.2.1/24\"]\n[privileges]\nuser = \"no-user\"\n\
                [network]\naddresses = [\"192.0.2.2/24\"]\n\
                [[web]]\nroot = \"www\"\nport = 80\nport = 81\naddresses = [\"192.0.2.2\"]\nprot = 1\n\
                [[web]]\nroot = \"www\"\n\
                [[dns]]\nzones = [\"none.zone\"]\n";
    let folder = content(file);
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "f:5:2: network stands here twice",
            "f:10:1: port stands here twice",
            "f:12:1: [[web]] has no key prot",
            "there is no user \"no-user\"",
            "none.zone: cannot read the file",
        ],
    );
    for untrue in ["both have TCP port", "is not an address of the server"] {
        assert!(!told.contains(untrue), "{untrue}:\n{told}");
    }
    let file =
        "[[web]]\nroot = \"www\"\n\"port\" = 53\n'port' = 53\n[[dns]]\nzones = [\"a.test.zone\"]\n";
    let folder = content(file);
    let (_, told) = check(&folder);
    says(&told, &["f:4:1: port stands here twice"]);
    assert!(!told.contains("both have TCP port"), "{told}");
}

/// The sites before it are known.
#[test]
fn a_wrong_element_hides_no_mistake_of_the_sites_before_it() {
    let folder = content("web = [{root = \"www\"}, 5]\ndns = [{zones = [\"none.zone\"]}, 5]\n");
    let (status, told) = check(&folder);
    assert_eq!(status, 1, "{told}");
    says(
        &told,
        &[
            "f:1:24: write [[web]]",
            "f:2:33: write [[dns]]",
            "files: 1, 2 B, from www",
            "none.zone: cannot read the file",
        ],
    );
}

/// What a section or a key in a wrong place says is unknown, but the keys of the first site are known.
#[test]
fn a_misspelt_section_or_key_hides_no_mistake_of_the_first_site() {
    for (file, misspelt) in [
        (
            "[[web]]\nroot = \"none\"\n[web2]\nport = 81\n",
            "f:3:2: there is no section web2",
        ),
        (
            "[web2]\n[[web]]\nroot = \"none\"\n",
            "f:1:2: there is no section web2",
        ),
        (
            "root = \"www\"\n[[web]]\nroot = \"none\"\n",
            "f:1:1: root belongs to the section [[web]]",
        ),
        (
            "[[web]]\nroot = \"none\"\nrooot = \"www\"\n",
            "f:3:1: [[web]] has no key rooot; root is set already, so leave rooot out",
        ),
    ] {
        let folder = content(&format!("{file}[[dns]]\nzones = [\"a.test.zone\"]\n"));
        let (status, told) = check(&folder);
        assert_eq!(status, 1, "{told}");
        says(&told, &[misspelt, "there is no folder none"]);
    }
}
