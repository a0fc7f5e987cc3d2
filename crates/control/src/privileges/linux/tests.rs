use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::sync::LazyLock;

use clap::Parser;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;

use super::*;
use crate::args::ServeArgs;
use crate::content_files::ContentFiles;
use crate::log::{self, LogFormat, LogLevel};
use crate::privileges::reading::Unreadable;
use crate::privileges::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

fn privileges(line: &str) -> Privileges {
    privileges_with(line, Table::for_server(Vec::new(), ContentFiles::default()))
}

fn privileges_with(line: &str, table: Table) -> Privileges {
    let words = std::iter::once("server").chain(line.split_whitespace());
    let plan = Cli::parse_from(words).serve.plan("no-such-user").unwrap();
    plan.privileges(table).unwrap()
}

/// Returns the fields of this thread's status in `/proc` that describe its privileges.
fn status() -> BTreeMap<String, String> {
    const TELLING: [&str; 10] = [
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
    ];
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| TELLING.contains(name))
        .map(|(name, value)| (name.to_owned(), value.trim().replace('\t', " ")))
        .collect()
}

#[test]
fn a_thread_drops_only_its_own_privileges() {
    let before = status();
    std::thread::spawn(|| {
        let root = geteuid().is_root();
        let dropped = privileges("--sandbox off").drop_all(Kind::Worker).unwrap();
        assert_eq!(dropped.missing.is_empty(), root, "{dropped:?}");
        let now = status();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(now[set], "0000000000000000", "{set}");
        }
        assert_eq!(now["NoNewPrivs"], "1");
        if root {
            assert_eq!(now["CapBnd"], "0000000000000000");
            assert_eq!(now["Groups"], "");
            for id in ["Uid", "Gid"] {
                assert_eq!(now[id], "65534 65534 65534 65534", "{id}");
            }
        }
    })
    .join()
    .unwrap();
    assert_eq!(status(), before);
}

#[test]
fn a_missing_limit_is_reported_once_for_all_threads() {
    let lacking = |missing: &[&str]| Dropped {
        user: "somebody".to_owned(),
        missing: missing.iter().map(|&what| what.to_owned()).collect(),
    };
    let mut sum = lacking(&["a"]);
    sum.merge(&lacking(&["a", "b"]));
    assert_eq!(sum.missing, ["a", "b"]);
    let lines = privileges("--sandbox off").lines(sum.clone());
    let off = "off by option; no thread has a capability";
    let [user, missing] = [("user", "somebody"), ("sandbox lacks", "a")];
    let expected = [user, ("sandbox", off), missing, ("sandbox lacks", "b")];
    assert_eq!(lines, expected.map(|(name, text)| (name, text.to_owned())));
    let sandbox = &privileges("").lines(sum)[1].1;
    assert!(sandbox.contains("Landlock: no file access"), "{sandbox}");
}

#[test]
fn the_start_block_counts_the_system_calls_of_each_list() {
    let lines = privileges("").lines(Dropped::default());
    let [workers, control] =
        [Kind::Worker, Kind::Control].map(|kind| calls::system_calls(kind).count());
    let expected = format!(
        "no thread has a capability; Landlock: no file access; seccomp: {workers} system calls for \
         workers, {control} for the control thread"
    );
    assert_eq!(lines[1], ("sandbox", expected));
}

#[test]
fn the_privilege_lines_of_workers_claim_nothing_about_other_threads() {
    let sandbox = |line| {
        let privileges = privileges_with(line, Table::for_embedded());
        privileges.lines(Dropped::default()).remove(1).1
    };
    assert_eq!(
        sandbox("--sandbox off"),
        "off by option; no worker has a capability"
    );
    let on = sandbox("");
    assert!(
        on.ends_with("other threads of this process keep their privileges"),
        "{on}"
    );
}

