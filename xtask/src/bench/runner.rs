//! Runs the sets of a plan and saves the results.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::content::{Content, files_on_disk};
use super::generators;
use super::machine::BUSY;
use super::plan::{Group, Job, Set};
use super::results::{Load, Missing, Results, Run, SKIPPED};
use super::rig::{Rig, SERVER_CORE};
use super::servers::{Program, Serves, is_installed};
use super::usage::{self, Sample};
use crate::netns::SERVER_LINK;
use crate::{interrupt, shell};

/// Name of the file with the raw results.
pub(crate) const RESULTS: &str = "results.json";

/// Option of a load that asks for each file once, while none of them is in the page cache.
const IN_TURN: &str = "--in-turn";

/// Number of log lines to save with a failure.
const LOG_LINES: usize = 20;

pub(crate) struct Runner {
    results: Results,
    content: Content,
    folder: PathBuf,
    /// Number of runs so far. `all` is the number of planned runs.
    done: usize,
    all: usize,
}

impl Runner {
    pub(crate) fn new(results: Results, programs: PathBuf, folder: &Path) -> Result<Self> {
        Ok(Self {
            results,
            content: Content::create(programs, folder)?,
            folder: folder.to_path_buf(),
            done: 0,
            all: 0,
        })
    }

    /// Runs all sets. Failed runs are listed in the results. An error means that nothing further
    /// can run.
    pub(crate) fn run(mut self, sets: &[Set]) -> Result<Results> {
        let jobs = |set: &Set| {
            let jobs: usize = set.groups.iter().map(|group| group.jobs.len()).sum();
            jobs * set.repeats as usize
        };
        self.all = sets.iter().map(jobs).sum();
        for set in sets {
            // A group that failed does not run again in later repeats.
            let mut failed = BTreeSet::new();
            for repeat in 0..set.repeats {
                for (index, group) in set.groups.iter().enumerate() {
                    let program = group.spec.program;
                    if failed.contains(&index) || !self.is_there(program) {
                        self.done += group.jobs.len();
                        continue;
                    }
                    let outcome = self.run_group(group, repeat);
                    interrupt::check()?;
                    if let Err(failure) = outcome {
                        failed.insert(index);
                        let job = &group.jobs[0];
                        let what = format!("{}: {} {}", program.name, job.figure, job.x);
                        self.miss(what, &format!("{failure:#}"));
                    }
                    self.save()?;
                }
            }
        }
        self.save()?;
        Ok(self.results)
    }

    /// Returns true if the program is installed. A missing program is added to the results once.
    fn is_there(&mut self, program: &Program) -> bool {
        let is_there = program.is_ours() || is_installed(program.executable());
        if !is_there {
            let why = format!("{SKIPPED}it is not installed: {}", program.install);
            self.miss(program.name.to_owned(), &why);
        }
        is_there
    }

    /// Prints a failure and adds it to the results. The lines of `failure` after the first are a
    /// log.
    fn miss(&mut self, what: String, failure: &str) {
        let (why, log) = failure.split_once('\n').unwrap_or((failure, ""));
        let log = shell::end_of(log, LOG_LINES);
        let why = why.to_owned();
        let missing = Missing { what, why, log };
        if !self.results.missing.contains(&missing) {
            println!(
                "bench: missing: {}: {}\n{}",
                missing.what, missing.why, missing.log
            );
            self.results.missing.push(missing);
        }
    }

