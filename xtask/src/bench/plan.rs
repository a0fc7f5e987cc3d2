//! The figures of the report, and the runs that each figure needs.

use super::Selection;
use super::content::{HOSTER, files_on_disk};
use super::results::Quantity::{
    self, Cost, Lost, Memory, P50, P99, P999, Rate, Refused, Throughput,
};
use super::rig::{Interrupts, Tuning};
use super::servers::{
    BIND, CADDY, DNS_SERVERS, H2O, KNOT, KNOT_XDP, LIGHTTPD, NGINX, NGINX_AIO, NGINX_BUSY_POLL,
    NGINX_UNCORKED, NSD, Program, REFLECT, SANDSTORM, SANDSTORM_PRECOPY, STATIC_WEB_SERVER, Serves,
    Spec, TURNAROUND,
};

/// A figure of the report.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// Heading in the report, without the load generators.
    pub(crate) title: &'static str,
    /// Label of the figure's variable, which is on the x axis.
    pub(crate) x: &'static str,
    /// Quantities with a table on the Markdown page. The HTML page also has charts of these
    /// quantities and of the p99 latency.
    pub(crate) tables: &'static [Quantity],
    /// Groups on the command line that include the figure, such as `web`.
    groups: &'static [&'static str],
}

macro_rules! figures {
    ($($name:literal, $title:literal, $x:literal, $tables:expr, $groups:expr;)+) => {
        &[$(Figure { name: $name, title: $title, x: $x, tables: &$tables, groups: &$groups }),+]
    };
}

/// All figures, in the order of the report.
#[rustfmt::skip]
pub(crate) const FIGURES: &[Figure] = figures![
    "limit", "Limit of the rig: the reflector", "frame, bytes", [Rate], ["all"];
    "dns-cost", "DNS at fixed rates: cost of an answer", "names", [Cost], ["dns", "all"];
    "dns-names", "DNS at full rate, by zone size (Figure 8a)", "names", [Rate], ["dns", "paper", "all"];
    "dns-batch", "DNS at full rate, by batch size (Figure 8b)", "frames in a batch", [Rate], ["dns", "paper", "all"];
    "dns-signed", "DNS at full rate: signatures, proofs and chains", "names", [Rate, Cost], ["signed", "all"];
    "dns-mix", "DNS at full rate: the mix of a root, a TLD and a hoster", "names, or zones", [Rate, Cost], ["signed", "all"];
    "dns-zones", "DNS at full rate: 100,000 names in one zone, or in a zone for each", "zones", [Rate, Cost], ["signed", "all"];
    "dns-limited", "DNS at full rate, with a limit of responses that drops none", "names", [Rate, Cost], ["signed", "all"];
    "dns-rates", "DNS at low rates", "answers per second", [Cost, P50, P99], ["even", "all"];
    "web-rates", "HTTP at low rates: a file of 1 KB", "requests per second", [Cost, P50, P99], ["even", "all"];
    "web-new", "HTTP at full rate: a connection for each request", "connections", [Rate, Cost], ["even", "all"];
    "web-bursts", "HTTP at full rate on links without a queueing discipline", "body", [Cost, P99, P999, Refused, Lost], ["even", "all"];
    "web-cost", "HTTP: cost of a request", "body", [Cost], ["web", "all"];
    "web-sizes", "HTTP at full rate, by file size (Figures 4 and 6)", "body", [Throughput, Cost], ["web", "paper", "all"];
    "web-forms", "HTTP at full rate: 304, a part, compressed forms", "body", [Cost, Rate], ["site", "all"];
    "web-files", "HTTP at full rate: many files of 1 KB, by a Zipf law", "files", [Cost, Rate, Memory], ["site", "all"];
    "web-disk", "HTTP at full rate: files on the disk, from a cold or a warm page cache", "body", [Cost, Rate], ["site", "all"];
    "web-offload", "HTTP with segmentation offload", "body", [Throughput, Cost], ["web", "all"];
    "web-mix", "HTTP, 1,000 files of a CDN's sizes (Figure 5)", "connections", [Throughput], ["web", "paper", "all"];
    "web-loss", "HTTP, 1 % of packets lost, 80 connections", "body", [Throughput], ["web", "paper", "all"];
    "delta-t", "Flush interval", "µs", [Rate], ["paper", "all"];
    "connections", "Open connections", "connections", [Rate, Memory], ["all"];
    "home", "At home: a veth pair as it comes", "names, or body", [Rate], ["all"];
    "agreement", "Our load generators beside others", "rate, or body", [Rate, Cost], ["all"];
];