#[test]
fn a_thread_that_cannot_change_its_user_reports_or_fails() {
    if !geteuid().is_root() {
        return;
    }
    std::thread::spawn(|| {
        let lenient = privileges("--sandbox off");
        let with_user = privileges("--sandbox off --user nobody");
        let mut required = privileges("--sandbox off");
        required.plan.sandbox = Sandbox::Required;
        assert_eq!(required.drop_all(Kind::Worker).unwrap().missing, [""; 0]);
        // The thread's user is now `nobody`, who cannot switch to another user.
        let dropped = lenient.drop_all(Kind::Worker).unwrap();
        let missing = "user nobody (uid 65534, gid 65534) (permission denied)";
        assert_eq!(dropped.missing, [missing]);
        assert_eq!(dropped.user, "uid 65534, the user who started the server");
        let result = with_user.drop_all(Kind::Worker);
        assert!(matches!(result, Err(Error::User { .. })), "{result:?}");
        let result = required.drop_all(Kind::Worker);
        assert!(matches!(result, Err(Error::Sandbox(_))), "{result:?}");
    })
    .join()
    .unwrap();
}

#[test]
fn a_helper_keeps_the_capabilities_for_its_tasks() {
    if !geteuid().is_root() {
        return;
    }
    for ([removes_interface, follows, reopens], ports, kept) in [
        ([false, false, false], vec![], "0000000000000000"),
        ([true, false, false], vec![], "0000000000001000"),
        ([false, true, false], vec![8080], "0000008000000000"),
        ([false, true, false], vec![53, 80], "0000008000000400"),
        ([false, false, true], vec![], "000000c000007000"),
        ([true, true, true], vec![80], "000000c000007400"),
    ] {
        let tasks = HelperTasks {
            removes_interface,
            follows,
            reopens,
            ports,
        };
        let keep = move || {
            let plan = privileges("--sandbox off").plan;
            let privileges = plan.privileges(Table::for_helper(tasks)).unwrap();
            privileges.drop_all(Kind::Helper).unwrap();
            let now = status();
            for set in ["CapPrm", "CapEff"] {
                assert_eq!(now[set], kept, "{set}");
            }
            assert_eq!(now["Uid"], "65534 65534 65534 65534");
        };
        std::thread::spawn(keep).join().unwrap();
    }
}

/// An attempt: its name, and a function that returns whether it succeeds.
type Attempt = (&'static str, fn() -> bool);

/// What an attacker who controls a worker might attempt.
const ATTEMPTS: [Attempt; 9] = [
    ("open", || File::open(secret()).is_ok()),
    ("write", || {
        let path = std::env::temp_dir().join(format!("control-{}", std::process::id()));
        let written = fs::write(&path, "x").is_ok();
        written && fs::remove_file(path).is_ok()
    }),
    ("open for writing", || opens_with(OFlags::WRONLY)),
    ("open to create", || opens_with(OFlags::CREATE)),
    ("open to cut short", || opens_with(OFlags::TRUNC)),
    ("open to append", || opens_with(OFlags::APPEND)),
    ("execve", || {
        // `exec` returns only if it fails.
        let _ = Command::new("/bin/true").exec();
        false
    }),
    ("socket", || UdpSocket::bind("127.0.0.1:0").is_ok()),
    ("ptrace", || {
        // Without a sandbox, the call fails with ESRCH, because the process does not trace itself.
        let outcome = nix::sys::ptrace::cont(nix::unistd::Pid::this(), None);
        outcome == Err(nix::errno::Errno::ESRCH)
    }),
];

/// Tries to open `/dev/null` with `flags`. Without a sandbox, anybody may open this file.
fn opens_with(flags: OFlags) -> bool {
    openat(CWD, "/dev/null", flags, Mode::RUSR).is_ok()
}

/// Calls that the C library, the standard library and the log make while a server runs.
const ALLOWED: [Attempt; 5] = [
    ("memory", || {
        // Large blocks are mapped, moved when they grow, and unmapped. Many small blocks fill an
        // arena, which is trimmed afterwards.
        let mut large = vec![1_u8; 1 << 20];
        large.resize(64 << 20, 1);
        large.truncate(1 << 20);
        large.shrink_to_fit();
        let small: Vec<_> = (0..100_000).map(|_| Box::new([1_u64; 16])).collect();
        drop(small);
        large[0] == 1
    }),
    ("number of CPUs", || {
        rustix::thread::sched_getaffinity(None).is_ok()
    }),
    ("random bytes", || {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).is_ok()
    }),
    ("sleep", || {
        std::thread::sleep(std::time::Duration::from_millis(1));
        std::thread::yield_now();
        true
    }),
    ("log", || {
        tracing::trace!("a line of the log");
        true
    }),
];

