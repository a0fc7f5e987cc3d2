//! Pressure: clients in one network hold connections without using them. The tests measure what a
//! client at another address notices.
//!
//! Each case exhausts one resource: receive buffers, the connection table, scoreboards, or write
//! buffers. When the server closes an abusive client's connection, the client soon opens another.
//!
//! The server must answer each request of the other client within a second. The median small
//! request may take three times as long as with an idle server. Some cases also measure the
//! server's memory afterwards, which may be one and a half times its initial size.

use std::time::{Duration, Instant};

use super::abusers::{self, Abuse};
use super::checks::Checks;
use super::flood::{PATH, counted};
use super::http::{self, Connection};
use super::many::memory;
use super::matrix::Scenario;
use super::rig::{Place, Rig};
use super::{Env, dns};
use crate::interrupt;
use crate::netns::SERVER_LINK;
use anyhow::{Result, ensure};

/// On one in [`LONG_EACH`] connections, the second request has several segments. It carries
/// [`COOKIES`] bytes of cookies.
const LONG_EACH: usize = 5;
const COOKIES: usize = 4_096;
/// The other client's pause before each connection.
const PAUSE: Duration = Duration::from_millis(1);
/// Limit for the other client's longest wait.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Limit for the other client's median wait, relative to the median with an idle server.
const MAX_MEDIAN_RATIO: f64 = 3.0;
/// Limit for the server's memory, relative to its initial size.
const MAX_MEMORY_RATIO: f64 = 1.5;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    scenario: Scenario,
    options: &'static [&'static str],
    abuses: &'static [(Abuse, usize)],
    /// Label of the count in the server's summary that proves the shortage.
    shortage: &'static str,
    /// Number of requests by the other client.
    requests: usize,
    /// Time from the abusers' last action to the measurement of memory. `None` means that memory is
    /// not measured.
    memory_after: Option<Duration>,
}

const HALVES: Case = Case {
    name: "4,200 halves of requests",
    scenario: Scenario::WEB,
    options: &[],
    abuses: &[(Abuse::HalfHead, 4_200)],
    shortage: "connections evicted",
    requests: 1_000,
    memory_after: None,
};
const UNREAD: Case = Case {
    name: "4,300 connections with unread answers",
    scenario: Scenario::DNS,
    abuses: &[(Abuse::Queries, 4_300)],
    shortage: "write buffers reclaimed",
    memory_after: Some(Duration::from_secs(15)),
    ..HALVES
};

/// Cases that run by default. One has a small connection table to save time.
const SAMPLE: [Case; 3] = [
    HALVES,
    Case {
        name: "a small table full of everything",
        options: &["--max-connections", "3000"],
        abuses: &[
            (Abuse::HalfHead, 1_100),
            (Abuse::ZeroWindow, 1_100),
            (Abuse::Sip, 1_100),
        ],
        ..HALVES
    },
    UNREAD,
];

/// Returns a Sandstorm case with default options, and so with a table of 65,536 connections.
const fn table(name: &'static str, abuses: &'static [(Abuse, usize)]) -> Case {
    Case {
        name,
        abuses,
        ..HALVES
    }
}

const WHOLE: [Case; 8] = [
    HALVES,
    table(
        "a table full of halves of requests",
        &[(Abuse::HalfHead, 70_000)],
    ),
    table(
        "a table full of zero windows",
        &[(Abuse::ZeroWindow, 70_000)],
    ),
    table(
        "a table full of readers that hardly read",
        &[(Abuse::Sip, 70_000)],
    ),
    table(
        "a table full of everything",
        &[
            (Abuse::HalfHead, 24_000),
            (Abuse::ZeroWindow, 22_000),
            (Abuse::Sip, 22_000),
        ],
    ),
    Case {
        shortage: "scoreboards reclaimed",
        ..table("scoreboards full of holes", &[(Abuse::Holes, 3_000)])
    },
    UNREAD,
    Case {
        name: "8,600 connections with unread answers or half a question",
        abuses: &[(Abuse::Queries, 4_300), (Abuse::HalfQuestion, 4_300)],
        ..UNREAD
    },
];

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    run(&SAMPLE, env, checks)
}

