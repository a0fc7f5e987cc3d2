//! Checks the privileges of running servers as `/proc` shows them, and signals that must not stop a
//! server. Also checks what happens if the server or its helper is killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::checks::Checks;
use super::matrix::Scenario;
use super::rig::{Place, Rig};
use super::{Env, http};
use crate::interrupt;
use crate::server::Server;
use crate::shell;

/// An empty capability set, as `/proc` shows it.
const NOTHING: &str = "0000000000000000";
/// A capability set with only `CAP_NET_ADMIN`.
const NET_ADMIN: &str = "0000000000001000";
/// The capabilities to open an interface that has returned: `CAP_NET_ADMIN`, `CAP_NET_RAW`,
/// `CAP_IPC_LOCK`, `CAP_PERFMON` and `CAP_BPF`.
const TO_REOPEN: &str = "000000c000007000";

/// Expected fields of `/proc/PID/task/TID/status` for a thread without privileges.
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

/// Signals that must not stop a server.
const HARMLESS: [Signal; 4] = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::PIPE];
/// Time within which the server handles a signal.
const A_MOMENT: Duration = Duration::from_millis(100);
/// Time limit for a process to exit by itself.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Checks both servers on each kind of device.
pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    for server in [Scenario::WEB, Scenario::DNS] {
        let xdp = server.with("2-queues").with("own");
        for scenario in [xdp, server.on("tap"), server.on("auto")] {
            let rig = Rig::build(&scenario)?;
            check(&scenario, &rig, env, checks)?;
        }
    }
    Ok(())
}

fn check(scenario: &Scenario, rig: &Rig, env: &Env, checks: &mut Checks) -> Result<()> {
    let mut check = |name: &str, check: &dyn Fn() -> Result<()>| {
        checks.check(format_args!("{scenario}: {name}"), check);
    };
    let before = rig.links()?;
    let start = || rig.start(env, scenario, &[]);
    let (server, place) = start()?;
    check("no thread has privileges", &|| {
        expect_no_privileges(&server)
    });
    check("the helper has only those for its tasks", &|| {
        let kept = if scenario.has("auto") {
            NET_ADMIN
        } else if scenario.is_xdp() {
            TO_REOPEN
        } else {
            NOTHING
        };
        let status = format!("/proc/{}/status", helper(&server)?.as_raw_nonzero());
        expect_status(Path::new(&status), kept)
    });
    check("it lives through signals", &|| {
        for signal in HARMLESS {
            server.signal(signal)?;
        }
        std::thread::sleep(A_MOMENT);
        // The reload succeeds only if the server's user may read the content.
        let reloaded = || Ok(server.output().contains("reloaded").then_some(()));
        let said = interrupt::wait_for(END_LIMIT, reloaded)?;
        said.context("no word on the reload after SIGHUP")?;
        rig.as_client(|| answers(&place))??;
        expect_no_privileges(&server)
    });
    let two_signals = server.signal(Signal::INT).and_then(|()| server.stop_well());
    check("two signals at once end it", &|| {
        let output = two_signals.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        ensure!(output.contains("uptime:"), "no summary:\n{output}");
        rig.expect_links(&before)
    });
    check("the helper goes with it", &|| {
        let (server, _) = start()?;
        let helper = helper(&server)?;
        server.stop(Signal::KILL)?;
        let ended = || Ok(test_kill_process(helper).is_err().then_some(()));
        let ended = interrupt::wait_for(END_LIMIT, ended)?;
        ended.context("the helper is still there")?;
        rig.expect_links(&before)
    });
    check("it goes with the helper", &|| {
        let (mut server, _) = start()?;
        kill_process(helper(&server)?, Signal::KILL).context("killing the helper")?;
        let status = server.wait(END_LIMIT)?.and_then(|status| status.code());
        let output = server.output();
        let says_why = output.contains("helper");
        ensure!(
            status == Some(1) && says_why,
            "status {status:?}:\n{output}"
        );
        rig.expect_links(&before)
    });
    Ok(())
}

/// Returns the server's only child, which is its helper process.
fn helper(server: &Server) -> Result<Pid> {
    let path = PathBuf::from(format!("/proc/{0}/task/{0}/children", server.id()));
    let children = shell::read(&path)?;
    let child = children.trim().parse().ok().and_then(Pid::from_raw);
    child.with_context(|| format!("one child is expected, not {children:?}"))
}

/// Returns an error unless the server accepts TCP connections to all its addresses.
fn answers(place: &Place) -> Result<()> {
    let mut addresses = place.addresses().into_iter();
    addresses.try_for_each(|address| http::connect(place.socket(address)).map(drop))
}

/// Returns an error unless every thread of the server has dropped all privileges.
fn expect_no_privileges(server: &Server) -> Result<()> {
    let folder = format!("/proc/{}/task", server.id());
    let threads = std::fs::read_dir(&folder).with_context(|| folder.clone())?;
    let statuses = threads.map(|thread| {
        Ok(thread
            .with_context(|| folder.clone())?
            .path()
            .join("status"))
    });
    let statuses = statuses.collect::<Result<Vec<_>>>()?;
    ensure!(statuses.len() >= 2, "{} threads", statuses.len());
    let mut statuses = statuses.iter();
    statuses.try_for_each(|status| expect_status(status, NOTHING))
}

/// Returns an error unless the thread has exactly the capabilities `kept` and no other privileges.
/// `path` is the thread's status file in `/proc`.
fn expect_status(path: &Path, kept: &str) -> Result<()> {
    let status = shell::read(path)?;
    for (name, expected) in EXPECTED {
        let expected = match name {
            "CapPrm" | "CapEff" => kept,
            _ => expected,
        };
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(other, _)| *other == name);
        let words = found.map(|(_, value)| value.split_whitespace().collect::<Vec<_>>());
        let found = words.map(|words| words.join(" "));
        if found.as_deref() != Some(expected) {
            bail!("{}: {name} is {found:?}", path.display());
        }
    }
    Ok(())
}