/// Returns the names of figures and groups that the command line accepts.
pub(crate) fn words() -> Vec<&'static str> {
    let figures = FIGURES.iter().map(|figure| figure.name);
    let groups = ["dns", "signed", "web", "site", "even", "paper", "all"];
    groups.into_iter().chain(figures).collect()
}

/// Returns true if the selection includes the figure.
fn selects(words: &[String], figure: &Figure) -> bool {
    if words.is_empty() {
        return figure.name == "limit"
            || ["dns", "web"].iter().any(|one| figure.groups.contains(one));
    }
    words
        .iter()
        .any(|word| word == figure.name || figure.groups.contains(&word.as_str()))
}

/// What to run for one data point of a figure in the report, once per repeat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) figure: &'static str,
    pub(crate) panel: &'static str,
    pub(crate) x: f64,
    /// Name of the line in the report: the server, or the generator where generators are compared.
    pub(crate) line: &'static str,
    /// Program and arguments of the load generator. [`super::generators`] replaces the placeholders
    /// in braces.
    pub(crate) load: String,
    /// Duration of the load before the measured part, in seconds.
    pub(crate) warm_up: f64,
    /// Duration of the measured part in seconds.
    pub(crate) seconds: f64,
}

/// A server, and the jobs that run each time it is started.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) spec: Spec,
    pub(crate) jobs: Vec<Job>,
}

/// Servers to compare with each other. All of them run once before any of them runs again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Set {
    pub(crate) groups: Vec<Group>,
    pub(crate) repeats: u32,
}

/// Runs over the values of a variable. Each array of two has one entry for a full run and one for a
/// quick run.
struct Sweep {
    xs: [&'static [u32]; 2],
    programs: [&'static [&'static Program]; 2],
    serves: Serves,
    /// Further options for our own servers. `{x}` stands for the variable. `{connections}` stands
    /// for the number of connections to hold if the variable is the number of idle connections.
    options: &'static str,
    /// Whether the runs of all values form one [`Set`]. Otherwise each value has its own set.
    together: bool,
    tuning: Tuning,
    /// Whether DNS servers limit the rate of responses.
    limited: bool,
    rows: &'static [Row],
}

const SWEEP: Sweep = Sweep {
    xs: [&[]; 2],
    programs: [&[]; 2],
    serves: Serves::Files,
    options: "",
    together: false,
    tuning: Tuning::USUAL,
    limited: false,
    rows: &[],
};

const OFFLOADS: Tuning = Tuning {
    offloads: true,
    ..Tuning::USUAL
};
const PLAIN: Tuning = Tuning {
    plain: true,
    ..Tuning::USUAL
};
const UNTHREADED: Tuning = Tuning {
    unthreaded: true,
    ..Tuning::USUAL
};
const UNQUEUED: Tuning = Tuning {
    unqueued: true,
    ..Tuning::USUAL
};
const UNQUEUED_AND_UNTHREADED: Tuning = Tuning {
    unthreaded: true,
    ..UNQUEUED
};

