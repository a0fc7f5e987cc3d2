//! The rigs of both stacks, and a cell's runs on them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cells::{Cell, SIZES};
use super::fetch::{Reading, Times, fetch};
use super::forwarder::Paths;
use super::results::{Measured, Run};
use super::rig::{self, Rig, Stack};
use crate::e2e::web;
use crate::interrupt;
use crate::shell::{Context as _, Failure, Result, Scratch};

/// A fetch that takes longer has failed.
const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// A small file, beside those of the cells.
pub(crate) const TINY: usize = 1_000;

/// The files that are served.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    bodies: BTreeMap<usize, Vec<u8>>,
}

impl Site {
    pub(crate) fn prepare(scratch: &Scratch) -> Result<Self> {
        let folder = scratch.path().join("site");
        std::fs::create_dir(&folder).context(format_args!("making {}", folder.display()))?;
        let mut bodies = BTreeMap::new();
        for size in SIZES.into_iter().chain([TINY]) {
            let body = web::body(size);
            let file = folder.join(format!("{size}.bin"));
            std::fs::write(&file, &body).context(format_args!("writing {}", file.display()))?;
            bodies.insert(size, body);
        }
        Ok(Self { folder, bodies })
    }

    /// The path of the file of this size, and what it holds.
    pub(crate) fn file(&self, size: usize) -> (String, &[u8]) {
        let body = self.bodies.get(&size).map_or(&[][..], Vec::as_slice);
        (format!("/{size}.bin"), body)
    }
}

/// A rig of each stack, and what they serve.
pub(crate) struct Lab<'a> {
    // In this order: servers end before their files go.
    rigs: Vec<Rig>,
    site: Site,
    scratch: Scratch,
    programs: &'a Path,
    /// Where every run's segments are written down.
    traces: Option<PathBuf>,
    /// Frames that the kernel has dropped beside the forwarder.
    dropped: u64,
}

impl<'a> Lab<'a> {
    /// Makes the files and the rigs, with servers from `programs`.
    pub(crate) fn build(programs: &'a Path, traces: Option<PathBuf>) -> Result<Self> {
        if let Some(traces) = &traces {
            std::fs::create_dir_all(traces).context(format_args!("making {}", traces.display()))?;
        }
        let scratch = Scratch::create("loss")?;
        let mut lab = Self {
            rigs: Vec::new(),
            site: Site::prepare(&scratch)?,
            scratch,
            programs,
            traces,
            dropped: 0,
        };
        lab.build_rigs()?;
        Ok(lab)
    }

    /// Makes the rigs anew: nobody knows anything of a run before.
    fn build_rigs(&mut self) -> Result<()> {
        self.dropped = self.dropped()?;
        // The new ones have the names of the old.
        self.rigs.clear();
        for stack in Stack::BOTH {
            let (site, scratch) = (&self.site.folder, self.scratch.path());
            self.rigs
                .push(Rig::build(stack, self.programs, site, scratch, "")?);
        }
        Ok(())
    }

    /// Frames that the kernel has dropped so far beside the forwarder.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let mut dropped = self.dropped;
        for rig in &self.rigs {
            dropped += rig.dropped()?;
        }
        Ok(dropped)
    }

    /// Runs a cell with each seed, the stacks in turn.
    pub(crate) fn measure(&mut self, cell: &Cell, seeds: Range<u64>) -> Result<Measured> {
        let mut runs = Vec::new();
        for seed in seeds {
            if cell.fresh {
                self.build_rigs()?;
            }
            for rig in &self.rigs {
                interrupt::check()?;
                let mut run = self.run(rig, cell, seed)?;
                if run.noise.is_some() {
                    // Once more: the machine may have been busy by chance.
                    run = self.run(rig, cell, seed)?;
                }
                runs.push(run);
            }
        }
        Ok(Measured {
            cell: cell.clone(),
            runs,
        })
    }

    fn run(&self, rig: &Rig, cell: &Cell, seed: u64) -> Result<Run> {
        let paths = Paths {
            down: cell.down.clone(),
            up: cell.up.clone(),
            seed,
            silence_ms: cell.silence_ms(),
        };
        let trace = self.traces.as_ref().map(|folder| {
            let words = format!("{} {}", cell.group, cell.name);
            let words: Vec<&str> = words.split([' ', ',', '/']).collect();
            folder.join(format!(
                "{}-{seed}-{}.txt",
                words.join("-"),
                rig.stack().name()
            ))
        });
        let receive = match cell.receive_buffer {
            0 => rig::RECEIVE_BUFFERS.to_owned(),
            most => format!("4096 {most} {most}"),
        };
        rig.set_client(&[
            &format!("net.ipv4.tcp_ecn={}", u32::from(cell.ecn)),
            &format!("net.ipv4.tcp_rmem={receive}"),
        ])?;
        let forwarder = rig.join(&paths, trace.as_deref())?;
        let (outcomes, seconds) = rig.as_client(|| {
            let start = Instant::now();
            let outcomes = self.fetch_all(cell);
            (outcomes, start.elapsed().as_secs_f64())
        })?;
        let seen = forwarder.finish()?;
        let mut fetches = Vec::new();
        let mut failures: Vec<_> = seen.fault().into_iter().collect();
        for outcome in outcomes {
            match outcome {
                Ok(times) => fetches.push(times),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        let connected = fetches.iter().map(|times| times.connected).max();
        Ok(Run {
            stack: rig.stack(),
            paths,
            seconds,
            fetches,
            failures,
            noise: seen.noise(connected.unwrap_or(0)),
            seen,
        })
    }

    fn fetch_all(&self, cell: &Cell) -> Vec<Result<Times>> {
        let (path, body) = self.site.file(cell.size);
        let [v4, _] = Rig::addresses();
        let one = || fetch(v4, &path, body, &Reading::fast(FETCH_LIMIT));
        let in_turn = || (0..cell.in_turn).map(|_| one()).collect::<Vec<_>>();
        if cell.at_once == 1 {
            return in_turn();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cell.at_once).map(|_| scope.spawn(in_turn)).collect();
            let joined = threads.into_iter().map(|thread| {
                let panicked = |_| vec![Err(Failure::new("a fetching thread has panicked"))];
                thread.join().unwrap_or_else(panicked)
            });
            joined.flatten().collect()
        })
    }
}