/// Two ways in which a process may end itself.
const ENDS: [Attempt; 2] = [
    ("panic", || panic!("on purpose")),
    ("abort", || std::process::abort()),
];

/// Returns the path of a file that the user of this test may read, but a worker may not.
fn secret() -> &'static str {
    static SECRET: LazyLock<&str> = LazyLock::new(|| {
        if geteuid().is_root() {
            "/etc/shadow"
        } else {
            "/etc/passwd"
        }
    });
    &SECRET
}

/// Environment variable that tells the child process what to attempt: `KIND ATTEMPT`.
const TO_TRY: &str = "CONTROL_TEST_TO_TRY";
const SUCCEEDED: i32 = 17;
/// Exit status if an attempt failed but did not kill the process.
const REFUSED: i32 = 18;

/// The kinds of threads that [`child`] knows.
const CONFINED: [&str; 5] = ["worker", "control", "reload", "exchange", "helper"];

/// The body of the process that [`attempt`] starts. On its own, this test does nothing.
#[test]
fn child() {
    let Ok(words) = std::env::var(TO_TRY) else {
        return;
    };
    let (kind, attempt) = words.split_once(' ').unwrap();
    let kind = kind.to_owned();
    log::init(LogLevel::Trace, LogFormat::Text);
    // The choice of the file depends on the user, so it is made before the thread changes its user.
    secret();
    let mut attempts = ATTEMPTS.iter().chain(&ALLOWED).chain(&ENDS);
    let (_, attempt) = attempts.find(|(name, _)| *name == attempt).unwrap();
    // Runs on a separate thread, so that ending a thread in the sandbox is tested too.
    let confined = std::thread::spawn(move || {
        match kind.as_str() {
            "worker" => drop(privileges("").drop_all(Kind::Worker).unwrap()),
            "control" => drop(privileges("").drop_all(Kind::Control).unwrap()),
            "reload" => drop(privileges("").drop_all(Kind::Reload).unwrap()),
            "exchange" => drop(privileges("").drop_all(Kind::Exchange).unwrap()),
            "helper" => drop(privileges("").drop_all(Kind::Helper).unwrap()),
            _ => {}
        }
        attempt()
    });
    let succeeded = confined.join().unwrap();
    std::process::exit(if succeeded { SUCCEEDED } else { REFUSED });
}

fn attempt(kind: &str, attempt: &str) -> ExitStatus {
    output(kind, attempt).status
}

fn output(kind: &str, attempt: &str) -> Output {
    output_with(kind, attempt, "0")
}

/// Like [`output`], but sets the environment variable `RUST_BACKTRACE` to `backtrace`.
fn output_with(kind: &str, attempt: &str, backtrace: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "privileges::linux::tests::child", "--nocapture"]);
    command.env(TO_TRY, format!("{kind} {attempt}"));
    command.env("RUST_BACKTRACE", backtrace);
    command.output().unwrap()
}

#[test]
fn forbidden_calls_fail_or_end_the_process() {
    for (name, _) in ATTEMPTS {
        let free = attempt("unconfined", name);
        let succeeded = match name {
            // The process has been replaced by `/bin/true`, which succeeds.
            "execve" => Some(0),
            _ => Some(SUCCEEDED),
        };
        assert_eq!(free.code(), succeeded, "{name} without a sandbox");
        for kind in CONFINED {
            let confined = attempt(kind, name);
            if name == "open" {
                // Opening for reading fails without killing the process, because the C library
                // tries it in normal operation.
                assert_eq!(confined.code(), Some(REFUSED), "in {kind}: {confined}");
                continue;
            }
            let killed = Some(libc::SIGSYS);
            assert_eq!(confined.signal(), killed, "{name} in {kind}: {confined}");
        }
    }
}

#[test]
fn ordinary_library_calls_are_allowed() {
    for (name, _) in ALLOWED {
        for kind in CONFINED {
            let confined = attempt(kind, name);
            assert_eq!(
                confined.code(),
                Some(SUCCEEDED),
                "{name} in {kind}: {confined}"
            );
        }
    }
}