/// Runs of a sweep that share a load and a panel of a figure.
struct Row {
    figure: &'static str,
    panel: &'static str,
    /// Load generator's command. `{x}` stands for the variable, and `{ask}` for the query that fits
    /// the server. `{count}` stands for the number of files on the disk. `{file}` and `{wrk}` stand for
    /// the options that request a file. `{kept}` and `{new}` stand for the rates in [`WEB_RATES`].
    load: &'static str,
    /// What a DNS server is asked, in the words of the load generator, and the size of the frames
    /// that the reflector gets instead. It is the mean of a query's and a reply's frame.
    asks: (&'static str, u32),
    /// Values of the variable to run. Empty means all.
    xs: &'static [u32],
    /// Number of programs to run. They are the first of the sweep's programs.
    programs: usize,
    /// Whether a quick run includes this row.
    quick: bool,
}

const fn row(figure: &'static str, panel: &'static str, load: &'static str) -> Row {
    Row {
        figure,
        panel,
        load,
        asks: ("plain", 77),
        xs: &[],
        programs: usize::MAX,
        quick: true,
    }
}

impl Row {
    /// Returns the load command with the plan's placeholders replaced.
    fn load(&self, x: u32, program: &Program) -> String {
        let rates = WEB_RATES.iter().find(|(size, _, _)| *size == x);
        let (kept, new) = rates.map_or((0, 0), |(_, kept, new)| (*kept, *new));
        let (kind, size) = self.asks;
        let ask = if *program == REFLECT {
            format!("echo --size {size}")
        } else if kind == "plain" {
            "dns --hosts {x}".to_owned()
        } else {
            format!("dns --kind {kind} --hosts {{x}}")
        };
        let wrk = |file| format!("-t 1 -s {{script}} -d {{seconds}} http://{{address}}/{file}.bin");
        let load = self.load.replace("{ask}", &ask);
        let load = load.replace("{ask 100}", &ask.replace("{x}", "100"));
        let load = load
            .replace("{wrk}", &wrk("{x}"))
            .replace("{wrk 1 KB}", &wrk("1024"));
        let load = load.replace("{file}", "--site {files} --path /{x}.bin");
        let load = load.replace("{1 KB}", "--site {files} --path /1024.bin");
        let load = load
            .replace("{kept}", &kept.to_string())
            .replace("{new}", &new.to_string());
        let load = load.replace("{count}", &files_on_disk(x.max(1)).to_string());
        load.replace("{x}", &x.to_string())
    }

    const fn only(self, xs: &'static [u32], programs: usize) -> Self {
        Self {
            xs,
            programs,
            ..self
        }
    }

    const fn asks(self, kind: &'static str, frame: u32) -> Self {
        Self {
            asks: (kind, frame),
            ..self
        }
    }