    /// Starts a server, runs its jobs and stops it.
    fn run_group(&mut self, group: &Group, repeat: u32) -> Result<()> {
        let rig = Rig::build(group.spec.tuning)?;
        let tables = usage::kernel_tables();
        let (mut server, processes) = group.spec.start(&rig, &self.content)?;
        for job in &group.jobs {
            interrupt::check()?;
            self.done += 1;
            let title = format!("{}: {} {} {}", job.line, job.figure, job.x, job.panel);
            if let Some(why) = group.spec.cannot(&job.load) {
                self.miss(title, &format!("{SKIPPED}{why}"));
                continue;
            }
            print!("[{:3}/{}] {title}: ", self.done, self.all);
            // The result is ignored, because a failure to print progress does not matter.
            let _ = std::io::stdout().flush();
            let outcome = self.measure(group, job, &rig, &processes, tables);
            if let Some(status) = server.ended()? {
                let output = server.output();
                bail!("it ended by itself with {status}\n{output}");
            }
            match outcome {
                Ok(run) => {
                    println!("{}", summary(&run));
                    self.results.runs.push(Run { repeat, ..run });
                }
                Err(failure) => {
                    println!("failed");
                    interrupt::check()?;
                    self.miss(title, &format!("{failure:#}"));
                }
            }
        }
        group.spec.stop(server, &processes)
    }

    /// Runs one job. `tables` is the size of the kernel's tables before the server started, in
    /// bytes.
    fn measure(
        &self,
        group: &Group,
        job: &Job,
        rig: &Rig,
        processes: &[i32],
        tables: u64,
    ) -> Result<Run> {
        let is_cold = job.load.contains(IN_TURN);
        let mut most = u64::MAX;
        if let Serves::OnDisk(Some(len)) = group.spec.serves {
            shell::set_cached(&self.content.on_disk(len)?, !is_cold)?;
            if is_cold {
                most = u64::from(files_on_disk(len));
            }
        }
        rig.pin_receivers()?;
        let mut receivers = Vec::new();
        let mut samples = Vec::new();
        let mut memory = 0;
        let before = self.counts(group, rig)?;
        let (open, lengths) = (group.spec.connections, [job.warm_up, job.seconds]);
        let load = generators::run(&job.load, open, rig, &self.content, lengths, || {
            let sample = if samples.is_empty() {
                // Attaching the generator's XDP program may have created new threads.
                rig.pin_receivers().and_then(|threads| {
                    receivers = threads;
                    Sample::take(processes, &receivers)
                })
            } else {
                let grown = usage::kernel_tables().saturating_sub(tables);
                memory = usage::resident(processes) + grown;
                Sample::take(processes, &receivers)
            };
            samples.push(sample);
        })?;
        let after = self.counts(group, rig)?;
        let samples = samples.into_iter().collect::<Result<Vec<_>>>()?;
        let [first, last] = &samples[..] else {
            bail!("the load did not report its measured part");
        };
        if load.completed == 0 {
            bail!("no request was answered; errors: {:?}", load.errors);
        }
        if load.completed > most {
            bail!(
                "more than {most} requests, so files came from the page cache: take fewer --seconds"
            );
        }
        // If the server polls, the kernel's threads have nothing to do, so this check does not apply.
        let has_receivers = !group.spec.polls() && group.spec.tuning.has_receivers();
        if has_receivers && !first.received_until(last) {
            bail!(
                "the kernel received nothing for {SERVER_LINK} on core {SERVER_CORE}, so another \
                 core did its work"
            );
        }
        Ok(Run {
            figure: job.figure.to_owned(),
            panel: job.panel.to_owned(),
            server: job.line.to_owned(),
            x: job.x,
            cost: first.cost_until(last, load.completed),
            memory,
            load,
            refused: share_refused(before.0, after.0),
            lost: (group.spec.tuning.unqueued).then(|| share_lost(before, after)),
            ..Run::default()
        })
    }

    /// Counts the frames that the server's link has sent and refused, and those that our server knows to be
    /// lost. The link drops each frame that it refuses, and other servers do not send it again.
    fn counts(&self, group: &Group, rig: &Rig) -> Result<Counts> {
        let (of_link, program) = (rig.sent_and_refused()?, group.spec.program);
        if !group.spec.tuning.unqueued || !program.is_ours() {
            return Ok((of_link, None));
        }
        let path = self.content.programs.join(program.executable());
        let mut status = rig.server_command(path);
        let text = shell::capture_text(status.args(["status", "--json"]))?;
        let lost = lost_in(&text).context("the status has no dropped packets")?;
        Ok((of_link, Some(lost)))
    }