#[test]
fn a_panic_and_an_abort_in_the_sandbox_end_the_process_as_usual() {
    for kind in CONFINED {
        let panicked = output(kind, "panic");
        let message = String::from_utf8_lossy(&panicked.stderr);
        assert!(message.contains("on purpose"), "{kind}: {message}");
        assert_ne!(panicked.status.signal(), Some(libc::SIGSYS), "{kind}");
        assert_eq!(
            attempt(kind, "abort").signal(),
            Some(libc::SIGABRT),
            "{kind}"
        );
    }
}

#[test]
fn a_panic_in_a_confined_thread_shows_its_backtrace_and_unwinds() {
    /// Exit status of the test harness after a failed test.
    const FAILED: i32 = 101;
    for kind in CONFINED {
        for value in ["1", "full"] {
            let panicked = output_with(kind, "panic", value);
            let text = String::from_utf8_lossy(&panicked.stderr);
            let (status, case) = (panicked.status, format!("{value} in {kind}: {text}"));
            // The test's main thread panics too, when it learns of the other thread's panic.
            assert_eq!(status.code(), Some(FAILED), "{status}, {case}");
            let (_, rest) = text.split_once("on purpose").expect(&case);
            let (backtrace, _) = rest.split_once("RUST_BACKTRACE").unwrap_or((rest, ""));
            let (backtrace, _) = backtrace
                .split_once("panicked at")
                .unwrap_or((backtrace, ""));
            // Builds without line tables show no names of files.
            let function = "privileges::linux::tests::";
            assert!(backtrace.contains(function), "{case}");
        }
    }
}

#[test]
fn a_thread_for_datagrams_waits_and_uses_the_sockets_that_are_open() {
    use rustix::event::{PollFd, PollFlags, poll};

    let exchange = || {
        let [own, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = other.local_addr().unwrap();
        privileges("").drop_all(Kind::Exchange).unwrap();
        own.send_to(b"text", address).unwrap();
        let mut events = [PollFd::new(&other, PollFlags::IN)];
        assert_eq!(poll(&mut events, None).unwrap(), 1);
        assert_eq!(other.recv_from(&mut [0; 9]).unwrap().0, 4);
    };
    std::thread::spawn(exchange).join().unwrap();
}

#[test]
fn the_new_user_cannot_read_files_of_root() {
    if !geteuid().is_root() {
        return;
    }
    std::thread::spawn(|| {
        privileges("--sandbox off").drop_all(Kind::Worker).unwrap();
        assert!(File::open("/etc/passwd").is_ok());
        let error = File::open("/etc/shadow").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        let files = ["/etc/passwd", "/etc/shadow"].map(std::path::PathBuf::from);
        let unreadable = Unreadable::among(&files).map(|files| files.to_string());
        assert_eq!(unreadable.as_deref(), Some("/etc/shadow"));
        // A file that several sites share is named once.
        let files = [(); 5].map(|()| std::path::PathBuf::from("/etc/shadow"));
        let unreadable = Unreadable::among(&files).map(|files| files.to_string());
        assert_eq!(unreadable.as_deref(), Some("/etc/shadow"));
    })
    .join()
    .unwrap();
}

/// Returns true if the kernel supports Landlock. If not, creating a mandatory ruleset fails.
fn kernel_has_landlock() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required
        .handle_access(AccessFs::from_all(ABI::V1))
        .is_ok_and(|rules| rules.create().is_ok())
}

