//! What cannot be served: each case ends the program with one clear message
//! and a status that is not 0, and leaves nothing behind.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::Content;
use super::checks::Checks;
use super::matrix::{Device, Program, Scenario, Xdp};
use super::rig::Rig;
use crate::interrupt;
use crate::shell::{self, Context as _, Failure, Result};

/// A program that is to refuse has this long.
const REFUSAL_LIMIT: Duration = Duration::from_secs(20);

/// One case: what is wrong, how the program is called, and words that the
/// message must hold.
struct Case {
    what: &'static str,
    program: &'static str,
    arguments: Vec<String>,
    words: Vec<String>,
    /// As a user without any rights.
    nobody: bool,
    /// Lines that the message has at most.
    most_lines: usize,
}

impl Case {
    fn new(what: &'static str, program: &'static str, line: &str, words: &[&str]) -> Self {
        Self {
            what,
            program,
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            nobody: false,
            // A zone has a line for each thing that is wrong.
            most_lines: if program == "namestorm" { 3 } else { 1 },
        }
    }

    fn run_by_nobody(self) -> Self {
        Self {
            nobody: true,
            ..self
        }
    }

    fn with_lines(self, most_lines: usize) -> Self {
        Self { most_lines, ..self }
    }
}

/// Runs all cases on one rig.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let xdp = Xdp {
        generic: false,
        queues: 1,
        own: false,
        partial: false,
    };
    let program = Program::Sandstorm { mode: "memcopy" };
    let scenario = Scenario {
        program,
        device: Device::Xdp(xdp),
        loss: false,
    };
    let rig = Rig::build(&scenario)?;
    rig.server()
        .ip("link add down0 type veth peer name down1")?;
    rig.server()
        .ip("link add bare0 type veth peer name bare1")?;
    rig.server().ip("link set bare0 addrgenmode none up")?;
    let before = rig.links()?;
    let programs = accessible(programs, content)?;
    let files = Files::make(content)?;

    for case in content_cases(content, &files)
        .into_iter()
        .chain(device_cases(content))
    {
        checks.check(case.what, || refuse(&rig, &programs, &case));
        checks.check(&format!("nothing is left: {}", case.what), || {
            rig.expect_links(&before)
        });
    }
    let taken = rig.in_server(|| port_taken(&rig, &programs, content, checks))?;
    taken?;
    checks.check("another server on the same queue", || {
        let (server, _) = rig.start(&scenario, None, &programs, content)?;
        let line = format!(
            "serve {} --device xdp:srv0 --port 8080",
            content.site.display()
        );
        let outcome = refuse(
            &rig,
            &programs,
            &Case::new("", "sandstorm", &line, &["srv0"]),
        );
        drop(server);
        outcome?;
        rig.expect_links(&before)
    });
    checks.check(
        "namestorm check finds nothing wrong with the sample",
        || {
            let mut check = rig.server().command(programs.join("namestorm"));
            check.arg("check").args(content.zone_arguments());
            shell::capture(&mut check).map(|_| ())
        },
    );
    Ok(())
}

/// Files that are wrong in some way.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn make(content: &Content) -> Result<Self> {
        let folder = content.folder.join("bad");
        let files = Self { folder };
        let make = |name: &str| {
            let path = files.folder.join(name);
            fs::create_dir_all(&path).context(format_args!("making {}", path.display()))
        };
        make("empty")?;
        make("locked")?;
        files.write("locked/index.html", "page")?;
        make("with-locked-file")?;
        files.write("with-locked-file/page.html", "page")?;
        make("odd")?;
        files.write("odd/index.html", "page")?;
        for (name, target) in [("way-out", "../locked"), ("dangling", "nowhere")] {
            symlink(target, files.folder.join("odd").join(name))
                .context(format_args!("linking {name}"))?;
        }
        shell::run(Command::new("mkfifo").arg(files.folder.join("odd/pipe")))?;
        let lock = |name: &str| {
            fs::set_permissions(files.folder.join(name), fs::Permissions::from_mode(0o000))
                .context(format_args!("locking {name}"))
        };
        lock("with-locked-file/page.html")?;
        lock("locked")?;
        for (name, lines) in BROKEN_ZONES {
            let head = "$ORIGIN storm.test.\n$TTL 60\n@ IN SOA ns root 1 2 3 4 5\n@ IN NS ns\n\
                        ns IN A 192.0.2.1\n";
            files.write(&format!("{name}.zone"), &format!("{head}{lines}\n"))?;
        }
        files.write(
            "no-soa.zone",
            "$ORIGIN storm.test.\n$TTL 60\n@ IN NS ns\nns IN A 192.0.2.1\n",
        )?;
        files.write("empty.zone", "")?;
        Ok(files)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.folder.join(name), text).context(format_args!("writing {name}"))
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

