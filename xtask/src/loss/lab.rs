//! The rigs of all servers, and the runs of a cell on them.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use tempfile::TempDir;

use super::cells::{Cell, SIZES};
use super::forwarder::{Counters, Paths};
use super::rig::{ADDRESSES, RECEIVE_BUFFERS, Rig, Stack};
use crate::e2e::http::Connection;
use crate::e2e::supers::write_files;
use crate::e2e::web::{body, in_threads};
use crate::interrupt;
use crate::shell;

/// Makes the folder of files to serve, and returns its path.
pub(crate) fn make_site(scratch: &TempDir) -> Result<PathBuf> {
    let folder = scratch.path().join("site");
    shell::make_folder(&folder)?;
    write_files(&folder, &SIZES).map(|()| folder)
}

/// Times of a fetch, in µs since the client began to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    connected: u64,
    /// Arrival of the first byte of the response.
    first: u64,
    /// Arrival of the last byte of the body.
    last: u64,
}

/// Fetches the file of `size` bytes on a new connection, and checks every byte of the body.
pub(crate) fn fetch(to: SocketAddr, size: usize) -> Result<Times> {
    let start = Instant::now();
    let since = || start.elapsed().as_micros() as u64;
    let mut connection = Connection::open(to)?;
    let connected = since();
    let request = format!("GET /{size}.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    connection.send(request.as_bytes())?;
    connection.wait()?;
    let first = since();
    let response = connection.receive(true)?;
    let last = since();
    response.expect_body(&body(size))?;
    Ok(Times {
        connected,
        first,
        last,
    })
}

/// The results of one run, which has one server, one cell and one seed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Run {
    pub(crate) stack: Stack,
    pub(crate) paths: Paths,
    /// Times of the completed fetches.
    pub(crate) fetches: Vec<Times>,
    /// Time in seconds from the first connect to the last byte, without the time for checking the
    /// bodies.
    pub(crate) seconds: f64,
    /// Number of payload bytes that the server sent, including those that it retransmitted.
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) counters: Counters,
    /// Error message, if a fetch failed.
    pub(crate) failure: Option<String>,
    /// How other work on the machine disturbed the run, if it did.
    pub(crate) disturbance: Option<String>,
}

/// A cell together with the results of all its runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) runs: Vec<Run>,
}

/// One rig per server, and the files that the servers serve.
pub(crate) struct Lab<'a> {
    // The order of these fields matters: servers must stop before their files are removed.
    rigs: Vec<Rig>,
    site: PathBuf,
    scratch: TempDir,
    programs: &'a Path,
    /// Folder of the traces, or `None` if no traces are wanted.
    traces: Option<PathBuf>,
    /// Number of frames that the kernel dropped in earlier rigs.
    dropped: u64,
}

impl<'a> Lab<'a> {
    /// Makes the files and the rigs. Sandstorm and the forwarder are from the folder `programs`.
    pub(crate) fn build(programs: &'a Path, traces: Option<PathBuf>) -> Result<Self> {
        let scratch = shell::scratch("loss")?;
        let mut lab = Self {
            rigs: Vec::new(),
            site: make_site(&scratch)?,
            scratch,
            programs,
            traces,
            dropped: 0,
        };
        lab.build_rigs()?;
        Ok(lab)
    }

    /// Builds new rigs, so that no server remembers earlier runs.
    fn build_rigs(&mut self) -> Result<()> {
        self.dropped = self.dropped()?;
        // The new rigs reuse the names of the old rigs, so remove the old rigs first.
        self.rigs.clear();
        for stack in Stack::ALL {
            let rig = Rig::build(stack, self.programs, &self.site, self.scratch.path(), "")?;
            self.rigs.push(rig);
        }
        Ok(())
    }

    /// Returns the number of frames that the kernel has dropped so far.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let mut rigs = self.rigs.iter();
        rigs.try_fold(self.dropped, |sum, rig| Ok(sum + rig.dropped()?))
    }

    /// Runs a cell with each seed, on one server after the other. Repeats a disturbed run once.
    pub(crate) fn measure(&mut self, cell: Cell, seeds: Range<u64>) -> Result<Measured> {
        let mut runs = Vec::new();
        for seed in seeds {
            if cell.restarts() {
                self.build_rigs()?;
            }
            for rig in &self.rigs {
                interrupt::check()?;
                let mut run = self.run(rig, &cell, seed)?;
                if run.disturbance.is_some() {
                    run = self.run(rig, &cell, seed)?;
                }
                runs.push(run);
            }
        }
        Ok(Measured { cell, runs })
    }

    fn run(&self, rig: &Rig, cell: &Cell, seed: u64) -> Result<Run> {
        let paths = Paths {
            down: cell.down.clone(),
            up: cell.up.clone(),
            seed,
        };
        let trace = self.traces.as_ref().map(|folder| {
            let name = cell.full_name().replace([' ', ',', '/'], "-");
            folder.join(format!("{name}-{seed}-{:?}.txt", rig.stack()))
        });
        let buffers = match cell.receive_buffer {
            0 => RECEIVE_BUFFERS.to_owned(),
            most => format!("4096 {most} {most}"),
        };
        let ecn = u32::from(cell.ecn());
        rig.client_script(&format!(
            "sysctl -q -w net.ipv4.tcp_ecn={ecn} net.ipv4.tcp_rmem='{buffers}'"
        ))?;
        let forwarder = rig.join(&paths, trace.as_deref())?;
        let [to, _] = ADDRESSES;
        let fetched = rig.as_client(|| {
            in_threads(vec![(); cell.at_once], |()| {
                let mut fetches = Vec::new();
                for _ in 0..cell.in_turn {
                    fetches.push(fetch(to, cell.size)?);
                }
                Ok(fetches)
            })
        })?;
        let mut run = Run {
            paths,
            stack: rig.stack(),
            ..Run::default()
        };
        match (forwarder.finish(), fetched) {
            (Ok(counters), Ok(fetched)) => {
                let sum = |all: &Vec<Times>| all.iter().map(|times| times.last).sum::<u64>();
                run.seconds = fetched.iter().map(sum).max().unwrap_or(0) as f64 / 1e6;
                run.fetches = fetched.concat();
                let connected = run.fetches.iter().map(|times| times.connected).max();
                run.disturbance = counters.disturbance(connected.unwrap_or(0))?;
                run.sent = counters.get("down/bytes")?;
                run.retransmitted = counters.get("down/retransmitted")?;
                run.counters = counters;
            }
            (Err(failure), _) | (_, Err(failure)) => run.failure = Some(format!("{failure:#}")),
        }
        Ok(run)
    }
}
