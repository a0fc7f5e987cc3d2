//! Tests configuration files on the finished program, which has the keys of both servers.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use testkit::cli::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_storm");

/// Environment variable that makes the test write the committed messages again.
const UPDATE: &str = "MESSAGES";

/// Runs the program in `folder`, and returns its exit status and all that it writes.
fn run_in(folder: &Path, line: &str) -> (i32, String) {
    testkit::cli::run_in(PROGRAM, folder, line)
}

/// Replaces the default memory of a site, which depends on the machine.
fn without_free_memory(messages: &str) -> String {
    let lines = messages.lines().map(|line| match line.split_once("; ") {
        Some((start, rest)) if start.starts_with("memory: at most ") => {
            format!("memory: at most SIZE; {rest}\n")
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// `tests/config/broken.txt` has broken files. A line `== NAME` begins a file. Its messages follow
/// after a line `--`. `MESSAGES=update` writes the messages again.
#[test]
fn each_broken_file_gets_its_messages() {
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/broken.txt");
    let cases = fs::read_to_string(&snapshot).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A check as root warns of what the server's user cannot read.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(folder.path().join("www/index.html"), "hi").unwrap();
    let mut new = String::new();
    let mut count = 0;
    for case in cases.split("== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (file, _) = rest.split_once("--\n").unwrap();
        fs::write(folder.path().join("f"), file).unwrap();
        let (status, messages) = run_in(folder.path(), "check --config f");
        assert_eq!(status, 1, "{name}: {messages}");
        let messages = without_free_memory(&messages);
        write!(new, "== {name}\n{file}--\n{messages}").unwrap();
        count += 1;
    }
    assert!(count >= 60, "{count} files");
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&snapshot, new).unwrap();
    } else {
        assert_eq!(cases, new, "{UPDATE}=update accepts the new messages");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("text", &b"[web]\nr = \xff"[..]), ("empty", b"")] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    for (line, message) in [
        (
            "check --config none",
            "cannot read none: No such file or directory (os error 2); --config takes the path of a \
             TOML file",
        ),
        (
            "check --config .",
            "cannot read .: it is a folder, not a file; --config takes",
        ),
        (
            "check --config text",
            "text:2:5: this character is not UTF-8; save the file as UTF-8",
        ),
        (
            "check --config empty",
            "empty:1:1: there is no [[web]] with the key root",
        ),
    ] {
        let (status, written) = run_in(folder.path(), line);
        assert_eq!(status, 1, "{line}: {written}");
        assert!(written.contains(message), "{line}: {written}");
    }
}

/// Returns a value of the same kind that is not the default.
fn other_value(key: &str, value: &str) -> String {
    let other = match (key, value) {
        (_, "false") => "true",
        ("device", _) => "\"tap:storm0\"",
        ("wait", _) => "\"spin\"",
        ("when-full", _) => "\"refuse\"",
        ("syn-cookies", _) => "\"always\"",
        ("min-rate", _) => "\"17 kB\"",
        ("sandbox", _) => "\"required\"",
        ("access-log-format" | "query-log-format" | "log-format", _) => "\"json\"",
        ("log", _) => "\"info\"",
        ("mode", _) => "\"pre-copy\"",
        ("compress", _) => "\"best\"",
        ("follow-links", _) => "\"all\"",
        ("congestion", _) => "\"bbr\"",
        ("hash", _) => "\"fqdn\"",
        _ => match value.parse::<u64>() {
            Ok(number) => return (number + 1).to_string(),
            // The other values of the example differ from the defaults.
            Err(_) => value,
        },
    };
    other.to_owned()
}

/// Returns the section, the key, the value and the comment of each key in a file.
fn keys_of(file: &str) -> Vec<(String, String, String, String)> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in file.lines() {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        } else if let Some((key, rest)) = line.split_once(" =") {
            let (value, comment) = rest.split_once(" # ").unwrap_or((rest, ""));
            let texts = [&section, key, value.trim(), comment].map(str::to_owned);
            keys.push(texts.into());
        }
    }
    keys
}