    const fn full(self) -> Self {
        Self {
            quick: false,
            ..self
        }
    }
}

const KB: u32 = 1 << 10;
const MB: u32 = 1 << 20;
const SIZES: &[u32] = &[KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB];
#[rustfmt::skip]
const ALL: &[&Program] = &[&SANDSTORM, &NGINX, &SANDSTORM_PRECOPY, &LIGHTTPD, &H2O, &NGINX_BUSY_POLL];
const WEB: [&[&Program]; 2] = [ALL.split_at(5).0, &[&SANDSTORM, &NGINX]];
const KERNEL: [&[&Program]; 2] = [&[&SANDSTORM, &NGINX, &LIGHTTPD, &H2O], WEB[1]];
/// Web servers for the figures of a static site. nginx runs with several settings, because
/// none of them is the cheapest for all responses.
#[rustfmt::skip]
const STATIC: &[&Program] = &[&SANDSTORM, &NGINX, &NGINX_UNCORKED, &NGINX_AIO, &H2O, &CADDY, &STATIC_WEB_SERVER];
const WEB_PAIR: [&[&Program]; 2] = [&[&SANDSTORM, &NGINX]; 2];
const INTERVALS: [&[u32]; 2] = [&[0, 20, 40, 80, 160, 320], &[0, 80, 320]];

/// Servers of signed zones, and the sizes of these zones in names.
const SIGNED: [&[&Program]; 2] = [&[&REFLECT, &TURNAROUND, &KNOT_XDP, &NSD, &BIND]; 2];
const SIGNED_ZONES: [&[u32]; 2] = [&[100, 1_000_000], &[100]];

/// Servers of many zones.
const ZONES: [&[&Program]; 2] = [&[&TURNAROUND, &KNOT_XDP, &NSD]; 2];

/// Zone sizes, in names, at which costs are compared at fixed rates.
const COST_ZONES: &[u32] = &[100, 1_000_000];

/// Request rates at which costs are compared. Columns: body size, rate with keep-alive, rate with
/// new connections. All rates are near nginx's limit.
const WEB_RATES: &[(u32, u32, u32)] = &[
    (KB, 50_000, 20_000),
    (4 * KB, 45_000, 16_000),
    (16 * KB, 16_000, 9_000),
    (64 * KB, 10_000, 6_000),
];

/// Duration of the load before the measured part, in seconds. With many files, caches of open files
/// need longer to fill.
const WARM_UP: f64 = 0.4;
const CACHE_WARM_UP: f64 = 10.0;

/// Number of connections above which runs are not repeated, because opening the connections takes
/// too long.
const UNREPEATED_CONNECTIONS: u32 = 100_000;

/// Number of connections that a server must hold in addition to idle ones. [`USUAL_CONNECTIONS`] is
/// the number in runs without idle ones.
const SPARE_CONNECTIONS: u32 = 1_024;
const USUAL_CONNECTIONS: u32 = 8_192;

/// Load that keeps 240 datagrams in flight. They keep every server busy, and fit into the 256 slots
/// of a veth queue.
const WINDOW: &str = "load {ask} --window 240";
/// The same for 100,000 names, in any number of zones.
const MANY_NAMES: &str = "load dns --hosts 100000 --window 240";

// All DNS servers reach 100,000 queries per second, and those with `AF_XDP`
// reach 400,000. With 16 connections or fewer, wrk also fetches the largest file. With more, it
// times out on most requests for that file.
#[rustfmt::skip]
const SWEEPS: &[Sweep] = &[
    Sweep { xs: [&[64, 128, 256, 512, 1_024, 1_514], &[64, 1_514]], programs: [&[&REFLECT]; 2], rows: &[
        row("limit", "", "load echo --size {x} --window 240"),
    ], ..SWEEP },
    Sweep { xs: [&[1, 10, 100, 1_000, 10_000, 1_000_000], &[100, 10_000]],
        programs: [DNS_SERVERS, DNS_SERVERS.split_at(6).0], serves: Serves::Zone(None), rows: &[
        row("dns-names", "", WINDOW),
        row("dns-cost", "100,000/s", "load {ask} --rate 100000").only(COST_ZONES, 6),
        row("dns-cost", "100,000/s in bursts of 32", "load {ask} --rate 100000 --burst 32").only(COST_ZONES, 6),
        row("dns-cost", "400,000/s", "load {ask} --rate 400000").only(COST_ZONES, 3).full(),
    ], ..SWEEP },
    Sweep { xs: [&[10_000, 50_000, 100_000], &[10_000]], programs: [DNS_SERVERS.split_at(6).0; 2], serves: Serves::Zone(Some(100)), rows: &[
        row("dns-rates", "", "load {ask 100} --rate {x}"),
    ], ..SWEEP },
    Sweep { xs: SIGNED_ZONES, programs: SIGNED, serves: Serves::ZoneOf("nsec", None), rows: &[
        row("dns-signed", "signed", WINDOW).asks("signed", 153),
        row("dns-signed", "NXDOMAIN with NSEC", WINDOW).asks("missing", 314),
        row("dns-signed", "wildcard with NSEC", WINDOW).asks("wildcard", 230),
        row("dns-signed", "two DNAMEs", WINDOW).asks("dname", 312),
    ], ..SWEEP },
    Sweep { xs: SIGNED_ZONES, programs: SIGNED, serves: Serves::ZoneOf("nsec3", None), rows: &[
        row("dns-signed", "NXDOMAIN with NSEC3", WINDOW).asks("missing", 445),
        row("dns-signed", "wildcard with NSEC3", WINDOW).asks("wildcard", 248),
    ], ..SWEEP },
    Sweep { xs: [&[1_500]; 2], programs: SIGNED, serves: Serves::ZoneOf("root", None), rows: &[
        row("dns-mix", "root", WINDOW).asks("root", 229),
    ], ..SWEEP },
    Sweep { xs: [&[1_000_000], &[10_000]], programs: SIGNED, serves: Serves::ZoneOf("tld", None), rows: &[
        row("dns-mix", "TLD", WINDOW).asks("tld", 217),
    ], ..SWEEP },
    Sweep { xs: [&[10_000], &[1_000]], programs: SIGNED, serves: Serves::ZoneOf(HOSTER, None), rows: &[
        row("dns-mix", "hoster", WINDOW).asks("hoster", 105),
    ], ..SWEEP },
    Sweep { xs: [&[1]; 2], programs: ZONES, serves: Serves::Zone(Some(100_000)), rows: &[
        row("dns-zones", "", MANY_NAMES),
    ], ..SWEEP },
    Sweep { xs: [&[100_000]; 2], programs: ZONES, serves: Serves::ZoneOf(HOSTER, None), rows: &[
        row("dns-zones", "", MANY_NAMES),
    ], ..SWEEP },
    Sweep { xs: [&[100]; 2], programs: [&[&REFLECT, &TURNAROUND, &KNOT_XDP, &KNOT, &NSD, &BIND]; 2], serves: Serves::Zone(None),
        limited: true, rows: &[
        row("dns-limited", "", WINDOW),
    ], ..SWEEP },
    Sweep { xs: [&[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 32, 256]], programs: [&[&TURNAROUND]; 2],
        serves: Serves::Zone(Some(10_000)), options: "--batch {x}", together: true, rows: &[
        row("dns-batch", "", "load dns --hosts 10000 --window 240"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 4 * KB, 16 * KB, 64 * KB], &[KB, 64 * KB]], programs: [ALL, &[&SANDSTORM, &NGINX, &NGINX_BUSY_POLL, &LIGHTTPD, &H2O]], rows: &[
        row("web-cost", "keep-alive", "load http {file} --connections 64 --rate {kept}"),
        row("web-cost", "new connection", "load http {file} --connections 64 --requests 1 --rate {new}"),
        row("web-cost", "keep-alive, full rate", "load http {file} --connections 64").only(&[KB], 6),
        row("web-cost", "new connection, full rate", "load http {file} --connections 64 --requests 1").only(&[KB], 6),
    ], ..SWEEP },
    Sweep { xs: [&[1_000, 10_000, 40_000, 50_000], &[10_000]], programs: WEB, rows: &[
        row("web-rates", "keep-alive", "load http {1 KB} --connections 64 --rate {x}").only(&[1_000, 10_000, 50_000], 5),
        row("web-rates", "new connection", "load http {1 KB} --connections 64 --requests 1 --rate {x}").only(&[1_000, 10_000, 40_000], 5),
    ], ..SWEEP },
    Sweep { xs: [&[16]; 2], programs: KERNEL, rows: &[
        row("web-new", "threads that receive", "wrk -c {x} -H Connection:close {wrk 1 KB}"),
    ], ..SWEEP },
    Sweep { xs: [&[16]; 2], programs: KERNEL, tuning: UNTHREADED, rows: &[
        row("web-new", "no such threads", "wrk -c {x} -H Connection:close {wrk 1 KB}"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 64 * KB, MB], &[64 * KB]], programs: WEB_PAIR, tuning: UNQUEUED, rows: &[
        row("web-bursts", "1 connection", "wrk -c 1 {wrk}").only(&[64 * KB, MB], 2),
        row("web-bursts", "16 connections", "wrk -c 16 {wrk}").only(&[64 * KB, MB], 2),
        row("web-bursts", "256 connections", "wrk -c 256 {wrk}"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 64 * KB, MB], &[64 * KB]], programs: WEB_PAIR, tuning: UNQUEUED_AND_UNTHREADED, rows: &[
        row("web-bursts", "1 connection, no threads that receive", "wrk -c 1 {wrk}").only(&[64 * KB, MB], 2),
        row("web-bursts", "16 connections, no threads that receive", "wrk -c 16 {wrk}").only(&[64 * KB, MB], 2),
        row("web-bursts", "256 connections, no threads that receive", "wrk -c 256 {wrk}"),
    ], ..SWEEP },
    Sweep { xs: [SIZES, &[KB, 64 * KB, MB]], programs: WEB, rows: &[
        row("web-sizes", "1 connection", "load http {file} --connections 1").only(SIZES, 3).full(),
        row("web-sizes", "16 connections", "load http {file} --connections 16"),
        row("web-sizes", "256 connections", "load http {file} --connections 256").only(SIZES, 3).full(),
        row("web-sizes", "1,024 connections", "load http {file} --connections 1024").only(SIZES, 3).full(),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 16 * KB]; 2], programs: [STATIC; 2], rows: &[
        row("web-forms", "304", "load http {file} --unchanged --connections 64").only(&[KB], 7),
        row("web-forms", "206 from 64 KB", "load http --site {files} --path /65536.bin --part {x} --connections 64").only(&[KB], 7),
        row("web-forms", "gzip", "load http --site {files} --path /{x}.html --coding gzip --connections 64").only(&[16 * KB], 7),
        row("web-forms", "br", "load http --site {files} --path /{x}.html --coding br --connections 64").only(&[16 * KB], 7),
    ], ..SWEEP },
    Sweep { xs: [&[1_000_000], &[20_000]], programs: [STATIC; 2], serves: Serves::Numbered(None), rows: &[
        row("web-files", "", "load http --numbered {x} --connections 64"),
    ], ..SWEEP },
    // Before a run, the page cache has no file if they are asked for in turn, or else all of them.
    Sweep { xs: [&[64 * KB, MB]; 2], programs: [STATIC; 2], serves: Serves::OnDisk(None), options: "--memory 64MiB", rows: &[
        row("web-disk", "cold", "load http --numbered {count} --length {x} --in-turn --connections 64"),
    ], ..SWEEP },
    Sweep { xs: [&[64 * KB, MB]; 2], programs: [STATIC; 2], serves: Serves::OnDisk(None), options: "--memory 64MiB", tuning: OFFLOADS, rows: &[
        row("web-disk", "cold, with offloads", "wrk -c 64 -t 1 -s {script in turn} -d {seconds} http://{address}/ -- --in-turn"),
    ], ..SWEEP },
    Sweep { xs: [&[64 * KB, MB]; 2], programs: [STATIC; 2], serves: Serves::OnDisk(None), options: "--memory 204MiB", rows: &[
        row("web-disk", "10 times the memory, by a Zipf law", "load http --numbered {count} --length {x} --connections 64"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 30 * MB], &[64 * KB]], programs: KERNEL, tuning: OFFLOADS, rows: &[
        row("web-offload", "1 connection", "wrk -c 1 {wrk}").only(&[], 2).full(),
        row("web-offload", "16 connections", "wrk -c 16 {wrk}"),
        row("web-offload", "256 connections", "wrk -c 256 {wrk}").only(SIZES, 2).full(),
        row("web-offload", "1,024 connections", "wrk -c 1024 {wrk}").only(SIZES, 2).full(),
    ], ..SWEEP },
    Sweep { xs: [&[16, 64, 256], &[64]], programs: WEB, serves: Serves::Mix, rows: &[
        row("web-mix", "", "load http --site {mix} --mix {list} --connections {x}"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 16 * KB, 64 * KB, MB], &[16 * KB]], programs: WEB, rows: &[
        row("web-loss", "", "load http {file} --connections 80 --fault drop=0.01,seed=1").only(&[], 3),
    ], ..SWEEP },
    Sweep { xs: INTERVALS, programs: [&[&SANDSTORM]; 2], options: "--flush-interval-us {x}", together: true, rows: &[
        row("delta-t", "HTTP, 1 KB", "load http --site {files} --path /1024.bin --connections 64"),
        row("delta-t", "HTTP, 64 KB", "load http --site {files} --path /65536.bin --connections 64"),
    ], ..SWEEP },
    Sweep { xs: INTERVALS, programs: [&[&TURNAROUND]; 2], serves: Serves::Zone(Some(10_000)),
        options: "--flush-interval-us {x}", together: true, rows: &[
        row("delta-t", "DNS", "load dns --hosts 10000 --window 240"),
    ], ..SWEEP },
    Sweep { xs: [&[1_000, 10_000, 100_000, 1_000_000], &[1_000, 10_000]], programs: KERNEL,
        options: "--max-connections {connections} --idle-timeout 3600", rows: &[
        row("connections", "", "load http --site {files} --path /1024.bin --connections 16 --idle {x}"),
    ], ..SWEEP },
    Sweep { xs: [&[KB]; 2], programs: [&[&SANDSTORM, &NGINX]; 2], tuning: PLAIN, rows: &[
        row("home", "HTTP, 64 connections", "wrk -c 64 {wrk}"),
    ], ..SWEEP },
    Sweep { xs: [&[100]; 2], programs: [&[&TURNAROUND, &KNOT, &NSD]; 2], serves: Serves::Zone(None), tuning: PLAIN, rows: &[
        row("home", "DNS", "dnsperf -s {address} -p 53 -d {questions} -c 4 -T 1 -q 100 -l {seconds}"),
    ], ..SWEEP },
    // dnsperf runs only at the two lower rates. At higher rates dnsperf is the bottleneck.
    Sweep { xs: [&[50_000, 100_000, 200_000, 400_000], &[100_000]], programs: [&[&TURNAROUND]; 2],
        serves: Serves::Zone(Some(100)), together: true, rows: &[
        row("agreement", "DNS by rate", "load dns --hosts 100 --rate {x}"),
        row("agreement", "DNS by rate", "dnsperf -Q {x} -s {address} -p 53 -d {questions} -c 4 -T 1 -q 1024 -l {seconds}").only(&[50_000, 100_000], 1),
        row("agreement", "DNS by rate, in bursts", "load dns --hosts 100 --rate {x} --burst 32"),
        row("agreement", "DNS by rate, in bursts", "kxdpgun -b 32 -Q {x} -t {seconds} {client} -i {questions} {address}"),
    ], ..SWEEP },
    Sweep { xs: [&[KB, 64 * KB], &[64 * KB]], programs: [&[&NGINX]; 2], together: true, rows: &[
        row("agreement", "HTTP by body", "load http {file} --connections 16"),
        row("agreement", "HTTP by body", "wrk -c 16 {wrk}"),
    ], ..SWEEP },
];

