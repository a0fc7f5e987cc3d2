//! Which runs a figure is made of.

use super::content::FILES;
use super::generators::{BURST, Fetch, Generator, Http, Lengths, Pace};
use super::options::Options;
use super::rig::Tuning;
use super::servers::{Program, Serves, Spec};

/// One point of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) figure: &'static str,
    pub(crate) panel: String,
    pub(crate) x: f64,
    /// The chart's line, where it is not the server's name.
    pub(crate) line: Option<&'static str>,
    pub(crate) generator: Generator,
    pub(crate) lengths: Lengths,
    /// System calls are counted as well, in a run of its own.
    pub(crate) calls: bool,
}

/// A server, and what is run while it is up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) spec: Spec,
    pub(crate) tuning: Tuning,
    pub(crate) jobs: Vec<Job>,
}

/// Servers that are compared with each other: each is run once, then each
/// again, so often.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Set {
    pub(crate) groups: Vec<Group>,
    pub(crate) repeats: u32,
}

const TURNAROUND: Program = Program::Namestorm {
    mode: "turnaround",
    hash: "wire",
};
const MEMCOPY: Program = Program::Sandstorm { mode: "memcopy" };
const PRE_COPY: Program = Program::Sandstorm { mode: "pre-copy" };
const NGINX: Program = Program::Nginx { busy_poll: false };

/// Datagrams under way in a closed loop: enough that no server waits, and few
/// enough that all fit into the 256 places of a veth queue.
const WINDOW: Pace = Pace::Closed(240);

/// Queries a second at which costs are compared: all peers reach the first,
/// those with `AF_XDP` the second.
const DNS_RATE: u32 = 100_000;
const DNS_HIGH_RATE: u32 = 400_000;

/// A query for a name among a hundred, as a frame; the limit at its size
/// stands beside it.
const QUERY_FRAME: u32 = 77;

/// Connections while costs are compared.
const COST_CONNECTIONS: u32 = 64;

/// Requests a second at which costs are compared, by file: near what nginx
/// reaches, with keep-alive and with new connections.
const WEB_RATES: &[(&str, u32, u32)] = &[
    ("1k", 50_000, 20_000),
    ("4k", 45_000, 16_000),
    ("16k", 16_000, 9_000),
    ("64k", 10_000, 6_000),
];

/// Connections that keep asking while others are idle.
const ACTIVE_CONNECTIONS: u32 = 16;

/// From so many connections on a run is not repeated: opening them is long.
const UNREPEATED_CONNECTIONS: u32 = 100_000;

/// Responses on each connection in a run over the kernel's offloads, and bytes a
/// second that come of them there at least.
const LEAST_RESPONSES: f64 = 3.0;
const RATE_OF_LINK: f64 = 1.5e9;

/// Clients whose packets are lost.
const LOSS_CONNECTIONS: u32 = 80;

/// Most connections where no figure asks for more.
const USUAL_CONNECTIONS: u32 = 8_192;

/// Connections that a server must be able to hold beside the idle ones.
const SPARE_CONNECTIONS: u32 = 1_024;

/// Names of the zone in figures that are about other things.
const USUAL_NAMES: u32 = 10_000;

struct Planner<'a> {
    options: &'a Options,
    sets: Vec<Set>,
}

/// Everything that the options ask for, in the order in which it is run.
pub(crate) fn plan(options: &Options) -> Vec<Set> {
    let mut planner = Planner {
        options,
        sets: Vec::new(),
    };
    planner.limit();
    planner.zones();
    planner.dns_batch();
    planner.web_cost();
    planner.web_sizes();
    planner.web_offload();
    planner.web_mix();
    planner.web_loss();
    planner.delta_t();
    planner.connections();
    planner.agreement();
    let mut sets = planner.sets;
    for set in &mut sets {
        set.groups.retain(|group| {
            !group.jobs.is_empty()
                && group
                    .spec
                    .program
                    .name()
                    .to_lowercase()
                    .contains(&options.server.to_lowercase())
        });
    }
    sets.retain(|set| !set.groups.is_empty());
    sets
}

/// A number as a person writes it in a label.
fn thousands(n: u32) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size as a person writes it in a label.
fn size_label(file: &str) -> String {
    match file.strip_suffix('k') {
        Some(number) => format!("{number} KB"),
        None => match file.strip_suffix('m') {
            Some(number) => format!("{number} MB"),
            None => format!("{file} B"),
        },
    }
}