/// Zones whose sixth line is wrong.
const BROKEN_ZONES: [(&str, &str); 5] = [
    ("bad-address", "www IN A 192.0.2.256"),
    ("bad-type", "www IN NOTATYPE x"),
    ("outside", "www.example.net. IN A 192.0.2.2"),
    ("open-quote", "www IN TXT \"never closed"),
    ("cname-and-more", "ns IN CNAME www"),
];

fn content_cases(content: &Content, files: &Files) -> Vec<Case> {
    let sandstorm = |what, path: &str, words: &[&str]| {
        Case::new(
            what,
            "sandstorm",
            &format!("serve {path} --device tap:never0"),
            words,
        )
    };
    let (empty, locked) = (files.path("empty"), files.path("locked"));
    let file = content.site.join("index.html").display().to_string();
    let mut cases = vec![
        sandstorm(
            "a folder that is not there",
            "/nowhere/site",
            &["/nowhere/site"],
        ),
        sandstorm("an empty folder", &empty, &[&empty]),
        sandstorm("a file instead of a folder", &file, &[&file]),
        sandstorm("an unreadable folder", &locked, &[&locked]).run_by_nobody(),
        sandstorm(
            "an unreadable file",
            &files.path("with-locked-file"),
            &["page.html", "Permission denied"],
        )
        .run_by_nobody()
        .with_lines(2),
        sandstorm(
            "entries that cannot be served, with --strict",
            &format!("{} --strict", files.path("odd")),
            &["way-out", "dangling", "pipe", "--strict"],
        )
        .with_lines(4),
        Case::new(
            "a zone file that is not there",
            "namestorm",
            "check /nowhere/x.zone",
            &["/nowhere/x.zone"],
        ),
        Case::new(
            "no zone at all",
            "namestorm",
            "serve --device tap:never0",
            &["--zone"],
        ),
    ];
    let broken = BROKEN_ZONES.iter().map(|&(name, _)| (name, Some("6")));
    for (name, line) in broken.chain([("no-soa", None), ("empty", None)]) {
        let path = files.path(&format!("{name}.zone"));
        let place = line.map_or(path.clone(), |line| format!("{path}:{line}"));
        let serve = format!("serve --strict --zone {path} --device tap:never0");
        cases.push(Case::new(name, "namestorm", &serve, &[&place]));
        cases.push(Case::new(
            name,
            "namestorm",
            &format!("check {path}"),
            &[&place],
        ));
    }
    let zone = &content.zone_arguments()[0];
    cases.push(Case::new(
        "two zones of one name",
        "namestorm",
        &format!("serve --strict --zone {zone} --zone {zone} --device tap:never0"),
        &["storm.test"],
    ));
    cases
}

fn device_cases(content: &Content) -> Vec<Case> {
    let site = content.site.display();
    let zone = &content.zone_arguments()[0];
    let mut cases = Vec::new();
    for (what, options, words) in [
        ("an unknown interface", "--device xdp:nope0", &["nope0"][..]),
        (
            "an interface that is down",
            "--device xdp:down0",
            &["down0", "down"],
        ),
        (
            "an interface without an address",
            "--device xdp:bare0",
            &["bare0", "address"],
        ),
        (
            "more queues than there are",
            "--device xdp:srv0,queues=9",
            &["srv0", "9"],
        ),
        (
            "more workers than queues",
            "--device xdp:srv0 --workers 2",
            &["srv0", "2"],
        ),
        (
            "a VLAN that is none",
            "--device xdp:srv0,vlan=10,4095",
            &["4095"],
        ),
        (
            "VLANs whose tags are stripped",
            "--device xdp:srv0,vlan=10",
            &["srv0", "rxvlan off"],
        ),
        (
            "partial without a number of queues",
            "--device xdp:srv0,partial",
            &["queues=N,partial"],
        ),
        (
            "workers and queues that differ",
            "--device xdp:srv0,queues=1 --workers 2",
            &["--workers"],
        ),
        ("no Ethernet", "--device xdp:lo,generic", &["lo", "auto"]),
        (
            "a device of an unknown kind",
            "--device dpdk:srv0",
            &["dpdk"],
        ),
        (
            "an unknown option of a device",
            "--device xdp:srv0,fast",
            &["fast"],
        ),
        (
            "an address that is none",
            "--device xdp:srv0 --address 10.0.0/8",
            &["10.0.0/8"],
        ),
        (
            "an address of all hosts",
            "--device xdp:srv0 --address 10.0.0.255/24",
            &["10.0.0.255/24", "host"],
        ),
        (
            "an option of a device twice",
            "--device xdp:srv0,generic,generic",
            &["generic", "twice"],
        ),
        ("a port that is none", "--port 65536", &["65536"]),
        ("a mode that is none", "--mode quick", &["quick"]),
        (
            "a capture that cannot be written",
            "--device xdp:srv0 --pcap /nowhere/x.pcap",
            &["/nowhere/x.pcap"],
        ),
    ] {
        cases.push(Case::new(
            what,
            "sandstorm",
            &format!("serve {site} {options}"),
            words,
        ));
        cases.push(Case::new(
            what,
            "namestorm",
            &format!("serve --zone {zone} {options}"),
            words,
        ));
    }
    for device in ["xdp:srv0", "xdp:srv0,generic", "tap:tap0", "auto"] {
        let line = format!("serve {site} --device {device}");
        cases.push(Case::new("no rights", "sandstorm", &line, &["right"]).run_by_nobody());
    }
    cases
}