/// Returns all selected runs in the order in which they run.
pub(crate) fn plan(selection: &Selection) -> Vec<Set> {
    let mut sets = Vec::new();
    // Index into a sweep's arrays of two.
    let run = usize::from(selection.quick);
    for sweep in SWEEPS {
        let mut groups = Vec::new();
        for &x in sweep.xs[run] {
            for (n, program) in sweep.programs[run].iter().enumerate() {
                let jobs = sweep.jobs(selection, x, n, program);
                if !jobs.is_empty() && selection.common.selects(program.name) {
                    let spec = sweep.spec(x, program);
                    groups.push(Group { spec, jobs });
                }
            }
            if !sweep.together {
                sets.push(set(selection, std::mem::take(&mut groups)));
            }
        }
        sets.push(set(selection, groups));
    }
    sets.retain(|set| !set.groups.is_empty());
    sets
}

fn set(selection: &Selection, groups: Vec<Group>) -> Set {
    let mut connections = groups.iter().map(|group| group.spec.connections);
    let repeats = match selection.repeats {
        _ if connections.any(|n| n > UNREPEATED_CONNECTIONS) => 1,
        Some(repeats) => repeats,
        None if selection.quick => 1,
        None => 3,
    };
    Set { groups, repeats }
}

impl Sweep {
    /// Returns the jobs of the `n`-th program at a value of the variable.
    fn jobs(&self, selection: &Selection, x: u32, n: usize, program: &Program) -> Vec<Job> {
        let job = |row: &Row| {
            let figure = FIGURES.iter().find(|figure| figure.name == row.figure)?;
            let is_wanted = selects(&selection.figures, figure)
                && n < row.programs
                && (row.xs.is_empty() || row.xs.contains(&x))
                && (row.quick || !selection.quick);
            // In a full run, the figure of the rig's limit and the figures of costs are measured
            // for longer than the others.
            let seconds = match row.figure {
                _ if selection.quick => 1.0,
                "limit" | "dns-cost" | "web-cost" => 3.0,
                // The fastest servers would run out of files.
                "web-disk" => 1.0,
                _ => 1.5,
            };
            let warm_up = match row.figure {
                "web-files" if !selection.quick => CACHE_WARM_UP,
                _ => WARM_UP,
            };
            let load = row.load(x, program);
            is_wanted.then(|| Job {
                figure: row.figure,
                panel: row.panel,
                x: f64::from(x),
                line: match row.figure {
                    "agreement" => row.load.split(' ').next().unwrap_or_default(),
                    _ => program.name,
                },
                load,
                warm_up,
                seconds: selection.common.seconds.unwrap_or(seconds),
            })
        };
        self.rows.iter().filter_map(job).collect()
    }

