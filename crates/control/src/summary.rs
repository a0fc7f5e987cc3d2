//! The summary of a run, after the workers have ended.

use std::time::{Duration, Instant};

use nmio::{FaultCounters, PortCounters};

use crate::live;
use crate::program::Tally;
use crate::report::{self, Block};
use crate::worker::Ended;

/// Counts of a server from its start to its end.
#[derive(Clone, Debug)]
pub struct Summary {
    uptime: Duration,
    port: PortCounters,
    tally: Tally,
    /// Lines about `--fault`, `--pcap` and logs that lost lines at the end, each a label and a value.
    diagnosis: Vec<(&'static str, String)>,
}

impl Summary {
    pub(crate) fn new(started: Instant, ended: &[Ended]) -> Self {
        let mut tally = Tally::default();
        let mut diagnosis = Vec::new();
        for one in ended {
            tally.merge(&one.tally);
            if let Some((received, sent)) = &one.faults {
                diagnosis.push(("faults received", faults(received)));
                diagnosis.push(("faults sent", faults(sent)));
            }
            if let Some(capture) = &one.capture {
                let mut text = format!("{}, {} frames", capture.path.display(), capture.packets);
                if let Some(why) = &capture.stopped {
                    text += "; ended early: ";
                    text += why;
                }
                diagnosis.push(("capture", text));
            }
        }
        Self {
            uptime: started.elapsed(),
            port: live::add_up(ended.iter().map(|one| &one.counters)),
            tally,
            diagnosis,
        }
    }

    /// Adds lines, each a label and a value.
    pub(crate) fn add(&mut self, lines: Vec<(&'static str, String)>) {
        self.diagnosis.extend(lines);
    }

    /// Time for which the workers served.
    pub fn uptime(&self) -> Duration {
        self.uptime
    }

    /// Sum of the counts of all workers' ports.
    pub fn port(&self) -> &PortCounters {
        &self.port
    }

    /// Sum of the tallies of all workers, by name.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the summary as a block of text for the operator.
    pub fn block(&self) -> Block {
        let mut block = report::summary(self.uptime, &self.port, &self.tally);
        for (label, value) in &self.diagnosis {
            block.line(*label, value.clone());
        }
        block
    }
}

fn faults(counters: &FaultCounters) -> String {
    let FaultCounters {
        frames,
        dropped,
        duplicated,
        reordered,
        corrupted,
    } = counters;
    format!(
        "of {frames} frames {dropped} dropped, {duplicated} duplicated, {reordered} reordered, \
         {corrupted} corrupted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_are_added_and_each_worker_has_its_own_fault_lines() {
        let ended = [1, 2].map(|frames| {
            let mut ended = Ended {
                faults: Some((FaultCounters::default(), FaultCounters::default())),
                ..Ended::default()
            };
            ended.counters.rx_frames = frames;
            ended.tally.event("requests", frames + 2);
            ended
        });
        let summary = Summary::new(Instant::now(), &ended);
        assert_eq!(summary.port().rx_frames, 3);
        assert_eq!(summary.tally().of("requests"), Some(7));
        let text = summary.block().to_string();
        assert!(text.contains("3 frames"), "{text}");
        assert_eq!(text.matches("faults received").count(), 2, "{text}");
    }
}