/// Ports that the kernel serves already.
fn port_taken(rig: &Rig, programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let before = rig.links()?;
    let _tcp = TcpListener::bind("0.0.0.0:80").context("taking port 80")?;
    let _udp = UdpSocket::bind("0.0.0.0:53").context("taking port 53")?;
    let web = format!("serve {} --device xdp:srv0", content.site.display());
    let dns = format!(
        "serve --zone {} --device xdp:srv0",
        content.zone_arguments()[0]
    );
    for (what, program, line, port) in [
        ("TCP port 80 taken", "sandstorm", &web, "80"),
        ("UDP port 53 taken", "namestorm", &dns, "53"),
    ] {
        let case = Case::new(what, program, line, &["taken", port]);
        checks.check(what, || refuse(rig, programs, &case));
        checks.check(&format!("nothing is left: {what}"), || {
            rig.expect_links(&before)
        });
    }
    Ok(())
}

/// Runs one case, and judges how it ended.
fn refuse(rig: &Rig, programs: &Path, case: &Case) -> Result<()> {
    let program = programs.join(case.program);
    let mut command = if case.nobody {
        let mut command = rig.server().command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program);
        command
    } else {
        rig.server().command(program)
    };
    command.args(&case.arguments);
    let output = output_within(&mut command, REFUSAL_LIMIT)?;
    let message = String::from_utf8_lossy(&output.stderr);
    let shown = || format!("{}\n{}\n{message}", shell::shown(&command), output.status);
    // 1 is ours and 2 is clap's; a panic or a signal gives others.
    if !matches!(output.status.code(), Some(1 | 2)) {
        return Err(Failure::new(format!(
            "the status is neither 1 nor 2: {}",
            shown()
        )));
    }
    let missing: Vec<&String> = case
        .words
        .iter()
        .filter(|&word| !message.contains(word.as_str()))
        .collect();
    if !missing.is_empty() {
        return Err(Failure::new(format!(
            "{missing:?} is not in the message of {}",
            shown()
        )));
    }
    let name = format!("{}: ", case.program);
    let ours = message.lines().any(|line| line.starts_with(&name));
    let lines = message.trim_end().lines().count();
    if output.status.code() == Some(1) && !(ours && lines <= case.most_lines) {
        return Err(Failure::new(format!("not one clear message: {}", shown())));
    }
    Ok(())
}

/// Runs a command that must end within `limit`.
fn output_within(command: &mut Command, limit: Duration) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Guarded(command.spawn().context(shell::shown(command))?);
    // A refusal fits the pipes, so nothing must be read meanwhile.
    let status =
        interrupt::wait_for(limit, || child.0.try_wait().context("waiting"))?.ok_or_else(|| {
            Failure::new(format!(
                "{} still runs after {limit:?}",
                shell::shown(command)
            ))
        })?;
    let mut output = Output {
        status,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    for (pipe, into) in [
        (
            child
                .0
                .stdout
                .take()
                .map(|p| Box::new(p) as Box<dyn std::io::Read>),
            &mut output.stdout,
        ),
        (
            child
                .0
                .stderr
                .take()
                .map(|p| Box::new(p) as Box<dyn std::io::Read>),
            &mut output.stderr,
        ),
    ] {
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(into).context("reading what it said")?;
        }
    }
    Ok(output)
}

/// A child that does not outlive us.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies of the programs that everybody may run: the repository may lie in a
/// folder that is root's alone.
fn accessible(programs: &Path, content: &Content) -> Result<PathBuf> {
    let folder = content.folder.join("programs");
    fs::create_dir_all(&folder).context(format_args!("making {}", folder.display()))?;
    for name in ["sandstorm", "namestorm"] {
        fs::copy(programs.join(name), folder.join(name)).context(format_args!("copying {name}"))?;
    }
    Ok(folder)
}