/// Each key has an effect on what holds: the file has another value than the default.
#[test]
fn every_key_of_the_example_can_be_set() {
    let (status, example) = run(PROGRAM, "config example");
    assert_eq!(status, 0, "{example}");
    let is_key = |name: &str| {
        let is_part = |c: u8| c.is_ascii_lowercase() || c == b'-' || c.is_ascii_digit();
        name.bytes().all(is_part)
    };
    let set = example.lines().map(|line| {
        let key = line
            .strip_prefix('#')
            .and_then(|line| line.split_once(" = "));
        match key.filter(|(name, _)| is_key(name)) {
            Some((name, rest)) => {
                let value = rest.split("  # ").next().unwrap();
                format!("{name} = {}\n", other_value(name, value))
            }
            None => format!("{line}\n"),
        }
    });
    let set: String = set.collect();
    let folder = tempfile::tempdir().unwrap();
    let show = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        let (status, shown) = run_in(folder.path(), &format!("config show --config {name}"));
        assert_eq!(status, 0, "{shown}");
        shown
    };
    let shown = show("all.toml", &set);
    let without = keys_of(&show("least.toml", "[[web]]\nroot = \"www\"\n"));
    let keys = keys_of(&shown);
    assert!(keys.len() > 70, "{} keys", keys.len());
    assert_eq!(keys.len(), keys_of(&set).len());
    for (section, key, value, origin) in &keys {
        assert!(origin.starts_with("all.toml:"), "{section} {key}: {shown}");
        let is_default = without.iter().any(|one| {
            let (of, name) = (&one.0, one.1.trim_start_matches('#'));
            of == section && name == key && one.2 == *value
        });
        assert!(!is_default, "{section} {key} = {value} is the default");
    }
    // What `config show` prints is a file with the same meaning.
    let again = keys_of(&show("again.toml", &shown));
    let values = |keys: Vec<(String, String, String, String)>| {
        let values = keys
            .into_iter()
            .map(|(section, key, value, _)| [section, key, value]);
        values.collect::<Vec<_>>()
    };
    assert_eq!(values(again), values(keys));
}

/// Without the quotes, the file that `config show` prints would be wrong.
#[test]
fn a_text_of_digits_is_shown_in_quotes() {
    let line = "config show --web 8 --zone 3 --nsid 7 --query-log 2 --workers 1";
    let (status, shown) = run(PROGRAM, line);
    assert_eq!(status, 0, "{shown}");
    let expected = [
        "root = \"8\"",
        "zones = [\"3\"]",
        "nsid = \"7\"",
        "query-log = \"2\"",
        "workers = 1",
    ];
    for one in expected {
        assert!(shown.contains(&format!("{one} ")), "{one}: {shown}");
    }
}

/// Checks that run after parsing know only options. Their messages name the key and its place.
#[test]
fn a_later_check_names_the_key_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "hi").unwrap();
    let zone = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
    fs::write(folder.path().join("a.test.zone"), zone).unwrap();
    let file = "[privileges]\nuser = \"nobody\"\n[[web]]\nroot = \".\"\nport = 53\n\
                [[dns]]\nzones = [\"a.test.zone\"]\nstrict = true\n";
    let run = |file: &str, line: &str| {
        fs::write(folder.path().join("f.toml"), file).unwrap();
        run_in(folder.path(), line)
    };
    let (status, written) = run(file, "serve --config f.toml");
    assert_eq!(status, 2, "{written}");
    let expected =
        "storm: sandstorm (port (f.toml:5:1)) and namestorm (--dns-port) both have TCP port 53";
    assert!(written.contains(expected), "{written}");
    let (status, written) = run(file, "serve --config f.toml --port 53");
    assert_eq!(status, 2, "{written}");
    assert!(written.contains("sandstorm (--port) and"), "{written}");
    let file = file.replace("nobody", "no-such-user");
    let (status, written) = run(&file, "check --config f.toml");
    assert_eq!(status, 1, "{written}");
    let expected = "name one that exists; user (f.toml:2:1) takes names, not numbers";
    assert!(written.contains(expected), "{written}");
    let logs = format!("{file}[logs]\nquery-log-sample = 9\n");
    let (status, written) = run(&logs, "check --config f.toml");
    assert_eq!(status, 1, "{written}");
    let expected = "query-log-sample (f.toml:10:1) has no effect without --query-log";
    assert!(written.contains(expected), "{written}");
    let file = file.replace("zones = [", "zones = [\"none.zone\", ");
    let (status, written) = run(&file, "check --config f.toml");
    assert_eq!(status, 1, "{written}");
    assert!(written.contains("strict (f.toml:8:1)"), "{written}");
}

