//! What running servers may do, read from `/proc`, and the signals that they
//! live through.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::matrix::{Device, Program, Scenario, Xdp};
use super::rig::{Place, Rig};
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
const DEVICES: [Device; 2] = [
    Device::Xdp(Xdp {
        generic: false,
        queues: 2,
        own: true,
        partial: false,
    }),
    Device::Tap,
];

/// What `/proc/PID/task/TID/status` says of a thread without rights.
const EXPECTED: [(&str, &str); 9] = [
    ("Uid", "65534 65534 65534 65534"),
    ("Gid", "65534 65534 65534 65534"),
    ("Groups", ""),
    ("CapInh", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapEff", "0000000000000000"),
    ("CapBnd", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
];

/// Signals that must change nothing.
const HARMLESS: [Signal; 4] = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::PIPE];

/// Between two signals that are told apart, and one.
const A_MOMENT: Duration = Duration::from_millis(100);

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
            let (server, place) = rig.start(&scenario, None, programs, content)?;
            checks.check(&format!("{scenario}: no thread has rights"), || {
                expect_no_rights(&server)
            });
            checks.check(&format!("{scenario}: it lives through signals"), || {
                for signal in HARMLESS {
                    server.signal(signal)?;
                }
                thread::sleep(A_MOMENT);
                rig.as_client(|| answers(&place))??;
                expect_no_rights(&server)
            });
            checks.check(
                &format!("{scenario}: it ends by two signals at once"),
                || {
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
                },
            );
        }
    }
    Ok(())
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
        let status = status(&path)?;
        count += 1;
        for (name, expected) in EXPECTED {
            let found = status.get(name).map_or("nothing", String::as_str);
            if found != expected {
                wrong.push(format!("{}: {name} is {found:?}", path.display()));
            }
        }
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

fn status(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).context(format_args!("reading {}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(lines
        .map(|(name, value)| (name.to_owned(), words(value)))
        .collect())
}