fn size_of(file: &str) -> f64 {
    let size = FILES.iter().find(|(name, _)| *name == file);
    size.map_or(0.0, |&(_, size)| size as f64)
}

fn spec(program: Program, serves: Serves) -> Spec {
    Spec {
        program,
        serves,
        arguments: Vec::new(),
        connections: USUAL_CONNECTIONS,
    }
}

fn group(program: Program, serves: Serves, jobs: Vec<Job>) -> Group {
    Group {
        spec: spec(program, serves),
        tuning: Tuning {
            offloads: false,
            deferred: program == Program::Nginx { busy_poll: true },
        },
        jobs,
    }
}

impl Planner<'_> {
    fn quick(&self) -> bool {
        self.options.quick
    }

    /// `full`, or in a quick run `quick`.
    fn points<T: Copy>(&self, full: &[T], quick: &[T]) -> Vec<T> {
        if self.quick() { quick } else { full }.to_vec()
    }

    /// Runs that the first marks are read from take longer.
    fn lengths(&self, marks: bool) -> Lengths {
        let measured = match (self.options.seconds, self.quick(), marks) {
            (Some(seconds), ..) => seconds,
            (None, true, _) => 1.0,
            (None, false, false) => 1.5,
            (None, false, true) => 3.0,
        };
        Lengths {
            warm_up: if self.quick() { 0.3 } else { 0.4 },
            measured,
        }
    }

    fn job(&self, figure: &'static str, x: f64, panel: impl Into<String>, of: Generator) -> Job {
        let marks = ["limit", "dns-cost", "web-cost"].contains(&figure);
        Job {
            figure,
            panel: panel.into(),
            x,
            line: None,
            generator: of,
            lengths: self.lengths(marks),
            calls: ["dns-cost", "web-cost", "web-sizes"].contains(&figure),
        }
    }

    fn add(&mut self, groups: Vec<Group>) {
        let repeats = if self.quick() { 1 } else { 3 };
        self.sets.push(Set {
            groups,
            repeats: self.options.repeats.unwrap_or(repeats),
        });
    }

    fn echo(&self, size: u32) -> Job {
        let generator = Generator::Echo { size, pace: WINDOW };
        self.job("limit", f64::from(size), "", generator)
    }

    fn limit(&mut self) {
        if !self.options.wants("limit") {
            return;
        }
        for size in self.points(&[64, 128, 256, 512, 1_024, 1_514], &[64, 1_514]) {
            let jobs = vec![self.echo(size)];
            self.add(vec![group(Program::Reflect, Serves::Echo, jobs)]);
        }
    }

    /// Costs and rates by the size of the zone.
    fn zones(&mut self) {
        let (cost, names) = (
            self.options.wants("dns-cost"),
            self.options.wants("dns-names"),
        );
        if !cost && !names {
            return;
        }
        let cost_zones = self.points(&[100, 1_000_000], &[100]);
        let all = self.points(&[1, 10, 100, 1_000, 10_000, 1_000_000], &[100, 10_000]);
        for zone in all {
            let cost = cost && cost_zones.contains(&zone);
            if !cost && !names {
                continue;
            }
            let mut groups = Vec::new();
            if zone == 100 {
                let mut jobs = vec![self.echo(QUERY_FRAME)];
                if cost {
                    // What the rig itself costs, whoever answers.
                    let echo = |pace| Generator::Echo {
                        size: QUERY_FRAME,
                        pace,
                    };
                    jobs.extend(self.cost_jobs(f64::from(zone), true, echo));
                }
                groups.push(group(Program::Reflect, Serves::Echo, jobs));
            }
            for program in self.dns_programs(names) {
                let jobs = self.zone_jobs(program, zone, cost, names);
                groups.push(group(program, Serves::Zone(zone), jobs));
            }
            self.add(groups);
        }
    }

    fn dns_programs(&self, every_mode: bool) -> Vec<Program> {
        let mut programs = vec![
            TURNAROUND,
            Program::Knot { xdp: true },
            Program::Knot { xdp: false },
            Program::Nsd { xdp: false },
            Program::Bind,
        ];
        if self.options.nsd_xdp.is_some() {
            programs.push(Program::Nsd { xdp: true });
        }
        if every_mode && !self.quick() {
            for mode in ["turnaround", "memcopy", "pre-copy"] {
                for hash in ["wire", "fqdn"] {
                    programs.push(Program::Namestorm { mode, hash });
                }
            }
            programs.dedup();
            let again = programs.iter().rposition(|program| *program == TURNAROUND);
            again.map(|again| programs.remove(again));
        }
        programs
    }

    fn zone_jobs(&self, program: Program, zone: u32, cost: bool, names: bool) -> Vec<Job> {
        let x = f64::from(zone);
        let dns = |pace| Generator::Dns { names: zone, pace };
        let mut jobs = Vec::new();
        let is_main = matches!(
            program,
            TURNAROUND | Program::Knot { .. } | Program::Nsd { .. } | Program::Bind
        );
        if cost && is_main {
            let is_fast = matches!(
                program,
                TURNAROUND | Program::Knot { xdp: true } | Program::Nsd { xdp: true }
            );
            jobs.extend(self.cost_jobs(x, is_fast, dns));
        }
        if names {
            jobs.push(self.job("dns-names", x, "", dns(WINDOW)));
        }
        jobs
    }

    /// One datagram answered, at fixed rates.
    fn cost_jobs(&self, x: f64, is_fast: bool, of: impl Fn(Pace) -> Generator) -> Vec<Job> {
        let panel = |rate| format!("{} queries/s", thousands(rate));
        let bursts = format!("{} in bursts of {BURST}", panel(DNS_RATE));
        let mut jobs = vec![
            self.job("dns-cost", x, panel(DNS_RATE), of(Pace::Rate(DNS_RATE))),
            self.job("dns-cost", x, bursts, of(Pace::Bursts(DNS_RATE))),
        ];
        if is_fast && !self.quick() {
            let high = of(Pace::Rate(DNS_HIGH_RATE));
            jobs.push(self.job("dns-cost", x, panel(DNS_HIGH_RATE), high));
        }
        jobs
    }

    fn dns_batch(&mut self) {
        if !self.options.wants("dns-batch") {
            return;
        }
        let batches = self.points(&[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 32, 256]);
        let groups = batches.into_iter().map(|batch: u32| {
            let generator = Generator::Dns {
                names: USUAL_NAMES,
                pace: WINDOW,
            };
            let jobs = vec![self.job("dns-batch", f64::from(batch), "", generator)];
            let mut group = group(TURNAROUND, Serves::Zone(USUAL_NAMES), jobs);
            group.spec.arguments = vec!["--batch".into(), batch.to_string()];
            group
        });
        let groups = groups.collect();
        self.add(groups);
    }

    fn web_cost(&mut self) {
        if !self.options.wants("web-cost") {
            return;
        }
        let rates = self.points(WEB_RATES, &[WEB_RATES[0], WEB_RATES[3]]);
        for (file, keep_alive, new_connections) in rates {
            let programs = [
                MEMCOPY,
                NGINX,
                Program::Nginx { busy_poll: true },
                Program::Lighttpd,
                Program::H2o,
                PRE_COPY,
            ];
            let programs = self.points(&programs, &programs[..5]);
            let http = |requests, rate| {
                Generator::Http(Http {
                    requests,
                    rate,
                    ..Http::closed(Fetch::File(file), COST_CONNECTIONS)
                })
            };
            let groups = programs.into_iter().map(|program| {
                let x = size_of(file);
                let mut jobs = vec![
                    self.job("web-cost", x, "keep-alive", http(0, Some(keep_alive))),
                    self.job(
                        "web-cost",
                        x,
                        "new connection",
                        http(1, Some(new_connections)),
                    ),
                ];
                if file == "1k" {
                    let full =
                        |panel, requests| self.job("web-cost", x, panel, http(requests, None));
                    jobs.push(full("keep-alive, full rate", 0));
                    jobs.push(full("new connection, full rate", 1));
                }
                // Counting takes as long as measuring.
                for job in jobs.iter_mut().filter(|_| self.quick()) {
                    job.calls &= file == "1k" && job.panel == "keep-alive";
                }
                group(program, Serves::Files, jobs)
            });
            let groups = groups.collect();
            self.add(groups);
        }
    }

    fn web_sizes(&mut self) {
        if !self.options.wants("web-sizes") {
            return;
        }
        let files = self.points(
            &["1k", "4k", "16k", "64k", "256k", "1m"],
            &["1k", "64k", "1m"],
        );
        for file in files {
            let at = |connections: &[u32]| -> Vec<Job> {
                let job = |&n: &u32| {
                    let panel = match n {
                        1 => "1 connection".to_owned(),
                        n => format!("{} connections", thousands(n)),
                    };
                    let http = Generator::Http(Http::closed(Fetch::File(file), n));
                    let mut job = self.job("web-sizes", size_of(file), panel, http);
                    job.calls &= n == 16 && !self.quick();
                    job
                };
                connections.iter().map(job).collect()
            };
            let all = self.points(&[1, 16, 256, 1_024], &[16]);
            let mut groups = Vec::new();
            for program in [MEMCOPY, NGINX, PRE_COPY] {
                groups.push(group(program, Serves::Files, at(&all)));
            }
            if !self.quick() {
                for program in [Program::Lighttpd, Program::H2o] {
                    groups.push(group(program, Serves::Files, at(&[16])));
                }
            }
            self.add(groups);
        }
    }

    /// The same with segmentation and checksum offloads, as a kernel's server
    /// has them in real life and ours sends super-segments. `AF_XDP` at the
    /// client's end would take them away, so the client is a kernel's as well.
    /// A part of the points, unless the figure is asked for by its name.
    fn web_offload(&mut self) {
        if !self.options.wants("web-offload") {
            return;
        }
        let whole = self.options.names("web-offload");
        let files: &[&str] = if whole {
            &["1k", "4k", "16k", "64k", "256k", "1m", "30m"]
        } else {
            &["1k", "16k", "64k", "1m", "30m"]
        };
        for file in self.points(files, &["64k"]) {
            let connections: &[u32] = match file {
                _ if whole || file == "64k" => &[1, 16, 256, 1_024],
                "30m" => &[16],
                _ => &[16, 1_024],
            };
            let connections = self.points(connections, &[16]);
            let offloaded = |program, connections: &[u32]| {
                let job = |&n: &u32| self.offload_job(file, n);
                let jobs = connections.iter().map(job).collect();
                let mut group = group(program, Serves::Files, jobs);
                group.tuning.offloads = true;
                group
            };
            let mut groups = vec![
                offloaded(MEMCOPY, &connections),
                offloaded(NGINX, &connections),
            ];
            if whole && !self.quick() {
                groups.push(offloaded(Program::Lighttpd, &[16]));
                groups.push(offloaded(Program::H2o, &[16]));
            }
            self.add(groups);
        }
    }

    fn offload_job(&self, file: &'static str, connections: u32) -> Job {
        let panel = match connections {
            1 => "1 connection, wrk".to_owned(),
            n => format!("{} connections, wrk", thousands(n)),
        };
        let generator = Generator::Wrk {
            file,
            connections,
            new_connections: false,
        };
        let size = size_of(file);
        let mut job = self.job("web-offload", size, panel, generator);
        job.calls = false;
        if self.options.seconds.is_none() {
            // Responses of all connections come to their ends several times.
            let least = size * f64::from(connections) * LEAST_RESPONSES / RATE_OF_LINK;
            job.lengths.measured = job.lengths.measured.max(least);
        }
        job
    }

    fn web_mix(&mut self) {
        if !self.options.wants("web-mix") {
            return;
        }
        for connections in self.points(&[16, 64, 256], &[64]) {
            let programs = [MEMCOPY, NGINX, PRE_COPY, Program::Lighttpd, Program::H2o];
            let programs = self.points(&programs, &programs[..2]);
            let groups = programs.into_iter().map(|program| {
                let http = Generator::Http(Http::closed(Fetch::Mix, connections));
                let job = self.job("web-mix", f64::from(connections), "", http);
                group(program, Serves::Mix, vec![job])
            });
            let groups = groups.collect();
            self.add(groups);
        }
    }

    fn web_loss(&mut self) {
        if !self.options.wants("web-loss") {
            return;
        }
        for file in self.points(&["1k", "16k", "64k", "1m"], &["16k"]) {
            let programs = [MEMCOPY, NGINX, PRE_COPY];
            let programs = self.points(&programs, &programs[..2]);
            let groups = programs.into_iter().map(|program| {
                let http = Generator::Http(Http {
                    fault: Some("drop=0.01,seed=1"),
                    ..Http::closed(Fetch::File(file), LOSS_CONNECTIONS)
                });
                let job = self.job("web-loss", size_of(file), "", http);
                group(program, Serves::Files, vec![job])
            });
            let groups = groups.collect();
            self.add(groups);
        }
    }

    fn delta_t(&mut self) {
        if !self.options.wants("delta-t") {
            return;
        }
        let web = ["1k", "64k"].map(|file| {
            (
                MEMCOPY,
                Serves::Files,
                format!("HTTP, {}, {COST_CONNECTIONS} connections", size_label(file)),
                Generator::Http(Http::closed(Fetch::File(file), COST_CONNECTIONS)),
            )
        });
        let dns = (
            TURNAROUND,
            Serves::Zone(USUAL_NAMES),
            format!("DNS, {} names", thousands(USUAL_NAMES)),
            Generator::Dns {
                names: USUAL_NAMES,
                pace: WINDOW,
            },
        );
        for (program, serves, panel, generator) in web.into_iter().chain([dns]) {
            let intervals = self.points(&[0, 20, 40, 80, 160, 320], &[0, 80, 320]);
            let groups = intervals.into_iter().map(|us: u32| {
                let job = self.job("delta-t", f64::from(us), panel.clone(), generator.clone());
                let mut group = group(program, serves, vec![job]);
                group.spec.arguments = vec!["--flush-interval-us".into(), us.to_string()];
                group
            });
            let groups = groups.collect();
            self.add(groups);
        }
    }

    fn connections(&mut self) {
        if !self.options.wants("connections") {
            return;
        }
        let all = self.points(&[1_000, 10_000, 100_000, 1_000_000], &[1_000, 10_000]);
        for connections in all {
            let programs = [MEMCOPY, NGINX, Program::Lighttpd, Program::H2o];
            let programs = self.points(&programs, &programs[..2]);
            let groups = programs.into_iter().map(|program| {
                let http = Generator::Http(Http {
                    idle: connections,
                    ..Http::closed(Fetch::File("1k"), ACTIVE_CONNECTIONS)
                });
                let job = self.job("connections", f64::from(connections), "", http);
                let mut group = group(program, Serves::Files, vec![job]);
                group.spec.connections = connections + SPARE_CONNECTIONS;
                if program == MEMCOPY {
                    group.spec.arguments = vec![
                        "--max-connections".into(),
                        group.spec.connections.to_string(),
                        "--idle-timeout".into(),
                        "3600".into(),
                    ];
                }
                group
            });
            let groups = groups.collect();
            self.add(groups);
            if connections >= UNREPEATED_CONNECTIONS
                && let Some(set) = self.sets.last_mut()
            {
                set.repeats = 1;
            }
        }
    }

    /// Our generators beside those of others, on servers that are not their
    /// limit.
    fn agreement(&mut self) {
        if !self.options.wants("agreement") {
            return;
        }
        let names = 100;
        let mut jobs = Vec::new();
        for rate in self.points(&[50_000, 100_000, 200_000, 400_000], &[100_000]) {
            let panel = "DNS, namestorm, fixed rate";
            let mut others = vec![
                (
                    "load dns",
                    Generator::Dns {
                        names,
                        pace: Pace::Rate(rate),
                    },
                ),
                (
                    "load dns, bursts",
                    Generator::Dns {
                        names,
                        pace: Pace::Bursts(rate),
                    },
                ),
                ("kxdpgun", Generator::Kxdpgun { names, rate }),
            ];
            // It measures itself above.
            if rate <= DNS_RATE {
                others.push(("dnsperf", Generator::Dnsperf { names, rate }));
            }
            for (line, generator) in others {
                let mut job = self.job("agreement", f64::from(rate), panel, generator);
                job.line = Some(line);
                jobs.push(job);
            }
        }
        self.add(vec![group(TURNAROUND, Serves::Zone(names), jobs)]);
        let mut jobs = Vec::new();
        for file in self.points(&["1k", "64k"], &["64k"]) {
            let panel = format!("HTTP, nginx, {}, 16 connections", size_label(file));
            let wrk = Generator::Wrk {
                file,
                connections: 16,
                new_connections: false,
            };
            let ours = Generator::Http(Http::closed(Fetch::File(file), 16));
            for (line, generator) in [("load http", ours), ("wrk", wrk)] {
                let mut job = self.job("agreement", 0.0, panel.clone(), generator);
                job.line = Some(line);
                jobs.push(job);
            }
        }
        self.add(vec![group(NGINX, Serves::Files, jobs)]);
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