/// A wrong zone does not hide what is wrong with the other options of the DNS server, and each error is
/// told once.
#[test]
fn a_check_tells_all_errors_of_the_dns_server() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "hi").unwrap();
    fs::write(folder.path().join("a.test.zone"), "nonsense\n").unwrap();
    let line = "check --web . --zone a.test.zone --cookie-secret none --tsig-keys none \
                --notify 192.0.2.1 --notify 192.0.2.1";
    let (status, written) = run_in(folder.path(), line);
    assert_eq!(status, 1, "{written}");
    for expected in [
        "a.test.zone:1:",
        "the cookie secrets none",
        "the TSIG keys none",
        "--notify has 192.0.2.1:53 twice",
    ] {
        assert_eq!(
            written.matches(expected).count(),
            1,
            "{expected}:\n{written}"
        );
    }
}

/// A file with a mistake for each check that runs after parsing, and the files that it names.
const MISTAKES: &str = r#"[network]
device = "tap:t0"
addresses = ["192.0.2.1/24", "192.0.2.1/25", "192.0.2.2/24", "192.0.2.2/24"]
[privileges]
user = "no-such-user"
[logs]
access-log = "nodir/access.log"
query-log = "dangling"
dnstap = "nodir/tap"
[metrics]
listen = "unix:nodir/metrics.sock"
[control]
socket = "nodir/control.sock"
[diagnosis]
pcap = "nodir/pcap"
[[web]]
root = "www"
addresses = ["192.0.2.7", "192.0.2.8"]
basic-auth = ["/a=users", "/b=nousers"]
basic-auth-realm = ["/c=text"]
etag-key = "etag"
compress-cache = "nodir"
[[web]]
root = "none"
addresses = ["192.0.2.9"]
access-log = "nodir/other.log"
congestion = "bbr"
[[web]]
root = "www"
port = 53
addresses = ["192.0.2.1"]
[[dns]]
zones = ["good.zone", "bad.zone", "none.zone"]
zones-from = ["nodir/*.zone", "*.none"]
cookie-secret = "cookies"
tsig-keys = "keys"
notify = ["192.0.2.53 k1", "192.0.2.53 k2", "192.0.2.54 k3"]
allow-transfers = ["192.0.2.53 k4", "192.0.2.53 k5"]
edns-sizes = ["1232", "1400", "192.0.2.0/24=1000", "192.0.2.0/24=1001"]
"#;

/// What a check says of [`MISTAKES`], each once.
const TOLD: [&str; 39] = [
    "sandstorm (port (f:30:1)) and namestorm (--dns-port) both have TCP port 53",
    "f:3:30: addresses (f:3:1) 192.0.2.1 is given twice",
    "f:3:62: addresses (f:3:1) 192.0.2.2 is given twice",
    "there is no user \"no-such-user\"",
    "f:7:14: access log: nodir/access.log: No such file",
    "f:26:14: access log: nodir/other.log: No such file",
    "f:8:13: query log: dangling: it is a symbolic link to a file that does not exist",
    "f:9:10: dnstap: nodir/tap: No such file",
    "listen (f:11:1) unix:nodir/metrics.sock: No such file",
    "socket (f:13:1) nodir/control.sock: No such file",
    "f:15:8: cannot write the capture file nodir/pcap",
    "f:18:14: the site www is to be served on 192.0.2.7",
    "f:18:27: the site www is to be served on 192.0.2.8",
    "f:25:14: the site none is to be served on 192.0.2.9",
    "f:19:15: users has 2 mistakes",
    "line 1, column 1: there is no colon",
    "line 3, column 5: the hash is neither",
    "f:19:27: nousers cannot be read",
    "f:20:21: basic-auth-realm (f:20:1) names /c",
    "f:21:12: etag has 3 bytes",
    "f:22:18: cannot keep compressed files in nodir",
    "f:24:8: there is no folder none",
    "congestion (f:27:1) must be the same",
    "bad.zone:3:8: ADDRESS must be",
    "bad.zone:4:8: ADDRESS must be",
    "none.zone: cannot read the file, which f:33:35 names",
    "f:34:15: no zone file matches nodir/*.zone",
    "f:34:31: no zone file matches *.none",
    "f:35:17: the cookie secrets cookies have 2 mistakes",
    "line 1, column 2: write 32 hexadecimal digits",
    "line 2, column 5: write 32 hexadecimal digits",
    "f:37:28: notify (f:37:1) has 192.0.2.53:53 twice",
    "f:37:11: notify (f:37:1) names the key k1.",
    "f:37:28: notify (f:37:1) names the key k2.",
    "f:37:45: notify (f:37:1) names the key k3.",
    "f:38:20: allow-transfers (f:38:1) names the key k4.",
    "f:38:37: allow-transfers (f:38:1) names the key k5.",
    "f:39:23: edns-sizes (f:39:1) gives two sizes for all clients",
    "f:39:52: edns-sizes (f:39:1) gives two sizes for 192.0.2.0/24",
];

