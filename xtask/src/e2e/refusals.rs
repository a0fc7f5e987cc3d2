//! Input that a program refuses. In each case it prints one clear message, exits with status 1 or
//! 2, and leaves nothing behind.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Env;
use super::checks::{Checks, row};
use super::matrix::Scenario;
use super::rig::Rig;
use crate::server::Server;
use crate::shell;
use anyhow::{Context as _, Result, ensure};

/// Time limit for a program to refuse its input.
const REFUSAL_LIMIT: Duration = Duration::from_secs(20);
/// Command that runs a program as a user without privileges.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// Command lines with wrong content or without the necessary privileges. Columns: what is wrong,
/// the command line, the maximum number of message lines, and words that the message must contain.
/// Semicolons separate the words.
///
/// SITE stands for the folder of the sample site, and ZONE for the file of the sample zone. BAD
/// stands for the folder that [`make_files`] fills. TAP stands for the option that selects a tap
/// device. NOBODY stands for the command [`NOBODY`].
const CONTENT: &str = "\
    a folder that is not there | sandstorm serve /nowhere/site TAP | 1 | /nowhere/site
    an empty folder | sandstorm serve BAD/empty TAP | 1 | BAD/empty
    a file instead of a folder | sandstorm serve SITE/index.html TAP | 1 | SITE/index.html
    an unreadable folder | NOBODY sandstorm serve BAD/locked TAP | 1 | BAD/locked
    an unreadable file | NOBODY sandstorm serve BAD/half TAP | 2 | page.html; Permission denied
    odd entries, --strict | sandstorm serve BAD/odd --strict TAP | 4 | way-out; dangling; pipe; --strict
    a zone file that is not there | namestorm check /nowhere/x.zone | 3 | /nowhere/x.zone
    no zone at all | namestorm serve TAP | 3 | --zone
    a missing zone file to serve | namestorm serve --zone /nowhere/x.zone TAP | 2 | /nowhere/x.zone; no zone
    a faulty zone, --strict | namestorm serve --strict --zone ZONE --zone BAD/bad-type.zone TAP | 3 | bad-type.zone:6; --strict
    two zones of one name | namestorm serve --strict --zone ZONE --zone ZONE TAP | 3 | storm.test
    no privileges, AF_XDP | NOBODY sandstorm serve SITE --device xdp:srv0 | 1 | permission
    no privileges, generic | NOBODY sandstorm serve SITE --device xdp:srv0,generic | 1 | permission
    no privileges, tap | NOBODY sandstorm serve SITE --device tap:tap0 | 1 | permission
    no privileges, auto | NOBODY sandstorm serve SITE --device auto | 1 | permission";

/// Wrong options for both servers. Columns: what is wrong, the options, and words that the message
/// must contain. Semicolons separate the words.
const OPTIONS: &str = "\
    an unknown interface | --device xdp:nope0 | nope0
    an interface that is down | --device xdp:down0 | down0; down
    an interface without an address | --device xdp:bare0 | bare0; address
    more queues than there are | --device xdp:srv0,queues=9 | srv0; 9
    more workers than queues | --device xdp:srv0 --workers 2 | srv0; 2
    a VLAN that is none | --device xdp:srv0,vlan=10,4095 | 4095
    VLANs whose tags are stripped | --device xdp:srv0,vlan=10 | srv0; rxvlan off
    partial without a number of queues | --device xdp:srv0,partial | queues=N,partial
    workers and queues that differ | --device xdp:srv0,queues=1 --workers 2 | --workers
    no Ethernet | --device xdp:lo,generic | lo; auto
    a device of an unknown kind | --device dpdk:srv0 | dpdk
    an unknown option of a device | --device xdp:srv0,fast | fast
    an address that is none | --device xdp:srv0 --address 10.0.0/8 | 10.0.0/8
    an address of all hosts | --device xdp:srv0 --address 10.0.0.255/24 | 10.0.0.255/24; host
    an option of a device twice | --device xdp:srv0,generic,generic | generic; twice
    a port that is none | --port 65536 | 65536
    a mode that is none | --mode quick | quick
    a capture that cannot be written | --device xdp:srv0 --pcap /nowhere/x.pcap | /nowhere/x.pcap";

