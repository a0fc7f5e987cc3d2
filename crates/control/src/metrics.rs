//! The counts of a server as metrics, in the text formats of Prometheus and
//! `OpenMetrics`.
//!
//! | metric | source |
//! |---|---|
//! | `storm_*` | what every server of this crate has: ports, drops, reloads |
//! | `sandstorm_*`, or the name of another program | the program's [`Tally`](crate::Tally) |
//!
//! Every metric of a worker has the label `worker`, so a sum over all labels is the server's.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::metric_help::meaning;
use crate::status::{Histogram, PORT, Phase, Status, StatusCount};

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' own text format, version 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns all metrics of a server in this format.
pub(crate) fn encode(status: &Status, format: MetricsFormat) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families::of(status)));
    let mut out = String::new();
    let written = match format {
        MetricsFormat::Prometheus => prometheus_text::encode(&mut out, &registry),
        MetricsFormat::OpenMetrics => text::encode(&mut out, &registry),
    };
    // Writing to a string cannot fail.
    debug_assert!(written.is_ok());
    out
}

/// The program of what every server has. It stands for the port, too.
const SERVER: &str = "storm";

/// The labels of a sample.
type Labels = Vec<(String, String)>;

/// A value of a sample.
#[derive(Debug)]
enum Value {
    Number(f64),
    Count(u64),
    Histogram(f64, Vec<(f64, u64)>),
}

/// All samples with the same name.
#[derive(Debug)]
struct Family {
    kind: MetricType,
    help: String,
    samples: Vec<(Labels, Value)>,
}

