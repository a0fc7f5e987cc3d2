//! What running servers may do, read from `/proc`; the signals that they live
//! through; and what is left when a process dies.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::Content;
use super::checks::Checks;
use super::matrix::{Device, Program, Scenario, Xdp};
use super::rig::{Place, Rig};
use crate::interrupt;
use crate::server::Server;
use crate::shell::{Context as _, Failure, Result};

/// Both servers on every kind of device.
const PROGRAMS: [Program; 2] = [
    Program::Sandstorm { mode: "memcopy" },
    Program::Namestorm {
        mode: "turnaround",
        hash: "wire",
    },
];
const DEVICES: [Device; 3] = [
    Device::Xdp(Xdp {
        generic: false,
        queues: 2,
        own: true,
        partial: false,
    }),
    Device::Tap,
    Device::Auto,
];

/// Sets of capabilities.
const NOTHING: &str = "0000000000000000";
const CAP_NET_ADMIN: &str = "0000000000001000";

/// What `/proc/PID/task/TID/status` says of a thread without rights.
const EXPECTED: [(&str, &str); 10] = [
    ("Uid", "65534 65534 65534 65534"),
    ("Gid", "65534 65534 65534 65534"),
    ("Groups", ""),
    ("CapInh", NOTHING),
    ("CapPrm", NOTHING),
    ("CapEff", NOTHING),
    ("CapBnd", NOTHING),
    ("CapAmb", NOTHING),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
];

/// Signals that must change nothing.
const HARMLESS: [Signal; 4] = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::PIPE];

/// Between two signals that are told apart, and one.
const A_MOMENT: Duration = Duration::from_millis(100);

/// A process that is to end by itself has this long.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    for program in PROGRAMS {
        for device in DEVICES {
            let scenario = Scenario {
                program,
                device,
                loss: false,
            };
            let rig = Rig::build(&scenario)?;
            let before = rig.links()?;
            let start = || rig.start(&scenario, None, programs, content);
            let (server, place) = start()?;
            lives_without_rights(&scenario, &rig, &server, &place, checks);
            checks.check(&format!("{scenario}: two signals at once end it"), || {
                server.signal(Signal::INT)?;
                server.signal(Signal::TERM)?;
                let (status, output) = server.stop(Signal::TERM)?;
                if !status.success() || !output.contains("uptime:") {
                    return Err(Failure::new(format!("{status}:\n{output}")));
                }
                if !output.contains("SIGHUP") {
                    return Err(Failure::new(format!("no word on SIGHUP:\n{output}")));
                }
                rig.expect_links(&before)
            });
            checks.check(&format!("{scenario}: the helper goes with it"), || {
                let (server, _) = start()?;
                let helper = helper(&server)?;
                server.stop(Signal::KILL)?;
                expect_end(helper)?;
                rig.expect_links(&before)
            });
            checks.check(&format!("{scenario}: it goes with the helper"), || {
                let (mut server, _) = start()?;
                kill_process(helper(&server)?, Signal::KILL).context("killing the helper")?;
                let ended = interrupt::wait_for(END_LIMIT, || server.ended())?;
                // Its last words may still be on their way here.
                let says_why = || Ok(server.output().contains("helper").then_some(()));
                let why = interrupt::wait_for(END_LIMIT, says_why)?;
                if ended.and_then(|status| status.code()) != Some(1) || why.is_none() {
                    let output = server.output();
                    return Err(Failure::new(format!("{ended:?}:\n{output}")));
                }
                rig.expect_links(&before)
            });
        }
    }
    Ok(())
}

fn lives_without_rights(
    scenario: &Scenario,
    rig: &Rig,
    server: &Server,
    place: &Place,
    checks: &mut Checks,
) {
    checks.check(&format!("{scenario}: no thread has rights"), || {
        expect_no_rights(server)
    });
    checks.check(&format!("{scenario}: the helper has hardly any"), || {
        let kept = match scenario.device {
            Device::Auto => CAP_NET_ADMIN,
            Device::Tap | Device::Xdp(_) => NOTHING,
        };
        let expected = EXPECTED.map(|(name, value)| match name {
            "CapPrm" | "CapEff" => (name, kept),
            _ => (name, value),
        });
        let path = format!("/proc/{}/status", helper(server)?.as_raw_nonzero());
        let wrong = differences(Path::new(&path), &expected)?;
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(wrong.join("\n")))
        }
    });
    checks.check(&format!("{scenario}: it lives through signals"), || {
        for signal in HARMLESS {
            server.signal(signal)?;
        }
        thread::sleep(A_MOMENT);
        rig.as_client(|| answers(place))??;
        expect_no_rights(server)
    });
}

/// The one child of the server.
fn helper(server: &Server) -> Result<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", server.id());
    let children = std::fs::read_to_string(&path).context(format_args!("reading {path}"))?;
    let child = children.trim().parse().ok().and_then(Pid::from_raw);
    child.ok_or_else(|| Failure::new(format!("one child is expected, not {children:?}")))
}

fn expect_end(process: Pid) -> Result<()> {
    let ended = interrupt::wait_for(END_LIMIT, || {
        Ok(test_kill_process(process).is_err().then_some(()))
    })?;
    ended.ok_or_else(|| Failure::new("the helper is still there"))
}

/// Whether a TCP connection comes about, which takes the server's own stack.
fn answers(place: &Place) -> Result<()> {
    for address in place.addresses() {
        std::net::TcpStream::connect_timeout(&place.socket(address), super::http::PATIENCE)
            .context(format_args!("connecting to {address}"))?;
    }
    Ok(())
}

/// Whether every thread of the server has given everything up.
fn expect_no_rights(server: &Server) -> Result<()> {
    let folder = format!("/proc/{}/task", server.id());
    let threads = std::fs::read_dir(&folder).context(format_args!("reading {folder}"))?;
    let mut wrong = Vec::new();
    let mut count = 0;
    for thread in threads {
        let path = thread.context("reading its threads")?.path().join("status");
        wrong.extend(differences(&path, &EXPECTED)?);
        count += 1;
    }
    if count < 2 {
        wrong.push(format!("{count} threads"));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        wrong.push(server.output());
        Err(Failure::new(wrong.join("\n")))
    }
}

/// Where a status is not as expected.
fn differences(path: &Path, expected: &[(&str, &str)]) -> Result<Vec<String>> {
    let status = status(path)?;
    let mut wrong = Vec::new();
    for (name, expected) in expected {
        let found = status.get(*name).map_or("nothing", String::as_str);
        if found != *expected {
            wrong.push(format!("{}: {name} is {found:?}", path.display()));
        }
    }
    Ok(wrong)
}

fn status(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).context(format_args!("reading {}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(lines
        .map(|(name, value)| (name.to_owned(), words(value)))
        .collect())
}