/// Runs all cases with more requests, and measures memory after a longer time.
pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    run(
        &WHOLE.map(|case| Case {
            requests: 10_000,
            memory_after: Some(Duration::from_mins(1)),
            ..case
        }),
        env,
        checks,
    )
}

fn run(cases: &[Case], env: &Env, checks: &mut Checks) -> Result<()> {
    for case in cases {
        abusers::allow(case.abuses)?;
        let name = format!("{}: a client at another address is served", case.name);
        checks.measure(name, || case.run(env));
    }
    Ok(())
}

/// Waiting times of the client at another address: the median of its one-segment requests, and the
/// maximum of all requests.
struct WaitingTimes {
    median: Duration,
    max: Duration,
}

impl Case {
    fn run(&self, env: &Env) -> Result<String> {
        let rig = self.rig()?;
        let (server, place) = rig.start(env, &self.scenario, self.options)?;
        let memory = || memory(server.id()).map(|(now, _)| now);
        let (quiet, memory_before, pressed) = rig.as_client(|| {
            let (quiet, memory) = (self.ask(&place)?, memory()?);
            anyhow::Ok((quiet, memory, self.press(&place)?))
        })??;
        let mut line = format!(
            "pressure, {}: requests take {:?} (at most {:?}), on a quiet server {:?} ({:?})",
            self.name, pressed.median, pressed.max, quiet.median, quiet.max
        );
        let mut is_met =
            pressed.max <= MAX_WAIT && pressed.median <= quiet.median.mul_f64(MAX_MEDIAN_RATIO);
        if let Some(wait) = self.memory_after {
            interrupt::wait_for(wait, || Ok(None::<()>))?;
            let (before, after) = (memory_before >> 10, memory()? >> 10);
            line = format!("{line}; memory {before} kB, {wait:?} later {after} kB");
            is_met &= after as f64 <= before as f64 * MAX_MEMORY_RATIO;
        }
        let output = server.stop_well()?;
        let (what, count) = (self.shortage, counted(&output, self.shortage)?);
        line = format!("{line}; {what}: {count}");
        // Without a shortage the case proves nothing.
        ensure!(is_met && count > 0, "{line}\n{output}");
        Ok(line)
    }

    fn rig(&self) -> Result<Rig> {
        let rig = Rig::build(&self.scenario)?;
        abusers::add_addresses(&rig)?;
        if self.abuses.iter().any(|(abuse, _)| *abuse == Abuse::Holes) {
            // With TSO, the socket filter of a [`Holes`](Abuse::Holes) client would drop whole
            // super-segments, and so make too few holes.
            rig.server().set_features(SERVER_LINK, &["tso"], false)?;
        }
        Ok(rig)
    }

    /// Returns the other client's waiting times while the abusers are active.
    fn press(&self, place: &Place) -> Result<WaitingTimes> {
        abusers::beside(place.socket(place.v6), self.abuses, || self.ask(place))
    }

    /// Sends requests, two on each connection, and returns their waiting times.
    fn ask(&self, place: &Place) -> Result<WaitingTimes> {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let cookies = format!("Cookie: {}\r\n", "c".repeat(COOKIES));
        let to = place.socket(place.v4);
        for n in 0..self.requests / 2 {
            std::thread::sleep(PAUSE);
            let mut start = Instant::now();
            let mut lap = || std::mem::replace(&mut start, Instant::now()).elapsed();
            if self.scenario.is_dns() {
                let mut stream = http::connect(to)?;
                dns::ask_over(&mut stream, 1)?;
                short.push(lap());
                dns::ask_over(&mut stream, 2)?;
                short.push(lap());
            } else {
                let mut connection = Connection::open(to)?;
                connection.request("GET", PATH, "")?.expect_status(200)?;
                short.push(lap());
                let is_long = n % LONG_EACH == 0;
                let close = format!(
                    "{}Connection: close\r\n",
                    if is_long { &cookies } else { "" }
                );
                connection
                    .request("GET", PATH, &close)?
                    .expect_status(200)?;
                if is_long { &mut long } else { &mut short }.push(lap());
            }
        }
        short.sort();
        let median = short[short.len() / 2];
        let max = short.into_iter().chain(long).max().unwrap_or_default();
        Ok(WaitingTimes { median, max })
    }
}