/// All metrics of a server, by name.
#[derive(Debug, Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn of(status: &Status) -> Self {
        let mut families = Self::default();
        families.add_server(status);
        families.add_interface(status);
        families.add_reloads(status);
        for (number, worker) in status.workers.iter().enumerate() {
            let labels = vec![("worker".to_owned(), number.to_string())];
            if let Some(age) = worker.age_seconds {
                families.gauge("snapshot_age_seconds", labels.clone(), age);
            }
            for (name, count) in &worker.port {
                families.total(name, labels.clone(), *count);
            }
            for drop in &worker.drops {
                families.add_drop(drop, labels.clone());
            }
            for count in &worker.counts {
                families.add_count(count, labels.clone());
            }
            for histogram in &worker.histograms {
                families.add_histogram(histogram, labels.clone());
            }
        }
        families
    }

    fn add_server(&mut self, status: &Status) {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let about = vec![
            label("program", &status.program),
            label("version", &status.version),
        ];
        self.gauge("info", about, 1.0);
        let is_serving = f64::from(u8::from(status.phase == Phase::Serving));
        self.gauge("serving", Vec::new(), is_serving);
        self.gauge("uptime_seconds", Vec::new(), status.uptime_seconds);
        self.total("clock_steps", Vec::new(), status.clock_steps);
        for (name, is_up) in &status.endpoints {
            let value = f64::from(u8::from(*is_up));
            self.gauge("endpoint_up", vec![label("endpoint", name)], value);
        }
    }

    fn add_interface(&mut self, status: &Status) {
        let interface = &status.interface;
        let labels = vec![("interface".to_owned(), interface.name.clone())];
        let is_up = f64::from(u8::from(interface.is_up));
        self.gauge("link_up", labels.clone(), is_up);
        let addresses = interface.addresses.len() as f64;
        self.gauge("addresses", labels.clone(), addresses);
        for (change, count) in &interface.changes {
            let mut labels = labels.clone();
            labels.push(("change".to_owned(), change.clone()));
            self.total("interface_changes", labels, *count);
        }
    }

    fn add_reloads(&mut self, status: &Status) {
        let reloads = &status.reloads;
        self.gauge("generation", Vec::new(), reloads.generation as f64);
        for (result, count) in [
            ("succeeded", reloads.succeeded()),
            ("partial", reloads.partial),
            ("failed", reloads.failed),
        ] {
            let labels = vec![("result".to_owned(), result.to_owned())];
            self.total("reloads", labels, count);
        }
        let unread = reloads.unread;
        for (why, count) in [
            ("forbidden", unread.forbidden),
            ("hidden", unread.hidden),
            ("gone", unread.gone),
        ] {
            let labels = vec![("why".to_owned(), why.to_owned())];
            self.total("configuration_unread", labels, count);
        }
        if let Some(last) = &reloads.last {
            self.gauge("last_reload_seconds", Vec::new(), last.seconds);
            let at = last.unix_time;
            self.gauge("last_reload_timestamp_seconds", Vec::new(), at);
        }
    }

    fn add_drop(&mut self, drop: &StatusCount, mut labels: Labels) {
        labels.extend(drop.labels.clone());
        labels.push(("program".to_owned(), drop.program.clone()));
        labels.push(("reason".to_owned(), drop.name.clone()));
        self.total("dropped_packets", labels, drop.count);
    }

    fn add_count(&mut self, count: &StatusCount, mut labels: Labels) {
        labels.extend(count.labels.clone());
        let (kind, value) = if count.is_level {
            (MetricType::Gauge, Value::Number(count.count as f64))
        } else {
            (MetricType::Counter, Value::Count(count.count))
        };
        let metric = (&*count.program, &*count.name, count.meaning);
        self.add(metric, kind, labels, value);
    }

    fn add_histogram(&mut self, histogram: &Histogram, mut labels: Labels) {
        labels.extend(histogram.labels.clone());
        let ranges = histogram.ranges.iter();
        let ranges = ranges.map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), *count));
        let value = Value::Histogram(histogram.sum, ranges.collect());
        let metric = (&*histogram.program, &*histogram.name, histogram.meaning);
        self.add(metric, MetricType::Histogram, labels, value);
    }

    /// Adds a gauge that every server has.
    fn gauge(&mut self, name: &str, labels: Labels, value: f64) {
        let value = Value::Number(value);
        self.add((SERVER, name, None), MetricType::Gauge, labels, value);
    }

    /// Adds a counter that every server has.
    fn total(&mut self, name: &str, labels: Labels, value: u64) {
        let value = Value::Count(value);
        self.add((SERVER, name, None), MetricType::Counter, labels, value);
    }

    /// Adds a sample of a program's metric with this name, and perhaps a text about its meaning.
    fn add(
        &mut self,
        (program, name, meaning): (&str, &str, Option<&'static str>),
        kind: MetricType,
        labels: Labels,
        value: Value,
    ) {
        let name = slug(name);
        let name = match name.strip_suffix("_total") {
            // The formats add this suffix to the name of every counter.
            Some(stem) if matches!(kind, MetricType::Counter) => stem,
            _ => &name,
        };
        let family = self.0.entry(metric_name(program, name));
        let family = family.or_insert_with(|| Family {
            kind,
            help: meaning.map_or_else(|| help(name, kind), str::to_owned),
            samples: Vec::new(),
        });
        family.samples.push((labels, value));
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, family) in &self.0 {
            let mut metric = encoder.encode_descriptor(name, &family.help, None, family.kind)?;
            for (labels, value) in &family.samples {
                let mut sample = metric.encode_family(labels)?;
                match value {
                    Value::Number(number) => sample.encode_gauge(number)?,
                    Value::Count(count) => {
                        sample.encode_counter::<Labels, u64, f64>(count, None)?;
                    }
                    Value::Histogram(sum, ranges) => {
                        let count = ranges.iter().map(|(_, count)| count).sum();
                        sample.encode_histogram::<Labels>(*sum, count, ranges, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Describes a metric of which its program says nothing. `name` is without the program.
fn help(name: &str, kind: MetricType) -> String {
    if let Some(meaning) = meaning(name) {
        return meaning.to_owned();
    }
    let words = name.replace('_', " ");
    match kind {
        MetricType::Counter => format!("Number of {words} since the start"),
        MetricType::Histogram => format!("Distribution of {words} since the start"),
        _ => format!("Current {words}"),
    }
}

/// Returns the name of a metric of this program. Those of the port are named after the server.
fn metric_name(program: &str, name: &str) -> String {
    let program = if program == PORT { SERVER } else { program };
    let name = format!("{}_{name}", slug(program));
    // A metric's name must not begin with a digit.
    let is_digit = name.starts_with(|c: char| c.is_ascii_digit());
    if is_digit { format!("_{name}") } else { name }
}

/// Returns the name as a part of a metric's name: in small letters, with `_` for other characters.
fn slug(name: &str) -> String {
    let part = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().map(part).collect()
}

#[cfg(test)]
mod tests {
    use nmio::{PortCounters, PortLevels, Times};

    use super::*;
    use crate::live::{Published, snapshot};
    use crate::program::Counted;
    use crate::status::{InterfaceStatus, LastReload, ReloadResult, Reloads, UnreadCounts};
    use crate::tally::Meanings;

    /// What the program in these tests counts.
    const MEANINGS: Meanings = &[
        ("answers", "Answers by status"),
        ("rtt", "Times of round trips"),
    ];

    fn status() -> Status {
        let published = Published::for_workers(2);
        let mut port = PortCounters {
            rx_frames: 5,
            rx_lost: 3,
            ..PortCounters::default()
        };
        port.rx_batches.count(1);
        port.rx_batches.count(4);
        let levels = PortLevels {
            frames: 100,
            free: 60,
            sending: 7,
            receiving: 30,
        };
        let mut slot = published[1].lock();
        let mut times = Times::default();
        times.count(3);
        times.count(60_000_000);
        slot.fill((port, levels), &times, Counted::default(), |tally| {
            tally.describe(MEANINGS);
            tally.measured("rtt", &times);
            tally.event_of("answers", ("status", "404"), 7);
            tally.event("odd things", 1);
            tally.level("connections open", 2);
            tally.drop("bad \"checksum\"", 9);
        });
        drop(slot);
        Status {
            program: "9-web".to_owned(),
            version: "1.2".to_owned(),
            phase: Phase::Serving,
            uptime_seconds: 0.5,
            clock_steps: 0,
            reloads: Reloads {
                generation: 4,
                partial: 1,
                failed: 1,
                unread: UnreadCounts {
                    hidden: 2,
                    ..UnreadCounts::default()
                },
                running: false,
                last: Some(LastReload {
                    result: ReloadResult::Failed,
                    message: "why".to_owned(),
                    seconds: 0.25,
                    unix_time: 1.5,
                }),
            },
            endpoints: [("control".to_owned(), true), ("metrics".to_owned(), false)].into(),
            interface: InterfaceStatus {
                name: "eth0".to_owned(),
                is_present: true,
                is_up: true,
                addresses: vec!["192.0.2.1".to_owned()],
                refused: Vec::new(),
                not_reopened: None,
                listening: Vec::new(),
                changes: [("up".to_owned(), 2)].into(),
            },
            facts: Vec::new(),
            workers: Status::workers_of(&snapshot(&published), "9-web"),
        }
    }

    #[test]
    fn help_is_found_without_a_split_of_the_metrics_name() {
        let text = encode(&status(), MetricsFormat::OpenMetrics);
        for line in [
            "# HELP storm_link_up 1 while the interface is up and has a carrier",
            "# HELP storm_pool_frames Frames of the packet memory",
            // What every program has, of a program with a hyphen in its name.
            "# HELP _9_web_connections_open Open TCP connections",
            // What this program says.
            "# HELP _9_web_answers Answers by status",
            "# HELP _9_web_rtt_seconds Times of round trips",
            // What nobody says.
            "# HELP _9_web_odd_things Number of odd things since the start",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn counts_become_metrics_with_the_labels_of_their_worker_and_program() {
        let text = encode(&status(), MetricsFormat::OpenMetrics);
        for line in [
            "storm_info{program=\"9-web\",version=\"1.2\"} 1.0",
            "storm_serving 1.0",
            "storm_link_up{interface=\"eth0\"} 1.0",
            "storm_addresses{interface=\"eth0\"} 1.0",
            "storm_interface_changes_total{interface=\"eth0\",change=\"up\"} 2",
            "storm_generation 4.0",
            "storm_reloads_total{result=\"succeeded\"} 2",
            "storm_reloads_total{result=\"partial\"} 1",
            "storm_reloads_total{result=\"failed\"} 1",
            "storm_configuration_unread_total{why=\"forbidden\"} 0",
            "storm_configuration_unread_total{why=\"hidden\"} 2",
            "storm_configuration_unread_total{why=\"gone\"} 0",
            "storm_endpoint_up{endpoint=\"control\"} 1.0",
            "storm_endpoint_up{endpoint=\"metrics\"} 0.0",
            "storm_last_reload_seconds 0.25",
            "storm_received_frames_total{worker=\"0\"} 0",
            "storm_received_frames_total{worker=\"1\"} 5",
            "# TYPE _9_web_answers counter",
            "_9_web_answers_total{worker=\"1\",status=\"404\"} 7",
            "# TYPE _9_web_connections_open gauge",
            "_9_web_connections_open{worker=\"1\"} 2.0",
            "# TYPE storm_pool_frames gauge",
            "storm_pool_frames{worker=\"1\"} 100.0",
            "storm_pool_frames_free{worker=\"1\"} 60.0",
            "storm_ring_frames{worker=\"1\",direction=\"received\"} 30.0",
            "storm_ring_frames{worker=\"1\",direction=\"sent\"} 7.0",
            "storm_dropped_packets_total{worker=\"1\",program=\"port\",reason=\"lost before the RX ring\"} 3",
            "storm_dropped_packets_total{worker=\"1\",program=\"9-web\",reason=\"bad \\\"checksum\\\"\"} 9",
            "storm_batch_frames_sum{worker=\"1\",direction=\"received\"} 5.0",
            "storm_batch_frames_count{worker=\"1\",direction=\"received\"} 2",
            "storm_batch_frames_bucket{le=\"1.0\",worker=\"1\",direction=\"received\"} 1",
            "storm_batch_frames_bucket{le=\"7.0\",worker=\"1\",direction=\"received\"} 2",
            "storm_batch_frames_bucket{le=\"+Inf\",worker=\"1\",direction=\"received\"} 2",
            "# TYPE storm_batch_seconds histogram",
            "storm_batch_seconds_sum{worker=\"1\"} 60.000003",
            "storm_batch_seconds_bucket{le=\"0.000002\",worker=\"1\"} 0",
            "storm_batch_seconds_bucket{le=\"0.000004\",worker=\"1\"} 1",
            "storm_batch_seconds_bucket{le=\"33.554432\",worker=\"1\"} 1",
            "storm_batch_seconds_bucket{le=\"+Inf\",worker=\"1\"} 2",
            "_9_web_rtt_seconds_count{worker=\"1\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("storm_snapshot_age_seconds{worker=\"0\"}"));
    }

    #[test]
    fn prometheus_names_counters_with_their_suffix() {
        let text = encode(&status(), MetricsFormat::Prometheus);
        assert!(
            text.contains("# TYPE _9_web_answers_total counter\n"),
            "{text}"
        );
        assert!(!text.contains("EOF"));
    }
}