#[test]
fn landlock_allows_only_reading_below_the_named_folders() {
    let folder = std::env::temp_dir().join(format!("control-landlock-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("page"), "text").unwrap();
    let inside = folder.clone();
    let outcome = std::thread::spawn(move || {
        let files = Files::limited_to(std::slice::from_ref(&inside), &[], &[], &[]).unwrap();
        let has_landlock = kernel_has_landlock();
        assert_eq!(files.apply().unwrap(), has_landlock);
        if !has_landlock {
            return;
        }
        assert_eq!(fs::read_to_string(inside.join("page")).unwrap(), "text");
        assert!(fs::read_dir(&inside).is_ok());
        for error in [
            fs::write(inside.join("page"), "other").unwrap_err(),
            fs::write(inside.join("new"), "").unwrap_err(),
            fs::remove_file(inside.join("page")).unwrap_err(),
            File::open("/etc/passwd").map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        }
    })
    .join();
    fs::remove_dir_all(&folder).unwrap();
    outcome.unwrap();
}

#[test]
fn the_reload_thread_may_read_only_the_content() {
    let folder = tempfile::tempdir().unwrap();
    let [inside, outside] = ["inside", "outside"].map(|name| folder.path().join(name));
    for folder in [folder.path(), &inside, &outside] {
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
    let [content, other] = [inside.join("a"), outside.join("b")];
    for file in [&content, &other] {
        fs::write(file, "text").unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    }
    let has_landlock = std::thread::spawn(move || {
        let table = Table::for_server(vec![inside.clone()], ContentFiles::default());
        let dropped = privileges_with("", table).drop_all(Kind::Reload).unwrap();
        assert_eq!(fs::read(&content).unwrap(), b"text");
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 1);
        assert!(Unreadable::among(std::slice::from_ref(&content)).is_none());
        assert_eq!(
            content.canonicalize().unwrap().file_name(),
            content.file_name()
        );
        let has_landlock = dropped
            .missing
            .iter()
            .all(|what| !what.contains("Landlock"));
        (has_landlock, fs::read(&other).is_err())
    });
    let (has_landlock, is_refused) = has_landlock.join().unwrap();
    assert_eq!(is_refused, has_landlock);
}

#[test]
fn the_reload_thread_reads_a_file_that_takes_the_place_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let [content, links, outside] =
        ["content", "links", "outside"].map(|name| folder.path().join(name));
    for folder in [folder.path(), &content, &links, &outside] {
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
    let write = |file: &Path, text: &str| {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    };
    let [file, link] = [content.join("values"), links.join("values")];
    write(&file, "old");
    symlink(&file, &link).unwrap();
    let other = outside.join("values");
    write(&other, "other");
    let table = Table::for_server(vec![link.clone()], ContentFiles::default());
    let privileges = privileges_with("", table);
    // The rules exist now, so the new files are not those that the rules were made for.
    write(&content.join("next"), "new");
    fs::rename(content.join("next"), &file).unwrap();
    let read = link.clone();
    let (turn, turns) = std::sync::mpsc::sync_channel(0);
    let confined = std::thread::spawn(move || {
        let dropped = privileges.drop_all(Kind::Reload).unwrap();
        assert_eq!(fs::read_to_string(&read).unwrap(), "new");
        turn.send(()).unwrap();
        turn.send(()).unwrap();
        assert_eq!(fs::read_to_string(&read).unwrap(), "newer");
        let mut missing = dropped.missing.iter();
        let has_landlock = missing.all(|what| !what.contains("Landlock"));
        assert_eq!(File::open(other).is_err(), has_landlock);
    });
    // The link gives way to a file. An error here means that the thread has panicked.
    if turns.recv().is_ok() {
        write(&links.join("next"), "newer");
        fs::rename(links.join("next"), &link).unwrap();
        turns.recv().unwrap();
    }
    confined.join().unwrap();
}

#[test]
fn the_reload_thread_keeps_files_only_in_the_folders_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let [store, outside] = ["store", "outside"].map(|name| folder.path().join(name));
    for folder in [folder.path(), &store, &outside] {
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    }
    let confined = std::thread::spawn(move || {
        let table = Table::for_server(Vec::new(), ContentFiles::default())
            .with_store_in(vec![store.clone()]);
        let kind = table.reload_kind();
        let dropped = privileges_with("", table).drop_all(kind).unwrap();
        let [temporary, kept] = ["temporary", "kept"].map(|name| store.join(name));
        for content in ["one", "two"] {
            fs::write(&temporary, content).unwrap();
            let place = rustix::fs::CWD;
            rustix::fs::renameat(place, &temporary, place, &kept).unwrap();
            assert_eq!(fs::read_to_string(&kept).unwrap(), content);
        }
        let place = rustix::fs::CWD;
        rustix::fs::unlinkat(place, &kept, rustix::fs::AtFlags::empty()).unwrap();
        let missing = dropped.missing;
        let has_landlock = missing.iter().all(|what| !what.contains("Landlock"));
        (has_landlock, fs::write(outside.join("a"), "a").is_err())
    });
    let (has_landlock, is_refused) = confined.join().unwrap();
    assert_eq!(is_refused, has_landlock);
}