    /// Saves the results so far, so that an interrupted comparison does not lose them.
    fn save(&self) -> Result<()> {
        let path = self.folder.join(RESULTS);
        let part = self.folder.join("results.json.part");
        let text = serde_json::to_string_pretty(&self.results).context("writing the results")?;
        fs::write(&part, text).with_context(|| format!("writing {}", part.display()))?;
        fs::rename(&part, &path).with_context(|| format!("writing {}", path.display()))
    }
}

/// Returns the share of frames that the server's link has refused between two counts.
fn share_refused(before: [u64; 2], after: [u64; 2]) -> f64 {
    let [sent, refused] = [0, 1].map(|n| after[n].saturating_sub(before[n]) as f64);
    refused / (sent + refused).max(1.0)
}

/// Numbers of frames that the link has sent and refused, and of those that the server knows to be lost.
type Counts = ([u64; 2], Option<u64>);

/// Returns the share of frames that were lost between two counts. If the server knows of none, all refused
/// frames are lost.
fn share_lost(before: Counts, after: Counts) -> f64 {
    let refused = share_refused(before.0, after.0);
    let Some((known_before, known)) = before.1.zip(after.1) else {
        return refused;
    };
    let lost = known.saturating_sub(known_before) as f64;
    let sent = after.0[0].saturating_sub(before.0[0]) as f64;
    lost / (sent + lost).max(1.0)
}

/// The names of the port's counts of lost frames, as `crates/control/src/report.rs` has them.
const LOST: [&str; 2] = ["lost by the driver", "refused by the kernel"];

/// Returns the number of lost frames in the JSON of our server's `status`.
fn lost_in(status: &str) -> Option<u64> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let mut lost = 0;
    for worker in status["workers"].as_array()? {
        for drop in worker["drops"].as_array()? {
            if drop["name"]
                .as_str()
                .is_some_and(|name| LOST.contains(&name))
            {
                lost += drop["count"].as_u64()?;
            }
        }
    }
    Some(lost)
}

fn summary(run: &Run) -> String {
    let (cost, Load { rate, errors, .. }) = (&run.cost, &run.load);
    let errors = match errors.values().sum::<u64>() {
        0 => String::new(),
        n => format!(", {n} errors"),
    };
    let (core, user, busy) = (cost.core_us, cost.user_us, cost.busy * 100.0);
    let foreign = if cost.foreign > BUSY {
        format!(", {:.0} % with other work", cost.foreign * 100.0)
    } else {
        String::new()
    };
    format!(
        "{rate:.0}/s, {core:.2} µs each ({user:.2} user), core {busy:.0} % busy{foreign}{errors}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_frames_are_those_that_were_not_sent_again() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(share_lost(([0, 0], None), ([90, 10], None)), 0.1));
        let before = ([10, 0], Some(5));
        assert!(close(share_lost(before, ([109, 50], Some(6))), 0.01));
    }

    #[test]
    fn lost_frames_are_read_from_the_status() {
        let worker = r#"{"drops": [{"program": "port", "name": "lost by the driver", "count": 3},
            {"program": "sandstorm", "name": "fragment", "count": 5}]}"#;
        assert_eq!(
            lost_in(&format!(r#"{{"workers": [{worker}, {worker}]}}"#)),
            Some(6)
        );
        assert_eq!(lost_in("{}"), None);
    }

    #[test]
    fn lost_frames_have_the_names_that_the_status_gives_them() {
        let report = crate::shell::repository().join("crates/control/src/report.rs");
        let report = std::fs::read_to_string(report).unwrap();
        for name in LOST {
            assert!(report.contains(&format!("(\"{name}\", port.")), "{name}");
        }
    }
}