/// Faulty zones. Columns: the name, the faulty line, and the line number that the message must
/// contain. The last two zones lack something, so they have no faulty line.
const ZONES: [(&str, &str, &str); 7] = [
    ("bad-address", "www IN A 192.0.2.256", ":6"),
    ("bad-type", "www IN NOTATYPE x", ":6"),
    ("outside", "www.example.net. IN A 192.0.2.2", ":6"),
    ("open-quote", "www IN TXT \"never closed", ":6"),
    ("cname-and-more", "ns IN CNAME www", ":6"),
    ("no-soa", "", ""),
    ("empty", "", ""),
];

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let rig = Rig::build(&Scenario::WEB)?;
    let server = rig.server();
    server.ip("link add down0 type veth peer name down1")?;
    server.ip("link add bare0 type veth peer name bare1")?;
    server.ip("link set bare0 addrgenmode none up")?;
    let before = rig.links()?;
    let env = accessible(env)?;
    make_files(&env.folder.join("bad"))?;
    let mut refuse = |what: &str, line: &str, most_lines: &str, words: &str| {
        checks.check(what, || expect_refusal(&rig, &env, line, most_lines, words));
        checks.check(format_args!("nothing is left: {what}"), || {
            rig.expect_links(&before)
        });
    };
    for [what, line, most_lines, words] in CONTENT.lines().map(row) {
        refuse(what, line, most_lines, words);
    }
    for (name, _, at) in ZONES {
        let file = format!("BAD/{name}.zone");
        let serve = format!("namestorm serve --zone {file} TAP");
        refuse(name, &serve, "3", &format!("{file}{at}; no zone"));
        refuse(
            name,
            &format!("namestorm check {file}"),
            "3",
            &format!("{file}{at}"),
        );
    }
    let (web, dns) = ("sandstorm serve SITE", "namestorm serve --zone ZONE");
    for [what, options, words] in OPTIONS.lines().map(row) {
        refuse(what, &format!("{web} {options}"), "1", words);
        refuse(what, &format!("{dns} {options}"), "3", words);
    }
    let (web, dns) = (
        format!("{web} --device xdp:srv0"),
        format!("{dns} --device xdp:srv0"),
    );
    let listeners = server.inside(|| {
        (
            TcpListener::bind("0.0.0.0:80"),
            UdpSocket::bind("0.0.0.0:53"),
        )
    })?;
    refuse("TCP port 80 taken", &web, "1", "another program; 80");
    refuse("UDP port 53 taken", &dns, "3", "another program; 53");
    ensure!(listeners.0.is_ok() && listeners.1.is_ok(), "{listeners:?}");
    drop(listeners);
    checks.check("another server on the same queue", || {
        let (first, _) = rig.start(&env, &Scenario::WEB, &[])?;
        expect_refusal(&rig, &env, &format!("{web} --port 8080"), "1", "srv0")?;
        drop(first);
        rig.expect_links(&before)
    });
    checks.check(
        "namestorm check finds nothing wrong with the sample",
        || {
            let mut check = server.command(env.programs.join("namestorm"));
            shell::capture(check.arg("check").args(&env.zones)).map(drop)
        },
    );
    Ok(())
}

/// Runs one command line, and returns an error unless the program refuses it.
fn expect_refusal(rig: &Rig, env: &Env, line: &str, most_lines: &str, words: &str) -> Result<()> {
    let path = |path: PathBuf| path.display().to_string();
    let in_full = |word: &str| {
        word.replace("SITE", &path(env.site.clone()))
            .replace("ZONE", &env.zones[0])
            .replace("BAD", &path(env.folder.join("bad")))
    };
    let line = line
        .replace("NOBODY", NOBODY)
        .replace("TAP", "--device tap:never0");
    let mut command = rig.server().command("env");
    command.args(line.split(' ').map(|word| match word {
        "sandstorm" | "namestorm" => path(env.programs.join(word)),
        word => in_full(word),
    }));
    let mut program = Server::spawn(&mut command)?;
    let status = program
        .wait(REFUSAL_LIMIT)?
        .and_then(|status| status.code());
    let message = program.output();
    let shown = format!("{}\nstatus {status:?}\n{message}", shell::shown(&command));
    // The programs exit with 1, and clap with 2. After a panic or a signal the status is different.
    ensure!(matches!(status, Some(1 | 2)), "it is not refused: {shown}");
    for word in words.split("; ").map(in_full) {
        ensure!(
            message.contains(&word),
            "{word:?} is not in the message of {shown}"
        );
    }
    let ours = ["sandstorm: ", "namestorm: "];
    let is_ours = message
        .lines()
        .any(|line| ours.iter().any(|name| line.starts_with(name)));
    let most_lines = most_lines.parse().with_context(|| most_lines.to_string())?;
    let is_short = message.trim_end().lines().count() <= most_lines;
    ensure!(
        status == Some(2) || is_ours && is_short,
        "not one clear message: {shown}"
    );
    Ok(())
}

/// Writes the files that the programs must refuse into the folder `bad`.
fn make_files(bad: &Path) -> Result<()> {
    for page in ["locked/index.html", "half/page.html", "odd/index.html"] {
        let page = bad.join(page);
        shell::make_folder(page.parent().unwrap_or(bad))?;
        shell::write(&page, "page")?;
    }
    shell::make_folder(&bad.join("empty"))?;
    for (name, target) in [("way-out", "../locked"), ("dangling", "nowhere")] {
        symlink(target, bad.join("odd").join(name)).with_context(|| name.to_string())?;
    }
    shell::run(Command::new("mkfifo").arg(bad.join("odd/pipe")))?;
    for locked in ["half/page.html", "locked"] {
        let mode = fs::Permissions::from_mode(0o000);
        fs::set_permissions(bad.join(locked), mode).with_context(|| locked.to_string())?;
    }
    for (name, lines, _) in ZONES {
        let soa = "@ IN SOA ns root 1 2 3 4 5\n";
        let head = format!("$ORIGIN storm.test.\n$TTL 60\n{soa}@ IN NS ns\nns IN A 192.0.2.1\n");
        let text = match name {
            "no-soa" => head.replace(soa, ""),
            "empty" => String::new(),
            _ => format!("{head}{lines}\n"),
        };
        shell::write(&bad.join(format!("{name}.zone")), text)?;
    }
    Ok(())
}

/// Returns an [`Env`] with copies of the programs that every user can run. The repository may be in
/// a folder that only root can read.
fn accessible(env: &Env) -> Result<Env> {
    let programs = env.folder.join("programs");
    shell::make_folder(&programs)?;
    for name in ["sandstorm", "namestorm"] {
        fs::copy(env.programs.join(name), programs.join(name)).with_context(|| name.to_string())?;
    }
    Ok(Env {
        programs,
        ..env.clone()
    })
}