    fn spec(&self, x: u32, program: &'static Program) -> Spec {
        let connections = if self.options.contains("{connections}") {
            x + SPARE_CONNECTIONS
        } else if matches!(self.serves, Serves::Numbered(_) | Serves::OnDisk(_)) {
            // This leaves more open files to caches.
            SPARE_CONNECTIONS
        } else {
            USUAL_CONNECTIONS
        };
        let options = self.options.replace("{x}", &x.to_string());
        let options = options.replace("{connections}", &connections.to_string());
        Spec {
            program,
            serves: match self.serves {
                _ if *program == REFLECT => Serves::Echo,
                Serves::Zone(None) => Serves::Zone(Some(x)),
                Serves::ZoneOf(form, None) => Serves::ZoneOf(form, Some(x)),
                Serves::Numbered(None) => Serves::Numbered(Some(x)),
                Serves::OnDisk(None) => Serves::OnDisk(Some(x)),
                serves => serves,
            },
            options: if program.is_ours() {
                options
            } else {
                String::new()
            },
            connections,
            tuning: Tuning {
                interrupts: if *program == NGINX_BUSY_POLL {
                    Interrupts::Polled
                } else {
                    Interrupts::Immediate
                },
                ..self.tuning
            },
            limited: self.limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Common;

    fn of(figures: &[&str], quick: bool) -> Vec<Set> {
        plan(&Selection {
            figures: figures.iter().map(|word| (*word).to_owned()).collect(),
            quick,
            ..Selection::default()
        })
    }

    fn jobs(sets: &[Set]) -> impl Iterator<Item = (&Group, &Job)> {
        let groups = sets.iter().flat_map(|set| &set.groups);
        groups.flat_map(|group| group.jobs.iter().map(move |job| (group, job)))
    }

    #[test]
    fn every_figure_has_runs_and_no_point_runs_twice_in_a_repeat() {
        for quick in [false, true] {
            let sets = of(&["all"], quick);
            let mut seen = Vec::new();
            for (_, job) in jobs(&sets) {
                let point = (job.figure, job.line, job.panel, job.x.to_bits());
                assert!(!seen.contains(&point), "{point:?}");
                seen.push(point);
            }
            let has_runs = |figure: &Figure| seen.iter().any(|point| point.0 == figure.name);
            assert!(FIGURES.iter().all(has_runs));
        }
    }

    #[test]
    fn a_quick_run_measures_for_less_than_90_s_and_all_for_less_than_55_minutes() {
        // These limits are for the measurements only. Warm-up and the start of servers take the
        // rest of the documented time: 3 minutes for a quick run, 80 minutes for `all`.
        for (figures, quick, most) in [(&[][..], true, 90.0), (&["all"], false, 3_300.0)] {
            let sets = of(figures, quick);
            let seconds = |set: &Set| {
                let jobs = set.groups.iter().flat_map(|group| &group.jobs);
                jobs.map(|job| job.seconds).sum::<f64>() * f64::from(set.repeats)
            };
            let seconds: f64 = sets.iter().map(seconds).sum();
            assert!(seconds < most, "{seconds}");
        }
    }

    #[test]
    fn a_selection_limits_figures_servers_and_repeats() {
        let sets = plan(&Selection {
            figures: vec!["dns-names".to_owned()],
            common: Common {
                server: "knot".to_owned(),
                ..Common::default()
            },
            repeats: Some(2),
            ..Selection::default()
        });
        assert!(sets.len() == 6 && sets.iter().all(|set| set.repeats == 2));
        for (group, job) in jobs(&sets) {
            assert!(group.spec.program.name.starts_with("Knot") && job.figure == "dns-names");
        }
    }

    #[test]
    fn one_zone_and_many_zones_are_asked_for_the_same_names() {
        let sets = of(&["dns-zones"], false);
        let points: Vec<_> = jobs(&sets)
            .filter(|(group, _)| *group.spec.program == NSD)
            .map(|(group, job)| (group.spec.serves, job.x, job.load.as_str()))
            .collect();
        let load = "load dns --hosts 100000 --window 240";
        let expected = [
            (Serves::Zone(Some(100_000)), 1.0, load),
            (Serves::ZoneOf(HOSTER, Some(100_000)), 1e5, load),
        ];
        assert_eq!(points, expected);
    }

    #[test]
    fn loads_and_options_have_the_variable_filled_in() {
        let sets = of(&["web-cost", "connections", "dns-cost"], false);
        let has = |line, load, options| {
            let is_it = |(group, job): (&Group, &Job)| {
                job.line == line && job.load == load && group.spec.options == options
            };
            assert!(jobs(&sets).any(is_it), "{load}");
        };
        has("NSD", "load dns --hosts 100 --rate 100000", "");
        has("reflector", "load echo --size 77 --rate 100000", "");
        let page = "load http --site {files} --path /4096.bin --connections 64 --rate 45000";
        has("nginx", page, "");
        let idle = "load http --site {files} --path /1024.bin --connections 16 --idle 1000";
        has("nginx", idle, "");
        let options = "--max-connections 2024 --idle-timeout 3600";
        has("sandstorm memcopy", idle, options);
    }
}