/// One run of `check` says all that is wrong, with the place of each mistake.
#[test]
fn a_check_tells_everything_that_is_wrong_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("www")).unwrap();
    let soa = "@ 60 SOA a a 1 1 1 1 1\n@ 60 NS a\n";
    let key = |name: &str, algorithm: &str| {
        format!("key {name} {{ algorithm {algorithm}; secret AAAA; }};\n")
    };
    for (name, text) in [
        ("www/index.html", "hi"),
        ("users", "ali\n\nbob:sesame\n"),
        ("etag", "abc\n"),
        ("cookies", "0z\n0123\n"),
        ("keys", &key("c", "hmac-sha256")),
        ("good.zone", &format!("{soa}a 60 A 192.0.2.1\n")),
        ("bad.zone", &format!("{soa}a 60 A x\nb 60 A y\n")),
        ("f", MISTAKES),
    ] {
        fs::write(at(name), text).unwrap();
    }
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    let (status, told) = run_in(folder.path(), "check --config f");
    assert_eq!(status, 1, "{told}");
    for expected in TOLD {
        assert_eq!(told.matches(expected).count(), 1, "{expected}:\n{told}");
    }
    fs::write(at("keys"), key("c", "hmac-md5") + &key("d", "x")).unwrap();
    let (_, told) = run_in(folder.path(), "check --config f");
    for expected in [
        "f:36:13: the TSIG keys keys have 2 mistakes",
        "line 1, column 19: hmac-md5 stands where one of hmac-sha1",
        "line 2, column 19: another word stands where one of",
    ] {
        assert_eq!(told.matches(expected).count(), 1, "{expected}:\n{told}");
    }
}

/// A server whose file is wrong ends with the status that keeps a service manager from starting it
/// again.
#[test]
fn a_broken_file_ends_a_server_with_status_2() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "[netwrk]\n").unwrap();
    assert_eq!(run_in(folder.path(), "serve --config f").0, 2);
    assert_eq!(run_in(folder.path(), "check --config f").0, 1);
}

#[test]
fn the_command_line_overrides_the_file_and_the_file_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[network]\nworkers = 2\naddresses = [\"192.0.2.1/24\"]\nbatch = 7\n\
                [privileges]\nsandbox = \"required\"\n\
                [[web]]\nroot = \"a\"\nport = 81\nstrict = true\n[control]\nwatch = true\n[[dns]]\nport = 54\nzones = [\"a\", \"b\"]\n";
    fs::write(folder.path().join("f.toml"), file).unwrap();
    let line = "config show --config f.toml --workers 3 --address 192.0.2.2/24 --sandbox off --web b --watch=false";
    let (status, shown) = run_in(folder.path(), line);
    assert_eq!(status, 0, "{shown}");
    for expected in [
        "workers = 3 # command line",
        "addresses = [\"192.0.2.2/24\"] # command line",
        "batch = 7 # f.toml:4:1",
        "wait = \"adaptive\" # default",
        "sandbox = \"off\" # command line",
        "root = \"b\" # command line",
        "port = 81 # f.toml:9:1",
        "port = 54 # f.toml:14:1",
        "zones = [\"a\", \"b\"] # f.toml:15:1",
        "#user = # not set: the program's user or nobody, if root starts the server",
        "when-full = \"evict\" # default",
        "#max-connections = # defaults: 65536 in sandstorm, 16384 in namestorm",
        "#max-per-address = # not set: no limit",
        "socket = \"/run/storm/control.sock\" # default",
        "strict = true # f.toml:10:1",
        "watch = false # command line",
        "#memory = # not set: half of the free memory",
        "#edns-sizes = # not set: 1232",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.lines().any(|line| words(line) == expected),
            "{expected}: {shown}"
        );
    }
    assert!(!shown.contains("the program's default"), "{shown}");
}
